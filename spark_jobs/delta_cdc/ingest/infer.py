"""Find the types of columns: from their values, or from the types that several records or files give.

A :class:`Seen` is what a part of the batch shows of a column. Each partition observes its records; the driver
merges what they found, in any order.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import TYPE_CHECKING, Any

from delta_cdc.ingest import types
from delta_cdc.ingest.record import Number
from delta_cdc.ingest.types import (
    BINARY,
    BITS,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    LONG,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    VOID,
    Type,
)
from delta_cdc.ingest.values import MISFIT, converter, plain

if TYPE_CHECKING:
    from collections.abc import Mapping

# -- kinds of values ----------------------------------------------------------------------------
_WHOLE, _FRACTION, _TEXT, _OBJECT, _LIST = "whole", "fraction", "text", "object", "list"
#: Kinds of which all values have one type.
_OF_KIND: dict[str, Type] = {
    _TEXT: STRING,
    "boolean": BOOLEAN,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
    "timestamp_ntz": TIMESTAMP_NTZ,
}
_KINDS: dict[type, str] = {str: _TEXT, bool: "boolean", bytes: "binary", date: "date"}
#: Deeper objects and lists are text, and so are objects with more members: these are maps.
_MOST_LEVELS, _MOST_MEMBERS = 50, 2_000
#: Digits before and after the point of a number; more are not counted.
_MOST_DIGITS = 10_000
#: The least whole numbers with one digit more than their place.
_POWERS = [10**digits for digits in range(40)]
#: A double restores every decimal with this number of digits. The opposite is ``_DOUBLE_DIGITS`` (17) in
#: :mod:`delta_cdc.ingest.values`: with so many digits, a text restores every double.
_EXACT_DIGITS = 15
#: The type for fractions that DOUBLE does not hold.
_EXACT = types.decimal(38, 18)
_FITS_DOUBLE = converter(plain(DOUBLE))


@dataclass(slots=True)
class Seen:
    """What was observed of the values of a column, or of a part of it.

    :param kinds: ``whole``, ``fraction``, ``text``, ``object``, ``list``, ``boolean``, ``binary``, ``date``,
        ``timestamp``, ``timestamp_ntz``
    :param digits: most digits of a whole number
    :param long: all whole numbers fit 64 bits
    :param before: most digits of a fraction before the point
    :param after: most digits of a fraction after the point
    :param exponent: a number has an exponent, or comes from a floating point number
    :param double: all fractions are doubles, each alone
    :param members: what was seen of the members of objects
    :param wide: the objects have more members than a struct should have
    :param respelt: members differ in case only, or have no name
    :param elements: what was seen of the elements of lists
    :param lowered: the names of members in lower case
    """

    kinds: set[str] = field(default_factory=set)
    digits: int = 0
    long: bool = True
    before: int = 0
    after: int = 0
    exponent: bool = False
    double: bool = True
    members: dict[str, Seen] = field(default_factory=dict)
    wide: bool = False
    respelt: bool = False
    elements: Seen | None = None
    lowered: set[str] = field(default_factory=set, repr=False)

    def merged(self, other: Seen) -> Seen:
        """Return what both show."""
        if self.elements is not None and other.elements is not None:
            elements: Seen | None = self.elements.merged(other.elements)
        else:
            elements = self.elements or other.elements
        found = Seen(
            self.kinds | other.kinds,
            max(self.digits, other.digits),
            self.long and other.long,
            max(self.before, other.before),
            max(self.after, other.after),
            self.exponent or other.exponent,
            self.double and other.double,
            wide=self.wide or other.wide,
            elements=elements,
        )
        for name in (*self.members, *other.members):
            if name not in found.members:
                own, others = self.members.get(name), other.members.get(name)
                found.add(name, own.merged(others) if own and others else own or others or Seen())
        return found

    def add(self, name: str, seen: Seen) -> None:
        """Add a member that was not seen before."""
        if self.wide:
            return
        self.members[name] = seen
        lower = name.lower()
        if not name or lower in self.lowered:
            self.respelt = True
        self.lowered.add(lower)
        if len(self.members) > _MOST_MEMBERS:
            self.wide, self.respelt = True, False
            self.members.clear()
            self.lowered.clear()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON of it, without what is usual."""
        found: dict[str, Any] = {"kinds": sorted(self.kinds)}
        for name in _PLAIN:
            value = getattr(self, name)
            if value != _USUAL[name]:
                found[name] = value
        if self.members:
            found["members"] = {name: seen.to_json() for name, seen in self.members.items()}
        if self.elements is not None:
            found["elements"] = self.elements.to_json()
        return found

    @staticmethod
    def of_json(value: Mapping[str, Any]) -> Seen:
        """Return what :meth:`to_json` wrote, once it is parsed."""
        found = Seen(set(value["kinds"]), **{name: value[name] for name in _PLAIN if name in value})
        for name, seen in value.get("members", {}).items():
            found.add(name, Seen.of_json(seen))
        if "elements" in value:
            found.elements = Seen.of_json(value["elements"])
        return found


_PLAIN = ("digits", "long", "before", "after", "exponent", "double", "wide", "respelt")
_USUAL = {name: getattr(Seen(), name) for name in _PLAIN}


# -- observing ----------------------------------------------------------------------------------
def observe(seen: Seen, value: Any, level: int = 0) -> None:
    """Add a decoded value to what was seen.

    :param level: objects and lists around the value
    """
    if value is None:
        return
    kind = type(value)
    known = _KINDS.get(kind)
    if known is not None:
        seen.kinds.add(known)
    elif kind is int:
        _observe_whole(seen, value)
    elif kind is Number:
        _observe_number(seen, value)
    elif isinstance(value, dict | list | tuple):
        if level >= _MOST_LEVELS:
            seen.kinds.add(_TEXT)
        elif isinstance(value, dict):
            _observe_members(seen, value, level + 1)
        else:
            seen.kinds.add(_LIST)
            if seen.elements is None:
                seen.elements = Seen()
            for element in value:
                observe(seen.elements, element, level + 1)
    else:
        _observe_scalar(seen, value)


def _observe_members(seen: Seen, value: Mapping[Any, Any], level: int) -> None:
    seen.kinds.add(_OBJECT)
    members = seen.members
    for name, member in value.items():
        if seen.wide:
            return
        below = members.get(name)
        if below is None:
            below = Seen()
            seen.add(str(name), below)
        observe(below, member, level)


def _observe_scalar(seen: Seen, value: Any) -> None:
    if isinstance(value, int):
        _observe_whole(seen, value)
    elif isinstance(value, float):
        seen.exponent = True
        if isfinite(value):
            _observe_fraction(seen, Number(repr(float(value))))
        else:
            seen.kinds.add(_FRACTION)
            seen.before = _MOST_DIGITS
    elif isinstance(value, Decimal) and value.is_finite():
        _observe_number(seen, Number(value))
    elif isinstance(value, datetime):
        seen.kinds.add("timestamp_ntz" if value.tzinfo is None else "timestamp")
    else:
        seen.kinds.add(_TEXT)


def _observe_whole(seen: Seen, value: int) -> None:
    seen.kinds.add(_WHOLE)
    if not -(2**63) <= value < 2**63:
        seen.long = False
    size = abs(value)
    if size >= _POWERS[min(seen.digits, 39)]:
        seen.digits = max(seen.digits, 39 if size >= _POWERS[38] else len(str(size)))


def _observe_number(seen: Seen, text: Number) -> None:
    whole, point, places = text.removeprefix("-").partition(".")
    if not point and whole.isdigit():
        seen.kinds.add(_WHOLE)
        count = len(whole.lstrip("0"))
        seen.digits = max(seen.digits, min(count, _MOST_DIGITS))
        if count > 18 and (count > 19 or not -(2**63) <= int(text) < 2**63):
            seen.long = False
    elif point and places.isdigit() and whole.isdigit():
        seen.kinds.add(_FRACTION)
        before, after = len(whole.lstrip("0")), len(places.rstrip("0"))
        seen.before = max(seen.before, min(before, _MOST_DIGITS))
        seen.after = max(seen.after, min(after, _MOST_DIGITS))
        if before + after > _EXACT_DIGITS and seen.double:
            seen.double = len((whole + places).strip("0")) <= _EXACT_DIGITS
    else:
        seen.exponent = True
        _observe_fraction(seen, text)


def _observe_fraction(seen: Seen, text: Number) -> None:
    """Add a number with an exponent."""
    seen.kinds.add(_FRACTION)
    seen.double = seen.double and _FITS_DOUBLE(text) is not MISFIT
    digits = text.lower().partition("e")[0].lstrip("-+0.").replace(".", "").rstrip("0")
    if not digits:
        return
    try:
        before = Decimal(text).adjusted() + 1
    except InvalidOperation:
        # Its exponent has more than 18 digits.
        before = _MOST_DIGITS
    seen.before = max(seen.before, min(before, _MOST_DIGITS))
    seen.after = max(seen.after, min(len(digits) - before, _MOST_DIGITS))


# -- types of values ----------------------------------------------------------------------------
class _Respelt(Exception):
    """Objects have members that differ in case only: no struct holds them."""


def resolved(seen: Seen) -> Type | None:
    """Return the type that holds all values; None if no value has a type.

    If an object inside has members that differ in case only, the whole column is text.
    """
    try:
        return _resolved(seen)
    except _Respelt:
        return STRING


def _resolved(seen: Seen) -> Type | None:
    kinds = seen.kinds
    if not kinds:
        return None
    if kinds <= {_WHOLE, _FRACTION}:
        return _number(seen)
    if len(kinds) > 1:
        return STRING
    (kind,) = kinds
    if kind == _LIST:
        element = None if seen.elements is None else _resolved(seen.elements)
        return None if element is None else types.array(element)
    return _object(seen) if kind == _OBJECT else _OF_KIND[kind]


def _object(seen: Seen) -> Type | None:
    if seen.wide:
        return STRING
    if seen.respelt:
        raise _Respelt
    fields = [(name, kind) for name, below in seen.members.items() if (kind := _resolved(below)) is not None]
    return types.struct(fields) if fields else None


def _number(seen: Seen) -> Type:
    """Return the type that holds all numbers of a column exactly; STRING if no type does.

    Whole numbers are LONG, or DECIMAL(38,0). Fractions are DOUBLE if it restores them all: each of them
    alone, if one has an exponent; else all digits that the column needs, at most 15. Otherwise, and for whole
    numbers together with fractions, the type is DECIMAL(38,18). If that has too few digits, a mixture with
    exponents is DOUBLE if it restores each number.
    """
    if _FRACTION not in seen.kinds:
        return LONG if seen.long else types.decimal(38, 0) if seen.digits <= 38 else STRING
    is_exact = max(seen.before, seen.digits) <= 20 and seen.after <= 18
    if _WHOLE in seen.kinds:
        if is_exact:
            return _EXACT
        return DOUBLE if seen.exponent and seen.double and seen.digits <= _EXACT_DIGITS else STRING
    is_double = seen.double if seen.exponent else seen.before + seen.after <= _EXACT_DIGITS
    return DOUBLE if is_double else _EXACT if is_exact else STRING


# -- types of two types -------------------------------------------------------------------------
#: The number of digits that Spark gives each type of whole numbers as a decimal.
_DIGITS = {"byte": 3, "short": 5, "integer": 10, "long": 20}


def merged(one: Type, other: Type) -> Type:
    """Return the first type. Objects at any depth also get the members of the other type."""
    if one.name == other.name == "struct":
        others = {name.lower(): kind for name, kind in other.fields}
        own = {name.lower() for name, _ in one.fields}
        fields = [
            (name, merged(kind, others[name.lower()]) if name.lower() in others else kind)
            for name, kind in one.fields
        ]
        return types.struct(
            [*fields, *((name, kind) for name, kind in other.fields if name.lower() not in own)]
        )
    if one.name == other.name and one.element is not None and other.element is not None:
        return Type(one.name, element=merged(one.element, other.element), key=one.key)
    return one


def common(one: Type, other: Type) -> Type:
    """Return the type of a column whose type changed inside a batch: text for types of different kinds."""
    kind = None if spelt_otherwise(one, other) else wider(one, other)
    if kind is None and _is_number(one) and _is_number(other):
        return widest_number(one, other)
    return kind or STRING


def spelt_otherwise(one: Type, other: Type) -> list[str]:
    """Return the members of ``other`` whose names differ from names of ``one`` only in case."""
    if one.name != other.name:
        return []
    if one.element is not None and other.element is not None:
        return spelt_otherwise(one.element, other.element)
    names: list[str] = []
    fields = {name.lower(): (name, kind) for name, kind in one.fields}
    for name, kind in other.fields:
        same = fields.get(name.lower())
        if same is not None:
            names += [name] if same[0] != name else []
            names += spelt_otherwise(same[1], kind)
    return names


def wider(one: Type, other: Type) -> Type | None:
    """Return the narrowest type that holds all values of both; None if no such type exists.

    Numbers widen to numbers, never to text: whole numbers to the larger type, with a decimal to a decimal,
    floats to double. The type of NULL fits every type. Fields of structs match by name without regard to
    case; the result also has the fields that only one type has.
    """
    if one == other or other == VOID:
        return one
    if one == VOID:
        return other
    if one.name == other.name == "struct":
        return _wider_structs(one, other)
    if one.name == other.name and one.element is not None and other.element is not None:
        element = wider(one.element, other.element)
        key = None if one.key is None or other.key is None else wider(one.key, other.key)
        is_whole = element is not None and (key is None) == (one.key is None)
        return Type(one.name, element=element, key=key) if is_whole else None
    return _wider_atoms(one, other)


def widest_number(one: Type, other: Type) -> Type:
    """Return the type for two types of numbers without a wider one; some of their values do not fit it."""
    scale = max(one.scale, other.scale)
    return types.decimal(38, scale if _is_float(one) == _is_float(other) else max(18, scale))


def _wider_structs(one: Type, other: Type) -> Type | None:
    unmatched = {name.lower(): (name, kind) for name, kind in other.fields}
    fields = []
    for name, kind in one.fields:
        match = unmatched.pop(name.lower(), None)
        both = kind if match is None else wider(kind, match[1])
        if both is None:
            return None
        fields.append((name, both))
    return types.struct([*fields, *unmatched.values()])


def _wider_atoms(one: Type, other: Type) -> Type | None:
    if {one, other} == {DATE, TIMESTAMP_NTZ}:
        return TIMESTAMP_NTZ
    if _is_float(one) and _is_float(other):
        return DOUBLE
    decimals = [kind for kind in (_as_decimal(one), _as_decimal(other)) if kind is not None]
    if len(decimals) == 2:
        if one.name in BITS and other.name in BITS:
            return max((one, other), key=lambda kind: BITS[kind.name])
        return _wider_decimals(*decimals)
    is_restored = any(kind.precision <= _EXACT_DIGITS for kind in decimals)
    return DOUBLE if is_restored and (_is_float(one) or _is_float(other)) else None


def _wider_decimals(one: Type, other: Type) -> Type | None:
    scale = max(one.scale, other.scale)
    precision = max(one.precision - one.scale, other.precision - other.scale) + scale
    return types.decimal(precision, scale) if precision <= 38 else None


def _is_float(kind: Type) -> bool:
    return kind in (FLOAT, DOUBLE)


def _is_number(kind: Type) -> bool:
    return _is_float(kind) or _as_decimal(kind) is not None


def _as_decimal(kind: Type) -> Type | None:
    if kind.name == "decimal":
        return kind
    digits = _DIGITS.get(kind.name)
    return None if digits is None else types.decimal(digits, 0)
