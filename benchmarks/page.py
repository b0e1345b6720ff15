"""How long the page's list takes in an Airflow with many pipelines.

It fills a metadata database: 1,000 pipelines in 314 DAGs, of which two DAGs (51 pipelines) have 1,000 runs
each, and all others 24. Each round starts a new process with Airflow's own API application. ``module`` is the
process's first request at all, for the page's script, which a browser needs before it can request the list.
``cold`` is the first request for the list, ``warm`` the median of the next ones. A request goes through all
of Airflow's middleware and rights, without a network.

    python benchmarks/page.py
    python benchmarks/page.py --against ../an-older-checkout    # both, in turn
    python benchmarks/page.py --database postgresql             # needs its server, psycopg2 and asyncpg
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from demo.places import PROJECT
from demo.postgres import Postgres
from tests.support import page_examples

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Milliseconds.
AIM = 200
_WARM = 10
_LIST = "/delta-cdc/api/pipelines"
#: Hours since the first run; the DAGs that have run all the time, and since when the others have.
_HOURS, _OTHERS_SINCE, _AT_ONCE = 1000, 976, 25


class Process:
    """Airflow's API application in a new process (:mod:`tests.support.page_process`).

    :param code: the checkout whose page it serves
    :param home: Airflow's home
    :param database: its metadata database
    """

    def __init__(self, code: Path, home: Path, database: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")}
        environment = {
            **inherited,
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__AUTH_MANAGER": "tests.support.page_rights.RightsAuthManager",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": database,
            "AIRFLOW__LOGGING__LOGGING_LEVEL": "WARNING",
            "PYTHONPATH": os.pathsep.join(
                [str(code), str(code / "spark_jobs"), str(PROJECT), *(path for path in sys.path if path)]
            ),
        }
        self._log = (home / "page.log").open("a")
        self._process = subprocess.Popen(
            [sys.executable, str(PROJECT / "tests" / "support" / "page_process.py")],
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(120)
        self._log.close()

    def ask(self, **command: Any) -> dict[str, Any]:
        """Send one command.

        :raises RuntimeError: the process failed
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        answer: dict[str, Any] = json.loads(line) if line else {"broken": "it has ended"}
        if "broken" in answer:
            raise RuntimeError(f"{answer['broken']}; see {self._log.name}")
        return answer

    def get(self, path: str = _LIST) -> dict[str, Any]:
        """Return the answer to one request, with its milliseconds of time and of CPU."""
        answer = self.ask(get={"path": path, "role": "viewer"})
        if answer["status"] != 200:
            raise RuntimeError(f"{path}: {answer['status']} {answer['body'][:500]}")
        return {**answer, "ms": answer["seconds"] * 1000, "cpu": answer["cpu"] * 1000}


def filled(process: Process, *, small: bool) -> None:
    """Write the DAGs and their runs, the oldest first."""
    few = {"groups": 1, "tables": 50, "alone": 1}
    many = {"groups": 2, "tables": 5, "alone": 5} if small else {"groups": 14, "tables": 50, "alone": 300}
    hours, others_since = (30, 10) if small else (_HOURS, _OTHERS_SINCE)
    process.ask(fill={"dags": page_examples.thousand(**many, runs=range(0))["dags"], "runs": []})
    for begin in range(0, hours, _AT_ONCE):
        numbers = range(begin, min(begin + _AT_ONCE, hours))
        for number in numbers:
            some = few if number < others_since else many
            made = page_examples.thousand(**some, runs=range(number, number + 1))["runs"]
            for run in made:
                run["ago"] += (hours - 1 - number) * 3600
            process.ask(fill={"dags": [], "runs": made})


def measured(
    codes: dict[str, Path], home: Path, database: str, repeats: int
) -> dict[str, dict[str, list[float]]]:
    """Return by code what each round took: cold and warm, time and CPU."""
    found: dict[str, dict[str, list[float]]] = {name: {} for name in codes}
    for number in range(repeats):
        names = list(codes)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with Process(codes[name], home, database) as process:
                module = process.get("/delta-cdc/page.js")
                cold = process.get()
                warm = [process.get() for _ in range(_WARM)]
            for key, value in {
                "module": module["ms"],
                "module CPU": module["cpu"],
                "cold": cold["ms"],
                "cold CPU": cold["cpu"],
                "warm": median(one["ms"] for one in warm),
                "warm CPU": median(one["cpu"] for one in warm),
                "bytes": len(cold["body"]),
                "queries": len(warm[-1]["sql"]),
            }.items():
                found[name].setdefault(key, []).append(value)
    return found


def lines(database: str, found: dict[str, dict[str, list[float]]]) -> Iterator[str]:
    """Yield a line of a table for each code."""
    for name, figures in found.items():
        cells = [
            f"{median(values):.0f} ({min(values):.0f} – {max(values):.0f})"
            for key, values in figures.items()
            if key not in ("bytes", "queries")
        ]
        sizes = f"{figures['bytes'][0] / 1024:.0f} | {figures['queries'][0]:.0f}"
        yield f"| {database} | {name} | {' | '.join(cells)} | {sizes} |"


def main() -> int:
    """Measure; 1 if a median is above the aim."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", type=Path, help="another checkout to measure in turn")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="a smoke run")
    parser.add_argument("--home", type=Path, help="keep the database here, and use it again")
    options = parser.parse_args()
    codes = {"this": PROJECT, **({"against": options.against.resolve()} if options.against else {})}
    with ExitStack() as stack:
        home = options.home or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-page-"))
        )
        home.mkdir(parents=True, exist_ok=True)
        database = f"sqlite:///{home / 'airflow.db'}"
        is_new = not (home / "airflow.db").exists()
        if options.database == "postgresql":
            server = stack.enter_context(Postgres())
            account = f"{server.user}:{server.password}"
            database = f"postgresql+psycopg2://{account}@{server.host}:{server.port}/{server.database}"
            is_new = True
        if is_new:
            with Process(PROJECT, home, database) as process:
                filled(process, small=options.small)
        found = measured(codes, home, database, 2 if options.small else options.repeats)
    print("milliseconds: median (least – most)\n")
    print("| database | code | module | module, CPU | cold | cold, CPU | warm | warm, CPU | KiB | queries |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    print("\n".join(lines(options.database, found)))
    worst = max(median(found["this"][key]) for key in ("cold", "warm"))
    return int(worst > AIM and not options.small)


if __name__ == "__main__":
    raise SystemExit(main())
