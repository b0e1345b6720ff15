"""Named points of a job at which a test may pause or kill it.

The engine calls :func:`reached` at each point; without hooks this costs almost nothing. A test names a
function in ``DELTA_CDC_PHASE_HOOK`` (``module:function``); the job imports it once, and calls it with the
name of every point. Tests use this to place crashes and races exactly, without sleeping.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

#: Every point, in the order a step passes them. A step that first alters columns has one other: ``altered``.
#: An expiry has two others: ``expired`` (the events below the old limit are deleted) and ``raised`` (the next
#: limit is set). An erasure has ``created``, ``remembered``, ``marked`` and ``erased``.
POINTS = (
    "started",
    "planned",
    "recorded",
    "quarantined",
    "before_commit",
    "committed",
    "finished",
)

_hooks: list[Callable[[str], None]] = []


def reached(point: str) -> None:
    """Call each hook with the point that the job has reached."""
    for hook in _hooks:
        hook(point)


def install(hook: Callable[[str], None]) -> Callable[[], None]:
    """Add a hook; return the function that removes it."""
    _hooks.append(hook)
    return lambda: _hooks.remove(hook)


def install_from_environment() -> None:
    """Install the hook that ``DELTA_CDC_PHASE_HOOK`` names, if it is set."""
    name = os.environ.get("DELTA_CDC_PHASE_HOOK")
    if name:
        module, _, function = name.partition(":")
        install(getattr(import_module(module), function))
