"""DAGs made from a configuration: their shape, and what is said of them."""

from __future__ import annotations

import re
import runpy
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pendulum
import pytest
from airflow.models.serialized_dag import SerializedDagModel
from airflow.sdk import DAG, AssetAny, CronDataIntervalTimetable
from airflow.sdk.definitions._internal.contextmanager import DagContext
from airflow.sdk.definitions.context import AirflowParsingContext
from airflow.serialization.serialized_objects import DagSerialization
from airflow.timetables.base import TimeRestriction
from jinja2 import UndefinedError

from airflow_delta_cdc.assets import delta_asset, group_alias, group_asset, pipeline_alias
from airflow_delta_cdc.dags import build_dags
from airflow_delta_cdc.groups.why import ExplainRowOperator
from airflow_delta_cdc.retry import DELTA_CDC_RETRY_POLICY
from airflow_delta_cdc.triggers import watched_asset
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

ORDERS = {"source": "/lake/orders", "target": "/lake/orders_current", "keys": ["id"]}
LOGGED = {
    "source": "/landing/customers",
    "log": "/lake/customers_log",
    "target": "/lake/customers",
    "keys": ["id"],
    "adapter_options": {"sequence_by": "n"},
}


def called(*_: Any) -> None:
    """Stand in for a callback."""


def sales(*, settings: Mapping[str, Any] | None = None, **tables: Mapping[str, Any]) -> dict[str, Any]:
    pipelines = tables or {"orders": ORDERS, "customers": LOGGED}
    return {
        "groups": {"sales": dict(settings or {})},
        "pipelines": {name: {"group": "sales", **table} for name, table in pipelines.items()},
    }


def work_of(dag: Any) -> str:
    return str(dag.task_dict["detect_changes"].fingerprint)


def edges(dag: DAG) -> set[tuple[str, str]]:
    return {(task.task_id, after) for task in dag.tasks for after in task.downstream_task_ids}


def test_several_sources_are_tables_of_one_dag() -> None:
    """The log is written by the DAG itself, so it is not what the DAG waits for."""
    several = {
        "target": "/lake/customers",
        "keys": ["id"],
        "sequence_by": "at",
        "delete_sequence": "at",
        "sources": {"eu": {"source": "/lake/eu"}, "us": {"source": "/lake/us"}},
    }
    dags = build_dags({"pipelines": {"customers": {**several, "schedule": "on_change"}}})
    assert list(dags) == ["customers", "customers__backfill"]
    dag = dags["customers"]
    names = [table["pipeline"] for table in dag.task_dict["detect_changes"].tables]
    assert names == ["customers.eu", "customers.us", "customers"]
    assert dag.timetable.asset_condition == AssetAny(watched_asset("/lake/eu"), watched_asset("/lake/us"))


def test_the_tasks_of_a_group() -> None:
    dags = build_dags(sales())
    assert list(dags) == ["sales", "sales__backfill"]
    for dag in dags.values():
        assert edges(dag) == {
            ("detect_changes", "run_spark"),
            ("detect_changes", "apply"),
            ("run_spark", "apply"),
            ("detect_changes", "publish"),
            ("apply", "publish"),
        }
        assert dag.task_dict["apply"].is_mapped
        assert dag.task_dict["apply"].trigger_rule == "all_done"
        assert dag.task_dict["publish"].trigger_rule == "none_failed"
        assert dag.task_dict["apply"].max_active_tis_per_dagrun == 8
        assert DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).dag_id == dag.dag_id
    assert "tables" in dags["sales"].params
    assert dags["sales"].params["mode"] == "incremental"
    assert dags["sales__backfill"].params["mode"] == "backfill"
    assert dags["sales"].task_dict["detect_changes"].inlets == [
        delta_asset("/lake/customers_log"),
        delta_asset("/lake/orders"),
    ]
    assert dags["sales"].task_dict["apply"].outlets == [
        pipeline_alias("customers"),
        pipeline_alias("orders"),
        *map(delta_asset, ("/lake/customers_log", "/lake/customers", "/lake/orders_current")),
    ]


def test_large_tables_have_a_chain_of_their_own() -> None:
    large = {**ORDERS, "own_application": True}
    dags = build_dags(
        sales(settings={"backfill": False, "max_parallel_tables": 3}, small=LOGGED, large=large)
    )
    assert list(dags) == ["sales"]
    assert ("run_spark", "apply_large") not in edges(dags["sales"])
    chain = {("apply_large", "publish")}
    chain |= {("detect_changes_large", after) for after in ("apply_large", "publish")}
    assert chain < edges(dags["sales"])
    look = dags["sales"].task_dict["detect_changes_large"]
    assert [table["pipeline"] for table in look.tables] == ["large"]
    assert look.pipelines == ["large", "small"]
    assert dags["sales"].task_dict["run_spark"].parallel == 3
    alone = build_dags(sales(settings={"backfill": False}, large=large))["sales"]
    assert edges(alone) == chain
    assert alone.task_dict["publish"].detections == ["detect_changes_large"]


def test_what_is_said_of_dag_tasks_and_application() -> None:
    settings: dict[str, Any] = {"schedule": "*/15 * * * *", "start_date": "2026-01-01", "catchup": True}
    settings |= {"dag_id": "team_{name}", "tags": ["finance"], "owner": "me", "retries": 2, "queue": "q"}
    settings |= {"retry_delay": "5 minutes", "execution_timeout": 60, "pool": "small", "doc_md": "# Sales"}
    settings |= {"description": "sales", "on_failure_callback": "tests.unit.airflow.test_dags.called"}
    settings |= {"spark_conn_id": "spark_x", "driver_memory": "2g", "conf": {"spark.x": "1"}}
    settings |= {"kafka_options": {"security.protocol": "SSL"}}
    dags = build_dags(sales(settings=settings), default_args={"owner": "nobody", "retries": 0}, tags=["ours"])
    dag = dags["team_sales"]
    assert set(dags) == {"team_sales", "team_sales__backfill"}
    assert isinstance(dag.timetable, CronDataIntervalTimetable)
    assert dags["team_sales__backfill"].schedule is None
    assert (dag.start_date, dag.catchup) == (datetime(2026, 1, 1, tzinfo=UTC), True)
    assert dag.tags == {"delta-cdc", "ours", "finance"}
    assert dag.description == "sales"
    assert dag.doc_md is not None
    assert dag.doc_md.startswith("# Sales\n\nMade from `a mapping`, group `sales`: 2 tables.")
    (fingerprint,) = re.findall(r"Configuration `([0-9a-f]{64})`", dag.doc_md)
    assert not any(fingerprint[:6] in tag for tag in dag.tags)
    for task in dag.tasks:
        assert (task.owner, task.retries, task.pool, task.queue) == ("me", 2, "small", "q")
        assert (task.retry_delay, task.execution_timeout) == (timedelta(minutes=5), timedelta(seconds=60))
        assert task.retry_policy is DELTA_CDC_RETRY_POLICY
        assert [made.__name__ for made in task.on_failure_callback] == ["called"]
    bundle = dag.task_dict["run_spark"]
    assert (bundle.spark_conn_id, bundle.kafka_options) == ("spark_x", {"security.protocol": "SSL"})
    assert bundle.conf == {"spark.x": "1"}
    assert dag.task_dict["apply"].partial_kwargs["driver_memory"] == "2g"


def test_discover_changes_no_dag() -> None:
    """Neither the parsing of the file nor a run looks for tables: the place does not exist."""
    discover = {"tables": "s3://none/bronze", "target": "/lake/{name}", "add": True}
    plain, more = (build_dags(sales(settings=one)) for one in ({}, {"discover": discover}))
    for dag_id, dag in plain.items():
        # The text of a DAG has the hash of its configuration.
        one, other = ({**DagSerialization.serialize_dag(d), "doc_md": ""} for d in (dag, more[dag_id]))
        assert one == other


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"on_failure_callback": "tests.nowhere.x"}, r"no callback tests\.nowhere\.x"),
        ({"schedule": "on_change"}, "on_change"),
        ({"catchup": True}, "catchup, but no start_date"),
    ],
)
def test_settings_that_are_refused(settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfiguration, match=reason):
        build_dags(sales(settings=settings))


def test_a_group_that_cannot_be_built_stops_no_other_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by an import error: Airflow then stops all DAGs of the file."""
    wrong = {"on_failure_callback": "tests.nowhere.x", "schedule": "@hourly", "doc_md": "Mine."}
    file = sales(settings=wrong, orders=ORDERS)
    file["groups"]["billing"] = {}
    file["pipelines"]["bills"] = {**ORDERS, "target": "/lake/bills", "group": "billing"}
    reason = r"There is no callback tests\.nowhere\.x"
    with pytest.warns(UserWarning, match=rf"The DAG sales(__backfill)? cannot be built: .*{reason}"):
        dags = build_dags(file, default_args={"owner": "me"})
    assert set(dags) == {"billing", "billing__backfill", "sales", "sales__backfill"}
    assert "detect_changes" in dags["billing"].task_dict
    for dag_id in ("sales", "sales__backfill"):
        dag = dags[dag_id]
        assert (dag.schedule, dag.fileloc) == (None, __file__)
        assert re.search(rf"cannot be built.*{reason}.*Remedy.*Configuration `", dag.doc_md, re.DOTALL)
        (task,) = dag.tasks
        assert task.owner == "me"
        with pytest.raises(InvalidConfiguration, match=rf"The DAG {dag_id} cannot be built: .*{reason}"):
            task.execute({})
        assert DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).dag_id == dag_id
    # A task whose DAG is not the one that the processor saw ends with the error itself.
    monkeypatch.setattr(
        "airflow_delta_cdc.dags.get_parsing_context", lambda: AirflowParsingContext("sales", "detect_changes")
    )
    with pytest.raises(InvalidConfiguration, match=reason):
        build_dags(file)


def test_airflow_gets_no_dag_that_lacks_some_of_its_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    registered: set[Any] = set()
    monkeypatch.setattr(DagContext, "autoregistered_dags", registered)
    monkeypatch.setattr(DagContext, "current_autoregister_module_name", __name__)
    monkeypatch.setattr("airflow_delta_cdc.dags.PublishOperator", None)
    with pytest.raises(InvalidConfiguration, match="Airflow refuses the DAG sales"):
        build_dags(sales())
    assert not registered
    monkeypatch.undo()
    monkeypatch.setattr(DagContext, "autoregistered_dags", registered)
    monkeypatch.setattr(DagContext, "current_autoregister_module_name", __name__)
    build_dags(sales())
    assert {dag.dag_id for dag, _ in registered} == {"sales", "sales__backfill"}


def test_what_wakes_a_group() -> None:
    changed = build_dags(sales(settings={"schedule": "on_change"}, a=ORDERS, b={**ORDERS, "target": "/b"}))
    assert changed["sales"].timetable.asset_condition == AssetAny(watched_asset("/lake/orders"))
    after = build_dags(sales(settings={"schedule": {"assets": ["/lake/x", "/lake/y"]}}))
    condition = after["sales"].timetable.asset_condition
    assert condition == AssetAny(delta_asset("/lake/x"), delta_asset("/lake/y"))
    for dag in (changed["sales"], after["sales"]):
        # No event starts the run that renews an idle seal, or applies what a limit left.
        timetable = DagSerialization.deserialize_dag(DagSerialization.serialize_dag(dag)).timetable
        restriction = TimeRestriction(earliest=dag.start_date, latest=None, catchup=False)
        due = timetable.next_dagrun_info(last_automated_data_interval=None, restriction=restriction)
        assert abs(due.run_after - datetime.now(UTC)) <= timedelta(days=1)
        assert len(timetable.asset_condition.objects) in (1, 2)
    assert build_dags(sales())["sales"].schedule is None
    assert build_dags(sales(), schedule="@daily")["sales"].timetable.expression == "0 0 * * *"
    assert group_asset("sales é").uri == "x-delta-cdc-group://sales%20%C3%A9"


def test_the_groups_of_two_files_have_assets_of_their_own() -> None:
    """Such as those of two stages in one Airflow; the second DAG of a group shares the asset of the first."""
    assets = {}
    for stage in ("dev", "prod"):
        dags = build_dags(sales(settings={"dag_id": f"{stage}_{{name}}", "why": True}))
        publishing = [dags[f"{stage}_sales{suffix}"].task_dict["publish"] for suffix in ("", "__backfill")]
        assets[stage], other = (one.producing for one in publishing)
        assert other == assets[stage] == [group_asset(f"{stage}_sales")]
        assert publishing[0].outlets == [group_alias(f"{stage}_sales"), group_asset(f"{stage}_sales")]
        detection = dags[f"{stage}_sales"].task_dict["detect_changes"]
        explaining = dags[f"{stage}_sales__why"].task_dict["why"]
        assert detection.group == publishing[0].group == explaining.group == f"{stage}_sales"
    assert assets["dev"] != assets["prod"]


def test_auto_cdc_code_makes_a_dag(tmp_path: Path) -> None:
    """The code is read, not run; the caller gives the places of its tables, and settings of the DAG."""
    file = tmp_path / "users.py"
    file.write_text("raise SystemExit\nimport dlt\ndlt.apply_changes('users', 'feed', ['id'], 'seq')\n")
    places = {"sources": {"feed": "/lake/feed"}, "targets": {"users": "/lake/users"}}
    dags = build_dags(file, **places, defaults={"schedule": "*/15 * * * *"})
    assert list(dags) == ["users", "users__backfill"]
    assert isinstance(dags["users"].timetable, CronDataIntervalTimetable)
    (table,) = dags["users"].task_dict["detect_changes"].tables
    assert (table["source"], table["target"], table["source_kind"]) == (
        "/lake/feed",
        "/lake/users",
        "change_log",
    )
    with pytest.raises(InvalidConfiguration, match="sources given for a mapping, which is no AUTO CDC code"):
        build_dags(sales(), sources={"feed": "/lake/feed"})


def test_a_relative_path_counts_from_the_dag_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The absolute path of the file was a part of the DAG, so each new copy made a new version."""
    monkeypatch.chdir(tmp_path)
    hashes = set()
    for checkout in ("a", "long/b"):
        folder = tmp_path / checkout / "dags"
        folder.mkdir(parents=True)
        for place in (folder, folder.parent):
            (place / "sales.yaml").write_text("pipelines:\n  orders: {source: /a, target: /b, keys: [id]}\n")
        file = folder / "file.py"
        file.write_text(
            "from pathlib import Path\nfrom airflow_delta_cdc.dags import build_dags\n"
            "dags = build_dags('sales.yaml')\n"
            "above = build_dags(Path(__file__).parent.parent / 'sales.yaml')\n"
        )
        found = runpy.run_path(str(file))
        dags, above = found["dags"], found["above"]["orders"]
        assert set(dags) == {"orders", "orders__backfill"}, "a pipeline without a group is one"
        assert "tables" not in dags["orders"].params, "there is no choice"
        assert dags["orders"].fileloc == str(file), "where its code is, for Airflow"
        assert "Made from `sales.yaml`" in dags["orders"].doc_md
        assert "Made from `../sales.yaml`" in above.doc_md
        hashes.add(SerializedDagModel.hash(DagSerialization.to_dict(above)))
        assert str(tmp_path) not in str({**DagSerialization.serialize_dag(above), "fileloc": ""})
    assert len(hashes) == 1
    monkeypatch.setenv("_AIRFLOW_PARSING_CONTEXT_DAG_ID", "orders__backfill")
    assert set(runpy.run_path(str(file))["dags"]) == {"orders__backfill"}


def test_the_same_every_time() -> None:
    """Whatever changes between two parses is a new version of the DAG."""
    first, second = (
        {name: DagSerialization.serialize_dag(dag) for name, dag in build_dags(sales()).items()} for _ in "ab"
    )
    assert first == second
    # Each task adds the arguments of its own table, so the edit of one refuses no work of others.
    other = build_dags(sales(orders={**ORDERS, "keys": ["key"]}))["sales"]
    assert work_of(other) == work_of(build_dags(sales())["sales"])
    # What changes no work refuses none that was found before it.
    told = build_dags(sales(settings={"doc_md": "new", "schedule": "@daily", "retries": 3}))["sales"]
    assert work_of(told) == work_of(build_dags(sales())["sales"])
    assert told.task_dict["apply"].partial_kwargs["detection"] == "detect_changes"
    connected = build_dags(sales(settings={"delta_conn_id": "other"}))["sales"]
    assert work_of(connected) != work_of(told)


@pytest.mark.parametrize(
    ("given", "default_args", "zone"),
    [
        ({"start_date": pendulum.datetime(2026, 1, 1, tz="Europe/Berlin")}, {}, "Europe/Berlin"),
        ({"start_date": datetime(2026, 1, 1, tzinfo=UTC)}, {}, "UTC"),
        ({}, {"start_date": pendulum.datetime(2026, 1, 1, tz="Asia/Tokyo")}, "Asia/Tokyo"),
        ({}, {}, "UTC"),
    ],
)
def test_a_cron_is_in_the_zone_of_the_start(
    given: dict[str, Any], default_args: dict[str, Any], zone: str
) -> None:
    """It was in UTC, without a word."""
    made = build_dags(sales(settings={"schedule": "0 3 * * *"}), default_args=default_args, **given)["sales"]
    plain = DAG("plain", schedule="0 3 * * *", default_args=default_args, **given)
    assert made.timetable.timezone == plain.timetable.timezone == pendulum.timezone(zone)
    serialized = DagSerialization.serialize_dag(made)["timetable"]["__var"]
    assert serialized == {"expression": "0 3 * * *", "timezone": zone}
    settings = {"schedule": "@daily", "start_date": f"2026-01-01T00:00:00 {zone}"}
    assert build_dags(sales(settings=settings))["sales"].timetable.timezone.name == zone, "of a file"


def test_a_group_needs_its_xcoms() -> None:
    made = build_dags(sales(), default_args={"do_xcom_push": False})["sales"]
    for task in made.tasks:
        given = task.partial_kwargs["do_xcom_push"] if task.is_mapped else task.do_xcom_push
        assert given is True, task.task_id


# -- the DAG that explains rows ---------------------------------------------------------------------
def test_a_group_explains_its_rows_on_request() -> None:
    settings = {
        "why": True,
        "schedule": "@hourly",
        "spark_conn_id": "spark_x",
        "kafka_conn_id": "kafka_x",
        "on_failure_callback": "tests.unit.airflow.test_dags.called",
        "retries": 3,
    }
    assert set(build_dags(sales())) == {"sales", "sales__backfill"}, "only on request"
    dags = build_dags(
        sales(
            settings=settings,
            a=ORDERS,
            b={**ORDERS, "target": "/b"},
            c={name: value for name, value in LOGGED.items() if name != "target"},
        )
    )
    assert set(dags) == {"sales", "sales__backfill", "sales__why"}
    made = dags["sales__why"]
    assert (made.schedule, made.is_paused_upon_creation, made.task_ids) == (None, False, ["why"])
    (task,) = made.tasks
    assert isinstance(task, ExplainRowOperator)
    assert (task.spark_conn_id, task.retries, task.do_xcom_push) == ("spark_x", 3, True)
    assert not task.on_failure_callback, "a wrong question is no incident"
    assert dags["sales"].task_dict["publish"].on_failure_callback
    # A change log without a target has no rows to explain.
    assert [table["pipeline"] for table in task.tables] == ["a", "b"]
    assert made.params.get_param("pipeline").schema["enum"] == ["a", "b"]
    assert task.pipeline == "{{ params.pipeline }}"
    (alone,) = build_dags(sales(settings={"why": True}, orders=ORDERS))["sales__why"].tasks
    assert (alone.pipeline, "pipeline" in alone.dag.params) == ("orders", False)
    with pytest.raises(InvalidConfiguration, match="would both be the DAG sales__why"):
        build_dags({"groups": {"sales": {"why": True}, "sales__why": {}}, **_two("sales", "sales__why")})


def _two(*groups: str) -> dict[str, Any]:
    tables = {f"p{at}": {**ORDERS, "group": group, "target": f"/{at}"} for at, group in enumerate(groups)}
    return {"pipelines": tables}


def test_only_the_templates_of_the_chosen_table_are_rendered() -> None:
    broken = {**ORDERS, "target": "{{ nothing.here }}"}
    made = build_dags(sales(settings={"why": True}, a={**ORDERS, "target": "/{{ lake }}/a"}, b=broken))
    (task,) = made["sales__why"].tasks

    def table(name: str) -> Any:
        params = {"pipeline": name, "key": "id=1", "columns": None, "at": None}
        context: Any = {"lake": "silver", "params": params}
        task.pipeline = "{{ params.pipeline }}"
        task.render_template_fields(context)
        return task.arguments_of_table(context)

    assert (table("a")["target"], table("a")["pipeline"]) == ("/silver/a", "a")
    with pytest.raises(UndefinedError, match="nothing"):
        table("b")
    with pytest.raises(InvalidConfiguration, match="The group sales has no pipeline 'c'"):
        table("c")
    with pytest.raises(InvalidConfiguration, match="The group sales has 2 pipelines"):
        table("")
