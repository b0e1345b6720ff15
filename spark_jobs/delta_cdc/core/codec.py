"""Read and write JSON of frozen dataclasses, by their type hints alone.

A class needs no additional code. Its fields may be texts, numbers, ``bool``, ``None``, ``Literal``,
``dict[str, …]``, ``tuple[…]``, other dataclasses, ``Any`` (plain JSON) and unions of these. In a union of
several dataclasses, the field with a different ``Literal`` in each of them identifies the class of a JSON
object.

Reading is strict: each unknown field, missing field (without a default) and wrong type is an
:class:`UnreadableJson` that names the path of the field. A field with the metadata :data:`UNWRITTEN` is
neither written nor read; it takes its default.

:func:`parsed` reads any other JSON. Both packages read JSON here only (``make lint``), because a text of
another writer may be of any size and depth.

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

import json
import json.decoder
import json.scanner
import re
import sys
import types
from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

_T = TypeVar("_T")
#: Reads one JSON value; the second argument is the value's path, for errors.
_Reader = Callable[[Any, str], Any]

#: The most bytes of a text. Python's parser reads this many bytes of long strings within 100 ms; meanwhile
#: no other thread runs. Delta's own parser (Jackson) reads strings up to 20,000,000 characters.
MOST_BYTES = 16 * 1024 * 1024
#: A larger text of another writer is parsed in a thread, where other threads run between its values.
LARGE_TEXT = 256 * 1024
#: The most levels of lists and objects: code that walks a value may use several frames per level.
MOST_DEPTH = 256
#: The integers that JSON of Delta, Spark and Airflow can mean.
INTEGERS = range(-(2**63), 2**63)

#: Characters of the pieces of a long string: the first is short, because most strings are.
_FIRST_PIECE, _LARGEST_PIECE = 1024, 64 * 1024
#: Ends where no escape, and no pair of escapes, can continue.
_BOUNDARY = re.compile(r'[^\\][^\\"0-9a-fA-Fu\x00-\x1f]')

_KEY, _OUTSIDE = "unwritten", "outside_identity"
#: Metadata of a field that stays in this process, such as credentials.
UNWRITTEN = {_KEY: True}
#: Metadata of a field that says nothing about which work a value describes (:func:`identity`).
OUTSIDE_IDENTITY = {_OUTSIDE: True}


class UnreadableJson(ValueError):
    """A JSON text does not match the expected type; the message names the path of the field."""


class TooDeep(UnreadableJson):
    """A JSON text has more levels than :data:`MOST_DEPTH`."""

    def __init__(self) -> None:
        super().__init__(f"not JSON that can be read: it has more than {MOST_DEPTH} levels")


def dumps(value: Any) -> str:
    """Return the JSON text of a value: deterministic (sorted keys, no spaces)."""
    return _ENCODER.encode(encoded(value))


def loads(type_: type[_T], text: str) -> _T:
    """Read a value of a type from the JSON text that :func:`dumps` returned in another process.

    :param type_: a dataclass, or any type that a field may have
    :raises UnreadableJson: the text is not JSON, or not of this type
    """
    # Specs and results are of any length: a spec names each file of a batch.
    return decoded(type_, parsed(text, most_bytes=sys.maxsize))


def parsed(
    text: str | bytes,
    *,
    most_bytes: int = MOST_BYTES,
    patient: bool = False,
    nan_is_none: bool = False,
) -> Any:
    """Return the value of a JSON text, whoever wrote it.

    If an object has a name twice, the last value counts. A lone surrogate becomes ``?``, as in Spark.

    :param text: bytes are UTF-8
    :param most_bytes: a longer text is refused
    :param patient: let other threads run between two values; slower for a text of many values
    :param nan_is_none: read NaN and infinities as None, not with ``patient``
    :raises TooDeep: it has more than :data:`MOST_DEPTH` levels
    :raises UnreadableJson: it is not JSON, or longer than the limit, or has NaN, an infinity or an integer of
        thousands of digits
    """
    if len(text) > most_bytes:
        raise UnreadableJson(f"it has {len(text)} bytes, more than the limit of {most_bytes}")
    decoder = _PATIENT if patient else _LENIENT if nan_is_none else _DECODER
    try:
        # From bytes, json would guess the encoding.
        decoded_text = (text.decode() if isinstance(text, bytes) else text).strip(" \t\r\n")
        data, end = decoder.raw_decode(decoded_text)
        if end < len(decoded_text):
            # Raises the error; for a text that is whole, this takes longer.
            decoder.decode(decoded_text)
    except RecursionError:
        raise TooDeep from None
    except ValueError as error:
        raise UnreadableJson(f"not JSON: {error}") from error
    if len(decoded_text) > 2 * MOST_DEPTH and _is_deep(decoded_text, data):
        raise TooDeep
    # Bytes that are UTF-8 have surrogates only as escapes.
    if "\\u" in decoded_text or (isinstance(text, str) and not text.isascii()):
        return _cleaned(data) if patient else _without_surrogates(data)
    return data


def _is_deep(text: str, data: Any) -> bool:
    """Return whether a value has too many levels. Only a text with many brackets is walked."""
    if text.count("{") + text.count("[") <= MOST_DEPTH:
        return False
    level = [data]
    for _ in range(MOST_DEPTH):
        containers = [item for item in level if isinstance(item, dict | list)]
        level = [item for one in containers for item in (one.values() if isinstance(one, dict) else one)]
    return any(isinstance(item, dict | list) for item in level)


def _without_surrogates(data: Any) -> Any:
    text = json.dumps(data, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.loads(text.encode(errors="replace"))
    return data


def _cleaned(data: Any) -> Any:
    """Do as :func:`_without_surrogates`, value by value."""
    if isinstance(data, str):
        return data.encode(errors="replace").decode()
    if isinstance(data, list):
        return [_cleaned(item) for item in data]
    if isinstance(data, dict):
        return {_cleaned(name): _cleaned(item) for name, item in data.items()}
    return data


_scanned: Callable[[str, int, bool], tuple[str, int]] = json.decoder.scanstring  # type: ignore[attr-defined]


def _long_string(text: str, begin: int, strict: bool = True) -> tuple[str, int]:
    """Do as ``json.decoder.scanstring``, but read a long string in pieces.

    The parser in C keeps other threads waiting up to the end of a string. It reads plain characters fast, but
    not the escapes of a text of JSON inside of a string.
    """
    near = text.find('"', begin, begin + _FIRST_PIECE)
    if near == begin or (near > 0 and text[near - 1] != "\\") or len(text) - begin <= _FIRST_PIECE:
        return _scanned(text, begin, strict)
    pieces: list[str] = []
    at, size = begin, _FIRST_PIECE
    while (boundary := _BOUNDARY.search(text, at + size)) is not None:
        piece = text[at : boundary.end()]
        try:
            value, end = _scanned(f'{piece}"', 0, strict)
        except json.JSONDecodeError as error:
            raise json.JSONDecodeError(error.msg, text, at + error.pos) from None
        pieces.append(value)
        if end <= len(piece):
            return "".join(pieces), at + end
        at, size = boundary.end(), min(2 * size, _LARGEST_PIECE)
    value, end = _scanned(text, at, strict)
    return "".join((*pieces, value)), end


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# One decoder for all texts: json.loads with a custom hook would build one for each.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)
#: The same, but NaN and infinities are None.
_LENIENT = json.JSONDecoder(parse_constant=lambda name: None)
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"))


def _number(kind: Callable[[str], Any]) -> Callable[[str], Any]:
    """Refuse digits of other scripts, which the scanner in Python accepts."""

    def parsed(text: str) -> Any:
        if not text.isascii():
            raise ValueError(f"{text[:20]} is no JSON number")
        return kind(text)

    return parsed


_PATIENT = json.JSONDecoder(
    parse_constant=_no_constant,
    parse_int=_number(int),
    parse_float=_number(float),
    # dict(pairs) would be one call in C.
    object_pairs_hook=lambda pairs: {name: value for name, value in pairs},  # noqa: C416
)
_PATIENT.parse_string = _long_string  # type: ignore[attr-defined]
# The scanner in Python, instead of the one in C that keeps all other threads waiting.
_PATIENT.scan_once = json.scanner.py_make_scanner(_PATIENT)  # type: ignore[attr-defined]


#: Most values are one of these, and a look at the fields of a dataclass costs more than one at the type.
_SCALARS = (str, int, float)
_PLAIN = frozenset({*_SCALARS, bool, type(None)})


def identity(value: Any) -> str:
    """Return the JSON text of a value without the fields that are :data:`OUTSIDE_IDENTITY`."""
    return _ENCODER.encode(encoded(value, whole=False))


def encoded(value: Any, *, whole: bool = True) -> Any:
    """Return a value as plain JSON values.

    :param whole: with the fields that are :data:`OUTSIDE_IDENTITY`
    """
    kind = type(value)
    if kind in _PLAIN or isinstance(value, _SCALARS):
        return value
    if is_dataclass(kind):
        named = ((name, getattr(value, name)) for name in _written_names(cast("Any", kind), whole=whole))
        # A call for each field that is plain would cost more than all else.
        return {name: item if type(item) in _PLAIN else encoded(item, whole=whole) for name, item in named}
    if isinstance(value, tuple | list):
        return [item if type(item) in _PLAIN else encoded(item, whole=whole) for item in value]
    if isinstance(value, dict):
        return {
            key: item if type(item) in _PLAIN else encoded(item, whole=whole) for key, item in value.items()
        }
    return value


def decoded(type_: type[_T], data: Any) -> _T:
    """Read a value of a type from plain JSON values.

    :raises UnreadableJson: they are not of this type
    """
    value: _T = _reader(cast("Any", type_))(data, "")
    return value


@cache
def _written_fields(type_: type) -> tuple[Field[Any], ...]:
    return tuple(field for field in fields(type_) if not field.metadata.get(_KEY))


@cache
def _written_names(type_: type, *, whole: bool) -> tuple[str, ...]:
    fields_ = _written_fields(type_)
    return tuple(field.name for field in fields_ if whole or not field.metadata.get(_OUTSIDE))


@cache
def _reader(type_: Any) -> _Reader:
    origin, args = get_origin(type_), get_args(type_)
    if type_ is Any:
        return lambda data, _: data
    if origin is Literal:
        return _one_of(args)
    if origin in (Union, types.UnionType):
        return _union(args)
    if origin is tuple:
        return _tuple(args)
    if origin is dict:
        return _dict(args[1])
    if isinstance(type_, type) and is_dataclass(type_):
        return _dataclass(type_)
    if type_ in (str, int, float, bool, type(None)):
        return _scalar(type_)
    raise TypeError(f"{type_!r} cannot be read from JSON")


def _error(path: str, problem: str) -> UnreadableJson:
    return UnreadableJson(f"{path.lstrip('.') or 'the value'} {problem}")


def _type_error(path: str, expected: str, data: Any) -> UnreadableJson:
    shown = repr(data)
    return _error(path, f"is {shown if len(shown) <= 60 else f'{shown[:57]}...'}, not {expected}")


def _scalar(type_: type) -> _Reader:
    def read(data: Any, path: str) -> Any:
        if not _fits(type_, data):
            raise _type_error(path, "null" if type_ is type(None) else type_.__name__, data)
        if type(data) is int and data not in INTEGERS:
            raise _type_error(path, "an integer of 64 bits", data)
        if type(data) is float and not isfinite(data):
            raise _type_error(path, "a finite number", data)
        return float(data) if type_ is float else data

    return read


def _one_of(values: tuple[Any, ...]) -> _Reader:
    def read(data: Any, path: str) -> Any:
        for value in values:
            if type(data) is type(value) and data == value:
                return value
        raise _type_error(path, f"one of {', '.join(map(repr, values))}", data)

    return read


def _tuple(args: tuple[Any, ...]) -> _Reader:
    repeated = len(args) == 2 and args[1] is ...

    def read(data: Any, path: str) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise _type_error(path, "a list", data)
        kinds = (args[0],) * len(data) if repeated else args
        if len(data) != len(kinds):
            raise _type_error(path, f"a list of {len(kinds)}", data)
        if repeated:
            read_item = _reader(args[0])
            return tuple([read_item(item, f"{path}[{index}]") for index, item in enumerate(data)])
        items = enumerate(zip(kinds, data, strict=True))
        return tuple(_reader(kind)(item, f"{path}[{index}]") for index, (kind, item) in items)

    return read


def _dict(item_type: Any) -> _Reader:
    def read(data: Any, path: str) -> dict[str, Any]:
        if not isinstance(data, dict):
            raise _type_error(path, "an object", data)
        read_item = _reader(item_type)
        return {key: read_item(item, f"{path}.{key}") for key, item in data.items()}

    return read


def _dataclass(type_: type) -> _Reader:
    # Resolve the hints at the first value, because a class may hold values of its own type.
    hints = cache(lambda: get_type_hints(type_))
    readers = cache(lambda: {name: _reader(hints()[name]) for name in by_name})
    by_name = {field.name: field for field in _written_fields(type_)}
    required = {
        name
        for name, definition in by_name.items()
        if definition.default is MISSING and definition.default_factory is MISSING
    }

    def read(data: Any, path: str) -> Any:
        if not isinstance(data, dict):
            raise _type_error(path, f"a {type_.__name__}", data)
        for names, problem in ((data.keys() - by_name, "unknown"), (required - data.keys(), "missing")):
            if names:
                raise _error(f"{path}.{min(names)}", f"is {problem} ({type_.__name__})")
        by_field = readers()
        return type_(**{name: by_field[name](item, f"{path}.{name}") for name, item in data.items()})

    return read


def _union(args: tuple[Any, ...]) -> _Reader:
    classes: tuple[Any, ...] = tuple(arg for arg in args if is_dataclass(arg))

    def read(data: Any, path: str) -> Any:
        for arg in args:
            if arg not in classes and _fits(arg, data):
                return _reader(arg)(data, path)
        if not classes or not isinstance(data, dict):
            raise _type_error(path, " or ".join(getattr(arg, "__name__", str(arg)) for arg in args), data)
        if len(classes) == 1:
            return _reader(classes[0])(data, path)
        name, by_value = _tags(classes)
        if name not in data:
            raise _error(f"{path}.{name}", "is missing")
        value = data[name]
        if not isinstance(value, str) or value not in by_value:
            raise _type_error(f"{path}.{name}", f"one of {', '.join(sorted(by_value))}", value)
        return _reader(by_value[value])(data, path)

    return read


def _fits(type_: Any, data: Any) -> bool:
    """Return whether a JSON value has the form of a non-dataclass type; its parts are not checked."""
    origin = get_origin(type_)
    if origin is Literal:
        return isinstance(data, str | int | None) and data in get_args(type_)
    if origin in (tuple, dict):
        return isinstance(data, list if origin is tuple else dict)
    return type_ is Any or type(data) is type_ or (type_ is float and type(data) is int)


@cache
def _tags(classes: tuple[Any, ...]) -> tuple[str, dict[Any, Any]]:
    """Return the field that distinguishes dataclasses, and the class for each of its values."""
    hints = [get_type_hints(class_) for class_ in classes]
    for name in hints[0]:
        if all(get_origin(hint.get(name)) is Literal for hint in hints):
            values = [
                (value, class_)
                for class_, hint in zip(classes, hints, strict=True)
                for value in get_args(hint[name])
            ]
            if len(dict(values)) == len(values):
                return name, dict(values)
    raise TypeError(f"no field distinguishes {', '.join(class_.__name__ for class_ in classes)}")
