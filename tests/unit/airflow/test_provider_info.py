"""What Airflow's provider manager is told."""

from __future__ import annotations

import importlib
import json
from importlib.resources import files

import jsonschema
import pytest

import airflow_delta_cdc
from airflow_delta_cdc.plugin import DeltaCdcPlugin, watermark
from airflow_delta_cdc.provider_info import get_provider_info


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
