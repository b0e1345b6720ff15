"""The actions of a commit file, and a summary of a whole commit.

Parsing checks each value: a wrong type is damage, never a default. Only ``commitInfo`` is free-form by
Delta's protocol, so an unexpected value there counts as missing.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import CorruptLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_METADATA_ONLY_MERGE = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
)
#: Operations that rewrite all their rows or restore files: they copy no existing row.
_WRITES_ANEW = frozenset(
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
_PRESERVED = "delta.rowTracking.preserved"

#: Distinct partition values of a file: (column, value) pairs, sorted by column.
Partition = tuple[tuple[str, str | None], ...]


class BadActionError(ValueError):
    """A line of the log violates Delta's protocol; becomes :class:`~errors.CorruptLog`."""


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


@dataclass(frozen=True)
class DeletionVector:
    """Which rows of a file are masked.

    :param unique_id: distinguishes the vectors of one file
    :param cardinality: how many rows are masked
    :param storage_type: ``u`` (a file of the table), ``p`` (a file by its URI) or ``i`` (inline)
    :param path_or_inline: which file, or the vector itself
    :param offset: where the vector begins in its file
    :param size_in_bytes: of the vector
    """

    unique_id: str
    cardinality: int
    storage_type: str | None = None
    path_or_inline: str | None = None
    offset: int | None = None
    size_in_bytes: int | None = None


@dataclass(frozen=True)
class Add:
    """A file that became part of the table.

    :param path: as the log has it: percent-encoded, relative to the table or absolute
    :param partition_values: per partition column; None is NULL
    :param size: bytes
    :param modification_time: epoch milliseconds
    :param stats: JSON text
    """

    path: str
    data_change: bool
    size: int
    partition_values: dict[str, str | None] = field(default_factory=dict)
    modification_time: int | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    tags: dict[str, str | None] = field(default_factory=dict)
    stats: str | None = field(default=None, repr=False)

    @property
    def has_dv(self) -> bool:
        """Return whether rows of the file are masked."""
        return self.deletion_vector is not None


@dataclass(frozen=True)
class Remove:
    """A file that left the table.

    :param path: as the log has it: percent-encoded, relative to the table or absolute
    :param size: bytes; None where the writer left it out
    :param partition_values: per partition column, None is NULL; None where the writer left them out
    :param deletion_time: epoch milliseconds
    :param stats: JSON text
    """

    path: str
    data_change: bool
    size: int | None = None
    partition_values: dict[str, str | None] | None = None
    deletion_time: int | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    tags: dict[str, str | None] = field(default_factory=dict)
    stats: str | None = field(default=None, repr=False)

    @property
    def has_dv(self) -> bool:
        """Return whether rows of the file were masked."""
        return self.deletion_vector is not None


@dataclass(frozen=True)
class Cdc:
    """A file of change rows; ``size`` in bytes, ``path`` as the log has it."""

    path: str
    size: int
    partition_values: dict[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Txn:
    """An application's own version, recorded with the data."""

    app_id: str
    version: int
    last_updated: int | None = None


@dataclass(frozen=True)
class DomainMetadata:
    """A feature's own record, for instance of row tracking or clustering."""

    domain: str
    configuration: str
    removed: bool


Action = CommitInfo | MetaData | Protocol | Add | Remove | Cdc | Txn | DomainMetadata


@dataclass(frozen=True)
class Commit:
    """One commit, without its list of files.

    :param changes_data: it changed rows: it has a change file, or files added or removed as data, and is not
        a MERGE that found nothing to insert, update or delete
    :param sha256: SHA-256 (hex) of the commit file's bytes
    :param modified: the file's modification time, epoch milliseconds
    :param bytes_added: size of the files added as data
    :param bytes_removed: size of the files removed as data, as far as the writer recorded it
    :param bytes_cdc: size of the change files
    :param partitions: the distinct partition values of the files added or removed as data and of the change
        files; for an unpartitioned table, one empty value
    :param partitions_complete: whether every such file has its partition values
    :param n_data_adds: how many of the files added are data; the others were only rewritten
    :param n_data_removes: likewise of the files removed
    :param paired: it adds and removes data, and the files added as data are exactly those removed as data:
        only the masked rows have changed
    :param compares_vectors: it has no change files, and adds and removes the same file as data: Delta's feed
        compares the file's two deletion vectors, which needs one or two extra scans
    :param keeps_row_ids: every copied row keeps its row id. This holds where files were only added, or only
        removed, or where the added files are the removed ones (files that were only rewritten count, too);
        where the commit says that it preserved the ids; and for operations that rewrite all their rows, or
        restore files (``WRITE``, ``RESTORE``, ``CREATE`` and ``REPLACE TABLE``)
    :param rows_identified: every file added has a base row id
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
    partitions_complete: bool = True
    domain_metadata: tuple[DomainMetadata, ...] = ()
    n_data_adds: int = 0
    n_data_removes: int = 0
    paired: bool = False
    compares_vectors: bool = False
    keeps_row_ids: bool = True
    rows_identified: bool = True

    @property
    def has_cdc(self) -> bool:
        """Return whether the commit holds change files."""
        return self.n_cdc > 0

    @property
    def bytes_to_read(self) -> int:
        """Return how many bytes a change feed reads of this commit.

        Delta reads the change files if there are any, else the files added and removed as data.
        """
        if not self.changes_data:
            return 0
        return self.bytes_cdc if self.has_cdc else self.bytes_added + self.bytes_removed

    @property
    def timestamp(self) -> int:
        """Return the commit's time as Delta does: in-commit timestamp, else the file's (epoch ms)."""
        return self.info.in_commit_timestamp or self.modified or self.info.timestamp or 0


class CommitFold:
    """Folds a commit's actions, one by one, into a :class:`Commit`."""

    def __init__(self) -> None:
        self._info = CommitInfo()
        self._metadata: MetaData | None = None
        self._protocol: Protocol | None = None
        self._txns: list[Txn] = []
        self._domains: list[DomainMetadata] = []
        self._files = {Add: 0, Remove: 0, Cdc: 0}
        self._bytes = {Add: 0, Remove: 0, Cdc: 0}
        self._partitions: set[Partition] = set()
        self._told = True
        self._identified = True
        #: Files added and removed: path -> whether it is data. Nothing else of a file is kept.
        self._paths: dict[type, dict[str, bool]] = {Add: {}, Remove: {}}
        self._data_files = {Add: 0, Remove: 0}

    def add(self, action: Action) -> None:
        """Take one action."""
        if isinstance(action, Add | Remove | Cdc):
            self._file(action)
        elif isinstance(action, Txn):
            self._txns.append(action)
        elif isinstance(action, CommitInfo):
            self._info = action
        elif isinstance(action, MetaData):
            self._metadata = action
        elif isinstance(action, Protocol):
            self._protocol = action
        else:
            self._domains.append(action)

    def commit(self, version: int, *, sha256: str, modified: int) -> Commit:
        """Return the commit."""
        touched = bool(self._partitions) or not self._told
        return Commit(
            version=version,
            sha256=sha256,
            modified=modified,
            info=self._info,
            metadata=self._metadata,
            protocol=self._protocol,
            txns=tuple(self._txns),
            n_adds=self._files[Add],
            n_removes=self._files[Remove],
            n_cdc=self._files[Cdc],
            changes_data=touched and not _rewrote_only(self._info),
            bytes_added=self._bytes[Add],
            bytes_removed=self._bytes[Remove],
            bytes_cdc=self._bytes[Cdc],
            partitions=frozenset(self._partitions),
            partitions_complete=self._told,
            domain_metadata=tuple(self._domains),
            n_data_adds=self._data_files[Add],
            n_data_removes=self._data_files[Remove],
            paired=self._is_paired(),
            compares_vectors=not self._files[Cdc] and self._exchanges_vectors(),
            keeps_row_ids=self._keeps_row_ids(),
            rows_identified=self._identified,
        )

    def _is_paired(self) -> bool:
        """Return whether the files added as data are exactly those removed as data."""
        if not (self._data_files[Add] and self._data_files[Remove]):
            return False
        added, removed = ({path for path, data in self._paths[of].items() if data} for of in (Add, Remove))
        return added == removed

    def _exchanges_vectors(self) -> bool:
        """Return whether a file is both added and removed as data."""
        removed = self._paths[Remove]
        return any(data and removed.get(path, False) for path, data in self._paths[Add].items())

    def _keeps_row_ids(self) -> bool:
        added, removed = self._paths[Add].keys(), self._paths[Remove].keys()
        if not added or not removed or added == removed:
            return True
        return self._info.tags.get(_PRESERVED) == "true" or self._info.operation in _WRITES_ANEW

    def _file(self, action: Add | Remove | Cdc) -> None:
        kind = type(action)
        self._files[kind] += 1
        if isinstance(action, Cdc):
            self._data(action)
            return
        if isinstance(action, Add) and action.base_row_id is None:
            self._identified = False
        paths = self._paths[kind]
        paths[action.path] = action.data_change or paths.get(action.path, False)
        if action.data_change:
            self._data_files[kind] += 1
            self._data(action)

    def _data(self, action: Add | Remove | Cdc) -> None:
        self._bytes[type(action)] += action.size or 0
        values = action.partition_values
        if values is None:
            self._told = False
        else:
            self._partitions.add(tuple(sorted(values.items())) if values else ())


class Lines:
    """Splits a stream of bytes into lines and hashes it; keeps only the unfinished line."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._hash = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the hash (hex) of all bytes fed so far."""
        return self._hash.hexdigest()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the lines that are complete now."""
        self._hash.update(chunk)
        first, *rest = chunk.split(b"\n")
        self._pieces.append(first)
        if not rest:
            return []
        lines = [b"".join(self._pieces), *rest[:-1]]
        self._pieces = [rest[-1]]
        return lines

    def close(self) -> list[bytes]:
        """Return the last line, which needs no line end."""
        return [b"".join(self._pieces)]


def parse_line(line: bytes | str) -> tuple[bool, Action | None]:
    """Read one line of a commit file.

    :return: whether the line holds an action at all, and the action; None for one that is not used here
    :raises BadActionError: for anything that is not an action
    """
    try:
        # Decode here: given bytes, json would guess the encoding; Delta always writes UTF-8.
        text = line if isinstance(line, str) else line.decode()
        data = _DECODER.decode(text)
    except (ValueError, RecursionError) as error:
        raise BadActionError(f"a line is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise BadActionError("a line is not a JSON object")
    given = [name for name, value in data.items() if value is not None]
    known = [name for name in given if name in _BUILDERS]
    if len(known) > 1:
        raise BadActionError(f"a line holds several actions ({', '.join(known)})")
    if not known:
        return bool(given), None
    return True, build_action(known[0], data[known[0]])


def build_action(name: str, data: Any) -> Action:
    """Build an action from its name in the log and its fields.

    :raises BadActionError: a required field is missing, or a field has another type
    """
    if not isinstance(data, dict):
        raise BadActionError(f"{name} is not an object")
    action: Action = _BUILDERS[name](_Fields(name, data))
    return action


def parse_action(line: bytes | str) -> Action | None:
    """Read one line of a commit file; None for an action that is not used here."""
    return parse_line(line)[1]


def parse_lines(lines: Iterable[bytes]) -> tuple[bool, list[Action]]:
    """Read lines; skip empty ones.

    :return: whether there was any action at all, and the actions used here
    :raises BadActionError: for anything that is not an action
    """
    any_action, found = False, []
    for line in lines:
        if line.strip():
            given, action = parse_line(line)
            any_action = any_action or given
            if action is not None:
                found.append(action)
    return any_action, found


def actions(content: bytes) -> Iterator[Action]:
    """Yield the actions of a commit file, one line at a time."""
    lines = Lines()
    yield from parse_lines([*lines.feed(content), *lines.close()])[1]


def parse_commit(version: int, content: bytes, *, modified: int = 0) -> Commit:
    """Read a commit file without keeping its files.

    :param modified: the file's modification time, epoch milliseconds
    :raises CorruptLog: it is damaged
    """
    fold, lines = CommitFold(), Lines()
    try:
        any_action, found = parse_lines([*lines.feed(content), *lines.close()])
    except BadActionError as error:
        raise corrupt_commit(version, None, str(error)) from error
    if not any_action:
        raise corrupt_commit(version, None, NO_ACTION)
    for action in found:
        fold.add(action)
    return fold.commit(version, sha256=lines.sha256, modified=modified)


#: Error text for an empty commit file: even a commit that changes nothing has a ``commitInfo``.
NO_ACTION = "it holds no action"


def corrupt_commit(version: int, uri: str | None, why: str) -> CorruptLog:
    """Build the error for a damaged commit file."""
    where = f" of {uri}" if uri else ""
    return CorruptLog(
        f"The commit file of version {version}{where} is damaged: {why}.",
        remedy=f"bring _delta_log/{version:020d}.json back from a backup (never edit it), or load the target "
        "anew from a table that is whole.",
    )


def _rewrote_only(info: CommitInfo) -> bool:
    """Return whether a MERGE changed no row, yet may have rewritten files: Delta's reader skips it by its
    metrics."""
    metrics = info.operation_metrics
    return info.operation == "MERGE" and all(metrics.get(name) == "0" for name in _METADATA_ONLY_MERGE)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# One decoder for all lines: json.loads with a custom hook would build one for each line.
_DECODER = json.JSONDecoder(parse_constant=_no_constant)


class _Fields:
    """An action's fields, each read with its expected type."""

    def __init__(self, action: str, data: dict[str, Any]) -> None:
        self._action = action
        self._data = data

    def text(self, name: str) -> str:
        return str(self._get(name, str, needed=True))

    def integer(self, name: str) -> int:
        return int(self._get(name, int, needed=True))

    def flag(self, name: str) -> bool:
        return bool(self._get(name, bool, needed=True))

    def text_or_none(self, name: str) -> str | None:
        found: str | None = self._get(name, str)
        return found

    def integer_or_none(self, name: str) -> int | None:
        found: int | None = self._get(name, int)
        return found

    def flag_or(self, name: str, default: bool) -> bool:
        found = self._get(name, bool)
        return default if found is None else bool(found)

    def texts(self, name: str) -> tuple[str, ...]:
        found = self._get(name, list) or []
        if not all(isinstance(value, str) for value in found):
            raise BadActionError(f"{self._action}.{name} is not a list of texts")
        return tuple(found)

    def mapping(self, name: str) -> dict[str, str | None] | None:
        found = self._get(name, dict)
        if found and not all(value is None or isinstance(value, str) for value in found.values()):
            raise BadActionError(f"{self._action}.{name} holds something else than texts")
        return None if found is None else dict(found)

    def partition_values(self) -> dict[str, str | None] | None:
        # The empty text means NULL in a partition value, by Delta's protocol.
        found = self.mapping("partitionValues")
        return None if found is None else {name: value or None for name, value in found.items()}

    def deletion_vector(self) -> DeletionVector | None:
        data = self._get("deletionVector", dict)
        if data is None:
            return None
        fields = _Fields(f"{self._action}.deletionVector", data)
        kind, place = fields.text_or_none("storageType"), fields.text_or_none("pathOrInlineDv")
        offset = fields.integer_or_none("offset")
        at = "" if offset is None else f"@{offset}"
        return DeletionVector(
            f"{kind}{place}{at}",
            fields.integer_or_none("cardinality") or 0,
            storage_type=kind,
            path_or_inline=place,
            offset=offset,
            size_in_bytes=fields.integer_or_none("sizeInBytes"),
        )

    def free(self, name: str, kind: type) -> Any:
        """Return a field of ``commitInfo``; None where it has another type."""
        found = self._data.get(name)
        return found if isinstance(found, kind) and not isinstance(found, bool) else None

    def _get(self, name: str, kind: type, *, needed: bool = False) -> Any:
        found = self._data.get(name)
        if found is None:
            if needed:
                raise BadActionError(f"{self._action} has no {name}")
            return None
        if not isinstance(found, kind) or (kind is int and isinstance(found, bool)):
            raise BadActionError(f"{self._action}.{name} is a {type(found).__name__}")
        return found


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
        id=fields.text("id"),
        configuration={k: v for k, v in configuration.items() if v is not None},
        schema_string=fields.text_or_none("schemaString") or "",
        partition_columns=fields.texts("partitionColumns"),
        created_time=fields.integer_or_none("createdTime"),
    )


def _protocol(fields: _Fields) -> Protocol:
    return Protocol(
        min_reader_version=fields.integer("minReaderVersion"),
        min_writer_version=fields.integer("minWriterVersion"),
        reader_features=fields.texts("readerFeatures"),
        writer_features=fields.texts("writerFeatures"),
    )


def _add(fields: _Fields) -> Add:
    return Add(
        path=fields.text("path"),
        data_change=fields.flag("dataChange"),
        size=fields.integer("size"),
        partition_values=fields.partition_values() or {},
        modification_time=fields.integer_or_none("modificationTime"),
        deletion_vector=fields.deletion_vector(),
        base_row_id=fields.integer_or_none("baseRowId"),
        default_row_commit_version=fields.integer_or_none("defaultRowCommitVersion"),
        tags=fields.mapping("tags") or {},
        stats=fields.text_or_none("stats"),
    )


def _remove(fields: _Fields) -> Remove:
    return Remove(
        path=fields.text("path"),
        data_change=fields.flag("dataChange"),
        size=fields.integer_or_none("size"),
        partition_values=fields.partition_values(),
        deletion_time=fields.integer_or_none("deletionTimestamp"),
        deletion_vector=fields.deletion_vector(),
        base_row_id=fields.integer_or_none("baseRowId"),
        default_row_commit_version=fields.integer_or_none("defaultRowCommitVersion"),
        tags=fields.mapping("tags") or {},
        stats=fields.text_or_none("stats"),
    )


def _cdc(fields: _Fields) -> Cdc:
    return Cdc(
        path=fields.text("path"),
        size=fields.integer("size"),
        partition_values=fields.partition_values() or {},
    )


_BUILDERS: dict[str, Any] = {
    "add": _add,
    "remove": _remove,
    "cdc": _cdc,
    "commitInfo": _commit_info,
    "metaData": _metadata,
    "protocol": _protocol,
    "txn": lambda f: Txn(f.text("appId"), f.integer("version"), f.integer_or_none("lastUpdated")),
    "domainMetadata": lambda f: DomainMetadata(
        f.text("domain"), f.text_or_none("configuration") or "", f.flag_or("removed", False)
    ),
}
