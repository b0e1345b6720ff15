"""Read flat JSON messages of Alibaba Canal, and of systems that write the same (TiCDC's ``canal-json``).

A message has a list of rows (``data``), for an update also the former values of the columns that changed
(``old``), and one operation for all (``type``). Values are texts; ``mysqlType`` says of which types.

A flat message has no position in the binlog: ``id`` numbers the batches of a server until it restarts, and
``es`` is a time of which many changes share one. Canal's authors name the order of the messages in their
partition as the order. So it is the offset of the message, then the place of the row in it; all changes of a
key must be in one partition. For files, and for other members that order events (TiCDC's ``_tidb.commitTs``),
give ``sequence_by``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.adapters.common import (
    NO_OBJECT,
    OFFSET,
    Described,
    Keys,
    Names,
    Order,
    Tombstones,
    ignored,
    in_texts,
    is_table,
    key_change,
    operations,
    shown,
)
from delta_cdc.ingest.record import DELETE, IGNORE, TRUNCATE, UPSERT, Event, Invalid
from delta_cdc.ingest.types import (
    BINARY,
    BYTE,
    DATE,
    DOUBLE,
    FLOAT,
    INTEGER,
    LONG,
    SHORT,
    STRING,
    TIMESTAMP_NTZ,
    decimal,
)
from delta_cdc.ingest.values import Encoding, plain, timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Record, Sequencer
    from delta_cdc.ingest.types import Type

OPERATIONS = {
    "insert": UPSERT,
    "update": UPSERT,
    "delete": DELETE,
    "truncate": TRUNCATE,
    "tidb_watermark": IGNORE,
}
_FIELDS = ("type", "data", "old", "database", "table", "es", "isDdl", "mysqlType")
_INDEX_DIGITS, _MOST_ROWS = 7, 5_000_000
_TOO_MANY = Invalid(f"a message of more than {_MOST_ROWS:,} rows")
_NO_ROWS, _NO_OLD = (
    Invalid("data is no list of objects"),
    Invalid("old is no list of as many objects as data"),
)
_MOST_TYPES, _MOST_NAMES = 1_000, 100_000
_TYPE = re.compile(r"\s*([a-z]+)\s*(?:\(([0-9]+)(?:\s*,\s*([0-9]+))?\))?([a-z ]*)", re.IGNORECASE)
_WHOLE = {
    "tinyint": (BYTE, SHORT),
    "smallint": (SHORT, INTEGER),
    "mediumint": (INTEGER, INTEGER),
    "int": (INTEGER, LONG),
    "integer": (INTEGER, LONG),
    "bigint": (LONG, decimal(20, 0)),
}
_OTHER = {
    "float": FLOAT,
    "double": DOUBLE,
    "date": DATE,
    # A text of Canal has no zone, whatever the type.
    "datetime": TIMESTAMP_NTZ,
    "timestamp": TIMESTAMP_NTZ,
    "year": INTEGER,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), BINARY),
}


class Canal(Described):
    """Reads messages of Canal.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        super().__init__()
        self._names = Names(_FIELDS)
        self._keys = Keys(keys)
        self._operation = operations(OPERATIONS, {})
        self._is_table = None if options["table"] is None else is_table(options["table"])
        self._order = Order(options["sequence_by"] or (OFFSET,))
        self.needs_rows = self._order.needs_rows
        self._tombstones = Tombstones(
            options.get("tombstones"), keys, self._of_tombstone if self._order.is_offset else None
        )
        self._columns: dict[tuple[Any, ...], _Columns] = {}

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values: they are texts."""
        self._keys.learn(types)
        return in_texts()

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        envelope = record.value
        if envelope is None:
            return self._tombstones.events(record)
        if type(envelope) is not dict:
            return NO_OBJECT
        values = [None if name is None else envelope[name] for name in self._names.of(envelope)]
        kind, data, old, database, table, es, is_ddl, types = values
        if self._is_table is not None and not self._is_table(table, database):
            return ignored()
        op = self._operation(kind)
        if is_ddl is True and op != TRUNCATE:
            return ignored()
        if isinstance(op, Invalid):
            return op
        if op == IGNORE:
            return ignored()
        base = self._order.text(record)
        if base is None:
            return self._order.lacking
        moment = timestamp_micros(es)
        if op == TRUNCATE:
            return (Event(TRUNCATE, {}, _sequence(base, 1), moment),)
        return self._of_rows(op, data, old, types, base, moment)

    def _of_rows(
        self, op: str, data: Any, old: Any, types: Any, base: str, moment: int | None
    ) -> Sequence[Event] | Invalid:
        if type(data) is not list or not all(type(row) is dict for row in data):
            return _NO_ROWS
        if len(data) > _MOST_ROWS:
            return _TOO_MANY
        olds = old if op == UPSERT and old is not None else [None] * len(data)
        if type(olds) is not list or len(olds) != len(data):
            return _NO_OLD
        columns = self._of_types(types)
        events: list[Event] = []
        for at, (row, changed) in enumerate(zip(data, olds, strict=True)):
            if changed is not None and type(changed) is not dict:
                return _NO_OLD
            flawed = columns.read(row) or (columns.read(changed) if changed else None)
            if flawed is not None:
                return flawed
            encodings = columns.encodings
            sequence = _sequence(base, 2 * at + 1)
            if changed and self._keys.differ(changed, row):
                before = {**row, **changed}
                events += key_change(before, row, (_sequence(base, 2 * at), sequence), moment, encodings)
            else:
                events.append(Event(op, row, sequence, moment, encodings=encodings))
        return events

    def _of_tombstone(self, record: Record) -> str | Invalid:
        found = self._order.text(record)
        return self._order.lacking if found is None else _sequence(found, 1)

    def _of_types(self, types: Any) -> _Columns:
        """Return the columns that ``mysqlType`` describes. Messages of a table share one object."""
        if type(types) is not dict or not types:
            return _NO_COLUMNS
        texts = tuple(shown(text) for text in types.values())
        members = (*types, *texts)
        found = self._columns.get(members)
        if found is None:
            found = _Columns(dict(zip(types, texts, strict=True)))
            if sum(map(len, members)) <= _MOST_NAMES:
                if len(self._columns) >= _MOST_TYPES:
                    self._columns.clear()
                self._columns[members] = found
        return found


class _Columns:
    """Columns of a table.

    :param types: MySQL's types by column
    """

    def __init__(self, types: Mapping[str, str]) -> None:
        found = {name: kind for name, text in types.items() if (kind := type_of(text)) is not None}
        self.encodings: Mapping[str, Encoding] | None = (
            {name: plain(kind) for name, kind in found.items()} if found else None
        )
        self._binary = tuple(name for name, kind in found.items() if kind == BINARY)

    def read(self, row: dict[str, Any]) -> Invalid | None:
        """Read values that are bytes, in place: Canal writes each byte as the character of its number."""
        for name in self._binary:
            value = row.get(name)
            if isinstance(value, str):
                try:
                    row[name] = value.encode("latin-1")
                except UnicodeEncodeError:
                    return Invalid(f"column {name} is no binary")
        return None


_NO_COLUMNS = _Columns({})


def type_of(text: str) -> Type | None:
    """Return the type of a column from MySQL's; None if it is unknown."""
    match = _TYPE.match(text) if len(text) <= 200 else None
    if match is None:
        return STRING if text else None
    name, size, scale, rest = match[1].lower(), match[2], match[3], match[4].lower()
    if name in _WHOLE:
        return _WHOLE[name]["unsigned" in rest]
    if name in ("decimal", "numeric"):
        if size is None or len(size) > 2 or not 0 < int(size) <= 38 or int(scale or 0) > int(size):
            return STRING
        return decimal(int(size), int(scale or 0))
    if name == "bit":
        return decimal(20, 0) if size == "64" else LONG
    return _OTHER.get(name, STRING)


def _sequence(base: str, index: int) -> str:
    return f"{base}/{index:0{_INDEX_DIGITS}d}"
