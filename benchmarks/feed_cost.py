"""What a change data feed costs the one who writes the table: seconds and bytes of each statement.

Four tables hold the same rows: feed off and on, deletion vectors off and on. Each statement runs on copies of
all four, in a new order each time, and what they hold is compared after every round.

    python benchmarks/feed_cost.py          # half a million rows, some minutes
    python benchmarks/feed_cost.py --quick  # does it run?
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from arms import Arm, Disagreement, race
from summary import print_table, ratio

from delta_cdc import get_session
from delta_cdc.core.sql import table as sql_table

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

#: A table without and with feed, and what its statements took.
Pair = tuple[tuple["Subject", Arm], tuple["Subject", Arm]]
_KINDS = ("data", "changes", "vectors", "log")
_FILES = 8
#: Columns of a row, made of its id and of the round that wrote it.
_VALUES = """
    CAST(pmod(xxhash64({id}, {turn}), 1000) AS INT) AS region,
    CAST(pmod(xxhash64({turn}, {id}), 100000000) / 100 AS DECIMAL(12, 2)) AS amount,
    concat('customer ', hex(xxhash64({id}, 7, {turn}))) AS name,
    timestamp_seconds(1700000000 + {turn} * 86400 + {id} % 86400) AS updated_at
"""


@dataclass
class Subject:
    """One of the four tables, and the bytes each run of a statement wrote to it."""

    path: Path
    feed: bool
    vectors: bool
    written: list[dict[str, int]] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"vectors {_on(self.vectors)}, feed {_on(self.feed)}"

    def copy(self, name: str) -> Subject:
        """Return the same table at another place: each statement finds the files as they were made."""
        path = self.path.with_name(f"{self.path.name}_{name}")
        return Subject(Path(shutil.copytree(self.path, path)), self.feed, self.vectors)

    def median_bytes(self) -> dict[str, float]:
        """Return the median bytes of a run, by kind."""
        return {kind: statistics.median(run[kind] for run in self.written) for kind in _KINDS}

    def bytes_by_kind(self) -> dict[str, int]:
        """Return what lies in the table's folder; nothing is ever removed from it."""
        found = dict.fromkeys(_KINDS, 0)
        for file in self.path.rglob("*"):
            if file.is_file():
                found[_kind(file.relative_to(self.path))] += file.stat().st_size
        return found


def _on(switch: bool) -> str:
    return "on" if switch else "off"


def _kind(file: Path) -> str:
    if file.parts[0] == "_delta_log":
        return "log"
    if file.parts[0] == "_change_data":
        return "changes"
    return "vectors" if ".bin" in file.suffixes else "data"


def create(session: SparkSession, subject: Subject, rows: int) -> None:
    """Make a table of so many rows in a handful of files."""
    session.sql(
        f"CREATE TABLE {sql_table(str(subject.path))} (id BIGINT, region INT, amount DECIMAL(12, 2), "
        "name STRING, updated_at TIMESTAMP) USING delta TBLPROPERTIES ("
        f"'delta.enableChangeDataFeed' = '{str(subject.feed).lower()}', "
        f"'delta.enableDeletionVectors' = '{str(subject.vectors).lower()}', "
        # A checkpoint costs every table the same, but not in every round.
        "'delta.checkpointInterval' = '10000')"
    )
    frame = session.range(0, rows, 1, _FILES).selectExpr("id", *_expressions("id", -1))
    frame.write.format("delta").mode("append").save(str(subject.path))


def _expressions(key: str, turn: int) -> list[str]:
    text = _VALUES.format(id=key, turn=turn)
    return [line.strip().removesuffix(",") for line in text.strip().splitlines()]


def _assignments(turn: int) -> str:
    pairs = [expression.rsplit(" AS ", 1) for expression in _expressions("id", turn)]
    return ", ".join(f"{column} = {expression}" for expression, column in pairs)


def insert(table: str, rows: int, turn: int) -> str:
    """Return a statement that adds 1 % new rows."""
    first = rows * (turn + 2)
    columns = ", ".join(_expressions("id", turn))
    return f"INSERT INTO {table} SELECT id, {columns} FROM range({first}, {first + rows // 100}, 1, 1)"


def update_scattered(table: str, rows: int, turn: int) -> str:
    """Return a statement that changes 1 % of the rows, in every file."""
    return f"UPDATE {table} SET {_assignments(turn)} WHERE pmod(xxhash64(id, 1), 100) = {turn}"


def update_range(table: str, rows: int, turn: int) -> str:
    """Return a statement that changes 1 % of the rows, in one file."""
    first = rows // 100 * turn
    return f"UPDATE {table} SET {_assignments(turn)} WHERE id >= {first} AND id < {first + rows // 100}"


def delete_scattered(table: str, rows: int, turn: int) -> str:
    """Return a statement that deletes 1 % of the rows, in every file."""
    return f"DELETE FROM {table} WHERE pmod(xxhash64(id, 2), 100) = {turn}"


def merge(table: str, rows: int, turn: int) -> str:
    """Return a statement that changes 1 % of the rows, deletes 0.1 % and adds 0.1 %, in every file."""
    columns = ", ".join(_expressions("id", turn))
    first = rows * (turn + 2) + rows // 2
    return f"""
        MERGE INTO {table} AS t USING (
            SELECT id, pmod(xxhash64(id, 4), 11) = 0 AS gone, {columns}
            FROM range(0, {rows}) WHERE pmod(xxhash64(id, 3), 91) = {turn}
            UNION ALL
            SELECT id, false AS gone, {columns} FROM range({first}, {first + rows // 1000})
        ) AS s ON t.id = s.id
        WHEN MATCHED AND s.gone THEN DELETE
        WHEN MATCHED THEN UPDATE SET
            region = s.region, amount = s.amount, name = s.name, updated_at = s.updated_at
        WHEN NOT MATCHED THEN INSERT (id, region, amount, name, updated_at)
            VALUES (s.id, s.region, s.amount, s.name, s.updated_at)
    """


STATEMENTS: dict[str, Callable[[str, int, int], str]] = {
    "INSERT of 1 %": insert,
    "UPDATE of 1 %, scattered": update_scattered,
    "UPDATE of 1 %, in one file": update_range,
    "DELETE of 1 %, scattered": delete_scattered,
    "MERGE of 1.2 %, scattered": merge,
}


def measure(session: SparkSession, root: Path, rows: int, repeats: int, warm_ups: int) -> None:
    """Run every statement on all four tables and print what it took."""
    originals = [
        Subject(root / f"feed_{feed}_vectors_{vectors}", feed, vectors)
        for vectors in (False, True)
        for feed in (False, True)
    ]
    for original in originals:
        create(session, original, rows)
    pairs: list[tuple[str, Pair]] = []
    for number, (name, statement) in enumerate(STATEMENTS.items()):
        subjects = [original.copy(str(number)) for original in originals]
        arms = [
            Arm(
                subject.name,
                partial(_execute, session, subject, statement, rows),
                partial(_content, session, subject),
            )
            for subject in subjects
        ]
        race(name, arms, repeats, warm_ups=warm_ups)
        both = list(zip(subjects, arms, strict=True))
        pairs += [(name, (both[0], both[1])), (name, (both[2], both[3]))]
        for subject in subjects:
            shutil.rmtree(subject.path)
    title = f"What a feed costs the writer of {rows:,} rows"
    times = ["statement", "deletion vectors", "feed off, s", "feed on, s", "on : off (95 %)"]
    print_table(f"{title}: time", times, _time_rows(pairs))
    sizes = ["statement", "deletion vectors", "feed", *(f"{kind}, kB" for kind in _KINDS), "sum", "on : off"]
    print_table(f"{title}: bytes", sizes, _byte_rows(pairs))


def _execute(
    session: SparkSession, subject: Subject, statement: Callable[[str, int, int], str], rows: int
) -> None:
    # Looking at the folder is a matter of some hundred file names: below a thousandth of a statement.
    before = subject.bytes_by_kind()
    session.sql(statement(sql_table(str(subject.path)), rows, len(subject.written)))
    after = subject.bytes_by_kind()
    subject.written.append({kind: after[kind] - before[kind] for kind in _KINDS})


def _content(session: SparkSession, subject: Subject) -> tuple[object, ...]:
    rows = session.read.format("delta").load(str(subject.path))
    whole = "sum(CAST(xxhash64(*) AS DECIMAL(38)))"
    return tuple(rows.selectExpr("count(*)", "count(DISTINCT id)", whole).collect()[0])


def _time_rows(pairs: list[tuple[str, Pair]]) -> Iterator[tuple[object, ...]]:
    for name, ((subject, off), (_, on)) in pairs:
        seconds = f"{off.median:.2f}", f"{on.median:.2f}"
        yield name, _on(subject.vectors), *seconds, ratio(on.seconds, off.seconds)


def _byte_rows(pairs: list[tuple[str, Pair]]) -> Iterator[tuple[object, ...]]:
    for name, pair in pairs:
        without = sum(pair[0][0].median_bytes().values())
        for subject, _ in pair:
            found = subject.median_bytes()
            cells = [f"{size / 1000:,.1f}" for size in found.values()]
            total = sum(found.values())
            switches = _on(subject.vectors), _on(subject.feed)
            yield name, *switches, *cells, f"{total / 1000:,.0f}", f"{total / without:.2f}"


def main() -> int:
    """Measure and print; 1 where the tables differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small tables, one round: a smoke run")
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    rows, repeats, warm_ups = (20_000, 1, 0) if arguments.quick else (arguments.rows, arguments.repeats, 1)
    session = get_session("feed cost", quick_start=arguments.quick)
    with tempfile.TemporaryDirectory() as folder:
        try:
            measure(session, Path(folder), rows, repeats, warm_ups)
        except Disagreement as error:
            print(f"the tables differ: {error}", file=sys.stderr)
            return 1
        finally:
            session.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
