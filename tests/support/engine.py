"""Driving the engine without its planner: specs made by hand, from what the logs on disk say."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc import job
from delta_cdc.core.spec import ApplySpec, JobResult, ReadSpec
from delta_cdc.core.steps import ReadRange, Staging, Step
from delta_cdc.core.watermark import Seal, TableVersion
from delta_cdc.spark.sessions import private_session
from tests.support.steps import step as made_step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from delta_cdc.core.options import ApplyOptions

FIRST_SEAL = 1_000


def actions(table: str, version: int) -> list[dict[str, Any]]:
    """Return the actions of one commit, as the file on disk has them."""
    text = (Path(table) / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def versions(table: str) -> list[int]:
    """Return the versions in a table's log; none for a table that does not exist."""
    return sorted(int(file.stem) for file in (Path(table) / "_delta_log").glob("*.json"))


def newest(table: str) -> int:
    """Return a table's newest version."""
    return versions(table)[-1]


def picked(table: str, version: int, action: str) -> list[dict[str, Any]]:
    """Return the bodies of one kind of action in a commit."""
    return [entry[action] for entry in actions(table, version) if action in entry]


def metadata(table: str, version: int | None = None) -> dict[str, Any]:
    """Return the table's ``metaData`` as of a version."""
    upto = newest(table) if version is None else version
    return next(m for v in reversed(versions(table)) if v <= upto for m in picked(table, v, "metaData"))


def columns(table: str, version: int | None = None) -> tuple[str, ...]:
    """Return the table's columns as of a version."""
    return tuple(f["name"] for f in json.loads(metadata(table, version)["schemaString"])["fields"])


def commit_info(table: str, version: int) -> dict[str, Any]:
    """Return ``commitInfo`` of a commit."""
    return picked(table, version, "commitInfo")[0]


def seal_of(table: str, version: int) -> Seal | None:
    """Return the seal that a commit carries: both halves, or it does not count."""
    seal = Seal.from_json(commit_info(table, version).get("userMetadata"))
    transactions = [(t["appId"], t["version"]) for t in picked(table, version, "txn")]
    if seal is None or (f"delta-cdc/{seal.pipeline}", seal.number) not in transactions:
        return None
    return seal


def newest_seal(table: str) -> Seal | None:
    """Return the newest seal in a table's log."""
    found = (seal_of(table, version) for version in reversed(versions(table)))
    return next((seal for seal in found if seal is not None), None)


def looked_at(table: str) -> TableVersion | None:
    """Return what a planner sees of the target."""
    if not versions(table):
        return None
    # With the hash of the commit, as plans have it: without one, a job looks at the table in another way.
    version = newest(table)
    return TableVersion(metadata(table)["id"], version, commit_hash(table, version))


def commit_hash(table: str, version: int) -> str:
    """Return what a planner says of a commit file."""
    return hashlib.sha256((Path(table) / "_delta_log" / f"{version:020d}.json").read_bytes()).hexdigest()


def age(table: str, version: int, hours: float) -> None:
    """Let a commit, and the files that it wrote, be older; also when it removed others."""
    moment = time.time() - hours * 3600
    commit = Path(table) / "_delta_log" / f"{version:020d}.json"
    lines = []
    for line in commit.read_text().splitlines():
        action = json.loads(line)
        if "remove" in action:
            action["remove"]["deletionTimestamp"] = int(moment * 1000)
        if "commitInfo" in action:
            action["commitInfo"]["timestamp"] = int(moment * 1000)
        for kind in ("add", "cdc"):
            if kind in action:
                os.utime(Path(table) / action[kind]["path"], (moment, moment))
        lines.append(json.dumps(action))
    commit.write_text("\n".join(lines) + "\n")
    (commit.parent / f".{commit.name}.crc").unlink(missing_ok=True)
    (commit.parent / f"{version:020d}.crc").unlink(missing_ok=True)
    os.utime(commit, (moment, moment))


@dataclass
class Flow:
    """One source, one target, one configuration; each call is one planned run."""

    spark: SparkSession
    source: str
    target: str
    options: ApplyOptions
    pipeline: str = "flow"
    results: list[JobResult] = field(default_factory=list)

    def step(self, kind: str, start: int, end: int, **changes: Any) -> Step:
        """Plan one step on the target as it is now."""
        last = newest_seal(self.target)
        planned: dict[str, Any] = {
            "kind": kind,
            "starting_version": start,
            "watermark": TableVersion(
                metadata(self.source)["id"], end, commit_hash(self.source, max(end, 0))
            ),
            "seal_number": FIRST_SEAL if last is None else last.number + 1,
            "source_columns": columns(self.source, end),
            "planned_on": looked_at(self.target),
            "before": None if last is None else last.state,
            "ranges": (ReadRange(start, end, "change_files", "", 0),) if kind == "apply" else (),
        }
        return made_step(**{**planned, **changes})

    def spec(self, *steps: Step) -> ApplySpec:
        """Return the spec of some steps."""
        return ApplySpec(
            pipeline=self.pipeline,
            run_id="test",
            source_uri=self.source,
            target_uri=self.target,
            options=self.options,
            steps=steps,
            target_bytes=recorded_size(self.target),
        )

    def run(self, *steps: Step) -> JobResult:
        """Run steps in one job."""
        result = job.run(self.spark, self.spec(*steps))
        self.results.append(result)
        return result

    def load(self, version: int | None = None, **changes: Any) -> JobResult:
        """Load the snapshot of a version (default: the newest)."""
        at = newest(self.source) if version is None else version
        return self.run(self.step("load", at, at, **changes))

    def apply(self, end: int | None = None, start: int | None = None, **changes: Any) -> JobResult:
        """Apply everything after the watermark up to ``end`` (default: the newest version)."""
        last = newest_seal(self.target)
        first = (last.watermark.version + 1 if last else 0) if start is None else start
        return self.run(self.step("apply", first, newest(self.source) if end is None else end, **changes))

    def through(self, first: int, *ends: int) -> Flow:
        """Load ``first``, then apply up to each of ``ends``; every step must commit."""
        assert self.load(first).status == "committed", self.results[-1]
        for end in ends:
            assert self.apply(end).status == "committed", self.results[-1]
        return self

    def copied(self, folder: Path) -> Flow:
        """Return the same flow over copies of its tables, with their ids and their commits."""
        copies = {name: folder / name for name in ("source", "target")}
        shutil.copytree(self.source, copies["source"])
        if Path(self.target).exists():
            shutil.copytree(self.target, copies["target"])
        return Flow(
            self.spark, str(copies["source"]), str(copies["target"]), self.options, pipeline=self.pipeline
        )

    def stage(self, staging: str, start: int, end: int, kind: str = "changes", **changes: Any) -> JobResult:
        """Read a range, or a snapshot, into a staging table."""
        last = newest_seal(staging)
        step = self.step(
            "apply",
            start,
            end,
            seal_number=FIRST_SEAL if last is None else last.number + 1,
            planned_on=looked_at(staging),
        )
        spec = ReadSpec(
            pipeline=self.pipeline,
            run_id="test",
            source_uri=self.source,
            staging_uri=staging,
            steps=(replace(step, **changes),),
            kind=kind,  # type: ignore[arg-type]
            starting_version=start,
            applied_from=start,
        )
        return job.run(self.spark, spec)

    def rows(self, where: str = "true") -> list[dict[str, Any]]:
        """Return the target's rows."""
        return table_rows(self.spark, self.target, where)


class Quarantining(Flow):
    """A flow with a place for what cannot be applied."""

    @property
    def aside(self) -> str:
        return f"{self.target}__quarantine"

    def spec(self, *steps: Step) -> ApplySpec:
        return replace(super().spec(*steps), quarantine_uri=self.aside)

    def taken_out(self) -> list[list[tuple[Any, ...]]]:
        """Return reason, version, key and value of what each run took out, as its counts say."""
        stored = table_rows(self.spark, self.aside)
        by_seal: dict[int, list[tuple[Any, ...]]] = {}
        for row in stored:
            event = json.loads(row["raw"])
            told = (row["reason"], row["commit_version"], json.loads(row["keys"])["id"], event["v"])
            by_seal.setdefault(row["seal"], []).append(told)
        found = [sorted(by_seal[seal]) for seal in sorted(by_seal)]
        assert [len(rows) for rows in found] == [result.counts["quarantined"] for result in self.results]
        return found


def recorded_size(table: str) -> int | None:
    """Return the size of a table's files as its newest checksum file records it, as a plan has it."""
    files = sorted((Path(table) / "_delta_log").glob("*.crc"))
    return json.loads(files[-1].read_text())["tableSizeBytes"] if files else None


def table_rows(spark: SparkSession, table: str, where: str = "true") -> list[dict[str, Any]]:
    """Return a table's rows as dicts (structs stay rows)."""
    found = spark.read.format("delta").load(table).where(where)
    return [dict(zip(found.columns, row, strict=True)) for row in found.collect()]


def history_of(
    spark: SparkSession, table: str, keys: Sequence[str], first: int = 0, last: int | None = None
) -> list[tuple[int, dict[Any, dict[str, Any]]]]:
    """Return the source's state at every version, by time travel, in the columns of the last version."""
    from pyspark.sql import functions as F

    end = newest(table) if last is None else last
    snapshots = [
        spark.read.format("delta").option("versionAsOf", v).load(table).withColumn("at version", F.lit(v))
        for v in range(first, end + 1)
    ]
    every = snapshots[0]
    for snapshot in snapshots[1:]:
        every = every.unionByName(snapshot, allowMissingColumns=True)
    history: dict[int, dict[Any, dict[str, Any]]] = {v: {} for v in range(first, end + 1)}
    for row in every.collect():
        values = dict(zip(every.columns, row, strict=True))
        history[values.pop("at version")][tuple(values[k] for k in keys)] = values
    return sorted(history.items())


def staged(staging: str, kind: str = "changes") -> Staging:
    """Return the newest batch of a staging table."""
    return Staging(uri=staging, version=newest(staging), kind=kind)  # type: ignore[arg-type]


def session_like(spark: SparkSession) -> SparkSession:
    """Return a session as the engine makes it for a job. (A classic one outlives its ``with``.)"""
    with private_session(spark) as session:
        return session
