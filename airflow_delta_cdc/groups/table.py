"""One table of a group: publish its outcome, and do the work that the group's application left."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import tables
from airflow_delta_cdc.assets import pipeline_alias
from airflow_delta_cdc.groups.base import (
    GroupOperator,
    Item,
    WorkSavedPlans,
    is_dry,
    pieces_of,
    template_error,
)
from airflow_delta_cdc.links import TABLE_LINKS
from delta_cdc.core.errors import ConfigurationChanged, DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context


#: Keys in the task's state store: the application's try whose error this task has raised, and the detection
#: whose work it has published.
_ANSWERED, _PUBLISHED = "answered", "published"


class ApplyTableOperator(GroupOperator):
    """Publish the outcome of one table in the group's application, or run the work in an own application.

    The task is mapped over the output of ``detect_changes``. If the target's log proves the work, no process
    starts. An error of the application that a retry cannot repair is raised here once, under its name; the
    next try, and one after clearing, plans again. Work that the application did not reach runs here.

    The task publishes the same as :class:`DeltaApplyChangesOperator` and :class:`DeltaIngestChangesOperator`.

    :param configuration: fingerprint of the group's configuration when this task's DAG file was parsed
    :param run_spark: id of the task that ran the shared application; None without one
    :param item: the work, an :class:`Item` as a dict
    :param kwargs: see :class:`GroupOperator`
    :raises ConfigurationChanged: ``detect_changes`` read another configuration
    :raises DeltaCdcError: the work failed; the error names the remedy
    """

    ui_color = "#cfe8fc"
    operator_extra_links = TABLE_LINKS

    def __init__(
        self,
        *,
        configuration: str,
        run_spark: str | None,
        item: Mapping[str, Any],
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.configuration = configuration
        self.run_spark = run_spark
        # Not a template field: its values are rendered already.
        self.item = item
        # The mapped task declares outlets for all tables of the group; this instance has one table.
        self.outlets = [pipeline_alias(item["pipeline"])]

    def table_arguments(self) -> Mapping[str, Any] | None:
        """Return the arguments of the item's table; None if its templates could not be rendered."""
        table: Mapping[str, Any] = self.item["table"]
        return table if template_error(table) is None else None

    def execute(self, context: Context) -> dict[str, Any]:
        """Confirm the work from the target's log, or plan and run it; publish the outcome."""
        item = Item(**self.item)
        self._refuse_other_configuration(item)
        if (error := template_error(item.table)) is not None:
            raise error
        # The error of a failed detection follows under its name, if planning again meets it again.
        found = "detect_changes could not plan this table; trying again" if item.failed else item.found
        self.log.info("%s: %s", item.pipeline, found)
        published = self._is_published(context, item)
        of_application = {} if published else self._of_application(context, item)
        self._answer(context, of_application)
        (pipeline_job,) = pieces_of(self, context, [item])
        if is_dry(item.table):
            # A dry run does not change the copy of the watermark.
            applied = of_application["dry_run"] if of_application.get("status") == "planned" else None
            return tables.would_do(self, context, pipeline_job, applied)
        before = {} if published else {**item.saved_plans, **of_application.get("saved_plans", {})}
        saved_plans = WorkSavedPlans(context, item.stamp, before)
        pipeline_job = replace(pipeline_job, since=None if published else item.since)
        if of_application and self.run_spark is not None:
            pipeline_job = replace(pipeline_job, done_by=self.run_spark)
        effort = of_application.get("effort")
        watermark = tables.run_piece(self, context, item.table, pipeline_job, saved_plans, effort)
        store = context.get("task_state_store")
        if store is not None:
            store.set(_PUBLISHED, item.stamp)
        return watermark

    def _refuse_other_configuration(self, item: Item) -> None:
        if item.fingerprint != self.configuration:
            raise ConfigurationChanged(
                f"The configuration of pipeline {item.pipeline} was changed after its changes were detected "
                f"(fingerprint {item.fingerprint[:12]} then, {self.configuration[:12]} now).",
                remedy="clear the run from its task detect_changes on, with all that follows.",
            )

    def _is_published(self, context: Context, item: Item) -> bool:
        """Return whether this work is published; then this try processes newer changes."""
        store = context.get("task_state_store")
        return store is not None and store.get(_PUBLISHED) == item.stamp

    def _of_application(self, context: Context, item: Item) -> dict[str, Any]:
        """Return the shared application's answer about this work; empty if it is about another detection."""
        if self.run_spark is None:
            return {}
        answers = context["ti"].xcom_pull(task_ids=self.run_spark, map_indexes=-1)
        found = answers.get(item.pipeline) if isinstance(answers, dict) else None
        return found if isinstance(found, dict) and found.get("detected") == item.stamp else {}

    def _answer(self, context: Context, answer: Mapping[str, Any]) -> None:
        """Raise the error of the application, once."""
        if answer.get("status") != "failed":
            return
        store = context.get("task_state_store")
        is_answered = (
            context["ti"].try_number > 1 if store is None else store.get(_ANSWERED) == answer["stamp"]
        )
        if is_answered:
            self.log.info(
                "The group's application failed for this table. The task now runs the table in its own "
                "application."
            )
            return
        if store is not None:
            store.set(_ANSWERED, answer["stamp"])
        raise DeltaCdcError.from_dict(answer["error"])
