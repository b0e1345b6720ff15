"""The seal in a commit's userMetadata: what is written is read, and nothing else is taken for a seal."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from delta_cdc.core.errors import SealUnreadable
from delta_cdc.core.watermark import (
    MAX_SEAL_BYTES,
    SEAL_FORMAT,
    SEAL_ROOM_BYTES,
    PipelineState,
    Seal,
    SealStep,
    TableVersion,
    format_of,
    newest,
)
from tests.support.logs import changed

WATERMARK = TableVersion("a-source", 20, "ab" * 32)
SEAL = Seal(
    pipeline="orders",
    number=1_700_000_000_001,
    source_uri="s3://lake/orders",
    state=PipelineState(
        WATERMARK,
        applied_from=3,
        highest_sequence="20",
        truncate_sequences=("5",),
        horizons=((4, "2"),),
        configuration={"keys": ["id"], "stored_as_scd_type": 2},
    ),
    step=SealStep("apply", 11, 20, "f" * 64, "run", TableVersion("a-target", 7), {"late": 2}),
)


@pytest.mark.parametrize("seal", [SEAL, replace(SEAL, step=replace(SEAL.step, planned_on=None))])
def test_a_seal_reads_back_whole(seal: Seal) -> None:
    assert Seal.from_json(seal.to_json()) == seal
    shuffled = changed(seal, configuration=dict(reversed(seal.state.configuration.items())))
    assert shuffled.to_json() == seal.to_json(), "the same state gives the same text"


def test_the_seal_of_an_ingest_proves_no_watermark() -> None:
    ingested = changed(SEAL, applied_to=None)
    with pytest.raises(SealUnreadable, match="ingest from s3://lake/orders"):
        _ = ingested.watermark
    assert (SEAL.reach, ingested.reach) == ("watermark 20", "batch 1700000000001")


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
    assert format_of(text) in (None, 999)


def test_a_seal_of_a_later_format_is_not_guessed_at() -> None:
    later = json.dumps({**json.loads(SEAL.to_json()), "delta_cdc": SEAL_FORMAT + 1})
    assert Seal.from_json(later) is None
    assert (format_of(SEAL.to_json()), format_of(later)) == (SEAL_FORMAT, SEAL_FORMAT + 1)


def test_lists_of_a_seal_keep_the_newest_that_it_has_room_for() -> None:
    short = tuple(str(number) for number in range(200))
    assert newest(short, 100) == short[100:]
    assert newest((), 100) == ()
    long = tuple(f"{number:0>500}" for number in range(200))
    assert newest(long, 100) == long[-8:]
    assert newest(("x" * 9_000, "y" * 9_000), 100) == ("y" * 9_000,), "the last one counts always"


def test_what_only_the_job_knows_fits_into_the_room_that_is_left_for_it() -> None:
    moment = "2024-01-01 00:00:00.000000"
    counts = {f"a_count_of_rows_{number}": 2**40 for number in range(30)}
    most = changed(
        SEAL,
        pipeline="p" * 200,
        applied_to=TableVersion("a" * 36, 2**40, "b" * 64),
        highest_sequence=json.dumps([moment, "9" * 38, moment]),
        truncate_sequences=newest([json.dumps([moment, "9" * 38, moment])] * 500, 100),
        horizons=newest([(2**40, moment)] * 500, 50),
        configuration={"sequence_by_type": "struct<col1:timestamp,col2:decimal(38,0),col3:timestamp>"},
        step=replace(SEAL.step, counts=counts),
    )
    assert len(most.to_json()) < SEAL_ROOM_BYTES < MAX_SEAL_BYTES
