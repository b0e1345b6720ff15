"""Two steps, read into staging and apply from it, each of which may die anywhere: every change once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from delta_cdc.core.errors import NullKey, TargetWithoutWatermark
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest, ReadRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from tests.support.holding import hooked, once
from tests.support.world import current, expected, held, ranges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.world import Source


class Died(BaseException):
    """The end of a process, for a thread: nothing catches it on the way."""


def dying() -> None:
    raise Died


class Steps:
    """The two tasks of one pipeline."""

    def __init__(
        self,
        spark: SparkSession,
        source: Source,
        target: str,
        staging: str,
        scd: int = 1,
        pipeline: str = "flow",
    ) -> None:
        self._execute: Any = partial(job.run, spark)
        self._flow = {"pipeline": pipeline, "target": target}
        self._source, self._staging = source.path, staging
        self._options = ApplyOptions(keys=("id",), stored_as_scd_type=scd)

    def read(self, end: int | None = None, versions_per_commit: int | None = None) -> Outcome:
        request = ReadRequest(
            source=self._source,
            staging=self._staging,
            ending_version=end,
            versions_per_commit=versions_per_commit,
            **self._flow,
        )
        return run(request, Services(execute=self._execute))

    def apply(self, **other: Any) -> Outcome:
        given = {"source": self._source, "options": self._options, "staging": self._staging, **self._flow}
        return run(ApplyRequest(**{**given, **other}), Services(execute=self._execute))


@pytest.fixture
def steps(spark: SparkSession, source: Source, target: str, tmp_path: Path, scd: int) -> Steps:
    return Steps(spark, source, target, str(tmp_path / "staging"), scd)


def died(point: str, step: Callable[[], object]) -> None:
    with hooked(once(point, dying)), pytest.raises(Died):
        step()


@pytest.mark.slow
@pytest.mark.parametrize("point", ["before_commit", "committed"])
def test_dying_in_either_step(
    spark: SparkSession, source: Source, target: str, steps: Steps, scd: int, point: str
) -> None:
    steps.read(10)
    died(point, steps.apply)
    steps.apply()
    died(point, partial(steps.read, 20))
    # The open batch is finished first, whatever is asked for now.
    steps.read()
    died(point, steps.apply)
    steps.apply()
    steps.read()
    steps.apply()
    applied = ranges(target)
    assert applied[0] == (10, 10)
    assert [start for start, _ in applied[1:]] == [end + 1 for _, end in applied[:-1]]
    assert applied[-1][1] == 30
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_target_restored_after_its_batch_was_applied(
    spark: SparkSession, source: Source, target: str, steps: Steps, scd: int
) -> None:
    """The batch is gone from staging, so what was taken back has to be read again."""
    # In one commit, or in three: the target sees one batch.
    milestones = 4 if scd == 1 else None
    steps.read(10)
    steps.apply()
    steps.read(20, milestones)
    steps.apply()
    spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF 0").collect()
    read = steps.read(20, milestones)
    assert read.versions is not None
    assert (read.versions.starting_version, read.versions.ending_version) == (11, 20)
    steps.apply()
    steps.read()
    steps.apply()
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_a_batch_whose_rows_the_target_refuses(
    spark: SparkSession, source: Source, target: str, tmp_path: Path
) -> None:
    """Each try applies the open batch, whatever was corrected at the source. The remedy leads out."""
    steps = Steps(spark, source, target, str(tmp_path / "staging"))
    steps.read(20)
    steps.apply()
    spark.sql(f"INSERT INTO delta.`{source.path}` VALUES (NULL, 'without key', 1)").collect()
    steps.read()
    with pytest.raises(NullKey) as first:
        steps.apply()
    spark.sql(f"DELETE FROM delta.`{source.path}` WHERE id IS NULL").collect()
    steps.read()
    with pytest.raises(NullKey) as second:
        steps.apply()
    way = "run once with mode='reload'. "
    way += f"The batch in {tmp_path / 'staging'} keeps the rows: leave out staging in that run."
    assert [one.value.remedy.endswith(way) for one in (first, second)] == [True, True]
    steps.apply(mode="reload", staging=None)
    assert held(spark, target) == current(source.states[-1])
    source.update(spark, {1: ("c", 1)})
    steps.read()
    steps.apply()
    assert held(spark, target) == current(source.states[-1])


@pytest.mark.slow
def test_two_pipelines_that_make_one_staging_table_at_once(
    spark: SparkSession, source: Source, target: str, tmp_path: Path
) -> None:
    """Both plan while the folder is empty. The second one to write must not replace the first one's batch."""
    staging = str(tmp_path / "staging")
    first = Steps(spark, source, target, staging)
    second = Steps(spark, source, f"{target}_2", staging, pipeline="other")
    with hooked(once("before_commit", partial(first.read, 10))), pytest.raises(TargetWithoutWatermark):
        second.read(20)
    assert first.apply().watermark.version == 10
    assert held(spark, target) == expected(source, 1, 10, 10)
