"""Tables of every kind: all captures tell the same, and what they tell turns one snapshot into the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import plan_changes, read_changes
from delta_cdc.core.errors import SchemaChangeInRange

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

FEED, TRACKED = "'delta.enableChangeDataFeed' = 'true'", "'delta.enableRowTracking' = 'true'"
VECTORS = "'delta.enableDeletionVectors' = 'true'"
PLAIN = "id BIGINT, name STRING, part STRING"
FIRST = "SELECT id, concat('n', id), concat('p', id % 3) FROM range(0, 12)"


@dataclass(frozen=True)
class Kind:
    """A kind of table, and what is done to it after its first rows.

    :param key: quoted
    :param layout: behind the columns of CREATE TABLE
    :param then: statements; ``{t}`` is the table, ``{first}`` its version with the first rows
    :param captures: those that are compared
    """

    then: tuple[str, ...]
    columns: str = PLAIN
    key: str = "id"
    layout: str = ""
    properties: tuple[str, ...] = (FEED, TRACKED, VECTORS)
    first: str = FIRST
    captures: tuple[str, ...] = ("change_files", "row_tracking", "snapshot_diff", "auto")
    setup: tuple[str, ...] = field(default=())


MERGED = (
    "MERGE INTO {t} t USING (SELECT 3 AS id, 'm' AS name UNION ALL SELECT 20, 'new') s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET name = s.name "
    "WHEN NOT MATCHED THEN INSERT (id, name) VALUES (s.id, s.name)"
)
REPLACED = (
    "CREATE OR REPLACE TABLE {t} USING delta TBLPROPERTIES ({properties}) AS "
    "SELECT id, IF(id = 3, 'c', name) AS name, part FROM {t} WHERE id <> 4"
)
MIXED = (
    "UPDATE {t} SET name = 'u' WHERE id IN (1, 4)",
    "DELETE FROM {t} WHERE id IN (2, 7)",
    MERGED,
    "UPDATE {t} SET id = 40 WHERE id = 5",
    "INSERT INTO {t} (id, name) VALUES (2, 'back')",
)
#: Rewrites files; not a row changes.
REWRITTEN = (
    "MERGE INTO {t} t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED AND false THEN DELETE",
    "OPTIMIZE {t} ZORDER BY (id)",
)
ODD = "`a.b` BIGINT, `na me` STRING, `per%cent` STRING, `quo'te` STRUCT<`x.y`: INT, `z z`: ARRAY<STRING>>"

KINDS: dict[str, Kind] = {
    "plain": Kind(MIXED + REWRITTEN, properties=(FEED, TRACKED)),
    "vectors": Kind(MIXED + REWRITTEN),
    "clustered": Kind((*MIXED, "OPTIMIZE {t} FULL"), layout="CLUSTER BY (id)"),
    "partitioned": Kind(
        (
            "UPDATE {t} SET part = NULL WHERE id = 1",
            "UPDATE {t} SET part = 'a b%/c=d' WHERE id IN (2, 3)",
            "DELETE FROM {t} WHERE part = 'p1'",
            "INSERT INTO {t} VALUES (50, NULL, ''), (51, 'x', NULL)",
        ),
        layout="PARTITIONED BY (part)",
    ),
    "odd names, mapped by name": Kind(
        (
            "UPDATE {t} SET `na me` = 'u' WHERE `a.b` < 3",
            "DELETE FROM {t} WHERE `a.b` = 4",
            "INSERT INTO {t} VALUES (60, 'x', 'p 9', NULL)",
        ),
        columns=ODD,
        key="`a.b`",
        layout="PARTITIONED BY (`per%cent`)",
        properties=(FEED, TRACKED, VECTORS, "'delta.columnMapping.mode' = 'name'"),
        first="SELECT id, concat('n', id), concat('p ', id % 2), "
        "named_struct('x.y', INT(id), 'z z', array('a', NULL)) FROM range(0, 8)",
    ),
    "mapped by id": Kind(
        (*MIXED, "ALTER TABLE {t} ADD COLUMN extra INT", "UPDATE {t} SET extra = 7 WHERE id = 9"),
        properties=(FEED, TRACKED, VECTORS, "'delta.columnMapping.mode' = 'id'"),
    ),
    "nested": Kind(
        (
            "UPDATE {t} SET s = named_struct('a', 9, 'm', map('k', 1)) WHERE id = 1",
            "UPDATE {t} SET s.a = NULL WHERE id = 2",
            "DELETE FROM {t} WHERE id = 3",
        ),
        columns="id BIGINT, s STRUCT<a: INT, m: MAP<STRING, INT>>, l ARRAY<STRUCT<b: STRING>>",
        first="SELECT id, named_struct('a', INT(id), 'm', map('k', INT(id), 'j', 0)), "
        "array(named_struct('b', STRING(id))) FROM range(0, 6)",
    ),
    "generated": Kind(
        (
            "UPDATE {t} SET id = id + 100 WHERE id < 3",
            "INSERT INTO {t} (id) VALUES (7)",
            "DELETE FROM {t} WHERE id = 4",
        ),
        columns="id BIGINT, twice BIGINT GENERATED ALWAYS AS (id * 2)",
        first="SELECT id, id * 2 FROM range(0, 6)",
    ),
    "overwritten and restored": Kind(
        (
            "INSERT OVERWRITE {t} SELECT id, name, IF(id = 2, 'other', part) FROM {t} WHERE id <> 3",
            "INSERT INTO {t} REPLACE WHERE part = 'p0' SELECT 0, 'zero', 'p0'",
            "UPDATE {t} SET name = 'u' WHERE id = 1",
            "RESTORE TABLE {t} TO VERSION AS OF {first}",
            "DELETE FROM {t} WHERE id = 11",
        ),
    ),
    "a column added": Kind(
        (
            "UPDATE {t} SET name = 'u' WHERE id = 1",
            "ALTER TABLE {t} ADD COLUMN extra INT",
            "INSERT INTO {t} VALUES (70, 'x', 'p', 5)",
            "UPDATE {t} SET extra = 1 WHERE id = 2",
        ),
    ),
    "replaced": Kind(
        (
            "UPDATE {t} SET name = 'u' WHERE id = 1",
            REPLACED,
            "DELETE FROM {t} WHERE id = 6",
        ),
        captures=("change_files", "snapshot_diff", "auto"),
    ),
    "commit timestamps that go backwards": Kind(
        MIXED, properties=(FEED, TRACKED, "'delta.enableInCommitTimestamps' = 'true'")
    ),
    "widened before the range": Kind(
        MIXED,
        columns="id BIGINT, name STRING, part STRING, n INT",
        properties=(FEED, TRACKED, "'delta.enableTypeWidening' = 'true'"),
        first="SELECT id, concat('n', id), 'p', INT(id) FROM range(0, 12)",
        setup=("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT",),
    ),
}


@dataclass
class Made:
    """A table of a kind: ``first`` is the version before the range."""

    spark: SparkSession
    path: str
    kind: Kind
    first: int
    last: int

    def snapshot(self, version: int) -> Counter[Any]:
        rows = self.spark.read.format("delta").option("versionAsOf", version).load(self.path)
        at_end = self.spark.read.format("delta").option("versionAsOf", self.last).load(self.path)
        from pyspark.sql import functions as F

        whole = rows.select(
            *[F.col(f"`{c.replace('`', '``')}`") if c in rows.columns else F.lit(None).alias(c)
              for c in at_end.columns]
        )  # fmt: skip
        return Counter(plain(row) for row in whole.collect())

    def read(self, **asked: Any) -> DataFrame:
        return read_changes(
            self.spark, self.path, starting_version=self.first + 1, ending_version=self.last, **asked
        )


def plain(value: Any) -> Any:
    """Turn a row into something that can be counted."""
    if isinstance(value, dict):
        return tuple(sorted((key, plain(item)) for key, item in value.items()))
    if isinstance(value, list | tuple):
        return tuple(plain(item) for item in value)
    return value


@pytest.fixture
def make(spark: SparkSession, tmp_path: Any) -> Callable[[Kind], Made]:
    def made(kind: Kind) -> Made:
        path = str(tmp_path / "a % table")
        table = f"delta.`{path}`"
        properties = ", ".join(kind.properties)
        spark.sql(
            f"CREATE TABLE {table} ({kind.columns}) USING delta {kind.layout} TBLPROPERTIES ({properties})"
        )
        # One file per partition value is enough, and two in all where there are none.
        spark.sql(f"INSERT INTO {table} {kind.first}")
        for statement in kind.setup:
            spark.sql(statement.format(t=table))
        first = newest(spark, table)
        for statement in kind.then:
            spark.sql(statement.format(t=table, first=first, properties=properties)).collect()
        return Made(spark, path, kind, first, newest(spark, table))

    return made


def newest(spark: SparkSession, table: str) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY {table} LIMIT 1").select("version").collect()[0][0])


def applied(snapshot: Counter[Any], changes: list[Any]) -> Counter[Any]:
    """Apply change rows in the order of their versions, states before first."""
    result = Counter(snapshot)
    rank = {"delete": 0, "update_preimage": 0, "insert": 1, "update_postimage": 1}
    for change in sorted(changes, key=lambda row: (row["_commit_version"], rank[row["_change_type"]])):
        state = plain(tuple(change)[:-3])
        if rank[change["_change_type"]]:
            result[state] += 1
        else:
            assert result[state] > 0, f"{change} was not there"
            result[state] -= 1
    return +result


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_every_capture_turns_the_first_snapshot_into_the_last(
    make: Callable[[Kind], Made], name: str
) -> None:
    kind = KINDS[name]
    made = make(kind)
    before, after = made.snapshot(made.first), made.snapshot(made.last)
    key = kind.key.strip("`")
    net: dict[str, Counter[Any]] = {}
    for method in kind.captures:
        found = made.read(query="min_delta", keys=[key], method=method).collect()
        net[method] = Counter(plain((*tuple(row)[:-3], row["_change_type"])) for row in found)
        assert applied(before, found) == after, method
        if method not in ("snapshot_diff",):
            found = made.read(query="full_delta", method=method).collect()
            assert applied(before, found) == after, method
    assert len({frozenset(rows.items()) for rows in net.values()}) == 1, net


# -- schema changes that are more than an added column --------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("ALTER TABLE {t} RENAME COLUMN name TO other", "name"),
        ("ALTER TABLE {t} DROP COLUMN name", "name"),
        ("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT", "n"),
    ],
)
def test_a_schema_change_splits_a_range(make: Callable[[Kind], Made], change: str, says: str) -> None:
    """Inside a range it is refused by name; the ranges at its sides are read, whatever came after them."""
    made = make(
        Kind(
            ("UPDATE {t} SET part = 'u' WHERE id = 1", change, "DELETE FROM {t} WHERE id = 2"),
            columns="id BIGINT, name STRING, part STRING, n INT",
            first="SELECT id, concat('n', id), 'p', INT(id) FROM range(0, 6)",
            properties=(
                FEED,
                TRACKED,
                "'delta.columnMapping.mode' = 'name'",
                "'delta.enableTypeWidening' = 'true'",
            ),
        )
    )
    with pytest.raises(SchemaChangeInRange, match=rf"version {made.first + 2} .*{says}"):
        plan_changes(made.path, starting_version=made.first + 1)
    for start, end, rows in ((made.first + 1, made.first + 1, 2), (made.first + 3, None, 1)):
        for method in ("change_files", "row_tracking"):
            found = read_changes(
                made.spark, made.path, starting_version=start, ending_version=end, method=method
            )
            assert len(found.collect()) == rows, (start, method)


@pytest.mark.slow
def test_a_shallow_clone(make: Callable[[Kind], Made], tmp_path: Any) -> None:
    """A clone's first version names files of another table, by absolute paths."""
    made = make(Kind(("UPDATE {t} SET name = 'u' WHERE id = 1",)))
    clone = str(tmp_path / "clone")
    made.spark.sql(f"CREATE TABLE delta.`{clone}` SHALLOW CLONE delta.`{made.path}`")
    made.spark.sql(f"DELETE FROM delta.`{clone}` WHERE id < 4")
    whole = made.spark.read.format("delta").option("versionAsOf", 0).load(clone).count()
    for method in ("change_files", "row_tracking"):
        found = read_changes(made.spark, clone, starting_version=0, method=method).collect()
        kinds = Counter(row["_change_type"] for row in found)
        assert kinds == {"insert": whole, "delete": 4}, method
