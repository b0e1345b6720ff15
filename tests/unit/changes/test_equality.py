"""SQL that gives a value the type of the values that it meets."""

from __future__ import annotations

import pytest
from pyspark.sql import types as T

from delta_cdc.spark.changes.equality import comparable, conformed

INT, TEXT = T.IntegerType(), T.StringType()


def struct(*fields: tuple[str, T.DataType], nullable: bool = True) -> T.StructType:
    return T.StructType([T.StructField(name, kind, nullable) for name, kind in fields])


PAIR_TYPES = (("a", INT), ("b", TEXT))
PAIR = struct(*PAIR_TYPES)


@pytest.mark.parametrize(
    ("found", "wanted"),
    [
        (INT, INT),
        (PAIR, struct(("a", INT), ("b", TEXT), nullable=False)),
        (T.ArrayType(PAIR, False), T.ArrayType(PAIR)),
        (T.MapType(PAIR, PAIR, False), T.MapType(PAIR, PAIR)),
        (PAIR, T.StructType([T.StructField("a", INT, True, {"comment": "x"}), T.StructField("b", TEXT)])),
    ],
)
def test_a_value_of_the_same_type_stays_as_it_is(found: T.DataType, wanted: T.DataType) -> None:
    assert conformed("t.`v`", found, wanted) == "t.`v`"


def test_a_value_that_spark_compares_stays_as_it_is() -> None:
    assert comparable("`v`", T.ArrayType(PAIR)) == "`v`"
    assert comparable("`v`", PAIR, PAIR) == "`v`"


def test_fields_match_by_name() -> None:
    found, wanted = struct(("B", TEXT), ("x.`y", INT)), struct(("x.`y", INT), ("c", INT), ("b", TEXT))
    names = ["`v`.`x.``y` AS `x.``y`", "CAST(NULL AS int) AS `c`", "`v`.`B` AS `b`"]
    expected = f"CASE WHEN `v` IS NOT NULL THEN struct({', '.join(names)}) END"
    assert conformed("`v`", found, wanted) == comparable("`v`", found, wanted) == expected


def test_lambdas_in_lambdas_have_names_of_their_own() -> None:
    found, wanted = (T.ArrayType(T.MapType(TEXT, struct(*pair))) for pair in (PAIR_TYPES, PAIR_TYPES[::-1]))
    inner = "CASE WHEN e1.value IS NOT NULL THEN struct(e1.value.`b` AS `b`, e1.value.`a` AS `a`) END"
    entries = f"transform(map_entries(e0), e1 -> struct(e1.key, {inner}))"
    assert conformed("v", found, wanted) == f"transform(v, e0 -> map_from_entries({entries}))"
    assert comparable("v", found, wanted) == f"transform(v, e0 -> array_sort({entries}))"


def test_a_missing_field_has_its_whole_type() -> None:
    wanted = struct(("m", T.MapType(TEXT, T.ArrayType(struct(("x y", T.DecimalType(9, 2)))))))
    expected = "CAST(NULL AS MAP<string, ARRAY<STRUCT<`x y`: decimal(9,2)>>>)"
    assert expected in conformed("v", struct(("a", INT)), wanted)
