"""What Spark itself leaves in a log folder: checksums in checkpoints, paths of shallow clones."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import CorruptLog
from delta_cdc.delta_log.actions import Add
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def _table(spark: SparkSession, path: Path, **properties: str) -> str:
    spark.range(3).write.format("delta").options(**properties).save(str(path))
    for _ in range(3):
        spark.range(3).write.format("delta").mode("append").save(str(path))
    return str(path)


@pytest.mark.parametrize("policy", slow_but(["classic", "v2"], "v2"))
def test_damaged_pages_of_a_checkpoint_are_seen(spark: SparkSession, tmp_path: Path, policy: str) -> None:
    """Every byte of every page counts: the reader has checksums to go by."""
    path = _table(
        spark,
        tmp_path / "t",
        **{"delta.checkpointInterval": "3", "delta.checkpointPolicy": policy, "delta.appendOnly": "true"},
    )
    before = run_sync(DeltaLog(path).snapshot())
    files = run_sync(DeltaLog(path).files(3))
    (tmp_path / "t" / "_delta_log" / f"{0:020d}.json").unlink()
    after = run_sync(DeltaLog(path).snapshot())
    assert (after, run_sync(DeltaLog(path).files(3))) == (before, files)
    log = tmp_path / "t" / "_delta_log"
    written = [*log.glob("*.checkpoint*.parquet"), *log.glob("_sidecars/*.parquet")]
    assert written
    for file in written:
        content = file.read_bytes()
        footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        for at in range(8, footer, max(1, footer // 40)):
            damaged = bytearray(content)
            damaged[at] ^= 0x10
            file.write_bytes(damaged)
            try:
                seen = run_sync(DeltaLog(path).snapshot()), run_sync(DeltaLog(path).files(3))
            except CorruptLog:
                continue
            # A page of a column that is not read, or bytes between pages.
            assert seen == (before, files)
        file.write_bytes(content)


def test_files_of_a_shallow_clone(spark: SparkSession, tmp_path: Path) -> None:
    """Its actions name the files of the other table by absolute URIs."""
    source = _table(spark, tmp_path / "a b%41 ü")
    target = str(tmp_path / "clone")
    spark.sql(f"CREATE TABLE delta.`{target}` SHALLOW CLONE delta.`{source}`").collect()

    async def paths() -> list[str]:
        return [a.path async for a in DeltaLog(target).actions(0) if isinstance(a, Add)]

    named = run_sync(paths())
    assert named
    assert all(":" in path for path in named)
    log = DeltaLog(target)
    assert all(run_sync(log.has_file(path)) for path in named)
    for file in Path(source).glob("*.parquet"):
        file.unlink()
    assert not any(run_sync(log.has_file(path)) for path in named)
