"""A table of another tool has a column of the engine with another type: the error says what helps."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from delta_cdc.core.errors import ConfigurationDrift, DeltaCdcError, TargetSchemaClash
from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.apply.schema import other_type

FEED: dict[str, Any] = {"keys": ("id",), "stored_as_scd_type": 2, "start_column": "since"}
LOG_WITH_TIMES = {"source_kind": "change_log", "stored_as_scd_type": 1, "created_column": "at"}


def error_of(name: str, found: str, wanted: str, **options: Any) -> DeltaCdcError:
    spec: Any = SimpleNamespace(
        options=ApplyOptions(**{**FEED, **options}), target_uri="/lake/h", source_uri="/lake/orders"
    )
    return other_type(spec, name, found, wanted)


@pytest.mark.parametrize(
    ("option", "scd_type"),
    [("current_column", 2), ("created_column", 1), ("changed_column", 1), ("row_hash_column", 1)],
)
def test_a_column_that_no_select_reaches(option: str, scd_type: int) -> None:
    error = error_of("x", "int", "boolean", stored_as_scd_type=scd_type, **{option: "x"})
    assert isinstance(error, TargetSchemaClash)
    assert error.message == f"Column 'x' of the target /lake/h is int, and {option} writes boolean."
    assert f"leave {option} out: new rows then have NULL in x" in error.remedy
    assert "select" not in error.remedy


def test_the_mark_of_a_deleted_row_has_one_name() -> None:
    error = error_of("_deleted", "string", "boolean", delete_mode="soft")
    assert error.remedy == "set delete_mode to 'hard', or rename the column of the target."


@pytest.mark.parametrize(
    ("name", "found", "more", "remedy"),
    [
        ("since", "timestamp", {}, "the type timestamp, such as _commit_timestamp. Or"),
        ("since", "date", {}, "the type date. Or"),
        ("since", "timestamp", {"source_kind": "change_log"}, "the type timestamp. Or"),
        ("at", "date", LOG_WITH_TIMES, "the type date. Or"),
    ],
)
def test_a_sequence_of_another_type(name: str, found: str, more: dict[str, Any], remedy: str) -> None:
    error = error_of(name, found, "bigint", **more)
    assert isinstance(error, ConfigurationDrift)
    assert f"{name} is {found}, not bigint" in error.message
    assert remedy in error.remedy


def test_the_sequence_of_a_log() -> None:
    error = error_of("x", "int", "bigint", stored_as_scd_type=1, target_kind="change_log")
    assert "int, not bigint as in /lake/orders" in error.message
