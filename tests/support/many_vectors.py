"""A table whose every commit deletes one more row of one file, by a deletion vector written into the log."""

from __future__ import annotations

import json
import os
import struct
from typing import TYPE_CHECKING, Any

from tests.support.world import commits

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pyspark.sql import SparkSession

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_MAGIC = 1681511377
#: Roaring's mark of a bitmap without run containers.
_NO_RUNS = 12346


def inline_vector(rows: Iterable[int]) -> dict[str, Any]:
    """Return the deletion vector of some rows (below 65,536, at most 4,096), as the log holds it."""
    given = sorted(rows)
    # One array container, which begins behind cookie, count, its key and length, and this offset.
    bitmap = struct.pack("<IIHHI", _NO_RUNS, 1, 0, len(given) - 1, 16) + struct.pack(
        f"<{len(given)}H", *given
    )
    data = struct.pack("<IQI", _MAGIC, 1, 0) + bitmap
    return {
        "storageType": "i",
        "pathOrInlineDv": _encoded(data + b"\0" * (-len(data) % 4)),
        "sizeInBytes": len(data),
        "cardinality": len(given),
    }


def _encoded(data: bytes) -> str:
    text = []
    for (value,) in struct.iter_unpack(">I", data):
        text += [_Z85[value // 85**power % 85] for power in (4, 3, 2, 1, 0)]
    return "".join(text)


def deleting_row_by_row(spark: SparkSession, path: Path, deletes: int) -> Path:
    """Make a table of ``deletes`` + 10 rows, and a commit for each delete: version n deletes the row n - 1.

    Spark makes the table and one delete; the others are copies of that commit, with other vectors.
    """
    spark.sql(
        f"CREATE TABLE delta.`{path}` USING delta TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', "
        "'delta.enableDeletionVectors' = 'true') "
        f"AS SELECT /*+ COALESCE(1) */ id, concat('row ', id) AS name FROM range(0, {deletes + 10}, 1, 1)"
    )
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id = 0").collect()
    actions = commits(str(path))[1]
    info, add, remove = (
        next(action[kind] for action in actions if kind in action) for kind in ("commitInfo", "add", "remove")
    )
    assert not any("cdc" in action for action in actions), "the feed compares vectors"
    for version in range(2, deletes + 1):
        moment = info["timestamp"] + version
        if "inCommitTimestamp" in info:
            info["inCommitTimestamp"] = moment
        before = add.get("deletionVector")
        remove = {**remove, "deletionVector": before, "deletionTimestamp": moment}
        add = {**add, "deletionVector": inline_vector(range(version))}
        lines = [{"commitInfo": {**info, "timestamp": moment}}, {"remove": remove}, {"add": add}]
        file = path / "_delta_log" / f"{version:020d}.json"
        file.write_text("".join(json.dumps(line) + "\n" for line in lines))
        os.utime(file, ns=(moment * 1_000_000, moment * 1_000_000))
    return path
