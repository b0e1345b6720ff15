"""What cannot be applied is taken out, kept readable, and written once for one seal."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.options import ApplyOptions
from delta_cdc.core.spec import ApplySpec
from delta_cdc.core.watermark import PipelineState, Seal, SealStep, TableVersion
from delta_cdc.spark import catalog, quarantine
from delta_cdc.spark.apply import load, rows
from delta_cdc.spark.sealed import settling
from delta_cdc.spark.sealed.commit import attempt
from delta_cdc.spark.sealed.constraints import Destination
from tests.support.engine import (
    Flow,
    Quarantining,
    metadata,
    newest,
    newest_seal,
    seal_of,
    session_like,
    table_rows,
    versions,
)
from tests.support.steps import step as made_step

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from delta_cdc.core.steps import Step

#: After the load: what happens to each row of the source, in order.
STATEMENTS = (
    "UPDATE {} SET v = concat(v, '2'), n = NULL WHERE id IN (1, 2, 5)",  # lost
    # To the second, nothing that is tracked changes: what came before it was lost.
    "UPDATE {} SET v = if(id = 1, 'a3', 'b'), n = if(id = 1, 30, 40) WHERE id IN (1, 2)",
    "DELETE FROM {} WHERE id = 3",  # lost
    "INSERT INTO {} VALUES (3, 'c2', 60)",
    # One finds its key, another loses it: a delete, and a row that nobody finds again.
    "UPDATE {} SET id = if(id = 4, NULL, 7), n = if(id = 4, n, 70) WHERE id IS NULL OR id = 4",
)
ROWS = "(1,'a',10),(2,'b',10),(3,'c',10),(4,'d',12),(5,'e',10),(NULL,'x',10)"
HISTORY = [
    (1, "a", 10, 30),
    (1, "a3", 30, None),
    (2, "b", 10, None),
    (3, "c", 10, 60),
    (3, "c2", 60, None),
    (4, "d", 12, 13),
    (5, "e", 10, None),
    (7, "x", 70, None),
]
TYPE_1 = ApplyOptions(keys=("id",), on_invalid="quarantine")
TYPE_2 = replace(TYPE_1, stored_as_scd_type=2, sequence_by="n", delete_sequence="nullif(n + 1, 11)")


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    path = str(tmp_path_factory.mktemp("quarantine") / "source")
    frame = spark.sql(f"SELECT * FROM VALUES {ROWS} t(id, v, n)").coalesce(1)
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    for statement in STATEMENTS:
        spark.sql(statement.format(f"delta.`{path}`"))
    return path


@pytest.mark.slow
def test_what_has_no_place_in_the_history_of_its_key(
    spark: SparkSession, tmp_path: Path, source: str
) -> None:
    flow = Quarantining(spark, source, str(tmp_path / "history"), TYPE_2)
    flow.through(0, newest(source))
    assert flow.taken_out() == [
        [("null_key", 0, None, "x")],
        [
            ("null_key", 5, None, "d"),
            ("null_sequence", 1, "1", "a2"),
            ("null_sequence", 1, "2", "b2"),
            ("null_sequence", 1, "5", "e2"),
            ("null_sequence", 3, "3", "c"),
        ],
    ]
    found = [(row["id"], row["v"], row["__START_AT"], row["__END_AT"]) for row in flow.rows()]
    assert sorted(found, key=str) == sorted(HISTORY, key=str)
    ours, theirs = newest_seal(flow.target), newest_seal(flow.aside)
    assert ours is not None
    assert theirs is not None
    assert (ours.number, ours.state.highest_sequence) == (theirs.number, "70")


@pytest.mark.slow
def test_what_has_no_key(spark: SparkSession, tmp_path: Path, source: str) -> None:
    flow = Quarantining(spark, source, str(tmp_path / "rows"), TYPE_1)
    flow.through(0, newest(source))
    assert flow.taken_out() == [[("null_key", 0, None, "x")], [("null_key", 5, None, "d")]]
    assert sorted((row["id"], row["v"]) for row in flow.rows()) == [
        (1, "a3"), (2, "b"), (3, "c2"), (5, "e2"), (7, "x")
    ]  # fmt: skip


def changed_source(spark: SparkSession, path: Path, columns: str, *statements: str) -> str:
    properties = "TBLPROPERTIES (delta.enableChangeDataFeed = true)"
    spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta {properties}")
    for statement in statements:
        spark.sql(statement.format(f"delta.`{path}`"))
    return str(path)


@pytest.mark.slow
def test_a_missing_key_among_keys_that_lie_apart(spark: SparkSession, tmp_path: Path) -> None:
    """The ranges of texts, dates and numbers of a batch cover no NULL."""
    source = changed_source(
        spark,
        tmp_path / "source",
        "id STRING, day DATE, no BIGINT, v STRING",
        "INSERT INTO {} VALUES ('a', DATE'2020-01-01', 1, 'x')",
        "INSERT INTO {} VALUES ('b', DATE'2025-01-01', 90000, 'x'), ('c', NULL, 7, ''), (NULL, NULL, 1, '')",
    )
    options = replace(TYPE_1, keys=("id", "day", "no"))
    flow = Quarantining(spark, source, str(tmp_path / "target"), options)
    flow.through(1, newest(source))
    assert sorted((row["id"], row["no"]) for row in flow.rows()) == [("a", 1), ("b", 90000)]
    assert sorted(row["v"] for row in table_rows(spark, flow.target)) == ["x", "x"]
    assert flow.results[-1].counts["quarantined"] == 2


@pytest.mark.slow
def test_a_change_that_does_not_land_after_one_without_a_sequence(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = changed_source(
        spark,
        tmp_path / "source",
        "id INT, v STRING, n INT, other INT",
        "INSERT INTO {} VALUES (1, 'a', 10, 0)",
        "UPDATE {} SET v = 'b', n = NULL",
        "UPDATE {} SET other = 5",
        "UPDATE {} SET v = 'c', n = 30",
    )
    options = replace(TYPE_2, except_column_list=("other",))
    flow = Quarantining(spark, source, str(tmp_path / "target"), options)
    flow.through(1, newest(source))
    found = [(row["v"], row["__START_AT"], row["__END_AT"]) for row in flow.rows()]
    assert sorted(found) == [("a", 10, 30), ("c", 30, None)]


@pytest.mark.slow
@pytest.mark.parametrize("partial", [False, True], ids=["type 2", "type 1, columns kept"])
def test_duplicates_are_refused_but_not_rows_without_a_key(
    spark: SparkSession, tmp_path: Path, partial: bool
) -> None:
    source = changed_source(
        spark,
        tmp_path / "source",
        "id INT, v STRING, n INT",
        "INSERT INTO {} VALUES (9, 'z', 1)",
        "INSERT INTO {} VALUES (NULL, 'x', 1), (NULL, 'y', 1)",
        "INSERT INTO {} VALUES (NULL, 'x', 1), (1, 'a', NULL), (1, 'b', 5)",
    )
    options = replace(TYPE_1, ignore_null_updates=True) if partial else TYPE_2
    flow = Quarantining(spark, source, str(tmp_path / "target"), options)
    flow.through(1, 2)
    assert flow.results[-1].counts["quarantined"] == 2
    assert {row["reason"] for row in table_rows(spark, flow.aside)} == {"null_key"}
    before = [versions(flow.target), versions(flow.aside)]
    error = flow.apply(3).error
    assert error is not None
    assert error["class"] == "KeyNotUnique"
    assert "for instance id = 1)" in error["message"]
    assert [versions(flow.target), versions(flow.aside)] == before


@pytest.mark.slow
def test_what_is_valid_is_not_looked_at_twice(spark: SparkSession, tmp_path: Path, source: str) -> None:
    flow = Flow(spark, source, str(tmp_path / "valid"), replace(TYPE_1, where="id IS NOT NULL"))
    step = flow.step("load", 0, 0)
    work = load.load(session_like(spark), flow.spec(step), step)
    assert (work.quarantined, work.counts) == (None, {"rows": 5})


# -- the table ----------------------------------------------------------------------------------
KEYS = {
    "k": "DECIMAL(38,18)",
    "d": "DOUBLE",
    "b": "BINARY",
    "t": "TIMESTAMP",
    "w": "TIMESTAMP_NTZ",
    "s": "STRING",
    "day": "DATE",
    "flag": "BOOLEAN",
    "p": "STRUCT<x: INT, y: STRING>",
}
ONE_KEY = (
    "99999999999999999999.000000000000000001BD AS k, double('NaN') AS d, X'00FFFE' AS b, "
    "TIMESTAMP'2024-02-29 00:00:00.000001Z' AS t, TIMESTAMP_NTZ'0001-01-01 00:00:00.1' AS w, "
    "'q\"\\'\\n日' AS s, DATE'9999-12-31' AS day, false AS flag, named_struct('x', 1, 'y', NULL) AS p"
)


def shape_of(frame: DataFrame) -> rows.Shape:
    return rows.Shape(
        keys=tuple(KEYS),
        values=tuple(frame.columns),
        tracked=(),
        partitions=(),
        schema=frame.schema,
        sequence_type=None,
    )


def spec_of(tmp_path: Path, pipeline: str = "flow") -> ApplySpec:
    return ApplySpec(
        pipeline=pipeline,
        run_id="r",
        source_uri="s",
        target_uri=str(tmp_path / "t"),
        options=TYPE_1,
        steps=(),
        quarantine_uri=str(tmp_path / "t__quarantine"),
    )


def step_of(start: int, end: int, seal: int) -> Step:
    return made_step("apply", start, TableVersion("i", end), seal)


def seal_for(spec: ApplySpec, step: Step) -> Seal:
    done = SealStep("apply", step.starting_version, step.ending_version, "f", "r")
    return Seal(spec.pipeline, step.seal_number, "s", PipelineState(step.watermark, 0), done)


@pytest.mark.slow
def test_keys_come_back_as_they_were_and_events_stay_readable(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    session, spec, step = session_like(spark), spec_of(tmp_path), step_of(1, 2, 5)
    frame = session.sql(f"SELECT {ONE_KEY}, NULL AS nothing, float('-inf') AS f FROM range(2)")
    frame = frame.selectExpr(*[f"CAST({k} AS {kind}) AS {k}" for k, kind in KEYS.items()], "nothing", "f")
    lost = frame.withColumn("s", F.lit(None).cast("string"))

    def out(found: DataFrame, reason: str) -> DataFrame:
        return quarantine.rows(
            found,
            spec=spec,
            step=step,
            reason=F.lit(reason),
            keys=tuple(KEYS),
            sequence=F.lit("7"),
            event=F.struct("*"),
            commit_version=F.lit(2),
        )

    told = out(frame, "tied").union(out(lost, "null_key"))
    assert quarantine.write(session, spec, step, seal_for(spec, step), told) is None
    stored = table_rows(spark, spec.quarantine_uri, "reason = 'tied'")[0]
    told_of = {
        "reason": "tied",
        "pipeline": "flow",
        "seal": 5,
        "starting_version": 1,
        "ending_version": 2,
        "commit_version": 2,
        "position": None,
        "adapter": None,
    }
    assert {name: stored[name] for name in told_of} == told_of
    event = json.loads(stored["raw"], parse_float=str)
    assert event == {
        "k": "99999999999999999999.000000000000000001",
        "d": "NaN",
        "b": "AP/+",
        "t": "2024-02-29T00:00:00.000001Z",
        "w": "0001-01-01T00:00:00.100000",
        "s": "q\"'\n日",
        "day": "9999-12-31",
        "flag": False,
        "p": {"x": 1, "y": None},
        "nothing": None,
        "f": "-Infinity",
    }
    found = quarantine.keys_of(session, spec.quarantine_uri, "flow", shape_of(frame))
    assert [(f.name, f.dataType) for f in found.schema] == [
        (f.name, f.dataType) for f in frame.select(*KEYS).schema
    ]
    # Two events of one key, and one without a key, which nobody can replay by key.
    assert found.count() == 1
    same = " AND ".join(f"f.{k} <=> e.{k}" for k in KEYS)
    found.createOrReplaceTempView("found_keys")
    frame.distinct().createOrReplaceTempView("expected_keys")
    assert session.sql(f"SELECT * FROM found_keys f JOIN expected_keys e ON {same}").count() == 1
    assert quarantine.keys_of(session, spec.quarantine_uri, "other", shape_of(frame)).isEmpty()
    for number, rest in ((5, 4), (6, 2)):
        taken = quarantine.replayed_rows(spec, step_of(3, 4, number), None)
        settling.mark(session, taken)
        settling.delete(session, taken.uri, taken.mark)
        assert len(table_rows(spark, spec.quarantine_uri)) == rest
    assert [row["reason"] for row in table_rows(spark, spec.quarantine_uri)] == ["null_key"] * 2


@pytest.mark.slow
def test_one_seal_one_set_of_rows(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tries that died before the target's commit leave rows that the next try of their seal replaces."""
    from pyspark.sql import functions as F

    session, ours = session_like(spark), spec_of(tmp_path)
    uri = ours.quarantine_uri

    def write(
        spec: ApplySpec, start: int, end: int, seal: int, number: int, base: TableVersion | None = None
    ) -> str | None:
        step = replace(step_of(start, end, seal), planned_on=base)
        out = quarantine.rows(
            session.range(number),
            spec=spec,
            step=step,
            reason=F.lit("tied"),
            keys=("id",),
            sequence=F.lit(None),
            event=F.struct("id"),
            commit_version=F.lit(start),
        )
        return quarantine.write(session, spec, step, seal_for(spec, step), out)

    def held() -> list[tuple[str, int, int, int, int]]:
        found = spark.read.format("delta").load(uri)
        groups = found.groupBy("pipeline", "seal", "starting_version", "ending_version").count().collect()
        return sorted(tuple(row) for row in groups)  # type: ignore[misc]

    real, calls = catalog.has_table, []

    def too_early(*given: Any) -> bool:
        """The table is made by somebody else right after it was looked for."""
        calls.append(given)
        found = real(*given)
        if len(calls) == 1:
            assert write(spec_of(tmp_path, "other"), 1, 1, 9, 1) is None
        return found

    monkeypatch.setattr(catalog, "has_table", too_early)
    assert write(ours, 1, 2, 5, 2) is None
    assert held() == [("flow", 5, 1, 2, 2), ("other", 9, 1, 1, 1)]
    seal = seal_of(uri, newest(uri))
    assert seal is not None
    assert (seal.pipeline, seal.number) == ("flow", 5)
    before = versions(uri)
    assert write(ours, 1, 2, 5, 2) is None
    assert versions(uri) == before
    # The target never saw seal 5; meanwhile there is more to read.
    assert write(ours, 1, 4, 5, 3) is None
    assert held() == [("flow", 5, 1, 4, 3), ("other", 9, 1, 1, 1)]
    # The rows of a longer range stay, because its driver may still commit; only the others are added.
    assert write(ours, 1, 3, 5, 4) is None
    assert held() == [("flow", 5, 1, 3, 1), ("flow", 5, 1, 4, 3), ("other", 9, 1, 1, 1)]
    # As of two first loads: the later number never reached the target.
    assert write(ours, 5, 6, 6, 1) is None
    assert write(ours, 1, 9, 5, 4) is None
    assert held() == [("flow", 5, 1, 9, 4), ("flow", 6, 5, 6, 1), ("other", 9, 1, 1, 1)]
    target = ours.target_uri
    session.range(1).write.format("delta").save(target)
    sixth = seal_for(ours, step_of(5, 6, 6))
    append = session.range(1).write.format("delta").mode("append")
    attempt(session, sixth, lambda: append.save(target), Destination(target))
    late = write(ours, 1, 12, 5, 5, TableVersion("i", 0))
    assert late is not None
    assert "a run after this one" in late
    assert ("flow", 5, 1, 9, 4) in held()
    assert metadata(uri)["configuration"]["delta.enableDeletionVectors"] == "true"


@pytest.mark.slow
def test_a_table_that_is_no_quarantine(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions as F

    from delta_cdc.core.errors import TableNotFound, TargetSchemaClash

    session, spec, step = session_like(spark), spec_of(tmp_path), step_of(1, 2, 5)
    frame = session.sql("SELECT 1 AS id")
    with pytest.raises(TableNotFound, match="t__quarantine"):
        quarantine.keys_of(session, spec.quarantine_uri, "flow", shape_of(frame))
    frame.withColumn("pipeline", F.lit("flow")).withColumn("seal", F.lit(1)).withColumn(
        "starting_version", F.lit(1)
    ).withColumn("ending_version", F.lit(1)).write.format("delta").save(spec.quarantine_uri)
    out = quarantine.rows(
        frame,
        spec=spec,
        step=step,
        reason=F.lit("tied"),
        keys=("id",),
        sequence=F.lit(None),
        event=F.struct("id"),
        commit_version=F.lit(1),
    )
    with pytest.raises(TargetSchemaClash, match="no column reason"):
        quarantine.write(session, spec, step, seal_for(spec, step), out)
    assert versions(spec.quarantine_uri) == [0]
