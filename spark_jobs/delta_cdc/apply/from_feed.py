"""The changes of a feed: states before and after each commit, so the target need not be read to know them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from delta_cdc.apply import rows, scd1, scd2, schema
from delta_cdc.apply.sequences import greater
from delta_cdc.apply.work import Work
from delta_cdc.changes import feed, states
from delta_cdc.changes import rows as captured
from delta_cdc.errors import NotInsertOnly
from delta_cdc.sql import quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.apply.rows import Shape
    from delta_cdc.spec import ApplySpec, Step

log = logging.getLogger(__name__)


def change_rows(session: SparkSession, spec: ApplySpec, step: Step) -> tuple[DataFrame, Shape]:
    """Return the change rows of a step, filtered and projected, and their shape."""
    columns = step.source_columns
    if step.staging is not None:
        source_rows = captured.staged_rows(session, step.staging, columns)
    else:
        source_rows = captured.change_rows(
            session,
            spec.source_uri,
            step.segments,
            columns,
            at=step.ending_version,
            slices_uri=spec.slices_uri,
        )
    sequenced = rows.with_sequence(source_rows, spec.options)
    found = rows.projected(sequenced, spec.options, (*feed.METADATA_COLUMNS, feed.ORDER, states.SEQUENCE))
    return found, rows.shape_of(found, source_rows, spec.options, spec.source_uri)


def _versions(step: Step) -> str:
    return f"versions {step.starting_version}-{step.ending_version}"


def merge(session: SparkSession, spec: ApplySpec, step: Step) -> Work:
    """Prepare the MERGE of a range of changes."""
    options, source, versions = spec.options, spec.source_uri, _versions(step)
    found, shape = change_rows(session, spec, step)
    evolve = schema.check_target(session, spec, schema.target_schema(shape, options))
    events = states.version_states(found, shape.keys, shape.values)
    highest = step.highest_sequence
    if options.stored_as_scd_type == 1:
        net = scd1.net_changes(events, shape, soft=rows.marks_deletes(options))
        batch = scd1.validated(net, shape, source, versions)
        statement = scd1.merge(spec.target_uri, shape, options, batch, evolve=evolve)
        kept = ["changes", "suppressed", "events"]
    else:
        cut = scd2.segments(scd2.classified(events, shape), shape)
        batch = scd2.validated(cut, shape, options, source, versions)
        scd2.refuse_not_above_history(
            session, spec.target_uri, batch, shape, options, highest, source, versions
        )
        statement = scd2.merge(spec.target_uri, shape, options, batch, evolve=evolve)
        highest = greater(session, shape.sequence_type, highest, batch.totals["highest"])
        kept = ["events", "opened", "closed", "updated"]
    log.debug("%s", statement.statement)
    counts = {name: batch.totals[name] for name in kept}
    return Work(lambda: statement.run(session), counts, highest, shape, merge=statement)


def append(session: SparkSession, spec: ApplySpec, step: Step) -> Work:
    """Prepare the append of a range of inserts."""
    from pyspark.sql import functions as F

    found, shape = change_rows(session, spec, step)
    schema.check_target(session, spec, schema.target_schema(shape, spec.options))
    others = (
        found.where(F.col(feed.CHANGE_TYPE) != "insert")
        .groupBy(feed.COMMIT_VERSION, feed.CHANGE_TYPE)
        .count()
        .orderBy(feed.COMMIT_VERSION)
        .limit(1)
        .collect()
    )
    if others:
        raise NotInsertOnly(
            f"Version {others[0][feed.COMMIT_VERSION]} of {spec.source_uri} has {others[0]['count']} "
            f"{others[0][feed.CHANGE_TYPE]} row(s), but the pipeline {spec.pipeline} is insert_only.",
            remedy="give keys and drop insert_only, or leave such rows out with where.",
        )
    values = found.select(*[quote(name) for name in shape.values])
    writer = values.write.format("delta").mode("append").option("mergeSchema", "true")
    return Work(lambda: writer.save(spec.target_uri), {}, None, shape)
