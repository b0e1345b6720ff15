"""The pipelines of serialized DAGs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.assets import ALIAS_OF_GROUP, ALIAS_OF_PIPELINE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(frozen=True)
class Declared:
    """One pipeline of one DAG.

    :param task_ids: the tasks that publish its figures, in the DAG's order
    :param is_mapped: whether such a task is mapped, with the pipeline's name as the name of the map index
    :param group: name of the group; None for a pipeline without a group
    :param source: table as the DAG names it; None if the serialized DAG does not hold it
    :param target: in the same way; the change log, if only an ingest is known
    :param form: fields of the DAG's form (:func:`airflow_delta_cdc.form.run_params`), with their defaults
    """

    pipeline: str
    dag_id: str
    task_ids: tuple[str, ...]
    is_mapped: bool
    group: str | None
    source: str | None
    target: str | None
    form: tuple[tuple[str, Any], ...]


def declared(dag_id: str, serialized: Mapping[str, Any]) -> tuple[Declared, ...]:
    """Return the pipelines of one DAG, in the DAG's order.

    An alias among the outlets of a task shows its pipeline.

    :param serialized: the DAG as the metadata database holds it
    """
    dag = serialized.get("dag") or {}
    tasks = [task.get("__var") or {} for task in dag.get("tasks") or ()]
    tables = {name: table for task in tasks for name, table in _tables(task)}
    aliases = [(task, _aliases(task)) for task in tasks]
    groups = [
        name.removeprefix(ALIAS_OF_GROUP)
        for _, names in aliases
        for name in names
        if name.startswith(ALIAS_OF_GROUP)
    ]
    form = tuple((name, param.get("default")) for name, param in dag.get("params") or ())
    found: dict[str, list[Mapping[str, Any]]] = {}
    for task, names in aliases:
        for name in names:
            if not name.startswith(ALIAS_OF_GROUP):
                found.setdefault(name.removeprefix(ALIAS_OF_PIPELINE), []).append(task)
    parts = [(pipeline, part) for pipeline, publishing in found.items() for part in _by_target(publishing)]
    return tuple(
        Declared(
            pipeline=pipeline,
            dag_id=dag_id,
            task_ids=tuple(task["task_id"] for task in publishing),
            is_mapped=any(task.get("_is_mapped") for task in publishing),
            group=groups[0] if groups else None,
            source=_text(tables.get(pipeline, publishing[0]).get("source")),
            # An operator has its log under another name, because it has a logger.
            target=next(
                filter(None, (_text(written.get(name)) for name in ("target", "log_table", "log"))), None
            ),
            form=form,
        )
        for pipeline, publishing in parts
        for written in [tables.get(pipeline, publishing[-1])]
    )


def _by_target(tasks: list[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Divide tasks of one name by their targets; a task without one, such as an ingest, is part of each."""
    targets = dict.fromkeys(target for task in tasks if (target := _text(task.get("target"))) is not None)
    return [
        [task for task in tasks if _text(task.get("target")) in (target, None)]
        for target in targets or (None,)
    ]


def _aliases(task: Mapping[str, Any]) -> Iterator[str] | list[str]:
    outlets = task.get("outlets") or (task.get("partial_kwargs") or {}).get("outlets") or ()
    names = [str((outlet.get("__var") or {}).get("name")) for outlet in outlets if _is_alias(outlet)]
    return [name for name in names if name.startswith(ALIAS_OF_PIPELINE)]


def _is_alias(outlet: Any) -> bool:
    return isinstance(outlet, dict) and outlet.get("__type") == "asset_alias"


def _tables(task: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the arguments of the tables of a detecting task; Airflow shortens long arguments to a text."""
    tables = task.get("tables")
    for table in tables if isinstance(tables, list) else ():
        if isinstance(table, dict) and "pipeline" in table:
            yield table["pipeline"], table


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
