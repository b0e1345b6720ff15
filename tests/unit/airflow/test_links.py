"""Links of tasks, as Airflow's worker asks for them, and as it keeps them for the UI."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook
from airflow.sdk import DAG
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.groups.run_spark import RunSparkOperator
from airflow_delta_cdc.links import configured_spark_ui
from airflow_delta_cdc.operators import (
    DeltaApplyChangesOperator,
    DeltaIngestChangesOperator,
    DeltaReadChangesOperator,
    DeltaVacuumOperator,
)
from airflow_delta_cdc.operators.base import DeltaCdcOperator
from delta_cdc.core.errors import JobFailed
from delta_cdc.core.spec import EnableSpec, JobResult
from tests.unit.airflow.test_apply_operator import Ti, operator
from tests.unit.airflow.test_groups import item, task

if TYPE_CHECKING:
    from collections.abc import Callable

SPEC = EnableSpec(run_id="r")


@pytest.fixture(autouse=True)
def base_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team/")


def links(one: Any) -> dict[str, str]:
    return {link.name: link.get_link(one, ti_key=None) for link in one.operator_extra_links}


def test_page_and_target_of_a_pipeline() -> None:
    found = links(operator(pipeline="orders & more", target="/lake/Ziel ü"))
    assert found["Delta CDC"] == "https://airflow.example/team/plugin/delta-cdc?pipeline=orders%20%26%20more"
    target = urlsplit(found["Target"])
    assert target.path == "/team/assets"
    assert parse_qs(target.query) == {"name_pattern": [delta_asset("/lake/Ziel ü").name]}
    assert found["Spark"] == "", "no application ran"


def test_the_target_is_the_log_without_one() -> None:
    ingest = DeltaIngestChangesOperator(task_id="i", source="/landing", log="/lake/log", keys=["id"])
    assert unquote(links(ingest)["Target"]).endswith("/lake/log")
    assert unquote(links(task(item("a")))["Target"]).endswith("/lake/a")
    assert links(task(item("a")))["Delta CDC"].endswith("?pipeline=a")
    read = DeltaReadChangesOperator(task_id="r", pipeline="p", table="/lake/t", staging="/lake/st")
    assert links(read)["Target"] == "", "its target is a sink"
    assert links(operator(target="${NOT_SET_ANYWHERE}/t"))["Target"] == ""
    # A pipeline that the page does not know has no link.
    templated = operator(pipeline="{{ params.name }}")
    templated.pipeline = "rendered"
    assert links(read)["Delta CDC"] == links(templated)["Delta CDC"] == ""


def test_a_refused_configuration_has_no_links() -> None:
    """Else the log shows tracebacks of the links after the error itself."""
    refused = operator()
    refused.policies = {"schema_evolutoin": "widen"}
    assert set(links(refused).values()) == {""}


@pytest.mark.parametrize(
    ("configured", "of_connection", "during", "after"),
    [
        (None, None, None, ""),
        ("http://h:18080/history/{application}/", None, None, "http://h:18080/history/app-7/"),
        ("http://h:18080/", "http://connect:4040/connect/", *(["http://connect:4040/connect/"] * 2)),
    ],
)
def test_spark(
    monkeypatch: pytest.MonkeyPatch,
    connect: Callable[..., str],
    configured: str | None,
    of_connection: str | None,
    during: str | None,
    after: str,
) -> None:
    if configured is not None:
        monkeypatch.setenv("AIRFLOW__DELTA_CDC__SPARK_UI", configured)
    extra = {} if of_connection is None else {"spark_ui": of_connection}

    class Runtime:
        def run(self, *_: Any) -> JobResult:
            return JobResult("committed", application="app-7")

    monkeypatch.setattr("airflow_delta_cdc.runtime.runtime_for", lambda _: Runtime())
    one = operator(spark_conn_id=connect(host="local", **extra))
    ti = Ti()
    context: Any = {"ti": ti}
    one.run_job(context, SPEC)
    assert ti.pushed.get("link_spark") == during
    assert links(one)["Spark"] == after


def test_a_link_without_the_application_stays_after_a_failure(
    monkeypatch: pytest.MonkeyPatch, connect: Callable[..., str]
) -> None:
    class Runtime:
        def run(self, *_: Any) -> JobResult:
            raise JobFailed("m", remedy="r")

    monkeypatch.setattr("airflow_delta_cdc.runtime.runtime_for", lambda _: Runtime())
    for ui, expected in (("http://connect:4040/", "http://connect:4040/"), ("http://h/{application}/", "")):
        one = operator(spark_conn_id=connect(host="local", spark_ui=ui))
        context: Any = {"ti": Ti()}
        with pytest.raises(JobFailed):
            one.run_job(context, SPEC)
        assert links(one)["Spark"] == expected

    def missing(conn_id: str) -> Any:
        raise AirflowNotFoundException(conn_id)

    monkeypatch.setattr(BaseHook, "get_connection", staticmethod(missing))
    assert configured_spark_ui("nowhere") == "", "the hook raises the named error"


def test_a_mapped_task_that_was_not_rendered_has_no_links() -> None:
    """Airflow asks with the mapped operator, which has none of the operator's methods."""
    with DAG("d"):
        mapped = DeltaApplyChangesOperator.partial(
            task_id="apply", pipeline="p", source="/lake/a", keys=["id"]
        ).expand(target=["/lake/b"])
    assert links(mapped) == {"Delta CDC": "", "Target": "", "Spark": ""}


def test_airflow_keeps_the_keys_of_the_links() -> None:
    with DAG("d") as dag:
        operator()
        DeltaVacuumOperator(task_id="vacuum", table="/lake/t")
        RunSparkOperator(task_id="run_spark", work=[], detection="detect_changes")
    stored = DagSerialization.deserialize_dag(json.loads(json.dumps(DagSerialization.serialize_dag(dag))))
    keys = {
        name: {link.name: link.xcom_key for link in one.operator_extra_links}
        for name, one in stored.task_dict.items()
    }
    spark = {"Spark": "link_spark"}
    assert keys["apply"] == {"Delta CDC": "link_pipeline", "Target": "link_target", **spark}
    assert keys["vacuum"] == keys["run_spark"] == spark
    assert issubclass(RunSparkOperator, DeltaCdcOperator)
