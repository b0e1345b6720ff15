"""Which options of an apply go together; nothing is looked up for it.

Every rule is one line of a table: what is refused, what is said, and what to do. The first that holds is
raised.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, get_args

from delta_cdc.changes.feed import COMMIT_TIMESTAMP, COMMIT_VERSION
from delta_cdc.checks import invalid
from delta_cdc.spec import ApplyOptions, SourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    Rules = Iterator[tuple[bool, str, str]]

#: Of an event, when it arrived; of a state, when it was true.
_ARRIVAL = re.compile(rf"\b({COMMIT_VERSION}|{COMMIT_TIMESTAMP})\b", re.IGNORECASE)
_RETENTION = "delta.setTransactionRetentionDuration"
_NULL_LISTS = ("ignore_null_updates_column_list", "ignore_null_updates_except_column_list")
#: Options that hold names, each of which counts once.
_NAMED = (
    "keys",
    "column_list",
    "except_column_list",
    "track_history_column_list",
    "track_history_except_column_list",
    *_NULL_LISTS,
    "tie_order",
    "cluster_by",
)
_PAIRS = (
    ("column_list", "except_column_list"),
    ("track_history_column_list", "track_history_except_column_list"),
    _NULL_LISTS,
)
#: What only events, found and told apart by key, can have.
_BY_KEY = (
    "apply_as_deletes",
    "apply_as_truncates",
    "ignore_null_updates",
    *_NULL_LISTS,
    "columns_to_update",
    "delete_sequence",
    "snapshot_version_column",
)
_CHOICES: dict[str, tuple[str, ...]] = {
    "source_kind": get_args(SourceKind),
    "schema_evolution": ("additive", "none"),
    "on_tie": ("fail", "quarantine", "last_by"),
    "on_invalid": ("fail", "quarantine"),
    "on_late": ("fail", "discard"),
    "delete_mode": ("hard", "soft"),
}


def check_options(options: ApplyOptions) -> None:
    """Refuse options that don't go together.

    :raises InvalidConfiguration: names the arguments
    """
    for rules in (_values, _keys, _kinds, _sequences, _deletes, _columns, _partial, _history, _layout):
        for refused, what, remedy in rules(options):
            if refused:
                raise invalid(what, remedy)


def _values(o: ApplyOptions) -> Rules:
    for name, known in _CHOICES.items():
        value = getattr(o, name)
        yield value not in known, f"{name} is {value!r}", f"use one of {', '.join(known)}."
    yield o.stored_as_scd_type not in (1, 2), f"stored_as_scd_type is {o.stored_as_scd_type}", "use 1 or 2."
    for name in ("where", "apply_as_deletes", "apply_as_truncates", "columns_to_update"):
        value = getattr(o, name)
        yield value is not None and not value.strip(), f"{name} is empty", "leave it out, or give a value."
    blank = any(not projection.strip() for projection in o.select)
    yield blank, "select has an empty projection", "leave it out, or give an expression."
    for name in _NAMED:
        names = getattr(o, name) or ()
        yield _repeats(names), f"{name} names a column twice ({', '.join(names)})", "name each column once."
    for one, other in _PAIRS:
        both = getattr(o, one) is not None and getattr(o, other) is not None
        yield both, f"{one} and {other} are both given", "give one of them."


def _keys(o: ApplyOptions) -> Rules:
    yield (
        not o.keys and not o.insert_only,
        "keys are missing",
        "name the key columns, or set insert_only for a source of inserts.",
    )
    if not o.insert_only:
        return
    yield o.stored_as_scd_type == 2, "insert_only is given with SCD type 2", "inserts alone have no history."
    yield (
        o.source_kind != "change_feed",
        f"insert_only is given with source_kind {o.source_kind!r}",
        "leave source_kind out: the inserts of any table are appended; or give keys and drop insert_only.",
    )
    for name in _BY_KEY:
        given = getattr(o, name) not in (None, False)
        yield given, f"insert_only and {name} are both given", "give keys and drop insert_only, or drop it."
    yield (
        o.delete_mode == "soft" or o.quarantines,
        "insert_only is given with delete_mode 'soft', or with a quarantine",
        "give keys and drop insert_only: what is appended is neither deleted nor checked by key.",
    )


def _kinds(o: ApplyOptions) -> Rules:
    log = o.source_kind == "change_log"
    only = "it only has a meaning for source_kind 'change_log'."
    yield (
        not log and o.apply_as_truncates is not None,
        "apply_as_truncates is given without a change log",
        only,
    )
    yield not log and o.on_tie != "fail", f"on_tie is {o.on_tie!r} without a change log", only
    yield not log and o.on_late != "fail", f"on_late is {o.on_late!r} without a change log", only
    yield (
        (o.on_tie == "last_by") != bool(o.tie_order),
        f"on_tie is {o.on_tie!r} and its columns are {o.tie_order}",
        "write on_tie={'last_by': [<column>, ...]}.",
    )
    yield (
        o.source_kind != "snapshot" and o.snapshot_version_column is not None,
        f"snapshot_version_column is given with source_kind {o.source_kind!r}",
        "it names the version of periodic full copies: set source_kind to 'snapshot', or leave it out.",
    )
    yield (
        o.snapshot_version_column is not None and not o.snapshot_version_column.strip(),
        "snapshot_version_column is empty",
        "leave it out where each version of the table is a snapshot.",
    )


def _sequences(o: ApplyOptions) -> Rules:
    given = o.sequence_by != ApplyOptions.sequence_by
    yield (
        not o.sequences or not all(text.strip() for text in o.sequences),
        "sequence_by is empty",
        "leave it out for the commit version; of a change log, name what orders its events.",
    )
    if o.source_kind == "change_log":
        arrival = any(_ARRIVAL.search(text) for text in o.sequences)
        yield (
            not given,
            "sequence_by is missing",
            "name the column, or several, that order the events of the change log.",
        )
        yield (
            arrival,
            f"sequence_by is {o.sequence_by!r}, which is when an event arrived",
            "name what orders the events where they come from: they may arrive late and twice.",
        )
        told = "leave it out: a delete of a change log is an event with a sequence of its own."
        yield o.delete_sequence is not None, "delete_sequence is given with a change log", told
    elif o.snapshot_version_column is not None:
        yield (
            given or o.delete_sequence is not None,
            "sequence_by or delete_sequence is given with snapshot_version_column",
            "leave both out: the snapshots' own versions are the order.",
        )
    elif o.stored_as_scd_type == 1:
        yield (
            given,
            "sequence_by is given with SCD type 1",
            "leave it out: the order of a table's changes is its commit version.",
        )
        yield o.delete_sequence is not None, *_only_type_2("delete_sequence")
    else:
        yield (
            not set(o.sequences) <= {COMMIT_VERSION, COMMIT_TIMESTAMP}
            and not (o.delete_sequence or "").strip(),
            f"sequence_by is the expression {o.sequence_by!r} and delete_sequence is missing",
            "say when a delete happened: its row carries the values from before, so sequence_by cannot.",
        )


def _deletes(o: ApplyOptions) -> Rules:
    yield (
        o.delete_mode == "soft" and o.stored_as_scd_type == 2,
        "delete_mode is 'soft' with SCD type 2",
        "leave it out: type 2 keeps deleted rows, closed.",
    )


def _columns(o: ApplyOptions) -> Rules:
    yield (
        o.column_list is not None and not o.column_list,
        "column_list is empty",
        "name the columns that are to land, or leave it out for all of them.",
    )
    left_out = sorted(_lowered(o.keys) & _lowered(o.except_column_list or ()))
    yield bool(left_out), f"except_column_list names the key {', '.join(left_out)}", "keys always land."
    existing = [name for name, made in o.partition_by.items() if made is None]
    for what, names in (
        ("track_history_column_list", o.track_history_column_list or ()),
        ("partition_by", existing),
    ):
        lost = [name for name in names if not _lands(o, name)]
        yield (
            bool(lost),
            f"{what} names {', '.join(lost)}, which does not land",
            "let it land (column_list, except_column_list), or leave it out there.",
        )


def _partial(o: ApplyOptions) -> Rules:
    nulls = o.ignore_null_updates or any(getattr(o, name) is not None for name in _NULL_LISTS)
    yield (
        nulls and o.columns_to_update is not None,
        "columns_to_update and ignore-null are both given",
        "give one of them: the one names the columns that an event carries, the other guesses them.",
    )


def _history(o: ApplyOptions) -> Rules:
    for name in ("track_history_column_list", "track_history_except_column_list"):
        yield o.stored_as_scd_type == 1 and getattr(o, name) is not None, *_only_type_2(name)
    same = o.stored_as_scd_type == 2 and o.start_column.lower() == o.end_column.lower()
    yield same, f"start_column and end_column are both {o.start_column!r}", "name two columns."


def _layout(o: ApplyOptions) -> Rules:
    yield (
        bool(o.partition_by and o.cluster_by),
        "partition_by and cluster_by are both given",
        "Delta clusters or partitions, not both.",
    )
    clustering = o.cluster_by or ()
    yield len(clustering) > 4, f"cluster_by names {len(clustering)} columns", "Delta takes at most four."
    yield (
        _RETENTION in o.target_properties,
        f"target_properties sets {_RETENTION}",
        "leave it out: the target would forget which commits it holds.",
    )


def _only_type_2(name: str) -> tuple[str, str]:
    return f"{name} is given with SCD type 1", "it only has a meaning for type 2."


def _lands(o: ApplyOptions, name: str) -> bool:
    if name.lower() in _lowered(o.keys):
        return True
    if o.column_list is not None:
        return name.lower() in _lowered(o.column_list)
    return name.lower() not in _lowered(o.except_column_list or ())


def _lowered(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def _repeats(names: tuple[str, ...]) -> bool:
    return len(_lowered(names)) < len(names)
