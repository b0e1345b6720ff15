"""Planted defects of ingests: each breaks one rule of the record, the quarantine, the log or the topic.

The simulator must find each one within the number of schedules that stands with it.
"""

from __future__ import annotations

from tests.simulator.defects import Defect, found
from tests.simulator.ingest_schedules import IngestFailure, drawn, outcome

INGEST_DEFECTS = (
    Defect(
        "A batch is recorded.",
        "spark.ingest.engine",
        "        if not spec.recorded:\n            outcome",
        "        if False:\n            outcome",
        1,
    ),
    Defect(
        "A batch is recorded before its events are in the log.",
        "spark.ingest.engine",
        "        spec = prepared.spec\n        if not spec.recorded:\n            outcome",
        "        spec = prepared.spec\n        self.write(step, prepared)()\n"
        "        if not spec.recorded:\n            outcome",
        1,
    ),
    Defect(
        "Records that are no events go to quarantine, before the commit.",
        "spark.ingest.engine",
        "        if prepared.rejects is not None:\n            quarantine.write_records",
        "        if False:\n            quarantine.write_records",
        1,
    ),
    Defect(
        "A file that cannot be read goes to quarantine.",
        "spark.ingest.engine",
        "    if unreadable_files:\n        files = quarantine.file_rejects",
        "    if False:\n        files = quarantine.file_rejects",
        1,
    ),
    Defect(
        "The seal counts the events of its commit.",
        "spark.ingest.engine",
        "counts=prepared.counts\n        )",
        'counts={**prepared.counts, "events": 0}\n        )',
        1,
    ),
    Defect(
        "A replay removes from quarantine what it brought into the log.",
        "spark.ingest.engine",
        "        if prepared.settled is None:",
        "        if True:",
        2,
    ),
    Defect(
        "A file that can be read again leaves the quarantine.",
        "spark.ingest.engine",
        "if file.again]\n        quarantine",
        "if False]\n        quarantine",
        79,
    ),
    Defect(
        "Records in quarantine of batches that a RESTORE undid do not come twice.",
        "spark.quarantine",
        "    if flag is None:\n        return rejects if",
        "    if flag is None:\n        return rejects if True or",
        16,
    ),
    Defect(
        "A step after a commit fails by a fault alone.",
        "spark.ingest.engine",
        "        self.written = version, prepared.events\n",
        "        self.written = version, prepared.evts\n",
        2,
    ),
    Defect(
        "A record that lacks rows is noticed.",
        "planning.ingest_batches",
        '        if "rows" in self.known and expected != self._recorded.rows:',
        "        if False:",
        19,
    ),
    Defect(
        "A delivery of a file is identified by more than its name.",
        "planning.taken_files",
        "        return one[0] == other[0] and one[2] == other[2]\n    return one[:2] == other[:2]",
        "        return True\n    return True",
        3,
    ),
    Defect(
        "A file that comes again is compared with the log.",
        "spark.ingest.redelivery",
        "    files = [file.uri for file in spec.files if file.again]",
        "    files = []",
        2,
    ),
    Defect(
        "Records of a file that comes again are compared with the quarantine.",
        "spark.ingest.engine",
        "    found = quarantine.new(session, spec, rejects)",
        "    found = rejects",
        2,
    ),
    Defect(
        "A batch that is recorded is not recorded again.",
        "planning.ingest",
        "            recorded=chosen.recorded,",
        "            recorded=False,",
        8,
    ),
    Defect(
        "The offset after the last record is the next one.",
        "planning.taken_files",
        'positions.get(key, 0), row["ending_offset"])',
        'positions.get(key, 0), row["ending_offset"] + 1)',
        6,
    ),
    Defect(
        "The last record of a range is not taken again.",
        "planning.taken_files",
        'positions.get(key, 0), row["ending_offset"])',
        'positions.get(key, 0), row["ending_offset"] - 1)',
        6,
    ),
    Defect(
        "Offsets that the topic has dropped are an error.",
        "planning.topic_partitions",
        '    if not gone or request.on_expired != "fail":',
        "    if True:",
        7,
    ),
    Defect(
        "A topic that was created again is refused.",
        "planning.topic_partitions",
        "        if ids.get(topic, known) != known:",
        "        if False:",
        20,
    ),
    Defect(
        "A file that ends the application is set aside.",
        "run.ingest",
        "        has_failed = saved_plan.failures >= _FAILURES and",
        "        has_failed = False and",
        1,
    ),
    Defect(
        "A batch that was not announced is announced by the next run.",
        "run.ingest",
        '        return merged(await unannounced(self.log, "log", plan.recorded, self.services.announced), '
        "ours)",
        "        return ours",
        5,
    ),
    Defect(
        "A retry of a quarantine does not add what is there.",
        "spark.quarantine",
        "        missing = _beyond(rejects, quarantined, exact=True).localCheckpoint()",
        "        missing = rejects",
        33,
    ),
    Defect(
        "All numbers below the first batch of a log are void.",
        "planning.ingest_batches",
        "            return [[0, self.number - 1]]",
        "            return []",
        16,
    ),
    Defect(
        "What may be in the log already is compared with it.",
        "planning.ingest_batches",
        '        return bool(self.found_lost) or bool(self.known.get("lost"))',
        "        return False",
        19,
    ),
    Defect(
        "A read replaces the batch before it.",
        "spark.staging",
        "        return spec.continues or step.starting_version > spec.starting_version",
        "        return True",
        2,
    ),
    Defect(
        "A committed watermark is the end of the delivered batch.",
        "planning.commit",
        "    state = PipelineState(\n        seal.watermark, seal",
        "    state = PipelineState(\n        type(seal.watermark)(seal.watermark.table_id, "
        "seal.watermark.version + 1), seal",
        2,
    ),
)


#: What ``UNDONE`` shows; random schedules hardly meet it.
COUNTS_NO_MORE = Defect(
    "A file that could not be read counts no more when a RESTORE undid its batch.",
    "spark.quarantine",
    'F.col("raw").isNotNull() | ~_is_void(spec)',
    "F.lit(True)",
    1,
)


def found_ingest(defect: Defect, most: int | None = None, first: int = 0) -> tuple[int, IngestFailure] | None:
    """Do as :func:`~tests.simulator.defects.found` with schedules of ingests."""
    return found(defect, most, first, played=lambda _, seed: outcome(drawn(seed)))
