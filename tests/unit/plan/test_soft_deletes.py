"""What a soft delete leaves are the last values, which the two ends of a range may not hold."""

from __future__ import annotations

import pytest

from delta_cdc.core.options import ApplyOptions
from delta_cdc.planning.apply import _is_copied, query_for


@pytest.mark.parametrize(("mode", "query"), [("hard", "min_delta"), ("soft", "full_delta")])
def test_every_change_is_read_for_rows_that_stay(mode: str, query: str) -> None:
    options = {"keys": ("id",), "delete_mode": mode}
    assert query_for(ApplyOptions(**options)).query == query  # type: ignore[arg-type]
    copied = ApplyOptions(**options, source_kind="snapshot")  # type: ignore[arg-type]
    assert _is_copied(copied) == (mode == "soft")


@pytest.mark.parametrize("name", ["created_column", "changed_column"])
def test_the_times_of_rows_need_each_change(name: str) -> None:
    """Between two ends of a range, a row may have changed and changed back, or have gone and come back."""
    options = ApplyOptions(keys=("id",), **{name: "at"})  # type: ignore[arg-type]
    assert query_for(options).query == "full_delta"
