"""Finds out from a table's log whether it has new changes: one small request per look.

A watch knows the last commit it has seen. A look requests the next version's commit, and nothing more while
that does not exist. This alone would mistake a table that was dropped and created again for the old one as
soon as its new log reaches the same version. So a look also requests the identity of the last commit's file
whenever a next version exists, and every :data:`CHECK_EVERY`-th time.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core import arguments, codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import (
    InvalidConfiguration,
    NotADeltaTable,
    SourceHistoryChanged,
    SourceTableReplaced,
    TableNotFound,
)
from delta_cdc.core.partitions import MOST_PARTITIONS
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.actions import rewrote_only
from delta_cdc.delta_log.replay import History
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.partitions import changed_partitions, logged_names

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping

    from delta_cdc.delta_log.actions import Commit, CommitFold, CommitInfo, Partition
    from delta_cdc.delta_log.table import TableState

Reason = Literal["new_versions", "table_created", "table_recreated", "seal_due"]

#: The last version that a watch has seen. A plain number if the table's identity at that version is unknown;
#: -1 is below the first version.
Position = TableVersion | int
BEFORE_EVERYTHING = -1
#: The number of looks without news after which a watch checks whether the table is still the same one.
CHECK_EVERY = 20
#: The most commits whose partitions one piece of news lists: beyond, it names the whole table.
MOST_COMMITS = 100

#: Characters of a list that no operation's name has.
_NO_OPERATION = re.compile(r"[\[\](){},'\"]")
_ABSENT = (TableNotFound, NotADeltaTable)


def position_to_json(position: Position) -> Any:
    """Return the JSON form of a position."""
    return {"version": position} if isinstance(position, int) else codec.encoded(position)


def position_from_json(data: Any) -> Position | None:
    """Read the JSON form of a position; None for anything else."""
    match data:
        case {"version": int(version), **rest} if not rest:
            # People can edit the store that keeps it.
            return version if type(version) is int and -1 <= version < 1 << 63 else None
    try:
        return codec.decoded(TableVersion, data)
    except UnreadableJson:
        return None


@dataclass(frozen=True)
class Condition:
    """Which commits count, and how many of them make news. Commits that change no data never count.

    :param min_versions: the number of commits that make news
    :param operations: only commits of these operations, as ``DESCRIBE HISTORY`` names them, in lower case;
        empty: of all
    :param partitions: only commits that add or remove rows in such partitions: allowed values by column
    """

    min_versions: int = 1
    operations: frozenset[str] = frozenset()
    partitions: Mapping[str, frozenset[str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, *, min_versions: Any = 1, operations: Any = None, partitions: Any = None) -> Condition:
        """Read what users write.

        :param min_versions: a whole number, or its text; None is 1
        :param operations: a name or a list of names, such as ``["WRITE", "MERGE"]``, in any case
        :param partitions: a mapping from a partition column to a value or a list of values
        :raises InvalidConfiguration: for anything else
        """
        values_by_column = arguments.mapping("partitions", partitions)
        return cls(
            min_versions=arguments.whole_number("min_versions", min_versions, minimum=1) or 1,
            operations=_operations(operations),
            partitions={column: _values(column, value) for column, value in values_by_column.items()},
        )

    def partitions_as_lists(self) -> dict[str, list[str | None]]:
        """Return the partitions in a form that JSON can hold; :meth:`of` reads it back."""
        return {
            column: sorted(values, key=lambda value: (value is not None, value))
            for column, values in self.partitions.items()
        }

    def in_log_of(self, state: TableState) -> Condition:
        """Return the condition with each column under its name in this table's log.

        :raises InvalidConfiguration: for a column that the table is not partitioned by
        """
        if not self.partitions:
            return self
        logged = {name.lower(): in_log for name, in_log in logged_names(state).items()}
        for column in self.partitions:
            if column.lower() not in logged:
                raise InvalidConfiguration(
                    f"The table {state.uri} is not partitioned by {column} "
                    f"(its partition columns: {', '.join(state.partition_columns) or 'none'}).",
                    remedy="name partition columns, or leave partitions out.",
                )
        values = {logged[column.lower()]: allowed for column, allowed in self.partitions.items()}
        return replace(self, partitions=values)

    def counts(self, commit: Commit) -> bool:
        """Return whether a commit counts. (The columns must be named as in the log.)"""
        if not commit.changes_data:
            return False
        if not self._is_operation(commit.info):
            return False
        return not self.partitions or self._is_any(commit.partitions)

    def enough(self) -> Callable[[CommitFold], bool]:
        """Return a function for the reading of one commit: whether the actions so far decide that it counts.

        (The columns must be named as in the log.)
        """
        seen: set[Partition] = set()

        def decided(fold: CommitFold) -> bool:
            if fold.info is None:
                # Also has the time of the commit.
                return False
            if rewrote_only(fold.info) or not self._is_operation(fold.info):
                return True
            unseen = fold.partitions - seen
            seen.update(unseen)
            return fold.has_data_files and (not self.partitions or self._is_any(unseen))

        return decided

    def listed(self) -> Callable[[CommitFold], bool]:
        """Return a function as :meth:`enough` does: whether the actions so far decide which partitions of a
        commit are listed."""

        def decided(fold: CommitFold) -> bool:
            if fold.info is None:
                return False
            return len(fold.partitions) > MOST_PARTITIONS or not self._is_operation(fold.info)

        return decided

    def _is_operation(self, info: CommitInfo) -> bool:
        return not self.operations or info.operation.lower() in self.operations

    def _is_any(self, partitions: Iterable[Partition]) -> bool:
        return any(self._matches(dict(values)) for values in partitions)

    def _matches(self, values: dict[str, str | None]) -> bool:
        # A writer may leave out the partition of a file that it removes: the commit counts then.
        return all(
            column not in values or values[column] in self.partitions[column] for column in self.partitions
        )


@dataclass(frozen=True)
class News:
    """The news of a watch.

    :param table: the table, as it was given
    :param position: its id now and its newest version; the watch continues from there
    :param previous_version: the last version seen before; None if every commit counted
    :param timestamp: time of the newest commit that counted, ISO 8601 in UTC
    :param reason: ``new_versions``; ``table_created`` if an earlier look found no table; ``table_recreated``
        if the table is another one than before, with or without changes; ``seal_due`` if nothing was
        changed, but the watermark has to be sealed again
    :param partitions: the changed partitions (:func:`delta_cdc.planning.partitions.changed_partitions`); None
        for an unpartitioned table, or if they are not wanted
    """

    table: str
    position: TableVersion
    previous_version: int | None
    timestamp: str
    reason: Reason
    partitions: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as XComs and asset events carry it."""
        listed = {} if self.partitions is None else {"partitions": list(self.partitions)}
        return {
            "table": self.table,
            "table_id": self.position.table_id,
            "version": self.position.version,
            "previous_version": self.previous_version,
            "timestamp": self.timestamp,
            "reason": self.reason,
            **listed,
        }


class Watch:
    """Counts the commits of a table that change data after a position; looks at each commit once.

    A commit that only rearranges files (OPTIMIZE) or changes metadata doesn't count. A commit whose file was
    cleaned from the log counts, because it may have changed data. A table that doesn't exist yet, or no
    longer exists, is waited for.

    :param table: path or URI
    :param position: commits after this one count
    :param condition: which commits, and how many
    :param allow_recreation: whether a table created again at the same place is news, or an error
    :param seal_due_at: from then on (epoch milliseconds) even no change is news, because the caller has to
        seal its watermark again, see :func:`delta_cdc.planning.renewal.seal_due_at`; None is never
    :param lists_partitions: whether news lists the changed partitions, which costs another request for each
        new commit of a partitioned table
    :param storage_options: options of the object store
    :raises TableNameUnresolved: for a catalog name
    """

    def __init__(
        self,
        table: str,
        *,
        position: Position,
        condition: Condition | None = None,
        allow_recreation: bool = True,
        seal_due_at: int | None = None,
        lists_partitions: bool = False,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._table = table
        self._lists_partitions = lists_partitions
        self._seal_due_at = seal_due_at
        self._log = _opened(table, storage_options)
        #: The newest commit seen. A look sets the table's identity there, and the fingerprint of the commit's
        #: file.
        self._version = position if isinstance(position, int) else position.version
        self._identity = None if isinstance(position, int) else position
        self._fingerprint: str | None = None
        self._since = self._version
        self._requested = self._condition = condition or Condition()
        self._allow_recreation = allow_recreation
        #: The commits since the last news that counted, and the time of the newest (epoch milliseconds).
        self._commits, self._newest_time = 0, 0
        self._was_absent = False
        self._looks = 0

    async def look(self) -> News | None:
        """Look once; None while there is no news, also while the table doesn't exist.

        :raises UnsupportedTable: for a table whose log alone doesn't show its changes
        :raises InvalidConfiguration: for partitions by a column that is no partition column
        :raises SourceTableReplaced: without ``allow_recreation``, for another table at the same place
        :raises SourceHistoryChanged: without ``allow_recreation``, for a copy with another history
        """
        try:
            return await self._look() or await self._due()
        except _ABSENT:
            self._fingerprint = None
            self._was_absent = True
            return None

    def go_on_after(self, news: News) -> None:
        """Wait for the commits after some news."""
        self._since = news.position.version
        self._commits = self._newest_time = 0
        self._was_absent = False

    def reopen(self, storage_options: Mapping[str, str] | None) -> None:
        """Continue with other options of the object store."""
        self._log = _opened(self._table, storage_options)

    # -- looking ----------------------------------------------------------------------------------
    async def _first_look(self) -> News | None:
        """Look for the first time, or after the last commit was found changed or missing."""
        if self._was_absent:
            # Cheaper than opening a table that most likely still doesn't exist.
            await self._log.newest_version()
        state = await self._log.snapshot()
        self._condition = self._requested.in_log_of(state)
        if self._version >= 0 and await self._is_another(state):
            return await self._recreated(state)
        return await self._read_up_to(state.version, state)

    async def _look(self) -> News | None:
        if self._fingerprint is None:
            return await self._first_look()
        self._looks += 1
        newest = await self._log.newest_version(after=self._version)
        is_newer = newest > self._version
        if (is_newer or self._looks % CHECK_EVERY == 0) and not await self._is_unchanged():
            self._fingerprint = None
            return await self._first_look()
        if is_newer:
            return await self._read_up_to(newest)
        return await self._news_if_enough()

    async def _is_unchanged(self) -> bool:
        now = await self._log.fingerprint(self._version)
        if now == self._fingerprint:
            return True
        # Moved or restored storage may have equal bytes: only different content means another table.
        commit = await self._log.find(self._version) if now is not None else None
        if commit is None or self._identity is None or commit.sha256 != self._identity.commit_hash:
            return False
        self._fingerprint = now
        return True

    async def _is_another(self, state: TableState) -> bool:
        if state.version < self._version:
            return True
        if self._identity is None:
            return False
        commit = await self._log.find(self._version)
        if commit is None:
            # Cleaned from the log, so its content can't be compared.
            return self._identity.table_id != state.table_id
        # Another id alone may be a CREATE OR REPLACE, which continues the same log.
        return self._identity.commit_hash not in (None, commit.sha256)

    async def _read_up_to(self, newest: int, state: TableState | None = None) -> News | None:
        identity = state or self._identity
        assert identity is not None
        if await self._see(newest, identity.table_id, count=True) is None:
            return None
        return await self._news_if_enough(state)

    async def _see(self, version: int, table_id: str, *, count: bool = False) -> Commit | None:
        """Record the newest commit as seen; return None if it vanished between two requests, to look
        again."""
        commit = await self._log.find(version, enough=self._condition.enough())
        fingerprint = await self._log.fingerprint(version)
        if commit is None or fingerprint is None:
            self._fingerprint = None
            return None
        if count:
            await self._count_back(commit, self._version)
        self._version, self._identity = version, TableVersion(table_id, version, commit.sha256)
        self._fingerprint = fingerprint
        return commit

    async def _count_back(self, newest: Commit, after: int) -> None:
        """Count the commits in ``(after, newest]``, from the newest back, until there are enough."""

        def find(version: int) -> Coroutine[Any, Any, Commit | None]:
            return self._log.find(version, enough=self._condition.enough(), hashed=False)

        history = History(find)
        commit: Commit | None = newest
        for version in range(newest.version, after, -1):
            if commit is None:
                # This commit and all older ones were cleaned from the log.
                self._commits += version - after
                return
            if self._condition.counts(commit):
                self._commits += 1
                self._newest_time = max(self._newest_time, commit.timestamp)
            if self._commits >= self._condition.min_versions:
                return
            commit = await history.get(version - 1, after + 1) if version - 1 > after else None

    # -- news -------------------------------------------------------------------------------------
    async def _news_if_enough(self, state: TableState | None = None) -> News | None:
        if self._commits < self._condition.min_versions:
            return None
        reason: Reason = "table_created" if self._was_absent and self._since < 0 else "new_versions"
        return await self._news(reason, state or await self._log.snapshot(), self._newest_time)

    async def _due(self) -> News | None:
        now = time.time_ns() // 1_000_000
        if self._fingerprint is None or self._seal_due_at is None or now < self._seal_due_at:
            return None
        return await self._news("seal_due", await self._log.snapshot(), now)

    async def _recreated(self, state: TableState) -> News | None:
        """Return the news that another table is at the location; this is news regardless of the condition."""
        if not self._allow_recreation:
            raise self._refused(state)
        commit = await self._see(state.version, state.table_id)
        self._commits = self._newest_time = 0
        return None if commit is None else await self._news("table_recreated", state, commit.timestamp)

    async def _news(self, reason: Reason, state: TableState, moment: int) -> News:
        moment = moment or (await self._log.commit(self._version)).timestamp
        commit_hash = self._identity.commit_hash if self._identity is not None else None
        partitions = await self._partitions(state, is_another=reason == "table_recreated")
        self._identity = TableVersion(state.table_id, self._version, commit_hash)
        return News(
            table=self._table,
            position=self._identity,
            previous_version=self._since if self._since >= 0 else None,
            timestamp=datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds"),
            reason=reason,
            partitions=partitions,
        )

    async def _partitions(self, state: TableState, *, is_another: bool) -> tuple[str, ...] | None:
        """Return the partitions that the counted commits since the last news changed."""
        if not self._lists_partitions or not state.partition_columns:
            return None
        versions = range(self._since + 1, self._version + 1)
        if is_another or self._since < 0 or len(versions) > MOST_COMMITS:
            return changed_partitions([None], state)
        find = partial(self._log.find, enough=self._condition.listed(), hashed=False)
        commits = await History(find).read(versions)
        counted = [commit for commit in commits if commit is None or self._condition.counts(commit)]
        return changed_partitions(counted, state)

    def _refused(self, state: TableState) -> SourceTableReplaced | SourceHistoryChanged:
        seen = self._identity.table_id if self._identity is not None else None
        if state.table_id == seen:
            return SourceHistoryChanged(
                f"The table {state.uri} has the same id, but its version {self._version} has changed.",
                remedy="load the tables built from it again. Or set allow_recreation=True.",
            )
        return SourceTableReplaced(
            f"The table {state.uri} (id {state.table_id}, newest version {state.version}) is not the one "
            f"whose version {self._version} was seen" + (f" (id {seen})." if seen else "."),
            remedy="load the tables built from it again. Or set allow_recreation=True. Or correct table.",
        )


async def position_now(table: str, *, storage_options: Mapping[str, str] | None = None) -> Position:
    """Return a table's newest version; -1 if the table doesn't exist yet.

    :raises UnsupportedTable: for a table whose log alone doesn't show its changes
    """
    log = _opened(table, storage_options)
    try:
        state = await log.snapshot()
    except _ABSENT:
        return BEFORE_EVERYTHING
    commit = await log.find(state.version)
    return TableVersion(state.table_id, state.version, commit.sha256 if commit is not None else None)


def _opened(table: str, storage_options: Mapping[str, str] | None) -> DeltaLog:
    return DeltaLog(table, dict(storage_options) if storage_options else None)


# -- partitions -----------------------------------------------------------------------------------
def _operations(value: Any) -> frozenset[str]:
    names = arguments.names("operations", value) or ()
    for name in names:
        if _NO_OPERATION.search(name):
            # The wait for it would never end.
            raise arguments.refused("operations", name, "give a list of names, such as ['MERGE', 'UPDATE'].")
    return frozenset(name.strip().lower() for name in names if arguments.is_given(name))


def _values(column: Any, value: Any) -> frozenset[str | None]:
    items = value if isinstance(value, list | tuple | set | frozenset) else [value]
    if not items:
        raise InvalidConfiguration(
            f"partitions names no value of {column}.", remedy="give a value or a list of values."
        )
    return frozenset(_as_in_log(item) for item in items)


def _as_in_log(value: Any) -> str | None:
    """Return a partition's value as Delta writes it; an empty text is NULL there."""
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)
