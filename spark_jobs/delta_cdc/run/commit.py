"""The flow of a commit: a staged batch has arrived where it was to go."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.errors import ConcurrentModification
from delta_cdc.core.spec import fingerprint
from delta_cdc.core.uris import canonical_uri
from delta_cdc.core.versions import VersionRange
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.commit import plan_commit
from delta_cdc.planning.reconcile import own_commits
from delta_cdc.planning.staging import newest_commit, sink
from delta_cdc.run.loop import Say, identified, named, pause
from delta_cdc.run.outcomes import CommitResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.spec import CommitSpec, JobResult
    from delta_cdc.core.watermark import Seal
    from delta_cdc.planning.commit import CommitPlan
    from delta_cdc.planning.request import CommitRequest

logger = logging.getLogger(__name__)


def run_commit(
    request: CommitRequest,
    *,
    execute: Callable[[CommitSpec], JobResult],
    say: Say = logger.info,
    max_attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> CommitResult:
    """Commit the open batch of a staging table, and prove it from the table's log.

    Where it was committed before, ``execute`` is not called; if an earlier try of the same run did it
    (``request.run_id``), the result is that try's.

    :param execute: runs the spec in Spark
    :param say: takes one line per step
    :param max_attempts: how often to plan at most, where races are lost
    :param sleep: waits for so many seconds before planning again
    :raises NoOpenBatch: nothing was read yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the one that is to be committed
    :raises ConcurrentModification: every attempt lost
    """
    request = identified(request)
    plan = plan_commit(request)
    if plan.spec is None:
        return _committed_before(request, plan, say)
    # Whatever is read meanwhile: this batch is the one that has arrived.
    versions = VersionRange(plan.spec.step.starting_version, plan.spec.step.ending_version)
    request = replace(request, ending_version=versions.ending_version)
    specs: list[CommitSpec] = []
    for attempt in range(1, max_attempts + 1):
        assert plan.spec is not None
        say(f"Committing versions {versions} in {canonical_uri(request.staging)} (attempt {attempt}).")
        specs.append(plan.spec)
        result, failure = _tried(execute, plan.spec)
        plan = plan_commit(request)
        if plan.spec is None:
            return _there(request, plan, versions, specs, say)
        if failure is not None:
            raise failure
        assert result is not None
        if result.status == "failed":
            raise named(result, request.pipeline)
        said = f"Not committed ({result.status}: {result.message or 'no reason'})"
        pause(said, attempt, max_attempts, say, sleep)
    raise ConcurrentModification(
        f"Another writer won the race for {canonical_uri(request.staging)} {max_attempts} times in a row "
        f"(pipeline {request.pipeline}).",
        remedy="run again; let one run per pipeline be active at a time.",
    )


def _there(
    request: CommitRequest, plan: CommitPlan, versions: VersionRange, specs: list[CommitSpec], say: Say
) -> CommitResult:
    """Return the result where the batch is committed: by a plan of ours, or by a faster run."""
    log, planned_on = DeltaLog(request.staging, request.storage_options), specs[0].step.planned_on
    after = planned_on.version if planned_on is not None else -1
    plans = [fingerprint(spec) for spec in specs]
    if run_sync(own_commits(log, request.pipeline, plans, after)):
        say(f"Committed versions {versions}: {_standing(request, plan)}.")
        return _committed(request, plan, versions)
    say(f"Another run has committed versions {versions}: {_standing(request, plan)}.")
    return _committed(request, plan, None)


def _tried(
    execute: Callable[[CommitSpec], JobResult], spec: CommitSpec
) -> tuple[JobResult | None, Exception | None]:
    try:
        return execute(spec), None
    except Exception as error:  # noqa: BLE001 - whatever ended the job, the log decides
        return None, error


def _committed_before(request: CommitRequest, plan: CommitPlan, say: Say) -> CommitResult:
    versions = _own_batch(request)
    if versions is None or request.ending_version not in (None, versions.ending_version):
        say(f"Nothing to commit: {_standing(request, plan)} already.")
        return _committed(request, plan, None)
    say(f"Already committed by an earlier try of this run: versions {versions}; {_standing(request, plan)}.")
    return _committed(request, plan, versions)


def _own_batch(request: CommitRequest) -> VersionRange | None:
    log = DeltaLog(request.staging, request.storage_options)
    seal = run_sync(newest_commit(log, request.pipeline))
    if seal is None or not request.run_id or seal.step.run_id != request.run_id:
        return None
    return VersionRange(seal.step.starting_version, seal.step.ending_version)


def committed_by_run(request: CommitRequest) -> CommitResult | None:
    """Return the newest batch that was committed, if ``request.run_id`` did it: a try before, that died.

    :return: None where the newest is another run's, or there is none
    """
    versions = _own_batch(request)
    return None if versions is None else replace(committed_so_far(request), applied=True, versions=versions)


def committed_so_far(request: CommitRequest) -> CommitResult:
    """Return what was committed before, and commit nothing, whatever batch is open.

    :raises InvalidConfiguration: staging is filled for a target, in which the watermark stands
    """
    found = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
    seal = found.proof.seal if found is not None else None
    version = found.proof.target.version if found is not None else None
    return _result_of(request, seal, version, None)


def _standing(request: CommitRequest, plan: CommitPlan) -> str:
    assert plan.seal is not None
    return f"the watermark in {canonical_uri(request.staging)} is {plan.seal.watermark}"


def _committed(request: CommitRequest, plan: CommitPlan, versions: VersionRange | None) -> CommitResult:
    return _result_of(request, plan.seal, plan.staging_version, versions)


def _result_of(
    request: CommitRequest, seal: Seal | None, version: int | None, versions: VersionRange | None
) -> CommitResult:
    return CommitResult(
        applied=versions is not None,
        versions=versions,
        watermark=seal.watermark if seal is not None else None,
        pipeline=request.pipeline,
        seal=seal.number if seal is not None else None,
        source_table=canonical_uri(seal.source_uri) if seal is not None else None,
        staging=canonical_uri(request.staging),
        staging_version=version,
    )
