"""A consumer of the change log: it stages batches, delivers them into a sink of its own, and commits them.

The plans, the flows and the seals of reads and commits are the project's own code. The sink keeps a batch by
its first version, so a delivery that comes again replaces the one before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_cdc.core.options import QueryOptions
from delta_cdc.core.requests import CommitRequest, ReadRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from delta_cdc.spark.sealed.steps import SealedSteps
from delta_cdc.spark.staging import PreparedRows, ReadSteps, _adds
from tests.simulator import delta
from tests.simulator.airflow import Plans, Reset
from tests.simulator.ingest_frames import value_of
from tests.simulator.ingest_oracle import Batch
from tests.simulator.oracle import Violation

if TYPE_CHECKING:
    from delta_cdc.core.spec import JobResult
    from delta_cdc.core.steps import Step
    from tests.simulator.airflow import DagRun
    from tests.simulator.ingest_airflow import IngestAirflow
    from tests.simulator.ingest_world import IngestWorld

Rows = list[Any]


class StagedSteps(ReadSteps):
    """The steps of a read, or of a commit, with rows that are read here."""

    session: Any

    def run(self) -> JobResult:
        return SealedSteps.run(self)

    def logs(self, step: Step) -> list[str]:
        return []

    def prepare(self, step: Step) -> PreparedRows:
        session, spec = self.session, self.spec
        if step.kind in ("complete", "commit"):
            rows: Rows = []
            replaces = False
        else:
            session.step("read_source")
            log = session.world.table(spec.source_uri)
            versions = (step.starting_version, step.ending_version)
            rows = log.rows(log.snapshot(step.at)) if step.read.begins else added(log, *versions)
            replaces = not _adds(spec, step)

        def make(table: delta.Table, begun: delta.Snapshot) -> delta.Written:
            actions = [table.add(rows)] if rows else []
            metrics = {"numOutputRows": len(rows), "numFiles": len(actions)}
            if begun.version < 0:
                created = table.created(session.world.new_id(), {})
                return "WRITE", {"mode": "Overwrite"}, metrics, [*created, *actions]
            if step.planned_on is None:
                raise delta.Conflict("DELTA_PATH_EXISTS")
            if replaces:
                removed = [table.remove(path) for path in begun.files]
                return "WRITE", {"mode": "Overwrite"}, metrics, [*removed, *actions]
            return "WRITE", {"mode": "Append"}, metrics, actions

        def write() -> None:
            with session.of.phase("staging"):
                session.write(spec.staging_uri, make, blind=not replaces, creates=True)

        return PreparedRows(write)

    def counted(self, step: Step, prepared: PreparedRows, version: int) -> dict[str, int]:
        return {}


def added(log: delta.Table, first: int, last: int) -> Rows:
    """Return the rows that versions of a log added."""
    actions = [action for version in range(first, last + 1) for action in log.actions(version)]
    adds = [action["add"] for action in actions if action.get("add", {}).get("dataChange")]
    return [row for add in adds for row in log.read(add["path"])]


@dataclass
class Consumer:
    """The task of the consumer, and its sink.

    :param sink: first version of a batch -> its last version, and its rows
    :param seen: the commits of staging that were checked
    """

    world: IngestWorld
    sink: dict[int, tuple[int, Rows]] = field(default_factory=dict)
    seen: int = 0

    def run(self, airflow: IngestAirflow, one: DagRun) -> dict[str, Any]:
        """Read, deliver and commit, as the three tasks of such a DAG do."""
        world, plans = self.world, Plans(self.world, one)
        places: dict[str, Any] = {"pipeline": "s", "staging": world.uri("staging"), "run_id": one.run_id}
        services = Services(
            execute=airflow.executed, saved_plans=plans, say=lambda line: None, sleep=airflow.slept
        )
        read = ReadRequest(
            source=world.uri("log"),
            target=None,
            options=QueryOptions("append_only"),
            versions_per_commit=world.schedule.versions_per_commit,
            **places,
        )
        batch = run(read, services)
        if batch.staging_version is not None:
            assert batch.versions is not None
            self._deliver(*batch.versions.__dict__.values(), batch.staging_version)
            world.hub.running.phase = "plan"
            commit = CommitRequest(ending_version=batch.versions.ending_version, **places)
            run(commit, Services(execute=airflow.executed, say=lambda line: None, sleep=airflow.slept))
        world.hub.running.phase = "publish"
        airflow.request("xcom")
        moved = batch.staging_version is not None
        one.xcom = {"ingested": {**batch.to_dict(), "applied": moved}, "applied": None}
        forget_saved_plans(batch, plans)
        nothing = {"pipeline": "s", "applied": False, "ingest": None, "apply": None}
        return {**nothing, "starting_version": None, "ending_version": None}

    def _deliver(self, first: int, last: int, at: int) -> None:
        hub, staging = self.world.hub, self.world.staging
        hub.running.phase = "deliver"
        if hub.step("read_log") == "error":
            raise Reset("simulated: staging does not answer")
        rows = staging.rows(staging.snapshot(at))
        if hub.step("commit") == "error":
            raise Reset("simulated: the sink does not answer")
        self.world.tell(f"{hub.running.name} delivers versions {first}-{last}: {len(rows)} rows")
        self.sink[first] = last, rows

    # -- rules ------------------------------------------------------------------------------------------
    def look(self) -> None:
        """What staging says of its deliveries is never ahead of the sink."""
        staging = self.world.staging
        while staging.key(self.seen) in self.world.store.objects:
            sealed = Batch.of(staging, self.seen)
            if sealed is not None and sealed.kind == "commit":
                self._check(self._committed_up_to(self.seen))
            self.seen += 1

    def _committed_up_to(self, version: int) -> int:
        import json

        seal = json.loads(self.world.staging.info(version)["userMetadata"])
        return int(seal["state"]["applied_to"]["version"])

    def _check(self, end: int) -> None:
        log = self.world.log
        last = -1
        while last < end:
            first = min((one for one in self.sink if one > last), default=None)
            if first is None or (last >= 0 and first != last + 1):
                raise Violation(
                    f"staging has committed version {end}, and the sink {last}: {sorted(self.sink)}"
                )
            begins = last < 0
            last, rows = self.sink[first]
            wanted = log.rows(log.snapshot(last)) if begins else added(log, first, last)
            if sorted(map(value_of, rows)) != sorted(map(value_of, wanted)):
                raise Violation(f"the sink has {rows} of versions {first}-{last}, the log has {wanted}")

    def check_end(self) -> None:
        """After a clean run, the sink has all events of the log."""
        log, last = self.world.log, max((last for last, _ in self.sink.values()), default=-1)
        if log.newest < 0:
            return
        self._check(last)
        if missing := added(log, last + 1, log.newest):
            raise Violation(f"after a clean run, the sink lacks {missing}")
