"""``python -m tests.histories --histories 100000 --state FILE``: play random histories, and print failures.

With ``--state FILE``, an interrupted command goes on where it was. A history is one key space of a table run;
odd seeds apply a change feed, even ones a change log.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from tests.histories.runs import drawn_steps, played, shrunk

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.histories.runs import Failure


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories", description=__doc__)
    parser.add_argument("--histories", type=int, default=1_000, help="how many histories to play")
    parser.add_argument("--spaces", type=int, default=500, help="histories of one table run")
    parser.add_argument("--seed", type=int, default=0, help="the first seed; each table run has the next one")
    parser.add_argument("--state", type=Path, help="a file that keeps the next seed and what was seen")
    parser.add_argument("--replay", type=int, metavar="SEED", help="play one table run")
    parser.add_argument("--space", type=int, help="with --replay: one key space alone")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    spark = started()
    spaces = range(given.spaces)
    if given.replay is not None:
        some = spaces if given.space is None else [given.space]
        failure = played(spark, given.replay, some, drawn_steps(given.replay), Counter())
        print("It is as it must be." if failure is None else failure.story, flush=True)
        if failure is not None:
            print("The same, smaller:", _smaller(spark, failure).story, sep="\n")
        return 0 if failure is None else 1
    state = {"next": given.seed, "histories": 0, "failed": [], "seconds": 0, "seen": {}}
    if given.state is not None and given.state.exists():
        state = json.loads(given.state.read_text(encoding="utf-8"))
    seen = Counter(state["seen"])
    while state["histories"] < given.histories:
        seed, began = state["next"], time.monotonic()
        failure = played(spark, seed, spaces, drawn_steps(seed), seen)
        if failure is not None:
            state["failed"].append(seed)
            print(failure.story)
        seconds = time.monotonic() - began
        state["next"], state["histories"] = seed + 1, state["histories"] + len(spaces)
        state["seconds"], state["seen"] = state["seconds"] + seconds, dict(sorted(seen.items()))
        _write(given.state, state)
        print(f"seed {seed}: {'FAILED' if failure else 'ok'}, {seconds:.0f} s", flush=True)
    print(f"{state['histories']} histories in {state['seconds']:.0f} s, {len(state['failed'])} table runs")
    print(f"failed: {state['failed'][:20]}. Each is played again by --replay SEED.")
    return 1 if state["failed"] else 0


def _smaller(spark: SparkSession, failure: Failure) -> Failure:
    return shrunk(failure, lambda spaces, steps: played(spark, failure.seed, spaces, steps, Counter()))


def _write(state: Path | None, kept: dict[str, object]) -> None:
    if state is not None:
        draft = state.with_suffix(".draft")
        draft.write_text(json.dumps(kept), encoding="utf-8")
        draft.replace(state)


def started() -> SparkSession:
    """Return a session for many small tables."""
    from delta_cdc.launch.session import get_session

    session = get_session(
        "histories",
        cores=2,
        quick_start=True,
        **{
            # Thousands of different small queries: to compile one costs more than to run it.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.memory": "2g",
            "spark.sql.ui.retainedExecutions": "5",
            "spark.driver.extraJavaOptions": "-Xms1g -Xmn512m -Djdk.lang.Process.launchMechanism=VFORK",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    return session


if __name__ == "__main__":
    sys.exit(main())
