"""Read errors of Spark, Delta, Java, a store or Python: the full reason, and whether a retry can help.

This works on the text, because Classic and Connect share nothing else: an error of Py4J carries Java's stack
trace with all causes, one of Connect the server's, and neither has a Python class for Delta's exceptions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from string import whitespace
from typing import TYPE_CHECKING, Any

from delta_cdc.core.errors import DeltaCdcError, JobFailed, JobRefused

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALL = re.compile(r"\AAn error occurred while calling [^\n]*\n:\s*")
_CLASS_IN_PARENTHESES = re.compile(r"\A\(((?:[\w$]+\.)+[\w$]+)\)\s*")
_CLASS = re.compile(r"\A((?:[\w$]+\.)+[\w$]+)(?::\s*|\s*\Z)")
_TRACE = "JVM stacktrace:"
_CAUSED = "Caused by: "
#: Lines of a stack trace that are not part of a message.
_FRAME = re.compile(r"\s+at [^(]+\(.*\)\s*|\s*\.\.\. \d+ (more|common frames).*|\s*Driver stacktrace:\s*")
#: After the message, Spark prints the plan that it analyzed.
_PLAN = re.compile(r"(SQLSTATE: \w{5}(?:; line \d+ pos \d+)?);\n.*", re.DOTALL)
#: Spark also prints the statement, with carets below each line; a MERGE is always our own statement.
_OUR_STATEMENT = re.compile(r"== SQL \(line \d+, position \d+\) ==\nMERGE .*?(\n\n|\Z)", re.DOTALL)
_CARETS = re.compile(r"^[ \t]*+-*+\^++[ \t]*+$", re.MULTILINE)
#: The frames of Python, before its message.
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\s*\n(?:[ \t][^\n]*\n)+")
#: gRPC prints the server's message among addresses and times.
_RPC = re.compile(r"<[^\s<]++ of RPC that terminated with:\s+status = StatusCode\.(\w+)\s+details = (?=\")")
#: After its message, obstore prints the same error in Rust's debug form, in which only the network's message
#: is new.
_DUMP = "\n\nDebug source:\n"
_NETWORK = re.compile(r"\bsource: ")
#: A store's answer. It repeats the request, which may contain a session token.
_ANSWER, _ANSWERED = re.compile(r"(?:<\?xml[^<>]*+>\s*+)?<Error\b"), "</Error>"
_ELEMENTS = re.compile(r"<(Code|Message|Details|Endpoint)>([^<]+)</\1>")

_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_STATE = re.compile(r"SQLSTATE: (\w{2})\w{3}")
#: Classes of SQLSTATE about data, SQL and tables: not supported, cardinality, data, integrity, syntax and
#: names, check option, limits, raised by the statement itself.
_LASTING_STATES = frozenset({"0A", "21", "22", "23", "42", "44", "54", "P0"})
#: Delta's messages contain no SQLSTATE. Delta's refusals are permanent, except these: another writer was
#: faster, or something could not be read or done at that moment.
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
#: Exceptions of Java, without a Spark error condition, that the rows themselves cause.
_LASTING_CLASSES = frozenset({"ArithmeticException", "ClassCastException", "NumberFormatException"})
#: Errors of Linux, HDFS and S3 for a name that is too long.
_TOO_LONG = re.compile(r"File name too long|PathComponentTooLongException|KeyTooLong")
#: Hadoop does not explain why it cannot create a local folder; file systems limit the bytes of a name.
_NO_FOLDER = re.compile(r"Mkdirs failed to create ([^\n]*?)(?: \(exists=|$)", re.MULTILINE)
_MOST_OF_A_NAME = 255


@dataclass(frozen=True)
class Cause:
    """One exception of a chain.

    :param kind: its class, without package; "" if unknown
    :param text: its unchanged message, possibly of several lines
    """

    kind: str
    text: str

    @property
    def line(self) -> str:
        """Return the message on one line; with the class if there is no Spark error condition."""
        text = _PLAN.sub(r"\1", self.text)
        text = _CARETS.sub("", _OUR_STATEMENT.sub("", _TRACEBACK.sub("", text)))
        text = " ".join(text.split())
        if not self.kind or _CONDITION.match(text):
            return text
        return f"{self.kind}: {text}" if text else self.kind


def causes(error: BaseException) -> tuple[Cause, ...]:
    """Return an error and its causes, the last raised first; there is always at least one."""
    error = _original(error)
    first, *others = _read(_text_of(error))
    if not first.kind and not _CONDITION.match(first.text):
        first = Cause(type(error).__name__, first.text)
    inner = getattr(error, "_cause", None)
    return (first, *others, *(causes(inner) if isinstance(inner, BaseException) else ()))


def reason(error: BaseException) -> str:
    """Return an error's full message on one line: all causes, no stack trace, no Py4J call."""
    if isinstance(error, DeltaCdcError):
        return " ".join(str(error).split())
    lines: list[str] = []
    for cause in causes(error):
        # The message of an aborted stage repeats its task's message.
        if not any(
            cause.line in line or cause.line.removeprefix(f"{cause.kind}: ") in line for line in lines
        ):
            lines.append(cause.line)
    return f" {_CAUSED}".join(lines)


def is_lasting(error: BaseException) -> bool:
    """Return whether retries raise the same error until data, SQL or a table changes."""
    if isinstance(error, DeltaCdcError):
        return not error.retryable
    return (
        isinstance(error, ValueError) or any(map(_lasts, causes(error))) or too_long_a_name(error) is not None
    )


def too_long_a_name(error: BaseException) -> str | None:
    """Return the name of a folder or file that is longer than the storage takes; None for other errors.

    The name of a partition's folder is ``column=value``.
    """
    for cause in causes(error):
        text = f"{cause.kind}: {cause.text}"
        folder = _NO_FOLDER.search(text)
        name = max(re.split(r"[/\n]", folder[1] if folder else text), key=_bytes)
        if _TOO_LONG.search(text) or (folder and _bytes(name) > _MOST_OF_A_NAME):
            return name
    return None


def unnamed(error: Exception, where: str, *, remedy: str) -> DeltaCdcError:
    """Return the named error for an exception that has no class here: a retryable or a permanent one.

    :param where: the text before the reason
    :param remedy: what to do if a retry may help
    """
    if is_lasting(error):
        return JobRefused(
            f"{where} {reason(error)}",
            remedy="correct what the message names, the rows, the SQL or the table: a retry would fail "
            "in the same way.",
        )
    return JobFailed(f"{where} {reason(error)}", remedy=remedy)


def _lasts(cause: Cause) -> bool:
    names = _CONDITION.findall(cause.text)
    refused = [name for name in names if name.startswith("DELTA_") and not name.startswith(_PASSING_OF_DELTA)]
    states = set(_STATE.findall(cause.text))
    return bool(refused) or bool(states & _LASTING_STATES) or cause.kind in _LASTING_CLASSES


def _bytes(text: str) -> int:
    return len(text.encode())


def _original(error: BaseException) -> BaseException:
    """Return Spark's original error if PySpark failed on its condition, because it knows only Spark's own."""
    original = error.__context__
    return original if original is not None and "Cannot find main error class" in _text_of(error) else error


def _text_of(error: Any) -> str:
    try:
        text = str(error)
        trace = error.getStackTrace() if hasattr(error, "getStackTrace") and _TRACE not in text else None
    except Exception as failed:  # noqa: BLE001 - Py4J calls the JVM, which may have died
        return f"{type(error).__name__}, whose message cannot be read: {type(failed).__name__}"
    return f"{text}\n{_TRACE}\n{trace}" if trace else text


def _read(text: str) -> Iterator[Cause]:
    head, _, trace = text.partition(f"\n{_TRACE}")
    head, _, dump = head.partition(_DUMP)
    head = _without_answer(_without_rpc(head.strip()))
    of_java = _CALL.match(head) is not None
    pieces = re.split(rf"^{_CAUSED}", _CALL.sub("", head) + "\n", flags=re.MULTILINE)
    # The head already contains the first cause of a trace.
    pieces += re.split(rf"^{_CAUSED}", trace, flags=re.MULTILINE)[1:]
    for number, piece in enumerate(pieces):
        yield _cause(piece, of_java=of_java or number > 0)
    if "reqwest::Error" in dump and len(sources := _NETWORK.split(dump)) > 1:
        yield Cause("", sources[-1].rstrip(f"{whitespace},(){{}}"))


def _without_rpc(text: str) -> str:
    """Return a text with the server's message instead of gRPC's report."""
    start = _RPC.search(text)
    details = text[start.end() :].rpartition("debug_error_")[0].rstrip() if start is not None else ""
    if start is None or len(details) < 2 or not details.endswith('"'):
        return text
    return f"{text[: start.start()]}{start[1]}: {details[1:-1]}"


def _without_answer(text: str) -> str:
    """Return a text with the message of a store instead of the store's XML."""
    start, end = _ANSWER.search(text), text.rfind(_ANSWERED) + len(_ANSWERED)
    if start is None or end <= start.end():
        return text
    answer = text[start.start() : end]
    texts = [" ".join(text.split()) for _, text in _ELEMENTS.findall(answer)]
    return f"{text[: start.start()]}{': '.join(texts) or answer}{text[end:]}"


def _cause(piece: str, *, of_java: bool) -> Cause:
    text = "\n".join(line for line in piece.splitlines() if not _FRAME.fullmatch(line)).strip()
    name = (_CLASS if of_java else _CLASS_IN_PARENTHESES).match(text)
    if name is None:
        return Cause("", text)
    return Cause(re.split(r"[.$]", name[1])[-1], text[name.end() :].strip())
