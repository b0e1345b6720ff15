"""What lies in a source of files: one listing, without Spark.

A source is a folder, a file, or a pattern over folders and files; a folder stands for all files in it, at any
depth. Left out, at any depth below the source, is what hides by its name (it begins with ``_`` or ``.``) and
what is still being copied (it ends with ``._COPYING_``). A local link is followed, but
no file is listed under two names. A pattern knows ``*``, ``?``, ``[a-z]``, ``[^a-z]``
and ``{a,b}``, none of which goes beyond a folder, and ``**`` for any number of folders; a backslash takes the
special meaning from the character after it. A local path that exists is meant literally.

A local path that does not exist is an error, and an empty folder is not. An object store has no folders, so
that nothing tells an empty prefix from one that was never there: it holds no files, which is no error, and a
misspelt prefix is told by a note that counts none.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import InvalidConfiguration, SourceNotFound
from delta_cdc.log.storage import Storage, milliseconds
from delta_cdc.log.store import canonical_uri, local_path, open_bucket, spark_uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SPECIAL = "*?[{"
_COPYING = "._COPYING_"


@dataclass(frozen=True)
class Listed:
    """A file of a source.

    :param uri: as Spark names it, characters as they are
    :param size: bytes
    :param modified: epoch milliseconds
    :param etag: the store's own fingerprint; "" for local files, which have none
    """

    uri: str
    size: int
    modified: int
    etag: str = ""


@dataclass(frozen=True)
class Source:
    """What a source's text means.

    :param root: the folder, canonical, below which everything lies that can be meant; of a source without a
        pattern the source itself
    :param pattern: what of the path below the root is meant; None is everything
    """

    root: str
    pattern: re.Pattern[str] | None = None

    def meant(self, below: str) -> bool:
        """Tell whether a path below the root is meant.

        :param below: relative to the root, with ``/``; "" is the root itself
        """
        if self.pattern is None:
            return not _hides(below)
        match = self.pattern.fullmatch(below)
        return match is not None and not _hides(match.group("rest") or "")


async def list_files(
    source: str,
    storage_options: dict[str, str] | None = None,
    glob: str | None = None,
    after: str | None = None,
) -> list[Listed]:
    """Return the files of a source, by name.

    :param source: path, URI or pattern
    :param storage_options: options of the object store, as delta-rs names them
    :param glob: pattern over the files' own names; None is all
    :param after: only files with a greater name than this URI (as Spark names it), which an object store
        lists by itself
    :raises SourceNotFound: a local path, or a bucket, that does not exist
    :raises InvalidConfiguration: a pattern that is none
    :raises StoreUnavailable: the store did not answer, or refused
    """
    meant = read_source(source)
    named = _named(glob)
    path = local_path(meant.root)
    if path is not None:
        with Storage(meant.root).named():
            return await asyncio.to_thread(_local, Path(path), meant, named, after)
    return await _stored(meant, storage_options, named, after)


async def find_file(uri: str, storage_options: dict[str, str] | None = None) -> Listed | None:
    """Return one file; None where it is not there.

    :param uri: as Spark names it
    """
    canonical = canonical_uri(uri)
    path = local_path(canonical)
    if path is not None:
        return await asyncio.to_thread(_one, Path(path))
    return await _head(canonical, storage_options)


def read_source(source: str) -> Source:
    """Tell a source's fixed part from its pattern.

    :raises InvalidConfiguration: a pattern that is none
    """
    text = canonical_uri(source)
    path = local_path(text)
    if (path is not None and Path(path).exists()) or not _is_pattern(text):
        return Source(text if path is not None and Path(path).exists() else _unescaped(text))
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "", text
    parts = rest.split("/")
    first = next(at for at, part in enumerate(parts) if _is_pattern(part))
    if first == 0:
        raise InvalidConfiguration(
            f"The source {source} has a pattern in the place of a folder or a bucket.",
            remedy="name the bucket, or begin with a folder; patterns may follow.",
        )
    root = scheme + separator + _unescaped("/".join(parts[:first]))
    return Source(root or "/", _compiled(source, parts[first:]))


# -- patterns -----------------------------------------------------------------------------------
def _is_pattern(text: str) -> bool:
    escaped = False
    for mark in text:
        if mark in _SPECIAL and not escaped:
            return True
        escaped = mark == "\\" and not escaped
    return False


def _unescaped(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _compiled(source: str, parts: list[str]) -> re.Pattern[str]:
    texts = []
    for part in parts:
        if part == "**":
            texts.append(r"(?:(?![_.])[^/]+/)*")
            continue
        # As in shells: only a pattern that says so meets names that hide.
        shown = "" if part[:1] in ("_", ".") else r"(?![_.])"
        texts.append(f"{shown}{_translated(source, part)}/")
    # A pattern means files, and folders with all that is in them.
    joined = "".join(texts)
    if joined.endswith("/"):
        return re.compile(f"{joined[:-1]}(?:/(?P<rest>.+))?", re.DOTALL)
    return re.compile(f"{joined}(?P<rest>.+)", re.DOTALL)


def _named(glob: str | None) -> Callable[[str], bool]:
    if glob is None:
        return lambda name: True
    if not glob.strip() or "/" in glob:
        raise InvalidConfiguration(
            f"glob is {glob!r}.",
            remedy="give a pattern over names alone, for instance *.json; folders belong to the source.",
        )
    pattern = re.compile(_translated(glob, glob), re.DOTALL)
    return lambda name: pattern.fullmatch(name) is not None


def check_glob(glob: str | None) -> None:
    """Refuse a pattern over names that is none.

    :raises InvalidConfiguration: says why
    """
    _named(glob)


def _translated(source: str, part: str) -> str:
    """Return a pattern without folders as a regular expression."""
    made, at, depth = [], 0, 0
    while at < len(part):
        mark = part[at]
        at += 1
        if mark == "\\" and at < len(part):
            made.append(re.escape(part[at]))
            at += 1
        elif mark == "[":
            text, at = _class(source, part, at)
            made.append(text)
        elif mark in "{}," and (depth or mark == "{"):
            depth += {"{": 1, "}": -1, ",": 0}[mark]
            made.append({"{": "(?:", "}": ")", ",": "|"}[mark])
        else:
            made.append({"*": "[^/]*", "?": "[^/]"}.get(mark) or re.escape(mark))
    if depth:
        raise _no_pattern(source, "{")
    return "".join(made)


def _class(source: str, part: str, at: int) -> tuple[str, int]:
    end = part.find("]", at + (2 if part[at : at + 1] in ("^", "!") else 1))
    if end < 0:
        raise _no_pattern(source, "[")
    negated = part[at] in "^!"
    marks = part[at + 1 : end] if negated else part[at:end]
    escaped = re.sub(r"([\\\]\[&~|^])", r"\\\1", marks)
    try:
        re.compile(f"[{escaped}]")
    except re.error as error:
        raise _no_pattern(source, f"[{marks}]") from error
    return f"[^/{escaped}]" if negated else f"[{escaped}]", end + 1


def _no_pattern(source: str, mark: str) -> InvalidConfiguration:
    return InvalidConfiguration(
        f"{source} is no pattern: {mark!r} is not closed, or no range of characters.",
        remedy=f"close it, or write \\{mark[0]} where the character itself is meant.",
    )


def _hides(below: str) -> bool:
    return any(part[:1] in ("_", ".") or part.endswith(_COPYING) for part in below.split("/"))


# -- local --------------------------------------------------------------------------------------
def _local(root: Path, source: Source, named: Callable[[str], bool], after: str | None) -> list[Listed]:
    if not root.exists():
        raise _missing(str(root))
    if root.is_file():
        found = _one(root)
        return [found] if found is not None and (after is None or found.uri > after) else []
    base = str(root).rstrip("/")
    real_base = os.path.realpath(base).rstrip("/")
    listed: list[Listed] = []
    by_link: dict[str, Listed] = {}
    for entry, linked in _walk(base, after):
        below = entry.path[len(base) + 1 :]
        if not (named(entry.name) and source.meant(below)):
            continue
        try:
            stat = entry.stat()
        except FileNotFoundError:
            # Gone since its folder was read.
            continue
        file = Listed(entry.path, stat.st_size, stat.st_mtime_ns // 1_000_000)
        if not linked:
            listed.append(file)
            continue
        real = os.path.realpath(entry.path)
        own = real[len(real_base) + 1 :] if real.startswith(f"{real_base}/") else None
        # What is listed by its own name is not listed by another one, too.
        if own is None or not (named(os.path.basename(real)) and source.meant(own)):  # noqa: PTH119
            by_link[real] = min(file, by_link.get(real, file), key=lambda one: one.uri)
    return sorted([*listed, *by_link.values()], key=lambda file: file.uri)


def _walk(root: str, after: str | None) -> Iterator[tuple[os.DirEntry[str], bool]]:
    """Yield files, and whether a link leads to them."""
    folders: list[tuple[str, tuple[str, ...]]] = [(root, ())]
    while folders:
        folder, links = folders.pop()
        try:
            with os.scandir(folder) as entries:
                found = list(entries)
        except FileNotFoundError:
            continue
        for entry in found:
            if entry.is_dir():
                inside = f"{entry.path}/"
                # All names in a folder that ends before the last one taken do, too.
                reaches = after is None or after.startswith(inside) or inside > after
                target = os.path.realpath(entry.path) if entry.is_symlink() else ""
                if reaches and not (target and _leads_back(target, folder, links)):
                    folders.append((entry.path, (*links, target) if target else links))
            elif entry.is_file() and (after is None or entry.path > after):
                yield entry, bool(links) or entry.is_symlink()


def _leads_back(target: str, folder: str, links: tuple[str, ...]) -> bool:
    """Tell whether a link leads to a folder that it lies in, by way of other links, too."""
    return target in links or f"{os.path.realpath(folder)}/".startswith(f"{target}/")


def _one(path: Path) -> Listed | None:
    try:
        stat = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return Listed(str(path), stat.st_size, stat.st_mtime_ns // 1_000_000)


# -- object stores ------------------------------------------------------------------------------
async def _stored(
    source: Source,
    storage_options: dict[str, str] | None,
    named: Callable[[str], bool],
    after: str | None,
) -> list[Listed]:
    import obstore

    bucket, prefix = open_bucket(source.root, storage_options)
    home = source.root[: len(source.root) - len(prefix)].rstrip("/")
    offset = canonical_uri(after)[len(home) + 1 :] if after is not None else None
    listed = []
    try:
        with Storage(source.root, storage_options).named():
            within = f"{prefix}/" if prefix else None
            async for batch in obstore.list(bucket.store, within, offset=offset, chunk_size=1000):
                for meta in batch:
                    key = meta["path"]
                    below = key[len(prefix) :].lstrip("/")
                    if named(key.rpartition("/")[2]) and source.meant(below) and _is_file(meta):
                        listed.append(_entry(home, meta))
    except FileNotFoundError:
        raise _missing(source.root) from None
    if not listed and source.pattern is None and prefix:
        one = await _head(source.root, storage_options)
        listed = [one] if one is not None and (after is None or one.uri > after) else []
    return sorted(listed, key=lambda file: file.uri)


async def _head(uri: str, storage_options: dict[str, str] | None) -> Listed | None:
    import obstore

    bucket, key = open_bucket(uri, storage_options)
    try:
        with Storage(uri, storage_options).named():
            meta = await obstore.head_async(bucket.store, key)
    except FileNotFoundError:
        return None
    return _entry(uri[: len(uri) - len(key)].rstrip("/"), meta)


def _is_file(meta: Any) -> bool:
    """Tools leave empty objects in the place of folders."""
    return bool(meta["size"]) or not meta["path"].endswith("/")


def _entry(home: str, meta: Any) -> Listed:
    uri = f"{spark_uri(home)}/{meta['path']}"
    return Listed(uri, meta["size"], milliseconds(meta["last_modified"]), meta["e_tag"] or "")


def _missing(source: str) -> SourceNotFound:
    return SourceNotFound(
        f"There is nothing at {source} to ingest from.",
        remedy="check the path, and the mount or the bucket that it is on.",
    )
