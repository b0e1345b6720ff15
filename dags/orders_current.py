"""Keep `orders_current` equal to `orders` (SCD type 1).

The sensor waits for versions beyond the watermark, which is in the target's own log. If none came within
the wait, it gives way, and the apply task publishes the watermark as it is: no Spark application, no commit.

Leave the form as it is to apply everything new, or name a range of versions. It also repairs, reloads, and
shows what a run would do.
"""

from __future__ import annotations

from airflow.sdk import DAG
from example_settings import DEFERRABLE, WAIT, table

from airflow_delta_cdc.form import run_arguments, run_params, skip_waiting
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.sensors import DeltaVersionSensor

SOURCE, TARGET = table("orders"), table("orders_current")

with DAG(
    "orders_current",
    description="orders → orders_current, SCD type 1",
    schedule=None,
    max_active_runs=1,
    params=run_params(),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    wait = DeltaVersionSensor(
        task_id="wait",
        table=SOURCE,
        pipeline="orders_current",
        target=TARGET,
        deferrable=DEFERRABLE,
        poke_interval=5,
        timeout=WAIT,
        soft_fail=True,
        pre_execute=skip_waiting,
    )
    apply = DeltaApplyChangesOperator(
        task_id="apply",
        trigger_rule="none_failed",
        pipeline="orders_current",
        source=SOURCE,
        target=TARGET,
        keys=["o_orderkey"],
        stored_as_scd_type=1,
        **run_arguments(),
    )
    wait >> apply
