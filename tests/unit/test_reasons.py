"""What an error says, from the text that Spark gives it, and whether a retry would meet it again."""

from __future__ import annotations

import json

import pytest

from delta_cdc.core.errors import DeltaCdcError, JobFailed, JobRefused, KeyNotUnique, TablesRefused
from delta_cdc.core.reasons import causes, is_lasting, reason, unnamed
from delta_cdc.core.spec import JobResult

_AT = "\tat org.apache.Some$.$anonfun$run$1(Some.scala:53)\n\tat java.base/java.lang.Thread.run(T.java:8)\n"
_SPARK = "org.apache.spark.SparkException"
_SAVE = "An error occurred while calling o603.sql.\n: "
_INVARIANT = "org.apache.spark.sql.delta.schema.DeltaInvariantViolationException"
_NULL = "[DELTA_NOT_NULL_CONSTRAINT_VIOLATED] NOT NULL constraint violated for column: v."
_WROTE = "[TASK_WRITE_FAILED] Task failed while writing rows to file:/t. SQLSTATE: 58030"
_CAST = "[CAST_INVALID_INPUT] The value 'abc' cannot be cast. SQLSTATE: 22018"
_ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 1.0 failed 1 times, most recent failure: "
    "Lost task 0.0 in stage 1.0 (TID 1) (host executor driver): "
)


_IN_PYTHON = (
    f"SparkException: {_ABORTED.strip()} Caused by: [PYTHON_EXCEPTION] An exception was thrown from the "
    "Python worker: a.Odd: this is odd SQLSTATE: 38000"
)


class Raised(Exception):
    """An error with a text, as Py4J and Connect raise it."""


class Captured(Exception):
    """One of PySpark's own, which keeps Java's cause beside its text."""

    def __init__(self, text: str, cause: Exception | None = None) -> None:
        super().__init__(text)
        self._cause = cause


class Served(Exception):
    """One of Spark Connect, with the server's stack trace beside its text."""

    def getStackTrace(self) -> str:  # noqa: N802 - PySpark's name
        return f"{_SPARK}\n{_AT}Caused by: java.lang.X: {_CAST}\n{_AT}"


def raised(text: str, cause: str = "") -> Raised:
    """Return an error of Java, as Py4J raises it."""
    return Raised(f"{_SAVE}{text}\n{_AT}{f'Caused by: {cause}' if cause else ''}\n{_AT}")


def displaced() -> Exception:
    """Return what PySpark raises where it fails to look up one of Delta's conditions."""
    try:
        try:
            raise raised("org.apache.spark.sql.delta.DeltaAnalysisException: [DELTA_X] no v")
        except Raised:
            raise Raised(  # noqa: B904 - as PySpark does
                "An error occurred while calling z:getMessage.\n: x.Y: Cannot find main error class 'D'"
            )
    except Raised as error:
        return error


def mkdirs(length: int) -> str:
    """Return the error of a folder whose name has some letters of two bytes."""
    return f"IOException: Mkdirs failed to create file:/t/v={'ä' * length} (exists=false)"


#: error -> its reason, and whether it lasts
CASES: dict[str, tuple[Exception, str, bool]] = {
    "of a Python worker": (
        raised(
            f"{_SPARK}: {_ABORTED}",
            "org.apache.spark.api.PythonException: [PYTHON_EXCEPTION] An exception was thrown from the "
            'Python worker: Traceback (most recent call last):\n  File "/a.py", line 3, in f\n    raise\n'
            "a.Odd: this is odd\n SQLSTATE: 38000",
        ),
        _IN_PYTHON,
        False,
    ),
    "of Py4J": (raised(f"{_INVARIANT}: {_NULL}\n"), _NULL, True),
    "several lines": (
        raised(f"{_INVARIANT}: [DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK c (n < 1):\n - n : 9"),
        "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK c (n < 1): - n : 9",
        True,
    ),
    "its cause": (raised(f"{_SPARK}: {_WROTE}", f"a.B: {_CAST}"), f"{_WROTE} Caused by: {_CAST}", True),
    "once": (
        Raised(
            f"{_SAVE}{_SPARK}: {_ABORTED}a.B: {_CAST}\n{_AT}\n"
            f"Driver stacktrace:\n{_AT}Caused by: a.B: {_CAST}\n"
        ),
        f"SparkException: {_ABORTED}a.B: {_CAST}",
        True,
    ),
    "of Connect": (Raised(f"({_INVARIANT}) {_NULL}\n\n\nJVM stacktrace:\n{_INVARIANT}\n{_AT}"), _NULL, True),
    "of Connect, trace aside": (Served(_WROTE), f"{_WROTE} Caused by: {_CAST}", True),
    "of PySpark": (
        Captured(
            "[DELTA_FAILED_TO_MERGE_FIELDS] 'n' and 'n'", Captured("[DELTA_MERGE_INCOMPATIBLE] int and long")
        ),
        "[DELTA_FAILED_TO_MERGE_FIELDS] 'n' and 'n' Caused by: [DELTA_MERGE_INCOMPATIBLE] int and long",
        True,
    ),
    "without its plan": (
        Captured(
            "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 13;\n'Project ['x]\n+- OneRowRelation\n"
        ),
        "[UNRESOLVED_COLUMN] no `x`. SQLSTATE: 42703; line 1 pos 13",
        True,
    ),
    "with the user's SQL": (
        Captured(
            "[DIVIDE_BY_ZERO] by zero. SQLSTATE: 22012\n== SQL (line 1, position 1) ==\n100 / n\n^^^^^^^\n"
        ),
        "[DIVIDE_BY_ZERO] by zero. SQLSTATE: 22012 == SQL (line 1, position 1) == 100 / n",
        True,
    ),
    "without ours": (
        Captured(
            "[DIVIDE_BY_ZERO] by zero. SQLSTATE: 22012\n"
            "== SQL (line 1, position 1) ==\nMERGE INTO t\n^^^\nWHEN\n^^\n"
        ),
        "[DIVIDE_BY_ZERO] by zero. SQLSTATE: 22012",
        True,
    ),
    "with its place in the user's SQL": (
        Captured(
            "\n[PARSE_SYNTAX_ERROR] at ')'. SQLSTATE: 42601 (line 2, pos 2)\n\n== SQL ==\nid =\n  )\n--^^^\n"
        ),
        "[PARSE_SYNTAX_ERROR] at ')'. SQLSTATE: 42601 (line 2, pos 2) == SQL == id = )",
        True,
    ),
    "displaced by PySpark": (displaced(), "[DELTA_X] no v", True),
    "overflow of Java": (
        raised("java.lang.ArithmeticException: long overflow"),
        "ArithmeticException: long overflow",
        True,
    ),
    "our own": (KeyNotUnique("two rows.", remedy="none."), "two rows. Remedy: none.", True),
    "a value": (ValueError("no number"), "ValueError: no number", True),
    "a folder that nobody can make": (raised(f"java.io.{mkdirs(127)}"), mkdirs(127), True),
    "a name that is too long": (
        raised("java.io.FileNotFoundException: /t/v=a/part-0 (File name too long)"),
        "FileNotFoundException: /t/v=a/part-0 (File name too long)",
        True,
    ),
    # What a retry may not meet again:
    "a folder that could not be made": (raised(f"java.io.{mkdirs(126)}"), mkdirs(126), False),
    "an executor": (
        raised(f"{_SPARK}: {_ABORTED}ExecutorLostFailure (executor 1 exited)\n\nDriver stacktrace:"),
        f"SparkException: {_ABORTED}ExecutorLostFailure (executor 1 exited)",
        False,
    ),
    "a disk": (
        raised(f"{_SPARK}: {_WROTE}", "java.io.IOException: No space left"),
        f"{_WROTE} Caused by: IOException: No space left",
        False,
    ),
    "memory": (
        raised("java.lang.OutOfMemoryError: Java heap space"),
        "OutOfMemoryError: Java heap space",
        False,
    ),
    "a race": (
        raised("io.delta.X: [DELTA_CONCURRENT_WRITE] others"),
        "[DELTA_CONCURRENT_WRITE] others",
        False,
    ),
    "of gRPC": (
        Raised(
            "<_MultiThreadedRendezvous of RPC that terminated with:\n\tstatus = StatusCode.UNAVAILABLE\n"
            '\tdetails = "no connection;\nlast error: refused"\n\tdebug_error_string = "UNAVAILABLE:{x}"\n>'
        ),
        "Raised: UNAVAILABLE: no connection; last error: refused",
        False,
    ),
    "a store's answer": (
        Raised(
            "Generic S3 error: status code: 403 Forbidden: <?xml version='1.0'?>\n<Error>\n"
            "<Code>SignatureDoesNotMatch</Code>\n<Message>Check\nyour key</Message>"
            "<CanonicalRequest>x-amz-security-token:secret</CanonicalRequest></Error>\n\n"
            "Debug source:\nGeneric {\n    source: RetryError(\n        status: 403,\n    ),\n}"
        ),
        "Raised: Generic S3 error: status code: 403 Forbidden: SignatureDoesNotMatch: Check your key",
        False,
    ),
    "another answer of a store": (
        Raised("status code: 500: <Error>\n<Why>none</Why></Error>\nof a proxy"),
        "Raised: status code: 500: <Error> <Why>none</Why></Error> of a proxy",
        False,
    ),
    "what the network said": (
        Raised(
            "Generic S3 error: error sending request\n\nDebug source:\nGeneric {\n    source: RetryError(\n"
            "        source: reqwest::Error {\n            source: ConnectError(\n"
            '                "dns error",\n                "Not known",\n            ),\n        }\n    )\n}'
        ),
        'Raised: Generic S3 error: error sending request Caused by: ConnectError( "dns error", "Not known"',
        False,
    ),
    "a time-out": (TimeoutError("30 s"), "TimeoutError: 30 s", False),
    "no words": (OSError(), "OSError", False),
}


@pytest.mark.parametrize("case", CASES)
def test_the_reason_is_whole_and_nothing_else(case: str) -> None:
    error, said, lasting = CASES[case]
    assert reason(error) == said
    assert is_lasting(error) is lasting
    assert causes(error)


@pytest.mark.parametrize("case", [name for name, (error, *_) in CASES.items() if name != "our own"])
def test_only_what_may_pass_is_called_retryable_also_behind_a_result(case: str) -> None:
    error, said, lasting = CASES[case]
    named = unnamed(error, "a into b:", remedy="retry.")
    result = JobResult("failed", error=named.to_dict(), message=str(named))
    back = JobResult.from_json(json.dumps(json.loads(result.to_json()))).error
    assert back is not None
    for one in (named, DeltaCdcError.from_dict(back)):
        assert type(one) is (JobRefused if lasting else JobFailed)
        assert one.retryable is not lasting
        assert one.message == f"a into b: {said}"
        assert ("a retry would fail in the same way" in one.remedy) is lasting


def test_a_text_that_cannot_be_asked_for_is_no_second_failure() -> None:
    class Dead(Exception):
        def __str__(self) -> str:
            raise ConnectionRefusedError("no gateway")

    assert reason(Dead()) == "Dead: Dead, whose message cannot be read: ConnectionRefusedError"
    assert not is_lasting(Dead())
    tables = TablesRefused("tables that all need a hand.", remedy="see.")
    assert not DeltaCdcError.from_dict(tables.to_dict()).retryable
