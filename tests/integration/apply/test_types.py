"""Values and names that bite, through type 1 and type 2, from a change feed and from a log of events.

Each type is a column of one wide table, and each way a value can go is a row: to an equal one, to another,
to NULL, from NULL; in all other columns the row stays as it was. So a comparison that is wrong for one type
shows as a row of history too many, or too few.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import DeltaCdcError
from tests.support.engine import versions
from tests.support.event_flow import LogFlow
from tests.support.event_types import EVENTS, FEED, LATE, SAME, Kind, Tables, same, sides
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[3]

KINDS: dict[str, Kind] = {
    "nan": same("DOUBLE", "double('NaN')", "double('Infinity')"),
    "nan_float": same("FLOAT", "float('NaN')", "1e0F"),
    "zero": Kind("DOUBLE", "0.0D", "-0.0D", "4.9E-324D"),
    "zero_float": Kind("FLOAT", "float('-0.0')", "float('0.0')", "float('NaN')"),
    "zero_in_struct": Kind(
        "STRUCT<x: DOUBLE, y: FLOAT>",
        "named_struct('x', 0.0D, 'y', float('NaN'))",
        "named_struct('x', -0.0D, 'y', float('NaN'))",
        "named_struct('x', 0.0D, 'y', float(0))",
    ),
    "zero_in_array": Kind("ARRAY<DOUBLE>", "array(0.0D, NULL)", "array(-0.0D, NULL)", "array(0.0D, 0.0D)"),
    "zero_in_map": Kind(
        "MAP<STRING, DOUBLE>",
        "map('a', 0.0D, 'b', double('NaN'))",
        "map('b', double('NaN'), 'a', -0.0D)",
        "map('a', 0.0D)",
    ),
    "money": same(
        "DECIMAL(38,18)",
        "12345678901234567890.123456789012345678BD",
        "12345678901234567890.123456789012345679BD",
    ),
    "small_money": Kind("DECIMAL(38,18)", "1BD", "1.000BD", "1.000000000000000001BD"),
    "long": same("BIGINT", "-9223372036854775808", "9223372036854775807"),
    "tiny": same("TINYINT", "-128", "127"),
    "flag": same("BOOLEAN", "false", "true"),
    "day": same("DATE", "DATE'0001-01-01'", "DATE'9999-12-31'"),
    "moment": Kind(
        "TIMESTAMP",
        "TIMESTAMP'0001-01-01 00:00:00Z'",
        "TIMESTAMP'0001-01-01 01:00:00+01:00'",
        "TIMESTAMP'9999-12-31 23:59:59.999999Z'",
    ),
    "wall": same(
        "TIMESTAMP_NTZ", "TIMESTAMP_NTZ'2024-03-31 02:30:00'", "TIMESTAMP_NTZ'2024-03-31 02:30:00.000001'"
    ),
    "wall_end": same(
        "TIMESTAMP_NTZ", "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'", "TIMESTAMP_NTZ'0001-01-01 00:00:00'"
    ),
    "bytes": same("BINARY", "X'00FF'", "X'00FE'"),
    "no_bytes": same("BINARY", "X''", "X'00'"),
    "text": same("STRING", "''", "' '"),
    "accent": same("STRING", "'\\u00e9'", "'e\\u0301'"),
    "point": Kind(
        "STRUCT<a: INT, deep: STRUCT<b: STRING, m: MAP<STRING, INT>>>",
        "named_struct('a', 1, 'deep', named_struct('b', NULL, 'm', map('k', 1, 'l', NULL)))",
        "named_struct('a', 1, 'deep', named_struct('b', NULL, 'm', map('l', NULL, 'k', 1)))",
        "named_struct('a', 1, 'deep', named_struct('b', NULL, 'm', map('k', NULL, 'l', 1)))",
    ),
    "pointless": same(
        "STRUCT<a: INT, deep: STRUCT<b: STRING>>",
        "named_struct('a', 1, 'deep', named_struct('b', 'x'))",
        "named_struct('a', 1, 'deep', CAST(NULL AS STRUCT<b: STRING>))",
    ),
    "list": same("ARRAY<STRING>", "array('a', NULL, 'b')", "array('a', 'b', NULL)"),
    "no_list": same("ARRAY<INT>", "array()", "array(CAST(NULL AS INT))"),
    "structs": same(
        "ARRAY<STRUCT<k: DATE, v: BINARY>>",
        "array(named_struct('k', DATE'9999-12-31', 'v', X'00'), NULL)",
        "array(NULL, named_struct('k', DATE'9999-12-31', 'v', X'00'))",
    ),
    "map": Kind(
        "MAP<STRING, INT>", "map('a', 1, 'b', NULL)", "map('b', NULL, 'a', 1)", "map('a', NULL, 'b', 1)"
    ),
    "no_map": same("MAP<STRING, INT>", "map()", "map('', CAST(NULL AS INT))"),
    "map_of_lists": Kind(
        "MAP<DATE, ARRAY<INT>>",
        "map(DATE'2024-01-01', array(1, NULL), DATE'0001-01-01', NULL)",
        "map(DATE'0001-01-01', NULL, DATE'2024-01-01', array(1, NULL))",
        "map(DATE'0001-01-01', NULL, DATE'2024-01-01', array(NULL, 1))",
    ),
    "variant": same("VARIANT", "DATE'2020-01-01'", "'2020-01-01'"),
    "variant_number": Kind("VARIANT", "1", "1Y", "CAST(1 AS DECIMAL(3,2))"),
    "variant_list": same("VARIANT", "array(1.5F, 2F)", "array(1.5D, 2D)"),
    "variant_object": Kind(
        "STRUCT<v: VARIANT, w: VARIANT>",
        "named_struct('v', to_variant_object(named_struct('a', 1, 'b', X'AB')), 'w', parse_json('null'))",
        "named_struct('v', to_variant_object(named_struct('b', X'AB', 'a', 1L)), 'w', parse_json('null'))",
        "named_struct('v', to_variant_object(named_struct('a', 1, 'b', 'qw==')), 'w', parse_json('null'))",
    ),
    "variant_null": same(
        "MAP<STRING, VARIANT>", "map('a', parse_json('null'))", "map('a', CAST(NULL AS VARIANT))"
    ),
    "maps": Kind(
        "ARRAY<MAP<INT, STRING>>",
        "array(map(1, 'a', 2, NULL))",
        "array(map(2, NULL, 1, 'a'))",
        "array(map(1, 'a'))",
    ),
}


@pytest.fixture(scope="module")
def wide(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Tables:
    return Tables(spark, tmp_path_factory.mktemp("types"), *sides(spark, KINDS))


@pytest.mark.parametrize("way", slow_but([FEED, EVENTS, LATE], EVENTS))
@pytest.mark.parametrize("scd_type", slow_but([1, 2], 2))
def test_types(wide: Tables, way: str, scd_type: int) -> None:
    """An equal value is no change; another one is, and so are NULL for a value and a value for NULL."""
    wide.check(way, scd_type, KINDS, unchanged=set(range(len(KINDS))))


# -- names --------------------------------------------------------------------------------------
#: Names that need quoting, are reserved somewhere, or that an engine may use for itself.
NAMES = (
    *(
        "a b",
        "c.d",
        "e'f",
        "g%h",
        'i"j',
        "k`l",
        "m\\n",
        "ünï",
        "日本",
        "x,y;{z}=(1)",
        "$",
        "t",
        "s",
        "source",
    ),
    *("select", "from", "order", "null", "true", "Mixed", "UPPER", "key", "keys", "value", "values", "kind"),
    *("event", "events", "rank", "sequence", "start", "end", "row", "rows", "run", "base", "state", "leaf"),
    *(
        "authored",
        "deleted",
        "delete",
        "truncate",
        "upsert",
        "op",
        "plan",
        "action",
        "late",
        "tied",
        "struct",
    ),
    *(
        "count",
        "n",
        "before",
        "after",
        "old",
        "new",
        "exists",
        "existed",
        "first",
        "last",
        "entry",
        "entries",
    ),
    *("element", "col", "item", "position", "ordinal", "moment", "version", "_op", "_rank", "_sequence"),
)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "scd_type"), [(FEED, 1), (EVENTS, 1), (LATE, 1), (FEED, 2), (EVENTS, 2), (LATE, 2)]
)
def test_names(spark: SparkSession, tmp_path: Path, way: str, scd_type: int) -> None:
    kinds = {name.replace("`", "``"): same("INT", f"{n}", f"{n} + 500") for n, name in enumerate(NAMES)}
    if way == FEED:
        # Delta itself cannot update such a column under a change feed.
        del kinds["k``l"]
    tables = Tables(spark, tmp_path, *sides(spark, kinds))
    names = [name.replace("``", "`") for name in kinds]
    tables.check(way, scd_type, names, unchanged=set(range(len(kinds))))


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_names_in_options(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    """Odd names as keys, tracked columns, lists, sequence and tie order."""
    log = str(tmp_path / "log")
    rows = [
        (1, "x'y", "a", (1, 2), "u", 1, 1),
        (1, "x'y", None, (7, None), "v", 2, 1),
        (1, "x'y", "c", (8, 8), "w", 2, 2),
        (2, "x'y", "d", (9, 9), "z", 1, 1),
    ]
    ddl = (
        "`k.1` int, `K'2` string, `b c` string, `s t` struct<`e f`: int, `g.h`: int>, `not this` string, "
        "`order` int, `tie``s` int"
    )
    frame = spark.createDataFrame(rows, ddl)
    frame.limit(0).write.format("delta").option("delta.columnMapping.mode", "name").save(log)
    for row in rows:
        spark.createDataFrame([row], ddl).write.format("delta").mode("append").save(log)
    arguments: dict[str, Any] = {
        "keys": ["K.1", "k'2"],
        "stored_as_scd_type": scd_type,
        "sequence_by": "`order`",
        "on_conflict": {"last_by": ["tie`s"]},
        "except_column_list": ["NOT THIS", "order", "tie`s"],
        "ignore_null_updates_column_list": ["B c"],
    }
    if scd_type == 2:
        arguments["track_history_column_list"] = ["b C"]
    flow = LogFlow(spark, log, str(tmp_path / "target"), arguments)
    for version in (1, 3, 4):
        flow.apply(version)
    found = sorted(
        (row["k.1"], row["K'2"], row["b c"], tuple(row["s t"]), row.get("__START_AT"), row.get("__END_AT"))
        for row in flow.rows()
    )
    if scd_type == 1:
        assert found == [(1, "x'y", "c", (8, 8), None, None), (2, "x'y", "d", (9, 9), None, None)]
    else:
        assert found == [
            (1, "x'y", "a", (1, 2), 1, 2),
            (1, "x'y", "c", (8, 8), 2, None),
            (2, "x'y", "d", (9, 9), 1, None),
        ]


@pytest.mark.parametrize(
    ("column", "more"),
    [
        ("__START_AT", {"stored_as_scd_type": 2}),
        ("__end_at", {"stored_as_scd_type": 2}),
        ("valid", {"stored_as_scd_type": 2, "start_column": "VALID"}),
        ("_DELETED", {"delete_mode": "soft"}),
    ],
)
def test_columns_of_the_target_cannot_come_from_the_log(
    spark: SparkSession, tmp_path: Path, column: str, more: dict[str, Any]
) -> None:
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    spark.sql(f"SELECT 1 AS id, 1 AS seq, 1 AS `{column}`").write.format("delta").save(log)
    flow = LogFlow(spark, log, target, {"keys": ["id"], "sequence_by": "seq", **more})
    with pytest.raises(DeltaCdcError, match=f"(?i){column}"):
        flow.apply()
    assert not versions(target)


# -- keys ---------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_keys(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    """Two ways to write a key are one key: NaN, zeros, one moment in two zones; late events find it, too."""
    keys = {
        "d": ("DOUBLE", ["double('NaN')", "0.0D", "1e300D"], ["double('NaN')", "-0.0D", "1e300D"]),
        "m": (
            "DECIMAL(38,18)",
            ["-1.000000000000000001BD", "0BD", "99999999999999999999.5BD"],
            ["-1.000000000000000001BD", "-0.000BD", "99999999999999999999.50BD"],
        ),
        "t": (
            "TIMESTAMP",
            [f"TIMESTAMP'{day} 12:00:00Z'" for day in ("0001-01-02", "2024-02-29", "9999-12-30")],
            [f"TIMESTAMP'{day} 10:00:00-02:00'" for day in ("0001-01-02", "2024-02-29", "9999-12-30")],
        ),
        "b": ("BINARY", ["X''", "X'00FF'", "X'00'"], ["X''", "X'00FF'", "X'00'"]),
        "c": ("STRING", ["''", "'a''b'", "'日本'"], ["''", "'a''b'", "'日本'"]),
    }
    log = str(tmp_path / "log")
    listed = ", ".join(f"{name} {type_}" for name, (type_, _, _) in keys.items())
    spark.sql(f"CREATE TABLE delta.`{log}` ({listed}, v INT, seq INT) USING delta")
    for seq, spelled in ((2, 1), (1, 2), (3, 2)):
        written = [[f"CAST({given[spelled][n]} AS {given[0]})" for given in keys.values()] for n in range(3)]
        rows = ", ".join(f"({', '.join(key)}, {seq}, {seq})" for key in written)
        spark.sql(f"INSERT INTO delta.`{log}` VALUES {rows}")
    arguments = {"keys": list(keys), "stored_as_scd_type": scd_type, "sequence_by": "seq"}
    flow = LogFlow(spark, log, str(tmp_path / "target"), {**arguments, "except_column_list": ["seq"]})
    for version in (1, 2, 3):
        flow.apply(version)
    found = sorted((row["c"], row["v"], row.get("__START_AT"), row.get("__END_AT")) for row in flow.rows())
    if scd_type == 1:
        assert found == [(c, 3, None, None) for c in ("", "a'b", "日本")]
    else:
        spans = [(1, 1, 2), (2, 2, 3), (3, 3, None)]
        assert found == [(c, *span) for c in ("", "a'b", "日本") for span in spans]


# -- sizes --------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize(("way", "scd_type"), [(FEED, 1), (EVENTS, 1), (FEED, 2), (EVENTS, 2), (LATE, 2)])
def test_500_columns(spark: SparkSession, tmp_path: Path, way: str, scd_type: int) -> None:
    kinds = {f"c{n}": same("STRING" if n % 2 else "INT", f"{n}", f"{n + 1}") for n in range(500)}
    before, after = sides(spark, kinds)
    some = f"place IN (0, 250, 499) OR id % {len(kinds)} = 7"
    tables = Tables(spark, tmp_path, before.where(some), after.where(some))
    unchanged = {row["id"] for row in tables.before.where(f"way = {SAME}").collect()}
    tables.check(way, scd_type, kinds, unchanged)


@pytest.mark.slow
def test_strings_of_16_mib(tmp_path: Path) -> None:
    """The difference is in the last character. In a process of its own: the driver of all tests is small."""
    command = [sys.executable, "-m", "tests.support.event_big", str(tmp_path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    found = json.loads(done.stdout.splitlines()[-1])
    size, history = 16 * 1024 * 1024, [[16 * 1024 * 1024, "a", False], [16 * 1024 * 1024, "b", True]]
    assert found == {
        f"{way} {scd_type}": [[size, "b", True]] if scd_type == 1 else history
        for way in (FEED, EVENTS, LATE)
        for scd_type in (1, 2)
    }
