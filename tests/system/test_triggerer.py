"""Watchers in a running triggerer: what they wake, and what is left when the triggerer is killed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from demo.places import Places
from tests.support.http_store import HttpStore, always, no_fault
from tests.system.parts import Parts
from tests.unit.airflow.tables import append, compact

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NOTED = '''
from pathlib import Path

from airflow_delta_cdc.triggers import DeltaVersionTrigger


class Noted(DeltaVersionTrigger):
    """Leaves a file right before it hands an event over."""

    async def filter_shared_stream(self, shared_stream):
        async for event in super().filter_shared_stream(shared_stream):
            Path(self.table + ".yielded").touch()
            yield event
'''

_DAGS = """
import json
from pathlib import Path

from datetime import datetime

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import Asset, AssetWatcher, DAG, task
from noted import Noted

from airflow_delta_cdc.sensors import DeltaVersionSensor
from airflow_delta_cdc.triggers import DeltaVersionTrigger

ROOT = Path({root!r})


def woken_by(name, table, cls=DeltaVersionTrigger, **arguments):
    trigger = cls(table=table, asset_name=name, poll_interval=0.3, **arguments)
    asset = Asset(name, watchers=[AssetWatcher(name=name, trigger=trigger)])
    with DAG(name, schedule=[asset], max_active_runs=1, catchup=False) as dag:

        @task
        def note(triggering_asset_events=None):
            with (ROOT / f"{{name}}.notes").open("a") as notes:
                for events in triggering_asset_events.values():
                    for event in events:
                        notes.write(json.dumps(event.extra["payload"]) + "\\n")

        note()
    return dag


def local(name):
    return str(ROOT / f"t-{{name}}")


wakes = woken_by("wakes", local("wakes"))
frozen = woken_by("frozen", local("frozen"))
yielded = woken_by("yielded", local("yielded"), Noted)
moved = woken_by("moved", local("moved"))
# Two assets on one trigger: the cursor is that of the asset that it names.
pair = DeltaVersionTrigger(table=local("pair"), asset_name="left", poll_interval=0.3)
for name in ("left", "right"):
    asset = Asset(name, watchers=[AssetWatcher(name=name, trigger=pair)])
    with DAG(name, schedule=[asset], max_active_runs=1, catchup=False) as dag:
        EmptyOperator(task_id="run")
    globals()[name] = dag
one = woken_by("one", local("both"))
two = woken_by("two", local("both"), min_versions=2)
storm = woken_by("storm", local("storm"))
deletes = woken_by("deletes", local("deletes"), operations=["DELETE"], partitions={{"day": ["b", None]}})
at_once = dict(schedule="@once", start_date=datetime(2026, 1, 1))
with DAG("sensing", **at_once) as sensing:
    DeltaVersionSensor(task_id="wait", table=local("sensing"), poke_interval=0.3, timeout=600)
with DAG("giving_up", **at_once) as giving_up:
    DeltaVersionSensor(
        task_id="wait", table=local("nothing"), poke_interval=0.3, timeout=1, soft_fail=True
    )
remote = woken_by("remote", "s3://lake/remote", delta_conn_id="lake", storage_options={{"max_retries": "0"}})
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
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpStore]:
    with HttpStore(tmp_path_factory.mktemp("store")) as made:
        yield made


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, store: HttpStore) -> Iterator[World]:
    root = tmp_path_factory.mktemp("triggerer")
    dags = root / "dags"
    dags.mkdir()
    (dags / "noted.py").write_text(_NOTED)
    (dags / "watching.py").write_text(_DAGS.format(root=str(root)))
    lake = {"region": "eu-west-1", "endpoint_url": store.endpoint, "storage": "s3", "allow_http": True}
    parts = Parts(
        Places(root),
        dags,
        AIRFLOW_CONN_LAKE=json.dumps(
            {"conn_type": "delta", "login": "key", "password": "secret", "extra": lake}
        ),
        AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL="2",
    )
    parts.start()
    try:
        yield World(parts, root)
    finally:
        parts.stop()


@pytest.mark.slow
def test_a_watcher_wakes_a_dag(world: World) -> None:
    table = world.table("wakes")
    append(table, [1])
    (first,) = world.events("wakes", 1)
    assert (first["previous_version"], first["version"]) == (None, 0)
    world.settled("wakes", 0)

    append(table, [2])
    second = world.events("wakes", 2)[1]
    assert second["table"] == str(table)
    assert second["table_id"] == str(DeltaTable(str(table)).metadata().id)
    assert (second["previous_version"], second["version"], second["reason"]) == (0, 1, "new_versions")
    world.parts.until(lambda: len(world.notes("wakes")) == 2, "the DAG did not run for both events")
    assert world.notes("wakes") == [first, second]
    world.parts.until(lambda: set(world.parts.runs("wakes")) == {"success"}, "a run did not succeed")
    assert world.parts.events("wakes") == [first, second]


@pytest.mark.slow
def test_rewriting_files_wakes_nobody(world: World) -> None:
    table = world.table("wakes")
    world.settled("wakes", 1)
    compacted = compact(table)
    append(table, [3])
    third = world.events("wakes", 3)[2]
    assert (compacted, third["previous_version"], third["version"]) == (2, 1, 3)


@pytest.mark.slow
def test_killed_between_a_commit_and_its_event(world: World) -> None:
    append(world.table("frozen"), [1])
    world.settled("frozen", 0)
    world.parts.triggerer.freeze()
    append(world.table("frozen"), [2])
    world.parts.triggerer.kill()
    assert len(world.parts.events("frozen")) == 1
    world.parts.triggerer.start()
    assert _versions(world.events("frozen", 2)) == [(None, 0), (0, 1)]
    world.settled("frozen", 1)


@pytest.mark.slow
def test_killed_when_the_event_was_found_and_not_stored(world: World) -> None:
    table, mark = world.table("yielded"), world.root / "t-yielded.yielded"
    append(table, [1])
    world.settled("yielded", 0)
    mark.unlink()
    # The supervisor stores events; the runner, its child, goes on looking.
    supervisor = world.parts.triggerer.processes()[0]
    supervisor.suspend()
    append(table, [2])
    world.parts.until(mark.exists, "the runner did not find the commit")
    world.parts.triggerer.kill()
    assert len(world.parts.events("yielded")) == 1
    world.parts.triggerer.start()
    assert _versions(world.events("yielded", 2)) == [(None, 0), (0, 1)]
    world.settled("yielded", 1)


@pytest.mark.slow
def test_killed_right_after_the_cursor_moved(world: World) -> None:
    table = world.table("moved")
    append(table, [1])
    world.settled("moved", 0)
    append(table, [2])
    world.settled("moved", 1)
    world.parts.triggerer.kill()
    assert _versions(world.parts.events("moved")) == [(None, 0), (0, 1)]
    append(table, [3])
    world.parts.triggerer.start()
    assert _versions(world.events("moved", 3)) == [(None, 0), (0, 1), (1, 2)]
    world.settled("moved", 2)
    world.parts.until(lambda: len(world.notes("moved")) == 3, "a run is missing")
    assert world.notes("moved") == world.parts.events("moved")


@pytest.mark.slow
def test_two_watchers_on_one_table(world: World) -> None:
    table = world.table("both")
    append(table, [1])
    world.settled("one", 0)
    assert world.parts.cursors("two") == []
    append(table, [2])
    assert _versions(world.events("one", 2)) == [(None, 0), (0, 1)]
    assert _versions(world.events("two", 1)) == [(None, 1)]
    world.settled("one", 1)
    world.settled("two", 1)
    append(table, [3])
    assert _versions(world.events("one", 3))[2:] == [(1, 2)]
    append(table, [4])
    assert _versions(world.events("one", 4))[3:] == [(2, 3)]
    assert _versions(world.events("two", 2))[1:] == [(1, 3)]


@pytest.mark.slow
def test_two_assets_on_one_trigger_and_two_triggerers(world: World) -> None:
    """A triggerer that dies hands its watchers over; no event is lost, and none is made twice."""
    parts, table = world.parts, world.table("pair")
    append(table, [1])
    for asset in ("left", "right"):
        assert _versions(world.events(asset, 1)) == [(None, 0)]
    world.settled("left", 0)
    (first,) = set(parts.owners("left") + parts.owners("right"))
    assert first is not None
    second = parts.another_triggerer()
    second.start()
    # Beside the one that has all watchers.
    append(table, [2])
    for asset in ("left", "right"):
        assert _versions(world.events(asset, 2))[1:] == [(0, 1)]
    world.settled("left", 1)
    parts.triggerer.kill()
    append(table, [3])
    parts.until(
        lambda: set(parts.owners("left") + parts.owners("right")).isdisjoint({None, first}), "not taken over"
    )
    for asset in ("left", "right"):
        assert _versions(world.events(asset, 3)) == [(None, 0), (0, 1), (1, 2)]
    world.settled("left", 2)
    parts.triggerer.start()
    second.kill()
    append(table, [4])
    for asset in ("left", "right"):
        assert _versions(world.events(asset, 4))[3:] == [(2, 3)]
    world.settled("left", 3)
    parts.until(lambda: set(parts.runs("right")) == {"success"}, "a run of the second asset is missing")
    assert [len(parts.events(asset)) for asset in ("left", "right")] == [4, 4]


@pytest.mark.slow
def test_two_versions_in_one_look(world: World) -> None:
    table = world.table("storm")
    append(table, [1])
    world.settled("storm", 0)
    world.parts.triggerer.freeze()
    append(table, [2])
    append(table, [3])
    world.parts.triggerer.thaw()
    event = world.events("storm", 2)[1]
    written = datetime.fromtimestamp((table / "_delta_log" / f"{2:020d}.json").stat().st_mtime, UTC)
    assert event == {
        "table": str(table),
        "table_id": str(DeltaTable(str(table)).metadata().id),
        "version": 2,
        "previous_version": 0,
        "timestamp": written.isoformat(timespec="milliseconds"),
        "reason": "new_versions",
    }
    world.settled("storm", 2)
    assert len(world.parts.events("storm")) == 2


@pytest.mark.slow
def test_conditions(world: World) -> None:
    table = world.table("deletes")

    def write(*days: str | None) -> None:
        rows = pa.table({"day": pa.array(days, pa.string()), "n": list(range(len(days)))})
        write_deltalake(str(table), rows, mode="append", partition_by=["day"])

    write("a", "b", None)
    DeltaTable(str(table)).delete("day = 'a'")
    DeltaTable(str(table)).delete("day = 'b'")
    assert _versions(world.events("deletes", 1)) == [(None, 2)]
    write("b")
    DeltaTable(str(table)).delete("day IS NULL")
    assert _versions(world.events("deletes", 2))[1:] == [(2, 4)]


@pytest.mark.slow
def test_a_store_that_fails_is_survived(world: World, store: HttpStore) -> None:
    table = store.root / "remote"
    append(table, [1])
    world.settled("remote", 0)
    log = world.parts.triggerer.log()
    store.faults = always("unavailable")
    append(table, [2])
    store.forget()
    world.parts.until(lambda: len(store.asked()) >= 3, "the store was not asked again")
    assert len(world.parts.events("remote")) == 1
    store.faults = no_fault
    assert _versions(world.events("remote", 2)) == [(None, 0), (0, 1)]
    said = world.parts.until(
        lambda: _said(world.parts.triggerer.log()[len(log) :], "succeeds again"),
        "not said that it succeeds again",
    )
    assert len(said) == 1
    assert len(_said(world.parts.triggerer.log()[len(log) :], "Cannot check s3://lake/remote")) == 1


@pytest.mark.slow
def test_a_deferred_sensor(world: World) -> None:
    state = lambda: world.parts.states("sensing")  # noqa: E731
    world.parts.until(lambda: state() == {"wait": "deferred"}, "the sensor did not defer")
    append(world.table("sensing"), [1])
    world.parts.until(lambda: state() == {"wait": "success"}, "the sensor did not go on")
    found = world.parts.xcom("sensing", "wait")
    assert (found["version"], found["previous_version"], found["reason"]) == (0, None, "table_created")


@pytest.mark.slow
def test_a_deferred_sensor_whose_time_is_over(world: World) -> None:
    world.parts.until(
        lambda: world.parts.states("giving_up") == {"wait": "skipped"}, "the sensor was not skipped"
    )


@pytest.mark.slow
def test_parsing_again_changes_no_trigger(world: World) -> None:
    before, parsed = world.parts.watchers(), world.parts.last_parsed("wakes")
    world.parts.until(lambda: world.parts.last_parsed("wakes") > parsed, "the file was not parsed again")
    assert world.parts.watchers() == before
    assert len(before) == 9


@pytest.mark.slow
def test_nothing_ended_a_trigger(world: World) -> None:
    log = world.parts.triggerer.log()
    assert _said(log, "exited with error") == []
    assert _said(log, "Traceback") == []


def _said(log: str, text: str) -> list[str]:
    return [line for line in log.splitlines() if text in line]
