"""What an application is told of the tables' storage, and that no credential can be seen on the way."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.hooks.submit import DeltaCdcSubmitHook
from airflow_delta_cdc.operators import (
    DeltaApplyChangesOperator,
    DeltaEnableChangeDataFeedOperator,
    DeltaReadChangesOperator,
)
from airflow_delta_cdc.runtime.storage import add_storage
from delta_cdc.core import spec as specs
from delta_cdc.core.commit_safety import CONDITIONAL_STORE
from delta_cdc.core.errors import DeltaConnectionNotFound, InvalidConfiguration
from delta_cdc.core.options import ApplyOptions, IngestOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.spec import ApplySpec, IngestSpec, ReadSpec
from delta_cdc.core.steps import Staging
from delta_cdc.core.watermark import TableVersion
from tests.support.ingest_specs import ingest_spec as first_batch
from tests.support.steps import step as made_step
from tests.unit.airflow.test_base_operator import (
    COMMITTED,
    SPEC,
    Store,
    _writes,
    folder_name,
    operator,
    run,
    small_world,
)

if TYPE_CHECKING:
    from tests.unit.airflow.conftest import Connect, Records, StandIn

__all__ = ["small_world"]

SECRET = "s3cr3t/of+nobody="
_LOG_STORE = "spark.delta.logStore.s3a.impl"
S3A = "spark.hadoop.fs.s3a."


@pytest.fixture
def lake(monkeypatch: pytest.MonkeyPatch) -> str:
    """Give the id of a connection with the keys of an S3 store."""
    return _connection(
        monkeypatch,
        login="AKIA1",
        password=SECRET,
        extra={"endpoint_url": "http://store:9000", "region": "r", "session_token": "tok-en-of-nobody"},
    )


def _connection(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> str:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", **fields}))
    return "lake"


def _keeping_properties(stand_in: StandIn, then: str = COMMITTED) -> None:
    """Let the stand-in keep the properties file it is given, and its mode."""
    kept = stand_in.folder
    stand_in.does(
        f"""file="$(printf '%s\\n' "$@" | grep -A1 -x -e --properties-file | tail -1)"
        test -n "$file" && cp "$file" {kept}/properties && stat -c %a "$file" > {kept}/mode
        {then}"""
    )


def _properties(stand_in: StandIn) -> list[str]:
    return (stand_in.folder / "properties").read_text().splitlines()


def _nothing_secret_on_the_command_line(stand_in: StandIn) -> None:
    line = "\0".join(stand_in.arguments)
    assert SECRET not in line
    assert "AKIA1" not in line
    assert "tok-en-of-nobody" not in line


def after(target: str) -> ApplyRequest:
    return ApplyRequest(pipeline="p", source="/log", target=target, options=ApplyOptions(keys=("id",)))


def ingest_spec(source: str, log: str, **changed: Any) -> IngestSpec:
    kind = "kafka" if source.startswith("kafka:") else "files"
    options = IngestOptions(source_kind=kind, keys=("id",))  # type: ignore[arg-type]
    return first_batch(options, source, log, **changed)


# -- a driver on this machine ---------------------------------------------------------------------
@pytest.mark.parametrize("where", ["embedded", "client"])
def test_keys_of_s3_go_by_the_environment(
    stand_in: StandIn, connect: Connect, lake: str, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    stand_in.does(COMMITTED)
    spark = None if where == "embedded" else connect(host="spark://master:7077")
    run(operator(delta_conn_id=lake, spark_conn_id=spark))
    _nothing_secret_on_the_command_line(stand_in)
    seen = stand_in.environment
    assert (seen["AWS_ACCESS_KEY_ID"], seen["AWS_SECRET_ACCESS_KEY"]) == ("AKIA1", SECRET)
    assert seen["AWS_SESSION_TOKEN"] == "tok-en-of-nobody"
    assert stand_in.confs[f"{S3A}endpoint"] == "http://store:9000"
    assert stand_in.confs[f"{S3A}endpoint.region"] == "r"
    assert stand_in.confs[f"{S3A}path.style.access"] == "true"
    assert stand_in.option("--properties-file") == []
    assert "AWS_ACCESS_KEY_ID" not in os.environ


def test_a_token_of_the_worker_is_not_taken_for_one_of_the_keys(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in.does(COMMITTED)
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the worker")
    conn_id = _connection(monkeypatch, login="AKIA1", password=SECRET, extra={"region": "r"})
    run(operator(delta_conn_id=conn_id))
    assert stand_in.environment["AWS_SESSION_TOKEN"] == ""


def test_what_the_task_says_itself_wins(stand_in: StandIn, lake: str) -> None:
    stand_in.does(COMMITTED)
    own: dict[str, Any] = {"conf": {f"{S3A}endpoint": "http://mine"}}
    own |= {"storage_options": {"aws_region": "other"}, "env_vars": {"AWS_ACCESS_KEY_ID": "mine"}}
    run(operator(delta_conn_id=lake, **own))
    assert stand_in.confs[f"{S3A}endpoint"] == "http://mine"
    assert stand_in.confs[f"{S3A}endpoint.region"] == "other"
    assert stand_in.environment["AWS_ACCESS_KEY_ID"] == "mine"


def test_a_key_of_azure_goes_by_a_private_file(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    _keeping_properties(stand_in)
    conn_id = _connection(monkeypatch, login="acc", password=SECRET, extra={"storage": "azure"})
    run(operator(delta_conn_id=conn_id))
    _nothing_secret_on_the_command_line(stand_in)
    assert SECRET not in stand_in.environment.values()
    assert (stand_in.folder / "mode").read_text().strip() == "600"
    assert f"spark.hadoop.fs.azure.account.key.acc.dfs.core.windows.net={SECRET}" in _properties(stand_in)
    # spark-submit reads its defaults only where no file is named.
    assert "--load-spark-defaults" in stand_in.arguments
    assert not Path(stand_in.option("--properties-file")[0]).exists()


def test_the_users_properties_file_stays_and_wins(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    _keeping_properties(stand_in)
    own = tmp_path / "own.conf"
    own.write_text("# mine\nspark.executor.memory 2g")
    conn_id = _connection(monkeypatch, login="acc", password=SECRET, extra={"storage": "azure"})
    run(operator(delta_conn_id=conn_id, properties_file=str(own)))
    assert _properties(stand_in)[-2:] == ["# mine", "spark.executor.memory 2g"]
    assert "--load-spark-defaults" not in stand_in.arguments
    assert own.read_text() == "# mine\nspark.executor.memory 2g"


def test_what_is_not_there_stops_the_task_before_spark(
    stand_in: StandIn, monkeypatch: pytest.MonkeyPatch, small_world: Path
) -> None:
    conn_id = _connection(monkeypatch, login="acc", password=SECRET, extra={"storage": "azure"})
    with pytest.raises(InvalidConfiguration, match="/not/there"):
        run(operator(delta_conn_id=conn_id, properties_file="/not/there"))
    monkeypatch.setattr("airflow.sdk.execution_time.supervisor.ensure_secrets_backend_loaded", lambda *_: [])
    with pytest.raises(DeltaConnectionNotFound, match="'nowhere'"):
        run(operator(delta_conn_id="nowhere"))
    assert not stand_in.was_started
    assert list(small_world.iterdir()) == []


@pytest.mark.parametrize("spark", ["embedded", "client"])
def test_a_key_of_google_is_a_private_file(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, spark: str
) -> None:
    key = json.dumps({"private_key": SECRET})
    name = "spark.hadoop.fs.gs.auth.service.account.json.keyfile"
    stand_in.does(
        f"""cat "$(printf '%s\\n' "$@" | sed -n 's/^{name}=//p')" > {stand_in.folder}/key
        stat -c %a "$(printf '%s\\n' "$@" | sed -n 's/^{name}=//p')" > {stand_in.folder}/mode\n{COMMITTED}"""
    )
    task = operator(
        delta_conn_id=_connection(monkeypatch, extra={"service_account_key": key}),
        spark_conn_id=None if spark == "embedded" else connect(host="spark://master:7077"),
    )
    said: list[str] = []
    monkeypatch.setattr(task.log, "info", lambda text, *args: said.append(text % args))
    run(task)
    _nothing_secret_on_the_command_line(stand_in)
    if spark == "embedded":
        assert (stand_in.folder / "key").read_text() == key
        assert (stand_in.folder / "mode").read_text().strip() == "600"
    else:
        assert name not in stand_in.confs
        assert any("service_account_path" in line for line in said)


# -- a driver that plans, and one that reads topics -----------------------------------------------
_TOPICS = ingest_spec("kafka://broker:9092/orders", "/lake/log")
_KAFKA_OPTIONS = {"sasl.username": "me", "sasl.password": SECRET}


class Reading(DeltaEnableChangeDataFeedOperator):
    """Any operator; this one has options for Kafka's client."""

    def options_of_kafka(self) -> dict[str, str]:
        return _KAFKA_OPTIONS


def ran(task: Any, spec: specs.Spec) -> None:
    context: Any = {"task_state_store": Store(), "run_id": "run"}
    task.run_job(context, spec)


def _keeping_file(stand_in: StandIn, variable: str) -> None:
    """Let the stand-in keep the file that a variable of its environment names, and its mode."""
    kept = stand_in.folder
    stand_in.does(
        f"""test -n "${variable}" && cp "${variable}" {kept}/file && stat -c %a "${variable}" > {kept}/mode
        {COMMITTED}"""
    )


@pytest.mark.parametrize("bundled", [False, True])
def test_a_driver_that_applies_after_an_ingest_plans_with_the_same_options(
    stand_in: StandIn, lake: str, bundled: bool
) -> None:
    _keeping_file(stand_in, "DELTA_CDC_STORAGE_OPTIONS")
    spec: specs.Spec = ingest_spec("/landing", "/lake/log", after=(after("/lake/t"),))
    ran(operator(delta_conn_id=lake), specs.BatchSpec(run_id="r", parts=(spec,)) if bundled else spec)  # type: ignore[arg-type]
    _nothing_secret_on_the_command_line(stand_in)
    assert SECRET not in json.dumps(stand_in.spec)
    assert json.loads((stand_in.folder / "file").read_text())["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert (stand_in.folder / "mode").read_text().strip() == "600"
    assert not Path(stand_in.environment["DELTA_CDC_STORAGE_OPTIONS"]).exists()
    private = stand_in.environment["DELTA_CDC_PRIVATE_FILES"].split(":")
    assert stand_in.environment["DELTA_CDC_STORAGE_OPTIONS"] in private, "the driver deletes it"


def test_options_of_kafkas_client_are_a_private_file(stand_in: StandIn, connect: Connect) -> None:
    _keeping_file(stand_in, "DELTA_CDC_KAFKA_OPTIONS")
    both = specs.BatchSpec(run_id="r", parts=(ingest_spec("/landing", "/l"), _TOPICS))
    ran(Reading(task_id="t", table="/t"), both)
    _nothing_secret_on_the_command_line(stand_in)
    assert SECRET not in json.dumps(stand_in.spec)
    assert SECRET not in "".join(stand_in.environment.values())
    assert json.loads((stand_in.folder / "file").read_text()) == _KAFKA_OPTIONS
    assert (stand_in.folder / "mode").read_text().strip() == "600"
    assert stand_in.environment["DELTA_CDC_KAFKA_OPTIONS"] == stand_in.environment["DELTA_CDC_PRIVATE_FILES"]
    assert stand_in.option("--driver-class-path") == ["/jars/delta.jar:/jars/kafka.jar"]
    ran(operator(spark_conn_id=connect(host="spark://master:7077")), _TOPICS)
    assert stand_in.option("--jars") == ["/jars/log.jar,/jars/a.jar,/jars/b.jar,/jars/k.jar"]


def test_a_job_without_topics_and_plans_has_no_file(stand_in: StandIn) -> None:
    stand_in.does(COMMITTED)
    ran(Reading(task_id="t", table="/t"), ingest_spec("/landing", "/lake/log"))
    assert not {"DELTA_CDC_KAFKA_OPTIONS", "DELTA_CDC_STORAGE_OPTIONS"} & set(stand_in.environment)
    # Nor has it, without a connection, anything of a store.
    assert not any(name.startswith("spark.hadoop.") for name in stand_in.confs)
    assert "--load-spark-defaults" not in stand_in.arguments
    assert stand_in.option("--driver-class-path") == ["/jars/delta.jar"]


@pytest.mark.parametrize("how", ["a location", "a connection"])
def test_the_jars_of_s3_go_where_a_job_reaches_it(
    stand_in: StandIn, connect: Connect, monkeypatch: pytest.MonkeyPatch, lake: str, how: str
) -> None:
    stand_in.does(COMMITTED)
    told = {"delta_conn_id": lake} if how == "a connection" else {}
    spec = specs.EnableSpec(run_id="r", tables=("/t" if told else "s3://lake/t",), schema={"a": "b"})
    ran(operator(**told), spec)
    assert stand_in.option("--driver-class-path") == ["/jars/delta.jar:/jars/s3.jar"]
    assert stand_in.confs[_LOG_STORE] == CONDITIONAL_STORE
    on_cluster = connect(host="spark://master:7077")
    ran(operator(spark_conn_id=on_cluster, **told), spec)
    assert stand_in.option("--jars") == ["/jars/log.jar,/jars/a.jar,/jars/b.jar,/jars/s.jar"]
    assert stand_in.confs[_LOG_STORE] == CONDITIONAL_STORE
    ran(operator(spark_conn_id=on_cluster, conf={_LOG_STORE: "mine"}, **told), spec)
    assert stand_in.confs[_LOG_STORE] == "mine"
    ran(operator(jars="/delta.jar", **told), spec)
    assert _LOG_STORE not in stand_in.confs
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__DELTA_JARS", "provided")
    ran(operator(spark_conn_id=on_cluster, **told), spec)
    assert stand_in.option("--jars") == []
    assert _LOG_STORE not in stand_in.confs


def test_yarn_gets_kafkas_options_by_the_private_properties(
    stand_in: StandIn, connect: Connect, lake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    _keeping_properties(stand_in, _writes(tmp_path / folder_name(spec=_TOPICS), "done"))
    spark = connect(host="yarn", **{"deploy-mode": "cluster"})
    ran(Reading(task_id="t", table="/t", delta_conn_id=lake, spark_conn_id=spark, durable=False), _TOPICS)
    _nothing_secret_on_the_command_line(stand_in)
    assert "DELTA_CDC_KAFKA_OPTIONS" not in stand_in.environment
    named = dict(line.split("=", 1) for line in _properties(stand_in))
    # Spark hides confs whose name has this word.
    assert "secret" in (name := "spark.delta_cdc.kafka.secretOptions")
    assert SECRET in named[name]
    assert f"{S3A}secret.key" in named
    assert (stand_in.folder / "mode").read_text().strip() == "600"


# -- a driver on a cluster ------------------------------------------------------------------------
def test_yarn_gets_the_keys_by_a_private_file(
    stand_in: StandIn, connect: Connect, lake: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", tmp_path.as_uri())
    folder = tmp_path / folder_name()
    # The application has its confs as soon as it has an id.
    submitted = f"""echo "INFO Submitted application application_1600000000000_0001"
        for _ in $(seq 600); do
            test -e "$file" || {{ touch {stand_in.folder}/deleted; break; }}; sleep 0.1
        done
        {_writes(folder, "done")}"""
    _keeping_properties(stand_in, submitted)
    spark = connect(host="yarn", **{"deploy-mode": "cluster"})
    run(operator(delta_conn_id=lake, spark_conn_id=spark, durable=False))
    assert (stand_in.folder / "deleted").exists()
    _nothing_secret_on_the_command_line(stand_in)
    assert "AWS_SECRET_ACCESS_KEY" not in stand_in.environment
    assert f"{S3A}secret.key={SECRET}" in _properties(stand_in)
    assert f"{S3A}access.key=AKIA1" in _properties(stand_in)
    assert (stand_in.folder / "mode").read_text().strip() == "600"


class _Pods:
    """A submit hook whose driver runs in a pod."""

    is_cluster = is_kubernetes = True
    master = "k8s://https://cluster"

    def __init__(self) -> None:
        self.confs: dict[str, str] = {"spark.own": "1"}
        self.submits_with: dict[str, str] = {}

    def add_private_environment(self, variables: dict[str, str]) -> None:
        self.submits_with |= variables


def test_pods_get_no_credential(records: Records, tmp_path: Path) -> None:
    hook: Any = _Pods()
    log: Any = records
    options = {"AWS_REGION": "r", "AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": SECRET}
    add_storage(hook, options, spec=SPEC, directory=tmp_path, log=log)
    assert hook.confs == {"spark.own": "1", f"{S3A}endpoint.region": "r"}
    # The process on this machine does: it looks whether what the pod needs is in the shared folder.
    assert hook.submits_with["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert not list(tmp_path.rglob("*.*"))
    (said,) = records.at("info")
    assert "service account" in said
    hook = _Pods()
    add_storage(hook, {"AWS_REGION": "r"}, spec=SPEC, directory=tmp_path, log=log)
    assert records.at("info") == [said], "without credentials there is nothing to say"


@pytest.mark.parametrize("kind", ["apply", "read", "commit", "enable", "ingest", "bundle"])
def test_azures_confs_name_the_host_of_every_table(kind: str, records: Records, tmp_path: Path) -> None:
    class Here(_Pods):
        is_cluster = False

        def add_private_environment(self, _: Any) -> None:
            return

        def use_private_properties(self, write: Any) -> None:
            self.text = write("").read_text()

    uris = [f"abfss://c@{name}.dfs.core.windows.net/t" for name in ("one", "two", "three")]
    of_pipeline: dict[str, Any] = {"pipeline": "p", "run_id": "r", "source_uri": uris[0]}
    reading: dict[str, Any] = {"kind": "changes", "starting_version": 1, "applied_from": 0}
    reading |= {**of_pipeline, "staging_uri": uris[1]}

    def step(kind: Any, **more: Any) -> Any:
        return made_step(kind, 1, TableVersion("id", 2), 1, **more)

    staged = (step("apply", staging=Staging(uris[2], 1, "changes")),)
    works: dict[str, Any] = {
        "apply": ApplySpec(**of_pipeline, target_uri=uris[1], options=ApplyOptions(), steps=staged),
        "read": ReadSpec(**reading, steps=(step("apply"),)),
        "commit": ReadSpec(**reading, steps=(step("commit"),)),
        "enable": specs.EnableSpec(run_id="r", tables=tuple(uris)),
        "ingest": ingest_spec(uris[0], uris[1], after=(after(uris[2]),)),
        "bundle": specs.BatchSpec(
            run_id="r", parts=(ingest_spec(uris[0], uris[1]), ingest_spec(uris[0], uris[2]))
        ),
    }
    hook: Any = Here()
    log: Any = records
    options = {"azure_storage_account_key": SECRET}
    add_storage(hook, options, spec=works[kind], directory=tmp_path, log=log)
    hosts = {line.split("account.key.")[1].split(".")[0] for line in hook.text.splitlines() if "key." in line}
    named = {"commit": {"two"}, "read": {"one", "two"}}
    assert hosts == named.get(kind, {"one", "two", "three"})


# -- nobody sees them -----------------------------------------------------------------------------
def test_no_secret_is_logged_rendered_or_written_down(
    stand_in: StandIn,
    lake: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    records: Records,
) -> None:
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(DeltaCdcSubmitHook, "log", records)
    stand_in.does(f"echo delta_cdc\\| applied; {COMMITTED}")
    task = operator(delta_conn_id="{{ params.lake }}", verbose=True)
    task.render_template_fields({"params": {"lake": lake}})  # type: ignore[arg-type]
    assert task.delta_conn_id == lake
    store = Store()
    said: list[str] = []
    for level in ("debug", "info", "warning", "error"):
        monkeypatch.setattr(task.log, level, lambda text, *args: said.append(str(text) % args))
    result = run(task, store)
    assert any("spark-submit command" in line for line in records.at("debug"))
    assert records.at("info") == ["applied"]
    said += [text for _, text in records.lines]
    rendered = [repr(getattr(task, name, None)) for name in task.template_fields]
    everything = [*rendered, *said, caplog.text, json.dumps(store.kept), result.to_json()]
    everything += [json.dumps(stand_in.spec), repr(task._runtime._hook.confs)]  # type: ignore[union-attr]
    for text in everything:
        assert SECRET not in text
        assert "tok-en-of-nobody" not in text


# -- all operators --------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["apply", "read", "enable"])
def test_logs_are_read_with_the_connection(lake: str, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    used: list[Any] = []

    def stop(request: Any, *_: Any, **given: Any) -> Any:
        used.append(given.get("storage_options") or request.storage_options)
        raise InterruptedError

    monkeypatch.setattr("delta_cdc.run.flows.run", stop)
    monkeypatch.setattr("delta_cdc.planning.table_properties.already_enabled", stop)
    common: dict[str, Any] = {"task_id": "t", "delta_conn_id": lake, "storage_options": {"timeout": "1s"}}
    tables = {"pipeline": "p", "target": "s3://b/target"}
    tasks = {
        "apply": lambda: DeltaApplyChangesOperator(**tables, source="s3://b/t", keys=["id"], **common),
        "read": lambda: DeltaReadChangesOperator(**tables, table="s3://b/t", staging="s3://b/s", **common),
        "enable": lambda: DeltaEnableChangeDataFeedOperator(table="s3://b/t", **common),
    }
    context: Any = {"run_id": "r"}
    with pytest.raises(InterruptedError):
        tasks[kind]().execute(context)
    (options,) = used
    assert options["AWS_SECRET_ACCESS_KEY"] == SECRET
    assert options["timeout"] == "1s"
