"""One spelling for every table's location."""

from __future__ import annotations

from typing import TYPE_CHECKING

import obstore
import pytest
from obstore.exceptions import BaseError

from delta_cdc.core.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.core.uris import canonical_uri, spark_uri
from delta_cdc.delta_log.store import open_store, quoted
from tests.support.empty_store import EmptyStore
from tests.support.http_store import HttpStore

if TYPE_CHECKING:
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
    """Also that of an existing folder without a slash, which could be a name."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "orders").mkdir()
    for path in ("lake/orders", "orders"):
        assert canonical_uri(path) == str(tmp_path / path)


@pytest.mark.parametrize(
    ("location", "error"),
    [
        *((name, TableNameUnresolved) for name in ("orders", "sales.orders", "main.sales.orders")),
        *(
            (location, InvalidConfiguration)
            for location in (
                "",
                "  ",
                "hdfs://host/x",
                "s3://lake/a/../b",
                "s3://lake/..",
                "/a\0b",
                "a\0b",
                300 * "a",
                "delta.`/lake/t`",
                "delta.`s3://lake/t`",
                "delta.`/lake/t",
                "main.`my-schema`.t",
            )
        ),
    ],
)
def test_what_cannot_be_read_without_spark_is_refused(location: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        canonical_uri(location)


def test_how_a_location_is_written(tmp_path: Path) -> None:
    assert spark_uri("s3://lake/x") == "s3a://lake/x"
    assert spark_uri("/data/x") == "/data/x"
    assert quoted("s3://lake/a b%") == "s3://lake/a%20b%25", "only the path is encoded"
    assert open_store(str(tmp_path / "absent")) is None, "a folder that does not exist has no store"


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


@pytest.mark.parametrize(
    "address",
    [
        "minio:9000",
        "https://",
        "https://:9000",
        "https://store:9000:9000",
        "https://store:99999",
        "https://store:9000/ ",
        "https://the store",
        "https://store?x",
        "",
    ],
)
@pytest.mark.parametrize("is_variable", [False, True])
def test_an_address_that_is_none(address: str, *, is_variable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """obstore panics at the first request."""
    if is_variable:
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
    with pytest.raises(InvalidConfiguration, match="no URL of a store"):
        open_store("s3://lake/x", {} if is_variable else {"endpoint_url": address})


@pytest.mark.parametrize(
    "login", ["https://me:secret@", "me:secret@", "https://me:secret/part@", "//me:secret@@"]
)
def test_an_address_with_a_password(login: str) -> None:
    with pytest.raises(InvalidConfiguration, match=r"\*\*\*@store:9000") as caught:
        open_store("s3://lake/x", {"endpoint": f"{login}store:9000"})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("address", ["https://[::1]:9000", "HTTPS://my_store.local/s3/", "https://127.0.0.1"])
def test_an_address(address: str) -> None:
    assert open_store("s3://lake/x", {"endpoint": address}) is not None


def test_an_address_without_tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For Spark's file system, too, the address alone decides."""
    with HttpStore(tmp_path) as server:
        for name, value in server.options().items():
            if name.lower() not in ("allow_http", "aws_allow_http"):
                monkeypatch.setenv(name.upper(), value)
        for options in ({}, {"timeout": "3s"}, {"endpoint": server.endpoint}, {"allow_http": "true"}):
            store = open_store("s3://lake/x", options)
            assert store is not None
            assert not list(obstore.list(store))
        with pytest.raises(InvalidConfiguration, match="allow_http is False"):
            open_store("s3://lake/x", {"allow_http": "false"})


@pytest.mark.parametrize(
    ("host", "requested"),
    [
        ("other.dfs.core.windows.net", "other.blob.core.windows.net/c/t/x"),
        ("other.blob.core.windows.net", "other.blob.core.windows.net/c/t/x"),
        ("onelake.dfs.fabric.microsoft.com", "onelake.blob.fabric.microsoft.com/c/t/x"),
        ("other.dfs.core.usgovcloudapi.net", "other.blob.core.usgovcloudapi.net/c/t/x"),
        ("other.dfs.core.chinacloudapi.cn", "other.blob.core.chinacloudapi.cn/c/t/x"),
        ("other.z12.dfs.storage.azure.net", "other.z12.blob.storage.azure.net/c/t/x"),
        ("other.privatelink.dfs.core.windows.net", "other.privatelink.blob.core.windows.net/c/t/x"),
    ],
)
@pytest.mark.parametrize("name", ["azure_storage_account_name", "ACCOUNT_NAME", None])
def test_the_account_is_that_of_the_location(host: str, requested: str, name: str | None) -> None:
    """Not the one of a connection for several accounts: Spark reads the table of the location."""
    options = {"azure_storage_account_key": "bm90", "max_retries": "0", "proxy_url": "http://127.0.0.1:9"}
    store = open_store(f"abfss://c@{host}/t", options | ({} if name is None else {name: "mine"}))
    assert store is not None
    with pytest.raises(BaseError, match=f"HEAD https://{requested}"):
        obstore.head(store, "x")


def test_an_endpoint_of_azure_that_is_given() -> None:
    options = {"azure_endpoint": "https://store.example/", "account_key": "bm90", "max_retries": "0"}
    store = open_store("abfss://c@mine.dfs.example/t", {**options, "proxy_url": "http://127.0.0.1:9"})
    assert store is not None
    with pytest.raises(BaseError, match=r"HEAD https://store\.example/c/t/x"):
        obstore.head(store, "x")


def test_a_certificate_that_is_none() -> None:
    with pytest.raises(InvalidConfiguration, match="PEM"):
        open_store("s3://lake/x", {"root_certificate": "/etc/ssl/store.pem"})


@pytest.mark.parametrize("cloud", ["s3://b/t", "abfss://c@a.dfs.core.windows.net/t"])
@pytest.mark.parametrize(
    "option", ["allow_http", "ALLOW_HTTP", "AWS_ALLOW_HTTP", "azure_timeout", "Timeout", "pool_idle_timeout"]
)
def test_options_of_the_client_in_every_spelling(cloud: str, option: str) -> None:
    """Given to obstore as options of the store, they are a panic, which no ``except Exception`` catches."""
    assert open_store(cloud, {option: "true" if option.lower().endswith("http") else "30s"}) is not None


def asked_at(options: dict[str, str]) -> str:
    """Return the address that is asked for a file of a table, with some options: it need not exist."""
    keys = {"access_key_id": "k", "secret_access_key": "s", "region": "r", "allow_http": "true"}
    with EmptyStore() as proxy:
        store = open_store("s3://lake/t", {**keys, "proxy_url": proxy.url, "max_retries": "0", **options})
        with pytest.raises(FileNotFoundError):
            obstore.get(store, "x")  # type: ignore[arg-type]
    return proxy.requests[-1][0]


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
    monkeypatch: pytest.MonkeyPatch, endpoint: str, asked: str, around: bool
) -> None:
    """With the bucket in the address or without it, in the options or in the environment."""
    told = {"AWS_ENDPOINT_URL": endpoint, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    for name, value in told.items() if around else ():
        monkeypatch.setenv(name, value)
    assert asked_at({} if around else told) == asked


def test_another_address_of_the_environment_is_not_asked_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, other = {"endpoint": "http://store.test"}, {"endpoint": "http://other.test"}
    assert asked_at(ours) == "http://store.test/lake/t/x"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other.test")
    assert asked_at(ours) == "http://store.test/lake/t/x"
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://other.test")
    assert asked_at({}) == "http://other.test/lake/t/x"
    with pytest.raises(InvalidConfiguration, match="AWS_ENDPOINT_URL_S3 of the environment"):
        asked_at(ours)
    assert asked_at(other) == "http://other.test/lake/t/x"
