"""What reading changes costs, side by side with what people would write without us.

Ours against Delta's own reader, against the window query people write by hand, and against a join of two
snapshots; captures against each other, which gives the crossover that ``method="auto"`` goes by; and the law
that a read of changes costs what the changes cost, not what the table does. What is timed plans a query,
runs it and throws its rows away. In every round all arms must give the same rows.

    python benchmarks/changes.py                      # everything, some minutes
    python benchmarks/changes.py --quick              # does it run?
    python benchmarks/changes.py --only feed captures # some of it
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from arms import Arm, Worthless, race
from summary import crossings, print_table, ratio

from delta_cdc import get_session, plan_changes, read_changes
from delta_cdc.core.sql import quote
from delta_cdc.core.sql import table as sql_table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.steps import ReadRange

Frame = Callable[[], "DataFrame"]
_COLUMNS = ("id", "region", "amount", "name")
_METADATA = ("_change_type", "_commit_version", "_commit_timestamp")
#: Columns of a row of the big tables, made of its id.
_ROW = ("id", "CAST(id % 1000 AS INT) AS region", "id / 8 AS amount", "concat('customer ', hex(id)) AS name")
_MEGABYTE = 1_000_000


class ReadTwice(Worthless):
    """A query read the source more than once."""


@dataclass(frozen=True)
class Scale:
    """How much of everything.

    :param history: rows of the table with twenty commits of all kinds
    :param big: rows of the table of which few rows change
    :param hot: rows that change again and again
    :param commits: how often they do
    :param ladder: after how many of these commits is measured
    :param sizes: rows of the tables with a fixed number of changes
    """

    history: int = 400_000
    big: int = 2_000_000
    hot: int = 50_000
    commits: int = 32
    ladder: tuple[int, ...] = (1, 4, 16, 32)
    sizes: tuple[int, ...] = (100_000, 1_000_000, 10_000_000)
    changes: int = 1_000
    repeats: int = 5
    warm_ups: int = 1


QUICK = Scale(
    history=5_000,
    big=16_000,
    hot=500,
    commits=2,
    ladder=(1, 2),
    sizes=(10_000, 20_000),
    changes=100,
    repeats=1,
    warm_ups=0,
)


# -- tables -------------------------------------------------------------------------------------
class Table:
    """A table at a path, made by SQL."""

    def __init__(self, session: SparkSession, path: Path, *, vectors: bool, feed: bool = True) -> None:
        self.session = session
        self.path = path
        self._properties = {
            "delta.enableChangeDataFeed": feed,
            "delta.enableDeletionVectors": vectors,
            "delta.enableRowTracking": True,
        }

    @property
    def uri(self) -> str:
        return str(self.path)

    def create(self, rows: int, files: int) -> None:
        """Fill version 1 with rows 0 … ``rows`` - 1, in files of consecutive ids."""
        properties = ", ".join(
            f"'{name}' = '{str(value).lower()}'" for name, value in self._properties.items()
        )
        self.sql(
            "CREATE TABLE {} (id BIGINT, region INT, amount DOUBLE, name STRING) USING delta TBLPROPERTIES "
            f"({properties}, 'delta.checkpointInterval' = '10000')"
        )
        frame = self.session.range(0, rows, 1, files).selectExpr(*_ROW)
        frame.write.format("delta").mode("append").save(self.uri)

    def sql(self, statement: str) -> None:
        """Run a statement in which ``{}`` stands for the table."""
        self.session.sql(statement.replace("{}", sql_table(self.uri)))

    @property
    def newest(self) -> int:
        return max(
            int(file.stem) for file in (self.path / "_delta_log").glob("*.json") if file.stem.isdigit()
        )

    def changes(self, first: int, last: int, **options: Any) -> DataFrame:
        """Ask for changes as our users do."""
        return read_changes(self.session, self.uri, starting_version=first, ending_version=last, **options)

    def read_ranges(self, first: int, last: int, **options: Any) -> tuple[ReadRange, ...]:
        plan = plan_changes(self.uri, starting_version=first, ending_version=last, **options)
        return plan.read_ranges

    def feed(self, first: int, last: int) -> DataFrame:
        """Read the change feed by Delta's reader alone."""
        reader = self.session.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", first).option("endingVersion", last).load(self.uri)

    def at(self, version: int) -> DataFrame:
        """Read a snapshot."""
        return self.session.read.format("delta").option("versionAsOf", version).load(self.uri)


def make_history(session: SparkSession, path: Path, rows: int, *, vectors: bool) -> Table:
    """Make a table with twenty commits of all kinds that a source sees in its life."""
    table = Table(session, path, vectors=vectors)
    table.create(rows, 4)
    for turn in range(5):
        first = rows * (turn + 2)
        table.sql(f"UPDATE {{}} SET amount = amount + 1 WHERE pmod(xxhash64(id, {turn}), 12) = 0")
        table.sql(
            f"INSERT INTO {{}} SELECT {', '.join(_ROW)} FROM range({first}, {first + rows // 50}, 1, 1)"
        )
        table.sql(f"DELETE FROM {{}} WHERE pmod(xxhash64(id, {turn}), 100) = 1")
        table.sql(f"""
            MERGE INTO {{}} AS t USING (
                SELECT {", ".join(_ROW)} FROM range(0, {rows}) WHERE pmod(xxhash64(id, 9, {turn}), 12) = 0
            ) AS s ON t.id = s.id
            WHEN MATCHED AND s.id % 10 = 0 THEN DELETE
            WHEN MATCHED THEN UPDATE SET region = t.region + 1
            WHEN NOT MATCHED THEN INSERT *
        """)
    return table


# -- what people write --------------------------------------------------------------------------
def by_hand(table: Table, first: int, last: int, query: str) -> DataFrame:
    """Return the net changes per id as a window over the feed: one shuffle, one sort, one pass."""
    session = table.session
    rows = table.feed(first, last)
    values = ", ".join(map(quote, _COLUMNS))
    state = f"struct({values}) AS state"
    version = "max(_commit_version) OVER whole AS last_version"
    moment = "last_value(_commit_timestamp) OVER whole AS last_timestamp"
    sides = f"""
        SELECT first_value(state) OVER whole AS before, last_value(state) OVER whole AS after,
            first_value(_change_type) OVER whole IN ('delete', 'update_preimage') AS existed,
            last_value(_change_type) OVER whole IN ('insert', 'update_postimage') AS exists_now,
            {version}, {moment}, row_number() OVER ordered AS n
        FROM (SELECT *, {state}, CAST(_change_type IN ('insert', 'update_postimage') AS INT) AS side
              FROM {{rows}})
        WINDOW ordered AS (PARTITION BY id ORDER BY _commit_version, side),
            whole AS (PARTITION BY id ORDER BY _commit_version, side
                      ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)
    """
    net = f"""
        SELECT * FROM ({sides})
        WHERE n = 1 AND (existed OR exists_now) AND NOT (existed AND exists_now AND before <=> after)
    """
    after = "named_struct('kind', IF(existed, 'update_postimage', 'insert'), 'state', after)"
    before = "named_struct('kind', IF(exists_now, 'update_preimage', 'delete'), 'state', before)"
    if query == "upsert":
        told = f"SELECT {after} AS told, last_version, last_timestamp FROM ({net}) WHERE exists_now"
    else:
        both = (
            f"filter(array(IF(existed, {before}, NULL), IF(exists_now, {after}, NULL)), x -> x IS NOT NULL)"
        )
        told = f"SELECT explode({both}) AS told, last_version, last_timestamp FROM ({net})"
    return session.sql(
        f"""
        SELECT told.state.*, told.kind AS _change_type, last_version AS _commit_version,
            last_timestamp AS _commit_timestamp
        FROM ({told})
        """,
        rows=rows,
    )


def snapshots_by_row_id(table: Table, first: int, last: int) -> DataFrame:
    """Return the net changes as a join of two whole snapshots by row id."""
    tracked = ("_metadata.row_id AS row_id", "_metadata.row_commit_version AS row_version")
    before = table.at(first - 1).selectExpr(f"struct({', '.join(_COLUMNS)}) AS before", *tracked)
    after = table.at(last).selectExpr(f"struct({', '.join(_COLUMNS)}) AS after", *tracked)
    both = before.withColumnRenamed("row_version", "old_version").join(after, "row_id", "full")
    return _told(both.where("NOT (old_version <=> row_version)"))


def snapshots_by_key(table: Table, first: int, last: int) -> DataFrame:
    """Return the net changes as a join of two whole snapshots by id."""
    before = table.at(first - 1).selectExpr("id", f"struct({', '.join(_COLUMNS)}) AS before")
    after = table.at(last).selectExpr("id", f"struct({', '.join(_COLUMNS)}) AS after")
    return _told(before.join(after, "id", "full").where("NOT (before <=> after)"))


def _told(both: DataFrame) -> DataFrame:
    before = "named_struct('kind', IF(after IS NULL, 'delete', 'update_preimage'), 'state', before)"
    after = "named_struct('kind', IF(before IS NULL, 'insert', 'update_postimage'), 'state', after)"
    rows = both.selectExpr(f"explode(array({before}, {after})) AS told").where("told.state IS NOT NULL")
    return rows.selectExpr("told.state.*", "told.kind AS _change_type")


# -- measuring ----------------------------------------------------------------------------------
def drain(frame: Frame) -> None:
    """Plan and run a query, and throw its rows away.

    The sink ``noop`` would do the same, but below it Delta 4.4 cannot plan a scan of a table with deletion
    vectors ("Cannot work with a non-pinned table snapshot").
    """
    frame()._jdf.queryExecution().toRdd().count()


def digest(frame: Frame, columns: Sequence[str]) -> tuple[object, ...]:
    """Return what tells one bag of rows from another."""
    hashed = f"CAST(xxhash64({', '.join(map(quote, columns))}) AS DECIMAL(38))"
    return tuple(frame().selectExpr("count(*)", f"sum({hashed})").collect()[0])


def fewer(scale: Scale) -> Scale:
    """Return a scale for differences that show in few rounds."""
    return replace(scale, repeats=max(1, scale.repeats - 2))


def compared(
    title: str,
    frames: dict[str, Frame],
    scale: Scale,
    columns: Sequence[str] = (*_COLUMNS, *_METADATA),
) -> list[Arm]:
    """Race queries that must give the same rows."""
    arms = [
        Arm(name, partial(drain, frame), partial(digest, frame, columns)) for name, frame in frames.items()
    ]
    race(title, arms, scale.repeats, warm_ups=scale.warm_ups)
    return arms


@dataclass(frozen=True)
class Reads:
    """What running a query read: leaves of its plan, rows by the metrics of its tasks.

    Bytes would say the same, but Spark's metrics leave out what Parquet reads in vectors. Among the rows are
    actions of the log, which Delta reads as rows too.
    """

    scans: int
    rows: int


def reads(session: SparkSession, frame: Frame, group: str) -> Reads:
    """Run a query and return what it read."""
    context = session.sparkContext
    query = frame()
    # The plan before Spark splits it into stages: there it is one tree with all its leaves.
    leaves = query._jdf.queryExecution().sparkPlan().collectLeaves()
    names = [leaves.apply(at).nodeName() for at in range(leaves.size())]
    context.setJobGroup(group, group)
    try:
        drain(lambda: query)
    finally:
        context.setLocalProperty("spark.jobGroup.id", "")
    tracker, store = context.statusTracker(), context._jsc.sc().statusStore()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = {stage for job in jobs if job is not None for stage in job.stageIds}
    found = map(store.lastStageAttempt, stages)
    return Reads(sum("Scan" in name for name in names), sum(stage.inputRecords() for stage in found))


class Log:
    """What a table's log says about files: how many rows a method must read."""

    def __init__(self, table: Table) -> None:
        self._path = table.path
        files = sorted((table.path / "_delta_log").glob("*.json"))
        self._commits = {
            int(file.stem): [json.loads(line) for line in file.read_text().splitlines()] for file in files
        }

    @property
    def actions(self) -> int:
        """Return the number of actions in the log."""
        return sum(map(len, self._commits.values()))

    def _files(self, version: int, *kinds: str) -> list[dict[str, Any]]:
        actions = self._commits[version]
        return [action[kind] for action in actions for kind in kinds if kind in action]

    @cached_property
    def _rows(self) -> dict[str, int]:
        """Return the rows of every data file."""
        adds = [add for version in self._commits for add in self._files(version, "add")]
        return {add["path"]: json.loads(add["stats"])["numRecords"] for add in adds}

    def _active(self, version: int) -> set[tuple[str, str]]:
        active: set[tuple[str, str]] = set()
        for at in range(version + 1):
            active -= {_identity(file) for file in self._files(at, "remove")}
            active |= {_identity(file) for file in self._files(at, "add")}
        return active

    def rows_of(self, read_range: ReadRange) -> int:
        """Return the rows of the files that a segment is read from, each file once."""
        versions = range(read_range.starting_version, read_range.ending_version + 1)
        if read_range.net:
            ends = self._active(read_range.starting_version - 1) ^ self._active(read_range.ending_version)
            return sum(self._rows[path] for path, _ in ends)
        if read_range.method == "change_files":
            return sum(self._feed_rows(version) for version in versions)
        files = set()
        for version in versions:
            changed = [file for file in self._files(version, "add", "remove") if file["dataChange"]]
            # Commits with files on one side only need no matching of rows: they are a scan of their own, and
            # a file that came with one and went with another of the others is in both.
            matched = len({"deletionTimestamp" in file for file in changed}) == 2
            files |= {(*_identity(file), matched) for file in changed}
        return sum(self._rows[path] for path, *_ in files)

    def _feed_rows(self, version: int) -> int:
        import pyarrow.parquet

        changes = self._files(version, "cdc")
        if changes:
            paths = [self._path / file["path"] for file in changes]
            return sum(pyarrow.parquet.read_metadata(path).num_rows for path in paths)
        return sum(
            self._rows[file["path"]] for file in self._files(version, "add", "remove") if file["dataChange"]
        )


def _identity(file: dict[str, Any]) -> tuple[str, str]:
    vector = file.get("deletionVector") or {}
    return file["path"], f"{vector.get('pathOrInlineDv', '')}@{vector.get('offset', '')}"


# -- benchmarks ---------------------------------------------------------------------------------
def against_the_feed(session: SparkSession, root: Path, scale: Scale) -> None:
    """Ours against Delta's reader and against the window query, over one history."""
    rows: list[tuple[object, ...]] = []
    scans: list[tuple[object, ...]] = []
    for vectors in (False, True):
        layout = "on" if vectors else "off"
        table = make_history(session, root / f"history_{layout}", scale.history, vectors=vectors)
        first, last = 2, table.newest
        ours = partial(table.changes, first, last, method="change_files")
        plain = partial(table.feed, first, last)
        races: dict[str, dict[str, Frame]] = {
            "full_delta": {"ours": ours, "readChangeFeed": plain},
            **{
                query: {
                    "ours": partial(ours, query=query, keys=["id"]),
                    "window query": partial(by_hand, table, first, last, query),
                }
                for query in ("min_delta", "upsert")
            },
        }
        for query, frames in races.items():
            arms = compared(f"{query}, vectors {layout}", frames, scale)
            cells = f"{arms[0].median:.2f}", f"{arms[1].median:.2f}"
            rows.append((query, layout, arms[1].name, *cells, ratio(arms[0].seconds, arms[1].seconds)))
        if not vectors:
            scans = list(_scanned(table, first, last))
    changed = digest(plain, _COLUMNS)[0]
    heading = ["query", "deletion vectors", "against", "ours, s", "theirs, s", "ours : theirs (95 %)"]
    print_table(f"{changed:,} change rows in {last - first + 1} commits", heading, rows)
    heading = ["query", "method", "scans in the plan", "rows and actions read", "rows in the files"]
    print_table("The source is read once", heading, scans)


def _scanned(table: Table, first: int, last: int) -> Iterator[tuple[object, ...]]:
    """Run every query by every method; each must read every file once.

    :raises ReadTwice: where one did not
    """
    log = Log(table)
    asked: list[tuple[str, str]] = [
        *[(query, "change_files") for query in ("full_delta", "append_only", "min_delta", "upsert")],
        *[(query, "row_tracking") for query in ("full_delta", "append_only", "min_delta", "upsert")],
        *[(query, "snapshot_diff") for query in ("min_delta", "upsert")],
    ]
    for query, method in asked:
        keys = ["id"] if query in ("min_delta", "upsert") else None
        options = {"query": query, "method": method, "keys": keys}
        read_ranges = table.read_ranges(first, last, **options)
        found = reads(table.session, partial(table.changes, first, last, **options), f"{query} {method}")
        rows = sum(map(log.rows_of, read_ranges))
        most = 1 if all(part.net or part.method == "change_files" for part in read_ranges) else 2
        if found.scans > most * len(read_ranges) or found.rows > rows + 2 * log.actions:
            raise ReadTwice(f"{query} by {method}: {found}, but {len(read_ranges)} segments of {rows} rows")
        yield query, method, found.scans, f"{found.rows:,}", f"{rows:,}"


def between_captures(session: SparkSession, root: Path, scale: Scale) -> None:
    """Row tracking against change files, from few changes in much rewriting to the opposite."""
    rungs = [
        *_few_changes(session, root, scale),
        *_many_changes(session, root, scale, 1),
        *_many_changes(session, root, scale, 5),
    ]
    heading = [
        "history",
        "change files, MB",
        "both ends, MB",
        "change files : ends",
        "change_files, s",
        "row_tracking, s",
        "row_tracking : change_files (95 %)",
    ]
    print_table("min_delta by change files and by row tracking", heading, (rung.row() for rung in rungs))
    ladders: dict[str, list[Rung]] = {}
    for rung in rungs:
        ladders.setdefault(rung.ladder, []).append(rung)
    crossed = [(name, _crossover(ladder)) for name, ladder in ladders.items() if len(ladder) > 1]
    print_table(
        "Crossover: bytes of change files for one byte of both ends at which both take the same time",
        ["ladder", "change files : ends"],
        crossed,
    )


@dataclass(frozen=True)
class Rung:
    """One history, read in two ways.

    :param feed_size: bytes of change files, by the log
    :param ends_size: bytes of the files in which both ends differ
    """

    ladder: str
    history: str
    feed_size: int
    ends_size: int
    feed: Arm
    ends: Arm

    @property
    def sizes(self) -> float:
        return self.feed_size / self.ends_size

    @property
    def times(self) -> float:
        return self.ends.median / self.feed.median

    def row(self) -> tuple[object, ...]:
        return (
            self.history,
            f"{self.feed_size / _MEGABYTE:.2f}",
            f"{self.ends_size / _MEGABYTE:.2f}",
            f"{self.sizes:.2f}",
            f"{self.feed.median:.2f}",
            f"{self.ends.median:.2f}",
            ratio(self.ends.seconds, self.feed.seconds),
        )


def _rung(table: Table, first: int, last: int, ladder: str, history: str, scale: Scale) -> Rung:
    captures = ("change_files", "row_tracking")
    options = {name: {"query": "min_delta", "keys": ["id"], "method": name} for name in captures}
    frames: dict[str, Frame] = {
        name: partial(table.changes, first, last, **options[name]) for name in captures
    }
    sizes = [sum(part.size for part in table.read_ranges(first, last, **options[name])) for name in captures]
    feed, ends = compared(history, frames, fewer(scale), (*_COLUMNS, "_change_type", "_commit_version"))
    return Rung(ladder, history, sizes[0], sizes[1], feed, ends)


def _few_changes(session: SparkSession, root: Path, scale: Scale) -> Iterator[Rung]:
    table = Table(session, root / "few", vectors=False)
    table.create(scale.big, 16)
    step = scale.big // scale.changes
    table.sql(f"UPDATE {{}} SET amount = amount + 1 WHERE id % {step} = 0")
    name = f"{scale.changes:,} scattered rows of {scale.big:,}, 1 commit"
    yield _rung(table, 2, 2, "few changes", name, scale)


def _many_changes(session: SparkSession, root: Path, scale: Scale, spread: int) -> Iterator[Rung]:
    """Change the same rows again and again: of each file, one row in ``spread``."""
    table = Table(session, root / f"many_{spread}", vectors=False)
    table.create(scale.hot * spread, 1)
    for _ in range(scale.commits):
        table.sql(f"UPDATE {{}} SET amount = amount + 1 WHERE id % {spread} = 0")
    ladder = f"{scale.hot:,} rows of files that hold {scale.hot * spread:,}"
    for commits in scale.ladder:
        yield _rung(table, 2, 1 + commits, ladder, f"{ladder}, {commits} commit{'s' * (commits > 1)}", scale)


def _crossover(ladder: list[Rung]) -> str:
    """Return where the times are equal."""
    found = crossings((rung.sizes, rung.times) for rung in ladder)
    if found:
        return ", ".join(f"{size:.2f}" for size in found)
    return f"below {ladder[0].sizes:.2f}" if ladder[0].times < 1.0 else f"above {ladder[-1].sizes:.2f}"


def by_table_size(session: SparkSession, root: Path, scale: Scale) -> None:
    """The same number of changes in tables of every size."""
    frames: dict[str, dict[str, Frame]] = {"full_delta": {}, "min_delta": {}}
    for size in scale.sizes:
        table = Table(session, root / f"size_{size}", vectors=True)
        table.create(size, 8)
        table.sql(f"UPDATE {{}} SET name = 'changed' WHERE id % {size // scale.changes} = 0")
        name = f"{size:,}"
        frames["full_delta"][name] = partial(table.changes, 2, 2, method="change_files")
        frames["min_delta"][name] = partial(
            table.changes, 2, 2, query="min_delta", keys=["id"], method="change_files"
        )
    rows = []
    for query, sizes in frames.items():
        small = replace(scale, repeats=scale.repeats * 2, warm_ups=scale.warm_ups * 2)
        # What changed are other rows in each table, but as many, in the same way.
        arms = compared(f"{query} by size", sizes, small, ("_change_type", "_commit_version"))
        for arm in arms:
            cells = f"{arm.median:.3f}", ratio(arm.seconds, arms[0].seconds)
            rows.append((query, arm.name, *cells))
    heading = ["query", "rows of the table", "change_files, s", "against the smallest (95 %)"]
    print_table(f"{scale.changes:,} changes in one commit", heading, rows)


def against_snapshots(session: SparkSession, root: Path, scale: Scale) -> None:
    """Only the files in which both ends differ, against a join of both snapshots."""
    rows = []
    for spread, where in (("one file", f"id < {scale.changes}"), ("every file", "id % 1000 = 0")):
        table = Table(session, root / f"ends_{spread.replace(' ', '_')}", vectors=False, feed=False)
        table.create(scale.big // 2, 16)
        table.sql(f"UPDATE {{}} SET amount = amount + 1 WHERE {where}")
        naive = {"row_tracking": snapshots_by_row_id, "snapshot_diff": snapshots_by_key}
        frames: dict[str, Frame] = {}
        for method, by_snapshots in naive.items():
            frames[method] = partial(table.changes, 2, 2, query="min_delta", keys=["id"], method=method)
            frames[f"{method} by hand"] = partial(by_snapshots, table, 2, 2)
        arms = compared(f"both ends, changes in {spread}", frames, fewer(scale), (*_COLUMNS, "_change_type"))
        for ours, theirs in (arms[:2], arms[2:]):
            cells = f"{ours.median:.2f}", f"{theirs.median:.2f}"
            rows.append((ours.name, spread, *cells, ratio(ours.seconds, theirs.seconds)))
    heading = ["method", "changes are in", "ours, s", "two snapshots joined, s", "ours : theirs (95 %)"]
    print_table(f"min_delta of one UPDATE, {scale.big // 2:,} rows in 16 files, no feed", heading, rows)


PARTS: dict[str, Callable[[SparkSession, Path, Scale], None]] = {
    "feed": against_the_feed,
    "captures": between_captures,
    "size": by_table_size,
    "snapshots": against_snapshots,
}


def run(parts: Iterable[str], scale: Scale, *, quick: bool) -> None:
    """Run parts in one session."""
    session = get_session("changes", quick_start=quick)
    try:
        for name in parts:
            with tempfile.TemporaryDirectory() as folder:
                PARTS[name](session, Path(folder), scale)
    finally:
        session.stop()


def main() -> int:
    """Measure and print; 1 where two arms gave different rows, or a source was read twice."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="small tables, one round: a smoke run")
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--repeats", type=int, help=f"rounds that count, {Scale().repeats}")
    arguments = parser.parse_args()
    scale = QUICK if arguments.quick else Scale()
    if arguments.repeats is not None:
        scale = replace(scale, repeats=arguments.repeats)
    try:
        run(arguments.only, scale, quick=arguments.quick)
    except Worthless as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
