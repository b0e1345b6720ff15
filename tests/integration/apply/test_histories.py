"""SCD type 1 and 2 against the oracle: scripted cases and random ones, side by side in one source table."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.spec import ApplyOptions
from tests.support import oracle
from tests.support.engine import Flow
from tests.support.histories import COLUMNS, KEYS, SCRIPTS, Histories, drawn, played, write

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

LENGTH = 9
LAST = LENGTH - 1
HISTORY = (*COLUMNS, "__START_AT", "__END_AT")
#: How the source lies on disk must not matter.
SOURCES: list[dict[str, Any]] = [
    {},
    {"properties": {"delta.enableDeletionVectors": "true"}, "partition_by": ("u",)},
    {"properties": {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"}},
]
#: One configuration each; of type 2, what the oracle tracks.
CONFIGURATIONS: dict[str, tuple[ApplyOptions, tuple[str, ...]]] = {
    "type 1": (ApplyOptions(keys=KEYS), ()),
    "type 1 partitioned by a value, without deletion vectors": (
        ApplyOptions(
            keys=KEYS, partition_by={"u": None}, target_properties={"delta.enableDeletionVectors": "false"}
        ),
        (),
    ),
    "type 2": (ApplyOptions(keys=KEYS, stored_as_scd_type=2), ("v", "u")),
    "type 2 tracks v": (
        ApplyOptions(keys=KEYS, stored_as_scd_type=2, track_history_column_list=("v",)),
        ("v",),
    ),
    "type 2 tracks all but v": (
        ApplyOptions(keys=KEYS, stored_as_scd_type=2, track_history_except_column_list=("V",)),
        ("u",),
    ),
    "type 2 tracks nothing": (
        ApplyOptions(keys=KEYS, stored_as_scd_type=2, track_history_column_list=()),
        (),
    ),
    "type 2 without deletion vectors, published": (
        ApplyOptions(
            keys=KEYS,
            stored_as_scd_type=2,
            publish_changes=True,
            target_properties={"delta.enableDeletionVectors": "false"},
        ),
        ("v", "u"),
    ),
}


@dataclass
class World:
    """One source and its targets, made when first asked for; the cuts are drawn from the seed."""

    spark: SparkSession
    root: Path
    seed: int
    histories: Histories
    flows: dict[str, Flow] = field(default_factory=dict)
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    @property
    def source(self) -> str:
        return str(self.root / f"source {self.seed}")

    def cuts(self, name: str) -> list[int]:
        """Draw load version and ends of ranges; the first configuration gets the whole range in one."""
        if name in ("type 1", "type 2") and self.seed == 1:
            return [0, LAST]
        draw = random.Random(f"{self.seed} {name}")
        return [0, *sorted(draw.sample(range(1, LAST), draw.choice([1, 1, 2]))), LAST]

    def rows(self, name: str) -> list[dict[str, Any]]:
        if name not in self.found:
            target = str(self.root / f"target {self.seed} {name}".replace(",", ""))
            flow = Flow(self.spark, self.source, target, CONFIGURATIONS[name][0], pipeline=name)
            self.flows[name] = flow.through(*self.cuts(name))
            self.found[name] = flow.rows()
        return self.found[name]

    def expected(self, name: str, case: str | None = None) -> list[dict[str, Any]]:
        options, tracked = CONFIGURATIONS[name]
        history = self.histories.history(case)
        return (
            oracle.scd1(history) if options.stored_as_scd_type == 1 else oracle.scd2(history, tracked=tracked)
        )


def _world(spark: SparkSession, root: Path, seed: int) -> World:
    draw = random.Random(seed)
    scripts = {f"random {n}": drawn(draw, LENGTH) for n in range(60)}
    world = World(spark, root, seed, played({**SCRIPTS, **scripts}, LENGTH))
    write(spark, world.source, world.histories, **SOURCES[seed % len(SOURCES)])
    return world


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return _world(spark, tmp_path_factory.mktemp("histories"), 1)


@pytest.mark.parametrize("case", SCRIPTS)
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_scripted_case(world: World, name: str, case: str) -> None:
    columns = COLUMNS if CONFIGURATIONS[name][0].stored_as_scd_type == 1 else HISTORY
    found = [row for row in world.rows(name) if row["case"] == case]
    assert oracle.rows_of(found, columns) == oracle.rows_of(world.expected(name, case), columns)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_random_histories(world: World, name: str) -> None:
    _agree(world, name)


def test_type_1_is_the_open_rows_of_type_2(world: World) -> None:
    opened = [row for row in world.rows("type 2") if row["__END_AT"] is None]
    assert oracle.rows_of(opened, COLUMNS) == oracle.rows_of(world.rows("type 1"), COLUMNS)


def test_the_source_is_what_the_script_says(world: World) -> None:
    """Else the oracle would agree with the engine about a table that nobody wrote."""
    found = world.spark.read.format("delta").load(world.source).collect()
    assert oracle.rows_of([row.asDict() for row in found], COLUMNS) == oracle.rows_of(
        oracle.scd1(world.histories.history()), COLUMNS
    )


def _agree(world: World, name: str) -> None:
    columns = COLUMNS if CONFIGURATIONS[name][0].stored_as_scd_type == 1 else HISTORY
    found = oracle.rows_of(world.rows(name), columns)
    expected = oracle.rows_of(world.expected(name), columns)
    assert found == expected, (
        f"seed {world.seed}, {name}, cut at {world.cuts(name)}: replay with "
        f"DELTA_CDC_SEEDS={world.seed} pytest {__file__} -m slow -k seeds"
    )


def _seeds() -> list[int]:
    """The seeds of the long run; ``DELTA_CDC_SEEDS=7,8`` replays some."""
    given = os.environ.get("DELTA_CDC_SEEDS")
    return [int(seed) for seed in given.split(",")] if given else list(range(2, 14))


@pytest.mark.slow
@pytest.mark.parametrize("seed", _seeds())
def test_seeds(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    world = _world(spark, tmp_path, seed)
    for name in CONFIGURATIONS:
        _agree(world, name)
