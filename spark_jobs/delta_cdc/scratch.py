"""Where slices lie while a job runs: a folder that the planning side writes and Spark's executors read."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from typing import TYPE_CHECKING

from delta_cdc.log.slices import no_folder
from delta_cdc.sessions import is_connect

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from delta_cdc.spec import Segment


def folder_for(spark: SparkSession, segments: Collection[Segment], scratch: str | None) -> str:
    """Return the folder for the slices of some segments; empty where there is none, and none is needed.

    A folder that is made here lives as long as this process, because a DataFrame over it may.

    :param scratch: a folder that was named by the user, or None
    :raises CaptureUnavailable: none was named, Spark does not run on this machine alone, and a segment can be
        read through its slice only
    """
    if not segments:
        return ""
    if scratch is not None:
        # DataFrames are read later than they are made: no two may share a folder.
        return f"{scratch.rstrip('/')}/{uuid.uuid4().hex}"
    if not is_local(spark):
        needed = next((segment for segment in segments if segment.needs_slice), None)
        if needed is None:
            return ""
        raise no_folder(needed)
    folder = tempfile.mkdtemp(prefix="delta-cdc-slices-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_local(spark: SparkSession) -> bool:
    """Tell whether driver and executors are in this very process's machine; a Connect server may not be."""
    if is_connect(spark):
        return False
    return str(spark.conf.get("spark.master", "")).startswith("local")
