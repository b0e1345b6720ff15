"""Whether a text is exactly one JSON value: Python's own parser says the same of random texts."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from delta_cdc.spark.ingest.adapters import values

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED, COUNT = 20261124, 6000
#: Parts of which texts are drawn: values, what could end or extend the wrapper, and the wrapper's own end.
PARTS = (
    *("1", "-0.5e3", "01", '"a"', '""', "null", "true", "NaN", "'a'", "[1]", "[]", "{}", '{"a":1}'),
    *('{"a":1,"a":2}', ",", ",", ":", "]", "[", "],[", "}", "{", '{"v":', '},{"v":', " ", "\n", "\t", "//"),
    *(f'"{values._END}"', f',"{values._END}"', f',"{values._END}"]', f'],["{values._END}"'),
    *('"\\u005f_delta_cdc_end"', ',"\\u005f_delta_cdc_end"]', '"\\u00e9"', '"\\x"', "\\u", '"\x01"'),
)
#: Each would be taken for one value by a reader that only looks whether its wrapper can be parsed.
TRAPS = (
    *("1,2", "1],[2", '1},{"v":2', '1,"w":2', "", " ", "[1],[2]", f'1,"{values._END}"', "1]", "1}"),
    *(f'1,"{values._END}"],[1', '1,"\\u005f_delta_cdc_end"],[1', f'1,"{values._END}",2', f'"{values._END}"'),
)


def is_value(text: str) -> bool:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len(dict(pairs)) < len(pairs):
            raise ValueError("a name twice")
        return dict(pairs)

    def never(name: str) -> None:
        raise ValueError(name)

    try:
        json.loads(text, object_pairs_hook=once, parse_constant=never)
    except ValueError:
        return False
    return True


def test_a_text_is_one_value_where_pythons_parser_says_so(spark: SparkSession) -> None:
    draw = random.Random(SEED)
    drawn = {"".join(draw.choices(PARTS, k=draw.randint(1, 5))) for _ in range(COUNT)}
    texts = sorted({*TRAPS, *drawn})
    frame = spark.createDataFrame([(text,) for text in texts], "text STRING")
    found = frame.select("text", values.is_json_value(frame.text).alias("is_value")).collect()
    wrong = [row for row in found if row["is_value"] != is_value(row["text"])]
    assert not wrong, f"seed {SEED}: {wrong[:5]}"
    assert sum(map(is_value, texts)) > 50
    null = F.lit(None).cast("string")
    assert spark.range(1).select(values.is_json_value(null)).collect()[0][0] is False
