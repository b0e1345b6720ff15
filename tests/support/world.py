"""A source table with a known past, an oracle for its targets, and what lies on disk.

The source is changed through Spark, or through delta-rs where many versions are wanted fast, and by the same
call in a model made of plain dicts: one state per version. What a target must hold follows from the model
alone.
"""

from __future__ import annotations

import json
import random
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, Field, Schema, write_deltalake
from deltalake.schema import PrimitiveType

from tests.support import oracle

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import SparkSession

#: key -> (name, amount)
State = dict[int, tuple[str | None, int]]
Rows = list[tuple[Any, ...]]

_FEED = "delta.enableChangeDataFeed"
_SCHEMA = Schema(
    [
        Field("id", PrimitiveType("long")),
        Field("name", PrimitiveType("string")),
        Field("amount", PrimitiveType("long")),
    ]
)

COLUMNS = ("id", "name", "amount")
HISTORY = (*COLUMNS, "__START_AT", "__END_AT")


@dataclass
class Source:
    """A Delta table (id, name, amount) whose every version is known.

    What changes it takes a Spark session, or None to write with delta-rs.

    :param states: version -> the rows of it
    """

    path: str
    states: list[State] = field(default_factory=lambda: [{}])

    @property
    def newest(self) -> int:
        return len(self.states) - 1

    def create(self, spark: SparkSession | None) -> Source:
        if spark is None:
            DeltaTable.create(self.path, _SCHEMA, configuration={_FEED: "true"})
        else:
            spark.sql(
                f"CREATE TABLE delta.`{self.path}` (id BIGINT, name STRING, amount BIGINT) USING delta "
                f"TBLPROPERTIES ('{_FEED}' = 'true')"
            )
        return self

    def insert(self, spark: SparkSession | None, rows: State) -> None:
        if spark is None:
            data = [{"id": key, "name": name, "amount": amount} for key, (name, amount) in rows.items()]
            write_deltalake(
                self.path, pa.Table.from_pylist(data, pa.schema(_SCHEMA.to_arrow())), mode="append"
            )
        else:
            values = ", ".join(f"({key}, {_sql(name)}, {amount})" for key, (name, amount) in rows.items())
            # One file per commit: without the hint a small INSERT writes one per core.
            spark.sql(f"INSERT INTO delta.`{self.path}` SELECT /*+ COALESCE(1) */ * FROM VALUES {values}")
        self.states.append({**self.states[-1], **rows})

    def update(self, spark: SparkSession | None, changes: Mapping[int, tuple[str | None, int]]) -> None:
        names = " ".join(f"WHEN {key} THEN {_sql(name)}" for key, (name, _) in changes.items())
        amounts = " ".join(f"WHEN {key} THEN {amount}" for key, (_, amount) in changes.items())
        sets = {"name": f"CASE id {names} END", "amount": f"CASE id {amounts} END"}
        if spark is None:
            DeltaTable(self.path).update(updates=sets, predicate=f"id IN ({_listed(changes)})")
        else:
            listed = ", ".join(f"{column} = {value}" for column, value in sets.items())
            spark.sql(f"UPDATE delta.`{self.path}` SET {listed} WHERE id IN ({_listed(changes)})")
        self.states.append({**self.states[-1], **changes})

    def delete(self, spark: SparkSession | None, keys: Iterable[int]) -> None:
        gone = set(keys)
        condition = f"id IN ({_listed(gone)})"
        if spark is None:
            DeltaTable(self.path).delete(condition)
        else:
            spark.sql(f"DELETE FROM delta.`{self.path}` WHERE {condition}")
        self.states.append({key: row for key, row in self.states[-1].items() if key not in gone})

    def restore(self, spark: SparkSession, version: int) -> None:
        spark.sql(f"RESTORE TABLE delta.`{self.path}` TO VERSION AS OF {version}").collect()
        self.states.append(dict(self.states[version]))

    def grow(self, spark: SparkSession | None, rng: random.Random, commits: int) -> None:
        """Make ``commits`` more versions of random inserts, updates and deletes."""
        for _ in range(commits):
            self._random_change(spark, rng)

    def _random_change(self, spark: SparkSession | None, rng: random.Random) -> None:
        living = sorted(key for key in self.states[-1] if key >= FREE_KEYS)
        kind = rng.choice(("insert", "update", "update", "update", "delete"))
        if kind == "insert" or len(living) < 4:
            known = max((max(state, default=0) for state in self.states), default=0)
            start = max(known, FREE_KEYS) + 1
            self.insert(spark, {start + n: (f"new {start + n}", rng.randrange(100)) for n in range(3)})
        elif kind == "delete":
            self.delete(spark, rng.sample(living, 2))
        else:
            chosen = rng.sample(living, min(3, len(living)))
            # A few names only, so that keys come back to what they were; NULL is one of them.
            self.update(spark, {k: (rng.choice(("x", "y", None)), rng.randrange(3)) for k in chosen})

    def copy(self, path: Path) -> Source:
        """Copy the table with its log (same id, same commit times) to ``path``."""
        shutil.copytree(self.path, path)
        return Source(str(path), [dict(state) for state in self.states])


#: Keys below are those of :func:`eventful`'s own story; random changes leave them alone.
FREE_KEYS = 100


def eventful(path: Path, seed: int = 3) -> Source:
    """Make a source of 31 versions (0-30) whose changes in 11-20 and 21-30 undo each other for some keys.

    Key 1 goes a -> b at 15 and b -> a at 25; key 2 is deleted at 14 and comes back at 24 as it was; key 3
    exists from 13 to 25 only. Their net change over 11-30 is nothing.
    """
    rng = random.Random(seed)
    source = Source(str(path)).create(None)
    source.insert(None, {1: ("a", 1), 2: ("stays", 2), **{FREE_KEYS + n: (f"row {n}", n) for n in range(10)}})
    story = {
        13: lambda: source.insert(None, {3: ("guest", 3)}),
        14: lambda: source.delete(None, [2]),
        15: lambda: source.update(None, {1: ("b", 1)}),
        24: lambda: source.insert(None, {2: ("stays", 2)}),
        25: lambda: source.update(None, {1: ("a", 1)}),
        26: lambda: source.delete(None, [3]),
    }
    while source.newest < 30:
        version = source.newest + 1
        if version in story:
            story[version]()
        else:
            source.grow(None, rng, 1)
        if source.newest % 10 == 0:
            # As Spark makes them; the log before one may be cleaned.
            DeltaTable(source.path).create_checkpoint()
    return source


# -- the oracle -----------------------------------------------------------------------------------
def current(state: State) -> Rows:
    """Return what a type 1 target of this state holds."""
    return ordered((key, *row) for key, row in state.items())


def history(source: Source, loaded: int, newest: int | None = None) -> Rows:
    """Return what a type 2 target holds that was loaded at ``loaded`` and saw every version since.

    Starts and ends are commit versions.
    """
    at = source.newest if newest is None else newest
    states = [
        (
            version,
            {
                key: dict(zip(COLUMNS, (key, *row), strict=True))
                for key, row in source.states[version].items()
            },
        )
        for version in range(loaded, at + 1)
    ]
    rows = oracle.scd2(states, tracked=COLUMNS[1:])
    return ordered(tuple(row[name] for name in HISTORY) for row in rows)


def expected(source: Source, scd: int, loaded: int, newest: int | None = None) -> Rows:
    """Return the oracle's rows for either type."""
    at = source.newest if newest is None else newest
    return current(source.states[at]) if scd == 1 else history(source, loaded, at)


def held(spark: SparkSession, target: str, scd: int = 1) -> Rows:
    """Return the rows of a target."""
    found = spark.read.format("delta").load(target).select(*(COLUMNS if scd == 1 else HISTORY))
    return ordered(tuple(row) for row in found.collect())


def ordered(rows: Iterable[tuple[Any, ...]]) -> Rows:
    """Sort rows that may hold None."""
    return sorted(rows, key=lambda row: tuple((value is not None, value) for value in row))


# -- what lies on disk ----------------------------------------------------------------------------
def commits(table: str) -> dict[int, list[dict[str, Any]]]:
    """Return version -> actions of every commit file."""
    files = sorted(Path(table, "_delta_log").glob("*.json"))
    found = {int(file.stem): file for file in files if file.stem.isdigit()}
    return {
        version: [json.loads(line) for line in file.read_text().splitlines()]
        for version, file in found.items()
    }


def seals(table: str, pipeline: str = "flow") -> list[dict[str, Any]]:
    """Return the state that each sealed commit carries, oldest first, with its commit as ``at``.

    Read without the project's code: ``txn`` and ``userMetadata`` have to be there both.
    """
    found = []
    for version, actions in sorted(commits(table).items()):
        txns = [a["txn"] for a in actions if "txn" in a and a["txn"]["appId"] == f"delta-cdc/{pipeline}"]
        info = next((a["commitInfo"] for a in actions if "commitInfo" in a), {})
        text = info.get("userMetadata")
        if txns and text:
            state = json.loads(text)
            assert state["number"] == txns[0]["version"]
            found.append({**state, "at": version})
    return found


def ranges(table: str, pipeline: str = "flow") -> list[tuple[int, int]]:
    """Return the source versions of each sealed commit, oldest first."""
    steps = [seal["step"] for seal in seals(table, pipeline)]
    return [(step["starting_version"], step["ending_version"]) for step in steps]


def sealed_counts(table: str, pipeline: str = "flow") -> list[dict[str, int]]:
    """Return what each sealed commit with rows counts, oldest first: by Delta's metrics and by the seal."""
    metrics = {
        "numTargetRowsInserted": "inserted",
        "numTargetRowsUpdated": "updated",
        "numTargetRowsDeleted": "deleted",
    }
    found, log = [], commits(table)
    for seal in seals(table, pipeline):
        if seal["step"]["kind"] in ("take_over", "renew", "baseline"):
            continue
        info = next(a["commitInfo"] for a in log[seal["at"]] if "commitInfo" in a)["operationMetrics"]
        counts = {name: int(info[metric]) for metric, name in metrics.items() if metric in info}
        if not counts:
            counts = {"inserted": int(info.get("numOutputRows", 0))}
        found.append({**counts, **seal["step"]["counts"]})
    return found


def summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """Return the sum by name; what is zero is left out."""
    total: dict[str, int] = {}
    for one in counts:
        for name, count in one.items():
            total[name] = total.get(name, 0) + count
    return {name: count for name, count in total.items() if count}


def data_files(table: str) -> set[str]:
    """Return the names of the table's data files and deletion vectors on disk."""
    names = (*Path(table).rglob("*.parquet"), *Path(table).rglob("*.bin"))
    return {file.name for file in names if "_delta_log" not in file.parts}


def orphans(table: str) -> set[str]:
    """Return data files and deletion vectors that no commit names."""
    texts = "\n".join(file.read_text() for file in Path(table, "_delta_log").glob("*.json"))
    return {name for name in data_files(table) if name not in texts and not _is_named_vector(name, texts)}


def _is_named_vector(name: str, texts: str) -> bool:
    if not name.endswith(".bin"):
        return False
    return encoded_vector(name) in texts


def encoded_vector(name: str) -> str:
    """Return how the log writes a deletion vector file's UUID (Z85, as the format says)."""
    alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    raw = bytes.fromhex(name.removeprefix("deletion_vector_").removesuffix(".bin").replace("-", ""))
    text = ""
    for at in range(0, len(raw), 4):
        value = int.from_bytes(raw[at : at + 4], "big")
        digits = [value // 85**power % 85 for power in (4, 3, 2, 1, 0)]
        text += "".join(alphabet[digit] for digit in digits)
    # As JSON writes it: Jackson escapes none of the alphabet.
    return text


def listing(table: str) -> dict[str, bytes]:
    """Return every file under a table with its bytes: two equal listings mean nothing was written."""
    root = Path(table)
    return {str(f.relative_to(root)): f.read_bytes() for f in sorted(root.rglob("*")) if f.is_file()}


def _sql(value: str | None) -> str:
    return "CAST(NULL AS STRING)" if value is None else f"'{value}'"


def _listed(keys: Iterable[int]) -> str:
    return ", ".join(map(str, keys))
