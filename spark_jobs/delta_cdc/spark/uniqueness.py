"""Count whether columns identify the rows of a table: Spark compares the values as a MERGE would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.sql import quote
from delta_cdc.core.uris import spark_uri

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class KeyCount:
    """What a count over all rows found.

    :param rows: number of rows
    :param nulls: number of rows with a NULL in one of the columns
    :param distinct: number of different keys, of the rows without a NULL
    """

    rows: int
    nulls: int
    distinct: int

    @property
    def is_key(self) -> bool:
        """Return whether each row has a key, and no two rows have the same one."""
        return self.rows > 0 and self.nulls == 0 and self.distinct == self.rows


def key_count(spark: SparkSession, uri: str, version: int, columns: Sequence[str]) -> KeyCount:
    """Read some columns of a version of a table, and count.

    :param uri: the table's location
    :param columns: names of its columns
    """
    names = [quote(name) for name in columns]
    rows = spark.read.format("delta").option("versionAsOf", version).load(spark_uri(uri))
    found = rows.selectExpr(
        "count(*) AS n",
        f"count_if({' OR '.join(f'{name} IS NULL' for name in names)}) AS nulls",
        f"count(DISTINCT {', '.join(names)}) AS distinct",
    ).collect()[0]
    return KeyCount(found["n"], found["nulls"], found["distinct"])
