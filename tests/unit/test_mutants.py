"""Mutants whose text is missing are listed before any of them runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.mutants import Mutant, misplaced

if TYPE_CHECKING:
    from pathlib import Path


def test_every_misplaced_mutant_is_listed(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text("a = 1\nb = 2\nb = 2\n")

    def mutant(file: str, find: str, replace: str) -> Mutant:
        return Mutant(file, find, replace, "tests/unit/test_mutants.py")

    listed = [
        mutant("code.py", "a = 1", "a = 2"),
        mutant("code.py", "c = 3", "c = 4"),
        mutant("code.py", "b = 2", "b = 3"),
        mutant("code.py", "a = 1", "a = 1"),
        mutant("gone.py", "a = 1", "a = 2"),
    ]
    assert misplaced(listed, tmp_path) == [
        "'c = 3' occurs 0 times in code.py, not once",
        "'b = 2' occurs 2 times in code.py, not once",
        "code.py: 'a = 1' is replaced by itself",
        "'a = 1' occurs 0 times in gone.py, not once",
    ]
