"""The load: a snapshot of the source as the first commit of a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc.core import reserved_columns
from delta_cdc.core.errors import NullKey, NullSequence
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import layout, quarantine, rows, schema
from delta_cdc.spark.apply.prepared_step import Work
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.changes import feed, states

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType

    from delta_cdc.core.spec import ApplyOptions, ApplySpec, LoadStep
    from delta_cdc.spark.apply.rows import Shape

_ROWS, _HIGHEST = f"{PLAN_PREFIX}rows", f"{PLAN_PREFIX}highest"
_NULL_SEQUENCES = f"{PLAN_PREFIX}null_sequences"


def load(session: SparkSession, spec: ApplySpec, step: LoadStep) -> Work:
    """Prepare the load of a snapshot, or set a baseline."""
    from pyspark.sql import functions as F

    # A load before version 0 uses the schema of version 0.
    options, version = spec.options, max(step.ending_version, 0)
    source_rows = feed.snapshot_rows(session, spec.source_uri, version, step.source_columns, step.staging)
    if step.is_empty:
        source_rows = source_rows.limit(0)
    stamped = source_rows.withColumn(reserved_columns.CHANGE_TYPE, F.lit("insert")).withColumn(
        reserved_columns.COMMIT_VERSION, F.lit(version).cast("bigint")
    )
    if options.stored_as_scd_type == 2 and reserved_columns.COMMIT_TIMESTAMP in _sequences(spec).lower():
        moment = feed.commit_timestamp(session, spec.source_uri, version)
    else:
        moment = F.lit(None).cast("timestamp")
    stamped = stamped.withColumn(reserved_columns.COMMIT_TIMESTAMP, moment)
    sequenced = rows.with_sequence(stamped, options)
    kept = (*reserved_columns.METADATA_COLUMNS, states.SEQUENCE)
    found = rows.projected(sequenced, options, kept)
    shape = rows.shape_of(found, source_rows, options, spec.source_uri)
    aside = None
    try:
        counts, highest = _checked_snapshot(found, shape, spec, version)
    except (NullKey, NullSequence):
        if options.on_invalid != "quarantine":
            raise
        told = quarantine.with_raw(sequenced, step.source_columns)
        found, aside = _without_invalid(
            rows.projected(told, options, (*kept, quarantine.RAW)), shape, spec, step
        )
        counts, highest = _checked_snapshot(found, shape, spec, version)
        counts["quarantined"] = aside.count()
    target_rows = as_target(found, shape, options)
    if step.planned_on is not None and step.kind != "reset":
        schema.check_target(session, spec, target_rows.schema)
        if step.is_empty and shape.sequence_type is not None:
            highest = _highest_in_target(session, spec, shape.sequence_type)
    write = write_step(spec, step, target_rows, shape)
    return Work(write, counts, highest, shape, inserts=target_rows, quarantined=aside)


def _without_invalid(
    found: DataFrame, shape: Shape, spec: ApplySpec, step: LoadStep
) -> tuple[DataFrame, DataFrame]:
    """Return the rows that have keys and sequences, and rows for the quarantine."""
    from pyspark.sql import functions as F

    reason = F.when(b.null_key(shape), quarantine.NULL_KEY)
    if shape.sequence_type is not None:
        reason = reason.when(F.col(states.SEQUENCE).isNull(), quarantine.NULL_SEQUENCE)
    aside = quarantine.rows(
        found.where(reason.isNotNull()),
        spec=spec,
        step=step,
        reason=reason,
        keys=shape.keys,
        sequence=F.lit(None),
        event=F.col(quarantine.RAW),
        commit_version=F.col(reserved_columns.COMMIT_VERSION),
    )
    return found.where(reason.isNull()), aside.localCheckpoint()


def write_step(spec: ApplySpec, step: LoadStep, target_rows: DataFrame, shape: Shape) -> Callable[[], None]:
    """Return the write of a load's rows: create a target, fill an empty one, or replace all rows (reset)."""
    options = spec.options
    writer = layout.arranged(target_rows, shape, options).write.format("delta")
    if step.kind == "reset":
        writer = writer.mode("overwrite").option("overwriteSchema", "true")
        writer = writer.options(**layout.properties(shape, options))
    elif step.planned_on is None:
        # One commit with data, properties and seal; this mode ignores files that a crash left behind.
        writer = writer.mode("error").options(**layout.properties(shape, options))
    else:
        writer = writer.mode("append").option("mergeSchema", "true")
    most = None if step.is_empty else _rows_per_file(target_rows, spec, step)
    if most is not None:
        writer = writer.option("maxRecordsPerFile", most)
    if options.partition_by and (step.kind == "reset" or step.planned_on is None):
        writer = writer.partitionBy(*options.partition_by)
    return lambda: writer.save(spec.target_uri)


def _rows_per_file(target_rows: DataFrame, spec: ApplySpec, step: LoadStep) -> int | None:
    """Return how many rows a file may hold, assuming that they are as wide as the source's."""
    like = spec.source_uri if step.staging is None else step.staging.uri
    return layout.rows_per_file(layout.extent(target_rows.sparkSession, like), spec.options)


def as_target(found: DataFrame, shape: Shape, options: ApplyOptions) -> DataFrame:
    """Return existing (not deleted) rows as the target stores them.

    :param found: values, and :data:`~delta_cdc.spark.changes.states.SEQUENCE`
    """
    from pyspark.sql import functions as F

    added: list[Column] = []
    if shape.sequence_type is not None:
        added = [F.col(states.SEQUENCE), F.lit(None).cast(shape.sequence_type)]
    elif rows.marks_deletes(options):
        added = [F.lit(False)]
    named = zip(added, rows.added_columns(options), strict=True)
    return found.select(
        *[quote(name) for name in shape.values], *[value.alias(name) for value, name in named]
    )


def _highest_in_target(session: SparkSession, spec: ApplySpec, sequence_type: DataType) -> str | None:
    """Return the greatest sequence in rows that existed before the first seal."""
    from pyspark.sql import functions as F

    bounds = [F.max(quote(name)) for name in (spec.options.start_column, spec.options.end_column)]
    existing = session.read.format("delta").load(spec.target_uri)
    found = existing.select(as_text(F.greatest(*bounds), sequence_type).alias("highest")).collect()
    return None if found[0]["highest"] is None else str(found[0]["highest"])


def _sequences(spec: ApplySpec) -> str:
    return " ".join([*spec.options.sequences, spec.options.delete_sequence or ""])


def _checked_snapshot(
    found: DataFrame, shape: Shape, spec: ApplySpec, version: int
) -> tuple[dict[str, int], str | None]:
    """Refuse null keys, duplicate keys and null sequences of a snapshot; return counts and highest start."""
    from pyspark.sql import functions as F

    versions = f"version {version}"
    if spec.options.insert_only:
        return {}, None
    keys = [F.col(quote(key)) for key in shape.keys]
    per_key = found.groupBy(*keys).agg(
        F.count("*").alias(_ROWS),
        F.count_if(F.col(states.SEQUENCE).isNull()).alias(_NULL_SEQUENCES),
        F.max(states.SEQUENCE).alias(_HIGHEST),
    )
    highest = F.lit(None)
    if shape.sequence_type is not None:
        highest = as_text(F.max(_HIGHEST), shape.sequence_type)
    totals = per_key.agg(
        F.coalesce(F.sum(_ROWS), F.lit(0)).alias("rows"),
        F.count_if(b.null_key(shape)).alias("null_keys"),
        F.count_if(F.col(_ROWS) > 1).alias("duplicates"),
        F.coalesce(F.sum(_NULL_SEQUENCES), F.lit(0)).alias("null_sequences"),
        highest.alias("highest"),
    ).collect()[0]
    b.refuse_null_keys(totals["null_keys"], spec.source_uri, versions, shape.keys)
    if totals["duplicates"]:
        sample = b.samples(per_key, shape.keys, F.col(_ROWS) > 1)
        b.refuse_duplicates(totals["duplicates"], spec.source_uri, versions, sample)
    if shape.sequence_type is None:
        return {"rows": totals["rows"]}, None
    if totals["null_sequences"]:
        sample = b.samples(per_key, shape.keys, F.col(_NULL_SEQUENCES) > 0)
        b.refuse_null_sequences(
            totals["null_sequences"], spec.source_uri, versions, sample, ", ".join(spec.options.sequences)
        )
    return {"rows": totals["rows"]}, totals["highest"]
