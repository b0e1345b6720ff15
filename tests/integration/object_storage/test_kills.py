"""A few kills of each kind of work over S3; ``make kills`` makes thousands, elsewhere too."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from tests.kills.campaign import KINDS, Tables
from tests.kills.erase import Erase
from tests.kills.ways import WAYS, Frozen, StoreBreaks, StoreEnds

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lake import Lake


@pytest.mark.parametrize(
    ("kind", "way"),
    [
        ("apply type 1", StoreEnds.name),
        ("apply type 1", Frozen.name),
        *(
            pytest.param(kind, StoreEnds.name, marks=pytest.mark.slow)
            for kind in KINDS
            if kind not in ("apply type 1", Erase.name)
        ),
    ],
)
def test_the_next_run_repairs_what_a_kill_left(
    on_lake: SparkSession, lake: Lake, tmp_path: Path, kind: str, way: str
) -> None:
    breaks = StoreBreaks()
    lake.proxy.faults = breaks
    folder = lake.folder / "tables"
    folder.mkdir()
    made = KINDS[kind](folder, lake.uri("tables"), lake.direct)
    tables = Tables(made, WAYS[way](on_lake, breaks, tmp_path, {}), random.Random(1), unlucky=1)
    problems = tables.play(1)
    assert problems == []
    assert tables.kills
