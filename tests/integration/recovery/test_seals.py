"""Milestones and seals without rows, in real tables: re-sealing, the backup, declared state, adoption."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc import VersionRange
from delta_cdc.core import errors
from delta_cdc.core.commit_safety import SINGLE_DRIVER_CONF
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import confs_for_a_moment
from tests.support.holding import hooked, once
from tests.support.slow import slow_but
from tests.support.started_with import started_with
from tests.support.world import Source, commits, expected, held, listing, ranges, seals

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import ApplySpec, JobResult
    from delta_cdc.run.outcomes import Outcome

    Apply = Callable[..., Outcome]
    Through = Callable[..., None]

DAYS = 86_400


def commit_file(table: str, version: int) -> Path:
    return Path(table, "_delta_log", f"{version:020}.json")


def age(table: str, days: float) -> None:
    """Make every commit of a table look as old as that; the order of commits stays."""
    for number, file in enumerate(sorted(Path(table, "_delta_log").glob("*.json"))):
        moment = time.time() - days * DAYS + number
        os.utime(file, (moment, moment))


def no_rows(target: str, version: int) -> bool:
    return not any(kind in action for action in commits(target)[version] for kind in ("add", "remove", "cdc"))


# -- milestones -----------------------------------------------------------------------------------
@pytest.mark.slow
def test_milestones(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    through(scd, 15)
    result = apply(scd, versions_per_commit=6)
    assert (result.versions, result.target_version) == (VersionRange(16, 30), seals(target)[-1]["at"])
    assert ranges(target)[-3:] == [(16, 21), (22, 27), (28, 30)]
    assert held(spark, target, scd) == expected(source, scd, 15)


class Killed(BaseException):
    """A driver that is gone: nothing is said, nothing tidied."""


@pytest.mark.slow
def test_killed_between_milestones(
    through: Through, spark: SparkSession, source: Source, target: str, scd: int
) -> None:
    """The retry goes on behind the last commit and publishes the whole range; no row is applied twice."""
    from delta_cdc import job

    through(scd, 15)
    request = ApplyRequest(
        pipeline="flow",
        source=source.path,
        target=target,
        options=ApplyOptions(keys=("id",), stored_as_scd_type=scd),
        versions_per_commit=6,
        run_id="r",
    )
    saved_plans, reached = PlansInMemory(), []

    def kill(point: str) -> None:
        reached.append(point)
        if reached.count("before_commit") == 2:
            raise Killed

    def execute(spec: ApplySpec) -> JobResult:
        return job.run(spark, spec)

    with hooked(kill), pytest.raises(Killed):
        run(request, Services(execute=execute, saved_plans=saved_plans))
    assert ranges(target)[-1] == (16, 21)
    result = run(request, Services(execute=execute, saved_plans=saved_plans))
    assert ranges(target)[-3:] == [(16, 21), (22, 27), (28, 30)]
    assert result.versions == VersionRange(16, 30)
    assert held(spark, target, scd) == expected(source, scd, 15)


@pytest.mark.slow
def test_restored_under_the_first_milestone(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """The seal of the second one would hide it: nothing is put on top, and the next look names it."""
    through(1, 10, 15)
    older = seals(target)[0]["at"]

    def restore() -> None:
        spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {older}").collect()

    with hooked(once("before_commit", restore)), pytest.raises(errors.TargetChangedUnderneath) as error:
        apply(versions_per_commit=8)
    version = int(error.value.remedy.split("RESTORE the target to version ")[1].split(",")[0])
    spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {version}").collect()
    assert apply(versions_per_commit=8).versions == VersionRange(11, 30)
    assert held(spark, target) == expected(source, 1, 10)


@pytest.mark.slow
def test_put_back_from_a_copy_under_a_reset(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, tmp_path: Path
) -> None:
    """The copy is older than the version that the job was planned on: the job stops, and plans again."""
    through(1, 10)
    log, copy = Path(target) / "_delta_log", tmp_path / "copy"
    shutil.copytree(log, copy)
    for number in (1, 2):
        spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('number' = '{number}')")

    def put_back() -> None:
        shutil.rmtree(log)
        shutil.copytree(copy, log)
        spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    with hooked(once("before_commit", put_back)):
        assert apply(mode="reset", starting_version=21).applied
    assert held(spark, target) == expected(source, 1, 30)


# -- re-sealing -----------------------------------------------------------------------------------
@pytest.mark.slow
def test_an_idle_pipeline_seals_anew(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    """A source that is only OPTIMIZEd must not run away from its watermark."""
    through(scd, 20)
    apply(scd)
    spark.sql(f"OPTIMIZE delta.`{source.path}`").collect()
    source.states.append(dict(source.states[-1]))
    before = listing(target)
    assert not apply(scd).applied
    assert listing(target) == before
    age(target, 4)
    result = apply(scd)
    assert (result.applied, result.versions) == (False, None)
    last = seals(target)[-1]
    assert (last["step"]["kind"], last["state"]["applied_to"]["version"], result.seal) == (
        "renew",
        31,
        last["number"],
    )
    assert no_rows(target, last["at"])
    assert seals(target)[-2]["state"]["configuration"] == last["state"]["configuration"]
    assert seals(target)[-2]["state"]["highest_sequence"] == last["state"]["highest_sequence"]
    # What comes after stands on the new seal.
    source.update(spark, {1: ("after", 1)})
    assert apply(scd).versions == VersionRange(32, 32)
    assert held(spark, target, scd) == expected(source, scd, 20)


# -- the backup -----------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_cleaned_log_and_the_copy_of_its_seal(
    through: Through, spark: SparkSession, source: Source, target: str
) -> None:
    """The sealed commit left the log; the txn in the checkpoint and the copy prove together."""
    from deltalake import DeltaTable

    from delta_cdc import job

    through(1, 15)
    request = ApplyRequest(
        pipeline="flow",
        source=source.path,
        target=target,
        options=ApplyOptions(keys=("id",)),
        ending_version=20,
    )

    def execute(spec: ApplySpec) -> JobResult:
        return job.run(spark, spec)

    kept = run(request, Services(execute=execute)).backup
    sealed = seals(target)[-1]["at"]
    spark.sql(f"OPTIMIZE delta.`{target}`").collect()
    DeltaTable(target).create_checkpoint()
    spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('a' = 'b')")
    for version in range(sealed + 1):
        commit_file(target, version).unlink()
    before = listing(target)
    with pytest.raises(errors.WatermarkExpired):
        run(request, Services(execute=execute))
    assert listing(target) == before
    whole = ApplyRequest(
        pipeline="flow", source=source.path, target=target, options=ApplyOptions(keys=("id",))
    )
    assert run(whole, Services(execute=execute, backup=lambda: kept)).versions == VersionRange(21, 30)
    assert held(spark, target) == expected(source, 1, 15)


# -- declared state -------------------------------------------------------------------------------
def hand_made(spark: SparkSession, source: Source, target: str, at: int, scd: int) -> None:
    """Copy the source as it was at a version, as somebody without this package would have done."""
    rows = spark.read.format("delta").option("versionAsOf", at).load(source.path)
    if scd == 2:
        rows = rows.selectExpr("*", f"CAST({at} AS BIGINT) AS __START_AT", "CAST(NULL AS BIGINT) AS __END_AT")
    rows.write.format("delta").save(target)


@pytest.mark.parametrize("scd", slow_but([1, 2], 2), ids=["scd1", "scd2"])
def test_a_target_made_by_hand_goes_on_from_its_version(
    spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    hand_made(spark, source, target, 18, scd)
    before = listing(target)
    with pytest.raises(errors.TargetWithoutWatermark, match="none_at"):
        apply(scd)
    assert listing(target) == before
    assert apply(scd, initial_load={"none_at": 18}).versions == VersionRange(19, 30)
    assert held(spark, target, scd) == expected(source, scd, 18)
    adopted = seals(target)[0]
    assert (adopted["step"]["kind"], adopted["state"]["applied_to"]["version"]) == ("baseline", 18)
    assert no_rows(target, adopted["at"])
    if scd == 2:
        assert adopted["state"]["highest_sequence"] == "18"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ("0 AS valid_from, 9 AS valid_to, true AS is_current", "valid_from is int, not bigint"),
        ("0L AS valid_from, 9L AS valid_to, 1 AS is_current", "'is_current' of the target .* is int, and"),
        ("0L AS valid_from, 9L AS valid_to, 'Y' AS is_current", "'is_current' of .* is string, and"),
    ],
)
def test_a_history_made_by_hand_with_another_type_is_refused(
    spark: SparkSession, source: Source, target: str, apply: Apply, columns: str, text: str
) -> None:
    rows = spark.read.format("delta").option("versionAsOf", 18).load(source.path)
    rows.selectExpr("*", *columns.split(", ")).write.format("delta").save(target)
    before = listing(target)
    names = {"start_column": "valid_from", "end_column": "valid_to", "current_column": "is_current"}
    with pytest.raises((errors.TargetSchemaClash, errors.ConfigurationDrift), match=text) as found:
        apply(2, initial_load={"none_at": 18}, layout={**names, "end_value": "9"})
    assert found.value.remedy
    assert listing(target) == before


@pytest.mark.slow
@pytest.mark.parametrize(
    ("start", "end", "order", "text"),
    [
        (
            "0L",
            "9999L",
            None,
            "No row of .* is open: VALID_TO is NULL in none; the greatest VALID_TO is 9999",
        ),
        (
            "DATE'2026-01-01'",
            "DATE'9999-12-31'",
            "CAST(_commit_timestamp AS DATE)",
            "No row of .* is open: VALID_TO is NULL in none; the greatest VALID_TO is 9999-12-31",
        ),
        (
            "TIMESTAMP'2026-01-01'",
            "if(id < 50, TIMESTAMP'9999-12-31', NULL)",
            "_commit_timestamp",
            r"\d+ row\(s\) of .* end more than a year from now; the greatest VALID_TO is 9999-12-31",
        ),
    ],
    ids=["version", "date", "some in the future"],
)
@pytest.mark.parametrize("flag", [{}, {"current_column": "is_current"}], ids=["", "flag"])
def test_a_history_made_by_hand_ends_open_rows_with_a_value(
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    start: str,
    end: str,
    order: str | None,
    text: str,
    flag: dict[str, str],
) -> None:
    """Taken for closed rows, each key would get a second open one."""
    rows = spark.read.format("delta").option("versionAsOf", 18).load(source.path)
    rows = rows.selectExpr("*", f"{start} AS valid_from", f"{end} AS valid_to", "true AS is_current")
    rows.write.format("delta").save(target)
    before = listing(target)
    names = {"start_column": "valid_from", "end_column": "VALID_TO", **flag}
    more = {} if order is None else {"sequence_by": order, "delete_sequence": order}
    with pytest.raises(errors.TargetSchemaClash, match=text) as found:
        apply(2, initial_load={"none_at": 18}, layout=names, **more)
    assert "end_value" in found.value.remedy
    assert listing(target) == before


@pytest.mark.slow
def test_a_target_that_is_to_hold_changes_only(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    result = apply(initial_load="none")
    assert (result.applied, result.versions) == (False, None)
    assert held(spark, target) == []
    source.insert(spark, {77: ("new", 7)})
    assert apply(initial_load="none").versions == VersionRange(31, 31)
    assert held(spark, target) == [(77, "new", 7)]


def test_a_declared_target_with_other_columns_is_refused(
    spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    spark.sql("SELECT 'x' AS id, 1 AS name").write.format("delta").save(target)
    before = listing(target)
    with pytest.raises(errors.TargetSchemaClash):
        apply(initial_load="none")
    assert listing(target) == before


# -- adoption -------------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_renamed_pipeline_takes_its_target_along(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply, scd: int
) -> None:
    through(scd, 15, 20)
    with pytest.raises(errors.TargetWithoutWatermark, match="seals of other pipelines: flow"):
        apply(scd, pipeline="renamed")
    result = apply(scd, pipeline="renamed", take_over_from="flow")
    assert (result.applied, result.versions) == (True, VersionRange(21, 30))
    assert held(spark, target, scd) == expected(source, scd, 15)
    closing, (opening, work) = seals(target)[-1], seals(target, "renamed")
    assert (closing["successor"], closing["state"]["applied_to"]["version"]) == ("renamed", 20)
    assert closing["at"] < opening["at"] < work["at"]
    before = listing(target)
    with pytest.raises(errors.PipelineTakenOver, match="renamed"):
        apply(scd)
    assert listing(target) == before
    assert not apply(scd, pipeline="renamed", take_over_from="flow").applied
    assert listing(target) == before


@pytest.mark.slow
@pytest.mark.parametrize("commits_before", [0, 1, 2], ids=["none", "closed", "adopted"])
def test_an_adoption_that_is_killed_is_finished(
    through: Through,
    spark: SparkSession,
    source: Source,
    target: str,
    apply: Apply,
    commits_before: int,
) -> None:
    through(1, 15, 20)
    reached: list[str] = []

    def kill(point: str) -> None:
        reached.append(point)
        if reached.count("before_commit") == commits_before + 1:
            raise Killed

    with hooked(kill), pytest.raises(Killed):
        apply(pipeline="renamed", take_over_from="flow")
    result = apply(pipeline="renamed", take_over_from="flow")
    assert result.versions == VersionRange(21, 30)
    kinds = [seal["step"]["kind"] for seal in seals(target, "renamed")]
    assert kinds == ["take_over", "apply"]
    assert [seal["step"]["kind"] for seal in seals(target)].count("take_over") == 1
    assert held(spark, target) == expected(source, 1, 15)


@pytest.mark.slow
def test_two_adopt_at_once(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """One plans, the other adopts and applies; the first one's plan must not set the watermark back."""
    through(1, 15, 20)
    done: list[Outcome] = []

    def overtake() -> None:
        done.append(apply(pipeline="renamed", take_over_from="flow", run_id="other"))

    with hooked(once("started", overtake)):
        late = apply(pipeline="renamed", take_over_from="flow", run_id="this")
    assert done[0].versions == VersionRange(21, 30)
    assert not late.applied
    assert [seal["state"]["applied_to"]["version"] for seal in seals(target, "renamed")] == [20, 30]
    assert held(spark, target) == expected(source, 1, 15)


@pytest.mark.slow
def test_restored_to_before_its_adoption(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    through(1, 15, 20)
    apply(pipeline="renamed", take_over_from="flow")
    back = next(seal["at"] for seal in seals(target) if seal["state"]["applied_to"]["version"] == 15)
    spark.sql(f"RESTORE TABLE delta.`{target}` TO VERSION AS OF {back}").collect()
    with pytest.raises(errors.TargetWithoutWatermark):
        apply(pipeline="renamed")
    assert apply(pipeline="renamed", take_over_from="flow").versions == VersionRange(16, 30)
    assert held(spark, target) == expected(source, 1, 15)


# -- one driver -----------------------------------------------------------------------------------
def test_the_log_store_of_a_session_does_nothing(spark: SparkSession, tmp_path: Path) -> None:
    """The day this fails, Delta looks at a session's confs, and so may we."""
    name = "spark.delta.logStore.file.impl"
    with confs_for_a_moment(spark, {name: "no.such.LogStore"}):
        spark.range(1).write.format("delta").save(str(tmp_path / "as ever"))
    with started_with(spark, name) as tell:
        tell("no.such.LogStore")
        with pytest.raises(Exception, match=r"no\.such\.LogStore"):
            spark.range(1).write.format("delta").save(str(tmp_path / "other"))


@pytest.mark.parametrize("scheme", ["s3a", "s3"])
def test_s3_needs_a_log_store_for_several_drivers(spark: SparkSession, scheme: str) -> None:
    conf = f"spark.delta.logStore.{scheme}.impl"
    uri = f"{scheme}://bucket/table"
    for elsewhere in ("/local/table", "gs://b/t", "abfss://c@a.dfs.core.windows.net/t"):
        refuse_unsafe_log_store(spark, elsewhere, single_driver=False)
    with started_with(spark, conf) as tell:
        tell("")
        with pytest.raises(errors.UnsafeLogStore, match=conf):
            refuse_unsafe_log_store(spark, uri, single_driver=False)
        refuse_unsafe_log_store(spark, uri, single_driver=True)
        with (
            confs_for_a_moment(spark, {conf: "io.delta.storage.S3DynamoDBLogStore"}),
            pytest.raises(errors.UnsafeLogStore, match="in a session, it does nothing"),
        ):
            refuse_unsafe_log_store(spark, uri, single_driver=False)
        tell("io.delta.storage.S3DynamoDBLogStore")
        refuse_unsafe_log_store(spark, uri, single_driver=False)
        # Delta's others are safe where they are at home, and on S3 none of them sends a condition.
        own = ("S3SingleDriverLogStore", "GCSLogStore", "HDFSLogStore", "AzureLogStore", "DelegatingLogStore")
        for name in own:
            tell(f"io.delta.storage.{name}")
            with pytest.raises(errors.UnsafeLogStore, match=name):
                refuse_unsafe_log_store(spark, uri, single_driver=False)


def test_one_driver_is_said_once(
    spark: SparkSession, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_cdc.core.commit_safety._warned", set())
    with started_with(spark, "spark.delta.logStore.s3a.impl") as tell:
        tell("")
        for number in range(3):
            refuse_unsafe_log_store(spark, f"s3a://bucket/{number}", single_driver=True)
    # The promise is for one job; on a disk, it is the log store that asks for it.
    for promise, conf in ((True, "true"), (False, None)):
        refuse_unsafe_log_store(spark, "/local/table", single_driver=promise)
        assert spark.conf.get(SINGLE_DRIVER_CONF, None) == conf
    said = [line for line in caplog.messages if "single_driver" in line]
    assert len(said) == 1
    assert "S3SingleDriverLogStore" in said[0]


@pytest.mark.slow
def test_dropped_and_made_again_by_hand(
    through: Through, spark: SparkSession, source: Source, target: str, apply: Apply
) -> None:
    """A declaration that stays in the DAG speaks of any table that is put there."""
    hand_made(spark, source, target, 18, 1)
    apply(initial_load={"none_at": 18})
    shutil.rmtree(target)
    hand_made(spark, source, target, 18, 1)
    assert apply(initial_load={"none_at": 18}).versions == VersionRange(19, 30)
    assert held(spark, target) == expected(source, 1, 18)
