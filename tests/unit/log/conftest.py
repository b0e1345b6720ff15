from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.logs import FEED, LogTable

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def table(tmp_path: Path) -> LogTable:
    """Versions 0-3, one second apart; all but 0 append a file."""
    made = LogTable(tmp_path / "t", configuration=dict(FEED)).create()
    for _ in range(3):
        made.append()
    return made
