"""A group of twenty tables, read by Spark, DuckDB and Polars while runs go on.

A reader must never see two versions that no publish named together. The writers stop at each point at which a
reader may look: between two commits of a run, between two views, and before and after each manifest.
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from delta_cdc import create_views, publish_versions, published, read_published
from delta_cdc.api import views
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.sql import table as sql_name
from delta_cdc.run.publication import views_manifest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

TABLES = 20
ROUNDS = 3
#: What a reader saw: the round of the rows of each table.
Seen = dict[str, int]


class Group:
    """Tables whose rows all have the number of the run that wrote them."""

    def __init__(self, folder: Path, seed: int = 7) -> None:
        self.manifest = str(folder / "published" / "sales.json")
        self.targets = {f"t{number:02d}": str(folder / f"t{number:02d}") for number in range(TABLES)}
        self.now: Seen = {}
        #: What each publish named.
        self.named: list[Seen] = []
        self._random = random.Random(seed)
        for name in self.targets:
            self._commit(name, 0)
        self.publish()

    def _commit(self, name: str, number: int) -> None:
        rows = pa.table({"run": pa.array([number] * 3, pa.int64())})
        write_deltalake(self.targets[name], rows, mode="overwrite")
        self.now[name] = number

    def run(self, number: int, look: Callable[[], None], *, looks: int = 3) -> None:
        """Commit to most tables, one after another, as a run does."""
        names = self._random.sample(sorted(self.targets), TABLES - 3)
        for done, name in enumerate(names, 1):
            self._commit(name, number)
            if done % (len(names) // looks) == 0:
                look()

    def publish(self) -> None:
        tables = {
            name: {
                "target": target,
                "target_version": DeltaTable(target).version(),
                "version": None,
                "seals": {},
            }
            for name, target in self.targets.items()
        }
        publish_versions(self.manifest, "sales", tables)
        self.named.append(dict(self.now))

    def check(self, reader: str, seen: Seen) -> None:
        """Fail if no publish named what a reader saw."""
        assert seen in self.named, f"{reader} saw tables of runs {sorted(set(seen.values()))}: {seen}"


def by_spark(spark: SparkSession, names: Any, schema: str) -> Seen:
    """Read all views of a schema in one query."""
    parts = (f"SELECT '{name}' AS name, run FROM {sql_name(schema)}.`{name}`" for name in names)
    rows = {(row["name"], row["run"]) for row in spark.sql(" UNION ALL ".join(parts)).collect()}
    assert len(rows) == TABLES, "a table shows rows of two runs"
    return dict(rows)


def by_duckdb(group: Group) -> Seen:
    tables = read_published(group.manifest)
    with duckdb.connect() as connection:
        for name in tables.names():
            connection.register(name, tables.arrow(name))
        parts = (f"SELECT '{name}' AS name, run FROM {name}" for name in tables.names())
        return dict(connection.sql(f"SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)})").fetchall())


def by_polars(group: Group) -> Seen:
    tables = read_published(group.manifest)
    frames = [
        pl.scan_delta(tables.delta_table(name)).with_columns(name=pl.lit(name)) for name in tables.names()
    ]
    rows = pl.concat(frames).select("name", "run").unique().collect()
    return dict(rows.iter_rows())


def views_now(spark: SparkSession, group: Group) -> Seen:
    return by_spark(spark, group.targets, published(views_manifest(group.manifest)).views)


@contextmanager
def between_views(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, look: Callable[[], None]
) -> Iterator[None]:
    """Call a function whenever ten views have been made."""
    made = 0
    real = type(spark).sql

    def sql(self: SparkSession, statement: str, *rest: Any, **more: Any) -> Any:
        nonlocal made
        result = real(self, statement, *rest, **more)
        if statement.startswith("CREATE OR REPLACE VIEW"):
            made += 1
            if made % (TABLES // 2) == 0:
                look()
        return result

    with monkeypatch.context() as patched:
        patched.setattr(type(spark), "sql", sql)
        yield


@pytest.mark.slow
def test_readers_see_what_one_publish_named(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = Group(tmp_path)
    create_views(spark, group.manifest, "sales")
    looks = 0

    def look() -> None:
        nonlocal looks
        looks += 1
        group.check("Spark", views_now(spark, group))
        group.check("DuckDB", by_duckdb(group))
        group.check("Polars", by_polars(group))

    look()
    for number in range(1, ROUNDS):
        held = read_published(group.manifest)
        group.run(number, look, looks=2)
        group.publish()
        look()
        with between_views(monkeypatch, spark, look):
            create_views(spark, group.manifest, "sales")
        look()
        # A reader that began before the publish keeps its versions.
        seen = {name: held.arrow(name)["run"][0].as_py() for name in held.names()}
        assert seen == group.named[-2]
    assert looks == 1 + (ROUNDS - 1) * 6
    assert views_now(spark, group) == by_duckdb(group) == group.named[-1]
    # The schemas of earlier publishes are gone, but for the last one, which queries may still read.
    assert len([row for row in spark.sql("SHOW SCHEMAS").collect() if row[0].startswith("sales_")]) == 2
    again = create_views(spark, group.manifest, "sales", keep=1)
    assert again.views == published(views_manifest(group.manifest)).views
    with pytest.raises(InvalidConfiguration, match="keep"):
        create_views(spark, group.manifest, "sales", keep=0)


@pytest.mark.slow
def test_without_the_manifest_the_tables_disagree(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the test above would see: tables at their newest versions, and views that are replaced one by "
    "one."""
    group = Group(tmp_path)
    mixed: list[str] = []

    def see(reader: str, seen: Seen) -> None:
        if seen not in group.named:
            mixed.append(reader)

    def newest() -> Seen:
        return {
            name: DeltaTable(target).to_pyarrow_table()["run"][0].as_py()
            for name, target in group.targets.items()
        }

    group.run(1, lambda: see("newest", newest()), looks=2)
    assert "newest" in mixed

    publication = published(group.manifest)
    in_place = type(publication).schema_of_views
    monkeypatch.setattr(type(publication), "schema_of_views", lambda self, schema: f"{schema}_in_place")
    try:
        monkeypatch.setattr(views, "_old", lambda *_: ())
        create_views(spark, group.manifest, "fixed")
        group.publish()
        (tmp_path / "published" / "sales.views.json").unlink()

        def look() -> None:
            see("views", by_spark(spark, group.targets, "fixed_in_place"))

        with between_views(monkeypatch, spark, look):
            create_views(spark, group.manifest, "fixed")
    finally:
        monkeypatch.setattr(type(publication), "schema_of_views", in_place)
        spark.sql("DROP SCHEMA IF EXISTS fixed_in_place CASCADE")
    assert "views" in mixed


def test_masked_rows_and_other_schemas(spark: SparkSession, tmp_path: Path) -> None:
    target = str(tmp_path / "masked")
    spark.sql(
        f"CREATE TABLE delta.`{target}` USING delta TBLPROPERTIES ('delta.enableDeletionVectors' = 'true') "
        "AS SELECT /*+ REPARTITION(1) */ id FROM range(10)"
    )
    spark.sql(f"DELETE FROM delta.`{target}` WHERE id = 3")
    manifest = str(tmp_path / "m.json")
    publish_versions(manifest, "other", {"p": {"target": target, "target_version": 1}})
    spark.sql("CREATE SCHEMA IF NOT EXISTS masked_1")
    try:
        found = create_views(spark, manifest, "masked", keep=1)
        tables = read_published(manifest)
        expected = [number for number in range(10) if number != 3]
        assert sorted(tables.arrow("p")["id"].to_pylist()) == expected
        assert tables.arrow("p", "SELECT id FROM target WHERE id < 2").num_rows == 2
        assert sorted(pl.scan_delta(tables.delta_table("p")).collect()["id"].to_list()) == expected
        assert sorted(row[0] for row in spark.table(f"{found.views}.p").collect()) == expected
        # Another schema whose name looks like that of an old publish stays.
        assert spark.catalog.databaseExists("masked_1")
    finally:
        for row in spark.sql("SHOW SCHEMAS LIKE 'masked_*'").collect():
            spark.sql(f"DROP SCHEMA `{row[0]}` CASCADE")


@pytest.mark.parametrize("group", ["sales", "url_events", "tokens"])
def test_old_views_are_dropped_whatever_the_name_of_the_group(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    table = str(tmp_path / "t")
    manifest = str(tmp_path / "m.json")
    spark.range(3).write.format("delta").save(table)
    made = []
    try:
        for version in range(4):
            if version:
                spark.range(1).write.format("delta").mode("append").save(table)
            publish_versions(manifest, group, {"t": {"target": table, "target_version": version}})
            made.append(create_views(spark, manifest, f"v_{group}").views)
        left = [name for name in made if spark.catalog.databaseExists(name)]
        assert left == made[-2:]
    finally:
        for name in made:
            spark.sql(f"DROP SCHEMA IF EXISTS {name} CASCADE")
