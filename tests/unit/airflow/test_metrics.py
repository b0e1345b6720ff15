"""Metrics, as a real StatsD server and a real OpenTelemetry endpoint receive them."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils

from airflow_delta_cdc.metrics import are_published, emit_lag, emit_run
from airflow_delta_cdc.sensors import DeltaVersionSensor
from tests.support.logs import LogTable, seal
from tests.support.statsd import StatsdReceiver, receiving
from tests.unit.airflow.test_apply_operator import Answer, operator, run
from tests.unit.airflow.test_base_operator import Store
from tests.unit.airflow.test_groups import detect, lake

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["lake"]

LAG = {"source_version": 9, "versions": 3, "seconds": 60.5, "readable_until": None}
RUN = {
    "pipeline": "sales.orders",
    "applied": True,
    "counts": {"inserted": 5, "quarantined": 2, "rows": 5, "rule:amount_positive": 2},
    "bytes_written": 100,
    "seconds": {"plan": 0.5, "work": 2.0},
    "attempts_lost": 1,
    "lag": {**LAG, "readable_until": "2020-01-01T00:00:00+00:00", "late": True},
}


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[StatsdReceiver]:
    """Airflow's stats go to a StatsD server, with further settings of ``[metrics]`` from the marker."""
    settings: dict[str, str] = getattr(request, "param", {})
    with receiving() as server:
        for name, value in {"statsd_on": "True", "statsd_port": str(server.port), **settings}.items():
            monkeypatch.setenv(f"AIRFLOW__METRICS__{name.upper()}", value)
        monkeypatch.setenv("AIRFLOW__METRICS__STATSD_HOST", "127.0.0.1")
        stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
        yield server
    monkeypatch.undo()
    stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)


def test_plain_statsd_has_the_labels_in_the_name(statsd: StatsdReceiver) -> None:
    emit_run(RUN)
    assert statsd.lines() == [
        "airflow.delta_cdc.versions_behind.sales__orders:3.0|g",
        "airflow.delta_cdc.seconds_behind.sales__orders:60.5|g",
        "airflow.delta_cdc.seconds_until_unreadable.sales__orders:0.0|g",
        "airflow.delta_cdc.late.sales__orders:1.0|g",
        "airflow.delta_cdc.rows.sales__orders.inserted:5|c",
        "airflow.delta_cdc.bytes_written.sales__orders:100|c",
        "airflow.delta_cdc.quarantined.sales__orders:2|c",
        "airflow.delta_cdc.rule_broken.sales__orders.amount_positive:2|c",
        "airflow.delta_cdc.stage_seconds.sales__orders.plan:0.5|g",
        "airflow.delta_cdc.stage_seconds.sales__orders.work:2.0|g",
        "airflow.delta_cdc.attempts_lost.sales__orders:1|c",
    ]


def test_what_is_unknown_or_was_not_written_is_not_sent(statsd: StatsdReceiver) -> None:
    emit_lag("p", None)
    assert statsd.lines() == []
    emit_lag("p", {**LAG, "late": None})
    names = ("versions_behind", "seconds_behind")
    assert list(statsd.values()) == [f"airflow.delta_cdc.{name}.p" for name in names]
    ingested = {"applied": True, "counts": {"events": 7, "files": 2}, "bytes_written": 50}
    emit_run({**RUN, "lag": None, "applied": False, "ingested": ingested})
    found = statsd.values()
    assert found["airflow.delta_cdc.rows.sales__orders.events"] == 7
    assert found["airflow.delta_cdc.bytes_written.sales__orders"] == 50
    assert not [name for name in found if name.endswith((".files", ".inserted"))]


def test_comparisons_with_shadows(statsd: StatsdReceiver) -> None:
    compared = [
        {"status": "differing", "counts": {"changed": 2, "extra": 1}},
        {"status": "agreed", "counts": {}},
        {"status": "not_compared", "counts": {}},
    ]
    emit_run({**RUN, "shadow": compared})
    assert statsd.values()["airflow.delta_cdc.shadow_differences.sales__orders"] == 3
    emit_run({**RUN, "shadow": compared[2:]})
    assert "airflow.delta_cdc.shadow_differences.sales__orders" not in statsd.values()


@pytest.mark.parametrize("statsd", [{"statsd_influxdb_enabled": "True"}], indirect=True)
def test_statsd_with_tags(statsd: StatsdReceiver) -> None:
    emit_run({**RUN, "lag": None})
    assert "airflow.delta_cdc.rows,pipeline=sales.orders,kind=inserted:5|c" in statsd.lines()


@pytest.mark.parametrize("switch", ["statsd_on", "statsd_datadog_enabled", "otel_on"])
def test_every_way_that_airflow_knows_publishes(monkeypatch: pytest.MonkeyPatch, switch: str) -> None:
    assert not are_published()
    monkeypatch.setenv(f"AIRFLOW__METRICS__{switch.upper()}", "True")
    assert are_published()


# -- who sends them -------------------------------------------------------------------------------
def test_an_apply_sends_them(statsd: StatsdReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    published, given, _ = run(operator(freshness="1 minute"), monkeypatch, Answer(lag=LAG))
    found = statsd.values()
    assert found["airflow.delta_cdc.rows.orders.inserted"] == 1
    assert found["airflow.delta_cdc.versions_behind.orders"] == 3
    assert found["airflow.delta_cdc.late.orders"] == 1
    assert published["lag"] == {**LAG, "freshness": 60, "late": True}
    (event,) = given["outlet_events"]._dict.popitem()[1].asset_alias_events
    assert event.extra["lag"] == published["lag"]


def test_the_detection_of_a_group_sends_them(statsd: StatsdReceiver, lake: list[dict[str, Any]]) -> None:
    quiet, busy = lake
    _, summary = detect(quiet, {**busy, "freshness": "1 day"})
    found = statsd.values()
    assert found["airflow.delta_cdc.versions_behind.quiet"] == 0
    assert found["airflow.delta_cdc.versions_behind.busy"] == 1
    assert found["airflow.delta_cdc.late.busy"] == 0
    assert "airflow.delta_cdc.late.quiet" not in found
    assert summary["busy"]["lag"]["late"] is False
    assert summary["quiet"]["lag"]["late"] is None
    _, summary = detect({**busy, "freshness": 0})
    assert summary["busy"]["lag"]["late"] is True
    assert statsd.values()["airflow.delta_cdc.late.busy"] == 1


def test_the_sensor_sends_them(statsd: StatsdReceiver, tmp_path: Path) -> None:
    now = time.time_ns() // 1_000_000
    source = LogTable(tmp_path / "source").create(at=now)
    source.append(at=now)
    target = LogTable(tmp_path / "target").create(at=now)
    target.write_seal(seal(100, 1, source=source, kind="load"), at=now)
    task = DeltaVersionSensor(task_id="wait", table=source.uri, pipeline="p", target=target.uri)
    context: Any = {"task_state_store": Store()}
    assert not task.poke(context).is_done
    assert statsd.values()["airflow.delta_cdc.versions_behind.p"] == 0
    source.append(at=now)
    assert task.poke(context).is_done
    assert statsd.values()["airflow.delta_cdc.versions_behind.p"] == 1


# -- OpenTelemetry --------------------------------------------------------------------------------
_EMIT = f"""
from airflow.sdk.observability import stats
from airflow.sdk.observability.metrics import stats_utils
from airflow_delta_cdc.metrics import emit_run
stats.initialize(factory=stats_utils.get_stats_factory(), export_legacy_names=False)
emit_run({RUN!r})
from opentelemetry import metrics
metrics.get_meter_provider().shutdown()
"""


def test_opentelemetry_gets_labels_as_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_port}/v1/metrics"
        for name, value in {
            "AIRFLOW__METRICS__OTEL_ON": "True",
            "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": endpoint,
            "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        }.items():
            monkeypatch.setenv(name, value)
        done = subprocess.run([sys.executable, "-c", _EMIT], stderr=subprocess.PIPE, text=True, check=False)
        server.shutdown()
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = {}
    for body in bodies:
        for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
            for metric in (one for scope in resource.scope_metrics for one in scope.metrics):
                for point in (*metric.gauge.data_points, *metric.sum.data_points):
                    labels = {one.key: one.value.string_value for one in point.attributes}
                    found[json.dumps([metric.name, labels])] = point.as_double or point.as_int
    rows = json.dumps(["airflow.delta_cdc.rows", {"pipeline": "sales.orders", "kind": "inserted"}])
    assert found[rows] == 5, (found, done.stderr)
    assert found[json.dumps(["airflow.delta_cdc.seconds_behind", {"pipeline": "sales.orders"}])] == 60.5
