"""Which parameters of a test are left to ``make test-full``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterable


def slow_but(values: Iterable[Any], *quick: Any) -> list[Any]:
    """Return a test's parameters, all marked slow but some.

    :param values: each one parameter, or a tuple of several
    :param quick: those of ``values`` that ``make test`` runs, too
    """
    given = list(values)
    missing = [value for value in quick if value not in given]
    assert not missing, f"{missing} are no parameters of the test"
    return [value if value in quick else _slow(value) for value in given]


def _slow(value: Any) -> Any:
    values = value if isinstance(value, tuple) else (value,)
    return pytest.param(*values, marks=pytest.mark.slow)
