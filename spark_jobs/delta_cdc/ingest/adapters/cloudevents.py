"""Unpack Debezium's change events: from a payload with its schema, or from a CloudEvent.

A CloudEvent has all in its value, or its attributes in headers.
``iodebeziumop`` is the operation, and other attributes ``iodebezium…`` are the members of ``source`` and
``transaction``. Names of attributes have only letters and digits (``commit_scn`` is ``iodebeziumcommitscn``),
and their values may be texts. ``data`` has the images of the row, or the row itself if the connector unwraps
the events; both with or without a schema.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.adapters.common import NO_OBJECT
from delta_cdc.ingest.adapters.debezium_order import SOURCE_FIELDS
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.json import value as json_value

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.ingest.record import Record

_PREFIX, _HEADER = "iodebezium", "ce_"
_OP, _VERSION = f"{_PREFIX}op", "specversion"
_OP_HEADER, _VERSION_HEADER = f"{_HEADER}{_OP}", f"{_HEADER}{_VERSION}"
#: The members of ``transaction``, by the ends of their attributes.
_TRANSACTION = {"txtotalorder": "total_order", "txdatacollectionorder": "data_collection_order"}
_SOURCE = {name.replace("_", "").lower(): name for name in SOURCE_FIELDS}
_NO_DATA = Invalid(
    "the data of a CloudEvent is no JSON object: have it sent as JSON (data.serializer.type of the converter)"
)


#: A change event: the envelope as Debezium writes it otherwise, its schema or that of ``data``, and whether
#: ``data`` is the row itself. Without CloudEvent, the value of the message, its schema, and None.
Unpacked = tuple[dict[str, Any], Any, bool | None]


def unpacked(record: Record) -> Unpacked | Invalid | None:
    """Return the change event that a message contains, or why it has none; None without a value."""
    message, schema = record.value, record.schema
    if type(message) is dict and is_wrapped(message):
        schema, message = message.get("schema"), message["payload"]
    if message is None:
        return None
    if type(message) is not dict:
        return NO_OBJECT
    if "op" not in message or record.headers:
        found = unpack_cloud_event(message, record.headers, schema)
        if found is not None:
            return found
    return message, schema, None


def unpack_cloud_event(
    message: dict[str, Any], headers: Mapping[str, bytes], schema: Any = None
) -> Unpacked | Invalid | None:
    """Return the change event that a CloudEvent contains, or why it has none.

    :param message: the value of a message that is no envelope itself
    :param schema: its schema
    :return: None if the message is no CloudEvent of Debezium
    """
    attributes: Iterable[tuple[str, Any]]
    if _OP in message and _VERSION in message:
        attributes, data, schema = message.items(), message.get("data"), None
    elif _OP_HEADER in headers and _VERSION_HEADER in headers:
        attributes = (
            (name.removeprefix(_HEADER), header_value(raw))
            for name, raw in headers.items()
            if name.startswith(_HEADER)
        )
        data = message
    else:
        return None
    if type(data) is dict and is_wrapped(data):
        schema, data = data.get("schema"), data["payload"]
    if type(data) is not dict:
        return _NO_DATA
    envelope, code = _described(attributes)
    if "before" in data or "after" in data:
        return {**data, **envelope}, schema, False
    image = "before" if code == "d" else "after"
    return {**envelope, image: data}, schema, True


def is_wrapped(message: Mapping[str, Any]) -> bool:
    """Return whether a message is a payload and its schema, as Kafka Connect writes them."""
    return "payload" in message and (len(message) == 1 or (len(message) == 2 and "schema" in message))


def _described(attributes: Iterable[tuple[str, Any]]) -> tuple[dict[str, Any], Any]:
    """Return what the attributes say about an event, and its operation."""
    source: dict[str, Any] = {}
    transaction: dict[str, Any] = {}
    code = None
    for name, value in attributes:
        if not name.startswith(_PREFIX) or value is None:
            continue
        rest = name[len(_PREFIX) :]
        if rest == "op":
            code = value
        elif rest in _TRANSACTION:
            transaction[_TRANSACTION[rest]] = value
        else:
            source[_SOURCE.get(rest, rest)] = value
    return {"op": code, "source": source, "transaction": transaction or None}, code


def header_value(raw: Any) -> Any:
    """Return the value of a header: text, or JSON with or without a schema."""
    if not isinstance(raw, bytes):
        return raw
    if raw[:1] in _MAY_BE_JSON:
        value = json_value(raw)
        if type(value) is dict and is_wrapped(value):
            value = value["payload"]
        if not isinstance(value, Invalid):
            return value
    return raw.decode("utf-8", "replace")


_MAY_BE_JSON = tuple(bytes([mark]) for mark in b'{["-0123456789tfn')
