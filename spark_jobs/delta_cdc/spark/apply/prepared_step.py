"""One step: the context that its parts share, and its prepared write."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType

from delta_cdc.core.change_log import ORIGIN
from delta_cdc.core.sql import quote
from delta_cdc.spark import column_needs, erased_keys
from delta_cdc.spark.apply import rows

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta_cdc.core.guard import Copy
    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.merge import Merge
    from delta_cdc.spark.apply.rows import Shape


@dataclass(frozen=True)
class PreparedStep:
    """A prepared step: its input is validated, and nothing is written yet.

    :param write: runs the one statement that commits
    :param counts: counts that do not depend on the write
    :param highest_sequence: for the seal
    :param shape: the rows' columns; None if the step writes no rows and only its seal
    :param truncate_sequences: for the seal
    :param merge: the statement, if it is a MERGE; a dry run shows it and counts its effect
    :param inserts: the rows to write, if the step only inserts; a dry run counts them
    :param quarantined: rows for the quarantine table (:data:`delta_cdc.spark.quarantine.COLUMNS`), which are
        written before the target; None without such rows
    :param settled: rows that leave the quarantine after the commit, because the step writes them into the
        target (:func:`delta_cdc.spark.quarantine.settle`); None without such rows
    :param alters: the statements that must alter the target first; the step is prepared again after them
    :param changed: the most keys that the write changes; None if that is unknown
    :param copies: the full copies that the step takes, if a column distinguishes them
    """

    write: Callable[[], object]
    counts: dict[str, int] = field(default_factory=dict)
    highest_sequence: str | None = None
    shape: Shape | None = None
    truncate_sequences: tuple[str, ...] = ()
    merge: Merge | None = None
    inserts: DataFrame | None = None
    quarantined: DataFrame | None = None
    settled: DataFrame | None = None
    alters: tuple[str, ...] = ()
    changed: int | None = None
    copies: tuple[Copy, ...] = ()


@dataclass
class StepContext:
    """The context of one step: its input, and the counts and quarantined rows that its parts collect.

    :param options: the spec's options; the version column of snapshots is their sequence
    :param truncated: the source may contain truncates
    :param highest: greatest sequence, as text, of events that are applied again: an earlier step may have set
        them aside, so that it did not count them
    :param size: number of events, if it limits the number of affected target rows; otherwise None
    :param settled: see :class:`PreparedStep`
    :param alters: see :class:`PreparedStep`
    :param only_compares: nothing is written, so no row is refused or set aside
    :param evolve: the step adds columns to the target
    :param comments: the comments of these columns
    :param target_types: the types of the target's columns by lower-case name, before the statement;
        :func:`delta_cdc.spark.apply.schema.check_target` sets them
    :param copies: see :class:`PreparedStep`
    :param old_names: of the target's columns that ``alters`` rename, by their new lower-case names
    """

    session: SparkSession
    spec: ApplySpec
    step: Step
    options: ApplyOptions
    truncated: bool = False
    highest: str | None = None
    size: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    quarantined: DataFrame | None = None
    settled: DataFrame | None = None
    alters: tuple[str, ...] = ()
    only_compares: bool = False
    evolve: bool = False
    comments: dict[str, str] = field(default_factory=dict)
    target_types: dict[str, DataType] = field(default_factory=dict)
    old_names: dict[str, str] = field(default_factory=dict)
    copies: tuple[Copy, ...] = ()

    @classmethod
    def of(cls, session: SparkSession, spec: ApplySpec, step: Step) -> StepContext:
        """Return the context of a step."""
        return cls(session, spec, step, effective(spec.options), bool(step.truncate_sequences))

    @property
    def source(self) -> str:
        """Return the source's location, for messages."""
        return self.spec.source_uri

    @property
    def versions(self) -> str:
        """Return the range of versions, for messages."""
        return f"versions {self.step.starting_version}-{self.step.ending_version}"

    @property
    def origin(self) -> str:
        """Return the first name of the pipeline, which it keeps in the positions of a log's events."""
        before = self.step.before
        return str(before.configuration.get(ORIGIN, self.spec.pipeline) if before else self.spec.pipeline)

    @property
    def has_history(self) -> bool:
        """Return whether the target keeps history (SCD type 2)."""
        return self.options.stored_as_scd_type == 2

    @property
    def reads_again(self) -> bool:
        """Return whether the step reads rows that earlier steps may have set aside; a replay moves these."""
        return self.step.kind != "apply" and not self.step.read.quarantined

    def read(self, source_rows: DataFrame, raw: Sequence[str] = ()) -> tuple[DataFrame, Shape]:
        """Return rows of a feed or a snapshot as :func:`delta_cdc.spark.apply.rows.read` does, without erased
        keys, and their shape.
        """
        is_counted = self.step.kind == "apply"
        kept = self.without_erased(source_rows, of_source=True, counted=is_counted)
        read, shape = rows.read(kept, self.options, self.source, raw=raw)
        return self.without_erased(read, counted=is_counted), shape

    def without_erased(
        self, given: DataFrame, *, of_source: bool = False, counted: bool = False
    ) -> DataFrame:
        """Return rows without those of keys that were erased; all of them where no key was erased.

        :param given: rows for the target, with its key columns
        :param of_source: they are rows of the source, and its erased keys count
        :param counted: count the rows that are left out as ``erased``, in one more job
        """
        erased = self.spec.erased
        uri, place = (erased.source, self.source) if of_source else (erased.ledger, self.spec.target_uri)
        if not uri:
            return given
        ledger = erased_keys.read(self.session, uri)
        if counted:
            self.count(erased=ledger.matched(given, place, "left_semi").count())
        return ledger.matched(given, place, "left_anti")

    def count(self, **more: int) -> None:
        """Add counts; omit zeros, except for ``events``."""
        for name, number in more.items():
            if number or name == "events":
                self.counts[name] = self.counts.get(name, 0) + number

    def commented(self, rows: DataFrame) -> DataFrame:
        """Return the rows to be written, with the comments of the columns that they add."""
        return column_needs.with_metadata(
            rows, {name: {"comment": comment} for name, comment in self.comments.items()}
        )


def effective(options: ApplyOptions) -> ApplyOptions:
    """Return the options; for snapshots with a version column, this column becomes the sequence."""
    if options.snapshot_version_column is None:
        return options
    return replace(options, sequence_by=quote(options.snapshot_version_column))
