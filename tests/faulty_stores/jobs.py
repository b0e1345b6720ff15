"""Rounds with Spark: applies of both types, and ingests, on a store that fails in each half of the work.

Each round has tables of its own. A run under faults may end with an error that names table and remedy, and
that a retry may follow; then, without faults, the next run has to lead out. In the end the rows are those of
a model that shares no code with the project, and each version was applied once.
"""

from __future__ import annotations

import json
import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

from delta_cdc import apply_changes, get_session, ingest_changes
from delta_cdc.core.errors import DeltaCdcError
from tests.faulty_stores.planning import LAGGING, Round
from tests.support import deliveries, faulty_disk, faulty_proxy
from tests.support.commit_storm import Place, Programs
from tests.support.deliveries import event
from tests.support.faulty_disk import FaultyDisk
from tests.support.faulty_proxy import Throttled, Weather, no_fault
from tests.support.grouped import grouped
from tests.support.world import FREE_KEYS, Source, expected, held, ranges

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lake import Lake

_OURS = {
    "spark.hadoop.fs.file.impl": "FaultyDisk",
    "spark.delta.logStore.file.impl": "FaultyLogStore",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "FaultyDisk$Context",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.memory": "2g",
}
#: The control: a version is created by a look and a rename.
DELTAS = {"spark.delta.logStore.file.impl": "io.delta.storage.HDFSLogStore"}
#: S3A gives up soon, so that faults reach the job.
_S3A = {"fast.upload.buffer": "bytebuffer", "retry.limit": "2", "attempts.maximum": "2"}
#: S3A waits a minute of throttling out, and a machine that is shared is slow.
_HANGS = 300.0


@dataclass
class _Found:
    """What a round found so far."""

    kinds: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    errors: int = 0


class Jobs:
    """A session, and a source in a bucket and on a disk."""

    def __init__(self, spark: SparkSession, lake: Lake, disk: Path) -> None:
        self.spark, self.lake, self.disk = spark, lake, disk
        disk.mkdir()
        # Few versions: what a round costs is the time that Spark needs to plan them.
        self.source = Source(str(disk / "source")).create(None)
        self.source.insert(None, {key: (f"row {key}", key) for key in range(FREE_KEYS, FREE_KEYS + 10)})
        self.source.grow(None, Random(3), 5)
        lake.upload(self.source.path)
        self._faults: Any = spark._jvm.Faults

    @classmethod
    @contextmanager
    def started(cls, lake: Lake, disk: Path, **confs: str) -> Iterator[Jobs]:
        """Start Spark with a disk that can fail, and an S3 client that meets the proxy."""
        with ExitStack() as stack:
            programs = Programs.compiled(disk.parent / "programs")
            of_s3 = {f"spark.hadoop.{name}": value for name, value in Place.on_lake(lake).confs.items()}
            of_s3 |= {f"spark.hadoop.fs.s3a.{name}": value for name, value in _S3A.items()}
            given = {**_OURS, **of_s3, "spark.driver.extraClassPath": programs.without_spark, **confs}
            spark = get_session("faulty stores", cores=2, quick_start=True, locations=["s3://lake"], **given)
            stack.callback(spark.stop)
            yield cls(spark, lake, disk)

    # -- a round ------------------------------------------------------------------------------------
    def play(self, seed: int) -> Round:
        """Fill a table over some runs, of which those under faults may fail."""
        draw = Random(seed)
        found = _Found()
        work = draw.choice((self._applied, self._applied, self._ingested))
        on_disk = draw.random() < 0.5
        try:
            work(seed, draw, found, on_disk=on_disk)
        except Exception as error:  # noqa: BLE001 - a round that cannot be finished is a failure
            found.problems.append(f"without faults: {type(error).__name__}: {str(error)[:1500]}")
        found.kinds |= {"disk" if on_disk else "bucket"}
        result = "; ".join(found.problems) or ("named" if found.errors else "true")
        return Round(frozenset(found.kinds), result)

    def _applied(self, seed: int, draw: Random, found: _Found, *, on_disk: bool) -> None:
        scd = draw.choice((1, 2))
        name = f"target-{seed}"
        target, options = self._place(name, on_disk=on_disk)
        source, _ = self._place("source", on_disk=on_disk)

        def apply(end: int) -> None:
            apply_changes(
                self.spark,
                source,
                target,
                pipeline="flow",
                keys=["id"],
                stored_as_scd_type=scd,
                ending_version=end,
                storage_options=options,
            )

        ends = [
            2,
            *sorted(draw.sample(range(3, self.source.newest), draw.choice((0, 1)))),
            self.source.newest,
        ]
        for end in ends:
            self._under_faults(draw, found, lambda end=end: apply(end), name, on_disk=on_disk)
            apply(end)
        files = str(self.disk / name) if on_disk else self.lake.path(name)
        place = files if on_disk else f"s3a://{self.lake.name}/{name}"
        if held(self.spark, place, scd) != expected(self.source, scd, loaded=2):
            found.problems.append(f"type {scd}: other rows")
        steps = ranges(files)
        if [start for start, _ in steps] != [2, *(end + 1 for _, end in steps[:-1])] or steps[-1][1] != ends[
            -1
        ]:
            found.problems.append(f"type {scd}: the ranges of the commits are {steps}")

    def _ingested(self, seed: int, draw: Random, found: _Found, *, on_disk: bool) -> None:
        name = f"log-{seed}"
        log, options = self._place(name, on_disk=on_disk)
        folder = self.disk / f"in-{seed}"
        folder.mkdir()
        source, _ = self._place(folder.name, on_disk=on_disk)
        events: list[dict[str, Any]] = []

        def ingest() -> None:
            given = grouped(
                {
                    "pipeline": "flow",
                    "keys": ["id"],
                    "format": "json",
                    "schema": deliveries.SCHEMA,
                    "adapter_options": {"operation_column": "op", "sequence_by": "seq"},
                    "storage_options": options,
                }
            )
            ingest_changes(self.spark, source, log, **given)

        for batch in range(draw.choice((1, 2))):
            for number in range(draw.randint(1, 3)):
                first = len(events)
                made = [event("IU"[batch], first + one, one, amount=draw.randrange(9)) for one in range(4)]
                events += made
                text = "".join(f"{json.dumps(one)}\n" for one in made)
                (folder / f"{batch}-{number}.json").write_text(text)
            if not on_disk:
                self.lake.upload(folder)
            self._under_faults(draw, found, ingest, name, on_disk=on_disk)
            ingest()
        place = log if on_disk else f"s3a://{self.lake.name}/{name}"
        names = ("_op", "_sequence", "id", "name", "amount")
        rows = self.spark.read.format("delta").load(place).collect()
        held_events = sorted((tuple(row.asDict().get(one) for one in names) for row in rows), key=repr)
        if held_events != deliveries.expected(events):
            found.problems.append(f"ingest: {len(rows)} events of {len(events)}")

    def _place(self, name: str, *, on_disk: bool) -> tuple[str, dict[str, str] | None]:
        if on_disk:
            return str(self.disk / name), None
        return self.lake.uri(name), {
            **self.lake.options,
            "max_retries": "2",
            "retry_timeout": "5s",
            "timeout": "5s",
        }

    # -- faults -------------------------------------------------------------------------------------
    def _under_faults(
        self, draw: Random, found: _Found, run: Callable[[], None], name: str, *, on_disk: bool
    ) -> None:
        with (self._disk_faults if on_disk else self._bucket_faults)(draw, found.kinds):
            began = time.monotonic()
            try:
                run()
            except DeltaCdcError as error:
                found.errors += 1
                text = f"{type(error).__name__}: {error}"
                if not error.retryable and not found.kinds & LAGGING:
                    found.problems.append(f"not retryable: {text[:1200]}")
                if "Remedy: " not in text or not any(
                    one in text for one in (name, "source", f"in-{name[4:]}")
                ):
                    found.problems.append(f"it names no table: {text[:1200]}")
            except Exception as error:  # noqa: BLE001 - found to be without a name
                found.problems.append(f"no error of ours: {type(error).__name__}: {str(error)[:1200]}")
            seconds = time.monotonic() - began
            if seconds > _HANGS:
                found.problems.append(f"it took {seconds:.0f} s")
        # What the JVM remembers of a table that it could not read must not hide anything.
        if draw.random() < 0.5:
            self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]

    @contextmanager
    def _bucket_faults(self, draw: Random, kinds: set[str]) -> Iterator[None]:
        possible = [*faulty_proxy.KINDS, *faulty_proxy.ODD, *faulty_proxy.LAGGING]
        chosen = draw.sample(possible, draw.choice((1, 3, len(possible))))
        weather = Weather(draw.randrange(1 << 30), draw.choice((0.02, 0.06, 0.2)), chosen)
        proxy = self.lake.proxy
        proxy.struck.clear()
        proxy.faults = Throttled(draw.choice((1.0, 5.0, 60.0)), weather) if draw.random() < 0.05 else weather
        try:
            yield
        finally:
            kinds |= proxy.kinds_struck()
            proxy.faults = no_fault
            proxy.settled()

    @contextmanager
    def _disk_faults(self, draw: Random, kinds: set[str]) -> Iterator[None]:
        possible = [*faulty_disk.KINDS, *faulty_disk.LAGGING]
        chosen = set(draw.sample(possible, draw.choice((1, 2, len(possible)))))
        rate, chance = draw.choice((0.003, 0.01, 0.05)), Random(draw.randrange(1 << 30))

        def decide(_operation: str, _file: Path, fitting: tuple[faulty_disk.Kind, ...]) -> Any:
            kind = chance.choice(fitting)
            return kind if kind in chosen and chance.random() < 3 * rate else None

        self._faults.arm(str(self.disk), draw.randrange(1 << 30), rate, " ".join(sorted(chosen)))
        try:
            with FaultyDisk(self.disk, decide).installed() as disk:
                yield
        finally:
            kinds |= {kind for _, kind in disk.struck} | set(self._faults.disarm().split())
