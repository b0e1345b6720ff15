"""Many tables in one task: their arguments become pieces of work, and what became of them is published.

Shared by the operators that keep several tables, whichever way they got their arguments.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.backup import keep, kept
from airflow_delta_cdc.names import chosen, each_located
from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    TableNotFound,
    TablesFailed,
    TablesRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.spec import ApplyRequest
    from delta_cdc.planning.ingest_request import IngestRequest
    from delta_cdc.run.batch import PipelineJob, PipelineResult
    from delta_cdc.run.saved_plans import SavedPlans

    Requests = tuple[IngestRequest | None, ApplyRequest | None]

#: What an event of the target's asset holds.
_ANNOUNCED = (
    "pipeline",
    "source_table_id",
    "version",
    "starting_version",
    "ending_version",
    "target_table_id",
    "target_version",
    "counts",
)
_OUTCOMES = {
    "applied": "ingested and applied",
    "ingested": "ingested",
    "failed": "failed",
    "nothing": "had nothing new",
}
#: Of a dry run, what an XCom takes: steps, and characters of a plan and of all statements together.
_MOST_STEPS = 100
_MOST_OF_A_PLAN = 4 * 1024
_MOST_CHARACTERS = 16 * 1024


# -- arguments ------------------------------------------------------------------------------------
def source_of(given: Mapping[str, Any]) -> Any:
    """Return what a table's target is applied from: its change log, or else its source."""
    return given["log"] if engine.is_ingested(given) else given.get("source")


def pipeline_jobs(
    operator: DeltaCdcOperator,
    context: Context,
    tables: Sequence[Mapping[str, Any]],
    *,
    ingest: Callable[[Mapping[str, Any]], bool] | None = None,
) -> list[PipelineJob | DeltaCdcError]:
    """Return the work of each table, with locations for catalog names, or why its arguments give none.

    :param operator: whose connections are used, and whose Spark looks up catalog names
    :param tables: arguments of each (:func:`delta_cdc.run.table_arguments.requests`)
    :param ingest: whether a table's source is read, or only its log; None: where it has a log
    """
    # Once for all tables: each time may go to a secrets backend.
    connected, kafka = operator.connected(), operator.options_of_kafka()
    work_id = operator.work_id(context)
    reads_source = ingest or engine.is_ingested

    def requested(given: Mapping[str, Any]) -> Requests | DeltaCdcError:
        try:
            return engine.table_requests(
                given, run_id=work_id, kafka_options=kafka, ingest=reads_source(given), **connected
            )
        except InvalidConfiguration as error:
            text = f"Pipeline {given.get('pipeline')}: {error.message}"
            return InvalidConfiguration(text, remedy=error.remedy, argument=error.argument)
        except DeltaCdcError as error:
            return error

    requests = [requested(given) for given in tables]
    names = [name for one in requests if isinstance(one, tuple) for name in _names_of(*one)]
    at = each_located(operator, context, names)

    def pipeline_job(given: Mapping[str, Any], one: Requests | DeltaCdcError) -> PipelineJob | DeltaCdcError:
        if isinstance(one, DeltaCdcError):
            return one
        try:
            places = chosen(at, _names_of(*one))
        except DeltaCdcError as error:
            return error
        batch, apply = one
        return engine.PipelineJob(
            ingest=replace(batch, log=places[batch.log]) if batch is not None else None,
            apply=replace(apply, source=places[apply.source], target=places[apply.target])
            if apply is not None
            else None,
            backup=partial(kept, context, operator.inlets, source_of(given), given["pipeline"]),
        )

    return [pipeline_job(given, one) for given, one in zip(tables, requests, strict=True)]


def planned(made: Sequence[PipelineJob | DeltaCdcError]) -> list[PipelineJob]:
    """Return the work of tables all of which have some.

    :raises DeltaCdcError: the first error among them
    """
    found = []
    for one in made:
        if isinstance(one, DeltaCdcError):
            raise one
        found.append(one)
    return found


def _names_of(batch: IngestRequest | None, apply: ApplyRequest | None) -> list[str]:
    """Return the tables that requests name, as paths, URIs or catalog names."""
    log = [batch.log] if batch is not None else []
    return [*log, apply.source, apply.target] if apply is not None else log


# -- publishing -----------------------------------------------------------------------------------
def published(outcome: PipelineResult) -> dict[str, Any]:
    """Return the dict that is published of one table."""
    ingested = outcome.ingested.to_dict() if outcome.ingested is not None else {}
    if outcome.applied is None:
        return ingested
    applied = outcome.applied.to_dict()
    return {**applied, "ingested": ingested} if outcome.ingested is not None else applied


def announce_apply(
    context: Context,
    inlets: Sequence[Any],
    given: Mapping[str, Any],
    published: dict[str, Any],
    backup: dict[str, Any] | None,
) -> None:
    """Keep a copy of the watermark; where something was applied, add an event of the target's asset.

    :param inlets: of the task
    :param given: has ``source``, ``target`` and ``pipeline``, as the task was given them
    :param published: :meth:`delta_cdc.run.outcomes.ApplyResult.to_dict`
    :param backup: :attr:`delta_cdc.run.outcomes.ApplyResult.mirror`
    """
    keep(context, inlets, given["source"], given["pipeline"], published, backup)
    if published["applied"]:
        extra = {name: published[name] for name in _ANNOUNCED}
        context["outlet_events"][pipeline_alias(given["pipeline"])].add(
            delta_asset(given["target"]), extra=extra
        )


def announce(
    context: Context, inlets: Sequence[Any], given: Mapping[str, Any], outcome: PipelineResult
) -> None:
    """Add events of a table's log and target for what was written to them, and keep the watermark."""
    ingested = outcome.ingested
    if ingested is not None and ingested.applied and ingested.counts.get("events"):
        names = ("pipeline", "seal", "log_table_id", "log_version", "counts")
        whole = ingested.to_dict()
        context["outlet_events"][pipeline_alias(given["pipeline"])].add(
            delta_asset(given["log"]), extra={name: whole[name] for name in names}
        )
    if outcome.applied is not None:
        applied_from = {**given, "source": source_of(given)}
        announce_apply(context, inlets, applied_from, outcome.applied.to_dict(), outcome.applied.backup)


def shown(context: Context, published: dict[str, Any]) -> dict[str, Any]:
    """Push what is published as the XCom ``watermark``, and return it."""
    context["ti"].xcom_push(key="watermark", value=published)
    return published


def run_piece(
    operator: DeltaCdcOperator,
    context: Context,
    given: Mapping[str, Any],
    pipeline_job: PipelineJob,
    saved_plans: SavedPlans,
) -> dict[str, Any]:
    """Run the work of one table in at most one application per attempt, and publish it.

    :param given: arguments of the table, as the task was given them
    :return: what is published
    :raises DeltaCdcError: a named error, with its remedy, for everything that stops the table
    """
    with operator.application(context) as execute:
        (outcome,) = engine.run_batch(
            [replace(pipeline_job, saved_plans=saved_plans)],
            run_id=operator.work_id(context),
            execute=execute,
            say=operator.log.info,
        )
    warn(operator.log, outcome)
    if outcome.error is not None:
        raise outcome.error
    answer = shown(context, published(outcome))
    announce(context, operator.inlets, given, outcome)
    # Last: a try that dies before this publishes again, one that is cleared after it has nothing to do.
    forget(pipeline_job, outcome, saved_plans)
    return answer


def forget(pipeline_job: PipelineJob, outcome: PipelineResult, saved_plans: SavedPlans) -> None:
    """Delete what is pinned of a table, once its results are published."""

    if pipeline_job.apply is not None:
        saved_plans.delete(engine.since_key(pipeline_job.apply))
    for result in (outcome.ingested, outcome.applied):
        if result is not None:
            engine.forget_saved_plans(result, saved_plans)


def warn(log: Logger, outcome: PipelineResult) -> None:
    """Warn about what is in quarantine, with the way out."""
    found = []
    if outcome.ingested is not None:
        found.append((outcome.ingested.counts, outcome.ingested.log_table, "records that are no events"))
    if outcome.applied is not None and outcome.applied.target_table is not None:
        found.append((outcome.applied.counts, outcome.applied.target_table, "events that do not apply"))
    for counts, table, what in found:
        if counts.get("quarantined"):
            log.warning(
                "%d %s are in %s__quarantine, each with its reason. Once mended: delta-cdc replay %s=%s",
                counts["quarantined"],
                what,
                table,
                outcome.pipeline,
                table,
            )


# -- a dry run ------------------------------------------------------------------------------------
def would_do(
    operator: DeltaCdcOperator,
    context: Context,
    pipeline_job: PipelineJob,
    applied: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Find out what would be taken and applied; write nothing, and pin nothing.

    :param pipeline_job: whose apply, if it has one, is a dry run
    :param applied: what is published of that dry run, where it was made already
    :return: what is published, also as the XCom ``watermark``
    """
    log = operator.log
    would: dict[str, Any] = {"applied": False, "pipeline": pipeline_job.pipeline, "dry_run": {}}
    if pipeline_job.ingest is not None:
        plan = str(engine.plan_ingest(pipeline_job.ingest))
        log.info("Would take:\n%s", plan)
        would["dry_run"]["ingest"] = plan[:_MOST_OF_A_PLAN]
    try:
        if pipeline_job.apply is not None and applied is None:
            with operator.application(context) as execute:
                result = engine.run_apply(
                    pipeline_job.apply, execute=execute, backup=pipeline_job.backup, say=log.info
                )
            applied = shortened(result.to_dict())
    except TableNotFound:
        if pipeline_job.ingest is None:
            raise
        log.info("There is no log yet, so there is nothing to apply.")
    if applied is not None:
        would = {**applied, "dry_run": {**would["dry_run"], **applied["dry_run"]}}
    return shown(context, would)


def shortened(published: dict[str, Any], *, tables: int = 1) -> dict[str, Any]:
    """Return what a dry run publishes, its ``dry_run`` cut where it is long.

    An XCom is no place for it, and the log has it whole.

    :param tables: how many share the XCom
    """
    # Without anything to do there is nothing to show.
    found = {"table": [], "steps": [], "statements": [], "counts": {}, **(published.get("dry_run") or {})}
    table, steps, statements = list(found["table"]), list(found["steps"]), found["statements"]
    if len(steps) > _MOST_STEPS:
        more = f"… {len(steps) - _MOST_STEPS} more"
        steps[_MOST_STEPS:], table[_MOST_STEPS:] = [more], [{"what": more}]
    share = _MOST_CHARACTERS // tables // max(1, len(statements))
    cut = [text if len(text) <= share else f"{text[:share]}… (cut; see the log)" for text in statements]
    shown = {"table": table, "steps": steps, "statements": cut, "counts": dict(found["counts"])}
    return {**published, "dry_run": shown}


# -- many tables ----------------------------------------------------------------------------------
def status(outcome: PipelineResult) -> str:
    """Return what became of a table in one word."""
    if outcome.error is not None:
        return "failed"
    if outcome.applied is not None and outcome.applied.applied:
        return "applied"
    return "ingested" if outcome.ingested is not None and outcome.ingested.applied else "nothing"


def counted(outcomes: Sequence[PipelineResult]) -> str:
    """Return how many tables came to what, for people."""
    numbers = Counter(status(outcome) for outcome in outcomes)
    some = ", ".join(f"{numbers[name]} {text}" for name, text in _OUTCOMES.items() if numbers[name])
    return f"{len(outcomes)} tables: {some or 'none'}"


def raise_failures(outcomes: Sequence[PipelineResult], of: int | None = None) -> None:
    """Raise the one error that names those of the tables.

    :param of: how many tables there are, if not all are among the outcomes
    :raises TablesFailed: where there are any
    """
    failed = [outcome for outcome in outcomes if outcome.error is not None]
    if not failed:
        return
    by_error: dict[str, list[str]] = {}
    for outcome in failed:
        # An application that died is the error of all that it was to do.
        by_error.setdefault(f"{type(outcome.error).__name__}: {outcome.error}", []).append(outcome.pipeline)
    lines = "".join(f"\n  {', '.join(names)}: {error}" for error, names in by_error.items())
    text = f"{len(failed)} of {of or len(outcomes)} tables failed; the others are through.{lines}\n"
    if any(outcome.error is not None and outcome.error.retryable for outcome in failed):
        raise TablesFailed(text, remedy="see to each of them; a retry only does what is left.")
    raise TablesRefused(text, remedy="see to each of them first: a retry would meet the same.")
