"""A string of 16 MiB that changes, through everything, in a driver with room for it; the rows as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from delta_cdc import get_session
from tests.support.event_types import CHANGED, EVENTS, FEED, LATE, Tables, same, sides

_TEXT = "concat(repeat('x', 16 * 1024 * 1024 - 1), {})"


def main(folder: Path) -> None:
    """Apply the change every way as both types."""
    spark = get_session("big", cores=1, quick_start=True, **{"spark.driver.memory": "3g"})
    kinds = {"text": same("STRING", _TEXT.format("'a'"), _TEXT.format("'b'"))}
    before, after = (side.where(f"way = {CHANGED}") for side in sides(spark, kinds))
    tables = Tables(spark, folder, before, after)
    found = {}
    for way in (FEED, EVENTS, LATE):
        for scd_type in (1, 2):
            flow = tables.applied(way, scd_type)
            opened = "true" if scd_type == 1 else "__END_AT IS NULL"
            rows = spark.read.format("delta").load(flow.target)
            shown = rows.selectExpr("length(text)", "right(text, 1)", opened).collect()
            found[f"{way} {scd_type}"] = sorted(map(list, shown))
    spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
