"""Stage the changes of a range in a separate table, one sealed commit per ``versions_per_commit``."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import failpoints, reserved_columns
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import JobResult, seal_of
from delta_cdc.core.sql import quote
from delta_cdc.core.uris import short_name
from delta_cdc.core.watermark import PipelineState, Seal, TableVersion
from delta_cdc.spark.apply import layout
from delta_cdc.spark.apply.commit import CommitResult, changed_since, commit, look, nothing_added
from delta_cdc.spark.apply.constraints import Destination
from delta_cdc.spark.changes import feed, queries
from delta_cdc.spark.changes import rows as change
from delta_cdc.spark.commit_files import commit_hash
from delta_cdc.spark.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sessions import AUTO_COMPACT, private_session, set_where_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.core.spec import ReadSpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.commit import TableState

log = logging.getLogger(__name__)

#: Names of a batch's counts, in addition to ``rows``.
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")


def run(spark: SparkSession, spec: ReadSpec) -> JobResult:
    """Write one batch, or its missing part, or the seal of a batch that was delivered.

    The first commit of a batch replaces the previous batch.

    The table has the source's columns (or the projection) and the feed's metadata columns. Its change data
    feed stays off, even if the session's default turns it on, because the column names would clash.

    :return: ``committed`` if every step committed, with the batch's rows counted by change type; otherwise
        the status of the first step that did not commit
    """
    with private_session(spark) as session:
        refuse_unsafe_log_store(session, spec.staging_uri, single_driver=spec.single_driver)
        if spec.steps[0].kind == "commit":
            return _delivered(session, spec, spec.steps[0])
        feed.refuse_forbidden_confs(spark)
        # An automatic compaction between two commits of this job would look like a commit of another writer.
        # Where it cannot be turned off, the job plans again after it.
        set_where_allowed(session, {AUTO_COMPACT: "false"})
        return _run_steps(session, spec)


def _delivered(session: SparkSession, spec: ReadSpec, step: Step) -> JobResult:
    """Seal a batch that a custom sink delivered: an empty commit records the last delivered version."""
    failpoints.reached("planned")
    table_state = look(session, spec.staging_uri)
    if step.planned_on is not None and table_state.table_id != step.planned_on.table_id:
        return JobResult("stale", message=f"the staging table {spec.staging_uri} was replaced")
    assert step.before is not None
    seal = seal_of(spec, step, step.before)
    write = nothing_added(session, spec.staging_uri)
    outcome = commit(session, seal, write, Destination(spec.staging_uri))
    if outcome.status == "committed":
        log.info("%s: committed version %s", spec.pipeline, step.ending_version)
    return JobResult(status=outcome.status, message=outcome.message)


def _run_steps(session: SparkSession, spec: ReadSpec) -> JobResult:
    counts: dict[str, int] = {}
    first = spec.steps[0]
    if spec.continues and first.planned_on is not None:
        counts = _counted(staged(session, spec.staging_uri, first.planned_on.version))
    version: int | None = None
    for step in spec.steps:
        if version is not None:
            next_step = _following(session, spec, step, version)
            if isinstance(next_step, str):
                return JobResult("stale", counts=counts, message=next_step)
            step = next_step
        if step.kind in ("load", "answer"):
            counts = {}
        outcome = _run_step(session, spec, step, counts)
        if outcome.status != "committed":
            return JobResult(outcome.status, counts=counts, message=outcome.message)
        version = outcome.version
        planned_on = step.planned_on
        if _adds(spec, step) and planned_on is not None and version != planned_on.version + 1:
            return JobResult("stale", counts=counts, message="others wrote to the staging table meanwhile")
        counts = _summed(counts, _counts_of(session, spec, step, outcome))
    return JobResult(status="committed", counts=counts)


def _following(session: SparkSession, spec: ReadSpec, step: Step, version: int) -> Step | str:
    """Return the step, planned on the previous step's commit; a reason if newer commits exist."""
    table_state = look(session, spec.staging_uri)
    own_hash = commit_hash(session, spec.staging_uri, version)
    return _moved(spec, table_state, version) or replace(
        step, planned_on=TableVersion(table_state.table_id, version, own_hash)
    )


def _moved(spec: ReadSpec, state: TableState, version: int) -> str | None:
    """Return a reason if another writer changed the table that this step extends; otherwise None."""
    if state.version == version:
        return None
    return f"the staging table {spec.staging_uri} is at version {state.version}, planned on version {version}"


def _run_step(session: SparkSession, spec: ReadSpec, step: Step, counts: dict[str, int]) -> CommitResult:
    log.info("%s: reading %s: %s", spec.pipeline, short_name(spec.source_uri), step)
    write = _prepared(session, spec, step)
    failpoints.reached("planned")
    source_change = feed.changed_source(session, spec.source_uri, step)
    if source_change is not None:
        return CommitResult("stale", message=source_change)
    if step.planned_on is not None:
        changed = changed_since(session, spec.staging_uri, step.planned_on, single_driver=spec.single_driver)
        if changed is not None:
            table_state, reason = changed
            if reason is None and _adds(spec, step):
                reason = _moved(spec, table_state, step.planned_on.version)
            if reason is not None:
                return CommitResult("stale", message=reason)
    is_last = step.seal_number == spec.steps[-1].seal_number
    seal = _seal(spec, step, counts, complete=is_last)
    outcome = commit(session, seal, write, Destination(spec.staging_uri))
    if outcome.status == "committed":
        log.info("%s: staged %s in version %s", spec.pipeline, step, outcome.version)
    return outcome


def _adds(spec: ReadSpec, step: Step) -> bool:
    """Return whether a step extends the staged rows; otherwise it replaces them."""
    if step.kind == "apply":
        return spec.continues or step.starting_version > spec.starting_version
    return step.kind != "load"


def _seal(spec: ReadSpec, step: Step, counts: Mapping[str, int], *, complete: bool) -> Seal:
    """Return the seal of a step: it covers all staged versions, from the batch's first version on."""
    configuration: dict[str, Any] = {
        **spec.configuration,
        "complete": complete,
        "plain": spec.plain and step.kind == "apply",
        "adds": _adds(spec, step),
    }
    state = PipelineState(step.watermark, spec.applied_from, configuration=configuration)
    versions = (spec.starting_version, step.ending_version)
    return seal_of(spec, step, state, kind="read", versions=versions, counts=counts)


# -- rows ---------------------------------------------------------------------------------------
def _prepared(session: SparkSession, spec: ReadSpec, step: Step) -> Callable[[], object]:
    """Return the write of a step."""
    if step.kind == "complete":
        return nothing_added(session, spec.staging_uri)
    rows = _rows(session, spec, step)
    writer = rows.write.format("delta")
    if step.kind == "apply" and _adds(spec, step):
        return lambda: writer.mode("append").option("mergeSchema", "true").save(spec.staging_uri)
    options = {"overwriteSchema": "true", "delta.enableChangeDataFeed": "false"}
    writer = writer.mode("overwrite").options(**options, **layout.mapping(rows.columns))
    return lambda: writer.save(spec.staging_uri)


def staged(session: SparkSession, staging: str, version: int) -> DataFrame:
    """Return the rows of a version of a staging table."""
    return session.read.format("delta").option("versionAsOf", version).load(staging)


def _rows(session: SparkSession, spec: ReadSpec, step: Step) -> DataFrame:
    options, by_row_id = spec.options, False
    if step.read.begins:
        rows = _snapshot(session, spec, step)
        if options.is_net and not options.keys:
            # A snapshot has only inserts, and without keys the query cannot net them.
            options = replace(options, query="full_delta")
    elif not step.read.reads_source:
        assert step.planned_on is not None
        rows = staged(session, spec.staging_uri, step.planned_on.version)
    else:
        # Without keys, use row ids instead.
        by_row_id = options.is_net and not options.keys
        rows = change.change_rows(
            session,
            spec.source_uri,
            step.read.ranges,
            step.source_columns,
            at=step.at,
            manifests_uri=spec.manifests_uri,
            with_row_id=by_row_id,
        )
        if spec.plain:
            return rows
    return queries.answer(
        rows,
        options,
        source=spec.source_uri,
        versions=f"versions {step.starting_version}-{step.ending_version}",
        columns=step.source_columns,
    )


def _snapshot(session: SparkSession, spec: ReadSpec, step: Step) -> DataFrame:
    version = F.lit(step.at).cast("bigint")
    commit_time = feed.commit_timestamp(session, spec.source_uri, step.at)
    return feed.snapshot_rows(session, spec.source_uri, step.at, step.source_columns).withColumns(
        {
            reserved_columns.CHANGE_TYPE: F.lit("insert"),
            reserved_columns.COMMIT_VERSION: version,
            reserved_columns.COMMIT_TIMESTAMP: commit_time,
            reserved_columns.ORDER: version,
        }
    )


# -- counts -------------------------------------------------------------------------------------
def _counts_of(session: SparkSession, spec: ReadSpec, step: Step, outcome: CommitResult) -> dict[str, int]:
    """Count the rows that a step staged. The step is committed, so a failure only warns."""
    if step.kind == "complete" or outcome.version is None:
        return {}
    try:
        rows = staged(session, spec.staging_uri, outcome.version)
        if step.kind == "apply":
            # This condition skips the files of other commits by their statistics.
            is_in_step = F.col(quote(reserved_columns.COMMIT_VERSION)).between(
                step.starting_version, step.ending_version
            )
            rows = rows.where(is_in_step)
        return _counted(rows)
    except Exception as error:  # noqa: BLE001 - optional work after a commit must not fail the commit
        log.warning("the rows in %s could not be counted: %s", spec.staging_uri, reason(error))
        return {}


def _counted(rows: DataFrame) -> dict[str, int]:
    """Count staged rows by change type; this reads one narrow column.

    An observation of the write would need no read, but if Delta skips the write, it never arrives and the
    caller would wait forever.
    """
    counts = {
        row[reserved_columns.CHANGE_TYPE]: int(row["count"])
        for row in rows.groupBy(reserved_columns.CHANGE_TYPE).count().collect()
    }
    return {"rows": sum(counts.values()), **{name: counts.get(name, 0) for name in CHANGE_TYPES}}


def _summed(first: Mapping[str, int], second: Mapping[str, int]) -> dict[str, int]:
    return {name: first.get(name, 0) + second.get(name, 0) for name in {**first, **second}}
