"""The contract between the side that plans and the side that runs."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core import spec as specs
from delta_cdc.core.errors import SpecUnreadable
from delta_cdc.core.steps import Staging
from delta_cdc.core.watermark import TableVersion
from tests.support.steps import step as made_step

if TYPE_CHECKING:
    from pathlib import Path

STEP = made_step(
    "apply",
    11,
    TableVersion("a-source", 20, "ab" * 32),
    5,
    ("id", "v"),
    planned_on=TableVersion("a-target", 7),
    staging=Staging("s3://lake/staging", 4, "changes"),
)
APPLY = specs.ApplySpec(
    pipeline="orders",
    run_id="run",
    source_uri="s3://lake/orders",
    target_uri="s3://lake/current",
    options=specs.ApplyOptions(keys=("id",), partition_by={"year": "year(day)"}, cluster_by=()),
    steps=(STEP,),
)
READ = specs.ReadSpec(
    pipeline="orders",
    run_id="run",
    source_uri="s3://lake/orders",
    staging_uri="s3://lake/staging",
    steps=(STEP, made_step("complete", 5, STEP.watermark, 6)),
    kind="changes",
    starting_version=5,
    applied_from=0,
    options=specs.QueryOptions("min_delta", keys=("id",), select=("id",)),
    configuration={"batch": "changes", "committed": None},
)


def changed(**values: Any) -> str:
    return json.dumps({**json.loads(specs.to_json(APPLY)), **values})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        changed(spec_version=specs.SPEC_VERSION + 1),
        changed(job="unheard of"),
        changed(unheard_of=1),
        changed(options={"unheard_of": 1}),
        changed(steps=[{"kind": "apply"}]),
    ],
)
def test_what_is_no_spec_is_refused_by_name(text: str) -> None:
    with pytest.raises(SpecUnreadable):
        specs.from_json(text)


def test_a_spec_file_is_checked_against_its_hash(tmp_path: Path) -> None:
    text = specs.to_json(APPLY)
    file = tmp_path / "spec.json"
    file.write_text(text)
    assert specs.read(str(file), specs.sha256(text)) == APPLY
    file.write_text(specs.to_json(replace(APPLY, pipeline="another")))
    with pytest.raises(SpecUnreadable, match="SHA-256"):
        specs.read(str(file), specs.sha256(text))


def test_a_fingerprint_names_one_plan_and_one_step_of_it() -> None:
    again = specs.from_json(specs.to_json(APPLY))
    assert isinstance(again, specs.ApplySpec)
    assert specs.fingerprint(again) == specs.fingerprint(APPLY)
    assert specs.fingerprint(replace(READ, manifests_uri="s3a://lake/manifests")) == specs.fingerprint(READ)
    assert specs.fingerprint(READ) != specs.fingerprint(replace(READ, pipeline="another"))
    for other in (
        replace(APPLY, steps=(replace(STEP, applied_to=TableVersion("a-source", 21)),)),
        replace(APPLY, pipeline="another"),
    ):
        assert specs.fingerprint(other) != specs.fingerprint(APPLY)
    assert specs.step_fingerprint(APPLY, 7) != specs.step_fingerprint(APPLY, 8)
    assert specs.step_fingerprint(APPLY, 7).startswith(specs.fingerprint(APPLY))


def test_the_targets_size_is_no_part_of_a_fingerprint() -> None:
    """A retry plans on the target as its own commit left it."""
    assert specs.fingerprint(replace(APPLY, target_bytes=1)) == specs.fingerprint(APPLY)
