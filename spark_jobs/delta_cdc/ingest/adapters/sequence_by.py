"""The option ``sequence_by``: its parts, and how they become the value that orders events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import OFFSET, ROW
from delta_cdc.core.errors import InvalidExpression
from delta_cdc.ingest.adapters.members import inside
from delta_cdc.ingest.ordering import digits, has_part, joined, numbers, part
from delta_cdc.ingest.record import Invalid, Sequencer
from delta_cdc.ingest.types import STRING, TIMESTAMP
from delta_cdc.ingest.values import MISFIT, converter, plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delta_cdc.ingest.record import Record
    from delta_cdc.ingest.types import Type

_WIDTH = 20
_MOMENT = converter(plain(TIMESTAMP))
#: Types whose values have no order.
_NO_ORDER = ("array", "map", "struct", "variant")


def lacking_of(texts: Iterable[str], way_out: str = "") -> Invalid:
    """Return why an event without one of the parts is invalid."""
    parts = ", ".join(texts)
    return Invalid(f"no value for sequence_by, or no number of at most {_WIDTH} digits ({parts}){way_out}")


# -- of records with an envelope ------------------------------------------------------------------
class Order:
    """The option of an adapter whose records have an envelope.

    A part is ``_offset``, ``_row``, or a member of the record (``metadata.commit-timestamp``). Members whose
    names end with ``timestamp`` are moments; all others are whole numbers. So all sequences of a log have the
    same form.

    :param texts: the parts
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.texts = tuple(texts)
        self.needs_rows = ROW in self.texts
        self.is_offset = set(self.texts) == {OFFSET}
        self._lacking = (
            Invalid("no offset of a message to order by: give adapter_options sequence_by")
            if self.texts == (OFFSET,)
            else lacking_of(self.texts)
        )
        self._parts = [_order_part(text) for text in self.texts]

    def text(self, record: Record) -> str | Invalid:
        """Return the sequence of a record; an invalid one if a part is missing, or has another form."""
        found = joined([make(record) for make in self._parts])
        return self._lacking if found is None else found


def _order_part(text: str) -> Callable[[Record], str | None]:
    if text == OFFSET:
        return lambda record: digits(record.position.offset, _WIDTH)
    if text == ROW:
        return lambda record: digits(record.position.row, _WIDTH)
    path = text.split(".")
    if path[-1].lower().endswith("timestamp"):
        return lambda record: moment_text(inside(record.value, path))
    return lambda record: numbers(inside(record.value, path))


def moment_text(value: Any) -> str | None:
    """Return a moment as a part of a sequence; None if the value is no moment."""
    found = _MOMENT(value)
    return None if found is MISFIT else part(found, TIMESTAMP)


# -- of values with types -------------------------------------------------------------------------
def sequencer(
    texts: Sequence[str],
    kinds: Sequence[Type | None],
    log_type: Type | None,
    *,
    lacking: Invalid,
    way_out: str,
    has_index: bool = False,
) -> Sequencer:
    """Return how the values of parts become a sequence.

    A single part without index keeps its type, and is given as it is. Several parts are given as a tuple, and
    become a text with parts of a fixed width.

    :param texts: what the user wrote
    :param kinds: the types of the parts; None for whole numbers that may be texts
    :param log_type: the type of the log's sequence; None before its first batch
    :param lacking: why an event without such a sequence is invalid
    :param way_out: what the user can do if values of the type cannot be compared with texts
    :param has_index: the tuple ends with the index of the event in its record
    :raises InvalidExpression: values of a type have no order, or cannot be compared with the log's sequences
    """
    if len(kinds) == 1 and not has_index:
        return _one(kinds[0], log_type, lacking, way_out)
    makers = [_fixed(text, kind) for text, kind in zip(texts, kinds, strict=True)]

    def value(sequence: Any) -> Any:
        if sequence is None:
            return lacking
        parts = [make(raw) for make, raw in zip(makers, sequence, strict=False)]
        found = joined([*parts, str(sequence[-1])] if has_index else parts)
        return lacking if found is None else found

    return Sequencer(STRING, value)


def _one(kind: Type | None, log_type: Type | None, lacking: Invalid, way_out: str) -> Sequencer:
    """Return the sequencer of one part."""
    if kind is None and (log_type is None or log_type == STRING):

        def number(sequence: Any) -> Any:
            found = numbers(sequence)
            return lacking if found is None else found

        return Sequencer(STRING, number)
    if kind is not None and kind.name in _NO_ORDER:
        raise InvalidExpression(
            f"sequence_by is of type {kind}, whose values have no order.",
            remedy="name a column of whole numbers, dates, timestamps or texts.",
        )
    if kind is not None and log_type == STRING and kind != STRING:
        raise InvalidExpression(
            f"sequence_by is of type {kind}, but the log's sequences are texts: the two cannot be compared.",
            remedy=way_out,
        )
    wanted = log_type or kind
    assert wanted is not None
    convert = converter(plain(wanted))

    def value(sequence: Any) -> Any:
        found = convert(sequence)
        return lacking if found is None or found is MISFIT else found

    return Sequencer(wanted, value)


def _fixed(text: str, kind: Type | None) -> Callable[[Any], str | None]:
    """Return what makes a text of a fixed width of a part.

    :raises InvalidExpression: values of the type have no such text
    """
    if kind is None:
        return numbers
    if not has_part(kind):
        raise InvalidExpression(
            f"sequence_by has the part {text!r} of type {kind}, which has no text of "
            "a fixed width; with several parts (or old_keys), each needs one.",
            remedy="use whole numbers, dates and timestamps as parts, or write one expression whose text "
            "order is the order, for instance with lpad.",
        )
    convert = converter(plain(kind))

    def made(raw: Any) -> str | None:
        found = convert(raw)
        return None if found is MISFIT else part(found, kind)

    return made
