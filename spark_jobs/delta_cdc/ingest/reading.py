"""How the records of one batch of an ingest are read: format, adapter, and the columns that they become."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import FORMAT_DEFAULTS
from delta_cdc.ingest import adapters, formats

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.ingest.record import Adapter, Invalid
    from delta_cdc.ingest.records.avro import SchemaId
    from delta_cdc.ingest.records.csv import Dialect
    from delta_cdc.ingest.types import Type


@dataclass(frozen=True)
class Reading:
    """How the records of one batch of an ingest are read.

    :param format: ``json``, ``csv``, ``parquet`` or ``avro``
    :param adapter: name of the adapter
    :param adapter_options: its options, checked
    :param columns: names and types of the payload, in its order
    :param others: names and types of other members, which may order the events
    :param gives_others: the rows have :data:`delta_cdc.ingest.batch.OTHERS`, with these members
    :param declared: ``schema`` names the columns, so that others do not count
    :param widens: columns of the log may get a wider type that a record gives
    :param names: the columns of CSV files without header
    :param log_sequence: type of the log's sequence; None before its first batch
    :param is_messages: the records are messages of a topic
    :param is_whole: a file is one record, or one array of records
    :param numbered: records of files get their row numbers
    :param is_again: the records are raw texts of the quarantine; each row keeps its text
    :param sizes: for CSV: the planned sizes of the files, by name
    :param schemas: for messages of Avro: the schemas that they name, as JSON; why one is not one of Avro;
        None for one that the registry does not have
    """

    format: str
    adapter: str
    adapter_options: Mapping[str, Any] = field(default_factory=dict)
    format_options: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    columns: tuple[tuple[str, Type], ...] = ()
    others: tuple[tuple[str, Type], ...] = ()
    gives_others: bool = False
    declared: bool = False
    widens: bool = False
    names: tuple[str, ...] = ()
    insert_only: bool = False
    log_sequence: Type | None = None
    is_messages: bool = False
    is_whole: bool = False
    numbered: bool = False
    is_again: bool = False
    sizes: Mapping[str, int] = field(default_factory=dict)
    schemas: Mapping[SchemaId, str | Invalid | None] = field(default_factory=dict)

    def made_adapter(self) -> Adapter:
        """Return the adapter.

        :raises InvalidConfiguration: no adapter has this name
        """
        named = (*self.names, *self.types) if self.declared else ()
        declared = frozenset(name.lower() for name in named)
        return adapters.named(
            self.adapter,
            self.adapter_options,
            keys=self.keys,
            format=self.format,
            insert_only=self.insert_only,
            declared=declared,
        )

    def with_columns(
        self, columns: tuple[tuple[str, Type], ...], others: tuple[tuple[str, Type], ...]
    ) -> Reading:
        """Return the reading for these columns."""
        return replace(self, columns=columns, others=others)

    @property
    def dialect(self) -> Dialect:
        """Return encoding and line breaks of files, and for CSV how values are written."""
        defaults = FORMAT_DEFAULTS.get((self.adapter, self.format), {})
        return formats.dialect_of(self.format, {**defaults, **self.format_options})

    @property
    def types(self) -> dict[str, Type]:
        """Return the types of all members that have one."""
        return {**dict(self.columns), **dict(self.others)}

    @property
    def is_columnar(self) -> bool:
        """Return whether the payload stays in Arrow."""
        return self.format == "parquet" and not self.is_again

    @property
    def is_exact(self) -> bool:
        """Return whether a column of another case is another column: in JSON, where names are values."""
        return self.format == "json"
