"""Read the bytes of text files, line by line or whole.

The reader reads exactly the planned files, under their planned names. It escapes the names, so that Spark
does not treat part of a name as a pattern.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.ingest import sources

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from delta_cdc.core.spec import SourceFile

_PATTERN = re.compile(r"([\\\[\]{}*?])")


def paths(files: Sequence[SourceFile]) -> list[str]:
    """Return the paths for Spark's readers, with pattern characters escaped."""
    return [as_path(file.uri) for file in files]


def as_path(uri: str) -> str:
    """Return the path of a file for Spark's readers, with pattern characters escaped."""
    return _PATTERN.sub(r"\\\1", uri)


def names(error_text: str, uris: Iterable[str]) -> bool:
    """Return whether a text names one of these locations, as it is or as :func:`as_path` spells it.

    Spark's own errors escape the locations, and those of our function do not: one may have a percent sign.
    The beginning of another location does not count: ``/log`` is not named by ``/log__quarantine``.
    """
    texts = {error_text, unquote(error_text)}
    spellings = (spelling for uri in uris for spelling in (uri, as_path(uri)))
    found = ((text, re.escape(spelling)) for spelling in spellings for text in texts if spelling in text)
    return any(re.search(rf"{spelling}(?!\w)", text) for text, spelling in found)


def raw(
    session: SparkSession, files: Sequence[SourceFile], *, line_sep: str | None, is_whole: bool
) -> DataFrame:
    """Return the lines of files, or the files, as bytes, with the columns of :mod:`delta_cdc.ingest.sources`.

    :param line_sep: what ends a line; None: LF, CR LF or CR
    """
    if is_whole:
        rows = session.read.format("binaryFile").load(paths(files))
        # Its column path is not escaped, as the names of all other readers are.
        return rows.select(F.col("content").alias(sources.VALUE), *place(rows))
    reader = session.read if line_sep is None else session.read.option("lineSep", line_sep)
    rows = reader.text(paths(files))
    return rows.select(rows["value"].cast("binary").alias(sources.VALUE), *place(rows))


def place(rows: DataFrame) -> list[Column]:
    """Return where rows of files come from."""
    meta = rows.metadataColumn("_metadata")
    return [
        meta.getField("file_path").alias(sources.FILE),
        F.unix_micros(meta.getField("file_modification_time")).alias(sources.PUBLISHED),
        meta.getField("file_size").alias(sources.SIZE),
        meta.getField("file_block_start").alias(sources.START),
    ]
