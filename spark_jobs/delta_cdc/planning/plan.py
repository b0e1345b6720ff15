"""A plan: a printable value that describes the work to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from delta_cdc.core.spec import CommitStep, LoadStep, RepairStep, StateStep, ranges_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delta_cdc.core.spec import ApplySpec, CommitSpec, ReadRange, ReadSpec, ReadStep, TargetStep
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.observe import Observation
    from delta_cdc.planning.reconcile import RecordedWatermark

    PlannedStep = TargetStep | ReadStep | CommitStep

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

    observed: Observation
    ending_version: int
    versions: VersionRange | None
    spec: ApplySpec | ReadSpec | CommitSpec | None
    notes: tuple[str, ...] = ()
    batch: tuple[Seal, Commit] | None = None

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
    def steps(self) -> tuple[PlannedStep, ...]:
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
            yield step.kind, describe(step)
            yield from range_lines("", ranges_of((step,)))
        for note in self.notes:
            yield "note", note

    def _target(self) -> str:
        if self.recorded is None:
            return "does not exist yet"
        state, seal = self.recorded.target, self.recorded.seal
        seal_text = f"watermark {seal.watermark}, seal {seal.number}" if seal is not None else "no seal"
        return f"{state.uri} (id {state.table_id}, version {state.version}): {seal_text}"


def describe(step: PlannedStep) -> str:
    """Return a readable description of a step."""
    if isinstance(step, CommitStep):
        text = f"no rows: everything up to version {step.ending_version} has arrived"
        return f"{text}, seal {step.seal_number}"
    versions = f"versions {step.starting_version}-{step.ending_version}"
    text = {
        "load": f"the snapshot of version {step.ending_version}",
        "apply": versions,
        "reload": f"the difference to version {step.ending_version}",
        "reset": f"the snapshot of version {step.ending_version}, which replaces all rows",
        "repair": _repaired(step) if isinstance(step, RepairStep) else "",
        "baseline": f"no rows: the existing rows count as version {step.ending_version}",
        "renew": f"no rows: the watermark {step.ending_version} under a new seal",
        "take_over": f"no rows: the watermark {step.ending_version} of the pipeline that built the target",
        "answer": f"the query over all staged rows, {versions}",
        "complete": f"no rows: the batch, {versions}, is complete",
    }[step.kind]
    if isinstance(step, LoadStep) and step.at < 0:
        text = "no rows: a table without rows, before version 0"
    if isinstance(step, StateStep) and step.successor is not None:
        text = f"no rows: the last seal of {step.pipeline}, from which {step.successor} continues"
    return f"{text}, seal {step.seal_number}"


def _repaired(step: RepairStep) -> str:
    """Describe which keys a repair recomputes."""
    keys = f"that {step.starting_version}-{step.ending_version} changed"
    if step.keys_where is not None:
        keys = f"where {step.keys_where}"
    elif step.replayed:
        keys = "in quarantine"
    return f"the keys {keys}, as of version {step.at}"


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
