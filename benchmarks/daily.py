"""Whether two years of daily applies stay as fast, and as small in memory, as the first month.

One process applies the changes of one day after another to one table. Each day changes 1 % of the rows, adds
some and deletes some, by delta-rs. What is timed is ``apply_changes``. After every thirty days the program
takes the memory in use: the JVM's heap after a collection, its other memory, and the resident memory of both
processes. At the end the target must hold the rows of a plain Python model.

    python benchmarks/daily.py                       # 730 days, type 1: a quarter of an hour
    python benchmarks/daily.py --scd-type 2
    python benchmarks/daily.py --small               # does it run?
    python benchmarks/daily.py --markdown docs/contributing/benchmarks.md
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from arms import Disagreement
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from report import conclude, shared_arguments
from summary import markdown_table

from delta_cdc import apply_changes, get_session

if TYPE_CHECKING:
    import argparse

    from pyspark.sql import SparkSession
    from report import Cells, Kept

#: The median of the last thirty days, as a ratio to the median of the first thirty.
AT_MOST = 1.25
MONTH = 30
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Source:
    """A table that changes every day, and a plain model of its rows and of their history."""

    def __init__(self, path: Path, rows: int) -> None:
        self.path = path
        self._rows = rows
        self.current = dict.fromkeys(range(rows), 0)
        #: Every value that a key had, one for each row of a type 2 target.
        self.versions = rows
        write_deltalake(str(path), _table(self.current), configuration={"delta.enableChangeDataFeed": "true"})

    def change(self, day: int) -> None:
        """Update 1 % of the rows, insert a tenth of that, and delete as many."""
        dice, changes = random.Random(day), self._rows // 100
        updated = dice.sample(sorted(self.current), changes)
        first = self._rows + day * changes
        changed = dict.fromkeys([*updated, *range(first, first + max(1, changes // 10))], day)
        merge = DeltaTable(str(self.path)).merge(
            _table(changed), "t.id = s.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        self.current |= changed
        self.versions += len(changed)
        deleted = dice.sample(sorted(self.current), max(1, changes // 10))
        DeltaTable(str(self.path)).delete(f"id IN ({', '.join(map(str, deleted))})")
        for key in deleted:
            del self.current[key]


def _table(values: dict[int, int]) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(values, pa.int64()),
            "day": pa.array(values.values(), pa.int32()),
            "name": pa.array([f"name {key} of day {day}" for key, day in values.items()]),
        }
    )


def measure(arguments: argparse.Namespace, kept: Kept) -> None:
    """Apply day after day, and keep the seconds of each day and the memory of each month."""
    days, rows = (2, 100) if arguments.small else (arguments.days, arguments.rows)
    folder = arguments.folder.resolve() / "tables"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    source, target = Source(folder / "source", rows), folder / "target"
    session = get_session("daily")
    session.sparkContext.setLogLevel("ERROR")
    apply = partial(
        apply_changes, session, str(source.path), str(target), pipeline="daily", keys=["id"],
        stored_as_scd_type=arguments.scd_type,
    )  # fmt: skip
    apply()
    seconds: list[float] = []
    memory: list[dict[str, float]] = []
    for day in range(1, days + 1):
        source.change(day)
        began = time.perf_counter()
        apply()
        seconds.append(round(time.perf_counter() - began, 4))
        if day % MONTH == 0 or day == days:
            memory.append(_memory(session))
            print(day, round(statistics.median(seconds[-MONTH:]), 3), memory[-1], file=sys.stderr, flush=True)
    _compare(source, target, arguments.scd_type)
    session.stop()
    kept.add(f"scd{arguments.scd_type}", {"rows": rows, "seconds": seconds, "memory": memory})


def _compare(source: Source, target: Path, scd_type: int) -> None:
    """Fail unless the target holds the model's rows.

    :raises Disagreement: it holds others
    """
    query = QueryBuilder().register("t", DeltaTable(str(target)))
    if scd_type == 1:
        found = query.execute("SELECT id, day FROM t").read_all()
        rows = dict(zip(found[0].to_pylist(), found[1].to_pylist(), strict=True))
        if rows != source.current or found.num_rows != len(rows):
            raise Disagreement(f"the target's {len(rows)} rows are not the source's {len(source.current)}")
        return
    (count,) = query.execute("SELECT count(*) FROM t").read_all()[0].to_pylist()
    if count != source.versions:
        raise Disagreement(f"the target has {count} rows, and the keys had {source.versions} values")


def _memory(session: SparkSession) -> dict[str, float]:
    """Return MB in use: the JVM's heap after a collection and its other memory; resident, JVM and Python."""
    jvm: Any = session.sparkContext._jvm
    bean = jvm.java.lang.management.ManagementFactory.getMemoryMXBean()
    # Spark's cleaner frees what a collection found, and the next collection what the cleaner freed.
    before, used = float("inf"), float(bean.getHeapMemoryUsage().getUsed())
    while used < 0.99 * before:
        jvm.java.lang.System.gc()
        before, used = used, float(bean.getHeapMemoryUsage().getUsed())
    return {
        "heap": _mb(bean.getHeapMemoryUsage().getUsed()),
        "other": _mb(bean.getNonHeapMemoryUsage().getUsed()),
        "jvm resident": _resident(jvm.java.lang.ProcessHandle.current().pid()),
        "python resident": _resident(os.getpid()),
    }


def _mb(size: int) -> float:
    return round(size / 1e6, 1)


def _resident(process: int) -> float:
    return _mb(int(Path(f"/proc/{process}/statm").read_text().split()[1]) * _PAGE)


def markdown(cells: Cells) -> str:
    """Return the table of all cells."""
    rows = []
    for cell, figures in cells.items():
        seconds, memory = figures["seconds"], figures["memory"]
        months = [statistics.median(seconds[at : at + MONTH]) for at in range(0, len(seconds), MONTH)]
        last = statistics.median(seconds[-MONTH:])
        reached = f"≤ {AT_MOST:.2f}" if last <= AT_MOST * months[0] else f"≤ {AT_MOST:.2f}, **missed**"
        shown = [f"{memory[0][kind]:.0f} → {memory[-1][kind]:.0f}" for kind in memory[0]]
        rows.append(
            [f"`{cell}`", str(len(seconds)), f"{months[0]:.2f}", f"{min(months):.2f}", f"{last:.2f}",
             f"{last / months[0]:.2f}", reached, f"{last / min(months):.2f}", *shown]
        )  # fmt: skip
    names = ["first 30, s", "fastest 30, s", "last 30, s", "last : first", "aim", "last : fastest"]
    kinds = ["heap, MB", "JVM's other memory, MB", "JVM resident, MB", "Python resident, MB"]
    table = markdown_table(["target", "days", *names, *kinds], rows)
    loads = [figures["machine"]["load"] for figures in cells.values()]
    return f"{os.cpu_count()} cores, load beforehand {max(loads)}, {rows_of(cells)}.\n\n{table}\n"


def rows_of(cells: Cells) -> str:
    """Return how many rows the tables had at the start."""
    return " or ".join(sorted({f"{figures['rows']:,} rows" for figures in cells.values()}))


def main() -> int:
    """Run the program."""
    parser = shared_arguments("daily", __doc__, small="2 days of 100 rows", repeats=1)
    parser.add_argument("--days", type=int, default=730, help="applies, %(default)s")
    parser.add_argument("--rows", type=int, default=20_000, help="rows of the table, %(default)s")
    parser.add_argument("--scd-type", type=int, choices=(1, 2), default=1, help="of the target, %(default)s")
    arguments = parser.parse_args()
    return conclude(arguments, partial(measure, arguments), markdown)


if __name__ == "__main__":
    sys.exit(main())
