"""How little is read and written: by the MERGE's own metrics, by files that are not there, by plans."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.apply import batches, from_feed, layout
from delta_cdc.spark.apply.merge import Merge
from delta_cdc.spark.apply.rows import Shape
from tests.support.engine import Flow, actions, commit_info, newest, picked, session_like
from tests.support.event_flow import LogFlow
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPE_1, TYPE_2 = ApplyOptions(keys=("id",)), ApplyOptions(keys=("id",), stored_as_scd_type=2)
ROWS = 30_000
FEED = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}


def metrics(table: str) -> dict[str, int]:
    """Return what the newest commit says of itself."""
    found = commit_info(table, newest(table))["operationMetrics"]
    return {name: int(value) for name, value in found.items()}


def take_files(table: str) -> None:
    """Take away the files with rows: whoever opens one fails."""
    for file in Path(table).rglob("*.parquet"):
        if "_delta_log" not in file.parts:
            file.unlink()


@pytest.fixture(scope="module")
def large(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A source of which version 1 changes 40 of 100 rows, and version 2 changes 80."""
    path = str(tmp_path_factory.mktemp("physical") / "large")
    frame = spark.range(ROWS).selectExpr(
        "id", "id % 100 AS part", "0 AS v", "sha2(CAST(id AS STRING), 256) AS wide"
    )
    frame.write.format("delta").options(**FEED).save(path)
    spark.sql(f"UPDATE delta.`{path}` SET v = 1 WHERE part < 40")
    spark.sql(f"UPDATE delta.`{path}` SET v = 2 WHERE part < 80")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("options", [TYPE_1, TYPE_2], ids=["type 1", "type 2"])
def test_a_large_share_of_a_target_is_written_anew(
    spark: SparkSession, tmp_path: Path, large: str, options: ApplyOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Deletion vectors over most of a file cost every reader more than the file written anew once."""
    monkeypatch.setattr(layout, "_WHOLE_FILES_TARGET", 0)
    flow = Flow(spark, large, str(tmp_path / "target"), options).through(0, 1)
    found = metrics(flow.target)
    assert (found["numTargetDeletionVectorsAdded"] > 0, found["numTargetFilesRemoved"]) == (True, 0)
    assert flow.apply(2).status == "committed"
    found = metrics(flow.target)
    assert found["numTargetDeletionVectorsAdded"] == 0
    assert found["numTargetFilesRemoved"] > 0
    assert found["numTargetRowsUpdated"] == ROWS * 8 // 10
    assert not any("deletionVector" in one for one in picked(flow.target, newest(flow.target), "add"))


@pytest.mark.slow
def test_deletion_vectors_are_for_targets_above_a_size(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a small target, the MERGE that writes whole files is the faster one."""
    source = str(tmp_path / "source")
    spark.range(100).selectExpr("id", "0 AS v").write.format("delta").options(**FEED).save(source)
    for version in (1, 2):
        spark.sql(f"UPDATE delta.`{source}` SET v = {version} WHERE id < 3")
    flow = Flow(spark, source, str(tmp_path / "target"), TYPE_1).through(0)
    written = 0
    for version, below in ((1, 0), (2, 1)):
        # The load, and then the first MERGE, wrote all files of the target.
        size = sum(one["size"] for one in picked(flow.target, written, "add"))
        monkeypatch.setattr(layout, "_WHOLE_FILES_TARGET", size - below)
        assert flow.apply(version).status == "committed"
        assert metrics(flow.target)["numTargetDeletionVectorsAdded"] == below
        written = newest(flow.target)
    assert sorted((row["id"], row["v"]) for row in flow.rows("id < 4")) == [(0, 2), (1, 2), (2, 2), (3, 0)]


@pytest.mark.parametrize(
    ("arguments", "small", "written"),
    slow_but(
        [
            ({}, False, 2),
            ({}, True, 1),
            ({"publish_changes": True}, False, 1),
            ({"target_properties": {"delta.enableRowTracking": "true"}}, False, 1),
        ],
    ),
    ids=["no reader sees it", "a small target", "a change feed", "row tracking"],
)
def test_a_row_with_equal_values_is_written_only_where_no_reader_would_see_it(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, Any],
    small: bool,
    written: int,
) -> None:
    log = str(tmp_path / "log")
    spark.sql("SELECT 1 AS at, id, 'a' AS v FROM range(4)").write.format("delta").save(log)
    arguments = {"keys": ["id"], "sequence_by": "at", "except_column_list": ["at"], **arguments}
    flow = LogFlow(spark, log, str(tmp_path / "target"), arguments)
    flow.apply()
    events = spark.sql("SELECT 2 AS at, id, IF(id = 1, 'b', 'a') AS v FROM range(2)")
    events.write.format("delta").mode("append").save(log)
    if not small:
        monkeypatch.setattr(layout, "_WHOLE_FILES_TARGET", 0)
    flow.apply()
    assert metrics(flow.target)["numTargetRowsUpdated"] == written
    assert sorted((row["id"], row["v"]) for row in flow.rows()) == [(0, "a"), (1, "b"), (2, "a"), (3, "a")]


def test_the_extent_of_a_table_comes_from_its_log(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.range(1000).write.format("delta").options(**FEED).save(table)
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id % 10 = 0")
    take_files(table)
    rows, size = layout.extent(spark, table)
    assert rows == 900
    assert size == sum(one["size"] for one in picked(table, 0, "add"))


BOUND = 64 * 1024


@pytest.mark.slow
@pytest.mark.parametrize("options", [TYPE_1], ids=["type 1"])
def test_no_file_is_far_above_its_size(
    spark: SparkSession, tmp_path: Path, large: str, options: ApplyOptions
) -> None:
    small = replace(options, target_properties={layout.FILE_SIZE: str(BOUND)})
    flow = Flow(spark, large, str(tmp_path / "target"), small).through(0, 2)
    for version in (0, newest(flow.target)):
        sizes = [one["size"] for one in picked(flow.target, version, "add")]
        assert max(sizes) < 1.5 * BOUND, (version, sizes)
        # The source's bytes count the rows that its deletion vectors hide, so that files come out smaller.
        assert len(sizes) <= sum(sizes) / BOUND * 2.5, (version, sizes)
    with pytest.raises(InvalidConfiguration, match="'128mb' is no number of bytes"):
        layout.file_size(replace(options, target_properties={layout.FILE_SIZE: "128mb"}))


@pytest.mark.slow
@pytest.mark.parametrize("options", [TYPE_1, TYPE_2], ids=["type 1", "type 2"])
def test_a_batch_that_changes_nothing_opens_and_writes_no_file(
    spark: SparkSession, tmp_path: Path, options: ApplyOptions
) -> None:
    source = str(tmp_path / "source")
    spark.sql("SELECT 1 AS id, 'a' AS v").write.format("delta").options(**FEED).save(source)
    spark.sql(f"UPDATE delta.`{source}` SET v = v")
    flow = Flow(spark, source, str(tmp_path / "target"), options).through(0)
    take_files(flow.target)
    assert flow.apply(1).status == "committed"
    made = actions(flow.target, newest(flow.target))
    assert sorted(name for one in made for name in one) == ["commitInfo", "txn"]
    assert metrics(flow.target)["numTargetFilesAdded"] == 0


@pytest.mark.slow
def test_a_row_moves_to_the_partition_of_its_new_value(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    frame = spark.range(6).selectExpr("id", "id % 3 AS part", "'a' AS v")
    frame.write.format("delta").options(**FEED).save(source)
    spark.sql(f"UPDATE delta.`{source}` SET part = 2 WHERE id = 1")
    options = replace(TYPE_1, partition_by={"part": None})
    flow = Flow(spark, source, str(tmp_path / "target"), options).through(0, 1)
    found = spark.read.format("delta").load(flow.target).selectExpr("id", "part", "_metadata.file_path f")
    rows = sorted((row["id"], row["part"], unquote(row["f"]).split("/")[-2]) for row in found.collect())
    parts = {id_: 2 if id_ == 1 else id_ % 3 for id_ in range(6)}
    assert rows == [(id_, part, f"part={part}") for id_, part in parts.items()]
    told = metrics(flow.target)
    assert {name: told[f"numTarget{name}"] for name in ("RowsUpdated", "RowsInserted", "RowsDeleted")} == {
        "RowsUpdated": 1,
        "RowsInserted": 0,
        "RowsDeleted": 0,
    }
    assert [one["partitionValues"] for one in picked(flow.target, newest(flow.target), "remove")] == [
        {"part": "1"}
    ]


@pytest.mark.slow
@pytest.mark.parametrize("options", [TYPE_1, TYPE_2], ids=["type 1", "type 2"])
def test_the_source_is_read_once(
    spark: SparkSession,
    tmp_path: Path,
    large: str,
    monkeypatch: pytest.MonkeyPatch,
    options: ApplyOptions,
) -> None:
    """One scan makes the batch; counts, bounds and the MERGE come from what it left."""
    flow = Flow(spark, large, str(tmp_path / "target"), options).through(0)
    planned: list[DataFrame] = []
    real = batches.materialise

    def seen(rows: DataFrame, *given: Any, **more: Any) -> batches.Batch:
        planned.append(rows)
        return real(rows, *given, **more)

    monkeypatch.setattr(batches, "materialise", seen)
    step = flow.step("apply", 1, 2)
    work = from_feed.merge(session_like(spark), flow.spec(step), step)
    assert work.merge is not None
    assert [scans(rows) for rows in planned] == [1]
    assert scans(work.merge.source) == 0


def scans(rows: DataFrame) -> int:
    """Count reads of a table in a plan."""
    plan = rows._jdf.queryExecution().analyzed().toString()
    return sum("Relation [" in line for line in plan.splitlines())


def keyed(rows: DataFrame, *partitions: str) -> Shape:
    """Return the shape of rows whose columns are all keys."""
    names = tuple(rows.columns)
    return Shape(names, names, (), partitions, rows.schema, sequence_type=None)


HALF = "TIMESTAMP_LTZ'2024-01-01 00:00:00.5000"


@pytest.mark.parametrize(
    ("kind", "values", "literals"),
    [
        ("INT", "(1),(2),(3),(7)", ["t.`k` BETWEEN 1 AND 7"]),
        ("INT", "(5),(5)", ["t.`k` = 5"]),
        ("INT", "(1),(2),(300),(9000)", ["(t.`k` BETWEEN 1 AND 2 OR t.`k` = 300 OR t.`k` = 9000)"]),
        (
            "BIGINT",
            "(-9223372036854775808),(0),(9223372036854775807)",
            ["(t.`k` = -9223372036854775808 OR t.`k` = 0 OR t.`k` = 9223372036854775807)"],
        ),
        ("STRING", "('b'),('a'),('z')", ["(t.`k` = 'a' OR t.`k` = 'b' OR t.`k` = 'z')"]),
        ("STRING", "('b'),(\"it's\"),('z')", ["t.`k` BETWEEN 'b' AND 'z'"]),
        ("DATE", "('2024-01-01'),('1999-01-01')", ["(t.`k` = DATE'1999-01-01' OR t.`k` = DATE'2024-01-01')"]),
        (
            "TIMESTAMP",
            "('2024-01-01 00:00:00.5'),('2024-01-01 00:00:00.500007')",
            [f"t.`k` BETWEEN {HALF}00Z' AND {HALF}07Z'"],
        ),
        ("TIMESTAMP_NTZ", "('2024-01-01'),('2024-01-01')", ["t.`k` = TIMESTAMP_NTZ'2024-01-01 00:00:00'"]),
        ("DATE", "('2024-01-01'),('2024-01-02')", ["t.`k` BETWEEN DATE'2024-01-01' AND DATE'2024-01-02'"]),
        ("DATE", "('2024-01-01'),('+10000-01-01')", []),
        ("DECIMAL(9,2)", "(1.5),(900)", ["(t.`k` = 1.50BD OR t.`k` = 900.00BD)"]),
        ("DOUBLE", "(1.5),(900)", []),
        ("INT", "(1) LIMIT 0", ["false"]),
    ],
)
def test_what_a_batch_says_of_its_keys(
    spark: SparkSession, kind: str, values: str, literals: list[str]
) -> None:
    from pyspark.sql import functions as F

    given, _, limit = values.partition(" LIMIT ")
    rows = spark.sql(f"SELECT CAST(k AS {kind}) AS k FROM VALUES {given} t(k) LIMIT {limit or 9}")
    found = batches.pruning(batches.materialise(rows, keyed(rows), {batches.MERGED: F.count("*")}))
    assert [_sorted(text) for text in found] == literals


def test_a_small_batch_goes_to_the_rows_of_the_target(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark trusts no size of a checkpoint: left alone, it shuffles all keys of the target to meet few."""
    monkeypatch.setattr(layout, "_MANY_ROWS", 10**9)
    session = spark.newSession()
    session.conf.set("spark.sql.autoBroadcastJoinThreshold", "-1")
    merge = Merge("t", session.range(10), ("s.id = t.id",), ())
    context: Any = SimpleNamespace(session=session, options=TYPE_1, spec=SimpleNamespace(target_bytes=None))
    cases = (
        (layout.MOST_SENT, 1024, True),
        (layout.MOST_SENT + 1, 1024, False),
        (10, 1024**3, False),
        (10, None, False),
    )
    for changed, size, sent in cases:
        found = layout.tuned(context, merge, changed=changed, rewritten=0, size=size)
        plan = found.source.join(session.range(1000), "id")._jdf.queryExecution().sparkPlan().toString()
        assert ("BroadcastHashJoin" in plan, "SortMergeJoin" in plan) == (sent, not sent), plan


def _sorted(condition: str) -> str:
    """Distinct values come in no order."""
    parts = condition.strip("()").split(" OR ")
    return (
        condition if "BETWEEN" in condition or len(parts) == 1 else f"({' OR '.join(sorted(parts, key=_at))})"
    )


def _at(part: str) -> tuple[float, str]:
    text = part.split(" = ")[1].removesuffix("BD")
    return (float(text), "") if text.lstrip("-").replace(".", "").isdigit() else (0.0, text)


def test_many_keys_that_lie_apart_become_few_ranges(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    heaps = spark.range(3000).selectExpr("(id % 30) * 1000000 + id AS k")
    found = batches.materialise(heaps, keyed(heaps), {batches.MERGED: F.count("*")}).ranges["k"]
    assert len(found) == batches.MOST_RANGES
    inside = " OR ".join(f"k BETWEEN {low} AND {high}" for low, high in found)
    assert heaps.where(inside).count() == 3000
    # Fifteen of the 29 gaps are left out.
    assert sum(int(high) - int(low) for low, high in found) < 16_000_000


@pytest.mark.parametrize(("partitions", "listed"), [(100, True), (101, False)])
def test_a_key_that_partitions_the_target_is_listed(
    spark: SparkSession, partitions: int, listed: bool
) -> None:
    from pyspark.sql import functions as F

    rows = spark.range(2 * partitions).selectExpr("id", f"concat('p', id % {partitions}) AS part")
    made = batches.materialise(rows, keyed(rows, "part"), {batches.MERGED: F.count("*")})
    values = sorted(f"'p{n}'" for n in range(partitions))
    assert made.ranges.get("part", ()) == (tuple((v, v) for v in values) if listed else ())
    assert made.bounds["part"] == (values[0], values[-1])


@pytest.mark.parametrize(("left_out", "kept"), [(1500, True), (500, False)])
def test_ranges_that_skip_little_are_left_out(spark: SparkSession, left_out: int, kept: bool) -> None:
    """Spark would check each of them for every row of the target."""
    from pyspark.sql import functions as F

    rows = spark.range(500).selectExpr(f"id * 20 + IF(id < 250, 0, {left_out}) AS k")
    found = batches.materialise(rows, keyed(rows), {batches.MERGED: F.count("*")}).ranges
    assert bool(found.get("k")) == kept


def test_the_ranges_of_all_keys_take_one_job(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    rows = spark.range(40).selectExpr(
        "id * id AS a", "-id * id * id AS b", "date_add(DATE'2020-01-01', CAST(id % 2 AS INT) * 700) AS d"
    )
    jobs = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    before = jobs()
    made = batches.materialise(rows, keyed(rows), {batches.MERGED: F.count("*")})
    # The scan that makes the batch shuffles its totals, which adaptive execution runs as a job of its own.
    assert jobs() - before == 4
    assert {key: len(ranges) for key, ranges in made.ranges.items()} == {"a": 16, "b": 16, "d": 2}
