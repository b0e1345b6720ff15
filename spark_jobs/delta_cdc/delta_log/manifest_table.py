"""The actions of a file manifest's one commit, built from those of the source's log."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import CorruptLog, ReadMethodUnavailable, ReservedColumnName
from delta_cdc.core.manifest_columns import CHANGED_MARK, MARKS, SIDE_TIME, SIDE_VERSION, SIDES, parts_of
from delta_cdc.core.properties import COLUMN_MAPPING, TYPE_WIDENING
from delta_cdc.core.reserved_columns import CHANGE_TYPE
from delta_cdc.core.uris import local_path, spark_uri
from delta_cdc.delta_log import deletion_vectors
from delta_cdc.delta_log.actions import DeletionVector
from delta_cdc.delta_log.schema_changes import read_schema

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from delta_cdc.core.steps import ReadRange
    from delta_cdc.delta_log.actions import FileAction, MetaData, Protocol

_MAX_COLUMN_ID = "delta.columnMapping.maxColumnId"
_COLUMN_ID, _PHYSICAL_NAME = "delta.columnMapping.id", "delta.columnMapping.physicalName"
#: Properties with the names of the files' columns for row ids and row commit versions.
_MATERIALIZED = (
    "delta.rowTracking.materializedRowIdColumnName",
    "delta.rowTracking.materializedRowCommitVersionColumnName",
)
_TRACKED, _TRACKING = "delta.enableRowTracking", "rowTracking"
#: Properties that a reader needs. The others (in-commit timestamps, the feed, checkpoints) concern commits
#: that the file manifest does not have.
_READ_PROPERTIES = frozenset(
    {
        COLUMN_MAPPING,
        _MAX_COLUMN_ID,
        _TRACKED,
        *_MATERIALIZED,
        "delta.enableDeletionVectors",
        TYPE_WIDENING,
    }
)
_ABSOLUTE = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]*:|/)")
_NAMESPACE = uuid.UUID("6f0d0c6e-6a55-5d51-9a3c-1c1f1f7c1a01")


@dataclass(slots=True)
class Listed:
    """A file of a file manifest.

    :param version: the commit that describes the file
    :param action: the file, with its deletion vector in the manifest
    :param sides: see :data:`delta_cdc.core.manifest_columns.SIDES`
    """

    version: int
    action: FileAction
    sides: list[str] = field(default_factory=list)


def showing(file: FileAction, rows: deletion_vectors.Positions, of: int) -> FileAction:
    """Return a file with a deletion vector that leaves only some rows visible.

    :param of: number of rows in the file
    """
    masked = of - deletion_vectors.count(rows)
    if not masked:
        return replace(file, deletion_vector=None)
    data = deletion_vectors.all_but(rows, of)
    text = deletion_vectors.encode(data)
    return replace(
        file, deletion_vector=DeletionVector("i", text, size_in_bytes=len(data), cardinality=masked)
    )


class Table:
    """The source as a file manifest describes it.

    :param uri: canonical
    """

    def __init__(self, uri: str, protocol: Protocol, metadata: MetaData) -> None:
        self.uri = uri
        self.protocol = protocol
        self.metadata = metadata
        self.schema = self._schema()
        self.is_mapped = metadata.configuration.get(COLUMN_MAPPING, "none") != "none"
        self.partition_names = frozenset(self._partition_names())
        remote = spark_uri(uri)
        if local_path(uri) is not None:
            self.base = "file://" + quote(remote).rstrip("/") + "/"
        else:
            scheme, rest = remote.split("://", 1)
            bucket, slash, path = rest.partition("/")
            self.base = f"{scheme}://{bucket}{slash}{quote(path)}".rstrip("/") + "/"

    def check(self, read_range: ReadRange) -> None:
        """Reject a table with a column of the manifest's names, or without the row tracking of the range."""
        for entry in self.schema["fields"]:
            if str(entry["name"]).lower() in (SIDES, SIDE_VERSION, SIDE_TIME):
                raise ReservedColumnName(
                    f"The table {self.uri} has a column {entry['name']}, a name that reading its changes "
                    "needs.",
                    remedy="rename the column.",
                )
        configuration = self.metadata.configuration
        tracked = configuration.get(_TRACKED, "").lower() == "true" and all(
            map(configuration.get, _MATERIALIZED)
        )
        if read_range.method == "row_tracking" and not tracked:
            raise ReadMethodUnavailable(
                f"{self.uri} does not track rows ({_TRACKED} is not true), so its changes cannot be read by "
                "row_tracking.",
                remedy="leave method at auto, or turn row tracking on.",
            )

    def check_names(self, read_range: ReadRange, version: int, metadata: MetaData) -> None:
        """Reject metadata under which files keep row ids in other columns."""
        if read_range.method != "row_tracking":
            return
        for name in _MATERIALIZED:
            given = metadata.configuration.get(name)
            if given is not None and given != self.metadata.configuration.get(name):
                raise ReadMethodUnavailable(
                    f"Version {version} of {self.uri} changed {name}: row ids before and after it cannot be "
                    "read together.",
                    remedy="leave method at auto, or read up to that version and from it on.",
                )

    def lacks(self, read_range: ReadRange, file: FileAction) -> bool:
        """Return whether a required detail of a file is still unknown."""
        return not file.is_described or (read_range.method == "row_tracking" and file.base_row_id is None)

    def header(
        self, read_range: ReadRange, marks: str, *, one_sided: bool = False
    ) -> Iterator[dict[str, Any]]:
        """Yield the actions except those of files.

        :param marks: the marks of all sides of the file manifest
        :param one_sided: every file has one side
        """
        by_row_id = read_range.method == "row_tracking"
        protocol: dict[str, Any] = {
            "minReaderVersion": self.protocol.min_reader_version,
            "minWriterVersion": self.protocol.min_writer_version,
        }
        if self.protocol.min_reader_version >= 3:
            protocol["readerFeatures"] = list(self.protocol.reader_features)
        if self.protocol.min_writer_version >= 7:
            # With row tracking, Delta accepts only files with row ids.
            protocol["writerFeatures"] = [
                name for name in self.protocol.writer_features if by_row_id or name != _TRACKING
            ]
        yield {"protocol": protocol}
        configuration = {
            name: value
            for name, value in self.metadata.configuration.items()
            if name in _READ_PROPERTIES and (by_row_id or name not in (_TRACKED, *_MATERIALIZED))
        }
        extra = [_field(SIDES, "string") | {"metadata": {MARKS: marks}}]
        if one_sided:
            extra += [_field(SIDE_VERSION, "long"), _field(SIDE_TIME, "long")]
        partitions = [entry["name"] for entry in extra]
        if CHANGED_MARK in marks:
            extra.append(_field(CHANGE_TYPE, "string"))
        if self.is_mapped:
            column_id = self._max_column_id()
            for entry in extra:
                column_id += 1
                entry["metadata"] |= {_COLUMN_ID: column_id, _PHYSICAL_NAME: entry["name"]}
            configuration[_MAX_COLUMN_ID] = str(column_id)
        schema = {**self.schema, "fields": [*self.schema["fields"], *extra]}
        text = json.dumps(schema)
        versions = f"{read_range.starting_version} {read_range.ending_version}"
        name = f"{self.metadata.id} {read_range.method} {versions} {text}"
        yield {
            "metaData": {
                "id": str(uuid.uuid5(_NAMESPACE, name)),
                "format": {"provider": "parquet", "options": {}},
                "schemaString": text,
                "partitionColumns": [*self.metadata.partition_columns, *partitions],
                "configuration": configuration,
                "createdTime": 0,
            }
        }

    def add(self, read_range: ReadRange, listed: Listed, *, one_sided: bool = False) -> dict[str, Any]:
        """Return the ``add`` action for a file.

        :param one_sided: as in :meth:`header`
        :raises ReadMethodUnavailable: the log does not describe the file well enough
        """
        file = listed.action
        if self.lacks(read_range, file):
            raise self._undescribed(read_range, listed)
        assert file.partition_values is not None
        # Spark omits NULL partition values.
        if not file.partition_values.keys() <= self.partition_names:
            raise ReadMethodUnavailable(
                f"The file {file.path} of {self.uri} (version {listed.version}) is partitioned by "
                f"{sorted(file.partition_values)}, the table by {sorted(self.partition_names)}.",
                remedy="read up to the version that changed the partitioning, and from it on.",
            )
        add: dict[str, Any] = {
            "path": self.absolute(file.path),
            "partitionValues": file.partition_values | _partition_of(listed, one_sided=one_sided),
            "size": file.size,
            "modificationTime": 0,
            "dataChange": True,
        }
        if file.stats is not None and read_range.method == "added_files":
            add["stats"] = file.stats
        if file.deletion_vector is not None:
            add["deletionVector"] = self._vector(listed, file.deletion_vector)
        if file.base_row_id is not None and read_range.method == "row_tracking":
            add["baseRowId"] = file.base_row_id
            add["defaultRowCommitVersion"] = file.row_commit_version
        return add

    def absolute(self, path: str) -> str:
        """Return a path of the log (percent-encoded) as an absolute URI."""
        return path if _ABSOLUTE.match(path) else self.base + path

    def _vector(self, entry: Listed, vector: DeletionVector) -> dict[str, Any]:
        path_or_inline = vector.path_or_inline
        kind = vector.storage_type
        try:
            if kind == "u" and path_or_inline is not None:
                kind, path_or_inline = "p", self.absolute(deletion_vectors.file_of(path_or_inline))
        except deletion_vectors.UnreadableVectorError:
            path_or_inline = None
        if path_or_inline is None or kind not in ("p", "i") or vector.size_in_bytes is None:
            raise CorruptLog(
                f"The deletion vector of {entry.action.path} in {self.uri} (version {entry.version}) is "
                "not readable.",
                remedy="bring the commit file back from a backup.",
            )
        json_form: dict[str, Any] = {
            "storageType": kind,
            "pathOrInlineDv": path_or_inline,
            "sizeInBytes": vector.size_in_bytes,
            "cardinality": vector.cardinality,
        }
        if vector.offset is not None:
            json_form["offset"] = vector.offset
        return json_form

    def _undescribed(self, read_range: ReadRange, entry: Listed) -> ReadMethodUnavailable:
        path, version = entry.action.path, entry.version
        if entry.action.is_described:
            return ReadMethodUnavailable(
                f"The file {path} of {self.uri} (version {version}) has no row ids (baseRowId), so its rows "
                "cannot be matched by row_tracking.",
                remedy="leave method at auto, or start after the version that turned row tracking on.",
            )
        return ReadMethodUnavailable(
            f"Version {version} of {self.uri} removes the file {path} without its size or partition values, "
            f"and nothing else in the log has them: {read_range.method} cannot read it.",
            remedy="leave method at auto, or load the target again from a later version.",
        )

    def _schema(self) -> dict[str, Any]:
        try:
            return read_schema(self.metadata.schema_string)
        except UnreadableJson as error:
            raise CorruptLog(
                f"The schema of {self.uri} is not readable: {error}.",
                remedy="bring the log back from a backup.",
            ) from error

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
                remedy=f"correct the table property {_MAX_COLUMN_ID}.",
            ) from error


def lines(table: Table, read_range: ReadRange, listed: Collection[Listed]) -> Iterator[bytes]:
    """Yield the commit file of a file manifest, line by line."""
    marks = {one[0] for listing in listed for one in listing.sides}
    one_sided = read_range.method == "change_files" and all(len(one.sides) == 1 for one in listed)
    for action in table.header(read_range, "".join(sorted(marks)), one_sided=one_sided):
        yield json.dumps(action).encode() + b"\n"
    for file in listed:
        yield json.dumps({"add": table.add(read_range, file, one_sided=one_sided)}).encode() + b"\n"


def _field(name: str, kind: str) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def _partition_of(entry: Listed, *, one_sided: bool) -> dict[str, str]:
    if not one_sided:
        return {SIDES: ",".join(entry.sides)}
    mark, version, time = parts_of(entry.sides[0])
    return {SIDES: mark, SIDE_VERSION: version, SIDE_TIME: time}
