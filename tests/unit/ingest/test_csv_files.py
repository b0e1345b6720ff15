"""CSV files as people write them: which records they have, and which go to quarantine."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from delta_cdc.core.adapters import UPSERT
from delta_cdc.ingest import adapters, local
from delta_cdc.ingest.batch import POSITION, RAW, REASON
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.record import Event
from delta_cdc.ingest.records.csv import MISQUOTED, NO_HEADER, UNCLOSED
from tests.support.change_sets import typed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from delta_cdc.ingest.record import Record


def read(path: Path, schema: str = "", adapter: str = "plain", **format_options: str) -> list[dict[str, Any]]:
    """Return the rows of a CSV file, without Spark."""
    declared = typed(schema) if schema else None
    reading = Reading(
        format="csv",
        adapter=adapter,
        adapter_options=adapters.check("plain", {}, keys=(), format="csv", insert_only=True),
        format_options=format_options,
        declared=declared is not None,
        names=tuple(name for name, _ in declared.fields) if declared is not None else (),
        insert_only=True,
        numbered=True,
    )
    return local.rows_of_file(local.complete(reading, path, declared), path)


def test_options_reach_the_reader(tmp_path: Path) -> None:
    """What each option means is in ``records/test_csv.py``."""
    path = tmp_path / "a.csv"
    path.write_bytes("#no\nid\tname\n1\tNIL\n2\t'ü\n'\n3\t''\n".encode("latin-1"))
    options = {"delimiter": "\\t", "quote": "'", "encoding": "ISO-8859-1", "comment": "#", "nullValue": "NIL"}
    found = read(path, "id INT, name STRING", **options, header="true")
    assert [(row["id"], row["name"], row[REASON]) for row in found] == [
        (1, None, None),
        (2, "ü\n", None),
        (3, "", None),
    ]


def test_another_end_of_lines_reaches_the_reader(tmp_path: Path) -> None:
    """``delta-cdc decode`` shows the records that the ingest makes."""
    path = tmp_path / "a.csv"
    path.write_bytes(b"1,a||2,b||")
    found = read(path, "id INT, name STRING", lineSep="||")
    assert [(row["id"], row["name"], row[REASON]) for row in found] == [(1, "a", None), (2, "b", None)]


def test_files_of_dms_as_its_defaults_write_them(tmp_path: Path) -> None:
    """NULL is the text without quotes, and bytes are hexadecimal digits."""
    path = tmp_path / "20260301-090300999.csv"
    path.write_text('I,1,NULL,1.50,CAFEBABE\nU,2,"NULL",NULL,NULL\nU,3,,,""\nU,4,NIL,1,0102\nU,5,b,2,YQ==\n')

    def rows(**format_options: str) -> list[Any]:
        schema = typed("Op STRING, id INT, note STRING, price DECIMAL(10,2), raw BINARY")
        reading = Reading(
            format="csv",
            adapter="dms",
            adapter_options=adapters.check("dms", {}, keys=("id",), format="csv"),
            format_options=format_options,
            keys=("id",),
            declared=True,
            names=tuple(name for name, _ in schema.fields),
            numbered=True,
        )
        found = local.rows_of_file(local.complete(reading, path, schema), path)
        return [row[REASON] or (row["note"], row["price"], row["raw"]) for row in found]

    one, two = Decimal("1.50"), Decimal("1.00")
    no_bytes = "column raw is no binary"
    assert rows() == [
        (None, one, b"\xca\xfe\xba\xbe"),
        ("NULL", None, None),
        (None, None, None),
        ("NIL", two, b"\x01\x02"),
        no_bytes,
    ]
    no_price = "column price is no decimal(10,2)"
    assert rows(nullvalue="NIL")[:4] == [
        ("NULL", one, b"\xca\xfe\xba\xbe"),
        no_price,
        (None, None, None),
        (None, two, b"\x01\x02"),
    ]


def test_csv_that_is_not_quoted_as_it_should_be(tmp_path: Path) -> None:
    """What a lenient parser would make something of goes to quarantine whole; what is left is a record."""
    texts = {
        "junk": '1,"a"b\n2,c\n',
        "cut": '1,a\n2,"b\n3,c\n\n4,d\n',
        "header": 'id,"na\nme"\n1,a\n',
        "single": '1,"a\n2,b"\n3,c\n',
        "bytes": b'1,"a\n\xff"\n2,b\n',
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
    assert outcome("bytes") == [(0, "base64:MSwiYQr/Ig==", None, "not UTF-8"), (2, None, ("2", "b"), None)]


def renamed(record: Record, options: Mapping[str, Any]) -> list[Event]:
    """An adapter that gives the columns other names than the header."""
    return [Event(UPSERT, {"id": record.value["NR"]}, 1)]


def test_a_file_without_the_header_that_it_should_have(tmp_path: Path) -> None:
    """Not its first record as a header, and its others as rows of NULL."""
    path = tmp_path / "a.csv"
    path.write_text("1,a\n2,b\n")
    found = read(path, "id INT, name STRING", header="true")
    assert [(row[POSITION]["row"], row[RAW], row[REASON]) for row in found] == [
        (0, "1,a", NO_HEADER),
        (1, "1,a\n2,b", NO_HEADER),
    ]
    # The first files say which columns there are; and a user's function may rename all of them.
    assert [row[REASON] for row in read(path, header="true")] == [None]
    path.write_text("NR,NAME\n1,a\n")
    found = read(path, "id INT", f"{__name__}:renamed", header="true")
    assert [(row["id"], row[REASON]) for row in found] == [(1, None)]
