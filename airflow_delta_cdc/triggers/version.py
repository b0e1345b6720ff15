"""Wake DAGs whenever a Delta table has new changes.

Why no event is lost
--------------------
If a trigger saved its cursor before Airflow had stored the event, a crash of the triggerer in between would
lose the event. Airflow's acknowledged shared stream prevents this: the triggerer calls
:meth:`_Versions.advance` only after the asset event is in the metadata database, and only this method moves
the cursor. After an earlier crash, the trigger makes the event a second time. That is harmless: the event
only wakes a DAG, which works from its own watermark.

A class method builds the stream from the trigger's arguments only: it cannot use the state store that Airflow
gives to a trigger (``self.asset_state_store``). So the arguments name the asset, and the producer opens the
same store by that name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_delta_cdc import engine
from airflow_delta_cdc.compat import HAS_STATE_STORES, SharedStreamProducer, asset_state_store
from airflow_delta_cdc.triggers.base import WatchingTrigger
from airflow_delta_cdc.triggers.patience import Patience, is_final
from delta_cdc.core import arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from datetime import timedelta

    from airflow.triggers.shared_stream import AdvanceItem

    from delta_cdc.planning.waiting import News, Position, Watch

_log = logging.getLogger(__name__)

#: Least seconds between two events of an asset. Airflow makes one run of all events up to the first one that
#: waits for its scheduler. Events that come before it looks again, after up to some seconds, get no run; the
#: run of a later event contains them.
EVENTS_APART = 5.0


class DeltaVersionTrigger(WatchingTrigger, BaseEventTrigger):
    """Fire whenever a table has new commits that change data. Use this trigger in an ``AssetWatcher``.

    .. code-block:: python

        trigger = DeltaVersionTrigger(table="s3://lake/orders", asset_name="new orders")
        orders = Asset("new orders", watchers=[AssetWatcher(name="orders", trigger=trigger)])
        with DAG("orders_current", schedule=[orders]):
            ...

    :func:`airflow_delta_cdc.triggers.watched_asset` replaces the first two lines.

    The trigger reads the table's log without a JVM and without blocking the event loop, with one small
    request per check. It waits for a table that doesn't exist. If a store fails or is slow, it waits longer
    between two checks, up to five minutes. No error ends it.

    Each event covers all changes since the previous one: ``table``, ``table_id``, ``version`` (the newest),
    ``previous_version`` (None the first time), ``timestamp`` and ``reason`` (``new_versions``,
    ``table_created`` or ``table_recreated``). With ``list_partitions``, that of a partitioned table also has
    ``partitions``: the keys of the changed partitions
    (:func:`airflow_delta_cdc.assets.partitions_asset`). The asset's state store
    contains the trigger's position; without one, the trigger fires once. If the triggerer dies, no event is
    lost, but one may come twice.

    :param table: path or URI of the table, ``${ENV}`` allowed
    :param asset_name: name of the watched asset. Its state store contains the trigger's position, so two
        assets on one table are independent of each other. No task may have the asset as inlet or outlet.
    :param min_versions: the trigger fires after this number of counted commits
    :param operations: a name or a list of names of operations, as in ``DESCRIBE HISTORY``, in upper or lower
        case, such as ``MERGE``: only commits of these operations count
    :param partitions: a value, or a list of values, for each partition column, such as ``{"country": ["DE",
        "FR"]}``: only commits that add or remove rows in these partitions count
    :param poll_interval: seconds or a timedelta between two checks; None is ``[delta_cdc] poll_interval``
    :param delta_conn_id: connection of type ``delta`` for the object store; the triggerer reads it
    :param storage_options: options of the object store. Airflow's database contains them, so they must not
        contain secrets
    :param allow_recreation: True: the trigger fires if another job dropped the table and created it again at
        the same location. False: the trigger then logs an error, and does not fire until you delete its
        position from the asset's state store
    :param list_partitions: True: each event lists the changed partitions. For this, the triggerer reads each
        new commit of a partitioned table a second time, and as a whole
    :raises InvalidConfiguration: a condition is invalid
    """

    def __init__(
        self,
        *,
        table: str,
        asset_name: str,
        min_versions: int = 1,
        operations: Sequence[str] | str | None = None,
        partitions: Mapping[str, Any] | None = None,
        poll_interval: timedelta | float | None = None,
        delta_conn_id: str | None = None,
        storage_options: Mapping[str, str] | None = None,
        allow_recreation: bool = True,
        list_partitions: bool = False,
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
        self.list_partitions = arguments.flag("list_partitions", list_partitions)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the path of the class and the arguments of its constructor."""
        path, given = super().serialize()
        return path, {**given, "asset_name": self.asset_name, "list_partitions": self.list_partitions}

    def shared_stream_key(self) -> tuple[str, str]:
        """Return the key of this trigger's stream: all its arguments."""
        path, given = self.serialize()
        return path, json.dumps(given, sort_keys=True, default=str)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Return the producer, whose cursor moves once an event is stored."""
        return _Versions(cls(**kwargs))

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn the payloads of the producer into events."""
        async for payload in shared_stream:
            yield TriggerEvent(payload)  # type: ignore[no-untyped-call]

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield events without acknowledgement, so the cursor does not move.

        Only Airflow before 3.3 calls this. The position lives as long as the trigger: one that starts again
        makes an event for the table as it is, so no change goes unnoticed.
        """
        versions = _Versions(self)
        async with aclosing(versions.open_stream()) as stream:  # type: ignore[type-var]
            async for payload, position in stream:
                yield TriggerEvent(payload)  # type: ignore[no-untyped-call]
                if not HAS_STATE_STORES:
                    versions.go_on_after(position)

    def cursor_key(self) -> str:
        """Return the key in the asset's state store: several triggers may watch one asset."""
        watched_parts = [self.table, self.operations, self.partitions]
        digest = hashlib.sha256(json.dumps(watched_parts, sort_keys=True, default=str).encode()).hexdigest()
        return f"seen:{digest[:16]}"


class _Versions(SharedStreamProducer):
    """Look at one table forever, and move the cursor once an event is stored. Never raises."""

    def __init__(self, trigger: DeltaVersionTrigger) -> None:
        self._trigger = trigger
        self._cursor = _Cursor(trigger.asset_name, trigger.cursor_key(), trigger.table)
        self._patience = Patience(trigger.table, trigger.poll_interval, _log)
        self._watch: Watch | None = None

    async def open_stream(self) -> AsyncIterator[tuple[dict[str, Any], Position]]:
        """Yield each event's payload, and the cursor's position once the event is stored."""
        while True:
            await asyncio.sleep(self._patience.pause())
            news = await self._look()
            if news is not None:
                yield news.to_dict(), news.position
                await asyncio.sleep(max(0.0, EVENTS_APART - self._trigger.poll_interval))

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Move the cursor to the last event before the first one that was not stored, and save it."""
        for item in batch:
            if not item.outcome.is_clean:
                # The next look starts at the cursor, so the event is made again.
                self._watch = None
                break
            self._cursor.position = item.broker_payload
        await self._cursor.save()

    def go_on_after(self, position: Position) -> None:
        """Move the cursor without acknowledgement."""
        self._cursor.position = position

    async def _open(self) -> Watch:
        watch = self._watch
        if watch is None:
            watch = await self._trigger.watch(
                await self._cursor.load(), lists_partitions=self._trigger.list_partitions
            )
            self._watch = watch
        elif self._patience.failures:
            await self._trigger.renew(watch)
        return watch

    async def _look(self) -> News | None:
        try:
            watch = await self._open()
            news = await watch.look()
        except Exception as error:  # noqa: BLE001
            # A stream that ends is built again about once a second, so it must survive any error of a store.
            self._patience.failed(error)
            if is_final(error):
                # The next look reads the state store again: a user may have corrected it.
                self._watch = None
            return None
        self._patience.fine()
        await self._cursor.save()
        if news is not None:
            watch.go_on_after(news)
        return news


class _Cursor:
    """The position of a watcher, in its asset's state store."""

    def __init__(self, asset_name: str, key: str, table: str) -> None:
        self._asset_name = asset_name
        self._key = key
        self._table = table
        self._saved: Position | None = None
        self._warned = False
        #: The position of the cursor; None until it is loaded or moved.
        self.position: Position | None = None

    async def load(self) -> Position:
        """Return the position to go on from; without a stored one, the position before all versions.

        :raises Exception: the store can't be read, which differs from an empty store
        """
        if self.position != self._saved:
            # The position is not saved yet, but it is newer than the stored one.
            assert self.position is not None
            return self.position
        store = asset_state_store(self._asset_name)
        entry = None if store is None else await store.aget(self._key)
        if isinstance(entry, dict):
            # The entry has the table only for people who read the store.
            entry = {name: value for name, value in entry.items() if name != "table"}
        self.position = self._saved = engine.position_from_json(entry)
        return -1 if self.position is None else self.position

    async def save(self) -> None:
        """Save the position, if it isn't saved yet. After a failure, the next look tries again."""
        moved = self.position
        if moved is None or moved == self._saved:
            return
        try:
            store = asset_state_store(self._asset_name)
            if store is not None:
                await store.aset(self._key, {"table": self._table, **engine.position_to_json(moved)})
        except Exception as error:  # noqa: BLE001
            if not self._warned:
                _log.warning(
                    "Cannot store in the state store of asset %r that the trigger saw %s up to version %s "
                    "(%s). If the triggerer restarts now, it sends the last event again. Check the name of "
                    "the asset, and that an active DAG uses the asset.",
                    self._asset_name,
                    self._table,
                    moved,
                    error,
                )
            self._warned = True
            return
        self._saved, self._warned = moved, False
