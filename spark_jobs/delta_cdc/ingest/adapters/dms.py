"""Read what AWS Database Migration Service writes: files in S3, and messages of Kinesis and Kafka.

In files, ``Op`` contains the operation of a change: ``I``, ``U`` or ``D``. A row of a full load has no ``Op``
(or ``I``, with ``includeOpForFullLoad``) and is in a file named ``LOAD…``. Such a row is an upsert that sorts
below every change. If the task writes a change sequence (``change_sequence``), this is the order. Otherwise,
the order is the timestamp of the commit (``timestamp_column``, if the task writes it), then the name of the
file, which is its time, then the row in the file. The row matters because the changes of one transaction
share a timestamp and are in order in the file.

A message has the row in ``data``, and the operation in ``metadata``. Its order is its offset: no member of it
orders the changes of all databases. Rows of a full load (``load``) sort below every change here, too, because
DMS may put these into another partition than the changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import DELETE, OFFSET, UPSERT
from delta_cdc.ingest.adapters.common import NO_DELETE, Enveloped, ignored, operations
from delta_cdc.ingest.adapters.members import Names
from delta_cdc.ingest.adapters.sequence_by import moment_text
from delta_cdc.ingest.ordering import digits
from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.types import BINARY
from delta_cdc.ingest.values import Encoding, timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Position, Record
    from delta_cdc.ingest.types import Type

OPERATIONS = {"i": UPSERT, "u": UPSERT, "d": DELETE}
#: The operations of messages.
MESSAGES = {"load": UPSERT, "insert": UPSERT, "update": UPSERT, "delete": DELETE}
#: Texts have hexadecimal digits for bytes, in messages with ``0x`` before them, unless NoHexPrefix is set.
_BYTES = Encoding(BINARY, "bytes:hex")
#: The first part of the sequence of full loads, and of changes.
_LOADED, _CHANGED = "0", "1"
_HEX = frozenset("0123456789ABCDEFabcdef")
#: A change sequence has a time of 16 digits and a counter of 19 digits.
_CHANGE_DIGITS, _NAME_WIDTH, _ROW_DIGITS = 35, 32, 12
_NO_CHANGE = "0" * _CHANGE_DIGITS
_NO_MOMENT = "0000-00-00 00:00:00.000000"


class Dms(Enveloped):
    """Reads records of DMS.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        op, change, stamp = (
            options[name] for name in ("operation_column", "change_sequence", "timestamp_column")
        )
        described = [op, change] if change else [op]
        super().__init__(options, keys, MESSAGES, order=(OFFSET,), described=described)
        self._change, self._stamp = change, stamp
        self._is_envelope: bool = options["envelope"]
        self._prefix: str = (options["before_image_prefix"] or "").lower()
        self._names = Names([op, change or "", stamp or ""])
        self._message = Names(["metadata", "data", "before-image"])
        self._metadata = Names(["operation", "record-type", "table-name", "schema-name"])
        old = [*(self._prefix + key for key in keys), *keys] if self._prefix else []
        self.reads = frozenset(name.lower() for name in (op, change, stamp, *old) if name)
        self._row_operation = operations(OPERATIONS, {})
        if not self._has_order:
            self.needs_rows = not change
        self._no_op = Invalid(
            f"no value for {op}, and no file of a full load: set IncludeOpForFullLoad in DMS, or the option "
            "operation_column"
        )
        self._lacking = Invalid(
            f"no value for {change}, or no whole number in it"
            if change
            else f"no value for {stamp or 'the file'}, or no file to order by"
        )
        self._file: str | None = None
        self._is_load, self._file_part = False, ""

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event, or belongs to the row before it."""
        if self._prefix and name.lower().startswith(self._prefix):
            return True
        return not self._is_envelope and super().describes(name)

    def encodings(self, types: Mapping[str, Type]) -> Mapping[str, Any]:
        """Return how values of columns are written: bytes as hexadecimal digits."""
        return {name: _BYTES for name, kind in types.items() if kind == BINARY}

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        value = record.value
        if type(value) is not dict:
            return self._read_other(record)
        names = self._names.of(value)
        if self._is_envelope or names[0] is None:
            metadata, data, before = self._message.values(value)
            if self._is_envelope or (type(metadata) is dict and "record-type" in metadata):
                return self._read_message(record, metadata, data, before)
        return self._read_line(record, value, names)

    # -- rows of files ----------------------------------------------------------------------------
    def _read_line(
        self, record: Record, row: dict[str, Any], names: tuple[str | None, ...]
    ) -> Sequence[Event] | Invalid:
        code, change, stamp = (None if name is None else row[name] for name in names)
        is_load = self._at(record.position)
        op: str | Invalid
        if code is None or (isinstance(code, str) and not code.strip(" ")):
            # A record without operation that is not from a full load is no event.
            op = UPSERT if is_load else self._no_op
        else:
            op = self._row_operation(code)
        if isinstance(op, Invalid):
            return op
        base = self._base(record, change, stamp, is_load)
        if isinstance(base, Invalid):
            return base
        moment = timestamp_micros(stamp) if self._stamp else None
        for name in names[: 2 if self._change else 1]:
            # Two options may name one column.
            if name is not None:
                row.pop(name, None)
        if not self._prefix:
            return (Event(op, row, base, moment),)
        return self._read_row(op, row, self._split_before(row), base, moment)

    def _at(self, position: Position) -> bool:
        """Take the place of a record. Return whether it is from a full load."""
        if position.file != self._file:
            self._file = position.file
            name = (position.file or "").rsplit("/", 1)[-1]
            self._is_load = name.startswith("LOAD") and name[4:5] in _HEX
            stem = name.split(".", 1)[0]
            self._file_part = stem.ljust(_NAME_WIDTH, ".") if 0 < len(stem) <= _NAME_WIDTH else ""
        return self._is_load

    def _base(self, record: Record, change: Any, stamp: Any, is_load: bool) -> str | Invalid:
        """Return the sequence, or why a record has none."""
        if self._has_order:
            return self._in_phase(self._order.text(record), is_load)
        if self._change:
            # All rows of full loads have one sequence, because a full load has each key once.
            number = _NO_CHANGE if is_load else digits(change, _CHANGE_DIGITS)
            return self._lacking if number is None else self._in_phase(number, is_load)
        row = digits(record.position.row, _ROW_DIGITS)
        if row is None or not self._file_part:
            return self._lacking
        place = f"{self._file_part}/{row}"
        if self._stamp:
            if stamp is None and not is_load:
                return self._lacking
            moment = _NO_MOMENT if is_load else moment_text(stamp)
            if moment is None:
                return Invalid(f"column {self._stamp} is no timestamp")
            place = f"{moment}/{place}"
        return self._in_phase(place, is_load)

    def _in_phase(self, place: str | Invalid, is_load: bool) -> str | Invalid:
        """Return the sequence of a place in full loads, or in changes."""
        return place if isinstance(place, Invalid) else f"{_LOADED if is_load else _CHANGED}/{place}"

    # -- messages ---------------------------------------------------------------------------------
    def _read_message(
        self, record: Record, metadata: Any, data: Any, before: Any
    ) -> Sequence[Event] | Invalid:
        if type(metadata) is not dict:
            return Invalid("metadata is no object")
        code, kind, table, schema = self._metadata.values(metadata)
        if kind == "control" or (self._is_table is not None and not self._is_table(table, schema)):
            return ignored()
        op = self._operation(code)
        if isinstance(op, Invalid):
            return op
        if type(data) is not dict:
            return Invalid("data is no object")
        if before is not None and type(before) is not dict:
            return Invalid("before-image is no object")
        moment = timestamp_micros(metadata.get("commit-timestamp") or metadata.get("timestamp"))
        is_load = str(code).strip(" ").lower() == "load"
        place: str | Invalid
        if is_load and self._has_order and not self._order.is_offset:
            # A full load has no transaction; its time is when DMS read the row.
            place = moment_text(metadata.get("timestamp")) or _NO_MOMENT
        else:
            place = self._order.text(record)
        base = self._in_phase(place, is_load)
        if isinstance(base, Invalid):
            return base
        old = dict(before or {})
        if self._prefix:
            old.update(self._split_before(data))
        row = {**old, **data} if op == DELETE else data
        return self._read_row(op, row, old, base, moment)

    def _tombstone_sequence(self, record: Record) -> Any:
        # The order of files is another one.
        if self._change or self._stamp or not self._order.is_offset:
            return NO_DELETE
        base = self._in_phase(self._order.text(record), is_load=False)
        return base if isinstance(base, Invalid) else f"{base}/1"

    def _split_before(self, row: dict[str, Any]) -> dict[str, Any]:
        """Remove the columns of the row before an update. Return them by their own names."""
        size, prefix = len(self._prefix), self._prefix
        names = [name for name in row if name[:size].lower() == prefix and len(name) > size]
        return {name[size:]: row.pop(name) for name in names}
