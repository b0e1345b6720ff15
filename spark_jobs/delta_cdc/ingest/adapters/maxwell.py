"""Read JSON of Maxwell's daemon.

``type`` is the operation, ``data`` the row, and ``old`` has the former values of the columns that an update
changed. The order is ``position`` (the number of the binlog file, then the offset in it), then ``xoffset``
(the row in its transaction, which Maxwell leaves out of the last row), if Maxwell writes these. Rows of a
bootstrap have no position: they sort below every change, by their time, because each change that Maxwell saw
is at least as new as the row that it read. With ``sequence_by`` (``_offset``, for instance), they are in the
same order as all others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.adapters.common import (
    NO_OBJECT,
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
)
from delta_cdc.ingest.ordering import digits
from delta_cdc.ingest.record import DELETE, IGNORE, UPSERT, Event, Invalid
from delta_cdc.ingest.values import timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Record, Sequencer
    from delta_cdc.ingest.types import Type

_BOOTSTRAP = "bootstrap-insert"
OPERATIONS = {
    "insert": UPSERT,
    "update": UPSERT,
    "delete": DELETE,
    _BOOTSTRAP: UPSERT,
    **dict.fromkeys(("bootstrap-start", "bootstrap-complete"), IGNORE),
    **dict.fromkeys(("table-create", "table-alter", "table-drop"), IGNORE),
    **dict.fromkeys(("database-create", "database-alter", "database-drop"), IGNORE),
}
_FIELDS = ("type", "data", "old", "database", "table", "ts", "position", "xoffset", "commit")
_LOADED, _CHANGED = "0", "1"
_WIDE, _NARROW = 20, 10
_FIRST, _LAST = "0" * _NARROW, "9" * _NARROW
_NO_POSITION = Invalid(
    "no value for position, or no binlog position in it: set output_binlog_position in Maxwell, or "
    "adapter_options sequence_by to _offset"
)
_NO_TIME = Invalid("no value for ts, which orders the rows of a bootstrap")


class Maxwell(Described):
    """Reads messages of Maxwell.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        super().__init__()
        self._names = Names(_FIELDS)
        self._keys = Keys(keys)
        self._operation = operations(OPERATIONS, {})
        self._is_table = None if options["table"] is None else is_table(options["table"])
        self._order = Order(options["sequence_by"]) if options["sequence_by"] else None
        self.needs_rows = self._order is not None and self._order.needs_rows
        is_offset = self._order is not None and self._order.is_offset
        self._tombstones = Tombstones(
            options.get("tombstones"), keys, self._of_tombstone if is_offset else None, prefix="pk."
        )

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
        kind, data, old, database, table, ts, position, xoffset, commit = values
        if self._is_table is not None and not self._is_table(table, database):
            return ignored()
        op = self._operation(kind)
        if isinstance(op, Invalid):
            return op
        if op == IGNORE:
            return ignored()
        if type(data) is not dict:
            return Invalid("data is no object")
        if old is not None and type(old) is not dict:
            return Invalid("old is no object")
        base = self._base(record, kind, ts) or _place(position, xoffset, commit) or _NO_POSITION
        if isinstance(base, Invalid):
            return base
        moment = timestamp_micros(ts)
        if old and op == UPSERT and self._keys.differ(old, data):
            return key_change({**data, **old}, data, (f"{base}/0", f"{base}/1"), moment)
        return (Event(op, data, f"{base}/1", moment),)

    def _base(self, record: Record, kind: Any, ts: Any) -> str | Invalid | None:
        """Return the sequence, or why a record has none; None if its position is its sequence."""
        if self._order is not None:
            return self._order.text(record) or self._order.lacking
        if kind != _BOOTSTRAP:
            return None
        moment = digits(ts, _WIDE)
        return _NO_TIME if moment is None else f"{_LOADED}/{moment}"

    def _of_tombstone(self, record: Record) -> str | Invalid:
        assert self._order is not None
        found = self._order.text(record)
        return self._order.lacking if found is None else f"{found}/1"


def _place(position: Any, xoffset: Any, commit: Any) -> str | None:
    """Return the place of a change in the binlog; None if it has none."""
    if not isinstance(position, str):
        return None
    file, _, offset = position.rpartition(":")
    number = digits(file.rpartition(".")[2], _NARROW)
    place = digits(offset, _WIDE)
    if number is None or place is None:
        return None
    row: str | None = _LAST if commit is True else _FIRST
    if xoffset is not None:
        row = digits(xoffset, _NARROW)
    return None if row is None else f"{_CHANGED}/{number}/{place}/{row}"
