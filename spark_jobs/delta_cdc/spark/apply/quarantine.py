"""The quarantine: a table beside the target that holds what cannot be applied, for inspection and replay.

It has the same columns for every source, so it survives changes of the source's schema. A step writes its
rows before the target's commit of the same seal: whatever a committed step took out is always there. A step
that failed before its commit may also leave rows; the next attempt with the same seal replaces them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from delta_cdc.core.errors import TableNotFound, TargetSchemaClash
from delta_cdc.core.reasons import reason as said
from delta_cdc.core.sql import quote, string, table
from delta_cdc.spark import catalog
from delta_cdc.spark.apply.batch import NULL_KEY
from delta_cdc.spark.apply.commit import Outcome, attempt, is_conflict
from delta_cdc.spark.apply.constraints import Destination

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, DataFrameWriter, SparkSession
    from pyspark.sql.types import DataType

    from delta_cdc.core.spec import ApplySpec, TargetStep
    from delta_cdc.core.watermark import Seal
    from delta_cdc.spark.apply.rows import Shape

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
# Spark's default patterns drop everything below a millisecond.
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Number of attempts: the first may fail if two writers create the table at once.
_TRIES = 2


def rows(
    found: DataFrame,
    *,
    spec: ApplySpec,
    step: TargetStep,
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
    :param sequence: as text, see :mod:`delta_cdc.spark.apply.sequences`
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


def _key_text(value: Column, data_type: DataType) -> Column:
    """Return a key as text that :func:`_key_value` can read back exactly."""
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


def write(
    session: SparkSession, spec: ApplySpec, step: TargetStep, seal: Seal, rows: DataFrame
) -> str | None:
    """Write the rows that a step takes out: one commit, with the seal of the step's commit in the target.

    An attempt that died between the two commits has left rows under this seal. Rows of the same range are
    kept; rows of a range inside ours are replaced, because the target refuses a seal twice, so no other
    commit can have used it.

    :param seal: of the target's commit
    :param rows: of :func:`rows`, not empty
    :return: None if the rows are written; else why they may not be, and the step must be planned again
    :raises TargetSchemaClash: the table is not a quarantine table of ours
    """
    reason = ""
    for _ in range(_TRIES):
        exists = _exists(session, spec.quarantine_uri)
        if exists and _holds(session, spec, f"{_same_seal(step)} AND {_same_range(step)}"):
            return None
        writer = _writer(session, spec, step, rows, exists=exists)
        outcome = attempt(
            session, seal, partial(writer.save, spec.quarantine_uri), Destination(spec.quarantine_uri)
        )
        if outcome.status == "skipped" and _holds(session, spec, f"seal > {step.seal_number}"):
            return f"a run after this one has written to the quarantine {spec.quarantine_uri}"
        if outcome.status == "skipped":
            # An attempt that died used this seal for another range; only its rows show that.
            outcome = _unsealed(writer, spec.quarantine_uri)
        if outcome.status == "committed":
            return None
        reason = outcome.message
    return f"another run writes to the quarantine {spec.quarantine_uri}: {reason}"


def _writer(
    session: SparkSession, spec: ApplySpec, step: TargetStep, rows: DataFrame, *, exists: bool
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
        catalog.delta_detail(session, uri, remedy="")
    except TableNotFound:
        return False
    return True


def _same_seal(step: TargetStep) -> str:
    """Return the SQL condition of rows under this step's seal whose range lies inside the step's range."""
    return (
        f"seal = {step.seal_number} AND starting_version >= {step.starting_version} "
        f"AND ending_version <= {step.ending_version}"
    )


def _same_range(step: TargetStep) -> str:
    return f"starting_version = {step.starting_version} AND ending_version = {step.ending_version}"


def _holds(session: SparkSession, spec: ApplySpec, condition: str) -> bool:
    """Return whether the table holds such rows of this pipeline."""
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
    """Return the distinct keys in a quarantine table, with the target's types.

    Rows without a key are omitted: they cannot be replayed by key.

    :raises TableNotFound: the table does not exist
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    catalog.delta_detail(session, uri, remedy="nothing was quarantined: there is nothing to replay.")
    texts = T.StructType([T.StructField(key, T.StringType()) for key in shape.keys])
    known = session.read.format("delta").load(uri).where(F.col("pipeline") == pipeline)
    read = known.select(F.from_json("keys", texts).alias("keys"))
    keys = [
        _key_value(F.col("keys").getField(key), shape.schema[key].dataType).alias(key) for key in shape.keys
    ]
    found = read.select(*keys)
    for key in shape.keys:
        # Not dropna: it would drop NaN, which is a valid key.
        found = found.where(F.col(quote(key)).isNotNull())
    return found.distinct()


def forget(session: SparkSession, uri: str, pipeline: str, below_seal: int) -> None:
    """Delete the rows that were replayed: those with a key, of seals below ``below_seal``."""
    session.sql(
        f"DELETE FROM {table(uri)} WHERE pipeline = {string(pipeline)} AND seal < {below_seal} "
        f"AND reason <> {string(NULL_KEY)}"
    )
