"""Compare a table with the version that a plan was made on, by the files of its log.

The files are few and small, and named by their exact paths, so that this costs the same for every table.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Literal

from pyspark.sql import functions as F

from delta_cdc.core.storage_options import is_s3

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.watermark import TableVersion


def commit_hash(session: SparkSession, table_uri: str, version: int) -> str | None:
    """Return the SHA-256 (hex) of a version's commit file; None if there is no such file."""
    try:
        hashes = _file(session, table_uri, version).select(F.sha2("content", 256).alias("hash")).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return None
    return str(hashes[0]["hash"])


def own_commit_hash(
    session: SparkSession, table_uri: str, version: int, fingerprint: str
) -> tuple[str | None, bool]:
    """Return :func:`commit_hash`, and whether the file is the commit of a step.

    :param fingerprint: of the step; it is in the seal
    :return: (None, True) if there is no such file: with DynamoDB, the newest commit may come later
    """
    try:
        rows = (
            _file(session, table_uri, version)
            .select(
                F.sha2("content", 256).alias("hash"),
                F.col("content").cast("string").contains(fingerprint).alias("own"),
            )
            .limit(1)
            .collect()
        )
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return None, True
    return (str(rows[0]["hash"]), bool(rows[0]["own"])) if rows else (None, True)


def compared(
    session: SparkSession, table_uri: str, planned_on: TableVersion, *, single_driver: bool
) -> Literal["newest", "other", "unknown"]:
    """Compare a planned version with the files of the log.

    :param single_driver: only one driver writes. Several drivers on S3 may use Delta's log store with
        DynamoDB, and its newest commit may not be among the files yet
    :return: ``newest``: it is still the table's newest version; ``other``: its file has another hash;
        ``unknown``: there may be a newer version, or the plan did not record the hash
    """
    if planned_on.commit_hash is None or (is_s3(table_uri) and not single_driver):
        return "unknown"
    found = commit_hash(session, table_uri, planned_on.version)
    if found is not None and found != planned_on.commit_hash:
        return "other"
    return "unknown" if found is None or _exists(session, table_uri, planned_on.version + 1) else "newest"


def _exists(session: SparkSession, table_uri: str, version: int) -> bool:
    try:
        # Over Connect, only the analysis looks for the file.
        return bool(_file(session, table_uri, version).columns)
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return False


def _file(session: SparkSession, table_uri: str, version: int) -> DataFrame:
    # The reader treats its path as a pattern.
    folder = re.sub(r"([\\*?\[\]{}^,])", r"\\\1", table_uri.rstrip("/"))
    path = f"{folder}/_delta_log/{version:020d}.json"
    # Twice: Spark logs a warning with a stack trace for a single path that looks like a pattern.
    return session.read.format("binaryFile").load([path, path])
