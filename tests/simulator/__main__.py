"""``python -m tests.simulator --schedules 1000 --seed 0``: play schedules, and print what was seen.

With ``--state FILE``, an interrupted command goes on where it was, and the table covers all its parts.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.simulator import ingest_schedules, plots, schedules, sources
from tests.simulator.constructors import replace_constructors
from tests.simulator.schedules import failures, shrunk
from tests.simulator.table import table_of

if TYPE_CHECKING:
    from types import ModuleType

    from tests.simulator.schedules import Coverage, Failure

#: Schedules between two writes of the state.
_PART = 500
#: Draw and play the schedules of each world.
_WORLDS: dict[str, ModuleType] = {
    "apply": schedules,
    "ingest": ingest_schedules,
    "plots": plots,
    "sources": sources,
}


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000, help="how many schedules to play")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each schedule has the next one")
    parser.add_argument("--state", type=Path, help="a file that keeps the next seed and what was seen")
    parser.add_argument(
        "--world",
        choices=(*_WORLDS, "both"),
        default="both",
        help="both: apply and ingest alternate by seed; plots are applies, each aimed at one rule; sources: "
        "two sources that append to one log",
    )
    parser.add_argument("--replay", type=int, metavar="SEED", help="tell the story of one schedule")
    given = parser.parse_args()
    if os.environ.get("PYTHONHASHSEED") != "0":
        # The order of a set decides who is first: a seed tells the same story only with the same hashes.
        command = [sys.executable, "-m", "tests.simulator", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, "PYTHONHASHSEED": "0"})
    # The project's warnings about simulated failures, and coroutines of processes that crashed.
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore", RuntimeWarning)
    replace_constructors()
    if given.replay is not None:
        return _replayed(given.replay, given.world)
    first, coverage, failed = _read(given.state, given.seed)
    end, played = given.seed + given.schedules, 0
    began, busy = time.monotonic(), time.process_time()
    try:
        while first < end:
            part = range(first, min(first + _PART, end))
            for failure in failures(part, coverage, lambda seed, seen: _played(seed, given.world, seen)):
                failed.append(failure.schedule.seed)
                print(shrunk(failure, _world_of(failure.schedule.seed, given.world).outcome).text())
                print(flush=True)
            first, played = part.stop, played + len(part)
            _write(given.state, first, coverage, failed)
    except KeyboardInterrupt:
        print("Interrupted.")
    seconds, cpu = time.monotonic() - began, time.process_time() - busy
    print(table_of(coverage))
    print(f"{played} schedules in {seconds:.0f} s: {played / seconds:.1f} per second, {played / cpu:.1f} per")
    print(f"CPU second. Seeds {given.seed}-{first - 1}: {len(failed)} failed {failed[:20]}.")
    print(f"Go on with --seed {first}.")
    return 1 if failed else 0


def _world_of(seed: int, world: str) -> ModuleType:
    return _WORLDS[("apply", "ingest")[seed % 2] if world == "both" else world]


def _played(seed: int, world: str, coverage: Coverage | None = None) -> Failure | None:
    of = _world_of(seed, world)
    failure: Failure | None = of.outcome(of.drawn(seed), coverage)
    return failure


def _replayed(seed: int, world: str) -> int:
    failure = _played(seed, world)
    if failure is None:
        print("It keeps all rules.")
        return 0
    print(failure.text(lines=400))
    print("\nThe same, smaller:")
    print(shrunk(failure, _world_of(seed, world).outcome).text())
    return 1


def _read(state: Path | None, seed: int) -> tuple[int, Coverage, list[int]]:
    if state is None or not state.exists():
        return seed, Counter(), []
    kept = json.loads(state.read_text(encoding="utf-8"))
    coverage = Counter({(step, fault): count for step, fault, count in kept["coverage"]})
    return kept["next"], coverage, kept["failed"]


def _write(state: Path | None, first: int, coverage: Coverage, failed: list[int]) -> None:
    if state is not None:
        rows = [[step, fault, count] for (step, fault), count in sorted(coverage.items())]
        text = json.dumps({"next": first, "failed": failed, "coverage": rows})
        draft = state.with_suffix(".draft")
        draft.write_text(text, encoding="utf-8")
        draft.replace(state)


if __name__ == "__main__":
    sys.exit(main())
