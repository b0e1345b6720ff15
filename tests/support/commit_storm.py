"""Many drivers that commit to one table at once through a log store, and the log that they leave.

Each driver is a process with a JVM of its own (``java/CommitStorm.java``), because only the store keeps real
drivers apart.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.launch.environment import java_binary, spark_home
from delta_cdc.launch.jars import needed
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY
from tools.jar import SOURCES, compiled

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.lake import Lake

_SOURCES = Path(__file__).resolve().parent / "java"
_SECONDS = 1_800
_REPORTS = ("committed ", "unclear ")

#: S3A repeats in a hurry, and gives an answer up after the shortest time that it allows.
_S3A = {
    "endpoint.region": REGION,
    "path.style.access": "true",
    "connection.ssl.enabled": "false",
    "access.key": ACCESS_KEY,
    "secret.key": SECRET_KEY,
    "retry.interval": "20ms",
    "retry.throttle.interval": "20ms",
    "connection.timeout": "15s",
}


@dataclass(frozen=True)
class Programs:
    """The class path of a driver, with the log stores as their sources are now.

    :param class_path: all of it
    :param without_spark: what Spark, with Delta's JARs, does not have
    """

    class_path: str
    without_spark: str

    @classmethod
    def compiled(cls, folder: Path) -> Programs:
        """Compile the log stores and the driver into a new folder."""
        classes = folder / "classes"
        compiled([*SOURCES.rglob("*.java"), *_SOURCES.glob("*.java")], classes)
        jars = [path for path in needed(["s3://lake"]) if not path.name.startswith("delta-cdc-")]
        return cls(os.pathsep.join(map(str, (classes, *jars, spark_home() / "jars" / "*"))), str(classes))


@dataclass(frozen=True)
class Place:
    """Where drivers commit.

    :param log: location of the table's log, as drivers name it
    :param folder: the same here
    :param confs: of Hadoop
    """

    log: str
    folder: Path
    confs: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def on_lake(cls, lake: Lake) -> Place:
        """Return the log of a new table in a bucket."""
        confs = {**_S3A, "endpoint": lake.proxy.endpoint, "fast.upload.buffer": "bytebuffer"}
        return cls(
            f"s3a://{lake.name}/storm/_delta_log",
            lake.folder / "storm" / "_delta_log",
            {f"fs.s3a.{name}": value for name, value in confs.items()},
        )

    @classmethod
    def on_disk(cls, table: Path) -> Place:
        """Return the log of a new table on this machine; Delta's own log store meets failpoints there."""
        log = table / "_delta_log"
        return cls(str(log), log, {"fs.AbstractFileSystem.file.impl": "DiskWithFailpoint"})


@dataclass(frozen=True)
class Storm:
    """What drivers reported, and what the log holds.

    :param reports: by driver, its lines
    :param held: by version, (driver, number) of its commit
    :param failures: by driver that failed, the end of its output of errors
    :param drivers: how many there were
    :param commits: how many each was to make
    """

    reports: dict[int, list[list[str]]]
    held: dict[int, tuple[int, int]]
    failures: dict[int, str]
    drivers: int
    commits: int

    @property
    def unclear(self) -> int:
        """Return how often a driver could not know whether its commit was made."""
        return sum(line[0] == "unclear" for lines in self.reports.values() for line in lines)

    def problems(self) -> list[str]:
        """Return a sentence for each commit that is not in the log once, where its driver believes it is."""
        found = [f"driver {driver} failed: {text}" for driver, text in self.failures.items()]
        if sorted(self.held) != list(range(self.drivers * self.commits)):
            found.append(f"{len(self.held)} versions up to {max(self.held, default=-1)}")
        times = Counter(self.held.values())
        for driver in range(self.drivers):
            believed = {int(line[1]): int(line[2]) for line in self.reports[driver] if line[0] == "committed"}
            for number in range(self.commits):
                commit = (driver, number)
                if times[commit] != 1:
                    found.append(f"commit {commit} is in the log {times[commit]} times")
                elif self.held.get(believed.get(number, -1)) != commit:
                    found.append(f"commit {commit} is not where its driver believes")
        return found


def storm(
    place: Place,
    programs: Programs,
    log_store: str,
    *,
    drivers: int,
    commits: int,
    pause: int = 0,
    failpoints: Mapping[int, str] | None = None,
) -> Storm:
    """Let drivers commit to one new table at once, and wait for them.

    A driver that stops at its failpoint goes on when all others have ended.

    :param log_store: its class
    :param commits: of each driver
    :param pause: the longest pause before a commit, in ms
    :param failpoints: see ``java/Failpoint.java``, by driver
    """
    place.folder.mkdir(parents=True, exist_ok=True)
    failpoints = failpoints or {}
    stopping = [driver for driver, failpoint in failpoints.items() if failpoint.startswith("stop")]
    processes: dict[int, subprocess.Popen[str]] = {}
    with ExitStack() as stack:
        # Files, because a driver whose pipe is full would wait.
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2 * drivers)]
        try:
            for driver in sorted(range(drivers), key=lambda driver: driver not in stopping):
                processes[driver] = subprocess.Popen(
                    [
                        *(str(java_binary()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                        f"-Dfailpoint={failpoints.get(driver, 'none')}",
                        *("-cp", programs.class_path, "CommitStorm"),
                        *(log_store, place.log, str(driver), str(commits), str(pause)),
                        *(f"{name}={value}" for name, value in place.confs.items()),
                    ],
                    env={**os.environ, "LC_ALL": "C.UTF-8"},
                    # Not that of the tests: Hadoop's conf alone decides who may read a commit.
                    umask=0o077,
                    stdout=outputs[2 * driver],
                    stderr=outputs[2 * driver + 1],
                    text=True,
                )
                if driver in stopping:
                    _, status = os.waitpid(processes[driver].pid, os.WUNTRACED)
                    assert os.WIFSTOPPED(status), "it ended without a stop"
            for driver in set(processes) - set(stopping):
                processes[driver].wait(_SECONDS)
            for driver in stopping:
                processes[driver].send_signal(signal.SIGCONT)
            codes = {driver: process.wait(_SECONDS) for driver, process in processes.items()}
        finally:
            for process in processes.values():
                process.kill()
        for output in outputs:
            output.seek(0)
        texts = [output.read() for output in outputs]
    # Hadoop's own log is in the same output.
    reports = {
        driver: [line.split() for line in texts[2 * driver].splitlines() if line.startswith(_REPORTS)]
        for driver in range(drivers)
    }
    failures = {driver: texts[2 * driver + 1][-2000:] for driver in range(drivers) if codes[driver]}
    return Storm(reports, held(place.folder), failures, drivers, commits)


def listed(place: Place, programs: Programs, log_store: str, **confs: str) -> list[str]:
    """Return the paths that a log store lists from version 0 on.

    :param confs: of Hadoop, besides those of the place
    """
    command = [str(java_binary()), "-cp", programs.class_path, "ListLog", log_store, place.log]
    command += [f"{name}={value}" for name, value in {**place.confs, **confs}.items()]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:]
    return [line.removeprefix("listed ") for line in done.stdout.splitlines() if line.startswith("listed ")]


def held(log: Path) -> dict[int, tuple[int, int]]:
    """Return by version, (driver, number) of the commit in it."""
    found = {}
    for file in log.glob("*.json"):
        information = json.loads(file.read_text())["commitInfo"]
        found[int(file.stem)] = (information["driver"], information["number"])
    return found
