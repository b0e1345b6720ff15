"""Sources whose keys went through many random histories, and what each key went through.

``DELTA_CDC_HISTORIES`` is the number of histories.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tests.support import event_model, histories
from tests.support.event_streams import (
    FIRST,
    TRUNCATED,
    append,
    create_log,
    delivered,
    drawn_world,
    write_log,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

    from tests.support.event_streams import Style

    Key = tuple[Any, ...]
    #: What a key went through: sequences, each with the values from then on; None: no row.
    Walk = Sequence[tuple[Any, Mapping[str, Any] | None]]

COUNT = int(os.environ.get("DELTA_CDC_HISTORIES", "40"))


@dataclass
class Source:
    """A source, how it is applied, and what its keys went through.

    :param ends: the versions up to which runs apply it
    """

    arguments: dict[str, Any]
    ends: Sequence[int]
    walks: Mapping[Key, Walk]
    keys: tuple[str, ...]
    values: tuple[str, ...]
    tracked: tuple[str, ...]


def _scripted() -> histories.Histories:
    draw = random.Random(7)
    scripts = {f"random {n}": histories.drawn(draw, 8) for n in range(COUNT)}
    return histories.played({**histories.SCRIPTS, **scripts}, 8)


def _walks(states: Sequence[Mapping[Key, Mapping[str, Any]]]) -> dict[Key, Walk]:
    keys = {key: None for state in states for key in state}
    return {key: [(version, state.get(key)) for version, state in enumerate(states)] for key in keys}


def _feed(spark: SparkSession, folder: str) -> Source:
    played = _scripted()
    histories.write(spark, folder, played)
    arguments = {"source_kind": "change_feed", "keys": ["case", "id"], "track_history_column_list": ["v"]}
    return Source(arguments, (0, 3, 7), _walks(played.states), ("case", "id"), ("v", "u"), ("v",))


def _copies(spark: SparkSession, folder: str) -> Source:
    played = _scripted()
    for state in played.states:
        rows = [tuple(row.values()) for row in state.values()]
        frame = spark.createDataFrame(rows, histories.DDL).coalesce(1)
        frame.write.format("delta").mode("overwrite").save(folder)
    arguments = {"source_kind": "snapshot", "keys": ["case", "id"]}
    return Source(arguments, (0, 3, 7), _walks(played.states), ("case", "id"), ("v", "u"), ("v", "u"))


def _dated_copies(spark: SparkSession, folder: str) -> Source:
    played = _scripted()
    create_log(spark, folder, f"{histories.DDL}, day int", ("case", "id"))
    for day, state in enumerate(played.states, 1):
        append(spark, folder, [(*row.values(), day) for row in state.values()], f"{histories.DDL}, day int")
    arguments = {
        "source_kind": "snapshot",
        "keys": ["case", "id"],
        "snapshot_version_column": "day",
        "except_column_list": ["day"],
    }
    walks = {key: [(at + 1, values) for at, values in walk] for key, walk in _walks(played.states).items()}
    return Source(arguments, (1, 4, 8), walks, ("case", "id"), ("v", "u"), ("v", "u"))


def log_source(spark: SparkSession, folder: str, seed: int = 3, style: Style = "windows") -> Source:
    """Write a log with truncates, and late events; ``shuffled``: in any order."""
    world = drawn_world(seed, TRUNCATED, range(COUNT))
    batches = delivered(world, style)
    write_log(spark, folder, batches)
    rules = event_model.Rules(
        keys=("history", "id"), columns={"v": None, "n": None}, ignore_null_updates_column_list=("n",)
    )
    walks: dict[Key, Walk] = {}
    for history in world.histories:
        for key, versions in event_model.versions(world.events(history), rules).items():
            named = dict(zip(rules.keys, key, strict=True))
            walks[key] = [
                (one.sequence, None if one.state is None else {**named, **rules.shown(one.state)})
                for one in versions
            ]
    arguments = {
        "keys": list(rules.keys),
        "sequence_by": "seq",
        "apply_as_deletes": "op = 'delete'",
        "apply_as_truncates": "op = 'truncate'",
        "column_list": ["v", "n"],
        "ignore_null_updates_column_list": ["n"],
    }
    middle = FIRST + len(batches) // 2
    ends = (FIRST, middle, FIRST - 1 + len(batches))
    return Source(arguments, ends, walks, rules.keys, ("v", "n"), ("v", "n"))


KINDS = {"feed": _feed, "log": log_source, "copies": _copies, "dated copies": _dated_copies}
