"""Each next step, of whatever kind, knows what the step before took out of a quarantine."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import validation
from delta_cdc.core.quarantine import SETTLING
from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion
from delta_cdc.spark.sealed.settling import Settled, recorded
from tests.support.tables import KEYED, Tables
from tests.unit.plan.test_ingest import dies, spec_of, world
from tests.unit.plan.test_modes import other_source

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.ingest_model import World

__all__ = ["world"]
LEFT = {SETTLING: "mark"}
LOG = replace(KEYED, source_kind="change_log", sequence_by="at")


@pytest.mark.parametrize("before", [{}, LEFT], ids=["", "earlier mark"])
def test_a_seal_records_the_mark_of_its_own_step_alone(before: dict[str, Any]) -> None:
    state = PipelineState(TableVersion("id", 1), 0, configuration={"keys": ["id"], **before})
    seal = Seal("p", 7, "s", state, SealStep("repair", 1, 1, "f:7", "r"))
    assert recorded(seal, None).state.configuration == {"keys": ["id"]}
    marks = [Settled("q", "true"), Settled("q", "true")]
    for one in marks:
        assert recorded(seal, one).state.configuration == {"keys": ["id"], SETTLING: one.mark}
    assert marks[0].mark != marks[1].mark, "each try has its own"


MODES: dict[str, dict[str, Any]] = {
    "apply": {},
    "repair": {"mode": "repair", "repair_keys": "id = 1"},
    "reload": {"mode": "reload"},
    "reset": {"mode": "reset"},
    "take over": {"pipeline": "new", "take_over_from": "p"},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("left", [{}, LEFT], ids=["", "left"])
def test_the_next_step_of_a_target(tmp_path: Path, mode: str, left: dict[str, Any]) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(3, configuration={**validation.described(KEYED), **left}, highest_sequence="9")
    steps = tables.apply(**MODES[mode]).steps
    assert steps[0].settling == left.get(SETTLING)
    if mode == "reset":
        assert steps[0].highest_sequence is None
        assert (steps[0].before is not None) == bool(left)


def test_a_reload_from_another_log(tmp_path: Path) -> None:
    tables = Tables.made_in(tmp_path)
    tables.sealed(3, configuration={**validation.described(LOG), **LEFT})
    other = other_source(tables, tmp_path)
    (step,) = tables.apply(source=other, options=LOG, on_source_replaced="reload").steps
    assert (step.kind, step.settling) == ("reload", "mark")


def test_the_next_batch_of_a_log(world: World) -> None:
    world.deliver("a.json", ["1"])
    step = spec_of(world.plan()).step
    conf = {**step.configuration, **LEFT}
    spec = spec_of(world.plan())
    world.engine(replace(spec, steps=(replace(step, before=replace(step.before, configuration=conf)),)))
    world.deliver("b.json", ["2"])
    assert spec_of(world.plan()).step.settling == "mark"
    dies(world, "recorded")
    assert spec_of(world.plan()).step.settling == "mark"
