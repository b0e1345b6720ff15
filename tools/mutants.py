"""Plant known defects, one at a time, and demand that the test that guards against each one fails.

The list is ``tests/mutants.toml``: entries ``[[mutant]]`` with ``file`` (path in the project), ``find`` (text
that occurs in it exactly once), ``replace`` and ``test`` (a pytest node id). Each test must pass on a copy of
the project as it is, and fail once the defect is planted. The working tree is never touched.

Usage: ``mutants.py [--check] [TEXT]``; with TEXT only entries whose file or test contains it, with
``--check`` only the check that each entry still has its place in the code.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPIED = (
    *("airflow_delta_cdc", "spark_jobs", "tests", "tools", "dags", "demo", "benchmarks", "docker"),
    *("pyproject.toml", "constraints.txt", ".dockerignore", "README.md", "LICENSE"),
)
#: Exit code of pytest if tests ran and some failed. Any other code (nothing collected, a broken import) means
#: that something else than the test stopped the mutant.
TESTS_FAILED = 1


@dataclass(frozen=True)
class Mutant:
    """One planted defect."""

    file: str
    find: str
    replace: str
    test: str

    def __str__(self) -> str:
        return f"{self.file}: {self.find.strip()!r} -> {self.replace.strip()!r}"


def load(path: Path) -> list[Mutant]:
    """Read the list of mutants."""
    return [Mutant(**entry) for entry in tomllib.loads(path.read_text())["mutant"]]


def misplaced(mutants: list[Mutant], tree: Path) -> list[str]:
    """Return a line for each mutant whose text does not occur exactly once, or that changes nothing."""
    lines = []
    for mutant in mutants:
        file = tree / mutant.file
        count = file.read_text().count(mutant.find) if file.exists() else 0
        if count != 1:
            lines.append(f"{mutant.find!r} occurs {count} times in {mutant.file}, not once")
        elif mutant.find == mutant.replace:
            lines.append(f"{mutant.file}: {mutant.find!r} is replaced by itself")
    return lines


def run(tree: Path, *tests: str) -> subprocess.CompletedProcess[str]:
    """Run tests of ``tree``."""
    # Stale bytecode: a defect of the same length, planted within the same second, would go unseen.
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-x", *tests]
    return subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False)


def verdict(mutant: Mutant, tree: Path) -> str | None:
    """Return what is wrong with a mutant; None if its test kills it."""
    file = tree / mutant.file
    original = file.read_text()
    try:
        file.write_text(original.replace(mutant.find, mutant.replace))
        done = run(tree, mutant.test)
    finally:
        file.write_text(original)
    if done.returncode == TESTS_FAILED:
        return None
    output = (done.stdout + done.stderr)[-1500:]
    return f"{mutant.test} did not fail (pytest's exit code {done.returncode})\n{output}"


def main(arguments: list[str]) -> int:
    """Run the mutants; return the exit code."""
    wanted = next((text for text in arguments if text != "--check"), "")
    mutants = [m for m in load(ROOT / "tests" / "mutants.toml") if wanted in m.file or wanted in m.test]
    if not mutants:
        print(f"mutants: none matches {wanted!r}")
        return 2
    lines = misplaced(mutants, ROOT)
    if lines:
        print("\n".join([*lines, f"mutants: {len(lines)} entries have no place in the code"]))
        return 1
    if "--check" in arguments:
        print(f"mutants: {len(mutants)} entries have their place in the code")
        return 0
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        tree = Path(folder)
        for name in COPIED:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
            elif source.exists():
                shutil.copy2(source, tree / name)
        sound = run(tree, *sorted({mutant.test for mutant in mutants}))
        if sound.returncode != 0:
            print(f"mutants: the tests fail without any defect\n{(sound.stdout + sound.stderr)[-3000:]}")
            return 1
        survivors = 0
        for mutant in mutants:
            problem = verdict(mutant, tree)
            survivors += problem is not None
            print(f"{'SURVIVED' if problem else 'killed  '} {mutant}", flush=True)
            if problem:
                print(problem, flush=True)
    print(f"mutants: {len(mutants) - survivors} of {len(mutants)} killed")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
