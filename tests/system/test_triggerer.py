"""Watchers in a running triggerer: what they wake, and what is left when the triggerer is killed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from demo.places import Places
from tests.system.parts import Parts
from tests.unit.airflow.tables import append, compact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_SCENARIOS = ("wakes", "before", "after", "both", "storm", "trouble", "filtered")

_DAGS = """
import json
from pathlib import Path

from airflow.sdk import Asset, AssetWatcher, DAG, task

from airflow_delta_cdc.triggers import DeltaVersionTrigger

ROOT = Path({root!r})


def woken_by(name, table, cls=DeltaVersionTrigger, **arguments):
    asset = Asset(
        name,
        watchers=[
            AssetWatcher(
                name=name,
                trigger=cls(table=str(ROOT / table), asset_name=name, poll_interval=0.3, **arguments),
            )
        ],
    )
    with DAG(name, schedule=[asset], max_active_runs=1, catchup=False) as dag:

        @task
        def note(triggering_asset_events=None):
            with (ROOT / f"{{name}}.notes").open("a") as notes:
                for events in triggering_asset_events.values():
                    for event in events:
                        notes.write(json.dumps(event.extra["payload"]) + "\\n")

        note()
    return dag


wakes = woken_by("wakes", "t-wakes")
before = woken_by("before", "t-before")
after = woken_by("after", "t-after")
both_one = woken_by("both-one", "t-both")
both_two = woken_by("both-two", "t-both")
storm = woken_by("storm", "t-storm")
trouble = woken_by("trouble", "t-trouble")
filtered = woken_by("filtered", "t-filtered", operations=["optimize", "MERGE"])
yielded = woken_by("yielded", "t-yielded")
"""


class World:
    """The Airflow, and where the tables are."""

    def __init__(self, parts: Parts, root: Path) -> None:
        self.parts = parts
        self.root = root

    def table(self, name: str) -> Path:
        return self.root / f"t-{name}"

    def events(self, asset: str, count: int) -> list[dict[str, Any]]:
        """Return the asset's events, when there are so many."""
        found: list[dict[str, Any]] = self.parts.until(
            lambda: _at_least(self.parts.events(asset), count), f"no {count} events of {asset}"
        )
        return found

    def settled(self, asset: str, version: int) -> None:
        """Return when the watcher's cursor stands at a version."""
        self.parts.until(
            lambda: [c["version"] for c in self.parts.cursors(asset)] == [version],
            f"the cursor of {asset} did not reach {version}",
        )

    def notes(self, dag: str) -> list[dict[str, Any]]:
        file = self.root / f"{dag}.notes"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _at_least(found: list[Any], count: int) -> list[Any] | None:
    return found if len(found) >= count else None


def _versions(events: list[dict[str, Any]]) -> list[tuple[int | None, int]]:
    return [(event["previous_version"], event["version"]) for event in events]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("triggerer")
    dags = root / "dags"
    dags.mkdir()
    (dags / "watching.py").write_text(_DAGS.format(root=str(root)))
    parts = Parts(Places(root), dags)
    parts.start()
    try:
        yield World(parts, root)
    finally:
        parts.stop()


def test_a_watcher_wakes_a_dag(world: World) -> None:
    table = world.table("wakes")
    append(table, [1])
    (first,) = world.events("wakes", 1)
    assert (first["previous_version"], first["version"]) == (None, 0)
    world.settled("wakes", 0)

    assert compact(table) == 0, "one file alone is not rewritten"
    append(table, [2])
    second = world.events("wakes", 2)[1]
    assert second["table"] == str(table)
    assert second["table_id"] == str(DeltaTable(str(table)).metadata().id)
    assert (second["previous_version"], second["version"], second["reason"]) == (0, 1, "new_versions")
    world.parts.until(lambda: len(world.notes("wakes")) == 2, "the DAG did not run for both events")
    assert world.notes("wakes") == [first, second]
    world.parts.until(lambda: set(world.parts.runs("wakes")) == {"success"}, "a run did not succeed")
    assert world.parts.events("wakes") == [first, second]
