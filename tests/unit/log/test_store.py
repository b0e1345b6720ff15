"""One spelling for every table's location."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING

import obstore
import pytest

from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.delta_log.store import open_store, quoted

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("s3a://lake/bronze/orders/", "s3://lake/bronze/orders"),
        ("s3://lake/a b/%41ü", "s3://lake/a b/%41ü"),
        ("S3://lake/x", "s3://lake/x"),
        ("gs://lake/x", "gs://lake/x"),
        ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"),
        ("/data/orders/", "/data/orders"),
        ("/data/x/../orders", "/data/orders"),
        ("file:///data/a%20b", "/data/a%20b"),
        ("file:/data/orders", "/data/orders"),
    ],
)
def test_a_location_has_one_spelling(written: str, canonical: str) -> None:
    assert canonical_uri(written) == canonical
    assert canonical_uri(canonical) == canonical


def test_a_relative_path_becomes_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert canonical_uri("lake/orders") == str(tmp_path / "lake" / "orders")


def test_an_existing_folder_without_a_slash_is_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    assert canonical_uri("orders") == str(tmp_path / "orders")


@pytest.mark.parametrize("name", ["orders", "sales.orders", "main.sales.orders"])
def test_a_catalog_name_is_refused(name: str) -> None:
    with pytest.raises(TableNameUnresolved, match="catalog name"):
        canonical_uri(name)


@pytest.mark.parametrize("location", ["", "  ", "hdfs://host/x"])
def test_what_cannot_be_read_without_spark_is_refused(location: str) -> None:
    with pytest.raises(InvalidConfiguration):
        canonical_uri(location)


def test_spark_knows_s3_as_s3a() -> None:
    assert spark_uri("s3://lake/x") == "s3a://lake/x"
    assert spark_uri("/data/x") == "/data/x"


def test_an_object_store_gets_its_options_and_prefix() -> None:
    options = {
        "AWS_REGION": "eu-west-1",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ENDPOINT_URL": "http://localhost:1",
        "AWS_S3_LOCKING_PROVIDER": "dynamodb",
        "timeout": "3s",
    }
    store = open_store("s3://lake/a b/100%25", options)
    assert store.prefix == "a b/100%25"  # type: ignore[union-attr]


def test_only_the_path_of_a_uri_is_encoded() -> None:
    assert quoted("s3://lake/a b%") == "s3://lake/a%20b%25"


def test_a_folder_that_does_not_exist_has_no_store(tmp_path: Path) -> None:
    assert open_store(str(tmp_path / "absent")) is None


@pytest.mark.parametrize("cloud", ["s3://b/t", "abfss://c@a.dfs.core.windows.net/t"])
@pytest.mark.parametrize(
    "option", ["allow_http", "ALLOW_HTTP", "AWS_ALLOW_HTTP", "azure_timeout", "Timeout", "pool_idle_timeout"]
)
def test_options_of_the_client_in_every_spelling(cloud: str, option: str) -> None:
    """Given to obstore as options of the store, they are a panic, which no ``except Exception`` catches."""
    assert open_store(cloud, {option: "true" if option.lower().endswith("http") else "30s"}) is not None


class Proxy:
    """Keeps which addresses it was asked for: they need not exist."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy.asked.append(self.path)
                self.send_error(404)

            def log_message(self, *_: object) -> None:
                return

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, options: dict[str, str]) -> str:
        """Return what is asked for a file of a table, with some options."""
        keys = {"access_key_id": "k", "secret_access_key": "s", "region": "r", "allow_http": "true"}
        more = {"proxy_url": f"http://127.0.0.1:{self.server.server_port}", "max_retries": "0"}
        store = open_store("s3://lake/t", {**keys, **more, **options})
        with pytest.raises(FileNotFoundError):
            obstore.get(store, "x")
        return self.asked[-1]


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.parametrize(
    ("endpoint", "asked"),
    [
        ("http://store.test", "http://lake.store.test/t/x"),
        ("http://store.test:9000/", "http://lake.store.test:9000/t/x"),
        ("http://lake.store.test", "http://lake.store.test/t/x"),
        ("http://127.0.0.1:1", "http://127.0.0.1:1/t/x"),
        ("http://store.test/lake", "http://store.test/lake/t/x"),
    ],
)
@pytest.mark.parametrize("around", [False, True])
def test_a_bucket_in_the_host(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, endpoint: str, asked: str, around: bool
) -> None:
    """With the bucket in the address or without it, in the options or in the environment."""
    told = {"AWS_ENDPOINT_URL": endpoint, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    for name, value in told.items() if around else ():
        monkeypatch.setenv(name, value)
    assert proxy.url({} if around else told) == asked


def test_a_bucket_in_the_path(proxy: Proxy) -> None:
    assert proxy.url({"endpoint": "http://store.test"}) == "http://store.test/lake/t/x"


def test_another_address_of_the_environment_is_not_asked_silently(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other.test")
    assert proxy.url({"endpoint": "http://store.test"}) == "http://store.test/lake/t/x"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://other.test")
    assert proxy.url({}) == "http://other.test/lake/t/x"
    with pytest.raises(InvalidConfiguration, match="AWS_ENDPOINT_URL_S3 of the environment"):
        proxy.url({"endpoint": "http://store.test"})
    assert proxy.url({"endpoint": "http://other.test"}) == "http://other.test/lake/t/x"
