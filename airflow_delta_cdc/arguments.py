"""Arguments of tasks: templates, environment variables, and values needed when a DAG is parsed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option_schema import flat, parameters
from delta_cdc.core.variables import expand, has_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from delta_cdc.core.option_schema import Option

__all__ = [
    "expand",
    "is_literal",
    "is_template",
    "named_tables",
    "pipeline_name",
    "take",
    "taken",
    "template_fields",
]

#: An operator's ``log`` is its logger.
_ATTRIBUTES = {"log": "log_table"}


def is_template(value: Any) -> bool:
    """Return whether a value is unknown at parse time: a Jinja template, or another task's output."""
    return not isinstance(value, str) or "{{" in value or "{%" in value


def is_literal(value: Any) -> bool:
    """Return whether a table is known when the DAG file is parsed."""
    return not is_template(value) and bool(value) and not has_variable(value)


def template_fields(options: Mapping[str, Option]) -> tuple[str, ...]:
    """Return the templated attributes of an operator for some options."""
    return tuple(_ATTRIBUTES.get(name, name) for name in parameters(options, templated=True))


def take(operator: Any, names: Iterable[str], given: Mapping[str, Any]) -> None:
    """Set the attributes of an operator for its parameters.

    :param names: the names of the parameters
    :param given: the parameters of its constructor by their names
    """
    for name in names:
        setattr(operator, _ATTRIBUTES.get(name, name), given[name])


def taken(operator: Any, options: Mapping[str, Option]) -> dict[str, Any]:
    """Return the options of an operator by their names, without groups.

    :raises InvalidConfiguration: a group is no mapping, or has an unknown key
    """
    names = parameters(options)
    return flat(options, {name: getattr(operator, _ATTRIBUTES.get(name, name)) for name in names})


def pipeline_name(pipeline: str | None, *tables: Any) -> str:
    """Return the name of a pipeline; it must be known when the DAG file is parsed.

    :param pipeline: the name, if the user gives one
    :param tables: the tables that it writes; the default name is the last part of the first given table
    :raises InvalidConfiguration: no name is given, and that table is the output of another task
    """
    if pipeline:
        return pipeline
    table = next(filter(None, tables), "")
    if not isinstance(table, str):
        raise InvalidConfiguration(
            "The task has no pipeline. It has no default either, because the table is the output of another "
            "task.",
            remedy="set pipeline.",
            argument="pipeline",
        )
    return arguments.last_part(os.path.expandvars(table))


def named_tables(operator: Any, *choices: str) -> list[str]:
    """Return the tables in exactly one of a task's arguments; an empty list if that is ``schema``.

    :param choices: names of the arguments
    :raises InvalidConfiguration: several arguments are given, or no table
    """
    given_names = [name for name in choices if arguments.is_given(getattr(operator, name))]
    if len(given_names) != 1:
        raise InvalidConfiguration(
            f"The task {operator.task_id} has {' and '.join(given_names) or 'no table'}.",
            remedy=f"set exactly one of {', '.join(choices)}.",
        )
    if given_names == ["schema"]:
        return []
    names = arguments.names("tables", getattr(operator, given_names[0]))
    if not names:
        raise InvalidConfiguration("tables is empty.", remedy="name at least one table.")
    return list(dict.fromkeys(expand(name.strip()) for name in names))
