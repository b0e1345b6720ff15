"""A driver to be killed: one erasure in a process of its own, with an embedded Spark.

Usage: ``python -m tests.system.erase_driver <change log> <target> <key>``.
"""

from __future__ import annotations

import sys

from delta_cdc import erase_key, get_session
from delta_cdc.core import failpoints


def main() -> None:
    spark = get_session("driver", cores=1, quick_start=True)
    failpoints.install_from_environment()
    log, target, key = sys.argv[1:]
    tables = [{"pipeline": "flow", "log": log}, {"pipeline": "apply", "source": log, "target": target}]
    erase_key(spark, tables, key={"id": key})


if __name__ == "__main__":
    main()
