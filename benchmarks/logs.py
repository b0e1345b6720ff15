"""Delta logs of any length for benchmarks, written without a JVM."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion, app_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
)
_START_MS = 1_700_000_000_000


def write_log(
    table: Path,
    commits: int,
    *,
    table_id: str | None = None,
    extra: Callable[[int], list[dict]] | None = None,
    checkpoint_every: int | None = 10,
    files: int = 1,
) -> str:
    """Write a table of ``commits`` versions, with checkpoints as Spark writes them.

    :param extra: more actions of a version; a ``commitInfo`` among them replaces the plain one
    :param checkpoint_every: a checkpoint at every so many versions; None writes none
    :param files: added files of a version
    :return: the table's id
    """
    from deltalake import DeltaTable

    table_id = table_id or str(uuid.uuid4())
    log = table / "_delta_log"
    log.mkdir(parents=True)
    for version in range(commits):
        actions = extra(version) if extra else []
        if not any("commitInfo" in action for action in actions):
            actions.insert(0, {"commitInfo": _info(version)})
        if version == 0:
            actions += _head(table_id)
        actions += [_add(version, part) for part in range(files)]
        text = "\n".join(json.dumps(action) for action in actions) + "\n"
        (log / f"{version:020d}.json").write_text(text)
        if version and checkpoint_every and version % checkpoint_every == 0:
            DeltaTable(str(table), version=version).create_checkpoint()
    return table_id


def file_name(version: int, part: int) -> str:
    """Return the name of a file that a version adds."""
    return f"part-{version:05d}-{part:05d}.parquet"


def _info(version: int) -> dict[str, object]:
    return {
        "timestamp": _START_MS + version,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append"},
        "operationMetrics": {"numOutputRows": "1"},
    }


def _head(table_id: str) -> list[dict[str, object]]:
    configuration = {"delta.enableChangeDataFeed": "true"}
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}},
        {
            "metaData": {
                "id": table_id,
                "format": {"provider": "parquet", "options": {}},
                "schemaString": _SCHEMA,
                "partitionColumns": [],
                "configuration": configuration,
                "createdTime": _START_MS,
            }
        },
    ]


def _add(version: int, part: int) -> dict[str, object]:
    return {
        "add": {
            "path": file_name(version, part),
            "partitionValues": {},
            "size": 500,
            "modificationTime": _START_MS + version,
            "dataChange": True,
            "stats": json.dumps({"numRecords": 1}),
        }
    }


def sealed(pipeline: str, source_id: str, source_uri: str, commit_hash: Callable[[int], str]) -> Callable:
    """Return ``extra`` for a target in which version N carries the watermark N of the source."""

    def extra(version: int) -> list[dict]:
        number = _START_MS + version
        seal = Seal(
            pipeline=pipeline,
            number=number,
            source_uri=source_uri,
            state=PipelineState(
                TableVersion(source_id, version, commit_hash(version)),
                applied_from=0,
                configuration={"keys": ["id"], "scd_type": 1, "tracked": {"include": None, "except": None}},
            ),
            step=SealStep("apply", version, version, "benchmark", "benchmark"),
        )
        info = {**_info(version), "userMetadata": seal.to_json()}
        return [{"commitInfo": info}, {"txn": {"appId": app_id(pipeline), "version": number}}]

    return extra
