"""A retry policy that retries only after errors that may pass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.compat import HAS_STATE_STORES
from delta_cdc.core.errors import ConcurrentModification, DeltaCdcError, OutcomeUnknown, TablesFailed, named

if TYPE_CHECKING:
    from airflow.sdk import ExceptionRetryPolicy

#: Errors that are retried soon; all other retryable errors share one rule with a longer delay.
_SOON: list[type[BaseException] | str] = [ConcurrentModification, OutcomeUnknown]
_LATER: list[type[BaseException] | str] = [
    cls for cls in named() if cls.retryable and cls not in (*_SOON, TablesFailed)
]


#: Errors, seconds until the next try, and the reason for the log.
_RETRIED: list[tuple[Any, int, str]] = [
    (_SOON, 15, "another writer was faster, or the outcome is not known yet"),
    (_LATER, 60, "the Spark application died, or a server or the object store did not answer, or refused"),
    (TablesFailed, 60, "some tables failed, and a retry only does what is left"),
]


def _policy() -> ExceptionRetryPolicy:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    retried = [
        RetryRule(
            exception=errors,
            # Of TablesRefused, a subclass of TablesFailed, each table needs a person.
            match_subclasses=False,
            action=RetryAction.RETRY,
            retry_delay=timedelta(seconds=delay),
            reason=reason,
        )
        for errors, delay, reason in _RETRIED
    ]
    last = RetryRule(
        exception=DeltaCdcError,
        action=RetryAction.FAIL,
        reason="a retry would fail in the same way; the error names the remedy",
    )
    return ExceptionRetryPolicy(rules=[*retried, last])


#: For ``retry_policy=`` of a task. After a lost race or an unknown outcome, Airflow retries soon. If an
#: application died, or a server or a store does not answer, it retries later. A named error that needs a
#: person fails the task at once. Needs ``retries`` >= 1. None before Airflow 3.3, which has no
#: retry policies: the task's own settings count for every error.
DELTA_CDC_RETRY_POLICY = _policy() if HAS_STATE_STORES else None
