"""Files that are there, commits that are there, and versions that are found with few requests."""

from __future__ import annotations

import os
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import obstore
import pytest
from obstore.store import MemoryStore

from delta_cdc.core.errors import InvalidConfiguration, LogGap, StoreUnavailable, UnsupportedTable
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.checkpoints import checkpoint
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from pathlib import Path

NAMES = ["a b", "100%", "50%25", "a%20b", "%41", "ünïcode 表", "a#b?c=d", "x=1&y", "it's", "p=a:b"]


def counted(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note every request; ``list`` with the name it starts after."""
    asked: list[str] = []
    storage = log._storage

    async def head(name: str) -> Any:
        asked.append("head " + name[-10:])
        return await storage.head(name)

    async def opened(name: str) -> Any:
        asked.append("get " + name[-10:])
        return await storage.open(name)

    async def listed(take: Any, after: str | None = None) -> Any:
        asked.append(f"list {after}")
        return await storage.list_log(take, after)

    async def read(name: str) -> Any:
        asked.append("get " + name[-10:])
        return await storage.read(name)

    fake = SimpleNamespace(head=head, open=opened, list_log=listed, read=read)
    monkeypatch.setattr(log, "_storage", fake)
    return asked


# -- the newest version ---------------------------------------------------------------------------
def test_a_walk_ends_in_a_listing_after_eight_hits(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(5):
        table.append()
    assert run_sync(DeltaLog(table.uri).newest_version(after=0)) == table.version == 8
    for _ in range(25):
        table.append()
    log = DeltaLog(table.uri)
    asked = counted(log, monkeypatch)
    assert run_sync(log.newest_version(after=3)) == 33
    assert asked == [f"head {v:05d}.json" for v in range(4, 12)] + [f"list {11:020d}.json"]
    asked.clear()
    assert run_sync(log.newest_version(after=30)) == 33
    assert len(asked) == 4


def test_the_newest_version_is_listed_from_the_last_checkpoint_on(
    table: LogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(table, version=2)
    log = DeltaLog(table.uri)
    asked = counted(log, monkeypatch)
    assert run_sync(log.newest_version()) == 3
    assert asked == ["get checkpoint", f"list {2:020d}"]


def test_a_state_reads_nothing_before_its_checkpoint(
    table: LogTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint(table, version=3)
    table.append()
    for version in range(3):
        table.file(version).write_text("damaged")
    log = DeltaLog(table.uri)
    assert run_sync(log.snapshot()).table_id == "id-1"
    assert run_sync(log.snapshot(3)).num_files == 3


def test_a_hole_before_the_newest_version_is_no_news(table: LogTable) -> None:
    table.file(2).unlink()
    log = DeltaLog(table.uri)
    for look in (log.newest_version(), log.snapshot(), log.snapshot(3), log.snapshot(2), log.files(3)):
        with pytest.raises(LogGap, match="version 2 of"):
            run_sync(look)
    assert run_sync(log.snapshot(1)).num_files == 1


# -- commits --------------------------------------------------------------------------------------
def test_has_commit(table: LogTable) -> None:
    log = DeltaLog(table.uri)
    assert [run_sync(log.has_commit(version)) for version in (-1, 0, 3, 4)] == [False, True, True, False]


def test_a_fingerprint_tells_a_table_that_was_made_again(table: LogTable) -> None:
    log = DeltaLog(table.uri)
    before = run_sync(log.fingerprint(3))
    assert before is not None
    assert run_sync(log.fingerprint(3)) == before
    assert run_sync(log.fingerprint(4)) is None
    assert run_sync(log.fingerprint(-1)) is None
    content, stat = table.file(3).read_bytes(), table.file(3).stat()
    # A copy from a backup may keep the size and the time of the file, even its inode.
    os.utime(table.file(3), ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert run_sync(log.fingerprint(3)) not in (None, before)
    table.file(3).unlink()
    assert run_sync(log.fingerprint(3)) is None
    table.file(3).write_bytes(content)
    os.utime(table.file(3), (stat.st_mtime + 1, stat.st_mtime + 1))
    assert run_sync(log.fingerprint(3)) not in (None, before)


# -- files ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", NAMES)
def test_files_are_found_under_their_decoded_names(tmp_path: Path, name: str) -> None:
    """An action's path is percent-encoded; on disk it is not."""
    log = DeltaLog(str(LogTable(tmp_path / name).create().path))
    folder = tmp_path / name / "p=1"
    folder.mkdir()
    (folder / name).write_text("x")
    assert run_sync(log.has_file(quote(f"p=1/{name}")))
    assert not run_sync(log.has_file(quote(f"p=2/{name}")))
    for scheme in ("", "file:", "file://"):
        assert run_sync(log.has_file(scheme + quote(str(folder / name))))
        assert not run_sync(log.has_file(scheme + quote(str(folder / "other" / name))))


@pytest.mark.parametrize("name", NAMES)
def test_files_of_an_object_store(name: str) -> None:
    store = MemoryStore()
    obstore.put(store, f"_change_data/{name}", b"x")
    log = DeltaLog("s3://bucket/table")
    log._storage._store = store
    assert run_sync(log.has_file(quote(f"_change_data/{name}")))
    assert run_sync(log.has_file(quote(f"s3a://bucket/table/_change_data/{name}", safe=":/")))
    assert not run_sync(log.has_file(quote(f"_change_data/other {name}")))
    # What cannot be looked up counts as there.
    assert run_sync(log.has_file("hdfs://host/x"))
    assert run_sync(log.has_file("wasbs://c@a/x"))


# -- what is refused ------------------------------------------------------------------------------
def _protocol(table: LogTable, version: int = 3, **protocol: Any) -> None:
    given = {"minReaderVersion": 3, "minWriterVersion": 7, **protocol}
    table.commit("UPGRADE PROTOCOL", {"protocol": given})


@pytest.mark.parametrize(
    ("protocol", "named"),
    [
        ({"readerFeatures": ["catalogManaged"], "writerFeatures": ["catalogManaged"]}, "catalogManaged"),
        ({"writerFeatures": ["catalogManaged"]}, "catalogManaged"),
        ({"writerFeatures": ["catalogOwned-preview"]}, "catalogOwned-preview"),
        ({"readerFeatures": ["notYet", "columnMapping", "alsoNot"]}, "alsoNot, notYet"),
        ({"readerFeatures": ["redirectReaderWriter-preview"]}, "redirectReaderWriter-preview"),
        ({"minReaderVersion": 4}, "reader version 4"),
    ],
)
def test_what_must_not_be_read_from_the_log(table: LogTable, protocol: dict[str, Any], named: str) -> None:
    _protocol(table, **protocol)
    log = DeltaLog(table.uri)
    for look in (log.snapshot(), log.transaction("a"), log.files(4)):
        with pytest.raises(UnsupportedTable, match=named):
            run_sync(look)
    assert run_sync(log.snapshot(3)).version == 3


@pytest.mark.parametrize(
    ("kept", "is_refused"),
    [
        ("interval 1 month", True),
        ("INTERVAL 2 Years 3 days", True),
        ("3 months", True),
        ("interval 30 days", False),
        ("interval a month", False),
    ],
)
def test_a_retention_with_which_delta_reads_nothing(table: LogTable, kept: str, is_refused: bool) -> None:
    """Delta's queries fail with an assertion that does not name the property."""
    table.configuration["delta.deletedFileRetentionDuration"] = kept
    table.commit("SET TBLPROPERTIES", table.metadata())
    log = DeltaLog(table.uri)
    if not is_refused:
        assert run_sync(log.snapshot()).configuration == table.configuration
        return
    with pytest.raises(UnsupportedTable, match=f"is '{kept}'.* Remedy: ALTER TABLE .*interval 30 days"):
        run_sync(log.snapshot())
    table.configuration["delta.deletedFileRetentionDuration"] = "interval 30 days"
    spoiled = table.version
    table.commit("SET TBLPROPERTIES", table.metadata())
    log = DeltaLog(table.uri)
    assert run_sync(log.snapshot()).configuration == table.configuration
    assert run_sync(log.snapshot(spoiled)).version == spoiled, "the remedy is done"


def test_features_that_the_log_can_be_read_with(table: LogTable) -> None:
    known = ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"]
    known += ["vacuumProtocolCheck", "variantType"]
    _protocol(table, readerFeatures=known, writerFeatures=[*known, "unheardOf", "inCommitTimestamp"])
    state = run_sync(DeltaLog(table.uri).snapshot())
    assert state.features == tuple(sorted({*known, "unheardOf", "inCommitTimestamp"}))


# -- storage --------------------------------------------------------------------------------------
SECRET = "sEcReTvAlUe"


def _closed(**options: str) -> DeltaLog:
    """Return the log of a table in a store that nobody serves."""
    access = {"aws_access_key_id": "someone", "aws_secret_access_key": SECRET, "aws_region": "r"}
    quick = {"max_retries": "0", "retry_timeout": "1s", "aws_allow_http": "true"}
    return DeltaLog("s3://bucket/t", {"aws_endpoint_url": "http://127.0.0.1:9", **access, **quick, **options})


def test_a_store_that_is_not_there_is_named_and_retried() -> None:
    log = _closed()
    for look in (log.newest_version(), log.snapshot(), log.find(1), log.has_file("a"), log.left_over()):
        with pytest.raises(StoreUnavailable, match=r"s3://bucket/t did not answer.*refused") as caught:
            run_sync(look)
        assert caught.value.retryable
        assert SECRET not in str(caught.value)
        assert caught.value.__cause__ is None


def test_secrets_are_taken_out_of_what_a_store_says() -> None:
    storage = _closed(token=SECRET)._storage
    said = storage._clean(OSError(f"GET http://h/x?sig={SECRET}&a=b failed: {SECRET}\nmore {SECRET}"))
    assert said == "OSError: GET http://h/x failed: *** more ***"


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("nonsense", "x"),
        ("max_retries", "many"),
        ("retry_timeout", "soon"),
        ("retry_timeout", "-1s"),
        ("no\nsuch option", "x"),
    ],
)
def test_options_that_mean_nothing(option: str, value: str) -> None:
    with pytest.raises(InvalidConfiguration, match=option.replace("\n", " ")):
        run_sync(_closed(**{option: value}).newest_version())
