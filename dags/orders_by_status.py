"""Keep the totals of each status of `orders`, and compute only those that changed.

| DAG | runs | does |
|---|---|---|
| `orders_by_status` | by hand | applies `orders` to a target that is partitioned by `o_orderstatus` |
| `orders_by_status_totals` | once for each changed partition | replaces the totals of that partition |

The apply adds an event for each partition that its commit changed. An order whose status changed was in two
partitions, so the totals of both are computed again. The key of a run is `o_orderstatus=F`, or `all` if more
than 100 partitions changed. It needs Airflow 3.3, which has events of partitions that a task names.

To compute all totals, for example the first time, start `orders_by_status_totals` by hand with the partition
key `all`.
"""

from __future__ import annotations

from airflow.sdk import DAG, PartitionedAssetTimetable, task
from example_settings import table

from airflow_delta_cdc.assets import partition_predicate, partitions_asset
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

SOURCE, TARGET, TOTALS = table("orders"), table("orders_by_status"), table("orders_by_status_totals")

with DAG(
    "orders_by_status",
    description="orders → orders_by_status, SCD type 1, partitioned by o_orderstatus",
    schedule=None,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):
    DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="orders_by_status",
        source=SOURCE,
        target=TARGET,
        keys=["o_orderkey"],
        layout={"partition_by": ["o_orderstatus"]},
    )

with DAG(
    "orders_by_status_totals",
    description="orders_by_status → orders_by_status_totals, a run for each changed partition",
    schedule=PartitionedAssetTimetable(assets=partitions_asset(TARGET)),
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
):

    @task
    def totals(partition_key: str | None = None) -> list[dict[str, object]]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder, write_deltalake

        assert partition_key is not None
        rows_of_partition = partition_predicate(partition_key, "ansi")
        query = (
            "SELECT o_orderstatus, COUNT(*) AS orders, SUM(o_totalprice) AS price FROM orders "
            f"WHERE {rows_of_partition} GROUP BY o_orderstatus ORDER BY o_orderstatus"
        )
        reader = QueryBuilder().register("orders", DeltaTable(TARGET)).execute(query)
        rows = pa.table(reader.read_all())
        # Also a partition that is empty now: its totals go.
        replaced = rows_of_partition if DeltaTable.is_deltatable(TOTALS) else None
        write_deltalake(TOTALS, rows, mode="overwrite", predicate=replaced, partition_by=["o_orderstatus"])
        return rows.to_pylist()

    totals()
