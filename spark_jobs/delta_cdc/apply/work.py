"""A prepared step: what it writes, and what is known of it before."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

    from delta_cdc.apply.merge import Merge
    from delta_cdc.apply.rows import Shape


@dataclass(frozen=True)
class Work:
    """What a step does to the target, prepared: its input is validated, and nothing is written yet.

    :param write: the one statement that commits
    :param counts: counts known before it
    :param highest_sequence: for the seal
    :param shape: of the rows; None where the step moves none and carries a state on
    :param truncate_sequences: for the seal
    :param merge: the statement, where it is a MERGE; a dry run shows it and counts what it would do
    :param inserts: the rows that are written, where that is all that is done; a dry run counts them
    :param quarantined: rows for the quarantine table (:data:`delta_cdc.apply.quarantine.COLUMNS`), written
        before the target; None where there are none
    """

    write: Callable[[], object]
    counts: dict[str, int] = field(default_factory=dict)
    highest_sequence: str | None = None
    shape: Shape | None = None
    truncate_sequences: tuple[str, ...] = ()
    merge: Merge | None = None
    inserts: DataFrame | None = None
    quarantined: DataFrame | None = None
