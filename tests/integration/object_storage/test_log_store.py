"""Our log store for S3: many drivers commit at once on a real store, and no commit is lost or made twice."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc import apply_changes
from delta_cdc.core.commit_safety import CONDITIONAL_STORE, conf_for
from delta_cdc.core.errors import UnsafeLogStore
from delta_cdc.launch.log_store import PREFIX
from tests.support.commit_storm import Place, Programs, listed, storm
from tests.support.faulty_proxy import KINDS, Once, Weather
from tests.support.lake import IgnoresTheCondition
from tests.support.started_with import started_with
from tests.support.world import listing
from tools import jar

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.faulty_proxy import Kind, Request
    from tests.support.lake import Lake

DELTAS_DEFAULT = "io.delta.storage.S3SingleDriverLogStore"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """Compile the log store as its sources are now, so that a defect planted in them counts."""
    return Programs.compiled(tmp_path_factory.mktemp("programs"))


@pytest.mark.slow
def test_the_jar_is_that_of_the_sources(tmp_path: Path) -> None:
    """And the same bytes each time; an older one is deleted."""
    (tmp_path / f"{PREFIX}older.jar").touch()
    first = jar.built(tmp_path)
    assert list(tmp_path.iterdir()) == [first]
    content = first.read_bytes()
    first.unlink()
    assert jar.built(tmp_path).read_bytes() == content


# -- the log store alone --------------------------------------------------------------------------
@pytest.mark.slow
def test_an_answer_that_was_lost_is_no_conflict(lake: Lake, programs: Programs) -> None:
    """The store made the commit, S3A repeats the request, and the store refuses the repetition."""
    lake.proxy.faults = Once("lost_answer", lambda request: request.commits, times=2)
    found = storm(Place.on_lake(lake), programs, CONDITIONAL_STORE, drivers=1, commits=3)
    assert [kind for _, kind in lake.proxy.struck] == ["lost_answer"] * 2
    assert found.problems() == []
    assert found.unclear == 0


def test_every_commit_is_one_conditional_request(lake: Lake, programs: Programs) -> None:
    commits: list[Request] = []

    def note(request: Request) -> Kind | None:
        if request.commits:
            commits.append(request)
        return None

    lake.proxy.faults = note
    assert storm(Place.on_lake(lake), programs, CONDITIONAL_STORE, drivers=1, commits=3).problems() == []
    assert [request.conditional for request in commits] == [True] * 3


def test_nothing_is_committed_where_the_store_ignores_the_condition(lake: Lake, programs: Programs) -> None:
    lake.proxy.faults = IgnoresTheCondition(lake)
    found = storm(Place.on_lake(lake), programs, CONDITIONAL_STORE, drivers=1, commits=1)
    assert "ignores If-None-Match" in found.failures[0]
    assert found.held == {}


@pytest.mark.slow
def test_some_drivers_in_bad_weather(lake: Lake, programs: Programs) -> None:
    lake.proxy.faults = Weather(3, 0.1)
    found = storm(Place.on_lake(lake), programs, CONDITIONAL_STORE, drivers=3, commits=12)
    assert found.problems() == []
    assert lake.proxy.kinds_struck() >= set(KINDS)


@pytest.mark.slow
def test_a_fast_listing_is_never_ours(lake: Lake, programs: Programs) -> None:
    """Until Delta 4.4.1, it takes files of folders inside a log, and beside it, for commits; or it fails."""
    place = Place.on_lake(lake)
    for folder in ("_delta_log", "_delta_log/_staged_commits", "_delta_log_of_before"):
        file = place.folder.parent / folder / "00000000000000000000.json"
        file.parent.mkdir(parents=True)
        file.write_text("{}\n")
    found = listed(place, programs, CONDITIONAL_STORE, **{"delta.enableFastS3AListFrom": "true"})
    assert found == [f"{place.log}/{name}" for name in ("00000000000000000000.json", "_staged_commits")]


class Storms:
    """Bad weather, and now and then a commit that is never answered."""

    def __init__(self, seed: int, *, silent: int) -> None:
        self._weather = Weather(seed, 0.05)
        self._every = silent
        self._commits = 0

    def __call__(self, request: Request) -> Kind | None:
        if request.commits:
            self._commits += 1
            if self._commits % self._every == 0:
                return "silent"
        return self._weather(request)


@pytest.mark.slow
def test_four_thousand_commits_of_eight_drivers(lake: Lake, programs: Programs) -> None:
    lake.proxy.faults = Storms(8, silent=2_000)
    found = storm(Place.on_lake(lake), programs, CONDITIONAL_STORE, drivers=8, commits=500, pause=400)
    assert found.problems() == []
    assert len(found.held) == 4_000
    assert lake.proxy.kinds_struck() >= {*KINDS, "silent"}
    struck = [request for request, _ in lake.proxy.struck if request.commits]
    print(f"{lake.proxy.count} requests, {len(lake.proxy.struck)} faults, {len(struck)} of them on commits, "
          f"{found.unclear} outcomes unclear")  # fmt: skip


@pytest.mark.slow
def test_deltas_default_loses_commits(lake: Lake, programs: Programs) -> None:
    """The control: the same drivers, without faults, and the harness finds what is lost."""
    problems = storm(Place.on_lake(lake), programs, DELTAS_DEFAULT, drivers=3, commits=25).problems()
    assert any("in the log 0 times" in problem for problem in problems)


# -- in Spark -------------------------------------------------------------------------------------
def rows(first: int, count: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int64())})


def applied(spark: SparkSession, lake: Lake, **more: Any) -> Outcome:
    return apply_changes(
        spark,
        lake.uri("source"),
        lake.uri("target"),
        pipeline="flow",
        keys=["id"],
        storage_options=lake.options,
        **more,
    )


def ids(spark: SparkSession, lake: Lake, table: str) -> list[int]:
    frame = spark.read.format("delta").load(f"s3a://{lake.name}/{table}")
    return sorted(row["id"] for row in frame.select("id").collect())


@pytest.fixture
def source(lake: Lake) -> None:
    write_deltalake(
        lake.uri("source"),
        rows(0, 2),
        configuration={"delta.enableChangeDataFeed": "true"},
        storage_options=lake.direct,
    )


@pytest.mark.slow
@pytest.mark.usefixtures("source")
def test_several_drivers_need_no_promise(on_lake: SparkSession, lake: Lake) -> None:
    """A second writer that sends a condition, as delta-rs does, is kept apart from Spark, too."""
    assert applied(on_lake, lake).applied
    assert ids(on_lake, lake, "target") == [0, 1]
    commits: list[Request] = []

    def overtake(request: Request) -> Kind | None:
        if request.commits:
            commits.append(request)
            if len(commits) == 1:
                write_deltalake(lake.uri("source"), rows(9, 1), mode="append", storage_options=lake.direct)
        return None

    lake.proxy.faults = overtake
    on_lake.sql(f"INSERT INTO delta.`s3a://{lake.name}/source` VALUES (100)")
    assert [request.conditional for request in commits] == [True, True]
    assert [request.key[-6:] for request in commits] == ["1.json", "2.json"]
    assert ids(on_lake, lake, "source") == [0, 1, 9, 100]


@pytest.mark.usefixtures("source")
def test_deltas_default_needs_a_word_about_the_driver(on_lake: SparkSession, lake: Lake) -> None:
    """A session that was started with another log store, as an older server is."""
    before = listing(lake.path(""))
    requests: list[Request] = []

    def note(request: Request) -> Kind | None:
        requests.append(request)
        return None

    lake.proxy.faults = note
    with started_with(on_lake, conf_for("s3a://")) as tell:
        tell(DELTAS_DEFAULT)
        with pytest.raises(UnsafeLogStore, match="S3SingleDriverLogStore"):
            applied(on_lake, lake)
    assert listing(lake.path("")) == before
    assert not [request for request in requests if request.method in ("PUT", "POST", "DELETE")]


@pytest.mark.slow
@pytest.mark.usefixtures("source")
def test_a_store_that_ignores_the_condition(on_lake: SparkSession, lake: Lake) -> None:
    """Nothing of the table is written there, but with the promise of a single driver."""
    lake.proxy.faults = IgnoresTheCondition(lake)
    before = listing(lake.path(""))
    with pytest.raises(UnsafeLogStore, match="ignores If-None-Match") as caught:
        applied(on_lake, lake)
    assert "single_driver" in caught.value.remedy
    assert listing(lake.path("")) == before
    assert applied(on_lake, lake, single_driver=True).applied
    assert ids(on_lake, lake, "target") == [0, 1]


_DRIVER = """
import sys
from delta_cdc import get_session

table, first, commits, confs = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]
more = dict(conf.split("=", 1) for conf in confs)
spark = get_session("writer", cores=1, quick_start=True, locations=[table], **more)
for number in range(first, first + commits):
    spark.range(number, number + 1).coalesce(1).write.format("delta").mode("append").save(table)
"""


@pytest.mark.slow
def test_three_drivers_of_spark(lake: Lake) -> None:
    """Each appends twenty times to one table, in weather that only commits suffer; every row arrives once."""
    weather = Weather(5, 0.2)
    lake.proxy.faults = lambda request: weather(request) if request.commits else None
    table = f"s3a://{lake.name}/t"
    write_deltalake(lake.uri("t"), rows(0, 0), storage_options=lake.direct)
    confs = {
        "spark.driver.memory": "1g",
        "spark.hadoop.fs.s3a.endpoint": lake.proxy.endpoint,
        "spark.hadoop.fs.s3a.endpoint.region": lake.options["AWS_REGION"],
        "spark.hadoop.fs.s3a.path.style.access": "true",
        "spark.hadoop.fs.s3a.access.key": lake.options["AWS_ACCESS_KEY_ID"],
        "spark.hadoop.fs.s3a.secret.key": lake.options["AWS_SECRET_ACCESS_KEY"],
    }
    given = [f"{name}={value}" for name, value in confs.items()]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _DRIVER, table, str(100 * driver), "20", *given],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        for driver in range(3)
    ]
    try:
        errors = [process.communicate(timeout=900)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, error in zip(processes, errors, strict=True):
        assert process.returncode == 0, error[-3000:]
    found = DeltaTable(lake.uri("t"), storage_options=lake.direct)
    expected = [100 * driver + number for driver in range(3) for number in range(20)]
    assert sorted(found.to_pyarrow_table()["id"].to_pylist()) == expected
    assert found.version() == 60
    log = sorted((lake.folder / "t" / "_delta_log").glob("0*.json"))
    assert len(log) == 61
    added = [json.loads(line) for file in log for line in file.read_text().splitlines() if '"add"' in line]
    assert len(added) == 60
