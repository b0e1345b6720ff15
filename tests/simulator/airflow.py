"""Airflow: runs of a task, its tries, its stores and its events, and what people do to them.

A task does what the operator of an apply does: run the flow, push its XCom, copy the watermark, forget the
saved plans. Its events are stored together with its success, as Airflow stores them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, JobFailed
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from tests.simulator import spark

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.hub import Process
    from tests.simulator.world import Event, World

_OPTIONS = {
    "type1": ApplyOptions(keys=("id",)),
    "type2": ApplyOptions(keys=("id",), stored_as_scd_type=2),
    "append": ApplyOptions(keys=(), insert_only=True),
    "log": ApplyOptions(keys=("id",), target_kind="change_log", sequence_by="_commit_timestamp"),
}


@cache
def _options(kind: str, *, is_aside: bool) -> ApplyOptions:
    """Return the options of a target: the same ones each time, so that what follows from them is known."""
    return replace(_OPTIONS[kind], on_invalid="quarantine" if is_aside else "fail")


_POLICIES = ("on_source_replaced", "on_versions_expired", "on_target_replaced")


class Reset(Exception):
    """Airflow's API gave no answer."""


@dataclass(eq=False)
class DagRun:
    """One run of a pipeline's task, with what Airflow keeps of it."""

    pipeline: str
    number: int
    mode: str = "incremental"
    retries: int = 2
    take_over_from: str | None = None
    tries: int = 0
    state: str = "running"
    current: Process | None = None
    plans: dict[str, dict[str, Any]] = field(default_factory=dict)
    error: BaseException | None = None
    xcom: dict[str, Any] = field(default_factory=dict)
    # Of a task of a group:
    name: str = ""
    group_run: str = ""
    of: str = ""
    operate: Callable[[DagRun], Any] | None = None
    when_ended: Callable[[DagRun], None] | None = None
    when_stored: Callable[[], None] | None = None
    outlets: list[dict[str, Any]] = field(default_factory=list)

    @property
    def run_id(self) -> str:
        return self.group_run or f"dag/run-{self.number}/{self.pipeline}"

    def end(self, state: str) -> None:
        """Set the last state; what follows in the DAG begins."""
        self.state = state
        if self.when_ended is not None:
            self.when_ended(self)


class Airflow:
    """The runs of all pipelines, and what Airflow stores of them.

    :param runs: oldest first
    :param events: the published dicts of the tasks that announced their target, oldest first, as far as
        Airflow still has them
    :param stored: all that it ever had
    :param backups: the copy of the newest seal, by pipeline
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs: list[DagRun] = []
        self.events: list[dict[str, Any]] = []
        self.stored: list[dict[str, Any]] = []
        self.backups: dict[str, Any] = {}
        self.first_backup: Any = None

    def run(self, event: Event) -> None:
        """Start a run of a pipeline, if none is active."""
        if not self._is_active(event.name):
            self.start(event.name, retries=event.number % 3)

    def start(
        self,
        pipeline: str,
        *,
        mode: str = "incremental",
        retries: int = 2,
        take_over_from: str | None = None,
    ) -> DagRun:
        one = DagRun(pipeline, len(self.runs) + 1, mode, retries, take_over_from)
        self.runs.append(one)
        self._try(one)
        return one

    def notice(self, process: Process) -> None:
        """Try again what a process did that Airflow misses."""
        for one in self.runs:
            if one.current is process and one.state == "running" and (process.dead or process.frozen):
                self._again(one, f"Airflow misses {process.name}")

    def begin(
        self,
        name: str,
        run_id: str,
        retries: int,
        operate: Callable[[DagRun], Any],
        ended: Callable[[DagRun], None],
    ) -> None:
        """Start a task of a group."""
        one = DagRun("", len(self.runs) + 1, retries=retries, name=name, group_run=run_id)
        one.operate, one.when_ended = operate, ended
        self.runs.append(one)
        self._try(one)

    def plans(self, one: DagRun) -> Plans:
        """Return the task state store of a run."""
        return Plans(self.world, one)

    def form(self, event: Event) -> None:
        """Start a run by its form: with another mode, or of the pipeline that takes a target over."""
        lane = self.world.lanes[0]
        if lane.kind == "log" and lane.judge.now.owned is None:
            # Two names of a source that is not in the log are two sources.
            return
        name, others = lane.owner, [one for one in lane.pipelines if one != lane.owner]
        if event.name == "take_over":
            pipeline, mode, predecessor = others[0], "incremental", name
        else:
            by_key = lane.kind != "append"
            mode = event.name if by_key or event.name == "reset" else "reset"
            pipeline, predecessor = name, None
        if not self._is_active(pipeline):
            self.world.coverage["airflow", event.name] += 1
            self.world.tell(f"airflow: {event.name} by {pipeline}")
            self.start(pipeline, mode=mode, retries=event.number % 3, take_over_from=predecessor)

    def happen(self, event: Event) -> None:
        """Do what a person, or an accident of Airflow's own, does to a run."""
        runs = [one for one in self.runs if event.name != "clear" or one.state != "running"]
        if not runs:
            return
        one = runs[-1 - event.number % min(2, len(runs))]
        self.world.coverage["airflow", event.name] += 1
        self.world.tell(f"airflow: {event.name} of run {one.number}")
        getattr(self, f"_{event.name}")(one, event.number)

    # -- what happens to a run --------------------------------------------------------------------------
    def _mark_success(self, one: DagRun, number: int) -> None:
        if one.state == "running":
            self._killed(one)
        one.end("success")

    def _kill_worker(self, one: DagRun, number: int) -> None:
        """Kill the process of a task, at a step or while it waits for its job, which lives on."""
        if one.state == "running" and one.current is not None and not one.current.ended:
            process = one.current
            self._killed(one)
            self.world.later(number % 37, lambda: self.notice(process))

    def lose_worker_of(self, job: Process) -> None:
        """Kill the task that waits for a job."""
        for one in self.runs:
            if one.current is not None and one.current.waits_for is job:
                self.world.tell(f"{one.current.name} is killed")
                self._kill_worker(one, 0)

    def _killed(self, one: DagRun) -> None:
        if one.current is not None:
            one.current.dead = True
            if one.current in self.world.hub.processes:
                self.world.hub.processes.remove(one.current)

    def _clear(self, one: DagRun, number: int) -> None:
        if self._is_active(one.pipeline):
            return
        one.state, one.tries = "running", 0
        if number % 2:
            one.plans.clear()
        self._try(one)

    def _lose_store(self, one: DagRun, number: int) -> None:
        one.plans.clear()
        self.backups.clear()

    def _duplicate(self, one: DagRun, number: int) -> None:
        if one.state == "running":
            name = f"{one.name or f'{one.pipeline}{one.number}'}.copy"
            self.world.hub.spawn(name, lambda: self._task(one), "plan")

    def _edit_plan(self, one: DagRun, number: int) -> None:
        for key, plan in one.plans.items():
            if not isinstance(plan, dict):
                one.plans[key] = number
                continue
            plan["ending_version"] = number % 7
            if number % 3 == 0:
                plan["fingerprints"] = []

    def _edit_backup(self, one: DagRun, number: int) -> None:
        """Put an older copy of the watermark into the store, or another value."""
        copy = self.backups.get(one.pipeline)
        if copy is not None:
            self.backups[one.pipeline] = self.first_backup if number % 2 else {"seal": number}

    def _lose_events(self, one: DagRun, number: int) -> None:
        """Delete the events, as a cleanup of Airflow's database does."""
        del self.events[: len(self.events) if number % 2 else 1]

    def _edit_xcom(self, one: DagRun, number: int) -> None:
        """Edit what a run has published; of the events, nothing can be edited."""
        one.xcom = dict.fromkeys(one.xcom, number)

    def _clock(self, one: DagRun, number: int) -> None:
        """Set the clock forward, or back, by hours: less than any retention."""
        self.world.hub.now += (number % 60 - 10) * 3_600_000

    # -- tries ------------------------------------------------------------------------------------------
    def _is_active(self, pipeline: str) -> bool:
        return any(one.state == "running" and one.pipeline == pipeline for one in self.runs)

    def _try(self, one: DagRun) -> None:
        one.tries += 1
        name = f"{one.name or f'{one.pipeline}{one.number}'}.{one.tries}"
        one.current = self.world.hub.spawn(name, lambda: self._task(one), "plan")
        self.world.tell(f"{name} starts")

    def _again(self, one: DagRun, why: str) -> None:
        if one.tries <= one.retries:
            self.world.tell(f"{why}: retry")
            self._try(one)
        else:
            self.world.tell(f"{why}: the run fails")
            one.end("failed")

    def _task(self, one: DagRun) -> None:
        """Do the work of a try, and what Airflow does with its end."""
        process, world = self.world.hub.running, self.world
        try:
            published = self._operate(one) if one.operate is None else one.operate(one)
            self.request("success")
        except (DeltaCdcError, Reset) as error:
            one.error = error
            world.tell(f"{process.name} fails: {type(error).__name__}: {str(error)[:110]}")
            self._failed(one, error)
            return
        if one.current is not process or one.state != "running":
            world.tell(f"{process.name} succeeds, and Airflow refuses it")
            return
        one.error = None
        if one.when_stored is not None:
            one.when_stored()
        one.end("success")
        if published is None:
            world.tell(f"{process.name} succeeds")
            return
        moved = f"versions {published['starting_version']}-{published['ending_version']}"
        world.tell(f"{process.name} succeeds: {moved if published['applied'] else 'nothing'}")
        added = [published] if one.operate is None and published["applied"] else one.outlets
        self.events += added
        self.stored += added
        world.check_published(published["pipeline"], published)

    def _failed(self, one: DagRun, error: DeltaCdcError | Reset) -> None:
        if one.current is not self.world.hub.running or one.state != "running":
            return
        if isinstance(error, Reset) or error.retryable:
            self._again(one, "it may be tried again")
        else:
            one.end("failed")

    def _operate(self, one: DagRun) -> dict[str, Any]:
        """Do what the operator of an apply does."""
        plans = Plans(self.world, one)
        services = Services(
            execute=lambda spec: self.executed(spec),
            saved_plans=plans,
            backup=lambda: None if self.asks("backup_get") else self.backups.get(one.pipeline),
            announced=lambda table, uri, table_id, number: self._announced(one.pipeline, uri, table_id),
            say=lambda line: None,
            sleep=self.slept,
        )
        outcome = run(self._applying(one), services)
        self.world.hub.running.phase = "publish"
        published = outcome.to_dict()
        self.request("xcom")
        one.xcom = dict(published)
        if not self.asks("backup_set") and outcome.backup is not None:
            self.backups[one.pipeline] = outcome.backup
            self.first_backup = self.first_backup or outcome.backup
        forget_saved_plans(outcome, plans)
        return published

    def _applying(self, one: DagRun) -> ApplyRequest:
        schedule, onwards = self.world.schedule, one.mode == "incremental"
        lane = self.world.lane_of(one.pipeline)
        policy: Any = "reload" if schedule.forgiving and lane.kind == "type1" else None
        policies = {} if policy is None else dict.fromkeys(_POLICIES, policy)
        return ApplyRequest(
            pipeline=one.pipeline,
            source=self.world.uri(lane.source.name),
            target=self.world.uri(lane.target.name),
            options=_options(lane.kind, is_aside=schedule.aside),
            run_id=one.run_id,
            mode="repair" if one.mode == "replay" else one.mode,  # type: ignore[arg-type]
            repair_quarantined=one.mode == "replay",
            discard_history=one.mode == "reset" and lane.kind == "type2",
            versions_per_commit=schedule.versions_per_commit if onwards else None,
            take_over_from=one.take_over_from if onwards else None,
            **policies,
        )

    def execute(self, spec: Any) -> Any:
        """Run a spec in the driver."""
        return spark.execute(self.world, spec)

    def executed(self, spec: Any) -> Any:
        """Run a job in a process of its own, which lives on if the task dies."""
        hub = self.world.hub
        process = hub.running
        process.phase = "task"
        hub.step("submit")
        driver = hub.spawn(f"{process.name}'s job", lambda: self.execute(spec), "job")
        hub.wait(driver)
        if driver.error is not None:
            raise driver.error
        fault = hub.step("answer")
        process.phase = "confirm"
        if driver.dead or fault == "lost":
            raise JobFailed("The application died without a result.", remedy="run again.")
        return driver.result

    def slept(self, seconds: float) -> None:
        self.world.hub.running.phase = "plan"
        self.world.hub.step("sleep")
        self.world.hub.now += int(seconds * 1000)

    def _announced(self, pipeline: str, uri: str, table_id: str) -> int | None:
        if self.asks("announced"):
            return None
        for event in reversed(self.events):
            of = (event["pipeline"], event["target_table"], event["target_table_id"])
            if of == (pipeline, uri, table_id) and event["seal"] is not None:
                return int(event["seal"])
        return None

    def asks(self, name: str) -> bool:
        """Return whether a request failed that the provider survives."""
        return self.world.hub.step(name) in ("error", "lost")

    def request(self, name: str) -> None:
        """Send a request whose failure fails the task; a lost answer is repeated by the client."""
        if self.world.hub.step(name) == "error":
            raise Reset(f"simulated: no answer to {name}")


@dataclass
class Plans:
    """The task state store, which the tries of a run share."""

    world: World
    one: DagRun

    def get(self, key: str) -> dict[str, Any] | None:
        if self.world.hub.step("state_get") == "error":
            raise Reset("simulated: no answer to state_get")
        return self.one.plans.get(key)

    def set(self, key: str, value: dict[str, Any]) -> None:
        if self.world.hub.step("state_set") == "error":
            raise Reset("simulated: no answer to state_set")
        self.one.plans[key] = value

    def delete(self, key: str) -> None:
        if self.world.hub.step("state_delete") == "error":
            raise Reset("simulated: no answer to state_delete")
        self.one.plans.pop(key, None)
