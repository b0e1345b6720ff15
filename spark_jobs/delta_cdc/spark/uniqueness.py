"""Count whether columns identify the rows of a table: Spark compares the values as a MERGE would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.sql import quote
from delta_cdc.core.uris import spark_uri

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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


def key_counts(
    spark: SparkSession, uri: str, version: int, candidates: Sequence[Sequence[str]]
) -> list[KeyCount]:
    """Read the columns of several candidates of a version of a table once, and count each candidate.

    :param uri: the table's location
    :param candidates: of each, the names of its columns
    :return: a count for each candidate
    """
    rows = spark.read.format("delta").option("versionAsOf", version).load(spark_uri(uri))
    (found,) = rows.selectExpr(*_expressions(candidates)).collect()
    number, *counts = found
    return [KeyCount(number, *counts[at : at + 2]) for at in range(0, len(counts), 2)]


def _expressions(candidates: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the number of rows; then of each candidate, the rows with a NULL, and the different keys."""
    yield "count(*)"
    for columns in candidates:
        names = [quote(name) for name in columns]
        yield f"count_if({' OR '.join(f'{name} IS NULL' for name in names)})"
        yield f"count(DISTINCT {', '.join(names)})"
