"""Figures of the benchmark of applying changes: kept in a JSON file, told as Markdown."""

from __future__ import annotations

import json
import statistics
from typing import TYPE_CHECKING, Any

from arms import ratio

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from apply_cells import Cell

_OURS, _HAND, _MACK = "ours", "MERGE by hand", "mack"
#: What is aimed at, as ratios of medians.
HAND_AT_MOST = 1.10
MACK_AT_MOST = {1: 0.5, 20: 0.2}
#: Bytes that may be written where few rows of a big table change: a floor, and so many per changed byte.
FLOOR, FACTOR = 64 * 1024, 8
_FEW_IN_MANY = (10**7, 10**2)


def published(page: Path, text: str, *, program: str = "apply") -> None:
    """Put figures of a program into a page: between its marks where it has them, else they are all of it."""
    begin, end = (f"<!-- figures of benchmarks/{program}.py: {word} -->" for word in ("begin", "end"))
    old = page.read_text() if page.is_file() else ""
    before, found, rest = old.partition(begin)
    if not found:
        page.write_text(text)
        return
    _, _, after = rest.partition(end)
    page.write_text(f"{before}{begin}\n{text}{end}{after}")


class Report:
    """Figures by cell, in a file that is written anew with every cell."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._cells: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.is_file() else {}

    def has(self, cell: Cell) -> bool:
        """Tell whether a cell has figures."""
        return cell.name in self._cells

    def figures(self, cell: Cell) -> dict[str, Any]:
        """Return the figures of a cell."""
        return self._cells[cell.name]

    def add(self, cell: Cell, figures: dict[str, Any]) -> None:
        """Keep the figures of a cell."""
        self._cells[cell.name] = figures
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(self._cells, indent=1))
        draft.replace(self._path)

    def markdown(self, cells: Iterable[Cell]) -> str:
        """Return the tables: seconds, ratios, bytes, what was aimed at."""
        known = [(cell, self.figures(cell)) for cell in cells if self.has(cell)]
        parts = [
            _circumstances([figures for _, figures in known]),
            markdown_table(
                [
                    "cell",
                    "ours, s",
                    "against",
                    "theirs, s",
                    "ours : theirs (95 %)",
                    "aim",
                    "CPU, ours : theirs",
                ],
                _times(known),
            ),
            markdown_table(
                ["cell", "arm", "written, kB", "data", "vectors", "log", "aim, kB"], _bytes(known)
            ),
            markdown_table(["arm", "left out of", "because it"], _left_out(known)),
        ]
        return "\n".join(parts)


def _circumstances(cells: Sequence[dict[str, Any]]) -> str:
    rounds = sorted({len(figures["arms"][_OURS]["seconds"]) for figures in cells})
    loads = sorted(figures["machine"]["load"] for figures in cells)
    if not loads:
        return "No figures yet.\n"
    cores = max(figures["machine"]["cores"] for figures in cells)
    counted = " or ".join(map(str, rounds))
    return (
        f"{cores} cores, {counted} round(s); load before a cell {loads[0]} to {loads[-1]}, so that other "
        f"programs {'took most' if loads[-1] > 2 * cores else 'took little'} of the machine.\n"
    )


def _times(known: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterable[Sequence[object]]:
    for cell, figures in known:
        arms = figures["arms"]
        ours = arms[_OURS]["seconds"]
        for name, arm in arms.items():
            if name == _OURS:
                continue
            found = ratio(ours, arm["seconds"])
            bound = _bound(cell, name)
            aim = "" if bound is None else f"≤ {bound:.2f}" + (", **missed**" if found.value > bound else "")
            yield (
                f"`{cell.name}`",
                f"{statistics.median(ours):.2f}",
                name,
                f"{statistics.median(arm['seconds']):.2f}",
                found,
                aim,
                f"{ratio(figures['arms'][_OURS]['cpu'], arm['cpu']).value:.2f}",
            )


def _bound(cell: Cell, arm: str) -> float | None:
    return {_HAND: HAND_AT_MOST, _MACK: MACK_AT_MOST.get(cell.depth)}.get(arm)


def _bytes(known: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterable[Sequence[object]]:
    for cell, figures in known:
        for name, arm in figures["arms"].items():
            parts = arm["written"]
            total = sum(parts.values())
            aim = ""
            if name == _OURS and (cell.rows, cell.changes) == _FEW_IN_MANY:
                most = FLOOR + FACTOR * cell.changes * figures["bytes_per_row"]
                aim = f"≤ {most / 1000:,.1f}" + (", **missed**" if total > most else "")
            cells = [f"{size / 1000:,.1f}" for size in (total, *parts.values())]
            yield f"`{cell.name}`", name, *cells, aim


def _left_out(known: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterable[Sequence[object]]:
    found: dict[tuple[str, str], list[str]] = {}
    for cell, figures in known:
        for name, reason in figures["left_out"].items():
            found.setdefault((name, reason), []).append(f"`{cell.name}`")
    for (name, reason), names in found.items():
        yield name, ", ".join(names), reason


def markdown_table(heading: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = ["| " + " | ".join(heading) + " |", "|" + "---|" * len(heading)]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines) + "\n"
