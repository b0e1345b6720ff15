"""Which options of an apply can be combined; checked without any I/O.

Every rule is one row of a table: its condition, the wrong argument, the message, and the remedy. The first
rule whose condition is true raises an error. The option schema checks single options.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from delta_cdc.core.reserved_columns import COMMIT_TIMESTAMP, COMMIT_VERSION
from delta_cdc.core.spec import ApplyOptions
from delta_cdc.core.validation import invalid

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Rules = Iterator[tuple[bool, str, str, str]]

#: For an event, when it arrived; for a state, when it was valid.
_ARRIVAL = re.compile(rf"\b({COMMIT_VERSION}|{COMMIT_TIMESTAMP})\b", re.IGNORECASE)
_RETENTION = "delta.setTransactionRetentionDuration"
_NULL_LISTS = ("ignore_null_updates_column_list", "ignore_null_updates_except_column_list")
_PAIRS = (
    ("column_list", "except_column_list"),
    ("track_history_column_list", "track_history_except_column_list"),
    _NULL_LISTS,
)
#: Options only for events that have keys.
_BY_KEY = (
    "apply_as_deletes",
    "apply_as_truncates",
    "ignore_null_updates",
    *_NULL_LISTS,
    "columns_to_update",
    "delete_sequence",
    "snapshot_version_column",
)


def check_options(options: ApplyOptions) -> None:
    """Refuse options that cannot be combined.

    :raises InvalidConfiguration: names the arguments
    """
    for rules in (_values, _keys, _kinds, _sequences, _deletes, _columns, _partial, _history, _layout):
        for refused, argument, what, remedy in rules(options):
            if refused:
                raise invalid(what, remedy, argument)


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


def _values(o: ApplyOptions) -> Rules:
    for first, second in _PAIRS:
        both_given = getattr(o, first) is not None and getattr(o, second) is not None
        yield both_given, first, f"{first} and {second} are both given", "give one of them."


def _keys(o: ApplyOptions) -> Rules:
    yield (
        not o.keys and not o.insert_only,
        "keys",
        "keys are missing",
        "name the key columns, or set insert_only for a source of inserts.",
    )
    if not o.insert_only:
        return
    yield (
        o.stored_as_scd_type == 2,
        "insert_only",
        "insert_only is given with SCD type 2",
        "set stored_as_scd_type to 1: inserts alone make no history.",
    )
    yield (
        o.source_kind not in (None, "change_feed"),
        "insert_only",
        f"insert_only is given with source_kind {o.source_kind!r}",
        "leave source_kind out: the inserts of any table are appended; or give keys and drop insert_only.",
    )
    for name in _BY_KEY:
        has_value = getattr(o, name) not in (None, False)
        yield (
            has_value,
            "insert_only",
            f"insert_only and {name} are both given",
            f"give keys and drop insert_only, or drop {name}.",
        )
    yield (
        o.delete_mode == "soft" or o.quarantines,
        "insert_only",
        "insert_only is given with delete_mode 'soft', or with a quarantine",
        "give keys and drop insert_only, which neither deletes rows nor checks keys.",
    )


def _kinds(o: ApplyOptions) -> Rules:
    log = o.source_kind == "change_log"
    only = "leave it out: it only applies to source_kind 'change_log'."
    yield (
        not log and o.apply_as_truncates is not None,
        "apply_as_truncates",
        "apply_as_truncates is given without a change log",
        only,
    )
    yield (
        not log and o.on_conflict != "fail",
        "on_conflict",
        f"on_conflict is {o.on_conflict!r} without a change log",
        only,
    )
    yield not log and o.on_late != "fail", "on_late", f"on_late is {o.on_late!r} without a change log", only
    yield (
        o.source_kind != "snapshot" and o.snapshot_version_column is not None,
        "snapshot_version_column",
        f"snapshot_version_column is given with source_kind {o.source_kind!r}",
        "it names the version of periodic full copies: set source_kind to 'snapshot', or leave it out.",
    )


def _sequences(o: ApplyOptions) -> Rules:
    has_sequence = o.sequence_by != ApplyOptions.sequence_by
    if o.source_kind == "change_log":
        arrival = any(_ARRIVAL.search(text) for text in o.sequences)
        yield (
            has_sequence and arrival,
            "sequence_by",
            f"sequence_by is {o.sequence_by!r}, the time when an event arrived",
            "name a column that orders the events in their source: events may arrive late or twice.",
        )
        remedy = "leave it out: in a change log, a delete is an event with its own sequence."
        yield (
            o.delete_sequence is not None,
            "delete_sequence",
            "delete_sequence is given with a change log",
            remedy,
        )
    elif o.snapshot_version_column is not None:
        yield (
            has_sequence or o.delete_sequence is not None,
            "sequence_by" if has_sequence else "delete_sequence",
            "sequence_by or delete_sequence is given with snapshot_version_column",
            "leave both out: the versions of the snapshots define the order.",
        )
    elif o.stored_as_scd_type == 1:
        yield (
            has_sequence,
            "sequence_by",
            "sequence_by is given with SCD type 1",
            "leave it out: the commit version orders the changes of a table.",
        )
        yield o.delete_sequence is not None, *_only_type_2("delete_sequence")
    else:
        yield (
            not set(o.sequences) <= {COMMIT_VERSION, COMMIT_TIMESTAMP}
            and not (o.delete_sequence or "").strip(),
            "sequence_by",
            f"sequence_by is the expression {o.sequence_by!r} and delete_sequence is missing",
            "set delete_sequence (to _commit_timestamp, if it fits): a deleted row has only its old values.",
        )


def _deletes(o: ApplyOptions) -> Rules:
    yield (
        o.delete_mode == "soft" and o.stored_as_scd_type == 2,
        "delete_mode",
        "delete_mode is 'soft' with SCD type 2",
        "leave it out: type 2 closes deleted rows, and keeps them.",
    )


def _columns(o: ApplyOptions) -> Rules:
    yield (
        o.column_list is not None and not o.column_list,
        "column_list",
        "column_list is empty",
        "name the columns of the target, or leave it out for all of them.",
    )
    left_out = sorted(_lowered(o.keys) & _lowered(o.except_column_list or ()))
    yield (
        bool(left_out),
        "except_column_list",
        f"except_column_list names the key {', '.join(left_out)}",
        "leave keys out of it: the target needs them.",
    )
    existing = [name for name, expression in o.partition_by.items() if expression is None]
    for option_name, names in (
        ("track_history_column_list", o.track_history_column_list or ()),
        ("partition_by", existing),
    ):
        not_landing = [name for name in names if not _lands(o, name)]
        yield (
            bool(not_landing),
            option_name,
            f"{option_name} names {', '.join(not_landing)}, which the target does not get",
            f"correct column_list or except_column_list, or remove it from {option_name}.",
        )


def _partial(o: ApplyOptions) -> Rules:
    nulls = o.ignore_null_updates or any(getattr(o, name) is not None for name in _NULL_LISTS)
    yield (
        nulls and o.columns_to_update is not None,
        "columns_to_update",
        "columns_to_update and ignore-null are both given",
        "give one of them: columns_to_update names an event's columns, ignore-null infers them.",
    )


def _history(o: ApplyOptions) -> Rules:
    for name in ("track_history_column_list", "track_history_except_column_list"):
        yield o.stored_as_scd_type == 1 and getattr(o, name) is not None, *_only_type_2(name)
    same = o.stored_as_scd_type == 2 and o.start_column.lower() == o.end_column.lower()
    yield (
        same,
        "start_column",
        f"start_column and end_column are both {o.start_column!r}",
        "give them different names.",
    )


def _layout(o: ApplyOptions) -> Rules:
    yield (
        bool(o.partition_by and o.cluster_by),
        "partition_by",
        "partition_by and cluster_by are both given",
        "give one of them: Delta clusters or partitions a table, not both.",
    )
    clustering = o.cluster_by or ()
    yield (
        len(clustering) > 4,
        "cluster_by",
        f"cluster_by names {len(clustering)} columns",
        "name at most four: Delta allows no more.",
    )
    yield (
        _RETENTION in o.target_properties,
        "target_properties",
        f"target_properties sets {_RETENTION}",
        "leave it out: Delta would delete the transactions that make each commit happen exactly once.",
    )


def _only_type_2(name: str) -> tuple[str, str, str]:
    return name, f"{name} is given with SCD type 1", "leave it out: it only applies to type 2."


def _lands(o: ApplyOptions, name: str) -> bool:
    if name.lower() in _lowered(o.keys):
        return True
    if o.column_list is not None:
        return name.lower() in _lowered(o.column_list)
    return name.lower() not in _lowered(o.except_column_list or ())


def _lowered(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}
