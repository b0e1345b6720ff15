"""One table, one asset."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset, location_of, partitions_asset
from airflow_delta_cdc.triggers import watched_asset
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from airflow.sdk import Asset


@pytest.mark.parametrize(
    "spellings",
    [
        ("/data/orders", "/data/orders/", "file:///data/orders", "FILE:///data/orders/"),
        ("s3://lake/orders", "s3a://lake/orders/", "s3n://lake/orders"),
        ("/data/für alle", "/data/für alle/"),
        ("main.sales.orders", "Main.Sales.Orders"),
    ],
)
def test_all_spellings_of_a_table_are_one_asset(spellings: tuple[str, ...]) -> None:
    """Its name is its URI, so that two assets cannot clash."""
    (asset,) = {(asset.name, asset.uri) for asset in map(delta_asset, spellings)}
    assert asset[0] == asset[1]
    assert asset[1].isascii()


def test_other_tables_are_other_assets() -> None:
    """``%20`` in a path is no blank: Delta and Spark take a location literally."""
    tables = ["/t/a b", "/t/a%20b", "/t/a%2520b", "s3://lake/a b", "s3://lake/a%20b", "main.s.a%20b"]
    for made in (delta_asset, partitions_asset):
        assets = [made(table) for table in tables]
        assert len({asset.uri for asset in assets}) == len({asset.name for asset in assets}) == len(tables)
    for table in tables[:5]:
        assert {
            location_of(made(table)).removeprefix("file://") for made in (partitions_asset, _watched)
        } == {table}


def _watched(table: str) -> Asset:
    return watched_asset(table, min_versions=2)


def test_environment_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "/data")
    assert delta_asset("${LAKE}/orders").uri == "file:///data/orders"
    assert is_literal("${LAKE}/orders")
    monkeypatch.delenv("LAKE")
    assert not is_literal("${LAKE}/orders")
    with pytest.raises(InvalidConfiguration, match=r"\$\{LAKE\}/orders"):
        expand("${LAKE}/orders")


def test_a_template_has_no_asset() -> None:
    assert not is_literal("{{ params.source }}")
    with pytest.raises(InvalidConfiguration, match="parses the DAG file"):
        delta_asset("{{ params.source }}")
