"""How a named error looks in a task's log: name and message, the remedy on a line of its own, no traceback.

Airflow logs whatever ends a task with ``log.exception("Task failed with exception")``, so with a traceback.
This module changes only that line: retry policy, callbacks and listeners get the exception itself.
"""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

import structlog

from delta_cdc.core.errors import DeltaCdcError, InvalidConfiguration, JobFailed, JobRefused

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_log = logging.getLogger(__name__)

#: The message with which Airflow's task runner logs the error that ended a task.
_AIRFLOWS_LINE = "Task failed with exception"


def described(error: DeltaCdcError) -> str:
    """Return an error for people: its name and message, and the remedy on a line of its own."""
    return f"{type(error).__name__}: {error.message.rstrip()}\nRemedy: {error.remedy}"


def unrendered(pipeline: str, reason: object, then: str) -> InvalidConfiguration:
    """Return the error of a pipeline whose templates cannot be rendered.

    :param reason: the error of the template, or a text about it
    :param then: the second sentence of the remedy
    """
    if isinstance(reason, Exception):
        reason = f"{type(reason).__name__}: {reason}"
    return InvalidConfiguration(
        f"Cannot render the templates of {pipeline}: {reason}.",
        remedy=f"correct the templates, or the values that they use. {then}",
    )


def log_named_errors() -> None:
    """Let this process log named errors as :func:`described` returns them."""
    processors = structlog.get_config()["processors"]
    # In place: loggers that are in use already keep a reference to this list.
    if _named not in processors:
        processors.insert(0, _named)


def show_outside_group() -> None:
    """Close the group "Pre Execute", which is folded in the UI, so that an error of a hook is visible."""
    _log.info("::endgroup::")


def _named(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace Airflow's line about a named error, and its traceback, by the error; a structlog processor."""
    if event.get("event") != _AIRFLOWS_LINE:
        return event
    error = event.get("exc_info")
    if error is True:
        error = sys.exc_info()[1]
    elif isinstance(error, tuple):
        error = error[1]
    if not isinstance(error, DeltaCdcError) or _is_unforeseen(error):
        return event
    del event["exc_info"]
    event.pop("positional_args", None)
    event["event"] = described(error)
    return event


def _is_unforeseen(error: DeltaCdcError) -> bool:
    """Return whether an unnamed error is the cause: then the log needs its traceback."""
    return isinstance(error, JobFailed | JobRefused) and error.__cause__ is not None
