"""Keep six tables of a shop by a file: feeds, files, an append-only table and full copies in one group.

`configured_group.yaml` says which tables there are, and what becomes of each. `build_dags` makes two DAGs of
it: `configured_group`, every 15 minutes, and `configured_group__backfill` for long runs by hand. In each,
`detect_changes` finds out without Spark which tables have work, `run_spark` does it in one application,
`apply` shows each table under its own name, and `publish` tells which versions of all targets go together.

The DAG `configured_group_sources` plays the shop: each run changes the sources a little, always in the same
way. Run it once before the group runs first.
"""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, task
from example_settings import TABLES, table

from airflow_delta_cdc.dags import build_dags

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# The file names its tables by this variable.
os.environ.setdefault("DELTA_CDC_EXAMPLE_TABLES", TABLES)

_FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
_TABLES = {
    "shop_orders": f"id BIGINT, customer BIGINT, state STRING) USING delta {_FEED}",
    "shop_clicks": "page STRING, visitor BIGINT, day BIGINT) USING delta",
    "shop_stock": "id BIGINT, shelf STRING, pieces BIGINT) USING delta",
}


def orders(day: int) -> list[tuple[int, int, str]]:
    """Return all orders as they are on one day: some come, some change, some go."""
    found = []
    for number in range(10 * (day + 1)):
        chance = random.Random(f"order {number}")
        age = day - number // 10
        if age < chance.randrange(2, 6):
            states = ["open", *random.Random(f"states {number}").choices(["paid", "sent", "back"], k=5)]
            found.append((number, chance.randrange(20), states[age]))
    return found


def customers(day: int) -> list[dict[str, Any]]:
    """Return what changed about customers on one day, in the order in which it did."""
    chance = random.Random(f"customers {day}")
    made: list[dict[str, Any]] = []
    for position in range(8):
        head = {"op": chance.choice("IUUD"), "id": chance.randrange(12), "lsn": day * 100 + position}
        made.append(head if head["op"] == "D" else {**head, "name": f"customer {head['lsn']}"})
    return made


def clicks(day: int) -> list[tuple[str, int, int]]:
    """Return the clicks of one day."""
    chance = random.Random(f"clicks {day}")
    return [(chance.choice(["home", "cart", "health"]), chance.randrange(50), day) for _ in range(20)]


def stock(day: int) -> list[tuple[int, str, int]]:
    """Return the whole stock list of one day."""
    chance = random.Random(f"stock {day}")
    return [
        (article, "ABC"[article % 3], article * 3 + (day + article) % 2)
        for article in range(15)
        if chance.random() < 0.9
    ]


def write(spark: SparkSession) -> int:
    """Bring the sources to their next day; return its number."""
    for name, columns in _TABLES.items():
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{table(name)}` ({columns}")
    landing = Path(table("landing/shop_customers"))
    landing.mkdir(parents=True, exist_ok=True)
    day = len(list(landing.glob("*.json")))
    spark.createDataFrame(orders(day), "id BIGINT, customer BIGINT, state STRING").createOrReplaceTempView(
        "now"
    )
    spark.sql(
        f"MERGE INTO delta.`{table('shop_orders')}` AS t USING now ON t.id = now.id "
        "WHEN MATCHED AND t.state <> now.state THEN UPDATE SET * "
        "WHEN NOT MATCHED THEN INSERT * WHEN NOT MATCHED BY SOURCE THEN DELETE"
    )
    visits = spark.createDataFrame(clicks(day), "page STRING, visitor BIGINT, day BIGINT")
    visits.write.format("delta").mode("append").save(table("shop_clicks"))
    copy = spark.createDataFrame(stock(day), "id BIGINT, shelf STRING, pieces BIGINT")
    copy.write.format("delta").mode("overwrite").save(table("shop_stock"))
    # The last one: it counts the days.
    lines = "".join(f"{json.dumps(line)}\n" for line in customers(day))
    (landing / f"{day:05}.json").write_text(lines, encoding="utf-8")
    return day


with DAG(
    "configured_group_sources",
    description="a shop's tables and files, one day further with each run",
    schedule=None,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as sources:

    @task
    def next_day() -> int:
        """Change the sources as the shop does in a day."""
        from delta_cdc import get_session

        spark = get_session("shop", cores=1, quick_start=True)
        try:
            return write(spark)
        finally:
            spark.stop()

    next_day()

dags = {sources.dag_id: sources, **build_dags("configured_group.yaml")}
