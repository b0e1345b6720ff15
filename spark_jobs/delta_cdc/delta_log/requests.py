"""Send all requests to a table's storage, and turn each failure into a named error.

Only ``FileNotFoundError`` means that a file does not exist. Any other failure of storage is
:class:`~delta_cdc.core.errors.StoreUnavailable`, which is no information about the table.
"""

from __future__ import annotations

import asyncio
import io
import os
import posixpath
import re
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from delta_cdc.core.codec import MOST_BYTES
from delta_cdc.core.concurrency import budget
from delta_cdc.core.drafts import replacing
from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, StoreRefused, StoreUnavailable
from delta_cdc.core.reasons import reason
from delta_cdc.core.secrets import redacted
from delta_cdc.core.uris import KNOWN_SCHEMES, canonical_uri, local_path
from delta_cdc.delta_log.store import open_bucket, open_store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from obstore.store import ObjectStore

    from delta_cdc.core.concurrency import Budget

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
#: Bytes read at once: parsing them must block an event loop only for a few milliseconds.
_CHUNK = 256 * 1024
#: Bytes that are read at once from a file by ranges.
_PIECE = 1024 * 1024
_SCHEME = re.compile(r"^[A-Za-z][A-Za-z0-9+.-]*:")
_REFUSED = re.compile(
    r"status code: 40[13]\b|169\.254\.169\.254|[Cc]redential|AccessDenied|Forbidden|Permission denied"
    r"|\b(?:ExpiredToken|InvalidToken|TokenRefreshRequired|KMS\.\w+)\b"
)
#: What an answer says is wrong, and what helps. No retry does, except after a refusal.
_WRONG: tuple[tuple[re.Pattern[str], type[DeltaCdcError], str, str], ...] = (
    (
        re.compile(
            r"\b(?:NoSuchBucket|ContainerNotFound|InvalidBucketName)\b|The specified bucket does not exist"
        ),
        InvalidConfiguration,
        "has no such bucket or container",
        "correct the location, or create the bucket. If it exists, check endpoint and region.",
    ),
    (
        re.compile(
            r"\b(?:AuthorizationHeaderMalformed|PermanentRedirect|IllegalLocationConstraintException)\b"
            r"|redirect without LOCATION"
        ),
        InvalidConfiguration,
        "is in another region, or at another endpoint",
        "set region and endpoint of the bucket in the connection or in storage_options.",
    ),
    (
        re.compile(r"\bUnknownIssuer\b"),
        InvalidConfiguration,
        "has a certificate of an authority that this process does not know",
        "name a PEM file with your authorities in SSL_CERT_FILE, and import it into the trust store of Java.",
    ),
    (
        re.compile(r"\bRequestTimeTooSkewed\b"),
        StoreRefused,
        "refused access",
        "correct the clock of this machine.",
    ),
)
#: What obstore raises if its own code breaks; neither is one of its errors.
_PANICS = ("RustPanic", "PanicException")
_QUERY = re.compile(r"\?[^\s\"']*")
_NO_PATH = "Could not parse path"
_NO_FOLDER = "Not a directory (os error 20)"
LOG = "_delta_log"


@dataclass(frozen=True)
class Entry:
    """A file of the table.

    :param name: relative to the table, with ``/``
    :param modified: epoch milliseconds
    :param e_tag: None if the store has no such tag
    """

    name: str
    size: int
    modified: int
    e_tag: str | None = None


#: A file's entry, and its bytes.
Opened = tuple[Entry, "AsyncIterator[bytes]"]


class Storage:
    """The files of one table.

    :param uri: canonical
    :param storage_options: credentials and client options, as delta-rs names them
    """

    def __init__(self, uri: str, storage_options: dict[str, str] | None = None) -> None:
        self.uri = uri
        self._options = storage_options
        self._store: ObjectStore | None = None
        #: The table's prefix in the bucket, with its slash.
        self._prefix = ""

    async def head(self, name: str) -> Entry | None:
        """Return a file's entry, or None if the file does not exist: one request."""
        import obstore

        store = await self._root_async()
        if store is None:
            return None
        try:
            with self.named():
                return self._entry(await obstore.head_async(store, self._prefix + name))
        except FileNotFoundError:
            return None

    def open(self, name: str) -> AbstractAsyncContextManager[Opened | None]:
        """Open a file for streaming: one request. Give None if the file does not exist.

        If the files that are open already fill the budget, this waits, and then sends the request again:
        an answer that waits would exceed its time limit.
        """
        return _Open(self, name)

    async def read(self, name: str, *, most: int = MOST_BYTES) -> bytes | None:
        """Return a small file's bytes; None if the file does not exist, or is larger than ``most`` bytes."""
        async with self.open(name) as opened:
            if opened is None or opened[0].size > most:
                return None
            return b"".join([chunk async for chunk in opened[1]])

    async def list_log(self, take: Callable[[Entry], None], after: str | None = None) -> None:
        """Give the files of the log folder, without its subfolders, to a function one by one: one listing.

        The order is that of the store. Only one page of the listing is in memory at once.

        :param take: fast; for a local folder, it runs in another thread
        :param after: leave out the names up to this one (without the folder)
        """
        path = local_path(self.uri)
        if path is not None:
            with self.named():
                await asyncio.to_thread(_scan, Path(path) / LOG, after, take)
            return
        async for page in self.pages(f"{LOG}/", f"{LOG}/{after}" if after else None):
            for entry in page:
                # Skip subfolders (_sidecars, _staged_commits).
                if entry.name.count("/") == 1:
                    take(entry)

    async def pages(self, prefix: str | None = None, after: str | None = None) -> AsyncGenerator[list[Entry]]:
        """Yield the files of an object store's table, a page of the listing at a time, sorted by name.

        :param prefix: only names that begin with it
        :param after: only names greater than this one
        """
        import obstore

        with self.named():
            store = await self._root_async()
            if store is None:
                return
            within = f"{self._prefix}{prefix or ''}" or None
            offset = None if after is None else self._prefix + after
            async for batch in obstore.list(store, within, offset=offset):
                yield [self._entry(meta) for meta in batch]

    async def has(self, path: str) -> bool:
        """Return whether a file named by an action exists.

        :param path: percent-encoded; relative, or an absolute URI. A file that cannot be looked up counts as
            existing
        """
        location = self._locate(path)
        return location is None or await location[0].head(location[1]) is not None

    async def read_range(self, path: str, start: int, length: int) -> bytes | None:
        """Return a part of a file named by an action: one request.

        :param path: as in :meth:`has`
        :return: less than ``length`` bytes if the file ends earlier; None if it cannot be looked up
        :raises FileNotFoundError: it does not exist
        :raises StoreUnavailable: storage did not answer, refused, or sent less than it named
        """
        import obstore

        location = self._locate(path)
        if location is None:
            return None
        store = await location[0]._root_async()
        if store is None:
            raise FileNotFoundError(path)
        name = location[0]._prefix + location[1]
        async with budget().taken(length):
            with self.named():
                # Not get_range, which does not compare the bytes that came with the range of the answer.
                part: Any = {"range": (start, start + length)}
                answer = await obstore.get_async(store, name, options=part)
                return _whole(bytes(await answer.bytes_async()), answer.range)

    def reader(self, name: str) -> io.BufferedReader:
        """Return a file object that reads by ranges. It blocks, so use it in a thread.

        Every failure of storage is a named error, so any other error of a parser concerns the bytes. That
        another writer replaces the file in between counts as such a failure.

        :raises FileNotFoundError: it does not exist
        :raises StoreUnavailable: storage did not answer, or refused; also from the file's own methods
        """
        import obstore

        store = self._root()
        if store is None:
            raise FileNotFoundError(name)
        key = self._prefix + name
        with self.named():
            return io.BufferedReader(_Ranges(store, key, obstore.head(store, key), self.named), _PIECE)

    # -- inside -----------------------------------------------------------------------------------
    async def _get(self, name: str) -> tuple[Entry, Any] | None:
        """Return a file's entry, and the answer with its bytes; None if the file does not exist."""
        import obstore

        store = await self._root_async()
        if store is None:
            return None
        try:
            with self.named():
                result = await obstore.get_async(store, self._prefix + name)
                return self._entry(result.meta), result
        except FileNotFoundError:
            return None

    def _locate(self, path: str) -> tuple[Storage, str] | None:
        """Return the storage and the name of a file named by an action; None if it cannot be looked up."""
        try:
            parts = urlsplit(path) if _SCHEME.match(path) else None
        except ValueError:
            return None
        if path.startswith("/"):
            uri = unquote(path)
        elif parts is None:
            uri = _joined(self.uri, unquote(path))
        elif parts.scheme.lower() == "file":
            uri = unquote(parts.path)
        elif parts.scheme.lower() in KNOWN_SCHEMES:
            uri = canonical_uri(f"{parts.scheme}://{parts.netloc}{unquote(parts.path)}")
        else:
            return None
        if uri.startswith(self.uri + "/"):
            return self, uri[len(self.uri) + 1 :]
        folder, _, name = uri.rpartition("/")
        return Storage(folder or "/", self._options), name

    async def _root_async(self) -> ObjectStore | None:
        if self._store is None and local_path(self.uri) is not None:
            # A thread, because the local folder may be on a slow network disk.
            return await asyncio.to_thread(self._root)
        return self._root()

    def _root(self) -> ObjectStore | None:
        if self._store is None and local_path(self.uri) is None:
            self._store, prefix = open_bucket(self.uri, self._options)
            self._prefix = f"{prefix}/" if prefix else ""
        elif self._store is None:
            with self.named():
                self._store = open_store(self.uri)
        return self._store

    def _entry(self, meta: Any) -> Entry:
        name = meta["path"].removeprefix(self._prefix)
        return Entry(name, meta["size"], milliseconds(meta["last_modified"]), meta["e_tag"])

    async def _chunks(self, result: Any, size: int) -> AsyncGenerator[bytes]:
        with self.named():
            if size <= _CHUNK:
                yield _whole(bytes(await result.bytes_async()), (0, size))
                return
            missing = size
            async for chunk in result.stream(min_chunk_size=_CHUNK):
                view = memoryview(bytes(chunk))
                missing -= len(view)
                for start in range(0, len(view), _CHUNK):
                    yield bytes(view[start : start + _CHUNK])
                    await asyncio.sleep(0)
            # A client that goes on where a body broke off does not compare, either.
            _whole(b"", (0, missing))

    def named(self) -> AbstractContextManager[None]:
        """Turn storage failures within the block into named errors, but keep ``FileNotFoundError``."""
        return _Named(self)

    def _of_failure(self, error: BaseException) -> Exception | None:
        """Return the named error of a failure; None if it stays what it is."""
        from obstore.exceptions import BaseError

        if isinstance(error, DeltaCdcError | FileNotFoundError):
            return None
        if isinstance(error, ValueError):
            if not str(error).startswith(_NO_PATH):
                return None
            # No file has such a name.
            return FileNotFoundError(self.uri)
        if not isinstance(error, OSError | BaseError) and type(error).__name__ not in _PANICS:
            return None
        if _NO_FOLDER in str(error):
            # The path of the folder is a file, so files in that folder do not exist.
            return FileNotFoundError(self.uri)
        return self._unavailable(error)

    def _unavailable(self, error: BaseException) -> DeltaCdcError:
        kind = type(error).__name__
        text = self._clean(error)
        is_local = local_path(self.uri) is not None
        # The name of a table must not decide.
        answer = text.replace(self._prefix, "") if self._prefix else text
        for pattern, of, what, remedy in () if is_local else _WRONG:
            if pattern.search(answer):
                return of(f"The storage of {self.uri} {what} ({text}).", remedy=remedy)
        refused = isinstance(error, PermissionError) or kind in (
            "PermissionDeniedError",
            "UnauthenticatedError",
        )
        if refused or _REFUSED.search(answer):
            return StoreRefused(
                f"The storage of {self.uri} refused access ({text}).",
                remedy="give the user of this process the right to read and list these files."
                if is_local
                else "check the credentials and the permissions (read and list) of the connection, of "
                "storage_options or of the environment.",
            )
        checks = "the disk" if is_local else "endpoint and region of the connection"
        return StoreUnavailable(
            f"The storage of {self.uri} did not answer, or answered with an error ({text}).",
            remedy="try again later; nothing is known about the table now. If the error persists, check "
            f"{checks}.",
        )

    def _clean(self, error: BaseException) -> str:
        """Return the reason without secrets: without queries of URLs and secret options."""
        return redacted(_QUERY.sub("", reason(error)), self._options)


class _Named:
    """See :meth:`Storage.named`. A class, because each request enters it, and a generator costs more."""

    __slots__ = ("_storage",)

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        named = None if error is None else self._storage._of_failure(error)
        if named is not None:
            # Raise without a cause: the store's own message may hold secrets, which the new message omits.
            raise named from None


class _Open:
    """See :meth:`Storage.open`. A class, because a log has thousands of files, and a generator costs more."""

    __slots__ = ("_amount", "_chunks", "_name", "_shared", "_storage")

    def __init__(self, storage: Storage, name: str) -> None:
        self._storage, self._name = storage, name
        self._shared: Budget | None = None
        self._amount = 0
        self._chunks: AsyncGenerator[bytes] | None = None

    async def __aenter__(self) -> Opened | None:
        answer = await self._storage._get(self._name)
        if answer is None:
            return None
        shared = budget()
        amount = shared.part(answer[0].size)
        if not shared.take_now(amount):
            answer = None
            await shared.take(amount)
        self._shared, self._amount = shared, amount
        if answer is None:
            try:
                answer = await self._storage._get(self._name)
            except BaseException:
                self._give_back()
                raise
        if answer is None:
            return None
        self._chunks = self._storage._chunks(answer[1], answer[0].size)
        return answer[0], self._chunks

    async def __aexit__(self, *error: object) -> None:
        try:
            if self._chunks is not None:
                await self._chunks.aclose()
        finally:
            self._give_back()

    def _give_back(self) -> None:
        if self._shared is not None:
            self._shared.give_back(self._amount)
            self._shared = None


async def put_stream(
    folder: str, name: str, lines: Iterator[bytes], storage_options: dict[str, str] | None = None
) -> None:
    """Write a whole file, replacing an existing one. If the iterator of lines fails, write nothing.

    :param folder: path or URI; a local one is created
    :param name: relative to the folder
    :param lines: consumed one by one
    """
    import obstore

    target = Storage(canonical_uri(folder), storage_options)
    path = local_path(target.uri)
    with await asyncio.to_thread(_spooled, lines) as spool, target.named():
        if path is not None:
            await asyncio.to_thread(_write_file, Path(path) / name, spool)
            return
        store, prefix = open_bucket(target.uri, storage_options)
        await obstore.put_async(store, f"{prefix}/{name}" if prefix else name, spool)


async def put_after(
    folder: str,
    name: str,
    content: bytes,
    seen: Entry | None,
    storage_options: dict[str, str] | None = None,
) -> bool:
    """Write a whole file of an object store, unless another program has written it since it was read.

    A store without conditional writes replaces the file in any case.

    :param folder: URI
    :param name: relative to the folder
    :param seen: the entry of the file that was read; None if there was no file
    :return: whether the file was written
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

    target = Storage(canonical_uri(folder), storage_options)
    with target.named():
        store, prefix = open_bucket(target.uri, storage_options)
        place = f"{prefix}/{name}" if prefix else name
        try:
            if seen is None:
                await obstore.put_async(store, place, content, mode="create")
            elif seen.e_tag is not None:
                await obstore.put_async(store, place, content, mode={"e_tag": seen.e_tag})
            else:
                await obstore.put_async(store, place, content)
        except (AlreadyExistsError, PreconditionError):
            return False
        except (NotSupportedError, NotImplementedError):
            await obstore.put_async(store, place, content)
        return True


def _spooled(lines: Iterator[bytes]) -> IO[bytes]:
    with ExitStack() as stack:
        spool = stack.enter_context(tempfile.TemporaryFile())
        spool.writelines(lines)
        spool.seek(0)
        stack.pop_all()
        return spool


async def delete_folder(folder: str, storage_options: dict[str, str] | None = None) -> None:
    """Delete a folder and its contents, if it exists.

    :param folder: path or URI, below the root of its store
    """
    import obstore

    target = Storage(canonical_uri(folder), storage_options)
    path = local_path(target.uri)
    with target.named():
        if path is not None:
            await asyncio.to_thread(_delete_local, Path(path))
            return
        store, prefix = open_bucket(target.uri, storage_options)
        # Never delete a whole bucket.
        assert prefix
        async for batch in obstore.list(store, prefix=f"{prefix}/"):
            await obstore.delete_async(store, [item["path"] for item in batch])


def _delete_local(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)


def _write_file(path: Path, content: IO[bytes]) -> None:
    # Readable by executors, which may run as another user.
    with replacing(path, mode=0o644) as file:
        shutil.copyfileobj(content, file)


class _Ranges(io.RawIOBase):
    """An object as a file: each read is one request for a range of the same object.

    obstore's own reader takes fewer bytes than the answer names for the end of the object, and the ranges of
    two objects for one.
    """

    def __init__(
        self, store: ObjectStore, key: str, meta: Any, named: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._store, self._key, self._named = store, key, named
        self._size: int = meta["size"]
        self._tag: str | None = meta["e_tag"] or None
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        import obstore

        part = (self._at, min(self._at + len(buffer), self._size))
        if part[0] >= part[1]:
            return 0
        with self._named():
            options: Any = {"range": part, "if_match": self._tag}
            answer = obstore.get(self._store, self._key, options=options)
            if (answer.meta["e_tag"] or None) != self._tag:
                # A store may ignore the condition.
                raise OSError("another writer replaced the file while it was read")
            content = _whole(bytes(answer.bytes()), part)
        buffer[: len(content)] = content
        self._at = part[1]
        return len(content)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at


def _whole(content: bytes, named: Sequence[int]) -> bytes:
    """Return the bytes of an answer.

    :param named: start and end of the range that the answer names
    :raises OSError: they are fewer
    """
    start, end = named
    if len(content) != end - start:
        raise OSError(f"{len(content)} bytes came of the {end - start} that the answer names")
    return content


def milliseconds(moment: datetime) -> int:
    """Return epoch milliseconds; use integers, because a float may round below the millisecond."""
    return (moment - _EPOCH) // _MILLISECOND


def _joined(uri: str, path: str) -> str:
    scheme, separator, rest = uri.rpartition("://")
    return scheme + separator + posixpath.normpath(f"{rest}/{path}")


def _scan(folder: Path, after: str | None, take: Callable[[Entry], None]) -> None:
    """List a local log folder without the store, which fails on names that it cannot represent."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            try:
                if (after is None or entry.name > after) and entry.is_file():
                    stat = entry.stat()
                    modified = stat.st_mtime_ns // 1_000_000
                    take(Entry(f"{LOG}/{entry.name}", stat.st_size, modified))
            except FileNotFoundError:
                # Deleted since the listing, for instance by log cleanup.
                continue
