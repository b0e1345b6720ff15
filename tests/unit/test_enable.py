"""Is the feed on already, and since when?"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_cdc.core.errors import NotADeltaTable, TableNotFound
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning.table_properties import already_enabled, first_readable_version, is_path
from tests.support.logs import LogTable
from tests.unit.airflow.tables import append, set_properties

if TYPE_CHECKING:
    from pathlib import Path

FEED = {"delta.enableChangeDataFeed": "true"}


def answer(*tables: Path, **properties: str) -> list[dict[str, Any]] | None:
    return asyncio.run(already_enabled([str(table) for table in tables], {**FEED, **properties}))


def first_readable(table: Path) -> int:
    found = answer(table)
    assert found is not None
    first: int = found[0]["first_readable_version"]
    return first


def test_on_since_the_table_was_made(tmp_path: Path) -> None:
    append(tmp_path / "t", [1], **FEED)
    append(tmp_path / "t", [2])
    assert answer(tmp_path / "t") == [
        {
            "table": str(tmp_path / "t"),
            "table_id": str(DeltaTable(str(tmp_path / "t")).metadata().id),
            "first_readable_version": 0,
            "changed": False,
        }
    ]


@pytest.mark.parametrize(
    "on", [{"delta.enableChangeDataFeed": "TRUE"}, {"delta.enableChangeDataCapture": "true"}]
)
def test_since_when_is_told_as_delta_reads_it(tmp_path: Path, on: dict[str, str]) -> None:
    """Any case of the value, and the name that the feed had at first."""
    table = LogTable(tmp_path / "t", configuration=on).create()
    table.append()
    table.set_properties(**FEED)
    assert first_readable(table.path) == 0
    table.set_properties()
    table.set_properties(**on)
    table.append()
    found = asyncio.run(first_readable_version(DeltaLog(table.uri), table.version))
    assert found == 4
    table.set_properties(**{"delta.enableChangeDataFeed": "false"})
    table.append()
    again = table.set_properties(**FEED)
    assert first_readable(table.path) == again == 8


@pytest.mark.parametrize("was_on", [True, False])
def test_a_cleaned_log_tells_by_its_checkpoint(tmp_path: Path, was_on: bool) -> None:
    table = tmp_path / "t"
    append(table, [1], **(FEED if was_on else {}))
    append(table, [2])
    DeltaTable(str(table)).create_checkpoint()
    (table / "_delta_log" / f"{0:020d}.json").unlink()
    on = set_properties(table, delta__enableChangeDataFeed="true", delta__appendOnly="false")
    assert first_readable(table) == (1 if was_on else on)


def test_another_property_and_a_table_without_the_feed_need_spark(tmp_path: Path) -> None:
    append(tmp_path / "on", [1], **FEED)
    append(tmp_path / "off", [1])
    assert answer(tmp_path / "on", tmp_path / "off") is None
    for missing in ({"delta.enableDeletionVectors": "true"}, {"delta.logRetentionDuration": "x"}):
        assert answer(tmp_path / "on", **missing) is None


def test_a_missing_table_and_a_folder_without_a_log_are_named(tmp_path: Path) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "a.csv").write_text("x")
    for name, error in (("nothing", TableNotFound), ("files", NotADeltaTable)):
        with pytest.raises(error, match=name):
            answer(tmp_path / name)


def test_what_can_be_read_without_a_catalog() -> None:
    assert is_path("/data/t")
    assert is_path("s3://lake/t")
    assert not is_path("main.sales.orders")
