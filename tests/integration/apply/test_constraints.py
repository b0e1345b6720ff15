"""Rows that break a rule of the target's own: one error names rule and rows, and nothing is written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.options import ApplyOptions
from tests.integration.apply.test_refusals import TYPE_1, TYPE_2, refused, table
from tests.support.engine import Flow, newest, versions
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import JobResult

SOFT = replace(TYPE_1, delete_mode="soft")
PARTIAL = replace(TYPE_1, ignore_null_updates=True)
APPEND = ApplyOptions(insert_only=True, keys=())
HISTORY = ", __START_AT BIGINT, __END_AT BIGINT"
CHECK = "ALTER TABLE {} ADD CONSTRAINT n_small CHECK (n < 50 OR n IS NULL)"

#: The rules of one target -> a change of key 2 that breaks the rule, and what the error says of it.
RULES: dict[str, tuple[str, tuple[str, ...]]] = {
    "check": ("UPDATE {} SET n = 99 WHERE id = 2", ("CHECK constraint n_small", "(n < 50)", "- n : 99")),
    "not null": (
        "UPDATE {} SET v = NULL WHERE id = 2",
        ("NOT NULL constraint violated for column: v",),
    ),
    "varchar": ("UPDATE {} SET v = 'abcd' WHERE id = 2", ('Value "abcd"', "length(v) <= 3")),
}
#: Changes that keep all rules, in the version that breaks one.
LAWFUL = "DELETE FROM {} WHERE id = 1", "UPDATE {} SET v = 'abc' WHERE id = 3"


class Ruled:
    """Targets with all rules, each made once and copied for each test."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark, self._folder = spark, folder
        self._source = table(spark, folder / "source", rows="(1,'a',10),(2,'b',10),(3,'c',10)")
        self._made: list[tuple[Flow, bool]] = []

    def flow(self, folder: Path, options: ApplyOptions, rule: str, *, loaded: bool = True) -> Flow:
        """Return a flow whose source breaks a rule in its newest version.

        :param loaded: whether the target holds the source's first version
        """
        flow = self._of(options, loaded=loaded).copied(folder)
        for statement in (*LAWFUL, RULES[rule][0]):
            self._spark.sql(statement.format(f"delta.`{flow.source}`"))
        return flow

    def _of(self, options: ApplyOptions, *, loaded: bool) -> Flow:
        for flow, held in self._made:
            if (flow.options, held) == (options, loaded):
                return flow
        flow = Flow(self._spark, self._source, str(self._folder / str(len(self._made))), options)
        more = HISTORY if options.stored_as_scd_type == 2 else ""
        columns = f"id INT, v VARCHAR(3) NOT NULL, n INT{more}"
        self._spark.sql(f"CREATE TABLE delta.`{flow.target}` ({columns}) USING delta")
        self._spark.sql(CHECK.format(f"delta.`{flow.target}`"))
        if loaded:
            flow.through(0)
        self._made.append((flow, loaded))
        return flow


@pytest.fixture(scope="module")
def ruled(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Ruled:
    return Ruled(spark, tmp_path_factory.mktemp("ruled"))


def broken(flow: Flow, result: JobResult, *words: str) -> None:
    """Check that a job was refused for a rule, and by which rows."""
    told = "Of the rows that break this rule: id = 2. Nothing was written to it."
    refused(flow, result, "TargetConstraintViolated", flow.target, told, *words)
    assert result.error is not None
    error = DeltaCdcError.from_dict(result.error)
    assert "a retry would fail in the same way" in error.remedy
    assert not error.retryable
    assert "calling o" not in error.message
    assert "\tat " not in error.message


@pytest.mark.slow
@pytest.mark.parametrize("rule", RULES)
def test_a_load(ruled: Ruled, tmp_path: Path, rule: str) -> None:
    flow = ruled.flow(tmp_path, TYPE_1, rule, loaded=False)
    empty = versions(flow.target)
    broken(flow, flow.load(), *RULES[rule][1])
    assert versions(flow.target) == empty


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "options"),
    slow_but(
        [*((rule, options) for rule in RULES for options in (TYPE_1, TYPE_2)), ("not null", SOFT)],
        ("check", TYPE_2),
    ),
    ids=lambda value: value if isinstance(value, str) else f"{value.stored_as_scd_type} {value.delete_mode}",
)
def test_an_apply(ruled: Ruled, tmp_path: Path, rule: str, options: ApplyOptions) -> None:
    flow = ruled.flow(tmp_path, options, rule)
    before, rows = versions(flow.target), flow.rows()
    broken(flow, flow.apply(), *RULES[rule][1])
    assert versions(flow.target) == before
    assert flow.rows() == rows


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "options"),
    [("reload", TYPE_2), ("apply", PARTIAL)],
    ids=["reload", "partial"],
)
def test_rows_that_are_compared_with_the_target(
    ruled: Ruled, tmp_path: Path, kind: str, options: ApplyOptions
) -> None:
    flow = ruled.flow(tmp_path, options, "check")
    before, last = versions(flow.target), newest(flow.source)
    result = flow.run(flow.step("reload", last, last)) if kind == "reload" else flow.apply()
    broken(flow, result, *RULES["check"][1])
    assert versions(flow.target) == before


@pytest.mark.slow
def test_a_struct_whose_fields_have_another_order(spark: SparkSession, tmp_path: Path) -> None:
    """The rows that break a rule are found by name: by position, the row of the target would break it."""
    flow = Flow(spark, str(tmp_path / "source"), str(tmp_path / "target"), ApplyOptions(keys=("id",)))
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE delta.`{flow.source}` (id INT, s STRUCT<a: INT, b: INT>) USING delta {feed}")
    spark.sql(f"CREATE TABLE delta.`{flow.target}` (id INT, s STRUCT<b: INT, a: INT>) USING delta")
    spark.sql(f"ALTER TABLE delta.`{flow.target}` ADD CONSTRAINT few CHECK (s.a < 50)")
    spark.sql(f"INSERT INTO delta.`{flow.source}` VALUES (1, struct(1, 99)), (2, struct(2, 99))")
    flow.through(1)
    spark.sql(f"UPDATE delta.`{flow.source}` SET s = named_struct('a', 99, 'b', 1) WHERE id = 2")
    broken(flow, flow.apply(), "CHECK constraint few")


@pytest.mark.slow
def test_an_append(spark: SparkSession, tmp_path: Path) -> None:
    """Rows without keys are told by the values that Delta names."""
    source = table(spark, tmp_path / "source", "INSERT INTO {} VALUES (7, 'x', 99)")
    flow = Flow(spark, source, str(tmp_path / "target"), APPEND).through(0)
    spark.sql(CHECK.format(f"delta.`{flow.target}`"))
    before = versions(flow.target)
    refused(flow, flow.apply(), "TargetConstraintViolated", "n_small", "- n : 99", "Nothing was written")
    assert versions(flow.target) == before


@pytest.mark.slow
def test_a_target_that_only_takes_appends(spark: SparkSession, tmp_path: Path) -> None:
    source = table(spark, tmp_path / "source", "DELETE FROM {} WHERE id = 1")
    options = replace(TYPE_1, target_properties={"delta.appendOnly": "true"})
    flow = Flow(spark, source, str(tmp_path / "target"), options).through(0)
    before = versions(flow.target)
    refused(flow, flow.apply(), "TargetConstraintViolated", "DELTA_CANNOT_MODIFY_APPEND_ONLY", flow.target)
    assert flow.results[-1].error is not None
    assert "delta.appendOnly" in flow.results[-1].error["remedy"]
    assert versions(flow.target) == before


@pytest.mark.slow
@pytest.mark.parametrize("long", ["ä" * 130, "/" * 90], ids=["bytes", "escaped"])
def test_a_partition_whose_folder_cannot_be_made(spark: SparkSession, tmp_path: Path, long: str) -> None:
    """Its name has more bytes than a file system takes, though the value has not."""
    source = table(spark, tmp_path / "source", f"UPDATE {{}} SET v = '{long}' WHERE id = 2")
    options = replace(TYPE_1, partition_by={"v": None})
    flow = Flow(spark, source, str(tmp_path / "target"), options)
    broken(flow, flow.load(1), "the partition column v", "too long")
    before = versions(flow.through(0).target)
    broken(flow, flow.apply(), "the partition column v", "too long")
    assert versions(flow.target) == before


@pytest.mark.slow
def test_a_generated_column_that_others_fill(spark: SparkSession, tmp_path: Path) -> None:
    source = table(spark, tmp_path / "source", "UPDATE {} SET n = 11 WHERE id = 2")
    target = str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{target}` (id INT, v STRING, n INT GENERATED ALWAYS AS (id * 0 + 10)) "
        "USING delta"
    )
    flow = Flow(spark, source, target, TYPE_1).through(0)
    broken(flow, flow.apply(), "CHECK constraint Generated Column", "- n : 11")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["apply", "reset"])
def test_a_rule_of_a_column_that_only_the_target_has(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """No correction of the source's rows can meet it."""
    source = table(spark, tmp_path / "source", "INSERT INTO {} VALUES (7, 'x', 9)")
    flow = Flow(spark, source, str(tmp_path / "target"), TYPE_1).through(0)
    spark.sql(f"ALTER TABLE delta.`{flow.target}` ADD COLUMN tenant STRING")
    spark.sql(f"UPDATE delta.`{flow.target}` SET tenant = 'de'")
    spark.sql(f"ALTER TABLE delta.`{flow.target}` ADD CONSTRAINT ours CHECK (tenant IN ('de', 'at'))")
    before = versions(flow.target)
    result = flow.run(flow.step(kind, newest(source), newest(source)))
    refused(flow, result, "TargetConstraintViolated", "ours", "Nothing was written")
    assert result.error is not None
    assert result.error["remedy"].startswith("the rule names a column that the run does not write")
    assert versions(flow.target) == before


@pytest.mark.slow
def test_a_nested_field_that_may_not_be_null(spark: SparkSession, tmp_path: Path) -> None:
    """A MERGE does not cast to such a struct: its columns do not fit, and no expression is to blame."""
    source = str(tmp_path / "source")
    rows = spark.sql("SELECT 1 AS id, named_struct('a', if(id = 0, 1, NULL)) AS s FROM range(1)")
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (2, named_struct('a', cast(NULL AS INT)))")
    target = str(tmp_path / "target")
    spark.sql(f"CREATE TABLE delta.`{target}` (id INT, s STRUCT<a: INT NOT NULL>) USING delta")
    flow = Flow(spark, source, target, TYPE_1)
    broken(flow, flow.load(1), "column: s.a")
    refused(flow.through(0), flow.apply(), "TargetSchemaClash", '"STRUCT<a: INT NOT NULL>"', "Nothing was")


@pytest.mark.slow
def test_what_the_sql_of_the_user_raises_stays_raised(spark: SparkSession, tmp_path: Path) -> None:
    """Spark's own words in full, of a failure that the same rows would meet again."""
    source = table(spark, tmp_path / "source", "UPDATE {} SET n = 0 WHERE id = 2")
    options = replace(TYPE_1, select=("id", "cast(100 / n AS INT) AS part"))
    flow = Flow(spark, source, str(tmp_path / "target"), options).through(0)
    before = versions(flow.target)
    refused(flow, flow.apply(), "JobRefused", "[DIVIDE_BY_ZERO]", "100 / n")
    assert versions(flow.target) == before
