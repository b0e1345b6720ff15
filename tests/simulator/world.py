"""A world: a source, a target, pipelines under Airflow, and everything that may go wrong with them.

A :class:`Schedule` names all that happens beside the ordinary work; the same schedule always gives the same
world. :func:`play` raises :class:`~tests.simulator.oracle.Violation` if a rule is broken.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
from collections import Counter
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import obstore

from delta_cdc.delta_log import log_files
from delta_cdc.delta_log import requests as log_requests
from delta_cdc.planning import observe
from delta_cdc.run import apply as run_apply
from delta_cdc.run import detect_changes, publication, rounds
from delta_cdc.run import ingest as run_ingest
from delta_cdc.run import loop as run_loop
from delta_cdc.spark.changes import feed
from delta_cdc.spark.sealed import commit_files, steps
from tests.simulator import aside, memo
from tests.simulator import writers as writers_of
from tests.simulator.airflow import Airflow
from tests.simulator.delta import Table
from tests.simulator.hub import Hub, Loop, Process
from tests.simulator.lane import Lane
from tests.simulator.oracle import Sealed, Violation
from tests.simulator.patches import replaced
from tests.simulator.store import Folder, Store

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator
    from pathlib import Path

    from tests.simulator.airflow import DagRun
    from tests.simulator.group import Group
    from tests.simulator.promises import Promise

#: The faults of a step, by the end of its name.
READS = {
    *("head", "get", "list", "read_log", "hash", "read_source", "announced", "state_get", "backup_get"),
    "offsets",
}
WRITES = {"commit", "state_set", "state_delete", "xcom", "backup_set", "success", "write_data", "put"}


#: One in so many schedules has more clean runs after the first ones, though no process is left to wake.
_AGAIN = 4
#: How an error names the version to go back to.
_RESTORE = re.compile(r"RESTORE the (?:table|target) to version (\d+)")
#: Requests to the store, which may be throttled.
REQUESTS = {"head", "get", "list", "put", "read_log", "hash", "read_source", "write_data", "commit"}


def faults_of(step: str, schedule: Schedule | Promise | None = None) -> tuple[str, ...]:
    """Return the faults that a step may meet.

    :param schedule: with the promise of its store; None: of any store
    """
    name = step.rpartition(".")[2]
    found = ["crash", "freeze"]
    if name in READS or name in WRITES:
        found.append("error")
    if name in WRITES - {"write_data"} or name == "answer":
        found.append("lost")
    if name == "get":
        found.append("short")
    if name in REQUESTS:
        found.append("throttle")
    if name == "commit":
        found.append("twice")
        if schedule is None or schedule.torn:
            found.append("torn")
    if name == "list" and (schedule is None or schedule.stale):
        found.append("stale")
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

    :param kind: the target's kind: ``type1``, ``type2`` or ``append``; or ``log``, which has two sources
    :param scheme: of the bucket
    :param safe: the store refuses to create a commit file twice
    :param lag: see :class:`~tests.simulator.store.Store`
    :param torn, stale: see :class:`~tests.simulator.promises.Promise`
    :param forgiving: the policies reload a target if source or target were replaced, or versions expired
    :param aside: some keys are invalid, and the target has a quarantine
    :param replays: people change the rule by which keys are invalid, replay the quarantine, and repair
    :param gaps: leave out worlds that run into a known gap
    :param group: a second source and target, and a group of both pipelines
    """

    seed: int
    kind: str
    scheme: str
    events: tuple[Event, ...]
    safe: bool = True
    lag: int = 0
    versions_per_commit: int | None = None
    torn: bool = False
    stale: bool = False
    forgiving: bool = False
    group: bool = False
    aside: bool = False
    replays: bool = False
    gaps: bool = True


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
        self.lanes = [Lane(self.store, schedule.kind, ("p", "q"))]
        if schedule.group:
            self.lanes.append(Lane(self.store, "type1", ("r",), "2"))
        if schedule.kind == "log":
            self.lanes.append(Lane(self.store, "log", ("r",), "2", self.lanes[0].target))
        self._tables = {table.name: table for lane in self.lanes for table in (lane.source, lane.target)}
        self.source, self.target = self.lanes[0].source, self.lanes[0].target
        #: The rule that sets rows aside is in force.
        self.sets_aside = schedule.aside
        # A take-over looks for a quarantine, even if the pipeline has none.
        quarantine = Table(self.store, "target__quarantine")
        self._tables[quarantine.name] = quarantine
        if schedule.aside:
            self.lanes[0].judge.replays = schedule.replays
            self.lanes[0].judge.aside = quarantine
        self._ids = 0
        #: The store's number of changes at the last look.
        self._looked = -1
        self.airflow = Airflow(self)
        writers = {
            "source": writers_of.Source(self, self.lanes[0]),
            "target": writers_of.Others(self),
            "quarantine": aside.Others(self),
            "rule": aside.Rule(self),
        }
        self.group: Group | None = None
        if schedule.group:
            # Only now: Airflow takes seconds to import.
            from tests.simulator.group import Group

            self.group = Group(self)
        if len(self.lanes) > 1:
            writers["source2"] = writers_of.Source(self, self.lanes[1])
        self._happen_to = {
            "run": self.airflow.run,
            "airflow": self.airflow.happen,
            "form": self.airflow.form,
            **{name: writer.happen for name, writer in writers.items()},
        }
        if self.group is not None:
            self._happen_to["group"] = self.group.run

    # -- small things -----------------------------------------------------------------------------------
    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Name the steps of the running process while the ``with`` block runs."""
        process = self.hub.running
        before, process.phase = process.phase, name
        try:
            yield
        finally:
            process.phase = before

    def tell(self, text: str) -> None:
        self.story.append(f"{self.hub.steps:5} {text}")

    def new_id(self) -> str:
        self._ids += 1
        return f"00000000-0000-0000-0000-{self._ids:012d}"

    def table(self, uri: str) -> Table:
        return self._tables[uri.rstrip("/").rpartition("/")[2]]

    def uri(self, name: str) -> str:
        return f"{self.schedule.scheme}://{'/' if self.schedule.scheme == 'file' else ''}bucket/{name}"

    def lane_of(self, what: Table | str) -> Lane:
        """Return the lane of a table or of a pipeline."""
        return next(one for one in self.lanes if what in (one.source, one.target, *one.pipelines))

    def committed(self, key: str, content: bytes) -> None:
        version, table = int(key.rpartition("/")[2].partition(".")[0]), self._tables[key.partition("/")[0]]
        sealed = "" if table is self.lanes[0].judge.aside else spark_seal(table, version)
        self.tell(f"{self.hub.running.name} commits version {version} of {table.name}{sealed}")
        self.hub.running.committed.append(key)

    def overwrites(self, key: str) -> None:
        if key in self.store.objects:
            lane = self.lane_of(self._tables[key.partition("/")[0]])
            lane.damage.add("overwritten")
            lane.lose(int(key.rpartition("/")[2].partition(".")[0]))
            self.coverage["target", "overwritten commit"] += 1
            self.tell(f"{self.hub.running.name} overwrites {key}")
            if self.is_in_steps(key):
                lane.judge.hidden = True

    def is_in_steps(self, key: str) -> bool:
        """Return whether a job goes on that wrote a commit, or any commit of a table.

        A known gap (BETWEEN): the next step of the job takes whatever commit is there now for its own.
        """
        return any(one.startswith(key) for process in self.hub.processes for one in process.committed)

    # -- faults -----------------------------------------------------------------------------------------
    def _decide(self, process: Process, step: str) -> str | None:
        fault = None
        name = step.rpartition(".")[2]
        for event in self.faults:
            if event.step not in ("", name, step) or event.name not in faults_of(step, self.schedule):
                continue
            fault = event.name
            self.faults.remove(event)
            self.tell(f"{fault} of {process.name} at {step}")
            if fault in ("crash", "freeze"):
                self._stopped(process, event)
            elif fault == "throttle":
                self.store.throttled = self.hub.steps + 2 + event.number % 60
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

    def look(self) -> None:
        """Check the commits that are new."""
        changes = self.store.objects.changes
        if self._looked == changes:
            return
        self._looked = changes
        for lane in self.lanes:
            lane.judge.look()
        if self.group is not None:
            self.group.look()

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
            ready = self.hub.ready
            if ready:
                process = ready[0] if len(ready) == 1 else self.random.choice(ready)
                self.hub.go(process)
                if isinstance(process.error, Violation):
                    raise process.error
                if process.error is not None:
                    # Those that the project or a service may raise, the process has handled.
                    text = f"{process.name} ends with {type(process.error).__name__}: {process.error}"
                    raise Violation(text) from process.error
                self.look()
            elif not self._fire_next():
                return
        raise Violation(f"the world does not come to rest: {[p.name for p in self.hub.processes]}")

    def _fire(self, steps: int) -> None:
        while self.pending and self.pending[0].at <= steps:
            self._happen(self.pending.pop(0))
        if self.timers:
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
        self.look()

    # -- rules ------------------------------------------------------------------------------------------
    def check_published(self, pipeline: str, published: dict[str, Any]) -> None:
        """What a run published must be what is sealed."""
        self.lane_of(pipeline).check_published(pipeline, published)

    def settle(self) -> None:
        """Run clean runs: the next one must lead out, for each pipeline that owns a target."""
        self.advance()
        self.faults.clear()
        self.store.lag = self.store.tear = self.store.throttled = 0
        self.hub.steps += 1_000
        if any(lane.judge.hidden for lane in self.lanes) and self.schedule.gaps:
            return
        self._clean_runs()
        if not self.hub.processes and self.schedule.seed % _AGAIN:
            return
        for process in list(self.hub.processes):
            self._wake(process)
        self.advance()
        if any(lane.judge.hidden for lane in self.lanes) and self.schedule.gaps:
            return
        self._clean_runs()

    def _clean_runs(self) -> None:
        # The group comes first: it has more to do then.
        if self.group is not None:
            self.group.check_clean()
        for lane in self.lanes:
            self._clean_run(lane)
            lane.check_announced(lane.owner, self.airflow.stored)

    def _clean_run(self, lane: Lane) -> None:
        one = self._led_out(lane, take_over_from=lane.predecessor)
        if one.state != "success":
            name = type(one.error).__name__
            if name not in lane.excused():
                raise Violation(f"a clean run ends with {name}: {one.error}")
            # A log has the events of other sources, too: it is moved away, and all sources are loaded.
            is_log = lane.kind == "log"
            one = self._made_again(lane, one.error) if is_log else self._led_out(lane, mode="reset")
            if one.state != "success":
                raise Violation(f"a reset ends with {type(one.error).__name__}: {one.error}")
            lane.damage.clear()
        elif lane.judge.aside is not None and lane.is_behind:
            # An earlier try had written the quarantine, and its end was used again.
            one = self._led_out(lane)
        if lane.judge.replays:
            self._replay(lane)
        lane.check_clean(one.pipeline)

    def _made_again(self, lane: Lane, error: BaseException | None) -> DagRun:
        version = _RESTORE.search(str(error))
        if version is not None:
            self._happen(Event(0, "target", "restore", number=int(version[1])))
            one = self._led_out(lane, take_over_from=lane.predecessor)
            if one.state == "success":
                return one
        self._happen(Event(0, "target", "drop"))
        return self._led_out(lane)

    def _replay(self, lane: Lane) -> None:
        """Give up the rule, and replay what it has set aside."""
        self._happen(Event(0, "rule", "loosen"))
        if lane.judge.aside is not None and lane.judge.aside.newest >= 0:
            one = self._led_out(lane, mode="replay")
            if one.state != "success" and "vacuumed" in lane.damage:
                # The source cannot be read as of the watermark any more.
                one = self._led_out(lane, mode="reset")
            if one.state != "success":
                raise Violation(f"a replay ends with {type(one.error).__name__}: {one.error}")

    def _led_out(self, lane: Lane, **given: Any) -> DagRun:
        """Run; if the target refuses a row, correct the source, and run as the error says."""
        one = self.airflow.start(lane.owner, retries=0, **given)
        self.advance()
        if type(one.error).__name__ != "TargetConstraintViolated":
            return one
        self._happen(Event(0, "source", "cure"))
        if "mode='reload'" in str(one.error) and lane.target.newest >= 0 and "mode" not in given:
            given["mode"] = "reload"
        one = self.airflow.start(lane.owner, retries=0, **given)
        self.advance()
        return one


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


class _Surprises(logging.Handler):
    """Keeps the errors that a job only logs, and that no fault explains."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = sys.exc_info()[1]
        if isinstance(error, AssertionError | AttributeError | LookupError | NameError | TypeError):
            self.found.append(f"{record.getMessage()}: {error!r}")


@contextmanager
def without_surprises() -> Iterator[None]:
    """Fail at the end of a block if a job logged an error of the code, as one of a step after its commit."""
    surprises, logger = _Surprises(), logging.getLogger(steps.__name__)
    logger.addHandler(surprises)
    try:
        yield
    finally:
        logger.removeHandler(surprises)
    if surprises.found:
        raise Violation(surprises.found[0])


@contextmanager
def installed(world: World) -> Iterator[None]:
    """Let the world replace storage, threads, clock and sleeps, for the project's own code."""
    hub = world.hub
    clock = SimpleNamespace(time_ns=lambda: hub.now * 1_000_000)

    def asyncio_run(main: Any) -> Any:
        return Loop(hub).run(main)

    def beside(main: Any) -> Any:
        return Loop(hub).run(main(Inline()))

    def hashed(session: Any, uri: str, version: int) -> str | None:
        found: str | None = session.hash_of(uri, version)
        return found

    def own_hash(session: Any, uri: str, version: int, fingerprint: str) -> tuple[str | None, bool]:
        found: tuple[str | None, bool] = session.own_hash_of(uri, version, fingerprint)
        return found

    async def uncounted(*given: Any, **more: Any) -> None:
        """Count no rows in quarantine: the number is for people, and an error of the look passes."""

    with (
        memo.kept(),
        _storage(world.store),
        aside.installed(),
        replaced(
            *((module, {"held": uncounted}) for module in (run_apply, run_ingest, detect_changes)),
            (asyncio, {"run": asyncio_run}),
            (run_loop, {"run_beside": beside, "random": world.random}),
            (rounds, {"run_beside": beside}),
            (observe, {"time": clock}),
            (publication, {"time": clock}),
            (steps, {"ThreadPoolExecutor": Inline, "own_commit_hash": own_hash, "commit_hash": hashed}),
            (feed, {"commit_hash": hashed}),
            (
                commit_files,
                {"commit_hash": hashed, "_exists": lambda session, uri, v: session.exists(uri, v)},
            ),
        ),
    ):
        yield


def _left_over(store: Store, folder: Path) -> bool:
    """Answer as the reader does for an object store."""
    store.request("list")
    table = f"{folder.name}/"
    found = store.listed(table, None, stale=False)

    async def pages() -> AsyncGenerator[list[log_requests.Entry]]:
        yield [
            log_requests.Entry(key.removeprefix(table), len(one.content), one.modified) for key, one in found
        ]

    try:
        # Nothing in it waits.
        log_files._stored_left_over(pages()).send(None)
    except StopIteration as end:
        return bool(end.value)
    raise AssertionError("a listing that waits")


@contextmanager
def _storage(store: Store) -> Iterator[None]:
    """Let the store answer the log's reader, for locations of object stores and of disks."""

    def on_disk(uri: str) -> Folder:
        return Folder(store, f"{uri.rpartition('/')[2]}/")

    def scanned(folder: Path, after: str | None, take: Callable[[log_requests.Entry], None]) -> None:
        table = f"{folder.parent.name}/"
        prefix = f"{table}{folder.name}/"
        stale = store.request("list") == "stale"
        found = store.listed(prefix, None if after is None else prefix + after, stale=stale)
        for key, one in found:
            take(log_requests.Entry(key.removeprefix(table), len(one.content), one.modified))

    async def head(store: Store | Folder, path: str) -> Any:
        return await store.head(path)

    async def get(store: Store | Folder, path: str, *, options: Any = None) -> Any:
        return await store.get(path, (options or {}).get("range"))

    async def put(store: Store, path: str, content: Any, **given: Any) -> None:
        await store.put(path, content, **given)

    def listed(store: Store, prefix: str | None = None, *, offset: str | None = None) -> Any:
        return store.list(prefix, offset=offset)

    def bucket(uri: str, options: Any = None) -> tuple[Store, str]:
        return store, _path(uri)

    with replaced(
        (obstore, {"head_async": head, "get_async": get, "put_async": put, "list": listed}),
        (log_requests, {"open_bucket": bucket, "open_store": on_disk, "_scan": scanned}),
        (log_files, {"_local_left_over": lambda folder: _left_over(store, folder)}),
    ):
        yield


def _path(uri: str) -> str:
    return uri.split("://", 1)[1].partition("/")[2]


def play(schedule: Schedule, coverage: Counter[tuple[str, str]] | None = None) -> World:
    """Play a schedule to its end, and then clean runs.

    :raises Violation: a rule is broken; ``world`` is set on the error
    """
    world = World(schedule, coverage)
    with installed(world), nullcontext() if world.group is None else world.group.installed():
        try:
            with without_surprises():
                world.settle()
        except Exception as error:
            error.world = world  # type: ignore[attr-defined]
            raise
    return world
