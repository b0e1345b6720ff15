"""What is known before and after a flow: the watermark as it stands, and that a result has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.reconcile import reconcile
from delta_cdc.planning.request import ReadRequest
from delta_cdc.planning.staging import sink

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplyRequest
    from delta_cdc.core.watermark import TableVersion
    from delta_cdc.run.outcomes import ApplyResult, IngestResult
    from delta_cdc.run.saved_plans import Pins


def published(result: ApplyResult | IngestResult, pins: Pins) -> None:
    """Say that a result has reached everybody who is to know it; the last thing a caller does.

    Before this, the same work done again gives the same result, ``applied`` included; after it, there is
    nothing to do.
    """
    pins.delete(result.pin_key)


def versions_of(
    pipeline: str, target: str, storage_options: dict[str, str] | None = None
) -> tuple[int, int | None] | None:
    """Return a target's newest version, and its watermark, None without one; None where no target is."""
    proof = reconcile(DeltaLog(target, storage_options), pipeline)
    if proof is None:
        return None
    return proof.target.version, proof.seal.watermark.version if proof.seal is not None else None


def committed(request: ApplyRequest | ReadRequest) -> TableVersion | None:
    """Return the watermark that the target proves now; None where there is none. For display."""
    if request.target is None:
        assert isinstance(request, ReadRequest)
        found = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
        return found.proof.seal.watermark if found is not None and found.proof.seal is not None else None
    proof = reconcile(DeltaLog(request.target, request.storage_options), request.pipeline)
    return proof.seal.watermark if proof is not None and proof.seal is not None else None
