"""Bronze, silver, gold: three hops, each in a DAG of its own, each woken by the one before.

| DAG | woken by | does |
|---|---|---|
| `medallion_bronze` | a watcher on `orders` | copies `orders` (SCD type 1) |
| `medallion_silver` | an apply into `bronze_orders` | keeps orders with a price, and two columns |
| `medallion_gold` | an apply into `silver_orders` | keeps every price an order ever had (SCD type 2) |

An apply announces its target's asset only when it applied something, so a run with nothing to do wakes
no DAG. A hop that others read from publishes its changes (`publish_changes=True`): its target has a change
data feed.

The DAGs are paused at first: unpause all three.
"""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset
from example_settings import table

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from airflow_delta_cdc.triggers import watched_asset

ORDERS = table("orders")
BRONZE, SILVER, GOLD = table("bronze_orders"), table("silver_orders"), table("gold_orders")


def hop(name: str, description: str, *, woken_by: Asset, source: str, target: str, **how: Any) -> DAG:
    """Return the DAG of one hop."""
    with DAG(
        f"medallion_{name}",
        description=description,
        schedule=[woken_by],
        max_active_runs=1,
        is_paused_upon_creation=True,
        tags=["delta-cdc", "example"],
        doc_md=__doc__,
    ) as dag:
        DeltaApplyChangesOperator(
            task_id="apply",
            pipeline=f"medallion_{name}",
            source=source,
            target=target,
            keys=["o_orderkey"],
            **how,
        )
    return dag


bronze = hop(
    "bronze",
    "orders → bronze_orders",
    woken_by=watched_asset(ORDERS, poll_interval=5),
    source=ORDERS,
    target=BRONZE,
    publish_changes=True,
)
silver = hop(
    "silver",
    "bronze_orders → silver_orders",
    woken_by=delta_asset(BRONZE),
    source=BRONZE,
    target=SILVER,
    where="o_totalprice IS NOT NULL",
    select=["o_orderkey", "o_totalprice"],
    publish_changes=True,
)
gold = hop(
    "gold",
    "silver_orders → gold_orders, SCD type 2",
    woken_by=delta_asset(SILVER),
    source=SILVER,
    target=GOLD,
    stored_as_scd_type=2,
    sequence_by="_commit_timestamp",
)
