"""The quarantine of a change log: invalid records, with their raw text, position and reason.

Its rows are written before the log's commit of the same number, so the rejects of a committed batch are never
missing.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from delta_cdc.core.change_log import POSITION, POSITION_DDL, PUBLISHED, RAW
from delta_cdc.core.errors import ConcurrentModification, TableNotFound, TargetSchemaClash
from delta_cdc.core.reasons import reason as said
from delta_cdc.core.sql import PLAN_PREFIX, quote, string, table
from delta_cdc.spark import catalog
from delta_cdc.spark.apply.commit import Outcome, attempt, is_conflict
from delta_cdc.spark.apply.constraints import Destination
from delta_cdc.spark.ingest import redelivery
from delta_cdc.spark.ingest.delimited import UNCLOSED
from delta_cdc.spark.ingest.events import REASON

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.spec import IngestSpec, SourceFile
    from delta_cdc.core.watermark import Seal

#: Name -> type. ``raw`` and ``position`` are RAW and POSITION of the record; ``raw`` is NULL for a file that
#: was unreadable as a whole.
COLUMNS = {
    "pipeline": "string",
    "seal": "bigint",
    "reason": "string",
    "position": POSITION_DDL,
    "raw": "string",
    "adapter": "string",
    "quarantined_at": "timestamp",
}
_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "false"}
_TRIES = 3
_SETTLED = f"{PLAN_PREFIX}settled"


def of_files(session: SparkSession, files: Sequence[tuple[SourceFile, str]]) -> DataFrame:
    """Return a reject for each unreadable file: RAW, POSITION and the reason.

    :param files: each with the reason
    """
    from pyspark.sql import functions as F

    told = json.dumps([{"position": {"file": file.uri}, REASON: reason} for file, reason in files])
    ddl = f"array<struct<position: {POSITION_DDL}, {REASON}: string>>"
    rows = session.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(told), ddl)))
    return rows.select(F.lit(None).cast("string").alias(RAW), F.col("position").alias(POSITION), REASON)


def exists(session: SparkSession, uri: str) -> bool:
    """Return whether the quarantine exists."""
    try:
        catalog.delta_detail(session, uri, remedy="")
    except TableNotFound:
        return False
    return True


def new(session: SparkSession, spec: IngestSpec, rejects: DataFrame) -> DataFrame:
    """Remove redelivered rejects that are in quarantine already."""
    from pyspark.sql import functions as F

    flag = redelivery.flagged(spec)
    if flag is None or not exists(session, spec.quarantine_uri):
        return rejects
    flag = F.coalesce(flag, F.lit(False))
    held = _held(session, spec).where(F.col("seal") < spec.step.seal_number)
    key = F.struct(redelivery.place(exact=bool(spec.offsets)).alias("place"), F.col(RAW).alias("raw"))
    left = redelivery.beyond(rejects.where(flag), held, key, key)
    return rejects.where(~flag).unionByName(left)


def write(session: SparkSession, spec: IngestSpec, seal: Seal, rejects: DataFrame) -> None:
    """Write a batch's rejects in one commit, sealed with its number.

    If another driver with this batch, or an attempt that crashed later, already wrote under this number, add
    only the missing rows, because other options may reject more records.

    :param seal: of the log's commit
    :param rejects: RAW, POSITION and the reason
    :raises ConcurrentModification: other writers kept winning the race
    """
    reason = ""
    for _ in range(_TRIES):
        outcome = attempt(session, seal, _append(spec, rejects), Destination(spec.quarantine_uri))
        if outcome.status == "committed":
            return
        if outcome.status == "skipped":
            outcome = _added(spec, _missing(session, spec, rejects))
        if outcome.status == "committed":
            return
        reason = outcome.message
    raise ConcurrentModification(
        f"Other runs keep writing to the quarantine {spec.quarantine_uri}: {reason}",
        remedy="run again; what was recorded is taken first.",
    )


def _append(spec: IngestSpec, rejects: DataFrame) -> Callable[[], None]:
    writer = _rows(spec, rejects).write.format("delta").mode("append").options(**_PROPERTIES)
    return lambda: writer.save(spec.quarantine_uri)


def _added(spec: IngestSpec, rejects: DataFrame) -> Outcome:
    if rejects.isEmpty():
        return Outcome("committed")
    try:
        _append(spec, rejects)()
    except Exception as error:
        if is_conflict(error):
            return Outcome("conflict", said(error))
        raise
    return Outcome("committed")


def _missing(session: SparkSession, spec: IngestSpec, rejects: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    held = _held(session, spec).where(F.col("seal") == spec.step.seal_number)
    key = F.struct(redelivery.place(exact=True).alias("place"), F.col(RAW).alias("raw"))
    return redelivery.beyond(rejects, held, key, key).localCheckpoint()


def _rows(spec: IngestSpec, rejects: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    values = {
        "pipeline": F.lit(spec.pipeline),
        "seal": F.lit(spec.step.seal_number),
        "reason": F.col(REASON),
        "position": F.col(POSITION),
        "raw": F.col(RAW),
        "adapter": F.lit(spec.options.adapter),
        "quarantined_at": F.current_timestamp(),
    }
    return rejects.select(*[values[name].cast(kind).alias(name) for name, kind in COLUMNS.items()])


def _held(session: SparkSession, spec: IngestSpec) -> DataFrame:
    """Return this pipeline's rows: RAW, POSITION, PUBLISHED, the reason and ``seal``.

    Excludes rows of batches that a RESTORE of the log undid, because their files are ingested again.
    """
    from pyspark.sql import functions as F

    found = session.read.format("delta").load(spec.quarantine_uri).where(F.col("pipeline") == spec.pipeline)
    missing = [name for name in COLUMNS if name not in found.columns]
    if missing:
        raise TargetSchemaClash(
            f"{spec.quarantine_uri} is no quarantine of a change log: it has no column {', '.join(missing)}.",
            remedy="move that table away; the quarantine is made anew.",
        )
    for first, last in spec.step.configuration.get("void", ()):
        found = found.where(~F.col("seal").between(first, last))
    return found.select(
        F.col("raw").alias(RAW),
        F.col("position").alias(POSITION),
        F.col("quarantined_at").alias(PUBLISHED),
        F.col("reason").alias(REASON),
        "seal",
    )


# -- replay ---------------------------------------------------------------------------------------
def replayable(session: SparkSession, spec: IngestSpec) -> DataFrame:
    """Return the records in quarantine: RAW, PUBLISHED and POSITION.

    Excludes lines that may lie inside a quoted value of their file, because they may not be records.

    :raises TableNotFound: the quarantine does not exist
    """
    from pyspark.sql import functions as F

    catalog.delta_detail(session, spec.quarantine_uri, remedy="nothing was quarantined: nothing to replay.")
    found = _held(session, spec).where((F.col("seal") < spec.step.seal_number) & F.col(RAW).isNotNull())
    return found.where(F.col(REASON) != UNCLOSED).select(RAW, PUBLISHED, POSITION)


def forget(session: SparkSession, spec: IngestSpec, settled: DataFrame) -> None:
    """Delete the rows of records that a replay turned into events, or ignored.

    :param settled: RAW and POSITION
    """
    view = f"{_SETTLED}_{spec.step.seal_number}"
    settled.distinct().createOrReplaceTempView(view)
    try:
        session.sql(
            f"MERGE INTO {table(spec.quarantine_uri)} AS q USING {quote(view)} AS s "
            f"ON q.pipeline = {string(spec.pipeline)} AND q.seal < {spec.step.seal_number} "
            f"AND q.raw = s.{quote(RAW)} AND q.position <=> s.{quote(POSITION)} "
            "WHEN MATCHED THEN DELETE"
        )
    finally:
        session.catalog.dropTempView(view)


def forget_files(session: SparkSession, spec: IngestSpec, files: Sequence[str]) -> None:
    """Delete the rows of files that were unreadable in an earlier delivery, and are readable now."""
    if not files or not exists(session, spec.quarantine_uri):
        return
    listed = ", ".join(string(file) for file in files)
    session.sql(
        f"DELETE FROM {table(spec.quarantine_uri)} WHERE pipeline = {string(spec.pipeline)} "
        f"AND seal < {spec.step.seal_number} AND raw IS NULL AND position.file IN ({listed})"
    )
