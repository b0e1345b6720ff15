"""A driver to be killed: one ingest in a process of its own, with an embedded Spark.

Usage: ``python -m tests.system.ingest_driver <folder of the deliveries>``.
"""

from __future__ import annotations

import sys
from pathlib import Path

from delta_cdc import get_session
from delta_cdc.core import failpoints
from tests.support.deliveries import Deliveries


def main() -> None:
    spark = get_session("driver", cores=1, quick_start=True)
    failpoints.install_from_environment()
    Deliveries(spark, Path(sys.argv[1])).ingest()


if __name__ == "__main__":
    main()
