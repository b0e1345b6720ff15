"""Keep many tables from folders of files, in one task: only those with new files are worked on.

`land` plays the systems they come from: each run drops a CSV file into a few of the folders. `ingest` looks
at all folders without Spark; the tables with new files share one Spark application, each with its own change
log, its own target and its own result. A table that fails stops no other: the task then names it, and a retry
only does what is left.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import DAG, task
from example_settings import table

from airflow_delta_cdc.operators import DeltaIngestChangesOperator

#: As many as there are tables; an installation may have a few hundred.
NUMBER = 12
NAMES = [f"sensor_{number:02}" for number in range(NUMBER)]


def readings(name: str, number: int) -> str:
    """Return a file of one folder: the newest reading of some devices; always the same one."""
    chance = random.Random(f"{name} {number}")
    lines = [
        f"{device},{chance.randrange(-200, 400) / 10},{number}" for device in chance.sample(range(50), 9)
    ]
    return "\n".join(["device,degrees,reading", *lines]) + "\n"


with DAG(
    "many_file_tables",
    description=f"{NUMBER} folders of CSV files → {NUMBER} tables, SCD type 1",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def land() -> list[str]:
        """Drop a file into each folder at first, then into three; return the names of their tables."""
        folders = {name: Path(table(f"landing/{name}")) for name in NAMES}
        dropped = {name: len(list(folder.glob("*.csv"))) for name, folder in folders.items()}
        number = max(dropped.values())
        some = NAMES if number == 0 else random.Random(number).sample(NAMES, 3)
        for name in some:
            folders[name].mkdir(parents=True, exist_ok=True)
            (folders[name] / f"{number:05}.csv").write_text(readings(name, number), encoding="utf-8")
        return some

    ingest = DeltaIngestChangesOperator(
        task_id="ingest",
        format="csv",
        format_options={"header": "true"},
        keys=["device"],
        schema="device INT, degrees DOUBLE, reading INT",
        adapter_options={"sequence_by": "reading"},
        tables=[
            {
                "pipeline": name,
                "source": table(f"landing/{name}"),
                "log": table(f"{name}_events"),
                "target": table(name),
            }
            for name in NAMES
        ],
    )
    land() >> ingest
