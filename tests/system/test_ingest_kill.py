"""SIGKILL of an ingest's driver and its JVM; then a plain retry in another process: every event once."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.support.deliveries import Deliveries, event, expected
from tests.support.engine import versions
from tests.support.holding import killing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SIGKILLED = -9


def killed_at(point: str, folder: Path) -> None:
    """Let a driver kill itself at a named point."""
    with (folder / "driver.log").open("a") as log:
        process = subprocess.run(
            [sys.executable, "-m", "tests.system.ingest_driver", str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **killing(point)},
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    assert process.returncode == SIGKILLED, (folder / "driver.log").read_text()[-4000:]


@pytest.mark.parametrize("point", ["recorded", "quarantined", "committed"])
def test_killed(spark: SparkSession, tmp_path: Path, point: str) -> None:
    flow = Deliveries(spark, tmp_path)
    first, second = [event("I", 1, 1, name="a", amount=1)], [event("U", 2, 1, name="b", amount=2)]
    flow.deliver("a.json", first)
    flow.ingest()
    flow.deliver("b.json", [*second, "cut off"])
    before = versions(flow.log)
    killed_at(point, tmp_path)
    assert (len(versions(flow.log)) > len(before)) == (point == "committed")
    assert len(flow.rows("log__ingested")) == 2
    # Something comes in between: the batch that was begun is finished first, and alone.
    third = [event("I", 3, 3, name="c", amount=3)]
    flow.deliver("c.json", third)
    flow.ingest()
    if point != "committed":
        assert flow.events() == expected([*first, *second])
        flow.ingest()
    assert flow.events() == expected([*first, *second, *third])
    assert [raw for _, _, raw in flow.quarantined()] == ["cut off"]
    assert not flow.ingest().applied
