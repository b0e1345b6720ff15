"""The steps of the pipeline as users write them: plain PySpark and Delta, one application for each.

``spark-submit step.py NAME FOLDER``. What was applied is remembered in a file, as others do it in a Variable.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

spark = SparkSession.builder.appName("reach").getOrCreate()
step, folder = sys.argv[1:]
source, staging, current, history = (
    f"{folder}/{name}" for name in ("source", "staging", "current", "history")
)
state = Path(folder, "state.json")


def newest() -> int:
    """Return the newest version of the source."""
    return int(spark.sql(f"DESCRIBE HISTORY delta.`{source}` LIMIT 1").collect()[0]["version"])


def enable() -> None:
    """Turn the change data feed on."""
    spark.sql(f"ALTER TABLE delta.`{source}` SET TBLPROPERTIES (delta.enableChangeDataFeed = true)")


def wait() -> None:
    """Look for a version that was not applied yet."""
    if newest() <= json.loads(state.read_text())["applied"]:
        raise SystemExit("nothing new")


def read() -> None:
    """Stage the changes since the last run."""
    told = json.loads(state.read_text())
    ending = newest()
    feed = spark.read.format("delta").option("readChangeFeed", "true")
    changes = feed.option("startingVersion", told["applied"] + 1).option("endingVersion", ending).load(source)
    latest = Window.partitionBy("id").orderBy(F.desc("_commit_version"), F.desc("_change_type"))
    net = (
        changes.where("_change_type <> 'update_preimage'")
        .withColumn("n", F.row_number().over(latest))
        .where("n = 1")
        .drop("n")
    )
    net.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(staging)
    state.write_text(json.dumps({**told, "read": ending}))


def scd1() -> None:
    """Bring the current rows up to date."""
    spark.sql(
        f"MERGE INTO delta.`{current}` t USING delta.`{staging}` s ON t.id = s.id "
        "WHEN MATCHED AND s._change_type = 'delete' THEN DELETE "
        "WHEN MATCHED THEN UPDATE SET name = s.name, amount = s.amount "
        "WHEN NOT MATCHED AND s._change_type <> 'delete' THEN "
        "INSERT (id, name, amount) VALUES (s.id, s.name, s.amount)"
    )


def scd2() -> None:
    """Close the rows that have changed and open new ones: the union with an empty merge key."""
    spark.sql(
        f"MERGE INTO delta.`{history}` t USING ("
        f"SELECT id AS merge_key, * FROM delta.`{staging}` UNION ALL "
        f"SELECT NULL AS merge_key, s.* FROM delta.`{staging}` s JOIN delta.`{history}` h "
        "ON s.id = h.id AND h.end IS NULL WHERE s._change_type <> 'delete') s "
        "ON t.id = s.merge_key AND t.end IS NULL "
        "WHEN MATCHED THEN UPDATE SET end = s._commit_version "
        "WHEN NOT MATCHED AND s._change_type <> 'delete' THEN INSERT (id, name, amount, start, end) "
        "VALUES (s.id, s.name, s.amount, s._commit_version, NULL)"
    )
    told = json.loads(state.read_text())
    state.write_text(json.dumps({"applied": told["read"]}))


{"enable": enable, "wait": wait, "read": read, "scd1": scd1, "scd2": scd2}[step]()
spark.stop()
