"""The quarantine of a target: rows that a step sets aside, and rows that the target refuses.

A third of the keys are invalid: a step writes their rows into the quarantine, before its commit. How it does
this is the project's own code. Some values break a rule of the target, which then refuses the commit, after
the quarantine was written.
"""

from __future__ import annotations

import itertools
import json
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from delta_cdc.spark import quarantine
from delta_cdc.spark.sealed import settling
from tests.simulator import ingest_frames
from tests.simulator.oracle import REFUSED
from tests.simulator.patches import replaced
from tests.simulator.writers import drop, optimized, restore

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from tests.simulator.delta import Row
    from tests.simulator.ingest_frames import Frame
    from tests.simulator.spark import Session
    from tests.simulator.world import Event, World

_RULE = (
    "[DELTA_VIOLATE_CONSTRAINT_WITH_VALUES] CHECK constraint low (value >= 0) violated by row with values:"
)


class RefusedRow(Exception):
    """Delta's exception for a row that breaks a rule of the table."""


def refuse(rows: Iterable[Row]) -> None:
    """Raise Delta's exception if a row breaks the rule of the target."""
    for row in rows:
        if row[1] is not None and row[1] <= REFUSED:
            raise RefusedRow(f"{_RULE} - value : {row[1]}")


def entries(session: Session, spec: ApplySpec, step: Step) -> Frame | None:
    """Return what a step writes into the quarantine; None for nothing."""
    found = [_entry(spec, step, row, version) for version, row in session.invalid]
    computes_again = step.kind in ("reload", "reset", "repair") and not step.read.quarantined
    if found and computes_again and _is_there(session, spec.quarantine_uri):
        # All rows are read, and most of those that are invalid are there already.
        held = _held(session, spec, step)
        earlier = [row for row in held if row["seal"] < step.seal_number]
        known = {row["raw"] for row in earlier}
        found = [row for row in found if row["raw"] not in known]
    return ingest_frames.Frame(session, found, list(quarantine.COLUMNS)) if found else None


def keys(session: Session, spec: ApplySpec, step: Step) -> set[int]:
    """Return the keys that a replay computes again."""
    rows = _held(session, spec, step)
    return {json.loads(row["raw"])[0] for row in rows}


def _held(session: Session, spec: ApplySpec, step: Step) -> list[dict[str, Any]]:
    uri, pipeline = spec.quarantine_uri, spec.pipeline
    rows: Any = quarantine.rows_of(session, uri, pipeline, step.settling)  # type: ignore[arg-type]
    found: list[dict[str, Any]] = rows.rows
    return found


def _is_there(session: Session, uri: str) -> bool:
    return session.read_log(uri)[1].version >= 0


def _entry(spec: ApplySpec, step: Step, row: Row, version: int) -> dict[str, Any]:
    return {
        **dict.fromkeys(quarantine.COLUMNS),
        "reason": "the key is invalid",
        "pipeline": spec.pipeline,
        "seal": step.seal_number,
        "raw": json.dumps(row[:2]),
        "commit_version": version,
        "starting_version": step.starting_version,
        "ending_version": step.ending_version,
    }


class Others:
    """Who maintains the quarantine, and who damages it."""

    def __init__(self, world: World) -> None:
        self.world = world

    def happen(self, event: Event) -> None:
        """Do one thing to the table, if it is there."""
        judge = self.world.lanes[0].judge
        table = judge.aside
        if table is None or table.newest < 0:
            return
        self.world.coverage["target", f"{event.name} quarantine"] += 1
        self.world.tell(f"{event.name} of {table.name}, version {table.newest + 1}")
        if event.name == "optimize":
            table.commit("OPTIMIZE", optimized(table))
            return
        # What is in it proves nothing any more, and no run may depend on it.
        judge.is_aside_lost = True
        if event.name == "restore":
            restore(table, event.number % (table.newest + 1), table.commit)
        else:
            drop(table)


class Rule:
    """Who changes the rule by which rows are set aside."""

    def __init__(self, world: World) -> None:
        self.world = world

    def happen(self, event: Event) -> None:
        """Give the rule up, or bring it into force again."""
        self.world.sets_aside = event.name == "tighten"
        self.world.coverage["target", f"{event.name} rule"] += 1
        self.world.tell(f"{event.name} the rule")


@contextmanager
def installed() -> Iterator[None]:
    """Let the world replace what reads and writes the quarantine, for the project's own code."""
    found = SimpleNamespace(has_table=_is_there)
    with replaced((quarantine, {"F": ingest_frames.Functions, "catalog": found}), settling_here(found)):
        yield


def settling_here(catalog: Any) -> tuple[Any, dict[str, Any]]:
    """Return what the world replaces where rows that leave a quarantine are marked and deleted."""
    numbers = itertools.count()
    new = {"uuid4": lambda: SimpleNamespace(hex=f"mark{next(numbers)}")}
    return settling, {"F": ingest_frames.Functions, "catalog": catalog, **new}
