"""Build SQL text: the only place where identifiers and values become part of a statement."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_DATE = re.compile(r"^\d{4}-\d{2}-\d{2}\Z")

#: Columns of our own plans; refused in sources, never written to targets.
PLAN_PREFIX = "__delta_cdc_"


def quote(name: str) -> str:
    """Quote one identifier (back-ticks doubled)."""
    return "`" + name.replace("`", "``") + "`"


def column(qualifier: str, name: str) -> str:
    """Return ``qualifier.`name```."""
    return f"{qualifier}.{quote(name)}"


def table(uri: str) -> str:
    """Return the table at a path or URI in Delta's SQL syntax: ``delta.`uri```.

    A catalog name (``catalog.schema.table``) is quoted part by part.
    """
    if "/" in uri:
        return f"delta.{quote(uri)}"
    return ".".join(quote(part) for part in uri.split("."))


def string(value: str) -> str:
    """Return a SQL string literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def literal(value: Any) -> str | None:
    """Return the typed SQL literal of a value that Spark collected, or None for an unsupported type.

    Literals only help to skip files, so a missing literal costs time, but loses no rows.
    """
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int):
        return str(value)
    if isinstance(value, Decimal):
        return f"{value:f}BD"
    if isinstance(value, str):
        # The meaning of a back-slash or a quote in a literal depends on the user's parser confs.
        return None if any(mark in value for mark in ("\\", "'", "${")) else string(value)
    return None


def date_literal(text: str | None) -> str | None:
    """Return the literal of a date collected as text; None for years beyond four digits."""
    return f"DATE'{text}'" if text is not None and _DATE.match(text) else None


def merge(
    *,
    target: str,
    source_view: str,
    on: Iterable[str],
    clauses: Iterable[str],
    evolve: bool,
) -> str:
    """Return a MERGE statement with target alias ``t`` and source alias ``s``."""
    return "\n".join(
        [
            f"MERGE {'WITH SCHEMA EVOLUTION ' if evolve else ''}INTO {table(target)} AS t",
            f"USING {quote(source_view)} AS s",
            "ON " + " AND ".join(on),
            *clauses,
        ]
    )


def set_properties(uri: str, properties: Mapping[str, str]) -> str:
    """Return ``ALTER TABLE … SET TBLPROPERTIES``."""
    assignments = ", ".join(f"{string(name)} = {string(value)}" for name, value in properties.items())
    return f"ALTER TABLE {table(uri)} SET TBLPROPERTIES ({assignments})"


def update_set(assignments: Mapping[str, str]) -> str:
    """Return ``UPDATE SET …``. Target columns have no alias: with one, schema evolution fails."""
    return "UPDATE SET " + ", ".join(f"{quote(name)} = {value}" for name, value in assignments.items())


def insert(values: Mapping[str, str]) -> str:
    """Return ``INSERT (…) VALUES (…)``."""
    return f"INSERT ({', '.join(map(quote, values))}) VALUES ({', '.join(values.values())})"
