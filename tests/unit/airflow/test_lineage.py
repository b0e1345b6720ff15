"""Lineage, as the real OpenLineage client writes it to a file."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter
from airflow.utils.state import TaskInstanceState
from openlineage.client import OpenLineageClient
from openlineage.client.naming import dataset as naming
from openlineage.client.transport.file import FileConfig, FileTransport

from airflow_delta_cdc.operators import (
    DeltaIngestChangesOperator,
    DeltaReadChangesOperator,
    DeltaVacuumOperator,
)
from delta_cdc.core.versions import VersionRange
from delta_cdc.core.watermark import TableVersion
from delta_cdc.run.batch import PipelineResult
from tests.unit.airflow.test_apply_operator import Answer, operator, run
from tests.unit.airflow.test_groups import Flow, context, item, task
from tests.unit.airflow.test_ingest_operator import applied, ingested

if TYPE_CHECKING:
    from pathlib import Path

    from airflow_delta_cdc.operators.base import DeltaCdcOperator

SUCCESS, FAILED, RUNNING = TaskInstanceState.SUCCESS, TaskInstanceState.FAILED, TaskInstanceState.RUNNING


class DagRun:
    run_id = "r"


def emitted(tmp_path: Path, one: DeltaCdcOperator, state: TaskInstanceState = SUCCESS) -> dict[str, Any]:
    """Return the event that Airflow's provider emits for a task, as it is in the file."""
    file = tmp_path / f"{uuid4()}.json"
    transport = FileTransport(FileConfig(log_file_path=str(file), append=True))
    adapter = OpenLineageAdapter(client=OpenLineageClient(transport=transport))
    lineage = ExtractorManager().extract_metadata(DagRun(), one, state, None)
    unknown = ("nominal_start_time", "nominal_end_time", "owners", "tags", "job_description")
    more: dict[str, Any] = {**dict.fromkeys(unknown), "end_time": datetime.now(UTC).isoformat()}
    adapter.complete_task(run_id=str(uuid4()), job_name="dag.task", task=lineage, **more)
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def names(datasets: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["namespace"], one["name"]) for one in datasets]


def test_an_apply(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = operator(
        source="s3a://lake/bronze/orders/",
        select=["id", "upper(name) AS name", "a.b + c AS total", "count(", "1 AS one"],
    )
    before = emitted(tmp_path, one, RUNNING)
    assert names(before["inputs"]) == [("s3://lake", "bronze/orders")]
    assert "version" not in before["inputs"][0]["facets"]
    run(one, monkeypatch, Answer(counts={"inserted": 2, "updated": 3, "deleted": 4, "rows": 9}))
    event = emitted(tmp_path, one)
    (read,), (written,) = event["inputs"], event["outputs"]
    assert (written["namespace"], written["name"]) == ("file", "/lake/target")
    assert read["facets"]["version"]["datasetVersion"] == "12"
    assert written["facets"]["version"]["datasetVersion"] == "3"
    assert written["facets"]["storage"]["storageLayer"] == "delta"
    statistics = written["outputFacets"]["outputStatistics"]
    assert (statistics["rowCount"], statistics["size"]) == (5, 10)
    fields = written["facets"]["columnLineage"]["fields"]
    columns = {name: [field["field"] for field in entry["inputFields"]] for name, entry in fields.items()}
    assert columns == {"id": ["id"], "name": ["name"], "total": ["a", "c"]}
    (source,) = fields["id"]["inputFields"]
    assert (source["namespace"], source["name"]) == ("s3://lake", "bronze/orders")
    assert [one["subtype"] for one in source["transformations"]] == ["IDENTITY"]
    (transformed,) = fields["name"]["inputFields"]
    assert [one["subtype"] for one in transformed["transformations"]] == ["TRANSFORMATION"]
    facet = event["run"]["facets"]["delta_cdc"]
    assert (facet["pipeline"], facet["starting_version"], facet["ending_version"]) == ("orders", 10, 12)
    assert facet["counts"] == {"inserted": 2, "updated": 3, "deleted": 4, "rows": 9}


def test_a_failed_task_has_the_tables_of_its_arguments(tmp_path: Path) -> None:
    event = emitted(tmp_path, operator(), FAILED)
    assert names(event["inputs"]) == [("file", "/lake/source")]
    assert names(event["outputs"]) == [("file", "/lake/target")]
    assert "delta_cdc" not in event["run"]["facets"]
    assert event["outputs"][0].get("outputFacets", {}) == {}
    event = emitted(tmp_path, DeltaVacuumOperator(task_id="vacuum", table="/lake/t"))
    assert (event["inputs"], event["outputs"]) == ([], []), "what moves no rows has its inlets"


def test_a_read_into_staging(tmp_path: Path) -> None:
    one = DeltaReadChangesOperator(task_id="read", pipeline="p", table="/lake/source", staging="/lake/st")
    one.published = {"pipeline": "p", "source_table": "/lake/source", "ending_version": 5, "applied": True}
    one.published |= {"staging": "/lake/st", "staging_version": 1, "rows": 7, "bytes_written": 70}
    event = emitted(tmp_path, one)
    assert names(event["inputs"]) == [("file", "/lake/source")]
    assert names(event["outputs"]) == [("file", "/lake/st")]
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 7


def test_nothing_new_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = operator()
    run(one, monkeypatch, Answer(applied=False, starting_version=None, ending_version=None, counts={}))
    (written,) = emitted(tmp_path, one)["outputs"]
    assert "version" not in written["facets"]
    assert written.get("outputFacets", {}) == {}


def test_catalog_names_are_other_names_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = operator(source="main.sales.orders", target="/lake/target")
    assert emitted(tmp_path, one, RUNNING)["inputs"] == []
    one.published = {**Answer().published, "source_table": "gs://lake/orders"}
    (read,) = emitted(tmp_path, one)["inputs"]
    assert (read["namespace"], read["name"]) == ("gs://lake", "orders")
    (other,) = read["facets"]["symlinks"]["identifiers"]
    assert (other["name"], other["type"]) == ("main.sales.orders", "TABLE")


def test_each_table_of_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = applied("a", versions=VersionRange(8, 9), watermark=TableVersion("s", 9), target_table="/lake/a")
    Flow(monkeypatch, PipelineResult(pipeline="a", applied=done))
    one = task(item("a"))
    one.execute(context())
    event = emitted(tmp_path, one)
    assert (names(event["inputs"]), names(event["outputs"])) == ([("file", "/lake/s")], [("file", "/lake/a")])
    assert event["inputs"][0]["facets"]["version"]["datasetVersion"] == "9"
    assert event["outputs"][0]["outputFacets"]["outputStatistics"]["rowCount"] == 3


def test_an_ingest_and_its_apply(tmp_path: Path) -> None:
    one = DeltaIngestChangesOperator(
        task_id="ingest",
        source="kafka://broker:9092,other:9092/shop.orders,shop.items",
        log="/lake/log",
        target="/lake/target",
        keys=["id"],
    )
    outcome = ingested().to_dict()
    one.published = {**applied(versions=VersionRange(3, 4)).to_dict(), "ingested": outcome}
    event = emitted(tmp_path, one)
    assert names(event["inputs"]) == [
        ("kafka://broker:9092", "shop.orders"),
        ("kafka://broker:9092", "shop.items"),
        ("file", "/lake/log"),
    ]
    assert names(event["outputs"]) == [("file", "/lake/log"), ("file", "/lake/target")]
    assert [one["outputFacets"]["outputStatistics"]["rowCount"] for one in event["outputs"]] == [3, 3]
    assert "storage" not in event["inputs"][0]["facets"]
    one.target, one.published = None, outcome
    event = emitted(tmp_path, one)
    assert names(event["outputs"]) == [("file", "/lake/log")]
    assert event["outputs"][0]["facets"]["version"]["datasetVersion"] == "4"


@pytest.mark.parametrize(
    ("table", "oracle"),
    [
        ("/lake/orders", naming.LocalFileSystem(path="/lake/orders")),
        ("s3://lake/bronze/orders", naming.S3(bucket_name="lake", object_key="bronze/orders")),
        ("gs://lake/orders", naming.GCS(bucket_name="lake", object_key="orders")),
        (
            "abfss://lake@account.dfs.core.windows.net/orders",
            naming.ABFSS(container="lake", service="account", path="orders"),
        ),
    ],
)
def test_datasets_are_named_as_the_specification_says(tmp_path: Path, table: str, oracle: Any) -> None:
    (read,) = emitted(tmp_path, operator(source=table), RUNNING)["inputs"]
    assert (read["namespace"], read["name"]) == (oracle.get_namespace(), oracle.get_name())
