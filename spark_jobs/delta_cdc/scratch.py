"""Where slices lie while a job runs: a folder that the planning side writes and Spark's executors read."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from typing import TYPE_CHECKING

from delta_cdc.errors import CaptureUnavailable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import SparkSession

    from delta_cdc.spec import Segment


def folder_for(spark: SparkSession, segments: Iterable[Segment], scratch: str | None) -> str:
    """Return the folder for the slices of some segments; empty where none needs one.

    A folder that is made here lives as long as this process, because a DataFrame over it may.

    :param scratch: a folder that was named by the user, or None
    :raises CaptureUnavailable: none was named, and Spark does not run on this machine alone
    """
    needed = next((segment for segment in segments if segment.needs_slice), None)
    if needed is None:
        return ""
    if scratch is not None:
        return scratch.rstrip("/")
    if not _is_local(spark):
        versions = f"{needed.starting_version}-{needed.ending_version}"
        raise CaptureUnavailable(
            f"Versions {versions} are read by {needed.capture} through a small log that lists their files, "
            "and the executors of this session do not see the folders of this machine.",
            remedy="name a folder with scratch= that this process and all executors reach.",
        )
    folder = tempfile.mkdtemp(prefix="delta-cdc-slices-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def write_slices(
    table: str, segments: Iterable[Segment], root: str, *, at: int, storage_options: dict[str, str] | None
) -> None:
    """Write the slices of those segments that need one.

    :param table: location of the table
    :param root: folder of the slices
    :param at: the version whose columns the slices have, the end of the range
    """
    from delta_cdc.changes.slices import location
    from delta_cdc.log.slices import write_slice
    from delta_cdc.log.table import DeltaLog, run_sync

    async def write() -> None:
        log = DeltaLog(table, storage_options)
        for segment in segments:
            if segment.needs_slice:
                folder = location(root, segment)
                await write_slice(log, segment, folder, storage_options, schema_version=at)

    run_sync(write())


def _is_local(spark: SparkSession) -> bool:
    """Tell whether driver and executors are in this very process's machine; a Connect server may not be."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return False
    return str(spark.conf.get("spark.master", "")).startswith("local")
