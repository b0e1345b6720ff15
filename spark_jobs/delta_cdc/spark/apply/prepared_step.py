"""One step: the context that its parts share, and its prepared write."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from delta_cdc.core import reserved_columns
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import events, layout
from delta_cdc.spark.apply.rows import RAW
from delta_cdc.spark.apply.sequences import as_text, greater
from delta_cdc.spark.changes import states

if TYPE_CHECKING:
    from collections.abc import Callable

    from delta_cdc.core.options import ApplyOptions
    from delta_cdc.core.spec import ApplySpec
    from delta_cdc.core.steps import Step
    from delta_cdc.spark.apply.merge import Merge
    from delta_cdc.spark.apply.rows import Shape


log = logging.getLogger(__name__)


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
    :param alters: the statements that must alter the target first; the step is prepared again after them
    """

    write: Callable[[], object]
    counts: dict[str, int] = field(default_factory=dict)
    highest_sequence: str | None = None
    shape: Shape | None = None
    truncate_sequences: tuple[str, ...] = ()
    merge: Merge | None = None
    inserts: DataFrame | None = None
    quarantined: DataFrame | None = None
    alters: tuple[str, ...] = ()


@dataclass
class StepContext:
    """The context of one step: its input, and the counts and quarantined rows that its parts collect.

    :param options: the spec's options; the version column of snapshots is their sequence
    :param truncated: the source may contain truncates
    :param size: number of events, if it limits the number of affected target rows; otherwise None
    :param alters: see :class:`PreparedStep`
    :param evolve: the step adds columns to the target
    :param comments: the comments of these columns
    :param target_types: the types of the target's columns by lower-case name, before the statement;
        :func:`delta_cdc.spark.apply.schema.check_target` sets them
    """

    session: SparkSession
    spec: ApplySpec
    step: Step
    options: ApplyOptions
    truncated: bool = False
    size: int | None = None
    counts: dict[str, int] = field(default_factory=dict)
    quarantined: DataFrame | None = None
    alters: tuple[str, ...] = ()
    evolve: bool = False
    comments: dict[str, str] = field(default_factory=dict)
    target_types: dict[str, DataType] = field(default_factory=dict)

    @classmethod
    def of(cls, session: SparkSession, spec: ApplySpec, step: Step) -> StepContext:
        """Return the context of a step."""
        return cls(session, spec, step, events.effective(spec.options), bool(step.truncate_sequences))

    @property
    def source(self) -> str:
        """Return the source's location, for messages."""
        return self.spec.source_uri

    @property
    def versions(self) -> str:
        """Return the range of versions, for messages."""
        return f"versions {self.step.starting_version}-{self.step.ending_version}"

    @property
    def has_history(self) -> bool:
        """Return whether the target keeps history (SCD type 2)."""
        return self.options.stored_as_scd_type == 2

    @property
    def skips_files(self) -> bool:
        """Return whether the target may have many files, of which the MERGE can skip some."""
        return bool(self.options.partition_by) or layout.has_many_files(self.spec.target_bytes)

    def events(self, rows: DataFrame) -> events.Events:
        """Read rows of the source as events."""
        step = self.step
        return events.of_rows(rows, self.options, self.source, step.horizons, keep_raw=step.read.quarantined)

    def count(self, **more: int) -> None:
        """Add counts; omit zeros, except for ``events``."""
        for name, number in more.items():
            if number or name == "events":
                self.counts[name] = self.counts.get(name, 0) + number

    def set_aside(self, rows: DataFrame, shape: Shape, reason: Column) -> None:
        """Keep rows for the quarantine, and count them.

        :param rows: events or change rows, with the row of the source
            (:data:`~delta_cdc.spark.apply.rows.RAW`) and the version that added it; the quarantine keeps
            their sequence if it orders events
        """
        sequence = F.lit(None)
        if shape.order_type is not None:
            sequence = as_text(F.col(states.SEQUENCE), shape.order_type)
        quarantined = quarantine.rows(
            rows,
            spec=self.spec,
            step=self.step,
            reason=reason,
            keys=shape.keys,
            sequence=sequence,
            event=F.col(RAW),
            commit_version=F.col(reserved_columns.COMMIT_VERSION),
        ).localCheckpoint()
        number = quarantined.count()
        if number:
            self.count(quarantined=number)
            if self.quarantined is not None:
                quarantined = self.quarantined.unionByName(quarantined)
            self.quarantined = quarantined

    def prepared(
        self,
        merge: Merge,
        shape: Shape,
        highest: str | None = None,
        truncates: tuple[str, ...] = (),
        *,
        changed: int,
        rewritten: int,
        size: int | None,
    ) -> PreparedStep:
        """Return the step with its MERGE.

        For ``changed``, ``rewritten`` and ``size`` see :func:`delta_cdc.spark.apply.layout.tuned`.

        :param highest: greatest sequence of the step's rows, as text
        :param truncates: sequences for the seal, including those of earlier steps
        """
        merge = replace(merge, source=self.commented(merge.source), evolve=self.evolve)
        merge = layout.tuned(self, merge, changed=changed, rewritten=rewritten, size=size)
        log.debug("%s", merge.statement)
        return PreparedStep(
            lambda: merge.run(self.session),
            self.counts,
            greater(self.session, shape.order_type, self.step.highest_sequence, highest),
            shape,
            truncates,
            merge=merge,
            quarantined=self.quarantined,
            alters=self.alters,
        )

    def commented(self, rows: DataFrame) -> DataFrame:
        """Return the rows to be written, with the comments of the columns that they add."""
        for name, comment in self.comments.items():
            rows = rows.withMetadata(name, {"comment": comment})
        return rows
