"""A small Spark application: run a query and, if a folder is given, a MERGE into a Delta table.

It runs alone, as a file given to ``spark-submit`` or to Python, so it imports nothing of this package. It
reads its input from a JSON file and writes its answer to another one. It records each step before it begins,
so that the last one shows how far an application came that did not end.
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
    """Run the steps that the first file requests; write the outcome to the second file."""
    request, path = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2])
    answer: dict[str, Any] = {"step": "connect"}

    def came_to(step: str) -> None:
        answer["step"] = step
        # Renamed into place, so that readers always see a whole file.
        draft = path.with_suffix(".draft")
        draft.write_text(json.dumps(answer), encoding="utf-8")
        draft.replace(path)

    came_to("connect")
    try:
        spark = _session(request)
        try:
            answer["version"] = spark.version
            came_to("query")
            answer["rows"] = spark.range(0, 1000, 1, 4).count()
            came_to("delta")
            answer["extensions"] = spark.conf.get(_EXTENSIONS, "") or ""
            if request["extension"] in answer["extensions"]:
                # Spark continues without an extension whose class is missing.
                answer["delta"] = _delta(spark, request)
            answer["feed"] = spark.conf.get(request["feed"], "") or ""
            answer["confs"] = {name: spark.conf.get(name, "") or "" for name in request["confs"]}
            came_to("python")
            answer["python"] = _python(spark)
            if request.get("folder"):
                came_to("merge")
                answer["merged"] = _merge(spark, request["folder"])
            came_to("done")
        finally:
            spark.stop()
    except Exception as error:  # noqa: BLE001 - the reader of the answer reports it
        answer["error"] = [type(error).__name__, str(error)]
        came_to(answer["step"])


def _session(request: dict[str, Any]) -> SparkSession:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder
    if not request.get("remote"):
        return builder.getOrCreate()
    spark = builder.remote(request["remote"]).create()
    # A server's defaults are for large tables: on a busy server, three rows would time out with them.
    for name in ("spark.sql.shuffle.partitions", "spark.databricks.delta.snapshotPartitions"):
        spark.conf.set(name, "2")
    return spark


def _delta(spark: SparkSession, request: dict[str, Any]) -> str | None:
    """Return the version of Delta; None if this Spark lets no query call Java."""
    try:
        return str(spark.sql(request["delta"]).collect()[0][0])
    except Exception:
        try:
            spark.sql(request["java"]).collect()
        except Exception:  # noqa: BLE001 - what every JVM has is refused, too
            return None
        raise


def _python(spark: SparkSession) -> dict[str, str]:
    """Run a function on an executor; return its Python and its pyarrow, or why it does not run."""

    def versions(batches: Any) -> Any:
        import platform

        import pyarrow as pa  # type: ignore[import-untyped]

        for _ in batches:
            found = [[platform.python_version()], [pa.__version__]]
            yield pa.RecordBatch.from_arrays([pa.array(column) for column in found], ["p", "a"])

    try:
        row = spark.range(0, 1, 1, 1).mapInArrow(versions, "p string, a string").collect()[0]
    except Exception as error:  # noqa: BLE001 - the reader of the answer reports it
        return {"name": type(error).__name__, "error": str(error)}
    return {"python": row[0], "pyarrow": row[1]}


def _merge(spark: SparkSession, folder: str) -> int:
    """Create a table, merge into it, and return the number of correct rows."""
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
