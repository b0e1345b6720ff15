"""What a DAG file pays for importing the operators, beyond Airflow's SDK and its Spark operator.

Each run is a fresh interpreter that imports Airflow first and then times the rest.

    python benchmarks/imports.py
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

LIMIT_MS = 30.0
_BASE = "import airflow.sdk, airflow.providers.apache.spark.operators.spark_submit"
_PROBE = (
    "import time; {base}; begin = time.perf_counter(); import airflow_delta_cdc.operators; "
    "print((time.perf_counter() - begin) * 1000)"
)


def main() -> int:
    """Time the import in fresh interpreters; 1 if the median is above the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    times = [_once() for _ in range(arguments.runs + 1)][1:]
    median = statistics.median(times)
    print(
        f"operators beyond airflow.sdk and the Spark operator, {arguments.runs} runs: "
        f"min {min(times):.1f} ms, median {median:.1f} ms, max {max(times):.1f} ms (limit {LIMIT_MS:.0f} ms)"
    )
    return int(median > LIMIT_MS)


def _once() -> float:
    command = [sys.executable, "-c", _PROBE.format(base=_BASE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    raise SystemExit(main())
