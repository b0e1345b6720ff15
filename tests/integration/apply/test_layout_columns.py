"""The columns of a history that its layout adds, and deleted rows that stay, against a model of one loop."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import explain_row, job
from delta_cdc.core.errors import InvalidConfiguration, SequenceNotBelowEnd, TargetSchemaClash
from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.sql import string
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run.verify import run_verify
from delta_cdc.spark.apply import target_columns
from delta_cdc.spark.changes.states import SEQUENCE
from tests.support.engine import newest
from tests.support.event_flow import LogFlow
from tests.support.event_streams import append, create_log
from tests.support.layout_sources import KINDS
from tests.support.oracle import plain, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.layout_sources import Key, Source, Walk

END = 1_000_000
LAYOUT: dict[str, Any] = {
    "stored_as_scd_type": 2,
    "start_column": "valid_from",
    "end_column": "valid_to",
    "end_value": str(END),
    "current_column": "is_current",
}
ADDED = ("valid_from", "valid_to", "is_current")
MODES = ("hard", "soft", "new_version")


def modelled(walks: Mapping[Key, Walk], tracked: Sequence[str], mode: str) -> list[dict[str, Any]]:
    """Return the rows of a target, walking each key with one open row in the hand."""
    rows: list[dict[str, Any]] = []
    for walk in walks.values():
        row: dict[str, Any] | None = None
        for at, values in walk:
            before, row = row, _after(row, at, values, tracked, mode)
            if before is not None and before["valid_from"] not in (at, row and row["valid_from"]):
                rows.append({**before, "valid_to": at, "is_current": False})
        rows += [] if row is None else [{**row, "valid_to": END, "is_current": True}]
    return rows


def _after(
    row: dict[str, Any] | None,
    at: Any,
    values: Mapping[str, Any] | None,
    tracked: Sequence[str],
    mode: str,
) -> dict[str, Any] | None:
    """Return the open row of a key after one event; it begins at ``at``, or goes on."""
    if values is None:
        if row is None or row["_deleted"]:
            return row
        return {
            "hard": None,
            "soft": {**row, "_deleted": True},
            "new_version": {**row, "_deleted": True, "valid_from": at},
        }[mode]
    goes_on = (
        row is not None
        and not row["_deleted"]
        and all(plain(row[name]) == plain(values[name]) for name in tracked)
    )
    return {**values, "_deleted": False, "valid_from": row["valid_from"] if row and goes_on else at}


# -- sources --------------------------------------------------------------------------------------
@dataclass
class Targets:
    """The targets of a source, by delete mode."""

    source: Source
    folder: str
    targets: dict[str, LogFlow] = field(default_factory=dict)

    def flow(self, spark: SparkSession, mode: str) -> LogFlow:
        """Return the target of a delete mode, applied at the first call."""
        if mode not in self.targets:
            arguments = {**LAYOUT, **self.source.arguments, "delete_mode": mode}
            if mode == "new_version":
                arguments["partition_by"] = ["is_current"]
            flow = LogFlow(spark, self.folder, f"{self.folder} {mode}", arguments, pipeline=mode)
            # `make test` has one of these modes: the load takes half of the log, and one run the rest. The
            # load of a table of rows would not have the older ones.
            takes_events = arguments.get("source_kind") == "change_log"
            for end in self.source.ends[takes_events and mode == "soft" :]:
                flow.apply(end)
            self.targets[mode] = flow
        return self.targets[mode]

    def differences(self, flow: LogFlow, mode: str) -> list[Any]:
        columns = [*self.source.keys, *self.source.values, *ADDED, *(["_deleted"] if mode != "hard" else [])]
        found = rows_of(flow.rows(), columns)
        expected = rows_of(modelled(self.source.walks, self.source.tracked, mode), columns)
        return (
            [("too many", r) for r in found if r not in expected]
            + [("missing", r) for r in expected if r not in found]
            + ([("twice", len(found), len(expected))] if len(found) != len(expected) else [])
        )


#: A history of copies that name their version cannot be soft: its rows would not show which copies had them.
CASES = [(kind, mode) for kind in KINDS for mode in MODES if (kind, mode) != ("dated copies", "soft")]
#: Of a feed, test_a_table_that_comes_from_elsewhere has the columns, and test_histories.py the histories.
IDS = [" ".join(case) for case in CASES]


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives a source, written at the first call."""
    made: dict[str, Targets] = {}
    root = tmp_path_factory.mktemp("layout")

    def give(kind: str) -> Targets:
        if kind not in made:
            folder = str(root / kind)
            made[kind] = Targets(KINDS[kind](spark, folder), folder)
        return made[kind]

    return give


def verified(flow: LogFlow) -> dict[str, str]:
    """Return the checks of a target that found something."""
    (found,) = run_verify(
        [VerifyRequest(pipeline=flow.pipeline, target=flow.target)], execute=partial(job.run, flow.spark)
    )
    assert found.error is None, found.error
    return {
        check.check: f"{check.detail} {check.samples}" for check in found.checks if check.status == "finding"
    }


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_random_histories(spark: SparkSession, sources: Any, kind: str, mode: str) -> None:
    source = sources(kind)
    flow = source.flow(spark, mode)
    differences = source.differences(flow, mode)
    assert not differences, f"{len(differences)} differ: {differences[:6]}"
    assert {row["is_current"] for row in flow.rows()} == {True, False}
    assert mode == "hard" or {row["_deleted"] for row in flow.rows()} == {True, False}
    assert verified(flow) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_a_reload_finds_nothing_to_write(spark: SparkSession, sources: Any, kind: str, mode: str) -> None:
    source = sources(kind)
    flow = source.flow(spark, mode)
    before = newest(flow.target)
    flow.apply(mode="reload")
    assert newest(flow.target) == before + 1
    assert source.differences(flow, mode) == []
    metrics = spark.sql(f"DESCRIBE HISTORY delta.`{flow.target}` LIMIT 1").collect()[0]["operationMetrics"]
    written = {
        name: int(metrics.get(f"numTargetRows{name}", 0)) for name in ("Inserted", "Updated", "Deleted")
    }
    assert not any(written.values()), written


# -- one table ------------------------------------------------------------------------------------
def _small(spark: SparkSession, folder: Path, **more: Any) -> LogFlow:
    """Return the flow of a feed of two rows, with all columns of the layout."""
    source = str(folder / "source")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, name STRING) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'Ada'), (2, 'Bo')")
    arguments = {**LAYOUT, "source_kind": "change_feed", "keys": ["id"], **more}
    return LogFlow(spark, source, str(folder / "target"), arguments)


def _found(flow: LogFlow, columns: Sequence[str] = ("id", "name", *ADDED)) -> list[tuple[Any, ...]]:
    return rows_of(flow.rows(), columns)


@pytest.mark.slow
def test_a_table_that_comes_from_elsewhere(spark: SparkSession, tmp_path: Path) -> None:
    """Its open rows must have what the layout says, else each key would soon have two of them."""
    flow = _small(spark, tmp_path)
    columns = "id INT, name STRING, valid_from BIGINT, valid_to BIGINT"
    spark.sql(f"CREATE TABLE delta.`{flow.target}` ({columns}) USING delta")
    with pytest.raises(TargetSchemaClash, match="has no column is_current, which current_column needs"):
        flow.apply(initial_load="none")
    spark.sql(f"ALTER TABLE delta.`{flow.target}` ADD COLUMN is_current BOOLEAN")
    spark.sql(
        f"INSERT INTO delta.`{flow.target}` VALUES (1, 'Ada', 0, {END}, true), (2, 'Bo', 0, NULL, true), "
        f"(3, 'Cy', 0, {END}, NULL), (2, 'B', -1, 0, true), (1, 'A', -1, 0, false)"
    )
    with pytest.raises(TargetSchemaClash, match=r"^3 row\(s\) of .* end_value and current_column") as failed:
        flow.apply(initial_load="none")
    spark.sql(failed.value.remedy.removeprefix("correct them once: ").removesuffix("."))
    adopted = {
        (1, "A", -1, 0, False),
        (1, "Ada", 0, END, True),
        (2, "B", -1, 0, False),
        (2, "Bo", 0, END, True),
        (3, "Cy", 0, END, True),
    }
    assert set(_found(flow)) == adopted
    flow.apply(initial_load="none")
    spark.sql(f"UPDATE delta.`{flow.log}` SET name = 'Bob' WHERE id = 2")
    flow.apply()
    assert set(_found(flow)) == (adopted - {(2, "Bo", 0, END, True)}) | {
        (2, "Bo", 0, 2, False),
        (2, "Bob", 2, END, True),
    }


@pytest.mark.slow
def test_columns_of_the_layout_after_the_first_run(spark: SparkSession, tmp_path: Path) -> None:
    flow = _small(spark, tmp_path, delete_mode="new_version")
    flow.apply()
    # A new column of the source does not disturb them.
    spark.sql(f"ALTER TABLE delta.`{flow.log}` ADD COLUMN city STRING")
    spark.sql(f"UPDATE delta.`{flow.log}` SET city = 'Bath' WHERE id = 1")
    spark.sql(f"DELETE FROM delta.`{flow.log}` WHERE id = 2")
    flow.apply()
    columns = ("id", "name", "city", *ADDED, "_deleted")
    rows = [
        (1, "Ada", "Bath", 3, END, True, False),
        (1, "Ada", None, 1, 3, False, False),
        (2, "Bo", None, 1, 4, False, False),
        (2, "Bo", None, 4, END, True, True),
    ]
    assert set(_found(flow, columns)) == set(rows)
    answer = explain_row(spark, flow.target, pipeline=flow.pipeline, key={"id": 2})
    assert [(row.start, row.end, row.deleted) for row in answer.rows] == [
        ("1", "4", False),
        ("4", None, True),
    ]
    # A damaged row comes again, by its key.
    spark.sql(f"UPDATE delta.`{flow.target}` SET name = 'x', _deleted = false WHERE id = 2 AND is_current")
    assert set(verified(flow)) == {"equals_source"}
    flow.apply(mode="repair", repair_keys="id = 2")
    assert [row[-1] for row in _found(flow, columns) if row[0] == 2 and row[-2]] == [True]
    spark.sql(f"UPDATE delta.`{flow.target}` SET is_current = NULL WHERE id = 1 AND NOT is_current")
    assert "or one that contradicts end_value or current_column" in verified(flow)["start_before_end"]
    spark.sql(f"UPDATE delta.`{flow.target}` SET is_current = false WHERE is_current IS NULL")
    # A key that comes back ends the version that says that it was deleted.
    spark.sql(f"INSERT INTO delta.`{flow.log}` VALUES (2, 'Bo', NULL)")
    flow.apply()
    assert (2, "Bo", None, 5, END, True, False) in _found(flow, columns)
    assert verified(flow) == {}
    spark.sql(f"ALTER TABLE delta.`{flow.target}` SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE delta.`{flow.target}` DROP COLUMN is_current")
    spark.sql(f"UPDATE delta.`{flow.log}` SET city = 'York' WHERE id = 1")
    with pytest.raises(
        TargetSchemaClash, match="has no column is_current, which current_column needs"
    ) as failed:
        flow.apply()
    add, update = failed.value.remedy.removeprefix("add it: ").removesuffix(".").split("; then ")
    spark.sql(add)
    spark.sql(update)
    flow.apply()
    assert {row[:-1] for row in _found(flow, columns) if row[-2]} == {
        (1, "Ada", "York", 6, END, True),
        (2, "Bo", None, 5, END, True),
    }


@pytest.mark.slow
def test_a_sequence_at_the_end_of_open_rows(spark: SparkSession, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    create_log(spark, log, "id INT, v STRING, seq INT, gone BOOLEAN", ("id",))
    append(spark, log, [(1, "a", 1, False)], "id INT, v STRING, seq INT, gone BOOLEAN")
    arguments = {**LAYOUT, "keys": ["id"], "sequence_by": "seq", "apply_as_deletes": "gone"}
    for value in ("9.5", "x", "99999999999"):
        flow = LogFlow(spark, log, str(tmp_path / "target"), {**arguments, "end_value": value})
        with pytest.raises(InvalidConfiguration, match=f"end_value is '{value}', which is no value of the"):
            flow.apply()
        assert not flow.exists
    flow = LogFlow(spark, log, str(tmp_path / "target"), {**arguments, "end_value": "100"})
    flow.apply()
    before = newest(flow.target)
    # A delete of a key without a row writes nothing, and its sequence is wrong nevertheless.
    append(spark, log, [(2, None, 100, True)], "id INT, v STRING, seq INT, gone BOOLEAN")
    with pytest.raises(SequenceNotBelowEnd, match="the sequence 100 is not below the end_value 100"):
        flow.apply()
    assert newest(flow.target) == before


@pytest.mark.parametrize(
    ("kind", "text", "fits"),
    [
        ("DATE", "9999-12-31", True),
        ("DATE", "9999-12-31 12:00:00", False),
        ("TIMESTAMP", "9999-12-31", True),
        ("TIMESTAMP", "9999-12-31T23:59:59.999999Z", True),
        ("TIMESTAMP_NTZ", "9999-12-31 00:00:00.0000001", False),
        ("DECIMAL(4, 1)", "999.90", True),
        ("DECIMAL(4, 1)", "999.99", False),
        ("DOUBLE", "1e300", True),
        ("STRING", "~{0}'", True),
        ("STRUCT<a: INT>", "9", False),
    ],
)
def test_an_end_value_is_one_of_the_sequences_type(
    spark: SparkSession, kind: str, text: str, fits: bool
) -> None:
    options = ApplyOptions(keys=("id",), stored_as_scd_type=2, end_value=text)
    rows = spark.sql(f"SELECT CAST(NULL AS {kind}) AS {SEQUENCE}")
    if not fits:
        with pytest.raises(InvalidConfiguration, match="is no value of the type"):
            target_columns.bounded(rows, options)
        return
    assert target_columns.bounded(rows, options).collect()[0][0] is None
    highest = spark.sql(f"SELECT CAST({string(text)} AS {kind}) AS {SEQUENCE}")
    with pytest.raises(Exception, match="SequenceNotBelowEnd"):
        target_columns.bounded(highest, options).collect()
