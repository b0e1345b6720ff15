"""Find the type that holds all values of two types of Spark (:mod:`delta_cdc.ingest.infer`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T

from delta_cdc.core.column_changes import FOLLOWED
from delta_cdc.ingest import infer
from delta_cdc.ingest.types import Type, of_json, to_json
from delta_cdc.spark.apply.schema import lacking

if TYPE_CHECKING:
    from delta_cdc.core.options import IngestOptions


def of_spark(kind: T.DataType) -> Type:
    """Return a type of Spark as ours, without lengths, collations and nullability."""
    return of_json(kind.jsonValue())


def to_spark(kind: Type) -> T.DataType:
    """Return our type as Spark's; all parts are nullable."""
    wrapped = T.StructType.fromJson(to_json(Type("struct", fields=(("v", kind),))))
    return wrapped.fields[0].dataType


def struct_to_spark(fields: tuple[tuple[str, Type], ...]) -> T.StructType:
    """Return columns as Spark has them."""
    return T.StructType.fromJson(to_json(Type("struct", fields=fields)))


def wider(one: T.DataType, other: T.DataType) -> T.DataType | None:
    """Return the narrowest type that holds all values of both; None if no such type exists."""
    if one == other:
        return one
    ours = of_spark(one)
    found = infer.wider(ours, of_spark(other))
    if found is None:
        return None
    # The first type stays as it is, with what ours lacks; but a text of any length fits no other.
    return one if found == ours and not isinstance(one, T.CharType | T.VarcharType) else to_spark(found)


def may_widen(options: IngestOptions, name: str, one: T.DataType, other: T.DataType) -> bool:
    """Return whether a column of the log may change to a wider type: by the options, and by Delta.

    A key and a column that files are clustered by keep their types.
    """
    fixed = map(str.lower, (*options.keys, *(options.cluster_by or ())))
    if options.schema_evolution not in FOLLOWED or name.lower() in fixed:
        return False
    return lacking(one, other, (name,), {}) is not None
