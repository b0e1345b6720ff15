"""What a session is asked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.sql import table
from delta_cdc.launch.jars import installed_delta
from delta_cdc.spark.sealed.commit import look
from delta_cdc.spark.sessions import (
    _APPEND_ONLY,
    _COLUMN_MAPPING,
    _STALENESS,
    _TRANSACTION_RETENTION,
    asking_java,
    delta_version,
    private_session,
)
from tests.support.engine import session_like

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_java_is_asked_in_the_driver(spark: SparkSession) -> None:
    """An executor's JVM has other properties, and may have other JARs; and there may be none just now."""
    spark.sparkContext.setJobGroup("asking", "without a task")
    try:
        assert delta_version(spark) == installed_delta()
        properties = [("java.lang.System", "getProperty", name, "") for name in ("no 'such", "java.home")]
        absent, home = spark.sql(asking_java(*properties)).collect()[0]
        assert absent == ""
        assert Path(home).is_dir()
        assert not spark.sparkContext.statusTracker().getJobIdsForGroup("asking")
        spark.range(1).count()
        assert spark.sparkContext.statusTracker().getJobIdsForGroup("asking"), "a task would have been seen"
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)
        spark.sparkContext.setLocalProperty("spark.job.description", None)


def test_no_job_reads_a_table_as_it_was(spark: SparkSession) -> None:
    user = session_like(spark)
    user.conf.set(_STALENESS, "1h")
    with private_session(user) as session:
        assert session.conf.get(_STALENESS) == "0"
    assert user.conf.get(_STALENESS) == "1h"


def test_a_table_that_a_job_makes_takes_deletes(spark: SparkSession, tmp_path: Path) -> None:
    """Whatever the cluster's default is."""
    clusters = spark._jsc.sc().conf()
    clusters.set(_APPEND_ONLY, "true")
    clusters.set(_TRANSACTION_RETENTION, "interval 1 day")
    user = session_like(spark)
    user.conf.set(_TRANSACTION_RETENTION, "interval 2 days")
    user.conf.set(_COLUMN_MAPPING, "name")
    # A property that does not matter to the engine is as the user's session has it.
    user.conf.set("spark.databricks.delta.properties.defaults.checkpointInterval", "77")
    try:
        with private_session(user) as session:
            session.range(2).write.format("delta").save(str(tmp_path))
            session.sql(f"DELETE FROM {table(str(tmp_path))} WHERE id = 0")
            assert session.read.format("delta").load(str(tmp_path)).count() == 1
            properties = look(session, str(tmp_path)).properties
            assert properties["delta.checkpointInterval"] == "77"
            others = {"delta.setTransactionRetentionDuration", "delta.columnMapping.mode"}
            assert others.isdisjoint(properties)
    finally:
        clusters.remove(_APPEND_ONLY)
        clusters.remove(_TRANSACTION_RETENTION)
