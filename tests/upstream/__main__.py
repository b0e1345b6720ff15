"""``python -m tests.upstream``: which faults of others, around which the engine goes, are still there.

Each fault is a few statements without the engine. ``yes`` is still there; ``no`` was mended, so that the code
around it can go; an error is a reproduction that no longer runs. The exit code is 0 if all are still there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import warnings
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.engine import newest, picked, table_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Fault:
    """A fault of another project.

    :param around: where our code goes around it
    :param there: returns whether it is still there, given a session and an empty folder
    """

    of: str
    text: str
    around: str
    there: Callable[[Any, str], bool]


FAULTS: list[Fault] = []


def _fault(of: str, text: str, around: str) -> Callable[[Callable[[Any, str], bool]], Any]:
    def add(there: Callable[[Any, str], bool]) -> Callable[[Any, str], bool]:
        FAULTS.append(Fault(of, text, around, there))
        return there

    return add


def _fails(run: Callable[[], object], text: str) -> bool:
    try:
        run()
    except BaseException as error:
        if text.lower() not in f"{type(error).__name__}: {error}".lower():
            raise
        return True
    return False


# -- Delta ----------------------------------------------------------------------------------------
_BY_POSITION = "MERGE gives structs in arrays of arrays their values by position: fields are exchanged."


@_fault("Delta", _BY_POSITION, "spark/apply/difference.py, laid_out")
def _positions(spark: SparkSession, folder: str) -> bool:
    name = f"delta.`{folder}/t`"
    spark.sql(f"CREATE TABLE {name} (k INT, a ARRAY<ARRAY<STRUCT<x: STRING, y: STRING>>>) USING delta")
    spark.sql("SELECT 1 k, array(array(named_struct('y', 'y', 'x', 'x'))) a").createOrReplaceTempView("rows_")
    spark.sql(f"MERGE INTO {name} t USING rows_ s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *")
    (row,) = table_rows(spark, f"{folder}/t")
    return bool(row["a"][0][0]["x"] == "y")


_CLIPPED = "The change data feed takes an end beyond the newest version for the newest version."


@_fault("Delta", _CLIPPED, "planning/ranges.py, refuse_beyond")
def _beyond(spark: SparkSession, folder: str) -> bool:
    _three(spark, f"{folder}/t")
    return bool(_feed(spark, f"{folder}/t", endingVersion=99) == 3)


_GAP = "The change data feed passes over a commit file that is missing inside the range: its rows are lost."


@_fault("Delta", _GAP, "delta_log/table.py, LogGap")
def _missing(spark: SparkSession, folder: str) -> bool:
    _three(spark, f"{folder}/t", **{"delta.checkpointInterval": "3"})
    commit = Path(folder) / "t/_delta_log" / f"{2:020}.json"
    commit.unlink()
    commit.with_name(f".{commit.name}.crc").unlink(missing_ok=True)
    return bool(_feed(spark, f"{folder}/t", endingVersion=3) == 2)


@_fault(
    "Delta",
    "The change data feed takes a first version and a first time together.",
    "core/rules.py, bounds_rules",
)
def _two_starts(spark: SparkSession, folder: str) -> bool:
    _three(spark, f"{folder}/t")
    moment = spark.sql(f"DESCRIBE HISTORY delta.`{folder}/t`").collect()[0]["timestamp"]
    return _feed(spark, f"{folder}/t", startingTimestamp=str(moment)) >= 0


_PURGE = "REORG … APPLY (PURGE) leaves masked rows in the files of a clustered table."


@_fault("Delta", _PURGE, "spark/maintain/optimize.py, the note of a purge")
def _purge(spark: SparkSession, folder: str) -> bool:
    name = f"delta.`{folder}/t`"
    properties = "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')"
    spark.sql(f"CREATE TABLE {name} (k INT) USING delta CLUSTER BY (k) {properties}")
    spark.range(0, 100, 1, 1).selectExpr("CAST(id AS INT) k").write.format("delta").mode("append").save(
        f"{folder}/t"
    )
    spark.sql(f"OPTIMIZE {name} FULL")
    spark.sql(f"DELETE FROM {name} WHERE k = 7")
    before = newest(f"{folder}/t")
    spark.sql(f"REORG TABLE {name} APPLY (PURGE)")
    after = newest(f"{folder}/t")
    return after == before or not picked(f"{folder}/t", after, "remove")


_CLUSTER = "A writer by path ignores clusterBy: the table is not clustered."


@_fault("Delta", _CLUSTER, "spark/apply/layout.py, ALTER TABLE … CLUSTER BY")
def _cluster_by(spark: SparkSession, folder: str) -> bool:
    spark.range(3).write.format("delta").clusterBy("id").save(f"{folder}/t")
    return "clustering" not in str(picked(f"{folder}/t", 0, "domainMetadata"))


_STATISTICS = "overwriteSchema fails where delta.dataSkippingStatsColumns names a column that goes."


@_fault("Delta", _STATISTICS, "spark/sealed/commit.py, is_ours")
def _statistics(spark: SparkSession, folder: str) -> bool:
    properties = "TBLPROPERTIES ('delta.dataSkippingStatsColumns' = 'a,b')"
    spark.sql(f"CREATE TABLE delta.`{folder}/t` (a INT, b INT) USING delta {properties}")
    writer = spark.sql("SELECT 1 a").write.format("delta").mode("overwrite").option("overwriteSchema", "true")
    return _fails(lambda: writer.save(f"{folder}/t"), "Couldn't find column")


def _three(spark: SparkSession, path: str, **properties: str) -> None:
    """Make a table whose versions 1 to 3 insert a row each."""
    given = {"delta.enableChangeDataFeed": "true", **properties}
    listed = ", ".join(f"'{name}' = '{value}'" for name, value in given.items())
    spark.sql(f"CREATE TABLE delta.`{path}` (k INT) USING delta TBLPROPERTIES ({listed})")
    for key in range(3):
        spark.sql(f"INSERT INTO delta.`{path}` VALUES ({key})")


def _feed(spark: SparkSession, path: str, **options: Any) -> int:
    reader = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 1)
    return int(reader.options(**options).load(path).count())


# -- Spark, obstore, Airflow ----------------------------------------------------------------------
_COLLATION = (
    "The client of Spark Connect names the collation of each string: new tables have collated columns."
)


@_fault("PySpark", _COLLATION, "spark/sessions.py, _send_plain_strings")
def _collation(spark: SparkSession, folder: str) -> bool:
    from pyspark.sql.connect import types
    from pyspark.sql.types import StringType

    return bool(types.pyspark_types_to_proto_types(StringType()).string.collation)


_PANIC = (
    "An option of the client among those of the store is a panic, which `except Exception` does not catch."
)


@_fault("obstore", _PANIC, "delta_log/store.py, _CLIENT")
def _panic(spark: SparkSession, folder: str) -> bool:
    from obstore.store import from_url

    try:
        from_url("s3://bucket", config={"allow_http": "true"})  # type: ignore[call-overload]
    except Exception:  # noqa: BLE001 - an error that can be caught is what is wanted
        return False
    except BaseException:  # noqa: BLE001 - the panic
        return True
    return False


_NO_RESULT = (
    "A resumable job that a retry finds running ends without the result: get_job_result is not called."
)


@_fault("Airflow", _NO_RESULT, "operators/base.py, get_job_result; the runtime reads the result")
def _no_result(spark: SparkSession, folder: str) -> bool:
    from airflow.providers.common.compat.sdk import BaseOperator, ResumableJobMixin

    class Job(ResumableJobMixin, BaseOperator):  # type: ignore[misc]
        external_id_key = "job"

        def submit_job(self, context: Any) -> str:
            return "1"

        def get_job_status(self, external_id: Any, context: Any) -> str:
            return "RUNNING"

        def is_job_active(self, status: str) -> bool:
            return True

        def is_job_succeeded(self, status: str) -> bool:
            return False

        def poll_until_complete(self, external_id: Any, context: Any) -> None:
            return None

        def get_job_result(self, external_id: Any, context: Any) -> str:
            return "rows"

    return Job(task_id="t").execute_resumable({"task_state_store": {"job": "1"}}) is None


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="only faults that contain this")
    wanted = parser.parse_args().text.lower()
    warnings.simplefilter("ignore")
    from delta_cdc.launch.session import get_session

    spark = get_session("upstream", cores=2, quick_start=True, **{"spark.driver.memory": "1g"})
    spark.sparkContext.setLogLevel("OFF")
    versions = {"Delta": _delta(spark), "PySpark": spark.version}
    versions |= {"obstore": version("obstore"), "Airflow": version("apache-airflow-core")}
    answers = []
    for fault in FAULTS:
        if wanted in f"{fault.of} {fault.text} {fault.around}".lower():
            with tempfile.TemporaryDirectory(prefix="upstream-") as folder:
                try:
                    answer = "yes" if fault.there(spark, folder) else "no"
                except Exception as error:  # noqa: BLE001 - the table has it
                    answer = f"error: {str(error)[:200]}"
            answers.append(answer)
            print(
                f"| {fault.of} {versions[fault.of]} | {fault.text} | {fault.around} | {answer} |", flush=True
            )
    return 0 if set(answers) == {"yes"} else 1


def _delta(spark: SparkSession) -> str:
    return str(spark.sparkContext._jvm.io.delta.package.VERSION())


if __name__ == "__main__":
    sys.exit(main())
