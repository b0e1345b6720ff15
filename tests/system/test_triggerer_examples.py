"""The example DAGs that are woken: a watcher starts, each apply wakes the next, a no-op wakes nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_delta_cdc.assets import delta_asset
from demo.places import PROJECT, Places
from tests.system.parts import Parts

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow

#: Four Spark applications, one after the other.
_LIMIT = 600.0
_HOPS = ("medallion_bronze", "medallion_silver", "medallion_gold")


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Places:
    return Places(tmp_path_factory.mktemp("examples"))


@pytest.fixture(scope="module")
def parts(places: Places) -> Iterator[Parts]:
    made = Parts(places, PROJECT / "dags", AIRFLOW__CORE__PARALLELISM="1")
    made.start()
    try:
        yield made
    finally:
        made.stop()


def _orders(places: Places) -> DeltaTable:
    path = str(places.table("orders"))
    rows = pa.table({"o_orderkey": [1, 2, 3], "o_totalprice": pa.array([10, 20, None], pa.int64())})
    write_deltalake(path, rows, configuration={"delta.enableChangeDataFeed": "true"})
    return DeltaTable(path)


def _rows(places: Places, table: str, columns: str) -> list[tuple[Any, ...]]:
    if not (places.table(table) / "_delta_log" / f"{0:020d}.json").exists():
        return []
    query = QueryBuilder().register("t", DeltaTable(str(places.table(table))))
    answer = pa.table(query.execute(f"SELECT {columns} FROM t ORDER BY 1, 2").read_all())
    return [tuple(row.values()) for row in answer.to_pylist()]


def test_a_commit_runs_through_all_hops_and_a_no_op_wakes_nobody(places: Places, parts: Parts) -> None:
    orders = _orders(places)

    def shown(table: str, *rows: tuple[Any, ...]) -> None:
        columns = (
            "o_orderkey, o_totalprice, __END_AT IS NULL"
            if table == "gold_orders"
            else "o_orderkey, o_totalprice"
        )
        parts.until(
            lambda: _rows(places, table, columns) == list(rows), f"{table} is not as it should be", _LIMIT
        )

    def at_rest() -> list[int]:
        """Return how often each DAG ran, when no run is under way."""
        names = (*_HOPS, "orders_on_change")
        parts.until(
            lambda: {s for dag in names for s in parts.runs(dag)} <= {"success"},
            "a run did not succeed",
            _LIMIT,
        )
        return [len(parts.runs(dag)) for dag in names]

    def announced(table: str) -> int:
        return len(parts.events(delta_asset(str(places.table(table))).name))

    parts.until(lambda: len(parts.dags()) >= 8, "the DAGs were not found")
    parts.cli("dags", "unpause", "--treat-dag-id-as-regex", "--yes", "medallion_.*|orders_on_change")
    shown("orders_on_change", (1, 10), (2, 20), (3, None))
    shown("bronze_orders", (1, 10), (2, 20), (3, None))
    shown("silver_orders", (1, 10), (2, 20))
    shown("gold_orders", (1, 10, True), (2, 20, True))
    loaded = at_rest()
    assert loaded == [1, 1, 1, 1]

    orders.update(updates={"o_totalprice": "11"}, predicate="o_orderkey = 1")
    shown("orders_on_change", (1, 11), (2, 20), (3, None))
    shown("gold_orders", (1, 10, False), (1, 11, True), (2, 20, True))
    assert at_rest() == [2, 2, 2, 2]

    before = [announced(table) for table in ("bronze_orders", "silver_orders", "gold_orders")]
    parts.cli("dags", "trigger", "medallion_bronze")
    parts.until(lambda: len(parts.runs("medallion_bronze")) == 3, "the run by hand is missing")
    assert at_rest() == [3, 2, 2, 2]
    assert [announced(table) for table in ("bronze_orders", "silver_orders", "gold_orders")] == before
