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

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


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
from airflow_delta_cdc import publishing
from airflow_delta_cdc.operators import DeltaIngestChangesOperator

announce = publishing.announce


def dies(operator, context, *rest):
    # Other tests use the same Airflow.
    if context["ti"].dag_id == {name!r} and context["params"]["dies"] and context["ti"].try_number == 1:
        raise RuntimeError("the worker died, and had committed")
    announce(operator, context, *rest)


publishing.announce = dies


params = {{name: Param(False, type="boolean") for name in ("dies", "dry_run")}}
with DAG({name!r}, schedule=None, params=params) as dag:
    ingest = DeltaIngestChangesOperator(
        task_id="ingest",
        retries={retries},
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
    tables = {"source": str(source), "log": str(log), "target": str(target)}
    file = airflow.dag("dies_once", _DIES.format(name="dies_once", retries=1, **tables))
    dry = succeeded(airflow.run(file, conf={"dry_run": True}, forbid_processes=True))
    assert "1 file (" in dry.xcom("ingest")["dry_run"]["ingest"]
    assert not log.exists()

    done = succeeded(airflow.run(file, conf={"dies": True}))
    assert done.tasks["ingest"]["tries"] == 2
    assert done.submits == 1, "files and target share one application, and the retry needs none"
    assert values(log, "id", "name", "_op") == [(1, "a", "upsert"), (1, "b", "upsert"), (2, None, "delete")]
    assert values(target, "id", "name", START, END) == [(1, "a", 1, 2), (1, "b", 2, None)]
    told = done.xcom("ingest")
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


def test_without_a_retry_the_next_run_announces(airflow: Airflow, tmp_path: Path) -> None:
    source, log, target = (tmp_path / name for name in ("landing", "log", "target"))
    tables = {"source": str(source), "log": str(log), "target": str(target)}
    file = airflow.dag("dies_alone", _DIES.format(name="dies_alone", retries=0, **tables))
    for number in (1, 2):
        drop(source, f"{number}.json", {"op": "I", "id": number, "name": "a", "n": number})
        died = airflow.run(file, conf={"dies": True})
        assert (died.state, died.events, died.submits) == ("failed", [], 1)
    done = succeeded(airflow.run(file, forbid_processes=True))
    extra = {event["uri"]: event["extra"] for event in done.events}
    assert set(extra) == {log.as_uri(), target.as_uri()}
    assert extra[log.as_uri()]["counts"]["events"] == 2
    newest = DeltaTable(str(log)).version()
    assert (extra[target.as_uri()]["version"], extra[target.as_uri()]["counts"]["events"]) == (newest, 2)
    assert done.xcom("ingest")["ingested"]["counts"]["files"] == 2
    assert succeeded(airflow.run(file, forbid_processes=True)).events == []


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
    assert "still in quarantine" in capsys.readouterr().err


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
    started = [process for process in done.processes if "spark-submit" in process[0]]
    assert client["sasl.password"] not in json.dumps([*started, done.tasks, done.events]) + done.log
    idle = succeeded(airflow.run(file, forbid_processes=True))
    assert idle.xcom("ingest")["applied"] is False
