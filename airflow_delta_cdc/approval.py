"""Let a person approve a change that exceeds a limit, or that ``approval_for`` names: the task waits, and
Airflow lists a required action.

The answer approves exactly the change that the person saw: the task runs again with the text of the error
(:mod:`delta_cdc.core.guard`), and is stopped again if anything has changed since.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

from airflow_delta_cdc.compat import await_input
from airflow_delta_cdc.masking import masked
from delta_cdc.core.errors import LimitExceeded
from delta_cdc.core.options import APPLY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Context
    from airflow.sdk.types import Logger

APPROVE, REJECT = "Apply exactly this change", "Apply nothing"
#: The name of the method with which a task continues.
CONTINUES = "answered"


class Waits(Protocol):
    """An operator that may wait for a person.

    :param approval: the text of the change that a person has approved; None: the task has not waited
    """

    approval: str | None

    @property
    def log(self) -> Logger:
        """Return the task's log."""


@contextmanager
def asking(operator: Waits, context: Context, given: Mapping[str, Any]) -> Iterator[None]:
    """Let the task wait for a person if the ``with`` block exceeds a limit, or needs an approval, and
    ``on_limit`` is ``wait``.

    A task that continues after an answer does not ask again, because Airflow would show its first question.

    :param given: arguments of the table, as the task got them
    :raises LimitExceeded: ``on_limit`` is ``fail``; or this Airflow has no such wait; or another change was
        approved
    """
    try:
        yield
    except LimitExceeded as stopped:
        text = stopped.approval
        waits = APPLY["on_limit"].read(given.get("on_limit")) == "wait"
        if not waits or text is None or operator.approval is not None:
            raise
        operator.log.warning("%s: %s", given.get("pipeline"), stopped.message)
        operator.log.info("The task waits until a person answers under Required Actions of this run.")
        await_input(
            context,
            subject=f"{given.get('pipeline')}: apply a change that needs an approval?",
            body=masked(stopped.message),
            options=[APPROVE, REJECT],
            method_name=CONTINUES,
            kwargs={"text": text},
            otherwise=stopped,
        )


def approved(text: Any, event: Any) -> str:
    """Return the text that approves the change.

    :param text: that of the error
    :param event: Airflow's event with the answer
    :raises LimitExceeded: the person rejected the change
    """
    answer = event if isinstance(event, dict) else {}
    user = answer.get("responded_by_user")
    name = user.get("name") if isinstance(user, dict) else None
    if answer.get("chosen_options") == [APPROVE] and isinstance(text, str):
        return text
    raise LimitExceeded(
        f"{name or 'A person'} did not approve the change, so it was not written.",
        remedy="correct the source, then clear the task: it plans again.",
        argument="limits",
    )
