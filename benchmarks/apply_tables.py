"""Sources and targets of the benchmark of applying changes: made once, kept, copied for every run."""

from __future__ import annotations

import json
import os
import shutil
import uuid
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING, Any

from arms import Worthless

from delta_cdc import apply_changes
from delta_cdc.core.sql import table as sql_table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from apply_cells import Cell
    from pyspark.sql import DataFrame, SparkSession

PIPELINE = "benchmark"
ATTRIBUTES = ("month", "region", "amount", "status", "name", "updated_at")
COLUMNS = ("id", *ATTRIBUTES)
START, END = "__START_AT", "__END_AT"
#: Values of a row, made of its id and of the turn that wrote it last.
_VALUES = (
    "CAST(pmod(xxhash64(id, {turn}), 1000) AS INT) AS region",
    "CAST(pmod(xxhash64({turn}, id), 100000000) / 100 AS DECIMAL(12, 2)) AS amount",
    "array('new', 'paid', 'sent', 'done')[CAST(pmod(xxhash64(id, 3, {turn}), 4) AS INT)] AS status",
    "concat('customer ', hex(xxhash64(id, 7, {turn}))) AS name",
    "timestamp_seconds(1700000000 + {turn} * 86400 + pmod(id, 86400)) AS updated_at",
)
_UPDATE = "WHEN MATCHED THEN UPDATE SET *"
_ROWS_PER_FILE = 640_000
#: Raised whenever tables are made in another way: kept ones are made again.
_RECIPE = 2


@dataclass(frozen=True)
class Source:
    """A table and the versions that are to be applied."""

    path: Path
    first: int
    last: int


class Disturbed(Worthless):
    """A table that every run starts from is no longer what it was."""


def newest(table: Path) -> int:
    """Return a table's newest version."""
    return max(int(file.stem) for file in (table / "_delta_log").glob("*.json") if file.stem.isdigit())


# -- copies -------------------------------------------------------------------------------------
def linked(table: Path, to: Path) -> Path:
    """Copy a table in no time: data files, which are never written to again, as hard links.

    The log is copied: file systems that write in place would change the original's last checkpoint.
    """
    for file in table.rglob("*"):
        if file.is_dir():
            continue
        copy = to / file.relative_to(table)
        copy.parent.mkdir(parents=True, exist_ok=True)
        if "_delta_log" in copy.parts:
            shutil.copy2(file, copy)
        else:
            os.link(file, copy)
    return to


def files(table: Path) -> dict[str, tuple[int, int]]:
    """Return size and time of every file of a table, but for the checksums that Hadoop puts beside them."""
    found = {}
    for file in table.rglob("*"):
        if file.is_file() and not (file.name.startswith(".") and file.name.endswith(".crc")):
            status = file.stat()
            found[str(file.relative_to(table))] = (status.st_size, status.st_mtime_ns)
    return found


def written(table: Path, before: dict[str, tuple[int, int]]) -> dict[str, int]:
    """Return the bytes of the files that came since ``before``: data, deletion vectors and log."""
    new = {"data": 0, "vectors": 0, "log": 0}
    for name, (size, _) in files(table).items():
        if name not in before:
            kind = "log" if name.startswith("_delta_log") else "vectors" if name.endswith(".bin") else "data"
            new[kind] += size
    return new


# -- tables -------------------------------------------------------------------------------------
class Workshop:
    """Makes tables and keeps them in a folder; what is there already is used."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.session = session
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def base(self, cell: Cell) -> Path:
        """Return the source as it is before the changes."""
        return self._kept(f"base-{cell.kind}-{cell.rows}-{cell.depth}", self._make_base, cell)

    def source(self, cell: Cell) -> Source:
        """Return the source with the changes as further versions."""
        name = f"source-{cell.kind}-{cell.rows}-{cell.depth}-{cell.changes}-{cell.spread}-{cell.mix}"
        path = self._kept(name, self._make_source, cell)
        return Source(path, newest(self.base(cell)) + 1, newest(path))

    def target(self, cell: Cell, layout: str) -> Path:
        """Return the target as it is before the changes.

        :param layout: ``ours``: as ``apply_changes`` makes it (deletion vectors, clustered by key) and with
            its seal; ``mack``: the same with the columns that mack asks for; ``plain``: without deletion
            vectors and clustering; ``partitioned``: the same, by month
        """
        makers: dict[str, Callable[[Cell, Path], None]] = {
            "ours": self._make_ours,
            "mack": self._make_mack,
            "plain": self._make_plain,
            "partitioned": self._make_partitioned,
        }
        name = f"target-{cell.kind}-{cell.rows}-{cell.depth}-scd{cell.scd_type}-{layout}"
        return self._kept(name, makers[layout], cell)

    def _kept(self, name: str, make: Callable[[Cell, Path], None], cell: Cell) -> Path:
        path, note = self.folder / name, self.folder / f"{name}.json"
        text = json.dumps({"recipe": _RECIPE})
        if path.is_dir() and note.is_file() and note.read_text() == text:
            return path
        shutil.rmtree(path, ignore_errors=True)
        # Spark remembers tables by their path: a draft's name is used once.
        draft = self.folder / f"draft-{uuid.uuid4().hex}"
        try:
            make(cell, draft)
            draft.rename(path)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        note.write_text(text)
        return path

    def _make_base(self, cell: Cell, path: Path) -> None:
        # Even ids, so that what is inserted later can lie between them.
        keys = self.session.range(0, cell.rows, 1, _files(cell.rows)).selectExpr("id * 2 AS id")
        events = _event(1, "U") if cell.kind == "change_log" else ()
        _save(_rows(keys, cell.rows, 0, *events), path, {"delta.enableChangeDataFeed": "true"})
        for turn in range(cell.depth - 1):
            self.session.sql(f"ALTER TABLE {sql_table(str(path))} SET TBLPROPERTIES ('turn' = '{turn}')")

    def _make_source(self, cell: Cell, path: Path) -> None:
        linked(self.base(cell), path)
        if cell.kind == "change_log":
            _save(_events(self.session, cell), path, {}, mode="append")
            return
        for half in (0, 1):
            changed = _changed_keys(self.session, cell).where(f"k DIV 10 % 2 = {half}")
            self._change(path, cell, changed)
        if cell.mix == "mixed":
            again = _changed_keys(self.session, cell).where("k % 5 = 0 OR k % 20 = 3")
            rows = _rows(again, cell.rows, 2, "k % 20 = 3 AS gone")
            self._merge(path, rows, "WHEN MATCHED AND s.gone THEN DELETE", _UPDATE)

    def _change(self, path: Path, cell: Cell, keys: DataFrame) -> None:
        rows = _rows(keys, cell.rows, turn=1)
        if cell.mix == "inserts":
            _save(rows, path, {}, mode="append")
        elif cell.mix == "nothing":
            self._merge(path, rows, "WHEN MATCHED THEN UPDATE SET amount = t.amount")
        else:
            self._merge(path, rows, _UPDATE, "WHEN NOT MATCHED THEN INSERT *")

    def _merge(self, path: Path, rows: DataFrame, *clauses: str) -> None:
        rows.createOrReplaceTempView("changed")
        self.session.sql(
            f"MERGE INTO {sql_table(str(path))} AS t USING changed AS s ON t.id = s.id {' '.join(clauses)}"
        )

    def _make_ours(self, cell: Cell, path: Path) -> None:
        base = self.base(cell)
        options = arguments(cell)
        if cell.depth == 1:
            apply_changes(self.session, str(base), str(path), **options)
            return
        last = cell.depth - 1
        history = self.session.range(0, cell.rows * cell.depth, 1, _files(cell.rows * cell.depth)).selectExpr(
            f"id DIV {cell.depth} * 2 AS id", f"CAST(id % {cell.depth} AS INT) AS j"
        )
        rows = _rows(history, cell.rows, f"(j - {last})", "j").selectExpr(
            *COLUMNS, f"CAST(j AS BIGINT) AS {START}", f"CAST(IF(j < {last}, j + 1, NULL) AS BIGINT) AS {END}"
        )
        properties = {
            "delta.enableDeletionVectors": "true",
            "delta.dataSkippingStatsColumns": f"id,{START},{END}",
        }
        _save(rows, path, properties)
        self.session.sql(f"ALTER TABLE {sql_table(str(path))} CLUSTER BY (id)")
        apply_changes(self.session, str(base), str(path), initial_load={"none_at": newest(base)}, **options)

    def _make_mack(self, cell: Cell, path: Path) -> None:
        ours = self._of_ours(cell).selectExpr(
            *COLUMNS, f"{END} IS NULL AS is_current", f"{START} AS effective_time", f"{END} AS end_time"
        )
        properties = {
            "delta.enableDeletionVectors": "true",
            "delta.dataSkippingStatsColumns": "id,effective_time,end_time",
        }
        _save(ours.repartitionByRange(_files(cell.rows * cell.depth), "id"), path, properties)
        self.session.sql(f"ALTER TABLE {sql_table(str(path))} CLUSTER BY (id)")

    def _make_plain(self, cell: Cell, path: Path) -> None:
        _save(self._of_ours(cell).repartitionByRange(_files(cell.rows * cell.depth), "id"), path, {})

    def _make_partitioned(self, cell: Cell, path: Path) -> None:
        _save(self._of_ours(cell).repartition("month"), path, {}, partitions=("month",))

    def _of_ours(self, cell: Cell) -> DataFrame:
        return self.session.read.format("delta").load(str(self.target(cell, "ours")))


def arguments(cell: Cell) -> dict[str, Any]:
    """Return how our users ask for a cell."""
    asked: dict[str, Any] = {"pipeline": PIPELINE, "keys": ["id"], "stored_as_scd_type": cell.scd_type}
    if cell.kind == "change_log":
        asked |= {
            "source_kind": "change_log",
            "sequence_by": "sequence",
            "apply_as_deletes": "operation = 'D'",
            "except_column_list": ["sequence", "operation"],
        }
    return asked


def _files(rows: int) -> int:
    return max(1, rows // _ROWS_PER_FILE)


def _rows(keys: DataFrame, of: int, turn: int | str = 0, *others: str) -> DataFrame:
    """Return whole rows for keys; their month grows with the key and never changes."""
    values = [text.format(turn=turn) for text in _VALUES]
    return keys.selectExpr("id", f"CAST(id * 8 DIV {of} AS INT) AS month", *values, *others)


def _changed_keys(session: SparkSession, cell: Cell) -> DataFrame:
    """Return ``k`` (0 …) and the ids that change; odd ones are new."""
    place = f"k * {cell.rows // cell.changes}" if cell.spread == "uniform" else f"k + {cell.rows // 2}"
    new = {"inserts": "1", "nothing": "0"}.get(cell.mix, "IF(k % 10 = 9, 1, 0)")
    keys = session.range(0, cell.changes, 1, 2).selectExpr("id AS k")
    return keys.selectExpr("k", f"({place}) * 2 + {new} AS id")


def _event(sequence: int, operation: str) -> tuple[str, str]:
    """Return what an event in a log has beside the row."""
    return f"CAST({sequence} AS BIGINT) AS sequence", f"'{operation}' AS operation"


def _events(session: SparkSession, cell: Cell) -> DataFrame:
    """Return the events that a log gets: as many as the commits of a table would say."""
    keys = _changed_keys(session, cell)
    parts = [
        _rows(keys, cell.rows, 1, *_event(2, "U")),
        _rows(keys.where("k % 5 = 0"), cell.rows, 2, *_event(3, "U")),
        _rows(keys.where("k % 20 = 3"), cell.rows, 1, *_event(4, "D")),
    ]
    return reduce(lambda some, more: some.union(more), parts[: 3 if cell.mix == "mixed" else 1])


def _save(
    rows: DataFrame,
    path: Path,
    properties: dict[str, str],
    *,
    mode: str = "errorifexists",
    partitions: tuple[str, ...] = (),
) -> None:
    writer = rows.write.format("delta").mode(mode).options(**properties)
    if partitions:
        writer = writer.partitionBy(*partitions)
    writer.save(str(path))
