"""Tables for processes that die: a source with eight versions, and targets that are half way."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import pytest

from delta_cdc import apply_changes, job
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import forget_saved_plans
from tests.support.world import Rows, Source, commits, expected, held, ranges
from tests.system.driver import FilePlans, request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

Kind = Literal["load", "scd1", "scd2"]
KINDS: tuple[Kind, ...] = ("load", "scd1", "scd2")

#: The version up to which the targets of ``scd1`` and ``scd2`` are filled before a trial.
LOADED = 4


@dataclass
class Trial:
    """One apply that is to be killed: an initial load, or versions 5-7 into a target filled up to 4."""

    spark: SparkSession
    kind: Kind
    source: Source
    target: str
    folder: Path

    @property
    def scd(self) -> int:
        return 2 if self.kind == "scd2" else 1

    @property
    def loaded(self) -> int:
        return self.source.newest if self.kind == "load" else LOADED

    @property
    def range(self) -> tuple[int, int]:
        """The source's versions that the apply is about."""
        newest = self.source.newest
        return (newest, newest) if self.kind == "load" else (LOADED + 1, newest)

    @property
    def right(self) -> Rows:
        return expected(self.source, self.scd, self.loaded)

    @property
    def rows(self) -> Rows:
        return held(self.spark, self.target, self.scd)

    @property
    def versions(self) -> list[int]:
        """The target's commits on disk."""
        return sorted(commits(self.target))

    @property
    def _pins(self) -> Path:
        return self.folder / "pins.json"

    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[str]:
        """Start the driver in a process group of its own, JVM included."""
        arguments = [self.source.path, self.target, str(self.scd), str(self._pins)]
        with (self.folder / "driver.log").open("a") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.system.driver", *arguments],
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **environment},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def retry(self) -> Outcome:
        """Do what a retry does, in this process's warm session."""
        saved_plans = FilePlans(self._pins)
        result = run(
            request(self.source.path, self.target, self.scd),
            Services(execute=partial(job.run, self.spark), saved_plans=saved_plans),
        )
        forget_saved_plans(result, saved_plans)
        return result

    def log(self) -> str:
        return (self.folder / "driver.log").read_text()[-4000:]

    def check(self, result: Outcome) -> None:
        """After the retry: published as applied, right rows, and one commit for the range."""
        assert result.applied
        assert result.watermark is not None
        assert result.watermark.version == self.source.newest
        assert result.versions is not None
        assert (result.versions.starting_version, result.versions.ending_version) == self.range
        assert ranges(self.target).count(self.range) == 1
        assert self.rows == self.right


def kill(process: subprocess.Popen[str]) -> None:
    """SIGKILL a driver, its JVM and all."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        assert process.poll() is not None
    process.wait()


@pytest.fixture(scope="session")
def known_source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    source = Source(str(tmp_path_factory.mktemp("known") / "source")).create(None)
    source.insert(None, {100 + n: (f"row {n}", n) for n in range(10)})
    source.grow(None, random.Random(11), 6)
    return source


@pytest.fixture(scope="session")
def filled(
    spark: SparkSession, known_source: Source, tmp_path_factory: pytest.TempPathFactory
) -> dict[Kind, str]:
    """Targets filled up to version 4."""
    folder = tmp_path_factory.mktemp("filled")
    made: dict[Kind, str] = {"scd1": str(folder / "scd1"), "scd2": str(folder / "scd2")}
    for kind, target in made.items():
        scd = 2 if kind == "scd2" else 1
        apply_changes(
            spark,
            known_source.path,
            target,
            pipeline="flow",
            keys=["id"],
            stored_as_scd_type=scd,
            ending_version=LOADED,
        )
    return made


@pytest.fixture
def trial(
    spark: SparkSession, known_source: Source, filled: dict[Kind, str], tmp_path: Path
) -> Callable[..., Trial]:
    """Make a fresh trial of a kind."""

    def make(kind: Kind, name: str = "trial") -> Trial:
        folder = tmp_path / name
        folder.mkdir()
        target = folder / "target"
        if kind != "load":
            shutil.copytree(filled[kind], target)
        return Trial(spark, kind, known_source.copy(folder / "source"), str(target), folder)

    return make
