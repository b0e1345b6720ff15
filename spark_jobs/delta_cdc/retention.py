"""How long a table's log and removed files stay, and what that means for a watermark."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_cdc.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.log.table import TableState
    from delta_cdc.reconcile import Proof

FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
#: Delta's defaults.
_DEFAULTS = {FILE_RETENTION: "interval 1 week", LOG_RETENTION: "interval 30 days"}

_PART = re.compile(r"(-?\d+)\s+([a-z]+?)s?(?=\s|$)")
_UNITS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}


def text_of(name: str, configuration: Mapping[str, str]) -> str:
    """Return a retention property as it is set, or Delta's default."""
    return configuration.get(name, _DEFAULTS[name])


def milliseconds_of(name: str, configuration: Mapping[str, str]) -> int:
    """Return a retention property in milliseconds.

    :raises InvalidConfiguration: where it is not readable
    """
    return interval_ms(text_of(name, configuration))


def interval_ms(text: str) -> int:
    """Read one of Delta's intervals (``interval 1 week``, ``2 days 12 hours``) in milliseconds.

    :raises InvalidConfiguration: for anything else, months included: Delta has no such retention
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(rest)
    left = _PART.sub("", rest).strip()
    if not parts or left or any(unit not in _UNITS for _, unit in parts):
        raise InvalidConfiguration(
            f"The interval {text!r} of a table property is not readable.",
            remedy="write it as Delta does, for instance 'interval 7 days'.",
        )
    return sum(int(number) * _UNITS[unit] for number, unit in parts) // 1000


def readable(milliseconds: int) -> str:
    """Return a span of time as people read it."""
    hours = milliseconds / 3_600_000
    if hours >= 24:
        return f"{hours / 24:.1f} days"
    return f"{hours:.1f} hours" if hours >= 1 else f"{milliseconds / 60_000:.0f} minutes"


def seal_due_at(source: TableState, proof: Proof) -> int:
    """Return when an idle pipeline has to seal anew, epoch milliseconds; 0 is at once.

    The sealed commit leaves the target's log some day, and the watermark the source's. At half of the
    shortest of these retentions the watermark moves to the newest version, under a new seal. A repair makes a
    new seal and leaves the watermark where it is, so how old that is cannot be told from it.
    """
    if proof.commit is None or _is_repaired(source, proof):
        return 0
    return proof.commit.timestamp + _shortest(source, proof) // 2


def _is_repaired(source: TableState, proof: Proof) -> bool:
    seal = proof.seal
    return seal is not None and seal.step.kind == "repair" and seal.watermark < source.version


def _shortest(source: TableState, proof: Proof) -> int:
    return min(
        milliseconds_of(LOG_RETENTION, proof.target.configuration),
        milliseconds_of(LOG_RETENTION, source.configuration),
        milliseconds_of(FILE_RETENTION, source.configuration),
    )


def reseal_due(source: TableState, proof: Proof, now_ms: int) -> str | None:
    """Say why an idle pipeline has to seal anew; None where it is not due (see :func:`seal_due_at`)."""
    if proof.commit is None:
        return "The commit that carried the watermark is gone from the target's log: it is sealed anew."
    if _is_repaired(source, proof):
        return (
            "The newest seal is that of a repair, which left the watermark where it was: it is sealed anew."
        )
    if now_ms <= seal_due_at(source, proof):
        return None
    age, limit = now_ms - proof.commit.timestamp, _shortest(source, proof)
    return (
        f"The watermark was sealed {readable(age)} ago, more than half of the shortest retention of source "
        f"and target ({readable(limit)}): it is sealed anew."
    )
