"""A source and a target by catalog name, in a real Airflow, with a real Spark and a catalog that lasts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.integration.airflow.test_flow import rows, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

_CREATE = """
import sys
from delta_cdc.launch.session import get_session

spark = get_session("catalog", cores=2, quick_start=True, **{confs!r})
spark.sql("CREATE SCHEMA sales")
for name, properties in (("orders", "delta.enableChangeDataFeed = true"), ("history", "a = 1")):
    spark.sql(
        f"CREATE TABLE sales.{{name}} (id BIGINT, name STRING) USING delta TBLPROPERTIES ({{properties}})"
    )
spark.stop()
"""

_FLOW = """
from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

with DAG("by_name", schedule=None) as dag:
    DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="by_name",
        source="sales.orders",
        target="spark_catalog.sales.history",
        keys=["id"],
        conf={confs!r},
        env_vars={variables!r},
    )
"""


def test_tables_by_name(airflow: Airflow, tmp_path: Path) -> None:
    confs = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={tmp_path / 'metastore'};create=true"
        ),
    }
    variables = {"JAVA_TOOL_OPTIONS": f"-Dderby.stream.error.file={tmp_path / 'derby.log'}"}
    subprocess.run(
        [sys.executable, "-c", _CREATE.format(confs=confs)],
        env={
            **os.environ,
            **variables,
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        },
        check=True,
        capture_output=True,
    )
    source, target = (tmp_path / "warehouse" / "sales.db" / name for name in ("orders", "history"))
    write(source, [(1, "a"), (2, "b")])
    file = airflow.dag("by_name", _FLOW.format(confs=confs, variables=variables))

    first = airflow.run(file)
    assert first.state == "success", first.log
    assert first.submits == 2, "one application asks the catalog for both names, one applies"
    assert "where sales.orders, spark_catalog.sales.history lies" in first.log
    assert rows(target) == [(1, "a"), (2, "b")]
    published = first.xcom("apply")
    assert published["source_table_id"] == str(DeltaTable(str(source)).metadata().id)
    assert published["source_table"] == str(source)

    idle = airflow.run(file, forbid_processes=True)
    assert idle.state == "success", idle.log
    assert idle.xcom("apply")["applied"] is False
