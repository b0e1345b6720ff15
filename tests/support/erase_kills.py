"""Erasures that are killed between two operations on the disk, run again, and searched for what they left.

A process of its own (``python -m tests.support.erase_kills FOLDER NUMBER SEED``), whose Hadoop file system
and log store end at a drawn operation: from then on nothing comes to the disk, and the next erasure finds
what a killed process leaves. The JVM goes on, without what Delta remembers of tables, because starting one
for each kill would take hours.

Files come into a change log, which fills a target, which fills a history. Each *lake* erases some keys, each
one over some kills, the last one with purge and VACUUM; then everything comes again.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyarrow import ArrowInvalid

from delta_cdc import apply_changes, get_session, job
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.planning.erasure import Flow
from delta_cdc.run.erase import Erasure, run
from delta_cdc.run.maintain import raise_failed
from tests.support.decoded_files import current_files, decoded
from tests.support.deliveries import Deliveries, event
from tests.support.grouped import grouped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import BatchSpec, JobResult

#: Confs with which a session's disk ends at a drawn operation.
CONFS = {
    "spark.hadoop.fs.file.impl": "StoppingDisk",
    "spark.delta.logStore.file.impl": "StoppingLogStore",
    "spark.databricks.delta.retentionDurationCheck.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
_ALL = 1 << 60
TABLES = ("log", "current", "history")
#: How many keys a lake has.
KEYS = 12
#: How many of them one lake erases, and how often each is killed: in a short campaign, and in a long one.
SHORT, LONG = (4, 3), (6, 6)
OF_HISTORY = {
    "stored_as_scd_type": 2,
    "sequence_by": "seq",
    "delete_sequence": "seq + 1",
    "on_invalid": "quarantine",
}


class Killed(BaseException):
    """The disk has ended, so the process has, too."""


def key_of(number: int) -> int:
    """Return a key whose digits are in no other value."""
    return 9_170_000_000 + number * 1_000_003


def name_of(number: int, at: int) -> str:
    """Return a text that only rows of this key have."""
    return f"Person<{key_of(number)}>{at}"


@dataclass
class Lake:
    """The tables, as they are at first and after each erasure.

    :param done: the numbers of the erased keys
    """

    spark: SparkSession
    folder: Path
    done: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.flow = Deliveries(self.spark, self.folder)

    def table(self, name: str) -> str:
        return str(self.folder / name)

    @property
    def flows(self) -> tuple[Flow, ...]:
        log, current, history = map(self.table, TABLES)
        return (
            Flow("flow", str(self.flow.source), log=log),
            Flow("apply", log, target=current),
            Flow("history", current, target=history),
        )

    # -- the pipelines ----------------------------------------------------------------------------
    def fill(self) -> None:
        """Make the tables, with several files and versions of each, quarantined records, and old files."""
        people = range(KEYS)
        bad = [
            json.dumps({"op": "?", "seq": 900 + one, "id": key_of(one), "name": name_of(one, 9)})
            for one in people
        ]
        self.first = [event("I", 10 + one, key_of(one), name=name_of(one, 1), amount=1) for one in people]
        self.flow.deliver("a.json", self.first)
        # Not delivered again: what key such a record has is not known, so it would come back.
        self.flow.deliver("bad.json", bad)
        self.cycle()
        (self.flow.source / "bad.json").unlink()
        self.flow.deliver(
            "b.json", [event("U", 50 + one, key_of(one), name=name_of(one, 2), amount=2) for one in people]
        )
        self.cycle()
        # Without a sequence the history cannot take these.
        self.spark.sql(f"UPDATE delta.`{self.table('current')}` SET seq = NULL WHERE id % 2 = 0")
        self.apply_history()
        for name in (*TABLES, "log__quarantine", "history__quarantine"):
            self.spark.sql(
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
        apply_changes(self.spark, self.table("current"), self.table("history"), **given)

    def again(self, draw: random.Random) -> None:
        """Deliver everything again, and more; compute the tables again."""
        late = [
            event("U", draw.randint(1, 99), key_of(one), name=name_of(one, 3), amount=3) for one in self.done
        ]
        self.flow.deliver("a.json", [*self.first, *late])
        self.flow.deliver(
            "c.json",
            [event("U", 200 + one, key_of(one), name=name_of(one, 4), amount=4) for one in self.done],
        )
        self.cycle()
        self.flow.apply("current", publish_changes=True, mode="reload")
        again = draw.choice([{"mode": "reload"}, {"mode": "reset", "discard_history": True}])
        self.apply_history(**again)

    # -- the erasure ------------------------------------------------------------------------------
    def erase(self, number: int, *, purge: bool) -> dict[str, int]:
        """Erase a key; return how many rows of each table were deleted.

        :raises Killed: the disk ended
        """
        stop = self.spark._jvm.Stop

        def execute(batch: BatchSpec) -> JobResult:
            result = job.run(self.spark, batch)
            if stop.stopped():
                raise Killed
            return result

        work = Erasure(
            keys=({"id": str(key_of(number))},), flows=self.flows, purge=purge, deletes_records=True
        )
        report = run(work, execute=execute, run_id="erase")
        raise_failed(report.errors)
        return {Path(row["table"]).name: row["deleted"] for row in report.rows}

    def forget(self) -> None:
        """Let the JVM forget all tables, as a new process would."""
        self.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
        self.spark.catalog.clearCache()

    # -- what there is ----------------------------------------------------------------------------
    def rows(self) -> dict[str, list[tuple[int, str]]]:
        """Return the rows of each table, with their keys."""
        found = {}
        for name in TABLES:
            read = self.spark.read.format("delta").load(self.table(name)).collect()
            found[name] = sorted((row["id"], repr(row)) for row in read)
        return found

    def problems(
        self,
        first: dict[str, list[tuple[int, str]]],
        *,
        everywhere: bool = False,
        computed_again: bool = False,
    ) -> list[str]:
        """Return what is wrong.

        :param first: the rows before any erasure
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
        for name, rows in self.rows().items():
            expected: Any = [row for row in first[name] if row[0] not in erased]
            now: Any = rows
            if computed_again and name != "log":
                expected, now = {row[0] for row in expected}, {row[0] for row in rows}
            found += [f"rows of other keys of {name}: {expected} became {now}"] if now != expected else []
            ledger = Path(f"{self.table(name)}__erased")
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


def main(folder: str, number: str, seed: str) -> None:
    """Kill erasures until there were so many kills; print one JSON document."""
    classes = {"spark.driver.extraClassPath": os.environ["ERASE_KILLS_CLASSES"]}
    spark = get_session("erase kills", cores=2, quick_start=True, **CONFS, **classes)
    # Each kill is an error of Spark and of ours.
    spark.sparkContext.setLogLevel("OFF")
    logging.disable(logging.CRITICAL)
    each = LONG if int(number) >= 100 else SHORT
    kills = Kills(spark, Path(folder), random.Random(int(seed)), each)
    started = time.monotonic()
    while kills.number < int(number) and not kills.problems:
        kills.one_lake()
        seconds = f"{time.monotonic() - started:.0f} s"
        print(
            f"{kills.number} kills, {kills.lakes} lakes, {kills.longest} operations, {seconds}",
            file=sys.stderr,
            flush=True,
        )
    print(
        json.dumps({"kills": kills.number, "lakes": kills.lakes, "problems": kills.problems, "at": kills.at})
    )


class Kills:
    """Lakes whose erasures are killed.

    :param each: how many keys of a lake are erased, and how often each of them is killed
    :ivar longest: how many operations an erasure has, with purge and without, as far as is known
    :ivar at: of each kill: with purge or without, and how many operations came before it
    """

    def __init__(self, spark: SparkSession, folder: Path, draw: random.Random, each: tuple[int, int]) -> None:
        self.place, self.pristine, self.draw = folder / "lake", folder / "pristine", draw
        self.stop, self.each = spark._jvm.Stop, each
        self.stop.arm(_ALL)
        self.lake = Lake(spark, self.place)
        self.lake.fill()
        shutil.copytree(self.place, self.pristine)
        self.number = self.lakes = 0
        self.longest = {True: 150, False: 80}
        self.at: list[tuple[bool, int]] = []
        self.problems: list[str] = []

    def one_lake(self) -> None:
        """Erase some keys of a new lake, then deliver and compute everything again."""
        lake = self.lake
        shutil.rmtree(self.place)
        shutil.copytree(self.pristine, self.place)
        lake.done = []
        lake.forget()
        self.lakes += 1
        first, (erased, kills) = lake.rows(), self.each
        for one in self.draw.sample(range(KEYS), erased):
            lake.done.append(one)
            purge = len(lake.done) == erased
            if self.killed(one, kills, purge=purge):
                lake.erase(one, purge=purge)
            lake.forget()
            self.problems += lake.problems(first, everywhere=purge)
            if self.problems:
                return
        twice = lake.erase(lake.done[0], purge=False)
        self.problems += [f"it was erased again: {twice}"] if any(twice.values()) else []
        lake.again(self.draw)
        self.problems += lake.problems(first, computed_again=True)

    def killed(self, one: int, times: int, *, purge: bool) -> bool:
        """Kill an erasure up to so many times; return False if it came to its end before."""
        done = 0
        for number in range(times):
            # What earlier tries did is mostly not done again.
            operation = self.draw.randrange(max(1, self.longest[purge] - done))
            if not self.kill(one, operation, purge=purge, is_first=number == 0):
                return False
            done += operation
        return True

    def kill(self, one: int, operation: int, *, purge: bool, is_first: bool) -> bool:
        """Kill an erasure at an operation; sometimes the pipelines run afterwards.

        :param is_first: no earlier try did a part of the work
        :return: False if it came to its end before
        """
        self.stop.arm(operation)
        try:
            self.lake.erase(one, purge=purge)
        except (Killed, DeltaCdcError):
            if not self.stop.stopped():
                raise
            self.number += 1
            self.at.append((purge, operation))
            killed = True
        else:
            killed = False
            if is_first:
                self.longest[purge] = int(self.stop.count())
        self.stop.arm(_ALL)
        self.lake.forget()
        if self.draw.random() < 0.15:
            self.lake.cycle()
        return killed


if __name__ == "__main__":
    main(*sys.argv[1:])
