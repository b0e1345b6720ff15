"""Texts of sequences sort as their values, and stay what logs already hold."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.ingest import types as T
from delta_cdc.ingest.ordering import digits, has_part, joined, numbers, part
from delta_cdc.ingest.record import Number

if TYPE_CHECKING:
    from delta_cdc.ingest.types import Type

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


DIGITS = [
    *((text, "00007") for text in ("7", "007", 7, Number("7"), Decimal(7))),
    *((text, "99999") for text in ("99999", "0000099999", 99_999)),
    *((text, "00000") for text in ("0", "0000000000")), (" 42 ", "00042"), ("0" * 10_000 + "1", "00001"),
    *((text, None) for text in ("100000", 100_000, -1, 10**500, 10**5000, "-1", "+1", "1.0", "1e3", "", " ",
                                "x", None, "7\n", "7\r", "\t7", "٣", "²", "1 2", "1_0")),
    *((value, None) for value in (True, 7.0, Decimal("7.0"), Decimal("NaN"), b"7", [7])),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), DIGITS, ids=range(len(DIGITS)))
def test_digits(text: Any, wanted: str | None) -> None:
    assert digits(text, 5) == wanted


NUMBERS = [
    ("7", f"{7:020d}"), (1000, f"{1000:020d}"), ("00000000000000000012/00000003", f"{12:020d}/{3:020d}"),
    ("12:4", f"{12:020d}/{4:020d}"), ("1/2:3", f"{1:020d}/{2:020d}/{3:020d}"), ("9" * 20, "9" * 20),
    *((text, None) for text in ("9" * 21, "12/", "/12", "1//2", "a/1", "", None, "7\r", "12/3\n", " 7", "-7",
                                "٣", "1/٣", "1.5", True, 1.5, -7, 10**5000, "1/" + "0" * 21,
                                "/" * 1_000_000)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "wanted"), NUMBERS, ids=range(len(NUMBERS)))
def test_numbers(text: Any, wanted: str | None) -> None:
    assert numbers(text) == wanted


def test_joined() -> None:
    assert joined(["a"]) == "a"
    assert joined(["a", "b"]) == "a/b"
    assert joined(["a", None]) is None
    assert joined(iter(["a", "b"])) == "a/b"


def micros(moment: datetime) -> int:
    return (moment - EPOCH) // timedelta(microseconds=1)


#: The first day of Python's calendar.
FIRST = (date(1, 1, 1) - EPOCH.date()).days
LAST = (date(9999, 12, 31) - EPOCH.date()).days
PARTS: list[tuple[Type, Any, str | None]] = [
    (T.LONG, 0, "0" * 20), (T.LONG, 7, f"{7:020d}"), (T.LONG, -1, "-99999999999999999998"),
    (T.LONG, -(2**63), "-90776627963145224191"), (T.BYTE, -128, "-99999999999999999871"),
    (T.decimal(38, 0), Decimal(7), f"{7:038d}"), (T.decimal(38, 0), Decimal(-1), "-" + "9" * 37 + "8"),
    (T.decimal(38, 0), Decimal("-" + "9" * 38), "-" + "0" * 38), (T.decimal(10, 0), Decimal(7), f"{7:020d}"),
    (T.decimal(25, 0), Decimal(7), f"{7:025d}"), (T.DATE, 0, "1970-01-01"), (T.DATE, FIRST, "0001-01-01"),
    # Spark has a year 0, with 366 days.
    (T.DATE, FIRST - 1, "0000-12-31"), (T.DATE, FIRST - 366, "0000-01-01"), (T.DATE, FIRST - 367, None),
    (T.DATE, LAST, "9999-12-31"), (T.DATE, LAST + 1, None), (T.TIMESTAMP, -1, "1969-12-31 23:59:59.999999"),
    (T.TIMESTAMP, micros(datetime(2024, 1, 31, 12, tzinfo=UTC)), "2024-01-31 12:00:00.000000"),
    (T.TIMESTAMP_NTZ, 0, "1970-01-01 00:00:00.000000"), (T.TIMESTAMP, 2**63 - 1, None),
    (T.TIMESTAMP, -(2**63), None), (T.STRING, "7", None), (T.decimal(5, 1), Decimal("7.0"), None),
    (T.DOUBLE, 7.0, None), (T.LONG, None, None), (T.DATE, None, None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "wanted"), PARTS, ids=range(len(PARTS)))
def test_part(kind: Type, value: Any, wanted: str | None) -> None:
    assert part(value, kind) == wanted
    assert has_part(kind) or wanted is None


def test_parts_sort_as_their_values() -> None:
    draw = random.Random(5)
    whole = {draw.randrange(-(2**63), 2**63) >> draw.randrange(63) for _ in range(3_000)}
    large = {draw.choice((1, -1)) * draw.randrange(10 ** draw.randrange(1, 38)) for _ in range(3_000)}
    moments = {draw.randrange(-62_135_596_800_000_000, 253_402_300_800_000_000) for _ in range(3_000)}
    ordered: list[tuple[Type, list[Any]]] = [
        (T.LONG, sorted(whole)),
        (T.decimal(38, 0), [Decimal(number) for number in sorted(large)]),
        (T.TIMESTAMP, sorted(moments)),
        (T.DATE, sorted({moment // 86_400_000_000 for moment in moments})),
    ]
    for kind, values in ordered:
        texts = [part(value, kind) for value in values]
        assert None not in texts
        assert texts == sorted(set(texts), key=str), kind
    for moment in moments:
        shown = (EPOCH + timedelta(microseconds=moment)).replace(tzinfo=None).isoformat(" ", "microseconds")
        assert part(moment, T.TIMESTAMP) == shown
        assert part(moment // 86_400_000_000, T.DATE) == shown[:10]
