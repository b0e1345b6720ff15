"""The DAG that each release of Airflow runs: ingest with its apply, sensor, verification."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG

from airflow_delta_cdc.operators import DeltaIngestChangesOperator, DeltaVerifyOperator
from airflow_delta_cdc.retry import DELTA_CDC_RETRY_POLICY
from airflow_delta_cdc.sensors import DeltaVersionSensor

_FOLDER = Path(os.environ["DELTA_CDC_MATRIX_TABLES"])
LANDING, LOG, TARGET, WATCHED = (str(_FOLDER / name) for name in ("landing", "log", "target", "watched"))

with DAG(
    "matrix",
    schedule=None,
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    default_args={"retry_policy": DELTA_CDC_RETRY_POLICY, "retries": 0},
) as dag:
    ingest = DeltaIngestChangesOperator(
        task_id="ingest",
        pipeline="orders",
        source=LANDING,
        log=LOG,
        target=TARGET,
        keys=["id"],
        schema="id INT, v STRING, n INT",
        adapter_options={"operation_column": "op", "sequence_by": "n"},
        stored_as_scd_type=2,
        retry_policy=DELTA_CDC_RETRY_POLICY,
    )
    wait = DeltaVersionSensor(
        task_id="wait", table=WATCHED, baseline_version=0, deferrable=False, poke_interval=1, timeout=60
    )
    verify = DeltaVerifyOperator(task_id="verify", pipeline="orders", target=TARGET)
    ingest >> wait >> verify
