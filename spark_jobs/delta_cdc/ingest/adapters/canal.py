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

from delta_cdc.core.adapters import DELETE, IGNORE, OFFSET, TRUNCATE, UPSERT
from delta_cdc.ingest.adapters.common import NO_DELETE, Enveloped, ignored, key_change
from delta_cdc.ingest.adapters.members import Names, Remembered, shown
from delta_cdc.ingest.record import Event, Invalid
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

    from delta_cdc.ingest.record import Record
    from delta_cdc.ingest.types import Type

OPERATIONS = {
    "insert": UPSERT,
    "update": UPSERT,
    "delete": DELETE,
    "truncate": TRUNCATE,
    "tidb_watermark": IGNORE,
}
_FIELDS = ("type", "data", "old", "database", "table", "es", "isDdl", "mysqlType", "_tidb")
#: Members of ``_tidb`` that TiCDC writes if the message does not have the row, which was too large.
_ELSEWHERE = ("onlyHandleKey", "claimCheckLocation")
_INDEX_DIGITS, _MOST_ROWS = 7, 5_000_000
_TOO_MANY = Invalid(f"a message of more than {_MOST_ROWS:,} rows")
_NO_ROWS = Invalid("data is no list of objects")
_NO_OLD = Invalid("old is no list of as many objects as data")
_KEY_ALONE = (
    "a message without its row, which was too large (_tidb.{}): raise max-message-bytes in TiCDC, and have "
    "it send the row again"
)
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


class Canal(Enveloped):
    """Reads messages of Canal.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        super().__init__(options, keys, OPERATIONS, order=(OFFSET,))
        self._names = Names(_FIELDS)
        self._columns = Remembered(_columns)

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        value = record.value
        if type(value) is not dict:
            return self._read_other(record)
        kind, data, old, database, table, es, is_ddl, types, tidb = self._names.values(value)
        if self._is_table is not None and not self._is_table(table, database):
            return ignored()
        op = self._operation(kind)
        if op == IGNORE or (is_ddl is True and op != TRUNCATE):
            return ignored()
        if isinstance(op, Invalid):
            return op
        elsewhere = _elsewhere(tidb) if op == UPSERT else None
        base = elsewhere or self._order.text(record)
        if isinstance(base, Invalid):
            return base
        moment = timestamp_micros(es)
        if op == TRUNCATE:
            return (Event(TRUNCATE, {}, _place(base, 1), moment),)
        return self._read_rows(op, data, old, types, base, moment)

    def _tombstone_sequence(self, record: Record) -> Any:
        base = self._order.text(record) if self._order.is_offset else NO_DELETE
        return base if isinstance(base, Invalid) else _place(base, 1)

    def _read_rows(
        self, op: str, data: Any, old: Any, types: Any, base: str, moment: int | None
    ) -> Sequence[Event] | Invalid:
        if type(data) is not list or not all(type(row) is dict for row in data):
            return _NO_ROWS
        if len(data) > _MOST_ROWS:
            return _TOO_MANY
        olds = old if op == UPSERT and old is not None else [None] * len(data)
        if type(olds) is not list or len(olds) != len(data):
            return _NO_OLD
        columns = self._read_types(types)
        events: list[Event] = []
        for at, (row, changed) in enumerate(zip(data, olds, strict=True)):
            if changed is not None and type(changed) is not dict:
                return _NO_OLD
            flawed = columns.read(row) or (columns.read(changed) if changed else None)
            if flawed is not None:
                return flawed
            encodings, sequence = columns.encodings, _place(base, 2 * at + 1)
            if changed and self._keys.differ(changed, row):
                both = _place(base, 2 * at), sequence
                events += key_change({**row, **changed}, row, both, moment, encodings)
            else:
                events.append(Event(op, row, sequence, moment, encodings=encodings))
        return events

    def _read_types(self, types: Any) -> _Columns:
        """Return the columns that ``mysqlType`` describes. Messages of a table share one object."""
        if type(types) is not dict or not types:
            return _NO_COLUMNS
        return self._columns.of((*types, *map(shown, types.values())))


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


def _columns(texts: tuple[str, ...]) -> _Columns:
    """Return the columns of as many names as types."""
    count = len(texts) // 2
    return _Columns(dict(zip(texts[:count], texts[count:], strict=True)))


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


def _elsewhere(tidb: Any) -> Invalid | None:
    """Return why a message has the key of its row alone; None if it has the row."""
    members = tidb if type(tidb) is dict else {}
    name = next((name for name in _ELSEWHERE if members.get(name)), None)
    return None if name is None else Invalid(_KEY_ALONE.format(name))


def _place(base: str, number: int) -> str:
    """Return the sequence of an event from that of its message, and its number in the message."""
    return f"{base}/{number:0{_INDEX_DIGITS}d}"
