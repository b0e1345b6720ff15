"""What our commands mean to Spark: parsed by the very classes that ``spark-submit`` parses with."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_delta_cdc.operators import DeltaEnableChangeDataFeedOperator
from delta_cdc.core.errors import DeployModeUnsupported, JobFailed
from delta_cdc.core.spec import EnableSpec
from delta_cdc.launch.jars import needed
from tests.integration.cluster.test_standalone import context
from tests.support.http_store import HttpStore
from tests.support.kubernetes_api import kubernetes_api
from tests.unit.airflow.conftest import StandIn

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.support.s3_gateway import Gateway

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

SPEC = EnableSpec(run_id="run", tables=("/data/t",), properties={"delta.enableChangeDataFeed": "true"})
_SPARK = "org.apache.spark.deploy"


@dataclass
class Understood:
    """What Spark makes of a command.

    :param starts: the class that runs next: the driver, or the client of a cluster
    :param arguments: what that class is told
    :param confs: of the application
    """

    starts: str
    arguments: list[str]
    confs: dict[str, str]

    def after(self, option: str) -> list[str]:
        return [self.arguments[at + 1] for at, found in enumerate(self.arguments) if found == option]

    def listed(self, conf: str) -> list[str]:
        return [Path(one).name for one in self.confs.get(conf, "").split(",") if one]


def understood(spark: SparkSession, arguments: list[str], environment: dict[str, str]) -> Understood:
    """Let Spark's own parser read a command line."""
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    deploy: Any = getattr(jvm, _SPARK)
    given = jvm.java.util.ArrayList()
    for argument in arguments:
        given.add(argument)
    variables = jvm.java.util.HashMap()
    for name, value in environment.items():
        variables.put(name, value)
    python = jvm.org.apache.spark.api.python.PythonUtils
    parsed = deploy.SparkSubmitArguments(python.toSeq(given), python.toScalaMap(variables))
    found = deploy.SparkSubmit().prepareSubmitEnvironment(parsed, jvm.scala.Option.empty())
    told, confs = found._1(), found._3().getAll()
    return Understood(
        starts=found._4(),
        arguments=[told.apply(at) for at in range(told.length())],
        confs={entry._1(): entry._2() for entry in confs},
    )


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    folder = tmp_path / "stand-in"
    folder.mkdir()
    made = StandIn(folder)
    made.does("exit 1")
    monkeypatch.setattr("delta_cdc.launch.environment.submit_binary", lambda: made.binary)
    return made


@pytest.fixture
def command(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    """Return a function that runs an operator with a connection, and gives the command it would run."""
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", (tmp_path / "results").as_uri())

    def made(host: str, operator: dict[str, Any] | None = None, **extra: Any) -> list[str]:
        connection = {"conn_type": "spark", "host": host, "extra": extra}
        monkeypatch.setenv("AIRFLOW_CONN_CLUSTER", json.dumps(connection))
        task = DeltaEnableChangeDataFeedOperator(
            task_id="enable", table="/data/t", spark_conn_id="cluster", durable=False, **(operator or {})
        )
        with pytest.raises(JobFailed):
            task.run_job(context(), SPEC)
        return stand_in.arguments

    return made


def test_standalone_in_client_mode(spark: SparkSession, command: Callable[..., list[str]]) -> None:
    found = understood(
        spark,
        command("spark://m1:7077,m2:7077", {"executor_memory": "2g", "total_executor_cores": 8}),
        {},
    )
    # The driver is Python, in this very process tree.
    assert found.starts == f"{_SPARK}.PythonRunner"
    application, engine, *rest = found.arguments
    assert application.endswith("/delta_cdc_job.py")
    assert Path(engine).name.startswith("delta_cdc-")
    assert rest[0::2] == ["--spec", "--sha256", "--result"]
    assert Path(rest[1]).is_absolute()
    assert found.confs["spark.master"] == "spark://m1:7077,m2:7077"
    assert found.confs["spark.executor.memory"] == "2g"
    assert found.confs["spark.cores.max"] == "8"
    # Executors get the JARs from the driver; the driver has them on its own class path.
    assert sorted(found.listed("spark.jars")) == sorted(jar.name for jar in needed(["/lake/t"]))
    assert "DeltaSparkSessionExtension" in found.confs["spark.sql.extensions"]


def test_yarn_in_client_mode(spark: SparkSession, command: Callable[..., list[str]], tmp_path: Path) -> None:
    arguments = command("yarn", queue="etl", principal="me", keytab=None)
    found = understood(spark, arguments, {"HADOOP_CONF_DIR": str(tmp_path)})
    assert found.starts == f"{_SPARK}.PythonRunner"
    assert found.confs["spark.yarn.queue"] == "etl"
    assert found.confs["spark.submit.deployMode"] == "client"
    assert sorted(found.listed("spark.yarn.dist.jars")) == sorted(jar.name for jar in needed(["/lake/t"]))
    assert [name.startswith("delta_cdc-") for name in found.listed("spark.yarn.dist.pyFiles")] == [True]
    assert Path(found.arguments[found.arguments.index("--spec") + 1]).is_absolute()


def test_yarn_in_cluster_mode(spark: SparkSession, command: Callable[..., list[str]], tmp_path: Path) -> None:
    """The driver finds the spec by its bare name: YARN puts files into the folder where it runs."""
    arguments = command("yarn", **{"deploy-mode": "cluster"})
    found = understood(spark, arguments, {"HADOOP_CONF_DIR": str(tmp_path)})
    assert found.starts == f"{_SPARK}.yarn.YarnClusterApplication"
    assert [Path(one).name for one in found.after("--primary-py-file")] == ["delta_cdc_job.py"]
    told = found.after("--arg")
    assert told[0::2] == ["--spec", "--sha256", "--result"]
    assert told[1] in found.listed("spark.yarn.dist.files")
    assert "/" not in told[1]
    assert told[5].startswith((tmp_path / "results").as_uri())
    assert sorted(found.listed("spark.yarn.dist.jars")) == sorted(jar.name for jar in needed(["/lake/t"]))
    assert [name.startswith("delta_cdc-") for name in found.listed("spark.submit.pyFiles")] == [True]
    # Nothing of this machine: the driver has an interpreter of its own.
    assert not any("PYSPARK_PYTHON" in name for name in found.confs)


def test_kubernetes_in_cluster_mode(
    spark: SparkSession,
    command: Callable[..., list[str]],
    stand_in: StandIn,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Nothing of this machine is named: a pod sees none of it. What is named is there: Spark looks."""
    kubernetes(monkeypatch)
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", "s3://lake/results")
    (tmp_path / "lake").mkdir()
    with HttpStore(tmp_path / "lake") as store:
        stored = _kept_in(tmp_path / "lake", monkeypatch)
        confs = {
            "spark.kubernetes.container.image": "spark:4.2",
            "spark.hadoop.fs.s3a.endpoint": store.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.aws.credentials.provider": (
                "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
            ),
            "spark.hadoop.fs.s3a.impl.disable.cache": "true",
        }
        cluster = {"deploy-mode": "cluster", "namespace": "etl"}
        arguments = command("k8s://https://api:6443", {"conf": confs}, **cluster)
        found = understood(spark, arguments, {})
        kept = set(stored)
        command("k8s://https://api:6443", {"conf": confs}, **cluster)
    assert found.starts == f"{_SPARK}.k8s.submit.KubernetesClientApplication"
    assert found.confs["spark.master"] == "k8s://https://api:6443"
    assert found.confs["spark.kubernetes.namespace"] == "etl"
    (application,) = found.after("--primary-py-file")
    told = found.after("--arg")
    assert told[0::2] == ["--spec", "--sha256", "--result"]
    assert told[1] in found.listed("spark.files")
    assert told[5].startswith("s3a://lake/results/")
    lists = ("spark.files", "spark.submit.pyFiles", "spark.jars")
    named = ",".join([application, *(found.confs[name] for name in lists)]).split(",")
    assert {one.replace("s3a://", "s3://") for one in named} == kept
    assert {Path(one).name for one in named} >= {jar.name for jar in needed(["/lake/t"])}
    # Of two runs the second one finds the JARs there.
    assert {stored.count(name) for name in kept if name.endswith(".jar")} == {1}
    # The process that looks has the classes to do so, beside whatever it had.
    assert "hadoop-aws" in stand_in.environment["SPARK_DIST_CLASSPATH"]


@pytest.mark.slow
@pytest.mark.parametrize("identity", ["environment", "connection"])
def test_the_pod_that_spark_asks_for(s3: Gateway, monkeypatch: pytest.MonkeyPatch, identity: str) -> None:
    """The whole way, to the API: the real ``spark-submit``, the real store, and what would run in the pod."""
    kubernetes(monkeypatch)
    monkeypatch.setenv("AIRFLOW__DELTA_CDC__RESULTS_URI", s3.uri("pods"))
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        # Spark hands those of its environment on, and an embedded Spark of this process has set them.
        monkeypatch.delenv(name, raising=False)
    confs = {
        "spark.kubernetes.container.image": "spark:4.2",
        "spark.kubernetes.submission.waitAppCompletion": "false",
    }
    who = None
    for name, value in s3.options().items():
        if identity == "environment":
            # The worker's own identity, for objects of its own.
            monkeypatch.setenv(name, value)
        else:
            monkeypatch.delenv(name, raising=False)
    if identity == "environment":
        confs |= {
            "spark.hadoop.fs.s3a.endpoint": s3.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "eu-west-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
        }
    else:
        who = "lake"
        told = {"conn_type": "delta", "extra": {"storage_options": s3.options()}}
        monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(told))
    with kubernetes_api() as api:
        connection = {"deploy-mode": "cluster", "namespace": "etl"}
        monkeypatch.setenv(
            "AIRFLOW_CONN_CLUSTER",
            json.dumps({"conn_type": "spark", "host": api.master, "extra": connection}),
        )
        task = DeltaEnableChangeDataFeedOperator(
            task_id="enable",
            table="/data/t",
            spark_conn_id="cluster",
            delta_conn_id=who,
            durable=False,
            conf=confs,
        )
        with pytest.raises(JobFailed) as error:
            task.run_job(context(), SPEC)
    assert api.kept("Pod"), f"{error.value}\n{api.asked}"
    (pod,) = api.kept("Pod")
    assert any(asked.startswith("POST /api/v1/namespaces/etl/pods") for asked in api.asked)
    (driver,) = pod["spec"]["containers"]
    assert driver["image"] == "spark:4.2"
    told = driver["args"]
    assert told[0] == "driver"
    application = told[told.index("org.apache.spark.deploy.PythonRunner") + 1]
    assert application.startswith("s3a://lake/pods/")
    spec = told[told.index("--spec") + 1]
    assert told[told.index("--result") + 1].startswith("s3a://lake/pods/")
    properties = json.dumps(api.kept("ConfigMap"))
    assert f"/{spec}" in properties, "the spec is among the files that the driver finds by its name"
    assert "delta-spark_4.2_2.13" in properties
    # Nothing that the pod is told names a file of this machine, or knows a secret.
    everything = json.dumps(api.objects)
    here = str(Path.cwd())
    named = [
        everything[at - 80 : at + 120] for at in (found.start() for found in re.finditer(here, everything))
    ]
    assert named == []
    assert "file:" not in everything.replace("local:///", "")
    assert s3.options()["AWS_SECRET_ACCESS_KEY"] not in everything


def kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make believe that the Kubernetes provider is installed; commands don't need it."""
    monkeypatch.setattr("airflow_delta_cdc.hooks.submit._installed", lambda _: True)
    client = "airflow.providers.apache.spark.hooks.spark_submit.kube_client"
    monkeypatch.setattr(client, object(), raising=False)


def _kept_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keep what goes to the bucket in a folder; return the list of what was written, in order."""
    import obstore
    from obstore.store import LocalStore, from_url

    written: list[str] = []
    put = obstore.put

    def noted(store: Any, name: str, data: Any, **how: Any) -> Any:
        written.append(f"s3://lake/{store.prefix.relative_to(folder)}/{name}")
        return put(store, name, data, **how)

    def local(url: str, **_: Any) -> Any:
        bucket, _, path = url.removeprefix("s3://").partition("/")
        return LocalStore(folder / path, mkdir=True) if bucket == "lake" else from_url(url)

    monkeypatch.setattr("obstore.store.from_url", local)
    monkeypatch.setattr("obstore.put", noted)
    return written


def test_a_cluster_refuses_what_does_not_exist(command: Callable[..., list[str]]) -> None:
    with pytest.raises(DeployModeUnsupported, match="cluster on spark://m:7077"):
        command("spark://m:7077", **{"deploy-mode": "cluster"})


#: What a page of ours recommends: see docs/howto/cluster.md.
ELASTIC = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.minExecutors": "1",
    "spark.dynamicAllocation.maxExecutors": "8",
    "spark.dynamicAllocation.executorIdleTimeout": "60s",
}


def test_dynamic_allocation_is_told_as_it_stands(
    spark: SparkSession, command: Callable[..., list[str]]
) -> None:
    found = understood(spark, command("spark://m:7077", {"conf": ELASTIC}), {})
    assert {name: found.confs[name] for name in ELASTIC} == ELASTIC
    # Executors with rows in them are kept, as long as nobody sets this.
    assert "spark.dynamicAllocation.cachedExecutorIdleTimeout" not in found.confs
