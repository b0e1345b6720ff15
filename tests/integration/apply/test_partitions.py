"""Targets in partitions: the MERGE opens those of its batch alone, and readers those of their filter."""

from __future__ import annotations

import random
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable

from delta_cdc import apply_changes
from delta_cdc.api.verify import verify_table
from tests.support import oracle
from tests.support.engine import history_of, newest, table_rows
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

PARTS, ROWS = 12, 240
FIRST_DAY = datetime(2024, 1, 1)  # noqa: DTZ001 - a time without a zone
COLUMNS = ("id", "region", "ts", "v", "day")
HISTORY = (*COLUMNS, "__START_AT", "__END_AT")
#: Name -> keys and partition columns; the row decides the day.
LAYOUTS: dict[str, tuple[list[str], dict[str, str | None]]] = {
    "a key": (["id", "region"], {"region": None, "day": "date(ts)"}),
    "an expression of a key": (["id", "ts"], {"day": "date(ts)"}),
    "an expression that is a key": (["id", "day"], {"day": "date(ts)"}),
}


def part(number: int) -> tuple[str, str]:
    """Return the region and the day of the rows whose id has this remainder."""
    return f"r{number:02}", (FIRST_DAY + timedelta(days=30 * number)).date().isoformat()


@contextmanager
def only(table: str, *parts: int) -> Iterator[None]:
    """Take away the files of all other partitions: who opens one fails."""
    kept = {text for number in parts for text in part(number)}
    folders = [folder for folder in Path(table).iterdir() if folder.name.partition("=")[2] not in {"", *kept}]
    assert len(folders) == PARTS - len(parts)
    moved = [(folder.rename(folder.with_name(f"away {folder.name}")), folder) for folder in folders]
    yield
    for away, folder in moved:
        away.rename(folder)


@pytest.fixture(scope="module")
def source(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a source of which version 1 changes rows of the first and the last partition."""
    path = str(tmp_path_factory.mktemp("partitions") / "source")
    ts = f"TIMESTAMP_NTZ'{FIRST_DAY}' + make_dt_interval(30 * (id % {PARTS}), 0, 0, id) AS ts"
    region = f"concat('r', lpad(CAST(id % {PARTS} AS STRING), 2, '0')) AS region"
    rows = spark.range(ROWS).selectExpr("CAST(id AS INT) AS id", region, ts, "'a' AS v")
    rows.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    last, changed = PARTS - 1, spark.createDataFrame([(0, "b"), (36, None), (227, "b")], "id int, v string")
    new = rows.where(f"id = {last}").selectExpr(f"id + {ROWS} AS id", "region", "ts", "'new' AS v")
    changed.join(rows.drop("v"), "id").select(rows.columns).union(new).createOrReplaceTempView("ops")
    spark.sql(f"""MERGE INTO delta.`{path}` t USING ops s ON t.id = s.id
        WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v
        WHEN NOT MATCHED THEN INSERT *""")
    return path


def expected(spark: SparkSession, source: str, keys: list[str], scd_type: int) -> list[tuple[Any, ...]]:
    """Return the rows of a target, from the source's state at each version."""
    states = [
        (version, [{**row, "day": row["ts"].date()} for row in state.values()])
        for version, state in history_of(spark, source, ["id"])
    ]
    history = [(version, {tuple(row[key] for key in keys): row for row in rows}) for version, rows in states]
    tracked = [name for name in COLUMNS if name not in keys]
    if scd_type == 1:
        return oracle.rows_of(oracle.scd1(history), COLUMNS)
    return oracle.rows_of(oracle.scd2(history, tracked=tracked), HISTORY)


def found(spark: SparkSession, target: str, scd_type: int) -> list[tuple[Any, ...]]:
    return oracle.rows_of(table_rows(spark, target), COLUMNS if scd_type == 1 else HISTORY)


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_merge_opens_the_partitions_of_its_batch(
    spark: SparkSession, tmp_path: Path, source: str, name: str, scd_type: int
) -> None:
    """The keys of the batch lie in the first and the last of twelve partitions."""
    keys, partition_by = LAYOUTS[name]
    target = str(tmp_path / "target")
    given: dict[str, Any] = {"pipeline": "parts", "keys": keys, "stored_as_scd_type": scd_type}
    given["layout"] = {"partition_by": {**partition_by} if name != "a key" else {"region": None}}
    if name == "a key":
        given["select"] = ["*", "date(ts) AS day"]
    apply_changes(spark, source, target, ending_version=0, **given)
    with only(target, 0, PARTS - 1):
        apply_changes(spark, source, target, **given)
    assert found(spark, target, scd_type) == expected(spark, source, keys, scd_type)


@pytest.fixture(scope="module")
def moving(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return a source whose rows come, change, move to other partitions, and go."""
    path = str(tmp_path_factory.mktemp("moving") / "source")
    draw = random.Random(20)

    def drawn(ids: list[int]) -> Any:
        rows = [
            (i, f"r{draw.randrange(4)}", FIRST_DAY + timedelta(days=draw.randrange(4)), draw.choice("abc"))
            for i in ids
        ]
        return spark.createDataFrame(rows, "id int, region string, ts timestamp_ntz, v string").coalesce(1)

    first = drawn(draw.sample(range(60), 30))
    first.write.format("delta").option("delta.enableChangeDataFeed", "true").save(path)
    for _ in range(7):
        drawn(draw.sample(range(60), 12)).createOrReplaceTempView("ops")
        spark.sql(f"""MERGE INTO delta.`{path}` t USING ops s ON t.id = s.id
            WHEN MATCHED AND s.v = 'c' THEN DELETE WHEN MATCHED AND s.v = 'b' THEN UPDATE SET v = t.v || 'b'
            WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *""")
    return path


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
@pytest.mark.parametrize("name", LAYOUTS)
def test_random_rows_that_move_between_partitions(
    spark: SparkSession, tmp_path: Path, moving: str, name: str, scd_type: int
) -> None:
    """A feed has both partitions of a row that moves: of two keys, one ends and another begins."""
    keys, partition_by = LAYOUTS[name]
    target, last = str(tmp_path / "target"), newest(moving)
    ends = sorted(random.Random(f"{name} {scd_type}").sample(range(1, last), 2))
    for end in (0, *ends, last):
        apply_changes(
            spark, moving, target, pipeline="parts", keys=keys, stored_as_scd_type=scd_type,
            ending_version=end, layout={"partition_by": partition_by},
        )  # fmt: skip
    assert found(spark, target, scd_type) == expected(spark, moving, keys, scd_type)


@pytest.mark.slow
@pytest.mark.parametrize("scd_type", [1, 2])
def test_a_log_in_any_order(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    """The newest event of a key wins, in each partition, whichever batch brings it."""
    log, target = str(tmp_path / "log"), str(tmp_path / "target")
    draw = random.Random(4)
    sequences = draw.sample(range(200), 80)
    events = [
        (draw.randrange(8), f"r{draw.randrange(5)}", draw.choice("abc"), at, draw.random() < 0.2)
        for at in sequences
    ]
    for begin in range(0, len(events), 20):
        batch = spark.createDataFrame(
            events[begin : begin + 20], "id int, region string, v string, at int, gone boolean"
        )
        batch.write.format("delta").mode("append").save(log)
        apply_changes(
            spark, log, target, pipeline="parts", keys=["id", "region"], stored_as_scd_type=scd_type,
            source_kind="change_log", sequence_by="at", apply_as_deletes="gone",
            except_column_list=["gone", "at"], layout={"partition_by": ["region"]},
        )  # fmt: skip
    last = {(event[0], event[1]): event for event in sorted(events, key=lambda event: event[3])}
    living = [
        dict(zip(("id", "region", "v"), event, strict=False)) for event in last.values() if not event[4]
    ]
    rows = table_rows(spark, target, "true" if scd_type == 1 else "__END_AT IS NULL")
    assert oracle.rows_of(rows, ("id", "region", "v")) == oracle.rows_of(living, ("id", "region", "v"))


@pytest.mark.slow
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles"])
def test_a_reader_skips_partitions_by_the_column_of_their_expression(
    spark: SparkSession, tmp_path: Path, source: str, zone: str
) -> None:
    """In each time zone, and without Spark: the days of the partitions are those of UTC."""
    target = str(tmp_path / "target")
    apply_changes(
        spark, source, target, pipeline="parts", keys=["id"], ending_version=0,
        select=["id", "CAST(ts AS TIMESTAMP) AS ts"],
        layout={
            "partition_by": {"day": "date(ts)"},
            "target_properties": {"delta.enableDeletionVectors": "false"},
        },
    )  # fmt: skip
    reader = spark.newSession()
    reader.conf.set("spark.sql.session.timeZone", zone)
    midnight, rows_of_a_part = FIRST_DAY + timedelta(days=90), ROWS // PARTS
    since, until = (f"TIMESTAMP'{midnight + timedelta(hours=hours)}Z'" for hours in (-1, 1))
    with only(target, 3):
        rows = table_rows(reader, target, f"ts >= {since} AND ts < {until}")
        assert sorted(row["id"] for row in rows) == [3 + PARTS * n for n in range(rows_of_a_part)]
        table = DeltaTable(target).to_pyarrow_table(filters=[("day", "=", midnight.date())])
        assert table.num_rows == rows_of_a_part


@pytest.mark.parametrize("scd_type", slow_but([1, 2], 1))
def test_an_empty_text_is_null_as_delta_stores_it(spark: SparkSession, tmp_path: Path, scd_type: int) -> None:
    """Else a verification finds the row wrong for ever, and each reload writes it again."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    given: dict[str, Any] = {"pipeline": "p", "keys": ["id"], "stored_as_scd_type": scd_type}
    given |= {"layout": {"partition_by": ["City"]}}
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, city STRING COMMENT 'c', v INT) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, '', 1), (2, 'a', 1), (3, NULL, 1)")
    apply_changes(spark, source, target, **given)
    spark.sql(f"UPDATE delta.`{source}` SET v = 2 WHERE id = 1")
    spark.sql(f"UPDATE delta.`{source}` SET city = '' WHERE id IN (2, 3)")
    apply_changes(spark, source, target, **given)
    found = spark.read.format("delta").load(target)
    assert found.schema["city"].metadata == {"comment": "c"}
    open_rows = (
        found.where("__END_AT IS NULL" if scd_type == 2 else "true").select("id", "city", "v").collect()
    )
    assert sorted(map(tuple, open_rows)) == [(1, None, 2), (2, None, 1), (3, None, 1)]
    assert found.count() == (3 if scd_type == 1 else 5)
    assert verify_table(spark, target, pipeline="p").findings == ()
    again = apply_changes(spark, source, target, mode="reload", **given)
    assert not any(again.counts.get(name) for name in ("inserted", "updated", "deleted", "opened", "closed"))
