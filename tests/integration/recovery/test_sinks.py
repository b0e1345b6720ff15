"""Custom sinks: staged by milestones, a batch is offered until it is committed, whatever dies in between."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_cdc import TableVersion, commit_watermark, job
from delta_cdc.core.options import QueryOptions
from delta_cdc.core.requests import CommitRequest, ReadRequest
from delta_cdc.core.versions import VersionRange
from delta_cdc.planning.read import plan_read
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from tests.support.holding import Gate, Running, hooked
from tests.support.world import listing, seals

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome
    from tests.support.world import Source, State

BEFORE, AFTER = ("delete", "update_preimage"), ("insert", "update_postimage")


class Died(BaseException):
    """The end of a process, for a thread: nothing catches it on the way."""


def dying(point: str, nth: int = 1) -> Callable[[str], None]:
    """Return a hook that ends the job when it comes to a point for the nth time."""
    came = 0

    def hook(reached: str) -> None:
        nonlocal came
        came += reached == point
        if reached == point and came == nth:
            raise Died

    return hook


class Sink:
    """A store that knows nothing of Delta: rows by key, and the batches it was offered."""

    def __init__(self, spark: SparkSession, source: Source, folder: Path, **asked: Any) -> None:
        self._spark = spark
        self._execute: Any = partial(job.run, spark)
        self._source = source
        self.folder = folder
        self.staging = str(folder / "staging")
        self._asked = {"options": QueryOptions("min_delta", keys=("id",)), **asked}
        self.rows: State = {}
        self.offered: list[tuple[int, int]] = []
        self.said: list[str] = []

    def request(self, end: int | None = None, **changes: Any) -> ReadRequest:
        return ReadRequest(
            pipeline="flow",
            source=self._source.path,
            staging=self.staging,
            ending_version=end,
            **{**self._asked, **changes},
        )

    def read(self, end: int | None = None, **changes: Any) -> Outcome:
        return run(self.request(end, **changes), Services(execute=self._execute, say=self.said.append))

    def take(self, batch: Outcome) -> None:
        """Bring the batch in, as a step of the user's does: by key, so that twice is as good as once."""
        assert batch.versions is not None
        assert batch.staging_version is not None
        self.offered.append((batch.versions.starting_version, batch.versions.ending_version))
        found = self._spark.read.format("delta").option("versionAsOf", batch.staging_version)
        rows = found.load(self.staging).select("id", "name", "amount", "_change_type").collect()
        assert batch.counts["rows"] == batch.rows == len(rows)
        for wanted in (BEFORE, AFTER):
            for row in rows:
                if row["_change_type"] not in wanted:
                    continue
                if wanted is BEFORE:
                    self.rows.pop(row["id"], None)
                else:
                    self.rows[row["id"]] = (row["name"], row["amount"])

    def commit(self, ending: int | None = None) -> Outcome:
        request = CommitRequest(pipeline="flow", staging=self.staging, ending_version=ending)
        return run(request, Services(execute=self._execute, say=self.said.append))

    def dies(self, step: Callable[[], object], point: str, nth: int = 1) -> None:
        with hooked(dying(point, nth)), pytest.raises(Died):
            step()

    def heard(self, text: str) -> bool:
        return any(text in line for line in self.said)

    def batches(self) -> list[tuple[str, int, int, bool | None]]:
        """Return kind, range and completeness of every seal in staging."""
        found = []
        for seal in seals(self.staging):
            step = seal["step"]
            complete = seal["state"]["configuration"].get("complete")
            found.append((step["kind"], step["starting_version"], step["ending_version"], complete))
        return found


@pytest.fixture
def sink(spark: SparkSession, source: Source, tmp_path: Path) -> Sink:
    return Sink(spark, source, tmp_path)


@pytest.mark.slow
def test_a_batch_is_staged_in_milestones_and_offered_until_it_is_committed(
    spark: SparkSession, sink: Sink, source: Source
) -> None:
    first = sink.read(10)
    assert (first.versions, first.watermark) == (VersionRange(10, 10), None)
    rows = len(source.states[10])
    none = dict.fromkeys(("update_preimage", "update_postimage", "delete"), 0)
    assert first.counts == {"rows": rows, "insert": rows, **none}
    sink.take(first)
    assert sink.rows == source.states[10]
    sink.dies(sink.commit, "committed")
    assert not sink.commit().applied, "what was committed stays committed"

    # Three milestones of four versions at most, and the query over all of them.
    read = partial(sink.read, 20, versions_per_commit=4)
    sink.dies(read, "committed", 2)
    assert sink.batches()[-1] == ("read", 11, 18, False)
    sink.dies(read, "committed")
    assert sink.heard("holds versions 11-18: the read continues after them")
    assert sink.batches()[-1] == ("read", 11, 20, False)
    batch = read()
    assert sink.batches()[-1] == ("read", 11, 20, True)
    assert batch.versions == VersionRange(11, 20)
    assert batch.watermark is not None
    assert batch.watermark.commit_hash is not None
    assert replace(batch.watermark, commit_hash=None) == mark(source, 10)
    sink.take(batch)
    assert sink.rows == source.states[20]
    sink.dies(sink.commit, "before_commit")
    at = listing(sink.staging)
    found = read()
    assert listing(sink.staging) == at
    assert (found.versions, found.staging_version) == (batch.versions, batch.staging_version)
    assert (found.applied, found.rows) == (False, batch.rows)
    done = commit_watermark(spark, sink.staging, pipeline="flow", ending_version=20)
    assert replace(done, commit_hash=None) == mark(source, 20)
    assert (plan_read(sink.request()).versions, sink.offered) == (VersionRange(21, 30), [(10, 10), (11, 20)])


@pytest.mark.slow
def test_two_reads_and_two_commits_at_once(sink: Sink) -> None:
    """One of them stages the batch and one commits it; the others find it, and say so."""
    reads = at_once(partial(sink.read, 10), "planned")
    assert sorted(read.applied for read in reads) == [False, True]
    assert reads[0].counts["rows"] == reads[1].counts["rows"] == reads[0].rows
    assert [batch[0] for batch in sink.batches()] == ["read"]
    commits = at_once(sink.commit, "planned")
    assert sorted(commit.applied for commit in commits) == [False, True]
    assert sorted(str(commit.versions) for commit in commits) == ["10-10", "None"]
    assert {commit.watermark.version for commit in commits} == {10}
    assert [batch[0] for batch in sink.batches()] == ["read", "commit"]


def at_once(call: Callable[[], Any], point: str) -> list[Any]:
    """Run a call in two threads; none goes past ``point`` before both have come to it."""
    gates = [Gate(point, thread=f"run {n}") for n in range(2)]
    with hooked(*gates):
        threads = [Running(call, f"run {n}") for n in range(2)]
        for gate in gates:
            gate.wait()
        for gate in gates:
            gate.open()
        return [thread.result() for thread in threads]


def mark(source: Source, version: int) -> TableVersion:
    return TableVersion(str(DeltaTable(source.path).metadata().id), version)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["full_delta", "append_only", "upsert", "min_delta"])
def test_dying_anywhere(spark: SparkSession, source: Source, tmp_path: Path, query: Any) -> None:
    """Every point of every step, one after the other; the batch is the same as without any accident."""
    options = QueryOptions(query, keys=("id",) if query in ("upsert", "min_delta") else ())
    asked = {"options": options, "versions_per_commit": 4}
    sink = Sink(spark, source, tmp_path / "one", **asked)
    calm = Sink(spark, source, tmp_path / "other", **asked)
    for made in (sink, calm):
        made.read(10)
        made.commit(10)
    read = partial(sink.read, 20)
    for point in ("planned", "before_commit", "committed"):
        for nth in (1, 2):
            with hooked(dying(point, nth)):
                try:
                    read()
                except Died:
                    continue
    batch = read()
    assert batch.versions == VersionRange(11, 20)
    assert rows_of(spark, batch) == rows_of(spark, calm.read(20))
    for point in ("planned", "before_commit", "committed"):
        with hooked(dying(point)):
            try:
                sink.commit(20)
            except Died:
                continue
    assert not sink.commit(20).applied
    commits = [(start, end) for kind, start, end, _ in sink.batches() if kind == "commit"]
    assert commits == [(10, 10), (11, 20)]


def rows_of(spark: SparkSession, batch: Outcome) -> list[tuple[Any, ...]]:
    found = spark.read.format("delta").option("versionAsOf", batch.staging_version or 0).load(batch.staging)
    columns = ("id", "name", "amount", "_change_type", "_commit_version")
    return sorted((tuple(row) for row in found.select(*columns).collect()), key=repr)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["planned", "before_commit"])
def test_others_delete_between_milestones(
    spark: SparkSession, source: Source, tmp_path: Path, point: str
) -> None:
    """Between two milestones, or after the last look before one: the batch is read anew, and is whole."""
    asked = {"options": QueryOptions(), "versions_per_commit": 4}
    sink, calm = (Sink(spark, source, tmp_path / name, **asked) for name in ("one", "other"))
    for made in (sink, calm):
        made.read(10)
        made.commit(10)
    came = 0

    def deletes(reached: str) -> None:
        nonlocal came
        came += reached == point
        if reached == point and came == 2:
            came += 1
            spark.sql(f"DELETE FROM delta.`{sink.staging}` WHERE _commit_version <= 12").collect()

    with hooked(deletes):
        batch = sink.read(20)
    assert sink.heard("It plans again")
    assert batch.versions == VersionRange(11, 20)
    assert rows_of(spark, batch) == rows_of(spark, calm.read(20))
