"""One table, one asset."""

from __future__ import annotations

import pytest

from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset, pipeline_alias
from delta_cdc.core.errors import InvalidConfiguration


@pytest.mark.parametrize(
    "spellings",
    [
        ("/data/orders", "/data/orders/", "file:///data/orders", "FILE:///data/orders/"),
        ("s3://lake/orders", "s3a://lake/orders/", "s3n://lake/orders"),
        ("main.sales.orders", "Main.Sales.Orders"),
    ],
)
def test_all_spellings_of_a_table_are_one_asset(spellings: tuple[str, ...]) -> None:
    assets = {(asset.name, asset.uri) for asset in map(delta_asset, spellings)}
    assert len(assets) == 1


def test_name_and_uri_are_equal_so_that_two_assets_cannot_clash() -> None:
    asset = delta_asset("/data/orders")
    assert asset.name == asset.uri == "file:///data/orders"


def test_uri_is_ascii() -> None:
    assert delta_asset("/data/für alle").uri.isascii()
    assert delta_asset("/data/für alle") != delta_asset("/data/fur alle")


def test_environment_variables_are_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE", "/data")
    assert delta_asset("${LAKE}/orders").uri == "file:///data/orders"
    assert is_literal("${LAKE}/orders")


def test_an_unset_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAKE", raising=False)
    assert not is_literal("${LAKE}/orders")
    with pytest.raises(InvalidConfiguration, match=r"\$\{LAKE\}/orders"):
        expand("${LAKE}/orders")


def test_a_template_has_no_asset() -> None:
    assert not is_literal("{{ params.source }}")
    with pytest.raises(InvalidConfiguration, match="parses the DAG file"):
        delta_asset("{{ params.source }}")


def test_alias_is_named_after_the_pipeline() -> None:
    assert pipeline_alias("orders").name == "delta_cdc:orders"
