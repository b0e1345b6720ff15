"""What a step says that it does."""

from __future__ import annotations

from typing import get_args

import pytest

from delta_cdc.core.steps import Kind
from delta_cdc.core.watermark import TableVersion
from tests.support.steps import ingest_step, step

OF_AN_INGEST = {"ingest": "batch 7", "replay": "the records in quarantine, as batch 7"}


@pytest.mark.parametrize("kind", [kind for kind in get_args(Kind) if kind not in (*OF_AN_INGEST, "read")])
def test_a_step_of_every_kind_says_its_version(kind: str) -> None:
    assert "9" in str(step(kind, 3, TableVersion("id", 9), 1))


@pytest.mark.parametrize(("kind", "text"), OF_AN_INGEST.items())
def test_the_step_of_an_ingest_has_no_watermark(kind: str, text: str) -> None:
    assert str(ingest_step(kind, 7)) == text


def test_the_chosen_keys() -> None:
    chosen = step("repair", 3, TableVersion("id", 9), 1, where="id = '{x}'")
    assert str(chosen) == "the keys where id = '{x}', as of version 9"
