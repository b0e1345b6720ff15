"""Decide which columns the events of a batch have, and of which types."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from delta_cdc.core.change_log import LOG_COLUMNS
from delta_cdc.core.column_lists import did_you_mean
from delta_cdc.core.errors import ColumnNotFound, ReservedColumnName
from delta_cdc.core.reserved_columns import METADATA_COLUMNS
from delta_cdc.core.sql import PLAN_PREFIX
from delta_cdc.ingest import infer
from delta_cdc.ingest.types import STRING, VOID, Type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from delta_cdc.ingest.batch import Found
    from delta_cdc.ingest.record import Adapter


#: Names that a column of the payload cannot have: no apply could read them, as Delta's change data feed adds
#: columns of these names.
_RESERVED = (*LOG_COLUMNS, *METADATA_COLUMNS)


#: The most columns that a warning lists.


class Layout(NamedTuple):
    """Names and types.

    :param columns: those of the payload, in the order of the log: known ones, then new ones
    :param others: members that are no payload, but may order the events
    """

    columns: tuple[tuple[str, Type], ...] = ()
    others: tuple[tuple[str, Type], ...] = ()


def layout(
    adapter: Adapter,
    schema: Type | None,
    known: Type | None,
    given: Mapping[str, Type],
    found: Found,
    *,
    keys: Iterable[str],
    excluded: Iterable[str],
    widens: Callable[[str, Type, Type], bool] = lambda *_: False,
) -> Layout:
    """Return the columns of a batch.

    With ``schema``, these are its columns. Otherwise, a column of the log keeps its type, unless it may be
    widened to the type that records or Parquet files give, and objects may get more members. A new column
    gets the type that its records give, or that holds all its values. A column without any value has no type
    yet, so it is no column.

    :param schema: the option ``schema``
    :param known: the columns of the log; None before its first batch
    :param given: the columns of Parquet files; void for one without a type
    :param found: what records showed of other columns
    :param keys: key columns; their spelling is preferred
    :param excluded: the option ``except_column_list``
    :param widens: whether a column of the log may change from one type to another
    :raises ReservedColumnName: the change log needs the name of a column
    :raises ColumnNotFound: there are columns, but not the key columns
    """
    if schema is not None:
        return _split(schema.fields, adapter, keys, excluded)
    given = {name: kind for name, kind in given.items() if kind != VOID}
    types = dict(known.fields) if known is not None else {}
    spelt = {name.lower(): name for name in types}
    new: dict[str, Type] = dict(given)
    new |= {name: kind for name, seen in found.seen.items() if (kind := infer.resolved(seen)) is not None}
    for name, kind in found.typed.items():
        new[name] = infer.common(new[name], kind) if name in new and name in given else kind
    stated = {**given, **found.typed}
    preferred = set(keys)
    for name in sorted(new, key=lambda name: name not in preferred):
        log_name = spelt.setdefault(name.lower(), name)
        types[log_name] = infer.merged(types[log_name], new[name]) if log_name in types else new[name]
        wider = infer.wider(types[log_name], stated[name]) if name in stated else None
        if known is not None and wider is not None and widens(log_name, types[log_name], wider):
            types[log_name] = wider
    # The order is that of the records, whatever spelling was preferred.
    order = {name.lower(): at for at, name in reversed(list(enumerate([*types, *new])))}
    if known is None:
        order = {name.lower(): at for at, name in reversed(list(enumerate(new)))}
    in_order = sorted(types.items(), key=lambda item: order[item[0].lower()])
    return _split(in_order, adapter, keys, excluded)


def dropped(
    adapter: Adapter, schema: Type, seen: Iterable[str], adapter_options: Mapping[str, Any]
) -> tuple[str, ...]:
    """Return the members of records that ``schema`` leaves out and no option mentions, in order.

    :param seen: names of members
    """
    options = json.dumps(dict(adapter_options), default=str).lower()
    excluded = adapter_options.get("except_column_list") or ()
    names = (*excluded, *(name for name, _ in schema.fields))
    known = {*re.findall(r"\w+", options), *(name.lower() for name in names)}
    return tuple(sorted(name for name in seen if name.lower() not in known and not adapter.describes(name)))


def _split(
    fields: Iterable[tuple[str, Type]], adapter: Adapter, keys: Iterable[str], excluded: Iterable[str]
) -> Layout:
    left_out = {name.lower() for name in excluded}
    columns: list[tuple[str, Type]] = []
    others: list[tuple[str, Type]] = []
    for name, kind in fields:
        is_other = name.lower() in left_out or adapter.describes(name)
        (others if is_other else columns).append((name, STRING if kind.name == "void" else kind))
    names = [name for name, _ in columns]
    reserved = [name for name in names if name.lower() in _RESERVED or name.lower().startswith(PLAN_PREFIX)]
    if reserved:
        raise ReservedColumnName(
            f"The records have the column(s) {', '.join(reserved)}, "
            "names that the change log, or its change data feed, has for itself.",
            remedy="rename them where they come from, or leave them out with adapter_options "
            f"{{'except_column_list': {reserved}}}.",
        )
    lower = {name.lower() for name in names}
    missing = [key for key in keys if key.lower() not in lower]
    if missing and names:
        raise ColumnNotFound(
            f"The records have no key column {', '.join(map(repr, missing))} (they have {', '.join(names)}).",
            remedy=f"{did_you_mean(missing, names)}correct keys, or define the columns with schema.",
        )
    return Layout(tuple(columns), tuple(others))
