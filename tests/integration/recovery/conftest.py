"""One eventful source per session, copied for each test; runs through ``apply_changes``."""

from __future__ import annotations

import itertools
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import apply_changes
from tests.support.grouped import grouped
from tests.support.slow import slow_but
from tests.support.world import Source, eventful

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.run.outcomes import Outcome


@pytest.fixture(scope="session")
def eventful_source(tmp_path_factory: pytest.TempPathFactory) -> Source:
    return eventful(tmp_path_factory.mktemp("eventful") / "source")


@pytest.fixture
def source(eventful_source: Source, tmp_path: Path) -> Source:
    return eventful_source.copy(tmp_path / "source")


@pytest.fixture
def target(tmp_path: Path) -> str:
    return str(tmp_path / "target")


@pytest.fixture(params=slow_but([1, 2], 1), ids=["scd1", "scd2"])
def scd(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def apply(spark: SparkSession, source: Source, target: str) -> Callable[..., Outcome]:
    """Apply the source to the target as pipeline ``flow``; takes the arguments of ``apply_changes``."""

    def run(scd: int = 1, **arguments: Any) -> Outcome:
        given: dict[str, Any] = {"pipeline": "flow", "keys": ["id"], "stored_as_scd_type": scd, **arguments}
        return apply_changes(spark, source.path, target, **grouped(given))

    return run


@pytest.fixture(scope="session")
def _prepared(
    spark: SparkSession, eventful_source: Source, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[int, tuple[int, ...]], str]:
    """Targets of the eventful source that several tests start from, each made once."""
    folder = tmp_path_factory.mktemp("prepared")
    made: dict[tuple[int, ...], str] = {}
    numbers = itertools.count()

    def prepare(scd: int, ends: tuple[int, ...]) -> str:
        if (scd, *ends) not in made:
            # A name of its own for each attempt: one that failed must not be in the way.
            target = str(folder / f"{next(numbers)}")
            for end in ends:
                result = apply_changes(
                    spark,
                    eventful_source.path,
                    target,
                    pipeline="flow",
                    keys=["id"],
                    stored_as_scd_type=scd,
                    ending_version=end,
                )
                assert result.applied
            made[scd, *ends] = target
        return made[scd, *ends]

    return prepare


@pytest.fixture
def through(_prepared: Callable[[int, tuple[int, ...]], str], target: str) -> Callable[..., None]:
    """Put a target in place: loaded at the first version, then applied up to each of the others."""

    def run(scd: int, *ends: int) -> None:
        shutil.copytree(_prepared(scd, ends), target)

    return run
