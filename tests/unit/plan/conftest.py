from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.tables import Tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tables(tmp_path: Path) -> Tables:
    """A source with versions 0-5 (all but 0 change data), and where its target is to lie."""
    return Tables.made_in(tmp_path)
