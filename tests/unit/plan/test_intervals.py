"""Mode ``interval``: a first fill up to a time, or the repair of what is applied; and mode ``backfill``."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.errors import InvalidConfiguration, VersionsExpired
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import ApplySpec
from tests.support.logs import EPOCH, SECOND
from tests.support.tables import KEYED

if TYPE_CHECKING:
    from delta_cdc.planning.plan import Plan
    from tests.support.tables import Tables

TYPE_2 = replace(KEYED, stored_as_scd_type=2)


def at(version: float) -> str:
    """Return the time of a commit of the source, which gets one per second."""
    return datetime.fromtimestamp((EPOCH + version * SECOND) / 1000, UTC).isoformat()


def between(start: float, end: float, **more: Any) -> dict[str, Any]:
    return {"mode": "interval", "starting_timestamp": at(start), "ending_timestamp": at(end), **more}


def did(plan: Plan) -> list[tuple[str, int, int]]:
    if plan.spec is None:
        return []
    assert isinstance(plan.spec, ApplySpec)
    return [(step.kind, step.starting_version, step.ending_version) for step in plan.spec.steps]


def built(tables: Tables, watermark: int, options: ApplyOptions = KEYED, **changes: Any) -> None:
    tables.sealed(watermark, configuration=validation.described(options), **changes)


# -- forward ------------------------------------------------------------------------------------
def test_a_first_fill_loads_the_end_of_its_interval(tables: Tables) -> None:
    """The end is exclusive: the version committed right then belongs to the next interval."""
    plan = tables.apply(**between(0, 3))
    assert did(plan) == [("load", 2, 2)]
    assert "ends with version 2" in str(plan)
    assert did(tables.apply(**between(2.5, 3.5))) == [("load", 3, 3)]


def test_the_next_interval_goes_on_from_the_watermark(tables: Tables) -> None:
    built(tables, 2)
    assert did(tables.apply(**between(4, 5))) == [("apply", 3, 4)]
    # A retry that began it may find the source further on: its pin and its interval hold.
    assert did(tables.apply(saved=4, **between(4, 60))) == [("apply", 3, 4)]
    assert did(tables.apply(**between(4, 60))) == [("apply", 3, 5)]


# -- again --------------------------------------------------------------------------------------
@pytest.mark.parametrize("watermark", [3, 5])
def test_what_is_applied_is_repaired_and_the_watermark_stays(tables: Tables, watermark: int) -> None:
    built(tables, watermark)
    plan = tables.apply(**between(2, 4))
    assert did(plan) == [("repair", 2, 3)]
    assert plan.steps[0].at == watermark
    assert f"applied already (the watermark is {watermark})" in str(plan)


def test_history_is_repaired_from_its_load_on(tables: Tables) -> None:
    built(tables, 5, TYPE_2, loaded_version=2)
    assert did(tables.apply(options=TYPE_2, **between(1, 4))) == [("repair", 3, 3)]
    before = tables.apply(options=TYPE_2, **between(1, 3))
    assert did(before) == []
    assert "begins with version 2" in str(before)


# -- nothing ------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("start", "end", "note"),
    [
        (2.2, 2.8, "got no version in it"),
        (60, 70, ""),
        (-9, -3, "did not exist yet"),
        (-9, 0, ""),
    ],
)
def test_an_interval_without_a_version(tables: Tables, start: float, end: float, note: str) -> None:
    if start > 0:
        built(tables, 5)
    empty = tables.apply(**between(start, end))
    assert did(empty) == []
    assert note in str(empty)


def test_an_interval_that_the_log_no_longer_knows(tables: Tables) -> None:
    tables.source.checkpoint(0, 1)
    with pytest.raises(VersionsExpired, match=r"begins with version 2, .*later date"):
        tables.apply(**between(-9, 1))


@pytest.mark.parametrize("start", [-9, 0, 1, 1.5])
def test_an_interval_whose_beginning_the_log_no_longer_knows(tables: Tables, start: float) -> None:
    """A repair of what is left would leave versions out; a fill begins at the watermark in any case."""
    built(tables, 5)
    tables.source.checkpoint(0, 1, at=2)
    with pytest.raises(
        VersionsExpired, match=r"first one that it has is version 2.*later starting_timestamp"
    ):
        tables.apply(**between(start, 4))
    assert did(tables.apply(**between(3, 4))) == [("repair", 3, 3)]


def test_a_fill_needs_no_version_before_the_watermark(tables: Tables) -> None:
    built(tables, 2)
    tables.source.checkpoint(0, 1, at=1)
    assert did(tables.apply(**between(0, 4))) == [("apply", 3, 3)]


def test_history_needs_no_version_before_its_load(tables: Tables) -> None:
    built(tables, 5, TYPE_2, loaded_version=2)
    tables.source.checkpoint(0, 1, at=1)
    assert did(tables.apply(options=TYPE_2, **between(0, 4))) == [("repair", 3, 3)]


# -- refusals -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (between(3, 3), "needs a starting and a later ending timestamp"),
        (between(4, 3), "ending_timestamp .* lies before starting_timestamp"),
        ({"mode": "interval", "ending_timestamp": at(3)}, "needs a starting and a later ending"),
        (between(2, 3, ending_version=4), "both given|needs a starting"),
        (between(2, 3, versions_per_commit=4), "versions_per_commit and mode 'interval'"),
        (between(2, 3, staging="/s"), "staging"),
        (between(2, 3, repair_keys="true"), "repair_keys and mode 'interval'"),
    ],
    ids=str,
)
def test_refusals(tables: Tables, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        tables.apply(**changes)


def test_what_only_appends_is_filled_and_not_repaired(tables: Tables) -> None:
    inserts = ApplyOptions(insert_only=True)
    assert did(tables.apply(options=inserts, **between(0, 3))) == [("load", 2, 2)]
    built(tables, 5, inserts)
    again = tables.apply(options=inserts, **between(2, 4))
    assert did(again) == []
    assert "rows without keys are not repaired" in str(again)


# -- mode backfill ------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "bound",
    [{"ending_version": 4}, {"starting_version": 3, "ending_version": 4}, {"ending_timestamp": at(4)}],
    ids=str,
)
def test_a_backfill_is_an_incremental_run(tables: Tables, bound: dict[str, Any]) -> None:
    built(tables, 2)
    wanted = tables.apply(**bound)
    found = tables.apply(mode="backfill", **bound)
    assert did(found) == did(wanted) == [("apply", 3, 4)]
    two = tables.apply(mode="backfill", versions_per_commit=1, **bound)
    assert did(two) == [("apply", 3, 3), ("apply", 4, 4)]
    assert did(tables.apply(mode="backfill", starting_version=1, ending_version=2)) == []
