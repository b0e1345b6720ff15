"""Hold a prepared step against the limits of its run (:mod:`delta_cdc.core.guard`), before it commits.

A step that a person must approve anyway (``approval_for``) is stopped in the same way.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delta_cdc.core import codec
from delta_cdc.core.errors import LimitExceeded
from delta_cdc.core.guard import Effect, approval, described, nothing_written, of_another_change
from delta_cdc.core.sql import quote
from delta_cdc.core.uris import short_name
from delta_cdc.spark.apply import target_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.guard import Copy
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.prepared_step import PreparedStep

log = logging.getLogger(__name__)

#: The most keys that an error names.
_SAMPLES = 3


def exceeded(
    session: SparkSession, spec: ApplySpec, step: Step, prepared: PreparedStep
) -> LimitExceeded | None:
    """Return the error for a step that exceeds a limit, or that a person must approve; None for any other.

    Without limits, and for a step that writes no rows, this costs nothing. A step whose batch has no more
    changes than the limits allow costs nothing either. Otherwise Spark computes the MERGE once without
    writing.

    :return: names the limits, the counts, some keys, and the text that approves the step
    """
    guard, shape = spec.guard, prepared.shape
    if step.kind in ("load", "reset") and guard.min_source_rows is not None and not step.read.is_empty:
        rows = prepared.inserts.count() if prepared.inserts is not None else 0
        if rows < guard.min_source_rows:
            return LimitExceeded(
                f"The {step.kind} of {short_name(spec.source_uri)} ({step}) into {spec.target_uri} was "
                f"stopped: it would write {rows} rows, and min_source_rows is {guard.min_source_rows}. "
                f"{_written(spec, step)}",
                remedy="look whether the source is whole; or lower min_source_rows.",
                argument="limits",
            )
    refused = _broken_copy(spec, step, prepared.copies)
    if refused is not None:
        return refused
    why = guard.reason_to_ask(step.seal_number)
    if why is None and not _may_exceed(spec, step, prepared):
        return None
    found = _effect(session, spec, step, prepared)
    if found is None:
        return None
    effect, ended = found
    texts = list(guard.exceeded(effect))
    if why is not None:
        replaces = step.kind == "reset" and ended is not None
        texts = [why, *(texts or [described(effect, replaces=replaces)])]
    if not texts:
        return None
    keys = shape.keys if shape is not None else ()
    samples = _named(ended, keys) if ended is not None and effect.deleted and keys else ""
    return _error(spec, step, texts, effect, samples)


def _broken_copy(spec: ApplySpec, step: Step, copies: tuple[Copy, ...]) -> LimitExceeded | None:
    """Return the error for a full copy that has too few rows, by the same rules as for a version that is one.

    See :func:`delta_cdc.planning.preconditions.refuse_shrunk_copy`.
    """
    least, column = spec.guard.min_source_rows, spec.options.snapshot_version_column
    whole = "look whether the copy is whole. If it is not, deliver its other rows, and run once with "
    whole += "mode='reload'."
    not_applied = f"of {short_name(spec.source_uri)} was not applied to {spec.target_uri}: it has"
    for copy in copies:
        if least is not None and copy.rows < least:
            return LimitExceeded(
                f"The copy {column} = {copy.name} {not_applied} {copy.rows} rows, and min_source_rows is "
                f"{least}. {_written(spec, step)}",
                remedy=f"{whole} If it is right, lower min_source_rows.",
                argument="limits",
            )
    shrunk = [copy for copy in copies if copy.has_shrunk]
    if not shrunk:
        return None
    first = shrunk[0]
    # One approval is of all copies of the step.
    text = _approval(
        spec, step, Effect(first.before or 0, (first.before or 0) - first.rows, 0), copies=shrunk
    )
    if text == spec.guard.approved:
        return None
    others = f" (and {len(shrunk) - 1} more)" if len(shrunk) > 1 else ""
    return LimitExceeded(
        f"The copy {column} = {first.name}{others} {not_applied} {first.rows} rows, and the copy before it "
        f"has {first.before}; by default, a copy must have more than half of the rows of the one before."
        f"{of_another_change(spec.guard.approved)} {_written(spec, step)}",
        remedy=f"{whole} If it is right, run once with approve = {text}; or set max_deleted in limits, such "
        "as '80 %'.",
        argument="limits",
        approval=text,
    )


def _may_exceed(spec: ApplySpec, step: Step, prepared: PreparedStep) -> bool:
    """Return whether a step may exceed a limit, as far as that costs nothing."""
    if not spec.guard.limits_rows or step.planned_on is None or prepared.shape is None:
        return False
    changed = prepared.changed if prepared.merge is not None else None
    return changed is None or not spec.guard.allows_any(changed)


def _effect(
    session: SparkSession, spec: ApplySpec, step: Step, prepared: PreparedStep
) -> tuple[Effect, DataFrame | None] | None:
    """Return what a step does, and the rows that it ends, if they have keys; None if it writes no rows."""
    shape = prepared.shape
    if prepared.merge is not None and shape is not None:
        dead = target_columns.gone(spec.options, shape.sequence_type)
        ends = prepared.merge.ends(session, shape.keys, dead)
        deleted, changed = F.count_if(ends.ended), F.count("*")
        counted = ends.keys.agg(deleted.alias("deleted"), changed.alias("changed")).collect()[0]
        rows = _current(session, spec).count()
        return Effect(rows, counted["deleted"], counted["changed"]), ends.keys.where(ends.ended)
    if step.kind == "reset":
        if prepared.inserts is not None and shape is not None and shape.keys:
            return _replaced(session, spec, prepared.inserts, shape.keys)
        # Without keys, or from a source without rows: no row is known to stay.
        old = _current(session, spec).count()
        new = prepared.inserts.count() if prepared.inserts is not None else 0
        return Effect(old, old, old + new), None
    if step.kind == "apply" and prepared.inserts is not None:
        new = prepared.inserts.count()
        return Effect(_current(session, spec).count(), 0, new), None
    return None


def _replaced(
    session: SparkSession, spec: ApplySpec, rows: DataFrame, keys: tuple[str, ...]
) -> tuple[Effect, DataFrame]:
    """Return what a replacement of all rows does, and the keys that the new rows lack.

    Changed are the keys that go and those that come; rows of other keys count as unchanged.
    """
    names = [quote(key) for key in keys]
    old = _current(session, spec).select(*names).distinct()
    new = target_columns.current(rows, spec.options).select(*names).distinct()
    gone, come = old.join(new, on=list(keys), how="left_anti"), new.join(old, on=list(keys), how="left_anti")
    deleted = gone.count()
    return Effect(old.count(), deleted, deleted + come.count()), gone


def _error(
    spec: ApplySpec, step: Step, texts: list[str], effect: Effect, samples: str
) -> LimitExceeded | None:
    """Return the error; None if a person approved exactly this step."""
    text = _approval(spec, step, effect)
    if text == spec.guard.approved:
        log.info("%s: %s, which approve = %s allows", spec.pipeline, "; ".join(texts), text)
        return None
    other = of_another_change(spec.guard.approved)
    needs_approval = spec.guard.reason_to_ask(step.seal_number) is not None
    shown = f" Some of the rows that it would end: {samples}." if samples else ""
    return LimitExceeded(
        f"The {step.kind} of {short_name(spec.source_uri)} ({step}) into {spec.target_uri} was stopped: "
        f"{'; '.join(texts)}.{shown}{other} {_written(spec, step)}",
        remedy="look whether the source is whole. If the change is right, run once with "
        f"approve = {text}" + ("." if needs_approval else "; or raise the limit."),
        argument="approval_for" if needs_approval else "limits",
        approval=text,
    )


def _approval(spec: ApplySpec, step: Step, effect: Effect, **more: object) -> str:
    return approval(
        step.ending_version,
        effect,
        pipeline=spec.pipeline,
        options=spec.options,
        kind=step.kind,
        versions=step.versions,
        read=codec.identity(step.read),
        source=step.watermark,
        target=step.planned_on,
        **more,
    )


def _written(spec: ApplySpec, step: Step) -> str:
    earlier = [each.kind for each in spec.steps if each.seal_number < step.seal_number]
    return nothing_written([] if spec.dry_run else earlier)


def _current(session: SparkSession, spec: ApplySpec) -> DataFrame:
    """Return the current rows of the target: of a history the open ones, without deleted ones."""
    return target_columns.current(session.read.format("delta").load(spec.target_uri), spec.options)


def _named(rows: DataFrame, keys: tuple[str, ...]) -> str:
    shown = [F.col(quote(key)).cast("string").alias(key) for key in keys]
    found = rows.select(*shown).limit(_SAMPLES).collect()
    return "; ".join(", ".join(f"{key} = {row[key]}" for key in keys) for row in found)
