"""Finds the recorded watermark in the target's log: the newest seal in effect, or why there is no such seal.

The walk goes backwards from the newest commit. At a RESTORE it continues at the restored version, because
everything in between is undone. If another writer replaced the table after the seal, the seal is void.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import (
    CorruptLog,
    DeltaCdcError,
    LogGap,
    LogLineTooLong,
    LogTooLarge,
    NotADeltaTable,
    PipelineTakenOver,
    SealUnreadable,
    TableNotFound,
    TargetChangedUnderneath,
    TargetHistoryChanged,
    TargetRecreated,
    TargetReplaced,
    TargetWithoutWatermark,
    TransactionRetentionSet,
    VersionsExpired,
    WatermarkExpired,
)
from delta_cdc.core.properties import STATISTICS_COLUMNS
from delta_cdc.core.storage_options import is_local, is_s3
from delta_cdc.core.text_table import plural
from delta_cdc.core.watermark import SEAL_FORMAT, Seal, TableVersion, app_id, format_of
from delta_cdc.delta_log.actions import corrupt_commit
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.seal_chain import (
    Back,
    SealChain,
    difference,
    history_changed,
    replaces,
    restored_version,
    restores,
    seal_of,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Sequence

    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.replay import History
    from delta_cdc.delta_log.table import DeltaLog, TableState

logger = logging.getLogger(__name__)

_RETENTION = "delta.setTransactionRetentionDuration"
_APP_PREFIX = app_id("")
#: Number of versions searched for seals of other pipelines, only to name them in an error; and for seals of a
#: pipeline that no event is known of.
_LOOK_BACK = 200
#: The remedy for a target whose log lacks files that its newest version needs.
_UNREADABLE = (
    "restore the missing files of its _delta_log from a backup; or move the table away, and the next run "
    "loads it again."
)


@dataclass(frozen=True)
class RecordedWatermark:
    """A pipeline's recorded watermark in an existing target.

    :param seal: the newest seal in effect; None for a table without one: it is empty, or the caller set its
        baseline
    :param next_number: the only seal number that can commit next
    :param empty: whether the target has no rows (set only if there is no seal)
    :param was_sealed: whether this pipeline ever sealed the table, even if a RESTORE undid the seal
    :param commit: the commit that carries ``seal``; None if the seal comes from a watermark backup
        (:class:`WatermarkBackup`)
    :param refused: why there is no seal, if the caller can continue without one
    :param newest_hash: SHA-256 (hex) of the target's newest commit file; None if it was not read
    """

    seal: Seal | None
    next_number: int
    target: TableState
    notes: tuple[str, ...] = ()
    empty: bool = False
    was_sealed: bool = True
    commit: Commit | None = None
    refused: DeltaCdcError | None = None
    newest_hash: str | None = None

    @property
    def target_version(self) -> TableVersion:
        """Return the target's newest version."""
        return TableVersion(self.target.table_id, self.target.version, self.newest_hash)

    def may_lack_layout(self, properties: Iterable[str]) -> bool:
        """Return whether a crash after the target's first commit may have left its layout incomplete.

        :param properties: names of the properties that the target is to have; Delta's own are ignored
        """
        state = self.target
        is_arranged = bool(state.partition_columns) or "clustering" in state.features
        missing = [p for p in properties if not p.startswith("delta.") and p not in state.configuration]
        return bool(missing) or (not is_arranged and STATISTICS_COLUMNS in state.configuration)


@dataclass(frozen=True)
class WatermarkBackup:
    """The watermark backup: a copy of the newest seal outside the target, in case its log is cleaned.

    It is valid only together with the target's log: the table and the seal number must match, and every
    commit after the sealed one must still exist, because a cleaned RESTORE would leave no trace.

    :param target: the target version that carries the seal
    """

    seal: Seal
    target: TableVersion

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        encoded: dict[str, Any] = codec.encoded(self)
        return encoded

    @classmethod
    def from_dict(cls, value: Any) -> WatermarkBackup | None:
        """Read the JSON form; return None for any other value, because users can edit the store that
        holds it."""
        try:
            return codec.decoded(cls, value)
        except UnreadableJson:
            return None


@dataclass
class _Walk:
    """The results of the backward walk to the seal.

    :param cleaned: the first version on the walk whose commit file was cleaned
    :param restored: version of the newest RESTORE, and the version that it restored
    """

    seal: Seal | None = None
    commit: Commit | None = None
    replaced: Commit | None = None
    cleaned: int | None = None
    restored: tuple[int, int] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Return whether the walk found no RESTORE and no replacement of all rows."""
        return self.replaced is None and not self.notes


def known_hash(history: History, version: int) -> str | None:
    """Return the SHA-256 of a version's commit file, if the file was already read."""
    commit = history.known(version)
    return commit.sha256 if commit is not None else None


async def reconcile_async(
    log: DeltaLog,
    pipeline: str,
    *,
    backup: Callable[[], Any] | None = None,
    declared: bool = False,
    closed: bool = False,
    forgiven: tuple[type[DeltaCdcError], ...] = (),
    thorough: bool = False,
) -> RecordedWatermark | None:
    """Find a pipeline's recorded watermark in the target's log.

    :param log: the target's log
    :param backup: returns the watermark backup (:meth:`WatermarkBackup.to_dict`), or anything else if there
        is no backup; called only if commits that prove the seal were cleaned from the log
    :param declared: the caller sets a baseline: rows without a seal are no error, and the result has no seal.
        A seal that expired is still an error
    :param closed: also return the last seal of a pipeline whose target another pipeline took over
    :param forgiven: errors that the caller ignores because it recomputes all rows: the result then has no
        seal, but the next number, and the error as ``refused``
    :param thorough: also compare the commit that the newest seal was planned on, and the files of a RESTORE
        or a reset with those that it must have left. Where a store may let a driver overwrite a commit, the
        latter reads two lists of files, as long as no other seal follows
    :return: None if no table exists
    :raises TargetReplaced: another writer replaced, overwrote or truncated the table after our seal
    :raises TargetChangedUnderneath: such a change lies between planning and the newest seal
    :raises TargetHistoryChanged: a commit was overwritten, forged or put back from a backup
    :raises TargetWithoutWatermark: the table holds rows, but no seal of this pipeline
    :raises WatermarkExpired: the sealed commit, or one between it and its plan, was cleaned from the log, and
        no watermark backup replaces it
    :raises PipelineTakenOver: another pipeline took the target over
    :raises TransactionRetentionSet: the table would forget the recorded watermark
    :raises VersionsExpired: the log lacks files that the newest version needs, as :exc:`LogGap`
    """
    try:
        state = await log.snapshot()
        stored = await log.transaction(app_id(pipeline))
    except (TableNotFound, NotADeltaTable):
        if await log.left_over():
            return None
        raise
    except (VersionsExpired, LogGap) as error:
        # The error names what to do about a source.
        raise type(error)(error.message, remedy=_UNREADABLE) from error
    _refuse_retention(state)
    history = log.history()
    try:
        recorded = await _reconciled(
            log, history, state, pipeline, stored, backup, declared=declared, closed=closed, thorough=thorough
        )
    except forgiven as error:
        number = await _next_number(log, state, stored)
        recorded = RecordedWatermark(seal=None, next_number=number, target=state, refused=error)
    return replace(recorded, newest_hash=known_hash(history, state.version))


async def owners_of(log: DeltaLog, pipeline: str) -> dict[str, Seal]:
    """Return the other pipelines whose seals in a target are in effect, and which no other one took over.

    :param log: the target's log
    """
    found = {}
    for app in sorted(await log.transactions()):
        name = app.removeprefix(_APP_PREFIX)
        if name in (app, pipeline):
            continue
        try:
            recorded = await reconcile_async(log, name, closed=True, declared=True)
        except DeltaCdcError:
            # Of a seal that expired, or of rows that another writer replaced: a new name is a way out.
            continue
        if recorded is not None and recorded.seal is not None and recorded.seal.successor is None:
            found[name] = recorded.seal
    return found


async def _reconciled(
    log: DeltaLog,
    history: History,
    state: TableState,
    pipeline: str,
    stored: int | None,
    backup: Callable[[], Any] | None,
    *,
    declared: bool,
    closed: bool,
    thorough: bool,
) -> RecordedWatermark:
    walk = await _walk(log, history, state, pipeline) if stored is not None else _Walk()
    if walk.seal is not None and walk.seal.successor is not None and not closed:
        # Another pipeline owns the table, whatever happened to the table since.
        raise adopted_by(state, walk.seal)
    chain = SealChain(history, state.version, uri=state.uri, table_id=state.table_id, refuse_strays=True)
    chain.compare()
    _refuse_lost(state, walk, pipeline, stored)
    if thorough and (is_s3(log.uri) or is_local(log.uri)):
        await _refuse_left_files(log, walk)
    if walk.cleaned is not None and stored is not None:
        # A baseline does not help: an initial_load that stays in a DAG would set an old version.
        recorded = _from_backup(walk, state, pipeline, stored, await copied_seal(backup))
    elif walk.seal is not None and walk.commit is not None:
        recorded = await _sealed(history, walk, walk.seal, walk.commit, state, stored, backup)
        planned = walk.seal.step.planned_on
        if thorough and planned is not None and planned.commit_hash is not None:
            await _read_base(history, planned.version)
        # This has read older commits, too.
        chain.compare()
    else:
        recorded = None
    if recorded is None or recorded.seal is None:
        return await _unsealed(log, history, state, pipeline, stored, tuple(walk.notes), declared=declared)
    if recorded.seal.successor is not None and not closed:
        raise adopted_by(state, recorded.seal)
    return recorded


def adopted_by(target: TableState, last: Seal) -> PipelineTakenOver:
    """Build the error for a pipeline that has ended.

    :param last: its last seal
    """
    return PipelineTakenOver(
        f"The target {target.uri} was taken over by pipeline {last.successor} at watermark {last.watermark}; "
        f"{last.pipeline} has ended.",
        remedy=f"run {last.successor}, or set take_over_from to it to take the target back.",
    )


async def _sealed(
    history: History,
    walk: _Walk,
    seal: Seal,
    commit: Commit,
    state: TableState,
    stored: int | None,
    backup: Callable[[], Any] | None,
) -> RecordedWatermark:
    cleaned = await _refuse_underneath(history, state, seal, commit)
    _refuse_replaced(state, walk)
    if cleaned is not None:
        # A run that published this seal has seen the commits that are gone.
        copy = await copied_seal(backup)
        if copy is None or copy.seal != seal or copy.target.commit_hash not in (None, commit.sha256):
            raise _unproven(state, seal, commit, cleaned)
    number = seal.number if stored is None else stored
    return RecordedWatermark(
        seal=seal,
        next_number=number + 1,
        target=state,
        notes=tuple(walk.notes),
        commit=commit,
    )


async def copied_seal(backup: Callable[[], Any] | None) -> WatermarkBackup | None:
    """Return the watermark backup; None without one.

    :param backup: returns its JSON form, or any other value
    """
    # The backup is in Airflow, and reading it is a network call.
    return WatermarkBackup.from_dict(await asyncio.to_thread(backup)) if backup else None


def _from_backup(
    walk: _Walk, state: TableState, pipeline: str, stored: int, backup: WatermarkBackup | None
) -> RecordedWatermark:
    """Return the recorded watermark from the backup, because the sealed commit was cleaned from the log."""
    assert walk.cleaned is not None
    fits = (
        backup is not None
        and backup.target.table_id == state.table_id
        and (backup.seal.pipeline, backup.seal.number) == (pipeline, stored)
    )
    if backup is None or not fits or not walk.is_plain or walk.cleaned > backup.target.version:
        raise _expired(state, pipeline, walk.cleaned, backup if fits else None)
    note = (
        f"The commit with {backup.seal.reach} was cleaned from the log of {state.uri}; the "
        f"copy of the watermark outside of the target proves it (seal {stored})."
    )
    return RecordedWatermark(seal=backup.seal, next_number=stored + 1, target=state, notes=(note,))


def reconcile(
    log: DeltaLog, pipeline: str, *, backup: Callable[[], Any] | None = None, thorough: bool = False
) -> RecordedWatermark | None:
    """Find a pipeline's recorded watermark in the target's log; see :func:`reconcile_async`."""
    return run_sync(reconcile_async(log, pipeline, backup=backup, thorough=thorough))


async def own_commits(
    log: DeltaLog, pipeline: str, plans: Sequence[str], after: int, *, run_id: str = ""
) -> tuple[tuple[Seal, Commit], ...]:
    """Return the sealed commits in effect that the given plans made after a version, oldest first.

    :param plans: :func:`delta_cdc.core.spec.fingerprint` of each plan
    :param after: the oldest table version that one of the plans was made on; -1: no version
    :param run_id: also return all commits of this run, of any plan; "": no run
    :raises TargetHistoryChanged: a commit was overwritten, forged or put back from a backup
    :raises TargetChangedUnderneath: the first commit was planned on another table
    """
    try:
        commits = [
            (seal, commit)
            async for seal, commit in _in_effect(log, pipeline, await log.newest_version(), after)
            if seal.step.fingerprint.rpartition(":")[0] in plans or (run_id and seal.step.run_id == run_id)
        ]
        if commits:
            await _refuse_other_base(log, *commits[-1])
    except TargetHistoryChanged:
        state = await log.snapshot()
        chain = SealChain(
            log.history(), state.version, uri=log.uri, table_id=state.table_id, refuse_strays=True
        )
        await chain.get(state.version)
        raise
    return tuple(reversed(commits))


async def _refuse_other_base(log: DeltaLog, seal: Seal, commit: Commit) -> None:
    """Refuse a commit whose job stood still while the version that it was planned on got another file."""
    planned = seal.step.planned_on
    if planned is None or planned.commit_hash is None:
        return
    (before,) = await log.history().read([planned.version])
    found = None if before is None else difference(before, seal, commit.version)
    if before is not None and found is not None:
        raise history_changed(log.uri, before.version, found, before.version - 1)


async def commits_after(
    log: DeltaLog, pipeline: str, state: TableState, number: int | None
) -> tuple[tuple[Seal, Commit], ...]:
    """Return the sealed commits in effect that follow a seal, oldest first.

    The walk stops where the log was cleaned, at a RESTORE to a time, whose version the log does not name, and
    at a commit of another table, which was replaced inside the log.

    :param state: the table's version to walk back from
    :param number: number of the seal; None: it is not known, and the walk looks at the newest versions only
    :raises TargetHistoryChanged: a commit was overwritten, forged or put back from a backup
    """
    commits = []
    after = -1 if number is not None else max(-1, state.version - _LOOK_BACK)
    try:
        async for seal, commit in _in_effect(log, pipeline, state.version, after):
            if number is not None and seal.number <= number:
                break
            if table_id_of(seal, commit) not in (None, state.table_id):
                break
            commits.append((seal, commit))
            if seal.number - 1 == number:
                # Each number is the last one plus 1, so the next commit need not be looked for.
                break
    except WatermarkExpired as error:
        logger.warning("The seals before it are not looked for: %s", error)
    return tuple(reversed(commits))


def table_id_of(seal: Seal, commit: Commit) -> str | None:
    """Return the id of the table that a sealed commit wrote; None if the commit does not show it."""
    if commit.metadata is not None:
        return commit.metadata.id
    return None if seal.step.planned_on is None else seal.step.planned_on.table_id


async def _in_effect(
    log: DeltaLog, pipeline: str, version: int, after: int
) -> AsyncIterator[tuple[Seal, Commit]]:
    """Yield the sealed commits in effect, newest first.

    It walks back as for the newest seal, so commits that a RESTORE undid are left out. It stops where the log
    was cleaned.

    :param version: the version to begin with
    :param after: the version before the oldest one that may be needed
    """
    history = SealChain(log.history(), version, uri=log.uri)
    async for commit in Back(history, version, after, restored=partial(restored_to, log)):
        seal = seal_of(commit, pipeline)
        if seal is not None:
            yield seal, commit


# -- the walk -----------------------------------------------------------------------------------
async def _walk(log: DeltaLog, history: History, state: TableState, pipeline: str) -> _Walk:
    walk = _Walk()
    back = Back(history, state.version, restored=partial(restored_to, log))
    async for commit in back:
        walk.seal = seal_of(commit, pipeline)
        if walk.seal is not None:
            walk.commit = commit
            break
        _refuse_unreadable(state, pipeline, commit)
        if restores(commit):
            restored = restored_to(log, commit)
            walk.notes.append(
                f"The target {state.uri} was restored in version {commit.version} to version "
                f"{restored}: the watermark of that version applies."
            )
            undone = await _undone_repair(history, state, pipeline, range(restored + 1, commit.version))
            walk.notes += [undone] if undone else []
            walk.restored = walk.restored or (commit.version, restored)
        elif walk.replaced is None and replaces(commit):
            walk.replaced = commit
    walk.cleaned = back.cleaned
    return walk


async def _unsealed(
    log: DeltaLog,
    history: History,
    state: TableState,
    pipeline: str,
    stored: int | None,
    notes: tuple[str, ...],
    *,
    declared: bool,
) -> RecordedWatermark:
    empty = await asyncio.to_thread(lambda: state.is_empty)
    pipelines: set[str] = set()
    if not empty and (stored is None or not declared):
        pipelines = await _pipelines(history, state)
    if stored is None and pipeline in pipelines:
        # Also for a baseline: one that stays in a DAG would set an old version.
        raise TargetWithoutWatermark(
            f"The log of {state.uri} has seals of pipeline {pipeline}, and version {state.version} has lost "
            f"their transaction: {_RETENTION} was set, or another program wrote a checkpoint without it.",
            remedy='use mode="reset", which replaces all rows by those of the source; or drop the target. '
            "For a change log, name a new table.",
        )
    if not empty and not declared:
        others = sorted(pipelines - {pipeline})
        other_seals = f"; seals of other pipelines: {', '.join(others)}" if others else ""
        if stored is not None:
            take_over = "name the pipeline that built these rows in take_over_from; or " if others else ""
            raise TargetWithoutWatermark(
                f"The target {state.uri} (version {state.version}) was restored to before the first seal of "
                f"pipeline {pipeline}{other_seals}.",
                remedy=f"RESTORE it to the version of the first seal or a later one; or {take_over}use "
                'mode="reset", which replaces all rows by those of the source; or drop the target.',
            )
        raise TargetWithoutWatermark(
            f"The target {state.uri} (version {state.version}) holds rows, but no seal of pipeline "
            f"{pipeline} is in effect{other_seals}.",
            remedy="use the pipeline name that built the target, or set take_over_from to that name. For a "
            'table that another tool built, set initial_load {"none_at": V}. Or use a new target.',
        )
    return RecordedWatermark(
        seal=None,
        next_number=await _next_number(log, state, stored),
        target=state,
        notes=notes,
        empty=empty,
        was_sealed=stored is not None,
    )


async def _next_number(log: DeltaLog, state: TableState, stored: int | None) -> int:
    """Return the next seal number.

    Every planner of an empty table must compute the same number, so that two loads compete for it.
    """
    if stored is not None:
        return stored + 1
    if state.created_time is not None:
        return state.created_time
    commit = await log.commit(await log.oldest_version())
    return commit.info.timestamp or commit.timestamp


async def _pipelines(history: History, state: TableState) -> set[str]:
    """Return the pipelines whose seals are in the newest commits."""
    pipelines: set[str] = set()
    async for commit in Back(history, state.version, max(-1, state.version - _LOOK_BACK)):
        apps = (txn.app_id for txn in commit.txns if txn.app_id.startswith(_APP_PREFIX))
        pipelines.update(app[len(_APP_PREFIX) :] for app in apps)
    return pipelines


# -- RESTORE ------------------------------------------------------------------------------------
def restored_to(log: DeltaLog, restore: Commit) -> int:
    """Return the version that a RESTORE of a target restored.

    :raises CorruptLog: its commit names no version
    :raises WatermarkExpired: it restored a time, whose version is not known
    """
    version = restored_version(restore)
    if version is not None:
        return version
    named = restore.info.operation_parameters.get("version")
    if named is not None:
        raise corrupt_commit(restore.version, log.uri, f"it is a RESTORE to version {str(named)[:40]}")
    raise WatermarkExpired(
        f"Version {restore.version} of the target {log.uri} is a RESTORE to a time. Its log does not "
        "name the time zone of that time, so the restored version is not known.",
        remedy="RESTORE the target to a version by its number, then run again.",
    )


async def _undone_repair(history: History, state: TableState, pipeline: str, undone: range) -> str | None:
    """Return a note on the newest repair that a RESTORE undid, with what a person does about it.

    A step deletes from the quarantine what it has repaired. The watermark does not show that it is undone.

    :param undone: the versions that the RESTORE undid
    """
    after = max(undone.start - 1, undone.stop - 1 - _LOOK_BACK)
    try:
        async for commit in Back(history, undone.stop - 1, after):
            seal = seal_of(commit, pipeline)
            if seal is not None and (seal.step.kind == "repair" or seal.step.counts.get("settled")):
                return (
                    f"This undid the {seal.step.kind} in version {commit.version} of {state.uri}. Rows that "
                    "it took from the quarantine are in neither table now: run once with mode='reload'; or "
                    "RESTORE the quarantine, too, and repair again."
                )
    except (CorruptLog, LogLineTooLong, LogTooLarge) as error:
        logger.info("The commits that the RESTORE of %s undid cannot be read: %s", state.uri, error)
    return None


async def _refuse_left_files(log: DeltaLog, walk: _Walk) -> None:
    """Refuse a RESTORE that did not bring back the files of its version, and a reset that left old files.

    Both remove the files of the commits that they have read. If one of these is overwritten later, the files
    of the new commit stay in the table, and no seal in effect was planned on that commit.
    """
    if walk.restored is not None:
        version, restored = walk.restored
        found, wanted = await _files(log, version), await _files(log, restored)
        if found is not None and wanted is not None and found != wanted:
            raise history_changed(
                log.uri,
                version,
                f"is a RESTORE to version {restored}, and {plural(len(found ^ wanted), 'file')} of the two "
                "versions differ, so that a commit between them is not the one that was undone",
                restored,
            )
    elif walk.seal is not None and walk.commit is not None and walk.seal.step.kind == "reset":
        planned = walk.seal.step.planned_on
        # Other writers may append after the plan.
        if planned is None or planned.version >= walk.commit.version:
            return
        found, before = await _files(log, walk.commit.version), await _files(log, planned.version)
        left = found & before if found is not None and before is not None else ()
        if left:
            raise history_changed(
                log.uri,
                walk.commit.version,
                f"is a reset, and {plural(len(left), 'file')} of version {planned.version} did not go, so "
                "that an earlier commit is not the one that it replaced",
                -1,
            )


async def _read_base(history: History, version: int) -> None:
    """Read the commit that the newest seal was planned on: behind a checkpoint, nothing else reads it."""
    try:
        await history.read([version])
    except (CorruptLog, LogLineTooLong, LogTooLarge) as error:
        # Delta does not need it either, so a damaged old commit must not stop the pipeline.
        logger.info("Version %s is not compared: %s", version, error)


async def _files(log: DeltaLog, version: int) -> frozenset[tuple[str, str, int]] | None:
    """Return the files of a version; None if they cannot be read any more, or are too many."""
    if version < 0:
        return None
    try:
        return await log.files(version)
    except (VersionsExpired, LogGap, CorruptLog, LogTooLarge):
        return None


# -- refusals -----------------------------------------------------------------------------------
def _refuse_retention(state: TableState) -> None:
    if _RETENTION in state.configuration:
        raise TransactionRetentionSet(
            f"The target {state.uri} has {_RETENTION} = {state.configuration[_RETENTION]}, so "
            "Delta would delete the transactions that make each commit happen exactly once.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_RETENTION}').",
        )


def _refuse_unreadable(state: TableState, pipeline: str, commit: Commit) -> None:
    """Refuse a commit of this pipeline without a readable seal: skipping it would move the watermark back."""
    number = format_of(commit.info.user_metadata)
    if number is not None and number > SEAL_FORMAT:
        what = f"with a seal of format {number}; this release reads format {SEAL_FORMAT}"
        otherwise = 'to go back to this release, follow the page "Upgrade and rollback" of its documentation'
    else:
        what = "and no seal that this release can read"
        otherwise = (
            f"if something else writes under the transaction id {app_id(pipeline)}, RESTORE the target to "
            f"version {commit.version - 1}"
        )
    if any(txn.app_id == app_id(pipeline) for txn in commit.txns):
        raise SealUnreadable(
            f"Version {commit.version} of the target {state.uri} has a transaction of pipeline {pipeline}, "
            f"{what}.",
            remedy=f"run the release that wrote it, or a newer one; {otherwise}.",
        )


def _expired(
    state: TableState, pipeline: str, version: int, backup: WatermarkBackup | None
) -> WatermarkExpired:
    message = (
        f"The log of the target {state.uri} has a transaction of pipeline {pipeline}, but no longer the "
        f"commit with its watermark (log retention removed version {version})."
    )
    if backup is not None:
        message += (
            f" The copy of the watermark outside of the target has {backup.seal.reach} for version "
            f"{backup.target.version}, but does not show whether the target was restored or replaced since."
        )
    return WatermarkExpired(
        message,
        remedy="drop the target, and the next run loads it again. Or, if you know the source version V that "
        'the target has, continue with a new pipeline name and initial_load {"none_at": V}.',
    )


def _unproven(state: TableState, seal: Seal, commit: Commit, version: int) -> WatermarkExpired:
    return WatermarkExpired(
        f"Version {commit.version} of the target {state.uri}, which carries {seal.reach} of pipeline "
        f"{seal.pipeline}, was planned on version {seal.step.planned_on}. Log retention removed version "
        f"{version} between them, and nothing shows whether it restored or replaced the target.",
        remedy='compare the target with its source, then run an apply with mode="reset", which replaces all '
        "rows; or drop the target, and the next run loads it again.",
    )


def _refuse_lost(state: TableState, walk: _Walk, pipeline: str, stored: int | None) -> None:
    """Refuse a log whose newest transaction of the pipeline is not the one of its newest sealed commit.

    Only a RESTORE takes a seal back and keeps the transaction.
    """
    if walk.seal is None or walk.commit is None or walk.notes or walk.seal.number == stored:
        return
    version = walk.commit.version
    raise history_changed(
        state.uri,
        version,
        f"has the newest seal of pipeline {pipeline}, {walk.seal.number}, but the log has its transaction "
        f"{stored}: the commit with that seal is lost",
        version,
    )


def _refuse_replaced(state: TableState, walk: _Walk) -> None:
    assert walk.seal is not None
    assert walk.commit is not None
    seal, commit = walk.seal, walk.commit
    _refuse_recreated(state, seal, commit)
    table_id = table_id_of(seal, commit)
    reason, intact = None, commit.version
    if walk.replaced is not None:
        intact = walk.replaced.version - 1
        reason = f"{walk.replaced.info.operation} in version {walk.replaced.version}"
    elif table_id is not None and table_id != state.table_id:
        reason = f"its id is now {state.table_id}, it was {table_id}"
    if reason is not None:
        raise TargetReplaced(
            f"The target {state.uri} was replaced after version {commit.version}, which carries "
            f"{seal.reach} of pipeline {seal.pipeline} ({reason}).",
            remedy=f"RESTORE the target to version {intact}. Or set on_target_replaced in policies to "
            '"reload", which makes its rows equal to the source. Or drop the target: '
            "the next run loads it, without its history.",
        )


def _refuse_recreated(state: TableState, seal: Seal, commit: Commit) -> None:
    """Refuse a table that an append of this pipeline made, although it was planned on an earlier table.

    Spark creates a table at a location without one. A reset is complete, so it may.
    """
    planned = seal.step.planned_on
    if planned is None or commit.metadata is None or seal.step.kind == "reset":
        return
    if planned.table_id != commit.metadata.id:
        raise TargetRecreated(
            f"The target {state.uri} was dropped while a run of pipeline {seal.pipeline} worked: version "
            f"{commit.version}, which carries {seal.reach}, was planned on version {planned} of that table, "
            "and made a new one without its rows.",
            remedy="drop the target, and the next run loads it again. Or set on_target_replaced in policies "
            'to "reload", which makes its rows equal to the source.',
        )


async def _refuse_underneath(history: History, state: TableState, seal: Seal, commit: Commit) -> int | None:
    """Refuse a change of all rows between the version that a commit was planned on and the commit.

    :return: a version between them that log cleanup removed, and whose change is not known; None if there is
        no such version
    """
    planned = seal.step.planned_on
    # A reset replaces all rows, so earlier changes do not matter.
    if planned is None or seal.step.kind == "reset":
        return None
    if planned.table_id == state.table_id and planned.version >= commit.version:
        # Only a table that was put back from a copy of its files while the job ran loses that version.
        raise history_changed(
            state.uri,
            commit.version,
            f"has seal {seal.number} of pipeline {seal.pipeline}, which was planned on version "
            f"{planned.version}: the commits between are lost",
            commit.version - 1,
        )
    back = Back(history, commit.version - 1, planned.version)
    async for between in back:
        renewed = between.metadata is not None and between.metadata.id != planned.table_id
        if renewed or restores(between) or replaces(between):
            raise TargetChangedUnderneath(
                f"A {between.info.operation} in version {between.version} changed the target {state.uri} "
                f"after version {planned.version}, on which the commit in version {commit.version} was "
                "planned.",
                remedy=f"RESTORE the target to version {commit.version - 1}, the one before that commit, "
                "then run again.",
            )
    return back.cleaned
