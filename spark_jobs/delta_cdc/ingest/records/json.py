"""Strict JSON (RFC 8259): a text is whole and of one meaning, or an :class:`Invalid` with the reason.

Python's own scanner reads the texts. The hooks refuse what it would accept beyond the RFC (NaN, a name
twice), and keep the text of each number that is not a whole number of at most 19 digits. A text that is too
long or too deep is refused before it is read.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NamedTuple, cast

from delta_cdc.core.codec import MOST_BYTES
from delta_cdc.ingest.record import Invalid, Number

#: The most levels of objects and lists. Python's scanner uses one level of its own stack for each.
MOST_DEPTH = 500
NOT_JSON = "not JSON: not exactly one whole object"
NOT_UTF8 = "not UTF-8"
HALF_CHARACTER = "a text has only half of a surrogate pair (\\ud800 to \\udfff)"
_ENDS = "not JSON: it ends inside of a value"
_AFTER_OBJECT = "not JSON: text after the object"
#: The file may have several objects in a line.
SEVERAL = "not JSON: an object after the object"
TOO_DEEP = f"not JSON that can be read: it has more than {MOST_DEPTH} levels"

_Scan = Callable[[str, int], tuple[Any, int]]

_BLANKS = " \t\r\n"
_BOM = b"\xef\xbb\xbf"
#: A string, also one without end. It always matches at a quote, so that a search is linear.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+["\\]?'
_STRINGS = re.compile(_STRING, re.DOTALL)
_PARTS = re.compile(rf"{_STRING}|[][{{}},]", re.DOTALL)
_BLANK = re.compile(r"[ \t\r\n]*+")
#: Two escapes that together are one character. An escaped backslash does not begin an escape.
_PAIRED = re.compile(r"\\(?:\\|u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})")
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
#: Brackets as steps of depth: signed bytes.
_STEPS = bytes({0x5B: 1, 0x7B: 1, 0x5D: 255, 0x7D: 255}.get(byte, 0) for byte in range(256))
_NO_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
#: Kafka Connect's message: the schema, then the payload.
_SCHEMA = re.compile(r'\{[ \t\r\n]*+"schema"[ \t\r\n]*+:[ \t\r\n]*+')
_PAYLOAD = re.compile(r'[ \t\r\n]*+,[ \t\r\n]*+"payload"')
_SCHEMA_FIRST, _PAYLOAD_NAME = b'{"schema"', b'"payload"'
#: Schemas of Connect that a decoder remembers: their number, and the bytes of all of them.
_MOST_SCHEMAS, _MOST_SCHEMA_BYTES = 200, 32 * 1024 * 1024


class _NotStrict(ValueError):
    """A text that Python's scanner would accept although it is not JSON, or has two meanings."""


# -- the scanner --------------------------------------------------------------------------------
def _whole(text: str) -> int | Number:
    if len(text) < 20 or (len(text) == 20 and text[0] == "-"):
        return int(text)
    return Number(text)


def _twice(members: list[tuple[str, Any]]) -> str:
    """Return the reason for a name that is twice in an object."""
    seen: set[str] = set()
    name = next(name for name, _ in members if name in seen or seen.add(name))  # type: ignore[func-returns-value]
    return f"not strict JSON: the name {name[:100]} twice in an object"


def _unique(members: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(members)
    if len(found) != len(members):
        raise _NotStrict(_twice(members))
    return found


def _constant(name: str) -> Any:
    raise _NotStrict(f"not strict JSON: {name} is no number")


def _scanner(unique: Callable[[list[tuple[str, Any]]], Any], constant: Callable[[str], Any]) -> _Scan:
    decoder = json.JSONDecoder(
        object_pairs_hook=unique, parse_float=Number, parse_int=_whole, parse_constant=constant
    )
    return cast("_Scan", decoder.scan_once)  # type: ignore[attr-defined]


_SCAN = _scanner(_unique, _constant)


def _is_deep(raw: bytes, most: int) -> bool:
    """Return whether a text opens more than ``most`` levels, by its brackets outside of strings."""
    if len(raw) <= most or len(raw) - len(raw.translate(None, b"{[")) <= most:
        return False
    # Latin-1 keeps each byte, so that the text need not be UTF-8.
    brackets = _STRINGS.sub("", raw.decode("latin-1")).encode("latin-1").translate(_STEPS, _NO_BRACKETS)
    return max(accumulate(memoryview(brackets).cast("b")), default=0) > most


def _has_half(text: str) -> bool:
    """Return whether an escape is only half of a character."""
    return (
        "\\" in text and _HALF.search(text) is not None and _HALF.search(_PAIRED.sub(" ", text)) is not None
    )


def _reason(text: str, error: ValueError | StopIteration, start: int = 0) -> str:
    """Return why Python's scanner refused a text that begins at ``start``."""
    if isinstance(error, _NotStrict):
        return str(error)
    if not text:
        return NOT_JSON
    if text[0] == "\ufeff":
        return "not JSON: it begins with a byte order mark"
    message, at = "", len(text)
    if isinstance(error, json.JSONDecodeError):
        message, at = error.msg, error.pos
    elif isinstance(error, StopIteration):
        at = error.value
    if message.startswith("Invalid control character"):
        return "not strict JSON: a control character in a text"
    if at >= len(text) or message.startswith("Unterminated string"):
        return _ENDS
    if text[at] == "'":
        return "not strict JSON: single quotes"
    return f"not JSON: {text[at]!r} at character {at - start + 1}"


def _after(text: str, end: int) -> str:
    """Return why a text is not one object, which ends before other text."""
    at = _after_blanks(text, end)
    return SEVERAL if text[at] == "{" else _AFTER_OBJECT


def _too_long(raw: bytes, most_bytes: int) -> Invalid:
    return Invalid(f"it has {len(raw)} bytes, more than the limit of {most_bytes}")


def _read(raw: bytes, most_bytes: int) -> tuple[str, Any] | Invalid:
    """Return the text of a JSON value, without blanks around it, and the value."""
    if len(raw) > most_bytes:
        return _too_long(raw, most_bytes)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        return Invalid(NOT_UTF8)
    if text[:1] != "{":
        text = text.lstrip(_BLANKS)
    flaw = HALF_CHARACTER if _has_half(text) else TOO_DEEP if _is_deep(raw, MOST_DEPTH) else ""
    if flaw:
        return Invalid(flaw)
    try:
        found, end = _SCAN(text, 0)
    except (StopIteration, ValueError) as error:
        return Invalid(_reason(text, error))
    if end != len(text):
        text = text.rstrip(_BLANKS)
        if end < len(text):
            return Invalid(_after(text, end) if type(found) is dict else "not JSON: text after the value")
    return text, found


# -- records ------------------------------------------------------------------------------------
class Decoder:
    """Decodes records that are one JSON object each. One decoder serves the records of one task.

    It remembers the schemas of Kafka Connect's messages (``{"schema": {…}, "payload": …}``) as bytes, and
    then reads the payloads only. Messages with the same bytes of a schema share one object ``schema``, which
    must not be changed.

    :param most_bytes: a longer record is refused
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._schemas: dict[bytes, dict[str, Any]] = {}
        self._last: bytes = b""
        self._last_schema: dict[str, Any] = {}
        self._size = 0

    def __call__(self, raw: bytes) -> dict[str, Any] | Invalid:
        """Return the members of the object."""
        may_have_schema = raw.startswith(_SCHEMA_FIRST)
        if may_have_schema and self._schemas and len(raw) <= self._most_bytes:
            message = self._read_with_known_schema(raw)
            if message is not None:
                return message
        found = _read(raw, self._most_bytes)
        if isinstance(found, Invalid):
            return found
        text, value_ = found
        if type(value_) is not dict:
            return Invalid(NOT_JSON)
        if may_have_schema:
            self._learn(text, value_)
        return value_

    def _read_with_known_schema(self, raw: bytes) -> dict[str, Any] | None:
        """Return a message whose schema is known; None if all of it must be read."""
        if raw.startswith(self._last):
            prefix, schema = self._last, self._last_schema
        else:
            prefix = raw[: raw.find(_PAYLOAD_NAME) + len(_PAYLOAD_NAME)]
            found = self._schemas.get(prefix)
            if found is None:
                return None
            schema = found
            self._last, self._last_schema = prefix, schema
        rest = raw[len(prefix) :]
        if _is_deep(rest, MOST_DEPTH - 1):
            return None
        try:
            text = rest.decode()
            if text[:1] != ":" or _has_half(text):
                return None
            payload, end = _SCAN(text, 2 if text[1:2] == " " else 1)
        except (StopIteration, ValueError):
            return None
        if text[end:].strip(_BLANKS) != "}":
            return None
        return {"schema": schema, "payload": payload}

    def _learn(self, text: str, message: dict[str, Any]) -> None:
        """Remember the bytes of a message up to the name of its payload."""
        if type(message["schema"]) is not dict:
            return
        begin = _SCHEMA.match(text)
        if begin is None:
            return
        _, end = _SCAN(text, begin.end())
        after = _PAYLOAD.match(text, end)
        if after is None:
            return
        prefix = text[: after.end()].encode()
        if len(self._schemas) >= _MOST_SCHEMAS or self._size + len(prefix) > _MOST_SCHEMA_BYTES:
            self._schemas.clear()
            self._size = 0
        self._schemas[prefix] = message["schema"]
        self._size += len(prefix)
        self._last, self._last_schema = prefix, message["schema"]


def value(raw: bytes, most_bytes: int = MOST_BYTES) -> Any:
    """Return the value of a JSON text, of any kind, or an :class:`Invalid`."""
    found = _read(raw, most_bytes)
    return found if isinstance(found, Invalid) else found[1]


# -- files that are read as a whole ----------------------------------------------------------------
class _Tolerant:
    """A scanner that notes a name twice or a NaN, and reads on: the structure of the text is whole."""

    def __init__(self) -> None:
        self.flaw = ""
        self.scan = _scanner(self._object, self._constant)

    def _object(self, members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        if len(found) != len(members):
            self.flaw = self.flaw or _twice(members)
        return found

    def _constant(self, name: str) -> None:
        self.flaw = self.flaw or f"not strict JSON: {name} is no number"


class _Step(NamedTuple):
    """What follows an element.

    :param is_whole: the element ends as it must
    :param at: where the next element begins, or the rest of the text
    :param reason: why the rest is no element; "" without a rest; None before a next element
    """

    is_whole: bool
    at: int
    reason: str | None = None


def _in_array(text: str, at: int, end: int) -> _Step:
    """Return what follows an element of an array: a comma, or the end of the array."""
    mark = _after_blanks(text, end)
    after = text[mark : mark + 1]
    if after == ",":
        return _Step(True, _after_blanks(text, mark + 1))
    if after == "]":
        return _Step(True, mark + 1, _after_array(text, mark + 1))
    return _Step(False, at, f"not JSON: {after!r} at character {mark - at + 1}" if after else _ENDS)


def _in_sequence(text: str, at: int, end: int) -> _Step:
    """Return what follows an object that is not in an array: the next object."""
    mark = _after_blanks(text, end)
    after = text[mark : mark + 1]
    return _Step(True, mark, None if after == "{" else _AFTER_OBJECT if after else "")


def _after_array(text: str, end: int) -> str:
    return "not JSON: text after the array" if end < len(text) else ""


def of_file(raw: bytes, most_bytes: int = MOST_BYTES) -> list[tuple[bytes, Any]]:
    """Return the values of a file, each with its bytes; a blank file has none.

    A file has one JSON array of values, or objects one after the other, with or without blanks and line
    breaks between them. An element that is whole, but not strict JSON, is an :class:`Invalid` alone. Where
    the text is damaged, all of it from that element on is one Invalid. A file that is one other value is one
    element. A byte order mark at the start of the file is skipped.

    :param most_bytes: a longer element is invalid; the file may be longer
    """
    raw = raw.removeprefix(_BOM).strip(_BLANKS.encode())
    if not raw.startswith((b"[", b"{")):
        return [(raw, value(raw, most_bytes))] if raw else []
    tail = b""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        text, tail = raw[: error.start].decode(), raw[error.start :]
    found, at, reason = _elements(raw, text, most_bytes)
    rest = text[at:].encode() + tail
    if tail and reason in ("", _ENDS):
        reason = NOT_UTF8
    return [*found, (rest, Invalid(reason))] if reason else found


def _elements(raw: bytes, text: str, most_bytes: int) -> tuple[list[tuple[bytes, Any]], int, str]:
    """Return the elements, where the rest begins, and why it is no element; "" without a rest."""
    found: list[tuple[bytes, Any]] = []
    tolerant = _Tolerant()
    follow, around = (_in_array, 1) if text[0] == "[" else (_in_sequence, 0)
    deep = _start_of_deep(text, around) if _is_deep(raw, MOST_DEPTH + around) else len(text)
    has_escapes = "\\" in text
    at = _after_blanks(text, around)
    if around and text[at : at + 1] == "]":
        return found, at + 1, _after_array(text, at + 1)
    while at < deep:
        try:
            element, end = tolerant.scan(text, at)
        except (StopIteration, ValueError) as error:
            return found, at, _reason(text, error, at)
        flaw, tolerant.flaw = tolerant.flaw, ""
        step = follow(text, at, end)
        if step.is_whole:
            part = text[at:end]
            if has_escapes and _has_half(part):
                flaw = HALF_CHARACTER
            found.append(_element(part.encode(), element, flaw, most_bytes))
        if step.reason is not None:
            return found, step.at, step.reason
        at = step.at
    return found, at, TOO_DEEP if deep < len(text) else _ENDS


def _element(data: bytes, element: Any, flaw: str, most_bytes: int) -> tuple[bytes, Any]:
    if len(data) > most_bytes:
        return data, _too_long(data, most_bytes)
    return data, Invalid(flaw) if flaw else element


def _after_blanks(text: str, at: int) -> int:
    match = _BLANK.match(text, at)
    assert match is not None
    return match.end()


def _start_of_deep(text: str, around: int) -> int:
    """Return where the first element begins that has too many levels.

    :param around: the levels around each element: that of the array, or none
    """
    depth, begin = 0, around
    for part in _PARTS.finditer(text):
        mark = part[0]
        if mark in ("[", "{"):
            if depth == around == 0:
                begin = part.start()
            depth += 1
            if depth > MOST_DEPTH + around:
                break
        elif mark in ("]", "}"):
            depth -= 1
        elif mark == "," and depth == around == 1:
            begin = part.end()
    return begin


# -- schema registries --------------------------------------------------------------------------
def without_prefix(raw: bytes) -> bytes:
    """Return a message without the registry's prefix: a zero byte, and an id of 4 or 8 bytes.

    No JSON text begins with a zero byte. Confluent's registry has ids of 4 bytes, from 1 on; Apicurio's of 8.
    """
    if raw[:1] != b"\0":
        return raw
    if raw[1:5] == b"\0\0\0\0":
        return raw[9:]
    return raw[5:]


def key_value(raw: bytes) -> Any:
    """Return the value of the JSON text that a message key is, with or without the registry's prefix.

    Four or eight bytes may be a number of Kafka's serializers, which would look like a prefix and a text.
    """
    return value(raw if len(raw) in (4, 8) else without_prefix(raw))
