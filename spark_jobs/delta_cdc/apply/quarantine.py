"""The quarantine: a table beside the target for what cannot be applied, to be looked at and replayed.

It has the same columns for every source, so it outlives changes of the source's schema. A row is written
before the target's commit of the same seal, never after it: what a committed step took out is always there. A
step that never committed may leave rows, too; the next try of the same seal takes their place.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from delta_cdc import names
from delta_cdc.apply.commit import Outcome, attempt, is_conflict
from delta_cdc.apply.constraints import Into
from delta_cdc.errors import TableNotFound, TargetSchemaClash
from delta_cdc.reasons import reason as said
from delta_cdc.sql import PLAN_PREFIX, quote, string, table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import DataType

    from delta_cdc.apply.rows import Shape
    from delta_cdc.spec import ApplySpec, Step
    from delta_cdc.watermark import Seal

#: The row of the source, beside what was made of it.
RAW = f"{PLAN_PREFIX}raw"
#: Reasons that any source may give.
NULL_KEY, NULL_SEQUENCE = "null_key", "null_sequence"
#: Name -> type. ``keys`` and ``event`` are JSON: the key columns as text, the row of the source as it was.
COLUMNS = {
    "reason": "string",
    "pipeline": "string",
    "seal": "bigint",
    "starting_version": "bigint",
    "ending_version": "bigint",
    "commit_version": "bigint",
    "keys": "string",
    "sequence": "string",
    "event": "string",
    "quarantined_at": "timestamp",
}
_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "false"}
# Spark's own patterns cut off what is below a millisecond.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Writing again where two writers make the table at once.
_TRIES = 2


def rows(
    found: DataFrame,
    *,
    spec: ApplySpec,
    step: Step,
    reason: Column,
    keys: Sequence[str],
    sequence: Column,
    event: Column,
    commit_version: Column,
) -> DataFrame:
    """Return rows of a quarantine table (:data:`COLUMNS`).

    :param found: what cannot be applied; the columns are expressions over it
    :param reason: why
    :param keys: names of the key columns
    :param sequence: as text, see :mod:`delta_cdc.apply.sequences`
    :param event: the row of the source, a struct
    """
    from pyspark.sql import functions as F

    named = [_key_text(F.col(quote(key)), found.schema[key].dataType).alias(key) for key in keys]
    values = {
        "reason": reason,
        "pipeline": F.lit(spec.pipeline),
        "seal": F.lit(step.seal_number),
        "starting_version": F.lit(step.starting_version),
        "ending_version": F.lit(step.ending_version),
        "commit_version": commit_version,
        "keys": F.to_json(F.struct(*named), _JSON),
        "sequence": sequence,
        "event": F.to_json(event, _JSON),
        "quarantined_at": F.current_timestamp(),
    }
    return found.select(*[values[name].cast(kind).alias(name) for name, kind in COLUMNS.items()])


def with_raw(source_rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Add :data:`RAW` to rows of the source: it passes by the projection, for what is invalid."""
    from pyspark.sql import functions as F

    return source_rows.withColumn(RAW, F.struct(*[F.col(quote(name)) for name in columns]))


def _key_text(value: Column, data_type: DataType) -> Column:
    """Return a key as text that :func:`_key_value` reads back exactly."""
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(data_type, T.BinaryType):
        return F.hex(value)
    if isinstance(data_type, T.StructType | T.ArrayType):
        return F.to_json(value, _JSON)
    return value.cast("string")


def _key_value(text: Column, data_type: DataType) -> Column:
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    if isinstance(data_type, T.BinaryType):
        return F.unhex(text)
    if isinstance(data_type, T.StructType | T.ArrayType):
        return F.from_json(text, data_type, _JSON)
    return text.cast(data_type)


def write(session: SparkSession, spec: ApplySpec, step: Step, seal: Seal, rows: DataFrame) -> str | None:
    """Write what a step takes out: one commit, sealed like the one that the step will make in the target.

    A try that died between the two commits has left its rows under this seal. Those of the same range are
    ours; those of a range inside ours give way, because no other commit can have used the seal: the target
    refuses a seal twice.

    :param seal: of the target's commit
    :param rows: of :func:`rows`, not empty
    :return: None where the rows are there; else why they may not be, and the step must be planned again
    :raises TargetSchemaClash: where the table is not one of ours
    """
    reason = ""
    for _ in range(_TRIES):
        exists = _exists(session, spec.quarantine_uri)
        if exists and _holds(session, spec, f"{_same_seal(step)} AND {_same_range(step)}"):
            return None
        writer = _writer(session, spec, step, rows, exists=exists)
        outcome = attempt(session, seal, partial(writer.save, spec.quarantine_uri), Into(spec.quarantine_uri))
        if outcome.status == "skipped" and _holds(session, spec, f"seal > {step.seal_number}"):
            return f"a run after this one has written to the quarantine {spec.quarantine_uri}"
        if outcome.status == "skipped":
            # The seal was used for another range, by a try that died; nothing but its rows knows of it.
            outcome = _unsealed(writer, spec.quarantine_uri)
        if outcome.status == "committed":
            return None
        reason = outcome.message
    return f"another run writes to the quarantine {spec.quarantine_uri}: {reason}"


def _writer(
    session: SparkSession, spec: ApplySpec, step: Step, rows: DataFrame, *, exists: bool
) -> DataFrameWriter:
    writer = rows.write.format("delta")
    if not exists:
        return writer.mode("error").options(**_PROPERTIES)
    _check_columns(session, spec.quarantine_uri)
    replaced = f"pipeline = {string(spec.pipeline)} AND {_same_seal(step)}"
    return writer.mode("overwrite").option("replaceWhere", replaced)


def _unsealed(writer: DataFrameWriter, uri: str) -> Outcome:
    try:
        writer.save(uri)
    except Exception as error:
        if is_conflict(error):
            return Outcome("conflict", said(error))
        raise
    return Outcome("committed")


def _exists(session: SparkSession, uri: str) -> bool:
    try:
        names.delta_detail(session, uri, remedy="")
    except TableNotFound:
        return False
    return True


def _same_seal(step: Step) -> str:
    """Return the SQL condition of rows under this step's seal whose range lies inside its own."""
    return (
        f"seal = {step.seal_number} AND starting_version >= {step.starting_version} "
        f"AND ending_version <= {step.ending_version}"
    )


def _same_range(step: Step) -> str:
    return f"starting_version = {step.starting_version} AND ending_version = {step.ending_version}"


def _holds(session: SparkSession, spec: ApplySpec, condition: str) -> bool:
    """Tell whether the table holds such rows of this pipeline."""
    from pyspark.sql import functions as F

    found = session.read.format("delta").load(spec.quarantine_uri)
    return not found.where(F.col("pipeline") == spec.pipeline).where(condition).isEmpty()


def _check_columns(session: SparkSession, uri: str) -> None:
    found = {name.lower() for name in session.read.format("delta").load(uri).columns}
    missing = [name for name in COLUMNS if name not in found]
    if missing:
        raise TargetSchemaClash(
            f"{uri} is no quarantine table: it has no column {', '.join(missing)}.",
            remedy="move that table away; the quarantine is made anew.",
        )


def keys_of(session: SparkSession, uri: str, pipeline: str, shape: Shape) -> DataFrame:
    """Return the distinct keys that stand in a quarantine table, typed like the target's.

    What has no key cannot be replayed by key, and is left out.

    :raises TableNotFound: where there is no such table
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    names.delta_detail(session, uri, remedy="nothing was quarantined: there is nothing to replay.")
    texts = T.StructType([T.StructField(key, T.StringType()) for key in shape.keys])
    known = session.read.format("delta").load(uri).where(F.col("pipeline") == pipeline)
    read = known.select(F.from_json("keys", texts).alias("keys"))
    keys = [
        _key_value(F.col("keys").getField(key), shape.schema[key].dataType).alias(key) for key in shape.keys
    ]
    found = read.select(*keys)
    for key in shape.keys:
        # Not dropna: it would drop NaN, which is a key like any other.
        found = found.where(F.col(quote(key)).isNotNull())
    return found.distinct()


def forget(session: SparkSession, uri: str, pipeline: str, below_seal: int) -> None:
    """Delete the rows that were replayed: those with a key, of seals below ``below_seal``."""
    session.sql(
        f"DELETE FROM {table(uri)} WHERE pipeline = {string(pipeline)} AND seal < {below_seal} "
        f"AND reason <> {string(NULL_KEY)}"
    )
