"""Compare a type 1 target with the open rows of a type 2 target of the same source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from delta_cdc.core.checks import CURRENT_EQUALS_HISTORY, Check
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import target_columns
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import conformed, same
from delta_cdc.spark.verify.rows import KIND, at_version, differences

if TYPE_CHECKING:
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import VerifySpec

_CURRENT, _HISTORY = f"{PLAN_PREFIX}current", f"{PLAN_PREFIX}history"
_REMEDY = "compare each of the two with its source (equals_source), and repair the one that differs."


def compared(session: SparkSession, spec: VerifySpec) -> Check:
    """Compare the columns that both targets have."""
    assert spec.current is not None
    other, options = spec.current, spec.options
    own_rows = living(at_version(session, spec.target_uri, spec.target_version), options)
    other_rows = living(at_version(session, other.uri, other.read.version), other.options)
    names = {name.lower() for name in other_rows.columns}
    columns = [name for name in own_rows.columns if name.lower() in names]
    keys = states.match(columns, options.keys, "keys", spec.target_uri)
    schema = own_rows.select(*[quote(name) for name in columns]).schema
    current, history = (own_rows, other_rows) if options.stored_as_scd_type == 1 else (other_rows, own_rows)
    joined = _by_key(current, schema, keys, _CURRENT).join(
        _by_key(history, schema, keys, _HISTORY), on=list(keys), how="full"
    )
    values = [name for name in columns if name not in keys]
    kind = (
        F.when(F.col(_CURRENT).isNull(), "without a current row")
        .when(F.col(_HISTORY).isNull(), "without an open row")
        .when(~same(_CURRENT, _HISTORY, schema, values), "changed")
    )
    wrong = joined.withColumn(KIND, kind).where(F.col(KIND).isNotNull())
    detail = (
        f"current rows against open rows, {len(columns)} columns, {other.uri} as of version "
        f"{other.read.version}"
    )
    return differences(CURRENT_EQUALS_HISTORY, wrong, keys, detail, lambda _: _REMEDY)


def living(rows: DataFrame, options: ApplyOptions) -> DataFrame:
    """Return the current rows whose keys are not NULL, without the columns that the engine adds."""
    rows = target_columns.current(rows, options)
    for key in options.keys:
        rows = rows.where(F.col(quote(key)).isNotNull())
    return rows.drop(*options.added_columns)


def _by_key(rows: DataFrame, schema: StructType, keys: tuple[str, ...], side: str) -> DataFrame:
    types = {field.name.lower(): field.dataType for field in rows.schema.fields}
    values = {
        field.name: F.expr(conformed(quote(field.name), types[field.name.lower()], field.dataType))
        for field in schema.fields
    }
    state = F.struct(*[value.alias(name) for name, value in values.items()])
    return rows.select(*[values[key].alias(key) for key in keys], state.alias(side))
