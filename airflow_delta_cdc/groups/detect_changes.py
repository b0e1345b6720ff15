"""The first task of a group: detect the work of every table, without a JVM."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from airflow_delta_cdc import engine
from airflow_delta_cdc.failures import described
from airflow_delta_cdc.form import asked
from airflow_delta_cdc.groups.base import (
    GroupOperator,
    arguments_of_run,
    collects,
    has_target,
    is_dry,
    jobs_of,
    mode_of,
    takes_source,
    template_error,
)
from airflow_delta_cdc.groups.xcoms import Item, Summary, fingerprint
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.masking import masked
from delta_cdc.core import arguments, codec
from delta_cdc.core.change_log import collectors
from delta_cdc.core.errors import InvalidConfiguration, TableNotFound
from delta_cdc.core.rules import known_as
from delta_cdc.core.text_table import grid

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc import announced, jobs, metrics, publishing
    from airflow_delta_cdc.form import Run
    from delta_cdc.run.batch import PipelineJob
    from delta_cdc.run.detect_changes import DetectedChanges
else:
    announced = Lazy("airflow_delta_cdc.announced")
    jobs = Lazy("airflow_delta_cdc.jobs")
    metrics = Lazy("airflow_delta_cdc.metrics")
    publishing = Lazy("airflow_delta_cdc.publishing")

#: Modes that need keys.
_BY_KEY = ("repair", "reload")
#: The most characters of a line about a table in an XCom; the log has the whole line.
_MOST_OF_A_LINE = 300


class DetectChangesOperator(GroupOperator):
    """Detect the changes of the tables of a group, and return the work.

    The task starts no Spark and writes nothing.

    The XCom ``return_value`` is the list of work for the mapped task
    (:class:`airflow_delta_cdc.groups.xcoms.Item` as a dict). The XCom ``tables`` is a summary of every table
    of the group. Neither has an argument of a table: the other tasks take the arguments from this one
    (:func:`detecting`), and render them themselves.

    If a table cannot be planned, it is in the list: its own task plans it again, and fails under its name. In
    a manual run with a mode in the form, this task fails instead, unless it is a dry run.

    :param tables: arguments of each table of this task (templated)
    :param pipelines: names of all pipelines of the group, which the form offers
    :param fingerprint: hash of the settings that determine the work, such as connections. It is not
        ``Group.fingerprint``, the hash of the whole configuration that the DAG's page shows
    :param group: the group's ``dag_id``, whose newest event says what was announced
    """

    template_fields = ("tables", *GroupOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"tables": "json"}
    ui_color = "#e8f1d4"

    def __init__(
        self,
        *,
        tables: Sequence[Mapping[str, Any]],
        pipelines: Sequence[str],
        fingerprint: str,
        group: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.pipelines = pipelines
        self.fingerprint = fingerprint
        self.group = group

    def render_template(self, content: Any, *rest: Any, **how: Any) -> Any:
        """Render a template; the tables one by one (:meth:`rendered`)."""
        if content is self.tables:
            return [self.rendered(table, *rest, **how) for table in content]
        return super().render_template(content, *rest, **how)

    def form(self, context: Context) -> Run:
        """Read the form of the run. Each task does, because people can edit XComs, and not the form of a run.

        :raises InvalidConfiguration: fields of the form contradict each other
        """
        return asked(context, tables=self.pipelines)

    def chosen(self, run: Run) -> dict[str, Mapping[str, Any]]:
        """Return the tables that the form of the run chooses, by name, as the DAG file has them."""
        names = set(run.tables)
        if run.with_sources:
            names |= collectors(self.tables, run.tables)
        return {table["pipeline"]: table for table in self.tables if table["pipeline"] in names}

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Detect the changes of every table of the run."""

        run = self.form(context)
        if run.date_interval is not None:
            self.log.info("A backfill by dates: from %s to %s.", *run.date_interval)
        elif run.explicit:
            self.log.info("The form of this run selects %s.", run)
        chosen = [arguments_of_run(table, run) for table in self.chosen(run).values()]
        is_partial = len(run.tables) < len(self.pipelines) or len(self.pipelines) == 1
        selected = []
        for table in chosen:
            reason = _no_part(table, chosen=is_partial)
            if reason:
                self.log.info("%s %s.", table["pipeline"], reason)
            else:
                selected.append(table)
        selected_names = [table["pipeline"] for table in selected]
        other_tables = [dict(table) for table in self.tables if table["pipeline"] not in selected_names]
        candidates = [*selected, *other_tables]
        errors = [template_error(table) for table in candidates]
        known = announced.announced_by_group(self.group) if announced.knows_events(context) else None
        jobs = jobs_of(self, context, candidates, errors, ingest=_reads_source, known_seals=known)
        selected_jobs, other_jobs = jobs[: len(selected)], jobs[len(selected) :]
        changes = engine.detect_changes(selected_jobs)
        if not is_partial:
            logs = {_place(table.get("target" if collects(table) else "log")) for table in self.tables}
            changes = [_without_log(table, one, logs) for table, one in zip(selected, changes, strict=True)]
        self._log(changes)
        lags = {
            one.pipeline: publishing.timely(self.log, table, one.lag)
            for table, one in zip(selected, changes, strict=True)
        }
        for pipeline, lag in lags.items():
            metrics.emit_lag(pipeline, lag)
        stamp = uuid.uuid4().hex[:12]
        summaries = {one.pipeline: _summary(one, lags[one.pipeline], stamp) for one in changes}
        summaries |= {
            one.pipeline: Summary(status="left out", target=engine.written_table(one), stamp=stamp)
            for one in other_jobs
            if one.error is None
        }
        context["ti"].xcom_push(key="tables", value=codec.encoded(summaries))
        if run.explicit and not is_dry(run.arguments):
            _raise_first(changes)
        return [
            codec.encoded(self._item(table, one, pipeline_job, stamp))
            for table, pipeline_job, one in zip(selected, selected_jobs, changes, strict=True)
            if one.has_work or one.error is not None
        ]

    def _item(
        self,
        table: dict[str, Any],
        changes: DetectedChanges,
        pipeline_job: PipelineJob,
        stamp: str,
    ) -> Item:
        plans = changes.saved_plans.items()
        return Item(
            pipeline=changes.pipeline,
            fingerprint=fingerprint(self.fingerprint, table),
            stamp=stamp,
            found=_shortened(changes.found),
            since=changes.since,
            ends={key: plan["ending_version"] for key, plan in plans},
            located=_located(table, pipeline_job),
            failed=changes.error is not None and not changes.has_work,
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


def detecting(task: GroupOperator, task_id: str) -> DetectChangesOperator:
    """Return the task that detects changes, as the DAG file defines it, with the arguments of its tables.

    A worker runs the DAG file for each task, so the arguments are here without an XCom.

    :param task: any task of the same group
    :param task_id: id of the task that detects changes
    """
    return cast("DetectChangesOperator", task.dag.get_task(task_id))


def _no_part(table: Mapping[str, Any], *, chosen: bool) -> str:
    """Return why a run leaves a table out; "" if the run includes it.

    :param chosen: whether the form names the table
    """
    mode = mode_of(table)
    if not takes_source(table) and not has_target(table):
        return f"has no target, so mode {mode} is not about it"
    if not chosen and collects(table) and mode not in arguments.ONWARDS:
        return f"collects changes in a log, whose events mode {mode} is not about"
    is_appended = arguments.flag("insert_only", table.get("insert_only"))
    if not chosen and mode in _BY_KEY and is_appended and not takes_source(table):
        return f"is insert_only, and has no keys that mode {mode} could be about"
    return ""


def _without_log(table: Mapping[str, Any], changes: DetectedChanges, logs: Container[str]) -> DetectedChanges:
    """Accept a missing change log of a table that the form does not name, in a mode that does not fill it.

    :param logs: the change logs that the tables of this task fill
    """
    is_filled = takes_source(table) if engine.is_ingested(table) else mode_of(table) in arguments.ONWARDS
    is_missing = isinstance(changes.error, TableNotFound) and _place(jobs.source_of(table)) in logs
    if is_filled or not is_missing:
        return changes
    return replace(changes, error=None, found="nothing: it has no log yet")


def _place(table: Any) -> str:
    """Return a text that is equal for all spellings of a table; "" for none."""
    try:
        return known_as(arguments.optional_table("table", table) or "")
    except InvalidConfiguration:
        return str(table)


def _reads_source(table: Mapping[str, Any]) -> bool:
    """Return whether a run reads the source; for a table without a target, the ingest is its only work."""
    return takes_source(table) or not has_target(table)


def _located(table: Mapping[str, Any], pipeline_job: PipelineJob) -> dict[str, str]:
    """Return the locations of those tables that the DAG names by catalog names."""
    locations: dict[str, str] = {}
    if pipeline_job.ingest is not None and pipeline_job.ingest.log_name:
        locations["log"] = pipeline_job.ingest.log
    apply = pipeline_job.apply
    if apply is not None and apply.source_name:
        locations["log" if engine.is_ingested(table) else "source"] = apply.source
    if apply is not None and apply.target_name:
        locations["target"] = apply.target
    return locations


def _shortened(text: str) -> str:
    """Return a text of limited length, without secrets; a longer one ends after a whole word, with "…"."""
    # First: a shortened text could end in a part of a secret.
    text = masked(text)
    if len(text) <= _MOST_OF_A_LINE:
        return text
    start = text[:_MOST_OF_A_LINE]
    # The last part may be half a word.
    words = start.rsplit(maxsplit=1)[0]
    return f"{words if len(words) > _MOST_OF_A_LINE // 2 else start[:-2]} …"


def _status(changes: DetectedChanges) -> Literal["work", "nothing", "failed"]:
    if changes.error is not None:
        return "failed"
    return "work" if changes.has_work else "nothing"


def _summary(changes: DetectedChanges, lag: dict[str, Any] | None, stamp: str) -> Summary:
    return Summary(
        status=_status(changes),
        target_version=changes.target_version,
        table_id=changes.table_id,
        version=changes.version,
        target=changes.target,
        announced=changes.announced,
        found=_shortened(changes.found) if changes.has_work or changes.error else "",
        lag=lag,
        in_quarantine=changes.held,
        stamp=stamp,
    )


def _raise_first(detected: Sequence[DetectedChanges]) -> None:
    """Raise the errors of the tables of a manual run.

    :raises DeltaCdcError: the error of one table; ``TablesFailed`` if several tables have errors
    """

    failed = [one for one in detected if one.error is not None]
    if len(failed) == 1 and failed[0].error is not None:
        raise failed[0].error
    outcomes = [engine.PipelineResult(pipeline=one.pipeline, error=one.error) for one in failed]
    publishing.raise_failures(outcomes, len(detected), "The run has applied nothing to the others either.")
