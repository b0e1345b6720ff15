"""Answers with fewer bytes than they name, or of another object: no damaged file, and no other content."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.delta_log.requests import Storage
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.faulty_disk import FaultyDisk
from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LARGE = 1_000_000


class _Short:
    """An answer of obstore, with half of its bytes."""

    def __init__(self, answer: Any) -> None:
        self.meta, self.range, self._answer = answer.meta, answer.range, answer

    def bytes(self) -> bytes:
        whole = bytes(self._answer.bytes())
        return whole[: len(whole) // 2]

    async def bytes_async(self) -> bytes:
        return self.bytes()

    async def stream(self, min_chunk_size: int) -> Any:
        yield self.bytes()


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return a function after whose call each answer is short."""
    get, get_async = obstore.get, obstore.get_async

    async def later(*given: Any, **more: Any) -> _Short:
        return _Short(await get_async(*given, **more))

    def begin() -> None:
        monkeypatch.setattr(obstore, "get", lambda *given, **more: _Short(get(*given, **more)))
        monkeypatch.setattr(obstore, "get_async", later)

    return begin


async def _read(storage: Storage, name: str) -> bytes:
    async with storage.open(name) as opened:
        assert opened is not None
        return b"".join([chunk async for chunk in opened[1]])


READS: dict[str, Callable[[Storage], Any]] = {
    "small": lambda storage: asyncio.run(_read(storage, "small")),
    "large": lambda storage: asyncio.run(_read(storage, "large")),
    "range": lambda storage: asyncio.run(storage.read_range("small", 0, 5)),
    "file object": lambda storage: storage.reader("large").read(),
    "parquet": lambda storage: pq.read_table(storage.reader("table.parquet")).num_rows,
}


@pytest.mark.parametrize("read", READS)
def test_a_short_answer_is_a_failure_of_the_store(
    tmp_path: Path, short: Callable[[], None], read: str
) -> None:
    (tmp_path / "small").write_bytes(b"0123456789")
    (tmp_path / "large").write_bytes(bytes(_LARGE))
    pq.write_table(pa.table({"id": list(range(10))}), tmp_path / "table.parquet")
    storage = Storage(str(tmp_path))
    assert READS[read](storage) in (b"0123456789", bytes(_LARGE), b"01234", 10)
    short()
    with pytest.raises(StoreUnavailable, match="bytes came of the"):
        READS[read](storage)


def test_ranges_of_two_files_are_not_one_file(tmp_path: Path) -> None:
    file = tmp_path / "large"
    file.write_bytes(bytes(3 * _LARGE))
    reader = Storage(str(tmp_path)).reader("large")
    assert reader.read(10) == bytes(10)
    file.unlink()
    file.write_bytes(b"1" * 3 * _LARGE)
    with pytest.raises(StoreUnavailable, match="Precondition"):
        reader.read()


def test_a_file_object_seeks_and_ends(tmp_path: Path) -> None:
    content = bytes(number % 251 for number in range(3_000_000))
    (tmp_path / "file").write_bytes(content)
    reader = Storage(str(tmp_path)).reader("file")
    assert reader.seek(-8, os.SEEK_END) == len(content) - 8
    assert reader.read(100) == content[-8:]
    assert reader.read(1) == b""
    reader.seek(2_000_000)
    reader.seek(-1_999_000, os.SEEK_CUR)
    assert reader.tell() == 1_000
    assert reader.read(1_500_000) == content[1_000:1_501_000]


def test_a_fingerprint_that_cannot_be_taken_is_no_other_fingerprint(tmp_path: Path) -> None:
    """The time of change is read apart from the rest: without it, the commit would be another one."""
    table = LogTable(tmp_path / "orders", configuration=FEED).create()
    log = DeltaLog(table.uri)
    right = run_sync(log.fingerprint(0))
    with (
        FaultyDisk(tmp_path, lambda operation, *_: "io" if operation == "stat" else None).installed(),
        pytest.raises(StoreUnavailable, match="Input/output error"),
    ):
        run_sync(log.fingerprint(0))
    assert run_sync(log.fingerprint(0)) == right


def test_a_file_without_rights_is_not_the_fault_of_a_connection(tmp_path: Path) -> None:
    table = LogTable(tmp_path / "orders", configuration=FEED).create()
    table.file(0).chmod(0)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(65534)
        with pytest.raises(StoreUnavailable, match="refused access") as caught:
            run_sync(DeltaLog(table.uri).commit(0))
    finally:
        os.seteuid(user)
    assert "the user of this process" in caught.value.remedy
