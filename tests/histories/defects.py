"""``python -m tests.histories.defects``: plant defects in a copy of the engine; count table runs to a find.

A defect that no table run finds shows a rule that the histories do not reach.
"""

from __future__ import annotations

import argparse
import importlib
import logging
import shutil
import sys
import tempfile
import warnings
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.histories.__main__ import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ENGINE = Path(__file__).resolve().parents[2] / "spark_jobs"
FEED, LOG = 1, 0


@dataclass(frozen=True)
class Defect:
    """A defect of one rule.

    :param kind: the table runs that may find it: of feeds, or of logs
    :param find: text that occurs once in the file
    :param needs: table runs without these in their arguments and steps, as text, are passed over
    """

    rule: str
    kind: int
    file: str
    find: str
    replace: str
    needs: tuple[str, ...] = ()


DEFECTS = (
    Defect(
        "the greatest sequence decides",
        LOG,
        "spark/apply/latest.py",
        "F.max_by(states.AFTER, F.when(has_values, in_order))",
        "F.min_by(states.AFTER, F.when(has_values, in_order))",
    ),
    Defect(
        "an event at a sequence that was applied is late",
        LOG,
        "spark/apply/from_events.py",
        "late = F.col(states.SEQUENCE) <= from_text(applied, shape.order_type)",
        "late = F.col(states.SEQUENCE) < from_text(applied, shape.order_type)",
    ),
    Defect(
        "of tied events, the greatest of last_by counts",
        LOG,
        "spark/apply/tied_events.py",
        "F.max(LAST_BY)",
        "F.min(LAST_BY)",
        ("last_by",),
    ),
    Defect(
        "conflicting events go into quarantine",
        LOG,
        "spark/apply/tied_events.py",
        "merged_events = merged_events.where(~F.col(_CONFLICT))",
        "merged_events = merged_events",
        ("'on_conflict': 'quarantine'",),
    ),
    Defect(
        "a truncate does not end upserts of its own place",
        LOG,
        "spark/apply/timeline.py",
        "truncate.asc_nulls_first()",
        "truncate.asc_nulls_last()",
        ("apply_as_truncates",),
    ),
    Defect(
        "a NULL of a partial event keeps the value",
        LOG,
        "spark/apply/partial_columns.py",
        "leaf.of(state).isNull() for leaf",
        "F.lit(False) for leaf",
        ("ignore_null",),
    ),
    Defect(
        "a row of history has a width",
        LOG,
        "spark/apply/history.py",
        "| (F.col(START) < F.col(END))\n",
        "| F.lit(True)\n",
        ("'stored_as_scd_type': 2",),
    ),
    Defect(
        "a recomputed row gets its end back",
        LOG,
        "spark/apply/history.py",
        "unchanged = F.col(END).eqNullSafe(F.col(FOUND_END)) & same(",
        "unchanged = same(",
        ("'stored_as_scd_type': 2", "repair_damage"),
    ),
    Defect(
        "a run of history ends where the next begins",
        FEED,
        "spark/apply/history.py",
        "END: F.lead(START).over(following)",
        "END: F.lead(START, 2).over(following)",
        ("'stored_as_scd_type': 2",),
    ),
    Defect(
        "a repair of a range keeps older history",
        FEED,
        "spark/apply/history.py",
        "is_last = F.coalesce(F.col(START) == F.col(_SPANNING), F.lit(False))",
        "is_last = F.coalesce(F.col(START) != F.col(_SPANNING), F.lit(True))",
        ("'stored_as_scd_type': 2", "repair_damage"),
    ),
    Defect(
        "a repair takes the last version of its range",
        FEED,
        "spark/apply/repair.py",
        "F.col(reserved_columns.ORDER) <= context.step.ending_version",
        "F.col(reserved_columns.ORDER) < context.step.ending_version",
        ("'stored_as_scd_type': 2", "repair_damage"),
    ),
    Defect(
        "a deleted row that is kept is marked",
        FEED,
        "spark/apply/latest.py",
        "others[DELETED_COLUMN] = values[DELETED_COLUMN]",
        "values[DELETED_COLUMN]",
        ("'soft'",),
    ),
    Defect(
        "after a RESTORE of the target, its own watermark counts",
        FEED,
        "planning/seal_chain.py",
        "if self._restored is not None and restores(commit):",
        "if False and restores(commit):",
        ("restore_target",),
    ),
    Defect(
        "a column that the source drops stays with keep_dropped",
        FEED,
        "spark/apply/schema.py",
        'mirrors = options.schema_evolution == "mirror"',
        "mirrors = True",
        ("keep_dropped", "+drop", "'apply'"),
    ),
    Defect(
        "a row that breaks a rule is not applied",
        FEED,
        "spark/apply/rows.py",
        'holds = F.coalesce(F.expr(rule.check).cast("boolean"), F.lit(False))',
        "holds = F.lit(True)",
        ("rules",),
    ),
)


def planted(folder: Path, defect: Defect) -> Any:
    """Plant a defect in a copy of the engine, and return the table runs that use it."""
    shutil.rmtree(folder / "delta_cdc", ignore_errors=True)
    shutil.copytree(_ENGINE / "delta_cdc", folder / "delta_cdc", ignore=shutil.ignore_patterns("*.pyc"))
    file = folder / "delta_cdc" / defect.file
    text = file.read_text()
    assert text.count(defect.find) == 1, f"{defect.file} has {text.count(defect.find)} times {defect.find}"
    file.write_text(text.replace(defect.find, defect.replace))
    for name in [
        name for name in sys.modules if name.split(".")[0] == "delta_cdc" or name.startswith("tests.")
    ]:
        if name != __name__:
            del sys.modules[name]
    importlib.invalidate_caches()
    return importlib.import_module("tests.histories.runs")


def found(spark: SparkSession, runs: Any, defect: Defect, spaces: int, most: int) -> tuple[int, str] | None:
    """Return the number of table runs that it took to find a defect, and how it showed."""
    able = (
        s
        for s in range(defect.kind, 10_000, 2)
        if all(one in f"{runs.drawn_arguments(s)} {runs.drawn_steps(s)}" for one in defect.needs)
    )
    for number, seed in enumerate(islice(able, most)):
        failure = runs.played(spark, seed, range(spaces), runs.drawn_steps(seed), Counter())
        if failure is not None:
            return number + 1, failure.text.splitlines()[-4:][0][:110]
    return None


def main() -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.histories.defects", description=__doc__)
    parser.add_argument("text", nargs="?", default="", help="only rules that contain this")
    parser.add_argument("--spaces", type=int, default=60, help="histories of one table run")
    parser.add_argument("--most", type=int, default=12, help="table runs for one defect")
    given = parser.parse_args()
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    spark, missed = started(), 0
    with tempfile.TemporaryDirectory(prefix="defects-") as folder:
        sys.path.insert(0, folder)
        for defect in (one for one in DEFECTS if given.text in one.rule):
            answer = found(spark, planted(Path(folder), defect), defect, given.spaces, given.most)
            missed += answer is None
            print(f"{defect.rule}: {'MISSED' if answer is None else answer}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
