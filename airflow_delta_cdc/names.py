"""The cache that keeps the locations of tables by catalog name; :mod:`airflow_delta_cdc.lookups` fills it."""

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
from delta_cdc.core.errors import NotADeltaTable, TableNameMoved, TableNotFound
from delta_cdc.core.properties import CATALOG_NAME
from delta_cdc.core.uris import is_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.types import Logger

    from delta_cdc.core.spec import JobResult, Spec


@dataclass(frozen=True)
class Location:
    """The location of a catalog name.

    :param table_id: ``metaData.id`` of the table at that location
    :param spark_conn_id: connection whose catalog has the name; empty for the Spark inside the worker
    :param recorded: the name that the table itself recorded; "" if it did not. It changes if ``delta-cdc
        promote`` gives the name to another table, while this one stays where it is
    """

    name: str
    location: str
    table_id: str
    spark_conn_id: str
    recorded: str = ""

    def problem(self, storage_options: dict[str, str] | None, *, may_be_new: bool = False) -> str:
        """Return why the name no longer is that of the table at the location; "" if it may be.

        The table's log shows it, without a JVM.

        :param may_be_new: the caller deals with a table that was dropped, or made again
        """
        try:
            state = engine.run_sync(engine.DeltaLog(self.location, storage_options).snapshot())
        except (TableNotFound, NotADeltaTable):
            return "" if may_be_new else f"The location of {self.name} is no longer {self.location}."
        if state.table_id != self.table_id:
            return "" if may_be_new else f"The table at {self.location} is no longer that of {self.name}."
        recorded = state.configuration.get(CATALOG_NAME, "")
        if recorded != self.recorded:
            return f"The table at {self.location} is now that of {recorded or 'no name'}, not of {self.name}."
        return ""


def cached_location(
    context: Context, table: str, storage_options: dict[str, str] | None = None
) -> str | None:
    """Return the cached location of a table, for callers without Spark.

    :param table: path, URI or name
    :return: a path or URI unchanged; a name's location, or None if no task has looked it up since the name
        was given to the table
    :raises TableNameMoved: the catalogs of several connections have different tables of this name
    """
    name = table.strip()
    if not is_name(name):
        return table
    task: Any = context.get("task")
    cache = NameCache(context, getattr(task, "inlets", ()), getattr(task, "log", None))
    found = [one for one in cache.all(name) if not one.problem(storage_options, may_be_new=True)]
    if len({one.location for one in found}) > 1:
        where = "; ".join(f"{one.location} ({one.spark_conn_id or 'Spark in the worker'})" for one in found)
        raise TableNameMoved(
            f"{name} is the name of different tables in the catalogs of several connections: {where}.",
            remedy="give the location of the table instead of its name, because this task has no Spark "
            "connection that would say which one.",
        )
    return found[0].location if found else None


def forget_moved(operator: BaseOperator, context: Context, spec: Spec, result: JobResult) -> None:
    """Delete from the cache the names that a job found at another location.

    The next try looks them up again.
    """
    results = result.parts or (result,)
    cache = NameCache(context, operator.inlets, operator.log)
    for part, part_result in zip(spec.each, results, strict=False):
        error = (part_result.error or {}).get("class")
        if error == TableNameMoved.__name__:
            for name in part.catalog_names:
                cache.delete(name)


class NameCache:
    """Keep locations in the asset state store of the task's table, or else in a file of this machine.

    If the cache fails, the task does not: a Spark application looks the name up.
    """

    def __init__(self, context: Context, inlets: Sequence[Any], log: Logger | None) -> None:
        self._stores: Any = context.get("asset_state_store")
        self._inlets = inlets
        self._log = log

    def get(self, name: str, spark_conn_id: str) -> Location | None:
        """Return the kept location of a name in the catalog of a connection; None without one."""
        return next((one for one in self.all(name) if one.spark_conn_id == spark_conn_id), None)

    def all(self, name: str) -> tuple[Location, ...]:
        """Return the kept locations of a name, at most one for each connection."""
        store = self._store(name)
        if store is not None:
            try:
                entries = _read(store.get(_key(name)), name)
            except Exception as error:  # noqa: BLE001 - whatever the database's error, Spark can look the name up
                self._warn("The location of %s could not be read from the asset state store: %s", name, error)
            else:
                if entries:
                    return entries
        return _read_file(_file(name), name)

    def set(self, entry: Location) -> None:
        """Keep a location under its name and connection.

        Of two tasks that do this at the same moment, one may have to look up its name again.
        """
        others = (one for one in self.all(entry.name) if one.spark_conn_id != entry.spark_conn_id)
        value = {"name": entry.name, "locations": [asdict(one) for one in (*others, entry)]}
        store = self._store(entry.name)
        if store is not None:
            try:
                store.set(_key(entry.name), value)
            except Exception as error:  # noqa: BLE001 - the next reader looks the name up in Spark again
                self._warn(
                    "The location of %s could not be kept in the asset state store: %s", entry.name, error
                )
            else:
                return
        try:
            _write_file(_file(entry.name), value)
        except OSError as error:
            self._warn("The location of %s could not be kept: %s", entry.name, error)

    def delete(self, name: str) -> None:
        """Delete the locations of a name; a missing one is no error."""
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


def _read(value: Any, name: str) -> tuple[Location, ...]:
    """Return the entries for this name; none of another release, or of anything else."""
    if not isinstance(value, dict) or value.get("name") != name:
        return ()
    rows = value.get("locations")
    return tuple(filter(None, map(_entry, rows if isinstance(rows, list) else ())))


def _entry(row: Any) -> Location | None:
    try:
        entry = Location(**row)
    except TypeError:
        return None
    return entry if all(isinstance(part, str) for part in asdict(entry).values()) else None


def _file(name: str) -> Path:
    return engine.cache_home() / "names" / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def _read_file(path: Path, name: str) -> tuple[Location, ...]:
    try:
        return _read(codec.parsed(path.read_text(encoding="utf-8")), name)
    except (OSError, ValueError):
        # The file is missing or incomplete: Spark looks the name up.
        return ()


def _write_file(path: Path, value: dict[str, Any]) -> None:
    """Write the entries of a name in one step, for this user only."""
    with replacing(path) as file:
        file.write(json.dumps(value).encode())
