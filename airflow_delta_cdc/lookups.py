"""Look up the locations of tables by catalog name: in the cache, or by one Spark application."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_delta_cdc import engine
from airflow_delta_cdc.names import Location, NameCache
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.uris import canonical_uri, is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.spec import TargetName


def located(operator: DeltaCdcOperator, context: Context, tables: Sequence[str]) -> dict[str, str]:
    """Return the location of each table; see :func:`each_located`.

    :raises TableNotFound: the catalog has no table of a name
    :raises NotADeltaTable: a name is a view, or a table of another format
    """
    return chosen(each_located(operator, context, tables), tables)


def chosen(at: Mapping[str, str | DeltaCdcError], tables: Iterable[str]) -> dict[str, str]:
    """Return the locations of some tables.

    :param at: the result of :func:`each_located`
    :raises DeltaCdcError: one of the tables has no location
    """
    locations = {}
    for table in tables:
        location = at[table]
        if isinstance(location, DeltaCdcError):
            raise location
        locations[table] = location
    return locations


def each_located(
    operator: DeltaCdcOperator,
    context: Context,
    tables: Iterable[str],
    targets: Iterable[TargetName] = (),
) -> dict[str, str | DeltaCdcError]:
    """Return the location of each table, or the error if it has none.

    A path or URI is its own location. A name is looked up in the cache. A cached location counts only if the
    table there still has the cached id, and the name that it had recorded, which its log shows without a JVM.
    One Spark application looks up all other names.

    :param operator: provides the Spark
    :param tables: paths, URIs or names of one to three parts
    :param targets: those of the names whose tables need not exist: a new one gets the location where it is to
        be created, which is not cached
    """
    cache = NameCache(context, operator.inlets, operator.log)
    locations: dict[str, str | DeltaCdcError] = {}
    missing: list[str] = []
    tables = list(dict.fromkeys(tables))
    new = {target.name: target for target in targets}
    for table in tables:
        name = table.strip()
        location = _cached(operator, cache, name, new.get(name)) if is_name(name) else table
        if location is None:
            missing.append(name)
        else:
            locations[table] = location
    lookups = _looked_up(operator, context, list(dict.fromkeys(missing)), new) if missing else {}
    for lookup in lookups.values():
        if isinstance(lookup, Location) and lookup.table_id:
            cache.set(lookup)
    for table in tables:
        if table not in locations:
            lookup = lookups[table.strip()]
            locations[table] = lookup.location if isinstance(lookup, Location) else lookup
    return locations


def _cached(
    operator: DeltaCdcOperator, cache: NameCache, name: str, target: TargetName | None = None
) -> str | None:
    """Return the location in the cache, if it is still valid."""

    entry = cache.get(name)
    if entry is None or entry.spark_conn_id != (operator.spark_conn_id or ""):
        return None
    if target is not None and target.location and canonical_uri(target.location) != entry.location:
        return None
    problem = entry.problem(operator.options_of_storage())
    if not problem:
        return entry.location
    operator.log.info(problem)
    return None


def _looked_up(
    operator: DeltaCdcOperator, context: Context, names: Sequence[str], targets: Mapping[str, TargetName]
) -> dict[str, Location | DeltaCdcError]:
    """Look names up by one Spark application; return the location or the error of each."""
    operator.log.info("Looking up the location of %s in Spark's catalog", ", ".join(names))
    new = tuple(targets[name] for name in names if name in targets)
    try:
        result = operator.run_to_end(
            context, engine.ResolveSpec(run_id=context["run_id"], tables=tuple(names), targets=new)
        )
    except DeltaCdcError as error:
        return dict.fromkeys(names, error)
    locations: dict[str, Location | DeltaCdcError] = {}
    for row in result.tables:
        name = row["table"]
        if "error" in row:
            locations[name] = DeltaCdcError.from_dict(row["error"])
            continue
        locations[name] = Location(
            name=name,
            location=canonical_uri(row["location"]),
            table_id=row["table_id"],
            spark_conn_id=operator.spark_conn_id or "",
            recorded=row.get("recorded", ""),
        )
    return locations
