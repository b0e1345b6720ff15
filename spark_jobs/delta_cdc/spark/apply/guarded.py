"""Hold a prepared step against the limits of its run (:mod:`delta_cdc.core.guard`), before it commits."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from delta_cdc.core import codec
from delta_cdc.core.errors import LimitExceeded
from delta_cdc.core.guard import Effect, approval, of_another_change
from delta_cdc.core.sql import quote
from delta_cdc.core.uris import short_name
from delta_cdc.spark.apply import target_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.prepared_step import PreparedStep

log = logging.getLogger(__name__)

#: The most keys that an error names.
_SAMPLES = 3


def exceeded(
    session: SparkSession, spec: ApplySpec, step: Step, prepared: PreparedStep
) -> LimitExceeded | None:
    """Return the error for a step that exceeds a limit; None for any other step.

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
                "Nothing was written.",
                remedy="look whether the source is whole; or lower min_source_rows.",
                argument="limits",
            )
    if not guard.limits_rows or step.planned_on is None or shape is None:
        return None
    if prepared.merge is not None:
        if prepared.changed is not None and guard.allows_any(prepared.changed):
            return None
        dead = target_columns.gone(spec.options, shape.sequence_type)
        ends = prepared.merge.ends(session, shape.keys, dead)
        ended = ends.keys.where(ends.ended)
        deleted, changed = F.count_if(ends.ended), F.count("*")
        counted = ends.keys.agg(deleted.alias("deleted"), changed.alias("changed")).collect()[0]
        effect = Effect(_current(session, spec).count(), counted["deleted"], counted["changed"])
    elif step.kind == "reset" and prepared.inserts is not None and shape.keys:
        effect, ended = _replaced(session, spec, prepared.inserts, shape.keys)
    elif step.kind == "apply" and prepared.inserts is not None:
        rows = prepared.inserts.count()
        effect, ended = Effect(_current(session, spec).count(), 0, rows), prepared.inserts
    else:
        return None
    texts = list(guard.exceeded(effect))
    if not texts:
        return None
    samples = _named(ended, shape.keys) if effect.deleted and shape.keys else ""
    return _error(spec, step, texts, effect, samples)


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
    text = approval(
        step.ending_version,
        effect,
        pipeline=spec.pipeline,
        options=spec.options,
        kind=step.kind,
        versions=step.versions,
        read=codec.identity(step.read),
        source=step.watermark,
        target=step.planned_on,
    )
    if text == spec.guard.approved:
        log.info("%s: %s, which approve = %s allows", spec.pipeline, "; ".join(texts), text)
        return None
    other = of_another_change(spec.guard.approved)
    shown = f" Some of the rows that it would end: {samples}." if samples else ""
    return LimitExceeded(
        f"The {step.kind} of {short_name(spec.source_uri)} ({step}) into {spec.target_uri} was stopped: "
        f"{'; '.join(texts)}.{shown}{other} Nothing was written.",
        remedy="look whether the source is whole. If the change is right, run once with "
        f"approve = {text}; or raise the limit.",
        argument="limits",
        approval=text,
    )


def _current(session: SparkSession, spec: ApplySpec) -> DataFrame:
    """Return the current rows of the target: of a history the open ones, without deleted ones."""
    return target_columns.current(session.read.format("delta").load(spec.target_uri), spec.options)


def _named(rows: DataFrame, keys: tuple[str, ...]) -> str:
    shown = [F.col(quote(key)).cast("string").alias(key) for key in keys]
    found = rows.select(*shown).limit(_SAMPLES).collect()
    return "; ".join(", ".join(f"{key} = {row[key]}" for key in keys) for row in found)
