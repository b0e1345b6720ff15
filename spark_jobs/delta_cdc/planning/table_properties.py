"""Finds whether and since when the change data feed is on, from the log, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, TableNameUnresolved, UnsupportedTable
from delta_cdc.core.properties import feed_on
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.table import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Number of commits read at once, going backwards.
_BATCH = 200


def is_path(table: str) -> bool:
    """Return whether a table is given by location, not by catalog name."""
    try:
        canonical_uri(table)
    except TableNameUnresolved:
        return False
    return True


async def already_enabled(
    tables: Sequence[str],
    properties: Mapping[str, str],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> list[dict[str, Any]] | None:
    """Return the result for all tables, if all of them already have the properties.

    :param tables: paths or URIs
    :param properties: the requested properties, including the change data feed
    :return: per table ``table``, ``table_id``, ``first_readable_version`` and ``changed`` (False); None if
        at least one table needs Spark
    :raises TableNotFound: for a table that does not exist
    :raises NotADeltaTable: for files without a log
    """
    results = []
    for table in tables:
        log = DeltaLog(table, dict(storage_options) if storage_options else None)
        try:
            state = await log.snapshot()
        except UnsupportedTable:
            # Spark may support more table features than this reader.
            return None
        if any(state.configuration.get(name) != value for name, value in properties.items()):
            return None
        results.append(
            {
                "table": table,
                "table_id": state.table_id,
                "first_readable_version": await first_readable_version(log, state.version),
                "changed": False,
            }
        )
    return results


async def described(
    tables: Sequence[Mapping[str, Any]], *, storage_options: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return the job's report, with each table's first readable version instead of its location.

    :param tables: ``JobResult.tables`` of an :class:`delta_cdc.core.spec.EnableSpec`
    """
    results = []
    for entry in tables:
        log = DeltaLog(entry["location"], dict(storage_options) if storage_options else None)
        first = await first_readable_version(log, await log.newest_version())
        kept = {name: entry[name] for name in ("table", "table_id", "changed")}
        results.append({**kept, "first_readable_version": first})
    return results


async def first_readable_version(log: DeltaLog, newest: int) -> int:
    """Return the version since which the feed is on without a break; it must be on at ``newest``.

    If the log was cleaned, that is the oldest version for which the log still shows that the feed was on.
    """
    oldest = await log.oldest_version()
    on_since: int | None = None
    for end in range(newest, oldest - 1, -_BATCH):
        for commit in reversed(await log.commits(range(max(oldest, end - _BATCH + 1), end + 1))):
            if commit.metadata is None:
                continue
            if not feed_on(commit.metadata.configuration):
                # The feed is off here, so it starts with the next metadata action, the one seen last.
                return commit.version + 1 if on_since is None else on_since
            on_since = commit.version
    if on_since is None or on_since == oldest:
        return oldest
    return oldest if await _is_on(log, oldest) else on_since


async def _is_on(log: DeltaLog, version: int) -> bool:
    try:
        state = await log.snapshot(version)
    except DeltaCdcError:
        # Not rebuildable, so not readable either.
        return False
    return feed_on(state.configuration)
