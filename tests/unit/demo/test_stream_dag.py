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
told = {t.task_id: [type(t).__name__, sorted(t.upstream_task_ids), t.source] for t in tasks}
print("@@" + json.dumps(told))
print("@@" + json.dumps([table["log"] for table in tasks[0].tables]))
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
    tasks, logs = (json.loads(line[2:]) for line in done.stdout.splitlines() if line.startswith("@@"))
    assert logs == ["/tables/pgbench_accounts_events", "/tables/documents_events"]
    assert tasks.pop("ingest")[0] == "DeltaIngestChangesOperator"
    assert sorted(tasks.values()) == [["DeltaApplyChangesOperator", ["ingest"], log] for log in sorted(logs)]
