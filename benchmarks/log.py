"""What a look at a Delta log costs: polling, planning, and both over a store 30 ms away.

Side by side with deltalake, with a listing and, as the floor, with the one system call that tells whether
a file is there. Contestants take turns within a repeat, in a new order each time, and their answers are
compared: the program fails when they differ, never because it is slow.

    python benchmarks/log.py                    # everything, some minutes
    python benchmarks/log.py --commits 100 1000 # smaller logs
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import multiprocessing
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from logs import file_name, sealed, write_log

from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.apply import plan_apply_async
from tests.support.http_store import BUCKET, HttpStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

LATENCY = 0.03
_EVERY = {100: 10, 1_000: 10, 10_000: 100}


@dataclass
class Contestant:
    """One way to an answer, and the times it took, in milliseconds."""

    name: str
    ask: Callable[[], Awaitable[Any]]
    times: list[float] = field(default_factory=list)
    requests: int | None = None

    async def run(self) -> Any:
        begin = time.perf_counter()
        answer = await self.ask()
        self.times.append((time.perf_counter() - begin) * 1_000)
        return answer

    def row(self) -> str:
        ordered = sorted(self.times)
        low, high = ordered[len(ordered) // 10], ordered[len(ordered) * 9 // 10]
        requests = "" if self.requests is None else f"{self.requests:>9}"
        return f"  {self.name:<36}{statistics.median(ordered):>11.3f}{low:>11.3f}{high:>11.3f}{requests}"


class Disagreement(Exception):
    """Two contestants gave different answers."""


class FarStore:
    """A store in a process of its own: deltalake may hold up all threads of the one that asks."""

    def __init__(self, root: Path, latency: float) -> None:
        self._pipe, other = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=_serve, args=(root, latency, other), daemon=True)

    def __enter__(self) -> FarStore:
        self._process.start()
        self._options: dict[str, str] = self._pipe.recv()
        return self

    def __exit__(self, *error: object) -> None:
        self._pipe.send(None)
        self._process.join()

    def uri(self, table: str) -> str:
        return f"s3://{BUCKET}/{table}"

    def options(self) -> dict[str, str]:
        return self._options

    def forget(self) -> int:
        """Return the number of requests since the last time."""
        self._pipe.send("count")
        return int(self._pipe.recv())


def _serve(root: Path, latency: float, pipe: Connection) -> None:
    with HttpStore(root, latency=latency) as store:
        pipe.send(store.options())
        while pipe.recv() is not None:
            pipe.send(len(store.requests))
            store.forget()


async def race(
    title: str, contestants: list[Contestant], repeats: int, store: FarStore | None = None
) -> None:
    """Let the contestants take turns, compare their answers and print a table."""
    order = random.Random(0)
    # Once beforehand: imports, file cache and connections belong to no arm.
    for one in (*contestants, *contestants):
        if store is not None:
            store.forget()
        await one.run()
        one.requests = store.forget() if store is not None else None
    for one in contestants:
        one.times.clear()
    for _ in range(repeats):
        answers = {one.name: await one.run() for one in order.sample(contestants, len(contestants))}
        if len(set(map(str, answers.values()))) != 1:
            raise Disagreement(f"{title}: {answers}")
    heading = "" if store is None else f"{'requests':>9}"
    print(f"\n{title} ({repeats} repeats; milliseconds)")
    print(f"  {'':<36}{'median':>11}{'10 %':>11}{'90 %':>11}{heading}")
    for one in contestants:
        print(one.row(), flush=True)
    await _alone(contestants[0], repeats)


async def _alone(one: Contestant, repeats: int) -> None:
    """Ask ours again and again: what the others left behind (full caches, busy threads) is not its cost."""
    by_itself = Contestant(f"{one.name}, by itself", one.ask, requests=one.requests)
    for _ in range(repeats):
        await by_itself.run()
    print(by_itself.row(), flush=True)


# -- contestants --------------------------------------------------------------------------------
def polls(uri: str, newest: int, options: dict[str, str] | None = None) -> list[Contestant]:
    """Return the ways to find out that nothing is newer than the newest version."""
    from deltalake import DeltaTable

    log = DeltaLog(uri, options)
    held = DeltaTable(uri, storage_options=options)

    async def ours() -> int:
        return await log.newest_version(after=newest)

    async def opened() -> int:
        return int(DeltaTable(uri, storage_options=options).version())

    async def updated() -> int:
        held.update_incremental()
        return int(held.version())

    ways = [
        Contestant("newest_version(after=N)", ours),
        Contestant("deltalake, handle kept and updated", updated),
        Contestant("deltalake, opened", opened),
    ]
    if options is None:
        return [*ways, *_local(Path(uri) / "_delta_log", newest)]

    async def listed() -> int:
        return await _list_store(uri, options)

    return [*ways, Contestant("listing of the whole log", listed)]


def _local(folder: Path, newest: int) -> list[Contestant]:
    async def listed() -> int:
        names = (entry.name for entry in os.scandir(folder))
        return max(int(name[:20]) for name in names if name.endswith(".json") and len(name) == 25)

    async def exists() -> int:
        return newest + (folder / f"{newest + 1:020d}.json").exists()

    return [Contestant("listing of the whole log", listed), Contestant("one stat call (the floor)", exists)]


async def _list_store(uri: str, options: dict[str, str]) -> int:
    import obstore

    from delta_cdc.delta_log.store import open_store

    names: list[str] = []
    store = open_store(uri, options)
    assert store is not None
    async for batch in obstore.list(store, "_delta_log/"):
        names.extend(entry["path"] for entry in batch)
    return max(int(name[-25:-5]) for name in names if name.endswith(".json") and len(name) == 36)


def planners(
    source: str, target: str, commits: int, options: dict[str, str] | None = None
) -> list[Contestant]:
    """Return ways to know what a range of commits holds; only ours knows whether it may be read."""
    from deltalake import DeltaTable

    request = ApplyRequest(
        pipeline="bench",
        source=source,
        target=target,
        options=ApplyOptions(keys=("id",)),
        storage_options=options,
    )

    async def ours() -> tuple[int, int]:
        versions = (await plan_apply_async(request)).versions
        assert versions is not None
        return versions.starting_version, versions.ending_version

    async def read() -> tuple[int, int]:
        found = await DeltaLog(source, options).commits(range(1, commits + 1))
        return found[0].version, found[-1].version

    async def history() -> tuple[int, int]:
        table = DeltaTable(source, storage_options=options)
        entries = table.history(commits)
        return entries[-1]["version"], entries[0]["version"]

    return [
        Contestant("plan_apply, all gates", ours),
        Contestant("of it: commits of the range", read),
        Contestant("deltalake, opened, history of them", history),
    ]


# -- tables -------------------------------------------------------------------------------------
def make_pair(root: Path, commits: int, every: int | None, files: int) -> tuple[str, str]:
    """Write a source with so many commits after the watermark of a target; return their names."""
    source, target = f"source-{every}-{files}", f"target-{every}-{files}"
    source_id = write_log(root / source, commits + 1, checkpoint_every=every, files=files)
    first = root / source / "_delta_log" / f"{0:020d}.json"
    write_log(
        root / target, 1, extra=sealed("bench", source_id, str(root / source), lambda _: _sha256(first))
    )
    for part in range(files):
        # A gate looks whether the first files that are to be read are still there.
        (root / source / file_name(1, part)).touch()
    return source, target


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


async def measure(root: Path, commits: list[int], planned: int, repeats: int) -> None:
    """Run all races."""
    for count in commits:
        for every in (_EVERY.get(count, 100), None):
            table = root / f"poll-{count}-{every}"
            write_log(table, count, checkpoint_every=every)
            kept = f"a checkpoint every {every}" if every else "no checkpoint"
            # Opening ten thousand commits takes seconds, each time.
            times = repeats if every or count < 10_000 else max(3, repeats // 20)
            await race(f"poll, local disk, {count} commits, {kept}", polls(str(table), count - 1), times)
    pairs = [(every, files) for every in (10, None) for files in (1, 20)]
    names = {pair: make_pair(root, planned, *pair) for pair in pairs}
    for (every, files), (source, target) in names.items():
        kept = f"a checkpoint every {every}" if every else "no checkpoint"
        title = f"planning {planned} commits of {files} files, local disk, {kept}"
        await race(title, planners(str(root / source), str(root / target), planned), max(3, repeats // 10))
    with FarStore(root, LATENCY) as store:
        await _far_away(store, root, commits, names[10, 1], planned, max(3, repeats // 20))


async def _far_away(
    store: FarStore, root: Path, commits: list[int], pair: tuple[str, str], planned: int, repeats: int
) -> None:
    where = f"a store {LATENCY * 1_000:.0f} ms away"
    options = store.options()
    for count in commits:
        uri = store.uri(f"poll-{count}-{_EVERY.get(count, 100)}")
        title = f"poll, {where}, {count} commits, a checkpoint every {_EVERY.get(count, 100)}"
        await race(title, polls(uri, count - 1, options), repeats, store)
    source, target = map(store.uri, pair)
    ways = planners(source, target, planned, options)
    await race(f"planning {planned} commits, {where}", ways, 3, store)


def main() -> int:
    """Measure and print; 1 where answers differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, nargs="+", default=[100, 1_000, 10_000])
    parser.add_argument("--planned", type=int, default=1_000)
    parser.add_argument("--repeats", type=int, default=100)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            asyncio.run(measure(Path(folder), arguments.commits, arguments.planned, arguments.repeats))
        except Disagreement as error:
            print(f"the answers differ: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
