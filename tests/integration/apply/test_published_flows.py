"""The published examples of AUTO CDC give the published rows, from the code and from YAML."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.config import Code, load
from delta_cdc.core.sql import quote
from tests.support.published_flows import PUBLISHED, Published, arguments_of_code, arguments_of_yaml
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: A unit test compares the arguments of all variants, in Python, SQL and YAML.
_CASES = [(name, suffix) for name, example in PUBLISHED.items() for suffix in example.codes]
_QUICK = ("databricks, type 2", "py")


@pytest.mark.parametrize(("name", "suffix"), slow_but(_CASES, _QUICK))
def test_rows(spark: SparkSession, tmp_path: Path, name: str, suffix: str) -> None:
    example = PUBLISHED[name]
    source = str(tmp_path / "source")
    targets = [str(tmp_path / "from_code"), str(tmp_path / "from_yaml")]
    both = [
        arguments_of_code(example, suffix, tmp_path, source, targets[0]),
        arguments_of_yaml(example, tmp_path, source, targets[1]),
    ]
    # Some copies are of 2024.
    kept = ", ".join(
        f"'delta.{name}RetentionDuration' = 'interval 9999 days'" for name in ("log", "deletedFile")
    )
    spark.sql(f"CREATE TABLE delta.{quote(source)} ({example.ddl}) USING delta TBLPROPERTIES ({kept})")
    for at, batch in enumerate(example.batches):
        _write(spark, example, source, at, batch)
        for arguments in both:
            apply_changes(spark, **arguments)
    for target in targets:
        shown = spark.sql(f"SELECT {example.columns} FROM delta.{quote(target)}")
        assert sorted(map(tuple, shown.collect()), key=str) == sorted(example.expected, key=str), target
        columns = set(spark.read.format("delta").load(target).columns)
        assert not columns & {"operation", "op", "sequenceNum"}


def _write(
    spark: SparkSession, example: Published, source: str, at: int, rows: list[tuple[Any, ...]]
) -> None:
    """Append a batch of events; or write a copy, with its commit time."""
    mode = "overwrite" if _has_copies(example) else "append"
    spark.createDataFrame(rows, example.ddl).coalesce(1).write.format("delta").mode(mode).save(source)
    if example.committed:
        moment = datetime.fromisoformat(example.committed[at]).replace(tzinfo=UTC).timestamp()
        # The creation of the table must not be later than its first copy.
        for version, age in ((0, 60), (1, 0)) if at == 0 else ((at + 1, 0),):
            os.utime(f"{source}/_delta_log/{version:020}.json", (moment - age, moment - age))


def _has_copies(example: Published) -> bool:
    return "snapshot" in example.options


@pytest.mark.slow
def test_a_column_of_the_sequence_begins_a_version(spark: SparkSession, tmp_path: Path) -> None:
    """If the target gets it, as in AUTO CDC; and a struct orders by its fields."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    code = """
CREATE FLOW f AS AUTO CDC INTO t FROM STREAM(s) KEYS (id) APPLY AS DELETE WHEN op = 'D'
SEQUENCE BY STRUCT(day, n) COLUMNS * EXCEPT (op) STORED AS SCD TYPE 2;
"""
    spark.createDataFrame(
        [(1, "a", 1, 9, "U"), (1, "a", 2, 1, "U"), (1, "a", 2, 0, "U"), (1, None, 3, 0, "D")],
        "id INT, v STRING, day INT, n INT, op STRING",
    ).write.format("delta").save(source)
    apply_changes(spark, **_arguments(tmp_path / "f.sql", code, Code({"s": source}, {"t": target})))
    shown = spark.sql(f"SELECT v, day, n, __START_AT._2, __END_AT._1 FROM delta.{quote(target)}")
    assert sorted(map(tuple, shown.collect())) == [("a", 1, 9, 9, 2), ("a", 2, 0, 0, 2), ("a", 2, 1, 1, 3)]


@pytest.mark.slow
def test_a_change_feed_from_its_start(spark: SparkSession, tmp_path: Path) -> None:
    """As a stream that begins at version 0, the history has all states since then."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    code = f"""
import dlt
from pyspark.sql.functions import col

@dlt.view
def changes():
    return (
        spark.readStream.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
        .load("{source}").where(col("_change_type") != "update_preimage")
    )

dlt.create_streaming_table("t")
dlt.create_auto_cdc_flow(
    "t", "changes", ["id"], col("_commit_version"), apply_as_deletes=col("_change_type") == "delete",
    except_column_list=["_change_type", "_commit_version", "_commit_timestamp"], stored_as_scd_type=2,
)
"""
    spark.sql(
        f"CREATE TABLE delta.{quote(source)} (id INT, v STRING) USING delta "
        "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    )
    for statement in ("INSERT INTO {t} VALUES (1, 'a'), (2, 'b')", "UPDATE {t} SET v = 'c' WHERE id = 1",
                      "DELETE FROM {t} WHERE id = 2"):  # fmt: skip
        spark.sql(statement.format(t=f"delta.{quote(source)}"))
    apply_changes(spark, **_arguments(tmp_path / "f.py", code, Code({}, {"t": target})))
    rows = spark.read.format("delta").load(target).collect()
    assert sorted(tuple(row) for row in rows) == [(1, "a", 1, 2), (1, "c", 2, None), (2, "b", 1, 3)]


def _arguments(file: Path, code: str, given: Code) -> dict[str, Any]:
    file.write_text(code, encoding="utf-8")
    (table,) = load(file, given).tables()
    return table.arguments
