"""A prepared step: what it writes, and what is known before the write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from delta_cdc.spark.apply.merge import Merge
    from delta_cdc.spark.apply.rows import Shape


@dataclass(frozen=True)
class Work:
    """A prepared step: its input is validated, and nothing is written yet.

    :param write: the one statement that commits
    :param counts: counts known before the write
    :param highest_sequence: for the seal
    :param shape: of the rows; None if the step moves no rows and only passes on a state
    :param truncate_sequences: for the seal
    :param merge: the statement, if it is a MERGE; a dry run shows it and counts its effect
    :param inserts: the rows to write, if the step only inserts; a dry run counts them
    :param quarantined: rows for the quarantine table (:data:`delta_cdc.spark.quarantine.COLUMNS`),
        written before the target; None if there are none
    """

    write: Callable[[], object]
    counts: dict[str, int] = field(default_factory=dict)
    highest_sequence: str | None = None
    shape: Shape | None = None
    truncate_sequences: tuple[str, ...] = ()
    merge: Merge | None = None
    inserts: DataFrame | None = None
    quarantined: DataFrame | None = None
