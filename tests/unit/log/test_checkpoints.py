"""Checkpoints of every form, cleaned logs, and whatever else lies in a log folder."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from delta_cdc.core.errors import CorruptLog, LogGap, VersionsExpired
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.checkpoints import KINDS, checkpoint
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    """Versions 0-6; two transactions, a removed file, an altered property."""
    made = LogTable(tmp_path / "t", configuration=FEED).create()
    made.append()
    made.commit("WRITE", made.add(), {"txn": {"appId": "a", "version": 7}})
    made.set_properties(**FEED, delta__appendOnly="false")
    made.delete("id = 1")
    made.commit("WRITE", made.add(), {"txn": {"appId": "b", "version": 1}})
    made.append()
    return made


def told(uri: str, version: int | None = None) -> dict[str, Any]:
    """Return all that the reader says of a version."""
    log = DeltaLog(uri)
    state = run_sync(log.snapshot(version))
    return {
        "version": state.version,
        "id": state.table_id,
        "configuration": state.configuration,
        "columns": state.schema_columns,
        "num_files": state.num_files,
        "files": run_sync(log.files(state.version)),
        "txns": {app: run_sync(log.transaction(app)) for app in ("a", "b", "none")},
        "all_txns": run_sync(log.transactions()),
        "newest": run_sync(log.newest_version()),
    }


@pytest.mark.parametrize("at", [3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_a_checkpoint_says_what_the_commits_said(table: LogTable, kind: str, at: int) -> None:
    before = told(table.uri)
    checkpoint(table, version=at, kind=kind)
    assert told(table.uri) == before
    for version in range(at):
        table.file(version).unlink()
    assert told(table.uri) == before
    (table.path / "_delta_log" / "_last_checkpoint").unlink()
    assert told(table.uri) == before
    with pytest.raises(VersionsExpired, match=f"oldest is {at}"):
        run_sync(DeltaLog(table.uri).snapshot(at - 1))


@pytest.mark.parametrize("kind", KINDS)
def test_deltalake_reads_the_same(table: LogTable, kind: str) -> None:
    checkpoint(table, version=3, kind=kind)
    for version in range(3):
        table.file(version).unlink()
    mine, other = told(table.uri), DeltaTable(table.uri)
    assert (mine["version"], mine["id"]) == (other.version(), str(other.metadata().id))
    assert mine["configuration"] == other.metadata().configuration
    assert mine["txns"] == {app: other.transaction_version(app) for app in ("a", "b", "none")}
    assert mine["all_txns"] == {app: number for app, number in mine["txns"].items() if number is not None}
    assert {name for name, *_ in mine["files"]} == {uri.rsplit("/", 1)[1] for uri in other.file_uris()}
    assert mine["num_files"] == len(other.file_uris())


def test_a_checkpoint_that_lacks_a_part_is_none(table: LogTable) -> None:
    before = told(table.uri)
    checkpoint(table, version=4, kind="parts")[1].unlink()
    assert told(table.uri) == before
    table.file(0).unlink()
    with pytest.raises(VersionsExpired):
        told(table.uri)


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_checkpoint_is_passed_over(table: LogTable, kind: str) -> None:
    before = told(table.uri)
    for file in checkpoint(table, version=4, kind=kind):
        file.write_bytes(file.read_bytes()[:-30])
    assert told(table.uri) == before


def test_a_page_whose_checksum_is_wrong_is_damage(table: LogTable) -> None:
    """The bytes are Parquet all the same, only not what was written."""
    before = told(table.uri)
    (file,) = checkpoint(table, version=6)
    content = file.read_bytes()
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    file.write_bytes(content[:footer].replace(b"id-1", b"id-2") + content[footer:])
    assert content != file.read_bytes()
    assert told(table.uri) == before
    table.file(0).unlink()
    with pytest.raises(CorruptLog, match=r"00006.checkpoint.parquet is not readable"):
        told(table.uri)


def test_the_whole_reason_of_a_damage_is_told(table: LogTable) -> None:
    (file,) = checkpoint(table, version=6)
    file.with_suffix(".json").write_text(json.dumps({"add\nmore": 1}))
    file.unlink()
    table.file(0).unlink()
    with pytest.raises(CorruptLog, match="is not readable: UnreadableJson: add more is not an object"):
        told(table.uri)


def test_columns_of_a_newer_writer_are_passed_over(table: LogTable) -> None:
    before = told(table.uri)
    (file,) = checkpoint(table, version=6)
    read = pq.read_table(file)
    pq.write_table(read.append_column("notInventedYet", pa.nulls(len(read), pa.string())), file)
    table.file(0).unlink()
    assert told(table.uri) == before


@pytest.mark.parametrize("kind", KINDS)
def test_large_checkpoints_are_read_by_ranges(
    table: LogTable, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = told(table.uri)
    monkeypatch.setattr("delta_cdc.delta_log.checkpoint._WHOLE", 0)
    written = checkpoint(table, version=4, kind=kind)
    table.file(0).unlink()
    assert told(table.uri) == before
    written[0].write_bytes(written[0].read_bytes()[:-30])
    with pytest.raises(CorruptLog, match="is not readable"):
        told(table.uri)


def test_an_older_checkpoint_takes_the_place_of_a_damaged_one(table: LogTable) -> None:
    before = told(table.uri)
    checkpoint(table, version=3, kind="v2-json")
    checkpoint(table, version=5)[0].write_bytes(b"PAR1")
    for version in range(3):
        table.file(version).unlink()
    assert told(table.uri) == before


def test_a_missing_sidecar_is_damage(table: LogTable) -> None:
    before = told(table.uri)
    written = checkpoint(table, version=4, kind="v2-sidecars")
    written[-1].unlink()
    assert told(table.uri) == before
    table.file(0).unlink()
    with pytest.raises(CorruptLog, match=r"_sidecars/.* is missing"):
        run_sync(DeltaLog(table.uri).files(6))


@pytest.mark.parametrize(
    "hint",
    [
        '{"version":2,"size":3}',
        '{"version":99,"size":3}',
        '{"version":-4,"size":3}',
        '{"version":"4"}',
        '{"version":4,"parts":3}',
        '{"version":99999999999999999999999}',
        '{"vers',
        "[4]",
        "null",
        "",
        "\x00\x01",
    ],
)
@pytest.mark.parametrize("checkpointed", [True, False])
def test_a_last_checkpoint_that_lies_changes_nothing(table: LogTable, hint: str, checkpointed: bool) -> None:
    before = told(table.uri)
    if checkpointed:
        checkpoint(table, version=4)
    (table.path / "_delta_log" / "_last_checkpoint").write_text(hint)
    assert told(table.uri) == before
    assert run_sync(DeltaLog(table.uri).oldest_version()) == 0
    assert told(table.uri, 3)["version"] == 3


def test_what_else_lies_in_a_log_folder(table: LogTable) -> None:
    before = told(table.uri)
    checkpoint(table, version=4)
    log = table.path / "_delta_log"
    (log / "_staged_commits").mkdir()
    for name in [
        "00000000000000000099.JSON",
        "00000000000000000099.json.tmp",
        "00000000000000000099.crc",
        "00000000000000000006.crc",
        ".00000000000000000099.json.crc",
        "_00000000000000000099.json",
        "000000000000000000099.json",
        "99999999999999999999.json",
        "99.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٩٩.json",
        "00000000000000000005.00000000000000000006.compacted.json",
        "00000000000000000099.checkpoint.parquet.tmp",
        "00000000000000000099.checkpoint.PARQUET",
        "00000000000000000099.checkpoint.0000000001.0000000002.parquet",
        "UPPER CASE%41ü\n?#1.json",
        "_staged_commits/00000000000000000007.0b8a2d5c-95a1-4e0b-8f3c-4d2a2f1f0a11.json",
        "_staged_commits/00000000000000000007.json",
    ]:
        (log / name).write_text("odd")
    (log / "00000000000000000007.json").mkdir()
    assert told(table.uri) == before
    assert run_sync(DeltaLog(table.uri).newest_version(after=6)) == 6
    assert run_sync(DeltaLog(table.uri).find(7)) is None


def test_a_log_compaction_file_stands_for_no_commit(table: LogTable) -> None:
    """It only repeats what the commits say; without them versions are missing."""
    lines = [line for v in (4, 5) for line in table.file(v).read_text().splitlines()]
    compacted = f"{4:020d}.{5:020d}.compacted.json"
    (table.path / "_delta_log" / compacted).write_text("\n".join(lines))
    before = told(table.uri)
    table.file(4).unlink()
    assert before["version"] == 6
    with pytest.raises(LogGap, match="version 4"):
        told(table.uri)


def test_a_checkpoint_newer_than_every_commit_is_a_gap(table: LogTable) -> None:
    checkpoint(table, version=6)
    table.file(6).unlink()
    for look in (lambda log: log.snapshot(), lambda log: log.newest_version()):
        with pytest.raises(LogGap, match="version 6 of"):
            run_sync(look(DeltaLog(table.uri)))


def test_a_log_without_any_commit_is_no_absent_table(table: LogTable) -> None:
    """Nothing may be loaded over it as if there were nothing."""
    checkpoint(table, version=6)
    for version in range(7):
        table.file(version).unlink()
    log = DeltaLog(table.uri)
    assert not run_sync(log.left_over())
    with pytest.raises(CorruptLog, match="no commit file"):
        run_sync(log.newest_version())


def test_a_commit_file_with_an_absurd_number(table: LogTable) -> None:
    table.file(9_000_000_000_000_000_000).write_text(json.dumps({"commitInfo": {}}))
    with pytest.raises(LogGap, match="version 8999999999999999999 of"):
        run_sync(DeltaLog(table.uri).newest_version())


def test_rows_of_files_without_statistics(tmp_path: Path) -> None:
    """Without ``stats`` the file itself is asked; one that is gone counts as one with rows."""
    made = LogTable(tmp_path / "t").create()
    add = made.add()
    del add["add"]["stats"]
    made.commit("WRITE", add)
    file = tmp_path / "t" / add["add"]["path"]
    pq.write_table(pa.table({"id": pa.array([], pa.string())}), file)
    assert run_sync(DeltaLog(made.uri).snapshot()).is_empty
    pq.write_table(pa.table({"id": ["x"]}), file)
    assert not run_sync(DeltaLog(made.uri).snapshot()).is_empty
    file.write_bytes(b"damaged")
    assert not run_sync(DeltaLog(made.uri).snapshot()).is_empty
    file.unlink()
    assert not run_sync(DeltaLog(made.uri).snapshot()).is_empty
