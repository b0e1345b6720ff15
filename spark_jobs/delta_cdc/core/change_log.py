"""Column names of an ingest's data: its delivered records, and the events that the change log stores.

An **adapter** is a function ``(records, context) -> events``, both DataFrames; it reads nothing else and
writes nothing. The bundled ones are in :mod:`delta_cdc.spark.ingest.adapters`. A custom adapter is given by
its dotted name, and may use the same helpers (:mod:`delta_cdc.spark.ingest.adapters.parsing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.properties import CHANGE_LOG
from delta_cdc.core.spec import ApplyOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from delta_cdc.core.spec import IngestOptions, SourceKind

    Adapter = Callable[[DataFrame, "Context"], DataFrame]

# -- records: the input of an adapter -----------------------------------------------------------
#: string: the raw record, a line or a message's value; NULL for a tombstone, and for Parquet.
RAW = "_raw"
#: struct: the record's columns, for CSV and Parquet; absent for JSON, which the adapter parses.
RECORD = "_record"
#: array of strings: the columns in the record's file; NULL means all of :data:`RECORD`. Absent for JSON.
PRESENT = "_present"
#: string: a message's key; NULL for files.
KEY = "_key"
#: string: why the reader could not decode the record; NULL if it could.
UNDECODED = "_undecoded"
#: timestamp: when the message was written to its topic, or when the file was last modified.
PUBLISHED = "_published"

# -- both ---------------------------------------------------------------------------------------
#: struct (:data:`POSITION_DDL`): where the record came from; passed on unchanged.
POSITION = "_position"
#: ``row`` counts from 0 in a file; NULL unless the adapter requests it (its ``needs_rows``).
POSITION_DDL = "struct<file: string, row: bigint, topic: string, partition: int, offset: bigint>"

# -- events: the output of an adapter; RAW and POSITION are passed on ----------------------------
#: string: :data:`UPSERT`, :data:`DELETE`, :data:`TRUNCATE`, or :data:`IGNORE` (counted, not stored).
OP = "_op"
UPSERT, DELETE, TRUNCATE, IGNORE = "upsert", "delete", "truncate", "ignore"
#: the order of a key's events: any type with an order; text parts have a fixed width, so that they sort
#: correctly as text. Where several events share a source position, the last part is the event's index.
SEQUENCE = "_sequence"
#: array of strings: the columns that the event carries; NULL: all of :data:`PAYLOAD`. Missing is not null.
COLUMNS = "_columns"
#: timestamp: when the source committed the change; for display only, never for ordering. NULL if unknown.
SOURCE_TIMESTAMP = "_source_timestamp"
#: struct: the event's own columns.
PAYLOAD = "_payload"
#: string: why the record is not an event; NULL for an event. An error row needs only RAW and POSITION.
ERROR = "_error"

#: Columns of the change log after the events' own columns, in this order.
LOG_COLUMNS = {
    OP: "string",
    SEQUENCE: None,
    COLUMNS: "array<string>",
    SOURCE_TIMESTAMP: "timestamp",
    POSITION: POSITION_DDL,
}


_PROPERTY = "delta_cdc.log."
#: The table properties in which a log gives arguments, with their values, to an apply that reads it.
DESCRIPTION = {
    f"{_PROPERTY}except_column_list": ",".join(LOG_COLUMNS),
    f"{_PROPERTY}sequence_by": SEQUENCE,
    f"{_PROPERTY}apply_as_deletes": f"{OP} = '{DELETE}'",
    f"{_PROPERTY}apply_as_truncates": f"{OP} = '{TRUNCATE}'",
    f"{_PROPERTY}columns_to_update": COLUMNS,
}


def description(*, insert_only: bool) -> dict[str, str]:
    """Return the properties of a log; rows of an ``insert_only`` ingest have neither key nor order."""
    return dict(list(DESCRIPTION.items())[:1]) if insert_only else DESCRIPTION


def log_properties(options: IngestOptions) -> dict[str, str]:
    """Return the table properties of the log of an ingest, without those that depend on its columns."""
    return {CHANGE_LOG: "true", **description(insert_only=options.insert_only), **options.log_properties}


def completed(options: ApplyOptions, properties: Mapping[str, str]) -> ApplyOptions:
    """Return the options of an apply; take options that the user omits from the source's own description.

    An ``insert_only`` apply of a log with keys copies that log, so it takes no option from the description.

    :param properties: the source's table properties, with or without :func:`description`
    """
    described = {name.removeprefix(_PROPERTY): properties[name] for name in DESCRIPTION if name in properties}
    kind: SourceKind = "change_log" if "sequence_by" in described else "change_feed"
    if options.insert_only != (kind == "change_feed") or options.source_kind not in (None, kind):
        return replace(options, source_kind=options.source_kind or "change_feed")
    if options.column_list is not None or (options.select and "*" not in options.select):
        described.pop("except_column_list", None)
    if options.is_partial:
        described.pop("columns_to_update", None)
    values: dict[str, Any] = {
        name: tuple(value.split(",")) if name == "except_column_list" else value
        for name, value in described.items()
        if getattr(options, name) == getattr(ApplyOptions, name)
    }
    return replace(options, source_kind=kind, **values)


@dataclass(frozen=True)
class Context:
    """The facts that an adapter may use besides the records.

    :param options: ``adapter_options``, checked by the adapter's ``check``
    :param keys: key columns
    :param format: ``json``, ``csv`` or ``parquet``
    :param declared: the events' columns that the user configured; None if not configured
    :param known: the columns that the change log already has, without :data:`LOG_COLUMNS`; None before its
        first batch. An adapter keeps these types, and may add columns
    :param sequence_type: the type (DDL) of the log's sequence; None before its first batch
    """

    spark: SparkSession
    options: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    format: str = "json"
    declared: StructType | None = None
    known: StructType | None = None
    sequence_type: str | None = None
