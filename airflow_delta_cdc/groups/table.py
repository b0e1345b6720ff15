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
    refuse_unrendered,
)
from delta_cdc.core.errors import ConfigurationChanged, DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from delta_cdc.run.batch import Piece

#: In the task's state store: the try of the application whose error this task has raised, and the
#: detection whose work it has published.
_ANSWERED, _PUBLISHED = "answered", "published"


class ApplyTableOperator(GroupOperator):
    """Publish what the group's application did of one table, or do it in an application of its own.

    Mapped over the output of ``detect_changes``. Where the target's log proves the work, no process is
    started. An error that the application met, and that time does not mend, is raised here once, by its name;
    the next try, and one after clearing, plans anew. What the application did not come to is done here.

    It publishes what :class:`DeltaApplyChangesOperator` and :class:`DeltaIngestChangesOperator` publish.

    :param configuration: fingerprint of the group's configuration as this task's DAG file has it
    :param run_spark: id of the task that ran the shared application; None where there is none
    :param pipeline: see :class:`Item` for this and all that follow
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
        pipeline: str,
        table: Mapping[str, Any],
        located: Mapping[str, str],
        fingerprint: str,
        stamp: str,
        since: int | None,
        pins: Mapping[str, dict[str, Any]],
        found: str,
        failed: bool,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.configuration = configuration
        self.run_spark = run_spark
        self.pipeline = pipeline
        # No template field: mapped values of these would be rendered once more.
        self.table = table
        self.located = located
        self.fingerprint = fingerprint
        self.stamp = stamp
        self.since = since
        self.pins = pins
        self.found = found
        self.failed = failed
        # Of all tables of the group, which the mapped task declares, this one.
        self.outlets = [pipeline_alias(pipeline)]

    def execute(self, context: Context) -> dict[str, Any]:
        """Find the proof, or plan and run; publish."""
        self._refuse_other_configuration()
        item = self._item()
        refuse_unrendered(item.table)
        self.log.info("%s: %s", item.pipeline, item.found)
        published = self._is_published(context)
        of_application = {} if published else self._of_application(context)
        self._answer(context, of_application)
        (piece,) = pieces_of(self, context, [item])
        if is_dry(item.table):
            return self._show(context, piece, of_application)
        before = {} if published else {**item.pins, **of_application.get("pins", {})}
        pins = WorkPins(context, item.stamp, before)
        piece = replace(piece, since=None if published else item.since)
        answer = tables.run_piece(self, context, self.table, piece, pins)
        store = context.get("task_state_store")
        if store is not None:
            store.set(_PUBLISHED, self.stamp)
        return answer

    def _item(self) -> Item:
        return Item(
            pipeline=self.pipeline,
            table=dict(self.table),
            located=dict(self.located),
            fingerprint=self.fingerprint,
            stamp=self.stamp,
            since=self.since,
            pins=dict(self.pins),
            found=self.found,
            failed=self.failed,
        )

    def _refuse_other_configuration(self) -> None:
        if self.fingerprint != self.configuration:
            raise ConfigurationChanged(
                f"The configuration of pipeline {self.pipeline} was changed after its changes were detected "
                f"(fingerprint {self.fingerprint[:12]} then, {self.configuration[:12]} now).",
                remedy="clear the run from its task detect_changes on, with all that follows.",
            )

    def _is_published(self, context: Context) -> bool:
        """Tell whether this work has reached everybody: then a try is about what is new since."""
        store = context.get("task_state_store")
        return store is not None and store.get(_PUBLISHED) == self.stamp

    def _of_application(self, context: Context) -> dict[str, Any]:
        """Return what the shared application says about this work; of another detection it knows nothing."""
        if self.run_spark is None:
            return {}
        told = context["ti"].xcom_pull(task_ids=self.run_spark, map_indexes=-1)
        found = told.get(self.pipeline) if isinstance(told, dict) else None
        return found if isinstance(found, dict) and found.get("detected") == self.stamp else {}

    def _answer(self, context: Context, told: Mapping[str, Any]) -> None:
        """Raise the error of the application, once."""
        if told.get("status") != "failed":
            return
        store = context.get("task_state_store")
        known = context["ti"].try_number > 1 if store is None else store.get(_ANSWERED) == told["stamp"]
        if known:
            self.log.info("The application of the group failed on this table; it is tried by itself now.")
            return
        if store is not None:
            store.set(_ANSWERED, told["stamp"])
        raise DeltaCdcError.from_dict(told["error"])

    def _show(self, context: Context, piece: Piece, told: Mapping[str, Any]) -> dict[str, Any]:
        """Publish what a dry run found out; what is kept of the watermark stays."""
        if told.get("status") == "planned":
            would, shown = tables.taken(self, piece), told["dry_run"]
            answer = {**shown, "dry_run": {**would["dry_run"], **shown["dry_run"]}}
        else:
            answer = tables.would_do(self, context, piece)
        return tables.shown(context, answer)
