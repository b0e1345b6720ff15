"""A retry policy that retries only after errors that may pass."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from airflow_delta_cdc.compat import HAS_STATE_STORES
from delta_cdc.core.errors import ConcurrentModification, DeltaCdcError, OutcomeUnknown, TablesFailed, named

if TYPE_CHECKING:
    from airflow.sdk import ExceptionRetryPolicy

#: Errors that are retried soon; all other retryable errors share one rule with a longer delay.
_SOON: list[type[BaseException] | str] = [ConcurrentModification, OutcomeUnknown]
_LATER: list[type[BaseException] | str] = [
    cls for cls in named() if cls.retryable and cls not in (*_SOON, TablesFailed)
]


def _policy() -> ExceptionRetryPolicy:
    from airflow.sdk import ExceptionRetryPolicy, RetryAction, RetryRule

    return ExceptionRetryPolicy(
        rules=[
            RetryRule(
                exception=_SOON,
                match_subclasses=False,
                action=RetryAction.RETRY,
                retry_delay=timedelta(seconds=15),
                reason="another writer was faster, or the outcome is not known yet",
            ),
            RetryRule(
                exception=_LATER,
                match_subclasses=False,
                action=RetryAction.RETRY,
                retry_delay=timedelta(minutes=1),
                reason="the Spark application died, or a server or the object store did not answer",
            ),
            RetryRule(
                exception=TablesFailed,
                # Of TablesRefused each table needs a person.
                match_subclasses=False,
                action=RetryAction.RETRY,
                retry_delay=timedelta(minutes=1),
                reason="some tables failed, and a retry only does what is left",
            ),
            RetryRule(
                exception=DeltaCdcError,
                action=RetryAction.FAIL,
                reason="trying again changes nothing; the error names the remedy",
            ),
        ]
    )


#: For ``retry_policy=`` of a task. After a lost race or an unknown outcome, Airflow retries soon. If an
#: application died, or a server or a store does not answer, it retries later. A named error that needs a
#: person fails the task at once. Needs ``retries`` >= 1. None before Airflow 3.3, which has no
#: retry policies: the task's own settings count for every error.
DELTA_CDC_RETRY_POLICY = _policy() if HAS_STATE_STORES else None
