"""Random change rows, of unique keys and of others, reduced by Spark and by plain Python."""

from __future__ import annotations

import random
from itertools import groupby, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F

from delta_cdc.core.reserved_columns import ORDER
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BEFORE, _AFTER = ("delete", "update_preimage"), ("insert", "update_postimage")
_CASES = 600


class Change(NamedTuple):
    """A change row; its value tells it from all others."""

    key: int
    version: int
    kind: str | None
    value: int


def drawn(seed: int) -> list[Change]:
    """Return shuffled change rows: of every second key a true history, of the others whatever comes."""
    dice = random.Random(seed)
    rows: list[tuple[int, int, str | None]] = []
    for key in range(_CASES):
        exists = dice.random() < 0.5
        for version in sorted(dice.sample(range(1, 9), dice.randint(1, 4))):
            if key % 2:
                kinds = [one for one in (*_BEFORE, *_AFTER) if dice.random() < 0.3]
                rows += [(key, version, kind) for kind in kinds * dice.choice([1, 1, 1, 2])]
                continue
            before = [dice.choice(_BEFORE)] if exists else []
            exists = not exists or dice.random() < 0.7
            rows += [(key, version, kind) for kind in (*before, *([dice.choice(_AFTER)] if exists else []))]
    rows += [(_CASES, 1, "insert"), (_CASES, 2, None), (_CASES + 1, 1, "upsert")]
    rows += [
        (_CASES + 2, 1, None),
        (_CASES + 2, 1, "insert"),
        (_CASES + 3, 1, "upsert"),
        (_CASES + 3, 1, "insert"),
    ]
    dice.shuffle(rows)
    return [Change(*row, value) for value, row in enumerate(rows)]


def histories(changes: list[Change]) -> dict[int, list[Change]]:
    """Return the rows of each key in order."""
    in_order = sorted(changes, key=lambda one: (one.key, one.version, one.kind in _AFTER))
    return {key: list(rows) for key, rows in groupby(in_order, key=lambda one: one.key)}


def is_unique(history: list[Change]) -> bool:
    """Return whether states before and after take turns."""
    return all((one.kind in _AFTER) != (other.kind in _AFTER) for one, other in pairwise(history))


def read(spark: SparkSession, changes: list[Change]) -> DataFrame:
    rows = spark.createDataFrame(changes, "id INT, _commit_version BIGINT, _change_type STRING, value INT")
    return rows.withColumns({ORDER: F.col("_commit_version"), states.SEQUENCE: F.col("value")})


def value_of(row: Any, state: str) -> int | None:
    return None if row[state] is None else int(row[state]["value"])


def test_the_net_states_of_each_key(spark: SparkSession) -> None:
    changes = drawn(seed=1)
    found = {row["id"]: row for row in states.net_states(read(spark, changes), ["id"], ["value"]).collect()}
    expected = histories(changes)
    assert found.keys() == expected.keys()
    for key, history in expected.items():
        row, types = found[key], [one.kind for one in history]
        unknown = sum(kind not in (*_BEFORE, *_AFTER) for kind in types)
        assert row[states.UNKNOWN] == unknown, history
        if unknown:
            continue
        assert row[states.DUPLICATE] == (not is_unique(history)), history
        assert row[states.EVENTS] == len({one.version for one in history}), history
        if row[states.DUPLICATE]:
            continue
        first, last = history[0], history[-1]
        written = any(kind in _AFTER for kind in types)
        assert value_of(row, states.BEFORE) == (first.value if first.kind in _BEFORE else None), history
        assert value_of(row, states.AFTER) == (last.value if written else None), history
        assert row[states.DELETED] == (last.kind in _BEFORE), history


def test_the_states_of_each_key_and_version(spark: SparkSession) -> None:
    changes = drawn(seed=2)
    found: dict[int, dict[int, list[Any]]] = {}
    for row in states.version_states(read(spark, changes), ["id"], ["value"]).collect():
        found.setdefault(row["id"], {}).setdefault(row[ORDER], []).append(row)
    expected = histories(changes)
    assert found.keys() == expected.keys()
    for key, history in expected.items():
        rows = [row for of_version in found[key].values() for row in of_version]
        if any(one.kind not in (*_BEFORE, *_AFTER) for one in history):
            assert any(row[states.UNKNOWN] for row in rows), history
            continue
        assert any(row[states.DUPLICATE] for row in rows) == (not is_unique(history)), history
        if not is_unique(history):
            continue
        versions = {version: list(of) for version, of in groupby(history, key=lambda one: one.version)}
        assert found[key].keys() == versions.keys()
        for version, of_version in versions.items():
            [row] = found[key][version]
            before = [one.value for one in of_version if one.kind in _BEFORE]
            after = [one.value for one in of_version if one.kind in _AFTER]
            assert [value_of(row, states.BEFORE)] == (before or [None]), history
            assert [value_of(row, states.AFTER)] == (after or [None]), history
            assert row[states.SEQUENCE] == (after or before)[0], history
