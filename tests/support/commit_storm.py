"""Many drivers that commit to one table at once through a log store, and the log that they leave.

Each driver is a process with a JVM of its own (``java/CommitStorm.java``), because only the store keeps real
drivers apart.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc.launch.environment import java_binary, spark_home
from delta_cdc.launch.jars import needed
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY
from tools.jar import built, compiled

if TYPE_CHECKING:
    from tests.support.lake import Lake

_SOURCE = Path(__file__).resolve().parent / "java" / "CommitStorm.java"
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
    """The class path of a driver, with the log store as its sources are now."""

    class_path: str

    @classmethod
    def compiled(cls, folder: Path) -> Programs:
        """Compile the log store and the driver into a new folder."""
        jar = built(folder / "jar")
        compiled([_SOURCE], folder / "classes", jar)
        jars = [path for path in needed(["s3://lake"]) if not path.name.startswith("delta-cdc-")]
        parts = [folder / "classes", jar, *jars, spark_home() / "jars" / "*"]
        return cls(os.pathsep.join(map(str, parts)))


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
    lake: Lake, programs: Programs, log_store: str, *, drivers: int, commits: int, pause: int = 0
) -> Storm:
    """Let drivers commit to one new table at once, and wait for them.

    :param log_store: its class
    :param commits: of each driver
    :param pause: the longest pause before a commit, in ms
    """
    table = "storm"
    (lake.folder / table / "_delta_log").mkdir(parents=True)
    confs = {**_S3A, "endpoint": lake.proxy.endpoint, "fast.upload.buffer": "bytebuffer"}
    with ExitStack() as stack:
        # Files, because a driver whose pipe is full would wait.
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(2 * drivers)]
        processes = [
            subprocess.Popen(
                [
                    *(str(java_binary()), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    *("-cp", programs.class_path, "CommitStorm"),
                    *(
                        log_store,
                        f"s3a://{lake.name}/{table}/_delta_log",
                        str(driver),
                        str(commits),
                        str(pause),
                    ),
                    *(f"fs.s3a.{name}={value}" for name, value in confs.items()),
                ],
                stdout=outputs[2 * driver],
                stderr=outputs[2 * driver + 1],
            )
            for driver in range(drivers)
        ]
        try:
            codes = [process.wait(_SECONDS) for process in processes]
        finally:
            for process in processes:
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
    return Storm(reports, held(lake.folder / table / "_delta_log"), failures, drivers, commits)


def held(log: Path) -> dict[int, tuple[int, int]]:
    """Return by version, (driver, number) of the commit in it."""
    found = {}
    for file in log.glob("*.json"):
        information = json.loads(file.read_text())["commitInfo"]
        found[int(file.stem)] = (information["driver"], information["number"])
    return found
