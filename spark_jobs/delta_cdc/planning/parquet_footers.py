"""Reads the columns of Parquet files from their footers, without Spark."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.core.reasons import reason
from delta_cdc.core.uris import canonical_uri
from delta_cdc.delta_log.requests import Storage

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Number of footers read concurrently; each costs two requests to an object store.
_CONCURRENT = 16


@dataclass(frozen=True)
class Footer:
    """Contents of a file's footer.

    :param columns: the file's own columns, in order
    :param unreadable: why the footer is unreadable; "" if it is readable
    :param missing: the file does not exist
    """

    columns: tuple[str, ...] = ()
    unreadable: str = ""
    missing: bool = False


async def footers(uris: Sequence[str], storage_options: dict[str, str] | None = None) -> list[Footer]:
    """Read footers concurrently, in the order of the URIs.

    :param uris: as Spark names them
    :raises StoreUnavailable: storage did not answer, or refused
    """
    if not uris:
        return []
    return await asyncio.to_thread(_read_all, list(uris), storage_options)


def _read_all(uris: list[str], storage_options: dict[str, str] | None) -> list[Footer]:
    with ThreadPoolExecutor(max_workers=min(_CONCURRENT, len(uris))) as pool:
        return list(pool.map(lambda uri: _read(uri, storage_options), uris))


def _told(schema: Any) -> Footer:
    names = tuple(schema.to_arrow_schema().names)
    for number in range(len(schema.names)):
        column = schema.column(number)
        if column.logical_type.type == "TIMESTAMP" and "nanoseconds" in str(column.logical_type):
            return Footer(
                unreadable=f"its column {column.path} holds timestamps in nanoseconds, which Spark does not "
                "read; write them in microseconds"
            )
    return Footer(names)


def _read(uri: str, storage_options: dict[str, str] | None) -> Footer:
    import pyarrow as pa  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    folder, _, name = canonical_uri(uri).rpartition("/")
    storage = Storage(folder or "/", storage_options)
    try:
        return _told(pq.read_metadata(storage.reader(name)).schema)
    except FileNotFoundError:
        return Footer(missing=True)
    except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
        # Errors of the Parquet reader; storage errors are named errors already.
        return Footer(unreadable=reason(error))
