"""What a DAG file pays for importing an operator, beyond Airflow's SDK and its Spark operator.

Each run is a fresh interpreter that imports Airflow first and then times the rest. The limit is for the
operator that applies changes; the other lines show all operators, and the builder of DAGs from a file.

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
    "import time; {base}; begin = time.process_time(); from airflow_delta_cdc.{what}; "
    "print((time.process_time() - begin) * 1000)"
)
_IMPORTS = {
    "one operator": "operators import DeltaApplyChangesOperator",
    "all operators": "operators import *",
    "DAGs from a file": "dags import build_dags",
}


def main() -> int:
    """Time the imports in fresh interpreters; 1 if the median is above the limit."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=9)
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    for _ in range(arguments.runs + 1):
        for name, what in _IMPORTS.items():
            times[name].append(_once(what))
    print(f"milliseconds of CPU beyond airflow.sdk and the Spark operator, {arguments.runs} runs:")
    for name, (_, *found) in times.items():
        print(f"{name}: min {min(found):.1f}, median {statistics.median(found):.1f}, max {max(found):.1f}")
    return int(statistics.median(times["one operator"][1:]) > LIMIT_MS)


def _once(what: str) -> float:
    command = [sys.executable, "-c", _PROBE.format(base=_BASE, what=what)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    raise SystemExit(main())
