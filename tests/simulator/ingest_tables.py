"""What others do to the change log and to the tables beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.writers import drop, optimized, restore

if TYPE_CHECKING:
    from tests.simulator.delta import Table
    from tests.simulator.ingest_world import IngestWorld
    from tests.simulator.world import Event


class Tables:
    """Who maintains these tables, and who damages them."""

    def __init__(self, world: IngestWorld) -> None:
        self.world = world

    def happen(self, event: Event) -> None:
        """Do one thing to a table, if it is there."""
        what, _, name = event.name.partition(" ")
        both = [self.world.log, self.world.record]
        tables = both if name == "both" else [self.world.table(name)]
        for table in tables:
            if table.newest < 0:
                continue
            self.world.coverage["target", event.name] += 1
            self.world.tell(f"{what} of {table.name}, version {table.newest + 1}")
            getattr(self, f"_{what}")(table, event.number)

    def _optimize(self, table: Table, number: int) -> None:
        table.commit("OPTIMIZE", optimized(table))

    def _restore(self, table: Table, number: int) -> None:
        self.restore_to(table, number % (table.newest + 1))

    def restore_to(self, table: Table, version: int) -> None:
        restore(table, version, table.commit)
        if table is self.world.log:
            self.world.damage.add("restored")
        elif table is self.world.record:
            self.world.record_lost = True
        elif table is self.world.quarantine:
            self.world.quarantine_lost = True

    def _drop(self, table: Table, number: int) -> None:
        self.dropped(table)

    def dropped(self, table: Table) -> None:
        drop(table)
        if table is self.world.log:
            self.world.damage.add("log_dropped")
        elif table is self.world.record:
            self.world.record_lost = True
        elif table is self.world.quarantine:
            self.world.quarantine_lost = True
