"""What the target itself proves: the newest seal that is still in effect, or why there is none.

The walk goes backwards from the newest commit. A RESTORE sends it to the version restored to, because all in
between is undone; a replacement by somebody else after the seal means that the seal proves nothing any more.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import (
    NotADeltaTable,
    PipelineAdopted,
    ProofExpired,
    SealUnreadable,
    TableNotFound,
    TargetChangedUnderneath,
    TargetReplaced,
    TargetWithoutProof,
    TransactionRetentionSet,
    VersionsExpired,
)
from delta_cdc.history import is_restore, replaces_all_rows
from delta_cdc.watermark import Seal, app_id

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.errors import DeltaCdcError
    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog, TableState

_RETENTION = "delta.setTransactionRetentionDuration"
_APP_PREFIX = app_id("")
_FIRST_BATCH = 4
_LARGEST_BATCH = 64
#: How far back seals of other pipelines are looked for, only to name them in an error.
_LOOK_BACK = 200


@dataclass(frozen=True)
class Proof:
    """What an existing target proves about a pipeline.

    :param seal: the newest seal in effect; None for a table that has none: an empty one, or one whose state
        the caller declared
    :param next_number: the only seal number that can commit next
    :param empty: whether the target holds no row (told only where there is no seal)
    :param was_sealed: whether this pipeline ever sealed the table, taken back or not
    :param commit: the commit that carries ``seal``; None where a :class:`Mirror` proves in its place
    :param refused: why there is no seal, where the caller can go on without one
    """

    seal: Seal | None
    next_number: int
    target: TableState
    notes: tuple[str, ...] = ()
    empty: bool = False
    was_sealed: bool = True
    commit: Commit | None = None
    refused: DeltaCdcError | None = None


@dataclass(frozen=True)
class Mirror:
    """A copy of the newest seal, kept outside the target for the day its log is cleaned.

    It proves only together with the target's log: the same table, the same seal number, and every commit
    after the sealed one still there, because a RESTORE that was cleaned as well would leave no trace.

    :param target_version: the version of the target that carries the seal
    """

    seal: Seal
    target_table_id: str
    target_version: int

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "seal": self.seal.to_json(),
            "target_table_id": self.target_table_id,
            "target_version": self.target_version,
        }

    @classmethod
    def from_dict(cls, value: Any) -> Mirror | None:
        """Read the JSON form; None for anything else: people can edit the store it is kept in."""
        given = value if isinstance(value, dict) else {}
        text, table_id, version = (given.get(name) for name in ("seal", "target_table_id", "target_version"))
        seal = Seal.from_json(text) if isinstance(text, str) else None
        if seal is None or not isinstance(table_id, str) or not isinstance(version, int):
            return None
        return cls(seal, table_id, version)


@dataclass
class _Walk:
    """What was met on the way back to the seal.

    :param cleaned: the first version on the way whose commit file is gone
    """

    seal: Seal | None = None
    commit: Commit | None = None
    replaced: Commit | None = None
    cleaned: int | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def is_plain(self) -> bool:
        """Return whether nothing was met that took rows back or threw them away."""
        return self.replaced is None and not self.notes


class Backwards:
    """Commits by version for a walk from the newest back, read ahead in growing concurrent batches."""

    def __init__(self, log: DeltaLog) -> None:
        self._log = log
        self._known: dict[int, Commit | None] = {}
        self._batch = _FIRST_BATCH

    async def get(self, version: int) -> Commit | None:
        """Return the commit, or None where its file is gone."""
        if version not in self._known:
            wanted = range(max(0, version - self._batch + 1), version + 1)
            self._batch = min(self._batch * 2, _LARGEST_BATCH)
            found = await asyncio.gather(*[self._log.find(v) for v in wanted])
            self._known.update(zip(wanted, found, strict=True))
        return self._known[version]


def seal_of(commit: Commit, pipeline: str) -> Seal | None:
    """Return the seal a commit carries for a pipeline.

    Both the ``txn`` and the ``userMetadata`` must say so: the conf of the latter leaks into commits that
    follow in the same Spark session.
    """
    seal = Seal.from_json(commit.info.user_metadata)
    if seal is None or seal.pipeline != pipeline:
        return None
    app = app_id(pipeline)
    if any(txn.app_id == app and txn.version == seal.number for txn in commit.txns):
        return seal
    return None


def replaces(commit: Commit) -> bool:
    """Tell whether a commit threw away every row that was there, by the operation it names."""
    return replaces_all_rows(commit.info.operation, commit.info.operation_parameters)


def restores(commit: Commit) -> bool:
    """Tell whether a commit is a RESTORE."""
    return is_restore(commit.info.operation)


async def reconcile_async(
    log: DeltaLog,
    pipeline: str,
    *,
    mirror: Callable[[], Any] | None = None,
    declared: bool = False,
    closed: bool = False,
    forgiven: tuple[type[DeltaCdcError], ...] = (),
) -> Proof | None:
    """Find out what the target's log proves about a pipeline.

    :param log: the target's log
    :param mirror: returns :meth:`Mirror.to_dict`, or anything else where there is none; asked only where the
        sealed commit was cleaned from the log
    :param declared: the caller vouches for rows without a seal: they are no error, and prove nothing. A seal
        that was there and expired is an error all the same
    :param closed: return the last seal of a pipeline whose target was adopted by another one, too
    :param forgiven: errors that are none to the caller, who computes all rows anew: such a proof has no seal,
        but the number that comes next, and the error as ``refused``
    :return: None where no table exists
    :raises TargetReplaced: somebody else replaced, overwrote or truncated the table after our seal
    :raises TargetChangedUnderneath: such an event lies between planning and the newest seal
    :raises TargetWithoutProof: the table holds rows, but no seal of this pipeline
    :raises ProofExpired: the sealed commit was cleaned from the log, and no mirror proves in its place
    :raises PipelineAdopted: another pipeline took the target over
    :raises TransactionRetentionSet: the table would forget the proof
    """
    try:
        state = await log.snapshot()
    except (TableNotFound, NotADeltaTable):
        if await log.left_over():
            return None
        raise
    _refuse_retention(state)
    stored = await log.transaction(app_id(pipeline))
    back = Backwards(log)
    try:
        return await _proved(log, back, state, pipeline, stored, mirror, declared=declared, closed=closed)
    except forgiven as error:
        number = await _next_number(log, state, stored)
        return Proof(seal=None, next_number=number, target=state, refused=error)


async def _proved(
    log: DeltaLog,
    back: Backwards,
    state: TableState,
    pipeline: str,
    stored: int | None,
    mirror: Callable[[], Any] | None,
    *,
    declared: bool,
    closed: bool,
) -> Proof:
    walk = await _walk(log, back, state, pipeline) if stored is not None else _Walk()
    if walk.seal is not None and walk.seal.successor is not None and not closed:
        # Whatever happened to the table since, it is another pipeline's.
        raise adopted_by(state, walk.seal)
    if walk.cleaned is not None and stored is not None:
        # A declared state does not help: an initial_load that stays in a DAG would declare an old version.
        proof = _mirrored(walk, state, pipeline, stored, Mirror.from_dict(mirror()) if mirror else None)
    elif walk.seal is not None and walk.commit is not None:
        proof = await _sealed(back, walk, walk.seal, walk.commit, state, stored)
    else:
        proof = None
    if proof is None or proof.seal is None:
        return await _unsealed(log, back, state, pipeline, stored, tuple(walk.notes), declared=declared)
    if proof.seal.successor is not None and not closed:
        raise adopted_by(state, proof.seal)
    return proof


def adopted_by(target: TableState, last: Seal) -> PipelineAdopted:
    """Build the error for a pipeline that has ended.

    :param last: its last seal
    """
    return PipelineAdopted(
        f"The target {target.uri} was taken over by pipeline {last.successor} at watermark {last.watermark}; "
        f"{last.pipeline} has ended.",
        remedy=f"run {last.successor}, or set adopt_from to it to take the target back.",
    )


async def _sealed(
    back: Backwards, walk: _Walk, seal: Seal, commit: Commit, state: TableState, stored: int | None
) -> Proof:
    await _refuse_underneath(back, state, seal, commit)
    _refuse_replaced(state, walk)
    number = seal.number if stored is None else stored
    return Proof(seal=seal, next_number=number + 1, target=state, notes=tuple(walk.notes), commit=commit)


def _mirrored(walk: _Walk, state: TableState, pipeline: str, stored: int, mirror: Mirror | None) -> Proof:
    """Return what the mirror proves in the place of a commit that is gone."""
    assert walk.cleaned is not None
    fits = (
        mirror is not None
        and mirror.target_table_id == state.table_id
        and (mirror.seal.pipeline, mirror.seal.number) == (pipeline, stored)
    )
    if mirror is None or not fits or not walk.is_plain or walk.cleaned > mirror.target_version:
        raise _expired(state, pipeline, walk.cleaned, mirror if fits else None)
    note = (
        f"The commit with watermark {mirror.seal.watermark} was cleaned from the log of {state.uri}; the "
        f"watermark's copy outside proves it (seal {stored})."
    )
    return Proof(seal=mirror.seal, next_number=stored + 1, target=state, notes=(note,))


def reconcile(log: DeltaLog, pipeline: str, *, mirror: Callable[[], Any] | None = None) -> Proof | None:
    """Find out what the target's log proves about a pipeline; see :func:`reconcile_async`."""
    from delta_cdc.log.table import run_sync

    return run_sync(reconcile_async(log, pipeline, mirror=mirror))


async def own_commits(
    log: DeltaLog, pipeline: str, plans: Sequence[str], after: int, *, run_id: str = ""
) -> tuple[tuple[Seal, Commit], ...]:
    """Return the sealed commits after a version that plans of ours made and that are in effect, oldest first.

    The walk is the one that finds the newest seal, so what a RESTORE took back is not among them. Where the
    log was cleaned it ends.

    :param plans: :func:`delta_cdc.spec.fingerprint` of each plan
    :param after: the oldest version of the table that one of them was made on; -1 is none
    :param run_id: commits of this run are ours, too, whoever planned them; "" is no run
    """
    found = []
    back = Backwards(log)
    version = await log.newest_version()
    while version > after:
        commit = await back.get(version)
        if commit is None:
            break
        if restores(commit):
            version = await _restored_version(log, back, commit)
            continue
        seal = seal_of(commit, pipeline)
        if seal is not None and (
            seal.step.fingerprint.rpartition(":")[0] in plans or (run_id and seal.step.run_id == run_id)
        ):
            found.append((seal, commit))
        version -= 1
    return tuple(reversed(found))


# -- the walk -----------------------------------------------------------------------------------
async def _walk(log: DeltaLog, back: Backwards, state: TableState, pipeline: str) -> _Walk:
    walk = _Walk()
    version = state.version
    while version >= 0:
        commit = await back.get(version)
        if commit is None:
            walk.cleaned = version
            break
        walk.seal = seal_of(commit, pipeline)
        if walk.seal is not None:
            walk.commit = commit
            break
        _refuse_unreadable(state, pipeline, commit)
        if restores(commit):
            version = await _restored_version(log, back, commit)
            walk.notes.append(
                f"The target {state.uri} was restored in version {commit.version} to version {version}: the "
                "watermark is the one true there."
            )
            continue
        if walk.replaced is None and replaces(commit):
            walk.replaced = commit
        version -= 1
    return walk


async def _unsealed(
    log: DeltaLog,
    back: Backwards,
    state: TableState,
    pipeline: str,
    stored: int | None,
    notes: tuple[str, ...],
    *,
    declared: bool,
) -> Proof:
    empty = await asyncio.to_thread(lambda: state.is_empty)
    if not empty and not declared:
        others = await _other_pipelines(back, state, pipeline)
        named = f"; seals of other pipelines: {', '.join(others)}" if others else ""
        raise TargetWithoutProof(
            f"The target {state.uri} (version {state.version}) holds rows, but no seal of pipeline "
            f"{pipeline} is in effect{named}.",
            remedy="use the pipeline name it was built with, name that one in adopt_from, declare the state "
            'of a table made by hand with initial_load {"none_at": V}, or use a target of its own.',
        )
    return Proof(
        seal=None,
        next_number=await _next_number(log, state, stored),
        target=state,
        notes=notes,
        empty=empty,
        was_sealed=stored is not None,
    )


async def _next_number(log: DeltaLog, state: TableState, stored: int | None) -> int:
    """Every planner of an empty table must come to the same number, so that two loads compete for it."""
    if stored is not None:
        return stored + 1
    if state.created_time is not None:
        return state.created_time
    commit = await log.commit(await log.oldest_version())
    return commit.info.timestamp or commit.timestamp


async def _other_pipelines(back: Backwards, state: TableState, pipeline: str) -> list[str]:
    found: set[str] = set()
    for version in range(state.version, max(-1, state.version - _LOOK_BACK), -1):
        commit = await back.get(version)
        if commit is None:
            break
        apps = (txn.app_id for txn in commit.txns if txn.app_id.startswith(_APP_PREFIX))
        found.update(app[len(_APP_PREFIX) :] for app in apps)
    return sorted(found - {pipeline})


# -- RESTORE ------------------------------------------------------------------------------------
async def _restored_version(log: DeltaLog, back: Backwards, restore: Commit) -> int:
    version = restore.info.operation_parameters.get("version")
    if version is not None:
        return int(version)
    timestamp = restore.info.operation_parameters.get("timestamp") or restore.info.operation_parameters.get(
        "datetime"
    )
    for candidate in await _candidates(back, restore, str(timestamp)):
        if await _same_files(log, candidate, restore.version):
            return candidate
    raise ProofExpired(
        f"Version {restore.version} of the target {log.uri} is a RESTORE to the time {timestamp}, and no "
        "version of the log holds what was restored.",
        remedy="RESTORE the target to a version by its number, then run again.",
    )


async def _candidates(back: Backwards, restore: Commit, timestamp: str) -> list[int]:
    """Return the versions that a RESTORE to a time may mean, most likely first.

    Delta logs the time as text in the writer's own time zone, which the log does not name: so every zone
    gives a candidate, and the files decide.
    """
    moment = _parsed(timestamp)
    if moment is None:
        return []
    times: list[tuple[int, int]] = []
    ceiling: int | None = None
    earliest = moment - 14 * 3_600_000
    for version in range(restore.version - 1, -1, -1):
        commit = await back.get(version)
        if commit is None:
            break
        # Commit clocks may go backwards; Delta makes file times monotone the same way.
        at = commit.timestamp if ceiling is None else min(commit.timestamp, ceiling)
        ceiling = at
        times.append((version, at))
        if at <= earliest:
            break
    found: list[int] = []
    quarters = sorted(range(-14 * 4, 12 * 4 + 1), key=abs)
    for quarter in quarters:
        wanted = moment + quarter * 900_000
        meant = next((v for v, at in times if at <= wanted), None)
        if meant is not None and meant not in found:
            found.append(meant)
    return found


def _parsed(timestamp: str) -> int | None:
    try:
        moment = datetime.fromisoformat(timestamp)
    except ValueError:
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


async def _same_files(log: DeltaLog, version: int, other: int) -> bool:
    try:
        return await log.files(version) == await log.files(other)
    except VersionsExpired:
        return False


# -- refusals -----------------------------------------------------------------------------------
def _refuse_retention(state: TableState) -> None:
    if _RETENTION in state.configuration:
        raise TransactionRetentionSet(
            f"The target {state.uri} has {_RETENTION} = {state.configuration[_RETENTION]}: Delta would "
            "forget the transactions that make a commit happen exactly once.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_RETENTION}').",
        )


def _refuse_unreadable(state: TableState, pipeline: str, commit: Commit) -> None:
    """A commit of this pipeline always has a seal: passing over it would take the watermark back."""
    if any(txn.app_id == app_id(pipeline) for txn in commit.txns):
        raise SealUnreadable(
            f"Version {commit.version} of the target {state.uri} has a transaction of pipeline {pipeline}, "
            "and no seal that this release can read.",
            remedy="run the release that wrote it, or a newer one; if something else writes under the "
            f"transaction id {app_id(pipeline)}, RESTORE the target to version {commit.version - 1}.",
        )


def _expired(state: TableState, pipeline: str, version: int, mirror: Mirror | None) -> ProofExpired:
    known = ""
    if mirror is not None:
        known = (
            f" Its copy outside says watermark {mirror.seal.watermark} for version {mirror.target_version}, "
            "but whether the target was restored or replaced since cannot be told."
        )
    return ProofExpired(
        f"The log of the target {state.uri} knows a transaction of pipeline {pipeline}, but the commit that "
        f"carried its watermark is gone (version {version} was cleaned).{known}",
        remedy="drop the target, so that it is loaded anew; or, where you know the source version V that it "
        'holds, go on under a new pipeline name with initial_load {"none_at": V}.',
    )


def _refuse_replaced(state: TableState, walk: _Walk) -> None:
    assert walk.seal is not None
    assert walk.commit is not None
    seal, commit = walk.seal, walk.commit
    table_id = commit.metadata.id if commit.metadata is not None else None
    if table_id is None and seal.step.planned_on is not None:
        table_id = seal.step.planned_on.table_id
    what, intact = None, commit.version
    if walk.replaced is not None:
        intact = walk.replaced.version - 1
        what = f"{walk.replaced.info.operation} in version {walk.replaced.version}"
    elif table_id is not None and table_id != state.table_id:
        what = f"its id is now {state.table_id}, it was {table_id}"
    if what is not None:
        raise TargetReplaced(
            f"The target {state.uri} was replaced after version {commit.version}, which carries watermark "
            f"{seal.watermark} of pipeline {seal.pipeline} ({what}).",
            remedy=f'RESTORE the target to version {intact}; or set on_target_replaced="reload", by which '
            "its rows are brought to what the source holds; or drop it.",
        )


async def _refuse_underneath(back: Backwards, state: TableState, seal: Seal, commit: Commit) -> None:
    planned = seal.step.planned_on
    # A reset puts new rows in the place of whatever was there.
    if planned is None or seal.step.kind == "reset":
        return
    for version in range(commit.version - 1, planned.version, -1):
        between = await back.get(version)
        if between is None:
            return
        renewed = between.metadata is not None and between.metadata.id != planned.table_id
        if renewed or restores(between) or replaces(between):
            raise TargetChangedUnderneath(
                f"Version {version} of the target {state.uri} is a {between.info.operation} made after "
                f"version {planned.version}, on which the commit in version {commit.version} was planned.",
                remedy=f"RESTORE the target to version {commit.version - 1}, the one before that commit, "
                "then run again.",
            )
