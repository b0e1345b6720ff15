"""The files of a table's log: which exist, and what each commit file contains."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import CorruptLog, LogGap, NotADeltaTable, TableNotFound, VersionsExpired
from delta_cdc.core.retention import LOG_GAP_REMEDY, expired
from delta_cdc.core.uris import canonical_uri, local_path
from delta_cdc.delta_log.actions import (
    LARGE_LINE,
    NO_ACTION,
    BadActionError,
    CommitFold,
    CommitInfo,
    FileAction,
    Lines,
    LongLineError,
    TooManyFilesError,
    corrupt_commit,
    long_line,
    parse_lines,
    too_large,
)
from delta_cdc.delta_log.listing import Names, of_a_commit
from delta_cdc.delta_log.requests import LOG, Storage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from delta_cdc.delta_log.actions import Action, Commit
    from delta_cdc.delta_log.listing import Listing
    from delta_cdc.delta_log.requests import Entry, Opened

_LOG_ENTRY = re.compile(r"^_delta_log(/|$)")
_DATA_FILE = re.compile(r"(^|/)part-[^/]+\.parquet$")
#: Maximum bytes of one commit file, and of all commit files, whose actions are kept for a second reader.
SMALL, _ROOM = 64 * 1024, 4 * 1024 * 1024
#: After this many consecutive versions that exist, one listing is cheaper than further requests.
_WALK = 8
_LAST_CHECKPOINT = f"{LOG}/_last_checkpoint"


class LogFiles:
    """Lists the log of one table, and reads single commit files.

    :class:`~delta_cdc.delta_log.table.DeltaLog` adds histories and the states of the table.

    :param table: path or URI
    :param storage_options: credentials and client options, as delta-rs names them
    """

    def __init__(self, table: str, storage_options: dict[str, str] | None = None) -> None:
        self.uri = canonical_uri(table)
        self._storage = Storage(self.uri, storage_options)
        #: The newest small commit files that :meth:`find` has read.
        self._contents: dict[int, bytes] = {}
        self._room = _ROOM

    # -- versions ---------------------------------------------------------------------------------
    async def newest_version(self, after: int | None = None) -> int:
        """Return the newest version. With ``after``, this takes one request if no newer version exists.

        :param after: a known version: look for later versions only, first one by one, then, if there are
            many, by a listing
        :raises TableNotFound: the location is empty or does not exist
        :raises NotADeltaTable: the location has files, but no commit
        :raises LogGap: a commit file before the newest is missing
        """
        if after is None:
            listing, _ = await self._newest_listing(None)
            return listing.commits.newest
        for _ in range(_WALK):
            if not await self.has_commit(after + 1):
                return after
            after += 1
        commits = (await self._listed(f"{after:020d}.json")).commits
        return commits.newest if commits else after

    async def oldest_version(self) -> int:
        """Return the oldest version whose commit file still exists."""
        return (await self._full_listing()).commits.oldest

    async def has_commit(self, version: int) -> bool:
        """Return whether a version's commit file exists: one request."""
        return version >= 0 and await self._storage.head(_path(version)) is not None

    async def fingerprint(self, version: int) -> str | None:
        """Return a fingerprint that distinguishes commit files of the same version: one request.

        :return: an opaque text; None if the file does not exist
        """
        entry = await self._storage.head(_path(version)) if version >= 0 else None
        if entry is None:
            return None
        return f"{entry.e_tag} {entry.size} {entry.modified} {await self._changed(version)}"

    async def _changed(self, version: int) -> str:
        """Return inode and change time of a commit file on a disk: a copied file keeps its other times."""
        folder = local_path(self.uri)
        if folder is None:
            return ""
        try:
            with self._storage.named():
                status = await asyncio.to_thread(os.stat, Path(folder, _path(version)))
        except FileNotFoundError:
            return ""
        return f"{status.st_ino} {status.st_ctime_ns}"

    # -- commits ----------------------------------------------------------------------------------
    async def actions(self, version: int) -> AsyncGenerator[Action]:
        """Yield a commit's actions in the order of the file; read the file in chunks.

        A small file that the log has already read is not read again.

        :raises VersionsExpired: log cleanup has deleted it
        :raises LogGap: it is missing, but not by log cleanup
        """
        async with self._open(version) as opened:
            if opened is None:
                raise await self.missing(version)
            async for actions in self._parsed(version, opened, Lines()):
                for action in actions:
                    yield action

    async def find(
        self, version: int, *, enough: Callable[[CommitFold], bool] | None = None, hashed: bool = True
    ) -> Commit | None:
        """Return one commit, or None if its file does not exist. This reads the file in any case.

        :param enough: the actions after those that are enough are not read: the commit does not have them
        :param hashed: False: the rest of the file is not read either, and ``sha256`` is that of the part
        """
        if version < 0:
            return None
        async with self._storage.open(_path(version)) as opened:
            if opened is None:
                return None
            return await self._folded(version, opened, enough, hashed=hashed)

    # -- presence ---------------------------------------------------------------------------------
    async def has_file(self, path: str) -> bool:
        """Return whether a data or change file named by an action exists: one request.

        :param path: as in the action: percent-encoded; relative to the table, or an absolute URI, as in
            shallow clones. A file whose scheme cannot be read here counts as existing
        """
        return await self._storage.has(path)

    async def left_over(self) -> bool:
        """Return whether the location is empty, or holds only the remains of a crash before version 0."""
        path = local_path(self.uri)
        if path is not None:
            with self._storage.named():
                return await asyncio.to_thread(_local_left_over, Path(path))
        return await _stored_left_over(self._storage.pages())

    async def missing(self, version: int) -> LogGap | VersionsExpired:
        """Build the error for a missing commit file."""
        commits = (await self._full_listing()).commits
        if version < commits.oldest:
            return expired(
                f"Version {version} of {self.uri} was cleaned from the log (the oldest is {commits.oldest})."
            )
        return LogGap(
            f"The commit file of version {version} of {self.uri} is missing "
            f"(the newest is {commits.newest}).",
            remedy=LOG_GAP_REMEDY,
        )

    # -- inside -----------------------------------------------------------------------------------
    def _forget_contents(self) -> None:
        """Forget the commit files that were read, so that the next reader reads them again."""
        self._contents.clear()
        self._room = _ROOM

    @asynccontextmanager
    async def _open(self, version: int) -> AsyncIterator[AsyncIterator[bytes] | None]:
        """Open a commit file, or what is kept of it; give None if it does not exist."""
        content = self._contents.get(version)
        if content is not None or version < 0:
            yield None if content is None else _chunks(content)
            return
        async with self._storage.open(_path(version)) as opened:
            yield None if opened is None else opened[1]

    async def _folded(
        self,
        version: int,
        opened: Opened,
        enough: Callable[[CommitFold], bool] | None = None,
        *,
        hashed: bool = True,
    ) -> Commit:
        entry, chunks = opened
        if entry.size <= min(SMALL, self._room):
            content = b"".join([chunk async for chunk in chunks])
            self._room -= len(content) - len(self._contents.get(version, b""))
            self._contents[version] = content
            whole = fold_whole(version, content, entry.modified, enough)
            if whole is not None:
                return whole
            chunks = _chunks(content)
        fold, lines = CommitFold(), Lines()
        async with aclosing(self._parsed(version, chunks, lines)) as parsed:
            async for actions in parsed:
                try:
                    await _add_all(fold, actions)
                except TooManyFilesError as error:
                    raise too_large(f"commit of version {version}", self.uri, str(error)) from error
                if enough is not None and enough(fold):
                    break
        if hashed:
            # Nothing is left unless the actions were enough.
            async for chunk in chunks:
                lines.skip(chunk)
        return fold.commit(version, sha256=lines.sha256, modified=entry.modified)

    async def _parsed(
        self, version: int, chunks: AsyncIterator[bytes], lines: Lines
    ) -> AsyncGenerator[list[Action]]:
        """Yield the actions of each piece of a commit file."""
        is_empty = True
        try:
            async for chunk in chunks:
                actions = await _parsed_lines(lines.feed(chunk), lines.number)
                is_empty = is_empty and not actions
                yield [action for action in actions if action is not None]
            actions = await _parsed_lines(lines.close(), lines.number)
        except BadActionError as error:
            raise corrupt_commit(version, self.uri, str(error)) from error
        except LongLineError as error:
            raise long_line(version, self.uri, str(error)) from error
        if is_empty and not actions:
            raise corrupt_commit(version, self.uri, NO_ACTION)
        yield [action for action in actions if action is not None]

    async def _in_commit_timestamp(self, version: int) -> int:
        async with aclosing(self.actions(version)) as actions:
            async for action in actions:
                if isinstance(action, CommitInfo) and action.in_commit_timestamp is not None:
                    return action.in_commit_timestamp
        raise corrupt_commit(version, self.uri, "it has no inCommitTimestamp, and the table has them on")

    async def _listed(self, after: str | None = None) -> Listing:
        """Return the files of the log, or only those whose names are greater than a name."""
        names = Names()
        await self._storage.list_log(names.add, after)
        return names.listing()

    async def _full_listing(self) -> Listing:
        listing = await self._listed()
        if not listing.commits:
            raise await self._absence_error(traces=listing.traces)
        return listing

    async def _newest_listing(self, version: int | None) -> tuple[Listing, bool]:
        """Return a listing of the log from the newest checkpoint (up to a version) to the end.

        ``_last_checkpoint`` only suggests where to start: if a listing from there has no commit, this lists
        the whole log.

        :return: the listing, and whether it covers the whole log
        """
        hint = await self._hint()
        listing, full = None, False
        if hint is not None and (version is None or hint <= version):
            listing = await self._listed(f"{hint:020d}")
        if listing is None or not listing.commits:
            listing, full = await self._full_listing(), True
        if version is None:
            self._refuse_holes(listing)
        return listing, full

    def _refuse_holes(self, listing: Listing) -> None:
        newest = listing.commits.newest
        checkpoint = listing.checkpoints[-1].version if listing.checkpoints else -1
        hole = listing.hole(max(listing.commits.oldest, checkpoint + 1), newest)
        if checkpoint > newest:
            hole, newest = checkpoint, checkpoint
        if hole is not None:
            raise LogGap(
                f"The commit file of version {hole} of {self.uri} is missing (the newest is {newest}).",
                remedy=LOG_GAP_REMEDY,
            )

    async def _hint(self) -> int | None:
        content = await self._storage.read(_LAST_CHECKPOINT)
        try:
            # A checkpoint of version 2 may list its files here.
            version = (await parsed_json(content or b"")).get("version")
        except (UnreadableJson, AttributeError):
            return None
        return version if isinstance(version, int) and 0 <= version < 10**19 else None

    async def _absence_error(self, *, traces: bool) -> CorruptLog | TableNotFound | NotADeltaTable:
        if traces:
            return CorruptLog(
                f"The log of {self.uri} has no commit file, but other files of a log.",
                remedy="bring the log back from a backup.",
            )
        if await self.left_over():
            return TableNotFound(
                f"There is no Delta table at {self.uri}.",
                remedy="check the location, or create the table.",
            )
        return NotADeltaTable(
            f"There are files at {self.uri}, but no Delta log.",
            remedy="name a Delta table's root folder, or CONVERT TO DELTA first. Of a new target, delete "
            "what a crash of its first load left there.",
        )


async def parsed_json(text: bytes) -> Any:
    """Return the value of a JSON text: from a thread if it is large.

    :raises UnreadableJson: as :func:`delta_cdc.core.codec.parsed`
    """
    if len(text) > LARGE_LINE:
        return await asyncio.to_thread(codec.parsed, text, patient=True)
    return codec.parsed(text)


def fold_whole(
    version: int, content: bytes, modified: int, enough: Callable[[CommitFold], bool] | None = None
) -> Commit | None:
    """Return the commit of a whole small file, without the cost of a stream; None if the file has a fault.

    :param enough: as in :meth:`LogFiles.find`
    """
    fold, lines = CommitFold(), Lines()
    try:
        actions = parse_lines(lines.feed(content))
        fold.add_all(actions)
        if enough is None or not enough(fold):
            # The last line needs no line end.
            rest = parse_lines(lines.close(), first=lines.number)
            fold.add_all(rest)
            if not actions and not rest:
                return None
    except (BadActionError, LongLineError, TooManyFilesError):
        return None
    return fold.commit(version, sha256=lines.sha256, modified=modified)


async def _add_all(fold: CommitFold, actions: list[Action]) -> None:
    """Add actions to a fold: the first one in a thread if it is large. Only the first one can be."""
    if actions and isinstance(actions[0], FileAction) and actions[0].is_large:
        await asyncio.to_thread(fold.add, actions[0])
        actions = actions[1:]
    for action in actions:
        fold.add(action)


async def _parsed_lines(lines: list[bytes], number: int) -> list[Action | None]:
    """Parse lines: in a thread if the first one is large. Only the first one can be larger than a piece."""
    if lines and len(lines[0]) > LARGE_LINE:
        return await asyncio.to_thread(parse_lines, lines, first=number)
    return parse_lines(lines, first=number)


async def _chunks(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _local_left_over(path: Path) -> bool:
    """Return whether a local folder is empty, or holds only the remains of a crash before version 0.

    Unlike plain Parquet files, such remains include the log's folder: Spark creates it before it writes data.
    """
    if not path.is_dir() or not any(path.iterdir()):
        return True
    log = path / LOG
    return log.is_dir() and not any(of_a_commit(entry.name) for entry in log.iterdir())


async def _stored_left_over(pages: AsyncGenerator[list[Entry]]) -> bool:
    """Do as :func:`_local_left_over` for an object store, where a folder is a marker object or a prefix."""
    of_log = others = False
    async with aclosing(pages):
        async for page in pages:
            for entry in page:
                if _LOG_ENTRY.match(entry.name):
                    of_log = True
                    if of_a_commit(entry.name.removeprefix(f"{LOG}/")):
                        return False
                elif _DATA_FILE.search(entry.name):
                    others = True
                else:
                    # One such file is enough: a folder of other data may have millions.
                    return False
    return of_log or not others


def _path(version: int) -> str:
    return f"{LOG}/{version:020d}.json"
