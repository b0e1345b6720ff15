"""One Spark application for all tables of a group that have work."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine, tables
from airflow_delta_cdc.groups.base import GroupOperator, Item, WorkPins, has_target, is_dry, pieces_of
from delta_cdc.core.errors import JobFailed, TableNotFound

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_cdc.core.errors import DeltaCdcError
    from delta_cdc.run.batch import PipelineJob, PipelineResult

#: Characters of an error, and of all errors together, that an XCom takes; the log has them whole.
_MOST_OF_AN_ERROR, _MOST_OF_ERRORS = 1000, 12 * 1024


class RunSparkOperator(GroupOperator):
    """Run the work of many tables in one Spark application, each with a result of its own.

    The XCom ``return_value`` holds for each pipeline its ``status`` (``applied``, ``ingested``, ``nothing``,
    ``planned`` of a dry run, ``failed``, or ``unfinished``, which another try may mend), its ``error``, and
    the ``pins`` by which its own task knows what was done. Publishing is left to that task: here nothing is
    announced, and a table that fails stops no other.

    :param work: output of ``detect_changes`` (a template field, so that it arrives here; its values are no
        templates)
    :param parallel: how many tables are worked on at the same moment
    :raises TablesFailed: the application died before all tables were through
    """

    template_fields = ("work", *GroupOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"work": "json"}
    ui_color = "#cfe8fc"

    def __init__(self, *, work: Any, parallel: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.work = work
        self.parallel = parallel

    def execute(self, context: Context) -> dict[str, Any]:
        """Run what is to be run; nothing to do starts nothing."""

        items = [item for item in (Item(**one) for one in self.work or ()) if not item.failed]
        if not items:
            self.log.info("No table has work.")
            return {}
        saved_plans = [WorkPins(context, item.stamp, item.saved_plans) for item in items]
        found = zip(items, saved_plans, pieces_of(self, context, items), strict=True)
        work = [
            (item, saved_plan, _piece(item, pipeline_job, saved_plan))
            for item, saved_plan, pipeline_job in found
            if _needs_spark(item)
        ]
        with self.application(context) as execute:
            outcomes = engine.run_batch(
                [pipeline_job for _, _, pipeline_job in work],
                run_id=self.work_id(context),
                execute=execute,
                say=self.log.info,
                parallel=self.parallel,
            )
        for outcome in outcomes:
            if outcome.error is not None:
                self.log.error("%s: %s: %s", outcome.pipeline, type(outcome.error).__name__, outcome.error)
        self.log.info("%s.", tables.counted(outcomes))
        stamp = uuid.uuid4().hex[:12]
        answer = {
            item.pipeline: {"detected": item.stamp} | _answer(outcome, item, saved_plan, stamp, len(outcomes))
            for outcome, (item, saved_plan, _) in zip(outcomes, work, strict=True)
        }
        # Before anything is forgotten; and a task that fails pushes nothing by itself.
        context["ti"].xcom_push(key="return_value", value=answer)
        died = [one for one in outcomes if one.unanswered and isinstance(one.error, JobFailed)]
        # A retry of this very task needs its pins; all others find them in what it has pushed.
        tables.raise_failures(died, len(outcomes))
        for saved_plan in saved_plans:
            saved_plan.leave()
        return answer


def _piece(item: Item, pipeline_job: PipelineJob, saved_plans: WorkPins) -> PipelineJob:
    """Return what is to be run of an item; of a dry run only what needs Spark."""
    if is_dry(item.table):
        return replace(pipeline_job, ingest=None)
    return replace(pipeline_job, saved_plans=saved_plans, since=item.since)


def _needs_spark(item: Item) -> bool:
    return has_target(item.table) or not is_dry(item.table)


def _answer(
    outcome: PipelineResult, item: Item, saved_plans: WorkPins, stamp: str, number: int
) -> dict[str, Any]:
    """Return what is published of one table.

    :param stamp: of this try, by which the table's own task answers an error once
    :param number: how many tables share the XCom
    """
    error = outcome.error
    if is_dry(item.table):
        return _dry_answer(outcome, stamp, number)
    found: dict[str, Any] = {"status": tables.status(outcome), "saved_plans": saved_plans.touched()}
    return found if error is None else {**found, **_failed(error, stamp, number)}


def _dry_answer(outcome: PipelineResult, stamp: str, number: int) -> dict[str, Any]:
    if outcome.error is not None:
        # Without a log there is nothing to show of its target.
        missing = isinstance(outcome.error, TableNotFound)
        return {"status": "nothing"} if missing else _failed(outcome.error, stamp, number)
    assert outcome.applied is not None
    return {"status": "planned", "dry_run": tables.shortened(outcome.applied.to_dict(), tables=number)}


def _failed(error: DeltaCdcError, stamp: str, number: int) -> dict[str, Any]:
    most = min(_MOST_OF_AN_ERROR, _MOST_OF_ERRORS // number)
    shown = {
        name: text if len(text) <= most else f"{text[:most]}… (cut; see the log)"
        for name, text in error.to_dict().items()
    }
    return {"status": "unfinished" if error.retryable else "failed", "error": shown, "stamp": stamp}
