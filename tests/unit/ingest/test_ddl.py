"""Lists of columns in SQL are read without Spark."""

from __future__ import annotations

import random

import pytest

from delta_cdc.ingest import types as T
from delta_cdc.ingest.ddl import parse_ddl
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.types import Type, struct

ALL = {
    "BOOLEAN": T.BOOLEAN, "tinyint": T.BYTE, "byte": T.BYTE, "SMALLINT": T.SHORT, "short": T.SHORT,
    "INT": T.INTEGER, "Integer": T.INTEGER, "BIGINT": T.LONG, "long": T.LONG, "FLOAT": T.FLOAT,
    "real": T.FLOAT, "DOUBLE": T.DOUBLE, "STRING": T.STRING, "STRING COLLATE UTF8_LCASE": T.STRING,
    "VARCHAR(10)": T.STRING, "char( 3 )": T.STRING, "character(3)": T.STRING, "BINARY": T.BINARY,
    "DATE": T.DATE, "TIMESTAMP": T.TIMESTAMP, "timestamp_ltz": T.TIMESTAMP, "TIMESTAMP_NTZ": T.TIMESTAMP_NTZ,
    "VARIANT": T.VARIANT, "void": T.VOID, "DECIMAL": T.decimal(10, 0), "DEC(5)": T.decimal(5, 0),
    "numeric(38 , 18)": T.decimal(38, 18), "ARRAY<INT>": T.array(T.INTEGER),
    "MAP<STRING, ARRAY<MAP<INT,DATE>>>": T.map_of(T.STRING, T.array(T.map_of(T.INTEGER, T.DATE))),
    "STRUCT<a: INT NOT NULL COMMENT 'x', `b c` ARRAY<STRING>>": struct([("a", T.INTEGER),
        ("b c", T.array(T.STRING))]),
    "STRUCT<>": struct([]),
}  # fmt: skip


@pytest.mark.parametrize(("text", "kind"), ALL.items())
def test_every_type(text: str, kind: Type) -> None:
    assert parse_ddl(f"c {text}") == struct([("c", kind)])
    assert parse_ddl(f"`c`:{text} NOT NULL COMMENT 'c, d' , d INT") == struct([("c", kind), ("d", T.INTEGER)])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("id INT, v STRING COMMENT 'x'", [("id", T.INTEGER), ("v", T.STRING)]),
        ("`odd name` DECIMAL(10,2)", [("odd name", T.decimal(10, 2))]),
        ("`a``b` INT", [("a`b", T.INTEGER)]),
        ("`<>` INT", [("<>", T.INTEGER)]),
        ("a INT COMMENT 'it''s, \\'a\\' >', b INT COMMENT \"c\"", [("a", T.INTEGER), ("b", T.INTEGER)]),
        ("  a\n\tINT -- a comment, x\n , /* b DATE, */ c DATE", [("a", T.INTEGER), ("c", T.DATE)]),
        ("date DATE, struct INT, array ARRAY<INT>, comment STRING COMMENT ''",
         [("date", T.DATE), ("struct", T.INTEGER), ("array", T.array(T.INTEGER)), ("comment", T.STRING)]),
        ("größe INT, 1a INT, _x INT", [("größe", T.INTEGER), ("1a", T.INTEGER), ("_x", T.INTEGER)]),
        ("STRUCT<a: INT>", [("a", T.INTEGER)]),
    ],
)  # fmt: skip
def test_columns(text: str, wanted: list[tuple[str, Type]]) -> None:
    assert parse_ddl(text) == struct(wanted)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "the end is written where a name is expected"),
        ("id", "the end is written where a type is expected"),
        ("id INT,", "the end is written where a name is expected"),
        ("id INT v STRING", "v is written where a comma or the end is expected"),
        ("id INTT", "no type intt can be read from records"),
        ("id INTERVAL", "no type interval can be read from records"),
        ("id INT NOT", "the end is written where null is expected"),
        ("id INT COMMENT x", "x is written where a text in quotes is expected"),
        ("id DECIMAL(39,0)", "decimal(39,0) is no type: it may have 1 to 38 digits"),
        ("id DECIMAL(5,6)", "decimal(5,6) is no type: it may have 1 to 38 digits"),
        ("id DECIMAL(0)", "decimal(0,0) is no type: it may have 1 to 38 digits"),
        ("id DECIMAL(5", "the end is written where ) is expected"),
        ("id DECIMAL(-5)", "'-' is not expected at character 12"),
        ("id DECIMAL(1234567890123)", "1234567890123 is written where a number is expected"),
        ("id ARRAY<INT", "the end is written where > is expected"),
        ("id ARRAY", "the end is written where < is expected"),
        ("id MAP<INT>", "> is written where , is expected"),
        ("id VARCHAR", "the end is written where ( is expected"),
        ("id STRING COLLATE", "the end is written where a collation is expected"),
        ("id INT, ID STRING", "two columns or fields have the name ID"),
        ("v STRUCT<a: INT, A: INT>", "two columns or fields have the name A"),
        ("id INT; x", "';' is not expected at character 7"),
        ("`id INT", "'`' is not expected at character 1"),
        ("id INT COMMENT 'x", '"\'" is not expected at character 16'),
        ("id " + "ARRAY<" * 60 + "INT" + ">" * 60, "a type has more than 50 levels"),
    ],
)
def test_what_is_no_list_of_columns_says_why(text: str, reason: str) -> None:
    assert parse_ddl(text) == Invalid(reason)


def test_many_columns() -> None:
    names = [f"c{at}" for at in range(1_000)]
    assert parse_ddl(", ".join(f"{name} ARRAY<INT>" for name in names)) == struct(
        [(name, T.array(T.INTEGER)) for name in names]
    )


def random_type(draw: random.Random, depth: int) -> Type:
    kind = draw.randrange(9 if depth else 6)
    if kind < 5:
        return draw.choice(
            [T.BOOLEAN, T.BYTE, T.LONG, T.DOUBLE, T.STRING, T.DATE, T.TIMESTAMP_NTZ, T.VARIANT]
        )
    if kind == 5:
        precision = draw.randrange(1, 39)
        return T.decimal(precision, draw.randrange(precision + 1))
    if kind == 6:
        return T.array(random_type(draw, depth - 1))
    if kind == 7:
        return T.map_of(random_type(draw, 0), random_type(draw, depth - 1))
    names = draw.sample(["a", "b c", "`", "é", "1", "x<y>,", "comment", "not"], draw.randrange(1, 5))
    return struct([(name, random_type(draw, depth - 1)) for name in names])


def test_types_are_read_as_they_are_shown() -> None:
    draw = random.Random(4)
    for _ in range(3_000):
        kind = random_type(draw, 4)
        assert parse_ddl(f"c {kind}") == struct([("c", kind)]), str(kind)


def test_damaged_texts_never_raise() -> None:
    draw = random.Random(8)
    read = 0
    for _ in range(10_000):
        signs = list(f"c {random_type(draw, 2)} NOT NULL COMMENT 'x', d DECIMAL(3, 1)")
        for _ in range(draw.randrange(1, 4)):
            at = draw.randrange(len(signs))
            signs[at : at + draw.randrange(3)] = draw.choices(
                "<>(),:`'\" \0é\ud8001a-/*\\", k=draw.randrange(3)
            )
        found = parse_ddl("".join(signs))
        assert isinstance(found, (Type, Invalid))
        read += isinstance(found, Type)
    assert 500 < read < 9_500
    for mark in ("`", "'", "/*", "a INT ", "<", "x<", "--"):
        assert isinstance(parse_ddl(mark * 100_001), Invalid)
