"""Compare the target's columns with the rows to be written, and alter columns that follow the source's.

Each ALTER is a commit without a seal, before the commit of its step. It compares names and types first, so a
retry after a crash between the two goes on where the crash left the target.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructType

from delta_cdc.core import sql
from delta_cdc.core.change_log import SEQUENCE
from delta_cdc.core.char_columns import CHAR_TYPE
from delta_cdc.core.column_changes import FOLLOWED, widens
from delta_cdc.core.errors import ConfigurationDrift, TargetSchemaClash
from delta_cdc.core.properties import TYPE_WIDENING
from delta_cdc.core.reserved_columns import TIMES
from delta_cdc.core.validation import BESIDE
from delta_cdc.spark import column_needs
from delta_cdc.spark.apply import target_columns
from delta_cdc.spark.changes.equality import ddl
from delta_cdc.spark.column_needs import parts_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from delta_cdc.core.column_changes import ColumnChange
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

_CHAR = re.compile(r"\bchar\(")
#: Options whose columns hold a sequence.
_SEQUENCES = ("start_column", "end_column")
#: Options whose columns a table may get later: NULL says that a value is unknown.
_LATER = (*TIMES, "row_hash_column")


def target_schema(shape: Shape, options: ApplyOptions) -> StructType:
    """Return a target's columns: those of the rows, and those that the engine adds."""
    added = [
        T.StructField(name, data_type)
        for name, data_type in target_columns.types(options, shape.sequence_type, shape.time_type).items()
    ]
    return T.StructType([*shape.schema.fields, *added])


def lacking(
    found: DataType,
    wanted: DataType,
    path: tuple[str, ...],
    wider: dict[tuple[str, ...], DataType] | None = None,
) -> list[str] | None:
    """Return the nested fields of ``wanted`` that ``found`` lacks; None if ``found`` cannot take the values.

    The comparison ignores nullability of parts, because Delta stores and enforces it.

    :param wider: gets the parts of ``found`` that can take the values once they are widened, with their new
        types; None: no part may differ
    """
    pairs: list[tuple[DataType, DataType, str]]
    if isinstance(found, T.StructType) and isinstance(wanted, T.StructType):
        existing = {f.name.lower(): f for f in found.fields}
        if not set(existing) <= {f.name.lower() for f in wanted.fields}:
            return None
        new = [".".join((*path, f.name)) for f in wanted.fields if f.name.lower() not in existing]
        shared = [f for f in wanted.fields if f.name.lower() in existing]
        pairs = [(existing[f.name.lower()].dataType, f.dataType, f.name) for f in shared]
    elif isinstance(found, T.ArrayType) and isinstance(wanted, T.ArrayType):
        new, pairs = [], [(found.elementType, wanted.elementType, "element")]
    elif isinstance(found, T.MapType) and isinstance(wanted, T.MapType):
        new = []
        pairs = [(found.keyType, wanted.keyType, "key"), (found.valueType, wanted.valueType, "value")]
    elif wider is not None and widens(_in_log(found), _in_log(wanted)):
        wider[path] = wanted
        return []
    else:
        return [] if found == wanted else None
    for found_part, wanted_part, name in pairs:
        inner = lacking(found_part, wanted_part, (*path, name), wider)
        if inner is None:
            return None
        new += inner
    return new


def _refuse_char(target: StructType, spec: ApplySpec) -> None:
    """Refuse CHAR columns, also inside other columns: Delta has no MERGE into a table with such a column."""
    types = {field.name: field.metadata.get(CHAR_TYPE, "") for field in target.fields}
    names = [name for name, text in types.items() if _CHAR.search(text)]
    if names and not spec.options.insert_only:
        raise TargetSchemaClash(
            f"The target {spec.target_uri} has columns of the type CHAR, which Delta cannot MERGE into: "
            f"{', '.join(f'{name} {types[name]}' for name in names)}.",
            remedy=f"change them once: ALTER TABLE {sql.table(spec.target_uri)} ALTER COLUMN "
            f"{sql.quote(names[0])} TYPE STRING; or let the pipeline create the target.",
        )


def _in_log(data_type: DataType) -> str:
    """Return an atomic type as Delta's log has it; "" for other types."""
    text = data_type.jsonValue()
    return text if isinstance(text, str) else ""


def check_target(context: StepContext, shape: Shape) -> None:
    """Check that the target can take rows of a shape.

    The context gets the types of the target's columns, the statements that must alter the target first
    (``alters``), the old names of the columns that they rename, whether the target needs new columns
    (``evolve``), and their comments.

    :raises TargetSchemaClash: a column has another type, or is new and schema evolution is off
    :raises ConfigurationDrift: the sequence's type differs from that of the history
    """
    spec, options = context.spec, context.spec.options
    desired = target_schema(shape, options)
    target = context.session.read.format("delta").load(spec.target_uri).schema
    context.target_types = {field.name.lower(): field.dataType for field in target.fields}
    _refuse_char(target, spec)
    mirrors = options.schema_evolution == "mirror"
    changes = context.step.column_changes
    alters, schema = _followed(spec.target_uri, target, changes, mirrors=mirrors)
    context.old_names = {
        change.after.lower(): change.path[0]
        for change in changes
        if change.kind == "renamed"
        and len(change.path) == 1
        and change.path[0].lower() in context.target_types
    }
    existing = {f.name.lower(): f for f in schema.fields}
    new = [f.name for f in desired.fields if f.name.lower() not in existing]
    _refuse_lost_name(context, changes, new)
    history = {name.lower() for name in options.added_columns}
    if options.writes_events:
        # A wider type is another order, too, for the sources that were collected before.
        history.add(SEQUENCE)
    _refuse_without(context, {name: field.dataType for name, field in existing.items()}, shape.time_type)
    fixed = {name.lower() for name in (*shape.keys, *shape.partitions, *(options.cluster_by or ()))} | history
    wider: dict[tuple[str, ...], DataType] = {}
    for field in desired.fields:
        target_field = existing.get(field.name.lower())
        if target_field is None:
            continue
        may_widen = options.schema_evolution in FOLLOWED and field.name.lower() not in fixed
        path = (target_field.name,)
        nested = lacking(target_field.dataType, field.dataType, path, wider if may_widen else None)
        is_history_column = field.name.lower() in history
        types = [kind.simpleString() for kind in (target_field.dataType, field.dataType)]
        # Other parts, or parts in another order, would give a sequence another order than the history has.
        is_other_order = is_history_column and types[0].lower() != types[1].lower()
        if nested is not None and not is_other_order:
            new += nested
            continue
        if is_history_column:
            raise other_type(spec, field.name, types[0], types[1])
        raise TargetSchemaClash(
            f"Column {field.name!r} of the target {spec.target_uri} is {types[0]}, not {types[1]} as in "
            f"{spec.source_uri}.",
            remedy=_remedy(target_field.dataType, field.dataType, path, is_fixed=field.name.lower() in fixed),
        )
    if new and options.schema_evolution not in ("additive", *FOLLOWED):
        raise TargetSchemaClash(
            f"The target {spec.target_uri} has no column {', '.join(map(repr, new))}, and schema_evolution "
            f"is {options.schema_evolution!r}.",
            remedy="add it to the target, leave it out with select, or set schema_evolution in policies "
            "to 'additive'.",
        )
    added = _added(spec.target_uri, schema, desired) if new else ()
    needs = column_needs.statements(context.session, spec.target_uri, [desired, *wider.values()], target)
    context.alters = (*alters, *needs, *widening(spec.target_uri, wider), *added)
    context.comments = {
        change.path[0]: change.after
        for change in changes
        if change.kind == "comment" and len(change.path) == 1 and change.path[0] in new
    }
    context.evolve = bool(new)


def other_type(spec: ApplySpec, name: str, found: str, wanted: str) -> ConfigurationDrift | TargetSchemaClash:
    """Return the error for a column of the engine that the target has with another type.

    :param found: its type in the target
    :param wanted: the type that the engine writes
    """
    options, uri = spec.options, spec.target_uri
    if options.writes_events:
        return TargetSchemaClash(
            f"The events in {uri} have a sequence of another type: {found}, not {wanted} as in "
            f"{spec.source_uri}.",
            remedy="give sequence_by and delete_sequence of all pipelines of the log the same type, for "
            "instance with CAST.",
        )
    option = options.added_columns[name]
    if option in _SEQUENCES or (option in TIMES and options.takes_events):
        commits = found == "timestamp" and not options.takes_events
        times = ", such as _commit_timestamp" if commits else ""
        return ConfigurationDrift(
            f"{uri} was built with a sequence of another type: {name} is {found}, not {wanted}.",
            remedy=f"give sequence_by the type {found}{times}. Or build a new target beside the old one "
            f"({BESIDE}).",
        )
    remedy = (
        f"name a column that the table lacks in {option}; the error of the next run says how to "
        f"add it. Or leave {option} out: new rows then have NULL in {name}."
    )
    if option == "delete_mode":
        remedy = "set delete_mode to 'hard', or rename the column of the target."
    return TargetSchemaClash(
        f"Column {name!r} of the target {uri} is {found}, and {option} writes {wanted}.", remedy=remedy
    )


def _refuse_lost_name(context: StepContext, changes: Sequence[ColumnChange], new: Sequence[str]) -> None:
    """Refuse a renamed column of which the target has neither name: as a new one, it would be NULL.

    A try that died may have followed an earlier rename, before the source renamed the column again.
    """
    lost = [one for one in changes if one.kind == "renamed" and len(one.path) == 1 and one.after in new]
    if not lost:
        return
    table = sql.table(context.spec.target_uri)
    name = sql.quote(str(lost[0].after))
    raise TargetSchemaClash(
        f"Column {lost[0]} in the source, and the target {context.spec.target_uri} has neither name.",
        remedy=f"if the target has its values under another name, give it the new one: ALTER TABLE {table} "
        f"RENAME COLUMN <name> TO {name}; otherwise add it: ALTER TABLE {table} ADD COLUMN {name} <type>.",
    )


def _refuse_without(context: StepContext, types: Mapping[str, DataType], time_type: DataType | None) -> None:
    """Refuse a target that lacks a column of the layout: schema evolution would leave NULL in all other rows.

    :param types: of the target's columns, by their lower-case names
    """
    options, uri = context.options, context.spec.target_uri
    end = types.get(options.end_column.lower())
    has_history = options.stored_as_scd_type == 2 and end is not None
    for name, option in options.added_columns.items():
        if name.lower() in types or option == "start_column":
            continue
        if not has_history and option not in _LATER:
            continue
        remedy = "restore the table to a version that has it."
        if option in _LATER:
            kind = "STRING" if time_type is None or option not in TIMES else ddl(time_type)
            remedy = (
                f"add it: ALTER TABLE {sql.table(uri)} ADD COLUMN {sql.quote(name)} {kind}; rows that no "
                "change writes keep NULL, which means unknown. Or build a new target beside the old one "
                f"({BESIDE})."
            )
        if option == "current_column":
            update = target_columns.corrected(options, end, uri)
            remedy = (
                f"add it: ALTER TABLE {sql.table(uri)} ADD COLUMN {sql.quote(name)} BOOLEAN; then {update}"
            )
        raise TargetSchemaClash(
            f"The target {uri} has no column {name}, which {option} needs.", remedy=remedy
        )


def _added(uri: str, target: StructType, desired: StructType) -> tuple[str, ...]:
    """Return the statements that add the fields which a MERGE of Delta 4.4 cannot add.

    Its schema evolution cannot cast a target's own arrays of arrays or maps, or maps of these.
    """
    existing = {field.name.lower(): field for field in target.fields}
    pairs = [
        (existing[field.name.lower()], field) for field in desired.fields if field.name.lower() in existing
    ]
    return tuple(
        f"ALTER TABLE {sql.table(uri)} ADD COLUMNS ({_path(path)} {ddl(data_type)})"
        for found, wanted in pairs
        for path, data_type in _beyond_merge(found.dataType, wanted.dataType, (found.name,))
    )


def _beyond_merge(
    found: DataType, wanted: DataType, path: tuple[str, ...], *, is_deep: bool = False
) -> Iterator[tuple[tuple[str, ...], DataType]]:
    """Return the new fields inside a collection that is itself in a collection, with their paths."""
    wanted_parts = {part.name.lower(): part.dataType for part in parts_of(wanted)}
    if isinstance(found, StructType) and is_deep:
        existing = {name.lower() for name in found.names}
        for part in parts_of(wanted):
            if part.name.lower() not in existing:
                yield (*path, part.name), part.dataType
    for part in parts_of(found):
        wanted_part = wanted_parts.get(part.name.lower())
        if wanted_part is not None:
            nests = not isinstance(found, StructType) and not isinstance(part.dataType, StructType)
            yield from _beyond_merge(part.dataType, wanted_part, (*path, part.name), is_deep=is_deep or nests)


def _remedy(found: DataType, wanted: DataType, path: tuple[str, ...], *, is_fixed: bool) -> str:
    remedy = "cast the column with select, or alter the target's column."
    if not is_fixed and lacking(found, wanted, path, {}) is not None:
        return f"set schema_evolution in policies to 'widen', which widens the target's column; or {remedy}"
    return remedy


# -- altering -----------------------------------------------------------------------------------
def widening(uri: str, wider: dict[tuple[str, ...], DataType]) -> tuple[str, ...]:
    """Return the statements that widen columns of a table.

    :param wider: from :func:`lacking`
    """
    if not wider:
        return ()
    types = (_alter(uri, path, f"TYPE {wanted.simpleString()}") for path, wanted in wider.items())
    return (sql.set_properties(uri, {TYPE_WIDENING: "true"}), *types)


def _followed(
    uri: str, schema: StructType, changes: Sequence[ColumnChange], *, mirrors: bool
) -> tuple[tuple[str, ...], StructType]:
    """Return the statements by which a table follows changes, and its columns after them.

    A change that the table already has needs none, and neither does one of a column that the table lacks.

    :param mirrors: drop the columns that were dropped; otherwise they only become nullable
    :raises TargetSchemaClash: the table has both the old and the new name of a column
    """
    alters = []
    order = ("dropped", "renamed", "comment", "nullable")
    # Dropped and renamed fields have the old names of the columns that hold them, so they come first.
    for change in sorted(changes, key=lambda c: (order.index(c.kind), -len(c.path))):
        field = _field(schema, change.path)
        if field is None:
            continue
        if change.kind == "dropped" and mirrors:
            alters.append(f"ALTER TABLE {sql.table(uri)} DROP COLUMN {_path(change.path)}")
            schema = _edited(schema, change.path, None)
        elif change.kind == "renamed":
            if _field(schema, (*change.path[:-1], change.after)) is not None:
                raise TargetSchemaClash(
                    f"Column {change} in the source, and the target {uri} has columns of both names.",
                    remedy="drop or rename the one that the target does not need, then run again.",
                )
            new_name = sql.quote(change.after)
            alters.append(f"ALTER TABLE {sql.table(uri)} RENAME COLUMN {_path(change.path)} TO {new_name}")
            schema = _edited(schema, change.path, change.after)
        elif change.kind == "comment" and field.metadata.get("comment") != change.after:
            alters.append(_alter(uri, change.path, f"COMMENT {sql.string(change.after)}"))
        elif change.kind in ("dropped", "nullable") and not field.nullable:
            alters.append(_alter(uri, change.path, "DROP NOT NULL"))
    return tuple(alters), schema


def _alter(uri: str, path: tuple[str, ...], change: str) -> str:
    return f"ALTER TABLE {sql.table(uri)} ALTER COLUMN {_path(path)} {change}"


def _path(path: tuple[str, ...]) -> str:
    return ".".join(map(sql.quote, path))


def _field(data_type: DataType, path: tuple[str, ...]) -> T.StructField | None:
    """Return the field at a path, or None if it does not exist."""
    field = None
    for name in path:
        parts = parts_of(data_type)
        field = next((part for part in parts if part.name.lower() == name.lower()), None)
        if field is None:
            return None
        data_type = field.dataType
    return field


def _edited(schema: Any, path: tuple[str, ...], new_name: str | None) -> Any:
    """Return a type with the field at a path renamed; None drops the field."""
    parts = []
    for part in parts_of(schema):
        name, data_type = part.name, part.dataType
        if name.lower() == path[0].lower():
            if len(path) > 1:
                data_type = _edited(data_type, path[1:], new_name)
            elif new_name is None:
                continue
            else:
                name = new_name
        parts.append(T.StructField(name, data_type, part.nullable, part.metadata))
    if isinstance(schema, T.StructType):
        return T.StructType(parts)
    if isinstance(schema, T.ArrayType):
        return T.ArrayType(parts[0].dataType)
    return T.MapType(parts[0].dataType, parts[1].dataType)
