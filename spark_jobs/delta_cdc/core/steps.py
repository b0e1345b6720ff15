"""What a job does, in order: each step reads something, and makes one sealed commit.

==============  ====================================================================================
A step reads    and writes, by its kind
==============  ====================================================================================
``Snapshot``    ``load`` (into a new or an empty table), ``reset`` (replaces all rows), ``baseline``
                (no rows: those of the target count)
``Changes``     ``apply`` (a MERGE into a target, or rows appended to staging)
``Keys``        ``reload`` (all keys), ``repair`` (some keys): the differences to the target
``StagedRows``  ``answer`` (the query over the staged change rows replaces them)
``Records``     ``ingest``, ``replay`` (events appended to a change log)
``NoRows``      ``renew``, ``take_over``, ``complete``, ``commit``: a seal alone
==============  ====================================================================================

Standard library only: this module travels to the Spark driver.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from delta_cdc.core.codec import OUTSIDE_IDENTITY
from delta_cdc.core.column_changes import ColumnChange  # noqa: TC001 - the codec reads hints
from delta_cdc.core.options import RangeMethod  # noqa: TC001 - the codec reads hints
from delta_cdc.core.quarantine import SETTLING
from delta_cdc.core.watermark import PipelineState, StepKind, TableVersion, newest

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The kinds of steps. The seals of ``answer`` and ``complete`` record ``read``.
Kind = Literal[StepKind, "answer", "complete"]

#: Number of allowed-lateness limits that a seal keeps. Older limits have no event left to exclude.
_KEPT_HORIZONS = 50

#: Kinds whose own commit alone proves that they were made: the watermark does not show it.
PROVED_BY_THEMSELVES = ("reload", "reset", "repair")

#: What a step of each kind does, for people. ``at`` is the watermark's version.
_DESCRIPTIONS: dict[str, str] = {
    "load": "the snapshot of version {at}",
    "reset": "the snapshot of version {at}, which replaces all rows",
    "baseline": "no rows: the existing rows count as version {at}",
    "apply": "versions {first}-{last}",
    "reload": "the difference to version {at}",
    "repair": "the keys {keys}, as of version {at}",
    "renew": "no rows: the watermark {at} under a new seal",
    "take_over": "no rows: the watermark {at} of the pipeline that built the target",
    "answer": "the query over all staged rows, versions {first}-{last}",
    "complete": "no rows: the batch, versions {first}-{last}, is complete",
    "commit": "no rows: everything up to version {last} has arrived",
    "ingest": "batch {last}",
    "replay": "the records in quarantine, as batch {last}",
}
_BEFORE_ALL_ROWS = "no rows: a table without rows, before version 0"
_LAST_SEAL = "no rows: the last seal of {pipeline}, from which {successor} continues"


@dataclass(frozen=True)
class Staging:
    """A sealed batch of change rows: the table, the version that holds it, and its kind.

    :param kind: ``changes`` (rows of the change feed) or ``snapshot`` (a whole snapshot, as inserts)
    """

    uri: str
    version: int
    kind: Literal["changes", "snapshot"]


@dataclass(frozen=True)
class ReadRange:
    """A range of versions (both ends inclusive) with one read method.

    :param method: the read method; see :data:`delta_cdc.core.options.RangeMethod`
    :param reason: why the planner chose the method, for people
    :param size: bytes to read, as the log records them
    :param net: only the two ends of the range are read: its rows are the net effect
    :param compare: find rows that were removed and added back unchanged in one version; they are not changes
    :param timestamps: for read methods that read files: (version, epoch milliseconds) of every commit of the
        range that changes data, ascending
    :param by_manifest: Spark reads it through its file manifest (:mod:`delta_cdc.delta_log.file_manifests`),
        not by Delta's reader of the change feed; set with the manifests
    """

    starting_version: int
    ending_version: int
    method: RangeMethod
    reason: str
    size: int
    net: bool = False
    compare: bool = False
    timestamps: tuple[tuple[int, int], ...] = ()
    by_manifest: bool = field(default=False, metadata=OUTSIDE_IDENTITY)

    @property
    def needs_manifest(self) -> bool:
        """Return whether the rows can be read only through a file manifest."""
        return self.method != "change_files"


# -- what a step reads --------------------------------------------------------------------------
class _Read:
    """What a step reads, as far as other modules ask: what is not overridden here does not apply to it."""

    #: The step reads rows of something; otherwise it makes a seal alone.
    has_rows = True
    #: The state of the pipeline begins with this step.
    begins = False

    @property
    def ranges(self) -> tuple[ReadRange, ...]:
        """Return the ranges of the source to read, in order."""
        return ()

    @property
    def staging(self) -> Staging | None:
        """Return the staged batch that the step reads instead of the source."""
        return None

    @property
    def is_empty(self) -> bool:
        """Return whether no rows are read, but only the source's columns."""
        return not self.has_rows

    @property
    def reads_source(self) -> bool:
        """Return whether the source must still be the table that was planned for."""
        return self.has_rows and self.staging is None

    @property
    def changed_bytes(self) -> int | None:
        """Return the bytes of the changes to merge, as the log records them; None if unknown."""
        return None

    @property
    def quarantined(self) -> bool:
        """Return whether the step computes the keys in quarantine again."""
        return False

    @property
    def since(self) -> int | None:
        """Return the version since which a replay applies rows in quarantine again, if not all of them."""
        return None

    @property
    def ending_version(self) -> int | None:
        """Return the last version that the step covers, if it is not the watermark."""
        return None

    @property
    def pipeline(self) -> str | None:
        """Return the pipeline of the seal, if it is not the spec's."""
        return None

    @property
    def successor(self) -> str | None:
        """Return the pipeline that continues after the seal of another one."""
        return None

    @property
    def inherits(self) -> tuple[str, int] | None:
        """Return the pipeline whose quarantine the step takes over, and the number of its last seal."""
        return None

    @property
    def chosen(self) -> str:
        """Return which keys are chosen, for people; "" if the step's versions determine them."""
        return ""


@dataclass(frozen=True)
class Snapshot(_Read):
    """The source as of the watermark; the version -1 is before all rows.

    :param staging: the snapshot is this staged batch
    :param is_empty: only its columns are read
    """

    begins = True

    staging: Staging | None = None
    is_empty: bool = False
    read: Literal["snapshot"] = "snapshot"


@dataclass(frozen=True)
class Changes(_Read):
    """The changes of the step's versions.

    :param ranges: they begin with the first version that changes data: commits before it may lie outside
        retention, or before the feed was turned on
    :param staging: the changes are this staged batch
    """

    ranges: tuple[ReadRange, ...] = ()
    staging: Staging | None = None
    read: Literal["changes"] = "changes"

    @property
    def changed_bytes(self) -> int | None:
        """Return the bytes of the ranges; None for a staged batch."""
        return None if self.staging is not None else sum(one.size for one in self.ranges)


@dataclass(frozen=True)
class Keys(_Read):
    """All rows of some keys as of the watermark, which the step does not move; without a choice, of all keys.

    :param ranges: the keys are those that these ranges changed
    :param where: Spark SQL predicate over the key columns that chooses them instead
    :param quarantined: the keys are those in the quarantine table
    :param ending_version: the keys are those that versions up to this one changed; None: the watermark
    :param since: of a replay, the version since which rows in quarantine are applied again; None: all are
    """

    ranges: tuple[ReadRange, ...] = ()
    where: str | None = None
    quarantined: bool = False
    ending_version: int | None = None
    since: int | None = None
    read: Literal["keys"] = "keys"

    @property
    def chosen(self) -> str:
        """Return which keys are chosen, for people; "" if the step's versions determine them."""
        return f"where {self.where}" if self.where is not None else "in quarantine" * self.quarantined


@dataclass(frozen=True)
class StagedRows(_Read):
    """The rows that the steps before have staged."""

    reads_source = False

    read: Literal["staged"] = "staged"


@dataclass(frozen=True)
class Records(_Read):
    """Records of files or of a topic, or records that were in quarantine; the spec lists them."""

    reads_source = False

    read: Literal["records"] = "records"


@dataclass(frozen=True)
class NoRows(_Read):
    """Nothing: the step makes a seal alone.

    :param pipeline: the pipeline of the seal; None is the spec's
    :param successor: the pipeline that continues where this seal ends the other one
    :param inherits: see :attr:`_Read.inherits`
    """

    has_rows = False

    pipeline: str | None = None
    successor: str | None = None
    inherits: tuple[str, int] | None = None
    read: Literal["none"] = "none"


# -- a step -------------------------------------------------------------------------------------
@dataclass(frozen=True, kw_only=True)
class Step:
    """One sealed commit.

    :param seal_number: of an ingest, also the number of its batch
    :param starting_version: first version of the source that the step covers; for a snapshot, its version
    :param applied_to: the watermark that the seal will record; None for an ingest
    :param planned_on: the table as planned; None if no table exists yet, or the previous step creates it
    :param before: the pipeline's state before the step; None: the state after the previous step, or no
        state. A step without rows copies this state into its own seal, and so does an ingest
    :param source_columns: the source's columns as of the watermark
    :param horizons: change log: (version, sequence) ascending: the sequence of an event that arrived after
        the version must not be lower: the allowed lateness
    :param column_changes: changes of the source's columns since the step before, which the target follows
    """

    kind: Kind
    read: Snapshot | Changes | Keys | StagedRows | Records | NoRows
    seal_number: int
    starting_version: int
    applied_to: TableVersion | None
    planned_on: TableVersion | None = None
    before: PipelineState | None = None
    source_columns: tuple[str, ...] = ()
    horizons: tuple[tuple[int, str], ...] = ()
    column_changes: tuple[ColumnChange, ...] = ()

    @property
    def watermark(self) -> TableVersion:
        """Return the watermark that the seal will record. An ingest has none."""
        assert self.applied_to is not None, f"a step of kind {self.kind} has no watermark"
        return self.applied_to

    @property
    def at(self) -> int:
        """Return the version of the source that the target reflects after this step."""
        return self.watermark.version

    @property
    def ending_version(self) -> int:
        """Return the last version that the step covers."""
        return self.at if self.read.ending_version is None else self.read.ending_version

    @property
    def versions(self) -> tuple[int, int]:
        """Return the versions that the seal records: the first and the last one, or the number of a batch."""
        if self.applied_to is None:
            return self.seal_number, self.seal_number
        return self.starting_version, self.ending_version

    @property
    def highest_sequence(self) -> str | None:
        """Return the greatest sequence that earlier steps applied, as text."""
        return self.before.highest_sequence if self.before is not None else None

    @property
    def truncate_sequences(self) -> tuple[str, ...]:
        """Return the newest truncates that earlier steps applied."""
        return self.before.truncate_sequences if self.before is not None else ()

    @property
    def configuration(self) -> dict[str, Any]:
        """Return the options and the data that the state before the step records."""
        return self.before.configuration if self.before is not None else {}

    @property
    def settling(self) -> str | None:
        """Return the mark of the rows that the step before took out of a quarantine; None without any."""
        mark: str | None = self.configuration.get(SETTLING)
        return mark

    @property
    def lateness_bound(self) -> str | None:
        """Return the lowest sequence, as text, that the allowed lateness admits; None without a bound."""
        return self.horizons[-1][1] if self.horizons else None

    def with_allowed_lateness(self) -> Step:
        """Return the step with its limits of allowed lateness (``horizons``), each with its first version.

        The plan of a range contains the limit for that range; the previous seal contains the earlier limits
        and their first versions. A limit that the user removed no longer applies. Limits only rise while one
        is set.
        """
        earlier_limits = self.before.horizons if self.before is not None else ()
        if not self.horizons or not earlier_limits:
            return self
        if earlier_limits[-1][1] == self.lateness_bound:
            return replace(self, horizons=earlier_limits)
        return replace(self, horizons=newest((*earlier_limits, *self.horizons), _KEPT_HORIZONS))

    def reading(self, **changes: Any) -> Step:
        """Return the step with changed fields of :attr:`read`."""
        return replace(self, read=replace(self.read, **changes))

    def __str__(self) -> str:
        """Return what the step does, for people."""
        read, (first, last) = self.read, self.versions
        at = last if self.applied_to is None else self.at
        text = _BEFORE_ALL_ROWS if read.begins and at < 0 else _DESCRIPTIONS[self.kind]
        if read.successor is not None:
            text = _LAST_SEAL
        keys = read.chosen or f"that {first}-{last} changed"
        return text.format(first=first, last=last, at=at, keys=keys, **vars(read))


def ranges_of(steps: Iterable[Step]) -> list[ReadRange]:
    """Return the ranges that steps read, in order."""
    return [read_range for step in steps for read_range in step.read.ranges]
