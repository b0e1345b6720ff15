"""The first task of a group: detect the work of every table, without a JVM."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine, tables
from airflow_delta_cdc.announced import announced_by_group, knows_events
from airflow_delta_cdc.failures import described
from airflow_delta_cdc.form import asked
from airflow_delta_cdc.groups.base import (
    INGESTING,
    UNRENDERED,
    GroupOperator,
    Item,
    has_target,
    mode_of,
    takes_source,
    template_error,
)
from airflow_delta_cdc.metrics import emit_lag
from delta_cdc.core import arguments
from delta_cdc.core.errors import TableNotFound
from delta_cdc.core.option_schema import APPLY, in_group
from delta_cdc.core.text_table import grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc.form import Run
    from delta_cdc.run.batch import PipelineJob
    from delta_cdc.run.detect_changes import DetectedChanges

#: Bounds of an ingest whose names are also bounds of an apply.
_BOUNDS_OF_THE_INGEST = ("starting_timestamp", "max_bytes")
#: The arguments of a table that bound the versions of a run, by the end of the range.
_ENDS = {
    "start": ("starting_version", "starting_timestamp"),
    "end": ("ending_version", "ending_timestamp"),
}
_LIMITS = tuple(in_group(APPLY, "limits"))
#: Modes that work on some or all keys in one commit, so that limits of size do not apply.
_OF_KEYS = ("repair", "reload", "interval")
#: Modes that need keys.
_BY_KEY = ("repair", "reload")
#: The most characters of a line about a table in an XCom; the log has the whole line.
_MOST_OF_A_LINE = 300


class DetectChangesOperator(GroupOperator):
    """Detect the changes of the tables of a group, and return the work.

    The task starts no Spark and writes nothing.

    The XCom ``return_value`` is the list of work for the mapped task (:class:`Item` as a dict); the XCom
    ``tables`` is a summary of every table of the group.

    If a table cannot be planned, it is in the list: its own task plans it again, and fails under its name. In
    a manual run with a mode in the form, this task fails instead.

    :param tables: arguments of each table of this task (templated; the only place where they are rendered)
    :param group: names of all tables of the group, which the form offers
    :param fingerprint: hash of the group's configuration
    :param group_name: name of the group, whose newest event says what was announced
    """

    template_fields = ("tables", *GroupOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"tables": "json"}
    ui_color = "#e8f1d4"

    def __init__(
        self,
        *,
        tables: Sequence[Mapping[str, Any]],
        group: Sequence[str],
        fingerprint: str,
        group_name: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.group = group
        self.fingerprint = fingerprint
        self.group_name = group_name

    def render_template(self, content: Any, *rest: Any, **how: Any) -> Any:
        """Render a template. If those of one table cannot be rendered, the others are still detected."""
        if content is self.tables:
            return [self._rendered(table, *rest, **how) for table in content]
        return super().render_template(content, *rest, **how)

    def _rendered(self, table: Mapping[str, Any], *rest: Any, **how: Any) -> Any:
        try:
            return super().render_template(table, *rest, **how)
        except Exception as error:
            self.log.exception("Cannot render the templates of %s", table["pipeline"])
            return {"pipeline": table["pipeline"], UNRENDERED: f"{type(error).__name__}: {error}"}

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Detect the changes of every table of the run."""

        run = asked(context, tables=self.group)
        if run.date_interval is not None:
            self.log.info("A backfill by dates: from %s to %s.", *run.date_interval)
        elif run.explicit:
            self.log.info("The form of this run selects mode %s.", run.mode)
        chosen = [of_run(table, run) for table in self.tables if table["pipeline"] in run.tables]
        is_partial = len(run.tables) < len(self.group) or len(self.group) == 1
        selected = []
        for table in chosen:
            reason = _no_part(table, chosen=is_partial)
            if reason:
                self.log.info("%s %s.", table["pipeline"], reason)
            else:
                selected.append(table)
        selected_names = [table["pipeline"] for table in selected]
        other_tables = [dict(table) for table in self.tables if table["pipeline"] not in selected_names]
        jobs = self._jobs(context, [*selected, *other_tables])
        selected_jobs, other_jobs = jobs[: len(selected)], jobs[len(selected) :]
        changes = engine.detect_changes(selected_jobs)
        if not is_partial:
            changes = [_without_log(table, one) for table, one in zip(selected, changes, strict=True)]
        self._log(changes)
        lags = {
            one.pipeline: tables.timely(self.log, table, one.lag)
            for table, one in zip(selected, changes, strict=True)
        }
        for pipeline, lag in lags.items():
            emit_lag(pipeline, lag)
        summaries = {one.pipeline: {**_summary(one), "lag": lags[one.pipeline]} for one in changes}
        summaries |= {one.pipeline: _left_out(one) for one in other_jobs if one.error is None}
        context["ti"].xcom_push(key="tables", value=summaries)
        if run.explicit:
            _raise_first(changes)
        stamp = uuid.uuid4().hex[:12]
        return [
            asdict(self._item(table, one, pipeline_job, stamp))
            for table, pipeline_job, one in zip(selected, selected_jobs, changes, strict=True)
            if one.has_work or one.error is not None
        ]

    def _jobs(self, context: Context, candidates: Sequence[dict[str, Any]]) -> list[PipelineJob]:
        """Return the job of each table, or one with the error of its arguments."""
        errors = [template_error(table) for table in candidates]
        rendered = [table for table, error in zip(candidates, errors, strict=True) if error is None]
        known = announced_by_group(self.group_name) if knows_events(context) else None
        jobs = iter(tables.pipeline_jobs(self, context, rendered, ingest=_reads_source, known_seals=known))
        return [
            next(jobs) if error is None else engine.PipelineJob(error=error, name=table["pipeline"])
            for table, error in zip(candidates, errors, strict=True)
        ]

    def _item(
        self,
        table: dict[str, Any],
        changes: DetectedChanges,
        pipeline_job: PipelineJob,
        stamp: str,
    ) -> Item:
        return Item(
            pipeline=changes.pipeline,
            table=table,
            located=_located(table, pipeline_job),
            fingerprint=self.fingerprint,
            stamp=stamp,
            since=changes.since,
            saved_plans=changes.saved_plans,
            found=changes.found[:_MOST_OF_A_LINE],
            failed=changes.error is not None,
        )

    def _log(self, detected: Sequence[DetectedChanges]) -> None:
        for one in detected:
            for note in one.notes:
                self.log.info("%s: %s", one.pipeline, note)
            if one.error is not None:
                # The task itself succeeds; the table's own task fails.
                self.log.warning("%s: %s", one.pipeline, described(one.error))
        rows = [{"table": one.pipeline, "status": _status(one), "found": one.found} for one in detected]
        busy = sum(one.has_work for one in detected)
        failed = [one.pipeline for one in detected if one.error is not None]
        failed_text = f", {len(failed)} failed: {', '.join(failed)}" if failed else ""
        self.log.info("%d of %d tables have work%s.\n%s", busy, len(detected), failed_text, grid(rows))


def of_run(table: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return a table's arguments, overridden by the form of the run.

    The versions and limits in a table's arguments are meant for scheduled runs. A manual run ignores the
    versions of an end that the form gives. In modes that work on keys, it ignores all versions and limits.
    """
    if not run.explicit:
        return {**table, **run.arguments}
    left_out = set(_LIMITS) if run.mode in _OF_KEYS else set()
    for names in _ENDS.values():
        if run.mode in _OF_KEYS or any(name in run.arguments for name in names):
            left_out.update(names)
    if engine.is_ingested(table) and run.mode not in INGESTING:
        left_out.update(_BOUNDS_OF_THE_INGEST)
    return {name: value for name, value in table.items() if name not in left_out} | run.arguments


def _no_part(table: Mapping[str, Any], *, chosen: bool) -> str:
    """Return why a run leaves a table out; "" if the run includes it.

    :param chosen: whether the form names the table
    """
    mode = mode_of(table)
    if not takes_source(table) and not has_target(table):
        return f"has no target, so mode {mode} is not about it"
    if not chosen and mode in _BY_KEY and arguments.flag("insert_only", table.get("insert_only")):
        return f"is insert_only, and has no keys that mode {mode} could be about"
    return ""


def _without_log(table: Mapping[str, Any], changes: DetectedChanges) -> DetectedChanges:
    """Accept a missing change log of a table that the form does not name."""
    has_no_log = (
        isinstance(changes.error, TableNotFound) and engine.is_ingested(table) and not takes_source(table)
    )
    return replace(changes, error=None, found="nothing: it has no log yet") if has_no_log else changes


def _reads_source(table: Mapping[str, Any]) -> bool:
    """Return whether a run reads the source; for a table without a target, the ingest is its only work."""
    return takes_source(table) or not has_target(table)


def _located(table: Mapping[str, Any], pipeline_job: PipelineJob) -> dict[str, str]:
    """Return the locations of those tables that were given by name."""
    locations: dict[str, str] = {}
    if pipeline_job.ingest is not None:
        locations["log"] = pipeline_job.ingest.log
    if pipeline_job.apply is not None:
        locations["log" if engine.is_ingested(table) else "source"] = pipeline_job.apply.source
        locations["target"] = pipeline_job.apply.target
    return {name: location for name, location in locations.items() if location != table.get(name)}


def _status(changes: DetectedChanges) -> str:
    if changes.error is not None:
        return "failed"
    return "work" if changes.has_work else "nothing"


def _summary(changes: DetectedChanges) -> dict[str, Any]:
    summary = {
        "status": _status(changes),
        "target": changes.target,
        "target_version": changes.target_version,
        "version": changes.version,
        **({"announced": changes.announced} if changes.announced else {}),
    }
    return (
        {**summary, "found": changes.found[:_MOST_OF_A_LINE]}
        if changes.has_work or changes.error
        else summary
    )


def _left_out(pipeline_job: PipelineJob) -> dict[str, Any]:
    """Return the summary of a table that the run leaves out."""

    return {
        "status": "left out",
        "target": engine.written_table(pipeline_job),
        "target_version": None,
        "version": None,
    }


def _raise_first(detected: Sequence[DetectedChanges]) -> None:
    """Raise the errors of the tables of a manual run.

    :raises DeltaCdcError: the error of one table; ``TablesFailed`` if several tables have errors
    """

    failed = [one for one in detected if one.error is not None]
    if len(failed) == 1 and failed[0].error is not None:
        raise failed[0].error
    outcomes = [engine.PipelineResult(pipeline=one.pipeline, error=one.error) for one in failed]
    tables.raise_failures(outcomes, len(detected))
