"""Why one driver alone may write to S3, shown on a real store: no commit of Spark's carries a condition."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc import apply_changes
from delta_cdc.core.errors import UnsafeLogStore
from tests.support.faulty_proxy import Hold
from tests.support.world import listing

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.faulty_proxy import Kind, Request
    from tests.support.lake import Lake


def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


@pytest.mark.slow
def test_a_second_writers_commit_is_overwritten(on_lake: SparkSession, lake: Lake) -> None:
    """The day this fails, Hadoop or Delta sends a condition, and the refusal can be looked at again."""
    table = lake.uri("t")
    write_deltalake(table, rows(0, 2), storage_options=lake.direct)
    hold = lake.proxy.faults = Hold(lambda request: request.commits)
    with ThreadPoolExecutor(1) as pool:
        insert = pool.submit(on_lake.sql, f"INSERT INTO delta.`s3a://{lake.name}/t` VALUES (100)")
        assert hold.reached.wait(120)
        write_deltalake(table, rows(10, 2), mode="append", storage_options=lake.direct)
        assert DeltaTable(table, storage_options=lake.direct).version() == 1
        hold.released.set()
        insert.result()
    assert hold.held is not None
    assert not hold.held.conditional
    found = DeltaTable(table, storage_options=lake.direct)
    assert found.version() == 1, "both committed the same version"
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == [0, 1, 100], "and one of them is lost"


def test_nothing_is_written_without_a_word_about_the_driver(on_lake: SparkSession, lake: Lake) -> None:
    write_deltalake(lake.uri("source"), rows(0, 2), storage_options=lake.direct)
    before = listing(lake.path(""))
    asked: list[Request] = []

    def note(request: Request) -> Kind | None:
        asked.append(request)
        return None

    lake.proxy.faults = note
    with pytest.raises(UnsafeLogStore, match="S3SingleDriverLogStore"):
        apply_changes(
            on_lake,
            lake.uri("source"),
            lake.uri("target"),
            pipeline="flow",
            keys=["id"],
            storage_options=lake.options,
        )
    assert listing(lake.path("")) == before
    assert not [request for request in asked if request.method in ("PUT", "POST", "DELETE")]
