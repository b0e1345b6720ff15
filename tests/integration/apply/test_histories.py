"""SCD type 1 and 2 against the oracle: scripted cases and random ones, side by side in one source table."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.apply import from_feed
from tests.support import oracle
from tests.support.engine import Flow, commit_info, newest, session_like
from tests.support.histories import COLUMNS, KEYS, SCRIPTS, Histories, drawn, played, write
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    Row = Mapping[str, Any]

LENGTH = 9
LAST = LENGTH - 1
HISTORY = (*COLUMNS, "__START_AT", "__END_AT")


@dataclass(frozen=True)
class Configuration:
    """What the user asks for, and what of it the oracle has to know.

    :param state: what becomes of one state of the source; None where it is filtered out
    """

    options: ApplyOptions
    tracked: tuple[str, ...] = ()
    columns: tuple[str, ...] = COLUMNS
    state: Callable[[Row], Row | None] = lambda row: row
    sequences: Mapping[str, oracle.SequenceOf] = field(default_factory=dict)

    def expected(self, states: oracle.History) -> list[dict[str, Any]]:
        history = [
            (version, {key: row for key, found in state.items() if (row := self.state(found)) is not None})
            for version, state in states
        ]
        if self.options.delete_mode == "soft":
            return oracle.scd1_soft(history)
        if self.options.stored_as_scd_type == 1:
            return oracle.scd1(history)
        return oracle.scd2(history, tracked=self.tracked, **self.sequences)


def _u_or(row: Row, other: int) -> int:
    return other if row["u"] is None else row["u"]


def _not_b(row: Row) -> Row | None:
    return None if row["v"] == "b" or row["u"] == 1 else row


def _parted(row: Row) -> Row | None:
    return None if row["v"] == "c" else {**row, "part": _u_or(row, 7)}


def _type_2(**options: Any) -> ApplyOptions:
    return ApplyOptions(keys=KEYS, stored_as_scd_type=2, **options)


NO_VECTORS = {"delta.enableDeletionVectors": "false"}
CONFIGURATIONS: dict[str, Configuration] = {
    "type 1": Configuration(ApplyOptions(keys=KEYS)),
    "type 1 partitioned by a value, without deletion vectors": Configuration(
        ApplyOptions(keys=KEYS, partition_by={"u": None}, target_properties=NO_VECTORS)
    ),
    "type 1, soft, u = 1 is filtered out, v = 'b' is a delete, u does not land": Configuration(
        ApplyOptions(
            keys=KEYS,
            delete_mode="soft",
            where="u IS NULL OR u <> 1",
            apply_as_deletes="v = 'b'",
            column_list=("V",),
            cluster_by=("id",),
        ),
        columns=("case", "id", "v", "_deleted"),
        state=_not_b,
    ),
    "type 2": Configuration(_type_2(), ("v", "u"), HISTORY),
    "type 2 tracks v": Configuration(_type_2(track_history_column_list=("v",)), ("v",), HISTORY),
    "type 2 tracks all but v": Configuration(
        _type_2(track_history_except_column_list=("V",)), ("u",), HISTORY
    ),
    "type 2 tracks nothing": Configuration(_type_2(track_history_column_list=()), (), HISTORY),
    "type 2 without deletion vectors, published": Configuration(
        _type_2(publish_changes=True, target_properties=NO_VECTORS), ("v", "u"), HISTORY
    ),
    "type 2 in order of two columns, partitioned by one that does not land": Configuration(
        _type_2(
            sequence_by=("_commit_version", "coalesce(u, 9)"),
            delete_sequence="struct(_commit_version, 9 AS last)",
            apply_as_deletes="v = 'c'",
            except_column_list=("U",),
            partition_by={"part": "coalesce(u, 7)"},
        ),
        tracked=("v", "part"),
        columns=("case", "id", "v", "part", "__START_AT", "__END_AT"),
        state=_parted,
        sequences={
            "sequence": lambda row, version: (version, _u_or(row, 9)),
            "delete_sequence": lambda row, version: (version, 9),
        },
    ),
}


#: What `make test` looks at of these; the others differ by few options each.
QUICK = ("type 2",)

#: Of these, a dry run of the first range is compared with the range itself.
COUNTED = (
    "type 1",
    "type 1, soft, u = 1 is filtered out, v = 'b' is a delete, u does not land",
    "type 2",
    "type 2 tracks v",
)


@dataclass
class World:
    """One source and its targets, made when first asked for; the cuts are drawn from the seed."""

    spark: SparkSession
    root: Path
    seed: int
    histories: Histories
    flows: dict[str, Flow] = field(default_factory=dict)
    found: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    counts: dict[str, tuple[dict[str, int], dict[str, int]]] = field(default_factory=dict)

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
            flow = Flow(self.spark, self.source, target, CONFIGURATIONS[name].options, pipeline=name)
            load, *ends = self.cuts(name)
            flow.through(load)
            for end in ends:
                counted = self.counted(flow, end) if name in COUNTED and end == ends[0] else {}
                assert flow.apply(end).status == "committed", flow.results[-1]
                if counted:
                    self.counts[name] = counted, self.done(flow)
            self.flows[name] = flow
            self.found[name] = flow.rows()
        return self.found[name]

    def counted(self, flow: Flow, end: int) -> dict[str, int]:
        """Return what a dry run says of the range up to ``end``; it writes nothing."""
        step = flow.step("apply", self.cuts(flow.pipeline)[0] + 1, end)
        before = newest(flow.target)
        session = session_like(self.spark)
        work = from_feed.merge(session, flow.spec(step), step)
        assert work.merge is not None
        counts = work.merge.counted(session)
        assert newest(flow.target) == before
        return counts

    def done(self, flow: Flow) -> dict[str, int]:
        """Return what the newest MERGE says of itself."""
        metrics = commit_info(flow.target, newest(flow.target))["operationMetrics"]
        return {
            done.lower(): int(metrics[f"numTargetRows{done}"]) for done in ("Inserted", "Updated", "Deleted")
        }

    def expected(self, name: str, case: str | None = None) -> list[dict[str, Any]]:
        return CONFIGURATIONS[name].expected(self.histories.history(case))


def _world(spark: SparkSession, root: Path, seed: int) -> World:
    draw = random.Random(seed)
    scripts = {f"random {n}": drawn(draw, LENGTH) for n in range(60)}
    world = World(spark, root, seed, played({**SCRIPTS, **scripts}, LENGTH))
    # How the source lies on disk must not matter: test_laws.py draws it.
    write(spark, world.source, world.histories)
    return world


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> World:
    return _world(spark, tmp_path_factory.mktemp("histories"), 1)


@pytest.mark.parametrize("case", SCRIPTS)
@pytest.mark.parametrize("name", slow_but(CONFIGURATIONS, *QUICK))
def test_scripted_case(world: World, name: str, case: str) -> None:
    columns = CONFIGURATIONS[name].columns
    found = [row for row in world.rows(name) if row["case"] == case]
    assert oracle.rows_of(found, columns) == oracle.rows_of(world.expected(name, case), columns)


@pytest.mark.parametrize("name", slow_but(CONFIGURATIONS, *QUICK))
def test_random_histories(world: World, name: str) -> None:
    _agree(world, name)


@pytest.mark.parametrize("name", slow_but(COUNTED, QUICK[0]))
def test_a_dry_run_counts_what_the_merge_does(world: World, name: str) -> None:
    world.rows(name)
    counted, done = world.counts[name]
    assert counted == done
    assert done["inserted"]
    assert done["updated"]


def test_the_source_is_what_the_script_says(world: World) -> None:
    """Else the oracle would agree with the engine about a table that nobody wrote."""
    found = world.spark.read.format("delta").load(world.source).collect()
    assert oracle.rows_of([row.asDict() for row in found], COLUMNS) == oracle.rows_of(
        oracle.scd1(world.histories.history()), COLUMNS
    )


def _agree(world: World, name: str) -> None:
    columns = CONFIGURATIONS[name].columns
    found = oracle.rows_of(world.rows(name), columns)
    expected = oracle.rows_of(world.expected(name), columns)
    assert found == expected, f"{name}, cut at {world.cuts(name)}"
