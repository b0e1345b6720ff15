"""How long a Spark of its own takes until a first change is merged: a user's usual session against ours.

Each run is a fresh process: it starts Spark, creates a Delta table, appends to it and merges into it. What is
timed is from the process's start to the end of the MERGE. All run the same statements.

    plain        PySpark as its documentation starts it: ``local[*]``, Delta's JARs by ``spark.jars`` (they
                 are there already: no download), its extension and catalog; all else is default
    class path   the same, with the JARs on the driver's class path from the start
    ours         ``embedded_session`` for small work: class-data archive, quick compiler, few partitions
    ours, heavy  the same for work of unknown size: class-data archive, both compilers

The second part tells what "small" is: loads and applies of tables of growing size by ``apply_changes``, in
sessions of both kinds (process start to the end of the job). Where the lines cross is
``delta_cdc.plan.size.SMALL``.

    python benchmarks/start.py                       # both parts: some 20 minutes
    python benchmarks/start.py --only first --repeats 9
    python benchmarks/start.py --small               # does it run?
    python benchmarks/start.py --markdown docs/benchmarks.md
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from apply import machine
from apply_report import markdown_table, published
from arms import Disagreement, ratio
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from delta_cdc.jars import cache_home, class_path, delta_jars
from delta_cdc.plan.size import SMALL, table_size
from delta_cdc.session import child_environment, delta_confs
from delta_cdc.training import make_archive

if TYPE_CHECKING:
    from collections.abc import Sequence

AT_MOST = 0.65
ROWS = 1_000
#: Rows of the tables of the second part.
SIZES = (10_000, 300_000, 1_000_000, 3_000_000)

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
    from delta_cdc.session import embedded_session
    spark = embedded_session("start", **told["ours"], **told["confs"])
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

    :param ours: arguments of ``embedded_session``; None is a session of the user's own
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
    jars = ",".join(map(str, delta_jars()))
    return [
        Way("plain", {**usual, "spark.jars": jars}),
        Way("class path", {**usual, "spark.driver.extraClassPath": class_path()}),
        Way("ours", ours={"quick_start": True}),
        Way("ours, heavy", ours={}),
    ]


def first(folder: Path, *, repeats: int, warm_ups: int) -> dict[str, Any]:
    """Measure the first part.

    :raises Disagreement: the tables hold different rows
    """
    found = ways()
    for turn in range(warm_ups + repeats):
        # Each way comes first, second, ... equally often: what runs beside changes slowly.
        for at in range(len(found)):
            way = found[(turn + at) % len(found)]
            way.run(_FIRST, table=str(folder / f"{turn}-{way.name}"), ROWS=ROWS)
        answers = {way.name: _rows(folder / f"{turn}-{way.name}") for way in found}
        if len(set(answers.values())) != 1:
            raise Disagreement(f"round {turn}: {answers}")
        print(f"round {turn}: {', '.join(f'{w.name} {w.seconds[-1]:.1f} s' for w in found)}", file=sys.stderr)
    return {way.name: way.figures(warm_ups) for way in found}


def sizes(folder: Path, rows: Sequence[int], *, repeats: int) -> list[dict[str, Any]]:
    """Measure the second part, cell by cell.

    :raises Disagreement: the targets hold different rows
    """
    return [cell for count in rows for cell in _sized(folder / str(count), count, repeats)]


def _sized(folder: Path, count: int, repeats: int) -> list[dict[str, Any]]:
    source = str(folder / "source")
    properties = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(source, _table(range(count), "row"), configuration=properties)
    cells = [{"job": "load", "rows": count, "size": _bytes(source)}, {"job": "apply", "rows": count}]
    for at, cell in enumerate(cells):
        kinds = [Way("quick", ours={"quick_start": True}), Way("heavy", ours={})]
        if at == 1:
            changed = _table(range(0, count, 100), "changed")
            merge = DeltaTable(source).merge(changed, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().execute()
            cell["size"] = cells[0]["size"] + changed.nbytes
        for turn in range(repeats):
            for way in kinds if turn % 2 else kinds[::-1]:
                target = folder / f"{way.name}-{turn}"
                if at == 1 and turn == 0 and way is kinds[-1]:
                    shutil.copytree(folder / "quick-0", folder / "loaded")
                if at == 1:
                    shutil.rmtree(target)
                    shutil.copytree(folder / "loaded", target)
                # A copy is another table to its seal: the path is part of it.
                way.run(_APPLY, source=source, target=str(target))
        answers = {way.name: _rows(folder / f"{way.name}-0") for way in kinds}
        if len(set(answers.values())) != 1:
            raise Disagreement(f"{count} rows, {cell['job']}: {answers}")
        cell.update({way.name: way.figures(0) for way in kinds})
        print(json.dumps(cell), file=sys.stderr, flush=True)
    shutil.rmtree(folder)
    return cells


def _table(ids: range, word: str) -> pa.Table:
    keys = list(ids)
    return pa.table(
        {
            "id": pa.array(keys, pa.int64()),
            "name": [f"{word} {key}" for key in keys],
            "amount": [key * 1.25 for key in keys],
            "city": [f"city {key % 1_000}" for key in keys],
            "code": pa.array([key * 2_654_435_761 % 1_000_003 for key in keys], pa.int64()),
        }
    )


def _bytes(table: str) -> int:
    from delta_cdc.log.table import run_sync

    size = run_sync(table_size(table, None))
    assert size is not None
    return size


def _rows(table: Path) -> str:
    query = QueryBuilder().register("t", DeltaTable(str(table)))
    text = "SELECT count(*) AS n, sum(id) AS i, count(DISTINCT name) AS d, max(name) AS m FROM t"
    return json.dumps(pa.table(query.execute(text).read_all()).to_pylist())


def markdown(figures: dict[str, Any]) -> str:
    """Return the tables."""
    found = figures["machine"]
    text = f"{found['cores']} cores, load before {found['load']}.\n\n"
    if figures.get("first"):
        text += _first_table(figures["first"])
    if figures.get("sizes"):
        text += "\n" + _sizes_table(figures["sizes"])
    return text


def _first_table(arms: dict[str, Any]) -> str:
    plain = arms["plain"]
    rows = []
    for name, one in arms.items():
        compared = ratio(one["seconds"], plain["seconds"])
        aim = f"≤ {AT_MOST}" + (", **missed**" if compared.value > AT_MOST else "") if name == "ours" else ""
        rows.append(
            (
                name,
                f"{statistics.median(one['session']):.1f}",
                f"{statistics.median(one['seconds']):.1f}",
                f"{min(one['seconds']):.1f} – {max(one['seconds']):.1f}",
                compared if name != "plain" else "",
                aim,
                f"{statistics.median(one['cpu']):.1f}",
                f"{ratio(one['cpu'], plain['cpu']).value:.2f}" if name != "plain" else "",
            )
        )
    heading = ["way", "to the session, s", "to the end of the MERGE, s", "least – most", ": plain (95 %)"]
    shown = markdown_table([*heading, "aim", "CPU, s", "CPU : plain"], rows)
    return f"{len(plain['seconds'])} round(s).\n\n{shown}"


def _sizes_table(cells: Sequence[dict[str, Any]]) -> str:
    rows = [
        (
            cell["job"],
            f"{cell['rows']:,}",
            f"{cell['size'] / (1 << 20):.1f}",
            f"{statistics.median(cell['quick']['seconds']):.1f}",
            f"{statistics.median(cell['heavy']['seconds']):.1f}",
            f"{ratio(cell['quick']['seconds'], cell['heavy']['seconds']).value:.2f}",
            f"{ratio(cell['quick']['cpu'], cell['heavy']['cpu']).value:.2f}",
        )
        for cell in cells
    ]
    heading = ["job", "rows", "MiB", "quick, s", "heavy, s", "quick : heavy", "CPU, quick : heavy"]
    return f"Small is what has at most {SMALL >> 20} MiB.\n\n{markdown_table(heading, rows)}"


def main() -> int:
    """Measure and print; 1 where the ways gave different rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = cache_home() / "benchmark-start"
    parser.add_argument("--small", action="store_true", help="one round, one size: a smoke run")
    parser.add_argument("--only", choices=("first", "sizes"), help="one part")
    parser.add_argument("--repeats", type=int, default=5, help="rounds that count, %(default)s")
    parser.add_argument("--warm-ups", type=int, default=1, help="rounds before them, %(default)s")
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="of the second part, %(default)s")
    parser.add_argument("--folder", type=Path, default=default, help="for the results, %(default)s")
    parser.add_argument("--markdown", type=Path, help="page for the table, between its marks if it has any")
    asked = parser.parse_args()
    if asked.small:
        asked.repeats, asked.warm_ups, asked.rows = 1, 0, [1_000]
    made = make_archive()
    print(made.reason, file=sys.stderr)
    figures: dict[str, Any] = {"machine": machine()}
    try:
        with tempfile.TemporaryDirectory() as folder:
            if asked.only != "sizes":
                figures["first"] = first(Path(folder), repeats=asked.repeats, warm_ups=asked.warm_ups)
            if asked.only != "first":
                figures["sizes"] = sizes(Path(folder), asked.rows, repeats=max(1, asked.repeats // 2))
    except Disagreement as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    text = markdown(figures)
    if not asked.small:
        place = asked.folder.resolve()
        place.mkdir(parents=True, exist_ok=True)
        (place / "results.json").write_text(json.dumps(figures, indent=1))
        published(asked.markdown or place / "results.md", text, program="start")
    print(text)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
