"""Kill runs at random moments, and check what the next runs make of it; stopped, it goes on at the next call.

Usage: ``python -m tests.kills [--kills N] [--state FILE] [--replay SEED] [--summary [FILES]]``.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc import get_session
from tests.kills.campaign import CELLS, Campaign, State
from tests.kills.ways import SMALL, STOPPING, on_lake
from tests.support.commit_storm import Programs
from tests.support.lake import lake_on
from tests.support.s3_gateway import gateway

if TYPE_CHECKING:
    from collections.abc import Iterator

_ALL = 1 << 30


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.kills", description=__doc__)
    parser.add_argument("--kills", type=int, help="only so many more")
    parser.add_argument("--state", type=Path, default=Path(".cache/kills.json"), help="what was done so far")
    parser.add_argument("--only", default="", help="cells with this text in their name")
    parser.add_argument("--per-set", type=int, default=_ALL, help="so many over one set of tables at most")
    parser.add_argument("--replay", help="the seed of a failure")
    parser.add_argument(
        "--summary",
        nargs="*",
        type=Path,
        metavar="FILE",
        help="print the kills so far, as Markdown; of these files instead of that of --state",
    )
    given = parser.parse_args()
    given.state.parent.mkdir(exist_ok=True)
    if given.summary is not None:
        print(State.joined(given.summary or [given.state]).table())
        return 0
    state = State.read(given.state)
    if given.kills is None:
        _be_humble()
    with campaign(State() if given.replay else state) as running:
        if given.replay:
            *name, number = given.replay.split(" / ")
            (cell,) = (one for one in CELLS if one.name == " / ".join(name))
            running.one(cell, int(number), _ALL)
        else:
            running.run(given.kills or _ALL, given.only, given.per_set)
    print(state.table() if not given.replay else "")
    return bool(running.state.failures)


@contextmanager
def campaign(state: State) -> Iterator[Campaign]:
    """Start a session for the length of a block, and a store for S3."""
    with (
        tempfile.TemporaryDirectory() as folder,
        gateway(Path(folder) / "s3") as store,
        lake_on(store) as lake,
    ):
        classes = Programs.compiled(Path(folder) / "programs").without_spark
        stopping = {**STOPPING, "spark.driver.extraClassPath": classes}
        confs = {**SMALL, **stopping, **on_lake(lake)}
        spark = get_session("kills", cores=4, locations=["s3://lake"], **confs)
        # Each kill is an error of Spark and of ours.
        spark.sparkContext.setLogLevel("OFF")
        logging.disable(logging.CRITICAL)
        shown, sys.stderr = sys.stderr, Path(os.devnull).open("w")  # noqa: SIM115 - until the end
        scratch = Path(folder) / "scratch"
        scratch.mkdir()
        running = Campaign(spark, state, scratch, lake, stopping)
        try:
            yield running
        finally:
            # An error that ends the campaign itself is shown.
            sys.stderr = shown
            running.close()


def _be_humble() -> None:
    """Leave the processor to everything else."""
    os.nice(15)
    with suppress(OSError):
        # Within a session of its own, niceness counts only between the processes of the session.
        Path("/proc/self/autogroup").write_text("15")


if __name__ == "__main__":
    sys.exit(main())
