"""Checkpoints: classic, in parts, and version 2 with sidecars, as Parquet or JSON.

The reader fetches only the requested columns, so the state of a table with many files costs no more than that
of a small one. It verifies page checksums where the writer stored them, as Spark does.
"""

from __future__ import annotations

import asyncio
import io
import json
import re
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reasons import reason
from delta_cdc.delta_log.actions import (
    Add,
    BadActionError,
    DeletionVector,
    MetaData,
    Protocol,
    Txn,
    build_action,
)
from delta_cdc.delta_log.requests import LOG

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Container, Iterator

    from delta_cdc.delta_log.actions import Remove
    from delta_cdc.delta_log.listing import Checkpoint
    from delta_cdc.delta_log.requests import Storage

_STATE = ("protocol", "metaData", "txn")
_FILES = (
    "add.path",
    "add.deletionVector",
    "add.stats",
    "add.stats_parsed.numRecords",
    "sidecar.path",
    "sidecar.sizeInBytes",
)
#: All columns needed to read a file.
_DETAILS = (
    "add.path",
    "add.deletionVector",
    "add.partitionValues",
    "add.size",
    "add.baseRowId",
    "add.defaultRowCommitVersion",
    "sidecar.path",
    "sidecar.sizeInBytes",
)
_MAPS = ("configuration", "options", "partitionValues", "tags")
_NUM_RECORDS = re.compile(r'\s*\{\s*"numRecords"\s*:\s*([0-9]+)\s*[,}]')
#: Up to this size one request for the whole file is cheaper than several for the parts that are needed.
_WHOLE = 4 * 1024 * 1024
_BATCH = 16_384


#: Path (percent-decoded) and deletion vector: identifies a file within a version.
Key = tuple[str, str]


def key_of(action: Add | Remove) -> Key:
    """Return the key that identifies an action's file within a version."""
    vector = action.deletion_vector
    return unquote(action.path), vector.unique_id if vector else ""


class DamagedCheckpointError(Exception):
    """A checkpoint is unreadable; another checkpoint, or the commits, may replace it."""


@dataclass(frozen=True)
class ActiveFile:
    """A file of a version.

    :param path: percent-decoded
    :param rows: before masking; None where the writer left it out
    """

    path: str
    deletion_vector: DeletionVector | None = None
    rows: int | None = None

    @property
    def key(self) -> tuple[str, str]:
        """Return the key that identifies the file within a version."""
        return self.path, self.deletion_vector.unique_id if self.deletion_vector else ""


@dataclass
class CheckpointState:
    """Table-level state of a checkpoint."""

    protocol: Protocol | None = None
    metadata: MetaData | None = None
    txns: dict[str, Txn] = field(default_factory=dict)


async def read_state(storage: Storage, checkpoint: Checkpoint) -> CheckpointState:
    """Read identity, properties and transactions.

    :raises DamagedCheckpointError: it cannot be read
    """
    state = CheckpointState()
    for entry in checkpoint.files:
        for kind, data in await _rows(storage, entry.name, entry.size, _STATE):
            if kind in _STATE:
                _take(state, _built(entry.name, kind, data))
    if state.protocol is None or state.metadata is None:
        raise DamagedCheckpointError(f"{checkpoint.files[0].name} has no protocol or no metaData")
    return state


async def read_files(storage: Storage, checkpoint: Checkpoint) -> list[ActiveFile]:
    """Read the active files.

    :raises DamagedCheckpointError: it cannot be read
    """
    return [_active(name, data) async for name, data in _adds(storage, checkpoint, _FILES)]


async def read_adds(storage: Storage, checkpoint: Checkpoint, wanted: Container[Key]) -> dict[Key, Add]:
    """Read some of the active files, with everything needed to read them.

    :param wanted: keys (:func:`key_of`) of the files
    :raises DamagedCheckpointError: it cannot be read
    """
    found = {}
    async for name, data in _adds(storage, checkpoint, _DETAILS):
        add: Add = _built(name, "add", {"dataChange": False, **data})
        if (key := key_of(add)) in wanted:
            found[key] = add
    return found


async def _adds(
    storage: Storage, checkpoint: Checkpoint, columns: tuple[str, ...]
) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    files = [(entry.name, entry.size) for entry in checkpoint.files]
    for name, size in files:
        for kind, data in await _rows(storage, name, size, columns):
            if kind == "add":
                yield name, data
            elif kind == "sidecar":
                # All sidecars are in one folder, so only the file name counts.
                sidecar = unquote(str(data.get("path"))).rpartition("/")[2]
                told = data.get("sizeInBytes")
                files.append((f"{LOG}/_sidecars/{sidecar}", told if isinstance(told, int) else 0))


def num_records(stats: str | None) -> int | None:
    """Read the number of rows from a file's statistics; None if it is missing."""
    if stats is None:
        return None
    match = _NUM_RECORDS.match(stats)
    if match is not None:
        return int(match[1])
    try:
        found = json.loads(stats).get("numRecords")
    except (ValueError, AttributeError, RecursionError):
        return None
    return found if isinstance(found, int) and not isinstance(found, bool) else None


def count_rows(storage: Storage, path: str) -> int | None:
    """Return the row count from a data file's footer; None if unreadable. Blocking: for use in a thread."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        return int(pq.read_metadata(storage.reader(path)).num_rows)
    except (pa.ArrowException, OSError):
        # Errors of the Parquet reader, not of storage; or the file does not exist.
        return None


def _take(state: CheckpointState, action: Any) -> None:
    if isinstance(action, Protocol):
        state.protocol = action
    elif isinstance(action, MetaData):
        state.metadata = action
    else:
        state.txns[action.app_id] = action


def _active(name: str, data: dict[str, Any]) -> ActiveFile:
    # These fields are not read, but the builder requires them.
    add: Any = _built(name, "add", {"size": 0, "dataChange": False, **data})
    parsed = data.get("stats_parsed") or {}
    rows = num_records(add.stats)
    return ActiveFile(
        unquote(add.path), add.deletion_vector, parsed.get("numRecords") if rows is None else rows
    )


def _built(name: str, kind: str, data: dict[str, Any]) -> Any:
    try:
        return build_action(kind, data)
    except BadActionError as error:
        raise DamagedCheckpointError(f"{name}: {error}") from error


async def _rows(
    storage: Storage, name: str, size: int, columns: tuple[str, ...]
) -> list[tuple[str, dict[str, Any]]]:
    if size > _WHOLE and name.endswith(".parquet"):
        return await asyncio.to_thread(_parquet_from, storage, name, columns)
    content = await storage.read(name)
    if content is None:
        raise DamagedCheckpointError(f"{name} is missing")
    return await asyncio.to_thread(_parsed, io.BytesIO(content), name, columns)


def _parquet_from(storage: Storage, name: str, columns: tuple[str, ...]) -> list[tuple[str, dict[str, Any]]]:
    try:
        return _parsed(storage.reader(name), name, columns)
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{name} is missing") from None


def _parsed(
    source: IO[bytes] | io.RawIOBase, name: str, columns: tuple[str, ...]
) -> list[tuple[str, dict[str, Any]]]:
    try:
        return list(_json(source) if name.endswith(".json") else _parquet(source, columns))
    except (DeltaCdcError, FileNotFoundError):
        raise
    except Exception as error:
        # Any error: Parquet readers have no common base class for invalid bytes.
        raise DamagedCheckpointError(f"{name} is not readable: {reason(error)}") from error


def _json(source: IO[bytes] | io.RawIOBase) -> Iterator[tuple[str, dict[str, Any]]]:
    for line in source:
        if line.strip():
            for kind, data in json.loads(line.decode()).items():
                if isinstance(data, dict):
                    yield kind, data
                elif data is not None:
                    raise ValueError(f"{kind} is not an object")


def _parquet(
    source: IO[bytes] | io.RawIOBase, columns: tuple[str, ...]
) -> Iterator[tuple[str, dict[str, Any]]]:
    import pyarrow.parquet as pq

    with pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=True) as file:
        names = set(file.schema_arrow.names)
        wanted = [column for column in columns if column.partition(".")[0] in names]
        if not wanted:
            return
        for batch in file.iter_batches(batch_size=_BATCH, columns=wanted):
            for kind in batch.schema.names:
                column = batch.column(kind)
                for data in column.filter(column.is_valid()).to_pylist():
                    yield kind, _plain(data)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Convert maps from lists of pairs to their JSON form."""
    for name in _MAPS:
        if isinstance(data.get(name), list):
            data[name] = dict(data[name])
    if isinstance(data.get("format"), dict):
        data["format"] = _plain(data["format"])
    return data
