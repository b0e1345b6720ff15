"""From every vendor's records to SCD type 1 and 2: in order and once, or in another order and twice.

All adapters feed one log, each as a pipeline of its own, with keys of its own: one apply shows them all.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, ingest_changes
from tests.support import debezium as d

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

SCHEMA = "id INT, v STRING, w STRING"
#: What happened, in order: position, kind, key, the columns that came.
STORY: list[tuple[int, str, int, dict[str, Any]]] = [
    (1, "insert", 1, {"v": "a", "w": "b"}),
    (2, "insert", 2, {"v": "x", "w": "y"}),
    (3, "insert", 3, {"v": "gone", "w": None}),
    (4, "insert", 4, {"v": "moves", "w": "m"}),
    (5, "update", 1, {"v": "c"}),
    (6, "update", 2, {"w": None}),
    (7, "delete", 3, {}),
    (8, "move", 4, {"v": "moves", "w": "m"}),
]
#: Keys of each adapter begin here.
BASES = {"plain": 10, "debezium": 20, "dms": 30, "goldengate": 40}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"operation_column": "op", "sequence_by": ["at", "one"], "old_keys": {"id": "old_id"}},
    "debezium": {},
    "dms": {"change_sequence": "seq"},
    "goldengate": {},
}
SCHEMAS = {"plain": f"{SCHEMA}, at BIGINT, one INT"}
APPLIED: dict[str, Any] = {
    "source_kind": "change_log",
    "keys": ["id"],
    "sequence_by": "_sequence",
    "apply_as_deletes": "_op = 'delete'",
    "apply_as_truncates": "_op = 'truncate'",
    "columns_to_update": "_columns",
    "except_column_list": ["_op", "_sequence", "_columns", "_source_timestamp", "_position"],
}
LEFT_OUT = {"plain": ["at", "one"]}


def records(adapter: str, at: int, kind: str, key: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what an adapter's vendor writes of a change."""
    key += BASES[adapter]
    new = {"id": key + 1 if kind == "move" else key, **row}
    if adapter == "plain":
        op = "U" if kind == "move" else kind[0].upper()
        return [{"op": op, "at": at, "one": 1, "old_id": key if kind == "move" else None, **new}]
    if adapter == "debezium":
        before = {"id": key} if kind in ("move", "delete") else None
        # The value of a column that the log of the database did not have.
        carried = {"v": d.PLACEHOLDER, "w": d.PLACEHOLDER, **new} if kind == "update" else new
        op = {"insert": "c", "update": "u", "move": "u", "delete": "d"}[kind]
        return [
            d.change(op, before, None if kind == "delete" else carried, d.postgresql(100 * at, 100 * at + 50))
        ]
    if adapter == "dms":
        seq = f"20240131120000{at:021d}"
        if kind == "move":
            return [{"Op": "D", "seq": seq, "id": key}, {"Op": "I", "seq": seq, **new}]
        return [{"Op": kind[0].upper(), "seq": seq, **new}]
    flags = {f"{name}_isMissing": name not in row for name in ("v", "w")}
    image = {"v": None, "w": None, **new, **flags} if kind == "update" else new
    told = {"table": "T", "op_type": "U" if kind == "move" else kind[0].upper(), "pos": f"{at:020d}"}
    before = {"id": key} if kind in ("move", "delete") else None
    return [{**told, "before": before, "after": None if kind == "delete" else image}]


def deliver(folder: Path, adapter: str, name: str, story: list[tuple[int, str, int, dict[str, Any]]]) -> None:
    lines = [json.dumps(one) for change in story for one in records(adapter, *change)]
    path = folder / adapter / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")


def run(spark: SparkSession, root: Path) -> None:
    """Ingest what is there, and apply it to both targets."""
    for adapter, options in OPTIONS.items():
        ingest_changes(
            spark,
            str(root / "in" / adapter),
            str(root / "log"),
            pipeline=f"{adapter}_in",
            keys=["id"],
            adapter=adapter,
            adapter_options={**options, "except_column_list": LEFT_OUT.get(adapter) or None},
            schema=SCHEMAS.get(adapter, SCHEMA),
            policies={"on_invalid": "fail"},
        )
    for scd in (1, 2):
        apply_changes(
            spark,
            str(root / "log"),
            str(root / f"scd{scd}"),
            pipeline=f"apply{scd}",
            stored_as_scd_type=scd,
            **APPLIED,
        )


def rows(spark: SparkSession, root: Path, scd: int) -> list[tuple[Any, ...]]:
    found = spark.read.format("delta").load(str(root / f"scd{scd}")).collect()
    return sorted((tuple(row) for row in found), key=str)


def test_missing_is_not_null_and_no_order_of_delivery_counts(spark: SparkSession, tmp_path: Path) -> None:
    straight, shuffled = tmp_path / "straight", tmp_path / "shuffled"
    first, second = STORY[:4], STORY[4:]
    for adapter in OPTIONS:
        deliver(straight / "in", adapter, "1.json", first)
        # The end comes before the beginning, and twice.
        deliver(shuffled / "in", adapter, "2.json", second[::-1])
        deliver(shuffled / "in", adapter, "again/2.json", second)
    run(spark, straight)
    run(spark, shuffled)
    for adapter in OPTIONS:
        deliver(straight / "in", adapter, "2.json", second)
        deliver(shuffled / "in", adapter, "1.json", [*first[::-1], second[1]])
    run(spark, straight)
    run(spark, shuffled)
    current, history = [], []
    for base in BASES.values():
        current += [(base + 1, "c", "b"), (base + 2, "x", None), (base + 5, "moves", "m")]
        history += [
            (base + 1, "a", "b", True),
            (base + 1, "c", "b", False),
            (base + 2, "x", "y", True),
            (base + 2, "x", None, False),
            (base + 3, "gone", None, True),
            (base + 4, "moves", "m", True),
            (base + 5, "moves", "m", False),
        ]
    assert rows(spark, straight, 1) == sorted(current, key=str)
    closed = [(*row[:3], row[4] is not None) for row in rows(spark, straight, 2)]
    assert sorted(closed, key=str) == sorted(history, key=str)
    for scd in (1, 2):
        assert rows(spark, shuffled, scd) == rows(spark, straight, scd)


def test_a_column_that_was_null_throughout_was_carried(spark: SparkSession, tmp_path: Path) -> None:
    """It had no type yet; an older event with a value that arrives later does not bring the value back."""
    for name, line in (("1.json", {"id": 1, "ts": 5, "w": None}), ("2.json", {"id": 1, "ts": 2, "w": 5})):
        (tmp_path / "in").mkdir(exist_ok=True)
        (tmp_path / "in" / name).write_text(json.dumps(line) + "\n")
        ingest_changes(
            spark,
            str(tmp_path / "in"),
            str(tmp_path / "log"),
            pipeline="in",
            keys=["id"],
            adapter_options={"sequence_by": "ts", "except_column_list": ["ts"]},
        )
        apply_changes(
            spark,
            str(tmp_path / "log"),
            str(tmp_path / "scd1"),
            pipeline="apply1",
            stored_as_scd_type=1,
            **APPLIED,
        )
    assert rows(spark, tmp_path, 1) == [(1, None)]
