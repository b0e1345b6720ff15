"""A shop's tables on object storage, followed three ways. Only the connection differs.

| DAG | `spark_conn_id` | where Spark runs |
|---|---|---|
| `shop_in_worker` | none | in Airflow's worker, a JVM per run |
| `shop_on_cluster` | `spark_cluster` | the driver in Airflow's worker, executors on the Spark workers |
| `shop_over_connect` | `spark_connect` | in the warm Spark Connect server: no JVM is started |

`shop_next_day` changes the sources. Trigger it, then the others, in any order and as often as you like.
"""

from __future__ import annotations

from airflow.sdk import DAG, task
from shop_tables import next_day, remote_session, table

from airflow_delta_cdc.form import run_arguments, run_params, skip_waiting
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.sensors import DeltaVersionSensor

#: The tables are small: Spark's and Delta's defaults would split them into hundreds of pieces.
SMALL = {"spark.sql.shuffle.partitions": "4", "spark.databricks.delta.snapshotPartitions": "2"}

with DAG(
    "shop_next_day",
    description="orders and customers, one day further",
    schedule=None,
    max_active_runs=1,
    tags=["delta-cdc", "docker"],
    doc_md=__doc__,
) as sources:

    @task
    def change_tables() -> int:
        """Change the sources as the shop does in a day."""
        spark = remote_session()
        try:
            return next_day(spark)
        finally:
            spark.stop()

    change_tables()


def follow(dag_id: str, spark_conn_id: str | None) -> DAG:
    """Return a DAG that keeps the current orders and the history of customers.

    :param spark_conn_id: the one thing that says where Spark runs
    """
    with DAG(
        dag_id,
        description=f"orders → {dag_id}/orders, customers → {dag_id}/customer_history",
        schedule=None,
        max_active_runs=1,
        params=run_params(),
        tags=["delta-cdc", "docker"],
        doc_md=__doc__,
    ) as dag:
        for source, name, how in (
            ("orders", "orders", {"stored_as_scd_type": 1}),
            ("customers", "customer_history", {"stored_as_scd_type": 2, "sequence_by": "_commit_timestamp"}),
        ):
            pipeline, target = f"{dag_id}_{name}", table(f"{dag_id}/{name}")
            wait = DeltaVersionSensor(
                task_id=f"wait_for_{source}",
                table=table(source),
                pipeline=pipeline,
                target=target,
                delta_conn_id="lake",
                deferrable=True,
                poke_interval=5,
                timeout=60,
                soft_fail=True,
                pre_execute=skip_waiting,
            )
            apply = DeltaApplyChangesOperator(
                task_id=f"apply_{name}",
                trigger_rule="none_failed",
                pipeline=pipeline,
                source=table(source),
                target=target,
                keys=["id"],
                spark_conn_id=spark_conn_id,
                delta_conn_id="lake",
                conf=SMALL,
                # One driver at a time writes each target: max_active_runs=1, and no other DAG writes it.
                single_driver=True,
                **how,
                **run_arguments(),
            )
            wait >> apply
    return dag


in_worker = follow("shop_in_worker", None)
on_cluster = follow("shop_on_cluster", "spark_cluster")
over_connect = follow("shop_over_connect", "spark_connect")
