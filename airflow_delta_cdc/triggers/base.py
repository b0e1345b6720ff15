"""Shared by the triggers: their arguments, and the watch of a table."""

from __future__ import annotations

import asyncio
import math
from datetime import timedelta
from importlib import import_module
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import conf
from airflow.triggers.base import BaseTrigger

from airflow_delta_cdc import engine
from airflow_delta_cdc.arguments import expand
from airflow_delta_cdc.hooks.table import astorage_options
from delta_cdc.core import arguments
from delta_cdc.core.errors import InvalidConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from delta_cdc.planning.waiting import Position, Watch

#: Default seconds between two looks, if neither the argument nor ``[delta_cdc] poll_interval`` is set.
POLL_INTERVAL = 30.0


def configured_interval() -> float:
    """Return ``[delta_cdc] poll_interval``, in seconds.

    :raises InvalidConfiguration: it is not greater than 0, or no finite number
    """
    seconds = float(conf.getfloat("delta_cdc", "poll_interval", fallback=POLL_INTERVAL))
    if not 0 < seconds < math.inf:
        raise InvalidConfiguration(
            f"[delta_cdc] poll_interval is {seconds:g}.",
            remedy="set it to a number of seconds greater than 0.",
        )
    return seconds


def interval_of(given: Any) -> float:
    """Return the seconds between two looks.

    :param given: a timedelta, or as :func:`delta_cdc.core.arguments.span`; None takes the configured interval
    :raises InvalidConfiguration: for anything else, or if it is not greater than 0
    """
    value = given.total_seconds() if isinstance(given, timedelta) else given
    interval = configured_interval() if value is None else arguments.span("poll_interval", value)
    if not interval:
        raise arguments.refused(
            "poll_interval",
            given,
            "give seconds greater than 0, or a timedelta (for a sensor, as poke_interval).",
        )
    return float(interval)


class WatchingTrigger(BaseTrigger):
    """A trigger that looks at one table. Both triggers document its arguments."""

    def __init__(
        self,
        *,
        table: str,
        min_versions: int,
        operations: Sequence[str] | str | None,
        partitions: Mapping[str, Any] | None,
        allow_recreation: bool,
        poll_interval: timedelta | float | None,
        delta_conn_id: str | None,
        storage_options: Mapping[str, str] | None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Invalid arguments raise here, when the DAG file is parsed. The stored values are valid, so the
        # constructor raises nothing in the triggerer, where an error would end all triggers.
        condition = engine.Condition.of(
            min_versions=min_versions, operations=operations, partitions=partitions
        )
        self.table = table
        self.min_versions = condition.min_versions
        self.operations = sorted(condition.operations) or None
        self.partitions = condition.partitions_as_lists() or None
        self.allow_recreation = allow_recreation
        self.poll_interval = interval_of(poll_interval)
        self.delta_conn_id = arguments.text("delta_conn_id", delta_conn_id)
        self.storage_options = arguments.settings("storage_options", storage_options) or None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments of its constructor."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table": self.table,
                "min_versions": self.min_versions,
                "operations": self.operations,
                "partitions": self.partitions,
                "allow_recreation": self.allow_recreation,
                "poll_interval": self.poll_interval,
                "delta_conn_id": self.delta_conn_id,
                "storage_options": self.storage_options,
            },
        )

    async def watch(
        self, position: Position, *, seal_due_at: int | None = None, lists_partitions: bool = False
    ) -> Watch:
        """Return the watch that goes on after a position.

        :param seal_due_at: see :class:`delta_cdc.planning.waiting.Watch`
        :param lists_partitions: see there
        :raises DeltaCdcError: a location, a condition or a connection can't be used
        """
        # In a thread: the first import of the libraries would block the event loop for too long.
        await asyncio.to_thread(lambda: (engine.Watch, import_module("obstore.store")))

        return engine.Watch(
            expand(self.table),
            position=position,
            condition=engine.Condition.of(
                min_versions=self.min_versions, operations=self.operations, partitions=self.partitions
            ),
            allow_recreation=self.allow_recreation,
            seal_due_at=seal_due_at,
            lists_partitions=lists_partitions,
            storage_options=await self._options(),
        )

    async def renew(self, watch: Watch) -> None:
        """Give the connection's current credentials to a watch whose looks fail."""
        if self.delta_conn_id is not None:
            watch.reopen(await self._options())

    async def _options(self) -> dict[str, str] | None:
        return await astorage_options(self.delta_conn_id, self.storage_options)
