"""What the apply operator asks for, and what it publishes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import uuid4

import pytest
from airflow.sdk import DAG
from airflow.sdk.execution_time import comms, task_runner
from airflow.sdk.execution_time.context import OutletEventAccessors, TaskStateStoreAccessor
from airflow.serialization.serialized_objects import DagSerialization

from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaReadChangesOperator
from airflow_delta_cdc.operators.saved_plans import TaskSavedPlans
from delta_cdc.api.changes import apply_changes
from delta_cdc.core.options import APPLY, QueryOptions
from delta_cdc.core.value_rules import ValueRule
from tests.support.grouped import grouped
from tests.unit.airflow.test_base_operator import Store

if TYPE_CHECKING:
    from pathlib import Path

    from airflow.sdk import Asset

PUBLISHED = {
    "pipeline": "orders",
    "seal": 7,
    "source_table": "/lake/source",
    "source_table_id": "s",
    "version": 12,
    "starting_version": 10,
    "ending_version": 12,
    "applied": True,
    "target_table": "/lake/target",
    "target_table_id": "t",
    "target_version": 3,
    "counts": {"inserted": 1},
    "bytes_written": 10,
    "lag": None,
    "seconds": {"work": 1.5},
    "attempts_lost": 0,
    "timestamp": "2026-01-01T00:00:00.000+00:00",
}


def operator(**arguments: Any) -> DeltaApplyChangesOperator:
    given = {"pipeline": "orders", "source": "/lake/source", "target": "/lake/target", "keys": ["id"]}
    return DeltaApplyChangesOperator(task_id="apply", **{**given, **grouped(arguments)})


class Answer:
    plan_key = "pin:orders:s"
    backup: ClassVar[dict[str, Any]] = {"seal": {"watermark": 12}, "table_id": "t"}

    def __init__(self, **changed: Any) -> None:
        self.published = {**PUBLISHED, **changed}

    def to_dict(self) -> dict[str, Any]:
        return self.published


class Ti:
    def __init__(self) -> None:
        self.pushed: dict[str, Any] = {}

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[key] = value


class AssetStores:
    """The asset state stores of a task: one dict per asset, or one that is out of order."""

    def __init__(self, broken: bool = False) -> None:
        self.kept: dict[tuple[str, str], Any] = {}
        self.broken = broken

    def __getitem__(self, asset: Asset) -> Any:
        outer = self

        class One:
            def set(self, key: str, value: Any) -> None:
                if outer.broken:
                    raise RuntimeError("metadata database is away")
                outer.kept[asset.uri, key] = value

            def get(self, key: str) -> Any:
                if outer.broken:
                    raise RuntimeError("metadata database is away")
                return outer.kept.get((asset.uri, key))

        return One()


def run(
    task: DeltaApplyChangesOperator, monkeypatch: pytest.MonkeyPatch, answer: Answer, **context: Any
) -> tuple[Any, dict[str, Any], list[Any]]:
    asked: list[Any] = []

    def planned(request: Any, services: Any) -> Answer:
        asked.extend([request, services])
        return answer

    monkeypatch.setattr("delta_cdc.run.flows.run", planned)
    full = {
        "ti": Ti(),
        "run_id": "manual__1",
        "task_state_store": Store(),
        "asset_state_store": AssetStores(),
        "outlet_events": OutletEventAccessors(),
        **context,
    }
    return task.execute(full), full, asked  # type: ignore[arg-type]


# -- asking ---------------------------------------------------------------------------------------
#: Every argument beside tables and keys, as a form renders it, and what the engine gets of it.
_GIVEN: dict[str, tuple[Any, Any]] = {
    "source_kind": ("change_log", "change_log"),
    "sequence_by": (["at", "n"], ("at", "n")),
    "delete_sequence": ("gone", "gone"),
    "where": ("id > 1", "id > 1"),
    "select": (["id", "at"], ("id", "at")),
    "apply_as_deletes": ("op = 'D'", "op = 'D'"),
    "apply_as_truncates": ("op = 'T'", "op = 'T'"),
    "column_list": (["id", "a"], ("id", "a")),
    "except_column_list": ("op", ("op",)),
    "track_history_column_list": (["b"], ("b",)),
    "track_history_except_column_list": (["c"], ("c",)),
    "ignore_null_updates": ("True", True),
    "ignore_null_updates_column_list": (["d.e"], ("d.e",)),
    "ignore_null_updates_except_column_list": (["f"], ("f",)),
    "columns_to_update": ("carried", "carried"),
    "start_column": ("valid_from", "valid_from"),
    "end_column": ("valid_to", "valid_to"),
    "end_value": ("9999-12-31", "9999-12-31"),
    "current_column": ("is_current", "is_current"),
    "created_column": ("created_at", "created_at"),
    "changed_column": ("changed_at", "changed_at"),
    "row_hash_column": ("row_hash", "row_hash"),
    "on_conflict": ({"last_by": ["at", "n"]}, ("at", "n")),
    "on_invalid": ("quarantine", "quarantine"),
    "on_late": ("discard", "discard"),
    "delete_mode": ("soft", "soft"),
    "snapshot_version_column": ("taken", "taken"),
    "target_kind": ("change_log", "change_log"),
    "once": ("true", True),
    "schema_evolution": ("none", "none"),
    "mode": ("repair", "repair"),
    "discard_history": ("true", True),
    "repair_keys": ("id < 9", "id < 9"),
    "repair_quarantined": ("True", True),
    "on_drift": ("accept", "accept"),
    "on_source_replaced": ("reload", "reload"),
    "on_target_replaced": ("reload", "reload"),
    "on_versions_expired": ("reload", "reload"),
    "allow_empty": ("true", True),
    "max_deleted": ("5 %", "5 %"),
    "approval_for": (["reload", "reset"], ("reset", "reload")),
    "max_changed": ("7", 7),
    "min_source_rows": ("8", 8),
    "approve": ("9-0a1b2c3d4e5f", "9-0a1b2c3d4e5f"),
    "dry_run": ("True", True),
    "insert_only": (True, True),
    "publish_changes": (True, True),
    "single_driver": (True, True),
    "take_over_from": ("older", "older"),
    "shadow_of": ({"p_now": "/lake/now"}, {"p_now": "/lake/now"}),
    "shadowed_by": ('{"p_next": "/lake/next"}', {"p_next": "/lake/next"}),
    "starting_timestamp": ("2026-01-01T00:00:00+00:00", "2026-01-01T00:00:00+00:00"),
    "ending_version": ("12", 12),
    "max_versions": ("3", 3),
    "max_bytes": ("4", 4),
    "versions_per_commit": ("5", 5),
    "bytes_per_commit": ("6", 6),
    "stored_as_scd_type": ("2", 2),
    "initial_load": ({"from_version": "4"}, {"from_version": 4}),
    "partition_by": (["region"], {"region": None}),
    "cluster_by": (["id"], ("id",)),
    "rules": ({"positive": "n > 0"}, {"positive": ValueRule("n > 0")}),
    "target_properties": ({"delta.appendOnly": False}, {"delta.appendOnly": "false"}),
}


#: Options whose values other tests give.
_ELSEWHERE = {
    *("pipeline", "source", "target", "staging", "keys", "freshness", "on_limit", "starting_version"),
    *("ending_timestamp", "target_location", "target_comment"),
}


def _asked(request: Any, name: str) -> Any:
    return getattr(request if hasattr(request, name) else request.options, name)


def test_every_argument_reaches_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """None is mixed up with another one, and none is dropped."""
    monkeypatch.setenv("LAKE", "/lake")
    given = {name: value for name, (value, _) in _GIVEN.items()}
    _, _, (request, _) = run(operator(source="${LAKE}/source", keys="id", **given), monkeypatch, Answer())
    assert {name: _asked(request, name) for name in _GIVEN} == {
        name: got for name, (_, got) in _GIVEN.items()
    }
    assert (request.source, request.run_id, request.staging) == ("/lake/source", "manual__1", None)
    assert request.options.keys == ("id",)
    # A new option has to be added to one of the two.
    assert set(_GIVEN) == set(APPLY) - _ELSEWHERE


def test_the_function_asks_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {name: got for name, (_, got) in _GIVEN.items()}
    given |= {
        "storage_options": {"region": "eu"},
        "partition_by": ["region"],
        "on_conflict": {"last_by": ["n"]},
        "rules": {"positive": "n > 0"},
    }
    _, _, (by_operator, _) = run(operator(**given), monkeypatch, Answer())
    asked: list[Any] = []
    monkeypatch.setattr("delta_cdc.api.changes.located", lambda _, table, *__: table)
    monkeypatch.setattr("delta_cdc.api.changes.is_local", lambda _: True)
    monkeypatch.setattr("delta_cdc.api.changes.run", lambda request, _: asked.append(request))
    tables: Any = (None, "/lake/source", "/lake/target")
    apply_changes(*tables, pipeline="orders", keys=["id"], run_id="manual__1", **grouped(given))
    assert asked == [by_operator]


def test_an_empty_form_is_an_incremental_run(monkeypatch: pytest.MonkeyPatch) -> None:
    _, _, (plain, _) = run(operator(), monkeypatch, Answer())
    fixed = {"insert_only", "single_driver", "start_column", "end_column"}
    names = set(_GIVEN) - fixed - {"schema_evolution"} | {"starting_version"}
    for empty in ("", "None"):
        _, _, (request, _) = run(operator(**dict.fromkeys(names, empty)), monkeypatch, Answer())
        assert request == plain
    assert (plain.mode, plain.dry_run, plain.on_drift) == ("incremental", False, "fail")


# -- publishing -----------------------------------------------------------------------------------
def test_what_was_applied_is_published_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    returned, context, _ = run(operator(), monkeypatch, Answer())
    assert returned == PUBLISHED
    assert context["ti"].pushed == {"return_value": PUBLISHED}
    kept = {**PUBLISHED, "backup": Answer.backup}
    assert context["asset_state_store"].kept == {("file:///lake/source", "committed:orders"): kept}
    events = context["outlet_events"][pipeline_alias("orders")].asset_alias_events
    assert [event.dest_asset_key.uri for event in events] == ["file:///lake/target"]
    assert (events[0].extra["ending_version"], events[0].extra["target_version"]) == (12, 3)
    _, context, _ = run(operator(), monkeypatch, Answer(applied=False))
    assert context["ti"].pushed["return_value"]["applied"] is False
    assert context["outlet_events"][pipeline_alias("orders")].asset_alias_events == []


# -- a dry run ------------------------------------------------------------------------------------
FOUND = {
    "table": [{"commit": 1, "kind": "apply", "what": "versions 10-12, seal 8", "inserted": 2, "deleted": 1}],
    "steps": ["apply versions 10-12, seal 8"],
    "statements": ["MERGE INTO `/lake/target` AS t\nUSING rows AS s", "ALTER TABLE t"],
    "counts": {"inserted": 2, "deleted": 1},
}


def test_a_dry_run_is_shown_and_leaves_no_trace(monkeypatch: pytest.MonkeyPatch, records: Any) -> None:
    task = operator(dry_run="True")
    monkeypatch.setattr(type(task), "log", records)
    answer = Answer(applied=False, dry_run=FOUND)
    returned, context, (request, how) = run(task, monkeypatch, answer)
    assert request.dry_run
    assert records.at("info") == [], "the flow has told it, line by line"
    assert returned == context["ti"].pushed["return_value"] == answer.published
    assert json.loads(json.dumps(returned)) == returned
    assert context["asset_state_store"].kept == {}
    assert context["outlet_events"][pipeline_alias("orders")].asset_alias_events == []
    # Nor may it leave, or take away, what a later try of the real work goes by.
    idle, _, _ = run(operator(dry_run=True), monkeypatch, Answer(applied=False))
    assert idle["dry_run"] == {"table": [], "steps": [], "statements": [], "counts": {}}
    assert how.saved_plans is None
    assert context["task_state_store"].kept == {}


def test_what_is_long_is_whole_in_the_log_only(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = [f"step {n}" for n in range(500)]
    table = [{"commit": n, "what": step} for n, step in enumerate(steps, 1)]
    long = {"table": table, "steps": steps, "statements": ["a" * 99_000, "b"], "counts": {}}
    returned, _, _ = run(operator(dry_run=True), monkeypatch, Answer(applied=False, dry_run=long))
    assert len(json.dumps(returned)) < 48 * 1024
    shown = returned["dry_run"]
    assert shown["steps"][-2:] == ["step 99", "… 400 more"]
    assert shown["table"][-2:] == [{"commit": 100, "what": "step 99"}, {"what": "… 400 more"}]
    assert shown["statements"][0].endswith("aaa… (see the log)")
    assert shown["statements"][1] == "b"


def test_the_operator_can_be_serialized_with_it() -> None:
    """BaseOperator has a method of that name."""
    with DAG("flow") as dag:
        operator(dry_run="{{ params.dry_run }}")
    copy = DagSerialization.from_dict(DagSerialization.to_dict(dag))
    assert copy.get_task("apply").dry_run == "{{ params.dry_run }}"


# -- what is kept ---------------------------------------------------------------------------------
def test_a_lost_backup_is_said_and_fails_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    returned, _, _ = run(operator(), monkeypatch, Answer(), asset_state_store=AssetStores(broken=True))
    assert returned == PUBLISHED
    said = "The watermark could not be copied to the asset state store: metadata database is away"
    assert said in caplog.text


def test_the_backup_is_there_for_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    stores = AssetStores()
    _, _, (_, how) = run(operator(), monkeypatch, Answer(), asset_state_store=stores)
    assert how.backup() == Answer.backup
    stores.kept.clear()
    assert how.backup() is None
    stores.broken = True
    assert how.backup() is None


def test_only_the_alias_makes_events() -> None:
    """Airflow makes one for each asset among the outlets, even of a task that wrote nothing."""
    task = operator()
    assert task.outlets == [pipeline_alias("orders"), delta_asset("/lake/target")]
    task.pre_execute({})  # type: ignore[typeddict-item]
    assert task.outlets == [pipeline_alias("orders")]
    assert task.inlets == [delta_asset("/lake/source")]
    wanted = operator(outlets=[delta_asset("/lake/target")])
    wanted.pre_execute({})  # type: ignore[typeddict-item]
    assert wanted.outlets == [delta_asset("/lake/target"), pipeline_alias("orders")]
    templated = operator(source="/lake/{{ ds }}", pipeline="{{ params.pipeline }}")
    assert (templated.inlets, templated.outlets) == ([], [])


def test_the_pin_goes_after_everything_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    """A try that dies while it publishes must be able to publish again."""
    store = Store(**{Answer.plan_key: {"ending_version": 12}, "spark_job_id": "application_1"})

    class Dying(Ti):
        def xcom_push(self, *, key: str, value: Any) -> None:
            raise SystemExit

    with pytest.raises(SystemExit):
        run(operator(), monkeypatch, Answer(), task_state_store=store, ti=Dying())
    assert store.kept[Answer.plan_key] == {"ending_version": 12}
    run(operator(), monkeypatch, Answer(), task_state_store=store)
    assert store.kept == {}


# -- pins, on Airflow's own accessor --------------------------------------------------------------
class Supervisor:
    """Answers the accessor's messages as the supervisor would."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    def send(self, message: Any) -> Any:
        if isinstance(message, comms.SetTaskStateStore):
            self.kept[message.key] = message.value
        elif isinstance(message, comms.DeleteTaskStateStore):
            del self.kept[message.key]
        elif message.key in self.kept:
            return comms.TaskStateStoreResult(value=self.kept[message.key])
        else:
            return comms.ErrorResponse(error=comms.ErrorType.TASK_STORE_NOT_FOUND)
        return comms.OKResponse(ok=True)


def test_pins_on_the_real_accessor(monkeypatch: pytest.MonkeyPatch) -> None:
    supervisor = Supervisor()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", supervisor, raising=False)
    accessor = TaskStateStoreAccessor(ti_id=uuid4(), scope=None)  # type: ignore[arg-type]
    context: Any = {"task_state_store": accessor}
    saved_plans = TaskSavedPlans(context)
    assert saved_plans.get("pin:p:t") is None
    saved_plans.delete("pin:p:t")
    saved_plans.set("pin:p:t", {"ending_version": 3, "fingerprint": None})
    assert TaskSavedPlans(context).get("pin:p:t") == {"ending_version": 3, "fingerprint": None}
    saved_plans.delete("pin:p:t")
    assert supervisor.kept == {}
    context.clear()
    without = TaskSavedPlans(context)
    without.set("pin:p:t", {"ending_version": 3})
    without.delete("pin:p:t")
    assert without.get("pin:p:t") is None, "without a store nothing is kept"


def test_the_key_of_a_plan_fits_into_airflows_store() -> None:
    store = Store()
    saved_plans = TaskSavedPlans({"task_state_store": store})  # type: ignore[arg-type]
    # S3 takes keys of 1024 bytes.
    keys = ["short", *(f"pin:p:s3://lake/{'x' * 900}/{name}" for name in ("a", "b"))]
    for key in keys:
        saved_plans.set(key, {"of": key})
    assert [saved_plans.get(key) for key in keys] == [{"of": key} for key in keys]
    assert max(map(len, store.kept)) == 512, "the most that Airflow keeps"
    assert "short" in store.kept
    for key in keys:
        saved_plans.delete(key)
    assert store.kept == {}


# -- read -----------------------------------------------------------------------------------------
def test_reading_asks_for_the_same_pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    asked: list[Any] = []

    def planned(request: Any, _: Any) -> Answer:
        asked.append(request)
        return Answer(staging="/lake/staging")

    monkeypatch.setattr("delta_cdc.run.flows.run", planned)
    task = DeltaReadChangesOperator(
        task_id="read",
        pipeline="orders",
        table="/lake/source",
        staging="/lake/staging",
        target="/lake/target",
        query="{{ params.query }}",
        keys=["{{ params.key }}"],
        where="id > {{ params.low }}",
        select=["id", "{{ params.key }} AS k"],
        policies={"on_change_commit": "{{ none }}"},
        limits={"max_versions": "5", "versions_per_commit": "{{ params.low }}", "bytes_per_commit": ""},
    )
    params = {"query": "upsert", "key": "id", "low": 3}
    task.render_template_fields({"params": params})  # type: ignore[arg-type]
    store = Store(**{Answer.plan_key: {"ending_version": 12}})
    context: Any = {"run_id": "r", "task_state_store": store}
    assert task.execute(context)["staging"] == "/lake/staging"
    assert store.kept == {}
    (request,) = asked
    assert (request.pipeline, request.source, request.staging) == ("orders", "/lake/source", "/lake/staging")
    assert (request.max_versions, request.versions_per_commit) == (5, 3)
    assert (request.bytes_per_commit, request.ending_version) == (None, None)
    assert request.options == QueryOptions(
        "upsert", keys=("id",), where="id > 3", select=("id", "id AS k"), on_change_commit="fail"
    )
