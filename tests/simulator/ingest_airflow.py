"""Airflow for ingests: what the operator of an ingest does, and what people do to its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import JobFailed
from delta_cdc.delta_log.actions import BadActionError
from delta_cdc.run.batch import PipelineJob, pipeline_job, run_batch, since_key
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from tests.simulator import ingest_spark
from tests.simulator.airflow import Airflow, Plans

if TYPE_CHECKING:
    from delta_cdc.core.errors import DeltaCdcError
    from tests.simulator.airflow import DagRun
    from tests.simulator.ingest_world import IngestWorld
    from tests.simulator.world import Event

#: Errors of the simulator's own code, which the flow would otherwise name.
_OWN = (AssertionError, AttributeError, IndexError, KeyError, LookupError, NameError, TypeError, ValueError)


class IngestAirflow(Airflow):
    """The runs of all pipelines; each one ingests, and the pipeline p also applies if there is a target."""

    world: IngestWorld

    def run(self, event: Event) -> None:
        """Start a run of a pipeline, if none is active; ``p.replay`` replays its quarantine."""
        pipeline, _, mode = event.name.partition(".")
        if not self._is_active(pipeline):
            self.start(pipeline, mode=mode or "incremental", retries=event.number % 4)

    def _operate(self, one: DagRun) -> dict[str, Any]:
        """Do what the operator of an ingest does; for the pipeline s, what its consumer does."""
        if one.pipeline == "s":
            return self.world.consumer.run(self, one)
        plans = Plans(self.world, one)
        work = self._work(one, plans)
        services = Services(execute=self.executed, say=lambda line: None, sleep=self.slept)
        outcomes = run_batch(self._jobs(work), services, run_id=one.run_id)
        for error in (outcome.error for outcome in outcomes):
            self._refuse_own(error)
            if error is not None:
                raise error
        self.world.hub.running.phase = "publish"
        of_ingest = next((outcome.ingested for outcome in outcomes if outcome.ingested is not None), None)
        of_apply = next((outcome.applied for outcome in outcomes if outcome.applied is not None), None)
        ingested = of_ingest.to_dict() if of_ingest is not None else None
        applied = of_apply.to_dict() if of_apply is not None else None
        self.request("xcom")
        one.xcom = {"ingested": ingested, "applied": applied}
        copied = of_apply.backup if of_apply is not None else None
        if not self.asks("backup_set") and copied is not None:
            self.backups[one.pipeline] = copied
        if work.apply is not None:
            plans.delete(since_key(work.apply))
        for result in (of_ingest, of_apply):
            if result is not None:
                forget_saved_plans(result, plans)
        moved = [result for result in (ingested, applied) if result is not None and result["applied"]]
        return {
            "pipeline": one.pipeline,
            "applied": bool(moved),
            "starting_version": moved[0]["seal"] if moved else None,
            "ending_version": moved[-1]["seal"] if moved else None,
            "ingest": ingested,
            "apply": applied,
        }

    def _jobs(self, work: PipelineJob) -> list[PipelineJob]:
        """Return the jobs of a run: one, or that of the apply and that of the ingest for which it waits."""
        if not self.world.schedule.beside or work.ingest is None or work.apply is None:
            return [work]
        return [replace(work, ingest=None), replace(work, apply=None)]

    def _work(self, one: DagRun, plans: Plans) -> PipelineJob:
        schedule, world = self.world.schedule, self.world
        is_settled = world.is_settling
        limits: dict[str, Any] = {}
        if schedule.limit is not None and not is_settled and one.mode != "replay":
            limits = {"max_offsets" if schedule.source == "topic" else "max_files": schedule.limit}
        source = world.sources[one.pipeline]
        given: dict[str, Any] = {
            "pipeline": one.pipeline,
            "source": source,
            "log": world.uri("log"),
            "target": world.uri("target") if schedule.target and one.pipeline == "p" else None,
            "keys": "id",
            "schema": "id BIGINT, value BIGINT, eid STRING",
            "adapter_options": {"operation_column": "op", "sequence_by": "seq"},
            "lexical_order": schedule.ordered,
            "replay": one.mode == "replay",
            "on_expired": "continue" if world.continues else "fail",
            **limits,
        }
        job = pipeline_job(given, run_id=one.run_id, kafka_options={"client.id": "simulated"})
        return PipelineJob(
            ingest=job.ingest,
            apply=job.apply,
            saved_plans=plans,
            backup=lambda: None if self.asks("backup_get") else self.backups.get(one.pipeline),
            announced=lambda table, uri, table_id, number: self._announced_of(one.pipeline, table, table_id),
        )

    def _refuse_own(self, error: DeltaCdcError | None) -> None:
        cause = error.__cause__ if error is not None else None
        if isinstance(cause, _OWN) and not isinstance(cause, BadActionError):
            raise cause

    def _announced_of(self, pipeline: str, table: str, table_id: str) -> int | None:
        if self.asks("announced"):
            return None
        for event in reversed(self.events):
            found = event["ingest" if table == "log" else "apply"]
            if event["pipeline"] != pipeline or found is None or not found["applied"]:
                continue
            if table == "log" and not found["counts"].get("events"):
                continue
            if found[f"{table}_table_id"] == table_id:
                return int(found["seal"])
        return None

    def execute(self, spec: Any) -> Any:
        """Run a spec in the driver."""
        return ingest_spark.execute(self.world, spec)

    def executed(self, spec: Any) -> Any:
        """Run a job; after its death, say what it read, as the launcher does."""
        hub = self.world.hub
        name = f"{hub.running.name}'s job"
        try:
            return super().executed(spec)
        except JobFailed as error:
            error.reading = self.world.reading.pop(name, None)
            raise
