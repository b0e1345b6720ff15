"""What a real Airflow reports to others: metrics to a StatsD server, lineage to a file, links to its UI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.airflow.conftest import running
from tests.integration.airflow.test_groups import append, group
from tests.integration.airflow.test_ingest import succeeded
from tests.support.statsd import receiving

if TYPE_CHECKING:
    from pathlib import Path

# The unit tests guard the rules; this is that Airflow calls us, with Spark's own figures.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def configuration(folder: Path) -> dict[str, Any]:
    keyed = {"group": "sales", "keys": ["id"], "freshness": "1 hour"}
    return {
        "groups": {"sales": {"max_parallel_tables": 2, "backfill": False}},
        "pipelines": {
            name: {**keyed, "source": str(folder / f"{name}_in"), "target": str(folder / name), "select": "*"}
            for name in ("orders", "items")
        },
    }


def test_a_group_reports_each_of_its_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events = tmp_path / "events.json"
    transport = {"type": "file", "log_file_path": str(events), "append": True}
    append(tmp_path / "orders_in", (1, "a"), (2, "b"))
    append(tmp_path / "items_in", (1, "x"))
    (tmp_path / "home").mkdir()
    with receiving() as server:
        settings = {
            "METRICS__STATSD_ON": "True",
            "METRICS__STATSD_HOST": "127.0.0.1",
            "METRICS__STATSD_PORT": str(server.port),
            "OPENLINEAGE__TRANSPORT": json.dumps(transport),
            "OPENLINEAGE__NAMESPACE": "test",
            "DELTA_CDC__SPARK_UI": "http://history:18080/history/{application}/",
        }
        for name, value in settings.items():
            monkeypatch.setenv(f"AIRFLOW__{name}", value)
        with running(tmp_path / "home") as airflow:
            done = succeeded(airflow.run(group(airflow, "sales", configuration(tmp_path)), dag="sales"))
        values = server.values()

    # Metrics
    sent = {name.removeprefix("airflow.delta_cdc."): value for name, value in values.items()}
    assert (sent["rows.orders.inserted"], sent["rows.items.inserted"]) == (2, 1)
    assert sent["bytes_written.orders"] > 0
    assert (sent["versions_behind.orders"], sent["late.items"]) == (0, 0)
    assert sent["stage_seconds.orders.start"] > sent["stage_seconds.orders.plan"] > 0
    assert sent["stage_seconds.orders.work"] > 0
    published = done.xcom("apply[orders]")
    assert published["seconds"]["start"] == sent["stage_seconds.orders.start"]
    assert {event["extra"]["lag"]["late"] for event in done.events if "lag" in event["extra"]} == {False}

    # Lineage
    emitted = [json.loads(line) for line in events.read_text().splitlines()]
    ended = [event for event in emitted if event["eventType"] == "COMPLETE"]
    complete = [event for event in ended if event["job"]["name"] == "sales.apply"]
    written = {
        event["outputs"][0]["name"]: event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"]
        for event in complete
    }
    assert written == {str(tmp_path / "orders"): 2, str(tmp_path / "items"): 1}
    read = {event["inputs"][0]["name"] for event in complete}
    assert read == {str(tmp_path / "orders_in"), str(tmp_path / "items_in")}

    # Links
    assert done.xcom("apply[orders]", "link_pipeline").endswith("/plugin/delta-cdc?pipeline=orders")
    assert "/assets?name_pattern=" in done.xcom("apply[orders]", "link_target")
    assert done.xcom("run_spark", "link_spark").startswith("http://history:18080/history/local-")
