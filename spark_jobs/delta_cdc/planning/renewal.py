"""Decides when to renew the recorded watermark of an idle pipeline, before retention removes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.retention import FILE_RETENTION, LOG_RETENTION, milliseconds_of, readable

if TYPE_CHECKING:
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.reconcile import RecordedWatermark


def seal_due_at(source: TableState, recorded: RecordedWatermark) -> int:
    """Return when an idle pipeline has to renew its seal, in epoch milliseconds; 0: immediately.

    Retention eventually removes the sealed commit from the target's log, and the watermark's version from the
    source's log. At half of the shortest of these retentions, a new seal moves the watermark to the newest
    version. A repair makes a new seal but keeps the watermark, so its seal does not show the watermark's age.
    """
    if recorded.commit is None or _is_repaired(source, recorded):
        return 0
    return recorded.commit.timestamp + _shortest(source, recorded) // 2


def _is_repaired(source: TableState, recorded: RecordedWatermark) -> bool:
    seal = recorded.seal
    return seal is not None and seal.step.kind == "repair" and seal.watermark.version < source.version


def _shortest(source: TableState, recorded: RecordedWatermark) -> int:
    return min(
        milliseconds_of(LOG_RETENTION, recorded.target.configuration),
        milliseconds_of(LOG_RETENTION, source.configuration),
        milliseconds_of(FILE_RETENTION, source.configuration),
    )


def renewal_due(source: TableState, recorded: RecordedWatermark, now_ms: int) -> str | None:
    """Return why an idle pipeline has to renew its seal; None if it is not due (see :func:`seal_due_at`)."""
    if recorded.commit is None:
        return "The target's log no longer has the commit with the watermark. The run renews the seal."
    if _is_repaired(source, recorded):
        return "The newest seal is of a repair, which does not move the watermark. The run renews the seal."
    if now_ms <= seal_due_at(source, recorded):
        return None
    age, limit = now_ms - recorded.commit.timestamp, _shortest(source, recorded)
    return (
        f"The seal of the watermark is {readable(age)} old, which is more than half of the shortest "
        f"retention of source and target ({readable(limit)}). The run renews the seal."
    )
