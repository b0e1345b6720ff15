"""Random histories written by Spark: the reader, the commits themselves and Spark agree on every version."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pytest

from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.http_store import HttpStore
from tests.support.random_logs import SparkHistory, check_log, replayable, seeds

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

TEST = "tests/integration/log/test_random_spark.py"


def _walk(spark: SparkSession, path: Path, seed: int, steps: list[str | None], test: str) -> None:
    history = SparkHistory(spark, path / "ta ble 100% ü", seed)
    follower = DeltaLog(str(history.path))
    with replayable(seed, f"{TEST}::{test}", history.done):
        seen = 0
        for name in steps:
            history.step(name)
            seen = run_sync(follower.newest_version(after=seen))
            assert seen == history.ledger.newest
        asyncio.run(check_log(history.ledger))
        with HttpStore(path) as store:
            asyncio.run(check_log(history.ledger, store.uri(history.path.name), store.options()))
        Spark(history).check()


class Spark:
    """What Spark says of a history."""

    def __init__(self, history: SparkHistory) -> None:
        self.history = history
        self.ledger = history.ledger
        self.log = DeltaLog(str(history.path))
        self.jvm = jvm = history.spark._jvm
        self.none = jvm.scala.Option.empty()
        # Another session's view would be served from a cache that does not know the log was cleaned.
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self.delta_log = jvm.org.apache.spark.sql.delta.DeltaLog.forTable(
            history.spark._jsparkSession, str(history.path)
        )

    def check(self) -> None:
        self.check_history()
        self.check_times()
        self.check_detail()
        self.check_transactions()
        self.check_files()
        self.check_feed()

    def check_history(self) -> None:
        """DESCRIBE HISTORY: version, time, operation and metadata of every commit that is still there."""
        rows = {
            row["version"]: row
            for row in self.history.spark.sql(f"DESCRIBE HISTORY {self.history.name}").collect()
        }
        assert sorted(rows) == self.ledger.present()
        for commit in run_sync(self.log.commits(range(min(rows), max(rows) + 1))):
            row = rows[commit.version]
            said = (commit.info.operation, commit.info.user_metadata)
            assert said == (row["operation"], row["userMetadata"])
        told = {version: _milliseconds(row["timestamp"]) for version, row in rows.items()}
        assert self.ledger.times() == told

    def check_times(self) -> None:
        """The version a time means: what TIMESTAMP AS OF and the change feed's bounds resolve it to."""
        times = self.ledger.times()
        for moment in {time + by for time in list(times.values())[-12:] for by in (-1, 0, 1)}:
            active = self.delta_log.history().getActiveCommitAtTime(
                self.jvm.java.sql.Timestamp(moment), self.none, True, False, True
            )
            version, time = active.version(), active.timestamp()
            if time > moment:
                starting, ending = version, None
            else:
                starting, ending = version + (time < moment), version
            starting = starting if starting <= self.ledger.newest else None
            found = [run_sync(self.log.version_at(moment, bound=bound)) for bound in ("start", "end")]
            assert found == [starting, ending]

    def check_detail(self) -> None:
        """DESCRIBE DETAIL: identity, properties, files and features of the newest version."""
        detail = self.history.spark.sql(f"DESCRIBE DETAIL {self.history.name}").collect()[0]
        state = run_sync(self.log.snapshot())
        assert (state.table_id, state.num_files) == (detail["id"], detail["numFiles"])
        assert state.created_time == _milliseconds(detail["createdAt"])
        assert state.partition_columns == tuple(detail["partitionColumns"])
        assert state.configuration == detail["properties"]
        if detail["minWriterVersion"] == 7:
            assert set(state.features) == set(detail["tableFeatures"])

    def check_transactions(self) -> None:
        """Spark's own snapshot: the newest version of every application."""
        transactions = self.delta_log.update(False, self.none, self.none).transactions()
        for application in ("delta-cdc/p", "delta-cdc/q", "other"):
            found = transactions.get(application)
            spark = int(found.get()) if found.isDefined() else None
            assert run_sync(self.log.transaction(application)) == spark

    def check_files(self) -> None:
        """A read of some versions: the files that Spark would open."""
        able = [v for v in self.ledger.told if self.ledger.rebuildable(v)]
        for version in {able[0], able[len(able) // 2], able[-1]}:
            reader = self.history.spark.read.format("delta").option("versionAsOf", version)
            files = {
                unquote(uri).rsplit("/", 1)[-1] for uri in reader.load(str(self.history.path)).inputFiles()
            }
            active = run_sync(self.log.files(version))
            assert {name.rsplit("/", 1)[-1] for name, *_ in active} == files

    def check_feed(self) -> None:
        """The change feed: a commit changes data where the feed holds rows of it, and nowhere else."""
        if "delta.enableChangeDataFeed" not in self.history.layout:
            return
        able = [v for v in self.ledger.present() if v >= self._columns_since() and self.ledger.rebuildable(v)]
        reader = self.history.spark.read.format("delta").option("readChangeFeed", "true")
        feed = reader.option("startingVersion", able[0]).load(str(self.history.path))
        counted = {
            r["_commit_version"]: r["count"] for r in feed.groupBy("_commit_version").count().collect()
        }
        commits = run_sync(self.log.commits(range(able[0], self.ledger.newest + 1)))
        assert {c.version for c in commits if c.changes_data} == set(counted)

    def _columns_since(self) -> int:
        """Return the version since which columns were only added: Spark reads the feed of no other range."""
        since, after = self.ledger.newest, self._columns(self.ledger.newest)
        while since > 0 and (before := self._columns(since - 1)) <= after:
            since, after = since - 1, before
        return since

    def _columns(self, version: int) -> set[str]:
        schema = json.loads(self.ledger.told[version].metadata["schemaString"])
        return {field["name"] for field in schema["fields"]}


def _milliseconds(moment: Any) -> int:
    # Spark hands out local times.
    utc: datetime = moment.astimezone(UTC)
    return round(utc.timestamp() * 1000)


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(4))
def test_the_reader_agrees(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    _walk(spark, tmp_path, seed, [*SparkHistory.dealt(seed)], "test_the_reader_agrees")


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds(8, first=100))
def test_the_reader_agrees_on_many(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    _walk(spark, tmp_path, seed, [None] * 30, "test_the_reader_agrees_on_many")
