"""The sample tables: a shop's orders and customers on the store, one day further with each call."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Where the tables are.
TABLES = os.environ.get("DELTA_CDC_EXAMPLE_TABLES", "s3://lake/shop")

#: The warm server that plays the owner of the tables.
SERVER = os.environ.get("DELTA_CDC_EXAMPLE_SERVER", "sc://spark-connect:15002")

NEW_ORDERS = 1000
CUSTOMERS = 500

_FEED = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
_COLUMNS = {
    "orders": "id BIGINT, customer BIGINT, state STRING, total DECIMAL(12, 2), day INT",
    "customers": "id BIGINT, name STRING, segment STRING, day INT",
}


def table(name: str) -> str:
    """Return the URI of a table."""
    return f"{TABLES}/{name}"


def remote_session() -> SparkSession:
    """Return a session of its own on the Spark Connect server."""
    from pyspark.sql import SparkSession

    return SparkSession.builder.remote(SERVER).create()


def next_day(spark: SparkSession, *, only_first: bool = False) -> int:
    """Bring the tables to their next day, the same one on every machine; return its number.

    Orders come, get on and go; customers change their segment.

    :param only_first: do nothing if there has been a day before
    """
    for name, columns in _COLUMNS.items():
        spark.sql(f"CREATE TABLE IF NOT EXISTS delta.`{_spark(name)}` ({columns}) USING delta {_FEED}")
    orders, customers = f"delta.`{_spark('orders')}`", f"delta.`{_spark('customers')}`"
    last = spark.sql(f"SELECT max(day) AS day FROM {orders}").collect()[0]["day"]
    if only_first and last is not None:
        return int(last)
    day = 0 if last is None else int(last) + 1
    first = day * NEW_ORDERS
    spark.sql(
        f"INSERT INTO {customers} SELECT id, concat('customer ', id), "
        f"element_at(array('home', 'trade', 'web'), 1 + CAST(pmod(id, 3) AS INT)), {day} "
        f"FROM range({day * CUSTOMERS}, {(day + 1) * CUSTOMERS})"
    )
    if day > 0:
        spark.sql(
            f"UPDATE {customers} SET segment = CASE segment WHEN 'home' THEN 'web' ELSE 'home' END, "
            f"day = {day} WHERE pmod(xxhash64(id, {day}), 20) = 0"
        )
        spark.sql(
            f"UPDATE {orders} SET state = CASE state WHEN 'open' THEN 'paid' ELSE 'sent' END "
            f"WHERE pmod(xxhash64(id, {day}), 4) = 0"
        )
        spark.sql(f"DELETE FROM {orders} WHERE pmod(xxhash64(id, {day}), 50) = 1")
    # The last one: it counts the days.
    spark.sql(
        f"INSERT INTO {orders} SELECT id, pmod(xxhash64(id), {(day + 1) * CUSTOMERS}), 'open', "
        f"CAST(pmod(xxhash64(id, 'total'), 100000) / 100 AS DECIMAL(12, 2)), {day} "
        f"FROM range({first}, {first + NEW_ORDERS})"
    )
    return day


def _spark(name: str) -> str:
    return table(name).replace("s3://", "s3a://", 1)
