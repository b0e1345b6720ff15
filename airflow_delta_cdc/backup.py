"""The copy of the newest seal, and of the watermark it proves, in Airflow's asset state store.

It is kept with the source's asset, where people and other DAGs look for it. The engine reads it only where
the sealed commit was cleaned from the target's log (:class:`delta_cdc.planning.reconcile.WatermarkBackup`).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from airflow_delta_cdc.arguments import is_literal
from airflow_delta_cdc.assets import delta_asset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

_log = logging.getLogger(__name__)


def keep(
    context: Context,
    inlets: Sequence[Any],
    source: Any,
    pipeline: str,
    published: dict[str, Any],
    backup: dict[str, Any] | None,
) -> None:
    """Copy what was published, and the whole seal with it, where the source's asset is among the inlets.

    :param inlets: of the task
    :param source: the source as the user wrote it
    :param backup: :attr:`delta_cdc.run.outcomes.ApplyResult.mirror`
    """
    inlet = _asset(inlets, source)
    if inlet is None:
        return
    if backup is None:
        # Nothing newer is known, so what is kept stays.
        backup = kept(context, inlets, source, pipeline)
    try:
        context["asset_state_store"][inlet].set(_key(pipeline), {**published, "mirror": backup})
    except Exception as error:  # noqa: BLE001
        # A copy: the target's log holds the watermark, so a task that did its work must not fail here.
        _log.warning("The watermark could not be copied to the asset state store: %s", error)


def kept(context: Context, inlets: Sequence[Any], source: Any, pipeline: str) -> Any:
    """Return the seal that was kept, as JSON; None if there is no copy, or the store does not answer."""
    inlet = _asset(inlets, source)
    if inlet is None:
        return None
    try:
        found = context["asset_state_store"][inlet].get(_key(pipeline))
    except Exception as error:  # noqa: BLE001
        # What the copy would prove stays unproved; the error that follows names that.
        _log.warning("The copy of the seal in the asset state store could not be read: %s", error)
        return None
    return found.get("mirror") if isinstance(found, dict) else None


def _key(pipeline: str) -> str:
    return f"committed:{pipeline}"


def _asset(inlets: Sequence[Any], source: Any) -> Any:
    if not is_literal(source):
        return None
    wanted = delta_asset(source)
    return next((inlet for inlet in inlets if inlet == wanted), None)
