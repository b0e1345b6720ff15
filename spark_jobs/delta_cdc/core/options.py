"""Every option of an apply, an ingest and a read: its name, type, default, meaning, and where it belongs.

An option is one field here, and its use. From these fields come the parsing of arguments, the keys of a
configuration and their JSON Schema, template fields, the tables of the documentation, the flags of commands,
what a seal records, and the signatures of operators and functions, which ``tools/signatures.py`` writes.

Which options go together: :mod:`delta_cdc.core.rules`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from delta_cdc.core import codec
from delta_cdc.core.option import (
    ADAPTER,
    APPROVAL,
    COLUMNS,
    CONFLICT,
    COUNT,
    FAIL_OR_RELOAD,
    FLAG,
    INITIAL_LOAD,
    KEYS,
    MAPPING,
    MODE,
    NAME,
    ON_DRIFT,
    OPTIONAL_TABLE,
    PARTITIONS,
    PIPELINE,
    PIPELINE_TABLES,
    POSITIVE,
    PREDICATE,
    PROJECTIONS,
    PROPERTIES,
    ROW_LIMIT,
    SCD_TYPE,
    SEQUENCE,
    SPAN,
    SQL,
    TABLE,
    TEXT,
    VALUE_RULES,
    Option,
    choice,
    option,
    options_in,
    some_of,
)
from delta_cdc.core.reserved_columns import COMMIT_VERSION, DELETED_COLUMN, NAMING, ROW_ID, ROW_VERSION, TIMES
from delta_cdc.core.value_rules import ValueRule, those_that

#: The change queries, as J. Vanlightly's comparison of table formats names them.
Query = Literal["append_only", "upsert", "min_delta", "full_delta"]
#: The read method of a range: Delta's change data feed; files that were added or removed, with rows matched
#: by row id; the same, with rows matched by key; files of commits that only add.
RangeMethod = Literal["change_files", "row_tracking", "snapshot_diff", "added_files"]
#: The read method that a user requests; ``auto``: the planner chooses it for each range.
ReadMethod = Literal["auto", RangeMethod]
#: The kind of the source: a table with a change feed, an append-only table of events, or periodic full copies
#: (one per version, or one per value of a column).
SourceKind = Literal["change_feed", "change_log", "snapshot"]
#: The kind of the target: a table with rows, or a change log, to which each change is appended as an event.
TargetKind = Literal["table", "change_log"]
#: Which changes of the source's columns a target or a change log follows.
SchemaEvolution = Literal["additive", "none", "widen", "keep_dropped", "mirror"]
#: Pairs of options that select one set of columns, by its columns or by all others: the columns that a target
#: gets, those whose change makes a version, and those that a NULL in an event does not change.
COLUMN_LISTS = ("column_list", "except_column_list")
TRACKED_LISTS = ("track_history_column_list", "track_history_except_column_list")
NULL_LISTS = ("ignore_null_updates_column_list", "ignore_null_updates_except_column_list")


# The import of every DAG file would compile methods: a class that is only a base of others has none.
@dataclass(frozen=True, init=False, repr=False, eq=False)
class TableOptions:
    """Options of every pipeline that writes a table."""

    keys: tuple[str, ...] = option(
        KEYS,
        "Columns that identify a row; leave them out with ``insert_only``, and only then",
        default=(),
        recorded="fixed",
    )
    insert_only: bool = option(
        FLAG,
        "The source is append-only: it never updates or deletes rows",
        default=False,
        templated=False,
        recorded="log",
    )
    schema_evolution: SchemaEvolution = option(
        choice(*get_args(SchemaEvolution)),
        "``additive``: the target gets new columns; ``none``: new columns are an error; ``widen``: as "
        "``additive``, and column types widen as in the source, also in an ingest's change log; "
        "``keep_dropped``: as ``widen``, and a column that the source drops stays, with NULL in new "
        "rows; ``mirror``: as ``widen``, and the target drops and renames columns as the source does",
        default="additive",
        group="policies",
    )
    cluster_by: tuple[str, ...] | None = option(
        COLUMNS,
        "Clustering columns. None takes up to four keys, unless ``partition_by`` is set; an empty "
        "list means no clustering",
        group="layout",
    )


@dataclass(frozen=True)
class ApplyOptions(TableOptions):
    """The content of a target. Names follow Databricks AUTO CDC.

    ``source_kind`` is None until the planner has read whether the source is a change log of an ingest.
    """

    source_kind: SourceKind | None = option(
        choice(*get_args(SourceKind)),
        "``change_feed``: a table whose rows are inserted, updated and deleted; ``change_log``: an "
        "append-only table of events, which may come late and twice; ``snapshot``: full copies, one "
        "per version or per value of ``snapshot_version_column``. None means ``change_log`` for a log "
        "that an ingest made, and ``change_feed`` for any other table",
        default="change_feed",
        omitted=None,
        recorded="fixed",
    )
    target_kind: TargetKind = option(
        choice(*get_args(TargetKind)),
        "``table``: the target gets the rows of the source. ``change_log``: the run appends each change "
        "of the source to a change log, as an event. Several pipelines may append to one log, and "
        "another pipeline applies it",
        default="table",
        recorded="fixed",
    )
    stored_as_scd_type: int = option(
        SCD_TYPE, "1 keeps the current rows, 2 keeps every version of each row", default=1, recorded="fixed"
    )
    sequence_by: str | tuple[str, ...] = option(
        SEQUENCE,
        "For a change log: one or more expressions that order the events of a key (the first one "
        "decides first). Required unless an ingest made the log. For other sources, only with type 2 "
        "or ``target_kind`` ``change_log``: the value for the start and end columns, or the sequence "
        "of the events: ``_commit_version`` (default), ``_commit_timestamp``, or an expression over "
        "the columns",
        default="_commit_version",
        omitted=None,
        recorded="shown",
    )
    delete_sequence: str | None = option(
        SQL,
        "For a change feed, with type 2 or ``target_kind`` ``change_log``: the sequence of the delete of "
        "a row. Required if ``sequence_by`` is an expression over columns, because a deleted row has "
        "only its old values. Both must have the same type. If ``sequence_by`` is a time, you can use "
        "``_commit_timestamp``",
        recorded="shown",
    )
    where: str | None = option(
        SQL,
        "Predicate on rows. The run deletes a row that no longer matches, and inserts a row that "
        "matches now. From a change log, it ignores events that do not match",
        recorded="changeable",
    )
    select: tuple[str, ...] = option(
        PROJECTIONS,
        "Expressions that compute the columns; ``*`` means all columns",
        default=(),
        recorded="changeable",
    )
    apply_as_deletes: str | None = option(
        SQL,
        "Predicate over the source's columns. In a change log, an event that matches is a delete. In "
        "other sources, the run treats a row that matches as absent",
        recorded="changeable",
    )
    apply_as_truncates: str | None = option(
        SQL,
        "Predicate: an event of a change log that matches is a truncate. It has no key, and deletes "
        "all rows with a lower sequence",
        recorded="changeable",
    )
    column_list: tuple[str, ...] | None = option(
        COLUMNS,
        "Columns, after ``select``, that the target gets; it always gets the keys",
        recorded="changeable",
    )
    except_column_list: tuple[str, ...] | None = option(
        COLUMNS, "Columns, after ``select``, that the target does not get", recorded="changeable"
    )
    track_history_column_list: tuple[str, ...] | None = option(
        COLUMNS, "Type 2: only a change of these columns makes a new version", recorded="changeable"
    )
    track_history_except_column_list: tuple[str, ...] | None = option(
        COLUMNS, "Type 2: a change of only these columns makes no new version", recorded="changeable"
    )
    ignore_null_updates: bool = option(
        FLAG, "A NULL in an event does not change the column", default=False, recorded="changeable"
    )
    ignore_null_updates_column_list: tuple[str, ...] | None = option(
        COLUMNS,
        "``ignore_null_updates`` only for these columns, or leaf fields of structs (``a.b``)",
        recorded="changeable",
    )
    ignore_null_updates_except_column_list: tuple[str, ...] | None = option(
        COLUMNS, "``ignore_null_updates`` for all columns except these", recorded="changeable"
    )
    columns_to_update: str | None = option(
        TEXT,
        "Column of the source whose array names the columns that an event contains. Other columns "
        "keep their values. A NULL array means all columns",
        recorded="changeable",
    )
    start_column: str = option(
        NAME, "Type 2: name of the start column", default="__START_AT", group="layout", recorded="fixed"
    )
    end_column: str = option(
        NAME,
        "Type 2: name of the end column (NULL in the current version, or ``end_value``)",
        default="__END_AT",
        group="layout",
        recorded="fixed",
    )
    end_value: str | None = option(
        TEXT,
        "Type 2: what the end column of an open row contains instead of NULL, such as ``9999-12-31``. "
        "It must be a value of the sequence's type, above every sequence",
        group="layout",
        recorded="fixed",
    )
    current_column: str | None = option(
        NAME,
        "Type 2: name of a BOOLEAN column that is true for open rows",
        group="layout",
        recorded="fixed",
    )
    created_column: str | None = option(
        NAME,
        "Type 1: name of a column with the time when the source made the row",
        group="layout",
        recorded="fixed",
    )
    changed_column: str | None = option(
        NAME,
        "Type 1: name of a column with the time when the source last changed the row",
        group="layout",
        recorded="fixed",
    )
    row_hash_column: str | None = option(
        NAME,
        "Name of a STRING column with a hash of the row's values when it was written",
        group="layout",
        recorded="fixed",
    )
    on_conflict: str | tuple[str, ...] = option(
        CONFLICT,
        "If different events of one key in a change log have the same sequence: ``fail``, "
        '``quarantine``, or ``{"last_by": [<column>, ...]}``, which applies the event with the '
        "greatest values in these columns",
        default="fail",
        group="policies",
    )
    on_invalid: Literal["fail", "quarantine"] = option(
        choice("fail", "quarantine"),
        "If an event has no key or no sequence: ``fail``, or ``quarantine`` (into the table "
        "``<target>__quarantine``)",
        default="fail",
        group="policies",
        recorded="shown",
    )
    delete_mode: Literal["hard", "soft", "new_version"] = option(
        choice("hard", "soft", "new_version"),
        "``hard`` deletes the row (type 2: ends it); ``soft`` keeps the row (type 2: open), with "
        "``_deleted`` true; ``new_version`` (type 2) ends the row, and opens a version with the last "
        "values and ``_deleted`` true",
        default="hard",
        recorded="fixed",
    )
    partition_by: dict[str, str | None] = option(
        PARTITIONS,
        "Partition columns, or a mapping from a new partition column to its expression",
        default={},
        group="layout",
        recorded="fixed",
    )
    target_properties: dict[str, str] = option(
        PROPERTIES, "Table properties of a target that the pipeline creates", default={}, group="layout"
    )
    publish_changes: bool = option(
        FLAG,
        "Turn on the change data feed of a target that the pipeline creates",
        default=False,
        group="layout",
    )
    on_late: Literal["fail", "discard"] = option(
        choice("fail", "discard"),
        "If an event of a change log is below the lateness horizon: ``fail`` or ``discard``",
        default="fail",
        group="policies",
    )
    snapshot_version_column: str | None = option(
        NAME,
        "With ``source_kind`` ``snapshot``: the column that distinguishes the copies. A later copy "
        "must have a greater value",
        recorded="fixed",
    )

    # A seal records the rules, and on_invalid, without comparing them. They say what becomes of the rows that
    # come, and not what the target's rows were computed from: a run whose rule is new must not fail for it.
    # Replay and verification need the rules, because they decide which rows of the source are left out.
    rules: dict[str, ValueRule] = option(
        VALUE_RULES,
        "Rules for inserted and updated rows: a mapping from a name to a Spark SQL predicate over the "
        'target\'s columns, or to ``{"check": <predicate>, "on_break": …}``. If the check of a row is not '
        "true: ``fail`` (default); ``quarantine`` (into the table ``<target>__quarantine``); or ``flag``, "
        "which applies and counts the row",
        default={},
        recorded="shown",
    )

    @property
    def sequences(self) -> tuple[str, ...]:
        """Return the expressions of ``sequence_by``, one or several."""
        return (self.sequence_by,) if isinstance(self.sequence_by, str) else self.sequence_by

    @property
    def last_by(self) -> tuple[str, ...]:
        """Return the columns that decide between conflicting events; empty if ``on_conflict`` is a word."""
        return () if isinstance(self.on_conflict, str) else self.on_conflict

    @property
    def writes_events(self) -> bool:
        """Return whether the target is a change log, which gets each change as an event."""
        return self.target_kind == "change_log"

    @property
    def keeps_deleted(self) -> bool:
        """Return whether a deleted key keeps a current row, with ``_deleted`` true."""
        return self.delete_mode != "hard"

    @property
    def added_columns(self) -> dict[str, str]:
        """Return the columns that the engine adds to those of the rows, and the option that adds each."""
        added = {DELETED_COLUMN: "delete_mode"} if self.keeps_deleted else {}
        naming = (*(NAMING if self.stored_as_scd_type == 2 else TIMES), "row_hash_column")
        named = {getattr(self, name): name for name in naming}
        return added | {column: name for column, name in named.items() if column is not None}

    @property
    def has_times(self) -> bool:
        """Return whether rows of type 1 have the time when they were made, or last changed."""
        return any(getattr(self, name) is not None for name in TIMES)

    @property
    def is_partial(self) -> bool:
        """Return whether an event may carry only some of the columns."""
        return (
            self.ignore_null_updates
            or self.ignore_null_updates_column_list is not None
            or self.ignore_null_updates_except_column_list is not None
            or self.columns_to_update is not None
        )

    @property
    def quarantines(self) -> bool:
        """Return whether a quarantine table may exist."""
        return "quarantine" in (self.on_conflict, self.on_invalid) or self.sets_rows_aside

    @property
    def sets_rows_aside(self) -> bool:
        """Return whether a rule sets rows aside, so the target may lack rows that the source has."""
        return bool(those_that(self.rules, "quarantine"))

    @property
    def is_ordered_by_commit(self) -> bool:
        """Return whether only the commit's version, which always grows, orders a history."""
        return {*self.sequences, self.delete_sequence} <= {COMMIT_VERSION, None}

    @property
    def sets_changes_aside(self) -> bool:
        """Return whether a change of a key may be set aside, in a history of a feed.

        Then the target need not have the state before the next change, as the feed records it.
        """
        lacks_sequences = self.on_invalid == "quarantine" and not self.is_ordered_by_commit
        return self.sets_rows_aside or lacks_sequences

    @property
    def takes_events(self) -> bool:
        """Return whether rows of the source are events, rather than states before and after a commit."""
        return self.source_kind == "change_log" or self.snapshot_version_column is not None

    @property
    def takes_copies(self) -> bool:
        """Return whether each version of the source is a full copy."""
        return self.source_kind == "snapshot" and not self.takes_events

    @property
    def needs_every_change(self) -> bool:
        """Return whether the changes between the ends of a range matter.

        A soft delete needs them because it keeps the row's last values.
        """
        return (
            self.stored_as_scd_type == 2
            or self.has_times
            or self.writes_events
            or self.is_partial
            or self.keeps_deleted
        )


@dataclass(frozen=True, init=False, repr=False, eq=False)
class Bounds:
    """The ends of a range of versions, both inclusive."""

    starting_version: int | None = option(
        COUNT, "First version, inclusive; None continues after the watermark", of_one=True, flag=True
    )
    ending_version: int | None = option(
        COUNT, "Last version, inclusive; None is the newest one", of_one=True, flag=True
    )
    starting_timestamp: str | None = option(
        TEXT,
        "First version at or after a time, such as ``2026-01-31T18:00:00+01:00``; in Airflow and for "
        "an apply also ``2026-01-31T18:00:00 Europe/Berlin``",
        flag=True,
    )
    ending_timestamp: str | None = option(TEXT, "Last version at or before a time", flag=True)


@dataclass(frozen=True, init=False, repr=False, eq=False)
class RangeOptions(Bounds):
    """Options of a run that reads a range of versions."""

    max_versions: int | None = option(
        POSITIVE,
        "Maximum number of versions of the source in one run, counted from the first one that changes data",
        group="limits",
        flag=True,
    )
    max_bytes: int | None = option(
        POSITIVE,
        "Maximum size of the changes in one run, in bytes, by the file sizes in the source's log. A "
        "run takes at least one version",
        group="limits",
        flag=True,
    )
    versions_per_commit: int | None = option(
        POSITIVE,
        "Maximum number of versions in one commit. One application makes all commits of a run, and a "
        "retry continues after the last one. None makes one commit per run, or several if the range "
        "is too long for one Spark plan",
        group="limits",
        flag=True,
    )
    bytes_per_commit: int | None = option(
        POSITIVE, "Maximum size of the changes in one commit, in bytes", group="limits", flag=True
    )
    single_driver: bool = option(
        FLAG,
        "True: you make sure that only one Spark driver at a time writes to the table. Needed on S3 "
        "if Spark's log store is not safe for several drivers, and on disks without hard links",
        default=False,
        templated=False,
    )


@dataclass(frozen=True, repr=False, eq=False)
class RunOptions(RangeOptions):
    """Options of a run that applies changes, which no seal records."""

    initial_load: str | dict[str, int] = option(
        INITIAL_LOAD,
        'First run: ``snapshot`` loads the newest version; ``{"from_version": N}`` loads version N - '
        "1, and applies the changes since; ``none`` loads nothing: the target already equals the "
        'newest version of the source; ``{"none_at": V}`` loads nothing: the target already equals '
        "version V",
        default="snapshot",
    )
    target_location: str | None = option(
        OPTIONAL_TABLE,
        "If the target is a catalog name: path or URI of its table, ``${ENV}`` allowed. None takes "
        "the location in the catalog or, for a new table, the folder with its name in the location of "
        "its schema",
        group="layout",
    )
    target_comment: str | None = option(
        TEXT, "Comment of a table that this pipeline registers in the catalog", group="layout"
    )
    mode: str = option(
        MODE,
        "``incremental`` (also an empty text): apply the changes after the watermark. ``backfill``: "
        "the same, up to an end. ``repair``: compute again the rows of the keys that changed in a "
        "range, or that ``repair`` selects; the watermark stays. ``reload``: compute again the rows "
        "of all keys. ``reset``: delete the target's rows, and load it again. ``interval``, for runs "
        "with a data interval: apply the changes before the end of the interval; if they are already "
        "applied, repair the keys that changed in the interval",
        default="incremental",
        of_run=True,
    )
    discard_history: bool = option(
        FLAG, "Allow ``reset`` of type 2, which deletes the history", default=False, of_run=True, flag=True
    )
    repair_keys: str | None = option(
        PREDICATE,
        "Predicate over the key columns: repair these keys, instead of a range. It compares the "
        "columns with literals; no function or subquery is allowed",
        of_run=True,
        group="repair",
        of_one=True,
        flag=True,
    )
    repair_quarantined: bool = option(
        FLAG, "Repair the keys in the quarantine table", default=False, of_run=True, group="repair", flag=True
    )
    on_drift: str = option(
        ON_DRIFT,
        "If the options differ from those that built the target: ``fail``; ``accept``: use the new "
        "ones from now on; ``repair``: use the new ones, and reload the target",
        default="fail",
        group="policies",
    )
    on_source_replaced: str = option(
        FAIL_OR_RELOAD,
        "If another table replaced the source: ``fail`` or ``reload``",
        default="fail",
        group="policies",
    )
    on_target_replaced: str = option(
        FAIL_OR_RELOAD,
        "If another writer replaced or overwrote the target: ``fail`` or ``reload``",
        default="fail",
        group="policies",
    )
    on_versions_expired: str = option(
        FAIL_OR_RELOAD,
        "If retention removed versions that the run must apply: ``fail`` or ``reload``",
        default="fail",
        group="policies",
    )
    allow_empty: bool = option(
        FLAG,
        "Full copies (``source_kind`` ``snapshot``): apply a copy without rows, which deletes or "
        "closes every row of the target. Otherwise the run fails with ``EmptyCopy``",
        default=False,
        group="policies",
    )
    max_deleted: int | str | None = option(
        ROW_LIMIT,
        "Most rows that a commit may delete (of a history: close without a new row), as a number or as a "
        "share of the target's rows such as ``5 %``. Beyond it, the run fails with ``LimitExceeded``. For "
        "full copies (``source_kind`` ``snapshot``), None refuses a copy with at most half of the rows of "
        "the copy before it, from 1,000 rows on",
        group="limits",
        flag=True,
    )
    max_changed: int | str | None = option(
        ROW_LIMIT,
        "As ``max_deleted``, for the keys whose rows a commit inserts, changes or deletes",
        group="limits",
        flag=True,
    )
    min_source_rows: int | None = option(
        COUNT,
        "Least rows that a load or a reset writes, or a full copy has; with fewer, the run fails with "
        "``LimitExceeded``, and ``approve`` does not help",
        group="limits",
        flag=True,
    )
    approval_for: tuple[str, ...] | None = option(
        some_of("reset", "reload", "drift"),
        "Runs that write nothing until a person approves exactly what they would do, as if they exceeded a "
        "limit: ``reset``; ``reload``, also one by a policy; ``drift``: the first run with other options "
        "than those that built the target, if ``on_drift`` takes them",
        group="policies",
    )
    approve: str | None = option(
        APPROVAL,
        "The text in a ``LimitExceeded``: apply exactly the change that this error describes",
        of_run=True,
        of_one=True,
        flag=True,
    )
    take_over_from: str | None = option(
        PIPELINE,
        "Old name of the pipeline that built the target: this pipeline continues at the old "
        "watermark, and later runs under the old name fail",
    )
    shadow_of: dict[str, str] = option(
        PIPELINE_TABLES,
        "Name of a pipeline with the same source, whose target the target of this one will replace: each "
        "run of either compares the current rows of both. Outside of a configuration: a mapping from the "
        "name to its target",
        default={},
    )
    shadowed_by: dict[str, str] = option(
        PIPELINE_TABLES,
        "The pipelines that shadow this one: a mapping from their names to their targets. In a "
        "configuration, ``shadow_of`` sets it",
        default={},
    )
    once: bool = option(
        FLAG,
        "Load the source once: if the pipeline has a watermark, a run does nothing",
        default=False,
    )
    dry_run: bool = option(
        FLAG, "Plan, count and show the statements, but write nothing", default=False, of_run=True
    )
    staging: str | None = option(
        OPTIONAL_TABLE,
        "Staging table of ``DeltaReadChangesOperator``: apply the batch in it, instead of reading the source",
        of_run=True,
    )


@dataclass(frozen=True)
class QueryOptions:
    """A query for the changes of a range."""

    query: Query = option(
        choice(*get_args(Query)),
        "``full_delta``: every change, with pre-images; ``append_only``: every inserted row, with the "
        "inserted values; ``min_delta``: the net change of each key; ``upsert``: the last row of "
        "every changed key that still exists. An apply accepts only ``full_delta``",
        default="full_delta",
    )
    keys: tuple[str, ...] = option(
        KEYS,
        "Columns that identify a row; required for ``upsert`` and with ``where``, and for "
        "``min_delta`` unless row tracking is on",
        default=(),
    )
    method: ReadMethod = option(
        choice(*get_args(ReadMethod)),
        "``change_files`` (Delta's change data feed), ``row_tracking``, ``snapshot_diff`` or "
        "``added_files``; ``auto`` chooses one of them for each part of the range",
        default="auto",
    )
    raw: bool = option(
        FLAG,
        "For ``full_delta``: return exactly the rows of the change data feed, also those that a "
        "commit rewrote unchanged",
        default=False,
        templated=False,
    )
    wide: bool = option(
        FLAG,
        "For ``full_delta`` and ``min_delta``: return each change as one row, with the structs ``old`` and "
        "``new``; ``_change_type`` is ``insert``, ``update`` or ``delete``. Needs keys or row tracking",
        default=False,
        templated=False,
    )
    row_ids: bool = option(
        FLAG,
        "Add the columns ``_row_id`` and ``_row_commit_version``; needs row tracking",
        default=False,
        templated=False,
    )
    only_surviving: bool = option(
        FLAG,
        "For ``append_only``: leave out a row that a later commit of the range deleted. Needs keys or row "
        "tracking",
        default=False,
        templated=False,
    )
    where: str | None = option(
        SQL,
        "Spark SQL predicate on rows. A row that no longer matches becomes a delete, and a row that "
        "matches now becomes an insert",
    )
    select: tuple[str, ...] = option(
        PROJECTIONS, "Spark SQL expressions that compute the columns", default=()
    )
    on_change_commit: Literal["fail", "skip"] = option(
        choice("fail", "skip"),
        "For the method ``added_files``: ``fail`` at a commit that removes rows, or ``skip`` it; "
        "``skip`` is not possible with a ``target``",
        default="fail",
        group="policies",
    )

    @property
    def is_net(self) -> bool:
        """Return whether only the net effect of a range counts, not the changes between its ends."""
        return self.query in ("upsert", "min_delta")

    @property
    def pairs_rows(self) -> bool:
        """Return whether the query has to know which change rows belong to one row of the table."""
        return self.is_net or self.wide or self.only_surviving or self.where is not None

    @property
    def by_row_id(self) -> bool:
        """Return whether the table's row ids are the keys, because the query needs keys and has none."""
        return self.pairs_rows and not self.keys

    @property
    def needs_row_ids(self) -> bool:
        """Return whether only a read method that gives row ids can answer the query."""
        return self.by_row_id or self.row_ids

    @property
    def tracking(self) -> tuple[str, ...]:
        """Return the columns of row tracking that the query needs."""
        if self.row_ids:
            return (ROW_ID, ROW_VERSION)
        return (ROW_ID,) if self.by_row_id else ()

    @property
    def spans_commits(self) -> bool:
        """Return whether later commits of the range decide about the rows of earlier ones."""
        return self.is_net or self.only_surviving


@dataclass(frozen=True)
class IngestOptions(TableOptions):
    """The format of an external change set, and the meaning of its events.

    :param source_kind: ``files`` or ``kafka``; the source decides
    """

    source_kind: Literal["files", "kafka"] = "files"
    format: Literal["json", "csv", "parquet", "avro"] = option(
        choice("json", "csv", "parquet", "avro"),
        "Format of files: ``json`` (one object per line; with the format option ``multiLine``, an "
        "array, or objects with any line breaks), ``csv``, ``parquet`` or ``avro`` (object container "
        "files). Of topics: ``json``, or ``avro`` with the ids of a schema registry",
        default="json",
        recorded="log",
    )
    adapter: str = option(
        ADAPTER,
        "What converts a record into an event: ``plain``, ``canal``, ``debezium``, ``dms``, "
        "``goldengate``, ``maxwell``, ``mongodb``, or the dotted name of your function",
        default="plain",
        recorded="log",
    )
    adapter_options: dict[str, Any] = option(MAPPING, "Options of the adapter", default={}, recorded="log")
    schema: str | None = option(
        TEXT,
        "The events' columns as Spark SQL DDL, without other fields; None infers all from the records",
        recorded="log",
    )
    format_options: dict[str, str] = option(
        PROPERTIES, 'Options of the format, such as ``{"sep": ";"}``', default={}, recorded="log"
    )
    on_invalid: Literal["quarantine", "fail"] = option(
        choice("fail", "quarantine"),
        "If a record is not an event: ``quarantine`` or ``fail``",
        default="quarantine",
        group="policies",
        recorded="log",
    )
    log_properties: dict[str, str] = option(
        PROPERTIES, "Table properties of a log that the pipeline creates", default={}, group="layout"
    )

    def __post_init__(self) -> None:
        # JSON has no tuples: options read from a spec or a seal equal those that were written.
        object.__setattr__(self, "adapter_options", codec.encoded(self.adapter_options))


@dataclass(frozen=True, init=False, repr=False, eq=False)
class IngestRunOptions:
    """Options of a run that ingests files or topics, which no seal records."""

    starting_timestamp: str | None = option(
        TEXT,
        "Skip files and records before this time, such as ``2026-01-31T18:00:00+01:00``, and count them",
        flag=True,
    )
    max_files: int | None = option(POSITIVE, "Maximum number of files in one run", group="limits", flag=True)
    max_bytes: int | None = option(
        POSITIVE,
        "Maximum size of the files in one run, in bytes. A run takes at least one file",
        group="limits",
        flag=True,
    )
    max_offsets: int | None = option(
        POSITIVE, "Kafka: maximum number of records in one run", group="limits", flag=True
    )
    glob: str | None = option(
        TEXT, "Pattern for the names of files, without their folders, such as ``orders-*.json``", flag=True
    )
    lexical_order: bool = option(
        FLAG,
        "True: the name of each new file sorts after the names of all earlier files, so a run lists "
        "only the names after the last one",
        default=False,
    )
    follow_links: bool = option(
        FLAG,
        "True: follow links in a local folder that lead out of it. Whoever can write into it can then "
        "have the run ingest any file that the task can read",
        default=False,
    )
    replay: bool = option(
        FLAG,
        "Ingest the records in quarantine again, with the current arguments, instead of new records",
        default=False,
        of_run=True,
    )
    on_expired: str = option(
        choice("fail", "continue"),
        "If Kafka deleted records before an ingest read them: ``fail``, or ``continue`` at the oldest "
        "record that remains",
        default="fail",
        group="policies",
    )
    on_drift: str = option(
        ON_DRIFT,
        "If other values order the events than those in the log: ``fail`` (also ``repair``); ``accept``: "
        "the new values sort after the old ones",
        default="fail",
        group="policies",
    )
    single_driver: bool = option(
        FLAG,
        "True: you make sure that only one Spark driver at a time writes to the table. Needed on S3 "
        "if Spark's log store is not safe for several drivers, and on disks without hard links",
        default=False,
        templated=False,
    )


def _by_name(*options: Option) -> dict[str, Option]:
    return {one.name: one for one in options}


_TABLES = _by_name(
    Option(
        "pipeline",
        PIPELINE,
        "Name of the pipeline, which each of its commits records. None takes the last part of the "
        "name of the target or, if there is no target, of the change log. Do not change the name "
        "while that table exists. Two pipelines that write one table need different names",
    ),
    Option("source", TABLE, "Path, URI or catalog name of the source, ``${ENV}`` allowed", required=True),
    Option(
        "target",
        TABLE,
        "Path, URI or catalog name of the target, ``${ENV}`` allowed. If the catalog does not have "
        "the name, the run that creates the target registers it",
        required=True,
    ),
)

#: What only reports of a pipeline and Airflow's tasks use.
_REPORTED = _by_name(
    Option(
        "on_limit",
        choice("fail", "wait"),
        "In Airflow, if a run exceeds ``max_deleted`` or ``max_changed``, or ``approval_for`` names it: "
        "``fail``; or ``wait`` until a person approves or rejects the change under Required Actions (from "
        "Airflow 3.3 on)",
        default="fail",
        group="policies",
    ),
    Option(
        "freshness",
        SPAN,
        "Maximum age of a change that is not applied, such as ``30 minutes``. ``delta-cdc status``, "
        "the metrics and the results of runs report a pipeline with an older change as late",
        templated=False,
    ),
)

_INGEST_TABLES = _by_name(
    Option(
        "source",
        TABLE,
        "Folder or prefix of files, or ``kafka://<host:port>,…/<topic>,…``; ``${ENV}`` allowed",
        required=True,
    ),
    Option(
        "target",
        OPTIONAL_TABLE,
        "Path, URI or catalog name of the table to which the run applies the log; None only ingests",
    ),
    Option(
        "log",
        TABLE,
        "Path, URI or catalog name of the change log, ``${ENV}`` allowed. The ingest creates it if needed",
        required=True,
    ),
)
_READ_TABLES = _by_name(
    Option(
        "pipeline", PIPELINE, "The pipeline's name, the same as in the apply or commit task", required=True
    ),
    Option("table", TABLE, "Path, URI or catalog name of the source, ``${ENV}`` allowed", required=True),
    Option(
        "staging", TABLE, "Path or URI of the staging table. The read creates it if needed", required=True
    ),
    Option(
        "target",
        OPTIONAL_TABLE,
        "Path, URI or catalog name of the target with the watermark; None for your own sink",
    ),
)
_SOURCE_KIND_OF_A_LOG = (
    "How the apply reads the log; None is ``change_log``, or ``change_feed`` with ``insert_only``"
)

#: The ends of a range.
BOUNDS = options_in(Bounds)
#: The limits of the size of a run and its commits, which modes that make one commit do not have.
SIZE_LIMITS = tuple(name for name, one in options_in(RangeOptions).items() if one.group == "limits")
#: Options of an apply.
APPLY = {**_TABLES, **options_in(ApplyOptions, RunOptions), **_REPORTED}
#: Options of an ingest, including those of the apply of its log.
INGEST = {
    "pipeline": APPLY["pipeline"],
    **_INGEST_TABLES,
    **{name: one for name, one in APPLY.items() if name not in (*_TABLES, "staging")},
    **options_in(IngestOptions, IngestRunOptions),
    "source_kind": replace(APPLY["source_kind"], doc=_SOURCE_KIND_OF_A_LOG),
}
#: Options of an ingest and of an apply that, in the arguments of a table with a log, bound its ingest alone.
BOUNDS_OF_THE_INGEST = ("starting_timestamp", "max_bytes")
#: Options of an ingest alone, without an apply that follows.
INGEST_ALONE = {
    name: INGEST[name] for name in ("pipeline", "source", "log", *options_in(IngestOptions, IngestRunOptions))
}
#: Options of a read of changes.
READ = {**_READ_TABLES, **options_in(QueryOptions, RangeOptions)}
#: Options of a query for changes, without a pipeline: the methods of one call need no limits.
CHANGES = options_in(Bounds, QueryOptions)
