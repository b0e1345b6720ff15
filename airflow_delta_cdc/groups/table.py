"""One table of a group: publish its outcome, and do the work that the group's application left."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc.assets import pipeline_alias
from airflow_delta_cdc.groups import xcoms
from airflow_delta_cdc.groups.base import (
    GroupOperator,
    WorkSavedPlans,
    arguments_of_run,
    is_dry,
    jobs_of_items,
    saved_plans_of,
    template_error,
)
from airflow_delta_cdc.groups.detect_changes import detecting
from airflow_delta_cdc.groups.xcoms import Answer
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.links import TABLE_LINKS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from airflow_delta_cdc import approval, jobs, publishing
    from airflow_delta_cdc.groups.xcoms import Item
else:
    approval = Lazy("airflow_delta_cdc.approval")
    jobs = Lazy("airflow_delta_cdc.jobs")
    publishing = Lazy("airflow_delta_cdc.publishing")

#: Keys in the task's state store: the application's try whose error this task has raised, and the detection
#: whose work it has published.
_ANSWERED, _PUBLISHED = "answered", "published"


class ApplyTableOperator(GroupOperator):
    """Publish the outcome of one table in the group's application, or run the work in an own application.

    The task is mapped over the output of ``detect_changes``. If the target's log proves the work, no process
    starts. An error of the application that a retry cannot repair is raised here once, under its name; the
    next try, and one after clearing, plans again. Work that the application did not reach runs here.

    The task publishes the same as :class:`DeltaApplyChangesOperator` and :class:`DeltaIngestChangesOperator`,
    with the ``stamp`` of the work, for ``publish``.

    :param detection: id of the task that detected the changes, which has the arguments of the tables
    :param run_spark: id of the task that ran the shared application; None without one
    :param item: the work, an :class:`airflow_delta_cdc.groups.xcoms.Item` as a dict
    :param kwargs: see :class:`GroupOperator`
    :raises ConfigurationChanged: ``detect_changes`` read other arguments
    :raises InvalidXCom: ``item``, or the answer of ``run_spark``, is not what the task returned
    :raises DeltaCdcError: the work failed; the error names the remedy
    """

    template_fields = ("table", *GroupOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"table": "json"}
    ui_color = "#cfe8fc"
    operator_extra_links = TABLE_LINKS

    def __init__(
        self,
        *,
        detection: str,
        run_spark: str | None,
        item: Any,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.detection = detection
        self.run_spark = run_spark
        # Not a template field: an XCom has no templates.
        self.item = item
        name = item.get("pipeline") if isinstance(item, dict) else None
        of_dag = (one for one in detecting(self, detection).tables if one["pipeline"] == name)
        # Empty for an item that execute() refuses.
        self.table: Mapping[str, Any] = next(of_dag, {})
        self.pipeline = self.table.get("pipeline", "")
        # The mapped task declares outlets for all tables of the group; this instance has one table.
        self.outlets = [pipeline_alias(self.pipeline)] if self.table else []

    def render_template(self, content: Any, *rest: Any, **how: Any) -> Any:
        """Render a template; the table as :meth:`rendered` does."""
        if content is self.table and content:
            return self.rendered(content, *rest, **how)
        return super().render_template(content, *rest, **how)

    def table_arguments(self) -> Mapping[str, Any] | None:
        """Return the arguments of the item's table; None if the DAG has no such table, or if their templates
        cannot be rendered."""
        return self.table if self.table and template_error(self.table) is None else None

    def execute(self, context: Context) -> dict[str, Any]:
        """Confirm the work from the target's log, or plan and run it; publish the outcome."""
        detection = detecting(self, self.detection)
        run = detection.form(context)
        item = xcoms.item(self.item, detection.chosen(run))
        table = arguments_of_run(self.table, run)
        # The error of a failed detection follows under its name, if planning again meets it again.
        found = "detect_changes could not plan this table; trying again" if item.failed else item.found
        self.log.info("%s: %s", item.pipeline, found)
        (pipeline_job,) = jobs.planned(jobs_of_items(self, context, [item], [table], detection.fingerprint))
        published = self._is_published(context, item)
        answer = Answer() if published else self._application_answer(context, item)
        with approval.asking(self, context, table):
            self._raise_once(context, answer)
        if is_dry(table):
            # A dry run does not change the copy of the watermark.
            applied = {**answer.dry_run, "applied": False, "pipeline": item.pipeline}
            done = applied if answer.status == "planned" else None
            return publishing.would_do(self, context, pipeline_job, done, stamp=item.stamp)
        before = {} if published else {**saved_plans_of(item, pipeline_job), **answer.saved_plans}
        saved_plans = WorkSavedPlans(context, item.stamp, before)
        pipeline_job = replace(pipeline_job, since=None if published else item.since)
        if answer.item_stamp and self.run_spark is not None:
            pipeline_job = replace(pipeline_job, done_by=self.run_spark)
        watermark = publishing.run_pipeline_job(
            self, context, table, pipeline_job, saved_plans, asdict(answer.effort), stamp=item.stamp
        )
        store = context.get("task_state_store")
        if store is not None:
            store.set(_PUBLISHED, item.stamp)
        return watermark

    def _is_published(self, context: Context, item: Item) -> bool:
        """Return whether this work is published; then this try processes newer changes."""
        store = context.get("task_state_store")
        return store is not None and store.get(_PUBLISHED) == item.stamp

    def _application_answer(self, context: Context, item: Item) -> Answer:
        """Return the shared application's answer about this work; empty if it is about another detection."""
        if self.run_spark is None:
            return Answer()
        answers = context["ti"].xcom_pull(task_ids=self.run_spark, map_indexes=-1)
        return xcoms.answer(answers, item.pipeline, item.stamp)

    def _raise_once(self, context: Context, answer: Answer) -> None:
        """Raise the error of the application, once."""
        if answer.status != "failed":
            return
        store = context.get("task_state_store")
        is_answered = (
            context["ti"].try_number > 1 if store is None else store.get(_ANSWERED) == answer.try_stamp
        )
        if is_answered:
            self.log.info(
                "The group's application failed for this table. The task now runs the table in its own "
                "application."
            )
            return
        if store is not None:
            store.set(_ANSWERED, answer.try_stamp)
        raise xcoms.error_of(answer)
