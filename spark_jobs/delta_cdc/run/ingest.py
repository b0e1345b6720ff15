"""The flow of an ingest."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, JobFailed, NoEventYet
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.requests import IngestRequest
from delta_cdc.core.rules import LIMITS_OF_A_BATCH as LIMITS
from delta_cdc.core.spec import IngestSpec, JobResult, SourceFile
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import canonical_uri, short_name
from delta_cdc.planning.ingest import IngestPlan, plan_ingest_async
from delta_cdc.planning.quarantine import held
from delta_cdc.planning.written import bytes_of
from delta_cdc.run.loop import NOTHING_TO_DO, UNANNOUNCED, Own, Run, Services
from delta_cdc.run.outbox import merged, unannounced
from delta_cdc.run.outcomes import Outcome, counted, total

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from delta_cdc.run.outbox import Sealed

#: After so many failures of a batch, its files are read alone; and how many of them one try sets aside.
_FAILURES, _MOST_SET_ASIDE = 2, 5
#: The factor by which a run extends the limits of a first batch without an event.
_HIGHER = 4
#: Errors of a task that needed more memory than there is, or that ended the process it ran in.
_ENDS_PROCESSES = (
    "OutOfMemoryError",
    "Python worker exited unexpectedly",
    "exited caused by one of the running tasks",
)
_MOST_RANGES = 10

#: Kinds of steps that append a batch.
_MOVING = ("ingest", "replay")


class Ingesting(Run[IngestRequest, IngestPlan, IngestSpec]):
    """One ingest: the next batch of a source, into its change log.

    A batch that an earlier try recorded but did not append comes first, alone. If the source has no new
    input, no job runs. The applies that follow (``request.after``) run in the same application; separate
    runs confirm their outcomes.
    """

    def __init__(
        self,
        request: IngestRequest,
        services: Services,
        execute: Callable[[Any], Awaitable[JobResult]],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        super().__init__(request, services, self._executed, sleep)
        self._execute_job = execute
        self._plan: IngestPlan | None = None
        #: The files that ended an application of this try; and the newest one, which no plan knows yet.
        #: People can edit the saved plans, so these do not name files.
        self._set_aside: list[SourceFile] = []
        self._killer: SourceFile | None = None
        self._left_behind = False

    async def run(self) -> Outcome:
        done = await self._run_with_events()
        # The request is the replay. If the first run appended an unfinished batch, the replay still has to
        # run.
        return await self._run_with_events() if self.request.replay and self._left_behind else done

    async def _run_with_events(self) -> Outcome:
        """Run; extend a first batch beyond its limits until it has an event.

        Only events show the columns of a new log. The next run would choose the same input again.
        """
        without: IngestSpec | None = None
        while True:
            try:
                return await self._run_without_killers()
            except NoEventYet:
                plan = self._plan
                assert plan is not None
                assert plan.spec is not None
                limits = {
                    name: limit for name in LIMITS if (limit := getattr(self.request, name)) is not None
                }
                # Something else may leave the rest for later, too: then the batch does not grow.
                if not limits or not plan.left or plan.spec.recorded or _same_input(plan.spec, without):
                    raise
                without = plan.spec
                higher = {name: limit * _HIGHER for name, limit in limits.items()}
                self.request = replace(self.request, **higher)
                self.say(
                    f"The first batch ({plan.description}) has no event, so the columns of "
                    f"{self.written_table()} are unknown. The run extends the batch: "
                    f"{', '.join(f'{name} {limit:,}' for name, limit in higher.items())}."
                )

    async def _run_without_killers(self) -> Outcome:
        while True:
            try:
                return await super().run()
            except JobFailed as error:
                killer = self._killer
                if killer is None:
                    raise
                if len(self._set_aside) == _MOST_SET_ASIDE:
                    raise _extended(
                        error,
                        f"So did {_MOST_SET_ASIDE} other files in this try, which is the limit.",
                        f"set max_files in limits to {_MOST_SET_ASIDE} until these files are ingested.",
                    ) from error
                self._set_aside.append(killer)
                self.say(
                    f"{killer.uri} goes to quarantine: {killer.unreadable}. The run starts again without it. "
                    "Correct the file, or give the driver more memory (driver_memory), and deliver the file "
                    "again."
                )

    async def plan(self) -> IngestPlan:
        plan = await plan_ingest_async(self.request, replace(self.memory(), looks=self.services.looks))
        self._left_behind = plan.spec is not None and plan.spec.recorded and plan.spec.step.kind != "replay"
        self._plan = plan
        if plan.spec is None:
            return plan

        saved_plan, spec = self.saved(plan.plan_key), plan.spec
        has_failed = saved_plan.failures >= _FAILURES and saved_plan.ending_version == plan.ending_version
        spec = replace(
            spec,
            after=tuple(replace(one, storage_options=None) for one in self.request.after),
            files=tuple(self._marked(file) for file in spec.files),
            reads_alone=has_failed and bool(spec.files),
        )
        if spec.reads_alone and not self._set_aside:
            self.say(
                f"Batch {spec.step.seal_number} failed twice. This run first reads each of its files alone, "
                "to find one that ends the application."
            )
        return replace(plan, spec=spec)

    def _marked(self, file: SourceFile) -> SourceFile:
        """Return a file of a plan; as unreadable if it ended an application, and is the same since then."""
        for killer in self._set_aside:
            if replace(killer, again=file.again, unreadable=file.unreadable) == file:
                return replace(file, unreadable=killer.unreadable)
        return file

    async def _executed(self, spec: IngestSpec) -> JobResult:
        """Run a job. If it fails in a way that its input may have caused, count that, and say more of it."""
        self._killer = None
        try:
            result = await self._execute_job(spec)
        except JobFailed as error:
            if error.reading is None:
                # The job had not begun, or the application was killed on purpose.
                raise
            # Its first sentence; the lines of Spark's log follow.
            ended = error.message.partition("\n")[0].partition(". ")[0]
            raise self._after_failure(spec, error, error.reading, ended) from None
        failure = _failure(result)
        if failure is None or result.reading is None:
            return result
        ended = next((text for text in _ENDS_PROCESSES if text in failure.message), "")
        failure = self._after_failure(spec, failure, result.reading, ended)
        return replace(result, error=failure.to_dict(), message=str(failure))

    def _after_failure(self, spec: IngestSpec, error: JobFailed, reading: str, ended: str) -> JobFailed:
        """Count a failure, and return its error, with what it shows of the input.

        :param reading: :attr:`delta_cdc.core.spec.JobResult.reading`
        :param ended: how the application, or the process that read, ended; "" if it did not
        """
        assert self._plan is not None
        key, number = self._plan.plan_key, spec.step.seal_number
        saved_plan = self.saved(key)
        saved_plan = replace(saved_plan, failures=min(saved_plan.failures + 1, _FAILURES))
        self.saved_plans.set(key, saved_plan.to_dict())
        file = next((file for file in spec.files if file.uri == reading), None)
        if file is not None:
            if ended:
                reason = "the job failed while it read this file alone, after two failures of its batch"
                self._killer = replace(file, unreadable=f"{reason}: {ended}")
            return _extended(error, f"It was reading {reading} alone.")
        if spec.reads_alone:
            return _extended(
                error,
                f"Each file of batch {number} could be read alone, but not all {len(spec.files)} together.",
                "ingest fewer files at once (max_files or max_bytes in limits), or give the driver more "
                "memory (driver_memory).",
            )
        if spec.offsets:
            ranges = [
                f"{p.topic} {p.partition}: {p.starting_offset}-{p.ending_offset - 1}" for p in spec.offsets
            ]
            more = ", …" if len(ranges) > _MOST_RANGES else ""
            return _extended(
                error,
                f"It was reading the offsets of batch {number}: {', '.join(ranges[:_MOST_RANGES])}{more}.",
                "if this happens again, set max_offsets in limits to a lower number, or give the driver more "
                "memory (driver_memory).",
            )
        # Without a store for the saved plans, no try knows of this one.
        if spec.files and self.saved(key).failures >= _FAILURES:
            return _extended(
                error,
                f"Batch {number} has failed twice. The next try reads each of its files alone, and puts one "
                "that ends the application into quarantine.",
            )
        return error

    def written_table(self) -> str:
        return canonical_uri(self.request.log)

    def described(self, plan: IngestPlan) -> str:
        return f"{plan.description} into {self.written_table()}"

    async def without_job(self, plan: IngestPlan) -> Outcome | None:
        """Return the batch of an earlier try as the result, even if input is new: one run appends one
        batch, unless the apply of that batch failed because of its rows."""
        if self.saved(plan.plan_key).more:
            return None
        earlier = await self._earlier(plan)
        return await self._publish_earlier(plan, earlier, self.services.done_by) if earlier else None

    async def publish_nothing(self, plan: IngestPlan) -> Outcome:
        if earlier := await self._earlier(plan):
            return await self._publish_earlier(plan, earlier, self.services.done_by)
        if due := await self._due(plan, ()):
            return await self._publish_earlier(plan, due, UNANNOUNCED)
        if self.request.replay:
            reason = f"the quarantine has no records of pipeline {self.request.pipeline}"
        else:
            unit = "partition" if self.request.is_kafka else "file"
            looked_at = f"{plural(plan.looked, unit)} of {plan.source}"
            reason = f"found nothing new for {self.written_table()} in {looked_at}"
        self.say(f"Nothing to ingest: {reason}.")
        return await self._result(plan, ())

    async def publish(self, plan: IngestPlan, own: Own, result: JobResult | None) -> Outcome:
        then = result.then if result is not None else ()
        seal, commit = own.found[-1]
        if seal.step.kind not in _MOVING:
            name = short_name(self.written_table())
            self.say(f"0 rows: renewed the seal of {name} in version {commit.version}, seal {seal.number}.")
            due = await self._due(plan, ())
            done = await self._result(plan, due or ((seal, commit),))
            return replace(done, applied=bool(due), seal=seal.number, log_version=commit.version, then=then)
        done = await self._result(plan, await self._due(plan, ((seal, commit),)))
        self.say(
            f"Ingested {counted(done.counts)} into {short_name(self.written_table())}: version "
            f"{commit.version}, seal {seal.number}."
        )
        if done.left:
            self.say(f"The next run takes the rest: {counted(done.left)}.")
        if self.request.replay:
            if done.counts.get("events"):
                self.say("The next run applies these events to the targets of the log.")
            held = quarantine_of(self.written_table())
            self.say(f"What is still no event stays in {held}, with its reason.")
        return replace(done, then=then)

    async def _earlier(self, plan: IngestPlan) -> Sealed:
        """Return the newest batch of the earlier tries of this work; an empty tuple without one."""
        saved_plan = self.saved(plan.plan_key)
        if not saved_plan.fingerprints:
            return ()
        kinds = ("replay",) if self.request.replay else _MOVING
        commits = await self._commits(*saved_plan.fingerprints, after=saved_plan.planned_version)
        return tuple(pair for pair in commits if pair[0].step.kind in kinds)[-1:]

    async def _due(self, plan: IngestPlan, ours: Sealed) -> Sealed:
        """Return the batches that the result is about, oldest first: that of this work, and each one that
        was not announced."""
        return merged(await unannounced(self.log, "log", plan.recorded, self.services.announced), ours)

    async def _publish_earlier(self, plan: IngestPlan, batches: Sealed, done_by: str) -> Outcome:
        done = await self._result(plan, await self._due(plan, batches))
        self.say(
            f"Already ingested by {done_by}: {counted(done.counts)}, into {self.written_table()}, "
            f"version {done.log_version}, seal {done.seal}. {NOTHING_TO_DO}"
        )
        return done

    async def _result(self, plan: IngestPlan, batches: Sealed) -> Outcome:
        recorded, request = plan.recorded, self.request
        before = recorded.seal if recorded is not None else None
        seal = batches[-1][0] if batches else before
        version = recorded.target.version if recorded is not None else None
        table_id = recorded.target.table_id if recorded is not None else None
        if recorded is None and batches and batches[0][1].metadata is not None:
            table_id = batches[0][1].metadata.id
        return Outcome(
            kind="ingest",
            applied=bool(batches),
            pipeline=self.request.pipeline,
            seal=seal.number if seal is not None else None,
            log_table=self.written_table(),
            log_table_id=table_id,
            log_version=batches[-1][1].version if batches else version,
            counts=total(seal.step.counts for seal, _ in batches),
            left=plan.left,
            plan_key=plan.plan_key,
            bytes_written=bytes_of(commit for _, commit in batches),
            held=await held(request.log, request.pipeline, request.storage_options, seal, is_log=True),
            effort=self.effort,
        )


def _same_input(spec: IngestSpec, other: IngestSpec | None) -> bool:
    return other is not None and (other.files, other.offsets) == (spec.files, spec.offsets)


def _failure(result: JobResult) -> JobFailed | None:
    """Return the error of a job that failed without a named error; None for every other result."""
    error = DeltaCdcError.from_dict(result.error) if result.status == "failed" and result.error else None
    return error if isinstance(error, JobFailed) else None


def _extended(error: JobFailed, text: str, remedy: str = "") -> JobFailed:
    """Return an error with a sentence more, and with another remedy if one is given."""
    space = "" if error.message.endswith("\n") else " "
    return JobFailed(f"{error.message}{space}{text}", remedy=remedy or error.remedy)
