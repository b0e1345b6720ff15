"""Verifies targets: the logs in this process, the rows of all targets in one Spark application."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.checks import CURRENT_EQUALS_HISTORY, EQUALS_SOURCE, Check, Verification, skipped
from delta_cdc.core.errors import DeltaCdcError, JobFailed, VerificationFailed
from delta_cdc.core.text_table import grid
from delta_cdc.planning.verify import plan_verify_async, was_declared
from delta_cdc.run.rounds import in_rounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from delta_cdc.core.spec import BatchSpec, JobResult
    from delta_cdc.planning.verify import VerifyRequest
    from delta_cdc.run.loop import Say
    from delta_cdc.run.rounds import Application

logger = logging.getLogger(__name__)

#: A fast writer may make the planned version unreadable before the job reads it; then verify plans again.
_TRIES = 3


def run_verify(
    requests: Sequence[VerifyRequest | Verification],
    *,
    execute: Callable[[BatchSpec], JobResult],
    run_id: str = "",
    parallel: int = 4,
    say: Say = logger.info,
) -> list[Verification]:
    """Verify targets. If the logs decide all requested checks, ``execute`` is not called.

    An error of one target is in its own result, and does not affect the others.

    :param requests: a target whose arguments cannot be used has its result already
    :param execute: runs a batch in Spark
    :param parallel: how many tables Spark checks at once
    :return: one result per request, in order
    """

    async def verified(request: VerifyRequest | Verification, application: Application) -> Verification:
        if isinstance(request, Verification):
            return request
        try:
            return await _verified(request, application, say)
        except DeltaCdcError as error:
            return Verification(request.pipeline, request.target, error=error)

    def checked(batch: BatchSpec) -> JobResult:
        say(f"Checking the rows of {len(batch.parts)} table(s).")
        return execute(batch)

    return in_rounds(verified, requests, checked, run_id=run_id, parallel=parallel)


async def _verified(request: VerifyRequest, application: Application, say: Say) -> Verification:
    """Return what the logs decide, and what the job found.

    :raises DeltaCdcError: there is no plan
    """
    for attempt in range(1, _TRIES + 1):
        plan = await plan_verify_async(request)
        planned = plan.outcome
        if plan.spec is None:
            return planned
        try:
            result = await application.run(plan.spec)
            if result.status == "committed":
                return await _with_rows(request, planned, [Check.from_dict(row) for row in result.tables])
        except DeltaCdcError as failure:
            return replace(planned, error=failure)
        if result.status != "stale" or attempt == _TRIES:
            break
        say(f"{planned.table}: {result.message} The run plans this table again.")
    if result.error is not None:
        return replace(planned, error=DeltaCdcError.from_dict(result.error))
    error = JobFailed(
        f"The rows of {planned.table} could not be checked: {result.message or result.status}.",
        remedy="look into Spark's log, and run again: nothing was written.",
    )
    return replace(planned, error=error)


async def _with_rows(request: VerifyRequest, planned: Verification, checks: list[Check]) -> Verification:
    """Return what the logs decided, and the checks of the rows."""
    wrong = [check for check in checks if check.check == EQUALS_SOURCE and check.status == "finding"]
    try:
        declared = (
            bool(wrong) and planned.version is not None and await was_declared(request, planned.version)
        )
    except DeltaCdcError as log_error:
        return replace(planned, checks=(*planned.checks, *checks), error=log_error)
    if declared:
        # Rows of a baseline were never compared with the source, so a difference proves nothing.
        text = f"initial_load took the existing rows of the target as they were: {wrong[0].detail}"
        checks.remove(wrong[0])
        checks.append(skipped(EQUALS_SOURCE, f"{text} mode='reload' makes them equal to the source."))
    return replace(planned, checks=(*planned.checks, *checks))


def raise_if_wrong(results: Sequence[Verification], *, findings: bool = True) -> None:
    """Raise the findings and errors of a verification.

    :param findings: whether findings are an error
    :raises VerificationFailed: names the first findings, and what to do about them
    :raises DeltaCdcError: a target could not be checked
    """
    wrong = [(result, check) for result in results for check in result.findings]
    if wrong and findings:
        tables = len({result.table for result, _ in wrong})
        first = " ".join(_sentence(result, check) for result, check in wrong[:3])
        rest = f" {len(wrong) - 3} more are in the table above." if len(wrong) > 3 else ""
        raise VerificationFailed(
            f"{len(wrong)} check(s) of {tables} table(s) failed. {first}{rest}",
            remedy=wrong[0][1].remedy,
        )
    for result in results:
        if result.error is not None:
            raise result.error


def _sentence(result: Verification, check: Check) -> str:
    samples = f" For instance {'; '.join(check.samples[:2])}." if check.samples else ""
    return f"{result.pipeline} ({result.table}), {check.check}: {check.detail}{samples}"


# -- for people -----------------------------------------------------------------------------------
def text_of(results: Sequence[Verification]) -> str:
    """Return a table of all checks, and a line for each finding and each comparison that was not made."""
    names = list(dict.fromkeys(check.check for result in results for check in result.checks))
    rows = [_row(result) for result in results]
    return "\n".join([grid(rows, ["pipeline", "version", *names]), *_lines(results)])


def _row(result: Verification) -> dict[str, Any]:
    cells = {"ok": "ok", "skipped": "-"}
    checks = {check.check: cells.get(check.status, f"{check.count} WRONG") for check in result.checks}
    return {"pipeline": result.pipeline, "version": result.version, **checks}


def _lines(results: Sequence[Verification]) -> Iterator[str]:
    for result in results:
        if result.error is not None:
            yield f"{result.pipeline}: {type(result.error).__name__}: {result.error}"
        for check in result.checks:
            if check.status == "finding":
                samples = f" ({'; '.join(check.samples)})" if check.samples else ""
                yield f"{result.pipeline}, {check.check}: {check.detail}{samples} Remedy: {check.remedy}"
            elif check.status == "skipped" and _is_explained(check):
                yield f"{result.pipeline}, {check.check}: skipped: {check.detail}"


def _is_explained(check: Check) -> bool:
    """Return whether to explain a skipped check: a comparison that the user requested."""
    return check.check == EQUALS_SOURCE or (
        check.check == CURRENT_EQUALS_HISTORY and "(current)" not in check.detail
    )
