"""Many flows and one application: each table plans, confirms, fails and is planned again by itself.

Every piece runs its ordinary flows in a thread of its own. Where a flow wants its job run, it waits until all
others want so, too, or have come to their end; then the jobs that are wanted run as parts of one application.
So nothing is planned twice, and a table that lost a race meets others of its kind in the next round.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.concurrency import AT_ONCE
from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    JobFailed,
    NotADeltaTable,
    TableNotFound,
)
from delta_cdc.core.reasons import unnamed
from delta_cdc.core.spec import ApplySpec, BundleSpec, IngestSpec, JobResult
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.topics import Looks
from delta_cdc.run.apply import run_apply
from delta_cdc.run.ingest import run_ingest
from delta_cdc.run.loop import new_run_id
from delta_cdc.run.saved_plans import NoPins, Pins
from delta_cdc.run.table_arguments import requests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from delta_cdc.core.spec import ApplyRequest
    from delta_cdc.planning.ingest_request import IngestRequest
    from delta_cdc.run.loop import Say
    from delta_cdc.run.outcomes import ApplyResult, IngestResult

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Piece:
    """One table's share: an ingest, an apply, or an ingest and the apply from its log.

    :param mirror: the copy of the target's seal that is kept outside, for the apply
    :param pins: keeps this piece's plans; None takes those of the bundle
    :param since: version of the target before this piece of work began, -1 without one: what its run
        committed after it is its own (``ours_since`` of :func:`delta_cdc.run.apply.run_apply`). None finds it
        out before an ingest
    """

    ingest: IngestRequest | None = None
    apply: ApplyRequest | None = None
    mirror: Callable[[], Any] | None = None
    pins: Pins | None = None
    since: int | None = None

    @property
    def pipeline(self) -> str:
        """Return the pipeline's name."""
        request = self.ingest or self.apply
        if request is None:
            raise InvalidConfiguration(
                "A piece of a bundle has neither an ingest nor an apply.", remedy="give one, or both."
            )
        return request.pipeline


@dataclass(frozen=True, kw_only=True)
class PieceResult:
    """What became of a piece.

    :param ingested: None where it has no ingest, or that failed
    :param applied: None where it has no apply, or it came to none
    :param error: why it failed
    :param unanswered: it failed because the application went away before it told what became of its job
    """

    pipeline: str
    ingested: IngestResult | None = None
    applied: ApplyResult | None = None
    error: DeltaCdcError | None = None
    unanswered: bool = False


def run_bundle(
    pieces: Sequence[Piece],
    *,
    execute: Callable[[BundleSpec], JobResult],
    run_id: str = "",
    pins: Pins | None = None,
    say: Say = logger.info,
    max_attempts: int = 5,
    sleep: Callable[[float], None] = time.sleep,
    parallel: int = 1,
) -> list[PieceResult]:
    """Run many pieces, with all that has work in one application.

    A piece that fails stops no other. Where nothing has work, ``execute`` is not called. It is called again
    only for pieces that lost a race, or whose plan was overtaken.

    :param execute: runs a bundle in Spark; called in the caller's own thread
    :param run_id: of the application; who commits is in each request
    :param pins: keeps plans over retries (see :func:`delta_cdc.run.apply.run_apply`), until the caller calls
        :func:`delta_cdc.run.watermarks.published` for each result
    :param parallel: how many jobs of an application run at the same moment
    :return: one result per piece, in order
    """
    kept, one = pins or NoPins(), threading.RLock()
    lines = _Lines(say, named=len(pieces) > 1)
    rounds, looks = _Rounds(len(pieces)), Looks()
    results: list[PieceResult | None] = [None] * len(pieces)
    left: set[int] = set()

    def work(at: int, piece: Piece) -> None:
        member = _Member(rounds, at)
        try:
            with rounds.turn():
                results[at] = _run_piece(
                    _identified(piece),
                    member,
                    _SharedPins(kept if piece.pins is None else piece.pins, one),
                    lines.of(piece.pipeline),
                    max_attempts,
                    sleep,
                    looks,
                )
        finally:
            rounds.leave()

    threads = [
        threading.Thread(target=work, args=(at, piece), name=f"delta-cdc-{piece.pipeline}", daemon=True)
        for at, piece in enumerate(pieces)
    ]
    try:
        for thread in threads:
            thread.start()
        while wanted := rounds.gathered():
            answers = _executed(execute, run_id, wanted, parallel)
            unanswered = {at for (at, _), one in zip(wanted, answers, strict=True) if _is_gone(one)}
            left = (left - {at for at, _ in wanted}) | unanswered
            rounds.answer(answers)
    except BaseException as error:
        rounds.abort(error)
        raise
    for thread in threads:
        thread.join()
    return [
        _ended(piece, result, unanswered=at in left)
        for at, (piece, result) in enumerate(zip(pieces, results, strict=True))
    ]


def since_key(request: ApplyRequest) -> str:
    """Return the key under which the target's version before the work is pinned."""
    return f"since:{request.pipeline}:{canonical_uri(request.target)}"


def version_before(request: ApplyRequest, pins: Pins) -> int:
    """Return the target's version before this piece of work, pinned over its tries; -1 for no table."""
    pinned = (pins.get(since_key(request)) or {}).get("version")
    if isinstance(pinned, int):
        return pinned
    try:
        version = run_sync(DeltaLog(request.target, request.storage_options).newest_version())
    except (TableNotFound, NotADeltaTable):
        version = -1
    pins.set(since_key(request), {"version": version})
    return version


# -- a piece ------------------------------------------------------------------------------------
def _run_piece(
    piece: Piece,
    member: _Member,
    pins: Pins,
    say: Say,
    max_attempts: int,
    sleep: Callable[[float], None],
    looks: Looks,
) -> PieceResult:
    pipeline = piece.pipeline
    ingested: IngestResult | None = None
    more: dict[str, Any] = {
        "pins": pins,
        "say": say,
        "max_attempts": max_attempts,
        "sleep": member.paused(sleep),
    }
    try:
        since = piece.since
        if piece.ingest is not None:
            run = _Prepared(member.execute, piece.apply, pins, since)
            then = piece.apply if _may_come_twice(piece.apply) else None
            ingested = run_ingest(piece.ingest, execute=run, then=then, looks=looks, **more)
            since = run.since
            if (failed := _failed_then(ingested)) is not None:
                return PieceResult(pipeline=pipeline, ingested=ingested, error=failed)
        if piece.apply is None:
            return PieceResult(pipeline=pipeline, ingested=ingested)
        if ingested is not None and ingested.log_version is None:
            # Nothing was ever ingested, so there is nothing to apply.
            return PieceResult(pipeline=pipeline, ingested=ingested)
        applied = run_apply(
            piece.apply, execute=member.execute, mirror=piece.mirror, ours_since=since, **more
        )
    except DeltaCdcError as error:
        return PieceResult(pipeline=pipeline, ingested=ingested, error=error)
    except Exception as error:
        logger.debug("Pipeline %s failed", pipeline, exc_info=True)
        return PieceResult(pipeline=pipeline, ingested=ingested, error=_without_name(pipeline, error))
    return PieceResult(pipeline=pipeline, ingested=ingested, applied=applied)


def _identified(piece: Piece) -> Piece:
    """Return a piece whose ingest and apply are of one run: the job of the first may do the second, too."""
    given = [request.run_id for request in (piece.ingest, piece.apply) if request is not None]
    run_id = next(filter(None, given), None) or new_run_id()
    ingest, apply = piece.ingest, piece.apply
    return replace(
        piece,
        ingest=replace(ingest, run_id=ingest.run_id or run_id) if ingest is not None else None,
        apply=replace(apply, run_id=apply.run_id or run_id) if apply is not None else None,
    )


def _may_come_twice(request: ApplyRequest | None) -> bool:
    """Tell whether an apply finds nothing left to do after itself: this side always applies, too."""
    return (
        request is not None
        and request.goes_on
        and request.max_versions is None
        and request.max_bytes is None
        and not request.dry_run
    )


@dataclass
class _Prepared:
    """Runs an ingest's job, once it is known where the target stood before."""

    execute: Callable[[IngestSpec], JobResult]
    apply: ApplyRequest | None
    pins: Pins
    since: int | None = None

    def __post_init__(self) -> None:
        if self.since is None and self.apply is not None and self.pins.get(since_key(self.apply)) is not None:
            self.since = version_before(self.apply, self.pins)

    def __call__(self, spec: IngestSpec) -> JobResult:
        if self.since is None and self.apply is not None:
            self.since = version_before(self.apply, self.pins)
        return self.execute(spec)


def _failed_then(ingested: IngestResult) -> DeltaCdcError | None:
    """Return the named error of an apply in the same application, if another one would meet it again.

    Of others the worker finds out: it may have credentials and a mirror that the driver had not.
    """
    then = ingested.then
    if then is None or then.status != "failed" or then.error is None:
        return None
    error = DeltaCdcError.from_dict(then.error)
    return error if error.of_rows else None


def _without_name(pipeline: str, error: Exception) -> DeltaCdcError:
    named = unnamed(
        error,
        f"Pipeline {pipeline} ended with",
        remedy="look into the log of the task and of Spark; the next try finds out what was committed.",
    )
    named.__cause__ = error
    return named


def _ended(piece: Piece, result: PieceResult | None, *, unanswered: bool) -> PieceResult:
    if result is None:
        return PieceResult(pipeline=piece.pipeline, error=_unfinished(piece))
    return replace(result, unanswered=True) if unanswered and result.error is not None else result


def _unfinished(piece: Piece) -> JobFailed:
    return JobFailed(
        f"Pipeline {piece.pipeline} came to no end.", remedy="look into the log of the task, and run again."
    )


# -- rounds -------------------------------------------------------------------------------------
def _executed(
    execute: Callable[[BundleSpec], JobResult], run_id: str, wanted: Sequence[tuple[int, Any]], parallel: int
) -> list[JobResult | Exception]:
    """Run the jobs that are wanted in one application, and return the result of each."""
    try:
        result = execute(BundleSpec(run_id, tuple(spec for _, spec in wanted), parallel))
    except Exception as error:  # noqa: BLE001 - each piece finds out from its own log what was done
        return [error] * len(wanted)
    parts = [*result.parts, *[JobResult("unreached")] * (len(wanted) - len(result.parts))]
    return [part if part.status != "unreached" else _gone(result) for part in parts]


def _is_gone(answer: JobResult | Exception) -> bool:
    """Tell whether nobody knows what became of a job; an error with another name kept it from starting."""
    return isinstance(answer, JobFailed) or not isinstance(answer, JobResult | DeltaCdcError)


def _gone(result: JobResult) -> DeltaCdcError:
    """Return what a part meets of which nothing was told: it may have committed all the same."""
    if result.status == "failed" and result.error is not None:
        return DeltaCdcError.from_dict(result.error)
    return JobFailed(
        "The application ended before it came to this table.",
        remedy="run again; a retry is safe, whatever it had written.",
    )


class _AbortedError(Exception):
    """The caller's thread has been stopped."""


@dataclass
class _Rounds:
    """Where pieces meet: who wants a job waits until nobody is on the way any more."""

    active: int
    _wanted: dict[int, Any] = field(default_factory=dict)
    _answers: dict[int, JobResult | Exception] = field(default_factory=dict)
    _order: list[int] = field(default_factory=list)
    _aborted: BaseException | None = None
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _turns: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(AT_ONCE))

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Take one of the places at which pieces plan."""
        with self._turns:
            yield

    @contextmanager
    def away(self) -> Iterator[None]:
        """Leave one's place to others meanwhile."""
        self._turns.release()
        try:
            yield
        finally:
            self._turns.acquire()

    def ask(self, at: int, spec: Any) -> JobResult:
        """Have a job run in the next round, and return its result."""
        with self._changed:
            self._wanted[at] = spec
            self._changed.notify_all()
            self._changed.wait_for(lambda: at in self._answers or self._aborted is not None)
            if self._aborted is not None:
                raise _AbortedError from self._aborted
            answer = self._answers.pop(at)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def leave(self) -> None:
        """Say that a piece has come to its end."""
        with self._changed:
            self.active -= 1
            self._changed.notify_all()

    def gathered(self) -> list[tuple[int, Any]]:
        """Wait for a round; return what is wanted, in order, or nothing where all have come to their end."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._wanted) == self.active)
            wanted = sorted(self._wanted.items())
            self._order = [at for at, _ in wanted]
            return wanted

    def answer(self, results: Sequence[JobResult | Exception]) -> None:
        """Give everybody who waits the result."""
        with self._changed:
            self._wanted.clear()
            self._answers.update(zip(self._order, results, strict=True))
            self._changed.notify_all()

    def abort(self, error: BaseException) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._aborted = error
            self._changed.notify_all()


@dataclass(frozen=True)
class _Member:
    """A piece's way to the rounds."""

    rounds: _Rounds
    at: int

    def execute(self, spec: ApplySpec | IngestSpec) -> JobResult:
        with self.rounds.away():
            return self.rounds.ask(self.at, spec)

    def paused(self, sleep: Callable[[float], None]) -> Callable[[float], None]:
        def wait(seconds: float) -> None:
            with self.rounds.away():
                sleep(seconds)

        return wait


@dataclass(frozen=True)
class _SharedPins:
    """Pins for many threads: the store behind them need not know of any."""

    pins: Pins
    _one: threading.RLock

    def get(self, key: str) -> dict[str, Any] | None:
        with self._one:
            return self.pins.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        with self._one:
            self.pins.set(key, value)

    def delete(self, key: str) -> None:
        with self._one:
            self.pins.delete(key)


@dataclass(frozen=True)
class _Lines:
    """Lines of many threads, each with its pipeline's name where there are several."""

    say: Say
    named: bool
    _one: threading.Lock = field(default_factory=threading.Lock)

    def of(self, pipeline: str) -> Say:
        def tell(line: str) -> None:
            with self._one:
                self.say(f"{pipeline}: {line}" if self.named else line)

        return tell


def piece(
    given: Mapping[str, Any],
    *,
    run_id: str = "",
    storage_options: dict[str, str] | None = None,
    kafka_options: dict[str, str] | None = None,
    scratch: bool = True,
    ingest: bool = True,
    mirror: Callable[[], Any] | None = None,
) -> Piece:
    """Return the share of one table in a batch; see :func:`requests` and :class:`Piece`."""
    batch, apply = requests(
        given,
        run_id=run_id,
        storage_options=storage_options,
        kafka_options=kafka_options,
        scratch=scratch,
        ingest=ingest,
    )
    return Piece(ingest=batch, apply=apply, mirror=mirror)
