"""The four change queries over change rows that are written down here, each case with its answers.

All cases of a kind are one table, told apart by the column ``case``, so that Spark answers a query for all of
them at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import (
    ColumnNotFound,
    InvalidConfiguration,
    InvalidExpression,
    KeyNotUnique,
    NullKey,
    ReservedColumnName,
    WrongReader,
)
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.reserved_columns import ORDER, ROW_ID, ROW_VERSION
from delta_cdc.spark.changes.queries import answer, drop_carry_over, named_in_plan
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

TYPES = {"I": "insert", "D": "delete", "<": "update_preimage", ">": "update_postimage"}
QUERIES = ("append_only", "upsert", "min_delta", "full_delta")
DDL = (
    "case string, id int, v string, _change_type string, _commit_version long, "
    f"_commit_timestamp timestamp_ntz, {ORDER} long"
)
COLUMNS = ("case", "id", "v")

#: A row of change or of an answer, for instance ``I 1 a @2``: type, id, value (``-`` is NULL) and version.
#: ``@5/9`` is version 5 of a segment up to 9 of which only the two ends are known.
Rows = str


@dataclass(frozen=True)
class Case:
    """Change rows and what the queries make of them; ``full`` is None where it is the rows themselves."""

    rows: Rows
    append: Rows = ""
    upsert: Rows = ""
    net: Rows = ""
    full: Rows | None = None

    def expected(self, query: str) -> list[str]:
        told = {"append_only": self.append, "upsert": self.upsert, "min_delta": self.net}
        text = told.get(query, self.rows if self.full is None else self.full)
        return sorted(f"{kind} {key} {value} {at.split('/')[0]}" for kind, key, value, at in _parts(text))


def _parts(text: Rows) -> list[list[str]]:
    return [part.split() for part in text.split(";") if part.strip()]


CASES = {
    "one history": Case(
        rows="< 1 a @2; > 1 a2 @2; D 2 b @3; I 4 d @3; < 1 a2 @4; > 1 a3 @4; D 4 d @4; D 3 c @5; I 3 c2 @6",
        append="I 4 d @3; I 3 c2 @6",
        upsert="> 1 a3 @4; > 3 c2 @6",
        net="< 1 a @4; > 1 a3 @4; D 2 b @3; < 3 c @6; > 3 c2 @6",
    ),
    "from the beginning": Case(
        rows="I 1 apple @0; I 2 orange @0; I 3 pineapple @0; < 1 apple @1; > 1 banana @1; D 3 pineapple @2",
        append="I 1 apple @0; I 2 orange @0; I 3 pineapple @0",
        upsert="I 1 banana @1; I 2 orange @0",
        net="I 1 banana @1; I 2 orange @0",
    ),
    "later on": Case(
        rows="< 1 apple @1; > 1 banana @1; D 3 pineapple @2",
        upsert="> 1 banana @1",
        net="< 1 apple @1; > 1 banana @1; D 3 pineapple @2",
    ),
    "a key changes": Case(rows="< 1 a @1; > 2 a @1", upsert="I 2 a @1", net="D 1 a @1; I 2 a @1"),
    "two rows swap their keys": Case(
        rows="< 1 a @1; > 2 a @1; < 2 b @1; > 1 b @1",
        upsert="> 1 b @1; > 2 a @1",
        net="< 1 a @1; > 1 b @1; < 2 b @1; > 2 a @1",
    ),
    "deleted and inserted in one version": Case(
        rows="I 1 b @1; D 1 a @1", append="I 1 b @1", upsert="> 1 b @1", net="< 1 a @1; > 1 b @1"
    ),
    "the same row deleted and inserted": Case(rows="I 1 a @1; D 1 a @1", append="I 1 a @1"),
    "there and back": Case(rows="< 1 a @1; > 1 b @1; < 1 b @2; > 1 a @2"),
    "gone and back": Case(rows="D 1 a @1; I 1 a @3", append="I 1 a @3"),
    "came and went": Case(rows="I 1 a @1; < 1 a @2; > 1 b @2; D 1 b @3", append="I 1 a @1"),
    "deleted after an update": Case(rows="< 1 a @1; > 1 b @1; D 1 b @2", net="D 1 a @2"),
    "an update of nothing": Case(rows="< 1 a @1; > 1 a @1"),
    "to NULL": Case(rows="< 1 a @1; > 1 - @1", upsert="> 1 - @1", net="< 1 a @1; > 1 - @1"),
    "from NULL": Case(rows="< 1 - @1; > 1 a @1", upsert="> 1 a @1", net="< 1 - @1; > 1 a @1"),
    "NULL stays": Case(rows="< 1 - @1; > 1 - @1"),
    "a row of NULL is deleted": Case(rows="D 1 - @1", net="D 1 - @1"),
    "rows as they come": Case(
        rows="> 1 c @3; < 1 a @2; < 1 b @3; > 1 b @2", upsert="> 1 c @3", net="< 1 a @3; > 1 c @3"
    ),
    "a segment of two ends": Case(
        rows="< 1 a @1; > 1 b @1; < 1 b @5/9; > 1 c @5/9; < 1 c @10; > 1 d @10",
        upsert="> 1 d @10",
        net="< 1 a @10; > 1 d @10",
    ),
    "two ends that are not matched": Case(
        rows="D 1 a @9/9; I 1 b @5/9; D 2 a @9/9; I 2 a @9/9",
        append="I 1 b @5; I 2 a @9",
        upsert="> 1 b @5",
        net="< 1 a @5; > 1 b @5",
    ),
}

#: With ``where="v NOT LIKE 'x%'"``: what begins with x is outside.
FILTERED = {
    "stays": Case(rows="< 1 a @1; > 1 b @1", upsert="> 1 b @1", net="< 1 a @1; > 1 b @1"),
    "never in it": Case(rows="I 1 x @1; < 1 x @2; > 1 xx @2; D 1 xx @3", full=""),
    "enters": Case(
        rows="< 1 x @1; > 1 a @1", append="I 1 a @1", upsert="I 1 a @1", net="I 1 a @1", full="I 1 a @1"
    ),
    "leaves": Case(rows="< 1 a @1; > 1 x @1", net="D 1 a @1", full="D 1 a @1"),
    "leaves and enters": Case(
        rows="< 1 a @1; > 1 x @1; < 1 x @2; > 1 b @2",
        append="I 1 b @2",
        upsert="> 1 b @2",
        net="< 1 a @2; > 1 b @2",
        full="D 1 a @1; I 1 b @2",
    ),
    "enters and leaves": Case(
        rows="< 1 x @1; > 1 a @1; < 1 a @2; > 1 x @2", append="I 1 a @1", full="I 1 a @1; D 1 a @2"
    ),
    "deleted outside": Case(rows="< 1 a @1; > 1 x @1; D 1 x @2", net="D 1 a @1", full="D 1 a @1"),
    "NULL is outside": Case(rows="< 1 - @1; > 1 a @1", append="I 1 a @1", upsert="I 1 a @1", net="I 1 a @1",
                            full="I 1 a @1"),
    "a key changes": Case(
        rows="< 1 a @1; > 2 a @1", append="I 2 a @1", upsert="I 2 a @1", net="D 1 a @1; I 2 a @1",
        full="D 1 a @1; I 2 a @1",
    ),
    "a key goes on to another row": Case(
        rows="D 1 b @1; < 2 a @1; > 1 a @1", upsert="> 1 a @1", net="< 1 b @1; > 1 a @1; D 2 a @1",
        full="< 1 b @1; > 1 a @1; D 2 a @1",
    ),
    "deleted and inserted in one version": Case(
        rows="D 1 a @1; I 1 b @1", append="I 1 b @1", upsert="> 1 b @1", net="< 1 a @1; > 1 b @1"
    ),
    "an update of nothing": Case(rows="< 1 a @1; > 1 a @1"),
    "inserted twice, as told where deletes are skipped": Case(
        rows="I 1 x @1; I 1 a @2", append="I 1 a @2", upsert="I 1 a @2", net="I 1 a @2", full="I 1 a @2"
    ),
}  # fmt: skip


def change_rows(spark: SparkSession, cases: Iterable[tuple[str, Rows]]) -> DataFrame:
    """Return change rows written as above; the time of a version is so many seconds after 1970."""
    data = []
    for case, text in cases:
        for kind, key, value, at in _parts(text):
            version, _, order = at[1:].partition("/")
            row = (case, None if key == "-" else int(key), None if value == "-" else value)
            data.append((*row, TYPES.get(kind, kind), int(version), None, int(order or version)))
    return spark.createDataFrame(data, DDL).selectExpr(
        "* EXCEPT (_commit_timestamp)", "timestamp_seconds(_commit_version) AS _commit_timestamp"
    )


def ask(rows: DataFrame, query: str, columns: Iterable[str] = COLUMNS, **options: Any) -> DataFrame:
    wanted = QueryOptions(query=query, **options)  # type: ignore[arg-type]
    return answer(rows, wanted, source="/lake/t", versions="versions 0-10", columns=list(columns))


def told(found: DataFrame) -> dict[str, list[str]]:
    """Return an answer as the cases write it."""
    letters = {name: letter for letter, name in TYPES.items()}
    cases: dict[str, list[str]] = defaultdict(list)
    for row in found.selectExpr("*", "unix_seconds(_commit_timestamp) AS seconds").collect():
        assert row["seconds"] == row["_commit_version"], row
        value = "-" if row["v"] is None else row["v"]
        kind = letters[row["_change_type"]]
        cases[row["case"]].append(f"{kind} {row['id']} {value} @{row['_commit_version']}")
    return {case: sorted(rows) for case, rows in cases.items()}


@dataclass
class Answers:
    """Answers by query, each computed once for all cases."""

    ask: Callable[[str], DataFrame]
    known: dict[str, dict[str, list[str]]] = field(default_factory=dict)

    def to(self, query: str, case: str) -> list[str]:
        if query not in self.known:
            self.known[query] = told(self.ask(query))
        return self.known[query].get(case, [])


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> Answers:
    rows = change_rows(spark, [(name, case.rows) for name, case in CASES.items()])
    keys = {"upsert": ("CASE", "Id"), "min_delta": ("case", "id")}
    return Answers(lambda query: ask(rows, query, keys=keys.get(query, ())))


@pytest.fixture(scope="module")
def filtered(spark: SparkSession) -> Answers:
    rows = change_rows(spark, [(name, case.rows) for name, case in FILTERED.items()])
    return Answers(lambda query: ask(rows, query, keys=("case", "id"), where="v NOT LIKE 'x%'"))


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("case", CASES)
def test_an_answer(plain: Answers, case: str, query: str) -> None:
    assert plain.to(query, case) == CASES[case].expected(query)


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize("case", FILTERED)
def test_an_answer_through_a_filter(filtered: Answers, case: str, query: str) -> None:
    assert filtered.to(query, case) == FILTERED[case].expected(query)


def test_an_answer_has_the_columns_of_the_table_and_three_more(spark: SparkSession) -> None:
    rows = change_rows(spark, [("c", "I 1 a @1")]).withColumn("noise", _lit(1))
    for query in QUERIES:
        for where in (None, "id > 0"):
            found = ask(rows, query, keys=("id",), where=where)
            assert [f"{f.name} {f.dataType.simpleString()}" for f in found.schema] == [
                "case string", "id int", "v string", "_change_type string", "_commit_version bigint",
                "_commit_timestamp timestamp",
            ]  # fmt: skip


def test_a_projection_acts_on_states(spark: SparkSession) -> None:
    rows = change_rows(spark, [("c", "< 1 a @1; > 1 A @1; < 2 a @1; > 2 b @1")])
    options: dict[str, Any] = {"select": ("case", "id", "lower(v) AS v"), "keys": ("id",)}
    assert told(ask(rows, "min_delta", **options)) == {"c": ["< 2 a @1", "> 2 b @1"]}
    assert told(ask(rows, "upsert", **options)) == {"c": ["> 2 b @1"]}
    assert told(ask(rows, "full_delta", **options)) == {"c": ["< 1 a @1", "< 2 a @1", "> 1 a @1", "> 2 b @1"]}
    starred = ask(rows, "full_delta", select=("*", "id + 1 AS next"))
    assert starred.columns[:4] == ["case", "id", "v", "next"]


def test_row_ids_stand_in_for_keys(spark: SparkSession) -> None:
    rows = change_rows(spark, [("c", "< 1 a @5/9; > 2 a @5/9; D 7 a @9/9; I 7 a @6/9")])
    ids = rows.withColumn(ROW_ID, _expr("IF(id = 7, ascii(substr(_change_type, 1, 1)), 0)"))
    found = answer(ids, QueryOptions(query="min_delta"), source="t", versions="v", columns=COLUMNS)
    assert found.columns == [*COLUMNS, "_change_type", "_commit_version", "_commit_timestamp"]
    assert told(found) == {"c": sorted(["< 1 a @5", "> 2 a @5", "D 7 a @9", "I 7 a @6"])}


#: Change rows; the wide rows of ``full_delta`` and of ``min_delta``; the inserts that survive. ``~`` is an
#: update, with the old and the new value.
SHAPES = {
    "one history": (
        "I 1 a @1; < 1 a @2; > 1 b @2; < 1 b @4; > 1 c @4",
        "I 1 -/a @1; ~ 1 a/b @2; ~ 1 b/c @4",
        "I 1 -/c @4",
        "I 1 a @1",
    ),
    "it existed before": ("< 1 a @2; > 1 b @2; D 1 b @3", "~ 1 a/b @2; D 1 b/- @3", "D 1 a/- @3", ""),
    "gone, and back in another version": (
        "I 1 a @1; D 1 a @3; I 1 b @5",
        "I 1 -/a @1; D 1 a/- @3; I 1 -/b @5",
        "I 1 -/b @5",
        "I 1 b @5",
    ),
    "gone, and back in one version": ("D 1 a @3; I 1 b @3", "~ 1 a/b @3", "~ 1 a/b @3", "I 1 b @3"),
    "inserted, and replaced in one version": (
        "I 1 a @1; D 1 a @3; I 1 b @3",
        "I 1 -/a @1; ~ 1 a/b @3",
        "I 1 -/b @3",
        "I 1 b @3",
    ),
    "gone for good": ("I 1 a @1; D 1 a @2", "I 1 -/a @1; D 1 a/- @2", "", ""),
    "an update of nothing": ("< 1 a @1; > 1 a @1", "~ 1 a/a @1", "", ""),
    "another key": (
        "I 1 a @1; < 1 a @2; > 2 a @2",
        "I 1 -/a @1; D 1 a/- @2; I 2 -/a @2",
        "I 2 -/a @2",
        "I 2 a @2",
    ),
    "NULL values": (
        "< 1 - @1; > 1 a @1; I 2 - @1",
        "~ 1 -/a @1; I 2 -/- @1",
        "~ 1 -/a @1; I 2 -/- @1",
        "I 2 - @1",
    ),
}


def test_wide_rows_and_inserts_that_survive(spark: SparkSession) -> None:
    rows = change_rows(spark, [(name, case[0]) for name, case in SHAPES.items()])
    keys = ("case", "id")
    found = [_wide(ask(rows, query, keys=keys, wide=True)) for query in ("full_delta", "min_delta")]
    surviving = Answers(lambda query: ask(rows, query, keys=keys, only_surviving=True))
    for name, (_, full, net, last) in SHAPES.items():
        wanted = [
            sorted(part.strip() for part in text.split(";") if part.strip()) for text in (full, net, last)
        ]
        assert [*(one.get(name, []) for one in found), surviving.to("append_only", name)] == wanted, name


def _wide(found: DataFrame) -> dict[str, list[str]]:
    letters = {"insert": "I", "update": "~", "delete": "D"}
    lines_of: dict[str, list[str]] = defaultdict(list)
    assert found.columns == ["old", "new", "_change_type", "_commit_version", "_commit_timestamp"]
    for old, new, kind, version, _ in found.collect():
        assert (kind == "insert") == (old is None)
        assert (kind == "delete") == (new is None)
        values = "/".join("-" if state is None or state["v"] is None else state["v"] for state in (old, new))
        state = new or old
        lines_of[state["case"]].append(f"{letters[kind]} {state['id']} {values} @{version}")
    return {case: sorted(lines) for case, lines in lines_of.items()}


def test_columns_of_row_tracking_are_no_change(spark: SparkSession) -> None:
    """They are in each state, and a change of them alone is no change of the row."""
    rows = change_rows(spark, [("c", "< 1 a @1; > 1 a @1; < 2 a @1; > 2 b @1; D 3 a @1; I 3 a @1")])
    ids = rows.withColumns({ROW_ID: _expr("id * 10L"), ROW_VERSION: _expr("IF(_change_type IN "
        "('delete', 'update_preimage'), 0L, _commit_version)")})  # fmt: skip
    found = ask(ids, "min_delta", keys=("id",), row_ids=True)
    assert found.columns[:5] == [*COLUMNS, "_row_id", "_row_commit_version"]
    assert sorted(tuple(row[1:5]) for row in found.collect()) == [(2, "a", 20, 0), (2, "b", 20, 1)]
    wide = ask(ids, "min_delta", keys=("id",), row_ids=True, wide=True)
    assert [(tuple(row["old"]), tuple(row["new"])) for row in wide.collect()] == [
        (("c", 2, "a", 20, 0), ("c", 2, "b", 20, 1))
    ]


def test_names_that_need_quoting(spark: SparkSession) -> None:
    rows = change_rows(spark, [("c", "< 1 a @1; > 1 b @1; I 2 c @1")]).withColumnsRenamed(
        {"case": "a.b", "id": "the `id`", "v": "x y"}
    )
    columns = ["a.b", "the `id`", "x y"]
    for query, where, count in (
        ("full_delta", None, 3),
        ("append_only", "`x y` <> ''", 1),
        ("upsert", None, 2),
        ("min_delta", "`a.b` = 'c'", 3),
    ):
        found = ask(rows, query, columns, keys=("A.B", "the `id`"), where=where)
        assert found.columns[:3] == columns
        assert found.count() == count, query


def test_values_without_an_order_are_compared_by_content(spark: SparkSession) -> None:
    values = """
        (1, map('a', 1, 'b', 2), parse_json('{"n": [1]}'), -0.0D, named_struct('m', map(1, array(1D)))),
        (1, map('b', 2, 'a', 1), parse_json('{"n": [1]}'), 0.0D,  named_struct('m', map(1, array(1D)))),
        (2, map('a', 1),         parse_json('{"n": [1]}'), 1.0D,  NULL),
        (2, map('a', 2),         parse_json('{"n": [1]}'), 1.0D,  NULL),
        (3, map('a', 1),         parse_json('{"n": [1]}'), double('NaN'), NULL),
        (3, map('a', 1),         parse_json('{"n": [1]}'), double('NaN'), NULL),
        (4, NULL,                parse_json('{"n": [1]}'), 1.0D,  NULL),
        (4, NULL,                parse_json('{"n": [2]}'), 1.0D,  NULL),
        (5, map(),               parse_json('null'),       1.0D,  NULL),
        (5, NULL,                parse_json('null'),       1.0D,  NULL)"""
    table = spark.sql(
        f"SELECT *, monotonically_increasing_id() % 2 = 0 AS old FROM VALUES {values} t(id, m, j, d, s)"
    )
    table = spark.createDataFrame([], table.schema).union(table.coalesce(1))
    moved = table.selectExpr(
        "id", "m", "j", "d", "s", "IF(old, 'delete', 'insert') AS _change_type", "1L AS _commit_version",
        "timestamp_seconds(1) AS _commit_timestamp", f"1L AS {ORDER}",
    )  # fmt: skip
    columns = ["id", "m", "j", "d", "s"]
    net = ask(moved, "min_delta", columns, keys=("id",))
    assert sorted(row["id"] for row in net.select("id").collect()) == [2, 2, 4, 4, 5, 5]
    stay = drop_carry_over(moved, columns)
    assert stay.columns == moved.columns
    assert sorted(row["id"] for row in stay.select("id").collect()) == [2, 2, 4, 4, 5, 5]


def test_carried_over_rows_go_in_pairs(spark: SparkSession) -> None:
    """Of k deletes and m inserts of one row in one version, the smaller number of each goes."""
    cases = {
        "moved": ("D 1 a @1; I 1 a @1", ""),
        "changed": ("D 1 a @1; I 1 b @1", "D 1 a @1; I 1 b @1"),
        "NULL moved": ("D - - @1; I - - @1", ""),
        "NULL is no text": ("D 1 - @1; I 1 NULL @1", "D 1 - @1; I 1 NULL @1"),
        "three left, one came": ("D 1 a @1; I 1 a @1; D 1 a @1; D 1 a @1", "D 1 a @1; D 1 a @1"),
        "one left, two came": ("I 1 a @1; D 1 a @1; I 1 a @1", "I 1 a @1"),
        "in another version": ("D 1 a @1; I 1 a @2", "D 1 a @1; I 1 a @2"),
        "an update": ("< 1 a @1; > 1 a @1; D 1 a @1; I 1 a @1", "< 1 a @1; > 1 a @1"),
    }
    rows = change_rows(spark, [(name, text) for name, (text, _) in cases.items()])
    left = drop_carry_over(rows, COLUMNS)
    assert left.columns == rows.columns
    found = told(left.selectExpr("* EXCEPT (id)", "ifnull(string(id), '-') AS id"))
    for name, (_, rest) in cases.items():
        assert found.get(name, []) == Case(rows=rest).expected("full_delta"), name


def test_one_shuffle_and_none_without_keys(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    rows = change_rows(spark, [("c", "I 1 a @1")])
    for query in QUERIES:
        for where in (None, "id > 0"):
            found = ask(rows, query, keys=("case", "id"), where=where)
            capsys.readouterr()
            found.explain()
            exchanges = capsys.readouterr().out.count("Exchange hashpartitioning")
            assert exchanges == (1 if query in ("upsert", "min_delta") or where else 0), (query, where)
    for query, given in PAIRED.items():
        ask(rows, query, keys=("case", "id"), **given).explain()
        assert capsys.readouterr().out.count("Exchange hashpartitioning") == 1, query


BAD_ROWS = [
    ("two inserts in one version", "I 5 a @1; I 5 b @1", KeyNotUnique, "c = c, id = 5, version 1"),
    ("two post-images", "< 5 a @1; > 5 b @1; > 5 c @1", KeyNotUnique, "version 1"),
    ("two pre-images", "< 5 a @1; < 5 b @1; > 5 c @1", KeyNotUnique, "version 1"),
    ("two updates", "< 5 a @1; > 5 b @1; < 5 c @1; > 5 d @1", KeyNotUnique, "version 1"),
    ("inserted beside a living row", "I 5 a @1; I 5 b @2", KeyNotUnique, "version 2"),
    ("deleted twice", "D 5 a @1; D 5 b @2", KeyNotUnique, "version 2"),
    ("a balance of one row", "I 5 a @1; I 5 b @2; D 5 a @3; D 5 b @4", KeyNotUnique, "version"),
    ("NULL as a key", "I - a @1", NullKey, "id = NULL, version 1"),
    ("an unknown type", "upsert 5 a @1", WrongReader, "_change_type upsert, version 1"),
]


REFUSED = [("min_delta", *bad) for bad in BAD_ROWS] + [
    ("upsert", *bad) for bad in (BAD_ROWS[3], *BAD_ROWS[-2:])
]


@pytest.mark.parametrize(
    ("query", "name", "rows", "error", "text"),
    REFUSED,
    ids=[f"{query}: {name}" for query, name, *_ in REFUSED],
)
def test_rows_that_cannot_be_right_are_refused_by_name(
    spark: SparkSession, query: str, name: str, rows: Rows, error: type[Exception], text: str
) -> None:
    found = ask(change_rows(spark, [("c", rows)]).withColumnRenamed("case", "c"), query, ("c", "id", "v"),
                keys=("c", "id"))  # fmt: skip
    with pytest.raises(Exception, match=f"{error.__name__}: /lake/t, versions 0-10: ") as caught:
        found.count()
    named = named_in_plan(caught.value)
    assert type(named) is error
    assert text in named.message
    assert named.remedy.endswith(".")
    assert "SQLSTATE" not in str(named)


PAIRED = {"full_delta": {"wide": True}, "append_only": {"only_surviving": True}}


@pytest.mark.parametrize("query", slow_but(PAIRED, "full_delta"))
def test_states_are_never_paired_by_guessing(spark: SparkSession, query: str) -> None:
    """Also if the two rows of a key come from two versions: a delete could be of either of them."""
    for name, rows, error, text in BAD_ROWS:
        found = ask(change_rows(spark, [("c", rows)]), query, keys=("id",), **PAIRED[query])
        with pytest.raises(Exception, match=f"{error.__name__}: /lake/t, versions 0-10: ") as caught:
            found.collect()
        named = named_in_plan(caught.value)
        assert type(named) is error, name
        assert text.removeprefix("c = c, ") in named.message


@pytest.mark.parametrize("query", slow_but(["full_delta", "append_only"], "append_only"))
def test_unknown_types_and_doubled_keys_of_queries_per_version(spark: SparkSession, query: str) -> None:
    unknown = change_rows(spark, [("c", "upsert 5 a @1; I 6 a @1")])
    doubled = change_rows(spark, [("c", "I 5 a @1; I 5 b @1")])
    keyed: dict[str, Any] = {"keys": ("id",), "where": "v <> ''"}
    for found, error in (
        (ask(unknown, query), WrongReader),
        (ask(unknown, query, **keyed), WrongReader),
        (ask(doubled, query, **keyed), KeyNotUnique),
    ):
        with pytest.raises(Exception, match=r"USER_RAISED_EXCEPTION") as caught:
            found.collect()
        assert type(named_in_plan(caught.value)) is error
    assert ask(doubled, query).count() == 2
    assert named_in_plan(ValueError("KeyNotUnique: of somebody else")) is None


def test_raw_is_what_the_feed_holds(spark: SparkSession) -> None:
    rows = change_rows(spark, [("c", "upsert 5 a @1; D 1 a @1; I 1 a @1")])
    assert ask(rows, "full_delta", raw=True).count() == 3


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"query": "upsert", "keys": ("nope",)}, ColumnNotFound, "'nope'"),
        ({"query": "upsert", "keys": ("id",), "select": ("v",)}, ColumnNotFound, "'id'"),
        ({"query": "upsert"}, InvalidConfiguration, "keys"),
        ({"query": "min_delta"}, InvalidConfiguration, "keys"),
        ({"query": "full_delta", "wide": True}, InvalidConfiguration, "keys"),
        ({"query": "append_only", "only_surviving": True}, InvalidConfiguration, "keys"),
        ({"query": "upsert", "keys": ("m",), "select": ("map(id, v) AS m",)}, InvalidExpression, "map<int"),
        ({"query": "full_delta", "keys": ("id",), "where": "nope = 1"}, InvalidExpression, "where"),
        ({"query": "full_delta", "keys": ("id",), "where": "_change_type = ''"}, InvalidExpression, "where"),
        ({"query": "full_delta", "keys": ("id",), "where": "id > rand()"}, InvalidExpression, "rand"),
        ({"query": "full_delta", "select": (f"{ORDER} AS x",)}, InvalidExpression, "select"),
        ({"query": "full_delta", "select": ("now() AS x",)}, InvalidExpression, "now"),
        ({"query": "full_delta", "select": ("id", "v AS ID")}, InvalidExpression, "more than once"),
        ({"query": "full_delta", "select": ("id AS _change_type",)}, ReservedColumnName, "_change_type"),
        ({"query": "full_delta", "select": ("id AS __delta_cdc_x",)}, ReservedColumnName, "__delta_cdc_x"),
    ],
)  # fmt: skip
def test_what_is_refused_before_any_row_is_read(
    spark: SparkSession, options: dict[str, Any], error: type[Exception], word: str
) -> None:
    with pytest.raises(error, match=word.replace("(", r"\(")):
        ask(change_rows(spark, [("c", "I 1 a @1")]), **options)


def _lit(value: Any) -> Any:
    from pyspark.sql import functions as F

    return F.lit(value)


def _expr(text: str) -> Any:
    from pyspark.sql import functions as F

    return F.expr(text)
