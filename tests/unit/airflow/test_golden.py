"""What the tasks of a group hand on and publish, compared with files under ``tests/golden``.

``UPDATE_GOLDEN=1`` rewrites the files; see ``tests/unit/test_golden.py``.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc import publishing
from delta_cdc.core.errors import NullKey
from delta_cdc.run.batch import PipelineResult
from tests.support import golden
from tests.support.tables import NOW, Tables
from tests.unit.airflow.test_groups import detect
from tests.unit.airflow.test_ingest_operator import applied, ingested

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_what_look_hands_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: NOW * 1_000_000)
    given: list[dict[str, Any]] = []
    for name, watermark in (("busy", 2), ("quiet", 5)):
        lake = Tables.made_in(tmp_path / name)
        # The pipeline of hand-written seals is p.
        lake.sealed(watermark)
        given.append({"pipeline": "p", "source": lake.source.uri, "target": lake.target.uri, "keys": ["id"]})
    absent = {**given[0], "pipeline": "absent", "source": str(tmp_path / "absent")}
    found = {}
    for name, one in (("busy", given[0]), ("quiet", given[1]), ("absent", absent)):
        work, summary = detect(one)
        assert {item["stamp"] for item in work} <= {one["stamp"] for one in summary.values()}
        found[name] = {
            "return_value": [{**item, "stamp": "<stamp>"} for item in work],
            "tables": {pipeline: {**one, "stamp": "<stamp>"} for pipeline, one in summary.items()},
        }
    golden.check("published/detect_changes.json", golden.as_json(found, tmp_path))


def test_what_a_bundle_publishes(tmp_path: Path) -> None:
    outcomes = [
        PipelineResult(pipeline="orders", ingested=ingested(), applied=applied(), error=None),
        PipelineResult(pipeline="fed", ingested=None, applied=applied("fed"), error=None),
        PipelineResult(pipeline="log", ingested=ingested("log", applied=False), applied=None, error=None),
        PipelineResult(pipeline="bad", ingested=None, applied=None, error=NullKey("m", remedy="r.")),
    ]
    found = {"one": [publishing.published(one) for one in outcomes]}
    golden.check("published/bundle.json", golden.as_json(found, tmp_path))
