"""Drains a logical replication slot into a landing folder, as a small connector would: JSON lines, one file
per table and look, in folders by date.

    <folder>/<table>/2026-01-31/00000000000027012345.jsonl

A line is an event: the row's columns as PostgreSQL writes them, in text, and with ``pg_`` before their names
what is to be known about the change. ``pg_sequence`` is the order: where the transaction's commit is in the
write-ahead log, and the change's number in the transaction, both of fixed width.

No event is lost, whenever this process dies: the slot moves on after its files are there. One that dies in
between writes these files again under the same names, with the same lines and perhaps more.
"""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from demo.decoding import NotUnderstood, transactions

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from demo.decoding import Change, Transaction, Values
    from demo.postgres import Postgres

#: The values of ``pg_op``.
INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"

#: The order of events, and its type: text that sorts as it stands. It is no part of the row.
SEQUENCE = "pg_sequence"
SEQUENCE_DDL = f"{SEQUENCE} STRING"
#: How the adapter ``plain`` reads the lines.
ADAPTER_OPTIONS = {
    "operation_column": "pg_op",
    "operations": {INSERT: "upsert", UPDATE: "upsert", DELETE: "delete", TRUNCATE: "truncate"},
    "sequence_by": SEQUENCE,
    "except_column_list": [SEQUENCE],
    "source_timestamp": "pg_committed_at",
}

Event = dict[str, Any]


class Landing:
    """A slot and the folder that its changes go to.

    :param server: where the slot is
    :param folder: where files land
    :param tables: the tables that are wanted, without their schema, which is ``public``
    :param slot: name of the slot
    :param most_events: a file ends with the transaction that brings so many events; None is all of a look
    """

    def __init__(
        self,
        server: Postgres,
        folder: Path,
        *,
        tables: tuple[str, ...],
        slot: str = "landing",
        most_events: int | None = None,
    ) -> None:
        self._server = server
        self._folder = folder
        self._tables = tables
        self._slot = slot
        self._most_events = most_events
        self._keys: dict[str, tuple[str, ...]] = {}
        #: Events that have landed, by table.
        self.landed: Counter[str] = Counter()

    def open(self) -> None:
        """Make the slot: what is committed from now on is kept until it has landed."""
        self._server.value(
            f"SELECT lsn FROM pg_create_logical_replication_slot('{self._slot}', 'test_decoding')"
        )

    def drain(self, limit: int = 200_000) -> int:
        """Land what has been committed since the last time; return the number of events.

        :param limit: go on to the end of the transaction that reaches so many changes, and no further
        :raises NotUnderstood: for a change that cannot be written as events; nothing has landed then
        """
        rows = self._server.rows(
            f"SELECT lsn, xid, data FROM pg_logical_slot_peek_changes('{self._slot}', NULL, {limit}, "
            "'include-timestamp', 'on', 'skip-empty-xacts', 'on')"
        )
        found = list(transactions(rows))
        if not found:
            return 0
        # All of them are converted before the first one lands: an error stops the whole round.
        batches = list(self._batches(found))
        landed = Counter[str]()
        for first, events_of in batches:
            for table, events in events_of.items():
                self._land(table, first, events)
                landed[table] += len(events)
        last = f"{found[-1].lsn >> 32:X}/{found[-1].lsn & 0xFFFFFFFF:X}"
        self._server.value(
            f"SELECT end_lsn FROM pg_replication_slot_advance('{self._slot}', '{last}')",
        )
        self.landed.update(landed)
        return landed.total()

    # -- events ---------------------------------------------------------------------------------
    def _batches(self, found: list[Transaction]) -> Iterator[tuple[Transaction, dict[str, list[Event]]]]:
        """Yield what lands together: the first transaction of it, and the events by table.

        Where a batch ends depends on the transactions alone, and so do the names and beginnings of files.
        """
        first, count = found[0], 0
        events: dict[str, list[Event]] = {}
        for transaction in found:
            if self._most_events is not None and count >= self._most_events:
                yield first, events
                first, count, events = transaction, 0, {}
            for table, event in self._events(transaction):
                events.setdefault(table, []).append(event)
                count += 1
        yield first, events

    def _events(self, transaction: Transaction) -> Iterator[tuple[str, Event]]:
        """Tell a transaction as events of the tables that are wanted."""
        index = 0
        for change in transaction.changes:
            schema, _, table = change.table.partition(".")
            if schema != "public" or table not in self._tables:
                continue
            for operation, values in told(change, self._key(table)):
                yield table, _event(transaction, index, operation, values)
                index += 1

    def _key(self, table: str) -> tuple[str, ...]:
        """Return the columns of a table's primary key; none where it has none."""
        if table not in self._keys:
            rows = self._server.rows(
                "SELECT attname FROM pg_index JOIN pg_attribute ON attrelid = indrelid "
                f"AND attnum = ANY (indkey) WHERE indisprimary AND indrelid = 'public.\"{table}\"'::regclass "
                "ORDER BY array_position(indkey::int2[], attnum)"
            )
            self._keys[table] = tuple(name for (name,) in rows if name is not None)
        return self._keys[table]

    # -- files ----------------------------------------------------------------------------------
    def _land(self, table: str, first: Transaction, events: list[Event]) -> None:
        """Write a file under a name that no reader takes, and rename it when it is whole."""
        folder = self._folder / table / _moment(first).date().isoformat()
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{first.lsn:020d}.jsonl"
        draft = folder / f".{name}.draft"
        draft.write_text("".join(json.dumps(event) + "\n" for event in events), encoding="utf-8")
        draft.replace(folder / name)


def told(change: Change, key: tuple[str, ...]) -> list[tuple[str, Values]]:
    """Tell a change as operations on rows that are known by their key.

    A row that gets another key leaves under the old one and comes under the new one, with all its columns.

    :raises NotUnderstood: where PostgreSQL does not say enough: then the table's replica identity does not
        fit what is done to it
    """
    if change.operation == "TRUNCATE":
        return [(TRUNCATE, {})]
    if change.operation == "INSERT":
        return [(INSERT, change.new)]
    before = {name: change.old[name] for name in key if name in change.old}
    if change.operation == "DELETE":
        return [(DELETE, _whole(before, key, change))]
    if all(change.new.get(name) == value for name, value in before.items()):
        return [(UPDATE, change.new)]
    # Of a row that is logged whole, what is stored out of line is in the row before.
    kept = {name: change.old[name] for name in change.unchanged if name in change.old}
    if len(kept) < len(change.unchanged):
        raise NotUnderstood(
            f"{change.table}: a row got another key, and PostgreSQL did not log its {change.unchanged}: "
            "the table needs REPLICA IDENTITY FULL"
        )
    return [(DELETE, _whole(before, key, change)), (INSERT, {**change.new, **kept})]


def _whole(before: Values, key: tuple[str, ...], change: Change) -> Values:
    if not key or len(before) < len(key):
        raise NotUnderstood(
            f"{change.table}: PostgreSQL did not log the key of a row that left: "
            "the table needs a primary key"
        )
    return before


def _event(transaction: Transaction, index: int, operation: str, values: Values) -> Event:
    return {
        "pg_op": operation,
        SEQUENCE: f"{transaction.lsn:020d}/{index:08d}",
        "pg_xid": transaction.xid,
        "pg_committed_at": _moment(transaction).isoformat(timespec="microseconds"),
        **values,
    }


def _moment(transaction: Transaction) -> datetime:
    return datetime.fromisoformat(transaction.committed_at).astimezone(UTC)


class Draining(threading.Thread):
    """Drains again and again, until it gets the signal to end; use it as a context manager.

    :param pause: seconds between two looks
    """

    def __init__(self, landing: Landing, *, pause: float = 1.0) -> None:
        super().__init__(name="landing", daemon=True)
        self._landing = landing
        self._pause = pause
        self._over = threading.Event()
        self._error: Exception | None = None

    def __enter__(self) -> Draining:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        """Drain until :meth:`finish`."""
        try:
            while not self._over.wait(self._pause):
                self._landing.drain()
        except Exception as error:  # noqa: BLE001 - raised by finish()
            self._error = error

    def finish(self) -> None:
        """End, and land what is left.

        :raises RuntimeError: if draining had failed meanwhile
        """
        self._over.set()
        self.join()
        if self._error is not None:
            raise RuntimeError(f"the slot could not be drained: {self._error}") from self._error
        while self._landing.drain():
            continue
