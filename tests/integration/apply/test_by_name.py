"""Fields of structs match by name, in whatever order source and target have them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from delta_cdc import job
from delta_cdc.core.errors import ConfigurationDrift
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run.verify import run_verify
from tests.support.engine import newest, table_rows, versions
from tests.support.event_flow import LogFlow
from tests.support.nested_names import Layout, Node, drawn_node, drawn_value, read
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.core.checks import Check

Key = tuple[int, int]
Values = dict[str, Any]
SOURCE_KEY, TARGET_KEY = "STRUCT<i: INT, j: INT>", "STRUCT<J: INT, i: INT>"
LOG = {"source_kind": "change_log", "keys": ["k"], "sequence_by": "seq", "except_column_list": ["seq"]}
FEED = {"source_kind": "change_feed", "keys": ["k"]}
KINDS: dict[str, dict[str, Any]] = {
    "log, type 1": LOG,
    "log, type 2": {**LOG, "stored_as_scd_type": 2},
    "log, soft deletes": {**LOG, "delete_mode": "soft"},
    "feed, type 1": FEED,
    "feed, type 2": {**FEED, "stored_as_scd_type": 2},
}


def checks(flow: LogFlow, **more: Any) -> dict[str, Check]:
    """Verify a target: its checks by name."""
    request = VerifyRequest(pipeline=flow.pipeline, target=flow.target, **more)
    (found,) = run_verify([request], execute=partial(job.run, flow.spark))
    assert found.error is None, found.error
    return {check.check: check for check in found.checks}


@dataclass
class World:
    """A source and a target with the same drawn columns, each in a layout of its own, and the plain model.

    The key is a struct, too: read by position, each one is another key.

    :param events: of each key, the value of each sequence
    """

    spark: SparkSession
    draw: random.Random
    flow: LogFlow
    nodes: dict[str, Node]
    source: dict[str, Layout]
    target: dict[str, Layout]
    events: dict[Key, dict[int, Values]] = field(default_factory=dict)

    @classmethod
    def made(cls, spark: SparkSession, folder: Path, seed: int, columns: int, kind: str) -> World:
        """Draw the columns and create both tables; the target is made by hand."""
        draw = random.Random(seed)
        nodes = {f"c{number}": drawn_node(draw) for number in range(columns)}
        source, target = (
            {name: Layout.drawn(draw, node) for name, node in nodes.items()} for _ in ("source", "target")
        )
        flow = LogFlow(spark, str(folder / "source"), str(folder / "target"), KINDS[kind])
        world = cls(spark, draw, flow, nodes, source, target)
        order = "INT" if world.is_log else "BIGINT"
        added = f", __START_AT {order}, __END_AT {order}" if world.scd_type == 2 else ""
        if "delete_mode" in KINDS[kind]:
            added = ", _deleted BOOLEAN"
        for path, key, layouts, more in (
            (flow.log, SOURCE_KEY, source, ", seq INT" if world.is_log else ""),
            (flow.target, TARGET_KEY, target, added),
        ):
            listed = [f"{name} {layout.ddl()}" for name, layout in layouts.items()]
            draw.shuffle(listed)
            spark.sql(
                f"CREATE TABLE delta.`{path}` (k {key}, {', '.join(listed)}{more}) USING delta "
                "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
            )
        return world

    @property
    def is_log(self) -> bool:
        return "sequence_by" in self.flow.arguments

    @property
    def scd_type(self) -> int:
        return int(self.flow.arguments.get("stored_as_scd_type", 1))

    def frame(self, layouts: dict[str, Layout], rows: list[tuple[Key, Values]], **more: int) -> Any:
        """Return rows with the columns of some layouts, and the source's key."""
        integer = T.IntegerType()
        schema = T.StructType([T.StructField("k", T.StructType().add("i", integer).add("j", integer))])
        for name, layout in layouts.items():
            schema.add(name, layout.type())
        for name in more:
            schema.add(name, integer)
        data = [
            (key, *[layout.written(value[name]) for name, layout in layouts.items()], *more.values())
            for key, value in rows
        ]
        return self.spark.createDataFrame(data, schema, verifySchema=False)

    def value(self, late: bool) -> Values:
        return {name: drawn_value(self.draw, node, late=late) for name, node in self.nodes.items()}

    def changed(self, value: Values, late: bool) -> Values:
        """Return a value whose columns stay, are new, or are equal to the target's by position only."""
        new = {}
        for name, old in value.items():
            way = self.draw.random()
            if way < 0.3:
                new[name] = old
            elif way < 0.8:
                new[name] = self.source[name].mixed_up(old, self.target[name])
            else:
                new[name] = drawn_value(self.draw, self.nodes[name], late=late)
        return new

    def commit(self, rows: dict[Key, Values], sequence: int) -> None:
        """Write one event for each key, and apply them."""
        version = newest(self.flow.log) + 1
        if self.is_log:
            frame = self.frame(self.source, list(rows.items()), seq=sequence)
            frame.write.format("delta").mode("append").save(self.flow.log)
        else:
            sequence = version
            self.frame(self.source, list(rows.items())).createOrReplaceTempView("events_by_name")
            self.spark.sql(
                f"MERGE INTO delta.`{self.flow.log}` t USING events_by_name s ON t.k = s.k "
                "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
            )
        before = {key: self.last(key) for key in rows if key in self.events}
        for key, value in rows.items():
            self.events.setdefault(key, {})[sequence] = value
        self.flow.apply()
        if self.scd_type == 1 and self.is_log and all(max(self.events[key]) == sequence for key in rows):
            # A row whose values are equal by name is not written.
            updated = sum(value != rows[key] for key, value in before.items())
            assert self.flow.results[-1].counts.get("updated", 0) == updated

    def last(self, key: Key) -> Values:
        events = self.events[key]
        return events[max(events)]

    def expected(self) -> list[tuple[Any, ...]]:
        """Return the rows of the model: key, values, and start and end for type 2."""
        if self.scd_type == 1:
            return [(key, self.last(key)) for key in sorted(self.events)]
        rows = []
        for key in sorted(self.events):
            runs: list[list[Any]] = []
            for sequence in sorted(self.events[key]):
                value = self.events[key][sequence]
                if not runs or runs[-1][0] != value:
                    runs.append([value, sequence])
            ends = [run[1] for run in runs[1:]]
            rows += [(key, *run, end) for run, end in zip(runs, [*ends, None], strict=True)]
        return rows

    def found(self) -> list[tuple[Any, ...]]:
        """Return the rows of the target as :meth:`expected` has them."""
        rows = []
        for row in table_rows(self.spark, self.flow.target):
            values = {name: read(row[name], node) for name, node in self.nodes.items()}
            period = (row["__START_AT"], row["__END_AT"]) if self.scd_type == 2 else ()
            key = {name.lower(): part for name, part in row["k"].asDict().items()}
            rows.append(((key["i"], key["j"]), values, *period))
        return sorted(rows, key=lambda row: (row[0], *row[2:3]))

    def check(self) -> None:
        assert self.found() == self.expected()

    def add_late_fields(self) -> None:
        """Add fields to the source, first or between the others; the target gets them at the end."""
        added = [text for name, layout in self.source.items() for text in layout.add_late(self.draw, name)]
        self.spark.sql(f"ALTER TABLE delta.`{self.flow.log}` ADD COLUMNS ({', '.join(added)})")
        for name, layout in self.target.items():
            list(layout.add_late(None, name))

    def plant(self) -> Key:
        """Exchange values of a row of the target so that it is equal to the source's row by position only."""
        for key in sorted(self.events):
            value = self.last(key)
            for name in self.nodes:
                other = self.target[name].mixed_up(value[name], self.source[name])
                if other != value[name]:
                    frame = self.frame({name: self.target[name]}, [(key, {name: other})])
                    frame.createOrReplaceTempView("planted")
                    on = "t.k.i = s.k.i AND t.k.j = s.k.j"
                    on += " AND t.__END_AT IS NULL" if self.scd_type == 2 else ""
                    self.spark.sql(
                        f"MERGE INTO delta.`{self.flow.target}` t USING planted s ON {on} "
                        f"WHEN MATCHED THEN UPDATE SET t.{name} = s.{name}"
                    )
                    return key
        raise AssertionError("no row can be mixed up: choose another seed")


def play(world: World, side: int) -> None:
    """Play a history of five commits, then plant a difference, find and repair it.

    :param side: number of different parts of a key
    """
    draw, events = world.draw, world.events
    keys = [(i, j) for i in range(side) for j in range(side)]
    world.commit({key: world.value(late=False) for key in keys}, 10)
    some = sorted(draw.sample(keys, len(keys) * 3 // 4))
    world.commit({key: world.changed(world.last(key), late=False) for key in some}, 20)
    world.check()
    world.add_late_fields()
    world.commit({key: world.changed(world.last(key), late=True) for key in some[::2]}, 30)
    world.check()
    # Of a log, these events come late.
    some = [key for key in some if 30 in events[key]] if world.is_log else some
    world.commit({key: world.changed(events[key][min(events[key])], late=True) for key in some[::2]}, 15)
    world.check()
    world.commit({key: world.changed(world.last(key), late=True) for key in keys}, 40)
    world.check()
    assert checks(world.flow)["equals_source"].status == "ok"
    i, j = world.plant()
    check = checks(world.flow)["equals_source"]
    assert (check.status, check.count) == ("finding", 1), check
    world.flow.apply(mode="repair", repair_keys=f"k.i = {i} AND k.j = {j}")
    world.check()
    world.flow.apply(mode="reload")
    world.check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but(KINDS, "log, type 1"))
def test_drawn_columns(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    play(World.made(spark, tmp_path, 1, 5, kind), side=5)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 5), ids="seed{}".format)
@pytest.mark.parametrize("kind", KINDS)
def test_many_drawn_columns(spark: SparkSession, tmp_path: Path, kind: str, seed: int) -> None:
    """All cases together write more than 100,000 rows to the sources."""
    play(World.made(spark, tmp_path, seed, 12, kind), side=55)


@pytest.mark.slow
def test_the_parts_of_a_sequence_have_one_order(spark: SparkSession, tmp_path: Path) -> None:
    """Rows of history are ordered by the parts of their sequence: no other order can be taken for it."""
    flow = LogFlow(
        spark,
        str(tmp_path / "source"),
        str(tmp_path / "target"),
        {"keys": ["k"], "stored_as_scd_type": 2, "sequence_by": "at"},
    )
    spark.sql(f"CREATE TABLE delta.`{flow.log}` (k INT, at STRUCT<a: INT, b: INT>) USING delta")
    spark.sql(f"INSERT INTO delta.`{flow.log}` VALUES (1, struct(1, 2))")
    columns = ", ".join(f"{name} STRUCT<b: INT, a: INT>" for name in ("at", "__START_AT", "__END_AT"))
    spark.sql(f"CREATE TABLE delta.`{flow.target}` (k INT, {columns}) USING delta")
    with pytest.raises(
        ConfigurationDrift, match="__START_AT is struct<b:int,a:int>, not struct<a:int,b:int>"
    ):
        flow.apply()
    assert len(versions(flow.target)) == 1


@pytest.mark.slow
def test_two_targets_are_compared_by_name(spark: SparkSession, tmp_path: Path) -> None:
    source, targets = str(tmp_path / "source"), [str(tmp_path / name) for name in ("current", "history")]
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{source}` (k INT, s STRUCT<a: INT, b: INT>) USING delta {feed}")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, struct(1, 2)), (2, struct(3, 4))")
    spark.sql(f"CREATE TABLE delta.`{targets[0]}` (k INT, s STRUCT<B: INT, a: INT>) USING delta")
    flows = [
        LogFlow(spark, source, target, KINDS[f"feed, type {scd_type}"], pipeline=f"type_{scd_type}")
        for scd_type, target in enumerate(targets, 1)
    ]
    for flow in flows:
        flow.apply()

    def check() -> Check:
        return checks(flows[1], current=flows[0].target)["current_equals_history"]

    assert check().status == "ok"
    spark.sql(f"UPDATE delta.`{targets[0]}` SET s = named_struct('a', 2, 'b', 1) WHERE k = 1")
    assert (check().count, check().samples) == (1, ("changed: k = 1",))


@pytest.mark.slow
def test_inserts_alone(spark: SparkSession, tmp_path: Path) -> None:
    """Without keys, rows are compared by their hash."""
    flow = LogFlow(
        spark,
        str(tmp_path / "source"),
        str(tmp_path / "target"),
        {"source_kind": "change_feed", "insert_only": True},
    )
    spark.sql(f"CREATE TABLE delta.`{flow.log}` (l ARRAY<STRUCT<lat: INT, lon: INT>>) USING delta")
    spark.sql(f"CREATE TABLE delta.`{flow.target}` (l ARRAY<STRUCT<lon: INT, lat: INT>>) USING delta")
    for pair in ("1, 2", "3, 4"):
        spark.sql(f"INSERT INTO delta.`{flow.log}` VALUES (array(struct({pair})))")
        flow.apply()
    assert checks(flow)["equals_source"].status == "ok"
    places = flow.rows()
    assert sorted((row["l"][0]["lat"], row["l"][0]["lon"]) for row in places) == [(1, 2), (3, 4)]
    spark.sql(
        f"UPDATE delta.`{flow.target}` SET l = array(named_struct('lon', 1, 'lat', 2)) WHERE l[0].lat = 1"
    )
    assert checks(flow)["equals_source"].count == 2
