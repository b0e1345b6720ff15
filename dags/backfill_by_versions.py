"""Fill a target from the past of its source, version by version, by hand.

Trigger it with the form: mode *Range*, a first and a last version of `orders`, and how many versions a
commit takes. All of them are commits of one Spark application, each with its seal, so a run that dies in
the middle goes on behind the last one when it is tried again. Naming a range that is applied already does
nothing, and the log says so; to compute it again, choose *Repair*.

The first run that names a first version loads the source as it was before that version. The form as it stands
applies what is new. `report` shows what the run has done.
"""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG, task
from example_settings import table

from airflow_delta_cdc.form import run_arguments, run_params
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.retry import DELTA_CDC_RETRY_POLICY

with DAG(
    "backfill_by_versions",
    description="orders → orders_backfilled, range by range",
    schedule=None,
    max_active_runs=1,
    params=run_params(mode="backfill"),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="orders_backfilled",
        source=table("orders"),
        target=table("orders_backfilled"),
        keys=["o_orderkey"],
        stored_as_scd_type=2,
        retries=2,
        retry_delay=timedelta(minutes=1),
        # An application that died is tried again; a named error says what to do, and is not.
        retry_policy=DELTA_CDC_RETRY_POLICY,
        **run_arguments(),
    )

    @task
    def report(done: dict[str, object]) -> None:
        """Tell what the run has done, for whoever started it."""
        first, last = done["starting_version"], done["ending_version"]
        what = f"versions {first}-{last}" if done["applied"] else "nothing"
        print(f"Applied {what}; the watermark is {done['version']}, counts: {done['counts']}")

    report(apply.output)
