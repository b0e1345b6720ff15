"""Run any request: plan it, run its job, confirm the commit in the log, and return the outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.requests import ApplyRequest, CommitRequest, IngestRequest, ReadRequest
from delta_cdc.run.apply import Applying
from delta_cdc.run.commit import Committing
from delta_cdc.run.ingest import Ingesting
from delta_cdc.run.loop import run_alone
from delta_cdc.run.read import Reading

if TYPE_CHECKING:
    from delta_cdc.run.loop import Run, Services
    from delta_cdc.run.outcomes import Outcome

#: The flow of each type of request.
FLOWS: dict[type, type[Run[Any, Any, Any]]] = {
    ApplyRequest: Applying,
    ReadRequest: Reading,
    CommitRequest: Committing,
    IngestRequest: Ingesting,
}


def run(request: ApplyRequest | ReadRequest | CommitRequest | IngestRequest, services: Services) -> Outcome:
    """Do what a request says, exactly once.

    Without work, no job runs. If the process dies, the next call reads from the log whether the commit was
    made. If another writer was faster, the run waits, reads the watermark and plans again.

    :raises ConcurrentModification: another writer won every race
    :raises OutcomeUnknown: the job reported a commit that the log does not show
    :raises DeltaCdcError: the named error that the job or a check reported
    """
    return run_alone(FLOWS[type(request)], request, services)
