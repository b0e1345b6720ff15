"""What the function on Arrow batches does besides its parts: whole records, columns, unknown columns."""

from __future__ import annotations

import bz2
import gzip
import json
import resource
import zlib
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import ColumnNotFound, ReservedColumnName
from delta_cdc.ingest import adapters, local, sources
from delta_cdc.ingest.batch import (
    COLUMNS,
    OP,
    POSITION,
    RAW,
    REASON,
    SEQUENCE,
    Found,
    Maker,
    arrow_type,
    found_of,
    read_of,
)
from delta_cdc.ingest.layout import layout
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.types import INTEGER, LONG, STRING, VOID, struct
from tests.support import debezium as d
from tests.support.change_sets import adapted, by_row, json_records, quarantined, table_records, typed

if TYPE_CHECKING:
    from collections.abc import Callable

PG = d.postgresql(100, 120)


def reading_of(format_: str = "json", adapter: str = "plain", **more: Any) -> Reading:
    options = more.pop("options", {"sequence_by": "ts"})
    keys = more.pop("keys", ("id",))
    checked = adapters.check(adapter, options, keys=keys, format=format_)
    return Reading(format=format_, adapter=adapter, adapter_options=checked, keys=keys, numbered=True, **more)


def rows_of(path: Path, reading: Reading, schema: str | None = None) -> list[dict[str, Any]]:
    declared = None if schema is None else typed(schema)
    return local.rows_of_file(local.complete(reading, path, declared), path)


def test_a_record_is_valid_as_a_whole() -> None:
    """The delete of an old key must not come without the row of the new one: it would be lost."""
    change = d.message(d.change("u", {"id": 1, "w": 2}, {"id": 2, "w": "x"}, PG))
    (row,) = adapted(json_records([change]), "debezium", {}, schema="id int, w bigint").rows
    assert (row[OP], row[REASON]) == (None, "column w is no bigint")
    assert json.loads(row[RAW])["payload" if "payload" in row[RAW] else "op"]
    fine = d.message(d.change("u", {"id": 1, "w": 2}, {"id": 2, "w": 3}, PG))
    rows = adapted(json_records([change, fine]), "debezium", {}, schema="id int, w bigint").rows
    assert [row[OP] for row in rows] == [None, "delete", "upsert"]


def test_messages_with_the_prefix_of_a_registry() -> None:
    """Confluent's has an id of 4 bytes, Apicurio's of 8; a message in quarantine is read again with it."""
    lines = ['{"id":1,"ts":1}', "\0\0\0\0\7" + '{"id":2,"ts":2}', "\0" * 8 + "\7" + '{"id":3,"ts":3}', "\0x"]
    rows = adapted(json_records(lines, keys=["k"]), "plain", {"sequence_by": "ts"}).rows
    assert [row["id"] for row in rows] == [1, 2, 3, None]
    assert rows[3][REASON].startswith("not JSON")
    again = reading_of(is_again=True).with_columns((("id", LONG), ("ts", LONG)), ())
    values = [row[RAW] or line for row, line in zip(rows, lines, strict=True)]
    (found,) = Maker(again).batches([quarantined(values)])
    assert found.column("id").to_pylist() == [1, 2, 3, None]
    # What a replay settles is found by its text.
    assert found.column(RAW).to_pylist() == values


def test_names_that_differ_in_case() -> None:
    lines = ['{"id":1,"ts":1,"v":1}', '{"id":1,"ts":2,"V":1}', '{"id":1,"ts":3,"v":1,"V":2}']
    rows = adapted(json_records(lines), "plain", {"sequence_by": "ts"}, known="id int, ts int, v int").rows
    assert [row[REASON] for row in rows] == [
        None,
        "a column of another case than in the log: V",
        "two columns whose names differ in case only: v and V",
    ]


def test_a_column_without_a_name() -> None:
    """No SQL can name it, so an apply of the log would fail for good."""
    lines = ['{"id":1,"ts":1,"":5}', '{"id":2,"ts":2}']
    options = {"sequence_by": "ts"}
    made = adapted(json_records(lines), "plain", options, known="id int, ts int")
    reason = "a column without a name, which the option schema would leave out"
    assert [row[REASON] for row in made.rows] == [reason, None]
    assert [name for name, _ in made.columns] == ["id", "ts"]
    without = adapted(json_records(lines), "plain", options, schema="id int, ts int")
    assert [row[REASON] for row in without.rows] == [None, None]


@pytest.mark.parametrize("format_", ["json", "csv"])
def test_a_whole_file_whose_content_is_damaged(
    tmp_path: Path, format_: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It becomes no record of noise: the batch goes on without it."""
    text = '[{"id": 1, "ts": 1}]' if format_ == "json" else "id,ts\n1,1\n"
    data = gzip.compress(text.encode("utf-16" if format_ == "csv" else "utf-8"))
    options = {"multiLine": "true"} if format_ == "json" else {"encoding": "UTF-16", "header": "true"}
    path = tmp_path / f"a.{format_}.gz"
    reading = reading_of(format_, is_whole=True, format_options=options)

    def read() -> list[int]:
        return [len(batch) for batch in read_of(reading)(local.batches_of(path, reading))]

    path.write_bytes(data)
    assert read() == [0]
    for damaged in (data[:-12], b"\x1f\x8b noise"):
        path.write_bytes(damaged)
        with pytest.raises(sources.FileDamaged, match=f"{path} is a damaged file: its content cannot be"):
            read()
    path.write_bytes(data)
    monkeypatch.setattr("delta_cdc.ingest.formats.MOST_BYTES_OF_A_FILE", 5)
    with pytest.raises(sources.FileDamaged, match="its content has more than 1 GiB"):
        read()


def test_containers_of_whole_files(tmp_path: Path) -> None:
    """Each that the reader of lines decompresses is read, or named: none becomes noise."""
    text = b'[{"id": 1, "ts": 1}, {"id": 2, "ts": 2}]'
    reading = reading_of(is_whole=True, format_options={"multiLine": "true"})
    packed: dict[str, Callable[[bytes], bytes]] = {
        "": bytes,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".zst": lambda part: pa.compress(part, "zstd", asbytes=True),
        ".deflate": zlib.compress,
    }
    for ending, pack in packed.items():
        # In two parts, as files that were joined are.
        data = pack(text[:20]) + pack(text[20:])
        path = tmp_path / f"a.json{ending}"
        path.write_bytes(data)
        complete = local.complete(reading, path, None)
        assert [row["id"] for row in local.rows_of_file(complete, path)] == [1, 2], ending
        if ending:
            path.write_bytes(data[:-8])
            with pytest.raises(sources.FileDamaged):
                local.rows_of_file(complete, path)
    for ending in (".snappy", ".lz4"):
        path = tmp_path / f"a.json{ending}"
        path.write_bytes(text)
        with pytest.raises(sources.FileDamaged, match=f"cannot be {ending}; compress it with gzip"):
            local.complete(reading, path, None)


def test_a_csv_file_that_grew_after_the_plan(tmp_path: Path) -> None:
    """Its last line may be incomplete. A file of JSON may grow: its incomplete line is no record."""
    path = tmp_path / "a.csv"
    path.write_text("id,ts\n1,1\n2,2")
    options = {"format_options": {"header": "true"}}
    reading = local.complete(reading_of("csv", **options), path, None)
    assert len(local.rows_of_file(reading, path)) == 2
    with pytest.raises(sources.FileGrew, match=f"{path} grew while it was read"):
        local.rows_of_file(replace(reading, sizes={str(path): 10}), path)
    assert len(local.rows_of_file(replace(reading, sizes={"/other": 10}), path)) == 2


def test_parquet_stays_in_columns() -> None:
    """A value is cast exactly, or its record is invalid; a key change needs each column of the table."""
    rows = [(1, 5, "x"), (2, 2**40, "y"), (3, None, None)]
    records = table_records("id bigint, ts bigint, v string", rows)
    known = "id int, ts int, v string"
    found = adapted(
        records, "plain", {"sequence_by": "ts"}, known=known, format="parquet", sequence_type="bigint"
    )
    assert [row[REASON] for row in found.rows[:2]] == [None, "column ts is no int"]
    assert found.rows[2][REASON].startswith("no value for sequence_by")
    assert json.loads(found.rows[1][RAW]) == {"id": 2, "ts": 2**40, "v": "y"}
    options = {"sequence_by": "ts", "old_keys": {"id": "old"}}
    moved = table_records("id int, old int, ts int, v string", [(2, 1, 3, "x"), (4, 4, 3, "y")])
    rows_ = adapted(moved, "plain", options, known="id int, ts int, v string", format="parquet").rows
    events = [(row[OP], row["id"], row["v"]) for row in rows_]
    assert events == [("delete", 1, "x"), ("upsert", 2, "x"), ("upsert", 4, "y")]
    partial = adapted(moved, "plain", options, known="id int, ts int, v string, w int", format="parquet").rows
    assert [row[OP] for row in partial] == [None, "upsert"]
    assert partial[0][REASON] == "a key change without the whole row"


def test_a_column_of_parquet_without_a_type(tmp_path: Path) -> None:
    """As pandas writes a column of None: a later file with values gives its type."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "ts": [1], "v": pa.nulls(1)}), path)
    (row,) = rows_of(path, reading_of("parquet"))
    assert (row[COLUMNS], "v" in row) == (["id", "ts"], False)
    for kind in ("int", "string", "decimal(10,2)", "struct<a:int>"):
        (row,) = rows_of(path, reading_of("parquet", declared=True), f"id int, ts int, v {kind}")
        assert (row[COLUMNS], row["v"], row[REASON]) == (["id", "ts", "v"], None, None)


def test_a_moment_of_parquet_is_no_local_time(tmp_path: Path) -> None:
    """As in JSON, where a text with a zone is no such value."""
    path = tmp_path / "a.parquet"
    moments = pa.array([MOMENT, None], pa.timestamp("us", "Europe/Berlin"))
    pq.write_table(pa.table({"id": [1, 2], "ts": [1, 1], "v": moments}), path)
    found = rows_of(path, reading_of("parquet", declared=True), "id int, ts int, v timestamp_ntz")
    assert [(row["v"], row[REASON]) for row in found] == [
        (None, "column v is no timestamp_ntz"),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("wrapped", "kind"),
    [
        (lambda value: {"at": value}, "struct<at: {}>"),
        (lambda value: [value], "array<{}>"),
        (lambda value: {"key": value}, "map<string, {}>"),
        (lambda value: [{"at": [value]}], "array<struct<at: array<{}>>>"),
    ],
)
def test_nor_is_one_inside_of_a_column(tmp_path: Path, wrapped: Callable[[Any], Any], kind: str) -> None:
    path = tmp_path / "a.parquet"
    moment = MOMENT.replace(tzinfo=UTC)
    arrow = arrow_type(typed("v " + kind.format("timestamp")).fields[0][1])
    pq.write_table(pa.table({"id": [1], "ts": [1], "v": pa.array([wrapped(moment)], arrow)}), path)
    (row,) = rows_of(
        path, reading_of("parquet", declared=True), f"id int, ts int, v {kind.format('timestamp_ntz')}"
    )
    assert row["v"] is None
    assert row[REASON].startswith("column v is no ")
    (row,) = rows_of(
        path, reading_of("parquet", declared=True), f"id int, ts int, v {kind.format('timestamp')}"
    )
    assert row[REASON] is None
    assert row["v"] is not None


DAY, MOMENT = datetime(2024, 1, 1).date(), datetime(2024, 1, 1)  # noqa: DTZ001


@pytest.mark.parametrize(
    ("array", "kind", "wanted"),
    [
        # Neither a floating point number is rounded, nor is a value of another kind taken for a number.
        (pa.array([1.239]), "decimal(10,2)", None), (pa.array([2.675]), "decimal(10,2)", None),
        (pa.array([0.1], pa.float32()), "decimal(10,2)", None), (pa.array([1.5]), "bigint", None),
        (pa.array([True]), "bigint", None), (pa.array(["0x1F"]), "bigint", None),
        (pa.array([MOMENT], pa.timestamp("us")), "bigint", None), (pa.array([DAY]), "int", None),
        (pa.array([Decimal("1.239")]), "decimal(10,2)", None), (pa.array([Decimal("1.5")]), "int", None),
        (pa.array([2**31]), "int", None), (pa.array([2**63], pa.uint64()), "bigint", None),
        # What fits, fits; also where Arrow's cast looks at the type alone.
        (pa.array([1.25]), "decimal(10,2)", Decimal("1.25")), (pa.array([7.0]), "bigint", 7),
        (pa.array(["31"]), "bigint", 31), (pa.array([5]), "decimal(5,2)", Decimal("5.00")),
        (pa.array([Decimal("1.200")]), "decimal(10,2)", Decimal("1.20")),
        (pa.array([Decimal("7.00")]), "smallint", 7), (pa.array([255], pa.uint8()), "int", 255),
        (pa.array([None], pa.float64()), "decimal(10,2)", None),
    ],
)  # fmt: skip
def test_a_value_of_parquet_fits_exactly(tmp_path: Path, array: pa.Array, kind: str, wanted: Any) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": [1], "ts": [1], "v": array}), path)
    (row,) = rows_of(path, reading_of("parquet", declared=True), f"id int, ts int, v {kind}")
    fits = wanted is not None or array.null_count == 1
    assert (row["v"], row[REASON]) == (wanted, None if fits else f"column v is no {kind}")


def test_bytes_that_are_not_utf8_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(b'{"id":1,"ts":1}\n{"id":2,"v":"\xff"}\nnull\n')
    rows = rows_of(path, reading_of())
    assert [(row[POSITION]["row"], row[OP]) for row in rows] == [*enumerate(("upsert", None, "ignore"))]
    assert rows[1][RAW] == "base64:eyJpZCI6MiwidiI6Iv8ifQ=="


def test_a_file_that_does_not_have_a_line_for_each_object(tmp_path: Path) -> None:
    """Its lines go to quarantine with the way out, which reads each object with its number in the file."""
    path = tmp_path / "a.json"
    one, two, three = ({"id": number, "ts": number, "v": {"w": [1, 2]}} for number in (1, 2, 3))
    texts = {
        "array": json.dumps([one, two, three]),
        "joined": json.dumps(one) + json.dumps(two) + " " + json.dumps(three),
        "indented": "\r\n".join(
            json.dumps(row, indent="\t").replace("\n", "\r\n") for row in (one, two, three)
        ),
        "long": json.dumps({**one, "note": "x" * 17_000_000}),
    }
    for name, text in texts.items():
        path.write_text(text, newline="")
        assert "multiLine" in rows_of(path, reading_of())[0][REASON], name
        if name != "long":
            rows = rows_of(path, reading_of(format_options={"multiLine": "true"}, is_whole=True))
            assert [(row["id"], row[POSITION]["row"]) for row in rows] == [(1, 0), (2, 1), (3, 2)], name
    path.write_text('{"id":1,"ts":1} x\n')
    assert rows_of(path, reading_of())[0][REASON] == "not JSON: text after the object"


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("encoding", ["utf-8", "windows-1252", "utf-16"])
def test_files_that_are_read_whole(tmp_path: Path, packed: bool, encoding: str) -> None:
    text = '[{"id": 1, "ts": 1, "v": "€"},\n {"id": 2, "ts": 2},\n 7]'
    data = text.encode(encoding)
    path = tmp_path / ("a.json.gz" if packed else "a.json")
    path.write_bytes(gzip.compress(data) if packed else data)
    options = {"multiLine": "true", "encoding": encoding}
    rows = rows_of(path, reading_of(format_options=options, is_whole=True))
    assert [(row["id"], row["v"], row[REASON]) for row in rows[:2]] == [(1, "€", None), (2, None, None)]
    assert rows[2][REASON] == "not JSON: not exactly one whole object"
    lines = tmp_path / ("l.json.gz" if packed else "l.json")
    content = '{"id": 1, "ts": 1, "v": "€"}\n{"id": 2, "ts": 2}\n'.encode(encoding)
    lines.write_bytes(gzip.compress(content) if packed else content)
    rows = rows_of(lines, reading_of(format_options={"encoding": encoding}, is_whole=encoding == "utf-16"))
    assert [(row["id"], row["v"], row[REASON]) for row in rows] == [(1, "€", None), (2, None, None)]


def test_partitions_find_what_the_whole_batch_shows(tmp_path: Path) -> None:
    lines = [
        {"id": 1, "ts": 1, "a": 1, "s": {"x": 1}},
        {"id": 2, "ts": 2, "a": 1.5, "s": {"y": "t"}, "n": None},
        {"id": 3, "ts": 3, "b": True, "l": [{"z": 1}]},
    ]
    whole = Found()
    parts = []
    for number, some in enumerate(([lines[0]], lines[1:])):
        path = tmp_path / f"{number}.json"
        path.write_text("\n".join(map(json.dumps, some)))
        found = found_of(reading_of())(local.batches_of(path, reading_of()))
        parts += [Found.of_text(batch.column(0)[0].as_py()) for batch in found]
    for part in reversed(parts):
        whole.merge(part)
    made = reading_of().made_adapter()
    columns = dict(layout(made, None, None, {}, whole, keys=("id",), excluded=()).columns)
    assert {name: str(kind) for name, kind in columns.items()} == {
        "id": "bigint",
        "ts": "bigint",
        "a": "decimal(38,18)",
        "b": "boolean",
        "l": "array<struct<z:bigint>>",
        "s": "struct<y:string,x:bigint>",
    }


def test_columns_of_a_layout() -> None:
    made = reading_of(options={"sequence_by": "ts", "operation_column": "op"}).made_adapter()
    schema = struct([("op", STRING), ("id", INTEGER), ("ts", LONG)])
    found = layout(made, schema, None, {}, Found(), keys=("id",), excluded=("TS",))
    assert found == ((("id", INTEGER),), (("op", STRING), ("ts", LONG)))
    for name in ("_OP", "_commit_VERSION", "_change_type", "__delta_cdc_x"):
        named = struct([("id", LONG), (name, LONG)])
        with pytest.raises(ReservedColumnName, match=rf"except_column_list': \['{name}'\]"):
            layout(made, named, None, {}, Found(), keys=("id",), excluded=())
        assert layout(made, named, None, {}, Found(), keys=("id",), excluded=[name]).columns == (
            ("id", LONG),
        )
    with pytest.raises(ColumnNotFound, match="no key column 'key'"):
        layout(made, schema, None, {}, Found(), keys=("key",), excluded=())
    with pytest.raises(ColumnNotFound, match=r"did you mean id\? Else correct keys"):
        layout(made, schema, None, {}, Found(), keys=("idd",), excluded=())
    known = struct([("ID", INTEGER)])
    grown = layout(made, None, known, {"id": LONG, "v": LONG}, Found(), keys=("id",), excluded=())
    assert grown.columns == (("ID", INTEGER), ("v", LONG))
    # A column of Parquet without a type is no column yet; in the log, it keeps its type.
    for name, wanted in (("v", (("ID", INTEGER),)), ("id", (("ID", INTEGER),))):
        assert layout(made, None, known, {name: VOID}, Found(), keys=("id",), excluded=()).columns == wanted


def test_what_an_event_lists_is_spelt_as_the_columns_are() -> None:
    options = {"sequence_by": "ts", "columns_to_update": "c"}
    records = json_records(['{"id":1,"ts":1,"v":1,"w":2,"c":["ID","W"]}'])
    (row,) = adapted(records, "plain", options, schema="id int, v int, w int, ts int").rows
    assert (row[COLUMNS], row[SEQUENCE]) == (["id", "w"], 1)
    (event,) = by_row(adapted(json_records(['{"id":1,"ts":1}']), "plain", {"sequence_by": "ts"}))[0]
    assert event.columns == ("id", "ts")


def test_a_packed_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'[{"id": 1}]'))
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (used + (1 << 30), limits[1]))
    try:
        rows = rows_of(path, reading_of(format_options={"multiLine": "true"}, is_whole=True))
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    assert len(rows) == 1
