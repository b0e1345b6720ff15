"""Killed erasures are run again: nothing of the key is left, other keys stay, and nothing brings it back."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from delta_cdc import erase_key
from tests.support.decoded_files import current_files, decoded
from tests.support.deliveries import Deliveries, event
from tests.support.holding import killing

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SIGKILLED = -9
KEY, SECRET = 170017, "Ottilie Wildermuth"


def process(module: str, folder: Path, *arguments: str, more: Mapping[str, str]) -> tuple[int, str]:
    """Run a module in a process of its own; return its exit code and its output."""
    with (folder / "driver.log").open("a") as log:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more},
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
            check=False,
            text=True,
        )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("point", "times"), [("created", 2), ("remembered", 1), ("marked", 2), ("erased", 1)]
)
def test_sigkill_of_driver_and_jvm(spark: SparkSession, tmp_path: Path, point: str, times: int) -> None:
    flow, target = Deliveries(spark, tmp_path), str(tmp_path / "target")
    first = [event("I", 1, 1, name="Anna"), event("I", 2, KEY, name=SECRET), event("U", 3, KEY, name=SECRET)]
    flow.deliver("a.json", first)
    flow.ingest()
    flow.apply()
    code, _ = process(
        "tests.system.erase_driver", tmp_path, flow.log, target, str(KEY), more=killing(point, times)
    )
    assert code == SIGKILLED, (tmp_path / "driver.log").read_text()[-4000:]
    # A run in between does not fail.
    flow.deliver("b.json", [event("U", 4, 1, name="Anna")])
    flow.ingest()
    flow.apply()
    tables = [
        {"pipeline": "flow", "log": flow.log},
        {"pipeline": "apply", "source": flow.log, "target": target},
    ]
    erase_key(spark, tables, key={"id": KEY})
    flow.deliver("a.json", [*first, event("U", 9, KEY, name=SECRET)])
    flow.ingest()
    flow.apply(mode="reload")
    assert [row["id"] for row in flow.rows("target")] == [1]
    assert sorted(row["_sequence"] for row in flow.rows("log")) == [1, 4]
    for table in ("log", "target"):
        files = current_files(tmp_path / table)
        assert files
        assert [path for path in files if SECRET.encode() in decoded(path)] == []
        assert len(flow.rows(f"{table}__erased")) == 1
