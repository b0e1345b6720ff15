"""Compares the commits of a table with the seals that were planned on them.

A commit file never changes. So if a seal was planned on a version, and that version's file now has another
SHA-256, the file was overwritten (as by a driver that a disk without exclusive creation let through), forged,
or put back from a backup. This reads no file: it compares the commits that a walk has read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core.errors import TargetChangedUnderneath, TargetHistoryChanged
from delta_cdc.core.history import is_restore, replaces_all_rows
from delta_cdc.core.watermark import Seal, app_id

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.replay import History

_SHOWN = 12


def any_seal_of(commit: Commit) -> Seal | None:
    """Return the seal a commit carries, of any pipeline.

    Both ``txn`` and ``userMetadata`` must match: the conf that sets ``userMetadata`` leaks into later commits
    of the same Spark session.
    """
    seal = Seal.from_json(commit.info.user_metadata)
    if seal is None:
        return None
    app = app_id(seal.pipeline)
    is_sealed = any(txn.app_id == app and txn.version == seal.number for txn in commit.txns)
    return seal if is_sealed else None


def replaces(commit: Commit) -> bool:
    """Return whether a commit's operation replaced all rows."""
    return replaces_all_rows(commit.info.operation, commit.info.operation_parameters)


def restores(commit: Commit) -> bool:
    """Return whether a commit is a RESTORE."""
    return is_restore(commit.info.operation)


def restored_version(commit: Commit) -> int | None:
    """Return the version that a RESTORE restored; None if its commit does not name an earlier version."""
    version = commit.info.whole_parameter("version")
    return version if version is not None and 0 <= version < commit.version else None


def seal_of(commit: Commit, pipeline: str) -> Seal | None:
    """Return the seal a commit carries for a pipeline."""
    seal = any_seal_of(commit)
    return seal if seal is not None and seal.pipeline == pipeline else None


class Back:
    """The commits of a table from a version back, newest first, as far as its log still has them.

    :param after: the version before the oldest one to look at
    :param restored: returns the version that a RESTORE restored: the walk goes on there, so that commits that
        it undid are left out; the RESTORE itself is not. None: every commit counts
    """

    def __init__(
        self,
        history: History | SealChain,
        newest: int,
        after: int = -1,
        *,
        restored: Callable[[Commit], int] | None = None,
    ) -> None:
        self._history, self._newest, self._after, self._restored = history, newest, after, restored
        #: The first version of the walk whose commit was cleaned from the log; None if the walk met none.
        self.cleaned: int | None = None

    async def __aiter__(self) -> AsyncIterator[Commit]:
        """Yield the commits.

        :raises TargetHistoryChanged: see :class:`SealChain`
        """
        version = self._newest
        while version > self._after:
            commit = await self._history.get(version)
            if commit is None:
                self.cleaned = version
                return
            yield commit
            version -= 1
            if self._restored is not None and restores(commit):
                version = self._restored(commit)


class SealChain:
    """A history whose commits are compared with the seals planned on them, as far as they are read.

    Only commits in effect count: not those that a RESTORE undid, nor those before a commit that replaced all
    rows. Of each pipeline, the numbers of the seals must also rise from commit to commit.

    :param newest: the table's newest version
    :param uri: the table, for the error
    :param table_id: seals that were planned on another table do not count (as in a quarantine). None: the
        table that the newest seal was planned on
    :param can_restore: a RESTORE undoes commits. False for staging, whose seals count whatever was restored
    :param refuse_strays: a seal that was planned on another table than ``table_id`` is an error
    """

    def __init__(
        self,
        history: History,
        newest: int,
        *,
        uri: str,
        table_id: str | None = None,
        can_restore: bool = True,
        refuse_strays: bool = False,
    ) -> None:
        self._history = history
        self._uri = uri
        self._table_id = table_id
        self._can_restore = can_restore
        self._strays = _Strays(table_id) if refuse_strays and table_id is not None else None
        #: The next version to compare; -1 at the end.
        self._next = newest
        #: By version: the seals planned on it, each with its own version.
        self._planned: dict[int, list[tuple[Seal, int]]] = {}
        #: Whether a commit that replaced all rows was met.
        self._replaced = False
        #: By pipeline: number and version of its oldest seal so far.
        self._oldest: dict[str, tuple[int, int]] = {}

    async def get(self, version: int) -> Commit | None:
        """Return a commit as :meth:`~delta_cdc.delta_log.replay.History.get` does, after :meth:`compare`.

        :raises TargetHistoryChanged: see :meth:`compare`
        """
        commit = await self._history.get(version)
        self.compare()
        return commit

    def compare(self) -> None:
        """Compare the commits that were read since the last call.

        :raises TargetHistoryChanged: a commit is not the one that a seal was planned on, or two seals of a
            pipeline have numbers that do not rise
        :raises TargetChangedUnderneath: a job that was planned on another table committed into this one
        """
        while (commit := self._history.known(self._next)) is not None:
            self._compare(commit)
            earlier: int | None = commit.version - 1
            if restores(commit) and self._can_restore:
                earlier = restored_version(commit)
            self._next = -1 if earlier is None or replaces(commit) else earlier
            if replaces(commit):
                self._keep_base(commit)
        for version in list(self._planned) if self._replaced else ():
            if (base := self._history.known(version)) is not None:
                self._compare_with_seals(base)

    def _keep_base(self, commit: Commit) -> None:
        """Go on with what a commit that replaced all rows was planned on, and nothing else.

        The commit removed the files of the versions that it has read. Those of a commit that came in place of
        one of them stay in the table.
        """
        pairs = [pair for found in self._planned.values() for pair in found if pair[1] == commit.version]
        self._planned = {
            seal.step.planned_on.version: [(seal, version)]
            for seal, version in pairs
            if seal.step.planned_on is not None
        }
        self._replaced = True

    def _compare_with_seals(self, commit: Commit) -> None:
        for later, version in self._planned.pop(commit.version, ()):
            if other := difference(commit, later, version):
                raise self._changed(commit.version, other)

    def _compare(self, commit: Commit) -> None:
        self._compare_with_seals(commit)
        seal = any_seal_of(commit)
        if self._strays is not None and (found := self._strays.see(commit, seal)) is not None:
            raise stray(self._uri, *found)
        planned = seal.step.planned_on if seal is not None else None
        if seal is None or planned is None or self._table_id not in (None, planned.table_id):
            return
        self._table_id = planned.table_id
        number, version = self._oldest.get(seal.pipeline, (None, 0))
        if number is not None and seal.number >= number:
            raise self._changed(
                commit.version,
                f"has seal {seal.number} of pipeline {seal.pipeline}, and the later version {version} has "
                f"its seal {number}, though the numbers of seals rise",
            )
        self._oldest[seal.pipeline] = (seal.number, commit.version)
        if planned.commit_hash is not None:
            self._planned.setdefault(planned.version, []).append((seal, commit.version))

    def _changed(self, version: int, difference: str) -> TargetHistoryChanged:
        return history_changed(self._uri, version, difference, version - 1 if self._can_restore else -1)


class _Strays:
    """Looks for seals of jobs that were planned on another table, from newer to older commits.

    Delta lets such a commit through: a transaction compares only the versions after the one that it has read.

    :param table_id: the table's id in its newest version
    """

    def __init__(self, table_id: str) -> None:
        self._table_id = table_id
        #: Whether the table may have had another id before the commits that were seen.
        self._may_differ = False
        self._found: tuple[Seal, int] | None = None

    def see(self, commit: Commit, seal: Seal | None) -> tuple[Seal, int] | None:
        """Return the stray seal, and its version, once it is proven that the table had its id by then."""
        # The commits before a RESTORE are those of its version, and some writers leave out its metadata.
        self._may_differ = self._may_differ or restores(commit)
        if commit.metadata is not None:
            self._may_differ = True
            if commit.metadata.id != self._table_id:
                self._found = None
            return self._found
        planned = seal.step.planned_on if seal is not None else None
        if seal is None or planned is None:
            return None
        if planned.table_id == self._table_id:
            return self._found
        self._found = self._found or (seal, commit.version)
        return None if self._may_differ else self._found


def difference(before: Commit, seal: Seal, version: int) -> str | None:
    """Return how a commit differs from the one that a seal was planned on, as a verb and what follows.

    :param before: the commit of the version that the seal was planned on
    :param version: the version that has the seal
    """
    planned = seal.step.planned_on
    if planned is None or planned.commit_hash in (None, before.sha256):
        return None
    return (
        f"is not the commit that seal {seal.number} of pipeline {seal.pipeline} (version {version}) was "
        f"planned on: the SHA-256 of its file is {before.sha256[:_SHOWN]}…, and that seal has "
        f"{str(planned.commit_hash)[:_SHOWN]}…"
    )


def stray(uri: str, seal: Seal, version: int) -> TargetChangedUnderneath:
    """Build the error for a commit of a job that was planned on an earlier table at the same place.

    :param version: the version that has the seal
    """
    planned = seal.step.planned_on
    return TargetChangedUnderneath(
        f"Version {version} of {uri} was written by a job of pipeline {seal.pipeline} that was planned on "
        f"another table, which was here before (id {planned.table_id if planned is not None else None}). Its "
        "rows do not belong here.",
        remedy=f"RESTORE the table to version {version - 1}, then run again. Before you drop a table, end "
        "the jobs that write to it.",
    )


def history_changed(uri: str, version: int, difference: str, intact: int) -> TargetHistoryChanged:
    """Build the error for a commit that is not the one that was made.

    :param difference: a verb, and what differs
    :param intact: the newest version that a RESTORE can bring back; -1: none
    """
    restore = f"RESTORE the table to version {intact} or an earlier one, then run again; or "
    return TargetHistoryChanged(
        f"Version {version} of {uri} {difference}. A commit file was overwritten, forged or put back from a "
        "backup.",
        remedy=f'{restore if intact >= 0 else ""}run an apply with mode="reset", which replaces all rows; or '
        "move the table away (a change log together with its __ingested), and the next run makes it again.",
    )
