"""What users write for a table: templates, environment variables, and what is known when a DAG is parsed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.variables import expand, has_variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["expand", "is_literal", "is_template", "take"]


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
