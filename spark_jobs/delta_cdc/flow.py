"""One apply or read from end to end: plan, run, confirm from the target's log, publish."""

from __future__ import annotations

import json
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from delta_cdc.errors import (
    ConcurrentModification,
    DeltaCdcError,
    JobFailed,
    NotADeltaTable,
    OutcomeUnknown,
    TableNotFound,
)
from delta_cdc.log.store import canonical_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.plan import (
    ApplyRequest,
    CommitRequest,
    Memory,
    Plan,
    ReadRequest,
    plan_apply,
    plan_commit,
    plan_read,
)
from delta_cdc.plan.result import segment_lines, told
from delta_cdc.plan.staging import newest_commit, sink
from delta_cdc.reconcile import Mirror, own_commits, reconcile
from delta_cdc.spec import ApplySpec, CommitSpec, JobResult, ReadSpec, fingerprint, step_fingerprint
from delta_cdc.versions import VersionRange

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit
    from delta_cdc.plan import CommitPlan
    from delta_cdc.reconcile import Proof
    from delta_cdc.watermark import Seal, Watermark

logger = logging.getLogger(__name__)

Say = Callable[[str], None]

_Request = TypeVar("_Request", ApplyRequest, ReadRequest)
_Spec = TypeVar("_Spec", ApplySpec, ReadSpec)
_Result = TypeVar("_Result", bound="ApplyResult")

#: More tries than anybody waits for; the pin must not grow without bound.
_KEPT_FINGERPRINTS = 40
#: Kinds of seals that came with rows.
_MOVING = ("load", "apply", "reload", "reset", "repair")
#: Those of them that only their own commit proves: the watermark alone does not tell whether they were made.
_BY_THEMSELVES = ("reload", "reset", "repair")
#: Seconds before a lost race is planned again: doubled each time, up to the most, and half of it by chance.
_FIRST_WAIT, _LONGEST_WAIT = 0.5, 30.0
_BOUNDS = ("starting_version", "ending_version", "starting_timestamp", "ending_timestamp")
_METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
}


class Pins(Protocol):
    """Keeps what was planned, a JSON object, across the tries of one piece of work.

    With it a retry plans the same range, and knows the commit of a try that died before it published, or
    whose driver lived on, as its own. So a pin stays until :func:`published` is called.

    A lost pin costs nothing but a longer range, and a commit that is not announced: the target's log is
    what proves.
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
class _Pin:
    """What the tries of one piece of work have planned so far.

    :param fingerprints: of the plan of every try; each commit of these plans is ours
    :param planned_version: the oldest version of the written table that one of them was planned on; -1 is
        none
    :param seal_number: the number of a load's seal, where there was no target
    :param asked: what was asked for beside the changes after the watermark; "" is nothing
    :param lasts: fingerprints of the last step of every plan for it
    """

    ending_version: int | None = None
    fingerprints: tuple[str, ...] = ()
    planned_version: int = -1
    seal_number: int | None = None
    asked: str = ""
    lasts: tuple[str, ...] = ()

    @classmethod
    def read(cls, value: dict[str, Any] | None) -> _Pin:
        """People can edit the store: what is not as we write it is no pin."""
        given = value or {}
        planned, asked = given.get("planned_version"), given.get("asked")
        return cls(
            _whole(given.get("ending_version")),
            _texts(given.get("fingerprints")),
            planned if isinstance(planned, int) else -1,
            _whole(given.get("seal_number")),
            asked if isinstance(asked, str) else "",
            _texts(given.get("lasts")),
        )

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "fingerprints": list(self.fingerprints), "lasts": list(self.lasts)}

    def following(self, plan: Plan, name: str, planned: int, number: int, asked: str = "") -> _Pin:
        """Return the pin with one more plan.

        :param asked: what the plan is for; plans for other work are not taken for it
        """
        others = tuple(other for other in self.fingerprints if other != name)
        lasts = self.lasts if asked == self.asked else ()
        return _Pin(
            plan.ending_version,
            (*others, name)[-_KEPT_FINGERPRINTS:],
            min(planned, self.planned_version) if others else planned,
            number if plan.proof is None else None,
            asked,
            (*lasts, f"{name}:{plan.steps[-1].seal_number}")[-_KEPT_FINGERPRINTS:] if asked else (),
        )


def _texts(value: object) -> tuple[str, ...]:
    return tuple(text for text in value if isinstance(text, str)) if isinstance(value, list) else ()


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


@dataclass(frozen=True)
class ApplyResult:
    """What became of an apply, as the target's log proves it.

    :param applied: whether this piece of work moved anything
    :param versions: the range it moved; None where there was nothing to do
    :param watermark: what the target proves now; None only where no target exists yet
    :param counts: rows inserted, updated, deleted, and what else the seal counts
    :param timestamp: when this was found out, ISO 8601 in UTC
    :param pin_key: what :func:`published` forgets; not part of what is published
    :param mirror: the newest seal in full (:meth:`delta_cdc.reconcile.Mirror.to_dict`), for a store outside
        the target; not part of what is published either
    :param dry_run: what a dry run found out: ``steps``, one text each, the ``statements`` that would run, and
        ``counts``; None where it was none
    """

    applied: bool
    versions: VersionRange | None
    watermark: Watermark | None
    counts: dict[str, int]
    target_version: int | None
    pipeline: str
    seal: int | None
    source_table: str
    target_table: str | None
    target_table_id: str | None
    timestamp: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    pin_key: str = field(default="", kw_only=True, repr=False, compare=False)
    mirror: dict[str, Any] | None = field(default=None, kw_only=True, repr=False, compare=False)
    dry_run: dict[str, Any] | None = field(default=None, kw_only=True, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        published = {
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
        return published if self.dry_run is None else {**published, "dry_run": self.dry_run}


@dataclass(frozen=True)
class ReadResult(ApplyResult):
    """What became of a read: as :class:`ApplyResult` (``applied``: a batch was written by this call), plus
    the open batch.

    ``counts`` holds ``rows`` always, and the change types where they are known: by the job that completed the
    batch, and in the seal of a batch that was written as files, too. ``target_table`` is None for a custom
    sink, and ``watermark`` then what was committed last.

    :param staging: location of the staging table
    :param staging_version: its version that holds the batch; None where there is none
    :param rows: change rows in the batch
    :param output: the folder that holds the batch as files; None where none were asked for
    """

    staging: str = ""
    staging_version: int | None = None
    rows: int = 0
    output: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the plain JSON form that is published."""
        batch = {
            "staging": self.staging,
            "staging_version": self.staging_version,
            "rows": self.rows,
            "output": self.output,
        }
        return {**super().to_dict(), **batch}


@dataclass(frozen=True)
class CommitResult:
    """What became of a commit, as the staging table's log proves it.

    :param applied: whether this run committed, by this try or an earlier one; false where others did before
    :param versions: the batch that was committed; None where ``applied`` is false
    :param watermark: what staging proves now; None where nothing was ever committed
    :param staging_version: version of the staging table; None where there is none
    :param timestamp: when this was found out, ISO 8601 in UTC
    """

    applied: bool
    versions: VersionRange | None
    watermark: Watermark | None
    pipeline: str
    seal: int | None
    source_table: str | None
    staging: str
    staging_version: int | None
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
            "staging": self.staging,
            "staging_version": self.staging_version,
            "timestamp": self.timestamp,
        }


def run_apply(
    request: ApplyRequest,
    *,
    execute: Callable[[ApplySpec], JobResult],
    pins: Pins | None = None,
    mirror: Callable[[], Any] | None = None,
    say: Say = logger.info,
    max_attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> ApplyResult:
    """Apply what the source has beyond the target's watermark, and prove it from the target's log.

    With nothing to do, ``execute`` is not called. Where the process dies, the next call finds out from the
    log whether the commit was made. Where another writer was faster, the proof is read again after a pause,
    and planned anew.

    A dry run (``request.dry_run``) plans and executes once, writes nothing, and keeps no pin.

    :param execute: runs the spec in Spark
    :param pins: keeps the plan over retries of the same work, until the caller calls :func:`published`; None
        keeps nothing beyond this call
    :param mirror: returns the copy of the seal that was kept outside (``ApplyResult.mirror``); asked only
        where the sealed commit was cleaned from the target's log
    :param say: takes one line per step
    :param max_attempts: how often to plan at most, where races are lost
    :param sleep: waits for so many seconds before planning again
    :raises ConcurrentModification: every attempt lost
    :raises OutcomeUnknown: the job said that it committed, and the log doesn't show it
    :raises DeltaCdcError: the named error that the job or a check reported
    """
    # What would be done decides nothing about what is.
    kept = NoPins() if request.dry_run or pins is None else pins
    return _Apply(request, execute, kept, mirror, say, max_attempts, sleep).run()


def run_read(
    request: ReadRequest,
    *,
    execute: Callable[[ReadSpec], JobResult],
    pins: Pins | None = None,
    mirror: Callable[[], Any] | None = None,
    say: Say = logger.info,
    max_attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> ReadResult:
    """Write the changes beyond the watermark into staging, as the one open batch.

    An open batch that still continues the watermark is returned as it is, and one whose beginning an earlier
    try staged is gone on with. Parameters and errors are those of
    :func:`run_apply`; what is proved is the staging table's seal.
    """
    return _Read(request, execute, pins or NoPins(), mirror, say, max_attempts, sleep).run()


def run_commit(
    request: CommitRequest,
    *,
    execute: Callable[[CommitSpec], JobResult],
    say: Say = logger.info,
    max_attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
) -> CommitResult:
    """Commit the open batch of a staging table, and prove it from the table's log.

    Where it was committed before, ``execute`` is not called; if an earlier try of the same run did it
    (``request.run_id``), the result is that try's.

    :param execute: runs the spec in Spark
    :param say: takes one line per step
    :param max_attempts: how often to plan at most, where races are lost
    :param sleep: waits for so many seconds before planning again
    :raises NoOpenBatch: nothing was read yet, or the batch is not complete
    :raises OtherBatchOpen: the open batch is not the one that is to be committed
    :raises ConcurrentModification: every attempt lost
    """
    plan = plan_commit(request)
    if plan.spec is None:
        return _committed_before(request, plan, say)
    # Whatever is read meanwhile: this batch is the one that has arrived.
    versions = VersionRange(plan.spec.step.starting_version, plan.spec.step.ending_version)
    request = replace(request, ending_version=versions.ending_version)
    for attempt in range(1, max_attempts + 1):
        assert plan.spec is not None
        say(f"Committing versions {versions} in {canonical_uri(request.staging)} (attempt {attempt}).")
        result, failure = _tried(execute, plan.spec)
        plan = plan_commit(request)
        if plan.spec is None:
            say(f"Committed versions {versions}: {_standing(request, plan)}.")
            return _committed(request, plan, versions)
        if failure is not None:
            raise failure
        assert result is not None
        if result.status == "failed":
            raise _named(result, request.pipeline)
        said = f"Not committed ({result.status}: {result.message or 'no reason'})"
        _pause(said, attempt, max_attempts, say, sleep)
    raise ConcurrentModification(
        f"Another writer won the race for {canonical_uri(request.staging)} {max_attempts} times in a row "
        f"(pipeline {request.pipeline}).",
        remedy="run again; let one run per pipeline be active at a time.",
    )


def _pause(said: str, attempt: int, max_attempts: int, say: Say, sleep: Callable[[float], None]) -> None:
    """Wait before planning again: writers that lost to each other would meet at the same moment once more."""
    if attempt >= max_attempts:
        say(f"{said}; no attempt is left.")
        return
    longest = min(_LONGEST_WAIT, _FIRST_WAIT * 2 ** (attempt - 1))
    seconds = random.uniform(longest / 2, longest)
    say(f"{said}; planning again in {seconds:.1f} s (attempt {attempt + 1} of {max_attempts}).")
    sleep(seconds)


def _tried(
    execute: Callable[[CommitSpec], JobResult], spec: CommitSpec
) -> tuple[JobResult | None, Exception | None]:
    try:
        return execute(spec), None
    except Exception as error:  # noqa: BLE001 - whatever ended the job, the log decides
        return None, error


def _committed_before(request: CommitRequest, plan: CommitPlan, say: Say) -> CommitResult:
    versions = _own_batch(request)
    if versions is None or request.ending_version not in (None, versions.ending_version):
        say(f"Nothing to commit: {_standing(request, plan)} already.")
        return _committed(request, plan, None)
    say(f"Already committed by an earlier try of this run: versions {versions}; {_standing(request, plan)}.")
    return _committed(request, plan, versions)


def _own_batch(request: CommitRequest) -> VersionRange | None:
    log = DeltaLog(request.staging, request.storage_options)
    seal = run_sync(newest_commit(log, request.pipeline))
    if seal is None or not request.run_id or seal.step.run_id != request.run_id:
        return None
    return VersionRange(seal.step.starting_version, seal.step.ending_version)


def committed_by_run(request: CommitRequest) -> CommitResult | None:
    """Return the newest batch that was committed, if ``request.run_id`` did it: a try before, that died.

    :return: None where the newest is another run's, or there is none
    """
    versions = _own_batch(request)
    return None if versions is None else replace(committed_so_far(request), applied=True, versions=versions)


def committed_so_far(request: CommitRequest) -> CommitResult:
    """Return what was committed before, and commit nothing, whatever batch is open.

    :raises InvalidConfiguration: staging is filled for a target, in which the watermark stands
    """
    found = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
    seal = found.proof.seal if found is not None else None
    version = found.proof.target.version if found is not None else None
    return _result_of(request, seal, version, None)


def _standing(request: CommitRequest, plan: CommitPlan) -> str:
    assert plan.seal is not None
    return f"the watermark in {canonical_uri(request.staging)} is {plan.seal.watermark}"


def _committed(request: CommitRequest, plan: CommitPlan, versions: VersionRange | None) -> CommitResult:
    return _result_of(request, plan.seal, plan.staging_version, versions)


def _result_of(
    request: CommitRequest, seal: Seal | None, version: int | None, versions: VersionRange | None
) -> CommitResult:
    return CommitResult(
        applied=versions is not None,
        versions=versions,
        watermark=seal.mark if seal is not None else None,
        pipeline=request.pipeline,
        seal=seal.number if seal is not None else None,
        source_table=canonical_uri(seal.source_uri) if seal is not None else None,
        staging=canonical_uri(request.staging),
        staging_version=version,
    )


def published(result: ApplyResult, pins: Pins) -> None:
    """Say that a result has reached everybody who is to know it; the last thing a caller does.

    Before this, the same work done again gives the same result, ``applied`` included; after it, there is
    nothing to do.
    """
    pins.delete(result.pin_key)


def committed(request: ApplyRequest | ReadRequest) -> Watermark | None:
    """Return the watermark that the target proves now; None where there is none. For display."""
    if request.target is None:
        assert isinstance(request, ReadRequest)
        found = run_sync(sink(DeltaLog(request.staging, request.storage_options), request.pipeline))
        return found.proof.seal.mark if found is not None and found.proof.seal is not None else None
    proof = reconcile(DeltaLog(request.target, request.storage_options), request.pipeline)
    return proof.seal.mark if proof is not None and proof.seal is not None else None


# -- what apply and read share ------------------------------------------------------------------
@dataclass(frozen=True)
class _Own:
    """The sealed commits of one attempt that are in effect, oldest first.

    :param last: the fingerprint of the plan's last step
    """

    found: tuple[tuple[Seal, Commit], ...]
    last: str

    @property
    def complete(self) -> bool:
        return any(seal.step.fingerprint == self.last for seal, _ in self.found)


class _Run(ABC, Generic[_Request, _Spec, _Result]):
    """The eight steps, for both kinds of job."""

    def __init__(
        self,
        request: _Request,
        execute: Callable[[_Spec], JobResult],
        pins: Pins,
        mirror: Callable[[], Any] | None,
        say: Say,
        max_attempts: int,
        sleep: Callable[[float], None],
    ) -> None:
        self.request: _Request = request
        self.execute: Callable[[_Spec], JobResult] = execute
        self.pins = pins
        self.mirror = mirror
        self.say = say
        self.max_attempts = max_attempts
        self.sleep = sleep

    # Each kind says for itself:
    @abstractmethod
    def plan(self) -> Plan:
        """Decide what is to be done."""

    @abstractmethod
    def written_table(self) -> str:
        """Return the table that carries the seal."""

    @abstractmethod
    def planned_version(self, spec: _Spec) -> int:
        """Return the version of that table that was planned on; -1 for none."""

    @abstractmethod
    def seal_number(self, spec: _Spec) -> int:
        """Return the number of the first step's seal."""

    @abstractmethod
    def publish_nothing(self, plan: Plan) -> _Result:
        """Return the result where no job is needed."""

    @abstractmethod
    def publish(self, plan: Plan, own: _Own, result: JobResult | None) -> _Result:
        """Return the result of a commit that was confirmed."""

    def asked(self) -> str:
        """Return what is asked for beside the changes after the watermark; "" is nothing."""
        return ""

    def without_job(self, plan: Plan) -> _Result | None:
        """Return the result of a plan with steps for which no job is needed all the same."""
        return None

    @abstractmethod
    def covered(self, plan: Plan) -> bool:
        """Tell whether a later seal proves this plan's range."""

    def run(self) -> _Result:
        for attempt in range(1, self.max_attempts + 1):
            plan = self.plan()
            for note in plan.notes:
                self.say(note)
            if plan.spec is None:
                done = self.publish_nothing(plan)
                if not done.applied:
                    self.pins.delete(plan.pin_key)
                return done
            known = self.without_job(plan)
            if known is not None:
                return known
            published = self._attempt(plan, plan.spec, attempt)  # type: ignore[arg-type]
            if published is not None:
                return published
        raise ConcurrentModification(
            f"Another writer won the race for {self.written_table()} {self.max_attempts} times in a row "
            f"(pipeline {self.request.pipeline}).",
            remedy="run again; let one run per pipeline be active at a time.",
        )

    def _attempt(self, plan: Plan, spec: _Spec, attempt: int) -> _Result | None:
        """Run one plan; None where another writer was faster."""
        pin = self.pinned(plan.pin_key).following(
            plan, fingerprint(spec), self.planned_version(spec), self.seal_number(spec), self.asked()
        )
        self.pins.set(plan.pin_key, pin.to_dict())
        self.say(f"Planned: {self.described(plan)} (attempt {attempt}).")
        for step in plan.steps:
            for _, text in segment_lines("", step.segments):
                self.say(f"Reads {text}.")
        try:
            result = self.execute(spec)
        except Exception as error:  # noqa: BLE001 - whatever ended the job, the log decides
            return self._after_crash(plan, spec, error)
        own = self._own(plan, spec)
        if result.status == "planned":
            return self.publish(plan, own, result)
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
        said = f"Not committed to {self.written_table()} ({result.status}: {result.message or 'no reason'})"
        _pause(said, attempt, self.max_attempts, self.say, self.sleep)
        return None

    def _after_crash(self, plan: Plan, spec: _Spec, error: Exception) -> _Result:
        """The job went away; the commit may be there all the same."""
        try:
            own = self._own(plan, spec)
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
        return _named(result, self.request.pipeline)

    def _own(self, plan: Plan, spec: _Spec) -> _Own:
        found = self._commits(fingerprint(spec), after=self.planned_version(spec))
        return _Own(found, step_fingerprint(spec, plan.steps[-1].seal_number))

    def _commits(self, *plans: str, after: int) -> tuple[tuple[Seal, Commit], ...]:
        log = DeltaLog(self.written_table(), self.request.storage_options)
        return run_sync(_find_own(log, self.request.pipeline, plans, after))

    def described(self, plan: Plan) -> str:
        if plan.versions is None:
            return f"a seal for version {plan.ending_version} of {plan.source.uri} in {self.written_table()}"
        if _stands_alone(plan):
            steps = "; ".join(f"{step.kind} of {told(step)}" for step in plan.steps)
            return f"{steps}, {plan.source.uri} into {self.written_table()}"
        commits = len([step for step in plan.steps if step.kind in ("apply", "answer", "complete")])
        milestones = f" in {commits} commits" if commits > 1 else ""
        return f"versions {plan.versions} of {plan.source.uri} into {self.written_table()}{milestones}"

    def pinned(self, key: str) -> _Pin:
        return _Pin.read(self.pins.get(key))

    def pinned_end(self, key: str) -> int | None:
        """Return where an earlier try of the same work ended; that of other work bounds nothing."""
        pin = self.pinned(key)
        return pin.ending_version if pin.asked == self.asked() else None

    def memory(self) -> Memory:
        return Memory(
            end=self.pinned_end,
            number=lambda key: self.pinned(key).seal_number,
            mirror=self.mirror,
        )


async def _find_own(
    log: DeltaLog, pipeline: str, plans: tuple[str, ...], after: int
) -> tuple[tuple[Seal, Commit], ...]:
    try:
        return await own_commits(log, pipeline, plans, after)
    except (TableNotFound, NotADeltaTable):
        if await log.left_over():
            return ()
        raise


def _named(result: JobResult, pipeline: str) -> DeltaCdcError:
    if result.error is not None:
        return DeltaCdcError.from_dict(result.error)
    return JobFailed(
        f"The job of pipeline {pipeline} failed: {result.message or 'no reason given'}",
        remedy="look into Spark's log; the next try finds out what was committed.",
    )


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
        return plan_apply(self.request, self.memory())

    def written_table(self) -> str:
        return canonical_uri(self.request.target)

    def planned_version(self, spec: ApplySpec) -> int:
        planned = spec.steps[0].planned_on
        return planned.version if planned is not None else -1

    def seal_number(self, spec: ApplySpec) -> int:
        return spec.steps[0].seal_number

    def asked(self) -> str:
        request = self.request
        if request.mode == "incremental":
            return ""
        names = ("mode", "repair_keys", "repair_quarantined", *_BOUNDS)
        return json.dumps([getattr(request, name) for name in names])

    def covered(self, plan: Plan) -> bool:
        """Another seal may already stand on ours: then our range lies inside what it proves."""
        return not _stands_alone(plan) and _proves(self._proof(), plan)

    def without_job(self, plan: Plan) -> ApplyResult | None:
        if self.request.dry_run and plan.versions is None:
            # A seal without rows: there is nothing to count.
            return self._publish_dry(plan, JobResult("planned"))
        pin = self.pinned(plan.pin_key)
        if not self.asked() or pin.asked != self.asked() or plan.proof is None:
            return None
        earlier = self._ours(plan)
        if not any(seal.step.fingerprint in pin.lasts for seal, _ in earlier):
            return None
        return self._publish_earlier(plan, plan.proof, earlier)

    def publish_nothing(self, plan: Plan) -> ApplyResult:
        proof = plan.proof
        seal = proof.seal if proof is not None else None
        earlier = self._ours(plan)
        if proof is not None and earlier:
            return self._publish_earlier(plan, proof, earlier)
        known = f"watermark {seal.watermark}" if seal is not None else "no watermark yet"
        self.say(
            f"Nothing to do: {self.written_table()} has {known}, and {plan.source.uri} is at version "
            f"{plan.source.version}."
        )
        version = proof.target.version if proof is not None else None
        done = self._result(plan, proof, None, {}, version, applied=False)
        return replace(done, dry_run=_found(plan, None)) if self.request.dry_run else done

    def _publish_earlier(
        self, plan: Plan, proof: Proof, earlier: tuple[tuple[Seal, Commit], ...]
    ) -> ApplyResult:
        last, commit = earlier[-1]
        self.say(
            f"Already applied by an earlier try: version {commit.version} of {self.written_table()} "
            f"holds versions {_range(earlier) or last.step.ending_version} of {plan.source.uri}."
        )
        return self._result(plan, proof, _range(earlier), _summed(earlier), commit.version, applied=True)

    def _ours(self, plan: Plan) -> tuple[tuple[Seal, Commit], ...]:
        """Return the commits with rows that this piece of work made and did not publish yet, oldest first.

        They may be of several tries and milestones, and runs of others may have sealed in between and on top
        of them, so the newest seal alone does not tell.
        """
        pin = self.pinned(plan.pin_key)
        if not pin.fingerprints:
            return ()
        found = self._commits(*pin.fingerprints, after=pin.planned_version)
        return tuple(pair for pair in found if pair[0].step.kind in _MOVING)

    def publish(self, plan: Plan, own: _Own, result: JobResult | None) -> ApplyResult:
        if result is not None and result.status == "planned":
            return self._publish_dry(plan, result)
        proof = self._proof()
        ours = self._ours(plan)
        in_effect = _proves(proof, plan) and (bool(ours) or not _stands_alone(plan))
        if proof is None or proof.seal is None or not in_effect:
            raise OutcomeUnknown(
                f"The commit of pipeline {self.request.pipeline} is in {self.written_table()}'s log, but "
                "its seal is not in effect: the target was restored or replaced right after it.",
                remedy="run again; the log will tell.",
            )
        version = own.found[-1][1].version if own.found else proof.target.version
        if plan.versions is None and not ours:
            self.say(
                f"Sealed watermark {proof.seal.watermark} in version {version} of {self.written_table()}, "
                f"seal {proof.seal.number}; no rows were moved."
            )
            return self._result(plan, proof, None, {}, version, applied=False)
        counts = _summed(ours) if ours else dict(result.counts if result else {})
        self.say(
            f"Applied {self.described(plan)}: {_counted(counts)}; version {version}, watermark "
            f"{proof.seal.watermark}, seal {proof.seal.number}."
        )
        versions = _range(ours) if ours else plan.versions
        return self._result(plan, proof, versions, counts, version, applied=True)

    def _publish_dry(self, plan: Plan, result: JobResult) -> ApplyResult:
        found = _found(plan, result)
        self.say(f"A dry run: nothing was written to {self.written_table()}.")
        for step in found["steps"]:
            self.say(f"Would do: {step}.")
        for statement in found["statements"]:
            self.say(f"Would run:\n{statement}")
        self.say(f"Would give: {_counted(result.counts)}.")
        version = plan.proof.target.version if plan.proof is not None else None
        done = self._result(plan, plan.proof, plan.versions, dict(result.counts), version, applied=False)
        return replace(done, dry_run=found)

    def _proof(self) -> Proof | None:
        log = DeltaLog(self.request.target, self.request.storage_options)
        return reconcile(log, self.request.pipeline, mirror=self.mirror)

    def _result(
        self,
        plan: Plan,
        proof: Proof | None,
        versions: VersionRange | None,
        counts: dict[str, int],
        version: int | None,
        *,
        applied: bool,
    ) -> ApplyResult:
        seal = proof.seal if proof is not None else None
        mirror = None
        if proof is not None and seal is not None and proof.commit is not None:
            mirror = Mirror(seal, proof.target.table_id, proof.commit.version).to_dict()
        return ApplyResult(
            applied=applied,
            versions=versions,
            watermark=seal.mark if seal is not None else None,
            counts=counts,
            target_version=version,
            pipeline=self.request.pipeline,
            seal=seal.number if seal is not None else None,
            source_table=canonical_uri(self.request.source),
            target_table=self.written_table(),
            target_table_id=proof.target.table_id if proof is not None else None,
            pin_key=plan.pin_key,
            mirror=mirror,
        )


# -- read ---------------------------------------------------------------------------------------
class _Read(_Run[ReadRequest, ReadSpec, ReadResult]):
    def plan(self) -> Plan:
        return plan_read(self.request, self.memory())

    def written_table(self) -> str:
        return canonical_uri(self.request.staging)

    def planned_version(self, spec: ReadSpec) -> int:
        planned = spec.steps[0].planned_on
        return planned.version if planned is not None else -1

    def seal_number(self, spec: ReadSpec) -> int:
        return spec.steps[0].seal_number

    def covered(self, plan: Plan) -> bool:
        # Only our own commit is a proof here: a batch of somebody else is found by planning again.
        return False

    def publish_nothing(self, plan: Plan) -> ReadResult:
        if plan.batch is None:
            self.say(
                f"Nothing to read: {plan.source.uri} is at version {plan.source.version}, and "
                f"{'the target has' if self.request.target is not None else 'committed is'} it all."
            )
            return self._result(plan, applied=False, batch=None)
        made_by = plan.batch[0].step.fingerprint.rpartition(":")[0]
        ours = made_by in self.pinned(plan.pin_key).fingerprints
        return self._result(plan, applied=ours, batch=plan.batch)

    def publish(self, plan: Plan, own: _Own, result: JobResult | None) -> ReadResult:
        if plan.versions is None:
            sealed, commit = own.found[-1]
            self.say(
                f"Sealed watermark {sealed.watermark} in version {commit.version} of {self.written_table()}; "
                "nothing was read."
            )
            return replace(self._result(plan, applied=False, batch=None), watermark=sealed.mark)
        done = self._result(
            plan, applied=True, batch=own.found[-1], counts=result.counts if result is not None else None
        )
        self.say(
            f"Staged {self.described(plan)}: {_counted(done.counts)} in version {done.staging_version}"
            f"{f', and in {done.output}' if done.output is not None else ''}."
        )
        return done

    def _result(
        self,
        plan: Plan,
        *,
        applied: bool,
        batch: tuple[Seal, Commit] | None,
        counts: dict[str, int] | None = None,
    ) -> ReadResult:
        proof = plan.proof
        seal = proof.seal if proof is not None else None
        known = _staged_counts(*batch) if batch is not None else {}
        target = self.request.target
        return ReadResult(
            applied=applied,
            versions=plan.versions,
            watermark=seal.mark if seal is not None else None,
            counts=counts or known,
            target_version=proof.target.version if proof is not None and target is not None else None,
            pipeline=self.request.pipeline,
            seal=batch[0].number if batch else None,
            source_table=canonical_uri(self.request.source),
            target_table=canonical_uri(target) if target is not None else None,
            target_table_id=proof.target.table_id if proof is not None and target is not None else None,
            staging=self.written_table(),
            staging_version=batch[1].version if batch else None,
            rows=known.get("rows", 0),
            output=_output_of(batch[0]) if batch is not None else None,
            pin_key=plan.pin_key,
        )


def _output_of(seal: Seal) -> str | None:
    found = seal.configuration.get("output")
    return canonical_uri(found["path"]) if found else None


def _staged_counts(seal: Seal, commit: Commit) -> dict[str, int]:
    """Return what the log tells of a batch's rows: those before its last commit, and those of that one.

    The change types of the last commit's own rows were not known when it was sealed.
    """
    added = int(commit.info.operation_metrics.get("numOutputRows", 0))
    before = seal.step.counts
    return dict(before) if not added and before else {"rows": before.get("rows", 0) + added}


def _proves(proof: Proof | None, plan: Plan) -> bool:
    """Tell whether the seal in effect covers what was planned."""
    assert isinstance(plan.spec, ApplySpec)
    if proof is None or proof.seal is None or proof.seal.source_table_id != plan.spec.source_table_id:
        return False
    step = plan.spec.steps[-1]
    return _covers(proof.seal, step.starting_version, step.at)


def _stands_alone(plan: Plan) -> bool:
    return any(step.kind in _BY_THEMSELVES for step in plan.steps)


def _found(plan: Plan, result: JobResult | None) -> dict[str, Any]:
    """Return what a dry run found out, as it is published."""
    return {
        "steps": [f"{step.kind}: {told(step)}" for step in plan.steps],
        "statements": list(result.statements) if result is not None else [],
        "counts": dict(result.counts) if result is not None else {},
    }


def _covers(seal: Seal, starting: int, ending: int) -> bool:
    # An empty load starts at -1, before everything.
    return seal.applied_from <= max(starting, 0) and ending <= seal.watermark


def _range(commits: tuple[tuple[Seal, Commit], ...]) -> VersionRange | None:
    """Return the versions that commits applied, first to last; those of a load only where it stands alone."""
    steps = [seal.step for seal, _ in commits]
    applied = [step for step in steps if step.kind in ("apply", "repair")] or steps[-1:]
    starting = applied[0].starting_version
    return VersionRange(starting, applied[-1].ending_version) if starting >= 0 else None
