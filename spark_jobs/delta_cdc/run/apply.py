"""The flow of an apply."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.errors import DeltaCdcError, OutcomeUnknown
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.core.shadow import Comparison
from delta_cdc.core.spec import ApplySpec, JobResult
from delta_cdc.core.steps import PROVED_BY_THEMSELVES
from delta_cdc.core.text_table import grid
from delta_cdc.core.uris import canonical_uri, is_name, short_name
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.apply import plan_apply_async
from delta_cdc.planning.partitions import changed_partitions
from delta_cdc.planning.plan import Plan
from delta_cdc.planning.quarantine import held
from delta_cdc.planning.reconcile import WatermarkBackup, reconcile_async, table_id_of
from delta_cdc.planning.shadow import comparisons
from delta_cdc.planning.status import MOST_COMMITS, lag_of
from delta_cdc.planning.written import bytes_of
from delta_cdc.run.loop import NOTHING_TO_DO, UNANNOUNCED, Own, Run, Services, described_range
from delta_cdc.run.outbox import is_announced, merged, unannounced
from delta_cdc.run.outcomes import Outcome, counted, summed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from delta_cdc.core.quarantine import Held
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.planning.reconcile import RecordedWatermark
    from delta_cdc.run.outbox import Sealed

#: The text of a dry run above the counts of several commits.
_COUNTED = " (the counts are of the first one with rows; those of the others depend on it):"
_BOUNDS = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp")


def extra_work_of(request: ApplyRequest) -> str:
    """Return the work that a request names beside the changes after the watermark; "" for no such work."""
    if request.goes_on:
        return ""
    names = ("mode", "repair_keys", "repair_quarantined", *_BOUNDS)
    return json.dumps([getattr(request, name) for name in names])


class Applying(Run[ApplyRequest, Plan, ApplySpec]):
    """One apply, step by step.

    A dry run (``request.dry_run``) plans and executes once, writes nothing, and keeps no saved plan.
    """

    def __init__(
        self,
        request: ApplyRequest,
        services: Services,
        execute: Callable[[Any], Awaitable[JobResult]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        if request.dry_run:
            # It must not change what a later run plans, and it announces nothing.
            services = replace(services, saved_plans=None, announced=None)
        super().__init__(request, services, execute, sleep)

    async def plan(self) -> Plan:
        return await plan_apply_async(self.request, self.memory())

    def written_table(self) -> str:
        return canonical_uri(self.request.target)

    def extra_work(self) -> str:
        return extra_work_of(self.request)

    def described(self, plan: Plan, named: Callable[[str], str] = str) -> str:
        if plan.versions is not None and _stands_alone(plan):
            steps = "; ".join(f"{step.kind} of {step}, seal {step.seal_number}" for step in plan.steps)
            return f"{steps}, {named(plan.source.uri)} into {named(self.written_table())}"
        return described_range(plan, self.written_table(), named)

    async def covered(self, plan: Plan) -> bool:
        """Return whether the seal in effect covers the plan: another run's seal may follow ours."""
        return not _stands_alone(plan) and _proves(await self._proof(), plan)

    def failed(self, result: JobResult, own: Own) -> DeltaCdcError:
        error = super().failed(result, own)
        staging = self.request.staging
        if staging is None or not error.of_rows:
            return error
        # Each try applies the open batch, whatever was corrected since, and the modes take no staging.
        then = "leave out staging in that run."
        if "mode=" not in error.remedy:
            then = "after the correction, run once with mode='reload' and without staging."
        remedy = f"{error.remedy.rstrip('.')}. The batch in {staging} keeps the rows: {then}"
        return type(error)(error.message, remedy=remedy)

    async def without_job(self, plan: Plan) -> Outcome | None:
        if self.request.dry_run and plan.versions is None:
            # A seal without rows has no counts, so no job is needed.
            return await self._publish_dry(plan, JobResult("planned"))
        saved_plan = self.saved(plan.plan_key)
        if not self.extra_work() or saved_plan.asked != self.extra_work() or plan.recorded is None:
            return None
        earlier = await self._commits_of_work(plan)
        if not any(seal.step.fingerprint in saved_plan.lasts for seal, _ in earlier):
            return None
        due = await self._due(plan.recorded, earlier)
        return await self._publish_earlier(plan, plan.recorded, earlier, due) if due else None

    async def publish_nothing(self, plan: Plan) -> Outcome:
        recorded = plan.recorded
        seal = recorded.seal if recorded is not None else None
        earlier = await self._commits_of_work(plan)
        due = await self._due(recorded, earlier)
        if recorded is not None and due:
            done = await self._publish_earlier(plan, recorded, earlier, due)
            return self._with_comparisons(done, await self._recorded_comparisons())
        target = self.written_table()
        progress = (
            f"the watermark of {target} is {seal.watermark}"
            if seal is not None
            else f"{target} has no watermark yet"
        )
        newest = f"the newest version of {plan.source.uri} is {plan.source.version}"
        if self.request.mode == "repair":
            # It leaves newer versions alone, so this run may end behind them.
            self.say(f"Nothing to repair: {progress}. A run without a mode applies what is newer; {newest}.")
        else:
            self.say(f"Nothing to apply: {progress}, and {newest}.")
        version = recorded.target.version if recorded is not None else None
        done = await self._result(plan, recorded, None, {}, version, applied=False)
        return replace(done, dry_run=_dry_run_result(plan, None)) if self.request.dry_run else done

    async def _publish_earlier(
        self, plan: Plan, recorded: RecordedWatermark, earlier: Sealed, due: Sealed
    ) -> Outcome:
        """Return the commits of earlier work as the result.

        :param earlier: those of earlier tries of this work
        :param due: all that the result includes
        """
        last, commit = due[-1]
        if recorded.seal is None or recorded.seal.number < last.number:
            # An earlier try committed after this one had planned.
            recorded = self._in_effect(await self._proof())
        versions, counts = _range(due), summed(due)
        done_by = self.services.done_by if len(earlier) == len(due) else UNANNOUNCED
        self.say(
            f"Already applied by {done_by}: {counted(counts)}; versions "
            f"{versions or last.step.ending_version} of {plan.source.uri} are in version {commit.version} of "
            f"{self.written_table()}. {NOTHING_TO_DO}"
        )
        return await self._result(
            plan,
            recorded,
            versions,
            counts,
            commit.version,
            applied=True,
            commits=due,
        )

    async def _due(self, recorded: RecordedWatermark | None, ours: Sealed) -> Sealed:
        """Return the commits that the result is about, oldest first: those of this work, and each one that
        was not announced.

        The target may have been replaced inside its log since: the rows of the commits before are gone.
        """
        if recorded is not None:
            ids = (None, recorded.target.table_id)
            ours = tuple(pair for pair in ours if table_id_of(*pair) in ids)
        return merged(await unannounced(self.log, "target", recorded, self.services.announced), ours)

    async def _commits_of_work(self, plan: Plan) -> Sealed:
        """Return the commits with rows that this work made and has not published yet, oldest first.

        One plan may have several commits, and several tries may have committed. Other runs may have sealed
        between and after these commits, so the newest seal is no proof.
        """
        saved_plan = self.saved(plan.plan_key)
        run_id = self.request.run_id if self.services.since is not None else ""
        if not saved_plan.fingerprints and not run_id:
            return ()
        known = [saved_plan.planned_version] if saved_plan.fingerprints else []
        since = [self.services.since] if self.services.since is not None and run_id else []
        found = await self._commits(*saved_plan.fingerprints, after=min(known + since), run_id=run_id)
        return tuple(pair for pair in found if is_announced("target", pair[0]))

    async def publish(self, plan: Plan, own: Own, result: JobResult | None) -> Outcome:
        if result is not None and result.status == "planned":
            return await self._publish_dry(plan, result)
        outcome = await self._publish_commit(plan, own, result)
        found = [codec.decoded(Comparison, row) for row in result.tables] if result is not None else []
        return self._with_comparisons(outcome, found)

    def _with_comparisons(self, outcome: Outcome, found: Sequence[Comparison]) -> Outcome:
        for one in found:
            self.say("\n  ".join([f"{one.shadow}, shadow of {one.original}: {one}.", *one.details()]))
        return replace(outcome, shadow=tuple(map(codec.encoded, found))) if found else outcome

    async def _recorded_comparisons(self) -> list[Comparison]:
        """Return what an earlier try, or the application of an ingest, has compared and recorded."""
        found: list[Comparison] = []
        for pair in self.request.shadows:
            if is_name(pair.shadow_target):
                continue
            log = DeltaLog(pair.shadow_target, self.request.storage_options)
            try:
                newest = await comparisons(log, pair, pair.shadow, 1)
            except DeltaCdcError as error:
                # The work is done and must be published; the log of the shadow keeps its comparisons.
                self.say(f"Cannot read the comparisons of {pair.shadow}: {error}")
                continue
            found += [one for one in newest if one.run_id == self.request.run_id]
        return found

    async def _publish_commit(self, plan: Plan, own: Own, result: JobResult | None) -> Outcome:
        proof = await self._proof()
        ours = await self._commits_of_work(plan)
        in_effect = _proves(proof, plan) and (bool(ours) or not _stands_alone(plan))
        recorded = self._in_effect(proof if in_effect else None)
        seal = recorded.seal
        assert seal is not None
        due = await self._due(recorded, ours)
        # A listing that lags may leave out the newest of the own ones.
        version = max((commit.version for _, commit in (*own.found, *ours)), default=recorded.target.version)
        if plan.versions is None and not due:
            self.say(
                f"0 rows: wrote watermark {seal.watermark} in version {version} of "
                f"{short_name(self.written_table())}, seal {seal.number}."
            )
            return await self._result(plan, recorded, None, {}, version, applied=False)
        counts = summed(due) if due else dict(result.counts if result else {})
        self.say(
            f"{counted(counts)}: {self.described(plan, short_name)}; version {version}, watermark "
            f"{seal.watermark}, seal {seal.number}."
        )
        versions = _range(due) if due else plan.versions
        return await self._result(
            plan, recorded, versions, counts, version, applied=True, commits=due or own.found
        )

    async def _publish_dry(self, plan: Plan, result: JobResult) -> Outcome:
        dry_run = _dry_run_result(plan, result)
        self.say(
            f"Dry run: this run wrote nothing to {self.written_table()}. A real run would make these commits"
            f"{_COUNTED if len(dry_run['table']) > 1 else ':'}\n{grid(dry_run['table'])}"
        )
        for statement in dry_run["statements"]:
            self.say(f"The run would execute:\n{statement}")
        self.say(f"Result of a real run: {counted(result.counts)}.")
        if result.error is not None:
            error = DeltaCdcError.from_dict(result.error)
            self.say(
                f"A real run would fail with {type(error).__name__}: {error.message} Remedy: {error.remedy}"
            )
        version = plan.recorded.target.version if plan.recorded is not None else None
        done = await self._result(
            plan, plan.recorded, plan.versions, dict(result.counts), version, applied=False
        )
        return replace(done, dry_run=dry_run)

    def _in_effect(self, proof: RecordedWatermark | None) -> RecordedWatermark:
        """Return what proves a commit of this pipeline.

        :raises OutcomeUnknown: no seal of the pipeline is in effect
        """
        if proof is not None and proof.seal is not None:
            return proof
        raise OutcomeUnknown(
            f"The commit of pipeline {self.request.pipeline} is in {self.written_table()}'s log, but "
            "its seal is not in effect: the target was restored or replaced right after it.",
            remedy="run again. The next run reads from the log what is left to do.",
        )

    async def _proof(self) -> RecordedWatermark | None:
        return await reconcile_async(self.log, self.request.pipeline, backup=self.services.backup)

    async def _result(
        self,
        plan: Plan,
        recorded: RecordedWatermark | None,
        versions: VersionRange | None,
        counts: dict[str, int],
        version: int | None,
        *,
        applied: bool,
        commits: Sealed = (),
    ) -> Outcome:
        """Return a result.

        :param commits: those that the result is about; empty if nothing was applied, or if they are not known
        """
        seal = recorded.seal if recorded is not None else None
        written = [commit for _, commit in commits]
        backup = None
        if recorded is not None and seal is not None and recorded.commit is not None:
            backup = WatermarkBackup(
                seal, TableVersion(recorded.target.table_id, recorded.commit.version, recorded.commit.sha256)
            ).to_dict()
        return Outcome(
            kind="apply",
            applied=applied,
            versions=versions,
            watermark=seal.watermark if seal is not None else None,
            counts=counts,
            target_version=version,
            pipeline=self.request.pipeline,
            seal=seal.number if seal is not None else None,
            source_table=canonical_uri(self.request.source),
            target_table=self.written_table(),
            target_table_id=recorded.target.table_id if recorded is not None else None,
            plan_key=plan.plan_key,
            backup=backup,
            bytes_written=bytes_of(written),
            partitions=partitions_of(recorded, written) if applied else None,
            lag=await self._lag(plan, recorded),
            held=await self._held(seal),
            effort=self.effort,
        )

    async def _held(self, seal: Seal | None) -> Held | None:
        request = self.request
        if request.quarantine is None or request.dry_run:
            return None
        return await held(request.target, request.pipeline, request.storage_options, seal, is_log=False)

    async def _lag(self, plan: Plan, recorded: RecordedWatermark | None) -> dict[str, Any] | None:
        """Return how far the target is behind its source now, as it is published."""
        if recorded is None or recorded.seal is None:
            return None
        source, log = plan.source, plan.observed.log
        try:
            if plan.spec is not None:
                # The source may have new versions since the plan.
                source = replace(source, version=await log.newest_version(source.version))
            return (await lag_of(log, source, recorded, recorded.seal, most=MOST_COMMITS)).to_dict()
        except DeltaCdcError as error:
            # The commit is made, and must be published.
            self.say(f"Cannot compute how far {self.written_table()} is behind {source.uri}: {error}")
            return None


def partitions_of(recorded: RecordedWatermark | None, commits: Sequence[Commit]) -> tuple[str, ...] | None:
    """Return the partitions that the commits of a result changed; of no known commit, the whole table."""
    return None if recorded is None else changed_partitions(commits or [None], recorded.target)


def _proves(recorded: RecordedWatermark | None, plan: Plan) -> bool:
    """Return whether the seal in effect covers the range of the plan."""
    step = plan.steps[-1]
    if (
        recorded is None
        or recorded.seal is None
        or recorded.seal.watermark.table_id != step.watermark.table_id
    ):
        return False
    return _covers(recorded.seal, step.starting_version, step.at)


def _stands_alone(plan: Plan) -> bool:
    return any(step.kind in PROVED_BY_THEMSELVES for step in plan.steps)


def _dry_run_result(plan: Plan, result: JobResult | None) -> dict[str, Any]:
    """Return the result of a dry run, in its published form."""
    return {
        "table": _table(plan, result),
        "steps": [f"{step.kind}: {step}, seal {step.seal_number}" for step in plan.steps],
        "statements": list(result.statements) if result is not None else [],
        "counts": dict(result.counts) if result is not None else {},
        **({"error": result.error} if result is not None and result.error is not None else {}),
    }


def _table(plan: Plan, result: JobResult | None) -> list[dict[str, Any]]:
    """Return a row for each commit that a run would make; the first commit that moves rows has the counts."""
    rows: list[dict[str, Any]] = []
    counts: dict[str, int] = dict(result.counts) if result is not None else {}
    for number, step in enumerate(plan.steps, 1):
        rows.append({"commit": number, "kind": step.kind, "what": f"{step}, seal {step.seal_number}"})
        if step.read.has_rows:
            rows[-1] |= counts
            counts = {}
    return rows


def _covers(seal: Seal, starting: int, ending: int) -> bool:
    # An empty load starts at -1, below every version.
    return seal.state.applied_from <= max(starting, 0) and ending <= seal.watermark.version


def _range(commits: Sealed) -> VersionRange | None:
    """Return the versions that commits applied, first to last; those of a load only if nothing followed."""
    steps = [seal.step for seal, _ in commits]
    ranged = [step for step in steps if step.kind != "load"] or steps
    starting = [step.starting_version for step in ranged if step.starting_version >= 0]
    return VersionRange(min(starting), max(step.ending_version for step in ranged)) if starting else None
