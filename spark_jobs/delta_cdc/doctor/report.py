"""Run checks with a time limit, and report them without secrets: one line per check, or JSON."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Literal, TextIO

from delta_cdc._version import __version__
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.reasons import reason
from delta_cdc.core.secrets import SHORTEST, is_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator

#: Version of the JSON; a new meaning of a field needs a new version.
REPORT_FORMAT = 1

#: Seconds beyond its own limit in which a check may end its processes.
GRACE = 5.0
_HIDDEN = "***"
#: Parameters of Spark Connect and of signed addresses, and confs in command-line form.
_PARAMETER, _VALUE = re.compile(r"(?<![\w.-])([\w.-]++)="), re.compile(r"[^;&\s'\"]++")
_IN_ADDRESS = re.compile(r"(?i)(://[^/\s:@]*):[^@/\s]+@")


@dataclass(frozen=True)
class Result:
    """The result of one check.

    :param status: ``warning``: works, or is not needed yet, but needs attention; ``skipped``: not requested,
        or pointless after an earlier failure
    :param found: the result as a clause, with versions and locations
    :param remedy: one sentence; empty without a problem
    :param name: name of the check; :func:`examined` sets it
    :param seconds: duration of the check
    """

    status: Literal["ok", "warning", "failed", "skipped"]
    found: str
    remedy: str = ""
    name: str = ""
    seconds: float = 0.0

    def __str__(self) -> str:
        remedy = f" Remedy: {self.remedy}" if self.remedy else ""
        return f"{self.status:<8} {self.name:<16} {self.found}{remedy}"


def ok(found: str) -> Result:
    """Return the result of a check without problems."""
    return Result("ok", found)


def warning(found: str, remedy: str) -> Result:
    """Return the result of a check whose problem is no failure yet."""
    return Result("warning", found, remedy)


def failed(found: str, remedy: str) -> Result:
    """Return the result of a check whose problem prevents work."""
    return Result("failed", found, remedy)


def skipped(found: str) -> Result:
    """Return the result of a check that did not run."""
    return Result("skipped", found)


@dataclass(frozen=True)
class Check:
    """One check.

    :param name: short name, the same in every release
    :param look: returns the result; an exception counts as a failure
    :param stop: ends the processes of ``look`` if the time is over
    """

    name: str
    look: Callable[[], Result]
    stop: Callable[[], object] | None = None


def hidden(text: str, secrets: Iterable[str]) -> str:
    """Return a text without the given secrets, and without secrets in its parameters and addresses."""
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= SHORTEST:
            text = text.replace(secret, _HIDDEN)
    return _IN_ADDRESS.sub(rf"\1:{_HIDDEN}@", _without_secrets(text))


def has_secret(name: str, value: str) -> bool:
    """Return whether the value of a conf may be a secret, by its name or by its own parameters."""
    return is_secret(name) or hidden(value, ()) != value


def _without_secrets(text: str) -> str:
    parts, end = [], 0
    # A value that is not secret may be an address with secrets in its query string.
    for name in _PARAMETER.finditer(text):
        value = _VALUE.match(text, name.end())
        if name.start() >= end and value and is_secret(name[1]):
            parts += [text[end : name.end()], _HIDDEN]
            end = value.end()
    return "".join([*parts, text[end:]])


def examined(checks: Iterable[Check], *, timeout: float, secrets: Collection[str]) -> Iterator[Result]:
    """Run the checks in order; yield each result as soon as it is known.

    :param timeout: seconds for each check
    :param secrets: texts that no result shows; a check may add some
    """
    for check in checks:
        started = time.monotonic()
        result = _within(check, timeout + GRACE)
        yield replace(
            result,
            name=check.name,
            found=_one_line(hidden(result.found, secrets)),
            remedy=_one_line(hidden(result.remedy, secrets)),
            seconds=round(time.monotonic() - started, 3),
        )


def _within(check: Check, seconds: float) -> Result:
    """Run one check in its own thread; abandon the thread if it does not end in time."""
    results: list[Result] = []
    is_over = threading.Event()

    def look() -> None:
        results.append(_result_of(check))
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
    if results:
        return results[0]
    return failed(
        f"no answer within {seconds:g} s",
        "see what is slow or blocked there (network, file system), or give more time with --timeout.",
    )


def _result_of(check: Check) -> Result:
    try:
        return check.look()
    except DeltaCdcError as error:
        return failed(f"{type(error).__name__}: {error.message}", error.remedy)
    except BaseException as error:  # noqa: BLE001 - any failure, also a panic in Rust: it ends this thread only
        return failed(reason(error), "this was not expected here: please report it with this line.")


def _one_line(text: str) -> str:
    # A path may have bytes that are no UTF-8, which a stream refuses to print.
    return " ".join(text.split()).encode(errors="backslashreplace").decode()


def print_report(results: Iterable[Result], out: TextIO, *, as_json: bool = False) -> int:
    """Write a report, and return the exit code: 1 if a check failed, else 0.

    :param as_json: write one JSON object at the end, instead of a line after each check
    """
    printed: list[Result] = []
    for result in results:
        printed.append(result)
        if not as_json:
            print(result, file=out, flush=True)
    counts = Counter(result.status for result in printed)
    if as_json:
        report = {
            "format": REPORT_FORMAT,
            "version": __version__,
            "status": "failed" if counts["failed"] else "warning" if counts["warning"] else "ok",
            "counts": {status: counts[status] for status in ("ok", "warning", "failed", "skipped")},
            "checks": [{"name": result.name, **asdict(result)} for result in printed],
        }
        print(json.dumps(report, indent=2), file=out)
    else:
        totals = (f"{counts[status]} {status}" for status in ("failed", "warning", "ok", "skipped"))
        print(", ".join(totals), file=out)
    return 1 if counts["failed"] else 0
