"""Results of a verification for people: one line per target, then what is wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.core.checks import CURRENT_EQUALS_HISTORY, EQUALS_SOURCE, Check
from delta_cdc.core.text_table import grid

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from delta_cdc.run.verify import Verification

#: Where one of them is skipped, people want to know why.
_TOLD = (EQUALS_SOURCE, CURRENT_EQUALS_HISTORY)


def text_of(found: Sequence[Verification]) -> str:
    """Return a table of all checks, and a line for each finding and each comparison that was not made."""
    names = list(dict.fromkeys(check.check for one in found for check in one.checks))
    rows = [_row(one) for one in found]
    return "\n".join([grid(rows, ["pipeline", "version", *names]), *_lines(found)])


def _row(one: Verification) -> dict[str, Any]:
    made = {check.check: _cell(check) for check in one.checks}
    return {"pipeline": one.pipeline, "version": one.version, **made}


def _cell(check: Check) -> str:
    if check.status == "finding":
        return f"{check.count} WRONG"
    return "ok" if check.status == "ok" else "-"


def _lines(found: Sequence[Verification]) -> Iterator[str]:
    for one in found:
        if one.error is not None:
            yield f"{one.pipeline}: {type(one.error).__name__}: {one.error}"
        for check in one.checks:
            if check.status == "finding":
                named = f" ({'; '.join(check.samples)})" if check.samples else ""
                yield f"{one.pipeline}, {check.check}: {check.detail}{named} Remedy: {check.remedy}"
            elif check.status == "skipped" and check.check in _TOLD and not _unasked(check):
                yield f"{one.pipeline}, {check.check}: skipped: {check.detail}"


def _unasked(check: Check) -> bool:
    return check.check == CURRENT_EQUALS_HISTORY and "(current)" in check.detail
