"""Targets that are filled one after the other, and verified together in one application."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc import apply_changes, job
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run.verify import run_verify
from tests.support.grouped import grouped

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.core.checks import Check
    from delta_cdc.core.spec import BatchSpec, JobResult

    Table = Callable[[str], str]

FEED = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
EVENT = "k int, v string, n int, op string, s long"
LOG: dict[str, Any] = {
    "source_kind": "change_log",
    "keys": ["k"],
    "sequence_by": "s",
    "apply_as_deletes": "op = 'D'",
    "apply_as_truncates": "op = 'T'",
    "except_column_list": ["op", "s"],
}


def do(spark: SparkSession, *statements: str) -> None:
    """Run statements."""
    for statement in statements:
        spark.sql(statement)


def put(spark: SparkSession, table: str, *rows: tuple[Any, ...], schema: str = EVENT) -> None:
    """Append rows."""
    spark.createDataFrame(list(rows), schema).write.format("delta").mode("append").save(table)


class Targets:
    """Targets by the names of their pipelines."""

    def __init__(self, spark: SparkSession, tmp_table: Table) -> None:
        self.spark = spark
        self.path = tmp_table
        self.made: dict[str, tuple[str, dict[str, Any]]] = {}
        #: What happens when the logs have been looked at, and the rows have not.
        self.meanwhile: Callable[[], None] = lambda: None

    def add(self, name: str, source: str, **options: Any) -> None:
        """Declare a target; :meth:`run` fills it."""
        self.made[name] = (source, options)

    def target(self, name: str) -> str:
        """Return where a target lies."""
        return self.path(f"target_{name}")

    def run(self, *names: str, **more: Any) -> None:
        """Bring some targets, or all, up to their sources."""
        for name in names or tuple(self.made):
            source, options = self.made[name]
            given = grouped({**options, **more})
            apply_changes(self.spark, source, self.target(name), pipeline=name, **given)

    def checks(self, *names: str, **more: Any) -> dict[str, dict[str, Check]]:
        """Verify some targets, or all: their checks by name.

        :param more: of a target, by its name: what else is asked
        """
        asked = names or tuple(self.made)
        requests = [
            VerifyRequest(pipeline=name, target=self.target(name), **more.get(name, {})) for name in asked
        ]
        found = run_verify(requests, execute=partial(self._execute))
        for one in found:
            if one.error is not None:
                raise one.error
        return {one.pipeline: {check.check: check for check in one.checks} for one in found}

    def _execute(self, spec: BatchSpec) -> JobResult:
        self.meanwhile()
        return job.run(self.spark, spec)


def findings(checks: dict[str, Check]) -> dict[str, tuple[int, set[str]]]:
    """Return what was found: how much, and the samples."""
    return {
        name: (check.count, set(check.samples)) for name, check in checks.items() if check.status == "finding"
    }


def expect_healthy(found: dict[str, dict[str, Check]], *, incomparable: tuple[str, ...] = ()) -> None:
    """Expect no finding, and a comparison with the source wherever there can be one."""
    wrong = {name: findings(checks) for name, checks in found.items()}
    assert not any(wrong.values()), wrong
    skipped = {
        name: checks["equals_source"].detail
        for name, checks in found.items()
        if checks["equals_source"].status != "ok"
    }
    assert set(skipped) == set(incomparable), skipped
