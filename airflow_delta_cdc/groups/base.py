"""Shared by the tasks of a group: connections, and the items of work that they pass to each other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_delta_cdc import engine, tables
from airflow_delta_cdc.arguments import attributes
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import SETTINGS, TEXT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.core.option_schema import Kind
    from delta_cdc.run.batch import PipelineJob
    from delta_cdc.run.saved_plans import SavedPlans

#: Modes in which a table with a change log ingests from its source; in other modes, only its log is read.
INGESTING = ("incremental", "dry_run")


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

    def work_id(self, context: Context) -> str:
        """Return an id of the work: the same in all tasks of a group, which share the work of a table."""
        dag_id = getattr(context.get("ti"), "dag_id", None)
        return "/".join(filter(None, (dag_id, context["run_id"])))


def mode_of(table: Mapping[str, Any]) -> str:
    """Return the mode that a table's arguments name."""
    return arguments.text("mode", table.get("mode")) or "incremental"


def takes_source(table: Mapping[str, Any]) -> bool:
    """Return whether a run ingests from the source of a table with a change log."""
    return engine.is_ingested(table) and mode_of(table) in INGESTING


def has_target(table: Mapping[str, Any]) -> bool:
    """Return whether the table has a target, so that its changes are applied."""
    return arguments.is_given(table.get("target")) or not engine.is_ingested(table)


def template_error(table: Mapping[str, Any]) -> InvalidConfiguration | None:
    """Return the error of a table's templates; None if they were rendered."""
    if UNRENDERED not in table:
        return None
    return InvalidConfiguration(
        f"Cannot render the templates of {table['pipeline']}: {table[UNRENDERED]}.",
        remedy="correct the templates, or the values that they use. Then clear the run from its task "
        "detect_changes on, because this task renders the templates.",
    )


def is_dry(table: Mapping[str, Any]) -> bool:
    """Return whether the run of a table is a dry run, which writes nothing."""
    return mode_of(table) == "dry_run" or arguments.flag("dry_run", table.get("dry_run"))


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table's work, passed from ``detect_changes`` by XCom and as arguments of a mapped task.

    :param pipeline: the table's name
    :param table: its arguments, with rendered templates, overridden by the form of the run
    :param located: the locations of those of ``source``, ``log`` and ``target`` that are catalog names
    :param fingerprint: hash of the group's configuration when the changes were detected
    :param stamp: id of that detection; saved plans and answers of an earlier detection do not count
    :param since: version of the target before the work, -1 if it does not exist; None if nothing is applied
    :param saved_plans: plans that fix the range of the work to the detected changes
    :param found: the work, for people
    :param failed: whether the detection failed
    """

    pipeline: str
    table: dict[str, Any]
    located: dict[str, str]
    fingerprint: str
    stamp: str
    since: int | None
    saved_plans: dict[str, dict[str, Any]]
    found: str
    failed: bool = False


def pieces_of(operator: GroupOperator, context: Context, items: Sequence[Item]) -> list[PipelineJob]:
    """Return the jobs of some items, not planned yet; the caller adds ``saved_plans`` and ``since``."""
    arguments_of, located = [item.table for item in items], [item.located for item in items]
    return tables.planned(
        tables.pipeline_jobs(operator, context, arguments_of, ingest=takes_source, located=located)
    )


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
