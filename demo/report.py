"""What the demo prints."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from demo.check import Finding

#: Characters of a row that are shown.
_LONGEST = 300
_START = time.monotonic()
_KINDS = ("inserted", "updated", "deleted", "closed", "suppressed")
_STREAM_KINDS = ("files", "events", "inserted", "updated", "deleted")


def say(text: str = "") -> None:
    """Print one line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def headline(text: str) -> None:
    """Print the title of a step, with the time since the beginning."""
    elapsed = int(time.monotonic() - _START)
    say(f"\n{elapsed // 60}:{elapsed % 60:02d}  {text}")


def columns() -> None:
    """Print the titles above :func:`pipeline`'s lines."""
    kinds = "".join(f"{kind:>11}" for kind in _KINDS)
    say(f"      {'pipeline':<18}{'versions':>9}{kinds}{'watermark':>11}{'seconds':>9}{'Spark apps':>12}")


def pipeline(published: dict[str, Any], *, seconds: float, applications: int) -> None:
    """Print what one run of a pipeline did.

    :param published: the dict the apply task left in XCom
    :param seconds: duration of the DAG run
    :param applications: Spark applications it started
    """
    counts = published.get("counts") or {}
    kinds = "".join(f"{counts.get(kind) or '-':>11}" for kind in _KINDS)
    say(
        f"      {published['pipeline']:<18}{_versions(published):>9}{kinds}"
        f"{published['version']:>11}{seconds:>9.1f}{applications:>12}"
    )


def stream_columns() -> None:
    """Print the titles above :func:`stream`'s lines."""
    kinds = "".join(f"{kind:>11}" for kind in _STREAM_KINDS)
    say(f"      {'step':<26}{kinds}")


def stream(step: str, counts: dict[str, Any]) -> None:
    """Print what one step of a change stream did.

    :param counts: what it published
    """
    kinds = "".join(f"{counts.get(kind) or '-':>11}" for kind in _STREAM_KINDS)
    say(f"      {step:<26}{kinds}")


def findings(results: Sequence[Finding]) -> None:
    """Print the table of results, and samples of what differs."""
    width = max(len(result.what) for result in results)
    say(f"      {'check':<{width}}{'rows':>10}{'missing':>9}{'surplus':>9}")
    for result in results:
        verdict = "ok" if result.holds else "DIFFERS"
        numbers = f"{result.rows:>10,}{result.missing:>9,}{result.surplus:>9,}"
        say(f"      {result.what:<{width}}{numbers}  {verdict}")
        for line in result.sample:
            say(f"        {line if len(line) <= _LONGEST else line[:_LONGEST] + '…'}")


def _versions(published: dict[str, Any]) -> str:
    if not published["applied"]:
        return "none"
    first, last = published["starting_version"], published["ending_version"]
    return str(last) if first == last else f"{first}-{last}"
