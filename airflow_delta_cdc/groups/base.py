"""Shared by the tasks of a group: connections, the arguments of the tables, and saved plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, cast

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.failures import unrendered
from airflow_delta_cdc.groups import xcoms
from airflow_delta_cdc.lazy import Lazy
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from delta_cdc.core import arguments
from delta_cdc.core.errors import ConfigurationChanged, DeltaCdcError, InvalidConfiguration
from delta_cdc.core.option import SETTINGS, TEXT
from delta_cdc.core.options import BOUNDS_OF_THE_INGEST, SIZE_LIMITS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc import jobs
    from airflow_delta_cdc.form import Run
    from airflow_delta_cdc.groups.xcoms import Item
    from delta_cdc.core.option import Kind
    from delta_cdc.run.batch import PipelineJob
    from delta_cdc.run.saved_plans import SavedPlans
else:
    jobs = Lazy("airflow_delta_cdc.jobs")

#: The mode in which a table with a change log ingests from its source; in others, only its log is read.
INGESTING = "incremental"
#: The arguments of a table that bound the versions of a run, by the end of the range.
_ENDS = {
    "start": ("starting_version", "starting_timestamp"),
    "end": ("ending_version", "ending_timestamp"),
}
#: Modes that work on some or all keys in one commit, so that limits of size do not apply.
_OF_KEYS = ("repair", "reload", "interval")

#: The key of the error that replaces a table's arguments if their templates cannot be rendered.
UNRENDERED = "unrendered"


class GroupOperator(DeltaCdcOperator):
    """Base of the tasks of a group.

    :param kafka_options: options of the Kafka client, winning over those of ``kafka_conn_id``; no secrets
        (templated)
    :param kafka_conn_id: connection of type ``kafka`` (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`
    """

    kinds: ClassVar[dict[str, Kind]] = {
        "kafka_options": SETTINGS,
        "kafka_conn_id": TEXT,
        **DeltaCdcOperator.kinds,
    }
    template_fields = attributes(kinds)

    def __init__(
        self,
        *,
        kafka_options: Mapping[str, str] | None = None,
        kafka_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.kafka_options = kafka_options
        self.kafka_conn_id = kafka_conn_id
        self.check_literals()

    def announces(self, pipeline: str) -> bool:
        """Return True: some task of the group announces each of its tables."""
        return True

    def rendered(self, table: Mapping[str, Any], *rest: Any, **how: Any) -> dict[str, Any]:
        """Return the arguments of a table with rendered templates; see :func:`template_error`.

        If the templates of one table cannot be rendered, a task still works on the others.
        """
        try:
            return cast("dict[str, Any]", self.render_template(dict(table), *rest, **how))
        except Exception as error:
            self.log.exception("Cannot render the templates of %s", table["pipeline"])
            return {"pipeline": table["pipeline"], UNRENDERED: f"{type(error).__name__}: {error}"}

    def work_id(self, context: Context) -> str:
        """Return an id of the work: the same in all tasks of a group, which share the work of a table."""
        dag_id = getattr(context.get("ti"), "dag_id", None)
        return "/".join(filter(None, (dag_id, context["run_id"])))


def mode_of(table: Mapping[str, Any]) -> str:
    """Return the mode that a table's arguments name."""
    return arguments.text("mode", table.get("mode")) or "incremental"


def takes_source(table: Mapping[str, Any]) -> bool:
    """Return whether a run ingests from the source of a table with a change log, or from its quarantine."""
    return engine.is_ingested(table) and (mode_of(table) == INGESTING or engine.replays(table))


def has_target(table: Mapping[str, Any]) -> bool:
    """Return whether the table has a target, so that its changes are applied."""
    return arguments.is_given(table.get("target")) or not engine.is_ingested(table)


def collects(table: Mapping[str, Any]) -> bool:
    """Return whether a table's changes are appended to a change log, which another pipeline applies."""
    return bool(arguments.text("target_kind", table.get("target_kind")) == "change_log")


def template_error(table: Mapping[str, Any]) -> InvalidConfiguration | None:
    """Return the error of a table's templates; None if they were rendered."""
    if UNRENDERED not in table:
        return None
    then = "Then clear the task of this table, with all that follows."
    return unrendered(table["pipeline"], table[UNRENDERED], then)


def changed_error(table: Mapping[str, Any], item: Item, work_fingerprint: str) -> ConfigurationChanged | None:
    """Return the error of arguments that are not those of the detection; None if they are the same.

    A failed detection had no work, so its table is planned with the arguments of today.

    :param work_fingerprint: see :func:`airflow_delta_cdc.groups.xcoms.fingerprint`
    """
    now = xcoms.fingerprint(work_fingerprint, table)
    if item.failed or item.fingerprint == now:
        return None
    return ConfigurationChanged(
        f"The arguments of pipeline {item.pipeline} are not those that its changes were detected with "
        f"(fingerprint {item.fingerprint[:16]} then, {now} now).",
        remedy="clear the run from its task detect_changes on, with all that follows. If no user changed the "
        "configuration, one of its templates gives each task another value, such as the current time: use "
        "values of the run.",
    )


def arguments_of_run(table: Mapping[str, Any], run: Run) -> dict[str, Any]:
    """Return a table's arguments, overridden by the form of the run.

    The versions and limits in a table's arguments are meant for scheduled runs. A manual run ignores the
    versions of an end that the form gives. In modes that work on keys, it ignores all versions and limits.
    """
    if not run.explicit:
        return {**table, **run.arguments}
    left_out = set(SIZE_LIMITS) if run.mode in _OF_KEYS else set()
    for names in _ENDS.values():
        if run.mode in _OF_KEYS or any(name in run.arguments for name in names):
            left_out.update(names)
    if engine.is_ingested(table) and run.mode != INGESTING:
        left_out.update(BOUNDS_OF_THE_INGEST)
    return {name: value for name, value in table.items() if name not in left_out} | run.arguments


def is_dry(table: Mapping[str, Any]) -> bool:
    """Return whether the run of a table is a dry run, which writes nothing."""
    return arguments.flag("dry_run", table.get("dry_run"))


def jobs_of(
    operator: GroupOperator,
    context: Context,
    candidates: Sequence[Mapping[str, Any]],
    errors: Sequence[DeltaCdcError | None],
    *,
    ingest: Callable[[Mapping[str, Any]], bool],
    located: Sequence[Mapping[str, str]] = (),
    known_seals: Mapping[str, Mapping[str, int]] | None = None,
) -> list[PipelineJob]:
    """Return the job of each table, not planned yet; one with its error, if it has one.

    :param candidates: arguments of each table, rendered and of this run
    :param ingest, located, known_seals: see :func:`airflow_delta_cdc.jobs.pipeline_jobs`
    """
    valid = [number for number, error in enumerate(errors) if error is None]
    found = iter(
        jobs.pipeline_jobs(
            operator,
            context,
            [candidates[number] for number in valid],
            ingest=ingest,
            located=[located[number] for number in valid] if located else None,
            known_seals=known_seals,
        )
    )
    return [
        next(found) if error is None else engine.PipelineJob(error=error, name=table["pipeline"])
        for table, error in zip(candidates, errors, strict=True)
    ]


def jobs_of_items(
    operator: GroupOperator,
    context: Context,
    items: Sequence[Item],
    candidates: Sequence[Mapping[str, Any]],
    work_fingerprint: str,
) -> list[PipelineJob]:
    """Return :func:`jobs_of` of some items; the caller adds ``saved_plans`` and ``since``."""
    errors = [
        template_error(table) or changed_error(table, item, work_fingerprint)
        for table, item in zip(candidates, items, strict=True)
    ]
    located = [item.located for item in items]
    return jobs_of(operator, context, candidates, errors, ingest=takes_source, located=located)


def saved_plans_of(item: Item, pipeline_job: PipelineJob) -> dict[str, dict[str, Any]]:
    """Return the saved plans that fix the range of an apply to the detected changes, by their keys."""
    if pipeline_job.apply is None:
        return {}
    apply = pipeline_job.apply
    return {key: engine.plan_ending_at(apply, version) for key, version in item.ends.items()}


class WorkSavedPlans:
    """The saved plans of one item: those in the task's state store, or else those of earlier tasks.

    :param context: the task's context
    :param stamp: id of the detection; plans saved for another one do not count
    :param before: saved plans of earlier tasks, by key
    """

    def __init__(self, context: Context, stamp: str, before: Mapping[str, dict[str, Any]]) -> None:
        self._store: SavedPlans = TaskSavedPlans(context)
        self._stamp = stamp
        self._before = dict(before)
        self._touched: dict[str, None] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """Return the saved plan, or None."""
        return self._store.get(self._stamped(key)) or self._before.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Save a plan (JSON)."""
        self._touched[key] = None
        self._store.set(self._stamped(key), value)
        # Without a state store, at least this try has the plan.
        self._before[key] = value

    def delete(self, key: str) -> None:
        """Delete a saved plan; a missing one is no error."""
        self._before.pop(key, None)
        self._store.delete(self._stamped(key))

    def touched(self) -> dict[str, dict[str, Any]]:
        """Return the plans that this try saved, by key, without empty values."""
        plans = {key: self.get(key) for key in self._touched}
        return {
            key: {name: item for name, item in value.items() if item not in (None, "", [], ())}
            for key, value in plans.items()
            if value is not None
        }

    def leave(self) -> None:
        """Delete the plans of this try from the state store; the next task gets them by XCom."""
        for key in self._touched:
            self._store.delete(self._stamped(key))

    def _stamped(self, key: str) -> str:
        return f"{self._stamp}:{key}"
