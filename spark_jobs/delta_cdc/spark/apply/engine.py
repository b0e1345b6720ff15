"""Run the steps of one apply spec: each step is one sealed commit in the target."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core import failpoints, validation
from delta_cdc.core.change_log import ORIGIN
from delta_cdc.core.quarantine import ASIDE
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import ApplySpec, JobResult, new_seal
from delta_cdc.core.sql import table
from delta_cdc.core.watermark import PipelineState, Seal
from delta_cdc.spark import catalog, erased_keys, named_errors, quarantine
from delta_cdc.spark.apply import from_events, from_feed, guarded, layout, load, refusals, repair, to_log
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.apply.value_rules import RowsBreakRules
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sealed.commit import look, nothing_added, overtaken
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sealed.constraints import CHANGE_THE_RULE, Destination
from delta_cdc.spark.sealed.steps import NotCommitted, SealedSteps
from delta_cdc.spark.sessions import private_session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from delta_cdc.core.steps import Kind, Step
    from delta_cdc.spark.apply.rows import Shape
    from delta_cdc.spark.sealed.commit import TableState
    from delta_cdc.spark.sealed.settling import Settled


log = logging.getLogger(__name__)

#: Kinds of steps that read all rows again, and set aside what they cannot use.
_WHOLE = ("load", "baseline", "reset", "reload")


def run(spark: SparkSession, spec: ApplySpec) -> JobResult:
    """Run the steps of ``spec`` in order.

    :return: ``committed`` if every step committed; otherwise the status of the step that did not
    :raises DeltaCdcError: for bad input; nothing of the failing step is written
    """
    feed.refuse_forbidden_confs(spark)
    with private_session(spark) as session:
        refuse_unsafe_log_store(session, spec.target_uri, single_driver=spec.single_driver)
        catalog.check(session, spec)
        steps = ApplySteps(session, spec)
        return steps.dry_run() if spec.dry_run else steps.run()


class ApplySteps(SealedSteps[ApplySpec, PreparedStep]):
    """The steps of an apply."""

    def prepare(self, step: Step) -> PreparedStep:
        """Compute the rows of a step, by its kind."""
        layout.fit(self.session, self.spec, step)
        return _PREPARES[step.kind](self.session, self.spec, step)

    def refuse(self, step: Step, prepared: PreparedStep) -> None:
        """Refuse a step that would change more rows than a limit allows."""
        with self._noticing_others(step):
            problem = guarded.exceeded(self.session, self.spec, step, prepared)
        if problem is not None:
            raise problem

    def write(self, step: Step, prepared: PreparedStep) -> Callable[[], object]:
        """Return the MERGE, or the append."""
        return prepared.write

    def seal(self, step: Step, prepared: PreparedStep) -> Seal:
        """Return the seal, with the pipeline's state after the step."""
        before = step.before
        if before is None or step.read.begins:
            before = PipelineState(step.watermark, 0, loaded_version=step.at)
        state = replace(
            before,
            applied_to=step.watermark,
            highest_sequence=prepared.highest_sequence,
            truncate_sequences=prepared.truncate_sequences,
            horizons=step.horizons if step.read.has_rows else before.horizons,
            configuration=before.configuration
            if prepared.shape is None
            else _configuration(self.spec, prepared.shape, step, sets_aside=prepared.quarantined is not None),
        )
        return new_seal(self.spec, step, state, counts=prepared.counts)

    def misfit(self, step: Step, state: TableState) -> str | None:
        """Return why a step does not fit a target from which keys were erased since planning."""
        return erased_keys.changed_since(self.spec.erased, state.properties, self.spec.target_uri)

    def settles(self, step: Step, prepared: PreparedStep) -> Settled | None:
        """Return the rows that leave the quarantine: those that a replay reads, or that the step admits."""
        if step.read.quarantined:
            return quarantine.replayed_rows(self.spec, step, prepared.shape)
        if prepared.settled is not None:
            return quarantine.settled_rows(self.spec, step, prepared.settled)
        return None

    @property
    def quarantine_uri(self) -> str:
        """Return the location of the target's quarantine."""
        return quarantine.uri_of(self.spec)

    def before_commit(self, step: Step, prepared: PreparedStep, seal: Seal) -> None:
        """Write the step's quarantine, or take over that of another pipeline."""
        if step.read.inherits is not None:
            problem = quarantine.take_over(self.session, self.spec, *step.read.inherits)
        elif prepared.quarantined is not None:
            problem = quarantine.write(self.session, self.spec, step, seal, prepared.quarantined)
        else:
            return
        if problem is not None:
            raise NotCommitted("stale", problem)
        failpoints.reached("quarantined")

    def commit(self, step: Step, prepared: PreparedStep, seal: Seal) -> int:
        """Commit a step, and return the version."""
        try:
            with self._noticing_others(step):
                return super().commit(step, prepared, seal)
        except NotCommitted:
            raise
        except Exception as error:
            is_refusal = not named_errors.named(error, self.spec.place).retryable
            if is_refusal and prepared.quarantined is not None:
                self._mark_refused(step)
            raise

    def _mark_refused(self, step: Step) -> None:
        spec = self.spec
        try:
            quarantine.mark_refused(self.session, spec.quarantine_uri, spec.pipeline, step.seal_number)
        except Exception as error:  # noqa: BLE001 - the refusal is the error to report
            log.warning(
                "The next try reads the same range again: cannot note in %s that the target refused it: %s",
                spec.quarantine_uri,
                reason(error),
            )

    @contextmanager
    def _noticing_others(self, step: Step) -> Iterator[None]:
        """Plan again if the rows of the ``with`` block have a key twice because the target has changed.

        Otherwise the source inserts an existing key.
        """
        try:
            yield
        except Exception as error:
            if refusals.DUPLICATE_MARK in str(error) and step.planned_on is not None:
                target = self.spec.target_uri
                problem = overtaken(self.session, target, step.planned_on, look(self.session, target))
                if problem is not None:
                    raise NotCommitted("stale", problem) from error
            raise

    def destination(self, prepared: PreparedStep) -> Destination:
        """Return the target, and the rows of the MERGE or of the append."""
        merge, inserts, options = prepared.merge, prepared.inserts, self.spec.options
        correct = refusals.correction(
            options,
            of_any_version=options.stored_as_scd_type == 2,
            may_end_early=self.spec.may_end_early or len(self.spec.steps) > 1,
        )
        remedy = f"{correct}; leave them out with where, change them with select, or {CHANGE_THE_RULE}"
        keys = prepared.shape.keys if prepared.shape is not None else ()
        if merge is not None:
            return Destination(self.spec.target_uri, lambda: merge.written(self.session), keys, remedy)
        return Destination(self.spec.target_uri, None if inserts is None else lambda: inserts, keys, remedy)

    def complete(self, step: Step, prepared: PreparedStep, version: int) -> None:
        """Complete the target's layout, register its name, and empty the staging table."""
        session, spec, is_new = self.session, self.spec, step.planned_on is None
        planned_on, quarantine_uri = step.planned_on, spec.quarantine_uri
        erased_keys.delete_again(
            *(session, spec.erased, spec.target_uri, planned_on, version), quarantine=quarantine_uri
        )
        if prepared.shape is not None and (is_new or spec.may_lack_layout):
            layout.complete(session, spec.target_uri, prepared.shape, spec.options, is_new=is_new)
        elif spec.options.writes_events and spec.may_lack_layout:
            # A source that is loaded once writes no further rows.
            existing = look(session, spec.target_uri).properties
            layout.set_missing(session, spec.target_uri, spec.options, existing)
        erased_keys.mark(session, spec.erased, spec.target_uri)
        if is_new and spec.target_name:
            catalog.registered(session, spec.target_name, spec.target_uri, spec.target_comment)
        if step.read.staging is not None:
            # The target has these rows now. Later steps read a newer batch.
            session.sql(f"DELETE FROM {table(step.read.staging.uri)}")

    def dry_run(self) -> JobResult:
        """Report what the first step with rows would do; count the later steps, which depend on its commit.

        :return: ``planned``, with the statements; and with an error, if a limit would stop a real run
        """
        steps = self.spec.steps
        position = next((index for index, step in enumerate(steps) if step.read.has_rows), 0)
        step = steps[position].with_allowed_lateness()
        prepared = _PREPARES[step.kind](self.session, self.spec, step)
        if prepared.merge is not None:
            statement, counts = prepared.merge.statement, prepared.merge.counted(self.session)
        else:
            inserted = prepared.inserts.count() if prepared.inserts is not None else 0
            verb = "REPLACE ALL ROWS OF" if step.kind == "reset" else "APPEND TO"
            statement = f"{verb} {table(self.spec.target_uri)}: {inserted} rows"
            counts = {"inserted": inserted}
        later_commits = len(steps) - 1 - position
        message = self.described(step) + (
            f"; {later_commits} more commit(s) would follow" if later_commits else ""
        )
        stopped = guarded.exceeded(self.session, self.spec, step, prepared)
        error = None if stopped is None else stopped.to_dict()
        statements = (*prepared.alters, statement)
        return JobResult(
            "planned", {**counts, **prepared.counts}, message, error=error, statements=statements
        )


# -- the rows of a step, by its kind ----------------------------------------------------------------
def _load(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    if spec.options.writes_events:
        return to_log.first(session, spec, step)
    takes_events = spec.options.takes_events and not spec.options.insert_only
    return from_events.first(session, spec, step) if takes_events else load.load(session, spec, step)


def _apply(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    if spec.options.insert_only:
        return from_feed.append(session, spec, step)
    if spec.options.writes_events:
        return to_log.apply(session, spec, step)
    if spec.options.takes_events:
        return from_events.apply(session, spec, step)
    options = spec.options
    # The target need not have the state before a change. The times of a row may be those that it has.
    follows = options.sets_changes_aside and options.stored_as_scd_type == 2
    if options.is_partial or options.has_times or follows:
        return from_events.apply_states(session, spec, step)
    try:
        return from_feed.merge(session, spec, step)
    except RowsBreakRules:
        # Only a range with such rows needs this second pass, which looks at each state and at the target.
        return from_events.apply_states(session, spec, step)


def _seal_alone(session: SparkSession, spec: ApplySpec, step: Step) -> PreparedStep:
    """Prepare an append of no rows: the commit records the transaction and the seal."""
    write = nothing_added(session, spec.target_uri)
    return PreparedStep(write, {}, step.highest_sequence, truncate_sequences=step.truncate_sequences)


_PREPARES: dict[Kind, Callable[[SparkSession, ApplySpec, Step], PreparedStep]] = {
    "load": _load,
    "reset": _load,
    "baseline": _load,
    "apply": _apply,
    "reload": repair.reload,
    "repair": repair.repair,
    "renew": _seal_alone,
    "take_over": _seal_alone,
}


def _configuration(spec: ApplySpec, shape: Shape, step: Step, *, sets_aside: bool) -> dict[str, object]:
    options = spec.options
    order_type, tracked_or_key = shape.order_type, {*shape.tracked, *shape.keys}
    untracked = [name for name in shape.values if name not in tracked_or_key]
    before = step.before.configuration if step.before is not None else {}
    return {
        **{name: before[name] for name in (ORIGIN,) if name in before},
        **({ASIDE: True} if sets_aside or (before.get(ASIDE) and step.kind not in _WHOLE) else {}),
        **validation.described(options),
        **validation.described_columns(options, step.source_columns, untracked),
        "sequence_by_type": order_type.simpleString() if order_type is not None else None,
        **spec.erased.sealed,
    }
