"""What people write as arguments, brought to the types the engine works with.

Values may come from Python, from a rendered template or from a form, where ``""`` and ``"None"`` mean
"not given".
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypedDict, cast, get_args

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.ingest.shape import COLUMNS, DELETE, LOG_COLUMNS, OP, SEQUENCE, TRUNCATE
from delta_cdc.spec import ApplyOptions, Capture, IngestOptions, Query, QueryOptions, SourceKind

#: What an empty form field or an unset Param renders to.
_NOT_GIVEN = ("", "none", "null")


def is_given(value: Any) -> bool:
    """Return whether a (rendered) argument holds anything."""
    return value is not None and not (isinstance(value, str) and value.strip().lower() in _NOT_GIVEN)


def whole_number(name: str, value: Any, *, minimum: int = 0) -> int | None:
    """Read a whole number that may come as rendered text; ``""`` and ``"None"`` mean not given.

    :param name: the argument's name, for the message
    :raises InvalidConfiguration: for anything that is no whole number >= ``minimum``
    """
    if not is_given(value):
        return None
    number: int | None = None
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.strip().isdecimal():
        number = int(value)
    if number is None or number < minimum:
        raise InvalidConfiguration(
            f"{name} is {value!r}.", remedy=f"give a whole number >= {minimum}, or leave it empty."
        )
    return number


def text(value: Any) -> str | None:
    """Read an optional text; ``""`` and ``"None"`` mean not given."""
    return str(value) if is_given(value) else None


def names(name: str, value: Any) -> tuple[str, ...] | None:
    """Read a list of column names or expressions; one alone may come without its list.

    :raises InvalidConfiguration: for anything but texts
    """
    if not is_given(value):
        return None
    items = (value,) if isinstance(value, str) else value
    is_list = isinstance(items, Collection) and not isinstance(items, Mapping)
    if not is_list or not all(isinstance(item, str) for item in items):
        raise InvalidConfiguration(f"{name} is {value!r}.", remedy="give a list of texts.")
    return tuple(items)


def partitions(value: Any) -> dict[str, str | None]:
    """Read ``partition_by``: a list of columns, or a mapping from a column to its expression (or None)."""
    if isinstance(value, dict):
        return {str(column): text(expression) for column, expression in value.items()}
    return dict.fromkeys(names("partition_by", value) or ())


def initial_load(value: Any) -> str | dict[str, int]:
    """Read ``initial_load``: ``"snapshot"``, ``"none"``, ``{"from_version": N}`` or ``{"none_at": V}``.

    A ``from_version`` that renders to nothing is ``snapshot``; a ``none_at`` has to say its version: to take
    another one for it would declare rows that nobody saw.

    :raises InvalidConfiguration: for anything else
    """
    if not is_given(value) and value != "none":
        return "snapshot"
    if value in ("snapshot", "none"):
        return str(value)
    if isinstance(value, dict) and len(value) == 1 and set(value) <= {"from_version", "none_at"}:
        ((name, given),) = value.items()
        version = whole_number(f"initial_load {name}", given)
        if version is not None:
            return {name: version}
        if name == "from_version":
            return "snapshot"
    raise InvalidConfiguration(
        f"initial_load is {value!r}.",
        remedy='give "snapshot", "none", {"from_version": <version>} or {"none_at": <version>}.',
    )


def properties(value: Mapping[str, Any] | None) -> dict[str, str]:
    """Read table properties; Python's booleans become Delta's."""
    return {
        str(key): str(item).lower() if isinstance(item, bool) else str(item)
        for key, item in (value or {}).items()
    }


def required(name: str, value: Any) -> str:
    """Read a text that has to be there.

    :raises InvalidConfiguration: where it is empty
    """
    if not isinstance(value, str) or not is_given(value):
        raise InvalidConfiguration(f"{name} is {value!r}.", remedy=f"give {name} a value.")
    return value.strip()


def flag(name: str, value: Any) -> bool:
    """Read a yes or no that may come as rendered text; ``""`` and ``"None"`` mean no.

    :param name: the argument's name, for the message
    :raises InvalidConfiguration: for anything but a boolean, ``"true"`` or ``"false"``
    """
    if isinstance(value, bool):
        return value
    if not is_given(value):
        return False
    known = {"true": True, "false": False}
    given = value.strip().lower() if isinstance(value, str) else None
    if given not in known:
        raise InvalidConfiguration(f"{name} is {value!r}.", remedy="give true or false.")
    return known[given]


def sequences(value: Any) -> str | tuple[str, ...]:
    """Read ``sequence_by``: an expression, or a list of them, compared one after the other.

    :return: a list of one as the expression alone, and the default where nothing is given
    :raises InvalidConfiguration: for anything but texts, or an empty list
    """
    given = names("sequence_by", value)
    if given is None:
        return ApplyOptions.sequence_by
    if not given or not all(is_given(expression) for expression in given):
        raise InvalidConfiguration(
            f"sequence_by is {value!r}.", remedy="give an expression or a list of them, or leave it out."
        )
    return given[0] if len(given) == 1 else given


def tie(value: Any) -> tuple[str, tuple[str, ...]]:
    """Read ``on_tie``: ``"fail"``, ``"quarantine"`` or ``{"last_by": [<column>, ...]}``.

    :return: the option ``on_tie``, and the columns of ``last_by``
    :raises InvalidConfiguration: for anything else
    """
    if isinstance(value, dict) and set(value) == {"last_by"}:
        columns = names("on_tie last_by", value["last_by"])
        if columns and all(is_given(column) for column in columns):
            return "last_by", columns
    elif not is_given(value):
        return ApplyOptions.on_tie, ()
    elif value in ("fail", "quarantine"):
        return str(value), ()
    raise InvalidConfiguration(
        f"on_tie is {value!r}.",
        remedy='give "fail", "quarantine" or {"last_by": [<column>, ...]}; the greatest of these wins.',
    )


def apply_options(
    *,
    source_kind: Any,
    keys: Any,
    stored_as_scd_type: Any,
    sequence_by: Any,
    delete_sequence: Any,
    where: Any,
    select: Any,
    apply_as_deletes: Any,
    apply_as_truncates: Any,
    column_list: Any,
    except_column_list: Any,
    track_history_column_list: Any,
    track_history_except_column_list: Any,
    ignore_null_updates: Any,
    ignore_null_updates_column_list: Any,
    ignore_null_updates_except_column_list: Any,
    columns_to_update: Any,
    insert_only: bool,
    start_column: str,
    end_column: str,
    on_tie: Any,
    on_invalid: Any,
    on_late: Any,
    delete_mode: Any,
    snapshot_version_column: Any,
    partition_by: Any,
    cluster_by: Any,
    target_properties: Mapping[str, Any] | None,
    publish_changes: bool,
    schema_evolution: str,
) -> ApplyOptions:
    """Read the arguments that shape the rows of a target; see :class:`delta_cdc.spec.ApplyOptions`.

    :raises InvalidConfiguration: for a value of the wrong kind
    """
    on_tie, tie_order = tie(on_tie)
    lists = {
        "track_history_column_list": track_history_column_list,
        "track_history_except_column_list": track_history_except_column_list,
        "column_list": column_list,
        "except_column_list": except_column_list,
        "ignore_null_updates_column_list": ignore_null_updates_column_list,
        "ignore_null_updates_except_column_list": ignore_null_updates_except_column_list,
        "cluster_by": cluster_by,
    }
    return ApplyOptions(
        source_kind=_one_of("source_kind", source_kind, get_args(SourceKind), ApplyOptions.source_kind),
        keys=names("keys", keys) or (),
        stored_as_scd_type=whole_number("stored_as_scd_type", stored_as_scd_type, minimum=1) or 1,
        sequence_by=sequences(sequence_by),
        delete_sequence=text(delete_sequence),
        where=text(where),
        select=names("select", select) or (),
        apply_as_deletes=text(apply_as_deletes),
        apply_as_truncates=text(apply_as_truncates),
        ignore_null_updates=flag("ignore_null_updates", ignore_null_updates),
        columns_to_update=text(columns_to_update),
        insert_only=insert_only,
        start_column=start_column,
        end_column=end_column,
        on_tie=cast("Any", on_tie),
        tie_order=tie_order,
        on_invalid=_one_of("on_invalid", on_invalid, ("fail", "quarantine"), ApplyOptions.on_invalid),
        on_late=_one_of("on_late", on_late, ("fail", "discard"), ApplyOptions.on_late),
        delete_mode=_one_of("delete_mode", delete_mode, ("hard", "soft"), ApplyOptions.delete_mode),
        snapshot_version_column=text(snapshot_version_column),
        partition_by=partitions(partition_by),
        target_properties=properties(target_properties),
        publish_changes=publish_changes,
        schema_evolution=schema_evolution,
        **{name: names(name, given) for name, given in lists.items()},
    )


#: What a run does: everything new, everything up to a bound, a time's share of one or the other, some keys
#: again, all keys again, or everything from the start.
MODES = ("incremental", "backfill", "interval", "repair", "reload", "reset")
#: The same as ``incremental`` with ``dry_run``, for forms that have one field.
_DRY_RUN = "dry_run"
_WAYS_OUT = ("fail", "reload")


class RunChoices(TypedDict):
    """What :class:`delta_cdc.plan.ApplyRequest` holds of a run, beside its range and its options."""

    mode: str
    discard_history: bool
    repair_keys: str | None
    repair_quarantined: bool
    on_drift: str
    on_source_replaced: str
    on_target_replaced: str
    on_versions_expired: str
    dry_run: bool


def run_choices(
    *,
    mode: Any,
    discard_history: Any,
    repair_keys: Any,
    repair_quarantined: Any,
    on_drift: Any,
    on_source_replaced: Any,
    on_target_replaced: Any,
    on_versions_expired: Any,
    dry_run: Any,
) -> RunChoices:
    """Read the arguments that say what a run does, and what it may do about what it finds.

    :param mode: one of :data:`MODES`; or ``dry_run``, which is ``incremental`` with ``dry_run``
    :raises InvalidConfiguration: for a value that is none of the known ones
    """
    chosen = _one_of("mode", mode, (*MODES, _DRY_RUN), "incremental")
    return RunChoices(
        mode="incremental" if chosen == _DRY_RUN else chosen,
        discard_history=flag("discard_history", discard_history),
        repair_keys=text(repair_keys),
        repair_quarantined=flag("repair_quarantined", repair_quarantined),
        on_drift=_one_of("on_drift", on_drift, ("fail", "accept", "repair"), "fail"),
        on_source_replaced=_one_of("on_source_replaced", on_source_replaced, _WAYS_OUT, "fail"),
        on_target_replaced=_one_of("on_target_replaced", on_target_replaced, _WAYS_OUT, "fail"),
        on_versions_expired=_one_of("on_versions_expired", on_versions_expired, _WAYS_OUT, "fail"),
        dry_run=flag("dry_run", dry_run) or chosen == _DRY_RUN,
    )


def query_options(
    *, query: Any, keys: Any, capture: Any, raw: Any, where: Any, select: Any, on_change_commit: Any
) -> QueryOptions:
    """Read the arguments of a change query; see :class:`delta_cdc.spec.QueryOptions`.

    :raises InvalidConfiguration: for a value of the wrong kind
    """
    return QueryOptions(
        query=_one_of("query", query, get_args(Query), QueryOptions.query),
        keys=names("keys", keys) or (),
        capture=_one_of("capture", capture, get_args(Capture), QueryOptions.capture),
        raw=bool(raw),
        where=text(where),
        select=names("select", select) or (),
        on_change_commit=_one_of(
            "on_change_commit", on_change_commit, ("fail", "skip"), QueryOptions.on_change_commit
        ),
    )


#: What an adapter of one's own is named by: a module and what is in it.
_DOTTED = re.compile(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+", re.ASCII)


def ingest_options(
    *,
    source: Any,
    format: Any = None,  # noqa: A002 - the argument's name
    adapter: Any = None,
    adapter_options: Any = None,
    keys: Any = None,
    schema: Any = None,
    format_options: Any = None,
    insert_only: Any = False,
    on_invalid: Any = None,
    cluster_by: Any = None,
    log_properties: Any = None,
) -> IngestOptions:
    """Read the arguments that say what an external change set looks like; see
    :class:`delta_cdc.spec.IngestOptions`.

    :param source: tells only whether it is a topic (``kafka://``) or files
    :raises InvalidConfiguration: for a value of the wrong kind
    """
    from delta_cdc.ingest.adapters import BUNDLED

    kafka = isinstance(source, str) and source.strip().lower().startswith("kafka://")
    name = text(adapter) or IngestOptions.adapter
    if not _DOTTED.fullmatch(name.strip()):
        name = _one_of("adapter", name, BUNDLED, IngestOptions.adapter)
    return IngestOptions(
        source_kind="kafka" if kafka else "files",
        format=_one_of("format", format, ("json", "csv", "parquet"), IngestOptions.format),
        adapter=name.strip(),
        adapter_options=_mapping("adapter_options", adapter_options),
        keys=names("keys", keys) or (),
        schema=text(schema),
        format_options=properties(_mapping("format_options", format_options)),
        insert_only=flag("insert_only", insert_only),
        on_invalid=_one_of("on_invalid", on_invalid, ("quarantine", "fail"), IngestOptions.on_invalid),
        cluster_by=names("cluster_by", cluster_by),
        log_properties=properties(_mapping("log_properties", log_properties)),
    )


def _mapping(name: str, value: Any) -> dict[str, Any]:
    """Read a mapping, which may come as JSON text from a form."""
    if not is_given(value):
        return {}
    given = value
    if isinstance(value, str):
        try:
            given = json.loads(value)
        except ValueError:
            given = None
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InvalidConfiguration(
            f"{name} is {value!r}.", remedy="give a mapping from names to values, or its JSON text."
        )
    return dict(given)


def of_ingested_log(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments of an apply with what applying a log of an ingest takes, where they were not given.

    The events' own columns land; an event's operation, order and columns are those that the log has of it.
    With ``insert_only`` the log's rows are appended as they are.

    :param given: arguments by their names; those that are not about this are passed on
    """
    log_columns = list(LOG_COLUMNS)
    if given.get("insert_only"):
        defaults: dict[str, Any] = {"source_kind": "change_feed"}
    else:
        defaults = {
            "source_kind": "change_log",
            "sequence_by": SEQUENCE,
            "apply_as_deletes": f"{OP} = '{DELETE}'",
            "apply_as_truncates": f"{OP} = '{TRUNCATE}'",
            "columns_to_update": COLUMNS,
        }
    select = names("select", given.get("select"))
    # With projections of one's own, what lands is what they say.
    if not is_given(given.get("column_list")) and (select is None or "*" in select):
        defaults["except_column_list"] = log_columns
    missing = {name: value for name, value in defaults.items() if not is_given(given.get(name))}
    return {**given, **missing}


def _one_of(name: str, value: Any, known: tuple[str, ...], default: str) -> Any:
    given = (text(value) or default).strip()
    if given not in known:
        nearest = get_close_matches(given, known, n=1)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise InvalidConfiguration(f"{name} is {value!r}.", remedy=f"use one of {', '.join(known)}{hint}.")
    return given
