"""Slices: small Delta tables that name files of another one, so that Spark can read just those.

A slice is one commit in a folder of its own. It has the protocol and the schema of the source as of some
version, one more partition column (:data:`delta_cdc.changes.slices.SIDES`), and one ``add`` for each file,
by its absolute URI. It holds no data, and nothing of it outlives the read that it was written for.
"""

from __future__ import annotations

import asyncio
import json
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from delta_cdc.changes.slices import (
    AFTER_MARK,
    BEFORE_MARK,
    DELETED_MARK,
    INSERTED_MARK,
    SIDES,
    location,
    side,
)
from delta_cdc.errors import CaptureUnavailable, CorruptLog, ReservedColumnName
from delta_cdc.log.actions import Add, MetaData, Remove
from delta_cdc.log.checkpoint import key_of
from delta_cdc.log.storage import put_stream
from delta_cdc.log.store import local_path, spark_uri
from delta_cdc.log.table import DeltaLog, run_sync
from delta_cdc.spec import ApplySpec, ReadSpec

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from delta_cdc.log.actions import Commit, DeletionVector, Protocol
    from delta_cdc.log.checkpoint import Key
    from delta_cdc.spec import Segment

_MAPPING_MODE, _MAX_COLUMN_ID = "delta.columnMapping.mode", "delta.columnMapping.maxColumnId"
_COLUMN_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
#: Under which names row ids and row commit versions are kept in the files.
_MATERIALIZED = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_TRACKED = "delta.enableRowTracking"
#: What a reader needs to know. The rest (in-commit timestamps, the feed, how to checkpoint) speaks of commits
#: that the slice does not have.
_READ_PROPERTIES = frozenset(
    {
        _MAPPING_MODE,
        _MAX_COLUMN_ID,
        _TRACKED,
        *_MATERIALIZED,
        "delta.enableDeletionVectors",
        "delta.enableTypeWidening",
    }
)
S = TypeVar("S", ApplySpec, ReadSpec)
_ABSOLUTE = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:|/)")
_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
#: Length of a UUID in Z85.
_UUID = 20
#: Commits whose files are held at once.
_BATCH = 16
_NAMESPACE = uuid.UUID("6f0d0c6e-6a55-5d51-9a3c-1c1f1f7c1a01")


def prepared(spec: S, root: str, storage_options: dict[str, str] | None = None) -> S:
    """Write the slices that a spec's segments are read through.

    :param root: folder of the slices, as Spark names it; of nobody else, and not used for other work
    :param storage_options: of the source and of the folder
    :return: the spec with ``slices_uri``; where no segment needs a slice the same spec, nothing is written
    :raises DeltaCdcError: see :func:`write_slice`
    """
    wanted = [
        (segment, step.ending_version)
        for step in spec.steps
        for segment in step.segments
        if segment.needs_slice and step.staging is None
    ]
    if not wanted:
        return spec
    _write_all(spec.source_uri, wanted, root, storage_options)
    return replace(spec, slices_uri=root)


def write_slices(
    table: str,
    segments: Iterable[Segment],
    root: str,
    *,
    at: int,
    storage_options: dict[str, str] | None = None,
) -> None:
    """Write the slices of those segments of a range that need one.

    :param table: path or URI of the source
    :param root: folder of the slices; see :func:`prepared`
    :param at: the version whose schema the slices have, the end of the range
    :raises DeltaCdcError: see :func:`write_slice`
    """
    _write_all(table, [(one, at) for one in segments if one.needs_slice], root, storage_options)


def _write_all(
    table: str, wanted: list[tuple[Segment, int]], root: str, storage_options: dict[str, str] | None
) -> None:
    async def write() -> None:
        log = DeltaLog(table, storage_options)
        for segment, version in wanted:
            await write_slice(log, segment, location(root, segment), storage_options, schema_version=version)

    if wanted:
        run_sync(write())


async def write_slice(
    log: DeltaLog,
    segment: Segment,
    folder: str,
    storage_options: dict[str, str] | None = None,
    *,
    schema_version: int | None = None,
) -> None:
    """Write the slice of a segment; one that is there already is written over.

    :param log: of the source
    :param folder: path or URI
    :param storage_options: of the folder
    :param schema_version: the version whose schema the slice has, the end of the whole range; None is the
        segment's last version
    :raises CaptureUnavailable: a file of the segment cannot be read by the segment's capture
    :raises VersionsExpired: what the log says of a file was cleaned
    :raises ReservedColumnName: the source has a column of the name that the slice adds
    """
    version = segment.ending_version if schema_version is None else schema_version
    table = _Table(log.uri, *await log.described(version))
    table.check(segment)
    listed = await (_net if segment.net else _by_commit)(log, segment, table)
    await put_stream(
        folder, "_delta_log/00000000000000000000.json", _lines(table, segment, listed), storage_options
    )


async def net_bytes(log: DeltaLog, commits: Sequence[Commit]) -> int | None:
    """Return how many bytes reading the two ends of a range takes, by its commits alone.

    :param commits: of the range, ascending and gap-free
    :return: size of the files that only one end has; None where writers left sizes out
    """
    touched: dict[Key, tuple[bool, bool, int | None]] = {}
    versions = [commit.version for commit in commits if commit.n_adds or commit.n_removes]
    # What only says something about files that are there stays at both ends.
    restated = {c.version for c in commits if c.n_adds and not c.n_removes and not c.n_data_adds}
    async for version, action in _actions(log, versions):
        if isinstance(action, MetaData) or version in restated:
            continue
        was, _, size = touched.get(key_of(action), (isinstance(action, Remove), False, None))
        touched[key_of(action)] = (was, isinstance(action, Add), size if action.size is None else action.size)
    sizes = [size for was, is_, size in touched.values() if was != is_]
    return None if any(size is None for size in sizes) else sum(size or 0 for size in sizes)


# -- which files ----------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class _File:
    """A file with a deletion vector, as far as the log told of it; None is not told."""

    path: str
    version: int
    size: int | None
    partition_values: dict[str, str | None] | None
    base_row_id: int | None
    row_commit_version: int | None
    vector: DeletionVector | None
    stats: str | None = None

    @classmethod
    def of(cls, version: int, action: Add | Remove, *, stats: bool = False) -> _File:
        return cls(
            action.path,
            version,
            action.size,
            action.partition_values,
            action.base_row_id,
            action.default_row_commit_version,
            action.deletion_vector,
            action.stats if stats else None,
        )

    def filled(self, other: _File) -> _File:
        """Return the file with what ``other`` tells and this one doesn't."""
        if self.is_told and self.base_row_id is not None:
            return self
        return replace(
            self,
            size=other.size if self.size is None else self.size,
            partition_values=other.partition_values
            if self.partition_values is None
            else self.partition_values,
            base_row_id=other.base_row_id if self.base_row_id is None else self.base_row_id,
            row_commit_version=(
                other.row_commit_version if self.base_row_id is None else self.row_commit_version
            ),
        )

    @property
    def is_told(self) -> bool:
        return self.size is not None and self.partition_values is not None


@dataclass(slots=True)
class _Listed:
    """A file of a slice, and its sides."""

    file: _File
    sides: list[str] = field(default_factory=list)


async def _by_commit(log: DeltaLog, segment: Segment, table: _Table) -> Iterable[_Listed]:
    """List the files that the segment's commits added and removed as data."""
    times = dict(segment.timestamps)
    matched = segment.capture == "row_tracking"
    marks: dict[type, str] = {Add: AFTER_MARK, Remove: BEFORE_MARK} if matched else {Add: INSERTED_MARK}
    found: dict[Key, _Listed] = {}
    async for version, action in _actions(log, range(segment.starting_version, segment.ending_version + 1)):
        if isinstance(action, MetaData):
            table.check_names(segment, version, action)
            continue
        if version not in times or not action.data_change:
            continue
        if type(action) not in marks:
            raise CaptureUnavailable(
                f"Version {version} of {log.uri} removes rows (file {action.path}), and {segment.capture} "
                "reads added ones only.",
                remedy="leave capture at auto, or leave such commits out by on_change_commit='skip'.",
            )
        file, key = _File.of(version, action, stats=not matched), key_of(action)
        listed = found.get(key)
        if listed is None:
            listed = found[key] = _Listed(file)
        else:
            listed.file = file.filled(listed.file)
        listed.sides.append(side(marks[type(action)], version, times[version]))
    await _fill(
        log, segment, {key: listed for key, listed in found.items() if table.lacks(segment, listed.file)}
    )
    return found.values()


async def _net(log: DeltaLog, segment: Segment, table: _Table) -> Iterable[_Listed]:
    """List the files that only one end of the segment has."""
    first, last = segment.starting_version, segment.ending_version
    time = dict(segment.timestamps)[last]
    files: dict[Key, _File] = {}
    was: dict[Key, bool] = {}
    is_: dict[Key, bool] = {}
    unsure: set[Key] = set()
    async for version, action in _actions(log, range(first, last + 1)):
        if isinstance(action, MetaData):
            table.check_names(segment, version, action)
            continue
        file, key = _File.of(version, action), key_of(action)
        files[key] = file.filled(files[key]) if key in files else file
        added = isinstance(action, Add)
        if key not in was:
            was[key] = not added
            # Something more may be said of a file that is there already, such as its row ids.
            if added and not action.data_change:
                unsure.add(key)
        is_[key] = added
    lacking = {
        key for key, file in files.items() if (was[key] or key in unsure) and table.lacks(segment, file)
    }
    state = await _before(log, segment, unsure | lacking)
    for key in unsure:
        was[key] = key in state
    before, after = (
        (DELETED_MARK, INSERTED_MARK) if segment.capture != "row_tracking" else (BEFORE_MARK, AFTER_MARK)
    )
    found = []
    for key, file in files.items():
        if was[key] == is_[key]:
            continue
        whole = file.filled(_File.of(first - 1, state[key])) if key in state else file
        found.append(_Listed(whole, [side(before if was[key] else after, last, time)]))
    return found


async def _fill(log: DeltaLog, segment: Segment, lacking: dict[Key, _Listed]) -> None:
    """Look up what removals left out of files that were there before the segment."""
    for key, add in (await _before(log, segment, set(lacking))).items():
        lacking[key].file = lacking[key].file.filled(_File.of(segment.starting_version - 1, add))


async def _before(log: DeltaLog, segment: Segment, keys: set[Key]) -> dict[Key, Add]:
    if not keys or segment.starting_version == 0:
        return {}
    return await log.active(segment.starting_version - 1, keys)


async def _actions(
    log: DeltaLog, versions: Sequence[int]
) -> AsyncIterator[tuple[int, Add | Remove | MetaData]]:
    """Yield what commits say of files, and new metadata, in order."""

    async def one(version: int) -> list[Add | Remove | MetaData]:
        return [a async for a in log.actions(version) if isinstance(a, Add | Remove | MetaData)]

    for at in range(0, len(versions), _BATCH):
        part = versions[at : at + _BATCH]
        for version, found in zip(part, await asyncio.gather(*map(one, part)), strict=True):
            for action in found:
                yield version, action


# -- what a slice says ----------------------------------------------------------------------------
class _Table:
    """The source as a slice tells of it.

    :param uri: canonical
    """

    def __init__(self, uri: str, protocol: Protocol, metadata: MetaData) -> None:
        self.uri = uri
        self.protocol = protocol
        self.metadata = metadata
        self.schema = self._schema()
        self.is_mapped = metadata.configuration.get(_MAPPING_MODE, "none") != "none"
        self.partition_names = frozenset(self._partition_names())
        remote = spark_uri(uri)
        if local_path(uri) is not None:
            self.base = "file://" + quote(remote).rstrip("/") + "/"
        else:
            scheme, rest = remote.split("://", 1)
            bucket, slash, path = rest.partition("/")
            self.base = f"{scheme}://{bucket}{slash}{quote(path)}".rstrip("/") + "/"

    def check(self, segment: Segment) -> None:
        """Refuse a table whose columns leave no room for the slice's own, or that does not track rows."""
        for entry in self.schema["fields"]:
            if str(entry["name"]).lower() == SIDES:
                raise ReservedColumnName(
                    f"The table {self.uri} has a column {entry['name']}, a name that reading its changes "
                    "needs.",
                    remedy="rename the column.",
                )
        configuration = self.metadata.configuration
        tracked = configuration.get(_TRACKED, "").lower() == "true" and all(
            map(configuration.get, _MATERIALIZED)
        )
        if segment.capture == "row_tracking" and not tracked:
            raise CaptureUnavailable(
                f"{self.uri} does not track rows ({_TRACKED} is not true), so its changes cannot be read by "
                "row_tracking.",
                remedy="leave capture at auto, or turn row tracking on.",
            )

    def check_names(self, segment: Segment, version: int, metadata: MetaData) -> None:
        """Refuse metadata under which row ids lie in other columns of the files."""
        if segment.capture != "row_tracking":
            return
        for name in _MATERIALIZED:
            given = metadata.configuration.get(name)
            if given is not None and given != self.metadata.configuration.get(name):
                raise CaptureUnavailable(
                    f"Version {version} of {self.uri} changed {name}: row ids before and after it cannot be "
                    "read together.",
                    remedy="leave capture at auto, or read up to that version and from it on.",
                )

    def lacks(self, segment: Segment, file: _File) -> bool:
        """Tell whether something must be known of a file that the log has not told so far."""
        return not file.is_told or (segment.capture == "row_tracking" and file.base_row_id is None)

    def header(self, segment: Segment) -> Iterator[dict[str, Any]]:
        """Yield the actions that are not files."""
        protocol: dict[str, Any] = {
            "minReaderVersion": self.protocol.min_reader_version,
            "minWriterVersion": self.protocol.min_writer_version,
        }
        if self.protocol.min_reader_version >= 3:
            protocol["readerFeatures"] = list(self.protocol.reader_features)
        if self.protocol.min_writer_version >= 7:
            protocol["writerFeatures"] = list(self.protocol.writer_features)
        yield {"protocol": protocol}
        configuration = {
            name: value for name, value in self.metadata.configuration.items() if name in _READ_PROPERTIES
        }
        extra: dict[str, Any] = {"name": SIDES, "type": "string", "nullable": True, "metadata": {}}
        if self.is_mapped:
            column_id = self._max_column_id() + 1
            extra["metadata"] = {_COLUMN_ID: column_id, _PHYSICAL_NAME: SIDES}
            configuration[_MAX_COLUMN_ID] = str(column_id)
        schema = {**self.schema, "fields": [*self.schema["fields"], extra]}
        text = json.dumps(schema)
        name = (
            f"{self.metadata.id} {segment.capture} {segment.starting_version} {segment.ending_version} {text}"
        )
        yield {
            "metaData": {
                "id": str(uuid.uuid5(_NAMESPACE, name)),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": text,
                "partitionColumns": [*self.metadata.partition_columns, SIDES],
                "configuration": configuration,
                "createdTime": 0,
            }
        }

    def add(self, segment: Segment, listed: _Listed) -> dict[str, Any]:
        """Return a file as the slice names it.

        :raises CaptureUnavailable: where what the log says of it does not do
        """
        file = listed.file
        if self.lacks(segment, file):
            raise self._untold(segment, file)
        assert file.partition_values is not None
        # Spark leaves columns out that are NULL.
        if not file.partition_values.keys() <= self.partition_names:
            raise CaptureUnavailable(
                f"The file {file.path} of {self.uri} (version {file.version}) is partitioned by "
                f"{sorted(file.partition_values)}, the table by {sorted(self.partition_names)}.",
                remedy="read up to the version that changed the partitioning, and from it on.",
            )
        add: dict[str, Any] = {
            "path": self.absolute(file.path),
            "partitionValues": {**file.partition_values, SIDES: ",".join(listed.sides)},
            "size": file.size,
            "modificationTime": 0,
            "dataChange": True,
        }
        if file.stats is not None:
            add["stats"] = file.stats
        if file.vector is not None:
            add["deletionVector"] = self._vector(file)
        if file.base_row_id is not None:
            add["baseRowId"] = file.base_row_id
            add["defaultRowCommitVersion"] = file.row_commit_version
        return add

    def absolute(self, path: str) -> str:
        """Return a path of the log (percent-encoded) as an absolute URI."""
        return path if _ABSOLUTE.match(path) else self.base + path

    def _vector(self, file: _File) -> dict[str, Any]:
        vector = file.vector
        assert vector is not None
        place = vector.path_or_inline
        kind = vector.storage_type
        if place is None or kind not in ("u", "p", "i") or vector.size_in_bytes is None:
            raise CorruptLog(
                f"The deletion vector of {file.path} in {self.uri} (version {file.version}) is not readable.",
                remedy="bring the commit file back from a backup.",
            )
        if kind == "u":
            kind, place = "p", self.absolute(_vector_file(place))
        found: dict[str, Any] = {
            "storageType": kind,
            "pathOrInlineDv": place,
            "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        }
        if vector.offset is not None:
            found["offset"] = vector.offset
        return found

    def _untold(self, segment: Segment, file: _File) -> CaptureUnavailable:
        if file.is_told:
            return CaptureUnavailable(
                f"The file {file.path} of {self.uri} (version {file.version}) has no row ids (baseRowId), so "
                "its rows cannot be matched by row_tracking.",
                remedy="leave capture at auto, or start after the version that turned row tracking on.",
            )
        return CaptureUnavailable(
            f"Version {file.version} of {self.uri} removes the file {file.path} without its size or "
            f"partition values, and nothing else in the log tells them: {segment.capture} cannot read it.",
            remedy="leave capture at auto, or load the target anew from a later version.",
        )

    def _schema(self) -> dict[str, Any]:
        try:
            schema: dict[str, Any] = json.loads(self.metadata.schema_string)
            for entry in schema["fields"]:
                entry["name"], entry.get("metadata", {}).get(_PHYSICAL_NAME)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CorruptLog(
                f"The schema of {self.uri} is not readable ({error!r}).",
                remedy="bring the log back from a backup.",
            ) from error
        return schema

    def _partition_names(self) -> Iterator[str]:
        by_name = {str(entry["name"]): entry for entry in self.schema["fields"]}
        for name in self.metadata.partition_columns:
            metadata = by_name.get(name, {}).get("metadata") or {}
            yield str(metadata.get(_PHYSICAL_NAME, name)) if self.is_mapped else name

    def _max_column_id(self) -> int:
        try:
            return int(self.metadata.configuration[_MAX_COLUMN_ID])
        except (KeyError, ValueError) as error:
            raise CorruptLog(
                f"{self.uri} maps its columns, but {_MAX_COLUMN_ID} is not readable ({error!r}).",
                remedy="set the table property right.",
            ) from error


def _vector_file(place: str) -> str:
    """Return the path (percent-encoded) of the file whose UUID, after a folder's name, stands in Z85."""
    folder, encoded = place[:-_UUID], place[-_UUID:]
    raw = b""
    for at in range(0, _UUID, 5):
        number = 0
        for digit in encoded[at : at + 5]:
            number = number * 85 + _Z85.index(digit)
        raw += number.to_bytes(4, "big")
    name = f"deletion_vector_{uuid.UUID(bytes=raw)}.bin"
    return f"{quote(folder)}/{name}" if folder else name


def _lines(table: _Table, segment: Segment, listed: Iterable[_Listed]) -> Iterator[bytes]:
    for action in table.header(segment):
        yield json.dumps(action).encode() + b"\n"
    for file in listed:
        yield json.dumps({"add": table.add(segment, file)}).encode() + b"\n"
