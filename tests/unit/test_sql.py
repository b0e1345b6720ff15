"""Text of SQL."""

from __future__ import annotations

from decimal import Decimal

import pytest

from delta_cdc.core import sql


def test_names_are_quoted() -> None:
    assert sql.quote("a`b") == "`a``b`"
    assert sql.table("/lake/a`b") == "delta.`/lake/a``b`"
    assert sql.table("main.sales.orders") == "`main`.`sales`.`orders`"
    # Delta takes a URI without a path for a relative path.
    assert sql.table("s3a://bucket") == "delta.`s3a://bucket/`"
    assert sql.table("s3a://bucket/t") == "delta.`s3a://bucket/t`"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (5, "5"),
        (Decimal("1.50"), "1.50BD"),
        ("plain", "'plain'"),
        ("it's", None),
        ("back\\slash", None),
        ("${env:HOME}", None),
        (True, None),
        (None, None),
        (1.5, None),
    ],
)
def test_literals_that_cannot_be_told_safely_are_left_out(value: object, text: str | None) -> None:
    assert sql.literal(value) == text


@pytest.mark.parametrize(
    ("days", "literal"),
    [
        (19_782, "DATE'2024-02-29'"),
        (-719_162, "DATE'0001-01-01'"),
        (-719_163, None),
        (2_932_896, "DATE'9999-12-31'"),
        (2_932_897, None),
    ],
)
def test_dates_come_as_days(days: int, literal: str | None) -> None:
    assert sql.date_literal(days) == literal


@pytest.mark.parametrize(
    ("microseconds", "text"),
    [(0, "1970-01-01 00:00:00"), (-1, "1969-12-31 23:59:59.999999"), (1 << 62, None)],
)
def test_times_come_as_microseconds(microseconds: int, text: str | None) -> None:
    zoned, plain = (sql.time_literal(microseconds, zoned=zoned) for zoned in (True, False))
    assert zoned == (text and f"TIMESTAMP_LTZ'{text}Z'")
    assert plain == (text and f"TIMESTAMP_NTZ'{text}'")
