"""The examples of sinks of one's own, run in a real Airflow with a real Spark."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyarrow import parquet

if TYPE_CHECKING:
    from tests.integration.airflow.conftest import Airflow

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

_DAGS = Path(__file__).parents[3] / "dags"
_FUTURE = "from __future__ import annotations\n"
#: The example itself, with tables of its own.
_SETTINGS = """
import os, sys

os.environ["DELTA_CDC_EXAMPLE_TABLES"] = {tables!r}
sys.modules.pop("example_settings", None)
sys.path.insert(0, {dags!r})
"""


def example(airflow: Airflow, name: str, tables: Path) -> Path:
    settings = _SETTINGS.format(tables=str(tables), dags=str(_DAGS))
    text = (_DAGS / f"{name}.py").read_text()
    for configuration in _DAGS.glob(f"{name}.yaml"):
        (airflow.home / "dags" / configuration.name).write_text(configuration.read_text())
    return airflow.dag(name, text.replace(_FUTURE, _FUTURE + settings, 1))


def orders(table: Path, *rows: tuple[int, str, float], feed: bool = True) -> None:
    keys, status, price = zip(*rows, strict=True)
    data = pa.table({"o_orderkey": keys, "o_orderstatus": status, "o_totalprice": price})
    properties = {"delta.enableChangeDataFeed": "true"} if feed else {}
    write_deltalake(str(table), data, mode="append", configuration=properties)


def sink(tables: Path) -> list[tuple[int, str, float]]:
    with sqlite3.connect(tables / "orders.sqlite") as db:
        found = db.execute("SELECT * FROM orders ORDER BY o_orderkey").fetchall()
    db.close()
    return found


@pytest.mark.slow
def test_a_function_takes_the_changes(airflow: Airflow, tmp_path: Path) -> None:
    orders(tmp_path / "orders", (1, "O", 10.0), (2, "O", 20.0))
    file = example(airflow, "orders_to_sqlite", tmp_path)
    first = airflow.run(file)
    assert first.state == "success", first.log
    assert sink(tmp_path) == [(1, "O", 10.0), (2, "O", 20.0)]
    assert first.xcom("load") == {"up_to_version": 0, "rows": 2}
    watermark = first.xcom("load", "watermark")
    assert (watermark["version"], watermark["applied"], watermark["counts"]["insert"]) == (0, True, 2)
    # An earlier test may have left a JVM in the worker: then nothing starts.
    started = [process[-1] for process in first.processes if "spark-submit" in process[0]]
    assert started in ([], ["pyspark-shell"]), "the driver is in the worker"
    idle = airflow.run(file, forbid_processes=True)
    assert idle.tasks["load"]["state"] == "skipped", idle.log
    assert idle.xcom("load", "watermark")["version"] == 0


@pytest.mark.slow
def test_a_function_that_failed_gets_the_batch_again(airflow: Airflow, tmp_path: Path) -> None:
    source = tmp_path / "orders"
    orders(source, (1, "O", 10.0), (2, "O", 20.0))
    file = example(airflow, "orders_to_sqlite", tmp_path)
    assert airflow.run(file).state == "success"
    DeltaTable(str(source)).update(updates={"o_orderstatus": "'F'"}, predicate="o_orderkey = 1")
    DeltaTable(str(source)).delete("o_orderkey = 2")
    orders(source, (3, "P", 30.0))
    (tmp_path / "orders.sqlite").rename(tmp_path / "aside")
    (tmp_path / "orders.sqlite").mkdir()
    failed = airflow.run(file)
    assert failed.tasks["load"]["state"] == "failed"
    assert failed.xcom("load", "watermark") is None
    orders(source, (4, "P", 40.0))
    (tmp_path / "orders.sqlite").rmdir()
    (tmp_path / "aside").rename(tmp_path / "orders.sqlite")
    again = airflow.run(file)
    assert again.state == "success", again.log
    assert again.xcom("load")["up_to_version"] == 3, "the batch that failed, not a longer one"
    assert again.xcom("load", "watermark")["starting_version"] == 1
    assert sink(tmp_path) == [(1, "F", 10.0), (3, "P", 30.0)]
    assert airflow.run(file).xcom("load")["up_to_version"] == 4
    assert sink(tmp_path)[-1] == (4, "P", 40.0)


@pytest.mark.slow
def test_files_for_people_outside(airflow: Airflow, tmp_path: Path) -> None:
    source = tmp_path / "orders"
    orders(source, (1, "O", 10.0), (2, "O", 20.0), feed=False)
    file = example(airflow, "orders_to_files", tmp_path)
    first = airflow.run(file)
    assert first.state == "success", first.log
    assert first.submits == 2
    counts = {"rows": 2, "insert": 2, "update_preimage": 0, "update_postimage": 0, "delete": 0}
    assert first.xcom("read")["counts"] == counts
    folder = tmp_path / "orders_files" / f"{0:020d}"
    assert first.xcom("deliver") == str(folder)
    assert sorted(parquet.read_table(folder)["o_orderkey"].to_pylist()) == [1, 2]
    assert first.xcom("commit")["version"] == 0
    # Without a change data feed, by a list of the files that were added.
    orders(source, (3, "P", 30.0), feed=False)
    again = airflow.run(file)
    assert again.state == "success", again.log
    assert again.xcom("read")["counts"] == {**counts, "rows": 1, "insert": 1}
    assert Path(again.xcom("deliver")).name == f"{1:020d}"
    assert again.xcom("commit")["version"] == 1
    idle = airflow.run(file, forbid_processes=True)
    assert [idle.tasks[name]["state"] for name in ("read", "deliver", "commit")] == [
        "success",
        "skipped",
        "skipped",
    ]
