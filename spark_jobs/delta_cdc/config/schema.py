"""The JSON Schema of a configuration, which lets editors complete, check and explain each key."""

from __future__ import annotations

import json
from typing import Any

from delta_cdc.config import models
from delta_cdc.core.option import GROUPS

_SCHEMA = "https://json-schema.org/draft/2020-12/schema"


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of a file."""
    made = models.adapter().json_schema()
    types, keys = made.pop("$defs", {}), made["properties"]
    for name, key in keys.items():
        if name in models.OF_TEXTS:
            # The loader reads these values as text.
            key["additionalProperties"] = {"type": ["string", "number", "boolean"]}
        keys[name] = _nullable(key)
    for group, names in models.IN_GROUPS.items():
        keys[group] = _keys(names, keys, f"{GROUPS[group]}.")
    defaults = _keys(models.default_keys(), keys, "Keys of all groups and pipelines.")
    source = _keys(models.SOURCE_KEYS, keys, "One source of several.")
    keys[models.SOURCES] = _named("source", "The sources of a pipeline by their names, instead of `source`.")
    return {
        "$schema": _SCHEMA,
        "title": "Pipelines of delta-cdc",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "defaults": _reference("defaults"),
            "groups": _named("group", "Groups by their names: each is a DAG with one Spark application."),
            "pipelines": _named("pipeline", "Pipelines by their names."),
        },
        "$defs": {
            **{name: _untitled(made) for name, made in types.items()},
            **{f"key.{name}": _untitled(key) for name, key in keys.items()},
            "defaults": defaults,
            "group": _keys(models.group_keys(), keys, "Keys of a group, and of its pipelines."),
            "pipeline": _keys(models.pipeline_keys(), keys, "One pipeline."),
            "source": source,
        },
    }


def as_text() -> str:
    """Return the schema's text as published."""
    return json.dumps(json_schema(), indent=1) + "\n"


def _keys(names: tuple[str, ...], keys: dict[str, Any], description: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": ["object", "null"],
        "additionalProperties": False,
        "properties": {name: _reference(f"key.{name}") for name in names if name in keys},
    }


def _named(kind: str, description: str) -> dict[str, Any]:
    return {
        "description": description,
        "type": ["object", "null"],
        "additionalProperties": _reference(kind),
    }


def _reference(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


def _nullable(key: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a key that may also be null (not given)."""
    described = {name: key.pop(name) for name in ("description",) if name in key}
    key.pop("title", None)
    alternatives = key.pop("anyOf", None) or [key]
    null = {"type": "null"}
    return {**described, "anyOf": alternatives if null in alternatives else [*alternatives, null]}


def _untitled(schema: Any) -> Any:
    """Return a schema without titles, which only repeat the names."""
    if isinstance(schema, dict):
        return {
            name: value.replace("``", "") if name == "description" else _untitled(value)
            for name, value in schema.items()
            if name != "title"
        }
    return [_untitled(value) for value in schema] if isinstance(schema, list) else schema
