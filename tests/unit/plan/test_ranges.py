"""Bounds by time, parts of commits, and the gates that look at storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import InvalidConfiguration, RangeNotContiguous, VersionsExpired
from delta_cdc.core.versions import VersionRange
from delta_cdc.delta_log.actions import Commit
from delta_cdc.planning import ranges
from delta_cdc.planning.ranges import commit_parts
from tests.support.logs import EPOCH, FEED, SECOND

if TYPE_CHECKING:
    from delta_cdc.planning.plan import Plan
    from tests.support.tables import Tables


def iso(second: float) -> str:
    """Return the time so many seconds after the source's version 0."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(EPOCH / 1000 + second, tz=UTC).isoformat()


# -- bounds by time -----------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("bounds", "versions"),
    [
        ({"ending_timestamp": iso(4)}, (3, 4)),
        ({"ending_timestamp": iso(4.5)}, (3, 4)),
        ({"ending_timestamp": iso(99)}, (3, 5)),
        ({"starting_timestamp": iso(3)}, (3, 5)),
        ({"starting_timestamp": iso(2.5), "ending_timestamp": iso(3)}, (3, 3)),
        ({"starting_timestamp": iso(1), "ending_timestamp": iso(4)}, (3, 4)),
        ({"starting_version": 3, "ending_timestamp": iso(4)}, (3, 4)),
    ],
)
def test_times_become_versions(tables: Tables, bounds: dict[str, str], versions: tuple[int, int]) -> None:
    """A start rounds up, an end rounds down."""
    tables.sealed(2)
    assert tables.apply(**bounds).versions == VersionRange(*versions)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        ({"starting_timestamp": iso(3.5)}, "versions 3-3 unapplied"),
        ({"ending_timestamp": iso(-60)}, "before the oldest commit"),
    ],
)
def test_times_that_leave_a_hole_or_lie_before_the_log(
    tables: Tables, bounds: dict[str, str], message: str
) -> None:
    tables.sealed(2)
    with pytest.raises(RangeNotContiguous, match=message):
        tables.apply(**bounds)


def test_a_start_time_after_the_newest_version_is_nothing_yet(tables: Tables) -> None:
    tables.sealed(2)
    plan = tables.apply(starting_timestamp=iso(60))
    assert plan.spec is None
    assert "No version of" in plan.notes[-1]


@pytest.mark.parametrize("bound", ["starting_version", "ending_version", "max_versions", "bytes_per_commit"])
def test_a_staged_batch_has_its_own_bounds(tables: Tables, bound: str) -> None:
    tables.sealed(2)
    with pytest.raises(InvalidConfiguration, match=bound):
        tables.apply(staging=tables.staging.uri, **{bound: 3})


# -- milestones ---------------------------------------------------------------------------------
def commits(*sizes: int) -> tuple[Commit, ...]:
    """Return commits from version 0 on; size 0 changes no data."""
    return tuple(
        Commit(version=version, sha256=str(version), changes_data=size > 0, bytes_added=size)
        for version, size in enumerate(sizes)
    )


@pytest.mark.parametrize(
    ("sizes", "versions", "size", "ends"),
    [
        ((1, 1, 1, 1, 1), None, None, [4]),
        ((1, 1, 1, 1, 1), 2, None, [1, 3, 4]),
        ((1, 1, 1, 1), 1, None, [0, 1, 2, 3]),
        # Maintenance before the first change is not counted, after it it is.
        ((0, 0, 0, 1, 0, 1, 1), 2, None, [4, 6]),
        # Maintenance at the end comes along.
        ((1, 1, 0, 0, 0), 1, None, [0, 4]),
        ((1, 0, 0, 0, 0), 1, None, [4]),
        ((0, 0), 1, 1, [1]),
        ((40, 40, 40), None, 100, [1, 2]),
        ((40, 60, 40), None, 100, [1, 2]),
        # One commit is never cut.
        ((500, 1, 500), None, 100, [0, 1, 2]),
        ((10, 0, 0, 95), None, 100, [2, 3]),
        ((10, 10, 10, 10), 3, 20, [1, 3]),
    ],
)
def test_milestones(sizes: tuple[int, ...], versions: int | None, size: int | None, ends: list[int]) -> None:
    given = commits(*sizes)
    parts = commit_parts(given, versions, size)
    assert [part[-1].version for part in parts] == ends
    assert sum(parts, ()) == given


def steps(plan: Plan) -> list[tuple[int, int, int, bool]]:
    return [(s.starting_version, s.ending_version, s.seal_number, s.planned_on is None) for s in plan.steps]


def test_milestones_are_steps_of_one_application(tables: Tables) -> None:
    tables.sealed(1, highest_sequence="9")
    plan = tables.apply(versions_per_commit=2)
    assert [step.kind for step in plan.steps] == ["apply", "apply"]
    assert steps(plan) == [(2, 3, 101, False), (4, 5, 102, True)]
    assert plan.versions == VersionRange(2, 5)
    assert [s.watermark.commit_hash for s in plan.steps] == [tables.source.sha256(v) for v in (3, 5)]
    assert [s.highest_sequence for s in plan.steps] == ["9", None]
    by_bytes = tables.apply(bytes_per_commit=250)
    assert [step[:2] for step in steps(by_bytes)] == [(2, 3), (4, 5)]


def test_a_milestone_has_the_columns_of_its_end(tables: Tables) -> None:
    tables.sealed(4)
    tables.source.columns = ("id", "name", "added")
    tables.source.set_properties(**FEED)
    tables.source.append()
    first, second = tables.apply(versions_per_commit=1).steps
    assert (first.source_columns, second.source_columns) == (("id", "name"), ("id", "name", "added"))


def test_a_run_stops_at_max_bytes(tables: Tables) -> None:
    tables.sealed(1)
    assert tables.apply(max_bytes=299).versions == VersionRange(2, 3)
    assert tables.apply(max_bytes=1).versions == VersionRange(2, 2)
    assert tables.apply(max_bytes=10_000).versions == VersionRange(2, 5)


def test_max_bytes_reads_no_more_commits_than_it_needs(tables: Tables) -> None:
    """A pipeline that is far behind must not read the whole log for its first bytes."""
    for _ in range(200):
        tables.source.append()
    tables.sealed(1)
    # Would be a LogGap if it were asked for.
    tables.source.checkpoint(150)
    assert tables.apply(max_bytes=250).versions == VersionRange(2, 3)


def test_a_saved_end_lifts_no_limit(tables: Tables) -> None:
    """A try that saved its end under the same limits ends there; people can edit the store."""
    tables.sealed(1)
    assert tables.apply(saved=5, max_bytes=1).versions == VersionRange(2, 2)
    assert tables.apply(saved=5, max_versions=2).versions == VersionRange(2, 3)
    assert tables.apply(saved=3, max_versions=3).versions == VersionRange(2, 3)


@pytest.mark.parametrize("given", [{}, {"ending_version": 170}, {"saved": 170}, {"max_versions": 90}])
def test_a_run_without_limits_leaves_a_very_long_log_to_the_next_runs(
    tables: Tables, monkeypatch: pytest.MonkeyPatch, given: dict[str, int]
) -> None:
    """Only if neither a limit nor an end is given; and commits that change nothing are passed over."""
    monkeypatch.setattr(ranges, "MOST_COMMITS", 80)
    tables.sealed(5)
    for _ in range(70):
        tables.source.optimize()
    for _ in range(100):
        tables.source.append()
    ends = {"ending_version": 170, "saved": 170, "max_versions": 165}
    end = next((ends[name] for name in given), 155)
    assert tables.apply(**given).versions == VersionRange(6, end)
    monkeypatch.setattr(ranges, "MOST_COMMITS", 170)
    assert tables.apply().versions == VersionRange(6, 175)


# -- segments -----------------------------------------------------------------------------------
def test_a_segment_says_what_is_read_and_why(tables: Tables) -> None:
    tables.sealed(2)
    tables.source.optimize()
    (read_range,) = tables.apply().steps[0].read.ranges
    assert (read_range.starting_version, read_range.ending_version, read_range.method) == (
        3,
        5,
        "change_files",
    )
    assert read_range.size == 300
    assert "delta.enableChangeDataFeed is on throughout" in read_range.reason


def test_a_plan_prints(tables: Tables) -> None:
    tables.sealed(2)
    text = str(tables.apply(versions_per_commit=2))
    assert f"source     {tables.source.uri} (id source-id, version 5)" in text
    assert "watermark 2, seal 100" in text
    assert "apply      versions 3-4, seal 101" in text
    assert "3-4 by change_files, 200 B: " in text
    assert "apply      versions 5-5, seal 102" in text
    tables.sealed(5, 101)
    assert "to do      nothing" in str(tables.apply())


# -- gates that look at storage -----------------------------------------------------------------
def test_the_oldest_change_was_vacuumed(tables: Tables) -> None:
    tables.sealed(2)
    tables.source.path.joinpath("part-00003-0.parquet").unlink()
    with pytest.raises(VersionsExpired, match=r"part-00003-0\.parquet.*version 3"):
        tables.apply()


def test_files_of_later_commits_are_not_asked_for(tables: Tables) -> None:
    """VACUUM goes by age; a file that is lost otherwise is Spark's to name."""
    tables.sealed(2)
    tables.source.path.joinpath("part-00004-0.parquet").unlink()
    assert tables.apply().versions == VersionRange(3, 5)


def test_change_files_are_what_is_looked_for(tables: Tables) -> None:
    """A commit with change files is read from them alone."""
    tables.sealed(5)
    cdc = {
        "cdc": {"path": "_change_data/cdc-1.parquet", "partitionValues": {}, "size": 7, "dataChange": False}
    }
    tables.source.commit("MERGE", tables.source.add(), *tables.source.removes(), cdc)
    for part in tables.source.path.glob("part-*"):
        part.unlink()
    assert tables.apply().steps[0].read.ranges[0].size == 7
    tables.source.path.joinpath("_change_data/cdc-1.parquet").unlink()
    with pytest.raises(VersionsExpired, match=r"cdc-1\.parquet"):
        tables.apply()


def test_the_oldest_change_files_of_the_range_are_looked_for(tables: Tables) -> None:
    """VACUUM leaves what the newest version needs, so an append that stands tells nothing of them."""
    tables.sealed(4)
    file = {"path": "_change_data/cdc-1.parquet", "partitionValues": {}, "size": 7, "dataChange": False}
    tables.source.commit("MERGE", tables.source.add(), {"cdc": file})
    assert tables.apply().versions == VersionRange(5, 6)
    tables.source.path.joinpath("_change_data/cdc-1.parquet").unlink()
    with pytest.raises(VersionsExpired, match=r"cdc-1\.parquet"):
        tables.apply()


def test_a_watermark_whose_commit_was_cleaned_proves_nothing(tables: Tables) -> None:
    """All later versions are there, but a table that was restored from a backup has the same id."""
    tables.sealed(5)
    tables.source.append()
    tables.source.checkpoint(*range(6))
    tables.source.append()
    for given in ({}, {"mode": "repair", "repair_keys": "id = 1"}):
        with pytest.raises(VersionsExpired, match=r"Version 5 of .* was removed from the log"):
            tables.apply(**given)
    reloaded = tables.apply(on_versions_expired="reload")
    assert [step.kind for step in reloaded.steps] == ["reload"]
    assert tables.apply(mode="reload").versions == VersionRange(7, 7)


def test_a_cleaned_watermark_is_enough_for_no_change(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.optimize()
    tables.source.checkpoint(*range(6))
    assert tables.apply().spec is None
    # A new seal would move the watermark to a history that nothing proves.
    due = EPOCH + 16 * 86_400 * SECOND
    with pytest.raises(VersionsExpired, match=r"Version 5 of .* was removed from the log"):
        tables.apply(now=due)
    assert tables.apply(now=due, on_versions_expired="reload").steps[0].kind == "reload"


def test_sizes_count_what_the_feed_reads() -> None:
    made = Commit(version=1, sha256="", changes_data=True, bytes_added=5, bytes_removed=3, n_cdc=0)
    assert made.bytes_to_read == 8
    with_cdc = Commit(version=1, sha256="", changes_data=True, bytes_added=5, n_cdc=1, bytes_cdc=2)
    assert with_cdc.bytes_to_read == 2
