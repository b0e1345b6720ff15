"""What a run committed and did not announce, because its try died, is announced by the next run.

The targets are filled without Spark, by commits as an apply makes them: for Airflow, the run that made them
died before it published anything.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.integration.airflow.test_groups import append, feeds, group, states
from tests.integration.airflow.test_ingest import succeeded
from tests.support.filled import fill

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.integration.airflow.conftest import Airflow, Outcome

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_DIES = """
from airflow.sdk import DAG, Param, get_current_context
from airflow_delta_cdc import publishing
from airflow_delta_cdc.operators import DeltaApplyChangesOperator
from delta_cdc.run import saved_plans


def dies(module, name, before, after):
    real = getattr(module, name)

    def at(point):
        context = get_current_context()
        if context["ti"].dag_id == "outbox" and context["params"]["dies"] == point:
            raise RuntimeError("the worker died " + point)

    def function(*given, **named):
        at(before)
        found = real(*given, **named)
        at(after)
        return found

    setattr(module, name, function)


dies(publishing, "shown", "before XCom", "after XCom")
dies(publishing, "store_copy", "before the copy", "after the copy")
dies(publishing, "announce_apply", "before the event", "after the event")
dies(saved_plans, "forget_saved_plans", "before the end", "after the end")


with DAG("outbox", schedule=None, params={{"dies": Param("", type="string")}}) as dag:
    DeltaApplyChangesOperator(
        task_id="apply", pipeline="outbox", source={source!r}, target={target!r}, keys=["id"], retries=0
    )
"""
#: Those of a real worker, which is killed, are in ``tests/system/test_operator_kill.py``.
POINTS = ("before XCom", "after the copy", "after the event", "after the end")


def committed(arguments: Mapping[str, Any], key: int) -> None:
    """Append a row to the source, and apply it, as a run does whose try then dies."""
    append(Path(arguments["source"]), (key, "new"))
    fill(arguments)


def ranges(outcome: Outcome) -> list[tuple[int, int]]:
    """Return the versions of the events of targets."""
    extras = [event["extra"] for event in outcome.events if event["task"] != "publish"]
    return sorted((extra["starting_version"], extra["ending_version"]) for extra in extras)


def forget_events(airflow: Airflow) -> None:
    """Lose all events, as after ``airflow db clean`` or with the metadata database."""
    with closing(sqlite3.connect(airflow.home / "airflow.db")) as database:
        for table in ("asset_alias_asset_event", "dagrun_asset_event", "asset_event"):
            database.execute(f"DELETE FROM {table}")
        database.commit()


def test_a_try_that_dies_at_any_point_is_announced_by_the_next_run(airflow: Airflow, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    arguments = {"pipeline": "outbox", "source": str(source), "target": str(target), "keys": ["id"]}
    append(source, (0, "a"))
    file = airflow.dag("outbox", _DIES.format(source=str(source), target=str(target)))
    fill(arguments)
    (event,) = succeeded(airflow.run(file, forbid_processes=True)).events
    assert event["uri"] == target.as_uri()
    for at, point in enumerate(POINTS, 1):
        committed(arguments, at)
        died = airflow.run(file, conf={"dies": point}, forbid_processes=True)
        assert (died.state, died.events) == ("failed", []), point
        assert f"the worker died {point}" in died.log
        if at % 2:
            # No run looks before the next commit.
            continue
        done = succeeded(airflow.run(file, forbid_processes=True))
        assert ranges(done) == [(at - 1, at)]
        published, (event,) = done.xcom("apply"), done.events
        assert (published["applied"], published["starting_version"], published["ending_version"]) == (
            True,
            at - 1,
            at,
        )
        assert published["counts"]["changes"] == 2
        assert (event["extra"]["seal"], event["extra"]["version"]) == (published["seal"], at)
    idle = succeeded(airflow.run(file, forbid_processes=True))
    assert (idle.xcom("apply")["applied"], idle.events) == (False, [])

    # Without a known event, what the log has is announced again.
    forget_events(airflow)
    committed(arguments, 100)
    assert ranges(succeeded(airflow.run(file, forbid_processes=True))) == [(1, len(POINTS) + 1)]
    assert succeeded(airflow.run(file, forbid_processes=True)).events == []


_TABLE_DIES = """
from pathlib import Path

from airflow_delta_cdc import publishing
from airflow_delta_cdc.groups import publish


def dies(module, name):
    real = getattr(module, name)

    def function(*given):
        if Path({flag!r}).exists() and Path({flag!r}).read_text() == name:
            raise RuntimeError("the worker died")
        return real(*given)

    setattr(module, name, function)


dies(publishing, "forget")
dies(publish, "grid")
"""


@pytest.mark.slow
def test_the_tables_of_a_group(airflow: Airflow, tmp_path: Path) -> None:
    """A table without work of its own has its task, as long as a commit of it is not announced."""
    configuration = feeds(tmp_path, 2)
    file, flag = group(airflow, "feeds", configuration), tmp_path / "dies"
    file.write_text(_TABLE_DIES.format(flag=str(flag)) + file.read_text())

    def run() -> Outcome:
        return airflow.run(file, dag="feeds", forbid_processes=True)

    def senders(done: Outcome) -> list[str]:
        return sorted(event["task"] for event in succeeded(done).events)

    done = run()
    assert senders(done) == ["apply", "apply", "publish"]
    assert {"apply[t00]": "success", "apply[t01]": "success"}.items() <= states(done).items()
    table = {**configuration["pipelines"]["t01"], "pipeline": "t01"}
    committed(table, 3)
    # After the event was added, and before the task succeeded.
    flag.write_text("forget")
    died = run()
    assert (died.state, died.events, died.xcom("apply[t01]")["applied"]) == ("failed", [], True)
    committed(table, 4)
    flag.unlink()
    done = run()
    assert set(states(done)) == {"detect_changes", "run_spark", "apply[t01]", "publish"}
    assert (senders(done), ranges(done)) == (["apply", "publish"], [(1, 2)])
    # The event of the group is one of its own.
    committed(table, 5)
    flag.write_text("grid")
    died = run()
    assert (died.state, ranges(died)) == ("failed", [(3, 3)])
    flag.unlink()
    done = run()
    assert senders(done) == ["publish"]
    (event,) = done.events
    assert event["extra"]["tables"]["t01"]["version"] == 3
    idle = run()
    assert (senders(idle), set(states(idle).values())) == ([], {"success", "skipped"})
