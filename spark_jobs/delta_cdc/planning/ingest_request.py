"""Defines and validates the arguments of an ingest."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import adapters, validation
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.properties import feed_on
from delta_cdc.core.topics import is_topics, parse
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.ingest import formats
from delta_cdc.ingest.ddl import of_ddl
from delta_cdc.ingest.types import Type, inner_names
from delta_cdc.planning.file_listing import check_glob, hides, read_source
from delta_cdc.planning.request import epoch_ms, refuse_same
from delta_cdc.planning.taken_files import INGESTED, QUARANTINE, beside

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.core.spec import IngestOptions

    Rules = Iterator[tuple[bool, str, str, str]]

_SIZES = ("max_files", "max_bytes", "max_offsets")
_FILES_ONLY = ("max_files", "max_bytes", "glob", "lexical_order", "follow_links")


@dataclass(frozen=True, kw_only=True)
class IngestRequest:
    """The arguments of one ingest.

    For the options see :data:`delta_cdc.core.option_schema.INGEST`.

    :param log_name: catalog name of the log, once ``log`` is its location; "" without a name
    :param storage_options: options of the object store, as delta-rs names them
    :param kafka_options: options of the Kafka client
    """

    pipeline: str
    source: str
    log: str
    options: IngestOptions
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    max_offsets: int | None = None
    glob: str | None = None
    lexical_order: bool = False
    follow_links: bool = False
    replay: bool = False
    on_expired: str = "fail"
    single_driver: bool = False
    log_name: str = ""
    run_id: str = ""
    storage_options: dict[str, str] | None = field(default=None, repr=False)
    kafka_options: dict[str, str] | None = field(default=None, repr=False)

    @property
    def is_kafka(self) -> bool:
        """Return whether the source is a topic."""
        return is_topics(self.source.strip())

    @property
    def source_uri(self) -> str:
        """Return the source as Spark names it."""
        return self.source.strip() if self.is_kafka else spark_uri(self.source)

    @property
    def starting_ms(self) -> int | None:
        """Return ``starting_timestamp`` in epoch milliseconds."""
        timestamp = self.starting_timestamp
        return None if timestamp is None else epoch_ms("starting_timestamp", timestamp)

    def check(self) -> None:
        """Validate the arguments.

        :raises InvalidConfiguration: names the arguments
        """
        self.checked()

    def checked(self) -> IngestOptions:
        """Return the options, with the adapter's options as the adapter parses them.

        The job checks the options of a custom adapter, because it may not be installed on this machine.

        :raises InvalidConfiguration: names the arguments
        """
        validation.check_pipeline(self.pipeline)
        _ = self.starting_ms
        for refused, argument, what, remedy in (*_sources(self), *_options(self.options)):
            if refused:
                raise validation.invalid(what, remedy, argument)
        if self.is_kafka:
            parse(self.source_uri)
        else:
            check_glob(self.glob)
            self._refuse_overlap()
        formats.check(self.options.format, self.options.format_options)
        _refuse_inner_variant(self.options.schema)
        return replace(self.options, adapter_options=_adapted(self.options))

    def _refuse_overlap(self) -> None:
        """Refuse a source whose files may be the log's own."""
        log = canonical_uri(self.log)
        sides = {suffix: beside(self.log, suffix) for suffix in (INGESTED, QUARANTINE)}
        refuse_same(source=self.source, log=self.log, ingested=sides[INGESTED], quarantine=sides[QUARANTINE])
        source = read_source(self.source)
        tables = [log, *map(canonical_uri, sides.values())]
        within = [_below(f"{table}/part-0.parquet", source) for table in tables]
        around = [table for table in tables if _below(f"{source}/", table) is not None]
        if around or any(below is not None and not hides(below) for below in within):
            raise validation.invalid(
                f"the folder of the source {self.source} or of the change log {self.log} contains the other",
                "use separate folders, neither of which contains the other.",
                "source",
            )


def _refuse_inner_variant(schema: str | None) -> None:
    """Refuse a VARIANT inside of a struct, an array or a map: its values come from Python as texts."""
    columns = of_ddl(schema) if schema else None
    # The job reports a text that is no list of columns.
    for name, kind in columns.fields if isinstance(columns, Type) else ():
        if kind.is_nested and "variant" in inner_names(kind):
            raise validation.invalid(
                f"schema gives the column {name} the type {str(kind)[:200]}, which has a VARIANT inside",
                f"make the whole column {name} a VARIANT, or the inner one a STRING.",
                "schema",
            )


def _below(uri: str, root: str) -> str | None:
    """Return a location relative to a folder; None if it is outside."""
    home = f"{root.rstrip('/')}/"
    return uri[len(home) :] if uri.startswith(home) else None


def _sources(r: IngestRequest) -> Rules:
    """Yield rules for the source: whether it is broken, the argument, the message and the remedy."""
    kafka = r.is_kafka
    kind = "a topic" if kafka else "files"
    yield (
        (r.options.source_kind == "kafka") != kafka,
        "source",
        f"the source {r.source} is {kind}, and source_kind is {r.options.source_kind!r}",
        "leave source_kind out: the source determines it.",
    )
    names = _FILES_ONLY if kafka else ("max_offsets",)
    names_given = [name for name in names if getattr(r, name) not in (None, False)]
    names_given += ["kafka_options"] if not kafka and r.kafka_options else []
    yield (
        bool(names_given),
        "".join(names_given[:1]),
        f"{', '.join(names_given)} and a source of {kind} are given",
        f"max_offsets and kafka_options are for a topic; {', '.join(_FILES_ONLY)} for files.",
    )
    bounds = [name for name in (*_SIZES, "starting_timestamp") if getattr(r, name) is not None]
    yield (
        r.replay and bool(bounds),
        "replay",
        f"replay and {', '.join(bounds)} are given",
        "leave them out: a replay reads all records in quarantine.",
    )


def _options(o: IngestOptions) -> Rules:
    """Yield rules for the options, in the same form."""
    yield (
        o.insert_only and bool(o.keys),
        "insert_only",
        "insert_only and keys are given",
        "leave keys out, because every record becomes a new row; or drop insert_only.",
    )
    yield (
        not o.insert_only and not o.keys,
        "keys",
        "keys are missing",
        "name the columns that identify a row; or set insert_only where every record is a new row.",
    )
    yield (
        o.source_kind == "kafka" and o.format not in ("json", "avro"),
        "format",
        f"the format of a topic is {o.format!r}",
        "use 'json', or 'avro'.",
    )
    yield (
        feed_on(o.log_properties),
        "log_properties",
        "log_properties turn the change data feed of the log on",
        "leave it out: a log is append-only, so its readers need no change data feed.",
    )


def _adapted(options: IngestOptions) -> dict[str, Any]:
    if "." in options.adapter or ":" in options.adapter:
        return options.adapter_options
    try:
        return adapters.check(
            options.adapter,
            options.adapter_options,
            keys=options.keys,
            format=options.format,
            insert_only=options.insert_only,
        )
    except InvalidConfiguration as error:
        error.argument = error.argument or "adapter_options"
        raise
