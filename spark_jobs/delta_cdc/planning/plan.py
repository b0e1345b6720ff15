"""A plan: a printable value that describes the work to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from delta_cdc.core.steps import ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delta_cdc.core.spec import ApplySpec, ReadSpec
    from delta_cdc.core.steps import ReadRange, Step
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.observe import Observation
    from delta_cdc.planning.reconcile import RecordedWatermark

SpecT = TypeVar("SpecT", covariant=True)
OutcomeT = TypeVar("OutcomeT", covariant=True)


@dataclass(frozen=True)
class JobPlan(Generic[SpecT, OutcomeT]):
    """The plan for one table: what its logs show, and the remaining job. ``str()`` returns readable lines.

    :param spec: the job; None if there is nothing to do
    :param outcome: the result as far as the logs show it; complete without a job
    :param notes: messages for the user
    """

    spec: SpecT | None
    outcome: OutcomeT
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        job = "nothing: no process is started" if self.spec is None else getattr(self.spec, "pipeline", "")
        return "\n".join([f"to do      {job}", *(f"note       {note}" for note in self.notes)])


@dataclass(frozen=True)
class Plan:
    """The work to do, decided from the logs. ``str()`` returns it as readable lines.

    :param observed: source and target, as the plan found them
    :param ending_version: the end of the work
    :param versions: versions that the work covers; None if no rows move
    :param spec: the job; None if there is nothing to do
    :param notes: messages for the user, one sentence each
    :param batch: for a read: the open batch in staging, if it exists already
    """

    observed: Observation[Any]
    ending_version: int
    versions: VersionRange | None
    spec: ApplySpec | ReadSpec | None
    notes: tuple[str, ...] = ()
    batch: tuple[Seal, Commit] | None = None

    @classmethod
    def of(
        cls,
        observed: Observation[Any],
        spec: ApplySpec | ReadSpec,
        versions: VersionRange | None,
        *notes: str,
    ) -> Plan:
        """Return the plan of a job; the notes follow those of the observation."""
        notes = (*observed.notes, *notes)
        return cls(observed, spec.steps[-1].ending_version, versions, spec, notes=notes)

    @classmethod
    def nothing(cls, observed: Observation[Any], ending: int, *notes: str) -> Plan:
        """Return a plan without a job; the notes follow those of the observation."""
        return cls(observed, ending, None, None, notes=(*observed.notes, *notes))

    @property
    def source(self) -> TableState:
        """Return the source."""
        return self.observed.source

    @property
    def recorded(self) -> RecordedWatermark | None:
        """Return the target's recorded watermark; None without a target."""
        return self.observed.recorded

    @property
    def plan_key(self) -> str:
        """Return the key under which the range's end is saved for a retry."""
        return self.observed.plan_key

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the steps of the job in order; each makes one sealed commit."""
        return self.spec.steps if self.spec is not None else ()

    def __str__(self) -> str:
        return "\n".join(f"{name:<10} {text}".rstrip() for name, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "source", f"{self.source.uri} (id {self.source.table_id}, version {self.source.version})"
        yield "target", self._target()
        if not self.steps:
            yield "to do", "nothing: no process is started and nothing is written"
        for step in self.steps:
            # The first number of a new table is the time of its run.
            number = f", seal {step.seal_number}" if self.recorded is not None else ""
            yield step.kind, f"{step}{number}"
            yield from range_lines("", ranges_of((step,)))
        for note in self.notes:
            yield "note", note

    def _target(self) -> str:
        if self.recorded is None:
            return "does not exist yet"
        state, seal = self.recorded.target, self.recorded.seal
        seal_text = f"watermark {seal.watermark}, seal {seal.number}" if seal is not None else "no seal"
        return f"{state.uri} (id {state.table_id}, version {state.version}): {seal_text}"


def range_lines(name: str, read_ranges: Iterable[ReadRange]) -> Iterator[tuple[str, str]]:
    """Yield a line per range (``ReadRange``), each under ``name``."""
    for read_range in read_ranges:
        versions = f"{read_range.starting_version}-{read_range.ending_version}"
        yield name, f"{versions} by {read_range.method}, {readable(read_range.size)}: {read_range.reason}"


def readable(size: int) -> str:
    """Format a number of bytes in binary units."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
