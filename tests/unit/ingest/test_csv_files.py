"""CSV files as people write them: which records they have, and which go to quarantine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.ingest import adapters, local
from delta_cdc.ingest.batch import POSITION, RAW, REASON
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.records import csv
from delta_cdc.ingest.records.csv import MISQUOTED, UNCLOSED, WITH_NUL
from tests.support.change_sets import typed

if TYPE_CHECKING:
    from pathlib import Path


def read(path: Path, schema: str = "", **format_options: str) -> list[dict[str, Any]]:
    """Return the rows of a CSV file, without Spark."""
    declared = typed(schema) if schema else None
    reading = Reading(
        format="csv",
        adapter="plain",
        adapter_options=adapters.check("plain", {}, keys=(), format="csv", insert_only=True),
        format_options=format_options,
        declared=declared is not None,
        names=tuple(name for name, _ in declared.fields) if declared is not None else (),
        insert_only=True,
        numbered=True,
    )
    return local.rows_of_file(local.complete(reading, path, declared), path)


@pytest.mark.parametrize(
    ("text", "options", "wanted"),
    [
        ("1;a\n2;b\n", {"sep": ";"}, [("1", "a"), ("2", "b")]),
        ("1||a\n", {"sep": "||"}, [("1", "a")]),
        ("1\ta\n", {"delimiter": "\\t"}, [("1", "a")]),
        ("#no\n1,NIL\n", {"comment": "#", "nullValue": "NIL"}, [("1", None)]),
        ('1,"a\nb"\n2,c\n', {"multiLine": "true"}, [("1", "a\nb"), ("2", "c")]),
        ('1,"a\r\n\r\nb"\r\n2,c\r\n', {}, [("1", "a\r\n\r\nb"), ("2", "c")]),
        (
            '1,"say ""hi"""\n2,""""\n3,"a, ""b"", c"\n',
            {},
            [("1", 'say "hi"'), ("2", '"'), ("3", 'a, "b", c')],
        ),
        ('1,a\\\n2,\n3,""\n', {}, [("1", "a\\"), ("2", None), ("3", "")]),
        ('1,"a \\"b\\" \\\\"\n', {"escape": "\\"}, [("1", 'a "b" \\')]),
        ("1,'it''s, so'\n", {"quote": "'"}, [("1", "it's, so")]),
        ('1,"a"\n', {"quote": ""}, [("1", '"a"')]),
        ('1 , "a" \n', {"ignoreLeadingWhiteSpace": "true", "ignoreTrailingWhiteSpace": "true"}, [("1", "a")]),
        ('1,5" wide\n', {}, [("1", '5" wide')]),
        ('"",""\n', {}, [(None, "")]),
        ('"",""\n', {"nullValue": ""}, [(None, None)]),
        ("1,ü\n".encode("latin-1"), {"encoding": "ISO-8859-1"}, [("1", "ü")]),
        ('1,"a""b"\n', {"escape": '"'}, [("1", 'a"b')]),
    ],
    ids=[
        "separator",
        "long separator",
        "tab",
        "comment",
        "lines in values",
        "CR LF",
        "doubled quotes",
        "backslashes",
        "escaped by a backslash",
        "another quote",
        "no quote",
        "blanks around values",
        "a quote inside",
        "empty",
        "empty is NULL",
        "encoding",
        "quotes",
    ],
)
@pytest.mark.parametrize("header", ["false", "true"])
def test_csv_as_it_is_written(
    tmp_path: Path,
    text: str | bytes,
    options: dict[str, str],
    wanted: list[tuple[Any, ...]],
    header: str,
) -> None:
    data = text if isinstance(text, bytes) else text.encode()
    separator = options.get("sep", options.get("delimiter", ",")).replace("\\t", "\t")
    line = f"id{separator}name\n".encode()
    path = tmp_path / "a.csv"
    path.write_bytes(line + data if header == "true" else data)
    found = read(path, "id INT, name STRING", **{**options, "header": header})
    assert [row[REASON] for row in found] == [None] * len(wanted)
    wanted = [(None if key is None else int(key), name) for key, name in wanted]
    assert [(row["id"], row["name"]) for row in found] == wanted


def test_csv_that_is_not_quoted_as_it_should_be(tmp_path: Path) -> None:
    """What a lenient parser would make something of goes to quarantine whole; what is left is a record."""
    texts = {
        "junk": '1,"a"b\n2,c\n',
        "cut": '1,a\n2,"b\n3,c\n\n4,d\n',
        "header": 'id,"na\nme"\n1,a\n',
        "single": '1,"a\n2,b"\n3,c\n',
        "bytes": b'1,"a\n\xff"\n2,b\n',
        "nul": '1,"a\0"\n2,b\n',
    }
    files = {name: tmp_path / name for name in texts}
    for name, content in texts.items():
        files[name].write_bytes(content if isinstance(content, bytes) else content.encode())

    def outcome(name: str, **options: str) -> list[tuple[Any, ...]]:
        rows = read(files[name], "" if "header" in options else "id STRING, name STRING", **options)
        return [
            (r[POSITION]["row"], r[RAW], None if r[REASON] else (r["id"], r["name"]), r[REASON]) for r in rows
        ]

    assert outcome("junk") == [(0, '1,"a"b', None, MISQUOTED), (1, None, ("2", "c"), None)]
    assert outcome("cut") == [
        (0, None, ("1", "a"), None),
        (1, '2,"b', None, UNCLOSED),
        (2, "3,c", None, UNCLOSED),
        (4, "4,d", None, UNCLOSED),
    ]
    assert {why for *_, why in outcome("header", header="true")} == {
        "the header of its file is not quoted as format_options say, or has a line break in a name"
    }
    # Who says that no value has line breaks gets each line judged alone.
    assert [why for *_, why in outcome("single", multiLine="false")] == [MISQUOTED, None, None]
    assert [why for *_, why in outcome("single")] == [None, None]
    assert [why for *_, why in outcome("nul")] == [WITH_NUL, None]
    assert outcome("bytes") == [(0, "base64:MSwiYQr/Ig==", None, "not UTF-8"), (2, None, ("2", "b"), None)]


def test_a_quoted_value_of_too_many_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv, "MOST_LINES", 3)
    path = tmp_path / "a.csv"
    path.write_text('1,"a\nb\nc"\n2,"a\nb\nc\nd"\n3,e\n')
    found = read(path, "id STRING, name STRING")
    by_row = {row[POSITION]["row"]: row[REASON] for row in found}
    assert by_row == {0: None, 3: UNCLOSED, 4: UNCLOSED, 5: UNCLOSED, 6: UNCLOSED, 7: None}
