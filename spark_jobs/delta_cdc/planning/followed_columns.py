"""Which schema changes of a source an apply follows, and which end a range with an error.

One reader reads a range with one schema, so a range is split before each version that drops, renames or
widens a column, or writes its name in another case. Each part is a step of its own, which carries what its
target needs to follow (``column_changes``)::

    versions   5 data   6 widen   7 data   8 drop   9 drop   10 data
    steps      5                  6-7                        8-10
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from delta_cdc.core import validation
from delta_cdc.core.change_log import COLUMNS
from delta_cdc.core.column_changes import (
    FOLLOWED,
    FOLLOWED_BY_LOGS,
    ColumnChange,
    column_names,
    compare,
    restored,
    reuses_name,
)
from delta_cdc.core.errors import (
    CorruptLog,
    LogGap,
    LogLineTooLong,
    LogTooLarge,
    SchemaChangeInRange,
    TargetSchemaClash,
    VersionsExpired,
)
from delta_cdc.core.properties import COLUMN_MAPPING, GREATEST_COLUMN_ID
from delta_cdc.delta_log.actions import MetaData
from delta_cdc.delta_log.schema_changes import moved_column, recased

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import DeltaLog, TableState
    from delta_cdc.planning.observe import Observation

_FREE_NAME = "rename or drop the target's column, then run again"
_RELOAD = "apply up to version {before} (ending_version), then load a new target from the table as it is now."

#: What to do if a repair cannot read changes of before a change of columns.
REPAIR_AFTER = 'repair a range after that change, or compare all keys with mode="reload".'


@dataclass(frozen=True)
class FollowedColumns:
    """The schema changes of a range, each one followed.

    :param notes: versions that could not be compared
    :param built_with: the options of the target's rows
    :param schemas: the table's metadata by the version that set it, ascending, beginning before the range
    :param splits: versions at which a step must begin
    """

    notes: tuple[str, ...] = ()
    options: ApplyOptions | None = None
    schemas: Mapping[int, MetaData] = field(default_factory=dict)
    splits: frozenset[int] = frozenset()
    built_with: ApplyOptions | None = None

    def changes(self, starting: int, ending: int) -> tuple[ColumnChange, ...]:
        """Return what the target of a step has to follow; () if the policy follows nothing."""
        if self.options is None:
            return ()
        return _carried(self._all_changes(starting, ending), self.options, self.built_with)

    def _all_changes(self, starting: int, ending: int) -> tuple[ColumnChange, ...]:
        before, after = self._at(starting - 1), self._at(ending)
        if before is None or after is None or before is after:
            return ()
        return _compared(before, after)

    def parts(self, commits: tuple[Commit, ...]) -> tuple[tuple[Commit, ...], ...]:
        """Split commits so that each part can be read with the schema of its end.

        A part without data joins the next one, unless the target could not follow both in one step.
        """
        parts: list[tuple[Commit, ...]] = []
        for commit in commits:
            if not parts or commit.version in self.splits:
                parts.append(())
            parts[-1] += (commit,)
        joined: list[tuple[Commit, ...]] = []
        for part in parts:
            if joined and self._joins(joined[-1], part):
                part = joined.pop() + part
            joined.append(part)
        return tuple(joined)

    def _joins(self, first: tuple[Commit, ...], second: tuple[Commit, ...]) -> bool:
        if any(commit.changes_data for commit in first):
            return False
        return not reuses_name(self._all_changes(first[0].version, second[-1].version))

    def _at(self, version: int) -> MetaData | None:
        earlier = [set_in for set_in in self.schemas if set_in <= version]
        return self.schemas[max(earlier)] if earlier else None


def _drops_or_keeps(options: ApplyOptions) -> bool:
    return "dropped" in FOLLOWED.get(options.schema_evolution, ())


@dataclass
class _TargetNames:
    """The names of a target's columns as it follows a range, in lower case.

    :param options: None if no target follows the range
    """

    options: ApplyOptions | None
    names: set[str]

    @classmethod
    def of(cls, options: ApplyOptions | None, names: Sequence[str]) -> _TargetNames:
        """Return the names before a range.

        :param names: of the columns that the target has; or will have, if the range makes it
        """
        if options is not None and (options.select or not _drops_or_keeps(options)):
            options = None
        return cls(options, set(map(str.lower, names)))

    def taken_by(self, changes: Sequence[ColumnChange]) -> tuple[ColumnChange, ...]:
        """Follow the changes of a version, and return the new columns whose names were not free."""
        if self.options is None:
            return ()
        columns = [c for c in changes if len(c.path) == 1 and _lands(c.path[0], self.options)]
        drops = "renamed" in FOLLOWED[self.options.schema_evolution]
        for change in columns:
            if change.kind == "renamed" or (change.kind == "dropped" and drops):
                self.names.discard(change.name.lower())
        self.names |= {change.after.lower() for change in columns if change.kind == "renamed"}
        added = [change for change in columns if change.kind == "added"]
        taken = tuple(change for change in added if change.name.lower() in self.names)
        self.names |= {change.name.lower() for change in added}
        return taken


def _compared(before: MetaData, after: MetaData) -> tuple[ColumnChange, ...]:
    return compare(before.schema_string, after.schema_string, by_id=before.id == after.id)


def _carried(
    changes: tuple[ColumnChange, ...], options: ApplyOptions, built_with: ApplyOptions | None
) -> tuple[ColumnChange, ...]:
    """Return the changes that a step carries to its target; with ``select``, the target has its own names.

    The job finds widened columns by comparing the tables.

    :param built_with: the options of the target's rows. A column that they leave out is another one than the
        target's own column of its name
    """
    followed = FOLLOWED.get(options.schema_evolution)
    if followed is None or options.select:
        return ()
    kinds = (followed - {"widened"}) | {"comment", "nullable"}
    taking = built_with or options
    return tuple(change for change in changes if change.kind in kinds and _lands(change.path[0], taking))


def _lands(name: str, options: ApplyOptions) -> bool:
    """Return whether options take a column of the source."""
    names, left_out = options.column_list, options.except_column_list or ()
    if names is not None:
        return name.lower() in map(str.lower, (*names, *options.keys))
    return name.lower() not in map(str.lower, left_out)


async def check(
    log: DeltaLog, commits: tuple[Commit, ...], observed: Observation[Any] | None = None
) -> FollowedColumns:
    """Refuse a range with a schema change that the apply does not follow.

    All commits are checked, including those before the first data change: the feed is read with the schema of
    the range's end, and the target has the schema of the version before the range.

    :param commits: all commits of the range, ascending
    :param observed: the tables of an apply, whose policy may follow the change; None: only added columns are
        followed
    :raises SchemaChangeInRange: names the first such version and column
    :raises TargetSchemaClash: the target cannot follow it
    """
    options = observed.request.applied if observed is not None else None
    described = [(commit, commit.metadata) for commit in commits if commit.metadata is not None]
    if not described:
        return FollowedColumns(options=options)
    built_with = validation.options_of(observed.seal) if observed is not None and observed.seal else options
    notes: tuple[str, ...] = ()
    before = commits[0].version - 1
    last = await metadata_at(log, before)
    if last is None:
        oldest, last = described[0]
        before = oldest.version
        if commits[0].version > 0:
            note = (
                f"Version {commits[0].version - 1} of {log.uri} cannot be rebuilt: schema changes are looked "
                f"for from version {before} on."
            )
            notes = (note,)
    schemas, splits = {before: last}, set()
    gone: list[ColumnChange] = []
    target = observed.recorded.target if observed is not None and observed.recorded is not None else None
    all_schemas = [last, *(metadata for _, metadata in described)]
    of_target = target.schema_columns if target is not None else column_names(last.schema_string)
    names = _TargetNames.of(options, of_target)
    for commit, now in described:
        log.columns(now, commit.version)
        changes = compare(last.schema_string, now.schema_string, by_id=now.id == last.id)
        for change in changes:
            _refuse(log, commit, change, options, target, all_schemas)
        for change in names.taken_by(changes):
            raise _name_taken(log, commit, change, target)
        lossy = [f"column {change}" for change in changes if change.is_lossy]
        gone += [change for change in changes if change.is_lossy]
        if lossy or reuses_name(changes, gone) or recased(last, now):
            splits.add(commit.version)
        if lossy:
            notes += (f"The target follows version {commit.version} of {log.uri}: {'; '.join(lossy)}.",)
        _refuse_moved(log, commit, last, now)
        if options is not None:
            _refuse_restored(log, commit, last, now)
        schemas[commit.version] = last = now
    return FollowedColumns(notes, options, schemas, frozenset(splits), built_with)


async def since_watermark(observed: Observation[Any], at: TableState) -> tuple[ColumnChange, ...]:
    """Return what the target of a reload has to follow.

    If the schema at the watermark is not known, the seal's names of columns show which ones the source lost.

    :param at: the source that the target is compared with
    :raises TargetSchemaClash: the target maps no columns
    :raises SchemaChangeInRange: one step cannot follow all changes; or the policy does not follow one, so the
        target would keep old values that look like the newest ones
    """
    options, seal = observed.request.applied, observed.seal
    try:
        before = await metadata_at(observed.log, seal.watermark.version) if seal is not None else None
    except (CorruptLog, LogLineTooLong, LogTooLarge):
        # A reload leads out of a log whose older part cannot be read.
        before = None
    if options is None or seal is None:
        return ()
    after = MetaData(at.table_id, at.configuration, at.schema_string, at.partition_columns)
    if before is None or before.id != seal.watermark.table_id:
        there = set(map(str.lower, column_names(at.schema_string)))
        names = validation.source_columns_of(seal)
        found = tuple(ColumnChange("dropped", (name,)) for name in names if name.lower() not in there)
    else:
        found = _compared(before, after)
    _refuse_left(observed, found, at, options)
    _refuse_mixed(observed, found, at, options)
    changes = _carried(found, options, validation.options_of(seal))
    if changes and reuses_name(found):
        raise SchemaChangeInRange(
            f"Columns of {observed.log.uri} got names of other columns between versions "
            f"{seal.watermark.version} and {at.version}, and a reload follows all changes in one commit.",
            remedy='run with mode "incremental" first, which follows one change after the other. If its '
            'versions are gone, run once with mode "reset".',
        )
    for change in changes:
        if options.schema_evolution == "mirror" and change.is_lossy and observed.recorded:
            _refuse_unmapped(observed.log, at.version, change, observed.recorded.target)
    return changes


def _refuse_mixed(
    observed: Observation[Any], changes: tuple[ColumnChange, ...], at: TableState, options: ApplyOptions
) -> None:
    """Refuse a new column whose name the target has: old rows would have another column's values in it."""
    target = observed.recorded.target if observed.recorded is not None else None
    if target is None:
        return
    for change in _TargetNames.of(options, target.schema_columns).taken_by(changes):
        raise SchemaChangeInRange(
            f"Since the watermark, column {change} in {observed.log.uri}, and the target {target.uri} has "
            f"another column of that name: a reload at version {at.version} would mix their values.",
            remedy=f"{_FREE_NAME}.",
        )


def _refuse_left(
    observed: Observation[Any], changes: tuple[ColumnChange, ...], at: TableState, options: ApplyOptions
) -> None:
    """Refuse to leave a column in the target that the source has lost, unless the policy says so."""
    target = observed.recorded.target if observed.recorded is not None else None
    if target is None or options.select:
        return
    followed = FOLLOWED.get(options.schema_evolution, frozenset())
    written = set(map(str.lower, target.schema_columns))
    for change in changes:
        is_lost = change.kind in ("dropped", "renamed") and change.kind not in followed
        if is_lost and change.path[0].lower() in written:
            policies = [repr(name) for name, kinds in FOLLOWED.items() if change.kind in kinds]
            raise SchemaChangeInRange(
                f"Since the watermark, column {change} in {observed.log.uri}: a reload at version "
                f"{at.version} would leave its old values in the target {target.uri}.",
                remedy=f"{_set_policy(policies, change, options, target)}; or run once with "
                'mode="reset", which replaces the target with its columns.',
            )


async def refuse_other_columns(observed: Observation[Any], last: int) -> None:
    """Refuse to repair by changes that were made before the columns became those of the watermark.

    :param last: the last version whose changes are read
    :raises SchemaChangeInRange: names the column
    """
    options, seal = observed.request.applied, observed.seal
    follows = options is not None and options.schema_evolution in FOLLOWED
    if not follows or seal is None or last >= seal.watermark.version:
        return
    then, now = await metadata_at(observed.log, last), await metadata_at(observed.log, seal.watermark.version)
    changes = compare(then.schema_string, now.schema_string, by_id=then.id == now.id) if then and now else ()
    for change in changes:
        if change.is_lossy:
            raise SchemaChangeInRange(
                f"The changes of {observed.log.uri} up to version {last} cannot be read with the columns of "
                f"the watermark {seal.watermark.version}: column {change}.",
                remedy=REPAIR_AFTER,
            )


async def metadata_at(log: DeltaLog, version: int) -> MetaData | None:
    """Return the metadata of a version; None if the version does not exist or the log was cleaned."""
    if version < 0:
        return None
    try:
        state = await log.snapshot(version)
    except (VersionsExpired, LogGap):
        return None
    return MetaData(state.table_id, state.configuration, state.schema_string, state.partition_columns)


def _refuse(
    log: DeltaLog,
    commit: Commit,
    change: ColumnChange,
    options: ApplyOptions | None,
    target: TableState | None,
    all_schemas: Sequence[MetaData],
) -> None:
    """Refuse one change that the options do not follow.

    :param all_schemas: from the one before the range on
    """
    policy = options.schema_evolution if options is not None else "none"
    followed = FOLLOWED.get(policy, frozenset())
    if not change.is_lossy:
        return
    remedy = _RELOAD.format(before=commit.version - 1)
    if change.kind not in followed:
        possible = FOLLOWED_BY_LOGS if options is not None and options.writes_events else tuple(FOLLOWED)
        policies, all_of_them = _following(change, _lossy_kinds(all_schemas), possible)
        if options is not None and policies:
            remedy = f"{_set_policy(policies, change, options, target, all_of_them)}; or {remedy}"
        raise schema_changed(log, commit, f"column {change}", remedy)
    assert options is not None
    use = _use(change.path[0], options)
    if use is not None:
        raise schema_changed(log, commit, f"column {change}, and {use} uses it", remedy)
    if change.kind == "widened":
        return
    _refuse_reused(log, commit, change, options, all_schemas[-1])
    _refuse_in_events(log, commit, change, options)
    if options.select and any("*" in text for text in options.select):
        text = f"column {change}, and select takes all columns"
        raise schema_changed(log, commit, text, "list the columns in select, or leave it out; or " + remedy)
    if policy == "keep_dropped" and len(change.path) > 1:
        text = f"column {change}, and a field inside a column cannot be kept"
        mirror = _set_policy(["'mirror'"], change, options, target)
        raise schema_changed(log, commit, text, f"{mirror}; or {remedy}")
    if policy == "mirror" and target is not None and not options.select:
        _refuse_unmapped(log, commit.version, change, target)


def _refuse_in_events(log: DeltaLog, commit: Commit, change: ColumnChange, options: ApplyOptions) -> None:
    """Refuse a change after which a late event, which computes its key from all events, would alter rows.

    Events keep the names of columns that they list; an ingest's log may list columns that do not exist. A
    history computed without a kept column has fewer intervals.
    """
    if not options.takes_events or change.kind == "widened":
        return
    undo = f"RESTORE {log.uri} to version {commit.version - 1}"
    listed = options.columns_to_update
    if listed is not None and (change.kind == "renamed" or listed != COLUMNS):
        text = f"column {change}, and older events name it in their {listed} (columns_to_update)"
        remedy = f"{undo}. A target gets other names by select, and fewer columns by except_column_list."
        raise schema_changed(log, commit, text, remedy)
    is_history = options.stored_as_scd_type == 2
    if change.kind == "dropped" and options.schema_evolution == "keep_dropped" and is_history:
        text = f"column {change}, and late events would compute a history without it"
        remedy = f"{undo}, which keeps the column; or set schema_evolution in policies to 'mirror'."
        raise schema_changed(log, commit, text, remedy)


def _refuse_reused(
    log: DeltaLog, commit: Commit, change: ColumnChange, options: ApplyOptions, at_end: MetaData
) -> None:
    """Refuse a column that is gone, if an option would take another one for it that has its name since."""
    name = change.path[0]
    if len(change.path) > 1 or name.lower() not in map(str.lower, column_names(at_end.schema_string)):
        return
    use = _reads(name, options)
    if use is not None:
        text = f"column {change}, another column has its name since, and {use} names it"
        raise schema_changed(log, commit, text, _RELOAD.format(before=commit.version - 1))


def _lossy_kinds(schemas: Sequence[MetaData]) -> frozenset[str]:
    """Return the kinds of the lossy changes from each schema to the next."""
    changes = (
        change
        for before, after in pairwise(schemas)
        for change in compare(before.schema_string, after.schema_string, by_id=before.id == after.id)
    )
    return frozenset(change.kind for change in changes if change.is_lossy)


def _following(change: ColumnChange, kinds: frozenset[str], possible: Sequence[str]) -> tuple[list[str], str]:
    """Return the policies that follow all changes of a range, or else this one, and what they follow.

    :param kinds: of the changes of the range
    """
    policies = [repr(name) for name in possible if kinds <= FOLLOWED[name]]
    if policies:
        return policies, "all changes of the range" if len(kinds) > 1 else "this change"
    return [repr(name) for name in possible if change.kind in FOLLOWED[name]], "this change"


def _set_policy(
    policies: Sequence[str],
    change: ColumnChange,
    options: ApplyOptions,
    target: TableState | None,
    what: str = "this change",
) -> str:
    """Return the remedy to choose a policy; for a target that cannot follow it yet, with the ALTER before it.

    :param policies: those that follow the change, the least first
    :param what: all that they follow
    """
    text = f"set schema_evolution in policies to {' or '.join(policies)}, which follows {what}"
    if change.kind == "widened" or options.select or target is None or not _is_unmapped(target):
        return text
    if len(policies) == 1:
        return f"run {_map_columns(target)}. Then {text}"
    return f"{text} ('mirror' only after {_map_columns(target)})"


def _is_unmapped(target: TableState) -> bool:
    return target.configuration.get(COLUMN_MAPPING, "none") == "none"


def _map_columns(target: TableState) -> str:
    """Return the statement that lets a target rename and drop columns, and when it may be run."""
    return (
        f"ALTER TABLE delta.`{target.uri}` SET TBLPROPERTIES ('{COLUMN_MAPPING}' = 'name'), if all its "
        "readers know column mapping"
    )


def _name_taken(
    log: DeltaLog, commit: Commit, change: ColumnChange, target: TableState | None
) -> SchemaChangeInRange:
    """Build the error for a new column whose name another one has in the target, with its values."""
    has_it = target is not None and change.name.lower() in map(str.lower, target.schema_columns)
    text = f"column {change}, and the target has a column of that name already, with other values"
    remedy = f"{_FREE_NAME}."
    if not has_it:
        text = f"column {change}, and the target keeps a column of that name, which was dropped before"
        remedy = f"apply up to version {commit.version - 1} (ending_version). Then {_FREE_NAME}."
    return schema_changed(log, commit, text, remedy)


def _refuse_unmapped(log: DeltaLog, version: int, change: ColumnChange, target: TableState) -> None:
    if _is_unmapped(target):
        raise TargetSchemaClash(
            f"The schema of {log.uri} changed up to version {version}: column {change}. The target "
            f"{target.uri} maps no columns, so it cannot follow.",
            remedy=f"{_map_columns(target)}; or build a new target, which 'mirror' creates with it.",
        )


def _use(name: str, options: ApplyOptions) -> str | None:
    """Return the option that needs a column to stay as it is; None if no option does."""
    named = {
        "keys": options.keys,
        "partition_by": tuple(options.partition_by),
        "cluster_by": options.cluster_by or (),
        "columns_to_update": (options.columns_to_update or "",),
        "snapshot_version_column": (options.snapshot_version_column or "",),
    }
    for option, names in named.items():
        if name.lower() in map(str.lower, names):
            return option
    expressions = {
        "sequence_by": (*options.sequences, options.delete_sequence or ""),
        "partition_by": tuple(text or "" for text in options.partition_by.values()),
        "rules": tuple(rule.check for rule in options.rules.values()),
    }
    return _expression_with(name, expressions)


def _reads(name: str, options: ApplyOptions) -> str | None:
    """Return the option that would take a column for the one that had its name before; None if none does."""
    lists = {
        "column_list": options.column_list or (),
        "except_column_list": options.except_column_list or (),
    }
    for option, names in lists.items():
        if name.lower() in map(str.lower, names):
            return option
    expressions = {
        "select": options.select,
        "where": (options.where or "",),
        "apply_as_deletes": (options.apply_as_deletes or "",),
        "apply_as_truncates": (options.apply_as_truncates or "",),
    }
    return _expression_with(name, expressions)


def _expression_with(name: str, expressions: Mapping[str, Sequence[str]]) -> str | None:
    word = re.compile(rf"(?<!\w){re.escape(name)}(?!\w)", re.IGNORECASE)
    return next((option for option, texts in expressions.items() if word.search(" ".join(texts))), None)


def _refuse_moved(log: DeltaLog, commit: Commit, last: MetaData, now: MetaData) -> None:
    """Refuse a commit after which old files cannot be read by the new names or partition columns."""
    remedy = _RELOAD.format(before=commit.version - 1)
    # Within one table, an id has one name in all files; another id is another column.
    mapped = all(m.configuration.get(COLUMN_MAPPING, "none") != "none" for m in (last, now))
    moved = None if mapped and now.id == last.id else moved_column(last, now)
    if moved is not None:
        raise schema_changed(log, commit, f"the data files have another name for column {moved}", remedy)
    if now.partition_columns != last.partition_columns:
        # A file's partition values are not in its columns. Any reader, Delta's own too, returns NULL for
        # them under another partitioning.
        now_text, before_text = (", ".join(m.partition_columns) or "nothing" for m in (now, last))
        text = f"it is partitioned by {now_text}, and was by {before_text}"
        raise schema_changed(log, commit, text, remedy)


def _refuse_restored(log: DeltaLog, commit: Commit, last: MetaData, now: MetaData) -> None:
    """Refuse a dropped column that came back, as by a RESTORE: rows that did not change have its values."""
    greatest = str(last.configuration.get(GREATEST_COLUMN_ID, ""))
    if now.id != last.id or not greatest.isdecimal():
        return
    names = restored(last.schema_string, now.schema_string, int(greatest))
    if names:
        text = f"the column {', '.join(names)} came back, with values in rows that did not change"
        raise schema_changed(log, commit, text, "run once with mode='reload', which compares all rows.")


def schema_changed(log: DeltaLog, commit: Commit, change: str, remedy: str) -> SchemaChangeInRange:
    """Build the error for a change that cannot be followed."""
    return SchemaChangeInRange(
        f"The schema of {log.uri} changed in version {commit.version} "
        f"({commit.info.operation or 'unknown operation'}): {change}.",
        remedy=remedy,
    )
