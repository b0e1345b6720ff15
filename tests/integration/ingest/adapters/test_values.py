"""Encodings of values against Python's own decimal and datetime: thousands of them in a job or two."""

from __future__ import annotations

import base64
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from delta_cdc.spark.ingest.adapters import values
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _bytes_of(number: int) -> bytes:
    """Return a whole number as Java's BigInteger writes it: two's complement, no byte too many."""
    return number.to_bytes((8 + (number + (number < 0)).bit_length()) // 8, "big", signed=True)


def test_decimals_in_base64(spark: SparkSession) -> None:
    """Both signs, up to 38 digits, every scale; beyond that nothing fits."""
    made = random.Random(7)
    numbers = [0, 1, -1, 127, 128, -128, -129, 10**38 - 1, 1 - 10**38, 2**127 - 1, -(2**127), 10**38, 2**130]
    for digits in range(1, 39):
        numbers += [made.choice((1, -1)) * made.randrange(10 ** (digits - 1), 10**digits) for _ in range(25)]
    cases = [
        (base64.b64encode(_bytes_of(n)).decode(), made.choice((0, 1, 2, 9, 18, 37, 38)), n) for n in numbers
    ]
    # A writer may also extend the sign.
    cases += [(base64.b64encode((-5).to_bytes(9, "big", signed=True)).decode(), 2, -5)]
    cases += [(base64.b64encode((5).to_bytes(16, "big", signed=True)).decode(), 2, 5)]
    rows = spark.createDataFrame(
        [(c, s, i) for i, (c, s, _) in enumerate(cases)], "text string, scale int, i int"
    )
    text = values.decimal_text(F.unbase64("text"), F.col("scale"))
    found = {row.i: row.t for row in rows.select("i", text.alias("t")).collect()}
    for at, (_, scale, number) in enumerate(cases):
        fits = abs(number) < 10**38
        # Not by arithmetic, which has 28 digits.
        wanted = Decimal(f"{number}E-{scale}") if fits else None
        assert (None if found[at] is None else Decimal(found[at])) == wanted, (number, scale)
    edges = spark.createDataFrame([("", 0), ("AQ==", -3), ("/w==", -2)], "text string, scale int")
    shown = edges.select(values.decimal_text(F.unbase64("text"), F.col("scale"))).collect()
    assert [row[0] for row in shown] == [None, "1E3", "-1E2"]


def test_epochs_and_times_of_day(spark: SparkSession) -> None:
    made = random.Random(11)
    first, last = datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    low, high = (first - EPOCH) // timedelta(microseconds=1), (last - EPOCH) // timedelta(microseconds=1)
    micros = [
        0,
        -1,
        1,
        -1_000_000,
        low,
        high,
        999,
        -999,
        *[made.randrange(low, high + 1) for _ in range(1500)],
    ]
    nanos = [made.randrange(-(2**63), 2**63) for _ in range(500)] + [0, -1, 1, -999, -1000, -1001, 999, 1000]
    days = [
        0,
        -1,
        1,
        (date(1, 1, 1) - EPOCH.date()).days,
        *[made.randrange(-719_162, 2_932_896) for _ in range(500)],
    ]
    clocks = [
        0,
        1,
        86_399_999_999,
        -1,
        3_020_399_000_000,
        *[made.randrange(0, 86_400_000_000) for _ in range(500)],
    ]
    cases = (
        [("us", n) for n in micros]
        + [("ms", n // 1000) for n in micros]
        + [("s", n // 10**6) for n in micros]
    )
    cases += [("ns", n) for n in nanos] + [("days", n) for n in days] + [("time", n) for n in clocks]
    rows = spark.createDataFrame(
        [(i, k, str(n)) for i, (k, n) in enumerate(cases)], "i int, kind string, n string"
    )
    number = F.col("n")
    moment = F.lit(None).cast("timestamp")
    for unit in ("s", "ms", "us", "ns"):
        moment = F.when(F.col("kind") == unit, values.epoch_timestamp(number, unit)).otherwise(moment)
    shown = rows.select(
        "i",
        F.unix_micros(moment).alias("micros"),
        F.when(F.col("kind") == "days", values.epoch_date(number)).alias("day"),
        F.when(F.col("kind") == "time", values.time_of_day(number, "us")).alias("time"),
    ).collect()
    times = {"s": 10**6, "ms": 1000, "us": 1}
    for row in shown:
        kind, given = cases[row.i]
        if kind in times:
            assert row.micros == given * times[kind], (kind, given)
        elif kind == "ns":
            assert row.micros == given // 1000, given
        elif kind == "days":
            assert row.day == EPOCH.date() + timedelta(days=given), given
        else:
            assert row.time == _clock(given), given


def _clock(micros: int) -> str:
    seconds, rest = divmod(abs(micros), 10**6)
    sign = "-" if micros < 0 else ""
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:06d}"


#: Type, text, and the value under CAST to text; None does not fit.
TEXTS: list[tuple[str, str, str | None]] = [
    ("bigint", "9223372036854775807", "9223372036854775807"),
    ("bigint", "9223372036854775808", None),
    ("bigint", "1.5", None),
    ("bigint", "", None),
    ("tinyint", "200", None),
    ("tinyint", "-128", "-128"),
    ("int", " 7 ", "7"),
    ("int", "5x", None),
    ("decimal(10,2)", "1.239", None),
    ("decimal(10,2)", "1.2300", "1.23"),
    ("decimal(10,2)", "-0.5", "-0.50"),
    ("decimal(10,2)", "15e-1", "1.50"),
    ("decimal(10,2)", "1.5E-3", None),
    ("decimal(10,2)", "1E+3", "1000.00"),
    ("decimal(10,0)", "1000E-2", "10"),
    ("decimal(10,0)", "1005E-2", None),
    ("decimal(10,2)", "0E-9", "0.00"),
    ("decimal(10,2)", ".5", "0.50"),
    ("decimal(10,2)", "123456789.00", None),
    ("decimal(10,2)", "1.5E-3\t", None),
    ("decimal(10,2)", "1.5E-3\n", None),
    ("decimal(10,2)", "1.5E-3\x01", None),
    ("decimal(10,2)", " 15E-1\r\n", "1.50"),
    ("decimal(38,0)", "99999999999999999999999999999999999999", "99999999999999999999999999999999999999"),
    ("decimal(38,0)", "100000000000000000000000000000000000000", None),
    ("double", "12345678901234567.89", None),
    ("double", "0.1", "0.1"),
    ("double", "1e999", None),
    ("double", "-Infinity", "-Infinity"),
    ("double", "1.0d", None),
    ("double", "000000000000000000001.5", "1.5"),
    ("float", "0.10000000149011612", "0.1"),
    ("boolean", "true", "true"),
    ("boolean", "f", "false"),
    ("boolean", "5", None),
    ("date", "2024-02-29", "2024-02-29"),
    ("date", "2023-02-29", None),
    ("date", "2024-01-31 00:00:00", "2024-01-31"),
    ("date", "2024-01-31 13:00:00", None),
    ("date", "0001-01-01", "0001-01-01"),
    ("date", "2024", None),
    ("timestamp", "2024-01-31T12:00:00.123456Z", "2024-01-31 12:00:00.123456"),
    ("timestamp", "2024-01-31 12:00:00.5+00", "2024-01-31 12:00:00.5"),
    ("timestamp", "2024-01-31 12:00:00+05:30", "2024-01-31 06:30:00"),
    ("timestamp", "1969-12-31 23:59:59.999999", "1969-12-31 23:59:59.999999"),
    ("timestamp", "2024-01-31 12:00:00.123456789", "2024-01-31 12:00:00.123456"),
    ("timestamp", "12:00:00", None),
    ("timestamp", "2024", None),
    ("timestamp", "2024-13-01 00:00:00", None),
    ("timestamp_ntz", "2024-01-31 12:00:00.5", "2024-01-31 12:00:00.5"),
    ("timestamp_ntz", "2024-01-31 12:00:00Z", None),
    ("binary", "YQ==", "a"),
    ("binary", "%%", None),
    ("string", "", ""),
    ("string", "héllo\n", "héllo\n"),
    ("array<int>", "[1,null,3]", "[1, null, 3]"),
    ("array<int>", '[1,"x"]', None),
    ("array<int>", "5", None),
    ("array<int>", "[1", None),
    ("array<decimal(4,1)>", "[1.5,1.55]", None),
    ("struct<a:int,b:struct<c:date>>", '{"a":1,"b":{"c":"2024-01-01"}}', "{1, {2024-01-01}}"),
    ("struct<a:int,b:struct<c:date>>", '{"a":1,"b":{"c":"x"}}', None),
    ("struct<a:int,b:struct<c:date>>", '{"a":1,"b":7}', None),
    ("struct<a:int,b:struct<c:date>>", '{"a":null}', "{null, null}"),
    ("map<string,int>", '{"k":1}', "{k -> 1}"),
    ("map<string,int>", '{"k":1}}', None),
    ("array<int>", "[1]]", None),
    ("array<int>", "[1],[2]", None),
    ("variant", '{"a":1}', '{"a":1}'),
    ("variant", '{"a":1} {"b":2}', None),
    ("map<string,int>", '{"k":"v"}', None),
    ("array<struct<a:array<int>>>", '[{"a":[1,2]},null]', "[{[1, 2]}, null]"),
    ("array<struct<a:array<int>>>", '[{"a":[1,"b"]}]', None),
]


@pytest.mark.parametrize("ansi", slow_but(["true", "false"], "true"))
def test_texts_of_every_type(spark: SparkSession, ansi: str) -> None:
    """What does not fit is NULL, whatever Spark's casts would make of it, and in both of its modes."""
    from pyspark.sql import types as T

    session = spark.newSession()
    session.conf.set("spark.sql.ansi.enabled", ansi)
    kinds = sorted({kind for kind, _, _ in TEXTS})
    rows = session.createDataFrame(
        [(i, k, t) for i, (k, t, _) in enumerate(TEXTS)], "i int, kind string, t string"
    )
    shown = rows.select(
        "i",
        F.coalesce(
            *[
                F.when(
                    F.col("kind") == kind,
                    values.decoded(F.col("t"), values.plain_value(T.DataType.fromDDL(kind))).cast("string"),
                )
                for kind in kinds
            ]
        ).alias("v"),
    ).collect()
    found = {row.i: row.v for row in shown}
    wrong = [(case, found[at]) for at, case in enumerate(TEXTS) if found[at] != case[2]]
    assert wrong == []


@pytest.mark.slow
def test_parts_of_sequences_sort_as_their_values(spark: SparkSession) -> None:
    """Fixed width: the order of the texts is the order of the numbers, the days and the moments."""
    from pyspark.sql import types as T

    made = random.Random(5)
    whole = sorted(
        {made.randrange(-(2**63), 2**63) for _ in range(300)}
        | {0, -1, 1, -(2**63), 2**63 - 1, 10, 9, -9, -10}
    )
    long = sorted({made.choice((1, -1)) * made.randrange(10**37, 10**38) for _ in range(200)} | {0, -1, 1})
    stamps = sorted(EPOCH + timedelta(microseconds=made.randrange(-(10**16), 10**16)) for _ in range(200))
    cases: list[tuple[str, list[Any]]] = [
        ("bigint", whole),
        ("decimal(38,0)", [Decimal(n) for n in long]),
        ("timestamp", stamps),
        ("date", sorted({stamp.date() for stamp in stamps})),
    ]
    for kind, ordered in cases:
        rows = spark.createDataFrame([(i, value) for i, value in enumerate(ordered)], f"i int, v {kind}")
        text = values.part(F.col("v"), T.DataType.fromDDL(kind))
        assert text is not None
        texts = [row[0] for row in rows.orderBy("i").select(text).collect()]
        assert texts == sorted(texts), kind
        assert len(set(texts)) == len(texts), kind
    assert values.part(F.col("v"), T.StringType()) is None
    assert values.part(F.col("v"), T.DecimalType(5, 1)) is None


@pytest.mark.slow
def test_whole_numbers_as_text_of_a_fixed_width(spark: SparkSession) -> None:
    given = [
        "0",
        "7",
        "007",
        " 42 ",
        "99999",
        "100000",
        "0000099999",
        "-1",
        "1.0",
        "",
        "x",
        None,
        "7\n",
        "7\r",
    ]
    rows = spark.createDataFrame([(i, t) for i, t in enumerate(given)], "i int, t string")
    found = [row[0] for row in rows.orderBy("i").select(values.digits(F.col("t"), 5)).collect()]
    assert found == ["00000", "00007", "00007", "00042", "99999", None, "99999", *[None] * 7]


def test_numbers_with_marks_between_them(spark: SparkSession) -> None:
    given = ["7", "1000", "00000000000000000012/00000003", "12:4", "12/", "a/1", "", None, "7\r", "12/3\n"]
    rows = spark.createDataFrame([(i, t) for i, t in enumerate(given)], "i int, t string")
    found = [row[0] for row in rows.orderBy("i").select(values.numbers(F.col("t"))).collect()]
    assert found[:4] == [f"{7:020d}", f"{1000:020d}", f"{12:020d}/{3:020d}", f"{12:020d}/{4:020d}"]
    assert found[4:] == [None] * 6


def test_typed_values_in_another_type(spark: SparkSession) -> None:
    """A conversion fits where the way back gives the value again."""
    from pyspark.sql import types as T

    cases = [
        ("cast(5 as int)", "int", "bigint", "5"),
        ("cast(5000000000 as bigint)", "bigint", "int", None),
        ("cast(1.239 as double)", "double", "decimal(10,2)", None),
        ("cast(1.25 as double)", "double", "decimal(10,2)", "1.25"),
        ("timestamp'2024-01-01 12:00:00'", "timestamp", "date", None),
        ("timestamp'2024-01-01 00:00:00'", "timestamp", "date", "2024-01-01"),
        ("cast(7 as int)", "int", "string", "7"),
        ("array(1, 2)", "array<int>", "string", "[1,2]"),
        ("cast('a' as binary)", "binary", "string", "YQ=="),
    ]
    columns = [
        values.converted(F.expr(text), T.DataType.fromDDL(a), T.DataType.fromDDL(b)).cast("string")
        for text, a, b, _ in cases
    ]
    (found,) = spark.range(1).select(*columns).collect()
    assert list(found) == [wanted for *_, wanted in cases]
