"""Which version a time means: increasing file times, in-commit timestamps, bounds rounded the right way."""

from __future__ import annotations

import asyncio
import os
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_cdc.core.errors import CorruptLog
from delta_cdc.delta_log.clock import choose, increasing, search
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.logs import EPOCH, SECOND, LogTable

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.delta_log.clock import Bound


def at(table: LogTable, timestamp: int, bound: Bound) -> int | None:
    return run_sync(DeltaLog(table.uri).version_at(timestamp, bound=bound))


def both(table: LogTable, timestamp: int) -> tuple[int | None, int | None]:
    """Return the first version at or after a time, and the last at or before it."""
    return at(table, timestamp, "start"), at(table, timestamp, "end")


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    """Versions 0-4, one second apart."""
    made = LogTable(tmp_path / "t").create()
    for _ in range(4):
        made.append()
    return made


@pytest.mark.parametrize(
    ("offset", "expected"),
    [
        (-1, (0, None)),
        (0, (0, 0)),
        (1, (1, 0)),
        (999, (1, 0)),
        (1_000, (1, 1)),
        (1_001, (2, 1)),
        (4_000, (4, 4)),
        (4_001, (None, 4)),
    ],
)
def test_a_start_is_rounded_up_and_an_end_down(
    table: LogTable, offset: int, expected: tuple[int | None, int | None]
) -> None:
    assert both(table, EPOCH + offset) == expected


def test_clocks_that_go_backwards(table: LogTable) -> None:
    """File times 0 s, 3 s, 1 s, 1 s, 4 s count as 0, 3, 3.001, 3.002 and 4 s."""
    for version, seconds in enumerate([0, 3, 1, 1, 4]):
        time = EPOCH / 1000 + seconds
        os.utime(table.file(version), (time, time))
    expected = {1_000: (1, 0), 3_000: (1, 1), 3_001: (2, 2), 3_002: (3, 3), 3_003: (4, 3)}
    assert {offset: both(table, EPOCH + offset) for offset in expected} == expected


def test_only_versions_that_are_there_count(table: LogTable) -> None:
    from tests.support.checkpoints import checkpoint

    checkpoint(table, version=2)
    table.file(0).unlink()
    table.file(1).unlink()
    assert both(table, EPOCH) == (2, None)


def test_only_versions_up_to_the_given_state_count(table: LogTable) -> None:
    log = DeltaLog(table.uri)
    state = run_sync(log.snapshot(2))
    assert run_sync(log.version_at(EPOCH + 9_000, bound="end", state=state)) == 2


def _stamped(path: Path, *, since: int | None, plain: list[int], stamps: list[int]) -> LogTable:
    """Make a table whose first commits have file times (s after EPOCH), the later ones in-commit ones."""
    on = {"delta.enableInCommitTimestamps": "true"}
    if since is not None:
        on["delta.inCommitTimestampEnablementVersion"] = str(since)
    made = LogTable(path / "t", configuration={} if since else on)
    if not stamps[0:1] or since:
        made.create(at=EPOCH + plain[0] * SECOND)
        for seconds in plain[1:]:
            made.append(at=EPOCH + seconds * SECOND)
        made.configuration = on
        made.commit("SET TBLPROPERTIES", made.metadata(), stamp=EPOCH + stamps[0] * SECOND)
    else:
        made.create(stamp=EPOCH + stamps[0] * SECOND)
    for seconds in stamps[1:]:
        made.append(stamp=EPOCH + seconds * SECOND)
    return made


def both_at(made: LogTable, *seconds: int) -> list[tuple[int | None, int | None]]:
    return [both(made, EPOCH + second * SECOND) for second in seconds]


def test_in_commit_timestamps_from_the_start(tmp_path: Path) -> None:
    """The files' own times, one second apart, are not asked."""
    made = _stamped(tmp_path, since=None, plain=[], stamps=[10, 20, 30, 40, 50])
    assert both_at(made, 9, 20, 25, 50, 51) == [(0, None), (1, 1), (2, 1), (4, 4), (None, 4)]


def test_in_commit_timestamps_from_a_version_on(tmp_path: Path) -> None:
    made = _stamped(tmp_path, since=3, plain=[0, 1, 2], stamps=[30, 40])
    assert both_at(made, 1, 10, 30, 35) == [(1, 1), (3, 2), (3, 3), (4, 3)]


def test_file_times_after_the_first_in_commit_timestamp(tmp_path: Path) -> None:
    """As in a table that was copied: from the first in-commit timestamp on, only they count."""
    made = _stamped(tmp_path, since=2, plain=[100, 200], stamps=[30, 40])
    assert both_at(made, 29, 30, 35, 150) == [(0, None), (2, 2), (3, 2), (None, 3)]


def test_in_commit_timestamps_are_searched_not_read_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = _stamped(tmp_path, since=None, plain=[], stamps=list(range(0, 600, 3)))
    log, asked = DeltaLog(made.uri), []
    state = run_sync(log.snapshot())
    opened = log._storage.open

    async def counting(name: str) -> Any:
        asked.append(name)
        return await opened(name)

    monkeypatch.setattr(log._storage, "open", counting)
    assert run_sync(log.version_at(EPOCH + 100 * SECOND, bound="end", state=state)) == 33
    assert len(asked) <= 10


def test_a_commit_without_its_in_commit_timestamp_is_damaged(tmp_path: Path) -> None:
    made = _stamped(tmp_path, since=None, plain=[], stamps=[10, 20])
    made.append()
    with pytest.raises(CorruptLog, match="inCommitTimestamp"):
        at(made, EPOCH + 30 * SECOND, "end")


def test_an_enablement_version_that_is_no_number(tmp_path: Path) -> None:
    on = {"delta.enableInCommitTimestamps": "true", "delta.inCommitTimestampEnablementVersion": "x"}
    made = LogTable(tmp_path / "t", configuration=on).create()
    with pytest.raises(CorruptLog, match="inCommitTimestampEnablementVersion"):
        at(made, EPOCH, "end")


@given(st.lists(st.integers(0, 50), min_size=1, max_size=12), st.integers(-2, 60))
def test_a_search_finds_what_looking_at_all_finds(clock: list[int], timestamp: int) -> None:
    times = increasing(clock)
    assert all(a < b for a, b in pairwise(times))

    async def time(position: int) -> int:
        return times[position]

    async def find(bound: Bound) -> int | None:
        return await search(len(times), time, timestamp, bound)

    later = [i for i, t in enumerate(times) if t >= timestamp]
    earlier = [i for i, t in enumerate(times) if t <= timestamp]
    first, last = (later or [None])[0], (earlier or [None])[-1]
    assert (choose(times, timestamp, "start"), choose(times, timestamp, "end")) == (first, last)
    assert (asyncio.run(find("start")), asyncio.run(find("end"))) == (first, last)
