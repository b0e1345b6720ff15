"""The copy of the newest seal, with its watermark, in Airflow's asset state store.

It belongs to the source's asset, where people and other DAGs look for it. The engine reads it only if the
sealed commit is no longer in the target's log (:class:`delta_cdc.planning.reconcile.WatermarkBackup`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.arguments import is_literal
from airflow_delta_cdc.assets import delta_asset
from airflow_delta_cdc.compat import one_question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

_log = logging.getLogger(__name__)


def store_copy(
    context: Context,
    inlets: Sequence[Any],
    source: Any,
    pipeline: str,
    published: dict[str, Any],
    backup: dict[str, Any] | None,
) -> None:
    """Copy the published dict, with the whole seal, if the source's asset is an inlet.

    :param inlets: inlets of the task
    :param source: the source as the user wrote it
    :param backup: :attr:`delta_cdc.run.outcomes.Outcome.backup`
    """
    inlet = _asset(context, inlets, source)
    if inlet is None:
        return
    if backup is None:
        # This run has no newer seal, so the stored copy stays.
        backup = stored_copy(context, inlets, source, pipeline)
    try:
        with one_question:
            context["asset_state_store"][inlet].set(_key(pipeline), {**published, "backup": backup})
    except Exception as error:  # noqa: BLE001
        # The target's log holds the watermark, so the failure of its copy must not fail the task.
        _log.warning("The watermark could not be copied to the asset state store: %s", error)


def stored_copy(context: Context, inlets: Sequence[Any], source: Any, pipeline: str) -> Any:
    """Return the copy of the seal, as JSON; None if there is no copy, or the store does not answer."""
    inlet = _asset(context, inlets, source)
    if inlet is None:
        return None
    try:
        with one_question:
            entry = context["asset_state_store"][inlet].get(_key(pipeline))
    except Exception as error:  # noqa: BLE001
        # If the run needs the copy, its own error says so.
        _log.warning("The copy of the seal in the asset state store could not be read: %s", error)
        return None
    return entry.get("backup") if isinstance(entry, dict) else None


def _key(pipeline: str) -> str:
    return f"committed:{pipeline}"


def _asset(context: Context, inlets: Sequence[Any], source: Any) -> Any:
    """Return the inlet whose state store has the copy; None before Airflow 3.3, which has no such stores."""
    if not is_literal(source) or "asset_state_store" not in context:
        return None
    source_asset = delta_asset(source)
    return next((inlet for inlet in inlets if inlet == source_asset), None)
