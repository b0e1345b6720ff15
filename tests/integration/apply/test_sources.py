"""What a source can do to itself: overwrite, RESTORE, TRUNCATE, new columns, odd names, every type."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.apply import merge
from tests.support import oracle
from tests.support.engine import Flow, columns, commit_info, history_of, newest, staged, versions
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

HISTORY = ("__START_AT", "__END_AT")
TYPE_1, TYPE_2 = ApplyOptions(keys=("id",)), ApplyOptions(keys=("id",), stored_as_scd_type=2)


def check(
    spark: SparkSession,
    source: str,
    folder: Path,
    ends: list[int],
    *,
    keys: tuple[str, ...] = ("id",),
    names: tuple[str, ...] | None = None,
    tracked: tuple[str, ...] | None = None,
    **options: Any,
) -> tuple[Flow, Flow]:
    """Apply the source as both types, cut at ``ends``, and compare with the oracle over time travel."""
    names = names or columns(source)
    one = Flow(spark, source, str(folder / "one"), ApplyOptions(keys=keys, **options), "one")
    two = Flow(
        spark, source, str(folder / "two"), ApplyOptions(keys=keys, stored_as_scd_type=2, **options), "two"
    )
    history = history_of(spark, source, keys, ends[0])
    one.through(*ends)
    assert oracle.rows_of(one.rows(), names) == oracle.rows_of(oracle.scd1(history), names)
    two.through(*ends)
    tracked = tracked or tuple(name for name in names if name not in keys)
    expected = oracle.scd2(history, tracked=tracked)
    assert oracle.rows_of(two.rows(), (*names, *HISTORY)) == oracle.rows_of(expected, (*names, *HISTORY))
    return one, two


@pytest.mark.slow
@pytest.mark.parametrize("vectors", ["true", "false"])
def test_statements_that_move_whole_files(spark: SparkSession, tmp_path: Path, vectors: str) -> None:
    source = str(tmp_path / "source")
    table = f"delta.`{source}`"
    spark.sql(
        f"CREATE TABLE {table} (id INT, v STRING, day DATE) USING delta PARTITIONED BY (day) TBLPROPERTIES "
        f"('delta.enableChangeDataFeed'='true', 'delta.enableDeletionVectors'='{vectors}')"
    )
    for statement in (
        (
            f"INSERT INTO {table} VALUES (1,'a','2024-01-01'), (2,'b','2024-01-01'), (3,'c','2024-01-02'), "
            "(4,'d','2024-01-02')"
        ),
        f"DELETE FROM {table} WHERE id = 2",
        # carry-over: row 1 comes back as it was, row 3 with another value
        f"INSERT OVERWRITE {table} VALUES (1,'a','2024-01-01'), (3,'x','2024-01-02'), (5,'e','2024-01-01')",
        f"UPDATE {table} SET v = v",
        f"RESTORE TABLE {table} TO VERSION AS OF 1",
        f"INSERT INTO {table} REPLACE WHERE day = DATE'2024-01-02' SELECT 4, 'd2', DATE'2024-01-02'",
        f"UPDATE {table} SET id = 3 - id WHERE id IN (1, 2)",
        f"UPDATE {table} SET day = DATE'2024-01-09' WHERE id = 1",
        f"OPTIMIZE {table}",
        f"TRUNCATE TABLE {table}",
        f"INSERT INTO {table} VALUES (1,'a','2024-01-01'), (9,'i','2024-01-03')",
        f"RESTORE TABLE {table} TO VERSION AS OF 8",
    ):
        spark.sql(statement)
    end = newest(source)
    check(spark, source, tmp_path / "whole", [0, end])
    check(spark, source, tmp_path / "cut", [1, 3, 6, 9, end])


@pytest.mark.slow
def test_a_column_added_between_and_inside_ranges(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    table = f"delta.`{source}`"
    properties = "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    spark.sql(f"CREATE TABLE {table} (id INT, v STRING) USING delta {properties}")
    for statement in (
        f"INSERT INTO {table} VALUES (1,'a'), (2,'b'), (3,'c')",
        f"UPDATE {table} SET v = 'a2' WHERE id = 1",
        f"ALTER TABLE {table} ADD COLUMNS (extra INT, s STRUCT<x: INT>)",
        f"UPDATE {table} SET extra = 7, s = named_struct('x', 1) WHERE id <= 2",
        f"DELETE FROM {table} WHERE id = 3",
        f"ALTER TABLE {table} ADD COLUMNS (late STRING FIRST, s.y STRING)",
        f"INSERT INTO {table} (late, id, v, s) VALUES ('l', 4, 'd', named_struct('x', 2, 'y', 'q'))",
    ):
        spark.sql(statement)
    _, between = check(spark, source, tmp_path / "between", [1, 2, 5, 7])
    check(spark, source, tmp_path / "inside", [1, 7])
    spark.sql(f"UPDATE {table} SET late = 'm'")
    assert between.apply().status == "committed"
    history = history_of(spark, source, ("id",))
    names = (*columns(source), *HISTORY)
    expected = oracle.scd2(history, tracked=columns(source))
    assert oracle.rows_of(between.rows(), names) == oracle.rows_of(expected, names)


@pytest.mark.parametrize("is_allowed", slow_but([True, False], False))
def test_a_column_is_added_by_a_conf_of_one_statement_or_by_a_clause(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_allowed: bool
) -> None:
    """By the conf that every pair knows, or by the clause where Spark refuses it, as it does a static one."""
    if not is_allowed:
        monkeypatch.setattr(merge, "SCHEMA_EVOLUTION", {"spark.sql.warehouse.dir": "elsewhere"})
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT 1 AS id, 'a' AS v")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    flow = Flow(spark, source, str(tmp_path / "target"), ApplyOptions(keys=("id",))).through(0)
    extra = spark.sql("SELECT 2 AS id, 'b' AS v, 3 AS extra")
    extra.write.format("delta").mode("append").option("mergeSchema", "true").save(source)
    before = dict(spark.conf.getAll)
    assert flow.apply(start=1).status == "committed"
    assert sorted((row["id"], row["v"], row["extra"]) for row in flow.rows()) == [(1, "a", None), (2, "b", 3)]
    assert dict(spark.conf.getAll) == before


@pytest.mark.slow
def test_an_added_column_is_refused_where_evolution_is_off(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT 1 AS id, 'a' AS v")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    for options in (
        ApplyOptions(keys=("id",), schema_evolution="fail"),
        ApplyOptions(insert_only=True, schema_evolution="fail"),
    ):
        flow = Flow(spark, source, str(tmp_path / f"t{len(options.keys)}"), options).through(0)
        extra = spark.sql("SELECT 2 AS id, 'b' AS v, 3 AS extra")
        extra.write.format("delta").mode("append").option("mergeSchema", "true").save(source)
        result = flow.apply(start=newest(source))
        assert result.error is not None
        assert result.error["class"] == "TargetSchemaClash"
        assert versions(flow.target)[-1] <= 1


#: No back-tick: Delta itself cannot UPDATE such a column under a change feed.
#: And names that plans might use for themselves.
WEIRD = (
    "events",
    "most",
    "balance",
    "existed",
    "n",
    "rows",
    "highest",
    "before",
    "after",
    "a b",
    "c.d",
    "e'f",
    "g%h",
    "ünï",
    "select",
    "x,y;{z}=(1)",
)


@pytest.mark.slow
def test_names_that_need_quoting(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "so urce")
    names = ", ".join(f"0 AS `{name.replace('`', '``')}`" for name in WEIRD)
    key_columns = "cast(id as int) `k.e y`, cast(id as string) `k'2`, cast(id as int) null_sequence"
    frame = spark.sql(f"SELECT {key_columns}, {names} FROM range(4)")
    frame.write.format("delta").option("delta.columnMapping.mode", "name").save(source)
    table = f"delta.`{source}`"
    # In one write, Delta refuses the two together.
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    spark.sql(f"UPDATE {table} SET `c.d` = 5, `e'f` = 6 WHERE `k.e y` = 1")
    spark.sql(f"DELETE FROM {table} WHERE `k.e y` = 2")
    spark.sql(f"UPDATE {table} SET `k'2` = 'new' WHERE `k.e y` = 3")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (`l'ate r.` INT)")
    spark.sql(f"UPDATE {table} SET `l'ate r.` = 1 WHERE `k.e y` = 0")
    keys = ("k.e y", "k'2", "null_sequence")
    check(spark, source, tmp_path / "t x", [1, 3, newest(source)], keys=keys)
    spark.sql(f"UPDATE {table} SET `g%h` = 1")
    staging = str(tmp_path / "sta ging")
    flow = Flow(spark, source, str(tmp_path / "staged"), ApplyOptions(keys=keys)).through(1)
    assert flow.stage(staging, 2, newest(source)).status == "committed"
    public = ApplyOptions(keys=keys, publish_changes=True)
    result = Flow(spark, source, str(tmp_path / "public"), public).load()
    assert result.error is not None
    assert result.error["class"] == "InvalidConfiguration"
    assert not (tmp_path / "public").exists()


ALL_TYPES = {
    "flag": "BOOLEAN",
    "tiny": "TINYINT",
    "big": "BIGINT",
    "money": "DECIMAL(38,10)",
    "half": "FLOAT",
    "whole": "DOUBLE",
    "day": "DATE",
    "moment": "TIMESTAMP",
    "wall": "TIMESTAMP_NTZ",
    "bytes": "BINARY",
    "point": "STRUCT<x: INT, inner: STRUCT<m: MAP<STRING, INT>>>",
    "list": "ARRAY<STRUCT<k: STRING>>",
    "map": "MAP<STRING, ARRAY<INT>>",
    "maps": "ARRAY<MAP<INT, STRING>>",
}
#: Each update is one version; the value on the right must be compared with the one before, or not.
UPDATES = (
    "flag = NULL",
    "tiny = -128, big = -9223372036854775808",
    "money = 3.5000000001BD",
    "half = float('NaN'), whole = double('NaN')",
    "half = float('NaN'), whole = double('NaN')",
    "whole = 0.0D",
    "whole = -0.0D",
    "day = DATE'0001-01-01', moment = TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    "wall = TIMESTAMP_NTZ'2024-03-31 02:30:00', moment = TIMESTAMP'2024-01-01 00:00:00.000001Z'",
    "bytes = X'00FF'",
    "point = named_struct('x', 1, 'inner', named_struct('m', map('b', 2, 'a', 1)))",
    "point = named_struct('x', 1, 'inner', named_struct('m', map('a', 1, 'b', 2)))",
    "point = named_struct('x', 1, 'inner', named_struct('m', map('a', 1, 'b', NULL)))",
    "point = named_struct('x', NULL, 'inner', NULL)",
    "point = NULL",
    "list = array(named_struct('k', NULL)), map = map('k', array(1, NULL))",
    "list = array(), map = map(), maps = array(map(1, NULL, 2, 'b'), NULL)",
    "list = NULL, map = NULL, maps = array(map(2, 'b', 1, NULL), NULL)",
)


@pytest.mark.slow
def test_every_type(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    listed = ", ".join(f"`{name}` {kind}" for name, kind in ALL_TYPES.items())
    properties = "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    spark.sql(f"CREATE TABLE delta.`{source}` (id INT, {listed}) USING delta {properties}")
    spark.sql(f"""INSERT INTO delta.`{source}` VALUES (1, true, 1, 2, 3.5, 1.5, 2.5, DATE'2024-02-29',
        TIMESTAMP'2024-02-29 12:00:00Z', TIMESTAMP_NTZ'2024-02-29 12:00:00', X'01',
        named_struct('x', 1, 'inner', named_struct('m', map('a', 1, 'b', 2))), array(named_struct('k', 'v')),
        map('k', array(1)), array(map(1, 'a')))""")
    for update in UPDATES:
        spark.sql(f"UPDATE delta.`{source}` SET {update} WHERE id = 1")
    end = newest(source)
    _, two = check(spark, source, tmp_path / "t", [1, 7, end])
    # equal values opened nothing: NaN again, -0.0 after 0.0, two maps in another order
    assert len(two.rows()) == 1 + len(UPDATES) - 4


KEYS_OF_TYPES = {
    "DOUBLE": ["double('NaN')", "-0.0D", "1.5D"],
    "DECIMAL(38,18)": ["-1.000000000000000001BD", "0BD", "99999999999999999999.5BD"],
    "BIGINT": ["-9223372036854775808", "0", "9223372036854775807"],
    "STRING": ["''", "'it''s'", "r'back\\slash'", "'日本'", "'a\\nb'"],
    "DATE": ["DATE'0001-01-01'", "DATE'2024-02-29'", "DATE'9999-12-31'"],
    "TIMESTAMP": ["TIMESTAMP'0001-01-02 00:00:00Z'", "TIMESTAMP'2024-02-29 00:00:00.000001Z'"],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ'1970-01-01 00:00:00'", "TIMESTAMP_NTZ'2024-02-29 00:00:00.000001'"],
    "BINARY": ["X''", "X'00FF'"],
    "BOOLEAN": ["true", "false"],
}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "values"), KEYS_OF_TYPES.items(), ids=KEYS_OF_TYPES)
def test_keys_of_every_type(spark: SparkSession, tmp_path: Path, kind: str, values: list[str]) -> None:
    source = str(tmp_path / "source")
    properties = "TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
    spark.sql(f"CREATE TABLE delta.`{source}` (id {kind}, v INT) USING delta {properties}")
    rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
    spark.sql(f"INSERT INTO delta.`{source}` VALUES {rows}")
    spark.sql(f"UPDATE delta.`{source}` SET v = v + 10 WHERE v > 0")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE v = 0")
    two = Flow(spark, source, str(tmp_path / "two"), TYPE_2).through(1, 3)
    key = (lambda row: oracle.plain(row["id"]), lambda row: row["v"])
    assert len(two.rows()) == 2 * len(values) - 1
    found = {(key[0](row), key[1](row)) for row in two.rows("__END_AT IS NULL")}
    state = history_of(spark, source, ("id", "v"))[-1][1]
    assert found == {(key[0](row), key[1](row)) for row in state.values()}


@pytest.mark.slow
def test_a_key_that_looks_like_a_variable(spark: SparkSession, tmp_path: Path) -> None:
    # Spark would put the environment's value into the text of the MERGE.
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT concat('$', '{env:HOME}') AS id, 1 AS v")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    spark.sql(f"UPDATE delta.`{source}` SET v = 2")
    flow = Flow(spark, source, str(tmp_path / "one"), ApplyOptions(keys=("id",))).through(0, 1)
    assert [(row["id"], row["v"]) for row in flow.rows()] == [("${env:HOME}", 2)]


@pytest.mark.slow
def test_the_target_lies_as_asked(spark: SparkSession, tmp_path: Path) -> None:
    """Partition by an expression whose value changes, properties, feed of the target."""
    source = str(tmp_path / "source")
    frame = spark.sql(
        "SELECT cast(id AS int) id, date_add(DATE'2023-06-01', cast(id * 200 as int)) d FROM range(4)"
    )
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    spark.sql(f"UPDATE delta.`{source}` SET d = DATE'2030-01-01' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 2")
    options = {
        "partition_by": {"year": "year(d)"},
        "target_properties": {"delta.logRetentionDuration": "interval 90 days", "team": "x"},
        "publish_changes": True,
    }
    one, two = check(spark, source, tmp_path / "t", [0, 2], **options)
    for flow in (one, two):
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{flow.target}`").collect()[0]
        assert detail["partitionColumns"] == ["year"]
        assert detail["properties"]["team"] == "x"
        assert detail["properties"]["delta.enableChangeDataFeed"] == "true"
        assert detail["properties"]["delta.enableDeletionVectors"] == "true"
        # the load, the user's own property, the apply
        assert versions(flow.target) == [0, 1, 2]
        assert all(row["year"] == row["d"].year for row in flow.rows())
    feed = spark.read.format("delta").options(readChangeFeed="true", startingVersion=1).load(one.target)
    found = sorted((row["_change_type"], row["id"]) for row in feed.collect())
    assert found == [("delete", 2), ("update_postimage", 1), ("update_preimage", 1)]
    # gold from silver: the published feed of a type 1 target feeds the next flow
    gold = Flow(spark, one.target, str(tmp_path / "gold"), TYPE_1, "gold").through(0, 2)
    assert oracle.rows_of(gold.rows(), ("id", "d", "year")) == oracle.rows_of(one.rows(), ("id", "d", "year"))


@pytest.mark.slow
def test_clustering_is_declared_in_a_commit_without_seal(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT cast(id AS int) id, cast(id as int) v, X'00' b FROM range(10)")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    for name, cluster_by, expected in (
        ("default", None, ["id"]),
        ("asked", ("v", "id"), ["v", "id"]),
        ("none", (), []),
    ):
        options = ApplyOptions(keys=("b", "id"), cluster_by=cluster_by)
        flow = Flow(spark, source, str(tmp_path / name), options).through(0)
        detail = spark.sql(f"DESCRIBE DETAIL delta.`{flow.target}`").collect()[0]
        assert detail["clusteringColumns"] == expected
        assert versions(flow.target) == ([0, 1] if expected else [0])
        if expected:
            assert "userMetadata" not in commit_info(flow.target, 1)


@pytest.mark.slow
def test_where_and_select_act_on_states(spark: SparkSession, tmp_path: Path) -> None:
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT * FROM VALUES (1,'a',1),(2,'b',9),(3,'c',1),(4,'d',1) t(id,name,n)")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    for statement in (
        "UPDATE {} SET n = 9 WHERE id = 1",  # leaves the filter: a delete
        "UPDATE {} SET n = 1 WHERE id = 2",  # enters it: an insert
        "UPDATE {} SET name = 'a2' WHERE id = 1",  # outside all the time
        "UPDATE {} SET n = 1 WHERE id = 1",  # enters again
        "UPDATE {} SET n = NULL WHERE id = 3",  # NULL is not TRUE
        "UPDATE {} SET n = 2 WHERE id = 4",  # only a column that select leaves out
        "DELETE FROM {} WHERE id = 2",
    ):
        spark.sql(statement.format(f"delta.`{source}`"))
    history = [
        (
            version,
            {k: {"key": r["id"], "upper": r["name"].upper()} for k, r in state.items() if (r["n"] or 9) < 5},
        )
        for version, state in history_of(spark, source, ("id",))
    ]
    options = {"where": "n < 5", "select": ("id AS key", "upper(name) AS upper")}
    for ends in ([0, 7], [0, 1, 4, 7]):
        folder = tmp_path / str(len(ends))
        one = Flow(spark, source, str(folder / "one"), ApplyOptions(keys=("KEY",), **options)).through(*ends)
        assert oracle.rows_of(one.rows(), ("key", "upper")) == oracle.rows_of(
            oracle.scd1(history), ("key", "upper")
        )
        type_2 = ApplyOptions(keys=("key",), stored_as_scd_type=2, **options)
        two = Flow(spark, source, str(folder / "two"), type_2).through(*ends)
        names = ("key", "upper", *HISTORY)
        assert oracle.rows_of(two.rows(), names) == oracle.rows_of(
            oracle.scd2(history, tracked=("upper",)), names
        )
    every = ApplyOptions(keys=("id",), select=("*", "n + 1 AS more"), where="id <> 3")
    flow = Flow(spark, source, str(tmp_path / "star"), every).through(0, 7)
    assert columns(flow.target) == ("id", "name", "n", "more")


@pytest.mark.slow
def test_a_staged_batch_gives_the_same(spark: SparkSession, tmp_path: Path) -> None:
    source, staging = str(tmp_path / "source"), str(tmp_path / "staging")
    frame = spark.sql("SELECT cast(id AS int) id, 'a' v FROM range(4)")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    spark.sql(f"UPDATE delta.`{source}` SET v = 'b' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{source}` WHERE id = 2")
    options = ApplyOptions(keys=("id",), stored_as_scd_type=2, sequence_by="_commit_timestamp")
    direct = Flow(spark, source, str(tmp_path / "direct"), options).through(0, 2)
    flow = Flow(spark, source, str(tmp_path / "staged"), options)
    assert flow.stage(staging, 0, 0, "snapshot").status == "committed"
    assert flow.load(0, staging=staged(staging, "snapshot")).status == "committed"
    assert spark.read.format("delta").load(staging).count() == 0
    assert flow.stage(staging, 1, 2).status == "committed"
    assert flow.apply(2, staging=staged(staging)).status == "committed"
    names = ("id", "v", *HISTORY)
    assert oracle.rows_of(flow.rows(), names) == oracle.rows_of(direct.rows(), names)
