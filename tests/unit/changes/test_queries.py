"""How the errors in the plan of a change query get their names back."""

from __future__ import annotations

import pytest

from delta_cdc.core.errors import KeyNotUnique
from delta_cdc.spark import named_errors
from delta_cdc.spark.changes.queries import named_in_plan

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
