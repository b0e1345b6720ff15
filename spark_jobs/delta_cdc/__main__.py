"""``python -m delta_cdc``, and the application that spark-submit starts: runs one spec.

Every line for people goes to stdout with the prefix ``delta_cdc| ``, so that it can be told from Spark's own.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc import phases, spec
from delta_cdc.errors import DeltaCdcError, JobFailed
from delta_cdc.spec import JobResult

if TYPE_CHECKING:
    from collections.abc import Sequence

LINE_PREFIX = "delta_cdc| "


def main(argv: Sequence[str] | None = None) -> int:
    """Run the spec named on the command line.

    :return: 0 when the job came to its end, 1 when it failed (the result file then names the error)
    """
    parser = argparse.ArgumentParser(prog="delta_cdc_job")
    parser.add_argument("--spec", required=True, help="path of the spec file")
    parser.add_argument("--sha256", required=True, help="SHA-256 of the spec file, in hex")
    parser.add_argument("--result", required=True, help="path of the result file to write")
    arguments = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format=f"{LINE_PREFIX}%(message)s")
    logging.getLogger("delta_cdc").setLevel(logging.INFO)
    result = _run(arguments.spec, arguments.sha256)
    _write(Path(arguments.result), result)
    return 1 if result.status == "failed" else 0


def _run(path: str, sha256: str) -> JobResult:
    try:
        work = spec.read(path, sha256)
        phases.install_from_environment()
        from pyspark.sql import SparkSession

        from delta_cdc import job

        spark = SparkSession.builder.getOrCreate()
        try:
            return job.run(spark, work)
        finally:
            spark.stop()
    except DeltaCdcError as error:
        return JobResult(status="failed", error=error.to_dict(), message=str(error))
    except Exception as error:  # noqa: BLE001 - whatever it was, the waiting operator must hear of it
        traceback.print_exc()
        failed = JobFailed(f"{type(error).__name__}: {error}", remedy="see the Spark log.")
        return JobResult(status="failed", error=failed.to_dict(), message=str(failed))


def _write(path: Path, result: JobResult) -> None:
    """Write the result in one step: a reader sees the whole file or none."""
    partial = path.with_name(f".{path.name}.partial")
    partial.write_text(result.to_json())
    partial.replace(path)


if __name__ == "__main__":
    sys.exit(main())
