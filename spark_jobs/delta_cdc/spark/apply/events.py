"""Read rows of a source as events: keys, sequence, kind, values, and which columns they carry.

Columns of an event, beside the key columns:

- :data:`~delta_cdc.spark.changes.states.SEQUENCE` (typed)
- :data:`KIND`
- :data:`~delta_cdc.spark.changes.states.AFTER` (struct of all values)
- :data:`AUTHORED` (array of booleans, in the order of
  :func:`delta_cdc.spark.apply.partial_columns.leaves`; NULL: all)
- :data:`TIE` (struct; NULL without ``last_by``)
- :data:`REASON` (why the event cannot be applied, else NULL)
- :data:`RAW` (the source's row, for the quarantine)
- the commit's version
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from delta_cdc.core import reserved_columns
from delta_cdc.core.change_log import COLUMNS, LOG_COLUMNS
from delta_cdc.core.errors import InvalidEvent, InvalidExpression, LateBeyondHorizon
from delta_cdc.core.sql import PLAN_PREFIX, quote
from delta_cdc.spark.apply import batch as b
from delta_cdc.spark.apply import partial_columns, rows
from delta_cdc.spark.apply.sequences import as_text, from_text
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

    from delta_cdc.core.spec import ApplyOptions, RowStep
    from delta_cdc.spark.apply.rows import Shape

KIND, AUTHORED = f"{PLAN_PREFIX}event", f"{PLAN_PREFIX}authored"
TIE, REASON, RAW = f"{PLAN_PREFIX}tie", f"{PLAN_PREFIX}reason", f"{PLAN_PREFIX}raw"
#: Names of the columns that an event carries.
CARRIED = f"{PLAN_PREFIX}carried"
UPSERT, DELETE, TRUNCATE = "upsert", "delete", "truncate"

NULL_KEY, NULL_SEQUENCE = "null_key", "null_sequence"
UNKNOWN_COLUMN, LATE = "unknown_column", "late_beyond_horizon"
#: Reasons for which an event is refused or quarantined.
INVALID = (NULL_KEY, NULL_SEQUENCE, UNKNOWN_COLUMN)


@dataclass(frozen=True)
class Events:
    """Events as a DataFrame (see the module), and the shape of the rows they produce.

    :param sequences: of all rows of the source, including those that ``where`` filters out
    """

    rows: DataFrame
    shape: Shape
    sequences: DataFrame


def effective(options: ApplyOptions) -> ApplyOptions:
    """Return options that use the version column of snapshots as the sequence."""
    if options.snapshot_version_column is None:
        return options
    return replace(options, sequence_by=quote(options.snapshot_version_column))


def of_rows(
    source_rows: DataFrame,
    options: ApplyOptions,
    source: str,
    horizons: Sequence[tuple[int, str]] = (),
    *,
    keep_raw: bool = False,
) -> Events:
    """Read rows of a change log, or of a table of snapshots, as events.

    :param source_rows: columns of the source and ``_commit_version`` (NULL if unknown)
    :param options: from :func:`effective`
    :param horizons: the allowed lateness, see :class:`delta_cdc.core.spec.RepairStep`
    :param keep_raw: keep each source row whole, also if the options do not quarantine
    :raises InvalidExpression: an expression does not resolve, or has the wrong type
    """
    from pyspark.sql import functions as F

    columns = [name for name in source_rows.columns if name != reserved_columns.COMMIT_VERSION]
    plain = source_rows.drop(reserved_columns.COMMIT_VERSION)
    states.resolve(plain, "sequence_by", options.sequences)
    added = {
        states.SEQUENCE: rows.combined(options.sequences),
        KIND: _kind(plain, options),
        CARRIED: carried(plain, options),
        TIE: _tie(plain, options),
        RAW: F.struct(*[F.col(quote(name)) for name in columns])
        if options.quarantines or keep_raw
        else F.lit(None),
    }
    keep = (reserved_columns.COMMIT_VERSION, *added)
    told = source_rows.withColumns(added)
    sequences = told.select(states.SEQUENCE)
    if options.where:
        # A truncate carries no values to filter by.
        states.check_predicate(plain, "where", options.where)
        told = told.where((F.col(KIND) == TRUNCATE) | F.expr(options.where))
        options = replace(options, where=None)
    found = rows.projected(told, options, keep)
    shape = rows.shape_of(
        found.drop(*[name for name in keep if name != states.SEQUENCE]), plain, options, source
    )
    state = F.struct(*[F.col(quote(name)) for name in shape.values])
    parts, named = partial_columns.leaves(shape, options), F.col(CARRIED)
    names_unknown = partial_columns.names_unknown(shape, options, named, columns)
    if options.columns_to_update == COLUMNS and set(LOG_COLUMNS) <= set(columns):
        # An ingest also lists record columns that never had a value, so the table may lack them so far.
        names_unknown = F.lit(False)
    invalid = _reason(shape, horizons, names_unknown)
    # A truncate belongs to no key, whatever its key columns contain.
    has_key = F.col(KIND) != TRUNCATE
    events = found.select(
        *[F.when(has_key, F.col(quote(key))).alias(key) for key in shape.keys],
        states.SEQUENCE,
        KIND,
        F.when(F.col(KIND) == UPSERT, state).alias(states.AFTER),
        partial_columns.authored(parts, options, state, named).alias(AUTHORED),
        TIE,
        RAW,
        reserved_columns.COMMIT_VERSION,
        invalid.alias(REASON),
    )
    return Events(events, shape, sequences)


def _kind(plain: DataFrame, options: ApplyOptions) -> Column:
    from pyspark.sql import functions as F

    kind = F.lit(UPSERT)
    for argument, text, what in (
        ("apply_as_deletes", options.apply_as_deletes, DELETE),
        ("apply_as_truncates", options.apply_as_truncates, TRUNCATE),
    ):
        if text is not None:
            states.check_predicate(plain, argument, text)
            kind = F.when(F.expr(text), what).otherwise(kind)
    return kind


def carried(plain: DataFrame, options: ApplyOptions) -> Column:
    """Return the names of the columns that a row of the source carries; NULL means all.

    :raises InvalidExpression: ``columns_to_update`` is not an array of texts
    """
    from pyspark.sql import functions as F
    from pyspark.sql import types as T

    name = options.columns_to_update
    if name is None:
        return F.lit(None).cast("array<string>")
    (found,) = states.match(plain.columns, [name], "columns_to_update", "the source")
    data_type = plain.schema[found].dataType
    if not (isinstance(data_type, T.ArrayType) and isinstance(data_type.elementType, T.StringType)):
        raise InvalidExpression(
            f"columns_to_update = {name!r} is of type {data_type.simpleString()}, not an array of texts.",
            remedy="name a column that holds the names of the columns an event carries.",
        )
    return F.col(quote(found))


def _tie(plain: DataFrame, options: ApplyOptions) -> Column:
    from pyspark.sql import functions as F

    if not options.last_by:
        return F.lit(None)
    found = states.match(plain.columns, options.last_by, "on_conflict last_by", "the source")
    return F.struct(*[F.col(quote(name)) for name in found])


def _reason(shape: Shape, horizons: Sequence[tuple[int, str]], names_unknown: Column) -> Column:
    from pyspark.sql import functions as F

    is_truncate, sequence = F.col(KIND) == TRUNCATE, F.col(states.SEQUENCE)
    late = F.lit(False)
    assert shape.order_type is not None
    for version, text in horizons:
        late = late | (
            (F.col(reserved_columns.COMMIT_VERSION) > version)
            & (sequence < from_text(text, shape.order_type))
        )
    return (
        F.when(~is_truncate & b.null_key(shape), NULL_KEY)
        .when(sequence.isNull(), NULL_SEQUENCE)
        .when(~is_truncate & names_unknown, UNKNOWN_COLUMN)
        .when(late, LATE)
    )


def of_states(changes: DataFrame, shape: Shape, options: ApplyOptions, columns: Sequence[str]) -> DataFrame:
    """Read the states of a feed as events.

    :param changes: rows of :func:`delta_cdc.spark.changes.states.version_states`; if events list the columns
        that they carry, the state after has this list as its field :data:`CARRIED`
    :param columns: of the source
    :return: events, with :data:`~delta_cdc.core.reserved_columns.ORDER`, the state before, and the counts of
        states
    """
    from pyspark.sql import functions as F

    after = F.col(states.AFTER)
    named = F.lit(None).cast("array<string>")
    if options.columns_to_update is not None:
        named = after.getField(CARRIED)
    parts = partial_columns.leaves(shape, options)
    values = F.struct(*[after.getField(name).alias(name) for name in shape.values])
    sequence = F.col(states.SEQUENCE)
    lacks_sequence = sequence.isNull() if shape.order_type is not None else F.lit(False)
    reason = (
        F.when(b.null_key(shape), NULL_KEY)
        .when(lacks_sequence, NULL_SEQUENCE)
        .when(partial_columns.names_unknown(shape, options, named, columns), UNKNOWN_COLUMN)
    )
    return changes.select(
        *[F.col(quote(key)) for key in shape.keys],
        sequence.alias(states.SEQUENCE),
        reserved_columns.ORDER,
        F.when(after.isNull(), DELETE).otherwise(UPSERT).alias(KIND),
        F.when(after.isNotNull(), values).alias(states.AFTER),
        F.when(after.isNotNull(), partial_columns.authored(parts, options, after, named)).alias(AUTHORED),
        reason.alias(REASON),
        F.coalesce(after, states.BEFORE).alias(RAW),
        F.col(reserved_columns.ORDER).alias(reserved_columns.COMMIT_VERSION),
        states.BEFORE,
        states.N_BEFORE,
        states.N_AFTER,
        states.UNKNOWN,
    )


# -- validation ---------------------------------------------------------------------------------
@dataclass(frozen=True)
class Checked:
    """Events that can be applied, and the results of one scan over the batch.

    :param events: valid ones, materialised, clustered by key
    :param invalid: those for the quarantine; None if all are valid
    :param bounds: of their keys, see :class:`delta_cdc.spark.apply.batch.Batch`
    :param late: events at or below the highest sequence applied before
    :param late_truncates: number of truncates among the late events
    :param truncates: sequences of the batch's truncates as text, ascending
    :param highest: greatest sequence of the batch as text
    """

    batch: b.Batch
    events: DataFrame
    invalid: DataFrame | None
    counts: dict[str, int]
    late: int
    late_truncates: int
    truncates: tuple[str, ...]
    lowest: str | None
    highest: str | None


def checked(found: Events, options: ApplyOptions, step: RowStep, source: str, versions: str) -> Checked:
    """Materialise a batch of events once; refuse, quarantine or discard what cannot be applied.

    :raises NullKey: and :class:`NullSequence`, :class:`InvalidEvent`, :class:`LateBeyondHorizon`: with counts
        and sample keys, unless the options say otherwise
    """
    from pyspark.sql import functions as F

    shape, order_type = found.shape, found.shape.order_type
    assert order_type is not None
    valid = F.col(REASON).isNull()
    sequence = F.when(valid, F.col(states.SEQUENCE))
    is_truncate = valid & (F.col(KIND) == TRUNCATE)
    late = F.lit(False)
    if step.highest_sequence is not None:
        late = F.coalesce(sequence <= from_text(step.highest_sequence, order_type), F.lit(False))
    keys = [F.col(quote(key)) for key in shape.keys]
    reasons = {reason: F.count_if(F.col(REASON) == reason) for reason in (*INVALID, LATE)}
    batch = b.materialise(
        found.rows.repartition(*keys),
        shape.keys,
        {
            "events": F.count("*"),
            **reasons,
            "late": F.count_if(late),
            "late_truncates": F.count_if(late & is_truncate),
            "truncates": F.transform(
                F.sort_array(F.collect_set(F.when(is_truncate, F.col(states.SEQUENCE)))),
                lambda value: as_text(value, order_type),
            ),
            "lowest": as_text(F.min(sequence), order_type),
            "highest": as_text(F.max(sequence), order_type),
        },
        only=valid & ~is_truncate,
    )
    totals = batch.totals
    _refuse_late(batch, shape, options, source, versions)
    refuse_invalid(batch, shape, options, source, versions)
    counts = {
        "events": totals["events"],
        "late": totals["late"],
        "discarded": totals[LATE],
        "quarantined": sum(totals[reason] for reason in INVALID),
    }
    aside = F.col(REASON).isNotNull() & (F.col(REASON) != LATE)
    return Checked(
        batch=batch,
        events=batch.rows.where(valid) if counts["quarantined"] or counts["discarded"] else batch.rows,
        invalid=batch.rows.where(aside) if counts["quarantined"] else None,
        counts=counts,
        late=totals["late"],
        late_truncates=totals["late_truncates"],
        truncates=tuple(totals["truncates"]),
        lowest=totals["lowest"],
        highest=totals["highest"],
    )


def _refuse_late(batch: b.Batch, shape: Shape, options: ApplyOptions, source: str, versions: str) -> None:
    late = batch.totals[LATE]
    if late and options.on_late == "fail":
        raise LateBeyondHorizon(
            f"{late} event(s) of {source}, {versions}, arrived below the lateness horizon of the log "
            f"(for instance {b.samples(batch.rows, shape.keys, _is(LATE))}).",
            remedy="take them out of the log, or leave such events out with on_late='discard'.",
        )


def refuse_invalid(batch: b.Batch, shape: Shape, options: ApplyOptions, source: str, versions: str) -> None:
    """Refuse events that cannot be applied, unless the options quarantine them.

    :param batch: with totals by :data:`INVALID`
    :raises NullKey: likewise :class:`NullSequence`, :class:`InvalidEvent`: with counts and sample keys
    """
    if options.on_invalid == "quarantine":
        return
    totals = batch.totals
    b.refuse_null_keys(totals[NULL_KEY], source, versions, shape.keys)
    if totals[NULL_SEQUENCE]:
        told = b.samples(batch.rows, shape.keys, _is(NULL_SEQUENCE))
        expression = ", ".join(options.sequences)
        b.refuse_null_sequences(totals[NULL_SEQUENCE], source, versions, told, expression)
    if totals[UNKNOWN_COLUMN]:
        raise InvalidEvent(
            f"{totals[UNKNOWN_COLUMN]} event(s) of {source}, {versions}, name columns in "
            f"{options.columns_to_update} that do not exist (for instance "
            f"{b.samples(batch.rows, shape.keys, _is(UNKNOWN_COLUMN))}).",
            remedy="correct them at their source, or set such events aside with on_invalid='quarantine'.",
        )


def _is(reason: str) -> Column:
    from pyspark.sql import functions as F

    return F.col(REASON) == reason


def extent(
    source_rows: DataFrame, options: ApplyOptions, source: str, horizons: Sequence[tuple[int, str]]
) -> tuple[str | None, tuple[str, ...]]:
    """Return the greatest sequence of valid events, and the sequences of truncates, as text."""
    from pyspark.sql import functions as F

    found = of_rows(source_rows, options, source, horizons)
    order_type = found.shape.order_type
    assert order_type is not None
    sequence = F.col(states.SEQUENCE)
    truncates = F.sort_array(F.collect_set(F.when(F.col(KIND) == TRUNCATE, sequence)))
    rows = found.sequences.withColumn(KIND, F.lit(UPSERT))
    if options.source_kind != "snapshot":
        rows = found.rows.where(F.col(REASON).isNull())
    row = rows.agg(
        as_text(F.max(sequence), order_type).alias("highest"),
        F.transform(truncates, lambda value: as_text(value, order_type)).alias("truncates"),
    )
    told = row.collect()[0]
    return told["highest"], tuple(told["truncates"])
