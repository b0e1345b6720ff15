"""Whether a VACUUM is due, and whom it would cost something, by the logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration, VacuumWouldLose
from delta_cdc.core.retention import FILE_RETENTION, LOG_RETENTION
from delta_cdc.core.spec import VacuumSpec
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.vacuum import deleted, plan_vacuum
from tests.support.logs import EPOCH, FEED, SECOND, LogTable
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.planning.plan import JobPlan

HOUR, DAY = 3_600 * SECOND, 86_400 * SECOND
WEEK = 7 * DAY


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), one per second."""
    return Tables.made_in(tmp_path)


def plan(
    tables: Tables, now: int, *, named: bool = True, **asked: Any
) -> JobPlan[VacuumSpec, dict[str, Any]]:
    consumers = [Consumer("p", tables.source.uri, tables.target.uri)] if named else []
    return run_sync(
        plan_vacuum(VacuumSpec(run_id="r", table_uri=tables.source.uri), consumers, now=now, **asked)
    )


# -- who would lose something -----------------------------------------------------------------------
def test_a_consumer_that_lags(tables: Tables) -> None:
    tables.sealed(2)
    # Version 3 is of second 3; an hour before it is a week old is as good as a week.
    assert plan(tables, EPOCH + 3 * SECOND + WEEK - HOUR).spec is not None
    with pytest.raises(VacuumWouldLose) as refused:
        plan(tables, EPOCH + 3 * SECOND + WEEK - HOUR + 1)
    assert "p (" in refused.value.message
    assert "has read up to version 2, but not version 3 of 2027-01-15T08:00:03+00:00" in refused.value.message
    assert "kept until 2027-01-22T08:00:03+00:00" in refused.value.message
    assert "extend_retention" in refused.value.remedy


def test_a_consumer_that_has_all_or_is_new(tables: Tables) -> None:
    planned = plan(tables, EPOCH + 30 * DAY)
    assert planned.spec is not None
    assert "it has not run yet" in planned.notes[0]
    tables.sealed(5)
    tables.source.optimize()
    assert plan(tables, EPOCH + 30 * DAY).spec is not None


def test_a_consumer_that_cannot_be_told(tables: Tables) -> None:
    tables.sealed(5)
    tables.target.truncate()
    with pytest.raises(VacuumWouldLose, match=r"the progress of p .*TargetReplaced"):
        plan(tables, EPOCH + DAY, extend_retention=True)


def test_the_retention_is_raised(tables: Tables) -> None:
    tables.sealed(2)
    now = EPOCH + 3 * SECOND + 10 * DAY
    spec = plan(tables, now, extend_retention=True).spec
    assert spec.properties == {FILE_RETENTION: "interval 21 days"}
    # The log is kept for at least as long, or Delta refuses.
    spec = plan(tables, now + 10 * DAY, extend_retention=True).spec
    assert spec.properties == {FILE_RETENTION: "interval 41 days", LOG_RETENTION: "interval 41 days"}
    tables.sealed(5, number=101)
    spec = plan(tables, now, extend_retention=True).spec
    assert spec.properties == {}


def test_nobody_to_extend_it_for(tables: Tables) -> None:
    with pytest.raises(InvalidConfiguration, match="no consumer"):
        plan(tables, EPOCH, named=False, extend_retention=True)


# -- whether it is due -----------------------------------------------------------------------------
def vacuum(table: LogTable, at: int, kept: int = WEEK, *, ended: bool = True, **metrics: str) -> None:
    start = {"retentionCheckEnabled": "true", "defaultRetentionMillis": str(kept)}
    table.commit("VACUUM START", parameters=start, metrics={"sizeOfDataToDelete": "7"}, at=at)
    if ended:
        table.commit("VACUUM END", parameters={"status": "COMPLETED"}, metrics=metrics, at=at + 1)


def due(table: LogTable, now: int, **given: Any) -> bool:
    spec = VacuumSpec(run_id="r", table_uri=table.uri)
    return run_sync(plan_vacuum(spec, now=now, **given)).spec is not None


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    """A table with one commit that removes files, in second 2."""
    made = LogTable(tmp_path / "t", configuration=dict(FEED)).create()
    made.append()
    made.overwrite()
    return made


def test_files_become_free_once(table: LogTable) -> None:
    assert due(table, EPOCH + DAY), "there was no VACUUM yet"
    vacuum(table, EPOCH + DAY)
    assert not due(table, EPOCH + 2 * DAY)
    assert not due(table, EPOCH + WEEK)
    assert due(table, EPOCH + 2 * SECOND + WEEK), "what was removed is a week old"
    vacuum(table, EPOCH + WEEK + HOUR)
    assert not due(table, EPOCH + WEEK + 2 * HOUR)
    # Of what a crash left behind no commit tells.
    assert not due(table, EPOCH + WEEK + HOUR + WEEK - 1)
    assert due(table, EPOCH + WEEK + HOUR + WEEK - 1, always=True), "an erasure does not wait"
    assert due(table, EPOCH + WEEK + HOUR + WEEK)


def test_a_vacuum_that_did_not_end(table: LogTable) -> None:
    vacuum(table, EPOCH + WEEK + HOUR, ended=False)
    assert due(table, EPOCH + WEEK + 2 * HOUR)


def test_a_shorter_retention(table: LogTable) -> None:
    vacuum(table, EPOCH + DAY)
    table.set_properties(**FEED, **{FILE_RETENTION: "interval 1 day"})
    assert due(table, EPOCH + DAY + HOUR)
    vacuum(table, EPOCH + DAY + 2 * HOUR, kept=DAY)
    table.set_properties(**FEED)
    assert not due(table, EPOCH + DAY + 3 * HOUR), "a longer one frees nothing"


def test_a_log_that_was_cleaned(table: LogTable) -> None:
    from tests.support.checkpoints import checkpoint

    vacuum(table, EPOCH + DAY)
    checkpoint(table)
    for version in range(table.version):
        table.file(version).unlink()
    assert due(table, EPOCH + 2 * DAY)


def test_what_was_deleted(table: LogTable) -> None:
    version = table.version
    vacuum(table, EPOCH + DAY, numDeletedFiles="3")
    for at, found in ((version, {"files": 3, "bytes": 7}), (table.version, {"files": 0, "bytes": 0})):
        assert run_sync(deleted(VacuumSpec(run_id="r", table_uri=table.uri, version=at))) == found
