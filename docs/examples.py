"""Run the examples of ``docs/changes.md`` and ``docs/applying.md``, and write what they print into the pages.

Run ``python docs/examples.py`` after a change of an example, and commit both; a test compares. With names of
pages (``python docs/examples.py applying.md``) only these are run. A block of SQL
is run statement by statement, a line ``$ delta-cdc …`` in a block ``console`` as the command, and a block of
Python as it is; a block ``text`` after it has what it prints. All of it happens below ``/lake/``, which
is a temporary folder. Commits are shown a minute apart, because the true times change with every run.
"""

from __future__ import annotations

import io
import re
import shlex
import sys
import tempfile
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DOCS = Path(__file__).parent
PAGES = (_DOCS / "changes.md", _DOCS / "applying.md")

_BLOCK = re.compile(r"^```(sql|console|python)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S)
#: A line that ends with a commit's time, after its version: of a table, and of CSV.
_TIMES = (
    re.compile(r"^(?P<before> *(?P<version>\d+) .*)[\d-]{10}(?P<between> )[\d:]{8}(?P<after>Z)$", re.M),
    re.compile(r"^(?P<before>.*,(?P<version>\d+),)[\d-]{10}(?P<between>T)[\d:]{8}\.\d+(?P<after>Z)$", re.M),
)

#: The first seal of a table is the time in milliseconds.
_SEAL = re.compile(r"\bseal \d{13}\b")


def rendered(page: str, spark: SparkSession, folder: Path) -> str:
    """Return a page with what its examples print now.

    :param page: its text
    :param folder: an empty folder, which stands for ``/lake``
    """
    names: dict[str, Any] = {"spark": spark}

    def run(block: re.Match[str]) -> str:
        kind, code = block[1], block[2]
        if kind == "sql":
            _run_sql(_there(code, folder), spark)
            return block[0]
        if kind == "console":
            return f"```console\n{_here(_run_console(_there(code, folder)), folder)}```\n"
        printed = _here(_run_python(_there(code, folder), names), folder)
        shown = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{code}```\n{shown}"

    return _BLOCK.sub(run, page)


def _run_sql(code: str, spark: SparkSession) -> None:
    without_comments = re.sub(r"\s*--.*$", "", code, flags=re.M)
    for statement in re.split(r";$", without_comments, flags=re.M):
        if statement.strip():
            spark.sql(statement)


def _run_console(code: str) -> str:
    from delta_cdc.cli import main

    shown = []
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)\n", code, re.M)
    for command in commands:
        out, err = io.StringIO(), io.StringIO()
        program, *arguments = shlex.split(command)
        assert program == "delta-cdc", f"not a command of ours: {command}"
        with redirect_stdout(out), redirect_stderr(err):
            main(arguments)
        shown.append(f"$ {command}\n{err.getvalue()}{out.getvalue()}")
    return "\n".join(shown)


def _run_python(code: str, names: dict[str, Any]) -> str:
    out = io.StringIO()
    with redirect_stdout(out):
        exec(compile(code, "example", "exec"), names)
    # Spark ends a table with an empty line.
    return re.sub(r"\n+\Z", "\n", out.getvalue())


def _there(text: str, folder: Path) -> str:
    return text.replace("/lake/", f"{folder}/")


def _here(text: str, folder: Path) -> str:
    told = text.replace(f"{folder}/", "/lake/")
    for pattern in _TIMES:
        told = pattern.sub(_a_minute_apart, told)
    return _SEAL.sub("seal 1772355600000", told)


def _a_minute_apart(line: re.Match[str]) -> str:
    minute = f"{int(line['version']):02d}"
    return f"{line['before']}2026-03-01{line['between']}09:{minute}:00{line['after']}"


if __name__ == "__main__":
    from delta_cdc.launch.session import embedded_session

    session = embedded_session("examples", cores=2, quick_start=True)
    for page in [_DOCS / name for name in sys.argv[1:]] or PAGES:
        with tempfile.TemporaryDirectory() as made:
            page.write_text(rendered(page.read_text(encoding="utf-8"), session, Path(made)), encoding="utf-8")
    session.stop()
