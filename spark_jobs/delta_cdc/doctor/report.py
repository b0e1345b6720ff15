"""Run checks with a time limit, and report them: a line each, or JSON. Never a secret."""

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
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reasons import reason
from delta_cdc.core.secrets import SHORTEST, is_secret, secrets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

Status = Literal["ok", "warning", "failed", "skipped"]

#: Version of the JSON; raised when a field changes its meaning.
REPORT_FORMAT = 1

#: Seconds beyond its own limit in which a check may end what it started.
GRACE = 5.0
_HIDDEN = "***"
#: Parameters of Spark Connect and of signed addresses, and confs in command-line form.
_TOLD = re.compile(r"([\w.-]+)=([^;&\s'\"]+)")
_IN_ADDRESS = re.compile(r"(?i)(://[^/\s:@]*):[^@/\s]+@")


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    :param status: ``warning``: works, or is not needed yet, but needs attention; ``skipped``: not requested,
        or pointless after an earlier failure
    :param found: a clause: what was found, with versions and places
    :param remedy: one sentence; empty if nothing is wrong
    """

    status: Status
    found: str
    remedy: str = ""


def ok(found: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding("ok", found)


def warning(found: str, remedy: str) -> Finding:
    """Return a finding that is not a failure yet."""
    return Finding("warning", found, remedy)


def failed(found: str, remedy: str) -> Finding:
    """Return a finding that prevents work."""
    return Finding("failed", found, remedy)


def skipped(found: str) -> Finding:
    """Return the finding of a check that did not run."""
    return Finding("skipped", found)


@dataclass(frozen=True)
class Check:
    """A check of one thing.

    :param name: short, the same in every release
    :param look: returns the finding; an exception counts as a failure
    :param stop: ends what ``look`` started, when its result is no longer awaited
    """

    name: str
    look: Callable[[], Finding]
    stop: Callable[[], object] | None = None


@dataclass(frozen=True)
class Entry:
    """A finding with the name of its check and the seconds that it took."""

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
    """Removes secrets from texts.

    :param secrets: values to hide everywhere
    """

    secrets: set[str] = field(default_factory=set)

    @classmethod
    def of(cls, *named: Mapping[str, str] | None) -> Hider:
        """Hide the secrets in some options, and those of the environment."""
        return cls({value for options in (os.environ, *named) for value in secrets(options)})

    def __call__(self, text: str) -> str:
        for secret in sorted(self.secrets, key=len, reverse=True):
            if len(secret) >= SHORTEST:
                text = text.replace(secret, _HIDDEN)
        return _IN_ADDRESS.sub(rf"\1:{_HIDDEN}@", _TOLD.sub(_hidden, text))


def _hidden(told: re.Match[str]) -> str:
    # A value that is not secret may be an address with secrets in its query string.
    return f"{told[1]}={_HIDDEN if is_secret(told[1]) else _TOLD.sub(_hidden, told[2])}"


def examined(checks: Iterable[Check], *, timeout: float, hide: Hider) -> Iterator[Entry]:
    """Run the checks in order; yield each result as soon as it is known.

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
    """Run one check in its own thread, which is abandoned if it does not end in time."""
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
        # Also after a keyboard interrupt: a check's process has its own session, so a terminal's interrupt
        # does not reach it.
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
    except Exception as error:  # noqa: BLE001 - report any failure, never crash
        return failed(reason(error), "this was not expected here: please report it with this line.")


def _one_line(text: str) -> str:
    return " ".join(text.split())


def told(entries: Iterable[Entry], out: TextIO, *, as_json: bool = False) -> int:
    """Write a report, and return the exit code: 1 where a check failed, else 0.

    :param as_json: write one JSON object at the end, instead of a line after each check
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
