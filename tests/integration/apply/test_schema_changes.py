"""One history in which columns are added, widened, dropped and renamed, followed by each policy.

The model is plain Python: it plays the same commits on rows that are dicts. Each statement is one version.
"""

from __future__ import annotations

import json
import random
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from delta_cdc.core import failpoints
from delta_cdc.core.errors import LimitExceeded, SchemaChangeInRange, TargetSchemaClash
from tests.support import oracle
from tests.support.engine import metadata, newest, table_rows
from tests.support.event_flow import LogFlow
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome

START, END = "__START_AT", "__END_AT"
#: Types of columns, in the order in which Delta widens them, with values that each of them holds.
WIDENING = {"SMALLINT": ("INT", 30_000), "INT": ("BIGINT", 2_000_000_000), "FLOAT": ("DOUBLE", 0.25)}
Row = dict[str, Any]


class Killed(BaseException):
    pass


@dataclass
class Model:
    """A target by the rules: ``rows`` of type 1 by key, ``history`` of type 2, and the source's rows.

    :param keeps: a column that the source drops stays, with NULL in new rows
    :param kept: such columns
    """

    keeps: bool = False
    columns: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    source: dict[int, Row] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)
    history: list[Row] = field(default_factory=list)

    def drop(self, name: str) -> None:
        self.columns.remove(name)
        if self.keeps:
            self.kept.append(name)
        for row in self.source.values():
            row.pop(name, None)
        for row in () if self.keeps else (*self.rows.values(), *self.history):
            row.pop(name, None)

    def rename(self, name: str, new: str) -> None:
        self.columns[self.columns.index(name)] = new
        for row in (*self.source.values(), *self.rows.values(), *self.history):
            row[new] = row.pop(name, None)

    def write(self, version: int, key: int, values: Row | None) -> None:
        """Insert or update a row; None deletes it."""
        before, now = self.source.pop(key, None), None
        if values is not None:
            now = self.source[key] = {**(before or {}), **values, "id": key}
        if before is not None and now is not None and all(before.get(n) == now.get(n) for n in self.columns):
            return
        for row in self.history:
            if row["id"] == key and row[END] is None:
                row[END] = version
        if now is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = {**self.rows.get(key, {}), **now}
            self.history.append({**now, START: version, END: None})

    def expected(self, scd: int) -> tuple[set[str], list[tuple[Any, ...]]]:
        """Return the names and the rows of a target."""
        names = {"id", *self.columns, *self.kept} | ({START, END} if scd == 2 else set())
        rows = self.history if scd == 2 else self.rows.values()
        return names, oracle.rows_of([dict.fromkeys(names) | row for row in rows], sorted(names))


@dataclass
class History:
    """A source table, and by version the models of targets that mirror its columns, and that keep them."""

    spark: SparkSession
    path: str
    models: list[tuple[Model, Model]] = field(default_factory=list)
    statements: list[str] = field(default_factory=list)

    @property
    def now(self) -> Model:
        return self.models[-1][0]

    def _play(self, statement: str, change: str = "", *arguments: Any) -> None:
        self.statements.append(statement)
        self.spark.sql(statement.replace("{t}", f"delta.`{self.path}`"))
        version = len(self.models)
        assert newest(self.path) == version, statement
        models = deepcopy(self.models[-1]) if self.models else (Model(), Model(keeps=True))
        for model in models:
            if change == "write":
                for key, values in arguments[0].items():
                    model.write(version, key, values)
            elif change == "add":
                model.columns += arguments
            elif change:
                getattr(model, change)(*arguments)
        self.models.append(models)

    def create(self, **columns: str) -> None:
        types = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        self._play(
            f"CREATE TABLE {{t}} (id INT NOT NULL, {types}) USING delta TBLPROPERTIES "
            "('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name', "
            "'delta.enableTypeWidening' = 'true')",
            "add",
            *columns,
        )

    def insert(self, *rows: Row) -> None:
        names = [name for name in rows[0] if name != "id"]
        values = ", ".join(f"({', '.join(repr(row[name]) for name in ('id', *names))})" for row in rows)
        self._play(
            f"INSERT INTO {{t}} (id, {', '.join(names)}) VALUES {values}",
            "write",
            {row["id"]: {name: row.get(name) for name in self.now.columns} for row in rows},
        )

    def update(self, key: int, **values: Any) -> None:
        sets = ", ".join(f"{name} = {value!r}" for name, value in values.items())
        self._play(f"UPDATE {{t}} SET {sets} WHERE id = {key}", "write", {key: values})

    def delete(self, key: int) -> None:
        self._play(f"DELETE FROM {{t}} WHERE id = {key}", "write", {key: None})

    def add(self, name: str, kind: str, comment: str = "") -> None:
        text = f" COMMENT '{comment}'" if comment else ""
        self._play(f"ALTER TABLE {{t}} ADD COLUMN {name} {kind}{text}", "add", name)

    def alter(self, name: str, text: str) -> None:
        self._play(f"ALTER TABLE {{t}} ALTER COLUMN {name} {text}")

    def drop(self, name: str) -> None:
        self._play(f"ALTER TABLE {{t}} DROP COLUMN {name}", "drop", name)

    def rename(self, name: str, new: str) -> None:
        self._play(f"ALTER TABLE {{t}} RENAME COLUMN {name} TO {new}", "rename", name, new)

    def apply(self, target: str, scd: int, policy: str | None = None, **given: Any) -> Outcome:
        """Apply the source to a target."""
        policies = {"schema_evolution": policy} if policy else None
        arguments = {"keys": ["id"], "stored_as_scd_type": scd, "pipeline": "p", "policies": policies}
        return apply_changes(self.spark, self.path, target, **{**arguments, **given})

    def check(self, target: str, scd: int, *, keeps: bool = False, version: int | None = None) -> None:
        """Compare a target with the model."""
        names, expected = self.models[-1 if version is None else version][keeps].expected(scd)
        rows = table_rows(self.spark, target)
        assert set(rows[0]) == names
        assert oracle.rows_of(rows, sorted(names)) == expected, self.statements


#: Versions of the history below, after which one more policy is needed.
LOADED, WIDENED, DROPPED, RENAMED = 1, 6, 9, 11


@pytest.fixture(scope="module")
def one(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> History:
    """The history in which all of it happens."""
    history = History(spark, str(tmp_path_factory.mktemp("schema") / "source"))
    history.create(name="STRING", size="INT", note="STRING")
    history.insert(*[{"id": key, "name": f"n{key}", "size": key, "note": f"o{key}"} for key in range(1, 5)])
    history.add("city", "STRING", "where it lies")
    history.insert({"id": 5, "name": "n5", "size": 5, "note": "o5", "city": "c5"})
    history.alter("size", "TYPE BIGINT")
    history.update(1, size=3_000_000_000)
    history.alter("name", "COMMENT 'what it is called'")
    history.drop("note")
    history.insert({"id": 6, "name": "n6", "size": 6, "city": "c6"})
    history.update(3, name="n3b")
    history.rename("name", "full_name")
    history.update(4, full_name="n4b")
    history.add("note", "INT")
    history.insert({"id": 7, "full_name": "n7", "size": 7, "city": "c7", "note": 7})
    return history


def comments(table: str) -> dict[str, str]:
    fields = json.loads(metadata(table)["schemaString"])["fields"]
    return {f["name"]: f["metadata"]["comment"] for f in fields if "comment" in f["metadata"]}


@pytest.mark.slow
@pytest.mark.parametrize("scd", slow_but([1, 2], 1))
def test_each_policy_follows_what_it_says_and_refuses_the_rest(
    one: History, tmp_path: Path, scd: int
) -> None:
    target = str(tmp_path / "target")
    one.apply(target, scd, "mirror", ending_version=LOADED)
    for refused, remedy, policy, end, keeps in (
        (None, "'widen' or 'keep_dropped' or 'mirror'", "widen", WIDENED, True),
        ("widen", "'keep_dropped' or 'mirror'", "keep_dropped", DROPPED, True),
        ("keep_dropped", "'mirror'", "mirror", RENAMED, True),
    ):
        with pytest.raises(SchemaChangeInRange, match=f"schema_evolution in policies to {remedy}"):
            one.apply(target, scd, refused, ending_version=end)
        one.apply(target, scd, policy, ending_version=end)
        one.check(target, scd, keeps=keeps, version=end)
    assert comments(target) == {"city": "where it lies", "full_name": "what it is called"}
    assert one.spark.read.format("delta").load(target).schema["size"].dataType.simpleString() == "bigint"


@pytest.mark.slow
def test_a_partial_event_keeps_the_value_of_a_renamed_column(spark: SparkSession, tmp_path: Path) -> None:
    """NULL updates nothing: the target's row gives the value, from the column with its new name."""
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    arguments = {
        "pipeline": "p",
        "keys": ["id"],
        "source_kind": "change_log",
        "sequence_by": "at",
        "ignore_null_updates": True,
        "except_column_list": ["at"],
        "policies": {"schema_evolution": "mirror"},
    }
    spark.sql(
        f"CREATE TABLE delta.`{log}` (id INT, name STRING, size INT, at BIGINT) "
        "USING delta TBLPROPERTIES ('delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{log}` VALUES (1, 'n1', 1, 1)")
    apply_changes(spark, log, target, **arguments)
    spark.sql(f"ALTER TABLE delta.`{log}` RENAME COLUMN name TO full_name")
    spark.sql(f"INSERT INTO delta.`{log}` VALUES (1, NULL, 2, 2)")
    # Rows that were computed for the old columns would cost an attempt.
    assert apply_changes(spark, log, target, **arguments).effort.attempts_lost == 0
    assert table_rows(spark, target) == [{"id": 1, "full_name": "n1", "size": 2}]


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_crash_between_altering_and_the_commit(one: History, tmp_path: Path, scd: int) -> None:
    """Each retry meets a target that has some of its changes, and goes on from there."""
    target = str(tmp_path / "target")
    one.apply(target, scd, "mirror", ending_version=LOADED)
    died = []

    def die(point: str) -> None:
        if point == "altered":
            died.append(newest(target))
            raise Killed

    remove = failpoints.install(die)
    try:
        with pytest.raises(Killed):
            one.apply(target, scd, "mirror")
    finally:
        remove()
    one.apply(target, scd, "mirror")
    assert died
    one.check(target, scd)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        "ADD COLUMN at TIMESTAMP_NTZ",
        "ADD COLUMN at STRUCT<x: TIMESTAMP_NTZ>",
        "ALTER COLUMN day TYPE TIMESTAMP_NTZ",
    ],
)
def test_a_target_gets_times_without_a_zone(spark: SparkSession, tmp_path: Path, change: str) -> None:
    """Its table does not have the feature until then."""
    flow = flow_of(spark, tmp_path, "id INT, day DATE", "'delta.enableTypeWidening' = 'true'", "widen")
    sql(flow, "INSERT INTO {} VALUES (1, DATE'2026-01-01')")
    flow.apply()
    sql(flow, "ALTER TABLE {} SET TBLPROPERTIES ('delta.feature.timestampNtz' = 'supported')")
    name = change.split()[2]
    value = "TIMESTAMP_NTZ'2026-01-02 03:04:05'"
    value = f"named_struct('x', {value})" if "STRUCT" in change else value
    sql(flow, f"ALTER TABLE {{}} {change}", f"UPDATE {{}} SET {name} = {value}")
    flow.apply()
    assert table_rows(spark, flow.target) == table_rows(spark, flow.log)
    sql(flow, "UPDATE {} SET day = NULL")
    flow.apply()
    assert table_rows(spark, flow.target) == table_rows(spark, flow.log)


MAPPED = "'delta.columnMapping.mode' = 'name'"


def flow_of(
    spark: SparkSession, folder: Path, columns: str, more: str, policy: str = "mirror", scd: int = 1
) -> LogFlow:
    """Make a source with a change feed, and return its pipeline.

    :param more: further properties
    """
    source = str(folder / "source")
    properties = f"TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', {more})"
    spark.sql(f"CREATE TABLE delta.`{source}` ({columns}) USING delta {properties}")
    options = {
        "source_kind": "change_feed",
        "keys": ["id"],
        "schema_evolution": policy,
        "stored_as_scd_type": scd,
    }
    return LogFlow(spark, source, str(folder / "target"), options, pipeline="p")


def sql(flow: LogFlow, *statements: str) -> None:
    """Run statements on the source of a pipeline."""
    for statement in statements:
        flow.spark.sql(statement.format(f"delta.`{flow.log}`"))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["incremental", "reload"])
def test_a_second_rename_after_a_crash_loses_no_values(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """The target has followed the first rename, and has neither name of the whole range."""
    flow = flow_of(spark, tmp_path, "id INT, a STRING, n INT", MAPPED)
    sql(flow, "INSERT INTO {} VALUES (1, 'x', 1), (2, 'y', 2)")
    flow.apply()
    sql(flow, "ALTER TABLE {} RENAME COLUMN a TO b")

    def die(point: str) -> None:
        if point == "altered":
            raise Killed

    remove = failpoints.install(die)
    try:
        with pytest.raises(Killed):
            flow.apply()
    finally:
        remove()
    sql(flow, "ALTER TABLE {} RENAME COLUMN b TO c", "UPDATE {} SET n = 10 WHERE id = 1")
    with pytest.raises(TargetSchemaClash, match="has neither name"):
        flow.apply(mode=mode)
    spark.sql(f"ALTER TABLE delta.`{flow.target}` RENAME COLUMN b TO c")
    flow.apply(mode=mode)
    rows = [(row["id"], row["c"], row["n"]) for row in table_rows(spark, flow.target)]
    assert sorted(rows) == [(1, "x", 10), (2, "y", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "scd"), [("incremental", 2), ("reload", 1), ("reload", 2)])
def test_a_limit_does_not_count_rows_whose_column_was_renamed(
    spark: SparkSession, tmp_path: Path, mode: str, scd: int
) -> None:
    """It is checked before the target's columns are altered."""
    flow = flow_of(spark, tmp_path, "id INT, a STRING, n INT", MAPPED, scd=scd)
    sql(flow, "INSERT INTO {} VALUES (1, 'x', 1), (2, 'y', 2), (3, 'z', 3), (4, 'u', 4)")
    flow.apply()
    sql(flow, "ALTER TABLE {} RENAME COLUMN a TO b", "UPDATE {} SET n = 10 WHERE id = 1")
    sql(flow, "DELETE FROM {} WHERE id = 3")
    with pytest.raises(LimitExceeded, match=r"it would (change 2|end 1) of 4 rows"):
        flow.apply(mode=mode, max_changed=1)
    assert "a" in table_rows(spark, flow.target)[0]
    flow.apply(mode=mode, max_changed=2)
    rows = [row for row in table_rows(spark, flow.target) if row.get(END) is None]
    assert sorted((row["id"], row["b"], row["n"]) for row in rows) == [(1, "x", 10), (2, "y", 2), (4, "u", 4)]


@pytest.mark.slow
@pytest.mark.parametrize("change", ["DROP COLUMN note", "RENAME COLUMN note TO remark"])
def test_a_late_plan_alters_no_column_that_came_since(
    spark: SparkSession, tmp_path: Path, change: str
) -> None:
    """As an application that waits for the cluster, while a retry applies its range, and later ones."""
    flow = flow_of(spark, tmp_path, "id INT, name STRING, note STRING", MAPPED)
    sql(flow, "INSERT INTO {} VALUES (1, 'a', 'old'), (2, 'b', 'old')")
    flow.apply(1)
    sql(flow, f"ALTER TABLE {{}} {change}", "UPDATE {} SET name = 'a2' WHERE id = 1")
    late = flow.planned(3)
    assert late is not None
    flow.apply(3)
    sql(flow, "ALTER TABLE {} ADD COLUMN note STRING", "UPDATE {} SET note = 'new' WHERE id = 1")
    flow.apply(5)
    before = table_rows(spark, flow.target)
    assert "new" in [row["note"] for row in before]
    flow.run_late(late)
    assert table_rows(spark, flow.target) == before


@pytest.mark.slow
def test_another_writer_alters_the_target_first(one: History, tmp_path: Path) -> None:
    """Its rename and ours meet: the run plans again, on the target as it is then."""
    target = str(tmp_path / "target")
    one.apply(target, 1, "mirror", ending_version=DROPPED)
    raced = []

    def race(point: str) -> None:
        if point == "planned" and not raced:
            raced.append(point)
            one.spark.sql(f"ALTER TABLE delta.`{target}` RENAME COLUMN name TO full_name")

    remove = failpoints.install(race)
    try:
        one.apply(target, 1, "mirror", ending_version=RENAMED)
    finally:
        remove()
    one.check(target, 1, version=RENAMED)


@pytest.mark.slow
def test_a_dry_run_shows_the_statements_and_alters_nothing(one: History, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    one.apply(target, 1, "mirror", ending_version=DROPPED)
    before = newest(target)
    result = one.apply(target, 1, "mirror", ending_version=RENAMED, dry_run=True)
    assert result.dry_run is not None
    first, *_, last = result.dry_run["statements"]
    assert first.endswith("RENAME COLUMN `name` TO `full_name`")
    assert last.startswith("MERGE")
    assert newest(target) == before


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_reload_follows_all_changes_at_once(one: History, tmp_path: Path, scd: int) -> None:
    target = str(tmp_path / "target")
    one.apply(target, scd, "mirror", ending_version=LOADED)
    one.apply(target, scd, "mirror", mode="reload")
    rows = [row for row in table_rows(one.spark, target) if row.get(END) is None]
    names = ("id", "full_name", "size", "city", "note")
    assert set(names) <= set(rows[0])
    assert oracle.rows_of(rows, names) == oracle.rows_of(
        [dict.fromkeys(names) | row for row in one.now.rows.values()], names
    )


@pytest.mark.slow
def test_a_name_that_others_use_again(spark: SparkSession, tmp_path: Path) -> None:
    history = History(spark, str(tmp_path / "source"))
    history.create(a="STRING", b="STRING")
    history.insert(*[{"id": key, "a": f"a{key}", "b": f"b{key}"} for key in range(3)])
    history.rename("a", "between")
    history.rename("b", "a")
    history.rename("between", "b")
    history.update(1, a="a1b")
    for scd in (1, 2):
        target = str(tmp_path / f"target{scd}")
        history.apply(target, scd, "mirror", ending_version=1)
        history.apply(target, scd, "mirror")
        history.check(target, scd)


@pytest.mark.slow
def test_a_target_that_was_made_without_column_mapping(one: History, tmp_path: Path) -> None:
    target = str(tmp_path / "target")
    one.apply(target, 1, ending_version=LOADED)
    with pytest.raises(TargetSchemaClash, match="maps no columns"):
        one.apply(target, 1, "mirror")
    one.spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    one.apply(target, 1, "mirror")
    one.check(target, 1)


@pytest.mark.slow
def test_not_null_is_relaxed(spark: SparkSession, tmp_path: Path) -> None:
    history = History(spark, str(tmp_path / "source"))
    history.create(a="STRING NOT NULL")
    history.insert({"id": 1, "a": "x"})
    target = str(tmp_path / "target")
    spark.sql(f"CREATE TABLE delta.`{target}` (id INT, a STRING NOT NULL) USING delta")
    history.apply(target, 1, ending_version=1)
    history.alter("a", "DROP NOT NULL")
    history.update(1, a="y")
    history.apply(target, 1, "widen")
    assert spark.read.format("delta").load(target).schema["a"].nullable
    history.check(target, 1)


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_fields_of_structs(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    history = History(spark, source)
    history.create(at="STRUCT<x: INT, y: STRING>", all="ARRAY<INT>")

    def run(statement: str) -> None:
        spark.sql(statement.replace("{t}", f"delta.`{source}`"))

    run("INSERT INTO {t} VALUES (1, named_struct('x', 1, 'y', 'a'), array(1)), (2, NULL, NULL)")
    history.apply(target, scd, "mirror")
    run("ALTER TABLE {t} ALTER COLUMN at.x TYPE BIGINT")
    run("ALTER TABLE {t} ALTER COLUMN all.element TYPE BIGINT")
    run("UPDATE {t} SET at = named_struct('x', 3000000000, 'y', 'b'), all = array(3000000000) WHERE id = 1")
    run("ALTER TABLE {t} RENAME COLUMN at.x TO k")
    run("ALTER TABLE {t} DROP COLUMN at.y")
    run("INSERT INTO {t} VALUES (3, named_struct('k', 3), array(3))")
    with pytest.raises(SchemaChangeInRange, match="'mirror'"):
        history.apply(target, scd, "keep_dropped")
    history.apply(target, scd, "mirror")
    rows = table_rows(spark, target)
    names = ("id", "at", "all")
    expected = spark.read.format("delta").load(source)
    current = [row for row in rows if row.get(END) is None]
    found = [dict(zip(expected.columns, row, strict=True)) for row in expected.collect()]
    assert oracle.rows_of(current, names) == oracle.rows_of(found, names)


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_a_field_in_arrays_of_arrays_is_dropped_and_added(
    spark: SparkSession, tmp_path: Path, scd: int
) -> None:
    """Delta's MERGE cannot add such a field, so an ALTER does."""
    flow = flow_of(spark, tmp_path, "id INT, deep ARRAY<ARRAY<STRUCT<x: INT, y: INT>>>", MAPPED, scd=scd)
    one, two = (f"array(array(named_struct('x', {number}, 'y', {number})))" for number in (1, 2))
    sql(flow, f"INSERT INTO {{}} VALUES (1, {one}), (2, {one})")
    flow.apply()
    sql(
        flow,
        "ALTER TABLE {} DROP COLUMN deep.element.element.y",
        "ALTER TABLE {} ADD COLUMN deep.element.element.y INT",
        f"UPDATE {{}} SET deep = {two} WHERE id = 1",
    )
    assert flow.apply().effort.attempts_lost == 0
    rows = [(row["id"], row["deep"]) for row in table_rows(spark, flow.target) if row.get(END) is None]
    found = {number: [[field.asDict() for field in part] for part in deep] for number, deep in rows}
    assert found == {1: [[{"x": 2, "y": 2}]], 2: [[{"x": 1, "y": None}]]}


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_the_case_of_a_column_changes_within_a_range(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    flow = flow_of(spark, tmp_path, "id INT, Name STRING, n INT", "'x' = 'y'", "widen", scd)
    sql(flow, "INSERT INTO {} VALUES (1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    flow.apply()
    sql(flow, "UPDATE {} SET Name = 'a2' WHERE id = 1")
    rows = spark.read.format("delta").load(flow.log).withColumnRenamed("Name", "NAME")
    rows = rows.withColumn("n", rows.n + 1)
    rows.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(flow.log)
    sql(flow, "UPDATE {} SET name = 'b2' WHERE id = 2")
    flow.apply()
    rows = [row for row in table_rows(spark, flow.target) if row.get(END) is None]
    found = sorted((row["id"], next(row[n] for n in row if n.lower() == "name"), row["n"]) for row in rows)
    assert found == [(1, "a2", 2), (2, "b2", 3), (3, "c", 4)]


# -- drawn histories ------------------------------------------------------------------------------
@dataclass
class Drawn:
    """Statements that a seed draws.

    :param kinds: the types of the source's columns
    :param used: names that are free or taken; names come back, also those of other columns
    """

    history: History
    draw: random.Random
    kinds: dict[str, str] = field(
        default_factory=lambda: {"name": "STRING", "size": "SMALLINT", "rate": "FLOAT"}
    )
    used: list[str] = field(default_factory=lambda: ["name", "size", "rate"])

    def play(self, length: int) -> None:
        self.history.create(**self.kinds)
        self.history.insert(*[self.row(key) for key in range(8)])
        for position in range(length):
            kind = self.draw.choice(["rows", "rows", "rows", "rows", "add", "widen", "drop", "rename"])
            if kind == "rows":
                self.play_rows(position)
            else:
                self.play_columns(kind, f"c{position}")

    def value(self, name: str) -> Any:
        kind = self.kinds[name]
        if kind == "STRING":
            return f"v{self.draw.randrange(100)}"
        if kind in ("FLOAT", "DOUBLE"):
            return self.draw.choice([0.5, 0.25])
        return self.draw.choice([1, WIDENING.get(kind, ("", 3_000_000_000))[1]])

    def row(self, key: int) -> Row:
        return {"id": key, **{name: self.value(name) for name in self.kinds}}

    def play_rows(self, position: int) -> None:
        keys = list(self.history.now.source)
        kind = self.draw.choice(["insert", "update", "update", "delete"])
        if kind == "insert" or not keys:
            self.history.insert(*[self.row(100 * (position + 1) + number) for number in range(2)])
        elif kind == "delete":
            self.history.delete(self.draw.choice(keys))
        else:
            names = self.draw.sample(list(self.kinds), self.draw.randint(1, min(2, len(self.kinds))))
            self.history.update(self.draw.choice(keys), **{name: self.value(name) for name in names})

    def play_columns(self, kind: str, unused: str) -> None:
        narrow = [name for name, of in self.kinds.items() if of in WIDENING]
        if kind == "widen" and narrow:
            name = self.draw.choice(narrow)
            self.kinds[name] = WIDENING[self.kinds[name]][0]
            self.history.alter(name, f"TYPE {self.kinds[name]}")
            return
        if kind == "drop" and len(self.kinds) > 1:
            name = self.draw.choice(list(self.kinds))
            del self.kinds[name]
            self.history.drop(name)
            return
        new = self.draw.choice([name for name in (*self.used, unused) if name not in self.kinds])
        self.used.append(new)
        if kind == "rename":
            name = self.draw.choice(list(self.kinds))
            self.kinds[new] = self.kinds.pop(name)
            self.history.rename(name, new)
        else:
            self.kinds[new] = self.draw.choice(["STRING", *WIDENING])
            self.history.add(new, self.kinds[new])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 11), ids="seed{}".format)
def test_drawn_histories_are_mirrored(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    history = History(spark, str(tmp_path / "source"))
    Drawn(history, draw).play(16)
    scd = 1 + seed % 2
    target = str(tmp_path / "target")
    last = len(history.models) - 1
    history.apply(target, scd, "mirror", ending_version=1)
    for end in sorted({draw.randint(2, last), last}):
        history.apply(target, scd, "mirror", ending_version=end)
        history.check(target, scd, version=end)


@pytest.mark.slow
def test_a_plan_that_comes_after_the_target_was_widened_is_skipped(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = str(tmp_path / "source")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, n INT) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.enableTypeWidening' = 'true')"
    )
    options = {
        "source_kind": "change_feed",
        "keys": ["id"],
        "stored_as_scd_type": 1,
        "schema_evolution": "widen",
        "versions_per_commit": 1,
    }
    flow = LogFlow(spark, source, str(tmp_path / "target"), options, pipeline="p")
    flow.apply(0)
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 1)")
    spark.sql(f"ALTER TABLE delta.`{source}` ALTER COLUMN n TYPE BIGINT")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (2, 5000000000)")
    late = flow.planned(3)
    assert late is not None
    assert [step.starting_version for step in late.steps] == [1, 2]
    flow.apply(3)
    # Its first step reads an INT column, and the target's is BIGINT by now.
    flow.run_late(late)
    assert sorted(row["n"] for row in flow.rows()) == [1, 5000000000]
