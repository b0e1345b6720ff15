"""How long a Spark of its own takes until a first change is merged: a user's usual session against ours.

Each run is a fresh process: it starts Spark, creates a Delta table, appends to it and merges into it. What is
timed is from the process's start to the end of the MERGE. All run the same statements.

    plain        PySpark as its documentation starts it: ``local[*]``, Delta's JARs by ``spark.jars`` (they
                 are there already: no download), its extension and catalog; all else is default
    class path   the same, with the JARs on the driver's class path from the start
    ours         ``get_session`` for small work: class-data archive, quick compiler, few partitions
    ours, full   the same for work of unknown size: class-data archive, both compilers

The second part tells what "small" is: loads and applies of tables of growing size by ``apply_changes``, in
sessions of both profiles, quick and full (process start to the end of the job). Its plan gives a job's
size, as for the operators: ``delta_cdc.planning.size``. Where the lines cross, ``SMALL`` belongs.

    python benchmarks/start.py                       # both parts: some 25 minutes
    python benchmarks/start.py --only first --repeats 9
    python benchmarks/start.py --only sizes          # some 12 minutes
    python benchmarks/start.py --small               # does it run?
    python benchmarks/start.py --markdown docs/contributing/benchmarks.md
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from arms import agree, in_turns
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from pyarrow import compute
from report import circumstances, conclude, shared_arguments
from summary import Ratio, compared, crossings, markdown_table, median, ratio, spread

from delta_cdc.delta_log.table import run_sync
from delta_cdc.launch.environment import child_environment
from delta_cdc.launch.jars import class_path, delta_jars
from delta_cdc.launch.session import delta_confs
from delta_cdc.planning.apply import plan_apply
from delta_cdc.planning.size import SMALL, work_size
from delta_cdc.run import table_arguments
from delta_cdc.warmup import make_archive

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from report import Cells, Kept

AT_MOST = 0.65
ROWS = 1_000
#: Rows of the tables of the second part, some twenty bytes each: the last are as much work as is still small.
SIZES = (100_000, 1_000_000, 3_200_000)
_FIRST_CELL = "first"
_MIB = 1 << 20

_FIRST = """
spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, name STRING) USING delta")
spark.range(ROWS).selectExpr("id", "'row ' || id AS name").write.format("delta").mode("append").save(table)
spark.range(ROWS // 2, ROWS * 3 // 2).selectExpr("id", "'new ' || id AS name").createOrReplaceTempView("s")
spark.sql(f"MERGE INTO delta.`{table}` t USING s ON t.id = s.id "
          "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *")
"""
_APPLY = """
from delta_cdc import apply_changes
apply_changes(spark, source, target, pipeline="start", keys=["id"])
"""
_PROGRAM = """
import json, resource, sys, time
told = json.loads(sys.argv[1])
globals().update(told["names"])
if told["ours"] is None:
    from pyspark.sql import SparkSession
    builder = SparkSession.builder.appName("start")
    for name, value in told["confs"].items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
else:
    from delta_cdc import get_session
    spark = get_session("start", **told["ours"], **told["confs"])
started = time.time()
exec(told["work"])
done = time.time()
from pyspark import SparkContext
jvm = SparkContext._gateway.proc
spark.stop()
jvm.stdin.close()
jvm.wait()
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
print(json.dumps([started, done, sum(one.ru_utime + one.ru_stime for one in used)]))
"""


@dataclass
class Way:
    """One way to start Spark, and what its runs took.

    :param ours: arguments of ``get_session``; None is a session of the user's own
    """

    name: str
    confs: dict[str, str] = field(default_factory=dict)
    ours: dict[str, Any] | None = None
    session: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)

    def run(self, work: str, **names: Any) -> None:
        """Run once, in a process of its own."""
        told = {"confs": self.confs, "ours": self.ours, "work": work, "names": names}
        environment = {**os.environ, **child_environment()}
        begin = time.time()
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM, json.dumps(told)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise AssertionError(f"{self.name}: {done.stderr[-4_000:]}")
        started, ended, cpu = json.loads(done.stdout.splitlines()[-1])
        self.session.append(started - begin)
        self.seconds.append(ended - begin)
        self.cpu.append(cpu)

    def figures(self, warm_ups: int) -> dict[str, list[float]]:
        """Return what the runs took that count."""
        found = {"session": self.session, "seconds": self.seconds, "cpu": self.cpu}
        return {name: [round(one, 2) for one in values[warm_ups:]] for name, values in found.items()}


def ways() -> list[Way]:
    """Return the ways of the first part."""
    usual = {"spark.master": "local[*]", **delta_confs()}
    jars = ",".join(map(str, delta_jars().jars()))
    return [
        Way("plain", {**usual, "spark.jars": jars}),
        Way("class path", {**usual, "spark.driver.extraClassPath": class_path()}),
        Way("ours", ours={"quick_start": True}),
        Way("ours, full", ours={}),
    ]


def first(kept: Kept, folder: Path, *, repeats: int, warm_ups: int) -> None:
    """Measure the first part.

    :raises Disagreement: the tables hold different rows
    """
    found = ways()
    for turn in range(warm_ups + repeats):
        for way in in_turns(found, turn):
            way.run(_FIRST, table=str(folder / f"{turn}-{way.name}"), ROWS=ROWS)
        agree(f"round {turn}", {way.name: _rows(folder / f"{turn}-{way.name}") for way in found})
        print(f"round {turn}: {', '.join(f'{w.name} {w.seconds[-1]:.1f} s' for w in found)}", file=sys.stderr)
    kept.add(_FIRST_CELL, {"arms": {way.name: way.figures(warm_ups) for way in found}})


def sizes(kept: Kept, folder: Path, rows: Iterable[int], *, repeats: int) -> None:
    """Measure the second part, cell by cell: tables of so many rows are loaded, then 1 % of them applied.

    :raises Disagreement: the targets hold different rows
    """
    # One that does not count: JARs and class-data archive are read from the disk once.
    Way("quick", ours={"quick_start": True}).run("pass")
    for count in rows:
        place = folder / str(count)
        source, target, loaded = str(place / "source"), place / "target", place / "loaded"
        write_deltalake(source, _table(count), configuration={"delta.enableChangeDataFeed": "true"})
        _sized(kept, "load", count, source, target, None, repeats)
        shutil.move(target, loaded)
        merge = DeltaTable(source).merge(
            _table(count, 100), "t.id = s.id", source_alias="s", target_alias="t"
        )
        merge.when_matched_update_all().execute()
        _sized(kept, "apply", count, source, target, loaded, repeats)
        shutil.rmtree(place)


def _sized(
    kept: Kept, job: str, count: int, source: str, target: Path, before: Path | None, repeats: int
) -> None:
    """Measure one cell.

    :param before: what the target is at first; None if it does not exist yet
    """
    kinds = [Way("quick", ours={"quick_start": True}), Way("full", ours={})]
    size = 0
    for turn in range(repeats):
        answers = {}
        for way in in_turns(kinds, turn):
            # At one place, because a target knows its own.
            shutil.rmtree(target, ignore_errors=True)
            if before is not None:
                shutil.copytree(before, target)
            # What was written before does not matter.
            os.sync()
            size = _work(source, target)
            way.run(_APPLY, source=source, target=str(target))
            answers[way.name] = _rows(target)
        agree(f"{job} of {count} rows, round {turn}", answers)
    arms = {way.name: way.figures(0) for way in kinds}
    kept.add(f"{job}-{count}", {"job": job, "rows": count, "size": size, "arms": arms})
    print(f"{job} of {count} rows, {size:,} bytes: {arms}", file=sys.stderr, flush=True)


def _work(source: str, target: Path) -> int:
    """Return the size of the work, as an operator sees it before it starts a driver."""
    told = {"pipeline": "start", "source": source, "target": str(target), "keys": ["id"]}
    _, request = table_arguments.requests(told)
    assert request is not None
    spec = plan_apply(request).spec
    assert spec is not None
    size = run_sync(work_size(spec))
    assert size is not None
    return size


def _table(count: int, step: int = 1) -> pa.Table:
    """Return rows; with a step, new values for every so many of them."""
    ids = pa.array(range(0, count, step), pa.int64())
    word = "row" if step == 1 else "changed"
    return pa.table(
        {
            "id": ids,
            "name": _named(word, ids),
            "amount": compute.multiply(ids, 1.25),
            "city": _named("city", _modulo(ids, 1_000)),
            "code": _modulo(compute.multiply(ids, 2_654_435_761), 1_000_003),
        }
    )


def _named(word: str, numbers: pa.Array) -> pa.Array:
    return compute.binary_join_element_wise(word, compute.cast(numbers, pa.string()), " ")


def _modulo(numbers: pa.Array, by: int) -> pa.Array:
    return compute.subtract(numbers, compute.multiply(compute.divide(numbers, by), by))


def _rows(table: Path) -> str:
    query = QueryBuilder().register("t", DeltaTable(str(table)))
    # The words before the numbers differ in their first letter: a row that kept its old name shows.
    words = "sum((id + 1) * ascii(name)) AS words"
    text = f"SELECT count(*) AS n, sum(id) AS i, count(DISTINCT name) AS d, {words} FROM t"
    return json.dumps(pa.table(query.execute(text).read_all()).to_pylist())


def markdown(cells: Cells) -> str:
    """Return the tables."""
    parts = []
    if _FIRST_CELL in cells:
        cell = cells[_FIRST_CELL]
        parts += [circumstances([cell]), _first_table(cell["arms"])]
    sized = [cell for cell in cells.values() if "size" in cell]
    if sized:
        # Loads before applies, each by size.
        sized.sort(key=lambda cell: (cell["job"] != "load", cell["size"]))
        parts += [circumstances(sized), _sizes_table(sized), verdict(sized)]
    return "\n".join(parts)


def _first_table(arms: dict[str, Any]) -> str:
    plain = arms["plain"]
    rows = []
    for name, one in arms.items():
        _, _, *against = compared(one, plain, AT_MOST if name == "ours" else None)
        seconds, aimed, cpu = against if name != "plain" else ("", "", "")
        medians = median(one["session"]), median(one["seconds"]), spread(one["seconds"])
        rows.append((name, *medians, seconds, aimed, median(one["cpu"]), cpu))
    heading = ["way", "to the session, s", "to the end of the MERGE, s", "least – most", ": plain (95 %)"]
    return markdown_table([*heading, "aim", "CPU, s", "CPU : plain"], rows)


def _sizes_table(cells: Sequence[dict[str, Any]]) -> str:
    rows = []
    for cell in cells:
        quick, full, seconds, _, cpu = compared(cell["arms"]["quick"], cell["arms"]["full"])
        size = f"{cell['size'] / _MIB:.1f}"
        rows.append(
            (cell["job"], f"{cell['rows']:,}", size, quick, full, seconds, cpu, picked(cell["size"], seconds))
        )
    heading = ["job", "rows", "work, MiB", "quick, s", "full, s", "quick : full (95 %)", "CPU, quick : full"]
    return markdown_table([*heading, f"picked, {SMALL // _MIB} MiB"], rows)


def picked(size: int, seconds: Ratio) -> str:
    """Return which profile work of a size gets, and by how much that is the slower one, if it is.

    :param seconds: those of quick to those of full
    """
    name, cost = ("quick", seconds.value) if size <= SMALL else ("full", 1 / seconds.value)
    return name + (f", **{cost - 1:.0%} slower**" if cost > 1 else "")


def verdict(cells: Sequence[dict[str, Any]]) -> str:
    """Return in words where the quick profile does not take less, for each job.

    :param cells: by size
    """
    lines = []
    for job in dict.fromkeys(cell["job"] for cell in cells):
        for figure, name in (("seconds", "time"), ("cpu", "CPU time")):
            points = [
                (
                    cell["size"] / _MIB,
                    ratio(cell["arms"]["quick"][figure], cell["arms"]["full"][figure]).value,
                )
                for cell in cells
                if cell["job"] == job
            ]
            if found := crossings(points):
                told = (
                    f"both profiles take the same {name} at {' and '.join(f'{at:.0f}' for at in found)} MiB"
                )
            elif points[0][1] > 1:
                told = f"the quick profile takes more {name} at every size"
            else:
                continue
            lines.append(f"- {job}: {told}.")
    return "\n".join([*(lines or ["The quick profile takes less of both at every size."]), ""])


def main() -> int:
    """Measure and print; 1 where the ways gave different rows."""
    parser = shared_arguments("start", __doc__, small="one round, one size")
    parser.add_argument("--only", choices=("first", "sizes"), help="one part")
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="of the second part, %(default)s")
    parser.add_argument("--size-repeats", type=int, default=2, help="rounds of the second part, %(default)s")
    asked = parser.parse_args()
    if asked.small:
        asked.repeats, asked.warm_ups, asked.rows, asked.size_repeats = 1, 0, [1_000], 1
    print(make_archive().reason, file=sys.stderr)
    return conclude(asked, partial(_measured, asked), markdown)


def _measured(asked: argparse.Namespace, kept: Kept) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if asked.only != "sizes":
            first(kept, Path(folder), repeats=asked.repeats, warm_ups=asked.warm_ups)
        if asked.only != "first":
            sizes(kept, Path(folder), asked.rows, repeats=asked.size_repeats)


if __name__ == "__main__":
    raise SystemExit(main())
