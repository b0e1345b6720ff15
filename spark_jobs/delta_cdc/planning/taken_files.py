"""Reads, without Spark, what earlier batches of an ingest took: from the table beside the change log.

The table is append-only, so it has no masked rows.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from errno import ENOENT
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, cast

from delta_cdc.core.errors import NotADeltaTable, TableNotFound
from delta_cdc.core.reasons import reason
from delta_cdc.core.spec import OffsetRange
from delta_cdc.core.uris import canonical_uri, local_path, spark_uri
from delta_cdc.core.watermark import app_id
from delta_cdc.delta_log.requests import Storage
from delta_cdc.delta_log.table import DeltaLog

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

#: End of the name of the table beside a log that has its files.
INGESTED = "__ingested"
_COLUMNS = {
    "pipeline": "string",
    "seal": "int64",
    "file": "string",
    "size": "int64",
    "modified": "int64",
    "etag": "string",
    "topic": "string",
    "partition": "int32",
    "starting_offset": "int64",
    "ending_offset": "int64",
    "status": "string",
}
#: How many files are read at once: from an object store, and from a local disk, which gains nothing from
#: more.
_CONCURRENT, _LOCAL = 32, 4
#: The status in the one row of a batch without files and offsets -> the kind of that batch.
_REPLAYED = "replayed"
_WITHOUT = {_REPLAYED: "replay", "resealed": "renew"}


#: Identifies one delivery of a file: size, time in epoch milliseconds, and etag ("" without one). A plain
#: tuple, because a batch may have many.
Identity = tuple[int, int, str]


def same(one: Identity, other: Identity) -> bool:
    """Return whether both are the same delivery: by size, and by etag, or by time if a store has no etags."""
    if one[2] and other[2]:
        return one[0] == other[0] and one[2] == other[2]
    return one[:2] == other[:2]


@dataclass(frozen=True)
class Counted:
    """The files and records that the batches in the log took.

    :param rows: number of rows of the table that record these batches
    :param files: the newest delivery of each file, by URI
    :param positions: (topic, partition) -> the first offset that was not taken
    """

    rows: int = 0
    files: dict[str, Identity] = field(default_factory=dict)
    positions: dict[tuple[str, int], int] = field(default_factory=dict)


@dataclass(frozen=True)
class Batch:
    """The files and offsets that one batch took; empty and without a kind if its number is not recorded."""

    kind: Literal["ingest", "replay", "renew"] | None = None
    files: tuple[tuple[str, Identity], ...] = ()
    ranges: tuple[OffsetRange, ...] = ()


@cache
def _no_rows() -> Any:
    import pyarrow as pa  # type: ignore[import-untyped]

    return pa.schema(list(_COLUMNS.items())).empty_table()


@dataclass(frozen=True)
class Taken:
    """The content of the table beside the log.

    :param number: the number of the pipeline's newest batch; None if it never recorded one
    :param rows: all rows (a ``pyarrow.Table``)
    :param damaged: why some of its rows could not be read; "" if all could
    :param others: the number of the newest batch of each other pipeline, by its name
    """

    pipeline: str
    number: int | None = None
    rows: Any = field(default_factory=_no_rows)
    damaged: str = ""
    others: dict[str, int] = field(default_factory=dict)

    def counted(self, first: int, last: int, void: Sequence[Sequence[int]]) -> Counted:
        """Return the files and records that batches of the pipeline took.

        :param first: number of the first batch that counts
        :param last: number of the last one
        :param void: ranges of numbers, both ends included, that do not count
        """
        import pyarrow.compute as pc  # type: ignore[import-untyped]

        counts, seal = self._between(first, last), self.rows["seal"]
        for begin, end in void:
            counts = pc.and_kleene(counts, pc.or_kleene(pc.less(seal, begin), pc.greater(seal, end)))
        return _counted(self.rows.filter(counts).sort_by("seal"))

    def batch(self, number: int) -> Batch:
        """Return the record of one batch of the pipeline."""
        rows = self._batch_rows(self.pipeline, number).to_pylist()
        if not rows:
            return Batch()
        return Batch(
            kind=cast("Any", _WITHOUT.get(rows[0]["status"], "ingest")),
            files=tuple((row["file"], _identity(row)) for row in rows if row["topic"] is None),
            ranges=tuple(_range(row) for row in rows if row["topic"] is not None),
        )

    def has_replays(self, first: int, last: int) -> bool:
        """Return whether one of some batches of the pipeline was a replay.

        :param first: number of the first one
        :param last: number of the last one
        """
        import pyarrow.compute as pc

        replays = pc.and_kleene(self._between(first, last), pc.equal(self.rows["status"], _REPLAYED))
        return bool(pc.any(replays).as_py())

    @cached_property
    def silent(self) -> str | None:
        """Return another pipeline whose newest batch is missing in the table, or None."""
        lost = (
            name
            for name, number in sorted(self.others.items())
            if not self._batch_rows(name, number).num_rows
        )
        return next(lost, None)

    @cached_property
    def first(self) -> int | None:
        """Return the number of the pipeline's oldest batch that is recorded."""
        import pyarrow.compute as pc

        own = self.rows["seal"].filter(pc.equal(self.rows["pipeline"], self.pipeline))
        return pc.min(own).as_py()  # type: ignore[no-any-return]

    @cached_property
    def others_files(self) -> frozenset[str]:
        """Return the files that other pipelines took into the same log."""
        return frozenset(uri for uri in self._others["file"].to_pylist() if uri is not None)

    @cached_property
    def others_ranges(self) -> tuple[OffsetRange, ...]:
        """Return the records that other pipelines took into the same log."""
        others = self._others
        return tuple(_range(row) for row in others.filter(others["topic"].is_valid()).to_pylist())

    @property
    def has_others(self) -> bool:
        """Return whether other pipelines recorded files or offsets."""
        return bool(self._others.num_rows)

    @cached_property
    def _others(self) -> Any:
        import pyarrow.compute as pc

        return self.rows.filter(pc.not_equal(self.rows["pipeline"], self.pipeline))

    def _batch_rows(self, pipeline: str, number: int) -> Any:
        """Return the rows of one batch."""
        import pyarrow.compute as pc

        rows = self.rows
        return rows.filter(
            pc.and_kleene(pc.equal(rows["pipeline"], pipeline), pc.equal(rows["seal"], number))
        )

    def _between(self, first: int, last: int) -> Any:
        """Return whether each row is of a batch of the pipeline from the first to the last number."""
        import pyarrow.compute as pc

        seal = self.rows["seal"]
        is_within = pc.and_kleene(pc.greater_equal(seal, first), pc.less_equal(seal, last))
        # Masks: to plan the same as an expression of fields takes longer than to filter thousands of rows.
        return pc.and_kleene(pc.equal(self.rows["pipeline"], self.pipeline), is_within)


def beside(log: str, suffix: str) -> str:
    """Return the location of a table beside a change log, as Spark names it."""
    return f"{spark_uri(log).rstrip('/')}{suffix}"


async def taken(log: str, pipeline: str, storage_options: dict[str, str] | None = None) -> Taken:
    """Read the record of the files and offsets that were taken into a change log.

    :param log: location of the change log
    :raises NotADeltaTable: the table's location holds other files
    :raises StoreUnavailable: storage did not answer, or refused
    """
    uri = canonical_uri(beside(log, INGESTED))
    table = DeltaLog(uri, storage_options)
    try:
        state = await table.snapshot()
    except (TableNotFound, NotADeltaTable):
        if await table.left_over():
            return Taken(pipeline)
        raise
    prefix = app_id("")
    numbers = {
        name.removeprefix(prefix): number
        for name, number in (await table.transactions()).items()
        if name.startswith(prefix)
    }
    number = numbers.pop(pipeline, None)
    names = [name for name, *_ in await table.files(state.version)]
    rows, damaged = await asyncio.to_thread(_read, uri, sorted(names), storage_options)
    return Taken(pipeline, number, rows, damaged, numbers)


def _read(uri: str, names: list[str], storage_options: dict[str, str] | None) -> tuple[Any, str]:
    import pyarrow as pa

    storage = Storage(uri, storage_options)

    def one(name: str) -> Any:
        try:
            rows = read_columns(storage, name, _COLUMNS)
        except (pa.ArrowException, UnicodeDecodeError, OSError) as error:
            # Errors of the Parquet reader have no number. Of disk errors, only a missing file is damage.
            if isinstance(error, OSError) and error.errno not in (None, ENOENT):
                raise
            return f"{name}: {reason(error)}"
        # With column mapping, a file has other names. Without any column, its rows would record nothing.
        return rows if "pipeline" in rows.column_names else f"{name}: it has no column pipeline"

    workers = _CONCURRENT if local_path(uri) is None else _LOCAL
    with storage.named(), ThreadPoolExecutor(max_workers=workers) as pool:
        results = [one(name) for name in names] if len(names) < 2 else list(pool.map(one, names))
    tables = [part for part in results if not isinstance(part, str)]
    damaged = "; ".join([part for part in results if isinstance(part, str)][:1])
    return pa.concat_tables([_no_rows(), *tables], promote_options="permissive"), damaged


def read_columns(storage: Storage, name: str, columns: Iterable[str]) -> Any:
    """Return some columns of a Parquet file as a ``pyarrow.Table``; for use in a thread.

    :param name: relative to the storage
    :raises FileNotFoundError: the file does not exist
    """
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    path = local_path(storage.uri)
    # Arrow maps local files into memory, so it reads them without Python.
    source = pa.memory_map(f"{path}/{name}") if path is not None else storage.reader(name)
    with pq.ParquetFile(source, pre_buffer=path is None) as file:
        names = set(file.schema_arrow.names)
        return file.read(columns=[column for column in columns if column in names], use_threads=False)


def _counted(rows: Any) -> Counted:
    if not rows.num_rows:
        return Counted()
    import pyarrow as pa
    import pyarrow.compute as pc

    is_without = pc.is_in(rows["status"], value_set=pa.array(list(_WITHOUT), pa.string()))
    files = rows.filter(pc.and_kleene(rows["file"].is_valid(), pc.invert(is_without)))
    ranges = rows.filter(rows["topic"].is_valid())
    uris = files["file"].to_pylist()
    numbers = [pc.fill_null(files[name], 0).to_pylist() for name in ("size", "modified")]
    etags = pc.fill_null(files["etag"], "").to_pylist()
    positions: dict[tuple[str, int], int] = {}
    for row in ranges.to_pylist():
        key = row["topic"], row["partition"]
        positions[key] = max(positions.get(key, 0), row["ending_offset"])
    return Counted(
        rows=rows.num_rows,
        files=dict(zip(uris, zip(*numbers, etags, strict=True), strict=True)),
        positions=positions,
    )


def _identity(row: dict[str, Any]) -> Identity:
    return row["size"] or 0, row["modified"] or 0, row["etag"] or ""


def _range(row: dict[str, Any]) -> OffsetRange:
    return OffsetRange(row["topic"], row["partition"], row["starting_offset"], row["ending_offset"])
