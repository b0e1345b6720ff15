"""What Airflow's provider manager is told."""

from __future__ import annotations

import importlib
import json
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import attrs
import jsonschema
import pytest
from airflow.providers.openlineage.utils.utils import translate_airflow_asset
from airflow.sdk.providers_manager_runtime import ProvidersManagerTaskRuntime

import airflow_delta_cdc
from airflow_delta_cdc.assets import delta_asset, group_asset, location_of, partitions_asset
from airflow_delta_cdc.lineage import facets
from airflow_delta_cdc.plugin import DeltaCdcPlugin, watermark
from airflow_delta_cdc.provider_info import get_provider_info
from airflow_delta_cdc.triggers import watched_asset

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow.sdk import Asset


def test_info_validates_against_the_schema_of_the_installed_airflow() -> None:
    schema = json.loads(files("airflow").joinpath("provider_info.schema.json").read_text())
    info = get_provider_info()
    jsonschema.validate(info, schema)
    options = info["config"]["delta_cdc"]["options"]
    assert {option["version_added"] for option in options.values()} <= {airflow_delta_cdc.__version__}
    options["delta_jars"].pop("type")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(info, schema)
    assert (DeltaCdcPlugin.name, DeltaCdcPlugin.macros) == ("delta_cdc", [watermark])


def test_what_airflow_finds_in_the_info() -> None:
    """Airflow's own manager reads it, and the lineage of Airflow uses it."""
    manager = ProvidersManagerTaskRuntime()
    schemes = {"x-delta", "x-delta-cdc-group", "x-delta-partitions", "x-delta-watch"}
    assert schemes <= manager.asset_uri_handlers.keys()
    made = manager.asset_factories["x-delta"](table="s3a://lake/orders/", extra={"a": 1})
    assert made == attrs.evolve(delta_asset("s3://lake/orders"), extra={"a": 1})
    used = [
        delta_asset("main.sales.orders"),
        group_asset("a b"),
        partitions_asset("/lake/ö"),
        watched_asset("/lake/ö", poll_interval=1),
    ]
    assert {asset.uri.partition(":")[0] for asset in used} == schemes
    assert [asset.normalized_uri for asset in used] == [asset.uri for asset in used]


@pytest.mark.parametrize("make", [partitions_asset, watched_asset])
@pytest.mark.parametrize(
    ("table", "dataset"),
    [
        ("/lake/für # alle", ("file", "/lake/für # alle")),
        ("s3a://lake/a/b/", ("s3://lake", "a/b")),
    ],
)
def test_the_dataset_of_an_asset_is_that_of_its_table(
    make: Callable[[str], Asset], table: str, dataset: tuple[str, str]
) -> None:
    asset = make(table)
    found = translate_airflow_asset(asset, None)
    assert found is not None
    assert (found.namespace, found.name) == dataset
    (same,) = facets({"source": table, "target": "/t"}, None).inputs
    assert (same.namespace, same.name) == dataset


def test_a_catalog_name_has_no_dataset() -> None:
    assert translate_airflow_asset(partitions_asset("main.sales.orders"), None) is None
    watched = watched_asset("/lake/t", min_versions=2)
    assert (location_of(watched), location_of(delta_asset("/lake/t"))) == ("file:///lake/t", "///lake/t")


def test_named_pages_and_the_logo_exist() -> None:
    (integration,) = get_provider_info()["integrations"]
    project = Path(__file__).parents[3]
    for page in (*integration["how-to-guide"], integration["external-doc-url"].partition("/main")[2]):
        assert (project / page.lstrip("/")).is_file()
    pictures = {app["icon"].partition("?")[0] for app in DeltaCdcPlugin.react_apps}
    assert pictures == {integration["logo"].lstrip("/")}
    logo = ET.parse(Path(airflow_delta_cdc.__file__).parent / "page" / "logo.svg")
    assert logo.getroot().tag == "{http://www.w3.org/2000/svg}svg"


@pytest.mark.parametrize("kind", ["operators", "sensors", "triggers", "hooks"])
def test_named_modules_can_be_imported(kind: str) -> None:
    modules = [module for entry in get_provider_info()[kind] for module in entry["python-modules"]]
    assert modules
    for module in modules:
        importlib.import_module(module)


class _Ti:
    """Answers like a task instance: a list unless a map index is named.

    :param keys: of the XComs that there are
    """

    def __init__(self, *keys: str) -> None:
        self.keys = keys

    def xcom_pull(self, *, task_ids: str, dag_id: str | None, key: str, **how: object) -> object:
        if key not in self.keys:
            return None
        value = {"task": task_ids, "dag": dag_id, "key": key, "prior": how["include_prior_dates"]}
        return value if how.get("map_indexes") == -1 else [value, value]


@pytest.mark.parametrize(
    ("keys", "key"),
    [(("return_value",), "return_value"), (("return_value", "watermark"), "watermark")],
    ids=["an operator", "a decorated function"],
)
def test_the_macro_pulls_one_value(keys: tuple[str, ...], key: str) -> None:
    found = watermark(_Ti(*keys), "apply", dag_id="d")  # type: ignore[arg-type]
    assert found == {"task": "apply", "dag": "d", "key": key, "prior": False}
    assert watermark(_Ti(), "apply") is None  # type: ignore[arg-type]


def test_the_macro_takes_this_run_before_an_older_one_with_the_other_key() -> None:
    class Ti(_Ti):
        def xcom_pull(self, *, task_ids: str, dag_id: str | None, key: str, **how: object) -> object:
            has_value = key == ("watermark" if how["include_prior_dates"] else "return_value")
            return super().xcom_pull(task_ids=task_ids, dag_id=dag_id, key=key, **how) if has_value else None

    found = watermark(Ti("watermark", "return_value"), "apply")  # type: ignore[arg-type]
    assert found is not None
    assert (found["key"], found["prior"]) == ("return_value", False)
    older = watermark(Ti("watermark"), "apply")  # type: ignore[arg-type]
    assert older is not None
    assert (older["key"], older["prior"]) == ("watermark", True)
    assert watermark(Ti("watermark"), "apply", include_prior_dates=False) is None  # type: ignore[arg-type]
