"""Compare a table with the version that a plan was made on, by the files of its log.

The files are few and small, and named by their exact paths, so that this costs the same for every table.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from delta_cdc.core.storage_options import is_s3

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.watermark import TableVersion


def commit_hash(session: SparkSession, table_uri: str, version: int) -> str | None:
    """Return the SHA-256 (hex) of a version's commit file; None if there is no such file."""
    hashes = _read(session, table_uri, version, ["json"])
    return hashes[0]["hash"] if hashes else None


def is_newest(
    session: SparkSession, table_uri: str, planned_on: TableVersion, *, single_driver: bool
) -> tuple[bool, int | None]:
    """Return whether a planned version is still the table's newest one, and the table's size in bytes.

    :param single_driver: only one driver writes. Several drivers on S3 use Delta's log store with DynamoDB,
        and its newest commit may not be among the files yet
    :return: False also if the plan did not record the hash of the commit file. The size is None if it is
        unknown: Delta writes it into a file beside the commit, other writers do not
    """
    if is_s3(table_uri) and not single_driver:
        return False, None
    version = planned_on.version
    files = _read(session, table_uri, version, ["json", "crc"]) or _read(
        session, table_uri, version, ["json"]
    )
    hashes = {row["hash"] for row in files}
    size = next((_size(row["checksum"]) for row in files if row["checksum"] is not None), None)
    same = planned_on.commit_hash is not None and planned_on.commit_hash in hashes
    return same and not _exists(session, table_uri, version + 1), size


def _read(session: SparkSession, table_uri: str, version: int, suffixes: list[str]) -> list[Any]:
    """Return the hash of each file, and the text of a checksum file; [] if one of the files is missing."""
    is_checksum = F.col("path").endswith(".crc")
    try:
        files = _files(session, table_uri, version, suffixes)
        text = F.when(is_checksum, F.col("content").cast("string"))
        return files.select(F.sha2("content", 256).alias("hash"), text.alias("checksum")).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return []


def _exists(session: SparkSession, table_uri: str, version: int) -> bool:
    try:
        # Over Connect, only the analysis looks for the file.
        return bool(_files(session, table_uri, version, ["json"]).columns)
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        return False


def _files(session: SparkSession, table_uri: str, version: int, suffixes: list[str]) -> DataFrame:
    # The reader treats its path as a pattern.
    folder = re.sub(r"([\\*?\[\]{}^,])", r"\\\1", table_uri.rstrip("/"))
    paths = [f"{folder}/_delta_log/{version:020d}.{suffix}" for suffix in suffixes]
    # At least two: Spark logs a warning with a stack trace for a single path that looks like a pattern.
    return session.read.format("binaryFile").load(paths if len(paths) > 1 else paths * 2)


def _size(checksum: str) -> int | None:
    try:
        size = json.loads(checksum)["tableSizeBytes"]
    except (ValueError, KeyError, TypeError):
        return None
    return size if isinstance(size, int) else None
