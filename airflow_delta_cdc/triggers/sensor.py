"""Wait in the triggerer for one task, until a Delta table has new changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from airflow_delta_cdc import engine
from airflow_delta_cdc.triggers.base import WatchingTrigger
from airflow_delta_cdc.triggers.patience import Patience
from delta_cdc.core.errors import DeltaCdcError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import timedelta

    from delta_cdc.planning.waiting import News, Watch


class DeltaVersionSensorTrigger(WatchingTrigger):
    """Fire once, as soon as a table has enough commits that change data after a baseline, and end.

    A deferred :class:`~airflow_delta_cdc.sensors.DeltaVersionSensor` uses it. It looks at the table's log
    without a JVM and without blocking the event loop. It waits for a table that doesn't exist yet. If a store
    fails or is slow, the pauses grow, up to five minutes; that never ends the trigger.

    The event is the dict of :meth:`delta_cdc.planning.waiting.News.to_dict`, or ``{"error": …}`` with a named
    error that cannot pass with time.

    :param table: path or URI of the table
    :param baseline: position after which commits count, as
        :func:`delta_cdc.planning.waiting.position_to_json` returns it
    :param min_versions: the number of counted commits after which the trigger fires
    :param operations: only commits of these operations count
    :param partitions: only commits that touch such partitions count: values by column
    :param allow_recreation: fire if a table was created again at the same location; otherwise end with an
        error
    :param seal_due_at: time (epoch milliseconds) from which the trigger fires even without a change, with the
        reason ``seal_due``; None is never
    :param poll_interval: seconds or a timedelta between two looks; None is ``[delta_cdc] poll_interval``
    :param delta_conn_id: connection of type ``delta`` for the object store; it is read in the triggerer
    :param storage_options: options of the object store; no secrets, they are kept in Airflow's database
    """

    def __init__(
        self,
        *,
        table: str,
        baseline: Mapping[str, Any],
        min_versions: int = 1,
        operations: Sequence[str] | str | None = None,
        partitions: Mapping[str, Any] | None = None,
        allow_recreation: bool = False,
        seal_due_at: int | None = None,
        poll_interval: timedelta | float | None = None,
        delta_conn_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(
            table=table,
            min_versions=min_versions,
            operations=operations,
            partitions=partitions,
            allow_recreation=allow_recreation,
            poll_interval=poll_interval,
            delta_conn_id=delta_conn_id,
            storage_options=storage_options,
        )
        self.baseline = dict(baseline)
        self.seal_due_at = seal_due_at

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments of its constructor."""
        path, arguments = super().serialize()
        return path, {**arguments, "baseline": self.baseline, "seal_due_at": self.seal_due_at}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, pause, look again; yield one event and end."""
        try:
            news = await self._wait()
        except DeltaCdcError as error:
            yield TriggerEvent({"error": error.to_dict()})  # type: ignore[no-untyped-call]
        else:
            yield TriggerEvent(news.to_dict())  # type: ignore[no-untyped-call]

    async def _wait(self) -> News:
        position = engine.position_from_json(self.baseline)
        patience = Patience(self.table, self.poll_interval, self.log)
        watch: Watch | None = None
        while True:
            await asyncio.sleep(patience.pause())
            try:
                if watch is None:
                    watch = await self.watch(
                        -1 if position is None else position, seal_due_at=self.seal_due_at
                    )
                elif patience.failures:
                    await self.renew(watch)
                news = await watch.look()
                patience.fine()
                if news is not None:
                    return news
            except Exception as error:
                # Any error of a store: it must not end the triggerer.
                if patience.ends_with(error):
                    raise
                patience.failed(error)
