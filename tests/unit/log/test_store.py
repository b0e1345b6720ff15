"""One spelling for every table's location."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from delta_cdc.errors import InvalidConfiguration, TableNameUnresolved
from delta_cdc.log.store import canonical_uri, open_store, quoted, spark_uri

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
    assert store is not None
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
