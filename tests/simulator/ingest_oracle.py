"""What a change log and its quarantine must hold, from what was delivered and the bytes of the logs alone."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.simulator.ingest_records import decoded
from tests.simulator.oracle import Violation

if TYPE_CHECKING:
    from tests.simulator.delta import Table
    from tests.simulator.ingest_world import IngestWorld

#: A file's key and "", or a partition and an offset; and the record.
Place = tuple[str, str]


@dataclass(frozen=True)
class Batch:
    """A sealed commit of a log, as its commit file has it."""

    version: int
    pipeline: str
    number: int
    kind: str
    planned_on: int
    counts: dict[str, int]
    void: tuple[tuple[int, int], ...] = ()

    @property
    def key(self) -> tuple[str, int]:
        return self.pipeline, self.number

    def knows(self, row: Any) -> bool:
        """Return whether a row in quarantine counts.

        Records of a void batch do, because their files may be gone; an unreadable file comes again.
        """
        number = row["seal"]
        is_void = any(first <= number <= last for first, last in self.void)
        is_left_out = is_void and row["raw"] is None
        return row["pipeline"] == self.pipeline and number <= self.number and not is_left_out

    @classmethod
    def of(cls, table: Table, version: int) -> Batch | None:
        actions = table.actions(version)
        text = table.info(version).get("userMetadata")
        txns = {action["txn"]["appId"]: action["txn"]["version"] for action in actions if "txn" in action}
        if text is None or not txns:
            return None
        seal = json.loads(text)
        if txns.get("delta-cdc/" + seal["pipeline"]) != seal["number"]:
            raise Violation(f"version {version} of {table.name}: seal and transaction differ")
        step = seal["step"]
        planned_on = (step.get("planned_on") or {}).get("version", -1)
        counts = step.get("counts") or {}
        void = tuple((first, last) for first, last in seal["state"]["configuration"].get("void", ()))
        return cls(version, seal["pipeline"], seal["number"], step["kind"], planned_on, counts, void)


@dataclass(frozen=True)
class Chain:
    """The batches in effect at a version of a log.

    :param taint: by pipeline, why its batches may lack events
    """

    batches: tuple[Batch, ...] = ()
    taint: dict[str, str] = field(default_factory=dict)


@dataclass
class LogJudge:
    """Follows a change log, and checks each commit when it appears.

    :param covered: the batches that were published: pipeline, table and number
    """

    world: IngestWorld
    chains: list[Chain] = field(default_factory=list)
    covered: set[tuple[str, str, int]] = field(default_factory=set)
    _tags: list[str] = field(default_factory=list)
    _seen: int = -1

    @property
    def table(self) -> Table:
        return self.world.log

    def look(self) -> None:
        """Check the commits that are new."""
        objects = self.world.store.objects
        if self._seen == objects.changes:
            return
        self._seen = objects.changes
        version = 0
        while (stored := objects.get(self.table.key(version))) is not None:
            if version >= len(self._tags) or self._tags[version] != stored.e_tag:
                del self._tags[version:], self.chains[version:]
                self._tags.append(stored.e_tag)
                self.chains.append(self._after(version))
            version += 1
        del self._tags[version:], self.chains[version:]

    @property
    def now(self) -> Chain:
        self.look()
        return self.chains[-1] if self.chains else Chain()

    def _after(self, version: int) -> Chain:
        before = self.chains[version - 1] if version else Chain()
        info = self.table.info(version)
        batch = Batch.of(self.table, version)
        if batch is not None:
            return self._sealed(before, batch)
        if info["operation"] == "RESTORE":
            return self.chains[int(info["operationParameters"]["version"])]
        return before

    def _sealed(self, before: Chain, batch: Batch) -> Chain:
        chain = Chain((*before.batches, batch), before.taint)
        where = f"version {batch.version} (batch {batch.number} of {batch.pipeline})"
        numbers = [one.number for one in before.batches if one.pipeline == batch.pipeline]
        if numbers and batch.number <= max(numbers):
            raise Violation(f"{where}: the number is not above {max(numbers)}")
        planned = self.chains[batch.planned_on] if 0 <= batch.planned_on < batch.version else Chain()
        mine = [[one for one in of.batches if one.pipeline == batch.pipeline] for of in (before, planned)]
        if mine[0] != mine[1]:
            # Delta lets an append through; the project has to notice it before the next batch.
            text = f"{where} was planned on {batch.planned_on}"
            return Chain(chain.batches, {**before.taint, batch.pipeline: text})
        if batch.pipeline in before.taint:
            raise Violation(f"{where}: a batch after {before.taint[batch.pipeline]}")
        self._check_record(where, batch)
        self._check_quarantine(where, batch)
        self.check_twice(chain)
        return chain

    def rows_of(self, version: int) -> list[Any]:
        actions = self.table.actions(version)
        paths = [action["add"]["path"] for action in actions if "add" in action]
        return [row for path in paths for row in self.table.read(path)]

    def _check_record(self, where: str, batch: Batch) -> None:
        """The batch was recorded before its rows, and its rows are from what was recorded."""
        rows = self.rows_of(batch.version)
        if len(rows) != batch.counts.get("events", 0):
            raise Violation(f"{where}: {len(rows)} rows, and the seal counts {batch.counts}")
        if self.world.record_lost:
            return
        record = self.world.record
        found: list[Any] = record.rows(record.snapshot())
        taken = [r for r in found if (r["pipeline"], r["seal"]) == (batch.pipeline, batch.number)]
        if not taken:
            raise Violation(f"{where}: the record does not have the batch")
        if batch.kind != "ingest":
            return
        for row in rows:
            at = row["_position"]
            if not any(_holds(entry, at) for entry in taken):
                raise Violation(f"{where}: {at} is not in what was recorded of it")

    def _check_quarantine(self, where: str, batch: Batch) -> None:
        wanted = batch.counts.get("quarantined", 0)
        if wanted and batch.kind == "ingest" and not self.world.quarantine_lost:
            rows = [
                r for r in self.quarantined() if (r["pipeline"], r["seal"]) == (batch.pipeline, batch.number)
            ]
            if len(rows) < wanted:
                raise Violation(f"{where}: {wanted} records belong into quarantine, which has {len(rows)}")

    # -- records ----------------------------------------------------------------------------------------
    def quarantined(self) -> list[Any]:
        table = self.world.quarantine
        return table.rows(table.snapshot())

    def held(self) -> Counter[tuple[Place, str]]:
        """Return the events of the log, by place and by the event itself."""
        if self.table.newest < 0:
            return Counter()
        rows: list[Any] = self.table.rows(self.table.snapshot())
        return Counter((place_of(row["_position"]), row["eid"]) for row in rows)

    def set_aside(self, chain: Chain, *, raced: bool | None = None) -> Counter[tuple[Place, str | None]]:
        """Return the records in quarantine that count with the newest batch of each pipeline.

        :param raced: only those of batches that two drivers wrote, or only the others
        """
        newest = {one.pipeline: one for one in chain.batches}
        return Counter(
            (place_of(row["position"]), row["raw"])
            for row in self.quarantined()
            if row["pipeline"] in newest
            and newest[row["pipeline"]].knows(row)
            and raced in (None, (row["pipeline"], row["seal"]) in self.world.raced)
        )

    def check_twice(self, chain: Chain) -> None:
        """No event is in the log more often than it was delivered, and the same for the quarantine."""
        for (place, eid), count in self.held().items():
            most = sum(n for raw, n in self.world.delivered(place).items() if eid_of(raw) == eid)
            if count > most:
                raise Violation(f"the log has {eid} of {place} {count} times; it came {most} times")
        for (place, raw), count in self.set_aside(chain, raced=False).items():
            most = 1 if raw is None else self.world.delivered(place)[raw]
            if count > most:
                raise Violation(f"the quarantine has {raw} of {place} {count} times; it came {most} times")

    def _check_dropped(self, log: Counter[Any], aside: Counter[Any]) -> None:
        """A run that may not continue has noticed every record that the topic has dropped."""
        for (partition, offset), raws in self.world.topic.kept.items():
            place = f"t/{partition}", str(offset)
            if any(self._may_be_lost(raw) for raw in raws):
                continue
            if not any(log[place, eid_of(raw)] + aside[place, raw] for raw in raws):
                raise Violation(f"{raws} of {place} was dropped by the topic, and no run noticed")

    def _may_be_lost(self, raw: str) -> bool:
        """Return whether a record was only in a quarantine that others restored or dropped."""
        return self.world.quarantine_lost and decoded(raw, corrected=False)[1] is not None

    def check_lost(self) -> None:
        """Every record that can be read now is in the log, or in quarantine."""
        chain = self.now
        log, aside = self.held(), self.set_aside(chain)
        if not (self.world.continues or self.world.record_lost or "log_dropped" in self.world.damage):
            self._check_dropped(log, aside)
        racing = self.set_aside(chain, raced=True)
        for place, raws in self.world.readable().items():
            if raws is None:
                if not (aside[place, None] or self.world.quarantine_lost):
                    raise Violation(f"{place} cannot be read, and is not in quarantine")
                continue
            if aside[place, None] and not self.world.quarantine_lost:
                raise Violation(f"{place} can be read, and is in quarantine as unreadable")
            for raw, count in raws.items():
                logged = log[place, eid_of(raw)]
                found, most = (
                    logged + aside[place, raw],
                    self.world.delivered(place)[raw] + racing[place, raw],
                )
                if found < count and not self._may_be_lost(raw):
                    raise Violation(f"{raw} of {place} came {count} times; log and quarantine have {found}")
                # A corrected adapter finds the event if its file comes again; a replay then settles it.
                if found > most and not self.world.corrected:
                    raise Violation(f"{raw} of {place} is in the log {logged} times, and in quarantine, too")


def _holds(entry: dict[str, Any], at: dict[str, Any]) -> bool:
    if at["file"] is not None:
        return bool(entry["file"] == at["file"])
    same = (entry["topic"], entry["partition"]) == (at["topic"], at["partition"])
    return same and bool(entry["starting_offset"] <= at["offset"] < entry["ending_offset"])


def place_of(at: dict[str, Any]) -> Place:
    if at["file"] is not None:
        return str(at["file"]).rpartition("/bucket/")[2], ""
    return f"{at['topic']}/{at['partition']}", str(at["offset"])


def eid_of(raw: str) -> str | None:
    """Return the event of a record, also of one that the adapter reads once it is corrected; or None."""
    text = raw.removeprefix("bad ")
    return str(json.loads(text)["eid"]) if text.startswith("{") else None


@dataclass
class TargetJudge:
    """Compares the target with the log at its watermark, whenever a commit appears."""

    world: IngestWorld
    seen: int = 0

    def look(self) -> None:
        from tests.simulator.ingest_spark import folded
        from tests.simulator.oracle import Sealed

        target, log = self.world.target, self.world.log
        while target.key(self.seen) in self.world.store.objects:
            sealed = Sealed.of(target, self.seen)
            if sealed is not None and sealed.watermark >= 0:
                rows = sorted([list(row) for row in target.rows(target.snapshot(self.seen))], key=str)
                state = folded(log.rows(log.snapshot(sealed.watermark)))
                if rows != sorted([list(item) for item in state.items()], key=str):
                    where = f"version {self.seen} of the target (watermark {sealed.watermark})"
                    raise Violation(f"{where} has {rows}, and the events of the log make {state}")
            self.seen += 1
