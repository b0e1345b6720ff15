"""Reads a staging table's log: its batch, whether the batch still follows the watermark, and its commits."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import (
    BatchNotApplicable,
    InvalidConfiguration,
    NotADeltaTable,
    TableNotFound,
    TargetWithoutWatermark,
    TransactionRetentionSet,
    WatermarkExpired,
)
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion, app_id
from delta_cdc.planning import preconditions
from delta_cdc.planning.reconcile import RecordedWatermark, known_hash
from delta_cdc.planning.seal_chain import Back, SealChain, seal_of

if TYPE_CHECKING:
    from delta_cdc.core.requests import ReadRequest
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog, TableState
    from delta_cdc.planning.observe import Observation

_RETENTION = "delta.setTransactionRetentionDuration"
#: Keys of the configuration in a batch's seals: the version committed before it (custom sinks), and the
#: number of the target's next seal at planning time (batches for a target).
COMMITTED, TURN = "committed", "turn"
#: Key of the configuration in a seal that commits versions without changes.
IDLE = "idle"


@dataclass(frozen=True)
class BatchConfiguration:
    """What a seal of a batch records about the batch.

    :param batch: ``changes`` or ``snapshot``
    :param complete: whether the batch has all versions, and the query's result
    :param plain: whether change rows are staged and the query over them still has to be computed
    :param adds: whether the seal's commit extended the staged rows, instead of replacing them
    :param ending: the last version of the whole batch, as planned; None: the version of the seal
    :param options: the query options as JSON
    :param turn: see :data:`TURN`; None for a custom sink
    """

    batch: str = ""
    complete: bool = True
    plain: bool = False
    adds: bool = False
    ending: int | None = None
    options: dict[str, Any] = field(default_factory=dict)
    turn: int | None = None

    @classmethod
    def read(cls, seal: Seal) -> BatchConfiguration:
        """Return what a seal records, with defaults for what it lacks.

        If it is not readable, the batch counts as unfinished: nothing takes it, and a read replaces it.
        """
        names = {one.name for one in fields(cls)}
        given = {name: value for name, value in seal.state.configuration.items() if name in names}
        try:
            found = codec.decoded(cls, given)
        except UnreadableJson:
            found = cls(complete=False)
        return replace(found, options={**codec.encoded(QueryOptions()), **found.options})


@dataclass(frozen=True)
class Batch:
    """A batch in a staging table: all of it, or its beginning.

    :param configuration: what the seal records about the batch
    :param touched: other writers changed rows of the table since the batch was planned: the batch's own table
        version holds it (if it is complete), the newest version does not
    """

    seal: Seal
    commit: Commit
    configuration: BatchConfiguration
    touched: bool = False

    @property
    def versions(self) -> VersionRange:
        """Return the staged source versions."""
        return VersionRange(self.seal.step.starting_version, self.seal.watermark.version)

    @property
    def ending_version(self) -> int:
        """Return the last version of the whole batch, as planned."""
        ending = self.configuration.ending
        return self.seal.watermark.version if ending is None else ending

    def answers(self, request: ReadRequest) -> bool:
        """Return whether the batch matches a request, or will match it once it is complete."""
        return bool(self.configuration.options == codec.encoded(request.options))


def described(request: ReadRequest) -> dict[str, Any]:
    """Return the part of a request that the seals of its batch record."""
    return {"options": codec.encoded(request.options)}


async def open_batch(observed: Observation[Any], staging: DeltaLog) -> tuple[Seal, Commit] | None:
    """Return the staged batch that follows the target's watermark and that an apply can use, if there is one.

    :raises TargetWithoutWatermark: the staging table holds rows that this pipeline did not write
    :raises BatchNotApplicable: the batch follows the watermark, but is incomplete or lacks changes
    """
    batch = await fitting(observed, await newest_batch(staging, observed.request.pipeline))
    if batch is None:
        return None
    if not batch.configuration.complete:
        raise BatchNotApplicable(
            f"Staging {staging.uri} holds versions {batch.versions} of {observed.source.uri}, which are only "
            "the first part of a batch.",
            remedy="clear the read (DeltaReadChangesOperator). It continues after the part that is staged.",
        )
    omitting = _omitting_options(batch.configuration.options)
    if omitting:
        raise BatchNotApplicable(
            f"Staging {staging.uri} holds versions {batch.versions} of {observed.source.uri}, read with "
            f"{omitting}, so it does not have every change of these versions in the columns of the source.",
            remedy="read for an apply with query='full_delta', without on_change_commit and wide, and give "
            "where and select to the apply; or use another staging table for this query.",
        )
    return batch.seal, batch.commit


def _omitting_options(options: dict[str, Any]) -> str:
    """Return the options that make a batch leave out changes of its versions; "" if it has all changes."""
    names = ["query", "where", "select", "wide"]
    if options["method"] == "added_files" and options["on_change_commit"] == "skip":
        # Whole commits may be missing, for every query.
        names += ["method", "on_change_commit"]
    elif options["query"] == "full_delta" and not any(options[name] for name in names[1:]):
        return ""
    return ", ".join(f"{name} {options[name]!r}" for name in names if options[name])


async def fitting(observed: Observation[Any], batch: Batch | None) -> Batch | None:
    """Return a batch, complete or not, if it follows the recorded watermark.

    A batch depends only on the source, its range and its query, so a batch that starts right after the
    watermark stays valid, also after later commits. The target's seal number (``TURN``) distinguishes it from
    a batch that was applied before a RESTORE.
    """
    if batch is None or batch.seal.watermark.table_id != observed.source.table_id:
        return None
    seal = observed.seal
    if seal is None:
        return batch if batch.configuration.batch == "snapshot" and _in_turn(observed, batch) else None
    follows = batch.versions.starting_version == seal.watermark.version + 1
    follows = follows and batch.configuration.batch == "changes"
    return batch if follows and _in_turn(observed, batch) else None


def _in_turn(observed: Observation[Any], batch: Batch) -> bool:
    if observed.recorded is None or COMMITTED in batch.seal.state.configuration:
        return True
    turn = batch.configuration.turn
    return (batch.seal.number if turn is None else turn) >= observed.next_number


async def newest_batch(staging: DeltaLog, pipeline: str) -> Batch | None:
    """Return the newest sealed batch of a staging table, even if it is incomplete, applied or changed.

    :raises TargetWithoutWatermark: the table holds rows that this pipeline did not write
    """
    state = await _state(staging)
    if state is None or not await _is_ours(staging, state, pipeline):
        return None
    history, touched = _compared(staging, state), False
    async for commit in Back(history, state.version):
        seal = seal_of(commit, pipeline)
        if seal is not None and seal.step.kind == "read":
            touched = touched or await _touched_underneath(history, seal, commit)
            return Batch(seal, commit, BatchConfiguration.read(seal), touched)
        touched = touched or (seal is None and commit.changes_data)
    return None


def _compared(staging: DeltaLog, state: TableState) -> SealChain:
    return SealChain(
        staging.history(), state.version, uri=staging.uri, table_id=state.table_id, can_restore=False
    )


async def _touched_underneath(history: SealChain, seal: Seal, commit: Commit) -> bool:
    """Return whether others changed rows between the planning of a commit and the commit itself."""
    planned = seal.step.planned_on
    if planned is None or not BatchConfiguration.read(seal).adds:
        return False
    back = Back(history, commit.version - 1, planned.version)
    async for between in back:
        if between.changes_data:
            return True
    return back.cleaned is not None


async def _state(staging: DeltaLog) -> TableState | None:
    """Return the table's state; None if there is no table, or only the remains of a crash."""
    try:
        return await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        if await staging.left_over():
            return None
        raise


async def _is_ours(staging: DeltaLog, state: TableState, pipeline: str) -> bool:
    if await staging.transaction(app_id(pipeline)) is not None:
        return True
    if not await asyncio.to_thread(lambda: state.is_empty):
        raise TargetWithoutWatermark(
            f"The staging table {staging.uri} (version {state.version}) has rows that pipeline "
            f"{pipeline} did not write.",
            remedy="use a separate staging table for each pipeline.",
        )
    return False


async def _refuse_sink_of_others(staging: DeltaLog, state: TableState, pipeline: str) -> None:
    """Refuse to begin a sink in the staging table of another pipeline, though it has no rows now."""
    prefix = app_id("")
    others = sorted(
        name.removeprefix(prefix) for name in await staging.transactions() if name.startswith(prefix)
    )
    if others:
        raise TargetWithoutWatermark(
            f"The staging table {staging.uri} (version {state.version}) has the watermark of "
            f"{', '.join(others)}, and none of pipeline {pipeline}, which would begin with a snapshot.",
            remedy="use the name that the pipeline had before; or a separate staging table, whose first "
            "batch is a snapshot.",
        )


# -- custom sinks -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sink:
    """The recorded watermark of a custom sink, kept in staging.

    :param recorded: its seal is the last commit; without a seal, nothing was committed
    :param batch: the staged, uncommitted batch; None if another writer changed its rows since
    :param newest: the newest seal of any kind
    """

    recorded: RecordedWatermark
    batch: Batch | None
    newest: Seal | None


async def sink(staging: DeltaLog, pipeline: str) -> Sink | None:
    """Find the watermark of a custom sink, and its open batch.

    Committed rows are in the sink, so a RESTORE of staging cannot undo them: the newest seal counts. A batch
    whose rows others changed since is invalid.

    :return: None if there is no staging table yet
    :raises TargetWithoutWatermark: staging holds rows that this pipeline did not write
    :raises InvalidConfiguration: staging is filled for a target, which records the watermark
    :raises WatermarkExpired: the sealed commit was cleaned from the log
    :raises TransactionRetentionSet: staging would forget the recorded watermark
    """
    state = await _state(staging)
    if state is None:
        return None
    if _RETENTION in state.configuration:
        raise TransactionRetentionSet(
            f"The staging table {staging.uri} has {_RETENTION} = {state.configuration[_RETENTION]}: Delta "
            "would delete the transactions that make each commit happen exactly once.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_RETENTION}').",
        )
    if not await _is_ours(staging, state, pipeline):
        await _refuse_sink_of_others(staging, state, pipeline)
        return Sink(RecordedWatermark(seal=None, next_number=_first_number(state), target=state), None, None)
    seal, commit, touched = await _newest_seal(staging, state, pipeline)
    # Users read the batch of a sink from the newest version of staging.
    stored = await staging.transaction(app_id(pipeline))
    recorded = RecordedWatermark(
        seal=_committed(staging, seal),
        next_number=max(stored or 0, seal.number) + 1,
        target=state,
        commit=commit if seal.step.kind == "commit" else None,
        newest_hash=known_hash(staging.history(), state.version),
    )
    is_open = seal.step.kind == "read" and not touched
    return Sink(recorded, Batch(seal, commit, BatchConfiguration.read(seal)) if is_open else None, seal)


async def arrived(
    table: DeltaLog, pipeline: str, recorded: RecordedWatermark | None
) -> RecordedWatermark | None:
    """Return the watermark of what has arrived: a batch in the staging table of a sink counts once committed.

    :param table: a target, change log or staging table
    :param recorded: from :func:`delta_cdc.planning.reconcile.reconcile_async`
    :raises InvalidConfiguration: staging is filled for a target, which records the watermark
    """
    if recorded is None or recorded.seal is None or recorded.seal.step.kind != "read":
        return recorded
    found = await sink(table, pipeline)
    return found.recorded if found is not None else None


def _first_number(state: TableState) -> int:
    """Return the first seal number; every planner of an empty table must compute the same one."""
    return state.created_time or 1


async def _newest_seal(staging: DeltaLog, state: TableState, pipeline: str) -> tuple[Seal, Commit, bool]:
    history, touched = _compared(staging, state), False
    back = Back(history, state.version)
    async for commit in back:
        seal = seal_of(commit, pipeline)
        if seal is not None:
            return seal, commit, touched or await _touched_underneath(history, seal, commit)
        touched = touched or commit.changes_data
    if back.cleaned is not None:
        raise WatermarkExpired(
            f"The commit of the staging table {staging.uri} that recorded what pipeline {pipeline} has "
            f"committed is gone (version {back.cleaned} was cleaned).",
            remedy="use a new staging table: its first batch is a snapshot of the source.",
        )
    raise TargetWithoutWatermark(
        f"The staging table {staging.uri} has a transaction of pipeline {pipeline}, but no commit in its "
        "log has a seal of this pipeline.",
        remedy="use a staging table that only this release's reads write to.",
    )


async def newest_commit(staging: DeltaLog, pipeline: str) -> Seal | None:
    """Return the seal of the newest batch commit, even if a later batch was read; None without such a
    commit."""
    state = await _state(staging)
    if state is None:
        return None
    history = _compared(staging, state)
    async for commit in Back(history, state.version):
        seal = seal_of(commit, pipeline)
        if seal is not None and seal.step.kind == "commit" and not seal.state.configuration.get(IDLE, False):
            return seal
    return None


def _committed(staging: DeltaLog, seal: Seal) -> Seal | None:
    """Return the last committed state as of a seal, as a seal; None if nothing was committed."""
    if seal.step.kind == "commit":
        return seal
    if COMMITTED not in seal.state.configuration:
        raise InvalidConfiguration(
            f"The staging table {staging.uri} is filled for a target, which has the watermark of pipeline "
            f"{seal.pipeline}.",
            remedy="set that target, or use a separate staging table for a sink without a target.",
        )
    recorded = seal.state.configuration[COMMITTED]
    if recorded is None:
        return None
    committed_at: TableVersion = codec.decoded(TableVersion, recorded)
    return replace(seal, state=replace(seal.state, applied_to=committed_at))


def committed(seal: Seal | None) -> dict[str, Any] | None:
    """Return the watermark committed before a batch, as the batch's seals record it."""
    if seal is None:
        return None
    encoded: dict[str, Any] = codec.encoded(seal.watermark)
    return encoded


# -- continuing a batch -------------------------------------------------------------------------
async def batch_to_continue(
    observed: Observation[ReadRequest], batch: Batch | None
) -> tuple[Batch | None, tuple[str, ...]]:
    """Return the batch that this read returns or completes, or None and notes on why it is replaced."""
    if batch is None:
        return None, ()
    unfit = await _why_unfit(observed, batch)
    if unfit is None:
        return batch, ()
    state = "open" if batch.configuration.complete else "unfinished"
    note = (
        f"The {state} batch {batch.versions} in staging {observed.request.staging} {unfit} and is replaced."
    )
    return None, (note,)


async def _why_unfit(observed: Observation[ReadRequest], batch: Batch) -> str | None:
    """Return why this read can neither return nor complete a batch, as what the batch is or does; else
    None."""
    other = await preconditions.other_history(observed.log, observed.source, batch.seal)
    if other is not None:
        return f"was read from another history of {observed.source.uri} ({other})"
    if not batch.answers(observed.request):
        return "was read with other options"
    if batch.configuration.complete:
        return None
    if batch.touched:
        return "was changed by others"
    if observed.ending is not None and observed.ending < batch.versions.ending_version:
        return f"goes beyond version {observed.ending}"
    return None


async def turn(staging: DeltaLog, pipeline: str) -> tuple[int, TableVersion | None]:
    """Return the lowest seal number for a new batch, and the table state to write it on.

    If a batch was read but never applied and the target was then restored, staging is a number ahead of the
    target. A new batch needs a higher number still, or Delta would skip it.

    Call it before the look for an open batch: of a batch that another run adds after the call, the number is
    not lower, so Delta skips the new one.
    """
    try:
        state = await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        return 0, None
    stored = await staging.transaction(app_id(pipeline))
    newest_hash = known_hash(staging.history(), state.version)
    return (stored or 0) + 1, TableVersion(state.table_id, state.version, newest_hash)
