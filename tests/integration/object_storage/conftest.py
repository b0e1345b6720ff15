"""A bucket on a real S3-compatible server, for Spark and for the reader of logs."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.lake import Lake, lake_on
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.s3_gateway import Gateway

if "AIRFLOW_HOME" not in os.environ:
    # Airflow writes its configuration there when it is imported, which test modules do.
    os.environ["AIRFLOW_HOME"] = tempfile.mkdtemp(prefix="delta-cdc-airflow-")
    atexit.register(shutil.rmtree, os.environ["AIRFLOW_HOME"], ignore_errors=True)

#: S3A repeats what fails as it does by itself, but in a hurry.
_S3A = {"retry.interval": "20ms", "retry.throttle.interval": "20ms", "retry.limit": "2"}


@pytest.fixture
def lake(s3: Gateway) -> Iterator[Lake]:
    """Give a bucket."""
    with lake_on(s3) as made:
        yield made


@pytest.fixture
def on_lake(spark: SparkSession, lake: Lake) -> Iterator[SparkSession]:
    """Give the session, told of the bucket as a user tells a running session."""
    confs: dict[str, Any] = {
        "endpoint": lake.proxy.endpoint,
        "endpoint.region": REGION,
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": ACCESS_KEY,
        "secret.key": SECRET_KEY,
        **_S3A,
    }
    for conf, value in confs.items():
        spark.conf.set(f"fs.s3a.{conf}", value)
    yield spark
    for conf in confs:
        spark.conf.unset(f"fs.s3a.{conf}")
