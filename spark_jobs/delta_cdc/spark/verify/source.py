"""Compares a target with its source as of the watermark.

The functions of a reload compute the expected rows. Instead of a write, a comparison follows; it ignores the
sequence that a repaired row would get.

* A feed, or a table of which every version is a full copy: compares the rows as of the watermark with the
  target's open rows. The source no longer contains closed rows.
* Events: computes each key's rows, also closed ones, from all of its events, except rows that were closed
  before the allowed lateness.
* Without keys: counts rows by their hash.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core import reserved_columns
from delta_cdc.core.checks import EQUALS_SOURCE, MOST_SAMPLES, Check, finding, ok
from delta_cdc.core.spec import StateStep
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import (
    difference,
    engine,
    from_events,
    intervals,
    load,
    repair,
    timeline,
)
from delta_cdc.spark.apply.prepared_step import StepContext
from delta_cdc.spark.apply.timeline import KeySelection
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import comparable, same
from delta_cdc.spark.verify.rows import address, keys_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from delta_cdc.core.spec import VerifySpec
    from delta_cdc.spark.apply.rows import Shape

#: The kind of difference in a key or a row.
KIND = f"{PLAN_PREFIX}kind"
MISSING, SURPLUS, CHANGED, TWICE = "missing", "surplus", "changed", "twice in the source"
_COPIES, _UNUSABLE = f"{PLAN_PREFIX}copies", f"{PLAN_PREFIX}unusable"
_HASH, _N, _TEXT = f"{PLAN_PREFIX}hash", f"{PLAN_PREFIX}n", f"{PLAN_PREFIX}text"

_KINDS = {difference.INSERT: MISSING, difference.DELETE: SURPLUS, difference.UPDATE: CHANGED}
_REMEDY = (
    "mode='repair' with repair_keys computes some keys again, mode='reload' all of them; or RESTORE the "
    "target to the version before the damage."
)
_TWICE = "two rows of the source share a key: add columns to keys, or remove the duplicates from the source."
_NO_KEYS = "RESTORE the target to the version before the damage, or load it anew with mode='reset'."


def compared(session: SparkSession, spec: VerifySpec) -> Check:
    """Compare all rows.

    :raises DeltaCdcError: the source is unreadable, or its rows do not convert to the target's
    """
    assert spec.source is not None
    (step,) = spec.source.steps
    assert not isinstance(step, StateStep)
    step = engine.with_horizons(step)
    pinned = replace(spec.source, target_uri=address(spec.target_uri, spec.target_version))
    job = StepContext.of(session, pinned, step)
    options = job.options
    if options.insert_only:
        return _without_keys(job, keeps_all=spec.source_keeps_all)
    if options.takes_events:
        return _events(job)
    found, shape = _states(job)
    existing = difference.target_rows(session, pinned.target_uri, shape, options)
    if options.stored_as_scd_type == 2:
        existing = existing.where(is_open())
    what = "open rows" if options.stored_as_scd_type == 2 else "rows"
    but = ["what is closed no source tells again"] if options.stored_as_scd_type == 2 else []
    but += ["values that the source leaves out stand"] if options.is_partial else []
    return _told(job, _wrong(found, existing, shape), shape.keys, _detail(job, what, but))


def is_open() -> Column:
    """Tell whether a row of the target's history is open."""
    from pyspark.sql import functions as F

    return F.col(difference.FOUND_END).isNull()


# -- states -------------------------------------------------------------------------------------
def _states(job: StepContext) -> tuple[DataFrame, Shape]:
    """Return the source's rows as of the watermark: keys, values, and whether they are comparable."""
    from pyspark.sql import functions as F

    found, shape = load.read(job)
    keys = [F.col(quote(key)) for key in shape.keys]
    told = repair.as_upserts(job, found.where(~b.null_key(shape)), shape)
    told = told.withColumn(_UNUSABLE, repair.unusable(shape))
    per_key = told.groupBy(*keys).agg(F.count("*").alias(_COPIES), F.max(_UNUSABLE).alias(_UNUSABLE))
    if not job.options.is_partial:
        first = told.groupBy(*keys).agg(
            F.first(states.AFTER).alias(states.AFTER),
            F.count("*").alias(_COPIES),
            F.max(_UNUSABLE).alias(_UNUSABLE),
        )
        return first.withColumn(intervals.DELETED, F.lit(False)), shape
    current = difference.target_rows(job.session, job.spec.target_uri, shape, job.options)
    if job.options.stored_as_scd_type == 2:
        current = current.where(is_open())
    of_keys = timeline.of_events(told, shape, reserved_columns.ORDER)
    whole = timeline.of_target(current, of_keys, shape).unionByName(of_keys)
    last = intervals.last_states(intervals.inherited(whole, shape, job.options), shape)
    made = last.select(*keys, states.AFTER, intervals.DELETED)
    return made.join(per_key, on=list(shape.keys)), shape


# -- events -------------------------------------------------------------------------------------
def _events(job: StepContext) -> Check:
    from pyspark.sql import functions as F

    options = job.options
    job.truncated = options.apply_as_truncates is not None
    shape = repair.event_shape(job)
    horizon = (
        f"rows closed before the lateness horizon, {job.step.horizons[-1][1]}, stand"
        if (job.step.horizons and options.stored_as_scd_type == 2)
        else ""
    )
    detail = _detail(job, "rows", [horizon] if horizon else [])
    if options.stored_as_scd_type == 2:
        made = from_events.from_all_events(job, KeySelection(), None, shape, ()).rows
        kind = F.create_map(*[F.lit(text) for pair in _KINDS.items() for text in pair])
        wrong = made.where(~b.null_key(shape)).withColumn(KIND, kind[F.col(difference.OPERATION)])
        return _told(job, wrong, (*shape.keys, intervals.START), detail)
    whole = from_events.desired_entries(job, KeySelection(), None, shape, (), None)
    last = intervals.last_states(intervals.inherited(whole, shape, options), shape)
    made = last.select(
        *[quote(key) for key in shape.keys], states.AFTER, intervals.DELETED, intervals.FROM_NOTHING
    )
    made = made.withColumn(_COPIES, F.lit(1)).withColumn(_UNUSABLE, F.lit(False))
    existing = difference.target_rows(job.session, job.spec.target_uri, shape, options)
    return _told(job, _wrong(made, existing, shape), shape.keys, detail)


# -- by key -------------------------------------------------------------------------------------
def _wrong(made: DataFrame, existing: DataFrame, shape: Shape) -> DataFrame:
    """Return the keys whose row differs from the expected one, with :data:`KIND`.

    :param made: the expected keys and values, whether the row is deleted, how many source rows have the key,
        and whether one of them is unusable
    :param existing: :func:`delta_cdc.spark.apply.difference.target_rows`, at most one per key
    """
    from pyspark.sql import functions as F

    both = made.join(existing.where(~b.null_key(shape)), on=list(shape.keys), how="full")
    there = F.col(difference.FOUND).isNotNull()
    marked = F.lit(False)
    if intervals.FOUND_DELETED in existing.columns:
        marked = F.coalesce(F.col(intervals.FOUND_DELETED), F.lit(False))
    lives, living = F.coalesce(~F.col(intervals.DELETED), F.lit(False)), there & ~marked
    differs = ~same(difference.FOUND, states.AFTER, shape.schema, shape.values)
    # A deleted row that stays in the target (soft delete), if the source has its last values.
    stays = F.lit(intervals.FOUND_DELETED in existing.columns) & ~lives & F.col(states.AFTER).isNotNull()
    kind = (
        F.when(F.coalesce(F.col(_UNUSABLE), F.lit(False)), F.lit(None))
        .when(F.col(_COPIES) > 1, TWICE)
        .when(lives & ~living, MISSING)
        .when(~lives & living, SURPLUS)
        .when(lives & differs, CHANGED)
        .when(stays & ~there, MISSING)
        .when(stays & differs, CHANGED)
    )
    if intervals.FROM_NOTHING in made.columns:
        # Upserts without effect leave no row, not even one that is marked as deleted.
        nothing = F.col(intervals.FROM_NOTHING) & F.col(states.AFTER).isNull()
        kind = kind.when(there & nothing, SURPLUS)
    return both.withColumn(KIND, kind).where(F.col(KIND).isNotNull())


def _told(job: StepContext, wrong: DataFrame, keys: Sequence[str], detail: str) -> Check:
    from pyspark.sql import functions as F

    wrong = wrong.select(*[quote(key) for key in keys], KIND).localCheckpoint()
    counts = {row[KIND]: row["count"] for row in wrong.groupBy(KIND).count().collect()}
    if not counts:
        return ok(EQUALS_SOURCE, f"{detail}.")
    samples: list[str] = []
    for kind in sorted(counts):
        found = wrong.where(F.col(KIND) == kind)
        samples += [f"{kind}: {text}" for text in keys_of(found, keys)]
    told = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    shown = _spread(samples, len(counts))
    return finding(
        EQUALS_SOURCE,
        f"{told} ({detail}).",
        _REMEDY if set(counts) != {TWICE} else _TWICE,
        count=sum(counts.values()),
        samples=tuple(text.replace(intervals.START, job.options.start_column) for text in shown),
    )


def _spread(samples: list[str], kinds: int) -> list[str]:
    """Order samples so that the first MOST_SAMPLES contain every kind."""
    share = max(1, MOST_SAMPLES // kinds)
    taken: dict[str, int] = {}
    first: list[str] = []
    rest: list[str] = []
    for text in samples:
        kind = text.partition(":")[0]
        taken[kind] = taken.get(kind, 0) + 1
        (first if taken[kind] <= share else rest).append(text)
    return [*first, *rest]


def _detail(job: StepContext, what: str, but: Sequence[str]) -> str:
    told = f"{what} against version {job.step.at} of {job.source}"
    return "; ".join([told, *but])


# -- without keys -------------------------------------------------------------------------------
def _without_keys(job: StepContext, *, keeps_all: bool) -> Check:
    """Compare how often each row occurs on both sides, by its hash."""
    from pyspark.sql import functions as F

    found, shape = load.read(job)
    existing = difference.target_rows(job.session, job.spec.target_uri, shape, job.options)
    state = F.struct(*[F.col(quote(name)) for name in shape.values])
    sides = [
        found.select(state.alias(states.AFTER), F.lit(1).alias(_N)),
        existing.select(F.col(difference.FOUND).alias(states.AFTER), F.lit(-1).alias(_N)),
    ]
    value = comparable(F.col(states.AFTER), shape.schema)
    shown = ", ".join(f"{quote(states.AFTER)}.{quote(name)}" for name in shape.values[:3])
    counted = (
        sides[0]
        .unionByName(sides[1])
        .select(F.xxhash64(value).alias(_HASH), _N, F.expr(f"cast(struct({shown}) AS string)").alias(_TEXT))
        .groupBy(_HASH)
        .agg(F.sum(_N).alias(_N), F.first(_TEXT).alias(_TEXT))
    )
    wrong = counted.where(F.col(_N) > 0 if not keeps_all else F.col(_N) != 0).localCheckpoint()
    totals = wrong.agg(
        F.coalesce(F.sum(F.greatest(F.col(_N), F.lit(0))), F.lit(0)).alias(MISSING),
        F.coalesce(F.sum(F.greatest(-F.col(_N), F.lit(0))), F.lit(0)).alias(SURPLUS),
    ).collect()[0]
    but = [] if keeps_all else ["what the source has expired stays in the target"]
    detail = _detail(job, "rows, by count and hash,", but)
    if not totals[MISSING] and not totals[SURPLUS]:
        return ok(EQUALS_SOURCE, f"{detail}.")
    kind = F.when(F.col(_N) > 0, MISSING).otherwise(SURPLUS)
    rows = wrong.select(F.concat(kind, F.lit(": "), F.col(_TEXT)).alias(_TEXT)).limit(MOST_SAMPLES).collect()
    told = ", ".join(f"{totals[name]} {name}" for name in (MISSING, SURPLUS) if totals[name])
    return finding(
        EQUALS_SOURCE,
        f"{told} ({detail}).",
        _NO_KEYS,
        count=totals[MISSING] + totals[SURPLUS],
        samples=tuple(row[_TEXT] for row in rows),
    )
