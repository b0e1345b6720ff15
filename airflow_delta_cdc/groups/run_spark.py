"""One Spark application for all tables of a group that have work."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine
from airflow_delta_cdc.failures import described
from airflow_delta_cdc.groups.base import (
    GroupOperator,
    WorkSavedPlans,
    arguments_of_run,
    is_dry,
    jobs_of_items,
    saved_plans_of,
    takes_source,
)
from airflow_delta_cdc.groups.detect_changes import detecting
from airflow_delta_cdc.groups.xcoms import items
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.masking import for_xcom
from delta_cdc.core.errors import JobFailed, TableNotFound

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc import publishing
    from airflow_delta_cdc.groups.xcoms import Item
    from delta_cdc.core.errors import DeltaCdcError
    from delta_cdc.run.batch import PipelineJob, PipelineResult
else:
    publishing = Lazy("airflow_delta_cdc.publishing")

#: The most characters of a message or a remedy, and of those of all errors, in an XCom.
_MOST_OF_AN_ERROR, _MOST_OF_ERRORS = 1000, 12 * 1024


class RunSparkOperator(GroupOperator):
    """Run the work of many tables in one Spark application, with one result per table.

    The XCom ``return_value`` has for each pipeline its ``status`` (``applied``, ``ingested``, ``nothing``,
    ``planned`` after a dry run, ``failed``, or ``unfinished`` if a retry may succeed), its ``error``, and the
    ``saved_plans`` by which the table's own task recognizes the work, and the ``effort`` (seconds by stage,
    attempts lost). That task publishes the outcome; this one announces nothing. If a table fails, the others
    still run.

    :param work: output of ``detect_changes`` (a template field, because Airflow resolves XComs only in these;
        its values are no templates)
    :param detection: id of that task, which has the arguments of the tables
    :param parallel: the number of tables processed at once
    :raises TablesFailed: the application died before all tables were done
    :raises ConfigurationChanged: the configuration has none of the tables that have work
    :raises InvalidXCom: ``work`` is not what ``detect_changes`` returned
    """

    template_fields = ("work", *GroupOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"work": "json"}
    ui_color = "#cfe8fc"

    def __init__(self, *, work: Any, detection: str, parallel: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.work = work
        self.detection = detection
        self.parallel = parallel

    def execute(self, context: Context) -> dict[str, Any]:
        """Run the items that need Spark; without any, no process starts."""

        detection = detecting(self, self.detection)
        run = detection.form(context)
        chosen = detection.chosen(run)
        found = self._found(chosen)
        if not found:
            self.log.info("No table has work.")
            return {}
        environment = self.get_template_env()
        given = [
            arguments_of_run(self.rendered(chosen[item.pipeline], context, environment), run)
            for item in found
        ]
        jobs = jobs_of_items(self, context, found, given, detection.fingerprint)
        saved_plans = [
            WorkSavedPlans(context, item.stamp, saved_plans_of(item, pipeline_job))
            for item, pipeline_job in zip(found, jobs, strict=True)
        ]
        work = [
            (item, table, saved_plan, _part_for_spark(item, table, pipeline_job, saved_plan))
            for item, table, saved_plan, pipeline_job in zip(found, given, saved_plans, jobs, strict=True)
            if _needs_spark(table, pipeline_job)
        ]
        for item, table in zip(found, given, strict=True):
            if is_dry(table) and takes_source(table):
                self.log.info(
                    "%s: a real run would do: %s. This dry run computes only the apply, of what the log has "
                    "now; the task of the table shows the plan of the ingest.",
                    item.pipeline,
                    item.found,
                )
        with self.application(context) as execute:
            outcomes = engine.run_batch(
                [pipeline_job for *_, pipeline_job in work],
                engine.Services(execute=execute, say=self.log.info),
                run_id=self.work_id(context),
                parallel=self.parallel,
            )
        for outcome in outcomes:
            if outcome.error is not None:
                # The task itself may succeed; the table's own task fails.
                self.log.warning("%s: %s", outcome.pipeline, described(outcome.error))
        self.log.info("%s.", publishing.counted(outcomes))
        try_stamp = uuid.uuid4().hex[:12]
        answer = {
            item.pipeline: _answer(outcome, item, table, saved_plan, try_stamp, outcomes)
            for outcome, (item, table, saved_plan, _) in zip(outcomes, work, strict=True)
        }
        # Push the XCom before any plan is deleted. Airflow pushes nothing for a failed task.
        context["ti"].xcom_push(key="return_value", value=answer)
        died = [one for one in outcomes if one.unanswered and isinstance(one.error, JobFailed)]
        # A retry of this task needs the saved plans in the state store; other tasks get them by XCom.
        others = [one for one in outcomes if one not in died]
        publishing.raise_failures(died, len(outcomes), f"{publishing.counted(others, 'other')}.")
        for saved_plan in saved_plans:
            saved_plan.leave()
        return answer

    def _found(self, chosen: Mapping[str, Any]) -> list[Item]:
        """Return the items of the application.

        :raises ConfigurationChanged: the configuration has none of the tables that have work
        """
        found, gone = items(self.work, chosen)
        if gone and not found:
            raise gone[0]
        for error in gone:
            # The table's own task fails.
            self.log.warning("%s", described(error))
        return [item for item in found if not item.failed]


def _part_for_spark(
    item: Item, table: Mapping[str, Any], pipeline_job: PipelineJob, saved_plans: WorkSavedPlans
) -> PipelineJob:
    """Return the part of an item's job that needs Spark; a dry run leaves the ingest out."""
    if is_dry(table):
        return replace(pipeline_job, ingest=None)
    # The table's own task announces.
    return replace(pipeline_job, saved_plans=saved_plans, since=item.since, announced=None)


def _needs_spark(table: Mapping[str, Any], pipeline_job: PipelineJob) -> bool:
    return pipeline_job.apply is not None or pipeline_job.error is not None or not is_dry(table)


def _answer(
    outcome: PipelineResult,
    item: Item,
    table: Mapping[str, Any],
    saved_plans: WorkSavedPlans,
    try_stamp: str,
    outcomes: Sequence[PipelineResult],
) -> dict[str, Any]:
    """Return the XCom entry of one table: an :class:`airflow_delta_cdc.groups.xcoms.Answer` as a dict.

    :param try_stamp: id of this try, so that the table's own task raises an error only once
    :param outcomes: those of all tables that share the XCom
    """
    error = outcome.error
    if is_dry(table):
        return {"item_stamp": item.stamp, **_dry_answer(outcome, try_stamp, outcomes)}
    answer: dict[str, Any] = {
        "item_stamp": item.stamp,
        "status": publishing.status(outcome),
        "saved_plans": saved_plans.touched(),
        "effort": outcome.effort.to_dict(),
    }
    return answer if error is None else {**answer, **_failed(error, try_stamp, outcomes)}


def _dry_answer(
    outcome: PipelineResult, try_stamp: str, outcomes: Sequence[PipelineResult]
) -> dict[str, Any]:
    if outcome.error is not None:
        # Without a log, a dry run of the target shows nothing.
        has_no_log = isinstance(outcome.error, TableNotFound)
        return {"status": "nothing"} if has_no_log else _failed(outcome.error, try_stamp, outcomes)
    assert outcome.applied is not None
    dry_run = publishing.shortened(outcome.applied.to_dict(), tables=len(outcomes))
    return {"status": "planned", "dry_run": dry_run}


def _failed(error: DeltaCdcError, try_stamp: str, outcomes: Sequence[PipelineResult]) -> dict[str, Any]:
    failed = sum(outcome.error is not None for outcome in outcomes)
    return {
        "status": "unfinished" if error.retryable else "failed",
        "error": for_xcom(error, min(_MOST_OF_AN_ERROR, _MOST_OF_ERRORS // failed)),
        "try_stamp": try_stamp,
    }
