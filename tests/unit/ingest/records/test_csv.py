"""Strict CSV, against Python's own reader where both follow RFC 4180."""

from __future__ import annotations

import base64
import csv as stdlib
import io
import random
import time
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records import csv
from delta_cdc.ingest.records.csv import (
    BROKEN_HEADER,
    MISQUOTED,
    MISQUOTED_HEADER,
    NO_HEADER,
    UNCLOSED,
    WITH_NUL,
    Dialect,
    Reader,
    Row,
    again,
    check,
    converters,
    lines_of,
)
from delta_cdc.ingest.records.csv_times import times
from delta_cdc.ingest.types import DATE, STRING, TIMESTAMP, TIMESTAMP_NTZ

NAMES = ("id", "name")
#: GoldenGate's delimited text, as its formatter writes it by default: no quotes, ``NULL`` for NULL, and
#: nothing for a value that the record does not have.
GOLDENGATE = {"sep": "\x01", "quote": "", "nullValue": "NULL", "missingValue": ""}
COLUMNS = Invalid("it does not have the 2 columns of its file")


def rows_of(data: str | bytes, names: Any = NAMES, **options: str) -> list[Row]:
    """Return the records of a file."""
    dialect = Dialect.of(options)
    reader = Reader(dialect, None if dialect.header else names)
    return read(reader, dialect, data)


def read(reader: Reader, dialect: Dialect, data: str | bytes) -> list[Row]:
    raw = data.encode() if isinstance(data, str) else data
    lines = enumerate(lines_of(raw, dialect.encoding, dialect.line_sep))
    return [row for at, line in lines for row in reader.feed(line, at)] + reader.end()


def values_of(data: str | bytes, names: Any = NAMES, **options: str) -> list[Any]:
    found = [row.values for row in rows_of(data, names, **options)]
    return [part if isinstance(part, Invalid) else tuple(part.values()) for part in found]


def raw_of(text: bytes) -> str:
    return "base64:" + base64.b64encode(text).decode()


SPACES = {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}


@pytest.mark.parametrize(
    ("data", "options", "wanted"),
    [
        ("1,a\n2,b\n", {}, [("1", "a"), ("2", "b")]), ("1,a\r\n2,b", {}, [("1", "a"), ("2", "b")]),
        ("\n1,a\n\n\r\n2,b\n", {}, [("1", "a"), ("2", "b")]),
        ("1;a\n", {"sep": ";"}, [("1", "a")]), ("1||a|b\n", {"sep": "||"}, [("1", "a|b")]),
        ('"1"||"a||"\n', {"sep": "||"}, [("1", "a||")]), ("1\ta\n", {"delimiter": "\\t"}, [("1", "a")]),
        ("1\x01a\n", {"sep": "\\u0001"}, [("1", "a")]), ("1\\a\n", {"sep": "\\\\"}, [("1", "a")]),
        # What is NULL.
        ("1,\n", {}, [("1", None)]), ('1,""\n', {}, [("1", "")]), ('"1",""\n', {}, [("1", "")]),
        ('1,""\n', {"nullValue": ""}, [("1", None)]), ('"1",""\n', {"nullValue": ""}, [("1", None)]),
        ("1,\n", {"nullValue": "NULL"}, [("1", None)]),
        ('1,NULL\n2,"NULL"\n', {"nullValue": "NULL"}, [("1", None), ("2", "NULL")]),
        ('1,"\\N"\n2,\\N\n', {"nullValue": "\\N"}, [("1", "\\N"), ("2", None)]),
        ('1,"\\\\N"\n2,\\N\n', {"nullValue": "\\N", "escape": "\\"}, [("1", "\\N"), ("2", None)]),
        ("1,NULL\n", {}, [("1", "NULL")]),
        ('1,""\n2,\n', {"emptyValue": "-"}, [("1", "-"), ("2", None)]),
        # Marks.
        ('1,"say ""hi"""\n2,""""\n', {}, [("1", 'say "hi"'), ("2", '"')]),
        ('1,"a \\"b\\" \\\\ \\c"\n', {"escape": "\\"}, [("1", 'a "b" \\ \\c')]),
        ('1,"a""b"\n', {"escape": "\\"}, [Invalid(MISQUOTED)]),
        ("1,a\\\n", {"escape": "\\"}, [("1", "a\\")]),
        ("1,'it''s, so'\n2,\"\n", {"quote": "'"}, [("1", "it's, so"), ("2", '"')]),
        ('1,"a"\n', {"quote": ""}, [("1", '"a"')]), ('1,"a"\n', {"quote": "\0"}, [("1", '"a"')]),
        ('1,5" wide\n', {}, [("1", '5" wide')]),
        ('"1","a\n', {"multiLine": "false"}, [Invalid(MISQUOTED)]),
        ("#no\n1,#a\n#", {"comment": "#"}, [("1", "#a")]),
        ('1,"a\n#b"\n', {"comment": "#"}, [("1", "a\n#b")]),
        # Blanks.
        (' 1 ,\t"a" \n 2, \n', SPACES, [("1", "a"), ("2", None)]),
        (' "a" , " b "\n', SPACES, [("a", " b ")]),
        ("1 , a b \n", {"ignoreLeadingWhiteSpace": "true"}, [("1 ", "a b ")]),
        ("1 , a\n", {"ignoreTrailingWhiteSpace": "true"}, [("1", " a")]),
        ('1, "a"\n', {}, [("1", ' "a"')]), ('1,"a" \n', {}, [Invalid(MISQUOTED)]),
        (' 1\t"a"\t\n', {**SPACES, "sep": "\t"}, [COLUMNS]),
        (' 1\t "a" \n', {**SPACES, "sep": "\t"}, [("1", "a")]),
        ('"1"  | "a"\n', {**SPACES, "sep": " |"}, [("1", "a")]),
        ("1, NULL \n", {**SPACES, "nullValue": "NULL"}, [("1", None)]),
        # Lines in values.
        ('1,"a\nb"\n2,c\n', {}, [("1", "a\nb"), ("2", "c")]),
        ('1,"a\r\n\r\nb"\r\n2,c\r\n', {}, [("1", "a\r\n\r\nb"), ("2", "c")]),
        ('1,"a""\n"",b"\n', {}, [("1", 'a"\n",b')]), ('1,"\n"\n', {}, [("1", "\n")]),
        ('1,"a\\\n\\"b"\n', {"escape": "\\"}, [("1", 'a\\\n"b')]),
        ('"a\nb","c\nd"\n', {}, [("a\nb", "c\nd")]),
        ("1,a;2,b;", {"lineSep": ";"}, [("1", "a"), ("2", "b")]),
        ('1,"a;b";2,c', {"lineSep": ";"}, [("1", "a;b"), ("2", "c")]),
        ("1,a\r;2,b\n;3,c", {"lineSep": ";"}, [Invalid(MISQUOTED), Invalid(MISQUOTED), ("3", "c")]),
        # What is no CSV.
        ('1,"a"b\n2,c\n', {}, [Invalid(MISQUOTED), ("2", "c")]),
        ('1,"a\nb"c\n2,d\n', {}, [Invalid(MISQUOTED), ("2", "d")]),
        ("1,a\rb\n", {}, [Invalid(MISQUOTED)]), ('1,"a"\rb\n', {}, [Invalid(MISQUOTED)]),
        ("1,a\0\n", {}, [Invalid(WITH_NUL)]), ('1,"a\0"\n', {}, [Invalid(WITH_NUL)]),
        ('1,"a\n\0"\n2,b', {}, [Invalid(WITH_NUL), ("2", "b")]),
        ("1\n1,2,3\n", {}, [COLUMNS, COLUMNS]), ('"1"\n"1","2","3"\n', {}, [COLUMNS, COLUMNS]),
        ("1,a\n2,\xff".encode("latin-1"), {}, [("1", "a"), Invalid("not UTF-8")]),
        (b'1,"\xff\n"\n2,b', {}, [Invalid("not UTF-8"), ("2", "b")]),
        (b"\xef\xbb\xbf1,a\n", {}, [("1", "a")]),
    ],
)  # fmt: skip
def test_files(data: str | bytes, options: dict[str, str], wanted: list[Any]) -> None:
    assert values_of(data, **options) == wanted
    # The same with a header, and again from the raw text.
    header = f"id{Dialect.of(options).separator}name{options.get('lineSep', chr(10))}".encode()
    raw = data.encode() if isinstance(data, str) else data
    with_header = {**options, "header": "true"}
    found = rows_of(header + raw.removeprefix(b"\xef\xbb\xbf"), **with_header)
    assert [r.values if isinstance(r.values, Invalid) else tuple(r.values.values()) for r in found] == wanted
    for row in found:
        assert again(row.raw, Dialect.of(with_header), None).values == row.values


def test_raw_texts() -> None:
    found = rows_of('\n"id",name\r\n1,a\r\n\n2,"b\r\nc"\r\n3\n4,\xff'.encode("latin-1"), header="true")
    assert [(row.row, row.raw) for row in found] == [
        (2, '"id",name\n1,a'),
        (4, '"id",name\n2,"b\r\nc"'),
        (6, '"id",name\n3'),
        (7, '"id",name\n' + raw_of(b"4,\xff")),
    ]
    assert rows_of("1,a\n2", header="false")[1] == Row("2", 1, COLUMNS)
    assert rows_of(b'1,"a\n\xff"\r\n')[0].raw == raw_of(b'1,"a\n\xff"')


@pytest.mark.parametrize(
    ("header", "flaw"),
    [
        ("id,ID", "the header of its file names the column ID twice"),
        ("_c1,", "the header of its file names the column _c1 twice"),
        ('id,"na"me', MISQUOTED_HEADER),
        (b"id,\xff", "the header of its file is not UTF-8"),
        ("id,na\0me", MISQUOTED_HEADER),
    ],
)
def test_headers_that_name_no_columns(header: str | bytes, flaw: str) -> None:
    raw = header.encode() if isinstance(header, str) else header
    head, first, second = rows_of(raw + b'\n1,a\n2,"b\n\n"\n', header="true")
    kept = header if isinstance(header, str) else raw_of(header)
    assert head == Row(kept, 0, Invalid(flaw))
    assert again(kept, Dialect.of({"header": "true"}), None).values == Invalid(flaw)
    assert rows_of(raw, header="true") == [head]
    assert first == Row(f"{kept}\n1,a", 1, Invalid(flaw))
    assert second == Row(f'{kept}\n2,"b\n\n"', 2, Invalid(flaw))
    assert again(first.raw, Dialect.of({"header": "true"}), None).values == Invalid(flaw)


@pytest.mark.parametrize(
    ("data", "options", "flaw"),
    [
        ("id,name\r1,a\r2,b\r", {}, BROKEN_HEADER), ('"id","name"\r"1","a"\r', {}, BROKEN_HEADER),
        ("id,name\n1,a\n2,b\n", {"lineSep": "\r\n"}, BROKEN_HEADER),
        ("id,name\n1,a\n2,b\n", {"lineSep": ";"}, BROKEN_HEADER),
        ("id,name\x1e1,a\x1e2,b\x1e", {}, BROKEN_HEADER), ("id,name\u20281,a\u2028", {}, BROKEN_HEADER),
        ("id,name\x851,a", {"encoding": "ISO-8859-1"}, BROKEN_HEADER),
        # Here, a wrong quote is what is certain; also where the quoted value has no end.
        ('id,"na"me\r1,a\r', {}, MISQUOTED_HEADER), ('id,"name\r1,a\r', {}, MISQUOTED_HEADER),
        ('id,"name\r1,a\r', {"multiLine": "false"}, MISQUOTED_HEADER),
    ],
)  # fmt: skip
def test_a_header_that_has_the_whole_file(data: str, options: dict[str, str], flaw: str) -> None:
    """Without its line breaks, a file is its header alone: its records must not be lost."""
    raw = data.encode(options.get("encoding", "utf-8"))
    (row,) = rows_of(raw, header="true", **options)
    assert (row.row, row.values) == (0, Invalid(flaw))


@pytest.mark.parametrize(
    ("data", "options", "names"),
    [
        ('id,"na\nme"\r\n1,a', {"lineSep": "\r\n"}, ("id", "na\nme")),
        ("id\x1ename\n1\x1ea", {"sep": "\x1e"}, ("id", "name")), ("id,name\f\n1,a", {}, ("id", "name")),
    ],
)  # fmt: skip
def test_line_breaks_that_a_header_may_have(
    data: str, options: dict[str, str], names: tuple[str, str]
) -> None:
    (row,) = rows_of(data, header="true", **options)
    assert row.values == dict(zip(names, ("1", "a"), strict=True))


def test_a_header_alone_is_right_by_other_options() -> None:
    """Its file is to be delivered again. By the options of a replay, its raw text is no record."""
    (row,) = rows_of('id,"na"me', header="true")
    assert again(row.raw, Dialect.of({"header": "true", "quote": ""}), None).values is None


def test_a_first_line_that_is_no_header() -> None:
    """With ``split``, only the first part of a file has the header."""
    dialect, known = Dialect.of({"header": "true"}), {"id", "name"}.__contains__
    reader = Reader(dialect, None, is_known=known)
    found = read(reader, dialect, "1,a\n2,b\n")
    assert found == [Row("1,a", 0, Invalid(NO_HEADER)), Row("1,a\n2,b", 1, Invalid(NO_HEADER))]
    assert [again(row.raw, dialect, None, is_known=known).values for row in found] == [Invalid(NO_HEADER)] * 2
    assert read(reader, dialect, "1,a\n") == found[:1]
    # One known column is enough: the others may be new, or left out.
    assert read(reader, dialect, "id,a\n2,b\n") == [Row("id,a\n2,b", 1, {"id": "2", "a": "b"})]


def test_a_header_with_a_line_break() -> None:
    found = rows_of('id,"na\nme"\n1,a\n', header="true")
    assert [(row.row, row.values) for row in found] == [
        (0, Invalid(MISQUOTED_HEADER)),
        (2, Invalid(MISQUOTED_HEADER)),
    ]
    assert found[1].raw == 'id,"na\n1,a'


@pytest.mark.parametrize(
    ("header", "options", "names"),
    [
        ("id,name", {}, ("id", "name")),
        ('"id" , ""', {**SPACES}, ("id", "_c1")),
        ("id, ", {}, ("id", "_c1")),
        ('NULL,"a ""b"""', {"nullValue": "NULL"}, ("NULL", 'a "b"')),
        ("M,-", {"missingValue": "M", "emptyValue": "-"}, ("M", "-")),
        ("\ufeffid,name", {}, ("id", "name")),
        ("#id\nid,#name", {"comment": "#"}, ("id", "#name")),
    ],
)
def test_names(header: str, options: dict[str, str], names: tuple[str, str]) -> None:
    (row,) = rows_of(f"{header}\n1,a\n", header="true", **options)
    assert row.values == dict(zip(names, ("1", "a"), strict=True))


def test_a_header_inside_of_a_file() -> None:
    assert values_of("id,name\n1,a\nid,name\r\n2,b\n", header="true") == [("1", "a"), ("2", "b")]
    assert values_of('id,"name"\n1,a\nid,"name"\n', header="true") == [("1", "a")]
    assert values_of("id,name\n") == [("id", "name")]


def test_several_files() -> None:
    """Each file has its own header, and leaves nothing to the next."""
    dialect = Dialect.of({"header": "true"})
    reader = Reader(dialect, None)
    assert read(reader, dialect, "id,name\n1,a\n")[0].values == {"id": "1", "name": "a"}
    assert read(reader, dialect, "") == []
    assert [row.values for row in read(reader, dialect, 'name\n"a\nb')] == [Invalid(UNCLOSED)] * 2
    assert read(reader, dialect, "\ufeffname,id\na,1\n")[0].values == {"name": "a", "id": "1"}


def test_a_quote_without_end() -> None:
    found = rows_of('1,a\n2,"b\n3,c\r\n\n4,\xff\nid,name\n'.encode("latin-1"))
    assert [(row.row, row.raw, row.values) for row in found] == [
        (0, "1,a", {"id": "1", "name": "a"}),
        (1, '2,"b', Invalid(UNCLOSED)),
        (2, "3,c", Invalid(UNCLOSED)),
        (4, raw_of(b"4,\xff"), Invalid("not UTF-8")),
        (5, "id,name", Invalid(UNCLOSED)),
    ]
    # Alone, its line is wrong, and the others are records.
    assert again('2,"b', Dialect.of({}), NAMES).values == Invalid(MISQUOTED)
    assert again("3,c", Dialect.of({}), NAMES).values == {"id": "3", "name": "c"}


def test_a_value_of_too_many_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MOST_LINES", 3)
    found = rows_of('1,"a\nb\nc"\n2,"a\nb\nc\nd\ne"\n3,e\n')
    assert [(row.row, row.values) for row in found] == [
        (0, {"id": "1", "name": "a\nb\nc"}),
        *[(row, Invalid(UNCLOSED)) for row in range(3, 8)],
        (8, {"id": "3", "name": "e"}),
    ]


def test_time_is_linear() -> None:
    """One long value, and many lines in one value: once from left to right."""
    began = time.process_time()
    assert len(rows_of('1,"' + '""' * 500_000 + '"')) == 1
    assert len(rows_of('1,"' + '\\"' * 500_000 + '"', escape="\\")) == 1
    assert len(rows_of(" " * 500_000 + '1,"a\nb"' + " " * 500_000, **SPACES)) == 1
    assert len(rows_of('1,"' + ('""' * 20 + "\n") * 9_000 + '"')) == 1
    assert len(rows_of('1,"' + "x,\n" * 100_000)) == 100_000
    assert time.process_time() - began < 30


# -- missing values -----------------------------------------------------------------------------
def test_three_states() -> None:
    """GoldenGate's delimited text: a value, NULL, and nothing."""
    found = rows_of('1\x01NULL\n2\x01\n3\x01v\n4\x01"\n', **GOLDENGATE)
    assert [row.values for row in found] == [
        {"id": "1", "name": None},
        {"id": "2"},
        {"id": "3", "name": "v"},
        {"id": "4", "name": '"'},
    ]
    options = {"missingValue": "<M>", "nullValue": "<N>"}
    found = rows_of('1,<M>\n2,<N>\n3,\n4,"<M>"\n<M>,"x"', **options)
    assert [row.values for row in found] == [
        {"id": "1"},
        {"id": "2", "name": None},
        {"id": "3", "name": None},
        {"id": "4", "name": "<M>"},
        {"name": "x"},
    ]


# -- against Python's reader --------------------------------------------------------------------
def by_python(text: str, names: int) -> list[list[str]] | None:
    """Return the records of a text; None if it is not strict."""
    if "\0" in text or "\r" in text.replace("\r\n", "\n"):
        return None
    try:
        found = list(stdlib.reader(io.StringIO(text, newline=""), strict=True))
    except stdlib.Error:
        return None
    return [row for row in found if row] if all(len(row) in (0, names) for row in found) else None


def test_written_by_python() -> None:
    chance = random.Random(38)
    letters = [*"\",\n;ab \\'#", "\r\n", "ü", "\U0001f600", "NULL"]
    for quoting in (stdlib.QUOTE_MINIMAL, stdlib.QUOTE_ALL, stdlib.QUOTE_NONNUMERIC):
        rows = [
            tuple("".join(chance.choices(letters, k=chance.randrange(6))) for _ in NAMES)
            for _ in range(2_000)
        ]
        for end in ("\n", "\r\n"):
            file = io.StringIO(newline="")
            stdlib.writer(file, quoting=quoting, lineterminator=end).writerows(rows)
            found = values_of(file.getvalue())
            assert [tuple(part or "" for part in row) for row in found] == rows


def test_random_texts() -> None:
    chance, accepted = random.Random(5), 0
    letters = [*',,,""""\n\na', '""', "\r\n", "b"]
    dialect = Dialect.of({})
    reader = Reader(dialect, NAMES)
    for _ in range(25_000):
        text = "".join(chance.choices(letters, k=chance.randrange(14)))
        wanted = by_python(text, 2)
        found = [row.values for row in read(reader, dialect, text)]
        if wanted is None:
            assert any(isinstance(row, Invalid) for row in found), text
        else:
            accepted += 1
            values = [[] if isinstance(row, Invalid) else list(row.values()) for row in found]
            assert [[part or "" for part in row] for row in values] == wanted, text
    assert accepted > 3_000


@pytest.mark.parametrize(
    "options",
    [{}, {"escape": "\\"}, {"sep": "||"}, {"quote": "'"}, SPACES, {"comment": "#"}, {"multiLine": "false"}],
)
def test_every_record_can_be_read_again(options: dict[str, str]) -> None:
    """Nothing is lost: the rows of a file cover its lines, and a raw text gives the same values."""
    chance, dialect = random.Random(9), Dialect.of({**options, "header": "true"})
    reader = Reader(dialect, None)
    letters = [*b',,|"""\'\n\n\\ #a\r\x00', 0xFF]
    for _ in range(3_000):
        body = bytes(chance.choices(letters, k=chance.randrange(30)))
        sep = dialect.separator.encode()
        for row in read(reader, dialect, b"i" + sep + b"n\n" + body):
            found = again(row.raw, dialect, None)
            assert row.raw == found.raw
            if row.values != Invalid(UNCLOSED):
                assert found.values == row.values, row


# -- encodings ----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("utf8", "ü\U0001f600"), ("UTF-8", "ü"), ("US-ASCII", "u"), ("ISO-8859-1", "ü\x85"), ("latin1", "ü"),
        ("iso-8859-15", "€"), ("windows-1252", "€œ"), ("Cp1252", "€"), ("windows-1251", "Ж"),
        ("windows-1250", "ř"), ("cp850", "ü"), ("cp437", "ü"), ("KOI8-R", "Ж"), ("Shift_JIS", "表\\"),
        ("GBK", "中"), ("Big5", "中"), ("EUC-KR", "한"), ("UTF-16", "ü\U0001f600\u0a0a"),
        ("UTF-16LE", "ü\u0a0a"), ("UTF-16BE", "ü\u0a0a"), ("UTF-32", "ü"), ("cp037", "ab"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_encodings(encoding: str, text: str, end: str) -> None:
    data = f'1,{text}{end}2,"{text}{end}"{end}3,{text}'.encode(encoding)
    wanted = [("1", text), ("2", text + end), ("3", text)]
    assert values_of(data, encoding=encoding) == wanted
    assert values_of(data, charset=encoding.lower()) == wanted


@pytest.mark.parametrize("order", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_a_mark(order: str) -> None:
    assert values_of("1,ü\n2,Ж\n".encode(order), encoding="UTF-16") == [("1", "ü"), ("2", "Ж")]
    marked = "\ufeff1,ü\n".encode(order)
    assert values_of(marked, encoding="UTF-16") == values_of(marked, encoding=order) == [("1", "ü")]


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("US-ASCII", b"1,a\n2,\x80\n3,c\n"),
        ("windows-1252", b"1,a\n2,\x81\n3,c\n"),
        ("Shift_JIS", b"1,a\n2,\x81\n3,c\n"),
        ("UTF-16LE", "1,a\n2,".encode("utf-16-le") + b"\x00\xd8" + "\n3,c\n".encode("utf-16-le")),
    ],
)
def test_bytes_that_are_not_in_the_encoding(encoding: str, data: bytes) -> None:
    assert values_of(data, encoding=encoding) == [("1", "a"), Invalid(f"not {encoding}"), ("3", "c")]


def test_a_file_that_ends_within_a_character() -> None:
    data = "1,a\n2,b".encode("utf-16-le")[:-1]
    assert values_of(data, encoding="UTF-16LE") == [("1", "a"), Invalid("not UTF-16LE")]


def test_a_byte_order_mark_is_skipped_at_the_start_of_a_file() -> None:
    reader = Reader(Dialect.of({"header": "true"}), None)
    for _ in range(2):
        assert reader.feed(b"\xef\xbb\xbfid,name", 0) == []
        (row,) = reader.feed(b"1,\xef\xbb\xbf", 1)
        assert row.values == {"id": "1", "name": "\ufeff"}
        reader.end()
    assert list(lines_of(b"\xef\xbb\xbfa\n\xef\xbb\xbfb", "UTF-8")) == [b"a", b"\xef\xbb\xbfb"]
    assert list(lines_of(b"\xef\xbb\xbfa", "ISO-8859-1")) == [b"\xef\xbb\xbfa"]
    for name in ("utf-16-le", "utf-16-be"):
        assert list(lines_of("\ufeffa\nb".encode(name), name)) == [b"a", b"b"]


def test_whole_files() -> None:
    assert Dialect.of({"encoding": "UTF-16"}).is_whole
    assert not any(
        Dialect.of({"encoding": name}).is_whole for name in ("UTF-8", "cp1252", "Shift_JIS", "GBK")
    )


# -- options that are refused -------------------------------------------------------------------
@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"encoding": "UTF-9"}, "the encoding 'UTF-9' is unknown"),
        ({"encoding": "UTF-7"}, "the encoding 'UTF-7' is unknown"),
        ({"encoding": "rot13"}, "the encoding 'rot13' is unknown"),
        ({"encoding": "base64"}, "is unknown"), ({"encoding": "undefined"}, "is unknown"),
        ({"encoding": "idna"}, "is unknown"), ({"encoding": "ISO-2022-JP"}, "is unknown"),
        ({"charset": "a\0b"}, "is unknown"), ({"sep": ""}, "sep is ''"), ({"sep": '"'}, "sep is"),
        ({"sep": "a\n"}, "sep is"), ({"quote": "''"}, "quote is \"''\""),
        ({"escape": "ab"}, "escape is 'ab'"), ({"comment": "//"}, "comment is '//'"),
        ({"header": "yes"}, "header is 'yes'"), ({"multiLine": "1"}, "multiLine is '1'"),
        ({"nullValue": "x", "missingValue": "x"}, "nullValue and missingValue are both 'x'"),
        ({"unescapedQuoteHandling": "STOP_AT_DELIMITER"}, "which guesses values"),
        ({"charToEscapeQuoteEscaping": "$"}, "charToEscapeQuoteEscaping"),
        ({"dateFormat": "YYYY-MM-dd"}, "has YYYY, which is not known"),
        ({"timestampFormat": "HH:mm"}, "has no year"),
        ({"timestampNTZFormat": "yyyy-MM-dd hh:mm"}, "has h without a"),
        ({"dateFormat": "d MMM yyyy", "locale": "de-DE"}, "names of months in the locale de-DE"),
        ({"timestampFormat": "yyyy", "timeZone": "Mars/Base"}, "timeZone 'Mars/Base' is unknown"),
        ({"timestampFormat": "yyyy", "timeZone": "../x"}, "timeZone '../x' is unknown"),
    ],
)  # fmt: skip
def test_refused(options: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfiguration, match="Remedy: ") as caught:
        check(options)
    assert text in caught.value.message
    assert caught.value.argument == "format_options"


def test_allowed() -> None:
    check({})
    check({"unescapedQuoteHandling": "RAISE_ERROR", "HEADER": "TRUE", "maxColumns": "5", "escape": "\0"})
    check({"escape": "\\", "charToEscapeQuoteEscaping": "\\", "timeZone": "Europe/Berlin"})


# -- dates and times ----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("pattern", "text", "wanted"),
    [
        ("yyyy-MM-dd", "2024-02-29", "2024-02-29"), ("uuuu/M/d", "2024/2/9", "2024-02-09"),
        ("dd.MM.yy", "31.12.99", "2099-12-31"), ("yyyyMMdd", "20240131", "2024-01-31"),
        ("yyyy-MM", "2024-02", "2024-02-01"), ("d-MMM-yyyy", "1-sep-2024", "2024-09-01"),
        ("MMMM d, yyyy", "September 1, 2024", "2024-09-01"),
        ("yyyy-MM-dd HH:mm:ss", "2024-01-31 23:59:59", "2024-01-31T23:59:59"),
        ("yyyyMMddHHmmssSSS", "20240131235959123", "2024-01-31T23:59:59.123"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2024-01-31T01:02:03", "2024-01-31T01:02:03"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2024-01-31T01:02:03.5Z", "2024-01-31T01:02:03.5Z"),
        ("yyyy-MM-dd'T'HH:mm:ss[.SSS][XXX]", "2024-01-31T01:02:03+05:30", "2024-01-31T01:02:03+05:30"),
        ("yyyy-MM-dd HH:mm:ss.SSSSSSSSS", "2024-01-31 01:02:03.123456789", "2024-01-31T01:02:03.123456789"),
        ("yyyy-MM-dd HHX", "2024-01-31 01+02", "2024-01-31T01:00:00+02:00"),
        ("yyyy-MM-dd HHXX", "2024-01-31 01-0230", "2024-01-31T01:00:00-02:30"),
        ("yyyy-MM-dd HH:mm Z", "2024-01-31 01:00 +0230", "2024-01-31T01:00:00+02:30"),
        ("yyyy-MM-dd HHx", "2024-01-31 01+00", "2024-01-31T01:00:00+00:00"),
        ("yyyy-MM-dd hh:mm a", "2024-01-31 12:05 am", "2024-01-31T00:05:00"),
        ("yyyy-MM-dd h:mm a", "2024-01-31 1:05 PM", "2024-01-31T13:05:00"),
        ("yyyy-MM-dd h a", "2024-01-31 12 PM", "2024-01-31T12:00:00"),
        ("yyyy-MM-dd[ h a]", "2024-01-31 1 PM", "2024-01-31T13:00:00"),
        ("yyyy-MM-dd[ h a]", "2024-01-31", "2024-01-31T00:00:00"),
        ("yyyy''MM'd'dd", "2024'02d03", "2024-02-03"), ("yyyy年MM月dd日", "2024年02月03日", "2024-02-03"),
        # What does not exist, or is written in another way.
        ("yyyy-MM-dd", "2023-02-29", None), ("yyyy-MM-dd", "2024-13-01", None),
        ("yyyy-MM-dd", "0000-01-01", None), ("yyyy-MM-dd", "2024-1-01", None),
        ("yyyy-MM-dd", "2024-01-01 ", None), ("yyyy-MM-dd", "2024-01-01\n", None),
        ("yyyy-MM-dd", "12024-01-01", None), ("yyyy-MM-dd", "２０２４-01-01", None),
        ("yyyy-MM-dd HH", "2024-01-01 24", None),
        ("yyyy-MM-dd HH:mm:ss", "2024-01-01 00:00:60", None),
        ("yyyy-MM-dd h a", "2024-01-31 13 PM", None), ("yyyy-MM-dd h a", "2024-01-31 0 PM", None),
        ("yyyy.MM.dd", "2024-01-01", None), ("yyyy-MM-dd HHx", "2024-01-31 01Z", None),
    ],
)  # fmt: skip
def test_patterns(pattern: str, text: str, wanted: str | None) -> None:
    found = times(pattern)(text)
    assert isinstance(found, Invalid) if wanted is None else found == wanted


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("yyyy-MM-dd'T", "quote without end"),
        ("yyyy-MM-dd[", "bracket"),
        ("yyyy]-MM-dd[", "bracket"),
        ("yyyy-MM-dd yyyy", "has yyyy twice"),
        ("yyyy-MM-dd#", "has #"),
        # In which half of the day a time is must not be a guess.
        ("yyyy-MM-dd HH:mm a", "has H together with a"),
        ("yyyy-MM-dd HH:mm hh a", "has H together with a"),
        ("yyyy-MM-dd hh:mm", "has h without a"),
        ("yyyy-MM-dd a", "has a without h"),
        ("yyyy-MM-dd hh:mm[ a]", "has h and a in different brackets"),
        ("yyyy-MM-dd[ hh:mm][ a]", "has h and a in different brackets"),
        *[
            (f"yyyy-MM-dd {letters}", "is not known")
            for letters in ("E", "G", "VV", "z", "yyy", "uuuuu", "SSSSSSSSSS", "ddd", "n")
        ],
    ],
)
def test_refused_patterns(pattern: str, text: str) -> None:
    with pytest.raises(InvalidConfiguration, match=text):
        times(pattern)


def test_zones() -> None:
    read_time = times("yyyy-MM-dd HH:mm", "Europe/Berlin")
    assert read_time("2024-01-31 12:00") == "2024-01-31T12:00:00+01:00"
    assert read_time("2024-10-27 02:30") == "2024-10-27T02:30:00+02:00"
    assert isinstance(read_time("2024-03-31 02:30"), Invalid)
    assert isinstance(read_time("0001-01-01 00:00"), Invalid)
    assert times("yyyy-MM-dd HH:mmXXX", "Europe/Berlin")("2024-01-31 12:00Z") == "2024-01-31T12:00:00Z"
    # As in Spark, a day begins in its zone; where it has no midnight, when it begins is a guess.
    assert times("yyyy-MM-dd", "Europe/Berlin")("2024-01-31") == "2024-01-31T00:00:00+01:00"
    assert times("yyyy-MM-dd[ HH:mm]", "Europe/Berlin")("2024-01-31") == "2024-01-31T00:00:00+01:00"
    assert isinstance(times("yyyy-MM-dd", "America/Sao_Paulo")("2018-11-04"), Invalid)


def test_random_times() -> None:
    """What Python writes by a pattern is the time again."""
    chance, zone = random.Random(4), ZoneInfo("America/New_York")
    patterns = {
        "yyyy-MM-dd HH:mm:ss.SSSSSS": "%Y-%m-%d %H:%M:%S.%f",
        "d. MMM yyyy, hh:mm:ss a SSSSSS": "%d. %b %Y, %I:%M:%S %p %f",
        "MM/dd/yyyy'at'HH-mm-ss,SSSSSS": "%m/%d/%Yat%H-%M-%S,%f",
    }
    for pattern, form in patterns.items():
        plain, local = times(pattern.replace("d.", "dd.")), times(pattern.replace("d.", "dd."), zone.key)
        for _ in range(1_000):
            when = datetime(1900, 1, 1) + timedelta(microseconds=chance.randrange(2**52))  # noqa: DTZ001
            found = plain(when.strftime(form))
            assert isinstance(found, str)
            assert datetime.fromisoformat(found) == when
            in_zone = local(when.strftime(form))
            if isinstance(in_zone, str):
                assert datetime.fromisoformat(in_zone) == when.replace(tzinfo=zone)


def test_columns_of_dates_and_times() -> None:
    options = {
        "dateFormat": "dd.MM.yyyy",
        "timestampFormat": "dd.MM.yyyy HH:mm",
        "timestampNTZFormat": "yyyyMMddHHmm",
        "timeZone": "Asia/Tokyo",
    }
    dialect = Dialect.of(options)
    types = {"D": DATE, "t": TIMESTAMP, "n": TIMESTAMP_NTZ, "s": STRING}
    by_name = converters(dialect, types)
    reader = Reader(dialect, ("d", "t", "n", "s"), by_name)
    (row,) = reader.feed(b"31.01.2024,31.01.2024 12:00,202401311200,31.01.2024", 0)
    assert row.values == {
        "d": "2024-01-31",
        "t": "2024-01-31T12:00:00+09:00",
        "n": "2024-01-31T12:00:00",
        "s": "31.01.2024",
    }
    (row,) = reader.feed(b',"",,x', 0)
    assert row.values == {"d": None, "t": "", "n": None, "s": "x"}
    (row,) = reader.feed(b"2024-01-31,,,x", 0)
    assert row.values == Invalid("d is no date: 2024-01-31")
    assert again(row.raw, dialect, ("d", "t", "n", "s"), by_name).values == row.values
