"""Commits on a disk: drivers that are frozen between look and creation lose none, and make none twice."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_cdc.core.commit_safety import REFUSED_COMMIT
from tests.support.commit_storm import Place, Programs, storm
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

DELTAS_DEFAULT = "io.delta.storage.HDFSLogStore"
OURS = "LogStoreWithFailpoint"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Compile the log store as its sources are now, so that a defect planted in them counts."""
    return Programs.compiled(tmp_path_factory.mktemp("programs"))


# -- the log store alone --------------------------------------------------------------------------
@pytest.mark.parametrize("place", slow_but(["before 2", "after 2", "before 1"], "before 2"))
def test_a_driver_that_was_frozen_overwrites_nothing(tmp_path: Path, programs: Programs, place: str) -> None:
    """It stops at a creation, another driver makes all its commits, and the first one goes on."""
    frozen = storm(
        Place.on_disk(tmp_path), programs, OURS, drivers=2, commits=4, failpoints={0: f"stop {place}"}
    )
    assert frozen.problems() == []
    assert frozen.unclear == 0
    assert sorted(path.name for path in (tmp_path / "_delta_log").iterdir()) == [
        f"{version:020}.json" for version in range(8)
    ]


@pytest.mark.slow
def test_deltas_default_overwrites_a_commit(tmp_path: Path, programs: Programs) -> None:
    """The control: the harness finds the commit that is lost, though its driver reported it."""
    frozen = storm(
        Place.on_disk(tmp_path),
        programs,
        DELTAS_DEFAULT,
        drivers=2,
        commits=4,
        failpoints={0: "stop before 2"},
    )
    assert frozen.failures == {}
    assert any("is in the log 0 times" in problem for problem in frozen.problems())


@pytest.mark.slow
@pytest.mark.parametrize(("log_store", "lost"), [(OURS, False), (DELTAS_DEFAULT, True)])
def test_a_thousand_commits_of_drivers_that_pause(
    tmp_path: Path, programs: Programs, log_store: str, lost: bool
) -> None:
    pauses = dict.fromkeys(range(4), "pause 30")
    found = storm(
        Place.on_disk(tmp_path), programs, log_store, drivers=4, commits=250, pause=30, failpoints=pauses
    )
    problems = found.problems()
    print(f"{log_store}: {len(found.held)} versions, {len(problems)} problems, the first: {problems[:1]}")
    assert bool(problems) == lost


def test_a_file_of_a_commit(tmp_path: Path, programs: Programs) -> None:
    """Its name, its permissions, and what an earlier file of that name left; an answer that was lost."""
    real = tmp_path / "real"
    real.mkdir()
    link = tmp_path / "50% ä b"
    link.symlink_to(real)
    log = real / "_delta_log"
    log.mkdir()
    # The checksum of a commit that a user deleted by hand: with it, no reader would take the new one.
    (log / ".00000000000000000000.json.crc").write_bytes(b"crc\0\0\0\x02\0\0\0\0\0")
    (log / ".00000000000000000000.json.left-by-a-killed-driver.tmp").write_text("{")
    found = storm(Place.on_disk(link), programs, OURS, drivers=1, commits=2, failpoints={0: "lose 2"})
    assert found.problems() == []
    assert found.unclear == 0
    names = [".00000000000000000000.json.left-by-a-killed-driver.tmp", *(f"{n:020}.json" for n in range(2))]
    assert sorted(path.name for path in log.iterdir()) == names
    assert {stat.S_IMODE(path.stat().st_mode) for path in log.glob("0*")} == {0o644}


def test_a_disk_without_hard_links_takes_a_single_driver_only(tmp_path: Path, programs: Programs) -> None:
    place = Place.on_disk(tmp_path)
    refused = storm(place, programs, OURS, drivers=1, commits=1, failpoints={0: "refuse"})
    assert REFUSED_COMMIT in refused.failures[0]
    assert "took no hard link" in refused.failures[0]
    assert list(place.folder.iterdir()) == []
    promised = Place(place.log, place.folder, {"delta_cdc.single.driver": "true"})
    assert storm(promised, programs, OURS, drivers=1, commits=2, failpoints={0: "refuse"}).problems() == []


def test_a_disk_that_fails_is_no_disk_without_hard_links(tmp_path: Path, programs: Programs) -> None:
    """A user who is advised to move the table, or to promise a single driver, would do it for nothing."""
    broken = storm(Place.on_disk(tmp_path), programs, OURS, drivers=1, commits=1, failpoints={0: "break"})
    assert "Input/output error" in broken.failures[0]
    assert REFUSED_COMMIT not in broken.failures[0]


# -- in Spark -------------------------------------------------------------------------------------
def test_our_sessions_commit_with_it(spark: SparkSession, tmp_path: Path) -> None:
    """Delta's own leaves a checksum beside each commit; a table that has them stays readable."""
    spark.range(3).write.format("delta").save(str(tmp_path))
    log = tmp_path / "_delta_log"
    commit = log / "00000000000000000000.json"
    checksum = log / f".{commit.name}.crc"
    assert not checksum.exists()
    assert stat.S_IMODE(commit.stat().st_mode) == 0o644
    local: Any = spark.sparkContext._jvm.org.apache.hadoop.fs
    files = local.FileSystem.getLocal(spark.sparkContext._jsc.hadoopConfiguration())
    # As the local file system of Hadoop writes a file.
    files.copyFromLocalFile(local.Path(str(commit)), local.Path(str(tmp_path / "copy.json")))
    (tmp_path / ".copy.json.crc").rename(checksum)
    spark.range(3, 4).write.format("delta").mode("append").save(str(tmp_path))
    spark.sql("CLEAR CACHE")
    assert DeltaTable(tmp_path).version() == 1
    assert spark.read.format("delta").option("versionAsOf", 0).load(str(tmp_path)).count() == 3
    assert checksum.exists()


_DRIVER = """
import sys
from delta_cdc import get_session

table, first, commits, class_path, failpoint, *confs = sys.argv[1:]
more = dict(conf.split("=", 1) for conf in confs)
more["spark.driver.extraClassPath"] = class_path
more["spark.driver.extraJavaOptions"] = f'"-Dfailpoint={failpoint}"'
spark = get_session("writer", cores=1, quick_start=True, **more)
for number in range(int(first), int(first) + int(commits)):
    spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(table)
"""
_CONTROL = {
    "spark.delta.logStore.file.impl": DELTAS_DEFAULT,
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "DiskWithFailpoint",
}


def rows_of_drivers(table: Path, programs: Programs, confs: dict[str, str], commits: int) -> list[int]:
    """Let two drivers of Spark append rows, one for each commit; return what another reader finds."""
    subprocess.run(
        [sys.executable, "-c", _DRIVER, str(table), "0", "1", "", "none"], check=True, env=os.environ
    )
    given = [f"{name}={value}" for name, value in {"spark.driver.memory": "1g", **confs}.items()]
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-c", _DRIVER, str(table), str(first), str(commits)),
                *(programs.without_spark, "pause 30", *given),
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for first in (1, 1 + commits)
    ]
    try:
        errors = [process.communicate(timeout=900)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, error in zip(processes, errors, strict=True):
        assert process.returncode == 0, error[-3000:]
    return sorted(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


@pytest.mark.slow
def test_a_thousand_commits_of_two_drivers_of_spark(tmp_path: Path, programs: Programs) -> None:
    table = tmp_path / "table"
    ours = {"spark.delta.logStore.file.impl": OURS}
    assert rows_of_drivers(table, programs, ours, 500) == list(range(1001))
    log = sorted((table / "_delta_log").glob("0*.json"))
    assert [path.name for path in log] == [f"{version:020}.json" for version in range(1001)]
    added = [line for path in log for line in path.read_text().splitlines() if "add" in json.loads(line)]
    assert len(added) == 1001


@pytest.mark.slow
def test_two_drivers_of_spark_with_deltas_default_lose_rows(tmp_path: Path, programs: Programs) -> None:
    for attempt in range(5):
        # Whether two commits meet is chance: about one round in four loses nothing.
        found = rows_of_drivers(tmp_path / f"table{attempt}", programs, _CONTROL, 60)
        if len(found) < 121:
            print(f"{121 - len(found)} of 120 rows are lost")
            return
    pytest.fail("five rounds of two drivers lost no row")
