"""Compute the four change queries from change rows.

Every read method yields the same change rows: a table's columns, ``_change_type``, ``_commit_version``,
``_commit_timestamp``, and :data:`~delta_cdc.core.reserved_columns.ORDER`. The rows of one key are its history
if they are sorted by version, and within a version with the state before first::

    key 3     delete c @5   insert c2 @6        first row is a state before: the row existed before the range
                                                last row is a state after: it exists after the range
    net       update_preimage c, update_postimage c2   both @6, the key's last change

So the first and the last row of each key give the net effect of a range: one shuffle, one sort, one pass. In
the history of a unique key, states before and after alternate. Two consecutive states of the same kind mean
that two rows share the key. This is an error; the query never picks one of the rows. Spark detects the error
while it reads the rows, so the action raises it; :func:`named_in_plan` restores its class.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from delta_cdc.core.errors import (
    DeltaCdcError,
    InvalidConfiguration,
    InvalidExpression,
    KeyNotUnique,
    NullKey,
    NullSequence,
    ReadMethodUnavailable,
    SequenceNotBelowEnd,
    SequenceNotIncreasing,
    WrongReader,
)
from delta_cdc.core.reserved_columns import (
    AFTER_TYPES,
    BEFORE_TYPES,
    CHANGE_TYPE,
    COMMIT_VERSION,
    METADATA_COLUMNS,
    NEW,
    OLD,
    ORDER,
    ROW_ID,
    TRACKING_COLUMNS,
    UPDATE,
)
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.changes import states
from delta_cdc.spark.changes.equality import comparable, has_equality, same
from delta_cdc.spark.changes.feed import is_after, is_before
from delta_cdc.spark.changes.manifests import SHARED_REMEDY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import QueryOptions

_PREVIOUS = f"{PLAN_PREFIX}previous"
_PREVIOUS_TYPE, _NEXT_TYPE = f"{PLAN_PREFIX}previous_type", f"{PLAN_PREFIX}next_type"
_DELETED_AT = f"{PLAN_PREFIX}deleted_at"
_LEFT, _CAME, _RANK = (f"{PLAN_PREFIX}{name}" for name in ("left", "came", "rank"))

#: Maximum number of characters of a key that an error shows.
_SHOWN = 200
_REMEDIES: dict[type[DeltaCdcError], str] = {
    KeyNotUnique: "add columns to keys until a row is unique, or remove the duplicates from the source.",
    NullSequence: "use an expression that is never NULL, for instance with coalesce.",
    NullKey: "choose keys that are never NULL, or leave such rows out with where.",
    WrongReader: "check which connector reads the change feed.",
    ReadMethodUnavailable: SHARED_REMEDY,
    SequenceNotBelowEnd: "correct the sequence in the source or leave the row out with where; or build a new "
    "target with a higher end_value.",
    SequenceNotIncreasing: "use sequence_by='_commit_version', or an expression that always grows.",
}
#: Spark adds text around and between these parts, and a key may contain any text.
_RAISED = re.compile(
    rf"\A(?>.*?\[USER_RAISED_EXCEPTION\]\s*({'|'.join(error.__name__ for error in _REMEDIES)}): )(.*?) "
    rf"Remedy: ({'|'.join(map(re.escape, _REMEDIES.values()))})",
    re.DOTALL,
)


def answer(
    rows: DataFrame,
    options: QueryOptions,
    *,
    source: str,
    versions: str,
    columns: Sequence[str],
) -> DataFrame:
    """Return the answer to a change query, lazily.

    :param rows: change rows of the range, with the columns of row tracking that the query needs
    :param options: the query, its keys, filter and projection
    :param source: the table, for messages
    :param versions: the range for messages, for instance ``versions 3-9``
    :param columns: the table's columns
    :return: the table's columns or the projection, and the columns of row tracking as far as the query
        requests them (if it is wide, all of these in the structs ``old`` and ``new``); ``_change_type``,
        ``_commit_version`` and ``_commit_timestamp``; reading it raises ``KeyNotUnique``, ``NullKey`` and
        ``WrongReader`` as a Spark exception whose text names class, table, version, an example and the remedy
    :raises InvalidConfiguration: a query that needs keys has none, and the rows have no row ids
    :raises ColumnNotFound: a key is not a column
    :raises InvalidExpression: an expression does not resolve, or Spark cannot compare a key
    :raises ReservedColumnName: a projection has a name that the engine needs
    """
    if options.by_row_id and ROW_ID not in rows.columns:
        raise InvalidConfiguration(
            f"The query {options.query} of {source}, {versions}, needs keys to find the rows that belong "
            "together.",
            remedy="set keys to the key columns.",
        )
    keep = [*METADATA_COLUMNS, ORDER, *options.tracking]
    change_columns = rows.select(*[quote(name) for name in (*columns, *keep)])
    projected = states.projected(change_columns, options.where, options.select, keep)
    values = [name for name in projected.columns if name not in keep]
    tracked = TRACKING_COLUMNS if options.row_ids else ()
    states.refuse_reserved(values, source, tracked, remedy="rename it with select, or leave row_ids out.")
    states.refuse_doubled(values, "select")
    if tracked:
        projected = projected.withColumns(dict(zip(tracked, map(F.col, options.tracking), strict=True)))
    place = f"{source}, {versions}"
    if not options.pairs_rows:
        changes = projected if options.raw else _check_types(projected, options.query == "append_only", place)
        return changes.select(*map(quote, (*values, *tracked)), *METADATA_COLUMNS)
    keys = [ROW_ID] if options.by_row_id else list(states.match(values, options.keys, "keys", source))
    _refuse_without_equality(projected, keys)
    if options.is_net:
        both = options.query == "min_delta"
        return _net(projected, keys, values, place, both=both, wide=options.wide, tracked=tracked)
    output = (*values, *tracked)
    if options.wide:
        return _wide_by_key(projected, keys, output, place)
    return _changes_by_key(projected, keys, output, place, options)


def of_snapshot(rows: DataFrame, options: QueryOptions, **given: Any) -> DataFrame:
    """Return the answer to a change query for the rows of a snapshot, which are all inserts.

    Without keys, a snapshot needs no row ids: no row has a counterpart.

    :param given: as for :func:`answer`
    """
    if not options.by_row_id:
        return answer(rows, options, **given)
    plain = replace(options, query="full_delta", wide=False, only_surviving=False)
    inserted = answer(rows, plain, **given)
    if not options.wide:
        return inserted
    state = F.struct(*[quote(name) for name in inserted.columns if name not in METADATA_COLUMNS])
    return inserted.select(F.when(F.lit(False), state).alias(OLD), state.alias(NEW), *METADATA_COLUMNS)


def named_in_plan(error: BaseException) -> DeltaCdcError | None:
    """Return the named error in an exception that Spark raised while it read a change query.

    :param error: the exception from Spark
    :return: an error such as ``KeyNotUnique``; None if the exception has another cause
    """
    match = _RAISED.search(str(error))
    if match is None:
        return None
    error_class = {error.__name__: error for error in _REMEDIES}[match[1]]
    return error_class(match[2], remedy=match[3])


def drop_carry_over(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Drop rows that a version removed and added unchanged, because they only moved to another file.

    For k deletes and m inserts of equal rows, min(k, m) of each are dropped. Updates stay.

    :param rows: change rows of a version, or of several
    :param columns: the table's columns
    """
    content = [F.expr(comparable(quote(name), rows.schema[name].dataType)) for name in columns]
    alike = Window.partitionBy(COMMIT_VERSION, *content)
    by_type = alike.orderBy(CHANGE_TYPE)
    kind = F.col(CHANGE_TYPE)
    with_counts = rows.withColumns(
        {
            _LEFT: F.count_if(kind == "delete").over(alike),
            _CAME: F.count_if(kind == "insert").over(alike),
            # Rows of one type are equal. "delete" sorts before "insert", and both before updates.
            _RANK: F.row_number().over(by_type),
        }
    )
    rank = F.when(kind == "insert", F.col(_RANK) - F.col(_LEFT)).otherwise(F.col(_RANK))
    is_change = ~kind.isin("delete", "insert") | (rank > F.least(_LEFT, _CAME))
    return with_counts.where(is_change).select(*[F.col(quote(name)) for name in rows.columns])


# -- without keys -------------------------------------------------------------------------------
def _check_types(rows: DataFrame, only_inserts: bool, place: str) -> DataFrame:
    kind = F.col(CHANGE_TYPE)
    if only_inserts:
        others = kind.isin(*BEFORE_TYPES, *(name for name in AFTER_TYPES if name != "insert"))
        return rows.where(F.when(kind == "insert", True).when(others, False).otherwise(_unknown(place)))
    return rows.where(F.when(is_before() | is_after(), True).otherwise(_unknown(place)))


# -- by key -------------------------------------------------------------------------------------
def _position(keys: Sequence[str], place: str) -> Column:
    null = F.lit(False)
    for key in keys:
        null = null | F.col(quote(key)).isNull()
    return (
        F.when(null, _null_key(keys, place))
        .when(is_before() | is_after(), states.position_of())
        .otherwise(_unknown(place))
    )


def _net(
    rows: DataFrame,
    keys: Sequence[str],
    values: Sequence[str],
    place: str,
    *,
    both: bool,
    wide: bool,
    tracked: Sequence[str],
) -> DataFrame:
    """Return the net effect per key: the states at both ends, or only the last state.

    :param wide: both states in one row
    :param tracked: columns that the states have too, and whose change is no change of the row
    """
    in_order, history = states.placed(rows, keys, _position(keys, place))
    # Spark computes a window over the whole history once per key, not once per row.
    whole = history.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    state = [F.col(quote(name)) for name in (*values, *tracked)]
    with_before = in_order.withColumn(
        states.BEFORE, F.first(F.when(is_before(), F.struct(*state))).over(whole)
    )
    last = with_before.where(_one_row(keys, place).otherwise(F.col(states.NEXT).isNull()))
    existed, before = F.col(states.BEFORE).isNotNull(), F.col(states.BEFORE)
    unchanged = existed & same(states.BEFORE, None, rows.schema, values)
    if not both:
        kind = F.when(existed, "update_postimage").otherwise("insert").alias(CHANGE_TYPE)
        return last.where(is_after() & ~unchanged).select(*state, kind, *METADATA_COLUMNS[1:])
    if wide:
        kind = F.when(is_before() & existed, "delete").when(is_after() & ~existed, "insert")
        kind = kind.when(is_after() & ~unchanged, UPDATE)
        return _wide(last, kind, before, F.when(is_after(), F.struct(*state)))
    first_values = [before.getField(name).alias(name) for name in (*values, *tracked)]

    def row(kind: str, state_values: Sequence[Column]) -> Column:
        return F.struct(*state_values, F.lit(kind).alias(CHANGE_TYPE))

    changes = (
        F.when(is_before() & existed, F.array(row("delete", first_values)))
        .when(is_after() & ~existed, F.array(row("insert", state)))
        .when(
            is_after() & ~unchanged,
            F.array(row("update_preimage", first_values), row("update_postimage", state)),
        )
    )
    return last.select(F.inline(changes), *METADATA_COLUMNS[1:])


def _wide(rows: DataFrame, kind: Column, old: Column, new: Column) -> DataFrame:
    """Return one row per change; a row whose ``kind`` is NULL is no change."""
    columns = (old.alias(OLD), new.alias(NEW), kind.alias(CHANGE_TYPE), *METADATA_COLUMNS[1:])
    return rows.select(*columns).where(F.col(CHANGE_TYPE).isNotNull())


def _wide_by_key(rows: DataFrame, keys: Sequence[str], columns: Sequence[str], place: str) -> DataFrame:
    """Return every change by key as one row.

    A key with a state before and a state after a version is an update, also if the version deleted the row
    and inserted another one.
    """
    in_order, history = states.placed(rows, keys, _position(keys, place))
    state = F.struct(*[F.col(quote(name)) for name in columns])
    with_neighbours = in_order.withColumns(
        {_PREVIOUS: F.lag(states.POSITION).over(history), states.AFTER: F.lead(state).over(history)}
    ).where(_one_row(keys, place).otherwise(True))
    followed, preceded = _has_counterpart()
    kind = F.when(is_before(), F.when(followed, UPDATE).otherwise("delete")).when(~preceded, "insert")
    new = F.when(is_after(), state).when(followed, F.col(states.AFTER))
    return _wide(with_neighbours, kind, F.when(is_before(), state), new)


def _has_counterpart() -> tuple[Column, Column]:
    """Return whether the other state of a row in its version follows it, and whether it precedes it."""
    position = F.col(states.POSITION)
    followed = F.coalesce(F.col(states.NEXT) == position + 1, F.lit(False))
    return followed, F.coalesce(F.col(_PREVIOUS) == position - 1, F.lit(False))


def _one_row(keys: Sequence[str], place: str) -> Column:
    """Return the first branch of a condition, which raises an error if two rows have one key."""
    version = F.shiftright(states.NEXT, 1)
    return F.when(states.is_duplicate(), _not_unique(keys, version, place).cast("boolean"))


def _changes_by_key(
    rows: DataFrame, keys: Sequence[str], columns: Sequence[str], place: str, options: QueryOptions
) -> DataFrame:
    """Return every change by key, or the inserts alone.

    A state without a counterpart in its version is an insert or a delete.
    """
    in_order, history = states.placed(rows, keys, _position(keys, place))
    with_neighbours = in_order.withColumns(
        {
            _PREVIOUS: F.lag(states.POSITION).over(history),
            _PREVIOUS_TYPE: F.lag(CHANGE_TYPE).over(history),
            _NEXT_TYPE: F.lead(CHANGE_TYPE).over(history),
        }
    )
    kind = F.col(CHANGE_TYPE)
    followed, preceded = _has_counterpart()
    replaced = ((kind == "delete") & (F.col(_NEXT_TYPE) == "insert")) | (
        (kind == "insert") & (F.col(_PREVIOUS_TYPE) == "delete")
    )
    change_type = (
        F.when(is_before() & ~followed, "delete")
        .when(is_after() & ~preceded, "insert")
        .when(replaced, kind)
        .when(is_before(), "update_preimage")
        .otherwise("update_postimage")
    )
    # Without the states between them, rows of two versions may share a key: where deletes are skipped.
    unique = F.coalesce(F.col(states.POSITION) != F.col(_PREVIOUS), F.lit(True))
    duplicate_error = _not_unique(keys, F.col(ORDER), place).cast("boolean")
    changes = with_neighbours.where(F.when(unique, True).otherwise(duplicate_error))
    if options.only_surviving:
        changes = changes.where(_one_row(keys, place).otherwise(True))
        whole = history.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
        deleted_at = F.max(F.when(change_type == "delete", F.col(states.POSITION))).over(whole)
        changes = changes.withColumn(_DELETED_AT, deleted_at)
        changes = changes.where(F.coalesce(F.col(states.POSITION) > F.col(_DELETED_AT), F.lit(True)))
    changes = changes.select(
        *[F.col(quote(name)) for name in columns], change_type.alias(CHANGE_TYPE), *METADATA_COLUMNS[1:]
    )
    return changes.where(f"{CHANGE_TYPE} = 'insert'") if options.query == "append_only" else changes


def _refuse_without_equality(rows: DataFrame, keys: Sequence[str]) -> None:
    for key in keys:
        data_type = rows.schema[key].dataType
        if not has_equality(data_type):
            raise InvalidExpression(
                f"keys: column {key!r} is of type {data_type.simpleString()}, which Spark cannot compare.",
                remedy="choose keys of another type, or convert the column with select.",
            )


# -- errors in the plan -------------------------------------------------------------------------
def raised(error: type[DeltaCdcError], parts: Sequence[str | Column]) -> Column:
    """Return a column that raises a named error when Spark evaluates it; see :func:`named_in_plan`."""
    texts = [f"{error.__name__}: ", *parts, f" Remedy: {_REMEDIES[error]}"]
    # Each column costs a call of the JVM, so texts beside each other are one literal.
    groups = [list(group) for _, group in groupby(texts, type)]
    columns = [[F.lit("".join(map(str, group)))] if isinstance(group[0], str) else group for group in groups]
    return F.raise_error(F.concat(*chain.from_iterable(columns)))


def _shown(value: Column) -> Column:
    return F.coalesce(F.substring(value.cast("string"), 1, _SHOWN), F.lit("NULL"))


def _example(keys: Sequence[str], version: Column) -> list[str | Column]:
    """Return the text ``k = 1, l = 2, version 3``."""
    parts: list[str | Column] = []
    for key in keys:
        parts += ["row id = " if key == ROW_ID else f"{key} = ", _shown(F.col(quote(key))), ", "]
    return [*parts, "version ", _shown(version)]


def _unknown(place: str) -> Column:
    type_text = _shown(F.col(CHANGE_TYPE))
    explanation = ", which Delta's change feed does not know."
    example = _example((), F.col(COMMIT_VERSION))
    return raised(
        WrongReader, [f"{place}: a row has the _change_type ", type_text, ", ", *example, explanation]
    )


def _null_key(keys: Sequence[str], place: str) -> Column:
    example = _example(keys, F.col(COMMIT_VERSION))
    return raised(NullKey, [f"{place}: a row has NULL in a key column (", *example, ")."])


def _not_unique(keys: Sequence[str], version: Column, place: str) -> Column:
    example = _example(keys, version)
    return raised(KeyNotUnique, [f"{place}: two rows share one key (for instance ", *example, ")."])
