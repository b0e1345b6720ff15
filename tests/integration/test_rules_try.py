"""``delta-cdc rules try``: what a rule would do to the rows that came in the past."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.cli import main
from tests.support.engine import newest

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A row was wrong, and is right again; another is wrong now."""
    folder = tmp_path_factory.mktemp("try")
    for statement in (
        "CREATE TABLE {} (id INT, amount INT) USING delta TBLPROPERTIES (delta.enableChangeDataFeed = true)",
        "INSERT INTO {} VALUES (1, 10), (2, 20)",
        "UPDATE {} SET amount = -1 WHERE id = 1",
        "UPDATE {} SET amount = 11 WHERE id = 1",
        "INSERT INTO {} VALUES (3, NULL)",
        "DELETE FROM {} WHERE id = 2",
    ):
        spark.sql(statement.format(f"delta.`{folder / 'orders'}`"))
    apply_changes(
        spark, str(folder / "orders"), str(folder / "now"), keys=["id"], pipeline="p", ending_version=1
    )
    return folder


@pytest.mark.parametrize(
    ("arguments", "code", "parts"),
    [
        ([], 1, ["positive", "1  amount >= 0", "id = 3", "2 rows of", "version 5"]),
        (["--from", "2", "--to", "4"], 1, ["2  amount >= 0", "id = 1", "3 rows of", "versions 2-4"]),
        (["--since", "30d"], 1, ["2  amount >= 0", "5 rows of"]),
        (["--since", "30d", "--rule", "any=id IS NOT NULL"], 0, ["any ", "0  id IS NOT NULL"]),
        (["--from", "6"], 0, ["0 rows of", "no version of the range has changes"]),
    ],
)
def test_a_pipeline_of_a_file(
    orders: Path, capsys: Any, arguments: list[str], code: int, parts: list[str]
) -> None:
    file, target = orders / "flows.yaml", str(orders / "now")
    entry = {"source": str(orders / "orders"), "target": target, "keys": ["id"]}
    entry |= {"rules": {"positive": "amount >= 0"}}
    file.write_text(json.dumps({"pipelines": {"p": entry}}))
    before = newest(target)
    assert main(["rules", "try", str(file), *arguments]) == code
    shown = capsys.readouterr().out
    assert [text for text in parts if text not in shown] == [], shown
    assert newest(target) == before


def test_a_target_alone(orders: Path, capsys: Any) -> None:
    assert main(["rules", "try", f"p={orders / 'now'}"]) == 2
    assert "The pipeline p has no rules" in capsys.readouterr().err
    assert main(["rules", "try", f"p={orders / 'now'}", "--rule", "small=amount <= 10"]) == 1
    assert "id = 1" in capsys.readouterr().out
    assert main(["rules", "try", f"p={orders / 'now'}", "--rule", "small=nope"]) == 1
    assert "rules small" in capsys.readouterr().err


@pytest.mark.slow
def test_a_changed_rule_of_a_file_holds_for_a_replay(
    spark: SparkSession, orders: Path, tmp_path: Path, capsys: Any
) -> None:
    file, target = tmp_path / "flows.yaml", tmp_path / "now"

    def write(check: str) -> None:
        rules = {"positive": {"check": check, "on_break": "quarantine"}}
        entry = {"source": str(orders / "orders"), "target": str(target), "keys": ["id"], "rules": rules}
        file.write_text(json.dumps({"pipelines": {"p": entry}}))

    write("amount > 11")
    assert main(["run", str(file)]) == 0
    assert spark.read.format("delta").load(str(target)).count() == 0
    assert main(["replay", f"p={target}"]) == 1
    write("amount > 10")
    assert main(["replay", str(file), "p"]) == 1
    assert "still in quarantine" in capsys.readouterr().err
    assert [tuple(row) for row in spark.read.format("delta").load(str(target)).collect()] == [(1, 11)]
    write("amount IS NULL OR amount > 10")
    assert main(["replay", str(file), "p"]) == 0
    assert spark.read.format("delta").load(str(target)).count() == 2
