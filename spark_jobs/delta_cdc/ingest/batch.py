"""Carry records through decoding, adapter and typing: the function that Spark runs on Arrow batches.

A :class:`~delta_cdc.ingest.reading.Reading` says all that a batch of an ingest needs to know.
:func:`rows_of` gives the function for it: from Arrow batches of raw records to Arrow batches of events, each
with the reason if it is invalid. A record is one event, or several, or none. If one of its events is invalid,
the whole record is.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from delta_cdc.core import codec
from delta_cdc.core.adapters import DELETE, IGNORE, UPSERT
from delta_cdc.ingest import infer, values
from delta_cdc.ingest.record import Event, Invalid, Position
from delta_cdc.ingest.sources import PLACES, Item, Source, schema_ids, source_of
from delta_cdc.ingest.types import (
    BINARY,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    Type,
    array,
    decimal,
    map_of,
    of_json,
    struct,
    to_json,
)
from delta_cdc.ingest.values import MISFIT, Encoding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from delta_cdc.ingest.reading import Reading
    from delta_cdc.ingest.record import Record

#: Columns of the rows, after those of the payload.
OP, SEQUENCE, COLUMNS, SOURCE_TIMESTAMP = "_op", "_sequence", "_columns", "_source_timestamp"
POSITION, RAW, REASON = "_position", "_raw", "_reason"
#: What was seen of columns that the reading does not know, as JSON; NULL in all rows but one of a batch.
UNKNOWN = "_unknown"
#: A struct of members that are no payload, for SQL expressions that order events.
OTHERS = "_others"
#: The reason for a changed key whose new row is not known.
NOT_WHOLE = "a key change without the whole row"
#: Shapes of records that are remembered. Tables have few; documents may have endlessly many.
_MOST_SHAPES = 5_000
#: Names of members outside of ``schema`` that an Arrow batch reports.
_MOST_DROPPED = 100
#: Digits of a decimal whose schema names no precision.
_MOST_DIGITS = 38
#: Rows of an Arrow batch. Spark's own batches may become larger here, because a record may have many events.
_MOST_ROWS = 20_000
_NO_ROW: dict[str, Any] = {}


# -- what is not known yet -----------------------------------------------------------------------
@dataclass
class Found:
    """What records show of columns that a reading does not know.

    :param seen: of values without a type
    :param typed: types that the records themselves give
    :param dropped: names of members that ``schema`` leaves out
    """

    seen: dict[str, infer.Seen] = field(default_factory=dict)
    typed: dict[str, Type] = field(default_factory=dict)
    dropped: set[str] = field(default_factory=set)

    def take(self, name: str, value: Any, encoding: Encoding | None) -> None:
        """Add a value."""
        if encoding is None:
            seen = self.seen.get(name)
            if seen is None:
                seen = self.seen[name] = infer.Seen()
            infer.observe(seen, value)
        elif name in self.typed:
            if self.typed[name] != encoding.type:
                self.typed[name] = infer.common(self.typed[name], encoding.type)
        else:
            self.typed[name] = encoding.type

    def look(
        self, row: Mapping[str, Any], names: Iterable[str], encodings: Mapping[str, Encoding] | None
    ) -> None:
        """Add the values of members of a row."""
        for name in names:
            self.take(name, row[name], None if encodings is None else encodings.get(name))

    def merge(self, other: Found) -> None:
        """Add what others found."""
        for name, seen in other.seen.items():
            self.seen[name] = self.seen[name].merged(seen) if name in self.seen else seen
        for name, kind in other.typed.items():
            self.typed[name] = infer.common(self.typed[name], kind) if name in self.typed else kind
        self.dropped |= other.dropped

    def __bool__(self) -> bool:
        """Return whether anything was found."""
        return bool(self.seen or self.typed or self.dropped)

    def to_text(self) -> str:
        """Return it as JSON, which partitions send to the driver."""
        seen = {name: part.to_json() for name, part in self.seen.items()}
        typed = {name: to_json(kind) for name, kind in self.typed.items()}
        return json.dumps({"seen": seen, "typed": typed, "dropped": sorted(self.dropped)})

    @staticmethod
    def of_text(text: str) -> Found:
        """Return what :meth:`to_text` wrote."""
        value = codec.parsed(text, most_bytes=sys.maxsize)
        seen = {name: infer.Seen.of_json(part) for name, part in value["seen"].items()}
        typed = {name: of_json(kind) for name, kind in value["typed"].items()}
        return Found(seen, typed, set(value["dropped"]))


# -- shapes --------------------------------------------------------------------------------------
@dataclass(slots=True)
class _Shape:
    """What follows from the names of a row alone.

    :param names: the members for the columns of the payload, in their order; None: no member
    :param carried: number of the list of names that an upsert carries
    :param unknown: members that are no column yet, or whose objects may have more members
    :param reason: why no row of this shape is an event; "" if it may be
    :param is_whole: whether each column has a member
    """

    names: tuple[str | None, ...]
    carried: int
    unknown: tuple[str, ...]
    reason: str
    is_whole: bool


class Shapes:
    """The shapes that a task has seen."""

    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._columns = [name for name, _ in reading.columns]
        self._spelt = {name.lower(): name for name in self._columns}
        excluded = reading.adapter_options.get("except_column_list") or ()
        self._excluded = {name.lower() for name in excluded}
        self._growing = {name for name, kind in reading.columns if kind.is_nested}
        self._known: dict[tuple[str, ...], _Shape] = {}
        self.carried: list[list[str]] = []
        #: Members that ``schema`` leaves out, since they were last taken.
        self.dropped: set[str] = set()
        self._numbers: dict[tuple[str, ...], int] = {}

    def of(self, row: Mapping[str, Any]) -> _Shape:
        """Return the shape of a row."""
        members = tuple(row)
        shape = self._known.get(members)
        if shape is None:
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            shape = self._known[members] = self._made(members)
        return shape

    def carrying(self, names: Iterable[str]) -> int:
        """Return the number of a list of names that events carry."""
        key = tuple(names)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.carried)
            self.carried.append(list(key))
        return number

    def spelt(self, names: Iterable[str]) -> list[str]:
        """Return the columns that an event lists, as they are spelt; other names are left out."""
        found = [self._spelt.get(name.lower(), name) for name in names if name.lower() not in self._excluded]
        return [name for name in found if not self._reading.declared or name.lower() in self._spelt]

    def _made(self, members: tuple[str, ...]) -> _Shape:
        reading = self._reading
        reason = ""
        by_column: dict[str, str] = {}
        others: list[str] = []
        excluded: list[str] = []
        for member in members:
            lower = member.lower()
            if lower in self._excluded:
                if not reading.columns and not reading.declared:
                    excluded.append(member)
                continue
            if not member and not reading.declared:
                # No expression can name such a column.
                reason = "a column without a name, which the option schema would leave out"
                continue
            column = self._spelt.get(lower)
            if column is None:
                others.append(member)
            elif column in by_column:
                reason = f"two columns whose names differ in case only: {by_column[column]} and {member}"
            else:
                if column != member and reading.is_exact:
                    reason = reason or f"a column of another case than in the log: {member}"
                by_column[column] = member
        lowered = [name.lower() for name in others]
        if len(set(lowered)) < len(lowered):
            twice = next(name for name in others if lowered.count(name.lower()) > 1)
            reason = reason or f"two columns whose names differ in case only: {twice}"
        if reading.declared:
            self._drop(others)
            others = []
            unknown: tuple[str, ...] = ()
        else:
            # Only a look at a first batch asks for the types of the excluded ones: they may order the events.
            growing = (member for column, member in by_column.items() if column in self._growing)
            unknown = (*others, *excluded, *growing)
        names = tuple(by_column.get(column) for column in self._columns)
        present = {member: column for column, member in by_column.items()}
        carried = [present.get(member, member) for member in members if member in present or member in others]
        return _Shape(names, self.carrying(carried), unknown, reason, None not in names)

    def _drop(self, members: Iterable[str]) -> None:
        """Note members that ``schema`` leaves out."""
        self.dropped.update(islice(members, _MOST_DROPPED - len(self.dropped)))


# -- rows ----------------------------------------------------------------------------------------
class _Rows:
    """Rows in the making: one per event, and one per record without an event."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.shapes: list[_Shape | None] = []
        self.ops: list[str | None] = []
        self.sequences: list[Any] = []
        self.carried: list[int | None] = []
        self.timestamps: list[int | None] = []
        self.positions: list[Position] = []
        self.reasons: list[str | None] = []
        self.raws: list[Any] = []
        self.encodings: list[Mapping[str, Encoding] | None] = []
        self.others: list[Mapping[str, Any]] = []
        #: First row and number of rows of each record with several events.
        self.several: list[tuple[int, int]] = []

    def __len__(self) -> int:
        return len(self.ops)


class Maker:
    """Makes the rows of a task."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self.adapter = reading.made_adapter()
        self.source: Source = source_of(reading, self.adapter)
        types = reading.types
        self.sequencer = self.adapter.sequence(types, reading.log_sequence)
        self.schema = output_schema(reading, self.sequencer.type)
        self._shapes = Shapes(reading)
        own = self.adapter.encodings(types)
        self._encodings = {name: own.get(name) or values.plain(kind) for name, kind in reading.columns}
        self._keys = {key.lower() for key in reading.keys}
        self._converters: dict[Encoding, Callable[[Any], Any]] = {}
        self._arrow = {name: arrow_type(kind) for name, kind in reading.columns}
        self._rows = _Rows()
        self._found = Found()
        #: What was compared last (:meth:`_look_for_wider`): the encodings of one schema are one object.
        self._compared: tuple[Mapping[str, Encoding], _Shape] | None = None
        #: Whether the files of a batch in columns have all of them.
        self._is_whole = True
        #: A quoted empty value of CSV is an empty text, and NULL in columns of other types.
        self._blank_is_null = reading.format == "csv"

    def batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Return the rows of Arrow batches."""
        for batch in batches:
            if self.reading.is_columnar:
                present = {name.lower() for name in batch.schema.names}
                self._is_whole = all(name.lower() in present for name, _ in self.reading.columns)
            for item in self.source.items(batch):
                self._take(item.record, item.raw, item.position)
                if len(self._rows) >= _MOST_ROWS and not self.reading.is_columnar:
                    yield self._made(batch)
            if self._rows:
                yield self._made(batch)
        for item in self.source.last():
            self._take(item.record, item.raw, item.position)
        if self._rows:
            yield self._made(None)

    # -- one record -------------------------------------------------------------------------------
    def _take(self, record: Any, raw: Any, position: Position) -> None:
        found = record if isinstance(record, Invalid) else self.adapter.events(record)
        if isinstance(found, Invalid):
            self._reject(found.reason, raw, position)
            return
        rows = self._rows
        if len(found) != 1:
            if not found:
                found = (Event(IGNORE, _NO_ROW),)
            else:
                rows.several.append((len(rows), len(found)))
        if record.encodings is not None:
            for event in found:
                event.encodings = _encodings(event, record)
        for event in found:
            self._add(event, raw, position)

    def _reject(self, reason: str, raw: Any, position: Position) -> None:
        rows = self._rows
        rows.rows.append(_NO_ROW)
        rows.shapes.append(None)
        rows.ops.append(None)
        rows.sequences.append(None)
        rows.carried.append(None)
        rows.timestamps.append(None)
        rows.positions.append(position)
        rows.reasons.append(reason)
        rows.raws.append(raw)
        rows.encodings.append(None)
        rows.others.append(_NO_ROW)

    def _add(self, event: Event, raw: Any, position: Position) -> None:
        op, row = event.op, event.row
        has_row = op in (UPSERT, DELETE)
        shape = self._shapes.of(row) if has_row and not self.reading.is_columnar else None
        flaw = self._flaw(event, shape)
        if flaw:
            self._reject(flaw, raw, position)
            return
        if shape is not None and shape.unknown:
            self._found.look(row, shape.unknown, event.encodings)
        if self.reading.widens and shape is not None and event.encodings is not None:
            # Only rows count: an ignored record may be one of another table.
            self._look_for_wider(shape, event.encodings)
        carried = None if op != UPSERT else self._carried(event, shape)
        reason, sequence = None, None
        if op != IGNORE:
            sequence = self.sequencer.value(event.sequence)
            if type(sequence) is Invalid:
                reason, sequence = sequence.reason, None
        rows = self._rows
        rows.rows.append(row if has_row else _NO_ROW)
        rows.shapes.append(shape)
        rows.ops.append(op)
        rows.sequences.append(sequence)
        rows.carried.append(carried)
        rows.timestamps.append(event.source_timestamp)
        rows.positions.append(position)
        rows.reasons.append(reason)
        rows.raws.append(raw)
        rows.encodings.append(event.encodings)
        rows.others.append(row if event.others is None else event.others)

    def _flaw(self, event: Event, shape: _Shape | None) -> str:
        """Return why an event is invalid, by the names that its row has; "" if it may be valid."""
        if shape is not None and shape.reason:
            return shape.reason
        if event.whole and not (self._is_whole if shape is None else shape.is_whole):
            return NOT_WHOLE
        return ""

    def _look_for_wider(self, shape: _Shape, encodings: Mapping[str, Encoding]) -> None:
        """Note the types that a record gives for columns of a narrower type.

        Without a precision or a scale of its own, a decimal says nothing about the digits of its values.
        """
        if self._compared is not None and self._compared[0] is encodings and self._compared[1] is shape:
            return
        self._compared = encodings, shape
        for (column, kind), name in zip(self.reading.columns, shape.names, strict=True):
            encoding = encodings.get(name) if name is not None else None
            if encoding is None or encoding.type.precision == _MOST_DIGITS:
                continue
            if infer.wider(kind, encoding.type) not in (None, kind):
                self._found.take(column, None, encoding)

    def _carried(self, event: Event, shape: _Shape | None) -> int | None:
        if event.carried is not None:
            return self._shapes.carrying(self._shapes.spelt(event.carried))
        return None if shape is None else shape.carried

    # -- one Arrow batch --------------------------------------------------------------------------
    def _made(self, batch: pa.RecordBatch | None) -> pa.RecordBatch:
        rows, self._rows = self._rows, _Rows()
        columns = self._columnar(rows, batch) if self.reading.is_columnar else self._payload(rows)
        self._reject_null_keys(rows, columns)
        kept = self._without_parts(rows)
        reasons = rows.reasons
        ops = [op if reason is None else None for op, reason in zip(rows.ops, reasons, strict=True)]
        keeps = self.reading.is_again
        raw_text = self.source.raw_text
        raws = [
            raw_text(raw) if keeps or reason is not None else None
            for raw, reason in zip(rows.raws, reasons, strict=True)
        ]
        self._found.dropped, self._shapes.dropped = self._shapes.dropped, set()
        unknown: list[str | None] = [None] * len(ops)
        if self._found:
            at = 0 if kept is None else kept[0]
            unknown[at], self._found = self._found.to_text(), Found()
        carried = pa.array(self._shapes.carried, pa.list_(pa.string()))
        moment = pa.timestamp("us", "UTC")
        arrays = [
            *columns,
            pa.array(ops, pa.string()),
            pa.array(rows.sequences, self.schema.field(SEQUENCE).type),
            carried.take(pa.array(rows.carried, pa.int32())),
            pa.array(rows.timestamps, pa.int64()).cast(moment),
            _positions(rows.positions),
            pa.array(raws, pa.string()),
            pa.array(reasons, pa.string()),
            pa.array(unknown, pa.string()),
        ]
        if self.reading.gives_others:
            arrays.append(self._others(rows, batch))
        made = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        return made if kept is None else made.take(pa.array(kept, pa.int64()))

    def _payload(self, rows: _Rows) -> list[pa.Array]:
        """Return the columns of the payload, and note values that do not fit."""
        shapes = {id(shape): shape for shape in rows.shapes}
        names = {shape.names for shape in shapes.values() if shape is not None}
        owns = {id(own): own for own in rows.encodings}
        arrays = []
        for at, (name, kind) in enumerate(self.reading.columns):
            members = {found[at] for found in names}
            if members <= {name, None}:
                column = [row.get(name) for row in rows.rows]
            else:
                spelt = [None if shape is None else shape.names[at] for shape in rows.shapes]
                column = [
                    None if member is None else row[member]
                    for row, member in zip(rows.rows, spelt, strict=True)
                ]
            if self._blank_is_null and kind.name != "string":
                column = [None if value == "" else value for value in column]
            if len(owns) == 1 and None in owns.values():
                array, misfits = self._array(column, self._encodings[name], self._arrow[name])
            else:
                array, misfits = self._mixed(name, column, rows, owns)
            if misfits:
                is_key = name.lower() in self._keys
                for row in misfits:
                    if rows.reasons[row] is None and (is_key or rows.ops[row] == UPSERT):
                        own = (rows.encodings[row] or {}).get(name, self._encodings[name])
                        rows.reasons[row] = _misfit(name, kind, column[row], own.coding)
            arrays.append(array)
        return arrays

    def _others(self, rows: _Rows, batch: pa.RecordBatch | None) -> pa.Array:
        """Return members that are no payload; one that does not fit its type is NULL."""
        arrays, fields = [], list(self.schema.field(OTHERS).type)
        for name, kind in self.reading.others:
            if self.reading.is_columnar:
                assert batch is not None
                found = next((own for own in batch.schema.names if own.lower() == name.lower()), None)
                values_ = (
                    [None] * len(rows)
                    if found is None
                    else batch.column(found).take(pa.array(rows.raws, pa.int64())).to_pylist()
                )
            else:
                values_ = [_member(row, name) for row in rows.others]
            array, _ = _checked(list(map(self._converter(values.plain(kind)), values_)), arrow_type(kind))
            arrays.append(array)
        return pa.StructArray.from_arrays(arrays, fields=fields)

    def _mixed(
        self, name: str, column: list[Any], rows: _Rows, owns: Mapping[int, Mapping[str, Encoding] | None]
    ) -> tuple[pa.Array, list[int]]:
        """Return a column whose values are written as their records say."""
        default = self._encodings[name]
        found = {
            number: default
            if own is None or name not in own
            else own[name]
            if own[name].type == default.type
            else values.aimed(own[name], default.type)
            for number, own in owns.items()
        }
        encodings = set(found.values())
        if len(encodings) == 1:
            return self._array(column, encodings.pop(), self._arrow[name])
        converters = {number: self._converter(encoding) for number, encoding in found.items()}
        converted = [converters[id(own)](value) for own, value in zip(rows.encodings, column, strict=True)]
        return _checked(converted, self._arrow[name])

    def _converter(self, encoding: Encoding) -> Callable[[Any], Any]:
        converter = self._converters.get(encoding)
        if converter is None:
            converter = self._converters[encoding] = values.converter(encoding)
        return converter

    def _array(self, column: list[Any], encoding: Encoding, arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
        """Return values as an array, and the rows whose value does not fit."""
        if encoding.coding == "text":
            usual = _USUAL.get(encoding.type.name)
            if usual is not None and set(map(type, column)) <= usual:
                try:
                    return pa.array(column, arrow), []
                except (pa.ArrowInvalid, OverflowError, UnicodeEncodeError):
                    # A number beyond the type, or half of a surrogate pair: the careful way finds the rows.
                    pass
        return _checked(list(map(self._converter(encoding), column)), arrow)

    def _columnar(self, rows: _Rows, batch: pa.RecordBatch | None) -> list[pa.Array]:
        """Return the columns of the payload from those of a Parquet file."""
        assert batch is not None
        indices = pa.array(rows.raws, pa.int64())
        own = {name.lower(): name for name in batch.schema.names if name not in PLACES}
        is_payload = pa.array([op in (UPSERT, DELETE) for op in rows.ops], pa.bool_())
        several = {row for first, count in rows.several for row in range(first, first + count)}
        arrays = []
        for name, kind in self.reading.columns:
            found, arrow = own.get(name.lower()), self._arrow[name]
            if found is None:
                arrays.append(pa.nulls(len(rows), arrow))
                continue
            array = batch.column(found).take(indices)
            misfits: list[int] = []
            if several and name.lower() in self._keys:
                column = array.to_pylist()
                for row in several:
                    column[row] = next(
                        (value for member, value in rows.rows[row].items() if member.lower() == name.lower()),
                        column[row],
                    )
                array, misfits = self._array(column, values.plain(kind), arrow)
            elif array.type != arrow:
                array, misfits = self._cast(array, kind, arrow)
            for row in misfits:
                if rows.reasons[row] is None and (name.lower() in self._keys or rows.ops[row] == UPSERT):
                    rows.reasons[row] = _misfit(name, kind, None)
            arrays.append(pc.if_else(is_payload, array, pa.scalar(None, arrow)))
        present = [name for name, _ in self.reading.columns if name.lower() in own]
        number = self._shapes.carrying(present)
        rows.carried = [
            number if op == UPSERT and carried is None else carried
            for op, carried in zip(rows.ops, rows.carried, strict=True)
        ]
        return arrays

    def _cast(self, array: pa.Array, kind: Type, arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
        if kind.name in _EXACT and (pa.types.is_integer(array.type) or pa.types.is_decimal(array.type)):
            try:
                return array.cast(arrow), []
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                # A value that does not fit: the careful way finds its row.
                pass
        given = array.to_pylist()
        if _has_moments(array.type, kind):
            given = list(map(_zoned, given))
        return _checked(list(map(self._converter(values.plain(kind)), given)), arrow)

    def _reject_null_keys(self, rows: _Rows, columns: list[pa.Array]) -> None:
        if self.reading.insert_only:
            return
        arrays = {name.lower(): array for (name, _), array in zip(self.reading.columns, columns, strict=True)}
        for key in self.reading.keys:
            array = arrays.get(key.lower())
            if array is not None and not array.null_count:
                continue
            nulls = [True] * len(rows) if array is None else array.is_null().to_pylist()
            for row, is_null in enumerate(nulls):
                if is_null and rows.reasons[row] is None and rows.ops[row] in (UPSERT, DELETE):
                    rows.reasons[row] = f"null key: {key}"

    def _without_parts(self, rows: _Rows) -> list[int] | None:
        """Make records with several events invalid as a whole. Return the rows to keep; None keeps all."""
        dropped: set[int] = set()
        for first, count in rows.several:
            part = range(first, first + count)
            reason = next((rows.reasons[row] for row in part if rows.reasons[row] is not None), None)
            if reason is not None:
                rows.reasons[first] = reason
                dropped.update(part[1:])
        return [row for row in range(len(rows)) if row not in dropped] if dropped else None


def _encodings(event: Event, record: Record | Invalid) -> Mapping[str, Encoding] | None:
    """Return how the values of an event's row are written, if its record says it of them."""
    if event.encodings is not None or isinstance(record, Invalid) or record.encodings is None:
        return event.encodings
    given = record.value
    is_given = all(name in given and given[name] is value for name, value in event.row.items())
    return record.encodings if is_given else None


def _misfit(name: str, kind: Type, value: Any, coding: str = "text") -> str:
    """Return why a value is not one of its column.

    :param coding: how the record, or the adapter, says that it is written
    """
    member = _respelt(value, kind)
    if member is not None:
        return f"column {name} has a member in another case than the log: {member}"
    if kind in (TIMESTAMP, TIMESTAMP_NTZ) and type(value) is int:
        is_known = coding.startswith("epoch")
        what = "beyond the years 1 to 9999, as infinity is" if is_known else "of an unknown unit"
        return f"column {name} is no {kind}, but a number {what}"
    return f"column {name} is no {str(kind)[:100]}"


def _respelt(value: Any, kind: Type) -> str | None:
    """Return a member that differs from a field of its struct in case only."""
    if kind.name == "struct" and isinstance(value, dict):
        names = {name.lower(): (name, part) for name, part in kind.fields}
        for member, inner in value.items():
            field = names.get(member.lower())
            if field is not None:
                found = member if field[0] != member else _respelt(inner, field[1])
                if found is not None:
                    return found
    if kind.element is not None:
        inners = value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
        return next((found for inner in inners if (found := _respelt(inner, kind.element)) is not None), None)
    return None


def _member(row: Mapping[str, Any], name: str) -> Any:
    """Return a member by its exact name, else without regard to case."""
    if name in row:
        return row[name]
    lower = name.lower()
    return next((value for other, value in row.items() if other.lower() == lower), None)


def _has_moments(arrow: pa.DataType, kind: Type) -> bool:
    """Return whether a column of a file, or a part of it, has moments where the log has local times."""
    if pa.types.is_struct(arrow):
        return any(
            arrow.get_field_index(name) >= 0 and _has_moments(arrow.field(name).type, part)
            for name, part in kind.fields
        )
    if pa.types.is_nested(arrow):
        inner = arrow.item_type if pa.types.is_map(arrow) else arrow.value_type
        return kind.element is not None and _has_moments(inner, kind.element)
    return kind == TIMESTAMP_NTZ and pa.types.is_timestamp(arrow) and arrow.tz is not None


def _zoned(value: Any) -> Any:
    """Return a value with texts for its moments, which no local time can be: which one depends on a zone."""
    if isinstance(value, dict):
        return {name: _zoned(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(_zoned, value))
    return value.isoformat() if isinstance(value, datetime) and value.tzinfo is not None else value


def _checked(converted: list[Any], arrow: pa.DataType) -> tuple[pa.Array, list[int]]:
    """Return converted values as an array, and the rows of those that do not fit."""
    misfits = [row for row, value in enumerate(converted) if value is MISFIT]
    for row in misfits:
        converted[row] = None
    return pa.array(converted, arrow), misfits


def _positions(positions: Sequence[Position]) -> pa.Array:
    kinds = [field.type for field in _POSITION]
    parts = [pa.array(part, kind) for part, kind in zip(zip(*positions, strict=True), kinds, strict=True)]
    return pa.StructArray.from_arrays(parts, fields=list(_POSITION))


def probed(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the version of pyarrow, if this module can be loaded where the function runs."""
    for _ in batches:
        yield pa.RecordBatch.from_arrays([pa.array([pa.__version__], pa.string())], ["version"])


def found_of(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that only looks at columns which the reading does not know.

    Its batches have the column :data:`UNKNOWN`, with at most one row for each Arrow batch.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        adapter, shapes = reading.made_adapter(), Shapes(reading)
        source = source_of(reading, adapter)

        def found(items: Iterable[Item]) -> Iterator[pa.RecordBatch]:
            seen = Found()
            for item in items:
                events = () if isinstance(item.record, Invalid) else adapter.events(item.record)
                for event in () if isinstance(events, Invalid) else events:
                    if event.op in (UPSERT, DELETE):
                        seen.look(event.row, shapes.of(event.row).unknown, _encodings(event, item.record))
            if seen:
                yield pa.RecordBatch.from_arrays([pa.array([seen.to_text()], pa.string())], [UNKNOWN])

        for batch in batches:
            yield from found(source.items(batch))
        yield from found(source.last())

    return look


def ids_of(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Return the ids of schemas that messages of Avro name, each once for an Arrow batch."""
    for batch in batches:
        found = sorted(schema_ids(batch), key=str)
        numbers = pa.array([id_.number % 2**64 for id_ in found], pa.uint64()).view(pa.int64())
        kinds = pa.array([id_.is_content for id_ in found], pa.bool_())
        yield pa.RecordBatch.from_arrays([numbers, kinds], ["number", "is_content"])


def read_of(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function that only reads records to their end. Its batches have no rows."""

    def read(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        source = source_of(reading, None)
        for batch in batches:
            for _ in source.items(batch):
                pass
        yield pa.RecordBatch.from_arrays([pa.array([], pa.string())], [UNKNOWN])

    return read


def rows_of(reading: Reading) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Return the function for Spark's ``mapInArrow``."""
    return lambda batches: Maker(reading).batches(batches)


# -- types of Arrow -------------------------------------------------------------------------------
_POSITION = pa.struct(
    [
        ("file", pa.string()),
        ("row", pa.int64()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
    ]
)
_NONE = type(None)
#: Types of column -> the classes of values that Arrow itself converts exactly, or refuses.
_USUAL: dict[str, set[type]] = {
    "string": {str, _NONE},
    "long": {int, _NONE},
    "integer": {int, _NONE},
    "short": {int, _NONE},
    "byte": {int, _NONE},
    "boolean": {bool, _NONE},
}
#: Between these types, Arrow's cast converts exactly, or refuses. It rounds floating point numbers, and takes
#: booleans, dates, moments and texts for numbers.
_EXACT = ("byte", "short", "integer", "long", "decimal")
_ARROW = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "variant": pa.string(),
    "void": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


#: Unsigned numbers get a type with more bits, as in Spark.
_OF_ARROW = {
    **{kind: Type(name) for name, kind in _ARROW.items() if name not in ("variant", "void")},
    pa.string(): STRING,
    pa.null(): VOID,
    pa.date64(): Type("date"),
    pa.uint8(): Type("short"),
    pa.uint16(): Type("integer"),
    pa.uint32(): Type("long"),
    pa.uint64(): decimal(20, 0),
}


def arrow_type(kind: Type) -> pa.DataType:
    """Return the Arrow type of a column; a variant travels as text."""
    if kind.name == "decimal":
        return pa.decimal128(kind.precision, kind.scale)
    if kind.name == "array":
        assert kind.element is not None
        return pa.list_(arrow_type(kind.element))
    if kind.name == "map":
        assert kind.key is not None
        assert kind.element is not None
        return pa.map_(arrow_type(kind.key), arrow_type(kind.element))
    if kind.name == "struct":
        return _struct(kind.fields)
    return _ARROW.get(kind.name, pa.string())


def of_arrow(kind: pa.DataType) -> Type:
    """Return the type of a column of a Parquet file, as Spark reads it."""
    if pa.types.is_decimal(kind):
        return decimal(kind.precision, kind.scale)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        return array(of_arrow(kind.value_type))
    if pa.types.is_map(kind):
        return map_of(of_arrow(kind.key_type), of_arrow(kind.item_type))
    if pa.types.is_struct(kind):
        return struct([(field.name, of_arrow(field.type)) for field in kind])
    if pa.types.is_dictionary(kind):
        return of_arrow(kind.value_type)
    if pa.types.is_timestamp(kind):
        return TIMESTAMP_NTZ if kind.tz is None else TIMESTAMP
    return _OF_ARROW.get(kind, BINARY if "binary" in str(kind) else STRING)


def _struct(fields: Iterable[tuple[str, Type]]) -> pa.DataType:
    return pa.struct([(name, arrow_type(part)) for name, part in fields])


def output_schema(reading: Reading, sequence: Type) -> pa.Schema:
    """Return the schema of the rows."""
    return pa.schema(
        [
            *[(name, arrow_type(kind)) for name, kind in reading.columns],
            (OP, pa.string()),
            (SEQUENCE, arrow_type(sequence)),
            (COLUMNS, pa.list_(pa.string())),
            (SOURCE_TIMESTAMP, pa.timestamp("us", "UTC")),
            (POSITION, _POSITION),
            (RAW, pa.string()),
            (REASON, pa.string()),
            (UNKNOWN, pa.string()),
            *([(OTHERS, _struct(reading.others))] if reading.gives_others else []),
        ]
    )


def output_type(reading: Reading, sequence: Type) -> Type:
    """Return the same as :func:`output_schema`, as Spark has it."""
    position = [("file", STRING), ("row", Type("long")), ("topic", STRING), ("partition", Type("integer"))]
    text_or = {"variant": STRING, "void": STRING}
    return Type(
        "struct",
        fields=(
            *((name, text_or.get(kind.name, kind)) for name, kind in reading.columns),
            (OP, STRING),
            (SEQUENCE, sequence),
            (COLUMNS, Type("array", element=STRING)),
            (SOURCE_TIMESTAMP, Type("timestamp")),
            (POSITION, Type("struct", fields=(*position, ("offset", Type("long"))))),
            (RAW, STRING),
            (REASON, STRING),
            (UNKNOWN, STRING),
            *(((OTHERS, Type("struct", fields=reading.others)),) if reading.gives_others else ()),
        ),
    )
