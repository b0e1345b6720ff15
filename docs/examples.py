"""Run the examples of some pages, and write what they print into these pages.

Run ``python docs/examples.py`` after a change of an example, and commit both; a test compares. The pages of a
group run one after the other over the same tables; ``python docs/examples.py events`` runs one group.

- A block of SQL runs statement by statement.
- A line ``$ delta-cdc …`` in a block ``console`` runs as the command.
- A block of Python runs as it is; a block ``py`` does not run.
- A block of YAML or ``py`` whose first line names a file is written there.

A block ``text`` after a block of Python has what it prints. All of it happens below ``/lake/``, which is a
temporary folder. Commits are shown a minute apart, because the true times change with every run.
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
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

_DOCS = Path(__file__).parent
#: Pages by group, in the order in which they run.
GROUPS = {
    "queries": ("explanation/change-queries.md", "howto/read-changes.md", "howto/wide-rows.md"),
    "events": (
        *("explanation/late-events.md", "reference/events.md", "howto/snapshots.md"),
        *("howto/quarantine.md", "howto/change-options.md", "howto/dry-run.md"),
        *("howto/schema-changes.md", "howto/layout-columns.md"),
    ),
    "tutorials": ("tutorials/many-tables.md", "tutorials/debezium.md", "tutorials/backfill.md"),
    "coming-from": (
        *("coming-from/databricks-auto-cdc.md", "coming-from/spark-autocdc.md"),
        *("coming-from/dbt-snapshots.md", "coming-from/mack.md"),
        *("coming-from/merge.md", "coming-from/foreach-batch.md"),
    ),
}

_BLOCK = re.compile(r"^```(sql|console|python|py|yaml)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S)
#: A line that ends with a commit's time, after its version: of a table, and of CSV.
_TIMES = (
    re.compile(r"^(?P<before> *(?P<version>\d+) .*)[\d-]{10}(?P<between> )[\d:]{8}(?P<after>Z)$", re.M),
    re.compile(r"^(?P<before>.*,(?P<version>\d+),)[\d-]{10}(?P<between>T)[\d:]{8}\.\d+(?P<after>Z)$", re.M),
)

#: What differs with every run: the first seal of a table, which is a time in milliseconds; ids; retentions.
_OTHERS = (
    (re.compile(r"\bseal \d{13}\b"), "seal 1772355600000"),
    (re.compile(r"\(id [0-9a-f-]{36}"), "(id 6d1b0d0a-…"),
    (re.compile(r"good until \S+"), "good until 2026-03-31T09:00:00+00:00"),
)


def rendered(pages: Sequence[str], spark: SparkSession, folder: Path) -> list[str]:
    """Return the pages of a group with what their examples print now.

    :param pages: their texts
    :param folder: an empty folder, which stands for ``/lake``
    """
    names: dict[str, Any] = {"spark": spark}

    def run(block: re.Match[str]) -> str:
        kind, code = block[1], block[2]
        if kind in ("yaml", "py"):
            _write(code, folder)
            return block[0]
        if kind == "sql":
            _run_sql(_there(code, folder), spark)
            return block[0]
        if kind == "console":
            return f"```console\n{_here(_run_console(_there(code, folder)), folder)}```\n"
        printed = _here(_run_python(_there(code, folder), names), folder)
        shown = f"\n```text\n{printed}```\n" if printed else ""
        return f"```python\n{code}```\n{shown}"

    return [_BLOCK.sub(run, page) for page in pages]


def _run_sql(code: str, spark: SparkSession) -> None:
    without_comments = re.sub(r"\s*--.*$", "", code, flags=re.M)
    for statement in re.split(r";$", without_comments, flags=re.M):
        if statement.strip():
            spark.sql(statement)


def _write(code: str, folder: Path) -> None:
    """Write a block whose first line is a comment with a path; others are code of another tool."""
    named = re.match(r"# /lake/(\S+)\n", code)
    if named:
        (folder / named[1]).write_text(_there(code, folder), encoding="utf-8")


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
    shown = text.replace(f"{folder}/", "/lake/")
    for pattern in _TIMES:
        shown = pattern.sub(_a_minute_apart, shown)
    for pattern, even in _OTHERS:
        shown = pattern.sub(even, shown)
    return shown


def _a_minute_apart(line: re.Match[str]) -> str:
    minute = f"{int(line['version']):02d}"
    return f"{line['before']}2026-03-01{line['between']}09:{minute}:00{line['after']}"


if __name__ == "__main__":
    from delta_cdc import get_session

    session = get_session("examples", cores=2, quick_start=True)
    for group in sys.argv[1:] or GROUPS:
        files = [_DOCS / name for name in GROUPS[group]]
        with tempfile.TemporaryDirectory() as made:
            texts = rendered([file.read_text(encoding="utf-8") for file in files], session, Path(made))
        for file, text in zip(files, texts, strict=True):
            file.write_text(text, encoding="utf-8")
    session.stop()
