"""Verifies targets: the logs here, the rows of all of them in one Spark application."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.checks import CHECKS, EQUALS_SOURCE, Check, skipped
from delta_cdc.core.concurrency import settled
from delta_cdc.core.errors import DeltaCdcError, JobFailed, VerificationFailed
from delta_cdc.core.spec import BundleSpec, JobResult
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.verify import plan_verify_async, was_declared

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.planning.verify import VerifyPlan
    from delta_cdc.planning.verify_request import VerifyRequest
    from delta_cdc.run.loop import Say

logger = logging.getLogger(__name__)

#: A writer may be so fast that the version that was planned on cannot be read any more.
_TRIES = 3


@dataclass(frozen=True)
class Verification:
    """What became of the verification of one target.

    :param pipeline: its pipeline
    :param table: its location
    :param version: its version, as of which everything was looked at; None where there is no table
    :param checks: one per check that was asked for
    :param error: why nothing, or not all of it, could be looked at
    """

    pipeline: str
    table: str
    version: int | None = None
    checks: tuple[Check, ...] = ()
    error: DeltaCdcError | None = None

    @property
    def findings(self) -> tuple[Check, ...]:
        """Return the checks that found something."""
        return tuple(one for one in self.checks if one.status == "finding")

    def to_rows(self) -> list[dict[str, Any]]:
        """Return the plain JSON form that is published: one entry per check."""
        place = {"pipeline": self.pipeline, "table": self.table, "version": self.version}
        return [{**place, **one.to_dict()} for one in self.checks]


def run_verify(
    requests: Sequence[VerifyRequest],
    *,
    execute: Callable[[BundleSpec], JobResult],
    mirrors: Sequence[Callable[[], Any] | None] = (),
    run_id: str = "",
    parallel: int = 4,
    say: Say = logger.info,
) -> list[Verification]:
    """Verify targets. Where the logs tell all that was asked for, ``execute`` is not called.

    What goes wrong with one target is in its own result, and stops no other.

    :param execute: runs a bundle in Spark
    :param mirrors: per request, what returns the copy of the seal that is kept outside its target
    :param parallel: how many tables Spark looks at in the same moment
    :return: one result per request, in order
    """
    copies = [*mirrors, *[None] * (len(requests) - len(mirrors))]
    found: list[Verification | None] = [None] * len(requests)
    left = list(range(len(requests)))
    for attempt in range(1, _TRIES + 1):
        plans = run_sync(_planned([requests[at] for at in left], [copies[at] for at in left]))
        work: list[tuple[int, VerifyPlan]] = []
        for at, plan in zip(left, plans, strict=True):
            if isinstance(plan, DeltaCdcError):
                found[at] = Verification(requests[at].pipeline, requests[at].target, error=plan)
            elif plan.spec is None:
                found[at] = _of(requests[at], plan, ())
            else:
                work.append((at, plan))
        left = []
        if not work:
            break
        say(f"Looking at the rows of {len(work)} table(s).")
        for (at, plan), result in zip(work, _executed(execute, run_id, parallel, work), strict=True):
            if result.status == "stale" and attempt < _TRIES:
                say(f"{plan.uri}: {result.message} Looking again.")
                left.append(at)
            else:
                found[at] = _finished(requests[at], plan, result)
    return [one for one in found if one is not None]


async def _planned(
    requests: Sequence[VerifyRequest], copies: Sequence[Callable[[], Any] | None]
) -> list[VerifyPlan | DeltaCdcError]:
    looks = (plan_verify_async(one, mirror=copy) for one, copy in zip(requests, copies, strict=True))
    plans: list[VerifyPlan | DeltaCdcError] = []
    for one in await settled(looks):
        if isinstance(one, Exception) and not isinstance(one, DeltaCdcError):
            raise one
        plans.append(one)
    return plans


def _executed(
    execute: Callable[[BundleSpec], JobResult],
    run_id: str,
    parallel: int,
    work: Sequence[tuple[int, VerifyPlan]],
) -> list[JobResult]:
    specs = tuple(plan.spec for _, plan in work if plan.spec is not None)
    result = execute(BundleSpec(run_id, specs, parallel=parallel))
    if result.status == "failed" and not result.parts:
        return [result] * len(specs)
    lost = JobResult(
        "failed", error=result.error, message="the application ended before it came to this table"
    )
    return [*result.parts, *[lost] * (len(specs) - len(result.parts))]


def _finished(request: VerifyRequest, plan: VerifyPlan, result: JobResult) -> Verification:
    if result.status == "committed":
        return _of(request, plan, tuple(map(Check.from_dict, result.tables)))
    error: DeltaCdcError = JobFailed(
        f"The rows of {plan.uri} could not be looked at: {result.message or result.status}.",
        remedy="look into Spark's log, and run again: nothing was written.",
    )
    if result.error is not None:
        error = DeltaCdcError.from_dict(result.error)
    return replace(_of(request, plan, ()), error=error)


def _of(request: VerifyRequest, plan: VerifyPlan, made: tuple[Check, ...]) -> Verification:
    known = {one.check: one for one in (*plan.checks, *made)}
    equal = known.get(EQUALS_SOURCE)
    if equal is not None and equal.status == "finding" and plan.version is not None:
        known[EQUALS_SOURCE] = run_sync(_unless_declared(request, plan.version, equal))
    checks = tuple(known[name] for name in CHECKS if name in known)
    return Verification(plan.pipeline, plan.uri, plan.version, checks)


async def _unless_declared(request: VerifyRequest, version: int, found: Check) -> Check:
    """Rows that were declared to be the source's were never compared with it, so they prove nothing."""
    if not await was_declared(request, version):
        return found
    why = f"rows of the target were declared (initial_load), not loaded: {found.detail}"
    return skipped(EQUALS_SOURCE, f"{why} mode='reload' brings them to what the source holds.")


def raise_if_wrong(found: Sequence[Verification], *, findings: bool = True) -> None:
    """Raise what a verification came to.

    :param findings: whether findings are an error
    :raises VerificationFailed: names what was found first, and what to do about it
    :raises DeltaCdcError: a target could not be looked at
    """
    wrong = [(one, check) for one in found for check in one.findings]
    failed = [one for one in found if one.error is not None]
    if wrong and findings:
        tables = len({one.table for one, _ in wrong})
        told = " ".join(_sentence(one, check) for one, check in wrong[:3])
        more = f" {len(wrong) - 3} more are in the table above." if len(wrong) > 3 else ""
        raise VerificationFailed(
            f"{len(wrong)} check(s) of {tables} table(s) found something. {told}{more}",
            remedy=wrong[0][1].remedy,
        )
    if failed and failed[0].error is not None:
        raise failed[0].error


def _sentence(one: Verification, check: Check) -> str:
    samples = f" For instance {'; '.join(check.samples[:2])}." if check.samples else ""
    return f"{one.pipeline} ({one.table}), {check.check}: {check.detail}{samples}"


def rows_of(found: Sequence[Verification]) -> list[dict[str, Any]]:
    """Return all results as one list of plain dicts, one per check."""
    return [row for one in found for row in one.to_rows()]
