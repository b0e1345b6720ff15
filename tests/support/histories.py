"""Histories of a source table: many independent cases side by side in one table, keyed by (``case``, ``id``).

One version of the table is one MERGE over all cases, so that a dozen commits hold a hundred histories.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping, Sequence

    from pyspark.sql import SparkSession

KEYS = ("case", "id")
COLUMNS = ("case", "id", "v", "u")
DDL = "case string, id int, v string, u int"


@dataclass(frozen=True)
class Op:
    """One change of one row: ``put`` (insert, or update also without a difference), ``move`` (update of the
    key, values as they are) or ``drop``."""

    kind: str
    row: int
    v: str | None = None
    u: int | None = None
    to: int | None = None


def put(row: int, v: str | None, u: int | None = 0) -> Op:
    """Insert a row, or update it, also to what it is already."""
    return Op("put", row, v, u)


def move(row: int, to: int) -> Op:
    """Change a row's key."""
    return Op("move", row, to=to)


def drop(row: int) -> Op:
    """Delete a row."""
    return Op("drop", row)


#: case -> operations of version 0 (the first load), 1, 2, …
Script = list[list[Op]]

SCRIPTS: dict[str, Script] = {
    "untouched": [[put(1, "a")]],
    "one_update": [[put(1, "a")], [], [put(1, "b")]],
    "several_changes": [[put(1, "a")], [put(1, "b")], [put(1, "c")], [put(1, "d", 5)], [put(1, "e")]],
    "insert_later": [[], [], [put(1, "a")]],
    "delete": [[put(1, "a"), put(2, "z")], [], [drop(1)]],
    "update_then_delete": [[put(1, "a")], [put(1, "b")], [], [drop(1)]],
    "delete_and_insert_again": [[put(1, "a")], [drop(1)], [], [put(1, "b")], [put(1, "c")]],
    "the_same_again_after_delete": [[put(1, "a", 7)], [], [drop(1)], [put(1, "a", 7)]],
    "insert_and_delete_inside": [[], [put(1, "a")], [put(1, "b")], [drop(1)]],
    "comes_and_goes_twice": [[], [put(1, "a")], [drop(1)], [put(1, "b")], [drop(1)], [], [put(1, "c")]],
    "key_change": [[put(1, "a", 3)], [], [move(1, 2)]],
    "key_change_and_back": [[put(1, "a", 3)], [move(1, 2)], [], [move(2, 1)]],
    "key_change_then_update": [[put(1, "a", 3)], [move(1, 2)], [put(2, "b", 4)]],
    "key_swap": [[put(1, "a"), put(2, "b")], [], [move(1, 2), move(2, 1)]],
    "key_swap_of_equal_rows": [[put(1, "a"), put(2, "a")], [], [move(1, 2), move(2, 1)]],
    "key_ring": [[put(1, "a"), put(2, "b"), put(3, "c")], [move(1, 2), move(2, 3), move(3, 1)]],
    "to_null": [[put(1, "a")], [], [put(1, None)]],
    "from_null": [[put(1, None)], [], [put(1, "a")]],
    "null_and_back": [[put(1, "a", 1)], [put(1, None, None)], [], [put(1, "a", 1)]],
    "insert_of_nulls": [[], [put(1, None, None)], [put(1, None, 1)]],
    "all_null_untouched": [[put(1, None, None)], [put(1, None, None)]],
    "update_without_change": [[put(1, "a", 1)], [put(1, "a", 1)], [put(1, "a", 1)]],
    "update_without_change_between": [[put(1, "a")], [put(1, "b")], [put(1, "b")], [put(1, "c")]],
    "changed_and_back": [[put(1, "a")], [put(1, "b")], [put(1, "a")]],
    "changed_and_back_twice": [[put(1, "a")], [put(1, "b")], [put(1, "a")], [put(1, "b")], [put(1, "a")]],
    "untracked_only": [[put(1, "a", 1)], [put(1, "a", 2)], [], [put(1, "a", 3)]],
    "untracked_then_tracked": [[put(1, "a", 1)], [put(1, "a", 2)], [put(1, "b", 2)], [put(1, "b", 3)]],
    "untracked_then_delete": [[put(1, "a", 1)], [put(1, "a", 2)], [drop(1)]],
    "untracked_and_back": [[put(1, "a", 1)], [put(1, "a", 2)], [put(1, "a", 1)]],
    "untracked_in_a_short_life": [[], [put(1, "a", 1)], [put(1, "a", 2)], [drop(1)]],
    "tracked_and_back_with_other_u": [[put(1, "a", 1)], [put(1, "b", 2)], [put(1, "a", 3)]],
    "empty_string_is_not_null": [[put(1, "")], [put(1, None)], [put(1, "")]],
    "quote ' back-tick ` % \\ é": [[put(1, "'`%\\é")], [put(1, "''")], [put(1, "日本")]],
}


@dataclass
class Histories:
    """Operations per version and case, and the states they lead to."""

    ops: list[dict[str, list[Op]]]
    states: list[dict[tuple[str, int], dict[str, Any]]]

    def history(self, case: str | None = None) -> list[tuple[int, dict[Any, dict[str, Any]]]]:
        """Return the states of one case, or of all, in the oracle's form."""
        return [
            (version, {key: row for key, row in state.items() if case is None or key[0] == case})
            for version, state in enumerate(self.states)
        ]

    @property
    def cases(self) -> list[str]:
        """Return the names of all cases."""
        return sorted({case for version in self.ops for case in version})


def played(scripts: Mapping[str, Script], length: int) -> Histories:
    """Play scripts up to version ``length`` - 1."""
    ops = [{case: script[v] for case, script in scripts.items() if v < len(script)} for v in range(length)]
    states: list[dict[tuple[str, int], dict[str, Any]]] = []
    state: dict[tuple[str, int], dict[str, Any]] = {}
    for version in ops:
        after = dict(state)
        for case, changes in version.items():
            for op in changes:
                if op.kind != "put":
                    after.pop((case, op.row), None)
            for op in changes:
                if op.kind == "put":
                    after[case, op.row] = {"case": case, "id": op.row, "v": op.v, "u": op.u}
                elif op.kind == "move":
                    assert op.to is not None
                    after[case, op.to] = {**state[case, op.row], "id": op.to}
        states.append(after)
        state = after
    return Histories(ops=ops, states=states)


#: Rows of a drawn case.
IDS = 4


def drawn(random_: random.Random, length: int, ids: int = IDS) -> Script:
    """Draw the script of one case: inserts, updates, no-ops, deletes, key changes and swaps."""
    script: Script = []
    alive: dict[int, tuple[str | None, int | None]] = {}
    for version in range(length):
        ops: list[Op] = []
        after = dict(alive)
        for key in range(ids):
            if random_.random() < (0.6 if version == 0 else 0.45):
                continue
            value = (random_.choice(["a", "b", None]), random_.choice([0, 1, None]))
            if key not in alive:
                ops.append(put(key, *value))
                after[key] = value
            elif random_.random() < 0.35:
                ops.append(drop(key))
                del after[key]
            else:
                value = random_.choice([value, value, alive[key]])
                ops.append(put(key, *value))
                after[key] = value
        if version and random_.random() < 0.3:
            ops, after = _with_moves(random_, alive, ids)
        script.append(ops)
        alive = after
    return script


def _with_moves(
    random_: random.Random, alive: Mapping[int, tuple[str | None, int | None]], ids: int
) -> tuple[list[Op], dict[int, tuple[str | None, int | None]]]:
    """Give the living rows other keys, all in one statement: changes, swaps, rings."""
    places = random_.sample(range(ids), len(alive))
    ops = [move(key, to) for key, to in zip(alive, places, strict=True) if key != to]
    return ops, {to: alive[key] for key, to in zip(alive, places, strict=True)}


def write(
    spark: SparkSession,
    table: str,
    histories: Histories,
    *,
    properties: Mapping[str, str] | None = None,
    partition_by: Sequence[str] = (),
) -> None:
    """Write a source table whose version v is the histories' version v."""
    options = {"delta.enableChangeDataFeed": "true", **(properties or {})}
    first = [tuple(row.values()) for row in histories.states[0].values()]
    writer = spark.createDataFrame(first, DDL).coalesce(1).write.format("delta").options(**options)
    writer.partitionBy(*partition_by).save(table)
    for ops in histories.ops[1:]:
        rows = [
            (case, op.row, op.v, op.u, op.row if op.to is None else op.to, op.kind)
            for case, changes in ops.items()
            for op in changes
        ]
        changes = spark.createDataFrame(rows, f"{DDL}, new_id int, kind string").coalesce(1)
        changes.createOrReplaceTempView("ops")
        spark.sql(f"""
            MERGE INTO delta.`{table}` t USING ops s ON t.case = s.case AND t.id = s.id
            WHEN MATCHED AND s.kind = 'drop' THEN DELETE
            WHEN MATCHED AND s.kind = 'move' THEN UPDATE SET t.id = s.new_id
            WHEN MATCHED THEN UPDATE SET t.v = s.v, t.u = s.u
            WHEN NOT MATCHED AND s.kind = 'put' THEN INSERT (case, id, v, u) VALUES (case, id, v, u)""")
