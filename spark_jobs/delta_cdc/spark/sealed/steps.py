"""Run the steps of a sealed job: each step is one commit with a seal, whatever the job does.

For each step: prepare its rows, check that source and table are as planned, alter the table's columns if
the rows need it, commit, and complete what may be done later. A kind of job is a subclass of
:class:`SealedSteps`.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from delta_cdc.core import failpoints
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import JobResult, SealedSpec
from delta_cdc.core.text_table import named_counts
from delta_cdc.core.uris import short_name
from delta_cdc.core.watermark import TableVersion
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sealed import settling
from delta_cdc.spark.sealed.commit import (
    CommitResult,
    changed_since,
    commit,
    is_conflict,
    is_overtaken,
    logs_loaded,
    look,
    overtaken,
    taken_number,
    written,
)
from delta_cdc.spark.sealed.commit_files import commit_hash, own_commit_hash
from delta_cdc.spark.sealed.constraints import Destination, refused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import JobStatus
    from delta_cdc.core.steps import Step
    from delta_cdc.core.watermark import Seal
    from delta_cdc.spark.sealed.commit import TableState
    from delta_cdc.spark.sealed.settling import Settled

log = logging.getLogger(__name__)

#: Spark's error class if rows of a local checkpoint were lost together with their executor.
LOST_ROWS = "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND"
#: How often rows of a quarantine are marked or deleted if other runs write to it at the same time.
_TRIES = 3


class NotCommitted(Exception):
    """The step commits nothing, and the caller plans again.

    :param status: why: ``stale``, ``skipped`` or ``conflict``
    """

    def __init__(self, status: JobStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Prepared(Protocol):
    """A prepared step: its input is validated, and nothing is written yet."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return the counts that do not depend on the write."""

    @property
    def alters(self) -> tuple[str, ...]:
        """Return the statements that must alter the table first; the step is prepared again after them."""


S = TypeVar("S", bound=SealedSpec)
P = TypeVar("P", bound=Prepared)


class SealedSteps(ABC, Generic[S, P]):
    """The steps of one spec, in one private session.

    :param counts: the sums over the steps that committed
    """

    #: How often a step is attempted if executors keep dying.
    attempts = 3

    def __init__(self, session: SparkSession, spec: S) -> None:
        self.session = session
        self.spec = spec
        self.counts: dict[str, int] = {}

    # Each kind of job defines these methods:
    @abstractmethod
    def prepare(self, step: Step) -> P:
        """Return the prepared step.

        :raises NotCommitted: what the step reads changed after planning
        :raises DeltaCdcError: for bad input
        """

    @abstractmethod
    def write(self, step: Step, prepared: P) -> Callable[[], object]:
        """Return the one statement that commits."""

    @abstractmethod
    def seal(self, step: Step, prepared: P) -> Seal:
        """Return the seal of the step's commit."""

    def destination(self, prepared: P) -> Destination:
        """Return where the step writes and which rows, for the error if the table refuses the write."""
        return Destination(self.spec.into)

    def logs(self, step: Step) -> list[str]:
        """Return the tables whose logs the commit needs."""
        return [] if step.planned_on is None else [self.spec.into]

    def misfit(self, step: Step, state: TableState) -> str | None:
        """Return why a step does not fit a table that has newer commits than planned; None if it fits."""
        return None

    def refuse(self, step: Step, prepared: P) -> None:
        """Refuse a prepared step before anything is written, even before the table's columns are altered.

        :raises DeltaCdcError: the step must not commit
        """

    def before_commit(self, step: Step, prepared: P, seal: Seal) -> None:
        """Write what must be in other tables before the commit.

        :raises NotCommitted: another driver was first
        """

    def settles(self, step: Step, prepared: P) -> Settled | None:
        """Return the rows that leave a quarantine because the step writes them; None without such rows."""
        return None

    @property
    def quarantine_uri(self) -> str:
        """Return the location of the quarantine; "" for a job without one."""
        return ""

    def counted(self, step: Step, prepared: P, version: int) -> Mapping[str, int]:
        """Return the counts of a step that is committed; a failure only warns."""
        return prepared.counts

    def complete(self, step: Step, prepared: P, version: int) -> None:
        """Do what may be done later. It may fail, because the next run that commits completes it."""

    def replaced(self, seal: Seal) -> bool:
        """Return whether a step, by its seal, replaced all rows, whatever happened to them since planning."""
        return seal.step.kind == "reset"

    def alters_left(self, step: Step, prepared: P) -> tuple[str, ...]:
        """Return the statements that are still needed, after one of them failed."""
        return self._prepared(step).alters

    def described(self, step: Step) -> str:
        """Return what a step does, for people."""
        return f"the {step.kind} of {short_name(self.spec.source_uri)}: {step}"

    # The same for all:
    def run(self) -> JobResult:
        """Run the steps in order.

        :return: ``committed`` if every step committed; otherwise the status of the step that did not
        :raises DeltaCdcError: for bad input; nothing of the failing step is written
        """
        previous: tuple[Seal, int] | None = None
        try:
            for position, planned in enumerate(self.spec.steps):
                milestone = self._milestone(position)
                if milestone:
                    log.info("%s: %s: %s", self.spec.pipeline, milestone, self.described(planned))
                step = planned if previous is None else self.following(planned, *previous)
                previous = self._run_step_again(step.with_allowed_lateness())
                if milestone:
                    log.info("%s: %s is version %s", self.spec.pipeline, milestone, previous[1])
        except NotCommitted as nothing:
            return JobResult(nothing.status, counts=self.counts, message=str(nothing))
        return JobResult("committed", counts=self.counts)

    def following(self, step: Step, seal: Seal, version: int) -> Step:
        """Return the step, planned on exactly the version that the previous step committed.

        :param seal: the seal of the previous step
        :param version: the version that it committed
        :raises NotCommitted: the table was restored or replaced after the previous step observed it and
            before that step committed. The next planner checks only the versions after the one that the
            newest seal was planned on. Or the previous commit, or the version that it was planned on, was
            overwritten, or put back from a copy
        """
        into, planned = self.spec.into, seal.step.planned_on
        own_hash, is_own = own_commit_hash(self.session, into, version, seal.step.fingerprint)
        if not is_own:
            raise NotCommitted("stale", f"version {version} of {into} is no longer the commit of this job")
        if planned is not None and planned.version >= version:
            raise NotCommitted("stale", f"{into} lost version {planned} since planning: it was put back")
        if planned is not None and planned.commit_hash is not None:
            found = commit_hash(self.session, into, planned.version)
            if found not in (None, planned.commit_hash):
                raise NotCommitted("stale", f"version {planned} of {into} is another commit than at planning")
        if planned is not None and planned.version + 1 == version:
            # No other commit lies between, so the table is still the one planned on.
            planned = TableVersion(planned.table_id, version, own_hash)
        else:
            state = look(self.session, into)
            if planned is not None:
                unchanged_since = replace(planned, version=version) if self.replaced(seal) else planned
                problem = overtaken(self.session, into, unchanged_since, state)
                if problem is not None:
                    raise NotCommitted("stale", problem)
            planned = TableVersion(state.table_id, version, own_hash)
        return replace(step, planned_on=planned, before=seal.state if step.before is None else step.before)

    def _milestone(self, position: int) -> str:
        """Return the text ``Commit 1 of 3`` for a step whose range takes several commits; "" for others."""
        parts = [index for index, step in enumerate(self.spec.steps) if step.kind == "apply"]
        if len(parts) < 2 or position not in parts:
            return ""
        return f"Commit {parts.index(position) + 1} of {len(parts)}"

    def _run_step_again(self, step: Step) -> tuple[Seal, int]:
        """Run a step; run it again if an executor with its computed rows is lost.

        Spark cannot recompute these rows, because a local checkpoint drops their lineage.
        """
        for attempt in range(1, self.attempts):
            try:
                return self._run_step(step)
            except Exception as error:
                if LOST_ROWS not in str(error):
                    raise
                log.warning(
                    "an executor was lost with rows of %s; computing them again (attempt %s of %s)",
                    self.described(step),
                    attempt + 1,
                    self.attempts,
                )
        return self._run_step(step)

    def _run_step(self, step: Step) -> tuple[Seal, int]:
        """Return the seal of a step and the version that it committed."""
        pipeline, description = self.spec.pipeline, self.described(step)
        log.info("%s: preparing %s", pipeline, description)
        prepared = self._checked(step)
        self.refuse(step, prepared)
        if prepared.alters:
            prepared = self._altered(step, prepared)
        settled = self.settles(step, prepared)
        seal = settling.recorded(self.seal(step, prepared), settled)
        if step.settling is not None:
            # The run of the step before may have died after its commit.
            self._settle(partial(settling.delete, self.session, self.quarantine_uri, step.settling))
        self.before_commit(step, prepared, seal)
        if settled is not None:
            self._settle(partial(settling.mark, self.session, settled))
        counts = named_counts(prepared.counts)
        log.info("%s: committing %s%s", pipeline, description, counts and f": {counts}")
        version = self.commit(step, prepared, seal)
        log.info("%s: committed version %s, seal %s", pipeline, version, step.seal_number)
        self._finish(step, prepared, version, settled)
        added = self.counted(step, prepared, version)
        self.counts = {
            name: self.counts.get(name, 0) + added.get(name, 0) for name in {**self.counts, **added}
        }
        return seal, version

    def _settle(self, write: Callable[[], object]) -> None:
        """Mark or delete rows of the quarantine, before the commit.

        :raises NotCommitted: other writers committed first, in each attempt
        """
        outcome = CommitResult("conflict")
        for _ in range(_TRIES):
            outcome = written(write)
            if outcome.status != "conflict":
                return
        text = f"another run writes to the quarantine {self.quarantine_uri}: {outcome.message}"
        raise NotCommitted(outcome.status, text)

    def _finish(self, step: Step, prepared: P, version: int, settled: Settled | None) -> None:
        """Do what may be done after a commit; a failure only warns."""
        work: list[Callable[[], object]] = [partial(self.complete, step, prepared, version)]
        if settled is not None:
            work.append(partial(settling.delete, self.session, settled.uri, settled.mark))
        for one in work:
            try:
                one()
            except Exception as error:  # noqa: BLE001 - optional work after a commit must not fail the commit
                log.warning(
                    "The commit to %s succeeded, but work after it failed. The next run that commits there "
                    "completes it: %s",
                    self.spec.into,
                    reason(error),
                )

    def _checked(self, step: Step) -> P:
        """Return the prepared step.

        :raises NotCommitted: source or table are not as planned
        """
        with logs_loaded(self.session, *self.logs(step)):
            prepared = self._prepared(step)
        failpoints.reached("planned")
        with ThreadPoolExecutor(1) as pool:
            changed_table = pool.submit(self._changed_table, step)
            changed_source = feed.changed_source(self.session, self.spec.source_uri, step)
            problem = changed_source or changed_table.result()
        if problem is not None:
            raise NotCommitted("stale", problem)
        return prepared

    def _prepared(self, step: Step) -> P:
        """Prepare a step; one whose number another run has taken may no longer fit the table's columns.

        :raises NotCommitted: see :meth:`prepare`; or another run was first
        """
        try:
            return self.prepare(step)
        except DeltaCdcError as error:
            if not self._is_overtaken(step):
                raise
            raise NotCommitted("skipped", taken_number(self.spec.pipeline, step.seal_number)) from error

    def _is_overtaken(self, step: Step) -> bool:
        if step.planned_on is None:
            return False
        into, pipeline = self.spec.into, self.spec.pipeline
        try:
            return is_overtaken(self.session, into, step.planned_on, pipeline, step.seal_number)
        except Exception as error:  # noqa: BLE001 - the error of the step is the one to report
            log.info("the history of %s cannot be read: %s", into, reason(error))
            return False

    def _changed_table(self, step: Step) -> str | None:
        """Return why the table is not as planned; None if it is, or if a step creates it."""
        if step.planned_on is None:
            return None
        changed = changed_since(
            self.session, self.spec.into, step.planned_on, single_driver=self.spec.single_driver
        )
        if changed is None:
            return None
        state, problem = changed
        return problem or self.misfit(step, state)

    def _altered(self, step: Step, prepared: P) -> P:
        """Alter the table's columns, before the step's own commit, and prepare the step again.

        Each statement is a commit without a seal: it moves no rows, and a retry finds its result.

        :raises NotCommitted: the step has to be planned again
        :raises DeltaCdcError: the table refuses a statement
        """
        into = self.spec.into
        for position, statement in enumerate(prepared.alters):
            if self._is_overtaken(step):
                # The newer run may have given the names of the statement to other columns.
                raise NotCommitted("skipped", taken_number(self.spec.pipeline, step.seal_number))
            log.info("%s: %s", self.spec.pipeline, statement)
            try:
                self.session.sql(statement)
            except Exception as error:
                remaining = set(prepared.alters[position:])
                if is_conflict(error) or not remaining <= set(self.alters_left(step, prepared)):
                    text = f"the table {into} changed while its columns were altered: {reason(error)}"
                    raise NotCommitted("stale", text) from error
                refusal = refused(error, Destination(into))
                if refusal is None:
                    raise
                raise refusal from error
        failpoints.reached("altered")
        # The rows were computed for the columns that the table had before.
        again = self._checked(step)
        if again.alters:
            raise NotCommitted("stale", f"the columns of the table {into} changed since they were altered")
        return again

    def commit(self, step: Step, prepared: P, seal: Seal) -> int:
        """Commit a step, and return the version.

        :raises NotCommitted: another writer committed first
        """
        outcome = commit(self.session, seal, self.write(step, prepared), self.destination(prepared))
        if outcome.version is None:
            raise NotCommitted(outcome.status, outcome.message)
        return outcome.version
