"""The small workload that fills a class-data archive: it creates, changes, reads and merges tables.

:func:`make_archive` runs it in its own Spark application, without Airflow.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.api.changes import apply_changes
from delta_cdc.core.errors import JobFailed
from delta_cdc.core.sql import table
from delta_cdc.launch.class_data_archive import ClassDataArchive
from delta_cdc.launch.environment import child_environment, submit_binary
from delta_cdc.launch.jars import class_path
from delta_cdc.launch.processes import stop
from delta_cdc.launch.session import CLASS_PATH, DEFAULT_JAVA_OPTIONS, INTERPRETED, embedded_confs
from delta_cdc.launch.spark_defaults import spark_default

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.launch.class_data_archive import ArchiveStatus

_ROWS = 1_000
_LIMIT_SECONDS = 900.0
#: Any location on S3 brings the JARs for S3.
_ON_S3 = "s3://bucket/table"
_PROGRAM = "import sys\n\nfrom delta_cdc.warmup import main\n\nmain(*sys.argv[1:])\n"
#: An address where nothing listens: clients load their classes, and give up at once.
_NO_SERVER = "127.0.0.1:9"
_S3_OPTIONS = {
    "fs.s3a.endpoint": f"http://{_NO_SERVER}",
    "fs.s3a.endpoint.region": "us-east-1",
    "fs.s3a.path.style.access": "true",
    "fs.s3a.access.key": "none",
    "fs.s3a.secret.key": "none",
    "fs.s3a.attempts.maximum": "1",
    "fs.s3a.retry.limit": "0",
}
_KAFKA_OPTIONS = {
    "kafka.bootstrap.servers": _NO_SERVER,
    "subscribe": "none",
    "kafka.request.timeout.ms": "1000",
    "kafka.default.api.timeout.ms": "1000",
    "fetchOffset.numRetries": "1",
}


def make_archive(*, kafka: bool = False, s3: bool = False, again: bool = False) -> ArchiveStatus:
    """Create the class-data archive of embedded drivers, unless it exists.

    This takes half a minute, and some 200 MB in the cache folder.

    :param kafka: for applications that read from Kafka
    :param s3: for applications with tables on S3
    :param again: replace an existing archive
    :return: the archive's status afterwards
    :raises EnvironmentNotReady: if Java or Spark is missing, or the JARs cannot be resolved
    :raises JobFailed: the workload failed
    """
    locations = [_ON_S3] if s3 else []
    archive = ClassDataArchive(class_path(locations, kafka=kafka))
    if again:
        archive.forget()

    def run(java_options: str) -> None:
        _run(
            embedded_confs(
                quick_start=True,
                kafka=kafka,
                locations=locations,
                java_options=java_options,
                default_java_options=spark_default(DEFAULT_JAVA_OPTIONS, {}),
                archive=False,
            ),
            [*(["s3"] if s3 else []), *(["kafka"] if kafka else [])],
        )

    return archive.make(run)


def _run(confs: Mapping[str, str], clients: Sequence[str]) -> None:
    """Run the workload by ``spark-submit``, and wait until the JVM has ended.

    :param clients: see :func:`main`
    """
    with tempfile.TemporaryDirectory(prefix="delta-cdc-training-") as folder_name:
        folder = Path(folder_name)
        program = folder / "train.py"
        program.write_text(_PROGRAM, encoding="utf-8")
        driver_confs = {**confs, "spark.sql.warehouse.dir": str(folder / "warehouse")}
        jars = driver_confs.pop(CLASS_PATH)
        package = str(Path(__file__).resolve().parent.parent)
        paths = [package, *filter(None, [os.environ.get("PYTHONPATH")])]
        log = folder / "spark.log"
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [
                    str(submit_binary()),
                    *(part for name, value in driver_confs.items() for part in ("--conf", f"{name}={value}")),
                    *("--driver-class-path", jars, str(program), str(folder), *clients),
                ],
                env={**os.environ, **child_environment(), "PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                process.wait(_LIMIT_SECONDS)
                ended = f"ended with exit code {process.returncode}"
            except subprocess.TimeoutExpired:
                ended = f"did not end within {_LIMIT_SECONDS:g} s"
            finally:
                # The JVM has started a Python process.
                stop(process)
        last_lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-5:]
    if process.returncode != 0:
        raise JobFailed(
            f"{sys.executable}: the workload for the class-data archive {ended}: {' / '.join(last_lines)}",
            remedy="try delta-cdc changes on one of your tables. Without the archive, only the start of "
            "Spark takes longer.",
        )


def main(folder: str, *clients: str) -> None:
    """Run the workload in the Spark application of this process.

    :param folder: an empty folder
    :param clients: what else the application is for: ``s3``, ``kafka``
    """
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.getOrCreate()
    try:
        if "s3" in clients:
            _give_up(lambda: spark.read.options(**_S3_OPTIONS).text("s3a://none/none").count())
        if "kafka" in clients:
            _give_up(lambda: spark.read.format("kafka").options(**_KAFKA_OPTIONS).load().count())
        _work(spark, f"{folder}/source", [f"{folder}/type-{kind}" for kind in (1, 2)])
    finally:
        spark.stop()


def _give_up(read: Callable[[], object]) -> None:
    """Let a client look for its server, which does not exist."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        read()
    except (Py4JJavaError, PySparkException) as error:
        # No class of the client: the class path is wrong.
        if "ClassNotFound" in str(error) or "NoClassDef" in str(error):
            raise


def _work(spark: SparkSession, source: str, targets: list[str]) -> None:
    rows = spark.range(_ROWS).selectExpr("id", "cast(id as string) AS name", "id * 1.5D AS amount")
    source_table = table(source)
    spark.sql(
        f"CREATE TABLE {source_table} (id BIGINT, name STRING, amount DOUBLE) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    rows.write.format("delta").mode("append").save(source)
    _apply(spark, source, targets)
    # The classes of jobs of both kinds: those that interpret expressions, and those that compile them.
    for number, confs in enumerate((INTERPRETED, {})):
        for name in INTERPRETED:
            spark.conf.set(name, confs[name]) if confs else spark.conf.unset(name)
        _change(spark, source_table, rows, number)
        _apply(spark, source, targets)


def _change(spark: SparkSession, source: str, rows: DataFrame, number: int) -> None:
    changed = rows.where(f"id % 7 = 0 OR id > {_ROWS - 10}")
    changed.selectExpr("id + 5 AS id", "name", f"amount + {number} AS amount").createOrReplaceTempView(
        "changed"
    )
    spark.sql(
        f"MERGE INTO {source} t USING changed s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    spark.sql(f"DELETE FROM {source} WHERE id % 97 = {number}")


def _apply(spark: SparkSession, source: str, targets: list[str]) -> None:
    for kind, target in enumerate(targets, start=1):
        apply_changes(spark, source, target, pipeline="training", keys=["id"], stored_as_scd_type=kind)
