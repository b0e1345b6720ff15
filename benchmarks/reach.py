"""What a pipeline of five steps takes in Airflow: enable, wait, read, SCD type 1, SCD type 2.

    stock        one ``SparkSubmitOperator`` per step, each with a script as users write it: plain PySpark and
                 Delta, a driver in the worker
    stock-tuned  the same scripts with confs for small tables: two partitions of a shuffle, two of a snapshot
    embedded     ours: the feed's operator, the sensor, and a group whose tables share one application in the
                 worker
    connect      the same DAG, and a connection to a Spark Connect server that is warm

The aims are about stock, which is what most run; what is left of them against stock-tuned is shown beside.

One Airflow runs them all: scheduler, LocalExecutor, a process for each task. Before each run 10,000 rows of a
table of 100,000 change, the same ones for each arm. What is timed is the DAG run, from its start to its end
as Airflow has them; JVMs are counted by a file that each driver opens. After every round the targets of all
arms must hold the same rows. They take turns, in another order each round.

    python benchmarks/reach.py                       # four rounds: about half an hour
    python benchmarks/reach.py --small               # does it run?
    python benchmarks/reach.py --arms stock embedded # some of them
    python benchmarks/reach.py --markdown docs/contributing/benchmarks.md
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sqlite3
import statistics
import sys
import tempfile
from contextlib import ExitStack, closing
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from arms import agree, in_turns
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from report import circumstances, conclude, shared_arguments
from summary import aim, markdown_table, median, ratio, spread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from delta_cdc.core.spec import sha256
from delta_cdc.launch.environment import spark_home
from delta_cdc.launch.jars import delta_jars
from delta_cdc.warmup import make_archive
from demo.places import Places
from tests.support.connect_server import connect_server
from tests.system.parts import Parts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

    from report import Cells, Kept

HERE = Path(__file__).resolve().parent
STOCK = ("stock", "stock-tuned")
#: What is aimed at, as ratios of medians to the stock arm, and how many JVMs a run starts.
AIMS = {"stock": (None, 5), "stock-tuned": (None, 5), "embedded": (0.35, 1), "connect": (0.2, 0)}
ROWS, CHANGES = 100_000, 10_000
_CELL = "five steps"
_LIMIT = 900.0


class Lake:
    """The tables of one arm.

    :param folder: where they lie
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder = folder
        self.rows = rows
        self.round = 0
        self.is_stock = folder.name in STOCK

    def fill(self) -> None:
        """Make the source, and for a stock arm the targets and what it remembers."""
        first = _table(range(self.rows), 0)
        write_deltalake(str(self.folder / "source"), first)
        DeltaTable(str(self.folder / "source")).alter.set_table_properties(
            {"delta.enableChangeDataFeed": "true"}
        )
        if not self.is_stock:
            return
        write_deltalake(str(self.folder / "current"), first)
        opened = first.append_column("start", pa.array([0] * self.rows, pa.int64()))
        history = opened.append_column("end", pa.nulls(self.rows, pa.int64()))
        write_deltalake(str(self.folder / "history"), history)
        (self.folder / "state.json").write_text('{"applied": 1}')

    def change(self, number: int) -> None:
        """Change rows of the source: eight in ten are new values, one is a new row, one goes."""
        self.round += 1
        dice = random.Random(self.round)
        source = str(self.folder / "source")
        table = DeltaTable(source)
        known = self.rows + (self.round - 1) * (number // 10)
        touched = [*dice.sample(range(known), number * 8 // 10), *range(known, known + number // 10)]
        merge = table.merge(_table(touched, self.round), "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        # A script that keeps the last change of each key would know nothing of a value that was gone again.
        others = sorted(set(range(known)) - set(touched))
        gone = ", ".join(map(str, dice.sample(others, number // 10)))
        DeltaTable(source).delete(f"id IN ({gone})")

    def answer(self) -> str:
        """Return what the targets hold; versions are each arm's own: of starts their order counts."""
        start, end = ("start", "end") if self.is_stock else ("__START_AT", "__END_AT")
        current = _read(self.folder / "current", "SELECT id, name, amount FROM t ORDER BY 1")
        history = _read(
            self.folder / "history",
            f'SELECT id, name, amount, "{end}" IS NULL, '
            f'row_number() OVER (PARTITION BY id ORDER BY "{start}") FROM t ORDER BY 1, 5, 2',
        )
        return sha256(current + history)


def _table(ids: Any, version: int) -> pa.Table:
    keys = list(ids)
    names = [f"row {key} of {version}" for key in keys]
    amounts = [key * 0.25 + version for key in keys]
    return pa.table({"id": pa.array(keys, pa.int64()), "name": names, "amount": amounts})


def _read(table: Path, query: str) -> str:
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute(query).read_all()
    return json.dumps([list(row.values()) for row in pa.table(found).to_pylist()])


class Runner:
    """One Airflow, and how many JVMs its tasks have started."""

    def __init__(self, folder: Path, *, idle_sleep: float, server_port: int) -> None:
        self._jvms = folder / "jvms"
        dags = folder / "dags"
        for made in (self._jvms, dags):
            made.mkdir()
        shutil.copy(HERE / "reach_dags.py", dags)
        self.places = Places(folder)
        self.parts = Parts(
            self.places,
            dags,
            AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME=str(idle_sleep),
            AIRFLOW_CONN_SPARK_LOCAL=json.dumps({"conn_type": "spark", "host": "local[*]"}),
            AIRFLOW_CONN_SPARK_SERVER=json.dumps(
                {"conn_type": "spark_connect", "host": "localhost", "port": server_port}
            ),
            REACH_FOLDER=str(folder / "lake"),
            REACH_STEP=str(HERE / "reach_step.py"),
            REACH_JARS=",".join(map(str, delta_jars().jars())),
            # As it is without the variable: the demo's has its own settings in it.
            SPARK_CONF_DIR=str(spark_home() / "conf"),
            # Each driver opens a file, and writes next to nothing to it.
            SPARK_SUBMIT_OPTS=f"-Xlog:gc+init:file={self._jvms}/%p",
            PYTHONUNBUFFERED="1",
        )

    def start(self, dags: Iterable[str]) -> None:
        """Start Airflow, and wait until it knows these DAGs."""
        wanted = set(dags)
        self.parts.start()
        self.parts.until(lambda: wanted <= set(self.parts.dags()), "the DAGs do not appear", _LIMIT)

    def run(self, dag: str) -> tuple[float, int, dict[str, float]]:
        """Run a DAG once; return its seconds, the JVMs that started, and the seconds of each task.

        :raises AssertionError: the run failed
        """
        jvms, before = self.jvms(), len(self.parts.runs(dag))
        self.parts.cli("dags", "trigger", dag)
        self.parts.until(
            lambda: len(found := self.parts.runs(dag)) > before and found[-1] in ("success", "failed"),
            f"{dag} does not end",
            _LIMIT,
        )
        if self.parts.runs(dag)[-1] != "success":
            raise AssertionError(f"{dag} failed: {self.failure(dag)}")
        seconds, tasks = self._seconds(dag)
        return seconds, self.jvms() - jvms, tasks

    def jvms(self) -> int:
        """Return how many drivers have started so far."""
        return sum(1 for _ in self._jvms.iterdir())

    def failure(self, dag: str) -> str:
        """Return the ends of the newest logs of a DAG."""
        logs = sorted(
            (self.places.airflow_home / "logs").rglob("*.log"), key=lambda path: path.stat().st_mtime
        )
        return "\n".join(
            path.read_text()[-3_000:] for path in [p for p in logs if f"dag_id={dag}/" in str(p)][-2:]
        )

    def _seconds(self, dag: str) -> tuple[float, dict[str, float]]:
        file = self.places.airflow_home / "airflow.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as database:
            run, *ends = database.execute(
                "SELECT run_id, start_date, end_date FROM dag_run WHERE dag_id = ? ORDER BY id DESC LIMIT 1",
                (dag,),
            ).fetchone()
            tasks = database.execute(
                "SELECT task_id, min(start_date), max(end_date) FROM task_instance WHERE dag_id = ? AND "
                "run_id = ? GROUP BY task_id",
                (dag, run),
            ).fetchall()
        return _between(*ends), {task: round(_between(*ends), 2) for task, *ends in tasks if all(ends)}


def _between(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def measure(
    kept: Kept,
    folder: Path,
    arms: Sequence[str],
    *,
    repeats: int,
    warm_ups: int,
    rows: int,
    changes: int,
    idle: float,
) -> None:
    """Run arms in turns; what there is is kept after every round.

    :param arms: names of :data:`AIMS`
    :param idle: seconds that Airflow's scheduler sleeps with nothing to do
    :raises Disagreement: the arms' targets hold different rows
    """
    lakes = {name: Lake(folder / "lake" / name, rows) for name in arms}
    for lake in lakes.values():
        lake.folder.mkdir(parents=True)
        lake.fill()
    found: dict[str, Any] = {name: {"seconds": [], "jvms": [], "tasks": []} for name in arms}
    with ExitStack() as stack:
        port = _server(stack, folder / "server") if "connect" in arms else 0
        runner = Runner(folder, idle_sleep=idle, server_port=port)
        stack.callback(runner.parts.stop)
        runner.start(arms)
        for turn in range(-warm_ups, repeats):
            _round(runner, lakes, found, turn, changes)
            if turn >= 0:
                kept.add(_CELL, {"rows": rows, "changes": changes, "idle": idle, "arms": found})


def _server(stack: ExitStack, folder: Path) -> int:
    folder.mkdir()
    codegen = {"spark__sql__codegen__wholeStage": "true", "spark__sql__codegen__factoryMode": "FALLBACK"}
    return stack.enter_context(connect_server(folder, **codegen)).port


def _round(runner: Runner, lakes: dict[str, Lake], found: dict[str, Any], turn: int, changes: int) -> None:
    for name in in_turns(list(lakes), turn):
        lake = lakes[name]
        # The first round loads what a stock arm has from the start.
        if not lake.round and not lake.is_stock:
            runner.run(name)
        lake.change(changes)
        seconds, jvms, tasks = runner.run(name)
        print(f"round {turn}: {name} {seconds:.1f} s, {jvms} JVMs, {tasks}", file=sys.stderr, flush=True)
        if turn >= 0:
            arm = found[name]
            arm["seconds"].append(round(seconds, 2))
            arm["jvms"].append(jvms)
            arm["tasks"].append(tasks)
    agree(f"round {turn}", {name: lake.answer() for name, lake in lakes.items()})


def markdown(cells: Cells) -> str:
    """Return the table."""
    cell = cells[_CELL]
    names, rows = [name for name in AIMS if name in cell["arms"]], []
    for at, name in enumerate(names):
        arm, (most, jvms) = cell["arms"][name], AIMS[name]
        # Of what is tuned to what is not, and of ours to both.
        compared = [
            ratio(arm["seconds"], cell["arms"][other]["seconds"]) if other in names[:at] else None
            for other in STOCK
        ]
        tasks = {task: statistics.median(one[task] for one in arm["tasks"]) for task in arm["tasks"][0]}
        rows.append(
            (
                name,
                median(arm["seconds"]),
                spread(arm["seconds"]),
                compared[0] or "",
                aim(most, compared[0].value) if compared[0] else "",
                compared[1] or "",
                f"{', '.join(map(str, sorted(set(arm['jvms']))))} (aim {jvms})",
                ", ".join(f"{task} {seconds:.1f}" for task, seconds in tasks.items()),
            )
        )
    heading = ["arm", "a run, s", "least – most", ": stock (95 %)", "aim", ": stock-tuned (95 %)"]
    return (
        f"{circumstances([cell])}{cell['changes']:,} of {cell['rows']:,} rows change; the scheduler sleeps "
        f"{cell['idle']} s with nothing to do.\n\n"
        + markdown_table([*heading, "JVMs started", "tasks, s"], rows)
    )


def main() -> int:
    """Measure and print; 1 where the arms gave different rows."""
    parser = shared_arguments("reach", __doc__, small="few rows, one round", repeats=3)
    parser.add_argument("--arms", nargs="+", choices=list(AIMS), default=list(AIMS), help="which, all")
    parser.add_argument(
        "--idle", type=float, default=1.0, help="the scheduler's sleep, s; Airflow's default, %(default)s"
    )
    asked = parser.parse_args()
    if asked.small:
        asked.repeats, asked.warm_ups = 1, 0
    print(make_archive().reason, file=sys.stderr)
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    # Airflow and the server are processes of their own: whoever ends this one ends them, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return conclude(asked, partial(_measured, asked), markdown)


def _measured(asked: argparse.Namespace, kept: Kept) -> None:
    rows, changes = (2_000, 200) if asked.small else (ROWS, CHANGES)
    with tempfile.TemporaryDirectory() as folder:
        measure(
            kept,
            Path(folder),
            [name for name in AIMS if name in asked.arms],
            repeats=asked.repeats,
            warm_ups=asked.warm_ups,
            rows=rows,
            changes=changes,
            idle=asked.idle,
        )


if __name__ == "__main__":
    raise SystemExit(main())
