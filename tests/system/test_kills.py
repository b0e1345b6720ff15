"""Kills of runs of every kind on a disk, in a campaign of its own (``tests/kills``)."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.kills.campaign import KINDS, State
from tests.kills.ways import Frozen, StoreEnds

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

#: How many kills a set of tables has at most; the variable draws more.
KILLS = int(os.environ.get("DELTA_CDC_KILLS", "4"))


@pytest.mark.parametrize("way", [StoreEnds.name, Frozen.name])
def test_the_next_run_repairs_what_a_kill_left(tmp_path: Path, way: str) -> None:
    state, total = tmp_path / "kills.json", KILLS * len(KINDS)
    log = tmp_path / "kills.log"
    given = {"--kills": total, "--per-set": KILLS, "--only": f"{way} / disk", "--state": state}
    code = subprocess.call(
        [sys.executable, "-m", "tests.kills", *(str(part) for pair in given.items() for part in pair)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "TMPDIR": str(tmp_path)},
        stdout=log.open("w"),
        stderr=subprocess.STDOUT,
    )
    assert code == 0, log.read_text()[-4000:]
    assert sum(State.read(state).kills.values()) >= total
