"""The example of maintenance, night after night: tables stay right while logs and files are tidied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration.airflow.test_examples import rows
from tests.integration.airflow.test_sinks import example
from tests.support.engine import metadata

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_four_nights(airflow: Airflow, tmp_path: Path) -> None:
    file = example(airflow, "table_care", tmp_path)
    log, target = tmp_path / "readings", tmp_path / "readings_by_day"
    came: dict[tuple[int, object], tuple[object, float]] = {}
    expired = []
    for night in range(4):
        done = airflow.run(file)
        assert done.state == "success", done.log
        (found,) = done.xcom("expire")
        expired.append(found["deleted"])
        assert {row["status"] for row in done.xcom("optimize")} == {"done"}, night
        assert [row["files"] for row in done.xcom("vacuum")] == [0, 0], "all is younger than a week"
        assert {row["status"] for row in done.xcom("verify")} <= {"ok", "skipped"}
        for row in rows(log):
            key = row["meter"], row["day"]
            if key not in came or came[key][0] < row["read_at"]:
                came[key] = row["read_at"], row["kilowatts"]
        kept = {(row["meter"], row["day"]): (row["read_at"], row["kilowatts"]) for row in rows(target)}
        assert kept == came
    # The horizon is set in the first night already, and reaches the first day's readings in the third.
    assert expired[0] == expired[1] == 0
    assert expired[3] > 0
    assert metadata(str(log))["configuration"]["delta_cdc.latenessHorizon"] >= "2026-01-02"
