"""Write the side table that records the files and offsets of each batch.

The commit to the side table precedes the commit to the change log, so this table orders the batches. It is a
compare-and-swap like every seal: if two drivers have the same batch number, one driver records its batch, and
the other driver plans again.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.spark.ingest.readable_files import unreadable
from delta_cdc.spark.sealed.commit import CommitResult, attempt
from delta_cdc.spark.sealed.constraints import Destination
from delta_cdc.spark.sessions import AUTO_COMPACT, set_where_allowed, value_of

if TYPE_CHECKING:
    from delta_cdc.core.spec import IngestSpec
    from delta_cdc.core.watermark import Seal

#: The columns: name -> type.
COLUMNS = {
    "pipeline": "string",
    "seal": "bigint",
    "file": "string",
    "size": "bigint",
    "modified": "bigint",
    "etag": "string",
    "topic": "string",
    "partition": "int",
    "starting_offset": "bigint",
    "ending_offset": "bigint",
    "status": "string",
    "recorded_at": "timestamp",
}
TAKEN, MISSING, UNREADABLE = "taken", "missing", "unreadable"
REPLAYED, RESEALED = "replayed", "resealed"
#: The value of ``file`` for a replay.
QUARANTINE = "quarantine"
#: Properties of a table that this module creates. Compaction keeps the number of files small, because the
#: planner reads the files one by one.
_PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.enableDeletionVectors": "false",
    "delta.enableChangeDataFeed": "false",
    "delta.autoOptimize.autoCompact": "true",
}


#: Delta looks for files to compact after each commit, which takes half a second: every 16th batch suffices.
_COMPACTED_EVERY = 16


def write(session: SparkSession, spec: IngestSpec, seal: Seal) -> CommitResult:
    """Record a batch under the seal number that its commit in the log will have.

    :return: ``committed``; ``skipped`` or ``conflict`` if another driver was first
    """
    writer = _frame(session, spec).write.format("delta").mode("append").options(**_PROPERTIES)
    users_value = value_of(session, AUTO_COMPACT)
    if spec.step.seal_number % _COMPACTED_EVERY:
        set_where_allowed(session, {AUTO_COMPACT: "false"})
    try:
        return attempt(session, seal, partial(writer.save, spec.ingested_uri), Destination(spec.ingested_uri))
    finally:
        set_where_allowed(session, {AUTO_COMPACT: users_value})


def rows(spec: IngestSpec) -> list[dict[str, Any]]:
    """Return one row per file or offset range of a batch; a replay or a renewed seal has one row."""
    if spec.step.kind == "replay":
        return [{"file": QUARANTINE, "status": REPLAYED}]
    if spec.step.kind == "renew":
        return [{"file": "", "status": RESEALED}]
    unreadable_uris = {file.uri for file, _ in unreadable(spec)}
    entries: list[dict[str, Any]] = []
    for file in spec.files:
        status = MISSING if file.missing else UNREADABLE if file.uri in unreadable_uris else TAKEN
        file_values = {"file": file.uri, "size": file.size, "modified": file.modified, "etag": file.etag}
        entries.append({**file_values, "status": status})
    entries += [
        {
            "topic": part.topic,
            "partition": part.partition,
            "starting_offset": part.starting_offset,
            "ending_offset": part.ending_offset,
            "status": TAKEN,
        }
        for part in spec.offsets
    ]
    return entries


def _frame(session: SparkSession, spec: IngestSpec) -> DataFrame:
    """Return the rows as a frame that Spark computes in one task, without Python workers."""
    values = {"pipeline": F.lit(spec.pipeline), "seal": F.lit(spec.step.seal_number)}
    text = F.lit(json.dumps(rows(spec)))
    entries = session.range(0, 1, 1, 1).select(F.inline(F.from_json(text, f"array<struct<{_fields()}>>")))
    values["recorded_at"] = F.current_timestamp()
    return entries.select(
        *[values.get(name, F.col(name)).cast(kind).alias(name) for name, kind in COLUMNS.items()]
    )


def _fields() -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in COLUMNS.items())
