"""One apply or read from end to end: plan, run, confirm from the target's log, publish."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from delta_cdc.errors import (
    ConcurrentModification,
    DeltaCdcError,
    JobFailed,
    OutcomeUnknown,
)
from delta_cdc.log.store import canonical_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan import ApplyRequest, Plan, ReadRequest, plan_apply, plan_read
from delta_cdc.reconcile import own_commits, reconcile
from delta_cdc.spec import ApplySpec, JobResult, ReadSpec, fingerprint
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit
    from delta_cdc.reconcile import Proof
    from delta_cdc.watermark import Seal, Watermark

logger = logging.getLogger(__name__)

Say = Callable[[str], None]

_Request = TypeVar("_Request", ApplyRequest, ReadRequest)
_Spec = TypeVar("_Spec", ApplySpec, ReadSpec)
_Result = TypeVar("_Result", bound="ApplyResult")

_METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
}


class Pins(Protocol):
    """Keeps ``{"ending_version": int | None, "fingerprint": str}`` across the tries of one piece of work.

    Once the work is done, the end is None and the fingerprint stays: a try that died before it published
    finds its commit again.

    A lost pin costs nothing but a longer range: the target's log is what proves.
    """

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was pinned, or None."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Pin a value."""

    def delete(self, key: str) -> None:
        """Forget a pin; one that isn't there is no error."""


class NoPins:
    """Keeps pins for one call only."""

    def __init__(self) -> None:
        self._kept: dict[str, dict[str, Any]] = {}

    def get(self, key: str) -> dict[str, Any] | None:
        """Return what was pinned, or None."""
        return self._kept.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        """Pin a value."""
        self._kept[key] = value

    def delete(self, key: str) -> None:
        """Forget a pin."""
        self._kept.pop(key, None)


@dataclass(frozen=True)
class ApplyResult:
    """What became of an apply, as the target's log proves it.

    :param applied: whether this piece of work moved anything
    :param versions: the range it moved; None where there was nothing to do
    :param watermark: what the target proves now; None only where no target exists yet
    :param counts: rows inserted, updated, deleted, and what else the seal counts
    :param timestamp: when this was found out, ISO 8601 in UTC
    """

    applied: bool
    versions: VersionRange | None
    watermark: Watermark | None
    counts: dict[str, int]
    target_version: int | None
    pipeline: str
    seal: int | None
    source_table: str
    target_table: str
    target_table_id: str | None
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        return {
            "pipeline": self.pipeline,
            "seal": self.seal,
            "source_table": self.source_table,
            "source_table_id": self.watermark.source_table_id if self.watermark else None,
            "version": self.watermark.version if self.watermark else None,
            "starting_version": self.versions.starting_version if self.versions else None,
            "ending_version": self.versions.ending_version if self.versions else None,
            "applied": self.applied,
            "target_table": self.target_table,
            "target_table_id": self.target_table_id,
            "target_version": self.target_version,
            "counts": self.counts,
            "timestamp": self.timestamp,
        }


@dataclass(frozen=True)
class ReadResult(ApplyResult):
    """What became of a read: as :class:`ApplyResult` (``applied``: a batch was written by this call), plus
    the open batch.

    :param staging: location of the staging table
    :param staging_version: its version that holds the batch; None where there is none
    :param rows: change rows in the batch
    """

    staging: str = ""
    staging_version: int | None = None
    rows: int = 0

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        batch = {
            "staging": self.staging,
            "staging_version": self.staging_version,
            "rows": self.rows,
        }
        return {**super().to_dict(), **batch}


def run_apply(
    request: ApplyRequest,
    *,
    execute: Callable[[ApplySpec], JobResult],
    pins: Pins | None = None,
    say: Say = logger.info,
    max_attempts: int = 3,
) -> ApplyResult:
    """Apply what the source has beyond the target's watermark, and prove it from the target's log.

    With nothing to do, ``execute`` is not called. Where the process dies, the next call finds out from the
    log whether the commit was made.

    :param execute: runs the spec in Spark
    :param pins: keeps the range's end over retries of the same work
    :param say: takes one line per step
    :param max_attempts: how often to plan again after losing a race
    :raises ConcurrentModification: every attempt lost
    :raises OutcomeUnknown: the job said that it committed, and the log doesn't show it
    :raises DeltaCdcError: the named error that the job or a check reported
    """
    return _Apply(request, execute, pins or NoPins(), say, max_attempts).run()


def run_read(
    request: ReadRequest,
    *,
    execute: Callable[[ReadSpec], JobResult],
    pins: Pins | None = None,
    say: Say = logger.info,
    max_attempts: int = 3,
) -> ReadResult:
    """Write the changes beyond the target's watermark into staging, as the one open batch.

    An open batch that still continues the target is returned as it is. Parameters and errors are those of
    :func:`run_apply`; what is proved is the staging table's seal.
    """
    return _Read(request, execute, pins or NoPins(), say, max_attempts).run()


def committed(request: ApplyRequest | ReadRequest) -> Watermark | None:
    """Return the watermark that the target proves now; None where there is none. For display."""
    proof = reconcile(DeltaLog(request.target, request.storage_options), request.pipeline)
    return proof.seal.mark if proof is not None and proof.seal is not None else None


# -- what apply and read share ------------------------------------------------------------------
@dataclass(frozen=True)
class _Own:
    """Our own sealed commits of one attempt, oldest first."""

    found: tuple[tuple[Seal, Commit], ...]
    last: str

    @property
    def complete(self) -> bool:
        return any(seal.step.fingerprint == self.last for seal, _ in self.found)


class _Run(Generic[_Request, _Spec, _Result]):
    """The eight steps, for both kinds of job."""

    def __init__(
        self,
        request: _Request,
        execute: Callable[[_Spec], JobResult],
        pins: Pins,
        say: Say,
        max_attempts: int,
    ) -> None:
        self.request: _Request = request
        self.execute: Callable[[_Spec], JobResult] = execute
        self.pins = pins
        self.say = say
        self.max_attempts = max_attempts

    # Each kind says for itself:
    def plan(self) -> Plan:
        raise NotImplementedError

    def written_table(self) -> str:
        raise NotImplementedError

    def fingerprints(self, spec: _Spec) -> tuple[str, ...]:
        raise NotImplementedError

    def planned_version(self, spec: _Spec) -> int:
        raise NotImplementedError

    def publish_nothing(self, plan: Plan) -> _Result:
        raise NotImplementedError

    def publish(self, plan: Plan, own: _Own, result: JobResult | None) -> _Result:
        raise NotImplementedError

    def covered(self, plan: Plan) -> bool:
        raise NotImplementedError

    def run(self) -> _Result:
        for attempt in range(1, self.max_attempts + 1):
            plan = self.plan()
            for note in plan.notes:
                self.say(note)
            if plan.spec is None:
                done = self.publish_nothing(plan)
                if done.applied:
                    self._release(plan.pin_key)
                else:
                    self.pins.delete(plan.pin_key)
                return done
            published = self._attempt(plan, plan.spec, attempt)  # type: ignore[arg-type]
            if published is not None:
                self._release(plan.pin_key)
                return published
        raise ConcurrentModification(
            f"Another writer won the race for {self.written_table()} {self.max_attempts} times in a row "
            f"(pipeline {self.request.pipeline}).",
            remedy="run again; let one run per pipeline be active at a time.",
        )

    def _attempt(self, plan: Plan, spec: _Spec, attempt: int) -> _Result | None:
        """Run one plan; None where another writer was faster."""
        names = self.fingerprints(spec)
        self.pins.set(
            plan.pin_key,
            {"ending_version": plan.ending_version, "fingerprint": names[-1]},
        )
        self.say(f"Planned: {self.described(plan)} (attempt {attempt}).")
        try:
            result = self.execute(spec)
        except Exception as error:  # noqa: BLE001 - whatever ended the job, the log decides
            return self._after_crash(plan, spec, names, error)
        own = self._own(spec, names)
        if result.status == "failed":
            raise self._failed(result, own)
        if own.complete or (result.status == "committed" and self.covered(plan)):
            return self.publish(plan, own, result)
        if result.status == "committed":
            raise OutcomeUnknown(
                f"The job for pipeline {self.request.pipeline} said that it committed, but the log of "
                f"{self.written_table()} shows no such commit.",
                remedy="run again; the log will tell.",
            )
        self.say(
            f"Not committed to {self.written_table()} ({result.status}: {result.message or 'no reason'})"
            "; planning again."
        )
        return None

    def _after_crash(self, plan: Plan, spec: _Spec, names: tuple[str, ...], error: Exception) -> _Result:
        """The job went away; the commit may be there all the same."""
        try:
            own = self._own(spec, names)
        except Exception as second:
            self.say(f"The log of {self.written_table()} could not be read after the job failed: {second}")
            raise error from second
        if not own.complete:
            raise error
        seal, commit = own.found[-1]
        self.say(
            f"The job ended with an error, but its commit is there: version {commit.version} of "
            f"{self.written_table()}, seal {seal.number} ({_first_line(error)})."
        )
        return self.publish(plan, own, None)

    def _failed(self, result: JobResult, own: _Own) -> DeltaCdcError:
        for seal, commit in own.found:
            self.say(
                f"The job failed after it had committed version {commit.version} of {self.written_table()}, "
                f"seal {seal.number}."
            )
        if result.error is not None:
            return DeltaCdcError.from_dict(result.error)
        return JobFailed(
            f"The job of pipeline {self.request.pipeline} failed: {result.message or 'no reason given'}",
            remedy="look into Spark's log; the next try finds out what was committed.",
        )

    def _own(self, spec: _Spec, names: tuple[str, ...]) -> _Own:
        log = DeltaLog(self.written_table(), self.request.storage_options)
        return _Own(
            run_sync(_find_own(log, self.request.pipeline, names, self.planned_version(spec))),
            names[-1],
        )

    def described(self, plan: Plan) -> str:
        return f"versions {plan.versions} of {plan.source.uri} into {self.written_table()}"

    def _release(self, key: str) -> None:
        """Free the pinned end, but keep the fingerprint.

        The worker may die after this and before the caller has published; the next try then still knows the
        commit as its own, and publishes it as applied.
        """
        name = self.pinned_fingerprint(key)
        if name is not None and self.pinned_end(key) is not None:
            self.pins.set(key, {"ending_version": None, "fingerprint": name})

    def pinned_end(self, key: str) -> int | None:
        pin = self.pins.get(key)
        end = pin.get("ending_version") if pin else None
        # People can edit the store: anything but a version is no pin.
        return end if isinstance(end, int) and end >= 0 else None

    def pinned_fingerprint(self, key: str) -> str | None:
        pin = self.pins.get(key)
        return pin.get("fingerprint") if pin else None


async def _find_own(
    log: DeltaLog, pipeline: str, names: tuple[str, ...], planned: int
) -> tuple[tuple[Seal, Commit], ...]:
    if await log.left_over():
        try:
            newest = await log.newest_version()
        except DeltaCdcError:
            return ()
    else:
        newest = await log.newest_version()
    return await own_commits(log, pipeline, names, planned, newest)


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def sealed_counts(seal: Seal, commit: Commit) -> dict[str, int]:
    """Return a sealed commit's counts: Delta's own metrics, and what the job knew before it."""
    metrics = commit.info.operation_metrics
    counts = {name: int(metrics[metric]) for metric, name in _METRICS.items() if metric in metrics}
    if not counts and "numOutputRows" in metrics:
        counts = {"inserted": int(metrics["numOutputRows"])}
    return {**counts, **seal.step.counts}


def _summed(commits: tuple[tuple[Seal, Commit], ...]) -> dict[str, int]:
    total: dict[str, int] = {}
    for seal, commit in commits:
        for name, count in sealed_counts(seal, commit).items():
            total[name] = total.get(name, 0) + count
    return total


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or "no rows"


# -- apply --------------------------------------------------------------------------------------
class _Apply(_Run[ApplyRequest, ApplySpec, ApplyResult]):
    def plan(self) -> Plan:
        return plan_apply(self.request, pinned_end=self.pinned_end)

    def written_table(self) -> str:
        return canonical_uri(self.request.target)

    def fingerprints(self, spec: ApplySpec) -> tuple[str, ...]:
        return tuple(fingerprint(spec, step) for step in spec.steps)

    def planned_version(self, spec: ApplySpec) -> int:
        planned = spec.steps[0].planned_on
        return planned.version if planned is not None else -1

    def covered(self, plan: Plan) -> bool:
        """Another seal may already stand on ours: then our range lies inside what it proves."""
        return _proves(self._proof(), plan)

    def publish_nothing(self, plan: Plan) -> ApplyResult:
        proof = plan.proof
        seal = proof.seal if proof is not None else None
        ours = seal is not None and seal.step.fingerprint == self.pinned_fingerprint(plan.pin_key)
        if proof is not None and seal is not None and proof.commit is not None and ours:
            self.say(
                f"Already applied by an earlier try: version {proof.commit.version} of "
                f"{self.written_table()} holds versions {seal.step.starting_version}-"
                f"{seal.step.ending_version} of {plan.source.uri}."
            )
            counts = sealed_counts(seal, proof.commit)
            return self._result(proof, _range(seal), counts, proof.commit.version)
        known = f"watermark {seal.watermark}" if seal is not None else "no watermark yet"
        self.say(
            f"Nothing to do: {self.written_table()} has {known}, and {plan.source.uri} is at version "
            f"{plan.source.version}."
        )
        return self._result(proof, None, {}, proof.target.version if proof is not None else None)

    def publish(self, plan: Plan, own: _Own, result: JobResult | None) -> ApplyResult:
        proof = self._proof()
        if proof is None or proof.seal is None or not _proves(proof, plan):
            raise OutcomeUnknown(
                f"The commit of pipeline {self.request.pipeline} is in {self.written_table()}'s log, but "
                "its seal is not in effect: the target was restored or replaced right after it.",
                remedy="run again; the log will tell.",
            )
        counts = _summed(own.found) if own.found else dict(result.counts if result else {})
        version = own.found[-1][1].version if own.found else proof.target.version
        self.say(
            f"Applied {self.described(plan)}: {_counted(counts)}; version {version}, watermark "
            f"{proof.seal.watermark}, seal {proof.seal.number}."
        )
        return self._result(proof, plan.versions, counts, version)

    def _proof(self) -> Proof | None:
        return reconcile(
            DeltaLog(self.request.target, self.request.storage_options),
            self.request.pipeline,
        )

    def _result(
        self,
        proof: Proof | None,
        versions: VersionRange | None,
        counts: dict[str, int],
        version: int | None,
    ) -> ApplyResult:
        seal = proof.seal if proof is not None else None
        return ApplyResult(
            applied=versions is not None or bool(counts),
            versions=versions,
            watermark=seal.mark if seal is not None else None,
            counts=counts,
            target_version=version,
            pipeline=self.request.pipeline,
            seal=seal.number if seal is not None else None,
            source_table=canonical_uri(self.request.source),
            target_table=self.written_table(),
            target_table_id=proof.target.table_id if proof is not None else None,
        )


# -- read ---------------------------------------------------------------------------------------
class _Read(_Run[ReadRequest, ReadSpec, ReadResult]):
    def plan(self) -> Plan:
        return plan_read(self.request, pinned_end=self.pinned_end)

    def written_table(self) -> str:
        return canonical_uri(self.request.staging)

    def fingerprints(self, spec: ReadSpec) -> tuple[str, ...]:
        return (fingerprint(spec, spec.step),)

    def planned_version(self, spec: ReadSpec) -> int:
        return spec.step.planned_on.version if spec.step.planned_on is not None else -1

    def covered(self, plan: Plan) -> bool:
        # Only our own commit is a proof here: a batch of somebody else is found by planning again.
        return False

    def publish_nothing(self, plan: Plan) -> ReadResult:
        if plan.batch is None:
            self.say(
                f"Nothing to read: {plan.source.uri} is at version {plan.source.version}, and the target has "
                "it all."
            )
            return self._result(plan, applied=False, batch=None)
        ours = plan.batch[0].step.fingerprint == self.pinned_fingerprint(plan.pin_key)
        return self._result(plan, applied=ours, batch=plan.batch)

    def publish(self, plan: Plan, own: _Own, result: JobResult | None) -> ReadResult:
        done = self._result(plan, applied=True, batch=own.found[-1])
        self.say(f"Staged {self.described(plan)}: {done.rows} rows in version {done.staging_version}.")
        return done

    def _result(self, plan: Plan, *, applied: bool, batch: tuple[Seal, Commit] | None) -> ReadResult:
        proof = plan.proof
        seal = proof.seal if proof is not None else None
        rows = int(batch[1].info.operation_metrics.get("numOutputRows", 0)) if batch else 0
        return ReadResult(
            applied=applied,
            versions=plan.versions,
            watermark=seal.mark if seal is not None else None,
            counts={"rows": rows} if batch else {},
            target_version=proof.target.version if proof is not None else None,
            pipeline=self.request.pipeline,
            seal=batch[0].number if batch else None,
            source_table=canonical_uri(self.request.table),
            target_table=canonical_uri(self.request.target),
            target_table_id=proof.target.table_id if proof is not None else None,
            staging=self.written_table(),
            staging_version=batch[1].version if batch else None,
            rows=rows,
        )


def _proves(proof: Proof | None, plan: Plan) -> bool:
    """Tell whether the seal in effect covers what was planned."""
    assert isinstance(plan.spec, ApplySpec)
    if proof is None or proof.seal is None or proof.seal.source_table_id != plan.spec.source_table_id:
        return False
    step = plan.spec.steps[-1]
    # An empty load starts at -1, before everything.
    return (
        proof.seal.applied_from <= max(step.starting_version, 0)
        and step.ending_version <= proof.seal.watermark
    )


def _range(seal: Seal) -> VersionRange | None:
    step = seal.step
    return VersionRange(step.starting_version, step.ending_version) if step.starting_version >= 0 else None
