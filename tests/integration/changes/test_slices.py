"""Slices on real tables: what is read through them is what Delta's feed and its snapshots say."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

from delta_cdc import read_changes
from delta_cdc.core.errors import ReadMethodUnavailable
from delta_cdc.core.reserved_columns import METADATA_COLUMNS, ORDER, ROW_ID
from delta_cdc.core.sql import table
from delta_cdc.core.steps import ReadRange
from delta_cdc.delta_log.file_manifests import net_bytes, write_manifests
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.spark.changes import manifests as slices
from delta_cdc.spark.changes.queries import named_in_plan
from tests.support.manifest_table import ManifestTable, bag, listed, shown
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

TRACKED = {"delta.enableRowTracking": "true", "delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
PLAIN = {"delta.enableDeletionVectors": "false"}
MAPPED = {"delta.columnMapping.mode": "name"}


@dataclass
class Source(ManifestTable):
    """A table whose rows are tracked; each read writes file manifests of its own."""

    made: int = field(default=0)

    def create(self, columns: str, *properties: dict[str, str], layout: str = "") -> None:
        super().create(columns, TRACKED, *properties, layout=layout)

    def read_range(self, start: int, end: int, method: Any, *, net: bool = False) -> ReadRange:
        log = DeltaLog(self.path)
        commits = run_sync(log.commits(range(start, end + 1)))
        times = run_sync(log.timestamps(range(start, end + 1), commits))
        told = tuple((c.version, times[c.version]) for c in commits if c.changes_data or c.version == end)
        return ReadRange(start, end, method, "", 0, net=net, timestamps=told)

    def rows(
        self, start: int, end: int, method: str, *, net: bool = False, at: int | None = None, **given: Any
    ) -> DataFrame:
        """Read change rows through a slice of their own."""
        self.made += 1
        root = str(self.manifests / str(self.made))
        read_range = self.read_range(start, end, method, net=net)
        schema = end if at is None else at
        write_manifests(DeltaLog(self.path), [read_range], root, at=schema)
        return slices.change_rows(self.spark, read_range, root, self.columns(schema), **given)

    def snapshot(self, version: int) -> DataFrame:
        return self.spark.read.format("delta").option("versionAsOf", version).load(self.path)

    # -- what must hold ---------------------------------------------------------------------------
    def agrees_with_the_feed(self, start: int, end: int) -> None:
        columns = (*self.columns(end), *METADATA_COLUMNS)
        ours, feed = self.rows(start, end, "row_tracking"), self.feed(start, end)
        assert bag(ours, columns) == bag(feed, columns)
        assert [ours.schema[name].dataType for name in columns] == [
            feed.schema[name].dataType for name in columns
        ]

    def nets_to_the_end(self, start: int, end: int, *, captures: Sequence[str] = ("row_tracking",)) -> None:
        """Between two versions: what was, without what left, with what came, is what is."""
        columns = self.columns(end)
        was, is_ = bag(self.snapshot(start - 1), columns), bag(self.snapshot(end), columns)
        for method in captures:
            rows = self.rows(start, end, method, net=True)
            told = rows.select("_change_type", ORDER, *[shown(rows, name) for name in columns]).collect()
            found = [(row[0], row[1], tuple(row)[2:]) for row in told]
            assert {order for _, order, _ in found} <= {end}
            left = Counter(plain(row) for kind, _, row in found if kind in ("delete", "update_preimage"))
            came = Counter(plain(row) for kind, _, row in found if kind in ("insert", "update_postimage"))
            assert left <= was, method
            assert was - left + came == is_, method


@pytest.fixture
def source(spark: SparkSession, tmp_path: Path) -> Source:
    return Source.below(spark, tmp_path)


# -- one table with nearly everything ---------------------------------------------------------------
@pytest.mark.slow
def test_a_partitioned_and_mapped_table_with_deletion_vectors(source: Source) -> None:
    source.create(
        "id BIGINT, `na.me` STRING, `p%` STRING, `q x` STRING",
        VECTORS,
        MAPPED,
        layout="PARTITIONED BY (`p%`, `q x`)",
    )
    source.sql(
        "INSERT INTO $T SELECT id, concat('n', id), CASE id % 4 WHEN 0 THEN 'a b%' WHEN 1 THEN NULL "
        "WHEN 2 THEN '' ELSE 'ü#?/x' END, concat('q', id % 2) FROM range(0, 20)",
        "DELETE FROM $T WHERE id = 3",
        "UPDATE $T SET `na.me` = 'x' WHERE id IN (4, 5)",
        "OPTIMIZE $T",
        "MERGE INTO $T t USING (SELECT id, 'm' n FROM range(8, 24)) s ON t.id = s.id "
        "WHEN MATCHED AND s.id % 2 = 0 THEN UPDATE SET `na.me` = n WHEN MATCHED THEN DELETE "
        "WHEN NOT MATCHED THEN INSERT (id, `na.me`, `p%`, `q x`) VALUES (s.id, n, 'neu', 'q0')",
        "RESTORE $T TO VERSION AS OF 2",
    )
    source.agrees_with_the_feed(1, 5)
    source.nets_to_the_end(3, 6, captures=("row_tracking", "snapshot_diff"))
    rows = source.rows(6, 6, "row_tracking", net=True, tracking=(ROW_ID,))
    found = rows.select(*METADATA_COLUMNS[:2], ROW_ID).collect()
    # RESTORE brings rows back under their ids, and with them commits of long ago.
    kinds = Counter(row[0] for row in found)
    assert kinds == Counter(insert=6, delete=4, update_preimage=8, update_postimage=8)
    assert {row[1] for row in found} == {6}
    assert len({row[2] for row in found}) == 18
    _refuses_shared_row_ids(source)


def _refuses_shared_row_ids(source: Source) -> None:
    """As of a table whose ids are broken: here of its slice, in which two files get the ids of one."""
    root = source.manifests / "broken"
    read_range = source.read_range(6, 6, "row_tracking")
    write_manifests(DeltaLog(source.path), [read_range], str(root), at=6)
    (file,) = root.glob("*/_delta_log/*.json")
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    for line in lines:
        if "add" in line:
            line["add"]["baseRowId"] = 0
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = slices.change_rows(source.spark, read_range, str(root), ("id",))
    with pytest.raises(PySparkException) as raised:
        rows.collect()
    named = named_in_plan(raised.value)
    assert isinstance(named, ReadMethodUnavailable)
    assert named.message.startswith("Versions 6-6 cannot be read by row_tracking: the row id 0 stands for")


# -- shuffles -------------------------------------------------------------------------------------
#: Query, read method, keys -> shuffles. Without keys, a net query goes by row ids.
SHUFFLES: dict[tuple[str, str, tuple[str, ...]], int] = {
    ("full_delta", "change_files", ()): 0,
    ("append_only", "change_files", ()): 0,
    ("full_delta", "row_tracking", ()): 1,
    ("append_only", "row_tracking", ()): 1,
    ("min_delta", "row_tracking", ()): 1,
    **{
        (query, method, ("id",)): 1
        for query in ("min_delta", "upsert")
        for method in ("change_files", "snapshot_diff")
    },
    # Rows are matched by their ids, and then by the keys.
    **{(query, "row_tracking", ("id",)): 2 for query in ("min_delta", "upsert")},
}


@pytest.mark.slow
def test_how_often_a_query_shuffles(source: Source) -> None:
    source.create("id INT, v STRING")
    source.sql(
        "INSERT INTO $T VALUES (1, 'a'), (2, 'b'), (3, 'c')",
        "UPDATE $T SET v = 'x' WHERE id = 1",
        "DELETE FROM $T WHERE id = 2",
    )
    for (query, method, keys), count in SHUFFLES.items():
        found = read_changes(
            source.spark, source.path, starting_version=2, query=query, method=method, keys=keys
        )
        plan = found._jdf.queryExecution().executedPlan().toString()
        assert plan.count("Exchange ") == count, (query, method, keys, plan)
        if query == "min_delta":
            changed = [(row["id"], row["v"], row["_change_type"]) for row in found.collect()]
            assert sorted(changed) == [
                (1, "a", "update_preimage"),
                (1, "x", "update_postimage"),
                (2, "b", "delete"),
            ]


# -- times ----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_commit_timestamps_are_those_of_the_feed(source: Source) -> None:
    source.create("id BIGINT", PLAIN)
    source.sql(*["INSERT INTO $T VALUES (1)"] * 3)
    for version, seconds in enumerate((50, 60, 10, 10)):
        file = Path(source.path, "_delta_log", f"{version:020d}.json")
        os.utime(file, (1_800_000_000 + seconds, 1_800_000_000 + seconds))
    source.sql(
        "ALTER TABLE $T SET TBLPROPERTIES ('delta.enableInCommitTimestamps' = 'true')",
        "INSERT INTO $T VALUES (2)",
    )
    source.agrees_with_the_feed(1, 5)
    source.agrees_with_the_feed(3, 3)


# -- other kinds of tables ------------------------------------------------------------------------
EVERYTHING = (
    "id BIGINT, v INT, m MAP<STRING, INT>, s STRUCT<`a.b`: INT, c: ARRAY<STRUCT<d: DOUBLE>>>, "
    "t TIMESTAMP, n TIMESTAMP_NTZ, b BINARY, d DECIMAL(20, 3), g BIGINT GENERATED ALWAYS AS (id * 2), "
    "x VARIANT"
)
ROWS = (
    "id, CAST(id AS INT) AS v, IF(id = 3, NULL, map('k', CAST(id AS INT), 'l', NULL)) AS m, "
    "named_struct('a.b', CAST(id AS INT), 'c', array(named_struct('d', id / 3))) AS s, "
    "timestamp_micros(id * 1234567) AS t, TIMESTAMP_NTZ'1582-10-04 00:00:00' AS n, X'00ff' AS b, "
    "CAST(id AS DECIMAL(20, 3)) AS d, id * 2 AS g, parse_json(concat('{\"a\":', id, '}')) AS x"
)


@pytest.mark.slow
def test_types_widening_and_new_columns(source: Source) -> None:
    source.create(EVERYTHING, PLAIN, {"delta.enableTypeWidening": "true"})
    insert = f"INSERT INTO $T SELECT {ROWS} FROM range($R)"
    source.sql(
        insert.replace("$R", "0, 9"),
        "UPDATE $T SET v = 100 WHERE id < 3",
        "DELETE FROM $T WHERE id = 5",
        "OPTIMIZE $T",
    )
    source.agrees_with_the_feed(1, source.newest)
    source.sql(
        "ALTER TABLE $T ALTER COLUMN v TYPE BIGINT",
        "ALTER TABLE $T ADD COLUMN more STRING",
        "UPDATE $T SET v = 5000000000, more = 'm' WHERE id = 7",
    )
    source.nets_to_the_end(2, source.newest, captures=("row_tracking", "snapshot_diff"))
    # Files of before, with the columns and types of the range's end.
    old = source.rows(1, 1, "added_files", at=source.newest)
    assert (old.schema["v"].dataType.simpleString(), old.columns[-5]) == ("bigint", "more")
    assert sorted(row[0] for row in old.select("v").collect()) == list(range(9))


@pytest.mark.slow
def test_a_rename_inside_the_range(source: Source) -> None:
    source.create("id BIGINT, v STRING, gone INT", {"delta.columnMapping.mode": "id"}, VECTORS)
    source.sql(
        "INSERT INTO $T SELECT id, concat('v', id), 1 FROM range(0, 9)",
        "UPDATE $T SET v = 'x' WHERE id = 1",
        "ALTER TABLE $T RENAME COLUMN v TO `w``w`",
        "ALTER TABLE $T DROP COLUMN gone",
        "DELETE FROM $T WHERE id = 2",
        "INSERT INTO $T VALUES (20, 'new')",
    )
    found = source.rows(2, source.newest, "row_tracking")
    rows = [tuple(row) for row in found.select("id", "`w``w`", *METADATA_COLUMNS[:2]).collect()]
    assert Counter(rows) == Counter(
        [
            (1, "v1", "update_preimage", 2),
            (1, "x", "update_postimage", 2),
            (2, "v2", "delete", 5),
            (20, "new", "insert", 6),
        ]
    )
    net = source.rows(2, source.newest, "row_tracking", net=True)
    assert Counter(
        tuple(row) for row in net.select("id", "`w``w`", *METADATA_COLUMNS[:2]).collect()
    ) == Counter(
        [
            (1, "v1", "update_preimage", 2),
            (1, "x", "update_postimage", 2),
            (2, "v2", "delete", 6),
            (20, "new", "insert", 6),
        ]
    )


@pytest.mark.slow
def test_a_shallow_clone(source: Source, tmp_path: Path) -> None:
    """Its first files, and their deletion vectors, lie in another table."""
    origin = Source(source.spark, str(tmp_path / "or igin%"), tmp_path / "none")
    origin.create("id BIGINT, v STRING", VECTORS)
    origin.sql("INSERT INTO $T SELECT id, concat('v', id) FROM range(0, 9)", "DELETE FROM $T WHERE id = 1")
    source.sql(f"CREATE TABLE $T SHALLOW CLONE {table(origin.path)}")
    source.sql(
        "DELETE FROM $T WHERE id = 2",
        "UPDATE $T SET v = 'u' WHERE id IN (3, 4)",
        "INSERT INTO $T VALUES (9, 'n')",
    )
    source.agrees_with_the_feed(0, source.newest)
    source.nets_to_the_end(1, source.newest, captures=("row_tracking", "snapshot_diff"))


@pytest.mark.slow
@pytest.mark.parametrize("vectors", [PLAIN, VECTORS], ids=["files", "vectors"])
def test_files_that_are_exchanged(source: Source, vectors: dict[str, str]) -> None:
    source.create("id BIGINT, v STRING", vectors)
    source.sql(
        "INSERT INTO $T SELECT id, concat('v', id) FROM range(0, 9)",
        "INSERT INTO $T REPLACE WHERE id < 3 SELECT id, 'r' FROM range(0, 2)",
        "INSERT OVERWRITE $T SELECT id, 'o' FROM range(2, 6)",
        f"CREATE OR REPLACE TABLE $T USING delta TBLPROPERTIES ({listed(TRACKED)}) "
        "AS SELECT id, IF(id = 3, 'c', v) AS v FROM $T WHERE id <> 4",
        "UPDATE $T SET v = 'last' WHERE id = 5",
    )
    log = DeltaLog(source.path)
    commits = run_sync(log.commits(range(source.newest + 1)))
    assert all(commit.keeps_row_ids and commit.rows_identified for commit in commits)
    for end in range(2, source.newest + 1):
        source.nets_to_the_end(end, end)
    source.nets_to_the_end(2, source.newest, captures=("row_tracking", "snapshot_diff"))
    read = run_sync(net_bytes(log, commits[2:]))
    assert read is not None
    assert 0 < read <= sum(c.bytes_added + c.bytes_removed for c in commits[2:])


@pytest.mark.slow
def test_vectors_that_are_no_longer_lists(source: Source) -> None:
    """Rows of more than one container in one file, masked in runs and scattered, more than once."""
    from pyspark.sql import functions as F

    source.create("id BIGINT, v STRING", VECTORS)
    numbers = source.spark.range(0, 70_000, 1, 1).selectExpr("id", "concat('v', id) AS v")
    numbers.write.format("delta").mode("append").save(source.path)
    source.sql(
        "DELETE FROM $T WHERE id % 7 = 0",
        "DELETE FROM $T WHERE id % 1000 = 1 OR id BETWEEN 60000 AND 69000",
        "UPDATE $T SET v = 'u' WHERE id % 1000 = 2",
        "RESTORE $T TO VERSION AS OF 2",
    )

    def summed(rows: DataFrame) -> list[Any]:
        kinds = rows.groupBy(*METADATA_COLUMNS).agg(F.count("*"), F.sum("id"), F.sum(F.xxhash64("v") % 1009))
        return sorted(tuple(row) for row in kinds.collect())

    assert summed(source.rows(2, 4, "row_tracking")) == summed(source.feed(2, 4))
    # Of the file those rows are shown that are not at both ends: here, none, and there, all that came back.
    assert source.rows(3, 5, "snapshot_diff", net=True).count() == 0
    back = Counter(row[0] for row in source.rows(5, 5, "row_tracking").select("_change_type").collect())
    gone = Counter(row[0] for row in source.feed(3, 4).select("_change_type").collect())
    assert back["insert"] == gone["delete"]
    assert back["update_postimage"] == back["update_preimage"] == gone["update_preimage"]
