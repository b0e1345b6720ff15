"""What passes between the steps: a decoded record, its events, and the reason why it has none."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from delta_cdc.core.errors import InvalidConfiguration
    from delta_cdc.ingest.types import Type


class Number(str):
    """A number as its text, exactly as the record has it; a whole number of at most 19 digits is an ``int``.

    All other numbers of a JSON document are of this class, because a ``float`` may round, and an ``int`` of a
    million digits takes minutes to read.
    """

    __slots__ = ()


class Invalid(NamedTuple):
    """Why something is not what it should be.

    :param reason: a phrase for a person, such as ``not JSON: text after the object``
    """

    reason: str


class Position(NamedTuple):
    """Where a record came from: a row of a file, or an offset of a topic."""

    file: str | None = None
    row: int | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None


NOWHERE = Position()


@dataclass(slots=True)
class Record:
    """A record that was read.

    :param value: the decoded value, usually the members of an object by name. Values are ``None``,
        ``bool``, ``int``, :class:`Number`, ``str``, ``list`` and ``dict``; of Avro and Parquet also
        ``bytes``, ``float``, ``Decimal``, ``date`` and ``datetime``. A tombstone has None. An adapter may
        change it
    :param position: where it came from
    :param key: the key of a message: its bytes, or what Avro decoded; None without a key. A registry's prefix
        stays (:func:`delta_cdc.ingest.records.json.key_value`): bytes of another format may begin in its way
    :param headers: headers of a message, the last one of each name
    :param published: when the message was written, or the file was changed: microseconds since 1970
    :param schema: what the record says about the types of its value (Kafka Connect's ``schema``), or None
    :param encodings: how the members of its value are written
        (:class:`delta_cdc.ingest.values.Encoding`), by name, if its format says so (Avro)
    """

    value: Any
    position: Position = NOWHERE
    key: Any = None
    headers: Mapping[str, bytes] = field(default_factory=dict)
    published: int | None = None
    schema: Any = None
    encodings: Mapping[str, Any] | None = None


@dataclass(slots=True)
class Event:
    """One change of one row.

    :param op: one of :data:`delta_cdc.core.adapters.KINDS_OF_EVENTS`
    :param row: the members of the row, as in :class:`Record`, without what only describes the event. A name
        that is absent is missing, which is not NULL
    :param sequence: what orders the event. A text sorts as it is; anything else goes through the adapter's
        :meth:`Adapter.sequence`
    :param source_timestamp: when the source committed it: microseconds since 1970, for display only
    :param carried: the names that the event carries, if they are not those of ``row``
    :param whole: the event must carry every column of its table, because it makes a new row of an old one
    :param encodings: how the values of ``row`` are written, by name, if the record says so; else
        :meth:`Adapter.encodings` says it
    :param others: members that SQL expressions may name, if they are not those of ``row``
    """

    op: str
    row: dict[str, Any]
    sequence: Any = None
    source_timestamp: int | None = None
    carried: Sequence[str] | None = None
    whole: bool = False
    encodings: Mapping[str, Any] | None = None
    others: Mapping[str, Any] | None = None


class Sequencer(NamedTuple):
    """How the sequences of events become values of one column.

    :param type: the type of the column
    :param value: what makes the column's value of :attr:`Event.sequence`, or an :class:`Invalid`
    """

    type: Type
    value: Callable[[Any], Any]


class Adapter(Protocol):
    """Turns records of one format into events. It is made once for a batch, from checked options.

    :param reads: the columns of Parquet files that :meth:`events` looks at, in lower case
    :param needs_rows: the order needs the row number of a record in its file
    :param expressions: SQL that orders the events: Spark evaluates it
    :param timestamp_expression: SQL for the source's time, or None
    :param problem: why records of the batch cannot be read by the options; such records are invalid
    :param is_connect: it takes values of Avro as Kafka Connect has them, with :attr:`Record.schema`
    :param has_index: with ``expressions``, the sequence that :meth:`sequence` gives is the index of an event
        in its record, and comes last
    """

    reads: frozenset[str]
    needs_rows: bool
    expressions: tuple[str, ...]
    timestamp_expression: str | None
    has_index: bool
    is_connect: bool
    problem: InvalidConfiguration | None

    @property
    def member_types(self) -> Mapping[str, Type]:
        """Return the types of members that expressions may name, and that are no columns."""

    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a record; never raise for what the record contains."""

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event, so that it is no column of the row."""

    def encodings(self, types: Mapping[str, Type]) -> Mapping[str, Any]:
        """Return how values of columns are written (:class:`delta_cdc.ingest.values.Encoding`), by name.

        :param types: the columns' types by name, of the log, of ``schema``, or inferred
        """

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values.

        :param types: the columns' types by name
        :param log_type: the type of the log's sequence; None before its first batch
        """
