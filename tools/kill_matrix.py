"""Find out which unit tests notice which changes of the pure core, and write the table of it.

Each drawn change of :mod:`tools.mutants_core` is planted alone, and *all* tests that reach it run, not only
up to the first one that fails. The table has a line for each test function: how many changes it notices, and
how many no other function notices. Then it has a line for each change: who notices it. A function that
notices nothing alone is a candidate to go, unless it is a documented example or a regression.

Usage: ``python -m tools.kill_matrix [--number N] [--seed S] [--jobs N] [--write FILE] [TEXT]``
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tools.mutants import PASSED, ROOT, copy_project, judged
from tools.mutants_core import MOST_MEMORY, all_changes, reached_lines, tried

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.mutants_core import Change

#: The functions that fail with a change; None if the tests do not end.
Killers = Counter[str] | None
#: A file alone is one whose imports fail.
_FAILED = re.compile(r"^(?:FAILED|ERROR) tests/(\S+?\.py(?:::\w+)?)(?=[\s\[]|$)", re.MULTILINE)
#: What notices a change with which pytest itself cannot start.
START = "the start of the tests"
#: The most tests that run against one change; those that reach little come first.
MOST = 600
#: The most functions that a line names.
_NAMED = 4


def killers(change: Change, tree: Path) -> Killers:
    """Return how many tests of each function fail with a change, and the files that cannot be imported."""
    done = tried(change, tree, "--tb=no", "-rfE", *change.tests[:MOST])
    if done is None:
        return None
    found = Counter(_FAILED.findall(done.stdout))
    return found if found or done.returncode == PASSED else Counter([START])


def table(found: Sequence[tuple[str, Killers]], seed: int, number: int) -> str:
    """Return the table.

    :param found: each change as text, with those who notice it
    :param seed: of the draw
    :param number: of drawn changes; fewer are found if the command was interrupted
    """
    notices: Counter[str] = Counter()
    alone: Counter[str] = Counter()
    rows = []
    for change, functions in found:
        names = sorted(functions or ())
        notices.update(names)
        if len(names) == 1:
            alone.update(names)
        listed = ", ".join(names[:_NAMED]) + (
            f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        )
        rows.append(f"{change}\t{'the tests do not end' if functions is None else listed or 'nothing'}")
    noticed = sum(functions is None or bool(functions) for _, functions in found)
    command = f"python -m tools.kill_matrix --number {number} --seed {seed}"
    head = [
        f"# {command}: {noticed} of {len(found)} noticed",
        "test\tnotices\talone",
        *(f"{name}\t{count}\t{alone[name]}" for name, count in sorted(notices.items())),
        "",
        "change\tnoticed by",
    ]
    return "\n".join([*head, *rows, ""])


def main(arguments: list[str]) -> int:
    """Draw changes, run the tests, and write the table; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.kill_matrix")
    parser.add_argument("text", nargs="?", default="", help="only files whose path contains it")
    parser.add_argument("--number", type=int, default=100, help="changes to draw (100)")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the draw (random)")
    parser.add_argument("--jobs", type=int, default=1, help="changes at a time (1)")
    parser.add_argument("--write", type=Path, help="file of the table")
    given = parser.parse_args(arguments)
    # A loop that ends no more must not take all memory.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    found: list[tuple[str, Killers]] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [copy_project(Path(folder).resolve() / str(number)) for number in range(given.jobs)]
        reached = reached_lines(trees[0], given.jobs)
        drawn = [one for one in all_changes(trees[0], reached) if one.tests and given.text in one.file]
        drawn = random.Random(given.seed).sample(drawn, min(given.number, len(drawn)))
        for change, functions in judged(trees, drawn, killers):
            found.append((str(change), functions))
            print(f"{len(found)} of {len(drawn)}: {change}: {sorted(functions or ())[:_NAMED]}", flush=True)
            if given.write is not None:
                # Each time: hours of work stay if the command is interrupted.
                (ROOT / given.write).write_text(table(found, given.seed, len(drawn)))
    print(table(found, given.seed, len(drawn)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
