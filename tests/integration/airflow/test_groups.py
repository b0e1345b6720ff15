"""Groups made from a configuration, in a real Airflow with a real Spark."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_delta_cdc.groups.xcoms import Item
from tests.integration.airflow.test_ingest import announced, drop, succeeded, values
from tests.support.filled import fill

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_FILE = """
from airflow_delta_cdc.dags import build_dags

dags = build_dags({configuration!r}, default_args={{"retries": 0}})
"""


def group(airflow: Airflow, name: str, configuration: Mapping[str, Any]) -> Path:
    return airflow.dag(name, _FILE.format(configuration=configuration))


def append(table: Path, *rows: tuple[int, str], feed: bool = True, mode: str = "append") -> None:
    keys, names = zip(*rows, strict=True)
    data = pa.table({"id": pa.array(keys, pa.int64()), "name": list(names)})
    properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
    write_deltalake(str(table), data, mode=mode, configuration=properties)  # type: ignore[call-overload]


def mixed(folder: Path) -> dict[str, Any]:
    """Return a group with a table of every kind."""

    def at(name: str) -> str:
        return str(folder / name)

    keyed = {"group": "mixed", "keys": ["id"]}
    return {
        "groups": {"mixed": {"max_parallel_tables": 3, "backfill": False}},
        "pipelines": {
            "current": {**keyed, "source": at("orders"), "target": at("current")},
            "history": {**keyed, "source": at("orders"), "target": at("history"), "stored_as_scd_type": 2},
            "events": {
                **keyed,
                "source": at("landing"),
                "log": at("events_log"),
                "target": at("events"),
                "schema": "id INT, name STRING, n INT",
                "adapter_options": {"operation_column": "op", "sequence_by": "n"},
            },
            "appended": {
                "group": "mixed",
                "source": at("measured"),
                "target": at("appended"),
                "insert_only": True,
                "where": "name <> '{{ '{{' }} run_id {{ '}}' }}'",
            },
            "copies": {
                **keyed,
                "source": at("copies_of"),
                "target": at("copies"),
                "source_kind": "snapshot",
                "stored_as_scd_type": 2,
            },
        },
    }


@pytest.mark.slow
def test_a_table_of_every_kind(airflow: Airflow, tmp_path: Path) -> None:
    append(tmp_path / "orders", (1, "a"), (2, "b"))
    append(tmp_path / "measured", (1, "m"), (2, "{{ run_id }}"), feed=False)
    append(tmp_path / "copies_of", (1, "x"), (2, "y"), feed=False)
    drop(tmp_path / "landing", "a.json", {"op": "I", "id": 1, "name": "e", "n": 1})
    file = group(airflow, "mixed", mixed(tmp_path))
    done = succeeded(airflow.run(file, dag="mixed"))
    assert done.submits == 1, "one for all"
    assert values(tmp_path / "current", "id", "name") == [(1, "a"), (2, "b")]
    assert values(tmp_path / "history", "id", "name", "__END_AT") == [(1, "a", None), (2, "b", None)]
    assert values(tmp_path / "copies", "id", "name", "__END_AT") == [(1, "x", None), (2, "y", None)]
    assert values(tmp_path / "events", "id", "name", "n") == [(1, "e", 1)]
    # Rendered once in each task: what came out of the template is a text like any other.
    assert values(tmp_path / "appended", "id") == [(1,)]
    of_items = {name for one in done.xcom("detect_changes") for name in one}
    assert of_items == {one.name for one in fields(Item)}, "and none of them is an argument"

    kept = ["appended", "copies", "current", "events", "history"]
    applies = [f"apply[{name}]" for name in kept]
    for name in applies:
        assert done.xcom(name)["applied"]
    assert set(done.tasks) == {"detect_changes", "run_spark", "publish", *applies}
    assert {name: one["status"] for name, one in done.xcom("run_spark").items()} == dict.fromkeys(
        kept, "applied"
    )
    cut = done.xcom("publish")
    assert {name: one["target_version"] for name, one in cut.items()} == {
        name: DeltaTable(str(tmp_path / name)).version() for name in kept
    }
    targets = {(tmp_path / name).as_uri() for name in (*kept, "events_log")}
    assert announced(done) == {*targets, "x-delta-cdc-group://mixed"}
    (event,) = (one for one in done.events if one["task"] == "publish")
    assert event["extra"]["tables"] == cut

    idle = succeeded(airflow.run(file, dag="mixed", forbid_processes=True))
    assert {name: one["state"] for name, one in idle.tasks.items()} == {
        "detect_changes": "success",
        "run_spark": "success",
        "apply": "skipped",
        "publish": "success",
    }
    assert idle.xcom("publish") == cut
    assert idle.events == []


@pytest.mark.slow
def test_a_table_with_an_application_of_its_own(airflow: Airflow, tmp_path: Path) -> None:
    append(tmp_path / "orders", (1, "a"), (2, "b"))
    keyed = {"group": "sizes", "keys": ["id"], "source": str(tmp_path / "orders")}
    configuration = {
        "groups": {"sizes": {"backfill": False}},
        "pipelines": {
            "small": {**keyed, "target": str(tmp_path / "small")},
            "large": {**keyed, "target": str(tmp_path / "large"), "own_application": True},
        },
    }
    file = group(airflow, "sizes", configuration)
    done = succeeded(airflow.run(file, dag="sizes"))
    assert done.submits == 2, "one for all, and one for the large table"
    for task, name in (("apply[small]", "small"), ("apply_large[large]", "large")):
        assert values(tmp_path / name, "id", "name") == [(1, "a"), (2, "b")]
        found = done.xcom(task)
        assert found["applied"]
    assert set(done.xcom("publish")) == {"small", "large"}
    idle = succeeded(airflow.run(file, dag="sizes", forbid_processes=True))
    assert states(idle) == {
        "detect_changes": "success",
        "run_spark": "success",
        "apply": "skipped",
        "detect_changes_large": "success",
        "apply_large": "skipped",
        "publish": "success",
    }


@pytest.mark.slow
def test_several_sources_of_one_table(airflow: Airflow, tmp_path: Path) -> None:
    """Each source is a table of the DAG; one that fails is red alone, and the others are applied."""

    def source(name: str, *rows: tuple[int, str, int], feed: bool = True) -> str:
        keys, names, sequences = zip(*rows, strict=True)
        data = pa.table({"id": pa.array(keys, pa.int64()), "name": list(names), "n": list(sequences)})
        properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
        write_deltalake(str(tmp_path / name), data, mode="append", configuration=properties)
        return str(tmp_path / name)

    sources: dict[str, Any] = {
        "eu": {"source": source("eu", (1, "a", 1))},
        "old": {"source": source("old", (1, "o", 0), (2, "o", 0)), "once": True},
        "stream": {"source": source("stream", (3, "e", 1), feed=False), "source_kind": "change_log"},
    }
    one = {
        "target": str(tmp_path / "customers"),
        "keys": ["id"],
        "sequence_by": "n",
        "delete_sequence": "n + 1",
        "sources": sources,
    }
    file = group(airflow, "several", {"pipelines": {"customers": one}})
    succeeded(airflow.run(file, dag="customers"))
    assert values(tmp_path / "customers", "id", "name") == [(1, "a"), (2, "o"), (3, "e")]
    succeeded(airflow.run(file, dag="customers", forbid_processes=True))
    # The table that was loaded once may change, or go; another one fails.
    source("old", (4, "ignored", 9))
    source("eu", (1, "b", 2))
    source("stream", (3, "late", 0), (5, "new", 1))
    (tmp_path / "eu").rename(tmp_path / "away")
    done = airflow.run(file, dag="customers")
    assert done.state == "failed"
    assert values(tmp_path / "customers", "id", "name") == [(1, "a"), (2, "o"), (3, "e"), (5, "new")]
    (tmp_path / "away").rename(tmp_path / "eu")
    succeeded(airflow.run(file, dag="customers"))
    assert values(tmp_path / "customers", "id", "name") == [(1, "b"), (2, "o"), (3, "e"), (5, "new")]
    assert values(tmp_path / "customers__log", "id", "n") == [
        *((1, 0), (1, 1), (1, 2), (2, 0), (3, 0), (3, 1), (5, 1)),
    ]


def feeds(folder: Path, number: int, **settings: Any) -> dict[str, Any]:
    """Return a group of feeds, each of which has its target filled."""
    pipelines = {
        f"t{at:02}": {
            "group": "feeds",
            "source": str(folder / f"source{at}"),
            "target": str(folder / f"target{at}"),
            "keys": ["id"],
        }
        for at in range(number)
    }
    for at, (name, arguments) in enumerate(pipelines.items()):
        append(folder / f"source{at}", (1, "a"), (2, "b"))
        fill({"pipeline": name, **{key: arguments[key] for key in ("source", "target", "keys")}})
    return {"groups": {"feeds": {"backfill": False, **settings}}, "pipelines": pipelines}


def states(outcome: Outcome) -> dict[str, str]:
    return {name: one["state"] for name, one in outcome.tasks.items()}


@pytest.mark.slow
def test_three_tables_of_65(airflow: Airflow, tmp_path: Path) -> None:
    """One application; a table that fails does so alone, and is healed alone."""
    configuration = feeds(tmp_path, 65)
    file = group(airflow, "feeds", configuration)
    first = succeeded(airflow.run(file, dag="feeds"))
    assert (first.submits, len(first.events)) == (0, 66), "the targets were filled, and never announced"
    idle = succeeded(airflow.run(file, dag="feeds"))
    assert idle.submits == 0
    assert set(states(idle).items()) >= {("apply", "skipped"), ("publish", "success")}
    assert len(idle.xcom("publish")) == 65

    target = DeltaTable(str(tmp_path / "target30"))
    target.alter.add_constraint({"small": "id < 100"})
    for at in (3, 30, 64):
        append(tmp_path / f"source{at}", (100, "c"))
    done = airflow.run(file, dag="feeds")
    assert done.submits == 1
    assert states(done) == {
        "detect_changes": "success",
        "run_spark": "success",
        "apply[t03]": "success",
        "apply[t30]": "failed",
        "apply[t64]": "success",
        "publish": "upstream_failed",
    }
    assert values(tmp_path / "target3", "id") == [(1,), (2,), (100,)]
    assert done.xcom("run_spark")["t30"]["status"] == "failed"
    assert "TargetConstraintViolated: " in done.log
    assert announced(done) == {(tmp_path / f"target{at}").as_uri() for at in (3, 64)}
    assert all(
        len(json.dumps(value)) <= 48 * 1024
        for outcome in (idle, done)
        for task in outcome.tasks.values()
        for value in task["xcoms"].values()
    )

    failed = (("apply", done.tasks["apply[t30]"]["index"]), ("publish", None))
    edited, of_another = (
        {**configuration["pipelines"], name: {**configuration["pipelines"][name], "where": "id > 0"}}
        for name in ("t30", "t00")
    )
    group(airflow, "feeds", {**configuration, "pipelines": edited})
    refused = airflow.clear(file, done.run, *failed, dag="feeds")
    assert states(refused)["apply[t30]"] == "failed"
    assert "ConfigurationChanged: " in refused.log
    assert refused.processes == []

    # An edit of another table refuses nothing.
    group(airflow, "feeds", {**configuration, "pipelines": of_another})
    DeltaTable(str(tmp_path / "target30")).alter.drop_constraint("small")
    healed = succeeded(airflow.clear(file, done.run, *failed, dag="feeds"))
    assert healed.submits == 1, "the table alone"
    assert healed.xcom("apply[t30]")["applied"]
    assert values(tmp_path / "target30", "id") == [(1,), (2,), (100,)]
    assert len(healed.xcom("publish")) == 65

    # Cleared after it was published, it looks for what is new since, as an ordinary task does.
    again = succeeded(airflow.clear(file, done.run, ("apply", 0), dag="feeds"))
    assert (again.processes, again.xcom("apply[t03]")["applied"]) == ([], False)


@pytest.mark.slow
def test_two_stopped_tables_of_65_hold_up_no_other(airflow: Airflow, tmp_path: Path) -> None:
    """65 mapped tasks; an empty copy is stopped without Spark, and too many deletes in the application."""
    configuration = feeds(tmp_path, 64)
    pipelines = configuration["pipelines"]
    pipelines["t30"]["limits"] = {"max_deleted": "40 %"}
    copied = {"group": "feeds", "source": str(tmp_path / "copies"), "target": str(tmp_path / "copied")}
    pipelines["copied"] = {**copied, "keys": ["id"], "source_kind": "snapshot"}
    append(tmp_path / "copies", *((key, "a") for key in range(1000)), feed=False)
    fill({"pipeline": "copied", **pipelines["copied"]})
    file = group(airflow, "feeds", configuration)

    append(tmp_path / "source3", (3, "c"))
    append(tmp_path / "source30", (3, "c"))
    DeltaTable(str(tmp_path / "source30")).delete("id < 3")
    append(tmp_path / "copies", *((key, "a") for key in range(10)), feed=False, mode="overwrite")
    versions = {name: DeltaTable(str(tmp_path / name)).version() for name in ("target30", "copied")}

    # No target was announced yet, so each table has a task, also the 62 that have nothing new.
    done = airflow.run(file, dag="feeds")
    shown = states(done)
    stopped = {"apply[t30]", "apply[copied]"}
    assert len([name for name in shown if name.startswith("apply[")]) == 65
    assert {name for name, state in shown.items() if state == "failed"} == stopped
    assert (shown["run_spark"], shown["publish"], done.submits) == ("success", "upstream_failed", 1)
    others = {f"target{at}" for at in range(64) if at != 30}
    assert announced(done) == {(tmp_path / name).as_uri() for name in others}
    assert values(tmp_path / "target3", "id") == [(1,), (2,), (3,)]
    assert versions == {name: DeltaTable(str(tmp_path / name)).version() for name in versions}
    assert done.log.count("LimitExceeded: ") >= 2

    # Each is approved alone, by the text of its own error.
    approvals = {
        name: done.xcom(f"apply[{name}]", "delta_cdc_error")["approval"] for name in ("t30", "copied")
    }
    swapped = airflow.run(
        file, dag="feeds", conf={"tables": ["copied"], "approve": approvals["t30"]}, forbid_processes=True
    )
    assert swapped.state == "failed"
    assert versions["copied"] == DeltaTable(str(tmp_path / "copied")).version()
    for name, text in approvals.items():
        succeeded(airflow.run(file, dag="feeds", conf={"tables": [name], "approve": text}))
    assert values(tmp_path / "target30", "id") == [(3,)]
    assert len(values(tmp_path / "copied", "id")) == 10


@pytest.mark.slow
def test_what_the_form_asks_for_is_done_once(airflow: Airflow, tmp_path: Path) -> None:
    file = group(airflow, "feeds", feeds(tmp_path, 2))
    before = DeltaTable(str(tmp_path / "target1")).version()
    repaired = succeeded(
        airflow.run(file, dag="feeds", conf={"mode": "repair", "tables": ["t01"], "starting_version": 0})
    )
    assert repaired.submits == 1, "and not again by the task of the table"
    assert repaired.xcom("apply[t01]")["applied"]
    assert DeltaTable(str(tmp_path / "target1")).version() == before + 1
    assert set(repaired.xcom("publish")) == {"t00", "t01"}

    append(tmp_path / "source0", (3, "c"))
    reload = {"mode": "reload", "tables": ["t00"], "dry_run": True}
    dry = succeeded(airflow.run(file, dag="feeds", conf=reload))
    assert (dry.submits, set(states(dry))) == (1, {"detect_changes", "run_spark", "apply[t00]", "publish"})
    assert dry.xcom("apply[t00]")["dry_run"]["counts"]["inserted"] == 1
    assert DeltaTable(str(tmp_path / "target0")).version() == 0
    assert dry.events == []

    wrong = airflow.run(file, dag="feeds", conf={"mode": "repair"}, forbid_processes=True)
    assert states(wrong) == {
        "detect_changes": "failed",
        "run_spark": "upstream_failed",
        "apply": "upstream_failed",
        "publish": "upstream_failed",
    }
    assert "nothing selects the keys" in wrong.log


_KILLED = """
from tests.support.holding import killing

dags["feeds"].task_dict["run_spark"].env_vars = killing("before_commit", 2)
"""


@pytest.mark.slow
def test_an_application_that_is_killed_in_the_middle(airflow: Airflow, tmp_path: Path) -> None:
    """What is through is published; the others run an application of their own at once."""
    configuration = feeds(tmp_path, 3, max_parallel_tables=1)
    for at in range(3):
        append(tmp_path / f"source{at}", (3, "c"))
    file = group(airflow, "feeds", configuration)
    file.write_text(file.read_text() + _KILLED)
    done = airflow.run(file, dag="feeds")
    assert states(done) == {
        "detect_changes": "success",
        "run_spark": "failed",
        "apply[t00]": "success",
        "apply[t01]": "success",
        "apply[t02]": "success",
        "publish": "success",
    }
    assert done.submits == 3
    assert {name: one["status"] for name, one in done.xcom("run_spark").items()} == {
        "t00": "applied",
        "t01": "unfinished",
        "t02": "unfinished",
    }
    for at in range(3):
        assert values(tmp_path / f"target{at}", "id") == [(1,), (2,), (3,)]
        assert done.xcom(f"apply[t0{at}]")["applied"]
    assert len(announced(done)) == 4


_FORGED = """
evil = {evil!r}


def work(items):
    {work}


def answers(found):
    {answers}


def changed(task, change):
    honest = type(task).execute

    def execute(context):
        found = honest(context["task"], context)
        change(found)
        context["ti"].xcom_push(key="return_value", value=found)
        return found

    task.execute = execute


changed(dags["feeds"].task_dict["detect_changes"], work)
changed(dags["feeds"].task_dict["run_spark"], answers)
"""


def forged(file: Path, folder: Path, *, work: str = "pass", answers: str = "pass") -> None:
    """Change the XComs of a group right after they are written."""
    made = _FORGED.format(evil=str(folder / "evil"), work=work, answers=answers)
    file.write_text(file.read_text() + made)


def test_forged_work_starts_nothing(airflow: Airflow, tmp_path: Path) -> None:
    """Each table that a user names, or changes, in the XCom of the detection is refused under its name."""
    configuration = feeds(tmp_path, 3)
    for at in range(3):
        append(tmp_path / f"source{at}", (3, "c"))
    file = group(airflow, "feeds", configuration)
    forged(
        file,
        tmp_path,
        work="items[0]['table'] = {'pipeline': 't00', 'target': evil, 'adapter': 'evil.Adapter'}; "
        "items[1]['pipeline'] = 'evil'; items[2]['fingerprint'] = 'f' * 16",
    )
    done = airflow.run(file, dag="feeds", forbid_processes=True)
    assert done.state == "failed"
    assert {one["state"] for name, one in done.tasks.items() if name.startswith("apply")} == {"failed"}
    assert done.tasks["run_spark"]["state"] == "failed"
    assert "InvalidXCom: " in done.log
    assert "ConfigurationChanged: " in done.log
    assert not (tmp_path / "evil").exists()
    assert [values(tmp_path / f"target{at}", "id") for at in range(3)] == [[(1,), (2,)]] * 3
    assert announced(done) == set()


@pytest.mark.slow
def test_what_is_forged_within_bounds_changes_no_argument(airflow: Airflow, tmp_path: Path) -> None:
    """Locations, ends, versions before the work, answers: tables and options stay those of the DAG."""
    configuration = feeds(tmp_path, 4)
    configuration["pipelines"]["t02"]["limits"] = {"max_versions": 1}
    for at in range(4):
        for key in (3, 4):
            append(tmp_path / f"source{at}", (key, "c"))
    file = group(airflow, "feeds", configuration)
    forged(
        file,
        tmp_path,
        work="items[0]['located'] = {'source': evil, 'target': evil}; "
        "items[1]['since'] = -1; items[1]['found'] = 'nothing'; "
        "items[2]['ends'] = dict.fromkeys(items[2]['ends'], 10**9); "
        "items[3]['failed'] = True",
        answers="found['t00']['saved_plans'] = {}; found['t01']['item_stamp'] = 'f' * 12; "
        "found['t02']['status'] = 'nothing'",
    )
    done = succeeded(airflow.run(file, dag="feeds"))
    assert not (tmp_path / "evil").exists()
    found = {at: values(tmp_path / f"target{at}", "id") for at in range(4)}
    everything = [(1,), (2,), (3,), (4,)]
    # The limit of the DAG holds for each task of the run, whatever end an XCom names.
    assert found == {0: everything, 1: everything, 2: [(1,), (2,), (3,)], 3: everything}
    assert announced(done) == {
        *((tmp_path / f"target{at}").as_uri() for at in range(4)),
        "x-delta-cdc-group://feeds",
    }
    targets = {name: one["target"] for name, one in done.xcom("publish").items()}
    assert targets == {f"t{at:02}": str(tmp_path / f"target{at}") for at in range(4)}


@pytest.mark.slow
def test_a_log_that_two_other_pipelines_apply(airflow: Airflow, tmp_path: Path) -> None:
    """After the first loads, one application ingests and applies both; each table's own task announces."""
    applied = {"group": "two", "keys": ["id"], "source": str(tmp_path / "log"), "source_kind": "change_log"}
    configuration = {
        "groups": {"two": {"max_parallel_tables": 2, "backfill": False}},
        "pipelines": {
            "current": {**applied, "target": str(tmp_path / "current")},
            "history": {**applied, "target": str(tmp_path / "history"), "stored_as_scd_type": 2},
            "events": {
                "group": "two",
                "keys": ["id"],
                "source": str(tmp_path / "landing"),
                "log": str(tmp_path / "log"),
                "schema": "id INT, name STRING, n INT",
                "adapter_options": {"operation_column": "op", "sequence_by": "n"},
            },
        },
    }
    file = group(airflow, "two", configuration)
    drop(tmp_path / "landing", "1.json", {"op": "I", "id": 1, "name": "a", "n": 1})
    assert succeeded(airflow.run(file, dag="two")).submits == 2
    drop(tmp_path / "landing", "2.json", {"op": "U", "id": 1, "name": "b", "n": 2})
    done = succeeded(airflow.run(file, dag="two"))
    assert done.submits == 1
    assert values(tmp_path / "current", "id", "name") == [(1, "b")]
    assert values(tmp_path / "history", "name", "__START_AT", "__END_AT") == [("a", 1, 2), ("b", 2, None)]
    assert announced(done) >= {(tmp_path / name).as_uri() for name in ("log", "current", "history")}
    counts = {name: done.xcom(f"apply[{name}]")["counts"] for name in ("current", "history")}
    assert counts == {
        "current": {"inserted": 0, "updated": 1, "deleted": 0, "events": 1},
        "history": {"inserted": 1, "updated": 1, "deleted": 0, "events": 1},
    }
    work = {name: one["effort"]["seconds"].get("work", 0) for name, one in done.xcom("run_spark").items()}
    assert min(work.values()) > 0, work
    idle = succeeded(airflow.run(file, dag="two", forbid_processes=True))
    assert idle.submits == 0
