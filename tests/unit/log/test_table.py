"""A table's log: versions, commits, states, and the errors of what is not there."""

from __future__ import annotations

import asyncio
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.store import MemoryStore

from delta_cdc.core.errors import (
    CorruptLog,
    LogGap,
    NotADeltaTable,
    TableNotFound,
    UnsupportedTable,
    VersionsExpired,
)
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.delta_log.requests import Entry


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    made = LogTable(tmp_path / "t", configuration=FEED).create()
    for _ in range(3):
        made.append()
    return made


def test_newest_version(table: LogTable) -> None:
    log = DeltaLog(table.uri)
    assert run_sync(log.newest_version()) == 3
    assert [run_sync(log.newest_version(after)) for after in (0, 2, 3)] == [3, 3, 3]


def test_nothing_new_costs_one_request(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    log = DeltaLog(table.uri)
    head = log._storage.head

    async def counting(name: str) -> Entry | None:
        asked.append(name)
        return await head(name)

    monkeypatch.setattr(log, "_storage", SimpleNamespace(head=counting))
    assert run_sync(log.newest_version(3)) == 3
    assert asked == [f"_delta_log/{4:020d}.json"]


def test_commits_come_in_order(table: LogTable) -> None:
    commits = run_sync(DeltaLog(table.uri).commits(range(1, 4)))
    assert [commit.version for commit in commits] == [1, 2, 3]
    assert commits[0].sha256 == table.sha256(1)


def test_a_state_holds_identity_properties_and_columns(table: LogTable) -> None:
    state = run_sync(DeltaLog(table.uri).snapshot())
    assert (state.table_id, state.version, state.created_time) == ("id-1", 3, table.created)
    assert state.configuration == FEED
    assert state.schema_columns == ("id", "name")
    assert (state.num_files, state.is_empty) == (3, False)


def test_a_state_of_an_older_version(table: LogTable) -> None:
    state = run_sync(DeltaLog(table.uri).snapshot(0))
    assert (state.version, state.is_empty) == (0, True)


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


def test_a_missing_location(tmp_path: Path) -> None:
    for look in (lambda log: log.snapshot(), lambda log: log.newest_version()):
        with pytest.raises(TableNotFound):
            run_sync(look(DeltaLog(str(tmp_path / "absent"))))


def test_files_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"x")
    for look in (lambda log: log.snapshot(), lambda log: log.newest_version()):
        with pytest.raises(NotADeltaTable):
            run_sync(look(DeltaLog(str(tmp_path))))


def test_what_a_crash_before_version_0_leaves_is_no_table(tmp_path: Path) -> None:
    (tmp_path / "_delta_log").mkdir()
    (tmp_path / "part-0.parquet").write_bytes(b"x")
    log = DeltaLog(str(tmp_path))
    assert run_sync(log.left_over())
    with pytest.raises(TableNotFound):
        run_sync(log.snapshot())


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


def test_a_hole_in_the_log(table: LogTable) -> None:
    table.file(2).unlink()
    with pytest.raises(LogGap, match="version 2 of"):
        run_sync(DeltaLog(table.uri).commits(range(1, 4)))
    with pytest.raises(LogGap, match="version 2 of"):
        run_sync(DeltaLog(table.uri).snapshot())


def test_a_log_cleaned_from_the_start(table: LogTable) -> None:
    from deltalake import DeltaTable

    DeltaTable(table.uri).create_checkpoint()
    for version in (0, 1):
        table.file(version).unlink()
    log = DeltaLog(table.uri)
    with pytest.raises(VersionsExpired, match="oldest is 2"):
        run_sync(log.commit(1))
    with pytest.raises(VersionsExpired):
        run_sync(log.snapshot(1))
    assert run_sync(log.snapshot()).version == 3


@pytest.mark.parametrize("feature", ["catalogManaged", "notInventedYet"])
def test_features_that_must_not_be_read(tmp_path: Path, feature: str) -> None:
    made = LogTable(tmp_path / "t").create()
    lines = made.file(0).read_text().splitlines()
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7}
    protocol |= {"readerFeatures": [feature], "writerFeatures": [feature]}
    lines[1] = json.dumps({"protocol": protocol})
    made.file(0).write_text("\n".join(lines))
    with pytest.raises(UnsupportedTable, match=feature):
        run_sync(DeltaLog(made.uri).snapshot())


def test_a_damaged_commit_is_named(table: LogTable) -> None:
    table.file(2).write_text('{"add": ')
    with pytest.raises(CorruptLog, match="version 2"):
        run_sync(DeltaLog(table.uri).commit(2))


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
