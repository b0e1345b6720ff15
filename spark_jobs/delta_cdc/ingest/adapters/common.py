"""What adapters share: operations, tables, changes of a key, tombstones, and the way from record to event."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import DELETE, IGNORE, OFFSET, UPSERT
from delta_cdc.ingest.adapters.members import Names, member_name, shown
from delta_cdc.ingest.adapters.sequence_by import Order
from delta_cdc.ingest.record import Event, Invalid, Sequencer
from delta_cdc.ingest.records.json import NOT_JSON, key_value
from delta_cdc.ingest.types import STRING
from delta_cdc.ingest.values import MISFIT, converter, json_text, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delta_cdc.core.errors import InvalidConfiguration
    from delta_cdc.ingest.record import Record
    from delta_cdc.ingest.types import Type

#: The record is no object. Its reader may have accepted it, for instance as a value of Avro.
NO_OBJECT = Invalid(NOT_JSON)
NO_DELETE = Invalid(
    "a message without a value, which tombstones makes a delete, has nothing that orders it: only the order "
    f"by {OFFSET} goes without a value"
)
#: In the option ``operations``: any value without an operation.
ANY_OTHER = "*"
_COMPARED = (str, int)
_NO_KEY = Invalid("a message without a value, which tombstones makes a delete, has no key")


# -- operations and tables -------------------------------------------------------------------------
def operations(usual: Mapping[str, str], given: Mapping[str, str] | None) -> Callable[[Any], str | Invalid]:
    """Return the function that finds the operation of a value, or why it has none.

    :param usual: the default operations by value in lower case; values match without regard to case
    :param given: the user's operations by value; they take precedence, and values match exactly.
        :data:`ANY_OTHER` stands for each value that has no operation; an empty text also for none
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
        if found is None:
            found = exact.get(ANY_OTHER)
        return Invalid(f"unknown operation '{text[:40]}'") if found is None else found

    return operation


def is_table(name: str) -> Callable[[Any, Any], bool]:
    """Return the function that compares a table and its schema or database with an option.

    :param name: the table, optionally with its schema or database: ``schema.table``
    """
    *qualifiers, table = name.lower().split(".")

    def is_same(given_table: Any, given_schema: Any) -> bool:
        if shown(given_table).lower() != table:
            return False
        return not qualifiers or shown(given_schema).lower() == qualifiers[-1]

    return is_same


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
            if one is None or other is None:
                continue
            # Values of other types may raise where they are compared: a NaN, for instance.
            if type(one) is type(other) and type(one) in _COMPARED and one == other:
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
    :param sequence: returns the sequence of a message without a value, or why it has none
    :param prefix: what the members of the message key may have before the names of the key columns
    """

    def __init__(
        self, choice: str | None, keys: Iterable[str], sequence: Callable[[Record], Any], prefix: str = ""
    ) -> None:
        self._deletes = choice == DELETE
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
    value = key_value(key)
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


# -- the steps from record to event -----------------------------------------------------------------
def ignored() -> tuple[Event]:
    """Return the event of a record that is left out."""
    return (Event(IGNORE, {}),)


def in_texts() -> Sequencer:
    """Return the sequencer for sequences that are texts already."""
    return Sequencer(STRING, _unchanged)


def _unchanged(sequence: Any) -> Any:
    return sequence


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


class OfTable(Described):
    """An adapter for the changes of one table.

    :param options: checked options; ``table``, ``operations`` and ``tombstones`` are read here
    :param keys: the key columns
    :param usual: the operations of values, in lower case, that the option does not list
    :param described: names of members that describe the event
    :param prefix: what the members of a message key may have before the names of the key columns
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        keys: Sequence[str],
        usual: Mapping[str, str],
        *,
        described: Iterable[str] = (),
        prefix: str = "",
    ) -> None:
        super().__init__(described)
        self._keys = Keys(keys)
        self._operation = operations(usual, options.get("operations"))
        table = options.get("table")
        self._is_table = None if table is None else is_table(table)
        self._tombstones = Tombstones(options.get("tombstones"), keys, self._tombstone_sequence, prefix)

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values: they are texts."""
        self._keys.learn(types)
        return in_texts()

    def _read_other(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record whose value is no object."""
        return self._tombstones.events(record) if record.value is None else NO_OBJECT

    def _tombstone_sequence(self, record: Record) -> Any:
        """Return the sequence of a message without a value, or why it has none."""
        return NO_DELETE


class Enveloped(OfTable):
    """An adapter whose records have the row, the operation and what orders the event in an envelope.

    :param order: what orders events if the option ``sequence_by`` does not say it
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        keys: Sequence[str],
        usual: Mapping[str, str],
        *,
        order: Sequence[str] = (),
        described: Iterable[str] = (),
        prefix: str = "",
    ) -> None:
        super().__init__(options, keys, usual, described=described, prefix=prefix)
        self._has_order = bool(options["sequence_by"])
        self._order = Order(options["sequence_by"] or order)
        self.needs_rows = self._order.needs_rows

    def _tombstone_sequence(self, record: Record) -> Any:
        if not self._order.is_offset:
            return NO_DELETE
        base = self._order.text(record)
        return base if isinstance(base, Invalid) else f"{base}/1"

    def _read_row(
        self,
        op: str,
        row: dict[str, Any],
        old: Mapping[str, Any] | None,
        base: str,
        moment: int | None,
    ) -> Sequence[Event]:
        """Return the event of a row; of a changed key, a delete of the old row and a whole new one.

        :param old: the former values of columns that an update changed, if they are known. The row has these
            columns, too: those that the record leaves out are NULL
        :param base: the sequence of the record
        :param moment: when the source committed it
        """
        if old and op == UPSERT:
            new = _with_nulls(row, old)
            if self._keys.differ(old, row):
                return key_change({**row, **old}, new, (f"{base}/0", f"{base}/1"), moment)
            row = new
        return (Event(op, row, f"{base}/1", moment),)


def _with_nulls(row: dict[str, Any], old: Iterable[str]) -> dict[str, Any]:
    """Return a row with NULL for each column that only the row before it has."""
    lacking = [name for name in old if name not in row]
    if lacking:
        known = {name.lower() for name in row}
        row = {**row, **{name: None for name in lacking if name.lower() not in known}}
    return row
