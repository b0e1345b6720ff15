"""The cases that each release of Airflow must pass, run in that release's environment.

``python -m tools.matrix.airflow_cases <folder>`` prints one JSON object per case.
"""

from __future__ import annotations

import json
import os
import pkgutil
import runpy
import shutil
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def imports(folder: Path) -> None:
    """Import every module of the provider."""
    package = import_module("airflow_delta_cdc")
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        import_module(module.name)


def registered(folder: Path) -> None:
    """Let Airflow's own check read the provider's metadata, and its plugin."""
    from airflow.plugins_manager import AirflowPlugin
    from airflow.providers_manager import _create_provider_info_schema_validator

    from airflow_delta_cdc.plugin import DeltaCdcPlugin
    from airflow_delta_cdc.provider_info import get_provider_info

    _create_provider_info_schema_validator().validate(get_provider_info())
    assert issubclass(DeltaCdcPlugin, AirflowPlugin)


def dag(folder: Path) -> None:
    """Run a DAG three times, with a file to ingest the first two times."""
    (folder / "landing").mkdir()
    _watched(folder / "watched")
    os.environ["DELTA_CDC_MATRIX_TABLES"] = str(folder)
    _keep_api()
    # Airflow before 3.2 runs no DAG that is not a file of its folder.
    file = Path(os.environ["AIRFLOW__CORE__DAGS_FOLDER"]) / "matrix.py"
    file.parent.mkdir()
    shutil.copyfile(Path(__file__).with_name("example_dag.py"), file)

    def run(number: int, *records: dict[str, Any]) -> dict[str, Any]:
        if records:
            (folder / "landing" / f"{number}.json").write_text("\n".join(map(json.dumps, records)))
        made = runpy.run_path(str(file))["dag"]
        done = made.test(logical_date=datetime(2026, 1, number, tzinfo=UTC))
        assert str(done.state) == "success", done.state
        return _xcom(done, "ingest")

    first = run(1, {"id": 1, "v": "a", "n": 1, "op": "I"}, {"id": 2, "v": "b", "n": 1, "op": "I"})
    assert first["counts"]["inserted"] == 2, first
    second = run(2, {"id": 1, "v": "A", "n": 2, "op": "U"}, {"id": 2, "n": 2, "op": "D"})
    assert (second["counts"]["inserted"], second["counts"]["events"]) == (1, 2), second
    # The run reads the events of both: nothing is announced twice.
    assert not run(3)["applied"]


def _keep_api() -> None:
    """Let ``DAG.test`` keep the API in its process, and wait until it has started.

    Airflow 3.3 does both. In 3.2.2, nothing refers to the API after the client was made: Python then ends it,
    and the first request of a task fails.
    """
    from airflow.sdk.execution_time import supervisor

    made, kept = supervisor.in_process_api_server, []

    def started() -> Any:
        api, deadline = made(), time.monotonic() + 60
        kept.append(api)
        # The transport starts the API, in a thread of its own.
        assert api.transport is not None
        while not hasattr(api.app.state, "svcs_registry"):
            assert time.monotonic() < deadline, "the API in this process did not start"
            time.sleep(0.01)
        return api

    supervisor.in_process_api_server = started


def _watched(table: Path) -> None:
    """Write the log of a Delta table with two commits; the sensor reads nothing else."""
    log = table / "_delta_log"
    log.mkdir(parents=True)
    field = {"name": "id", "type": "integer", "nullable": True, "metadata": {}}
    metadata = {
        "id": "00000000-0000-0000-0000-000000000001",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    file = {"path": "a.parquet", "partitionValues": {}, "size": 1, "modificationTime": 0, "dataChange": True}
    commits = (
        [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}],
        [{"add": file}],
    )
    for version, actions in enumerate(commits):
        lines = [{"commitInfo": {"timestamp": 0, "operation": "WRITE"}}, *actions]
        (log / f"{version:020d}.json").write_text("\n".join(map(json.dumps, lines)))


def configured(folder: Path) -> None:
    """Build and serialize the DAGs of a configuration: a cron, and a watcher."""
    from airflow.serialization import serialized_objects

    from airflow_delta_cdc.dags import build_dags

    # The class has another name before 3.2.
    serialization = getattr(serialized_objects, "DagSerialization", None) or serialized_objects.SerializedDAG
    table = {"source": str(folder / "s"), "keys": ["id"], "freshness": "1 hour"}
    late = {"on_late_callback": ["airflow_delta_cdc.deadline.log_missed"]}
    groups = {"hourly": {"schedule": "0 * * * *", **late}, "watched": {"schedule": "on_change"}}
    pipelines = {group: {"group": group, "target": str(folder / group), **table} for group in groups}
    dags = build_dags({"groups": groups, "pipelines": pipelines})
    assert len(dags) == 4, list(dags)
    for one in dags.values():
        serialization.serialize_dag(one)


#: The cases by their titles in the table.
CASES: dict[str, Callable[[Path], None]] = {
    "every module is imported": imports,
    "metadata and plugin are accepted": registered,
    "DAGs of a configuration": configured,
    "a DAG with sensor, ingest and verification": dag,
}


def _xcom(run: Any, task: str) -> dict[str, Any]:
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session

    with create_session() as session:
        row = (
            session.query(XComModel)
            .filter_by(dag_id=run.dag_id, run_id=run.run_id, task_id=task, key="return_value")
            .one()
        )
        value: dict[str, Any] = XComModel.deserialize_value(row)
    return value


def main() -> None:
    """Run the cases."""
    for title, case in CASES.items():
        folder = Path(sys.argv[1]) / case.__name__
        folder.mkdir()
        start = time.monotonic()
        error = ""
        try:
            case(folder)
        except Exception as raised:  # noqa: BLE001 - the table has it
            traceback.print_exc()
            error = f"{type(raised).__name__}: {raised}"
        cell = "**fails**" if error else "yes"
        answer = {"case": title, "cell": cell, "error": error, "seconds": time.monotonic() - start}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
