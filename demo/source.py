"""The source tables: TPC-H ``orders`` and ``customer``, and what happens to them round by round.

The benchmark's refresh functions are defined on its sparse order keys: 8 of every 32 are in use, so a new
order gets the key of an existing one + 8. Everything is chosen by a hash of key and round: two runs of the
demo make the same changes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Self

from delta_cdc import get_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from demo.places import Places

SCALE_FACTOR = 0.1
#: Orders that each refresh function inserts or deletes: 0.1 % of the table, as the benchmark says.
REFRESH = int(1_500_000 * SCALE_FACTOR * 0.001)

_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")


class Source:
    """A Spark session that plays the owner of the source tables.

    :param places: where the tables are
    """

    def __init__(self, places: Places) -> None:
        self._places = places
        with _errors_to(places.log):
            self.spark: SparkSession = get_session(
                "delta-cdc-demo-source",
                quick_start=True,
                **{"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS", "spark.driver.memory": "1g"},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.spark.stop()

    # -- tables ---------------------------------------------------------------------------------
    def create(self) -> dict[str, int]:
        """Create both tables from the generated files; return their numbers of rows."""
        rows = {}
        for name in ("orders", "customer"):
            raw = self._raw(name)
            self._run(f"CREATE TABLE {self._table(name)} USING delta AS SELECT * FROM {raw}")
            rows[name] = self.spark.sql(f"SELECT count(*) FROM {self._table(name)}").first()[0]
        return rows

    def version(self, name: str) -> int:
        """Return a table's newest version."""
        newest = self.spark.sql(f"DESCRIBE HISTORY {self._table(name)} LIMIT 1").first()
        return int(newest["version"])

    # -- rounds ---------------------------------------------------------------------------------
    def change(self, number: int) -> None:
        """Commit one round of changes: four versions of ``orders``, three of ``customer``.

        :param number: the round, from 1; each one takes other rows
        """
        self._refresh_orders(number)
        self._update_orders(number)
        self._update_customers(number)
        self._come_and_go(number)

    def _refresh_orders(self, number: int) -> None:
        """The benchmark's refresh functions 1 (new orders) and 2 (deletes)."""
        orders, raw = self._table("orders"), self._raw("orders")
        first = (number - 1) * REFRESH
        new = _slice_of(raw, "o_orderkey", "new", first, REFRESH, "o_orderkey + 8")
        self._run(f"INSERT INTO {orders} {new}")
        gone = _keys_of(raw, "o_orderkey", "gone", first, REFRESH)
        self._delete(orders, "o_orderkey", gone)

    def _update_orders(self, number: int) -> None:
        """Prices of some orders, then the status of some, with orders that are in both."""
        orders = self._table("orders")
        self._run(
            f"UPDATE {orders} SET o_totalprice = CAST(o_totalprice * 1.0{number} AS DECIMAL(15,2)) "
            f"WHERE {_one_in(200, 'o_orderkey', f'price {number}')}"
        )
        self._run(
            f"UPDATE {orders} SET o_orderstatus = 'F', o_comment = NULL "
            f"WHERE {_one_in(1000, 'o_orderkey', f'status {number}')} "
            f"OR {_one_in(2000, 'o_orderkey', f'price {number}')}"
        )

    def _update_customers(self, number: int) -> None:
        """Segments of some customers, then addresses of some, with customers that are in both."""
        customer = self._table("customer")
        following = " ".join(
            f"WHEN '{one}' THEN '{_SEGMENTS[(i + 1) % len(_SEGMENTS)]}'" for i, one in enumerate(_SEGMENTS)
        )
        self._run(
            f"UPDATE {customer} SET c_mktsegment = CASE c_mktsegment {following} ELSE c_mktsegment END "
            f"WHERE {_one_in(50, 'c_custkey', f'segment {number}')}"
        )
        self._run(
            f"UPDATE {customer} SET c_address = concat('{number} ', substring(md5(c_address), 1, 12)) "
            f"WHERE {_one_in(100, 'c_custkey', f'address {number}')} "
            f"OR {_one_in(200, 'c_custkey', f'segment {number}')}"
        )

    def _come_and_go(self, number: int) -> None:
        """Customers that are new (round 1), leave (round 2), and come back (round 3)."""
        customer, raw = self._table("customer"), self._raw("customer")
        leaving = _keys_of(raw, "c_custkey", "leaving", 0, 100)
        if number == 1:
            new = _slice_of(raw, "c_custkey", "new", 0, 100, "c_custkey + 1000000")
            self._run(f"INSERT INTO {customer} {new}")
        elif number == 2:
            self._delete(customer, "c_custkey", leaving)
        else:
            returning = _keys_of(raw, "c_custkey", "leaving", 0, 60)
            self._run(f"INSERT INTO {customer} SELECT * FROM {raw} WHERE c_custkey IN ({returning})")

    # -- for the check --------------------------------------------------------------------------
    def export(self, name: str, *, newest_only: bool = True, first: int = 0) -> Path:
        """Write a table's rows as Parquet, for another engine to read.

        :param newest_only: only the newest version; else every version from ``first`` on, each as its own
            snapshot, in partitions ``version=…``
        :return: the folder
        """
        folder = self._places.exports / name
        if newest_only:
            self.spark.table(self._table(name)).write.parquet(str(folder))
            return folder
        for version in range(first, self.version(name) + 1):
            rows = self.spark.sql(f"SELECT * FROM {self._table(name)} VERSION AS OF {version}")
            rows.write.parquet(str(folder / f"version={version}"))
        return folder

    def export_commits(self, name: str) -> Path:
        """Write version and commit time of every commit of a table as Parquet; return the folder."""
        folder = self._places.exports / f"{name}_commits"
        history = self.spark.sql(f"DESCRIBE HISTORY {self._table(name)}").select("version", "timestamp")
        history.write.parquet(str(folder))
        return folder

    # -- SQL ------------------------------------------------------------------------------------
    def _delete(self, table: str, key: str, keys: str) -> None:
        """Delete by a query of keys (Delta's DELETE takes no subquery)."""
        self._run(
            f"MERGE INTO {table} AS t USING ({keys}) AS k ON t.{key} = k.{key} WHEN MATCHED THEN DELETE"
        )

    def _run(self, statement: str) -> None:
        self.spark.sql(statement)

    def _table(self, name: str) -> str:
        return f"delta.`{self._places.table(name)}`"

    def _raw(self, name: str) -> str:
        return f"parquet.`{self._places.raw / name}.parquet`"


def generate(places: Places) -> None:
    """Write TPC-H ``orders`` and ``customer`` as Parquet files, with the benchmark's own generator.

    :raises RuntimeError: if the generator fails
    """
    generator = Path(sys.executable).parent / "tpchgen-cli"
    places.raw.mkdir(parents=True, exist_ok=True)
    command = [str(generator), "parquet", "--scale-factor", str(SCALE_FACTOR), "--tables", "orders,customer"]
    done = subprocess.run(
        [*command, "--output-dir", str(places.raw)], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"tpchgen-cli failed: {done.stderr.strip() or done.stdout.strip()}")


@contextlib.contextmanager
def _errors_to(log: Path) -> Iterator[None]:
    """Send to a file what this process, and every process started meanwhile, writes to stderr."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with log.open("a") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _one_in(parts: int, key: str, what: str) -> str:
    """Return a predicate that holds for one key in so many, always the same ones."""
    return f"pmod(xxhash64({key}, '{what}'), {parts}) = 0"


def _keys_of(raw: str, key: str, what: str, first: int, count: int) -> str:
    """Return a query for ``count`` keys of a table, in an order that belongs to ``what``."""
    return f"SELECT {key} FROM {raw} ORDER BY xxhash64({key}, '{what}'), {key} LIMIT {count} OFFSET {first}"


def _slice_of(raw: str, key: str, what: str, first: int, count: int, new_key: str) -> str:
    """Return a query for ``count`` rows of a table, under new keys (the key is the first column)."""
    keys = _keys_of(raw, key, what, first, count)
    return f"SELECT {new_key}, * EXCEPT ({key}) FROM {raw} WHERE {key} IN ({keys})"
