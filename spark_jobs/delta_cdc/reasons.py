"""What an error of Spark, Delta, Java or Python says: its reason in full, and whether a retry meets it again.

By text, because that is what Classic and Connect have in common: an error of Py4J carries Java's stack trace
with all causes in it, one of Connect the server's, and neither has a class in Python for what Delta raises.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from delta_cdc.errors import DeltaCdcError, JobFailed, JobRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALL = re.compile(r"\AAn error occurred while calling [^\n]*\n:\s*")
_CLASS_IN_PARENTHESES = re.compile(r"\A\(((?:[\w$]+\.)+[\w$]+)\)\s*")
_CLASS = re.compile(r"\A((?:[\w$]+\.)+[\w$]+)(?::\s*|\s*\Z)")
_TRACE = "JVM stacktrace:"
_CAUSED = "Caused by: "
#: Lines of a stack trace that are no message.
_FRAME = re.compile(r"\s+at [^(]+\(.*\)\s*|\s*\.\.\. \d+ (more|common frames).*|\s*Driver stacktrace:\s*")
#: Behind the message Spark prints the plan that it looked at.
_PLAN = re.compile(r"(SQLSTATE: \w{5}(?:; line \d+ pos \d+)?);\n.*", re.DOTALL)
#: And the statement, with carets below each line; a MERGE is one that we wrote.
_OUR_STATEMENT = re.compile(r"== SQL \(line \d+, position \d+\) ==\nMERGE .*?(\n\n|\Z)", re.DOTALL)
_CARETS = re.compile(r"^\s*\^+\s*$", re.MULTILINE)

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_STATE = re.compile(r"SQLSTATE: (\w{2})\w{3}")
#: Classes of SQLSTATE that speak of data, SQL and tables: not supported, cardinality, data, integrity, syntax
#: and names, check option, limits, raised by the statement itself.
_LASTING_STATES = frozenset({"0A", "21", "22", "23", "42", "44", "54", "P0"})
#: Delta's messages name no SQLSTATE. What it refuses stays refused, but for these: others were faster, or
#: something could not be read or done just now.
_PASSING_OF_DELTA = (
    "DELTA_ACTIVE_",
    "DELTA_CHANGELOG_READ_FAILED",
    "DELTA_CONCURRENT_",
    "DELTA_FAILED_READ_FILE_FOOTER",
    "DELTA_ITERATOR_ALREADY_CLOSED",
    "DELTA_MAX_COMMIT_RETRIES_EXCEEDED",
    "DELTA_MERGE_MATERIALIZE_SOURCE_FAILED_REPEATEDLY",
    "DELTA_METADATA_CHANGED",
    "DELTA_POST_COMMIT_HOOK_FAILED",
    "DELTA_PROTOCOL_CHANGED",
    "DELTA_SCHEMA_CHANGE_SINCE_ANALYSIS",
    "DELTA_SPARK_",
    "DELTA_STATE_RECOVER_ERROR",
    "DELTA_UNIVERSAL_FORMAT_CONVERSION_FAILED",
)
#: Exceptions of Java, without a condition of Spark's, that the rows themselves raise.
_LASTING_CLASSES = frozenset({"ArithmeticException", "ClassCastException", "NumberFormatException"})


@dataclass(frozen=True)
class Cause:
    """One exception of a chain.

    :param kind: its class, without package; "" where that is not told
    :param text: its message as it is, of several lines where it has several
    """

    kind: str
    text: str

    @property
    def line(self) -> str:
        """Return the message on one line; with the class where there is no condition of Spark's."""
        text = _PLAN.sub(r"\1", self.text)
        text = _CARETS.sub("", _OUR_STATEMENT.sub("", text))
        text = " ".join(text.split())
        if not self.kind or _CONDITION.match(text):
            return text
        return f"{self.kind}: {text}" if text else self.kind


def causes(error: BaseException) -> tuple[Cause, ...]:
    """Return an error and what caused it, that first which was raised last; never empty."""
    error = _meant(error)
    found = list(_read(_text_of(error)))
    if found and not found[0].kind and not _CONDITION.match(found[0].text):
        found[0] = Cause(type(error).__name__, found[0].text)
    inner = getattr(error, "_cause", None)
    if isinstance(inner, BaseException):
        found += causes(inner)
    return tuple(found) or (Cause(type(error).__name__, ""),)


def reason(error: BaseException) -> str:
    """Return what an error says, in full and on one line: all causes, no stack trace, no call of Py4J."""
    if isinstance(error, DeltaCdcError):
        return " ".join(str(error).split())
    said: list[str] = []
    for cause in causes(error):
        # A stage that was aborted says itself what its task said.
        if not any(cause.line in one or _bare(cause) in one for one in said):
            said.append(cause.line)
    return f" {_CAUSED}".join(said)


def is_lasting(error: BaseException) -> bool:
    """Tell whether the same work would meet the same error: data, SQL or a table has to change first."""
    if isinstance(error, DeltaCdcError):
        return not error.retryable
    return isinstance(error, ValueError) or any(map(_lasts, causes(error)))


def unnamed(error: Exception, said: str, *, remedy: str) -> DeltaCdcError:
    """Return the error for what has no name of its own: one that a retry may mend, or one that it cannot.

    :param said: what comes before the reason: where it was
    :param remedy: what to do where a retry may mend it
    """
    if is_lasting(error):
        return JobRefused(
            f"{said} {reason(error)}",
            remedy="correct what the message names, the rows, the SQL or the table: a retry would meet the "
            "same.",
        )
    return JobFailed(f"{said} {reason(error)}", remedy=remedy)


def _lasts(cause: Cause) -> bool:
    names = _CONDITION.findall(cause.text)
    refused = [name for name in names if name.startswith("DELTA_") and not name.startswith(_PASSING_OF_DELTA)]
    states = set(_STATE.findall(cause.text))
    return bool(refused) or bool(states & _LASTING_STATES) or cause.kind in _LASTING_CLASSES


def _bare(cause: Cause) -> str:
    return cause.line.removeprefix(f"{cause.kind}: ")


def _meant(error: BaseException) -> BaseException:
    """Return what Spark raised, where PySpark fails to look its condition up: it only knows Spark's own."""
    behind = error.__context__
    return behind if behind is not None and "Cannot find main error class" in _text_of(error) else error


def _text_of(error: Any) -> str:
    try:
        text = str(error)
        trace = error.getStackTrace() if hasattr(error, "getStackTrace") and _TRACE not in text else None
    except Exception as failed:  # noqa: BLE001 - Py4J asks the JVM, which may be what has died
        return f"{type(error).__name__}, of which nothing more can be told: {type(failed).__name__}"
    return f"{text}\n{_TRACE}\n{trace}" if trace else text


def _read(text: str) -> Iterator[Cause]:
    head, _, trace = text.partition(f"\n{_TRACE}")
    of_java = _CALL.match(head) is not None
    pieces = re.split(rf"^{_CAUSED}", _CALL.sub("", head) + "\n", flags=re.MULTILINE)
    # The first of a trace is what the head has said.
    pieces += re.split(rf"^{_CAUSED}", trace, flags=re.MULTILINE)[1:]
    for number, piece in enumerate(pieces):
        yield _cause(piece, of_java=of_java or number > 0)


def _cause(piece: str, *, of_java: bool) -> Cause:
    told = "\n".join(line for line in piece.splitlines() if not _FRAME.fullmatch(line)).strip()
    name = (_CLASS if of_java else _CLASS_IN_PARENTHESES).match(told)
    if name is None:
        return Cause("", told)
    return Cause(re.split(r"[.$]", name[1])[-1], told[name.end() :].strip())
