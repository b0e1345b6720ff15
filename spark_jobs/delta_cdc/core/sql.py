"""Build SQL text: the only place where identifiers and values become part of a statement."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from delta_cdc.core.uris import at_root

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - Spark's literal adds the zone

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
    if at_root(uri):
        # Without a path, Spark takes the URI for a relative one.
        uri = f"{uri.rstrip('/')}/"
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


def date_literal(days: int) -> str | None:
    """Return the literal of a date, given as days since 1970; None for years outside 1 to 9999."""
    try:
        return f"DATE'{_EPOCH.date() + timedelta(days)}'"
    except OverflowError:
        return None


def time_literal(microseconds: int, *, zoned: bool) -> str | None:
    """Return the literal of a time; None for years outside 1 to 9999.

    :param microseconds: since 1970, in UTC
    :param zoned: of the type TIMESTAMP, else TIMESTAMP_NTZ
    """
    try:
        text = (_EPOCH + timedelta(microseconds=microseconds)).isoformat(" ")
    except OverflowError:
        return None
    return f"TIMESTAMP_LTZ'{text}Z'" if zoned else f"TIMESTAMP_NTZ'{text}'"


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
