"""Has a table new changes? Answered from its log, one small request per look."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import NotADeltaTable, TableNotFound
from delta_cdc.log import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Mapping

#: The baseline of a table that doesn't exist yet: every commit counts.
BEFORE_EVERYTHING = -1

_ABSENT = (TableNotFound, NotADeltaTable)


@dataclass(frozen=True)
class News:
    """What a watch found.

    :param version: the newest version
    :param previous_version: the baseline; None where every commit counted
    """

    table: str
    table_id: str
    version: int
    previous_version: int | None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return asdict(self)


class Watch:
    """Counts the commits of a table that change data after a baseline; looks at each commit once.

    A commit that only rearranges files (OPTIMIZE) or changes metadata doesn't count. One whose file was
    cleaned from the log does: whether it changed data can't be told any more. A newest version below the
    baseline is news as well: the table was made again.

    :param table: path or URI
    :param baseline_version: commits after this one count; -1 counts all
    :param min_versions: how many commits that change data make news
    :param storage_options: options of the object store
    """

    def __init__(
        self,
        table: str,
        *,
        baseline_version: int,
        min_versions: int = 1,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._table = table
        self._log = DeltaLog(table, dict(storage_options) if storage_options else None)
        self._baseline = baseline_version
        self._wanted = min_versions
        self._counted = 0
        self._seen: int | None = None

    async def look(self) -> News | None:
        """Look once; None while there isn't enough to tell, also while the table doesn't exist.

        :raises TableNameUnresolved: for a catalog name
        """
        try:
            # The first look lists the log: where it was cleaned beyond the baseline, asking for the next
            # version would say "nothing new" for ever.
            newest = await self._log.newest_version(after=self._seen)
        except _ABSENT:
            return None
        if self._seen is None and newest < self._baseline:
            return await self._news(newest)
        await self._count(self._baseline if self._seen is None else self._seen, newest)
        return await self._news(newest) if self._counted >= self._wanted else None

    async def _count(self, after: int, newest: int) -> None:
        for version in range(after + 1, newest + 1):
            if self._counted >= self._wanted:
                break
            commit = await self._log.find(version)
            if commit is None or commit.changes_data:
                self._counted += 1
        self._seen = max(newest, after)

    async def _news(self, newest: int) -> News:
        state = await self._log.snapshot()
        return News(
            table=self._table,
            table_id=state.table_id,
            version=newest,
            previous_version=self._baseline if self._baseline >= 0 else None,
        )


async def newest_version(table: str, *, storage_options: Mapping[str, str] | None = None) -> int:
    """Return a table's newest version; -1 where the table doesn't exist yet."""
    try:
        return await DeltaLog(table, dict(storage_options) if storage_options else None).newest_version()
    except _ABSENT:
        return BEFORE_EVERYTHING
