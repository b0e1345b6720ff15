"""Test rows by the rules of a pipeline (:mod:`delta_cdc.core.value_rules`), and refuse those that fail.

Each row that the source inserts or updates is tested, as the target would store it, also one that a later
version of the same commit replaces. So it does not matter how a range is split into commits. A delete is not
tested, because a rule must not keep a row that the source no longer has.

:func:`delta_cdc.spark.apply.rows.tested` evaluates the checks; the functions here read its result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from delta_cdc.core.errors import RuleBroken
from delta_cdc.core.value_rules import COUNT, those_that
from delta_cdc.spark.apply import refusals
from delta_cdc.spark.changes.states import BROKEN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

#: Beginning of a reason in the quarantine; the names of the rules follow.
REASON = "rule "


class RowsBreakRules(Exception):
    """Rows of a feed break rules, so the step must look at each state of their keys."""


def breaks_any() -> Column:
    """Return whether a row breaks a rule; false for a row that is not tested."""
    return F.coalesce(F.size(BROKEN) > 0, F.lit(False))


def stopped(options: ApplyOptions) -> Column:
    """Return the names of the broken rules that keep a row from being applied; an empty array for none."""
    names = [F.lit(name) for name in those_that(options.rules, "fail", "quarantine")]
    if not names:
        return F.array().cast("array<string>")
    return F.coalesce(F.array_intersect(F.array(*names), F.col(BROKEN)), F.array().cast("array<string>"))


def is_stopped(options: ApplyOptions) -> Column:
    """Return whether a broken rule keeps a row from being applied."""
    return F.size(stopped(options)) > 0


def reason(options: ApplyOptions) -> Column:
    """Return the reason for which a row is not applied; NULL if no rule stops it."""
    names = stopped(options)
    return F.when(F.size(names) > 0, F.concat(F.lit(REASON), F.concat_ws(", ", names)))


def is_reason(reasons: Column) -> Column:
    """Return whether a reason is that of a rule; false for NULL."""
    return F.coalesce(reasons.startswith(REASON), F.lit(False))


def totals(options: ApplyOptions) -> dict[str, Column]:
    """Return, for each rule, the name of its count and the number of rows that break it."""
    return {f"{COUNT}{name}": F.count_if(breaks(name)) for name in options.rules}


def breaks(name: str) -> Column:
    """Return whether a row breaks a rule; false for a row that is not tested."""
    return F.coalesce(F.array_contains(BROKEN, name), F.lit(False))


def refuse(
    context: StepContext, counts: Mapping[str, Any], rows: DataFrame, shape: Shape, versions: str = ""
) -> None:
    """Refuse rows that break a rule with ``on_break`` ``fail``.

    :param counts: with those of :func:`totals`
    :param rows: with the key columns and :data:`~delta_cdc.spark.changes.states.BROKEN`
    :param versions: the versions for the message; those of the step by default
    :raises RuleBroken: for the first such rule
    """
    for name, rule in those_that(context.options.rules, "fail").items():
        count = counts.get(f"{COUNT}{name}")
        if not count:
            continue
        sample = refusals.samples(rows, shape.keys, breaks(name)) if shape.keys else ""
        raise RuleBroken(
            f"{count} row(s) of {context.source}, {versions or context.versions}, break the rule {name}: "
            f"{rule.check} is not true{f' (for instance {sample})' if sample else ''}. Nothing was written.",
            remedy=_remedy(context.options),
            argument="rules",
        )


def _remedy(options: ApplyOptions) -> str:
    on_break = "'flag'" if options.insert_only else "'quarantine', and run again"
    correct = refusals.correction(options, of_any_version=True)
    return f"{correct}; or change the rule; or set its on_break to {on_break}."


def count(context: StepContext, counts: Mapping[str, Any]) -> None:
    """Add the counts of :func:`totals` to those of the step."""
    context.count(**{f"{COUNT}{name}": counts[f"{COUNT}{name}"] for name in context.options.rules})


def sets_aside(options: ApplyOptions, counts: Mapping[str, Any]) -> bool:
    """Return whether rows break a rule with ``on_break`` ``quarantine``.

    :param counts: with those of :func:`totals`
    """
    return any(counts[f"{COUNT}{name}"] for name in those_that(options.rules, "quarantine"))


def check(context: StepContext, rows: DataFrame, shape: Shape, versions: str = "") -> None:
    """Count, or refuse, the rows of a source of inserts; only pipelines with rules need this pass.

    :raises RuleBroken: rows break a rule with ``on_break`` ``fail``
    """
    if not context.options.rules:
        return
    named = [value.alias(name) for name, value in totals(context.options).items()]
    counts = rows.agg(*named).collect()[0].asDict()
    refuse(context, counts, rows, shape, versions)
    count(context, counts)
