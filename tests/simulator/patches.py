"""Replace attributes while a world runs, in a tenth of the time of ``mock.patch``."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def replaced(*given: tuple[Any, dict[str, Any]]) -> Iterator[None]:
    """Replace attributes of modules and classes during the block.

    :param given: modules or classes, each with new values by the names of its own attributes
    """
    before: list[tuple[Any, str, Any]] = []
    try:
        for owner, values in given:
            for name, value in values.items():
                before.append((owner, name, vars(owner)[name]))
                setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            setattr(owner, name, value)
