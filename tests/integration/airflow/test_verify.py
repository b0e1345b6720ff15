"""A verification as a task: a table in the log, a list in XCom, and a failure that names what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

pytestmark = pytest.mark.slow

_DAG = """
from datetime import datetime

from airflow.sdk import DAG

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaVerifyOperator

with DAG("verified", schedule=None, start_date=datetime(2026, 1, 1), params={{"lake": "{lake}"}}) as dag:
    apply = DeltaApplyChangesOperator(
        task_id="apply", pipeline="orders", source="{lake}/source", target="{lake}/target", keys=["id"],
        layout={{"cluster_by": [], "target_properties": {{"delta.enableDeletionVectors": "false"}}}},
    )
    verify = DeltaVerifyOperator(
        task_id="verify", config="flows.yaml", inlets=[delta_asset("{lake}/source")], parallel=1
    )
    apply >> verify
"""
_FLOWS = """
pipelines:
  orders:
    source: {lake}/source
    target: "{{{{ params.lake }}}}/target"
    keys: [id]
"""


def test_a_verification_is_a_list_and_findings_fail_it(airflow: Airflow, tmp_path: Path) -> None:
    lake = str(tmp_path)
    rows = pa.table({"id": pa.array([1, 2, 3], pa.int64()), "v": ["a", "b", "c"]})
    write_deltalake(f"{lake}/source", rows, configuration={"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("verified", _DAG.format(lake=lake))
    file.with_name("flows.yaml").write_text(_FLOWS.format(lake=lake))

    sound = airflow.run(file)
    assert sound.state == "success", sound.log
    # The apply has kept a copy of its seal with the source's asset.
    assert {row["check"] for row in sound.xcom("verify") if row["status"] == "ok"} == {
        "seal",
        "watermark",
        "backup",
        "configuration",
        "null_keys",
        "unique_keys",
        "equals_source",
    }
    assert sound.submits == 2

    write_deltalake(f"{lake}/target", rows.slice(1, 1), mode="append")
    wrong = airflow.run(file)
    assert (wrong.tasks["apply"]["state"], wrong.tasks["verify"]["state"]) == ("success", "failed")
    samples = {row["check"]: row["samples"] for row in wrong.xcom("verify") if row["status"] == "finding"}
    assert samples == {"unique_keys": ["id = 2"]}
    assert "VerificationFailed: 1 check(s) of 1 table(s) failed. orders (" in wrong.log
    assert "1 WRONG" in wrong.log
