"""One PostgreSQL for all tests of this folder: each has tables and slots of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.postgres import server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from demo.postgres import Postgres


@pytest.fixture(scope="session")
def running() -> Iterator[Postgres]:
    with server() as found:
        yield found
