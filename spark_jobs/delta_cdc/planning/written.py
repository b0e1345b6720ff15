"""Returns what sealed commits wrote, from the logs: rows by kind, and bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit

_METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
}


def sealed_counts(seal: Seal, commit: Commit) -> dict[str, int]:
    """Return the counts of a sealed commit: the metrics of Delta, and the counts that the job wrote in
    the seal."""
    metrics = {name: commit.info.metric(metric) for metric, name in _METRICS.items()}
    if not any(metric in commit.info.operation_metrics for metric in _METRICS):
        metrics = {"inserted": commit.info.metric("numOutputRows")}
    counts = {name: number for name, number in metrics.items() if number is not None}
    return {**counts, **seal.step.counts}


def bytes_of(commits: Iterable[Commit]) -> int:
    """Return the size of the files that commits added, change files included."""
    return sum(commit.bytes_added + commit.bytes_cdc for commit in commits)
