"""What a job that ingests is told, as tests give it without a planner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.spec import IngestSpec
from tests.support.steps import ingest_step

if TYPE_CHECKING:
    from delta_cdc.core.options import IngestOptions


def ingest_spec(options: IngestOptions, source: str = "/in", log: str = "/log", **more: Any) -> IngestSpec:
    """Return the spec of a first batch.

    :param more: further fields, such as files or offsets
    """
    return IngestSpec(
        pipeline="p",
        run_id="r",
        source_uri=source,
        log_uri=log,
        ingested_uri=f"{log}__ingested",
        quarantine_uri=f"{log}__quarantine",
        options=options,
        steps=(ingest_step(),),
        **more,
    )
