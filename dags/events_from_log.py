"""Keep the history of parcels from a log of scans: events that come late, and some of them twice.

`write_events` plays the owners of the scanners. Each run appends what reaches the log in one hour: scans of
that hour, scans that a device held back for two hours, and scans that were sent before. `apply` puts every
event where its time says (`sequence_by`), whatever the order in which they came: a late scan splits a version
that is there already, and one that came before changes nothing. A parcel that was handed over leaves the
history (`apply_as_deletes`).

The log is only ever appended to. It needs no change data feed, and it is all the memory there is.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, task
from example_settings import table

from airflow_delta_cdc.form import run_arguments, run_params
from airflow_delta_cdc.operators import DeltaApplyChangesOperator

LOG, TARGET = table("scans"), table("parcel_history")

START = datetime(2026, 1, 1, tzinfo=UTC)
COLUMNS = "parcel BIGINT, place STRING, weight INT, handed_over BOOLEAN, scanned_at TIMESTAMP"
Scan = tuple[int, str, int, bool, datetime]


def scanned(hour: int) -> list[tuple[Scan, tuple[int, ...]]]:
    """Return the scans of one hour, each with the hours in which it reaches the log; always the same ones."""
    chance = random.Random(hour)
    scans = []
    for minute in range(60):
        place, weight = chance.choice(["depot", "lorry", "shop"]), chance.choice([1, 1, 2])
        at = START + timedelta(hours=hour, minutes=minute)
        delays = chance.choice([(0,), (0,), (0,), (2,), (0, 1)])
        scan = (chance.randrange(20), place, weight, chance.random() < 0.1, at)
        scans.append((scan, tuple(hour + delay for delay in delays)))
    return scans


def arriving(hour: int) -> list[Scan]:
    """Return the scans that reach the log in one hour."""
    recent = range(max(0, hour - 2), hour + 1)
    return [scan for earlier in recent for scan, hours in scanned(earlier) if hour in hours]


with DAG(
    "events_from_log",
    description="scans → parcel_history, SCD type 2 from late events",
    schedule=None,
    max_active_runs=1,
    params=run_params(),
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def write_events() -> int:
        """Append what reaches the log in the next hour; return the number of scans."""
        from delta_cdc import get_session

        spark = get_session("scans", cores=1, quick_start=True)
        try:
            # Clustered by key: the events of a key are found again when a late one comes.
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS delta.`{LOG}` ({COLUMNS}) USING delta CLUSTER BY (parcel) "
                "TBLPROPERTIES ('delta.appendOnly' = 'true')"
            )
            # Version 0 is the empty table, and each hour makes one more.
            hour = spark.sql(f"DESCRIBE HISTORY delta.`{LOG}` LIMIT 1").collect()[0]["version"]
            scans = arriving(hour)
            spark.createDataFrame(scans, COLUMNS).write.format("delta").mode("append").save(LOG)
        finally:
            spark.stop()
        return len(scans)

    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="parcel_history",
        source=LOG,
        target=TARGET,
        source_kind="change_log",
        keys=["parcel"],
        stored_as_scd_type=2,
        sequence_by="scanned_at",
        apply_as_deletes="handed_over",
        except_column_list=["handed_over", "scanned_at"],
        **run_arguments(),
    )
    write_events() >> apply
