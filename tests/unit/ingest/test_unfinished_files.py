"""CSV files that another program is still writing: a batch never takes a part of a line."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.core.spec import SourceFile
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning import unfinished_files
from delta_cdc.planning.file_listing import list_files
from delta_cdc.planning.ingest import plan_ingest, plan_ingest_async
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.unfinished_files import PAUSE, finished
from tests.support.blocking import blocking_calls
from tests.support.http_store import HttpStore
from tests.support.ingest_model import OPTIONS, Boom, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from delta_cdc.core.requests import IngestRequest
    from delta_cdc.planning.ingest import IngestPlan

CSV = replace(OPTIONS, format="csv", schema="id INT")
PARTIAL = b"1,Jane\n2,Joh"


class CsvWorld(World):
    """A folder for CSV files, with the clock of this machine."""

    def request(self, **changes: Any) -> Any:
        return super().request(**{"options": CSV, **changes})

    def write(self, name: str, content: bytes, *, age: float = 0) -> Path:
        """Write a file.

        :param age: seconds since it was modified; negative: in the future
        """
        file = self.source / name
        file.write_bytes(content)
        modified = time.time_ns() - int(age * 1e9)
        os.utime(file, ns=(modified, modified))
        return file

    def planned(self, **changes: Any) -> IngestPlan:
        return plan_ingest(self.request(**changes))


class Pause:
    """What happens during a pause, instead of waiting."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.actions: list[Callable[[], Any]] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        for action in self.actions:
            await asyncio.to_thread(action)


@pytest.fixture
def world(tmp_path: Path) -> CsvWorld:
    return CsvWorld(tmp_path)


@pytest.fixture
def pause(monkeypatch: pytest.MonkeyPatch) -> Pause:
    made = Pause()
    monkeypatch.setattr(unfinished_files, "sleep", made)
    return made


@contextmanager
def writer(file: Path, piece: bytes) -> Iterator[None]:
    """Append to a file in another thread, about every 10 ms, until the block ends."""
    begun, done = threading.Event(), threading.Event()

    def write() -> None:
        with file.open("ab", buffering=0) as target:
            while not done.is_set():
                target.write(piece)
                begun.set()
                done.wait(0.01)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert begun.wait(10)
        yield
    finally:
        done.set()
        thread.join()


def append(file: Path, content: bytes) -> None:
    with file.open("ab") as target:
        target.write(content)


def names(plan: IngestPlan) -> list[str]:
    """Return the names of a batch's files."""
    return [file.uri.rpartition("/")[2] for file in plan.spec.files] if plan.spec is not None else []


# -- a real writer --------------------------------------------------------------------------------
def test_a_writer_that_appends_during_the_plan(world: CsvWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unfinished_files, "PAUSE", 0.3)
    file = world.source / "a.csv"
    with writer(file, b"123,Joh"):
        plan = world.planned()
    assert plan.spec is None
    note = "1 file is still being written (it changed while it was looked at, and its last line has no line "
    assert plan.notes == (f"{note}break): {file}. The next run takes it, if complete.",)
    assert (plan.left["files"], plan.looked) == (1, 1)
    append(file, b"n\n")
    world.ingest()
    assert world.events == world.delivered
    assert world.planned().spec is None


def test_nothing_blocks_the_event_loop(world: CsvWorld, pause: Pause) -> None:
    world.write("a.csv", PARTIAL)
    with blocking_calls() as found:
        run_sync(plan_ingest_async(world.request()))
    assert (found, pause.seconds) == ([], [PAUSE])


# -- when there is a second look ------------------------------------------------------------------
#: Bytes, options, and whether the file ends with a line break.
ENDS: dict[str, tuple[bytes, dict[str, str], bool]] = {
    "LF": (b"1,a\n", {}, True), "CR LF": (b"1,a\r\n", {}, True), "no line break": (b"1,a", {}, False),
    "CR": (b"1,a\r", {}, False), "blanks after it": (b"1,a\n ", {}, False), "empty": (b"", {}, False),
    "lineSep": (b"1,a||", {"lineSep": "||"}, True),
    "half of lineSep": (b"1,a|", {"lineSep": "||"}, False),
    "LF, and another lineSep": (b"1,a\n", {"lineSep": "||"}, False),
    "CR LF as lineSep": (b"1,a\n", {"lineSep": "\r\n"}, False),
    "lineSep shorter than its bytes": ("1,a¶".encode("latin-1"), {"encoding": "latin-1", "lineSep": "¶"},
        True),
    "lineSep that the encoding lacks": (b"1,a?", {"encoding": "latin-1", "lineSep": "␞"}, False),
    "UTF-16 with a mark": ("1,a\n".encode("utf-16"), {"encoding": "UTF-16"}, True),
    "UTF-16, big end first": ("1,a\r\n".encode("utf-16-be"), {"encoding": "UTF-16"}, True),
    "UTF-16BE": ("1,a\n".encode("utf-16-be"), {"encoding": "UTF-16BE"}, True),
    "UTF-16LE": ("1,a\n".encode("utf-16-le"), {"charset": "UTF-16LE"}, True),
    "UTF-16LE, no line break": ("1,ab".encode("utf-16-le"), {"encoding": "UTF-16LE"}, False),
    "UTF-16, within a line break": ("1,a\n".encode("utf-16-be")[:-1], {"encoding": "UTF-16BE"}, False),
    "UTF-16, like a line break": ("1,\u0a05\u0100".encode("utf-16-le")[:-1], {"encoding": "UTF-16"}, False),
    "UTF-32": ("1,a\n".encode("utf-32"), {"encoding": "UTF-32"}, True),
    "EBCDIC": ("1,a\n".encode("cp037"), {"encoding": "cp037"}, True),
    "EBCDIC, no line break": (b"\xf1\n", {"encoding": "cp037"}, False),
    # The last bytes of a compressed file say nothing.
    **{ending: (b"1,a\n", {}, False) for ending in (".gz", ".bz2", ".zst", ".deflate", ".snappy", ".lz4")},
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
def test_only_a_file_without_a_line_break_gets_a_second_look(
    world: CsvWorld, pause: Pause, case: str
) -> None:
    content, options, is_ended = ENDS[case]
    file = world.write(f"a.csv{case if case.startswith('.') else ''}", content)
    pause.actions.append(lambda: append(file, b"2"))
    plan = world.planned(options=replace(CSV, format_options=options))
    assert (pause.seconds, names(plan)) == (([], [file.name]) if is_ended else ([PAUSE], []))
    assert ("(it changed while it was looked at)" in "".join(plan.notes)) == case.startswith(".")
    pause.actions.clear()
    assert names(world.planned(options=replace(CSV, format_options=options))) == [file.name]


@pytest.mark.parametrize(
    ("age", "is_recent"),
    [(59.9, True), (60.1, False), (-7200, True), (86_400, False)],
    ids=["just recent", "just not recent", "in the future", "old"],
)
def test_a_file_that_was_quiet_is_taken(world: CsvWorld, pause: Pause, age: float, is_recent: bool) -> None:
    file = world.write("a.csv", PARTIAL, age=age)
    modified = file.stat().st_mtime_ns // 1_000_000
    pause.actions.append(lambda: append(file, b"n"))
    plan = plan_ingest(world.request(), Memory(now_ms=modified + int(age * 1000)))
    assert (pause.seconds, names(plan)) == (([PAUSE], []) if is_recent else ([], ["a.csv"]))


@pytest.mark.parametrize("changed_by", ["content", "owner or replacement", "truncation"])
def test_both_looks_compare_size_and_time_of_change(world: CsvWorld, pause: Pause, changed_by: str) -> None:
    file = world.write("a.csv", PARTIAL)
    modified = file.stat().st_mtime_ns

    def change() -> None:
        content = {"content": PARTIAL + b"n", "truncation": PARTIAL[:3]}.get(changed_by, PARTIAL[::-1])
        file.write_bytes(content)
        os.utime(file, ns=(modified, modified))

    pause.actions.append(change)
    assert world.planned().spec is None


def test_the_file_is_opened_before_its_second_status(
    world: CsvWorld, pause: Pause, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client of NFS takes a status from its cache, and asks the server when it opens a file."""
    file = world.write("a.csv", PARTIAL)
    steps: list[str] = []
    end, find = unfinished_files._end, unfinished_files.find_file

    def opened(uri: str, length: int) -> Any:
        steps.append("open")
        return end(uri, length)

    async def found(uri: str) -> Any:
        steps.append("status")
        return await find(uri)

    monkeypatch.setattr(unfinished_files, "_end", opened)
    monkeypatch.setattr(unfinished_files, "find_file", found)
    pause.actions.append(lambda: steps.append("pause"))
    assert names(world.planned()) == [file.name]
    assert steps == ["open", "pause", "open", "status"]


def test_many_files_share_one_pause(world: CsvWorld, pause: Pause) -> None:
    files = [world.write(f"{number:03}.csv", PARTIAL) for number in range(200)]
    pause.actions.append(lambda: [append(file, b"n") for file in files[::2]])
    plan = world.planned()
    assert (len(names(plan)), plan.left["files"], pause.seconds) == (100, 100, [PAUSE])
    note = "100 files are still being written (they changed while they were looked at, and their last lines "
    assert plan.notes == (
        f"{note}have no line break), for instance {files[0]}. The next run takes them, if complete.",
    )


# -- what is not looked at ------------------------------------------------------------------------
@pytest.mark.parametrize("file_format", ["json", "parquet", "avro"])
def test_other_formats_are_not_looked_at(world: CsvWorld, pause: Pause, file_format: str) -> None:
    world.write("a", PARTIAL)
    assert names(world.planned(options=replace(CSV, format=file_format))) == ["a"]
    assert pause.seconds == []


def test_object_stores_are_not_looked_at(tmp_path: Path, world: CsvWorld, pause: Pause) -> None:
    requests = {}
    with HttpStore(tmp_path / "bucket") as store:
        (store.root / "in").mkdir(parents=True)
        for name in ("a.csv", "b.csv.gz"):
            (store.root / "in" / name).write_bytes(gzip.compress(PARTIAL) if name.endswith("gz") else PARTIAL)
        for file_format in ("csv", "json"):
            store.requests.clear()
            plan = world.planned(
                source="s3://lake/in",
                storage_options=store.options(),
                options=replace(CSV, format=file_format),
            )
            assert sorted(names(plan)) == ["a.csv", "b.csv.gz"]
            requests[file_format] = sorted(map(str, store.requests))
    assert requests["csv"] == requests["json"] != []
    assert pause.seconds == []


def test_the_limits_come_first(world: CsvWorld, pause: Pause) -> None:
    """A backlog costs no look: the oldest files are quiet."""
    for number in range(3):
        world.write(f"{number}.csv", PARTIAL, age=100 - number)
    file = world.write("new.csv", PARTIAL)
    pause.actions.append(lambda: append(file, b"n"))
    plan = world.planned(max_files=2)
    assert (names(plan), plan.left["files"], pause.seconds) == (["0.csv", "1.csv"], 2, [])
    assert plan.notes == ()
    plan = world.planned(max_files=9)
    assert (names(plan), plan.left) == (["0.csv", "1.csv", "2.csv"], {"files": 1, "bytes": len(PARTIAL)})


# -- nothing is lost ------------------------------------------------------------------------------
def test_names_that_only_grow_end_before_the_file(world: CsvWorld, pause: Pause) -> None:
    ordered = {"lexical_order": True}
    complete = b"1,a\n"
    for name in ("1.csv", "3.csv", "4.csv"):
        world.write(name, complete)
    file = world.write("2.csv", PARTIAL)
    pause.actions.append(lambda: append(file, b"n"))
    plan = world.planned(**ordered)
    assert (names(plan), plan.left) == (["1.csv"], {"files": 3, "bytes": len(PARTIAL) + 2 * len(complete)})
    assert plan.notes[-1].endswith(
        f"{file}. Because of lexical_order, 2 files with greater names must wait, too. The next run takes "
        "them, if complete."
    )
    assert world.ingest(**ordered).counts["events"] == 1
    assert world.planned(**ordered).spec is None, "the first file that is left is not complete"
    pause.actions.clear()
    append(file, b"\n")
    assert names(world.planned(max_files=2, **ordered)) == ["2.csv", "3.csv"]
    world.drain(**ordered)
    assert world.events == world.delivered


def test_a_file_that_was_taken_and_grows(world: CsvWorld, pause: Pause) -> None:
    file = world.write("a.csv", b"1,Jane\n")
    world.ingest()
    append(file, b"2,Joh")
    pause.actions.append(lambda: append(file, b"n"))
    plan = world.planned()
    assert (plan.spec, len(plan.notes), pause.seconds) == (None, 1, [PAUSE])
    assert "still being written" in plan.notes[0]
    pause.actions.clear()
    append(file, b"\n")
    assert world.ingest().counts["events"] == 1
    assert world.events == world.delivered


def test_a_recorded_batch_is_never_held_back(world: CsvWorld, pause: Pause) -> None:
    file = world.write("a.csv", PARTIAL)
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, "recorded"))
    assert pause.seconds == [PAUSE]
    pause.actions.append(lambda: append(file, b"n"))
    append(file, b"n")
    plan = world.planned()
    assert (names(plan), pause.seconds) == (["a.csv"], [PAUSE])
    assert plan.spec is not None
    assert plan.spec.recorded
    world.ingest()
    pause.actions.clear()
    append(file, b"\n")
    world.drain()
    assert set(world.delivered) <= set(world.events)


# -- files that go away ---------------------------------------------------------------------------
def test_a_file_that_vanishes_between_the_looks(world: CsvWorld, pause: Pause) -> None:
    file = world.write("a.csv", PARTIAL)
    pause.actions.append(file.unlink)
    plan = world.planned()
    assert plan.spec is not None
    assert [found.missing for found in plan.spec.files] == [True]
    assert plan.notes == ()


def look(request: IngestRequest, *files: SourceFile) -> unfinished_files.Finished:
    return asyncio.run(finished(files, request, time.time_ns() // 1_000_000))


def test_files_that_cannot_be_looked_at(world: CsvWorld, pause: Pause) -> None:
    now = time.time_ns() // 1_000_000
    (world.source / "file").touch()
    gone = [SourceFile(f"{world.source}/{name}", 7, now) for name in ("gone.csv", "file/gone.csv")]
    assert look(world.request(), *gone) == unfinished_files.Finished(tuple(gone))
    assert pause.seconds == []
    (world.source / "folder.csv").mkdir()
    with pytest.raises(StoreUnavailable, match=r"folder\.csv"):
        look(world.request(), SourceFile(f"{world.source}/folder.csv", 7, now))


def test_a_disk_that_fails_is_named(world: CsvWorld, pause: Pause, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the file. It is no news that the file has vanished."""
    world.write("a.csv", PARTIAL)

    async def fails(uri: str) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO), uri)

    monkeypatch.setattr(unfinished_files, "find_file", fails)
    with pytest.raises(StoreUnavailable, match=r"landing/a\.csv"):
        world.planned()


def test_odd_names(world: CsvWorld, pause: Pause) -> None:
    for name in ("a %41.csv", "ü#?.csv", "b:c.csv", "[x]*.csv", " blank.csv"):
        world.write(name, b"1,a\n")
    listed = asyncio.run(list_files(str(world.source)))
    assert look(world.request(), *listed).files == tuple(listed)
    assert pause.seconds == []
