"""``delta-cdc init`` and ``discover``: what they write, the runs of it, and keys compared with pandas."""

from __future__ import annotations

import datetime as dt
import random
import re
from collections import Counter
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc import apply_changes
from delta_cdc.cli import main
from delta_cdc.cli.proposing import Known, Proposing, Search
from delta_cdc.config import lint, load
from delta_cdc.core.sql import quote
from delta_cdc.delta_log.table import DeltaLog, run_sync
from delta_cdc.planning.key_candidates import candidates, columns_of
from delta_cdc.spark.uniqueness import key_counts

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.config import Configuration

_ROWS = 240
_FEED = {"delta.enableChangeDataFeed": "true"}
_DAY, _TIME = dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def _write(root: Path, name: str, columns: dict[str, Any], **given: Any) -> None:
    write_deltalake(str(root / name), pa.table(columns), **given)


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make tables of different kinds, and what is no table."""
    root = tmp_path_factory.mktemp("lake") / "bronze"
    root.mkdir()
    draw, n = random.Random(42), range(_ROWS)
    towns = [draw.choice(["Oslo", "Rome", "Lima"]) for _ in n]
    customer = {"customer_id": list(n), "city": towns, "updated_at": [_TIME] * _ROWS}
    _write(root, "customers", customer, configuration=_FEED)
    of = [draw.randrange(_ROWS // 3) for _ in n]
    days = [_DAY + dt.timedelta(draw.randrange(3)) for _ in n]
    _write(
        root,
        "sales/orders",
        {"customer_id": of, "order_id": list(n), "ordered_on": days},
        partition_by=["ordered_on"],
    )
    # The grain of a sensor is the day; in a sample of one day, the sensor alone would be unique.
    _write(
        root, "readings", {"sensor_id": [i % 80 for i in n], "day": [_DAY + dt.timedelta(i // 80) for i in n]}
    )
    _write(
        root,
        "events",
        {"customer_id": of, "op": ["u"] * _ROWS, "event_time": [_TIME] * _ROWS},
    )
    _write(root, "clicks", {"url": towns}, configuration={"delta.appendOnly": "true"})
    _write(root, "empty", {"id": pa.array([], pa.int64())})
    _write(root, "with null", {"id": [None, *n[1:]], "uuid": [f"{i:x}" for i in n]})
    # As Chinook has it.
    _write(
        root,
        "Track",
        {"TrackId": list(n), "AlbumId": [i // 11 for i in n], "Milliseconds": [i * 7 for i in n]},
    )
    _write(root, "pri$ce", {"id": [1]})
    items = str(root / "sales/order_items")
    spark.sql(f"""CREATE TABLE delta.{quote(items)} (o BIGINT, line_number INT, sku STRING) USING delta
        TBLPROPERTIES ('delta.columnMapping.mode' = 'name', 'delta.enableDeletionVectors' = 'true')""")
    spark.sql(f"ALTER TABLE delta.{quote(items)} RENAME COLUMN o TO order_id")
    rows = spark.range(_ROWS).selectExpr("id DIV 3 AS order_id", "int(id % 3) AS line_number", "'a' AS sku")
    # One row is twice in the files, and has a NULL once: the deletion vectors hide both.
    twice = rows.where("order_id = 5 AND line_number = 1").selectExpr(
        "order_id", "line_number", "'twice' AS sku"
    )
    gone = spark.sql("SELECT 1L AS order_id, CAST(NULL AS INT) AS line_number, 'twice' AS sku")
    rows.union(twice).union(gone).coalesce(1).write.format("delta").mode("append").save(items)
    spark.sql(f"DELETE FROM delta.{quote(items)} WHERE sku = 'twice'")
    (root / "csv").mkdir()
    (root / "csv" / "a.csv").write_text("x\n")
    log = root / "broken" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").write_text("{nope")
    return root


def _keys(configuration: Configuration) -> dict[str, Any]:
    return {table.pipeline: table.arguments.get("keys") for table in configuration.tables()}


def _same(spark: SparkSession, file: Path) -> None:
    """Compare every target with its source: no row is lost, doubled or changed."""
    for table in load(file).tables():
        source, target = (spark.table(f"delta.{quote(table.arguments[n])}") for n in ("source", "target"))
        rows = [Counter(one.select(*map(quote, source.columns)).collect()) for one in (source, target)]
        assert rows[0] == rows[1], table.pipeline


@pytest.mark.slow
def test_a_folder(spark: SparkSession, lake: Path, tmp_path: Path, capsys: Any) -> None:
    """The YAML has proven keys alone; lint refuses a table without; runs are right, and find new tables."""
    file, silver = tmp_path / "bronze.yaml", tmp_path / "silver"
    assert main(["init", str(lake), "--target", str(silver), "--output", str(file)]) == 1
    lines = capsys.readouterr().err.splitlines()
    left_out = sorted(re.sub(r"^(.{9}) .*?/bronze/([^:]*): .*", r"\1 \2", line) for line in lines)
    assert left_out == [
        "left out: broken",
        "left out: csv",
        "left out: pri$ce",
        "no key:   empty",
        "no key:   events",
    ], lines
    assert {finding.message for finding in lint(file)} == {
        "The pipeline empty: keys are missing.",
        "The pipeline events: keys are missing.",
    }
    text = file.read_text()
    assert "sequence_by: event_time" in text
    assert (
        "customer_id: by its name, the table's own key. A count proves it: unique, and never NULL, in 240"
        in text
    )
    # A person names what no count proves.
    text = text.replace("    source: " + f"{lake}/empty\n", f"    source: {lake}/empty\n    keys: [id]\n")
    text = text.replace(
        "    source: " + f"{lake}/events\n", f"    source: {lake}/events\n    insert_only: true\n"
    )
    file.write_text(text)
    assert lint(file) == []
    configuration = load(file)
    assert _keys(configuration) == {
        "Track": ["TrackId"],
        "clicks": None,
        "customers": ["customer_id"],
        "empty": ["id"],
        "events": None,
        "readings": ["sensor_id", "day"],
        "sales_order_items": ["order_id", "line_number"],
        "sales_orders": ["order_id"],
        "with_null": ["uuid"],
    }
    arguments = {table.pipeline: table.arguments for table in configuration.tables()}
    assert arguments["sales_orders"]["partition_by"] == ["ordered_on"]
    assert arguments["clicks"]["insert_only"] is True
    for name, keys in _keys(configuration).items():
        if keys and name not in ("empty", "sales_order_items"):
            frame = DeltaTable(arguments[name]["source"]).to_pandas()
            assert frame[keys].notna().all(axis=None), name
            assert not frame.duplicated(keys).any(), name
    assert main(["run", str(file)]) == 0, capsys.readouterr()
    _same(spark, file)
    for name, key in (("customers", "customer_id"), ("sales/orders", "order_id")):
        table = f"delta.{quote(f'{lake}/{name}')}"
        spark.sql(f"UPDATE {table} SET customer_id = customer_id + 1000 WHERE {key} % 7 = 1")
        spark.sql(f"DELETE FROM {table} WHERE {key} % 5 = 2")
    assert main(["run", str(file)]) == 0, capsys.readouterr()
    _same(spark, file)
    # What pipelines read is known, and only the late table is new.
    _write(lake, "late/suppliers", {"supplier_id": list(range(_ROWS)), "name": ["x"] * _ROWS})
    capsys.readouterr()
    assert main(["discover", str(file)]) == 1
    printed = capsys.readouterr().out
    assert printed.startswith("pipelines:\n  late_suppliers:\n    group: bronze\n")
    assert "late_suppliers" not in file.read_text()
    given = f"discover:\n      tables: {lake}\n"
    assert given in file.read_text()
    file.write_text(file.read_text().replace(given, f"{given}      add: true\n"))
    assert main(["discover", str(file)]) == 0
    assert "1 pipeline added" in capsys.readouterr().out
    assert f"{file.read_text()}".endswith(printed.removeprefix("pipelines:\n"))
    assert main(["discover", str(file)]) == 0
    assert "no new table" in capsys.readouterr().out
    assert main(["run", str(file), "late_suppliers"]) == 0
    _same(spark, file)


def test_the_limit_of_bytes_is_named(spark: SparkSession, lake: Path, tmp_path: Path, capsys: Any) -> None:
    del spark
    assert main(["init", f"{lake}/customers", "--target", str(tmp_path), "--max-bytes", "100"]) == 1
    shown = capsys.readouterr()
    assert re.search(r"customer_id is not counted: the table has .* KiB, and --max-bytes is 100 B", shown.err)
    assert "keys:\n" not in shown.out.replace("TODO keys:", "")


@pytest.mark.parametrize("seed", [6, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 8))])
def test_pandas_finds_the_same_keys(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    """Columns and pairs, with duplicates and NULLs or without: count and proposal agree with pandas."""
    draw = random.Random(seed)
    number = draw.choice([30, 90])

    def column(kind: str) -> list[Any]:
        few = draw.choice([number, number, max(1, number - 1), max(1, number // 3)])
        values = [i % few for i in range(number)]
        draw.shuffle(values)
        if draw.random() < 0.3:
            values[draw.randrange(number)] = None  # type: ignore[call-overload]
        return values if kind == "int" else [None if v is None else f"k{v}" for v in values]

    names = ["id", "a_id", "b_uuid", "c_key", "e_id"]
    frame = pd.DataFrame({name: pd.array(column("int"), dtype="Int64") for name in names[::2]})
    frame = frame.join(pd.DataFrame({name: column("text") for name in names[1::2]}))
    path = str(tmp_path / "things")
    write_deltalake(path, pa.Table.from_pandas(frame))
    state = run_sync(DeltaLog(path).snapshot())
    wanted = [one.columns for one in candidates("things", columns_of(state.schema_string))]
    assert len(wanted) == 5 + 10

    def is_key(columns: tuple[str, ...]) -> bool:
        part = frame[list(columns)]
        return bool(part.notna().all(axis=None)) and not part.duplicated().any()

    # Of seed 8, no column and no pair is a key; of the others, only some are.
    assert {is_key(columns) for columns in wanted} == ({False} if seed == 8 else {True, False})
    for columns, count in zip(wanted, key_counts(spark, path, 0, wanted), strict=True):
        assert (count.is_key, count.rows) == (is_key(columns), number), (seed, columns)
        assert count.nulls == int(frame[list(columns)].isna().any(axis=1).sum()), (seed, columns)
    (proposal,) = Proposing(Search(tables=path, target=str(tmp_path / "t")), Known()).run().proposals
    first = next((list(columns) for columns in wanted if is_key(columns)), None)
    assert proposal.values.get("keys") == first, seed
    assert proposal.is_whole == (first is not None)


def test_a_schema(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    """Names of a catalog; views and tables of other formats are one line each."""
    spark.sql(f"CREATE SCHEMA init_shop LOCATION '{tmp_path / 'shop'}'")
    try:
        spark.sql(
            "CREATE TABLE init_shop.orders USING delta AS SELECT id AS order_id, id % 7 AS n FROM range(200)"
        )
        spark.sql("CREATE TABLE init_shop.other USING parquet AS SELECT 1 AS id")
        spark.sql("CREATE VIEW init_shop.seen AS SELECT 1 AS id")
        file = tmp_path / "shop.yaml"
        target = str(tmp_path / "silver")
        assert main(["init", "init_shop", "--target", target, "--output", str(file)]) == 1
        lines = capsys.readouterr().err.splitlines()
        assert [line.split(": ")[1] for line in lines] == ["init_shop.other", "init_shop.seen"]
        assert lint(file) == []
        (table,) = load(file).tables()
        assert (table.arguments["source"], table.arguments["keys"]) == ("init_shop.orders", ["order_id"])
        apply_changes(spark, **table.arguments)
        assert spark.table(f"delta.{quote(f'{target}/orders')}").count() == 200
        capsys.readouterr()
        assert main(["discover", str(file)]) == 0
        assert capsys.readouterr().out == "# init_shop: no new table\n"
        assert main(["init", "init_none", "--target", target]) == 1
        assert "The schema init_none does not exist" in capsys.readouterr().err
    finally:
        spark.sql("DROP SCHEMA init_shop CASCADE")
