"""What released versions wrote into tables and stores is read by this one.

``tests/released/`` has a file per release. They are never made again: a change that cannot read one of them
needs a reader of the older format beside the new one. See docs/reference/upgrade.md.
"""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from delta_cdc._version import __version__
from delta_cdc.core import maintenance_tags
from delta_cdc.core.spec import SPEC_VERSION
from delta_cdc.core.watermark import SEAL_FORMAT, PipelineState, Seal, SealStep, StepKind, TableVersion
from delta_cdc.planning.reconcile import WatermarkBackup

_FOLDER = Path(__file__).parents[1] / "released"
_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "upgrade.md"


@pytest.fixture(params=sorted(_FOLDER.glob("*.json")), ids=lambda file: file.stem)
def state(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The state that a release wrote."""
    content: dict[str, Any] = json.loads(request.param.read_text(encoding="utf-8"))
    return content


def test_its_seals_are_read(state: dict[str, Any]) -> None:
    assert state["seals"]
    for written in state["seals"]:
        seal = Seal.from_json(json.dumps(written))
        assert seal is not None
        assert seal.step.kind == written["step"]["kind"]
        applied_to, number = written["state"]["applied_to"], written["number"]
        reach = f"batch {number}" if applied_to is None else f"watermark {applied_to['version']}"
        assert seal.reach == reach


def test_its_copies_of_seals_are_read(state: dict[str, Any]) -> None:
    for written in state["seals"]:
        copied = {name: value for name, value in written.items() if name != "delta_cdc"}
        target = {"table_id": "id", "version": 7, "commit_hash": None}
        assert WatermarkBackup.from_dict({"seal": copied, "target": target}) is not None


def test_its_maintenance_is_recognised(state: dict[str, Any]) -> None:
    for kind, written in state["maintenance"].items():
        assert maintenance_tags.read(json.dumps(written), kind) == written


def test_what_a_seal_may_hold_is_not_extended_in_silence() -> None:
    """An older release cannot read a new field: raise SEAL_FORMAT, so that its error gives the reason."""
    now = {
        cls: {field.name for field in fields(cls)} for cls in (Seal, PipelineState, SealStep, TableVersion)
    }
    assert (SEAL_FORMAT, now) == (
        1,
        {
            Seal: {"pipeline", "number", "source_uri", "state", "step", "successor"},
            PipelineState: {
                *("applied_to", "applied_from", "highest_sequence", "truncate_sequences", "horizons"),
                *("loaded_version", "configuration"),
            },
            SealStep: {
                *("kind", "starting_version", "ending_version", "fingerprint", "run_id", "planned_on"),
                "counts",
            },
            TableVersion: {"table_id", "version", "commit_hash"},
        },
    )


def test_the_first_release_wrote_every_kind_of_its_format() -> None:
    state = json.loads((_FOLDER / "0.1.0.json").read_text(encoding="utf-8"))
    kinds = {seal["step"]["kind"] for seal in state["seals"]}
    assert (SEAL_FORMAT, set(get_args(StepKind))) == (1, kinds)


def test_the_page_has_the_versions_of_the_code() -> None:
    line = ".".join(__version__.split(".")[:2])
    assert f"| {line} | {SEAL_FORMAT} | {SPEC_VERSION} |" in _PAGE.read_text(encoding="utf-8")
