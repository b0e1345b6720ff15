"""Checks without any I/O, and checks that need only the source's columns."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core import column_lists
from delta_cdc.core.errors import ColumnNotFound, ConfigurationDrift, InvalidConfiguration, ReservedColumnName
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.core.spec import DELETED_COLUMN, ApplyOptions, IngestOptions, QueryOptions, StateStep
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.core.watermark import MAX_SEAL_BYTES, SEAL_ROOM_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.watermark import Seal

_PIPELINE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:\-]{0,199}\Z")


def check_pipeline(pipeline: str, argument: str = "pipeline") -> None:
    """Refuse a pipeline name that would be ambiguous in a log or a file name."""
    if not _PIPELINE.match(pipeline or ""):
        raise InvalidConfiguration(
            f"The pipeline name {pipeline!r} cannot be used.",
            remedy="use 1 to 200 letters, digits, '_', '-', '.' or ':', starting with a letter or digit.",
            argument=argument,
        )


def check_versions(starting: int | None, ending: int | None) -> None:
    """Refuse bounds that describe no range."""
    if starting is not None and ending is not None and ending < starting:
        raise invalid(
            f"ending_version {ending} lies before starting_version {starting}",
            "both ends are inclusive.",
            "ending_version",
        )


def check_query(options: QueryOptions) -> None:
    """Refuse a change query that is invalid for every table.

    The planner checks ``min_delta`` without keys: where row tracking is the read method of the whole range,
    row ids replace keys.

    :raises InvalidConfiguration: names the arguments
    """
    if options.raw:
        _check_raw(options)
    if options.query == "upsert" and not options.keys:
        raise invalid("query='upsert' is given without keys", "name the key columns.", "query")
    if options.where is not None and not options.keys:
        raise invalid(
            "where is given without keys",
            "name the key columns: they tell a row that leaves the filter from one that never was in it.",
            "where",
        )


def _check_raw(options: QueryOptions) -> None:
    rules = (
        (
            options.query != "full_delta",
            f"query={options.query!r}",
            "it only has a meaning for full_delta.",
        ),
        (
            options.where is not None or bool(options.select),
            "where or select",
            "raw rows are those of the change feed; filter the result.",
        ),
        (
            options.capture not in ("auto", "change_files"),
            f"capture={options.capture!r}",
            "raw rows only exist in the change feed.",
        ),
    )
    for refused, what, remedy in rules:
        if refused:
            raise invalid(f"raw is given with {what}", remedy, "raw")


def check_columns(options: ApplyOptions, columns: tuple[str, ...], table: str, version: int) -> None:
    """Refuse reserved column names in the source, and option columns that the source lacks.

    With ``select``, only Spark knows the columns written to the target; it checks them there.

    :raises ReservedColumnName: the source has a column that the feed or the target needs
    :raises ColumnNotFound: a column that an option names is missing
    """
    check_feed_columns(columns, table, version)
    known = {name.lower() for name in columns}
    for what, names in _source_columns(options):
        _refuse_missing(what, names, known, columns, table, version)
    if options.select:
        return
    added = _added(options)
    for name in added:
        if name.lower() in known:
            remedy = "set start_column and end_column to other names"
            if options.stored_as_scd_type == 1:
                remedy = "rename it with select, or leave it out by delete_mode 'hard'"
            raise _reserved(name, table, version, remedy)
    for what, names in _named_columns(options):
        extra = {name.lower() for name in _extra(what, options, added)}
        _refuse_missing(what, names, known | extra, columns, table, version)


def _added(options: ApplyOptions) -> tuple[str, ...]:
    """Return the columns that the target has in addition to the source's."""
    if options.stored_as_scd_type == 2:
        return (options.start_column, options.end_column)
    return (DELETED_COLUMN,) if options.delete_mode == "soft" else ()


def _refuse_missing(
    what: str, names: tuple[str, ...], known: set[str], columns: tuple[str, ...], table: str, version: int
) -> None:
    for name in names:
        # For a leaf field, check the column that holds it; a column's own name may also contain dots.
        if name.lower() in known or (what == _NULLS and name.split(".")[0].lower() in known):
            continue
        raise ColumnNotFound(
            f"The {what} column {name} does not exist in version {version} of {table}, which has "
            f"{', '.join(columns)}.",
            remedy=f"correct the {what} columns.",
        )


def check_feed_columns(columns: Iterable[str], table: str, version: int) -> None:
    """Refuse a source with a column of the change feed, or with our prefix."""
    for name in columns:
        if name.lower() in METADATA_COLUMNS or name.lower().startswith(PLAN_PREFIX):
            raise _reserved(name, table, version, "rename it in the source")


# -- drift --------------------------------------------------------------------------------------
#: Options that a target's seal records about its rows. A seal of an older release lacks some of them; the
#: later ones then had their defaults.
_EARLY = ("where", "select", "partition_by")
_LATER = (
    "source_kind",
    "column_list",
    "except_column_list",
    "ignore_null_updates_column_list",
    "ignore_null_updates_except_column_list",
    "ignore_null_updates",
    "columns_to_update",
    "delete_mode",
    "apply_as_deletes",
    "apply_as_truncates",
    "snapshot_version_column",
)
_WRITTEN = (*_EARLY, *_LATER)
#: Recorded for people; another expression of the same type is not drift.
_SEQUENCES = ("sequence_by", "delete_sequence")
#: Options that may change from now on: rows keep their shape and identity.
_ACCEPTABLE = {
    "tracked",
    "where",
    "select",
    "column_list",
    "except_column_list",
    "ignore_null_updates",
    "ignore_null_updates_column_list",
    "ignore_null_updates_except_column_list",
    "columns_to_update",
    "apply_as_deletes",
    "apply_as_truncates",
}


def described(options: ApplyOptions) -> dict[str, Any]:
    """Return what a target's seal records about its options, as JSON values."""
    return {
        "keys": list(options.keys),
        "scd_type": options.stored_as_scd_type,
        "tracked": {
            "include": _listed(options.track_history_column_list),
            "except": _listed(options.track_history_except_column_list),
        },
        **{name: _listed(getattr(options, name)) for name in _SEQUENCES},
        **{name: _listed(getattr(options, name)) for name in _WRITTEN},
        **_history_columns(options),
    }


def _history_columns(options: ApplyOptions) -> dict[str, str]:
    if options.stored_as_scd_type == 1:
        return {}
    return {"start_column": options.start_column, "end_column": options.end_column}


def _listed(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, dict) else value


def check_seal(pipeline: str, places: Sequence[str], configuration: Mapping[str, Any]) -> None:
    """Refuse options that are too long for a seal, before anything is computed.

    :param places: the locations that the seal names
    :param configuration: the seal's content, as far as a plan knows it
    :raises InvalidConfiguration: names the longest parts
    """
    parts = {**configuration, **configuration.get("options", {})}
    sizes = {name: len(json.dumps(value)) for name, value in parts.items() if name != "options"}
    size = len(json.dumps([*places, configuration])) + SEAL_ROOM_BYTES
    if size <= MAX_SEAL_BYTES:
        return
    longest = sorted(sizes, key=lambda name: -sizes[name])[:3]
    told = ", ".join(f"{name} {sizes[name]}" for name in longest)
    raise InvalidConfiguration(
        f"The options of pipeline {pipeline} are too long: every commit carries them in its seal, which "
        f"would take up to {size} bytes, and has room for {MAX_SEAL_BYTES}. The longest are {told}.",
        remedy="shorten them: name the columns to leave out in the place of those to take, and have long "
        "expressions and mappings computed as columns of the source.",
    )


def check_seal_of_apply(spec: ApplySpec) -> None:
    """Refuse an apply whose seals cannot hold its options; see :func:`check_seal`.

    A seal without rows copies the previous seal's content.
    """
    columns = [step.source_columns for step in spec.steps if not isinstance(step, StateStep)]
    for told in columns[-1:]:
        configuration = {**described(spec.options), **described_columns(spec.options, told, ())}
        check_seal(spec.pipeline, (spec.source_uri, spec.run_id), configuration)


def options_of(seal: Seal) -> ApplyOptions:
    """Return the options a target was built with, as far as its seal records them."""
    written = seal.state.configuration
    tracked = written.get("tracked") or {}
    options = ApplyOptions(
        keys=tuple(written.get("keys") or ()),
        stored_as_scd_type=written.get("scd_type", 1),
        insert_only=not written.get("keys"),
        track_history_column_list=_tupled(tracked.get("include")),
        track_history_except_column_list=_tupled(tracked.get("except")),
    )
    if written.get("source_kind") == "change_log":
        options = replace(options, sequence_by=column_lists.UNTOLD)
    names = (*_WRITTEN, *_SEQUENCES, "start_column", "end_column")
    known = {name: _tupled(written[name]) for name in names if name in written}
    return replace(options, **known)


def is_untold(options: ApplyOptions) -> bool:
    """Return whether events have an order that their target's seal does not record."""
    return column_lists.UNTOLD in options.sequences


#: What a change log's seal records about its ingest.
_INGEST = (
    "source_kind",
    "format",
    "adapter",
    "adapter_options",
    "keys",
    "schema",
    "format_options",
    "insert_only",
    "on_invalid",
)


def described_ingest(options: IngestOptions) -> dict[str, Any]:
    """Return what a change log's seal records about its options, as JSON values."""
    return {name: _listed(getattr(options, name)) for name in _INGEST}


def ingest_options_of(seal: Seal) -> IngestOptions | None:
    """Return the options of a change log's last ingest; None if its seal does not record them."""
    written = seal.state.configuration.get("ingest")
    if not isinstance(written, dict):
        return None
    return IngestOptions(**{name: _tupled(written[name]) for name in _INGEST if name in written})


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Drift:
    """An option whose value differs from the one that the target was built with.

    :param name: its name in the seal
    :param text: a sentence with both values
    """

    name: str
    text: str


def drifts(
    seal: Seal, options: ApplyOptions, target: str, source: Iterable[column_lists.Path] | None = None
) -> tuple[Drift, ...]:
    """Return the options that differ from the target's; order, case and white space don't count.

    Lists of columns are compared by the sets that they select, over the columns that the source had when the
    seal was made and still has: the target's rows contain no column added later. For the sequence, the engine
    compares the type.

    :param source: leaf fields of the source's columns now
        (:func:`delta_cdc.delta_log.schema_changes.leaf_paths`); None if unknown: then the seal's columns
        count, and without them the written lists
    """
    written, found = seal.state.configuration, []
    defaults = described(ApplyOptions())
    for name, value in described(options).items():
        if name in _SEQUENCES or (name not in written and name not in _LATER):
            continue
        was = written.get(name, defaults.get(name))
        if name == "ignore_null_updates":
            # A list also turns it on.
            was, value = (bool(v) or _has_list(of) for v, of in ((was, written), (value, described(options))))
        alike = _ALIKE.get(name, _comparable)
        if alike(was) != alike(value):
            text = (
                f"The target {target} was built with {name} = {_shown(was)}, and now {name} = "
                f"{_shown(value)} is given (pipeline {seal.pipeline}, seal {seal.number})."
            )
            found.append(Drift(name, text))
    same = _same(seal, options, source) if found else set()
    return tuple(drift for drift in found if drift.name not in same)


#: In a seal: the source's columns, and the untracked columns, which the sequence reads.
_SOURCE_COLUMNS, _SEQUENCE_COLUMNS = "source_columns", "sequence_columns"
#: The maximum bytes of column names in a seal; for a wider source the current columns count.
_MOST_OF_COLUMNS = 16 * 1024
_TRACKED = {"tracked"}
_LANDING = {"select", "column_list", "except_column_list"}
_NULL_SETS = {
    "ignore_null_updates",
    "ignore_null_updates_column_list",
    "ignore_null_updates_except_column_list",
}


def described_columns(
    options: ApplyOptions, source: Sequence[str], untracked: Sequence[str]
) -> dict[str, list[str]]:
    """Return what a seal records about columns, so that a later run knows what the column lists meant.

    :param source: the columns of the source
    :param untracked: columns written to the target that are not keys and make no new version
    """
    found: dict[str, list[str]] = {}
    if len(json.dumps(list(source))) <= _MOST_OF_COLUMNS:
        found[_SOURCE_COLUMNS] = list(source)
    is_default = options.track_history_column_list is options.track_history_except_column_list is None
    if options.stored_as_scd_type == 2 and is_default:
        # Spark found them from the expression.
        found[_SEQUENCE_COLUMNS] = list(untracked)
    return found


def _same(seal: Seal, options: ApplyOptions, source: Iterable[column_lists.Path] | None) -> set[str]:
    """Return the options whose sets are, or may be, those that the target was built with."""
    paths, was = _known_paths(seal, source), _was(seal, options)
    if paths is None:
        return set()
    before, now = column_lists.landing(was, paths), column_lists.landing(options, paths)
    if before is None or now is None:
        # Only Spark knows the columns: an include list and an except list cannot be compared.
        return _spelled_otherwise(was, options)
    sequences = seal.state.configuration.get(_SEQUENCE_COLUMNS)
    same = set(_LANDING) if before.values == now.values else set()
    if column_lists.tracked(was, before, sequences).may_be(column_lists.tracked(options, now)):
        same |= _TRACKED
    if column_lists.keeping_nulls(was, before).may_be(column_lists.keeping_nulls(options, now)):
        same |= _NULL_SETS
    return same


def _known_paths(seal: Seal, source: Iterable[column_lists.Path] | None) -> list[column_lists.Path] | None:
    """Return the columns over which lists are compared; None if they are unknown."""
    told = seal.state.configuration.get(_SOURCE_COLUMNS)
    if source is None:
        return None if told is None else [(name,) for name in told]
    now = list(source)
    known = {name.lower() for name in told or ()}
    return [path for path in now if path[0].lower() in known] or now


def _was(seal: Seal, options: ApplyOptions) -> ApplyOptions:
    """Return the options a target was built with; where an old seal records none, the current ones."""
    was = options_of(seal)
    if "select" not in seal.state.configuration:
        was = replace(was, select=options.select)
    return was if "sequence_by" in seal.state.configuration else replace(was, sequence_by=column_lists.UNTOLD)


def _spelled_otherwise(was: ApplyOptions, now: ApplyOptions) -> set[str]:
    """Return the options that now define a set in another way: include list, except list, or no list."""

    def kind(options: ApplyOptions, *names: str) -> list[bool]:
        return [getattr(options, name) is None for name in names]

    found: set[str] = set()
    tracked = ("track_history_column_list", "track_history_except_column_list")
    for group, names in (
        (_TRACKED, tracked),
        (_LANDING - {"select"}, tuple(_LANDING - {"select"})),
        (_NULL_SETS, tuple(_NULL_SETS - {"ignore_null_updates"})),
    ):
        if kind(was, *names) != kind(now, *names):
            found |= group
    return found


def _has_list(given: Mapping[str, Any]) -> bool:
    lists = ("ignore_null_updates_column_list", "ignore_null_updates_except_column_list")
    return any(given.get(name) is not None for name in lists)


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
    :raises ConfigurationDrift: names both values, and the possible remedies
    """
    found = drifts(seal, options, target, source)
    for drift in found:
        if on_drift == "fail" or drift.name not in _ACCEPTABLE:
            raise ConfigurationDrift(drift.text, remedy=_ways_out(drift, options))
    if on_drift == "repair" and found and needs_history(options):
        raise ConfigurationDrift(
            f"{found[0].text} A reload cannot cut history that was written before anew.",
            remedy='set on_drift to "accept", and compute the past again with mode="repair" and a '
            "starting_version that the source's feed still holds.",
        )
    return tuple(f"{drift.text} It is accepted (on_drift)." for drift in found)


def needs_history(options: ApplyOptions) -> bool:
    """Return whether past rows cannot be computed from the current source: type 2 without a change log."""
    return options.stored_as_scd_type == 2 and not options.takes_events


def _ways_out(drift: Drift, options: ApplyOptions) -> str:
    new = "load a new target under a new pipeline name"
    if drift.name not in _ACCEPTABLE:
        return f'go back to what it was built with, {new}, or throw what is there away with mode="reset".'
    # Once accepted it is no longer drift, so only the mode brings the other rows up to date.
    again = 'mode="repair"' if needs_history(options) else 'mode="reload"'
    at_once = "" if needs_history(options) else ', or "repair", which does so at once'
    return (
        'go back to what it was built with; or set on_drift="accept", by which rows that are there stay as '
        f"they are until {again} computes them again{at_once}; or {new}."
    )


def _source_columns(options: ApplyOptions) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("columns_to_update", _one(options.columns_to_update)),
        ("on_conflict", options.last_by),
        ("snapshot version", _one(options.snapshot_version_column)),
    ]


def _one(name: str | None) -> tuple[str, ...]:
    return () if name is None else (name,)


_NULLS = "ignore-null"


def _named_columns(options: ApplyOptions) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("key", options.keys),
        ("landing", options.column_list or ()),
        ("left out", options.except_column_list or ()),
        ("tracked", options.track_history_column_list or ()),
        ("tracked", options.track_history_except_column_list or ()),
        (_NULLS, options.ignore_null_updates_column_list or ()),
        (_NULLS, options.ignore_null_updates_except_column_list or ()),
        (
            "partition",
            tuple(name for name, made in options.partition_by.items() if made is None),
        ),
        ("clustering", options.cluster_by or ()),
    ]


def _extra(what: str, options: ApplyOptions, added: tuple[str, ...]) -> tuple[str, ...]:
    made = tuple(name for name, expression in options.partition_by.items() if expression is not None)
    return (*added, *made) if what == "clustering" else ()


def comparable(options: ApplyOptions, name: str) -> object:
    """Return an option's value in a form for comparison, usable as a dict key."""
    return _ALIKE.get(name, _comparable)(described(options)[name])


def _comparable(value: object) -> object:
    if isinstance(value, dict):
        return frozenset((key, _comparable(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return frozenset(str(entry).lower() for entry in value)
    return value


def _text(value: object) -> object:
    """Normalise expressions, but keep order and case, which may be significant."""
    if isinstance(value, dict):
        return frozenset((str(key).lower(), _text(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return tuple(_text(entry) for entry in value)
    return " ".join(value.split()) if isinstance(value, str) else value


def _name(value: object) -> str:
    return str(value).lower()


_ALIKE: dict[str, Callable[[object], object]] = {
    "where": _text,
    "select": _text,
    "partition_by": _text,
    "apply_as_deletes": _text,
    "apply_as_truncates": _text,
    "columns_to_update": _name,
    "snapshot_version_column": _name,
    "start_column": _name,
    "end_column": _name,
}


def _shown(value: object) -> str:
    if isinstance(value, dict) and set(value) == {"include", "except"}:
        return ", ".join(f"{key} {_shown(entry)}" for key, entry in value.items())
    if isinstance(value, dict):
        entries = (name if made is None else f"{name}: {made}" for name, made in value.items())
        return f"({', '.join(entries)})"
    if isinstance(value, list | tuple):
        return f"({', '.join(map(str, value))})"
    return "all" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def invalid(what: str, remedy: str, argument: str | None = None) -> InvalidConfiguration:
    """Build the error for a configuration that cannot be used.

    :param what: a clause without a full stop
    :param remedy: a sentence
    :param argument: the first argument that is wrong
    """
    said = f"The configuration cannot be used: {what}."
    return InvalidConfiguration(said, remedy=remedy, argument=argument)


def _reserved(name: str, table: str, version: int, remedy: str) -> ReservedColumnName:
    return ReservedColumnName(
        f"The column {name} in version {version} of {table} has a reserved name.",
        remedy=f"{remedy}.",
    )
