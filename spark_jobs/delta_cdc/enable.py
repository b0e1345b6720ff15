"""Is the change data feed on already, and since when? Answered from the log, without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.errors import DeltaCdcError, TableNameUnresolved, UnsupportedTable
from delta_cdc.log import DeltaLog, canonical_uri
from delta_cdc.properties import feed_on

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Commits read at once on the way back.
_BATCH = 200


def is_path(table: str) -> bool:
    """Return whether a table is given by its location, not by a catalog name."""
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
    """Return the answer for all tables, if none of them needs a change.

    :param tables: paths or URIs
    :param properties: the properties wanted, the change data feed among them
    :return: per table ``table``, ``table_id``, ``first_readable_version`` and ``changed`` (False); None where
        at least one table needs Spark
    :raises TableNotFound: for a table that does not exist
    :raises NotADeltaTable: for files without a log
    """
    found = []
    for table in tables:
        log = DeltaLog(table, dict(storage_options) if storage_options else None)
        try:
            state = await log.snapshot()
        except UnsupportedTable:
            # Spark may know more features than the reader here.
            return None
        if any(state.configuration.get(name) != value for name, value in properties.items()):
            return None
        found.append(
            {
                "table": table,
                "table_id": state.table_id,
                "first_readable_version": await first_readable_version(log, state.version),
                "changed": False,
            }
        )
    return found


async def described(
    tables: Sequence[Mapping[str, Any]], *, storage_options: Mapping[str, str] | None = None
) -> list[dict[str, Any]]:
    """Return what the job reported, with the first readable version of each table in place of its location.

    :param tables: ``JobResult.tables`` of an :class:`delta_cdc.spec.EnableSpec`
    """
    found = []
    for entry in tables:
        log = DeltaLog(entry["location"], dict(storage_options) if storage_options else None)
        first = await first_readable_version(log, await log.newest_version())
        kept = {name: entry[name] for name in ("table", "table_id", "changed")}
        found.append({**kept, "first_readable_version": first})
    return found


async def first_readable_version(log: DeltaLog, newest: int) -> int:
    """Return the version since which the feed is on without a break; it must be on at ``newest``.

    Where the log was cleaned, that is the oldest version that can be told to have had the feed on.
    """
    oldest = await log.oldest_version()
    on_since: int | None = None
    for end in range(newest, oldest - 1, -_BATCH):
        for commit in reversed(await log.commits(range(max(oldest, end - _BATCH + 1), end + 1))):
            if commit.metadata is None:
                continue
            if not feed_on(commit.metadata.configuration):
                # Off here; so the feed starts with the next metadata action, which is the one seen last.
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
