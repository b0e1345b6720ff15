"""The benchmark from commit to commit: where the time of a run goes, and what it says of two revisions."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.benchmarks import benchmark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

LINES = {
    2.0: "orders: Planned: versions 1-2, a into b.",
    9.0: "orders: preparing the apply of a: versions 1-2",
    12.0: "orders: committing the apply of a: versions 1-2: 150 changes",
    14.0: "orders: committed version 2, seal 7",
    16.5: "orders: 150 changes: versions 1-2, a into b; version 2",
}
SECONDS = {"plan": 0.4, "start": 8.5, "work": 5.25, "confirm": 0.3}


@pytest.fixture(scope="module")
def program() -> Iterator[ModuleType]:
    with benchmark("commit_to_commit") as module:
        yield module


def log() -> str:
    moments = {at: datetime.fromtimestamp(at, UTC).isoformat() for at in LINES}
    lines = [json.dumps({"timestamp": moments[at], "event": text}) for at, text in LINES.items()]
    return "\n".join(["not JSON", *lines])


def test_the_stages_are_the_whole_time_of_a_run(program: ModuleType) -> None:
    found = program.stages(-2.0, (-1.5, -0.75, 1.0, 18.0), log(), SECONDS)
    assert list(found) == list(program.STAGES)
    assert sum(found.values()) == pytest.approx(20.0)
    assert found == pytest.approx(
        {
            "notice": 0.5,
            "schedule": 0.75,
            "task": 1.75,
            "import": 0.6,
            "plan": 0.4,
            "start": 8.5,
            "rows": 3.0,
            "merge": 2.25,
            "confirm": 0.3,
            "publish": 1.95,
        }
    )


def lines_of(program: ModuleType, *revisions: str) -> list[str]:
    arms: dict[str, Any] = {
        f"{way}, {revision}": {
            "seconds": [10.0, 10.0],
            "cpu": [8.0 if revision == "this" else 10.0] * 2,
            "stages": [dict.fromkeys(program.STAGES, 1.0)] * 2,
            "parts": [{"tasks": 8.0}] * 2,
        }
        for way in ("worker", "connect")
        for revision in revisions
    }
    cell = {"machine": {"load": 0, "cores": 2}, "rows": 10, "changes": 1, "arms": arms}
    return program.markdown({"commit to commit": cell}).splitlines()


def test_a_missed_aim_is_marked_and_has_no_place_without_another_revision(program: ModuleType) -> None:
    both = {line.split(" | ")[0]: line for line in lines_of(program, "this", "other")}
    assert "0.80 (0.80–0.80) | ≤ 0.70, **missed** |" in both["| worker"]
    assert both["| connect"].endswith("0.80 (0.80–0.80) |  |")
    alone = lines_of(program, "this")
    assert "| worker | 10.0 | 10.0–10.0 | 8.0 |" in alone
    assert "| tasks | 8.00 | 8.00 |" in alone
    assert any(line.endswith("| 1.00 (10%) | 1.00 (10%) |") for line in alone)
