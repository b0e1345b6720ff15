"""Find the Delta tables below a folder, without a JVM: on a local disk, or under a prefix of an object store.

A folder with a folder ``_delta_log`` is a table, and is not searched further. Names that begin with ``_`` or
``.`` are left out, as every reader of a lake does. What cannot be read, and what is no Delta table, is one
remark each; it never ends the search.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import SourceNotFound, StoreUnavailable
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import canonical_uri, local_path
from delta_cdc.delta_log.requests import LOG, Storage
from delta_cdc.delta_log.store import open_bucket

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

#: How many levels below the folder are searched, if the caller names no number.
DEPTH = 4
#: The most folders that one search looks into.
MOST_FOLDERS = 10_000


@dataclass(frozen=True)
class Folder:
    """The content of one folder, without hidden names.

    :param names: its folders
    :param files: its files
    :param links: its links to folders, which are not followed
    """

    names: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    is_table: bool = False


@dataclass(frozen=True)
class FoundTables:
    """The result of a search.

    :param tables: name and location of each table, in the order of their names; the name is the path below
        the folder, with ``/``
    :param remarks: location and text of what is no table, or could not be read
    """

    tables: tuple[tuple[str, str], ...]
    remarks: tuple[tuple[str, str], ...]


async def find_tables(
    folder: str, storage_options: dict[str, str] | None = None, depth: int = DEPTH
) -> FoundTables:
    """Return the Delta tables in a folder, and below it.

    :param folder: path or URI. If it is a table itself, it is the only one, with the folder's own name
    :param depth: the number of levels below the folder that are searched
    :raises SourceNotFound: the folder does not exist (an object store: no object has this prefix)
    :raises StoreUnavailable: the folder itself cannot be listed
    """
    uri = canonical_uri(folder)
    listed = _local if local_path(uri) is not None else _stored(uri, storage_options)
    root = await listed(uri)
    if not root.is_table and not (root.names or root.files or root.links or local_path(uri) is not None):
        raise _missing(uri)
    if root.is_table:
        return FoundTables(((uri.rpartition("/")[2] or uri, uri),), ())
    return await _Search(listed, depth).below(uri, root)


class _Search:
    def __init__(self, listed: Callable[[str], Awaitable[Folder]], depth: int) -> None:
        self._listed, self._depth = listed, depth
        self._looked = 0
        self._remarks: list[tuple[str, str]] = []
        self._tables: list[tuple[str, str]] = []

    async def below(self, uri: str, root: Folder) -> FoundTables:
        """Return what lies below a folder."""
        waiting = [("", root, 0)]
        while waiting:
            name, folder, level = waiting.pop()
            base = uri if not name else f"{uri}/{name}"
            self._remark(base, folder, is_root=not name)
            inner = [one for one in folder.names if "=" not in one]
            if inner and level >= self._depth:
                self._remarks.append((base, f"not searched below: its depth is {level} (--depth)"))
                continue
            for one in inner:
                path = f"{name}/{one}" if name else one
                if self._looked >= MOST_FOLDERS:
                    self._remarks.append((uri, f"the search ended after {MOST_FOLDERS} folders"))
                    return self._found()
                self._looked += 1
                try:
                    content = await self._listed(f"{uri}/{path}")
                except (StoreUnavailable, SourceNotFound) as error:
                    self._remarks.append((f"{uri}/{path}", error.message))
                    continue
                if content.is_table:
                    self._tables.append((path, f"{uri}/{path}"))
                else:
                    waiting.append((path, content, level + 1))
        return self._found()

    def _found(self) -> FoundTables:
        return FoundTables(tuple(sorted(self._tables)), tuple(sorted(self._remarks)))

    def _remark(self, uri: str, folder: Folder, *, is_root: bool) -> None:
        parts = [one for one in folder.names if "=" in one]
        if parts:
            # The folders of another format's partitions: there may be thousands.
            self._remarks.append((uri, f"no Delta table: it has partitions, such as {parts[0]}"))
        elif folder.files and not is_root:
            text = f"no Delta table: it has {plural(len(folder.files), 'file')}, such as {folder.files[0]}"
            self._remarks.append((uri, text))
        elif not (folder.names or folder.files or folder.links):
            self._remarks.append((uri, "an empty folder"))
        for link in folder.links:
            self._remarks.append((f"{uri}/{link}", "a link, which is not followed"))


async def _local(uri: str) -> Folder:
    return await asyncio.to_thread(_scan, uri)


def _scan(uri: str) -> Folder:
    path = Path(uri)
    names: list[str] = []
    files: list[str] = []
    links: list[str] = []
    try:
        if (path / LOG).is_dir():
            return Folder(is_table=True)
        with os.scandir(path) as entries:
            for entry in sorted(entries, key=lambda one: one.name):
                if entry.name[0] in "_.":
                    continue
                if entry.is_dir(follow_symlinks=False):
                    names.append(entry.name)
                else:
                    (links if entry.is_symlink() and entry.is_dir() else files).append(entry.name)
    except (FileNotFoundError, NotADirectoryError):
        raise _missing(uri) from None
    except OSError as error:
        raise StoreUnavailable(
            f"The folder {uri} cannot be read: {error.strerror}.", remedy="correct its permissions."
        ) from error
    return Folder(tuple(names), tuple(files), tuple(links))


def _stored(root: str, storage_options: dict[str, str] | None) -> Callable[[str], Awaitable[Folder]]:
    store, prefix = open_bucket(root, storage_options)

    async def listed(uri: str) -> Folder:
        import obstore

        below = "/".join(part for part in (prefix, uri[len(root) :].strip("/")) if part)
        with Storage(root, storage_options).named():
            answer: Any = await obstore.list_with_delimiter_async(store, f"{below}/" if below else None)
        names = sorted(one.rstrip("/").rpartition("/")[2] for one in answer["common_prefixes"])
        files = sorted(one["path"].rpartition("/")[2] for one in answer["objects"])
        return Folder(
            tuple(one for one in names if one[:1] not in ("_", ".")),
            tuple(one for one in files if one[:1] not in ("", "_", ".")),
            is_table=LOG in names,
        )

    return listed


def _missing(uri: str) -> SourceNotFound:
    return SourceNotFound(f"There is no folder {uri}.", remedy="name a folder with Delta tables.")
