"""What is known before and after a flow: the watermark as it stands, and that a result has arrived."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan import ReadRequest
from delta_cdc.plan.staging import sink
from delta_cdc.reconcile import reconcile

if TYPE_CHECKING:
    from delta_cdc.flow.pins import Pins
    from delta_cdc.flow.results import ApplyResult, IngestResult
    from delta_cdc.plan import ApplyRequest
    from delta_cdc.watermark import Watermark


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
    return proof.target.version, proof.seal.watermark if proof.seal is not None else None


def committed(request: ApplyRequest | ReadRequest) -> Watermark | None:
    """Return the watermark that the target proves now; None where there is none. For display."""
    if request.target is None:
        assert isinstance(request, ReadRequest)
        found = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
        return found.proof.seal.mark if found is not None and found.proof.seal is not None else None
    proof = reconcile(DeltaLog(request.target, request.storage_options), request.pipeline)
    return proof.seal.mark if proof is not None and proof.seal is not None else None
