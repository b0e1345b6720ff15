"""The operators over a real Spark Connect server: what they leave is what an embedded Spark leaves."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pyarrow.parquet as pq
import pytest

from airflow_delta_cdc.hooks import connect
from airflow_delta_cdc.hooks.connect import DeltaCdcConnectHook
from delta_cdc import job
from delta_cdc.api.changes import apply_changes
from delta_cdc.core.errors import (
    EnvironmentNotReady,
    InvalidConfiguration,
    InvalidExpression,
    JobFailed,
    SchemaChangeInRange,
    SparkServerLost,
    SparkServerUnreachable,
    TableNotFound,
    TargetConstraintViolated,
    UnsafeLogStore,
    VersionsUnsupported,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spark_versions import PAIRS
from delta_cdc.core.spec import JobResult
from delta_cdc.launch.session import CLASS_PATH
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import requests
from delta_cdc.spark import catalog, sessions
from delta_cdc.spark.apply.rows import sequence_columns
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes.rows import _united
from delta_cdc.spark.ingest.engine import IngestSteps
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from tests.integration.cluster.test_standalone import PIPELINES, append, context, grow, operator, rows, state
from tests.integration.connect.conftest import SAFE_LOG_STORE, TOKEN
from tests.support.connect_server import connect_server, delta_of_version, free_port
from tests.support.deliveries import Deliveries, event
from tests.support.engine import actions, metadata, newest_seal, seal_of, versions
from tests.support.holding import hooked
from tests.support.rows_in_hand import noted
from tests.support.silent_proxy import silent_proxy
from tests.support.slow import slow_but
from tests.unit.airflow.test_lineage import emitted, names
from tests.unit.airflow.test_operator_storage import ingest_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.connect_server import ConnectServer

    Connect = Callable[..., str]

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SEAL_CONFS = ("txnAppId", "txnVersion")


def made(folder: Path, name: str = "source") -> Path:
    append(folder / name, [(1, "a"), (2, "b"), (3, "c")], feed=True)
    return folder / name


def applying(connection: str, source: Path, target: Path, **more: Any) -> Any:
    from airflow_delta_cdc.operators import DeltaApplyChangesOperator

    given = {"task_id": "apply", "pipeline": "current", "keys": ["id"], **more}
    return DeltaApplyChangesOperator(
        source=str(source), target=str(target), spark_conn_id=connection, **given
    )


def held(table: Path) -> list[tuple[int, str]]:
    """Return the rows of a target that no row was deleted from, without Spark."""
    files: dict[str, bool] = {}
    for version in versions(str(table)):
        for action in actions(str(table), version):
            if "add" in action:
                assert "deletionVector" not in action["add"]
                files[action["add"]["path"]] = True
            elif "remove" in action:
                del files[action["remove"]["path"]]
    found = [row for file in files for row in pq.read_table(table / file).to_pylist()]
    return sorted((row["id"], row["name"]) for row in found)


def sessions_of(server: ConnectServer) -> int:
    """Return how many sessions the server has, by its own word."""
    found = re.search(r"([\d,]+)\s+session\(s\)\s+are online", page_of(server))
    assert found
    return int(found[1])


# -- the same as embedded ---------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("pipeline", slow_but(PIPELINES, "history"))
def test_a_target_is_the_same_as_embedded(
    spark: SparkSession, server: ConnectServer, connected: Connect, tmp_path: Path, pipeline: str
) -> None:
    kind = PIPELINES[pipeline].get("source_kind", "change_feed")
    source, embedded, served = (tmp_path / name for name in ("source", "embedded", "served"))
    append(source, [(1, "a"), (2, "b"), (3, "c")], feed=kind == "change_feed")
    apply_changes(spark, str(source), str(embedded), pipeline=pipeline, **PIPELINES[pipeline])
    shutil.copytree(embedded, served)
    grow(source, kind)
    apply_changes(spark, str(source), str(embedded), pipeline=pipeline, **PIPELINES[pipeline])
    published = operator(connected(), pipeline, source, served, conf={}).execute(context())
    assert published["applied"] is True
    assert rows(spark, served) == rows(spark, embedded)
    assert state(newest_seal(str(served))) == state(newest_seal(str(embedded)))
    assert versions(str(served)) == versions(str(embedded))
    assert not list((tmp_path / "results").rglob("*.json")), "the lists of files are deleted afterwards"
    assert sessions_of(server) == 0


@pytest.mark.slow
def test_lineage_and_figures_come_from_the_worker(connected: Connect, tmp_path: Path) -> None:
    """The server needs no listener."""
    source, target = made(tmp_path), tmp_path / "target"
    one = applying(connected(extra={"spark_ui": "http://connect/{application}"}), source, target)
    published = one.execute(context())
    event = emitted(tmp_path, one)
    assert names(event["inputs"]) == [("file", str(source))]
    assert names(event["outputs"]) == [("file", str(target))]
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3
    assert published["seconds"]["work"] > 0
    assert published["bytes_written"] > 0
    assert published["lag"] | {"readable_until": ""} == {
        "source_version": 0,
        "versions": 0,
        "bytes": 0,
        "seconds": 0,
        "readable_until": "",
        "freshness": None,
        "late": None,
    }
    assert one.spark_ui.replace("{application}", one.application_id).startswith("http://connect/local-")


@pytest.mark.slow
def test_a_rule_of_the_target_is_named_with_the_rows_that_break_it(
    spark: SparkSession, connected: Connect, tmp_path: Path
) -> None:
    """The server has the exception of Delta; what comes here is its text."""
    source, target = made(tmp_path), tmp_path / "target"
    applying(connected(), source, target).execute(context())
    spark.sql(f"ALTER TABLE delta.`{target}` ADD CONSTRAINT short CHECK (length(name) < 3)")
    before = versions(str(target))
    append(source, [(7, "much too long"), (8, "d")], feed=True)
    with pytest.raises(TargetConstraintViolated) as raised:
        applying(connected(), source, target).execute(context())
    for word in ("CHECK constraint short", "- name : much too long", f"{target}", "rule: id = 7. Nothing"):
        assert word in raised.value.message
    assert "\tat " not in raised.value.message
    assert versions(str(target)) == before


@pytest.mark.slow
def test_what_is_wrong_is_raised_where_it_is_asked(connected: Connect, tmp_path: Path) -> None:
    """A plan over Spark Connect is looked at late, and with every use."""
    with DeltaCdcConnectHook(connected()).session({}) as spark:
        frame = spark.sql("SELECT 1 AS id, 2 AS seq, 3 AS v")
        options = ApplyOptions(keys=("id",), stored_as_scd_type=2, sequence_by="seq + 1", delete_sequence="v")
        assert sequence_columns(frame, options) == {"seq", "v"}
        with pytest.raises(InvalidExpression, match="select = "):
            states.resolve(frame, "select", ["nowhere"])
        with pytest.raises(TableNotFound, match="does not exist"):
            catalog.delta_detail(spark, str(tmp_path / "missing"), remedy="")
        table = str(tmp_path / "replaced")
        feed_on = "USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)"
        spark.sql(f"CREATE TABLE delta.`{table}` {feed_on} AS SELECT 1 AS id, 'old' AS v")
        spark.sql(f"CREATE OR REPLACE TABLE delta.`{table}` {feed_on} AS SELECT 'new' AS id")
        with pytest.raises(SchemaChangeInRange, match="id, v changed since"):
            feed.change_rows(spark, table, 0, 0, ["id", "v"], at=0)
        with sessions.private_session(spark) as ours:
            (row,) = feed.change_rows(ours, table, 0, 0, ["id", "v"], at=0).collect()
            assert (row["id"], row["v"], row["_change_type"]) == (1, "old", "insert")


@pytest.mark.slow
def test_more_parts_than_the_levels_that_the_server_takes_of_one_plan(connected: Connect) -> None:
    with DeltaCdcConnectHook(connected()).session({}) as spark:
        assert _united([spark.range(1)] * 600).count() == 600


@pytest.mark.slow
def test_expressions_are_judged_by_their_plans(connected: Connect, tmp_path: Path) -> None:
    """A session here is cloned with what a user made in it."""
    source = made(tmp_path)
    refused = {
        "uuid() = name": "deterministic",
        "name = cast(now() AS string)": "now",
        "id < year('now')": "current time",
        "same(name) = 'a'": "a user's function",
        "id IN (SELECT 1)": "subquery",
        f"concat({', '.join('name' for _ in range(30))}) = user()": "session",
    }
    with DeltaCdcConnectHook(connected()).session({}) as spark:
        spark.udf.register("same", lambda value: value)
        before = dict(spark.conf.getAll)
        asked: dict[str, Any] = {"pipeline": "current", "keys": ["id"]}
        for where, said in refused.items():
            with pytest.raises(InvalidExpression, match=said):
                apply_changes(spark, str(source), str(tmp_path / "target"), where=where, **asked)
        assert not (tmp_path / "target").exists()
        still = "name = 'now()' OR unix_timestamp(timestamp_seconds(id)) > 1"
        apply_changes(spark, str(source), str(tmp_path / "target"), where=still, **asked)
        assert dict(spark.conf.getAll) == before
    assert held(tmp_path / "target") == [(2, "b"), (3, "c")]


@pytest.mark.slow
def test_a_string_is_a_string(connected: Connect, tmp_path: Path) -> None:
    """A type of the client's, as the schema of a table has it."""
    from pyspark.sql import types as T

    kinds: dict[str, T.DataType] = {
        "s": T.StringType(),
        "a": T.ArrayType(T.StringType()),
        "m": T.MapType(T.StringType(), T.StringType()),
        "r": T.StructType([T.StructField("s", T.StringType())]),
    }
    table = tmp_path / "table"
    with DeltaCdcConnectHook(connected()).session({}) as spark, sessions.private_session(spark) as ours:
        from pyspark.sql import functions as F

        empty = ours.range(0).select(*[F.lit(None).cast(kind).alias(name) for name, kind in kinds.items()])
        empty.write.format("delta").save(str(table))
    assert "collate" not in metadata(str(table))["schemaString"]


@contextmanager
def dying(server: ConnectServer, target: Path, seen: str) -> Iterator[None]:
    """Kill the server at a point of the job, or as soon as a file can be seen; or let it be back in time."""
    ended = threading.Event()
    looked_for = {"data": "*.parquet", "log": "_delta_log/*0.json"}.get(seen)

    def die(point: str) -> None:
        if point == seen:
            server.kill()
        elif (point, seen) == ("before_commit", "restarted"):
            server.kill()
            server.start()

    def watch() -> None:
        while looked_for is not None and not ended.wait(0.005):
            if list(target.glob(looked_for)):
                server.kill()
                return

    with hooked(die), ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        try:
            yield
        finally:
            ended.set()
        watching.result()


#: Where a server dies -> whether the job hears of it, where that is certain, and nothing is committed.
DEATHS = {"before_commit": True, "restarted": True, "committed": False, "data": None, "log": None}


@pytest.mark.slow
@pytest.mark.parametrize("seen", DEATHS)
def test_a_server_that_dies(
    server: ConnectServer, connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seen: str
) -> None:
    """Between two statements, or in the one that commits.

    One that is back in time does not know the session, and nothing is run there without its seal.
    """
    monkeypatch.setattr(connect, "PATIENCE", 60.0 if seen == "restarted" else 0.5)
    source, target, given = made(tmp_path), tmp_path / "target", context()
    lost = False
    with dying(server, target, seen):
        try:
            applying(connected(), source, target).execute(given)
        except SparkServerLost:
            lost = True
    if DEATHS[seen] is not None:
        assert lost == DEATHS[seen]
        assert (versions(str(target)) == []) == DEATHS[seen]
    server.kill()
    server.start()
    applying(connected(), source, target).execute(given)
    assert held(target) == [(1, "a"), (2, "b"), (3, "c")]
    sealed = [version for version in versions(str(target)) if seal_of(str(target), version) is not None]
    assert sealed == [0], "exactly once"


def within(seconds: float, call: Callable[[], object]) -> BaseException | None:
    """Return what a call raises, and fail where it does not come to its end in time."""
    raised: list[BaseException | None] = []

    def run() -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - for whoever asked
            raised.append(error)
        else:
            raised.append(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    assert raised, f"no end within {seconds} s"
    return raised[0]


@pytest.mark.slow
def test_a_server_whose_machine_vanishes(
    server: ConnectServer, connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It breaks no connection, so there is no error: somebody has to ask whether it is still there."""
    monkeypatch.setattr(connect, "PATIENCE", 0.5)
    monkeypatch.setattr(connect, "KEEPALIVE", 5_000)
    monkeypatch.setattr(connect, "KEEPALIVE_ANSWER", 1_000)
    source, target = made(tmp_path), tmp_path / "target"

    def vanish(point: str) -> None:
        if point == "before_commit":
            proxy.fall_silent()

    with silent_proxy(server.port) as proxy, hooked(vanish):
        task = applying(connected("far", port=proxy.port), source, target)
        assert isinstance(within(120, lambda: task.execute(context())), SparkServerLost)
    assert versions(str(target)) == []
    # Of those that nobody could release, the server has the sessions still.
    server.kill()
    server.start()
    applying(connected(), source, target).execute(context())
    assert held(target) == [(1, "a"), (2, "b"), (3, "c")]


#: Computes until its server is gone. No test of a thread shows whether a process ends: threads of gRPC and of
#: PySpark's client may keep it.
_CLIENT = """
from airflow_delta_cdc.hooks import connect
from delta_cdc.spark.sessions import is_lost, private_session

connect.PATIENCE = 2.0
with connect.DeltaCdcConnectHook("remote").session({}) as spark, private_session(spark) as session:
    try:
        while True:
            session.range(10).count()
            print("computed", flush=True)
    except Exception as error:
        print("lost", is_lost(error), flush=True)
"""


@pytest.mark.slow
def test_a_process_ends_after_its_server(server: ConnectServer, connected: Connect) -> None:
    connected()
    with subprocess.Popen([sys.executable, "-c", _CLIENT], stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout is not None
        while "computed" not in client.stdout.readline():
            assert client.poll() is None
        server.kill()
        try:
            shown, _ = client.communicate(timeout=60)
        finally:
            client.kill()
    server.start()
    assert ("lost True" in shown.splitlines(), client.returncode) == (True, 0)


@pytest.mark.slow
def test_a_session_that_is_never_released(
    server: ConnectServer, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that is silent when a job has ended: the task ends all the same."""
    monkeypatch.setattr(sessions, "_RELEASED", 0.5)
    with (
        silent_proxy(server.port) as proxy,
        DeltaCdcConnectHook(connected("far", port=proxy.port)).session({}) as spark,
    ):
        assert spark.range(3).count() == 3
        proxy.fall_silent()
        assert within(30, lambda: sessions.close(spark)) is None
    server.kill()
    server.start()


def page_of(server: ConnectServer) -> str:
    """Return what the server shows of its sessions and statements."""
    said: str = urlopen(f"http://127.0.0.1:{server.confs['spark.ui.port']}/connect/").read().decode()
    return said


@pytest.mark.slow
def test_an_ingest_and_its_apply_share_a_session(
    connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The apply takes the rows that its ingest wrote: they are in the server's session."""
    taken = noted(monkeypatch)
    with DeltaCdcConnectHook(connected()).session({}) as spark:
        flow = Deliveries(spark, tmp_path)
        given = {"source": str(flow.source), "log": flow.log, "target": str(tmp_path / "target")}
        ingest, apply = requests({"pipeline": "p", **given, **flow.arguments()})
        for number in (1, 2, 3):
            flow.deliver(
                f"{number}.json", [event("U", number, key, name=f"v{number}") for key in range(number)]
            )
            pipeline_job = PipelineJob(ingest=ingest, apply=apply)
            (done,) = run_batch([pipeline_job], Services(execute=partial(job.run, spark), say=lambda _: None))
            assert (done.error, done.applied and done.applied.applied) == (None, True)
        found = sorted((row["id"], row["name"]) for row in flow.rows("target"))
    assert found == [(0, "v3"), (1, "v3"), (2, "v3")]
    assert taken == [True, True]


def test_statements_with_passwords_are_hidden(
    server: ConnectServer, connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Options of Kafka's client are options of a reader, and the server shows what it is asked.

    It hides plans as well. What applies the log in the same session judges its expressions by them.
    """
    texts: list[str] = []

    def ingested(steps: IngestSteps) -> JobResult:
        events = steps.session.createDataFrame([], "id INT, _op STRING")
        states.projected(events, "_op = 'delete'", ["upper(_op) AS op"], [])
        with pytest.raises(InvalidExpression, match=r"now\(\) depends on the current time"):
            states.projected(events, None, ["now() AS at"], [])
        steps.session.range(1).selectExpr(f"'{texts[-1]}'").collect()
        return JobResult("committed")

    monkeypatch.setattr(IngestSteps, "run", ingested)
    with DeltaCdcConnectHook(connected()).session({}) as spark:
        for source, text in (("kafka://broker:9092/orders", "unseen-9d2"), (str(tmp_path), "seen-4c1")):
            texts.append(text)
            spec = ingest_spec(source, str(tmp_path / "log"))
            assert job.run(spark, spec).error is None
    page = page_of(server)
    assert "seen-4c1" in page
    assert "unseen-9d2" not in page


# -- the end of a task ------------------------------------------------------------------------------
@pytest.mark.slow
def test_a_killed_task_starts_nothing_more(server: ConnectServer, connected: Connect, tmp_path: Path) -> None:
    source, target = made(tmp_path), tmp_path / "target"
    task = applying(connected(), source, target)

    def kill(point: str) -> None:
        if point == "before_commit":
            # As from a signal handler: in the very thread that runs the job.
            task.on_kill()

    with hooked(kill), pytest.raises(JobFailed, match="was killed"):
        task.execute(context())
    assert versions(str(target)) == []
    assert sessions_of(server) == 0


def test_what_runs_on_the_server_is_interrupted(server: ConnectServer, connected: Connect) -> None:
    from pyspark.errors import PySparkException

    hook, started = DeltaCdcConnectHook(connected()), threading.Event()
    with hook.session({}) as spark, sessions.private_session(spark) as ours, ThreadPoolExecutor(1) as pool:
        ours.registerProgressHandler(lambda **_: started.set())  # type: ignore[attr-defined]
        running = pool.submit(lambda: ours.range(10**14).selectExpr("max(hash(id))").collect())
        assert started.wait(60)
        sessions.end(spark)
        with pytest.raises(PySparkException, match=r"CANCELED|SESSION_CLOSED"):
            running.result(60)
        with pytest.raises(PySparkException, match="SESSION_CLOSED"):
            ours.sql("SELECT 1").collect()
    assert sessions_of(server) == 0


def test_a_clone_that_is_made_while_a_job_is_ended(
    server: ConnectServer, connected: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would commit what was killed."""
    from pyspark.errors import PySparkException

    with DeltaCdcConnectHook(connected()).session({}) as spark:
        clone = type(spark).cloneSession  # type: ignore[attr-defined]

        def cloned(session: SparkSession) -> Any:
            made = clone(session)
            sessions.end(session)
            return made

        monkeypatch.setattr(type(spark), "cloneSession", cloned)
        with pytest.raises(PySparkException, match="SESSION_CLOSED"), sessions.private_session(spark) as ours:
            ours.sql("SELECT 1").collect()
    assert sessions_of(server) == 0


# -- refused before anything is written -------------------------------------------------------------
def test_what_a_server_cannot_do(
    server: ConnectServer, connected: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connect, "PATIENCE", 0.2)
    source, target, here = made(tmp_path), tmp_path / "target", connected()
    refused: list[tuple[Any, type[Exception], str]] = [
        (
            applying(here, source, target, jars="/a.jar", driver_memory="2g"),
            InvalidConfiguration,
            "driver_memory, jars",
        ),
        (
            applying(here, source, target, deploy_mode="client"),
            InvalidConfiguration,
            "deploy_mode cannot be set",
        ),
        (
            applying(here, source, target, conf={"spark.driver.memory": "1g"}),
            InvalidConfiguration,
            "spark.driver.memory cannot be set",
        ),
        (
            applying(connected("other", password="wrong"), source, target),
            InvalidConfiguration,
            "refuses the connection 'other'",
        ),
        (
            applying(connected("nobody", port=free_port()), source, target),
            SparkServerUnreachable,
            "does not answer",
        ),
    ]
    for task, error, said in refused:
        with pytest.raises(error, match=said) as caught:
            task.execute(context())
        assert TOKEN not in str(caught.value)
    with monkeypatch.context() as other:
        other.setattr("delta_cdc.core.spark_versions.PAIRS", PAIRS[1:])
        with pytest.raises(VersionsUnsupported, match=r"Spark 4\.2\.0 with Delta 4\.4\.0 is no pair"):
            applying(here, source, target).execute(context())
    monkeypatch.setattr("pyspark.__version__", "4.1.9")
    with pytest.raises(EnvironmentNotReady, match=r"runs Spark 4\.2.* has pyspark 4\.1\.9"):
        applying(here, source, target).execute(context())
    assert not target.exists()
    assert sessions_of(server) == 0


def test_the_log_store_is_the_one_that_the_server_was_started_with(connected: Connect) -> None:
    """Where a session names one, Delta does not look."""
    of_session = {SAFE_LOG_STORE.replace("s3n", "s3a"): "io.delta.storage.S3DynamoDBLogStore"}
    with DeltaCdcConnectHook(connected()).session(of_session) as spark:
        refuse_unsafe_log_store(spark, "s3n://bucket/table", single_driver=False)
        with pytest.raises(UnsafeLogStore, match="S3SingleDriverLogStore"):
            refuse_unsafe_log_store(spark, "s3a://bucket/table", single_driver=False)


#: What a server has of Delta -> parts of the error and of its remedy.
OTHER_DELTAS = {
    "nothing": ("was started without Delta", "delta-cdc jars"),
    "confs alone": ("Cannot read the version of Delta", "delta-cdc jars"),
    "another release": (
        r"Spark 4\.2\.0 with Delta 4\.3\.0 is no pair",
        "take Spark 4.2.0 with Delta 4.4.0",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("delta", list(OTHER_DELTAS))
def test_a_server_without_our_delta(
    connected: Connect, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, delta: str
) -> None:
    source, target = made(tmp_path), tmp_path / "target"
    confs = {CLASS_PATH: str(tmp_path)} if delta == "confs alone" else {}
    if delta == "another release":
        confs = delta_of_version(tmp_path / "classes", "4.3.0")
    folder = tmp_path_factory.mktemp("other")
    with connect_server(folder, delta=delta != "nothing", **confs) as other:
        task = applying(connected("other", port=other.port, password=None), source, target)
        error, remedy = OTHER_DELTAS[delta]
        with pytest.raises(EnvironmentNotReady, match=error) as refused:
            task.execute(context())
    assert remedy in refused.value.remedy
    assert not target.exists()


# -- others on the same server ----------------------------------------------------------------------
@pytest.mark.slow
def test_a_session_of_the_users_stays_as_it_was(connected: Connect, tmp_path: Path) -> None:
    source, target = made(tmp_path), tmp_path / "target"
    with DeltaCdcConnectHook(connected()).session({"spark.sql.session.timeZone": "Europe/Berlin"}) as spark:
        spark.read.format("delta").load(str(source)).count()
        before = dict(spark.conf.getAll)
        result = apply_changes(spark, str(source), str(target), pipeline="current", keys=["id"])
        append(source, [(4, "d")], feed=True)
        apply_changes(spark, str(source), str(target), pipeline="current", keys=["id"])
        assert result.applied
        assert dict(spark.conf.getAll) == before
        assert spark.catalog.listTables() == []
    assert held(target) == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 50])
def test_many_at_once(server: ConnectServer, connected: Connect, tmp_path: Path, number: int) -> None:
    """Each has a session, confs and seals of its own; some race on one target."""
    here, racers = connected(), max(2, number // 5)
    sources = []
    for at in range(number):
        sources.append(tmp_path / f"source{at}")
        append(sources[-1], [(at, f"of {at}"), (at + 1000, "both")], feed=True)
    raced, zones = tmp_path / "raced", ("UTC", "Asia/Tokyo", "America/Lima")

    def apply(at: int) -> Any:
        # The first ones are at the same table.
        source, target = (sources[0], raced) if at < racers else (sources[at], tmp_path / f"target{at}")
        pipeline = "raced" if at < racers else f"flow{at}"
        task = applying(
            here,
            source,
            target,
            pipeline=pipeline,
            task_id=f"apply{at}",
            conf={"spark.sql.session.timeZone": zones[at % 3]},
        )
        return task.execute({**context(), "run_id": f"run{at}"})

    with ThreadPoolExecutor(number) as pool:
        published = list(pool.map(apply, range(number)))
    assert [one["pipeline"] for one in published[racers:]] == [f"flow{at}" for at in range(racers, number)]
    assert sum(one["applied"] for one in published[:racers]) == 1
    for at in range(racers - 1, number):
        target = raced if at < racers else tmp_path / f"target{at}"
        of = 0 if at < racers else at
        assert held(target) == [(of, f"of {of}"), (of + 1000, "both")]
        found = [seal_of(str(target), version) for version in versions(str(target))]
        told = [(seal.pipeline, seal.step.run_id) for seal in found if seal is not None]
        if at >= racers:
            assert told == [(f"flow{at}", f"run{at}")]
        else:
            assert [pipeline for pipeline, _ in told] == ["raced"]
    assert sessions_of(server) == 0
    with DeltaCdcConnectHook(here).session({}) as spark:
        assert [spark.conf.get(f"spark.databricks.delta.write.{name}", None) for name in SEAL_CONFS] == [
            None,
            None,
        ]
        assert spark.catalog.listTables() == []
