"""A small Spark application: a query and, where there is a place for it, a MERGE into a Delta table.

Runs alone, as a file given to ``spark-submit`` or to Python, so it imports nothing of this package. Told by a
JSON file, it answers by another one; each step is written down before the next one begins, so that the last
one tells where an application came to that did not come to its end.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = "spark.sql.extensions"


def main() -> None:
    """Do what the file says that is named first; write what became of it into the one named second."""
    asked, answer = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    told: dict[str, Any] = {"step": "connect"}

    def came_to(step: str) -> None:
        told["step"] = step
        # Renamed into its place: who reads it in between finds a whole one.
        draft = answer.with_suffix(".draft")
        draft.write_text(json.dumps(told), encoding="utf-8")
        draft.replace(answer)

    came_to("connect")
    try:
        spark = _session(asked)
        try:
            told["version"] = spark.version
            came_to("query")
            told["rows"] = spark.range(0, 1000, 1, 4).count()
            came_to("delta")
            told["extensions"] = spark.conf.get(_EXTENSIONS, "") or ""
            if asked["extension"] in told["extensions"]:
                # Spark goes on without an extension whose class is not there.
                told["delta"] = spark.sql(asked["delta"]).collect()[0][0]
            if asked.get("folder"):
                came_to("merge")
                told["merged"] = _merge(spark, asked["folder"])
            came_to("done")
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 - whoever reads the answer tells it
        told["error"] = f"{type(error).__name__}: {error}"
        came_to(told["step"])


def _session(asked: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if not asked.get("remote"):
        return builder.getOrCreate()
    spark = builder.remote(asked["remote"]).create()
    # A server's defaults are made for large tables: on a busy one, those of three rows would run out of time.
    for name in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(name, "2")
    return spark


def _merge(spark: SparkSession, folder: str) -> int:
    """Make a table, merge into it, and return how many rows are right."""
    name = folder.replace("`", "``")
    spark.sql(f"CREATE TABLE delta.`{name}` (id BIGINT, v STRING) USING delta")
    spark.sql(f"INSERT INTO delta.`{name}` VALUES (1, 'a'), (2, 'b')")
    spark.sql(
        f"MERGE INTO delta.`{name}` t USING (SELECT * FROM VALUES (2L, 'B'), (3L, 'c') AS s(id, v)) s "
        "ON t.id = s.id WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    )
    rows = {(row["id"], row["v"]) for row in spark.sql(f"SELECT id, v FROM delta.`{name}`").collect()}
    return len(rows & {(1, "a"), (2, "B"), (3, "c")})


if __name__ == "__main__":
    main()
