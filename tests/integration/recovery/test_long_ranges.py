"""Ranges that no driver should hold in one plan, staged milestone by milestone."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.requests import CommitRequest, ReadRequest
from delta_cdc.core.spec import ReadSpec
from delta_cdc.delta_log.file_manifests import prepared
from delta_cdc.planning.read import plan_read
from delta_cdc.planning.read_methods import MOST_COMPARED
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from tests.support.many_vectors import deleting_row_by_row
from tests.support.world import seals

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import JobResult

pytestmark = pytest.mark.slow

MILESTONE = 100


@pytest.mark.parametrize("deletes", [1_000])
def test_commits_with_deletion_vectors(spark: SparkSession, tmp_path: Path, deletes: int) -> None:
    source = deleting_row_by_row(spark, tmp_path / "source", deletes)
    staging = str(tmp_path / "staging")

    def execute(spec: Any) -> JobResult:
        if isinstance(spec, ReadSpec):
            spec = prepared(spec, str(tmp_path / "manifests"))
        return job.run(spark, spec)

    read = partial(
        ReadRequest,
        pipeline="flow",
        source=str(source),
        staging=staging,
        # Else the planner may find that the two ends are cheaper to compare.
        options=QueryOptions(method="change_files"),
        versions_per_commit=MILESTONE,
    )
    first = run(read(ending_version=0), Services(execute=execute))
    assert first.rows == deletes + 10
    run(CommitRequest(pipeline="flow", staging=staging), Services(execute=execute))
    # Where Delta's own reader compares the vectors, its limit is the lower one.
    for scratch, most in ((True, MILESTONE), (False, MOST_COMPARED)):
        steps = plan_read(read(scratch=scratch)).steps
        assert [step.kind for step in steps] == ["apply"] * -(-deletes // most)
        assert max(step.ending_version - step.starting_version + 1 for step in steps) <= most
    batch = run(read(), Services(execute=execute))
    none = dict.fromkeys(("insert", "update_preimage", "update_postimage"), 0)
    assert batch.counts == {"rows": deletes, "delete": deletes, **none}
    rows = spark.read.format("delta").load(staging).select("id", "_commit_version", "_change_type").collect()
    assert sorted((row["id"], row["_commit_version"]) for row in rows) == [(n, n + 1) for n in range(deletes)]
    sealed = [
        seal["state"]["configuration"]["complete"]
        for seal in seals(staging)
        if seal["step"]["kind"] == "read"
    ]
    assert sealed == [True, *[False] * (-(-deletes // MILESTONE) - 1), True]
