"""The side table that says which files and offsets each batch took: it gives batches their order.

Its commit of a batch comes before the one of the change log, and is a compare-and-swap like any seal: of two
drivers with batches of one number, one records its own, and the other plans again.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from delta_cdc.apply.commit import Outcome, attempt
from delta_cdc.apply.constraints import Into
from delta_cdc.ingest.records import unreadable
from delta_cdc.sql import table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.spec import IngestSpec
    from delta_cdc.watermark import Seal

#: Name -> type.
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
#: What a replay takes.
QUARANTINE = "quarantine"
#: Only a table that is made here gets them; compaction keeps it readable for the planner, file by file.
_PROPERTIES = {
    "delta.appendOnly": "true",
    "delta.enableDeletionVectors": "false",
    "delta.enableChangeDataFeed": "false",
    "delta.autoOptimize.autoCompact": "true",
}


@contextmanager
def expected(session: SparkSession, spec: IngestSpec) -> Iterator[None]:
    """Let Delta read the table's log while something else is done: its commit needs it."""
    if spec.recorded or spec.step.planned_on is None:
        yield
        return
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(lambda: session.sql(f"DESCRIBE DETAIL {table(spec.ingested_uri)}").collect())
        yield
        # It may not be there, and whoever writes to it finds out the rest.
        reading.exception()


def write(session: SparkSession, spec: IngestSpec, seal: Seal) -> Outcome:
    """Record a batch, under the number that its commit in the log will have.

    :return: ``committed``, or ``skipped`` or ``conflict`` where another driver was first
    """
    writer = _frame(session, spec).write.format("delta").mode("append").options(**_PROPERTIES)
    return attempt(session, seal, partial(writer.save, spec.ingested_uri), Into(spec.ingested_uri))


def rows(spec: IngestSpec) -> list[dict[str, Any]]:
    """Return what a batch takes, one row per file or range of offsets; and one where it takes neither."""
    if spec.step.kind == "replay":
        return [{"file": QUARANTINE, "status": REPLAYED}]
    if spec.step.kind == "reseal":
        return [{"file": "", "status": RESEALED}]
    bad = {file.uri for file, _ in unreadable(spec)}
    found: list[dict[str, Any]] = []
    for file in spec.files:
        status = MISSING if file.missing else UNREADABLE if file.uri in bad else TAKEN
        known = {"file": file.uri, "size": file.size, "modified": file.modified, "etag": file.etag}
        found.append({**known, "status": status})
    found += [
        {
            "topic": part.topic,
            "partition": part.partition,
            "starting_offset": part.starting_offset,
            "ending_offset": part.ending_offset,
            "status": TAKEN,
        }
        for part in spec.offsets
    ]
    return found


def _frame(session: SparkSession, spec: IngestSpec) -> DataFrame:
    """Return the rows as a DataFrame that Spark makes in one task, without Python in it."""
    from pyspark.sql import functions as F

    values = {"pipeline": F.lit(spec.pipeline), "seal": F.lit(spec.step.seal_number)}
    text = F.lit(json.dumps(rows(spec)))
    found = session.range(0, 1, 1, 1).select(F.inline(F.from_json(text, f"array<struct<{_fields()}>>")))
    values["recorded_at"] = F.current_timestamp()
    return found.select(
        *[values.get(name, F.col(name)).cast(kind).alias(name) for name, kind in COLUMNS.items()]
    )


def _fields() -> str:
    return ", ".join(f"{name}: {kind}" for name, kind in COLUMNS.items())
