"""Which options go together: the rules that need no I/O.

The engine, the form, configurations and commands use them. :mod:`delta_cdc.core.options` checks each option
alone, and the planner checks what depends on the tables.
"""

from __future__ import annotations

import re
from itertools import combinations, permutations
from typing import TYPE_CHECKING, NamedTuple

from delta_cdc.core.arguments import ONWARDS
from delta_cdc.core.column_changes import FOLLOWED, FOLLOWED_BY_LOGS
from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved, invalid
from delta_cdc.core.key_predicates import check_key_predicate
from delta_cdc.core.options import (
    BOUNDS,
    COLUMN_LISTS,
    NULL_LISTS,
    SIZE_LIMITS,
    TRACKED_LISTS,
    ApplyOptions,
)
from delta_cdc.core.properties import feed_on
from delta_cdc.core.reserved_columns import (
    COMMIT_TIMESTAMP,
    COMMIT_VERSION,
    DELETED_COLUMN,
    NAMING,
    OF_END,
    TIMES,
)
from delta_cdc.core.times import epoch_ms
from delta_cdc.core.uris import at_root, canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delta_cdc.core.options import Bounds, IngestOptions, QueryOptions, RunOptions
    from delta_cdc.core.requests import ApplyRequest, ChangesRequest, IngestRequest, ReadRequest

#: What to do with a table in the folder of another one.
OUTSIDE = "name a folder outside of it."
_PIPELINE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:\-]{0,199}\Z")
#: For an event, when it arrived; for a state, when it was valid.
_ARRIVAL = re.compile(rf"\b({COMMIT_VERSION}|{COMMIT_TIMESTAMP})\b", re.IGNORECASE)
_RETENTION = "delta.setTransactionRetentionDuration"
_PAIRS = (COLUMN_LISTS, TRACKED_LISTS, NULL_LISTS)
#: Options only for events that have keys.
_BY_KEY = (
    "apply_as_deletes",
    "apply_as_truncates",
    "ignore_null_updates",
    *NULL_LISTS,
    "columns_to_update",
    "delete_sequence",
    "snapshot_version_column",
    *TIMES,
)
_RELOADS = ("on_source_replaced", "on_target_replaced", "on_versions_expired")
#: What limits the batch of an ingest.
LIMITS_OF_A_BATCH = ("max_files", "max_bytes", "max_offsets")
_FILES_ONLY = ("max_files", "max_bytes", "glob", "lexical_order", "follow_links")


class Rule(NamedTuple):
    """One rule, applied to given options.

    :param is_broken: whether the options break it
    :param argument: the first argument that is wrong
    :param problem: a clause without a full stop
    :param remedy: a sentence
    :param form_remedy: the same for the form of a manual run; "" if the form cannot break the rule
    """

    is_broken: bool
    argument: str
    problem: str
    remedy: str
    form_remedy: str = ""


def check(*rules: Iterable[Rule]) -> None:
    """Raise the first broken rule.

    :raises InvalidConfiguration: names the argument
    """
    for rule in (rule for some in rules for rule in some):
        if rule.is_broken:
            raise invalid(rule.problem, rule.remedy, rule.argument)


# -- requests -----------------------------------------------------------------------------------
def check_apply(request: ApplyRequest) -> None:
    """Refuse the arguments of an apply that cannot be used together.

    :raises InvalidConfiguration: names the arguments
    """
    check_pipeline(request.pipeline)
    check(bounds_rules(request))
    check_options(request.options)
    refuse_same(
        source=request.source, target=request.target, staging=request.staging, quarantine=request.quarantine
    )
    refuse_nested(source=request.source, target=request.target, staging=request.staging)
    refuse_root(target=request.target, staging=request.staging)
    if request.take_over_from is not None:
        check_pipeline(request.take_over_from, "take_over_from")
    check(_first_runs(request), _shadows(request))
    check(_event_runs(request), _modes(request), mode_rules(request), _repaired_keys(request))
    if request.repair_keys is not None:
        check_key_predicate(request.repair_keys, request.options.keys)


def check_read(request: ReadRequest) -> None:
    """Refuse the arguments of a read that cannot be used together.

    :raises InvalidConfiguration: names the arguments
    """
    check_pipeline(request.pipeline)
    check(bounds_rules(request), query_rules(request.options))
    refuse_same(source=request.source, target=request.target, staging=request.staging)
    refuse_nested(source=request.source, target=request.target, staging=request.staging)
    refuse_root(staging=request.staging)
    check(_skipped_commits(request))


def check_changes(request: ChangesRequest) -> None:
    """Refuse the arguments of a query for changes that cannot be used together.

    :raises InvalidConfiguration: names the arguments
    """
    check(bounds_rules(request))
    if request.starting_version is None and request.starting_timestamp is None:
        raise InvalidConfiguration(
            f"The query of the changes of {request.table} has no start.",
            remedy="set starting_version (0 is the table's first version) or starting_timestamp.",
        )
    check(query_rules(request.options))


def check_ingest(request: IngestRequest) -> None:
    """Refuse the arguments of an ingest that cannot be used together.

    :raises InvalidConfiguration: names the arguments
    """
    check_pipeline(request.pipeline)
    _ = request.starting_ms
    refuse_root(log=request.log)
    check(_records(request), _ingest_options(request.options))


def check_options(options: ApplyOptions) -> None:
    """Refuse options of a target that cannot be combined.

    :raises InvalidConfiguration: names the arguments
    """
    every = (_pairs, _events, _keys, _kinds, _sequences, _deletes, _columns, _partial, _values, _history)
    check(*(rules(options) for rules in (*every, _layout)))


def check_order(options: ApplyOptions) -> None:
    """Refuse a change log without an order of its events. The source itself may name it.

    :raises InvalidConfiguration: ``sequence_by`` is missing
    """
    if options.source_kind == "change_log" and options.sequence_by == ApplyOptions.sequence_by:
        raise invalid(
            "sequence_by is missing",
            "name the columns that order the events of the change log.",
            "sequence_by",
        )


def check_pipeline(pipeline: str, argument: str = "pipeline") -> None:
    """Refuse a pipeline name that would be ambiguous in a log or a file name."""
    if not _PIPELINE.match(pipeline or ""):
        raise InvalidConfiguration(
            f"The pipeline name {pipeline!r} cannot be used.",
            remedy="use 1 to 200 letters, digits, '_', '-', '.' or ':', starting with a letter or digit.",
            argument=argument,
        )


def nested(inner: str, outer: str) -> str:
    """Return what is wrong with a table in the folder of another one."""
    return f"{inner} lies in the folder of {outer}. A VACUUM of that table would delete its files."


def refuse_nested(**tables: str | None) -> None:
    """Refuse a table in the folder of another one: a VACUUM of that one would delete its files.

    :raises InvalidConfiguration: names both
    """
    uris = {role: f"{canonical_uri(table)}/" for role, table in tables.items() if table is not None}
    for inner, outer in permutations(uris, 2):
        if uris[inner].startswith(uris[outer]) and uris[inner] != uris[outer]:
            raise InvalidConfiguration(
                nested(f"{inner} {uris[inner].rstrip('/')}", f"{outer} {uris[outer].rstrip('/')}"),
                remedy=OUTSIDE,
                argument=inner,
            )


def refuse_root(**tables: str | None) -> None:
    """Refuse a table at the root of a bucket: its quarantine and other tables lie beside it.

    :raises InvalidConfiguration: names it
    """
    for role, table in tables.items():
        if table is not None and at_root(canonical_uri(table)):
            raise InvalidConfiguration(
                f"The {role} {table} is a whole bucket or container. Its quarantine, and other tables beside "
                "it, would be other buckets.",
                remedy=f"give it a folder: {table.rstrip('/')}/{role}.",
                argument=role,
            )


def refuse_same(**tables: str | None) -> None:
    """Refuse the same table in two roles.

    :raises InvalidConfiguration: names both
    """
    seen: dict[str, str] = {}
    for role, table in tables.items():
        if table is None:
            continue
        uri = canonical_uri(table)
        if uri in seen:
            raise InvalidConfiguration(
                f"{seen[uri]} and {role} are the same table, {uri}.",
                remedy="name two different tables.",
                argument=seen[uri],
            )
        seen[uri] = role


# -- a range, and what a run does ---------------------------------------------------------------
def bounds_rules(o: Bounds) -> Iterator[Rule]:
    """Yield the rules of the ends of a range. Delta does not always refuse a version and a time for one end.

    :raises InvalidConfiguration: a time is not ISO 8601 with an offset
    """
    for end, which in (("starting", "first"), ("ending", "last")):
        names = (f"{end}_version", f"{end}_timestamp")
        yield Rule(
            all(getattr(o, name) is not None for name in names),
            names[0],
            f"{' and '.join(f'{name} {getattr(o, name)}' for name in names)} are both given",
            "set only one of the two.",
            f"leave one of them empty: both set the {which} version.",
        )
    for kind in ("version", "timestamp"):
        names = (f"starting_{kind}", f"ending_{kind}")
        first, last = (getattr(o, name) for name in names)
        moments = [
            epoch_ms(name, value) if isinstance(value, str) else value
            for name, value in zip(names, (first, last), strict=True)
        ]
        yield Rule(
            None not in moments and moments[0] > moments[1],
            names[1],
            f"{names[1]} {last} lies before {names[0]} {first}",
            "exchange them, or leave one of them out: both ends are inclusive.",
            "exchange them, or leave one of them empty.",
        )


def mode_rules(r: RunOptions) -> Iterator[Rule]:
    """Yield the rules of a mode, its range, its limits and its keys."""
    bounds = [name for name in BOUNDS if getattr(r, name) is not None]
    starts = [name for name in bounds if name.startswith("starting")]
    limits = [name for name in SIZE_LIMITS if getattr(r, name) is not None]
    keys = [name for name in ("repair_keys", "repair_quarantined") if getattr(r, name) not in (None, False)]
    yield Rule(
        r.mode != "repair" and bool(keys),
        "mode",
        f"{' and '.join(keys)} and mode {r.mode!r} are given",
        "set mode to 'repair', or leave repair out.",
        "choose mode repair, or leave it empty.",
    )
    if r.mode == "repair":
        yield from _selections(keys, bounds, starts)
    if r.mode in ONWARDS:
        return
    yield Rule(
        r.mode == "interval" and not _is_interval(r),
        "mode",
        "mode is 'interval', which needs a starting and a later ending timestamp, and no other bound",
        "set starting_timestamp and ending_timestamp, and no version.",
    )
    yield Rule(
        bool(limits),
        "".join(limits[:1]),
        f"{', '.join(limits)} and mode {r.mode!r} are given",
        "leave them out: this mode makes one commit.",
        "leave it empty: this mode makes one commit.",
    )
    yield Rule(
        r.staging is not None,
        "staging",
        f"staging and mode {r.mode!r} are given",
        "leave staging out: this mode reads the source, not a staged batch.",
    )
    yield Rule(
        r.mode == "reload" and bool(starts),
        "mode",
        f"{' and '.join(starts)} and mode 'reload' are given",
        "leave the start out: a reload compares all keys. Mode 'repair' compares those of a range.",
        "leave the start empty; or choose mode repair, which computes the keys of a range again.",
    )


def _selections(keys: list[str], bounds: list[str], starts: list[str]) -> Iterator[Rule]:
    """Yield the rules of what a repair computes again: a range, or keys; these may have a start, from which
    their history is computed again."""
    has_range = bounds and (not keys or bounds != starts)
    selections = [*keys, *(["a range"] if has_range else [])]
    yield Rule(
        not selections,
        "mode",
        "mode is 'repair', and nothing selects the keys",
        "set starting_version, and optionally ending_version, to repair the keys that they changed; or set "
        "keys in repair; or set quarantined in repair.",
        "fill in a first version; or fill in repair_keys; or choose repair_quarantined.",
    )
    yield Rule(
        len(selections) > 1,
        "mode",
        f"mode is 'repair', and {' and '.join(selections)} are given",
        "give one of them: each selects the keys. Beside keys, a history can have a start alone.",
        "fill in one of them: each selects the keys.",
    )
    yield Rule(
        bool(bounds) and not starts,
        "mode",
        "mode is 'repair', and the range has no start",
        "set starting_version, or starting_timestamp; without an end, the range ends at the watermark.",
        "fill in the first version, or its time; without an end, the range ends at the watermark.",
    )


def _is_interval(r: RunOptions) -> bool:
    start, end = r.starting_timestamp, r.ending_timestamp
    if start is None or end is None or r.starting_version is not None or r.ending_version is not None:
        return False
    return epoch_ms("starting_timestamp", start) < epoch_ms("ending_timestamp", end)


def _first_runs(r: ApplyRequest) -> Iterator[Rule]:
    """Yield the rules of a takeover, of the first load, and of staging, whose batches are applied whole."""
    yield Rule(
        r.take_over_from == r.pipeline,
        "take_over_from",
        f"take_over_from is {r.take_over_from}, the pipeline's own name",
        "name the pipeline that built the target, or leave take_over_from out.",
    )
    if r.staging is None:
        return
    yield Rule(
        r.initial_load != "snapshot",
        "initial_load",
        f"initial_load {r.initial_load!r} and staging are both given",
        "the first batch of a staging table is a snapshot; leave initial_load out.",
    )
    yield Rule(
        r.options.source_kind not in (None, "change_feed"),
        "staging",
        f"staging and source_kind {r.options.source_kind!r} are given",
        "leave staging out: a staging table only holds changes of source_kind 'change_feed'.",
    )
    yield Rule(
        r.take_over_from is not None,
        "staging",
        "staging and take_over_from are given",
        "run once without staging to take over the target, then with it.",
    )
    bounds = [name for name in (*BOUNDS, *SIZE_LIMITS) if getattr(r, name) is not None]
    yield Rule(
        bool(bounds),
        "staging",
        f"staging and {', '.join(bounds)} are given",
        "set bounds in the read (DeltaReadChangesOperator): an apply takes a whole batch.",
    )


def _shadows(r: ApplyRequest) -> Iterator[Rule]:
    """Yield the rules of a shadow that need no other pipeline; a configuration checks those of both."""
    for argument in ("shadow_of", "shadowed_by"):
        for name, target in getattr(r, argument).items():
            check_pipeline(name, argument)
            yield Rule(
                name == r.pipeline,
                argument,
                f"{argument} is {name}, the pipeline's own name",
                "name the other pipeline, or leave it out.",
            )
            yield Rule(
                not target,
                argument,
                f"{argument} is {name}, without a target",
                f"give a mapping: {{'{name}': '<its target>'}}.",
            )
            yield Rule(
                bool(target) and same_table(target, r.target),
                argument,
                f"{argument} names the target of this pipeline, {r.target}",
                "give each of the two pipelines its own target.",
            )
    yield Rule(
        len(r.shadow_of) > 1,
        "shadow_of",
        f"shadow_of names {len(r.shadow_of)} pipelines",
        "name one.",
    )
    yield Rule(
        bool(r.shadow_of and r.shadowed_by),
        "shadow_of",
        "shadow_of and shadowed_by are given",
        "let both pipelines shadow the original: a shadow cannot have a shadow.",
    )


def same_table(one: str, other: str) -> bool:
    """Return whether two texts name one table, as far as that is known without a catalog."""
    return known_as(one) == known_as(other)


def known_as(table: str) -> str:
    """Return the location of a table, or its name if only a catalog knows the location."""
    try:
        return canonical_uri(table)
    except TableNameUnresolved:
        return table.strip()


def _modes(r: ApplyRequest) -> Iterator[Rule]:
    """Yield the rules of a reset, which depend on the target."""
    yield Rule(
        r.mode != "reset" and r.discard_history,
        "discard_history",
        f"discard_history is given with mode {r.mode!r}",
        "leave it out: only mode 'reset' discards history.",
    )
    yield Rule(
        r.mode == "reset" and r.options.stored_as_scd_type == 2 and not r.discard_history,
        "mode",
        "mode is 'reset', which would delete the history of a target of SCD type 2",
        "set discard_history to delete it; or use mode 'reload', which keeps it; or build the new target "
        "beside the old one (shadow_of, docs/howto/shadow.md).",
    )
    yield Rule(
        r.mode == "reset" and r.sets_baseline,
        "mode",
        f"mode is 'reset' and initial_load is {r.initial_load!r}",
        "leave one of them out: a reset deletes the rows of the target, and this initial_load keeps them.",
    )


def _repaired_keys(r: ApplyRequest) -> Iterator[Rule]:
    """Yield the rules of what compares rows by key, or with a copy."""
    by_key = [f"mode {r.mode!r}"] if r.mode in ("repair", "reload") else []
    by_key += [f"{name} 'reload'" for name in _RELOADS if getattr(r, name) == "reload"]
    by_key += ["on_drift 'repair'"] if r.on_drift == "repair" else []
    yield Rule(
        r.options.insert_only and bool(by_key),
        "insert_only",
        f"insert_only and {', '.join(by_key)} are given",
        "set keys and remove insert_only, because rows are compared by key, for a target beside the old one "
        "(shadow_of, docs/howto/shadow.md). Or use mode 'reset'.",
    )
    keys = r.mode == "repair" and (r.repair_keys is not None or r.repair_quarantined)
    starts = [name for name in ("starting_version", "starting_timestamp") if getattr(r, name) is not None]
    from_changes = r.options.stored_as_scd_type == 2 and not r.options.takes_events
    yield Rule(
        keys and bool(starts) and not from_changes,
        "".join(starts[:1]),
        f"{' and '.join(starts)} and keys to repair are given",
        "leave the start out: only a history of a change feed is computed from changes since a start.",
    )
    yield Rule(
        r.allow_empty and r.options.source_kind != "snapshot",
        "allow_empty",
        f"allow_empty is given with source_kind {r.options.source_kind!r}",
        "leave it out: it only applies to source_kind 'snapshot'.",
    )


# -- the rows of a target -----------------------------------------------------------------------
def _pairs(o: ApplyOptions) -> Iterator[Rule]:
    for first, second in _PAIRS:
        both_given = getattr(o, first) is not None and getattr(o, second) is not None
        yield Rule(both_given, first, f"{first} and {second} are both given", "give one of them.")


def _events(o: ApplyOptions) -> Iterator[Rule]:
    """Yield the rules of a pipeline that appends events to a change log.

    Its log keeps every change of every column. What decides about the rows of a table belongs to the pipeline
    that applies the log, because only this one sees the events of all sources.
    """
    if not o.writes_events:
        return
    for is_given, argument, value in (
        (o.stored_as_scd_type == 2, "stored_as_scd_type", "stored_as_scd_type 2"),
        (o.keeps_deleted, "delete_mode", f"delete_mode {o.delete_mode!r}"),
        (bool(o.rules), "rules", "rules"),
        (o.publish_changes, "publish_changes", "publish_changes"),
        (o.is_partial, "ignore_null_updates", "columns_to_update or ignore-null"),
    ):
        yield Rule(
            is_given,
            argument,
            f"{value} and target_kind 'change_log' are given",
            "give it to the pipeline that applies the log.",
        )
    yield Rule(
        o.insert_only,
        "insert_only",
        "insert_only and target_kind 'change_log' are given",
        "give keys and drop insert_only: events have a key.",
    )
    yield Rule(
        o.apply_as_truncates is not None,
        "apply_as_truncates",
        "apply_as_truncates and target_kind 'change_log' are given",
        "leave it out: a truncate of one source would delete the rows of all others.",
    )
    yield Rule(
        o.on_late != "fail",
        "on_late",
        f"on_late is {o.on_late!r} with target_kind 'change_log'",
        "give it to the pipeline that applies the log.",
    )
    yield Rule(
        o.snapshot_version_column is not None,
        "snapshot_version_column",
        "snapshot_version_column and target_kind 'change_log' are given",
        "leave it out: each version of the source must be a copy.",
    )
    # A log has no repair that would take such rows out of a quarantine.
    yield Rule(
        o.on_invalid == "quarantine",
        "on_invalid",
        "on_invalid is 'quarantine' with target_kind 'change_log'",
        "leave rows without key or sequence out with where, or leave on_invalid out.",
    )
    yield Rule(
        o.schema_evolution in FOLLOWED and o.schema_evolution not in FOLLOWED_BY_LOGS,
        "schema_evolution",
        f"schema_evolution {o.schema_evolution!r} and target_kind 'change_log' are given",
        "use 'widen', or leave it out: older events keep a dropped column, and NULL in newer ones would "
        "replace values in the target.",
    )
    yield Rule(
        bool(o.partition_by),
        "partition_by",
        "partition_by and target_kind 'change_log' are given",
        "use cluster_by.",
    )
    for name in (*TIMES, "row_hash_column"):
        yield Rule(
            getattr(o, name) is not None,
            name,
            f"{name} and target_kind 'change_log' are given",
            "give it to the pipeline that applies the log: these are columns of rows, not of events.",
        )


def _event_runs(r: ApplyRequest) -> Iterator[Rule]:
    """Yield the rules of what a run can do with a change log: append to it."""
    if r.once:
        again = [f"mode {r.mode!r}"] if not r.goes_on else []
        again += ["staging"] if r.staging is not None else []
        # Its first commit says that it is done, so this must be the only one.
        again += ["initial_load"] if r.initial_load != "snapshot" else []
        yield Rule(
            bool(again),
            "once",
            f"once and {' and '.join(again)} are given",
            "leave once out, or the others: it loads the newest version in one commit.",
        )
    if not r.options.writes_events:
        return
    yield Rule(
        not r.goes_on,
        "mode",
        f"mode is {r.mode!r} with target_kind 'change_log'",
        "leave it out: a log keeps its events. Repair the target of the pipeline that applies the log.",
    )
    yield Rule(
        r.staging is not None,
        "staging",
        "staging and target_kind 'change_log' are given",
        "leave staging out.",
    )
    reloads = [f"{name} 'reload'" for name in _RELOADS if getattr(r, name) == "reload"]
    reloads += ["on_drift 'repair'"] if r.on_drift == "repair" else []
    yield Rule(
        bool(reloads),
        reloads[0].split()[0] if reloads else "",
        f"{' and '.join(reloads)} and target_kind 'change_log' are given",
        "leave it out: a reload compares rows, and a log has events. To load all sources again, move the log "
        "and the target away, and run.",
    )
    limits = [name for name in ("max_deleted", "max_changed") if getattr(r, name) is not None]
    yield Rule(
        bool(limits),
        "".join(limits[:1]),
        f"{' and '.join(limits)} and target_kind 'change_log' are given",
        "give it to the pipeline that applies the log, which changes rows.",
    )
    yield Rule(
        bool(r.shadow_of or r.shadowed_by),
        "shadow_of",
        "shadow_of or shadowed_by and target_kind 'change_log' are given",
        "leave it out: only targets with rows are compared.",
    )


def _keys(o: ApplyOptions) -> Iterator[Rule]:
    yield Rule(
        not o.keys and not o.insert_only,
        "keys",
        "keys are missing",
        "name the key columns, or set insert_only for a source of inserts.",
    )
    if not o.insert_only:
        return
    yield Rule(
        bool(o.keys),
        "insert_only",
        "insert_only and keys are given",
        "leave keys out, because every row is appended; or drop insert_only.",
    )
    yield Rule(
        o.stored_as_scd_type == 2,
        "insert_only",
        "insert_only is given with SCD type 2",
        "set stored_as_scd_type to 1: inserts alone make no history.",
    )
    yield Rule(
        o.source_kind not in (None, "change_feed"),
        "insert_only",
        f"insert_only is given with source_kind {o.source_kind!r}",
        "leave source_kind out: the inserts of any table are appended; or give keys and drop insert_only.",
    )
    for name in _BY_KEY:
        has_value = getattr(o, name) not in (None, False)
        yield Rule(
            has_value,
            "insert_only",
            f"insert_only and {name} are both given",
            f"give keys and drop insert_only, or drop {name}.",
        )
    yield Rule(
        o.keeps_deleted or o.quarantines,
        "insert_only",
        f"insert_only is given with delete_mode {o.delete_mode if o.keeps_deleted else 'soft'!r}, or with a "
        "quarantine",
        "give keys and drop insert_only, which neither deletes rows nor checks keys.",
    )


def _kinds(o: ApplyOptions) -> Iterator[Rule]:
    log = o.source_kind == "change_log"
    only = "leave it out: it only applies to source_kind 'change_log'."
    yield Rule(
        not log and o.apply_as_truncates is not None,
        "apply_as_truncates",
        "apply_as_truncates is given without a change log",
        only,
    )
    yield Rule(
        not log and o.on_conflict != "fail",
        "on_conflict",
        f"on_conflict is {o.on_conflict!r} without a change log",
        only,
    )
    yield Rule(
        not log and o.on_late != "fail",
        "on_late",
        f"on_late is {o.on_late!r} without a change log",
        only,
    )
    yield Rule(
        o.source_kind != "snapshot" and o.snapshot_version_column is not None,
        "snapshot_version_column",
        f"snapshot_version_column is given with source_kind {o.source_kind!r}",
        "it names the version of periodic full copies: set source_kind to 'snapshot', or leave it out.",
    )


def _sequences(o: ApplyOptions) -> Iterator[Rule]:
    has_sequence = o.sequence_by != ApplyOptions.sequence_by
    if o.source_kind == "change_log":
        arrival = any(_ARRIVAL.search(text) for text in o.sequences)
        yield Rule(
            has_sequence and arrival,
            "sequence_by",
            f"sequence_by is {o.sequence_by!r}, the time when an event arrived",
            "name a column that orders the events in their source: events may arrive late or twice.",
        )
        remedy = "leave it out: in a change log, a delete is an event with its own sequence."
        yield Rule(
            o.delete_sequence is not None,
            "delete_sequence",
            "delete_sequence is given with a change log",
            remedy,
        )
    elif o.snapshot_version_column is not None:
        yield Rule(
            has_sequence or o.delete_sequence is not None,
            "sequence_by" if has_sequence else "delete_sequence",
            "sequence_by or delete_sequence is given with snapshot_version_column",
            "leave both out: the versions of the snapshots define the order.",
        )
    elif o.stored_as_scd_type == 1 and not o.writes_events:
        yield Rule(
            has_sequence,
            "sequence_by",
            "sequence_by is given with SCD type 1",
            "leave it out: the commit version orders the changes of a table.",
        )
        yield _only_type_2(o.delete_sequence is not None, "delete_sequence")
    else:
        yield Rule(
            not set(o.sequences) <= {COMMIT_VERSION, COMMIT_TIMESTAMP}
            and not (o.delete_sequence or "").strip(),
            "sequence_by",
            f"sequence_by is the expression {o.sequence_by!r} and delete_sequence is missing",
            "set delete_sequence (to _commit_timestamp, if it fits): a deleted row has only its old values.",
        )


def _deletes(o: ApplyOptions) -> Iterator[Rule]:
    yield Rule(
        o.delete_mode == "soft" and o.stored_as_scd_type == 2 and o.snapshot_version_column is not None,
        "delete_mode",
        "delete_mode is 'soft' with SCD type 2 and snapshot_version_column",
        "set delete_mode to 'new_version': with 'soft', a row no longer shows which copies had it.",
    )
    yield Rule(
        o.delete_mode == "new_version" and o.stored_as_scd_type == 1,
        "delete_mode",
        "delete_mode is 'new_version' with SCD type 1",
        "set stored_as_scd_type to 2; or delete_mode to 'soft', which keeps the row and marks it.",
    )


def _columns(o: ApplyOptions) -> Iterator[Rule]:
    yield Rule(
        o.column_list is not None and not o.column_list,
        "column_list",
        "column_list is empty",
        "name the columns of the target, or leave it out for all of them.",
    )
    left_out = sorted(_lowered(o.keys) & _lowered(o.except_column_list or ()))
    yield Rule(
        bool(left_out),
        "except_column_list",
        f"except_column_list names the key {', '.join(left_out)}",
        "leave keys out of it: the target needs them.",
    )
    current = (o.current_column or "").lower()
    existing = [
        name for name, expression in o.partition_by.items() if expression is None and name.lower() != current
    ]
    for option_name, names in (
        ("track_history_column_list", o.track_history_column_list or ()),
        ("partition_by", existing),
    ):
        not_landing = [name for name in names if not _lands(o, name)]
        yield Rule(
            bool(not_landing),
            option_name,
            f"{option_name} names {', '.join(not_landing)}, which the target does not get",
            f"correct column_list or except_column_list, or remove it from {option_name}.",
        )


def _partial(o: ApplyOptions) -> Iterator[Rule]:
    nulls = o.ignore_null_updates or any(getattr(o, name) is not None for name in NULL_LISTS)
    yield Rule(
        nulls and o.columns_to_update is not None,
        "columns_to_update",
        "columns_to_update and ignore-null are both given",
        "give one of them: columns_to_update names an event's columns, ignore-null infers them.",
    )


def _values(o: ApplyOptions) -> Iterator[Rule]:
    # Such an event has NULL where the row keeps its value, so a check of the event would test another row.
    yield Rule(
        bool(o.rules) and o.is_partial,
        "rules",
        "rules and events with only some of the columns (columns_to_update or ignore-null) are given",
        "leave rules out, and add a CHECK constraint to the target: Delta tests the rows that are written.",
    )


def _history(o: ApplyOptions) -> Iterator[Rule]:
    for name in TRACKED_LISTS:
        yield _only_type_2(o.stored_as_scd_type == 1 and getattr(o, name) is not None, name)
    for name in OF_END:
        yield _only_type_2(o.stored_as_scd_type == 1 and getattr(o, name) is not None, name)
    for name in TIMES:
        yield Rule(
            o.stored_as_scd_type == 2 and getattr(o, name) is not None,
            name,
            f"{name} is given with SCD type 2",
            "leave it out: the start columns of a key's rows are these times. Set sequence_by to a time.",
        )
    yield from _added_names(o)
    yield Rule(
        o.end_value is not None and len(o.sequences) > 1,
        "end_value",
        "end_value is given with a sequence_by of several expressions",
        "leave it out: only a single value has a literal. Or give sequence_by one expression.",
    )


def _added_names(o: ApplyOptions) -> Iterator[Rule]:
    """Yield a rule for each two columns that the engine adds."""
    naming = (*(NAMING if o.stored_as_scd_type == 2 else TIMES), "row_hash_column")
    names = {name: getattr(o, name) for name in naming if getattr(o, name) is not None}
    if o.keeps_deleted:
        names["delete_mode"] = DELETED_COLUMN
    for (one, column), (other, other_column) in combinations(names.items(), 2):
        problem = f"{one} and {other} are both {column!r}"
        if other == "delete_mode":
            problem = f"{one} is {column!r}, the name of the column that delete_mode {o.delete_mode!r} adds"
        yield Rule(column.lower() == other_column.lower(), one, problem, "give them different names.")


def _layout(o: ApplyOptions) -> Iterator[Rule]:
    yield Rule(
        bool(o.partition_by and o.cluster_by),
        "partition_by",
        "partition_by and cluster_by are both given",
        "give one of them: Delta clusters or partitions a table, not both.",
    )
    clustering = o.cluster_by or ()
    yield Rule(
        len(clustering) > 4,
        "cluster_by",
        f"cluster_by names {len(clustering)} columns",
        "name at most four: Delta allows no more.",
    )
    yield Rule(
        o.current_column is not None and o.current_column.lower() in _lowered(clustering),
        "cluster_by",
        f"cluster_by names the column {o.current_column!r} of current_column",
        "name it in partition_by: Delta clusters by no BOOLEAN column.",
    )
    yield Rule(
        _RETENTION in o.target_properties,
        "target_properties",
        f"target_properties sets {_RETENTION}",
        "leave it out: Delta would delete the transactions that make each commit happen exactly once.",
    )


def _only_type_2(is_broken: bool, name: str) -> Rule:
    problem = f"{name} is given with SCD type 1"
    return Rule(is_broken, name, problem, "leave it out: it only applies to type 2.")


def _lands(o: ApplyOptions, name: str) -> bool:
    if name.lower() in _lowered(o.keys):
        return True
    if o.column_list is not None:
        return name.lower() in _lowered(o.column_list)
    return name.lower() not in _lowered(o.except_column_list or ())


def _lowered(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


# -- a query, and an ingest ---------------------------------------------------------------------
def query_rules(o: QueryOptions) -> Iterator[Rule]:
    """Yield the rules of a change query that hold for every table.

    The planner checks ``min_delta`` without keys: where row tracking is the read method of the whole range,
    row ids replace keys.
    """
    yield Rule(
        o.raw and o.query != "full_delta",
        "raw",
        f"raw is given with query={o.query!r}",
        "leave raw out: it only applies to full_delta.",
    )
    yield Rule(
        o.raw and (o.where is not None or bool(o.select)),
        "raw",
        "raw is given with where or select",
        "leave where and select out, and filter the result: raw returns the feed's rows unchanged.",
    )
    yield Rule(
        o.raw and o.method not in ("auto", "change_files"),
        "raw",
        f"raw is given with method={o.method!r}",
        "leave raw or method out: only the change feed has raw rows.",
    )
    yield from _shapes(o)
    yield Rule(
        o.query == "upsert" and not o.keys,
        "query",
        "query='upsert' is given without keys",
        "name the key columns.",
    )
    yield Rule(
        o.where is not None and not o.keys,
        "where",
        "where is given without keys",
        "name the key columns, which show that a row left the filter.",
    )


def _shapes(o: QueryOptions) -> Iterator[Rule]:
    """Yield the rules of the options that change which rows and columns a query returns."""
    yield Rule(
        o.wide and o.query not in ("full_delta", "min_delta"),
        "wide",
        f"wide is given with query={o.query!r}, which returns no old rows",
        "use query full_delta or min_delta, or leave wide out.",
    )
    yield Rule(
        o.only_surviving and o.query != "append_only",
        "only_surviving",
        f"only_surviving is given with query={o.query!r}",
        "leave it out: it only applies to append_only.",
    )
    yield Rule(
        o.only_surviving and o.on_change_commit == "skip",
        "only_surviving",
        "only_surviving is given with on_change_commit 'skip', which leaves out the deletes of rows",
        "leave one of them out.",
    )
    yield Rule(
        o.wide and o.on_change_commit == "skip",
        "wide",
        "wide is given with on_change_commit 'skip', which leaves out the deletes of rows",
        "leave one of them out.",
    )
    yield Rule(
        o.on_change_commit == "skip" and o.method != "added_files",
        "on_change_commit",
        f"on_change_commit is 'skip', and method={o.method!r} reads the commits that remove rows",
        "set method to 'added_files', which can skip them; or leave on_change_commit out.",
    )
    for name in ("wide", "row_ids"):
        yield Rule(
            o.raw and getattr(o, name),
            name,
            f"raw and {name} are given",
            "give one of them: raw returns exactly the rows and columns of the change feed.",
        )
    yield Rule(
        o.row_ids and o.method not in ("auto", "row_tracking"),
        "row_ids",
        f"row_ids is given with method={o.method!r}, which gives no row ids",
        "leave method at auto, or set it to row_tracking.",
    )


def _skipped_commits(r: ReadRequest) -> Iterator[Rule]:
    yield Rule(
        r.target is not None and r.options.on_change_commit == "skip",
        "on_change_commit",
        "on_change_commit is 'skip', and a target is given, which would lack the skipped changes",
        "remove on_change_commit, or read without a target, for your own sink.",
    )


def _records(r: IngestRequest) -> Iterator[Rule]:
    """Yield the rules of the source of an ingest."""
    kafka = r.is_kafka
    kind = "a topic" if kafka else "files"
    yield Rule(
        (r.options.source_kind == "kafka") != kafka,
        "source",
        f"the source {r.source} is {kind}, and source_kind is {r.options.source_kind!r}",
        "leave source_kind out: the source determines it.",
    )
    names = _FILES_ONLY if kafka else ("max_offsets",)
    names_given = [name for name in names if getattr(r, name) not in (None, False)]
    names_given += ["kafka_options"] if not kafka and r.kafka_options else []
    yield Rule(
        bool(names_given),
        "".join(names_given[:1]),
        f"{', '.join(names_given)} and a source of {kind} are given",
        f"max_offsets and kafka_options are for a topic; {', '.join(_FILES_ONLY)} for files.",
    )
    bounds = [name for name in (*LIMITS_OF_A_BATCH, "starting_timestamp") if getattr(r, name) is not None]
    yield Rule(
        r.replay and bool(bounds),
        "replay",
        f"replay and {', '.join(bounds)} are given",
        "leave them out: a replay reads all records in quarantine.",
    )


def _ingest_options(o: IngestOptions) -> Iterator[Rule]:
    """Yield the rules of the options of an ingest."""
    yield Rule(
        o.insert_only and bool(o.keys),
        "insert_only",
        "insert_only and keys are given",
        "leave keys out, because every record becomes a new row; or drop insert_only.",
    )
    yield Rule(
        not o.insert_only and not o.keys,
        "keys",
        "keys are missing",
        "name the columns that identify a row; or set insert_only where every record is a new row.",
    )
    yield Rule(
        o.source_kind == "kafka" and o.format not in ("json", "avro"),
        "format",
        f"the format of a topic is {o.format!r}",
        "use 'json', or 'avro'.",
    )
    yield Rule(
        feed_on(o.log_properties),
        "log_properties",
        "log_properties turn the change data feed of the log on",
        "leave it out: a log is append-only, so its readers need no change data feed.",
    )
