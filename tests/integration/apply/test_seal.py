"""One step is one sealed commit: compare-and-swap, conflicts, stale plans, crashes."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from delta_cdc import apply_changes, job
from delta_cdc.core import failpoints
from delta_cdc.core.errors import ConfigurationDrift
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import step_fingerprint
from tests.support.engine import (
    FIRST_SEAL,
    Flow,
    commit_info,
    metadata,
    newest,
    newest_seal,
    picked,
    seal_of,
    versions,
)
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

OPTIONS = {
    "type 1": ApplyOptions(keys=("id",)),
    "type 2": ApplyOptions(keys=("id",), stored_as_scd_type=2),
    "append": ApplyOptions(insert_only=True),
}
SEAL_CONFS = (
    "spark.databricks.delta.write.txnAppId",
    "spark.databricks.delta.write.txnVersion",
    "spark.databricks.delta.commitInfo.userMetadata",
)


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("seal") / "source")
    frame = spark.sql("SELECT cast(id AS int) id, 'a' v FROM range(4)")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (4, 'new')")
    spark.sql(f"INSERT INTO delta.`{path}` VALUES (5, 'newer')")
    return path


@pytest.fixture(scope="module")
def _applied(spark: SparkSession, source: str, tmp_path_factory: pytest.TempPathFactory) -> Flow:
    target = str(tmp_path_factory.mktemp("applied") / "target")
    return Flow(spark, source, target, OPTIONS["type 1"]).through(0, 1)


@pytest.fixture
def applied(_applied: Flow, tmp_path: Path) -> Flow:
    """Return a flow whose target holds versions 0 and 1 of its source, which has one more."""
    return _applied.copied(tmp_path)


def at(point: str, action: Callable[[], object]) -> Callable[[], None]:
    """Do something once, when the job comes to a point; returns what takes the hook out again."""
    pending = [action]

    def hook(reached: str) -> None:
        if reached == point and pending:
            pending.pop()()

    return failpoints.install(hook)


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIONS)
def test_a_known_seal_is_skipped_and_writes_nothing(
    spark: SparkSession, tmp_path: Path, source: str, name: str
) -> None:
    flow = Flow(spark, source, str(tmp_path / "target"), OPTIONS[name])
    empty = str(tmp_path / "target")
    columns = "id INT, v STRING" + (", __START_AT BIGINT, __END_AT BIGINT" if name == "type 2" else "")
    spark.sql(f"CREATE TABLE delta.`{empty}` ({columns}) USING delta")
    flow.through(0)
    assert newest_seal(flow.target) == seal_of(flow.target, 1)
    before = versions(flow.target)
    for number in (FIRST_SEAL, FIRST_SEAL - 1):
        assert flow.apply(1, seal_number=number).status == "skipped"
        assert flow.load(0, seal_number=number).status == "skipped"
    assert versions(flow.target) == before
    assert flow.apply(1).status == "committed"


@pytest.mark.parametrize("name", slow_but(OPTIONS, "type 2"))
def test_a_load_is_one_commit_and_names_its_work(
    spark: SparkSession, tmp_path: Path, source: str, name: str
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "part-00000-left-over.snappy.parquet").write_bytes(b"of a crash")
    flow = Flow(spark, source, str(target), OPTIONS[name])
    step = flow.step("load", 0, 0)
    assert flow.run(step).status == "committed"
    seal = seal_of(flow.target, 0)
    assert seal is not None
    assert (seal.number, seal.watermark.version, seal.state.applied_from) == (FIRST_SEAL, 0, 0)
    assert seal.step.fingerprint == step_fingerprint(flow.spec(step), step.seal_number)
    assert seal.state.highest_sequence == ("0" if name == "type 2" else None)
    assert picked(flow.target, 0, "add")
    assert metadata(flow.target, 0)["configuration"]["delta.enableDeletionVectors"] == "true"
    assert len(flow.rows()) == 4
    # the ALTER that declares the clustering carries no seal, and nothing leaks into the shared session
    assert versions(flow.target) == ([0] if name == "append" else [0, 1])
    assert "userMetadata" not in commit_info(flow.target, newest(flow.target)) or name == "append"
    assert [spark.conf.get(conf, None) for conf in SEAL_CONFS] == [None] * 3
    before = newest(flow.target)
    assert flow.apply(2).status == "committed"
    assert versions(flow.target)[-1] == before + 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statement", "status"),
    [
        ("RESTORE TABLE {} TO VERSION AS OF 0", "stale"),
        ("INSERT OVERWRITE {} SELECT 9, 'z'", "stale"),
        ("TRUNCATE TABLE {}", "stale"),
        ("UPDATE {} SET v = 'by hand' WHERE id = 3", "committed"),
        ("INSERT INTO {} REPLACE WHERE id = 3 SELECT 3, 'by hand'", "committed"),
        ("OPTIMIZE {}", "committed"),
    ],
)
def test_a_target_that_changes_after_planning(
    spark: SparkSession, applied: Flow, statement: str, status: str
) -> None:
    flow = applied
    remove = at("planned", lambda: spark.sql(statement.format(f"delta.`{flow.target}`")))
    sealed = newest_seal(flow.target)
    try:
        result = flow.apply(2)
    finally:
        remove()
    assert result.status == status, result
    if status == "stale":
        assert newest_seal(flow.target) == sealed
        assert "since planning" in result.message or "replaced" in result.message


def test_a_target_that_is_another_table_after_planning(spark: SparkSession, applied: Flow) -> None:
    """The new table's newest version has the number of the one that was planned on."""
    flow = applied
    planned_on = newest(flow.target)

    def remake() -> None:
        shutil.rmtree(flow.target)
        for _ in range(planned_on + 1):
            spark.sql("SELECT 9 AS id, 'z' AS v").write.format("delta").mode("append").save(flow.target)

    remove = at("planned", remake)
    try:
        result = flow.apply(2)
    finally:
        remove()
    assert (result.status, "table id" in result.message) == ("stale", True), result
    assert newest_seal(flow.target) is None


@pytest.mark.slow
def test_two_loads_race_for_one_target(spark: SparkSession, tmp_path: Path, source: str) -> None:
    """The second plans while the first writes; both saw no table."""
    one, two = (Flow(spark, source, str(tmp_path / "target"), OPTIONS["type 1"], name) for name in "ab")
    remove = at("before_commit", lambda: threads_done(lambda: two.load(0)))
    try:
        assert one.load(0).status == "conflict"
    finally:
        remove()
    assert two.results[0].status == "committed"
    assert len(two.rows()) == 4


def threads_done(work: Callable[[], object]) -> None:
    """Run work in a thread of its own, to its end."""
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


@pytest.mark.slow
def test_a_range_without_effect_moves_the_watermark_and_rewrites_no_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT cast(id AS int) id, 'a' v FROM range(4)")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    spark.sql(f"UPDATE delta.`{source}` SET v = v")
    flow = Flow(spark, source, str(tmp_path / "target"), OPTIONS["type 2"]).through(0, 1)
    seal = seal_of(flow.target, newest(flow.target))
    assert seal is not None
    assert seal.watermark.version == 1
    assert not picked(flow.target, newest(flow.target), "add")
    assert not picked(flow.target, newest(flow.target), "remove")


def test_a_crash_between_load_and_clustering_heals(spark: SparkSession, tmp_path: Path, source: str) -> None:
    flow = Flow(spark, source, str(tmp_path / "target"), OPTIONS["type 1"])

    def die() -> None:
        raise KeyboardInterrupt

    remove = at("committed", die)
    try:
        with pytest.raises(KeyboardInterrupt):
            flow.load(0)
    finally:
        remove()
    assert versions(flow.target) == [0]
    flow.apply(1)
    detail = spark.sql(f"DESCRIBE DETAIL delta.`{flow.target}`").collect()[0]
    assert detail["clusteringColumns"] == ["id"]


@pytest.mark.slow
def test_a_merge_looks_only_at_files_in_the_bounds_of_its_keys(spark: SparkSession, tmp_path: Path) -> None:
    """Also where the keys lie far apart: files between them are left alone."""
    source = str(tmp_path / "source")
    frame = spark.range(0, 600, 1, 4).selectExpr("cast(id AS int) id", "'a' v")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    spark.sql(f"UPDATE delta.`{source}` SET v = 'b' WHERE id BETWEEN 120 AND 130 OR id = 410")
    flow = Flow(spark, source, str(tmp_path / "target"), OPTIONS["type 1"])
    for version, low in enumerate(range(0, 600, 100)):
        part = spark.read.format("delta").option("versionAsOf", 0).load(source)
        part.where(f"id >= {low} AND id < {low + 100}").coalesce(1).write.format("delta").mode("append").save(
            flow.target
        )
        assert newest(flow.target) == version
    for version in (0, 2, 3, 5):
        for added in picked(flow.target, version, "add"):
            # A MERGE that opens one of these files fails.
            (Path(flow.target) / unquote(added["path"])).unlink()
    # A MERGE into a small target does not look for ranges.
    spec = replace(flow.spec(flow.step("apply", 1, 1)), target_bytes=1 << 30)
    assert job.run(spark, spec).status == "committed"
    assert int(commit_info(flow.target, 6)["operationMetrics"]["numTargetRowsUpdated"]) == 12


@pytest.mark.parametrize("name", slow_but(OPTIONS, "type 1"))
def test_a_source_made_anew_after_planning(spark: SparkSession, tmp_path: Path, name: str) -> None:
    source = str(tmp_path / "source")

    def make(value: str) -> None:
        frame = spark.sql(f"SELECT 1 AS id, '{value}' AS v")
        frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
        spark.sql(f"INSERT INTO delta.`{source}` VALUES (2, '{value}')")

    def replaced(point: str) -> None:
        if point == "started":
            shutil.rmtree(source)
            make("of another table")

    make("a")
    flow = Flow(spark, source, str(tmp_path / "target"), OPTIONS[name]).through(0)
    step = flow.step("apply", 1, 1)
    spec = flow.spec(step)
    remove = failpoints.install(replaced)
    try:
        result = job.run(spark, spec)
    finally:
        remove()
    assert (result.status, "was replaced" in result.message) == ("stale", True)
    assert newest_seal(flow.target).watermark.version == 0  # type: ignore[union-attr]


@pytest.mark.slow
def test_another_spelling_of_the_same_columns_goes_on(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    """The seal tells the columns; a later run compares what the lists stand for."""
    copy, target = str(tmp_path / "source"), str(tmp_path / "target")
    shutil.copytree(source, copy)
    given: dict[str, Any] = {"pipeline": "flow", "keys": ["id"], "stored_as_scd_type": 2}
    apply = partial(apply_changes, spark, copy, target, **given)
    assert apply(ending_version=1, track_history_column_list=["v"]).applied
    sealed = newest_seal(target)
    assert sealed is not None
    assert sealed.state.configuration["source_columns"] == ["id", "v"]
    assert apply(track_history_except_column_list=["ID"]).applied
    assert not apply().applied, "by default all of them are tracked, too"
    with pytest.raises(ConfigurationDrift, match="tracked"):
        apply(track_history_except_column_list=["V"])
    spark.sql(f"ALTER TABLE delta.`{copy}` ADD COLUMNS (w STRING)")
    spark.sql(f"INSERT INTO delta.`{copy}` VALUES (6, 'newest', 'w')")
    assert apply(track_history_column_list=["v"]).applied, "the target holds no row with the new column"
    with pytest.raises(ConfigurationDrift, match="tracked"):
        apply()
