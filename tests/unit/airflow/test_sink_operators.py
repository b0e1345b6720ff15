"""Reading for a sink of one's own, committing, and ``@task.delta_changes``: what they ask for and publish."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import DAG, task

from airflow_delta_cdc.decorators.changes import delta_changes_task
from airflow_delta_cdc.operators import DeltaCommitWatermarkOperator, DeltaReadChangesOperator
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.runtime.manifests import manifests_for, with_manifests
from airflow_delta_cdc.runtime.worker_session import WorkerSession
from delta_cdc.core.errors import (
    DeployModeUnsupported,
    InvalidConfiguration,
    JobFailed,
    SparkConnectionNotFound,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import CommitRequest
from delta_cdc.core.spec import ApplySpec, BatchSpec, JobResult
from delta_cdc.core.steps import ReadRange
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.run.outcomes import Outcome
from tests.support.logs import changed, seal
from tests.support.steps import step as made_step
from tests.support.tables import Tables
from tests.unit.airflow.test_apply_operator import Ti
from tests.unit.airflow.test_base_operator import Store
from tests.unit.airflow.test_operator_storage import ingest_spec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.unit.airflow.conftest import Connect, Records


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    return Tables.made_in(tmp_path)


# -- read and commit ------------------------------------------------------------------------------
COMMITTED = Outcome(
    kind="commit",
    applied=True,
    versions=VersionRange(3, 5),
    watermark=TableVersion("source-id", 5),
    pipeline="p",
    seal=9,
    source_table="/lake/source",
    staging="/lake/staging",
    staging_version=4,
)


def test_commit_publishes_what_was_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def planned(request: Any, _: Any) -> Outcome:
        asked.append(request)
        return COMMITTED

    monkeypatch.setattr("delta_cdc.run.flows.run", planned)
    operator = DeltaCommitWatermarkOperator(
        task_id="commit", pipeline="none", staging="/lake/staging", ending_version="{{ params.end }}"
    )
    operator.render_template_fields({"params": {"end": 5}})  # type: ignore[arg-type]
    context: Any = {"run_id": "r", "ti": Ti(), "task_state_store": Store()}
    published = operator.execute(context)
    assert context["ti"].pushed == {"return_value": published}
    assert set(published) == {
        *("pipeline", "seal", "source_table", "source_table_id", "version", "starting_version"),
        *("ending_version", "applied", "staging", "staging_version", "timestamp"),
    }
    assert (published["version"], published["starting_version"], published["applied"]) == (5, 3, True)
    (request,) = asked
    # This is a name, too.
    assert (request.pipeline, request.staging, request.ending_version) == ("none", "/lake/staging", 5)


@pytest.mark.parametrize(("native", "end"), [(False, None), (False, ""), (True, None)])
def test_a_read_without_a_batch_commits_nothing(
    monkeypatch: pytest.MonkeyPatch, tables: Tables, native: bool, end: Any
) -> None:
    """Another run may have staged a batch since, which has arrived nowhere."""
    with DAG("d", schedule=None, render_template_as_native_obj=native) as dag:
        operator = DeltaCommitWatermarkOperator(
            task_id="commit", pipeline="p", staging=tables.staging.uri, ending_version="{{ params.end }}"
        )
    operator.render_template_fields({"params": {"end": end}}, dag.get_template_env())  # type: ignore[arg-type]
    monkeypatch.setattr(DeltaCommitWatermarkOperator, "run_job", None)
    context: Any = {"run_id": "r", "ti": Ti(), "task_state_store": Store()}
    published = operator.execute(context)
    assert (published["applied"], published["version"], published["seal"], published["staging_version"]) == (
        False,
        *[None] * 3,
    )
    source = tables.source
    made = seal(9, 3, source=source, kind="commit", start=2)
    tables.staging.write_seal(changed(made, configuration={}), operation="WRITE", rows=False)
    committed = {"table_id": source.table_id, "version": 3, "commit_hash": source.sha256(3)}
    open_batch = {"batch": "changes", "complete": True, "committed": committed}
    made = seal(10, 5, source=source, kind="read", start=4)
    tables.staging.write_seal(changed(made, configuration=open_batch), operation="WRITE")
    published = operator.execute(context)
    assert context["ti"].pushed == {"return_value": published}
    assert (published["applied"], published["starting_version"], published["ending_version"]) == (
        False,
        None,
        None,
    )
    assert (published["version"], published["staging_version"]) == (3, 1)


def test_a_commit_of_whichever_batch_is_open(tables: Tables, monkeypatch: pytest.MonkeyPatch) -> None:
    open_batch = {"batch": "snapshot", "complete": True, "committed": None}
    made = seal(10, 5, source=tables.source, kind="read", start=5)
    tables.staging.write_seal(changed(made, configuration=open_batch), operation="WRITE")
    ran: list[Any] = []

    def run_job(_: Any, context: Any, spec: Any) -> JobResult:
        ran.append(spec.steps[0].ending_version)
        return JobResult("failed", message="no Spark here")

    monkeypatch.setattr(DeltaCommitWatermarkOperator, "run_job", run_job)
    operator = DeltaCommitWatermarkOperator(task_id="commit", pipeline="p", staging=tables.staging.uri)
    context: Any = {"run_id": "r", "ti": Ti(), "task_state_store": Store()}
    with pytest.raises(JobFailed):
        operator.execute(context)
    assert ran == [5]


# -- @task.delta_changes --------------------------------------------------------------------------
class Changes:
    """What the session would give."""


class Steps:
    """Stands in for the flows, and notes what was called in which order."""

    def __init__(self) -> None:
        self.versions: VersionRange | None = VersionRange(3, 5)
        self.called: list[str] = []
        self.earlier: Outcome | None = None

    def run(self, request: Any, _: Any) -> Outcome:
        return self.commit(request) if isinstance(request, CommitRequest) else self.read(request)

    def read(self, request: Any) -> Outcome:
        self.called.append(f"read {request.options.query}")
        return replace(
            COMMITTED,
            kind="read",
            versions=self.versions,
            watermark=TableVersion("source-id", 2),
            counts={"rows": 7, "insert": 7},
            seal=8,
            staging_version=3,
            rows=7,
            plan_key="pin:p:source-id",
        )

    def commit(self, request: Any) -> Outcome:
        self.called.append(f"commit {request.ending_version}")
        return COMMITTED

    def by_run(self, request: Any) -> Outcome | None:
        self.called.append(f"look for {request.run_id}")
        return self.earlier


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    made = Steps()
    monkeypatch.setattr("delta_cdc.run.flows.run", made.run)
    monkeypatch.setattr("delta_cdc.run.commit.committed_by_run", made.by_run)
    return made


def decorated(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Return the operator of a decorated function, called with some arguments."""
    with DAG("d", schedule=None) as dag:
        made = delta_changes_task(
            function, pipeline="p", table="/lake/source", staging="/lake/staging", query="append_only"
        )
        made(*args, **kwargs)
    (operator,) = dag.tasks
    return operator


def run(operator: Any, monkeypatch: pytest.MonkeyPatch, **more: Any) -> tuple[Any, Any, Store]:
    changes = Changes()
    monkeypatch.setattr(type(operator), "_changes", lambda *_: changes)
    store = Store(**{"pin:p:source-id": {"ending_version": 5}})
    context: Any = {"run_id": "r", "ti": Ti(), "task_state_store": store, "ds": "2026-01-01", **more}
    returned = operator.execute(context)
    return returned, context["ti"].pushed, store


def test_the_function_gets_the_changes_and_its_own_arguments(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[Any] = []

    def send(changes: Any, bucket: str, *, batch: dict[str, Any], ds: str | None = None, n: int = 0) -> int:
        got.extend([changes, bucket, batch["starting_version"], batch["rows"], ds, n])
        steps.called.append("send")
        return 42

    operator = decorated(send, "s3://out", n=3)
    returned, pushed, store = run(operator, monkeypatch)
    assert isinstance(got[0], Changes)
    assert got[1:] == ["s3://out", 3, 7, "2026-01-01", 3]
    assert steps.called == ["read append_only", "send", "commit 5"]
    assert returned == 42
    assert (pushed["watermark"]["version"], pushed["watermark"]["counts"]["insert"]) == (5, 7)
    assert store.kept == {}, "the pin is forgotten once all is published"

    def fails(changes: Any) -> None:
        raise RuntimeError("the sink is away")

    steps.called.clear()
    with pytest.raises(RuntimeError, match="the sink is away"):
        run(decorated(fails), monkeypatch)
    assert steps.called == ["read append_only"], "nothing is committed"


def test_a_task_that_was_killed_while_it_staged_sends_nothing(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(changes: Any) -> None:
        steps.called.append("send")

    operator = decorated(send)
    read = steps.read

    def killed(request: Any) -> Outcome:
        operator.on_kill()
        return read(request)

    monkeypatch.setattr(steps, "read", killed)
    with pytest.raises(JobFailed, match="killed"):
        run(operator, monkeypatch)
    assert steps.called == ["read append_only"]


@pytest.mark.parametrize("fails", [True, False])
def test_a_jvm_that_is_dead_at_the_end_changes_nothing(
    steps: Steps, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    class Dead:
        def stop(self) -> None:
            raise ConnectionRefusedError(111)

    monkeypatch.setattr("delta_cdc.launch.session.get_session", lambda *_, **__: Dead())

    def send(changes: Any) -> int:
        operator._session.get(["/lake/source"])
        if fails:
            raise JobFailed("Spark died.", remedy="retry.")
        return 42

    operator = decorated(send)
    if fails:
        with pytest.raises(JobFailed, match="Spark died"):
            run(operator, monkeypatch)
    else:
        assert run(operator, monkeypatch)[0] == 42


def test_with_nothing_new_the_task_is_skipped(steps: Steps, monkeypatch: pytest.MonkeyPatch) -> None:
    steps.versions = None
    monkeypatch.setattr(WorkerSession, "get", None)

    def send(changes: Any) -> None:
        raise AssertionError

    ti = Ti()
    with pytest.raises(AirflowSkipException, match="no changes after"):
        run(decorated(send), monkeypatch, ti=ti)
    assert steps.called == ["read append_only", "look for r"]
    assert {key: value["version"] for key, value in ti.pushed.items()} == {"watermark": 2}
    # After a try that committed and died it is not: what comes behind has a batch to work on.
    steps.earlier = COMMITTED
    returned, pushed, store = run(decorated(send), monkeypatch)
    assert (returned, store.kept) == (None, {})
    batch = {name: pushed["watermark"][name] for name in ("applied", "starting_version", "ending_version")}
    assert batch == {"applied": True, "starting_version": 3, "ending_version": 5}


def test_what_cannot_be_decorated() -> None:
    def nothing() -> None:
        """Take no changes."""

    def keywords(*, changes: Any) -> None:
        """Take them by name."""

    for function in (nothing, keywords):
        with pytest.raises(InvalidConfiguration, match="no positional parameter"):
            decorated(function)
    with pytest.raises(InvalidConfiguration, match="target"), DAG("d", schedule=None):
        delta_changes_task(
            lambda changes: None, pipeline="p", table="/s", staging="/t", target="/u", task_id="send"
        )()


# -- the session in the worker --------------------------------------------------------------------
def worker(tmp_path: Path, **arguments: Any) -> WorkerSession:
    read = DeltaReadChangesOperator(task_id="read", pipeline="p", table="/s", staging="/t", **arguments)
    return WorkerSession(read, tmp_path, "name")


def test_where_the_session_runs(connect: Connect, tmp_path: Path) -> None:
    assert worker(tmp_path).master == "local[*]"
    cluster = connect(host="spark://master:7077")
    assert worker(tmp_path, spark_conn_id=cluster).master == "spark://master:7077"
    with pytest.raises(SparkConnectionNotFound):
        _ = worker(tmp_path, spark_conn_id="absent").master
    yarn = connect(host="yarn", **{"deploy-mode": "cluster"})
    with pytest.raises(DeployModeUnsupported, match="runs in the worker"):
        worker(tmp_path, spark_conn_id=yarn).get(["/s"])
    remote = worker(
        tmp_path,
        spark_conn_id=connect("spark_remote", conn_type="spark_connect", host="sc://spark", port=15002),
        executor_memory="2g",
    )
    assert remote.master.startswith("sc://spark")
    with pytest.raises(InvalidConfiguration, match=r"executor_memory cannot be set.*server"):
        remote.get(["/s"])


def confs_of(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, conn_id: str | None, **arguments: Any
) -> dict[str, str]:
    """Return the confs that a session would be started with."""
    started: list[dict[str, str]] = []
    monkeypatch.setattr("delta_cdc.launch.session.get_session", lambda name, **confs: started.append(confs))
    monkeypatch.setattr("delta_cdc.launch.jars.needed", lambda *_: [Path("/delta.jar")])
    monkeypatch.setattr(
        "airflow_delta_cdc.runtime.worker_session._built", lambda builder, confs: started.append(confs)
    )
    monkeypatch.setattr(
        "delta_cdc.launch.environment.child_environment", lambda **_: {"PYSPARK_PYTHON": sys.executable}
    )
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    worker(tmp_path, spark_conn_id=conn_id, **arguments).get(["/s"])
    (confs,) = started
    return confs


@pytest.mark.parametrize("embedded", [False, True])
def test_a_session_is_as_the_arguments_say(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, embedded: bool
) -> None:
    conn_id = None if embedded else connect(host="yarn", queue="of-the-connection")
    arguments: dict[str, Any] = {"driver_memory": "3g", "executor_memory": "5g", "executor_cores": 2}
    arguments |= {"num_executors": 7, "total_executor_cores": 14, "packages": "io.delta:any"}
    arguments["conf"] = {"spark.executor.memory": "6g"}
    confs = confs_of(monkeypatch, tmp_path, conn_id, **arguments)
    asked = {
        "spark.driver.memory": "3g",
        "spark.executor.memory": "6g",
        "spark.executor.cores": "2",
        "spark.executor.instances": "7",
        "spark.cores.max": "14",
        "spark.jars.packages": "io.delta:any",
        # Delta's are among the packages.
        **({"jars": False} if embedded else {"spark.yarn.queue": "of-the-connection", "spark.jars": None}),
    }
    assert {name: confs.get(name) for name in asked} == asked
    named = confs_of(monkeypatch, tmp_path, conn_id, yarn_queue="mine", jars="/a.jar")
    assert (named["spark.yarn.queue"], named["spark.jars"]) == ("mine", "/a.jar")
    beside = confs_of(monkeypatch, tmp_path, conn_id, conf={"spark.jars": "/mine.jar"})
    assert (beside.get("jars"), beside["spark.jars"]) == (
        (True, "/mine.jar") if embedded else (None, "/delta.jar,/mine.jar")
    )


def test_a_session_is_told_of_the_storage_as_every_spark_of_this_process(
    connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """With Spark's own defaults beside the file that holds what is secret."""
    told: list[str] = []
    properties = tmp_path / "storage.properties"
    monkeypatch.setattr(
        "delta_cdc.launch.session.get_session",
        lambda name, **_: told.extend((os.environ["PYSPARK_SUBMIT_ARGS"], properties.read_text())),
    )
    fields = {"conn_type": "delta", "login": "acc", "password": "c2VjcmV0", "extra": {"storage": "azure"}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(fields))
    worker(tmp_path, delta_conn_id="lake").get(["/s"])
    arguments, secrets = told
    assert arguments == f"--properties-file {properties} --load-spark-defaults pyspark-shell"
    assert "c2VjcmV0" in secrets
    assert not properties.exists(), "Spark has read it"


def test_a_session_cannot_be_what_a_process_could() -> None:
    given: dict[str, Any] = {"files": "/a.txt", "proxy_user": "somebody", "py_files": None}
    given |= {"use_krb5ccache": False, "executor_memory": "2g"}
    refused = pytest.raises(InvalidConfiguration, match="files, proxy_user cannot be set")
    with refused as caught, DAG("d", schedule=None):
        delta_changes_task(
            lambda changes: None, pipeline="p", table="/s", staging="/t", task_id="t", **given
        )()
    assert "DeltaReadChangesOperator" in caught.value.remedy


# -- slices ---------------------------------------------------------------------------------------
def spec_with(method: Any) -> ApplySpec:
    ranges = (ReadRange(1, 2, method, "said so", 10),)
    step = made_step("apply", 1, TableVersion("id", 2), 1, source_columns=("id",), ranges=ranges)
    tables = {"source_uri": "/lake/source", "target_uri": "/lake/target"}
    return ApplySpec(pipeline="p", run_id="r", **tables, options=ApplyOptions(), steps=(step,))


@pytest.mark.parametrize(
    ("master", "results", "root"),
    [
        ("local[*]", "", "{tmp}/manifests"),
        ("spark://master:7077", "s3://lake/results/", "s3a://lake/results/mine/manifests"),
    ],
)
def test_slices_lie_where_spark_finds_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, master: str, results: str, root: str
) -> None:
    written: list[Any] = []

    def prepared(spec: Any, root: str, options: Any) -> Any:
        written.append(root)
        return spec

    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", results)
    monkeypatch.setattr("delta_cdc.delta_log.file_manifests.prepared", prepared)
    spec = spec_with("row_tracking")
    with_manifests(spec, master, tmp_path, options=None, name="mine")
    assert written == [root.format(tmp=tmp_path)]
    with_manifests(spec_with("change_files"), master, tmp_path, options=None, name="mine")
    assert len(written) == 2, "read by its files, the feed costs fewer scans"


def test_each_part_of_a_bundle_has_slices_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are named by versions, which two tables may share."""
    tables = Tables.made_in(tmp_path)
    part = replace(spec_with("added_files"), source_uri=tables.source.uri)
    bundle = BatchSpec(
        run_id="r", parts=(part, replace(part, pipeline="q"), ingest_spec("/landing", "/lake/log"))
    )
    ready = with_manifests(bundle, "local[2]", tmp_path, options=None, name="mine")
    assert isinstance(ready, BatchSpec)
    folders = [part.manifests_uri for part in ready.parts if isinstance(part, ApplySpec)]
    assert folders == [str(tmp_path / "manifests" / str(number)) for number in (0, 1)]
    assert all(list(Path(folder).rglob("*.json")) for folder in folders)
    assert ready.parts[2] == bundle.parts[2]
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", results.as_uri())
    with manifests_for(bundle, "yarn", tmp_path, options=None, log=logging.getLogger()):
        assert list(results.rglob("*.json"))
    assert list(results.iterdir()) == []
    rest = BatchSpec(run_id="r", parts=bundle.parts[2:])
    assert with_manifests(rest, "yarn", tmp_path, options=None, name="mine") == rest


@pytest.mark.parametrize("dies", [False, True])
def test_slices_go_with_their_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, records: Records, dies: bool
) -> None:
    from delta_cdc.delta_log.file_manifests import prepared

    tables = Tables.made_in(tmp_path)
    results = tmp_path / "results"
    (results / "others").mkdir(parents=True)
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", results.as_uri())
    spec = replace(spec_with("added_files"), source_uri=tables.source.uri)
    log: Any = records
    error = RuntimeError("the cluster is away")
    with (
        contextlib.suppress(RuntimeError),
        manifests_for(spec, "yarn", tmp_path, options=None, log=log) as ready,
    ):
        assert isinstance(ready, ApplySpec)
        assert ready == prepared(spec, ready.manifests_uri)
        assert list(results.rglob("*.json"))
        if dies:
            raise error
    assert [found.name for found in results.iterdir()] == ["others"]

    def fails(root: str, options: Any) -> None:
        raise error

    monkeypatch.setattr("delta_cdc.delta_log.file_manifests.forget", fails)
    with manifests_for(spec, "yarn", tmp_path, options=None, log=log):
        pass
    (said,) = records.at("warning")
    assert said.endswith("could not be deleted: the cluster is away")


@pytest.fixture
def by_manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that gives a block with slices on a store; what it yields names their folder."""
    spec = replace(spec_with("added_files"), source_uri=Tables.made_in(tmp_path).source.uri)
    (tmp_path / "results").mkdir()
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", (tmp_path / "results").as_uri())

    def block(**how: bool) -> Any:
        return manifests_for(spec, "yarn", tmp_path, options=None, log=logging.getLogger(), **how)

    return block


def _there(spec: ApplySpec) -> bool:
    return bool(list(Path(spec.manifests_uri.removeprefix("file://")).rglob("*.json")))


def test_a_try_that_was_taken_for_dead_leaves_the_slices_of_the_next_one(
    by_manifest: Callable[..., Any],
) -> None:
    dead = by_manifest()
    dead.__enter__()
    with by_manifest() as of_the_next:
        dead.__exit__(None, None, None)
        assert _there(of_the_next)
    assert not _there(of_the_next)


def test_slices_stay_as_long_as_an_application_that_is_found_again(by_manifest: Callable[..., Any]) -> None:
    with contextlib.suppress(RuntimeError), by_manifest(lasting=True) as first:
        raise RuntimeError("the cluster does not answer")
    assert _there(first)
    with by_manifest(lasting=True) as again:
        assert again == first, "it is the spec that the running application was given"
    assert not _there(again)


def test_a_cluster_needs_a_place_for_slices(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"row_tracking on yarn") as refused:
        with_manifests(spec_with("row_tracking"), "yarn", tmp_path, options=None, name="mine")
    assert "results_uri" in refused.value.remedy
    feed = spec_with("change_files")
    assert with_manifests(feed, "yarn", tmp_path, options=None, name="mine") == feed


def test_whether_there_is_a_place_for_slices(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_scratch(conn_id: str | None) -> bool:
        return DeltaCdcOperator(task_id="any", spark_conn_id=conn_id).has_scratch()

    yarn = connect(host="yarn")
    assert has_scratch(None)
    assert has_scratch(connect("spark_here", host="local[2]"))
    assert not has_scratch(yarn)
    assert not has_scratch("absent"), "said when an application is to start"
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", "s3://lake/results")
    assert has_scratch(yarn)


def test_a_decorated_function_can_be_mapped() -> None:
    with DAG("d", schedule=None) as dag:

        @task.delta_changes(pipeline="p", table="/s", staging="/t")
        def send(changes: Any, bucket: str) -> None:
            """Stay empty."""

        send.expand(bucket=["a", "b"])
    (mapped,) = dag.tasks
    operator = mapped.unmap({"op_kwargs": {"bucket": "a"}})
    assert not isinstance(operator, DeltaReadChangesOperator)
    assert (operator.task_id, operator.custom_operator_name) == ("send", "@task.delta_changes")
    assert (operator.op_args, operator.op_kwargs) == ([None], {"bucket": "a"})
