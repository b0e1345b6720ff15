"""Types of columns: from their values, and from other types."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.ingest import types as T
from delta_cdc.ingest.infer import (
    Seen,
    common,
    merged,
    observe,
    resolved,
    spelt_otherwise,
    wider,
    widest_number,
)
from delta_cdc.ingest.record import Number
from delta_cdc.ingest.types import array, decimal, map_of, struct
from delta_cdc.ingest.values import MISFIT, converter, plain

if TYPE_CHECKING:
    from delta_cdc.ingest.types import Type

N = Number
LONG, DOUBLE, TEXT, EXACT = T.LONG, T.DOUBLE, T.STRING, decimal(38, 18)
BYTE, SHORT, INT, FLOAT = T.BYTE, T.SHORT, T.INTEGER, T.FLOAT
DATE, ZONED, NAIVE = T.DATE, T.TIMESTAMP, T.TIMESTAMP_NTZ


def seen_in(values: list[Any]) -> Seen:
    seen = Seen()
    for value in values:
        observe(seen, value)
    return seen


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


#: The type that holds them all, of several lists of values.
INFERRED: list[tuple[Type | None, list[list[Any]]]] = [
    (None, [[], [None], [{}], [{"a": None}], [[]], [[], [None]]]),
    (T.BOOLEAN, [[True, False, None]]),
    (LONG, [[1, 2**63 - 1, -(2**63)], [N("9223372036854775807"), N("-9223372036854775808")], [Decimal(5)]]),
    (decimal(38, 0), [[1, 2**63], [N("-9223372036854775809")], [N("9" * 38)], [10**38 - 1],
        [2**63 - 1, 2**63], [N("9" * 38), 2**63, 5]]),
    (DOUBLE, [
        [N("1.5")], [N("1.50000000000000000000")], [N("0.123456789012345")], [N("1.0"), N("2.5")],
        [N("1.5e300")], [N("1e23"), N("-2.5E-300")], [N("1.7976931348623157e308")], [N("0e-2147483648")],
        [5, N("1e-30")], [N("0.5"), N("1e-30")], [0.1, 1e300, float("nan")], [Decimal("1.50")]]),
    (EXACT, [
        [N("0.1234567890123456")], [N("123456789012.3456")], [1, N("2.5")], [N("2.5"), 1],
        # Together they have 18 digits.
        [N("123456789.5"), N("0.123456789")],
        [10**20 - 1, N("2.5")], [N("0." + "1" * 18)], [N("1" * 20 + ".1")], [N("1.2345678901234567890e2")],
        [N("9.007199254740993e15")], [5, N("1e-7")], [Decimal("0.1234567890123456")]]),
    (TEXT, [
        [N("1" + "0" * 38)], [10**38], [10**5000], [10**15 - 1, 10**15, N("1e-30")],
        [N("1" * 100_000)], [10**20, N("2.5")],
        [N("0." + "1" * 19)], [N("1" * 21 + ".1")], [N("1e400")], [N("1e-400")], [N("1e2147483647")],
        [N("1e-2147483648")], [N("1e99999999999999999999")], [10**15, N("1e-30")],
        [N("0.12345678901234567890"), N("1e-30")], ["x", "1"], ["1", 1], [True, 1], [{"a": 1}, 1],
        [{"a": 1}, [1]], [{"a": 1, "A": 2}], [{"a": 1}, {"A": 2}], [{"x": [{"a": 1, "A": 2}]}],
        [[{"x": {"é": 1, "É": 2}}]], [{"": 1}], [datetime(2024, 1, 31, tzinfo=UTC), date(2024, 1, 31)],
        [Decimal("NaN")], [object()], [time(1, 2)], [timedelta(1)]]),
    (struct([("a", LONG), ("b", TEXT)]), [[{"a": 1, "b": None}, {"b": "x", "c": {}}]]),
    (struct([("a b", LONG)]), [[{"a b": 1}]]),
    (array(decimal(38, 0)), [[[1], [2**63]]]),
    (array(TEXT), [[[1, "x"]]]),
    (array(struct([("a", LONG), ("b", array(T.BOOLEAN))])), [[[{"a": 1}, {"b": [True]}]]]),
    # A part that is text anyway may have any members.
    (struct([("x", TEXT)]), [[{"x": {"a": 1, "A": 2}}, {"x": 1}]]),
    (struct([("m", TEXT), ("n", LONG)]), [[{"m": {f"k{at}": 1 for at in range(2_001)}, "n": 1}]]),
    (reduce(lambda kind, _: array(kind), range(50), LONG), [[deep(50)]]),
    (reduce(lambda kind, _: array(kind), range(50), TEXT), [[deep(500)]]),
    (T.BINARY, [[b"x"]]),
    (DATE, [[date(2024, 1, 31)]]),
    (ZONED, [[datetime(2024, 1, 31, tzinfo=UTC)]]),
    (NAIVE, [[datetime(2024, 1, 31)]]),  # noqa: DTZ001
]  # fmt: skip
CASES = [(values, kind) for kind, lists in INFERRED for values in lists]


@pytest.mark.parametrize(("values", "kind"), CASES, ids=range(len(CASES)))
def test_inferred(values: list[Any], kind: Type | None) -> None:
    seen = seen_in(values)
    assert resolved(seen) == kind
    turned = resolved(seen_in(values[::-1]))
    # Only the order of members may be another one.
    assert wider(turned or T.VOID, kind or T.VOID) == (turned or T.VOID)
    assert resolved(Seen.of_json(json.loads(json.dumps(seen.to_json())))) == kind


def test_whole_numbers_alone_never_become_double() -> None:
    draw = random.Random(2)
    for _ in range(2_000):
        values = [
            draw.randrange(-(10**40), 10**40) // 10 ** draw.randrange(40) for _ in range(draw.randrange(1, 5))
        ]
        kind = resolved(seen_in([v if abs(v) < 10**19 else N(str(v)) for v in values]))
        most = max(map(abs, values))
        if all(-(2**63) <= value < 2**63 for value in values):
            assert kind == LONG
        else:
            assert kind == (decimal(38, 0) if most < 10**38 else TEXT)


def random_value(draw: random.Random, depth: int, kind: int) -> Any:
    if kind == 0:
        return None
    if kind == 1:
        return draw.choice([True, False])
    if kind == 2:
        return draw.randrange(-(10**19), 10**19) // 10 ** draw.randrange(20)
    if kind == 3:
        places = "".join(draw.choices("0123456789", k=draw.randrange(1, 22)))
        exponent = draw.choice(["", "", f"e{draw.randrange(-350, 350)}"])
        return N(f"{draw.randrange(10 ** draw.randrange(1, 24))}.{places}{exponent}")
    if kind == 4:
        return draw.choice(["", "x", "é", "1"])
    if kind == 5:
        kinds = draw.choice([(2,), (3,), (2, 3), (4,), (6,), (2, 4)]) if depth else (1,)
        return [random_value(draw, depth - 1, draw.choice(kinds)) for _ in range(draw.randrange(3))]
    names = draw.sample(["a", "b", "c", "d e", "B" if draw.random() < 0.05 else "f"], draw.randrange(5))
    by_name = {"a": 2, "b": 3, "c": 4, "d e": 5, "f": 6} if depth else {}
    return {name: random_value(draw, depth - 1, by_name.get(name, 1)) for name in names}


def test_the_type_holds_all_values_however_they_are_split() -> None:
    """The converter of the inferred type takes each value; merging is associative and commutative."""
    draw = random.Random(38)
    named: dict[str, int] = {}
    count = 0
    while count < 20_000:
        kinds = draw.choice([(1,), (2,), (3,), (3,), (2, 3), (4,), (5,), (6,), (6,), (2, 4), (0, 6), (5, 6)])
        values = [random_value(draw, 3, draw.choice(kinds)) for _ in range(draw.randrange(1, 8))]
        count += len(values)
        whole = seen_in(values)
        parts = [seen_in(values[at::3]) for at in range(3)]
        one, two, three = (Seen.of_json(json.loads(json.dumps(part.to_json()))) for part in parts)
        merges = [one.merged(two).merged(three), three.merged(one.merged(two)), two.merged(three.merged(one))]
        shown = json.dumps(whole.to_json(), sort_keys=True)
        assert {json.dumps(seen.to_json(), sort_keys=True) for seen in merges} == {shown}
        kind = resolved(whole)
        if kind is None:
            assert not any(isinstance(value, (bool, int, str)) for value in values)
            continue
        named[kind.name] = named.get(kind.name, 0) + 1
        convert = converter(plain(kind))
        for value in values:
            assert convert(value) is not MISFIT, (value, kind)
    assert len(named) == 7
    assert min(named.values()) > 20, named


def test_members_beyond_the_most_are_forgotten_in_any_order() -> None:
    many, few = (seen_in([{f"{name}{at}": 1} for at in range(1_500)]) for name in "kx")
    odd = seen_in([{"K1": 1}])
    assert many.merged(few).to_json() == few.merged(many).to_json() == {"kinds": ["object"], "wide": True}
    assert many.merged(odd).merged(few).to_json() == {"kinds": ["object"], "wide": True}
    assert resolved(many.merged(few)) == TEXT
    again = many.merged(few)
    observe(again, {"y": 1, "Y": 2})
    assert again.to_json() == {"kinds": ["object"], "wide": True}
    # What was merged did not change.
    assert len(many.members) == 1_500


# -- types of types -----------------------------------------------------------------------------
def fields(**kinds: Type) -> Type:
    return struct(list(kinds.items()))


WIDER: list[tuple[Type, Type, Type | None]] = [
    (INT, INT, INT), (INT, LONG, LONG), (BYTE, SHORT, SHORT), (T.VOID, TEXT, TEXT), (FLOAT, DOUBLE, DOUBLE),
    # Not every whole number of this size is a double, nor every int a float.
    (INT, DOUBLE, DOUBLE), (LONG, DOUBLE, None), (INT, FLOAT, DOUBLE),
    (decimal(5, 2), decimal(10, 0), decimal(12, 2)), (decimal(5, 2), LONG, decimal(22, 2)),
    (decimal(5, 2), BYTE, decimal(5, 2)), (decimal(38, 2), decimal(38, 4), None),
    (decimal(5, 2), DOUBLE, DOUBLE), (decimal(15, 2), FLOAT, DOUBLE), (decimal(16, 2), DOUBLE, None),
    # Midnight of which zone?
    (DATE, NAIVE, NAIVE), (DATE, ZONED, None), (ZONED, NAIVE, None),
    (TEXT, INT, None), (T.BOOLEAN, INT, None),
    (array(INT), array(LONG), array(LONG)), (array(INT), array(TEXT), None), (array(INT), INT, None),
    (array(INT), map_of(TEXT, INT), None), (map_of(TEXT, INT), map_of(TEXT, LONG), map_of(TEXT, LONG)),
    (map_of(TEXT, INT), map_of(TEXT, TEXT), None), (map_of(TEXT, INT), map_of(INT, INT), None),
    (fields(a=INT), fields(A=LONG, b=TEXT), fields(a=LONG, b=TEXT)), (fields(a=INT), fields(a=TEXT), None),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "both"), WIDER, ids=str)
def test_wider(one: Type, other: Type, both: Type | None) -> None:
    assert wider(one, other) == both
    turned = wider(other, one)
    assert (turned is None) == (both is None)
    if one.name != "struct":
        assert turned == both


COMMON = [
    (LONG, DOUBLE, decimal(38, 18)), (decimal(38, 20), DOUBLE, decimal(38, 20)), (INT, LONG, LONG),
    (decimal(38, 2), decimal(38, 4), decimal(38, 4)), (TEXT, LONG, TEXT), (DATE, ZONED, TEXT),
    (fields(a=INT), fields(a=LONG), fields(a=LONG)), (fields(a=INT), fields(A=INT), TEXT),
    (array(fields(a=INT)), array(fields(A=INT)), TEXT), (fields(a=LONG), fields(a=DOUBLE), TEXT),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "both"), COMMON, ids=str)
def test_common(one: Type, other: Type, both: Type) -> None:
    assert common(one, other) == common(other, one) == both


def test_widest_number() -> None:
    assert widest_number(LONG, DOUBLE) == decimal(38, 18)
    assert widest_number(decimal(38, 30), LONG) == decimal(38, 30)
    assert widest_number(FLOAT, DOUBLE) == decimal(38, 0)


MERGED = [
    (LONG, TEXT, LONG), (fields(a=INT), fields(a=TEXT, b=TEXT), fields(a=INT, b=TEXT)),
    (fields(a=fields(x=INT)), fields(a=fields(y=INT)), fields(a=fields(x=INT, y=INT))),
    (fields(a=INT), fields(A=TEXT), fields(a=INT)), (fields(a=INT), LONG, fields(a=INT)),
    (array(fields(a=INT)), array(fields(b=INT)), array(fields(a=INT, b=INT))),
    (map_of(TEXT, fields(a=INT)), map_of(TEXT, fields(b=INT)), map_of(TEXT, fields(a=INT, b=INT))),
    (array(INT), fields(a=INT), array(INT)),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other", "both"), MERGED, ids=str)
def test_merged(one: Type, other: Type, both: Type) -> None:
    assert merged(one, other) == both


def test_spelt_otherwise() -> None:
    inside = spelt_otherwise(fields(a=INT, b=fields(c=INT)), fields(A=INT, b=fields(C=INT), d=INT))
    assert inside == ["A", "C"]
    assert spelt_otherwise(array(fields(a=INT)), array(fields(A=INT))) == ["A"]
    assert spelt_otherwise(fields(a=INT), fields(a=INT)) == spelt_otherwise(INT, fields(a=INT)) == []
