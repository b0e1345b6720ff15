"""What Parquet files say of themselves, read from their footers without Spark."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.log.storage import Storage
from delta_cdc.log.store import canonical_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Footers that are read at once; each costs an object store two requests.
_CONCURRENT = 16


@dataclass(frozen=True)
class Footer:
    """What a file's footer says.

    :param columns: the file's own columns, in order
    :param unreadable: why there is no telling; "" where there is
    :param missing: the file is not there
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
        with storage.named():
            try:
                return _told(pq.read_metadata(storage.reader(name)).schema)
            except (pa.ArrowException, UnicodeDecodeError) as error:
                # The Parquet reader's own, which are no news from storage.
                return Footer(unreadable=(str(error).splitlines() or [type(error).__name__])[0])
    except FileNotFoundError:
        return Footer(missing=True)
