"""Keep the history of a stock list that arrives as a whole, once a day, without a word about what changed.

`write_copy` plays its owner: each run overwrites the table with the next day's list. `apply` compares one
copy with the next, by key: what is new, what is different, and what is missing, which is a delete. What a
copy repeats makes no new version, although every row was written again.
"""

from __future__ import annotations

import random

from airflow.sdk import DAG, task
from example_settings import table

from airflow_delta_cdc.form import run_arguments, run_params
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

COPY, TARGET = table("stock"), table("stock_history")

COLUMNS = "article BIGINT, shelf STRING, pieces INT"
ARTICLES = 50


def stock(day: int) -> list[tuple[int, str, int]]:
    """Return the whole list of one day, always the same one."""
    rows = []
    for article in range(ARTICLES):
        # An article is as it was on the day of its last delivery, or not on the list.
        delivered = max(d for d in range(day + 1) if d == 0 or random.Random(f"{article} {d}").random() < 0.2)
        chance = random.Random(f"{article} delivered {delivered}")
        if chance.random() < 0.9:
            rows.append((article, chance.choice("ABC"), chance.randrange(1, 100)))
    return rows


with DAG(
    "daily_snapshots",
    description="stock, a full copy a day → stock_history, SCD type 2",
    schedule=None,
    max_active_runs=1,
    params=run_params(),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def write_copy() -> int:
        """Overwrite the table with the next day's list; return its number of rows."""
        from delta_cdc import get_session

        spark = get_session("stock", cores=1, quick_start=True)
        try:
            spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{COPY}` ({COLUMNS}) USING delta")
            # Version 0 is the empty table, and each day makes one more.
            day = spark.sql(f"DESCRIBE HISTORY delta.`{COPY}` LIMIT 1").collect()[0]["version"]
            rows = stock(day)
            spark.createDataFrame(rows, COLUMNS).write.format("delta").mode("overwrite").save(COPY)
        finally:
            spark.stop()
        return len(rows)

    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="stock_history",
        source=COPY,
        target=TARGET,
        source_kind="snapshot",
        keys=["article"],
        stored_as_scd_type=2,
        sequence_by="_commit_timestamp",
        **run_arguments(),
    )
    write_copy() >> apply
