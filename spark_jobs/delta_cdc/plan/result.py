"""A plan: a value that says what is to be done, and prints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from delta_cdc.log.actions import Commit
    from delta_cdc.log.table import TableState
    from delta_cdc.reconcile import Proof
    from delta_cdc.spec import ApplySpec, CommitSpec, ReadSpec, Segment, Step
    from delta_cdc.versions import VersionRange
    from delta_cdc.watermark import Seal


@dataclass(frozen=True)
class Plan:
    """What is to be done, decided from the logs. ``str()`` gives it as lines for people.

    :param pin_key: under which the range's end is kept for a retry
    :param ending_version: the end that was decided
    :param versions: what the work covers; None where no rows move
    :param spec: the job; None where there is nothing to do
    :param notes: what people should know, one sentence each
    :param batch: read: the open batch in staging, where one is there already
    """

    source: TableState
    proof: Proof | None
    pin_key: str
    ending_version: int
    versions: VersionRange | None
    spec: ApplySpec | ReadSpec | CommitSpec | None
    notes: tuple[str, ...] = ()
    batch: tuple[Seal, Commit] | None = None

    @property
    def steps(self) -> tuple[Step, ...]:
        """Return the sealed commits that the job makes, in order."""
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
            yield from segment_lines("", step.segments)
        for note in self.notes:
            yield "note", note

    def _target(self) -> str:
        if self.proof is None:
            return "does not exist yet"
        state, seal = self.proof.target, self.proof.seal
        proved = f"watermark {seal.watermark}, seal {seal.number}" if seal is not None else "no seal"
        return f"{state.uri} (id {state.table_id}, version {state.version}): {proved}"


def told(step: Step) -> str:
    """Return what a step does, for people."""
    versions = f"versions {step.starting_version}-{step.ending_version}"
    what = {
        "load": f"the snapshot of version {step.ending_version}",
        "apply": versions,
        "reload": f"the difference to version {step.ending_version}",
        "reset": f"the snapshot of version {step.ending_version} in the place of all rows",
        "repair": _repaired(step),
        "declare": f"no rows: what is there counts as version {step.ending_version}",
        "reseal": f"no rows: the watermark {step.ending_version} under a new seal",
        "adopt": f"no rows: the watermark {step.ending_version} of the pipeline that built the target",
        "answer": f"the query over all that is staged, {versions}",
        "complete": f"no rows: the batch, {versions}, is complete",
        "commit": f"no rows: everything up to version {step.ending_version} has arrived",
    }[step.kind]
    if step.kind in ("load", "reset") and step.is_empty:
        what = "no rows: a table without rows, before version 0"
    if step.successor is not None:
        what = f"no rows: the last seal of {step.pipeline}, which {step.successor} goes on from"
    return f"{what}, seal {step.seal_number}"


def _repaired(step: Step) -> str:
    """Return which keys a repair computes again."""
    keys = f"that {step.starting_version}-{step.ending_version} changed"
    if step.keys_where is not None:
        keys = f"where {step.keys_where}"
    elif step.replayed:
        keys = "in quarantine"
    return f"the keys {keys}, as of version {step.at}"


def segment_lines(name: str, segments: Iterable[Segment]) -> Iterator[tuple[str, str]]:
    """Yield a line per segment, each under ``name``."""
    for segment in segments:
        versions = f"{segment.starting_version}-{segment.ending_version}"
        yield name, f"{versions} by {segment.capture}, {readable(segment.size)}: {segment.reason}"


def readable(size: int) -> str:
    """Return a number of bytes as people read it, in binary units."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
