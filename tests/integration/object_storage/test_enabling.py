"""The change data feed of a table on S3: Spark's commit that turns it on is under the rule of all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc import job
from delta_cdc.core.spec import EnableSpec
from tests.support.lake import IgnoresTheCondition
from tests.support.world import listing

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lake import Lake

FEED = {"delta.enableChangeDataFeed": "true"}


def write(lake: Lake, name: str, **configuration: str) -> str:
    data = pa.table({"id": pa.array([1], pa.int64())})
    write_deltalake(
        lake.uri(name),
        data,
        configuration={key.replace("__", "."): value for key, value in configuration.items()},
        storage_options=lake.direct,
    )
    return lake.uri(name)


@pytest.mark.slow
def test_one_driver_has_to_be_vouched_for_where_the_store_ignores_conditions(
    on_lake: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    plain, ready = write(lake, "plain"), write(lake, "ready", delta__enableChangeDataFeed="true")
    local = str(tmp_path / "local")
    on_lake.range(1).write.format("delta").save(local)
    before = listing(lake.path(""))

    lake.proxy.faults = IgnoresTheCondition(lake)

    def enable(*tables: str, single_driver: bool = False) -> list[bool] | str:
        spec = EnableSpec(run_id="r", tables=tables, properties=FEED, single_driver=single_driver)
        result = job.run(on_lake, spec)
        return result.error["class"] if result.error else [table["changed"] for table in result.tables]

    assert enable(ready) == [False], "what needs no commit is not refused"
    assert enable(local, ready, plain) == "UnsafeLogStore"
    assert listing(lake.path("")) == before
    assert DeltaTable(local).version() == 0, "all tables are looked at before the first one is altered"
    assert enable(local, ready, plain, single_driver=True) == [True, False, True]
    assert enable(local, ready, plain) == [False, False, False]
    found = DeltaTable(plain, storage_options=lake.direct)
    assert found.version() == 1
    assert found.metadata().configuration["delta.enableChangeDataFeed"] == "true"
