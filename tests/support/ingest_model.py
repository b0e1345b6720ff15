"""An ingest without Spark: what the job does to the change log and to the tables beside it, on files alone.

The change log is a hand-written Delta log; its events are kept here, by the file that would hold them. The
record beside it is a real one, Parquet and all, because the planner reads it.
"""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from delta_cdc.core.change_log import LOG_COLUMNS
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.requests import IngestRequest
from delta_cdc.core.spec import IngestSpec, JobResult, step_fingerprint
from delta_cdc.core.watermark import Seal, SealStep, app_id
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.topics import Bounds
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory, forget_saved_plans
from tests.support.logs import EPOCH, LogTable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from delta_cdc.planning.ingest import IngestPlan
    from delta_cdc.run.outcomes import Outcome

DONE = JobResult("committed")
SCHEMA = pa.schema(
    [
        ("pipeline", pa.string()),
        ("seal", pa.int64()),
        ("file", pa.string()),
        ("size", pa.int64()),
        ("modified", pa.int64()),
        ("etag", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("starting_offset", pa.int64()),
        ("ending_offset", pa.int64()),
        ("status", pa.string()),
        ("recorded_at", pa.timestamp("us", tz="UTC")),
    ]
)
#: An adapter that nobody here has: planning does not ask for it.
OPTIONS = IngestOptions(keys=("id",), adapter="of.my_own")

TOPIC_OPTIONS = IngestOptions(source_kind="kafka", keys=("id",), adapter="of.my_own")

#: A file's name and line, or a record's partition and offset.
Event = tuple[str, str]


class Boom(RuntimeError):
    """What a killed driver looks like from outside."""


@dataclass
class Record(LogTable):
    """The table beside the log, with real files."""

    def write(self, seal: Seal, rows: list[dict[str, Any]]) -> None:
        """Record a batch."""
        at = self.version + 1
        self.write_seal(seal, operation="WRITE", rows=bool(rows), metrics={"numOutputRows": str(len(rows))})
        if rows:
            filled = [{"pipeline": seal.pipeline, "seal": seal.number, **row} for row in rows]
            table = pa.Table.from_pylist(filled, SCHEMA)
            pq.write_table(table, self.path / f"part-{at:05d}-0.parquet")


@dataclass
class World:
    """A folder that files arrive in, the change log, and what stands beside it.

    :param topic: records of a topic: (topic, partition) -> (earliest, end)
    """

    root: Path
    pipeline: str = "p"
    said: list[str] = field(default_factory=list)
    ran: list[IngestSpec] = field(default_factory=list)
    saved_plans: PlansInMemory = field(default_factory=PlansInMemory)
    log: LogTable = field(init=False)
    record: Record = field(init=False)
    #: What each data file of the log holds.
    held: dict[str, list[Event]] = field(default_factory=dict)
    log_txns: dict[str, int] = field(default_factory=dict)
    record_txns: dict[str, int] = field(default_factory=dict)
    clock: int = EPOCH

    def __post_init__(self) -> None:
        self.source.mkdir(parents=True, exist_ok=True)
        self.log = self._new_log("log-1")
        self.record = Record(self.root / "log__ingested", table_id="record-1")

    def _new_log(self, table_id: str) -> LogTable:
        return LogTable(self.root / "log", table_id=table_id, columns=("id", "name", *LOG_COLUMNS))

    @property
    def source(self) -> Path:
        return self.root / "landing"

    def request(self, **changes: Any) -> IngestRequest:
        given = {"source": str(self.source), "pipeline": self.pipeline, "options": OPTIONS, "run_id": "r"}
        return IngestRequest(log=str(self.root / "log"), **{**given, **changes})

    # -- what others do ---------------------------------------------------------------------------
    def deliver(self, name: str, lines: Iterable[str], *, at: int | None = None) -> Path:
        """Put a file there, over one that is."""
        file = self.source / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{line}\n" for line in lines))
        self.clock += 1000
        time = self.clock if at is None else at
        os.utime(file, ns=(time * 1_000_000, time * 1_000_000))
        return file

    def lose_record(self) -> None:
        shutil.rmtree(self.record.path, ignore_errors=True)
        self.record = Record(self.record.path, table_id=f"{self.record.table_id}+")
        self.record_txns = {}

    def lose_log(self) -> None:
        shutil.rmtree(self.log.path, ignore_errors=True)
        self.log = self._new_log(f"{self.log.table_id}+")
        self.log_txns, self.held = {}, {}

    @property
    def events(self) -> Counter[Event]:
        """Return what the log holds now."""
        active = self.log.files.get(self.log.version, frozenset())
        return Counter(event for path in active for event in self.held.get(path, ()))

    @property
    def delivered(self) -> Counter[Event]:
        """Return what lies in the folder now."""
        files = (file for file in self.source.rglob("*") if file.is_file())
        return Counter((str(file), line) for file in files for line in file.read_text().splitlines())

    # -- the job ----------------------------------------------------------------------------------
    def engine(self, spec: IngestSpec, dies: str = "") -> JobResult:
        """Do what the job does.

        :param dies: the point after which it is gone: ``planned``, ``recorded`` or ``committed``
        """
        self.ran.append(spec)
        overtaken = self._overtaken(spec)
        if overtaken:
            return JobResult("stale", message=overtaken)
        events = self._read(spec)
        if isinstance(events, JobResult):
            return events
        if dies == "planned":
            raise Boom(dies)
        rows = rows_of(spec)
        seal = seal_of(spec, len(rows), len(events))
        if not spec.recorded:
            if self.record_txns.get(spec.pipeline, -1) >= seal.number:
                return JobResult("skipped", message="recorded by another one")
            self.record.write(seal, rows)
            self.record_txns[spec.pipeline] = seal.number
        if dies == "recorded":
            raise Boom(dies)
        if self.log_txns.get(spec.pipeline, -1) >= seal.number:
            return JobResult("skipped", message="committed by another one")
        self.append(seal, events)
        if dies == "committed":
            raise Boom(dies)
        return DONE

    def append(self, seal: Seal, events: list[Event]) -> None:
        path = f"part-{self.log.version + 1:05d}-0.parquet"
        self.log.write_seal(
            seal, operation="WRITE", rows=bool(events), metrics={"numOutputRows": str(len(events))}
        )
        self.log_txns[seal.pipeline] = seal.number
        self.held[path] = events

    def _overtaken(self, spec: IngestSpec) -> str:
        planned = spec.step.planned_on
        if planned is None:
            return "there is a log by now" if self.log.version >= 0 else ""
        if self.log.version < 0 or planned.table_id != self.log.table_id:
            return "the log is another one"
        for version in range(planned.version + 1, self.log.version + 1):
            if '"operation": "RESTORE"' in self.log.file(version).read_text():
                return "the log was restored"
        return ""

    def _read(self, spec: IngestSpec) -> list[Event] | JobResult:
        events: list[Event] = []
        for file in spec.files:
            if file.missing or file.unreadable:
                continue
            path = Path(file.uri)
            if not path.exists():
                return JobResult("stale", message="a file was deleted after planning")
            found = Counter((file.uri, line) for line in path.read_text().splitlines())
            events += (found - self.events if file.again else found).elements()
        for part in spec.offsets:
            name = f"{part.topic}/{part.partition}"
            found = Counter((name, str(at)) for at in range(part.starting_offset, part.ending_offset))
            events += (found - self.events if part.again else found).elements()
        return events

    # -- runs -------------------------------------------------------------------------------------
    def plan(self, now_ms: int | None = None, **changes: Any) -> IngestPlan:
        return plan_ingest(self.request(**changes), Memory(now_ms=self.clock if now_ms is None else now_ms))

    def ingest(self, execute: Any = None, **changes: Any) -> Outcome:
        """Do one piece of work from end to end, and publish it."""
        result = self.unpublished(execute, **changes)
        forget_saved_plans(result, self.saved_plans)
        return result

    def unpublished(self, execute: Any = None, **changes: Any) -> Outcome:
        then, announced = changes.pop("then", None), changes.pop("announced", None)
        return run(
            replace(self.request(**changes), after=() if then is None else (then,)),
            Services(
                execute=execute or self.engine,
                saved_plans=self.saved_plans,
                say=self.said.append,
                sleep=lambda seconds: None,
                announced=announced,
            ),
        )

    def drain(self, **changes: Any) -> None:
        """Run until there is nothing to do."""
        for _ in range(1000):
            if not self.ingest(**changes).applied:
                return
        raise AssertionError("it never ends")


class Broker:
    """What a look at topics is answered."""

    def __init__(self) -> None:
        self.bounds: dict[tuple[str, int], Bounds] = {}
        self.asked: list[tuple[Any, ...]] = []

    def has(
        self, partition: int, earliest: int, end: int, *, starting: int | None = None, **more: str
    ) -> None:
        topic = more.get("topic", "t")
        self.bounds[topic, partition] = Bounds(earliest, end, starting, more.get("topic_id", f"id-{topic}"))

    def __call__(self, *arguments: Any, looks: Any = None) -> dict[tuple[str, int], Bounds]:
        self.asked.append(arguments)
        return dict(self.bounds)


class Topics(World):
    """The world of a topic."""

    def request(self, **changes: Any) -> Any:
        given = {"source": "kafka://h:9092/t", "options": TOPIC_OPTIONS, "kafka_options": {"a": "b"}}
        return super().request(**{**given, **changes})


def rows_of(spec: IngestSpec) -> list[dict[str, Any]]:
    """Return what is recorded of a batch."""
    if spec.step.kind != "ingest":
        named = {"replay": ("quarantine", "replayed"), "renew": ("", "resealed")}[spec.step.kind]
        return [{"file": named[0], "status": named[1]}]
    files = [
        {"file": f.uri, "size": f.size, "modified": f.modified, "etag": f.etag, "status": "taken"}
        for f in spec.files
    ]
    offsets = [
        {
            "topic": part.topic,
            "partition": part.partition,
            "starting_offset": part.starting_offset,
            "ending_offset": part.ending_offset,
            "status": "taken",
        }
        for part in spec.offsets
    ]
    return [*files, *offsets]


def seal_of(spec: IngestSpec, rows: int, events: int) -> Seal:
    """Return the seal of a batch."""
    step = spec.step
    made = Seal(
        pipeline=spec.pipeline,
        number=step.seal_number,
        source_uri=spec.source_uri,
        state=replace(step.before, configuration={**step.configuration, "rows": rows}),
        step=SealStep(
            kind=step.kind,
            starting_version=step.seal_number,
            ending_version=step.seal_number,
            fingerprint=step_fingerprint(spec, step.seal_number),
            run_id=spec.run_id,
            planned_on=step.planned_on,
            counts={"events": events, "files": len(spec.files)},
        ),
    )
    return replace(made)


def table_of(rows: list[dict[str, Any]]) -> Any:
    """Return rows of the record as Arrow has them."""
    return pa.Table.from_pylist(rows, SCHEMA)


__all__ = ["DONE", "OPTIONS", "Boom", "Record", "World", "app_id", "rows_of", "seal_of", "table_of"]
