"""One table, one asset."""

from __future__ import annotations

import pytest

from airflow_delta_cdc.arguments import expand, is_literal
from airflow_delta_cdc.assets import delta_asset
from delta_cdc.core.errors import InvalidConfiguration


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
