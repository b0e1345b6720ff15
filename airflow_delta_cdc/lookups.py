"""Look up the locations of tables by catalog name: in the cache, or by one Spark application."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import engine
from airflow_delta_cdc.names import Location, NameCache
from delta_cdc.core.errors import DeltaCdcError, JobFailed
from delta_cdc.core.uris import canonical_uri, is_name
from delta_cdc.core.variables import expand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from airflow.sdk import Context

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.spec import TargetName
    from delta_cdc.planning.consumers import Consumer


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


def located_consumers(
    operator: DeltaCdcOperator, context: Context, consumers: Sequence[Consumer]
) -> list[Consumer]:
    """Return consumers with the locations of their tables; one without a location holds the error."""
    expanded: dict[str, str] = {}
    locations: dict[str, str | DeltaCdcError] = {}
    for name in dict.fromkeys(name for one in consumers for name in _tables(one)):
        try:
            expanded[name] = expand(name)
        except DeltaCdcError as error:
            locations[name] = error
    expanded_locations = each_located(operator, context, list(expanded.values()))
    locations |= {name: expanded_locations[table] for name, table in expanded.items()}
    return [_at(one, locations) for one in consumers]


def _tables(consumer: Consumer) -> list[str]:
    """Return the tables of a consumer to locate; the target of one with an error is not known."""
    target = consumer.target if consumer.error is None else None
    return [name for name in (consumer.source, target) if name]


def _at(consumer: Consumer, locations: Mapping[str, str | DeltaCdcError]) -> Consumer:
    target = locations.get(consumer.target, consumer.target)
    if isinstance(target, DeltaCdcError):
        consumer = replace(consumer, error=target)
    else:
        consumer = replace(consumer, target=target)
    source = locations[consumer.source] if consumer.source else None
    return consumer if isinstance(source, DeltaCdcError) else replace(consumer, source=source)


def each_located(
    operator: DeltaCdcOperator,
    context: Context,
    tables: Iterable[str],
    targets: Iterable[TargetName] = (),
) -> dict[str, str | DeltaCdcError]:
    """Return the location of each table, or the error if it has none.

    A path or URI is its own location. A name is looked up in the cache. A cached location counts only if the
    table there still has the cached id, and the name that it had recorded, which its log shows without a JVM.
    One Spark application looks up all other names. A location that cannot be read is the error of its table
    alone.

    :param operator: provides the Spark
    :param tables: paths, URIs or names of one to three parts
    :param targets: those of the names whose tables need not exist: a new one gets the location where it is to
        be created, which is not cached
    """
    cache = NameCache(context, operator.inlets, operator.log)
    new = {target.name: target for target in targets}
    known = {table: _known(operator, cache, table, new) for table in dict.fromkeys(tables)}
    missing = list(dict.fromkeys(table.strip() for table, location in known.items() if location is None))
    lookups = _looked_up(operator, context, missing, new) if missing else {}
    for lookup in lookups.values():
        if isinstance(lookup, Location) and lookup.table_id:
            cache.set(lookup)
    return {
        table: _location(lookups[table.strip()]) if location is None else location
        for table, location in known.items()
    }


def _known(
    operator: DeltaCdcOperator, cache: NameCache, table: str, targets: Mapping[str, TargetName]
) -> str | DeltaCdcError | None:
    """Return what is known of a table without Spark: its location, or its error; None if nothing is."""
    name = table.strip()
    try:
        return _cached(operator, cache, name, targets.get(name)) if is_name(name) else table
    except DeltaCdcError as error:
        return error


def _location(lookup: Location | DeltaCdcError) -> str | DeltaCdcError:
    return lookup.location if isinstance(lookup, Location) else lookup


def _cached(
    operator: DeltaCdcOperator, cache: NameCache, name: str, target: TargetName | None = None
) -> str | None:
    """Return the location in the cache, if it is still valid."""

    entry = cache.get(name, operator.spark_conn_id or "")
    if entry is None:
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
        result = operator.run_apart(
            context, engine.ResolveSpec(run_id=context["run_id"], tables=tuple(names), targets=new)
        )
    except DeltaCdcError as error:
        return dict.fromkeys(names, error)
    found = {row["table"]: _looked_up_location(operator, row) for row in result.tables}
    missing = JobFailed(
        "The Spark application that looked up tables did not answer about all of them.",
        remedy="check that workers and Spark have the same version of this package; a retry is safe.",
    )
    return {name: found.get(name, missing) for name in names}


def _looked_up_location(operator: DeltaCdcOperator, row: Mapping[str, Any]) -> Location | DeltaCdcError:
    """Return the location in the application's answer about one name, or the error."""
    if "error" in row:
        return DeltaCdcError.from_dict(row["error"])
    try:
        location = canonical_uri(row["location"])
    except DeltaCdcError as error:
        return type(error)(f"{row['table']}: {error.message}", remedy=error.remedy)
    return Location(
        name=row["table"],
        location=location,
        table_id=row["table_id"],
        spark_conn_id=operator.spark_conn_id or "",
        recorded=row.get("recorded", ""),
    )
