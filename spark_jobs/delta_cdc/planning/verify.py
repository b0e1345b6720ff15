"""Plans a verification: checks a target's logs, and decides which checks need Spark.

All checks read one version of the target: the one whose seal was read. So concurrent writers do no harm.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import arguments, validation
from delta_cdc.core.change_log import completed
from delta_cdc.core.checks import (
    BACKUP,
    CHECKS,
    CONFIGURATION,
    CURRENT_EQUALS_HISTORY,
    EQUALS_SOURCE,
    NULL_KEYS,
    OF_LOGS,
    OF_ROWS,
    SEAL,
    UNIQUE_KEYS,
    WATERMARK,
    Check,
    Verification,
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
    SealUnreadable,
    SourceHistoryChanged,
    SourceTableReplaced,
    TableNotFound,
    TargetChangedUnderneath,
    TargetHistoryChanged,
    TargetReplaced,
    TargetWithoutWatermark,
    TransactionRetentionSet,
    VersionsExpired,
    WatermarkExpired,
)
from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.rules import check_pipeline
from delta_cdc.core.spec import ComparedTarget, VerifySpec
from delta_cdc.core.uris import spark_uri
from delta_cdc.core.value_rules import recorded_rules, those_that
from delta_cdc.core.watermark import Seal, TableVersion, app_id
from delta_cdc.delta_log.schema_changes import leaf_paths
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import modes, preconditions, ranges
from delta_cdc.planning.erased_keys import left_out
from delta_cdc.planning.maintenance_commits import backwards, foreign_commits
from delta_cdc.planning.observe import Observation
from delta_cdc.planning.plan import JobPlan
from delta_cdc.planning.quarantine import missing
from delta_cdc.planning.reconcile import WatermarkBackup, reconcile_async

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.steps import Step
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.reconcile import RecordedWatermark

#: Errors that mean that no seal is in effect.
_NO_PROOF = (
    PipelineTakenOver,
    WatermarkExpired,
    SealUnreadable,
    TargetChangedUnderneath,
    TargetHistoryChanged,
    TargetReplaced,
    TargetWithoutWatermark,
    TransactionRetentionSet,
)
#: Errors that mean that a version of the source can no longer be read.
_LOST = (LogGap, VersionsExpired)
#: How many commits of other writers are named.
_NAMED = 5
#: Options in which two pipelines must agree to have the same rows.
SAME_ROWS = ("keys", "where", "select", "apply_as_deletes", "apply_as_truncates", "source_kind")


@dataclass(frozen=True, kw_only=True)
class VerifyRequest:
    """The arguments of the verification of one target.

    :param target: path or URI
    :param source: path or URI of its source; None uses the one that the seal names
    :param options: the pipeline's current configuration; None uses what the seal records
    :param takes_drift: the next run takes over other options than those of the seal (``on_drift``)
    :param on_conflict: without ``options``: what the seal of a change log's target does not record
    :param current: path or URI of the target of the other SCD type with the same keys
    :param current_pipeline: the pipeline that fills it; None uses the only one that its log names
    :param once: the source is loaded once, and may be gone after that
    :param wanted: the checks to make
    :param backup: returns the watermark backup
        (:meth:`delta_cdc.planning.reconcile.WatermarkBackup.to_dict`), or
        anything else if there is no backup; None if backups are not kept
    :param storage_options: options of the object store, as delta-rs names them
    """

    pipeline: str
    target: str
    source: str | None = None
    options: ApplyOptions | None = None
    takes_drift: bool = False
    on_conflict: str | tuple[str, ...] = "fail"
    current: str | None = None
    current_pipeline: str | None = None
    once: bool = False
    wanted: tuple[str, ...] = CHECKS
    run_id: str = ""
    backup: Callable[[], Any] | None = field(default=None, repr=False, compare=False)
    storage_options: dict[str, str] | None = field(default=None, repr=False)

    def log_of(self, table: str) -> DeltaLog:
        """Return the log of a table."""
        return DeltaLog(table, self.storage_options)


def check_names(wanted: Sequence[str]) -> None:
    """Refuse unknown names of checks.

    :raises InvalidConfiguration: names the nearest one
    """
    for name in wanted:
        arguments.one_of(CHECKS, "checks", name)
    if not wanted:
        raise InvalidConfiguration("checks is empty.", remedy="name at least one, or leave it out for all.")


async def plan_verify_async(
    request: VerifyRequest, *, now_ms: int | None = None
) -> JobPlan[VerifySpec, Verification]:
    """Check the logs of a target and its source. Starts no process and writes nothing.

    :param now_ms: the time in epoch milliseconds; None is now
    :return: the checks that the logs decide; the spec has the others, None if there are no others
    :raises InvalidConfiguration: an argument is invalid
    :raises DeltaCdcError: a log cannot be read
    """
    check_pipeline(request.pipeline)
    check_names(request.wanted)
    log, spec, version = request.log_of(request.target), None, None
    try:
        recorded = await reconcile_async(log, request.pipeline, backup=request.backup)
    except _NO_PROOF as error:
        version = (await log.snapshot()).version
        checks = [finding(SEAL, error.message, error.remedy), *_skipped("no seal is in effect")]
        if request.options is not None and request.options.keys:
            # The keys are known, so the rows can be checked without a seal.
            checks = [check for check in checks if check.check not in OF_ROWS] + _not_applicable(
                request.options
            )
            spec = _spec(request, version, request.options)
    else:
        if recorded is None:
            remedy = f"run {request.pipeline}, which loads it; or correct the path."
            checks = [finding(SEAL, f"There is no table at {log.uri}.", remedy)]
            checks += _skipped("there is no table")
        elif recorded.seal is None:
            reason_text = (
                f"{log.uri} is empty and has no seal of {request.pipeline} yet; its next run loads it"
            )
            checks = _skipped(reason_text, but=())
        else:
            now = time.time_ns() // 1_000_000 if now_ms is None else now_ms
            version = recorded.target.version
            checks, spec = await _sealed(request, recorded, recorded.seal, now)
    if spec is not None:
        decided = [check.check for check in checks]
        remaining = tuple(name for name in CHECKS if name in request.wanted and name not in decided)
        spec = replace(spec, checks=remaining) if remaining else None
    wanted = tuple(check for check in checks if check.check in request.wanted)
    return JobPlan(spec, Verification(request.pipeline, log.uri, version, wanted))


def _spec(request: VerifyRequest, version: int, options: ApplyOptions, **more: Any) -> VerifySpec:
    return VerifySpec(
        pipeline=request.pipeline,
        run_id=request.run_id,
        target_uri=spark_uri(request.target),
        target_version=version,
        options=options,
        checks=(),
        knows_on_conflict=request.options is not None or request.on_conflict != "fail",
        **more,
    )


async def _sealed(
    request: VerifyRequest, recorded: RecordedWatermark, seal: Seal, now_ms: int
) -> tuple[list[Check], VerifySpec | None]:
    """Return the checks that the logs decide, and a spec for the others."""
    place = (
        f"version {recorded.commit.version}" if recorded.commit is not None else "a version that was cleaned"
    )
    seal_text = f"seal {seal.number} in {place} of {recorded.target.uri}: {seal.reach}."
    of_seal = ok(SEAL, " ".join([*recorded.notes, seal_text]))
    lost = await missing(seal, request.target, request.storage_options)
    if lost is not None:
        of_seal = finding(SEAL, f"{of_seal.detail} {lost.message}", lost.remedy)
    checks = [of_seal, await _backup_check(request, recorded, seal)]
    if "keys" not in seal.state.configuration:
        # A change log that is filled from files or topics, or a staging table.
        reason_text = f"pipeline {seal.pipeline} does not fill the target of an apply"
        return [*checks, *_skipped(reason_text, but=(SEAL, BACKUP))], None
    watermark, source = await _source(request, seal)
    configuration, options = _options(request, recorded, seal, source)
    checks += [watermark, configuration]
    if options.writes_events:
        reason_text = "the target is a change log, which has the events of its sources"
        return [*checks, *_skipped(reason_text, but=OF_LOGS)], None
    checks += _not_applicable(options)
    compared = await _comparison(request, recorded, seal, options, source, watermark.detail, now_ms)
    current = await _current(request, recorded, seal, options, source)
    checks += [check for check in (compared, current) if isinstance(check, Check)]
    return checks, _spec(
        request,
        recorded.target.version,
        options,
        source_uri=None if isinstance(compared, Check) else spark_uri(request.source or seal.source_uri),
        compared=None if isinstance(compared, Check) else compared,
        current=current if isinstance(current, ComparedTarget) else None,
        source_keeps_all=source is None or LATENESS_HORIZON not in source.configuration,
        erased=await left_out(
            request.target,
            recorded,
            request.storage_options,
            source=None if source is None else (source.uri, source.configuration),
        ),
    )


# -- the watermark backup -------------------------------------------------------------------------
async def _backup_check(request: VerifyRequest, recorded: RecordedWatermark, seal: Seal) -> Check:
    if request.backup is None:
        return skipped(BACKUP, "only Airflow's asset store keeps a copy of the seal.")
    copy = WatermarkBackup.from_dict(await asyncio.to_thread(request.backup))
    if copy is None:
        return skipped(BACKUP, "no copy of the seal is kept.")
    # A RESTORE undoes rows but no transactions, so the log still has the number of an undone seal.
    unknown = copy.seal.number >= recorded.next_number
    same = copy.target.table_id == recorded.target.table_id and copy.seal.number == seal.number
    if not unknown and not (same and _differs(copy, recorded, seal)):
        return ok(BACKUP, f"the copy says seal {copy.seal.number}, {copy.seal.reach}.")
    return finding(
        BACKUP,
        f"The copy of the seal says seal {copy.seal.number}, {copy.seal.reach}, and "
        f"{recorded.target.uri} has seal {seal.number}, {seal.reach}"
        f"{'' if unknown else ', in another commit'}: commits of it are lost.",
        "find out whether the target was put back from a backup; the pipeline goes on from its own seal, "
        "and the next run that applies something replaces the copy.",
    )


def _differs(copy: WatermarkBackup, recorded: RecordedWatermark, seal: Seal) -> bool:
    """Return whether the commit with a seal is not the one that the copy was made from."""
    copied, commit = copy.target.commit_hash, recorded.commit
    overwritten = copied is not None and commit is not None and commit.sha256 != copied
    return overwritten or copy.seal.state.applied_to != seal.state.applied_to


# -- configuration --------------------------------------------------------------------------------
def _options(
    request: VerifyRequest, recorded: RecordedWatermark, seal: Seal, source: TableState | None
) -> tuple[Check, ApplyOptions]:
    """Compare the given options with the seal's; return those that the rows were made with."""
    current, sealed = request.options, validation.options_of(seal)
    if current is None:
        return (
            skipped(CONFIGURATION, "no options were given to compare with those of the seal."),
            replace(sealed, on_conflict=request.on_conflict),
        )
    current = completed(current, source.configuration if source is not None else {})
    paths = leaf_paths(source.schema_string) if source is not None else None
    drifts = validation.drifts(seal, current, recorded.target.uri, paths)
    if not drifts:
        return ok(CONFIGURATION, "the options are those that the target was built with."), current
    # The seal does not record these options.
    policies = {name: getattr(current, name) for name in ("on_conflict", "on_invalid", "on_late")}
    made_with = replace(sealed, **policies)
    text = " ".join(drifts.values())
    if request.takes_drift:
        return skipped(CONFIGURATION, f"{text} The next run takes it over (on_drift)."), made_with
    remedy = 'use the recorded options again, or set on_drift in policies to "accept" or "repair".'
    return finding(CONFIGURATION, text, remedy, count=len(drifts)), made_with


# -- the source -----------------------------------------------------------------------------------
async def _source(request: VerifyRequest, seal: Seal) -> tuple[Check, TableState | None]:
    """Check that the source is the one that was applied, and at least as new as the watermark."""
    log, version = request.log_of(request.source or seal.source_uri), seal.watermark.version
    try:
        state = await log.snapshot()
        identity = await preconditions.check_identity(log, state, seal)
    except (SourceHistoryChanged, SourceTableReplaced, TableNotFound, NotADeltaTable) as error:
        if request.once:
            return skipped(WATERMARK, f"the source is loaded once, so it may be gone. {error.message}"), None
        return finding(WATERMARK, error.message, error.remedy), None
    if not request.once and version < state.version and not await log.has_commit(version + 1):
        # The next run cannot continue from the watermark.
        lost = await log.missing(version + 1)
        return finding(WATERMARK, lost.message, lost.remedy), state
    texts = [f"{seal.watermark} of {state.uri}, which is at version {state.version}."]
    texts += [identity.note] if identity.note else []
    if version >= 0 and not await log.has_commit(version):
        texts.append("The commit of that version was cleaned, so only the table's id was compared.")
    return ok(WATERMARK, " ".join(texts)), state


async def _comparison(
    request: VerifyRequest,
    recorded: RecordedWatermark,
    seal: Seal,
    options: ApplyOptions,
    source: TableState | None,
    watermark: str,
    now_ms: int,
) -> Step | Check:
    """Return the reload that would bring the target to the source as of the watermark."""
    if source is None:
        return skipped(EQUALS_SOURCE, f"the watermark belongs to another source: {watermark}")
    if seal.watermark.version < 0:
        return skipped(EQUALS_SOURCE, "no version of the source is applied yet.")
    reload = ApplyRequest(
        pipeline=seal.pipeline,
        source=request.source or seal.source_uri,
        target=request.target,
        options=options,
        mode="reload",
        storage_options=request.storage_options,
    )
    observed = Observation(
        request=reload,
        log=request.log_of(reload.source),
        source=source,
        recorded=recorded,
        now_ms=now_ms,
        first_number=0,
        starting=None,
        ending=seal.watermark.version,
        saved_end=None,
    )
    try:
        if options.insert_only:
            return (await ranges.load_step(observed, seal.watermark.version))[0]
        (step,) = (await modes.reload(observed, None)).steps
    except _LOST as error:
        return await _without_source(request, recorded, error)
    return step


async def _without_source(request: VerifyRequest, recorded: RecordedWatermark, error: DeltaCdcError) -> Check:
    """Return what the target's log alone shows, if its rows cannot be compared with those of the source."""
    log, kinds = request.log_of(request.target), ("load", "reset", "baseline", "reload")
    try:
        others = await foreign_commits(log, recorded.target.version, _NAMED, kinds)
    except DeltaCdcError as unreadable:
        return skipped(EQUALS_SOURCE, f"{error.message} Nor can the target's history be read: {unreadable}")
    again = "run the pipeline, and verify again directly after it, when the source still has these rows."
    if not others:
        return skipped(EQUALS_SOURCE, f"{error.message} To compare, {again}")
    return finding(
        EQUALS_SOURCE,
        f"{error.message} And no pipeline made these changes of the target: {', '.join(others)}.",
        f'to compare, {again} An apply with mode="reload" makes the newest rows equal to the source.',
        count=len(others),
    )


# -- the other target -----------------------------------------------------------------------------
async def _current(
    request: VerifyRequest,
    recorded: RecordedWatermark,
    seal: Seal,
    options: ApplyOptions,
    source: TableState | None,
) -> ComparedTarget | Check:
    """Return the target of the other type, if both have the same version of the source."""
    if request.current is None:
        return skipped(CURRENT_EQUALS_HISTORY, "no other target was named (current).")
    log = request.log_of(request.current)
    other_recorded, other_seal = await _only_seal(log, request.current_pipeline)
    other_options = validation.options_of(other_seal)
    if {options.stored_as_scd_type, other_options.stored_as_scd_type} != {1, 2}:
        raise InvalidConfiguration(
            f"{recorded.target.uri} is of SCD type {options.stored_as_scd_type}, and {log.uri} (the "
            f"target in current) of type {other_options.stored_as_scd_type}.",
            remedy="set current to a target of the other type.",
        )
    difference = await _differ(request, seal, other_seal, source)
    if difference is not None:
        return skipped(CURRENT_EQUALS_HISTORY, difference)
    target = other_recorded.target
    return ComparedTarget(
        spark_uri(request.current), TableVersion(target.table_id, target.version), other_options
    )


async def _differ(request: VerifyRequest, seal: Seal, other: Seal, source: TableState | None) -> str | None:
    """Return why two pipelines have different rows; None if they have the same."""
    if seal.watermark.table_id != other.watermark.table_id:
        return f"{other.pipeline} has another source, {other.source_uri}."
    mine, theirs = seal.state.configuration, other.state.configuration
    names = [name for name in SAME_ROWS if mine.get(name) != theirs.get(name)]
    aside, their_aside = (
        those_that(recorded_rules(one.get("rules")), "quarantine") for one in (mine, theirs)
    )
    names += ["rules"] if aside != their_aside else []
    if names:
        return f"{seal.pipeline} and {other.pipeline} differ in {', '.join(names)}."
    low, high = sorted((seal.watermark.version, other.watermark.version))
    if low == high:
        return None
    why = (
        f"the watermarks are {seal.watermark} and {other.watermark}: the rows of two watermarks are the same "
        "only if no data changed in between."
    )
    if source is None or high > source.version:
        return why
    try:
        commits = await request.log_of(request.source or seal.source_uri).commits(range(low + 1, high + 1))
    except _LOST:
        return why
    return why if any(commit.changes_data for commit in commits) else None


async def _only_seal(log: DeltaLog, pipeline: str | None) -> tuple[RecordedWatermark, Seal]:
    """Return the recorded watermark of a pipeline, or of the only one that a table names.

    :raises InvalidConfiguration: the table names no pipeline, or several
    :raises DeltaCdcError: the watermark cannot be determined
    """
    prefix, names = app_id(""), [pipeline] if pipeline is not None else []
    if pipeline is None:
        names = sorted(app[len(prefix) :] for app in await log.transactions() if app.startswith(prefix))
    if len(names) != 1:
        raise InvalidConfiguration(
            f"{log.uri} (the target in current) has seals of {', '.join(names) or 'no pipeline'}.",
            remedy="set current to a target with seals. If it has seals of several pipelines, write it as "
            "PIPELINE=TARGET.",
        )
    recorded = await reconcile_async(log, names[0])
    if recorded is None or recorded.seal is None:
        raise InvalidConfiguration(
            f"{log.uri} (the target in current) has no seal of {names[0]}.", remedy="run its pipeline first."
        )
    return recorded, recorded.seal


# -- which checks ---------------------------------------------------------------------------------
def _skipped(reason_text: str, but: Iterable[str] = (SEAL,)) -> list[Check]:
    """Return all checks but some as skipped."""
    return [skipped(name, f"{reason_text}.") for name in CHECKS if name not in but]


def _row_checks(options: ApplyOptions) -> tuple[str, ...]:
    """Return the checks of rows that apply to a target."""
    if not options.keys:
        return ()
    of_type_2 = options.stored_as_scd_type == 2
    return tuple(name for name in OF_ROWS if name == NULL_KEYS or (name != UNIQUE_KEYS) == of_type_2)


def _not_applicable(options: ApplyOptions) -> list[Check]:
    """Return the checks of rows that do not apply to a target, as skipped."""
    reason_text = f"the target is of SCD type {options.stored_as_scd_type}."
    if not options.keys:
        reason_text = "the target has no keys (insert_only)."
    return [skipped(name, reason_text) for name in OF_ROWS if name not in _row_checks(options)]


async def was_declared(request: VerifyRequest, version: int) -> bool:
    """Return whether a baseline was set for rows of a target (``initial_load``), and no load followed.

    The rows of a baseline may differ from the source: they were never compared with it.

    :param version: the version of the target from which to search back
    """
    async for commit in backwards(request.log_of(request.target), version):
        seal = Seal.from_json(commit.info.user_metadata)
        if seal is not None and seal.step.kind in ("load", "reload", "reset", "baseline"):
            return seal.step.kind == "baseline"
    return False
