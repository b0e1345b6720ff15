"""What an answer says besides the origin of values: what did not count, whose rows they are, its limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes, explain_row, ingest_changes
from delta_cdc.core.errors import InvalidConfiguration, RangeTooLong, TargetWithoutWatermark

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc import Answer

    Table = Callable[[str], str]

_FEED = "USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"


def _since(answer: Answer, row: int = 0) -> dict[str, int | None]:
    return {
        one.column: one.since.version if one.since is not None else None for one in answer.rows[row].values
    }


def _lost(answer: Answer) -> list[tuple[str, int | None]]:
    return [(one.why, one.where.version) for one in answer.not_taken]


def _orders(spark: SparkSession, path: str) -> None:
    for statement in (
        f"CREATE TABLE delta.`{path}` (id STRING, line INT, status STRING, amount DOUBLE) {_FEED}",
        f"INSERT INTO delta.`{path}` VALUES ('o''1', 1, 'new', 1.5), ('o''1', 2, 'new', 2.5)",
        f"UPDATE delta.`{path}` SET status = 'paid' WHERE line = 1",
        f"UPDATE delta.`{path}` SET amount = -1 WHERE line = 2",
        f"DELETE FROM delta.`{path}` WHERE line = 1",
    ):
        spark.sql(statement)


@pytest.mark.slow
def test_a_feed(spark: SparkSession, tmp_table: Table) -> None:
    source, soft, gold = tmp_table("source"), tmp_table("soft"), tmp_table("gold")
    _orders(spark, source)
    keys = ["id", "line"]
    # Version 1 is loaded; the rest is applied.
    more: dict[str, Any] = {"delete_mode": "soft", "where": "amount > 0", "run_id": "first"}
    apply_changes(spark, source, soft, pipeline="soft", keys=keys, initial_load={"from_version": 1}, **more)
    spark.sql(f"ALTER TABLE delta.`{soft}` SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    apply_changes(spark, soft, gold, pipeline="gold", keys=keys, run_id="second", stored_as_scd_type=2)

    deleted = explain_row(spark, soft, pipeline="soft", key={"ID": "o'1", "LINE": 1})
    assert deleted.rows[0].deleted
    assert deleted.rows[0].closed is not None
    assert deleted.rows[0].closed.version == 4
    assert _since(deleted) == {"id": 1, "line": 1, "status": 2, "amount": 1}
    filtered = explain_row(spark, soft, pipeline="soft", key={"id": "o'1", "line": 2})
    assert _lost(filtered) == [("where is not true: amount > 0", 3)]
    assert filtered.options == {"where": "amount > 0", "delete_mode": "soft"}

    chain = explain_row(spark, gold, pipeline="gold", key={"id": "o'1", "line": 1})
    # The row came into the first target with its last values, in one commit that only adds rows.
    assert set(_since(chain).values()) == {2}
    assert chain.upstream is not None
    assert chain.upstream.pipeline == "soft"
    assert _since(chain.upstream) == _since(deleted)

    nothing = explain_row(spark, soft, pipeline="soft", key={"id": "o'1", "line": 3})
    assert nothing.rows == ()
    little = explain_row(spark, soft, pipeline="soft", key={"id": "o'1", "line": 1}, max_bytes=1)
    assert "--max-bytes" in little.notes[0]
    assert set(_since(little).values()) == {None}
    # As of the version before the soft delete: another row.
    spark.sql(f"INSERT INTO delta.`{source}` VALUES ('o''1', 1, 'again', 7)")
    apply_changes(spark, source, soft, pipeline="soft", keys=keys, **more)
    now = explain_row(spark, soft, pipeline="soft", key={"id": "o'1", "line": 1})
    assert _since(now) == {
        "id": 5,
        "line": 5,
        "status": 5,
        "amount": 5,
    }
    then = explain_row(spark, soft, pipeline="soft", key={"id": "o'1", "line": 1}, at=deleted.version)
    assert then == deleted

    spark.sql(f"UPDATE delta.`{soft}` SET status = 'mine' WHERE line = 1")
    touched = explain_row(spark, soft, pipeline="soft", key={"id": "o'1", "line": 1})
    assert _since(touched)["status"] is None
    assert f"UPDATE in version {touched.version}" in touched.notes[-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "words"),
    [({"id": "1"}, "The key of"), ({"id": "1", "line": "one"}, "is no int"), ({}, "no column")],
)
def test_a_wrong_key(spark: SparkSession, healthy: str, key: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConfiguration, match=words):
        explain_row(spark, healthy, pipeline="healthy", key=key)


@pytest.fixture(scope="module")
def healthy(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("healthy")
    source, target = str(folder / "source"), str(folder / "target")
    _orders(spark, source)
    apply_changes(spark, source, target, pipeline="healthy", keys=["id", "line"])
    spark.range(1).write.format("delta").save(f"{source}_added")
    apply_changes(spark, f"{source}_added", f"{target}_all", pipeline="all", insert_only=True)
    return target


@pytest.mark.slow
def test_no_answer(spark: SparkSession, healthy: str) -> None:
    key = {"id": "o'1", "line": "2"}
    with pytest.raises(TargetWithoutWatermark):
        explain_row(spark, healthy, pipeline="other", key=key)
    with pytest.raises(InvalidConfiguration, match="insert_only"):
        explain_row(spark, f"{healthy}_all", pipeline="all", key=key)
    for at in ("77", "1999-01-01T00:00:00+00:00", "yesterday"):
        with pytest.raises(InvalidConfiguration, match="at is"):
            explain_row(spark, healthy, pipeline="healthy", key=key, at=at)


@pytest.mark.slow
def test_files(spark: SparkSession, tmp_path: Path) -> None:
    landing, log, target = tmp_path / "in", str(tmp_path / "log"), str(tmp_path / "target")
    landing.mkdir()
    options: dict[str, Any] = {
        "keys": ["id"],
        "schema": "id INT, v STRING, w STRING",
        "adapter_options": {"operation_column": "op", "sequence_by": "n"},
    }

    def deliver(name: str, *records: dict[str, Any]) -> None:
        (landing / name).write_text("".join(f"{json.dumps(record)}\n" for record in records))
        ingest_changes(spark, str(landing), log, pipeline="files", run_id=name, **options)
        apply_changes(
            spark, log, target, pipeline="target", keys=["id"], run_id=name, stored_as_scd_type=2,
            source_kind="change_log", policies={"on_conflict": "quarantine", "on_invalid": "quarantine"},
        )  # fmt: skip

    deliver("1.json", {"op": "I", "id": 1, "n": 1, "v": "a", "w": "b"})
    deliver("2.json", {"op": "U", "id": 1, "n": 5, "v": "c"}, {"op": "U", "id": 1, "n": 6, "v": "d"},
            {"op": "U", "id": 1, "n": 6, "v": "e"})  # fmt: skip
    deliver("3.json", {"op": "U", "id": 1, "n": 3, "v": "late", "w": "x"}, {"op": "U", "id": None, "n": 9})
    answer = explain_row(spark, target, pipeline="target", key={"id": 1})
    assert [int(row.start or 0) for row in answer.rows] == [1, 3, 5]
    files = {
        one.column: Path(one.since.record["file"]).name
        for one in answer.rows[-1].values
        if one.since is not None
    }
    assert files == {"id": "1.json", "v": "2.json", "w": "3.json"}
    assert [why for why, _ in _lost(answer) if "quarantine" in why] == ["it is in quarantine (tied)"] * 2
    # A record that is no event may be of the key; one that has another value is not.
    deliver("4.json", {"op": "U", "id": "1", "n": "seven"}, {"op": "?", "id": 21, "n": 3})
    answer = explain_row(spark, target, pipeline="target", key={"id": 1})
    (record,) = [one for one in answer.not_taken if "may be of this key" in one.why]
    assert record.why.endswith(f"and may be of this key: {log}__quarantine")
    assert "seven" not in record.why.removeprefix("it is in quarantine (null sequence")
    assert Path(record.where.record["file"]).name == "4.json"
    assert record.where.time is not None
    with pytest.raises(RangeTooLong, match="about 0 MiB"):
        explain_row(spark, target, pipeline="target", key={"id": 1}, max_bytes=1)
