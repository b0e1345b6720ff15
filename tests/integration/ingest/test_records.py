"""Records of files: each file by its own name and its own columns, each record with its place."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.change_log import POSITION, RAW
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, SourceUnreadable
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.spec import IngestSpec, SourceFile
from delta_cdc.ingest.batch import COLUMNS, REASON, of_arrow
from delta_cdc.ingest.types import struct
from delta_cdc.planning.parquet_footers import footers
from delta_cdc.spark.ingest import readable_files
from delta_cdc.spark.ingest.decoding import Decoding
from delta_cdc.spark.ingest.widening import of_spark
from tests.support.engine import session_like
from tests.support.ingest_specs import ingest_spec

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STRANGE = (
    "a [1].txt",
    "b{x,y}.txt",
    "c*.txt",
    "d?.txt",
    "e\\f.txt",
    "g%20h.txt",
    "100%41.txt",
    "i#j.txt",
    "k+l m.txt",
    "ö ü.txt",
    "q'\"`$.txt",
    "_k=v.txt",
    "folder/k=1/n.txt",
)


def spec_of(files: list[Path], form: str, **options: Any) -> IngestSpec:
    found = [SourceFile(str(file), file.stat().st_size, 0) for file in files]
    if form == "parquet":
        found = [
            looked if looked.columns else file
            for file, looked in zip(found, asyncio.run(footers(found)), strict=True)
        ]
    adapter = {"needs_rows": True} if options.pop("needs_rows", False) else {}
    asked = IngestOptions(
        format=form,  # type: ignore[arg-type]
        adapter="tests.support.as_it_is.events",
        adapter_options=adapter,
        insert_only=True,
        **options,
    )
    return ingest_spec(asked, files=tuple(found))


def decoding_of(session: SparkSession, spec: IngestSpec) -> Decoding:
    decoding = Decoding(
        spec.options, declared=readable_files.declared(spec.options), known=None, log_sequence=None
    )
    decoding.add_files(session, readable_files.readable(spec))
    return decoding


def read(
    spark: SparkSession, files: list[Path], form: str, *, needs_rows: bool = False, **options: Any
) -> list[Any]:
    session = session_like(spark)
    # Several parts of one file, so that its lines come from several tasks.
    session.conf.set("spark.sql.files.maxPartitionBytes", "2000")
    session.conf.set("spark.sql.files.openCostInBytes", "1")
    spec = spec_of(files, form, needs_rows=needs_rows, **options)
    decoding = Decoding(
        spec.options, declared=readable_files.declared(spec.options), known=None, log_sequence=None
    )
    decoding.add_files(session, readable_files.readable(spec))
    decoding.look()
    rows, _, _ = decoding.rows()
    return rows.collect()


@pytest.mark.parametrize("whole", [False, True])
def test_a_name_is_a_name(spark: SparkSession, tmp_path: Path, whole: bool) -> None:
    """What a pattern would match lies beside; each record says the name as it was planned."""
    files = []
    for name in STRANGE:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{json.dumps(name)}\n")
        files.append(path)
    for name in ("a 1.txt", "bx.txt", "cc.txt", "dd.txt", "g h.txt"):
        (tmp_path / name).write_text("bad\n")
    options = {"format_options": {"multiLine": "true"}} if whole else {}
    found = [(row[POSITION]["file"], json.loads(row[RAW])) for row in read(spark, files, "json", **options)]
    assert sorted(found) == sorted((str(path), name) for path, name in zip(files, STRANGE, strict=True))


def test_lines(spark: SparkSession, tmp_path: Path) -> None:
    """Rows are true, whatever the tasks are; blank lines and the byte order mark are no records."""
    long, marked, zipped = tmp_path / "long", tmp_path / "marked", tmp_path / "zipped.gz"
    long.write_text("".join(f"line {number} {'x' * (number % 50)}\n" for number in range(1000)))
    marked.write_bytes("\ufefffirst\r\n\r\n   \r\nfourth ü".encode() + b"\nfifth \xfc\n")
    zipped.write_bytes(gzip.compress(b"one\n\ntwo\n"))
    found = sorted(
        (row[POSITION]["file"].rsplit("/", 1)[1], row[POSITION]["row"], row[RAW])
        for row in read(spark, [long, marked, zipped], "json", needs_rows=True)
    )
    assert found[1000:] == [
        ("marked", 0, "first"),
        ("marked", 3, "fourth ü"),
        # No text in UTF-8.
        ("marked", 4, "base64:ZmlmdGgg/A=="),
        ("zipped.gz", 0, "one"),
        ("zipped.gz", 2, "two"),
    ]
    assert [(row, text.split()[1]) for _, row, text in found[:1000]] == [(n, str(n)) for n in range(1000)]


def test_csv_by_its_own_header(spark: SparkSession, tmp_path: Path) -> None:
    texts = {
        "a": "id,name,amount\n1,x,10\n2,,\n",
        "b": "amount,id,name\n30,3,z\n",
        "c": '\ufeffid,"extra, quoted"\n4,more\n',
        "d": "id,name,amount\n5,short\n6,u,60\n",
        "e": "id,ID\n7,8\n",
        "f": "",
        "g": "id,name,amount\n",
    }
    files = []
    for name, text in texts.items():
        files.append(tmp_path / name)
        files[-1].write_text(text)
    found = read(spark, files, "csv", needs_rows=True, format_options={"header": "true"})
    by_row = {(row[POSITION]["file"][-1], row[POSITION]["row"]): row for row in found}
    assert sorted(by_row) == [("a", 1), ("a", 2), ("b", 1), ("c", 1), ("d", 1), ("d", 2), ("e", 0), ("e", 1)]

    def values(key: tuple[str, int]) -> dict[str, Any]:
        row = by_row[key]
        assert row[REASON] is None
        return {name: row[name] for name in row[COLUMNS]}

    assert values(("a", 1)) == {"id": "1", "name": "x", "amount": "10"}
    assert values(("a", 2)) == {"id": "2", "name": None, "amount": None}
    assert values(("b", 1)) == {"id": "3", "name": "z", "amount": "30"}
    assert values(("c", 1)) == {"id": "4", "extra, quoted": "more"}
    assert values(("d", 2)) == {"id": "6", "name": "u", "amount": "60"}
    assert "3 columns" in by_row["d", 1][REASON]
    assert by_row["d", 1][RAW] == "id,name,amount\n5,short"
    assert "twice" in by_row["e", 1][REASON]
    assert (by_row["e", 0][RAW], by_row["e", 0][REASON]) == ("id,ID", by_row["e", 1][REASON])


def test_parquet_by_its_own_columns(spark: SparkSession, tmp_path: Path) -> None:
    tables = {
        "a": pa.table({"id": pa.array([1, 2], pa.int32()), "v": pa.array(["x", None])}),
        "b": pa.table({"v": pa.array(["y"]), "id": pa.array([3], pa.int64())}),
        "c": pa.table({"id": pa.array([4], pa.int32()), "w": pa.array([1.5], pa.float32())}),
        "d": pa.table({"id": pa.array([5], pa.int64()), "w": pa.array([2.5], pa.float64())}),
        "e": pa.table({"id": [6], "v": pa.nulls(1), "n": pa.nulls(1)}),
    }
    files = []
    for name, table in tables.items():
        files.append(tmp_path / f"{name}.parquet")
        pq.write_table(table, files[-1])
    found = read(spark, files, "parquet", needs_rows=True)
    values = {
        (row[POSITION]["file"][-9], row[POSITION]["row"]): {n: row[n] for n in row[COLUMNS]} for row in found
    }
    assert values == {
        ("a", 0): {"id": 1, "v": "x"},
        ("a", 1): {"id": 2, "v": None},
        ("b", 0): {"id": 3, "v": "y"},
        ("c", 0): {"id": 4, "w": 1.5},
        ("d", 0): {"id": 5, "w": 2.5},
        ("e", 0): {"id": 6, "v": None},
    }
    pq.write_table(pa.table({"id": ["no number"]}), tmp_path / "z.parquet")
    with pytest.raises(SourceUnreadable, match=r"id is .* in .*z\.parquet: no type holds both"):
        read(spark, [*files, tmp_path / "z.parquet"], "parquet")
    pq.write_table(pa.table({"id": pa.array([1], pa.timestamp("ns"))}), tmp_path / "n.parquet")
    with pytest.raises(SourceUnreadable, match=r"n\.parquet has a column of a type"):
        read(spark, [*files, tmp_path / "n.parquet"], "parquet")


@pytest.mark.parametrize(
    ("form", "options", "said"),
    [
        ("csv", {"mode": "DROPMALFORMED"}, "'mode' cannot be given"),
        ("csv", {"seperator": ";"}, "did you mean sep"),
        ("csv", {"inferSchema": "true"}, "'inferSchema' cannot be given"),
        ("json", {"header": "true"}, "'header' cannot be given"),
        ("json", {"encoding": "UTF-61"}, "the encoding 'UTF-61' is unknown"),
        ("parquet", {"mergeSchema": "true"}, "'mergeSchema' cannot be given"),
        ("csv", {}, "neither schema nor a header"),
    ],
)
def test_refused(spark: SparkSession, tmp_path: Path, form: str, options: dict[str, str], said: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text("1,2\n")
    spec = spec_of([path] if form != "parquet" else [], form, format_options=options)
    with pytest.raises(InvalidConfiguration) as caught:
        decoding_of(session_like(spark), spec)
    assert isinstance(caught.value, DeltaCdcError)
    assert said in str(caught.value)


def test_a_csv_file_that_grew_after_the_plan(spark: SparkSession, tmp_path: Path) -> None:
    """The job compares its size with the planned one; the files of a recorded batch may have grown."""
    path = tmp_path / "a b%20.csv"
    path.write_text("1,x\n2,y\n")
    spec = spec_of([path], "csv", schema="id INT, v STRING")
    with path.open("a") as more:
        more.write("3,z")
    rows, _, _ = decoding_of(session_like(spark), spec).rows()
    with pytest.raises(Exception, match="grew while it was read"):
        rows.collect()
    again = Decoding(
        spec.options, declared=readable_files.declared(spec.options), known=None, log_sequence=None
    )
    again.add_files(session_like(spark), spec.files, may_have_grown=True)
    assert again.rows()[0].count() == 3


def test_the_types_of_parquet_files_without_spark(spark: SparkSession, tmp_path: Path) -> None:
    """``delta-cdc decode`` gives columns the types that Spark gives them."""
    kinds = {
        **{str(kind): kind for kind in (pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64())},
        **{str(kind): kind for kind in (pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())},
        **{str(kind): kind for kind in (pa.float32(), pa.float64(), pa.string(), pa.large_string())},
        **{str(kind): kind for kind in (pa.binary(), pa.large_binary(), pa.date32(), pa.date64())},
        "fixed": pa.binary(3),
        "millis": pa.timestamp("ms"),
        "micros": pa.timestamp("us", "Europe/Berlin"),
        "decimal": pa.decimal128(20, 3),
        "list": pa.list_(pa.struct([("a", pa.uint8()), ("b", pa.timestamp("us", "UTC"))])),
        "map": pa.map_(pa.string(), pa.decimal128(5, 2)),
        "coded": pa.dictionary(pa.int32(), pa.string()),
    }
    path = tmp_path / "a.parquet"
    schema = pa.schema(list(kinds.items()))
    pq.write_table(schema.empty_table(), path)
    found = [(field.name, of_arrow(field.type)) for field in pq.read_schema(path)]
    assert str(struct(found)) == str(of_spark(spark.read.parquet(str(path)).schema))
