"""What the logs tell: the seal, the watermark against its source, the copy outside; and what Spark is to do.

Everything is looked at as of one version of the target: the one whose seal was read. So a writer at the same
moment changes nothing of what is found.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation as configuration
from delta_cdc.core.change_log import completed
from delta_cdc.core.checks import (
    CHECKS,
    CONFIGURATION,
    CURRENT_EQUALS_HISTORY,
    EQUALS_SOURCE,
    MIRROR,
    NULL_KEYS,
    OF_ROWS,
    ONE_OPEN_ROW,
    OVERLAPS,
    SEAL,
    START_BEFORE_END,
    UNIQUE_KEYS,
    WATERMARK,
    Check,
    finding,
    ok,
    skipped,
)
from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    LogGap,
    NotADeltaTable,
    PipelineTakenOver,
    ProofExpired,
    SealUnreadable,
    SourceHistoryChanged,
    SourceTableReplaced,
    TableNotFound,
    TargetChangedUnderneath,
    TargetReplaced,
    TargetWithoutProof,
    TransactionRetentionSet,
    VersionsExpired,
)
from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.core.spec import ApplyRequest, ApplySpec, OtherTable, VerifySpec
from delta_cdc.core.uris import spark_uri
from delta_cdc.core.watermark import Seal, app_id
from delta_cdc.delta_log.schema_changes import leaf_paths
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import modes, preconditions, ranges
from delta_cdc.planning.observe import Observation
from delta_cdc.planning.reconcile import Mirror, reconcile_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delta_cdc.core.spec import ApplyOptions, TargetStep
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.reconcile import Proof
    from delta_cdc.planning.verify_request import VerifyRequest

#: Why a seal is not in effect.
_NO_PROOF = (
    PipelineTakenOver,
    ProofExpired,
    SealUnreadable,
    TargetChangedUnderneath,
    TargetReplaced,
    TargetWithoutProof,
    TransactionRetentionSet,
)
#: Why a version of the source cannot be read any more.
_GONE = (LogGap, VersionsExpired)
_OF_HISTORY = (ONE_OPEN_ROW, OVERLAPS, START_BEFORE_END)
#: Options by which rows of two targets are told to be the same.
_SAME = ("keys", "where", "select", "apply_as_deletes", "apply_as_truncates", "source_kind")


@dataclass(frozen=True)
class VerifyPlan:
    """What the logs told, and what is left for Spark.

    :param uri: of the target
    :param version: of the target, as of which everything is looked at; None without a table
    :param checks: those that are decided
    :param spec: the others; None where none are left
    """

    pipeline: str
    uri: str
    version: int | None
    checks: tuple[Check, ...]
    spec: VerifySpec | None


async def plan_verify_async(
    request: VerifyRequest, *, mirror: Callable[[], Any] | None = None, now_ms: int | None = None
) -> VerifyPlan:
    """Look at the logs of a target and its source. Starts no process and writes nothing.

    :param mirror: returns the copy of the newest seal that is kept outside the target
        (:meth:`delta_cdc.planning.reconcile.Mirror.to_dict`), or anything else where there is none
    :param now_ms: the time in epoch milliseconds; None is now
    :raises InvalidConfiguration: what is asked for cannot be meant
    :raises DeltaCdcError: a log cannot be read
    """
    request.check()
    look = _Look(request, time.time_ns() // 1_000_000 if now_ms is None else now_ms, mirror)
    checks, spec, version = await look.at_all()
    decided = {one.check: one for one in checks}
    wanted = [decided[name] for name in CHECKS if name in decided and name in request.wanted]
    return VerifyPlan(request.pipeline, look.target.uri, version, tuple(wanted), spec)


@dataclass
class _Look:
    request: VerifyRequest
    now_ms: int
    mirror: Callable[[], Any] | None

    def __post_init__(self) -> None:
        self.target = DeltaLog(self.request.target, self.request.storage_options)

    async def at_all(self) -> tuple[list[Check], VerifySpec | None, int | None]:
        """Return what is decided, what is left for Spark, and the target's version."""
        pipeline, uri = self.request.pipeline, self.target.uri
        try:
            proof = await reconcile_async(self.target, pipeline, mirror=self.mirror)
        except _NO_PROOF as error:
            return await self._unsealed(error)
        if proof is None:
            found = finding(
                SEAL,
                f"There is no table at {uri}.",
                f"run {pipeline}, which loads it; or correct the path.",
            )
            return [found, *_rest("there is no table")], None, None
        if proof.seal is None:
            why = f"{uri} is empty and has no seal of {pipeline} yet"
            return [skipped(name, f"{why}; its next run loads it.") for name in CHECKS], None, None
        return await self._sealed(proof, proof.seal)

    async def _unsealed(self, error: DeltaCdcError) -> tuple[list[Check], VerifySpec | None, int | None]:
        """Rows can be looked at all the same, where the keys are known."""
        state, options = await self.target.snapshot(), self.request.options
        why = "no seal is in effect"
        found = [finding(SEAL, error.message, error.remedy), *_rest(why)]
        if options is None or not options.keys:
            return found, None, state.version
        rows = _of_rows(options)
        spec = self._spec(state.version, options, rows)
        return [one for one in found if one.check not in rows] + _no_rows(options), spec, state.version

    async def _sealed(self, proof: Proof, seal: Seal) -> tuple[list[Check], VerifySpec | None, int | None]:
        version = proof.target.version
        at = f"version {proof.commit.version}" if proof.commit is not None else "a version that was cleaned"
        told = f"seal {seal.number} in {at} of {self.target.uri}: {seal.reach}."
        checks = [ok(SEAL, " ".join([*proof.notes, told])), await self._mirror(proof, seal)]
        if "keys" not in seal.state.configuration:
            # A change log that is filled from files or topics, or a staging table.
            what = f"what {seal.pipeline} fills is no target of an apply"
            return [*checks, *_rest(what, but=(SEAL, MIRROR))], None, version
        known, source = await self._source(seal)
        drifts, options = self._options(seal, source)
        checks += [drifts, *_no_rows(options), known]
        compared = await self._comparison(proof, seal, options, known, source)
        current = await self._current(seal, options, source)
        rows = _of_rows(options)
        for found in (compared, current):
            if isinstance(found, Check):
                checks.append(found)
        spec = self._spec(
            version,
            options,
            rows,
            compared if isinstance(compared, ApplySpec) else None,
            current if isinstance(current, OtherTable) else None,
            keeps_all=source is None or LATENESS_HORIZON not in source.configuration,
        )
        return checks, spec, version

    def _spec(
        self,
        version: int,
        options: ApplyOptions,
        rows: Iterable[str],
        source: ApplySpec | None = None,
        current: OtherTable | None = None,
        *,
        keeps_all: bool = True,
    ) -> VerifySpec | None:
        names = [*rows]
        names += [EQUALS_SOURCE] if source is not None else []
        names += [CURRENT_EQUALS_HISTORY] if current is not None else []
        left = tuple(name for name in names if name in self.request.wanted)
        if not left:
            return None
        return VerifySpec(
            pipeline=self.request.pipeline,
            run_id=self.request.run_id,
            target_uri=spark_uri(self.request.target),
            target_version=version,
            options=options,
            checks=left,
            source=source,
            current=current,
            source_keeps_all=keeps_all,
            conflicts_told=self.request.options is not None or self.request.on_conflict != "fail",
        )

    # -- the copy outside -----------------------------------------------------------------------
    async def _mirror(self, proof: Proof, seal: Seal) -> Check:
        if self.mirror is None:
            return skipped(MIRROR, "only Airflow's asset store keeps a copy of the seal.")
        copy = Mirror.from_dict(await asyncio.to_thread(self.mirror))
        if copy is None:
            return skipped(MIRROR, "no copy of the seal is kept.")
        # A RESTORE takes rows back and not the transactions, so a seal that it undid is known all the same.
        unknown = copy.seal.number >= proof.next_number
        same = copy.target.table_id == proof.target.table_id and copy.seal.number == seal.number
        if not unknown and not (same and copy.seal.state.applied_to != seal.state.applied_to):
            return ok(MIRROR, f"the copy says seal {copy.seal.number}, {copy.seal.reach}.")
        return finding(
            MIRROR,
            f"The copy of the seal says seal {copy.seal.number}, {copy.seal.reach}, and "
            f"{self.target.uri} has seal {seal.number}, {seal.reach}: commits of it are lost.",
            "find out whether the target was put back from a backup; the pipeline goes on from its own seal, "
            "and the next run that applies something writes the copy anew.",
        )

    # -- configuration --------------------------------------------------------------------------
    def _options(self, seal: Seal, source: TableState | None) -> tuple[Check, ApplyOptions]:
        """Compare the options that are given with the seal's; return those that the rows were made with."""
        given, told = self.request.options, configuration.options_of(seal)
        if given is None:
            return (
                skipped(CONFIGURATION, "no options were given that the seal's could be compared with."),
                replace(told, on_conflict=self.request.on_conflict),
            )
        given = completed(given, source.configuration if source is not None else {})
        paths = leaf_paths(source.schema_string) if source is not None else None
        drifts = configuration.drifts(seal, given, self.target.uri, paths)
        if not drifts:
            return ok(CONFIGURATION, "the options are those that the target was built with."), given
        told_of = " ".join(drifts.values())
        untold = {name: getattr(given, name) for name in ("on_conflict", "on_invalid", "on_late")}
        if self.request.takes_drift:
            said = f"{told_of} The next run takes it over (on_drift)."
            return skipped(CONFIGURATION, said), replace(told, **untold)
        found = finding(
            CONFIGURATION,
            told_of,
            'go back to what it was built with, or set on_drift to "accept" or "repair".',
            count=len(drifts),
        )
        return found, replace(told, **untold)

    # -- the source -----------------------------------------------------------------------------
    async def _source(self, seal: Seal) -> tuple[Check, TableState | None]:
        """Look whether the source is the one that was applied, and at least as new as the watermark."""
        where = self.request.source or seal.source_uri
        log = DeltaLog(where, self.request.storage_options)
        try:
            state = await log.snapshot()
            identity = await preconditions.check_identity(log, state, seal)
        except (SourceHistoryChanged, SourceTableReplaced, TableNotFound, NotADeltaTable) as error:
            return finding(WATERMARK, error.message, error.remedy), None
        lost = await _lost(log, seal.watermark.version + 1, state.version)
        if lost is not None:
            return finding(WATERMARK, lost.message, lost.remedy), state
        told = [f"{seal.watermark} of {state.uri}, which is at version {state.version}."]
        told += [identity.note] if identity.note else []
        if seal.watermark.version >= 0 and not await log.has_commit(seal.watermark.version):
            told.append("The commit of that version was cleaned, so only the table's id was compared.")
        return ok(WATERMARK, " ".join(told)), state

    async def _comparison(
        self, proof: Proof, seal: Seal, options: ApplyOptions, known: Check, source: TableState | None
    ) -> ApplySpec | Check:
        """Return the reload that would bring the target to the source as of the watermark."""
        if source is None:
            return skipped(EQUALS_SOURCE, f"the watermark is none of this source: {known.detail}")
        if seal.watermark.version < 0:
            return skipped(EQUALS_SOURCE, "no version of the source is applied yet.")
        request = ApplyRequest(
            pipeline=seal.pipeline,
            source=self.request.source or seal.source_uri,
            target=self.request.target,
            options=options,
            mode="reload",
            run_id=self.request.run_id,
            storage_options=self.request.storage_options,
            dry_run=True,
        )
        sight = Observation(
            request=request,
            log=DeltaLog(request.source, request.storage_options),
            source=source,
            proof=proof,
            now_ms=self.now_ms,
            first_number=0,
            starting=None,
            ending=seal.watermark.version,
            pinned_end=None,
        )
        try:
            if options.insert_only:
                steps: tuple[TargetStep, ...] = ((await ranges.load_step(sight, seal.watermark.version))[0],)
            else:
                reload = (await modes.reload(request, sight, None)).spec
                assert isinstance(reload, ApplySpec)
                steps = reload.steps
        except _GONE as error:
            return skipped(EQUALS_SOURCE, error.message)
        return ApplySpec(
            pipeline=seal.pipeline,
            run_id=self.request.run_id,
            source_uri=spark_uri(request.source),
            target_uri=spark_uri(request.target),
            options=options,
            steps=steps,
            dry_run=True,
        )

    # -- the other target -----------------------------------------------------------------------
    async def _current(
        self, seal: Seal, options: ApplyOptions, source: TableState | None
    ) -> OtherTable | Check:
        """Return the target of the other type, where both hold the same version of the source."""
        if self.request.current is None:
            return skipped(CURRENT_EQUALS_HISTORY, "no other target was named (current).")
        log = DeltaLog(self.request.current, self.request.storage_options)
        proof, other = await _only_seal(log, self.request.current_pipeline)
        theirs = configuration.options_of(other)
        if {options.stored_as_scd_type, theirs.stored_as_scd_type} != {1, 2}:
            raise InvalidConfiguration(
                f"{self.target.uri} is of SCD type {options.stored_as_scd_type}, and {log.uri}, which "
                f"current names, of type {theirs.stored_as_scd_type}.",
                remedy="name a target of the other type.",
            )
        why = _differ(seal, other) or await self._apart(seal, other, source)
        if why is not None:
            return skipped(CURRENT_EQUALS_HISTORY, why)
        return OtherTable(spark_uri(self.request.current), proof.target.version, theirs)

    async def _apart(self, seal: Seal, other: Seal, source: TableState | None) -> str | None:
        """Say why two watermarks stand for different rows; None where they don't."""
        low, high = sorted((seal.watermark.version, other.watermark.version))
        if low == high:
            return None
        why = f"the watermarks are {seal.watermark} and {other.watermark}: they can be compared where both "
        why += "stand for the same rows."
        if source is None or high > source.version:
            return why
        try:
            log = DeltaLog(self.request.source or seal.source_uri, self.request.storage_options)
            commits = await log.commits(range(low + 1, high + 1))
        except _GONE:
            return why
        return why if any(commit.changes_data for commit in commits) else None


async def _lost(log: DeltaLog, following: int, newest: int) -> DeltaCdcError | None:
    """Return why the next run cannot go on from the watermark; None where it can."""
    if following > newest or await log.has_commit(following):
        return None
    return await log.missing(following)


def _rest(why: str, but: tuple[str, ...] = (SEAL,)) -> list[Check]:
    return [skipped(name, f"{why}.") for name in CHECKS if name not in but]


def _of_rows(options: ApplyOptions) -> tuple[str, ...]:
    if not options.keys:
        return ()
    return (NULL_KEYS, *(_OF_HISTORY if options.stored_as_scd_type == 2 else (UNIQUE_KEYS,)))


def _no_rows(options: ApplyOptions) -> list[Check]:
    """Return the checks of rows that have no meaning for a target."""
    why = f"the target is of SCD type {options.stored_as_scd_type}."
    if not options.keys:
        why = "the target has no keys (insert_only)."
    return [skipped(name, why) for name in OF_ROWS if name not in _of_rows(options)]


def _differ(seal: Seal, other: Seal) -> str | None:
    """Say in what two pipelines differ, so that their rows do, too; None where they don't."""
    if seal.watermark.table_id != other.watermark.table_id:
        return f"{other.pipeline} has another source, {other.source_uri}."
    mine, theirs = seal.state.configuration, other.state.configuration
    names = [name for name in _SAME if mine.get(name) != theirs.get(name)]
    return f"{seal.pipeline} and {other.pipeline} differ in {', '.join(names)}." if names else None


async def _only_seal(log: DeltaLog, pipeline: str | None) -> tuple[Proof, Seal]:
    """Return what a table proves of a pipeline, or of the only one that it knows.

    :raises InvalidConfiguration: it knows none, or several
    :raises DeltaCdcError: the proof is not to be had
    """
    names = [pipeline] if pipeline is not None else await _pipelines(log)
    if len(names) != 1:
        raise InvalidConfiguration(
            f"{log.uri}, which current names, has seals of {', '.join(names) or 'no pipeline'}.",
            remedy="name a target that one pipeline fills, as PIPELINE=TARGET where it has seals of several.",
        )
    proof = await reconcile_async(log, names[0])
    if proof is None or proof.seal is None:
        raise InvalidConfiguration(
            f"{log.uri}, which current names, has no seal of {names[0]}.", remedy="run its pipeline first."
        )
    return proof, proof.seal


async def _pipelines(log: DeltaLog) -> list[str]:
    prefix = app_id("")
    return sorted(app[len(prefix) :] for app in await log.transactions() if app.startswith(prefix))


async def was_declared(request: VerifyRequest, version: int) -> bool:
    """Tell whether rows of a target were declared (``initial_load``), and not loaded since.

    What was declared need not be what the source holds: nobody looked.

    :param version: of the target, from which on is looked back
    """
    history = DeltaLog(request.target, request.storage_options).history()
    for at in range(version, -1, -1):
        commit = await history.get(at)
        if commit is None:
            return False
        seal = Seal.from_json(commit.info.user_metadata)
        if seal is not None and seal.step.kind in ("load", "reload", "reset"):
            return False
        if seal is not None and seal.step.kind == "declare":
            return True
    return False
