"""Tables by catalog name: asked once, kept, checked against the log, asked again."""

from __future__ import annotations

import json
import shutil
import stat
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.execution_time import comms, task_runner
from airflow.sdk.execution_time.context import AssetStateStoreAccessors
from deltalake import DeltaTable

from airflow_delta_cdc.lookups import each_located, located
from airflow_delta_cdc.names import cached_location, forget_moved
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaReadChangesOperator
from delta_cdc.core.errors import (
    CorruptLog,
    DeltaCdcError,
    InvalidConfiguration,
    JobFailed,
    TableNameGone,
    TableNameMoved,
    TableNotFound,
)
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.properties import CATALOG_NAME
from delta_cdc.core.spec import ApplySpec, BatchSpec, JobResult, ResolveSpec, TargetName
from tests.support.grouped import grouped
from tests.unit.airflow.tables import append

if TYPE_CHECKING:
    from pathlib import Path

SOURCE, TARGET = "main.sales.orders", "main.sales.orders_history"


class Supervisor:
    """Answers the accessors of asset state stores as Airflow's supervisor does."""

    def __init__(self) -> None:
        self.kept: dict[tuple[str, str], Any] = {}
        self.out_of_order = False

    def send(self, message: Any) -> Any:
        if self.out_of_order:
            raise RuntimeError("the metadata database is away")
        if isinstance(message, comms.SetAssetStateStoreByName):
            self.kept[message.name, message.key] = message.value
            return comms.OKResponse(ok=True)
        if isinstance(message, comms.DeleteAssetStateStoreByName):
            self.kept.pop((message.name, message.key), None)
            return comms.OKResponse(ok=True)
        assert isinstance(message, comms.GetAssetStateStoreByName)
        if (message.name, message.key) in self.kept:
            return comms.AssetStateStoreResult(value=self.kept[message.name, message.key])
        return comms.ErrorResponse(error=comms.ErrorType.ASSET_STORE_NOT_FOUND)


class Catalog:
    """What Spark's catalog would say, and how often it was asked."""

    def __init__(self) -> None:
        self.tables: dict[str, Path] = {}
        self.lookups: list[tuple[str, ...]] = []
        self.targets: tuple[TargetName, ...] = ()
        self.new: dict[str, str] = {}

    def run_job(self, _: Any, spec: ResolveSpec) -> JobResult:
        self.lookups.append(spec.tables)
        self.targets = spec.targets
        rows = tuple(self._row(name) for name in spec.tables if self.new.get(name) != "")
        if len(rows) == 1 and "error" in rows[0]:
            return JobResult(status="failed", error=rows[0]["error"])
        return JobResult(status="committed", tables=rows)

    def _row(self, name: str) -> dict[str, Any]:
        if name in self.new:
            return {"table": name, "location": self.new[name], "table_id": ""}
        if name not in self.tables:
            error = TableNotFound(f"{name} does not exist.", remedy="correct the name.")
            return {"table": name, "error": error.to_dict()}
        metadata = DeltaTable(str(self.tables[name])).metadata()
        recorded = metadata.configuration.get(CATALOG_NAME, "")
        at = self.tables[name].as_uri()
        return {"table": name, "location": at, "table_id": str(metadata.id), "recorded": recorded}


class World:
    """Two tables with names, and tasks that use them."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.supervisor = Supervisor()
        self.catalog = Catalog()
        self.home = folder / "home"
        self.source, self.target = folder / "orders", folder / "history"
        append(self.source, [1])
        append(self.target, [1])
        self.catalog.tables = {SOURCE: self.source, TARGET: self.target}
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", self.supervisor, raising=False)
        monkeypatch.setenv("DELTA_CDC_HOME", str(self.home))
        self._monkeypatch = monkeypatch
        self.said: list[str] = []

    def task(self, source: str = SOURCE, **arguments: Any) -> DeltaApplyChangesOperator:
        task = DeltaApplyChangesOperator(
            task_id="apply", pipeline="p", source=source, target=TARGET, keys=["id"], **grouped(arguments)
        )
        self._monkeypatch.setattr(task, "run_job", self.catalog.run_job)
        for level in ("info", "warning"):
            self._monkeypatch.setattr(task.log, level, lambda text, *args: self.said.append(text % args))
        return task

    def context(self, task: Any) -> Any:
        return {
            "run_id": "r",
            "task": task,
            "asset_state_store": AssetStateStoreAccessors(inlets=task.inlets),
        }

    def ask(self, task: DeltaApplyChangesOperator, *tables: str) -> list[str]:
        at = located(task, self.context(task), tables)
        return [at[table] for table in tables]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_a_path_is_its_own_location_and_costs_nothing(world: World) -> None:
    world.supervisor.out_of_order = True
    task = world.task()
    for table in ("/lake/t", "s3a://b/t", "abfss://c@a.dfs.core.windows.net/t"):
        assert world.ask(task, table) == [table]
        assert cached_location(world.context(task), table) == table
    assert world.catalog.lookups == []
    assert world.said == []


def test_names_are_asked_for_together_and_once(world: World) -> None:
    found = world.ask(world.task(), SOURCE, "/lake/t", TARGET, SOURCE)
    assert found == [str(world.source), "/lake/t", str(world.target), str(world.source)]
    assert world.catalog.lookups == [(SOURCE, TARGET)]
    assert world.said == [f"Looking up the location of {SOURCE}, {TARGET} in Spark's catalog"]
    kept = world.supervisor.kept[f"x-delta://{SOURCE}", f"location:{SOURCE}"]
    (entry,) = kept["locations"]
    assert entry["location"] == str(world.source)
    assert entry["table_id"] == str(DeltaTable(str(world.source)).metadata().id)
    assert not world.home.exists()
    # Another task of the same table, in another process.
    assert world.ask(world.task(), SOURCE, TARGET) == [str(world.source), str(world.target)]
    assert len(world.catalog.lookups) == 1
    # Another Spark may have another catalog.
    world.ask(world.task(spark_conn_id="cluster"), SOURCE)
    assert len(world.catalog.lookups) == 2


def test_a_table_made_again_is_asked_for_again(world: World, tmp_path: Path) -> None:
    world.ask(world.task(), SOURCE)
    shutil.rmtree(world.source)
    append(world.source, [2])
    assert world.ask(world.task(), SOURCE) == [str(world.source)]
    assert len(world.catalog.lookups) == 2
    assert f"The table at {world.source} is no longer that of {SOURCE}." in world.said
    world.ask(world.task(), SOURCE)
    assert len(world.catalog.lookups) == 2, "the new id is kept"
    # One that moved is found.
    shutil.move(world.source, tmp_path / "elsewhere")
    world.catalog.tables[SOURCE] = tmp_path / "elsewhere"
    assert world.ask(world.task(), SOURCE) == [str(tmp_path / "elsewhere")]
    assert f"The location of {SOURCE} is no longer {world.source}." in world.said


def _records(table: Path, name: str) -> None:
    properties = {CATALOG_NAME: name}
    DeltaTable(str(table)).alter.set_table_properties(properties, raise_if_not_exists=False)


def test_a_name_that_was_given_to_another_table_is_looked_up_again(world: World, tmp_path: Path) -> None:
    """``delta-cdc promote`` exchanges two names, and both tables stay where they are."""
    _records(world.target, TARGET)
    task = world.task()
    assert world.ask(task, TARGET) == [str(world.target)]
    assert world.ask(task, TARGET) == [str(world.target)]
    assert len(world.catalog.lookups) == 1
    promoted = tmp_path / "history_next"
    append(promoted, [1])
    world.catalog.tables[TARGET] = promoted
    _records(world.target, "next")
    assert cached_location(world.context(task), TARGET) is None
    assert world.ask(world.task(), TARGET) == [str(promoted)]
    assert len(world.catalog.lookups) == 2


def test_an_unknown_name_is_an_error_and_the_others_are_kept(world: World) -> None:
    del world.catalog.tables[TARGET]
    task = world.task()
    at = each_located(task, world.context(task), [SOURCE, TARGET])
    assert isinstance(at[TARGET], TableNotFound)
    assert world.ask(world.task(), SOURCE) == [str(world.source)]
    assert world.catalog.lookups == [(SOURCE, TARGET)], "once, for all"
    with pytest.raises(TableNotFound, match=TARGET):
        world.ask(world.task(), TARGET)
    assert len(world.catalog.lookups) == 2, "by the next task again"


def test_one_table_that_cannot_be_located_does_not_stop_the_others(world: World, tmp_path: Path) -> None:
    """Its log is damaged, its location or that of the catalog cannot be read, or the catalog says nothing."""
    world.ask(world.task(), SOURCE, TARGET)
    (world.source / "_delta_log" / f"{0:020d}.json").write_text('{"protocol": {')
    task = world.task()
    world.catalog.new = {"a.b.far": "hdfs://nn/warehouse/far", "a.b.none": ""}
    world.catalog.tables["a.b.fine"] = tmp_path / "fine"
    append(tmp_path / "fine", [1])
    wrong = {SOURCE: CorruptLog, "hdfs://nn/lake": InvalidConfiguration, "a.b.far": InvalidConfiguration}
    at = each_located(task, world.context(task), [*wrong, "a.b.none", TARGET, "a.b.fine", "/lake"])
    assert {table: type(at[table]) for table in wrong} == wrong
    assert "a.b.far" in str(at["a.b.far"])
    assert isinstance(at["a.b.none"], JobFailed)
    assert [at[table] for table in (TARGET, "a.b.fine", "/lake")] == [
        *(str(world.target), str(tmp_path / "fine"), "/lake")
    ]


def test_each_connection_has_locations_of_its_own(world: World) -> None:
    """Two catalogs may have different tables of a name; no task looks up again what another one did."""
    tasks = [world.task(), world.task(spark_conn_id="cluster")]
    for _ in range(2):
        for task in tasks:
            world.ask(task, SOURCE)
    assert len(world.catalog.lookups) == 2


# -- without an asset -----------------------------------------------------------------------------
def _kept_file(world: World) -> Path:
    (file,) = world.home.rglob("*.json")
    return file


def test_without_an_asset_a_private_file_keeps_the_location(world: World) -> None:
    task = world.task(source="{{ params.source }}")
    assert task.inlets == []
    world.ask(task, SOURCE)
    assert world.supervisor.kept == {}
    assert stat.S_IMODE(_kept_file(world).stat().st_mode) == 0o600
    world.ask(world.task(source="{{ params.source }}"), SOURCE)
    assert len(world.catalog.lookups) == 1


_ENTRY = {"name": TARGET, "location": "/t", "table_id": "i", "spark_conn_id": ""}
_OF_ANOTHER = json.dumps({"name": TARGET, "locations": [_ENTRY]})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"name": 1}',
        json.dumps({"name": SOURCE, "locations": [{"name": SOURCE, "location": "/t", "future": "x"}, 1]}),
        json.dumps({"name": SOURCE, "locations": [{**_ENTRY, "name": SOURCE, "spark_conn_id": None}]}),
        json.dumps({**_ENTRY, "name": SOURCE}),
        _OF_ANOTHER,
    ],
)
def test_a_damaged_file_counts_as_none(world: World, text: str) -> None:
    task = world.task(source="{{ params.source }}")
    world.ask(task, SOURCE)
    _kept_file(world).write_text(text)
    assert world.ask(task, SOURCE) == [str(world.source)]
    assert len(world.catalog.lookups) == 2


def test_a_store_out_of_order_costs_no_task(world: World) -> None:
    task = world.task()
    world.supervisor.out_of_order = True
    assert world.ask(task, SOURCE) == [str(world.source)]
    assert world.ask(task, SOURCE) == [str(world.source)]
    assert len(world.catalog.lookups) == 1
    assert any("metadata database is away" in line for line in world.said)
    # Nor does a file that cannot be written.
    shutil.rmtree(world.home)
    world.home.write_text("in the way")
    assert world.ask(task, SOURCE) == [str(world.source)]
    assert any("could not be kept" in line for line in world.said)


# -- those who cannot ask -------------------------------------------------------------------------
def test_what_is_kept_can_be_read_without_spark(world: World) -> None:
    task = world.task()
    context = world.context(task)
    assert cached_location(context, SOURCE) is None
    world.ask(task, SOURCE)
    assert cached_location(context, SOURCE) == str(world.source)
    assert cached_location({**context, "task": None}, SOURCE) == str(world.source)
    assert len(world.catalog.lookups) == 1


# -- operators ------------------------------------------------------------------------------------
class Planned(Exception):
    """Carries the request that a flow was started with."""

    def __init__(self, request: Any) -> None:
        self.request = request


def _planned(request: Any, *_: Any) -> Any:
    raise Planned(request)


def test_apply_and_read_plan_with_locations(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_cdc.run.flows.run", _planned)
    read = DeltaReadChangesOperator(
        task_id="read", pipeline="p", table=SOURCE, staging="/lake/staging", target=TARGET
    )
    monkeypatch.setattr(read, "run_job", world.catalog.run_job)
    for task in (world.task(), read):
        with pytest.raises(Planned) as caught:
            task.execute(world.context(task))
        request = caught.value.request
        assert (request.source, request.target) == (str(world.source), str(world.target))
        assert task is read or (request.source_name, request.target_name) == (SOURCE, TARGET)


def test_a_new_target_gets_the_catalogs_location_and_is_asked_for_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_cdc.run.flows.run", _planned)
    world.catalog.new = {TARGET: "file:/lake/new"}
    task = world.task(target_comment="as it is now")
    for number in (1, 2):
        with pytest.raises(Planned) as caught:
            task.execute(world.context(task))
        assert (caught.value.request.target, caught.value.request.target_name) == ("/lake/new", TARGET)
        assert world.catalog.targets == (TargetName(TARGET, comment="as it is now"),)
        assert len(world.catalog.lookups) == number, "it may have no name yet"
    task = world.task(dry_run=True, target_location="/lake/t")
    with pytest.raises(Planned):
        task.execute(world.context(task))
    assert world.catalog.targets == (TargetName(TARGET, location="/lake/t", dry_run=True),)


def test_another_location_than_the_kept_one_is_asked_about(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_cdc.run.flows.run", _planned)
    for number, location in ((1, None), (1, f"{world.target}/"), (2, "/lake/other")):
        task = world.task(target_location=location)
        with pytest.raises(Planned):
            task.execute(world.context(task))
        assert len(world.catalog.lookups) == number


def test_a_location_needs_a_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    task = DeltaApplyChangesOperator(
        task_id="apply", source=SOURCE, target="/lake/t", keys=["id"], layout={"target_location": "/lake/u"}
    )
    monkeypatch.setattr(task, "run_job", world.catalog.run_job)
    with pytest.raises(InvalidConfiguration, match="target_location"):
        task.execute(world.context(task))


@pytest.mark.parametrize("templated", [False, True])
@pytest.mark.parametrize("in_batch", [False, True])
@pytest.mark.parametrize("error", [TableNameMoved, TableNameGone])
def test_a_name_that_moved_is_looked_up_again(
    world: World, error: type[DeltaCdcError], in_batch: bool, templated: bool
) -> None:
    task = world.task(source="{{ params.source }}") if templated else world.task()
    world.ask(task, SOURCE, TARGET)
    spec: Any = ApplySpec(
        pipeline="p",
        run_id="r",
        source_uri="/s",
        target_uri="/t",
        options=ApplyOptions(),
        steps=(),
        target_name=TARGET,
    )
    result = JobResult("failed", error=error("x", remedy="y").to_dict())
    if in_batch:
        others = JobResult("committed")
        spec, result = (
            BatchSpec(run_id="r", parts=(replace(spec, target_name=SOURCE), spec)),
            JobResult("committed", parts=(others, result)),
        )
    forget_moved(task, world.context(task), spec, result)
    world.ask(task, SOURCE, TARGET)
    # A name that is gone stays: the next job has to find the same.
    assert world.catalog.lookups[1:] == ([(TARGET,)] if error is TableNameMoved else [])


def test_a_wrong_argument_is_named_before_spark_is_asked(world: World) -> None:
    task = world.task()
    task.limits = {"max_versions": "0"}
    with pytest.raises(Exception, match="max_versions"):
        task.execute(world.context(task))
    assert world.catalog.lookups == []
