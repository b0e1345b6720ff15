"""Identify versions of a table by the hashes of their commit files."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession


def commit_hashes(session: SparkSession, table_uri: str, versions: Sequence[int]) -> list[str]:
    """Return the SHA-256 (hex) of the commit files of versions, in order; a missing file has none.

    Spark lists these files and reads them in one small job, whatever the size of the table.
    """
    # The reader treats its path as a pattern.
    folder = re.sub(r"([\\*?\[\]{}^,])", r"\\\1", table_uri.rstrip("/"))
    names = ",".join(f"{version:020d}" for version in versions)
    pattern = f"{folder}/_delta_log/{{{names}}}.json"
    try:
        # Given twice, because Spark logs a warning with a stack trace for a single path that is a pattern.
        files = session.read.format("binaryFile").load([pattern, pattern])
        rows = files.select("path", "content").collect()
    except Exception as error:
        if "PATH_NOT_FOUND" not in str(error):
            raise
        rows = []
    contents = {row["path"]: row["content"] for row in rows}
    return [hashlib.sha256(contents[path]).hexdigest() for path in sorted(contents)]
