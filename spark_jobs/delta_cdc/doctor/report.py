"""What a check says, how it is bounded in time, and how it is told: a line each, or JSON. Never a secret."""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal, TextIO

from delta_cdc._version import __version__
from delta_cdc.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Status = Literal["ok", "warning", "failed", "skipped"]

#: Of the JSON; raised when a field changes its meaning.
REPORT_FORMAT = 1

#: Seconds that a check is given beyond its own limit, to end what it started.
GRACE = 5.0
_LONGEST = 400
_HIDDEN = "***"
#: Shorter ones occur in every other line.
_SHORTEST_SECRET = 6
_SECRET_NAME = re.compile(r"secret|passw|token|sas[._]key|access[._]key$|account[._]key|master[._]key", re.I)
_PUBLIC_NAME = re.compile(r"(_file|_path|_uri|_id|_url)$", re.I)
_IN_URLS = (
    # Parameters of Spark Connect, and signatures of Azure.
    (re.compile(r"(?i)\b(token|sig|password|x-aws-ec2-[^=;&\s]*)=[^;&\s'\"]+"), rf"\1={_HIDDEN}"),
    (re.compile(r"(?i)(://[^/\s:@]*):[^@/\s]+@"), rf"\1:{_HIDDEN}@"),
)


@dataclass(frozen=True)
class Finding:
    """What one look at one thing gave.

    :param status: ``warning``: works, or not needed yet, but somebody should know; ``skipped``: not asked
        for, or pointless after what failed before
    :param found: a clause that says what is there, with versions and places
    :param remedy: one sentence; empty where nothing is wrong
    """

    status: Status
    found: str
    remedy: str = ""


def ok(found: str) -> Finding:
    """Return a finding that needs nobody."""
    return Finding("ok", found)


def warning(found: str, remedy: str) -> Finding:
    """Return a finding that is no failure yet."""
    return Finding("warning", found, remedy)


def failed(found: str, remedy: str) -> Finding:
    """Return a finding that stops work."""
    return Finding("failed", found, remedy)


def skipped(found: str) -> Finding:
    """Return the finding of a check that was not made."""
    return Finding("skipped", found)


@dataclass(frozen=True)
class Check:
    """A look at one thing.

    :param name: short, the same in every release
    :param look: makes the finding; what it raises is a failure
    :param stop: ends what the look has started, where nobody waits for the finding any more
    """

    name: str
    look: Callable[[], Finding]
    stop: Callable[[], object] | None = None


@dataclass(frozen=True)
class Entry:
    """A finding under the name of its check, with the seconds that it took."""

    name: str
    status: Status
    found: str
    remedy: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        remedy = f" Remedy: {self.remedy}" if self.remedy else ""
        return f"{self.status:<8} {self.name:<16} {self.found}{remedy}"


@dataclass
class Hider:
    """Takes secrets out of texts.

    :param secrets: values that must not be seen, wherever they are
    """

    secrets: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, *named: Mapping[str, str] | None) -> Hider:
        """Hide the secrets among some options, and those of the environment."""
        values = {
            str(value)
            for options in (os.environ, *named)
            for name, value in (options or {}).items()
            if _SECRET_NAME.search(name) and not _PUBLIC_NAME.search(name)
        }
        return cls({value for value in values if len(value) >= _SHORTEST_SECRET})

    def __call__(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            text = text.replace(secret, _HIDDEN)
        for pattern, instead in _IN_URLS:
            text = pattern.sub(instead, text)
        return text


def examined(checks: Iterable[Check], *, timeout: float, hide: Hider) -> Iterator[Entry]:
    """Make the checks, one after the other; give what each found as soon as it is known.

    :param timeout: seconds for each
    """
    for check in checks:
        started = time.monotonic()
        found = _within(check, timeout + GRACE)
        yield Entry(
            check.name,
            found.status,
            _one_line(hide(found.found)),
            _one_line(hide(found.remedy)),
            round(time.monotonic() - started, 3),
        )


def _within(check: Check, seconds: float) -> Finding:
    """Make one check in a thread of its own, which is left behind where it does not come to its end."""
    found: list[Finding] = []
    is_over = threading.Event()

    def look() -> None:
        found.append(_looked(check))
        is_over.set()

    threading.Thread(target=look, daemon=True, name=check.name).start()
    try:
        # Not join(): a thread whose join() was interrupted counts as ended.
        is_over.wait(seconds)
    finally:
        # Also where somebody has lost patience: what a check starts has a session of its own, so that a
        # terminal's interrupt does not reach it.
        if not is_over.is_set() and check.stop is not None:
            check.stop()
            is_over.wait(GRACE)
    if found:
        return found[0]
    return failed(
        f"no answer within {seconds:g} s",
        "see what is slow or blocked there (network, file system), or give more time with --timeout.",
    )


def _looked(check: Check) -> Finding:
    try:
        return check.look()
    except DeltaCdcError as error:
        return failed(f"{type(error).__name__}: {error.message}", error.remedy)
    except Exception as error:  # noqa: BLE001 - a doctor that dies of an illness helps nobody
        return failed(
            f"{type(error).__name__}: {error}", "this was not expected here: please report it with this line."
        )


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 1]}…"


def told(entries: Iterable[Entry], out: TextIO, *, as_json: bool = False) -> int:
    """Write a report, and return the exit code: 1 where a check failed, else 0.

    :param as_json: one JSON object at the end, instead of a line for each check as it is made
    """
    kept: list[Entry] = []
    for entry in entries:
        kept.append(entry)
        if not as_json:
            print(entry, file=out, flush=True)
    counts = Counter(entry.status for entry in kept)
    code = 1 if counts["failed"] else 0
    if as_json:
        status = next((one for one in ("failed", "warning") if counts[one]), "ok")
        report = {
            "format": REPORT_FORMAT,
            "version": __version__,
            "status": status,
            "counts": {one: counts[one] for one in ("ok", "warning", "failed", "skipped")},
            "checks": [asdict(entry) for entry in kept],
        }
        print(json.dumps(report, indent=2), file=out)
    else:
        print(", ".join(f"{counts[one]} {one}" for one in ("failed", "warning", "ok", "skipped")), file=out)
    return code
