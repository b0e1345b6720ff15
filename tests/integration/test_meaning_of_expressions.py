"""Rows depend on the configuration and the source, not on confs of the cluster or of the user's session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import TimestampNTZType, TimestampType

from delta_cdc.api.changes import apply_changes, ingest_changes, read_changes
from delta_cdc.core.errors import DeltaCdcError, TargetConstraintViolated
from delta_cdc.core.sql import table
from delta_cdc.spark.meaning import MEANING
from delta_cdc.spark.sessions import effective, private_session
from tests.support.engine import session_like

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

#: What clusters have that keep to older releases, or to other databases.
THEIRS = {
    "spark.sql.ansi.enabled": "false",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.caseSensitive": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kolkata",
    "spark.sql.legacy.timeParserPolicy": "LEGACY",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.sources.partitionOverwriteMode": "dynamic",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS",
    "spark.sql.parquet.datetimeRebaseModeInWrite": "EXCEPTION",
    "spark.sql.legacy.charVarcharAsString": "true",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.mapKeyDedupPolicy": "LAST_WIN",
    "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY",
}
#: Without ``ansi.enabled``, Spark reads double quotes as those of a text, whatever this conf is.
QUOTES = {"spark.sql.ansi.enabled": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"}

#: Expressions whose value one of the confs changes; the last two fail by Spark's defaults.
EXPRESSIONS = (
    "TIMESTAMP'2026-03-29 02:30:00' = TIMESTAMP'2026-03-29 02:30:00Z'",
    r"'a\td'",
    r"'1' RLIKE '^\\d$'",
    "date_format(TIMESTAMP'2026-03-29 02:30:00.123456Z', 'HH:mm:ss.SSSSSS')",
    "`.*`",
    "CAST(1.5 AS DECIMAL(30, 10)) * CAST(1.5 AS DECIMAL(30, 10)) / 7",
    "to_json(map_from_arrays(array(1, 1), array(2, 3)))",
    "CAST('300' AS TINYINT)",
)
SELECTED = (
    "*",
    "timestamp(CAST(at AS STRING)) AS again",
    "TIMESTAMP'2026-03-29 02:30:00' AS that",
    r"'a\td' AS v",
)


@pytest.fixture
def theirs(spark: SparkSession) -> Iterator[SparkSession]:
    session = session_like(spark)
    # It becomes the active session of this thread, as the session of a user is.
    session.createDataFrame([], "a INT")
    for name, value in THEIRS.items():
        session.conf.set(name, value)
    yield session
    for name in THEIRS:
        session.conf.unset(name)


def evaluated(session: SparkSession, text: str) -> Any:
    try:
        return session.sql(f"SELECT {text} AS v FROM VALUES (1, 2) AS t (a, `.*`)").collect()
    except Exception as error:  # noqa: BLE001 - the error is the result
        return str(error).splitlines()[0]


def test_an_expression_means_the_same(spark: SparkSession, theirs: SparkSession) -> None:
    with private_session(session_like(spark)) as ours:
        expected = [evaluated(ours, text) for text in (*EXPRESSIONS, '"a"')]
    with private_session(theirs) as session:
        assert [evaluated(session, text) for text in (*EXPRESSIONS, '"a"')] == expected
    for name, value in QUOTES.items():
        theirs.conf.set(name, value)
    with private_session(theirs) as session:
        assert evaluated(session, '"a"') == expected[-1]
    theirs.conf.unset("spark.sql.ansi.doubleQuotedIdentifiers")


def test_the_values_are_sparks_defaults(spark: SparkSession) -> None:
    """A session with the defaults need not set one of the confs, which a platform may refuse."""
    found = effective(session_like(spark), MEANING)
    unknown = {name for name, value in found.items() if value is None}
    assert not unknown
    others = {name: found[name] for name, values in MEANING.items() if found[name] not in values}
    assert others == type(others)()


def test_the_active_session_comes_back(theirs: SparkSession) -> None:
    with private_session(theirs) as session:
        named = session.range(1).select(F.lit(None).cast("timestamp").alias("at"))
        assert named.schema["at"].dataType == TimestampType()
        session.createDataFrame([], "a INT")
    assert type(theirs).getActiveSession() is theirs
    named = theirs.range(1).select(F.lit(None).cast("timestamp").alias("at"))
    assert named.schema["at"].dataType == TimestampNTZType()


def written(spark: SparkSession, path: Path) -> tuple[list[str], str]:
    rows = spark.read.format("delta").load(str(path))
    given = [name for name in rows.columns if not name.startswith("_ingest")]
    return sorted(map(str, rows.select(*given).collect())), rows.schema.simpleString()


@pytest.mark.slow
def test_an_apply_writes_the_same_rows(spark: SparkSession, theirs: SparkSession, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    columns = "Id BIGINT, at TIMESTAMP, day DATE, op STRING, n BIGINT"
    spark.sql(f"CREATE TABLE {table(log)} ({columns}) USING delta")
    spark.sql(
        f"INSERT INTO {table(log)} VALUES "
        "(1, TIMESTAMP'2026-03-29 02:30:00.123456Z', DATE'1200-01-01', 'I', 1), "
        "(1, TIMESTAMP'2026-03-29 02:30:00.123789Z', DATE'1200-01-02', 'U', 2), "
        "(2, TIMESTAMP'2026-03-29 02:30:00.000001Z', DATE'2026-01-02', 'I', 5000000000)"
    )
    given: dict[str, Any] = {
        "pipeline": "p",
        "source_kind": "change_log",
        "keys": ["id"],
        "sequence_by": "at",
        "where": "at > '2026-03-29 02:30:00'",
    }
    layout = {"row_hash_column": "hash", "partition_by": ["op"]}
    for session, name in ((spark, "ours"), (theirs, "theirs")):
        for mode in ("incremental", "reset"):
            target = str(tmp_path / name)
            apply_changes(
                session,
                log,
                target,
                **given,
                select=SELECTED,
                layout=layout,
                mode=mode,
            )
    assert written(spark, tmp_path / "theirs") == written(spark, tmp_path / "ours")

    narrow = tmp_path / "narrow"
    spark.sql(f"CREATE TABLE {table(str(narrow))} (id BIGINT, at TIMESTAMP, v VARCHAR(3)) USING delta")
    with pytest.raises(TargetConstraintViolated, match="v"):
        apply_changes(theirs, log, str(narrow), **given, select=["id", "at", "'long' AS v"])
    with pytest.raises(DeltaCdcError, match="OVERFLOW"):
        apply_changes(theirs, log, str(tmp_path / "cast"), **given, select=["id", "at", "INT(n) AS n"])


def test_an_ingest_writes_the_same_rows(spark: SparkSession, theirs: SparkSession, tmp_path: Path) -> None:
    landing = tmp_path / "landing"
    landing.mkdir()
    records: list[dict[str, Any]] = [
        {"id": 1, "at": "2026-03-29T02:30:00.000900Z", "n": 1, "amount": "1.50", "day": "1200-01-01"},
        {
            "id": 1,
            "at": "2026-03-29T02:30:00.123456Z",
            "n": 2,
            "amount": "12345678901.5",
            "day": "2026-02-30",
        },
        {"id": 2, "at": "2026-03-29T02:30:00.123789", "n": 2**63, "amount": "1e2", "day": "2026-02-01"},
    ]
    (landing / "1.json").write_text("\n".join(map(json.dumps, records)))
    for session, name in ((spark, "ours"), (theirs, "theirs")):
        ingest_changes(
            session,
            str(landing),
            str(tmp_path / name),
            pipeline="in",
            keys=["id"],
            schema="id BIGINT, at TIMESTAMP, n BIGINT, amount DECIMAL(10,2), day DATE",
            adapter_options={"sequence_by": ["timestamp(at)", "n"]},
            policies={"on_invalid": "quarantine"},
        )
    assert written(spark, tmp_path / "theirs") == written(spark, tmp_path / "ours")
    kept = [
        spark.read.format("delta").load(f"{tmp_path / name}__quarantine").count()
        for name in ("ours", "theirs")
    ]
    assert kept[0] == kept[1] > 0


def test_read_changes_has_the_same_columns(
    spark: SparkSession, theirs: SparkSession, tmp_path: Path, caplog: Any
) -> None:
    source = str(tmp_path / "source")
    feed = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    spark.sql(f"CREATE TABLE {table(source)} (id INT, s STRUCT<at: TIMESTAMP>) USING delta {feed}")
    spark.sql(f"INSERT INTO {table(source)} VALUES (1, struct(TIMESTAMP'2026-03-29 02:30:00Z'))")
    for first in (1, 2):
        given: dict[str, Any] = {"starting_version": first, "keys": ["id"], "query": "min_delta"}
        ours, others = (read_changes(one, source, **given) for one in (spark, theirs))
        assert others.schema["_commit_timestamp"].dataType == TimestampType()
        assert others.schema.simpleString() == ours.schema.simpleString()
        text = ("id", "unix_micros(s.at)")
        assert others.selectExpr(*text).collect() == ours.selectExpr(*text).collect()
    # The rows belong to the user's session, which evaluates them later: so do the expressions.
    assert "may mean something else" not in caplog.text
    for session in (session_like(spark), theirs):
        read_changes(session, source, starting_version=1, keys=["id"], where="id > 0")
    (warned,) = [one.getMessage() for one in caplog.records if "may mean something else" in one.getMessage()]
    for text in ("spark.sql.ansi.enabled is false", "spark.sql.storeAssignmentPolicy is LEGACY"):
        assert text in warned
