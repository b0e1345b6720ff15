"""The record of what was taken, read without Spark."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import deltalake
import pytest

from delta_cdc.core.errors import NotADeltaTable, StoreUnavailable
from delta_cdc.core.spec import OffsetRange
from delta_cdc.core.watermark import app_id
from delta_cdc.planning.taken_files import Batch, Counted, Taken, beside, same, taken
from tests.support.http_store import HttpStore
from tests.support.ingest_model import SCHEMA, table_of

if TYPE_CHECKING:
    from pathlib import Path


def file(pipeline: str, seal: int, name: str, size: int, modified: int, **more: str) -> dict[str, Any]:
    row = {"pipeline": pipeline, "seal": seal, "file": name, "size": size, "modified": modified}
    return {**row, "status": "taken", **more}


def offsets(pipeline: str, partition: int, starting: int, ending: int) -> dict[str, Any]:
    found = {"topic": "t", "partition": partition, "starting_offset": starting, "ending_offset": ending}
    return {"pipeline": pipeline, "seal": 14, "status": "taken", **found}


ROWS = [
    file("p", 10, "/in/a", 1, 100, etag=""),
    file("p", 10, "/in/b", 2, 100, etag="e"),
    file("p", 11, "/in/a", 5, 200),
    {"pipeline": "p", "seal": 12, "file": "", "status": "resealed"},
    {"pipeline": "p", "seal": 13, "file": "quarantine", "status": "replayed"},
    file("q", 11, "/in/c", 7, 100),
    offsets("p", 0, 5, 9),
    offsets("q", 1, 0, 2),
]


def made(path: Path, seals: tuple[int, ...] = (10, 11, 12, 13, 14)) -> None:
    """Write the rows, those of a seal in a commit."""
    for seal in seals:
        rows = [row for row in ROWS if row["seal"] == seal]
        properties = deltalake.CommitProperties(app_transactions=[deltalake.Transaction(app_id("p"), seal)])
        deltalake.write_deltalake(path, table_of(rows), mode="append", commit_properties=properties)


@pytest.fixture
def record(tmp_path: Path) -> Taken:
    made(tmp_path / "log__ingested")
    return asyncio.run(taken(str(tmp_path / "log"), "p"))


def test_files_may_be_called_as_they_like(record: Taken, tmp_path: Path) -> None:
    """Also with what other names are joined with; the log has it percent-encoded."""
    folder = tmp_path / "log__ingested"
    for number, file in enumerate(sorted(folder.glob("*.parquet"))):
        file.rename(folder / f"a#{number}:b#.parquet")
        for commit in folder.glob("_delta_log/*.json"):
            text = commit.read_text(encoding="utf-8")
            commit.write_text(text.replace(file.name, f"a%23{number}:b%23.parquet"), encoding="utf-8")
    again = asyncio.run(taken(str(tmp_path / "log"), "p"))
    assert again.damaged == ""
    assert again.counted(0, 99, []) == record.counted(0, 99, [])


def test_which_batches_count(record: Taken) -> None:
    assert (record.number, record.damaged) == (14, "")
    every = record.counted(10, 14, [])
    assert every.files == {"/in/a": (5, 200, ""), "/in/b": (2, 100, "e")}
    assert every.positions == {("t", 0): 9}
    assert every.rows == 6
    assert record.counted(10, 14, [[11, 11], [14, 20]]) == Counted(
        4, {"/in/a": (1, 100, ""), "/in/b": (2, 100, "e")}, {}
    )
    assert record.counted(11, 13, []).files == {"/in/a": (5, 200, "")}
    assert record.counted(15, 20, []) == Counted()


def test_what_a_batch_took(record: Taken) -> None:
    assert record.batch(10) == Batch("ingest", (("/in/a", (1, 100, "")), ("/in/b", (2, 100, "e"))))
    assert record.batch(12) == Batch("renew", (("", (0, 0, "")),))
    assert record.batch(13).kind == "replay"
    assert record.batch(14) == Batch("ingest", (), (OffsetRange("t", 0, 5, 9),))
    assert record.batch(15) == Batch()


def test_what_others_took(record: Taken) -> None:
    assert record.has_others
    assert record.others_files == {"/in/c"}
    assert record.others_ranges == (OffsetRange("t", 1, 0, 2),)


def test_no_record(tmp_path: Path) -> None:
    nothing = asyncio.run(taken(str(tmp_path / "log"), "p"))
    assert nothing == Taken("p")
    assert (nothing.counted(0, 10, []), nothing.batch(1)) == (Counted(), Batch())
    assert (nothing.has_others, nothing.others_files, nothing.others_ranges) == (False, frozenset(), ())


def test_something_else_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "log__ingested").mkdir()
    (tmp_path / "log__ingested/x.txt").touch()
    with pytest.raises(NotADeltaTable):
        asyncio.run(taken(str(tmp_path / "log"), "p"))


def test_a_file_of_it_is_gone_or_damaged(tmp_path: Path) -> None:
    made(tmp_path / "log__ingested")
    first, second, *_ = sorted((tmp_path / "log__ingested").glob("*.parquet"))
    first.unlink()
    second.write_bytes(b"PAR1 no more")
    found = asyncio.run(taken(str(tmp_path / "log"), "p"))
    assert found.damaged
    assert found.number == 14


def test_a_file_with_other_names_of_columns_is_no_empty_record(tmp_path: Path) -> None:
    """As of a table with column mapping."""
    rows = table_of([row for row in ROWS if row["seal"] == 10])
    renamed = rows.rename_columns([f"col-{number}" for number in range(rows.num_columns)])
    deltalake.write_deltalake(tmp_path / "log__ingested", renamed)
    assert "it has no column pipeline" in asyncio.run(taken(str(tmp_path / "log"), "p")).damaged


def test_a_damaged_file_is_no_news_from_the_disk(tmp_path: Path) -> None:
    """Arrow raises OSError for both."""
    made(tmp_path / "log__ingested")
    first = min((tmp_path / "log__ingested").glob("*.parquet"))
    content = bytearray(first.read_bytes())
    content[len(content) - 8 - int.from_bytes(content[-8:-4], "little")] ^= 0xFF
    first.write_bytes(content)
    assert "Couldn't deserialize thrift" in asyncio.run(taken(str(tmp_path / "log"), "p")).damaged
    first.unlink()
    first.symlink_to(first)
    with pytest.raises(StoreUnavailable):
        asyncio.run(taken(str(tmp_path / "log"), "p"))


def test_compacted_and_in_an_object_store(tmp_path: Path) -> None:
    with HttpStore(tmp_path) as store:
        made(tmp_path / "a b/log__ingested")
        before = asyncio.run(taken("s3://lake/a b/log", "p", store.options())).counted(0, 99, [])
        table = deltalake.DeltaTable(tmp_path / "a b/log__ingested")
        table.optimize.compact()
        table.create_checkpoint()
        after = asyncio.run(taken("s3://lake/a b/log", "p", store.options()))
    assert after.counted(0, 99, []) == before
    assert after.number == 14
    assert before.rows == 6


def test_the_place_beside_a_log() -> None:
    assert beside("/lake/log/", "__ingested") == "/lake/log__ingested"
    assert beside("s3://lake/log", "__ingested") == "s3a://lake/log__ingested"


def test_one_delivery_and_another() -> None:
    for one, other, is_same in (
        ((1, 5, ""), (1, 5, ""), True),
        ((1, 5, "e"), (1, 6, "e"), True),
        ((1, 5, "e"), (1, 5, ""), True),
        ((1, 5, ""), (1, 6, "e"), False),
        ((1, 5, ""), (2, 5, ""), False),
        ((1, 5, "e"), (1, 5, "f"), False),
        ((1, 5, "e"), (2, 5, "e"), False),
    ):
        assert same(one, other) is is_same


def test_the_schema_is_that_of_the_job() -> None:
    from delta_cdc.spark.ingest.ingested import COLUMNS

    assert list(COLUMNS) == SCHEMA.names
