"""What the log reader, a watch and the planner need for very large logs: memory, and time without a turn.

Each case is a process of its own. While it reads, an asyncio task takes a turn every millisecond. The
longest time without a turn is how long a triggerer would have been blocked: on the clock, and in seconds of
the processor, which other programs of the machine do not lengthen. Memory is the process's largest resident
size, less the size before the case.

    python benchmarks/large_logs.py                       # everything: some minutes, some gigabytes of disk
    python benchmarks/large_logs.py --only line checkpoint --scale 0.1
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import pyarrow as pa
import pyarrow.parquet as pq
from obstore.store import MemoryStore

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.waiting import Condition, Watch
from tests.support.checkpoints import _COLUMNS, _STATE
from tests.support.logs import LogTable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

MIB = 1024 * 1024
#: No block of the event loop may last longer.
AIM_MS = 100.0
_TURN = 0.001


class Turns:
    """Takes a turn every millisecond, and remembers the longest time between two."""

    def __init__(self) -> None:
        self.clock = self.processor = 0.0

    async def run(self) -> None:
        clock, processor = time.perf_counter(), time.process_time()
        while True:
            await asyncio.sleep(_TURN)
            now, used = time.perf_counter(), time.process_time()
            self.clock = max(self.clock, now - clock - _TURN)
            # Threads that leave Python's lock use the processor while the loop has its turns.
            self.processor = max(self.processor, min(now - clock - _TURN, used - processor))
            clock, processor = now, used


def resident_now() -> float:
    """Return the resident size of this process, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / MIB


async def measured(ask: Callable[[], Awaitable[Any]]) -> dict[str, Any]:
    """Return what one question costs, and its answer or its error as a text."""
    gc.collect()
    before, turns = resident_now(), Turns()
    # The largest size so far may be that of the imports: begin from the size now.
    Path("/proc/self/clear_refs").write_text("5")  # noqa: ASYNC240
    task = asyncio.create_task(turns.run())
    await asyncio.sleep(0.05)
    turns.clock = turns.processor = 0.0
    begin = time.perf_counter()
    try:
        answer = str(await ask())
    except DeltaCdcError as error:
        answer = f"{type(error).__name__}: {error}"
    seconds = time.perf_counter() - begin
    await asyncio.sleep(0.01)
    task.cancel()
    return {
        "seconds": seconds,
        "memory": peak() - before,
        "clock": turns.clock * 1_000,
        "processor": turns.processor * 1_000,
        "answer": answer,
    }


def peak() -> float:
    """Return the largest resident size since it was set back, in MiB."""
    (line,) = re.findall(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
    return int(line) / 1024


# -- tables -------------------------------------------------------------------------------------
def _table(path: Path, **given: Any) -> LogTable:
    made = LogTable(path, configuration={"delta.enableChangeDataFeed": "true"}, **given)
    made._touch = lambda path: None  # type: ignore[method-assign]
    return made.create()


def _add(number: int, stats: str = '{"numRecords":10}') -> dict[str, Any]:
    path = f"part-{number:09d}-0a1b2c3d-0a1b-4c3d-8e4f-0a1b2c3d4e5f-c000.snappy.parquet"
    return {
        "path": path,
        "partitionValues": {},
        "size": 100,
        "modificationTime": 1,
        "dataChange": True,
        "stats": stats,
    }


def commits_of(path: Path, count: int) -> None:
    """Write a log of so many commits: links to one file, because the operating system limits files."""
    table = _table(path)
    table.append()
    log, content = path / "_delta_log", table.file(1).read_bytes()
    for version in range(1, count + 1):
        if version % 50_000 == 1:
            shared = path / f"shared-{version}"
            shared.write_bytes(content)
        file = log / f"{version:020d}.json"
        file.unlink(missing_ok=True)
        os.link(shared, file)


def checkpoint_of(path: Path, size: int, *, kind: str, stats: int = 10_000, rows: int = 100_000) -> None:
    """Write a table of one commit after a checkpoint of so many bytes.

    :param kind: ``classic``, ``parts`` or ``sidecars``
    :param stats: bytes of the statistics of a file
    :param rows: files in a row group (delta-rs writes 1,048,576; Spark writes 128 MiB)
    """
    table = _table(path)
    table.append()
    table.file(0).unlink()
    log, count = path / "_delta_log", size // (stats + 100)
    text = json.dumps({"numRecords": 10, "minValues": {"name": "x" * (stats - 50)}})
    files = 1 if kind == "classic" else 1_000 if kind == "sidecars" else 100
    stem, each, total = f"{0:020d}.checkpoint", -(-count // files), 0
    head = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}, table.metadata()]
    schema = pa.schema([(name, _COLUMNS[name]) for name in (*_STATE, "add")])
    sidecars = []
    for part in range(files):
        numbers = range(part * each, min((part + 1) * each, count))
        name = f"{stem}.{part + 1:010d}.{files:010d}.parquet" if kind == "parts" else f"{stem}.parquet"
        if kind == "sidecars":
            name = f"_sidecars/{part:08d}-0000-4000-8000-000000000000.parquet"
        (log / name).parent.mkdir(exist_ok=True)
        lines = head if part == 0 and kind != "sidecars" else []
        with pq.ParquetWriter(log / name, schema, compression="none", use_dictionary=False) as writer:
            group: list[dict[str, Any]] = [*lines]
            batches: list[pa.RecordBatch] = []
            for number in numbers:
                group.append({"add": _add(number, text)})
                if len(group) >= 10_000:
                    batches.append(pa.RecordBatch.from_pylist(group, schema=schema))
                    group = []
                if len(batches) * 10_000 >= rows:
                    writer.write_table(pa.Table.from_batches(batches), row_group_size=rows)
                    batches = []
            batches.append(pa.RecordBatch.from_pylist(group, schema=schema))
            writer.write_table(pa.Table.from_batches(batches), row_group_size=rows)
        total += (log / name).stat().st_size
        sidecars.append({"path": Path(name).name, "sizeInBytes": (log / name).stat().st_size})
    if kind == "sidecars":
        uuid = "00000000-0000-4000-8000-000000000000"
        rows_of = [*head, {"checkpointMetadata": {"version": 0}}, *({"sidecar": one} for one in sidecars)]
        pq.write_table(pa.Table.from_pylist(rows_of, schema=schema), log / f"{stem}.{uuid}.parquet")
    (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": count}))
    print(f"  {kind}: {count} files, {total / 1e9:.2f} GB", file=sys.stderr)


def line_of(path: Path, size: int, kind: str) -> None:
    """Write a commit with one long line.

    :param kind: what is long: ``stats`` (one text), ``escapes``, ``numbers`` (very many values) or ``schema``
    """
    table = _table(path)
    add = _add(0)
    if kind == "schema":
        names = [f"column_{number:06d}" for number in range(size // 90)]
        table.columns = tuple(names)
        table.commit("ADD COLUMNS", table.metadata())
        return
    if kind == "numbers":
        add["stats"] = json.dumps({"nullCount": {str(i): i for i in range(size // 24)}, "numRecords": 10})
    else:
        add["stats"] = json.dumps({"minValues": {"name": "x" * (size - 100)}, "numRecords": 10})
    table.commit("WRITE", {"add": add})
    if kind == "escapes":
        text = table.file(1).read_text().replace("x" * 6, "\\\\u00e9"[1:])
        table.file(1).write_text(text)


# -- cases --------------------------------------------------------------------------------------
async def _looked(uri: str, **given: Any) -> str:
    watch = Watch(uri, **given)
    news = await watch.look()
    return "no news" if news is None else f"news: {news.reason} {news.position.version}"


async def _newest(path: Path) -> int:
    return await DeltaLog(str(path)).newest_version()


def _in_memory(path: Path) -> DeltaLog:
    """Return a log of so many commits in a store that gives a listing page by page, without a pause."""
    store, name = MemoryStore(), "t/_delta_log/{:020d}.json"
    for version in range(sum(1 for _ in os.scandir(path / "_delta_log"))):
        store.put(name.format(version), b"{}")
    log = DeltaLog("s3://bucket/t")
    log._storage._store, log._storage._prefix = store, "t/"  # type: ignore[assignment]
    return log


async def _at(path: Path) -> int | None:
    return await DeltaLog(str(path)).version_at(1_900_000_000_000, bound="end")


async def _counted(path: Path) -> str:
    state = await DeltaLog(str(path)).snapshot()
    files, size, rows = await asyncio.to_thread(lambda: (state.num_files, state.num_bytes, state.num_rows))
    return f"{files} files, {size} bytes, {rows} rows"


@dataclass(frozen=True)
class Case:
    """A question about a table."""

    group: str
    name: str
    table: str
    write: Callable[[Path], None]
    ask: Callable[[Any], Awaitable[Any]]
    #: Returns what to ask about; not measured.
    prepare: Callable[[Path], Any] = Path

    @property
    def title(self) -> str:
        return f"{self.group}: {self.name}"


def cases(scale: float) -> Iterator[Case]:
    """Yield the cases; cases with the same table share it."""

    def many(path: Path) -> None:
        commits_of(path, int(1_000_000 * scale))

    def fewer(path: Path) -> None:
        commits_of(path, int(100_000 * scale))

    def wide(path: Path) -> None:
        table = _table(path)
        table.commit("WRITE", *({"add": _add(number)} for number in range(int(1_000_000 * scale))))

    def rewritten(path: Path) -> None:
        table = _table(path)
        adds = [_add(number) for number in range(int(500_000 * scale))]
        removes = [{"path": add["path"], "dataChange": True, "deletionTimestamp": 1} for add in adds]
        vector = {"storageType": "u", "pathOrInlineDv": "x" * 20, "offset": 1, "sizeInBytes": 40}
        for add in adds:
            add["deletionVector"] = {**vector, "cardinality": 1}
        table.commit("DELETE", *({"remove": one} for one in removes), *({"add": one} for one in adds))

    never = Condition(operations=frozenset({"merge"}))

    def waiting(**given: Any) -> Callable[[Path], Any]:
        return lambda path: _looked(str(path), **given)

    yield Case("commits", "newest version", "commits", many, _newest)
    yield Case(
        "commits", "newest version, store in memory", "commits", many, DeltaLog.newest_version, _in_memory
    )
    yield Case("commits", "version at a time", "commits", many, _at)
    yield Case("commits", "first look of a watch", "commits", many, waiting(position=-1))
    yield Case("commits", "100,000, none counts", "fewer", fewer, waiting(position=0, condition=never))
    yield Case("commits", "range of 100,000", "fewer", fewer, _range)
    yield Case("actions", "1,000,000 added files", "wide", wide, _read)
    yield Case("actions", "the same, watch", "wide", wide, waiting(position=0))
    yield Case("actions", "the same, active files", "wide", wide, _counted)
    yield Case("actions", "500,000 removed and added", "rewritten", rewritten, _read)
    yield Case("line", "100 MiB", "line", partial(line_of, size=int(100 * MIB * scale), kind="stats"), _read)
    for kind in ("stats", "escapes", "numbers", "schema"):
        write = partial(line_of, size=15 * MIB, kind=kind)
        yield Case("line", f"15 MiB of {kind}", f"line-{kind}", write, _read)
        yield Case("line", f"15 MiB of {kind}, watch", f"line-{kind}", write, waiting(position=0))
    for kind in ("classic", "parts", "sidecars"):
        write = partial(checkpoint_of, size=int(5e9 * scale), kind=kind)
        yield Case("checkpoint", f"{kind}, state", kind, write, _state)
        yield Case("checkpoint", f"{kind}, active files", kind, write, _counted)


async def _range(path: Path) -> str:
    log = DeltaLog(str(path))
    newest = await log.newest_version()
    return f"{len(await log.commits(range(1, newest + 1)))} commits"


async def _read(path: Path) -> str:
    commit = await DeltaLog(str(path)).commit(1)
    return f"{commit.n_adds} added, {commit.n_removes} removed"


async def _state(path: Path) -> str:
    return f"version {(await DeltaLog(str(path)).snapshot()).version}"


def main() -> None:
    """Write the tables, measure each case in a process of its own, and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", help="groups of cases, or parts of their names")
    parser.add_argument("--scale", type=float, default=1.0, help="of commits, actions and bytes")
    parser.add_argument("--folder", type=Path, help="for the tables, which then stay")
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="benchmark-large-logs-"))
    found = list(cases(given.scale))
    try:
        if given.case is not None:
            case = found[given.case]
            prepared = case.prepare(folder / case.table)
            print(json.dumps(asyncio.run(measured(lambda: case.ask(prepared)))))
            return
        print(f"{'':<42}{'seconds':>9}{'MiB':>9}{'blocked ms':>12}{'(clock)':>9}")
        for number, case in enumerate(found):
            if given.only and not any(one == case.group or one in case.title for one in given.only):
                continue
            if not (folder / case.table).is_dir():
                case.write(folder / case.table)
            command = [sys.executable, __file__, "--folder", str(folder), "--scale", str(given.scale)]
            done = subprocess.run([*command, "--case", str(number)], stdout=subprocess.PIPE, text=True)
            if done.returncode:
                print(f"{case.title:<42} ended with {done.returncode}", flush=True)
                continue
            one = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{case.title:<42}{one['seconds']:>9.2f}{one['memory']:>9.0f}"
                f"{one['processor']:>12.0f}{one['clock']:>9.0f}  {one['answer'][:200]}",
                flush=True,
            )
    finally:
        if given.folder is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
