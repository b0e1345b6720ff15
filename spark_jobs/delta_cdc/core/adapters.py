"""The options of the bundled adapters, and the checks on them that need no Spark.

An adapter converts change records of a vendor's format into events of the change log
(:mod:`delta_cdc.ingest.adapters`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import invalid

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delta_cdc.core.errors import InvalidConfiguration


@dataclass(frozen=True)
class Setting:
    """One option.

    :param kind: the type of its value: a key of :data:`KINDS`
    :param default: its value if the user gives no value
    :param choices: the allowed values, or the allowed values of a mapping's entries; () allows any
    """

    kind: str
    default: Any = None
    choices: tuple[str, ...] = ()


def _texts(value: Any) -> tuple[str, ...]:
    items = (value,) if isinstance(value, str) else tuple(value)
    if not items or not all(isinstance(item, str) and item.strip() for item in items):
        raise TypeError
    return items


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise TypeError
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _mapping(value: Any) -> dict[str, str]:
    mapping = _by_value(value)
    if not all(mapping):
        raise TypeError
    return mapping


def _by_value(value: Any) -> dict[str, str]:
    """Return a mapping whose keys are values of records, which may be empty."""
    mapping = dict(value)
    if not mapping or not all(isinstance(text, str) for pair in mapping.items() for text in pair):
        raise TypeError
    if not all(mapping.values()):
        raise TypeError
    return mapping


#: Types of options: the wording for errors, and the function that converts a value.
KINDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("a text", _text),
    "texts": ("a text, or a list of texts", _texts),
    "flag": ("true or false", _flag),
    "mapping": ("a mapping of texts to texts", _mapping),
    "by_value": ("a mapping of texts to texts", _by_value),
}


def checked(adapter: str, options: Mapping[str, Any], known: Mapping[str, Setting]) -> dict[str, Any]:
    """Return all options of an adapter, with defaults.

    :raises InvalidConfiguration: an option is unknown (the nearest name is given), or has a wrong value
    """
    for name in options:
        if name not in known:
            raise unknown(f"adapter_options of {adapter!r} has {name!r}", name, known, "an option")
    return {
        # The job repeats the planner's check, and JSON turns tuples into lists.
        name: setting.default
        if options.get(name) is None or options[name] in (setting.default, [])
        else _value(adapter, name, options[name], setting)
        for name, setting in known.items()
    }


def _value(adapter: str, name: str, value: Any, setting: Setting) -> Any:
    expects, make = KINDS[setting.kind]
    try:
        converted = make(value)
    except (TypeError, ValueError) as error:
        raise invalid(
            f"{name} of the adapter {adapter!r} is {value!r}", f"{name} is {expects}, and not empty."
        ) from error
    if setting.choices:
        for text in _chosen(converted):
            if text not in setting.choices:
                raise unknown(
                    f"{name} of the adapter {adapter!r} is {text!r}", text, setting.choices, "a value"
                )
    return converted


def _chosen(converted: Any) -> Iterable[str]:
    if isinstance(converted, dict):
        return converted.values()
    return (converted,) if isinstance(converted, str) else tuple(converted)


def unknown(what: str, name: str, known: Iterable[str], of: str) -> InvalidConfiguration:
    """Build the error for an unknown name."""
    names = sorted(known)
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}? It" if near else "it"
    return invalid(f"{what}, which is not {of}", f"{hint} is one of {', '.join(names)}.")


def required(adapter: str, name: str, why: str) -> InvalidConfiguration:
    """Build the error for an option that is missing."""
    return invalid(
        f"adapter_options of {adapter!r} has no {name!r}", f"{why[0].lower()}{why[1:]}: give {name}."
    )


# -- the bundled adapters -------------------------------------------------------------------------
#: What an event is; an ``ignore`` is counted, not stored.
UPSERT, DELETE, TRUNCATE, IGNORE = "upsert", "delete", "truncate", "ignore"
KINDS_OF_EVENTS = (UPSERT, DELETE, TRUNCATE, IGNORE)
#: GoldenGate's update of a key: a delete of the old key and an upsert of the new one.
KEY_CHANGE = "key_change"
#: Debezium's connectors whose order of events is known.
CONNECTORS = ("mariadb", "mongodb", "mysql", "oracle", "postgresql", "sqlserver")
#: The connectors' ``time.precision.mode`` -> unit of a timestamp; None if it depends on the column.
TIME_UNITS: dict[str, str | None] = {
    "adaptive": None,
    "adaptive_time_microseconds": None,
    "connect": "ms",
    "isostring": None,
    "microseconds": "us",
    "nanoseconds": "ns",
}
#: Their ``binary.handling.mode``, and how bytes are written under it.
BYTES = {"bytes": "base64", "base64": "base64", "base64-url-safe": "base64url", "hex": "hex"}
#: What to do with a message without a value: skip it, or delete the row that its key names.
TOMBSTONES = Setting("text", IGNORE, choices=(IGNORE, DELETE))
#: A member of a record (``metadata.commit-timestamp``), or ``_offset`` or ``_row``.
_MEMBER = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*(?:\.[A-Za-z_][A-Za-z0-9_-]*)*")
#: Names for the offset of a message, and for the row number of a record in its file, in ``sequence_by``.
OFFSET, ROW = "_offset", "_row"
#: The options of each adapter.
SETTINGS: dict[str, dict[str, Setting]] = {
    "plain": {
        "operation_column": Setting("text"),
        "operations": Setting("by_value", choices=KINDS_OF_EVENTS),
        "sequence_by": Setting("texts"),
        "source_timestamp": Setting("text"),
        "except_column_list": Setting("texts", ()),
        "columns_to_update": Setting("text"),
        "old_keys": Setting("mapping"),
        "tombstones": TOMBSTONES,
    },
    "debezium": {
        "unwrapped": Setting("flag", False),
        "connector": Setting("text"),
        "sequence_by": Setting("texts"),
        "snapshot_reads": Setting("text", "first", choices=("first", "in_order")),
        "table": Setting("text"),
        "except_column_list": Setting("texts", ()),
        "field_prefix": Setting("text", "__"),
        "unavailable_value_placeholder": Setting("text", "__debezium_unavailable_value"),
        "decimal_handling_mode": Setting("text", choices=("precise", "double", "string")),
        "time_precision_mode": Setting("text", choices=tuple(TIME_UNITS)),
        "time_units": Setting("mapping", choices=("days", "ms", "us", "ns")),
        "binary_handling_mode": Setting("text", "bytes", choices=tuple(BYTES)),
        # Its default depends on ``unwrapped``.
        "tombstones": replace(TOMBSTONES, default=None),
    },
    "mongodb": {
        "document": Setting("text"),
        "sequence_by": Setting("texts"),
        "table": Setting("text"),
        "except_column_list": Setting("texts", ()),
        "tombstones": TOMBSTONES,
    },
    "dms": {
        "operation_column": Setting("text", "Op"),
        "change_sequence": Setting("text"),
        "timestamp_column": Setting("text"),
        "envelope": Setting("flag", False),
        "sequence_by": Setting("texts"),
        "table": Setting("text"),
        "before_image_prefix": Setting("text"),
        "except_column_list": Setting("texts", ()),
        "tombstones": TOMBSTONES,
    },
    "goldengate": {
        "model": Setting("text", "operation", choices=("operation", "row")),
        "operations": Setting("by_value", choices=(*KINDS_OF_EVENTS, KEY_CHANGE)),
        "table": Setting("text"),
        "sequence_column": Setting("text", "pos"),
        "except_column_list": Setting("texts", ()),
    },
    "maxwell": {
        "sequence_by": Setting("texts"),
        "table": Setting("text"),
        "except_column_list": Setting("texts", ()),
        "tombstones": TOMBSTONES,
    },
    "canal": {
        "sequence_by": Setting("texts"),
        "table": Setting("text"),
        "except_column_list": Setting("texts", ()),
        "tombstones": TOMBSTONES,
    },
}
BUNDLED = tuple(SETTINGS)
#: Options of formats whose default is what the adapter's program writes by default: by adapter and format.
#: DMS writes the text NULL without quotes (its setting CsvNullValue).
FORMAT_DEFAULTS: dict[tuple[str, str], dict[str, str]] = {("dms", "csv"): {"nullValue": "NULL"}}
#: The formats of the adapters whose records have an envelope with the operation. Maxwell and Canal write no
#: Avro.
_FORMATS_OF_MESSAGES = {
    "dms": ("json", "avro"),
    "maxwell": ("json",),
    "canal": ("json",),
    "mongodb": ("json", "avro"),
}


def check(
    name: str,
    options: Mapping[str, Any],
    *,
    keys: Sequence[str],
    format: str,  # noqa: A002
    insert_only: bool = False,
) -> dict[str, Any]:
    """Return the options of a bundled adapter with their defaults.

    :raises InvalidConfiguration: names the option, and the nearest valid one
    """
    if name not in SETTINGS:
        raise unknown(f"adapter is {name!r}", name, BUNDLED, "the name")
    adapter_options = checked(name, options, SETTINGS[name])
    if name == "plain":
        _check_plain(adapter_options, keys, insert_only)
    elif name == "debezium":
        _check_debezium(adapter_options, format)
    elif name in _FORMATS_OF_MESSAGES:
        _check_messages(name, adapter_options, format)
    elif name == "goldengate" and format != "json" and adapter_options["model"] == "operation":
        if options.get("model") is not None:
            raise invalid(
                f"model is 'operation' and format is {format!r}",
                "records with an image before and after are JSON: set model to 'row', or format to 'json'.",
            )
        adapter_options["model"] = "row"
    return adapter_options


def _check_plain(options: Mapping[str, Any], keys: Sequence[str], insert_only: bool) -> None:
    if options["sequence_by"] is None and not insert_only:
        explanation = "The adapter cannot know what orders the records of a key"
        raise required("plain", "sequence_by", explanation)
    if options["operations"] and options["operation_column"] is None:
        raise required("plain", "operation_column", "Operations map the values of a column")
    for key in options["old_keys"] or ():
        if key.lower() not in {name.lower() for name in keys}:
            raise unknown(f"old_keys of the adapter 'plain' has {key!r}", key, keys, "a key")
    if options["old_keys"] and insert_only:
        raise invalid("old_keys and insert_only are both given", "leave one of them out.")


def placeholder_bytes(text: str) -> bytes:
    """Return the bytes of Debezium's ``unavailable.value.placeholder``.

    :raises ValueError: ``hex:`` does not precede hexadecimal digits
    """
    return bytes.fromhex(text[4:]) if text.startswith("hex:") else text.encode("utf-8", "replace")


def _check_debezium(options: dict[str, Any], file_format: str) -> None:
    if options["tombstones"] is None:
        # The default of the transformation that unwraps makes a message without a value of each delete.
        options["tombstones"] = DELETE if options["unwrapped"] else IGNORE
    if file_format not in ("json", "avro"):
        raise invalid(
            f"adapter is 'debezium' and format is {file_format!r}",
            "change events are JSON: set format to 'json', or use the adapter 'plain'.",
        )
    placeholder = options["unavailable_value_placeholder"]
    try:
        placeholder_bytes(placeholder)
    except ValueError:
        raise invalid(
            f"unavailable_value_placeholder of the adapter 'debezium' is {placeholder!r}",
            "after hex:, write pairs of hexadecimal digits, as the connector's setting has them.",
        ) from None
    connector = options["connector"]
    if options["sequence_by"] is not None:
        return
    if connector is None and options["unwrapped"]:
        explanation = "Unwrapped events do not name their connector, so their order is unknown"
        raise required("debezium", "connector", explanation)
    if connector is not None and connector not in CONNECTORS:
        explanation = f"The order of events of the connector {connector!r} is unknown"
        raise required("debezium", "sequence_by", f"{explanation} (known: {', '.join(CONNECTORS)})")


def _check_messages(name: str, options: Mapping[str, Any], file_format: str) -> None:
    """Check the options of :data:`_FORMATS_OF_MESSAGES`."""
    if file_format not in _FORMATS_OF_MESSAGES[name] and (name != "dms" or options["envelope"]):
        raise invalid(
            f"adapter is {name!r} and format is {file_format!r}",
            "these messages are JSON: set format to 'json', or use the adapter 'plain'.",
        )
    for text in options["sequence_by"] or ():
        if _MEMBER.fullmatch(text) is None:
            raise invalid(
                f"sequence_by of the adapter {name!r} has {text!r}",
                "name members of the messages, such as metadata.timestamp, or _offset or _row.",
            )
    if name != "dms":
        return
    sequence = options["change_sequence"]
    if sequence and options["timestamp_column"] == sequence:
        raise invalid(
            f"change_sequence and timestamp_column are both {sequence!r}",
            "name the column of AR_H_CHANGE_SEQ, and the column of the commit's time.",
        )
    if sequence and options["sequence_by"]:
        raise invalid("change_sequence and sequence_by are both given", "leave one of them out.")


#: The options that choose the values that order events.
_ORDERING = ("sequence_by", "change_sequence", "timestamp_column", "sequence_column", "envelope")


def order_of(name: str, options: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what orders the events of an adapter: its name, and options; None if only its function knows.

    :param options: checked options, also those that a seal records
    """
    if name not in SETTINGS:
        return None
    known = {one: setting for one, setting in SETTINGS[name].items() if one in _ORDERING}
    return {"adapter": name, **{one: options.get(one, setting.default) for one, setting in known.items()}}


def orders_by_offset(name: str, options: Mapping[str, Any]) -> bool:
    """Return whether an adapter orders messages by their offset before anything else; false if unknown.

    :param options: checked options
    """
    if name not in SETTINGS:
        return False
    texts = options.get("sequence_by")
    if texts:
        return str(texts[0]).lower() == OFFSET
    return name == "canal" or (
        name == "dms" and not (options.get("change_sequence") or options.get("timestamp_column"))
    )
