"""Tables by catalog name: Spark is asked once where a table lies, and the answer is kept."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import Asset

from airflow_delta_cdc import engine
from airflow_delta_cdc.assets import delta_asset
from delta_cdc.core.drafts import replacing
from delta_cdc.core.errors import DeltaCdcError, NotADeltaTable, TableNameUnresolved, TableNotFound
from delta_cdc.core.spec import ResolveSpec
from delta_cdc.core.uris import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from airflow.sdk import Context
    from airflow.sdk.types import Logger

    from airflow_delta_cdc.operators.base import DeltaCdcOperator


@dataclass(frozen=True)
class Location:
    """Where the table behind a name lies.

    :param table_id: ``metaData.id`` of the table that was found there
    :param spark_conn_id: whose catalog it was; empty for the Spark inside the worker
    """

    name: str
    location: str
    table_id: str
    spark_conn_id: str


def located(operator: DeltaCdcOperator, context: Context, tables: Sequence[str]) -> dict[str, str]:
    """Return the locations of tables by what names them; see :func:`each_located`.

    :raises TableNotFound: for a name that the catalog does not know
    :raises NotADeltaTable: for a view, or a table of another format
    """
    return chosen(each_located(operator, context, tables), tables)


def chosen(at: Mapping[str, str | DeltaCdcError], tables: Iterable[str]) -> dict[str, str]:
    """Return the locations of some tables.

    :param at: what :func:`each_located` returned
    :raises DeltaCdcError: one of the tables has none
    """
    found = {}
    for table in tables:
        location = at[table]
        if isinstance(location, DeltaCdcError):
            raise location
        found[table] = location
    return found


def each_located(
    operator: DeltaCdcOperator, context: Context, tables: Iterable[str]
) -> dict[str, str | DeltaCdcError]:
    """Return the locations of tables by what names them, or why a table has none.

    A path or URI is its own location. A name is looked up in the cache. What the cache holds counts only if
    the table at that location still has its id, which its log shows without a JVM. One Spark application
    looks up all other names.

    :param operator: whose Spark is used
    :param tables: paths, URIs or names of one to three parts
    """
    cache = _Cache(context, operator.inlets, operator.log)
    found: dict[str, str | DeltaCdcError] = {}
    missing: list[str] = []
    tables = list(dict.fromkeys(tables))
    for table in tables:
        name = table.strip()
        location = _cached(operator, cache, name) if _is_name(name) else table
        if location is None:
            missing.append(name)
        else:
            found[table] = location
    answers = _looked_up(operator, context, list(dict.fromkeys(missing))) if missing else {}
    for answer in answers.values():
        if isinstance(answer, Location):
            cache.set(answer)
    for table in tables:
        if table not in found:
            answer = answers[table.strip()]
            found[table] = answer.location if isinstance(answer, Location) else answer
    return found


def cached_location(context: Context, table: str) -> str | None:
    """Return what is kept about a table, for those who cannot ask Spark. Whether it still holds, they check.

    :param table: path, URI or name
    :return: a path or URI as it is; a name's location, or None where no task has looked it up yet
    """
    name = table.strip()
    if not _is_name(name):
        return table
    task: Any = context.get("task")
    entry = _Cache(context, getattr(task, "inlets", ()), getattr(task, "log", None)).get(name)
    return entry.location if entry else None


def _is_name(table: str) -> bool:
    try:
        canonical_uri(table)
    except TableNameUnresolved:
        return True
    return False


def _cached(operator: DeltaCdcOperator, cache: _Cache, name: str) -> str | None:
    """Return the location in the cache, if it still holds."""

    entry = cache.get(name)
    if entry is None or entry.spark_conn_id != (operator.spark_conn_id or ""):
        return None
    try:
        state = engine.run_sync(engine.DeltaLog(entry.location, operator.options_of_storage()).snapshot())
    except (TableNotFound, NotADeltaTable):
        operator.log.info("%s does not lie at %s any more.", name, entry.location)
        return None
    if state.table_id == entry.table_id:
        return entry.location
    operator.log.info("Another table than the one of %s lies at %s now.", name, entry.location)
    return None


def _looked_up(
    operator: DeltaCdcOperator, context: Context, names: Sequence[str]
) -> dict[str, Location | DeltaCdcError]:
    """Look names up by one Spark application; a name that it does not find has its error."""
    operator.log.info("Looking up in Spark's catalog where %s lies", ", ".join(names))
    try:
        result = operator.run_to_end(context, ResolveSpec(run_id=context["run_id"], tables=tuple(names)))
    except DeltaCdcError as error:
        return dict.fromkeys(names, error)
    found: dict[str, Location | DeltaCdcError] = {}
    for row in result.tables:
        name = row["table"]
        if "error" in row:
            found[name] = DeltaCdcError.from_dict(row["error"])
            continue
        found[name] = Location(
            name=name,
            location=canonical_uri(row["location"]),
            table_id=row["table_id"],
            spark_conn_id=operator.spark_conn_id or "",
        )
    return found


class _Cache:
    """Keeps locations: in the asset state store of the task's table, else in a file of this machine.

    A cache that fails costs a Spark application, never the task.
    """

    def __init__(self, context: Context, inlets: Sequence[Any], log: Logger | None) -> None:
        self._stores: Any = context.get("asset_state_store")
        self._inlets = inlets
        self._log = log

    def get(self, name: str) -> Location | None:
        store = self._store(name)
        if store is not None:
            try:
                kept = _read(store.get(_key(name)), name)
            except Exception as error:  # noqa: BLE001 - whatever the database says, Spark can be asked
                self._warn("The location of %s could not be read from the asset state store: %s", name, error)
            else:
                if kept is not None:
                    return kept
        return _read_file(_file(name), name)

    def set(self, entry: Location) -> None:
        store = self._store(entry.name)
        if store is not None:
            try:
                store.set(_key(entry.name), asdict(entry))
            except Exception as error:  # noqa: BLE001 - the next one who reads asks Spark again
                self._warn(
                    "The location of %s could not be kept in the asset state store: %s", entry.name, error
                )
            else:
                return
        try:
            _write_file(_file(entry.name), entry)
        except OSError as error:
            self._warn("The location of %s could not be kept: %s", entry.name, error)

    def _store(self, name: str) -> Any:
        """Return the store of the table's own asset, if the task has it, else of the task's first one."""
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
    """Read an entry; what is no entry for this name is not there."""
    if not isinstance(value, dict) or value.get("name") != name:
        return None
    try:
        entry = Location(**value)
    except TypeError:
        # Of another release.
        return None
    return entry if all(isinstance(part, str) for part in asdict(entry).values()) else None


def _file(name: str) -> Path:
    return engine.cache_home() / "names" / f"{hashlib.sha256(name.encode()).hexdigest()}.json"


def _read_file(path: Path, name: str) -> Location | None:
    try:
        return _read(json.loads(path.read_text(encoding="utf-8")), name)
    except (OSError, ValueError):
        # Not there, or not whole: both cost nothing but asking Spark.
        return None


def _write_file(path: Path, entry: Location) -> None:
    """Write an entry in one step, for this user only."""
    with replacing(path) as file:
        file.write(json.dumps(asdict(entry)).encode())
