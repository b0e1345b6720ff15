"""What the one application of a configuration's tables is told."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from delta_cdc.cli import application, command_line
from delta_cdc.cli.pipelines import Chosen, chosen
from delta_cdc.config import load
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import ApplyOptions, IngestOptions
from delta_cdc.core.requests import ApplyRequest, IngestRequest
from delta_cdc.core.spec import ApplySpec, BatchSpec, IngestSpec, JobResult
from delta_cdc.core.watermark import TableVersion
from delta_cdc.launch.session import INTERPRETED
from delta_cdc.planning.size import SMALL, TINY
from delta_cdc.planning.verify import VerifyRequest
from tests.support.steps import ingest_step, step

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ACCOUNT = "abfss://lake@account.dfs.core.windows.net"
STEP = ingest_step()


def apply(source: str, target: str) -> ApplySpec:
    return ApplySpec(
        pipeline="p",
        run_id="r",
        source_uri=source,
        target_uri=target,
        options=ApplyOptions(keys=("id",)),
        steps=(step("apply", 1, TableVersion("id", 2), 1),),
    )


def after(target: str) -> ApplyRequest:
    return ApplyRequest(pipeline="p", source="/l", target=target, options=ApplyOptions(keys=("id",)))


def ingest(source: str, kind: Any, target: str) -> IngestSpec:
    options = IngestOptions(source_kind=kind)
    return IngestSpec(
        pipeline="p",
        run_id="r",
        source_uri=source,
        log_uri="/l",
        ingested_uri="/i",
        quarantine_uri="/q",
        options=options,
        steps=(STEP,),
        after=(after(target),),
    )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What sessions were started with, and jobs run with."""
    seen: list[dict[str, Any]] = []

    @contextmanager
    def session(name: str, **extra: Any) -> Iterator[str]:
        seen.append({"name": name, **extra})
        yield "spark"

    def run(spark: str, bundle: BatchSpec, **options: Any) -> JobResult:
        seen.append({"spark": spark, "parts": len(bundle.parts), **options})
        return JobResult("committed")

    monkeypatch.setattr(application, "session", session)
    monkeypatch.setattr(job, "run", run)
    return seen


def test_one_session_for_all_rounds(started: list[dict[str, Any]]) -> None:
    """Store, confs and Kafka's options; the user's own confs win."""
    options = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "aws_endpoint_url": "http://host:9"}
    endpoint = "spark.hadoop.fs.s3a.endpoint"
    told = {
        "storage_options": options,
        "kafka_options": {"a": "b"},
        "conf": {endpoint: "mine", "spark.x": "1"},
    }
    with application.Application(told) as running:
        running.execute(
            BatchSpec(
                run_id="r", parts=(apply("s3://a/s", "s3://a/t"), ingest("kafka://b:9/t", "kafka", "/t"))
            )
        )
        running.execute(BatchSpec(run_id="r", parts=(apply("s3://a/s", "s3://a/t"),)))
    session, first, second = started
    assert session["kafka"] is True
    # Of the store, confs and secrets are made where Spark starts; the user's own are given along.
    assert session["storage_options"] == options
    assert (session[endpoint], session["spark.x"]) == ("mine", "1")
    assert first == {"spark": "spark", "parts": 2, "storage_options": options, "kafka_options": {"a": "b"}}
    assert second["parts"] == 1


def test_what_a_later_round_reaches_is_told_before_the_first(started: list[dict[str, Any]]) -> None:
    """One Spark serves all rounds: nothing can be put on its class path once it runs."""
    asked = [
        VerifyRequest(pipeline="a", target="s3://lake/a"),
        IngestRequest(pipeline="b", source="kafka://b:9/t", log="/l", options=IngestOptions()),
    ]
    with application.Application({}, asked) as running:
        running.execute(BatchSpec(run_id="r", parts=(apply("/s", "/t"),)))
    assert {"/s", "/t", "s3://lake/a", "/l"} == set(started[0]["locations"])
    assert started[0]["kafka"] is True
    with application.Application({}) as running:
        assert len(started) == 2, "nothing to run starts nothing"
        running.execute(BatchSpec(run_id="r", parts=(ingest("/files", "files", f"{ACCOUNT}/t"),)))
    assert {"/files", "/l", f"{ACCOUNT}/t"} <= set(started[2]["locations"])
    assert "kafka" not in started[2]


@pytest.mark.parametrize(
    ("then", "applies", "larger", "quick", "interpreted"),
    [
        (None, True, 0, False, False),
        (None, False, 0, True, True),
        (after("/t"), True, 0, True, True),
        (None, False, 1, True, False),
        (None, False, SMALL, False, False),
    ],
)
def test_a_quick_start_is_for_small_work_alone(
    started: list[dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    then: ApplyRequest | None,
    applies: bool,
    larger: int,
    quick: bool,
    interpreted: bool,
) -> None:
    """An apply in a round of its own takes all that the log holds, however small the ingest before it was."""
    monkeypatch.setattr("delta_cdc.cli.application.job_size", lambda *_: TINY + larger)
    request = ApplyRequest(pipeline="p", source="/l", target="/t", options=ApplyOptions(keys=("id",)))
    asked = [request] if applies else []
    spec = replace(ingest("/files", "files", "/t"), after=() if then is None else (then,))
    theirs = {"spark.sql.codegen.wholeStage": "mine"}
    for conf, expected in (({}, INTERPRETED), (theirs, {**INTERPRETED, **theirs})):
        started.clear()
        with application.Application({"conf": conf}, asked) as running:
            running.execute(BatchSpec(run_id="r", parts=(spec,)))
        assert started[0]["quick_start"] is quick
        assert (expected.items() <= started[0].items()) is interpreted


def settings(pipelines: dict[str, Any], *names: str) -> dict[str, Any]:
    tables = load({"pipelines": pipelines}).chosen(None, names or None)
    return application.settings_of([Chosen(table, group) for group, table in tables])


def test_groups_that_disagree() -> None:
    entry = {"source": "/s", "keys": ["id"]}
    options = {"aws_region": "one"}
    pipelines = {
        "a": {**entry, "target": "/a", "storage_options": options},
        "b": {**entry, "target": "/b", "storage_options": options},
        "c": {**entry, "target": "/c"},
    }
    assert settings(pipelines, "a", "b")["storage_options"] == options
    with pytest.raises(InvalidConfiguration, match="The groups a, b, c have different storage_options"):
        settings(pipelines)


@pytest.mark.parametrize("given", [False, True])
def test_a_connection_is_not_looked_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: bool
) -> None:
    """Said once for the whole file, unless it says what takes its place."""
    entry: dict[str, Any] = {"source": "/s", "keys": ["id"], "delta_conn_id": "lake"}
    if given:
        entry["storage_options"] = {"aws_region": "one"}
    file = tmp_path / "pipelines.yaml"
    file.write_text(json.dumps({"pipelines": {name: {**entry, "target": f"/{name}"} for name in ("a", "b")}}))
    assert len(chosen(command_line().parse_args(["status", str(file)]))) == 2
    printed = capsys.readouterr().err
    if given:
        assert printed == ""
        return
    assert printed.count("\n") == 1
    assert "delta_conn_id lake is Airflow's" in printed
    assert "unless the file gives storage_options; the commands of airflow delta-cdc look it up" in printed
