"""The cells of the benchmark of applying changes: which table, which changes, stored how."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["change_feed", "change_log"]
Spread = Literal["uniform", "clustered"]
Mix = Literal["updates", "mixed", "inserts", "nothing"]


@dataclass(frozen=True)
class Cell:
    """One situation that every arm has to cope with.

    :param rows: rows of the source before the changes
    :param changes: keys that change
    :param spread: whether these lie all over the table, or side by side
    :param mix: ``updates``: nine in ten update a row, one inserts one, no key changes twice; ``mixed``: the
        same, then a fifth of the keys change again and a twentieth is deleted; ``inserts``: all of them
        insert; ``nothing``: rows are written back as they were
    :param scd_type: how the target is stored
    :param depth: rows that the target holds of each key beforehand
    :param kind: whether the changes come as commits of a table, or as events in a log
    """

    rows: int
    changes: int
    spread: Spread = "uniform"
    mix: Mix = "updates"
    scd_type: Literal[1, 2] = 1
    depth: int = 1
    kind: Kind = "change_feed"

    @property
    def name(self) -> str:
        """Return the name by which an argument chooses the cell."""
        words = [f"scd{self.scd_type}", _power(self.rows), _power(self.changes), self.spread, self.mix]
        if self.depth > 1:
            words.append(f"depth{self.depth}")
        if self.kind == "change_log":
            words.append("log")
        return "-".join(words)


def _power(number: int) -> str:
    exponent = len(str(number)) - 1
    return f"1e{exponent}" if number == 10**exponent else str(number)


#: Chosen so that every size, number of changes, spread, depth and mix is there, and the corners where one of
#: the arms should win: few changes of many rows, very many changes, a deep history.
CELLS = (
    Cell(10**5, 10**2),
    Cell(10**5, 10**4, mix="mixed", scd_type=2),
    Cell(10**6, 10**4, mix="mixed"),
    Cell(10**6, 10**4, mix="nothing"),
    Cell(10**6, 10**4, scd_type=2),
    Cell(10**6, 10**4, scd_type=2, depth=20),
    Cell(10**6, 10**4, mix="mixed", kind="change_log"),
    Cell(10**7, 10**2),
    Cell(10**7, 10**2, spread="clustered", scd_type=2),
    Cell(10**7, 10**4, spread="clustered", mix="mixed"),
    Cell(10**7, 10**4, mix="inserts"),
    Cell(10**7, 10**6),
)
#: Only if it is named: an hour, and 20 GB of disk.
LARGE = Cell(10**8, 10**4)
#: Correctness alone.
TINY = Cell(1_000, 100, mix="mixed", scd_type=2)
