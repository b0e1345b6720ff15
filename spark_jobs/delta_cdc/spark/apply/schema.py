"""Compare the target's columns with the rows to be written."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from delta_cdc.core.errors import ConfigurationDrift, TargetSchemaClash
from delta_cdc.spark.apply import rows

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape


def target_schema(shape: Shape, options: ApplyOptions) -> StructType:
    """Return a target's columns: those of the rows, and start and end, or the soft-delete flag."""
    added = [
        T.StructField(name, shape.sequence_type or T.BooleanType()) for name in rows.added_columns(options)
    ]
    return T.StructType([*shape.schema.fields, *added])


def nullable(data_type: DataType) -> DataType:
    """Return the type with nullable parts: Spark casts no value with nullable parts to a type without."""
    if isinstance(data_type, T.StructType):
        fields = [T.StructField(field.name, nullable(field.dataType)) for field in data_type.fields]
        return T.StructType(fields)
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(nullable(data_type.elementType))
    if isinstance(data_type, T.MapType):
        return T.MapType(data_type.keyType, nullable(data_type.valueType))
    return data_type


def lacking(found: DataType, wanted: DataType, path: str) -> list[str] | None:
    """Return the nested fields of ``wanted`` that ``found`` lacks; None if ``found`` cannot take the values.

    The comparison ignores nullability of parts, because Delta stores and enforces it.
    """
    pairs: list[tuple[DataType, DataType, str]]
    if isinstance(found, T.StructType) and isinstance(wanted, T.StructType):
        existing = {f.name.lower(): f for f in found.fields}
        if not set(existing) <= {f.name.lower() for f in wanted.fields}:
            return None
        new = [f"{path}.{f.name}" for f in wanted.fields if f.name.lower() not in existing]
        shared = [f for f in wanted.fields if f.name.lower() in existing]
        pairs = [(existing[f.name.lower()].dataType, f.dataType, f"{path}.{f.name}") for f in shared]
    elif isinstance(found, T.ArrayType) and isinstance(wanted, T.ArrayType):
        new, pairs = [], [(found.elementType, wanted.elementType, f"{path}.element")]
    elif isinstance(found, T.MapType) and isinstance(wanted, T.MapType):
        new = []
        pairs = [
            (found.keyType, wanted.keyType, f"{path}.key"),
            (found.valueType, wanted.valueType, f"{path}.value"),
        ]
    else:
        return [] if found == wanted else None
    for found_part, wanted_part, part_path in pairs:
        inner = lacking(found_part, wanted_part, part_path)
        if inner is None:
            return None
        new += inner
    return new


def check_target(context: StepContext, shape: Shape) -> bool:
    """Check that the target can take rows of a shape; return whether it needs new columns.

    :raises TargetSchemaClash: a column has another type, or is new and schema evolution is off
    :raises ConfigurationDrift: the sequence's type differs from that of the history
    """
    spec, options = context.spec, context.spec.options
    desired = target_schema(shape, options)
    target = context.session.read.format("delta").load(spec.target_uri)
    existing = {f.name.lower(): f for f in target.schema.fields}
    new = [f.name for f in desired.fields if f.name.lower() not in existing]
    history = {name.lower() for name in rows.added_columns(options)}
    for field in desired.fields:
        target_field = existing.get(field.name.lower())
        if target_field is None:
            continue
        is_history_column = field.name.lower() in history
        nested = lacking(target_field.dataType, field.dataType, field.name)
        # Further parts would give a sequence another order than the existing history has.
        if nested is not None and not (is_history_column and nested):
            new += nested
            continue
        types = f"{target_field.dataType.simpleString()}, not {field.dataType.simpleString()}"
        if options.stored_as_scd_type == 2 and is_history_column:
            raise ConfigurationDrift(
                f"{spec.target_uri} was built with a sequence of another type: {field.name} is {types}.",
                remedy="keep the type of sequence_by, or build a new target under a new pipeline name.",
            )
        raise TargetSchemaClash(
            f"Column {field.name!r} of the target {spec.target_uri} is {types} as in {spec.source_uri}.",
            remedy="cast the column with select, or alter the target's column.",
        )
    if new and options.schema_evolution != "additive":
        raise TargetSchemaClash(
            f"The target {spec.target_uri} has no column {', '.join(map(repr, new))}, and schema_evolution "
            f"is {options.schema_evolution!r}.",
            remedy="add it to the target, leave it out with select, or set schema_evolution in policies "
            "to 'additive'.",
        )
    return bool(new)
