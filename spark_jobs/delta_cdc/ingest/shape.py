"""The shapes that an ingest passes on: records as they were delivered, events as the change log keeps them.

An **adapter** is a function ``(records, context) -> events``, both DataFrames; it reads nothing else and
writes nothing. The bundled ones are in :mod:`delta_cdc.ingest.adapters`; one of your own is named by its
dotted name, and may be built with the same helpers (:mod:`delta_cdc.ingest.adapters.parsing`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    Adapter = Callable[[DataFrame, "Context"], DataFrame]

# -- records, what an adapter is given ----------------------------------------------------------
#: string: the record as it came, a line or a message's value; NULL for a tombstone, and for Parquet.
RAW = "_raw"
#: struct: the record's columns, of CSV and Parquet; the column is absent for JSON, which the adapter parses.
RECORD = "_record"
#: array of strings: the columns that the record's file has; NULL is all of :data:`RECORD`. Absent for JSON.
PRESENT = "_present"
#: string: a message's key; NULL for files.
KEY = "_key"
#: string: why the reader could not decode the record; NULL where it could.
UNDECODED = "_undecoded"
#: timestamp: when the message was written to its topic, or the file last modified.
PUBLISHED = "_published"

# -- both ---------------------------------------------------------------------------------------
#: struct (:data:`POSITION_DDL`): where the record came from; passed on as it is.
POSITION = "_position"
#: ``row`` counts from 0 in a file, and is NULL where nobody asked for it (:meth:`needs_rows` of an adapter).
POSITION_DDL = "struct<file: string, row: bigint, topic: string, partition: int, offset: bigint>"

# -- events, what an adapter returns; RAW and POSITION are passed on ----------------------------
#: string: :data:`UPSERT`, :data:`DELETE`, :data:`TRUNCATE`, or :data:`IGNORE` (counted, and left out).
OP = "_op"
UPSERT, DELETE, TRUNCATE, IGNORE = "upsert", "delete", "truncate", "ignore"
#: the order of the events of a key: any type with an order; text parts are of fixed width, so that text order
#: is the order. Where several events share a position of their source, the last part is the event's index.
SEQUENCE = "_sequence"
#: array of strings: the columns that the event carries; NULL is all of :data:`PAYLOAD`. Missing is not null.
COLUMNS = "_columns"
#: timestamp: when the source committed the change, for people; never an order. NULL where unknown.
SOURCE_TIMESTAMP = "_source_timestamp"
#: struct: the event's own columns.
PAYLOAD = "_payload"
#: string: why the record is no event; NULL where it is one. Such a row needs RAW and POSITION only.
ERROR = "_error"

#: What the change log has beside the events' own columns, in this order, behind them.
LOG_COLUMNS = {
    OP: "string",
    SEQUENCE: None,
    COLUMNS: "array<string>",
    SOURCE_TIMESTAMP: "timestamp",
    POSITION: POSITION_DDL,
}


@dataclass(frozen=True)
class Context:
    """What an adapter may know beside the records.

    :param options: ``adapter_options``, checked by the adapter's ``check``
    :param keys: key columns
    :param format: ``json``, ``csv`` or ``parquet``
    :param declared: the events' columns as the user declared them; None where they did not
    :param known: the columns that the change log has already, without :data:`LOG_COLUMNS`; None before its
        first batch. An adapter keeps to these types, and may add columns
    :param sequence_type: the type (DDL) of the log's sequence; None before its first batch
    """

    spark: SparkSession
    options: dict[str, Any] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    format: str = "json"
    declared: StructType | None = None
    known: StructType | None = None
    sequence_type: str | None = None
