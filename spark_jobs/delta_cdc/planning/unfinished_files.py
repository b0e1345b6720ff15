"""Hold back CSV files that another program is still writing, without Spark.

The last line of such a file may be incomplete, and a part of a line is often a valid row. A part of a JSON
object is not valid, and object stores show only complete objects, so only local CSV files need this look.

The modification time, the last bytes, and a second look decide. The common case costs nothing: files that
have been quiet for a while, or end with a line break.
"""

from __future__ import annotations

import codecs
import os
from asyncio import sleep, to_thread
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.core.concurrency import gathered
from delta_cdc.core.text_table import plural
from delta_cdc.core.uris import canonical_uri, local_path
from delta_cdc.delta_log.requests import Storage
from delta_cdc.ingest import formats
from delta_cdc.ingest.records.compression import BY_ENDING
from delta_cdc.planning.file_listing import find_file
from delta_cdc.planning.taken_files import same

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.core.requests import IngestRequest
    from delta_cdc.core.spec import SourceFile

#: A file that was not modified for this many milliseconds is complete.
QUIET_MS = 60_000
#: Seconds between the two looks at a file. An NFS client may keep the status of a file for 3 seconds.
PAUSE = 5.0
#: Endings of compressed files. The end of their text is not visible from outside.
_COMPRESSED = tuple(BY_ENDING)


@dataclass(frozen=True)
class Finished:
    """The files that a batch may take now.

    :param files: in their order
    :param held: files for a later run: those that are still being written; with ``lexical_order``, also all
        files after the first of these
    :param notes: one sentence for users if there are such files
    """

    files: tuple[SourceFile, ...]
    held: tuple[SourceFile, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _LineBreak:
    """How a line ends in the bytes of a file.

    :param spellings: its bytes; more than one if the order of bytes is unknown
    :param unit: a complete text has a multiple of this many bytes
    """

    spellings: tuple[bytes, ...]
    unit: int

    @staticmethod
    def of(options: Mapping[str, str]) -> _LineBreak:
        dialect = formats.dialect_of("csv", options)
        codec = codecs.lookup(dialect.encoding).name
        names = (f"{codec}-le", f"{codec}-be") if codec in ("utf-16", "utf-32") else (codec,)
        unit = len("\n".encode(names[0]))
        try:
            spellings = tuple((dialect.line_sep or "\n").encode(name) for name in names)
        except UnicodeEncodeError:
            # No file in this encoding can end with it.
            spellings = ()
        return _LineBreak(spellings, unit)

    @property
    def length(self) -> int:
        """Return how many of the last bytes of a file show whether it ends with a line break."""
        return max(map(len, self.spellings), default=1)

    def ends(self, size: int, last: bytes) -> bool:
        """Return whether a file of this size, with these last bytes, ends with a line break."""
        return size % self.unit == 0 and last.endswith(self.spellings)


async def finished(files: Sequence[SourceFile], request: IngestRequest, now_ms: int) -> Finished:
    """Separate files that are complete from those that are still being written.

    A file is still being written if all of these are true: it is a local CSV file; it was modified in the
    last 60 seconds, or in the future; it does not end with a line break (a compressed file never shows one);
    it changed between the listing and a second look, 5 seconds later. All files share one pause.

    :param files: of the next batch, as listed, in the order of the batch
    :param now_ms: the time in epoch milliseconds
    :raises StoreUnavailable: the file system did not answer, or refused access
    """
    if request.options.format != "csv" or local_path(canonical_uri(request.source)) is None:
        return Finished(tuple(files))
    recent = [file for file in files if now_ms - file.modified <= QUIET_MS]
    line_break = _LineBreak.of(request.options.format_options)
    ends = await gathered(_ends(file, line_break) for file in recent)
    doubtful = [file for file, is_ended in zip(recent, ends, strict=True) if not is_ended]
    if not doubtful:
        return Finished(tuple(files))
    await sleep(PAUSE)
    changes = await gathered(_has_changed(file) for file in doubtful)
    growing = [file for file, is_changed in zip(doubtful, changes, strict=True) if is_changed]
    uris = {file.uri for file in growing}
    if request.lexical_order and uris:
        # The next run lists only the names after the last file of this batch.
        first = min(index for index, file in enumerate(files) if file.uri in uris)
        taken, held = files[:first], files[first:]
    else:
        taken = [file for file in files if file.uri not in uris]
        held = growing
    return Finished(tuple(taken), tuple(held), _notes(growing, len(held) - len(growing)))


async def _ends(file: SourceFile, line_break: _LineBreak) -> bool:
    if file.uri.endswith(_COMPRESSED):
        return False
    end = await to_thread(_end, file.uri, line_break.length)
    return end is None or line_break.ends(*end)


async def _has_changed(file: SourceFile) -> bool:
    """Return whether a file is not what was listed. A file that has vanished is no longer written."""
    # An NFS client takes the status from its cache, but asks the server when it opens a file.
    await to_thread(_end, file.uri, 1)
    with Storage(file.uri).named():
        found = await find_file(file.uri)
    if found is None:
        return False
    return not same((file.size, file.modified, file.etag), (found.size, found.modified, found.etag))


def _end(uri: str, length: int) -> tuple[int, bytes] | None:
    """Return the size of a file and its last bytes; None if it no longer exists."""
    with Storage(uri).named():
        try:
            with Path(uri).open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, size - length))
                return size, file.read(length)
        except (FileNotFoundError, NotADirectoryError):
            return None


def _notes(growing: Sequence[SourceFile], blocked: int) -> tuple[str, ...]:
    """Return the note on files that are held back.

    :param blocked: how many other files wait for them
    """
    if not growing:
        return ()
    one = len(growing) == 1
    why = "it changed while it was looked at" if one else "they changed while they were looked at"
    if not any(file.uri.endswith(_COMPRESSED) for file in growing):
        why += ", and its last line has no line break" if one else ", and their last lines have no line break"
    where = f": {growing[0].uri}" if one else f", for instance {growing[0].uri}"
    note = f"{plural(len(growing), 'file')} {'is' if one else 'are'} still being written ({why}){where}."
    if blocked:
        note += f" Because of lexical_order, {plural(blocked, 'file')} with greater names must wait, too."
    return (f"{note} The next run takes {'it' if one and not blocked else 'them'}, if complete.",)
