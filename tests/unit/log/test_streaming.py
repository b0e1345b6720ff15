"""Commit files are read piece by piece: large ones, odd ones, damaged ones."""

from __future__ import annotations

import asyncio
import hashlib
import json
import tracemalloc
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

import delta_cdc.delta_log.log_files
from delta_cdc.core.errors import CorruptLog, LogGap, VersionsExpired
from delta_cdc.delta_log.actions import Add, CommitInfo, Lines
from delta_cdc.delta_log.requests import Entry, Storage
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.checkpoints import checkpoint

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.logs import LogTable


def _large(table: LogTable, files: int) -> int:
    adds = [table.add(part=part) for part in range(files)]
    for add in adds:
        add["add"]["stats"] = json.dumps({"numRecords": 10, "padding": "x" * 900})
    table._touch = lambda path: None  # type: ignore[method-assign]
    return table.commit("WRITE", *adds)


def test_a_large_commit_is_never_held_as_a_whole(table: LogTable) -> None:
    version = _large(table, 8_000)
    size = table.file(version).stat().st_size
    log = DeltaLog(table.uri)
    run_sync(log.find(0))
    tracemalloc.start()
    commit = run_sync(log.commit(version))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert (commit.n_adds, commit.bytes_added) == (8_000, 800_000)
    assert commit.sha256 == table.sha256(version)
    assert size > 8_000_000 > 3_000_000 > peak


def test_reading_a_large_commit_lets_others_run(table: LogTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop gets its turn after every piece, however fast the store is."""
    version = _large(table, 5_000)
    events: list[int] = []
    parse = delta_cdc.delta_log.log_files.parse_lines

    def noted(lines: list[bytes], *, first: int) -> Any:
        events.append(sum(map(len, lines)))
        return parse(lines, first=first)

    async def others() -> None:
        while True:
            if not events or events[-1]:
                events.append(0)
            await asyncio.sleep(0)

    async def reading() -> None:
        task = asyncio.create_task(others())
        await DeltaLog(table.uri).commit(version)
        task.cancel()

    monkeypatch.setattr("delta_cdc.delta_log.log_files.parse_lines", noted)
    run_sync(reading())
    assert max(events) <= 260 * 1024
    assert sum(events) > 5_000_000
    assert all(not (one and other) for one, other in pairwise(events))


def test_lines_are_the_same_however_the_bytes_arrive() -> None:
    content = b'{"a":1}\n\n{"b":"\xc3\xbc"}\r\n{"c":3}'
    for size in range(1, len(content) + 1):
        lines = Lines()
        found = [line for at in range(0, len(content), size) for line in lines.feed(content[at : at + size])]
        assert found + lines.close() == content.split(b"\n")
        assert lines.sha256 == hashlib.sha256(content).hexdigest()


def test_a_line_longer_than_many_pieces() -> None:
    lines, piece = Lines(100_000_000), b"x" * 1_000_000
    assert [lines.feed(piece) for _ in range(100)] == [[]] * 100
    assert len(lines.close()[0]) == 100_000_000


def test_actions_come_in_the_order_of_the_file(table: LogTable) -> None:
    async def collected(version: int) -> list[Any]:
        return [action async for action in DeltaLog(table.uri).actions(version)]

    found = run_sync(collected(2))
    assert [type(action) for action in found] == [CommitInfo, Add]
    assert found[1].stats == json.dumps({"numRecords": 10})
    with pytest.raises(LogGap):
        run_sync(collected(4))
    checkpoint(table)
    table.file(0).unlink()
    with pytest.raises(VersionsExpired):
        run_sync(collected(0))


ADD = {"path": "p", "partitionValues": {}, "size": 1, "modificationTime": 1, "dataChange": True}


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "no action"),
        (b"\n\n", "no action"),
        (b"{}\n", "no action"),
        (b'{"add": null}\n', "no action"),
        (b'{"add": {"pa', "not JSON"),
        (b'{"commitInfo": {}}\n{"add": ', "not JSON"),
        (b"not JSON\n", "not JSON"),
        (b'{"txn": {"appId": "x", "version": NaN}}', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"\xff\xfe{}\n", "not JSON"),
        (b'\xef\xbb\xbf{"commitInfo": {}}', "not JSON"),
        (b'{\x00"\x00a\x00"\x00:\x001\x00}\x00', "not JSON"),
        (b'{"add": {"path": "\xff"}}', "not JSON"),
        (b'["add"]', "not a JSON object"),
        (b"7", "not a JSON object"),
        (b'{"add": 7}', "add is not an object"),
        (json.dumps({"add": {**ADD, "path": None}}).encode(), "add has no path"),
        (json.dumps({"add": {**ADD, "path": 5}}).encode(), "add.path is a int"),
        (json.dumps({"add": {**ADD, "size": "1"}}).encode(), "add.size is a str"),
        (json.dumps({"add": {**ADD, "size": True}}).encode(), "add.size is a bool"),
        (json.dumps({"add": {**ADD, "dataChange": 1}}).encode(), "add.dataChange is a int"),
        (json.dumps({"add": {**ADD, "partitionValues": {"p": 5.5}}}).encode(), "something else than texts"),
        (json.dumps({"add": {**ADD, "deletionVector": "u"}}).encode(), "add.deletionVector is a str"),
        (json.dumps({"add": ADD, "remove": ADD}).encode(), "several actions"),
        (b'{"remove": {"path": "p"}}', "remove has no dataChange"),
        (b'{"cdc": {"size": 1}}', "cdc has no path"),
        (b'{"txn": {"appId": "x", "version": "4"}}', "txn.version is a str"),
        (b'{"metaData": {"schemaString": "{}"}}', "metaData has no id"),
        (b'{"metaData": {"id": "x", "partitionColumns": [1]}}', "not a list of texts"),
        (b'{"protocol": {"minReaderVersion": 1}}', "protocol has no minWriterVersion"),
    ],
)
def test_a_damaged_commit_is_named(table: LogTable, content: bytes, why: str) -> None:
    table.file(2).write_bytes(content)
    log = DeltaLog(table.uri)

    async def streamed() -> None:
        async for _ in log.actions(2):
            pass

    for look in (log.find(2), log.commit(2), log.commits(range(4)), streamed()):
        with pytest.raises(CorruptLog, match=rf"version 2 of .*{why}") as caught:
            run_sync(look)
        assert f"_delta_log/{2:020d}.json" in caught.value.remedy


def test_what_a_newer_writer_adds_is_passed_over(table: LogTable) -> None:
    lines = [{"notInventedYet": {"x": 1}}, {"add": {**ADD, "new": [1]}}, {"commitInfo": {"operation": 7}}]
    table.file(3).write_text("".join(json.dumps(line) + "\n" for line in lines))
    commit = run_sync(DeltaLog(table.uri).commit(3))
    assert (commit.n_adds, commit.info.operation) == (1, "")


def test_a_commit_of_unknown_actions_alone_is_one(table: LogTable) -> None:
    table.file(3).write_text(json.dumps({"notInventedYet": {"x": 1}}))
    assert not run_sync(DeltaLog(table.uri).commit(3)).changes_data


def test_an_error_in_the_middle_of_a_stream_is_not_the_end(table: LogTable) -> None:
    """What comes before the damage is not taken for the whole commit."""
    log = DeltaLog(table.uri)

    async def broken() -> AsyncIterator[bytes]:
        yield b'{"commitInfo": {}}\n{"add'
        raise CorruptLog("cut off", remedy="none.")

    with pytest.raises(CorruptLog, match="cut off"):
        run_sync(log._folded(1, (Entry("x", 1, 1), broken())))


def test_a_store_that_gives_much_at_once_is_taken_in_pieces() -> None:
    """Between two pieces the loop has its turn, although there is nothing to wait for."""
    events: list[str] = []

    class Generous:
        async def stream(self, min_chunk_size: int) -> AsyncIterator[bytes]:
            yield b"x" * 2_000_000

    async def others() -> None:
        while True:
            events.append("other")
            await asyncio.sleep(0)

    async def reading() -> None:
        task = asyncio.create_task(others())
        async for piece in Storage("/nowhere")._chunks(Generous(), 2_000_000):
            events.append("piece")
            assert len(piece) <= 256 * 1024
        task.cancel()

    asyncio.run(reading())
    assert events.count("piece") == 8
    assert ("piece", "piece") not in pairwise(events)
