"""Read the rows of one key in a target, and what its source has of this key.

The engine's own functions read the events and order them, so the changes are those that an apply takes.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from delta_cdc.core import codec, reserved_columns
from delta_cdc.core.adapters import TRUNCATE, UPSERT
from delta_cdc.core.change_log import POSITION, SOURCE_TIMESTAMP
from delta_cdc.core.erasure import HASH
from delta_cdc.core.errors import InvalidConfiguration, RangeTooLong
from delta_cdc.core.quarantine import key_text_sql, other_names_sql
from delta_cdc.core.reserved_columns import DELETED_COLUMN
from delta_cdc.core.spec import ApplySpec, JobResult
from delta_cdc.core.sql import quote, string
from delta_cdc.core.why import Change, Erased, Found, Lost, TargetRow
from delta_cdc.spark import erased_keys, named_errors, quarantine
from delta_cdc.spark.apply import (
    events,
    from_events,
    load,
    partial_columns,
    target_columns,
    tied_events,
    timeline,
)
from delta_cdc.spark.apply.entries import PLACE, RANK, inherited, order
from delta_cdc.spark.apply.prepared_step import StepContext
from delta_cdc.spark.apply.refusals import LATE, NULL_SEQUENCE, UNKNOWN_COLUMN
from delta_cdc.spark.apply.rows import RAW
from delta_cdc.spark.apply.sequences import as_text
from delta_cdc.spark.changes import feed, states
from delta_cdc.spark.changes.equality import conformed, ddl
from delta_cdc.spark.sessions import private_session, set_where_allowed, shuffle_for
from delta_cdc.spark.verify.rows import at_version

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import WhySpec
    from delta_cdc.spark.apply.rows import Shape

log = logging.getLogger(__name__)

#: The most changes of a key, and the most rows and quarantined events.
MOST_CHANGES, MOST_ROWS = 5_000, 1_000
#: The most records of a log's quarantine: a short value, such as 1, is in many.
_MOST_RECORDS = 20
_BY_NAME = "spark.databricks.delta.timeTravel.resolveOnIdentifier.enabled"
#: Times as ISO 8601.
_TIME = "yyyy-MM-dd'T'HH:mm:ssXXX"
_LOST = {
    LATE: "it came after the allowed lateness",
    NULL_SEQUENCE: "it has no sequence",
    UNKNOWN_COLUMN: "it names a column that the source does not have",
}


def run(spark: SparkSession, spec: WhySpec) -> JobResult:
    """Read what a spec names.

    :return: ``tables`` has one entry, a :class:`~delta_cdc.core.why.Found`
    :raises DeltaCdcError: a table cannot be read; or the key has no value of its type
    """
    feed.refuse_forbidden_confs(spark)
    with private_session(spark) as session:
        set_where_allowed(session, {_BY_NAME: "true"})
        shuffle_for(session, few_rows=True)
        try:
            found = _Reader(session, spec).found()
        except Exception as error:
            raise named_errors.named(error, spec.place) from error
    return JobResult("committed", tables=(codec.encoded(found),))


@dataclass(frozen=True)
class _Event:
    """An event as the source has it.

    :param reason: why it is invalid; None if it is valid
    :param whole: positions of the columns of which it sets every field
    """

    change: Change
    reason: str | None
    whole: tuple[int, ...]

    def agrees(self, change: Change) -> bool:
        """Return whether a state has what this event sets."""
        mine, values = self.change.values, change.values
        if self.change.kind != change.kind or mine is None or values is None:
            return self.change.kind == change.kind
        return all(mine[at] == values[at] for at in self.whole)


class _Reader:
    def __init__(self, session: SparkSession, spec: WhySpec) -> None:
        self._session = session
        self._spec = spec
        stored = at_version(session, spec.target_uri, spec.target_version)
        self._target = target_columns.plain(stored, spec.options)
        self._context = StepContext.of(session, _as_apply(spec), spec.step)
        self._context.only_compares = True
        added = spec.options.added_columns
        self._columns = [name for name in self._target.columns if name not in added]
        self._where = self._predicate()

    @property
    def _options(self) -> ApplyOptions:
        return self._context.options

    def _predicate(self) -> str:
        """Return the condition on the key.

        :raises InvalidConfiguration: a value is not one of its column's type
        """
        key = self._spec.key
        names = states.match(self._target.columns, list(key), "key", self._spec.target_uri)
        conditions = []
        for name, value in zip(names, key.values(), strict=True):
            data_type = self._target.schema[name].dataType
            if not isinstance(data_type, T.AtomicType):
                raise InvalidConfiguration(
                    f"The key column {name} of {self._spec.target_uri} is of type {ddl(data_type)}.",
                    remedy="this command takes keys of simple types only.",
                    argument="key",
                )
            text = f"try_cast({string(value)} AS {ddl(data_type)})"
            if self._session.range(1).select(F.expr(text).isNull()).collect()[0][0]:
                raise InvalidConfiguration(
                    f"{value!r} is no {ddl(data_type)}, the type of the key column {name} of "
                    f"{self._spec.target_uri}.",
                    remedy="write the value as Spark's CAST reads it.",
                    argument="key",
                )
            conditions.append(f"{quote(name)} = CAST({string(value)} AS {ddl(data_type)})")
        return " AND ".join(conditions)

    def found(self) -> Found:
        erased = self._erased()
        if erased is not None:
            return Found(columns=tuple(self._columns), rows=(), changes=(), erased=erased)
        changes, lost = self._of_events() if self._options.takes_events else self._of_feed()
        lost += [*self._quarantined(), *self._records()]
        complete = len(changes) <= MOST_CHANGES
        return Found(
            columns=tuple(self._columns),
            rows=tuple(self._rows()),
            changes=tuple(changes[-MOST_CHANGES:]),
            lost=tuple(lost[:MOST_ROWS]),
            all_changes=complete,
            unsearched=self._renamed(),
        )

    def _erased(self) -> Erased | None:
        """Return the erasure of the key, if it was erased."""
        if not self._spec.ledger_uri:
            return None
        ledger, given = erased_keys.read(self._session, self._spec.ledger_uri), self._spec.key
        if {name.lower() for name in ledger.columns} != {name.lower() for name in given}:
            # The keys of the pipeline were others when keys were erased.
            return None
        schema = {field.name.lower(): ddl(field.dataType) for field in self._target.schema.fields}
        key = self._session.range(1).select(
            *[
                F.expr(f"CAST({string(value)} AS {schema[name.lower()]})").alias(name)
                for name, value in given.items()
            ]
        )
        keyed = key.select(ledger.hash_of(key, self._spec.target_uri).alias(HASH))
        remembered = self._session.read.format("delta").load(ledger.uri)
        row = (
            remembered.join(keyed, HASH, "left_semi")
            .orderBy("erased_at")
            .select(HASH, F.date_format("erased_at", _TIME).alias("at"), "run_id")
            .first()
        )
        if row is None:
            return None
        return Erased(row[HASH], row["at"], row["run_id"], self._target.where(F.expr(self._where)).count())

    # -- the target -----------------------------------------------------------------------------------
    def _rows(self) -> list[TargetRow]:
        options, schema = self._options, self._target.schema
        start = end = deleted = F.lit(None).cast("string")
        of_key = self._target.where(F.expr(self._where))
        if options.stored_as_scd_type == 2:
            sides = (options.start_column, options.end_column)
            start, end = (as_text(F.col(quote(name)), schema[name].dataType) for name in sides)
            of_key = of_key.orderBy(*[F.col(quote(name)).asc_nulls_last() for name in sides])
        if options.keeps_deleted:
            deleted = F.col(quote(DELETED_COLUMN)).cast("string")
        values = F.array(*[_as_json(quote(name)) for name in self._columns])
        found = of_key.select(values.alias("v"), start.alias("s"), end.alias("e"), deleted.alias("d"))
        return [
            TargetRow(tuple(row["v"]), row["s"], row["e"], row["d"] == "true")
            for row in found.limit(MOST_ROWS).collect()
        ]

    def _state(self, shape: Shape, state: str = states.AFTER) -> Column:
        """Return the values of a state as the target has them, as JSON; NULL without a state."""
        types = {field.name.lower(): field for field in shape.schema.fields}
        parts = []
        for name in self._columns:
            field = types.get(name.lower())
            if field is None:
                # A column that the source does not have, or has no longer.
                parts.append(F.lit(None).cast("string"))
                continue
            path = f"{quote(state)}.{quote(field.name)}"
            parts.append(_as_json(conformed(path, field.dataType, self._target.schema[name].dataType)))
        return F.when(F.col(quote(state)).isNotNull(), F.array(*parts))

    def _of_key(self, changed: DataFrame) -> DataFrame:
        return changed.where(F.expr(self._where))

    # -- a change feed --------------------------------------------------------------------------------
    def _of_feed(self) -> tuple[list[Change], list[Lost]]:
        context, options = self._context, self._options
        changed, shape = from_events.states_of(context)
        mine = self._of_key(changed).localCheckpoint()
        valid = mine.where(F.col(events.REASON).isNull())
        entries = timeline.of_events(valid, shape, reserved_columns.ORDER)
        # Also before a change that the target does not take, the key had a row.
        base = mine.orderBy(reserved_columns.ORDER).limit(1).where(F.col(states.BEFORE).isNotNull())
        if mine.isEmpty():
            # No change could be read, so the row has been as it is in the source now.
            snapshot, _ = load.read(context)
            base = self._of_key(snapshot).withColumn(states.BEFORE, shape.state)
        before = {RANK: F.lit(0), events.KIND: F.lit(UPSERT), states.AFTER: F.col(states.BEFORE)}
        entries = timeline.entries(base, entries, shape, before).unionByName(entries)
        changes = self._timeline(inherited(entries, shape, options), shape, with_places=True)
        lost = self._lost(mine.where(F.col(events.REASON).isNotNull()), shape)
        if options.where is not None:
            others = replace(context, options=replace(options, where=_opposite(options.where)))
            left_out, _ = from_events.states_of(others)
            upserts = self._of_key(left_out).where(F.col(events.KIND) == UPSERT)
            lost += self._lost(upserts, shape, why=f"where is not true: {options.where}")
        return changes, lost

    def _timeline(self, entries: DataFrame, shape: Shape, *, with_places: bool) -> list[Change]:
        sequence = F.lit(None).cast("string")
        if shape.order_type is not None:
            sequence = as_text(F.col(states.SEQUENCE), shape.order_type)
        version = F.col(PLACE).cast("bigint") if with_places else F.lit(None).cast("bigint")
        found = entries.orderBy(*[one.desc() for one in order()]).limit(MOST_CHANGES + 1)
        collected = found.select(
            F.col(RANK).alias("rank"),
            F.col(events.KIND).alias("kind"),
            sequence.alias("sequence"),
            version.alias("version"),
            self._state(shape).alias("values"),
        ).collect()
        return [
            Change(
                "base" if row["rank"] == 0 else row["kind"],
                None if row["rank"] == 0 else row["sequence"],
                _values(row["values"]),
                None if row["rank"] == 0 else row["version"],
            )
            for row in reversed(collected)
        ]

    # -- events ---------------------------------------------------------------------------------------
    def _of_events(self) -> tuple[list[Change], list[Lost]]:
        context, options = self._context, self._options
        source_rows = from_events.all_rows(context, with_versions=True)
        keyed = self._keyed(source_rows)
        source_events = events.of_step(context, keyed, keep_raw=True)
        shape = source_events.shape
        is_truncate = F.col(events.KIND) == TRUNCATE
        mine = self._of_key(source_events.rows.where(~is_truncate)).localCheckpoint()
        mine = events.reconsidered(context, mine, shape)
        valid = mine.where(F.col(events.REASON).isNull()).withColumn(tied_events.IN_BATCH, F.lit(False))
        single = tied_events.resolved(context, events.marked(valid, shape), shape)
        entries = timeline.of_events(single, shape)
        if options.source_kind == "snapshot":
            copies = events.of_step(context, source_rows).sequences
            held = from_events.held_events(context, mine)
            entries = timeline.with_absences(entries, copies, shape, held)
        if context.truncated:
            truncates = source_events.rows.where(is_truncate & F.col(events.REASON).isNull())
            entries = timeline.with_truncates(entries, truncates, shape)
        changes = self._timeline(inherited(entries, shape, options), shape, with_places=False)
        found = self._events(mine, shape)
        lost = [
            Lost(_LOST.get(one.reason, one.reason), one.change) for one in found if one.reason is not None
        ]
        valid_events: dict[str | None, list[_Event]] = {}
        for one in found:
            if one.reason is None:
                valid_events.setdefault(one.change.sequence, []).append(one)
        placed = [_placed(change, valid_events.pop(change.sequence, [])) for change in changes]
        conflict = "it conflicts with another event of the same sequence"
        lost += [Lost(conflict, one.change) for others in valid_events.values() for one in others]
        lost += [one for _, others in placed for one in others]
        if options.where is not None:
            filtered = replace(context, options=replace(options, where=_opposite(options.where)))
            left_out = events.of_step(filtered, keyed, keep_raw=True).rows
            text = f"where is not true: {options.where}"
            others = self._events(self._of_key(left_out.where(~is_truncate)), shape)
            lost += [Lost(text, one.change) for one in others]
        return [change for change, _ in placed], lost

    def _keyed(self, source_rows: DataFrame) -> DataFrame:
        """Return the source's rows of the key, and its truncates, so that Delta can skip files.

        :raises RangeTooLong: the files that may have such rows are more than the spec allows
        """
        options = self._options
        # With select, only the projected rows have the key.
        keyed = source_rows if options.select else self._of_key(source_rows)
        self._refuse_large(keyed, source_rows)
        if options.select or not self._context.truncated or options.apply_as_truncates is None:
            return keyed
        others = source_rows.where(f"coalesce(({options.apply_as_truncates}), false)")
        return keyed.unionByName(others.where(~F.coalesce(F.expr(self._where), F.lit(False))))

    def _refuse_large(self, keyed: DataFrame, source_rows: DataFrame) -> None:
        spec = self._spec
        if spec.source_size is None or spec.source_size <= spec.most_bytes:
            return
        files, all_files = len(keyed.inputFiles()), max(len(source_rows.inputFiles()), 1)
        size = spec.source_size * files // all_files
        if size > spec.most_bytes:
            raise RangeTooLong(
                f"The key may be in {files} of the {all_files} files of {spec.source_uri}, about "
                f"{size >> 20} MiB, which is more than {spec.most_bytes >> 20} MiB.",
                remedy="allow more bytes (--max-bytes); or cluster the log by its keys, so that fewer files "
                "may have a key.",
            )

    def _events(self, found: DataFrame, shape: Shape) -> list[_Event]:
        """Return events as the source has them."""
        assert shape.order_type is not None
        record = F.lit(None).cast("string")
        raw = found.schema[RAW].dataType
        names = {field.name for field in raw.fields} if isinstance(raw, T.StructType) else set()
        parts = {"position": POSITION, "time": SOURCE_TIMESTAMP}
        kept = [
            F.col(f"{quote(RAW)}.{quote(one)}").alias(name) for name, one in parts.items() if one in names
        ]
        if kept:
            record = F.to_json(F.struct(*kept), quarantine.AS_JSON)
        collected = (
            found.select(
                F.col(events.KIND).alias("kind"),
                as_text(F.col(states.SEQUENCE), shape.order_type).alias("sequence"),
                F.col(reserved_columns.COMMIT_VERSION).alias("version"),
                F.col(events.REASON).alias("reason"),
                F.col(events.AUTHORED).alias("authored"),
                record.alias("record"),
                self._state(shape).alias("values"),
            )
            .limit(MOST_CHANGES)
            .collect()
        )
        return [self._event(row, shape) for row in collected]

    def _event(self, row: Any, shape: Shape) -> _Event:
        change = Change(
            row["kind"], row["sequence"], _values(row["values"]), row["version"], _record(row["record"])
        )
        if row["authored"] is None:
            return _Event(change, row["reason"], tuple(range(len(self._columns))))
        keys = {name.lower() for name in shape.keys}
        some, whole = set(keys), {name.lower() for name in self._columns}
        for leaf, is_set in zip(partial_columns.leaves(shape, self._options), row["authored"], strict=True):
            name = leaf.path[0].lower()
            some |= {name} if is_set else set()
            whole -= set() if is_set else {name}

        def positions(names: set[str]) -> tuple[int, ...]:
            return tuple(at for at, name in enumerate(self._columns) if name.lower() in names)

        return _Event(replace(change, carried=positions(some)), row["reason"], positions(whole))

    def _lost(self, invalid: DataFrame, shape: Shape, why: str | None = None) -> list[Lost]:
        collected = invalid.select(
            F.col(reserved_columns.ORDER).alias("version"),
            F.col(events.REASON).alias("reason"),
            F.col(events.KIND).alias("kind"),
            self._state(shape).alias("values"),
        )
        return [
            Lost(
                why or _LOST.get(row["reason"], str(row["reason"])),
                Change(
                    row["kind"], None, None if row["values"] is None else tuple(row["values"]), row["version"]
                ),
            )
            for row in collected.orderBy("version").limit(MOST_ROWS).collect()
        ]

    # -- the quarantine -------------------------------------------------------------------------------
    def _quarantined(self) -> list[Lost]:
        spec = self._spec
        if not spec.quarantine_uri:
            return []
        conditions = []
        for name, value in spec.key.items():
            (column,) = states.match(self._target.columns, [name], "key", spec.target_uri)
            data_type = ddl(self._target.schema[column].dataType)
            text = f"CAST(CAST({string(value)} AS {data_type}) AS STRING)"
            conditions.append(f"{key_text_sql('keys', column)} = {text}")
        condition = F.expr(" AND ".join(conditions))
        found = quarantine.held_rows(self._context).where(condition)
        collected = found.select("reason", "commit_version", "sequence").limit(MOST_ROWS).collect()
        return [
            Lost(
                f"it is in quarantine ({row['reason']})",
                Change("upsert", row["sequence"], None, row["commit_version"]),
            )
            for row in collected
        ]

    def _renamed(self) -> int:
        """Return how many rows in quarantine have key columns of other names: they cannot be searched."""
        spec = self._spec
        if not spec.quarantine_uri:
            return 0
        found = quarantine.held_rows(self._context)
        return found.where(other_names_sql("keys", list(spec.key))).count()

    def _records(self) -> list[Lost]:
        """Return the newest records that are no valid events and may be of the key: they have its values.

        The records themselves stay there: they may be of others, and the answer goes into logs and XComs.
        """
        spec = self._spec
        if not spec.records_uri:
            return []
        names = states.match(self._target.columns, list(spec.key), "key", spec.target_uri)
        types = [self._target.schema[name].dataType for name in names]
        given = zip(spec.key.values(), types, names, strict=True)
        texts = self._session.range(1).select(*[F.expr(_text_of(*one)) for one in given]).collect()[0]
        keys, of_key = quarantine.spelled(self._session, types, [list(texts)])
        rows = self._session.read.format("delta").load(spec.records_uri).alias("t")
        found = rows.join(F.broadcast(keys.alias("s")), F.expr(of_key), "left_semi")
        newest = found.orderBy(F.desc("quarantined_at")).limit(_MOST_RECORDS)
        time = F.date_format("quarantined_at", _TIME).alias("time")
        record = F.to_json(F.struct("position", time)).alias("record")
        return [
            Lost(
                f"it is in quarantine ({row['reason']}), and may be of this key: {spec.records_uri}",
                Change("upsert", record=_record(row["record"])),
            )
            for row in newest.select("reason", record).collect()
        ]


def _as_apply(spec: WhySpec) -> ApplySpec:
    """Return the apply whose parts read the source; it is not run."""
    return ApplySpec(
        pipeline=spec.pipeline,
        run_id=spec.run_id,
        source_uri=spec.source_uri,
        target_uri=spec.target_uri,
        options=spec.options,
        steps=spec.steps,
        manifests_uri=spec.manifests_uri,
        quarantine_uri=spec.quarantine_uri,
        dry_run=True,
    )


def _values(texts: Sequence[str | None] | None) -> tuple[str | None, ...] | None:
    return None if texts is None else tuple(texts)


def _text_of(value: str, data_type: T.DataType, name: str) -> str:
    """Return the SQL of the text of a key's value, as a record may spell it."""
    typed = f"CAST({string(value)} AS {ddl(data_type)})"
    try:
        return erased_keys.text_sql(typed, data_type, name)
    except InvalidConfiguration:
        # Equal values of this type have several texts; one is better than none.
        return string(value)


def _opposite(where: str) -> str:
    return f"NOT coalesce(({where}), false)"


def _as_json(value: str) -> Column:
    """Return a value as JSON text; NULL stays NULL."""
    column = F.expr(value)
    text = F.to_json(F.struct(column.alias("v")), quarantine.AS_JSON)
    # Of {"v":…}, the part after the colon.
    return F.when(column.isNotNull(), F.substring(text, F.lit(6), F.length(text) - 6))


def _record(text: str | None) -> dict[str, Any]:
    """Return the place and the time of an ingested record, flat."""
    if text is None:
        return {}
    data = codec.parsed(text)
    return {**(data.get("position") or {}), "time": data.get("time")}


def _placed(change: Change, same_place: Sequence[_Event]) -> tuple[Change, list[Lost]]:
    """Return a change with the version and the record of its event, and the events that do not count.

    Several events of one place are copies, parts that set different columns, or the losers of a conflict.
    """
    parts: dict[Any, Change] = {}
    lost = []
    for event in sorted(same_place, key=lambda one: one.change.version or 0):
        one = event.change
        if not event.agrees(change):
            lost.append(Lost("another event has the same sequence", one))
        elif (one.values, one.carried) in parts:
            lost.append(Lost("it repeats another event", one))
        else:
            parts[one.values, one.carried] = one
    if not parts:
        return change, lost
    first, *others = parts.values()
    both = (first, *others) if others else ()
    return replace(change, version=first.version, record=first.record, parts=both), lost
