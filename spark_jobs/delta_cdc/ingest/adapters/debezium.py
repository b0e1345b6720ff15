"""Read Debezium's change events in JSON: with envelope, or unwrapped (``ExtractNewRecordState``).

The order is the position in the database's log that the connector reports, never a clock
(:mod:`.debezium_order`). The schema in a message defines the encoding of values (:mod:`.debezium_types`).
Without such a schema, the option ``schema`` and the connector's own options define it; the adapter options
must repeat the connector's options.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.adapters import debezium_order as order
from delta_cdc.ingest.adapters.common import (
    NO_OBJECT,
    Described,
    Keys,
    Tombstones,
    ignored,
    in_texts,
    inside,
    key_change,
    offset_text,
    operations,
    path_of,
    shown,
)
from delta_cdc.ingest.adapters.debezium_types import Placeholders, bare_encoding, row_encodings
from delta_cdc.ingest.adapters.plain import of_texts
from delta_cdc.ingest.record import DELETE, IGNORE, TRUNCATE, UPSERT, Event, Invalid
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.types import STRING, struct
from delta_cdc.ingest.values import epoch_micros

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.ingest.record import Record, Sequencer
    from delta_cdc.ingest.types import Type
    from delta_cdc.ingest.values import Encoding

OPERATIONS = {"c": UPSERT, "r": UPSERT, "u": UPSERT, "d": DELETE, "t": TRUNCATE, "m": IGNORE}
#: The members of the envelope that order or describe an event, besides ``source``.
ENVELOPE = ("op", "ts_ms", "ts_us", "ts_ns", "transaction")
NOT_WHOLE = Invalid("a key change without the whole row")
_LACKING = Invalid("no value for sequence_by")
#: Operations of changes that have no row.
_WITHOUT_ROW = (IGNORE, TRUNCATE)
_UNITS = ("us", "ns", "ms")
_MOST_SCHEMAS = 1_000


class _Change(NamedTuple):
    """A change event.

    :param message: the envelope, or what is known of it
    :param code: its operation, as the connector writes it
    :param encodings: how its schema says that values are written
    """

    record: Record
    message: Mapping[str, Any]
    source: Mapping[str, Any]
    code: Any
    encodings: Mapping[str, Encoding] | None


class Debezium(Described):
    """Reads change events of Debezium.

    :param options: checked options
    :param keys: the key columns
    """

    def __init__(self, options: Mapping[str, Any], *, keys: Sequence[str]) -> None:
        super().__init__()
        #: Why messages without schema cannot be read.
        self.problem: InvalidConfiguration | None = None
        self._options = options
        self._unwrapped: bool = options["unwrapped"]
        self._prefix: str = options["field_prefix"]
        self._connector: str | None = options["connector"]
        self._table: str | None = options["table"].lower() if options["table"] is not None else None
        self._in_order = options["snapshot_reads"] == "in_order"
        self._keys = Keys(keys)
        self._operation = operations(OPERATIONS, {})
        self._placeholders = Placeholders(options["unavailable_value_placeholder"])
        texts = tuple(options["sequence_by"] or ())
        self._texts = texts
        paths = [path_of(text) for text in texts]
        self.expressions = texts if any(path is None for path in paths) else ()
        self._paths = [path for path in paths if path is not None] if not self.expressions else []
        is_offset = texts == ("_offset",)
        self._tombstones = Tombstones(
            options.get("tombstones"), keys, (lambda record: offset_text(record)) if is_offset else None
        )
        #: The envelope of the last event, and its source.
        self._envelope: tuple[Mapping[str, Any], Mapping[str, Any]] = {}, {}
        #: Schemas by identity; each is kept, so that its identity stays its own.
        self._schemas: dict[int, tuple[Any, dict[str, Encoding] | Invalid]] = {}

    def describes(self, name: str) -> bool:
        """Return whether a column describes the event: those that ``add.fields`` adds to unwrapped events."""
        return self._unwrapped and name.startswith(self._prefix)

    def encodings(self, types: Mapping[str, Type]) -> Mapping[str, Any]:
        """Return how values of messages without schema are written.

        If an option is missing on which it depends, such messages are invalid, and :attr:`problem` says why.
        """
        found = {}
        for name, kind in types.items():
            try:
                found[name] = bare_encoding(name, kind, self._options)
            except InvalidConfiguration as error:
                self.problem = self.problem or error
        return found

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values."""
        self._keys.learn(types)
        if not self._texts or self.expressions:
            return in_texts()
        return of_texts(self._texts, log_type, _LACKING)

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
        found = self._events(record)
        if self.expressions and not isinstance(found, Invalid):
            message, source = self._envelope
            others = {name: message.get(name) for name in ENVELOPE}
            others["source"] = {name: source.get(name) for name in order.SOURCE_FIELDS}
            for event in found:
                event.others = others
        return found

    def _events(self, record: Record) -> Sequence[Event] | Invalid:
        message = record.value
        if message is None:
            return self._tombstones.events(record)
        if type(message) is not dict:
            return NO_OBJECT
        encodings: Mapping[str, Encoding] | None = None
        if "payload" in message and len(message) <= 2 and ("schema" in message or len(message) == 1):
            schema, message = message.get("schema"), message["payload"]
            if message is None:
                return self._tombstones.events(record)
            if type(message) is not dict:
                return Invalid("the payload of the message is no object")
            if schema is not None:
                by_schema = self._encodings_of(schema)
                if isinstance(by_schema, Invalid):
                    return by_schema
                encodings = by_schema or None
        events = self._of_flat if self._unwrapped else self._of_images
        found = events(record, message, encodings)
        if encodings is not None or self.problem is None or isinstance(found, Invalid):
            return found
        has_row = any(event.op in (UPSERT, DELETE) for event in found)
        return Invalid(self.problem.message) if has_row else found

    def _encodings_of(self, schema: Any) -> Any:
        known = self._schemas.get(id(schema))
        if known is None:
            if len(self._schemas) >= _MOST_SCHEMAS:
                self._schemas.clear()
            known = self._schemas[id(schema)] = (schema, row_encodings(schema, self._options))
        return known[1]

    def _of_images(
        self, record: Record, message: dict[str, Any], encodings: Mapping[str, Encoding] | None
    ) -> Sequence[Event] | Invalid:
        """Return the events of an envelope. A changed key yields two."""
        code, source = message.get("op"), message.get("source")
        change = _Change(record, message, source if type(source) is dict else {}, code, encodings)
        if code is None and self._is_ours(change):
            return Invalid("no value for op: no change event")
        op = self._operation(code) if code is not None else IGNORE
        if op in _WITHOUT_ROW or isinstance(op, Invalid) or not self._is_ours(change):
            return self._without_row(change, op)
        before, after = message.get("before"), message.get("after")
        for image in (before, after):
            if image is not None and type(image) is not dict:
                return Invalid("before or after is no object")
        if op == DELETE and before is None:
            # A delete has the image of the old row. Without this image, use the key of the message.
            before = _key_payload(record.key)
        # The image before is never the new row.
        row = before if op == DELETE else after
        if row is None:
            return Invalid("no value for after, or of a delete for before or a key")
        if op == UPSERT and before is not None and self._keys.differ(before, row):
            return self._with_old_key(change, before, row)
        return self._of_row(change, op, row)

    def _is_ours(self, change: _Change) -> bool:
        return self._table is None or order.is_table(change.source, self._table)

    def _without_row(self, change: _Change, op: str | Invalid) -> Sequence[Event] | Invalid:
        """Return the events of a change without a row, or of another table."""
        if not self._is_ours(change):
            return ignored()
        if isinstance(op, Invalid):
            return op
        if op == IGNORE:
            return ignored()
        place = self._place(change, 1)
        return place if isinstance(place, Invalid) else (Event(op, {}, place, _moment(change.source)),)

    def _of_row(self, change: _Change, op: str, row: dict[str, Any]) -> Sequence[Event] | Invalid:
        """Return the event of a row, without the columns whose values are unavailable."""
        place = self._place(change, 1)
        if isinstance(place, Invalid):
            return place
        is_placeholder, texts = self._placeholders, self._placeholders.texts
        missing = [
            name
            for name, value in row.items()
            if (type(value) is str and (value in texts or value[:1] in ("[", "{")) and is_placeholder(value))
            or (type(value) in (list, dict) and is_placeholder(value))
        ]
        for name in missing:
            del row[name]
        return (Event(op, row, place, _moment(change.source), encodings=change.encodings),)

    def _with_old_key(
        self, change: _Change, before: dict[str, Any], after: dict[str, Any]
    ) -> Sequence[Event] | Invalid:
        """Return a delete of the old key, and an upsert of the whole new row."""
        is_placeholder = self._placeholders
        old = {name: value for name, value in before.items() if not is_placeholder(value)}
        for name in [name for name, value in after.items() if is_placeholder(value)]:
            # The value did not change, so the image before has it, if any has.
            if name not in old:
                return NOT_WHOLE
            after[name] = old[name]
        first, place = self._place(change, 0), self._place(change, 1)
        if isinstance(place, Invalid):
            return place
        delete, upsert = key_change(old, after, (first, place), _moment(change.source), change.encodings)
        # An envelope has every column that the table had.
        upsert.whole = False
        return [delete, upsert]

    def _of_flat(
        self, record: Record, row: dict[str, Any], encodings: Mapping[str, Encoding] | None
    ) -> Sequence[Event] | Invalid:
        """Return the event of a row with the fields that the connector's option ``add.fields`` added."""
        prefix = self._prefix
        fields = {name: row.pop(name) for name in [name for name in row if name.startswith(prefix)]}
        for name, value in _header_fields(record.headers, prefix).items():
            fields.setdefault(name, value)
        meta = {name: fields.get(prefix + name) for name in ENVELOPE}
        source = {
            name: value
            for name in order.SOURCE_FIELDS
            if (value := fields.get(f"{prefix}source_{name}", fields.get(prefix + name))) is not None
        }
        if self._connector is not None:
            source["connector"] = self._connector
        change = _Change(record, {**meta, "source": source}, source, meta["op"], encodings)
        op = self._flat_operation(meta["op"], fields.get(f"{prefix}deleted"))
        if op in _WITHOUT_ROW or isinstance(op, Invalid) or not self._is_ours(change):
            return self._without_row(change, op)
        return self._of_row(change, op, row)

    def _flat_operation(self, code: Any, deleted: Any) -> str | Invalid:
        text = shown(deleted).lower()
        if text == "true":
            return DELETE
        if code is not None:
            return self._operation(code)
        if text == "false":
            return UPSERT
        if deleted is not None:
            return self._operation(None)
        prefix = self._prefix
        return Invalid(f"no value for {prefix}op or {prefix}deleted, so deletes cannot be recognized")

    # -- order ------------------------------------------------------------------------------------
    def _place(self, change: _Change, index: int) -> Any:
        """Return the sequence of an event, or why it has none."""
        if self.expressions:
            self._envelope = change.message, change.source
            return None
        if self._paths:
            offset = change.record.position.offset
            parts = [offset if path == ("_offset",) else inside(change.message, path) for path in self._paths]
            return _LACKING if None in parts else tuple(parts)
        source = change.source
        connector = self._connector if self._connector is not None else source.get("connector")
        found = order.place(connector, shown(change.code).strip().lower(), source, self._in_order)
        return found if isinstance(found, Invalid) else f"{found}/{index}"


def _moment(source: Mapping[str, Any]) -> int | None:
    """Return the commit time of the change, from the finest clock that the event has (us, ns, ms)."""
    for unit in _UNITS:
        value = source.get(f"ts_{unit}")
        if value is not None:
            found = epoch_micros(value, unit)
            if found is not None:
                return found
    return None


def _key_payload(key: Any) -> Any:
    """Return the key of the message as an object, without its schema; None without one."""
    if isinstance(key, bytes):
        key = json_value(key)
    if isinstance(key, Invalid) or not isinstance(key, dict):
        return None
    payload = key.get("payload")
    if "schema" in key and payload is not None and len(key) == 2:
        return payload if isinstance(payload, dict) else None
    return key


def _header_fields(headers: Mapping[str, bytes], prefix: str) -> dict[str, Any]:
    """Return the fields that ``add.headers`` put into headers: JSON with or without schema, or texts."""
    found: dict[str, Any] = {}
    for name, raw in headers.items():
        if not name.startswith(prefix) or not isinstance(raw, bytes):
            continue
        value = json_value(raw)
        if isinstance(value, Invalid):
            value = raw.decode("utf-8", "replace")
        elif isinstance(value, dict) and "payload" in value:
            value = value["payload"]
        found[name] = value
    return found
