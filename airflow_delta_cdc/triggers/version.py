"""Wake DAGs whenever a Delta table has new changes.

How an event is not lost
------------------------
A trigger that yields an event and then saves its cursor loses the event when the triggerer dies between the
two in the wrong order. Airflow's acknowledged shared stream gives the right order: the triggerer calls
:meth:`_Versions.advance` only after the asset event of what was yielded is in the metadata database, and only
there the cursor moves. Dying before that means that the event is made once more; an asset event is a nudge,
and what it wakes works from a watermark of its own.

The stream is built by a class method that sees nothing but the trigger's arguments: the state store that
Airflow gives to a trigger (``self.asset_state_store``) is out of its reach. So the arguments name the asset,
and the producer opens the same store by that name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from airflow.triggers.shared_stream import SharedStreamProducer

from airflow_delta_cdc import engine
from airflow_delta_cdc.triggers.base import WatchingTrigger
from airflow_delta_cdc.triggers.patience import Patience, is_final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from airflow.triggers.shared_stream import AdvanceItem

    from delta_cdc.planning.waiting import News, Position, Watch

_log = logging.getLogger(__name__)


class DeltaVersionTrigger(WatchingTrigger, BaseEventTrigger):
    """Fire whenever a table has new commits that change data: the trigger of an ``AssetWatcher``.

    .. code-block:: python

        trigger = DeltaVersionTrigger(table="s3://lake/orders", asset_name="new orders")
        orders = Asset("new orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])
        with DAG("orders_current", schedule=[orders]): ...

    :func:`airflow_delta_cdc.triggers.watched_asset` makes all three of the first lines.

    It looks at the table's log without a JVM and without blocking the event loop: one small request per look.
    A table that doesn't exist is waited for. A store that fails or is slow makes the pauses longer, up to
    five minutes; nothing ends the trigger.

    Each event tells about everything since the one before: ``table``, ``table_id``, ``version`` (the newest),
    ``previous_version`` (None the first time), ``timestamp`` and ``reason`` (``new_versions``,
    ``table_created`` or ``table_recreated``). How far it got is kept in the asset's state store; without it,
    it fires once. No event is lost when the triggerer dies, and one may come twice.

    :param table: path or URI of the table, ``${ENV}`` allowed
    :param asset_name: name of the asset that is watched. Its state store keeps how far the trigger got, so
        two assets on one table are independent of each other. No task may have the asset as inlet or outlet.
    :param min_versions: how many commits that count make an event
    :param operations: only commits of these operations count, as ``DESCRIBE HISTORY`` names them, in any case
    :param partitions: only commits that touch such partitions count: a value, or a list of values, by column
    :param poll_interval: seconds between two looks; None is ``[delta_cdc] poll_interval``
    :param delta_conn_id: connection of type ``delta`` for the object store; it is read in the triggerer
    :param storage_options: options of the object store; no secrets, they are kept in Airflow's database
    :param allow_recreation: whether a table made again at the same place is an event; else it is logged as an
        error and nothing comes until the entry in the asset's state store is deleted
    :raises InvalidConfiguration: for a condition that says nothing
    """

    def __init__(
        self,
        *,
        table: str,
        asset_name: str,
        min_versions: int = 1,
        operations: Sequence[str] | str | None = None,
        partitions: Mapping[str, Any] | None = None,
        poll_interval: float | None = None,
        delta_conn_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        allow_recreation: bool = True,
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
        self.asset_name = asset_name

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class's path and what its constructor needs."""
        path, arguments = super().serialize()
        return path, {**arguments, "asset_name": self.asset_name}

    def shared_stream_key(self) -> tuple[str, str]:
        """Return what tells this trigger's stream from others: all its arguments."""
        path, arguments = self.serialize()
        return path, json.dumps(arguments, sort_keys=True, default=str)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the producer: its cursor moves when an event is safely stored."""
        return _Versions(cls(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn what the producer found into events."""
        async for payload in shared_stream:
            yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Do the same without acknowledgement, so without moving the cursor; Airflow doesn't call it."""
        async with aclosing(_Versions(self).open_stream()) as stream:  # type: ignore[type-var]
            async for payload, _ in stream:
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    def cursor_key(self) -> str:
        """Return the key in the asset's state store: several triggers may watch one asset."""
        what = [self.table, self.operations, self.partitions]
        digest = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()
        return f"seen:{digest[:16]}"


class _Versions(SharedStreamProducer):
    """Looks at one table for ever, and moves the cursor once an event is stored. Never raises."""

    def __init__(self, trigger: DeltaVersionTrigger) -> None:
        self._trigger = trigger
        self._cursor = _Cursor(trigger.asset_name, trigger.cursor_key(), trigger.table)
        self._patience = Patience(trigger.table, trigger.poll_interval, _log)
        self._watch: Watch | None = None

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], Position]]:
        """Yield what was found, and where the cursor stands once that is stored."""
        while True:
            await asyncio.sleep(self._patience.pause())
            news = await self._look()
            if news is not None:
                yield news.to_dict(), news.position

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the cursor up to the last event before the first that wasn't stored, and keep it."""
        for item in batch:
            if not item.outcome.is_clean:
                # The next look starts at the cursor again, so that the event is made once more.
                self._watch = None
                break
            self._cursor.position = item.broker_payload
        await self._cursor.save()

    async def _open(self) -> Watch:
        watch = self._watch
        if watch is None:
            watch = self._watch = await self._trigger.watch(await self._cursor.load())
        elif self._patience.failures:
            await self._trigger.renew(watch)
        return watch

    async def _look(self) -> News | None:
        try:
            watch = await self._open()
            news = await watch.look()
        except Exception as error:  # noqa: BLE001
            # A stream that ends is built again about once a second, so it must outlive whatever a store
            # raises.
            self._patience.failed(error)
            if is_final(error):
                # A person may correct the state store, which is read again then.
                self._watch = None
            return None
        self._patience.fine()
        await self._cursor.save()
        if news is not None:
            watch.go_on_after(news)
        return news


class _Cursor:
    """How far a watcher got, in its asset's state store."""

    def __init__(self, asset_name: str, key: str, table: str) -> None:
        self._asset_name = asset_name
        self._key = key
        self._table = table
        self._saved: Position | None = None
        self._warned = False
        #: Where the cursor stands; None until it was loaded or moved.
        self.position: Position | None = None

    async def load(self) -> Position:
        """Return where to go on; before everything where nothing is kept.

        :raises Exception: where the store can't be asked, which is not the same as finding nothing there
        """
        if self.position != self._saved:
            # Not kept yet, and still nearer to the truth.
            assert self.position is not None
            return self.position
        kept = await self._store().aget(self._key)
        if isinstance(kept, dict):
            # The table is there for people who read the store.
            kept = {name: value for name, value in kept.items() if name != "table"}
        self.position = self._saved = engine.position_from_json(kept)
        return -1 if self.position is None else self.position

    async def save(self) -> None:
        """Keep the position, if it isn't kept yet. After a failure, the next look tries again."""
        moved = self.position
        if moved is None or moved == self._saved:
            return
        try:
            await self._store().aset(self._key, {"table": self._table, **engine.position_to_json(moved)})
        except Exception as error:  # noqa: BLE001
            if not self._warned:
                _log.warning(
                    "Cannot keep in the state store of asset %r that %s was seen up to version %s (%s). If "
                    "the triggerer is restarted now, the last event comes once more. Is that the asset's "
                    "name, and does an active DAG use it?",
                    self._asset_name,
                    self._table,
                    moved,
                    error,
                )
            self._warned = True
            return
        self._saved, self._warned = moved, False

    def _store(self) -> Any:
        from airflow.sdk.definitions.asset import AssetNameRef
        from airflow.sdk.execution_time.context import AssetStateStoreAccessors

        return AssetStateStoreAccessors(inlets=[AssetNameRef(name=self._asset_name)])
