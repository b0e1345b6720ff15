"""Records of external change sets, written by hand, and the events that an adapter makes of them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_cdc.ingest import adapters, sources
from delta_cdc.ingest.batch import (
    COLUMNS,
    OP,
    POSITION,
    REASON,
    SEQUENCE,
    SOURCE_TIMESTAMP,
    Found,
    Maker,
    arrow_type,
    found_of,
)
from delta_cdc.ingest.ddl import parse_ddl
from delta_cdc.ingest.layout import layout
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.types import Type, struct

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


@dataclass(frozen=True)
class Event:
    """What is looked at of an event; ``columns`` are those it carries, sorted, or None."""

    op: str | None = None
    row: Mapping[str, Any] = field(default_factory=dict)
    sequence: Any = None
    columns: tuple[str, ...] | None = None
    error: str | None = None
    timestamp: str | None = None


@dataclass(frozen=True)
class Records:
    """Arrow batches of records, in groups of files with the same columns.

    :param given: the columns of Parquet files
    """

    batches: tuple[pa.RecordBatch, ...]
    is_messages: bool = False
    given: tuple[tuple[str, Type], ...] = ()
    header: str = ""


def typed(ddl: str) -> Type:
    """Return a list of columns."""
    found = parse_ddl(ddl)
    assert not isinstance(found, Invalid), found
    return found


def json_records(
    lines: Sequence[str | None], *, keys: Sequence[str | None] = (), file: str = "/in/f.json"
) -> Records:
    """Return lines of one file, or messages, as records."""
    count = len(lines)
    told = [*keys, *[None] * (count - len(keys))]
    raw = [None if line is None else line.encode() for line in lines]
    columns: dict[str, Any] = {
        sources.VALUE: pa.array(raw, pa.binary()),
        sources.KEY: pa.array([None if key is None else key.encode() for key in told], pa.binary()),
        sources.TOPIC: pa.array(["t"] * count, pa.string()),
        sources.PARTITION: pa.array([0] * count, pa.int32()),
        sources.OFFSET: pa.array(range(count), pa.int64()),
        sources.PUBLISHED: pa.array([None] * count, pa.int64()),
        sources.HEADERS: pa.array(
            [None] * count, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
        ),
        sources.FILE: pa.array([file] * count, pa.string()),
        **{name: pa.array([0] * count, pa.int64()) for name in (sources.SIZE, sources.START)},
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), list(columns))
    # A blank line of a file is skipped: to see one, the records are messages, which have no file.
    blank = any(line is None or not line.strip() for line in lines)
    return Records((batch,), is_messages=bool(keys) or blank)


def quarantined(texts: Sequence[str | None], *, file: str | None = None) -> pa.RecordBatch:
    """Return raw texts of the quarantine, as a replay reads them: of a file's rows, or of a topic."""
    count, of_topic = len(texts), file is None
    return pa.RecordBatch.from_pydict(
        {
            sources.VALUE: pa.array(texts, pa.string()),
            sources.FILE: pa.array([file] * count, pa.string()),
            sources.ROW: pa.array([None if of_topic else at for at in range(count)], pa.int64()),
            sources.TOPIC: pa.array(["t" if of_topic else None] * count, pa.string()),
            sources.PARTITION: pa.nulls(count, pa.int64()),
            sources.OFFSET: pa.array([at if of_topic else None for at in range(count)], pa.int64()),
            sources.PUBLISHED: pa.nulls(count, pa.int64()),
        }
    )


def table_records(
    ddl: str,
    rows: Sequence[Sequence[Any]],
    *,
    files: Sequence[str] = (),
    present: Sequence[Sequence[str] | None] = (),
) -> Records:
    """Return rows as records of Parquet files, each with the columns of ``ddl``, or those ``present``."""
    fields = typed(ddl).fields
    places = list(files) or ["/in/f.parquet"] * len(rows)
    shown = [tuple(names or (name for name, _ in fields)) for names in present or [None] * len(rows)]
    batches = []
    for names, group in groupby(range(len(rows)), key=lambda at: shown[at]):
        numbers = list(group)
        columns = {
            name: pa.array([_arrow(rows[at][place]) for at in numbers], arrow_type(kind))
            for place, (name, kind) in enumerate(fields)
            if name in names
        }
        columns[sources.FILE] = pa.array([places[at] for at in numbers], pa.string())
        columns[sources.PUBLISHED] = pa.array([None] * len(numbers), pa.int64())
        columns |= {name: pa.array([0] * len(numbers), pa.int64()) for name in (sources.SIZE, sources.START)}
        columns[sources.ROW] = pa.array(numbers, pa.int64())
        batches.append(pa.RecordBatch.from_arrays(list(columns.values()), list(columns)))
    return Records(tuple(batches), given=fields)


def _arrow(value: Any) -> Any:
    """Return a moment of Spark with its zone."""
    if isinstance(value, datetime) and value.tzinfo is None:
        return value.replace(tzinfo=UTC)
    return value


@dataclass(frozen=True)
class Adapted:
    """The rows of records, and their types."""

    rows: list[dict[str, Any]]
    columns: tuple[tuple[str, Type], ...]
    sequence: Type

    @property
    def types(self) -> dict[str, str]:
        """Return the types of the columns as SQL has them."""
        return {name: str(kind) for name, kind in self.columns}

    @property
    def type(self) -> str:
        """Return the type of the payload."""
        return str(struct(self.columns))


def adapted(
    records: Records,
    adapter: str,
    options: Mapping[str, Any],
    *,
    keys: Sequence[str] = ("id",),
    schema: str | None = None,
    known: str | None = None,
    sequence_type: str | None = None,
    format: str = "json",  # noqa: A002
) -> Adapted:
    """Return an adapter's events, as the engine asks for them."""
    declared = None if schema is None else typed(schema)
    checked = adapters.check(adapter, dict(options), keys=tuple(keys), format=format)
    reading = Reading(
        format=format,
        adapter=adapter,
        adapter_options=checked,
        keys=tuple(keys),
        declared=declared is not None,
        names=tuple(name for name, _ in declared.fields) if declared is not None else (),
        log_sequence=None if sequence_type is None else typed(f"v {sequence_type}").fields[0][1],
        is_messages=records.is_messages,
        numbered=True,
    )
    if records.given:
        # Rows of CSV files come as Parquet does here: these tests are about what an adapter makes of values.
        reading = replace(reading, format="parquet")
    made = reading.made_adapter()
    log = None if known is None else typed(known)
    found = Found()
    excluded = checked.get("except_column_list") or ()
    for _ in range(2):
        columns, others = layout(
            made, declared, log, dict(records.given), found, keys=keys, excluded=excluded
        )
        reading = reading.with_columns(columns, others)
        if declared is None and not records.given:
            for batch in found_of(reading)(iter(records.batches)):
                for text in batch.column(0).to_pylist():
                    found.merge(Found.of_text(text))
    maker = Maker(reading)
    rows = [row for batch in maker.batches(records.batches) for row in batch.to_pylist()]
    problem = maker.adapter.problem
    if problem is not None and any(row[REASON] == str(problem) for row in rows):
        raise problem
    return Adapted(rows, reading.columns, maker.sequencer.type)


def at(*parts: int) -> datetime:
    """Return a moment as Spark hands it out in UTC: without a zone."""
    return datetime(*parts)  # type: ignore[arg-type]  # noqa: DTZ001


def by_row(events: Adapted) -> dict[int, list[Event]]:
    """Return the events of each record, by its number, the lower sequence first."""
    found: dict[int, list[Event]] = {}
    for row in events.rows:
        error = row[REASON]
        columns = row[COLUMNS]
        stamp = row[SOURCE_TIMESTAMP]
        has_row = row[OP] in ("upsert", "delete") and error is None
        position = row[POSITION]
        event = Event(
            op=row[OP],
            row={name: _shown(row[name], kind) for name, kind in events.columns} if has_row else {},
            sequence=row[SEQUENCE] if error is None else None,
            columns=tuple(sorted(columns)) if columns is not None and error is None else None,
            error=error,
            timestamp=None
            if stamp is None or error is not None
            else stamp.replace(tzinfo=None).isoformat(sep=" "),
        )
        at = position["offset"] if position["row"] is None else position["row"]
        found.setdefault(at, []).append(event)
    return {at: sorted(several, key=lambda event: str(event.sequence)) for at, several in found.items()}


def _shown(value: Any, kind: Type) -> Any:
    """Return a value as Spark hands it out."""
    if value is None:
        return None
    if kind.name == "map":
        return {name: _shown(part, kind.element) for name, part in value}  # type: ignore[arg-type]
    if kind.name == "array":
        return [_shown(part, kind.element) for part in value]  # type: ignore[arg-type]
    if kind.name == "struct":
        return {name: _shown(value[name], part) for name, part in kind.fields}
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value


__all__ = ["Adapted", "Event", "Records", "adapted", "at", "by_row", "date", "json_records", "table_records"]
