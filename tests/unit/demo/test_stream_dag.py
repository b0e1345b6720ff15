"""The DAG of the change stream parses, and its tasks go from the log on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

_PROJECT = Path(__file__).parents[3]
_TELL = """
import json, runpy, sys
tasks = runpy.run_path(sys.argv[1])["ingest"].dag.tasks
found = {}
for t in tasks:
    found[t.task_id] = [type(t).__name__, sorted(t.upstream_task_ids), getattr(t, "log_table", t.source)]
print("@@" + json.dumps(found))
"""


def test_the_dag_parses(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _TELL, str(_PROJECT / "demo" / "dags" / "pgbench_changes.py")],
        env={
            **os.environ,
            "AIRFLOW_HOME": str(tmp_path),
            "PYTHONPATH": os.pathsep.join((str(_PROJECT), str(_PROJECT / "spark_jobs"))),
            "DELTA_CDC_EXAMPLE_TABLES": "/tables",
            "DELTA_CDC_DEMO_LANDED": "/landed",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (tasks,) = (json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("@@"))
    for name in ("pgbench_accounts", "documents"):
        log = f"/tables/{name}_events"
        assert tasks.pop(f"{name}_current") == ["DeltaIngestChangesOperator", [], log]
        assert tasks.pop(f"{name}_history") == ["DeltaApplyChangesOperator", [f"{name}_current"], log]
    assert tasks == {}
