"""SCD type 1: apply the last state of every key.

The net effect of a range on a key is (state before, state after). If both are equal, nothing happens (counted
as suppressed). Without a state after, the key is deleted; otherwise it is upserted. Nothing reads the target.

A soft delete upserts the key's last values with a deleted flag. So a row that was inserted and deleted inside
one range is in the target afterwards, as if the range had been split between the two changes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns, sql
from delta_cdc.core.spec import DELETED_COLUMN
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply.merge import Clause, Merge, from_source, keys_match
from delta_cdc.spark.apply.rows import marks_deletes
from delta_cdc.spark.changes import states as st
from delta_cdc.spark.changes.equality import same

if TYPE_CHECKING:
    from delta_cdc.core.spec import ApplyOptions
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

OPERATION = f"{PLAN_PREFIX}operation"
_EXISTED = f"{PLAN_PREFIX}existed"
_MOST, _BALANCE = f"{PLAN_PREFIX}most", f"{PLAN_PREFIX}balance"
#: The values for the target: those of the state after; for a soft delete, those of the last state.
_LAST = f"{PLAN_PREFIX}last"
#: Whether some version of the range has a state after it.
_SEEN = f"{PLAN_PREFIX}seen"


def net_changes(states: DataFrame, shape: Shape, *, soft: bool = False) -> DataFrame:
    """Return the net change per key.

    Columns: ``keys, operation (upsert | delete | none), last, seen, duplicate, unknown, events``. ``last``
    has the values for the target; ``seen`` shows whether a version of the range has a state after it.
    ``duplicate`` shows that two rows share the key: two states in one version, or a balance of states that is
    impossible for one row (two inserts without a delete between).
    """
    # A soft delete keeps the values of the deleted row.
    last = F.coalesce(st.AFTER, st.BEFORE) if soft else F.col(st.AFTER)
    exists = {name: F.col(name).isNotNull().cast("int") for name in (st.BEFORE, st.AFTER)}
    net = states.groupBy(*shape.key_columns).agg(
        F.min_by(st.BEFORE, reserved_columns.ORDER).alias(st.BEFORE),
        F.max_by(st.AFTER, reserved_columns.ORDER).alias(st.AFTER),
        F.max_by(last, reserved_columns.ORDER).alias(_LAST),
        F.max(F.col(st.AFTER).isNotNull()).alias(_SEEN),
        F.max(F.greatest(st.N_BEFORE, st.N_AFTER)).alias(_MOST),
        F.sum(F.col(st.N_AFTER) - F.col(st.N_BEFORE)).alias(_BALANCE),
        F.sum(st.UNKNOWN).alias(st.UNKNOWN),
        F.count("*").alias(st.EVENTS),
    )
    duplicate = (F.col(_MOST) > 1) | (F.col(_BALANCE) != exists[st.AFTER] - exists[st.BEFORE])
    unchanged = (
        F.col(st.BEFORE).isNotNull()
        & F.col(st.AFTER).isNotNull()
        & same(st.BEFORE, st.AFTER, shape.schema, shape.values)
    ) | (F.col(st.BEFORE).isNull() & F.col(st.AFTER).isNull() & ~(F.lit(soft) & F.col(_SEEN)))
    operation = F.when(unchanged, "none").when(F.col(st.AFTER).isNull(), "delete").otherwise("upsert")
    return net.withColumn(b.IS_DUPLICATE, duplicate).withColumn(OPERATION, operation)


def validated(context: StepContext, net: DataFrame, shape: Shape) -> b.Batch:
    """Materialise the net changes; refuse null keys, duplicate keys and unknown change types."""
    flat = net.select(
        *shape.key_columns,
        *[
            F.col(f"{_LAST}.{quote(name)}").alias(name)
            for name in shape.others
        ],
        F.col(st.BEFORE).isNotNull().alias(_EXISTED),
        OPERATION, _SEEN, b.IS_DUPLICATE, st.UNKNOWN, st.EVENTS,
    )  # fmt: skip
    batch = b.materialise(
        flat,
        shape.keys,
        {
            "changes": F.count_if(F.col(OPERATION) != "none"),
            "rewritten": F.count_if((F.col(OPERATION) != "none") & F.col(_EXISTED)),
            "suppressed": F.count_if(F.col(OPERATION) == "none"),
            "events": F.coalesce(F.sum(st.EVENTS), F.lit(0)),
            b.NULL_KEY: F.count_if(b.null_key(shape)),
            b.DUPLICATE: F.count_if(b.IS_DUPLICATE),
            b.UNKNOWN_TYPE: F.coalesce(F.sum(st.UNKNOWN), F.lit(0)),
        },
        only=F.col(OPERATION) != "none",
    )
    b.refuse(batch.totals, batch.rows, shape, context, {b.DUPLICATE: F.col(b.IS_DUPLICATE)})
    return batch


def merge(target: str, shape: Shape, options: ApplyOptions, batch: b.Batch, *, evolve: bool) -> Merge:
    """Return the MERGE with one source row per key; ``operation`` selects delete, update or insert."""
    operation, soft = sql.column("s", OPERATION), marks_deletes(options)
    values = from_source(shape.values)
    others = from_source(shape.others)
    if soft:
        others[DELETED_COLUMN] = values[DELETED_COLUMN] = f"({operation} = 'delete')"
    # If the source inserts a key that the target already has, two rows of the source share it.
    first, existed = shape.keys[0], sql.column("s", _EXISTED)
    problem = f"concat('{b.DUPLICATE_MARK}', CAST({sql.column('s', first)} AS STRING))"
    checked_key = f"CASE WHEN {existed} THEN {sql.column('s', first)} ELSE raise_error({problem}) END"
    unexpected = f"NOT {existed} AND {is_alive()}" if soft else f"NOT {existed}"
    clauses = [Clause(True, unexpected, "update", {first: checked_key}, raises=problem)]
    if not soft:
        clauses.insert(0, Clause(True, f"{operation} = 'delete'", "delete"))
    if others:
        clauses.append(Clause(True, None, "update", others))
    # If no version of the range wrote a deleted row, its values are unknown.
    has_values = sql.column("s", _SEEN) if soft else f"{operation} = 'upsert'"
    clauses.append(Clause(False, has_values, "insert", values))
    on = keys_match(shape.keys)
    return Merge(target, changed(batch), (*on, *b.pruning(batch)), tuple(clauses), evolve)


def is_alive() -> str:
    """Return the SQL condition that a row is not soft-deleted. A manual row has NULL: not deleted."""
    return f"NOT coalesce({sql.column('t', DELETED_COLUMN)}, false)"


def changed(batch: b.Batch) -> DataFrame:
    """Return the rows of a batch that change the target."""
    return batch.rows.where(F.col(OPERATION) != "none")
