"""How one spec becomes one Spark application, and what comes back."""

from __future__ import annotations

import hashlib
import inspect
import stat
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, cast

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

from airflow_delta_cdc.groups.base import GroupOperator
from airflow_delta_cdc.hooks.submit import SUBMIT_ARGUMENTS, DeltaCdcSubmitHook
from airflow_delta_cdc.lookups import each_located
from airflow_delta_cdc.operators import DeltaEnableChangeDataFeedOperator
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.runtime import exchange
from airflow_delta_cdc.runtime.submit import FINGERPRINT_KEY, SubmitRuntime
from delta_cdc.core import spec as specs
from delta_cdc.core.errors import InvalidConfiguration, JobFailed, KeyNotUnique, StoreUnavailable
from delta_cdc.core.spec import EnableSpec, JobResult, Spec
from delta_cdc.core.storage_options import is_s3
from delta_cdc.launch import jars

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.unit.airflow.conftest import Connect, Records, StandIn

SPEC = EnableSpec(run_id="run", tables=("/data/t",), properties={"delta.enableChangeDataFeed": "true"})
COMMITTED = """echo '{"status": "committed", "counts": {"inserted": 3}}' > "$result"; exit 0"""


@pytest.fixture(autouse=True)
def small_world(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """No JARs are resolved, and temporary directories can be looked into."""

    def class_path(locations: Iterable[str] = (), *, kafka: bool = False) -> str:
        names = ["delta", *(["kafka"] if kafka else []), *(["s3"] if any(map(is_s3, locations)) else [])]
        return ":".join(f"/jars/{name}.jar" for name in names)

    monkeypatch.setattr("delta_cdc.launch.session.class_path", class_path)
    monkeypatch.setattr("delta_cdc.launch.session.require_java", lambda: 17)
    names = {jars.delta_jars().title: "ab", jars.kafka_jars().title: "k", jars.s3_jars().title: "s"}
    monkeypatch.setattr(
        jars.JarSet, "jars", lambda self: tuple(Path(f"/jars/{name}.jar") for name in names[self.title])
    )
    for module in ("jars", "log_store"):
        monkeypatch.setattr(f"delta_cdc.launch.{module}.log_store_jar", lambda: Path("/jars/log.jar"))
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    # One for all tests: the engine's zip, which is written there, costs more than most of them.
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path_factory.getbasetemp() / "home"))
    return temporary


def operator(**arguments: Any) -> DeltaEnableChangeDataFeedOperator:
    return DeltaEnableChangeDataFeedOperator(task_id="enable", table="/data/t", **arguments)


def test_one_driver_may_come_as_rendered_text() -> None:
    context: Any = {"run_id": "r"}
    assert not operator()._spec(context).single_driver
    assert operator(single_driver="True")._spec(context).single_driver


class Store:
    """A task state store kept in a dict, as strict about None as Airflow's."""

    def __init__(self, **kept: Any) -> None:
        self.kept: dict[str, Any] = kept

    def get(self, key: str, default: Any = None) -> Any:
        return self.kept.get(key, default)

    def set(self, key: str, value: Any) -> None:
        assert value is not None
        self.kept[key] = value

    def delete(self, key: str) -> None:
        del self.kept[key]


def _leave(folder: Path, message: str) -> None:
    """Leave a result as a driver on a cluster does: Spark's text writer makes a folder."""
    (folder / "result").mkdir(parents=True)
    (folder / "result" / "_SUCCESS").touch()
    (folder / "result" / "part-0").write_text(JobResult(status="committed", message=message).to_json())


def _writes(folder: Path, message: str) -> str:
    """The same, as shell commands."""
    text = JobResult(status="committed", message=message).to_json()
    return f"mkdir -p {folder}/result; echo '{text}' > {folder}/result/part-0"


def folder_name(owner: str = "run", spec: Spec = SPEC) -> str:
    """Return the name of a run's folder: of the task, and of its spec."""
    return specs.sha256(f"{owner} {specs.to_json(spec)}")


def run(task: DeltaCdcOperator, store: Store | None = None) -> JobResult:
    context: Any = {"task_state_store": store or Store(), "run_id": "run"}
    return task.run_job(context, SPEC)


def run_to_end(task: DeltaCdcOperator) -> JobResult:
    context: Any = {"task_state_store": Store(), "run_id": "run"}
    return task.run_to_end(context, SPEC)


# -- arguments ------------------------------------------------------------------------------------
def test_an_operator_has_a_runtime_and_takes_what_airflows_own_operator_takes() -> None:
    """A new argument of Airflow's operator is to be looked at: the submit hook may need it."""
    assert not issubclass(DeltaCdcOperator, SparkSubmitOperator)
    ours = {"application", "application_args", "java_class", "conn_id"}
    theirs = set(inspect.signature(inspect.unwrap(SparkSubmitOperator.__init__)).parameters)
    own = set(inspect.signature(inspect.unwrap(DeltaCdcOperator.__init__)).parameters)
    assert theirs - ours - {"reconnect_on_retry"} <= own
    with pytest.raises(InvalidConfiguration, match="application, conn_id"):
        operator(conn_id="spark_default", application="mine.py")
    lineage = {"openlineage_inject_parent_job_info", "openlineage_inject_transport_info"}
    rest = {"self", "kwargs", "durable", "reconnect_on_retry"}
    assert set(SUBMIT_ARGUMENTS) == theirs - ours - lineage - rest
    assert set(SUBMIT_ARGUMENTS) <= set(inspect.signature(SparkSubmitHook.__init__).parameters)
    assert set(SparkSubmitOperator.template_fields) - ours <= set(DeltaCdcOperator.template_fields)


def test_every_argument_reaches_spark_submit(stand_in: StandIn) -> None:
    stand_in.does(COMMITTED)
    given = {"driver_memory": "3g", "executor_memory": "2g", "executor_cores": 2, "num_executors": 4}
    given |= {"files": "/f", "archives": "/a.zip", "principal": "me", "keytab": "/k", "name": "mine"}
    given |= {"repositories": "https://r", "packages": "a:b:1", "exclude_packages": "c:d"}
    run(operator(**given, verbose=True))
    passed = {name: stand_in.option(f"--{name.replace('_', '-')}") for name in given}
    assert passed == {name: [str(value)] for name, value in given.items()}
    assert "--verbose" in stand_in.arguments


def test_embedded_spark(stand_in: StandIn) -> None:
    stand_in.does(COMMITTED)
    assert run(operator(conf={"spark.sql.session.timeZone": "Europe/Berlin"})).counts == {"inserted": 3}
    assert stand_in.option("--master") == ["local[*]"]
    assert stand_in.option("--driver-class-path") == ["/jars/delta.jar"]
    assert stand_in.option("--jars") == []
    assert "spark.master" not in stand_in.confs
    assert stand_in.confs["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension"
    assert stand_in.confs["spark.sql.session.timeZone"] == "Europe/Berlin", "the user's own"
    assert len([given for given in stand_in.arguments if given.endswith("/delta_cdc_job.py")]) == 1
    assert Path(stand_in.option("--py-files")[0]).name.startswith("delta_cdc-")


def test_jars_on_a_cluster(stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """An argument of spark-submit hides the conf of its meaning: lists of the user come behind ours."""
    stand_in.does(COMMITTED)
    conn_id = connect(host="spark://master:7077")

    def passed(setting: str = "auto", **arguments: Any) -> tuple[list[str], list[str]]:
        monkeypatch.setenv("AIRFLOW__DELTA_CDC__DELTA_JARS", setting)
        run(operator(spark_conn_id=conn_id, **arguments))
        assert stand_in.option("--master") == ["spark://master:7077"]
        assert stand_in.option("--driver-class-path") == []
        assert stand_in.confs["spark.sql.session.timeZone"] == "UTC"
        return stand_in.option("--jars"), stand_in.option("--packages")

    ours = "/jars/log.jar,/jars/a.jar,/jars/b.jar"
    assert passed() == ([ours], [])
    assert passed("provided") == ([], [])
    assert passed(jars="/own.jar") == (["/own.jar"], [])
    assert passed(packages="io.delta:x:1") == ([], ["io.delta:x:1"])
    conf = {"spark.jars": "/mine.jar", "spark.submit.pyFiles": "/mine.py", "spark.sql.extensions": "of.Mine"}
    assert passed(conf=conf, py_files="/other.py") == ([f"{ours},/mine.jar"], [])
    assert stand_in.option("--py-files")[0].split(",")[1:] == ["/other.py", "/mine.py"]
    assert stand_in.confs["spark.sql.extensions"].endswith("DeltaSparkSessionExtension,of.Mine")


def test_yarn_cluster_gets_the_spec_as_a_file(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    results = tmp_path / "results"
    results.mkdir()
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", results.as_uri())
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        # A Spark session of an earlier test sets them in this process.
        monkeypatch.delenv(name, raising=False)
    sha = folder_name()
    task = operator(
        spark_conn_id=connect(host="yarn", **{"deploy-mode": "cluster"}),
        files="/own.txt",
        conf={"spark.files": "/more.txt"},
        durable=False,
    )
    _leave(results / sha, "of an earlier try, which is never read")
    with pytest.raises(JobFailed, match="without leaving a result"):
        run(task)
    stand_in.does(_writes(results / sha, "of this try"))
    assert run(task).status == "committed"
    assert stand_in.option("--deploy-mode") == ["cluster"]
    spec_file, *own = stand_in.option("--files")[0].split(",")
    assert own == ["/own.txt", "/more.txt"]
    # YARN puts the file into the driver's working directory under its name.
    assert stand_in.option("--spec") == [Path(spec_file).name]
    assert stand_in.option("--result") == [f"{results.as_uri()}/{sha}/result"]
    # The worker's interpreter does not exist on the cluster.
    assert not {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"} & set(stand_in.environment)
    assert "SPARK_HOME" in stand_in.environment


def test_kubernetes_cluster_gets_everything_from_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Hook:
        is_cluster = is_kubernetes = True

    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    text = specs.to_json(SPEC)
    hook: Any = Hook()
    exchange = SubmitRuntime(operator())._prepare(hook, tmp_path, spec_text=text, owner="run")
    folder = f"{tmp_path.as_uri()}/{folder_name()}"
    assert exchange.application == f"{folder}/delta_cdc_job.py"
    # All runs of a release share it, and it is not put there again.
    assert exchange.engine.startswith(f"{tmp_path.as_uri()}/engine/delta_cdc-")
    (engine,) = (tmp_path / "engine").iterdir()
    before = engine.stat()
    assert exchange.files == f"{folder}/{exchange.spec}"
    stored = tmp_path / folder_name()
    assert (stored / exchange.spec).read_text() == text
    assert {path.suffix for path in stored.iterdir()} == {".py", ".json"}
    again = tmp_path / "again"
    again.mkdir()
    SubmitRuntime(operator())._prepare(hook, again, spec_text=text, owner="run")
    assert engine.stat() == before


def test_what_was_exchanged_with_a_cluster_goes_once_the_outcome_is_known(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, records: Records
) -> None:
    results = tmp_path / "results"
    (results / "others").mkdir(parents=True)
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", results.as_uri())
    folder = results / folder_name()
    stand_in.does(_writes(folder, "of this try"))
    task = operator(spark_conn_id=connect(host="yarn", **{"deploy-mode": "cluster"}), durable=False)
    run(task)
    assert folder.exists(), "the operator has not seen yet what came of it"
    context: Any = {"task_state_store": None}
    task.forget_job(context)
    assert [found.name for found in results.iterdir()] == ["others"]

    def fails(*_: Any) -> None:
        raise OSError("no")

    monkeypatch.setattr("airflow_delta_cdc.runtime.submit.delete_folder", fails)
    monkeypatch.setattr(type(task), "log", records)
    task.forget_job(context)
    assert records.at("warning")[-1].endswith("could not be deleted: no")


def test_tasks_with_equal_specs_share_no_folder(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the task that turns on the feed of one source, in two DAGs: each deletes its files at its end."""
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    conn_id = connect(host="yarn", **{"deploy-mode": "cluster"})
    for dag_id in ("one", "other"):
        context: Any = {
            "ti": SimpleNamespace(dag_id=dag_id, task_id="enable", map_index=-1),
            "run_id": "run",
            "task_state_store": Store(),
        }
        folder = tmp_path / folder_name(f"{dag_id}/run/enable")
        stand_in.does(_writes(folder, f"of {dag_id}"))
        assert operator(spark_conn_id=conn_id).run_job(context, SPEC).message == f"of {dag_id}"
        assert folder.exists()


@pytest.mark.parametrize("uri", ["hdfs://nn/tmp/cdc", "s3:/lake/x", "lake/x", "s3://"])
def test_results_uri_is_a_folder_that_can_be_read(monkeypatch: pytest.MonkeyPatch, uri: str) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", uri)
    with pytest.raises(InvalidConfiguration, match="results_uri is"):
        exchange.needed_results_uri("A test needs it")


def test_results_uri_may_be_a_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", f"{tmp_path}/")
    folder = exchange.needed_results_uri("A test needs it")
    exchange.put_object(f"{folder}/some/part-0", b"text")
    assert exchange.read_text(f"{folder}/some", is_local=False) == "text"


@pytest.mark.parametrize("what", ["put", "put once", "read"])
def test_a_shared_folder_whose_store_does_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, what: str
) -> None:
    import obstore

    def fails(*_: Any, **__: Any) -> Any:
        raise obstore.exceptions.GenericError("Generic S3 error: connection refused")

    for name in ("put", "head", "list_with_delimiter"):
        monkeypatch.setattr(obstore, name, fails)
    file = tmp_path / "file"
    file.write_text("x")
    uri = f"{tmp_path.as_uri()}/shared"
    Path(tmp_path / "shared").mkdir()
    calls = {
        "put": lambda: exchange.put_object(f"{uri}/x", b"x"),
        "put once": lambda: exchange.put_file_once(f"{uri}/x", file),
        "read": lambda: exchange.read_text(uri, is_local=False),
    }
    with pytest.raises(StoreUnavailable, match="connection refused"):
        calls[what]()


# -- spec and result ------------------------------------------------------------------------------
def test_the_spec_is_private_and_named_by_hash(stand_in: StandIn, small_world: Path) -> None:
    stand_in.does(
        f"""ls -ld "$(dirname "$result")" > {stand_in.folder}/modes
        ls -l "$(dirname "$result")"/spec-*.json >> {stand_in.folder}/modes\n{COMMITTED}"""
    )
    run(operator())
    directory, file = (stand_in.folder / "modes").read_text().splitlines()
    assert directory.startswith("drwx------")
    assert file.startswith("-rw-------")
    recorded = (stand_in.folder / "spec.json").read_bytes()
    assert stand_in.option("--sha256") == [hashlib.sha256(recorded).hexdigest()]
    assert specs.from_json(recorded.decode()) == SPEC


_UNNAMED = JobResult(status="failed", error=JobFailed("Py4JError: boom", remedy="look.").to_dict()).to_json()


@pytest.mark.parametrize(
    ("script", "error", "left"),
    [
        (f"echo spark says hello\n{COMMITTED}", None, []),
        ("echo disk full; exit 9", "exit code 9", ["spark.log"]),
        (f"echo stack trace\necho '{_UNNAMED}' > \"$result\"; exit 1", None, ["spark.log"]),
        ("", "without leaving a result", []),
    ],
    ids=["done", "died", "an unnamed failure", "no result"],
)
def test_only_the_log_of_what_failed_is_left(
    stand_in: StandIn, small_world: Path, script: str, error: str | None, left: list[str]
) -> None:
    stand_in.does(script)
    reason = ""
    if error is None:
        run(operator())
    else:
        with pytest.raises(JobFailed, match=error) as caught:
            run(operator())
        reason = str(caught.value)
    files = [path for path in small_world.rglob("*") if path.is_file()]
    assert [path.name for path in files] == left
    for log in files:
        assert error is None or str(log) in reason
        assert stat.S_IMODE(log.parent.stat().st_mode) == 0o700
    assert files or list(small_world.iterdir()) == []


def test_a_named_error_comes_back_by_its_name(stand_in: StandIn, small_world: Path) -> None:
    error = KeyNotUnique("Two rows share key 1.", remedy="clean the source.")
    text = JobResult(status="failed", error=error.to_dict()).to_json()
    stand_in.does(f"echo noise\necho '{text}' > \"$result\"; exit 1")
    with pytest.raises(KeyNotUnique, match="Two rows share key 1") as caught:
        run_to_end(operator())
    assert caught.value.remedy == "clean the source."
    assert list(small_world.iterdir()) == []


# -- reconnecting ---------------------------------------------------------------------------------
def test_durable_without_tracking_is_turned_off_and_said(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    stand_in.does(_writes(tmp_path / folder_name(), "of this try"))
    task = operator(spark_conn_id=connect(host="yarn", **{"deploy-mode": "cluster"}))
    said: list[str] = []
    monkeypatch.setattr(task.log, "warning", lambda text, *args: said.append(text % args))
    assert task.durable
    assert run(task).status == "committed"
    assert any("does not track applications" in line for line in said)


class _Tracked(DeltaEnableChangeDataFeedOperator):
    """A cluster operator whose cluster is a dict of states."""

    cluster: ClassVar[dict[str, str]] = {}

    def get_job_status(self, external_id: Any, context: Any) -> str:
        if external_id not in self.cluster:
            return super().get_job_status(external_id, context)
        return self.cluster[external_id]

    def is_job_active(self, status: str) -> bool:
        return status == "RUNNING"

    def is_job_succeeded(self, status: str) -> bool:
        return status == "SUCCEEDED"

    def poll_until_complete(self, external_id: Any, context: Any) -> None:
        self.waited_for = external_id


@pytest.fixture
def tracked(connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: StandIn) -> _Tracked:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    folder = tmp_path / folder_name()
    _leave(folder, "of the first try")
    stand_in.does(
        f"""echo 'Submitted application_1_0002'
        test -e {folder}/result/part-0 && exit 3
        {_writes(folder, "of this try")}"""
    )
    conn_id = connect(
        host="yarn", yarn_resourcemanager_webapp_address="http://localhost:1", **{"deploy-mode": "cluster"}
    )
    task = _Tracked(task_id="enable", table="/data/t", spark_conn_id=conn_id)
    _Tracked.cluster = {"application_1_0001": "RUNNING"}
    return task


def test_a_running_application_is_found_again_with_its_result(tracked: _Tracked, stand_in: StandIn) -> None:
    fingerprint = specs.sha256(specs.to_json(SPEC))
    plan = {"pin:p:t": {"ending_version": 3}}
    store = Store(spark_job_id="application_1_0001", **{FINGERPRINT_KEY: fingerprint}, **plan)
    assert run(tracked, store).message == "of the first try"
    assert tracked.waited_for == "application_1_0001"
    assert not stand_in.was_started
    context: Any = {"task_state_store": store}
    tracked.forget_job(context)
    assert store.kept == plan, "forgetting leaves pins alone"


def test_a_lookup_leaves_the_application_of_an_earlier_try(
    tracked: _Tracked, stand_in: StandIn, tmp_path: Path
) -> None:
    """A target that the application is about to create is looked up by each try, first of all."""
    lookup = specs.ResolveSpec(run_id="run", tables=("main.sales.new",))
    stand_in.does(
        "echo 'Submitted application_1_0009'; "
        + _writes(tmp_path / specs.sha256(specs.to_json(lookup)), "looked up")
    )
    kept = {"spark_job_id": "application_1_0001", FINGERPRINT_KEY: specs.sha256(specs.to_json(SPEC))}
    store = Store(**kept)
    context: Any = {"task_state_store": store, "run_id": "run"}
    each_located(tracked, context, ["main.sales.new"])
    assert (stand_in.was_started, tracked.waited_for) == (True, "application_1_0009")
    assert store.kept == kept
    assert run(tracked, store).message == "of the first try"


def test_an_api_that_does_not_answer_at_the_end_hides_no_outcome() -> None:
    class Away(Store):
        def get(self, key: str, default: Any = None) -> Any:
            raise RuntimeError("API_SERVER_ERROR: 503")

    context: Any = {"task_state_store": Away()}
    with operator().application(context):
        pass
    with pytest.raises(KeyNotUnique), operator().application(context):
        raise KeyNotUnique("Two rows share key 1.", remedy="clean the source.")


@pytest.mark.parametrize("found", [True, False])
def test_another_application_is_submitted_again(
    tracked: _Tracked, monkeypatch: pytest.MonkeyPatch, found: bool
) -> None:
    """That of another spec is not waited for, and one that cannot be found cannot be."""

    def unreachable(*_: Any) -> str:
        raise RuntimeError("connection refused")

    monkeypatch.setattr(DeltaCdcSubmitHook, "query_yarn_application_status", unreachable)
    sha = "another" if found else specs.sha256(specs.to_json(SPEC))
    store = Store(spark_job_id=f"application_{int(found)}_0001", **{FINGERPRINT_KEY: sha})
    assert run(tracked, store).message == "of this try"
    assert tracked.waited_for == store.kept["spark_job_id"] == "application_1_0002"


@pytest.fixture
def manager(connect: Connect, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stand_in: StandIn) -> Manager:
    """A YARN whose first application ends at once; its driver has left a result."""
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    made = Manager(tmp_path / folder_name(), stand_in)
    monkeypatch.setattr(DeltaCdcSubmitHook, "_query_yarn_application_status", lambda *_: made.answer())
    monkeypatch.setattr("time.sleep", lambda _: None)
    extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": "http://localhost:1"}
    made.task = operator(spark_conn_id=connect(host="yarn", **extra))
    return made


class Manager:
    """What YARN's resource manager answers, and what drivers leave."""

    task: DeltaEnableChangeDataFeedOperator

    def __init__(self, folder: Path, stand_in: StandIn) -> None:
        self._folder, self._stand_in = folder, stand_in
        self.states = [("FINISHED", "FAILED", "User application exited with status 1")]
        self.leaves(None)

    def leaves(self, result: JobResult | None) -> None:
        left = f"echo '{result.to_json()}' > {self._folder}/result/part-0" if result is not None else ""
        submitted = "echo 'Submitted application application_1_0001'"
        self._stand_in.does(f"{submitted}; mkdir -p {self._folder}/result; {left}")

    def answer(self) -> tuple[str, str, str]:
        if not self.states:
            raise RuntimeError("connection refused")
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]


_NAMED = KeyNotUnique("Two rows share key 1.", remedy="clean the source.")


def test_a_tracked_application_that_died_is_a_failed_job(manager: Manager, stand_in: StandIn) -> None:
    store = Store()
    with pytest.raises(JobFailed, match="application_1_0001 on yarn is FAILED, without a result") as died:
        run(manager.task, store)
    assert "exited with status 1" in str(died.value)
    context: Any = {"task_state_store": store}
    manager.task.forget_job(context)
    assert store.kept == {}
    # The engine ends with an error code, and for the base class the application has just failed.
    manager.leaves(JobResult(status="failed", error=_NAMED.to_dict()))
    with pytest.raises(KeyNotUnique, match="Two rows share key 1"):
        run_to_end(manager.task)
    # One that never was is reported as it is.
    stand_in.does("echo no room; exit 7")
    with pytest.raises(JobFailed, match="exit code 7"):
        run(manager.task)
    stand_in.does("exit 0")
    with pytest.raises(RuntimeError, match="No YARN application id"):
        run(manager.task)


def test_what_a_driver_that_runs_has_left_so_far_is_no_result(manager: Manager) -> None:
    """Tracking is given up, not the application: the next try has to find it, whoever forgets failed jobs."""
    manager.leaves(JobResult(status="failed", error=_NAMED.to_dict()))
    manager.states = []
    store = Store()
    with pytest.raises(JobFailed, match="Giving up tracking"):
        run(manager.task, store)
    context: Any = {"task_state_store": store}
    manager.task.forget_job(context)
    assert store.kept["spark_job_id"] == "application_1_0001"
    manager.states = [("RUNNING", "strange", ""), ("RUNNING", "UNDEFINED", "")]
    with pytest.raises(JobFailed, match="is RUNNING, without a result"):
        run(manager.task)


# -- killing --------------------------------------------------------------------------------------
def test_kill_with_nothing_started_looks_nothing_up(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("started a process, or looked something up")

    task = operator(spark_conn_id="somewhere")
    monkeypatch.setattr(subprocess, "Popen", refuse)
    with monkeypatch.context() as patched:
        patched.setattr("airflow_delta_cdc.runtime.submit.submit_hook", refuse)
        task.on_kill()
    task = operator()
    task.on_kill()
    with pytest.raises(JobFailed, match="killed before"):
        run(task)
    assert not stand_in.was_started


# -- templates ------------------------------------------------------------------------------------
def test_who_works_is_the_same_in_every_try_and_in_no_other_task() -> None:
    """Runs of two DAGs share an id, and tasks of one run do; the tasks of a group share their work."""

    def named(task: DeltaCdcOperator, dag: str, task_id: str, index: int = -1, tries: int = 1) -> str:
        ti = SimpleNamespace(dag_id=dag, task_id=task_id, map_index=index, try_number=tries)
        return task.work_id(cast("Any", {"ti": ti, "run_id": "r"}))

    task = DeltaCdcOperator(task_id="apply")
    assert named(task, "d", "apply") == named(task, "d", "apply", tries=2) == "d/r/apply"
    others = [("e", "apply", -1), ("d", "apply_too", -1), ("d", "apply", 0), ("d", "apply", 1)]
    assert len({named(task, "d", "apply"), *(named(task, *other) for other in others)}) == 5
    group = GroupOperator(task_id="apply")
    assert named(group, "d", "run_spark") == named(group, "d", "apply", 3) == "d/r"
    assert named(group, "e", "apply") != named(group, "d", "apply")
