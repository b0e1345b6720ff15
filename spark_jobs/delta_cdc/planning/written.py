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
    metrics = commit.info.operation_metrics
    counts = {name: int(metrics[metric]) for metric, name in _METRICS.items() if metric in metrics}
    if not counts and "numOutputRows" in metrics:
        counts = {"inserted": int(metrics["numOutputRows"])}
    return {**counts, **seal.step.counts}


def bytes_of(commits: Iterable[Commit]) -> int:
    """Return the size of the files that commits added, change files included."""
    return sum(commit.bytes_added + commit.bytes_cdc for commit in commits)
