"""The events of a target's partitions, which an apply adds for the DAGs that wait for them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.partition_mappers.identity import IdentityMapper
from airflow.partition_mappers.temporal import StartOfMonthMapper
from airflow.sdk.execution_time import comms, task_runner
from airflow.sdk.execution_time.context import OutletEventAccessor, OutletEventAccessors
from airflow.sdk.execution_time.task_runner import _serialize_outlet_events

from airflow_delta_cdc.assets import delta_asset, partitions_asset, pipeline_alias
from airflow_delta_cdc.triggers import watched_asset
from delta_cdc.core.errors import InvalidConfiguration
from tests.unit.airflow.test_apply_operator import Answer, operator, run

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGE = Path(__file__).parents[3] / "docs" / "howto" / "partitions.md"
KEYS = ["day=1", "day=2"]
TARGET = partitions_asset("/lake/target")


class Supervisor:
    """Answers as Airflow does: an asset that no DAG uses is not found.

    :param known: names of the assets that DAGs use
    """

    def __init__(self, *known: str, broken: bool = False) -> None:
        self.known = known
        self.broken = broken
        self.requests: list[str] = []

    def send(self, message: comms.GetAssetByName) -> Any:
        self.requests.append(message.name)
        if self.broken:
            return comms.ErrorResponse(error=comms.ErrorType.API_SERVER_ERROR)
        if message.name not in self.known:
            return comms.ErrorResponse(error=comms.ErrorType.ASSET_NOT_FOUND)
        return comms.AssetResult(name=TARGET.name, uri=TARGET.uri, group=TARGET.group)


def events(
    monkeypatch: pytest.MonkeyPatch, supervisor: Supervisor, **published: Any
) -> tuple[list[Mapping[str, Any]], Any]:
    """Return the events that Airflow gets from a run, and the task."""
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    # Each task is a process of its own, so that none has the answers of another one.
    monkeypatch.setattr(OutletEventAccessors, "_asset_ref_cache", {})
    task = operator()
    task.outlets = [pipeline_alias("orders")]
    _, context, _ = run(task, monkeypatch, Answer(**published))
    return list(_serialize_outlet_events(context["outlet_events"])), task


def test_an_event_for_each_partition_if_a_dag_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, task = events(monkeypatch, Supervisor(TARGET.name), partitions=KEYS)
    of_table = [event for event in sent if "source_alias_name" in event]
    of_partitions = [event for event in sent if event.get("partition_key")]
    assert len(sent) == len(of_table) + len(of_partitions)
    assert of_table[0]["dest_asset_key"]["name"] == delta_asset("/lake/target").name
    assert of_table[0]["extra"]["partitions"] == KEYS
    assert sorted(event["partition_key"] for event in of_partitions) == KEYS
    for event in of_partitions:
        assert event["dest_asset_key"] == {"name": TARGET.name, "uri": TARGET.uri}
        assert (event["extra"]["ending_version"], event["extra"]["target_version"]) == (12, 3)
        assert "partitions" not in event["extra"], "an event of one partition does not list all"
    # Airflow takes events only for outlets of the task.
    assert TARGET in task.outlets


@pytest.mark.parametrize(
    "published",
    [{"partitions": KEYS, "applied": False}, {"partitions": []}, {}],
    ids=["nothing applied", "no partition changed", "not partitioned"],
)
def test_no_event_without_a_changed_partition(
    monkeypatch: pytest.MonkeyPatch, published: dict[str, Any]
) -> None:
    supervisor = Supervisor(TARGET.name)
    sent, task = events(monkeypatch, supervisor, **published)
    assert not [event for event in sent if "source_alias_name" not in event]
    # An outlet without keys would get an event of no partition.
    assert (TARGET in task.outlets, supervisor.requests) == (False, [])


def test_no_event_if_no_dag_waits_for_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, task = events(monkeypatch, Supervisor(), partitions=KEYS)
    assert [event["extra"]["partitions"] for event in sent] == [KEYS]
    assert TARGET not in task.outlets


def test_without_an_answer_the_events_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, task = events(monkeypatch, Supervisor(broken=True), partitions=KEYS)
    assert sorted(event["partition_key"] for event in sent if event.get("partition_key")) == KEYS
    assert TARGET in task.outlets


def test_an_airflow_without_events_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(OutletEventAccessor, "add_partitions")
    supervisor = Supervisor(TARGET.name)
    sent, task = events(monkeypatch, supervisor, partitions=KEYS)
    assert [event["extra"]["partitions"] for event in sent] == [KEYS]
    assert (TARGET in task.outlets, supervisor.requests) == (False, [])


def test_the_asset_of_partitions_is_one_of_its_own() -> None:
    spellings = ["s3://lake/orders", "s3a://lake/orders/"]
    (asset,) = {(one.name, one.uri, one.group) for one in map(partitions_asset, spellings)}
    assert asset == ("partitions:s3://lake/orders", "x-delta-partitions:s3://lake/orders", "delta_cdc")
    assert asset[0] not in (delta_asset(spellings[0]).name, watched_asset(spellings[0]).name)
    assert partitions_asset("/data/für").uri.isascii()
    with pytest.raises(InvalidConfiguration, match="parses the DAG file"):
        partitions_asset("{{ params.target }}")


@pytest.mark.parametrize("key", ["all", "day=__HIVE_DEFAULT_PARTITION__", "country=DE/day=2026-11-28"])
def test_the_page_recommends_no_mapper_that_cannot_read_each_key(key: str) -> None:
    """Airflow logs the error of a mapper, and starts no run."""
    assert IdentityMapper().to_downstream(key) == key
    mapper = StartOfMonthMapper(input_format="day=%Y-%m-%d")
    assert mapper.to_downstream("day=2026-11-28")
    with pytest.raises(ValueError, match="does not match"):
        mapper.to_downstream(key)
    assert "Do not use a mapper of Airflow" in " ".join(PAGE.read_text(encoding="utf-8").split())
