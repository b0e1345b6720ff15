"""Kinds of work: what one run does, and what the tables must hold, by oracles in plain Python.

A kind has tables of its own in a folder. A process that is to be killed makes it again, and only calls
:meth:`Kind.work`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import obstore
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from delta_cdc.core.options import ApplyOptions, QueryOptions
from delta_cdc.core.quarantine import SETTLED_BY, SETTLING
from delta_cdc.core.requests import ApplyRequest, ReadRequest
from delta_cdc.core.spec import ExpireSpec
from delta_cdc.core.value_rules import value_rules
from delta_cdc.delta_log.store import open_store
from delta_cdc.delta_log.table import run_sync
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.expiry import plan_expiry
from delta_cdc.run import maintain
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.flows import run
from delta_cdc.run.table_arguments import requests
from tests.kills.tries import announcements
from tests.support.deliveries import SCHEMA, event
from tests.support.deliveries import expected as logged
from tests.support.world import COLUMNS, HISTORY, Source, expected, ordered, ranges, seals

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kills.tries import Try

#: How many residues the invalid keys have that a rule may admit one after the other.
_RESIDUES = 4
#: Kinds of steps that are announced.
_MOVING = ("load", "apply", "reload", "reset", "ingest")


class Kind(ABC):
    """Tables, and the work on them.

    :param folder: here, the tables as files
    :param root: the location of the same folder, as the work names it
    :cvar rounds: how often new input comes before there are new tables
    """

    name: ClassVar[str]
    rounds: ClassVar[int] = 10

    def __init__(self, folder: Path, root: str = "", storage: dict[str, str] | None = None) -> None:
        self.folder, self.root, self.storage = folder, root or str(folder), storage
        self._uploaded: set[Path] = set()

    def table(self, name: str) -> str:
        """Return the location of a table."""
        return f"{self.root}/{name}"

    def path(self, name: str) -> str:
        """Return where the same table is as files."""
        return str(self.folder / name)

    @abstractmethod
    def change(self, draw: random.Random, spark: SparkSession) -> None:
        """Make new input for the next run; the first call makes the tables.

        :param spark: for what only Spark makes; most input is written without it
        """

    @abstractmethod
    def work(self, attempt: Try) -> bool:
        """Do the work once; return whether there was any."""

    @abstractmethod
    def problems(self) -> list[str]:
        """Compare the tables with the oracle; return what is wrong."""

    def upload(self) -> None:
        """Put new input into the bucket, for a folder of one: a file alone has no ETag."""
        store = None if self.storage is None else open_store(self.root, self.storage)
        files = {one for name in ("in", "source") for one in self.folder.joinpath(name).rglob("*")}
        for file in sorted(files - self._uploaded if store else ()):
            if file.is_file():
                obstore.put(store, file.relative_to(self.folder).as_posix(), file.read_bytes())
        self._uploaded |= files

    def between(self, draw: random.Random) -> None:
        """Do what may come between two tries; most kinds do nothing."""
        return

    def last(self, draw: random.Random) -> list[str]:
        """Do what comes after the last round; return what is wrong then."""
        return []

    def rows(self, name: str, columns: Sequence[str], where: str = "true") -> list[tuple[Any, ...]]:
        """Return the rows of a table, sorted, as delta-rs reads them."""
        listed = ", ".join(f'"{column}"' for column in columns)
        query = f"SELECT {listed} FROM t WHERE {where}"
        found = QueryBuilder().register("t", DeltaTable(self.path(name))).execute(query)
        return ordered(tuple(row.values()) for row in pa.table(found.read_all()).to_pylist())

    def compared(self, name: str, columns: Sequence[str], right: list[tuple[Any, ...]]) -> list[str]:
        """Compare the rows of a table."""
        rows = self.rows(name, columns)
        return [f"rows of {name} are {rows}, not {right}"] if rows != ordered(right) else []

    def heard(self, pipeline: str) -> list[dict[str, Any]]:
        """Return what was announced of a pipeline."""
        return [one for one in announcements(self.folder) if one["pipeline"] == pipeline]

    def chain(self, name: str, pipeline: str) -> list[str]:
        """Return where the sealed ranges of a target leave versions out, or have one twice; and what no
        announcement covers."""
        heard = [one for one in self.heard(pipeline) if one["to"] is not None]
        newest = max((one["seal"] for one in heard), default=-1)
        found, before = [], None
        for seal in seals(self.path(name), pipeline):
            if seal["step"]["kind"] not in _MOVING:
                continue
            start, end = seal["step"]["starting_version"], seal["step"]["ending_version"]
            if before is not None and start != before + 1:
                found.append(f"{name}: version {start} follows version {before}")
            before = end
            covers = any(one["from"] <= start and end <= one["to"] for one in heard)
            if not covers or seal["number"] > newest:
                found.append(f"seal {seal['number']} of {name}, versions {start}-{end}, was not announced")
        return found


class Apply(Kind):
    """A source, whose changes come into a target of type 1."""

    name = "apply type 1"
    scd = 1

    @cached_property
    def source(self) -> Source:
        made = Source(self.path("source")).create(None)
        made.insert(None, {100 + one: (f"row {one}", one) for one in range(8)})
        return made

    def change(self, draw: random.Random, spark: SparkSession) -> None:
        self.source.grow(None, draw, draw.randint(1, 3))

    def request(self, attempt: Try, **more: Any) -> ApplyRequest:
        return ApplyRequest(
            pipeline=f"flow{self.scd}",
            source=self.table("source"),
            target=self.table(f"target{self.scd}"),
            options=ApplyOptions(keys=("id",), stored_as_scd_type=self.scd),
            run_id=attempt.run_id,
            storage_options=self.storage,
            **more,
        )

    def work(self, attempt: Try) -> bool:
        return attempt.publish(run(self.request(attempt), attempt.services))

    def problems(self) -> list[str]:
        target, pipeline = f"target{self.scd}", f"flow{self.scd}"
        (loaded, _), *_, (_, newest) = [*ranges(self.path(target), pipeline)] * 2
        found = [] if newest == self.source.newest else [f"{newest} is sealed, not {self.source.newest}"]
        right = expected(self.source, self.scd, loaded)
        found += self.compared(target, COLUMNS if self.scd == 1 else HISTORY, right)
        return found + self.chain(target, pipeline)


class ApplyHistory(Apply):
    """The same, into a target of type 2."""

    name = "apply type 2"
    scd = 2


class ApplyWithRules(Apply):
    """The same into a target of type 1, and the rows of a third of the keys into the quarantine beside it.

    Now and then the rule admits more of these keys, and the quarantine is replayed once.
    """

    name = "apply with rules"

    def change(self, draw: random.Random, spark: SparkSession) -> None:
        super().change(draw, spark)
        looser = self.folder / "looser"
        if looser.exists() and self._most < _RESIDUES and draw.random() < 0.5:
            newest = max((seal["number"] for seal in self._seals()), default=0)
            looser.write_text(json.dumps([self._most + 1, newest]))
        elif not looser.exists():
            looser.write_text(json.dumps([0, -1]))

    @property
    def _most(self) -> int:
        """Return how many of the residues of the invalid keys the rule admits now."""
        return int(json.loads((self.folder / "looser").read_text())[0])

    def _is_invalid(self, key: int) -> bool:
        return key % 3 == 2 and key % (3 * _RESIDUES) >= 3 * self._most

    def _seals(self) -> list[dict[str, Any]]:
        return list(seals(self.path("target1"), "flow1"))

    def request(self, attempt: Try, **more: Any) -> ApplyRequest:
        made = super().request(attempt, **more)
        check = f"id % 3 <> 2 OR id % {3 * _RESIDUES} < {3 * self._most}"
        rules = value_rules("rules", {"key": {"check": check, "on_break": "quarantine"}})
        return replace(made, options=replace(made.options, rules=rules))

    def work(self, attempt: Try) -> bool:
        is_done = super().work(attempt)
        _, since = json.loads((self.folder / "looser").read_text())
        repairs = [one for one in self._seals() if one["step"]["kind"] == "repair" and one["number"] > since]
        if since < 0 or repairs:
            # A try that died after its commit has replayed. The next commit completes what it left.
            return is_done
        replay = self.request(attempt, mode="repair", repair_quarantined=True)
        return attempt.publish(run(replay, attempt.services)) or is_done

    def _held(self) -> list[tuple[Any, ...]]:
        """Return the rows in quarantine, without those that the newest seal has taken out."""
        columns = ("seal", "commit_version", "raw")
        if not (self.folder / "target1__quarantine").exists():
            # No row has broken the rule so far.
            return []
        names = [field.name for field in DeltaTable(self.path("target1__quarantine")).schema().fields]
        mark = self._seals()[-1]["state"]["configuration"].get(SETTLING)
        if SETTLED_BY not in names or mark is None:
            return self.rows("target1__quarantine", columns)
        where = f"NOT coalesce(array_has({SETTLED_BY}, '{mark}'), false)"
        return self.rows("target1__quarantine", columns, where)

    def problems(self) -> list[str]:
        (_, _), *_, (_, newest) = [*ranges(self.path("target1"), "flow1")] * 2
        found = [] if newest == self.source.newest else [f"{newest} is sealed, not {self.source.newest}"]
        right = [row for row in expected(self.source, 1, 0) if not self._is_invalid(row[0])]
        found += self.compared("target1", COLUMNS, right) + self.chain("target1", "flow1")
        rows = self._held()
        sealed_now = self._seals()
        replayed = max((one["number"] for one in sealed_now if one["step"]["kind"] == "repair"), default=-1)
        if left := [row for row in rows if row[0] < replayed]:
            found.append(f"seal {replayed} replayed {left}, which are still in quarantine")
        for sealed in sealed_now:
            step, states = sealed["step"], self.source.states
            if sealed["number"] < replayed or (step["kind"] not in _MOVING and sealed["number"] != replayed):
                continue
            first = step["kind"] == "load" or sealed["number"] == replayed
            before = {} if first else states[step["starting_version"] - 1]
            at = sealed["state"]["applied_to"]["version"]
            wanted = {
                (key, *row)
                for key, row in states[at].items()
                if self._is_invalid(key) and before.get(key) != row
            }
            mine = [(version, raw) for seal, version, raw in rows if seal == sealed["number"]]
            held = {tuple(json.loads(raw)[name] for name in COLUMNS) for _, raw in mine}
            if lost := wanted - held:
                found.append(f"the quarantine lacks {lost} of seal {sealed['number']}: {mine}")
            if len(mine) > len(set(mine)):
                found.append(f"the quarantine has rows of seal {sealed['number']} twice: {mine}")
        return found


class Staging(Apply):
    """The same by way of a staging table, version by version, and on into a target of type 1."""

    name = "staging"

    def work(self, attempt: Try) -> bool:
        apply = self.request(attempt, staging=self.table("staging"))
        read = ReadRequest(
            pipeline=apply.pipeline,
            source=apply.source,
            staging=self.table("staging"),
            target=apply.target,
            options=QueryOptions(),
            versions_per_commit=1,
            run_id=attempt.run_id,
            storage_options=self.storage,
        )
        run(read, attempt.services)
        return attempt.publish(run(apply, attempt.services))


class Ingest(Kind):
    """Files into a change log, and on into a target of type 1.

    :ivar events: all that was delivered
    :ivar bad: the records without an event
    """

    name = "ingest and apply"

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.events: list[dict[str, Any]] = []
        self.bad: list[str] = []
        self.number = 0

    def change(self, draw: random.Random, spark: SparkSession) -> None:
        landing = self.folder / "in"
        landing.mkdir(exist_ok=True)
        for _ in range(draw.randint(1, 3)):
            self.number += 1
            lines = []
            for _ in range(draw.randint(1, 4)):
                seq = len(self.events) + 1
                made = event(draw.choice("IUUD"), seq, draw.randint(1, 6))
                made |= {} if made["op"] == "D" else {"name": f"name {seq}", "amount": seq}
                self.events.append(made)
                lines.append(json.dumps(made))
            if draw.random() < 0.2:
                self.bad.append(f"no event {self.number}")
                lines.append(self.bad[-1])
            (landing / f"{self.number:05}.json").write_text("\n".join(lines) + "\n")

    def jobs(self, attempt: Try) -> list[PipelineJob]:
        """Return what one application does."""
        given: dict[str, Any] = {
            "pipeline": "ingested",
            "source": self.table("in"),
            "log": self.table("log"),
            "target": self.table("current"),
            "keys": ["id"],
            "format": "json",
            "schema": SCHEMA,
            "adapter_options": {"operation_column": "op", "sequence_by": "seq"},
            "limits": {"max_files": 2},
        }
        known: dict[str, Any] = {"run_id": attempt.run_id, "storage_options": self.storage}
        ingest, apply = requests(given, scratch=False, **known)
        return [self.job(attempt, ingest=ingest, apply=apply)]

    def job(self, attempt: Try, **what: Any) -> PipelineJob:
        return PipelineJob(**what, saved_plans=attempt.saved_plans, announced=attempt.announced)

    def work(self, attempt: Try) -> bool:
        found = run_batch(self.jobs(attempt), attempt.services, run_id=attempt.run_id, parallel=2)
        for result in found:
            if result.error is not None:
                raise result.error
        return attempt.publish(*(one for result in found for one in (result.ingested, result.applied)))

    @property
    def current(self) -> list[tuple[Any, ...]]:
        """Return what the target must hold: the last event of each key, but for deletes."""
        last = {one["id"]: one for one in self.events}
        return [(key, one["name"], one["amount"]) for key, one in last.items() if one["op"] != "D"]

    def problems(self) -> list[str]:
        found = self.compared("log", ("_op", "_sequence", *COLUMNS), logged(self.events))
        return found + self.others()

    def others(self) -> list[str]:
        """Compare the tables beside the log, and what was announced."""
        found = self.compared("current", COLUMNS, self.current)
        if self.bad:
            found += self.compared("log__quarantine", ("raw",), [(one,) for one in self.bad])
        sealed = {seal["number"]: seal["step"]["counts"] for seal in seals(self.path("log"), "ingested")}
        heard = sum(one["counts"].get("events", 0) for one in self.heard("ingested") if one["to"] is None)
        if heard < (number := sum(counts.get("events", 0) for counts in sealed.values())):
            found.append(f"{heard} events were announced, of {number}")
        return found + self.chain("current", "ingested")


class Group(Ingest):
    """One application for three pipelines: both types from one source, and an ingest with its apply."""

    name = "group"
    rounds = 6

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.flows = [Apply(*given), ApplyHistory(*given)]

    def change(self, draw: random.Random, spark: SparkSession) -> None:
        super().change(draw, spark)
        self.flows[1].__dict__["source"] = self.flows[0].source
        self.flows[0].change(draw, spark)

    def jobs(self, attempt: Try) -> list[PipelineJob]:
        return [
            *super().jobs(attempt),
            *(self.job(attempt, apply=flow.request(attempt, scratch=False)) for flow in self.flows),
        ]

    def problems(self) -> list[str]:
        return [*super().problems(), *(problem for flow in self.flows for problem in flow.problems())]


class Expiry(Ingest):
    """The same as an ingest, and then the expiry of events below a bound that rises."""

    name = "expiry"

    def change(self, draw: random.Random, spark: SparkSession) -> None:
        super().change(draw, spark)
        bound = self.folder / "bound"
        before = int(bound.read_text()) if bound.exists() else 1
        bound.write_text(str(max(before, len(self.events) - draw.randint(2, 8))))

    def work(self, attempt: Try) -> bool:
        is_done = super().work(attempt)
        wanted = int((self.folder / "bound").read_text())
        spec = ExpireSpec(run_id=attempt.run_id, table_uri=self.table("log"), horizon=str(wanted))
        consumers = [Consumer("ingested", self.table("log"), self.table("current"))]
        plan = run_sync(plan_expiry(spec, consumers, storage_options=self.storage))
        _, errors = maintain.run({spec.table_uri: plan}, execute=attempt.execute, run_id=attempt.run_id)
        maintain.raise_failed(errors)
        return is_done

    def problems(self) -> list[str]:
        """Compare the log: each event at or above the bound is there, once; one below it may be."""
        bound = int((self.folder / "bound").read_text())
        rows = self.rows("log", ("_op", "_sequence", *COLUMNS))
        events = logged(self.events)
        kept = [row for row in events if row[1] >= bound]
        found = [] if [row for row in rows if row[1] >= bound] == ordered(kept) else [f"{rows} of {events}"]
        found += [f"{row} is not an event" for row in rows if row not in events]
        found += ["a row is there twice"] if len(set(rows)) != len(rows) else []
        return found + self.others()
