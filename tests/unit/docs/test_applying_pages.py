"""What the pages about applying changes say beside their examples: names that exist, complete tables."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_args

import pytest

from delta_cdc.api.changes import apply_changes
from delta_cdc.core import errors
from delta_cdc.core.arguments import MODES
from delta_cdc.core.option_schema import APPLY
from delta_cdc.core.properties import LATENESS_HORIZON
from delta_cdc.core.spec import DELETED_COLUMN, SourceKind
from delta_cdc.run.apply import run_apply
from delta_cdc.spark import quarantine
from delta_cdc.spark.apply import batch, layout

_DOCS = Path(__file__).parents[3] / "docs"
_PAGES = (
    *("explanation/rows.md", "explanation/late-events.md", "explanation/files.md", "reference/events.md"),
    *("reference/results.md", "howto/snapshots.md", "howto/quarantine.md", "howto/repair.md"),
    *("howto/change-options.md", "howto/dry-run.md", "howto/expire-events.md", "howto/unattended.md"),
    "coming-from/databricks-auto-cdc.md",
)
_PARAMETERS = set(inspect.signature(apply_changes).parameters)
_OPTIONS = _PARAMETERS | {option.key for option in APPLY.values() if option.group}
#: Arguments that other pages tell about: where, how much, with what right.
_ELSEWHERE = {
    "spark",
    "source",
    "target",
    "insert_only",
    "starting_timestamp",
    "ending_version",
    "ending_timestamp",
    "max_bytes",
    "versions_per_commit",
    "initial_load",
    "cluster_by",
    "target_properties",
    "target_location",
    "target_comment",
    "publish_changes",
    "single_driver",
    "scratch",
    "storage_options",
    "run_id",
}


@pytest.fixture(scope="module")
def page() -> str:
    return "\n".join((_DOCS / name).read_text(encoding="utf-8") for name in _PAGES)


@pytest.fixture(scope="module")
def prose(page: str) -> str:
    return re.sub(r"^ *```.*?^ *```$", "", page, flags=re.M | re.S)


def _codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def _table(page: str, first: str) -> list[list[str]]:
    """Return the rows of the table whose first column has that head."""
    found = re.search(rf"^\| {re.escape(first)} \|.*\n\|[-|]+\|\n((?:\|.*\n)+)", page, re.M)
    assert found is not None, first
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in found[1].splitlines()]


def test_every_argument_has_its_place(prose: str) -> None:
    named = {name for code in _codes(prose) for name in re.findall(r"\w+", code)}
    assert _OPTIONS - named - _ELSEWHERE == set()
    assert _OPTIONS >= _ELSEWHERE


def test_arguments_that_are_given_exist(prose: str) -> None:
    given = {name for code in _codes(prose) for name in re.findall(r"(?:^|, )(\w+)=", code)}
    assert len(given) > 12
    # The pages on quarantine and expiry name an argument of an ingest, and one of a DAG.
    assert given <= _PARAMETERS | {"replay", "schedule"}


def test_sources_and_modes_have_their_rows(page: str, prose: str) -> None:
    kinds = [code for row in _table(page, "the source is") for code in _codes(row[1])]
    assert kinds == list(get_args(SourceKind))
    modes = [_codes(row[0])[0] for row in _table(page, "`mode`")]
    assert list(dict.fromkeys(modes)) == [
        mode for mode in MODES if mode not in ("incremental", "backfill", "interval")
    ]
    assert DELETED_COLUMN in _codes(prose)


def test_what_is_the_same_as_in_auto_cdc_exists_here(page: str) -> None:
    rows = _table(page, "AUTO CDC")
    same = [name for row in rows if row[1] == "the same" for name in _codes(row[0])]
    assert len(same) > 12
    assert {name for name in same if not name.startswith("__")} <= _PARAMETERS
    other = [name for row in rows for name in re.findall(r"`(\w+)(?:=[^`]*)?`", row[1])]
    assert set(other) <= _OPTIONS


def test_columns_of_the_quarantine(page: str) -> None:
    told = [name for row in _table(page, "column of the quarantine") for name in _codes(row[0])]
    assert sorted(told) == sorted(quarantine.COLUMNS)
    reasons = _codes(_table(page, "column of the quarantine")[0][1])
    assert {batch.NULL_KEY, batch.NULL_SEQUENCE} <= set(reasons)


def test_numbers_are_those_of_the_code(page: str) -> None:
    assert f"up to {batch.MOST_RANGES} of them" in page
    assert f"clustered by its keys (up to {layout._MAX_CLUSTERING_COLUMNS})" in page
    assert f"a batch has {layout._MANY_ROWS:,} rows or more" in page
    assert f"a target of up to {layout._WHOLE_FILES_TARGET // 1024**2} MiB" in page
    assert f"over {layout._COPY_FROM:.0%} of the target's rows".replace("%", " %") in page
    assert f"larger than {layout._FILE_SIZE // 1024**2} MiB" in page
    assert f'"target_properties": {{"{layout.FILE_SIZE}":' in page
    tries = inspect.signature(run_apply).parameters["max_attempts"].default
    assert f"{['', 'one', 'two', 'three', 'four', 'five', 'six'][tries]} tries in all" in page
    assert f"'{LATENESS_HORIZON}' = '3'" in page


def test_names_of_errors_exist(prose: str) -> None:
    named = set(re.findall(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)`", prose))
    named = {name for name in named if not name.endswith("Operator")}
    # Every named error of events, of logs and of snapshots has a sentence.
    assert {
        "InvalidEvent",
        "TooLate",
        "NotAppendOnly",
        "NullKey",
        "NullSequence",
        "SequenceNotIncreasing",
        "SnapshotNotAscending",
        "ConfigurationDrift",
    } <= named
    assert [name for name in sorted(named) if not hasattr(errors, name)] == []
