"""``delta-cdc decode``: what a file would become, without Spark."""

from __future__ import annotations

import gzip
import json
from datetime import datetime
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.cli import main
from tests.support import debezium as d

if TYPE_CHECKING:
    from pathlib import Path

SCHEMA = "id BIGINT, state STRING, price DECIMAL(10,2)"
OPTIONS = {"operation_column": "op", "sequence_by": "lsn"}
LINES = [
    {"op": "I", "id": 1, "state": "new", "price": 12.5, "lsn": 100},
    {"op": "U", "id": 1, "state": "paid", "lsn": 101},
    {"op": "D", "id": 2, "lsn": 102},
    {"op": "X", "id": 3, "state": "new", "price": 9, "lsn": 103},
    {"op": "I", "id": 4, "state": "new", "price": 7.999, "lsn": 104},
]


def decode(path: Path, *given: str, options: dict[str, Any] | None = None) -> int:
    chosen = {"sequence_by": "lsn"} if options is None else options
    return main(["decode", str(path), "--key", "id", "--adapter-options", json.dumps(chosen), *given])


def lines_of(path: Path, lines: list[Any]) -> Path:
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return path


def test_the_table(tmp_path: Path, capsys: Any) -> None:
    """Columns, events and, by reason, what is no event; a column that an event lacks has a dash."""
    path = lines_of(tmp_path / "orders.json", LINES)
    assert decode(path, "--schema", SCHEMA, options=OPTIONS) == 1
    text = capsys.readouterr().out
    assert text.startswith("3 events, 0 ignored, 2 records for quarantine\n")
    rows = [line.split() for line in text.splitlines()]
    assert ["price", "decimal(10,2)"] in rows
    assert ["upsert", "00000000000000000100", "1", "new", "12.50"] in rows
    assert ["upsert", "00000000000000000101", "1", "paid", "-"] in rows
    assert "1 record: unknown operation 'X'\n  row 3: {" in text
    assert "1 record: column price is no decimal(10,2)\n  row 4: {" in text
    assert decode(lines_of(path, LINES[:3]), "--schema", SCHEMA, "--rows", "1", options=OPTIONS) == 0
    text = capsys.readouterr().out
    assert "Events (the first 1):" in text
    assert "paid" not in text


@pytest.mark.parametrize("format_", ["json", "csv", "parquet"])
def test_columns_that_the_schema_leaves_out(tmp_path: Path, capsys: Any, format_: str) -> None:
    """A warning names them; not those that the options use, exclude or know as a description."""
    row = {"id": 1, "state": "new", "discount": 3, "Note": "x", "op": "I", "lsn": 100, "a-b": "y"}
    path = tmp_path / f"orders.{format_}"
    if format_ == "parquet":
        pq.write_table(pa.Table.from_pylist([row]), path)
    elif format_ == "csv":
        path.write_text("\n".join(",".join(map(str, part)) for part in (row, row.values())) + "\n")
    else:
        lines_of(path, [row])
    options = {**OPTIONS, "except_column_list": ["A-b"]}
    given = ("--schema", "id BIGINT, state STRING", "--format", format_)
    header = ("--format-options", '{"header": "true"}') if format_ == "csv" else ()
    assert decode(path, *given, *header, options=options) == 0
    assert "schema leaves out the column(s) 'Note', 'discount' of the records." in capsys.readouterr().out
    whole = ("--schema", "id BIGINT, state STRING, discount INT, note STRING", "--format", format_)
    assert decode(path, *whole, *header, options=options) == (1 if format_ == "json" else 0)
    assert "leaves out" not in capsys.readouterr().out


def test_a_reason_is_shown_with_what_to_do(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "old.csv"
    path.write_text("id,v\r1,a\r")
    given = ("--format", "csv", "--format-options", '{"header": "true"}', "--schema", "id INT, v STRING")
    assert decode(path, *given, options={"sequence_by": "id"}) == 1
    assert "set lineSep in format_options to what ends the lines of the file, and" in capsys.readouterr().out


def test_nested_and_binary_values(tmp_path: Path, capsys: Any) -> None:
    """They are shown as JSON and in base64, in a table as in JSON."""
    inner = {"type": "record", "name": "I", "fields": [{"name": "a", "type": ["null", "int"]}]}
    types = {"id": "long", "lsn": "long", "blob": "bytes", "tags": {"type": "array", "items": "string"}} | {
        "more": {"type": "map", "values": "int"},
        "inner": inner,
    }
    fields = [{"name": name, "type": of} for name, of in types.items()]
    schema = {"type": "record", "name": "R", "fields": fields}
    row = {"id": 1, "lsn": 7, "blob": b"\xff\x00", "tags": ["a"], "more": {"k": 5}, "inner": {"a": None}}
    path = tmp_path / "a.avro"
    with path.open("wb") as out:
        fastavro.writer(out, schema, [row])
    assert decode(path, "--format", "avro") == 0
    event = capsys.readouterr().out.splitlines()[-1].split()
    assert event == ["upsert", "7", "1", "7", "/wA=", '["a"]', '{"k":5}', '{"a":null}']
    assert decode(path, "--format", "avro", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["columns"]["inner"] == "struct<a:int>"
    assert (found["events"][0]["blob"], found["events"][0]["inner"]) == ("/wA=", {"a": None})


def test_other_formats(tmp_path: Path, capsys: Any) -> None:
    csv, parquet = tmp_path / "a.csv.gz", tmp_path / "a.parquet"
    csv.write_bytes(gzip.compress(b"id;lsn\n1;2\n"))
    header = json.dumps({"header": "true", "sep": ";"})
    assert decode(csv, "--format", "csv", "--format-options", header) == 0
    moment = datetime(2026, 1, 2, 3, 4, 5)  # noqa: DTZ001
    at = pa.array([moment], pa.timestamp("ms"))
    size, name = pa.array([255], pa.uint8()), pa.array(["x"]).dictionary_encode()
    pq.write_table(pa.table({"id": [1], "lsn": [2], "at": at, "size": size, "name": name}), parquet)
    assert decode(parquet, "--format", "parquet", "--json") == 0
    table, _, document = capsys.readouterr().out.partition("{")
    assert table.startswith("1 event, 0 ignored, 0 records for quarantine")
    found = json.loads("{" + document)
    types = {"id": "bigint", "lsn": "bigint", "at": "timestamp_ntz", "size": "smallint", "name": "string"}
    assert found["columns"] == types
    (event,) = found["events"]
    assert [event[name] for name in types] == [1, 2, str(moment), 255, "x"]


def test_the_likely_adapter(tmp_path: Path, capsys: Any) -> None:
    change = d.change("c", None, {"id": 1, "v": "x"}, d.postgresql(100, 120))
    path = lines_of(tmp_path / "a.json", [change])
    assert decode(path, options={"operation_column": "kind", "sequence_by": "ts_ms"}) == 1
    assert "The records look as if they were for --adapter debezium." in capsys.readouterr().out
    assert decode(path, options={"sequence_by": "ts_ms"}) == 1
    assert "Remedy: use --adapter debezium" in capsys.readouterr().err


def test_the_chosen_adapter_is_not_proposed(tmp_path: Path, capsys: Any) -> None:
    path = lines_of(tmp_path / "a.json", [{"id": 1, "__op": "c", "__deleted": "false"}])
    unwrapped = {"unwrapped": True, "connector": "postgresql"}
    assert decode(path, "--adapter", "debezium", options=unwrapped) == 1
    assert "look as if" not in capsys.readouterr().out
    assert decode(path, "--adapter", "debezium", options={}) == 1
    assert "for --adapter debezium (adapter_options unwrapped)." in capsys.readouterr().out


def test_a_type_that_spark_does_not_read(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "lsn": pa.array([1], pa.timestamp("ns"))}), path)
    assert decode(path, "--format", "parquet") == 1
    assert "its column lsn holds timestamps in nanoseconds" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "data", "given", "messages"),
    [
        ("a.json", b"Obj\x01\x04", [], ["a.json: it is an Avro file.", "set format to avro"]),
        ("a.avro", b"{}", ["--format", "avro"], ["it is no Avro file.", "set format to that of the files"]),
        ("a.gz", b"{}", [], ["is not compressed.", "name it without .gz"]),
        ("a.json", gzip.compress(b"{}"), [], ["it is a gzip file.", "name it .gz"]),
        ("a.avro", b"Obj\x01\x04", ["--format", "avro"], ["is a damaged file: not Avro", "the whole file"]),
        ("a.json.gz", gzip.compress(b"{}" * 99)[:-9], [], ["a.json.gz cannot be read:", "ending of its"]),
        ("a.csv", b"1,2\n", ["--format", "csv"], ["neither schema nor a header", "set schema"]),
        ("a.parquet", b"PAR1 PAR1", ["--format", "parquet"], ["An ingest does not read", "a.parquet: "]),
        (
            "a.json",
            b"{}",
            ["--schema", "id WHAT"],
            ["schema is no list of columns", "write it as Spark does"],
        ),
        ("", b"", [], ["cannot be read: No such file", "name a file of this machine"]),
    ],
    ids=["avro", "no avro", "no gz", "gz", "damaged", "end of gz", "header", "parquet", "schema", "missing"],
)
def test_what_is_refused(
    tmp_path: Path, capsys: Any, name: str, data: bytes, given: list[str], messages: list[str]
) -> None:
    """With the reason and the way out that the planner and the quarantine give."""
    path = tmp_path / (name or "missing.json")
    if name:
        path.write_bytes(data)
    is_usage = "--schema" in given or "csv" in given
    assert decode(path, *given) == (2 if is_usage else 1)
    output = capsys.readouterr()
    assert output.out == ""
    for message in messages:
        assert message in output.err
