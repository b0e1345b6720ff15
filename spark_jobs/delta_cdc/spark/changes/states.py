"""Filter and project states of rows, and pair them per key and version.

A change row is the *state* of a row before one commit (``delete``, ``update_preimage``) or after it
(``insert``, ``update_postimage``). Filtering or projecting states is correct by construction: a row that
leaves the filter has a state before and no state after, which is a delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NullType

from delta_cdc.core.column_lists import did_you_mean
from delta_cdc.core.errors import ColumnNotFound, InvalidExpression, ReservedColumnName
from delta_cdc.core.reasons import reason
from delta_cdc.core.reserved_columns import METADATA_COLUMNS, ORDER
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.changes.expressions import refuse_moving
from delta_cdc.spark.changes.feed import is_after, is_before
from delta_cdc.spark.sessions import analysed
from delta_cdc.spark.silence_loggers import quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: Columns of :func:`version_states` and :func:`net_states`.
BEFORE, AFTER = f"{PLAN_PREFIX}before", f"{PLAN_PREFIX}after"
SEQUENCE = f"{PLAN_PREFIX}sequence"
#: Number of events. As for all columns of a plan, no source may use this name.
EVENTS = f"{PLAN_PREFIX}events"
DUPLICATE, UNKNOWN = f"{PLAN_PREFIX}duplicate", f"{PLAN_PREFIX}unknown"
#: Names of the rules that a row breaks (:mod:`delta_cdc.spark.apply.value_rules`); for :func:`net_states`,
#: whether any state after a change breaks one. Only pipelines with rules have this column.
BROKEN = f"{PLAN_PREFIX}broken_rules"
#: Type 1: whether a key ends deleted.
DELETED = f"{PLAN_PREFIX}deleted"
#: A row's position in the history of its key: twice the order, plus one for a state after.
POSITION = f"{PLAN_PREFIX}position"
#: The position of the row after it; NULL for the last row.
NEXT = f"{PLAN_PREFIX}next"
_PREVIOUS, _WRITTEN = f"{PLAN_PREFIX}previous", f"{PLAN_PREFIX}written"


def resolve(rows: DataFrame, argument: str, expressions: Sequence[str]) -> DataFrame:
    """Project ``rows`` by the SQL expressions of an argument.

    :param argument: name of the argument, for messages
    :raises InvalidExpression: an expression cannot be parsed or resolved, or depends on more than the row
    """
    try:
        with quietly():
            resolved = analysed(rows.selectExpr(*expressions))
    except (AnalysisException, ParseException) as error:
        raise InvalidExpression(
            f"{argument} = {list(expressions)!r} does not resolve against the source: {reason(error)}",
            remedy=f"correct {argument}; it is Spark SQL over the source's columns.",
        ) from error
    refuse_moving(rows, argument, expressions)
    return resolved


def match(names: Iterable[str], wanted: Sequence[str], argument: str, where: str) -> tuple[str, ...]:
    """Return ``wanted`` in the spelling of ``names``; Spark ignores case in column names."""
    by_lower = {name.lower(): name for name in names}
    missing = [name for name in wanted if name.lower() not in by_lower]
    if missing:
        raise ColumnNotFound(
            f"{argument}: column {', '.join(map(repr, missing))} does not exist in {where} "
            f"(it has {', '.join(by_lower.values())}).",
            remedy=f"{did_you_mean(missing, by_lower.values())}name existing columns in {argument}.",
        )
    return tuple(by_lower[name.lower()] for name in wanted)


def refuse_reserved(
    columns: Iterable[str],
    where: str,
    more: Sequence[str] = (),
    *,
    remedy: str = "rename it with select.",
) -> None:
    """Refuse columns whose names the engine needs.

    :param more: reserved names, in addition to those of the change feed and of the engine's plans
    :raises ReservedColumnName: names the columns
    """
    reserved = {name.lower() for name in (*METADATA_COLUMNS, *more)}
    bad = [name for name in columns if name.lower() in reserved or name.lower().startswith(PLAN_PREFIX)]
    if bad:
        raise ReservedColumnName(
            f"{where} has the column {', '.join(map(repr, bad))}, a name that the change feed, our plans or "
            "the target need.",
            remedy=remedy,
        )


def projected(rows: DataFrame, where: str | None, select: Sequence[str], keep: Sequence[str]) -> DataFrame:
    """Filter and project states.

    :param where: Spark SQL predicate
    :param select: Spark SQL projections; ``*`` means all columns, empty means no projection
    :param keep: columns that the projection keeps unchanged and that the expressions must not read
    :raises InvalidExpression: an expression does not resolve, or depends on more than the row
    :raises ReservedColumnName: a projection has the name of a column of the change feed
    """
    rows = filtered(rows, where, keep)
    if select:
        all_columns = [quote(name) for name in rows.columns if name not in keep]
        projections = [text for item in select for text in (all_columns if item.strip() == "*" else [item])]
        rows = beside(rows, "select", projections, keep)
    return rows


def filtered(rows: DataFrame, where: str | None, keep: Sequence[str]) -> DataFrame:
    """Filter states by the predicate ``where``, which must not read the columns ``keep``.

    :raises InvalidExpression: the predicate does not resolve, or depends on more than the row
    """
    if not where:
        return rows
    check_predicate(rows.drop(*keep), "where", where)
    return rows.where(F.expr(where))


def check_predicate(rows: DataFrame, argument: str, text: str) -> None:
    """Check a predicate over rows.

    :param argument: the argument that contains the predicate
    :raises InvalidExpression: it does not resolve, is not a predicate, or depends on more than the row
    """
    data_type = resolve(rows, argument, [text]).schema[0].dataType
    if not isinstance(data_type, BooleanType | NullType):
        raise InvalidExpression(
            f"{argument} = {text!r} is of type {data_type.simpleString()}, not true or false.",
            remedy=f"correct {argument}; it is a Spark SQL predicate over the source's columns.",
        )


def beside(rows: DataFrame, argument: str, expressions: Sequence[str], keep: Sequence[str]) -> DataFrame:
    """Project rows and keep the columns ``keep`` unchanged; the expressions must not read these.

    The expressions act on states: if a value used the commit's version or time, the result would depend on
    how the range is split.
    """
    names = resolve(rows.drop(*keep), argument, expressions).columns
    refuse_reserved(names, argument)
    return rows.selectExpr(*expressions, *[quote(name) for name in keep])


def refuse_doubled(values: Sequence[str], arguments: str) -> None:
    """Refuse two columns with the same name; Spark ignores case in column names.

    :raises InvalidExpression: names the columns
    """
    lowered = [name.lower() for name in values]
    doubled = {name for name in values if lowered.count(name.lower()) > 1}
    if doubled:
        raise InvalidExpression(
            f"{arguments} gives {', '.join(sorted(map(repr, doubled)))} more than once.",
            remedy="name each column once.",
        )


def version_states(
    rows: DataFrame, keys: Sequence[str], values: Sequence[str], *, tested: bool = False
) -> DataFrame:
    """Reduce change rows to one row per key and version, with the states before and after the version.

    A key is a duplicate if more than one row of the table has it. A version of such a key may give several
    rows. At least one row of the key has the flag. The caller must refuse the key, and must never pick one of
    its states.

    :param rows: key and value columns, ``_change_type``, :data:`~delta_cdc.core.reserved_columns.ORDER` and
        :data:`SEQUENCE` (may be NULL)
    :param tested: keep :data:`BROKEN` of the rows after
    :return: keys, order, before and after (structs of ``values``, NULL = no state), sequence (of the after
        state, or of the before state of a delete), whether the key is a duplicate, and whether the type of
        the change is unknown
    """
    in_order, history = placed(rows, keys)
    state, is_state_before, is_state_after = _state(values), is_before(), is_after()
    position, following = F.col(POSITION), F.col(NEXT)
    with_before = in_order.withColumns(
        {
            _PREVIOUS: F.lag(position).over(history),
            BEFORE: F.when(is_state_before, state).otherwise(F.lag(state).over(history)),
        }
    )
    is_replaced = F.coalesce(is_state_before & (following == position + 1), F.lit(False))
    replaces = F.col(_PREVIOUS) == position - 1
    return with_before.where(~is_replaced).select(
        *[F.col(quote(key)) for key in keys],
        ORDER,
        F.when(is_state_before | (is_state_after & replaces), F.col(BEFORE)).alias(BEFORE),
        F.when(is_state_after, state).alias(AFTER),
        SEQUENCE,
        is_duplicate().alias(DUPLICATE),
        _is_unknown().alias(UNKNOWN),
        *([F.when(is_state_after, F.col(BROKEN)).alias(BROKEN)] if tested else []),
    )


def net_states(
    rows: DataFrame, keys: Sequence[str], values: Sequence[str], *, tested: bool = False
) -> DataFrame:
    """Reduce change rows to one row per key, with the states before and after all its changes.

    The caller must refuse duplicates, as for :func:`version_states`.

    :param rows: as for :func:`version_states`, without :data:`SEQUENCE`
    :param tested: keep :data:`BROKEN`, as a flag of the key
    :return: keys; before and after (structs of ``values``, NULL = no state); for a deleted key, after is the
        last state before the delete, or NULL if no change wrote it; whether the key is deleted, and is a
        duplicate; numbers of changes of unknown type, and of events
    """
    in_order, history = placed(rows, keys)
    # Spark computes a window over the whole history once per key, not once per row.
    whole = history.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    state, following = _state(values), F.col(NEXT)
    ends_version = F.coalesce(F.shiftright(POSITION, 1) != F.shiftright(NEXT, 1), F.lit(True))
    last = in_order.withColumns(
        {
            BEFORE: F.first(F.when(is_before(), state)).over(whole),
            _WRITTEN: F.max(is_after()).over(whole),
            DUPLICATE: F.max(is_duplicate()).over(whole),
            UNKNOWN: F.count_if(_is_unknown()).over(whole),
            EVENTS: F.count_if(ends_version).over(whole),
            **({BROKEN: F.max(is_after() & (F.size(BROKEN) > 0)).over(whole)} if tested else {}),
        }
    ).where(following.isNull())
    return last.select(
        *[F.col(quote(key)) for key in keys],
        BEFORE,
        F.when(F.col(_WRITTEN), state).alias(AFTER),
        (~is_after()).alias(DELETED),
        DUPLICATE,
        UNKNOWN,
        EVENTS,
        *([BROKEN] if tested else []),
    )


def placed(
    rows: DataFrame, keys: Sequence[str], position: Column | None = None
) -> tuple[DataFrame, WindowSpec]:
    """Shuffle change rows by key, and add their positions in the histories of their keys.

    Delta guarantees no order of rows inside a version. The states of a unique key alternate: before, after,
    before, after. Two consecutive states of the same kind mean that the key is not unique.

    :param position: the position, if it is more than :func:`position_of`; for instance with checks
    :return: the rows with :data:`POSITION` and :data:`NEXT`; the window over the history of a key, in order
    """
    # All later steps by key use this shuffle.
    key_columns = [F.col(quote(key)) for key in keys]
    history = Window.partitionBy(*key_columns).orderBy(POSITION)
    rows = rows.repartition(*key_columns).withColumn(
        POSITION, position_of() if position is None else position
    )
    return rows.withColumn(NEXT, F.lead(POSITION).over(history)), history


def position_of() -> Column:
    """Return the position of a row in the history of its key."""
    return F.col(ORDER) * 2 + F.coalesce(is_after(), F.lit(False)).cast("int")


def is_duplicate() -> Column:
    """Return whether the next row of the same key is of the same kind: the key belongs to several rows."""
    position = F.col(POSITION)
    return F.coalesce(position % 2 == F.col(NEXT) % 2, F.lit(False))


def _state(values: Sequence[str]) -> Column:
    return F.struct(*[F.col(quote(name)) for name in values])


def _is_unknown() -> Column:
    return F.coalesce(~(is_before() | is_after()), F.lit(True))
