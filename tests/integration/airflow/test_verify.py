"""A verification as a task: a table in the log, a list in XCom, and a failure that names what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

_DAG = """
from datetime import datetime

from airflow.sdk import DAG

from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaVerifyOperator

with DAG("verified", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    apply = DeltaApplyChangesOperator(
        task_id="apply", pipeline="orders", source="{source}", target="{target}", keys=["id"],
        target_properties={{"delta.enableDeletionVectors": "false"}},
    )
    report = DeltaVerifyOperator(task_id="report", config="flows.yaml", on_finding="report")
    verify = DeltaVerifyOperator(
        task_id="verify", pipeline="orders", source="{source}", target="{target}",
        checks=["seal", "mirror", "unique_keys"],
    )
    apply >> report >> verify
"""
_FLOWS = """
pipelines:
  orders:
    source: {source}
    target: '{{{{ params.get("nothing", "{target}") }}}}'
    keys: [id]
    target_properties: {{delta.enableDeletionVectors: false}}
"""


def test_a_verification_reports_and_another_one_fails(airflow: Airflow, tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
    write_deltalake(source, rows, configuration={"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("verified", _DAG.format(source=source, target=target))
    file.with_name("flows.yaml").write_text(_FLOWS.format(source=source, target=target))

    sound = airflow.run(file)
    assert sound.state == "success", sound.log
    found = {row["check"]: row["status"] for row in sound.xcom("report")}
    assert {name for name, status in found.items() if status == "ok"} == {
        "seal",
        "watermark",
        "configuration",
        "null_keys",
        "unique_keys",
        "equals_source",
    }
    # The apply has kept a copy of its seal with the source's asset.
    assert {row["check"]: row["status"] for row in sound.xcom("verify")} == {
        "seal": "ok",
        "mirror": "ok",
        "unique_keys": "ok",
    }
    assert "equals_source" in sound.log
    assert sound.submits == 3

    write_deltalake(target, rows.slice(1, 1), mode="append")
    wrong = airflow.run(file)
    assert (wrong.tasks["report"]["state"], wrong.tasks["verify"]["state"]) == ("success", "failed")
    samples = {row["check"]: row["samples"] for row in wrong.xcom("verify") if row["status"] == "finding"}
    assert samples == {"unique_keys": ["id = 2"]}
    assert "VerificationFailed: 1 check(s) of 1 table(s) found something. orders (" in wrong.log
    assert "1 WRONG" in wrong.log
