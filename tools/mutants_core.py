"""Change the pure core at random places, one at a time, and list the changes that no unit test notices.

A place is a comparison, a condition, a number, a truth value, a sum, a returned value or a call for its
effect, in a function of ``core``, ``planning`` or ``delta_log``. One run of the unit tests with coverage
finds the tests that reach each line; only these run against a change. A survivor is a change without effect
or a missing test: a person judges it. The command fails if tests notice less than the share ``LEAST``.

Usage: ``python -m tools.mutants_core [--number N | --all] [--seed S] [--jobs N] [TEXT]``
"""

from __future__ import annotations

import argparse
import ast
import random
import resource
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.mutants import PASSED, ROOT, copy_project, judged, planted, run

if TYPE_CHECKING:
    from collections.abc import Iterator

ENGINE, LAYERS = "spark_jobs/delta_cdc", ("core", "planning", "delta_log")
#: What of tests/unit is about other code or files, or imports Airflow.
NOT_RUN = ("airflow", "benchmarks", "dags", "demo", "docker", "docs", "doctor", "test_project.py")
#: Bytes that a process may take: a loop that ends no more must not take all memory.
MOST_MEMORY = 8 * 2**30
LEAST = 0.8
_PAIRS: list[tuple[Any, Any]] = [
    *((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.Eq, ast.NotEq), (ast.In, ast.NotIn), (ast.Is, ast.IsNot)),
    *((ast.And, ast.Or), (ast.Add, ast.Sub)),
]
_SWAPPED = {**dict(_PAIRS), **{other: one for one, other in _PAIRS}}


@dataclass(frozen=True)
class Change:
    """Another text for the bytes from ``start`` to ``end`` of a file, and the tests that reach its lines."""

    file: str
    line: int
    start: int
    end: int
    now: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        was = (ROOT / self.file).read_bytes()[self.start : self.end].decode()
        return f"{self.file}:{self.line}: {' '.join(was.split())} -> {self.now} ({len(self.tests)} tests)"


def nodes(node: ast.AST, inside: bool = False) -> Iterator[ast.AST]:
    """Yield the nodes in functions, without texts, raised errors, signatures and the ``strict`` of zip."""
    if isinstance(node, ast.Raise | ast.JoinedStr | ast.arguments):
        return
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return
    if inside:
        yield node
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and field not in ("annotation", "returns", "decorator_list"):
                yield from nodes(child, inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def operator_changes(node: Any) -> Iterator[tuple[ast.AST, str]]:
    """Yield the changes of an expression: the node that is replaced, and its new text."""

    def with_other(**fields: Any) -> tuple[ast.AST, str]:
        return node, f"({ast.unparse(type(node)(**{**dict(ast.iter_fields(node)), **fields}))})"

    match node:
        case ast.Compare(ops=ops):
            for at, operator in enumerate(ops):
                yield with_other(ops=[*ops[:at], _SWAPPED[type(operator)](), *ops[at + 1 :]])
        case ast.BoolOp() | ast.BinOp(op=ast.Add() | ast.Sub()):
            yield with_other(op=_SWAPPED[type(node.op)]())
        case ast.UnaryOp(op=ast.Not()):
            yield node, f"({ast.unparse(node.operand)})"
        case ast.Constant(value=int() as value):
            others = [not value] if isinstance(value, bool) else [value + 1, value - 1]
            yield from ((node, f"({other})") for other in others)


def flow_changes(node: Any) -> Iterator[tuple[ast.AST, str]]:
    """Yield the changes of a statement or condition: the node that is replaced, and its new text."""
    match node:
        case ast.Return(value=value) if value is not None and ast.unparse(value) != "None":
            yield node, "return None"
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.comprehension():
            yield from ((test, "True") for test in node.ifs)
        case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
            if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.Await | ast.NamedExpr):
                yield test, f"(not ({ast.unparse(test)}))"


def all_changes(tree: Path, reached: dict[str, dict[int, list[str]]]) -> Iterator[Change]:
    """Yield each change of the core.

    :param reached: of each file, the tests that reach each line
    """
    for file in sorted(path for layer in LAYERS for path in (tree / ENGINE / layer).glob("*.py")):
        name, source = str(file.relative_to(tree)), file.read_bytes()
        starts = [0]
        for line in source.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        place: Any
        for place, now in (
            one for node in nodes(ast.parse(source)) for one in (*operator_changes(node), *flow_changes(node))
        ):
            start = starts[place.lineno - 1] + place.col_offset
            end = starts[place.end_lineno - 1] + place.end_col_offset
            lines = range(place.lineno, place.end_lineno + 1)
            tests = dict.fromkeys(test for line in lines for test in reached.get(name, {}).get(line, ()))
            yield Change(name, place.lineno, start, end, now, tuple(tests))


def reached_lines(tree: Path, jobs: int) -> dict[str, dict[int, list[str]]]:
    """Run the unit tests; return, of each file, the tests that reach each line: first what reaches little."""
    from coverage import CoverageData

    where = ["tests/unit", *(f"--ignore=tests/unit/{folder}" for folder in NOT_RUN)]
    measured = [*(f"--cov={ENGINE}/{layer}" for layer in LAYERS), "--cov-context=test", "--cov-report="]
    done = run(tree, *where, *measured, "-n", str(jobs), "--dist", "loadfile", "-m", "not slow", plugins=True)
    if done.returncode != PASSED:
        sys.exit(f"mutants-core: the tests fail without any change\n{done.stdout[-3000:]}")
    data = CoverageData(str(tree / ".cache" / "coverage"))
    data.read()
    found = {
        str(Path(file).relative_to(tree)): {
            line: {context.partition("|")[0] for context in contexts if context}
            for line, contexts in data.contexts_by_lineno(file).items()
        }
        for file in data.measured_files()
    }
    size = Counter(test for lines in found.values() for tests in lines.values() for test in tests)
    return {
        file: {line: sorted(tests, key=lambda test: (size[test], test)) for line, tests in lines.items()}
        for file, lines in found.items()
    }


def tried(change: Change, tree: Path, *arguments: str) -> subprocess.CompletedProcess[str] | None:
    """Run pytest with a change; return None if the tests do not end."""
    file = tree / change.file
    source = file.read_bytes()
    changed = source[: change.start] + change.now.encode() + source[change.end :]
    with planted(file, changed.decode()):
        try:
            return run(tree, *arguments, limit=300)
        except subprocess.TimeoutExpired:
            return None


def survives(change: Change, tree: Path) -> bool:
    """Tell whether all tests that reach a change pass with it."""
    done = tried(change, tree, "-x", *change.tests)
    return done is not None and done.returncode == PASSED


def main(arguments: list[str]) -> int:
    """Change the core; return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants_core")
    parser.add_argument("text", nargs="?", default="", help="only files whose path contains it")
    parser.add_argument("--number", type=int, default=60, help="changes to draw (60)")
    parser.add_argument("--all", action="store_true", help="all changes")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="of the draw (random)")
    parser.add_argument("--jobs", type=int, default=1, help="changes at a time (1)")
    given = parser.parse_args(arguments)
    # A loop that ends no more must not take all memory.
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [copy_project(Path(folder).resolve() / str(number)) for number in range(given.jobs)]
        reached = reached_lines(trees[0], given.jobs)
        possible = [one for one in all_changes(trees[0], reached) if given.text in one.file]
        drawn = [one for one in possible if one.tests]
        print(f"seed {given.seed}; {len(possible)} changes, of which tests reach {len(drawn)}", flush=True)
        if not given.all:
            drawn = random.Random(given.seed).sample(drawn, min(given.number, len(drawn)))
        survivors = 0
        for change, survived in judged(trees, drawn, survives):
            survivors += survived
            print(f"{'SURVIVED' if survived else 'killed  '} {change}", flush=True)
    print(f"mutants-core: {len(drawn) - survivors} of {len(drawn)} killed")
    return 1 if survivors > (1 - LEAST) * len(drawn) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
