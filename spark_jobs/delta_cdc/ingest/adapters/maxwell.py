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

from delta_cdc.core.adapters import DELETE, IGNORE, UPSERT
from delta_cdc.ingest.adapters.common import Enveloped, ignored
from delta_cdc.ingest.adapters.members import Names
from delta_cdc.ingest.ordering import digits
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.values import timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Event, Record

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


class Maxwell(Enveloped):
    """Reads messages of Maxwell.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        super().__init__(options, keys, OPERATIONS, prefix="pk.")
        self._names = Names(_FIELDS)

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        value = record.value
        if type(value) is not dict:
            return self._read_other(record)
        kind, data, old, database, table, ts, position, xoffset, commit = self._names.values(value)
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
        if self._has_order:
            base = self._order.text(record)
        elif kind == _BOOTSTRAP:
            base = _bootstrap_sequence(ts)
        else:
            base = _in_binlog(position, xoffset, commit)
        if isinstance(base, Invalid):
            return base
        return self._read_row(op, data, old, base, timestamp_micros(ts))


def _bootstrap_sequence(ts: Any) -> str | Invalid:
    moment = digits(ts, _WIDE)
    return _NO_TIME if moment is None else f"{_LOADED}/{moment}"


def _in_binlog(position: Any, xoffset: Any, commit: Any) -> str | Invalid:
    """Return the place of a change in the binlog, or why it has none."""
    if not isinstance(position, str):
        return _NO_POSITION
    file, _, offset = position.rpartition(":")
    number, place = digits(file.rpartition(".")[2], _NARROW), digits(offset, _WIDE)
    row = (_LAST if commit is True else _FIRST) if xoffset is None else digits(xoffset, _NARROW)
    if number is None or place is None or row is None:
        return _NO_POSITION
    return f"{_CHANGED}/{number}/{place}/{row}"
