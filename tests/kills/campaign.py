"""The campaign: new tables, some rounds of kills over them, and what the next runs make of these."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.kills.erase import Erase
from tests.kills.kinds import Apply, ApplyHistory, ApplyWithRules, Expiry, Group, Ingest, Staging
from tests.kills.tries import Try
from tests.kills.ways import (
    WAYS,
    ConnectKilled,
    ConnectStopped,
    Frozen,
    OutOfMemory,
    Sigkill,
    Sigstop,
    StoreBreaks,
    StoreEnds,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kills.kinds import Kind
    from tests.kills.ways import Way
    from tests.support.lake import Lake

KINDS: dict[str, type[Kind]] = {
    kind.name: kind for kind in (Apply, ApplyHistory, ApplyWithRules, Ingest, Group, Staging, Expiry, Erase)
}
#: How often one run is ended before it may come to its end, at most.
_MOST_KILLS = 8
#: How many runs an input may need, if none is ended.
_MOST_RUNS = 8


@dataclass(frozen=True)
class Cell:
    """What is tried: a kind of work, a way to end, and a store.

    :param kills: how many the whole campaign has
    """

    kind: str
    way: str
    store: str = "disk"
    kills: int = 0

    @property
    def name(self) -> str:
        return f"{self.kind} / {self.way} / {self.store}"


#: Ways and stores, with the kills of each kind of work; of erasures, an eighth: they take 20 times as long.
#: The erasures of a bucket have no place of their own.
_KILLS = {
    (StoreEnds, "disk"): 400,
    (Frozen, "disk"): 200,
    (StoreEnds, "S3"): 130,
    (Frozen, "S3"): 40,
    (Sigstop, "disk"): 25,
    (Sigkill, "disk"): 10,
    (OutOfMemory, "disk"): 10,
    (ConnectStopped, "disk"): 10,
    (ConnectKilled, "disk"): 5,
}
CELLS = tuple(
    Cell(kind, way.name, store, kills if kind != Erase.name else -(-kills // 8))
    for (way, store), kills in _KILLS.items()
    for kind in KINDS
    if (kind, store) != (Erase.name, "S3")
)


@dataclass
class State:
    """What a campaign has done so far: a file.

    :param kills: by name of a cell
    :param sets: how many sets of tables there were
    :param failures: the seed of each failure, and what was wrong
    """

    path: Path | None = None
    kills: dict[str, int] = field(default_factory=dict)
    sets: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    failures: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> State:
        return cls(path, **json.loads(path.read_text())) if path.exists() else cls(path)

    @classmethod
    def joined(cls, paths: Sequence[Path]) -> State:
        """Return what several campaigns beside each other have done, over cells of their own."""
        whole = cls()
        for one in map(cls.read, paths):
            for name in ("kills", "sets", "seconds"):
                sums = getattr(whole, name)
                for cell, value in getattr(one, name).items():
                    sums[cell] = sums.get(cell, 0) + value
            whole.failures += one.failures
        return whole

    def write(self) -> None:
        if self.path is None:
            return
        content = {name: value for name, value in vars(self).items() if name != "path"}
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(content, indent=1))
        draft.replace(self.path)

    def add(self, cell: Cell, kills: int, seconds: float, problems: list[str], seed: str) -> None:
        """Add the outcome of a set of tables."""
        name = cell.name
        self.kills[name] = self.kills.get(name, 0) + kills
        self.sets[name] = self.sets.get(name, 0) + 1
        self.seconds[name] = round(self.seconds.get(name, 0.0) + seconds, 1)
        if problems:
            self.failures.append({"seed": seed, "problems": problems[:5]})
        self.write()

    def next(self, only: str = "") -> Cell | None:
        """Return the cell that has done the least of what it should; None at the end."""
        open_cells = [one for one in CELLS if only in one.name and self.kills.get(one.name, 0) < one.kills]
        return min(open_cells, key=lambda one: self.kills.get(one.name, 0) / one.kills, default=None)

    def table(self) -> str:
        """Return the kills by kind and way, as Markdown."""
        ways = list(dict.fromkeys((one.way, one.store) for one in CELLS))
        kinds = list(dict.fromkeys(one.kind for one in CELLS))
        lines = ["| Kind of work | " + " | ".join(f"{way}, {store}" for way, store in ways) + " | Sum |"]
        lines.append("|---" * (len(ways) + 2) + "|")
        for kind in kinds:
            counts = [self.kills.get(Cell(kind, way, store).name, 0) for way, store in ways]
            shown = [str(count or "") for count in counts]
            lines.append(f"| {kind} | " + " | ".join(shown) + f" | {sum(counts)} |")
        sums = [sum(self.kills.get(Cell(kind, *way).name, 0) for kind in kinds) for way in ways]
        lines.append("| Sum | " + " | ".join(map(str, sums)) + f" | {sum(sums)} |")
        done, took = sum(self.kills.values()), sum(self.seconds.values())
        lines.append("")
        lines.append(
            f"{done} kills over {sum(self.sets.values())} sets of tables in {took / 3600:.1f} h, "
            f"{took / max(done, 1):.1f} s each; {len(self.failures)} failures."
        )
        return "\n".join(lines)


@dataclass
class Tables:
    """One set of tables, and all that happens to it: the seed decides.

    :param unlucky: how often a run dies before its announcement, and how often it loses its saved plan
    :ivar kills: how many runs were ended
    """

    kind: Kind
    way: Way
    draw: random.Random
    unlucky: float = 0.2
    kills: int = 0

    def play(self, most: int) -> list[str]:
        """Kill runs over some rounds of input; return what is wrong after the first round with a problem."""
        for number in range(self.kind.rounds):
            self.kind.change(self.draw, self.way.spark)
            self.kind.upload()
            try:
                problems = self.round(number)
            except Exception:  # noqa: BLE001 - whatever it is, it is reported with its seed
                problems = [traceback.format_exc()]
            if problems or self.kills >= most:
                return [f"round {number}: {problem}" for problem in problems]
        return self.kind.last(self.draw)

    def round(self, number: int) -> list[str]:
        """End some tries of a run, let the next come to its end, and compare."""
        for _ in range(self.draw.randint(1, _MOST_KILLS)):
            if not self.way.end(self.kind, self.attempt(number), self.draw):
                break
            self.kills += 1
            self.kind.between(self.draw)
        if self.draw.random() < self.unlucky:
            # A process that dies between its commit and the announcement.
            self.kind.work(self.attempt(number, is_mute=True))
        if self.draw.random() < self.unlucky:
            # The task fails without another try: the next run has a task of its own, without this plan.
            (self.kind.folder / "plans.json").unlink(missing_ok=True)
        self.settle(number)
        return self.kind.problems()

    def settle(self, number: int) -> None:
        """Run until there is nothing to do."""
        for again in range(_MOST_RUNS):
            # The first is the next try of the same task, the others are later runs.
            if not self.kind.work(self.attempt(number, again)):
                return
        raise AssertionError(f"there is still work after {_MOST_RUNS} runs")

    def attempt(self, number: int, again: int = 0, *, is_mute: bool = False) -> Try:
        name = f"run {number}.{again}"
        return Try(self.way.spark, self.kind.folder, name, self.kind.storage, is_mute=is_mute)


@dataclass
class Campaign:
    """Plays until each place has its kills.

    :param scratch: for tables
    :param lake: for tables on S3
    :param stopping: confs of a process whose disk ends
    """

    spark: SparkSession
    state: State
    scratch: Path
    lake: Lake
    stopping: dict[str, str]

    def __post_init__(self) -> None:
        self._breaks = StoreBreaks()
        self.lake.proxy.faults = self._breaks
        self._way: tuple[Cell, Way] | None = None

    def run(self, most: int, only: str = "", per_set: int = 1 << 30) -> None:
        """Go on until there were so many more kills, or all are done; only in cells with this text.

        :param per_set: the most kills of one set of tables
        """
        done = 0
        while done < most and (cell := self.state.next(only)) is not None:
            done += self.one(cell, self.state.sets.get(cell.name, 0), min(per_set, most - done))

    def play(self, cell: Cell, number: int, most: int) -> tuple[int, list[str]]:
        """Play one set of tables; return how many kills there were, and what is wrong."""
        on_disk = cell.store == "disk"
        # A name of its own: a process that goes on must not find the tables of the next set.
        name = f"{re.sub('[^a-z0-9]+', '-', cell.name.lower())}-{number}"
        folder = (self.scratch if on_disk else self.lake.folder) / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        place = () if on_disk else (self.lake.uri(name), self.lake.direct)
        tables = Tables(
            KINDS[cell.kind](folder, *place), self.way(cell), random.Random(f"{cell.name} {number}")
        )
        tables.way.begin()
        problems = tables.play(most)
        if problems:
            # A process that was left in the middle of its work ends with its tables.
            self.close()
            with suppress(OSError):
                shutil.copytree(folder, self.scratch.parent / f"kills failure {len(self.state.failures)}")
        shutil.rmtree(folder, ignore_errors=True)
        return tables.kills, problems

    def way(self, cell: Cell) -> Way:
        """Return a way to end; the processes of another one end."""
        if self._way is None or (self._way[0].way, self._way[0].store) != (cell.way, cell.store):
            self.close()
            stop: Any = self.spark._jvm.Stop if cell.store == "disk" else self._breaks
            self._way = cell, WAYS[cell.way](self.spark, stop, self.scratch, self.stopping)
        return self._way[1]

    def close(self) -> None:
        """End processes that were started."""
        if self._way is not None:
            self._way[1].close()
        self._way = None

    def one(self, cell: Cell, number: int, most: int) -> int:
        """Play one set of tables, and note what came of it."""
        seed = f"{cell.name} / {number}"
        began = time.monotonic()
        kills, problems = self.play(cell, number, most)
        seconds = time.monotonic() - began
        self.state.add(cell, kills, seconds, problems, seed)
        print(f"{seed}: {kills} kills in {seconds:.0f} s", flush=True)
        if problems:
            print(f"FAILED: python -m tests.kills --replay '{seed}'", *problems, sep="\n", flush=True)
        return kills
