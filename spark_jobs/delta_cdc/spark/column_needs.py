"""What a Delta table needs before it can hold columns: column mapping for some names, a feature for a type.

Delta gives a new table what its types need. It does not do so for a new column of an existing table, and an
overwrite ignores the properties among its options.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession
from pyspark.sql import types as T

from delta_cdc.core.properties import COLUMN_MAPPING
from delta_cdc.core.sql import set_properties
from delta_cdc.spark import catalog

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Parquet does not allow these characters in column names; column mapping does.
_NEEDS_MAPPING = re.compile(r"[ ,;{}()\n\t=]")
#: The feature of a table with times without a zone, and the property that turns it on.
_PLAIN_TIME = "timestampNtz"
_ALLOWS_PLAIN_TIME = f"delta.feature.{_PLAIN_TIME}"


def parts_of(data_type: T.DataType) -> list[T.StructField]:
    """Return the parts of a type, with the names that a path has for them."""
    if isinstance(data_type, T.StructType):
        return data_type.fields
    if isinstance(data_type, T.ArrayType):
        return [T.StructField("element", data_type.elementType)]
    if isinstance(data_type, T.MapType):
        return [T.StructField("key", data_type.keyType), T.StructField("value", data_type.valueType)]
    return []


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
