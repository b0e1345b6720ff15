"""Read a pipeline's watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.requests import ReadRequest
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.reconcile import reconcile
from delta_cdc.planning.staging import sink

if TYPE_CHECKING:
    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.watermark import TableVersion


def versions_of(
    pipeline: str, target: str, storage_options: dict[str, str] | None = None
) -> tuple[int, int | None, str] | None:
    """Return a target's newest version, its watermark (None without one) and its id.

    :return: None without a target
    """
    recorded = reconcile(DeltaLog(target, storage_options), pipeline)
    if recorded is None:
        return None
    watermark = recorded.seal.watermark.version if recorded.seal is not None else None
    return recorded.target.version, watermark, recorded.target.table_id


def committed(request: ApplyRequest | ReadRequest) -> TableVersion | None:
    """Return the watermark that the target has recorded; None if it has no watermark. For display."""
    if request.target is None:
        assert isinstance(request, ReadRequest)
        sink_state = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
        return (
            sink_state.recorded.seal.watermark
            if sink_state is not None and sink_state.recorded.seal is not None
            else None
        )
    recorded = reconcile(DeltaLog(request.target, request.storage_options), request.pipeline)
    return recorded.seal.watermark if recorded is not None and recorded.seal is not None else None
