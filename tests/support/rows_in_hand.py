"""Note which applies take the rows of the ingest before them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.spark import written_rows

if TYPE_CHECKING:
    import pytest


def noted(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Return a list that gets an entry per apply in the session of its ingest: whether it took the rows."""
    taken: list[bool] = []
    kept_rows = written_rows.rows

    def rows(*arguments: Any) -> Any:
        found = kept_rows(*arguments)
        taken.append(found is not None)
        return found

    monkeypatch.setattr(written_rows, "rows", rows)
    return taken
