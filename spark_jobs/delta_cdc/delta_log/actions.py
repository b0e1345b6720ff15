"""The actions of a commit file, and a summary of a whole commit.

The parser checks each value: a wrong type is damage, and no default replaces the value. Only ``commitInfo``
is free-form by Delta's protocol, so an unexpected value there counts as missing.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote

from delta_cdc.core import codec
from delta_cdc.core.codec import INTEGERS, TooDeep, UnreadableJson
from delta_cdc.core.errors import CorruptLog, LogLineTooLong, LogTooLarge

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

F = TypeVar("F", bound="FileAction")

_METADATA_ONLY_MERGE = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
)
#: Operations that rewrite all their rows or restore files: they copy no existing row.
_COPIES_NO_ROW = frozenset(
    {
        "WRITE",
        "STREAMING UPDATE",
        "RESTORE",
        "CREATE TABLE",
        "CREATE TABLE AS SELECT",
        "CREATE OR REPLACE TABLE",
        "CREATE OR REPLACE TABLE AS SELECT",
        "REPLACE TABLE",
        "REPLACE TABLE AS SELECT",
    }
)
#: Tag of a commit that kept the row ids of the rows it copied.
IDS_KEPT = "delta.rowTracking.preserved"
#: The variable with the largest size of a line, in bytes.
LINE_VARIABLE = "DELTA_CDC_MAX_LINE_BYTES"
#: The variable with the most bytes that one read keeps in memory for the names of files.
MEMORY_VARIABLE = "DELTA_CDC_MAX_LOG_MEMORY"
#: A larger line is parsed in a thread.
LARGE_LINE = codec.LARGE_TEXT
#: The times of commits, in epoch milliseconds, that have a date: years 1 to 9999.
TIMES = range(-62_135_596_800_000, 253_402_300_800_000)
_WHOLE = re.compile(rb'\s*\{\s*"\w+"\s*:.*\}\s*', re.DOTALL)
_NUM_RECORDS = re.compile(r'\s*\{\s*"numRecords"\s*:\s*([0-9]{1,18})\s*[,}]')

_NUMBER = re.compile(r"[0-9]{1,18}")

#: Distinct partition values of a file: (column, value) pairs, sorted by column.
Partition = tuple[tuple[str, str | None], ...]
#: Path (percent-decoded) and deletion vector: identifies a file within a version.
Key = tuple[str, str]


class BadActionError(ValueError):
    """A line of the log violates Delta's protocol; becomes :class:`~errors.CorruptLog`."""


class LongLineError(Exception):
    """A line of the log is longer than the limit; becomes :class:`~errors.LogLineTooLong`."""

    def __init__(self, number: int, most_bytes: int) -> None:
        super().__init__(f"line {number} has more than {most_bytes} bytes")


class TooManyFilesError(Exception):
    """The names of files take more memory than the limit; becomes :class:`~errors.LogTooLarge`."""

    def __init__(self, files: int, most_bytes: int) -> None:
        super().__init__(f"the names of {files} files take more than {most_bytes} bytes")


@dataclass(frozen=True)
class CommitInfo:
    """Who made the commit and how; ``timestamp`` and ``in_commit_timestamp`` in epoch milliseconds."""

    operation: str = ""
    operation_parameters: dict[str, Any] = field(default_factory=dict)
    operation_metrics: dict[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    timestamp: int | None = None
    in_commit_timestamp: int | None = None
    tags: dict[str, str] = field(default_factory=dict)

    def metric(self, name: str) -> int | None:
        """Return a metric of the operation; None if it is missing, or no number."""
        return _whole(self.operation_metrics.get(name))

    def whole_parameter(self, name: str) -> int | None:
        """Return a parameter of the operation; None if it is missing, or no whole number."""
        return _whole(self.operation_parameters.get(name))


@dataclass(frozen=True)
class MetaData:
    """The table's id, properties and schema; ``created_time`` in epoch milliseconds."""

    id: str
    configuration: dict[str, str] = field(default_factory=dict)
    schema_string: str = ""
    partition_columns: tuple[str, ...] = ()
    created_time: int | None = None


@dataclass(frozen=True)
class Protocol:
    """Versions and features that readers and writers must know."""

    min_reader_version: int = 1
    min_writer_version: int = 2
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """The record of which rows of a file are masked.

    :param storage_type: ``u`` (a file of the table), ``p`` (a file by its URI) or ``i`` (inline)
    :param path_or_inline: the file, or the vector
    :param offset: the position of the vector in its file
    :param size_in_bytes: the size of the vector
    :param cardinality: the number of masked rows
    """

    storage_type: str | None = None
    path_or_inline: str | None = None
    offset: int | None = None
    size_in_bytes: int | None = None
    cardinality: int = 0

    @property
    def unique_id(self) -> str:
        """Return a text that distinguishes the vectors of one file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline}{suffix}"


@dataclass(frozen=True, slots=True)
class FileAction:
    """The log's record of a file. The subclass shows whether the commit added or removed the file.

    :param path: as in the log: percent-encoded, relative to the table or absolute
    :param size: bytes; None if the writer omitted it
    :param partition_values: a value for each partition column, where None is NULL; None if the writer omitted
        them
    :param stats: JSON text
    :param is_extended: false if the writer of a removed file does not say that its record is whole
        (``extendedFileMetadata``)
    """

    path: str
    data_change: bool = False
    size: int | None = None
    partition_values: dict[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    row_commit_version: int | None = None
    stats: str | None = field(default=None, repr=False)
    is_extended: bool = True

    @property
    def key(self) -> Key:
        """Return the key that identifies the file within a version."""
        return unquote(self.path), self.deletion_vector.unique_id if self.deletion_vector else ""

    @property
    def rows(self) -> int | None:
        """Return the number of rows before masking; None if the statistics lack it."""
        if self.stats is None:
            return None
        match = _NUM_RECORDS.match(self.stats)
        if match is not None:
            return int(match[1])
        try:
            rows = codec.parsed(self.stats, patient=self.is_large).get("numRecords")
        except (UnreadableJson, AttributeError):
            return None
        return rows if isinstance(rows, int) and not isinstance(rows, bool) and rows in INTEGERS else None

    @property
    def is_large(self) -> bool:
        """Return whether the statistics are so large that an event loop must not parse them."""
        return self.stats is not None and len(self.stats) > LARGE_LINE

    @property
    def masked_rows(self) -> int:
        """Return the number of rows that the deletion vector masks."""
        return 0 if self.deletion_vector is None else self.deletion_vector.cardinality

    def columns_with_nulls(self) -> set[str]:
        """Return the file's columns, by their names in files, that certainly have a NULL in a visible row."""
        if self.masked_rows or not self.rows:
            return set()
        of_partitions = {name for name, value in (self.partition_values or {}).items() if not value}
        try:
            counts = codec.parsed(self.stats or "{}").get("nullCount")
        except (UnreadableJson, AttributeError):
            counts = None
        found = counts.items() if isinstance(counts, dict) else ()
        return of_partitions | {name for name, count in found if isinstance(count, int) and count > 0}

    @property
    def is_described(self) -> bool:
        """Return whether the log records what a reader needs: size and partition values."""
        return self.size is not None and self.partition_values is not None

    def filled(self: F, other: FileAction) -> F:
        """Return the action; take the details that it lacks from another action of the same file."""
        if self.is_described and self.base_row_id is not None:
            return self
        ids = self if self.base_row_id is not None else other
        return replace(
            self,
            size=other.size if self.size is None else self.size,
            partition_values=other.partition_values
            if self.partition_values is None
            else self.partition_values,
            base_row_id=ids.base_row_id,
            row_commit_version=ids.row_commit_version,
        )

    def with_rows(self: F, rows: int | None) -> F:
        """Return the action with a number of rows as its only statistics, to save memory."""
        return replace(self, stats=None if rows is None else f'{{"numRecords":{rows}}}')


class Add(FileAction):
    """A file that the commit adds to the table."""

    __slots__ = ()


class Remove(FileAction):
    """A file that the commit removes from the table."""

    __slots__ = ()


class Cdc(FileAction):
    """A file of change rows."""

    __slots__ = ()


@dataclass(frozen=True)
class Txn:
    """An application's own version, recorded with the data."""

    app_id: str
    version: int


Action = CommitInfo | MetaData | Protocol | Add | Remove | Cdc | Txn


@dataclass(frozen=True)
class Commit:
    """One commit, without its list of files.

    :param changes_data: it changed rows: it has a change file, or files added or removed as data, and is not
        a MERGE without an inserted, updated or deleted row
    :param sha256: SHA-256 (hex) of the commit file's bytes
    :param modified: the file's modification time, epoch milliseconds
    :param bytes_added: size of the files added as data
    :param bytes_removed: size of the files removed as data, if the writer recorded it
    :param bytes_cdc: size of the change files
    :param partitions: the distinct partition values of the files added or removed as data and of the change
        files, if the writer recorded them; for an unpartitioned table, one empty value
    :param names_partitions: the writer recorded the partition values of all these files
    :param n_data_adds: number of files added as data; the other added files were only rewritten
    :param n_data_removes: number of files removed as data
    :param paired: it adds and removes data, and adds exactly the files as data that it removes as data: only
        the masked rows have changed
    :param compares_vectors: it has no change files, and adds and removes the same file as data: Delta's feed
        compares the file's two deletion vectors, which needs one or two extra scans
    :param refused_by_delta: it has no change files, and removes a file as data whose record is not whole
        (:attr:`FileAction.is_extended`): Delta's feed refuses the commit, though the record may have all that
        a file manifest needs
    :param keeps_row_ids: every copied row keeps its row id. This is so if the commit only added files, or
        only removed files, or removed and added the same files (including files that were only rewritten); if
        its tag records that it preserved the ids; and for operations that rewrite all their rows, or restore
        files (``WRITE``, ``RESTORE``, ``CREATE`` and ``REPLACE TABLE``)
    :param rows_identified: every added file has a base row id
    :param adds_rows: the statistics show that a file added as data has rows; false if they lack their number
    :param rows_added: rows in the files added as data; None if the statistics of a file lack their number
    """

    version: int
    sha256: str
    modified: int = 0
    info: CommitInfo = CommitInfo()
    metadata: MetaData | None = None
    protocol: Protocol | None = None
    txns: tuple[Txn, ...] = ()
    n_adds: int = 0
    n_removes: int = 0
    n_cdc: int = 0
    changes_data: bool = False
    bytes_added: int = 0
    bytes_removed: int = 0
    bytes_cdc: int = 0
    partitions: frozenset[Partition] = frozenset()
    names_partitions: bool = True
    n_data_adds: int = 0
    n_data_removes: int = 0
    paired: bool = False
    compares_vectors: bool = False
    refused_by_delta: bool = False
    keeps_row_ids: bool = True
    rows_identified: bool = True
    adds_rows: bool = False
    rows_added: int | None = 0

    @property
    def has_cdc(self) -> bool:
        """Return whether the commit holds change files."""
        return self.n_cdc > 0

    @property
    def bytes_to_read(self) -> int:
        """Return how many bytes of this commit a change feed reads.

        If the commit has change files, Delta reads these, else the files added and removed as data.
        """
        if not self.changes_data:
            return 0
        return self.bytes_cdc if self.has_cdc else self.bytes_added + self.bytes_removed

    @property
    def timestamp(self) -> int:
        """Return the commit's time as Delta does: in-commit timestamp, else its file time (epoch ms)."""
        return self.info.in_commit_timestamp or self.modified or self.info.timestamp or 0


_ADDED, _DATA_ADDED, _REMOVED, _DATA_REMOVED = 1, 2, 4, 8
#: What an action marks its path with, by its kind and whether it changes data.
_MARKS = {
    (Add, False): _ADDED,
    (Add, True): _ADDED | _DATA_ADDED,
    (Remove, False): _REMOVED,
    (Remove, True): _REMOVED | _DATA_REMOVED,
}
#: Bytes that a short text takes in a set or as the key of a dict, without its characters.
HELD = 160


class CommitFold:
    """Folds a commit's actions, one by one, into a :class:`Commit`.

    :param most_bytes: that the names of its files and partitions may take; default: the variable
        ``DELTA_CDC_MAX_LOG_MEMORY``, else 512 MiB
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most_bytes = most_log_memory() if most_bytes is None else most_bytes
        #: None until the action comes.
        self.info: CommitInfo | None = None
        #: The distinct partition values of its data files.
        self.partitions: set[Partition] = set()
        self._metadata: MetaData | None = None
        self._protocol: Protocol | None = None
        self._txns: list[Txn] = []
        #: By kind: number of files, number of data files, and bytes of the data files.
        self._files: Counter[type] = Counter()
        self._data_files: Counter[type] = Counter()
        self._bytes: Counter[type] = Counter()
        #: Whether a data file has no partition values, and whether every added file has a base row id.
        self._unpartitioned, self._identified = False, True
        #: Whether the record of each file removed as data is whole.
        self._extended = True
        self._adds_rows = False
        self._rows_added: int | None = 0
        #: Added and removed files: path -> marks (:data:`_MARKS`). To save memory, this keeps nothing else.
        self._paths: dict[str, int] = {}
        #: The number of paths by their marks, so that nothing has to walk them.
        self._marked: Counter[int] = Counter()
        #: Bytes that the paths and the partitions take, roughly.
        self._held = 0

    @property
    def has_data_files(self) -> bool:
        """Return whether a file so far was added or removed as data, or has change rows."""
        return bool(self.partitions) or self._unpartitioned

    def add(self, action: Action) -> None:
        """Take one action.

        :raises TooManyFilesError: the names of the files so far take more than the limit
        """
        if isinstance(action, FileAction):
            self._file(action)
        elif isinstance(action, Txn):
            self._txns.append(action)
        elif isinstance(action, CommitInfo):
            self.info = action
        elif isinstance(action, MetaData):
            self._metadata = action
        else:
            self._protocol = action

    def add_all(self, actions: Iterable[Action | None]) -> None:
        """Take the actions of some lines; those that are None do not count."""
        for action in actions:
            if action is not None:
                self.add(action)

    def commit(self, version: int, *, sha256: str, modified: int) -> Commit:
        """Return the commit."""
        info = self.info or CommitInfo()
        only_added, only_removed = self._one_sided(_ADDED, _REMOVED)
        data_added, data_removed = self._one_sided(_DATA_ADDED, _DATA_REMOVED)
        keeps_row_ids = not (only_added or only_removed) or not self._files[Add] or not self._files[Remove]
        recorded_as_kept = info.tags.get(IDS_KEPT) == "true" or info.operation in _COPIES_NO_ROW
        return Commit(
            version=version,
            sha256=sha256,
            modified=modified,
            info=info,
            metadata=self._metadata,
            protocol=self._protocol,
            txns=tuple(self._txns),
            n_adds=self._files[Add],
            n_removes=self._files[Remove],
            n_cdc=self._files[Cdc],
            changes_data=self.has_data_files and not rewrote_only(info),
            bytes_added=self._bytes[Add],
            bytes_removed=self._bytes[Remove],
            bytes_cdc=self._bytes[Cdc],
            partitions=frozenset(self.partitions),
            names_partitions=not self._unpartitioned,
            n_data_adds=self._data_files[Add],
            n_data_removes=self._data_files[Remove],
            paired=self._data_files[Add] > 0 and not (data_added or data_removed),
            compares_vectors=not self._files[Cdc] and self._has_both(_DATA_ADDED, _DATA_REMOVED),
            refused_by_delta=not self._files[Cdc] and not self._extended,
            keeps_row_ids=keeps_row_ids or recorded_as_kept,
            rows_identified=self._identified,
            adds_rows=self._adds_rows,
            rows_added=self._rows_added,
        )

    def _file(self, action: FileAction) -> None:
        kind = type(action)
        self._files[kind] += 1
        if kind is not Cdc:
            self._identified = self._identified and (kind is Remove or action.base_row_id is not None)
            self._mark(action.path, _MARKS[kind, action.data_change])
        if action.data_change or kind is Cdc:
            self._data_files[kind] += 1
            self._bytes[kind] += action.size or 0
            self._extended = self._extended and action.is_extended
            if kind is Add:
                rows = action.rows
                self._adds_rows = self._adds_rows or (rows or 0) > action.masked_rows
                if self._rows_added is not None:
                    self._rows_added = None if rows is None else self._rows_added + rows - action.masked_rows
            if action.partition_values is None:
                self._unpartitioned = True
            else:
                self._partition(tuple(sorted(action.partition_values.items())))

    def _mark(self, path: str, marks: int) -> None:
        before = self._paths.get(path, 0)
        if before | marks != before:
            self._marked[before] -= 1
            self._marked[before | marks] += 1
            self._paths[path] = before | marks
            if not before:
                self._hold(HELD + len(path))

    def _partition(self, partition: Partition) -> None:
        if partition not in self.partitions:
            self.partitions.add(partition)
            self._hold(HELD + sum(HELD + len(name) + len(value or "") for name, value in partition))

    def _hold(self, size: int) -> None:
        self._held += size
        if self._held > self._most_bytes:
            raise TooManyFilesError(len(self._paths), self._most_bytes)

    def _one_sided(self, one: int, other: int) -> tuple[bool, bool]:
        """Return whether a path has only the first mark, and whether a path has only the second one."""
        marks = [marks for marks, count in self._marked.items() if count > 0]
        return any(each & one and not each & other for each in marks), any(
            each & other and not each & one for each in marks
        )

    def _has_both(self, one: int, other: int) -> bool:
        return any(count > 0 and marks & one and marks & other for marks, count in self._marked.items())


class Lines:
    """Splits a stream of bytes into lines and hashes them; keeps only the unfinished line in memory.

    :param most_bytes: of one line; default: the variable ``DELTA_CDC_MAX_LINE_BYTES``, else 16 MiB
    """

    def __init__(self, most_bytes: int | None = None) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._hash = hashlib.sha256()
        self.most_bytes = most_line_bytes() if most_bytes is None else most_bytes
        #: Number of the first line that the last call returned.
        self.number = 1
        self._finished = 0

    @property
    def sha256(self) -> str:
        """Return the hash (hex) of all bytes fed so far."""
        return self._hash.hexdigest()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes, and return the lines that they complete.

        :raises LongLineError: a line is longer than the limit
        """
        self._hash.update(chunk)
        first, *rest = chunk.split(b"\n")
        self._pieces.append(first)
        self._size += len(first)
        self.number = self._finished + 1
        if self._size > self.most_bytes:
            raise LongLineError(self.number, self.most_bytes)
        if not rest:
            return []
        lines = [b"".join(self._pieces), *rest[:-1]]
        self._finished += len(lines)
        self._pieces, self._size = [rest[-1]], len(rest[-1])
        return lines

    def skip(self, chunk: bytes) -> None:
        """Take the next bytes only into the hash."""
        self._hash.update(chunk)

    def close(self) -> list[bytes]:
        """Return the last line, which needs no line end."""
        self.number = self._finished + 1
        return [b"".join(self._pieces)]


def most_line_bytes() -> int:
    """Return the largest size of a line of a log."""
    text = os.environ.get(LINE_VARIABLE, "")
    return int(text) if text and re.fullmatch("[0-9]{1,10}", text, re.ASCII) else codec.MOST_BYTES


def most_log_memory() -> int:
    """Return the most bytes that one read of a log keeps in memory for the names of files."""
    text = os.environ.get(MEMORY_VARIABLE, "")
    return int(text) if text and re.fullmatch("[0-9]{1,15}", text, re.ASCII) else 512 * 1024 * 1024


def build_action(name: str, data: Any) -> Action:
    """Build an action from its name in the log and its fields.

    :raises BadActionError: a required field is missing, or a field has another type
    """
    if not isinstance(data, dict):
        raise BadActionError(f"{name} is not an object")
    action: Action = _BUILDERS[name](_Fields(name, data))
    return action


def parse_lines(lines: Sequence[bytes], *, first: int = 1) -> list[Action | None]:
    """Return the actions in some lines; None for each action that is not used here.

    :param first: number of the first line in its file, for errors
    :raises BadActionError: for anything that is not an action
    """
    actions: list[Action | None] = []
    is_large = len(lines) > 0 and len(lines[0]) > LARGE_LINE
    for number, line in enumerate(lines, first):
        if not line.strip():
            continue
        try:
            # The limit of a line was checked when it was read.
            data = codec.parsed(line, most_bytes=sys.maxsize, patient=is_large)
        except UnreadableJson as error:
            if not isinstance(error, TooDeep) or not _is_other_action(line):
                raise BadActionError(f"line {number} is {error}") from error
            actions.append(None)
            continue
        if not isinstance(data, dict):
            raise BadActionError(f"line {number} is not a JSON object")
        names = [name for name, value in data.items() if value is not None]
        action_names = [name for name in names if name in _BUILDERS]
        if len(action_names) > 1:
            raise BadActionError(f"line {number} holds several actions ({', '.join(action_names)})")
        if names:
            actions.append(build_action(action_names[0], data[action_names[0]]) if action_names else None)
    return actions


def _is_other_action(line: bytes) -> bool:
    """Return whether a line that is too deep names only an action that is not used here."""
    return _WHOLE.fullmatch(line) is not None and _USED.search(line) is None


#: Error text for an empty commit file: even a commit that changes nothing has a ``commitInfo``.
NO_ACTION = "it holds no action"


def corrupt_commit(version: int, uri: str, why: str) -> CorruptLog:
    """Build the error for a damaged commit file."""
    return CorruptLog(
        f"The commit file of version {version} of {uri} is damaged: {why}.",
        remedy=f"bring _delta_log/{version:020d}.json back from a backup (never edit it), or load the target "
        "again from an undamaged table.",
    )


def long_line(version: int, uri: str, why: str) -> LogLineTooLong:
    """Build the error for a commit file with a line above the limit."""
    return LogLineTooLong(
        f"The commit file of version {version} of {uri} cannot be read: {why}.",
        remedy=f"set the variable {LINE_VARIABLE} of each process that reads the log to a larger number of "
        "bytes, or load the target again from a later version.",
    )


def too_large(what: str, uri: str, why: str) -> LogTooLarge:
    """Build the error for files whose names take more memory than the limit.

    :param what: has the files, such as ``commit of version 7``
    """
    return LogTooLarge(
        f"The {what} of {uri} cannot be read: {why}.",
        remedy=f"set the variable {MEMORY_VARIABLE} of each process that reads the log to a larger number of "
        "bytes, if it has as much memory. A table with fewer, larger files needs less (OPTIMIZE).",
    )


def _whole(value: Any) -> int | None:
    """Return a number of ``commitInfo``, which writers store as a number or as its text."""
    return int(value) if not isinstance(value, bool) and _NUMBER.fullmatch(str(value)) else None


def rewrote_only(info: CommitInfo) -> bool:
    """Return whether the commit is a MERGE that changed no row, by its metrics.

    Such a MERGE may have rewritten files, but Delta's reader skips it.
    """
    metrics = info.operation_metrics
    return info.operation == "MERGE" and all(metrics.get(name) == "0" for name in _METADATA_ONLY_MERGE)


class _Fields:
    """An action's fields, each read with its expected type."""

    def __init__(self, action: str, data: dict[str, Any]) -> None:
        self._action = action
        self._data = data

    def get(self, name: str, kind: type) -> Any:
        """Return a field; None if it is missing."""
        value = self._data.get(name)
        if value is not None and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise BadActionError(f"{self._action}.{name} is a {type(value).__name__}")
        if kind is int and value is not None and value not in INTEGERS:
            raise BadActionError(f"{self._action}.{name} is no integer of 64 bits")
        return value

    def need(self, name: str, kind: type) -> Any:
        """Return a required field."""
        value = self.get(name, kind)
        if value is None:
            raise BadActionError(f"{self._action} has no {name}")
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.get(name, list) or []
        if not all(isinstance(value, str) for value in values):
            raise BadActionError(f"{self._action}.{name} is not a list of texts")
        return tuple(values)

    def mapping(self, name: str) -> dict[str, str | None] | None:
        values = self.get(name, dict)
        if values is None:
            return None
        # Delta takes a boolean or a whole number for its text.
        texts = {key: str(one).lower() if isinstance(one, int) else one for key, one in values.items()}
        if not all(value is None or isinstance(value, str) for value in texts.values()):
            raise BadActionError(f"{self._action}.{name} holds something else than texts")
        return texts

    def partition_values(self) -> dict[str, str | None] | None:
        # The empty text means NULL in a partition value, by Delta's protocol.
        values = self.mapping("partitionValues")
        return None if values is None else {name: value or None for name, value in values.items()}

    def deletion_vector(self) -> DeletionVector | None:
        data = self.get("deletionVector", dict)
        if data is None:
            return None
        fields = _Fields(f"{self._action}.deletionVector", data)
        return DeletionVector(
            storage_type=fields.get("storageType", str),
            path_or_inline=fields.get("pathOrInlineDv", str),
            offset=fields.get("offset", int),
            size_in_bytes=fields.get("sizeInBytes", int),
            cardinality=fields.get("cardinality", int) or 0,
        )

    def is_true(self, name: str) -> bool:
        """Return whether a field is true; of another type, it is not."""
        return self._data.get(name) is True

    def free(self, name: str, kind: type) -> Any:
        """Return a field of ``commitInfo``; None if it has another type."""
        value = self._data.get(name)
        if not isinstance(value, kind) or isinstance(value, bool):
            return None
        return None if kind is int and value not in TIMES else value


def _commit_info(fields: _Fields) -> CommitInfo:
    metrics, tags = fields.free("operationMetrics", dict) or {}, fields.free("tags", dict) or {}
    return CommitInfo(
        operation=fields.free("operation", str) or "",
        operation_parameters=fields.free("operationParameters", dict) or {},
        operation_metrics={k: str(v) for k, v in metrics.items()},
        user_metadata=fields.free("userMetadata", str),
        timestamp=fields.free("timestamp", int),
        in_commit_timestamp=fields.free("inCommitTimestamp", int),
        tags={k: str(v) for k, v in tags.items()},
    )


def _metadata(fields: _Fields) -> MetaData:
    configuration = fields.mapping("configuration") or {}
    return MetaData(
        id=fields.need("id", str),
        configuration={k: v for k, v in configuration.items() if v is not None},
        schema_string=fields.get("schemaString", str) or "",
        partition_columns=fields.texts("partitionColumns"),
        created_time=fields.get("createdTime", int),
    )


def _protocol(fields: _Fields) -> Protocol:
    return Protocol(
        min_reader_version=fields.need("minReaderVersion", int),
        min_writer_version=fields.need("minWriterVersion", int),
        reader_features=fields.texts("readerFeatures"),
        writer_features=fields.texts("writerFeatures"),
    )


def _add(fields: _Fields) -> Add:
    fields.need("size", int)
    return _file(Add, fields, fields.partition_values() or {})


def _remove(fields: _Fields) -> Remove:
    return _file(
        Remove, fields, fields.partition_values(), is_extended=fields.is_true("extendedFileMetadata")
    )


def _file(
    kind: type[F],
    fields: _Fields,
    partition_values: dict[str, str | None] | None,
    *,
    is_extended: bool = True,
) -> F:
    return kind(
        path=fields.need("path", str),
        data_change=fields.need("dataChange", bool),
        size=fields.get("size", int),
        partition_values=partition_values,
        deletion_vector=fields.deletion_vector(),
        base_row_id=fields.get("baseRowId", int),
        row_commit_version=fields.get("defaultRowCommitVersion", int),
        stats=fields.get("stats", str),
        is_extended=is_extended,
    )


def _cdc(fields: _Fields) -> Cdc:
    return Cdc(
        path=fields.need("path", str),
        size=fields.need("size", int),
        partition_values=fields.partition_values() or {},
    )


_BUILDERS: dict[str, Any] = {
    "add": _add,
    "remove": _remove,
    "cdc": _cdc,
    "commitInfo": _commit_info,
    "metaData": _metadata,
    "protocol": _protocol,
    "txn": lambda fields: Txn(fields.need("appId", str), fields.need("version", int)),
}
_USED = re.compile('"({})"'.format("|".join(_BUILDERS)).encode())
