"""Keep figures by cell in a JSON file, and write them as Markdown into a page."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arms import Worthless

from delta_cdc.launch.jars import cache_home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

#: What was measured in each cell: ``machine``, ``arms`` with ``seconds`` of each, and what a program adds.
Cells = dict[str, dict[str, Any]]


def machine() -> dict[str, Any]:
    """Say where and when figures are taken."""
    return {
        "when": datetime.now(UTC).isoformat(timespec="seconds"),
        "load": round(os.getloadavg()[0], 1),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


class Kept:
    """Figures by cell, in a file that is written again with every cell.

    What earlier runs have measured stays, until the same cell is measured again.

    :param path: JSON file; None keeps nothing
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        #: The machine as it is before the first cell: what is measured is a load itself.
        self._machine = machine()
        self.cells: Cells = json.loads(path.read_text()) if path is not None and path.is_file() else {}

    def add(self, cell: str, figures: dict[str, Any]) -> None:
        """Keep the figures of a cell."""
        self.cells[cell] = {"machine": self._machine, **figures}
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(".draft")
        draft.write_text(json.dumps(self.cells, indent=1))
        draft.replace(self._path)


def shared_arguments(
    program: str, about: str | None, *, small: str, repeats: int = 5
) -> argparse.ArgumentParser:
    """Return the arguments that all comparisons share.

    :param program: the program's file is called so
    :param about: what its help says
    :param small: what ``--small`` measures
    :param repeats: rounds by default
    """
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = cache_home() / f"benchmark-{program}"
    parser.set_defaults(program=program)
    parser.add_argument("--small", action="store_true", help=f"{small}: a smoke run, nothing is kept")
    parser.add_argument("--repeats", type=int, default=repeats, help="rounds that count, %(default)s")
    parser.add_argument("--warm-ups", type=int, default=1, help="rounds before them, %(default)s")
    parser.add_argument(
        "--folder", type=Path, default=default, help="for figures and what is made for them, %(default)s"
    )
    parser.add_argument(
        "--markdown", type=Path, help="page with marks for the tables; results.md in the folder"
    )
    return parser


def conclude(
    asked: argparse.Namespace, measure: Callable[[Kept], None], markdown: Callable[[Cells], str]
) -> int:
    """Measure, keep the figures, publish them and print them.

    :param asked: arguments of :func:`shared_arguments`
    :param measure: hands over the figures of each cell as soon as it is done
    :param markdown: the tables of all cells that have figures
    :return: the program's status, 1 where what was measured is worth nothing
    :raises SystemExit: the page has no marks of this program
    """
    page = asked.markdown or asked.folder.resolve() / "results.md"
    if not asked.small:
        # Not after an hour of measuring.
        _around(page, asked.program)
    kept = Kept(None if asked.small else asked.folder.resolve() / "results.json")
    try:
        measure(kept)
    except Worthless as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    text = markdown(kept.cells)
    if not asked.small:
        published(page, text, program=asked.program)
    print(text)
    return 0


def published(page: Path, text: str, *, program: str) -> None:
    """Put figures of a program into a page, between its marks; a page that is not there yet is made.

    :raises SystemExit: the page has no such marks
    """
    before, after = _around(page, program)
    begin, end = _marks(program)
    page.write_text(f"{before}{begin}\n{text}{end}{after}")


def _around(page: Path, program: str) -> tuple[str, str]:
    if not page.exists():
        return "", "\n"
    begin, end = _marks(program)
    before, begun, rest = page.read_text().partition(begin)
    _, ended, after = rest.partition(end)
    if not begun or not ended:
        raise SystemExit(f"{page} has no place for figures: put the lines {begin} and {end} into it.")
    return before, after


def _marks(program: str) -> tuple[str, str]:
    return (
        f"<!-- figures of benchmarks/{program}.py: begin -->",
        f"<!-- figures of benchmarks/{program}.py: end -->",
    )


def circumstances(cells: Iterable[dict[str, Any]]) -> str:
    """Return a line on where and how cells were measured: cores, rounds, load beforehand."""
    known = list(cells)
    if not known:
        return "No figures yet.\n"
    rounds = sorted({len(arm["seconds"]) for cell in known for arm in cell["arms"].values()})
    loads = sorted(cell["machine"]["load"] for cell in known)
    cores = max(cell["machine"]["cores"] for cell in known)
    between = f"{loads[0]}" if loads[0] == loads[-1] else f"{loads[0]} to {loads[-1]}"
    counted = " or ".join(map(str, rounds)) + (" round" if rounds == [1] else " rounds")
    # As long as half of the cores are free, arms that take turns hardly notice.
    others = "other programs took much of the machine" if loads[-1] >= cores / 2 else "little ran beside"
    return f"{cores} cores, {counted}; load beforehand {between}: {others}.\n"
