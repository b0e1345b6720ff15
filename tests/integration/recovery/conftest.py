"""One eventful source per session, copied for each test; runs through ``apply_changes``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from tests.support.world import Source, eventful

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from delta_cdc.flow import ApplyResult


@pytest.fixture(scope="session")
def eventful_source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Source:
    return eventful(spark, tmp_path_factory.mktemp("eventful") / "source")


@pytest.fixture
def source(eventful_source: Source, tmp_path: Path) -> Source:
    return eventful_source.copy(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "target")


@pytest.fixture(params=[1, 2], ids=["scd1", "scd2"])
def scd(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def apply(spark: SparkSession, source: Source, target: str) -> Callable[..., ApplyResult]:
    """Apply the source to the target as pipeline ``flow``; further arguments as ``apply_changes`` takes them."""

    def run(scd: int = 1, **arguments: Any) -> ApplyResult:
        given: dict[str, Any] = {"pipeline": "flow", "keys": ["id"], "stored_as_scd_type": scd, **arguments}
        return partial(apply_changes, spark, source.path, target)(**given)

    return run
