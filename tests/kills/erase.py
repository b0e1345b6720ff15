"""Erasures, searched for what they left: in the rows of tables, and in the bytes of their files.

Files come into a change log, which fills a target, which fills a history. Each round erases a key, the last
one with purge and VACUUM; then everything comes again.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyarrow import ArrowInvalid

from delta_cdc import apply_changes
from delta_cdc.planning.erasure import Flow
from delta_cdc.run.erase import Erasure, run
from delta_cdc.run.maintain import raise_failed
from tests.kills.kinds import Kind
from tests.support.decoded_files import current_files, decoded
from tests.support.deliveries import Deliveries, event
from tests.support.grouped import grouped

if TYPE_CHECKING:
    import random

    from pyspark.sql import SparkSession

    from tests.kills.tries import Try

TABLES = ("log", "current", "history")
#: How many keys a lake has, and how many of them are erased.
KEYS, ERASED = 12, 4
OF_HISTORY = {
    "stored_as_scd_type": 2,
    "sequence_by": "seq",
    "delete_sequence": "seq + 1",
    "on_invalid": "quarantine",
}


def key_of(number: int) -> int:
    """Return a key whose digits are in no other value."""
    return 9_170_000_000 + number * 1_000_003


def name_of(number: int, at: int) -> str:
    """Return a text that only rows of this key have."""
    return f"Person<{key_of(number)}>{at}"


def _sent() -> list[dict[str, Any]]:
    """Return the first events."""
    return [event("I", 10 + one, key_of(one), name=name_of(one, 1), amount=1) for one in range(KEYS)]


class Erase(Kind):
    """An erasure of a key from a log, a target and a history.

    :ivar first: the rows of each table before any erasure
    :ivar done: the numbers of the erased keys
    """

    name = "erase"
    rounds = ERASED

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.first: dict[str, list[tuple[int, str]]] = {}
        self.done: list[int] = []

    @property
    def flows(self) -> tuple[Flow, ...]:
        log, current, history = map(self.table, TABLES)
        return (
            Flow("flow", self.table("in"), log=log),
            Flow("apply", log, target=current),
            Flow("history", current, target=history),
        )

    # -- the work ---------------------------------------------------------------------------------
    def change(self, draw: random.Random, spark: SparkSession) -> None:
        if not self.first:
            self.flow = Deliveries(spark, self.folder)
            pristine = self.folder.parent / "before erasures"
            if pristine.exists():
                shutil.copytree(pristine, self.folder, dirs_exist_ok=True)
            else:
                self.fill()
                shutil.copytree(self.folder, pristine)
            self.first = self.held()
            self.drawn = draw.sample(range(KEYS), ERASED)
        self.done.append(self.drawn[len(self.done)])
        order = {"key": self.done[-1], "purge": len(self.done) == ERASED}
        (self.folder / "order.json").write_text(json.dumps(order))

    def work(self, attempt: Try) -> bool:
        order = json.loads((self.folder / "order.json").read_text())
        return any(self.erase(attempt, **order).values())

    def erase(self, attempt: Try, key: int, *, purge: bool) -> dict[str, int]:
        """Erase a key; return how many rows of each table were deleted."""
        work = Erasure(keys=({"id": str(key_of(key))},), flows=self.flows, purge=purge, deletes_records=True)
        report = run(work, execute=attempt.execute, run_id=attempt.run_id)
        raise_failed(report.errors)
        return {Path(row["table"]).name: row["deleted"] for row in report.rows}

    def between(self, draw: random.Random) -> None:
        """Let the pipelines run between two tries."""
        if draw.random() < 0.15:
            self.cycle()

    def last(self, draw: random.Random) -> list[str]:
        """Deliver everything again, and more; compute the tables again."""
        self.again(draw)
        return self.wrong(computed_again=True)

    # -- the pipelines ----------------------------------------------------------------------------
    def fill(self) -> None:
        """Make the tables, with several files and versions of each, quarantined records, and old files."""
        people = range(KEYS)
        bad = [
            json.dumps({"op": "?", "seq": 900 + one, "id": key_of(one), "name": name_of(one, 9)})
            for one in people
        ]
        self.flow.deliver("a.json", _sent())
        # Not delivered again: what key such a record has is not known, so it would come back.
        self.flow.deliver("bad.json", bad)
        self.cycle()
        (self.flow.source / "bad.json").unlink()
        self.flow.deliver(
            "b.json", [event("U", 50 + one, key_of(one), name=name_of(one, 2), amount=2) for one in people]
        )
        self.cycle()
        # Without a sequence the history cannot take these.
        self.flow.spark.sql(f"UPDATE delta.`{self.table('current')}` SET seq = NULL WHERE id % 2 = 0")
        self.apply_history()
        for name in (*TABLES, "log__quarantine", "history__quarantine"):
            self.flow.spark.sql(
                f"ALTER TABLE delta.`{self.table(name)}` SET TBLPROPERTIES "
                "('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
            )
        self.apply_history()

    def cycle(self) -> None:
        # The tables keep old files for no time, so what a killed erasure has not read by then is expired.
        expired = {"on_versions_expired": "reload"}
        self.flow.ingest()
        self.flow.apply("current", publish_changes=True, **expired)
        self.apply_history(**expired)

    def apply_history(self, **more: Any) -> None:
        given = grouped({"pipeline": "history", "keys": ["id"], **OF_HISTORY, **more})
        apply_changes(self.flow.spark, self.table("current"), self.table("history"), **given)

    def again(self, draw: random.Random) -> None:
        """Deliver everything again, and more; compute the tables again."""
        late = [
            event("U", draw.randint(1, 99), key_of(one), name=name_of(one, 3), amount=3) for one in self.done
        ]
        self.flow.deliver("a.json", [*_sent(), *late])
        self.flow.deliver(
            "c.json",
            [event("U", 200 + one, key_of(one), name=name_of(one, 4), amount=4) for one in self.done],
        )
        self.cycle()
        self.flow.apply("current", publish_changes=True, mode="reload")
        again = draw.choice([{"mode": "reload"}, {"mode": "reset", "discard_history": True}])
        self.apply_history(**again)

    # -- what there is ----------------------------------------------------------------------------
    def held(self) -> dict[str, list[tuple[int, str]]]:
        """Return the rows of each table, with their keys."""
        found = {}
        for name in TABLES:
            columns = [field.name for field in DeltaTable(self.path(name)).schema().fields]
            at = columns.index("id")
            found[name] = sorted((row[at], repr(row)) for row in self.rows(name, columns))
        return found

    def problems(self) -> list[str]:
        return self.wrong(everywhere=len(self.done) == ERASED)

    def wrong(self, *, everywhere: bool = False, computed_again: bool = False) -> list[str]:
        """Compare the rows, and search the files.

        :param everywhere: search also files that no table has any more, and those with masked rows
        :param computed_again: the targets have the keys as before; but their rows lost the change by hand of
            :meth:`fill`, and perhaps old versions
        """
        erased, found = {key_of(one) for one in self.done}, []
        for name in (*TABLES, "log__quarantine", "history__quarantine"):
            folder = self.folder / name
            files = [path for path in folder.rglob("*") if path.is_file()]
            for path in files if everywhere else current_files(folder, masked=False):
                found += self._traces(path)
        for name, rows in self.held().items():
            expected: Any = [row for row in self.first[name] if row[0] not in erased]
            now: Any = rows
            if computed_again and name != "log":
                expected, now = {row[0] for row in expected}, {row[0] for row in rows}
            found += [f"rows of other keys of {name}: {expected} became {now}"] if now != expected else []
            ledger = Path(f"{self.path(name)}__erased")
            number = sum(pq.read_metadata(path).num_rows for path in current_files(ledger))
            found += [f"{name} remembers {number} keys"] if number != len(erased) else []
        return found

    def _traces(self, path: Path) -> list[str]:
        # Bounds of the keys stay in old commits until Delta deletes these: a report has the date.
        texts = [f"<{key_of(one)}>" for one in self.done]
        if "_delta_log" not in path.parts:
            texts += [str(key_of(one)) for one in self.done]
        try:
            content = decoded(path)
        except ArrowInvalid:
            return [f"{path} is a part of a file, which VACUUM left"]
        return [f"{path} has {text}" for text in texts if text.encode() in content]
