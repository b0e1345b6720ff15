"""What users write for a table: templates, environment variables, and what is known when a DAG is parsed."""

from __future__ import annotations

import os
import re
from typing import Any

from delta_cdc.errors import InvalidConfiguration

_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")


def is_template(value: Any) -> bool:
    """Return whether a value still has to be rendered by Jinja (or isn't known yet at parse time)."""
    return not isinstance(value, str) or "{{" in value or "{%" in value


def is_literal(value: Any) -> bool:
    """Return whether a table is known when the DAG file is parsed."""
    return not is_template(value) and bool(value) and not _VARIABLE.search(os.path.expandvars(value))


def expand(table: str) -> str:
    """Fill ``${ENV}`` into a table's path or URI.

    :raises InvalidConfiguration: where a variable is not set
    """
    expanded = os.path.expandvars(table)
    if _VARIABLE.search(expanded):
        raise InvalidConfiguration(
            f"The table {table!r} names an environment variable that is not set here.",
            remedy="set it for the scheduler, the workers and the triggerer, or write the table literally.",
        )
    return expanded
