"""Read Debezium's change events: with envelope, unwrapped (``ExtractNewRecordState``), or in CloudEvents.

The order is the position in the database's log that the connector reports, never a clock
(:mod:`.debezium_order`). The schema in a message defines the encoding of values (:mod:`.debezium_types`).
Without such a schema, the option ``schema`` and the connector's own options define it; the adapter options
must repeat the connector's options.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core.adapters import DELETE, IGNORE, OFFSET, TRUNCATE, UPSERT
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.adapters import debezium_order as order
from delta_cdc.ingest.adapters.cloudevents import header_value, unpacked
from delta_cdc.ingest.adapters.common import OfTable, ignored, in_texts, key_change
from delta_cdc.ingest.adapters.debezium_types import (
    Placeholders,
    Schemas,
    bare_encoding,
    row_encodings,
    text_coding,
)
from delta_cdc.ingest.adapters.members import Remembered, inside, shown
from delta_cdc.ingest.adapters.sequence_by import sequencer
from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.records.json import key_value
from delta_cdc.ingest.types import BINARY, STRING, struct
from delta_cdc.ingest.values import epoch_micros

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from delta_cdc.ingest.adapters.cloudevents import Unpacked
    from delta_cdc.ingest.record import Record, Sequencer
    from delta_cdc.ingest.types import Type
    from delta_cdc.ingest.values import Encoding

#: The members of the envelope that order or describe an event, besides ``source``.
ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns", "transaction")
NOT_WHOLE = Invalid("a key change without the whole row")
_LACKING = Invalid("no value for sequence_by")
_NO_IMAGE = Invalid("no value for after, or of a delete for before or a key")
_NO_ROW = Invalid("before or after is no object")
_FLAT_DELETE = Invalid(
    "a message without a value: a delete that nothing orders. Set delete.tombstone.handling.mode=rewrite in "
    "the connector's transformation; if it is rewrite-with-tombstone, set adapter_options tombstones to "
    "'ignore'"
)
_DOCUMENT = Invalid("before or after is no object, but text: documents of MongoDB need the adapter 'mongodb'")
_IMAGE = (dict, type(None))
#: All members of a heartbeat, of a record of a transaction (``provide.transaction.metadata``), and of a
#: change of the schema (``include.schema.changes``).
_HEARTBEAT = {"ts_ms"}
_TRANSACTION = {"status", "id", "event_count", "data_collections"}
_SCHEMA_CHANGE = {"source", "databaseName", "schemaName", "ddl", "tableChanges", "position"}
_CLOCKS = {"ts_ms", "ts_us", "ts_ns"}
#: Operations whose row is a new one, so that no value of an older row stays.
_NEW = ("c", "r")
#: The most microseconds of the year 9999, and the units of clocks, the finest first.
_LAST_MILLIS = 253_402_300_799_999
_UNITS = ("us", "ns", "ms")


class _Change(NamedTuple):
    """A change event.

    :param message: the envelope, or what is known of it
    :param code: its operation, as the connector writes it, in lower case
    :param encodings: how its schema says that values are written
    """

    record: Record
    message: Mapping[str, Any]
    source: Mapping[str, Any]
    code: str
    encodings: Mapping[str, Encoding] | None = None


class _Fields(NamedTuple):
    """The fields that the connector's options ``add.fields`` and ``add.headers`` added.

    :param all: their names
    :param known: of those that are members of the envelope: which object has the member (0 the envelope, 1
        ``source``, 2 ``transaction``), the member, and the field. A later one takes precedence
    """

    all: tuple[str, ...]
    known: tuple[tuple[int, str, str], ...]


class Debezium(OfTable):
    """Reads change events of Debezium.

    :param options: checked options
    :param keys: the key columns
    :param typed: the columns that ``schema`` types, in lower case
    """

    is_connect = True

    def __init__(
        self, options: Mapping[str, Any], *, keys: Sequence[str], typed: Collection[str] = ()
    ) -> None:
        super().__init__(options, keys, order.OPERATIONS)
        #: Why messages without schema cannot be read.
        self.problem: InvalidConfiguration | None = None
        self._options = options
        self._unwrapped: bool = options["unwrapped"]
        self._prefix: str = options["field_prefix"]
        self._named = frozenset((*typed, *(key.lower() for key in keys)))
        self._connector: str | None = options["connector"]
        self._in_order = options["snapshot_reads"] == "in_order"
        self._placeholders = Placeholders(options["unavailable_value_placeholder"])
        self._texts = tuple(options["sequence_by"] or ())
        parts = [order.part_of(text) for text in self._texts]
        members = [part for part in parts if part is not None and _is_member(part.path)]
        self.expressions = self._texts if len(members) < len(parts) else ()
        self._parts = members if not self.expressions else []
        self._is_offset = {part.path for part in self._parts} == {(OFFSET,)}
        #: The envelope of the last event, and its source.
        self._envelope: tuple[Mapping[str, Any], Mapping[str, Any]] = {}, {}
        #: The columns of bytes, in lower case.
        self._binary: frozenset[str] = frozenset()
        self._schemas = Schemas(lambda schema: self._encodings_of(schema, None))
        self._flat_schemas = Schemas(lambda schema: self._encodings_of(schema, self.describes))
        self._fields = Remembered(self._found_fields)

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event: those that ``add.fields`` adds to unwrapped events.

        A column that ``schema`` or ``keys`` name is one of the table, unless it is a member of the envelope.
        """
        if not self._unwrapped or not name.startswith(self._prefix):
            return False
        return name.lower() not in self._named or any(_members(name[len(self._prefix) :]))

    def encodings(self, types: Mapping[str, Type]) -> Mapping[str, Any]:
        """Return how values of messages without schema are written.

        If an option is missing on which it depends, such messages are invalid, and :attr:`problem` says why.
        """
        found = {}
        self._binary = frozenset(name.lower() for name, kind in types.items() if kind == BINARY)
        for name, kind in types.items():
            try:
                found[name] = bare_encoding(name, kind, self._options)
            except InvalidConfiguration as error:
                self.problem = self.problem or error
        return found

    def _encodings_of(
        self, schema: Any, describes: Callable[[str], bool] | None
    ) -> Mapping[str, Encoding] | Invalid:
        """Return how values are written: the schema of a message says it; for bytes in texts, an option."""
        found = row_encodings(schema, self._options, describes)
        if isinstance(found, Invalid):
            return found
        texts = [name for name, one in found.items() if one.type == STRING and name.lower() in self._binary]
        if not texts:
            return found
        try:
            coding = text_coding(texts[0], self._options)
        except InvalidConfiguration as error:
            return Invalid(str(error))
        return {**found, **dict.fromkeys(texts, coding)}

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values.

        :raises InvalidExpression: the log's sequences are of another type
        """
        if not self._parts:
            return in_texts()
        kinds = [part.kind for part in self._parts]
        way_out = "leave out the cast, or start a new log."
        return sequencer(self._texts, kinds, log_type, lacking=_LACKING, way_out=way_out)

    @property
    def member_types(self) -> Mapping[str, Type]:
        """Return the types of the members that expressions may name: texts, and an object of texts."""
        return {
            **dict.fromkeys(ENVELOPE, STRING),
            "source": struct([(n, STRING) for n in order.SOURCE_FIELDS]),
        }

    # -- events -----------------------------------------------------------------------------------
    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a message."""
        message = unpacked(record)
        if isinstance(message, Invalid):
            return message
        found = self._read_nothing(record) if message is None else self._read_event(record, message)
        if self.expressions and not isinstance(found, Invalid):
            envelope, source = self._envelope
            others = {name: envelope.get(name) for name in ENVELOPE}
            others["source"] = {name: source.get(name) for name in order.SOURCE_FIELDS}
            for event in found:
                event.others = others
        return found

    def _read_event(self, record: Record, message: Unpacked) -> Sequence[Event] | Invalid:
        envelope, schema, is_flat = message
        row = envelope if self._unwrapped and is_flat is None else None
        encodings = None
        if schema is not None:
            schemas = self._schemas if row is None and not is_flat else self._flat_schemas
            encodings = schemas.of(schema)
            if isinstance(encodings, Invalid):
                return encodings
        if is_flat and self._unwrapped:
            for image in filter(None, (envelope.get("before"), envelope.get("after"))):
                self._without_fields(image)
        found = self._read_message(record, envelope, encodings or None, row)
        if encodings or self.problem is None or isinstance(found, Invalid):
            return found
        # Without schema, only the options could say how the values of a row are written.
        has_row = any(event.op in (UPSERT, DELETE) for event in found)
        return Invalid(str(self.problem)) if has_row else found

    def _read_message(
        self,
        record: Record,
        envelope: dict[str, Any],
        encodings: Mapping[str, Encoding] | None,
        row: dict[str, Any] | None,
    ) -> Sequence[Event] | Invalid:
        """Return the events of an envelope with images, or of a row with added fields."""
        if row is not None:
            envelope = self._meta_of(record, row)
        source, code = envelope.get("source"), envelope.get("op")
        if type(source) is not dict:
            source = {}
        if self._is_table is not None and not self._is_table(*order.table_of(source)):
            return ignored()
        if row is not None:
            op = self._flat_operation(code, envelope.get("deleted"))
        else:
            op = order.NO_OPERATION if code is None else self._operation(code)
        if isinstance(op, Invalid):
            has_none = code is None and envelope.get("deleted") is None
            return ignored() if has_none and _is_of_connector(row or envelope) else op
        if op == IGNORE:
            return ignored()
        change = _Change(record, envelope, source, _lowered(code), encodings)
        if op == TRUNCATE:
            place = self._place(change, 1)
            return place if isinstance(place, Invalid) else (Event(TRUNCATE, {}, place, _moment(source)),)
        if row is None:
            return self._read_images(change, op)
        return self._read_row(change, op, self._without_fields(row))

    # -- events with an envelope --------------------------------------------------------------------
    def _read_images(self, change: _Change, op: str) -> Sequence[Event] | Invalid:
        """Return the events of the rows before and after a change. A changed key yields two."""
        before, after = change.message.get("before"), change.message.get("after")
        if type(before) not in _IMAGE or type(after) not in _IMAGE:
            return _DOCUMENT if isinstance(before, str) or isinstance(after, str) else _NO_ROW
        # The image before is never the new row.
        row = before if op == DELETE else after
        if row is None:
            return self._read_key(change) if op == DELETE else _NO_IMAGE
        if op == UPSERT and before is not None and self._keys.differ(before, row):
            return self._change_key(change, before, row)
        return self._read_row(change, op, row)

    def _read_key(self, change: _Change) -> Sequence[Event] | Invalid:
        """Return the event of a delete whose old row is not known: the key of the message has its key."""
        row, schema = _key(change.record.key)
        if row is None:
            return _NO_IMAGE
        encodings = change.encodings or self._read_key_schema(schema)
        return self._read_row(change._replace(encodings=encodings), DELETE, row)

    def _read_row(self, change: _Change, op: str, row: dict[str, Any]) -> Sequence[Event] | Invalid:
        """Return the event of a row, without the columns whose values are unavailable."""
        place = self._place(change, 1)
        if isinstance(place, Invalid):
            return place
        event = Event(op, row, place, _moment(change.source), encodings=change.encodings)
        unavailable = self._placeholders.of(row)
        if unavailable:
            for name in unavailable:
                del row[name]
            # A changed key may come as a delete and a new row: the values of the old row are not in the new.
            event.whole = op == UPSERT and change.code in _NEW
        return (event,)

    def _change_key(
        self, change: _Change, before: dict[str, Any], after: dict[str, Any]
    ) -> Sequence[Event] | Invalid:
        """Return a delete of the old key, and an upsert of the whole new row."""
        first, place = self._place(change, 0), self._place(change, 1)
        if isinstance(place, Invalid):
            return place
        for name in self._placeholders.of(before):
            del before[name]
        for name in self._placeholders.of(after):
            # The value did not change, so the image before has it, if any has. It is not NULL: an image that
            # has only the key has NULL for all other columns.
            if before.get(name) is None:
                return NOT_WHOLE
            after[name] = before[name]
        delete, upsert = key_change(before, after, (first, place), _moment(change.source), change.encodings)
        # An envelope has every column that the table had.
        upsert.whole = False
        return [delete, upsert]

    # -- unwrapped events ---------------------------------------------------------------------------
    def _found_fields(self, names: tuple[str, ...]) -> _Fields:
        added = tuple(filter(self.describes, names))
        found = [(*member, name) for name in added for member in _members(name[len(self._prefix) :])]
        found.sort(key=itemgetter(0))
        return _Fields(added, tuple(one[1:] for one in found))

    def _without_fields(self, row: dict[str, Any]) -> dict[str, Any]:
        """Remove the added fields from a row."""
        for name in self._fields.of(row).all:
            del row[name]
        return row

    def _meta_of(self, record: Record, row: Mapping[str, Any]) -> dict[str, Any]:
        """Return what is known of the envelope of an unwrapped event: from its row, else from headers."""
        objects: tuple[dict[str, Any], ...] = {}, {}, {}
        if record.headers:
            names = self._fields.of(record.headers).all
            self._take({name: header_value(record.headers[name]) for name in names}, objects)
        self._take(row, objects)
        envelope, source, transaction = objects
        if self._connector is not None:
            source["connector"] = self._connector
        envelope["source"] = source
        if transaction:
            envelope["transaction"] = transaction
        return envelope

    def _take(self, given: Mapping[str, Any], objects: Sequence[dict[str, Any]]) -> None:
        """Take the values of added fields as members of an envelope, if they are not NULL."""
        for place, member, name in self._fields.of(given).known:
            value = given[name]
            if value is not None:
                objects[place][member] = value

    def _flat_operation(self, code: Any, deleted: Any) -> str | Invalid:
        if deleted is None and code is not None:
            return self._operation(code)
        text = _lowered(deleted)
        if text == "true":
            return DELETE
        if code is not None or text not in ("", "false"):
            return self._operation(code)
        if text == "false":
            return UPSERT
        prefix = self._prefix
        return Invalid(f"no value for {prefix}op or {prefix}deleted, so deletes cannot be recognized")

    # -- messages without a value -------------------------------------------------------------------
    def _read_nothing(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a tombstone."""
        found = self._tombstones.events(record)
        if isinstance(found, Invalid) or found[0].op == IGNORE:
            return found
        source = self._meta_of(record, {})["source"]
        if self._is_table is not None and "table" in source and not self._is_table(*order.table_of(source)):
            return ignored()
        for event in found:
            event.encodings = self._read_key_schema(_key(record.key)[1])
            event.source_timestamp = _moment(source)
        return found

    def _tombstone_sequence(self, record: Record) -> Any:
        """Return the sequence of a message without a value: from its offset, or from its headers."""
        if self._is_offset:
            offset = record.position.offset
            return offset if len(self._parts) == 1 else (offset,) * len(self._parts)
        if not self._unwrapped:
            return super()._tombstone_sequence(record)
        if not any(place == 1 for place, *_ in self._fields.of(record.headers).known):
            return _FLAT_DELETE
        message = self._meta_of(record, {})
        return self._place(_Change(record, message, message["source"], _lowered(message.get("op"))), 1)

    def _read_key_schema(self, schema: Any) -> Mapping[str, Encoding] | None:
        """Return how the values of a message key are written; None if it does not say it."""
        found = None if schema is None else self._flat_schemas.of(schema)
        return None if isinstance(found, Invalid) else found or None

    # -- order ------------------------------------------------------------------------------------
    def _place(self, change: _Change, index: int) -> Any:
        """Return the sequence of an event, or why it has none."""
        if self.expressions:
            self._envelope = change.message, change.source
            return None
        if self._parts:
            offset = change.record.position.offset
            message = change.message
            found = [offset if path == (OFFSET,) else inside(message, path) for path, _ in self._parts]
            if None in found:
                return _LACKING
            return found[0] if len(found) == 1 else tuple(found)
        source = change.source
        connector = self._connector if self._connector is not None else source.get("connector")
        place = order.place(connector, change.code, source, self._in_order, change.message.get("transaction"))
        return place if isinstance(place, Invalid) else f"{place}/{index}"


def _is_member(path: tuple[str, ...]) -> bool:
    """Return whether a path that ``sequence_by`` names begins with a member of the envelope."""
    return path == (OFFSET,) or path[0].lower() in (*ENVELOPE, "source")


def _members(field: str) -> Iterator[tuple[bool, int, str]]:
    """Return which members of an envelope an added field may be.

    :return: whether its name says in which object the member is, the object (as in :class:`_Fields`), and the
        member
    """
    if field in ENVELOPE or field == "deleted":
        yield False, 0, field
    if field in order.SOURCE_FIELDS:
        yield False, 1, field
    for place, prefix in ((1, "source_"), (2, "transaction_")):
        if field.startswith(prefix):
            yield True, place, field.removeprefix(prefix)


def _lowered(code: Any) -> str:
    """Return a short text in lower case, without blanks around it."""
    return (code if type(code) is str else shown(code))[:100].strip().lower()


def _moment(source: Mapping[str, Any]) -> int | None:
    """Return the commit time of the change, from the finest clock that the event has (us, ns, ms)."""
    millis = source.get("ts_ms")
    if (
        type(millis) is int
        and 0 <= millis <= _LAST_MILLIS
        and "ts_us" not in source
        and "ts_ns" not in source
    ):
        return millis * 1_000
    for unit in _UNITS:
        value = source.get(f"ts_{unit}")
        if value is not None:
            found = epoch_micros(value, unit)
            if found is not None:
                return found
    return None


def _key(key: Any) -> tuple[dict[str, Any] | None, Any]:
    """Return the key of the message as an object, and its schema; None without one."""
    if isinstance(key, bytes):
        key = key_value(key)
    if not isinstance(key, dict):
        return None, None
    schema, payload = key.get("schema"), key.get("payload")
    if schema is not None and payload is not None and len(key) == 2:
        return (payload, schema) if isinstance(payload, dict) else (None, None)
    return key, None


def _is_of_connector(message: Mapping[str, Any]) -> bool:
    """Return whether a message is about the connector itself, and has nothing of a table."""
    names = message.keys()
    if names == _HEARTBEAT:
        return True
    if {"source", "databaseName", "ddl"} <= names and names - _CLOCKS <= _SCHEMA_CHANGE:
        return isinstance(message["source"], dict)
    return names - _HEARTBEAT == _TRANSACTION and message["status"] in ("BEGIN", "END")
