"""Run one spec by ``python -m delta_cdc``, the application that spark-submit starts.

Every line for people goes to stdout with the prefix :data:`LINE_PREFIX`, which distinguishes it from Spark's
lines.
"""

from __future__ import annotations

import argparse
import logging
import sys
import traceback
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from delta_cdc import job
from delta_cdc.core import failpoints, private_files, spec
from delta_cdc.core.drafts import replacing
from delta_cdc.core.errors import DeltaCdcError, JobFailed
from delta_cdc.core.reasons import unnamed
from delta_cdc.core.spec import LINE_PREFIX, JobResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession


class _Driver:
    """The Spark session of this process; the first use starts it."""

    @cached_property
    def session(self) -> SparkSession:
        from pyspark.sql import SparkSession

        return SparkSession.builder.getOrCreate()

    def stop(self) -> None:
        if "session" in vars(self):
            self.session.stop()


def main(argv: Sequence[str] | None = None) -> int:
    """Run the spec named on the command line.

    :return: 0 if the job finished, 1 if it failed (the result then names the error)
    """
    parser = argparse.ArgumentParser(prog="delta_cdc_job")
    parser.add_argument("--spec", required=True, help="path of the spec file")
    parser.add_argument("--sha256", required=True, help="SHA-256 of the spec file, in hex")
    parser.add_argument("--result", required=True, help="path of the result file, or URI of a result folder")
    arguments = parser.parse_args(argv)
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format=f"{LINE_PREFIX}%(message)s")
    logging.getLogger("delta_cdc").setLevel(logging.INFO)
    driver = _Driver()

    is_local = "://" not in arguments.result

    def write(result: JobResult) -> None:
        if is_local:
            _write(Path(arguments.result), result)
        else:
            write_result(driver.session, arguments.result, result)

    try:
        result = _run(driver, arguments.spec, arguments.sha256, write, is_local=is_local)
        write(result)
    finally:
        driver.stop()
    return 1 if result.status == "failed" else 0


def _write(path: Path, result: JobResult) -> None:
    """Write the result file in one step: a reader sees the whole file or no file."""
    with replacing(path, mode=0o644) as file:
        file.write(result.to_json().encode())


def _run(
    driver: _Driver, path: str, sha256: str, write: Callable[[JobResult], None], *, is_local: bool
) -> JobResult:
    """Run the spec of a file.

    :param write: writes the result; for a batch, also the partial result after each part, so that it survives
        a crash of the application
    :param is_local: the result is a local file, so that the partial result may also say what is being read;
        a folder on a store takes Spark seconds
    """
    try:
        private_files.take()
        work = spec.read(path, sha256)
        failpoints.install_from_environment()

        def write_so_far(so_far: JobResult) -> None:
            write(_unfinished(work, so_far))

        return job.run(
            driver.session, work, part_done=write_so_far, part_reads=write_so_far if is_local else None
        )
    except DeltaCdcError as error:
        return JobResult(status="failed", error=error.to_dict(), message=str(error))
    except Exception as error:  # noqa: BLE001 - the waiting operator must receive every error
        traceback.print_exc()
        failed = unnamed(error, "The application failed:", remedy="retry; see the Spark log.")
        return JobResult(status="failed", error=failed.to_dict(), message=str(failed))


def _unfinished(work: spec.Spec, so_far: JobResult) -> JobResult:
    """Return a batch's partial result in the form that readers see if the application ends now."""
    n_finished = sum(part.status != "unreached" for part in so_far.parts)
    error = JobFailed(
        f"The application ended after {n_finished} of {len(work.each)} parts.",
        remedy="see the Spark log; a retry runs the parts that are left.",
    )
    return replace(so_far, status="failed", error=error.to_dict(), message=str(error))


def write_result(spark: SparkSession, uri: str, result: JobResult) -> None:
    """Write the result as a folder with one text file, replacing an older one.

    Spark writes the folder, because on a cluster only Spark's file systems have the store's credentials.

    :param uri: the folder, as Hadoop's file systems name it
    """
    row = spark.createDataFrame([(result.to_json(),)], "value string")
    row.coalesce(1).write.mode("overwrite").option("compression", "none").text(uri)


if __name__ == "__main__":
    sys.exit(main())
