"""Two runs at once, placed by hooks: only the seal decides, and it decides rightly."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time.context import OutletEventAccessors
from delta.exceptions import ConcurrentTransactionException

from airflow_delta_cdc.assets import pipeline_alias
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from delta_cdc import VersionRange, job
from delta_cdc.core import errors
from delta_cdc.spark.sealed import commit
from delta_cdc.spark.sealed.commit import is_conflict
from tests.support.holding import Gate, Running, hooked
from tests.support.world import expected, held, ranges, sealed_counts, seals, summed
from tests.unit.airflow.test_apply_operator import AssetStores
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.world import Source

    Apply = Callable[..., Outcome]

POINTS = ("planned", "before_commit")


def overlapping(apply: Apply, scd: int, point: str) -> tuple[Any, Any]:
    """Run (10, 20] from plan to commit while (10, 30], planned before it, is held at ``point``."""
    gate = Gate(point, thread="longer")
    with hooked(gate):
        longer = Running(partial(apply, scd, ending_version=30), "longer")
        gate.wait()
        shorter = Running(partial(apply, scd, ending_version=20), "shorter")
        shorter.join()
        gate.open()
        longer.join()
    return shorter, longer


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_a_run_planned_on_an_old_watermark_plans_again(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    point: str,
) -> None:
    through(scd, 10)
    shorter, longer = overlapping(apply, scd, point)
    assert shorter.result().versions == VersionRange(11, 20)
    result = longer.result()
    assert result.applied
    assert result.watermark.version == 30
    # The loser's own range would have been 11-30; what it did is what was left.
    assert ranges(target)[1:] == [(11, 20), (21, 30)]
    assert held(spark, target, scd) == expected(source, scd, 10)


@pytest.mark.slow
def test_without_the_seal_the_same_schedule_fails(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    through(scd, 10)

    @contextmanager
    def unsealed(session: object, seal: object) -> Iterator[None]:
        yield

    monkeypatch.setattr(commit, "sealed", unsealed)
    shorter, longer = overlapping(apply, scd, "planned")
    with pytest.raises(errors.OutcomeUnknown):
        shorter.result()
    # It inserts a key that the other run has inserted: without this check, the rows would be wrong.
    with pytest.raises(errors.KeyNotUnique):
        longer.result()
    assert held(spark, target, scd) != expected(source, scd, 10)


@pytest.mark.parametrize("runs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_the_same_apply_several_times_at_once(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    scd: int,
    through: Callable[..., None],
    runs: int,
) -> None:
    through(scd, 10)
    results = at_once(apply, scd, runs, ending_version=30)
    assert ranges(target)[1:] == [(11, 30)]
    assert {result.watermark.version for result in results} == {30}
    assert held(spark, target, scd) == expected(source, scd, 10)
    assert_told_once(results, sealed_counts(target)[1:])


@pytest.mark.parametrize("runs", [2, pytest.param(4, marks=pytest.mark.slow)])
def test_several_initial_loads_at_once(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int, runs: int
) -> None:
    results = at_once(apply, scd, runs)
    assert [seal["step"]["kind"] for seal in seals(target)] == ["load"]
    assert {result.watermark.version for result in results} == {30}
    assert held(spark, target, scd) == expected(source, scd, 30)
    assert_told_once(results, sealed_counts(target))


@pytest.mark.slow
def test_two_loads_into_an_existing_empty_table(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    spark.sql(f"CREATE TABLE delta.`{target}` (id BIGINT, name STRING, amount BIGINT) USING delta")
    results = at_once(apply, 1, 2)
    assert [seal["step"]["kind"] for seal in seals(target)] == ["load"]
    assert held(spark, target) == expected(source, 1, 30)
    assert_told_once(results, sealed_counts(target))


@pytest.mark.slow
@pytest.mark.parametrize("given", [{"run_id": "nightly"}, {}], ids=["one has a name", "none has"])
def test_a_range_in_several_commits_twice_at_once(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    through: Callable[..., None],
    given: dict[str, str],
) -> None:
    """Whoever makes a commit counts it, and nobody else; all commits are told."""
    through(1, 10)
    asked: dict[str, Any] = {"ending_version": 30, "versions_per_commit": 10}
    results = runs_at_once(lambda n: apply(1, **asked, **({} if n else given)), 2)
    made = sealed_counts(target)[1:]
    assert len(made) > 1
    assert summed(result.counts for result in results if result.applied) == summed(made)
    assert [result.counts for result in results if not result.applied] in ([], [{}])
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reload", "repair", "reset"])
def test_what_is_computed_again_twice_at_once(
    spark: SparkSession, source: Source, target: str, apply: Apply, through: Callable[..., None], mode: str
) -> None:
    """The one that loses does its own work after the other; each tells its own commit."""
    through(1, 10)
    before = held(spark, target)
    asked: dict[str, Any] = {"starting_version": 5, "ending_version": 10} if mode == "repair" else {}
    results = at_once(apply, 1, 2, mode=mode, **asked)
    made = sealed_counts(target)[1:]
    assert {result.target_version for result in results} == {seal["at"] for seal in seals(target)[1:]}
    assert summed(result.counts for result in results) == summed(made)
    assert held(spark, target) == (before if mode == "repair" else expected(source, 1, 30))


@pytest.mark.slow
def test_two_tasks_with_one_run_id_announce_once(
    spark: SparkSession,
    source: Source,
    target: str,
    through: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Runs of two DAGs have one id where their logical dates are the same."""
    through(1, 10)
    monkeypatch.setattr(DeltaApplyChangesOperator, "run_job", lambda _, __, spec: job.run(spark, spec))
    contexts = [context("hourly", "apply"), context("daily", "apply"), context("daily", "apply_too")]

    def run(number: int) -> dict[str, Any]:
        task = DeltaApplyChangesOperator(
            task_id=contexts[number]["ti"].task_id,
            pipeline="flow",
            source=source.path,
            target=target,
            keys=["id"],
        )
        return task.execute(contexts[number])

    results = runs_at_once(run, len(contexts))
    assert sum(result["applied"] for result in results) == 1
    assert summed(result["counts"] for result in results) == summed(sealed_counts(target)[1:])
    announced = [
        event
        for given in contexts
        for event in given["outlet_events"][pipeline_alias("flow")].asset_alias_events
    ]
    assert len(announced) == 1
    assert held(spark, target) == expected(source, 1, 10)


def context(dag_id: str, task_id: str) -> Any:
    """Return what the task of one DAG is executed with; all have the same run id."""
    pushes: dict[str, Any] = {"xcom_push": lambda **_: None}
    return {
        "ti": SimpleNamespace(dag_id=dag_id, task_id=task_id, map_index=-1, **pushes),
        "run_id": "scheduled__2026-01-01T00:00:00+00:00",
        "task_state_store": Store(),
        "asset_state_store": AssetStores(),
        "outlet_events": OutletEventAccessors(),
    }


def assert_told_once(results: list[Outcome], made: list[dict[str, int]]) -> None:
    """One run says that it applied something, with the counts of the one commit; the others say nothing."""
    assert len(made) == 1
    assert [result.applied for result in results].count(True) == 1
    for result in results:
        assert result.counts == (made[0] if result.applied else {})
        assert result.applied == (result.versions is not None)


def at_once(apply: Apply, scd: int, runs: int, **arguments: Any) -> list[Outcome]:
    """Start ``runs`` applies; none goes past its plan before all have made theirs."""
    return runs_at_once(lambda _: apply(scd, **arguments), runs)


def runs_at_once(run: Callable[[int], Any], runs: int) -> list[Any]:
    """Start ``runs`` runs; none goes past its plan before all have made theirs."""
    gates = [Gate("planned", thread=f"run {n}") for n in range(runs)]
    with hooked(*gates):
        threads = [Running(partial(run, n), f"run {n}") for n in range(runs)]
        for gate in gates:
            gate.wait()
        for gate in gates:
            gate.open()
        return [thread.result() for thread in threads]


def test_a_lost_race_is_known_by_its_class() -> None:
    """Delta names two metadata domains that clash in a text without its error class."""
    assert is_conflict(
        ConcurrentTransactionException("A conflicting metadata domain delta.clustering is added.")
    )
    assert is_conflict(RuntimeError("io.delta.exceptions.ConcurrentWriteException: another writer"))
    assert not is_conflict(RuntimeError("A conflicting metadata domain"))
