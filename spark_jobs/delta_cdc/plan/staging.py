"""Which batch a staging table holds, whether it still continues the watermark, and what was committed."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc import gates
from delta_cdc.errors import (
    BatchNotApplicable,
    InvalidConfiguration,
    NotADeltaTable,
    ProofExpired,
    TableNotFound,
    TargetWithoutProof,
    TransactionRetentionSet,
)
from delta_cdc.reconcile import Backwards, Proof, seal_of
from delta_cdc.spec import QueryOptions
from delta_cdc.versions import VersionRange
from delta_cdc.watermark import PlannedOn, app_id

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import DeltaLog, TableState
    from delta_cdc.plan.request import ReadRequest
    from delta_cdc.plan.sight import Sight
    from delta_cdc.watermark import Seal

_RETENTION = "delta.setTransactionRetentionDuration"
#: In the configuration that the seals of a batch carry: what was committed before it (custom sinks), and the
#: number of the target's next seal when it was planned (batches for a target).
COMMITTED, TURN = "committed", "turn"
#: In the configuration of a seal that commits versions of which nothing had to arrive.
IDLE = "idle"


@dataclass(frozen=True)
class Batch:
    """What a staging table holds of a batch: all of it, or its beginning.

    :param touched: others changed rows of the table since it was planned: its own version holds it (if it is
        complete), the newest does not
    """

    seal: Seal
    commit: Commit
    touched: bool = False

    @property
    def versions(self) -> VersionRange:
        """Return the source's versions that are staged."""
        return VersionRange(self.seal.step.starting_version, self.seal.watermark)

    @property
    def is_complete(self) -> bool:
        """Return whether nothing is missing: neither versions, nor the query's answer, nor files."""
        return bool(self.seal.configuration.get("complete", True))

    @property
    def is_plain(self) -> bool:
        """Return whether change rows are staged over which the query has yet to be computed."""
        return bool(self.seal.configuration.get("plain", False))

    @property
    def kind(self) -> str:
        """Return ``changes`` or ``snapshot``."""
        return str(self.seal.configuration.get("batch", ""))

    @property
    def ending_version(self) -> int:
        """Return the last version of the whole batch, as planned."""
        return int(self.seal.configuration.get("ending", self.seal.watermark))

    @property
    def options(self) -> dict[str, Any]:
        """Return what was asked of the changes, as JSON has it."""
        return {**_jsonable(QueryOptions()), **self.seal.configuration.get("options", {})}

    @property
    def output(self) -> dict[str, str] | None:
        """Return where the batch lies as files, and their format; None where it doesn't."""
        found = self.seal.configuration.get("output")
        return dict(found) if found else None

    def is_whole(self, output: dict[str, str] | None) -> bool:
        """Tell whether nothing is left to do for the batch, its files included.

        :param output: the files that are wanted: how their folder begins, and their format; None is none
        """
        if output is None or not self.is_complete:
            return self.is_complete
        found = self.output
        return (
            found is not None
            and found["format"] == output["format"]
            and found["path"].startswith(f"{output['path']}-")
        )

    def answers(self, request: ReadRequest) -> bool:
        """Tell whether the batch is what a request asks for, or will be once it is complete."""
        return self.options == _jsonable(request.options)


def described(request: ReadRequest) -> dict[str, Any]:
    """Return what the seals of a batch say of the request it answers."""
    return {"options": _jsonable(request.options)}


def _jsonable(options: QueryOptions) -> dict[str, Any]:
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(options).items()
    }


async def open_batch(sight: Sight, staging: DeltaLog) -> tuple[Seal, Commit] | None:
    """Return the staged batch that continues the target and that an apply can take, if there is one.

    :raises TargetWithoutProof: the staging table holds rows that this pipeline did not put there
    :raises BatchNotApplicable: it continues the target, but is not complete, or not every change of its range
    """
    batch = await fitting(sight, await newest_batch(staging, sight.request.pipeline))
    if batch is None:
        return None
    held = f"Staging {staging.uri} holds versions {batch.versions} of {sight.source.uri}"
    if not batch.is_complete:
        raise BatchNotApplicable(
            f"{held}, the beginning of a batch that was never completed.",
            remedy="clear the read (DeltaReadChangesOperator): it goes on behind what is staged.",
        )
    told = _left_out(batch.options)
    if told:
        raise BatchNotApplicable(
            f"{held}, read with {told}: not every change of these versions.",
            remedy="read for an apply with query='full_delta' and without on_change_commit, and give where "
            "and select to the apply; or use another staging table for this query.",
        )
    return batch.seal, batch.commit


def _left_out(asked: dict[str, Any]) -> str:
    """Name the options by which a batch has not every change of its versions; "" is none."""
    names = ["query", "where", "select"]
    if asked["capture"] == "added_files" and asked["on_change_commit"] == "skip":
        # Whole commits may be missing, whatever the query.
        names += ["capture", "on_change_commit"]
    elif asked["query"] == "full_delta" and not asked["where"] and not asked["select"]:
        return ""
    return ", ".join(f"{name} {asked[name]!r}" for name in names if asked[name])


async def fitting(sight: Sight, batch: Batch | None) -> Batch | None:
    """Return a batch if it continues what is proved, its beginning at least.

    A batch is a function of the source, its range and its query alone, so one that starts right after the
    watermark is right whatever happened since; the target's turn tells it from one that was applied before a
    RESTORE.
    """
    if batch is None or batch.seal.source_table_id != sight.source.table_id:
        return None
    proved = sight.seal
    if proved is None:
        return batch if batch.kind == "snapshot" and _in_turn(sight, batch) else None
    follows = batch.versions.starting_version == proved.watermark + 1
    return batch if follows and batch.kind == "changes" and _in_turn(sight, batch) else None


def _in_turn(sight: Sight, batch: Batch) -> bool:
    if sight.proof is None or COMMITTED in batch.seal.configuration:
        return True
    return int(batch.seal.configuration.get(TURN, batch.seal.number)) >= sight.next_number


async def newest_batch(staging: DeltaLog, pipeline: str) -> Batch | None:
    """Return the newest sealed batch of a staging table, whatever happened to it since.

    :raises TargetWithoutProof: it holds rows that this pipeline did not put there
    """
    state = await _state(staging)
    if state is None or not await _is_ours(staging, state, pipeline):
        return None
    back, touched = Backwards(staging), False
    for version in range(state.version, -1, -1):
        commit = await back.get(version)
        if commit is None:
            break
        seal = seal_of(commit, pipeline)
        if seal is not None and seal.step.kind == "read":
            return Batch(seal, commit, touched or await _touched_underneath(back, seal, commit))
        touched = touched or (seal is None and commit.changes_data)
    return None


async def _touched_underneath(back: Backwards, seal: Seal, commit: Commit) -> bool:
    """Tell whether others changed rows between the planning of a commit and the commit itself."""
    planned = seal.step.planned_on
    if planned is None or not seal.configuration.get("adds", False):
        return False
    for version in range(commit.version - 1, planned.version, -1):
        between = await back.get(version)
        if between is None or between.changes_data:
            return True
    return False


async def _state(staging: DeltaLog) -> TableState | None:
    """Return the table's state; None where there is none, or only what a crash left."""
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
        raise TargetWithoutProof(
            f"The staging table {staging.uri} (version {state.version}) holds rows that pipeline "
            f"{pipeline} did not put there.",
            remedy="name a staging table of its own for every pipeline.",
        )
    return False


# -- custom sinks -------------------------------------------------------------------------------
@dataclass(frozen=True)
class Sink:
    """What staging proves of a sink that has no proof of its own.

    :param proof: its seal is what was committed last; without one, nothing was
    :param batch: what is staged and not committed; None where somebody else changed its rows since
    :param newest: the newest seal, of whichever kind
    """

    proof: Proof
    batch: Batch | None
    newest: Seal | None


async def sink(staging: DeltaLog, pipeline: str) -> Sink | None:
    """Find the watermark of a custom sink, and its open batch.

    What was committed is in the sink, so no RESTORE of staging takes it back: the newest seal counts. A batch
    whose rows were changed by others since is none any more.

    :return: None where there is no staging table yet
    :raises TargetWithoutProof: staging holds rows that this pipeline did not put there
    :raises InvalidConfiguration: staging is filled for a target, in which the watermark stands
    :raises ProofExpired: the sealed commit was cleaned from the log
    :raises TransactionRetentionSet: staging would forget what it proves
    """
    state = await _state(staging)
    if state is None:
        return None
    if _RETENTION in state.configuration:
        raise TransactionRetentionSet(
            f"The staging table {staging.uri} has {_RETENTION} = {state.configuration[_RETENTION]}: Delta "
            "would forget what was committed.",
            remedy=f"ALTER TABLE … UNSET TBLPROPERTIES ('{_RETENTION}').",
        )
    if not await _is_ours(staging, state, pipeline):
        return Sink(Proof(seal=None, next_number=_first_number(state), target=state), None, None)
    seal, commit, touched = await _newest_seal(staging, state, pipeline)
    # Of a sink's batch the newest version is what people read.
    stored = await staging.transaction(app_id(pipeline))
    proof = Proof(
        seal=_committed(staging, seal),
        next_number=max(stored or 0, seal.number) + 1,
        target=state,
        commit=commit if seal.step.kind == "commit" else None,
    )
    is_open = seal.step.kind == "read" and not touched
    return Sink(proof, Batch(seal, commit) if is_open else None, seal)


def _first_number(state: TableState) -> int:
    """Every planner of an empty table must come to the same number."""
    return state.created_time or 1


async def _newest_seal(staging: DeltaLog, state: TableState, pipeline: str) -> tuple[Seal, Commit, bool]:
    back, touched = Backwards(staging), False
    for version in range(state.version, -1, -1):
        commit = await back.get(version)
        if commit is None:
            raise ProofExpired(
                f"The commit of the staging table {staging.uri} that said what pipeline {pipeline} has "
                f"committed is gone (version {version} was cleaned).",
                remedy="use a new staging table: its first batch is a snapshot of the source.",
            )
        seal = seal_of(commit, pipeline)
        if seal is not None:
            return seal, commit, touched or await _touched_underneath(back, seal, commit)
        touched = touched or commit.changes_data
    raise TargetWithoutProof(
        f"The staging table {staging.uri} knows a transaction of pipeline {pipeline}, and no commit of its "
        "log carries the seal of one.",
        remedy="name a staging table that only this release's reads write to.",
    )


async def newest_commit(staging: DeltaLog, pipeline: str) -> Seal | None:
    """Return the newest commit of a batch, whatever was read since; None where its log doesn't tell."""
    state = await _state(staging)
    back = Backwards(staging)
    for version in range(state.version if state is not None else -1, -1, -1):
        commit = await back.get(version)
        if commit is None:
            break
        seal = seal_of(commit, pipeline)
        if seal is not None and seal.step.kind == "commit" and not seal.configuration.get(IDLE, False):
            return seal
    return None


def _committed(staging: DeltaLog, seal: Seal) -> Seal | None:
    """Return what was committed when a seal was made, as a seal; None for nothing."""
    if seal.step.kind == "commit":
        return seal
    if COMMITTED not in seal.configuration:
        raise InvalidConfiguration(
            f"The staging table {staging.uri} is filled for a target, in which the watermark of pipeline "
            f"{seal.pipeline} stands.",
            remedy="name that target, or a staging table of its own for a sink without one.",
        )
    known = seal.configuration[COMMITTED]
    if known is None:
        return None
    return replace(
        seal,
        source_table_id=known["source_table_id"],
        watermark=known["version"],
        source_commit_hash=known["source_commit_hash"],
    )


def committed(seal: Seal | None) -> dict[str, Any] | None:
    """Return what the seals of a batch say of what was committed before it."""
    if seal is None:
        return None
    return {
        "source_table_id": seal.source_table_id,
        "version": seal.watermark,
        "source_commit_hash": seal.source_commit_hash,
    }


# -- going on -----------------------------------------------------------------------------------
async def to_go_on_with(
    request: ReadRequest, sight: Sight, batch: Batch | None, *, output: dict[str, str] | None
) -> tuple[Batch | None, tuple[str, ...]]:
    """Return the batch that this read returns or completes, and why another one is given up.

    :param output: where the batch's files are wanted; see :meth:`Batch.is_whole`
    """
    if batch is None:
        return None, ()
    what = "open batch" if batch.is_complete else "unfinished batch"
    found = f"The {what} {batch.versions} in staging {request.staging} "
    other = await gates.other_history(sight.log, sight.source, batch.seal)
    if other is not None:
        return None, (
            f"{found}was read from another history of {sight.source.uri} ({other}) and is replaced.",
        )
    if not batch.answers(request):
        return None, (f"{found}was read with other options and is replaced.",)
    if batch.touched and not batch.is_whole(output):
        return None, (f"{found}was changed by others and is replaced.",)
    if not batch.is_complete and sight.ending is not None and sight.ending < batch.versions.ending_version:
        return None, (f"{found}goes beyond version {sight.ending} and is replaced.",)
    return batch, ()


async def turn(staging: DeltaLog, pipeline: str, number: int) -> tuple[int, PlannedOn | None]:
    """Return the number and state to write a batch on.

    A batch that was read but never applied leaves staging a number ahead after the target was restored; a
    new batch has to come after it, or Delta would skip it.
    """
    try:
        state = await staging.snapshot()
    except (TableNotFound, NotADeltaTable):
        return number, None
    stored = await staging.transaction(app_id(pipeline))
    return max(number, (stored or 0) + 1), PlannedOn(state.table_id, state.version)
