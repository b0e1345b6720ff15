"""A plan: a printable value that describes the work to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from delta_cdc.core.spec import CommitStep, LoadStep, RepairStep, StateStep, segments_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delta_cdc.core.spec import ApplySpec, CommitSpec, ReadSpec, ReadStep, Segment, TargetStep
    from delta_cdc.core.versions import VersionRange
    from delta_cdc.core.watermark import Seal
    from delta_cdc.delta_log.actions import Commit
    from delta_cdc.delta_log.table import TableState
    from delta_cdc.planning.observe import Observation
    from delta_cdc.planning.reconcile import Proof

    PlannedStep = TargetStep | ReadStep | CommitStep


@dataclass(frozen=True)
class Plan:
    """The work to do, decided from the logs. ``str()`` returns it as readable lines.

    :param observed: source and target, as the plan found them
    :param ending_version: the end that was decided
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
    def proof(self) -> Proof | None:
        """Return the target's recorded watermark; None without a target."""
        return self.observed.proof

    @property
    def pin_key(self) -> str:
        """Return the key under which the range's end is saved for a retry."""
        return self.observed.pin_key

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
            yield step.kind, told(step)
            yield from segment_lines("", segments_of((step,)))
        for note in self.notes:
            yield "note", note

    def _target(self) -> str:
        if self.proof is None:
            return "does not exist yet"
        state, seal = self.proof.target, self.proof.seal
        proved = f"watermark {seal.watermark}, seal {seal.number}" if seal is not None else "no seal"
        return f"{state.uri} (id {state.table_id}, version {state.version}): {proved}"


def told(step: PlannedStep) -> str:
    """Return a readable description of a step."""
    if isinstance(step, CommitStep):
        what = f"no rows: everything up to version {step.ending_version} has arrived"
        return f"{what}, seal {step.seal_number}"
    versions = f"versions {step.starting_version}-{step.ending_version}"
    what = {
        "load": f"the snapshot of version {step.ending_version}",
        "apply": versions,
        "reload": f"the difference to version {step.ending_version}",
        "reset": f"the snapshot of version {step.ending_version} in the place of all rows",
        "repair": _repaired(step) if isinstance(step, RepairStep) else "",
        "declare": f"no rows: what is there counts as version {step.ending_version}",
        "reseal": f"no rows: the watermark {step.ending_version} under a new seal",
        "adopt": f"no rows: the watermark {step.ending_version} of the pipeline that built the target",
        "answer": f"the query over all that is staged, {versions}",
        "complete": f"no rows: the batch, {versions}, is complete",
    }[step.kind]
    if isinstance(step, LoadStep) and step.at < 0:
        what = "no rows: a table without rows, before version 0"
    if isinstance(step, StateStep) and step.successor is not None:
        what = f"no rows: the last seal of {step.pipeline}, which {step.successor} goes on from"
    return f"{what}, seal {step.seal_number}"


def _repaired(step: RepairStep) -> str:
    """Describe which keys a repair recomputes."""
    keys = f"that {step.starting_version}-{step.ending_version} changed"
    if step.keys_where is not None:
        keys = f"where {step.keys_where}"
    elif step.replayed:
        keys = "in quarantine"
    return f"the keys {keys}, as of version {step.at}"


def segment_lines(name: str, segments: Iterable[Segment]) -> Iterator[tuple[str, str]]:
    """Yield a line per range (``Segment``), each under ``name``."""
    for segment in segments:
        versions = f"{segment.starting_version}-{segment.ending_version}"
        yield name, f"{versions} by {segment.capture}, {readable(segment.size)}: {segment.reason}"


def readable(size: int) -> str:
    """Format a number of bytes in binary units."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
