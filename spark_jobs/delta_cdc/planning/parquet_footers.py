"""Reads the columns of Parquet files from their footers, without Spark."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from delta_cdc.core.reasons import reason
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.requests import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import SourceFile

#: Number of footers read concurrently; each costs two requests to an object store.
_CONCURRENT = 16


async def footers(
    files: Sequence[SourceFile], storage_options: dict[str, str] | None = None
) -> tuple[SourceFile, ...]:
    """Return Parquet files with their columns, or why they are unreadable, or whether they are missing.

    :raises StoreUnavailable: storage did not answer, or refused
    """
    return await asyncio.to_thread(_read_all, files, storage_options)


def _read_all(files: Sequence[SourceFile], storage_options: dict[str, str] | None) -> tuple[SourceFile, ...]:
    with ThreadPoolExecutor(max_workers=_CONCURRENT) as pool:
        return tuple(pool.map(lambda file: _read(file, storage_options), files))


def _read(file: SourceFile, storage_options: dict[str, str] | None) -> SourceFile:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    if file.missing:
        return file
    folder, _, name = canonical_uri(file.uri).rpartition("/")
    storage = Storage(folder or "/", storage_options)
    try:
        schema = pq.read_metadata(storage.reader(name)).schema
    except FileNotFoundError:
        return replace(file, missing=True)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        # Errors of the Parquet reader; storage errors are named errors already.
        return replace(file, unreadable=reason(error))
    for number in range(len(schema.names)):
        column = schema.column(number)
        if column.logical_type.type == "TIMESTAMP" and "nanoseconds" in str(column.logical_type):
            unreadable = (
                f"its column {column.path} holds timestamps in nanoseconds, which Spark does not read; write "
                "them in microseconds"
            )
            return replace(file, unreadable=unreadable)
    return replace(file, columns=tuple(schema.to_arrow_schema().names))
