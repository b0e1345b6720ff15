"""Has a table new changes? Answered from its log, one small request per look.

A watch knows the last commit it has seen. A look asks for the next version: one request, and nothing more
while there is none. That alone would take a table that was dropped and made again for the old one as soon as
its new log has reached the same version, so the identity of the last commit's file is asked for too: whenever
there is a next version, and every :data:`CHECK_EVERY`-th look.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core import arguments, codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.concurrency import gathered
from delta_cdc.core.errors import (
    InvalidConfiguration,
    NotADeltaTable,
    SourceHistoryChanged,
    SourceTableReplaced,
    TableNotFound,
)
from delta_cdc.delta_log.table import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState

Reason = Literal["new_versions", "table_created", "table_recreated", "seal_due"]

#: The version of a table that doesn't exist yet: every commit comes after it.
BEFORE_EVERYTHING = -1
#: How often a look that finds nothing new asks whether the table is still the same one.
CHECK_EVERY = 20

_ABSENT = (TableNotFound, NotADeltaTable)
_FIRST_BATCH = 1
_LARGEST_BATCH = 32


@dataclass(frozen=True)
class Position:
    """A point in a table's history.

    :param version: everything up to and including it has been seen; -1 is before everything
    :param table_id: the table's id there, where it is known
    :param commit_hash: SHA-256 (hex) of the version's commit file, where it is known; tells the table from
        another one that was made at the same place and has reached the same version
    """

    version: int = BEFORE_EVERYTHING
    table_id: str | None = None
    commit_hash: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        made: dict[str, Any] = codec.encoded(self)
        return made

    @classmethod
    def from_dict(cls, data: Any) -> Position | None:
        """Read the JSON form; None for anything else."""
        try:
            return codec.decoded(cls, data)
        except UnreadableJson:
            return None


@dataclass(frozen=True)
class Condition:
    """Which commits count, and how many of them make news. Commits that change no data never count.

    :param min_versions: how many it takes
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
        given = partitions if arguments.is_given(partitions) else {}
        if not isinstance(given, dict):
            raise InvalidConfiguration(
                f"partitions is {partitions!r}.", remedy="give a mapping from a column to a value or a list."
            )
        return cls(
            min_versions=arguments.whole_number("min_versions", min_versions, minimum=1) or 1,
            operations=frozenset(
                name.strip().lower() for name in arguments.names("operations", operations) or ()
            ),
            partitions={str(column): _values(column, value) for column, value in given.items()},
        )

    def partitions_as_lists(self) -> dict[str, list[str | None]]:
        """Return the partitions in a form that JSON can hold; :meth:`of` reads it back."""
        return {
            column: sorted(values, key=lambda value: (value is not None, value))
            for column, values in self.partitions.items()
        }

    def in_log_of(self, state: TableState) -> Condition:
        """Return the condition with the columns named as the log of this table names them.

        :raises InvalidConfiguration: for a column that the table is not partitioned by
        """
        if not self.partitions:
            return self
        known = {name.lower(): name for name in state.partition_columns}
        for column in self.partitions:
            if column.lower() not in known:
                raise InvalidConfiguration(
                    f"The table {state.uri} is not partitioned by {column} "
                    f"(its partition columns: {', '.join(state.partition_columns) or 'none'}).",
                    remedy="name partition columns, or leave partitions out.",
                )
        named = _names_in_log(state)
        return replace(
            self,
            partitions={named[known[column.lower()]]: values for column, values in self.partitions.items()},
        )

    def counts(self, commit: Commit) -> bool:
        """Tell whether a commit counts. (The columns must be named as in the log.)"""
        if not commit.changes_data:
            return False
        if self.operations and commit.info.operation.lower() not in self.operations:
            return False
        return not self.partitions or any(self._matches(dict(values)) for values in commit.partitions)

    def _matches(self, values: dict[str, str | None]) -> bool:
        # A writer may leave out the partition of a file that it removes: then it can't be told, and counts.
        return all(
            column not in values or values[column] in self.partitions[column] for column in self.partitions
        )


@dataclass(frozen=True)
class News:
    """What a watch found.

    :param table: the table, as it was given
    :param table_id: its id now
    :param version: the newest version
    :param previous_version: the last version seen before; None where every commit counted
    :param timestamp: time of the newest commit that counted, ISO 8601 in UTC
    :param reason: ``new_versions``; ``table_created`` where an earlier look found no table;
        ``table_recreated`` where the table is another one than before, whatever was changed in it;
        ``seal_due`` where nothing was changed, but the watermark has to be sealed anew
    :param position: where to go on from
    """

    table: str
    table_id: str
    version: int
    previous_version: int | None
    timestamp: str
    reason: Reason
    position: Position

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form, as XComs and asset events carry it."""
        return {
            "table": self.table,
            "table_id": self.table_id,
            "version": self.version,
            "previous_version": self.previous_version,
            "timestamp": self.timestamp,
            "reason": self.reason,
        }


@dataclass
class _Count:
    """The commits that counted since the last news; times in epoch milliseconds."""

    commits: int = 0
    newest_time: int | None = None


class Watch:
    """Counts the commits of a table that change data after a position; looks at each commit once.

    A commit that only rearranges files (OPTIMIZE) or changes metadata doesn't count. One whose file was
    cleaned from the log does: whether it changed data can't be told any more. A table that doesn't exist, or
    doesn't exist any more, is waited for.

    :param table: path or URI
    :param position: commits after this one count; a plain version will do
    :param condition: which commits, and how many
    :param allow_recreation: whether a table made again at the same place is news, or an error
    :param seal_due_at: from then on (epoch milliseconds) even no change is news: whoever waits has to seal
        its watermark anew, see :func:`delta_cdc.planning.renewal.seal_due_at`; None is never
    :param storage_options: options of the object store
    :raises TableNameUnresolved: for a catalog name
    """

    def __init__(
        self,
        table: str,
        *,
        position: Position | int,
        condition: Condition | None = None,
        allow_recreation: bool = True,
        seal_due_at: int | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        self._table = table
        self._seal_due_at = seal_due_at
        self._log = DeltaLog(table, dict(storage_options) if storage_options else None)
        self._since = Position(position) if isinstance(position, int) else position
        self._asked = condition or Condition()
        self._allow_recreation = allow_recreation
        #: The newest commit looked at. Its file's fingerprint is None until the watch has got its bearings.
        self._seen = self._since
        self._fingerprint: str | None = None
        self._condition = self._asked
        self._count = _Count()
        self._was_absent = False
        self._looks = 0

    async def look(self) -> News | None:
        """Look once; None while there isn't enough to tell, also while the table doesn't exist.

        :raises UnsupportedTable: for a table whose log alone doesn't tell what happened
        :raises InvalidConfiguration: for partitions by a column that is no partition column
        :raises SourceTableReplaced: without ``allow_recreation``, for another table at the same place
        :raises SourceHistoryChanged: without ``allow_recreation``, for a copy with another history
        """
        try:
            if self._fingerprint is None:
                return await self._get_bearings() or await self._due()
            return await self._look_on(self._fingerprint) or await self._due()
        except _ABSENT:
            self._fingerprint = None
            self._was_absent = True
            return None

    def go_on_after(self, news: News) -> None:
        """Wait for what comes after some news."""
        self._since = news.position
        self._count = _Count()
        self._was_absent = False

    def reopen(self, storage_options: Mapping[str, str] | None) -> None:
        """Go on with other options of the object store."""
        self._log = DeltaLog(self._table, dict(storage_options) if storage_options else None)

    # -- looking ----------------------------------------------------------------------------------
    async def _get_bearings(self) -> News | None:
        """The first look, and the one after the last commit was found changed or gone."""
        if self._was_absent:
            # Cheaper than opening a table that most likely still isn't there.
            await self._log.newest_version()
        state = await self._log.snapshot()
        self._condition = self._asked.in_log_of(state)
        if self._seen.version >= 0 and await self._is_another(state):
            return await self._made_again(state)
        return await self._read_up_to(state.version, state)

    async def _look_on(self, fingerprint: str) -> News | None:
        self._looks += 1
        newest = await self._log.newest_version(after=self._seen.version)
        is_newer = newest > self._seen.version
        if (is_newer or self._looks % CHECK_EVERY == 0) and not await self._is_as_it_was(fingerprint):
            self._fingerprint = None
            return await self._get_bearings()
        if is_newer:
            return await self._read_up_to(newest)
        return await self._enough()

    async def _is_as_it_was(self, fingerprint: str) -> bool:
        now = await self._log.fingerprint(self._seen.version)
        if now == fingerprint:
            return True
        # Storage may be moved or restored with every byte the same; only another content is another table.
        commit = await self._log.find(self._seen.version) if now is not None else None
        if commit is None or commit.sha256 != self._seen.commit_hash:
            return False
        self._fingerprint = now
        return True

    async def _is_another(self, state: TableState) -> bool:
        if state.version < self._seen.version:
            return True
        commit = await self._log.find(self._seen.version)
        if commit is None:
            # Cleaned from the log, so its content can't be compared.
            return self._seen.table_id is not None and self._seen.table_id != state.table_id
        # Another id alone may be a CREATE OR REPLACE, which goes on in the same log.
        return self._seen.commit_hash is not None and self._seen.commit_hash != commit.sha256

    async def _read_up_to(self, newest: int, state: TableState | None = None) -> News | None:
        commit = await self._log.find(newest)
        fingerprint = await self._log.fingerprint(newest)
        if commit is None or fingerprint is None:
            # Gone between two requests: look again.
            self._fingerprint = None
            return None
        await self._count_back(commit, self._seen.version)
        table_id = state.table_id if state is not None else self._seen.table_id
        self._seen = Position(newest, table_id, commit.sha256)
        self._fingerprint = fingerprint
        return await self._enough(state)

    async def _count_back(self, newest: Commit, after: int) -> None:
        """Count the commits in ``(after, newest]``, from the newest back, until there are enough."""
        version, batch = newest.version, _FIRST_BATCH
        found: list[Commit | None] = [newest]
        while version > after and self._count.commits < self._condition.min_versions:
            for commit in found:
                if commit is None:
                    # It and all before it were cleaned from the log.
                    self._count.commits += version - after
                    return
                self._take(commit)
                version -= 1
            batch = min(batch * 4, _LARGEST_BATCH)
            wanted = range(version, max(after, version - batch), -1)
            found = list(await gathered((self._log.find(v) for v in wanted), limit=_LARGEST_BATCH))

    def _take(self, commit: Commit) -> None:
        if self._condition.counts(commit):
            self._count.commits += 1
            self._count.newest_time = max(self._count.newest_time or 0, commit.timestamp)

    # -- what is told -----------------------------------------------------------------------------
    async def _enough(self, state: TableState | None = None) -> News | None:
        if self._count.commits < self._condition.min_versions:
            return None
        reason: Reason = "table_created" if self._was_absent and self._since.version < 0 else "new_versions"
        return await self._news(reason, state or await self._log.snapshot(), self._count.newest_time)

    async def _due(self) -> News | None:
        now = time.time_ns() // 1_000_000
        if self._fingerprint is None or self._seal_due_at is None or now < self._seal_due_at:
            return None
        return await self._news("seal_due", await self._log.snapshot(), now)

    async def _made_again(self, state: TableState) -> News | None:
        """Another table is at the place: that is news by itself, whatever is asked of its commits."""
        if not self._allow_recreation:
            raise self._refused(state)
        commit = await self._log.find(state.version)
        fingerprint = await self._log.fingerprint(state.version)
        if commit is None or fingerprint is None:
            return None
        self._seen = Position(state.version, state.table_id, commit.sha256)
        self._fingerprint = fingerprint
        self._count = _Count()
        return await self._news("table_recreated", state, commit.timestamp)

    async def _news(self, reason: Reason, state: TableState, moment: int | None) -> News:
        if moment is None:
            moment = (await self._log.commit(self._seen.version)).timestamp
        self._seen = replace(self._seen, table_id=state.table_id)
        return News(
            table=self._table,
            table_id=state.table_id,
            version=self._seen.version,
            previous_version=self._since.version if self._since.version >= 0 else None,
            timestamp=datetime.fromtimestamp(moment / 1000, UTC).isoformat(timespec="milliseconds"),
            reason=reason,
            position=self._seen,
        )

    def _refused(self, state: TableState) -> SourceTableReplaced | SourceHistoryChanged:
        seen = self._seen
        if state.table_id == seen.table_id:
            return SourceHistoryChanged(
                f"The table {state.uri} has the id it had, but version {seen.version} is not what it was.",
                remedy="load what was built from it anew, or wait with allow_recreation=True.",
            )
        return SourceTableReplaced(
            f"The table {state.uri} (id {state.table_id}, newest version {state.version}) is not the one "
            f"whose version {seen.version} was seen" + (f" (id {seen.table_id})." if seen.table_id else "."),
            remedy="load what was built from it anew, wait with allow_recreation=True, or correct it.",
        )


async def position_now(table: str, *, storage_options: Mapping[str, str] | None = None) -> Position:
    """Return where a table's history is now; before everything where the table doesn't exist yet.

    :raises UnsupportedTable: for a table whose log alone doesn't tell what happened
    """
    log = DeltaLog(table, dict(storage_options) if storage_options else None)
    try:
        state = await log.snapshot()
    except _ABSENT:
        return Position()
    commit = await log.find(state.version)
    return Position(state.version, state.table_id, commit.sha256 if commit is not None else None)


# -- partitions -----------------------------------------------------------------------------------
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


def _names_in_log(state: TableState) -> dict[str, str]:
    """Return the name in the log of every column: another one under column mapping."""
    import json

    fields = json.loads(state.schema_string).get("fields", []) if state.schema_string else []
    named = {name: name for name in state.partition_columns}
    named.update(
        {
            column["name"]: (column.get("metadata") or {}).get(
                "delta.columnMapping.physicalName", column["name"]
            )
            for column in fields
        }
    )
    return named
