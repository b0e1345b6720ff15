"""A world of ingests: files or a topic, a change log with its record and its quarantine, and a target.

The planner, the flow, the order of a batch, and every comparison with the log are the project's own code.
The faults of steps and Airflow's accidents are those of :mod:`tests.simulator.world`.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import obstore

from delta_cdc.core.errors import TableNotFound
from delta_cdc.core.spec import SourceFile
from delta_cdc.planning import file_listing, taken_files
from delta_cdc.planning import ingest as planning_ingest
from delta_cdc.planning import quarantine as planning_quarantine
from delta_cdc.planning.topics import Looks
from delta_cdc.run import rounds
from delta_cdc.spark import quarantine
from delta_cdc.spark.ingest import engine, events, ingested, redelivery
from tests.simulator import ingest_frames, ingest_spark
from tests.simulator.aside import settling_here
from tests.simulator.delta import Table
from tests.simulator.hub import Hub, Loop
from tests.simulator.ingest_airflow import IngestAirflow
from tests.simulator.ingest_oracle import LogJudge, TargetJudge
from tests.simulator.ingest_records import UNREADABLE, Folder, Records, Topic
from tests.simulator.ingest_staging import Consumer
from tests.simulator.ingest_tables import Tables
from tests.simulator.oracle import Sealed, Violation
from tests.simulator.patches import replaced
from tests.simulator.store import Store, Stored
from tests.simulator.world import Inline, Schedule, World, installed, without_surprises

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from delta_cdc.delta_log.requests import Storage
    from tests.simulator.airflow import DagRun
    from tests.simulator.hub import Process
    from tests.simulator.ingest_oracle import Place
    from tests.simulator.world import Event

#: What the remedy of such an error says.
_RESTORE = re.compile(r"RESTORE the (?:table|target) to version (\d+)")
_MOVING = ("ingest", "replay")
_MOVING_TARGET = ("load", "apply", "reload", "reset")
#: More than the runs that any schedule leaves work for.
_RUNS = 12


@dataclass(frozen=True)
class IngestSchedule(Schedule):
    """All that is decided beforehand.

    :param source: ``files`` or ``topic``
    :param target: the pipeline p also applies the log to a target
    :param beside: that apply is a job of its own, as if of another pipeline, in the batch of the ingest
    :param ordered: the names of files only grow, and the ingest uses that
    :param limit: the most files, or offsets, of a run
    :param etags: the store has etags
    :param continues: a run goes on without records that the topic dropped
    :param staging: another pipeline stages the log, and delivers its batches
    """

    source: str = "files"
    target: bool = False
    beside: bool = False
    ordered: bool = False
    limit: int | None = None
    etags: bool = True
    continues: bool = False
    staging: bool = False

    @property
    def text(self) -> str:
        """Return what the schedule has beside its events."""
        given = {
            "target": self.target and not self.beside,
            "target beside": self.beside,
            "staging": self.staging,
            "ordered": self.ordered,
            f"limit {self.limit}": self.limit is not None,
            "no etags": not self.etags,
            "on_expired=continue": self.continues,
            f"lag {self.lag}": bool(self.lag),
        }
        return ", ".join(
            [f"{self.source} on {self.scheme}", *(name for name, is_so in given.items() if is_so)]
        )


class IngestWorld(World):
    """See the module."""

    schedule: IngestSchedule
    airflow: IngestAirflow
    judge: LogJudge

    def __init__(self, schedule: IngestSchedule, coverage: Counter[tuple[str, str]] | None = None) -> None:
        self.schedule = schedule
        self.random = Random(schedule.seed)
        self.hub = Hub(self.random, self._decide)
        self.store = Store(self.hub, schedule.lag)
        self.safe = schedule.safe
        self.coverage = Counter() if coverage is None else coverage
        self.story = []
        self.pending = sorted(schedule.events, key=lambda event: event.at)
        self.faults = []
        self.timers = []
        self.lanes = []
        self.group = None
        names = ("log", "log__ingested", "log__quarantine", "target", "staging")
        self._tables = {name: Table(self.store, name) for name in names}
        self.log, self.record, self.quarantine, self.target, self.staging = self._tables.values()
        self.damage: set[str] = set()
        #: A table's log or files were damaged, so that its rows prove nothing any more.
        self.record_lost = self.quarantine_lost = False
        self.corrected = False
        self.is_settling = False
        self.continues = schedule.continues
        #: The name of a job's process -> what it reads.
        self.reading: dict[str, str] = {}
        #: The jobs that ran while another one committed to the log, and the batches that may set a record
        #: aside once more: the quarantine comes before the commit, and that of a batch without a commit does
        #: not count. So such a job, or one that runs while a batch is open, cannot compare all of it.
        self._racing: set[Process] = set()
        self.raced: set[tuple[str, int]] = set()
        self._adding: dict[tuple[str, int], set[str]] = {}
        self._ids = 0
        records = Records()
        self.topic = Topic(self, records)
        self.folders = {"p": Folder(self, "landing", records), "q": Folder(self, "other", records)}
        is_topic = schedule.source == "topic"
        self.sources = {
            "p": "kafka://broker:9092/t" if is_topic else self.uri("landing"),
            "q": self.uri("other"),
        }
        self.judge = LogJudge(self)
        self.target_judge = TargetJudge(self)
        self.consumer = Consumer(self)
        self.airflow = IngestAirflow(self)
        self._happen_to = {
            "run": self.airflow.run,
            "airflow": self.airflow.happen,
            "files": self.folders["p"].happen,
            "others_files": self.folders["q"].happen,
            "topic": self.topic.happen,
            "adapter": self._correct,
            "tables": Tables(self).happen,
        }

    # -- small things -----------------------------------------------------------------------------------
    def key_of(self, uri: str) -> str:
        return uri.rpartition("/bucket/")[2]

    def slept(self, seconds: float) -> None:
        """Sleep inside of a job."""
        self.hub.step("sleep")
        self.hub.now += int(seconds * 1000)

    def committed(self, key: str, content: bytes) -> None:
        table, _, name = key.partition("/_delta_log/")
        job = self.hub.running
        if table == "log":
            self._racing.update(process for process in self.hub.processes if process is not job)
        elif table == "log__quarantine" and (batch := _batch_of(content)):
            in_effect = {one.key for one in self.judge.now.batches}
            others = {(row["pipeline"], row["seal"]) for row in self.judge.quarantined()} - {batch}
            if job in self._racing or others - in_effect:
                self.raced.add(batch)
        elif table == "log__quarantine":
            self._note_missing(content)
        self.tell(
            f"{self.hub.running.name} commits version {int(name[:20])} of {table}{_sealed_text(content)}"
        )
        self.target_judge.look()
        self.consumer.look()

    def _note_missing(self, content: bytes) -> None:
        """Note who adds missing records of a batch; if two do at once, each may add the same ones."""
        actions = [json.loads(line) for line in content.splitlines()]
        added = [action["add"]["path"] for action in actions if "add" in action]
        for row in [row for path in added for row in self.quarantine.read(path)]:
            batch = (row["pipeline"], row["seal"])
            self._adding.setdefault(batch, set()).add(self.hub.running.name)
            if len(self._adding[batch]) > 1:
                self.raced.add(batch)

    def look(self) -> None:
        self.judge.look()

    def _correct(self, event: Event) -> None:
        self.corrected = True
        self.tell("the adapter is corrected")

    # -- what was delivered -----------------------------------------------------------------------------
    def delivered(self, place: Place) -> Counter[str]:
        """Return every record that a place ever had, and how often at most."""
        key, offset = place
        if offset:
            return Counter(self.topic.past.get((int(key.partition("/")[2]), int(offset)), ()))
        return self._folder(key).allowed(key)

    def _folder(self, key: str) -> Folder:
        return self.folders["q" if key.startswith("other/") else "p"]

    def readable(self) -> dict[Place, Counter[str] | None]:
        """Return the records that can be read now, by their places; None for a file that cannot."""
        found: dict[Place, Counter[str] | None] = {}
        for folder in self.folders.values():
            for key in folder.keys:
                content = self.store.objects[key].content
                is_damaged = content.startswith(UNREADABLE)
                found[key, ""] = None if is_damaged else Counter(content.decode().splitlines())
        if self.schedule.source == "topic":
            for number, one in enumerate(self.topic.partitions):
                found |= {(f"t/{number}", str(at)): Counter([record]) for at, record in one.records.items()}
        return found

    # -- rules ------------------------------------------------------------------------------------------
    def check_published(self, pipeline: str, published: dict[str, Any]) -> None:
        """What was published must be what is sealed."""
        self.judge.look()
        if published["ingest"] is not None:
            self._check_ingest(pipeline, published["ingest"])
        if published["apply"] is not None:
            self._check_apply(published["apply"])

    def _check_ingest(self, pipeline: str, found: dict[str, Any]) -> None:
        if found["seal"] is None or "log_dropped" in self.damage:
            return
        chains = [[one for one in chain.batches if one.pipeline == pipeline] for chain in self.judge.chains]
        if not any(mine and mine[-1].number == found["seal"] for mine in chains):
            raise Violation(f"published batch {found['seal']}, which no commit has")
        if not found["applied"]:
            return
        moving = {one.number: one for mine in chains for one in mine if one.kind in _MOVING}
        last = moving.pop(found["seal"])
        others = [one for one in moving.values() if one.number < last.number][-7:]
        matches = 0
        for some in (some for size in range(len(others) + 1) for some in combinations(others, size)):
            counts: Counter[str] = Counter()
            for one in (*some, last):
                counts.update(one.counts)
            if dict(counts) == found["counts"]:
                matches += 1
                self.judge.covered |= {(pipeline, found["log_table_id"], one.number) for one in (*some, last)}
        if not matches:
            raise Violation(f"published {found['counts']} for batch {last.number}: {last}, {others}")

    def _check_apply(self, found: dict[str, Any]) -> None:
        if found["seal"] is None:
            return
        seals = [Sealed.of(self.target, version) for version in range(self.target.newest + 1)]
        if not any(
            one is not None and (one.number, one.watermark) == (found["seal"], found["version"])
            for one in seals
        ):
            raise Violation(f"published seal {found['seal']} with watermark {found['version']}: {seals}")

    def check_announced(self) -> None:
        """Each batch with events must be announced, and each commit of the target."""
        if self.log.newest < 0 or "log_dropped" in self.damage:
            return
        table_id = self.log.snapshot().metadata["id"]
        for one in self.judge.now.batches:
            is_due = one.kind in _MOVING and one.counts.get("events")
            if is_due and (one.pipeline, table_id, one.number) not in self.judge.covered:
                raise Violation(f"batch {one.number} of {one.pipeline} was not announced: {one.counts}")
        announced = [event["apply"] for event in self.airflow.stored if event["apply"]]
        for version in range(self.target.newest + 1):
            sealed = Sealed.of(self.target, version)
            if sealed is None or sealed.kind not in _MOVING_TARGET:
                continue
            if not any(_covers(event, sealed) for event in announced if event["applied"]):
                raise Violation(f"seal {sealed.number} of the target was not announced: {sealed}")

    # -- the end ----------------------------------------------------------------------------------------
    def settle(self) -> None:
        """Run clean runs: they must lead out, and then nothing may be lost."""
        self.advance()
        self.faults.clear()
        self.store.lag = self.store.throttled = 0
        self.hub.steps += 1_000
        self.is_settling = True
        self._drain()
        if "over" not in self.damage and self.hub.processes:
            for process in list(self.hub.processes):
                self._wake(process)
            self.advance()
            self._drain()
        if "over" not in self.damage:
            self._replay()
            self.check_announced()

    @property
    def _pipelines(self) -> list[str]:
        # The target has to have what the other pipeline added, too.
        has_other = any(event.what == "others_files" for event in self.schedule.events)
        found = ["q", "p"] if has_other else ["p"]
        return [*found, "s"] if self.schedule.staging else found

    def _drain(self) -> None:
        """Run until there is nothing to do."""
        is_done = False
        while not is_done:
            is_done = True
            for pipeline in self._pipelines:
                is_done &= self._drained(pipeline)
                if "over" in self.damage:
                    return
        self.judge.check_twice(self.judge.now)
        self.judge.check_lost()
        self._check_target()
        if self.schedule.staging:
            self.consumer.check_end()

    def _drained(self, pipeline: str) -> bool:
        """Run a pipeline until it has nothing to do.

        :return: False if an error had to be led out of: a RESTORE of the log takes back what others ingested
        """
        if pipeline == "s" and self.log.newest < 0:
            return True
        failed = 0
        for _ in range(_RUNS):
            one = self._clean_run(pipeline)
            failed += one.state != "success"
            if "over" in self.damage:
                return True
            if one.state == "success" and not (one.xcom["ingested"] or {}).get("applied"):
                return not failed
        raise Violation(f"{pipeline} never ends: {one.xcom}, {one.error}")

    def _clean_run(self, pipeline: str, mode: str = "incremental") -> DagRun:
        one = self.airflow.start(pipeline, mode=mode, retries=3)
        self.advance()
        if one.state != "success":
            name = type(one.error).__name__
            if not self._led_out(name, one.error):
                raise Violation(f"a clean run of {pipeline} ends with {name}: {one.error}")
        elif (taint := self.judge.now.taint.get(pipeline)) is not None:
            raise Violation(f"a clean run of {pipeline} does not notice: {taint}")
        return one

    def _led_out(self, name: str, error: BaseException | None) -> bool:
        """Do what the remedy of a named error says; return False if the error has no reason."""
        if name == "TopicReplaced" and "topic_gone" in self.damage:
            self.damage.add("over")
        elif name == "OffsetsExpired" and "expired" in self.damage and not self.continues:
            self.continues = True
        elif name == "TargetChangedUnderneath" and self.damage & {"restored", "log_dropped"}:
            # The version before the commit that was planned on another state.
            named = _RESTORE.search(str(error))
            assert named is not None, error
            Tables(self).restore_to(self.log, int(named[1]))
        elif name in ("SourceUnreadable", "NoEventYet") and self.log.newest < 0:
            # The columns of the log are unknown: one file has to be readable.
            self.folders["p"].put("landing/g0000.json", [self.folders["p"].records.line(0)], "delivered")
            if "delete " in str(error):
                Tables(self).dropped(self.record)
        else:
            return False
        self.tell(f"led out of {name}")
        return True

    def _replay(self) -> None:
        """After the adapter is corrected, a replay brings every record into the log that is an event now."""
        if self.log.newest < 0 or not self._replayable():
            return
        self.corrected = True
        for pipeline in self._pipelines:
            if pipeline != "s":
                self._clean_run(pipeline, "replay")
        self._drain()
        if left := self._replayable():
            raise Violation(f"after a replay, the quarantine still has {left}")

    def _replayable(self) -> list[str]:
        aside = self.judge.set_aside(self.judge.now)
        return [raw for _, raw in aside if raw is not None and raw.startswith("bad ")]

    def _check_target(self) -> None:
        if not self.schedule.target or self.log.newest < 0:
            return
        rows = sorted([list(row) for row in self.target.rows(self.target.snapshot())], key=str)
        state = ingest_spark.folded(self.log.rows(self.log.snapshot()))
        if rows != sorted([list(item) for item in state.items()], key=str):
            raise Violation(f"after a clean run, the target has {rows}, and the events make {state}")


def _batch_of(content: bytes) -> tuple[str, int] | None:
    text = json.loads(content.splitlines()[0])["commitInfo"].get("userMetadata")
    return None if text is None else (json.loads(text)["pipeline"], json.loads(text)["number"])


def _sealed_text(content: bytes) -> str:
    info = json.loads(content.splitlines()[0])["commitInfo"]
    if info.get("userMetadata") is None:
        return f": {info['operation']}"
    seal = json.loads(info["userMetadata"])
    return f": {seal['step']['kind']}, seal …{seal['number'] % 100_000} {seal['step'].get('counts')}"


def _covers(event: dict[str, Any], sealed: Sealed) -> bool:
    if event["seal"] < sealed.number:
        return False
    first, last = event["starting_version"], event["ending_version"]
    return sealed.kind != "apply" or (first is not None and first <= sealed.start and sealed.end <= last)


# -- the world below the project's code -----------------------------------------------------------------
class _Pool(Inline):
    """A pool of threads that runs its calls at once."""

    def map(self, call: Callable[..., Any], *given: Iterable[Any]) -> list[Any]:
        return [call(*each) for each in zip(*given, strict=True)]


@contextmanager
def _ingests(world: IngestWorld) -> Iterator[None]:
    """Let the world replace what reads files, brokers and rows, for the project's own code."""
    store, hub = world.store, world.hub

    def listed(of: Store, prefix: str | None = None, *, offset: str | None = None, **more: int) -> Any:
        return (
            _without_etags(of.list(prefix, offset=offset))
            if not world.schedule.etags
            else of.list(prefix, offset=offset)
        )

    def columns_of(storage: Storage, name: str, columns: Iterable[str]) -> Any:
        """Return columns of a data file, which holds JSON here."""
        key = f"{world.key_of(storage.uri)}/{name}"
        store.request("get")
        stored = store.objects.get(key)
        if stored is None:
            raise FileNotFoundError(key)
        return _table_of(stored.content, tuple(columns))

    def listed_here(root: Path, glob: Any, after: str | None, follows: bool) -> list[SourceFile]:
        """List a local folder."""
        stale = store.request("list") == "stale"
        found = store.listed(f"{root.name}/", None, stale=stale)
        files = [of_disk(f"{root.parent}/{key}", one) for key, one in found]
        return [file for file in files if after is None or file.uri > after]

    def found_here(path: Path) -> SourceFile | None:
        store.request("head")
        stored = store.visible(world.key_of(str(path)))
        return None if stored is None else of_disk(str(path), stored)

    def of_disk(path: str, stored: Stored) -> SourceFile:
        return SourceFile(path, len(stored.content), stored.modified, f"changed {stored.e_tag}")

    def opened(uri: str, options: Any = None) -> tuple[Store, str]:
        return store, uri.split("://", 1)[1].partition("/")[2]

    layout = SimpleNamespace(
        properties=lambda shape, options: options.target_properties,
        complete=lambda *given, **more: None,
        clustering_columns=lambda shape, options: (),
        has_statistics=lambda shape, name: False,
    )
    exists = SimpleNamespace(
        has_table=lambda session, uri: session.read_log(uri)[1].version >= 0,
        delta_detail=_detail,
    )
    with replaced(
        (obstore, {"list": listed}),
        (file_listing, {"open_bucket": opened, "_local": listed_here, "_one": found_here}),
        (taken_files, {"read_columns": columns_of, "ThreadPoolExecutor": _Pool}),
        (planning_quarantine, {"read_columns": columns_of}),
        (planning_ingest, {"time": SimpleNamespace(time_ns=lambda: hub.now * 1_000_000)}),
        (rounds, {"run_beside": lambda main: Loop(hub).run(main(Inline()))}),
        (ingested, {"F": ingest_frames.Functions}),
        (quarantine, {"F": ingest_frames.Functions, "catalog": exists}),
        settling_here(exists),
        (
            redelivery,
            {
                "F": ingest_frames.Functions,
                "beyond": ingest_frames.beyond,
                "compared": lambda events, log: {},
                "identity": lambda rows, types: ingest_frames.Column(
                    lambda row: [row[name] for name in ("id", "value", "eid", "_op", "_sequence")]
                ),
            },
        ),
        (
            events,
            {
                "F": ingest_frames.Functions,
                "known": ingest_spark.known,
                "_checked": ingest_spark.checked,
                "_counted": ingest_spark.counted,
                "_counted_with_unknown": lambda rows: (ingest_spark.counted(rows), []),
                "checkpointed": lambda rows: rows,
            },
        ),
        (
            engine,
            {
                "_decoding": ingest_spark.decoding_of,
                "content_of": ingest_spark.content_of,
                "layout": layout,
                "ThreadPoolExecutor": _Pool,
            },
        ),
        (Looks, {"offsets": lambda looks, *given: world.topic.offsets(*given)}),
    ):
        yield


def _detail(session: ingest_spark.IngestSession, uri: str, *, remedy: str) -> None:
    """Fail if a table does not exist, as ``catalog.delta_detail`` does."""
    if session.read_log(uri)[1].version < 0:
        raise TableNotFound(f"{uri} does not exist.", remedy=remedy)


@lru_cache(maxsize=2_000)
def _table_of(content: bytes, columns: tuple[str, ...]) -> Any:
    """Return columns of a data file as a table, which nothing changes."""
    import pyarrow as pa

    kinds = {**taken_files._COLUMNS, "raw": "string", "reason": "string"}
    fields = [(column, pa.type_for_alias(kinds[column])) for column in columns]
    return pa.Table.from_pylist(json.loads(content), pa.schema(fields))


async def _without_etags(listing: Any) -> Any:
    async for batch in listing:
        yield [{**meta, "e_tag": None} for meta in batch]


def play(schedule: IngestSchedule, coverage: Counter[tuple[str, str]] | None = None) -> IngestWorld:
    """Play a schedule to its end, and then clean runs.

    :raises Violation: a rule is broken; ``world`` is set on the error
    """
    world = IngestWorld(schedule, coverage)
    with installed(world), _ingests(world):
        try:
            with without_surprises():
                world.settle()
        except Exception as error:
            error.world = world  # type: ignore[attr-defined]
            raise
    return world
