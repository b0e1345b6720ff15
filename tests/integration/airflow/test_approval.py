"""A task that waits for a person in a real Airflow, and continues with the answer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from airflow_delta_cdc.approval import APPROVE, REJECT
from tests.integration.airflow.test_flow import rows, version, write

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_WAITS = """
from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

with DAG("waits", schedule=None) as dag:
    DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="waits",
        source={source!r},
        target={target!r},
        keys=["id"],
        limits={{"max_deleted": "30 %"}},
        policies={{"on_limit": "wait"}},
    )
"""

_RESETS = """
from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

# The form offers no reset.
with DAG("resets", schedule=None, params={{"mode": "incremental"}}) as dag:
    DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="resets",
        source={source!r},
        target={target!r},
        keys=["id"],
        policies={{"on_limit": "wait", "approval_for": ["reset", "reload"]}},
        mode="{{{{ params.mode }}}}",
    )
"""


def question(outcome: Outcome) -> str:
    """Return the text of the required action."""
    return str(outcome.tasks["apply"]["asked"])


@pytest.mark.slow
def test_a_change_beyond_its_limit_waits_for_a_person(tmp_path: Path, airflow: Airflow) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [(number, "a") for number in range(10)], **{"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("waits", _WAITS.format(source=str(source), target=str(target)))
    assert airflow.run(file).state == "success"
    DeltaTable(str(source)).delete("id < 4")
    loaded = version(target)
    rejected = airflow.run(file, answers={"apply": REJECT})
    assert "Pausing task as AWAITING_INPUT" in rejected.log
    assert "it would delete or close 4 of 10 rows (40.0 %)" in question(rejected)
    assert (rejected.state, rejected.tasks["apply"]["state"]) == ("failed", "failed")
    assert "Ann did not approve the change, so it was not written." in rejected.log
    assert (version(target), len(rows(target))) == (loaded, 10)
    # The next run asks again.
    approved = airflow.run(file, answers={"apply": APPROVE})
    assert (approved.state, approved.xcom("apply")["counts"]["deleted"]) == ("success", 4)
    assert [key for key, _ in rows(target)] == list(range(4, 10))
    assert approved.events[0]["extra"]["ending_version"] == 1


@pytest.mark.slow
def test_a_reset_waits_for_a_person(tmp_path: Path, airflow: Airflow) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    write(source, [(number, "a") for number in range(6)], **{"delta.enableChangeDataFeed": "true"})
    file = airflow.dag("resets", _RESETS.format(source=str(source), target=str(target)))
    assert airflow.run(file).state == "success"
    write(source, [(number, "a") for number in range(6, 10)])
    before = version(target)
    rejected = airflow.run(file, conf={"mode": "reset"}, answers={"apply": REJECT})
    assert "it would delete and load all rows, and approval_for has reset" in question(rejected)
    assert "of 6 keys, 0 would go; 4 new keys would come" in question(rejected)
    assert (rejected.state, version(target)) == ("failed", before)
    approved = airflow.run(file, conf={"mode": "reset"}, answers={"apply": APPROVE})
    assert (approved.state, [key for key, _ in rows(target)]) == ("success", list(range(10)))
    # The changes after the watermark need no approval.
    write(source, [(10, "b")])
    assert airflow.run(file).state == "success"
    assert [key for key, _ in rows(target)] == list(range(11))
