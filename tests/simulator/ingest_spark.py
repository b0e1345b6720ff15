"""A model of Spark's job for an ingest, and for the apply that follows it.

The order of a batch (read, record, quarantine, commit, complete), what is recorded, what is compared with the
log, and the statements over the tables beside it are the project's own code
(:class:`delta_cdc.spark.ingest.engine.IngestSteps`). What Spark reads and Delta writes is modelled here.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from delta_cdc.core.change_log import (
    COLUMNS,
    LOG_COLUMNS,
    OP,
    POSITION,
    PUBLISHED,
    RAW,
    SEQUENCE,
    SOURCE_TIMESTAMP,
)
from delta_cdc.core.errors import DeltaCdcError, JobFailed
from delta_cdc.core.quarantine import SETTLED_BY
from delta_cdc.core.spec import ApplySpec, BatchSpec, IngestSpec, JobResult, ReadSpec
from delta_cdc.ingest.sources import DAMAGED
from delta_cdc.run.apply import Applying
from delta_cdc.run.loop import Services, run_alone
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply.prepared_step import PreparedStep
from delta_cdc.spark.ingest import kafka, readable_files
from delta_cdc.spark.ingest.engine import IngestSteps
from delta_cdc.spark.ingest.events import Known
from tests.simulator import delta, spark
from tests.simulator.ingest_frames import Column, Frame
from tests.simulator.ingest_records import NoRecords, decoded, position
from tests.simulator.ingest_staging import StagedSteps
from tests.simulator.store import NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.core.requests import ApplyRequest
    from delta_cdc.core.spec import SourceFile
    from delta_cdc.core.steps import Step
    from tests.simulator.ingest_world import IngestWorld

PAYLOAD = T.StructType(
    [
        T.StructField("id", T.LongType()),
        T.StructField("value", T.LongType()),
        T.StructField("eid", T.StringType()),
    ]
)
#: The columns that the rows of a log and of the tables beside it have here.
_NAMES = {
    "log": [*PAYLOAD.names, *LOG_COLUMNS],
    "log__quarantine": [*quarantine.COLUMNS, SETTLED_BY],
}
_DELETE = re.compile(
    r"DELETE FROM delta\.`([^`]+)` WHERE \(pipeline <> '(\w+)' OR seal < (\d+)\) "
    r"AND raw IS NULL AND position\.file IN \((.*)\)"
)


class IngestSession(spark.Session):
    """A private session."""

    settling = "settle"

    def __init__(self, world: IngestWorld) -> None:
        super().__init__(world)
        self.of: IngestWorld = world

    def columns_of(self, table: delta.Table) -> list[str]:
        return _NAMES[table.name]

    def exists(self, uri: str, version: int = 0) -> bool:
        return super().exists(uri, version)

    def sql(self, text: str) -> Any:
        if (match := _DELETE.fullmatch(text)) is not None:
            uri, pipeline, seal, files = match.groups()
            names = set(re.findall(r"'([^']+)'", files))

            def is_of_file(row: dict[str, Any]) -> bool:
                return row["raw"] is None and row["position"]["file"] in names

            return self._deleted(uri, pipeline, int(seal), is_of_file)
        found = super().sql(text)
        if " HISTORY " in text:
            table = self.world.table(text.split("`")[1])
            for row in found.rows:
                row["userMetadata"] = table.info(row["version"]).get("userMetadata")
        return found

    def _deleted(self, uri: str, pipeline: str, seal: int, matches: Callable[[dict[str, Any]], bool]) -> None:
        def is_gone(row: Any) -> bool:
            return (row["pipeline"] != pipeline or row["seal"] < seal) and matches(row)

        self.alter(uri, Column(is_gone), "DELETE", lambda row: None, phase=self.settling)

    def created(self, table: delta.Table, properties: dict[str, str]) -> list[delta.Action]:
        """Return the actions that create a table; the columns of a log are read from its metadata."""
        actions = super().created(table, properties)
        if table.name == "log":
            actions[1]["metaData"]["schemaString"] = _LOG_SCHEMA
        return actions

    # -- what is read -----------------------------------------------------------------------------------
    def lines_of(self, file: SourceFile) -> list[str]:
        """Return the lines of a file, as Spark would read it now."""
        self.step("read_source")
        stored = self.world.store.objects.get(self.of.key_of(file.uri))
        if stored is None:
            raise delta.Missing(f"[PATH_NOT_FOUND] Path does not exist: {file.uri}")
        text = stored.content.decode(errors="replace")
        if text.startswith("damaged"):
            raise DamagedFile(f"{file.uri} {DAMAGED}: it ends early")
        if text.startswith("killer"):
            self.of.tell(f"{self.world.hub.running.name} is killed by {file.uri}")
            self.world.hub.die()
        return text.splitlines()


class DamagedFile(Exception):
    """What Spark raises for a file that cannot be read to its end."""


_LOG_SCHEMA = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}}
            for name, kind in (
                *(("id", "long"), ("value", "long"), ("eid", "string"), (OP, "string"), (SEQUENCE, "long")),
                (COLUMNS, {"type": "array", "elementType": "string", "containsNull": True}),
                (SOURCE_TIMESTAMP, "timestamp"),
                (
                    POSITION,
                    {
                        "type": "struct",
                        "fields": [
                            {"name": inner, "type": of, "nullable": True, "metadata": {}}
                            for inner, of in (
                                *(("file", "string"), ("row", "long"), ("topic", "string")),
                                *(("partition", "integer"), ("offset", "long")),
                            )
                        ],
                    },
                ),
            )
        ],
    }
)


# -- the job of an ingest -------------------------------------------------------------------------------
@dataclass
class Decoding:
    """The records of a batch, with their positions."""

    session: IngestSession
    records: list[tuple[str, dict[str, Any]]]
    adapter: Any = field(default_factory=lambda: SimpleNamespace(problem=None))

    def look(self) -> None:
        """Know all columns."""

    def learn(self, found: list[str]) -> None:
        """Know all columns."""

    def dropped(self) -> tuple[str, ...]:
        """Leave out no column."""
        return ()

    def layout(self) -> tuple[()]:
        return ()

    def rows(self) -> tuple[Frame, None, None]:
        """Return rows for a look at a single file, whose content is read already."""
        return Frame(self.session, [], []), None, None


def decoding_of(session: IngestSession, spec: IngestSpec, log_schema: Any, secrets: Any) -> Decoding | None:
    """Read the records of a batch; None if it has no records to read."""
    if spec.step.kind == "renew":
        return None
    if spec.step.kind == "replay":
        found = quarantine.replayable(session, spec)  # type: ignore[arg-type]
        if found is None:
            return None
        return Decoding(session, [(row[RAW], row[POSITION]) for row in found.rows])  # type: ignore[attr-defined]
    if spec.options.source_kind == "kafka":
        session.step("read_source")
        return Decoding(session, session.of.topic.read(spec.offsets))
    files = readable_files.readable(spec)
    if not files:
        return None
    return Decoding(
        session, [(line, position(file=file.uri)) for file in files for line in session.lines_of(file)]
    )


def content_of(session: IngestSession, spec: IngestSpec) -> Frame:
    """Read the files of a spec to their end."""
    rows = [{"value": line} for file in readable_files.readable(spec) for line in session.lines_of(file)]
    return Frame(session, rows, ["value"])


def known(session: IngestSession, uri: str) -> Known:
    session.rows_of(uri)
    return Known(PAYLOAD, T.LongType())


def checked(spec: IngestSpec, decoding: Decoding, log_schema: Any) -> tuple[Frame, T.StructType, T.DataType]:
    """Return rows with payload and log columns, as ``events._checked`` does."""
    from delta_cdc.spark.ingest import events, redelivery

    flag = redelivery.flagged(spec)
    rows = []
    for raw, at in decoding.records:
        event, reason = decoded(raw, corrected=decoding.session.of.corrected)
        row = {
            **{name: event.get(name) for name in PAYLOAD.names},
            OP: event.get("op"),
            SEQUENCE: event.get("seq"),
            COLUMNS: None,
            SOURCE_TIMESTAMP: None,
            POSITION: at,
            RAW: raw,
            PUBLISHED: None,
            events._REASON: reason,
        }
        again: Any = False if flag is None else flag.of(row)  # type: ignore[attr-defined]
        rows.append({**row, events._AGAIN: bool(again)})
    names = [*PAYLOAD.names, *LOG_COLUMNS, RAW, events._REASON, events._AGAIN]
    return Frame(decoding.session, rows, names), PAYLOAD, T.LongType()


def counted(rows: Frame) -> dict[str, int]:
    """Return what ``events._counted`` computes by an aggregation."""
    from delta_cdc.spark.ingest import events

    valid = [row for row in rows.rows if row[events._REASON] is None]
    return {
        "events": len(valid),
        "deletes": sum(row[OP] == "delete" for row in valid),
        "truncates": 0,
        "ignored": 0,
        "quarantined": len(rows.rows) - len(valid),
        "late": 0,
    }


class Steps(IngestSteps):
    """The one step of an ingest, with records that are decoded here."""

    def logs(self, step: Step) -> list[str]:
        return []


# -- the job of an apply --------------------------------------------------------------------------------
def folded(rows: Sequence[Any]) -> dict[int, int]:
    """Return the state that events make: the newest one of each key counts."""
    newest: dict[int, Any] = {}
    for row in rows:
        before = newest.get(row["id"])
        if before is None or row[SEQUENCE] >= before[SEQUENCE]:
            newest[row["id"]] = row
    return {key: row["value"] for key, row in newest.items() if row[OP] != "delete"}


class EventSteps(spark.Steps):
    """The steps of an apply whose source is a change log."""

    def prepare(self, step: Step) -> PreparedStep:
        if not step.read.has_rows:
            return super().prepare(step)
        session, spec = self.session, self.spec
        session.step("read_source")  # type: ignore[attr-defined]
        log = session.world.table(spec.source_uri)  # type: ignore[attr-defined]
        session._refuse_torn(log)  # type: ignore[attr-defined]
        state = folded(log.rows(log.snapshot(step.at)))
        touched = set(state)
        if step.kind == "apply":
            versions = [
                version
                for one in step.read.ranges
                for version in range(one.starting_version, one.ending_version + 1)
            ]
            added = [action["add"]["path"] for v in versions for action in log.actions(v) if "add" in action]
            touched = {row["id"] for path in added for row in log.read(path)}
        rows: list[delta.Row] = [[key, state[key]] for key in sorted(touched & set(state))]

        def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
            if step.kind != "apply":
                actions = [table.add(rows)] if rows else []
                metrics = {"numOutputRows": len(rows), "numFiles": 1}
                if begun.version < 0:
                    created = table.created(session.world.new_id(), {})  # type: ignore[attr-defined]
                    return "WRITE", {"mode": "ErrorIfExists"}, metrics, [*created, *actions]
                if step.planned_on is None:
                    raise delta.Conflict("DELTA_PATH_EXISTS")
                removed = [table.remove(path) for path in begun.files] if step.kind == "reset" else []
                return "WRITE", {"mode": "Append"}, metrics, [*removed, *actions]
            old = [row for row in table.rows(begun) if row[0] in touched]
            return spark._merged(table, begun, old, rows, touched)

        def write() -> None:
            session.write(spec.target_uri, make, creates=True)  # type: ignore[attr-defined]

        return PreparedStep(write, {"events": len(touched)})


# -- the driver -----------------------------------------------------------------------------------------
def execute(world: IngestWorld, spec: Any, session: IngestSession | None = None) -> JobResult:
    """Do what the driver does with a spec, or with a batch."""
    if isinstance(spec, BatchSpec):
        return JobResult("committed", parts=tuple(execute(world, part) for part in spec.parts))
    driver = world.hub.running
    try:
        if session is None:
            world.hub.step("start")
            session = IngestSession(world)
        if isinstance(spec, ReadSpec):
            return StagedSteps(session, spec).run()  # type: ignore[arg-type]
        if isinstance(spec, ApplySpec):
            return EventSteps(session, spec).run()  # type: ignore[arg-type]
        return _ingested(world, session, spec)
    except DeltaCdcError as error:
        return _failed(world, error)
    except (NoAnswer, delta.Missing, delta.Conflict, DamagedFile, NoRecords) as error:
        named = kafka.named(error, spec) if isinstance(spec, IngestSpec) else None
        return _failed(world, named or JobFailed(f"{type(error).__name__}: {error}", remedy="run again."))
    finally:
        world.reading.pop(driver.name, None)


def _failed(world: IngestWorld, error: DeltaCdcError) -> JobResult:
    reading = world.reading.get(world.hub.running.name)
    return JobResult("failed", message=str(error), error=error.to_dict(), reading=reading)


def _ingested(world: IngestWorld, session: IngestSession, spec: IngestSpec) -> JobResult:
    def reads(what: str) -> None:
        world.reading[world.hub.running.name] = what

    result = Steps(session, spec, None, reads).run()  # type: ignore[arg-type]
    if not spec.after or result.status not in ("committed", "skipped"):
        return result
    with world.phase("then"):
        return replace(result, then=tuple(apply_after(world, session, one) for one in spec.after))


def apply_after(world: IngestWorld, session: IngestSession, request: ApplyRequest) -> JobResult:
    """Plan and run the apply in the driver, as ``job.apply_after`` does."""
    services = Services(
        execute=lambda spec: execute(world, spec, session),
        say=lambda line: None,
        sleep=world.slept,
    )
    try:
        outcome = run_alone(Applying, request, services)
    except DeltaCdcError as error:
        return JobResult("failed", message=str(error), error=error.to_dict())
    return JobResult("committed" if outcome.applied else "skipped", counts=dict(outcome.counts))
