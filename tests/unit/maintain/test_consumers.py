"""Who reads a table, and what each has not read yet."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import (
    InvalidConfiguration,
    SourceTableReplaced,
    TableNameUnresolved,
    TableNotFound,
    TargetReplaced,
)
from delta_cdc.core.watermark import TableVersion
from delta_cdc.planning.consumers import Consumer, Held, consumers_of, held
from tests.support.checkpoints import checkpoint
from tests.support.logs import EPOCH, FEED, SECOND, LogTable, changed, seal
from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), one per second."""
    return Tables.made_in(tmp_path)


def only(tables: Tables, *, named: bool = False) -> Held:
    consumer = Consumer("p", tables.source.uri if named else None, tables.target.uri)
    (found,) = held(tables.source.uri, [consumer])
    return found


def test_what_is_unread(tables: Tables) -> None:
    tables.sealed(2)
    found = only(tables)
    assert (found.watermark, found.unread, found.since) == (2, 3, EPOCH + 3 * SECOND)
    assert found.refused is None
    assert (found.is_past(2), found.is_past(3)) == (True, False)
    assert replace(only(tables, named=True), consumer=found.consumer) == found


def test_a_commit_without_data_holds_nothing(tables: Tables) -> None:
    tables.sealed(5)
    tables.source.optimize()
    found = only(tables)
    assert (found.watermark, found.unread, found.since) == (5, None, None)
    assert found.is_past(6)
    tables.source.append()
    found = only(tables)
    assert found.unread == 7
    assert found.is_past(6)
    assert not found.is_past(7)


def test_consumers_of_other_tables_are_left_out(tables: Tables, tmp_path: Path) -> None:
    tables.sealed(2)
    other = LogTable(tmp_path / "other", table_id="other", configuration=dict(FEED)).create()
    there = [Consumer("p", None, tables.target.uri), Consumer("p", tables.source.uri, tables.target.uri)]
    assert held(other.uri, there) == []
    assert len(held(f"file://{tables.source.uri}/", there)) == 2


def test_no_target_yet(tables: Tables, tmp_path: Path) -> None:
    found = only(tables)
    assert (found.watermark, found.unread, found.refused) == (None, None, None)
    assert "nothing is proved yet" in found.note
    assert held(tables.source.uri, [Consumer("p", str(tmp_path / "else"), tables.target.uri)]) == []


def test_a_watermark_that_cannot_be_told(tables: Tables) -> None:
    tables.sealed(2)
    tables.target.truncate()
    found = only(tables)
    assert isinstance(found.refused, TargetReplaced)
    assert not found.is_past(0)


def test_another_table_at_the_location(tables: Tables) -> None:
    tables.target.write_seal(
        changed(seal(1, 2, source=tables.source), applied_to=TableVersion("was", 2, tables.source.sha256(2)))
    )
    tables.source.file(2).write_text(tables.source.file(2).read_text() + "\n")
    found = only(tables)
    assert isinstance(found.refused, SourceTableReplaced)


def test_versions_that_are_gone_already(tables: Tables) -> None:
    tables.sealed(2)
    checkpoint(tables.source, version=4)
    for version in range(4):
        tables.source.file(version).unlink()
    found = only(tables)
    assert (found.watermark, found.unread, found.since) == (2, 3, None)
    assert not found.is_past(3)
    assert "gone already" in found.note


def test_a_sink_counts_what_it_has_committed(tables: Tables) -> None:
    batch = seal(1, 4, source=tables.source, start=3, kind="read")
    tables.staging.write_seal(
        changed(batch, configuration={"batch": "changes", "committed": None}), operation="WRITE"
    )
    consumer = Consumer("p", tables.source.uri, tables.staging.uri)
    (found,) = held(tables.source.uri, [consumer])
    assert found.watermark is None
    tables.staging.write_seal(seal(2, 4, source=tables.source, kind="commit"), operation="WRITE")
    (found,) = held(tables.source.uri, [consumer])
    assert (found.watermark, found.unread) == (4, 5)


def test_staging_of_a_target_is_refused(tables: Tables) -> None:
    tables.staged(1, 3, 4)
    (found,) = held(tables.source.uri, [Consumer("p", tables.source.uri, tables.staging.uri)])
    assert isinstance(found.refused, InvalidConfiguration)
    assert "name that target" in found.refused.remedy


def test_names_that_nobody_resolved(tables: Tables) -> None:
    (found,) = held(tables.source.uri, [Consumer("p", None, "sales.orders")])
    assert isinstance(found.refused, TableNameUnresolved)
    # The seal tells whose source it is.
    tables.sealed(2)
    (found,) = held(tables.source.uri, [Consumer("p", "sales.orders", tables.target.uri)])
    assert (found.refused, found.unread) == (None, 3)


def test_the_same_table_by_another_name(tables: Tables, tmp_path: Path) -> None:
    tables.sealed(2)
    link = tmp_path / "link"
    link.symlink_to(tables.source.uri)
    for source in (str(link), None):
        (found,) = held(str(link), [Consumer("p", source, tables.target.uri)])
        assert found.unread == 3
        (found,) = held(tables.source.uri, [Consumer("p", source, tables.target.uri)])
        assert found.unread == 3


def test_the_table_itself(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        held(str(tmp_path / "nothing"), [])


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
