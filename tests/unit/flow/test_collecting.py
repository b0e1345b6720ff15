"""Jobs that append to one change log, and the job that applies it: what waits for what."""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.change_log import LOG_COLUMNS, OF_TABLES
from delta_cdc.core.errors import (
    ConfigurationDrift,
    InvalidConfiguration,
    SourceTableReplaced,
    TableNotFound,
    TargetSchemaClash,
    TargetWithoutWatermark,
)
from delta_cdc.core.spec import ApplySpec, BatchSpec, JobResult, new_seal
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.status import not_named, status_of_all
from delta_cdc.planning.verify import VerifyRequest, plan_verify_async
from delta_cdc.run.batch import PipelineJob, before, run_batch
from delta_cdc.run.detect_changes import detect_changes
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import requests
from tests.support.logs import LogTable, state_after

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.core.requests import ApplyRequest

#: A log that has its description, as after a whole first run.
DESCRIBED = {"delta_cdc.changeLog": "true", **OF_TABLES}


class Lake:
    """Two sources, their log and its target, and the application that writes what its jobs say."""

    def __init__(self, root: Path, configuration: dict[str, str] = DESCRIBED) -> None:
        self.root = root
        feed = {"delta.enableChangeDataFeed": "true"}
        columns = ("id", "at")
        self.tables = {
            name: LogTable(root / name, table_id=name, columns=columns, configuration=feed)
            for name in ("eu", "us")
        }
        log = LogTable(
            root / "log", table_id="log", columns=(*columns, *LOG_COLUMNS), configuration=configuration
        )
        self.tables |= {"log": log, "target": LogTable(root / "target", table_id="t", columns=columns)}
        for name in ("eu", "us"):
            self.tables[name].create()
            self.tables[name].append()
        self.parts: list[list[str]] = []

    def job(self, name: str, **more: Any) -> PipelineJob:
        given: dict[str, Any] = {
            "source": self.at("log"),
            "target": self.at("target"),
            "source_kind": "change_log",
        }
        given |= {"sequence_by": "_sequence"}
        if name != "p":
            given = {"source": self.at(name), "target": self.at("log"), "target_kind": "change_log"}
            given |= {"sequence_by": "at", "delete_sequence": "at"}
        pipeline = name if name == "p" else f"p.{name}"
        _, apply = requests({"pipeline": pipeline, "keys": ["id"], **given, **more}, run_id="r")
        return PipelineJob(apply=apply)

    def at(self, name: str) -> str:
        return str(self.root / name)

    def execute(self, spec: BatchSpec) -> JobResult:
        self.parts.append([part.pipeline for part in spec.parts])
        for part in spec.parts:
            assert isinstance(part, ApplySpec)
            table = self.tables["target" if part.pipeline == "p" else "log"]
            if table.version < 0:
                table.create()
            for step in part.steps:
                state = state_after(step, validation.described(part.options))
                table.write_seal(new_seal(part, step, state, counts={}), rows=step.read.has_rows)
        return JobResult("committed", parts=tuple(JobResult("committed") for _ in spec.parts))

    def run(self, *jobs: PipelineJob) -> dict[str, Any]:
        services = Services(execute=self.execute, say=lambda line: None, sleep=lambda seconds: None)
        return {one.pipeline: one for one in run_batch(jobs, services, run_id="r")}


def _request(job: PipelineJob) -> ApplyRequest:
    assert job.apply is not None
    return job.apply


def test_an_apply_waits_for_those_that_append_to_its_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    jobs = [lake.job("p"), lake.job("us"), lake.job("eu")]
    assert before(jobs) == [{1, 2}, set(), set()]
    # One log is another log by its location, however it is spelled.
    assert before([lake.job("p", source=f"file://{lake.at('log')}/"), jobs[1]]) == [{1}, set()]
    assert before([lake.job("p", source=lake.at("other")), jobs[1]]) == [set(), set()]
    lake.tables["log"].create()
    results = lake.run(*jobs)
    assert lake.parts == [["p.us", "p.eu"], ["p"]]
    assert [one.error for one in results.values()] == [None] * 3
    assert list(results) == ["p", "p.us", "p.eu"]
    # Nothing is new, so no application starts.
    assert not any(one.applied.applied for one in lake.run(*jobs).values())
    assert len(lake.parts) == 2


def test_a_failed_source_stops_nothing(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    results = lake.run(lake.job("eu", source=lake.at("none")), lake.job("us"), lake.job("p"))
    assert lake.parts == [["p.us"], ["p"]]
    assert {name: one.error is None for name, one in results.items()} == {
        "p.eu": False,
        "p.us": True,
        "p": True,
    }


def test_without_any_log_the_sources_alone_fail(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    jobs = [lake.job("eu", source=lake.at("none")), lake.job("p")]
    results = lake.run(*jobs)
    assert {name: one.error is None for name, one in results.items()} == {"p.eu": False, "p": True}
    failed, applied = detect_changes(jobs)
    assert (failed.error is None, applied.error, applied.has_work) == (False, None, False)
    # A log that is missing for no known reason is an error.
    (alone,) = detect_changes(jobs[1:])
    assert alone.error is not None


def test_an_apply_waits_for_the_ingest_of_its_log(tmp_path: Path) -> None:
    """A log that is ingested once, and applied into two targets: in the first run, there is no log yet."""
    lake = Lake(tmp_path)
    (tmp_path / "files").mkdir()
    common = {"source": lake.at("files"), "adapter": "debezium", "keys": ["id"]}
    ingest, _ = requests({"pipeline": "in", "log": lake.at("log"), **common}, run_id="r")
    both = PipelineJob(ingest=ingest, apply=_request(lake.job("p")))
    jobs = [lake.job("p"), PipelineJob(ingest=ingest)]
    assert before([*jobs, both]) == [{1, 2}, set(), set()]
    # Those that ingest into one log do not wait for each other; both wait for what other jobs collect.
    assert before([both, both, lake.job("eu")]) == [{2}, {2}, set()]
    assert before([PipelineJob(error=InvalidConfiguration("x", remedy="y"), ingest=ingest), jobs[0]]) == [
        set(),
        set(),
    ]
    for name in ("log", "target"):
        shutil.rmtree(lake.at(name), ignore_errors=True)
    # Nothing has come yet, so there is no log, and nothing to apply.
    assert [(one.error, one.has_work) for one in detect_changes(jobs)] == [(None, False)] * 2
    assert detect_changes(jobs)[0].found == "nothing: there is no change log yet"
    assert [one.error for one in lake.run(*jobs).values()] == [None, None]
    (tmp_path / "files" / "1.json").write_text("{}")
    assert detect_changes(jobs)[0].found == "the events of in"
    assert [one.has_work for one in detect_changes(jobs)] == [True, True]
    (tmp_path / "files" / "1.json").unlink()
    # Beside a target, a log that is missing was dropped.
    lake.tables["target"].create()
    assert isinstance(detect_changes(jobs)[0].error, TableNotFound)
    assert isinstance(lake.run(*jobs)["p"].error, TableNotFound)


def test_work_of_a_source_is_work_of_the_apply(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    jobs = [lake.job("eu"), lake.job("us"), lake.job("p")]
    assert [one.has_work for one in detect_changes(jobs)] == [True, True, True]
    assert detect_changes(jobs)[2].found == "the events of p.eu, p.us"
    lake.tables["log"].create()
    lake.run(*jobs)
    assert [one.has_work for one in detect_changes(jobs)] == [False, False, False]
    # To announce a commit again appends nothing.
    unannounced = [replace(jobs[0], announced=lambda *_: 0), *jobs[1:]]
    assert [one.has_work for one in detect_changes(unannounced)] == [True, False, False]
    lake.tables["us"].append()
    found = detect_changes(jobs)
    assert [one.has_work for one in found] == [False, True, True]
    assert (found[2].since, found[2].target_version, found[2].saved_plans) == (1, 1, {})
    apply = jobs[2].apply
    assert apply is not None
    assert found[2].error is None
    drifted = replace(apply, options=replace(apply.options, where="id > 1"))
    *_, last = detect_changes([*jobs[:2], replace(jobs[2], apply=drifted)])
    assert (last.has_work, type(last.error)) == (True, ConfigurationDrift)


def test_a_source_that_became_another_table_gets_another_name(tmp_path: Path) -> None:
    """No mode and no policy helps; and without the log, the events of all sources would be lost."""
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    lake.run(lake.job("eu"))
    lake.tables["eu"].configuration = {}
    lake.tables["eu"].replace_table("other")
    with pytest.raises(SourceTableReplaced) as raised:
        plan_apply(_request(lake.job("eu")))
    assert raised.value.remedy.startswith("give this source another name")


def test_a_source_that_is_loaded_once_is_never_read_again(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    once = lake.job("eu", once=True)
    lake.run(once)
    lake.tables["eu"].append()
    for gone in (False, True):
        if gone:
            shutil.rmtree(lake.at("eu"))
        plan = plan_apply(_request(once))
        assert plan.spec is None
        assert f"{lake.at('eu')} is loaded once: version 1. Nothing is read from it." in plan.notes
    assert not lake.run(once)["p.eu"].applied.applied
    (status,) = run_sync(
        status_of_all(
            [("p.eu", lake.at("log"))], sources=[lake.at("eu")], kinds=[{"collects": True, "once": True}]
        )
    )
    assert (status.committed, status.findings) == (1, ())
    found = run_sync(
        plan_verify_async(VerifyRequest(pipeline="p.eu", target=lake.at("log"), once=True))
    ).outcome.checks
    assert {one.check: one.status for one in found if one.status != "skipped"} == {"seal": "ok"}
    (lost,) = [
        one
        for one in run_sync(
            plan_verify_async(VerifyRequest(pipeline="p.eu", target=lake.at("log")))
        ).outcome.checks
        if one.status == "finding"
    ]
    assert lost.check == "watermark"
    # Before it is loaded, it is read: in one commit, which says that it is done.
    other = lake.job("us", once=True)
    assert [step.kind for step in plan_apply(_request(other)).steps] == ["load"]
    for more, problem in (
        ({"initial_load": {"from_version": 1}}, "once and initial_load are given"),
        ({"starting_version": 1}, "once and the start"),
    ):
        with pytest.raises(InvalidConfiguration, match=problem):
            plan_apply(_request(lake.job("us", once=True, **more)))


def test_a_source_that_is_loaded_once_may_get_another_name(tmp_path: Path) -> None:
    """It takes its seal over; the source may be gone."""
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    lake.run(lake.job("eu", once=True))
    shutil.rmtree(lake.at("eu"))
    renamed = lake.job("eu", once=True, pipeline="q.eu", take_over_from="p.eu")
    assert [step.kind for step in plan_apply(_request(renamed)).steps] == ["take_over", "take_over"]
    lake.run(renamed)
    assert plan_apply(_request(renamed)).spec is None


def test_a_source_that_is_newer_than_the_name_of_its_pipeline_is_loaded(tmp_path: Path) -> None:
    """It inherits a predecessor that never was; one that a user wrote for it is a mistake."""
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    lake.run(lake.job("eu"))

    def kinds(name: str, pipeline: str, predecessor: str, *, inherits: bool = True) -> list[str]:
        given = {"pipeline": pipeline, "take_over_from": predecessor, "inherits_take_over": inherits}
        return [step.kind for step in plan_apply(_request(lake.job(name, **given))).steps]

    assert kinds("us", "q.us", "p.us") == ["load"]
    assert kinds("eu", "q.eu", "p.eu") == ["take_over", "take_over"]
    with pytest.raises(TargetWithoutWatermark, match=r"no seal of pipeline p\.us .*: p\.eu"):
        kinds("us", "q.us", "p.us", inherits=False)
    # Another pipeline goes on with the same source, so it has another name than the inherited one.
    for pipeline, predecessor in (("r.eu", "q.eu"), ("q.europe", "p.europe")):
        with pytest.raises(TargetWithoutWatermark, match=f"no seal of pipeline {predecessor} "):
            kinds("eu", pipeline, predecessor)
    # A source that cannot go on gets another name, and is loaded again.
    lake.run(lake.job("eu", pipeline="q.eu", take_over_from="p.eu"))
    assert kinds("eu", "q.europe", "p.europe") == ["load"]
    assert kinds("us", "q.us", "p.us") == ["load"]


def test_a_predecessor_whose_seal_is_lost_is_no_new_source(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log = lake.tables["log"]
    log.create()
    lake.run(lake.job("us"))
    version = log.version
    lake.run(lake.job("eu"))
    log.restore(version)
    renamed = lake.job("eu", pipeline="q.eu", take_over_from="p.eu", inherits_take_over=True)
    with pytest.raises(TargetWithoutWatermark, match=r"restored to before the first seal of pipeline p\.eu"):
        plan_apply(_request(renamed))


def test_a_seal_of_a_source_loaded_once_is_renewed_without_it(tmp_path: Path) -> None:
    """A crash after the first commit left the log without its description; the source is gone since."""
    lake = Lake(tmp_path, configuration={})
    lake.tables["log"].create()
    once = lake.job("eu", once=True)
    lake.run(once)
    shutil.rmtree(lake.at("eu"))
    plan = plan_apply(_request(once))
    assert [step.kind for step in plan.steps] == ["renew"]
    assert isinstance(plan.spec, ApplySpec)
    assert lake.at("eu") not in plan.spec.locations
    assert plan.spec.options.target_properties == {"delta_cdc.changeLog": "true", **OF_TABLES}


def test_events_are_appended_beside_those_of_others_and_only_to_a_log(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    lake.run(lake.job("eu"))
    plan = plan_apply(_request(lake.job("us")))
    assert [step.kind for step in plan.steps] == ["load"]
    assert plan.steps[0].planned_on is not None
    # Another table with rows is no log; and a table of rows is not taken as one's own.
    with pytest.raises(TargetSchemaClash, match="no change log"):
        plan_apply(_request(lake.job("us", target=lake.at("eu"))))
    with pytest.raises(TargetWithoutWatermark):
        plan_apply(_request(lake.job("p", source=lake.at("us"), source_kind="change_feed", sequence_by=None,
                                     target=lake.at("log"))))  # fmt: skip


def test_a_source_that_is_not_named_any_more_is_found(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    log = lake.at("log")
    assert run_sync(not_named(log, ["p.eu"])) == ()
    lake.tables["log"].create()
    lake.run(lake.job("eu"), lake.job("us"))
    assert run_sync(not_named(log, ["p.eu", "p.us"])) == ()
    (finding,) = run_sync(not_named(log, ["p.us"]))
    assert f"{log} has events of p.eu, which the configuration does not name" in finding
    # The first plan of a new name names the old ones; after a takeover, the old name has ended.
    renamed = lake.job("eu", pipeline="p.europe")
    (note,) = plan_apply(_request(renamed)).notes
    assert "has events of p.eu, p.us. If it had another name before, set take_over_from" in note
    taken = lake.job("eu", pipeline="p.europe", take_over_from="p.eu")
    assert [step.kind for step in plan_apply(_request(taken)).steps] == ["take_over", "take_over"]
    lake.run(taken)
    assert run_sync(not_named(log, ["p.europe", "p.us"])) == ()


def test_every_copy_counts_for_events(tmp_path: Path) -> None:
    """The net change of a range would lose events."""
    lake = Lake(tmp_path)
    lake.tables["log"].create()
    copies = lake.job("eu", source_kind="snapshot")
    lake.run(copies)
    for _ in range(3):
        lake.tables["eu"].overwrite()
    ranges = plan_apply(_request(copies)).steps[0].read.ranges
    assert [(one.starting_version, one.ending_version) for one in ranges] == [(2, 2), (3, 3), (4, 4)]
