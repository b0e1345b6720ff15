"""Keep the history of customers from change sets that land as files, every 15 minutes.

`land` plays the system they come from. Each run drops one file of JSON lines into a folder by date:
inserts (`I`), updates (`U`), deletes (`D`), and before each update a line with the old values (`UO`),
which does not count. An update names the columns it is about, and no others: what is missing keeps its
value, and what is null becomes NULL. Every third run delivers the file before once more, and each file
ends with an incomplete line.

`ingest` takes what is new into the change log `customer_events`, every line once, and brings the history
up to it in the same Spark application (SCD type 2). The halves of lines are in
`customer_events__quarantine`, each with its file and the reason. With no new file, nothing is
started.
"""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, task
from example_settings import table

from airflow_delta_cdc.operators import DeltaIngestChangesOperator

LANDING, LOG, TARGET = (
    table("landing/customers"),
    table("customer_events"),
    table("customer_history_of_files"),
)

START = datetime(2026, 1, 1, tzinfo=UTC)
Line = dict[str, Any]


def change_set(number: int) -> list[Line]:
    """Return the changes of one quarter of an hour; always the same ones."""
    chance = random.Random(number)
    at = START + timedelta(minutes=15 * number)
    lines: list[Line] = []
    for position in range(40):
        customer, op = chance.randrange(60), chance.choice(["I", "U", "U", "U", "D"])
        # What orders the changes of a customer: a position in the source's log, never a clock.
        head = {"op": op, "lsn": number * 1000 + position, "changed_at": at.isoformat(), "customer": customer}
        values = {
            "name": f"customer {customer}",
            "segment": chance.choice(["new", "regular", "gold"]),
            "mail": chance.choice([f"{customer}@example.com", None]),
        }
        if op == "U":
            lines.append({**head, "op": "UO", **values})
            values = {"segment": values["segment"], **({"mail": None} if chance.random() < 0.2 else {})}
        lines.append(head if op == "D" else {**head, **values})
    return lines


def text_of(lines: list[Line]) -> str:
    """Return a file's text, with the first half of the last line once more."""
    whole = [json.dumps(line) for line in lines]
    return "\n".join([*whole, whole[-1][: len(whole[-1]) // 2]]) + "\n"


with DAG(
    "files_to_history",
    description="files → customer_events → customer_history_of_files, SCD type 2",
    schedule="*/15 * * * *",
    start_date=START,
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def land() -> str:
        """Drop the next file, as the source system would; return its path."""
        landing = Path(LANDING)
        number = len(list(landing.glob("*/customers-*.json")))
        lines, day = change_set(number), (START + timedelta(minutes=15 * number)).strftime("%Y-%m-%d")
        file = landing / day / f"customers-{number:05}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text_of(lines), encoding="utf-8")
        before = sorted(landing.glob("*/customers-*.json"))[-2:-1]
        if number % 3 == 2:
            before[0].write_text(before[0].read_text(encoding="utf-8"), encoding="utf-8")
        return str(file)

    ingest = DeltaIngestChangesOperator(
        task_id="ingest",
        pipeline="customer_events",
        source=LANDING,
        log=LOG,
        target=TARGET,
        keys=["customer"],
        schema="customer BIGINT, name STRING, segment STRING, mail STRING, lsn BIGINT, changed_at TIMESTAMP",
        adapter="plain",
        adapter_options={
            "operation_column": "op",
            "operations": {"I": "upsert", "U": "upsert", "D": "delete", "UO": "ignore"},
            "sequence_by": "lsn",
            "source_timestamp": "changed_at",
            # Read, and no columns of a customer.
            "except_column_list": ["lsn", "changed_at"],
        },
        stored_as_scd_type=2,
    )
    land() >> ingest
