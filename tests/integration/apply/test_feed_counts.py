"""The clauses of a MERGE, counted without it: what a count adds, and where it fails."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.spark.apply.merge import Clause, Merge

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SOURCE = "SELECT * FROM VALUES (1, 'go'), (2, 'go'), (3, 'stay'), (8, 'come'), (9, 'never') s(id, plan)"


def test_the_first_clause_whose_condition_holds_counts(spark: SparkSession, tmp_path: Path) -> None:
    table = str(tmp_path / "table")
    spark.sql("SELECT id, id = 2 AS dead FROM range(4)").write.format("delta").save(table)
    clauses = (
        Clause(True, "s.plan = 'go' AND NOT t.dead", "delete"),
        Clause(True, "s.plan = 'go'", "update", {"dead": "false"}),
        Clause(False, "s.plan = 'come'", "insert", {"id": "s.id"}),
    )
    merge = Merge(table, spark.sql(SOURCE), ("t.id = s.id",), clauses)
    assert merge.counted(spark) == {"inserted": 1, "updated": 1, "deleted": 1}
    assert spark.read.format("delta").load(table).count() == 4
    refusing = Clause(True, "t.dead", "update", {"id": "s.id"}, raises="concat('two of ', s.id)")
    merge = Merge(table, spark.sql(SOURCE), ("t.id = s.id",), (refusing, *clauses))
    with pytest.raises(Exception, match="two of 2"):
        merge.counted(spark)
    nothing = Merge(table, spark.sql(SOURCE).limit(0), ("t.id = s.id", "false"), clauses)
    assert nothing.counted(spark) == {"inserted": 0, "updated": 0, "deleted": 0}
