"""Read a file of this machine as Spark would bring it, for ``delta-cdc decode`` and for tests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]

from delta_cdc.core.reader_options import option
from delta_cdc.ingest import sources
from delta_cdc.ingest.batch import UNKNOWN, Found, Maker, found_of, of_arrow
from delta_cdc.ingest.layout import dropped as left_out
from delta_cdc.ingest.layout import layout

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from delta_cdc.ingest.reading import Reading
    from delta_cdc.ingest.types import Type

#: Rows of an Arrow batch, as in Spark.
_ROWS = 10_000


def batches_of(path: Path, reading: Reading) -> Iterator[pa.RecordBatch]:
    """Return the records of a file as Arrow batches (:mod:`delta_cdc.ingest.sources`).

    :raises OSError: the file cannot be read, or its compressed content is damaged
    :raises FileDamaged: the same, for a file that is read as a whole
    """
    modified = path.stat().st_mtime_ns // 1_000
    if reading.is_columnar:
        at = 0
        for batch in pq.ParquetFile(path).iter_batches(_ROWS):
            rows = pa.array(range(at, at + len(batch)), pa.int64())
            at += len(batch)
            yield _placed(batch.columns, batch.schema.names, str(path), modified, rows)
        return
    # Whole files are decompressed where their records are read.
    codec = None if reading.is_whole else sources.CODECS.get(path.suffix)
    with pa.input_stream(str(path), compression=codec) as stream:
        data = stream.read()
    values = [data] if reading.is_whole else _lines(data, reading)
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS]
        yield _placed([pa.array(part, pa.binary())], [sources.VALUE], str(path), modified, None)


def _columns_of(path: Path) -> list[tuple[str, Type]]:
    """Return the columns of a Parquet file."""
    return [(field.name, of_arrow(field.type)) for field in pq.ParquetFile(path).schema_arrow]


def first_lines(path: Path, count: int = 3) -> list[str]:
    """Return the first lines of a text file, for hints."""
    with pa.input_stream(str(path), compression=sources.CODECS.get(path.suffix)) as stream:
        data = stream.read(64 * 1024)
    return str(data, "utf-8", "replace").splitlines()[:count]


def _lines(data: bytes, reading: Reading) -> list[bytes]:
    """Return lines as Spark's reader splits them: for CSV at LF alone, because a value may contain a CR."""
    line_sep = option(reading.format_options, "lineSep")
    if line_sep or reading.format == "csv":
        lines = data.split((line_sep or "\n").encode())
    else:
        lines = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
    if lines[0].startswith(b"\xef\xbb\xbf"):
        lines[0] = lines[0][3:]
    return lines[:-1] if not lines[-1] else lines


def _placed(
    columns: list[Any], names: list[str], path: str, modified: int, rows: pa.Array | None
) -> pa.RecordBatch:
    count = len(columns[0])
    arrays = [
        *columns,
        pa.array([path] * count, pa.string()),
        pa.array([modified] * count, pa.int64()),
        *[pa.array([0] * count, pa.int64())] * 2,
    ]
    names = [*names, sources.FILE, sources.PUBLISHED, sources.SIZE, sources.START]
    if rows is not None:
        arrays, names = [*arrays, rows], [*names, sources.ROW]
    return pa.RecordBatch.from_arrays(arrays, names)


def complete(reading: Reading, path: Path, declared: Type | None) -> Reading:
    """Return the reading with the columns that a first batch of the file alone would have."""
    found = Found()
    given = dict(_columns_of(path)) if reading.is_columnar and declared is None else {}
    if declared is None and not given:
        for batch in found_of(reading)(batches_of(path, reading)):
            for text in batch.column(0).to_pylist():
                found.merge(Found.of_text(text))
    excluded = reading.adapter_options.get("except_column_list") or ()
    columns, others = layout(
        reading.made_adapter(), declared, None, given, found, keys=reading.keys, excluded=excluded
    )
    return reading.with_columns(columns, others)


def dropped(
    reading: Reading, path: Path, declared: Type, rows: Sequence[Mapping[str, Any]]
) -> tuple[str, ...]:
    """Return the members of a file's records that ``schema`` leaves out.

    :param rows: from :func:`rows_of_file`
    """
    found = Found()
    for text in (row[UNKNOWN] for row in rows if row[UNKNOWN] is not None):
        found.merge(Found.of_text(text))
    given = [name for name, _ in _columns_of(path)] if reading.is_columnar else []
    return left_out(reading.made_adapter(), declared, {*found.dropped, *given}, reading.adapter_options)


def rows_of_file(reading: Reading, path: Path) -> list[dict[str, Any]]:
    """Return the rows that a file becomes (:mod:`delta_cdc.ingest.batch`)."""
    return [row for batch in Maker(reading).batches(batches_of(path, reading)) for row in batch.to_pylist()]
