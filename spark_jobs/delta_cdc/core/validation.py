"""Checks without any I/O, and checks that need only the source's columns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import adapters, column_lists
from delta_cdc.core.codec import encoded
from delta_cdc.core.errors import ColumnNotFound, ConfigurationDrift, InvalidConfiguration, ReservedColumnName
from delta_cdc.core.option import options_in
from delta_cdc.core.options import COLUMN_LISTS, NULL_LISTS, TRACKED_LISTS, ApplyOptions, IngestOptions
from delta_cdc.core.reserved_columns import METADATA_COLUMNS, NAMING, SPARSE, TIMES
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.core.value_rules import recorded_rules
from delta_cdc.core.watermark import MAX_SEAL_BYTES, SEAL_ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.watermark import Seal


def check_columns(options: ApplyOptions, columns: tuple[str, ...], table: str, version: int) -> None:
    """Refuse reserved column names in the source, and option columns that the source lacks.

    With ``select``, only Spark knows the columns written to the target; it checks them there.

    :raises ReservedColumnName: the source has a column that the feed or the target needs
    :raises ColumnNotFound: a column that an option names is missing
    """
    check_feed_columns(columns, table, version)
    existing = {name.lower() for name in columns}
    added: tuple[str, ...] = ()
    if not options.select:
        added = tuple(options.added_columns)
        for name, option in options.added_columns.items():
            if name.lower() in existing:
                raise _reserved(name, table, version, f"{_FREES[option]}, or leave it out with select")
    for option, names, computed in _named_columns(options, added):
        for name in names or ():
            # For a leaf field, check the column that holds it; a column's own name may also contain dots.
            holder = name.split(".")[0] if option in NULL_LISTS else name
            if existing.isdisjoint((name.lower(), holder.lower())) and name.lower() not in computed:
                raise ColumnNotFound(
                    f"The column {name} of {option} does not exist in version {version} of {table}, which "
                    f"has {', '.join(columns)}.",
                    remedy=f"{column_lists.did_you_mean([name], columns)}correct {option}.",
                )


#: What gives a column of the source its name back, by the option that adds a column of that name.
_FREES = {
    "delete_mode": "set delete_mode to 'hard', rename the column with select",
    **dict.fromkeys(("start_column", "end_column"), "set start_column and end_column to other names"),
    **{name: f"set {name} to another name" for name in ("current_column", *TIMES, "row_hash_column")},
}


def _named_columns(
    options: ApplyOptions, added: tuple[str, ...]
) -> Iterator[tuple[str, Iterable[str] | None, Collection[str]]]:
    """Yield an option, the columns that it names, and the allowed names besides the source's."""
    yield "columns_to_update", _as_tuple(options.columns_to_update), ()
    yield "on_conflict", options.last_by, ()
    yield "snapshot_version_column", _as_tuple(options.snapshot_version_column), ()
    if options.select:
        return
    partitions = options.partition_by
    derived = {name.lower() for name, sql in partitions.items() if sql is not None}
    yield "keys", options.keys, derived
    yield "column_list", options.column_list, ()
    yield "except_column_list", options.except_column_list, ()
    yield "track_history_column_list", options.track_history_column_list, ()
    yield "track_history_except_column_list", options.track_history_except_column_list, ()
    for name in NULL_LISTS:
        yield name, getattr(options, name), ()
    current = _as_tuple(options.current_column)
    yield (
        "partition_by",
        [name for name, sql in partitions.items() if sql is None],
        [name.lower() for name in current],
    )
    yield "cluster_by", options.cluster_by, {*derived, *(name.lower() for name in added)}


def _as_tuple(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


def check_feed_columns(columns: Iterable[str], table: str, version: int) -> None:
    """Refuse a source with a column of the change feed, or with our prefix."""
    for name in columns:
        if name.lower() in METADATA_COLUMNS or name.lower().startswith(PLAN_PREFIX):
            raise _reserved(name, table, version, "rename it in the source")


# -- the options that a seal records ------------------------------------------------------------
_HISTORY_COLUMNS = tuple(name for name in NAMING if name not in SPARSE)
_NULLS = "ignore_null_updates"
_NULLS_OPTIONS = (*NULL_LISTS, _NULLS)
_RULES = "rules"
#: Options that a seal records in a form of their own.
_OWN_FORM = ("stored_as_scd_type", *TRACKED_LISTS, *_HISTORY_COLUMNS, *SPARSE)
_OF_TARGETS = {
    name: one for name, one in options_in(ApplyOptions).items() if one.recorded not in (None, "log")
}
#: Options that a target's seal records under their own name.
_RECORDED = tuple(name for name in _OF_TARGETS if name not in _OWN_FORM)
#: Options that a user may change, by their names in a seal: rows keep their columns and identity.
_ACCEPTABLE = {"tracked", *(name for name, one in _OF_TARGETS.items() if one.recorded == "changeable")}
#: Options of an ingest that a change log's seal records.
_OF_INGEST = ("source_kind", *(name for name, one in options_in(IngestOptions).items() if one.recorded))


def described(options: ApplyOptions) -> dict[str, Any]:
    """Return a target's options in the form in which its seal records them, as JSON values."""
    columns = _HISTORY_COLUMNS if options.stored_as_scd_type == 2 else ()
    return {
        "scd_type": options.stored_as_scd_type,
        "tracked": {
            name: encoded(getattr(options, option))
            for name, option in zip(("include", "except"), TRACKED_LISTS, strict=True)
        },
        **{name: encoded(getattr(options, name)) for name in (*_RECORDED, *columns)},
        **{name: getattr(options, name) for name in SPARSE if getattr(options, name) is not None},
    }


def options_of(seal: Seal) -> ApplyOptions:
    """Return the options that a target was built with.

    An option that its seal does not record has its default: the release that wrote it did not have it.
    """
    recorded = seal.state.configuration
    tracked = recorded.get("tracked") or {}
    return ApplyOptions(
        stored_as_scd_type=recorded.get("scd_type", 1),
        insert_only=not recorded.get("keys"),
        track_history_column_list=_as_tuple_if_list(tracked.get("include")),
        track_history_except_column_list=_as_tuple_if_list(tracked.get("except")),
        rules=recorded_rules(recorded.get(_RULES)),
        **_read(recorded, (*(name for name in _RECORDED if name != _RULES), *_HISTORY_COLUMNS, *SPARSE)),
    )


def described_ingest(options: IngestOptions) -> dict[str, Any]:
    """Return a change log's options in the form in which its seal records them, as JSON values."""
    return {name: encoded(getattr(options, name)) for name in _OF_INGEST}


def ingest_options_of(seal: Seal) -> IngestOptions | None:
    """Return the options of a change log's last ingest; None if its seal does not record them."""
    recorded = seal.state.configuration.get("ingest")
    return IngestOptions(**_read(recorded, _OF_INGEST)) if isinstance(recorded, dict) else None


def check_order_drift(
    seal: Seal, options: IngestOptions, log: str, on_drift: str = "fail"
) -> tuple[str, ...]:
    """Refuse an ingest whose events other values order than those in its log: the two cannot be compared.

    An apply would take each later change of a known key for an older one, or each older one for a later.

    :param seal: the newest of the pipeline in the log
    :return: the accepted change, as a sentence
    :raises ConfigurationDrift: names both orders, and the possible remedies
    """
    before = ingest_options_of(seal)
    if before is None or before.insert_only or options.insert_only:
        return ()
    old, new = (adapters.order_of(one.adapter, one.adapter_options) for one in (before, options))
    if old is None or new is None:
        return ()
    names = [name for name in {**old, **new} if _spelled(old.get(name)) != _spelled(new.get(name))]
    if not names:
        return ()
    given, recorded = (", ".join(f"{name} = {_shown(one.get(name))}" for name in names) for one in (new, old))
    text = (
        f"The events of the change log {log} are in the order of {recorded}, and now {given} is given "
        f"(pipeline {seal.pipeline}, seal {seal.number})."
    )
    if on_drift == "accept":
        return (f"{text} It is accepted (on_drift).",)
    raise ConfigurationDrift(
        f"{text} Sequences of the two cannot be compared, so newer changes could count as older ones.",
        remedy="go back to the recorded value; or ingest all input into a new log and a new target; or, if "
        "the log has no events yet, or the new values sort after the old ones, as those of a renamed column, "
        'set on_drift to "accept" for one run.',
    )


def _shown(value: Any) -> str:
    """Return what orders events, for people."""
    if isinstance(value, list | tuple):
        return f"({', '.join(map(str, value))})"
    return "the adapter's default" if value is None else str(value)


def _spelled(value: Any) -> Any:
    """Return what orders events without what does not matter: white space, and the case of names."""
    if isinstance(value, list | tuple):
        return tuple(map(_spelled, value))
    return " ".join(value.split()).lower() if isinstance(value, str) else value


def _read(recorded: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: _as_tuple_if_list(recorded[name]) for name in names if name in recorded}


def _as_tuple_if_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def check_seal(pipeline: str, places: Sequence[str], configuration: Mapping[str, Any]) -> None:
    """Refuse options that are too long for a seal, before anything is computed.

    :param places: the locations that the seal names
    :param configuration: the part of the seal's content that a plan knows
    :raises InvalidConfiguration: names the longest parts
    """
    size = len(json.dumps([*places, configuration])) + SEAL_ROOM_BYTES
    if size <= MAX_SEAL_BYTES:
        return
    parts = {**configuration, **configuration.get("options", {})}
    sizes = {name: len(json.dumps(value)) for name, value in parts.items() if name != "options"}
    longest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    raise InvalidConfiguration(
        f"The options of pipeline {pipeline} are too long: every commit carries them in its seal, which "
        f"would take up to {size} bytes, and has room for {MAX_SEAL_BYTES}. The longest are "
        f"{', '.join(f'{name} {sizes[name]}' for name in longest)}.",
        remedy="shorten them: name the columns to leave out instead of those to take, and have long "
        "expressions and mappings computed as columns of the source.",
    )


def check_seal_of_apply(spec: ApplySpec) -> None:
    """Refuse an apply whose seals cannot hold its options; see :func:`check_seal`.

    A seal without rows copies the previous seal's content.
    """
    columns = [step.source_columns for step in spec.steps if step.read.has_rows]
    if columns:
        configuration = {**described(spec.options), **described_columns(spec.options, columns[-1], ())}
        check_seal(spec.pipeline, (spec.source_uri, spec.run_id), configuration)


# -- drift --------------------------------------------------------------------------------------
def drifts(
    seal: Seal, options: ApplyOptions, target: str, source: Iterable[column_lists.Path] | None = None
) -> dict[str, str]:
    """Return the options that differ from those that the target was built with.

    Order, case and white space don't count.

    Two lists of columns are equal if they select the same set of the columns that the source had when the
    seal was made and still has: the target's rows contain no column added later. For the sequence, the engine
    compares the type.

    :param source: leaf fields of the source's columns now
        (:func:`delta_cdc.delta_log.schema_changes.leaf_paths`); None if unknown: then the seal's columns
        count, or without these the text of the lists
    :return: by the option's name in the seal, a sentence with both values
    """
    was = options_of(seal)
    before, now = _compared_options(was), _compared_options(options)
    texts = {
        name: f"The target {target} was built with {_stated(name, before[name])}, and now "
        f"{_stated(name, value)} is given (pipeline {seal.pipeline}, seal {seal.number})."
        for name, value in now.items()
        if name in before and comparable(name, before[name]) != comparable(name, value)
    }
    same = _same_sets(seal, was, options, source) if texts else set()
    return {name: text for name, text in texts.items() if name not in same}


def _compared_options(options: ApplyOptions) -> dict[str, Any]:
    """Return the recorded options that are compared: all but the expressions of the sequence."""
    has_list = any(getattr(options, name) is not None for name in NULL_LISTS)
    options = replace(options, ignore_null_updates=options.ignore_null_updates or has_list)
    shown = {name for name, one in _OF_TARGETS.items() if one.recorded == "shown"}
    compared = {name: value for name, value in described(options).items() if name not in shown}
    compared |= {name: getattr(options, name) for name in SPARSE}
    # Last: a list says more than the flag, which it implies.
    compared[_NULLS] = compared.pop(_NULLS)
    return compared


#: In a seal: the source's columns, and the untracked columns, which the sequence reads.
_SOURCE_COLUMNS, _SEQUENCE_COLUMNS = "source_columns", "sequence_columns"
#: The maximum bytes of column names in a seal; for a wider source the current columns count.
_MOST_OF_COLUMNS = 16 * 1024


def described_columns(
    options: ApplyOptions, source: Sequence[str], untracked: Sequence[str]
) -> dict[str, list[str]]:
    """Return a seal's record of the columns, from which a later run computes the sets of the column lists.

    :param source: the columns of the source
    :param untracked: columns written to the target that are not keys and make no new version
    """
    columns: dict[str, list[str]] = {}
    if len(json.dumps(list(source))) <= _MOST_OF_COLUMNS:
        columns[_SOURCE_COLUMNS] = list(source)
    is_default = all(getattr(options, name) is None for name in TRACKED_LISTS)
    if options.stored_as_scd_type == 2 and is_default:
        # Spark computed them from the expression.
        columns[_SEQUENCE_COLUMNS] = list(untracked)
    return columns


def source_columns_of(seal: Seal) -> tuple[str, ...]:
    """Return the columns that the source had at a seal; () if they were too many to record."""
    return tuple(seal.state.configuration.get(_SOURCE_COLUMNS) or ())


def _same_sets(
    seal: Seal, built_with: ApplyOptions, options: ApplyOptions, source: Iterable[column_lists.Path] | None
) -> set[str]:
    """Return the options whose sets are, or may be, those that the target was built with."""
    recorded = seal.state.configuration
    columns = {name.lower() for name in recorded.get(_SOURCE_COLUMNS) or ()}
    paths = [(name,) for name in columns] if source is None else list(source)
    # Use only columns that the source had at that time; all columns if it has no such column any more.
    paths = [path for path in paths if path[0].lower() in columns] or paths
    if not paths:
        return set()
    before, now = column_lists.landing(built_with, paths), column_lists.landing(options, paths)
    if before is None or now is None:
        # Only Spark knows the columns: an include list and an except list cannot be compared.
        return {
            name
            for names, lists in (
                (COLUMN_LISTS, COLUMN_LISTS),
                (("tracked",), TRACKED_LISTS),
                (_NULLS_OPTIONS, NULL_LISTS),
            )
            if any(
                (getattr(built_with, list_name) is None) != (getattr(options, list_name) is None)
                for list_name in lists
            )
            for name in names
        }
    sequences = recorded.get(_SEQUENCE_COLUMNS)
    tracked = column_lists.tracked(built_with, before, sequences).may_be(column_lists.tracked(options, now))
    nulls = column_lists.keeping_nulls(built_with, before).may_be(column_lists.keeping_nulls(options, now))
    return {
        *(("select", *COLUMN_LISTS) if before.values == now.values else ()),
        *(("tracked",) if tracked else ()),
        *(_NULLS_OPTIONS if nulls else ()),
    }


def check_drift(
    seal: Seal,
    options: ApplyOptions,
    target: str,
    on_drift: str = "fail",
    source: Iterable[column_lists.Path] | None = None,
) -> tuple[str, ...]:
    """Refuse options that differ from those the target was built with, unless they may change.

    :param on_drift: ``accept`` or ``repair``: new options hold from now on, if rows can keep their shape
    :param source: see :func:`drifts`
    :return: the accepted changes, one sentence each
    :raises ConfigurationDrift: an option differs; names both values, and the possible remedies
    """
    changes = drifts(seal, options, target, source)
    for name, text in changes.items():
        if on_drift == "fail" or name not in _ACCEPTABLE:
            raise ConfigurationDrift(text, remedy=_drift_remedy(name, options))
    if on_drift == "repair" and changes and needs_history(options):
        raise ConfigurationDrift(
            f"{next(iter(changes.values()))} A reload cannot compute past history again.",
            remedy='set on_drift in policies to "accept", and compute the past again with mode="repair" and '
            "a starting_version that the source's feed still holds.",
        )
    return tuple(f"{text} It is accepted (on_drift)." for text in changes.values())


def needs_history(options: ApplyOptions) -> bool:
    """Return whether past rows cannot be computed from the current source: type 2 without a change log."""
    return options.stored_as_scd_type == 2 and not options.takes_events


#: Where a remedy that names a new target explains it.
BESIDE = "shadow_of, docs/howto/shadow.md"


def _drift_remedy(name: str, options: ApplyOptions) -> str:
    new = f"build the new target beside the old one ({BESIDE})"
    if name not in _ACCEPTABLE:
        return f'go back to the recorded value, {new}, or replace the target\'s rows with mode="reset".'
    again = "repair" if needs_history(options) else "reload"
    # After acceptance it is no longer drift, so only the mode computes the other rows again.
    accept = f'set on_drift in policies to "accept" (existing rows stay until a run with mode="{again}")'
    repair = "" if needs_history(options) else ' or to "repair" (the next run computes them again)'
    return f"go back to the recorded value; or {accept}{repair}; or {new}."


def _is_sql(name: str) -> bool:
    """Return whether a recorded option has SQL expressions."""
    return name in _OF_TARGETS and _OF_TARGETS[name].kind.is_sql


def comparable(name: str, value: object) -> Hashable:
    """Return an option's recorded value for a comparison, usable as a dict key.

    The comparison ignores the white space of expressions, and the order and case of columns; a value of the
    target's rows is compared as it is.
    """
    if isinstance(value, dict):
        return frozenset((key.lower(), comparable(name, entry)) for key, entry in value.items())
    if isinstance(value, list):
        entries = [comparable(name, entry) for entry in value]
        return tuple(entries) if _is_sql(name) else frozenset(entries)
    if isinstance(value, str) and name != "end_value":
        return " ".join(value.split()) if _is_sql(name) else value.lower()
    return value


def _stated(name: str, value: object) -> str:
    return f"{name} = {'nothing' if name in SPARSE and value is None else _value_text(value)}"


def _value_text(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"include", "except"}:
        return ", ".join(f"{key} {_value_text(entry)}" for key, entry in value.items())
    if isinstance(value, dict):
        entries = (
            name if expression is None else f"{name}: {expression}" for name, expression in value.items()
        )
        return f"({', '.join(entries)})"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(str, value))})"
    return "all" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _reserved(name: str, table: str, version: int, remedy: str) -> ReservedColumnName:
    return ReservedColumnName(
        f"The column {name} in version {version} of {table} has a reserved name.",
        remedy=f"{remedy}.",
    )
