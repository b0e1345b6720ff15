"""What a user waits for in Airflow: from a commit of the source to the commit of the target, stage by stage.

    worker    a DAG run is started by the API; Spark starts in the worker, for this run
    connect   the same, and the Spark of a server that is warm
    watcher   as in the worker, but the commit itself starts the run, by a watched asset

Each revision has an Airflow of its own: scheduler, LocalExecutor, API server, triggerer, DAG processor. While
one works, the others are stopped (SIGSTOP). Before each run, one commit changes some rows of the source, the
same ones for each arm. After each round, the targets of all arms must be what their sources are.

Nothing is measured inside of the processes: Airflow's database has the times of runs and tasks, the task's
log those of its lines, the task's result the seconds of the engine's stages, and the logs of both tables the
times of their commits. CPU seconds are those of all processes of an Airflow, also of those that have ended,
as ``/proc`` counts them.

    python benchmarks/commit_to_commit.py                     # this revision: a quarter of an hour
    python benchmarks/commit_to_commit.py --against HEAD~5    # beside another one, in turns
    python benchmarks/commit_to_commit.py --small             # does it run?
    python benchmarks/commit_to_commit.py --markdown docs/contributing/benchmarks.md
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack, closing, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyarrow as pa
from arms import Disagreement, in_turns
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from report import circumstances, conclude, shared_arguments
from summary import aim, markdown_table, median, ratio, spread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from delta_cdc.launch.environment import spark_home
from demo.places import Places
from tests.support.connect_server import connect_server
from tests.system.parts import Parts

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from report import Cells, Kept

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parent
WAYS = ("worker", "connect", "watcher")
#: The aim for the CPU seconds of a run in the worker, as a ratio to the other revision.
AT_MOST = {"worker": 0.7}
ROWS, CHANGES = 10_000, 150
#: The stages of a run, in their order, and what they are from and to.
STAGES = {
    "notice": "source's commit – run is queued (watcher: looks every second)",
    "schedule": "– task is queued",
    "task": "– task runs (process, Airflow's imports)",
    "import": "– plan begins (DAG file, the provider's imports)",
    "plan": "– plan is made",
    "start": "– job begins (start of Spark; on a server: session), and Spark's end",
    "rows": "– MERGE begins (the first query: rows are computed and counted)",
    "merge": "– target's commit, and what follows it in the job",
    "confirm": "– confirmed by the target's log",
    "publish": "– task has ended (XComs, asset events)",
}
_NEW, _OLD = "this", "other"
_CELL = "commit to commit"
_LIMIT = 300.0
#: Seconds after a run, in which its processes end, and after which an Airflow that was stopped works again.
_SETTLE = 2.0


class Lake:
    """The tables of one way.

    :param folder: where they lie
    """

    def __init__(self, folder: Path, rows: int) -> None:
        self.source, self.target = folder / "source", folder / "target"
        self._rows = rows
        self._round = 0
        write_deltalake(
            str(self.source),
            _table(range(rows), 0),
            configuration={"delta.enableChangeDataFeed": "true"},
        )

    def change(self, number: int) -> float:
        """Change rows of the source in one commit: nine in ten are new values, the others new rows.

        :return: when the commit was made
        """
        self._round += 1
        first = self._rows - number * 9 // 10 + (self._round - 1) * (number - number * 9 // 10)
        merge = DeltaTable(str(self.source)).merge(
            _table(range(first, first + number), self._round),
            "t.id = s.id",
            source_alias="s",
            target_alias="t",
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return committed(self.source)

    def check(self) -> None:
        """Compare both tables.

        :raises Disagreement: they have different rows
        """
        if _read(self.source) != _read(self.target):
            raise Disagreement(f"{self.target} is not what its source is")


def _table(ids: Any, version: int) -> pa.Table:
    keys = list(ids)
    names = [f"row {key} of {version}" for key in keys]
    return pa.table({"id": pa.array(keys, pa.int64()), "name": names, "amount": [key * 0.25 for key in keys]})


def _read(table: Path) -> str:
    query = QueryBuilder().register("t", DeltaTable(str(table)))
    found = pa.table(query.execute("SELECT id, name, amount FROM t ORDER BY id").read_all())
    return json.dumps(found.to_pylist())


def committed(table: Path) -> float:
    """Return when the newest commit of a table was made."""
    return max((table / "_delta_log").glob("*.json")).stat().st_mtime


class Airflow:
    """One revision's Airflow.

    :param code: the folder of the revision
    :param port: of the Spark Connect server
    """

    def __init__(self, code: Path, folder: Path, *, port: int) -> None:
        dags = folder / "dags"
        dags.mkdir(parents=True)
        shutil.copy(HERE / "commit_dags.py", dags)
        self.lake = folder / "lake"
        self.places = Places(folder)
        self.parts = Parts(
            self.places,
            dags,
            PYTHONPATH=os.pathsep.join(map(str, (code, code / "spark_jobs"))),
            # ``python -m`` would look in the current folder first, which is another revision.
            PYTHONSAFEPATH="1",
            AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS="True",
            AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL="3600",
            # It is stopped while another revision works.
            AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD="600",
            AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT="600",
            AIRFLOW_CONN_SPARK_SERVER=json.dumps(
                {"conn_type": "spark_connect", "host": "localhost", "port": port}
            ),
            COMMIT_FOLDER=str(self.lake),
            # As it is without the variable: the demo's has its own settings in it, and so no archive.
            SPARK_CONF_DIR=str(spark_home() / "conf"),
            SPARK_SUBMIT_OPTS="",
        )
        self._url = self.parts.environment["AIRFLOW__API__BASE_URL"]
        self._token = ""

    def start(self) -> None:
        """Start its parts, and wait until it knows the DAGs."""
        self.parts.start()
        self.parts.until(lambda: set(WAYS) <= set(self.parts.dags()), "the DAGs do not appear", _LIMIT)
        self.parts.until(self._answers, "the API does not answer", _LIMIT)

    @contextmanager
    def working(self) -> Iterator[None]:
        """Let it work in the block, and stop it at the end."""
        for part in self.parts.every:
            part.thaw()
        time.sleep(_SETTLE)
        try:
            yield
        finally:
            for part in self.parts.every:
                part.freeze()

    def run(self, way: str, change: Any) -> dict[str, Any]:
        """Change the source, and wait for the end of the run that applies the changes.

        :param change: makes the commit, and returns its time; None where there is one already
        :return: ``seconds`` from commit to commit; ``stages``; ``cpu`` of the tasks and of each part
        :raises AssertionError: the run failed
        """
        before, cpu = len(self.parts.runs(way)), self.cpu()
        made = change()
        if way != "watcher":
            path = f"/api/v2/dags/{way}/dagRuns"
            self._http(path, {"logical_date": None}, Authorization=f"Bearer {self._token}")
        self.parts.until(
            lambda: len(found := self.parts.runs(way)) > before and found[-1] in ("success", "failed"),
            f"{way} does not end",
            _LIMIT,
        )
        time.sleep(_SETTLE)
        used = {name: round(value - cpu[name], 2) for name, value in self.cpu().items()}
        if self.parts.runs(way)[-1] != "success":
            raise AssertionError(f"{way} failed: {self._log(way)[-3_000:]}")
        done = committed(self.lake / way / "target")
        return {"seconds": round(done - made, 2), "cpu": used, "stages": self._stages(way, made)}

    def cpu(self) -> dict[str, float]:
        """Return the CPU seconds of each part so far; those of tasks (children of the scheduler) apart."""
        scheduler, *others = self.parts.every
        process, *children = scheduler.processes()
        own = process.cpu_times()
        found = {
            "scheduler": own.user + own.system,
            "tasks": own.children_user + own.children_system + _cpu(children),
        }
        names = ("API server", "DAG processor", "triggerer")
        return found | {name: _cpu(part.processes()) for name, part in zip(names, others, strict=True)}

    def _stages(self, way: str, made: float) -> dict[str, float]:
        """Return the seconds of each stage of the newest run."""
        file = self.places.airflow_home / "airflow.db"
        with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True, timeout=30)) as database:
            run_id, *times = database.execute(
                "SELECT r.run_id, r.queued_at, t.queued_dttm, t.start_date, t.end_date FROM dag_run r JOIN "
                "task_instance t ON t.dag_id = r.dag_id AND t.run_id = r.run_id WHERE r.dag_id = ? "
                "ORDER BY r.id DESC LIMIT 1",
                (way,),
            ).fetchone()
            (value,) = database.execute(
                "SELECT value FROM xcom WHERE dag_id = ? AND run_id = ? AND key = 'return_value'",
                (way, run_id),
            ).fetchone()
        published = json.loads(value)
        published = json.loads(published) if isinstance(published, str) else published
        return stages(made, [_moment(one) for one in times], self._log(way), published["seconds"])

    def _log(self, way: str) -> str:
        logs = (self.places.airflow_home / "logs").rglob("*.log")
        newest = max(
            (one for one in logs if f"dag_id={way}/" in str(one)), key=lambda one: one.stat().st_mtime
        )
        return newest.read_text()

    def _answers(self) -> bool:
        try:
            self._token = self._http("/auth/token")["access_token"]
        except OSError:
            return False
        return True

    def _http(self, path: str, body: Any = None, **headers: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self._url + path, data, headers={"Content-Type": "application/json", **headers}
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)


def stages(made: float, times: Sequence[float], log: str, seconds: dict[str, float]) -> dict[str, float]:
    """Return the seconds of the stages of a run.

    :param made: when the source's commit was made
    :param times: when the run was queued; when the task was queued, started and ended
    :param log: the task's log, a JSON object per line
    :param seconds: what the task published about its stages
    """
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]

    def when(*words: str) -> float:
        return next(
            _moment(line["timestamp"]) for line in lines if all(word in line["event"] for word in words)
        )

    queued, task_queued, started, ended = times
    planned = when("Planned:")
    begun, merging, merged = when("preparing the"), when("committing the"), when(": committed version")
    # The work that is left after the line on the commit belongs to the MERGE: the job's end.
    merge = max(merged - merging, seconds["work"] - (merging - begun))
    known = {
        "notice": queued - made,
        "schedule": task_queued - queued,
        "task": started - task_queued,
        "import": planned - seconds["plan"] - started,
        "plan": seconds["plan"],
        "start": seconds["start"],
        "rows": seconds["work"] - merge,
        "merge": merge,
        "confirm": seconds["confirm"],
    }
    left = ended - started - sum(known[name] for name in list(STAGES)[3:-1])
    return {name: round(value, 3) for name, value in {**known, "publish": left}.items()}


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    # Airflow's database on SQLite has UTC without a zone.
    return moment.timestamp() if moment.tzinfo else datetime.fromisoformat(f"{text}+00:00").timestamp()


def _cpu(processes: Sequence[psutil.Process]) -> float:
    found = 0.0
    for process in processes:
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        found += times.user + times.system + times.children_user + times.children_system
    return found


def measure(
    kept: Kept,
    folder: Path,
    codes: dict[str, Path],
    ways: Sequence[str],
    *,
    repeats: int,
    warm_ups: int,
    rows: int,
    changes: int,
) -> None:
    """Run all ways of all revisions in turns; what there is is kept after every round.

    :param codes: the folder of each revision, by its name
    :raises Disagreement: a target is not what its source is
    """
    with ExitStack() as stack:
        place = folder / "server"
        place.mkdir()
        codegen = {"spark__sql__codegen__wholeStage": "true", "spark__sql__codegen__factoryMode": "FALLBACK"}
        server = stack.enter_context(connect_server(place, **codegen))
        assert server.process is not None
        spark = psutil.Process(server.process.pid)
        airflows = {name: Airflow(code, folder / name, port=server.port) for name, code in codes.items()}
        lakes: dict[tuple[str, str], Lake] = {}
        found: dict[str, Any] = {}
        for name, airflow in airflows.items():
            stack.callback(airflow.parts.stop)
            airflow.start()
            # The first run of each loads its target.
            for way in ways:

                def filled(airflow: Airflow = airflow, key: tuple[str, str] = (name, way)) -> float:
                    lakes[key] = Lake(airflow.lake / key[1], rows)
                    return committed(lakes[key].source)

                airflow.run(way, filled)
                found[f"{way}, {name}"] = {"seconds": [], "cpu": [], "stages": [], "parts": []}
            with airflow.working():
                pass
        for turn in range(-warm_ups, repeats):
            for name, way in in_turns(list(lakes), turn + warm_ups):
                with airflows[name].working():
                    before = _cpu([spark])
                    done = airflows[name].run(way, partial(lakes[name, way].change, changes))
                    served = round(_cpu([spark]) - before, 2)
                lakes[name, way].check()
                print(f"round {turn}: {way}, {name}: {done}, server {served}", file=sys.stderr, flush=True)
                if turn >= 0:
                    arm = found[f"{way}, {name}"]
                    arm["seconds"].append(done["seconds"])
                    arm["cpu"].append(round(done["cpu"]["tasks"] + served, 2))
                    arm["parts"].append({**done["cpu"], "Spark Connect server": served})
                    arm["stages"].append(done["stages"])
            if turn >= 0:
                kept.add(_CELL, {"rows": rows, "changes": changes, "arms": found})


def markdown(cells: Cells) -> str:
    """Return the tables: times and ratios, stages, and CPU seconds of the parts."""
    cell = cells[_CELL]
    arms = cell["arms"]
    heading = ["way", "commit to commit, s", "least – most", "CPU of the task and Spark, s"]
    others = any(name.endswith(_OLD) for name in arms)
    more = ["the other revision: s", "CPU, s", "this : other, time (95 %)", "this : other, CPU (95 %)", "aim"]
    rows = []
    ours = {name.partition(",")[0]: arm for name, arm in arms.items() if name.endswith(_NEW)}
    for way, arm in ours.items():
        row: list[object] = [way, median(arm["seconds"]), spread(arm["seconds"]), median(arm["cpu"])]
        if others:
            other = arms[f"{way}, {_OLD}"]
            cpu = ratio(arm["cpu"], other["cpu"])
            row += [median(other["seconds"]), median(other["cpu"]), ratio(arm["seconds"], other["seconds"])]
            row += [cpu, aim(AT_MOST.get(way), cpu.value)]
        rows.append(row)
    names = list(ours)
    by_stage = [
        (name, about, *(_share(ours[way]["stages"], name) for way in names)) for name, about in STAGES.items()
    ]
    parts = [
        (part, *(_figure(ours[way]["parts"], part) for way in names))
        for part in next(iter(ours.values()))["parts"][0]
    ]
    return (
        f"{circumstances([cell])}{cell['changes']:,} of {cell['rows']:,} rows change.\n\n"
        + markdown_table(heading + (more if others else []), rows)
        + "\n"
        + markdown_table(["stage", "from – to", *(f"{way}, s" for way in names)], by_stage)
        + "\n"
        + markdown_table(["CPU seconds of", *names], parts)
    )


def _figure(figures: Sequence[dict[str, float]], name: str) -> str:
    return f"{statistics.median(one[name] for one in figures):.2f}"


def _share(figures: Sequence[dict[str, float]], name: str) -> str:
    """Return the median of a stage, and its share of all stages."""
    share = statistics.median(one[name] / sum(one.values()) for one in figures)
    return f"{_figure(figures, name)} ({share:.0%})"


def main() -> int:
    """Measure and print; 1 where a target was wrong."""
    parser = shared_arguments("commit_to_commit", __doc__, small="one round of this revision")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="which, all")
    parser.add_argument("--against", metavar="REVISION", help="of git, to compare with")
    arguments = parser.parse_args()
    if arguments.small:
        arguments.repeats, arguments.warm_ups = 1, 0
    os.environ.pop("SPARK_SUBMIT_OPTS", None)
    # Airflow and the server are processes of their own: whoever ends this one ends them, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    return conclude(arguments, partial(_measured, arguments), markdown)


def _measured(arguments: argparse.Namespace, kept: Kept) -> None:
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        folder = Path(made)
        codes = {_NEW: PROJECT}
        if arguments.against:
            codes[_OLD] = stack.enter_context(_revision(arguments.against, folder / "code"))
        for code in codes.values():
            environment = {**os.environ, "PYTHONPATH": str(code / "spark_jobs")}
            subprocess.run(
                [sys.executable, "-c", "from delta_cdc.warmup import make_archive; make_archive()"],
                env=environment,
                check=True,
            )
        measure(
            kept,
            folder,
            codes,
            [way for way in WAYS if way in arguments.ways],
            repeats=arguments.repeats,
            warm_ups=arguments.warm_ups,
            rows=ROWS,
            changes=CHANGES,
        )


@contextmanager
def _revision(name: str, folder: Path) -> Iterator[Path]:
    """Check a revision out, with the JAR of the log stores, which git does not have."""
    git = ["git", "-C", str(PROJECT), "worktree"]
    subprocess.run([*git, "add", "--quiet", "--detach", str(folder), name], check=True)
    try:
        for jar in (PROJECT / "spark_jobs/delta_cdc/launch").glob("*.jar"):
            shutil.copy2(jar, folder / "spark_jobs/delta_cdc/launch")
        yield folder
    finally:
        subprocess.run([*git, "remove", "--force", str(folder)], check=True)


if __name__ == "__main__":
    raise SystemExit(main())
