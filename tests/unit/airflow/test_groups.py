"""The tasks of a group, one by one: what they hand each other, and what each answers."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pendulum
import pyarrow as pa
import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time.context import OutletEventAccessors
from airflow.sdk.log import mask_secret
from deltalake import DeltaTable, write_deltalake

from airflow_delta_cdc.assets import delta_asset, group_alias, pipeline_alias
from airflow_delta_cdc.form import asked
from airflow_delta_cdc.groups import xcoms
from airflow_delta_cdc.groups.base import WorkSavedPlans, arguments_of_run, takes_source
from airflow_delta_cdc.groups.detect_changes import DetectChangesOperator
from airflow_delta_cdc.groups.publish import PublishOperator
from airflow_delta_cdc.groups.run_spark import RunSparkOperator
from airflow_delta_cdc.groups.table import ApplyTableOperator
from delta_cdc import published
from delta_cdc.config import load
from delta_cdc.core import codec
from delta_cdc.core.errors import (
    ConfigurationChanged,
    ConfigurationDrift,
    InvalidConfiguration,
    JobFailed,
    LimitExceeded,
    NullKey,
    TableNotFound,
    TablesFailed,
)
from delta_cdc.run.batch import PipelineResult
from delta_cdc.run.detect_changes import DetectedChanges
from delta_cdc.run.outcomes import Effort
from delta_cdc.run.table_arguments import requests
from tests.support.filled import fill
from tests.unit.airflow.test_apply_operator import AssetStores
from tests.unit.airflow.test_base_operator import Store
from tests.unit.airflow.test_ingest_operator import applied, ingested

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from delta_cdc.run.batch import PipelineJob
    from tests.unit.airflow.conftest import Records

PRINT = "f" * 64
#: Ids of two detections.
S1, S2 = "a" * 12, "b" * 12


class Ti:
    """A task instance with XComs of others."""

    def __init__(self, **others: Any) -> None:
        self.pushed: dict[str, Any] = {}
        self.others = others
        self.try_number = 1

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, task_ids: str, key: str = "return_value", map_indexes: int | None = None) -> Any:
        return self.others.get(f"{task_ids}.{key}")


def context(**more: Any) -> Any:
    found = {
        "ti": Ti(),
        "run_id": "r",
        "params": {},
        "task_state_store": Store(),
        "asset_state_store": AssetStores(),
        "outlet_events": OutletEventAccessors(),
    }
    return {**found, **more}


def table(folder: Path, name: str, **more: Any) -> dict[str, Any]:
    source = str(folder / f"{name}_source")
    return {"pipeline": name, "source": source, "target": str(folder / name), "keys": ["id"], **more}


def with_log(name: str, source: str = "/landing", log: str = "/lake/log", **more: Any) -> dict[str, Any]:
    """Return the arguments of a pipeline from files."""
    given = {"source": source, "log": log, "adapter_options": {"sequence_by": "n"}}
    return {"pipeline": name, "target": f"/lake/{name}", "keys": ["id"], **given, **more}


def grow(folder: Path, name: str, *keys: int) -> None:
    data = pa.table({"id": pa.array(keys, pa.int64())})
    properties = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(str(folder / f"{name}_source"), data, mode="append", configuration=properties)


# -- detect_changes -------------------------------------------------------------------------------
def detection(*tables: dict[str, Any], configuration: str = PRINT) -> DetectChangesOperator:
    """Return the task of a DAG of its own, whose other tasks find the tables' arguments there."""
    with DAG("group"):
        return DetectChangesOperator(
            task_id="detect_changes",
            tables=tables,
            pipelines=[one["pipeline"] for one in tables],
            fingerprint=configuration,
        )


def detect(*tables: dict[str, Any], **params: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    task = detection(*tables)
    given = context(params=params)
    work = task.execute(given)
    return json.loads(json.dumps(work)), given["ti"].pushed.get("tables")


@pytest.fixture
def lake(tmp_path: Path) -> list[dict[str, Any]]:
    """A quiet table, and one with work."""
    made = [table(tmp_path, name) for name in ("quiet", "busy")]
    for one in made:
        grow(tmp_path, one["pipeline"], 1)
        fill(one)
    grow(tmp_path, "busy", 2)
    return made


def test_an_unknown_lag_stops_no_remedy(lake: list[dict[str, Any]], tmp_path: Path) -> None:
    """A commit after the watermark is gone: a reload is the remedy, so its table has to be handed on."""
    grow(tmp_path, "busy", 3)
    DeltaTable(lake[1]["source"]).create_checkpoint()
    (tmp_path / "busy_source" / "_delta_log" / f"{1:020d}.json").unlink()
    _, summary = detect(*lake)
    assert summary["busy"]["status"] == "failed"
    (work,), summary = detect({**lake[1], "mode": "reload"})
    assert (work["failed"], summary["busy"]["status"], summary["busy"]["lag"]) == (False, "work", None)


def test_a_long_error_ends_after_a_word(tmp_path: Path) -> None:
    """The log has all of it."""
    columns = [f"column_{number}" for number in range(100)]
    wide = table(tmp_path, "wide", keys=["nope"])
    write_deltalake(wide["source"], pa.table({name: pa.array([1], pa.int64()) for name in columns}))
    (work,), summary = detect(wide)
    assert work["found"] == summary["wide"]["found"]
    assert 250 < len(work["found"]) <= 302
    assert work["found"].endswith(", …")
    assert work["found"].split(", ")[-2] in columns


def test_only_tables_with_work_are_handed_on(lake: list[dict[str, Any]], tmp_path: Path) -> None:
    wrong = {
        "type": {**lake[0], "pipeline": "type", "stored_as_scd_type": "two"},
        "absent": table(tmp_path, "absent"),
    }
    work, summary = detect(*lake, *wrong.values())
    assert {item["pipeline"]: item["failed"] for item in work} == {
        "busy": False,
        **dict.fromkeys(wrong, True),
    }
    assert len({item["stamp"] for item in work}) == 1
    assert "stored_as_scd_type" in next(item["found"] for item in work if item["pipeline"] == "type")
    assert (work[0]["fingerprint"], work[0]["located"], work[0]["since"]) == (prints(lake[1]), {}, 0)
    assert [version for key, version in work[0]["ends"].items() if key.startswith("pin:busy:")] == [1]
    statuses = {"quiet": "nothing", "busy": "work", **dict.fromkeys(wrong, "failed")}
    assert {name: one["status"] for name, one in summary.items()} == statuses
    assert (summary["quiet"]["target_version"], summary["quiet"]["version"]) == (0, 0)


def test_a_wrong_freshness_is_found_before_any_work(lake: list[dict[str, Any]]) -> None:
    (item,), summary = detect({**lake[1], "freshness": "30 min"})
    assert (item["failed"], summary["busy"]["status"]) == (True, "failed")


def test_the_form_chooses_and_bounds(lake: list[dict[str, Any]]) -> None:
    work, summary = detect(*lake, mode="backfill", tables=["busy"], ending_version=1, versions_per_commit=5)
    of_form = {**lake[1], "mode": "backfill", "ending_version": 1, "versions_per_commit": 5}
    assert [item["fingerprint"] for item in work] == [prints(of_form)]
    assert summary["quiet"]["status"] == "left out"
    with pytest.raises(InvalidConfiguration, match="exactly one table"):
        detect(*lake, mode="repair", starting_version=0)


def test_what_was_asked_for_fails_at_once(lake: list[dict[str, Any]], tmp_path: Path) -> None:
    absent, other = table(tmp_path, "absent"), table(tmp_path, "other")
    with pytest.raises(TableNotFound):
        detect(*lake, absent, mode="reload")
    with pytest.raises(TablesFailed, match="2 of 4 tables failed"):
        detect(*lake, absent, other, mode="reload")


@pytest.mark.parametrize("form", [{}, {"mode": "reload"}], ids=str)
def test_a_dry_run_shows_the_plans_of_the_tables_that_have_one(
    lake: list[dict[str, Any]], tmp_path: Path, form: dict[str, Any]
) -> None:
    """It writes nothing, so a table that cannot be planned is no reason to stop."""
    absent = table(tmp_path, "absent")
    work, summary = detect(*lake, absent, dry_run=True, **form)
    found = {item["pipeline"]: item["failed"] for item in work}
    assert (found["busy"], found["absent"], summary["absent"]["status"]) == (False, True, "failed")
    (item,) = [one for one in work if one["pipeline"] == "absent"]
    with pytest.raises(TableNotFound):
        task(item, absent).execute(context(params={"dry_run": True, **form}))


def test_a_log_is_read_and_not_filled_where_keys_are_computed_again(tmp_path: Path) -> None:
    """A run that asks for a range or for all keys takes nothing new from files, and says what has no part."""
    (tmp_path / "landing").mkdir()
    start, later = "2026-01-01T00:00:00+00:00", "2026-02-01T00:00:00+00:00"
    bounds = {"starting_timestamp": start, "max_bytes": 10, "max_versions": 4}
    logged = with_log("logged", str(tmp_path / "landing"), str(tmp_path / "log"), **bounds)
    del logged["target"]

    def merged(given: dict[str, Any], **form: Any) -> dict[str, Any]:
        return arguments_of_run(given, asked({"params": form}, tables=["logged"]))

    backfill = merged({**logged, "target": "/t"}, mode="backfill")
    assert {name: backfill[name] for name in bounds if name in backfill} == {"max_versions": 4}
    assert merged(logged, mode="backfill", starting_timestamp=later)["starting_timestamp"] == later
    assert merged(logged) == logged
    work, summary = detect(logged, mode="reload")
    assert (work, summary["logged"]["status"]) == ([], "left out")


@pytest.mark.parametrize("mode", ["repair", "reload", "backfill"])
def test_bounds_of_every_day_do_not_bind_what_was_asked_for(lake: list[dict[str, Any]], mode: str) -> None:
    bounds = {"max_versions": 100, "versions_per_commit": 10, "starting_version": 0, "ending_version": 1}
    form = {} if mode == "reload" else {"starting_version": 0}
    work, _ = detect({**lake[1], **bounds}, mode=mode, **form)
    kept = (
        {} if mode != "backfill" else {name: bounds[name] for name in bounds if not name.startswith("start")}
    )
    assert work[0]["fingerprint"] == prints({**lake[1], **kept, **form, "mode": mode})


def test_tables_that_a_mode_is_not_about_stop_no_other(lake: list[dict[str, Any]], tmp_path: Path) -> None:
    (tmp_path / "landing").mkdir()
    inserts = {"keys": [], "insert_only": True}
    appended = {**lake[0], "pipeline": "appended", **inserts}
    logged = with_log(
        "logged", str(tmp_path / "landing"), str(tmp_path / "log"), target=str(tmp_path / "logged")
    )
    both = {**logged, "pipeline": "both", **inserts}
    collected = {**lake[0], "pipeline": "collected", "target": str(tmp_path / "events")}
    collected |= {"target_kind": "change_log", "sequence_by": "id", "delete_sequence": "id"}
    work, summary = detect(*lake, appended, logged, both, collected, mode="reload")
    assert [item["pipeline"] for item in work] == ["quiet", "busy"]
    told = [summary[name]["status"] for name in ("appended", "logged", "both", "collected")]
    assert told == ["left out", "nothing", "left out", "left out"]
    named = (
        ("appended", InvalidConfiguration),
        ("logged", TableNotFound),
        ("collected", InvalidConfiguration),
    )
    for name, error in named:
        with pytest.raises(error):
            detect(*lake, appended, logged, collected, mode="reload", tables=[name])


def several(folder: Path, *names: str) -> list[dict[str, Any]]:
    """Return the arguments of customers, which has several sources, and of these; nothing was collected."""
    for name in names:
        grow(folder, name, 1)
    given = {
        "target": str(folder / "customers"),
        "keys": ["id"],
        "sequence_by": "id",
        "delete_sequence": "id",
        "sources": {name: {"source": str(folder / f"{name}_source")} for name in names},
    }
    return [one.arguments for one in load({"pipelines": {"customers": given}}).tables()]


def of_dates(*tables: dict[str, Any]) -> dict[str, Any]:
    """Return the summary of a run of a backfill by dates."""
    given = context(
        dag_run=SimpleNamespace(run_type="backfill", conf={}),
        data_interval_start=pendulum.datetime(2020, 1, 1),
        data_interval_end=pendulum.now("UTC").add(days=1),
    )
    detection(*tables).execute(given)
    return given["ti"].pushed["tables"]


@pytest.mark.parametrize("dates", [False, True])
def test_a_log_of_other_tables_that_is_not_there_yet_stops_no_other(
    lake: list[dict[str, Any]], tmp_path: Path, dates: bool
) -> None:
    logged = with_log("logged", str(tmp_path / "landing"), str(tmp_path / "log"))
    applied = {**lake[0], "pipeline": "applied", "target": str(tmp_path / "applied")}
    applied |= {"source": f"{logged['log']}/", "source_kind": "change_log"}
    tables = [*lake, *several(tmp_path, "eu", "us"), {**logged, "target": None}, applied]
    summary = of_dates(*tables) if dates else detect(*tables, mode="reload")[1]
    assert (summary["busy"]["status"], summary["customers"]["status"]) == ("work", "nothing")
    assert summary["applied"]["status"] == "nothing"
    with pytest.raises(TableNotFound):
        detect(*tables, mode="reload", tables=["customers"])
    # A table of events that none of them fills is another case.
    with pytest.raises(TableNotFound):
        detect(*lake, applied, mode="reload")


@pytest.mark.parametrize("name", ["none", "null"])
def test_every_name_of_a_pipeline_is_its_name(tmp_path: Path, name: str) -> None:
    """Also those of which an argument's value means that it is not given."""
    one = table(tmp_path, "orders", pipeline=name)
    grow(tmp_path, "orders", 1)
    (work,), summary = detect(one)
    assert (xcoms.item(work, {name}).pipeline, set(summary)) == (name, {name})


def test_a_chosen_pipeline_includes_its_sources(tmp_path: Path) -> None:
    """As in ``delta-cdc run FILE customers``; otherwise it has nothing to apply."""
    names = ["customers", "customers.eu", "customers.us"]
    tables = several(tmp_path, "eu", "us")
    for form in ({}, {"mode": "backfill", "ending_timestamp": "2099-01-01T00:00:00Z"}, {"dry_run": True}):
        _, summary = detect(*tables, tables=["customers"], **form)
        assert [summary[name]["status"] for name in names[1:]] == ["work"] * 2, form
    work, _ = detect(*tables, tables=["customers"])
    assert sorted(item["pipeline"] for item in work) == names
    work, _ = detect(*tables, tables=["customers.eu"])
    assert [item["pipeline"] for item in work] == ["customers.eu"]
    # Versions are those of one table.
    with pytest.raises(TableNotFound):
        detect(*tables, tables=["customers"], mode="backfill", ending_version=3)


def test_a_repair_of_the_quarantine_reads_the_records_of_a_log_again(
    lake: list[dict[str, Any]], tmp_path: Path
) -> None:
    """Whoever works in Airflow alone has no other way to replay them."""
    source, log = str(tmp_path / "landing"), str(tmp_path / "log")
    with_target = with_log("logged", source, log, target=str(tmp_path / "logged"), max_bytes=7)
    without = with_log("events", source, log, insert_only=True, keys=[], max_files=3, target=None)
    form = {"mode": "repair", "repair_quarantined": True}
    for table in (with_target, without):
        ingest, _ = requests({**table, **form}, run_id="r")
        assert ingest is not None
        assert (ingest.replay, ingest.max_bytes, ingest.max_files) == (True, None, None)
        assert takes_source({**table, **form})
        assert not takes_source({**table, "mode": "repair", "repair_keys": "true"})
    # A target without keys has nothing to repair: the next run applies the events.
    appended = {**with_target, "keys": [], "insert_only": True, **form}
    assert requests(appended, run_id="r")[1] is None
    _, summary = detect(*lake, {**appended, "target": str(tmp_path / "appended")}, **form, tables=["logged"])
    assert summary["logged"]["status"] == "nothing"
    # Nothing is in quarantine, and no source is read: it does not even exist.
    work, summary = detect(*lake, without, **form, tables=["events"])
    assert (work, summary["events"]["status"]) == ([], "nothing")
    _, summary = detect(*lake, without, mode="repair", repair_keys="true", tables=["events"])
    assert summary["events"]["status"] == "left out"


def test_an_apply_that_will_fail_does_not_stop_its_ingest(
    lake: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first task names the error; the shared application ingests, and the table's own task fails."""
    drift = ConfigurationDrift("other options.", remedy="go back.")

    def detected(jobs: Any) -> list[DetectedChanges]:
        return [DetectedChanges(pipeline=one.pipeline, has_work=True, error=drift) for one in jobs]

    monkeypatch.setattr("delta_cdc.run.detect_changes.detect_changes", detected)
    (work,), summary = detect(lake[1])
    assert (work["failed"], summary["busy"]["status"]) == (False, "failed")


def test_a_table_whose_templates_fail_stops_no_other(lake: list[dict[str, Any]]) -> None:
    broken = {**lake[0], "pipeline": "broken", "where": "x = {{ 1 / 0 }}"}
    made = detection(broken, lake[1]).prepare_for_execution()
    given = context()
    made.render_template_fields(given)
    work = made.execute(given)
    assert [(one["pipeline"], one["failed"]) for one in work] == [("broken", True), ("busy", False)]
    one = task(work[0], broken, lake[1])
    one.render_template_fields(context())
    assert one.table_arguments() is None
    with pytest.raises(InvalidConfiguration, match="Cannot render the templates of broken: ZeroDivision"):
        one.execute(context())


def test_a_pipeline_that_was_renamed_during_a_run_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    answers = run_spark([item("a"), item("renamed")], context(), plain("a"))
    assert ({name: one["status"] for name, one in answers.items()}, flow.calls) == ({"a": "applied"}, 1)
    with pytest.raises(ConfigurationChanged, match="renamed"):
        run_spark([item("renamed")], context(), plain("a"))
    with pytest.raises(ConfigurationChanged, match="renamed"):
        task(item("renamed"), plain("a")).execute(context())


def test_a_template_that_breaks_after_the_detection_stops_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(
        monkeypatch,
        PipelineResult(pipeline="a", applied=applied("a")),
        PipelineResult(pipeline="b", error=InvalidConfiguration("x", remedy="y")),
    )
    told = run_spark([item("a"), item("b")], context(), plain("a"), plain("b", where="{{ 1 / 0 }}"))
    errors = [pipeline_job.error for pipeline_job in flow.pipeline_jobs]
    assert [type(error) for error in errors] == [type(None), InvalidConfiguration]
    assert (told["a"]["status"], told["b"]["status"]) == ("applied", "failed")


def test_each_task_renders_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text that comes out of a template is a text like any other, in every task."""
    templated = plain("a", where="x = '{{ '{{' }} run_id {{ '}}' }}'")
    rendered = {**templated, "where": "x = '{{ run_id }}'"}
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    run_spark([item("a", table=rendered)], context(), templated)
    one = task(item("a", table=rendered), templated)
    one.render_template_fields(context())
    assert one.table_arguments() == rendered
    jobs = list(flow.pipeline_jobs)
    one.execute(answered(status="applied"))
    applies = [pipeline_job.apply for pipeline_job in (*jobs, *flow.pipeline_jobs)]
    assert [apply and apply.options.where for apply in applies] == ["x = '{{ run_id }}'"] * 2


# -- run_spark ------------------------------------------------------------------------------------
def plain(name: str, **more: Any) -> dict[str, Any]:
    return {"pipeline": name, "source": "/lake/s", "target": f"/lake/{name}", "keys": ["id"], **more}


def prints(given: dict[str, Any]) -> str:
    return xcoms.fingerprint(PRINT, given)


def item(name: str, *, table: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    """Return the work of one table.

    :param table: its arguments, as this run has them
    """
    found: dict[str, Any] = {
        "pipeline": name,
        "fingerprint": prints(table or plain(name)),
        "stamp": S1,
        "found": "versions 8-9",
        "since": 3,
        "ends": {f"pin:{name}:s": 9},
        "located": {},
        "failed": False,
    }
    return {**found, **changed}


class Flow:
    """Answers in the place of the flow."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: PipelineResult) -> None:
        self.pipeline_jobs: list[PipelineJob] = []
        self.how: dict[str, Any] = {}
        self.calls = 0

        def run_batch(
            pipeline_jobs: Sequence[PipelineJob], services: Any, **how: Any
        ) -> list[PipelineResult]:
            self.pipeline_jobs, self.how = list(pipeline_jobs), how
            self.calls += 1
            for pipeline_job in pipeline_jobs:
                if pipeline_job.saved_plans is not None:
                    pipeline_job.saved_plans.set(
                        f"pin:{pipeline_job.pipeline}:t",
                        {"fingerprints": [pipeline_job.pipeline], "asked": ""},
                    )
            return list(answers)

        monkeypatch.setattr("delta_cdc.run.batch.run_batch", run_batch)


def run_spark(work: Any, given: Any, *tables: dict[str, Any]) -> Any:
    """Run the work of tables, by default of those that ``work`` names."""
    found = detection(*tables) if tables else detection(*[plain(one["pipeline"]) for one in work])
    made = RunSparkOperator(
        task_id="run_spark", work=work, detection="detect_changes", parallel=4, dag=found.dag
    )
    return made.execute(given)


def test_what_the_application_did_is_told_of_each(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = NullKey("a key is null", remedy="mend it")
    flow = Flow(
        monkeypatch,
        PipelineResult(pipeline="a", applied=applied("a")),
        PipelineResult(pipeline="b", error=wrong),
    )
    given = context()
    told = run_spark([item("a"), item("b"), item("c", failed=True)], given)
    assert [pipeline_job.pipeline for pipeline_job in flow.pipeline_jobs] == ["a", "b"], (
        "c is planned again by its own task"
    )
    assert [pipeline_job.since for pipeline_job in flow.pipeline_jobs] == [3, 3]
    assert flow.how["parallel"] == 4
    assert told["a"] == {
        "item_stamp": S1,
        "status": "applied",
        "saved_plans": {"pin:a:t": {"fingerprints": ["a"]}},
        "effort": {"seconds": {}, "attempts_lost": 0},
    }
    assert told["b"]["status"] == "failed"
    assert told["b"]["error"] == wrong.to_dict()
    assert given["task_state_store"].kept == {}, "the answer carries them"
    assert given["ti"].pushed["return_value"] == told


def test_without_work_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch)
    assert run_spark([], context()) == {}
    assert run_spark([item("a", failed=True)], context()) == {}
    assert flow.calls == 0


def test_an_application_that_died_fails_its_task_and_still_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    died = JobFailed("it died", remedy="again")
    done = PipelineResult(pipeline="a", applied=applied("a"))
    Flow(monkeypatch, done, PipelineResult(pipeline="b", error=died, unanswered=True))
    given = context()
    with pytest.raises(TablesFailed, match="1 of 2 tables failed"):
        run_spark([item("a"), item("b")], given)
    pushed = given["ti"].pushed["return_value"]
    assert (pushed["a"]["status"], pushed["b"]["status"]) == ("applied", "unfinished")
    kept = {f"{S1}:pin:a:t", f"{S1}:pin:b:t"}
    assert set(given["task_state_store"].kept) == kept, "for its own retry, and of this look"
    # A table that fails without a name is no death: the others are not to wait for another application.
    Flow(monkeypatch, PipelineResult(pipeline="a", error=died))
    assert run_spark([item("a")], context())["a"]["status"] == "unfinished"


def test_an_error_of_some_tables_says_what_became_of_the_others(
    monkeypatch: pytest.MonkeyPatch, lake: list[dict[str, Any]], tmp_path: Path
) -> None:
    Flow(
        monkeypatch,
        PipelineResult(pipeline="a", applied=applied("a")),
        PipelineResult(pipeline="b", error=NullKey("a key is null", remedy="mend it")),
        PipelineResult(pipeline="c", error=JobFailed("it died", remedy="again"), unanswered=True),
    )
    with pytest.raises(TablesFailed, match=r"1 of 3 tables failed\. 2 others: 1 applied, 1 failed\."):
        run_spark([item("a"), item("b"), item("c")], context())
    bad = [table(tmp_path, f"bad{at}") for at in range(2)]
    with pytest.raises(
        TablesFailed, match=r"2 of 3 tables failed\. The run has applied nothing to the others"
    ):
        detect(lake[1], *bad, mode="backfill")


def test_a_dry_run_runs_what_needs_spark_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    dry = {"steps": ["apply: versions 8-9"], "statements": ["MERGE"], "counts": {"inserted": 1}}
    shown = PipelineResult(pipeline="a", applied=replace(applied("a"), applied=False, dry_run=dry))
    flow = Flow(monkeypatch, shown, PipelineResult(pipeline="b", error=TableNotFound("no log", remedy="-")))
    tables = [plain("a"), with_log("b"), with_log("c", target=None)]
    work = [item(one["pipeline"], table={**one, "dry_run": True}) for one in tables]
    answers = run_spark(work, context(params={"dry_run": True}), *tables)
    assert [(one.pipeline, one.ingest) for one in flow.pipeline_jobs] == [("a", None), ("b", None)]
    assert all(one.apply is not None and one.apply.dry_run for one in flow.pipeline_jobs)
    assert answers["a"]["status"] == "planned"
    assert answers["a"]["dry_run"]["dry_run"]["statements"] == ["MERGE"]
    assert answers["b"] == {"item_stamp": S1, "status": "nothing"}


def test_a_dry_run_of_a_replay_names_what_its_application_leaves_out(
    monkeypatch: pytest.MonkeyPatch, records: Records
) -> None:
    """Its log had only that nothing was in quarantine beside the target, and that nothing was new."""
    plan = {"table": [], "steps": [], "statements": [], "counts": {}}
    shown = PipelineResult(pipeline="a", applied=replace(applied("a"), applied=False, dry_run=plan))
    flow = Flow(monkeypatch, shown)
    # A target without keys has nothing to repair.
    tables = [with_log("a"), with_log("b", insert_only=True, keys=[])]
    form = {"mode": "repair", "repair_quarantined": True, "dry_run": True}
    work = [item(one["pipeline"], table={**one, **form}) for one in tables]
    monkeypatch.setattr(RunSparkOperator, "log", records)
    answers = run_spark(work, context(params=form), *tables)
    assert ([one.pipeline for one in flow.pipeline_jobs], list(answers)) == (["a"], ["a"])
    text = "\n".join(records.at("info"))
    assert "a: a real run would do: " in text
    assert "b: a real run would do: " in text
    assert "1 table: 1 only planned (dry run)." in text


def test_what_is_told_of_65_tables_stays_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them at their worst: long errors, or the pins of an ingest and an apply."""
    names = [f"pipeline_{at:03}" for at in range(65)]
    failed = [PipelineResult(pipeline=name, error=NullKey("x" * 900, remedy="y" * 900)) for name in names]
    done = [PipelineResult(pipeline=name, applied=applied(name)) for name in names]
    for answers in (failed, done):
        Flow(monkeypatch, *answers)
        assert len(json.dumps(run_spark([item(name) for name in names], context()))) <= 48 * 1024


@pytest.mark.parametrize("number", [600, 1000])
def test_the_error_of_one_of_many_tables_stays_itself(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    names = [f"t{at}" for at in range(number)]
    error = LimitExceeded("It would delete 5 rows.", remedy="approve it.", approval="12-0a1b2c3d4e5f")
    done = [PipelineResult(pipeline=name, applied=applied(name)) for name in names[1:]]
    Flow(monkeypatch, PipelineResult(pipeline=names[0], error=error), *done)
    answers = run_spark([item(name) for name in names], context())
    assert xcoms.error_of(xcoms.answer(answers, names[0], S1)).to_dict() == error.to_dict()
    failed = [PipelineResult(pipeline=name, error=error) for name in names]
    Flow(monkeypatch, *failed)
    answers = run_spark([item(name) for name in names], context())
    raised = xcoms.error_of(xcoms.answer(answers, names[0], S1))
    assert (type(raised), raised.approval) == (LimitExceeded, "12-0a1b2c3d4e5f"), "shortened"


def test_the_xcoms_of_a_group_have_no_secrets(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    mask_secret("hunter2-of-the-lake")
    # The second one is where a text is shortened: nothing masks a part of a secret.
    text = f"hunter2-of-the-lake {'x' * 965} hunter2-of-the-lake"
    error = InvalidConfiguration(text, remedy=text)
    Flow(monkeypatch, PipelineResult(pipeline="a", error=error))
    given = context()
    run_spark([item("a")], given)

    def fails(*_: Any, **__: Any) -> Any:
        raise error

    monkeypatch.setattr("delta_cdc.run.table_arguments.requests", fails)
    work, summaries = detect(table(tmp_path, "a"))
    assert summaries["a"]["status"] == "failed"
    for value in (given["ti"].pushed, work, summaries):
        assert "hunter2" not in str(value)


# -- apply ----------------------------------------------------------------------------------------
def task(one: Any, *tables: dict[str, Any], configuration: str = PRINT) -> ApplyTableOperator:
    """Return the task of an item, in a DAG with some tables; by default with its own."""
    name = one.get("pipeline") if isinstance(one, dict) else None
    found = detection(*(tables or [plain(name or "a")]), configuration=configuration)
    return ApplyTableOperator(
        task_id="apply",
        detection="detect_changes",
        run_spark="run_spark",
        inlets=[delta_asset("/lake/s")],
        outlets=[pipeline_alias("a"), pipeline_alias("b")],
        item=one,
        dag=found.dag,
    )


def answered(**found: Any) -> Any:
    return context(ti=Ti(**{"run_spark.return_value": {"a": {"item_stamp": S1, **found}}}))


def test_the_effort_of_the_application_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    own = replace(applied("a"), effort=Effort({"plan": 1.0}, attempts_lost=1))
    Flow(monkeypatch, PipelineResult(pipeline="a", applied=own))
    effort = {"seconds": {"plan": 0.5, "start": 4.0, "work": 2.0}, "attempts_lost": 2}
    answer = task(item("a")).execute(answered(status="applied", saved_plans={}, effort=effort))
    assert answer["seconds"] == {"plan": 1.5, "start": 4.0, "work": 2.0}
    assert answer["attempts_lost"] == 3


def test_what_was_done_is_published_under_its_own_name(monkeypatch: pytest.MonkeyPatch) -> None:
    done = PipelineResult(pipeline="a", applied=replace(applied("a"), target_table="/lake/a"))
    flow = Flow(monkeypatch, done)
    given = answered(status="applied", saved_plans={"pin:a:s": {"fingerprints": ["x"]}})
    one = task(item("a"))
    assert one.outlets == [pipeline_alias("a")]
    answer = one.execute(given)
    (pipeline_job,) = flow.pipeline_jobs
    assert pipeline_job.since == 3
    assert answer == given["ti"].pushed["return_value"]
    assert (answer["target_version"], answer["stamp"]) == (2, S1)
    events = given["outlet_events"][pipeline_alias("a")].asset_alias_events
    assert [event.dest_asset_key.uri for event in events] == ["file:///lake/a"]
    assert ("file:///lake/s", "committed:a") in given["asset_state_store"].kept
    assert given["task_state_store"].kept == {"published": S1}, "and no pin is left"


def test_pins_of_the_application_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a repair that the application did would be done a second time."""
    seen: dict[str, Any] = {}

    def run_batch(pipeline_jobs: Sequence[PipelineJob], services: Any, **how: Any) -> list[PipelineResult]:
        assert pipeline_jobs[0].saved_plans is not None
        seen["bundle"] = pipeline_jobs[0].saved_plans.get("pin:a:s")
        seen["look"] = pipeline_jobs[0].saved_plans.get("other")
        return [PipelineResult(pipeline="a", applied=applied("a"))]

    monkeypatch.setattr("delta_cdc.run.batch.run_batch", run_batch)
    given = answered(status="applied", saved_plans={"pin:a:s": {"fingerprints": ["x"], "asked": "repair"}})
    task(item("a", ends={"pin:a:s": 9, "other": 1})).execute(given)
    assert seen == {"bundle": {"fingerprints": ["x"], "asked": "repair"}, "look": {"ending_version": 1}}


def test_the_error_of_the_application_is_raised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    wrong = {"class": "NullKey", "message": "a key is null.", "remedy": "mend it"}
    given = answered(status="failed", error=wrong, try_stamp="try1")
    one = task(item("a"))
    with pytest.raises(NullKey, match="a key is null"):
        one.execute(given)
    assert flow.calls == 0
    one.execute(given)
    assert flow.calls == 1, "cleared: it is planned anew"
    other_try = answered(status="failed", error=wrong, try_stamp="try2")["ti"]
    without = {**given, "task_state_store": None}
    for again in (context(ti=other_try, task_state_store=Store(answered="try1")), without):
        with pytest.raises(NullKey):
            one.execute(again)
    given["ti"].try_number = 2
    one.execute(without)
    assert flow.calls == 2
    # Look and apply were cleared, and the application was not.
    task(item("a", stamp=S2)).execute(answered(status="failed", error=wrong, try_stamp="t"))
    # What time may mend is tried at once.
    lost = {"class": "JobFailed", "message": "gone", "remedy": "again"}
    task(item("a")).execute(answered(status="unfinished", error=lost, try_stamp="t"))
    assert flow.calls == 4


def test_after_it_was_published_a_try_is_about_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    given = answered(status="applied", saved_plans={"pin:a:s": {"fingerprints": ["x"]}})
    one = task(item("a"))
    one.execute(given)
    assert flow.pipeline_jobs[0].since == 3
    one.execute(given)
    assert flow.pipeline_jobs[0].since is None
    one = task(item("a", stamp=S2))
    one.execute(given)
    assert flow.pipeline_jobs[0].since == 3, "another look is other work"


def test_another_configuration_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch)
    with pytest.raises(ConfigurationChanged, match="clear the run from its task detect_changes on"):
        task(item("a"), configuration="0" * 64).execute(answered(status="applied"))
    assert flow.calls == 0


def test_a_dry_run_shows_what_the_application_found(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch)
    shown = {"applied": False, "pipeline": "a", "dry_run": {"steps": ["s"], "statements": [], "counts": {}}}
    given = answered(status="planned", dry_run=shown)
    given["params"] = {"dry_run": True}
    found = task(item("a", table=plain("a", dry_run=True))).execute(given)
    assert found == {**shown, "stamp": S1}
    assert flow.calls == 0
    assert given["asset_state_store"].kept == given["task_state_store"].kept == {}


def test_an_ingest_announces_its_log_and_a_reload_fills_none(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", ingested=ingested("a"), applied=applied("a")))
    logged = with_log("a", log="/lake/s")
    given = answered()
    assert task(item("a", table=logged), logged).execute(given)["ingested"]["counts"]["events"] == 3
    assert flow.pipeline_jobs[0].ingest is not None
    events = given["outlet_events"][pipeline_alias("a")].asset_alias_events
    assert [event.dest_asset_key.uri for event in events] == ["file:///lake/s", "file:///lake/a"]
    reload = {**logged, "mode": "reload"}
    task(item("a", table=reload), logged).execute({**answered(), "params": {"mode": "reload"}})
    (job,) = flow.pipeline_jobs
    assert (job.ingest, job.apply and job.apply.mode) == (None, "reload")


def test_locations_stand_in_for_names_and_events_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = Flow(monkeypatch, PipelineResult(pipeline="a", applied=applied("a")))
    by_name = {"pipeline": "a", "source": "main.sales.orders", "target": "main.sales.current", "keys": ["id"]}
    given = answered(status="applied", saved_plans={})
    one = item("a", table=by_name, located={"source": "/lake/s", "target": "/lake/t"})
    task(one, by_name).execute(given)
    apply = flow.pipeline_jobs[0].apply
    assert apply is not None
    assert (apply.source, apply.target, apply.target_name) == ("/lake/s", "/lake/t", "main.sales.current")
    events = given["outlet_events"][pipeline_alias("a")].asset_alias_events
    assert [event.dest_asset_key.uri for event in events] == [delta_asset("main.sales.current").uri]


# -- pins -----------------------------------------------------------------------------------------
def test_pins_of_another_look_are_none() -> None:
    given = context()
    first = WorkSavedPlans(given, "one", {"k": {"ending_version": 1}})
    assert first.get("k") == {"ending_version": 1}
    plan = {"ending_version": 2, "seal_number": None, "lasts": []}
    first.set("k", plan)
    assert first.touched() == {"k": {"ending_version": 2}}
    assert WorkSavedPlans(given, "one", {}).get("k") == plan
    assert WorkSavedPlans(given, "two", {}).get("k") is None
    first.delete("k")
    assert first.get("k") is WorkSavedPlans(given, "one", {}).get("k") is None


# -- publish --------------------------------------------------------------------------------------
def publish(given: Any, *tables: dict[str, Any], manifest: str | None = None) -> Any:
    made = PublishOperator(
        task_id="publish",
        group="g",
        detections=["detect_changes"],
        applies=["apply"],
        manifest=manifest,
        dag=detection(*tables).dag,
    )
    return made.execute(given)


def test_the_versions_of_all_tables(lake: list[dict[str, Any]], tmp_path: Path) -> None:
    _, summary = detect(*lake)
    grow(tmp_path, "third", 1)
    fill(table(tmp_path, "third"))
    summary["third"] = summary["never"] = {"status": "left out"}
    # It could not be looked at, and was healed since.
    summary["healed"] = {"status": "failed"}
    grow(tmp_path, "healed", 1)
    fill(table(tmp_path, "healed"))
    summary["logged"] = summary["dry"] = summary["healed"]
    tasks = [
        {**applied("busy").to_dict(), "target_table": lake[1]["target"]},
        None,
        {**applied("healed", applied=False).to_dict(), "target_table": str(tmp_path / "healed")},
        ingested("logged").to_dict(),
        {**applied("dry", applied=False).to_dict(), "target_table": str(tmp_path / "dry")},
    ]
    given = context(ti=Ti(**{"detect_changes.tables": summary, "apply.return_value": tasks}))
    log = {"log": str(tmp_path / "log"), "adapter_options": {"sequence_by": "n"}}
    others = [table(tmp_path, name) for name in ("third", "never", "healed", "dry")]
    found = publish(given, *lake, *others, {**table(tmp_path, "logged"), **log, "target": None})
    # As they are now, whatever each published: others may have gone on since.
    assert {name: (one["target_version"], one["version"]) for name, one in found.items()} == {
        "quiet": (0, 0),
        "busy": (0, 0),
        "third": (0, 0),
        "healed": (0, 0),
        "logged": (4, None),
    }
    assert found["healed"]["target"] == str(tmp_path / "healed")
    assert list(found) == sorted(found)
    (event,) = given["outlet_events"][group_alias("g")].asset_alias_events
    assert event.extra == {"group": "g", "tables": found}


def test_a_task_that_a_clear_removed_publishes_nothing(tmp_path: Path) -> None:
    """Airflow keeps the XCom of a map index that is no more, whatever the tasks of today published."""
    log = {"log": str(tmp_path / "log"), "adapter_options": {"sequence_by": "n"}, "target": None}
    names = ("again", "idle")
    tables = [{**table(tmp_path, name), **log} for name in names]
    old = [{**ingested(name).to_dict(), "log_version": 4, "stamp": S1} for name in names]
    new = {**old[0], "log_version": 9, "stamp": S2}
    summaries = {name: {"status": "nothing", "target_version": 12, "stamp": S2} for name in names}
    given = context(ti=Ti(**{"detect_changes.tables": summaries, "apply.return_value": [new, *old]}))
    found = publish(given, *tables)
    assert {name: one["target_version"] for name, one in found.items()} == {"again": 9, "idle": 12}


def test_a_dry_run_writes_no_manifest(lake: list[dict[str, Any]], tmp_path: Path) -> None:
    _, summaries = detect(*lake, dry_run=True)
    others = {"detect_changes.tables": summaries, "apply.return_value": None}
    for params in ({"dry_run": True}, {}):
        assert not (tmp_path / "sales.json").exists()
        given = context(ti=Ti(**others), params=params)
        publish(given, *lake, manifest=str(tmp_path / "sales.json"))
    assert (tmp_path / "sales.json").exists()


def test_a_run_that_applied_nothing_tells_nobody(lake: list[dict[str, Any]]) -> None:
    """Airflow gives the value of a mapped task bare, where there is one."""
    _, summary = detect(lake[0])
    idle = {**applied("quiet", applied=False).to_dict(), "target_table": lake[0]["target"]}
    done = {**applied("quiet").to_dict(), "target_table": lake[0]["target"]}
    for pulled, events in ((None, 0), ([], 0), ([idle, None], 0), (idle, 0), (done, 1)):
        given = context(ti=Ti(**{"detect_changes.tables": summary, "apply.return_value": pulled}))
        assert list(publish(given, *lake)) == ["quiet"]
        assert len(given["outlet_events"][group_alias("g")].asset_alias_events) == events


def test_the_manifest_has_what_the_event_has(
    lake: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE", str(tmp_path))
    _, summary = detect(*lake)
    done = {**applied("quiet").to_dict(), "target_table": lake[0]["target"]}
    given = context(ti=Ti(**{"detect_changes.tables": summary, "apply.return_value": done}))
    found = publish(given, *lake, manifest="${LAKE}/sales.json")
    written = published(str(tmp_path / "sales.json"))
    assert written.group == "g"
    assert codec.encoded(written)["tables"] == {name: {**one, "view": ""} for name, one in found.items()}
    assert {name: one["table_id"] for name, one in found.items()} == {
        one["pipeline"]: str(DeltaTable(one["target"]).metadata().id) for one in lake
    }
    publish(given, *lake, manifest="${LAKE}/sales.json")
    assert published(str(tmp_path / "sales.json")) == written
    # detect_changes was marked as successful; one table cannot be read.
    for summaries in (None, {**summary, "quiet": {"status": "failed"}}):
        given = context(ti=Ti(**{"detect_changes.tables": summaries, "apply.return_value": None}))
        assert len(publish(given, *lake, manifest="${LAKE}/sales.json")) < 2
        assert published(str(tmp_path / "sales.json")) == written
