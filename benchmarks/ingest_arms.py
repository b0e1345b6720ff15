"""The arms of the benchmark of ingesting, and the files they take.

A landing folder holds one line of JSON per event. A run starts from a log and a target that hold the first
delivery; then one delivery after the other is put into the folder and brought into both.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from apply_tables import linked

from delta_cdc import job
from delta_cdc.core.sql import table as sql_table
from delta_cdc.run.batch import PipelineJob, run_batch
from delta_cdc.run.loop import Services
from delta_cdc.run.table_arguments import requests

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

#: What a row holds, and as what.
SCHEMA = (
    "id BIGINT, region INT, amount DECIMAL(12,2), status STRING, name STRING, updated_at TIMESTAMP, "
    "note STRING"
)
COLUMNS = tuple(part.split()[0] for part in SCHEMA.split(", "))
_ATTRIBUTES = COLUMNS[1:]
_EVENT = f"op STRING, seq STRING, {SCHEMA}"
#: The order of events is text as it stands, and no part of a row.
DECLARED = f"{SCHEMA}, seq STRING"
ADAPTER_OPTIONS = {"operation_column": "op", "sequence_by": "seq", "except_column_list": ["seq"]}
_LEFT_OUT = ["_op", "_sequence", "_columns", "_source_timestamp", "_position"]
#: Values of an event, made of its id and of the number of the event.
_VALUES = (
    "CAST(pmod(xxhash64(id, n), 1000) AS INT) AS region",
    "CAST(pmod(xxhash64(n, id), 100000000) / 100 AS DECIMAL(12, 2)) AS amount",
    "array('new', 'paid', 'sent', 'done')[CAST(pmod(xxhash64(id, 3, n), 4) AS INT)] AS status",
    "concat('customer ', hex(xxhash64(id, 7, n))) AS name",
    "date_format(timestamp_seconds(1700000000 + n), \"yyyy-MM-dd'T'HH:mm:ss'Z'\") AS updated_at",
    "IF(pmod(n, 5) = 0, NULL, repeat('note ', CAST(pmod(xxhash64(n, 1), 12) AS INT))) AS note",
)


@dataclass(frozen=True)
class Cell:
    """One row of the table.

    :param rows: of the target before the run; that many events came before
    :param batches: how many deliveries follow, one after the other
    :param events: in each of them
    :param files: in each of them
    """

    rows: int
    batches: int
    events: int
    files: int

    @property
    def name(self) -> str:
        """Return what the cell is called."""
        return f"{self.rows}-{self.batches}x{self.events}-{self.files}"


class Deliveries:
    """The files of a cell, and the landing folder into which they are put.

    The folder stays where it is, because what was taken from it is known by its name.
    """

    def __init__(self, session: SparkSession, folder: Path, cell: Cell) -> None:
        self.cell = cell
        self.landing = folder / "landing"
        self._kept = folder / "deliveries"
        for number in range(cell.batches + 1):
            if not (self._kept / str(number) / "_SUCCESS").exists():
                self._make(session, number)

    def _make(self, session: SparkSession, number: int) -> None:
        """Write a delivery: the first one has an insert of every row, later ones all kinds of events."""
        cell = self.cell
        first = 0 if number == 0 else cell.rows + (number - 1) * cell.events
        count, files = (cell.rows, max(1, cell.files)) if number == 0 else (cell.events, cell.files)
        rows = session.range(first, first + count, numPartitions=files).withColumnRenamed("id", "n")
        if number == 0:
            keyed = rows.selectExpr("n", "n AS id", "'I' AS op")
        else:
            # One in eleven keys is new at first; one event in ten is a delete.
            keyed = rows.selectExpr(
                "n",
                f"pmod(xxhash64(n, 'key'), {cell.rows + cell.rows // 10}) AS id",
                "IF(pmod(xxhash64(n, 'op'), 10) = 0, 'D', 'U') AS op",
            )
        named = keyed.selectExpr("op", "lpad(CAST(n AS STRING), 20, '0') AS seq", "id", *_VALUES)
        lines = named.selectExpr("to_json(struct(*), map('ignoreNullFields', 'false')) AS value")
        lines.write.mode("overwrite").text(str(self._kept / str(number)))

    def reset(self) -> None:
        """Leave the first delivery alone in the landing folder.

        Its files stay as they are: a new link to a file changes the time of its inode, by which an ingest
        notices that a file may be another one, and reads it again.
        """
        if not (self.landing / "0").exists():
            self.deliver(0)
        for number in range(1, self.cell.batches + 1):
            shutil.rmtree(self.landing / str(number), ignore_errors=True)

    def deliver(self, number: int) -> None:
        """Put a delivery into the landing folder, in no time."""
        to = self.landing / str(number)
        to.mkdir(parents=True)
        for file in (self._kept / str(number)).glob("part-*"):
            os.link(file, to / f"{file.stem}.json")


class Run:
    """One arm in one cell: a copy of its state for every run.

    :param make: brings the first delivery into an empty folder
    :param take: brings what is new in the landing folder into the state
    """

    def __init__(
        self,
        name: str,
        session: SparkSession,
        deliveries: Deliveries,
        folder: Path,
        *,
        make: Callable[[SparkSession, Path, Path], None],
        take: Callable[[SparkSession, Path, Path], None],
        clock: Callable[[], float],
    ) -> None:
        self.name = name
        self.cpu: list[float] = []
        self._session, self._deliveries, self._take, self._clock = session, deliveries, take, clock
        self._folder = folder
        self._prepared = folder / f"prepared-{name.replace(' ', '-')}"
        self.state = self._prepared
        if not (self._prepared / "ready").exists():
            shutil.rmtree(self._prepared, ignore_errors=True)
            self._prepared.mkdir(parents=True)
            deliveries.reset()
            make(session, deliveries.landing, self._prepared)
            (self._prepared / "ready").touch()

    def prepare(self) -> None:
        """Make a fresh copy of the state, at a new place: Spark remembers tables by their path."""
        self.clear()
        self.state = self._folder / f"run-{uuid.uuid4().hex}"
        linked(self._prepared, self.state)
        self._deliveries.reset()
        os.sync()

    def run(self) -> None:
        """Take one delivery after the other."""
        begin = self._clock()
        for number in range(1, self._deliveries.cell.batches + 1):
            self._deliveries.deliver(number)
            self._take(self._session, self._deliveries.landing, self.state)
        self.cpu.append(self._clock() - begin)

    def answer(self) -> tuple[object, ...]:
        """Return what tells the rows from others, and how many events the log has."""
        rows = self._session.read.format("delta").load(str(self.state / "target"))
        # The hash of a NULL is that of nothing at all: say where they are.
        hashed = ", ".join(f"{name}, {name} IS NULL" for name in COLUMNS)
        found = rows.selectExpr("count(*)", f"sum(CAST(xxhash64({hashed}) AS DECIMAL(38)))").first()
        assert found is not None
        return (*found, self._session.read.format("delta").load(str(self.state / "log")).count())

    def clear(self) -> None:
        """Remove the copy."""
        if self.state != self._prepared:
            shutil.rmtree(self.state, ignore_errors=True)


# -- ours ---------------------------------------------------------------------------------------
def ours(session: SparkSession, landing: Path, state: Path) -> None:
    """Ingest and apply in one job, as the ingest operator does: plan, run, confirm, for log and target."""
    given = {
        "pipeline": "benchmark",
        "source": str(landing),
        "log": str(state / "log"),
        "target": str(state / "target"),
        "keys": ["id"],
        "adapter": "plain",
        "adapter_options": ADAPTER_OPTIONS,
        "schema": DECLARED,
        "stored_as_scd_type": 1,
        "except_column_list": _LEFT_OUT,
    }
    ingest, apply = requests(given)
    pipeline_job = PipelineJob(ingest=ingest, apply=apply)
    (done,) = run_batch([pipeline_job], Services(execute=partial(job.run, session), say=lambda line: None))
    assert done.error is None, done.error


# -- by hand ------------------------------------------------------------------------------------
_LISTED = ", ".join(COLUMNS)
_GIVEN = ", ".join(f"s.{name}" for name in COLUMNS)
_SET = ", ".join(f"t.{name} = s.{name}" for name in _ATTRIBUTES)
_MERGE = f"""
    MERGE INTO {{target}} AS t
    USING (
        SELECT * FROM (
            SELECT *, row_number() OVER (PARTITION BY id ORDER BY seq DESC) AS newest FROM {{batch}}
        ) WHERE newest = 1
    ) AS s
    ON t.id = s.id
    WHEN MATCHED AND s.op = 'D' THEN DELETE
    WHEN MATCHED THEN UPDATE SET {_SET}
    WHEN NOT MATCHED AND s.op <> 'D' THEN INSERT ({_LISTED}) VALUES ({_GIVEN})
"""


def by_hand(session: SparkSession, landing: Path, state: Path) -> None:
    """Run the stream that a good engineer writes: each micro-batch read once, appended and merged."""
    _stream(session, landing, state, partial(_append_and_merge, state))


def by_hand_first(session: SparkSession, landing: Path, state: Path) -> None:
    """Begin as ours begins, so that both arms merge into tables of one layout."""
    ours(session, landing, state)
    for folder in state.glob("log*"):
        shutil.rmtree(folder)
    _stream(session, landing, state, partial(_append, state))


def _stream(
    session: SparkSession, landing: Path, state: Path, take: Callable[[DataFrame, int], None]
) -> None:
    from pyspark.sql import functions as F

    lines = session.readStream.option("recursiveFileLookup", "true").text(str(landing))
    events = lines.select(F.from_json("value", _EVENT).alias("event")).select("event.*")
    query = (
        events.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(state / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


def _append(state: Path, batch: DataFrame, number: int) -> None:
    batch.write.format("delta").mode("append").save(str(state / "log"))


def _append_and_merge(state: Path, batch: DataFrame, number: int) -> None:
    kept = batch.persist()
    try:
        _append(state, kept, number)
        view = f"batch_{uuid.uuid4().hex}"
        kept.createOrReplaceTempView(view)
        kept.sparkSession.sql(_MERGE.format(target=sql_table(str(state / "target")), batch=view)).collect()
    finally:
        kept.unpersist()


def ways() -> dict[str, dict[str, Callable[[SparkSession, Path, Path], None]]]:
    """Return the arms: how each begins, and how it goes on."""
    return {"ours": {"make": ours, "take": ours}, "by hand": {"make": by_hand_first, "take": by_hand}}
