"""Keep the rows of a commit for the next step of the same session, which need not read them again.

An ingest computes its events once, writes them to the change log, and keeps them while the apply that follows
it runs. That apply uses them if its range is exactly this commit.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from delta_cdc.core import reserved_columns
from delta_cdc.core.reasons import reason
from delta_cdc.core.sql import quote
from delta_cdc.spark.sealed.commit_files import commit_hash

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delta_cdc.core.watermark import TableVersion

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Written:
    """The rows of one commit.

    :param hash: the SHA-256 of the commit's file, which no other table's commit has
    """

    uri: str
    version: int
    hash: str
    rows: DataFrame


#: By session. The rows refer to their session, so they must be removed; :func:`kept` does.
_kept: WeakKeyDictionary[SparkSession, _Written] = WeakKeyDictionary()


@contextmanager
def kept(session: SparkSession, uri: str, version: int, rows: DataFrame) -> Iterator[None]:
    """Keep the rows that a commit added, for statements of the same session in the ``with`` block.

    :param rows: materialised; exactly the rows that the commit added
    """
    try:
        found = commit_hash(session, uri, version)
    except Exception as error:  # noqa: BLE001 - the rows can be read from the table
        log.debug("version %s of %s is read from its files: %s", version, uri, reason(error))
        found = None
    if found is None:
        yield
        return
    _kept[session] = _Written(uri, version, found, rows)
    try:
        yield
    finally:
        del _kept[session]


def has_range(session: SparkSession, uri: str, starting_version: int, ending: TableVersion) -> bool:
    """Return whether the session keeps the rows of a range that ends with a version as planned."""
    written = _kept.get(session)
    if written is None or ending.commit_hash is None:
        return False
    is_range = starting_version == ending.version == written.version
    return is_range and written.uri == uri and written.hash == ending.commit_hash


def rows(session: SparkSession, columns: Sequence[str]) -> DataFrame | None:
    """Return the kept rows as a log's reader would: its columns, in its types, and the commit's version.

    :param columns: of the log as of the commit
    :return: None if a column of the log has another type than the kept one, because the commit merged fields
        of a struct
    """
    written = _kept[session]
    log_schema = session.read.format("delta").load(written.uri).schema
    types = {field.name: field.dataType.simpleString() for field in log_schema.fields}
    available = {field.name: field.dataType.simpleString() for field in written.rows.schema.fields}
    if any(name not in types or available.get(name, types[name]) != types[name] for name in columns):
        return None
    values = [
        F.col(quote(name)) if name in available else F.lit(None).cast(types[name]).alias(name)
        for name in columns
    ]
    version = F.lit(written.version).cast("bigint").alias(reserved_columns.COMMIT_VERSION)
    return written.rows.select(*values, version)
