"""Checkpoints: classic, in parts, and version 2 with sidecars, as Parquet or JSON.

The reader fetches only the requested columns, so the state of a table with many files costs no more than that
of a small one. It verifies page checksums where the writer stored them, as Spark does.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections import deque
from contextlib import aclosing
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.concurrency import budget
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reasons import reason
from delta_cdc.delta_log.actions import (
    LARGE_LINE,
    BadActionError,
    Lines,
    LongLineError,
    MetaData,
    Protocol,
    build_action,
)
from delta_cdc.delta_log.requests import LOG

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Container, Iterator

    from delta_cdc.delta_log.actions import Action, Add, Key
    from delta_cdc.delta_log.listing import Checkpoint
    from delta_cdc.delta_log.requests import Storage

_STATE = ("protocol", "metaData", "txn")
_FILES = ("sidecar.path", "sidecar.sizeInBytes", "add.path", "add.deletionVector")
#: Further columns: to count the rows and bytes of a file, and to read it.
_ROWS = ("add.size", "add.stats", "add.stats_parsed.numRecords")
_DETAILS = ("add.partitionValues", "add.size", "add.baseRowId", "add.defaultRowCommitVersion")
_MAPS = ("configuration", "options", "partitionValues", "tags")
#: Up to this size one request for the whole file is cheaper than several for the parts that are needed.
_WHOLE = 4 * 1024 * 1024
#: Rows at once: the event loop builds their actions within some ten milliseconds.
_BATCH = 4_096
#: Bytes of rows at once, by the sizes of the columns before compression.
_BATCH_BYTES = 4 * 1024 * 1024
#: Bytes of a column that are fetched at once from a large file: one request.
_PIECE = 1024 * 1024


class DamagedCheckpointError(Exception):
    """A checkpoint is unreadable; another checkpoint, or the commits, may replace it."""


async def read_state(storage: Storage, checkpoint: Checkpoint) -> list[Action]:
    """Read protocol, metadata and transactions.

    :raises DamagedCheckpointError: it cannot be read, or has no protocol or no metadata
    """
    actions = [
        _build(entry.name, kind, data)
        for entry in checkpoint.files
        async for rows in _rows(storage, entry.name, entry.size, _STATE)
        for kind, data in rows
        if kind in _STATE
    ]
    if not {Protocol, MetaData} <= set(map(type, actions)):
        raise DamagedCheckpointError(f"{checkpoint.files[0].name} has no protocol or no metaData")
    return actions


async def read_files(
    storage: Storage, checkpoint: Checkpoint, wanted: Container[Key] | None = None
) -> AsyncGenerator[list[Add]]:
    """Yield the active files, some at a time. Of these, no more are in memory at once.

    :param wanted: keys of the files, which are returned with all details that a reader needs. None: all
        files, each only with its path, size, deletion vector and number of rows
    :raises DamagedCheckpointError: it cannot be read; also after some of the files
    """
    columns = (*_FILES, *(_ROWS if wanted is None else _DETAILS))
    files = deque((entry.name, entry.size) for entry in checkpoint.files)
    while files:
        name, size = files.popleft()
        async with aclosing(_rows(storage, name, size, columns)) as batches:
            async for batch in batches:
                yield await asyncio.to_thread(_files_of, name, batch, wanted)
                files.extend(_sidecar(data) for kind, data in batch if kind == "sidecar")


def _sidecar(data: dict[str, Any]) -> tuple[str, int]:
    """Return the name and the size of a sidecar."""
    # All sidecars are in one folder, so only the file name counts.
    name, size = unquote(str(data.get("path"))).rpartition("/")[2], data.get("sizeInBytes")
    return f"{LOG}/_sidecars/{name}", size if isinstance(size, int) else 0


def _files_of(name: str, rows: list[tuple[str, dict[str, Any]]], wanted: Container[Key] | None) -> list[Add]:
    adds = (_file(name, data, wanted) for kind, data in rows if kind == "add")
    return [add for add in adds if add is not None]


def _file(name: str, data: dict[str, Any], wanted: Container[Key] | None) -> Add | None:
    """Return an active file; None if it is not wanted."""
    # The builder requires these fields, which not every read needs.
    add: Add = _build(name, "add", {"size": 0, "dataChange": False, **data})
    if wanted is not None:
        return add if add.key in wanted else None
    rows = add.rows
    if rows is None and isinstance(parsed := data.get("stats_parsed"), dict):
        rows = parsed.get("numRecords")
    return add.with_rows(rows if isinstance(rows, int) else None)


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
) -> AsyncGenerator[list[tuple[str, dict[str, Any]]]]:
    """Yield the rows of a file, a batch at a time.

    :param size: as the log has it; a larger file is read in parts
    """
    if name.endswith(".json"):
        async with aclosing(_json(storage, name)) as batches:
            async for batch in batches:
                yield batch
        return
    content = await storage.read(name, most=_WHOLE) if size <= _WHOLE else None
    async with budget().taken(0 if content is not None else max(size, _WHOLE)):
        rows = _parquet_batches(storage, name, content, columns)
        while (found := await asyncio.to_thread(next, rows, None)) is not None:
            yield found


async def _json(storage: Storage, name: str) -> AsyncGenerator[list[tuple[str, dict[str, Any]]]]:
    lines = Lines()
    async with storage.open(name) as opened:
        if opened is None:
            raise DamagedCheckpointError(f"{name} is missing")
        try:
            async for chunk in opened[1]:
                yield await asyncio.to_thread(_parsed, lines.feed(chunk))
            yield await asyncio.to_thread(_parsed, lines.close())
        except (LongLineError, UnreadableJson) as error:
            raise DamagedCheckpointError(f"{name} is not readable: {reason(error)}") from error


def _parsed(lines: list[bytes]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for line in filter(bytes.strip, lines):
        data = codec.parsed(line, most_bytes=sys.maxsize, patient=len(line) > LARGE_LINE)
        for kind, fields in data.items() if isinstance(data, dict) else [("a line", data)]:
            if isinstance(fields, dict):
                found.append((kind, fields))
            elif fields is not None:
                raise UnreadableJson(f"{kind} is not an object")
    return found


def _parquet_batches(
    storage: Storage, name: str, content: bytes | None, columns: tuple[str, ...]
) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Do as :func:`_rows`; it blocks, so use it in a thread."""
    try:
        source = storage.reader(name) if content is None else io.BytesIO(content)
        yield from _parquet(source, columns, is_whole=content is not None)
    except FileNotFoundError:
        raise DamagedCheckpointError(f"{name} is missing") from None
    except DeltaCdcError:
        raise
    except Exception as error:
        # Any error: Parquet readers have no common base class for invalid bytes.
        raise DamagedCheckpointError(f"{name} is not readable: {reason(error)}") from error


def _parquet(
    source: IO[bytes] | io.RawIOBase, columns: tuple[str, ...], *, is_whole: bool
) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """Do as :func:`_parquet_batches`.

    Of a file that is read by ranges, only pieces of columns are in memory. With ``pre_buffer``, Arrow would
    hold all columns of all row groups, and without a buffer all columns of a row group. Either can be nearly
    the whole file: delta-rs writes a million files into one row group.

    :param is_whole: the whole file is in memory
    """
    import pyarrow.parquet as pq

    options = {} if is_whole else {"buffer_size": _PIECE}
    with pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=is_whole, **options) as file:
        names = set(file.schema_arrow.names)
        existing = [column for column in columns if column.partition(".")[0] in names]
        if not existing:
            return
        for group in range(file.num_row_groups):
            size = _rows_at_once(file.metadata.row_group(group), existing)
            for batch in file.iter_batches(batch_size=size, row_groups=[group], columns=existing):
                yield [
                    (kind, _plain(data))
                    for kind, column in zip(batch.schema.names, batch.columns, strict=True)
                    for data in column.filter(column.is_valid()).to_pylist()
                ]


def _rows_at_once(group: Any, columns: Collection[str]) -> int:
    """Return how many rows of a row group are read at once: fewer if they are large, such as statistics."""
    prefixes = tuple(f"{column}." for column in columns)
    chunks = (group.column(index) for index in range(group.num_columns))
    size: int = sum(
        chunk.total_uncompressed_size
        for chunk in chunks
        if chunk.path_in_schema in columns or chunk.path_in_schema.startswith(prefixes)
    )
    rows: int = group.num_rows
    return max(1, min(_BATCH, _BATCH_BYTES * rows // max(size, 1)))


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Convert maps from lists of pairs to their JSON form."""
    for name in _MAPS:
        if isinstance(data.get(name), list):
            data[name] = dict(data[name])
    if isinstance(data.get("format"), dict):
        data["format"] = _plain(data["format"])
    return data
