"""Read change events of Debezium's connector for MongoDB: documents as texts of extended JSON.

``after`` is the whole document, or NULL. Then ``updateDescription`` says what changed: the event carries the
columns that it names, and columns of removed fields become NULL. Paths into a field (``address.city``) change
a part of a column, which no event can say.

A document is one text column (the option ``document``), or its fields are the columns that ``schema`` has.
The key is ``_id``, from the document or from the key of the message. The order is the position in the replica
set's log (:mod:`.debezium_order`), or what ``sequence_by`` names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import DELETE, IGNORE, TRUNCATE, UPSERT
from delta_cdc.core.errors import invalid
from delta_cdc.ingest.adapters import debezium_order as order
from delta_cdc.ingest.adapters.cloudevents import unpacked
from delta_cdc.ingest.adapters.common import NO_DELETE, Enveloped, ignored, in_texts
from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.records.json import key_value
from delta_cdc.ingest.records.json import value as json_value
from delta_cdc.ingest.types import STRING
from delta_cdc.ingest.values import Encoding, aimed, epoch_micros, plain

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from delta_cdc.core.errors import InvalidConfiguration
    from delta_cdc.ingest.record import Record, Sequencer
    from delta_cdc.ingest.types import Type

ID = "_id"
_EXTENDED = Encoding(STRING, "extended")
_WAY_OUT = "set capture.mode to change_streams_update_full in the connector"
_NO_DOCUMENT = Invalid("no value for after, nor for updateDescription")
_PARTIAL = Invalid(
    f"an update without the whole document, and the document is one column: {_WAY_OUT}; if it is set, the "
    "document was deleted before MongoDB could look it up, and its delete follows: give up on the record"
)
_NO_ID = Invalid("the document and the key of the message have no _id")
_NO_KEY = Invalid("a delete without before and without a key of the message")


class Mongodb(Enveloped):
    """Reads change events of MongoDB.

    :param options: checked options
    :param typed: the columns that ``schema`` types, in lower case. Without these and without ``document``, no
        document can be read, and :attr:`problem` says why
    """

    def __init__(self, options: Mapping[str, Any], *, typed: Collection[str] = ()) -> None:
        super().__init__(options, (ID,), order.OPERATIONS)
        self._document: str | None = options["document"]
        #: Why no document can be read.
        self.problem: InvalidConfiguration | None = None
        if self._document is None and not typed:
            self.problem = invalid(
                "adapter_options of 'mongodb' has no 'document', and there is no schema",
                "name a column for the whole document, or give its fields as columns in schema.",
            )
        self._deletes = options["tombstones"] == DELETE
        #: How values are written where the first batch decides on the types: both columns are texts.
        self._own = None if self._document is None else {ID: _EXTENDED, self._document: plain(STRING)}
        #: NULL for all columns: a whole document has no value for each field that it lacks.
        self._blank: dict[str, Any] = {}

    def encodings(self, types: Mapping[str, Type]) -> Mapping[str, Any]:
        """Return how values of columns are written: as extended JSON, the document as it is."""
        found = {name: aimed(_EXTENDED, kind) for name, kind in types.items()}
        if self._document is not None and self._document in found:
            found[self._document] = plain(types[self._document])
        return found

    def sequence(self, types: Mapping[str, Type], log_type: Type | None) -> Sequencer:
        """Return how sequences become values: they are texts."""
        self._blank = {} if self._document is not None else dict.fromkeys(types)
        return in_texts()

    # -- events -----------------------------------------------------------------------------------
    def events(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a message."""
        found = unpacked(record)
        if found is None:
            return self._read_nothing(record)
        return found if isinstance(found, Invalid) else self._read_envelope(record, found[0])

    def _read_envelope(self, record: Record, message: dict[str, Any]) -> Sequence[Event] | Invalid:
        source, code = message.get("source"), message.get("op")
        if type(source) is not dict:
            source = {}
        if self._is_table is not None and not self._is_table(*order.table_of(source)):
            return ignored()
        op = order.NO_OPERATION if code is None else self._operation(code)
        if isinstance(op, Invalid):
            return op
        if op == IGNORE:
            return ignored()
        if self.problem is not None and op != TRUNCATE:
            return Invalid(str(self.problem))
        place = self._place(record, message, source)
        if isinstance(place, Invalid):
            return place
        row: dict[str, Any] | Invalid = {}
        if op == DELETE:
            row = self._read_delete(record, message)
        elif op == UPSERT:
            row = self._read_upsert(record, message)
        if isinstance(row, Invalid):
            return row
        return (Event(op, row, place, epoch_micros(source.get("ts_ms"), "ms"), encodings=self._own),)

    def _place(self, record: Record, message: dict[str, Any], source: Mapping[str, Any]) -> str | Invalid:
        """Return the sequence of an event, or why it has none."""
        if self._has_order:
            record.value = message
            return self._order.text(record)
        return order.place("mongodb", message["op"], source, False, message.get("transaction"))

    # -- rows -------------------------------------------------------------------------------------
    def _read_upsert(self, record: Record, message: Mapping[str, Any]) -> dict[str, Any] | Invalid:
        """Return the columns that an event carries."""
        text = message.get("after")
        if text is None:
            return self._read_update(record, message.get("updateDescription"))
        document = _add_id(_document(text, "after"), record.key)
        if isinstance(document, Invalid):
            return document
        if self._document is None:
            return {**self._blank, **document}
        return {ID: document[ID], self._document: text}

    def _read_update(self, record: Record, change: Any) -> dict[str, Any] | Invalid:
        """Return the columns of an update without the document."""
        if change is None:
            return _NO_DOCUMENT
        if self._document is not None:
            return _PARTIAL
        if type(change) is not dict:
            return Invalid("updateDescription is no object")
        key = _id_of(record.key)
        if isinstance(key, Invalid):
            return key
        updated, removed = change.get("updatedFields"), change.get("removedFields")
        row = _document({} if updated is None else updated, "updatedFields")
        if isinstance(row, Invalid):
            return row
        if removed is not None and (
            type(removed) is not list or not all(type(name) is str for name in removed)
        ):
            return Invalid("removedFields is no list of names")
        if change.get("truncatedArrays"):
            return Invalid(f"an update that shortens a list, without the list itself: {_WAY_OUT}")
        row = {**row, **dict.fromkeys(removed or ()), ID: key}
        inner = next((name for name in row if "." in name), None)
        if inner is not None:
            return Invalid(f"an update of a part of a field ({inner[:100]}), without the field: {_WAY_OUT}")
        return row

    def _read_delete(self, record: Record, message: Mapping[str, Any]) -> dict[str, Any] | Invalid:
        """Return the key of a deleted document, and what else is known of it."""
        text = message.get("before")
        if text is None:
            key = _id_of(record.key)
            return _NO_KEY if key is _NO_ID else key if isinstance(key, Invalid) else {ID: key}
        document = _add_id(_document(text, "before"), record.key)
        if isinstance(document, Invalid) or self._document is None:
            return document
        return {ID: document[ID]}

    # -- messages without a value -------------------------------------------------------------------
    def _read_nothing(self, record: Record) -> Sequence[Event] | Invalid:
        """Return the events of a message without a value. Records of files are blank lines."""
        if not self._deletes or record.position.offset is None:
            return ignored()
        if not self._order.is_offset:
            return NO_DELETE
        key = _id_of(record.key)
        if isinstance(key, Invalid):
            return key
        return (Event(DELETE, {ID: key}, self._order.text(record), encodings=self._own),)


def _id_of(key: Any) -> Any:
    """Return the id that the key of a message has as JSON text, or why it has none."""
    if isinstance(key, bytes):
        key = key_value(key)
    if type(key) is dict and "payload" in key and len(key) == 2 and "schema" in key:
        key = key["payload"]
    if type(key) is not dict or key.get("id") is None:
        return _NO_ID
    text = key["id"]
    return json_value(_utf8(text)) if type(text) is str else text


def _add_id(document: dict[str, Any] | Invalid, key: Any) -> dict[str, Any] | Invalid:
    """Return a document with its id, which the key of the message has if the document does not."""
    if isinstance(document, Invalid) or ID in document:
        return document
    own = _id_of(key)
    return own if isinstance(own, Invalid) else {**document, ID: own}


def _document(text: Any, name: str) -> dict[str, Any] | Invalid:
    """Return the fields of a document.

    :param text: its JSON
    :param name: the member of the event, for the reason
    """
    found = json_value(_utf8(text)) if type(text) is str else text
    if type(found) is dict:
        return found
    return Invalid(f"{name} is no document" + (f": {found.reason}" if isinstance(found, Invalid) else ""))


def _utf8(text: str) -> bytes:
    # Half of a surrogate pair becomes bytes that are not UTF-8, which the reader refuses.
    return text.encode("utf-8", "surrogatepass")
