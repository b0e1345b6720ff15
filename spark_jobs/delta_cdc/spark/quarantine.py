"""Write and read the quarantine: a table next to a target or a change log, for inspection and replay.

Next to a target, it holds events that cannot be applied; next to a change log, records that are no events.
Its columns do not depend on the source, so changes of the source's schema do not affect it. A step writes its
rows before the commit of the same seal, so the quarantine always has the rows that a committed step removed.
A step that failed before its commit may also leave rows; the next attempt with the same seal completes or
replaces them.
"""

from __future__ import annotations

import json
import logging
from functools import partial, reduce
from operator import or_
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import reserved_columns
from delta_cdc.core.change_log import POSITION, POSITION_DDL, PUBLISHED, RAW
from delta_cdc.core.errors import ConcurrentModification, TargetSchemaClash
from delta_cdc.core.quarantine import key_text_sql, other_names_sql, quarantine_of
from delta_cdc.core.spellings import folded_sql, mentions_sql, spellings
from delta_cdc.core.sql import PLAN_PREFIX, quote, string, table
from delta_cdc.core.watermark import refused_id
from delta_cdc.ingest.records.csv import UNCLOSED
from delta_cdc.spark import catalog
from delta_cdc.spark.apply.refusals import NULL_KEY
from delta_cdc.spark.apply.rows import RAW as SOURCE_ROW
from delta_cdc.spark.apply.sequences import as_text, is_below_sql
from delta_cdc.spark.changes import states
from delta_cdc.spark.ingest import redelivery
from delta_cdc.spark.sealed.commit import (
    CommitResult,
    attempt,
    is_overtaken,
    nothing_added,
    stamped,
    written,
)
from delta_cdc.spark.sealed.constraints import Destination
from delta_cdc.spark.sealed.settling import Settled, left

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec, IngestSpec, SourceFile
    from delta_cdc.core.spellings import Kind
    from delta_cdc.core.steps import Step
    from delta_cdc.core.watermark import Seal
    from delta_cdc.spark.apply.prepared_step import StepContext
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)

#: Name -> type. ``raw`` is the record's text or the source's row as JSON; it is NULL for an unreadable file.
#: Only an apply sets ``keys`` (JSON: the key columns as text), ``sequence`` and the versions; only an ingest
#: sets ``position`` and ``adapter``.
COLUMNS = {
    "reason": "string",
    "pipeline": "string",
    "seal": "bigint",
    "raw": "string",
    "keys": "string",
    "sequence": "string",
    "commit_version": "bigint",
    "starting_version": "bigint",
    "ending_version": "bigint",
    "position": POSITION_DDL,
    "adapter": "string",
    "quarantined_at": "timestamp",
}
_SPELLED = "array<struct<text: string, is_whole: boolean>>"
#: Name of the column with the reason, also in rejected records.
REASON = "reason"
_PROPERTIES = {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "false"}
#: Options for rows as JSON. Spark's default patterns drop digits below a millisecond.
AS_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
#: Columns that identify a row of an apply. The sequence of a state may be the version at which it is read.
_IDENTITY = ("keys", "raw")
#: Number of attempts. The first attempt may fail if two writers create the table at the same time.
_TRIES = 3
_KEY = f"{PLAN_PREFIX}key"
HELD, _THERE = f"{PLAN_PREFIX}held", f"{PLAN_PREFIX}there"


# -- the table ------------------------------------------------------------------------------------
def _table_rows(frame: DataFrame, **values: Column) -> DataFrame:
    """Return rows with the columns of the table; a column without a value is NULL."""
    values["quarantined_at"] = F.current_timestamp()
    return frame.select(
        *[values.get(name, F.lit(None)).cast(kind).alias(name) for name, kind in COLUMNS.items()]
    )


def rows_of(session: SparkSession, uri: str, pipeline: str | None, settling: str | None = None) -> DataFrame:
    """Return the rows of a pipeline in the quarantine.

    :param pipeline: None: the rows of all pipelines
    :param settling: the mark of rows that the newest commit has taken out
    :raises TargetSchemaClash: the table is not a quarantine
    """
    table_rows = session.read.format("delta").load(uri)
    columns = {name.lower() for name in table_rows.columns}
    missing = [name for name in COLUMNS if name not in columns]
    if missing:
        raise TargetSchemaClash(
            f"{uri} is no quarantine table: it has no column {', '.join(missing)}.",
            remedy="move that table away; the next run creates the quarantine.",
        )
    table_rows = left(table_rows, settling)
    return table_rows if pipeline is None else table_rows.where(F.col("pipeline") == pipeline)


def held_rows(context: StepContext) -> DataFrame:
    """Return the rows of the step's pipeline in the quarantine."""
    return rows_of(context.session, uri_of(context.spec), context.spec.pipeline, context.step.settling)


def _write_sealed(
    session: SparkSession,
    uri: str,
    seal: Seal,
    prepared: Callable[[], Callable[[], object] | None],
    again: Callable[[], CommitResult],
) -> CommitResult:
    """Write rows in one commit, with the seal of the step's commit.

    :param prepared: returns the write; None if the table has the rows already
    :param again: writes into a table that already has a commit of this seal or of a later one
    """
    outcome = CommitResult("conflict")
    for _ in range(_TRIES):
        save = prepared()
        if save is None:
            return CommitResult("committed")
        outcome = attempt(session, seal, save, Destination(uri))
        if outcome.status == "skipped":
            outcome = again()
        if outcome.status != "conflict":
            break
    return outcome


# -- events of an apply -----------------------------------------------------------------------------
def set_aside(
    context: StepContext, invalid: DataFrame, shape: Shape, reason: Column, *, unless_held: bool = False
) -> None:
    """Keep rows of a step for the quarantine, in the step's context, and count them.

    :param invalid: events or change rows, with the row of the source
        (:data:`~delta_cdc.spark.apply.rows.RAW`) and the version that added it; the quarantine keeps
        their sequence if it orders events
    :param reason: why they are invalid
    :param unless_held: leave out rows that the quarantine, or the step, has already
    """
    sequence = F.lit(None)
    if shape.order_type is not None:
        sequence = as_text(F.col(states.SEQUENCE), shape.order_type)
    quarantined = rows(
        invalid,
        spec=context.spec,
        step=context.step,
        reason=reason,
        keys=shape.keys,
        sequence=sequence,
        event=F.col(SOURCE_ROW),
        commit_version=F.col(reserved_columns.COMMIT_VERSION),
    )
    if unless_held:
        quarantined = _without_held(context, quarantined)
    quarantined = quarantined.localCheckpoint()
    number = quarantined.count()
    if number:
        context.count(quarantined=number)
        if context.quarantined is not None:
            quarantined = context.quarantined.unionByName(quarantined)
        context.quarantined = quarantined


def _without_held(context: StepContext, found: DataFrame) -> DataFrame:
    """Return rows that neither the quarantine nor the step has.

    Versions do not distinguish rows: a source that is read as a whole does not say which version added a row.
    """
    spec = context.spec
    held = [] if context.quarantined is None else [context.quarantined]
    if catalog.has_table(context.session, spec.quarantine_uri):
        # A crashed attempt of this step may have left rows; they are replaced.
        earlier = F.col("seal") < context.step.seal_number
        held.append(held_rows(context).where(earlier))
    for rows_held in held:
        held_row = _identity(F.col("held.keys"), F.col("held.raw"))
        same = _same(_identity(F.col("found.keys"), F.col("found.raw")), held_row)
        found = found.alias("found").join(rows_held.alias("held"), on=same, how="left_anti")
    return found


def may_hold(context: StepContext) -> bool:
    """Return whether the quarantine may have rows of a step, which then keeps each row of the source."""
    step = context.step
    if context.options.quarantines or step.read.quarantined:
        return True
    # Earlier options may have set rows aside.
    computes_again = step.kind in ("repair", "reload", "reset") and not context.only_compares
    return computes_again and catalog.has_table(context.session, uri_of(context.spec))


def settle(context: StepContext, valid: DataFrame, shape: Shape) -> None:
    """Note the rows in quarantine that a step computes again and does not set aside.

    They leave the quarantine with the commit (:func:`settled_rows`), so that no row is in both tables. A
    replay takes all rows of its keys from the quarantine.

    :param valid: valid events or rows of keys that the step computes again, with the row of the source
    """
    spec, step = context.spec, context.step
    kind = valid.schema[SOURCE_ROW].dataType if SOURCE_ROW in valid.columns else None
    has_rows = bool(shape.keys) and isinstance(kind, T.StructType)
    if not has_rows or context.only_compares or step.read.quarantined:
        return
    uri = uri_of(spec)
    if not catalog.has_table(context.session, uri):
        return
    if states.AFTER in valid.columns:
        # A delete has the row that it deletes.
        valid = valid.where(F.col(states.AFTER).isNotNull())
    earlier = f"seal < {step.seal_number} AND reason <> {string(NULL_KEY)}"
    held = held_rows(context).where(earlier).select(*_IDENTITY)
    names = [f"{PLAN_PREFIX}{name}" for name in _IDENTITY]
    theirs = [one.alias(name) for one, name in zip(_identity(*map(F.col, _IDENTITY)), names, strict=True)]
    own = [one.alias(name) for one, name in zip(_identity_of(valid, shape), names, strict=True)]
    on = [F.col(f"held.{name}").eqNullSafe(F.col(f"valid.{name}")) for name in names]
    held = held.select(*_IDENTITY, *theirs).alias("held")
    found = held.join(valid.select(*own).alias("valid"), on, "left_semi")
    settled = found.select(*_IDENTITY).distinct().localCheckpoint()
    number = settled.count()
    context.count(settled=number)
    if number:
        context.settled = settled if context.settled is None else context.settled.unionByName(settled)


def settled_rows(spec: ApplySpec, step: Step, rows: DataFrame) -> Settled:
    """Return the rows of earlier steps that a step writes into the target (:func:`settle`)."""
    condition = f"{_earlier_of(spec.pipeline, step)} AND q.reason <> {string(NULL_KEY)}"
    same = [f"q.{name} <=> s.{name}" for name in _IDENTITY]
    return Settled(uri_of(spec), " AND ".join([condition, *same]), rows.distinct())


def _earlier_of(pipeline: str, step: Step) -> str:
    return f"q.pipeline = {string(pipeline)} AND q.seal < {step.seal_number}"


def _identity(keys: Column, raw: Column) -> tuple[Column, ...]:
    """Return what identifies a row: key and values, without NULLs, and whatever the case of their columns.

    A column that the source gets later is NULL in the rows that it had.
    """
    return tuple(F.coalesce(_without_nulls(text), text) for text in (keys, raw))


def _same(mine: Sequence[Column], theirs: Sequence[Column]) -> list[Column]:
    return [one.eqNullSafe(other) for one, other in zip(mine, theirs, strict=True)]


def _without_nulls(text: Column) -> Column:
    members = F.map_entries(F.from_json(text, "map<string, string>"))
    given = F.filter(members, lambda one: one.getField("value").isNotNull())
    named = F.transform(given, lambda one: F.struct(F.lower(one.getField("key")), one.getField("value")))
    return F.to_json(F.sort_array(named))


def with_held(context: StepContext, events: DataFrame, shape: Shape) -> DataFrame:
    """Add :data:`HELD`: whether the quarantine has an event.

    :param events: with the row of the source (:data:`~delta_cdc.spark.apply.rows.RAW`)
    """
    held = _held(context)
    if held is None:
        return events.withColumn(HELD, F.lit(False))
    joined = events.alias("events").join(
        held.withColumn(_THERE, F.lit(True)).alias("held"), on=_is_held(events, shape), how="left"
    )
    return joined.withColumn(HELD, F.coalesce(_THERE, F.lit(False))).select("events.*", HELD)


def without_held(context: StepContext, events: DataFrame, shape: Shape, condition: Column) -> DataFrame:
    """Return events without those that fulfil a condition and that the quarantine has.

    :param events: see :func:`with_held`
    """
    held = _held(context)
    if held is None:
        return events
    on = [*_is_held(events, shape), condition]
    return events.alias("events").join(held.alias("held"), on=on, how="left_anti")


def uri_of(spec: ApplySpec) -> str:
    """Return the location of the quarantine.

    A spec without one may have a table of earlier runs, whose options set rows aside.
    That of the spec comes first: a verification reads the target as of a version, at another location.
    """
    return spec.quarantine_uri or quarantine_of(spec.target_uri)


def _held(context: StepContext) -> DataFrame | None:
    """Return what identifies the rows in quarantine; None without a table."""
    uri = uri_of(context.spec)
    if not catalog.has_table(context.session, uri):
        return None
    stored = _identity(F.col("keys"), F.col("raw"))
    named = [column.alias(name) for column, name in zip(stored, _IDENTITY, strict=True)]
    return held_rows(context).select(*named).distinct()


def _is_held(events: DataFrame, shape: Shape) -> list[Column]:
    """Return whether an event (``events``) is the same as a row in quarantine (``held``)."""
    return _same(_identity_of(events, shape), [F.col(f"held.{name}") for name in _IDENTITY])


def _identity_of(events: DataFrame, shape: Shape) -> tuple[Column, ...]:
    """Return what identifies an event, or a row of a snapshot, with the row of the source."""
    texts = [_key_text(F.col(quote(key)), events.schema[key].dataType).alias(key) for key in shape.keys]
    return _identity(F.to_json(F.struct(*texts), AS_JSON), F.to_json(F.col(SOURCE_ROW), AS_JSON))


def rows(
    found: DataFrame,
    *,
    spec: ApplySpec,
    step: Step,
    reason: Column,
    keys: Sequence[str],
    sequence: Column,
    event: Column,
    commit_version: Column,
) -> DataFrame:
    """Return rows of a quarantine table (:data:`COLUMNS`).

    :param found: the invalid rows, over which the columns are expressions
    :param reason: why they are invalid
    :param keys: names of the key columns
    :param sequence: as text, see :mod:`delta_cdc.spark.apply.sequences`
    :param event: the row of the source, a struct
    """
    texts = [_key_text(F.col(quote(key)), found.schema[key].dataType).alias(key) for key in keys]
    return _table_rows(
        found,
        reason=reason,
        pipeline=F.lit(spec.pipeline),
        seal=F.lit(step.seal_number),
        raw=F.to_json(event, AS_JSON),
        keys=F.to_json(F.struct(*texts), AS_JSON),
        sequence=sequence,
        commit_version=commit_version,
        starting_version=F.lit(step.starting_version),
        ending_version=F.lit(step.ending_version),
    )


def _key_text(value: Column, data_type: T.DataType) -> Column:
    """Return a key as text that :func:`_key_value` can read back exactly."""
    if isinstance(data_type, T.BinaryType):
        return F.hex(value)
    if isinstance(data_type, T.StructType | T.ArrayType):
        return F.to_json(value, AS_JSON)
    return value.cast("string")


def _key_value(text: Column, data_type: T.DataType) -> Column:
    if isinstance(data_type, T.BinaryType):
        return F.unhex(text)
    if isinstance(data_type, T.StructType | T.ArrayType):
        return F.from_json(text, data_type, AS_JSON)
    return text.cast(data_type)


def write(session: SparkSession, spec: ApplySpec, step: Step, seal: Seal, rows: DataFrame) -> str | None:
    """Write the rows that a step removes, in one commit with the seal of the step's commit in the target.

    An attempt that did not commit in the target has left rows under this seal: the target refuses a second
    commit of a seal. Rows of a shorter range are replaced. The others stay, because another driver may still
    commit them, and only rows that are not among them are added. So the quarantine may have rows of an
    attempt that failed, as one with other rules or of another source; it never lacks a row.

    :param seal: the seal of the target's commit
    :param rows: from :func:`rows`, not empty
    :return: None if the rows are written; otherwise the reason, and the step must be planned again
    :raises TargetSchemaClash: the table is not a quarantine table
    """
    uri, pipeline = spec.quarantine_uri, spec.pipeline
    first, last = step.starting_version, step.ending_version
    of_seal = f"pipeline = {string(pipeline)} AND seal = {step.seal_number}"
    own_rows = f"{of_seal} AND starting_version >= {first} AND ending_version <= {last}"

    def prepared() -> Callable[[], object] | None:
        if not catalog.has_table(session, uri):
            return partial(rows.write.format("delta").mode("error").options(**_PROPERTIES).save, uri)
        held = rows_of(session, uri, pipeline).where(of_seal).select(*COLUMNS)
        of_range = held.where(f"starting_version = {first} AND ending_version = {last}")
        known = of_range.unionByName(held.where(f"(starting_version < {first} OR ending_version > {last})"))
        missing = rows
        if not known.isEmpty():
            more = _not_in(rows, known).localCheckpoint()
            if more.isEmpty():
                return None
            missing = of_range.unionByName(more)
        writer = missing.write.format("delta").mode("overwrite").option("replaceWhere", own_rows)
        return partial(writer.save, uri)

    def again() -> CommitResult:
        is_later = not rows_of(session, uri, pipeline).where(f"seal > {step.seal_number}").isEmpty()
        if is_later and _is_taken(session, spec, step):
            return CommitResult("skipped", f"a run after this one has written to the quarantine {uri}")
        # Another attempt used this seal for another range, or a later number, as two first loads have numbers
        # by the clock. Only its rows show that. The target decides which attempt commits.
        save = prepared()
        return CommitResult("committed") if save is None else written(save)

    outcome = _write_sealed(session, uri, seal, prepared, again)
    if outcome.status == "committed":
        return None
    if outcome.status == "skipped":
        return outcome.message
    return f"another run writes to the quarantine {uri}: {outcome.message}"


def _is_taken(session: SparkSession, spec: ApplySpec, step: Step) -> bool:
    """Return whether the target refuses a step, because another run has committed."""
    if step.planned_on is None:
        return catalog.has_table(session, spec.target_uri)
    number = step.seal_number
    return is_overtaken(session, spec.target_uri, step.planned_on, spec.pipeline, number)


def _not_in(rows: DataFrame, held: DataFrame) -> DataFrame:
    """Return the rows of one seal that another try of this seal has not written."""
    key = F.struct(*[F.col(name).alias(name) for name in _IDENTITY])
    others = held.select(key.alias(_KEY)).distinct()
    return rows.withColumn(_KEY, key).join(others, _KEY, "left_anti").select(*COLUMNS)


def mark_refused(session: SparkSession, uri: str, pipeline: str, number: int) -> None:
    """Note in the quarantine's log that the target refused the rows of a seal whose rows are in quarantine.

    The next try may end later, with the rows that correct the refused ones (:func:`write` replaces the rows
    in quarantine). Without the note, it would have the same range, and the same refused rows.
    """
    with stamped(session, refused_id(pipeline), number, "refused"):
        nothing_added(session, uri)()


def take_over(session: SparkSession, spec: ApplySpec, predecessor: str, closing: int) -> str | None:
    """Give the rows of a pipeline to the one that takes its target over, so that this one can replay them.

    A try that dies after it leaves nothing to undo: the closing seal is in the target, so only this pipeline
    goes on. Rows with the number of the closing seal, or a later one, are of tries that never committed.

    :param closing: the number of the other pipeline's last seal
    :return: None if the rows are this pipeline's; otherwise the reason, and the step must be planned again
    :raises TargetSchemaClash: the table is not a quarantine table
    """
    uri = uri_of(spec)
    mine = f"seal < {closing}"
    if not catalog.has_table(session, uri) or rows_of(session, uri, predecessor).where(mine).isEmpty():
        return None
    statement = (
        f"UPDATE {table(uri)} SET pipeline = {string(spec.pipeline)} "
        f"WHERE pipeline = {string(predecessor)} AND {mine}"
    )
    outcome = written(lambda: session.sql(statement))
    if outcome.status == "committed":
        return None
    return f"another run writes to the quarantine {uri}: {outcome.message}"


def keys_of(
    session: SparkSession,
    uri: str,
    pipeline: str,
    shape: Shape,
    settling: str | None = None,
    *,
    versions: str = "true",
) -> DataFrame:
    """Return the distinct keys in a quarantine table, with the target's types.

    Rows without a key are omitted, because a replay selects rows by key.

    :param settling: see :func:`rows_of`
    :param versions: which rows, as SQL over ``commit_version``
    :raises TableNotFound: the table does not exist
    """
    catalog.delta_detail(session, uri, remedy="nothing was quarantined: there is nothing to replay.")
    keys = [
        _key_value(F.expr(key_text_sql("keys", key)), shape.schema[key].dataType).alias(key)
        for key in shape.keys
    ]
    key_rows = rows_of(session, uri, pipeline, settling).where(versions).select(*keys)
    for key in shape.keys:
        # dropna would also drop NaN, which is a valid key.
        key_rows = key_rows.where(F.col(quote(key)).isNotNull())
    return key_rows.distinct()


def out_of_reach(options: ApplyOptions, step: Step, shape: Shape | None) -> str | None:
    """Return which rows of a quarantine no replay can apply, as SQL; None without such rows.

    Below the allowed lateness, a history no longer changes, and events that it was made of may have expired.
    """
    bound, order_type = step.lateness_bound, shape.order_type if shape is not None else None
    if options.stored_as_scd_type != 2 or bound is None or order_type is None:
        return None
    return f"coalesce({is_below_sql('sequence', bound, order_type)}, false)"


def count_left(context: StepContext, shape: Shape) -> None:
    """Count the rows that a replay leaves in quarantine (:func:`out_of_reach`) as set aside, and log why."""
    condition = out_of_reach(context.options, context.step, shape)
    if condition is None:
        return
    spec = context.spec
    beyond = held_rows(context).where(
        f"{condition} AND reason <> {string(NULL_KEY)} AND seal < {context.step.seal_number}"
    )
    number = beyond.count()
    context.count(quarantined=number)
    if number:
        log.warning(
            "%d event(s) stay in %s: their sequence is below %s, the lateness horizon, and a history does "
            "not change below it. Deliver them with a newer sequence, or delete them there",
            *(number, spec.quarantine_uri, context.step.lateness_bound),
        )


def count_renamed(context: StepContext, shape: Shape) -> None:
    """Count the rows that a replay cannot select, because their key has other columns, and log what to do."""
    spec = context.spec
    others = other_names_sql("keys", shape.keys)
    found = held_rows(context).where(others)
    number = found.count()
    context.count(quarantined=number)
    if number:
        names = ", ".join(found.selectExpr("array_join(json_object_keys(keys), ', ')").first() or ())
        log.warning(
            "%d row(s) stay in %s: their key has the columns %s, and the key is %s now. If a column got "
            "another name, correct it there by UPDATE delta.`%s` SET keys = replace(keys, "
            "'\"<old name>\":', '\"<new name>\":'), then replay again",
            *(number, spec.quarantine_uri, names, ", ".join(shape.keys), spec.quarantine_uri),
        )


def replayed_rows(spec: ApplySpec, step: Step, shape: Shape | None) -> Settled:
    """Return the rows that a replay takes out: those of earlier steps with a key, if it can apply them."""
    condition = f"{_earlier_of(spec.pipeline, step)} AND q.reason <> {string(NULL_KEY)}"
    for key in shape.keys if shape is not None else ():
        # A row without a value of a key column was not replayed (keys_of).
        condition += f" AND {key_text_sql('q.keys', key)} IS NOT NULL"
    if step.read.since is not None:
        condition += f" AND q.commit_version >= {step.read.since}"
    unless = out_of_reach(spec.options, step, shape)
    if unless is not None:
        condition += f" AND NOT {unless}"
    return Settled(uri_of(spec), condition)


# -- records of an ingest ---------------------------------------------------------------------------
def file_rejects(session: SparkSession, files: Sequence[tuple[SourceFile, str]]) -> DataFrame:
    """Return a reject for each unreadable file: RAW, POSITION and the reason.

    :param files: each file with its reason
    """
    text = json.dumps([{"position": {"file": file.uri}, REASON: reason} for file, reason in files])
    ddl = f"array<struct<position: {POSITION_DDL}, {REASON}: string>>"
    rejects = session.range(0, 1, 1, 1).select(F.inline(F.from_json(F.lit(text), ddl)))
    return rejects.select(F.lit(None).cast("string").alias(RAW), F.col("position").alias(POSITION), REASON)


def new(session: SparkSession, spec: IngestSpec, rejects: DataFrame) -> DataFrame:
    """Return the rejects that the quarantine does not have yet, from an earlier delivery or a void batch.

    A file or offset that another pipeline took into the same log, as under an earlier name, comes again, too.
    """
    flag = redelivery.flagged(spec)
    may_be_held = flag is not None or spec.step.configuration.get("void")
    if not (may_be_held and catalog.has_table(session, spec.quarantine_uri)):
        return rejects
    quarantined = _records(session, spec, of_all=True).where(_earlier_sql(spec))
    void_records = quarantined.where(_is_void(spec))
    if flag is None:
        return rejects if void_records.isEmpty() else _beyond(rejects, void_records, exact=bool(spec.offsets))
    flag = F.coalesce(flag, F.lit(False))
    from_others = _beyond(rejects.where(~flag), void_records, exact=bool(spec.offsets))
    return from_others.unionByName(_beyond(rejects.where(flag), quarantined, exact=bool(spec.offsets)))


def write_records(session: SparkSession, spec: IngestSpec, seal: Seal, rejects: DataFrame) -> None:
    """Write a batch's rejects in one commit with the batch's seal.

    If another driver with this batch, or an attempt that crashed later, already wrote under this seal, add
    only the missing rows, because other options may reject more records.

    :param seal: the seal of the log's commit
    :param rejects: RAW, POSITION and the reason
    :raises ConcurrentModification: other writers committed first in every attempt
    """

    def save(records: DataFrame = rejects) -> None:
        quarantine_rows = _table_rows(
            records,
            reason=F.col(REASON),
            pipeline=F.lit(spec.pipeline),
            seal=F.lit(spec.step.seal_number),
            raw=F.col(RAW),
            position=F.col(POSITION),
            adapter=F.lit(spec.options.adapter),
        )
        quarantine_rows.write.format("delta").mode("append").options(**_PROPERTIES).save(spec.quarantine_uri)

    def again() -> CommitResult:
        quarantined = _records(session, spec).where(F.col("seal") == spec.step.seal_number)
        missing = _beyond(rejects, quarantined, exact=True).localCheckpoint()
        return CommitResult("committed") if missing.isEmpty() else written(lambda: save(missing))

    outcome = _write_sealed(session, spec.quarantine_uri, seal, lambda: save, again)
    if outcome.status != "committed":
        raise ConcurrentModification(
            f"Other runs write to the quarantine {spec.quarantine_uri} at the same time: {outcome.message}",
            remedy="run again. The next run first ingests the recorded batch.",
        )


def _beyond(rejects: DataFrame, quarantined: DataFrame, *, exact: bool) -> DataFrame:
    key = F.struct(redelivery.place(exact=exact).alias("place"), F.col(RAW).alias("raw"))
    return redelivery.beyond(rejects, quarantined, key, key)


def _records(session: SparkSession, spec: IngestSpec, *, of_all: bool = False) -> DataFrame:
    """Return this pipeline's records: RAW, POSITION, PUBLISHED, the reason, ``pipeline`` and ``seal``.

    The records of void batches stay: a RESTORE undid these batches, or their log was dropped, and their files
    may be gone. Their unreadable files are left out, because they are ingested again.

    :param of_all: also those of other pipelines
    """
    pipeline = None if of_all else spec.pipeline
    table_rows = rows_of(session, spec.quarantine_uri, pipeline, spec.step.settling)
    return table_rows.where(F.col("raw").isNotNull() | ~_is_void(spec)).select(
        F.col("raw").alias(RAW),
        F.col("position").alias(POSITION),
        F.col("quarantined_at").alias(PUBLISHED),
        REASON,
        "pipeline",
        "seal",
    )


def _is_void(spec: IngestSpec) -> Column:
    """Return whether a row is of a batch of this pipeline that was undone, or never reached the log."""
    ranges = spec.step.configuration.get("void", ())
    is_within = reduce(or_, (F.col("seal").between(first, last) for first, last in ranges), F.lit(False))
    return is_within & (F.col("pipeline") == spec.pipeline)


def _earlier_sql(spec: IngestSpec) -> str:
    """Return the SQL of whether a row is of an earlier batch, or of another pipeline (with other numbers)."""
    return f"(pipeline <> {string(spec.pipeline)} OR seal < {spec.step.seal_number})"


def replayable(session: SparkSession, spec: IngestSpec) -> DataFrame | None:
    """Return the records in quarantine: RAW, PUBLISHED and POSITION.

    Lines that may be part of a quoted value in their file are excluded, because they may not be records.

    :return: None if the quarantine was dropped since an earlier try recorded the replay. Each run begins with
        a recorded batch, so it must end
    :raises TableNotFound: the quarantine does not exist
    """
    if spec.recorded and not catalog.has_table(session, spec.quarantine_uri):
        return None
    catalog.delta_detail(session, spec.quarantine_uri, remedy="nothing was quarantined: nothing to replay.")
    records = _records(session, spec).where((F.col("seal") < spec.step.seal_number) & F.col(RAW).isNotNull())
    return records.where(F.col(REASON) != UNCLOSED).select(RAW, PUBLISHED, POSITION)


def settled_records(spec: IngestSpec, records: DataFrame) -> Settled:
    """Return the rows of records that a replay turns into events, or ignores.

    :param records: RAW and POSITION
    """
    same = f"q.raw = s.{quote(RAW)} AND q.position <=> s.{quote(POSITION)}"
    condition = f"{_earlier_of(spec.pipeline, spec.step)} AND {same}"
    return Settled(spec.quarantine_uri, condition, records.distinct())


def forget_files(session: SparkSession, spec: IngestSpec, files: Sequence[str]) -> None:
    """Delete the rows of files that were unreadable in an earlier delivery and are readable now."""
    if files and catalog.has_table(session, spec.quarantine_uri):
        file_list = ", ".join(map(string, files))
        session.sql(
            f"DELETE FROM {table(spec.quarantine_uri)} "
            f"WHERE {_earlier_sql(spec)} AND raw IS NULL AND position.file IN ({file_list})"
        )


def spelled(
    session: SparkSession, types: Sequence[T.DataType], keys: Sequence[Sequence[str]]
) -> tuple[DataFrame, str]:
    """Return how records may spell keys, and the SQL of whether ``t.raw`` has the key of a row ``s``.

    :param types: of the key columns
    :param keys: the text of each column, for each key
    """
    kinds = [_kind(one) for one in types]
    rows = [
        tuple(
            [(one.text, one.is_whole) for one in spellings(text, kind)]
            for text, kind in zip(key, kinds, strict=True)
        )
        for key in keys
    ]
    columns = [f"v{number}" for number in range(len(kinds))]
    found = session.createDataFrame(rows, ", ".join(f"{column} {_SPELLED}" for column in columns))
    return found, " AND ".join(mentions_sql(folded_sql("t.raw"), f"s.{column}") for column in columns)


def _kind(data_type: T.DataType) -> Kind:
    if isinstance(data_type, T.NumericType):
        return "number"
    if isinstance(data_type, T.DateType):
        return "date"
    if isinstance(data_type, T.TimestampType | T.TimestampNTZType):
        return "timestamp"
    return "binary" if isinstance(data_type, T.BinaryType) else "text"
