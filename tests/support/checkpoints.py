"""Checkpoints of hand-written logs, in every form that Delta's protocol knows."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.logs import LogTable

_TEXTS = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_COLUMNS: dict[str, pa.DataType] = {
    "protocol": pa.struct(
        {
            "minReaderVersion": pa.int32(),
            "minWriterVersion": pa.int32(),
            "readerFeatures": pa.list_(pa.string()),
            "writerFeatures": pa.list_(pa.string()),
        }
    ),
    "metaData": pa.struct(
        {
            "id": pa.string(),
            "name": pa.string(),
            "format": pa.struct({"provider": pa.string(), "options": _TEXTS}),
            "schemaString": pa.string(),
            "partitionColumns": pa.list_(pa.string()),
            "configuration": _TEXTS,
            "createdTime": pa.int64(),
        }
    ),
    "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
    "domainMetadata": pa.struct({"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}),
    "add": pa.struct(
        {
            "path": pa.string(),
            "partitionValues": _TEXTS,
            "size": pa.int64(),
            "modificationTime": pa.int64(),
            "dataChange": pa.bool_(),
            "stats": pa.string(),
            "tags": _TEXTS,
            "deletionVector": _VECTOR,
        }
    ),
    "remove": pa.struct(
        {
            "path": pa.string(),
            "deletionTimestamp": pa.int64(),
            "dataChange": pa.bool_(),
            "deletionVector": _VECTOR,
        }
    ),
    "checkpointMetadata": pa.struct({"version": pa.int64(), "tags": _TEXTS}),
    "sidecar": pa.struct(
        {"path": pa.string(), "sizeInBytes": pa.int64(), "modificationTime": pa.int64(), "tags": _TEXTS}
    ),
}
_STATE = ("protocol", "metaData", "txn", "domainMetadata", "checkpointMetadata", "sidecar")
#: Every form; the last two of version 2 have sidecars.
KINDS = ("classic", "parts", "v2-parquet", "v2-json", "v2-sidecars", "v2-json-sidecars", "v2-classic-name")


@dataclass
class Replayed:
    """What the commits up to a version add up to, worked out apart from the reader under test."""

    single: dict[str, dict[str, Any]] = field(default_factory=dict)
    txns: dict[str, dict[str, Any]] = field(default_factory=dict)
    domains: dict[str, dict[str, Any]] = field(default_factory=dict)
    adds: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    removes: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Take a line of a commit file."""
        ((kind, data),) = json.loads(line).items()
        if kind in ("protocol", "metaData"):
            self.single[kind] = data
        elif kind == "txn":
            self.txns[data["appId"]] = data
        elif kind == "domainMetadata":
            self.domains[data["domain"]] = data
        elif kind == "add":
            self.adds[_key(data)] = data
            self.removes.pop(_key(data), None)
        elif kind == "remove":
            self.removes[_key(data)] = data
            self.adds.pop(_key(data), None)


def replayed(table: LogTable, version: int) -> Replayed:
    """Fold the commits 0 to ``version``."""
    state = Replayed()
    for at in range(version + 1):
        for line in table.file(at).read_text().splitlines():
            state.take(line)
    return state


def checkpoint(
    table: LogTable, *, version: int | None = None, kind: str = "classic", hint: bool = True
) -> list[Path]:
    """Write a checkpoint of a version (default: the newest); return its files, the first one first."""
    at = table.version if version is None else version
    log, state = table.path / "_delta_log", replayed(table, at)
    files = [{"add": add} for add in state.adds.values()]
    files += [{"remove": remove} for remove in state.removes.values()]
    rows: list[dict[str, Any]] = [{name: data} for name, data in state.single.items()]
    rows += [{"txn": txn} for txn in state.txns.values()]
    rows += [{"domainMetadata": domain} for domain in state.domains.values()]
    stem, form = f"{at:020d}.checkpoint", kind
    written: list[Path] = []
    if kind.startswith("v2"):
        rows.append({"checkpointMetadata": {"version": at}})
        # Seeded by place and version, so that a history is the same every time.
        name = uuid.uuid5(uuid.NAMESPACE_OID, f"{at}-{kind}")
        stem = stem if kind == "v2-classic-name" else f"{stem}.{name}"
        form = "json" if "json" in kind else "parquet"
    if kind in ("v2-sidecars", "v2-json-sidecars", "v2-classic-name"):
        for part in (0, 1):
            side = log / "_sidecars" / f"{uuid.uuid5(uuid.NAMESPACE_OID, f'{at}-{kind}-{part}')}.parquet"
            side.parent.mkdir(exist_ok=True)
            written.append(_parquet(side, files[part::2], ("add", "remove")))
            sidecar = {"path": side.name, "sizeInBytes": side.stat().st_size, "modificationTime": 1}
            rows.append({"sidecar": sidecar})
        files = []
    if kind == "parts":
        everything = rows + files
        for part in (0, 1, 2):
            path = log / f"{stem}.{part + 1:010d}.{3:010d}.parquet"
            written.append(_parquet(path, everything[part::3], tuple(_COLUMNS)[:6]))
    elif form == "json":
        path = log / f"{stem}.json"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows + files))
        written.insert(0, path)
    else:
        columns = _STATE if kind in ("v2-sidecars", "v2-classic-name") else tuple(_COLUMNS)
        written.insert(0, _parquet(log / f"{stem}.parquet", rows + files, columns))
    if hint:
        told = {"version": at, "size": len(rows) + len(files)} | ({"parts": 3} if kind == "parts" else {})
        (log / "_last_checkpoint").write_text(json.dumps(told))
    return written


def _parquet(path: Path, rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Path:
    schema = pa.schema([(name, _COLUMNS[name]) for name in columns])
    # Spark's Parquet writer leaves checksums of pages as well. Not compressed, so that damage reaches values.
    made = pa.Table.from_pylist(rows, schema=schema)
    pq.write_table(made, path, write_page_checksum=True, compression="none")
    return path


def _key(data: dict[str, Any]) -> tuple[str, str]:
    vector = data.get("deletionVector") or {}
    return data["path"], f"{vector.get('storageType')}{vector.get('pathOrInlineDv')}{vector.get('offset')}"
