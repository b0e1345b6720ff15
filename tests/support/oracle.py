"""What a target must hold, computed row by row in plain Python from the source's state at every version.

Nothing here knows how the engine works: no segments, no netting, no change feed. A history is a list of
``(version, {key: row})``, each the whole source (or one part of it) after that version; a row is a dict.
"""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

Row = Mapping[str, Any]
State = Mapping[Hashable, Row]
History = Sequence[tuple[int, State]]
#: (row, version) -> value of the sequence
SequenceOf = Callable[[Row, int], Any]


def plain(value: Any) -> Any:
    """Return a hashable value: equal exactly where Delta-minded people call two values equal.

    NaN equals NaN, -0.0 equals 0.0, a map has no order.
    """
    if isinstance(value, float):
        if math.isnan(value):
            return "NaN"
        return value + 0.0
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return ("map", frozenset((plain(k), plain(v)) for k, v in value.items()))
    if isinstance(value, tuple):  # a pyspark Row too
        return ("struct", *map(plain, value))
    if isinstance(value, list):
        return ("array", *map(plain, value))
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return value.astimezone(dt.UTC)
    return value


def rows_of(rows: Sequence[Row], columns: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return rows as sorted tuples of plain values, for comparison; rows are a bag, so doubles show."""
    return sorted((tuple(plain(row[name]) for name in columns) for row in rows), key=repr)


def scd1(history: History) -> list[dict[str, Any]]:
    """Return the rows of a type 1 target: the newest state."""
    return [dict(row) for row in history[-1][1].values()]


def scd1_soft(history: History, deleted: str = "_deleted") -> list[dict[str, Any]]:
    """Return the rows of a type 1 target whose deleted rows stay, marked, with the values they had last."""
    rows: dict[Hashable, dict[str, Any]] = {}
    for _, state in history:
        for key, row in rows.items():
            row[deleted] = key not in state
        rows.update({key: {**row, deleted: False} for key, row in state.items()})
    return list(rows.values())


def scd2(
    history: History,
    *,
    tracked: Sequence[str],
    sequence: SequenceOf = lambda row, version: version,
    delete_sequence: SequenceOf | None = None,
    start: str = "__START_AT",
    end: str = "__END_AT",
) -> list[dict[str, Any]]:
    """Return the rows of a type 2 target whose first load was the first version of ``history``.

    Each key is walked version by version, with one open row in the hand.
    """
    at_delete = delete_sequence or sequence
    result: list[dict[str, Any]] = []
    for key in {key: None for _, state in history for key in state}:
        opened: dict[str, Any] | None = None
        before: Row | None = None
        for version, state in history:
            now = state.get(key)
            if now is None:
                if opened is not None:
                    assert before is not None
                    opened[end] = at_delete(before, version)
                    result.append(opened)
                    opened = None
            elif opened is None:
                opened = {**now, start: sequence(now, version), end: None}
            elif _differ(before, now, list(now)):
                if _differ(before, now, tracked):
                    opened[end] = sequence(now, version)
                    result.append(opened)
                    opened = {**now, start: sequence(now, version), end: None}
                else:
                    opened.update(now)
            before = now
        if opened is not None:
            result.append(opened)
    return result


def _differ(one: Row | None, other: Row, columns: Sequence[str]) -> bool:
    return one is None or any(plain(one.get(name)) != plain(other.get(name)) for name in columns)
