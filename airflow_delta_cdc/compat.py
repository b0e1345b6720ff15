# ruff: noqa: F401
"""Replacements for what Airflow before 3.3 lacks. No other module of the provider checks Airflow's release.

Names that only moved come from Airflow's own ``airflow.providers.common.compat.sdk``. ``docs/versions.md``
lists what older releases lack.
"""

from __future__ import annotations

import asyncio
import inspect
from threading import RLock
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk.definitions.asset import AssetNameRef
from airflow.sdk.log import mask_secret

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from airflow.sdk import Asset, AssetAlias, Context
    from airflow.sdk import AssetOrTimeSchedule as AssetOrTimeSchedule
    from airflow.sdk import CronDataIntervalTimetable as CronDataIntervalTimetable
    from airflow.sdk import CronTriggerTimetable as CronTriggerTimetable
    from airflow.sdk.definitions.callback import AsyncCallback as AsyncCallback
    from airflow.sdk.exceptions import AirflowRescheduleException as AirflowRescheduleException
    from airflow.sdk.log import amask_secret as amask_secret
    from airflow.triggers.shared_stream import SharedStreamProducer as SharedStreamProducer
else:
    from airflow.sdk.definitions.deadline import AsyncCallback

    try:
        from airflow.sdk import AssetOrTimeSchedule, CronDataIntervalTimetable, CronTriggerTimetable
    except ImportError:
        from airflow.timetables.assets import AssetOrTimeSchedule
        from airflow.timetables.interval import CronDataIntervalTimetable
        from airflow.timetables.trigger import CronTriggerTimetable
    try:
        from airflow.sdk.exceptions import AirflowRescheduleException
    except ImportError:
        from airflow.exceptions import AirflowRescheduleException
    try:
        from airflow.sdk.log import amask_secret
    except ImportError:

        async def amask_secret(secret):
            """Mask a secret from within an event loop."""
            await asyncio.to_thread(mask_secret, secret)

    try:
        from airflow.triggers.shared_stream import SharedStreamProducer
    except ImportError:
        SharedStreamProducer = object

#: Whether tasks and assets have state stores. Resumable jobs and retry policies came in the same release.
HAS_STATE_STORES = SharedStreamProducer is not object


def known_arguments(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of an operator without those that this Airflow's base class does not know."""
    if HAS_STATE_STORES:
        return arguments
    return {name: value for name, value in arguments.items() if name not in ("durable", "retry_policy")}


def accepted(called: Callable[..., Any], **arguments: Any) -> dict[str, Any]:
    """Return those of some arguments that a function or class of this Airflow knows."""
    known = inspect.signature(called).parameters
    return {name: value for name, value in arguments.items() if name in known}


def has_newest_events() -> bool:
    """Return whether a task can ask for the newest events only; before 3.2, it gets all that there are."""
    from airflow.sdk.execution_time.context import InletEventsAccessor

    return hasattr(InletEventsAccessor, "limit")


#: Held while a task asks Airflow. ``dag.test()`` takes the way to Airflow out of its module while it answers
#: (``set_supervisor_comms``), so a question of another thread would fail.
one_question = RLock()


def newest_events(asset: Asset | AssetAlias, most: int) -> Sequence[Any]:
    """Return the newest events of an asset or an alias, newest first. It need not be an inlet of the task."""
    from airflow.sdk.execution_time.context import InletEventsAccessors

    return InletEventsAccessors([asset])[asset].ascending(False).limit(most)


def partition_events(context: Context, asset: Asset) -> Any:
    """Return what adds events of an asset's partitions, as ``outlet_events`` of a task has it.

    None before Airflow 3.3, and if no DAG uses the asset: Airflow would drop the events with a warning.
    """
    from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
    from airflow.sdk.execution_time.context import OutletEventAccessor

    if not hasattr(OutletEventAccessor, "add_partitions"):
        return None
    events = context["outlet_events"]
    try:
        return events[AssetNameRef(name=asset.name)]
    except AirflowRuntimeError as error:
        # Without an answer, the events are added: they must not be lost.
        return None if error.error.error == ErrorType.ASSET_NOT_FOUND else events[asset]


def asset_state_store(name: str) -> Any:
    """Return the state store of the asset with a name, in a triggerer; None without state stores."""
    if not HAS_STATE_STORES:
        return None
    from airflow.sdk.execution_time.context import AssetStateStoreAccessors

    return AssetStateStoreAccessors(inlets=[AssetNameRef(name=name)])


def await_input(
    context: Context,
    *,
    subject: str,
    body: str,
    options: list[str],
    method_name: str,
    kwargs: dict[str, Any],
    otherwise: Exception,
) -> NoReturn:
    """Park the task until a person chooses one of some options.

    :param method_name: the method that continues; it gets ``kwargs``, and the answer as ``event``
    :param otherwise: raised by an Airflow that has no such state
    """
    try:
        from airflow.sdk.exceptions import TaskAwaitingInput
        from airflow.sdk.execution_time.hitl import upsert_hitl_detail
    except ImportError:
        raise otherwise from None
    # Airflow refuses the default of params, None.
    upsert_hitl_detail(ti_id=context["ti"].id, options=options, subject=subject, body=body, params={})
    raise TaskAwaitingInput(method_name=method_name, kwargs=kwargs)
