"""Commit times, and the version that a time refers to.

A commit's time is its in-commit timestamp if the table has them, else its file's modification time. File
times may decrease, and two may be equal. Delta makes them increase: a time that is not later than its
predecessor becomes the predecessor's plus one millisecond. This module does the same.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

Bound = Literal["start", "end"]
_ENABLED = "delta.enableInCommitTimestamps"
_SINCE = "delta.inCommitTimestampEnablementVersion"


def in_commit_since(configuration: Mapping[str, str]) -> int | None:
    """Return the first version with in-commit timestamps; None if the table has none.

    :param configuration: the table's properties
    :raises ValueError: the property is not a number
    """
    if configuration.get(_ENABLED, "").lower() != "true":
        return None
    return int(configuration.get(_SINCE, "0"))


def increasing(times: Iterable[int]) -> list[int]:
    """Return the times, changed so that they strictly increase."""
    found: list[int] = []
    for time in times:
        found.append(time if not found or time > found[-1] else found[-1] + 1)
    return found


def choose(times: Sequence[int], timestamp: int, bound: Bound) -> int | None:
    """Return the position of a bound: round up for a start, down for an end. Return None if it is outside."""
    at = bisect_left(times, timestamp) if bound == "start" else bisect_right(times, timestamp) - 1
    return at if 0 <= at < len(times) else None


async def search(
    count: int, time: Callable[[int], Awaitable[int]], timestamp: int, bound: Bound
) -> int | None:
    """Do as :func:`choose` if each of the increasing times costs a request: fetch only some times.

    :param count: number of times
    :param time: returns the time at a position
    """
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        middle_time = await time(middle)
        if middle_time < timestamp or (bound == "end" and middle_time == timestamp):
            low = middle + 1
        else:
            high = middle
    position = low if bound == "start" else low - 1
    return position if 0 <= position < count else None
