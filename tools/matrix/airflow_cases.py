"""The cases that each release of Airflow must pass, run in that release's environment.

``python -m tools.matrix.airflow_cases <folder>`` prints one JSON object per case.
"""

from __future__ import annotations

import json
import pkgutil
import sys
import time
import traceback
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

_START = datetime(2026, 1, 1, tzinfo=UTC)


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
    """Run a DAG twice, with a file to ingest each time: sensor, ingest with its apply, verification."""
    from airflow.sdk import DAG

    from airflow_delta_cdc.operators import DeltaIngestChangesOperator, DeltaVerifyOperator
    from airflow_delta_cdc.retry import DELTA_CDC_RETRY_POLICY
    from airflow_delta_cdc.sensors import DeltaVersionSensor

    landing, log, target = (str(folder / name) for name in ("landing", "log", "target"))
    Path(landing).mkdir()
    with DAG(
        "matrix",
        schedule=None,
        start_date=_START,
        default_args={"retry_policy": DELTA_CDC_RETRY_POLICY, "retries": 0},
    ) as made:
        ingest = DeltaIngestChangesOperator(
            task_id="ingest",
            pipeline="orders",
            source=landing,
            log=log,
            target=target,
            keys=["id"],
            schema="id INT, v STRING, n INT",
            adapter_options={"operation_column": "op", "sequence_by": "n"},
            stored_as_scd_type=2,
            retry_policy=DELTA_CDC_RETRY_POLICY,
        )
        wait = DeltaVersionSensor(task_id="wait", table=log, baseline_version=0, poke_interval=1, timeout=60)
        verify = DeltaVerifyOperator(task_id="verify", pipeline="orders", target=target)
        ingest >> wait >> verify

    def run(number: int, *records: dict[str, Any]) -> dict[str, Any]:
        (Path(landing) / f"{number}.json").write_text("\n".join(map(json.dumps, records)))
        done = made.test(logical_date=_START.replace(day=number))
        assert str(done.state) == "success", done.state
        return _xcom(done, "ingest")

    first = run(1, {"id": 1, "v": "a", "n": 1, "op": "I"}, {"id": 2, "v": "b", "n": 1, "op": "I"})
    assert first["counts"]["inserted"] == 2, first
    second = run(2, {"id": 1, "v": "A", "n": 2, "op": "U"}, {"id": 2, "n": 2, "op": "D"})
    assert second["counts"] == {**second["counts"], "inserted": 1, "events": 2}, second


def configured(folder: Path) -> None:
    """Build and serialize the DAGs of a configuration: a cron, and a watcher with a deadline."""
    from airflow.serialization.serialized_objects import DagSerialization, SerializedDAG

    from airflow_delta_cdc.dags import build_dags

    table = {"source": str(folder / "s"), "target": str(folder / "t"), "keys": ["id"]}
    groups = {
        "hourly": {"schedule": "0 * * * *", "tables": {"hourly_orders": table}},
        "watched": {"schedule": "on_change", "tables": {"watched_orders": {**table, "freshness": "1 hour"}}},
    }
    dags = build_dags({"groups": groups})
    assert len(dags) == 4, list(dags)
    for one in dags.values():
        DagSerialization.serialize_dag(one)
    assert SerializedDAG


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
        print(json.dumps({"case": title, "error": error, "seconds": time.monotonic() - start}), flush=True)


if __name__ == "__main__":
    main()
