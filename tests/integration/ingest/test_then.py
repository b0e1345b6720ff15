"""Ingest and apply: in one application, missing is not null, rows without keys, many tables at once."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import __main__ as driver
from delta_cdc import apply_changes, job
from delta_cdc.core.change_log import DESCRIPTION, LOG_COLUMNS
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest, IngestRequest
from delta_cdc.core.spec import BatchSpec, JobResult, sha256, to_json
from delta_cdc.core.watermark import TableVersion
from delta_cdc.job import apply_after
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import ingest_options, requests
from delta_cdc.spark import written_rows
from delta_cdc.spark.ingest import engine
from delta_cdc.spark.sealed.commit_files import commit_hash
from tests.support.deliveries import Deliveries, event
from tests.support.holding import Gate, Running, hooked
from tests.support.rows_in_hand import noted
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.batch import PipelineResult
    from delta_cdc.run.outcomes import Outcome


def asked(flow: Deliveries, scd: int = 1) -> ApplyRequest:
    return ApplyRequest(
        pipeline="apply",
        source=flow.log,
        target=str(flow.folder / f"target{scd}"),
        options=ApplyOptions(
            keys=("id",),
            source_kind="change_log",
            stored_as_scd_type=scd,
            sequence_by="_sequence",
            apply_as_deletes="_op = 'delete'",
            columns_to_update="_columns",
            except_column_list=(*LOG_COLUMNS, "seq"),
        ),
    )


def both(flow: Deliveries, scd: int) -> tuple[Outcome, int]:
    """Ingest, and apply in the same application; also return how many applications that took."""
    applications = []

    def execute(spec: Any) -> JobResult:
        applications.append(spec)
        return job.run(flow.spark, spec)

    request = IngestRequest(
        pipeline="flow", source=str(flow.source), log=flow.log, options=flow.planned().options
    )
    return run(replace(request, after=(asked(flow, scd),)), Services(execute=execute)), len(applications)


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_missing_is_not_null(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", [event("I", 1, 1, name="a", amount=1), event("I", 1, 2, name="b", amount=5)])
    done, applications = both(flow, scd)
    assert ([one.status for one in done.then], applications) == (["committed"], 1)
    flow.deliver("b.json", [event("U", 2, 1, amount=2), event("U", 4, 1, name=None), event("D", 3, 2)])
    done, applications = both(flow, scd)
    assert ([one.status for one in done.then], applications) == (["committed"], 1)
    names = ("id", "name", "amount", *(("__START_AT", "__END_AT") if scd == 2 else ()))
    found = sorted((tuple(row[n] for n in names) for row in flow.rows(f"target{scd}")), key=repr)
    if scd == 1:
        assert found == [(1, None, 2)]
    else:
        assert found == [(1, "a", 1, 1, 2), (1, "a", 2, 2, 4), (1, None, 2, 4, None), (2, "b", 5, 1, 3)]


@pytest.mark.slow
@pytest.mark.parametrize("scd", slow_but([1, 2], 1))
def test_the_apply_uses_the_rows_that_its_ingest_wrote(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scd: int
) -> None:
    """A second pipeline reads the same events from the log's files, and its target gets the same rows."""
    taken = noted(monkeypatch)
    flow = Deliveries(spark, tmp_path)
    nested = {"deep": {"x": 1, "list": [1, None]}, "number": 12.5, "time": "2024-02-30"}
    first = [event("I", key, key, name=f"n{key}", amount=key, **nested) for key in range(8)]
    later = [
        [event("U", 20 + key, key, name=None, amount=-key, deep={"y": "\u00e9 \x00"}) for key in range(5)],
        # A later event of a key, an event that is late by now, a delete, a new column.
        [
            *(event("U", 40, 1, name="last"), event("U", 4, 2, name="late", amount=7), event("D", 41, 3)),
            *(event("I", 50, 90, added={"a": [{"b": 0.1}]}), event("U", 52, 90, amount=5)),
        ],
    ]
    flow.deliver("0.json", first)
    both(flow, scd)
    by_itself = str(tmp_path / "by_itself")
    alone = replace(asked(flow, scd), target=by_itself, pipeline="alone")
    assert apply_after(spark, alone).status == "committed"
    for number, events in enumerate(later, 1):
        flow.deliver(f"{number}.json", events)
        done, applications = both(flow, scd)
        assert ([one.status for one in done.then], applications) == (["committed"], 1)
        assert apply_after(spark, alone).status == "committed"
        found, read = (sorted(map(repr, flow.rows(name))) for name in (f"target{scd}", "by_itself"))
        assert found == read
    assert taken == [True] * len(later)
    assert not written_rows._kept


def test_one_application_ingests_a_log_and_applies_it_into_two_targets(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two other pipelines have targets of their own. Both use the rows that the ingest wrote."""
    taken = noted(monkeypatch)
    flow = Deliveries(spark, tmp_path)
    source = str(flow.source)
    options = ingest_options({"source": source, **flow.arguments()})
    ingest = IngestRequest(pipeline="flow", source=source, log=flow.log, options=options)
    appliers = [replace(asked(flow, scd), pipeline=f"type_{scd}") for scd in (1, 2)]
    jobs = [*(PipelineJob(apply=one) for one in appliers), PipelineJob(ingest=ingest)]
    applications: list[list[str]] = []

    def execute(spec: BatchSpec) -> JobResult:
        applications.append([part.pipeline for part in spec.parts])
        return job.run(spark, spec)

    deliveries = [
        [event("I", key, key, name=f"n{key}", amount=key) for key in range(4)],
        [event("U", 10, 1, name="b"), event("D", 11, 2)],
        [event("U", 20, 1, amount=None)],
    ]
    for number, events in enumerate(deliveries):
        flow.deliver(f"{number}.json", events)
        done = run_batch(jobs, Services(execute=execute, say=lambda _: None))
        assert [one.error for one in done] == [None] * 3
        assert [one.applied.applied for one in done if one.applied] == [True, True]
    # First loads are in an application of their own.
    assert applications == [["flow"], ["type_1", "type_2"], ["flow"], ["flow"]]
    current, history = (flow.rows(f"target{scd}") for scd in (1, 2))
    rows = sorted((row["id"], row["name"], row["amount"]) for row in current)
    assert rows == [(0, "n0", 0), (1, "b", None), (3, "n3", 3)]
    of_one = [
        (row["name"], row["amount"], row["__START_AT"], row["__END_AT"]) for row in history if row["id"] == 1
    ]
    assert sorted(of_one, key=lambda row: row[2]) == [
        ("n1", 1, 1, 10),
        ("b", 1, 10, 20),
        ("b", None, 20, None),
    ]
    assert [row["__END_AT"] for row in history if row["id"] == 2] == [11]
    # A load reads the log.
    assert taken == [True] * 4
    assert [one.applied.applied for one in run_batch(jobs, Services(execute=execute)) if one.applied] == [
        False,
        False,
    ]
    assert len(applications) == 4


def test_rows_are_used_for_exactly_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    log, events = str(tmp_path / "log"), spark.range(3).selectExpr("id", "struct(1 AS a) AS s")
    for _ in range(2):
        events.write.format("delta").mode("append").save(log)
    planned = TableVersion("t", 1, commit_hash(spark, log, 1))
    with written_rows.kept(spark, log, 1, events):
        assert written_rows.has_range(spark, log, 1, planned)
        assert written_rows.rows(spark, ["s", "id"]).columns == ["s", "id", "_commit_version"]  # type: ignore[union-attr]
        assert not written_rows.has_range(spark, log, 0, planned)
        assert not written_rows.has_range(spark, log, 1, TableVersion("t", 2, planned.commit_hash))
        assert not written_rows.has_range(spark, log, 1, TableVersion("t", 1, commit_hash(spark, log, 0)))
        assert not written_rows.has_range(spark, log, 1, replace(planned, commit_hash=None))
        assert not written_rows.has_range(spark, str(tmp_path / "other"), 1, planned)
        # The commit merged its struct with that of the log.
        wider = events.selectExpr("id", "struct(1 AS a, 2 AS b) AS s").write.format("delta")
        wider.mode("append").option("mergeSchema", "true").save(log)
        assert written_rows.rows(spark, ["id", "s"]) is None
    assert not written_rows.has_range(spark, log, 1, planned)


@pytest.mark.slow
def test_an_apply_that_fails_or_cannot_run_here(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was ingested stands, and the result says what became of the rest."""
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", [event("I", 1, 1, name="a", amount=1)])
    spark.sql(f"CREATE TABLE delta.`{tmp_path / 'target1'}` USING delta AS SELECT 1 AS other")
    done, _ = both(flow, 1)
    assert done.applied
    (then,) = done.then
    assert then.status == "failed"
    assert then.error is not None
    assert then.error["class"] == "TargetWithoutWatermark"
    assert apply_after(spark, asked(flow, 2)).status == "committed"
    assert apply_after(spark, asked(flow, 2)).status == "skipped"
    monkeypatch.setattr(job, "find_spec", lambda name: None)
    missing = apply_after(spark, asked(flow, 2))
    assert (missing.status, missing.message[:7]) == ("planned", "not run")


@pytest.mark.slow
@pytest.mark.parametrize("point", ["planned", "before_commit"])
def test_two_bundles_at_once(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """Of two runs without a name each counts what its own jobs wrote, into the log and into the target."""
    flow = Deliveries(spark, tmp_path)
    ingest = IngestRequest(
        pipeline="flow",
        source=str(flow.source),
        log=flow.log,
        options=ingest_options({"source": str(flow.source), **flow.arguments()}),
    )
    pipeline_job = PipelineJob(ingest=ingest, apply=asked(flow))

    def both_jobs() -> PipelineResult:
        (done,) = run_batch([pipeline_job], Services(execute=partial(job.run, spark), say=lambda _: None))
        return done

    for number in (1, 2):
        flow.deliver(f"{number}.json", [event("I", number, number, name="a", amount=1)])
        gate = Gate(point)
        with hooked(gate):
            slow = Running(both_jobs, "slow")
            gate.wait()
            fast = both_jobs()
            gate.open()
            found: list[Any] = [fast, slow.result()]
        assert [one.error for one in found] == [None, None]
        assert [one.ingested.applied for one in found].count(True) == 1
        told = [one.applied.counts.get("inserted", 0) for one in found if one.applied.applied]
        assert told == [1]
    assert sorted(row["id"] for row in flow.rows("target1")) == [1, 2]


@pytest.mark.slow
def test_rows_without_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Equal rows of one file are rows of their own; the apply appends them, once."""
    flow = Deliveries(spark, tmp_path, given={"insert_only": True, "keys": None}, adapter_options={})
    flow.given["schema"] = "id BIGINT, name STRING"
    row = {"id": 1, "name": "a"}
    flow.deliver("a.json", [row, row, {"name": "no key"}])
    flow.ingest()
    flow.apply(keys=None, insert_only=True)
    flow.adapter_options = {"operation_column": "op"}
    flow.deliver("b.json", [{"op": "I", **row}, {"op": "D", **row}])
    assert flow.ingest().counts == {"events": 1, "files": 1, "quarantined": 1}
    assert flow.quarantined()[0][0] == "delete of a source that is insert_only"
    flow.apply(keys=None, insert_only=True)
    assert not flow.apply(keys=None, insert_only=True).applied
    wanted = [{"id": 1, "name": "a"}] * 3 + [{"id": None, "name": "no key"}]
    assert sorted(flow.rows("target"), key=repr) == wanted


def test_parts_of_one_application(
    spark: SparkSession, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each part has a result of its own, that outlives the application; one that fails stops no other."""
    flows = [Deliveries(spark, tmp_path / str(number)) for number in range(3)]
    for number, flow in enumerate(flows):
        flow.deliver("a.json", [event("I", 1, number, name="a", amount=1)])
    flows[1].given = {"keys": ["nokey"]}
    bundle = BatchSpec(run_id="r", parts=tuple(flow.planned() for flow in flows))
    text, result = to_json(bundle), tmp_path / "result.json"
    (tmp_path / "spec.json").write_text(text)

    class Driver:
        session = spark

    left: list[JobResult] = []

    def look(point: str) -> None:
        if point == "started" and result.exists():
            left.append(JobResult.from_json(result.read_text()))

    write = partial(driver._write, result)
    with hooked(look), caplog.at_level("INFO", logger="delta_cdc"):
        spec = str(tmp_path / "spec.json")
        done = driver._run(Driver(), spec, sha256(text), write, is_local=True)  # type: ignore[arg-type]
    assert (done.status, [part.status for part in done.parts]) == (
        "committed",
        ["committed", "failed", "committed"],
    )
    assert done.parts[1].error is not None
    assert done.parts[1].error["class"] == "ColumnNotFound"
    assert [flow.events() != [] for flow in flows if (flow.folder / "log").exists()] == [True, True]
    # Had the application died then, this is what there would have been to read.
    assert [[part.status for part in found.parts] for found in left] == [
        ["committed", "unreached", "unreached"],
        ["committed", "failed", "unreached"],
    ]
    assert [found.status for found in left] == ["failed", "failed"]
    assert ["ended after 1 of 3" in left[0].message, "ended after 2 of 3" in left[1].message] == [True, True]
    assert "flow: table 2 of 3" in caplog.text
    assert json.loads(done.to_json())["parts"][0]["counts"]["events"] == 1


@pytest.mark.slow
def test_an_apply_reads_in_parts_of_its_own(spark: SparkSession, tmp_path: Path) -> None:
    """One task reads a CSV file; what follows in the same session is not split by the size of that file."""
    names = ("spark.sql.files.maxPartitionBytes", "spark.sql.files.minPartitionNum")
    flow = Deliveries(spark, tmp_path, format="csv")
    flow.deliver("a.csv", [event("I", 1, 1, name="a", amount=1)])
    after: list[str | None] = []

    def then(session: SparkSession) -> JobResult:
        after.extend(session.conf.get(name, None) for name in names)
        return JobResult("committed")

    assert engine.run(spark, flow.planned(), after=[then]).then == (JobResult("committed"),)
    assert after == [spark.conf.get(name, None) for name in names]


@pytest.mark.slow
def test_parts_side_by_side(spark: SparkSession, tmp_path: Path) -> None:
    """All of them are about to commit at the same moment, and each commit carries its own seal alone."""
    flows = [Deliveries(spark, tmp_path / f"t{number}") for number in range(3)]
    for number, flow in enumerate(flows):
        flow.deliver("a.json", [event("I", 1, number, name=f"of {number}", amount=1)])
    specs = [replace(flow.planned(), pipeline=f"side {at}", run_id=f"r{at}") for at, flow in enumerate(flows)]
    together, seen = threading.Barrier(3, timeout=120), []

    def meet(point: str) -> None:
        if point == "before_commit":
            together.wait()
        seen.append((point, threading.get_ident()))

    with hooked(meet):
        done = job.run(spark, BatchSpec(run_id="r", parts=tuple(specs), parallel=3))
    assert [part.status for part in done.parts] == ["committed"] * 3
    assert len({thread for point, thread in seen if point == "committed"}) == 3
    for at, flow in enumerate(flows):
        folder = flow.folder / "log" / "_delta_log"
        (commit,) = [text for text in _commits(folder) if '"txn"' in text]
        assert [f"side {other}" in commit for other in range(3)] == [other == at for other in range(3)]
        assert [name for *_, name, _ in flow.events()] == [f"of {at}"]
    leaked = [
        name for name in dict(spark.conf.getAll) if "txn" in name.lower() or "usermetadata" in name.lower()
    ]
    assert leaked == []


def _commits(folder: Path) -> list[str]:
    return [file.read_text() for file in sorted(folder.glob("*.json"))]


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_log_is_applied_by_hand_with_keys_alone(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    flow = Deliveries(spark, tmp_path, given={"schema": "id INT, name STRING, amount INT"})
    given = {"keys": ["id"], "stored_as_scd_type": scd}
    flow.deliver("a.json", [event("I", 1, 1, name="a", amount=1), event("I", 1, 2, name="b", amount=5)])
    by_hand = str(tmp_path / "by_hand")
    for _ in range(2):
        asked = {**flow.arguments(**given), "source": str(flow.source), "log": flow.log}
        batch, apply = requests({**asked, "target": str(tmp_path / "target"), "pipeline": "all"})
        assert batch is not None
        assert apply is not None
        assert run(replace(batch, after=(apply,)), Services(execute=partial(job.run, spark))).then
        assert apply_changes(spark, flow.log, by_hand, **given).applied  # type: ignore[arg-type]
        flow.deliver("b.json", [event("U", 2, 1, amount=2), event("U", 4, 1, name=None), event("D", 3, 2)])
    columns = spark.read.format("delta").load(by_hand).columns
    assert not {"_op", "_sequence", "_columns", "_position"} & set(columns)
    same = [sorted(map(repr, flow.rows(name))) for name in ("target", "by_hand")]
    assert same[0] == same[1]


@pytest.mark.slow
def test_a_log_without_its_properties_is_not_taken_for_a_table(spark: SparkSession, tmp_path: Path) -> None:
    """A process can die between the first commit of a log and the commit with its properties."""
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", [event("I", 1, 1, name="a", amount=1)])
    flow.ingest()
    names = ", ".join(f"'{name}'" for name in DESCRIPTION)
    spark.sql(f"ALTER TABLE delta.`{flow.log}` UNSET TBLPROPERTIES ({names})")
    with pytest.raises(InvalidConfiguration, match="source_kind is missing"):
        flow.apply()
    flow.deliver("b.json", [event("U", 2, 1, amount=2)])
    flow.ingest()
    assert flow.apply().counts["inserted"] == 1


def test_a_plain_table_of_events_needs_its_order(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "events"), str(tmp_path / "rows")
    spark.sql("SELECT 1 AS id, 1 AS _sequence, 'delete' AS _op").write.format("delta").save(source)
    with pytest.raises(InvalidConfiguration, match="sequence_by is missing"):
        apply_changes(spark, source, target, source_kind="change_log", keys=["id"])
    apply_changes(spark, source, target, keys=["id"])
    assert spark.read.format("delta").load(target).columns == ["id", "_sequence", "_op"]
