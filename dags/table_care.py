"""Take care of a small lake every night: lay files out, look whether all is right, forget, and tidy up.

`write_readings` plays a day of meters that report to the log `readings`, some of them a day late.
`apply` keeps the last reading of each meter per day. Then, one after the other:

- `optimize` compacts the files of both tables. No row changes, so pipelines see nothing of it.
- `verify` looks whether the target is what the log says.
- `expire` deletes readings that are no longer needed. Those of the last two days may still be joined by
  late ones; of what came before, each meter's last one per day stays.
- `vacuum` deletes the files that are left over, but none with changes that a consumer has not read.

Both `expire` and `vacuum` have to know who reads the tables: that is `CONSUMERS`. Where pipelines come from a
file, `config=` names that file instead. A step that has nothing to do starts no Spark.
"""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, task
from example_settings import table

from airflow_delta_cdc.operators import (
    DeltaApplyChangesOperator,
    DeltaExpireEventsOperator,
    DeltaOptimizeOperator,
    DeltaVacuumOperator,
    DeltaVerifyOperator,
)

LOG, TARGET = table("readings"), table("readings_by_day")
TABLES = [LOG, TARGET]
CONSUMERS = [{"pipeline": "readings_by_day", "source": LOG, "target": TARGET}]

START = datetime(2026, 1, 1, tzinfo=UTC)
METERS, A_DAY = 20, 12
COLUMNS = "meter INT, day DATE, kilowatts DOUBLE, read_at TIMESTAMP"
Reading = tuple[int, object, float, datetime]


def arriving(day: int) -> list[Reading]:
    """Return the readings that reach the log on one day: most of its own, and late ones of the day before."""
    return [
        reading for late in (0, 1) for reading, delay in measured(day - late) if delay == late and day >= late
    ]


def measured(day: int) -> list[tuple[Reading, int]]:
    """Return the readings of one day, each with the days by which it is late; always the same ones."""
    chance = random.Random(day)
    found = []
    for meter in range(METERS):
        for hour in range(0, 24, 24 // A_DAY):
            at = START + timedelta(days=day, hours=hour)
            reading = (meter, at.date(), round(chance.uniform(0, 9), 3), at)
            found.append((reading, int(chance.random() < 0.1)))
    return found


with DAG(
    "table_care",
    description="readings → readings_by_day, and what keeps both small, quick and right",
    schedule="0 3 * * *",
    start_date=START,
    catchup=False,
    is_paused_upon_creation=True,
    max_active_runs=1,
    tags=["delta-cdc", "example"],
    doc_md=__doc__,
) as dag:

    @task
    def write_readings() -> int:
        """Append what reaches the log on the next day; return the number of readings."""
        from delta_cdc.launch.session import embedded_session

        spark = embedded_session("meters", cores=1, quick_start=True)
        try:
            # Each row has the number of its commit, which distinguishes late readings from those that count.
            spark.sql(
                f"CREATE TABLE IF NOT EXISTS delta.`{LOG}` ({COLUMNS}) USING delta CLUSTER BY (meter) "
                "TBLPROPERTIES ('delta.enableRowTracking' = 'true')"
            )
            history = spark.sql(f"DESCRIBE HISTORY delta.`{LOG}`")
            readings = arriving(history.where("operation = 'WRITE'").count())
            spark.createDataFrame(readings, COLUMNS).write.format("delta").mode("append").save(LOG)
        finally:
            spark.stop()
        return len(readings)

    apply = DeltaApplyChangesOperator(
        task_id="apply",
        pipeline="readings_by_day",
        source=LOG,
        target=TARGET,
        source_kind="change_log",
        keys=["meter", "day"],
        sequence_by="read_at",
    )
    optimize = DeltaOptimizeOperator(task_id="optimize", tables=TABLES)
    verify = DeltaVerifyOperator(task_id="verify", pipeline="readings_by_day", target=TARGET)
    expire = DeltaExpireEventsOperator(
        task_id="expire", table=LOG, consumers=CONSUMERS, keep="interval 2 days"
    )
    vacuum = DeltaVacuumOperator(task_id="vacuum", tables=TABLES, consumers=CONSUMERS)

    write_readings() >> apply >> optimize >> verify >> expire >> vacuum
