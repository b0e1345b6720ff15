"""A group of two pipelines: the provider's own tasks, and what Airflow does between them.

The tasks are those of the provider, without Airflow's start of a task: ``detect_changes``, ``run_spark``, one
``apply`` for each table with work, and ``publish``. Their order and trigger rules are those of the DAG.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

from airflow_delta_cdc import announced, metrics, publishing
from airflow_delta_cdc.groups import detect_changes, publish, run_spark, table
from delta_cdc.run.loop import Services
from tests.simulator.oracle import MOVING, Violation
from tests.simulator.patches import replaced

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulator.airflow import DagRun
    from tests.simulator.lane import Lane
    from tests.simulator.world import Event, World

_NAME = "g"
_ARGUMENTS: dict[str, dict[str, Any]] = {
    "type1": {"keys": ["id"]},
    "type2": {"keys": ["id"], "stored_as_scd_type": 2},
    "append": {"insert_only": True},
}


@dataclass
class Messages:
    """The XComs of a run, by task and key: those of a mapped task are one list."""

    world: World
    values: dict[tuple[str, str], Any] = field(default_factory=dict)
    task: str = ""
    index: int = -1
    try_number: int = 1

    def of(self, task: str, index: int = -1) -> Messages:
        return Messages(self.world, self.values, task, index)

    def xcom_push(self, key: str, value: Any) -> None:
        self.world.airflow.request("xcom")
        # As Airflow does: the database has JSON.
        value = json.loads(json.dumps(value))
        if self.index >= 0:
            self.values.setdefault((self.task, key), {})[self.index] = value
        else:
            self.values[self.task, key] = value

    def xcom_pull(self, task_ids: str, key: str = "return_value", map_indexes: Any = None) -> Any:
        self.world.airflow.request("xcom")
        found = self.values.get((task_ids, key))
        mapped = task_ids == "apply"
        return [found[index] for index in sorted(found)] if mapped and found is not None else found


class Outlets:
    """The events that a task adds; Airflow stores them with its success."""

    def __init__(self) -> None:
        self.added: list[dict[str, Any]] = []

    def __getitem__(self, alias: Any) -> Outlets:
        return self

    def add(self, asset: Any, extra: dict[str, Any]) -> None:
        self.added.append(json.loads(json.dumps(extra)))


@dataclass
class GroupRun:
    """One run of the group's DAG: what is done, and what comes next."""

    number: int
    messages: Messages
    states: dict[str, str] = field(default_factory=dict)

    @property
    def ended(self) -> bool:
        return bool(self.states) and "running" not in self.states.values()


class Group:
    """The group of the pipelines of all lanes.

    :param events: the events of the group's asset, oldest first
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.runs: list[GroupRun] = []
        self.events: list[dict[str, Any]] = []
        # A manifest on a disk needs a real file lock.
        self.manifest = "gs://bucket/manifests/g.json"
        self._seen: dict[str, Any] = {}
        tables = [self._arguments(lane) for lane in world.lanes]
        self._detection = self._task(detect_changes.DetectChangesOperator, tables=tables)

    def run(self, event: Event) -> None:
        """Start a run, if none is active."""
        if all(run.ended for run in self.runs):
            self.start(retries=event.number % 3)

    def start(self, retries: int = 2) -> GroupRun:
        run = GroupRun(len(self.runs) + 1, Messages(self.world))
        self.runs.append(run)
        self._begin(run, "detect_changes", retries, lambda one: self._detect(run, one))
        return run

    # -- the DAG ----------------------------------------------------------------------------------------
    def _begin(
        self, run: GroupRun, task: str, retries: int, operate: Callable[[DagRun], Any], label: str = ""
    ) -> None:
        run.states[label or task] = "running"

        def ended(one: DagRun) -> None:
            run.states[label or task] = one.state
            self._next(run, task, retries)

        name = f"{_NAME}{run.number}.{label or task}"
        self.world.airflow.begin(name, f"dag/{_NAME}-{run.number}", retries, operate, ended)

    def _next(self, run: GroupRun, task: str, retries: int) -> None:
        """Begin what follows a task."""
        states, work = run.states, run.messages.values.get(("detect_changes", "return_value"), [])
        applies = [f"apply{index}" for index in range(len(work))]
        if task == "detect_changes" and states[task] == "success":
            self._begin(run, "run_spark", retries, lambda one: self._run_spark(run, one))
        elif task == "run_spark":
            for index, name in enumerate(applies):
                self._begin(run, "apply", retries, self._applying(run, index), name)
        last = task in ("run_spark", "apply") and "publish" not in states
        ended = [states.get(name) for name in ("detect_changes", "run_spark", *applies)]
        if last and all(state == "success" for state in ended):
            self._begin(run, "publish", retries, lambda one: self._publish(run, one))

    # -- the tasks --------------------------------------------------------------------------------------
    def _detect(self, run: GroupRun, one: DagRun) -> Any:
        messages = run.messages.of("detect_changes")
        found = self._detection.execute(self._context(run, one, messages))
        messages.xcom_push("return_value", found)
        return None

    def _run_spark(self, run: GroupRun, one: DagRun) -> Any:
        work = run.messages.values.get(("detect_changes", "return_value"), [])
        given = {"work": work, "detection": "detect_changes", "parallel": 1}
        task = self._task(run_spark.RunSparkOperator, **given)
        messages = run.messages.of("run_spark")
        messages.xcom_push("return_value", task.execute(self._context(run, one, messages)))
        return None

    def _applying(self, run: GroupRun, index: int) -> Callable[[DagRun], Any]:
        def operate(one: DagRun) -> Any:
            item = run.messages.values["detect_changes", "return_value"][index]
            lane = self.world.lane_of(item["pipeline"])
            task = self._task(
                table.ApplyTableOperator,
                item=item,
                detection="detect_changes",
                run_spark="run_spark",
                table=self._arguments(lane),
                pipeline=item["pipeline"],
            )
            context = self._context(run, one, run.messages.of("apply", index))
            context["ti"].try_number, one.of = one.tries, item["pipeline"]
            published = task.execute(context)
            one.outlets = context["outlet_events"].added
            return published

        return operate

    def _publish(self, run: GroupRun, one: DagRun) -> Any:
        given = {"detections": ["detect_changes"], "applies": ["apply"], "manifest": self.manifest}
        task = self._task(publish.PublishOperator, **given)
        self.world.hub.running.phase = "publish"
        context = self._context(run, one, run.messages.of("publish"))
        versions = task.execute(context)
        events = context["outlet_events"].added
        for event in events:
            self._check_versions(event["tables"])

        def stored() -> None:
            self.events.extend(events)
            self.world.tell(f"{self.world.hub.running.name} announces {len(events)}: {_shown(versions)}")

        one.when_stored = stored
        return None

    def _context(self, run: GroupRun, one: DagRun, messages: Messages) -> dict[str, Any]:
        return {
            "ti": messages,
            "run_id": f"{_NAME}-{run.number}",
            "inlet_events": {},
            "outlet_events": Outlets(),
            "task_state_store": self.world.airflow.plans(one),
        }

    def _task(self, kind: type[Any], **given: Any) -> Any:
        """Return a task as Airflow would run it, without Airflow's own start."""
        task = object.__new__(kind)
        quiet = SimpleNamespace(info=_ignored, warning=_ignored, debug=_ignored, exception=_ignored)
        task.__dict__.update(
            _cached_logger=quiet,
            _BaseOperator__init_kwargs={},
            inlets=[],
            outlets=[],
            do_xcom_push=True,
            approval=None,
            fingerprint="",
            group=_NAME,
            pipelines=[lane.pipelines[0] for lane in self.world.lanes],
            application=self._application,
            connected=dict,
            options_of_kafka=lambda: None,
            options_of_storage=lambda: None,
            rendered=lambda given, *rest, **how: dict(given),
            get_template_env=lambda *given: None,
            work_id=lambda context: f"dag/{context['run_id']}",
            form=lambda context: SimpleNamespace(
                date_interval=None,
                explicit=False,
                mode="incremental",
                arguments={},
                tables=self._names(),
                with_sources=False,
            ),
            **given,
        )
        return task

    def _names(self) -> list[str]:
        return [lane.pipelines[0] for lane in self.world.lanes]

    @contextmanager
    def _application(self, context: Any) -> Iterator[Any]:
        yield self.world.airflow.executed

    def _arguments(self, lane: Lane) -> dict[str, Any]:
        return {
            "pipeline": lane.pipelines[0],
            "source": self.world.uri(lane.source.name),
            "target": self.world.uri(lane.target.name),
            **_ARGUMENTS[lane.kind],
        }

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Let the tasks find each other, and the events of this world."""

        def events(key: Any, most: int) -> list[Any]:
            if self.world.airflow.asks("announced"):
                raise ConnectionError("simulated: no events")
            name = getattr(key, "name", str(key))
            found = self.events if name == publish.group_asset(_NAME).name else self._of(name)
            return [SimpleNamespace(extra=extra) for extra in reversed(found[-most:])]

        detecting = {"detecting": lambda task, task_id: self._detection}
        with (
            mock.patch.dict(Services.__init__.__kwdefaults__, sleep=self.world.airflow.slept),
            replaced(
                (announced, {"newest_events": events, "has_newest_events": lambda: True}),
                (run_spark, detecting),
                (table, detecting),
                (publish, detecting),
                (metrics, {"emit_lag": _ignored}),
                (publishing, {"emit_run": _ignored, "partition_events": _ignored}),
            ),
        ):
            yield

    def _of(self, alias: str) -> list[dict[str, Any]]:
        names = {announced.pipeline_alias(name).name: name for name in self._names()}
        return [event for event in self.world.airflow.events if names.get(alias) == event["pipeline"]]

    # -- rules ------------------------------------------------------------------------------------------
    def _check_versions(self, tables: dict[str, Any]) -> None:
        """Each version of a publish must have the watermark that stands beside it."""
        for pipeline, entry in tables.items():
            lane = self.world.lane_of(pipeline)
            lane.judge.look()
            if lane.damage & {"target_gone", "target_put_back", "overwritten"} or lane.judge.overwritten:
                continue
            chain = lane.judge.chains[entry["target_version"]]
            last = chain.last
            known = entry["version"] is not None and not chain.taint
            if known and (last is None or last.watermark != entry["version"]):
                raise Violation(f"a publish names {entry}, and the target has {last}")

    def look(self) -> None:
        """Check the manifest, if it is new: it never goes back, and it is a publish."""
        found = self.world.store.objects.get("manifests/g.json")
        if found is None or self._seen.get("tag") == found.e_tag:
            return
        tables = json.loads(found.content)["tables"]
        self._check_versions(tables)
        for name, entry in tables.items():
            before = self._seen.get("tables", {}).get(name)
            same = before is not None and before["table_id"] == entry["table_id"]
            if same and entry["target_version"] < before["target_version"]:
                raise Violation(f"the manifest goes back from {before} to {entry}")
        self._seen = {"tag": found.e_tag, "tables": tables}

    def check_clean(self) -> None:
        """Run the group: one table's failure does not stop the others, and the publish names them all."""
        run = self.start(retries=0)
        self.world.advance()
        failed = []
        for lane in self.world.lanes:
            name = lane.pipelines[0]
            if lane.owner != name:
                failed.append(name)
                continue
            errors = [
                type(one.error).__name__
                for one in self.world.airflow.runs
                if (one.group_run, one.of, one.state) == (f"dag/{_NAME}-{run.number}", name, "failed")
            ]
            if errors and not set(errors) <= lane.excused():
                raise Violation(f"a clean run of the group: {name} ends with {errors}")
            if errors:
                failed.append(name)
            else:
                lane.check_clean(name)
                lane.check_announced(name, self.world.airflow.stored)
        if not failed and run.states.get("publish") != "success":
            raise Violation(f"a clean run of the group ends with {run.states}")
        if not failed:
            self._check_event()

    def _check_event(self) -> None:
        """The newest event names the newest state of each table, with the seals that were announced."""
        if not self.events:
            raise Violation("the group announced nothing")
        tables = self.events[-1]["tables"]
        for lane in self.world.lanes:
            entry, last = tables.get(lane.pipelines[0]), lane.judge.now.last
            if last is None or entry is None or entry["version"] is None:
                raise Violation(f"the group's event is {tables}, and a target has {last}")
            # A commit that log cleanup deleted before it was announced can be announced no more.
            kept = [one for one in lane.judge.now.seals if one.version >= len(lane.target.cleaned)]
            # A pipeline that had taken the target over has announced its own ones.
            name = lane.pipelines[0]
            moving = [one.number for one in kept if one.kind in MOVING and one.pipeline == name]
            if entry["seals"].get("target", -1) < max(moving, default=-1):
                raise Violation(f"the group's event has the seals {entry['seals']}, and the target {last}")


def _shown(versions: dict[str, Any]) -> str:
    return ", ".join(f"{name} {one['version']} in {one['target_version']}" for name, one in versions.items())


def _ignored(*given: Any, **named: Any) -> None: ...
