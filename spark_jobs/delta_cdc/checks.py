"""What can be refused without any I/O, and what needs only the source's columns."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc import meaning
from delta_cdc.changes.feed import METADATA_COLUMNS
from delta_cdc.errors import (
    ColumnNotFound,
    ConfigurationDrift,
    InvalidConfiguration,
    ReservedColumnName,
)
from delta_cdc.spec import DELETED_COLUMN, ApplyOptions, Capture, IngestOptions, Query, QueryOptions
from delta_cdc.sql import PLAN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from delta_cdc.watermark import Seal

_PIPELINE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:\-]{0,199}\Z")


def check_pipeline(pipeline: str) -> None:
    """Refuse a pipeline name that could not be told apart in a log or a file name."""
    if not _PIPELINE.match(pipeline or ""):
        raise InvalidConfiguration(
            f"The pipeline name {pipeline!r} cannot be used.",
            remedy="use 1 to 200 letters, digits, '_', '-', '.' or ':', starting with a letter or digit.",
        )


def check_versions(starting: int | None, ending: int | None, max_versions: int | None) -> None:
    """Refuse bounds that name no range."""
    for name, value in (("starting_version", starting), ("ending_version", ending)):
        if value is not None and value < 0:
            raise invalid(f"{name} is {value}", "versions start at 0.")
    if starting is not None and ending is not None and ending < starting:
        raise invalid(
            f"ending_version {ending} lies before starting_version {starting}",
            "both ends are inclusive.",
        )
    if max_versions is not None and max_versions < 1:
        raise invalid(f"max_versions is {max_versions}", "give a number >= 1, or leave it out.")


def check_query(options: QueryOptions) -> None:
    """Refuse a change query that cannot be meant, whatever the table.

    ``min_delta`` without keys is left to the planner: where row tracking reads the whole range, row ids stand
    in for them.

    :raises InvalidConfiguration: names the arguments
    """
    for name, value, known in (
        ("query", options.query, get_args(Query)),
        ("capture", options.capture, get_args(Capture)),
        ("on_change_commit", options.on_change_commit, ("fail", "skip")),
    ):
        if value not in known:
            raise invalid(f"{name} is {value!r}", f"use one of {', '.join(known)}.")
    _refuse_repeated("keys", options.keys)
    _check_projection(options.where, options.select)
    if options.raw:
        _check_raw(options)
    if options.query == "upsert" and not options.keys:
        raise invalid("query='upsert' is given without keys", "name the key columns.")
    if options.where is not None and not options.keys:
        raise invalid(
            "where is given without keys",
            "name the key columns: they tell a row that leaves the filter from one that never was in it.",
        )


def _check_raw(options: QueryOptions) -> None:
    if options.query != "full_delta":
        raise invalid(f"raw is given with query={options.query!r}", "it only has a meaning for full_delta.")
    if options.where is not None or options.select:
        raise invalid(
            "raw is given with where or select", "raw rows are those of the change feed; filter the result."
        )
    if options.capture not in ("auto", "change_files"):
        raise invalid(
            f"raw is given with capture={options.capture!r}", "raw rows only exist in the change feed."
        )


def _check_projection(where: str | None, select: tuple[str, ...]) -> None:
    if where is not None and not where.strip():
        raise invalid("where is empty", "leave it out, or give a predicate.")
    if any(not projection.strip() for projection in select):
        raise invalid("select has an empty projection", "leave it out, or give an expression.")


def check_columns(options: ApplyOptions, columns: tuple[str, ...], table: str, version: int) -> None:
    """Refuse reserved names in the source, and names the source doesn't have.

    With ``select`` the columns that land are only known to Spark, which checks them there.

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
    """Return the columns of the target that are its own."""
    if options.stored_as_scd_type == 2:
        return (options.start_column, options.end_column)
    return (DELETED_COLUMN,) if options.delete_mode == "soft" else ()


def _refuse_missing(
    what: str, names: tuple[str, ...], known: set[str], columns: tuple[str, ...], table: str, version: int
) -> None:
    for name in names:
        # Of a leaf, the column that holds it; its own name may have dots, too.
        if name.lower() in known or (what == _NULLS and name.split(".")[0].lower() in known):
            continue
        raise ColumnNotFound(
            f"The {what} column {name} does not exist in version {version} of {table}, which has "
            f"{', '.join(columns)}.",
            remedy=f"correct the {what} columns.",
        )


def check_feed_columns(columns: Iterable[str], table: str, version: int) -> None:
    """Refuse a source that has a column of the change feed, or one with our prefix."""
    for name in columns:
        if name.lower() in METADATA_COLUMNS or name.lower().startswith(PLAN_PREFIX):
            raise _reserved(name, table, version, "rename it in the source")


# -- drift --------------------------------------------------------------------------------------
#: What a seal says of the rows of its target, by the names of the options. One of an older release lacks some
#: of them; then those that came later had their defaults.
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
#: Told for people; another expression of the same type is no drift.
_SEQUENCES = ("sequence_by", "delete_sequence")
#: Of these another value can hold from now on: rows keep the shape and the identity that they have.
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
    """Return what the seal of a target says of the options it was built with, as JSON has it."""
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


def options_of(seal: Seal) -> ApplyOptions:
    """Return the options a target was built with, as far as its seal tells."""
    written = seal.configuration
    tracked = written.get("tracked") or {}
    options = ApplyOptions(
        keys=tuple(written.get("keys") or ()),
        stored_as_scd_type=written.get("scd_type", 1),
        insert_only=not written.get("keys"),
        track_history_column_list=_tupled(tracked.get("include")),
        track_history_except_column_list=_tupled(tracked.get("except")),
    )
    if written.get("source_kind") == "change_log":
        options = replace(options, sequence_by=meaning.UNTOLD)
    names = (*_WRITTEN, *_SEQUENCES, "start_column", "end_column")
    known = {name: _tupled(written[name]) for name in names if name in written}
    return replace(options, **known)


def is_untold(options: ApplyOptions) -> bool:
    """Tell whether events have an order that the seal of their target doesn't tell."""
    return meaning.UNTOLD in options.sequences


#: What the seal of a change log says of the ingest that made it.
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
    """Return what the seal of a change log says of the options it is filled with, as JSON has it."""
    return {name: _listed(getattr(options, name)) for name in _INGEST}


def ingest_options_of(seal: Seal) -> IngestOptions | None:
    """Return the options a change log was filled with last; None where its seal does not tell."""
    written = seal.configuration.get("ingest")
    if not isinstance(written, dict):
        return None
    return IngestOptions(**{name: _tupled(written[name]) for name in _INGEST if name in written})


def _tupled(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True)
class Drift:
    """An option whose value is not the one that the target was built with.

    :param name: as the seal names it
    :param text: a sentence that names both
    """

    name: str
    text: str


def drifts(
    seal: Seal, options: ApplyOptions, target: str, source: Iterable[meaning.Path] | None = None
) -> tuple[Drift, ...]:
    """Return the options in which a target was built otherwise: order, case and white space don't count.

    Lists of columns are compared by the sets that they stand for, over the columns that the source had when
    the seal was made and has now: a column that came since is in no row that the target holds. Of the
    sequence the type is compared, by the engine.

    :param source: leaves of the source's columns now (:func:`delta_cdc.log.schema.leaf_paths`); None where
        they are not known: then those of the seal count, and without them what was written
    """
    written, found = seal.configuration, []
    defaults = described(ApplyOptions())
    for name, value in described(options).items():
        if name in _SEQUENCES or (name not in written and name not in _LATER):
            continue
        was = written.get(name, defaults.get(name))
        if name == "ignore_null_updates":
            # A list says it, too.
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


#: Of a seal: the source's columns, and those that the sequence reads where they are left out of the tracked.
_SOURCE_COLUMNS, _SEQUENCE_COLUMNS = "source_columns", "sequence_columns"
#: Characters of their names that a seal takes; of a wider source the columns of now count.
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
    """Return what a seal says of columns, by which a later run knows what the lists of columns meant.

    :param source: the columns of the source
    :param untracked: columns that land, are no keys, and make no new version
    """
    found: dict[str, list[str]] = {}
    if sum(map(len, source)) <= _MOST_OF_COLUMNS:
        found[_SOURCE_COLUMNS] = list(source)
    is_default = options.track_history_column_list is options.track_history_except_column_list is None
    if options.stored_as_scd_type == 2 and is_default:
        # Spark has found them by the expression.
        found[_SEQUENCE_COLUMNS] = list(untracked)
    return found


def _same(seal: Seal, options: ApplyOptions, source: Iterable[meaning.Path] | None) -> set[str]:
    """Return the options whose sets are, or may be, those that the target was built with."""
    paths, was = _known_paths(seal, source), _was(seal, options)
    if paths is None:
        return set()
    before, now = meaning.landing(was, paths), meaning.landing(options, paths)
    if before is None or now is None:
        # Only Spark knows the columns: of an include list and an except list nothing is known.
        return _spelled_otherwise(was, options)
    sequences = seal.configuration.get(_SEQUENCE_COLUMNS)
    same = set(_LANDING) if before.values == now.values else set()
    if meaning.tracked(was, before, sequences).may_be(meaning.tracked(options, now)):
        same |= _TRACKED
    if meaning.keeping_nulls(was, before).may_be(meaning.keeping_nulls(options, now)):
        same |= _NULL_SETS
    return same


def _known_paths(seal: Seal, source: Iterable[meaning.Path] | None) -> list[meaning.Path] | None:
    """Return the columns that lists are compared over; None where nothing tells any."""
    told = seal.configuration.get(_SOURCE_COLUMNS)
    if source is None:
        return None if told is None else [(name,) for name in told]
    now = list(source)
    known = {name.lower() for name in told or ()}
    return [path for path in now if path[0].lower() in known] or now


def _was(seal: Seal, options: ApplyOptions) -> ApplyOptions:
    """Return what a target was built with; what an old seal leaves open is as it is given now."""
    was = options_of(seal)
    if "select" not in seal.configuration:
        was = replace(was, select=options.select)
    return was if "sequence_by" in seal.configuration else replace(was, sequence_by=meaning.UNTOLD)


def _spelled_otherwise(was: ApplyOptions, now: ApplyOptions) -> set[str]:
    """Return the options that say a set in another way: by an include list, an except list, or none."""

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
    source: Iterable[meaning.Path] | None = None,
) -> tuple[str, ...]:
    """Refuse options the target was not built with, unless they may change.

    :param on_drift: ``accept`` or ``repair``: other options hold from now on, where rows can keep their shape
    :param source: see :func:`drifts`
    :return: what was accepted, one sentence each
    :raises ConfigurationDrift: names both values, and the ways out
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
    """Tell whether rows of the past cannot be told from the source as it is: type 2 of what is no log."""
    return options.stored_as_scd_type == 2 and not options.takes_events


def _ways_out(drift: Drift, options: ApplyOptions) -> str:
    new = "load a new target under a new pipeline name"
    if drift.name not in _ACCEPTABLE:
        return f'go back to what it was built with, {new}, or throw what is there away with mode="reset".'
    # Once it is accepted it is no drift any more, so nothing but the mode brings the rows after it.
    again = 'mode="repair"' if needs_history(options) else 'mode="reload"'
    at_once = "" if needs_history(options) else ', or "repair", which does so at once'
    return (
        'go back to what it was built with; or set on_drift="accept", by which rows that are there stay as '
        f"they are until {again} computes them again{at_once}; or {new}."
    )


def _source_columns(options: ApplyOptions) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("columns_to_update", _one(options.columns_to_update)),
        ("on_tie", options.tie_order),
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
    """Return an option by what counts of it in a comparison; it can be a key of a dict."""
    return _ALIKE.get(name, _comparable)(described(options)[name])


def _comparable(value: object) -> object:
    if isinstance(value, dict):
        return frozenset((key, _comparable(entry)) for key, entry in value.items())
    if isinstance(value, list | tuple):
        return frozenset(str(entry).lower() for entry in value)
    return value


def _text(value: object) -> object:
    """Expressions as written: their order and case may mean something."""
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


def _refuse_repeated(what: str, names: tuple[str, ...]) -> None:
    lowered = [name.lower() for name in names]
    if len(set(lowered)) < len(lowered):
        raise invalid(
            f"{what} names a column twice ({', '.join(names)})",
            "name each column once.",
        )


def invalid(what: str, remedy: str) -> InvalidConfiguration:
    """Build the error for a configuration that cannot be used.

    :param what: a clause without a full stop
    :param remedy: a sentence
    """
    return InvalidConfiguration(f"The configuration cannot be used: {what}.", remedy=remedy)


def _reserved(name: str, table: str, version: int, remedy: str) -> ReservedColumnName:
    return ReservedColumnName(
        f"The column {name} in version {version} of {table} has a reserved name.",
        remedy=f"{remedy}.",
    )
