"""What earlier tries of a run saved outside the logs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.planning.topics import Looks


def plan_key(pipeline: str, table: str) -> str:
    """Return the key of the saved plans of one pipeline for one table.

    :param table: the id of the source table; for an ingest, the canonical URI of its change log
    """
    return f"pin:{pipeline}:{table}"


def _nothing(_: str) -> int | None:
    return None


@dataclass(frozen=True)
class Memory:
    """State saved outside the logs; all of it is optional.

    :param end: returns the range's end that an earlier try of the same work decided, by :func:`plan_key`
    :param number: returns the seal number of that try, if it found no target, by :func:`plan_key`
    :param backup: returns the watermark backup
        (:meth:`delta_cdc.planning.reconcile.WatermarkBackup.to_dict`), which
        replaces a sealed commit that was cleaned from the target's log
    :param now_ms: the time in epoch milliseconds; None: now
    :param looks: connections to Kafka that several plans share (:class:`delta_cdc.planning.topics.Looks`)
    """

    end: Callable[[str], int | None] = _nothing
    number: Callable[[str], int | None] = _nothing
    backup: Callable[[], Any] | None = None
    now_ms: int | None = None
    looks: Looks | None = None
