"""What users write for a table: templates, environment variables, and what is known when a DAG is parsed."""

from __future__ import annotations

from typing import Any

from delta_cdc.variables import expand, has_variable

__all__ = ["expand", "is_literal", "is_template"]


def is_template(value: Any) -> bool:
    """Return whether a value still has to be rendered by Jinja (or isn't known yet at parse time)."""
    return not isinstance(value, str) or "{{" in value or "{%" in value


def is_literal(value: Any) -> bool:
    """Return whether a table is known when the DAG file is parsed."""
    return not is_template(value) and bool(value) and not has_variable(value)
