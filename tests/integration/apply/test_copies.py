"""Full copies, one per version of a table whose files say nothing of what changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import VersionRange, apply_changes
from delta_cdc.core.errors import EmptyCopy
from tests.support.slow import slow_but
from tests.support.world import COLUMNS, Source, current, held, history

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.world import State

pytestmark = pytest.mark.slow

STATES: list[State] = [
    {1: ("a", 1), 2: ("b", 1), 3: ("c", 1)},
    # 1 is updated, 3 goes, 4 comes; 2 is copied as it was.
    {1: ("a", 2), 2: ("b", 1), 4: ("d", 1)},
    {1: ("a", 2), 2: ("b", 1), 4: ("d", 1)},
    # 1 is what it was at first, 3 comes back, 4 goes, and all that NULL can be.
    {1: ("a", 1), 2: (None, 1), 3: ("c", 1)},
    {},
    {2: (None, 1), 4: ("d", 9)},
]


def copied(spark: SparkSession, path: Path) -> Source:
    """Return a source without a feed, of which each version is a copy; 3 only rewrites the files of 2."""
    source = Source(str(path), [])
    for state in STATES:
        rows = [(key, *values) for key, values in state.items()]
        frame = spark.createDataFrame(rows, "id BIGINT, name STRING, amount BIGINT").repartition(2)
        frame.write.format("delta").mode("overwrite").save(source.path)
        source.states.append(state)
        if source.newest == 2:
            spark.sql(f"OPTIMIZE delta.`{source.path}`").collect()
            source.states.append(state)
    return source


def test_every_copy_counts_for_history_and_the_newest_for_the_state(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = copied(spark, tmp_path / "source")

    def apply(scd: int, **arguments: Any) -> Outcome:
        return apply_changes(
            spark,
            source.path,
            str(tmp_path / f"scd{scd}"),
            pipeline="copies",
            source_kind="snapshot",
            keys=["id"],
            stored_as_scd_type=scd,
            **arguments,
        )

    for scd in (1, 2):
        apply(scd, ending_version=0)
        with pytest.raises(EmptyCopy, match="version 5"):
            apply(scd, ending_version=5)
        assert apply(scd, policies={"allow_empty": True}).versions == VersionRange(1, 6)
        assert apply(scd).applied is False
    assert held(spark, str(tmp_path / "scd1")) == current(source.states[-1])
    assert held(spark, str(tmp_path / "scd2"), 2) == history(source, 0)
    # Repaired from any version on, it is the same again.
    for scd in (1, 2):
        target = str(tmp_path / f"scd{scd}")
        spark.sql(f"UPDATE delta.`{target}` SET amount = -1 WHERE id IN (1, 2, 4)")
        if scd == 1:
            spark.sql(f"INSERT INTO delta.`{target}` ({', '.join(COLUMNS)}) VALUES (3, 'stays', 0)")
        apply(scd, mode="repair", starting_version=1)
    assert held(spark, str(tmp_path / "scd1")) == current(source.states[-1])
    assert held(spark, str(tmp_path / "scd2"), 2) == history(source, 0)


@pytest.mark.parametrize("scd", slow_but([1, 2], 2))
def test_a_copy_that_replaces_the_table(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    source, target = f"delta.`{tmp_path / 'source'}`", str(tmp_path / "target")

    def copy(value: str, first: int) -> Outcome:
        spark.sql(
            f"CREATE OR REPLACE TABLE {source} USING delta AS "
            f"SELECT id, '{value}' AS v FROM range({first}, {first + 3})"
        )
        return apply_changes(
            spark,
            str(tmp_path / "source"),
            target,
            pipeline="copies",
            source_kind="snapshot",
            keys=["id"],
            stored_as_scd_type=scd,
        )

    copy("a", 0)
    assert copy("b", 1).versions == VersionRange(1, 1)
    rows = spark.read.format("delta").load(target)
    living = rows.where("__END_AT IS NULL") if scd == 2 else rows
    assert sorted(map(tuple, living.select("id", "v").collect())) == [(1, "b"), (2, "b"), (3, "b")]
    assert rows.count() == (6 if scd == 2 else 3)
