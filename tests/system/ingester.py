"""An ingest to be killed: files into a change log, and on into both kinds of targets, with an embedded Spark.

Usage: ``python -m tests.system.ingester <folder> <max files> <death>``. It goes on, batch by batch of at most
so many files, until nothing is left; then it prints what it did. ``<death>`` says when it kills itself, its
JVM and all: ``recorded:2`` is the second time that a job of it comes to this point, ``seconds:1.5`` so long
after Spark is there, ``never`` not at all.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc import apply_changes, get_session, ingest_changes
from delta_cdc.core import failpoints
from demo.landing import ADAPTER_OPTIONS
from demo.workload import ACCOUNTS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLE = ACCOUNTS
#: What a change log is to an apply.
OF_THE_LOG: dict[str, Any] = {
    "source_kind": "change_log",
    "sequence_by": "_sequence",
    "apply_as_deletes": "_op = 'delete'",
    "apply_as_truncates": "_op = 'truncate'",
    "columns_to_update": "_columns",
    "except_column_list": ["_op", "_sequence", "_columns", "_source_timestamp", "_position"],
}


def places(folder: Path) -> dict[str, str]:
    """Return where things are: what landed, the log, the targets."""
    names = {"landed": f"landed/{TABLE.name}", "log": "log", "scd1": "scd1", "scd2": "scd2"}
    return {name: str(folder / part) for name, part in names.items()}


def step(spark: SparkSession, folder: Path, max_files: int | None) -> bool:
    """Take one batch as far as it goes; return whether there was anything to do."""
    where = places(folder)
    taken = ingest_changes(
        spark,
        where["landed"],
        where["log"],
        pipeline="ingest",
        keys=[TABLE.key],
        schema=TABLE.schema,
        adapter="plain",
        adapter_options=ADAPTER_OPTIONS,
        limits={"max_files": max_files},
    )
    applied = [
        apply_changes(
            spark,
            where["log"],
            where[f"scd{kind}"],
            pipeline=f"scd{kind}",
            keys=[TABLE.key],
            stored_as_scd_type=kind,
            **OF_THE_LOG,
        )
        for kind in (1, 2)
    ]
    return taken.applied or any(result.applied for result in applied)


def doom(death: str) -> None:
    """Arrange the end of this process and everything it started."""
    point, _, at = death.partition(":")
    if point == "never":
        return
    if point == "seconds":
        # A thread that waits is no pace of the test: the process dies wherever it is then.
        timer = threading.Timer(float(at), _die)
        timer.daemon = True
        timer.start()
        return
    left = int(at)

    def hook(reached: str) -> None:
        nonlocal left
        left -= reached == point
        if not left:
            _die()

    failpoints.install(hook)


def _die() -> None:
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    folder, max_files, death = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    spark = get_session("ingester", cores=2, quick_start=True, **{"spark.driver.memory": "2g"})
    doom(death)
    steps = 0
    while step(spark, folder, max_files or None):
        steps += 1
    print(json.dumps({"steps": steps}))


if __name__ == "__main__":
    main()
