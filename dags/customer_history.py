"""Keep every version of every customer in `customer_history` (SCD type 2).

`__START_AT` and `__END_AT` hold the commit times of the source; `__END_AT` is NULL in the current version.

Leave the form as it is to apply everything new, or name a range of versions. It also repairs, reloads, and
shows what a run would do.
"""

from __future__ import annotations

from airflow.sdk import DAG
from example_settings import DEFERRABLE, WAIT, table

from airflow_delta_cdc.form import run_arguments, run_params, skip_waiting
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.sensors import DeltaVersionSensor

SOURCE, TARGET = table("customer"), table("customer_history")

with DAG(
    "customer_history",
    description="customer → customer_history, SCD type 2",
    schedule=None,
    max_active_runs=1,
    params=run_params(),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    wait = DeltaVersionSensor(
        task_id="wait",
        table=SOURCE,
        pipeline="customer_history",
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
        pipeline="customer_history",
        source=SOURCE,
        target=TARGET,
        keys=["c_custkey"],
        stored_as_scd_type=2,
        sequence_by="_commit_timestamp",
        **run_arguments(),
    )
    wait >> apply
