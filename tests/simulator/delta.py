"""A small Delta client: it writes real commit files into the store, and reads them as Spark would.

It shares no code with the project. Data files are JSON under the names of Parquet files: nothing of the
project reads their contents when it plans.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulator.store import AlreadyExists

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.simulator.store import Store

Row = list[Any]
Action = dict[str, Any]
_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "value")
        ],
    }
)
_HISTORY = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": "long", "nullable": True, "metadata": {}}
            for name in ("id", "value", "__START_AT", "__END_AT")
        ],
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
        self._parsed: dict[str, tuple[str, list[Action]]] = {}
        self._snapshots: dict[int, tuple[tuple[str, ...], Snapshot]] = {}
        self._files = 0

    # -- the log --------------------------------------------------------------------------------------
    def key(self, version: int) -> str:
        return f"{self.name}/_delta_log/{version:020d}.json"

    @property
    def newest(self) -> int:
        version = -1
        while self.key(version + 1) in self.store.objects:
            version += 1
        return version

    def actions(self, version: int) -> list[Action]:
        key = self.key(version)
        stored = self.store.objects.get(key)
        if stored is None:
            raise Missing(f"DELTA_VERSION_NOT_FOUND {version} of {self.name}")
        known = self._parsed.get(key)
        if known is None or known[0] != stored.e_tag:
            known = stored.e_tag, [json.loads(line) for line in stored.content.splitlines()]
            self._parsed[key] = known
        return known[1]

    def info(self, version: int) -> Action:
        return next(action["commitInfo"] for action in self.actions(version) if "commitInfo" in action)

    def snapshot(self, version: int | None = None) -> Snapshot:
        newest = self.newest if version is None else version
        tags: tuple[str, ...] = ()
        found = Snapshot()
        for one in range(newest + 1):
            stored = self.store.objects.get(self.key(one))
            if stored is None:
                raise Missing(f"DELTA_VERSION_NOT_FOUND {one} of {self.name}")
            tags = (*tags, stored.e_tag)
            known = self._snapshots.get(one)
            if known is None or known[0] != tags:
                known = tags, found.following(one, self.actions(one))
                self._snapshots[one] = known
            found = known[1]
        return found

    # -- rows -----------------------------------------------------------------------------------------
    def read(self, path: str) -> list[Row]:
        stored = self.store.objects.get(f"{self.name}/{path}")
        if stored is None:
            raise Missing(f"FAILED_READ_FILE.FILE_NOT_EXIST {path}")
        rows: list[Row] = json.loads(stored.content)
        return rows

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

    def created(self, table_id: str, configuration: dict[str, str], *, history: bool = False) -> list[Action]:
        return [
            {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
            {
                "metaData": {
                    "id": table_id,
                    "format": {"provider": "parquet", "options": {}},
                    "schemaString": _HISTORY if history else _SCHEMA,
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
