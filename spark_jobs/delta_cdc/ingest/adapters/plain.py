"""Read rows with an operation column: flat JSON, CSV or Parquet.

Without such a column, every record is an upsert. If the key of a record changed, separate columns
(``old_keys``) contain its old key. Such a record becomes two events: a delete of the old key and an upsert of
the new key.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core.adapters import DELETE, IGNORE, OFFSET, ROW, UPSERT
from delta_cdc.ingest.adapters.common import OfTable, in_texts
from delta_cdc.ingest.adapters.members import Names, inside, path_of
from delta_cdc.ingest.adapters.sequence_by import lacking_of, sequencer
from delta_cdc.ingest.record import Event, Invalid, Sequencer
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.types import BITS, LONG
from delta_cdc.ingest.values import json_text, timestamp_micros

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from delta_cdc.ingest.record import Record
    from delta_cdc.ingest.types import Type

#: The operations of values that ``operations`` does not list. Values match without regard to case.
OPERATIONS = {
    "i": UPSERT,
    "insert": UPSERT,
    "u": UPSERT,
    "update": UPSERT,
    "upsert": UPSERT,
    "d": DELETE,
    "delete": DELETE,
}
_ROW_NUMBER = re.compile(rf"\b{ROW}\b", re.IGNORECASE)
_AS_TEXT = ": if its texts sort in the right order, make it a STRING in schema"
_WAY_OUT = (
    "give the column in schema the type that it had when the log was created (or no type), or start a new "
    "log."
)


class _Part(NamedTuple):
    """A part of ``sequence_by``.

    :param text: what the user wrote
    :param path: the names of the member; () for the offset or the row number of a record
    :param at: where the spelling of the first name is, in what :class:`Names` returns
    """

    text: str
    path: tuple[str, ...]
    at: int = -1


class Plain(OfTable):
    """Reads rows with an operation column.

    ``expressions`` (of ``sequence_by``) and ``timestamp_expression`` are SQL that Spark computes on the typed
    columns. Where there are expressions, events have no sequence, or, with ``old_keys``, only its last part.

    :param options: checked options
    :param keys: the key columns
    :param insert_only: records have no key and no order
    :param typed: names of the columns that ``schema`` types, in lower case
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        *,
        keys: Sequence[str] = (),
        insert_only: bool = False,
        typed: Collection[str] = (),
    ) -> None:
        self._old_keys: dict[str, str] = dict(options["old_keys"] or {})
        operation, changed = options["operation_column"], options["columns_to_update"]
        super().__init__(
            {**options, "tombstones": IGNORE} if insert_only else options,
            keys,
            OPERATIONS,
            described=[*filter(None, (operation, changed)), *self._old_keys.values()],
        )
        texts = tuple(options["sequence_by"] or ())
        self._texts, self._typed = texts, typed
        is_sql = any(path_of(text) is None for text in texts)
        self.expressions = texts if is_sql else ()
        moment = options["source_timestamp"]
        self._moment: tuple[str, ...] | None = None
        if moment is not None:
            self._moment = path_of(moment)
            self.timestamp_expression = moment if self._moment is None else None
        self.needs_rows = any(_ROW_NUMBER.search(text) for text in texts)
        self._has_operation, self._has_list = operation is not None, changed is not None
        self.has_index = bool(self._old_keys)
        self._find(operation, changed, is_sql)
        self._is_offset = bool(texts) and all(text.lower() == OFFSET for text in texts)
        self._columns: frozenset[str] | None = None

    def _find(self, operation: str | None, changed: str | None, is_sql: bool) -> None:
        """Say which members events look at."""
        wanted = [operation or "", changed or "", *self._old_keys.values()]
        self._first_key = len(wanted)
        wanted += self._keys.names if self.has_index else ()
        self._parts: list[_Part] = []
        for text in () if is_sql else self._texts:
            lower = text.lower()
            if lower in (OFFSET, ROW):
                self._parts.append(_Part(lower, ()))
                continue
            path = path_of(text)
            assert path is not None
            self._parts.append(_Part(text, path, len(wanted)))
            wanted.append(path[0])
        self._moment_at = len(wanted)
        wanted.append(self._moment[0] if self._moment else "")
        self._names = Names(wanted)
        self.reads = frozenset(name.lower() for name in wanted if name)
        self._meta = Names([name for name in wanted[: self._first_key] if name])

    # -- events -----------------------------------------------------------------------------------
    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        value = record.value
        if type(value) is not dict:
            return self._read_other(record)
        names = self._names.of(value)
        op = UPSERT
        if self._has_operation:
            name = names[0]
            found = self._operation(None if name is None else value[name])
            if isinstance(found, Invalid):
                return found
            op = found
        carried = None
        if self._has_list:
            listed = self._carried(value, names[1])
            if isinstance(listed, Invalid):
                return listed
            carried = listed
        sequence = self._sequence(record, value, names, 1)
        moment = None
        at = names[self._moment_at]
        if self._moment is not None and at is not None:
            moment = timestamp_micros(inside(value[at], self._moment[1:]))
        old = self._old_key(value, names) if self.has_index and op == UPSERT else None
        # Spark evaluates expressions over the whole record, also for the delete of an old key.
        others = dict(value) if self.expressions and old is not None else None
        for name in self._meta.of(value):
            # Two options may name one column.
            if name is not None:
                value.pop(name, None)
        if old is not None:
            event = _whole(value, carried, sequence, moment, self._keys.names)
            return [Event(DELETE, old, (*sequence[:-1], 0), moment, others=others), event]
        return (Event(op, value, sequence, moment, carried if op == UPSERT else None),)

    def _sequence(
        self, record: Record, row: Mapping[str, Any], names: tuple[str | None, ...], index: int
    ) -> Any:
        """Return the values that order an event; with ``old_keys``, and the event's index."""
        values = []
        for text, path, at in self._parts:
            if not path:
                values.append(record.position.offset if text == OFFSET else record.position.row)
                continue
            name = names[at]
            value = None if name is None else row[name]
            values.append(value if len(path) == 1 else inside(value, path[1:]))
        if self.has_index:
            return (*values, index)
        return values[0] if len(values) == 1 else tuple(values) or None

    def _tombstone_sequence(self, record: Record) -> Any:
        return self._sequence(record, {}, (), 1) if self._is_offset else super()._tombstone_sequence(record)

    def _old_key(self, row: dict[str, Any], names: tuple[str | None, ...]) -> dict[str, Any] | None:
        """Return the old key of a record; None if the key did not change."""
        spelt = names[self._first_key : self._first_key + len(self._keys.names)]
        own = {name: row[name] for name in spelt if name is not None}
        by_lower = {
            key.lower(): key if name is None else name
            for key, name in zip(self._keys.names, spelt, strict=True)
        }
        old = dict(own)
        for key, name in zip(self._old_keys, names[2:], strict=False):
            # A NULL old key (for instance in an insert) does not mean that the key changed.
            if name is not None and row[name] is not None:
                old[by_lower.get(key.lower(), key)] = row[name]
        return old if self._keys.differ(old, own) else None

    # -- listed columns ---------------------------------------------------------------------------
    def _carried(self, row: Mapping[str, Any], name: str | None) -> list[str] | Invalid | None:
        """Return the names that a record lists, without those that are no columns of the row."""
        listed = None if name is None else _listed(row[name])
        if listed is None:
            return None
        known = self._columns
        if known is not None:
            for column in listed:
                lower = column.lower()
                if lower not in known and lower not in {own.lower() for own in row}:
                    return Invalid(f"columns_to_update names no column: {column}")
        return [column for column in listed if not self.describes(column)]

    # -- order ------------------------------------------------------------------------------------
    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values: one value, or parts of a fixed width as one text.

        A text column without a type in ``schema`` sorts by number: "1000" is above "999".

        :raises InvalidExpression: a part has no order, or it cannot be compared with the log's sequences
        """
        self._keys.learn(types)
        self._columns = frozenset(name.lower() for name in types)
        if not self._parts:
            if self.has_index:
                return in_texts()._replace(value=lambda sequence: str(sequence[-1]))
            return Sequencer(log_type or LONG, lambda sequence: None)
        kinds = [self._kind(one, types, log_type) for one in self._parts]
        are_numbers = any(one.path and kind is None for one, kind in zip(self._parts, kinds, strict=True))
        return sequencer(
            self._texts,
            kinds,
            log_type,
            lacking=lacking_of(self._texts, _AS_TEXT if are_numbers else ""),
            way_out=_WAY_OUT,
            has_index=self.has_index,
        )

    def _kind(self, one: _Part, types: Mapping[str, Type], log_type: Type | None) -> Type | None:
        """Return the type of a part; None for whole numbers that are texts (``numbers``)."""
        is_text_log = log_type is not None and log_type.name == "string"
        if not one.path:
            return None if is_text_log else LONG
        root, *rest = one.path
        kind = _find_type(types.items(), root)
        for name in rest:
            kind = _find_type(kind.fields, name) if kind is not None else None
        if kind is None:
            return None
        is_number = kind.name == "string" or (is_text_log and kind.name in BITS)
        return None if is_number and root.lower() not in self._typed else kind


def _find_type(fields: Iterable[tuple[str, Type]], name: str) -> Type | None:
    """Return the type of a name: the exact one, else without regard to case."""
    found = None
    for other, kind in fields:
        if other == name:
            return kind
        if found is None and other.lower() == name.lower():
            found = kind
    return found


def _whole(
    row: dict[str, Any], carried: list[str] | None, sequence: Any, moment: int | None, keys: Sequence[str]
) -> Event:
    """Return the new row of a changed key. Columns that the record does not list have no value."""
    if carried is not None:
        listed = {name.lower() for name in (*carried, *keys)}
        row = {name: value for name, value in row.items() if name.lower() in listed}
    return Event(UPSERT, row, sequence, moment, carried, whole=True)


def _listed(value: Any) -> list[str] | None:
    """Return the names of an array, of an array as JSON text, or of a text with commas; None for no list."""
    if isinstance(value, list | tuple):
        return [one if isinstance(one, str) else json_text(one) for one in value]
    text = value if isinstance(value, str) else "" if value is None else json_text(value)
    if not text.strip(" "):
        return None
    if not text.lstrip(" ").startswith("["):
        return [name.strip(" ") for name in text.split(",")]
    found = json_value(text.encode("utf-8", "replace"))
    # A damaged array is a single, unknown name.
    return [text] if isinstance(found, Invalid) else _listed(found)
