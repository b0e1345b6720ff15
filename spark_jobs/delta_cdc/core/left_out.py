"""Columns of ingested records that the option ``schema`` leaves out: their values are in no table.

A batch counts each such column once, under a name of its own: so it reaches the log of the task, XCom and the
page. Standard library only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

#: Prefix of the name of a count: a batch whose records have the column that follows.
COUNT = "left_out:"
_MOST, _LONGEST = 10, 100

REMEDY = (
    "to take them, add them to schema; otherwise list them in adapter_options, as except_column_list. "
    "Records in the log do not get them later: ingest these again, with another pipeline name into a new log."
)


def counts_of(names: Iterable[str]) -> dict[str, int]:
    """Return the counts of a batch whose records have columns that ``schema`` leaves out."""
    return {f"{COUNT}{name[:_LONGEST]}": 1 for name in list(names)[:_MOST]}


def columns_in(counts: Mapping[str, Any]) -> list[str]:
    """Return the names of columns that the batches of a run left out."""
    return [name.removeprefix(COUNT) for name in counts if name.startswith(COUNT)]


def sentence(names: Sequence[str]) -> str:
    """Return a sentence about columns that ``schema`` leaves out."""
    shown = ", ".join(map(repr, names[:_MOST])) + (", …" if len(names) > _MOST else "")
    return f"The option schema leaves out the column(s) {shown} of the records."
