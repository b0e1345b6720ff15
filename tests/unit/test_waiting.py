"""Which commits are worth waking up for."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable

from delta_cdc.errors import TableNameUnresolved
from delta_cdc.waiting import News, Watch, newest_version
from tests.unit.airflow.tables import append, compact, set_properties

if TYPE_CHECKING:
    from pathlib import Path


def look(watch: Watch) -> News | None:
    return asyncio.run(watch.look())


def test_a_missing_table_is_waited_for(tmp_path: Path) -> None:
    table = tmp_path / "t"
    assert asyncio.run(newest_version(str(table))) == -1
    watch = Watch(str(table), baseline_version=-1)
    assert look(watch) is None
    append(table, [1])
    news = look(watch)
    assert news is not None
    assert news.to_dict() == {
        "table": str(table),
        "table_id": str(DeltaTable(str(table)).metadata().id),
        "version": 0,
        "previous_version": None,
    }


def test_nothing_new_is_no_news(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    watch = Watch(str(tmp_path / "t"), baseline_version=0)
    assert look(watch) is None
    append(tmp_path / "t", [2])
    news = look(watch)
    assert news is not None
    assert (news.version, news.previous_version) == (1, 0)


def test_rewriting_and_renaming_are_no_changes(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    baseline = append(tmp_path / "t", [2])
    watch = Watch(str(tmp_path / "t"), baseline_version=baseline)
    assert compact(tmp_path / "t") == baseline + 1
    assert look(watch) is None
    assert set_properties(tmp_path / "t", delta__appendOnly="false") == baseline + 2
    assert look(watch) is None
    append(tmp_path / "t", [3])
    assert look(watch) is not None


def test_min_versions_counts_changes_across_looks(tmp_path: Path) -> None:
    append(tmp_path / "t", [1])
    watch = Watch(str(tmp_path / "t"), baseline_version=0, min_versions=2)
    append(tmp_path / "t", [2])
    assert look(watch) is None
    assert look(watch) is None
    set_properties(tmp_path / "t", delta__appendOnly="false")
    assert look(watch) is None
    append(tmp_path / "t", [3])
    assert look(watch) is not None


def test_a_log_cleaned_beyond_the_baseline_is_news(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for i in range(4):
        append(table, [i])
    DeltaTable(str(table)).create_checkpoint()
    for version in (1, 2):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    assert look(Watch(str(table), baseline_version=0)) is not None


def test_a_table_made_again_is_news(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [1])
    watch = Watch(str(table), baseline_version=7)
    news = look(watch)
    assert news is not None
    assert (news.version, news.previous_version) == (0, 7)


def test_a_table_dropped_while_waiting_is_waited_for(tmp_path: Path) -> None:
    table = tmp_path / "t"
    append(table, [1])
    watch = Watch(str(table), baseline_version=0)
    assert look(watch) is None
    shutil.rmtree(table)
    assert look(watch) is None


def test_a_catalog_name_cannot_be_watched() -> None:
    with pytest.raises(TableNameUnresolved):
        Watch("main.sales.orders", baseline_version=0)
