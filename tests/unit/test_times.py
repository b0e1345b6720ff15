"""Times and durations as people write them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pendulum
import pytest

from delta_cdc.core.arguments import seconds, span
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.times import iso, moment, start


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2026-01-31T18:00:00+01:00", "2026-01-31T18:00:00+01:00"),
        ("2026-01-31 18:00:00+00:00", "2026-01-31T18:00:00+00:00"),
        ("2026-01-31T18:00:00.123Z", "2026-01-31T18:00:00.123000+00:00"),
        (" 2026-01-31T18:00 Europe/Berlin ", "2026-01-31T18:00:00+01:00"),
        ("2026-07-31T18:00:00 Europe/Berlin", "2026-07-31T18:00:00+02:00"),
        ("2026-07-31 18:00:00 UTC", "2026-07-31T18:00:00+00:00"),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
        (pendulum.datetime(2026, 7, 1, tz="Asia/Kathmandu"), "2026-07-01T00:00:00+05:45"),
        (None, None),
        ("", None),
        ("None", None),
    ],
)
def test_a_time_has_an_offset_or_a_zone(value: Any, expected: str | None) -> None:
    assert iso("starting_timestamp", value) == expected


@pytest.mark.parametrize(
    "value",
    [
        "2026-01-31",
        "2026-01-31T18:00:00",
        "2026-01-31T18:00:00+01:00 Europe/Berlin",
        "2026-01-31T18:00:00 Europe/Atlantis",
        # Folders of the zones.
        "2026-01-31T18:00:00 Europe",
        "2026-01-31T18:00:00 America/Argentina",
        "2026-13-31T18:00:00Z",
        "18:00",
        "2026-01-31T00:00Z/2026-02-01T00:00Z",
        "PT15M",
        "now",
        "31.1.2026",
        datetime(2026, 1, 31),  # noqa: DTZ001 - what is refused
    ],
)
def test_what_is_no_such_time_is_refused_with_the_argument_and_an_example(value: Any) -> None:
    with pytest.raises(InvalidConfiguration, match="starting_timestamp is '") as caught:
        moment("starting_timestamp", value)
    assert "2026-01-31T18:00:00+00:00" in caught.value.remedy
    assert "Europe/Berlin" in caught.value.remedy
    assert moment("starting_timestamp", "2026-01-31T18:00:00+00:00") is not None


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-10-25T02:30:00 Europe/Berlin", "2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"),
        ("2026-03-29T02:30:00 Europe/Berlin", "2026-03-29T01:30:00+01:00", "2026-03-29T03:30:00+02:00"),
        ("2026-11-01T01:30:00 America/New_York", "2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"),
        ("2026-04-05T01:45 Australia/Lord_Howe", "2026-04-05T01:45:00+11:00", "2026-04-05T01:45:00+10:30"),
        ("2026-10-25T03:00:00 Europe/Berlin", *["2026-10-25T03:00:00+01:00"] * 2),
    ],
)
def test_a_range_leaves_no_hour_out_where_clocks_change(text: str, first: str, last: str) -> None:
    """02:30 of the autumn was the later one also for a start, so an hour was missing."""
    assert iso("starting_timestamp", text) == first
    assert iso("ending_timestamp", text) == last
    assert start("start_date", text).isoformat() == first


def test_a_start_may_be_a_date() -> None:
    assert start("start_date", "2026-01-31") == datetime(2026, 1, 31, tzinfo=UTC)
    assert start("start_date", "2026-01-31T06:00:00-02:00") == datetime(2026, 1, 31, 8, tzinfo=UTC)
    with pytest.raises(InvalidConfiguration, match="start_date"):
        start("start_date", "2026-01-31T06:00:00")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("15 minutes", 900),
        ("1 Day", 86400),
        ("1.5 hours", 5400),
        (" 90seconds ", 90),
        ("0.5 seconds", 0.5),
        ("999999 days", timedelta(days=999_999).total_seconds()),
        ("15", None),
        ("fifteen minutes", None),
        ("-1 minutes", None),
        ("1 month", None),
        ("PT15M", None),
    ],
)
def test_durations(text: str, expected: float | None) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize(
    ("value", "expected"), [(None, None), ("", None), (90, 90), (0.5, 0.5), ("2 hours", 7200)]
)
def test_spans(value: Any, expected: float | None) -> None:
    assert span("freshness", value) == expected


@pytest.mark.parametrize("value", [True, -1, "90", "soon", [], float("inf"), float("nan")])
def test_values_that_are_no_span(value: Any) -> None:
    with pytest.raises(InvalidConfiguration, match=r"freshness is .* give seconds, or a text like"):
        span("freshness", value)
