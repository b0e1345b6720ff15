"""A reader of the target sees whole batches or nothing of them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from delta_cdc import apply_changes
from tests.support.holding import PATIENCE, Running, hooked
from tests.support.world import HISTORY, Source

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

ACCOUNTS = 5
BATCHES = 20
TOTAL = ACCOUNTS * 100


def bank(path: Path, batches: int) -> Source:
    """Make a source whose every version sets all rows' marker to its number and moves 1 between accounts."""
    source = Source(str(path)).create(None)
    source.insert(None, dict.fromkeys(range(ACCOUNTS), ("0", 100)))
    for batch in range(1, batches + 1):
        rows = {account: (str(batch), amount) for account, (_, amount) in source.states[-1].items()}
        giver, taker = batch % ACCOUNTS, (batch * 3 + 1) % ACCOUNTS
        if giver != taker:
            rows[giver] = (str(batch), rows[giver][1] - 1)
            rows[taker] = (str(batch), rows[taker][1] + 1)
        source.update(None, rows)
    return source


def is_whole(rows: list[tuple[str, int]]) -> bool:
    """Tell whether these are all accounts of one batch."""
    return len(rows) == ACCOUNTS and len({name for name, _ in rows}) == 1 and sum(a for _, a in rows) == TOTAL


class Reader:
    """Reads a target over and over, and notes which reads ran while an apply did."""

    def __init__(self, spark: SparkSession, target: str, scd: int) -> None:
        self._spark = spark.newSession()
        self._target = target
        self._scd = scd
        self._turn = threading.Condition()
        self._stopped = False
        self.started = 0
        self.reads: list[tuple[bool, list[tuple[str, int]]]] = []
        self.applying = threading.Event()

    def loop(self) -> None:
        while not self._stopped:
            with self._turn:
                self.started += 1
                self._turn.notify_all()
            during = self.applying.is_set()
            rows = self.read()
            self.reads.append((during or self.applying.is_set(), rows))

    def read(self) -> list[tuple[str, int]]:
        found = self._spark.read.format("delta").load(self._target)
        if self._scd == 2:
            found = found.select(*HISTORY).where("__END_AT IS NULL")
        return [(row["name"], row["amount"]) for row in found.collect()]

    def at_commit(self, point: str) -> None:
        """Hook: let a read begin right before every MERGE, so that the two run together."""
        if point == "before_commit":
            with self._turn:
                next_read = self.started + 1
                assert self._turn.wait_for(lambda: self.started >= next_read, PATIENCE)

    def stop(self) -> None:
        self._stopped = True


def read_along(spark: SparkSession, tmp_path: Path, scd: int, batches: int) -> Reader:
    source, target = bank(tmp_path / "bank", batches), str(tmp_path / "target")
    flow = {"pipeline": "flow", "keys": ["id"], "stored_as_scd_type": scd}
    apply_changes(spark, source.path, target, ending_version=1, **flow)  # type: ignore[arg-type]
    reader = Reader(spark, target, scd)
    running = Running(reader.loop, "reader")
    try:
        with hooked(reader.at_commit):
            for version in range(2, batches + 2):
                reader.applying.set()
                result = apply_changes(spark, source.path, target, ending_version=version, **flow)  # type: ignore[arg-type]
                reader.applying.clear()
                assert result.applied
    finally:
        reader.stop()
        running.result()
    return reader


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2], ids=["scd1", "scd2"])
def test_a_reader_sees_only_whole_batches(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    reader = read_along(spark, tmp_path, scd, BATCHES)
    torn = [rows for _, rows in reader.reads if not is_whole(rows)]
    assert not torn
    overlapping = sum(during for during, _ in reader.reads)
    assert overlapping >= BATCHES
    seen = [int(rows[0][0]) for _, rows in reader.reads]
    assert seen == sorted(seen)
    # It did see the target move, not only its first and last state.
    assert len(set(seen)) > BATCHES // 2


def test_the_reader_would_see_half_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{target}` USING delta AS SELECT id, '0' AS name, 100L AS amount "
        f"FROM range({ACCOUNTS})"
    )
    reader = Reader(spark, target, 1)
    assert is_whole(reader.read())
    spark.sql(f"UPDATE delta.`{target}` SET name = '1', amount = amount - 1 WHERE id = 0")
    assert not is_whole(reader.read())
    spark.sql(f"UPDATE delta.`{target}` SET name = '1', amount = amount + (id = 1)::BIGINT WHERE id > 0")
    assert is_whole(reader.read())
