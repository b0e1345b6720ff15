"""Filter and project states of rows, and pair them per key and version.

A change row is the *state* of a row before one commit (``delete``, ``update_preimage``) or after it
(``insert``, ``update_postimage``). Filtering or projecting states is correct by construction: a row that
leaves the filter has a state before and no state after, which is a delete.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, NullType

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

#: Columns of :func:`version_states`.
BEFORE, AFTER = f"{PLAN_PREFIX}before", f"{PLAN_PREFIX}after"
SEQUENCE = f"{PLAN_PREFIX}sequence"
#: Number of events. As for all columns of a plan, no source may use this name.
EVENTS = f"{PLAN_PREFIX}events"
N_BEFORE, N_AFTER, UNKNOWN = f"{PLAN_PREFIX}n_before", f"{PLAN_PREFIX}n_after", f"{PLAN_PREFIX}unknown"


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
            remedy=f"name existing columns in {argument}.",
        )
    return tuple(by_lower[name.lower()] for name in wanted)


def refuse_reserved(columns: Iterable[str], where: str, more: Sequence[str] = ()) -> None:
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
            remedy=f"rename it with select{', or choose other start_column and end_column' if more else ''}.",
        )


def projected(rows: DataFrame, where: str | None, select: Sequence[str], keep: Sequence[str]) -> DataFrame:
    """Filter and project states.

    :param where: Spark SQL predicate
    :param select: Spark SQL projections; ``*`` means all columns, empty means no projection
    :param keep: columns that the projection keeps unchanged and that the expressions must not read
    :raises InvalidExpression: an expression does not resolve, or depends on more than the row
    :raises ReservedColumnName: a projection has the name of a column of the change feed
    """
    if where:
        check_predicate(rows.drop(*keep), "where", where)
        rows = rows.where(F.expr(where))
    if select:
        all_columns = [quote(name) for name in rows.columns if name not in keep]
        projections = [text for item in select for text in (all_columns if item.strip() == "*" else [item])]
        rows = beside(rows, "select", projections, keep)
    return rows


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


def version_states(rows: DataFrame, keys: Sequence[str], values: Sequence[str]) -> DataFrame:
    """Reduce change rows to one row per key and version, with the states before and after the version.

    Delta guarantees no order of rows inside a version. {delete, pre-image} precede {insert, post-image}, so
    one state of each kind suffices. More than one (``n_before``, ``n_after`` > 1) means that the key is not
    unique. The caller must refuse such a key and must never pick one of the states.

    :param rows: key and value columns, ``_change_type``, :data:`~delta_cdc.core.reserved_columns.ORDER` and
        :data:`SEQUENCE` (may be NULL)
    :return: keys, order, before and after (structs of ``values``, NULL = no state), sequence (of the after
        state, or of the before state of a delete), n_before, n_after, unknown (rows of unknown type)
    """
    state = F.struct(*[F.col(quote(name)) for name in values])
    # Reuse column objects, because each new one costs a call to the JVM.
    is_state_before, is_state_after, sequence = is_before(), is_after(), F.col(SEQUENCE)
    n_after = F.count_if(is_state_after)
    # Repartitioned by key only, this aggregation and all later ones by key need no second shuffle.
    return (
        rows.repartition(*[F.col(quote(key)) for key in keys])
        .groupBy(*[F.col(quote(key)) for key in keys], ORDER)
        .agg(
            F.first(F.when(is_state_before, state), ignorenulls=True).alias(BEFORE),
            F.first(F.when(is_state_after, state), ignorenulls=True).alias(AFTER),
            F.when(n_after > 0, F.first(F.when(is_state_after, sequence), ignorenulls=True))
            .otherwise(F.first(F.when(is_state_before, sequence), ignorenulls=True))
            .alias(SEQUENCE),
            F.count_if(is_state_before).alias(N_BEFORE),
            n_after.alias(N_AFTER),
            F.count_if(~(is_state_before | is_state_after)).alias(UNKNOWN),
        )
    )
