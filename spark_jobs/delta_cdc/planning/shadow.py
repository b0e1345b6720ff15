"""Reads what the logs say of a target and its shadow, and plans their comparison. No process is started."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import both
from delta_cdc.core.erasure import ledger_of
from delta_cdc.core.errors import TableNotFound, TargetWithoutWatermark
from delta_cdc.core.properties import ERASED, ERASED_COLUMNS
from delta_cdc.core.shadow import (
    MOST_BYTES,
    Comparison,
    Pair,
    Standing,
    app_id,
    not_compared,
    share_of,
    shares,
)
from delta_cdc.core.spec import ComparedTarget, ShadowSpec
from delta_cdc.core.uris import spark_uri
from delta_cdc.core.validation import options_of
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.maintenance_commits import MOST_COMMITS
from delta_cdc.planning.plan import readable
from delta_cdc.planning.reconcile import reconcile_async, restored_to
from delta_cdc.planning.seal_chain import Back, SealChain, replaces, restores

if TYPE_CHECKING:
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.reconcile import RecordedWatermark

#: The most comparisons that are looked for.
MOST_COMPARISONS = 20


@dataclass(frozen=True)
class Target:
    """One of the two targets.

    :param seal: the newest seal of the pipeline
    """

    log: DeltaLog
    recorded: RecordedWatermark
    seal: Seal

    @property
    def version(self) -> TableVersion:
        """Return the newest version."""
        return TableVersion(self.recorded.target.table_id, self.recorded.target.version)

    @property
    def side(self) -> ComparedTarget:
        """Return what to compare."""
        return ComparedTarget(spark_uri(self.log.uri), self.version, options_of(self.seal))


async def target_of(table: str, pipeline: str, storage_options: dict[str, str] | None, **how: Any) -> Target:
    """Return a target with the newest seal of a pipeline.

    :param how: more arguments of :func:`delta_cdc.planning.reconcile.reconcile_async`
    :raises TableNotFound: there is no table
    :raises TargetWithoutWatermark: the pipeline has not loaded it yet
    :raises DeltaCdcError: the log does not prove a watermark
    """
    log = DeltaLog(table, storage_options)
    recorded = await reconcile_async(log, pipeline, **how)
    if recorded is None:
        raise TableNotFound(f"There is no table at {log.uri} yet.", remedy=f"run {pipeline}, which loads it.")
    if recorded.seal is None:
        raise TargetWithoutWatermark(
            f"{log.uri} has no seal of {pipeline} yet.", remedy=f"run {pipeline}, which loads it."
        )
    return Target(log, recorded, recorded.seal)


async def comparisons(
    log: DeltaLog, pair: Pair | None, shadow: str, most: int = MOST_COMPARISONS
) -> tuple[Comparison, ...]:
    """Return the comparisons of a shadow that are in effect, newest first.

    A comparison that a RESTORE undid, or after which all rows were replaced, does not count. A table without
    a comparison costs no walk through its commits.

    :param pair: only those of this pair; None: of every original
    """
    if await log.transaction(app_id(shadow)) is None:
        return ()
    state = await log.snapshot()
    found: list[Comparison] = []
    after = max(-1, state.version - MOST_COMMITS)
    chain = SealChain(log.history(), state.version, uri=log.uri)
    async for commit in Back(chain, state.version, after, restored=partial(restored_to, log)):
        one = recorded_in(commit, shadow)
        if one is not None and (pair is None or one.original == pair.original):
            found.append(one)
        if len(found) == most or replaces(commit):
            break
    return tuple(found)


def recorded_in(commit: Commit, shadow: str) -> Comparison | None:
    """Return the comparison that a commit records: its tag, its transaction, and no rows belong together.

    The conf that sets ``userMetadata`` leaks into later commits of the same Spark session.
    """
    found = Comparison.from_tag(commit.info.user_metadata)
    if found is None or found.shadow != shadow or commit.n_adds or commit.n_removes:
        return None
    return found if any(txn.app_id == app_id(shadow) for txn in commit.txns) else None


async def standing(pair: Pair, storage_options: dict[str, str] | None = None) -> Standing:
    """Return what the logs say of a pair.

    :raises DeltaCdcError: a log does not prove the watermark of a pipeline
    """
    ours, theirs = await _targets(pair, storage_options)
    found = await comparisons(theirs.log, pair, pair.shadow)
    changed = bool(found) and await _changed_since(ours, theirs, found[0])
    original, shadow = await both(ours.log.snapshot(), theirs.log.snapshot())
    return Standing(
        original_table=ours.version,
        shadow_table=theirs.version,
        original_at=ours.seal.watermark,
        shadow_at=theirs.seal.watermark,
        comparisons=found,
        changed_since=changed,
        lacks_erasures=await _lacks_erasures(original, shadow, storage_options),
    )


async def _lacks_erasures(
    original: TableState, shadow: TableState, storage_options: dict[str, str] | None
) -> bool:
    """Return whether keys were erased from the original that the shadow does not remember.

    Each ledger has a secret of its own, so only the numbers of keys can be compared, if the keys have the
    same columns.
    """
    if ERASED not in original.configuration or ERASED not in shadow.configuration:
        return ERASED in original.configuration
    ours, theirs = await both(
        DeltaLog(ledger_of(original.uri), storage_options).snapshot(),
        DeltaLog(ledger_of(shadow.uri), storage_options).snapshot(),
    )
    if _columns_of(ours) != _columns_of(theirs):
        return False
    rows, other_rows = await asyncio.to_thread(lambda: (ours.num_rows, theirs.num_rows))
    return rows is not None and other_rows is not None and rows > other_rows


def _columns_of(ledger: TableState) -> str:
    """Return the key columns of a ledger, as one text."""
    return ledger.configuration.get(ERASED_COLUMNS, "").lower()


async def _targets(pair: Pair, storage_options: dict[str, str] | None) -> tuple[Target, Target]:
    return await both(
        target_of(pair.original_target, pair.original, storage_options),
        target_of(pair.shadow_target, pair.shadow, storage_options),
    )


async def _changed_since(ours: Target, theirs: Target, newest: Comparison) -> bool:
    """Return whether the rows of a target may have changed after a comparison."""
    for target, read in ((ours, newest.original_table), (theirs, newest.shadow_table)):
        now = target.version
        if read is None or read.table_id != now.table_id or read.version > now.version:
            return True
        commits = await target.log.commits(range(read.version + 1, now.version + 1))
        if any(commit.changes_data or restores(commit) or replaces(commit) for commit in commits):
            return True
    return False


async def plan_comparison(
    pair: Pair,
    *,
    run_id: str,
    whole: bool = False,
    again: bool = False,
    single_driver: bool = False,
    storage_options: dict[str, str] | None = None,
) -> ShadowSpec | Comparison:
    """Plan the comparison of a pair, or return why it is not possible.

    :param pair: with the locations of both targets
    :param whole: compare all rows, not a sample
    :param again: also if nothing changed since the newest comparison, and whatever the size of the targets
    :raises DeltaCdcError: a log does not prove the watermark of a pipeline
    """
    try:
        ours, theirs = await _targets(pair, storage_options)
    except (TableNotFound, TargetWithoutWatermark) as error:
        # Before the first run of one of them.
        return not_compared(pair, error.message)
    at, other = ours.seal.watermark, theirs.seal.watermark
    if at.table_id != other.table_id:
        return not_compared(pair, f"the sources differ: {ours.seal.source_uri} and {theirs.seal.source_uri}")
    if at.version != other.version:
        return not_compared(
            pair, f"{pair.original} stands at version {at} of the source, and {pair.shadow} at {other}"
        )
    if not again:
        newest = await comparisons(theirs.log, pair, pair.shadow, 1)
        if newest and newest[0].source == other and not await _changed_since(ours, theirs, newest[0]):
            return not_compared(pair, f"nothing changed since the comparison of {newest[0].at}")
    rows, size = await asyncio.to_thread(lambda: _amount(ours, theirs))
    if not (whole or again) and size > MOST_BYTES:
        return not_compared(
            pair,
            f"the targets have {readable(size)}, more than a sample may read; use delta-cdc shadow compare",
        )
    number = await theirs.log.transaction(app_id(pair.shadow))
    share = 1 if whole else shares(rows)
    return ShadowSpec(
        pipeline=pair.shadow,
        run_id=run_id,
        single_driver=single_driver,
        pair=pair,
        original=ours.side,
        shadow=theirs.side,
        source=other,
        share=share,
        share_of=share_of(at.version, share),
        number=0 if number is None else number + 1,
    )


def _amount(ours: Target, theirs: Target) -> tuple[int | None, int]:
    """Return the rows of the original, if its log has their number, and the bytes of both."""
    states = (ours.recorded.target, theirs.recorded.target)
    return states[0].num_rows, sum(state.num_bytes for state in states)
