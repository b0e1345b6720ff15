"""The form of a run: what it may not say, and what it means."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, Param
from airflow.sdk.exceptions import AirflowSkipException, ParamValidationError
from jinja2.sandbox import SandboxedEnvironment

from airflow_delta_cdc import page
from airflow_delta_cdc.form import (
    MODES,
    Run,
    asked,
    checked,
    names,
    range_arguments,
    range_params,
    run_arguments,
    run_params,
    skip_waiting,
    why_arguments,
    why_params,
)
from airflow_delta_cdc.operators import DeltaApplyChangesOperator, DeltaWhyOperator
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.option import flat
from delta_cdc.core.options import APPLY
from delta_cdc.run.table_arguments import requests

_TABLES = ("customers", "orders", "orders_history")
_JUNE, _JULY = "2026-06-01T00:00:00+00:00", "2026-07-01T00:00:00+00:00"


def values(params: dict[str, Param], **conf: Any) -> dict[str, Any]:
    """Return what a task sees of a form, as Airflow validates it."""
    found = DAG("form", schedule=None, params=params).params
    found.update(conf)
    return dict(found.validate())


# -- what is asked ------------------------------------------------------------------------------
def test_every_field_explains_itself() -> None:
    for params in (run_params(tables=_TABLES), run_params(), range_params()):
        for name, param in params.items():
            assert param.schema["title"], name
            assert len(param.schema["description_md"]) > 20, name
            assert param.description is None, "it would hide description_md"
            assert name == "mode" or "null" in param.schema["type"], "Airflow would mark it as required"
    assert "tables" not in run_params()
    assert run_params(tables=_TABLES)["tables"].schema["examples"] == list(_TABLES)
    labels = run_params()["mode"].schema["values_display"]
    assert set(labels) == set(MODES)
    assert not any(label.startswith("Backfill") for label in labels.values()), "a tile of Airflow's dialog"
    # Airflow refuses values of another type.
    wrong = {"mode": "reset", "starting_version": "3", "ending_version": -1, "starting_timestamp": 7}
    wrong |= {"versions_per_commit": 0, "repair_quarantined": "yes", "repair_keys": ["id"], "tables": [1]}
    for name, value in wrong.items():
        with pytest.raises(ParamValidationError, match=name):
            values(run_params(tables=_TABLES), **{name: value})


def test_the_page_names_modes_and_fields_as_the_form() -> None:
    named = names()
    assert named["modes"]["backfill"] == "Range"
    assert named["fields"]["versions_per_commit"] == {
        "label": "Versions per commit",
        "type": "integer",
        "minimum": 1,
    }
    assert named["fields"]["repair_quarantined"] == {"label": "Keys in quarantine", "type": "boolean"}
    script = Path(page.__file__).with_name("page.js").read_text(encoding="utf-8")
    actions = script.partition("const ACTIONS = {\n")[2].partition("\n};")[0]
    assert set(re.findall(r"^  (\w+): {$", actions, re.M)) == set(MODES)
    fields = {
        name for found in re.findall(r"fields: \[(.*)\]", actions) for name in re.findall(r"\w+", found)
    }
    assert len(fields) == 6
    assert fields <= set(named["fields"])


@pytest.mark.parametrize("tables", [(), _TABLES])
def test_the_form_as_it_is_means_everything_new(tables: tuple[str, ...]) -> None:
    assert asked({"params": values(run_params(tables=tables))}, tables=tables) == Run(tables=tables)
    assert not Run().explicit
    # A run that was woken by an asset, of a DAG without the form.
    assert asked({"params": {}}, tables=tables) == Run(tables=tables)
    assert values(run_params(mode="backfill"))["mode"] == "backfill"
    with pytest.raises(InvalidConfiguration, match="mode is 'reset'"):
        run_params(mode="reset")
    assert set(range_arguments()) == set(range_params())
    assert all(value is None for value in values(range_params()).values())


# -- what it means ------------------------------------------------------------------------------
#: What the form has, and what it means: its mode, and its tables. The rest is as it is there.
MEANT: list[tuple[dict[str, Any], str, tuple[str, ...]]] = [
    ({"tables": ["orders", "customers"]}, "incremental", ("customers", "orders")),
    ({"tables": []}, "incremental", _TABLES),
    ({"dry_run": True}, "incremental", _TABLES),
    ({"dry_run": True, "tables": ["orders"], "ending_version": 4}, "backfill", ("orders",)),
    ({"dry_run": True, "mode": "repair", "repair_quarantined": True}, "repair", _TABLES),
    ({"dry_run": True, "mode": "reload"}, "reload", _TABLES),
    (
        {"mode": "backfill", "tables": ["orders"], "ending_version": 300, "versions_per_commit": 100},
        "backfill",
        ("orders",),
    ),
    ({"mode": "backfill"}, "backfill", _TABLES),
    ({"mode": "backfill", "versions_per_commit": 9}, "backfill", _TABLES),
    ({"mode": "backfill", "ending_timestamp": _JULY}, "backfill", _TABLES),
    ({"mode": "repair", "tables": ["orders"], "starting_version": 0}, "repair", ("orders",)),
    ({"mode": "repair", "tables": ["orders"], "repair_keys": "true"}, "repair", ("orders",)),
    # A range without a chosen mode.
    ({"tables": ["orders"], "ending_version": 0}, "backfill", ("orders",)),
    ({"starting_timestamp": _JUNE}, "backfill", _TABLES),
    ({"versions_per_commit": 9}, "backfill", _TABLES),
    ({"mode": "repair", "repair_quarantined": True}, "repair", _TABLES),
    ({"mode": "reload", "ending_timestamp": _JUNE}, "reload", _TABLES),
]


@pytest.mark.parametrize(("conf", "mode", "tables"), MEANT, ids=str)
def test_what_it_means(conf: dict[str, Any], mode: str, tables: tuple[str, ...]) -> None:
    found = asked({"params": values(run_params(tables=_TABLES), **conf)}, tables=_TABLES)
    given = {name: value for name, value in conf.items() if name not in ("mode", "tables")}
    wanted = given if mode == "incremental" else {"mode": mode, **given}
    assert found == Run(mode, tables, wanted)
    assert found.explicit is (mode != "incremental" or "dry_run" in conf)


# -- what contradicts itself --------------------------------------------------------------------
ONE = {"tables": ["orders"]}
#: ``refusals/form.json`` has all pairs of fields; here is each rule once.
CONTRADICTIONS: list[tuple[dict[str, Any], str]] = [
    ({"ending_version": 3}, "3 tables are chosen, and ending_version fits only one"),
    (
        {**ONE, "mode": "backfill", "ending_version": 1, "ending_timestamp": _JUNE},
        "ending_version 1 and ending_timestamp .* are both",
    ),
    (
        {**ONE, "mode": "repair", "starting_version": 4, "ending_version": 3},
        "3 lies before starting_version 4",
    ),
    (
        {"mode": "backfill", "starting_timestamp": _JULY, "ending_timestamp": _JUNE},
        "ending_timestamp .* lies before starting_timestamp",
    ),
    (
        {"mode": "backfill", "starting_timestamp": "2026-06-01T00:00:00", "ending_timestamp": _JUNE},
        "starting_timestamp is '2026-06-01T00:00:00'.* with an offset",
    ),
    ({"mode": "repair"}, "mode is 'repair', and nothing selects the keys"),
    ({**ONE, "mode": "repair", "ending_version": 3}, "the range has no start"),
    (
        {**ONE, "mode": "repair", "starting_version": 3, "ending_version": 4, "repair_keys": "true"},
        "repair_keys and a range",
    ),
    (
        {**ONE, "mode": "repair", "repair_keys": "true", "repair_quarantined": True},
        "repair_keys and repair_quarantined are given",
    ),
    ({**ONE, "mode": "reload", "starting_version": 3}, "starting_version and mode 'reload' are given"),
    ({"repair_quarantined": True}, "repair_quarantined and mode 'incremental' are given"),
    ({"mode": "reload", "versions_per_commit": 5}, "versions_per_commit and mode 'reload' are given"),
    ({"mode": "repair", "repair_keys": "true"}, "3 tables are chosen, and repair_keys fits only one"),
    ({"tables": ["order"]}, "names 'order' under tables.*did you mean 'orders'"),
    (
        {**ONE, "starting_version": 4, "ending_version": 3, "repair_keys": "true"},
        "3 lies before starting_version 4; repair_keys and mode .*exchange.* choose mode repair",
    ),
]


@pytest.mark.parametrize(("conf", "said"), CONTRADICTIONS, ids=str)
def test_contradictions(conf: dict[str, Any], said: str) -> None:
    given = values(run_params(tables=_TABLES), **conf)
    with pytest.raises(InvalidConfiguration, match=said) as error:
        asked({"params": given}, tables=_TABLES)
    assert "Remedy:" in str(error.value)


def test_a_mode_or_a_table_that_airflow_could_not_check() -> None:
    with pytest.raises(InvalidConfiguration, match=r"names 'backfil' under mode.*did you mean 'backfill'"):
        asked({"mode": "backfil"})
    with pytest.raises(InvalidConfiguration, match="there is no choice"):
        asked({"tables": ["orders"]})


@pytest.mark.parametrize(
    ("conf", "said"),
    [
        ({"mode": "backfill", "ending_versoin": 400}, "'ending_versoin'.*did you mean 'ending_version'"),
        ({"mod": "repair"}, "'mod', which is not a field.*did you mean 'mode'"),
        ({"tabels": ["orders"]}, "did you mean 'tables'"),
        ({"until": 400}, "'until', which is not a field.*Remedy: remove it"),
    ],
    ids=str,
)
def test_what_reaches_no_field_is_refused(conf: dict[str, Any], said: str) -> None:
    """Airflow lets any key through, and puts it beside the Params."""
    dag = DAG("form", schedule=None, params={**run_params(tables=_TABLES), "ticket": Param("")})
    task = SimpleNamespace(params={})
    run = SimpleNamespace(run_type="manual", conf=conf)
    context = {"dag": dag, "task": task, "dag_run": run, "params": {**dag.params.dump(), **conf}}
    with pytest.raises(InvalidConfiguration, match=said):
        asked(context, tables=_TABLES)
    run.conf = {"ticket": "T-1"}
    assert asked({**context, "params": {**dag.params.dump(), **run.conf}}, tables=_TABLES) == Run(
        tables=_TABLES
    )
    # [core] dag_run_conf_overrides_params is off.
    run.conf = {"dry_run": True}
    with pytest.raises(InvalidConfiguration, match=r"has dry_run True.*get False"):
        asked({**context, "params": dag.params.dump()}, tables=_TABLES)


# -- a backfill by dates ------------------------------------------------------------------------
def by_date(**changes: Any) -> dict[str, Any]:
    interval = {
        "data_interval_start": datetime(2026, 6, 1, tzinfo=UTC),
        "data_interval_end": datetime(2026, 7, 1, tzinfo=UTC),
    }
    return {"params": {}, "dag_run": SimpleNamespace(run_type="backfill"), **interval, **changes}


def test_a_run_of_a_backfill_by_dates_has_its_interval() -> None:
    run = asked(by_date(params=values(run_params(tables=_TABLES), tables=["orders"])), tables=_TABLES)
    wanted = {"mode": "interval", "starting_timestamp": _JUNE, "ending_timestamp": _JULY}
    assert run == Run("interval", ("orders",), wanted, (_JUNE, _JULY))
    assert run.explicit
    assert asked(by_date(params=values(run_params(mode="backfill")))).mode == "interval"
    assert asked(by_date(dag_run=SimpleNamespace(run_type="scheduled"))) == Run()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"params": {"mode": "reload"}}, "its form has reload"),
        ({"params": {"mode": "repair", "repair_quarantined": True}}, "repair and repair_quarantined"),
        ({"data_interval_end": datetime(2026, 6, 1, tzinfo=UTC)}, "is empty.*CronDataIntervalTimetable"),
        ({"data_interval_start": None}, "is empty"),
    ],
)
def test_what_a_backfill_by_dates_does_not_take(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        asked(by_date(**changes))


# -- one operator -------------------------------------------------------------------------------
def rendered(context: dict[str, Any]) -> dict[str, str]:
    environment = SandboxedEnvironment()
    texts = flat(APPLY, {name: given for name, given in run_arguments().items() if name != "pre_execute"})
    return {name: environment.from_string(text).render(context) for name, text in texts.items()}


def read(context: dict[str, Any]) -> dict[str, Any]:
    """Return what the operator makes of its rendered arguments, without what was not given."""
    texts = rendered(context)
    _, request = requests({"source": "/s", "target": "/t", **texts})
    assert request is not None
    found = {name: getattr(request, name) for name in texts}
    return {name: value for name, value in found.items() if value or type(value) is int}


@pytest.mark.parametrize(
    "conf", [*(conf for conf, *_ in MEANT if "tables" not in conf), {"ending_version": 0}], ids=str
)
def test_one_operator_takes_the_form_as_it_is(conf: dict[str, Any]) -> None:
    params = values(run_params(), **conf)
    wanted = asked({"params": params}).arguments
    manual = {"params": params, "dag_run": SimpleNamespace(run_type="manual")}
    assert read(manual) == {"mode": "incremental", **wanted}


def test_one_operator_in_a_backfill_by_dates() -> None:
    context = by_date(params=values(run_params()))
    assert read(context) == asked(context).arguments


def with_form(**more: Any) -> DeltaApplyChangesOperator:
    with DAG("one", schedule=None, params=run_params()):
        return DeltaApplyChangesOperator(
            task_id="apply", pipeline="p", source="/s", target="/t", keys=["id"], **run_arguments(**more)
        )


def test_one_operator_checks_the_form_first() -> None:
    task = with_form()
    assert set(run_arguments()) - {"pre_execute"} <= set(task.template_fields)
    hook = task._pre_execute_hook
    assert hook is not None
    hook({"params": values(run_params())})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidConfiguration, match="selects the keys"):
        hook({"params": values(run_params(), mode="repair")})  # type: ignore[typeddict-item]


@pytest.mark.parametrize("hook", [checked, skip_waiting])
def test_what_a_hook_refuses_is_not_folded_away(hook: Any, caplog: Any) -> None:
    """Airflow runs hooks inside the group "Pre Execute"."""
    with caplog.at_level("INFO"), pytest.raises(InvalidConfiguration):
        hook({"params": values(run_params(), mode="repair")})
    assert caplog.messages == ["::endgroup::"]


@pytest.mark.parametrize(
    ("conf", "kept"),
    [({}, True), ({"mode": "backfill"}, True), ({"dry_run": True}, True), ({"mode": "reload"}, False)],
    ids=str,
)
def test_limits_of_size_are_for_what_goes_on(conf: dict[str, Any], kept: bool) -> None:
    """Nobody could take them away in the form, and what is done in one commit is refused with them."""
    task = with_form(limits={"max_versions": 100, "bytes_per_commit": "{{ 2 ** 30 }}"})
    hook = task._pre_execute_hook
    assert hook is not None
    hook({"params": values(run_params(), **conf), "task": task})  # type: ignore[typeddict-item]
    assert isinstance(task.limits, dict)
    assert ["max_versions" in task.limits, "bytes_per_commit" in task.limits] == [kept, kept]


def test_a_sensor_waits_in_scheduled_runs_only() -> None:
    skip_waiting({"params": values(run_params())})  # type: ignore[typeddict-item]
    with pytest.raises(AirflowSkipException, match=r"\(mode incremental, dry run\)"):
        skip_waiting({"params": values(run_params(), dry_run=True)})  # type: ignore[typeddict-item]
    with pytest.raises(InvalidConfiguration, match="selects the keys"):
        skip_waiting({"params": values(run_params(), mode="repair")})  # type: ignore[typeddict-item]


# -- the question where a row comes from --------------------------------------------------------
def test_the_fields_of_the_question_explain_themselves() -> None:
    params = why_params(pipelines=_TABLES)
    for name, param in params.items():
        assert param.schema["title"], name
        assert len(param.schema["description_md"]) > 20, name
    # Airflow marks the others as required, and refuses a run without them.
    assert {name for name, param in params.items() if "null" in param.schema["type"]} == {"columns", "at"}
    assert "pipeline" not in why_params()
    for wrong in ({}, {"key": ""}, {"key": 17}, {"key": "id=1", "pipeline": "other"}):
        with pytest.raises(ParamValidationError):
            values(params, **wrong)


def test_the_values_of_the_question_reach_the_task() -> None:
    def task_of(**conf: Any) -> tuple[Any, dict[str, Any]]:
        with DAG("why", schedule=None, params=why_params()) as dag:
            task = DeltaWhyOperator(task_id="why", pipeline="p", target="/t", **why_arguments())
        context = {
            "dag": dag,
            "task": task,
            "params": values(why_params(), key="id=7", **conf),
            "dag_run": SimpleNamespace(conf={"key": "id=7", **conf}),
        }
        task.render_template_fields(context)
        return task, context

    task, context = task_of(columns=["v", "w, x"], at="3")
    task.pre_execute(context)
    kinds = DeltaWhyOperator.kinds
    read = {name: kinds[name].read(name, getattr(task, name)) for name in ("key", "columns", "at")}
    assert read == {"key": {"id": "7"}, "columns": ("v", "w, x"), "at": "3"}
    task, context = task_of()
    assert [kinds[name].read(name, getattr(task, name)) for name in ("columns", "at")] == [None, None]
    # Airflow accepts any name in the configuration of a run.
    task, context = task_of(att="3")
    with pytest.raises(InvalidConfiguration, match=r"'att'.*did you mean 'at'"):
        task._pre_execute_hook(context)
