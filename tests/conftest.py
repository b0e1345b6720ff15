"""What all tests share: markers by folder, one Spark session, fresh table paths."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

LAYERS = ("unit", "integration", "system")
_TESTS = Path(__file__).resolve().parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test with its layer, which is its folder; refuse tests outside of the layers."""
    for item in items:
        layer = item.path.relative_to(_TESTS).parts[0]
        if layer not in LAYERS:
            raise pytest.UsageError(
                f"{item.nodeid} lies in none of the folders {', '.join(LAYERS)} of tests/"
            )
        item.add_marker(layer)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark, once per run, when the first test asks for it."""
    from delta_cdc.session import embedded_session

    session = embedded_session("tests", cores=2, quick_start=True)
    yield session
    session.stop()


@pytest.fixture
def tmp_table(tmp_path: Path) -> Callable[[str], str]:
    """Return a function that gives the path of a table that does not exist yet."""
    return lambda name="table": str(tmp_path / name)
