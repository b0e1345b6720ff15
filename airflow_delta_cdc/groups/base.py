"""What the tasks of a group share: connections, and the items of work that they hand each other."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine, tables
from airflow_delta_cdc.backup import kept
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from airflow_delta_cdc.operators.saved_plans import TaskPins
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow.sdk import Context

    from delta_cdc.run.batch import PipelineJob
    from delta_cdc.run.saved_plans import SavedPlans

#: In these, a table with a change log takes what its source has; in all others only its log is read.
INGESTING = ("incremental", "dry_run")


#: Replaces a table's arguments: why their templates could not be filled in.
UNRENDERED = "unrendered"


class GroupOperator(DeltaCdcOperator):
    """Base of the tasks of a group.

    :param kafka_options: options of the Kafka client, winning over those of ``kafka_conn_id``; no secrets
        (templated)
    :param kafka_conn_id: connection of type ``kafka`` (templated)
    :param kwargs: those of :class:`DeltaCdcOperator`
    """

    template_fields = (
        "kafka_options",
        "kafka_conn_id",
        *DeltaCdcOperator.template_fields,
    )

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

    def work_id(self, context: Context) -> str:
        """Return who works here: the same in all tasks of a group, which share the work of a table."""
        dag_id = getattr(context.get("ti"), "dag_id", None)
        return "/".join(filter(None, (dag_id, context["run_id"])))


def mode_of(table: Mapping[str, Any]) -> str:
    """Return the mode that a table's arguments name."""
    return arguments.text(table.get("mode")) or "incremental"


def takes_source(table: Mapping[str, Any]) -> bool:
    """Return whether a run takes what the source of a table with a change log has."""
    return engine.is_ingested(table) and mode_of(table) in INGESTING


def has_target(table: Mapping[str, Any]) -> bool:
    """Return whether something is applied, and not only ingested."""
    return arguments.is_given(table.get("target")) or not engine.is_ingested(table)


def template_error(table: Mapping[str, Any]) -> InvalidConfiguration | None:
    """Return why the templates of a table could not be filled in; None where they are filled in."""
    if UNRENDERED not in table:
        return None
    return InvalidConfiguration(
        f"The templates of {table['pipeline']} cannot be filled in: {table[UNRENDERED]}.",
        remedy="mend them, or what they ask for; then clear the run from its task detect_changes on, "
        "because templates are filled in there.",
    )


def is_dry(table: Mapping[str, Any]) -> bool:
    """Return whether nothing is to be written of a table."""
    return mode_of(table) == "dry_run" or arguments.flag("dry_run", table.get("dry_run"))


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table's work as ``detect_changes`` hands it on, in XCom and as arguments of a mapped task.

    :param pipeline: the table's name
    :param table: its arguments, with all templates filled in, and what the form of the run says
    :param located: those of ``source``, ``log`` and ``target`` that are catalog names, as locations
    :param fingerprint: of the group's configuration when its changes were detected
    :param stamp: of that detection; what was kept of an earlier one is not about this work
    :param since: version of the target before the work, -1 without one; None where nothing is applied
    :param saved_plans: what keeps the work at what was found
    :param found: the work, for people
    :param failed: it could not be planned
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
    """Return the work of some items, not planned yet; the caller adds pins and start."""
    located = [{**item.table, **item.located} for item in items]
    made = tables.planned(tables.pipeline_jobs(operator, context, located, ingest=takes_source))
    return [
        # The asset in which a copy of the seal is kept bears the name that the user gave.
        replace(
            pipeline_job,
            backup=partial(kept, context, operator.inlets, tables.source_of(item.table), item.pipeline),
        )
        for item, pipeline_job in zip(items, made, strict=True)
    ]


class WorkPins:
    """SavedPlans of one item: kept in the task's state store, and before that what others planned of it.

    :param context: the task's context
    :param stamp: of the detection; pins of another one are not found
    :param before: pins by key, of earlier tasks
    """

    def __init__(self, context: Context, stamp: str, before: Mapping[str, dict[str, Any]]) -> None:
        self._store: SavedPlans = TaskPins(context)
        self._stamp = stamp
        self._before = dict(before)
        self._touched: dict[str, None] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was pinned, or None."""
        return self._store.get(self._named(key)) or self._before.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        """SavedPlan a value (JSON)."""
        self._touched[key] = None
        self._store.set(self._named(key), value)
        # Without a store it is known to this try at least.
        self._before[key] = value

    def delete(self, key: str) -> None:
        """Forget a pin; one that isn't there is no error."""
        self._before.pop(key, None)
        self._store.delete(self._named(key))

    def touched(self) -> dict[str, dict[str, Any]]:
        """Return the pins of this try, by key, without what is empty in them."""
        found = {key: self.get(key) for key in self._touched}
        return {
            key: {name: item for name, item in value.items() if item not in (None, "", [], ())}
            for key, value in found.items()
            if value is not None
        }

    def leave(self) -> None:
        """Delete from the store what this try has put there; it has been handed on."""
        for key in self._touched:
            self._store.delete(self._named(key))

    def _named(self, key: str) -> str:
        return f"{self._stamp}:{key}"
