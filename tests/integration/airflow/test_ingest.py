"""Files into change logs and targets, in a real Airflow with a real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_cdc.cli import main
from tests.integration.airflow.test_examples import rows
from tests.integration.airflow.test_sinks import example
from tests.support import event_model, oracle
from tests.support.event_model import END, START, Event, Rules

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome
    from tests.support.kafka_broker import Broker

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def drop(folder: Path, name: str, *lines: Mapping[str, Any] | str) -> None:
    """Write a file of JSON lines; what is a text already stands there as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    (folder / name).write_text("\n".join(texts) + "\n")


def values(table: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[column] for column in columns) for row in rows(table))


def succeeded(outcome: Outcome) -> Outcome:
    assert outcome.state == "success", outcome.log
    return outcome


def announced(outcome: Outcome) -> set[str]:
    return {event["uri"] for event in outcome.events}


# -- one table ------------------------------------------------------------------------------------
_DIES = """
from datetime import timedelta

from airflow.sdk import DAG, Param
from airflow_delta_cdc.operators import DeltaIngestChangesOperator


class DiesOnce(DeltaIngestChangesOperator):
    def _announce(self, context, *told):
        if context["ti"].try_number == 1:
            raise RuntimeError("the worker died, and had committed")
        super()._announce(context, *told)


with DAG("dies_once", schedule=None, params={{"dry_run": Param(False, type="boolean")}}) as dag:
    ingest = DiesOnce(
        task_id="ingest",
        retries=1,
        retry_delay=timedelta(0),
        pipeline="customers",
        source={source!r},
        log={log!r},
        target={target!r},
        keys=["id"],
        schema="id INT, name STRING, n INT",
        adapter_options={{"operation_column": "op", "sequence_by": "n"}},
        stored_as_scd_type=2,
        dry_run="{{{{ params.dry_run }}}}",
    )
"""


def test_a_try_that_died_after_its_commits_is_found_and_announced(airflow: Airflow, tmp_path: Path) -> None:
    source, log, target = (tmp_path / name for name in ("landing", "log", "target"))
    drop(
        source / "2026-01-01",
        "a.json",
        {"op": "I", "id": 1, "name": "a", "n": 1},
        {"op": "U", "id": 1, "name": "b", "n": 2},
        {"op": "D", "id": 2, "n": 3},
        '{"op": "U", "id": 1, "na',
    )
    file = airflow.dag("dies_once", _DIES.format(source=str(source), log=str(log), target=str(target)))
    dry = succeeded(airflow.run(file, conf={"dry_run": True}, forbid_processes=True))
    assert "1 file (" in dry.xcom("ingest")["dry_run"]["ingest"]
    assert not log.exists()

    done = succeeded(airflow.run(file))
    assert done.tasks["ingest"]["tries"] == 2
    assert done.submits == 1, "files and target share one application, and the retry needs none"
    assert values(log, "id", "name", "_op") == [(1, "a", "upsert"), (1, "b", "upsert"), (2, None, "delete")]
    assert values(target, "id", "name", START, END) == [(1, "a", 1, 2), (1, "b", 2, None)]
    told = done.xcom("ingest")
    assert done.xcom("ingest", "watermark") == told
    assert (told["applied"], told["source_table"], told["target_table"]) == (True, str(log), str(target))
    assert told["ingested"]["applied"]
    assert told["ingested"]["counts"] == {"events": 3, "deletes": 1, "quarantined": 1, "files": 1}
    assert announced(done) == {log.as_uri(), target.as_uri()}
    extra = {event["uri"]: event["extra"] for event in done.events}
    assert extra[target.as_uri()]["target_version"] == told["target_version"]
    assert extra[log.as_uri()]["counts"]["events"] == 3

    versions = [DeltaTable(str(table)).version() for table in (log, target)]
    idle = succeeded(airflow.run(file, forbid_processes=True))
    assert versions == [DeltaTable(str(table)).version() for table in (log, target)]
    assert (idle.xcom("ingest")["applied"], idle.xcom("ingest")["ingested"]["applied"]) == (False, False)
    assert idle.events == []


# -- many tables ----------------------------------------------------------------------------------
_MANY = """
from datetime import timedelta
from pathlib import Path

from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaIngestChangesOperator


def mend(context):
    Path({bad!r}).write_text('{{"id": 2, "n": 2}}' + chr(10))


with DAG({name!r}, schedule=None) as dag:
    ingest = DeltaIngestChangesOperator(
        task_id="ingest",
        retries=1,
        retry_delay=timedelta(0),
        on_retry_callback=mend,
        keys=["id"],
        schema="id INT, n INT",
        adapter_options={{"sequence_by": "n"}},
        on_invalid="fail",
        tables={tables!r},
    )
"""


def many(airflow: Airflow, name: str, folder: Path, number: int, *, targets: int, bad: Path) -> Path:
    """Write a DAG of many tables; the first ones have a target."""
    tables = []
    for at in range(number):
        one = {"pipeline": f"t{at}", "source": str(folder / f"in{at}"), "log": str(folder / f"log{at}")}
        (folder / f"in{at}").mkdir()
        tables.append(one | ({"target": str(folder / f"t{at}")} if at < targets else {}))
    return airflow.dag(name, _MANY.format(name=name, tables=tables, bad=str(bad)))


def test_a_table_that_fails_leaves_the_others_through_and_is_healed(airflow: Airflow, tmp_path: Path) -> None:
    """5 tables, of which 2 have new files: one application. One of the two fails; its retry is another."""
    bad = tmp_path / "in1" / "a.json"
    file = many(airflow, "many", tmp_path, 5, targets=0, bad=bad)
    drop(tmp_path / "in0", "a.json", {"id": 1, "n": 1})
    drop(tmp_path / "in1", "a.json", {"id": 2, "n": 2}, '{"id": 2, "n"')

    done = succeeded(airflow.run(file))
    assert done.tasks["ingest"]["tries"] == 2
    assert done.submits == 2
    assert "1 of 5 tables failed; the others are through" in done.log
    assert "t1: InvalidRecord: " in done.log
    assert values(tmp_path / "log0", "id", "n") == [(1, 1)]
    assert values(tmp_path / "log1", "id", "n") == [(2, 2)]
    # The first try failed, so Airflow dropped what it had announced: the second one announces all.
    assert announced(done) == {(tmp_path / name).as_uri() for name in ("log0", "log1")}
    told = done.xcom("ingest")
    assert {name: found["status"] for name, found in told.items()} == {
        "t0": "ingested", "t1": "ingested", "t2": "nothing", "t3": "nothing", "t4": "nothing"
    }  # fmt: skip
    assert not (tmp_path / "log2").exists()
    # One batch of each, whatever was tried.
    assert len(rows(tmp_path / "log0__ingested")) == len(rows(tmp_path / "log1__ingested")) == 1

    idle = succeeded(airflow.run(file, forbid_processes=True))
    assert {found["status"] for found in idle.xcom("ingest").values()} == {"nothing"}
    assert idle.events == []


def test_65_tables_of_which_3_have_new_files(airflow: Airflow, tmp_path: Path) -> None:
    file = many(airflow, "many_65", tmp_path, 65, targets=65, bad=tmp_path / "none")
    some = {7, 8, 64}
    for run, of_these in enumerate((some, {1, 8, 33})):
        for at in of_these:
            drop(tmp_path / f"in{at}", f"{run}.json", {"id": run, "n": run})
        done = succeeded(airflow.run(file))
        assert done.submits == 1
        changed = {name for name, found in done.xcom("ingest").items() if found["status"] == "applied"}
        assert changed == {f"t{at}" for at in of_these}
        idle = succeeded(airflow.run(file, forbid_processes=True))
        assert idle.processes == []
    assert values(tmp_path / "t8", "id") == [(0,), (1,)]
    assert values(tmp_path / "t7", "id") == [(0,)]
    assert not (tmp_path / "log0").exists()


# -- the example ----------------------------------------------------------------------------------
def test_files_to_history(airflow: Airflow, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three quarters of an hour, one file of which comes twice: the history is that of all their lines."""
    file = example(airflow, "files_to_history", tmp_path)
    for number in range(3):
        done = succeeded(airflow.run(file))
        assert done.submits == 1
        counts = done.xcom("ingest")["ingested"]["counts"]
        assert (counts["quarantined"], counts.get("repeated", 0) > 0) == (1, number == 2)
        assert done.xcom("ingest")["applied"]
    landed = sorted((tmp_path / "landing" / "customers").glob("*/customers-*.json"))
    assert len(landed) == 3
    lines = [line for file in landed for line in file.read_text().splitlines()[:-1]]
    columns = ("name", "segment", "mail")
    events = [
        Event(
            key=(line["customer"],),
            sequence=line["lsn"],
            kind="delete" if line["op"] == "D" else "upsert",
            values=line,
            columns=tuple(name for name in columns if name in line),
        )
        for line in map(json.loads, lines)
        if line["op"] != "UO"
    ]
    rules = Rules(keys=("customer",), columns=dict.fromkeys(columns), columns_to_update=True)
    wanted = event_model.type_2(events, rules)
    shown = ("customer", *columns, START, END)
    found = rows(tmp_path / "customer_history_of_files")
    assert oracle.rows_of(found, shown) == oracle.rows_of(wanted, shown)
    assert len(wanted) > 50
    log = tmp_path / "customer_events"
    assert len(rows(log)) == len(events)
    # The half lines stay what they are: replaying them finds so.
    capsys.readouterr()
    assert main(["replay", f"customer_events={log}"]) == 1
    assert "has to stay in quarantine" in capsys.readouterr().err


# -- a topic --------------------------------------------------------------------------------------
_TOPIC = """
import os

os.environ["AIRFLOW_CONN_BROKERS"] = {connection!r}

from airflow.sdk import DAG
from airflow_delta_cdc.operators import DeltaIngestChangesOperator

with DAG("topic", schedule=None) as dag:
    ingest = DeltaIngestChangesOperator(
        task_id="ingest",
        pipeline="orders",
        source="kafka:///{topic}",
        kafka_conn_id="brokers",
        log={log!r},
        target={target!r},
        keys=["id"],
        schema="id INT, v STRING, n INT",
        adapter_options={{"operation_column": "op", "sequence_by": "n"}},
    )
"""


def test_a_topic_behind_a_password(airflow: Airflow, tmp_path: Path, kafka: Broker) -> None:
    """The connection serves the look, and the driver; the password is nowhere to be seen."""
    topic, log, target = "orders_for_airflow", tmp_path / "log", tmp_path / "target"
    kafka.create_topic(topic, partitions=2)
    lines = [
        {"op": "I", "id": 1, "v": "a", "n": 1},
        {"op": "U", "id": 1, "v": "b", "n": 2},
        {"op": "I", "id": 2, "v": "c", "n": 3},
        {"op": "D", "id": 2, "n": 4},
    ]
    for partition, of_these in enumerate((lines[:2], lines[2:])):
        kafka.send(topic, [json.dumps(line) for line in of_these], partition=partition)
    client = {"bootstrap.servers": kafka.secured_servers, **kafka.login}
    connection = json.dumps({"conn_type": "kafka", "extra": client})
    text = _TOPIC.format(connection=connection, topic=topic, log=str(log), target=str(target))
    file = airflow.dag("topic", text)
    done = succeeded(airflow.run(file))
    assert done.submits == 1
    assert values(target, "id", "v") == [(1, "b")]
    assert done.xcom("ingest")["ingested"]["counts"]["events"] == 4
    (started,) = [process for process in done.processes if "spark-submit" in process[0]]
    assert client["sasl.password"] not in json.dumps([started, done.tasks, done.events]) + done.log
    idle = succeeded(airflow.run(file, forbid_processes=True))
    assert idle.xcom("ingest")["applied"] is False
