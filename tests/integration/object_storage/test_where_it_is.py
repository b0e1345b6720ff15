"""A store of which the connection, or only the environment, says little: log reader and Spark find it."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from delta_cdc.core.storage_options import spark_storage
from delta_cdc.delta_log.table import DeltaLog, run_sync
from tests.support.lake import lake_on
from tests.support.s3_gateway import REGION, gateway

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.lake import Lake
    from tests.support.s3_gateway import Gateway

_AROUND = ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ALLOW_HTTP")


@contextmanager
def told(spark: SparkSession, confs: dict[str, str]) -> Iterator[None]:
    """Tell a running session what a new one would be started with."""
    names = {name.removeprefix("spark.hadoop."): value for name, value in confs.items()}
    for name, value in {**names, "fs.s3a.retry.limit": "1"}.items():
        spark.conf.set(name, value)
    yield
    for name in (*names, "fs.s3a.retry.limit"):
        spark.conf.unset(name)


def is_read_by_both(spark: SparkSession, lake: Lake, options: dict[str, str] | None) -> None:
    table = lake.uri("t")
    data = pa.table({"id": pa.array([1, 2], pa.int64())})
    write_deltalake(table, data, storage_options=lake.direct)
    assert run_sync(DeltaLog(table, options).newest_version()) == 0
    storage = spark_storage(options, [table])
    # The keys of an environment Spark takes by itself, when it starts.
    keys = spark_storage(lake.options).credentials
    with told(spark, {**keys, **storage.confs, **storage.credentials}):
        assert spark.read.format("delta").load(table.replace("s3:", "s3a:")).count() == 2


def test_a_connection_that_names_no_region(
    spark: SparkSession, tmp_path: Path, s3: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Most stores that are not Amazon's ask for ``us-east-1`` until they are told otherwise."""
    for name in _AROUND:
        monkeypatch.delenv(name, raising=False)
    with gateway(tmp_path / "s3", "us-east-1") as usual, lake_on(usual) as lake:
        options = {name: value for name, value in lake.options.items() if name != "AWS_REGION"}
        is_read_by_both(spark, lake, options)


@pytest.mark.parametrize("variable", ["AWS_REGION", "AWS_DEFAULT_REGION"])
def test_an_environment_that_says_it_all(
    spark: SparkSession, s3: Gateway, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    if variable == "AWS_DEFAULT_REGION":
        # Keys win over an identity that is there besides.
        monkeypatch.setenv("AWS_ROLE_ARN", "arn:aws:iam::1:role/nobody")
        monkeypatch.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", "/not/there")
    for name in _AROUND:
        monkeypatch.delenv(name, raising=False)
    with lake_on(s3) as lake:
        for name, value in lake.options.items():
            monkeypatch.setenv(variable if name == "AWS_REGION" else name, value)
        assert REGION in lake.options.values()
        is_read_by_both(spark, lake, None)
