"""Apply events: compute the rows of the affected keys from events, and write the difference to the target.

A batch is *in order* if every event lies above the highest sequence applied before: the target's open row is
then the state of its key. Keys with a late event are recomputed from all of their events in the log; so are
all keys if a truncate is late, or if a log is loaded or reloaded.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import partial
from operator import or_
from typing import TYPE_CHECKING

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import (
    ConfigurationDrift,
    ConflictingEvents,
    InvalidConfiguration,
    KeyNotUnique,
    SnapshotNotAscending,
)
from delta_cdc.core.spec import DELETED_COLUMN, ApplyStep, LoadStep, RepairStep, segments_of
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.core.watermark import newest
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import boundary as clip
from delta_cdc.spark.apply import (
    conflicts,
    difference,
    events,
    from_feed,
    intervals,
    layout,
    load,
    partial_columns,
    quarantine,
    rows,
    scd2,
    schema,
    timeline,
)
from delta_cdc.spark.apply.prepared_step import Work
from delta_cdc.spark.apply.sequences import as_text, from_text, greater
from delta_cdc.spark.apply.timeline import Selection
from delta_cdc.spark.changes import rows as captured
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import balanced, comparable
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from delta_cdc.core.spec import ApplyOptions, ApplySpec, RowStep
    from delta_cdc.spark.apply.events import Checked
    from delta_cdc.spark.apply.merge import Merge
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)

#: Most truncates that a seal keeps; they only show that the log has some.
_KEPT_TRUNCATES = 100
#: Stands for an unknown number of rows: above every limit.
_UNKNOWN = 1 << 40
_BEFORE, _TWICE = f"{PLAN_PREFIX}sequence_before", f"{PLAN_PREFIX}twice"
_NEW = f"{PLAN_PREFIX}new"


@dataclass
class Job:
    """One step over events: the context that its parts share, and the counts they add to.

    :param truncated: the source may contain truncates
    :param size: number of events, if it limits how many rows of the target are affected; else None
    """

    session: SparkSession
    spec: ApplySpec
    step: RowStep
    options: ApplyOptions
    truncated: bool = False
    size: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    aside: list[DataFrame] = field(default_factory=list)

    @property
    def source(self) -> str:
        """Return the source, for messages."""
        return self.spec.source_uri

    @property
    def versions(self) -> str:
        """Return the range, for messages."""
        return f"versions {self.step.starting_version}-{self.step.ending_version}"

    @property
    def replays(self) -> bool:
        """Return whether the step is a repair of the keys in quarantine."""
        return isinstance(self.step, RepairStep) and self.step.replayed

    def events(self, source_rows: DataFrame, options: ApplyOptions | None = None) -> events.Events:
        """Read rows of the source as events, see :func:`delta_cdc.spark.apply.events.of_rows`."""
        return events.of_rows(
            source_rows, options or self.options, self.source, self.step.horizons, keep_raw=self.replays
        )

    @property
    def is_small(self) -> bool:
        """Return whether the affected keys are few."""
        return self.size is not None and self.size <= layout.MOST_SENT

    def count(self, **more: int) -> None:
        """Add counts; omit zeros, except for events."""
        for name, number in more.items():
            if number or name == "events":
                self.counts[name] = self.counts.get(name, 0) + number

    def set_aside(self, found: DataFrame, shape: Shape, reason: Column) -> None:
        """Keep events for the quarantine."""
        from pyspark.sql import functions as F

        sequence = F.lit(None).cast("string")
        if shape.order_type is not None:
            sequence = as_text(F.col(states.SEQUENCE), shape.order_type)
        self.aside.append(
            quarantine.rows(
                found,
                spec=self.spec,
                step=self.step,
                reason=reason,
                keys=shape.keys,
                sequence=sequence,
                event=F.col(events.RAW),
                commit_version=F.col(reserved_columns.COMMIT_VERSION),
            )
        )

    def quarantined(self) -> DataFrame | None:
        """Return all rows for the quarantine."""
        rows = None
        for more in self.aside:
            rows = more if rows is None else rows.unionByName(more)
        return rows


def job_of(session: SparkSession, spec: ApplySpec, step: RowStep) -> Job:
    """Return the job of a step."""
    return Job(session, spec, step, events.effective(spec.options), truncated=bool(step.truncate_sequences))


# -- reading ------------------------------------------------------------------------------------
def batch_rows(job: Job) -> DataFrame:
    """Return the rows added in the step's range, with the version that added them."""
    from pyspark.sql import functions as F

    columns = job.step.source_columns
    found = captured.change_rows(
        job.session,
        job.source,
        segments_of((job.step,)),
        columns,
        at=job.step.at,
        slices_uri=job.spec.slices_uri,
    )
    inserted = found.where(F.col(reserved_columns.CHANGE_TYPE) == "insert")
    return inserted.select(*[quote(name) for name in columns], reserved_columns.COMMIT_VERSION)


def all_rows(job: Job) -> DataFrame:
    """Return all rows of the source as of the step, with the version that added them if it is needed.

    Below the allowed lateness some events count, and others came too late to count. To recompute from all
    events, we distinguish them by the version that added them, which only a log with row tracking records.
    """
    from pyspark.sql import functions as F

    columns = [quote(name) for name in job.step.source_columns]
    found = _as_of_step(job)
    if job.step.at < 0:
        found = found.limit(0)
    added = F.lit(None).cast("bigint")
    if job.step.horizons and _tracks_rows(found):
        added = F.col("_metadata.row_commit_version")
    return found.select(*columns, added.alias(reserved_columns.COMMIT_VERSION))


def _as_of_step(job: Job) -> DataFrame:
    return job.session.read.format("delta").option("versionAsOf", max(job.step.at, 0)).load(job.source)


def _tracks_rows(found: DataFrame) -> bool:
    from pyspark.errors import AnalysisException

    try:
        with quietly():
            return bool(found.select("_metadata.row_commit_version").columns)
    except AnalysisException:
        return False


def _checked(job: Job, rows: DataFrame) -> tuple[Checked, Shape, DataFrame]:
    """Return checked events, their shape, and rows with the sequence of every snapshot or event."""
    from pyspark.sql import functions as F

    found = job.events(rows)
    checked = events.checked(found, job.options, job.step, job.source, job.versions)
    if checked.counts["discarded"] and not _tracks_rows(_as_of_step(job)):
        raise InvalidConfiguration(
            f"{checked.counts['discarded']} event(s) of {job.source}, {job.versions}, came too late and are "
            "to be discarded, but the log does not track its rows: a later cut of their keys could not tell "
            "them from events that count.",
            remedy="set delta.enableRowTracking on the log, or take these events out of it.",
        )
    job.count(**checked.counts)
    if checked.invalid is not None:
        job.set_aside(checked.invalid, found.shape, F.col(events.REASON))
    # A snapshot still counts if none of its rows remains.
    partly = job.options.where is not None or checked.invalid is not None
    return checked, found.shape, found.sequences if partly else checked.events


def _resolved(job: Job, found: DataFrame, shape: Shape) -> DataFrame:
    """Return events after resolving conflicts."""
    from pyspark.sql import functions as F

    try:
        one, aside, tied = conflicts.resolved(found, shape, job.options, job.source, job.versions)
    except ConflictingEvents as error:
        if job.options.source_kind != "snapshot":
            raise
        raise KeyNotUnique(
            f"A snapshot of {job.source}, {job.versions}, has different rows with one key. {error.message}",
            remedy="add columns to keys until a row is unique, or remove the duplicates from the source.",
        ) from error
    job.count(tied=tied)
    if aside is not None:
        job.count(quarantined=aside.count())
        job.set_aside(aside, shape, F.lit("tied"))
    return one


# -- a range ------------------------------------------------------------------------------------
def apply(session: SparkSession, spec: ApplySpec, step: RowStep) -> Work:
    """Prepare the MERGE of a range of a change log, or of a table of snapshots."""
    from pyspark.sql import functions as F

    job = job_of(session, spec, step)
    checked, shape, every = _checked(job, batch_rows(job))
    refuse_other_order(job, shape)
    highest = checked.highest
    evolve = schema.check_target(session, spec, schema.target_schema(shape, spec.options))
    pruning = b.pruning(checked.batch)
    job.truncated = job.truncated or bool(checked.truncates)
    if job.options.source_kind == "change_log" and not checked.truncates:
        job.size = checked.counts["events"]
    found = checked.events.withColumn(conflicts.IN_BATCH, F.lit(True))
    if job.options.source_kind == "snapshot":
        highest = _newest(job, every, shape)
        made, pruning = [_in_order(job, found, shape, (), everything=True, copies=every)], []
    elif checked.late_truncates:
        made, pruning = [cut_again(job, Selection(), found, shape, ())], []
    else:
        made = _by_lateness(job, checked, found, shape, pruning)
        pruning = [] if checked.truncates else pruning
    merge = merged(job, made, shape, pruning, evolve=evolve)
    truncates = (
        *step.truncate_sequences,
        *(t for t in checked.truncates if t not in step.truncate_sequences),
    )
    return work(job, merge, shape, highest, truncates)


def refuse_other_order(job: Job, shape: Shape) -> None:
    """Refuse a sequence whose type differs from that of the highest one applied.

    :raises ConfigurationDrift: names both
    """
    assert shape.order_type is not None
    before = job.step.before.configuration if job.step.before is not None else {}
    was, now = before.get("sequence_by_type"), shape.order_type.simpleString()
    if was is not None and was != now:
        raise ConfigurationDrift(
            f"{job.spec.target_uri} was built with a sequence of type {was}, and sequence_by gives {now}.",
            remedy="keep the type of sequence_by, or build a new target under a new pipeline name.",
        )


def work(job: Job, merge: Merge, shape: Shape, highest: str | None, truncates: Sequence[str]) -> Work:
    """Return a prepared step.

    :param highest: greatest sequence of its events, as text
    :param truncates: for the seal, including earlier ones
    """
    log.debug("%s", merge.statement)
    return Work(
        partial(merge.run, job.session),
        counts=job.counts,
        highest_sequence=greater(job.session, shape.order_type, job.step.highest_sequence, highest),
        shape=shape,
        truncate_sequences=newest(truncates, _KEPT_TRUNCATES),
        merge=merge,
        quarantined=job.quarantined(),
    )


def _newest(job: Job, every: DataFrame, shape: Shape) -> str | None:
    """Return the sequence of the newest snapshot.

    :raises SnapshotNotAscending: a snapshot is not newer than the last one applied
    """
    from pyspark.sql import functions as F

    order_type, applied = shape.order_type, job.step.highest_sequence
    assert order_type is not None
    sequence, late = F.col(states.SEQUENCE), F.lit(0)
    if applied is not None:
        late = F.count_if(sequence <= from_text(applied, order_type))
    newest = as_text(F.max(sequence), order_type)
    found = every.agg(newest.alias("newest"), late.alias("late")).collect()[0]
    if found["late"]:
        raise SnapshotNotAscending(
            f"{found['late']} row(s) of {job.source}, {job.versions}, belong to a snapshot that is not newer "
            f"than {applied}, the last one applied.",
            remedy="deliver snapshots whole and in order; mode='reload' takes the newest one as it is.",
        )
    return None if found["newest"] is None else str(found["newest"])


def _by_lateness(
    job: Job, checked: Checked, found: DataFrame, shape: Shape, pruning: Sequence[str]
) -> list[Cut]:
    from pyspark.sql import functions as F

    everything = bool(checked.truncates)
    if not checked.late:
        return [_in_order(job, found, shape, pruning, everything=everything)]
    assert job.step.highest_sequence is not None
    assert shape.order_type is not None
    late = F.col(states.SEQUENCE) <= from_text(job.step.highest_sequence, shape.order_type)
    keys = found.where(late).select(*[quote(key) for key in shape.keys]).distinct().localCheckpoint()
    again = cut_again(job, Selection(keys, small=job.is_small), found, shape, pruning)
    rest = found.join(keys, on=list(shape.keys), how="left_anti")
    if not everything and rest.isEmpty():
        return [again]
    return [again, _in_order(job, rest, shape, pruning, everything=everything, without=keys)]


# -- recomputing --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Cut:
    """The rows to be written for some keys.

    :param rows: of :mod:`delta_cdc.spark.apply.difference`
    :param compared: they exclude rows that are already the same in the target
    :param lazy: computing them reads rows of the target
    """

    rows: DataFrame
    compared: bool
    lazy: bool = True


def _in_order(
    job: Job,
    found: DataFrame,
    shape: Shape,
    pruning: Sequence[str],
    *,
    everything: bool,
    without: DataFrame | None = None,
    copies: DataFrame | None = None,
) -> Cut:
    """Compute rows of keys on top of the target's current rows.

    :param everything: all keys of the target are affected (truncates, snapshots), not only those with events
    :param without: keys that are excluded here
    :param copies: the sequences of the snapshots; None for a log
    """
    from pyspark.sql import functions as F

    options = job.options
    resolved = _resolved(job, found, shape)
    of_keys = timeline.of_events(resolved.where(F.col(events.KIND) != events.TRUNCATE), shape)
    history = options.stored_as_scd_type == 2
    if history or everything or options.is_partial:
        pruning = [] if everything else pruning
        current = difference.target_rows(job.session, job.spec.target_uri, shape, options, pruning)
        if history:
            current = current.where(F.col(difference.FOUND_END).isNull())
        if not everything:
            chosen = of_keys.select(*[quote(key) for key in shape.keys])
            current = Selection(chosen, small=job.is_small).of(current, shape)
        elif without is not None:
            current = current.join(without, on=list(shape.keys), how="left_anti")
        of_keys = timeline.of_target(current, of_keys, shape).unionByName(of_keys)
        compared = True
    else:
        compared = False
    if copies is not None:
        of_keys = timeline.with_absences(of_keys, copies, shape)
    elif everything:
        of_keys = timeline.with_truncates(
            of_keys, resolved.where(F.col(events.KIND) == events.TRUNCATE), shape
        )
    whole = intervals.inherited(of_keys, shape, options)
    if history:
        return Cut(difference.against_base(intervals.runs(whole, shape), shape), compared)
    last = intervals.last_states(whole, shape)
    made = difference.operations(last, shape, options, compared=compared)
    return Cut(made, compared, lazy=compared)


def cut_again(
    job: Job, selection: Selection, batch: DataFrame | None, shape: Shape, pruning: Sequence[str]
) -> Cut:
    """Recompute rows of keys from all of their events in the source.

    :param batch: the new events, for counts; None if no event is new
    """
    from pyspark.sql import functions as F

    options, met = job.options, None
    existing = selection.of(
        difference.target_rows(job.session, job.spec.target_uri, shape, options, pruning), shape
    )
    if options.source_kind == "snapshot" and options.stored_as_scd_type == 2:
        met, existing = _since_oldest(job, existing, shape)
    of_keys = desired_entries(job, selection, batch, shape, pruning, met)
    whole = intervals.inherited(of_keys, shape, options)
    if options.stored_as_scd_type == 2:
        runs = intervals.runs(whole, shape)
        if job.step.horizons:
            assert shape.order_type is not None
            boundary = from_text(job.step.horizons[-1][1], shape.order_type)
            runs, existing = clip.at_horizon(runs, existing, shape, boundary)
        return Cut(difference.against_rows(runs, existing, shape), compared=True)
    # Each event of this batch is in its key's timeline, unless all its key's events are quarantined.
    lazy = job.step.kind != "apply" or selection.is_all or options.on_conflict == "quarantine"
    if lazy:
        # Rows of the target whose key has no event: nothing in the log justifies them, so they go.
        whole = timeline.of_target(existing, whole, shape, dead=True).unionByName(whole)
        whole = whole.withColumn(intervals.BASE, F.lit(None).cast(whole.schema[intervals.BASE].dataType))
    last = intervals.last_states(whole, shape)
    return Cut(difference.operations(last, shape, options, compared=False), compared=False, lazy=lazy)


def _since_oldest(job: Job, existing: DataFrame, shape: Shape) -> tuple[DataFrame, DataFrame]:
    """Keep history from before the oldest snapshot that still exists.

    :return: rows of the target: per key the row that is open at the oldest snapshot, and all rows that are
        open or end at or after it
    """
    from pyspark.sql import functions as F

    order_type = shape.order_type
    assert order_type is not None
    every = job.events(all_rows(job)).sequences
    oldest = every.agg(as_text(F.min(states.SEQUENCE), order_type).alias("oldest")).collect()[0]["oldest"]
    if oldest is None:
        return existing.limit(0), existing.limit(0)
    boundary = from_text(oldest, order_type)
    end = F.col(difference.FOUND_END)
    touched = existing.where(end.isNull() | (end >= boundary))
    return touched.where(F.col(intervals.START) < boundary), touched


def desired_entries(
    job: Job,
    selection: Selection,
    batch: DataFrame | None,
    shape: Shape,
    pruning: Sequence[str],
    met: DataFrame | None,
) -> DataFrame:
    """Return the timeline of keys from all of their events in the source, including truncates.

    :param met: rows of the target that come before the events
    """
    from pyspark.sql import functions as F

    options = job.options
    found = job.events(all_rows(job), options)
    valid = found.rows.where(F.col(events.REASON).isNull())
    is_truncate = F.col(events.KIND) == events.TRUNCATE
    of_keys = valid.where(~is_truncate).alias("t") if options.apply_as_truncates else valid.alias("t")
    for condition in pruning:
        of_keys = of_keys.where(F.expr(condition))
    of_keys = selection.of(of_keys, shape)
    of_keys = of_keys.repartition(*[F.col(quote(key)) for key in shape.keys]).localCheckpoint()
    # Replayed events are treated as new.
    news = F.lit(job.replays)
    if job.replays:
        _set_aside_again(job, selection.of(found.rows.where(F.col(events.REASON).isNotNull()), shape), shape)
    if batch is not None:
        place = [*shape.keys, states.SEQUENCE]
        new = (
            batch.select(*[quote(name) for name in place])
            .distinct()
            .withColumn(conflicts.IN_BATCH, F.lit(True))
        )
        of_keys = of_keys.join(new, on=place, how="left")
        news = F.coalesce(F.col(conflicts.IN_BATCH), F.lit(False))
    resolved = _resolved(job, of_keys.withColumn(conflicts.IN_BATCH, news), shape)
    made = timeline.of_events(resolved, shape)
    if rows.marks_deletes(options):
        made = timeline.with_beginnings(made, of_keys, shape)
    if options.source_kind == "snapshot":
        if met is not None:
            made = timeline.of_target(met, made, shape).unionByName(made)
        return timeline.with_absences(made, found.sequences, shape)
    if job.truncated:
        made = timeline.with_truncates(made, valid.where(is_truncate), shape)
    return made


def _set_aside_again(job: Job, invalid: DataFrame, shape: Shape) -> None:
    """Keep events that still cannot be applied in the quarantine, under the new seal."""
    from pyspark.sql import functions as F

    invalid = invalid.localCheckpoint()
    job.count(quarantined=invalid.count())
    if job.counts.get("quarantined"):
        job.set_aside(invalid, shape, F.col(events.REASON))


def merged(job: Job, made: Sequence[Cut], shape: Shape, pruning: Sequence[str], *, evolve: bool) -> Merge:
    """Return the MERGE that writes the computed rows."""
    rows = made[0].rows
    for other in made[1:]:
        rows = rows.unionByName(other.rows)
    target = job.spec.target_uri
    if job.options.stored_as_scd_type == 2:
        merge = difference.merge_history(target, rows, shape, job.options, pruning, evolve=evolve)
        return _tuned(job, merge)
    compared = all(one.compared for one in made)
    lazy = any(one.lazy for one in made)
    known = job.session.read.format("delta").load(target).schema
    merge = difference.merge_states(
        target, rows, shape, job.options, pruning, known=known, compared=compared, lazy=lazy, evolve=evolve
    )
    return _tuned(job, merge)


def _tuned(job: Job, merge: Merge) -> Merge:
    """Tune the MERGE to its size: an event changes at most three rows of history."""
    rewritten = 0 if job.size is None else job.size
    changed = _UNKNOWN if job.size is None else 3 * job.size
    size = sum(segment.size for segment in segments_of((job.step,)))
    return layout.tuned(job.session, merge, job.options, changed=changed, rewritten=rewritten, size=size)


# -- states whose events carry some of the columns ------------------------------------------------
def apply_states(session: SparkSession, spec: ApplySpec, step: RowStep) -> Work:
    """Prepare the MERGE of a range of a change feed whose upserts do not set every column."""
    from pyspark.sql import functions as F

    job = job_of(session, spec, step)
    found, shape = states_of(job)
    evolve = schema.check_target(session, spec, schema.target_schema(shape, spec.options))
    batch = checked_states(job, found, shape)
    pruning = b.pruning(batch)
    valid = batch.rows.where(F.col(events.REASON).isNull())
    if job.options.stored_as_scd_type == 2:
        _refuse_disorder(job, batch, valid, shape)
    of_keys = timeline.of_events(valid, shape, reserved_columns.ORDER)
    current = difference.target_rows(session, spec.target_uri, shape, job.options, pruning)
    history = job.options.stored_as_scd_type == 2
    if history:
        current = current.where(F.col(difference.FOUND_END).isNull())
    job.size = batch.totals["events"]
    chosen = of_keys.select(*[quote(key) for key in shape.keys])
    current = Selection(chosen, small=job.is_small).of(current, shape)
    if not history:
        current = _known_before(current, valid, shape)
    whole = timeline.of_target(current, of_keys, shape).unionByName(of_keys)
    whole = intervals.inherited(whole, shape, job.options)
    if history:
        rows = difference.against_base(intervals.runs(whole, shape), shape, growing=True, in_place=False)
    else:
        rows = difference.operations(intervals.last_states(whole, shape), shape, job.options, compared=True)
    merge = merged(job, [Cut(rows, compared=True)], shape, pruning, evolve=evolve)
    return work(job, merge, shape, batch.totals["highest"] if history else None, ())


def _known_before(current: DataFrame, valid: DataFrame, shape: Shape) -> DataFrame:
    """Let Spark raise if the source inserts a key that has a row (not deleted) in the target: a duplicate."""
    from pyspark.sql import functions as F

    keys = [F.col(quote(key)) for key in shape.keys]
    is_new = F.min_by(F.col(states.BEFORE).isNull(), reserved_columns.ORDER).alias(_NEW)
    found = current.join(valid.groupBy(*keys).agg(is_new), on=list(shape.keys))
    lives = F.lit(True)
    if intervals.FOUND_DELETED in current.columns:
        lives = ~F.col(intervals.FOUND_DELETED)
    told = F.concat(F.lit(b.DUPLICATE_MARK), keys[0].cast("string"))
    error = F.raise_error(told)
    state = F.when(F.col(_NEW) & lives, error).otherwise(F.col(difference.FOUND))
    return found.withColumn(difference.FOUND, state).drop(_NEW)


def _refuse_disorder(job: Job, batch: b.Batch, valid: DataFrame, shape: Shape) -> None:
    """Refuse sequences that do not increase from change to change of a key, or that lie in its history.

    :raises SequenceNotIncreasing: with sample keys
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    options = job.options
    if {*options.sequences, options.delete_sequence} <= {reserved_columns.COMMIT_VERSION, None}:
        return
    moves = valid.where(
        F.col(states.BEFORE).isNull() | F.col(states.AFTER).isNull() | _changes_tracked(shape, options)
    )
    along = Window.partitionBy(*[F.col(quote(key)) for key in shape.keys]).orderBy(reserved_columns.ORDER)
    before = F.lag(states.SEQUENCE).over(along)
    wrong = moves.withColumn(_BEFORE, before).where(F.col(_BEFORE) >= F.col(states.SEQUENCE))
    count = wrong.count()
    if count:
        sample = b.samples(wrong, shape.keys, F.lit(True))
        scd2.refuse_disorder(count, job.source, job.versions, sample, options)
    starts = moves.select(
        *[F.col(quote(key)) for key in shape.keys],
        F.lit("open").alias(scd2.KIND),
        F.col(states.SEQUENCE).alias(scd2.START),
    )
    told = replace(batch, rows=starts)
    highest, target = job.step.highest_sequence, job.spec.target_uri
    scd2.refuse_not_above_history(
        job.session, target, told, shape, options, highest, job.source, job.versions
    )


def _changes_tracked(shape: Shape, options: ApplyOptions) -> Column:
    """Return whether an update carries a tracked column with another value."""
    from pyspark.sql import functions as F

    changes = [F.lit(False)]
    for at, leaf in enumerate(partial_columns.leaves(shape, options)):
        if leaf.path[0] not in shape.tracked:
            continue
        carries = F.coalesce(F.get(F.col(events.AUTHORED), F.lit(at)), F.lit(True))
        sides = [comparable(leaf.of(F.col(side)), leaf.data_type) for side in (states.BEFORE, states.AFTER)]
        changes.append(carries & ~sides[0].eqNullSafe(sides[1]))
    return balanced(or_, changes)


def states_of(job: Job) -> tuple[DataFrame, Shape]:
    """Return the events of a change feed, with the state before each, and their shape."""

    options = job.options
    assert isinstance(job.step, ApplyStep | RepairStep)
    source_rows = from_feed.read(job.session, job.spec, job.step)
    told = rows.with_sequence(source_rows, options)
    keep = [*reserved_columns.METADATA_COLUMNS, reserved_columns.ORDER, states.SEQUENCE]
    carried = []
    if options.columns_to_update is not None:
        told = told.withColumn(events.CARRIED, events.carried(source_rows, options))
        carried = [events.CARRIED]
    found = rows.projected(told, options, (*keep, *carried))
    shape = rows.shape_of(found.drop(*carried), source_rows, options, job.source)
    changes = states.version_states(found, shape.keys, (*shape.values, *carried))
    return events.of_states(changes, shape, options, job.step.source_columns), shape


def checked_states(job: Job, found: DataFrame, shape: Shape) -> b.Batch:
    """Materialise the events of a feed once; refuse or quarantine what cannot be applied."""
    from pyspark.sql import Window
    from pyspark.sql import functions as F

    order_type = shape.order_type
    highest = F.lit(None).cast("string")
    if order_type is not None:
        highest = as_text(F.max(F.when(F.col(events.REASON).isNull(), F.col(states.SEQUENCE))), order_type)
    keys = [F.col(quote(key)) for key in shape.keys]
    lived = F.lag(F.col(states.AFTER).isNotNull()).over(
        Window.partitionBy(*keys).orderBy(reserved_columns.ORDER)
    )
    # Two states in one version, a state before that no change wrote, or a second row beside an existing one.
    broken = lived.isNotNull() & (lived != F.col(states.BEFORE).isNotNull())
    twice = (F.greatest(states.N_BEFORE, states.N_AFTER) > 1) | broken
    batch = b.materialise(
        found.withColumn(_TWICE, twice),
        shape.keys,
        {
            "events": F.coalesce(F.sum(F.col(states.N_BEFORE) + F.col(states.N_AFTER)), F.lit(0)),
            "unknown": F.coalesce(F.sum(states.UNKNOWN), F.lit(0)),
            "duplicates": F.count_if(_TWICE),
            **{reason: F.count_if(F.col(events.REASON) == reason) for reason in events.INVALID},
            "highest": highest,
        },
        only=F.col(events.REASON).isNull(),
    )
    totals = batch.totals
    b.refuse_unknown_types(totals["unknown"], job.source, job.versions)
    if totals["duplicates"]:
        sample = b.samples(batch.rows, shape.keys, F.col(_TWICE))
        b.refuse_duplicates(totals["duplicates"], job.source, job.versions, sample)
    events.refuse_invalid(batch, shape, job.options, job.source, job.versions)
    aside = sum(totals[reason] for reason in events.INVALID)
    job.count(events=totals["events"], quarantined=aside)
    if aside:
        job.set_aside(batch.rows.where(F.col(events.REASON).isNotNull()), shape, F.col(events.REASON))
    return batch


# -- load ---------------------------------------------------------------------------------------
def first(session: SparkSession, spec: ApplySpec, step: LoadStep) -> Work:
    """Prepare a load: apply all events of the source to a new target, or replace all rows of the target."""
    from pyspark.sql import functions as F

    job = job_of(session, spec, step)
    checked, shape, every = _checked(job, all_rows(job))
    found = checked.events.withColumn(conflicts.IN_BATCH, F.lit(True))
    is_truncate = F.col(events.KIND) == events.TRUNCATE
    resolved = _resolved(job, found.where(~is_truncate), shape)
    made = timeline.of_events(resolved, shape)
    copies = job.options.source_kind == "snapshot"
    if copies:
        made = timeline.with_absences(made, every, shape)
    if checked.truncates:
        made = timeline.with_truncates(made, found.where(is_truncate), shape)
    rows = desired_rows(intervals.inherited(made, shape, job.options), shape, job.options)
    if isinstance(step, LoadStep) and step.is_empty:
        rows = rows.limit(0)
    if step.planned_on is not None and step.kind != "reset":
        schema.check_target(session, spec, rows.schema)
    return Work(
        load.write_step(spec, step, rows, shape),
        counts=job.counts,
        highest_sequence=_newest(job, every, shape) if copies else checked.highest,
        shape=shape,
        truncate_sequences=newest(checked.truncates, _KEPT_TRUNCATES),
        inserts=rows,
        quarantined=job.quarantined(),
    )


def desired_rows(whole: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return the rows of a target, flat, that a timeline produces."""
    from pyspark.sql import functions as F

    values = [
        F.col(quote(name)) if name in shape.keys else F.col(states.AFTER).getField(name).alias(name)
        for name in shape.values
    ]
    if options.stored_as_scd_type == 2:
        history = [
            F.col(intervals.START).alias(options.start_column),
            F.col(intervals.END).alias(options.end_column),
        ]
        return intervals.runs(whole, shape).select(*values, *history)
    last = intervals.last_states(whole, shape)
    if options.delete_mode == "soft":
        kept = last.where(F.col(states.AFTER).isNotNull())
        return kept.select(*values, F.col(intervals.DELETED).alias(DELETED_COLUMN))
    return last.where(~F.col(intervals.DELETED)).select(*values)
