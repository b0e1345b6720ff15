"""Stage the changes of a range in a separate table, one sealed commit per ``versions_per_commit``."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import JobResult, ReadSpec, new_seal
from delta_cdc.core.sql import quote
from delta_cdc.core.watermark import PipelineState, Seal
from delta_cdc.spark import column_needs
from delta_cdc.spark.changes import feed, queries
from delta_cdc.spark.changes import rows as change
from delta_cdc.spark.sealed.commit import nothing_added
from delta_cdc.spark.sealed.commit_safety import refuse_unsafe_log_store
from delta_cdc.spark.sealed.steps import NotCommitted, SealedSteps
from delta_cdc.spark.sessions import AUTO_COMPACT, private_session, set_where_allowed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from delta_cdc.core.steps import Step
    from delta_cdc.spark.sealed.commit import TableState

log = logging.getLogger(__name__)

#: Names of a batch's counts, in addition to ``rows``; the second ones of a wide query.
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")
WIDE_TYPES = ("insert", "update", "delete")


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
        if spec.steps[0].kind != "commit":
            feed.refuse_forbidden_confs(spark)
        # An automatic compaction between two commits of this job would look like a commit of another writer.
        # Where it cannot be turned off, the job plans again after it.
        set_where_allowed(session, {AUTO_COMPACT: "false"})
        return ReadSteps(session, spec).run()


@dataclass(frozen=True)
class PreparedRows:
    """The write of a step. Its counts are known after the commit.

    :param alters: the statements that must alter the table first
    """

    write: Callable[[], object]
    counts: Mapping[str, int] = field(default_factory=dict)
    alters: tuple[str, ...] = ()


class ReadSteps(SealedSteps[ReadSpec, PreparedRows]):
    """The steps of a batch of changes; :attr:`counts` are those of the rows that are staged so far."""

    def run(self) -> JobResult:
        """Run the steps; a batch that continues counts the rows that are staged already."""
        first = self.spec.steps[0]
        if self.spec.continues and first.planned_on is not None:
            rows = staged(self.session, self.spec.staging_uri, first.planned_on.version)
            self.counts = _counted(rows, wide=self.spec.options.wide)
        return super().run()

    def prepare(self, step: Step) -> PreparedRows:
        """Compute the rows of a step."""
        if step.kind in ("load", "answer"):
            self.counts = {}
        return _prepared(self.session, self.spec, step)

    def write(self, step: Step, prepared: PreparedRows) -> Callable[[], object]:
        """Return the append, or the overwrite."""
        return prepared.write

    def seal(self, step: Step, prepared: PreparedRows | None = None) -> Seal:
        """Return the seal of a step: it covers all staged versions, from the batch's first version on."""
        spec = self.spec
        if step.kind == "commit":
            assert step.before is not None
            return new_seal(spec, step, step.before)
        configuration: dict[str, Any] = {
            **spec.configuration,
            "complete": step.seal_number == spec.steps[-1].seal_number,
            "plain": spec.plain and step.kind == "apply",
            "adds": _adds(spec, step),
        }
        state = PipelineState(step.watermark, spec.applied_from, configuration=configuration)
        versions = (spec.starting_version, step.ending_version)
        return new_seal(spec, step, state, kind="read", versions=versions, counts=self.counts)

    def replaced(self, seal: Seal) -> bool:
        """Return whether a step replaced the staged rows."""
        return not seal.state.configuration.get("adds")

    def misfit(self, step: Step, state: TableState) -> str | None:
        """Return a reason if another writer changed the rows that this step extends."""
        assert step.planned_on is not None
        if not _adds(self.spec, step) or state.version == step.planned_on.version:
            return None
        return (
            f"the staging table {self.spec.staging_uri} is at version {state.version}, planned on version "
            f"{step.planned_on.version}"
        )

    def commit(self, step: Step, prepared: PreparedRows, seal: Seal) -> int:
        """Commit a step, and return the version."""
        version = super().commit(step, prepared, seal)
        planned_on = step.planned_on
        if _adds(self.spec, step) and planned_on is not None and version != planned_on.version + 1:
            raise NotCommitted("stale", "others wrote to the staging table meanwhile")
        return version

    def counted(self, step: Step, prepared: PreparedRows, version: int) -> Mapping[str, int]:
        """Count the rows that a step staged."""
        if step.kind in ("complete", "commit"):
            return {}
        try:
            rows = staged(self.session, self.spec.staging_uri, version)
            if step.kind == "apply":
                # This condition skips the files of other commits by their statistics.
                is_in_step = F.col(quote(reserved_columns.COMMIT_VERSION)).between(
                    step.starting_version, step.ending_version
                )
                rows = rows.where(is_in_step)
            return _counted(rows, wide=self.spec.options.wide)
        except Exception as error:  # noqa: BLE001 - optional work after a commit must not fail the commit
            log.warning("the rows in %s could not be counted: %s", self.spec.staging_uri, reason(error))
            return {}


def _adds(spec: ReadSpec, step: Step) -> bool:
    """Return whether a step extends the staged rows; otherwise it replaces them."""
    if step.kind == "apply":
        return spec.continues or step.starting_version > spec.starting_version
    return step.kind not in ("load", "commit")


# -- rows ---------------------------------------------------------------------------------------
def _prepared(session: SparkSession, spec: ReadSpec, step: Step) -> PreparedRows:
    """Return the write of a step, and what the table needs before it."""
    if step.kind in ("complete", "commit"):
        return PreparedRows(nothing_added(session, spec.staging_uri))
    rows = _rows(session, spec, step)
    writer = rows.write.format("delta")
    alters: tuple[str, ...] = ()
    if step.planned_on is not None:
        have = session.read.format("delta").load(spec.staging_uri).schema
        alters = column_needs.statements(session, spec.staging_uri, [rows.schema], have, maps=True)
    if step.kind == "apply" and _adds(spec, step):
        writer = writer.mode("append").option("mergeSchema", "true")
    else:
        options = {"overwriteSchema": "true", "delta.enableChangeDataFeed": "false"}
        # Another run may have made the table since planning, and its batch may be delivered.
        mode = "error" if step.planned_on is None else "overwrite"
        writer = writer.mode(mode).options(**options, **column_needs.mapping(rows.schema))
    return PreparedRows(lambda: writer.save(spec.staging_uri), alters=alters)


def staged(session: SparkSession, staging: str, version: int) -> DataFrame:
    """Return the rows of a version of a staging table."""
    return session.read.format("delta").option("versionAsOf", version).load(staging)


def _rows(session: SparkSession, spec: ReadSpec, step: Step) -> DataFrame:
    options, answer = spec.options, queries.answer
    if step.read.begins:
        rows = _snapshot(session, spec, step)
        answer = queries.of_snapshot
    elif not step.read.reads_source:
        assert step.planned_on is not None
        rows = staged(session, spec.staging_uri, step.planned_on.version)
    else:
        rows = change.change_rows(
            session,
            spec.source_uri,
            step.read.ranges,
            step.source_columns,
            at=step.at,
            manifests_uri=spec.manifests_uri,
            tracking=options.tracking,
            where=options.where,
        )
        if spec.plain:
            return column_needs.bare(rows)
    return answer(
        column_needs.bare(rows),
        options,
        source=spec.source_uri,
        versions=f"versions {step.starting_version}-{step.ending_version}",
        columns=step.source_columns,
    )


def _snapshot(session: SparkSession, spec: ReadSpec, step: Step) -> DataFrame:
    version = F.lit(step.at).cast("bigint")
    commit_time = feed.commit_timestamp(session, spec.source_uri, step.at)
    tracking = spec.options.tracking if spec.options.row_ids else ()
    return feed.snapshot_rows(
        session, spec.source_uri, step.at, step.source_columns, tracking=tracking
    ).withColumns(
        {
            reserved_columns.CHANGE_TYPE: F.lit("insert"),
            reserved_columns.COMMIT_VERSION: version,
            reserved_columns.COMMIT_TIMESTAMP: commit_time,
            reserved_columns.ORDER: version,
        }
    )


# -- counts -------------------------------------------------------------------------------------
def _counted(rows: DataFrame, *, wide: bool) -> dict[str, int]:
    """Count staged rows by change type; this reads one narrow column.

    An observation of the write would need no read, but if Delta skips the write, it never arrives and the
    caller would wait forever.
    """
    counts = {
        row[reserved_columns.CHANGE_TYPE]: int(row["count"])
        for row in rows.groupBy(reserved_columns.CHANGE_TYPE).count().collect()
    }
    names = WIDE_TYPES if wide else CHANGE_TYPES
    return {"rows": sum(counts.values()), **{name: counts.get(name, 0) for name in names}}
