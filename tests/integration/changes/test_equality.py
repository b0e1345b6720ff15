"""The equality of variants against a plain model: pairs drawn from a seed, all in one plan."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc import read_changes
from delta_cdc.spark.changes.equality import comparable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Leaves that look alike: SQL -> what it is in the model, a type and a value.
ALIKE: list[dict[str, Any]] = [
    {"DATE'2020-01-01'": ("date", 1), "'2020-01-01'": ("text", 1)},
    {
        "1.5D": ("double", 1.5),
        "1.5F": ("float", 1.5),
        "1.5BD": ("decimal", 1.5),
        "CAST(1.5 AS DECIMAL(30, 9))": ("decimal", 1.5),
        "'1.5'": ("text", 1.5),
    },
    {"X'AB'": ("binary", 0xAB), "'qw=='": ("text", 0xAB)},
    {
        "1Y": ("integer", 1),
        "1L": ("integer", 1),
        "CAST(1 AS DECIMAL(3, 2))": ("decimal", 1),
        "CAST(1 AS DECIMAL(38, 0))": ("decimal", 1),
        "1D": ("double", 1.0),
        "1F": ("float", 1.0),
        "'1'": ("text", 1),
        "true": ("boolean", True),
    },
    {
        "TIMESTAMP'2020-01-01 00:00:00Z'": ("timestamp", 0),
        "TIMESTAMP'2020-01-01 01:00:00+01:00'": ("timestamp", 0),
        "TIMESTAMP_NTZ'2020-01-01 00:00:00'": ("wall", 0),
        "'2020-01-01 00:00:00'": ("text", "wall"),
        "'2020-01-01 00:00:00+00:00'": ("text", "timestamp"),
        "DATE'2020-01-01'": ("date", 1),
    },
    {
        "double('NaN')": ("double", "NaN"),
        "float('NaN')": ("float", "NaN"),
        "'NaN'": ("text", "NaN"),
        "double('Infinity')": ("double", "Infinity"),
        "'Infinity'": ("text", "Infinity"),
    },
    {"parse_json('null')": ("null", None), "'null'": ("text", None), "true": ("boolean", True)},
    {"1e20D": ("double", 1e20), "1e20F": ("float", 1e20), "100000000000000000000BD": ("decimal", 1e20)},
    {"''": ("text", ""), "'[1]'": ("text", "[1]"), "'{}'": ("text", "{}"), "'ARRAY<DOUBLE>'": ("text", 0)},
]
LEAVES = [(sql, value) for group in ALIKE for sql, value in group.items()]
OF_GROUP = [[(sql, value) for sql, value in group.items()] for group in ALIKE]
#: Documents of up to four leaves: SQL, and what it is in the model.
SHAPES: list[tuple[str, Any]] = [
    ("l0", lambda a, *_: a),
    ("CAST(NULL AS VARIANT)", lambda *_: ("NULL",)),
    ("parse_json('[]')", lambda *_: []),
    ("parse_json('{}')", lambda *_: {}),
    ("CAST(array(l0, l1) AS VARIANT)", lambda a, b, *_: [a, b]),
    ("CAST(array(l0, l1, l2, l3) AS VARIANT)", lambda *leaves: [*leaves]),
    ("to_variant_object(named_struct('a', l0, 'b', l1))", lambda a, b, *_: {"a": a, "b": b}),
    ("to_variant_object(named_struct('b', l1, 'a', l0))", lambda a, b, *_: {"a": a, "b": b}),
    ("to_variant_object(named_struct('a', l0, 'B', l1))", lambda a, b, *_: {"a": a, "B": b}),
    (
        "to_variant_object(array(named_struct('a', l0), named_struct('a', l1)))",
        lambda a, b, *_: [{"a": a}, {"a": b}],
    ),
    (
        "to_variant_object(named_struct('DECIMAL', array(array(l0, l1), array(l2)), 'x y', l3))",
        lambda a, b, c, d: {"DECIMAL": [[a, b], [c]], "x y": d},
    ),
    (
        "to_variant_object(array(array(array(array(named_struct('`>', array(l0, l1)))))))",
        lambda a, b, *_: [[[[{"`>": [a, b]}]]]],
    ),
]


def leaf(code: str) -> str:
    """Return SQL of the leaf with a number."""
    cases = " ".join(f"WHEN {number} THEN CAST({sql} AS VARIANT)" for number, (sql, _) in enumerate(LEAVES))
    return f"CASE {code} {cases} END"


def document(side: str) -> str:
    """Return SQL of a document: the columns of a side have its shape and the numbers of its leaves."""
    cases = " ".join(f"WHEN {number} THEN {sql}" for number, (sql, _) in enumerate(SHAPES))
    for number in range(4):
        cases = cases.replace(f"l{number}", f"{side}{number}")
    return f"CASE {side}shape {cases} END"


def drawn_pair(draw: random.Random) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Draw two documents, as a shape and four leaves, that are often equal, or differ in what looks alike."""
    numbers = {sql_and_value[0]: number for number, sql_and_value in enumerate(LEAVES)}
    # Leaves of one document look alike, too: so arrays have elements of several types.
    group = draw.choice(OF_GROUP)
    left = [numbers[draw.choice(draw.choice([group, group, draw.choice(OF_GROUP)]))[0]] for _ in range(4)]
    right = list(left)
    for _ in range(draw.choice([0, 1, 1, 2])):
        at = draw.randrange(4)
        alike = next(group for group in OF_GROUP if LEAVES[left[at]] in group)
        right[at] = numbers[draw.choice(alike)[0]]
    shape = draw.randrange(len(SHAPES))
    other = draw.randrange(len(SHAPES)) if draw.random() < 0.2 else shape
    return (shape, *left), (other, *right)


def meaning(drawn: tuple[int, ...]) -> Any:
    shape, *leaves = drawn
    return SHAPES[shape][1](*[LEAVES[number][1] for number in leaves])


@pytest.mark.parametrize("count", [500, pytest.param(100_000, marks=pytest.mark.slow)])
def test_variants_are_equal_by_type_and_value(spark: SparkSession, count: int) -> None:
    """Alone, and as a field, an element and a value of a map."""
    draw = random.Random(count)
    pairs = [drawn_pair(draw) for _ in range(count)]
    names = [f"{side}{name}" for side in "lr" for name in ("shape", 0, 1, 2, 3)]
    schema = T.StructType([T.StructField(name, T.IntegerType()) for name in ("id", *names)])
    rows = spark.createDataFrame([(at, *left, *right) for at, (left, right) in enumerate(pairs)], schema)
    leaves = {f"{side}{number}": F.expr(leaf(f"{side}{number}")) for side in "lr" for number in range(4)}
    documents = rows.withColumns(leaves).selectExpr("id", f"{document('l')} AS l", f"{document('r')} AS r")
    variant = T.VariantType()
    nested = T.StructType(
        [
            T.StructField("v", variant),
            T.StructField("l", T.ArrayType(variant)),
            T.StructField("m", T.MapType(T.StringType(), variant)),
        ]
    )
    sides = [
        documents.selectExpr(
            "id", f"{side} AS v", f"named_struct('v', {side}, 'l', array({side}), 'm', map('k', {side})) AS n"
        ).selectExpr("id", f"{comparable('v', variant)} AS v", f"{comparable('n', nested)} AS n")
        for side in "lr"
    ]
    joined = sides[0].alias("l").join(sides[1].alias("r"), "id")
    found = joined.selectExpr("id", "l.v <=> r.v AS v", "l.n <=> r.n AS n").collect()
    expected = [repr(meaning(left)) == repr(meaning(right)) for left, right in pairs]
    assert {True, False} == set(expected)
    wrong = [(pairs[row["id"]], row) for row in found if (row["v"], row["n"]) != (expected[row["id"]],) * 2]
    assert not wrong, [(meaning(left), meaning(right), row) for (left, right), row in wrong[:5]]
    assert len(found) == count


@pytest.mark.slow
def test_a_change_of_type_alone_is_a_net_change(spark: SparkSession, tmp_path: Path) -> None:
    """An integer of another width is no change."""
    source = str(tmp_path / "source")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, v VARIANT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    values = "(1, CAST(DATE'2020-01-01' AS VARIANT)), (2, CAST(1Y AS VARIANT))"
    spark.sql(f"INSERT INTO delta.`{source}` VALUES {values}")
    spark.sql(
        f"UPDATE delta.`{source}` SET v = CASE id WHEN 1 THEN CAST('2020-01-01' AS VARIANT) "
        "ELSE CAST(1L AS VARIANT) END"
    )
    found = read_changes(spark, source, starting_version=2, query="min_delta", keys="id").collect()
    kinds = [(row["id"], row["_change_type"]) for row in found]
    assert sorted(kinds) == [(1, "update_postimage"), (1, "update_preimage")]
