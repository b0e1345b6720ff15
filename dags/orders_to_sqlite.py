"""Keep a copy of `orders` in a SQLite file: a custom sink, in one task.

`load` gets what changed since the last batch that it took to its end, as a DataFrame. When it returns, the
batch's watermark is committed in staging. When it raises, nothing is, and the next try gets the same batch:
so a batch may come twice, and taking it in by key makes twice as good as once.

With nothing new the task is skipped, and no Spark is started.
"""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task
from example_settings import table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SOURCE, STAGING, FILE = table("orders"), table("orders_for_sqlite"), table("orders.sqlite")

with DAG(
    "orders_to_sqlite",
    description="orders → a SQLite file, by a custom function",
    schedule=None,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:

    @task.delta_changes(
        pipeline="orders_to_sqlite", table=SOURCE, staging=STAGING, query="min_delta", keys=["o_orderkey"]
    )
    def load(changes: DataFrame, batch: dict[str, Any] | None = None) -> dict[str, int]:
        columns = ("o_orderkey", "o_orderstatus", "o_totalprice")
        gone, came = [], []
        for row in changes.select(*columns, "_change_type").toLocalIterator():
            if row["_change_type"] in ("delete", "update_preimage"):
                gone.append((row["o_orderkey"],))
            else:
                came.append((row["o_orderkey"], row["o_orderstatus"], float(row["o_totalprice"])))
        with sqlite3.connect(FILE) as db:
            db.execute("CREATE TABLE IF NOT EXISTS orders (o_orderkey INTEGER PRIMARY KEY, status, price)")
            db.executemany("DELETE FROM orders WHERE o_orderkey = ?", gone)
            db.executemany("INSERT OR REPLACE INTO orders VALUES (?, ?, ?)", came)
        db.close()
        return {"up_to_version": batch["ending_version"] if batch else -1, "rows": len(gone) + len(came)}

    load()
