"""The seal in a commit's userMetadata: what is written is read, and nothing else is taken for a seal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from delta_cdc.watermark import SEAL_FORMAT, PlannedOn, Seal, SealStep, Watermark, app_id

SEAL = Seal(
    pipeline="orders",
    number=1_700_000_000_001,
    source_table_id="a-source",
    source_uri="s3://lake/orders",
    applied_from=3,
    watermark=20,
    source_commit_hash="ab" * 32,
    step=SealStep("apply", 11, 20, "f" * 64, "run", PlannedOn("a-target", 7), {"late": 2}),
    highest_sequence="20",
    truncate_sequences=("5",),
    configuration={"keys": ["id"], "stored_as_scd_type": 2},
)


@pytest.mark.parametrize("seal", [SEAL, replace(SEAL, step=replace(SEAL.step, planned_on=None))])
def test_a_seal_reads_back_whole(seal: Seal) -> None:
    assert Seal.from_json(seal.to_json()) == seal


def test_a_seal_proves_its_watermark() -> None:
    assert SEAL.mark == Watermark("a-source", 20)


def test_the_same_state_gives_the_same_text() -> None:
    shuffled = replace(SEAL, configuration=dict(reversed(SEAL.configuration.items())))
    assert shuffled.to_json() == SEAL.to_json()


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "by hand",
        "delta_cdc is great",
        "[1]",
        '"delta_cdc"',
        '{"delta_cdc": 999}',
        '{"a": "delta_cdc"}',
    ],
)
def test_other_peoples_metadata_is_no_seal(text: str | None) -> None:
    assert Seal.from_json(text) is None


def test_a_seal_of_a_later_format_is_not_guessed_at() -> None:
    later = json.dumps({**json.loads(SEAL.to_json()), "delta_cdc": SEAL_FORMAT + 1})
    assert Seal.from_json(later) is None


def test_each_pipeline_has_a_transaction_id_of_its_own() -> None:
    assert app_id("orders") == "delta-cdc/orders"
