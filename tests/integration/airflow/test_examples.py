"""The examples that make their own sources, run in a real Airflow with a real Spark."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.integration.airflow.test_sinks import example, orders
from tests.support import event_model, oracle
from tests.support.event_model import END, START, Event, Rules

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.integration.airflow.conftest import Airflow, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning")]


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
    dry = airflow.run(file, conf={"dry_run": True})
    assert dry.state == "success", dry.log
    assert not target.exists()
    shown = dry.xcom("apply")
    assert (shown["applied"], shown["target_version"], dry.events) == (False, None, [])
    assert len(shown["dry_run"]["steps"]) == 1
    assert "Dry run: this run wrote nothing to" in dry.log
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


def test_a_group_by_a_file(airflow: Airflow, tmp_path: Path) -> None:
    file = example(airflow, "configured_group", tmp_path)
    for _ in range(2):
        assert airflow.run(file, dag="configured_group_sources").state == "success"
        done = airflow.run(file, dag="configured_group")
        assert done.state == "success", done.log
        assert done.submits == 2, "one for five tables, and one for the one that is large"

    def found(name: str, *columns: str, only: Callable[[dict[str, Any]], bool] = bool) -> list[Any]:
        return sorted(tuple(row[column] for column in columns) for row in rows(tmp_path / name) if only(row))

    def is_open(row: dict[str, Any]) -> bool:
        return row[END] is None

    current = found("shop_orders", "id", "customer", "state")
    for target in ("shop_orders_now", "shop_archive"):
        assert found(target, "id", "customer", "state") == current
    assert found("shop_orders_history", "id", "customer", "state", only=is_open) == current
    assert len(rows(tmp_path / "shop_orders_history")) > len(current)
    stock = ("id", "shelf", "pieces")
    assert found("shop_stock_history", *stock, only=is_open) == found("shop_stock", *stock)
    visits = found("shop_clicks", "page", "visitor", "day", only=lambda row: row["page"] != "health")
    assert found("shop_visits", "page", "visitor", "day") == visits
    lines = [
        json.loads(line)
        for landed in (tmp_path / "landing" / "shop_customers").iterdir()
        for line in landed.read_text().splitlines()
    ]
    last = {line["id"]: line for line in sorted(lines, key=lambda line: line["lsn"])}
    wanted = sorted((key, line["name"], line["lsn"]) for key, line in last.items() if line["op"] != "D")
    assert found("shop_customers", "id", "name", "lsn") == wanted
    assert len(done.xcom("publish")) == 6


def test_a_chain_by_a_file(airflow: Airflow, tmp_path: Path) -> None:
    orders(tmp_path / "orders", (1, "O", 10.0), (2, "O", 20.0))
    file = example(airflow, "configured_chain", tmp_path)
    hops = ("configured_bronze", "configured_silver", "configured_gold")
    for hop in hops:
        done = airflow.run(file, dag=hop)
        assert done.state == "success", done.log
        announced = {event["uri"] for event in done.events}
        assert announced == {(tmp_path / hop).as_uri(), f"x-delta-cdc-group://{hop}"}
    gold = [(row["o_orderkey"], row["o_totalprice"], row[END]) for row in rows(tmp_path / hops[-1])]
    assert sorted(gold) == [(1, 10.0, None), (2, 20.0, None)]
