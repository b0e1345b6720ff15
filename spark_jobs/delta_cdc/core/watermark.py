"""The watermark and its seal in the target's own commit.

A *watermark* is a :class:`TableVersion` of the source: the target contains everything up to and including
that version of that table. A *seal* records it: the ``txn`` action and the ``userMetadata`` of one commit of
the target. ``txn.version`` is the seal's number, so Delta's rule "skip a write whose stored version is >= the
given one" works as a compare-and-swap: only a planner that saw the newest seal can commit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from delta_cdc.core import codec
from delta_cdc.core.codec import UnreadableJson
from delta_cdc.core.errors import SealUnreadable

if TYPE_CHECKING:
    from collections.abc import Sequence

T = TypeVar("T")

#: Version of the seal's JSON. A reader refuses unknown versions.
SEAL_FORMAT = 1
_MARK = "delta_cdc"
#: A longer ``commitInfo.userMetadata`` is refused: history readers load it for every version.
MAX_SEAL_BYTES = 64 * 1024
#: Of these bytes, the part reserved for values unknown at planning: counts, sequences, lateness bounds,
#: types.
SEAL_ROOM_BYTES = 12 * 1024
_MOST_OF_LIST = 4 * 1024

#: The kinds that seals record (:mod:`delta_cdc.core.steps`); of the steps that stage a batch, it is ``read``.
StepKind = Literal[
    "load",
    "reset",
    "baseline",
    "apply",
    "reload",
    "repair",
    "renew",
    "take_over",
    "read",
    "commit",
    "ingest",
    "replay",
]


def newest(entries: Sequence[T], most: int) -> tuple[T, ...]:
    """Return the last entries of a list that fit into a seal; always include the last one.

    :param most: the maximum number of entries, however short they are
    """
    kept: list[T] = []
    size = 0
    for entry in reversed(entries[-most:]):
        size += len(json.dumps(entry)) + 1
        if kept and size > _MOST_OF_LIST:
            break
        kept.append(entry)
    return tuple(reversed(kept))


def app_id(pipeline: str) -> str:
    """Return the ``txn.appId`` of a pipeline."""
    return f"delta-cdc/{pipeline}"


def refused_id(pipeline: str) -> str:
    """Return the ``txn.appId`` in a quarantine whose number is the newest seal that the target refused.

    The rows of this seal in the quarantine bind no later try to the range of the seal.
    """
    return f"delta-cdc-refused/{pipeline}"


@dataclass(frozen=True)
class TableVersion:
    """One version of one table.

    :param table_id: the table's id in its log
    :param commit_hash: SHA-256 (hex) of the version's commit file; it differs if the table was restored from
        a backup, or created again at the same place, since it was read. None if the file was not read
    """

    table_id: str
    version: int
    commit_hash: str | None = None

    def __str__(self) -> str:
        """Return the version, as shown in messages."""
        return str(self.version)


@dataclass(frozen=True)
class PipelineState:
    """The state that a pipeline carries from commit to commit.

    :param applied_to: the watermark; None for an ingest, whose records come from no table
    :param applied_from: first source version in the target: it contains all of ``applied_from`` to
        ``applied_to``. For an ingest, the number of the first batch
    :param highest_sequence: greatest sequence value applied, as text; None if not meaningful (type 1 of a
        feed). A sequence of several parts is a JSON list of texts
    :param truncate_sequences: change log: the newest truncates applied, ascending, in the same form
    :param horizons: change log: (version, sequence) of the lateness bounds, ascending: events added after a
        version and below its sequence do not count
    :param loaded_version: the version of the source that the target was loaded from: history begins there;
        -1 is before the first version
    :param configuration: options that must not change from commit to commit: keys, SCD type, sequence type,
        tracked columns. For staging and an ingest: the data that their next plan needs
    """

    applied_to: TableVersion | None
    applied_from: int
    highest_sequence: str | None = None
    truncate_sequences: tuple[str, ...] = ()
    horizons: tuple[tuple[int, str], ...] = ()
    loaded_version: int = -1
    configuration: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class SealStep:
    """The work of the sealed commit (:class:`PipelineState` is the state after the commit).

    :param fingerprint: :func:`delta_cdc.core.spec.step_fingerprint` of the plan and this step
    :param planned_on: the table that the commit was planned on. Its ``commit_hash`` chains the seal to that
        commit; None in the seals of a release without the chain, and if planning did not read the commit
    """

    kind: StepKind
    starting_version: int
    ending_version: int
    fingerprint: str
    run_id: str
    planned_on: TableVersion | None = None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Seal:
    """One commit's record of a pipeline: its state after the commit, and the work of the commit.

    :param number: ``txn.version`` of the commit
    :param successor: set if this is the pipeline's last seal: the pipeline that took over its target
    """

    pipeline: str
    number: int
    source_uri: str
    state: PipelineState
    step: SealStep
    successor: str | None = None

    @property
    def watermark(self) -> TableVersion:
        """Return the watermark that this seal records.

        :raises SealUnreadable: it is the seal of an ingest, which has no watermark
        """
        if self.state.applied_to is None:
            raise SealUnreadable(
                f"Seal {self.number} of pipeline {self.pipeline} was written by an ingest from "
                f"{self.source_uri}: it records no version of a table.",
                remedy="name the target of an apply; give the apply a pipeline name and a target of its own.",
            )
        return self.state.applied_to

    @property
    def reach(self) -> str:
        """Return the pipeline's progress, for people: ``watermark 5``, or ``batch 17`` of an ingest."""
        return f"batch {self.number}" if self.state.applied_to is None else f"watermark {self.watermark}"

    def to_json(self) -> str:
        """Return the text for ``commitInfo.userMetadata`` (sorted keys, no spaces)."""
        return codec.dumps({_MARK: SEAL_FORMAT, **codec.encoded(self)})

    @classmethod
    def from_json(cls, text: str | None) -> Seal | None:
        """Read ``userMetadata``; None if it is not a seal of this format."""
        data = _marked(text)
        if data is None or data.pop(_MARK, None) != SEAL_FORMAT:
            return None
        try:
            return codec.decoded(cls, data)
        except UnreadableJson:
            # Fields of another release, or JSON of another program.
            return None


def format_of(text: str | None) -> int | None:
    """Return the format of the seal in ``userMetadata``, also of a seal that this release cannot read."""
    data = _marked(text)
    number = None if data is None else data[_MARK]
    return number if isinstance(number, int) else None


def _marked(text: str | None) -> dict[str, Any] | None:
    """Return the JSON object of a seal of any format; None for any other text."""
    if not text or _MARK not in text:
        return None
    try:
        data = codec.parsed(text)
    except ValueError:
        return None
    return data if isinstance(data, dict) and _MARK in data else None
