"""Turn the change data feed of the source tables on, and deletion vectors with it.

Run it once. Running it again changes nothing and starts no Spark application.
"""

from __future__ import annotations

from airflow.sdk import DAG
from example_settings import table

from airflow_delta_cdc.operators import DeltaEnableChangeDataFeedOperator

with DAG(
    "enable_change_data_feed",
    description="Source tables: change data feed and deletion vectors on",
    schedule=None,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    DeltaEnableChangeDataFeedOperator(
        task_id="enable", tables=[table("orders"), table("customer")], deletion_vectors=True
    )
