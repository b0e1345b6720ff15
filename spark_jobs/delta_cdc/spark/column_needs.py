"""What a Delta table needs before it can hold columns: column mapping for some names, a feature for a type.

:func:`bare` takes from columns what a table that is made of them must not get.

Delta gives a new table what its types need. It does not do so for a new column of an existing table, and an
overwrite ignores the properties among its options.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.core.sql import PLAN_PREFIX, quote, set_properties
from delta_cdc.spark import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

# Parquet does not allow these characters in column names; column mapping does.
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
#: The feature of a table with times without a zone, and the property that turns it on.
_PLAIN_TIME = "timestampNtz"
_ALLOWS_PLAIN_TIME = f"delta.feature.{_PLAIN_TIME}"
#: What a table gets of the metadata of a column that it is made of.
_OF_A_COLUMN = ("comment",)
#: The collation of a STRING without one.
_BINARY = "UTF8_BINARY"


def parts_of(data_type: T.DataType) -> list[T.StructField]:
    """Return the parts of a type, with the names that a path has for them."""
    if isinstance(data_type, T.StructType):
        return data_type.fields
    if isinstance(data_type, T.ArrayType):
        return [T.StructField("element", data_type.elementType)]
    if isinstance(data_type, T.MapType):
        return [T.StructField("key", data_type.keyType), T.StructField("value", data_type.valueType)]
    return []


def bare(rows: DataFrame) -> DataFrame:
    """Return rows whose columns have a type and a comment, and nothing else that a table keeps of a column.

    - No default (``CURRENT_DEFAULT``): a table that evolves gets it without the table feature, and writes it
      into each new row without the column, for instance after the source has dropped it.
    - STRING instead of CHAR and VARCHAR, whose values Spark has padded: Delta has no MERGE into CHAR columns.
    - STRING without a collation, which Delta 4.4 cannot write. The values stay as they are.
    """
    fields = rows.schema.fields
    collated = [field.name for field in fields if _is_collated(field.dataType)]
    if collated:
        rows = rows.withColumns({name: F.collate(F.col(quote(name)), _BINARY) for name in collated})
    kept = {
        field.name: {name: value for name, value in field.metadata.items() if name in _OF_A_COLUMN}
        for field in fields
    }
    # A computed column has no metadata.
    has = {field.name: {} if field.name in collated else field.metadata for field in fields}
    return with_metadata(rows, {name: wanted for name, wanted in kept.items() if has[name] != wanted})


def _is_collated(data_type: T.DataType) -> bool:
    return isinstance(data_type, T.StringType) and getattr(data_type, "collation", _BINARY) != _BINARY


def with_metadata(rows: DataFrame, metadata: Mapping[str, Mapping[str, Any]]) -> DataFrame:
    """Return rows with other metadata of some columns.

    :param metadata: by the name of the column
    """
    if not metadata:
        return rows
    # Spark's withMetadata takes a dot in a name for a path.
    plain = {name: f"{PLAN_PREFIX}plain_{number}" for number, name in enumerate(metadata)}
    rows = rows.withColumnsRenamed(plain)
    for name, given in metadata.items():
        rows = rows.withMetadata(plain[name], dict(given))
    return rows.withColumnsRenamed({plain_name: name for name, plain_name in plain.items()})


def mapping(schema: T.DataType) -> dict[str, str]:
    """Return the property for column mapping if a name needs it, also a nested one; otherwise nothing."""
    needs_it = any(_NEEDS_MAPPING.search(part.name) for part in _all_parts(schema))
    return {COLUMN_MAPPING: "name"} if needs_it else {}


def statements(
    session: SparkSession, uri: str, wanted: Sequence[T.DataType], have: T.DataType, *, maps: bool = False
) -> tuple[str, ...]:
    """Return the statement by which an existing table may hold columns; nothing if it may already.

    :param wanted: types of the columns
    :param have: columns that the table has, so that it has what they need
    :param maps: also turn on column mapping, which some readers of a table do not know
    """
    needs = {name: value for one in wanted for name, value in _needs(one, maps=maps).items()}
    missing = {name: value for name, value in needs.items() if name not in _needs(have, maps=maps)}
    if not missing:
        return ()
    detail = catalog.delta_detail(session, uri, remedy="run again.")
    if _PLAIN_TIME in (detail.get("tableFeatures") or ()):
        missing.pop(_ALLOWS_PLAIN_TIME, None)
    if detail["properties"].get(COLUMN_MAPPING, "none") != "none":
        missing.pop(COLUMN_MAPPING, None)
    return (set_properties(uri, missing),) if missing else ()


def _needs(schema: T.DataType, *, maps: bool) -> dict[str, str]:
    types = (schema, *(part.dataType for part in _all_parts(schema)))
    has_plain_time = any(isinstance(one, T.TimestampNTZType) for one in types)
    feature = {_ALLOWS_PLAIN_TIME: "supported"} if has_plain_time else {}
    return feature | (mapping(schema) if maps else {})


def _all_parts(data_type: T.DataType) -> Iterator[T.StructField]:
    for part in parts_of(data_type):
        yield part
        yield from _all_parts(part.dataType)
