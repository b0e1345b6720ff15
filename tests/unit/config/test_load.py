"""What a configuration says, once it is read."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.config import Configuration, load, models
from delta_cdc.config.resolve import _OF_A_RUN
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import APPLY, INGEST

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Write = Callable[[str], Path]

SALES = """\
defaults:
  schedule: "*/15 * * * *"
groups:
  sales: {max_parallel_tables: 8}
pipelines:
  orders_history:
    group: sales
    source: s3://lake/bronze/orders
    target: s3://lake/silver/orders_history
    keys: [o_orderkey]
    stored_as_scd_type: 2
    sequence_by: _commit_timestamp
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(text: str) -> Path:
        path = tmp_path / "pipelines.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def _pipeline(**keys: Any) -> dict[str, Any]:
    return {"pipelines": {"p": {"source": "/s", "target": "/t", "keys": ["id"], **keys}}}


def _arguments(configuration: Configuration) -> dict[str, Any]:
    (table,) = configuration.tables()
    return table.arguments


def test_a_plain_table_takes_seven_lines(write: Write) -> None:
    path = write(SALES)
    (group,) = load(path).groups
    assert (group.name, group.place) == ("sales", f"{path}:4")
    assert group.settings == {"schedule": "*/15 * * * *", "max_parallel_tables": 8}
    (table,) = group.tables
    assert (table.pipeline, table.own_application, table.place) == ("orders_history", False, f"{path}:6")
    assert table.arguments == {
        "pipeline": "orders_history",
        "source": "s3://lake/bronze/orders",
        "target": "s3://lake/silver/orders_history",
        "keys": ["o_orderkey"],
        "stored_as_scd_type": 2,
        "sequence_by": "_commit_timestamp",
    }
    assert len(SALES[SALES.index("  orders_history") :].splitlines()) == 7


def test_the_nearest_wins_and_mappings_are_not_merged() -> None:
    given = {
        "defaults": {
            "keys": ["far"],
            "where": "a > 1",
            "retries": 1,
            "conf": {"spark.a": "1", "spark.b": "1"},
            "layout": {"cluster_by": ["far"], "publish_changes": True},
            "limits": {"max_versions": 5},
            "policies": {"on_drift": "accept"},
        },
        "groups": {"g": {"keys": ["near"], "conf": {"spark.b": "2"}, "layout": {"cluster_by": []}}},
        "pipelines": {
            "in": {"group": "g", "source": "/s", "target": "/t1", "where": None, "policies": None},
            "out": {"source": "/s", "target": "/t2", "retries": 3, "own_application": True},
        },
    }
    group, alone = load(given).groups
    assert group.settings == {"retries": 1, "conf": {"spark.b": "2"}}
    # A null says that nothing is given, and an empty list says something.
    assert group.tables[0].arguments == {
        "pipeline": "in",
        "source": "/s",
        "target": "/t1",
        "keys": ["near"],
        "max_versions": 5,
        "cluster_by": [],
        "publish_changes": True,
    }
    assert alone.settings == {"retries": 3, "conf": {"spark.a": "1", "spark.b": "1"}}
    assert alone.tables[0].own_application
    assert alone.tables[0].arguments["where"] == "a > 1"


def test_what_is_about_an_ingest_reaches_tables_with_a_log_only() -> None:
    log = {"source": "/files", "log": "/other", "keys": ["id"]}
    given = {
        "defaults": {"format": "avro", "adapter": "plain", "layout": {"log_properties": {"delta.x": "1"}}},
        "pipelines": {
            "feed": _pipeline()["pipelines"]["p"],
            "fed": log,
            "ingested": {**log, "log": "/log", "target": "/t2"},
        },
    }
    # An event that neither deletes nor has an order of its own needs the adapter's options.
    given["defaults"]["adapter_options"] = {"sequence_by": "n"}
    configuration = load(given)
    by_name = {table.pipeline: table.arguments for table in configuration.tables()}
    assert "format" not in by_name["feed"]
    assert by_name["fed"]["format"] == by_name["ingested"]["format"] == "avro"
    consumers = [(c.pipeline, c.source, c.target) for c in configuration.consumers()]
    assert consumers == [("feed", "/s", "/t"), ("ingested", "/log", "/t2")]


#: What stays a text, though YAML 1.1 makes something else of it.
TEXTS = ["yes", "no", "on", "NO", "12:30:45", "1_000", "2026-01-01", "0o14", "014", "0x1f", ".inf", "1e999"]
VALUES: dict[str, Any] = {
    "'null'": "null", '"true"': "true", "true": True, "FALSE": False, "12": 12, "-3": -3,
    "1.10": 1.1, "1e3": 1000.0, "~": None, "": None, "9" * 30: "9" * 30,
}  # fmt: skip


@pytest.mark.parametrize(("written", "value"), [*zip(TEXTS, TEXTS, strict=True), *VALUES.items()])
def test_scalars_mean_what_they_look_like(write: Write, written: str, value: Any) -> None:
    path = write(
        "pipelines:\n  p:\n    source: /s\n    log: /log\n    keys: id\n    adapter: my.own\n"
        f"    adapter_options: {{x: {written}}}\n"
    )
    found = _arguments(load(path))["adapter_options"]["x"]
    assert (found, type(found)) == (value, type(value))


def test_mappings_of_texts_keep_what_was_written(write: Write) -> None:
    path = write(
        "pipelines:\n  p:\n    source: /s\n    target: /t\n    keys: id\n"
        "    layout: {target_properties: {delta.a: true, b: 1.10, c: yes, d: 0x1f}}\n"
        "    storage_options: {n: 007}\n"
    )
    (group,) = load(path).groups
    expected = {"delta.a": "true", "b": "1.10", "c": "yes", "d": "0x1f"}
    assert group.tables[0].arguments["target_properties"] == expected
    assert group.settings["storage_options"] == {"n": "007"}
    mapping = load(_pipeline(layout={"target_properties": {"a": True, "b": 2}}))
    assert _arguments(mapping)["target_properties"] == {"a": "true", "b": "2"}


def test_settings_come_in_one_form() -> None:
    keys = {
        "retry_delay": "1.5 minutes",
        "execution_timeout": 90,
        "on_failure_callback": "my.alarms.page",
        "schedule": {"assets": "s3://lake/a"},
        "dag_id": "delta.{name}",
        "start_date": "2026-01-31",
    }
    (group,) = load(_pipeline(**keys)).groups
    assert group.settings == {
        "retry_delay": 90,
        "execution_timeout": 90,
        "on_failure_callback": ["my.alarms.page"],
        "schedule": {"assets": ["s3://lake/a"]},
        "dag_id": "delta.p",
        "start_date": "2026-01-31",
    }


@pytest.mark.parametrize(
    "schedule", ["@daily", "0 3 * * 1-5", "0 3 * * 1 30", "0 0 * * MON#1", "on_change", None]
)
def test_schedules(schedule: str | None) -> None:
    (group,) = load(_pipeline(schedule=schedule)).groups
    assert group.settings == {"schedule": schedule}


def test_the_order_in_which_things_are_written_does_not_matter(tmp_path: Path) -> None:
    names = [f"t{number}" for number in range(65)]
    entries = {
        name: {"group": "g", "source": f"/s/{name}", "target": f"/t/{name}", "keys": ["id"]} for name in names
    }
    for path, order in (("one", names), ("two", names[::-1])):
        (tmp_path / path).mkdir()
        half = len(order) // 2
        for number, part in enumerate((order[:half], order[half:])):
            content = {"pipelines": {name: entries[name] for name in part}}
            # JSON is YAML, on one line: places differ as well.
            (tmp_path / path / f"{number}.yml").write_text(json.dumps(content))
        (tmp_path / path / "groups.yaml").write_text(
            "groups: {g: {retries: 2}}\ndefaults:\n  where: id > 0\n"
        )
        (tmp_path / path / ".hidden.yaml").write_text("nonsense")
        (tmp_path / path / "notes.txt").write_text("nonsense")
    one, two = load(tmp_path / "one"), load(str(tmp_path / "two"))
    mapping = load({"defaults": {"where": "id > 0"}, "groups": {"g": {"retries": 2}}, "pipelines": entries})
    fingerprints = [[group.fingerprint for group in read.groups] for read in (one, two, mapping)]
    assert fingerprints[0] == fingerprints[1] == fingerprints[2]
    assert [table.pipeline for table in one.tables()] == sorted(names)
    entries["t7"]["where"] = "id > 1"
    other = load({"defaults": {"where": "id > 0"}, "groups": {"g": {"retries": 2}}, "pipelines": entries})
    assert other.groups[0].fingerprint != one.groups[0].fingerprint


def test_values_of_python_are_read_as_a_file_has_them() -> None:
    from datetime import UTC, datetime, timedelta

    keys = {
        "keys": ("id", "n"),
        "start_date": datetime(2026, 1, 31, tzinfo=UTC),
        "retry_delay": timedelta(minutes=5),
    }
    (group,) = load(_pipeline(**keys)).groups
    assert group.settings == {"start_date": "2026-01-31T00:00:00+00:00", "retry_delay": 300.0}
    assert group.tables[0].arguments["keys"] == ["id", "n"]


def test_catalog_names_are_tables() -> None:
    """Where they are, only the run finds out."""
    names = {"source": "main.sales.orders", "target": "main.sales.history"}
    assert _arguments(load(_pipeline(**names)))["target"] == "main.sales.history"
    load(_pipeline(source="/files", log="main.sales.log", target="main.sales.history", adapter="my.own"))


def test_keys_are_the_operators_arguments() -> None:
    """Every argument of a table is a key, but for those of one run, and every key is an argument."""
    mine = set(models.table_keys())
    assert mine - {"own_application"} == set(INGEST) - set(_OF_A_RUN) - {"pipeline"}
    assert set(APPLY) - set(_OF_A_RUN) <= set(INGEST)
    assert not mine & set(models.dag_keys())
    assert "another value" not in models.expectations().values()
    for key in mine - {"own_application"}:
        for option in (INGEST[key], APPLY.get(key, INGEST[key])):
            # What an argument is where it is left out can be written, too.
            models.adapter().validate_python({} if option.default is None else {key: option.default})


def test_importing_and_reading_need_little(tmp_path: Path) -> None:
    """What a DAG file imports to read its tables: no engine, no network, and no Airflow."""
    path = tmp_path / "pipelines.yaml"
    path.write_text(SALES)
    program = f"""
import json, socket, sys
def refused(*_, **__): raise AssertionError("network")
socket.socket.connect = refused
import delta_cdc.config
delta_cdc.config.load({str(path)!r})
heavy = {{"pyspark", "obstore", "pyarrow", "pandas", "deltalake", "airflow", "grpc", "confluent_kafka"}}
late = sorted(heavy & set(sys.modules))
engine = [name for name in sys.modules if name.startswith("delta_cdc")]
print(json.dumps([late, len(engine)]))
"""
    here = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", program]
    ended = subprocess.run(command, env=here, capture_output=True, text=True, check=True)
    late, engine = json.loads(ended.stdout)
    assert late == []
    # The engine as a whole is more than 240.
    assert engine < 95


def test_a_very_long_list_is_cut(write: Write) -> None:
    path = write("pipelines:\n" + "".join(f"  p{number}: {{}}\n" for number in range(300)))
    with pytest.raises(InvalidConfiguration, match="201 findings in") as raised:
        load(path)
    assert "There are more than 200 findings" in str(raised.value)
