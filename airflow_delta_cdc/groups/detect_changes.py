"""The first task of a group: what is there to do, for every table, without a JVM."""

from __future__ import annotations

import uuid
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine, tables
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
from delta_cdc.core import arguments
from delta_cdc.core.errors import DeltaCdcError, TableNotFound
from delta_cdc.core.option_schema import APPLY, in_group
from delta_cdc.core.text_table import grid

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc.form import Run
    from delta_cdc.run.batch import PipelineJob
    from delta_cdc.run.detect_changes import DetectedChanges

#: What bounds an ingest, under names that bound an apply as well.
_BOUNDS_OF_THE_INGEST = ("starting_timestamp", "max_bytes")
#: What a table's own arguments say of the versions of a run, by the end that it is about.
_ENDS = {
    "start": ("starting_version", "starting_timestamp"),
    "end": ("ending_version", "ending_timestamp"),
}
_LIMITS = tuple(in_group(APPLY, "limits"))
#: Modes that are about keys, all or some: they have no order that could be cut into pieces.
_OF_KEYS = ("repair", "reload", "interval")
#: What cannot be done without keys.
_BY_KEY = ("repair", "reload")
#: Characters of a line about a table that an XCom takes; the log has it whole.
_MOST_OF_A_LINE = 300


class DetectChangesOperator(GroupOperator):
    """Detect the changes of the tables of a group, and hand on what is to be done.

    It runs nothing and writes nothing.

    The XCom ``return_value`` is the list of work for the mapped task (:class:`Item` as a dict), the key
    ``tables`` a summary of every table of the group.

    A table that cannot be planned is in the list: its own task plans it again, and fails by that name. In a
    run started by hand, with a mode in the form, this task fails instead.

    :param tables: arguments of each table that this task is about (templated; here and nowhere else)
    :param group: names of all tables of the group, among which the form chooses
    :param fingerprint: of the group's configuration
    """

    template_fields = ("tables", *GroupOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {"tables": "json"}
    ui_color = "#e8f1d4"

    def __init__(
        self, *, tables: Sequence[Mapping[str, Any]], group: Sequence[str], fingerprint: str, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.group = group
        self.fingerprint = fingerprint

    def render_template(self, content: Any, *rest: Any, **how: Any) -> Any:
        """Fill in a template. Other texts are not compiled: that would take longer than the detection.

        A table whose templates cannot be filled in stops no other.
        """
        if content is self.tables:
            return [self._rendered(table, *rest, **how) for table in content]
        if isinstance(content, str) and "{" not in content:
            return content
        return super().render_template(content, *rest, **how)

    def _rendered(self, table: Mapping[str, Any], *rest: Any, **how: Any) -> Any:
        try:
            return super().render_template(table, *rest, **how)
        except Exception as error:
            self.log.exception("The templates of %s cannot be filled in", table["pipeline"])
            return {"pipeline": table["pipeline"], UNRENDERED: f"{type(error).__name__}: {error}"}

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Plan every table that the run is about."""

        run = asked(context, tables=self.group)
        if run.date_interval is not None:
            self.log.info("A backfill by dates: from %s to %s.", *run.date_interval)
        elif run.explicit:
            self.log.info("Mode %s, asked for by the form.", run.mode)
        chosen = [of_run(table, run) for table in self.tables if table["pipeline"] in run.tables]
        named = len(run.tables) < len(self.group) or len(self.group) == 1
        about = []
        for table in chosen:
            why = _no_part(table, chosen=named)
            if why:
                self.log.info("%s %s.", table["pipeline"], why)
            else:
                about.append(table)
        names = [table["pipeline"] for table in about]
        others = [dict(table) for table in self.tables if table["pipeline"] not in names]
        made = self._pieces(context, [*about, *others])
        built, left_out = made[: len(about)], made[len(about) :]
        looked = iter(engine.detect_changes([one for one in built if isinstance(one, engine.PipelineJob)]))
        found = [
            next(looked) if isinstance(one, engine.PipelineJob) else _unread(table["pipeline"], one)
            for table, one in zip(about, built, strict=True)
        ]
        if not named:
            found = [_without_log(table, one) for table, one in zip(about, found, strict=True)]
        self._log(found)
        summaries = {one.pipeline: _summary(one) for one in found}
        summaries |= {one.pipeline: _left_out(one) for one in left_out if isinstance(one, engine.PipelineJob)}
        context["ti"].xcom_push(key="tables", value=summaries)
        if run.explicit:
            _raise_first(found)
        stamp = uuid.uuid4().hex[:12]
        return [
            asdict(self._item(table, one, pipeline_job, stamp))
            for table, pipeline_job, one in zip(about, built, found, strict=True)
            if one.has_work or one.error is not None
        ]

    def _pieces(self, context: Context, some: Sequence[dict[str, Any]]) -> list[PipelineJob | DeltaCdcError]:
        """Return the work of each table, or why it has none."""
        errors = [template_error(table) for table in some]
        rendered = [table for table, error in zip(some, errors, strict=True) if error is None]
        made = iter(tables.pipeline_jobs(self, context, rendered, ingest=_reads_source))
        return [next(made) if error is None else error for error in errors]

    def _item(
        self,
        table: dict[str, Any],
        found: DetectedChanges,
        pipeline_job: PipelineJob | DeltaCdcError,
        stamp: str,
    ) -> Item:
        located = {} if isinstance(pipeline_job, DeltaCdcError) else _located(table, pipeline_job)
        return Item(
            pipeline=found.pipeline,
            table=table,
            located=located,
            fingerprint=self.fingerprint,
            stamp=stamp,
            since=found.since,
            saved_plans=found.saved_plans,
            found=found.found[:_MOST_OF_A_LINE],
            failed=found.error is not None,
        )

    def _log(self, found: Sequence[DetectedChanges]) -> None:
        for one in found:
            for note in one.notes:
                self.log.info("%s: %s", one.pipeline, note)
            if one.error is not None:
                self.log.error("%s: %s", one.pipeline, one.found)
        rows = [{"table": one.pipeline, "status": _status(one), "found": one.found} for one in found]
        busy = sum(one.has_work for one in found)
        self.log.info("%d of %d tables have work.\n%s", busy, len(found), grid(rows))


def of_run(table: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return a table's arguments with what the form of the run says put over them.

    Versions and limits that the arguments give for every day's runs do not hold for a run started by hand:
    they are left out for an end that the form gives, and in modes that are about keys.
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
    """Say why a run is not about a table; "" where it is.

    :param chosen: the form names it
    """
    mode = mode_of(table)
    if not takes_source(table) and not has_target(table):
        return f"has no target, so mode {mode} is not about it"
    if not chosen and mode in _BY_KEY and arguments.flag("insert_only", table.get("insert_only")):
        return f"is insert_only, and has no keys that mode {mode} could be about"
    return ""


def _without_log(table: Mapping[str, Any], found: DetectedChanges) -> DetectedChanges:
    """Accept that a log does not exist yet, of a table that the form does not name."""
    missing = isinstance(found.error, TableNotFound) and engine.is_ingested(table) and not takes_source(table)
    return replace(found, error=None, found="nothing: it has no log yet") if missing else found


def _reads_source(table: Mapping[str, Any]) -> bool:
    """Of a table without a target the log is all there is, whatever a run is about."""
    return takes_source(table) or not has_target(table)


def _unread(pipeline: str, error: DeltaCdcError) -> DetectedChanges:
    return engine.DetectedChanges(pipeline=pipeline, found=f"{type(error).__name__}: {error}", error=error)


def _located(table: Mapping[str, Any], pipeline_job: PipelineJob) -> dict[str, str]:
    """Return the locations of those tables that were given by name."""
    found: dict[str, str] = {}
    if pipeline_job.ingest is not None:
        found["log"] = pipeline_job.ingest.log
    if pipeline_job.apply is not None:
        found["log" if engine.is_ingested(table) else "source"] = pipeline_job.apply.source
        found["target"] = pipeline_job.apply.target
    return {name: location for name, location in found.items() if location != table.get(name)}


def _status(found: DetectedChanges) -> str:
    if found.error is not None:
        return "failed"
    return "work" if found.has_work else "nothing"


def _summary(found: DetectedChanges) -> dict[str, Any]:
    summary = {
        "status": _status(found),
        "target": found.target,
        "target_version": found.target_version,
        "version": found.version,
    }
    return {**summary, "found": found.found[:_MOST_OF_A_LINE]} if found.has_work or found.error else summary


def _left_out(pipeline_job: PipelineJob) -> dict[str, Any]:
    """Return the summary of a table that the run is not about."""

    return {
        "status": "left out",
        "target": engine.written_table(pipeline_job),
        "target_version": None,
        "version": None,
    }


def _raise_first(found: Sequence[DetectedChanges]) -> None:
    """Raise what is wrong with tables of a run started by hand.

    :raises DeltaCdcError: the error of the one table; of several ``TablesFailed``
    """

    failed = [one for one in found if one.error is not None]
    if len(failed) == 1 and failed[0].error is not None:
        raise failed[0].error
    outcomes = [engine.PipelineResult(pipeline=one.pipeline, error=one.error) for one in failed]
    tables.raise_failures(outcomes, len(found))
