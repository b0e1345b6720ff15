"""``delta-cdc init`` of topics: Debezium's records name the keys, and the first run has the rows."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.cli import main
from delta_cdc.config import lint, load
from delta_cdc.core.sql import quote

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.kafka_broker import Broker

_FIELDS = [
    {"field": "id", "type": "int64", "optional": False},
    {"field": "city", "type": "string", "optional": True},
]


def _message(op: str, number: int, lsn: int, city: str | None) -> tuple[str, str | None]:
    row = None if city is None else {"id": number, "city": city}
    source = {
        "connector": "postgresql",
        "schema": "public",
        "table": "x",
        "sequence": f'["{lsn}","{lsn}"]',
        "lsn": lsn,
    }
    key = {"schema": {"type": "struct", "fields": _FIELDS[:1]}, "payload": {"id": number}}
    struct = {"type": "struct", "optional": True, "fields": _FIELDS}
    fields: list[Any] = [{**struct, "field": "before"}, {**struct, "field": "after"}]
    value = {
        "schema": {"type": "struct", "fields": fields},
        "payload": {"op": op, "before": None, "after": row, "source": source, "ts_ms": 0},
    }
    return json.dumps(key), json.dumps(value)


@pytest.mark.slow
def test_topics_with_a_prefix(spark: SparkSession, kafka: Broker, tmp_path: Path, capsys: Any) -> None:
    for topic in ("init.public.a", "init.public.b", "init.public.none", "init.odd", "other.public.c"):
        kafka.create_topic(topic, partitions=2)
    kafka.send("init.public.a", [_message("c", 1, 10, "Oslo"), _message("c", 2, 20, "Rome")])
    kafka.send("init.public.a", [_message("u", 1, 30, "Lima"), _message("d", 2, 40, None)])
    kafka.send("init.public.b", [_message("c", 7, 10, "Bern")], partition=1)
    kafka.send("init.odd", ['{"a": 1}'])
    kafka.send("other.public.c", [_message("c", 7, 10, "Bern")])
    file = tmp_path / "shop.yaml"
    address = f"kafka://{kafka.servers}/init."
    assert main(["init", address, "--target", f"{tmp_path}/silver", "--output", str(file)]) == 1
    lines = [line.removeprefix("left out: topic ") for line in capsys.readouterr().err.splitlines()]
    assert [line.split(": ")[0] for line in lines] == ["init.odd", "init.public.none"]
    assert lint(file) == []
    tables = {table.pipeline: table.arguments for table in load(file).tables()}
    assert {name: one["keys"] for name, one in tables.items()} == {"public.a": ["id"], "public.b": ["id"]}
    assert tables["public.a"]["source"] == f"kafka://{kafka.servers}/init.public.a"
    # No group was joined, and no offset stored.
    assert kafka.admin.list_consumer_groups().result().valid == []
    assert main(["run", str(file)]) == 0, capsys.readouterr()
    rows = {
        name: [
            tuple(row) for row in spark.sql(f"SELECT id, city FROM delta.{quote(one['target'])}").collect()
        ]
        for name, one in tables.items()
    }
    assert rows == {"public.a": [(1, "Lima")], "public.b": [(7, "Bern")]}
    capsys.readouterr()
    kafka.create_topic("init.public.d")
    kafka.send("init.public.d", [_message("c", 9, 10, "Nice")])
    assert main(["discover", str(file)]) == 1
    shown = capsys.readouterr().out
    assert shown.startswith("pipelines:\n  public.d:\n")
    assert "public.a" not in shown
