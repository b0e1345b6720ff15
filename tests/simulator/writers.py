"""The writers of source and target that are no pipelines: their statements, maintenance and accidents."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from tests.simulator.delta import Missing
from tests.simulator.oracle import REFUSED, Past, is_invalid

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.delta import Row, Snapshot, Table
    from tests.simulator.lane import Lane
    from tests.simulator.world import Event, World

_FEED = {"delta.enableChangeDataFeed": "true"}
_OVERWRITE = {"mode": "Overwrite"}
#: What happens to a source of appended rows.
_OF_APPENDED = ("append", "optimize", "recreate", "vacuum", "checkpoint", "clean", "put_back")


def restore(table: Table, version: int, commit: Callable[..., Any]) -> None:
    """Restore a table to a version, if its files are there."""
    try:
        wanted, now = table.travel(version), table.snapshot()
    except Missing:
        return
    if any(f"{table.name}/{path}" not in table.store.objects for path in wanted.files):
        return
    back = [
        {"add": {**add, "dataChange": True}} for path, add in wanted.files.items() if path not in now.files
    ]
    gone = [table.remove(path) for path in now.files if path not in wanted.files]
    metadata = [{"metaData": wanted.metadata}] if wanted.metadata != now.metadata else []
    commit("RESTORE", [*gone, *back, *metadata], parameters={"version": version, "timestamp": None})


def clean(table: Table, number: int) -> None:
    """Write a checkpoint; delete the commit files before it, or before an earlier one of them."""
    before = table.checkpoint()
    if number % 3 == 0 and before:
        before -= number % before
    table.clean(before)


def vacuum(table: Table) -> None:
    """Delete the files that the newest version does not need.

    A file that no commit names belongs to a job that still runs: it is younger than any retention.
    """
    needed = {f"{table.name}/{path}" for path in table.snapshot().files}
    for version in range(table.newest + 1):
        for action in table.actions(version):
            for kind in ("add", "cdc"):
                key = f"{table.name}/{action[kind]['path']}" if kind in action else ""
                if key not in needed:
                    table.store.objects.pop(key, None)


def drop(table: Table) -> None:
    """Delete a table with its log.

    The files that no commit names yet stay, with the marker of the log's folder: their job still runs, and
    could commit them.
    """
    vacuum(table)
    for path in table.snapshot().files:
        table.store.objects.pop(f"{table.name}/{path}", None)
    table.forget()


def optimized(table: Table) -> list[dict[str, Any]]:
    """Return the actions of an OPTIMIZE."""
    now = table.snapshot()
    rows = sorted(table.rows(now), key=str)
    removed = [table.remove(path, data_change=False) for path in now.files]
    return [*removed, table.add(rows, data_change=False)]


class Source:
    """Who writes the source. The rows of each version are recorded for the oracle."""

    def __init__(self, world: World, lane: Lane) -> None:
        self.world = world
        self.lane = lane
        self.table = lane.source
        self._serial = 0
        self.create()

    def create(self) -> None:
        self.lane.pasts.append(Past())
        rows = [[key, self._value()] for key in range(3)]
        created = self.table.created(self.world.new_id(), _FEED)
        self._record("CREATE TABLE AS SELECT", [*created, self.table.add(rows)])

    def happen(self, event: Event) -> None:
        """Run one statement."""
        name = event.name
        if name == "tear":
            self.table.store.tear, name = 2 + event.number % 90, "update"
        if self.lane.kind == "append" and name not in _OF_APPENDED:
            name = "append"
        now, state = self.table.snapshot(), self.lane.pasts[-1].states[-1]
        self.world.coverage["source", event.name] += 1
        self.world.tell(f"{self.table.name}: {event.name}, version {now.version + 1}")
        getattr(self, f"_{name}")(event.number, now, state)

    def _append(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        new = max(state) + 1
        self._record("WRITE", [self.table.add([[new, self._value()]])], parameters={"mode": "Append"})

    def _update(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        key = sorted(state)[number % len(state)]
        self._write(key, self._value(), state)

    def _poison(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        """Write a value that a target refuses."""
        keys = [key for key in sorted(state) if not is_invalid(key)]
        self._write(keys[number % len(keys)], REFUSED - self._value(), state)

    def _cure(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        """Correct such values."""
        for key in [key for key, value in state.items() if value <= REFUSED]:
            self._write(key, self._value(), self.lane.pasts[-1].states[-1])

    def _write(self, key: int, value: int, state: dict[int, int]) -> None:
        change = [["update_preimage", key, state[key]], ["update_postimage", key, value]]
        self._changed("UPDATE", key, [[key, value]], change, self.table.snapshot())

    def _delete(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        key = sorted(state)[number % len(state)]
        if key == 0:
            # One row stays: a target without rows would be a table that anyone may load.
            self._update(number, now, state)
        else:
            self._changed("DELETE", key, [], [["delete", key, state[key]]], now)

    def _changed(self, operation: str, key: int, rows: list[Row], change: list[Row], now: Snapshot) -> None:
        actions = [*self.table.replaced(rows, {key}, now), self.table.cdc(change)]
        self._record(operation, actions, parameters={"predicate": '["id"]'})

    def _optimize(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        self._record("OPTIMIZE", optimized(self.table))

    def _overwrite(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        removed = [self.table.remove(path) for path in now.files]
        self._record("WRITE", [*removed, self._new_rows(state)], parameters=_OVERWRITE)

    def _replace(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        """Replace the table inside its log: it gets another id."""
        removed = [self.table.remove(path) for path in now.files]
        metadata = self.table.created(self.world.new_id(), _FEED)[1:]
        operation = "CREATE OR REPLACE TABLE AS SELECT"
        self._record(operation, [*metadata, *removed, self._new_rows(state)])

    def _new_rows(self, state: dict[int, int]) -> dict[str, Any]:
        return self.table.add([[0, self._value()], [1, state.get(1, self._value())]])

    def _restore(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        restore(self.table, number % (now.version + 1), self._record)

    def _recreate(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        drop(self.table)
        self.lane.damage.add("source_gone")
        self.create()

    def _vacuum(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        vacuum(self.table)
        self.lane.damage.add("vacuumed")

    def _put_back(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        """Put the table back from a copy: the same id, and soon another history."""
        version = number % (now.version + 1)
        if not self.table.put_back(version):
            return
        before = self.lane.pasts[-1]
        end = version + 1
        self.lane.pasts.append(Past(before.states[:end], before.hashes[:end]))
        self.lane.damage.add("source_gone")
        if number % 2:
            self._append(number, self.table.snapshot(), self.lane.pasts[-1].states[-1])

    def _checkpoint(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        self.table.checkpoint()

    def _clean(self, number: int, now: Snapshot, state: dict[int, int]) -> None:
        """Write a checkpoint, and delete the commit files before it, or before an earlier version."""
        clean(self.table, number)
        self.lane.damage.add("source_cleaned")

    def _value(self) -> int:
        self._serial += 1
        return self._serial

    def _record(self, operation: str, actions: list[dict[str, Any]], **given: Any) -> None:
        version = self.table.commit(operation, actions, **given)
        past = self.lane.pasts[-1]
        past.states.append({row[0]: row[1] for row in self.table.rows(self.table.snapshot())})
        content = self.table.store.objects[self.table.key(version)].content
        past.hashes.append(hashlib.sha256(content).hexdigest())
        self.world.hub.now += 1_000


class Others:
    """Who maintains the target, and who damages it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.table = world.target
        self.lanes = [lane for lane in world.lanes if lane.target is world.target]

    def happen(self, event: Event) -> None:
        """Run one statement, if there is a target."""
        now = self.table.snapshot()
        if now.version < 0:
            return
        self.world.coverage["target", event.name] += 1
        self.world.tell(f"target: {event.name}, version {now.version + 1}")
        getattr(self, f"_{event.name}")(event.number, now)
        if event.name in ("overwrite", "replace", "clone") and self.lanes[0].kind == "log":
            self._damaged("rewritten")

    def _optimize(self, number: int, now: Snapshot) -> None:
        self.table.commit("OPTIMIZE", optimized(self.table))

    def _vacuum(self, number: int, now: Snapshot) -> None:
        vacuum(self.table)

    def _restore(self, number: int, now: Snapshot) -> None:
        restore(self.table, number % (now.version + 1), self.table.commit)
        self._damaged("restored")
        for lane in self.lanes:
            lane.undo()

    def _put_back(self, number: int, now: Snapshot) -> None:
        """Put the table back from a copy: the numbers of the lost seals are given again."""
        if self.world.schedule.gaps and self.world.is_in_steps(f"{self.table.name}/"):
            return
        if self.table.put_back(number % (now.version + 1)):
            self._damaged("target_put_back")
            for lane in self.lanes:
                lane.undo()
                lane.put_back(len(self.world.airflow.stored))

    def _checkpoint(self, number: int, now: Snapshot) -> None:
        self.table.checkpoint()

    def _clean(self, number: int, now: Snapshot) -> None:
        """Write a checkpoint, and delete the commit files before it, or before an earlier version.

        Often some maintenance comes first, so that the sealed commit is among those that are deleted.
        """
        if number % 5 == 0:
            self._restore(number, now)
        elif number % 2:
            self._optimize(number, now)
        clean(self.table, number)
        self._damaged("target_cleaned")

    def _overwrite(self, number: int, now: Snapshot) -> None:
        self.table.commit("WRITE", self._other_rows(now), parameters=_OVERWRITE)

    def _replace(self, number: int, now: Snapshot) -> None:
        metadata = self.table.created(self.world.new_id(), {}, self.world.schedule.kind)[1:]
        self.table.commit("CREATE OR REPLACE TABLE AS SELECT", [*metadata, *self._other_rows(now)])

    def _clone(self, number: int, now: Snapshot) -> None:
        self.table.commit("CLONE", self._other_rows(now))

    def _drop(self, number: int, now: Snapshot) -> None:
        of_log = self.lanes[0].kind == "log"
        if of_log and any(one.take_over_from and one.state == "running" for one in self.world.airflow.runs):
            # Each of the two names would load the source, as if there were two.
            return
        drop(self.table)
        self._damaged("target_gone")

    def _damaged(self, what: str) -> None:
        for lane in self.lanes:
            lane.damage.add(what)

    def _other_rows(self, now: Snapshot) -> list[dict[str, Any]]:
        rows = {"type2": [[0, -1, 0, None]], "log": [[0, -1, "upsert", "", 0]]}.get(
            self.world.schedule.kind, [[0, -1]]
        )
        return [*(self.table.remove(path) for path in now.files), self.table.add(rows)]
