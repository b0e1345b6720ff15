"""Bad input: a named error with its remedy, and nothing written."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from delta_cdc import apply_changes
from delta_cdc.core.errors import InvalidConfiguration, InvalidExpression
from delta_cdc.core.options import ApplyOptions
from delta_cdc.spark.changes.feed import FORBIDDEN_CONFS
from tests.support.engine import Flow, columns, newest, staged, versions
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from delta_cdc.core.spec import JobResult

TYPE_1, TYPE_2 = ApplyOptions(keys=("id",)), ApplyOptions(keys=("id",), stored_as_scd_type=2)
SOFT = replace(TYPE_1, delete_mode="soft")
BY_N = replace(TYPE_2, sequence_by="n", delete_sequence="n + 1")


def table(spark: SparkSession, path: Path, *statements: str, rows: str = "(1,'a',10),(2,'b',10)") -> str:
    """Make a source ``id, v, n`` and run statements on it; ``{}`` is its name."""
    frame = spark.sql(f"SELECT * FROM VALUES {rows} t(id, v, n)")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(str(path))
    for statement in statements:
        spark.sql(statement.format(f"delta.`{path}`"))
    return str(path)


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A source of one version, which no test changes."""
    return table(spark, tmp_path_factory.mktemp("refusals") / "source")


@pytest.fixture(scope="module")
def _loaded(
    spark: SparkSession, source: str, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[ApplyOptions], Flow]:
    folder, made = tmp_path_factory.mktemp("loaded"), list[Flow]()

    def load(options: ApplyOptions) -> Flow:
        for flow in made:
            if flow.options == options:
                return flow
        made.append(Flow(spark, source, str(folder / str(len(made))), options).through(0))
        return made[-1]

    return load


@pytest.fixture
def loaded(_loaded: Callable[[ApplyOptions], Flow], tmp_path: Path) -> Callable[..., Flow]:
    """Give a flow whose target holds version 0, and run statements on its source; ``{}`` is its name."""

    def copy(options: ApplyOptions, *statements: str) -> Flow:
        flow = _loaded(options).copied(tmp_path)
        for statement in statements:
            flow.spark.sql(statement.format(f"delta.`{flow.source}`"))
        return flow

    return copy


def refused(flow: Flow, result: JobResult, name: str, *words: str) -> None:
    assert result.status == "failed"
    assert result.error is not None
    assert result.error["class"] == name, result.error
    assert result.error["remedy"]
    for word in words:
        assert word in result.error["message"]


@pytest.mark.parametrize(
    ("options", "name", "word"),
    [
        (ApplyOptions(keys=("nope",)), "ColumnNotFound", "'nope'"),
        (replace(TYPE_2, track_history_column_list=("nope",)), "ColumnNotFound", "track_history_column_list"),
        (replace(TYPE_2, track_history_except_column_list=("x",)), "ColumnNotFound", "'x'"),
        (replace(TYPE_1, partition_by={"nope": None}), "ColumnNotFound", "partition_by"),
        (replace(TYPE_1, cluster_by=("nope",)), "ColumnNotFound", "cluster_by"),
        (replace(TYPE_1, where="nope > 1"), "InvalidExpression", "where"),
        (replace(TYPE_1, where="n >"), "InvalidExpression", "where"),
        (replace(TYPE_1, where="n"), "InvalidExpression", ""),
        (replace(TYPE_1, where="_change_type = 'insert'"), "InvalidExpression", "where"),
        (replace(TYPE_1, select=("id", "_commit_version AS x")), "InvalidExpression", "select"),
        (replace(TYPE_1, select=("id", "nope()")), "InvalidExpression", "select"),
        (replace(TYPE_1, select=("id", "v", "n AS V")), "InvalidExpression", "more than once"),
        (replace(TYPE_1, select=("id", "v AS _change_type")), "ReservedColumnName", "_change_type"),
        (replace(TYPE_2, select=("id", "v AS __end_at")), "ReservedColumnName", "__end_at"),
        (replace(TYPE_1, select=("id", "v AS __delta_cdc_x")), "ReservedColumnName", "__delta_cdc_x"),
        (replace(TYPE_2, sequence_by="nope", delete_sequence="n"), "InvalidExpression", "sequence_by"),
        (replace(TYPE_2, sequence_by="n", delete_sequence="v"), "InvalidExpression", "delete_sequence"),
        (
            replace(TYPE_2, sequence_by="array(n)", delete_sequence="array(n)"),
            "InvalidExpression",
            "no order",
        ),
        (replace(TYPE_2, sequence_by="X'00'", delete_sequence="X'00'"), "InvalidExpression", "no order"),
        (replace(TYPE_2, sequence_by="nullif(n, 10)", delete_sequence="n"), "NullSequence", "id = "),
        (replace(TYPE_1, column_list=("v", "nope")), "ColumnNotFound", "column_list: column 'nope'"),
        (replace(TYPE_1, except_column_list=("nope",)), "ColumnNotFound", "except_column_list"),
        (replace(TYPE_1, except_column_list=("ID",)), "InvalidConfiguration", "the key 'id'"),
        (replace(TYPE_1, apply_as_deletes="n"), "InvalidExpression", "apply_as_deletes = 'n' is of type int"),
        (replace(TYPE_1, apply_as_deletes="nope"), "InvalidExpression", "apply_as_deletes"),
        (replace(SOFT, select=("id", "v AS _DELETED")), "ReservedColumnName", "_DELETED"),
        (replace(TYPE_2, sequence_by=("n", "array(n)"), delete_sequence="n"), "InvalidExpression", "type"),
        (
            replace(TYPE_2, sequence_by=("n", "v"), delete_sequence="struct(v, n)"),
            "InvalidExpression",
            "delete_sequence",
        ),
        (
            replace(TYPE_2, sequence_by=("n", "nullif(v, 'b')"), delete_sequence="struct(n, v)"),
            "NullSequence",
            "id = 2",
        ),
        (ApplyOptions(keys=("n",)), "KeyNotUnique", "n = 10"),
        (ApplyOptions(keys=("k",), select=("nullif(id, 1) k", "v")), "NullKey", "1 row(s)"),
    ],
)
def test_a_load_that_is_refused_leaves_no_table(
    spark: SparkSession, tmp_path: Path, source: str, options: ApplyOptions, name: str, word: str
) -> None:
    flow = Flow(spark, source, str(tmp_path / "target"), options)
    refused(flow, flow.load(), name, word)
    assert not Path(flow.target).exists()


#: statements after the load -> what the apply says
BAD_FEEDS: dict[str, tuple[ApplyOptions, tuple[str, ...], str, str]] = {
    "null key": (TYPE_1, ("INSERT INTO {} VALUES (NULL, 'x', 1)",), "NullKey", "1 row(s)"),
    "null key in type 2": (TYPE_2, ("INSERT INTO {} VALUES (NULL, 'x', 1)",), "NullKey", "1 row(s)"),
    "two in one version": (TYPE_1, ("INSERT INTO {} VALUES (3,'x',1),(3,'y',1)",), "KeyNotUnique", "id = 3"),
    "two in one version, type 2": (
        TYPE_2,
        ("INSERT INTO {} VALUES (3,'x',1),(3,'y',1)",),
        "KeyNotUnique",
        "id = 3",
    ),
    "two in two versions": (
        TYPE_1,
        ("INSERT INTO {} VALUES (3,'x',1)", "INSERT INTO {} VALUES (3,'x',1)"),
        "KeyNotUnique",
        "id = 3",
    ),
    "two in two versions, type 2": (
        TYPE_2,
        ("INSERT INTO {} VALUES (3,'x',1)", "INSERT INTO {} VALUES (3,'x',1)"),
        "KeyNotUnique",
        "id = 3",
    ),
    "a key of the target inserted again": (
        TYPE_1,
        ("INSERT INTO {} VALUES (1,'x',1)",),
        "KeyNotUnique",
        "for instance 1)",
    ),
    "a key of the target inserted again, soft": (
        SOFT,
        ("INSERT INTO {} VALUES (1,'x',1)",),
        "KeyNotUnique",
        "for instance 1)",
    ),
    "a key of the target inserted again, type 2": (
        TYPE_2,
        ("INSERT INTO {} VALUES (1,'x',1)",),
        "KeyNotUnique",
        "for instance 1)",
    ),
    "a key of the target inserted again, then the older row deleted": (
        TYPE_1,
        ("INSERT INTO {} VALUES (1,'x',1)", "DELETE FROM {} WHERE id = 1 AND v <> 'x'"),
        "KeyNotUnique",
        "for instance 1)",
    ),
    "the same, type 2": (
        TYPE_2,
        ("INSERT INTO {} VALUES (1,'x',1)", "DELETE FROM {} WHERE id = 1 AND v <> 'x'"),
        "KeyNotUnique",
        "for instance 1)",
    ),
    "two keys become one": (TYPE_1, ("UPDATE {} SET id = 7",), "KeyNotUnique", "id = 7"),
    "an update of an insert-only source": (
        ApplyOptions(insert_only=True),
        ("INSERT INTO {} VALUES (3,'x',1)", "UPDATE {} SET v = 'z' WHERE id = 1"),
        "NotInsertOnly",
        "Version 2",
    ),
    "a sequence that falls inside the batch": (
        BY_N,
        ("UPDATE {} SET v = 'b', n = 20 WHERE id = 1", "UPDATE {} SET v = 'c', n = 15 WHERE id = 1"),
        "SequenceNotIncreasing",
        "id = 1",
    ),
    "a sequence that stands still against the open row": (
        BY_N,
        ("UPDATE {} SET v = 'b' WHERE id = 1",),
        "SequenceNotIncreasing",
        "id = 1",
    ),
    "a null sequence": (BY_N, ("UPDATE {} SET v = 'b', n = NULL WHERE id = 1",), "NullSequence", "id = 1"),
}


#: The same rule with another kind of target, or another way to break it.
REPEATED = (
    "null key in type 2",
    "two in one version",
    "two in one version, type 2",
    "two in two versions, type 2",
    "a key of the target inserted again, soft",
    "the same, type 2",
    "two keys become one",
    "a sequence that stands still against the open row",
)


@pytest.mark.parametrize("case", slow_but(BAD_FEEDS, *(case for case in BAD_FEEDS if case not in REPEATED)))
def test_an_apply_that_is_refused_commits_nothing(loaded: Callable[..., Flow], case: str) -> None:
    options, statements, name, word = BAD_FEEDS[case]
    flow = loaded(options, *statements)
    before = versions(flow.target)
    refused(flow, flow.apply(), name, word)
    assert versions(flow.target) == before


@pytest.mark.slow
def test_a_sequence_is_compared_with_closed_rows_too(spark: SparkSession, tmp_path: Path) -> None:
    """Touches need not increase; a deleted key that comes back with an older sequence is refused."""
    source = table(
        spark,
        tmp_path / "source",
        "UPDATE {} SET v = 'z' WHERE id = 2",
        "DELETE FROM {} WHERE id = 1",
        "INSERT INTO {} VALUES (1, 'again', 11)",
    )
    options = replace(BY_N, track_history_column_list=("n",))
    flow = Flow(spark, source, str(tmp_path / "target"), options).through(0, 1, 2)
    refused(flow, flow.apply(3), "SequenceNotIncreasing", "id = 1")
    # also where only the deletes are dated by hand
    options = replace(TYPE_2, sequence_by="_commit_version", delete_sequence="cast(-1 as bigint)")
    flow = Flow(spark, source, str(tmp_path / "dated"), options).through(0, 1)
    refused(flow, flow.apply(2), "SequenceNotIncreasing", "id = 1")


@pytest.mark.slow
def test_a_later_step_of_a_job_knows_the_sequences_of_the_earlier(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = table(spark, tmp_path / "source", "UPDATE {} SET v = 'b', n = 5 WHERE id = 1")
    flow = Flow(spark, source, str(tmp_path / "target"), BY_N)
    load = flow.step("load", 0, 0)
    apply = flow.step("apply", 1, 1, seal_number=load.seal_number + 1)
    refused(flow, flow.run(load, apply), "SequenceNotIncreasing", "id = 1")
    assert columns(flow.target) == ("id", "v", "n", "__START_AT", "__END_AT")


@pytest.mark.slow
def test_a_target_that_cannot_take_the_rows(spark: SparkSession, tmp_path: Path) -> None:
    source = table(spark, tmp_path / "source", "UPDATE {} SET v = 'b' WHERE id = 1")
    target = str(tmp_path / "target")
    spark.sql(f"CREATE TABLE delta.`{target}` (id INT, v DATE, n INT) USING delta")
    flow = Flow(spark, source, target, TYPE_1)
    refused(flow, flow.load(0), "TargetSchemaClash", "'v'")
    refused(flow, flow.apply(1, 1), "TargetSchemaClash", "'v'")
    assert versions(target) == [0]
    history = Flow(spark, source, str(tmp_path / "history"), TYPE_2).through(0)
    before = versions(history.target)
    history.options = replace(TYPE_2, sequence_by="_commit_timestamp")
    refused(history, history.apply(1), "ConfigurationDrift", "sequence")
    assert versions(history.target) == before


def test_a_change_type_that_nobody_knows(
    spark: SparkSession, tmp_path: Path, loaded: Callable[..., Flow]
) -> None:
    flow = loaded(TYPE_1, "UPDATE {} SET v = 'b' WHERE id = 1")
    imitation = str(tmp_path / "staging")
    feed = spark.read.format("delta").options(readChangeFeed="true", startingVersion=1).load(flow.source)
    feed.replace("update_postimage", "upsert", "_change_type").write.format("delta").save(imitation)
    before = versions(flow.target)
    refused(flow, flow.apply(1, staging=staged(imitation)), "WrongReader", "_change_type")
    assert versions(flow.target) == before
    assert newest(imitation) == 0


def test_a_change_without_a_type_is_no_insert(
    spark: SparkSession, tmp_path: Path, loaded: Callable[..., Flow]
) -> None:
    flow = loaded(ApplyOptions(insert_only=True), "INSERT INTO {} VALUES (7, 'g', 70)")
    imitation = str(tmp_path / "staging")
    feed = spark.read.format("delta").options(readChangeFeed="true", startingVersion=1).load(flow.source)
    feed.withColumn("_change_type", F.lit(None).cast("string")).write.format("delta").save(imitation)
    before = versions(flow.target)
    refused(flow, flow.apply(1, staging=staged(imitation)), "WrongReader", "1 change row(s)", "_change_type")
    assert versions(flow.target) == before


def test_a_reader_that_returns_the_table_itself(loaded: Callable[..., Flow]) -> None:
    flow = loaded(TYPE_1, "UPDATE {} SET v = 'b' WHERE id = 1")
    refused(flow, flow.apply(1, staging=staged(flow.source)), "WrongReader", "readChangeFeed")


@pytest.fixture(params=FORBIDDEN_CONFS)
def forbidden(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    spark.conf.set(request.param, "TRUE")
    yield request.param
    spark.conf.unset(request.param)


def test_confs_under_which_loss_is_silent(
    spark: SparkSession, tmp_path: Path, source: str, forbidden: str
) -> None:
    flow: Any = Flow(spark, source, str(tmp_path / "target"), TYPE_1)
    refused(flow, flow.load(), "ForbiddenConf", forbidden)
    refused(flow, flow.stage(str(tmp_path / "staging"), 0, 0), "ForbiddenConf", forbidden)
    assert not (tmp_path / "target").exists()
    assert not (tmp_path / "staging").exists()


EVENTS = ApplyOptions(keys=("id",), source_kind="change_log", sequence_by="n", apply_as_deletes="v = 'gone'")


@pytest.mark.parametrize(
    ("options", "argument"),
    [
        (replace(TYPE_1, where="n < unix_timestamp()"), "where"),
        (replace(TYPE_1, where="input_file_block_start() = n"), "where"),
        (replace(TYPE_1, select=("id", "uniform(1, 5) AS v")), "select"),
        (replace(TYPE_1, apply_as_deletes="v = randstr(1)"), "apply_as_deletes"),
        (replace(TYPE_1, partition_by={"day": "date'today'"}), "partition_by"),
        (replace(TYPE_2, sequence_by="uuid()", delete_sequence="v"), "sequence_by"),
        (replace(TYPE_2, sequence_by=("n", "current_timestamp()"), delete_sequence="n"), "sequence_by"),
        (replace(BY_N, delete_sequence="n + monotonically_increasing_id()"), "delete_sequence"),
        (replace(EVENTS, sequence_by="rand()"), "sequence_by"),
        (replace(EVENTS, where="v = current_user()"), "where"),
        (replace(EVENTS, apply_as_deletes="v = reflect('java.util.UUID', 'randomUUID')"), "apply_as_deletes"),
        (replace(EVENTS, apply_as_truncates="timestamp'now' < timestamp_seconds(n)"), "apply_as_truncates"),
        (replace(EVENTS, partition_by={"day": "current_date()"}), "partition_by"),
    ],
)
def test_expressions_that_are_no_functions_of_the_row_alone(
    spark: SparkSession, tmp_path: Path, source: str, options: ApplyOptions, argument: str
) -> None:
    flow = Flow(spark, source, str(tmp_path / "target"), options)
    run = flow.apply if options.source_kind == "change_log" else flow.load
    refused(flow, run(), "InvalidExpression", f"{argument} = ", "depends on more than the row")
    assert not Path(flow.target).exists()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("id IN (SELECT id FROM delta.`{path}`)", "'id' cannot stand at character 15"),
        ("id < 10 * rand()", "'*' cannot stand at character 9"),
        ("id = 'one' OR id = TRUE", "repair_keys = .* does not resolve"),
    ],
)
def test_keys_of_a_repair_that_are_more_than_comparisons(
    spark: SparkSession, tmp_path: Path, source: str, keys: str, message: str
) -> None:
    """Spark does not look whether the path of a subquery exists."""
    target = str(tmp_path / "target")
    apply_changes(spark, source, target, pipeline="p", keys=["id"])
    spark.sql(f"UPDATE delta.`{target}` SET v = 'damaged'")
    before = versions(target)
    error = InvalidExpression if "resolve" in message else InvalidConfiguration
    with pytest.raises(error, match=message if "resolve" in message else re.escape(message)) as refused:
        apply_changes(
            spark,
            source,
            target,
            pipeline="p",
            keys=["id"],
            mode="repair",
            repair={"keys": keys.format(path=tmp_path / "nowhere")},
        )
    assert "PATH_NOT_FOUND" not in refused.value.message
    assert versions(target) == before


@pytest.mark.parametrize("kind", slow_but(["MAP<STRING, INT>", "ARRAY<STRUCT<a: VARIANT>>"]))
def test_a_key_that_spark_cannot_compare(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    """A load would write it, and each later run would fail."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(f"CREATE TABLE delta.`{source}` (m {kind}, v INT) USING delta")
    with pytest.raises(InvalidConfiguration, match="The key m is of type"):
        apply_changes(spark, source, target, pipeline="p", keys=["m"])


def test_an_empty_text_in_a_partition_that_is_a_key(spark: SparkSession, tmp_path: Path) -> None:
    # Delta stores it as NULL, and the row would never be found again.
    source = str(tmp_path / "source")
    frame = spark.sql("SELECT 1 AS id, '' AS region")
    frame.write.format("delta").option("delta.enableChangeDataFeed", "true").save(source)
    keyed = ApplyOptions(keys=("id", "region"), partition_by={"region": None})
    flow = Flow(spark, source, str(tmp_path / "target"), keyed)
    refused(flow, flow.load(), "NullKey", "1 row(s)")
