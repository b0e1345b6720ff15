"""The actions of a commit file, and what a whole commit says about itself."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_METADATA_ONLY_MERGE = (
    "numTargetRowsInserted",
    "numTargetRowsUpdated",
    "numTargetRowsDeleted",
)


@dataclass(frozen=True)
class CommitInfo:
    """Who made the commit and how; ``timestamp`` and ``in_commit_timestamp`` in epoch milliseconds."""

    operation: str = ""
    operation_parameters: dict[str, Any] = field(default_factory=dict)
    operation_metrics: dict[str, str] = field(default_factory=dict)
    user_metadata: str | None = None
    timestamp: int | None = None
    in_commit_timestamp: int | None = None


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
class Add:
    """A file that became part of the table; ``size`` in bytes."""

    path: str
    data_change: bool
    size: int
    has_dv: bool


@dataclass(frozen=True)
class Remove:
    """A file that left the table; ``size`` in bytes, None where the writer left it out."""

    path: str
    data_change: bool
    size: int | None
    has_dv: bool


@dataclass(frozen=True)
class Cdc:
    """A file of change rows; ``size`` in bytes."""

    path: str
    size: int


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

    :param changes_data: it changed rows: a change file, or files added or removed as data, and not a MERGE
        that found nothing to insert, update or delete
    :param sha256: SHA-256 (hex) of the commit file's bytes
    :param modified: the file's modification time, epoch milliseconds
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

    @property
    def has_cdc(self) -> bool:
        """Return whether the commit holds change files."""
        return self.n_cdc > 0

    @property
    def timestamp(self) -> int:
        """Return the commit's time as Delta tells it: in-commit timestamp, else the file's (epoch ms)."""
        return self.info.in_commit_timestamp or self.modified or self.info.timestamp or 0


def parse_action(line: bytes | str) -> Action | None:
    """Read one line of a commit file; None for an action that says nothing here."""
    data = json.loads(line)
    for name, build in _BUILDERS.items():
        if data.get(name) is not None:
            action: Action = build(data[name])
            return action
    return None


def actions(content: bytes) -> Iterator[Action]:
    """Yield the actions of a commit file, one line at a time."""
    start = 0
    while start < len(content):
        end = content.find(b"\n", start)
        end = len(content) if end < 0 else end
        line = content[start:end].strip()
        start = end + 1
        if line:
            action = parse_action(line)
            if action is not None:
                yield action


def parse_commit(version: int, content: bytes, *, modified: int = 0) -> Commit:
    """Read a commit file without keeping its files.

    :param modified: the file's modification time, epoch milliseconds
    """
    found: dict[type, Any] = {}
    txns: list[Txn] = []
    counts = {Add: 0, Remove: 0, Cdc: 0}
    touched = False
    for action in actions(content):
        if isinstance(action, Txn):
            txns.append(action)
        elif isinstance(action, Add | Remove | Cdc):
            counts[type(action)] += 1
            touched = touched or isinstance(action, Cdc) or action.data_change
        else:
            found[type(action)] = action
    info: CommitInfo = found.get(CommitInfo, CommitInfo())
    return Commit(
        version=version,
        sha256=hashlib.sha256(content).hexdigest(),
        modified=modified,
        info=info,
        metadata=found.get(MetaData),
        protocol=found.get(Protocol),
        txns=tuple(txns),
        n_adds=counts[Add],
        n_removes=counts[Remove],
        n_cdc=counts[Cdc],
        changes_data=touched and not _rewrote_only(info),
    )


def _rewrote_only(info: CommitInfo) -> bool:
    """A MERGE without any row to change may still rewrite files; Delta's reader skips it by its metrics."""
    metrics = info.operation_metrics
    return info.operation == "MERGE" and all(metrics.get(name) == "0" for name in _METADATA_ONLY_MERGE)


def _commit_info(data: dict[str, Any]) -> CommitInfo:
    return CommitInfo(
        operation=data.get("operation") or "",
        operation_parameters=data.get("operationParameters") or {},
        operation_metrics={k: str(v) for k, v in (data.get("operationMetrics") or {}).items()},
        user_metadata=data.get("userMetadata"),
        timestamp=data.get("timestamp"),
        in_commit_timestamp=data.get("inCommitTimestamp"),
    )


def _metadata(data: dict[str, Any]) -> MetaData:
    return MetaData(
        id=data["id"],
        configuration=dict(data.get("configuration") or {}),
        schema_string=data.get("schemaString") or "",
        partition_columns=tuple(data.get("partitionColumns") or ()),
        created_time=data.get("createdTime"),
    )


def _protocol(data: dict[str, Any]) -> Protocol:
    return Protocol(
        min_reader_version=data.get("minReaderVersion", 1),
        min_writer_version=data.get("minWriterVersion", 2),
        reader_features=tuple(data.get("readerFeatures") or ()),
        writer_features=tuple(data.get("writerFeatures") or ()),
    )


_BUILDERS: dict[str, Any] = {
    "add": lambda d: Add(
        d["path"],
        d.get("dataChange", True),
        d.get("size", 0),
        bool(d.get("deletionVector")),
    ),
    "remove": lambda d: Remove(
        d["path"],
        d.get("dataChange", True),
        d.get("size"),
        bool(d.get("deletionVector")),
    ),
    "cdc": lambda d: Cdc(d["path"], d.get("size", 0)),
    "commitInfo": _commit_info,
    "metaData": _metadata,
    "protocol": _protocol,
    "txn": lambda d: Txn(d["appId"], d["version"], d.get("lastUpdated")),
    "domainMetadata": lambda d: DomainMetadata(
        d["domain"], d.get("configuration", ""), d.get("removed", False)
    ),
}
