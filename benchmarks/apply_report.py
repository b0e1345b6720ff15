"""Report the figures of the benchmark of applying changes as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from report import circumstances
from summary import aim, compared, markdown_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from apply_cells import Cell
    from report import Cells

_OURS, _HAND, _CHECKED, _MACK = "ours", "MERGE by hand", "by hand, equal work", "mack"
#: What is aimed at, as ratios of medians.
HAND_AT_MOST = 1.00
MACK_AT_MOST = {1: 0.7, 20: 0.3}
#: Bytes that may be written where few rows of a big table change: a floor, and so many per changed byte.
FLOOR, FACTOR = 64 * 1024, 8
_FEW_IN_MANY = (10**7, 10**2)


def markdown(cells: Cells, known: Iterable[Cell]) -> str:
    """Return the tables: seconds, ratios, bytes, what was aimed at.

    :param cells: figures by the cells' names
    :param known: cells in the order to tell them
    """
    found = [(cell, cells[cell.name]) for cell in known if cell.name in cells]
    heading = ["cell", "ours, s", "against", "theirs, s", "ours : theirs (95 %)", "aim", "CPU, ours : theirs"]
    parts = [
        circumstances(figures for _, figures in found),
        markdown_table(heading, _times(found)),
        markdown_table(["cell", "arm", "written, kB", "data", "vectors", "log", "aim, kB"], _bytes(found)),
        markdown_table(["arm", "left out of", "because it"], _left_out(found)),
    ]
    return "\n".join(parts)


def _times(known: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterable[Sequence[object]]:
    for cell, figures in known:
        arms = figures["arms"]
        for name, arm in arms.items():
            if name == _OURS:
                continue
            ours, theirs, *rest = compared(arms[_OURS], arm, _bound(cell, name), digits=2)
            yield f"`{cell.name}`", ours, name, theirs, *rest


def _bound(cell: Cell, arm: str) -> float | None:
    bounds = {_HAND: HAND_AT_MOST, _CHECKED: HAND_AT_MOST, _MACK: MACK_AT_MOST.get(cell.depth)}
    return bounds.get(arm)


def _bytes(known: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterable[Sequence[object]]:
    for cell, figures in known:
        for name, arm in figures["arms"].items():
            parts = arm["written"]
            total = sum(parts.values())
            most = None
            if name == _OURS and (cell.rows, cell.changes) == _FEW_IN_MANY:
                most = (FLOOR + FACTOR * cell.changes * figures["bytes_per_row"]) / 1000
            cells = [f"{size / 1000:,.1f}" for size in (total, *parts.values())]
            yield f"`{cell.name}`", name, *cells, aim(most, total / 1000, digits=1)


def _left_out(known: Sequence[tuple[Cell, dict[str, Any]]]) -> Iterable[Sequence[object]]:
    found: dict[tuple[str, str], list[str]] = {}
    for cell, figures in known:
        for name, reason in figures["left_out"].items():
            found.setdefault((name, reason), []).append(f"`{cell.name}`")
    for (name, reason), names in found.items():
        yield name, ", ".join(names), reason
