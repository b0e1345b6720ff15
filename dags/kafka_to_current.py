"""Keep the current rows of two tables from Debezium's topics, in one task.

Debezium (in Kafka Connect) writes the changes of `inventory.customers` and `inventory.orders` to a topic
each. `ingest` asks the brokers for their end offsets, takes what is new into a change log per table, and
applies both logs; the two tables share one Spark application. With no new record, nothing is started.

It needs brokers: name them in DELTA_CDC_EXAMPLE_BROKERS (`host:9092`), or in a connection
(`kafka_conn_id`).
"""

from __future__ import annotations

import os
from datetime import UTC, datetime

from airflow.sdk import DAG
from example_settings import table

from airflow_delta_cdc.operators import DeltaIngestChangesOperator

BROKERS = os.environ.get("DELTA_CDC_EXAMPLE_BROKERS", "localhost:9092")

with DAG(
    "kafka_to_current",
    description="Debezium topics → change logs → customers, orders, SCD type 1",
    schedule="*/15 * * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:
    DeltaIngestChangesOperator(
        task_id="ingest",
        adapter="debezium",
        max_offsets=1_000_000,
        # Each names its own; the arguments above are for all of them.
        tables=[
            {
                "pipeline": f"inventory_{name}",
                "source": f"kafka://{BROKERS}/inventory.public.{name}",
                "log": table(f"{name}_events"),
                "target": table(f"{name}_of_inventory"),
                "keys": ["id"],
            }
            for name in ("customers", "orders")
        ],
    )
