"""What can be refused without any I/O, and what needs only the source's columns."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

from delta_cdc.changes.feed import COMMIT_TIMESTAMP, COMMIT_VERSION, METADATA_COLUMNS
from delta_cdc.errors import (
    ColumnNotFound,
    ConfigurationDrift,
    InvalidConfiguration,
    ReservedColumnName,
)
from delta_cdc.spec import ApplyOptions, Capture, Query, QueryOptions
from delta_cdc.sql import PLAN_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from delta_cdc.watermark import Seal

_PIPELINE = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_.:\-]{0,199}$")


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
            raise _invalid(f"{name} is {value}", "versions start at 0.")
    if starting is not None and ending is not None and ending < starting:
        raise _invalid(
            f"ending_version {ending} lies before starting_version {starting}",
            "both ends are inclusive.",
        )
    if max_versions is not None and max_versions < 1:
        raise _invalid(f"max_versions is {max_versions}", "give a number >= 1, or leave it out.")


def check_options(options: ApplyOptions) -> None:
    """Refuse options that don't go together."""
    if options.stored_as_scd_type not in (1, 2):
        raise _invalid(f"stored_as_scd_type is {options.stored_as_scd_type}", "use 1 or 2.")
    if options.insert_only and options.stored_as_scd_type != 1:
        raise _invalid(
            "insert_only is given with SCD type 2",
            "a source of inserts alone has no history.",
        )
    if not options.keys and not options.insert_only:
        raise _invalid(
            "keys are missing",
            "name the key columns, or set insert_only for a source of inserts.",
        )
    _refuse_repeated("keys", options.keys)
    if options.stored_as_scd_type == 1:
        _check_type_1(options)
    else:
        _check_type_2(options)
    if options.schema_evolution not in ("additive", "none"):
        raise _invalid(
            f"schema_evolution is {options.schema_evolution!r}",
            "use 'additive' or 'none'.",
        )
    _check_layout(options)


def _check_type_1(options: ApplyOptions) -> None:
    if options.sequence_by != type(options).sequence_by:
        raise _invalid(
            "sequence_by is given with SCD type 1",
            "leave it out: the order of a change feed is its commit version.",
        )
    given = {
        "delete_sequence": options.delete_sequence,
        "track_history_column_list": options.track_history_column_list,
        "track_history_except_column_list": options.track_history_except_column_list,
    }
    for name, value in given.items():
        if value is not None:
            raise _invalid(f"{name} is given with SCD type 1", "it only has a meaning for type 2.")


def _check_type_2(options: ApplyOptions) -> None:
    if not all(text.strip() for text in options.sequences):
        raise _invalid("sequence_by is empty", "leave it out for the commit version.")
    if (
        not set(options.sequences) <= {COMMIT_VERSION, COMMIT_TIMESTAMP}
        and not (options.delete_sequence or "").strip()
    ):
        raise _invalid(
            f"sequence_by is the expression {options.sequence_by!r} and delete_sequence is missing",
            "say when a delete happened: its row carries the values from before, so sequence_by cannot.",
        )
    if options.track_history_column_list is not None and options.track_history_except_column_list is not None:
        raise _invalid("both lists of tracked columns are given", "give one of them.")
    if options.start_column.lower() == options.end_column.lower():
        raise _invalid(
            f"start_column and end_column are both {options.start_column!r}",
            "name two columns.",
        )


def _check_layout(options: ApplyOptions) -> None:
    if options.partition_by and options.cluster_by:
        raise _invalid(
            "partition_by and cluster_by are both given",
            "Delta clusters or partitions, not both.",
        )
    if options.cluster_by is not None and len(options.cluster_by) > 4:
        raise _invalid(
            f"cluster_by names {len(options.cluster_by)} columns",
            "Delta takes at most four.",
        )
    _refuse_repeated("cluster_by", options.cluster_by or ())
    _check_projection(options.where, options.select)
    if "delta.setTransactionRetentionDuration" in options.target_properties:
        raise _invalid(
            "target_properties sets delta.setTransactionRetentionDuration",
            "leave it out: the target would forget which commits it holds.",
        )


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
            raise _invalid(f"{name} is {value!r}", f"use one of {', '.join(known)}.")
    _refuse_repeated("keys", options.keys)
    _check_projection(options.where, options.select)
    if options.raw:
        _check_raw(options)
    if options.query == "upsert" and not options.keys:
        raise _invalid("query='upsert' is given without keys", "name the key columns.")
    if options.where is not None and not options.keys:
        raise _invalid(
            "where is given without keys",
            "name the key columns: they tell a row that leaves the filter from one that never was in it.",
        )


def _check_raw(options: QueryOptions) -> None:
    if options.query != "full_delta":
        raise _invalid(f"raw is given with query={options.query!r}", "it only has a meaning for full_delta.")
    if options.where is not None or options.select:
        raise _invalid(
            "raw is given with where or select", "raw rows are those of the change feed; filter the result."
        )
    if options.capture not in ("auto", "change_files"):
        raise _invalid(
            f"raw is given with capture={options.capture!r}", "raw rows only exist in the change feed."
        )


def _check_projection(where: str | None, select: tuple[str, ...]) -> None:
    if where is not None and not where.strip():
        raise _invalid("where is empty", "leave it out, or give a predicate.")
    if any(not projection.strip() for projection in select):
        raise _invalid("select has an empty projection", "leave it out, or give an expression.")


def check_columns(options: ApplyOptions, columns: tuple[str, ...], table: str, version: int) -> None:
    """Refuse reserved names in the source, and names the source doesn't have.

    With ``select`` the columns are only known to Spark, which checks them there.

    :raises ReservedColumnName: the source has a column that the feed or the target needs
    :raises ColumnNotFound: a key, tracked, partition or clustering column is missing
    """
    check_feed_columns(columns, table, version)
    if options.select:
        return
    added = (options.start_column, options.end_column) if options.stored_as_scd_type == 2 else ()
    known = {name.lower() for name in columns}
    for name in added:
        if name.lower() in known:
            raise _reserved(name, table, version, "set start_column and end_column to other names")
    for what, names in _named_columns(options):
        for name in names:
            if name.lower() not in known | {extra.lower() for extra in _extra(what, options, added)}:
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


def options_of(seal: Seal) -> ApplyOptions:
    """Return the options a target was built with, as far as its seal tells."""
    written = seal.configuration
    tracked = written.get("tracked") or {}
    options = ApplyOptions(
        keys=tuple(written.get("keys") or ()),
        stored_as_scd_type=written.get("scd_type", 1),
        insert_only=not written.get("keys"),
        where=written.get("where"),
        select=tuple(written.get("select") or ()),
        partition_by=dict(written.get("partition_by") or {}),
        track_history_column_list=_tupled(tracked.get("include")),
        track_history_except_column_list=_tupled(tracked.get("except")),
    )
    columns = {name: written[name] for name in ("start_column", "end_column") if name in written}
    return replace(options, **columns)


def _tupled(names: list[str] | None) -> tuple[str, ...] | None:
    return None if names is None else tuple(names)


def check_drift(seal: Seal, options: ApplyOptions, target: str) -> None:
    """Refuse options the target was not built with. The type of the sequence is compared by the engine.

    :raises ConfigurationDrift: other keys, SCD type, tracked columns, start or end column (order and case
        don't count), or another ``where``, ``select`` or ``partition_by`` (white space doesn't count)
    """
    written = seal.configuration
    now: dict[str, Any] = {
        "keys": list(options.keys),
        "scd_type": options.stored_as_scd_type,
        "tracked": {
            "include": options.track_history_column_list,
            "except": options.track_history_except_column_list,
        },
        "where": options.where,
        "select": list(options.select),
        "partition_by": dict(options.partition_by),
    }
    if options.stored_as_scd_type == 2:
        now |= {"start_column": options.start_column, "end_column": options.end_column}
    for name, value in now.items():
        # A seal of an older release doesn't have all of them.
        alike = _ALIKE.get(name, _comparable)
        if name in written and alike(written[name]) != alike(value):
            raise ConfigurationDrift(
                f"The target {target} was built with {name} = {_shown(written[name])}, and now {name} = "
                f"{_shown(value)} is given (pipeline {seal.pipeline}, seal {seal.number}).",
                remedy="go back to what it was built with, or load a new target under a new pipeline name.",
            )


def _named_columns(options: ApplyOptions) -> list[tuple[str, tuple[str, ...]]]:
    return [
        ("key", options.keys),
        ("tracked", options.track_history_column_list or ()),
        ("tracked", options.track_history_except_column_list or ()),
        (
            "partition",
            tuple(name for name, made in options.partition_by.items() if made is None),
        ),
        ("clustering", options.cluster_by or ()),
    ]


def _extra(what: str, options: ApplyOptions, added: tuple[str, ...]) -> tuple[str, ...]:
    made = tuple(name for name, expression in options.partition_by.items() if expression is not None)
    return (*added, *made) if what == "clustering" else ()


def _comparable(value: object) -> object:
    if isinstance(value, dict):
        return {key: _comparable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return frozenset(str(entry).lower() for entry in value)
    return value


def _text(value: object) -> object:
    """Expressions as written: their order and case may mean something."""
    if isinstance(value, dict):
        return {str(key).lower(): _text(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_text(entry) for entry in value]
    return " ".join(value.split()) if isinstance(value, str) else value


def _name(value: object) -> str:
    return str(value).lower()


_ALIKE: dict[str, Callable[[object], object]] = {
    "where": _text,
    "select": _text,
    "partition_by": _text,
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
    return "all" if value is None else str(value)


def _refuse_repeated(what: str, names: tuple[str, ...]) -> None:
    lowered = [name.lower() for name in names]
    if len(set(lowered)) < len(lowered):
        raise _invalid(
            f"{what} names a column twice ({', '.join(names)})",
            "name each column once.",
        )


def _invalid(what: str, remedy: str) -> InvalidConfiguration:
    return InvalidConfiguration(f"The configuration cannot be used: {what}.", remedy=remedy)


def _reserved(name: str, table: str, version: int, remedy: str) -> ReservedColumnName:
    return ReservedColumnName(
        f"The column {name} in version {version} of {table} has a reserved name.",
        remedy=f"{remedy}.",
    )
