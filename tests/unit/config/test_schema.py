"""The JSON Schema that editors complete and check by."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema
import pytest

from delta_cdc import config
from delta_cdc.config import json_schema, models
from delta_cdc.config.schema import as_text

RIGHT = {"source": "/s", "target": "/t", "keys": ["id"]}


@pytest.fixture(scope="module")
def editor() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_published_file_is_made_from_the_models() -> None:
    """Made anew by: delta-cdc schema > spark_jobs/delta_cdc/config/schema.json"""
    published = Path(config.__file__).with_name("schema.json")
    assert published.read_text(encoding="utf-8") == as_text()


def test_every_key_is_explained_and_completed() -> None:
    made = json_schema()["$defs"]
    assert list(made["pipeline"]["properties"]) == list(models.pipeline_keys())
    assert list(made["source"]["properties"]) == list(models.SOURCE_KEYS)
    assert set(made["group"]["properties"]) == set(models.default_keys()) - {"group"}
    for name in models.default_keys():
        key = made[f"key.{name}"]
        assert key["description"].endswith((".", "4g")), name
        assert {"type": "null"} in key["anyOf"] if "anyOf" in key else "null" in key["type"], name
    for group, names in models.IN_GROUPS.items():
        assert list(made[f"key.{group}"]["properties"]) == list(names)
    assert "title" not in made["key.source"]


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"keys": "id", "schedule": None, "where": None},
        {"limits": {"max_versions": "{{ params.max_versions }}"}, "initial_load": {"from_version": 3}},
        {
            "source_kind": "snapshot",
            "conf": {"spark.executor.instances": 2, "a": True},
            "layout": {"partition_by": {"y": "year(d)", "z": None}},
            "policies": None,
        },
        {"schedule": {"assets": ["/a"]}, "retry_delay": "5 minutes", "tags": ["lake"]},
    ],
)
def test_what_is_right(editor: jsonschema.Draft202012Validator, keys: dict[str, Any]) -> None:
    member = {**RIGHT, "target": "/t2", "group": "g"}
    given = {"defaults": None, "groups": {"g": None}, "pipelines": {"p": {**RIGHT, **keys}, "q": member}}
    assert [error.message for error in editor.iter_errors(given)] == []
    assert config.lint(given) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"sorce": "/s"},
        {"limits": {"max_versions": 0}},
        {"limits": {"max_versions": "ten"}},
        {"limits": {"max_version": 5}},
        {"limits": "{{ params.limits }}"},
        {"max_versions": 5},
        {"layout": {"publish_changes": "yes"}},
        {"stored_as_scd_type": 3},
        {"policies": {"on_conflict": {"lastby": ["n"]}}},
        {"keys": [1]},
        {"mode": "reset"},
        {"on_failure_callback": "page me"},
    ],
)
def test_what_is_wrong(editor: jsonschema.Draft202012Validator, keys: dict[str, Any]) -> None:
    given = {"pipelines": {"p": {**RIGHT, **keys}}}
    assert list(editor.iter_errors(given))
    assert config.lint(given)
