"""Tables by catalog name: Spark looks a name up once, and a cache keeps the location."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset

from airflow_delta_cdc import engine
from airflow_delta_cdc.assets import delta_asset
from delta_cdc.core import codec
from delta_cdc.core.drafts import replacing
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNameMoved, TableNotFound
from delta_cdc.core.spec import ResolveSpec
from delta_cdc.core.uris import canonical_uri, is_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from airflow_delta_cdc.operators.base import DeltaCdcOperator
    from delta_cdc.core.spec import JobResult, Spec, TargetName


@dataclass(frozen=True)
class Location:
    """The location of a catalog name.

    :param table_id: ``metaData.id`` of the table at that location
    :param spark_conn_id: connection whose catalog has the name; empty for the Spark inside the worker
    """

    name: str
    location: str
    table_id: str
    spark_conn_id: str


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
    table there still has the cached id, which its log shows without a JVM. One Spark application looks up all
    other names.

    :param operator: provides the Spark
    :param tables: paths, URIs or names of one to three parts
    :param targets: those of the names whose tables need not exist: a new one gets the location where it is to
        be created, which is not cached
    """
    cache = _Cache(context, operator.inlets, operator.log)
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


def cached_location(context: Context, table: str) -> str | None:
    """Return the cached location of a table, for callers without Spark. They check whether it is still valid.

    :param table: path, URI or name
    :return: a path or URI unchanged; a name's location, or None if no task has looked it up yet
    """
    name = table.strip()
    if not is_name(name):
        return table
    task: Any = context.get("task")
    entry = _Cache(context, getattr(task, "inlets", ()), getattr(task, "log", None)).get(name)
    return entry.location if entry else None


def forget_moved(operator: DeltaCdcOperator, context: Context, spec: Spec, result: JobResult) -> None:
    """Delete from the cache the names that a job found at another location.

    The next try looks them up again.
    """
    results = result.parts or (result,)
    cache = _Cache(context, operator.inlets, operator.log)
    for part, part_result in zip(spec.each, results, strict=False):
        error = (part_result.error or {}).get("class")
        if error == TableNameMoved.__name__:
            for name in part.catalog_names:
                cache.delete(name)


def _cached(
    operator: DeltaCdcOperator, cache: _Cache, name: str, target: TargetName | None = None
) -> str | None:
    """Return the location in the cache, if it is still valid."""

    entry = cache.get(name)
    if entry is None or entry.spark_conn_id != (operator.spark_conn_id or ""):
        return None
    if target is not None and target.location and canonical_uri(target.location) != entry.location:
        return None
    try:
        state = engine.run_sync(engine.DeltaLog(entry.location, operator.options_of_storage()).snapshot())
    except (TableNotFound, NotADeltaTable):
        operator.log.info("The location of %s is no longer %s.", name, entry.location)
        return None
    if state.table_id == entry.table_id:
        return entry.location
    operator.log.info("The table at %s is no longer that of %s.", entry.location, name)
    return None


def _looked_up(
    operator: DeltaCdcOperator, context: Context, names: Sequence[str], targets: Mapping[str, TargetName]
) -> dict[str, Location | DeltaCdcError]:
    """Look names up by one Spark application; return the location or the error of each."""
    operator.log.info("Looking up the location of %s in Spark's catalog", ", ".join(names))
    new = tuple(targets[name] for name in names if name in targets)
    try:
        result = operator.run_to_end(
            context, ResolveSpec(run_id=context["run_id"], tables=tuple(names), targets=new)
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
        )
    return locations


class _Cache:
    """Keep locations in the asset state store of the task's table, or else in a file of this machine.

    If the cache fails, the task does not: a Spark application looks the name up.
    """

    def __init__(self, context: Context, inlets: Sequence[Any], log: Logger | None) -> None:
        self._stores: Any = context.get("asset_state_store")
        self._inlets = inlets
        self._log = log

    def get(self, name: str) -> Location | None:
        store = self._store(name)
        if store is not None:
            try:
                entry = _read(store.get(_key(name)), name)
            except Exception as error:  # noqa: BLE001 - whatever the database's error, Spark can look the name up
                self._warn("The location of %s could not be read from the asset state store: %s", name, error)
            else:
                if entry is not None:
                    return entry
        return _read_file(_file(name), name)

    def set(self, entry: Location) -> None:
        store = self._store(entry.name)
        if store is not None:
            try:
                store.set(_key(entry.name), asdict(entry))
            except Exception as error:  # noqa: BLE001 - the next reader looks the name up in Spark again
                self._warn(
                    "The location of %s could not be kept in the asset state store: %s", entry.name, error
                )
            else:
                return
        try:
            _write_file(_file(entry.name), entry)
        except OSError as error:
            self._warn("The location of %s could not be kept: %s", entry.name, error)

    def delete(self, name: str) -> None:
        store = self._store(name)
        if store is not None:
            try:
                store.delete(_key(name))
            except Exception as error:  # noqa: BLE001 - the next job finds the same, and says so again
                self._warn("The location of %s could not be deleted: %s", name, error)
        with suppress(OSError):
            _file(name).unlink()

    def _store(self, name: str) -> Any:
        """Return the store of the table's own asset, if it is an inlet, or else of the first inlet."""
        if self._stores is None:
            return None
        for asset in (delta_asset(name), *self._inlets):
            if not isinstance(asset, Asset):
                continue
            try:
                return self._stores[asset]
            except KeyError:
                # Not an inlet of this task.
                continue
        return None

    def _warn(self, text: str, *values: Any) -> None:
        if self._log is not None:
            self._log.warning(text, *values)


def _key(name: str) -> str:
    return f"location:{name}"[:512]


def _read(value: Any, name: str) -> Location | None:
    """Return the entry for this name; None if the value is not one."""
    if not isinstance(value, dict) or value.get("name") != name:
        return None
    try:
        entry = Location(**value)
    except TypeError:
        # Another release wrote the entry.
        return None
    return entry if all(isinstance(part, str) for part in asdict(entry).values()) else None


def _file(name: str) -> Path:
    return engine.cache_home() / "names" / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def _read_file(path: Path, name: str) -> Location | None:
    try:
        return _read(codec.parsed(path.read_text(encoding="utf-8")), name)
    except (OSError, ValueError):
        # The file is missing or incomplete: Spark looks the name up.
        return None


def _write_file(path: Path, entry: Location) -> None:
    """Write an entry in one step, for this user only."""
    with replacing(path) as file:
        file.write(json.dumps(asdict(entry)).encode())
