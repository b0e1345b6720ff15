"""Reports what an ingest has ingested, from its change log and the record beside it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.change_log import LOG_COLUMNS
from delta_cdc.core.text_table import plural
from delta_cdc.planning.ingest_batches import Standing, partition_name
from delta_cdc.planning.plan import readable
from delta_cdc.planning.taken_files import taken

if TYPE_CHECKING:
    from collections.abc import Iterator

    from delta_cdc.planning.reconcile import RecordedWatermark


@dataclass(frozen=True)
class IngestStatus:
    """The status of an ingest.

    :param files: number of ingested files; a file that was delivered several times counts once
    :param size: their size in bytes
    :param positions: ``topic/partition`` -> the first offset that was not ingested
    :param pending: number of a batch that is recorded but not in the log yet; None without such a batch
    :param findings: problems that need attention, one sentence each
    """

    files: int = 0
    size: int = 0
    positions: dict[str, int] = field(default_factory=dict)
    pending: int | None = None
    findings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "files": self.files,
            "bytes": self.size,
            "positions": self.positions,
            "pending": self.pending,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield readable lines, each with its label."""
        if self.files or not self.positions:
            yield "taken", f"{plural(self.files, 'file')}, {readable(self.size)}"
        for name, position in sorted(self.positions.items()):
            yield "taken", f"{name} up to offset {position}"
        if self.pending is not None:
            yield "pending", f"batch {self.pending} is recorded, and its events are not in the log yet"


def is_ingested(recorded: RecordedWatermark | None) -> bool:
    """Return whether a table is a change log that ingests fill."""
    if recorded is None:
        return False
    if recorded.seal is not None:
        return recorded.seal.state.applied_to is None
    return all(name in recorded.target.schema_columns for name in LOG_COLUMNS)


async def ingest_status(
    log: str, pipeline: str, recorded: RecordedWatermark, storage_options: dict[str, str] | None, now_ms: int
) -> IngestStatus:
    """Return the status of a change log's ingest. Starts no process and writes nothing.

    :param log: location of the change log
    """
    standing = Standing(recorded, await taken(log, pipeline, storage_options), now_ms)
    counted = standing.counted
    findings = []
    if standing.found_lost:
        findings.append(
            f"{standing.found_lost} The next run compares input that is not in the record with the log, "
            "which takes longer."
        )
    return IngestStatus(
        files=len(counted.files),
        size=sum(size for size, _, _ in counted.files.values()),
        positions={partition_name(*key): offset for key, offset in counted.positions.items()},
        pending=standing.pending,
        findings=tuple(findings),
    )
