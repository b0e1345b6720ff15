"""The watermark and its seal in the target's own commit.

A *watermark* is (source table id, version): everything up to and including that version of that table is
in the target. It is proved by a *seal*: the ``txn`` action and the ``userMetadata`` of one commit of the
target. ``txn.version`` is the seal's number, so Delta's rule "skip a write whose stored version is >= the
given one" works as a compare-and-swap: only a planner that saw the newest seal can commit.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

#: Version of the seal's JSON. A reader refuses what it does not know.
SEAL_FORMAT = 1
_MARK = "delta_cdc"

StepKind = Literal[
    "load",
    "declare",
    "apply",
    "read",
    "commit",
    "reseal",
    "adopt",
    "reload",
    "reset",
    "repair",
    "ingest",
    "replay",
]


def app_id(pipeline: str) -> str:
    """Return the ``txn.appId`` of a pipeline."""
    return f"delta-cdc/{pipeline}"


@dataclass(frozen=True)
class Watermark:
    """Everything up to and including ``version`` of the table ``source_table_id`` has been applied."""

    source_table_id: str
    version: int


@dataclass(frozen=True)
class PlannedOn:
    """The target as the planner saw it."""

    table_id: str
    version: int


@dataclass(frozen=True)
class SealStep:
    """What the sealed commit itself did (the rest of a :class:`Seal` is the whole state).

    :param fingerprint: :func:`delta_cdc.spec.step_fingerprint` of the plan and this step
    """

    kind: StepKind
    starting_version: int
    ending_version: int
    fingerprint: str
    run_id: str
    planned_on: PlannedOn | None = None
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Seal:
    """The whole state of a pipeline, as one commit of the target carries it.

    :param number: ``txn.version`` of the commit
    :param applied_from: first source version in the target; all of ``applied_from``..``watermark`` is there
    :param source_commit_hash: SHA-256 (hex) of the source's commit file at ``watermark``; tells a table that
        was copied back from a backup from the one we read
    :param highest_sequence: greatest sequence value applied, as text; None where it has no meaning (type 1
        of a feed). A sequence of several parts is a JSON list of texts
    :param truncate_sequences: change log: the newest truncates applied, ascending, in the same form
    :param horizons: change log: (version, sequence) of the lateness horizons since they came up, ascending:
        what was added after a version and lies below its sequence does not count
    :param loaded_version: the version of the source that the target was loaded from: history begins there
    :param configuration: keys, SCD type, sequence type and tracked set as written
    :param successor: set where this is the pipeline's last seal: the pipeline that adopted its target
    """

    pipeline: str
    number: int
    source_table_id: str
    source_uri: str
    applied_from: int
    watermark: int
    source_commit_hash: str
    step: SealStep
    highest_sequence: str | None = None
    truncate_sequences: tuple[str, ...] = ()
    horizons: tuple[tuple[int, str], ...] = ()
    loaded_version: int = -1
    configuration: dict[str, Any] = field(default_factory=dict)
    successor: str | None = None

    @property
    def mark(self) -> Watermark:
        """Return the watermark this seal proves."""
        return Watermark(self.source_table_id, self.watermark)

    def to_json(self) -> str:
        """Return the text for ``commitInfo.userMetadata`` (sorted keys, no spaces)."""
        data = {_MARK: SEAL_FORMAT, **asdict(self)}
        if self.successor is None:
            del data["successor"]
        return json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=True)

    @classmethod
    def from_json(cls, text: str | None) -> Seal | None:
        """Read ``userMetadata``; None where it is not a seal of this format."""
        if not text or _MARK not in text:
            return None
        try:
            data = json.loads(text)
        except ValueError:
            return None
        if not isinstance(data, dict) or data.pop(_MARK, None) != SEAL_FORMAT:
            return None
        try:
            step = data.pop("step")
            planned = step.pop("planned_on", None)
            return cls(
                **{
                    **data,
                    "truncate_sequences": tuple(data.get("truncate_sequences", ())),
                    "horizons": tuple((version, text) for version, text in data.get("horizons", ())),
                },
                step=SealStep(**step, planned_on=PlannedOn(**planned) if planned else None),
            )
        except (KeyError, TypeError, AttributeError):
            # Fields that another release wrote, or somebody's own JSON.
            return None
