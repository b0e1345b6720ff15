"""What adapters share: members by name, operations, changes of a key, tombstones, and an order by members."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delta_cdc.ingest.ordering import digits, numbers, part
from delta_cdc.ingest.record import DELETE, IGNORE, UPSERT, Event, Invalid, Sequencer
from delta_cdc.ingest.records.json import NOT_JSON
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.types import STRING, TIMESTAMP
from delta_cdc.ingest.values import MISFIT, converter, json_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delta_cdc.core.errors import InvalidConfiguration
    from delta_cdc.ingest.record import Record
    from delta_cdc.ingest.types import Type

#: The record is no object. Its reader may have accepted it, for instance as a value of Avro.
NO_OBJECT = Invalid(NOT_JSON)
#: An option's names for the offset of a message, and for the row number of a record in its file.
OFFSET, ROW = "_offset", "_row"
#: What a bundled adapter does with a message without a value (the option ``tombstones``).
TOMBSTONES = ("ignore", "delete")
NO_DELETE = Invalid(
    "a message without a value, which tombstones makes a delete, has nothing that orders it: only the order "
    f"by {OFFSET} goes without a value"
)
_NO_KEY = Invalid("a message without a value, which tombstones makes a delete, has no key")
_MOST_SHAPES, _MOST_NAMES = 1_000, 100_000
_WIDTH = 20
_T = TypeVar("_T")


class Described:
    """An adapter whose records have some members that describe the event, and are no columns of the row.

    :param described: their names
    """

    reads: frozenset[str] = frozenset()
    needs_rows: bool = False
    expressions: tuple[str, ...] = ()
    timestamp_expression: str | None = None
    has_index: bool = False
    is_connect: bool = False
    problem: InvalidConfiguration | None = None

    @property
    def member_types(self) -> Mapping[str, Type]:
        """Return nothing: expressions name columns."""
        return {}

    def __init__(self, described: Iterable[str] = ()) -> None:
        self._described = frozenset(name.lower() for name in described)

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event."""
        return name.lower() in self._described

    def encodings(self, types: Mapping[str, Type]) -> Mapping[str, Any]:
        """Return nothing: values are written plainly."""
        return {}


def ignored() -> tuple[Event]:
    """Return the event of a record that is left out."""
    return (Event(IGNORE, {}),)


def in_texts() -> Sequencer:
    """Return the sequencer for sequences that are texts already."""
    return Sequencer(STRING, _unchanged)


def _unchanged(sequence: Any) -> Any:
    return sequence


# -- members by name ------------------------------------------------------------------------------
class Remembered(Generic[_T]):
    """Remembers what follows from the names of a row alone: most records have the same.

    :param make: computes it
    """

    def __init__(self, make: Callable[[tuple[str, ...]], _T]) -> None:
        self._make = make
        self._known: dict[tuple[str, ...], _T] = {}

    def of(self, row: Mapping[str, Any]) -> _T:
        """Return what follows from the names of a row."""
        members = tuple(row)
        found = self._known.get(members)
        if found is None:
            found = self._make(members)
            if sum(map(len, members)) <= _MOST_NAMES:
                if len(self._known) >= _MOST_SHAPES:
                    self._known.clear()
                self._known[members] = found
        return found


class Names:
    """Finds members by their names: exactly, else without regard to case.

    :param wanted: the names
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._wanted = tuple(wanted)
        self._lower = frozenset(name.lower() for name in self._wanted)
        self._known = Remembered(self._found)
        #: Returns for each wanted name how a row spells it; None if the row lacks it.
        self.of = self._known.of

    def _found(self, members: tuple[str, ...]) -> tuple[str | None, ...]:
        exact = frozenset(members)
        by_lower = {name.lower(): name for name in reversed(members) if name.lower() in self._lower}
        return tuple(name if name in exact else by_lower.get(name.lower()) for name in self._wanted)


def member_name(row: Mapping[str, Any], name: str) -> str | None:
    """Return how a row spells a name: exactly, else without regard to case; None if the row lacks it."""
    if name in row:
        return name
    lower = name.lower()
    return next((other for other in row if other.lower() == lower), None)


def member(row: Mapping[str, Any], name: str) -> Any:
    """Return a member: by its exact name, else without regard to case; None if the row lacks it."""
    found = member_name(row, name)
    return None if found is None else row[found]


# -- operations -----------------------------------------------------------------------------------
def shown(value: Any) -> str:
    """Return a value as text: what a text column would have; "" for none."""
    if isinstance(value, str):
        return value
    return "" if value is None else json_text(value)


def operations(usual: Mapping[str, str], given: Mapping[str, str] | None) -> Callable[[Any], str | Invalid]:
    """Return the function that finds the operation of a value, or why it has none.

    :param usual: the default operations by value in lower case; values match without regard to case
    :param given: the user's operations by value; they take precedence, and values match exactly
    """
    exact = {text.strip(): kind for text, kind in (given or {}).items()}
    known = {text: kind for name, kind in usual.items() for text in (name, name.upper())} | exact

    def operation(value: Any) -> str | Invalid:
        if type(value) is str and value in known:
            return known[value]
        text = shown(value).strip(" ")
        found = exact.get(text)
        if found is None and len(text) <= 100:
            found = usual.get(text.lower())
        return Invalid(f"unknown operation '{text[:40]}'") if found is None else found

    return operation


# -- changes of a key -----------------------------------------------------------------------------
class Keys:
    """The key columns of a table.

    :param keys: their names
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self.names = tuple(keys)
        self._found = Names(self.names)
        self._converters: dict[str, Callable[[Any], Any]] = {}

    def learn(self, types: Mapping[str, Type]) -> None:
        """Take the columns' types, so that the text ``7`` and the number 7 are the same key."""
        by_lower = {name.lower(): kind for name, kind in types.items()}
        self._converters = {
            name: converter(plain(by_lower[name.lower()])) for name in self.names if name.lower() in by_lower
        }

    def lacking(self, row: Mapping[str, Any]) -> str | None:
        """Return a key of which a row has no value; None if it has all."""
        for name, spelt in zip(self.names, self._found.of(row), strict=True):
            if spelt is None or row[spelt] is None:
                return name
        return None

    def differ(self, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
        """Return whether two rows have different keys. A key that one of them lacks does not count."""
        for name, old, new in zip(self.names, self._found.of(before), self._found.of(after), strict=True):
            if old is None or new is None:
                continue
            one, other = before[old], after[new]
            if one is None or other is None or (type(one) is type(other) and one == other):
                continue
            if not self._is_same(name, one, other):
                return True
        return False

    def _is_same(self, name: str, one: Any, other: Any) -> bool:
        convert = self._converters.get(name)
        if convert is not None:
            first, second = convert(one), convert(other)
            if first is not MISFIT and second is not MISFIT:
                return bool(first == second)
        return json_text(one).strip('"') == json_text(other).strip('"')


def key_change(
    before: dict[str, Any],
    after: Mapping[str, Any],
    sequences: tuple[Any, Any],
    source_timestamp: int | None = None,
    encodings: Mapping[str, Any] | None = None,
) -> list[Event]:
    """Return the two events of a changed key: a delete of the old one, and a whole new row.

    The new row has what ``after`` has, then what only ``before`` has. It must have every column of its table:
    there is no row of the new key that would keep other values.

    :param before: what is known of the old row: at least its key
    :param after: the new row, or some of its columns
    :param sequences: of the delete, and of the upsert
    """
    row = dict(after)
    for name, value in before.items():
        row.setdefault(name, value)
    return [
        Event(DELETE, before, sequences[0], source_timestamp, encodings=encodings),
        Event(UPSERT, row, sequences[1], source_timestamp, whole=True, encodings=encodings),
    ]


# -- tombstones -----------------------------------------------------------------------------------
class Tombstones:
    """Turns messages without a value into events.

    :param choice: the option ``tombstones``: ``ignore``, or ``delete`` of the row that the message key names
    :param keys: the key columns
    :param sequence: returns the sequence of a message from its position; None if only a value orders events
    :param prefix: what the members of the message key may have before the names of the key columns
    """

    def __init__(
        self,
        choice: str | None,
        keys: Iterable[str],
        sequence: Callable[[Record], Any] | None,
        prefix: str = "",
    ) -> None:
        self._deletes = choice == "delete"
        self._keys = tuple(keys)
        self._sequence = sequence
        self._prefix = prefix

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record without a value. Records of files are blank lines."""
        if not self._deletes or record.position.offset is None:
            return ignored()
        row = self._row(record.key)
        if isinstance(row, Invalid):
            return row
        if self._sequence is None:
            return NO_DELETE
        sequence = self._sequence(record)
        return sequence if isinstance(sequence, Invalid) else (Event(DELETE, row, sequence),)

    def _row(self, key: Any) -> dict[str, Any] | Invalid:
        """Return the key columns, from the key of a message."""
        if key is None or key == b"":
            return _NO_KEY
        value = _key_value(key) if isinstance(key, bytes) else key
        if isinstance(value, Invalid):
            return value
        if isinstance(value, dict):
            row = self._members(value)
            is_connect = isinstance(row, Invalid) and value.keys() == {"schema", "payload"}
            if not is_connect:
                return row
            value = value["payload"]
            if isinstance(value, dict):
                return self._members(value)
        if isinstance(value, list):
            return Invalid("the key of the message is a list, not an object of the key columns")
        if len(self._keys) != 1:
            return Invalid(f"the key of the message is one value, and the keys are {', '.join(self._keys)}")
        return {self._keys[0]: value}

    def _members(self, value: dict[str, Any]) -> dict[str, Any] | Invalid:
        row = {}
        for key in self._keys:
            name = member_name(value, key)
            if name is None and self._prefix:
                name = member_name(value, self._prefix + key)
            if name is None:
                return Invalid(f"the key of the message has no {key}")
            row[key] = value[name]
        return row


def _key_value(key: bytes) -> Any:
    """Return the value of a message key that is JSON, or else text."""
    value = json_value(key)
    if not isinstance(value, Invalid):
        return value
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = "\0"
    # What begins like JSON is damaged JSON. Serializers of numbers write bytes that are control characters.
    if text.lstrip()[:1] in ("{", "[", '"') or any(mark < " " for mark in text):
        return Invalid("the key of the message is no JSON, and no text")
    return text


# -- an order by members --------------------------------------------------------------------------
_STEP = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|`(?:[^`]|``)+`")
_PATH = re.compile(rf"(?:{_STEP.pattern})(?:\.(?:{_STEP.pattern}))*")
_MOMENT = converter(plain(TIMESTAMP))


def path_of(text: str) -> tuple[str, ...] | None:
    """Return the names of a member inside of members (``source.lsn``); None if the text is something else.

    Names are quoted as in SQL.
    """
    if _PATH.fullmatch(text) is None:
        return None
    return tuple(step[1:-1].replace("``", "`") if step[0] == "`" else step for step in _STEP.findall(text))


def inside(value: Any, path: Iterable[str]) -> Any:
    """Return a member inside of members; None if it does not exist."""
    for name in path:
        if type(value) is not dict:
            return None
        value = member(value, name)
    return value


def offset_text(record: Record) -> str | None:
    """Return the offset of a message as a part of a sequence."""
    offset = record.position.offset
    return None if offset is None else digits(offset, _WIDTH)


def row_text(record: Record) -> str | None:
    """Return the row number of a record in its file as a part of a sequence."""
    row = record.position.row
    return None if row is None else digits(row, _WIDTH)


class Order:
    """The option ``sequence_by`` of an adapter whose records have an envelope.

    A part is ``_offset``, ``_row``, or a member of the record (``metadata.commit-timestamp``). Members whose
    names end with ``timestamp`` are moments; all others are whole numbers. So all sequences of a log have the
    same form.

    :param texts: the parts
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self.needs_rows = ROW in self.texts
        self.is_offset = set(self.texts) == {OFFSET}
        self.lacking = Invalid(
            "no offset of a message to order by: give adapter_options sequence_by"
            if self.texts == (OFFSET,)
            else f"no value for sequence_by, or a text that is no number ({', '.join(self.texts)})"
        )
        self._parts = [_order_part(text) for text in self.texts]

    def text(self, record: Record) -> str | None:
        """Return the sequence of a record; None if a part is missing, or has another form."""
        found = []
        for make in self._parts:
            made = make(record)
            if made is None:
                return None
            found.append(made)
        return "/".join(found)


def _order_part(text: str) -> Callable[[Record], str | None]:
    if text == OFFSET:
        return offset_text
    if text == ROW:
        return row_text
    path = text.split(".")
    if path[-1].lower().endswith("timestamp"):
        return lambda record: moment_text(inside(record.value, path))
    return lambda record: numbers(inside(record.value, path))


def moment_text(value: Any) -> str | None:
    """Return a moment as a part of a sequence; None if the value is no moment."""
    found = _MOMENT(value)
    return None if found is MISFIT else part(found, TIMESTAMP)


def is_table(name: str) -> Callable[[Any, Any], bool]:
    """Return the function that compares a table and its schema or database with an option.

    :param name: the table, optionally with its schema or database: ``schema.table``
    """
    *qualifiers, table = name.lower().split(".")
    schema = qualifiers[-1] if qualifiers else None

    def is_same(given_table: Any, given_schema: Any) -> bool:
        if not isinstance(given_table, str) or given_table.lower() != table:
            return False
        return schema is None or (isinstance(given_schema, str) and given_schema.lower() == schema)

    return is_same
