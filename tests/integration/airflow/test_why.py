"""The question where a row comes from, as a task: text in the log, and a dict in XCom."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

pytestmark = pytest.mark.slow

_DAGS = """
from airflow.sdk import DAG

from airflow_delta_cdc.dags import build_dags
from airflow_delta_cdc.form import why_arguments, why_params
from airflow_delta_cdc.operators import DeltaWhyOperator

dags = build_dags("shop.yaml")
with DAG("why_alone", schedule=None, params=why_params()) as dag:
    DeltaWhyOperator(task_id="why", pipeline="orders", target="{lake}/orders_now", **why_arguments())
dags["why_alone"] = dag
"""
_SHOP = """
groups:
  shop: {{why: true}}
pipelines:
  orders:
    group: shop
    source: {lake}/orders
    target: "{lake}/{{{{ 'orders_now' }}}}"
    keys: [id]
    layout: {{cluster_by: [], target_properties: {{delta.enableDeletionVectors: "false"}}}}
  other:
    group: shop
    source: {lake}/orders
    target: {lake}/other
    keys: [id]
"""


def test_a_row_is_explained(airflow: Airflow, tmp_path: Path) -> None:
    lake = str(tmp_path)
    rows = pa.table({"id": pa.array([1, 2], pa.int64()), "v": ["a", "b"], "w": ["x", "y"]})
    write_deltalake(f"{lake}/orders", rows, configuration={"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("why", _DAGS.format(lake=lake))
    file.with_name("shop.yaml").write_text(_SHOP.format(lake=lake))
    applied = [airflow.run(file, dag="shop", conf={"tables": ["orders"]})]
    DeltaTable(f"{lake}/orders").update(updates={"v": "'c'"}, predicate="id = 1")
    applied.append(airflow.run(file, dag="shop", conf={"tables": ["orders"]}))
    assert [one.state for one in applied] == ["success", "success"], applied[-1].log

    found = airflow.run(file, dag="shop__why", conf={"pipeline": "orders", "key": "id=1"})
    assert found.state == "success", found.log
    answer = found.xcom("why")
    (row,) = answer["rows"]
    values = {one["column"]: one for one in row["values"]}
    assert (answer["pipeline"], answer["key"], answer["watermark"]) == ("orders", {"id": "1"}, 1)
    assert (values["v"]["value"], values["v"]["since"]["version"]) == ('"c"', 1)
    assert values["w"]["value"] == '"x"'
    # The run that the page links to.
    assert values["v"]["since"]["run_id"].startswith("shop/")
    assert "orders: id = 1 in version" in found.log
    assert found.submits == 1

    alone = airflow.run(file, dag="why_alone", conf={"key": "id=1", "columns": ["v"], "at": "0"})
    assert alone.state == "success", alone.log
    ((v,),) = [row["values"] for row in alone.xcom("why")["rows"]]
    assert v["value"] == '"a"'
    wrong = airflow.run(file, dag="why_alone", conf={"key": "ident=1"})
    assert wrong.state == "failed"
    assert wrong.xcom("why", "delta_cdc_error")["class"] == "InvalidConfiguration"
