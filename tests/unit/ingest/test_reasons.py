"""The text that lists the reasons of invalid records."""

from __future__ import annotations

from delta_cdc.spark.ingest import events


def test_reasons_name_their_records_and_count_the_others() -> None:
    shown = [("not JSON", 4), ("no value for op", 1)]
    assert events._listed(shown, 5) == "4 times not JSON, 1 time no value for op"
    assert events._listed(shown, 6) == "4 times not JSON, 1 time no value for op, and 1 other"
    assert events._listed(shown, 8) == "4 times not JSON, 1 time no value for op, and 3 others"
