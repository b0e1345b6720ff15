"""Runs the jobs of many coroutines in few Spark applications, in rounds.

A coroutine that needs a job waits until each other coroutine needs a job, too, or has ended. Then these jobs
are the parts of one application. If no coroutine needs a job, no application starts.
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from delta_cdc.core.concurrency import AT_ONCE, gathered
from delta_cdc.core.errors import DeltaCdcError, JobFailed
from delta_cdc.core.spec import BatchSpec, JobResult
from delta_cdc.run.caller import CallerThread, run_beside
from delta_cdc.run.loop import timed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Sequence
    from typing import Any

    from delta_cdc.core.spec import Part

T = TypeVar("T")
W = TypeVar("W")


def in_rounds(
    run: Callable[[W, Application], Coroutine[Any, Any, T]],
    works: Sequence[W],
    execute: Callable[[BatchSpec], JobResult],
    *,
    run_id: str = "",
    parallel: int = 1,
    before: Sequence[Collection[int]] = (),
) -> list[T]:
    """Run a coroutine for each work; those that need a job share an application.

    :param run: makes the coroutine of a work; an error that it raises stops all the others
    :param execute: runs a batch in Spark; called in the caller's own thread
    :param run_id: identifies the applications
    :param parallel: how many jobs of an application run at the same time
    :param before: for each work, the positions of those that must have ended before it begins, which wait for
        none themselves; (): no work waits
    :return: the results, in the order of the works
    """
    waits = {position: set(ends) for position, ends in enumerate(before) if ends}

    async def main(caller: CallerThread) -> list[T]:
        rounds = _Rounds(caller, execute, run_id, parallel, active=len(works) - len(waits))
        begins = {position: asyncio.Event() for position in waits}

        async def one(position: int, work: W) -> T:
            if position in begins:
                await begins[position].wait()
            async with rounds.planning:
                result = await run(work, Application(rounds, position))
            for other, ends in waits.items():
                if position in ends:
                    ends.discard(position)
                    if not ends:
                        rounds.join()
                        begins[other].set()
            # Not after an error, which ends the others, too: their jobs must not start.
            rounds.leave()
            return result

        # All start at once, because a round waits for all of them. The semaphore limits how many plan.
        coroutines = (one(position, work) for position, work in enumerate(works))
        return await gathered(coroutines, limit=max(len(works), 1))

    return run_beside(main)


class Application:
    """The applications of all rounds, as one coroutine sees them."""

    def __init__(self, rounds: _Rounds, position: int) -> None:
        self._rounds = rounds
        self._position = position

    async def run(self, spec: Part) -> JobResult:
        """Run a job in the next round; meanwhile other coroutines plan.

        :raises DeltaCdcError: the application did not start, or ended before it reported the job's outcome
        """
        async with self.planned_by_others():
            return await self._rounds.run(self._position, spec)

    @asynccontextmanager
    async def planned_by_others(self) -> AsyncIterator[None]:
        """Let other coroutines plan while this one waits in the ``with`` block."""
        self._rounds.planning.release()
        try:
            yield
        finally:
            await self._rounds.planning.acquire()

    @property
    def unanswered(self) -> bool:
        """Return whether the outcome of the coroutine's last job is unknown."""
        return self._position in self._rounds.unanswered


def _executed(
    execute: Callable[[BatchSpec], JobResult],
    run_id: str,
    specs: Sequence[Part],
    parallel: int,
) -> list[JobResult | Exception]:
    """Run jobs in one application, and return the result of each."""
    try:
        result = timed(execute, BatchSpec(run_id=run_id, parts=tuple(specs), parallel=parallel))
    except Exception as error:  # noqa: BLE001 - each flow reads from its own log whether its job committed
        return [error] * len(specs)
    parts = [*result.parts, *[JobResult("unreached")] * (len(specs) - len(result.parts))]
    return [part if part.status != "unreached" else _gone(result, part) for part in parts]


def _is_gone(answer: JobResult | Exception) -> bool:
    """Return whether the outcome of a job is unknown. Any other named error prevented the job from
    starting."""
    return isinstance(answer, JobFailed) or not isinstance(answer, JobResult | DeltaCdcError)


def _gone(result: JobResult, part: JobResult) -> DeltaCdcError:
    """Return the error of a part that has no reported outcome; the part may still have committed."""
    if result.status == "failed" and result.error is not None:
        error = DeltaCdcError.from_dict(result.error)
    else:
        error = JobFailed(
            "The application ended before it came to this table.",
            remedy="run again; a retry is safe, whatever it had written.",
        )
    if isinstance(error, JobFailed):
        error.reading = part.reading
    return error


class _Rounds:
    """Gathers the jobs of all flows into one application.

    :param active: number of flows that have not ended
    """

    def __init__(
        self,
        caller: CallerThread,
        execute: Callable[[BatchSpec], JobResult],
        run_id: str,
        parallel: int,
        active: int,
    ) -> None:
        self._caller = caller
        self._execute = execute
        self._run_id = run_id
        self._parallel = parallel
        self._active = active
        self._jobs: dict[int, tuple[Part, asyncio.Future[JobResult]]] = {}
        self._round: asyncio.Task[None] | None = None
        #: Limits how many flows plan at the same time.
        self.planning = asyncio.Semaphore(AT_ONCE)
        #: Positions of the flows whose last job has an unknown outcome.
        self.unanswered: set[int] = set()

    async def run(self, at: int, spec: Part) -> JobResult:
        """Run a job in the next round, and return its result."""
        future: asyncio.Future[JobResult] = asyncio.get_running_loop().create_future()
        self._jobs[at] = spec, future
        self._start()
        return await future

    def join(self) -> None:
        """Record that one more flow is to begin."""
        self._active += 1

    def leave(self) -> None:
        """Record that one flow has ended."""
        self._active -= 1
        self._start()

    def _start(self) -> None:
        """Start a round if every active flow waits for its job."""
        if self._jobs and len(self._jobs) == self._active:
            jobs, self._jobs = dict(sorted(self._jobs.items())), {}
            self._round = asyncio.ensure_future(self._run_round(jobs))

    async def _run_round(self, jobs: dict[int, tuple[Part, asyncio.Future[JobResult]]]) -> None:
        specs = [spec for spec, _ in jobs.values()]
        loop = asyncio.get_running_loop()
        answers = await loop.run_in_executor(
            self._caller, _executed, self._execute, self._run_id, specs, self._parallel
        )
        for (position, (_, future)), answer in zip(jobs.items(), answers, strict=True):
            (self.unanswered.add if _is_gone(answer) else self.unanswered.discard)(position)
            if future.done():
                # An error of another coroutine has ended this one.
                continue
            if isinstance(answer, Exception):
                future.set_exception(answer)
            else:
                future.set_result(answer)
