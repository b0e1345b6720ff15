"""Named points of a job at which a test may hold or kill it.

The engine calls :func:`reached` at each point; by default that is one look at an empty list. A test names a
function in ``DELTA_CDC_PHASE_HOOK`` (``module:function``); the job imports it once, and it is called with the
name of every point. That is how crashes and races are placed exactly, without sleeping.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Every point, in the order a step passes them.
POINTS = (
    "started",
    "planned",
    "recorded",
    "quarantined",
    "exported",
    "before_commit",
    "committed",
    "finished",
)

#: Those of an expiry: what lies behind a horizon is deleted; the next one is set.
OF_AN_EXPIRY = ("expired", "raised")

_hooks: list[Callable[[str], None]] = []


def reached(point: str) -> None:
    """Tell the hooks that the job has come to ``point``."""
    for hook in _hooks:
        hook(point)


def install(hook: Callable[[str], None]) -> Callable[[], None]:
    """Add a hook; returns the function that takes it out again."""
    _hooks.append(hook)
    return lambda: _hooks.remove(hook)


def install_from_environment() -> None:
    """Install the hook that ``DELTA_CDC_PHASE_HOOK`` names, if it is set."""
    name = os.environ.get("DELTA_CDC_PHASE_HOOK")
    if name:
        module, _, function = name.partition(":")
        install(getattr(import_module(module), function))
