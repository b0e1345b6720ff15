"""A bucket on a real S3-compatible server, with a proxy before it, for Spark and for the reader of logs."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.faulty_proxy import FaultyProxy
from tests.support.s3_gateway import ACCESS_KEY, REGION, SECRET_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from tests.support.s3_gateway import Gateway

_NUMBERS = itertools.count(1)
#: As patient as S3A is by itself, but in a hurry.
_S3A = {"retry.interval": "20ms", "retry.throttle.interval": "20ms", "retry.limit": "2"}


@dataclass(frozen=True)
class Lake:
    """A bucket of one test.

    :param folder: what is in it: an object is a file
    :param proxy: what Spark and readers of logs are told to be the store
    :param options: storage options, by way of the proxy
    :param direct: storage options, past the proxy
    """

    name: str
    folder: Path
    proxy: FaultyProxy
    options: dict[str, str]
    direct: dict[str, str]

    def uri(self, table: str) -> str:
        """Return the location of a table."""
        return f"s3://{self.name}/{table}"

    def path(self, table: str) -> str:
        """Return where the same table is as files."""
        return str(self.folder / table)

    def upload(self, table: str) -> str:
        """Put a local table into the bucket, by its folder's name, and return its location."""
        import obstore

        from delta_cdc.log.store import open_store

        store = open_store(f"s3://{self.name}", self.direct)
        assert store is not None
        root = Path(table)
        for file in sorted(root.rglob("*")):
            if file.is_file():
                obstore.put(store, f"{root.name}/{file.relative_to(root).as_posix()}", file)
        return self.uri(root.name)


@pytest.fixture
def lake(s3: Gateway) -> Iterator[Lake]:
    """Give a bucket that no other test knows: file systems are kept by the name of their bucket."""
    name = f"lake-{os.getpid()}-{next(_NUMBERS)}"
    folder = s3.bucket.parent / name
    folder.mkdir()
    with FaultyProxy(s3.port) as proxy:
        yield Lake(name, folder, proxy, s3.options(endpoint=proxy.endpoint), s3.options())


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
