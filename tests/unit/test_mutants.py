"""Mistakes in the list of mutants, the verdict on one, and the changes that the pure core gets."""

from __future__ import annotations

import ast
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tools import mutants
from tools.kill_matrix import START, killers, table
from tools.mutants import PASSED, Mutant, judged, mistakes, run, verdict
from tools.mutants_core import LAYERS, Change, all_changes, survives

if TYPE_CHECKING:
    from pathlib import Path

TEST = "test_code.py::test_one"


def mutant(file: str, find: str, replace: str, rule: str) -> Mutant:
    return Mutant(rule, file, find, replace, TEST)


def test_every_mistake_is_listed(tmp_path: Path) -> None:
    (tmp_path / "value.py").write_text("a = 1\nb = 2\nb = 2\n")
    listed = [
        mutant("value.py", "a = 1", "a = 2", "A is one."),
        mutant("value.py", "c = 3", "c = 4", "C is three."),
        mutant("value.py", "b = 2", "b = 3", "B is two."),
        mutant("value.py", "a = 1", "a = 1", "A is one."),
        mutant("gone.py", "a = 1", "a = 2", "gone"),
    ]
    assert mistakes(listed, tmp_path) == [
        "'A is one.' is the rule of 2 mutants",
        "'gone' is no sentence",
        "'c = 3' occurs 0 times in value.py, not once",
        "'b = 2' occurs 2 times in value.py, not once",
        "value.py: 'a = 1' is replaced by itself",
        "'a = 1' occurs 0 times in gone.py, not once",
    ]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "value.py").write_text("a = 1\n")
    (tmp_path / "test_code.py").write_text("import value\n\n\ndef test_one():\n    assert value.a == 1\n")
    return tmp_path


def test_a_verdict_and_the_text_that_was_there_before(tree: Path) -> None:
    assert verdict(mutant("value.py", "a = 1", "a = 2", "A is one."), tree) is None
    assert (tree / "value.py").read_text() == "a = 1\n"
    problem = verdict(Mutant("R.", "value.py", "a = 1", "a = 2", "test_code.py::test_gone"), tree)
    assert problem is not None
    assert "did not fail (pytest's exit code 4)" in problem


def test_a_test_without_an_end_is_no_kill(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "LONGEST", 0.01)
    problem = verdict(mutant("value.py", "a = 1", "a = 2", "A is one."), tree)
    assert problem == f"{TEST} did not end within 0.01 s"
    assert (tree / "value.py").read_text() == "a = 1\n"


def test_a_process_that_a_test_leaves_behind_holds_nothing_up(tree: Path) -> None:
    (tree / "test_code.py").write_text(
        "import subprocess\n\n\ndef test_one():\n    subprocess.Popen(['sleep', '600'])\n"
    )
    assert run(tree, TEST, limit=60).returncode == PASSED


def test_every_copy_is_used_by_one_at_a_time(tmp_path: Path) -> None:
    trees = [tmp_path / "0", tmp_path / "1"]
    seen = list(judged(trees, range(20), lambda item, tree: (item, tree)))
    assert [item for item, _ in seen] == list(range(20))
    assert {tree for _, (_, tree) in seen} <= set(trees)


SOURCE = '''\
LIMIT: int = 5 if True else 6


def function(a: int = 1, *, b: list[str | None]) -> int | None:
    """A number of 7."""
    check(f"{a - 1}", 2)
    if a < len(b) and not b:
        raise ValueError(f"{a + 1} is too much")
    some = [text for text in b if text]
    return a + sum(zip(some, some, strict=True))
'''
CHANGED = [
    'check(f"{a - 1}", 2) -> pass',
    "2 -> (3)",
    "2 -> (1)",
    "a < len(b) and not b -> (a < len(b) or not b)",
    "a < len(b) -> (a <= len(b))",
    "not b -> (b)",
    "text -> True",
    "return a + sum(zip(some, some, strict=True)) -> return None",
    "a + sum(zip(some, some, strict=True)) -> (a - sum(zip(some, some, strict=True)))",
]


def test_the_changes_of_a_function(tmp_path: Path) -> None:
    for layer in LAYERS:
        (tmp_path / "spark_jobs" / "delta_cdc" / layer).mkdir(parents=True)
    file = tmp_path / "spark_jobs" / "delta_cdc" / "core" / "texts.py"
    file.write_text("# Äpfel\n" + SOURCE)
    name = "spark_jobs/delta_cdc/core/texts.py"
    found = list(all_changes(tmp_path, {name: {7: ["one"], 8: ["two", "one"]}}))
    source = file.read_bytes()
    assert [f"{source[one.start : one.end].decode()} -> {one.now}" for one in found] == CHANGED
    assert [one.tests for one in found[2:5]] == [("one",), ("two", "one"), ("two", "one")]
    for one in found:
        ast.parse(source[: one.start] + one.now.encode() + source[one.end :])


def test_a_change_survives_if_its_tests_pass(tree: Path) -> None:
    assert survives(Change("value.py", 1, 4, 5, "(1)", (TEST,)), tree)
    assert not survives(Change("value.py", 1, 4, 5, "(2)", (TEST,)), tree)
    assert (tree / "value.py").read_text() == "a = 1\n"


def test_the_table_says_who_notices_a_change_and_who_alone() -> None:
    found = [
        ("a:1: 1 -> 2", Counter({"unit/test_a.py::test_one": 3, "unit/test_b.py::test_two": 1})),
        ("a:2: < -> <=", Counter({"unit/test_a.py::test_one": 1})),
        ("a:3: True", Counter[str]()),
        ("a:4: while", None),
    ]
    lines = table(found, 7, 4).splitlines()
    assert lines[0].endswith("--number 4 --seed 7: 3 of 4 noticed")
    assert lines[2:4] == ["unit/test_a.py::test_one\t2\t1", "unit/test_b.py::test_two\t1\t0"]
    assert [line.partition("\t")[2] for line in lines[-4:]] == [
        "unit/test_a.py::test_one, unit/test_b.py::test_two",
        "unit/test_a.py::test_one",
        "nothing",
        "the tests do not end",
    ]


def test_every_function_that_notices_a_change_is_counted(tree: Path) -> None:
    tests = "import pytest\nimport value\n\n\ndef test_one():\n    assert value.a == 1\n\n\n"
    tests += "@pytest.mark.parametrize('n', [1, 2])\ndef test_two(n):\n    assert value.a < 2\n"
    (tree / "tests").mkdir()
    (tree / "tests" / "test_code.py").write_text(tests)
    (tree / "conftest.py").touch()
    one = Change("value.py", 1, 4, 5, "2", ("tests/test_code.py",))
    assert killers(one, tree) == {"test_code.py::test_one": 1, "test_code.py::test_two": 2}
    unimportable = Change("value.py", 1, 4, 5, "1 - ''", ("tests/test_code.py",))
    assert killers(unimportable, tree) == {"test_code.py": 1}
    (tree / "conftest.py").write_text("import value\n")
    assert killers(unimportable, tree) == {START: 1}
    assert killers(Change("value.py", 1, 4, 5, "1.0", ("tests/test_code.py",)), tree) == {}
