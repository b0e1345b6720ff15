"""Compare a target with its source as of the watermark.

The functions of a reload compute the expected rows. Then a comparison replaces the write; it ignores the
sequence that a repaired row would get.

* A feed, or a table whose versions are full copies: compare the rows as of the watermark with the target's
  open rows. The source no longer contains closed rows.
* Events: compute all rows of each key, including closed rows, from all of its events; rows that were closed
  before the allowed lateness are excluded.
* Without keys: count rows by their hash.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.checks import EQUALS_SOURCE, Check
from delta_cdc.core.quarantine import quarantine_of
from delta_cdc.core.spec import ApplySpec
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.core.value_rules import those_that
from delta_cdc.spark.apply import (
    batches,
    difference,
    from_events,
    latest,
    load,
    repair,
    timeline,
    value_rules,
)
from delta_cdc.spark.apply.entries import DELETED, FOUND_DELETED, FROM_NOTHING, START, inherited
from delta_cdc.spark.apply.prepared_step import StepContext
from delta_cdc.spark.apply.timeline import KeySelection
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import comparable, same
from delta_cdc.spark.verify.rows import AMOUNT, KIND, address, differences

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import VerifySpec
    from delta_cdc.spark.apply.rows import Shape

MISSING, SURPLUS, CHANGED, TWICE = "missing", "surplus", "changed", "twice in the source"
_COPIES, _UNUSABLE = f"{PLAN_PREFIX}copies", f"{PLAN_PREFIX}unusable"
_HASH = f"{PLAN_PREFIX}hash"

_KINDS = {difference.INSERT: MISSING, difference.DELETE: SURPLUS, difference.UPDATE: CHANGED}
_REMEDY = (
    "mode='repair' with repair_keys computes some keys again, mode='reload' all of them; or RESTORE the "
    "target to the version before the damage."
)
_TWICE = "two rows of the source share a key: add columns to keys, or remove the duplicates from the source."
_NO_KEYS = "RESTORE the target to the version before the damage, or replace all rows with mode='reset'."


def compared(session: SparkSession, spec: VerifySpec) -> Check:
    """Compare all rows.

    :raises DeltaCdcError: the source is unreadable, or its rows cannot be converted to the target's
    """
    assert spec.source_uri is not None
    assert spec.compared is not None
    step = spec.compared.with_allowed_lateness()
    versioned_spec = ApplySpec(
        pipeline=spec.pipeline,
        run_id=spec.run_id,
        source_uri=spec.source_uri,
        target_uri=address(spec.target_uri, spec.target_version),
        quarantine_uri=quarantine_of(spec.target_uri),
        options=spec.options,
        steps=(step,),
        dry_run=True,
        erased=spec.erased,
    )
    job = StepContext.of(session, versioned_spec, step)
    job.only_compares = True
    # A row that breaks a rule of another kind may be older than the rule, and then the target has it.
    options = job.options = replace(job.options, rules=those_that(job.options.rules, "quarantine"))
    if options.insert_only:
        return _without_keys(job, keeps_all=spec.source_keeps_all)
    if options.takes_events:
        return _events(job)
    expected, shape = _states(job)
    rows_text, notes = "rows", []
    if options.stored_as_scd_type == 2:
        rows_text, notes = "open rows", ["the source does not contain closed rows"]
    notes += ["values that the source leaves out stay"] if options.is_partial else []
    wrong = _wrong(expected, from_events.current_rows(job, shape), shape)
    return _check(wrong, shape.keys, _detail(job, rows_text, notes))


# -- states -------------------------------------------------------------------------------------
def _states(job: StepContext) -> tuple[DataFrame, Shape]:
    """Return the source's rows as of the watermark: keys, values, number, and whether they are usable."""
    snapshot, shape = load.read(job)
    upserts = repair.as_upserts(job, snapshot.where(~batches.null_key(shape)), shape)
    unusable = repair.unusable(shape)
    if job.options.rules:
        unusable = unusable | value_rules.is_stopped(job.options)
    upserts = upserts.withColumn(_UNUSABLE, unusable)
    per_key = upserts.groupBy(*shape.key_columns).agg(
        F.first(states.AFTER).alias(states.AFTER),
        F.count("*").alias(_COPIES),
        F.max(_UNUSABLE).alias(_UNUSABLE),
    )
    if not job.options.is_partial:
        return per_key.withColumn(DELETED, F.lit(False)), shape
    key_entries = timeline.of_events(upserts, shape, reserved_columns.ORDER)
    current = from_events.current_rows(job, shape)
    all_entries = timeline.of_target(current, key_entries, shape).unionByName(key_entries)
    last = latest.last_states(inherited(all_entries, shape, job.options), shape)
    expected = last.select(*shape.key_columns, states.AFTER, DELETED)
    return expected.join(per_key.drop(states.AFTER), on=list(shape.keys)), shape


# -- events -------------------------------------------------------------------------------------
def _events(job: StepContext) -> Check:
    options = job.options
    job.truncated = options.apply_as_truncates is not None
    shape = repair.event_shape(job)
    if options.stored_as_scd_type == 2:
        expected = from_events.from_all_events(job, KeySelection(), None, shape, ()).rows
        kind = F.create_map(*[F.lit(text) for pair in _KINDS.items() for text in pair])
        wrong = expected.where(~batches.null_key(shape)).withColumn(KIND, kind[F.col(difference.OPERATION)])
        wrong = wrong.withColumnRenamed(START, options.start_column)
        horizons = job.step.horizons[-1:]
        notes = [f"rows closed before the lateness horizon, {horizon}, stay" for _, horizon in horizons]
        return _check(wrong, (*shape.keys, options.start_column), _detail(job, "rows", notes))
    all_entries = from_events.desired_entries(job, KeySelection(), None, shape, (), None)
    last = latest.last_states(inherited(all_entries, shape, options), shape)
    expected = last.select(*shape.key_columns, states.AFTER, DELETED, FROM_NOTHING)
    expected = expected.withColumn(_COPIES, F.lit(1)).withColumn(_UNUSABLE, F.lit(False))
    wrong = _wrong(expected, from_events.current_rows(job, shape), shape)
    return _check(wrong, shape.keys, _detail(job, "rows", []))


# -- by key -------------------------------------------------------------------------------------
def _wrong(expected: DataFrame, existing: DataFrame, shape: Shape) -> DataFrame:
    """Return the keys whose row differs from the expected one, with :data:`KIND`.

    :param expected: the keys and values, whether the row is deleted, how many source rows have the key,
        and whether one of them is unusable
    :param existing: :func:`delta_cdc.spark.apply.from_events.current_rows`, at most one per key
    """
    joined = expected.join(existing.where(~batches.null_key(shape)), on=list(shape.keys), how="full")
    exists = F.col(difference.FOUND).isNotNull()
    marked = F.lit(False)
    if FOUND_DELETED in existing.columns:
        marked = F.coalesce(F.col(FOUND_DELETED), F.lit(False))
    is_expected, is_present = F.coalesce(~F.col(DELETED), F.lit(False)), exists & ~marked
    differs = ~same(difference.FOUND, states.AFTER, shape.schema, shape.values)
    # A soft-deleted row stays in the target; it can be compared if the source has its last values.
    is_soft_deleted = (
        F.lit(FOUND_DELETED in existing.columns) & ~is_expected & F.col(states.AFTER).isNotNull()
    )
    kind = (
        F.when(F.coalesce(F.col(_UNUSABLE), F.lit(False)), F.lit(None))
        .when(F.col(_COPIES) > 1, TWICE)
        .when(is_expected & ~is_present, MISSING)
        .when(~is_expected & is_present, SURPLUS)
        .when(is_expected & differs, CHANGED)
        .when(is_soft_deleted & ~exists, MISSING)
        .when(is_soft_deleted & differs, CHANGED)
    )
    if FROM_NOTHING in expected.columns:
        # Upserts without effect leave no row in the target, not even a soft-deleted one.
        nothing = F.col(FROM_NOTHING) & F.col(states.AFTER).isNull()
        kind = kind.when(exists & nothing, SURPLUS)
    return joined.withColumn(KIND, kind).where(F.col(KIND).isNotNull())


def _check(wrong: DataFrame, keys: Sequence[str], detail: str) -> Check:
    def remedy(kinds: set[str]) -> str:
        return _TWICE if kinds == {TWICE} else _REMEDY

    return differences(EQUALS_SOURCE, wrong, keys, detail, remedy)


def _detail(job: StepContext, rows_text: str, notes: Sequence[str]) -> str:
    return "; ".join([f"{rows_text} against version {job.step.at} of {job.source}", *notes])


# -- without keys -------------------------------------------------------------------------------
def _without_keys(job: StepContext, *, keeps_all: bool) -> Check:
    """Compare how often each row occurs on both sides, by the hash of the row."""
    snapshot, shape = load.read(job)
    of_target = from_events.current_rows(job, shape).select(
        F.col(difference.FOUND).alias(states.AFTER), F.lit(-1).alias(AMOUNT)
    )
    all_rows = snapshot.select(shape.state.alias(states.AFTER), F.lit(1).alias(AMOUNT)).unionByName(of_target)
    shown_columns = shape.values[:3]
    value = F.expr(comparable(quote(states.AFTER), shape.schema))
    hash_counts = all_rows.groupBy(F.xxhash64(value).alias(_HASH)).agg(
        F.sum(AMOUNT).alias(AMOUNT),
        *[F.first(F.col(states.AFTER).getField(name)).alias(name) for name in shown_columns],
    )
    kind = F.when(F.col(AMOUNT) > 0, MISSING).when(F.lit(keeps_all) & (F.col(AMOUNT) < 0), SURPLUS)
    wrong = hash_counts.withColumn(KIND, kind).where(F.col(KIND).isNotNull())
    notes = [] if keeps_all else ["rows that the source has expired stay in the target"]
    detail = _detail(job, "rows, by count and hash,", notes)
    return differences(EQUALS_SOURCE, wrong, shown_columns, detail, lambda _: _NO_KEYS)
