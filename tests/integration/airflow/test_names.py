"""A source and a target by catalog name, in a real Airflow, with a real Spark and a catalog that lasts."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import duckdb
import pytest
from deltalake import DeltaTable

from tests.integration.airflow.test_flow import rows, write
from tests.support.metastore import metastore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

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


_SCHEMAS = """
from delta_cdc.launch.session import get_session

spark = get_session("catalog", cores=2, quick_start=True, **{confs!r})
for statement in {statements!r}:
    spark.sql(statement)
spark.stop()
"""

_GROUP = """
from airflow_delta_cdc.dags import build_dags

dags = build_dags({configuration!r}, default_args={{"retries": 0}})
"""


def _in_catalog(confs: dict[str, str], *statements: str, **variables: str) -> None:
    """Run statements in a Spark of their own."""
    subprocess.run(
        [sys.executable, "-c", _SCHEMAS.format(confs=confs, statements=statements)],
        env={**os.environ, **variables, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        check=True,
        capture_output=True,
    )


def test_a_group_whose_targets_the_metastore_gets(airflow: Airflow, tmp_path: Path) -> None:
    """Two new targets by name, on a metastore server: created, registered, read back by location and name."""
    orders, gold = tmp_path / "silver" / "orders", tmp_path / "gold"
    with metastore(tmp_path) as uri:
        confs = {"spark.sql.catalogImplementation": "hive", "spark.hadoop.hive.metastore.uris": uri}
        _in_catalog(
            confs,
            f"CREATE SCHEMA silver LOCATION '{orders.parent}'",
            f"CREATE SCHEMA gold LOCATION '{gold}'",
            "CREATE TABLE silver.orders (id BIGINT, name STRING) USING delta "
            "TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        )
        write(orders, [(1, "a"), (2, "b")])
        keyed = {"group": "named", "keys": ["id"], "source": "silver.orders"}
        layout = {"target_location": str(tmp_path / "there"), "target_comment": "all of them"}
        configuration = {
            "groups": {"named": {"backfill": False, "conf": confs}},
            "pipelines": {
                "now": {**keyed, "target": "gold.orders_now"},
                "there": {**keyed, "target": "gold.orders_there", "layout": layout},
            },
        }
        file = airflow.dag("named", _GROUP.format(configuration=configuration))
        first = airflow.run(file, dag="named")
        assert first.state == "success", first.log
        assert first.submits == 2, "one application asks the catalog for all names, one applies"
        for table in (gold / "orders_now", tmp_path / "there"):
            assert rows(table) == [(1, "a"), (2, "b")]
            assert _by_duckdb(table) == [(1, "a"), (2, "b")]
        # The catalog knows the new names now: the next run asks for them once, and the one after it nothing.
        second = airflow.run(file, dag="named")
        assert second.state == "success", second.log
        assert second.submits == 1
        idle = airflow.run(file, dag="named", forbid_processes=True)
        assert idle.state == "success", idle.log

        write(orders, [(3, "c")])
        third = airflow.run(file, dag="named")
        assert third.state == "success", third.log
        assert third.submits == 1, "its job looks at the names itself"
        _in_catalog(
            confs,
            # By their names, in a session that has not seen the tables.
            "SELECT assert_true(count(*) = 3) FROM gold.orders_now",
            "SELECT assert_true(count(*) = 3) FROM gold.orders_there",
            "ALTER TABLE gold.orders_now RENAME TO gold.orders_renamed",
        )
        write(orders, [(4, "d")])
        renamed = airflow.run(file, dag="named")
        assert renamed.state == "failed"
        assert "TableNameGone" in renamed.log
        assert len(rows(gold / "orders_now")) == 3
        assert len(rows(tmp_path / "there")) == 4, "the other table is through"


def _by_duckdb(table: Path) -> list[tuple[int, str]]:
    """Return the rows of the files that the log names, as DuckDB reads them."""
    files = DeltaTable(str(table)).file_uris()
    found = duckdb.sql(f"SELECT id, name FROM read_parquet({files!r})").fetchall()
    return sorted(found)


def test_tables_by_name(airflow: Airflow, tmp_path: Path) -> None:
    confs = {
        "spark.sql.catalogImplementation": "hive",
        "spark.sql.warehouse.dir": str(tmp_path / "warehouse"),
        "spark.hadoop.javax.jdo.option.ConnectionURL": (
            f"jdbc:derby:;databaseName={tmp_path / 'metastore'};create=true"
        ),
    }
    variables = {"JAVA_TOOL_OPTIONS": f"-Dderby.stream.error.file={tmp_path / 'derby.log'}"}
    _in_catalog(
        confs,
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.orders (id BIGINT, name STRING) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "CREATE TABLE sales.history (id BIGINT, name STRING) USING delta",
        **variables,
    )
    source, target = (tmp_path / "warehouse" / "sales.db" / name for name in ("orders", "history"))
    write(source, [(1, "a"), (2, "b")])
    file = airflow.dag("by_name", _FLOW.format(confs=confs, variables=variables))

    first = airflow.run(file)
    assert first.state == "success", first.log
    assert first.submits == 2, "one application asks the catalog for both names, one applies"
    assert "the location of sales.orders, spark_catalog.sales.history in" in first.log
    assert rows(target) == [(1, "a"), (2, "b")]
    published = first.xcom("apply")
    assert published["source_table_id"] == str(DeltaTable(str(source)).metadata().id)
    assert published["source_table"] == str(source)

    idle = airflow.run(file, forbid_processes=True)
    assert idle.state == "success", idle.log
    assert idle.xcom("apply")["applied"] is False
