"""What many waiting sensors cost in one triggerer: CPU, memory, and how soon a commit is noticed.

The process that is measured is Airflow's own ``TriggerRunner``, started and fed by its own
``TriggerRunnerSupervisor``; only the supervisor's look-ups in the metadata database are replaced by a list.
Each sensor is a ``DeltaVersionSensorTrigger`` on a table of its own (or on one of ``--tables``).

    python benchmarks/triggerer.py
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

os.environ.setdefault("AIRFLOW_HOME", tempfile.mkdtemp(prefix="benchmark-airflow-"))
os.environ.setdefault("AIRFLOW__LOGGING__LOGGING_LEVEL", "WARNING")
os.environ["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"] = f"sqlite:///{os.environ['AIRFLOW_HOME']}/airflow.db"

import attrs
import psutil
from airflow.executors import workloads
from airflow.jobs.triggerer_job_runner import TriggerRunnerSupervisor
from airflow.models.trigger import Trigger

from airflow_delta_cdc.triggers import DeltaVersionSensorTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator

#: The aims: share of one core, megabytes above the idle process.
CPU_AIM, MEMORY_AIM = 5.0, 150.0
_VERSIONS = 20
_MEGABYTE = 1024 * 1024


@attrs.define(kw_only=True)
class Supervisor(TriggerRunnerSupervisor):
    """Airflow's supervisor, with triggers from a list instead of the database."""

    wanted: dict[int, DeltaVersionSensorTrigger] = attrs.field(factory=dict, init=False)
    fired: dict[int, tuple[float, Any]] = attrs.field(factory=dict, init=False)

    def load_triggers(self) -> None:
        self.update_triggers(set(self.wanted) - set(self.fired))

    def build_trigger_workloads(self, new_trigger_ids: set[int]) -> list[workloads.RunTrigger]:
        return [self._workload(number, self.wanted[number]) for number in sorted(new_trigger_ids)]

    def on_trigger_event(self, trigger_id: int, event: Any) -> None:
        self.fired[trigger_id] = (time.monotonic(), event.payload)

    def on_trigger_failure(self, trigger_id: int, exc: list[str] | None) -> None:
        raise RuntimeError("".join(exc or ["a trigger ended without an event"]))

    def clean_unused(self) -> None:
        """There is nothing to clean."""

    def heartbeat(self) -> None:
        """No task waits for this."""

    def metric_tags(self) -> dict[str, str]:
        return {"hostname": "benchmark"}

    def run_for(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.run_once()

    @staticmethod
    def _workload(number: int, trigger: DeltaVersionSensorTrigger) -> workloads.RunTrigger:
        path, arguments = trigger.serialize()
        return workloads.RunTrigger(
            id=number, classpath=path, encrypted_kwargs=Trigger.encrypt_kwargs(arguments)
        )


class Usage:
    """What a process used between two moments."""

    def __init__(self, pid: int) -> None:
        self._process = psutil.Process(pid)
        self._since, self._cpu = time.monotonic(), self._seconds()

    def share(self) -> float:
        """Return the CPU used since the last call, in percent of one core."""
        now, cpu = time.monotonic(), self._seconds()
        share = 100 * (cpu - self._cpu) / (now - self._since)
        self._since, self._cpu = now, cpu
        return share

    def memory(self) -> float:
        """Return the resident memory in megabytes."""
        return float(self._process.memory_info().rss) / _MEGABYTE

    def _seconds(self) -> float:
        times = self._process.cpu_times()
        return float(times.user + times.system)


def tables(root: Path, count: int) -> list[Path]:
    """Make so many tables with a few versions each."""
    from logs import write_log

    first = root / "t-0"
    write_log(first, _VERSIONS)
    made = [first]
    for number in range(1, count):
        made.append(root / f"t-{number}")
        shutil.copytree(first, made[-1])
    return made


def commit(table: Path) -> float:
    """Append a version to a table; returns when it was there."""
    log = table / "_delta_log"
    content = (log / f"{_VERSIONS - 1:020d}.json").read_bytes()
    staged = log / "staged"
    staged.write_bytes(content)
    staged.rename(log / f"{_VERSIONS:020d}.json")
    return time.monotonic()


def measure(root: Path, sensors: int, count: int, interval: float, seconds: float) -> Iterator[str]:
    """Yield what was measured, one line each."""
    # Before anything else: the runner is forked, and must not find libraries loaded that it loads itself.
    supervisor = Supervisor.start(job=None, capacity=2 * sensors)
    places = tables(root, count)
    usage = Usage(supervisor.pid)
    supervisor.run_for(10)
    usage.share()
    supervisor.run_for(20)
    idle_share, idle_memory = usage.share(), usage.memory()
    yield f"idle triggerer: {idle_share:.1f} % of a core, {idle_memory:.0f} MB"

    supervisor.wanted = {
        number: DeltaVersionSensorTrigger(
            table=str(places[number % count]), baseline={"version": _VERSIONS - 1}, poll_interval=interval
        )
        for number in range(1, sensors + 1)
    }
    # One round for the first looks, which read more, and one in which the pauses spread.
    supervisor.run_for(2 * interval)
    started = usage.share() * 2 * interval / 100
    yield f"first two rounds of {sensors} sensors on {count} tables: {started:.1f} s of CPU"
    supervisor.run_for(seconds)
    share, memory = usage.share() - idle_share, usage.memory() - idle_memory
    yield f"waiting: {share:.1f} % of a core above idle (aim {CPU_AIM:.0f} %)"
    yield f"waiting: {memory:.0f} MB above idle (aim {MEMORY_AIM:.0f} MB)"
    assert not supervisor.fired, supervisor.fired

    changed = random.Random(7).sample(range(count), min(100, count))
    written = {}
    for number in changed:
        written[number] = commit(places[number])
        supervisor.run_for(0.1)
    expected = {number for number in supervisor.wanted if number % count in written}
    end = time.monotonic() + 3 * interval
    while expected - set(supervisor.fired) and time.monotonic() < end:
        supervisor.run_once()
    assert set(supervisor.fired) == expected, "not every commit was noticed"
    late = sorted(when - written[number % count] for number, (when, _) in supervisor.fired.items())
    yield (
        f"a commit noticed after: median {statistics.median(late):.1f} s, "
        f"95 % {late[int(len(late) * 0.95)]:.1f} s, longest {late[-1]:.1f} s, at a look per {interval:.0f} s"
    )
    supervisor.kill(force=True)


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sensors", type=int, default=1000)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--interval", type=float, default=30.0, help="seconds between two looks")
    parser.add_argument("--seconds", type=float, default=90.0, help="how long to measure")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="benchmark-tables-"))
    try:
        for line in measure(root, given.sensors, given.tables, given.interval, given.seconds):
            print(line, flush=True)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
