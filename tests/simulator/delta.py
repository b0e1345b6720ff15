"""A small Delta client: it writes real commit files into the store, and reads them as Spark would.

It shares no code with the project, only the names of a log's columns. Data files are JSON under the names of
Parquet files: nothing of the project reads their contents when it plans.
"""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from delta_cdc.core.change_log import LOG_COLUMNS
from tests.simulator.store import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulator.store import Store, Stored

Row = list[Any]
Action = dict[str, Any]


def _schema(*names: str) -> str:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in names]
    return json.dumps({"type": "struct", "fields": fields})


_ROWS = _schema("id", "value")
#: By the kind of a target; nothing here depends on the types.
_SCHEMAS = {
    "type2": _schema("id", "value", "__START_AT", "__END_AT"),
    "log": _schema("id", "value", *LOG_COLUMNS),
}


_TEXTS = pa.map_(pa.string(), pa.string())
_FILE = [("path", pa.string()), ("partitionValues", _TEXTS), ("size", pa.int64()), ("dataChange", pa.bool_())]
_CHECKPOINT = pa.schema(
    {
        "txn": pa.struct([("appId", pa.string()), ("version", pa.int64()), ("lastUpdated", pa.int64())]),
        "add": pa.struct([*_FILE, ("modificationTime", pa.int64()), ("stats", pa.string())]),
        "metaData": pa.struct(
            [
                ("id", pa.string()),
                ("format", pa.struct([("provider", pa.string()), ("options", _TEXTS)])),
                ("schemaString", pa.string()),
                ("partitionColumns", pa.list_(pa.string())),
                ("configuration", _TEXTS),
                ("createdTime", pa.int64()),
            ]
        ),
        "protocol": pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())]),
    }
)


class Conflict(Exception):
    """Delta's exception: another writer committed first. Its text has Delta's name for the conflict."""


class Missing(Exception):
    """A data file, a version or a table is gone."""


@dataclass
class Snapshot:
    """A table at a version; the version is -1 without a table."""

    version: int = -1
    metadata: Action = field(default_factory=dict)
    files: dict[str, Action] = field(default_factory=dict)
    txns: dict[str, int] = field(default_factory=dict)

    def following(self, version: int, actions: Iterable[Action]) -> Snapshot:
        """Return the table after one more commit."""
        after = Snapshot(version, self.metadata, dict(self.files), dict(self.txns))
        for action in actions:
            if "metaData" in action:
                after.metadata = action["metaData"]
            elif "add" in action:
                after.files[action["add"]["path"]] = action["add"]
            elif "remove" in action:
                after.files.pop(action["remove"]["path"], None)
            elif "txn" in action:
                after.txns[action["txn"]["appId"]] = action["txn"]["version"]
        return after


#: What a statement wants to write: operation, parameters, metrics, actions after commitInfo.
Written = tuple[str, dict[str, Any], dict[str, int], list[Action]]


class Table:
    """One table of the bucket.

    :param name: its folder
    """

    def __init__(self, store: Store, name: str) -> None:
        self.store = store
        self.name = name
        #: The commit files that log cleanup has deleted: who watches the world still knows them.
        self.cleaned: dict[int, Stored] = {}
        self.checkpoints: list[int] = []
        #: What they hold, even if a commit file below them was overwritten since.
        self._states: dict[int, Snapshot] = {}
        self._parsed: dict[str, tuple[str, list[Action]]] = {}
        self._read: dict[str, tuple[str, list[Row]]] = {}
        #: What was found by the store's number of changes then.
        self._newest = (-1, -1)
        self._known: dict[int, tuple[int, Snapshot]] = {}
        self._keys: list[str] = []
        self._snapshots: dict[int, tuple[tuple[str, ...], Snapshot]] = {}
        self._files = 0

    # -- the log --------------------------------------------------------------------------------------
    def key(self, version: int) -> str:
        assert version >= 0
        while len(self._keys) <= version:
            self._keys.append(f"{self.name}/_delta_log/{len(self._keys):020d}.json")
        return self._keys[version]

    @property
    def newest(self) -> int:
        objects = self.store.objects
        changes, version = self._newest
        if changes != objects.changes:
            version = -1
            while version + 1 in self.cleaned or self.key(version + 1) in objects:
                version += 1
            self._newest = objects.changes, version
        return version

    def actions(self, version: int) -> list[Action]:
        key, stored = self.key(version), self.stored(version)
        if stored is None:
            raise Missing(f"DELTA_VERSION_NOT_FOUND {version} of {self.name}")
        known = self._parsed.get(key)
        if known is None or known[0] != stored.e_tag:
            known = stored.e_tag, [json.loads(line) for line in stored.content.splitlines()]
            self._parsed[key] = known
        return known[1]

    def stored(self, version: int) -> Stored | None:
        """Return a commit file, even if log cleanup has deleted it."""
        return self.cleaned.get(version) or self.store.objects.get(self.key(version))

    def travel(self, version: int) -> Snapshot:
        """Return a version as Spark can read it.

        :raises Missing: log cleanup has deleted what it needs
        """
        if self.cleaned and not any(len(self.cleaned) - 1 <= one <= version for one in self.checkpoints):
            raise Missing(f"DELTA_VERSION_NOT_FOUND {version} of {self.name}")
        return self.snapshot(version)

    def info(self, version: int) -> Action:
        return next(action["commitInfo"] for action in self.actions(version) if "commitInfo" in action)

    def snapshot(self, version: int | None = None) -> Snapshot:
        newest = self.newest if version is None else version
        changes = self.store.objects.changes
        known_now = self._known.get(newest)
        if known_now is not None and known_now[0] == changes:
            return known_now[1]
        found = self._replayed(newest)
        self._known[newest] = changes, found
        return found

    def _replayed(self, newest: int) -> Snapshot:
        tags: tuple[str, ...] = ()
        found = Snapshot()
        for one in range(newest + 1):
            stored = self.stored(one)
            if stored is None:
                raise Missing(f"DELTA_VERSION_NOT_FOUND {one} of {self.name}")
            tags = (*tags, stored.e_tag)
            if one in self._states:
                found = self._states[one]
                continue
            known = self._snapshots.get(one)
            if known is None or known[0] != tags:
                known = tags, found.following(one, self.actions(one))
                self._snapshots[one] = known
            found = known[1]
        return found

    # -- checkpoints ----------------------------------------------------------------------------------
    def checkpoint(self) -> int:
        """Write a checkpoint of the newest version, as Parquet, and the hint to it."""
        now = self.snapshot()
        rows: list[Action] = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}]
        metadata = {**now.metadata, "configuration": list(now.metadata["configuration"].items())}
        rows.append({"metaData": {**metadata, "format": {"provider": "parquet", "options": []}}})
        rows += [{"txn": {"appId": app, "version": number}} for app, number in now.txns.items()]
        rows += [{"add": {**add, "partitionValues": []}} for add in now.files.values()]
        table, content = pa.Table.from_pylist(rows, _CHECKPOINT), io.BytesIO()
        pq.write_table(table, content, compression="snappy")
        log = f"{self.name}/_delta_log"
        self.store.write(f"{log}/{now.version:020d}.checkpoint.parquet", content.getvalue())
        hint = {"version": now.version, "size": len(rows)}
        self.store.write(f"{log}/_last_checkpoint", json.dumps(hint).encode())
        self.checkpoints.append(now.version)
        self._states[now.version] = now
        return now.version

    def clean(self, before: int) -> None:
        """Delete the commit files before a version, as log cleanup does after a checkpoint."""
        for version in range(len(self.cleaned), before):
            stored = self.store.objects.pop(self.key(version))
            assert stored is not None
            self.cleaned[version] = stored
        for version in [one for one in self.checkpoints if one < before]:
            self.store.objects.pop(f"{self.name}/_delta_log/{version:020d}.checkpoint.parquet")
            self.checkpoints.remove(version)

    def put_back(self, version: int) -> bool:
        """Put the table back from a copy of its files as of a version; return whether it could be.

        Log cleanup and VACUUM keep what a copy needs.
        """
        whole = not self.cleaned and not self.checkpoints
        paths = self.snapshot(version).files
        if not whole or any(f"{self.name}/{path}" not in self.store.objects for path in paths):
            return False
        for later in range(self.newest, version, -1):
            self.store.objects.pop(self.key(later))
        return True

    def forget(self) -> None:
        """Delete the whole log."""
        for version in range(self.newest, -1, -1):
            self.store.objects.pop(self.key(version))
        self.cleaned.clear()
        self.checkpoints.clear()
        self._states.clear()
        for key in [key for key in self.store.objects if key.startswith(f"{self.name}/_delta_log/")]:
            self.store.objects.pop(key)

    # -- rows -----------------------------------------------------------------------------------------
    def read(self, path: str) -> list[Row]:
        stored = self.store.objects.get(f"{self.name}/{path}")
        if stored is None:
            raise Missing(f"FAILED_READ_FILE.FILE_NOT_EXIST {path}")
        known = self._read.get(path)
        if known is None or known[0] != stored.e_tag:
            known = self._read[path] = stored.e_tag, json.loads(stored.content)
        return known[1]

    def rows(self, snapshot: Snapshot) -> list[Row]:
        return [row for path in snapshot.files for row in self.read(path)]

    def add(self, rows: list[Row], *, data_change: bool = True) -> Action:
        """Write a data file, and return its action."""
        path = self._write("part", rows)
        return {
            "add": {
                "path": path,
                "partitionValues": {},
                "size": self._size(path),
                "modificationTime": self.store.hub.now,
                "dataChange": data_change,
                "stats": json.dumps({"numRecords": len(rows)}),
            }
        }

    def remove(self, path: str, *, data_change: bool = True) -> Action:
        return {
            "remove": {
                "path": path,
                "deletionTimestamp": self.store.hub.now,
                "dataChange": data_change,
                "extendedFileMetadata": True,
                "partitionValues": {},
                "size": self._size(path) if f"{self.name}/{path}" in self.store.objects else 0,
            }
        }

    def cdc(self, rows: list[Row]) -> Action:
        path = self._write("_change_data/cdc", rows)
        return {"cdc": {"path": path, "partitionValues": {}, "size": self._size(path), "dataChange": False}}

    def replaced(self, rows: list[Row], keys: set[int], snapshot: Snapshot) -> list[Action]:
        """Return the actions that replace the rows of some keys, by copy on write."""
        actions = []
        kept: list[Row] = []
        for path in snapshot.files:
            found = self.read(path)
            if any(row[0] in keys for row in found):
                actions.append(self.remove(path))
                kept += [row for row in found if row[0] not in keys]
        if kept or rows:
            actions.append(self.add(sorted([*kept, *rows], key=str)))
        return actions

    def created(self, table_id: str, configuration: dict[str, str], kind: str = "") -> list[Action]:
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
            {
                "metaData": {
                    "id": table_id,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": _SCHEMAS.get(kind, _ROWS),
                    "partitionColumns": [],
                    "configuration": configuration,
                    "createdTime": self.store.hub.now,
                }
            },
        ]

    def _write(self, kind: str, rows: list[Row]) -> str:
        self._files += 1
        path = f"{kind}-{self._files:05d}.snappy.parquet"
        self.store.write(f"{self.name}/{path}", json.dumps(rows).encode())
        return path

    def _size(self, path: str) -> int:
        return len(self.store.objects[f"{self.name}/{path}"].content)

    # -- commits --------------------------------------------------------------------------------------
    def put(self, version: int, written: Written, *, blind: bool, extra: Action | None = None) -> bytes:
        """Return the bytes of a commit file."""
        operation, parameters, metrics, actions = written
        info = {
            "timestamp": self.store.hub.now,
            "operation": operation,
            "operationParameters": parameters,
            "isolationLevel": "Serializable",
            "isBlindAppend": blind,
            "operationMetrics": {name: str(value) for name, value in metrics.items()},
            "engineInfo": "Apache-Spark/4.0.0 Delta-Lake/4.0.0",
            "txnId": f"{self.name}-{version}-{self.store.hub.steps}",
            **(extra or {}),
        }
        lines = [json.dumps({"commitInfo": info}, separators=(",", ":"))]
        lines += [json.dumps(action, separators=(",", ":")) for action in actions]
        return ("\n".join(lines) + "\n").encode()

    def commit(self, operation: str, actions: list[Action], **given: Any) -> int:
        """Commit at once, as a writer whose steps do not matter here."""
        version = self.newest + 1
        written = operation, given.get("parameters", {}), given.get("metrics", {}), actions
        self.store.create(self.key(version), self.put(version, written, blind=False))
        return version


def attempt(
    table: Table,
    begun: Snapshot,
    written: Written,
    *,
    blind: bool,
    extra: Action,
    create: Callable[[str, bytes], None],
) -> int:
    """Commit as Delta does: to the next version that is free, unless a commit between is in conflict.

    :param begun: what the statement has read
    :param create: creates the commit file, or raises :class:`AlreadyExists`
    """
    version = begun.version + 1
    while True:
        try:
            create(table.key(version), table.put(version, written, blind=blind, extra=extra))
        except AlreadyExists:
            _refuse(table.actions(version), written, blind=blind)
            version += 1
            continue
        return version


def _refuse(winner: list[Action], written: Written, *, blind: bool) -> None:
    """Raise Delta's exception if a commit that came first is in conflict."""
    mine = written[3]
    apps = {action["txn"]["appId"] for action in mine if "txn" in action}
    if any("protocol" in action for action in winner):
        raise Conflict("DELTA_PROTOCOL_CHANGED ProtocolChangedException")
    if any("metaData" in action for action in winner):
        raise Conflict("DELTA_METADATA_CHANGED MetadataChangedException")
    if any("txn" in action and action["txn"]["appId"] in apps for action in winner):
        raise Conflict("DELTA_CONCURRENT_TRANSACTION ConcurrentTransactionException")
    removed = {action["remove"]["path"] for action in winner if "remove" in action}
    if not blind:
        if any(action.get("add", {}).get("dataChange") for action in winner):
            raise Conflict("DELTA_CONCURRENT_APPEND ConcurrentAppendException")
        if any(action.get("remove", {}).get("dataChange") for action in winner):
            raise Conflict("DELTA_CONCURRENT_DELETE_READ ConcurrentDeleteReadException")
    if removed & {action["remove"]["path"] for action in mine if "remove" in action}:
        raise Conflict("DELTA_CONCURRENT_DELETE_DELETE ConcurrentDeleteDeleteException")
