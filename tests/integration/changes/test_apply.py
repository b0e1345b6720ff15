"""Sources without a change feed: what an apply does with each of the other captures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.core.errors import NotInsertOnly

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def rows_of(spark: SparkSession, table: str, *columns: str) -> list[tuple[Any, ...]]:
    found = spark.read.format("delta").load(table).select(*columns).collect()
    return sorted((tuple(row) for row in found), key=str)


@pytest.mark.slow
def test_history_from_a_source_that_tracks_rows(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Row ids tell each change of each commit, so type 2 needs no change feed."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    table = f"delta.`{source}`"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT, name STRING) USING delta "
        "TBLPROPERTIES ('delta.enableRowTracking' = 'true', 'delta.enableDeletionVectors' = 'true')"
    )
    spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    given: dict[str, Any] = {"pipeline": "history", "keys": "id", "stored_as_scd_type": 2}
    apply_changes(spark, source, target, **given)
    spark.sql(f"UPDATE {table} SET name = 'a2' WHERE id = 1")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    spark.sql(f"UPDATE {table} SET name = 'a3' WHERE id = 1")
    spark.sql(f"OPTIMIZE {table}").collect()
    with caplog.at_level("INFO"):
        done = apply_changes(spark, source, target, **given)
    assert "The run reads versions 2-4 by row_tracking" in caplog.text
    assert done.counts["events"] == 3
    assert rows_of(spark, target, "id", "name", "__START_AT", "__END_AT") == [
        (1, "a", 1, 2),
        (1, "a2", 2, 4),
        (1, "a3", 4, None),
        (2, "b", 1, 3),
        (3, "c", 1, None),
    ]


@pytest.mark.slow
def test_an_append_only_source_needs_neither_feed_nor_row_ids(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    for batch in ("(1, 'a')", "(2, 'b')"):
        spark.sql(f"SELECT /*+ COALESCE(1) */ * FROM VALUES {batch} AS t(id, name)").write.format(
            "delta"
        ).mode("append").save(source)
        apply_changes(spark, source, target, pipeline="log", insert_only=True)
    assert rows_of(spark, target, "id", "name") == [(1, "a"), (2, "b")]
    spark.sql(f"UPDATE delta.`{source}` SET name = 'x' WHERE id = 1")
    with pytest.raises(NotInsertOnly, match=r"version 2 .*UPDATE.*insert_only"):
        apply_changes(spark, source, target, pipeline="log", insert_only=True)
