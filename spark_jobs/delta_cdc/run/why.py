"""Answers why a row is so: plans from the logs, reads one key in Spark, and goes on upstream."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core import codec
from delta_cdc.core.errors import DeltaCdcError, JobFailed
from delta_cdc.core.why import Found
from delta_cdc.planning.plan import readable
from delta_cdc.planning.why import plan_why_async
from delta_cdc.run.rounds import in_rounds

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.spec import BatchSpec, JobResult, WhySpec
    from delta_cdc.core.why import Answer
    from delta_cdc.planning.why import WhyRequest
    from delta_cdc.run.loop import Say
    from delta_cdc.run.rounds import Application

logger = logging.getLogger(__name__)

#: How many pipelines of a chain one answer includes.
_MOST_STAGES = 5


def run_why(
    request: WhyRequest, *, execute: Callable[[BatchSpec], JobResult], say: Say = logger.info
) -> Answer:
    """Answer a question, and the same question for the source if another pipeline fills it.

    :param execute: runs a batch in Spark
    :raises DeltaCdcError: the question has no answer; the error says why
    """

    async def answered(one: WhyRequest, application: Application) -> Answer:
        return await _answered(one, application, say, _MOST_STAGES)

    (answer,) = in_rounds(answered, [request], execute, run_id=request.run_id)
    return answer


async def _answered(request: WhyRequest, application: Application, say: Say, stages: int) -> Answer:
    plan = await plan_why_async(request)
    assert plan.spec is not None
    say(f"Reading at most {_size(plan.spec)} of {plan.spec.source_uri} for {plan.spec.target_uri}.")
    result = await application.run(plan.spec)
    if result.error is not None:
        raise DeltaCdcError.from_dict(result.error)
    if result.status != "committed" or not result.tables:
        raise JobFailed(
            f"The row of {plan.spec.target_uri} could not be read: {result.message or result.status}.",
            remedy="look into Spark's log, and ask again: nothing was written.",
        )
    answer = await plan.outcome.answer(codec.decoded(Found, result.tables[0]))
    if answer.erased is not None:
        # The source may still have the key, and an answer must not show it.
        return answer
    further = await plan.outcome.upstream()
    if isinstance(further, str):
        return replace(answer, notes=(*answer.notes, further))
    if further is None or stages <= 1:
        return answer
    try:
        return replace(answer, upstream=await _answered(further, application, say, stages - 1))
    except DeltaCdcError as error:
        return replace(answer, notes=(*answer.notes, f"The source has no answer: {error}"))


def _size(spec: WhySpec) -> str:
    """Return how much of the source the job may read, for people."""
    if not spec.options.takes_events:
        return readable(spec.input_bytes or 0)
    return readable(spec.most_bytes if spec.source_size is None else min(spec.source_size, spec.most_bytes))
