"""Text of SQL."""

from __future__ import annotations

from decimal import Decimal

import pytest

from delta_cdc.core import sql


def test_names_are_quoted() -> None:
    assert sql.quote("a`b") == "`a``b`"
    assert sql.table("/lake/a`b") == "delta.`/lake/a``b`"
    assert sql.table("main.sales.orders") == "`main`.`sales`.`orders`"


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
    ("text", "literal"),
    [("2024-02-29", "DATE'2024-02-29'"), ("+10000-01-01", None), ("-0001-01-01", None), (None, None)],
)
def test_dates_come_as_text(text: str | None, literal: str | None) -> None:
    assert sql.date_literal(text) == literal
