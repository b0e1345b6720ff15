"""Who reads a table, and what each has not read yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import (
    InvalidConfiguration,
    SourceTableReplaced,
    TableNameUnresolved,
    TargetReplaced,
)
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.consumers import Consumer, consumers_of, observe_consumers
from tests.support.checkpoints import checkpoint
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, changed, seal
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), one per second."""
    return Tables.made_in(tmp_path)


def observe(table: str, consumers: list[Consumer]) -> list[Consumer]:
    log = DeltaLog(table)
    return run_sync(observe_consumers(log, run_sync(log.snapshot()), consumers))


def watermark(consumer: Consumer) -> int | None:
    return consumer.seal.watermark.version if consumer.seal is not None else None


def only(tables: Tables, *, named: bool = False) -> Consumer:
    consumer = Consumer("p", tables.source.uri if named else None, tables.target.uri)
    (found,) = observe(tables.source.uri, [consumer])
    return found


def test_what_is_unread(tables: Tables) -> None:
    tables.sealed(2)
    found = only(tables)
    assert (watermark(found), found.unread, found.since) == (2, 3, EPOCH + 3 * SECOND)
    assert found.error is None
    assert (found.has_read(2), found.has_read(3)) == (True, False)
    assert replace(only(tables, named=True), source=None) == found


def test_a_commit_without_data_holds_nothing(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.optimize()
    found = only(tables)
    assert (watermark(found), found.unread, found.since) == (5, None, None)
    assert found.has_read(6)
    tables.source.append()
    found = only(tables)
    assert found.unread == 7
    assert found.has_read(6)
    assert not found.has_read(7)


def test_consumers_of_other_tables_are_left_out(tables: Tables, tmp_path: Path) -> None:
    tables.sealed(2)
    other = LogTable(tmp_path / "other", table_id="other", configuration=dict(FEED)).create()
    there = [Consumer("p", None, tables.target.uri), Consumer("p", tables.source.uri, tables.target.uri)]
    assert observe(other.uri, there) == []
    assert len(observe(f"file://{tables.source.uri}/", there)) == 2


def test_no_target_yet(tables: Tables, tmp_path: Path) -> None:
    found = only(tables)
    assert (watermark(found), found.unread, found.error) == (None, None, None)
    assert "it has not run yet" in found.note
    assert observe(tables.source.uri, [Consumer("p", str(tmp_path / "else"), tables.target.uri)]) == []


def test_a_watermark_that_cannot_be_told(tables: Tables) -> None:
    tables.sealed(2)
    tables.target.truncate()
    found = only(tables)
    assert isinstance(found.error, TargetReplaced)
    assert not found.has_read(0)


def test_another_table_at_the_location(tables: Tables) -> None:
    tables.target.write_seal(
        changed(seal(1, 2, source=tables.source), applied_to=TableVersion("was", 2, tables.source.sha256(2)))
    )
    tables.source.file(2).write_text(tables.source.file(2).read_text() + "\n")
    found = only(tables)
    assert isinstance(found.error, SourceTableReplaced)


def test_versions_that_are_gone_already(tables: Tables) -> None:
    tables.sealed(2)
    checkpoint(tables.source, version=4)
    for version in range(4):
        tables.source.file(version).unlink()
    found = only(tables)
    assert (watermark(found), found.unread, found.since) == (2, 3, None)
    assert not found.has_read(3)
    assert "deleted already" in found.note


def test_a_sink_counts_what_it_has_committed(tables: Tables) -> None:
    batch = seal(1, 4, source=tables.source, start=3, kind="read")
    tables.staging.write_seal(
        changed(batch, configuration={"batch": "changes", "committed": None}), operation="WRITE"
    )
    consumer = Consumer("p", tables.source.uri, tables.staging.uri)
    (found,) = observe(tables.source.uri, [consumer])
    assert watermark(found) is None
    tables.staging.write_seal(seal(2, 4, source=tables.source, kind="commit"), operation="WRITE")
    (found,) = observe(tables.source.uri, [consumer])
    assert (watermark(found), found.unread) == (4, 5)


def test_staging_of_a_target_is_refused(tables: Tables) -> None:
    tables.staged(1, 3, 4)
    (found,) = observe(tables.source.uri, [Consumer("p", tables.source.uri, tables.staging.uri)])
    assert isinstance(found.error, InvalidConfiguration)
    assert "set that target" in found.error.remedy


def test_names_that_nobody_resolved(tables: Tables) -> None:
    (found,) = observe(tables.source.uri, [Consumer("p", None, "sales.orders")])
    assert isinstance(found.error, TableNameUnresolved)
    # The seal tells whose source it is.
    tables.sealed(2)
    (found,) = observe(tables.source.uri, [Consumer("p", "sales.orders", tables.target.uri)])
    assert (found.error, found.unread) == (None, 3)


def test_the_same_table_by_another_name(tables: Tables, tmp_path: Path) -> None:
    tables.sealed(2)
    link = tmp_path / "link"
    link.symlink_to(tables.source.uri)
    for source in (str(link), None):
        (found,) = observe(str(link), [Consumer("p", source, tables.target.uri)])
        assert found.unread == 3
        (found,) = observe(tables.source.uri, [Consumer("p", source, tables.target.uri)])
        assert found.unread == 3


def test_consumers_as_they_are_given() -> None:
    assert consumers_of(None) == consumers_of([]) == consumers_of("") == ()
    given = [{"pipeline": "a", "target": "/t"}, Consumer("b", "/s", "/u")]
    assert consumers_of(given) == (Consumer("a", None, "/t", expected=True), Consumer("b", "/s", "/u"))
    named = [{"pipeline": "a", "target": "/t", "source": "/s"}]
    assert consumers_of(named) == (Consumer("a", "/s", "/t", expected=True),)


@pytest.mark.parametrize(
    "given",
    [
        {"pipeline": "a", "target": "/t"},
        [{"pipeline": "a"}],
        [{"pipeline": "a", "target": "/t", "sauce": "/s"}],
        [{"pipeline": "a", "target": ""}],
        [{"pipeline": "a b", "target": "/t"}],
        ["a=/t"],
    ],
)
def test_consumers_that_are_none(given: object) -> None:
    with pytest.raises(InvalidConfiguration):
        consumers_of(given)
