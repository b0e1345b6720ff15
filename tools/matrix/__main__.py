"""Run the cases of every supported version, each in an environment of its own: ``make matrix``.

``python -m tools.matrix [--only TEXT] [--write]`` prints a line per environment and case. Exit code 1: a case
failed. ``--write`` also writes what ran into ``docs/versions.md``; other columns stay as they are.
The environments lie in the cache folder, below ``matrix``, and are made once.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.spark_versions import PAIRS, Pair
from delta_cdc.launch.jars import cache_home

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "versions.md"
#: Releases of Airflow, the newest first.
AIRFLOWS = ("3.3.2", "3.2.2", "3.1.8")
_SPARK_PROVIDER = "apache-airflow-providers-apache-spark"
#: The supported releases of Python: the environments take turns.
_PYTHONS = ("3.12", "3.13", "3.11")
_FAILS = "**fails**"
_MARK = "<!-- {} {} -->"


@dataclass(frozen=True)
class Environment:
    """One column of a table.

    :param kind: the table
    :param title: the column
    :param python: release of Python
    :param requirements: what to install
    :param alone: what to install without its dependencies
    """

    kind: str
    title: str
    python: str
    requirements: tuple[str, ...]
    alone: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """Return where the environment lies."""
        return cache_home() / "matrix" / re.sub(r"[^\w.]+", "-", self.title).lower()

    @property
    def interpreter(self) -> Path:
        """Return its Python."""
        return self.folder / "bin" / "python"

    def make(self) -> None:
        """Install the requirements, unless that is done.

        :raises subprocess.CalledProcessError: they cannot be installed
        """
        stamp = self.folder / "requirements.txt"
        text = "".join(f"{one}\n" for one in (f"# Python {self.python}", *self.requirements, *self.alone))
        if stamp.is_file() and stamp.read_text() == text:
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        python = _interpreter(self.python)
        _uv("venv", "--quiet", "--python", python, str(self.folder))
        install = ("pip", "install", "--quiet", "--python", str(self.interpreter))
        _uv(*install, *self.requirements)
        if self.alone:
            _uv(*install, "--no-deps", *self.alone)
        stamp.write_text(text)

    def version(self) -> str:
        """Return the version of Python in the environment."""
        code = "import platform; print(platform.python_version())"
        return subprocess.check_output([str(self.interpreter), "-c", code], text=True).strip()

    def run(self, log: Path) -> dict[str, str]:
        """Run the cases; return the cell of the table by the title of each case.

        :param log: receives what the process prints
        """
        with tempfile.TemporaryDirectory(prefix="delta-cdc-matrix-") as folder:
            variables = _variables(Path(folder))
            if self.kind == "airflow":
                list(_lines([str(self.interpreter), "-m", "airflow", "db", "migrate"], variables, log))
            work = Path(folder) / "work"
            work.mkdir()
            command = [str(self.interpreter), "-m", f"tools.matrix.{self.kind}_cases", str(work)]
            cells = {}
            for line in _lines(command, variables, log):
                if line.startswith('{"case"'):
                    answer = json.loads(line)
                    cells[answer["case"]] = answer["cell"]
                    state = f"{answer['cell']} {answer['error'][:300]}"
                    print(f"  {answer['case']:45} {answer['seconds']:6.1f} s  {state}", flush=True)
        return cells


def _uv(*arguments: str) -> None:
    """Run uv with the cache of ``make setup``: the one in the home folder would grow with each PySpark."""
    variables = {**os.environ, "UV_CACHE_DIR": str(ROOT / ".cache" / "uv")}
    subprocess.run([Path(sys.executable).with_name("uv"), *arguments], env=variables, check=True)


def _interpreter(release: str) -> str:
    """Return a Python of a release, on PATH or of pyenv; without one, the Python that runs this program."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    found = [shutil.which(f"python{release}"), *map(str, sorted(pyenv.glob(f"{release}.*/bin/python3")))]
    for candidate in filter(None, found):
        # A python3.x on PATH may be a shim that only complains.
        if subprocess.run([candidate, "-c", ""], stderr=subprocess.DEVNULL, check=False).returncode == 0:
            return candidate
    print(f"  no Python {release} here: {sys.version.split()[0]} instead", flush=True)
    return sys.executable


def environments() -> list[Environment]:
    """Return all environments: one per pair of Spark and Delta, one per release of Airflow."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    spark_free = [
        one for one in dependencies if not one.startswith(("apache-airflow", "pyspark", "delta-spark"))
    ]
    pythons = itertools.cycle(_PYTHONS)
    pairs: list[Environment] = []
    for pair in PAIRS:
        delta, python = f"delta-spark=={pair.delta}", next(pythons)
        title = "Spark {}, Delta " + pair.delta
        packages = (*_pyspark(pair), delta, *spark_free)
        pairs.append(Environment("spark", title.format(pair.spark), python, packages))
        if pair.newer:
            # delta-spark refuses a Spark that came after it.
            packages = (f"pyspark[connect]=={pair.newer}", *spark_free)
            pairs.append(Environment("spark", title.format(pair.newer), python, packages, alone=(delta,)))
    provider = next(one for one in dependencies if one.startswith(_SPARK_PROVIDER))
    # Airflow 3.2.2 allows FastAPI 0.137, and fails with it when a task starts.
    # Airflow's own constraint files have an older one.
    of_airflow = (
        *(provider, *_pyspark(PAIRS[0]), f"delta-spark=={PAIRS[0].delta}"),
        *(*spark_free, "fastapi<0.137"),
    )
    return pairs + [
        Environment(
            "airflow", f"Airflow {release}", next(pythons), (f"apache-airflow=={release}", *of_airflow)
        )
        for release in AIRFLOWS
    ]


def _pyspark(pair: Pair) -> tuple[str, ...]:
    return (f"pyspark=={pair.spark}", f"pyspark-client=={pair.spark}")


def _variables(folder: Path) -> dict[str, str]:
    """Return the variables of a process that runs cases; an Airflow has its home in ``folder``."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "_AIRFLOW"))
    }
    home = folder / "airflow"
    home.mkdir()
    return {
        **inherited,
        "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "spark_jobs"))),
        "DELTA_CDC_HOME": str(cache_home()),
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__USAGE_DATA_COLLECTION__ENABLED": "False",
        "PYTHONWARNINGS": "ignore",
    }


def _lines(command: list[str], variables: dict[str, str], log: Path) -> Iterator[str]:
    """Run a process, and yield each line of its standard output as it comes."""
    with log.open("a") as sink:
        process = subprocess.Popen(
            command, env=variables, cwd=ROOT, stdout=subprocess.PIPE, stderr=sink, text=True
        )
        assert process.stdout is not None
        for line in process.stdout:
            sink.write(line)
            yield line
        if process.wait():
            error = f"exit code {process.returncode}"
            answer = {"case": "the process ends by itself", "cell": _FAILS, "error": error, "seconds": 0.0}
            yield json.dumps(answer)


# -- the page ---------------------------------------------------------------------------------------
def written(page: str, kind: str, results: dict[str, dict[str, str]]) -> str:
    """Return a page with a table that has the results of some columns; the others stay as they are.

    :param kind: the table, which stands between two marks
    :param results: the cells of each column by their titles
    """
    start, end = (_MARK.format(kind, word) for word in ("starts", "ends"))
    before, _, rest = page.partition(start)
    old, _, after = rest.partition(end)
    columns = {**_columns(old), **results}
    order = [one.title for one in environments() if one.kind == kind and one.title in columns]
    cases = list(dict.fromkeys(case for title in order for case in columns[title]))
    rows = [
        ["", *order],
        ["---"] * (len(order) + 1),
        *([case, *(columns[title].get(case, "") for title in order)] for case in cases),
    ]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    return f"{before}{start}\n\n{table}\n\n{end}{after}"


def _columns(table: str) -> dict[str, dict[str, str]]:
    """Return the cells of a table by its columns and cases."""
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines() if "|" in line]
    if not rows:
        return {}
    return {title: {row[0]: row[at] for row in rows[2:]} for at, title in enumerate(rows[0]) if at}


def main() -> int:
    """Run the environments; return the exit code."""
    parser = argparse.ArgumentParser(prog="matrix", description=__doc__)
    parser.add_argument("--only", action="append", help="environments whose title contains this text")
    parser.add_argument("--write", action="store_true", help="write the tables of docs/versions.md")
    given = parser.parse_args()
    chosen = [
        one for one in environments() if not given.only or any(text in one.title for text in given.only)
    ]
    is_wrong = not chosen
    for environment in chosen:
        print(f"{environment.title}, Python {environment.python}", flush=True)
        environment.make()
        log = environment.folder / "matrix.log"
        log.unlink(missing_ok=True)
        start = time.monotonic()
        cells = environment.run(log)
        print(f"  {time.monotonic() - start:.0f} s; {log}", flush=True)
        is_wrong |= not cells or _FAILS in cells.values()
        column = {environment.title: {"Python": environment.version(), **cells}}
        if given.write:
            PAGE.write_text(written(PAGE.read_text(), environment.kind, column))
    # As in tools/setup.sh; only now, because the environments share most of their wheels.
    _uv("cache", "prune", "--quiet", "--ci")
    return 1 if is_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
