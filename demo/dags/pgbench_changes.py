"""Follow tables of PostgreSQL: what landed as files goes into a change log, and on into two tables each.

For each table, one task brings the new files into its change log and applies them to the current rows (SCD
type 1). The task after it keeps every version of every row (SCD type 2), from the same log. Without a new
file no Spark is started.
"""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaIngestChangesOperator
from demo.landing import ADAPTER_OPTIONS
from demo.workload import TABLES

LANDED = os.environ["DELTA_CDC_DEMO_LANDED"]


def table(name: str) -> str:
    """Return where a Delta table is."""
    return f"{os.environ['DELTA_CDC_EXAMPLE_TABLES']}/{name}"


with DAG("pgbench_changes", schedule=None, max_active_runs=1, tags=["delta-cdc"], doc_md=__doc__):
    for found in TABLES:
        ingest = DeltaIngestChangesOperator(
            task_id=f"{found.name}_current",
            pipeline=found.name,
            source=f"{LANDED}/{found.name}",
            log=table(f"{found.name}_events"),
            target=table(f"{found.name}_current"),
            keys=[found.key],
            format="json",
            adapter="plain",
            adapter_options=ADAPTER_OPTIONS,
            schema=found.schema,
            stored_as_scd_type=1,
        )
        ingest >> DeltaApplyChangesOperator(
            task_id=f"{found.name}_history",
            pipeline=f"{found.name}_history",
            source=table(f"{found.name}_events"),
            target=table(f"{found.name}_history"),
            source_kind="change_log",
            keys=[found.key],
            stored_as_scd_type=2,
            sequence_by="_sequence",
            apply_as_deletes="_op = 'delete'",
            apply_as_truncates="_op = 'truncate'",
            # An event carries some columns only; the others stay as they were.
            columns_to_update="_columns",
            except_column_list=["_op", "_sequence", "_columns", "_source_timestamp", "_position"],
        )
