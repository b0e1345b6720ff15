"""Some table runs of the campaign: ``python -m tests.histories`` plays any number of them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.histories.runs import drawn_steps, played

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1, 7))
def test_table_runs(spark: SparkSession, seed: int) -> None:
    failure = played(spark, seed, range(100), drawn_steps(seed), Counter())
    assert failure is None, failure.story
