"""Environment variables in users' table names."""

from __future__ import annotations

import os
import re

from delta_cdc.core.errors import InvalidConfiguration

_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")


def has_variable(text: str) -> bool:
    """Return whether a text names an environment variable that is not set here."""
    return _VARIABLE.search(os.path.expandvars(text)) is not None


def expand(table: str) -> str:
    """Substitute ``${ENV}`` in a table's path or URI.

    :raises InvalidConfiguration: a variable is not set
    """
    if has_variable(table):
        raise InvalidConfiguration(
            f"The table {table!r} names an environment variable that is not set here.",
            remedy="set it for the scheduler, the workers and the triggerer, or write the table literally.",
        )
    return os.path.expandvars(table)
