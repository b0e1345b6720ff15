"""Killed erasures are run again: nothing of the key is left, other keys stay, and nothing brings it back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from delta_cdc import erase_key
from tests.support.commit_storm import Programs
from tests.support.decoded_files import current_files, decoded
from tests.support.deliveries import Deliveries, event
from tests.support.holding import killing
from tests.support.random_logs import seeds

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SIGKILLED = -9
#: How many kills a seed makes; the variable draws more, for instance 200.
KILLS = os.environ.get("DELTA_CDC_KILLS", "6")
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


@pytest.mark.parametrize("seed", seeds(1))
def test_kills_between_two_operations_on_the_disk(tmp_path: Path, seed: int) -> None:
    classes = {"ERASE_KILLS_CLASSES": Programs.compiled(tmp_path / "programs").without_spark}
    (tmp_path / "lakes").mkdir()
    code, text = process(
        "tests.support.erase_kills", tmp_path, str(tmp_path / "lakes"), KILLS, str(seed), more=classes
    )
    assert code == 0, (tmp_path / "driver.log").read_text()[-4000:]
    report = json.loads(text.splitlines()[-1])
    assert report["problems"] == [], f"DELTA_CDC_SEED={seed} DELTA_CDC_KILLS={KILLS}, kills: {report['at']}"
    assert report["kills"] >= int(KILLS)


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
