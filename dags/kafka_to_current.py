"""Keep the current rows of two tables from Debezium's topics, by one group.

Debezium (in Kafka Connect) writes the changes of `inventory.customers` and `inventory.orders` to a topic
each. `detect_changes` asks the brokers for their end offsets; `run_spark` takes what is new into a change log
per table, and applies both logs, in one Spark application. With no new record, nothing is started.

It needs brokers: name them in DELTA_CDC_EXAMPLE_BROKERS (`host:9092`), or in a connection
(`kafka_conn_id`).
"""

from __future__ import annotations

import os

from example_settings import table

from airflow_delta_cdc.dags import build_dags

BROKERS = os.environ.get("DELTA_CDC_EXAMPLE_BROKERS", "localhost:9092")

# A mapping holds what a YAML file would.
build_dags(
    {
        "groups": {
            "kafka_to_current": {
                "description": "Debezium topics → change logs → customers, orders, SCD type 1",
                "schedule": "*/15 * * * *",
                "is_paused_upon_creation": True,
                "backfill": False,
                "tags": ["example"],
            }
        },
        "defaults": {"group": "kafka_to_current", "adapter": "debezium", "keys": ["id"]},
        "pipelines": {
            f"inventory_{name}": {
                "source": f"kafka://{BROKERS}/inventory.public.{name}",
                "log": table(f"{name}_events"),
                "target": table(f"{name}_of_inventory"),
                "max_offsets": 1_000_000,
            }
            for name in ("customers", "orders")
        },
    },
    doc_md=__doc__,
)
