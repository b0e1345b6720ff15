"""Publishes the named error of a failed task, so that the page shows it without reading a log.

A listener, because it sees every task of the package, also an error before ``execute``: a refused form, or
a connection that does not exist.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from airflow.listeners import hookimpl

from airflow_delta_cdc.masking import for_xcom

#: The key of the XCom: ``class``, ``message`` and ``remedy`` of the error. The next try deletes it.
ERROR_KEY = "delta_cdc_error"
#: The most characters of a message; the log has the whole one.
_MOST = 4000

_log = logging.getLogger(__name__)


@hookimpl
def on_task_instance_failed(task_instance: Any, error: str | BaseException | None) -> None:
    """Push the error of a task as an XCom, if it is one of this package's."""
    known = sys.modules.get("delta_cdc.core.errors")
    if known is None or not isinstance(error, known.DeltaCdcError):
        # A process that never imported the module did not raise one of its errors.
        return
    value = for_xcom(error, _MOST)
    try:
        task_instance.xcom_push(key=ERROR_KEY, value=value)
    except Exception as reason:  # noqa: BLE001 - the task has failed already, and its log has the error
        _log.warning("The error could not be published for the page Delta CDC: %s", reason)
