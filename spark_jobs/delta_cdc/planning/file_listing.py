"""Lists the files of a source, without Spark.

A source is a folder or a file; a folder includes all files in it, at any depth. The listing leaves out, at
any depth below, hidden names (they begin with ``_`` or ``.``) and files that are still being copied (they end
with ``._COPYING_``). The listing follows local links inside the source, but lists each file under only one
name; it follows links that lead out of the source only with ``follow_links``. ``glob``
filters the files by their own names, as Python's ``fnmatch`` does: ``*``, ``?``, ``[a-z]``, ``[!a-z]``.

A local path that does not exist is an error; an empty folder is not. An object store has no folders, so an
empty prefix cannot be distinguished from one that never existed: it contains no files, which is not an error.
Only a note that counts 0 files shows a misspelt prefix.
"""

from __future__ import annotations

import asyncio
import logging
import os
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import InvalidConfiguration, SourceNotFound
from delta_cdc.core.spec import SourceFile
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import canonical_uri, file_uri, local_path, spark_uri
from delta_cdc.delta_log.requests import Storage, milliseconds
from delta_cdc.delta_log.store import open_bucket

if TYPE_CHECKING:
    from collections.abc import Iterator

logger = logging.getLogger(__name__)

_SPECIAL = "*?[{"
_COPYING = "._COPYING_"
#: The reason for a local file whose name is no text.
_NO_TEXT = "Spark reads no file whose path is not UTF-8; rename it"


async def list_files(
    source: str,
    storage_options: dict[str, str] | None = None,
    glob: str | None = None,
    after: str | None = None,
    *,
    follow_links: bool = False,
) -> list[SourceFile]:
    """Return the files of a source, sorted by name.

    :param source: path or URI of a folder or a file
    :param storage_options: options of the object store, as delta-rs names them
    :param glob: pattern for the files' own names; None selects all
    :param after: only files with a greater name than this URI (as Spark names it); an object store filters
        them itself
    :param follow_links: also follow local links that lead out of the source
    :raises SourceNotFound: a local path, or a bucket, that does not exist
    :raises InvalidConfiguration: see :func:`read_source` and :func:`check_glob`
    :raises StoreUnavailable: the store did not answer, or refused access
    """
    root = await asyncio.to_thread(read_source, source)
    check_glob(glob)
    path = local_path(root)
    if path is not None:
        with Storage(root).named():
            return await asyncio.to_thread(_local, Path(path), glob, after, follow_links)
    return await _stored(root, storage_options, glob, after)


async def find_file(uri: str, storage_options: dict[str, str] | None = None) -> SourceFile | None:
    """Return one file; None if it does not exist.

    :param uri: as Spark names it
    """
    canonical = file_uri(uri)
    path = local_path(canonical)
    if path is not None:
        return await asyncio.to_thread(_one, Path(path))
    return await _head(canonical, storage_options)


def read_source(source: str) -> str:
    """Return the canonical location of a source.

    :raises InvalidConfiguration: a pattern instead of a folder
    """
    text = canonical_uri(source)
    path = local_path(text)
    if any(mark in text for mark in _SPECIAL) and not (path is not None and _may_exist(path)):
        raise InvalidConfiguration(
            f"The source {source} is not an existing folder, and looks like a pattern.",
            remedy='set source to the folder, and select its files by name with glob="*.json".',
        )
    return text


def _may_exist(path: str) -> bool:
    """Return whether a folder exists; True if a folder above it may not be read, as the run will say."""
    try:
        return Path(path).exists()
    except OSError:
        return True


def check_glob(glob: str | None) -> None:
    """Validate a pattern for file names.

    :raises InvalidConfiguration: it is empty or contains ``/``
    """
    if glob is not None and (not glob.strip() or "/" in glob):
        raise InvalidConfiguration(
            f"glob is {glob!r}, which is not a pattern of file names.",
            remedy="set glob to a pattern such as *.json, and put folders into source.",
        )


def _is_meant(below: str, glob: str | None) -> bool:
    """Return whether to include a file, by its path below the source and its own name."""
    return not hides(below) and (glob is None or fnmatchcase(below.rpartition("/")[2], glob))


def hides(below: str) -> bool:
    """Return whether to leave out a path below a source, regardless of ``glob``."""
    return any(part[:1] in ("_", ".") or part.endswith(_COPYING) for part in below.split("/"))


# -- local --------------------------------------------------------------------------------------
def _local(root: Path, glob: str | None, after: str | None, follows: bool) -> list[SourceFile]:
    if not root.exists():
        raise _missing(str(root))
    if root.is_file():
        only = _one(root)
        return [only] if only is not None and (after is None or only.uri > after) else []
    base = str(root).rstrip("/")
    real_base = os.path.realpath(base).rstrip("/")
    listed: list[SourceFile] = []
    by_link: dict[str, SourceFile] = {}
    outside: list[str] = []
    for entry, linked in _walk(base, after):
        if not _is_meant(entry.path[len(base) + 1 :], glob):
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:
            # The file was deleted after its folder was read.
            continue
        file = _found(entry.path, stat)
        if not linked:
            listed.append(file)
            continue
        real = os.path.realpath(entry.path)
        own = real[len(real_base) + 1 :] if real.startswith(f"{real_base}/") else None
        if own is None and not follows:
            outside.append(entry.path)
            continue
        # Skip a link to a file that is already listed under its own name.
        if own is None or not _is_meant(own, glob):
            by_link[real] = min(file, by_link.get(real, file), key=lambda link_file: link_file.uri)
    if outside:
        logger.warning(
            "%s below %s by a link that leads out of it are left out, for instance %s. To read them, set "
            "follow_links.",
            plural(len(outside), "file"),
            base,
            min(outside),
        )
    return sorted([*listed, *by_link.values()], key=lambda file: file.uri)


def _walk(root: str, after: str | None) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Yield files, and whether a link leads to them."""
    folders: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    while folders:
        folder, links = folders.pop()
        try:
            with os.scandir(folder) as entries:
                listed = list(entries)
        except FileNotFoundError:
            continue
        for entry in listed:
            if entry.is_dir():
                inside = f"{entry.path}/"
                # Skip a folder whose names all sort before ``after``.
                reaches = after is None or after.startswith(inside) or inside > after
                target = os.path.realpath(entry.path) if entry.is_symlink() else ""
                if reaches and not (target and _leads_back(target, folder, links)):
                    folders.append((entry.path, (*links, target) if target else links))
            elif entry.is_file() and (after is None or entry.path > after):
                yield entry, bool(links) or entry.is_symlink()


def _leads_back(target: str, folder: str, links: tuple[str, ...]) -> bool:
    """Return whether a link leads to a folder that contains it, directly or through other links."""
    return target in links or f"{os.path.realpath(folder)}/".startswith(f"{target}/")


def _one(path: Path) -> SourceFile | None:
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return _found(str(path), stat)


def _found(path: str, stat: os.stat_result) -> SourceFile:
    """Return a local file. Its time of change stands for an etag.

    A copy may keep size and modification time, but no program can set the time of change. The inode says no
    more, and some file systems give each machine another one.
    """
    uri = path if path.isascii() else os.fsencode(path).decode(errors="backslashreplace")
    identity = stat.st_size, stat.st_mtime_ns // 1_000_000, f"changed {stat.st_ctime_ns}"
    return SourceFile(uri, *identity, unreadable="" if uri == path else _NO_TEXT)


# -- object stores ------------------------------------------------------------------------------
async def _stored(
    root: str,
    storage_options: dict[str, str] | None,
    glob: str | None,
    after: str | None,
) -> list[SourceFile]:
    import obstore

    store, prefix = open_bucket(root, storage_options)
    home = root[: len(root) - len(prefix)].rstrip("/")
    offset = canonical_uri(after)[len(home) + 1 :] if after is not None else None
    listed = []
    try:
        with Storage(root, storage_options).named():
            within = f"{prefix}/" if prefix else None
            async for batch in obstore.list(store, within, offset=offset, chunk_size=1000):
                for meta in batch:
                    key = meta["path"]
                    below = key[len(prefix) :].lstrip("/")
                    if _is_meant(below, glob) and _is_file(meta):
                        listed.append(_entry(home, meta))
    except FileNotFoundError:
        raise _missing(root) from None
    if not listed and prefix:
        only = await _head(root, storage_options)
        listed = [only] if only is not None and (after is None or only.uri > after) else []
    return sorted(listed, key=lambda file: file.uri)


async def _head(uri: str, storage_options: dict[str, str] | None) -> SourceFile | None:
    import obstore

    store, key = open_bucket(uri, storage_options)
    try:
        with Storage(uri, storage_options).named():
            meta = await obstore.head_async(store, key)
    except FileNotFoundError:
        return None
    return _entry(uri[: len(uri) - len(key)].rstrip("/"), meta)


def _is_file(meta: Any) -> bool:
    """Return whether an object is a file; some tools write empty objects as folder markers."""
    return bool(meta["size"]) or not meta["path"].endswith("/")


def _entry(home: str, meta: Any) -> SourceFile:
    uri = f"{spark_uri(home)}/{meta['path']}"
    return SourceFile(uri, meta["size"], milliseconds(meta["last_modified"]), meta["e_tag"] or "")


def _missing(source: str) -> SourceNotFound:
    return SourceNotFound(
        f"There is nothing at {source} to ingest from.",
        remedy="check the path, and the mount or the bucket that it is on.",
    )
