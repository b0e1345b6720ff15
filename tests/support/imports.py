"""What modules a statement loads, beyond Airflow's own."""

from __future__ import annotations

import atexit
import json
import subprocess
import sys
from functools import cache

#: Airflow is imported once; each probe is a fork of that process, so that no probe sees modules of another.
_SERVER = """
import json, os, sys
import airflow.sdk
from airflow.sdk import Asset, AssetAlias
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk.bases.sensor import BaseSensorOperator
from airflow.triggers.base import BaseTrigger

before = set(sys.modules)
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    child = os.fork()
    if child:
        if os.waitpid(child, 0)[1]:
            print(json.dumps(None), file=answers, flush=True)
        continue
    exec(json.loads(line))
    print(json.dumps(sorted(set(sys.modules) - before)), file=answers, flush=True)
    os._exit(0)
"""


@cache
def _server() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    atexit.register(process.kill)
    return process


def loaded(*statements: str) -> set[str]:
    """Return the modules that statements load in a process that has imported Airflow's base classes."""
    process = _server()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps("\n".join(statements)) + "\n")
    process.stdin.flush()
    answer = json.loads(process.stdout.readline())
    assert answer is not None, f"{statements} failed: see the output of the test"
    return set(answer)
