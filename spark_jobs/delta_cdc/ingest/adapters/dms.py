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
    moment_text,
    operations,
)
from delta_cdc.ingest.ordering import digits
from delta_cdc.ingest.record import DELETE, UPSERT, Event, Invalid
from delta_cdc.ingest.values import timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Position, Record, Sequencer
    from delta_cdc.ingest.types import Type

OPERATIONS = {"i": UPSERT, "u": UPSERT, "d": DELETE}
#: The operations of messages.
MESSAGES = {"load": UPSERT, "insert": UPSERT, "update": UPSERT, "delete": DELETE}
#: The first part of the sequence of full loads, and of changes.
_LOADED, _CHANGED = "0", "1"
_HEX = frozenset("0123456789ABCDEFabcdef")
#: A change sequence has a time of 16 digits and a counter of 19 digits.
_CHANGE_DIGITS, _NAME_WIDTH, _ROW_DIGITS = 35, 32, 12
_NO_CHANGE = "0" * _CHANGE_DIGITS
_NO_MOMENT = "0000-00-00 00:00:00.000000"


class Dms(Described):
    """Reads records of DMS.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        op, change, stamp = (
            options[name] for name in ("operation_column", "change_sequence", "timestamp_column")
        )
        super().__init__([op, change] if change else [op])
        self._op_name, self._stamp_name = op, stamp
        self._has_change, self._has_stamp = bool(change), bool(stamp)
        self._is_envelope: bool = options["envelope"]
        self._prefix: str | None = options["before_image_prefix"]
        self._lower_prefix = (self._prefix or "").lower()
        self._keys = Keys(keys)
        old = [self._prefix + key for key in keys] if self._prefix else []
        self._names = Names([op, change or "", stamp or ""])
        self._envelope = Names(["metadata", "data", "before-image"])
        self._metadata = Names(["operation", "record-type", "table-name", "schema-name"])
        wanted = [op, *(name for name in (change, stamp) if name), *old, *(keys if old else ())]
        self.reads = frozenset(name.lower() for name in wanted)
        self._is_table = None if options["table"] is None else is_table(options["table"])
        self._operation = operations(OPERATIONS, {})
        self._message = operations(MESSAGES, {})
        texts = options["sequence_by"]
        self._order = Order(texts or (OFFSET,))
        self._has_order = bool(texts)
        self.needs_rows = not self._has_change if texts is None else self._order.needs_rows
        self._no_op = Invalid(f"no value for {op}, and no file of a full load")
        self._lacking = Invalid(
            f"no value for {change}, or no whole number in it"
            if change
            else f"no value for {stamp or 'the file'}, or no file to order by"
        )
        # The order of files is another one.
        is_offset = self._order.is_offset and not change and not stamp
        self._tombstones = Tombstones(
            options.get("tombstones"), keys, self._of_tombstone if is_offset else None
        )
        self._file: str | None = None
        self._is_load, self._file_part = False, ""

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event, or belongs to the row before it."""
        if self._prefix and name.lower().startswith(self._lower_prefix):
            return True
        return not self._is_envelope and super().describes(name)

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values: they are texts."""
        self._keys.learn(types)
        return in_texts()

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        row = record.value
        if row is None:
            return self._tombstones.events(record)
        if type(row) is not dict:
            return NO_OBJECT
        names = self._names.of(row)
        if self._is_envelope or names[0] is None:
            envelope, data, before = self._envelope.of(row)
            metadata = None if envelope is None else row[envelope]
            if self._is_envelope or (type(metadata) is dict and "record-type" in metadata):
                return self._of_message(
                    record,
                    metadata,
                    None if data is None else row[data],
                    None if before is None else row[before],
                )
        return self._of_row(record, row, names)

    # -- rows of files ----------------------------------------------------------------------------
    def _of_row(
        self, record: Record, row: dict[str, Any], names: tuple[str | None, ...]
    ) -> Sequence[Event] | Invalid:
        op_name, change_name, stamp_name = names
        is_load = self._at(record.position)
        value = None if op_name is None else row[op_name]
        op: str | Invalid
        if value is None or (isinstance(value, str) and not value.strip(" ")):
            # A record without operation that is not from a full load is no event.
            op = UPSERT if is_load else self._no_op
        else:
            op = self._operation(value)
        if isinstance(op, Invalid):
            return op
        stamp = None if not self._has_stamp or stamp_name is None else row[stamp_name]
        change = None if not self._has_change or change_name is None else row[change_name]
        base = self._base(record, change, stamp, is_load)
        if isinstance(base, Invalid):
            return base
        moment = timestamp_micros(stamp) if self._has_stamp else None
        for name in (op_name, change_name if self._has_change else None):
            if name is not None:
                row.pop(name, None)
        if self._prefix:
            before = self._split_before(row)
            if op == UPSERT and self._keys.differ(before, row):
                return key_change({**row, **before}, row, (f"{base}/0", f"{base}/1"), moment)
            base = f"{base}/1"
        return (Event(op, row, base, moment),)

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
        phase = _LOADED if is_load else _CHANGED
        if self._has_order:
            found = self._order.text(record)
            return self._order.lacking if found is None else f"{phase}/{found}"
        if self._has_change:
            # All rows of full loads have one sequence, because a full load has each key once.
            number = _NO_CHANGE if is_load else digits(change, _CHANGE_DIGITS)
            return self._lacking if number is None else f"{phase}/{number}"
        row = digits(record.position.row, _ROW_DIGITS)
        if row is None or not self._file_part:
            return self._lacking
        if not self._has_stamp:
            return f"{phase}/{self._file_part}/{row}"
        if is_load:
            moment: str | None = _NO_MOMENT
        elif stamp is None:
            return self._lacking
        else:
            moment = moment_text(stamp)
            if moment is None:
                return Invalid(f"column {self._stamp_name} is no timestamp")
        return f"{phase}/{moment}/{self._file_part}/{row}"

    # -- messages ---------------------------------------------------------------------------------
    def _of_message(self, record: Record, metadata: Any, data: Any, before: Any) -> Sequence[Event] | Invalid:
        if type(metadata) is not dict:
            return Invalid("metadata is no object")
        values = [None if name is None else metadata[name] for name in self._metadata.of(metadata)]
        operation, kind, table, schema = values
        if kind == "control" or (self._is_table is not None and not self._is_table(table, schema)):
            return ignored()
        op = self._message(operation)
        if isinstance(op, Invalid):
            return op
        if type(data) is not dict:
            return Invalid("data is no object")
        if before is not None and type(before) is not dict:
            return Invalid("before-image is no object")
        moment = timestamp_micros(metadata.get("commit-timestamp") or metadata.get("timestamp"))
        base = self._message_base(record, metadata, str(operation).strip(" ").lower() == "load")
        if isinstance(base, Invalid):
            return base
        old = dict(before or {})
        if self._prefix:
            old.update(self._split_before(data))
        if op == DELETE:
            return (Event(DELETE, {**old, **data}, f"{base}/1", moment),)
        if old and self._keys.differ(old, data):
            return key_change({**data, **old}, data, (f"{base}/0", f"{base}/1"), moment)
        return (Event(UPSERT, data, f"{base}/1", moment),)

    def _message_base(self, record: Record, metadata: Mapping[str, Any], is_load: bool) -> str | Invalid:
        if is_load and self._has_order and not self._order.is_offset:
            # A full load has no transaction; its time is when DMS read the row.
            return f"{_LOADED}/{moment_text(metadata.get('timestamp')) or _NO_MOMENT}"
        found = self._order.text(record)
        if found is None:
            return self._order.lacking
        return f"{_LOADED if is_load else _CHANGED}/{found}"

    def _of_tombstone(self, record: Record) -> str | Invalid:
        found = self._order.text(record)
        return self._order.lacking if found is None else f"{_CHANGED}/{found}/1"

    def _split_before(self, row: dict[str, Any]) -> dict[str, Any]:
        """Remove the columns of the row before an update. Return them by their own names."""
        size, prefix = len(self._lower_prefix), self._lower_prefix
        names = [name for name in row if name[:size].lower() == prefix and len(name) > size]
        return {name[size:]: row.pop(name) for name in names}
