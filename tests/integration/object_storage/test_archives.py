"""Class-data archives of embedded drivers that need more JARs than Delta's: each set of JARs gets its own."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaIngestChangesOperator
from delta_cdc.launch.class_data_archive import ClassDataArchive
from delta_cdc.launch.jars import cache_home, class_path
from delta_cdc.warmup import make_archive
from tests.integration.cluster.test_standalone import context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.kafka_broker import Broker
    from tests.support.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

#: Classes that each driver loads: Spark's, and those of the clients.
_SPARK = "org.apache.spark.deploy.SparkSubmit"
_S3 = "org.apache.hadoop.fs.s3a.S3AFileSystem"
_KAFKA = "org.apache.kafka.clients.admin.KafkaAdminClient"


@pytest.fixture(autouse=True)
def without_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a cache folder that has JARs and nothing else."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "jars").symlink_to(cache_home() / "jars")
    monkeypatch.setenv("DELTA_CDC_HOME", str(tmp_path / "home"))


def made_and_used(
    task: Callable[..., Any],
    send: Callable[[], None],
    archive: ClassDataArchive,
    log: Path,
    client: str,
    **made: bool,
) -> None:
    """Run a task of an embedded driver twice: the first one makes no archive, the second one starts from it.

    :param send: gives it something to do
    :param client: a class of the client that the archive is for
    :param made: the JARs, as the command names them
    """
    for from_archive in (False, True):
        assert archive.status().state == ("ready" if from_archive else "missing")
        send()
        options = {"spark.driver.extraJavaOptions": f"-Xlog:class+load:file={log}"}
        assert task(conf=options).execute(context())["applied"]
        for name in (_SPARK, client):
            (loaded,) = [line for line in log.read_text().splitlines() if f" {name} source: " in line]
            assert ("shared objects file (top)" in loaded) == from_archive, name
        if not from_archive:
            assert archive.status().state == "missing"
            assert make_archive(**made).state == "ready"
    assert [path.name for path in archive.path.parent.glob("*.jsa")] == [archive.path.name]


def test_with_the_jars_for_s3(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_STORE", lake.connection)
    ids = itertools.count()

    def append() -> None:
        write_deltalake(
            lake.uri("source"),
            pa.table({"id": pa.array([next(ids)], pa.int64())}),
            mode="append",
            configuration={"delta.enableChangeDataFeed": "true"},
            storage_options=lake.direct,
        )

    def task(**more: Any) -> DeltaApplyChangesOperator:
        return DeltaApplyChangesOperator(
            task_id="apply",
            pipeline="flow",
            source=lake.uri("source"),
            target=lake.uri("target"),
            keys=["id"],
            delta_conn_id="store",
            single_driver=True,
            **more,
        )

    archive = ClassDataArchive(class_path([lake.uri("")]))
    made_and_used(task, append, archive, tmp_path / "classes.log", _S3, s3=True)


def test_with_kafkas_connector(kafka: Broker, tmp_path: Path) -> None:
    topic = "events_for_an_archive"
    kafka.create_topic(topic)

    def send() -> None:
        kafka.send(topic, [json.dumps({"op": "I", "id": 1, "n": 1})])

    def task(**more: Any) -> DeltaIngestChangesOperator:
        return DeltaIngestChangesOperator(
            task_id="ingest",
            pipeline="flow",
            source=f"kafka://{kafka.servers}/{topic}",
            log=str(tmp_path / "log"),
            keys=["id"],
            schema="id INT, n INT",
            adapter_options={"operation_column": "op", "sequence_by": "n"},
            **more,
        )

    archive = ClassDataArchive(class_path(kafka=True))
    made_and_used(task, send, archive, tmp_path / "classes.log", _KAFKA, kafka=True)
