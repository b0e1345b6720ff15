"""Plant defects, each of which breaks one rule, and require that the rule's test fails.

The list is ``tests/mutants.toml``: entries ``[[mutant]]`` with ``rule`` (the sentence that the defect
breaks), ``file`` (path in the project), ``find`` (text that occurs in it exactly once), ``replace`` and
``test`` (a pytest node id). All tests must pass, in one run, on a copy of the project as it is; then each
mutant is planted in a copy, alone, and its test must fail. The working tree is never touched.

Usage: ``python -m tools.mutants [--check] [--jobs N] [TEXT]``; with TEXT only entries whose rule, file or
test contains it, with ``--check`` only the check that each entry still has its place in the code.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from py_compile import PycInvalidationMode
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    *("airflow_delta_cdc", "spark_jobs", "tests", "tools", "dags", "demo", "benchmarks", "docker", "docs"),
    *("java", "pyproject.toml", "constraints.txt", ".dockerignore", "README.md", "LICENSE"),
)
#: Exit codes of pytest. Any other one (no test collected, a broken import) means that something else than the
#: test stopped the mutant.
PASSED, TESTS_FAILED = 0, 1
#: The longest run of one test, in seconds, with the start of a JVM and of a server.
LONGEST = 600

Item = TypeVar("Item")
Verdict = TypeVar("Verdict")


@dataclass(frozen=True)
class Mutant:
    """One planted defect."""

    rule: str
    file: str
    find: str
    replace: str
    test: str

    def __str__(self) -> str:
        return f"{self.rule} ({self.test})"


def load(path: Path) -> list[Mutant]:
    """Read the list of mutants."""
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text())["mutant"]]


def mistakes(mutants: list[Mutant], tree: Path) -> list[str]:
    """Return a line for each rule that occurs twice or is no sentence, and for each mutant without its place.

    A mutant has its place if its text occurs exactly once, and if the defect changes it.
    """
    rules = Counter(mutant.rule for mutant in mutants)
    lines = [f"{rule!r} is the rule of {count} mutants" for rule, count in rules.items() if count > 1]
    lines += [f"{rule!r} is no sentence" for rule in rules if not rule.endswith(".")]
    for mutant in mutants:
        file = tree / mutant.file
        count = file.read_text().count(mutant.find) if file.exists() else 0
        if count != 1:
            lines.append(f"{mutant.find!r} occurs {count} times in {mutant.file}, not once")
        elif mutant.find == mutant.replace:
            lines.append(f"{mutant.file}: {mutant.find!r} is replaced by itself")
    return lines


def copy_project(tree: Path) -> Path:
    """Copy what the tests need into the new folder ``tree``; return it."""
    tree.mkdir()
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy2(source, tree / name)
    # Python compares this bytecode with the source itself, not with its time.
    compileall.compile_dir(tree, quiet=1, invalidation_mode=PycInvalidationMode.CHECKED_HASH)
    return tree


def run(
    tree: Path, *arguments: str, limit: float | None = None, plugins: bool = False
) -> subprocess.CompletedProcess[str]:
    """Run pytest in ``tree``, for ``limit`` seconds at most; end what its tests leave behind.

    :param plugins: load those that are installed, which takes longer than most tests
    :raises subprocess.TimeoutExpired: the run was ended
    """
    # No new bytecode: a defect of the same length, planted within the same second, would go unseen.
    command = [sys.executable, "-B", "-m", "pytest", "-q", *arguments]
    environment = os.environ | ({} if plugins else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"})
    # Also for other processes, such as Spark's Python workers: they would load the installed project.
    environment["PYTHONPATH"] = os.pathsep.join([str(tree / "spark_jobs"), str(tree)])
    # Into a file: a pipe ends only with the last process that a test has left behind.
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(
            command, cwd=tree, env=environment, stdout=output, stderr=output, start_new_session=True
        )
        try:
            process.wait(limit)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        return subprocess.CompletedProcess(command, process.returncode, output.read())


@contextmanager
def planted(file: Path, text: str) -> Iterator[None]:
    """Give a file another text, for as long as the block runs."""
    original = file.read_text()
    file.write_text(text)
    try:
        yield
    finally:
        file.write_text(original)


def judged(
    trees: list[Path], items: Iterable[Item], judge: Callable[[Item, Path], Verdict]
) -> Iterator[tuple[Item, Verdict]]:
    """Judge the items, as many at a time as there are copies of the project; yield each with its verdict."""
    free: SimpleQueue[Path] = SimpleQueue()
    for tree in trees:
        free.put(tree)

    def one(item: Item) -> tuple[Item, Verdict]:
        tree = free.get()
        try:
            return item, judge(item, tree)
        finally:
            free.put(tree)

    with ThreadPoolExecutor(len(trees)) as pool:
        yield from pool.map(one, items)


def verdict(mutant: Mutant, tree: Path) -> str | None:
    """Return what is wrong with a mutant; None if its test kills it."""
    file = tree / mutant.file
    with planted(file, file.read_text().replace(mutant.find, mutant.replace)):
        try:
            done = run(tree, "-x", mutant.test, limit=LONGEST)
        except subprocess.TimeoutExpired:
            return f"{mutant.test} did not end within {LONGEST} s"
    if done.returncode == TESTS_FAILED:
        return None
    return f"{mutant.test} did not fail (pytest's exit code {done.returncode})\n{done.stdout[-1500:]}"


def read_arguments(arguments: list[str]) -> Any:
    """Return the command's arguments."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "text", nargs="?", default="", help="only mutants whose rule, file or test contains it"
    )
    parser.add_argument("--check", action="store_true", help="only check that each mutant has its place")
    parser.add_argument("--jobs", type=int, default=1, help="mutants at a time (1)")
    return parser.parse_args(arguments)


def main(arguments: list[str]) -> int:
    """Run the mutants; return the exit code."""
    given = read_arguments(arguments)
    listed = load(ROOT / "tests" / "mutants.toml")
    mutants = [m for m in listed if any(given.text in text for text in (m.rule, m.file, m.test))]
    lines = mistakes(listed, ROOT) or ([] if mutants else [f"none contains {given.text!r}"])
    if lines or given.check:
        print("\n".join([*lines, f"mutants: {len(listed)} entries, {len(lines)} mistakes"]))
        return 1 if lines else 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [copy_project(Path(folder) / str(number)) for number in range(given.jobs)]
        tests = sorted({mutant.test for mutant in mutants})
        sound = run(trees[0], "-n", str(given.jobs), "--dist", "loadfile", *tests, plugins=True)
        if sound.returncode != PASSED:
            print(f"mutants: the tests fail without any defect\n{sound.stdout[-3000:]}")
            return 1
        survivors = 0
        for mutant, problem in judged(trees, mutants, verdict):
            survivors += problem is not None
            print(f"{'SURVIVED' if problem else 'killed  '} {mutant}", flush=True)
            if problem:
                print(problem, flush=True)
    print(f"mutants: {len(mutants) - survivors} of {len(mutants)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
