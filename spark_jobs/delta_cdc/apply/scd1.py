"""SCD type 1: the last state of every key.

The net effect of a range per key is (state before, state after). Equal: nothing (counted as suppressed).
No state after: delete. Otherwise: upsert. The target is not read for any of that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_cdc import sql
from delta_cdc.apply import batch as b
from delta_cdc.apply.merge import Clause, Merge
from delta_cdc.changes import feed
from delta_cdc.changes import states as st
from delta_cdc.changes.equality import same
from delta_cdc.sql import PLAN_PREFIX, quote

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from delta_cdc.apply.rows import Shape

OPERATION = f"{PLAN_PREFIX}operation"
_DUPLICATE, _EXISTED = f"{PLAN_PREFIX}duplicate", f"{PLAN_PREFIX}existed"
_MOST, _BALANCE = f"{PLAN_PREFIX}most", f"{PLAN_PREFIX}balance"


def net_changes(states: DataFrame, shape: Shape) -> DataFrame:
    """Net per key: ``keys, operation (upsert | delete | none), before, after, duplicate, unknown, events``.

    ``duplicate`` tells that the key cannot be unique: two states in one version, or a balance of states that
    one row alone cannot have (two inserts without a delete between).
    """
    from pyspark.sql import functions as F

    exists = {name: F.col(name).isNotNull().cast("int") for name in (st.BEFORE, st.AFTER)}
    net = states.groupBy(*[F.col(quote(key)) for key in shape.keys]).agg(
        F.min_by(st.BEFORE, feed.ORDER).alias(st.BEFORE),
        F.max_by(st.AFTER, feed.ORDER).alias(st.AFTER),
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
    ) | (F.col(st.BEFORE).isNull() & F.col(st.AFTER).isNull())
    operation = F.when(unchanged, "none").when(F.col(st.AFTER).isNull(), "delete").otherwise("upsert")
    return net.withColumn(_DUPLICATE, duplicate).withColumn(OPERATION, operation)


def validated(net: DataFrame, shape: Shape, source: str, versions: str) -> b.Batch:
    """Materialise the net changes; refuse null keys, duplicate keys and unknown change types."""
    from pyspark.sql import functions as F

    flat = net.select(
        *[F.col(quote(key)) for key in shape.keys],
        *[
            F.col(f"{st.AFTER}.{quote(name)}").alias(name)
            for name in shape.values
            if name not in shape.keys
        ],
        F.col(st.BEFORE).isNotNull().alias(_EXISTED),
        OPERATION, _DUPLICATE, st.UNKNOWN, st.EVENTS,
    )  # fmt: skip
    batch = b.materialise(
        flat,
        shape.keys,
        {
            "changes": F.count_if(F.col(OPERATION) != "none"),
            "suppressed": F.count_if(F.col(OPERATION) == "none"),
            "events": F.coalesce(F.sum(st.EVENTS), F.lit(0)),
            "null_keys": F.count_if(b.null_key(shape)),
            "duplicates": F.count_if(_DUPLICATE),
            "unknown": F.coalesce(F.sum(st.UNKNOWN), F.lit(0)),
        },
        only=F.col(OPERATION) != "none",
    )
    totals = batch.totals
    b.refuse_unknown_types(totals["unknown"], source, versions)
    b.refuse_null_keys(totals["null_keys"], source, versions, shape.keys)
    if totals["duplicates"]:
        sample = b.samples(batch.rows, shape.keys, F.col(_DUPLICATE))
        b.refuse_duplicates(totals["duplicates"], source, versions, sample)
    return batch


def merge(target: str, shape: Shape, batch: b.Batch, *, evolve: bool) -> Merge:
    """Return the MERGE: delete, update or insert by the plan column; one source row per key."""
    others = [name for name in shape.values if name not in shape.keys]
    operation = sql.column("s", OPERATION)
    clauses = [Clause(True, f"{operation} = 'delete'", "delete", "DELETE")]
    # A key that the source inserts while the target has it belongs to two rows of the source.
    first, existed = shape.keys[0], sql.column("s", _EXISTED)
    told = f"concat('{b.DUPLICATE_MARK}', CAST({sql.column('s', first)} AS STRING))"
    kept = f"CASE WHEN {existed} THEN {sql.column('s', first)} ELSE raise_error({told}) END"
    clauses.append(Clause(True, f"NOT {existed}", "update", sql.update_set({first: kept})))
    if others:
        update = sql.update_set({name: sql.column("s", name) for name in others})
        clauses.append(Clause(True, None, "update", update))
    insert = sql.insert({name: sql.column("s", name) for name in shape.values})
    clauses.append(Clause(False, f"{operation} = 'upsert'", "insert", insert))
    on = [f"{sql.column('t', key)} = {sql.column('s', key)}" for key in shape.keys]
    return Merge(target, changed(batch), (*on, *b.pruning(batch)), tuple(clauses), evolve)


def changed(batch: b.Batch) -> DataFrame:
    """Return the rows of a batch that change the target."""
    from pyspark.sql import functions as F

    return batch.rows.where(F.col(OPERATION) != "none")
