"""Find the folder of a job's file manifests: the planning side writes it, Spark's executors read it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from typing import TYPE_CHECKING

from delta_cdc.spark.sessions import is_connect

if TYPE_CHECKING:
    from collections.abc import Collection

    from pyspark.sql import SparkSession

    from delta_cdc.core.steps import ReadRange


def folder_for(spark: SparkSession, read_ranges: Collection[ReadRange], scratch: str | None) -> str:
    """Return the folder for the file manifests of some ranges; an empty text without such a folder.

    A folder created here exists as long as this process, because a DataFrame may read from it until then.

    :param scratch: a folder that the user configured, or None
    """
    if not read_ranges:
        return ""
    if scratch is not None:
        # DataFrames are read later than they are created: each call needs its own folder.
        return f"{scratch.rstrip('/')}/{uuid.uuid4().hex}"
    if not is_local(spark):
        return ""
    folder = tempfile.mkdtemp(prefix="delta-cdc-manifests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def is_local(spark: SparkSession) -> bool:
    """Return whether driver and executors run on this machine; a Connect server may be on another one."""
    if is_connect(spark):
        return False
    return str(spark.conf.get("spark.master", "")).startswith("local")
