"""A world: a source, a target, pipelines under Airflow, and everything that may go wrong with them.

A :class:`Schedule` names all that happens beside the ordinary work; the same schedule always gives the same
world. :func:`play` raises :class:`~tests.simulator.oracle.Violation` if a rule is broken.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest import mock

import obstore

from delta_cdc.delta_log import requests as log_requests
from delta_cdc.planning import observe
from delta_cdc.run import loop as run_loop
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sealed import commit_files, steps
from tests.simulator import writers as writers_of
from tests.simulator.airflow import Airflow
from tests.simulator.delta import Table
from tests.simulator.hub import Hub, Loop, Process
from tests.simulator.oracle import MOVING, Judge, Past, Sealed, Violation, expected
from tests.simulator.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

#: The faults of a step, by the end of its name.
READS = {"head", "get", "list", "read_log", "hash", "read_source", "announced", "state_get", "backup_get"}
WRITES = {"commit", "state_set", "state_delete", "xcom", "backup_set", "success", "write_data"}


def faults_of(step: str) -> tuple[str, ...]:
    """Return the faults that a step may meet."""
    name = step.rpartition(".")[2]
    found = ["crash", "freeze"]
    if name in READS or name in WRITES:
        found.append("error")
    if name in WRITES - {"write_data"} or name == "answer":
        found.append("lost")
    if name == "get":
        found.append("short")
    if name == "commit":
        found.append("twice")
    return tuple(found)


@dataclass(frozen=True)
class Event:
    """Something that happens beside the ordinary work.

    :param at: the step at or after which it happens
    :param what: ``fault``, ``run``, ``source``, ``target`` or ``airflow``
    :param name: of the fault, of the operation or of the pipeline
    :param step: the end of the name of the step that meets a fault; "" for any step
    :param number: a number that the event uses as it likes
    """

    at: int
    what: str
    name: str
    step: str = ""
    number: int = 0

    def __str__(self) -> str:
        where = f" at {self.step or 'any step'}" if self.what == "fault" else ""
        return f"{self.what} {self.name}{where} ({self.number}) from step {self.at}"


@dataclass(frozen=True)
class Schedule:
    """All that is decided beforehand.

    :param kind: the target's kind: ``type1``, ``type2`` or ``append``
    :param scheme: of the bucket
    :param safe: the store refuses to create a commit file twice
    :param lag: see :class:`~tests.simulator.store.Store`
    """

    seed: int
    kind: str
    scheme: str
    events: tuple[Event, ...]
    safe: bool = True
    lag: int = 0
    versions_per_commit: int | None = None


class World:
    """See the module."""

    def __init__(self, schedule: Schedule, coverage: Counter[tuple[str, str]] | None = None) -> None:
        self.schedule = schedule
        self.random = Random(schedule.seed)
        self.hub = Hub(self.random, self._decide)
        self.store = Store(self.hub, schedule.lag)
        self.safe = schedule.safe
        self.coverage: Counter[tuple[str, str]] = Counter() if coverage is None else coverage
        self.story: list[str] = []
        self.pending = sorted(schedule.events, key=lambda event: event.at)
        self.faults: list[Event] = []
        self.timers: list[tuple[int, Callable[[], None]]] = []
        self._tables = {name: Table(self.store, name) for name in ("source", "target")}
        self.source, self.target = self._tables["source"], self._tables["target"]
        self.pasts: list[Past] = []
        self.kinds = {"p": schedule.kind, "q": schedule.kind}
        self.judge = Judge(self.target, self.pasts, self.kinds)
        self.damage: set[str] = set()
        self._ids = 0
        self.airflow = Airflow(self)
        writers = {"source": writers_of.Source(self), "target": writers_of.Others(self)}
        self._happen_to = {
            "run": self.airflow.run,
            "airflow": self.airflow.happen,
            **{name: writer.happen for name, writer in writers.items()},
        }

    # -- small things -----------------------------------------------------------------------------------
    def tell(self, text: str) -> None:
        self.story.append(f"{self.hub.steps:5} {text}")

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-0000-0000-{self._ids:012d}"

    def table(self, uri: str) -> Table:
        return self._tables[uri.rstrip("/").rpartition("/")[2]]

    def uri(self, name: str) -> str:
        return f"{self.schedule.scheme}://bucket/{name}"

    def committed(self, key: str, content: bytes) -> None:
        version = int(key.rpartition("/")[2].partition(".")[0])
        sealed = spark_seal(self.target, version)
        self.tell(f"{self.hub.running.name} commits version {version} of target{sealed}")

    def overwrites(self, key: str) -> None:
        if key in self.store.objects:
            self.damage.add("overwritten")
            self.coverage["target", "overwritten commit"] += 1
            self.tell(f"{self.hub.running.name} overwrites {key}")

    # -- faults -----------------------------------------------------------------------------------------
    def _decide(self, process: Process, step: str) -> str | None:
        fault = None
        name = step.rpartition(".")[2]
        for event in self.faults:
            if event.step not in ("", name, step) or event.name not in faults_of(step):
                continue
            fault = event.name
            self.faults.remove(event)
            self.tell(f"{fault} of {process.name} at {step}")
            if fault in ("crash", "freeze"):
                self._stopped(process, event)
            break
        self.coverage[step, fault or ""] += 1
        return fault

    def _stopped(self, process: Process, event: Event) -> None:
        """Let Airflow notice, after some steps, that a process has gone, and wake a frozen one."""
        if event.name == "freeze":
            self.later((event.number // 37) % 211, lambda: self._wake(process))
            if event.number % 2:
                self.later(1, lambda: self.airflow.lose_worker_of(process))
        self.later(event.number % 37, lambda: self.airflow.notice(process))

    def later(self, steps: int, call: Callable[[], None]) -> None:
        """Do something after some steps."""
        self.timers.append((self.hub.steps + steps, call))

    def _wake(self, process: Process) -> None:
        if process.frozen:
            process.frozen = False
            self.tell(f"{process.name} wakes")

    # -- the world's loop -------------------------------------------------------------------------------
    def advance(self, most: int = 6_000) -> None:
        """Go on until nothing is left to do."""
        for _ in range(most):
            self._fire(self.hub.steps)
            if any(process.can_run for process in self.hub.processes):
                ready = [process for process in self.hub.processes if process.can_run]
                process = ready[0] if len(ready) == 1 else self.random.choice(ready)
                self.hub.go(process)
                if isinstance(process.error, Violation):
                    raise process.error
                if process.error is not None:
                    # Those that the project or a service may raise, the process has handled.
                    text = f"{process.name} ends with {type(process.error).__name__}: {process.error}"
                    raise Violation(text) from process.error
                self.judge.look()
            elif not self._fire_next():
                return
        raise Violation(f"the world does not come to rest: {[p.name for p in self.hub.processes]}")

    def _fire(self, steps: int) -> None:
        while self.pending and self.pending[0].at <= steps:
            self._happen(self.pending.pop(0))
        for timer in [timer for timer in self.timers if timer[0] <= steps]:
            self.timers.remove(timer)
            timer[1]()

    def _fire_next(self) -> bool:
        times = [event.at for event in self.pending[:1]] + [at for at, _ in self.timers]
        if not times:
            return False
        self.hub.steps = max(self.hub.steps, min(times))
        self._fire(self.hub.steps)
        return True

    def _happen(self, event: Event) -> None:
        if event.what == "fault":
            self.faults.append(event)
            return
        self._happen_to[event.what](event)
        self.judge.look()

    # -- rules ------------------------------------------------------------------------------------------
    def check_published(self, pipeline: str, published: dict[str, Any]) -> None:
        """What was published must be what is sealed."""
        self.judge.look()
        if published["seal"] is None or "overwritten" in self.damage:
            return
        number, version = published["seal"], published["version"]
        found = [
            sealed
            for chain in self.judge.chains
            if (sealed := chain.last) is not None and sealed.pipeline == pipeline
            if (sealed.number, sealed.watermark) == (number, version)
        ]
        # A target that was made again has another log.
        if "target_gone" in self.damage:
            return
        if not found:
            raise Violation(f"published seal {number} with watermark {version}, which no commit has")
        if published["applied"]:
            self._check_counts(pipeline, published)

    def _check_counts(self, pipeline: str, published: dict[str, Any]) -> None:
        """Range and counts must be those of some sealed commits together."""
        chain = self.judge.chains[published["target_version"]]
        moving = [one for one in chain.made if one.kind in MOVING and one.pipeline == pipeline][-8:]
        wanted = published["starting_version"], published["ending_version"], _plain(published["counts"])
        sizes = range(1, len(moving) + 1)
        for some in (some for size in sizes for some in combinations(moving, size)):
            ranged = [one for one in some if one.kind != "load"] or some
            counts: Counter[str] = Counter()
            for one in some:
                counts.update(self._counts_of(one.version))
            start, end = min(one.start for one in ranged), max(one.end for one in ranged)
            if (start, end, _plain(counts)) == wanted:
                return
        raise Violation(f"published {wanted}, and the seals are {[(s.kind, s.start, s.end) for s in moving]}")

    def _counts_of(self, version: int) -> dict[str, int]:
        metrics = self.target.info(version)["operationMetrics"]
        names = {name: int(metrics[metric]) for metric, name in _METRICS.items() if metric in metrics}
        return names or {"inserted": int(metrics.get("numOutputRows", 0))}

    def check_announced(self, pipeline: str) -> None:
        """Each seal in effect must be announced."""
        chain = self.judge.now
        table_id = self.target.snapshot().metadata["id"]
        events = [
            event
            for event in self.airflow.events
            if event["pipeline"] == pipeline and event["target_table_id"] == table_id
        ]
        for sealed in chain.seals:
            if sealed.kind not in MOVING or sealed.pipeline != pipeline:
                continue
            if not any(_covers(event, sealed) for event in events):
                raise Violation(f"seal {sealed.number} ({sealed.kind} to {sealed.watermark}) not announced")

    def settle(self) -> None:
        """Run clean runs: the next one must lead out, for each pipeline that owns the target."""
        self.advance()
        self.faults.clear()
        self.store.lag = 0
        self.hub.steps += 1_000
        self._clean_run()
        for process in list(self.hub.processes):
            self._wake(process)
        self.advance()
        self._clean_run()
        self.check_announced(self._owner())

    def _owner(self) -> str:
        last = self.judge.now.last
        return "p" if last is None else last.pipeline

    def _clean_run(self) -> None:
        one = self.airflow.start(self._owner(), retries=0)
        self.advance()
        if one.state != "success":
            name = type(one.error).__name__
            if name not in self._excused():
                raise Violation(f"a clean run ends with {name}: {one.error}")
            one = self.airflow.start(self._owner(), mode="reset", retries=0)
            self.advance()
            if one.state != "success":
                raise Violation(f"a reset ends with {type(one.error).__name__}: {one.error}")
            self.damage.clear()
        chain, past = self.judge.now, self.pasts[-1]
        if chain.taint or chain.last is None or chain.last.pipeline != one.pipeline:
            raise Violation(f"after a clean run, the target is {chain}")
        moved = [
            version
            for version in range(chain.last.watermark + 1, len(past.states))
            if past.states[version] != past.states[version - 1]
        ]
        if self.judge.past_of(chain.last) is not past or moved:
            raise Violation(f"after a clean run, the watermark is {chain.last}, the source {past.states[-1]}")
        rows = sorted(self.target.rows(self.target.snapshot()), key=str)
        wanted = expected(past, self.schedule.kind, chain.seals[0].watermark, chain.last.watermark)
        if rows != wanted:
            raise Violation(f"after a clean run, the target has {rows}, the source {wanted}")

    def _excused(self) -> set[str]:
        excused = {name for damage in self.damage for name in _EXCUSED[damage]}
        if self.judge.now.taint:
            excused |= {"TargetReplaced", "TargetChangedUnderneath", "TargetWithoutWatermark"}
        return excused


#: The named errors that a clean run may end with after an accident, until a reset.
_EXCUSED = {
    "source_gone": {"SourceTableReplaced", "SourceHistoryChanged", "VersionsExpired"},
    "vacuumed": {"VersionsExpired"},
    "target_gone": set(),
    # Also if the restored version has the same rows.
    "restored": {"TargetChangedUnderneath"},
    "overwritten": {"TargetHistoryChanged", "TargetChangedUnderneath", "TargetReplaced"},
}


_METRICS = {
    "numTargetRowsInserted": "inserted",
    "numTargetRowsUpdated": "updated",
    "numTargetRowsDeleted": "deleted",
}


def _plain(counts: Mapping[str, int]) -> dict[str, int]:
    return {name: counts[name] for name in ("inserted", "updated", "deleted") if counts.get(name)}


def _covers(event: dict[str, Any], sealed: Any) -> bool:
    if event["seal"] < sealed.number:
        return False
    if sealed.kind != "apply":
        return True
    first, last = event["starting_version"], event["ending_version"]
    return first is not None and first <= sealed.start and sealed.end <= last


def spark_seal(table: Table, version: int) -> str:
    sealed = Sealed.of(table, version)
    if sealed is None:
        return ""
    return f": {sealed.kind} {sealed.start}-{sealed.end}, seal …{sealed.number % 10_000}"


class Inline:
    """An executor that runs its calls at once."""

    def __init__(self, *given: Any, **named: Any) -> None: ...

    def __enter__(self) -> Inline:
        return self

    def __exit__(self, *error: object) -> None: ...

    def submit(self, call: Callable[..., Any], *given: Any) -> Any:
        try:
            result = call(*given)
        except Exception as error:  # noqa: BLE001 - raised where the result is read
            failure = error

            def raised() -> Any:
                raise failure

            return SimpleNamespace(result=raised)
        return SimpleNamespace(result=lambda: result)


@contextmanager
def installed(world: World) -> Iterator[None]:
    """Let the world replace storage, threads, clock and sleeps, for the project's own code."""
    hub, store = world.hub, world.store

    async def head(store: Store, path: str) -> Any:
        return await store.head(path)

    async def get(store: Store, path: str) -> Any:
        return await store.get(path)

    async def get_range(store: Store, path: str, **given: int) -> bytes:
        return await store.get_range(path, **given)

    def opened(uri: str, options: Any = None) -> tuple[Store, str]:
        return store, uri.split("://", 1)[1].partition("/")[2]

    def asyncio_run(main: Any) -> Any:
        return Loop(hub).run(main)

    def hashed(session: Any, uri: str, version: int) -> str | None:
        found: str | None = session.hash_of(uri, version)
        return found

    with (
        mock.patch.multiple(
            obstore,
            head_async=head,
            get_async=get,
            get_range_async=get_range,
            list=lambda store, prefix=None, *, offset=None: store.list(prefix, offset=offset),
        ),
        mock.patch.object(log_requests, "open_bucket", opened),
        mock.patch.object(run_loop, "run_beside", lambda main: Loop(hub).run(main(Inline()))),
        mock.patch.object(run_loop, "random", world.random),
        mock.patch("asyncio.run", asyncio_run),
        mock.patch.object(observe, "time", SimpleNamespace(time_ns=lambda: hub.now * 1_000_000)),
        mock.patch.object(steps, "ThreadPoolExecutor", Inline),
        mock.patch.object(steps, "commit_hash", hashed),
        mock.patch.object(feed, "commit_hash", hashed),
        mock.patch.object(commit_files, "commit_hash", hashed),
        mock.patch.object(commit_files, "_exists", lambda session, uri, v: session.exists(uri, v)),
    ):
        yield


def play(schedule: Schedule, coverage: Counter[tuple[str, str]] | None = None) -> World:
    """Play a schedule to its end, and then clean runs.

    :raises Violation: a rule is broken; ``world`` is set on the error
    """
    world = World(schedule, coverage)
    with installed(world):
        try:
            world.settle()
        except Exception as error:
            error.world = world  # type: ignore[attr-defined]
            raise
    return world
