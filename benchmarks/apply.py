"""What applying changes costs, side by side with what people would run instead.

Every arm starts from the same source with the same new versions and from a copy of the same target, and must
end with the same rows, in every round. Arms take turns in one warm Spark session, in a new order each round.

    python benchmarks/apply.py                        # all cells: the better part of an hour
    python benchmarks/apply.py --small                # does it run?
    python benchmarks/apply.py --only scd2-1e6-1e4-uniform-updates
    python benchmarks/apply.py --only scd1-1e8-1e4-uniform-updates --arms ours "MERGE by hand" --repeats 3
    python benchmarks/apply.py --prepare              # make the tables, to measure later
    python benchmarks/apply.py --copies               # do hard links, of which targets are made, bias a run?

A cell's figures are kept in a JSON file as soon as it is done; a run that is started again goes on with the
cells that are missing. ``--again`` measures them all. mack is looked for in a folder of its own and installed
there if it is missing, together with Delta's Python package and nothing else.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from apply_arms import WAYS, find_peers
from apply_cells import CELLS, LARGE, TINY
from apply_report import markdown
from apply_tables import COLUMNS, END, START, Disturbed, Workshop, files, linked, written
from arms import Arm, race
from report import conclude, shared_arguments
from summary import ratio

from delta_cdc import get_session

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from apply_arms import Way
    from apply_cells import Cell
    from apply_tables import Source
    from pyspark.sql import SparkSession
    from report import Kept

_PEERS = ("mack==0.5.0", "delta-spark==4.4.0")


class Run:
    """One arm in one cell: a fresh copy of its target for every run, and the bytes each run wrote."""

    def __init__(
        self, shop: Workshop, way: Way, cell: Cell, copy: Callable[[Path, Path], Path] = linked
    ) -> None:
        self.way = way
        self.written: list[dict[str, int]] = []
        self.cpu: list[float] = []
        self._shop, self._cell, self._copy = shop, cell, copy
        self._source: Source = shop.source(cell)
        self._prepared = shop.target(cell, way.layout)
        self._before = files(self._prepared)
        self._clock = cpu_clock(shop.session)
        #: The copy of the run under way.
        self.target = shop.folder / "run"

    def arm(self) -> Arm:
        """Return what takes part in the race."""
        return Arm(self.way.name, self._apply, self._rows, prepare=self._prepare)

    def _prepare(self) -> None:
        self.clear()
        # A new place each time: Spark remembers tables by their path.
        self.target = self._shop.folder / f"run-{uuid.uuid4().hex}"
        self._copy(self._prepared, self.target)
        # What the arm before has left to write is its own affair.
        os.sync()

    def _apply(self) -> None:
        begin = self._clock()
        self.way.run(self._shop.session, self._cell, self._source, self.target)
        self.cpu.append(self._clock() - begin)

    def _rows(self) -> tuple[object, ...]:
        self.written.append(written(self.target, self._before))
        if files(self._prepared) != self._before:
            raise Disturbed(f"{self.way.name} changed {self._prepared}, from which all its runs start")
        return digest(self._shop.session, self.target, self._cell.scd_type, dict(self.way.names))

    def clear(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self.target, ignore_errors=True)


def cpu_clock(session: SparkSession) -> Callable[[], float]:
    """Return a clock of the CPU seconds that this process and its JVM have used, compiling included.

    A busy machine stretches every second on the wall, these hardly.
    """
    jvm = Path(f"/proc/{session._jvm.java.lang.ProcessHandle.current().pid()}/stat")
    tick = os.sysconf("SC_CLK_TCK")

    def used() -> float:
        # Fields 14 and 15; what comes before may hold blanks, but ends with a bracket.
        user, system = jvm.read_text().rpartition(")")[2].split()[11:13]
        return time.process_time() + (int(user) + int(system)) / tick

    return used


def digest(session: SparkSession, table: Path, scd_type: int, names: dict[str, str]) -> tuple[object, ...]:
    """Return what tells one table's rows from another's.

    :param names: the table's names of columns -> ours
    """
    theirs = {ours: name for name, ours in names.items()}
    columns = [theirs.get(name, name) for name in (*COLUMNS, *((START, END) if scd_type == 2 else ()))]
    # The hash of a NULL is that of nothing at all: say where they are.
    hashed = ", ".join(f"{name}, {name} IS NULL" for name in columns)
    rows = session.read.format("delta").load(str(table))
    return tuple(rows.selectExpr("count(*)", f"sum(CAST(xxhash64({hashed}) AS DECIMAL(38)))").collect()[0])


def run_cell(
    shop: Workshop, cell: Cell, repeats: int, *, warm_ups: int = 1, ways: Sequence[Way] = WAYS
) -> dict[str, Any]:
    """Let all arms that can do a cell take turns.

    :param ways: the arms; others are left out
    :return: seconds and bytes by arm, as they go into the file of results
    :raises Disagreement: where two arms gave different rows
    :raises Disturbed: where an arm changed what all start from
    """
    left_out = {way.name: "was not measured" for way in WAYS if way not in ways}
    left_out |= {way.name: reason for way in WAYS if (reason := way.cannot(cell))}
    runs = [Run(shop, way, cell) for way in WAYS if way.name not in left_out]
    arms = [run.arm() for run in runs]
    try:
        race(cell.name, arms, repeats, warm_ups=warm_ups)
    finally:
        for run in runs:
            run.clear()
    return {
        "arms": {
            run.way.name: {
                "seconds": [round(second, 4) for second in arm.seconds],
                "cpu": [round(second, 2) for second in run.cpu[warm_ups:]],
                "written": {
                    kind: statistics.median(each[kind] for each in run.written) for kind in run.written[0]
                },
            }
            for run, arm in zip(runs, arms, strict=True)
        },
        "left_out": left_out,
        "bytes_per_row": bytes_per_row(shop, cell),
    }


def bytes_per_row(shop: Workshop, cell: Cell) -> float:
    """Return the bytes that a row of the source takes in its files."""
    data = [size for name, (size, _) in files(shop.base(cell)).items() if name.endswith(".parquet")]
    return round(sum(data) / cell.rows, 2)


def compare_copies(shop: Workshop, cell: Cell, repeats: int) -> None:
    """Race one arm from hard links against itself from real copies: the ratio should be 1."""
    way = next(way for way in WAYS if way.name == "MERGE by hand")
    ways = {"links": linked, "copies": _copied}
    runs = [Run(shop, replace(way, name=name), cell, copy) for name, copy in ways.items()]
    arms = [run.arm() for run in runs]
    try:
        race(f"{cell.name}, by hand", arms, repeats)
    finally:
        for run in runs:
            run.clear()
    print(f"links : copies = {ratio(arms[0].seconds, arms[1].seconds)}")


def _copied(table: Path, to: Path) -> Path:
    return Path(shutil.copytree(table, to))


def install_peers(folder: Path) -> None:
    """Install mack and what it needs into a folder of their own; without them its arm is left out."""
    if not folder.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(folder)]
        if subprocess.run([*command, *_PEERS], check=False).returncode:
            print("mack could not be installed: its arm is left out", file=sys.stderr)
    find_peers(folder)


def measure(
    cells: Sequence[Cell],
    kept: Kept,
    folder: Path,
    *,
    repeats: int,
    warm_ups: int,
    ways: Sequence[Way] = WAYS,
) -> None:
    """Measure cells one after the other; each is kept as soon as it is done."""
    session = get_session("apply", **{"spark.driver.memory": "6g"})
    try:
        shop = Workshop(session, folder)
        for cell in cells:
            kept.add(cell.name, run_cell(shop, cell, repeats, warm_ups=warm_ups, ways=ways))
    finally:
        session.stop()


def prepare(cells: Sequence[Cell], folder: Path) -> None:
    """Make all tables that cells need."""
    session = get_session("apply", **{"spark.driver.memory": "6g"})
    try:
        shop = Workshop(session, folder)
        for cell in cells:
            shop.source(cell)
            for layout in {way.layout for way in WAYS if way.cannot(cell) is None}:
                shop.target(cell, layout)
            print(f"{cell.name}: ready", file=sys.stderr, flush=True)
    finally:
        session.stop()


def main() -> int:
    """Measure and print; 1 where two arms gave different rows."""
    by_name, names = {cell.name: cell for cell in (*CELLS, LARGE)}, [cell.name for cell in CELLS]
    arms = {way.name: way for way in WAYS}
    parser = shared_arguments("apply", __doc__, small="the smallest table, one round")
    parser.add_argument("--only", nargs="+", choices=list(by_name), default=names, metavar="CELL")
    parser.add_argument("--arms", nargs="+", choices=list(arms), default=list(arms), metavar="ARM")
    parser.add_argument("--again", action="store_true", help="measure cells that have figures already")
    parser.add_argument("--prepare", action="store_true", help="only make the tables")
    parser.add_argument("--copies", action="store_true", help="only compare links with copies")
    asked = parser.parse_args()
    folder, cells = asked.folder.resolve(), [by_name[name] for name in asked.only]
    if asked.copies:
        session = get_session("apply", **{"spark.driver.memory": "6g"})
        compare_copies(Workshop(session, folder), cells[0], asked.repeats)
        session.stop()
        return 0
    if not asked.small:
        install_peers(folder / "peers")
    if asked.prepare:
        prepare(cells, folder)
        return 0
    known = [TINY] if asked.small else list(by_name.values())
    ways = [arms[name] for name in asked.arms]
    return conclude(asked, partial(_measured, asked, cells, ways), partial(markdown, known=known))


def _measured(asked: argparse.Namespace, cells: Sequence[Cell], ways: Sequence[Way], kept: Kept) -> None:
    if asked.small:
        with tempfile.TemporaryDirectory() as folder:
            measure([TINY], kept, Path(folder), repeats=1, warm_ups=0)
        return
    missing = [cell for cell in cells if asked.again or cell.name not in kept.cells]
    if missing:
        rounds = {name: getattr(asked, name) for name in ("repeats", "warm_ups")}
        measure(missing, kept, asked.folder.resolve(), **rounds, ways=ways)


if __name__ == "__main__":
    raise SystemExit(main())
