"""Arguments of operators and functions, from options without groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.options import APPLY, INGEST, READ

if TYPE_CHECKING:
    from collections.abc import Mapping

_OPTIONS = {**READ, **APPLY, **INGEST}


def grouped(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments with each option of a group in the group's mapping."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        option = _OPTIONS.get(name)
        if option is not None and option.group:
            found[option.group] = {**found.get(option.group, {}), option.key: value}
        else:
            found[name] = value
    return found
