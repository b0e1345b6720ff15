"""How long a run takes that finds nothing to do: no process, no byte written.

Source and target have 1,000 commits each, with a checkpoint at every tenth as Spark writes them. Measured is
``run`` after imports: two logs identified, the proof read and checked, the result built.

    python benchmarks/nothing_to_do.py
"""

from __future__ import annotations

import argparse
import hashlib
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

from logs import sealed, write_log

from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.requests import ApplyRequest
from delta_cdc.run.flows import run
from delta_cdc.run.loop import Services

LIMIT_MS = 50.0


def main() -> int:
    """Build the logs, time the runs, print the figures; 1 if the median is above the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--commits", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=50)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        times = _measure(Path(folder), arguments.commits, arguments.runs)
    median = statistics.median(times)
    print(
        f"nothing to do, source and target at {arguments.commits} commits, {arguments.runs} runs: "
        f"min {min(times):.1f} ms, median {median:.1f} ms, max {max(times):.1f} ms (limit {LIMIT_MS:.0f} ms)"
    )
    return int(median > LIMIT_MS)


def _measure(folder: Path, commits: int, runs: int) -> list[float]:
    source, target = folder / "source", folder / "target"
    source_id = write_log(source, commits)

    def commit_hash(version: int) -> str:
        return hashlib.sha256((source / "_delta_log" / f"{version:020d}.json").read_bytes()).hexdigest()

    write_log(target, commits, extra=sealed("bench", source_id, str(source), commit_hash))
    request = ApplyRequest(
        pipeline="bench", source=str(source), target=str(target), options=ApplyOptions(keys=("id",))
    )
    subprocess.Popen = _refuse  # type: ignore[assignment,misc]
    times = []
    for _ in range(runs + 1):
        begin = time.perf_counter()
        result = run(request, Services(execute=_refuse, say=lambda line: None))
        times.append((time.perf_counter() - begin) * 1000)
        assert not result.applied
        assert result.watermark.version == commits - 1
    return times[1:]


def _refuse(*args: object, **kwargs: object) -> object:
    raise AssertionError("a process was started")


if __name__ == "__main__":
    raise SystemExit(main())
