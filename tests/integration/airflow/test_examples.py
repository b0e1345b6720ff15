"""The examples that make their own sources, run in a real Airflow with a real Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration.airflow.test_sinks import example
from tests.support import event_model, oracle
from tests.support.event_model import END, START, Event, Rules

if TYPE_CHECKING:
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def rows(table: Path, version: int | None = None) -> list[dict[str, Any]]:
    query = QueryBuilder().register("t", DeltaTable(str(table), version=version))
    return list(pa.table(query.execute("SELECT * FROM t").read_all()).to_pylist())


def runs(airflow: Airflow, file: Path, number: int) -> list[Outcome]:
    done = [airflow.run(file) for _ in range(number)]
    for outcome in done:
        assert outcome.state == "success", outcome.log
        assert outcome.xcom("apply")["applied"]
    return done


def test_a_log_with_late_events(airflow: Airflow, tmp_path: Path) -> None:
    # What a device held back arrives two hours later.
    done = runs(airflow, example(airflow, "events_from_log", tmp_path), 3)
    events = [
        Event(
            key=(row["parcel"],),
            sequence=row["scanned_at"],
            kind="delete" if row["handed_over"] else "upsert",
            values=row,
        )
        for row in rows(tmp_path / "scans")
    ]
    rules = Rules(keys=("parcel",), columns={"place": None, "weight": None})
    columns = ("parcel", "place", "weight", START, END)
    wanted = oracle.rows_of(event_model.type_2(events, rules), columns)
    assert oracle.rows_of(rows(tmp_path / "parcel_history"), columns) == wanted
    assert len(wanted) > 50
    # The first hour has nothing to be late for.
    assert "late" not in done[0].xcom("apply")["counts"]
    assert all(outcome.xcom("apply")["counts"]["late"] > 0 for outcome in done[1:])


def test_full_copies(airflow: Airflow, tmp_path: Path) -> None:
    file = example(airflow, "daily_snapshots", tmp_path)
    copies, target = tmp_path / "stock", tmp_path / "stock_history"
    dry = airflow.run(file, conf={"mode": "dry_run"})
    assert dry.state == "success", dry.log
    assert not target.exists()
    shown = dry.xcom("apply")
    assert (shown["applied"], shown["target_version"], dry.events) == (False, None, [])
    assert len(shown["dry_run"]["steps"]) == 1
    assert "A dry run: nothing was written" in dry.log
    runs(airflow, file, 2)
    # The first one that counts finds two copies, and loads the newer one.
    log = copies / "_delta_log"
    commits = {version: (log / f"{version:020d}.json").stat().st_mtime_ns // 10**6 for version in (2, 3)}
    history = [(version, {row["article"]: row for row in rows(copies, version)}) for version in commits]
    wanted = oracle.scd2(history, tracked=["shelf", "pieces"], sequence=lambda _, version: commits[version])
    found = rows(target)
    for row in found:
        for bound in (START, END):
            row[bound] = row[bound] and round(row[bound].timestamp() * 1000)
    columns = ("article", "shelf", "pieces", START, END)
    assert oracle.rows_of(found, columns) == oracle.rows_of(wanted, columns)
    assert len(wanted) > len(history[-1][1]), "something changed"
