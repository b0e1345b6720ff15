"""Look at the first bytes of text files, without Spark: do they contain what their names promise?

Spark's reader chooses a decoder by a file's ending alone. A file of another container becomes lines of noise,
or ends the driver. So one small request for each new file decides first.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.uris import file_uri, local_path
from delta_cdc.delta_log.requests import Storage
from delta_cdc.ingest.records.compression import FIRST_BYTES, flaw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_cdc.core.spec import SourceFile

#: How many files are read at once.
_CONCURRENT = 64


async def heads(
    files: Sequence[SourceFile], file_format: str, storage_options: dict[str, str] | None = None
) -> tuple[SourceFile, ...]:
    """Return text files with the reason why they are unreadable, or whether they are missing.

    :raises StoreUnavailable: storage did not answer, or refused
    """
    looks = (_read(file, file_format, storage_options) for file in files)
    return tuple(await gathered(looks, limit=_CONCURRENT))


async def _read(file: SourceFile, file_format: str, storage_options: dict[str, str] | None) -> SourceFile:
    if file.missing or file.unreadable or not file.size:
        return file
    uri = file_uri(file.uri)
    folder, _, name = uri.rpartition("/")
    storage = Storage(folder or "/", storage_options)
    path, length = local_path(uri), min(FIRST_BYTES, file.size)
    try:
        if path is None or uri.isprintable():
            first = await storage.read_range(quote(name, safe=""), 0, length)
        else:
            first = await asyncio.to_thread(_first, storage, Path(path), length)
    except (FileNotFoundError, NotADirectoryError):
        return replace(file, missing=True)
    reason = flaw(name, first or b"", file_format)
    return replace(file, unreadable=reason) if reason else file


def _first(storage: Storage, path: Path, length: int) -> bytes:
    """Return the first bytes of a local file. A store cannot name it if it has control characters."""
    with storage.named(), path.open("rb") as file:
        return file.read(length)
