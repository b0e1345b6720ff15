"""What a change query is refused for without Spark, and how its errors in the plan get their names back."""

from __future__ import annotations

from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration, KeyNotUnique
from delta_cdc.core.spec import QueryOptions
from delta_cdc.core.validation import check_query
from delta_cdc.spark import named_errors
from delta_cdc.spark.changes.queries import named_in_plan

KEYED: dict[str, Any] = {"keys": ("id",)}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"query": "append_only", "method": "added_files", "on_change_commit": "skip"},
        {"query": "upsert", **KEYED},
        {"query": "min_delta"},
        {"where": "id > 1", "select": ("id",), **KEYED},
        {"raw": True, "method": "change_files", **KEYED},
    ],
)
def test_what_can_be_asked(options: dict[str, Any]) -> None:
    check_query(QueryOptions(**options))


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"query": "upsert"}, "query='upsert' is given without keys"),
        ({"where": "id > 1"}, "where is given without keys"),
        ({"query": "min_delta", "where": "id > 1"}, "where is given without keys"),
        ({"query": "append_only", "raw": True}, "raw is given with query='append_only'"),
        ({"raw": True, "where": "id > 1", **KEYED}, "raw is given with where or select"),
        ({"raw": True, "select": ("id",)}, "raw is given with where or select"),
        ({"raw": True, "method": "row_tracking"}, "raw is given with method='row_tracking'"),
    ],
)
def test_what_cannot_be_meant(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InvalidConfiguration) as caught:
        check_query(QueryOptions(**options))
    assert word in caught.value.message


REMEDY = "add columns to keys until a row is unique, or remove the duplicates from the source."
RAISED = "[USER_RAISED_EXCEPTION] KeyNotUnique: t: two rows share a key (k = {}). Remedy: " + REMEDY
LOST = "Job aborted due to stage failure: Lost task 0.3 (host): org.apache.spark.SparkRuntimeException: "


@pytest.mark.parametrize("key", ["1", "a\nb", "x Remedy: none. SQLSTATE: 1", "[USER_RAISED_EXCEPTION] y"])
@pytest.mark.parametrize(
    "text",
    [
        f"{RAISED} SQLSTATE: P0001",
        f"{LOST}{RAISED} SQLSTATE: P0001\n\tat org.apache\nCaused by: {RAISED} SQLSTATE: P0001",
        f"{RAISED}\nJVM stacktrace:\n...",
    ],
    ids=["alone", "twice", "remote"],
)
def test_an_error_in_the_plan_gets_its_class_back(text: str, key: str) -> None:
    error = RuntimeError(text.replace("{}", key))
    for named in (named_in_plan(error), named_errors.named(error, "elsewhere")):
        assert isinstance(named, KeyNotUnique)
        assert named.message == f"t: two rows share a key (k = {key})."
        assert named.remedy == REMEDY


def test_other_errors_keep_theirs() -> None:
    assert named_in_plan(ValueError(RAISED.removeprefix("[USER_RAISED_EXCEPTION] "))) is None
    assert named_in_plan(ValueError(RAISED.replace("KeyNotUnique", "StoreUnavailable"))) is None
    assert named_in_plan(ValueError(RAISED.replace(REMEDY, "none."))) is None
