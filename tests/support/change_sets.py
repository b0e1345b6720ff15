"""Records of external change sets, written by hand, and the events that an adapter makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from delta_cdc.core import change_log
from delta_cdc.spark.ingest.adapters import named

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

RECORD_DDL = (
    f"{change_log.RAW} string, {change_log.KEY} string, {change_log.UNDECODED} string, "
    f"{change_log.PUBLISHED} timestamp, "
    f"{change_log.POSITION} {change_log.POSITION_DDL}"
)


@dataclass(frozen=True)
class Event:
    """What is looked at of an event; ``columns`` are those it carries, sorted, or None."""

    op: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    sequence: Any = None
    columns: tuple[str, ...] | None = None
    error: str | None = None
    timestamp: str | None = None


def json_records(
    spark: SparkSession,
    lines: Sequence[str | None],
    *,
    keys: Sequence[str | None] = (),
    file: str = "/in/f.json",
) -> DataFrame:
    """Return lines of one file, or messages, as records."""
    told = list(keys) + [None] * (len(lines) - len(keys))
    rows = [
        (line, key, None, None, (file, at, None, None, None))
        for at, (line, key) in enumerate(zip(lines, told, strict=True))
    ]
    return spark.createDataFrame(rows, RECORD_DDL)


def table_records(
    spark: SparkSession,
    ddl: str,
    rows: Sequence[Sequence[Any]],
    *,
    files: Sequence[str] = (),
    present: Sequence[Sequence[str] | None] = (),
) -> DataFrame:
    """Return rows as records of CSV or Parquet files, each with the columns of ``ddl``."""
    places = list(files) or ["/in/f.csv"] * len(rows)
    shown = list(present) or [None] * len(rows)
    ddl = f"{RECORD_DDL}, {change_log.RECORD} struct<{ddl}>, {change_log.PRESENT} array<string>"
    made = [
        (None, None, None, None, (place, at, None, None, None), tuple(row), names)
        for at, (row, place, names) in enumerate(zip(rows, places, shown, strict=True))
    ]
    return spark.createDataFrame(made, ddl)


def adapted(
    records: DataFrame,
    adapter: str,
    options: Mapping[str, Any],
    *,
    keys: Sequence[str] = ("id",),
    schema: str | None = None,
    known: str | None = None,
    sequence_type: str | None = None,
    format: str = "json",  # noqa: A002
) -> DataFrame:
    """Return an adapter's events, as the engine asks for them."""
    from pyspark.sql import types as T

    def columns(ddl: str | None) -> T.StructType | None:
        if ddl is None:
            return None
        found = T.DataType.fromDDL(ddl)
        assert isinstance(found, T.StructType)
        return found

    made = named(adapter)
    checked = made.check(dict(options), keys=tuple(keys), format=format)
    context = change_log.Context(
        spark=records.sparkSession,
        options=checked,
        keys=tuple(keys),
        format=format,
        declared=columns(schema),
        known=columns(known),
        sequence_type=sequence_type,
    )
    return made.events(records, context)


def at(*parts: int) -> datetime:
    """Return a moment as Spark hands it out in UTC: without a zone."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def by_row(events: DataFrame) -> dict[int, list[Event]]:
    """Return the events of each record, by its number, the lower sequence first."""
    found: dict[int, list[Event]] = {}
    for row in events.collect():
        error = row[change_log.ERROR]
        columns = row[change_log.COLUMNS]
        stamp = row[change_log.SOURCE_TIMESTAMP]
        event = Event(
            op=row[change_log.OP],
            row=row[change_log.PAYLOAD].asDict(recursive=True)
            if row[change_log.PAYLOAD] and error is None
            else {},
            sequence=row[change_log.SEQUENCE] if error is None else None,
            columns=tuple(sorted(columns)) if columns is not None and error is None else None,
            error=error,
            timestamp=None if stamp is None else stamp.isoformat(sep=" "),
        )
        found.setdefault(row[change_log.POSITION]["row"], []).append(event)
    return {at: sorted(several, key=lambda event: str(event.sequence)) for at, several in found.items()}
