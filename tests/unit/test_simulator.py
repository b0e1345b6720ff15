"""The simulator: schedules keep every rule, planted defects are found, and its logs are Delta's."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.simulator.constructors import constructor_of, is_plain
from tests.simulator.defects import DEFECTS, MADE_AGAIN, UNFOUND, found, planted
from tests.simulator.plots import PLOTS, plotted
from tests.simulator.promises import PROMISES
from tests.simulator.schedules import (
    BEHIND,
    BETWEEN,
    CHECKPOINTED,
    CLOSED_BETWEEN,
    HIDDEN,
    RECREATED,
    REPLACED,
    STRAY,
    drawn,
    failures,
    outcome,
    shrunk,
)
from tests.simulator.table import never, table_of
from tests.simulator.world import Event, Schedule, play

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulator.defects import Defect
    from tests.simulator.schedules import Coverage
    from tests.simulator.world import World


@dataclass(frozen=True)
class Example:
    one: int
    twice: tuple[int, ...] = field(default_factory=tuple)
    late: int = field(default=7, kw_only=True)

    def __post_init__(self) -> None:
        if self.one < 0:
            raise ValueError(self.one)


#: As many as play in some ten seconds.
_SCHEDULES = 80
#: The other defects need more schedules.
_SOON = 30
_CALM = Schedule(
    1,
    "type1",
    "gs",
    (
        Event(0, "run", "p"),
        Event(100, "source", "update", number=1),
        Event(110, "source", "delete", number=2),
        Event(120, "run", "p"),
        Event(200, "target", "optimize"),
        Event(210, "source", "append"),
    ),
)


def test_schedules_keep_every_rule() -> None:
    coverage: Coverage = Counter()
    texts = [failure.text() for failure in failures(range(_SCHEDULES), coverage)]
    assert not texts, "\n\n".join(texts)
    # A few hundred schedules meet most pairs of a step and a fault; `make simulate` meets all.
    assert sum(count for (_, fault), count in coverage.items() if fault) > _SCHEDULES / 2
    assert "job.commit" in table_of(coverage)
    assert len(never(coverage)) < 120


@pytest.mark.parametrize(
    "defect",
    [pytest.param(one, marks=[pytest.mark.slow] if one.within > _SOON else []) for one in DEFECTS],
    ids=lambda defect: defect.rule,
)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    assert found(defect) is not None


def test_a_faster_constructor_makes_the_same_values() -> None:
    made = constructor_of(Example)
    for given, named in (((1,), {}), ((1, (2,)), {"late": 3}), ((1,), {"twice": (5,)})):
        fast = object.__new__(Example)
        made(fast, *given, **named)
        assert (fast, vars(fast)) == (Example(*given, **named), vars(Example(*given, **named)))
    for wrong in ({}, {"one": 1, "other": 2}, {"one": -1}):
        with pytest.raises((TypeError, ValueError)):
            made(object.__new__(Example), **wrong)
    assert is_plain(Example)
    assert not is_plain(Counter)


@pytest.mark.parametrize("name", PLOTS)
def test_a_plot_keeps_every_rule(name: str) -> None:
    failure = outcome(plotted(name, 0))
    assert failure is None, failure.text()


@pytest.mark.parametrize("defect", UNFOUND, ids=lambda defect: defect.rule)
def test_a_defect_that_nothing_can_show_can_be_planted(defect: Defect) -> None:
    with planted(defect):
        pass


def test_a_job_does_not_commit_into_another_pipelines_new_table() -> None:
    assert outcome(STRAY) is None


def test_an_overwritten_commit_is_found_behind_a_restore() -> None:
    assert outcome(HIDDEN) is None


def test_a_job_does_not_go_on_after_a_commit_that_is_not_its_own() -> None:
    assert outcome(BETWEEN) is None


def test_a_job_does_not_go_on_after_another_commit_took_the_version_of_its_plan() -> None:
    assert outcome(REPLACED) is None


def test_a_target_that_a_job_made_again_is_refused() -> None:
    assert outcome(RECREATED) is None
    with planted(MADE_AGAIN):
        assert outcome(RECREATED) is not None


def test_a_commit_in_place_of_a_planned_one_is_found_behind_a_checkpoint() -> None:
    assert outcome(CHECKPOINTED) is None


def test_a_take_over_is_planned_on_the_version_with_the_closing_seal() -> None:
    assert outcome(CLOSED_BETWEEN) is None


def test_an_overwritten_commit_is_found_behind_a_reset() -> None:
    assert outcome(BEHIND) is None


def test_a_schedule_always_gives_the_same_world() -> None:
    stories = [play(drawn(7)).story for _ in range(2)]
    assert stories[0] == stories[1]


def test_a_failing_schedule_becomes_a_short_story() -> None:
    defect = next(one for one in DEFECTS if one.rule.startswith("The published range"))
    hit = found(defect)
    assert hit is not None
    with planted(defect):
        small = shrunk(hit[1])
        again = outcome(small.schedule)
    assert again is not None
    assert again.text() == small.text()
    assert len(small.schedule.events) <= len(hit[1].schedule.events)
    assert len(small.text().splitlines()) <= 24


def test_the_logs_are_those_of_delta(tmp_path: Path) -> None:
    """delta-rs reads the same versions, files, properties and transactions from the commit files."""
    world = play(_CALM)
    _on_disk(world, tmp_path)
    for name in ("source", "target"):
        mine = world._tables[name]
        table = DeltaTable(str(tmp_path / name))
        now = mine.snapshot()
        assert table.version() == now.version
        assert table.metadata().id == now.metadata["id"]
        assert table.metadata().configuration == now.metadata["configuration"]
        assert sorted(path.rpartition("/")[2] for path in table.file_uris()) == sorted(now.files)
        operations = [mine.info(version)["operation"] for version in range(now.version, -1, -1)]
        assert [entry["operation"] for entry in table.history()] == operations
        for app, number in now.txns.items():
            assert table.transaction_version(app) == number
    sealed = [entry for entry in DeltaTable(str(tmp_path / "target")).history() if "userMetadata" in entry]
    assert [json.loads(entry["userMetadata"])["step"]["kind"] for entry in sealed][-1] == "load"


def test_a_cleaned_log_is_that_of_delta(tmp_path: Path) -> None:
    """delta-rs reads the same state from a checkpoint whose commits before it are gone."""
    clean = (Event(230, "target", "clean", number=2), Event(240, "source", "clean", number=2))
    world = play(replace(_CALM, events=(*_CALM.events, *clean)))
    _on_disk(world, tmp_path)
    for name in ("source", "target"):
        mine = world._tables[name]
        assert mine.cleaned
        assert not (tmp_path / mine.key(0)).exists()
        table, now = DeltaTable(str(tmp_path / name)), mine.snapshot()
        assert table.version() == now.version
        assert table.metadata().configuration == now.metadata["configuration"]
        assert sorted(path.rpartition("/")[2] for path in table.file_uris()) == sorted(now.files)
        for app, number in now.txns.items():
            assert table.transaction_version(app) == number


@pytest.mark.parametrize("promise", PROMISES)
def test_each_store_is_played(promise: str) -> None:
    of = PROMISES[promise]
    store = {"scheme": of.scheme, "safe": of.safe, "lag": of.lag, "torn": of.torn, "stale": of.stale}
    assert outcome(replace(_CALM, **store)) is None  # type: ignore[arg-type]


def test_a_take_over_is_played() -> None:
    world = play(replace(_CALM, events=(*_CALM.events, Event(150, "form", "take_over"))))
    kinds = [(one.pipeline, one.kind) for one in world.lanes[0].judge.now.seals]
    assert kinds[-3:] == [("p", "take_over"), ("q", "take_over"), ("q", "apply")]


def test_a_group_publishes_all_its_tables_as_one() -> None:
    events = (Event(0, "group", "g", number=1), Event(90, "source2", "update"), Event(200, "group", "g"))
    world = play(replace(_CALM, events=(*_CALM.events, *events), group=True))
    assert world.group is not None
    newest, seals = world.group.events[-1]["tables"], [lane.judge.now.last for lane in world.lanes]
    assert {name: entry["version"] for name, entry in newest.items()} == {"p": 3, "r": 1}
    assert [entry["seals"]["target"] for entry in newest.values()] == [one.number for one in seals if one]
    manifest = json.loads(world.store.objects["manifests/g.json"].content)
    assert manifest["tables"].keys() == newest.keys()
    assert [manifest["tables"][name]["target_version"] for name in newest] == [
        entry["target_version"] for entry in newest.values()
    ]


def test_a_torn_commit_file_is_seen_as_a_part_until_the_next_version() -> None:
    world = play(_CALM)
    store, table = world.store, world.source
    store.tear = 50
    version = table.commit("WRITE", [table.add([[9, 9]])], parameters={"mode": "Append"})
    seen = store.visible(table.key(version))
    assert seen is not None
    assert len(seen.content) < len(store.objects[table.key(version)].content)
    table.commit("WRITE", [table.add([[10, 9]])], parameters={"mode": "Append"})
    assert store.visible(table.key(version)) == store.objects[table.key(version)]


def test_a_stale_listing_lacks_the_newest_objects() -> None:
    world = play(_CALM)
    whole, stale = (
        [key for key, _ in world.store.listed("source/_delta_log/", None, stale=stale)]
        for stale in (False, True)
    )
    assert set(stale) < set(whole)
    assert whole[0] in stale


def _on_disk(world: World, folder: Path) -> None:
    for key, stored in world.store.objects.items():
        if stored.content:
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stored.content)
