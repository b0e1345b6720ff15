"""A bucket of one test on a real S3-compatible server, with a proxy before it."""

from __future__ import annotations

import itertools
import json
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tests.support.faulty_proxy import FaultyProxy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.faulty_proxy import Kind, Request
    from tests.support.s3_gateway import Gateway

_NUMBERS = itertools.count(1)


@dataclass(frozen=True)
class Lake:
    """A bucket.

    :param folder: what is in it: an object is a file
    :param proxy: what clients are told to be the store
    :param options: storage options, by way of the proxy
    :param direct: storage options, past the proxy
    """

    name: str
    folder: Path
    proxy: FaultyProxy
    options: dict[str, str]
    direct: dict[str, str]

    @property
    def connection(self) -> str:
        """Return the one Airflow connection of the store, as JSON, by way of the proxy."""
        return json.dumps(
            {
                "conn_type": "delta",
                "login": self.options["AWS_ACCESS_KEY_ID"],
                "password": self.options["AWS_SECRET_ACCESS_KEY"],
                "host": self.proxy.endpoint,
                "extra": {"storage": "s3", "region": self.options["AWS_REGION"], "allow_http": True},
            }
        )

    def uri(self, table: str) -> str:
        """Return the location of a table."""
        return f"s3://{self.name}/{table}"

    def path(self, table: str) -> str:
        """Return where the same table is as files."""
        return str(self.folder / table)

    def upload(self, folder: str | Path) -> str:
        """Put a local folder into the bucket, by its own name, and return its location."""
        import obstore

        from delta_cdc.delta_log.store import open_store

        store = open_store(f"s3://{self.name}", self.direct)
        assert store is not None
        root = Path(folder)
        for file in sorted(root.rglob("*")):
            name = f"{root.name}/{file.relative_to(root).as_posix()}"
            if file.is_file() and not (self.folder / name).exists():
                obstore.put(store, name, file)
        return self.uri(root.name)


class IgnoresTheCondition:
    """A store that overwrites on a conditional PUT: the object is deleted before the request arrives."""

    def __init__(self, lake: Lake) -> None:
        self._objects = lake.folder.parent

    def __call__(self, request: Request) -> Kind | None:
        if request.conditional and request.method == "PUT":
            (self._objects / request.key).unlink(missing_ok=True)
        return None


@contextmanager
def lake_on(gateway: Gateway) -> Iterator[Lake]:
    """Give a bucket that nobody else knows: file systems are kept by the name of their bucket."""
    name = f"lake-{os.getpid()}-{next(_NUMBERS)}"
    folder = gateway.bucket.parent / name
    folder.mkdir()
    with FaultyProxy(gateway.port) as proxy:
        yield Lake(name, folder, proxy, gateway.options(endpoint=proxy.endpoint), gateway.options())
