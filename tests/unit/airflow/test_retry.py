"""Which errors are tried again."""

from __future__ import annotations

import pytest
from airflow.sdk import RetryAction

from airflow_delta_cdc.retry import DELTA_CDC_RETRY_POLICY
from delta_cdc.core import errors
from delta_cdc.core.errors import DeltaCdcError

NAMED = [
    cls
    for cls in vars(errors).values()
    if isinstance(cls, type) and issubclass(cls, DeltaCdcError) and cls is not DeltaCdcError
]


@pytest.mark.parametrize("cls", NAMED)
def test_the_policy_says_what_the_error_says_of_itself(cls: type[DeltaCdcError]) -> None:
    decision = DELTA_CDC_RETRY_POLICY.evaluate(cls("what happened.", remedy="do this."), 1, 3)
    assert decision.action is (RetryAction.RETRY if cls.retryable else RetryAction.FAIL)
    assert decision.reason
    assert (decision.retry_delay is not None) is cls.retryable


def test_the_policy_survives_serializing() -> None:
    assert DELTA_CDC_RETRY_POLICY.evaluate(OSError("disk"), 1, 3).action is RetryAction.DEFAULT
    copy = type(DELTA_CDC_RETRY_POLICY).deserialize(DELTA_CDC_RETRY_POLICY.serialize())
    lost = errors.ConcurrentModification("lost.", remedy="again.")
    assert copy.evaluate(lost, 1, 3) == DELTA_CDC_RETRY_POLICY.evaluate(lost, 1, 3)
