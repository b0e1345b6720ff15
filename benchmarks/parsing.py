"""What a configured DAG file of 65 tables adds to Airflow's own time of parsing a file.

Every measurement is a process of its own in which Airflow and the Spark provider are imported already. What
is timed is the import of ``build_dags``, with all of this provider that it needs, and its call: reading,
checking, and making the two DAGs of the group. Bytecode is there, as in what is installed: a first process
writes it.

Usage: ``python benchmarks/parsing.py [--tables N] [--times N]``
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

_MEASURED = """
import json, sys, time
import airflow.sdk
from airflow.sdk import CronDataIntervalTimetable
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
wall, cpu = time.perf_counter(), time.process_time()
from airflow_delta_cdc.dags import build_dags
dags = build_dags(sys.argv[1])
assert len(dags) == 2
print(json.dumps([1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)]))
"""


def configuration(tables: int, *, mixed: bool) -> str:
    """Return the text of a file with one group.

    :param mixed: every fourth table comes from files by way of a change log, every fourth is append-only
    """
    lines = ["groups:", '  lake: {schedule: "*/15 * * * *"}', "pipelines:"]
    for number in range(tables):
        name = f"table_{number}"
        lines += [f"  {name}:", "    group: lake", f"    target: s3://lake/silver/{name}"]
        if mixed and number % 4 == 1:
            lines += [f"    source: s3://lake/landing/{name}", f"    log: s3://lake/bronze/{name}_log"]
            lines += ["    keys: [id]", "    adapter: debezium"]
        else:
            lines += [f"    source: s3://lake/bronze/{name}"]
            lines += ["    insert_only: true"] if mixed and number % 4 == 2 else ["    keys: [id]"]
    return "\n".join([*lines, ""])


def measured(text: str, times: int) -> tuple[list[float], list[float]]:
    """Return milliseconds on the clock and of the processor, each in ascending order."""
    with tempfile.TemporaryDirectory(prefix="delta-cdc-parsing-") as folder:
        file = Path(folder) / "lake.yaml"
        file.write_text(text, encoding="utf-8")
        # An environment that keeps Python from writing it would have every process compile again.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        found = [
            json.loads(
                subprocess.run(
                    [sys.executable, "-c", _MEASURED, str(file)],
                    env=environment,
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                ).stdout.splitlines()[-1]
            )
            for _ in range(times + 1)
        ][1:]
    return sorted(wall for wall, _ in found), sorted(cpu for _, cpu in found)


def main() -> None:
    """Print one line for each kind of file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--tables", type=int, default=65)
    parser.add_argument("--times", type=int, default=7)
    given = parser.parse_args()
    for mixed in (False, True):
        wall, cpu = measured(configuration(given.tables, mixed=mixed), given.times)
        kind = "mixed with change logs" if mixed else "tables with change feeds"
        print(
            f"{given.tables} {kind}: {statistics.median(wall):.0f} ms (best {wall[0]:.0f}), of the processor "
            f"{statistics.median(cpu):.0f} ms (best {cpu[0]:.0f}); {given.times} processes"
        )


if __name__ == "__main__":
    main()
