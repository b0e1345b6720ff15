"""Reads the columns of Parquet files from their footers, without Spark."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.reasons import reason
from delta_cdc.core.uris import file_uri
from delta_cdc.delta_log.requests import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import SourceFile

#: Number of footers read concurrently; each costs two requests to an object store.
_CONCURRENT = 16
#: The most digits of a decimal in Spark.
_DIGITS = 38


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

    if file.missing or file.unreadable:
        return file
    folder, _, name = file_uri(file.uri).rpartition("/")
    storage = Storage(folder or "/", storage_options)
    try:
        schema = pq.read_metadata(storage.reader(name)).schema
    except FileNotFoundError:
        return replace(file, missing=True)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        # Errors of the Parquet reader; storage errors are named errors already.
        return replace(file, unreadable=reason(error))
    flaw = _flaw([schema.column(number) for number in range(len(schema.names))])
    if flaw:
        return replace(file, unreadable=flaw)
    arrow = schema.to_arrow_schema()
    # Spark does not see that a column without values has no type: it reads INT.
    untyped = tuple(field.name for field in arrow if pa.types.is_null(field.type))
    return replace(file, columns=tuple(arrow.names), untyped=untyped)


def _flaw(columns: Sequence[Any]) -> str:
    """Return why Spark cannot read columns exactly; "" if it can."""
    paths: dict[str, str] = {}
    for column in columns:
        if not column.path:
            return "a column has no name; give it one, or leave it out"
        for depth in range(1, column.path.count(".") + 2):
            path = ".".join(column.path.split(".")[:depth])
            other = paths.setdefault(path.lower(), path)
            if other != path:
                return f"its columns {other} and {path} differ in case only; rename one of them"
        kind = column.logical_type.type
        if kind == "TIMESTAMP" and "nanoseconds" in str(column.logical_type):
            what, way_out = "timestamps in nanoseconds", "write them in microseconds"
        elif kind == "TIME":
            what, way_out = "times of day", "write them as text, or as microseconds in a BIGINT"
        elif kind == "DECIMAL" and column.precision > _DIGITS:
            what, way_out = f"decimals of {column.precision} digits", "write them as text"
        elif kind in ("FLOAT16", "INTERVAL"):
            what, way_out = f"values of the type {kind}", "write them with another type"
        else:
            continue
        return f"its column {column.path} holds {what}, which Spark does not read; {way_out}"
    return ""
