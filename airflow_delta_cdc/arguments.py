"""What users write for a table: templates, environment variables, and what is known when a DAG is parsed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.variables import expand, has_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["expand", "is_literal", "is_template", "named_tables", "pipeline_name", "take"]


def is_template(value: Any) -> bool:
    """Return whether a value still has to be rendered by Jinja (or isn't known yet at parse time)."""
    return not isinstance(value, str) or "{{" in value or "{%" in value


def is_literal(value: Any) -> bool:
    """Return whether a table is known when the DAG file is parsed."""
    return not is_template(value) and bool(value) and not has_variable(value)


def take(operator: Any, options: Iterable[str], given: Mapping[str, Any]) -> None:
    """Set the attributes of an operator that its options are.

    :param options: their names
    :param given: the parameters of its constructor by their names
    """
    for name in options:
        setattr(operator, name, given[name])


def pipeline_name(pipeline: str | None, *tables: Any) -> str:
    """Return the name of a pipeline, which is needed when the DAG file is parsed.

    :param pipeline: the name, where the user gives one
    :param tables: the tables it writes; without a name, the last part of the first one that is given
    :raises InvalidConfiguration: that table is the output of another task
    """
    if pipeline:
        return pipeline
    table = next(filter(None, tables), "")
    if not isinstance(table, str):
        raise InvalidConfiguration(
            "The task has no pipeline, and the table it writes is the output of another task.",
            remedy="give pipeline a value.",
            argument="pipeline",
        )
    return arguments.last_part(os.path.expandvars(table))


def named_tables(operator: Any, *choices: str) -> list[str]:
    """Return the tables that a task names by exactly one of some arguments; none where that is ``schema``.

    :param choices: names of the arguments
    :raises InvalidConfiguration: several arguments are given, or no table
    """
    given = [name for name in choices if arguments.is_given(getattr(operator, name))]
    if len(given) != 1:
        raise InvalidConfiguration(
            f"The task {operator.task_id} was given {' and '.join(given) or 'no table'}.",
            remedy=f"give exactly one of {', '.join(choices)}.",
        )
    if given == ["schema"]:
        return []
    names = arguments.names("tables", getattr(operator, given[0]))
    if not names:
        raise InvalidConfiguration("tables is empty.", remedy="name at least one table.")
    return list(dict.fromkeys(expand(name.strip()) for name in names))
