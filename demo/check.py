"""The independent check: DuckDB compares tables with what plain SQL makes of the source's snapshots.

Nothing here knows how the engine works. Input are Parquet exports of Delta snapshots; the history is computed
from the snapshots alone, and compared with the target row by row, duplicates included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True)
class Finding:
    """The outcome of one comparison.

    :param what: what was compared with what
    :param rows: rows on the expected side
    :param missing: expected rows that the table doesn't have
    :param surplus: rows of the table that are not expected
    :param sample: up to three of the differing rows, as text
    """

    what: str
    rows: int
    missing: int
    surplus: int
    sample: tuple[str, ...] = ()

    @property
    def holds(self) -> bool:
        """Return whether both sides are equal, and there is anything to compare."""
        return self.rows > 0 and self.missing == 0 and self.surplus == 0


class Check:
    """Comparisons over exported tables, in one DuckDB connection."""

    def __init__(self) -> None:
        self._duck = duckdb.connect()
        self._duck.execute("SET TimeZone = 'UTC'")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._duck.close()

    def same_rows(self, what: str, expected: str, actual: str) -> Finding:
        """Compare two queries as bags of rows; the order of columns doesn't matter.

        :param expected: query of the rows that should be there
        :param actual: query of the rows that are there
        """
        columns = ", ".join(_quote(name) for name in self._columns(expected))
        want, have = f"SELECT {columns} FROM ({expected})", f"SELECT {columns} FROM ({actual})"
        extra = set(self._columns(actual)) - set(self._columns(expected))
        if extra:
            raise ValueError(f"{what}: columns on one side only: {sorted(extra)}")
        missing, surplus = f"{want} EXCEPT ALL {have}", f"{have} EXCEPT ALL {want}"
        return Finding(
            what,
            rows=self._count(want),
            missing=self._count(missing),
            surplus=self._count(surplus),
            sample=tuple(self._samples(missing, surplus)),
        )

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return self._duck.execute(query).fetchall()

    def _columns(self, query: str) -> list[str]:
        return [row[0] for row in self._duck.execute(f"DESCRIBE {query}").fetchall()]

    def _count(self, query: str) -> int:
        row = self._duck.execute(f"SELECT count(*) FROM ({query})").fetchone()
        return int(row[0]) if row else 0

    def _samples(self, missing: str, surplus: str) -> Iterator[str]:
        for label, query in (("missing", missing), ("surplus", surplus)):
            for row in self._duck.execute(f"SELECT * FROM ({query}) LIMIT 3").fetchall():
                yield f"{label}: {row}"


def rows_of(folder: Path) -> str:
    """Return a query for an exported table."""
    return f"SELECT * FROM read_parquet('{folder}/*.parquet', hive_partitioning = false)"


def history_of(snapshots: Path, commits: Path, *, key: str, columns: list[str]) -> str:
    """Return a query that computes the history of every key from the source's snapshots.

    A key's row begins a new version of itself where the snapshot before lacks it or has other values; it
    ends at the first later snapshot where it is gone or different, and is open where it reaches the last.

    :param snapshots: folder with one Parquet folder ``version=N`` per version of the source, without gaps
    :param commits: folder with ``version`` and ``timestamp`` of the source's commits
    :param key: the key column
    :param columns: all other columns
    """
    values = f"row({', '.join(map(_quote, columns))})"
    unpacked = ", ".join(f"the_values[{i}] AS {_quote(name)}" for i, name in enumerate(columns, start=1))
    return f"""
        WITH snapshots AS (
            SELECT *, {values} AS the_values
            FROM read_parquet('{snapshots}/*/*.parquet', hive_types = {{version: BIGINT}})
        ), compared AS (
            SELECT *, coalesce(
                lag(version) OVER of_key = version - 1
                AND lag(the_values) OVER of_key IS NOT DISTINCT FROM the_values, false) AS goes_on
            FROM snapshots WINDOW of_key AS (PARTITION BY {_quote(key)} ORDER BY version)
        ), numbered AS (
            SELECT *, count(*) FILTER (NOT goes_on)
                OVER (PARTITION BY {_quote(key)} ORDER BY version) AS number
            FROM compared
        ), cut AS (
            SELECT {_quote(key)}, any_value(the_values) AS the_values,
                   min(version) AS first_version, max(version) + 1 AS end_version
            FROM numbered GROUP BY {_quote(key)}, number
        )
        SELECT {_quote(key)}, {unpacked},
               started.timestamp AS __START_AT, ended.timestamp AS __END_AT
        FROM cut
        JOIN read_parquet('{commits}/*.parquet') AS started ON started.version = first_version
        LEFT JOIN read_parquet('{commits}/*.parquet') AS ended ON ended.version = end_version
    """


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
