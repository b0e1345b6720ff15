"""The pipelines of serialized DAGs, and the DAGs that explain their rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.arguments import is_template
from airflow_delta_cdc.assets import ALIAS_OF_GROUP, ALIAS_OF_PIPELINE
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


#: The types of the tasks that explain rows.
EXPLAINING = ("DeltaWhyOperator", "ExplainRowOperator")


@dataclass(frozen=True)
class Explaining:
    """A task that explains rows of one pipeline, in a DAG whose form has the key.

    :param target: table as the DAG names it; None if the serialized DAG does not hold it
    :param group: the group's ``dag_id``; None for a DAG that a user wrote
    :param fields: fields of the DAG's form
    """

    pipeline: str
    dag_id: str
    task_id: str
    target: str | None
    group: str | None
    fields: tuple[str, ...]

    def explains(self, one: Declared) -> bool:
        """Return whether the task explains a pipeline; without target and group, its name counts."""
        if self.pipeline != one.pipeline:
            return False
        if self.target is not None and one.target is not None:
            return _place(self.target) == _place(one.target)
        return self.group is None or self.group == one.group


@dataclass(frozen=True)
class Declared:
    """One pipeline of one DAG.

    :param task_ids: the tasks that publish its figures, in the DAG's order
    :param is_mapped: whether such a task is mapped, with the pipeline's name as the name of the map index
    :param group: the group's ``dag_id``; None for a pipeline without a group
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


def explaining(dag_id: str, serialized: Mapping[str, Any]) -> tuple[Explaining, ...]:
    """Return the tasks of one DAG that explain rows, one entry for each pipeline.

    A task without a literal pipeline explains those that the DAG's form offers. A DAG that also writes a
    pipeline has no entry: a run for a question would write, too.

    :param serialized: the DAG as the metadata database holds it
    """
    dag = serialized.get("dag") or {}
    params = dict(dag.get("params") or ())
    if "key" not in params or declared(dag_id, serialized):
        return ()
    schema = ((params.get("pipeline") or {}).get("schema") or {}).get("__var") or {}
    tasks = [task.get("__var") or {} for task in dag.get("tasks") or ()]
    found = []
    for task in tasks:
        if task.get("task_type") not in EXPLAINING:
            continue
        tables = dict(_tables(task))
        literal = _literal(task.get("pipeline"))
        names = [literal] if literal else [str(name) for name in schema.get("enum") or tables]
        found += [
            Explaining(
                pipeline=name,
                dag_id=dag_id,
                task_id=task["task_id"],
                target=_literal((tables.get(name) or task).get("target")),
                group=_text(task.get("group")),
                fields=tuple(params),
            )
            for name in names
        ]
    return tuple(found)


def _literal(value: Any) -> str | None:
    return value if isinstance(value, str) and value and not is_template(value) else None


def _place(table: str) -> str:
    try:
        return canonical_uri(table)
    except DeltaCdcError:
        return table.strip().lower()


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
        if isinstance(table, dict) and isinstance(table.get("pipeline"), str):
            yield table["pipeline"], table


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
