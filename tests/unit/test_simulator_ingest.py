"""The world of ingests: schedules keep every rule, planted defects are found, its logs are those of Delta."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from tests.simulator.defects import MADE_AGAIN, planted
from tests.simulator.ingest_defects import COUNTS_NO_MORE, INGEST_DEFECTS, found_ingest
from tests.simulator.ingest_schedules import (
    DROPPED,
    QUARANTINE_DROPPED,
    READ_AGAIN,
    RECREATED,
    REPLAY_UNDONE,
    REPLAYED,
    UNDONE,
    UNDONE_BEFORE,
    drawn,
    outcome,
)
from tests.simulator.ingest_world import IngestSchedule, play
from tests.simulator.schedules import failures, shrunk
from tests.simulator.table import never, table_of
from tests.simulator.world import Event

if TYPE_CHECKING:
    from pathlib import Path

    from tests.simulator.defects import Defect
    from tests.simulator.ingest_world import IngestWorld
    from tests.simulator.schedules import Coverage

#: As many as play in some six seconds.
_SCHEDULES = 70
#: The other defects need more schedules.
_SOON = 8
_CALM = IngestSchedule(
    1,
    "type1",
    "gs",
    (
        Event(0, "files", "deliver", number=2),
        Event(1, "run", "p"),
        Event(200, "files", "grow", number=1),
        Event(201, "files", "damage", number=0),
        Event(210, "run", "p"),
    ),
    target=True,
    staging=True,
)


def test_schedules_keep_every_rule() -> None:
    coverage: Coverage = Counter()
    played = failures(range(_SCHEDULES), coverage, lambda seed, seen: outcome(drawn(seed), seen))
    texts = [failure.text() for failure in played]
    assert not texts, "\n\n".join(texts)
    assert sum(count for (_, fault), count in coverage.items() if fault) > _SCHEDULES / 2
    table = table_of(coverage)
    assert all(step in table for step in ("record.commit", "quarantine.commit", "log.commit", "plan.offsets"))
    assert len(never(coverage)) < 230


@pytest.mark.parametrize(
    "defect",
    [pytest.param(one, marks=[pytest.mark.slow] if one.within > _SOON else []) for one in INGEST_DEFECTS],
    ids=lambda defect: defect.rule,
)
def test_a_planted_defect_is_found(defect: Defect) -> None:
    assert found_ingest(defect) is not None


def test_a_file_that_can_be_read_again_leaves_the_quarantine_before_the_commit() -> None:
    assert outcome(READ_AGAIN) is None


def test_a_file_that_could_not_be_read_comes_again_after_a_restore() -> None:
    assert outcome(UNDONE) is None
    with planted(COUNTS_NO_MORE):
        failure = outcome(UNDONE)
    assert failure is not None
    assert "is not in quarantine" in str(failure.error)


def test_a_log_that_a_job_made_again_gets_all_events() -> None:
    assert outcome(RECREATED) is None
    with planted(MADE_AGAIN):
        failure = outcome(RECREATED)
    assert failure is not None
    assert "log and quarantine have 0" in str(failure.error)


def test_records_of_a_dropped_log_stay_in_quarantine_once() -> None:
    assert outcome(DROPPED) is None


def test_what_a_replay_took_from_a_dropped_log_does_not_come_again_with_its_file() -> None:
    assert outcome(REPLAYED) is None


@pytest.mark.parametrize(
    "schedule", [REPLAY_UNDONE, UNDONE_BEFORE], ids=["a replay", "the batch before a recorded one"]
)
def test_a_restore_of_the_log_undoes(schedule: IngestSchedule) -> None:
    assert outcome(schedule) is None


def test_a_recorded_replay_ends_without_its_quarantine() -> None:
    assert outcome(QUARANTINE_DROPPED) is None


def test_a_schedule_always_gives_the_same_world() -> None:
    stories = [play(drawn(3)).story for _ in range(2)]
    assert stories[0] == stories[1]


def test_a_failing_schedule_becomes_a_short_story() -> None:
    defect = INGEST_DEFECTS[0]
    hit = found_ingest(defect)
    assert hit is not None
    with planted(defect):
        small = shrunk(hit[1], outcome)
        again = outcome(small.schedule)
    assert again is not None
    assert again.text() == small.text()
    assert len(small.schedule.events) <= 2
    assert len(small.text().splitlines()) <= 20


def test_the_logs_are_those_of_delta(tmp_path: Path) -> None:
    """delta-rs reads the same versions, files and transactions from the commit files."""
    world = play(_CALM)
    _on_disk(world, tmp_path)
    for name, mine in world._tables.items():
        table, now = DeltaTable(str(tmp_path / name)), mine.snapshot()
        assert table.version() == now.version
        assert table.metadata().id == now.metadata["id"]
        assert sorted(path.rpartition("/")[2] for path in table.file_uris()) == sorted(now.files)
        for app, number in now.txns.items():
            assert table.transaction_version(app) == number
    assert {field.name for field in DeltaTable(str(tmp_path / "log")).schema().fields} >= {"id", "_position"}


def _on_disk(world: IngestWorld, folder: Path) -> None:
    for key, stored in world.store.objects.items():
        if stored.content:
            path = folder / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(stored.content)
