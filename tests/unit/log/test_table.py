"""A table's log: versions, commits, states, and the errors of what is not there."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import obstore
import pytest
from obstore.store import MemoryStore

from delta_cdc.core.errors import (
    CorruptLog,
    NotADeltaTable,
    TableNotFound,
)
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from pathlib import Path


def test_newest_version(table: LogTable) -> None:
    log = DeltaLog(table.uri)
    assert [run_sync(log.newest_version(after)) for after in (None, 0, 2, 3)] == [3, 3, 3, 3]


def test_a_state_holds_identity_properties_and_columns(table: LogTable) -> None:
    state = run_sync(DeltaLog(table.uri).snapshot())
    assert (state.table_id, state.version, state.created_time) == ("id-1", 3, table.created)
    assert state.configuration == FEED
    assert state.schema_columns == ("id", "name")
    assert (state.num_files, state.is_empty) == (3, False)
    older = run_sync(DeltaLog(table.uri).snapshot(0))
    assert (older.version, older.is_empty) == (0, True)


@pytest.mark.parametrize(
    "name", ["a b", "100%", "50%25", "a%20b", "%41", "ünïcode 表", "a#b?c=d", "t#1", "t\nn"]
)
def test_special_characters_in_a_path(tmp_path: Path, name: str) -> None:
    made = LogTable(tmp_path / name).create()
    made.append()
    log = DeltaLog(made.uri)
    assert run_sync(log.snapshot()).version == run_sync(log.newest_version()) == 1
    assert run_sync(log.transaction("delta-cdc/p")) is None
    assert run_sync(log.commit(1)).n_adds == 1


@pytest.mark.parametrize(
    ("folder", "file", "error"),
    [
        ("absent/x", "", TableNotFound),
        ("t", "part-0.parquet", NotADeltaTable),
        ("t", "_delta_log", NotADeltaTable),
        # What a crash before version 0 leaves.
        ("t/_delta_log", "../part-0.parquet", TableNotFound),
    ],
)
def test_what_is_no_table_on_a_disk(tmp_path: Path, folder: str, file: str, error: type[Exception]) -> None:
    if file:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / file).write_bytes(b"x")
    log = DeltaLog(str(tmp_path / "t"))
    for look in (log.snapshot(), log.newest_version()):
        with pytest.raises(error):
            run_sync(look)
    assert run_sync(log.left_over()) is (error is TableNotFound)


@pytest.mark.parametrize(
    ("names", "absent"),
    [
        ([], True),
        (["_delta_log"], True),
        (["_delta_log/"], True),
        (["_delta_log/.00000000000000000000.json.6f.tmp", "_delta_log/_commit_6f.json.tmp"], True),
        (["_delta_log/00000000000000000000.json.6f.tmp"], True),
        (["_delta_log/_commits/x", "part-00000-a.snappy.parquet", "day=1/part-00001-b.parquet"], True),
        (["part-00000-a.snappy.parquet"], False),
        (["day=1/part-00000-a.parquet", "day=2/part-00000-b.parquet"], False),
        (["_delta_log/", "orders.csv"], False),
        (["_delta_log_of_old/x", "part-00000-a.parquet"], False),
    ],
)
def test_what_is_no_table_on_an_object_store(names: list[str], absent: bool) -> None:
    """Parquet files alone are somebody's data: nothing may be loaded over them."""
    store = MemoryStore()
    for name in names:
        obstore.put(store, name, b"x")
    log = DeltaLog("s3://bucket/table")
    log._storage._store = store
    assert run_sync(log.left_over()) is absent
    with pytest.raises(TableNotFound if absent else NotADeltaTable):
        run_sync(log.newest_version())


def test_the_plain_face_works_inside_a_running_loop(table: LogTable) -> None:
    async def inside() -> int:
        return run_sync(DeltaLog(table.uri).newest_version())

    assert asyncio.run(inside()) == 3


@pytest.mark.parametrize(
    "name",
    [
        "_last_checkpoint",
        f"{3:020d}.crc",
        f"{3:020d}.checkpoint.parquet",
        f"{0:020d}.{3:020d}.compacted.json",
    ],
)
def test_traces_of_commits_are_no_left_over_of_a_crash(tmp_path: Path, name: str) -> None:
    """The commits are lost; loading anew over them would hide it."""
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "_delta_log" / name).write_text("x")
    store = MemoryStore()
    obstore.put(store, f"_delta_log/{name}", b"x")
    stored = DeltaLog("s3://bucket/table")
    stored._storage._store = store
    for log in (DeltaLog(str(tmp_path)), stored):
        assert not run_sync(log.left_over())
        with pytest.raises(CorruptLog, match="no commit file"):
            run_sync(log.snapshot())


def test_a_property_that_is_no_text_is_its_text_as_in_delta(tmp_path: Path) -> None:
    given: dict[str, Any] = {"delta.enableChangeDataFeed": True, "delta.checkpointInterval": 10}
    made = LogTable(tmp_path / "t", configuration=given).create()
    found = run_sync(DeltaLog(str(made.path)).snapshot()).configuration
    assert found == {"delta.enableChangeDataFeed": "true", "delta.checkpointInterval": "10"}
