"""Publish the outcomes of tables: XCom, asset events, metrics, the copy of the watermark, one error for many.

A dry run publishes what a run would do.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.approval import asking
from airflow_delta_cdc.assets import delta_asset, partitions_asset, pipeline_alias
from airflow_delta_cdc.backup import store_copy
from airflow_delta_cdc.compat import partition_events
from airflow_delta_cdc.failures import described
from airflow_delta_cdc.jobs import source_of
from airflow_delta_cdc.metrics import emit_run
from delta_cdc.core import left_out
from delta_cdc.core.errors import TableNotFound, TablesFailed, TablesRefused
from delta_cdc.core.metrics import is_late
from delta_cdc.core.options import APPLY
from delta_cdc.core.quarantine import QUARANTINE, REPAIR, then_repair, where_rows_are
from delta_cdc.core.text_table import plural
from delta_cdc.core.value_rules import broken_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import Logger

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.value_rules import ValueRule
    from delta_cdc.run.batch import PipelineJob, PipelineResult
    from delta_cdc.run.outcomes import Outcome
    from delta_cdc.run.saved_plans import SavedPlans

#: Fields in an event of the target's asset.
_ANNOUNCED = (
    "pipeline",
    "seal",
    "source_table",
    "source_table_id",
    "version",
    "starting_version",
    "ending_version",
    "target_table",
    "target_table_id",
    "target_version",
    "counts",
    "bytes_written",
    "lag",
    "in_quarantine",
    "seconds",
    "attempts_lost",
    "partitions",
)
_OUTCOMES = {
    "applied": "applied",
    "ingested": "ingested",
    "failed": "failed",
    "nothing": "had nothing new",
    "planned": "only planned (dry run)",
}
#: Limits of a dry run's XCom: steps, characters of a plan, and characters of all statements together.
_MOST_STEPS = 100
_MOST_OF_A_PLAN = 4 * 1024
_MOST_CHARACTERS = 16 * 1024


def published(outcome: PipelineResult) -> dict[str, Any]:
    """Return the published dict of one table."""
    ingested = outcome.ingested.to_dict() if outcome.ingested is not None else {}
    if outcome.applied is None:
        return ingested
    applied = outcome.applied.to_dict()
    if outcome.ingested is None:
        return applied
    return {**applied, **outcome.effort.to_dict(), "ingested": ingested}


def timely(log: Logger, given: Mapping[str, Any], lag: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return a published lag with ``freshness`` and ``late``; warn if the pipeline is late.

    :param given: ``pipeline`` and ``freshness``, as in the arguments of a task
    """
    if lag is None:
        return None
    freshness = APPLY["freshness"].read(given.get("freshness"))
    late = is_late(lag["seconds"], freshness)
    if late:
        log.warning(
            "%s is late: the oldest change that is not applied is %.0f s old, and freshness is %.0f s.",
            given["pipeline"],
            lag["seconds"],
            freshness,
        )
    return {**lag, "freshness": freshness, "late": late}


def measured(log: Logger, given: Mapping[str, Any], published: dict[str, Any]) -> dict[str, Any]:
    """Emit the metrics of a run, and return its published dict with :func:`timely`.

    :param given: arguments of the table, as the task got them
    """
    if "lag" in published:
        published = {**published, "lag": timely(log, given, published["lag"])}
    emit_run(published)
    return published


def announce_apply(
    operator: BaseOperator,
    context: Context,
    given: Mapping[str, Any],
    published: dict[str, Any],
    backup: dict[str, Any] | None,
) -> None:
    """Copy the watermark to the asset state store; if changes were applied, announce the target's asset, and
    its changed partitions.

    :param given: ``source``, ``target`` and ``pipeline``, as in the arguments of the task
    :param published: :meth:`delta_cdc.run.outcomes.Outcome.to_dict`
    :param backup: :attr:`delta_cdc.run.outcomes.Outcome.backup`
    """
    store_copy(context, operator.inlets, given["source"], given["pipeline"], published, backup)
    if published["applied"]:
        extra = {name: published[name] for name in _ANNOUNCED if name in published}
        announce_partitions(operator, context, given["target"], extra)
        context["outlet_events"][pipeline_alias(given["pipeline"])].add(
            delta_asset(given["target"]), extra=extra
        )


def announce_partitions(
    operator: BaseOperator, context: Context, target: str, extra: Mapping[str, Any]
) -> None:
    """Add an event for each changed partition of a target, if a DAG waits for them.

    :param extra: that of the event of the whole target, with ``partitions`` if the target has any
    """
    keys = extra.get("partitions")
    if not keys:
        return
    asset = partitions_asset(target)
    events = partition_events(context, asset)
    if events is None:
        return
    # Airflow takes these events only for an outlet of the task.
    operator.outlets = [*operator.outlets, asset]
    events.extra.update({name: value for name, value in extra.items() if name != "partitions"})
    events.add_partitions(list(keys))


def announce(
    operator: BaseOperator,
    context: Context,
    given: Mapping[str, Any],
    outcome: PipelineResult,
    published: dict[str, Any],
) -> None:
    """Add events of a table's log and target if they were written, and copy the watermark.

    :param published: the published dict of the table
    """
    ingested = outcome.ingested
    if ingested is not None and ingested.applied and ingested.counts.get("events"):
        names = (
            "pipeline",
            "seal",
            "log_table",
            "log_table_id",
            "log_version",
            "counts",
            "bytes_written",
            "left",
            "in_quarantine",
        )
        ingest_dict = ingested.to_dict()
        context["outlet_events"][pipeline_alias(given["pipeline"])].add(
            delta_asset(given["log"]),
            extra={name: ingest_dict[name] for name in names if name in ingest_dict},
        )
    if outcome.applied is not None:
        applied_from = {**given, "source": source_of(given)}
        applied = {name: value for name, value in published.items() if name != "ingested"}
        announce_apply(operator, context, applied_from, applied, outcome.applied.backup)


def shown(operator: DeltaCdcOperator, context: Context, published: dict[str, Any]) -> dict[str, Any]:
    """Push the published dict as the XCom ``return_value``, and return it.

    Airflow pushes the value that a task returns, too; but saved plans may be deleted only after a push.
    """
    if operator.do_xcom_push:
        context["ti"].xcom_push(key="return_value", value=published)
    return published


def publish(
    operator: DeltaCdcOperator,
    context: Context,
    given: Mapping[str, Any],
    outcome: PipelineResult,
    published: dict[str, Any],
    forget_plans: Callable[[], None],
) -> dict[str, Any]:
    """Emit a run's metrics, push its XCom, announce its commits, forget its saved plans: in this order.

    If a try dies before the last step, its retry finds the same outcome by the saved plans, and publishes
    again. A task that is cleared later has no work.

    :param given: arguments of the table, as the task got them
    :param published: the published dict of the outcome
    :param forget_plans: deletes the saved plans of the outcome
    :return: the published dict, with :func:`timely`
    """
    operator.published = measured(operator.log, given, published)
    watermark = shown(operator, context, operator.published)
    announce(operator, context, given, outcome, watermark)
    forget_plans()
    return watermark


def run_pipeline_job(
    operator: DeltaCdcOperator,
    context: Context,
    given: Mapping[str, Any],
    pipeline_job: PipelineJob,
    saved_plans: SavedPlans,
    effort: Mapping[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Run the job of one table, with at most one application per attempt, and publish the outcome.

    :param given: arguments of the table, as the task got them
    :param effort: what an earlier task took for the same work
        (:meth:`delta_cdc.run.outcomes.Effort.to_dict`)
    :param more: other entries of the published dict
    :return: the published dict
    :raises DeltaCdcError: the job failed; the error names the remedy
    """
    with asking(operator, context, given):
        with operator.application(context) as execute:
            (outcome,) = engine.run_batch(
                [replace(pipeline_job, saved_plans=saved_plans)],
                engine.Services(execute=execute, say=operator.log.info),
                run_id=operator.work_id(context),
            )
        apply = pipeline_job.apply
        warn(operator.log, outcome, {} if apply is None else apply.options.rules)
        if outcome.error is not None:
            raise outcome.error
    total = outcome.effort
    total.add(**(effort or {"seconds": {}}))
    return publish(
        operator,
        context,
        given,
        outcome,
        {**published(outcome), **total.to_dict(), **more},
        forget_plans=partial(forget, pipeline_job, outcome, saved_plans),
    )


def forget(pipeline_job: PipelineJob, outcome: PipelineResult, saved_plans: SavedPlans) -> None:
    """Delete the saved plans of a table, once its results are published."""
    if pipeline_job.apply is not None:
        saved_plans.delete(engine.since_key(pipeline_job.apply))
    for result in (outcome.ingested, outcome.applied):
        if result is not None:
            engine.forget_saved_plans(result, saved_plans)


def warn(log: Logger, outcome: PipelineResult, rules: Mapping[str, ValueRule]) -> None:
    """Warn about rows that break rules, and about rows in quarantine, with the remedy.

    :param rules: the rules of the pipeline, by their names
    """
    for result in (outcome.ingested, outcome.applied):
        if result is not None:
            for line in _warnings(result, rules):
                log.warning("%s: %s", outcome.pipeline, line)


def _warnings(result: Outcome, rules: Mapping[str, ValueRule]) -> Iterator[str]:
    is_log = result.kind == "ingest"
    table = str(result.log_table if is_log else result.target_table)
    quarantined = result.counts.get("quarantined", 0)
    for name, number in broken_in(result.counts):
        # Of a rule that the pipeline had when an earlier try did the work, only the name is known.
        rule = rules.get(name)
        is_set_aside = rule is not None and rule.on_break == "quarantine"
        where = f"are in {table}{QUARANTINE}, not in the target" if is_set_aside else "are applied"
        about = "" if rule is None else f" ({rule.check}) and {where}"
        # A command would take the rules of the seal, which are the old ones.
        then = f", then {REPAIR}" if is_set_aside else ", after delta-cdc rules try"
        yield (
            f"{number} row(s) break the rule {name}{about}.\n"
            f"Remedy: correct them at the source; or change the rule{then}."
        )
        if is_set_aside and number == quarantined:
            # The warning above is about all of them.
            quarantined = 0
    if names := left_out.columns_in(result.counts):
        yield f"{left_out.sentence(names)}\nRemedy: {left_out.REMEDY}"
    if quarantined:
        noun = "record" if is_log else "event"
        yield (f"{where_rows_are(quarantined, table, noun)}\nRemedy: {then_repair(is_log=is_log)}")


# -- a dry run ------------------------------------------------------------------------------------
def would_do(
    operator: DeltaCdcOperator,
    context: Context,
    pipeline_job: PipelineJob,
    applied: dict[str, Any] | None = None,
    **more: Any,
) -> dict[str, Any]:
    """Plan what a job would ingest and apply; write nothing, and save no plan.

    :param pipeline_job: its apply, if it has one, is a dry run
    :param applied: the published dict of that dry run, if it has already run
    :param more: other entries of the published dict
    :return: the published dict
    """
    say = partial(operator.log.info, "%s: %s", pipeline_job.pipeline)
    would: dict[str, Any] = {"applied": False, "pipeline": pipeline_job.pipeline, "dry_run": {}}
    if pipeline_job.ingest is not None:
        plan = str(engine.plan_ingest(pipeline_job.ingest))
        say(f"The run would ingest:\n{plan}")
        would["dry_run"]["ingest"] = plan[:_MOST_OF_A_PLAN]
    try:
        if pipeline_job.apply is not None and applied is None:
            with operator.application(context) as execute:
                services = engine.Services(execute=execute, backup=pipeline_job.backup, say=say)
                result = engine.run(pipeline_job.apply, services)
            applied = shortened(result.to_dict())
    except TableNotFound:
        if pipeline_job.ingest is None:
            raise
        say("There is no log yet, so there is nothing to apply.")
    if applied is not None:
        would = {**applied, "dry_run": {**would["dry_run"], **applied["dry_run"]}}
    return shown(operator, context, {**would, **more})


def shortened(published: dict[str, Any], *, tables: int = 1) -> dict[str, Any]:
    """Return the published dict of a dry run, with long parts of ``dry_run`` shortened.

    An XCom has limited space; the log has the whole text.

    :param tables: the number of tables that share the XCom
    """
    # A dry run without work has no entries.
    dry_run = {"table": [], "steps": [], "statements": [], "counts": {}, **(published.get("dry_run") or {})}
    table, steps, statements = list(dry_run["table"]), list(dry_run["steps"]), dry_run["statements"]
    if len(steps) > _MOST_STEPS:
        more = f"… {len(steps) - _MOST_STEPS} more"
        steps[_MOST_STEPS:], table[_MOST_STEPS:] = [more], [{"what": more}]
    share = _MOST_CHARACTERS // tables // max(1, len(statements))
    short = [text if len(text) <= share else f"{text[:share]}… (see the log)" for text in statements]
    shown = {
        **dry_run,
        "table": table,
        "steps": steps,
        "statements": short,
        "counts": dict(dry_run["counts"]),
    }
    return {**published, "dry_run": shown}


# -- many tables ----------------------------------------------------------------------------------
def status(outcome: PipelineResult) -> str:
    """Return the outcome of a table in one word."""
    if outcome.error is not None:
        return "failed"
    if outcome.applied is not None and outcome.applied.dry_run is not None:
        return "planned"
    if outcome.applied is not None and outcome.applied.applied:
        return "applied"
    return "ingested" if outcome.ingested is not None and outcome.ingested.applied else "nothing"


def counted(outcomes: Sequence[PipelineResult], noun: str = "table") -> str:
    """Return the number of tables with each outcome, as text."""
    numbers = Counter(status(outcome) for outcome in outcomes)
    parts = ", ".join(f"{numbers[name]} {text}" for name, text in _OUTCOMES.items() if numbers[name])
    return f"{plural(len(outcomes), noun)}: {parts or 'none'}"


def raise_failures(outcomes: Sequence[PipelineResult], of: int, others: str) -> None:
    """Raise one error that lists the errors of some tables.

    :param outcomes: those of these tables
    :param of: the number of all tables
    :param others: a sentence about the other tables, if there are any
    :raises TablesFailed: a table failed; ``TablesRefused`` if no retry can help
    """
    failed = {outcome.pipeline: outcome.error for outcome in outcomes if outcome.error is not None}
    if not failed:
        return
    by_error: dict[str, list[str]] = {}
    for pipeline, error in failed.items():
        # If an application died, all its tables have the same error.
        by_error.setdefault(described(error), []).append(pipeline)
    lines = "".join(
        f"\n{', '.join(names)}: {error}".replace("\n", "\n  ") for error, names in by_error.items()
    )
    of_others = f" {others}" if len(failed) < of else ""
    text = f"{len(failed)} of {of} tables failed.{of_others}{lines}\n"
    if any(error.retryable for error in failed.values()):
        raise TablesFailed(text, remedy="follow the remedy of each error. A retry only does what is left.")
    raise TablesRefused(
        text, remedy="correct the cause of each error first, because a retry would fail in the same way."
    )
