"""``docs/howto/monitoring.md`` and the dashboard name the metrics that are published, and all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.core.metrics import METRICS

_DOCS = Path(__file__).parents[3] / "docs"
_NAME = re.compile(r"delta_cdc_([a-z_]+)")
_PUBLISHERS = {"run": "runs", "sensor": "sensor", "status": "status"}


@pytest.fixture(scope="module")
def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((_DOCS / "grafana-dashboard.json").read_text(encoding="utf-8"))
    return found


def test_the_table_is_that_of_the_code() -> None:
    page = (_DOCS / "howto" / "monitoring.md").read_text(encoding="utf-8")
    lines = [line for line in page.splitlines() if re.match(r"\| `\w+` \| (gauge|counter)", line)]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    written = {name.strip("`"): [kind, label.strip("`"), who, doc] for name, kind, label, who, doc, _ in rows}
    known = {
        one.name: [one.kind, one.label, ", ".join(_PUBLISHERS[who] for who in one.publishers), one.doc]
        for one in METRICS.values()
    }
    assert written == known
    # Each has an alert, about itself.
    for row in rows:
        assert set(_NAME.findall(row[-1])) == {row[0].strip("`")}, row


def test_the_dashboard_shows_every_metric_that_runs_publish_and_no_other(dashboard: dict[str, Any]) -> None:
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    named = {name for text in expressions for name in re.findall(r"delta_cdc_([a-z_]+?)(?=\(|\")", text)}
    assert named - set(METRICS) == set()
    assert {one.name for one in METRICS.values() if "run" in one.publishers} - named == set()
    for text in expressions:
        assert text.count("(") == text.count(")")
        labels = set(re.findall(r"by \(([a-z, ]+)\)", text)[0].split(", ")) if " by (" in text else set()
        (metric,) = {METRICS[name] for name in re.findall(r"delta_cdc_([a-z_]+?)(?=\(|\")", text)}
        assert labels <= {"pipeline", metric.label}, text
        assert ("increase(" in text) == (metric.kind == "counter"), text


def test_the_dashboard_can_be_imported(dashboard: dict[str, Any]) -> None:
    panels = dashboard["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert {variable["name"] for variable in dashboard["templating"]["list"]} == {"datasource", "pipeline"}
    places = {(p["gridPos"]["x"], p["gridPos"]["y"]) for p in panels}
    assert len(places) == len(panels)
    assert all(p["gridPos"]["x"] + p["gridPos"]["w"] <= 24 for p in panels)
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(panels)))
    assert used == {"datasource", "pipeline"}
