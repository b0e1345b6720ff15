"""SIGKILL of the driver and its JVM, before, at and after the commit; then a plain retry.

A trial counts only if the state it is about is found on disk afterwards.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.support.holding import killing
from tests.support.slow import slow_but
from tests.support.world import data_files, listing, orphans, seals
from tests.system.conftest import KINDS, Kind, Trial, kill

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

SIGKILLED = -9


def killed_at(trial: Trial, point: str) -> None:
    """Let a driver kill itself at a named point."""
    process = trial.start(killing(point))
    published, _ = process.communicate()
    assert process.returncode == SIGKILLED, trial.log()
    assert published == ""


@pytest.mark.parametrize("kind", slow_but(KINDS, "scd1"))
def test_before_the_commit(trial: Callable[..., Trial], kind: Kind) -> None:
    tried = trial(kind)
    versions, files = tried.versions, data_files(tried.target)
    killed_at(tried, "before_commit")
    assert tried.versions == versions
    assert data_files(tried.target) == files
    tried.check(tried.retry())
    # The retry made one commit more; a load may be followed by the one that sets the clustering.
    assert len(seals(tried.target)) == (1 if kind == "load" else 2)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_after_the_commit(trial: Callable[..., Trial], kind: Kind) -> None:
    tried = trial(kind)
    versions = tried.versions
    killed_at(tried, "committed")
    assert len(tried.versions) == len(versions) + 1
    assert seals(tried.target)[-1]["at"] == tried.versions[-1]
    before = listing(tried.target)
    tried.check(tried.retry())
    assert listing(tried.target) == before


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_with_data_on_disk_and_no_log_entry(trial: Callable[..., Trial], kind: Kind) -> None:
    tried = killed_between_data_and_log(trial, kind, attempts=6)
    tried.check(tried.retry())


def killed_between_data_and_log(trial: Callable[..., Trial], kind: Kind, attempts: int) -> Trial:
    """Kill drivers as soon as a data file shows, until one left the file and no commit."""
    for attempt in range(attempts):
        tried = trial(kind, f"attempt {attempt}")
        versions = tried.versions
        process = tried.start({})
        after_changes(process, tried.target, 1)
        kill(process)
        if tried.versions == versions and orphans(tried.target):
            return tried
    raise AssertionError(f"none of {attempts} kills fell between data file and log entry")


def after_changes(process: subprocess.Popen[str], target: str, changes: int) -> bool:
    """Wait, awake, for so many new data files and commits; False if the driver ended first."""
    known = _written(target)
    while len(_written(target) - known) < changes:
        if process.poll() is not None:
            return False
        os.sched_yield()
    return True


def _written(target: str) -> set[str]:
    """Names of non-empty data files and of commits."""
    found = set()
    for folder in (target, f"{target}/_delta_log"):
        try:
            entries = list(os.scandir(folder))
        except FileNotFoundError:
            continue
        for entry in entries:
            wanted = entry.name.endswith((".parquet", ".bin", ".json")) and not entry.name.startswith(".")
            if wanted and _size(entry):
                found.add(entry.name)
    return found


def _size(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat().st_size
    except FileNotFoundError:
        return 0


# -- many, at random ------------------------------------------------------------------------------
@pytest.mark.slow
def test_at_random_instants(trial: Callable[..., Trial], capsys: pytest.CaptureFixture[str]) -> None:
    """Kills after a random number of files, some of them of the retry as well.

    ``DELTA_CDC_KILLS`` says how many (default 40), ``DELTA_CDC_KILL_SEED`` which.
    """
    seed = int(os.environ.get("DELTA_CDC_KILL_SEED", "20261121"))
    kills = int(os.environ.get("DELTA_CDC_KILLS", "40"))
    rng = random.Random(seed)
    states: Counter[str] = Counter()
    with capsys.disabled():
        print(f"\nreplay: DELTA_CDC_KILL_SEED={seed} DELTA_CDC_KILLS={kills} pytest -k at_random_instants")
    for number in range(kills):
        tried = trial(rng.choice(KINDS), f"kill {number}")
        for _ in range(rng.choice((1, 1, 2))):
            states[random_kill(tried, rng.randint(1, 3))] += 1
        tried.check(tried.retry())
    with capsys.disabled():
        print(f"states found on disk: {dict(states)}")
    assert states["data, no log entry"] >= kills // 10
    assert states["ended by itself"] <= kills // 2


def random_kill(tried: Trial, changes: int) -> str:
    """Kill a driver after some files; return the state that lies on disk."""
    versions, left_over = tried.versions, orphans(tried.target)
    process = tried.start({})
    if not after_changes(process, tried.target, changes):
        process.wait()
        return "ended by itself"
    kill(process)
    if tried.versions != versions:
        return "committed"
    return "data, no log entry" if orphans(tried.target) - left_over else "before the data"
