"""A range in which nothing changed: an answer without rows, and without a look at the table's data."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc import read_changes
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.mark.parametrize("query", ["full_delta", "min_delta"])
def test_no_version_is_travelled_to(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    """Delta refuses to travel to an old version, whose files may be gone; here they never were readable."""

    def travelled(*_: object, **__: object) -> None:
        raise AssertionError("the table was read")

    monkeypatch.setattr("delta_cdc.spark.changes.feed.snapshot_rows", travelled)
    source = LogTable(tmp_path / "table", configuration=dict(FEED)).create()
    source.append()
    source.optimize()
    source.append()
    found = read_changes(spark, source.uri, starting_version=2, ending_version=2, query=query, keys="id")
    assert found.columns == ["id", "name", "_change_type", "_commit_version", "_commit_timestamp"]
    assert found.collect() == []
