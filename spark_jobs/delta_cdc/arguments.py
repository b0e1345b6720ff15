"""What people write as arguments, brought to the types the engine works with.

Values may come from Python, from a rendered template or from a form, where ``""`` and ``"None"`` mean
"not given".
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, cast, get_args

from delta_cdc.errors import InvalidConfiguration
from delta_cdc.spec import ApplyOptions, Capture, Query, QueryOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

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
    items = (value,) if isinstance(value, str) else tuple(cast("Iterable[Any]", value))
    if not all(isinstance(item, str) for item in items):
        raise InvalidConfiguration(f"{name} is {value!r}.", remedy="give a list of texts.")
    return items


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


def apply_options(
    *,
    keys: Any,
    stored_as_scd_type: Any,
    sequence_by: Any,
    delete_sequence: Any,
    where: Any,
    select: Any,
    track_history_column_list: Any,
    track_history_except_column_list: Any,
    insert_only: bool,
    start_column: str,
    end_column: str,
    partition_by: Any,
    cluster_by: Any,
    target_properties: Mapping[str, Any] | None,
    publish_changes: bool,
    schema_evolution: str,
) -> ApplyOptions:
    """Read the arguments that shape the rows of a target; see :class:`delta_cdc.spec.ApplyOptions`.

    :raises InvalidConfiguration: for a value of the wrong kind
    """
    return ApplyOptions(
        keys=names("keys", keys) or (),
        stored_as_scd_type=whole_number("stored_as_scd_type", stored_as_scd_type, minimum=1) or 1,
        sequence_by=text(sequence_by) or ApplyOptions.sequence_by,
        delete_sequence=text(delete_sequence),
        where=text(where),
        select=names("select", select) or (),
        track_history_column_list=names("track_history_column_list", track_history_column_list),
        track_history_except_column_list=names(
            "track_history_except_column_list", track_history_except_column_list
        ),
        insert_only=insert_only,
        start_column=start_column,
        end_column=end_column,
        partition_by=partitions(partition_by),
        cluster_by=names("cluster_by", cluster_by),
        target_properties=properties(target_properties),
        publish_changes=publish_changes,
        schema_evolution=schema_evolution,
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


def _one_of(name: str, value: Any, known: tuple[str, ...], default: str) -> Any:
    given = text(value) or default
    if given not in known:
        nearest = get_close_matches(given, known, n=1)
        hint = f" (did you mean {nearest[0]!r}?)" if nearest else ""
        raise InvalidConfiguration(f"{name} is {value!r}.", remedy=f"use one of {', '.join(known)}{hint}.")
    return given
