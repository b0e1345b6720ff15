"""Checkpoints: classic, in parts, and version 2 with sidecars, as Parquet or JSON.

The reader fetches only the requested columns, so the state of a table with many files costs no more than that
of a small one. It verifies page checksums where the writer stored them, as Spark does.
"""

from __future__ import annotations

import asyncio
import io
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from delta_cdc.core import codec
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reasons import reason
from delta_cdc.delta_log.actions import BadActionError, MetaData, Protocol, build_action
from delta_cdc.delta_log.requests import LOG

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from delta_cdc.delta_log.actions import Action, Add, Key
    from delta_cdc.delta_log.listing import Checkpoint
    from delta_cdc.delta_log.requests import Storage

_STATE = ("protocol", "metaData", "txn")
_FILES = ("sidecar.path", "sidecar.sizeInBytes", "add.path", "add.deletionVector")
#: Further columns: to count the rows of a file, and to read it.
_ROWS = ("add.stats", "add.stats_parsed.numRecords")
_DETAILS = ("add.partitionValues", "add.size", "add.baseRowId", "add.defaultRowCommitVersion")
_MAPS = ("configuration", "options", "partitionValues", "tags")
#: Up to this size one request for the whole file is cheaper than several for the parts that are needed.
_WHOLE = 4 * 1024 * 1024
_BATCH = 16_384


class DamagedCheckpointError(Exception):
    """A checkpoint is unreadable; another checkpoint, or the commits, may replace it."""


async def read_state(storage: Storage, checkpoint: Checkpoint) -> list[Action]:
    """Read protocol, metadata and transactions.

    :raises DamagedCheckpointError: it cannot be read, or has no protocol or no metadata
    """
    actions = [
        _build(entry.name, kind, data)
        for entry in checkpoint.files
        for kind, data in await _rows(storage, entry.name, entry.size, _STATE)
        if kind in _STATE
    ]
    if not {Protocol, MetaData} <= set(map(type, actions)):
        raise DamagedCheckpointError(f"{checkpoint.files[0].name} has no protocol or no metaData")
    return actions


async def read_files(
    storage: Storage, checkpoint: Checkpoint, wanted: Container[Key] | None = None
) -> dict[Key, Add]:
    """Read active files.

    :param wanted: keys of the files, which are returned with all details that a reader needs. None: all
        files, each only with its path, deletion vector and number of rows
    :raises DamagedCheckpointError: it cannot be read
    """
    columns = (*_FILES, *(_ROWS if wanted is None else _DETAILS))
    active: dict[Key, Add] = {}
    files = [(entry.name, entry.size) for entry in checkpoint.files]
    for name, size in files:
        for kind, data in await _rows(storage, name, size, columns):
            if kind == "add":
                # The builder requires these fields, which not every read needs.
                add: Add = _build(name, "add", {"size": 0, "dataChange": False, **data})
                if wanted is None:
                    parsed = data.get("stats_parsed") or {}
                    rows = add.rows
                    active[add.key] = add.with_rows(parsed.get("numRecords") if rows is None else rows)
                elif add.key in wanted:
                    active[add.key] = add
            elif kind == "sidecar":
                # All sidecars are in one folder, so only the file name counts.
                sidecar = unquote(str(data.get("path"))).rpartition("/")[2]
                sidecar_size = data.get("sizeInBytes")
                known_size = sidecar_size if isinstance(sidecar_size, int) else 0
                files.append((f"{LOG}/_sidecars/{sidecar}", known_size))
    return active


def count_rows(storage: Storage, path: str) -> int | None:
    """Return the row count in a data file's footer; None if unreadable. It blocks, so use it in a thread."""
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    try:
        return int(pq.read_metadata(storage.reader(path)).num_rows)
    except (pa.ArrowException, OSError):
        # Errors of the Parquet reader, not of storage; or the file does not exist.
        return None


def _build(name: str, kind: str, data: dict[str, Any]) -> Any:
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
            for kind, data in codec.parsed(line.decode()).items():
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
        existing = [column for column in columns if column.partition(".")[0] in names]
        if not existing:
            return
        for batch in file.iter_batches(batch_size=_BATCH, columns=existing):
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
