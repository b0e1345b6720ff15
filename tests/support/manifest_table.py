"""A real table made statement by statement, a folder for its file manifests, and rows to compare."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from delta_cdc.core.sql import quote, table
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession


@dataclass
class ManifestTable:
    """A table, and the folder of its file manifests."""

    spark: SparkSession
    path: str
    manifests: Path

    @classmethod
    def below(cls, spark: SparkSession, folder: Path) -> Self:
        """Return a table that has yet to be created, under a name with characters of every kind."""
        return cls(spark, str(folder / "t % a#b+ü"), folder / "manifests")

    def sql(self, *statements: str) -> None:
        """Run statements; ``$T`` is the table."""
        for statement in statements:
            self.spark.sql(statement.replace("$T", table(self.path)))

    def create(self, columns: str, *properties: dict[str, str], layout: str = "") -> None:
        merged = {name: value for some in properties for name, value in some.items()}
        self.sql(f"CREATE TABLE $T ({columns}) USING delta {layout} TBLPROPERTIES ({listed(merged)})")

    @property
    def newest(self) -> int:
        return run_sync(DeltaLog(self.path).newest_version())

    def columns(self, version: int | None = None) -> tuple[str, ...]:
        return run_sync(DeltaLog(self.path).snapshot(version)).schema_columns

    def feed(self, start: int, end: int) -> DataFrame:
        """Read the change data feed by Delta's own reader."""
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", start).option("endingVersion", end).load(self.path)


def listed(properties: dict[str, str]) -> str:
    """Return table properties as SQL lists them."""
    return ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())


def shown(rows: DataFrame, name: str) -> Column:
    """Return a column as Python can compare it: a variant as text."""
    from pyspark.sql import functions as F

    is_variant = rows.schema[name].dataType.simpleString() == "variant"
    return F.to_json(quote(name)).alias(name) if is_variant else F.col(quote(name))


def bag(rows: DataFrame, columns: Sequence[str] | None = None) -> Counter[Any]:
    """Count rows.

    :param columns: only these; one that the rows do not have yet is NULL
    """
    from pyspark.sql import functions as F

    names = rows.columns if columns is None else columns
    given = [shown(rows, name) if name in rows.columns else F.lit(None).alias(name) for name in names]
    return Counter(plain(tuple(row)) for row in rows.select(*given).collect())
