"""A real stream of changes, brought into a log and two targets by processes that are killed again and again.

PostgreSQL under pgbench, decoded into files; then ingest and apply, SIGKILLed at random points; in the end
both targets equal PostgreSQL row by row, and the log holds every event once.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core import failpoints
from demo import stream_check, workload
from demo.check import Check, Finding, rows_of
from demo.landing import Draining, Landing
from tests.support.postgres import server
from tests.system.ingester import TABLE, places

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from demo.postgres import Postgres

SIGKILLED = -9
SEED = int(os.environ.get("DELTA_CDC_KILL_SEED", "20261121"))
KILLS = int(os.environ.get("DELTA_CDC_KILLS", "24"))
#: Changes that pgbench makes after its table was filled, at least: most transactions make one.
EVENTS = int(os.environ.get("DELTA_CDC_KILL_EVENTS", "100000"))
ACCOUNTS = 20_000
#: Transactions per second: some twenty seconds, in which files land all the time.
RATE = 5_000
#: Events of a file, files of a batch: at most.
MOST_EVENTS, MOST_FILES = 1_500, 2
#: Points that every batch passes.
_POINTS = [point for point in failpoints.POINTS if point != "quarantined"]


@pytest.fixture
def recorded(tmp_path: Path) -> Iterator[Postgres]:
    """A stream of changes that has landed in files, and the PostgreSQL that it came from."""
    with server() as running:
        landing = Landing(running, tmp_path / "landed", tables=(TABLE.name,), most_events=MOST_EVENTS)
        landing.open()
        workload.create(running)
        workload.fill(running, accounts=ACCOUNTS)
        landing.drain()
        clients = 4
        with Draining(landing, pause=0.05) as draining:
            running.run(
                "pgbench",
                *("--no-vacuum", "--client", str(clients), "--jobs", "2", "--random-seed", str(SEED)),
                *("--transactions", str(EVENTS * 6 // 5 // clients), "--rate", str(RATE)),
                *workload.scripts(tmp_path, TABLE, accounts=ACCOUNTS),
            )
            draining.finish()
        assert landing.landed[TABLE.name] - ACCOUNTS > EVENTS
        # Enough that the last batch is left when the last process dies.
        assert len(_landed(tmp_path)) > KILLS * MOST_FILES
        yield running


def _landed(folder: Path) -> list[Path]:
    return sorted((folder / "landed" / TABLE.name).rglob("*.jsonl"))


def _run(folder: Path, max_files: int, death: str) -> int:
    """Run an ingester to its end, or to its death; return its exit code."""
    with (folder / "ingester.log").open("a") as log:
        log.write(f"\n--- {death}, batches of {max_files} files\n")
        log.flush()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.system.ingester", str(folder), str(max_files), death],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        return process.wait()


def _death(dice: random.Random) -> str:
    """Choose when to die: at a point of a job, or any time in the first two batches or so."""
    if dice.random() < 0.5:
        point = dice.choice(_POINTS)
        # Only an ingest records what it takes: once in a batch. An apply passes the other points, too.
        return f"{point}:{1 if point == 'recorded' else dice.randint(1, 3)}"
    return f"seconds:{dice.uniform(0.5, 6):.2f}"


def _deliver_again(folder: Path, dice: random.Random) -> None:
    """Write a file once more, as a sender does that does not know whether it had arrived."""
    file = dice.choice(_landed(folder)[1:])
    lines = file.read_bytes()
    draft = file.with_name(f".{file.name}.draft")
    draft.write_bytes(lines)
    draft.replace(file)


def _findings(spark: SparkSession, source: Postgres, folder: Path) -> list[Finding]:
    """Compare log and targets with PostgreSQL, and with what landed."""
    exported = {}
    for name in ("log", "scd1", "scd2"):
        out = folder / "exports" / name
        spark.read.format("delta").load(places(folder)[name]).write.parquet(str(out))
        exported[name] = rows_of(out)
    rows = stream_check.export(source, TABLE, folder / "exports")
    landed, history = folder / "landed", exported["scd2"]
    with Check() as check:
        return [
            check.same_rows(
                "every event once",
                stream_check.sequences(landed, TABLE),
                f"SELECT _sequence AS seq FROM ({exported['log']})",
            ),
            check.same_rows("type 1", rows, exported["scd1"]),
            check.same_rows(
                "type 2, open rows",
                rows,
                f"SELECT * EXCLUDE (__START_AT, __END_AT) FROM ({history}) WHERE __END_AT IS NULL",
            ),
            check.same_rows("type 2, all rows", stream_check.history(landed, TABLE), history),
        ]


@pytest.mark.slow
def test_killed_again_and_again(
    recorded: Postgres, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """``DELTA_CDC_KILLS`` says how many kills (default 24), ``DELTA_CDC_KILL_SEED`` which.

    The seed chooses deaths and what pgbench does; how far a process comes until it dies is the machine's.
    """
    dice = random.Random(SEED)
    deaths: Counter[str] = Counter()
    begin = time.monotonic()
    with capsys.disabled():
        print(
            f"\nreplay: DELTA_CDC_KILL_SEED={SEED} DELTA_CDC_KILLS={KILLS} DELTA_CDC_KILL_EVENTS={EVENTS} "
            f"pytest -k killed_again_and_again"
        )
    while deaths.total() < KILLS:
        death = _death(dice)
        code = _run(tmp_path, dice.randint(1, MOST_FILES), death)
        assert code == SIGKILLED, f"{death}: ended with {code}:\n{_log(tmp_path)}"
        deaths[death.partition(":")[0]] += 1
        if dice.random() < 0.25:
            _deliver_again(tmp_path, dice)
    assert _run(tmp_path, 0, "never") == 0, _log(tmp_path)
    found = _findings(spark, recorded, tmp_path)
    with capsys.disabled():
        print(f"{deaths.total()} kills in {time.monotonic() - begin:.0f} s: {dict(deaths)}")
        for finding in found:
            told = f"{finding.rows:,} rows, {finding.missing} missing, {finding.surplus} surplus"
            print(f"  {finding.what}: {told}")
    assert all(finding.holds for finding in found), found


def _log(folder: Path) -> str:
    return (folder / "ingester.log").read_text()[-4000:]
