"""Call the user's own adapter: a function that turns one record into events.

.. code-block:: python

    def events(record, options):
        row = record.value
        if "id" not in row:
            return Invalid("no id")
        return Event("upsert", row, sequence=row["version"])

It returns an :class:`~delta_cdc.ingest.record.Event`, a list of these (an empty one leaves the record out),
or an :class:`~delta_cdc.ingest.record.Invalid`. What it returns is checked. What it raises makes this one
record invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import PurePath
from traceback import walk_tb
from typing import TYPE_CHECKING, Any
from uuid import UUID

from delta_cdc.core.adapters import DELETE, IGNORE, TRUNCATE, UPSERT
from delta_cdc.core.errors import invalid
from delta_cdc.ingest.adapters.common import Described, ignored
from delta_cdc.ingest.ddl import parse_ddl
from delta_cdc.ingest.ordering import joined, part
from delta_cdc.ingest.record import Event, Invalid, Sequencer
from delta_cdc.ingest.types import DATE, LONG, STRING, TIMESTAMP, Type, decimal
from delta_cdc.ingest.values import MISFIT, Encoding, converter, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.ingest.record import Record

_OPS = (UPSERT, DELETE, TRUNCATE, IGNORE)
#: The classes of values that a row may have, besides lists and dicts of these.
_LEAVES = (type(None), bool, int, float, str, bytes, Decimal, date, datetime, time, UUID)
_USUAL = frozenset(_LEAVES)
#: The years 1 to 9999 in microseconds since 1970.
_FIRST, _LAST = -62_135_596_800_000_000, 253_402_300_799_999_999
_MOST_TEXT, _MOST_VALUES = 200, 1_000_000
_NO_ORDER = Invalid("the sequence of the event is no text, whole number, date or time, or a tuple of these")
#: Classes of parts of a sequence that is a text, and the types whose texts sort as they do.
_PARTS: tuple[tuple[type, Type], ...] = (
    (int, LONG),
    (Decimal, decimal(38, 0)),
    (datetime, TIMESTAMP),
    (date, DATE),
)


class User(Described):
    """Calls the user's function.

    :param function: returns the events of a record
    :param options: the user's options. ``sequence_type`` is the type of a new log's sequences (without it,
        whole numbers), ``reads`` names the columns of Parquet files that the function looks at. With
        ``tombstones`` ``delete``, the function also gets messages without a value
    :param keys: the key columns, which it may look at
    :param needs_rows: the function looks at row numbers
    """

    def __init__(
        self,
        function: Callable[[Record, Mapping[str, Any]], Any],
        options: Mapping[str, Any],
        *,
        keys: Sequence[str],
        needs_rows: bool,
    ) -> None:
        super().__init__()
        self._function = function
        self._options = options
        self.needs_rows = needs_rows
        reads = options.get("reads") or ()
        names = (reads,) if isinstance(reads, str) else reads
        self.reads = frozenset(str(name).lower() for name in (*names, *keys))
        self._takes_tombstones = options.get("tombstones") == DELETE

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record."""
        if record.value is None and not self._takes_tombstones:
            return ignored()
        try:
            return _checked(self._function(record, self._options))
        except Exception as error:  # noqa: BLE001  The code is the user's: anything may be raised.
            return Invalid(_raised(error, self._function))

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values.

        If the log's sequences are texts, a whole number, a date, a time, or a tuple of these and of texts
        becomes a text that sorts as they do.
        """
        kind = log_type or _sequence_type(self._options.get("sequence_type"))
        if kind == STRING:
            return Sequencer(STRING, _ordered)
        convert = converter(plain(kind))
        way_out = "" if log_type else " (for others, give adapter_options sequence_type)"
        misfit = Invalid(f"the sequence of the event is no {kind}{way_out}")

        def value(sequence: Any) -> Any:
            found = convert(sequence)
            return misfit if found is MISFIT else found

        return Sequencer(kind, value)


# -- sequences ------------------------------------------------------------------------------------
def _sequence_type(given: Any) -> Type:
    """Return the type that the option ``sequence_type`` names, as SQL does.

    :raises InvalidConfiguration: it names no type
    """
    if given is None or isinstance(given, Type):
        return given or LONG
    found = parse_ddl(f"v {given}")
    if isinstance(found, Invalid):
        raise invalid(
            f"sequence_type of the adapter is {str(given)[:100]!r}, which is no type",
            "write it as SQL does, such as BIGINT, STRING or TIMESTAMP.",
        )
    return found.fields[0][1]


def _ordered(sequence: Any) -> Any:
    """Return a sequence as text that sorts as it does."""
    if sequence is None:
        return None
    parts = sequence if isinstance(sequence, tuple | list) else (sequence,)
    return joined(map(_part, parts)) or _NO_ORDER


def _part(value: Any) -> str | None:
    if isinstance(value, str):
        return value if _is_text(value) else None
    kind = next((kind for known, kind in _PARTS if isinstance(value, known)), None)
    if kind is None:
        return None
    found = converter(plain(kind))(value)
    return None if found is MISFIT else part(found, kind)


# -- what the function returns ----------------------------------------------------------------------
def _checked(found: Any) -> Sequence[Event] | Invalid:
    """Return the events that the function returned, or what is wrong with them."""
    if isinstance(found, Event):
        return _flaw(found) or (found,)
    if isinstance(found, Invalid):
        # A user's code is not checked: the reason may be anything.
        return Invalid(_text(found.reason))
    if not isinstance(found, list | tuple):
        return _wrong(found, "an event, a list of events, or Invalid")
    for event in found:
        if isinstance(event, Invalid):
            return Invalid(_text(event.reason))
        flaw = _flaw(event)
        if flaw is not None:
            return flaw
    return found


def _wrong(found: Any, expected: str) -> Invalid:
    return Invalid(f"the adapter returned {type(found).__name__} instead of {expected}")


def _flaw(event: Any) -> Invalid | None:
    """Return what is wrong with an event; None if nothing is."""
    if not isinstance(event, Event):
        return _wrong(event, "an event")
    if not isinstance(event.op, str) or event.op not in _OPS:
        return Invalid(f"the adapter returned the operation {_text(event.op)}, not one of {', '.join(_OPS)}")
    row: Any = event.row
    if not isinstance(row, dict):
        return _wrong(row, "a dict of the columns of the row")
    for name, value in row.items():
        if not isinstance(name, str) or not _is_text(name):
            return _wrong(name, "a text as the name of a column")
        if type(value) not in _USUAL:
            strange = _strange(value)
            if strange is not None:
                return Invalid(f"the adapter returned {strange} as the value of column {name[:_MOST_TEXT]}")
    moment = event.source_timestamp
    if moment is not None and (type(moment) is not int or not _FIRST <= moment <= _LAST):
        return Invalid("the adapter returned a source_timestamp that is no number of microseconds since 1970")
    return _flaw_of_names(event)


def _flaw_of_names(event: Event) -> Invalid | None:
    carried = event.carried
    if carried is not None and (
        not isinstance(carried, list | tuple)
        or not all(isinstance(name, str) and _is_text(name) for name in carried)
    ):
        return _wrong(carried, "a list of texts as the names that the event carries")
    encodings = event.encodings
    if encodings is not None and (
        not isinstance(encodings, Mapping)
        or not all(isinstance(encoding, Encoding) for encoding in encodings.values())
    ):
        return _wrong(encodings, "encodings by column")
    return None


def _strange(value: Any) -> str | None:
    """Return the class of a value, or of a value in it, that no column takes; None if all are usual."""
    waiting, count = [value], 0
    while waiting:
        one = waiting.pop()
        count += 1
        if count > _MOST_VALUES:
            # A list that contains itself never ends.
            return f"more than {_MOST_VALUES:,} values"
        if isinstance(one, dict):
            if not all(isinstance(name, str) for name in one):
                return "a dict whose keys are no texts"
            waiting += one.values()
        elif isinstance(one, list | tuple):
            waiting += one
        elif not isinstance(one, _LEAVES):
            return type(one).__name__
    return None


def _is_text(text: str) -> bool:
    """Return whether a text is without half of a surrogate pair."""
    return text.isascii() or text.encode("utf-8", "replace").decode() == text


# -- what the function raises -----------------------------------------------------------------------
def _raised(error: Exception, function: Any) -> str:
    """Return what was raised, and where in the user's code."""
    # The first frame is our own call. If it is the only one, the function does not take these arguments.
    frames = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)][1:]
    file = getattr(getattr(function, "__code__", None), "co_filename", "")
    own = [place for place in frames if place[0] == file] or frames
    place = f", line {own[-1][1]} of {PurePath(own[-1][0]).name}" if own else ""
    return f"the adapter raised {type(error).__name__}: {_text(error)}{place}"


def _text(value: Any) -> str:
    try:
        return " ".join(str(value)[: 10 * _MOST_TEXT].encode("utf-8", "replace").decode().split())[
            :_MOST_TEXT
        ]
    except Exception:  # noqa: BLE001  The class is the user's: its text may raise anything.
        return "(without a text)"
