"""Airflow's deadline alerts for pipelines with a freshness."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.definitions.deadline import DeadlineAlert, DeadlineReference

from airflow_delta_cdc.compat import AsyncCallback, accepted
from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.core.options import APPLY

if TYPE_CHECKING:
    from collections.abc import Callable

_log = logging.getLogger(__name__)


def freshness_deadline(
    freshness: float | str, callback: Callable[..., Any] | str | None = None
) -> DeadlineAlert:
    """Return a deadline for the argument ``deadline`` of a DAG: each run must end within ``freshness``.

    .. code-block:: python

        with DAG("orders", deadline=freshness_deadline("30 minutes")):
            ...

    The time starts when Airflow queues the run. If the run has not ended in time, Airflow's UI shows that it
    missed the deadline. ``delta-cdc status`` also reports late changes that no run has read.

    :param freshness: seconds, or a text like ``30 minutes``
    :param callback: an ``async`` function, or its dotted name, that the triggerer calls; None only logs the
        missed deadline
    :raises InvalidConfiguration: ``freshness`` is not a duration, or ``callback`` is not an ``async``
        function
    """
    seconds = APPLY["freshness"].read(freshness)
    if seconds is None:
        raise InvalidConfiguration(
            "The deadline has no freshness.",
            remedy="give a duration like '30 minutes'.",
            argument="freshness",
        )
    try:
        called = AsyncCallback(callback or log_missed)
    except (AttributeError, ImportError) as error:
        raise InvalidConfiguration(
            f"The callback {callback} of a deadline cannot be used: {error}",
            remedy="name an async function by its module, in a module that the triggerer can import.",
        ) from error
    interval = timedelta(seconds=seconds)
    return DeadlineAlert(
        reference=DeadlineReference.DAGRUN_QUEUED_AT,
        interval=interval,
        callback=called,
        **accepted(DeadlineAlert, name="freshness"),
    )


async def log_missed(context: dict[str, Any]) -> None:
    """Log that a run missed its deadline.

    :param context: the context, which Airflow passes
    """
    run = context.get("dag_run") or {}
    _log.error(
        "Late: the run %s of %s has not ended within the freshness of its pipelines.",
        run.get("dag_run_id"),
        run.get("dag_id"),
    )
