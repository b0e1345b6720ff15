"""The table of coverage: which steps met which faults."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.world import faults_of

if TYPE_CHECKING:
    from tests.simulator.schedules import Coverage

FAULTS = ("crash", "freeze", "error", "lost", "throttle", "twice", "short", "torn", "stale")
_EVENTS = ("airflow", "source", "target")


def never(coverage: Coverage) -> list[str]:
    """Return the pairs of a step that was seen and a fault that it may meet, but never met."""
    steps = sorted({step for step, _ in coverage if step not in _EVENTS})
    return [f"{step} x {fault}" for step in steps for fault in faults_of(step) if not coverage[step, fault]]


def table_of(coverage: Coverage) -> str:
    """Return the table as text."""
    steps = sorted({step for step, _ in coverage if step not in _EVENTS})
    width = max(map(len, steps), default=0)
    lines = [" ".join([f"{'step':<{width}}", f"{'none':>9}", *(f"{fault:>8}" for fault in FAULTS)])]
    for step in steps:
        may = faults_of(step)
        cells = [f"{coverage[step, fault] if fault in may else '-':>8}" for fault in FAULTS]
        lines.append(" ".join([f"{step:<{width}}", f"{coverage[step, '']:>9}", *cells]))
    for what in _EVENTS:
        seen = [f"{name} {count}" for (of, name), count in sorted(coverage.items()) if of == what]
        lines.append(f"{what}: {', '.join(seen)}")
    missing = never(coverage)
    lines.append(f"never seen: {len(missing)}" + (f" ({', '.join(missing)})" if missing else ""))
    return "\n".join(lines)
