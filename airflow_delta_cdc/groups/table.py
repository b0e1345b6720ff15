"""One table of a group: what was done of it is published under its own name, and what is left is done."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import tables
from airflow_delta_cdc.assets import pipeline_alias
from airflow_delta_cdc.groups.base import (
    GroupOperator,
    Item,
    WorkPins,
    is_dry,
    pieces_of,
    template_error,
)
from delta_cdc.core.errors import ConfigurationChanged, DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context


#: In the task's state store: the try of the application whose error this task has raised, and the
#: detection whose work it has published.
_ANSWERED, _PUBLISHED = "answered", "published"


class ApplyTableOperator(GroupOperator):
    """Publish what the group's application did of one table, or do it in an application of its own.

    Mapped over the output of ``detect_changes``. Where the target's log proves the work, no process is
    started. An error that the application met, and that time does not mend, is raised here once, by its name;
    the next try, and one after clearing, plans again. What the application did not reach is done here.

    It publishes what :class:`DeltaApplyChangesOperator` and :class:`DeltaIngestChangesOperator` publish.

    :param configuration: fingerprint of the group's configuration as this task's DAG file has it
    :param run_spark: id of the task that ran the shared application; None without one
    :param item: the work, an :class:`Item` as a dict
    :param kwargs: see :class:`GroupOperator`
    :raises ConfigurationChanged: ``detect_changes`` read another configuration
    :raises DeltaCdcError: a named error, with its remedy, for everything that stops the table
    """

    ui_color = "#cfe8fc"

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
        # No template field: its values would be rendered once more.
        self.item = item
        # Of all tables of the group, which the mapped task declares, this one.
        self.outlets = [pipeline_alias(item["pipeline"])]

    def execute(self, context: Context) -> dict[str, Any]:
        """Find the proof, or plan and run; publish."""
        item = Item(**self.item)
        self._refuse_other_configuration(item)
        if (error := template_error(item.table)) is not None:
            raise error
        self.log.info("%s: %s", item.pipeline, item.found)
        published = self._is_published(context, item)
        of_application = {} if published else self._of_application(context, item)
        self._answer(context, of_application)
        (pipeline_job,) = pieces_of(self, context, [item])
        if is_dry(item.table):
            # What is kept of the watermark stays.
            applied = of_application["dry_run"] if of_application.get("status") == "planned" else None
            return tables.would_do(self, context, pipeline_job, applied)
        before = {} if published else {**item.saved_plans, **of_application.get("saved_plans", {})}
        saved_plans = WorkPins(context, item.stamp, before)
        pipeline_job = replace(pipeline_job, since=None if published else item.since)
        answer = tables.run_piece(self, context, item.table, pipeline_job, saved_plans)
        store = context.get("task_state_store")
        if store is not None:
            store.set(_PUBLISHED, item.stamp)
        return answer

    def _refuse_other_configuration(self, item: Item) -> None:
        if item.fingerprint != self.configuration:
            raise ConfigurationChanged(
                f"The configuration of pipeline {item.pipeline} was changed after its changes were detected "
                f"(fingerprint {item.fingerprint[:12]} then, {self.configuration[:12]} now).",
                remedy="clear the run from its task detect_changes on, with all that follows.",
            )

    def _is_published(self, context: Context, item: Item) -> bool:
        """Return whether this work is published: then a try is about what is new since."""
        store = context.get("task_state_store")
        return store is not None and store.get(_PUBLISHED) == item.stamp

    def _of_application(self, context: Context, item: Item) -> dict[str, Any]:
        """Return the shared application's answer about this work; not one about another detection."""
        if self.run_spark is None:
            return {}
        pulled = context["ti"].xcom_pull(task_ids=self.run_spark, map_indexes=-1)
        found = pulled.get(item.pipeline) if isinstance(pulled, dict) else None
        return found if isinstance(found, dict) and found.get("detected") == item.stamp else {}

    def _answer(self, context: Context, answer: Mapping[str, Any]) -> None:
        """Raise the error of the application, once."""
        if answer.get("status") != "failed":
            return
        store = context.get("task_state_store")
        known = context["ti"].try_number > 1 if store is None else store.get(_ANSWERED) == answer["stamp"]
        if known:
            self.log.info("The application of the group failed on this table; it is tried by itself now.")
            return
        if store is not None:
            store.set(_ANSWERED, answer["stamp"])
        raise DeltaCdcError.from_dict(answer["error"])
