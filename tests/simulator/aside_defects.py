"""Planted defects of the quarantine of a target, see :mod:`tests.simulator.defects`."""

from __future__ import annotations

from tests.simulator.defects import Defect, found
from tests.simulator.schedules import Failure, drawn, outcome

ASIDE_DEFECTS = (
    Defect(
        "The quarantine is written before the commit.",
        "spark.apply.engine",
        "            problem = quarantine.write(self.session, self.spec, step, seal, prepared.quarantined)",
        "            problem = None",
        2,
    ),
    Defect(
        "Rows of a shorter range are replaced.",
        "spark.quarantine",
        '.option("replaceWhere", own_rows)',
        '.option("replaceWhere", f"{of_seal} AND starting_version = {first} AND ending_version = {last}")',
        75,
    ),
    Defect(
        "Rows that another try of a seal has written are not written again.",
        "spark.quarantine",
        "            more = _not_in(rows, known).localCheckpoint()",
        "            more = rows",
        30,
    ),
    Defect(
        "Rows of another try of the same range do not stand for those of this one.",
        "spark.quarantine",
        "            more = _not_in(rows, known).localCheckpoint()",
        "            more = rows.limit(0)",
        505,
    ),
    Defect(
        "A later number that was never committed stops no run.",
        "spark.quarantine",
        "        if is_later and _is_taken(session, spec, step):",
        "        if is_later:",
        1_094,
    ),
    Defect(
        "The end of a refused try is free.",
        "planning.quarantine",
        "    if await log.transaction(refused_id(request.pipeline)) == number:",
        "    if False:",
        260,
    ),
    Defect(
        "A refusal is noted.",
        "spark.apply.engine",
        "        if is_refusal and prepared.quarantined is not None:",
        "        if False:",
        260,
    ),
    Defect(
        "A pipeline that takes a target over takes its quarantine over.",
        "spark.apply.engine",
        "            problem = quarantine.take_over(self.session, self.spec, *step.read.inherits)",
        "            problem = None",
        175,
    ),
    Defect(
        "A replay deletes no row that it has set aside itself.",
        "spark.quarantine",
        " AND q.seal < {step.seal_number}",
        " AND q.seal <= {step.seal_number}",
        577,
    ),
    Defect(
        "A replay deletes the rows that it has replayed from the quarantine alone.",
        "spark.quarantine",
        'AND q.reason <> {string(NULL_KEY)}"\n    for key in',
        'AND q.reason = {string(NULL_KEY)}"\n    for key in',
        4,
    ),
    Defect(
        "What a replay takes out of the quarantine is marked before its commit.",
        "spark.sealed.steps",
        "        if settled is not None:\n            self._settle",
        "        if False:\n            self._settle",
        4,
    ),
    Defect(
        "The next step deletes what a run that died has replayed.",
        "spark.sealed.steps",
        "        if step.settling is not None:",
        "        if False:",
        110,
    ),
    Defect(
        "The remedy of a refused row knows the limits of a range.",
        "spark.apply.engine",
        "            may_end_early=self.spec.may_end_early or len(self.spec.steps) > 1,",
        "            may_end_early=False,",
        85,
    ),
)

#: What ``LISTED_LATE`` shows; random schedules hardly meet it.
OLDER_VERSION = Defect(
    "The published version has the commit of the published seal.",
    "run.apply",
    "for _, commit in (*own.found, *ours))",
    "for _, commit in own.found)",
    1,
)
#: What ``RESUMED`` shows.
FORGOTTEN_LIMITS = Defect(
    "The remedy of a refused row knows the limits that a resumed try dropped.",
    "planning.quarantine",
    "        drops_limits=request.may_end_early,",
    "        drops_limits=False,",
    1,
)


def found_aside(defect: Defect, most: int | None = None, first: int = 0) -> tuple[int, Failure] | None:
    """Do as :func:`~tests.simulator.defects.found` with the seeds that may have a quarantine."""
    return found(defect, most, first, played=lambda _, seed: outcome(drawn(4 * seed + 3)))
