"""Hand-written Delta logs: tables made of commit files alone, for everything that reads no data."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion, app_id

if TYPE_CHECKING:
    from pathlib import Path

FEED = {"delta.enableChangeDataFeed": "true"}
#: The clock of every hand-written log, epoch milliseconds; one commit per second.
EPOCH = 1_800_000_000_000
SECOND = 1_000


@dataclass
class LogTable:
    """A table of ten-row files, of which the log tells everything; they themselves are empty."""

    path: Path
    table_id: str = "id-1"
    columns: tuple[str, ...] = ("id", "name")
    configuration: dict[str, str] = field(default_factory=dict)
    created: int = EPOCH
    version: int = -1
    files: dict[int, frozenset[str]] = field(default_factory=dict)
    #: The schema's fields, where strings named ``columns`` are not enough.
    fields: list[dict[str, Any]] = field(default_factory=list)

    @property
    def uri(self) -> str:
        return str(self.path)

    def file(self, version: int) -> Path:
        return self.path / "_delta_log" / f"{version:020d}.json"

    def sha256(self, version: int) -> str:
        return hashlib.sha256(self.file(version).read_bytes()).hexdigest()

    # -- commits ----------------------------------------------------------------------------------
    def commit(
        self,
        operation: str,
        *actions: dict[str, Any],
        parameters: dict[str, Any] | None = None,
        metrics: dict[str, str] | None = None,
        user_metadata: str | None = None,
        at: int | None = None,
        stamp: int | None = None,
        tags: dict[str, str] | None = None,
    ) -> int:
        """Write the next commit.

        :param at: when, as the file's modification time and ``commitInfo.timestamp`` tell it
        :param stamp: in-commit timestamp
        :param tags: of ``commitInfo``
        """
        self.version += 1
        active = set(self.files.get(self.version - 1, frozenset()))
        for action in actions:
            if "remove" in action:
                active.discard(action["remove"]["path"])
            if "add" in action:
                active.add(action["add"]["path"])
            for kind in ("add", "cdc"):
                if kind in action:
                    self._touch(action[kind]["path"])
        self.files[self.version] = frozenset(active)
        time = EPOCH + self.version * SECOND if at is None else at
        info = {
            "timestamp": time,
            "operation": operation,
            "operationParameters": parameters or {},
            "operationMetrics": metrics or {},
        }
        if user_metadata is not None:
            info["userMetadata"] = user_metadata
        if stamp is not None:
            info["inCommitTimestamp"] = stamp
        if tags is not None:
            info["tags"] = tags
        file = self.file(self.version)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(a) + "\n" for a in ({"commitInfo": info}, *actions)))
        os.utime(file, ns=(time * 1_000_000, time * 1_000_000))
        return self.version

    def _touch(self, path: str) -> None:
        """Make an empty file: it is looked for, never read."""
        file = self.path / unquote(path)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()

    def create(self, operation: str = "CREATE TABLE", **given: Any) -> LogTable:
        protocol = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        self.commit(operation, protocol, self.metadata(), **given)
        return self

    def metadata(self) -> dict[str, Any]:
        fields = self.fields or [field_of(name) for name in self.columns]
        return {
            "metaData": {
                "id": self.table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps({"type": "struct", "fields": fields}),
                "partitionColumns": [],
                "configuration": self.configuration,
                "createdTime": self.created,
            }
        }

    def add(self, *, data_change: bool = True, part: int = 0, rows: int | None = 10) -> dict[str, Any]:
        path = f"part-{self.version + 1:05d}-{part}.parquet"
        stats = json.dumps({} if rows is None else {"numRecords": rows})
        ids = {}
        if self.configuration.get("delta.enableRowTracking") == "true":
            ids = {"baseRowId": 10 * (self.version + 1), "defaultRowCommitVersion": self.version + 1}
        return {
            "add": {
                "path": path,
                "partitionValues": {},
                "size": 100,
                "modificationTime": EPOCH,
                "dataChange": data_change,
                "stats": stats,
                **ids,
            }
        }

    def removes(self, *, data_change: bool = True) -> list[dict[str, Any]]:
        return [
            {"remove": {"path": path, "deletionTimestamp": EPOCH, "dataChange": data_change, "size": 100}}
            for path in sorted(self.files[self.version])
        ]

    # -- what people do to tables -------------------------------------------------------------------
    def append(self, **given: Any) -> int:
        return self.commit("WRITE", self.add(), parameters={"mode": "Append"}, **given)

    def optimize(self, **given: Any) -> int:
        return self.commit("OPTIMIZE", self.add(data_change=False), *self.removes(data_change=False), **given)

    def overwrite(self, **parameters: Any) -> int:
        return self.commit(
            "WRITE", self.add(), *self.removes(), parameters={"mode": "Overwrite", **parameters}
        )

    def truncate(self) -> int:
        return self.commit("TRUNCATE", *self.removes())

    def delete(self, predicate: str) -> int:
        return self.commit("DELETE", *self.removes(), self.add(), parameters={"predicate": predicate})

    def replace_table(self, table_id: str, operation: str = "CREATE OR REPLACE TABLE AS SELECT") -> int:
        self.table_id = table_id
        return self.commit(operation, self.metadata(), self.add(), *self.removes())

    def checkpoint(self, *gone: int, at: int | None = None) -> None:
        """Write a checkpoint, and delete commit files as log retention does.

        :param at: its version; None: the newest one
        """
        from deltalake import DeltaTable

        DeltaTable(self.uri, version=at).create_checkpoint()
        for version in gone:
            self.file(version).unlink()

    def set_properties(self, **configuration: str) -> int:
        self.configuration = {k.replace("__", "."): v for k, v in configuration.items()}
        return self.commit("SET TBLPROPERTIES", self.metadata())

    def alter(self, *fields: dict[str, Any], operation: str = "CHANGE COLUMN") -> int:
        self.fields = list(fields)
        return self.commit(operation, self.metadata())

    def restore(self, version: int, *, timestamp: str | None = None, metadata: bool = True) -> int:
        wanted, now = self.files[version], self.files[self.version]
        back = [
            {
                "add": {
                    "path": path,
                    "partitionValues": {},
                    "size": 100,
                    "modificationTime": EPOCH,
                    "dataChange": True,
                    "stats": json.dumps({"numRecords": 10}),
                }
            }
            for path in sorted(wanted - now)
        ]
        gone = [
            {"remove": {"path": path, "deletionTimestamp": EPOCH, "dataChange": True, "size": 100}}
            for path in sorted(now - wanted)
        ]
        parameters = {"version": None if timestamp else version, "timestamp": timestamp}
        changed = [self.metadata()] if metadata else []
        return self.commit("RESTORE", *gone, *back, *changed, parameters=parameters)

    def write_seal(self, seal: Seal, *, rows: bool = True, **given: Any) -> int:
        txn = {"txn": {"appId": app_id(seal.pipeline), "version": seal.number, "lastUpdated": EPOCH}}
        extra = [] if self.version >= 0 else [self.metadata()]
        protocol = [] if self.version >= 0 else [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}]
        files = [self.add(part=given.pop("part", 0))] if rows else []
        if seal.step.kind == "reset" and self.version >= 0:
            files += given.pop("removed", None) or self.removes()
        return self.commit(
            given.pop("operation", "MERGE"),
            *protocol,
            *extra,
            txn,
            *files,
            user_metadata=seal.to_json(),
            metrics=given.pop(
                "metrics",
                {"numTargetRowsInserted": "3", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "1"},
            ),
            **given,
        )


def field_of(
    name: str,
    of: Any = "string",
    *,
    mapped: int | None = None,
    file_name: str | None = None,
    nullable: bool = True,
    comment: str = "",
) -> dict[str, Any]:
    """Return a field of a schema; ``mapped`` gives it an id of column mapping.

    :param file_name: its name in files, where it is mapped; a column that was there before keeps its own
    """
    metadata: dict[str, Any] = {"comment": comment} if comment else {}
    if mapped is not None:
        metadata["delta.columnMapping.id"] = mapped
        metadata["delta.columnMapping.physicalName"] = file_name or f"col-{mapped}"
    return {"name": name, "type": of, "nullable": nullable, "metadata": metadata}


def struct_of(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def seal(
    number: int,
    watermark: int,
    *,
    source: LogTable | None = None,
    start: int | None = None,
    planned_on: TableVersion | None = None,
    fingerprint: str = "f",
    **changes: Any,
) -> Seal:
    """Return a seal of pipeline ``p`` as the engine writes it."""
    kind = changes.pop("kind", "apply")
    made = Seal(
        pipeline="p",
        number=number,
        source_uri=source.uri if source else "/source",
        state=PipelineState(
            TableVersion(
                source.table_id if source else "source-id",
                watermark,
                source.sha256(watermark) if source else "hash",
            ),
            applied_from=0,
            configuration={"keys": ["id"], "scd_type": 1, "tracked": {"include": None, "except": None}},
        ),
        step=SealStep(
            kind=kind,
            starting_version=watermark if start is None else start,
            ending_version=watermark,
            fingerprint=fingerprint,
            run_id="r",
            planned_on=planned_on,
            counts={"late": 0},
        ),
    )
    return changed(made, **changes)


def changed(made: Seal, **changes: Any) -> Seal:
    """Return a seal with other fields, of its own or of its state."""
    of_state = {name: changes.pop(name) for name in {*changes} & {f.name for f in fields(PipelineState)}}
    return replace(made, state=replace(made.state, **of_state), **changes)


def unhashed(version: TableVersion | None) -> TableVersion | None:
    """Return a version without the hash of its commit file, which tests cannot know beforehand."""
    return None if version is None else TableVersion(version.table_id, version.version)


def state_after(step: Any, configuration: dict[str, Any]) -> PipelineState:
    """Return what a seal carries after a step, as the engine has it."""
    before = 0 if step.before is None else step.before.applied_from
    return PipelineState(
        step.watermark, before, loaded_version=step.watermark.version, configuration=configuration
    )
