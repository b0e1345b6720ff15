"""The short ways for usual values give what the general rules give: plain Python says so of random values."""

from __future__ import annotations

import json
import random
import re
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.spark.changes.equality import is_list_of
from delta_cdc.spark.ingest.adapters import parsing, values
from tests.integration.ingest.test_json_values import is_value

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

SEED = 20261124
#: UTF-8 and UTF-16 sort the last two in another order.
NAMES = ("id", "ID", "v", "v2", "größe", "\uffee", "\U0001f600")


def test_a_record_is_complete_exactly_if_it_has_all_names(spark: SparkSession) -> None:
    draw = random.Random(SEED)
    lists: list[Sequence[str | None] | None] = [None, [], [*NAMES], [*reversed(NAMES)], [*NAMES[1:], "id2"]]
    for _ in range(2000):
        names: list[str | None] = draw.sample(NAMES, draw.choice((len(NAMES), len(NAMES), len(NAMES) - 1)))
        if draw.random() < 0.5:
            names[draw.randrange(len(names))] = draw.choice((*NAMES, "x", None))
        lists.append(names)
    rows = spark.createDataFrame(list(enumerate(lists)), "i int, names array<string>")
    found = {row[0]: row[1] for row in rows.select("i", is_list_of(F.col("names"), NAMES)).collect()}
    wanted = {
        at: None if names is None else len(names) == len(NAMES) and set(names) == set(NAMES)
        for at, names in enumerate(lists)
    }
    assert found == wanted
    assert {True, False, None} == set(wanted.values())


def test_a_list_with_a_collation_is_compared_exactly(spark: SparkSession) -> None:
    collated = "CAST({} AS array<string COLLATE UTF8_LCASE>) AS names"
    for names, wanted in (("array('v', 'id')", True), ("array('V', 'id')", False), ("NULL", None)):
        rows = spark.sql(f"SELECT {collated.format(names)}")
        assert rows.select(is_list_of(F.col("names"), ("id", "v"))).collect()[0][0] is wanted


def test_a_usual_record_is_one_object_of_pythons_parser(spark: SparkSession) -> None:
    """Damaged records: each one that needs no further check is valid, and has each column once."""
    draw = random.Random(SEED)
    columns = ["a", "b"]
    kinds = ("1", "-0.5e3", "01", '"x"', '"ü"', "null", "NaN", "'x'", "[1, 2]", "[1", "{}", '"\x01"', "1 2")
    texts = ['{"a":1,"b":"x"}', '{"b":[1,{}],"a":1}', '{"a":1,"b":2} ', '{"a":1,"b":2}{"a":1,"b":2}', ""]
    texts += ['{a:1,"b":2}', '{"a":1,"b":2/*x*/}', '{"a":1,"b":2,}', '{"a":1,"b":2#\n}']
    texts += [f'{{"a":{number},"b":1}}' for number in ("+1", ".5", "1.", "0x1", "Infinity", "1e", "-", "1_0")]
    for _ in range(4000):
        odd = draw.choices(("a", "b", "A", "\\u0061"), k=draw.choice((1, 2, 3)))
        names = draw.choice((["a", "b"], ["b", "a"], odd))
        members = [f'"{name}":{draw.choice((draw.choice(kinds), str(draw.random())))}' for name in names]
        text = "{" + draw.choice((",", ",", ",", ",,", " ")).join(members) + "}"
        if draw.random() < 0.5:
            at = draw.randrange(len(text))
            text = text[:at] + draw.choice(('"', "}", "{", ",", ":", "\\", "\n", "x", "")) + text[at + 1 :]
        texts.append(text)
    rows = spark.createDataFrame(list(enumerate(texts)), "i int, text string")
    names = F.json_object_keys("text")
    found = {
        row[0]: row[1] for row in rows.select("i", parsing.is_usual(F.col("text"), names, columns)).collect()
    }
    usual = [text for at, text in enumerate(texts) if found[at]]
    assert texts[0] in usual
    assert len(set(usual)) > 25
    for text in usual:
        assert is_value(text), text
        assert sorted(json.loads(text)) == columns, text


def test_sequences_of_one_number_and_of_several(spark: SparkSession) -> None:
    draw = random.Random(SEED)
    texts = ["", "0", "9" * 20, "9" * 21, "0" * 21, " 1", "1 ", "-1", "1/", "/1", "1//2", "1\n", "1.5", "١"]
    for _ in range(2000):
        parts = [
            "".join(draw.choices("0123456789", k=draw.randint(1, 22))) for _ in range(draw.randint(1, 3))
        ]
        texts.append(draw.choice("/:").join(parts) + draw.choice(("", "", "", "x")))
    rows = spark.createDataFrame(list(enumerate(texts)), "i int, text string")
    found = {row[0]: row[1] for row in rows.select("i", values.numbers(F.col("text"))).collect()}
    for at, text in enumerate(texts):
        parts = re.split("[/:]", text)
        fits = all(re.fullmatch("[0-9]{1,20}", part) for part in parts)
        assert found[at] == ("/".join(part.zfill(20) for part in parts) if fits else None), text


def test_doubles_fit_exactly_up_to_seventeen_digits(spark: SparkSession) -> None:
    draw = random.Random(SEED)
    texts = [
        "0",
        "-0",
        "-0.0",
        "1.",
        ".5",
        "1e5",
        "1e400",
        "0.00001",
        "1d",
        "1f",
        "0x1p3",
        "--1",
        "1 2",
        "1\n",
    ]
    for _ in range(4000):
        text = "".join(draw.choices("0123456789", k=draw.randint(1, 20)))
        if draw.random() < 0.8:
            text += "." + "".join(draw.choices("0123456789", k=draw.randint(1, 8)))
        texts.append(draw.choice(("", "-", "")) + text + draw.choice(("", "", "", "e3", "x")))
    rows = spark.createDataFrame(list(enumerate(texts)), "i int, text string")
    fitted = values.scalar(F.col("text"), T.DoubleType())
    found = {row[0]: row[1] for row in rows.select("i", fitted).collect()}
    for at, text in enumerate(texts):
        number = re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", text)
        digits = re.sub("[.]", "", number[1]).strip("0") if number else ""
        fits = number is not None and len(digits) <= 17 and abs(float(text)) != float("inf")
        assert found[at] == (float(text) if fits else None), text
