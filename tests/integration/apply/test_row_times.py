"""The times of rows and their hash, type 1, against a model of one loop, and what each run may do to them."""

from __future__ import annotations

import datetime as dt
import hashlib
import random
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import explain_row, job
from delta_cdc.core.change_log import LOG_COLUMNS
from delta_cdc.core.errors import ConfigurationDrift, ReservedColumnName, TargetSchemaClash
from delta_cdc.planning.verify import VerifyRequest
from delta_cdc.run.verify import run_verify
from delta_cdc.spark.apply.row_hash import hash_sql
from tests.support.engine import newest
from tests.support.event_flow import LogFlow, expired
from tests.support.event_streams import FIRST, append, create_log
from tests.support.layout_sources import KINDS, log_source
from tests.support.oracle import plain, rows_of

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.layout_sources import Key, Source, Walk

LAYOUT = {"created_column": "created_at", "changed_column": "changed_at", "row_hash_column": "row_hash"}
ADDED = tuple(LAYOUT.values())
MODES = ("hard", "soft")


def modelled(walks: Mapping[Key, Walk], mode: str) -> list[dict[str, Any]]:
    """Return the rows of a target, walking each key with its row in the hand."""
    rows = []
    for walk in walks.values():
        row: dict[str, Any] | None = None
        for at, values in walk:
            alive = row is not None and not row["_deleted"]
            if values is None:
                if alive:
                    row = None if mode == "hard" else {**(row or {}), "_deleted": True, "changed_at": at}
            elif not alive:
                row = {**values, "_deleted": False, "created_at": at, "changed_at": at}
            elif any(plain(row[name]) != plain(values[name]) for name in values):  # type: ignore[index]
                row = {**(row or {}), **values, "changed_at": at}
        if row is not None:
            rows.append({**row, "row_hash": hashed(row)})
    return rows


def hashed(row: Mapping[str, Any]) -> str:
    """Return the hash of a row of texts and whole numbers."""
    counted = {name: row[name] for name in row if name not in (*ADDED, "_deleted") and row[name] is not None}
    return _digest("".join(_digest(name) + _digest(str(counted[name])) for name in sorted(counted)))


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def verified(flow: LogFlow) -> dict[str, str]:
    """Return the checks of a target that found something."""
    request = VerifyRequest(pipeline=flow.pipeline, target=flow.target)
    (found,) = run_verify([request], execute=partial(job.run, flow.spark))
    assert found.error is None, found.error
    return {one.check: f"{one.detail} {one.samples}" for one in found.checks if one.status == "finding"}


def committed(spark: SparkSession, table: str) -> dict[int, Any]:
    """Return the times of a table's commits, as Spark returns them."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").select("version", "timestamp").collect()
    return {row["version"]: row["timestamp"] for row in history}


def differences(source: Source, flow: LogFlow, mode: str) -> list[Any]:
    columns = [*source.keys, *source.values, *ADDED, *(["_deleted"] if mode == "soft" else [])]
    found, expected = (rows_of(rows, columns) for rows in (flow.rows(), modelled(source.walks, mode)))
    return (
        [("too many", r) for r in found if r not in expected]
        + [("missing", r) for r in expected if r not in found]
        + ([("twice", len(found), len(expected))] if len(found) != len(expected) else [])
    )


@pytest.fixture(scope="module")
def sources(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that gives a source, written at the first call, and its location.

    The places in the walks of a feed are the times of its commits.
    """
    made: dict[str, Source] = {}
    root = tmp_path_factory.mktemp("times")

    def give(kind: str) -> tuple[Source, str]:
        folder = str(root / kind)
        if kind not in made:
            source = KINDS[kind](spark, folder)
            source.arguments.pop("track_history_column_list", None)
            if kind in ("feed", "copies"):
                times = committed(spark, folder)
                walks = {key: [(times[at], values) for at, values in w] for key, w in source.walks.items()}
                source = replace(source, walks=walks)
            made[kind] = source
        return made[kind], folder

    return give


CASES = [(kind, mode) for kind in KINDS for mode in MODES]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "mode"), CASES)
def test_random_histories(spark: SparkSession, sources: Any, kind: str, mode: str) -> None:
    source, folder = sources(kind)
    flow = LogFlow(spark, folder, f"{folder} {mode}", {**LAYOUT, **source.arguments, "delete_mode": mode})
    for end in source.ends:
        flow.apply(end)
    found = differences(source, flow, mode)
    assert not found, f"{len(found)} differ: {found[:6]}"
    assert verified(flow) == {}
    # All times and hashes of a log come again from its events; those of a table stay as they are.
    if source.arguments.get("sequence_by") is not None:
        spark.sql(
            f"UPDATE delta.`{flow.target}` SET created_at = -1, changed_at = 999, row_hash = 'x', v = 'x'"
        )
    flow.apply(mode="reload")
    assert differences(source, flow, mode) == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_arrival_does_not_matter(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    folder, draw, mode = str(tmp_path / "log"), random.Random(seed), MODES[seed % 2]
    source = log_source(spark, folder, 100 + seed, "shuffled")
    last = source.ends[-1]
    for number in range(2):
        ends = [*sorted(draw.sample(range(FIRST, last), draw.randint(0, 3))), last]
        arguments = {**LAYOUT, **source.arguments, "delete_mode": mode}
        flow = LogFlow(spark, folder, str(tmp_path / f"target {number}"), arguments)
        flow.through(ends, draw)
        found = differences(source, flow, mode)
        assert not found, f"{ends}: {len(found)} differ: {found[:6]}"


# -- a feed ---------------------------------------------------------------------------------------
def _feed(spark: SparkSession, folder: Path, **more: Any) -> LogFlow:
    source = str(folder / "source")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, name STRING, note STRING) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'Ada', 'n'), (2, 'Bo', 'n'), (3, 'Cy', 'n')")
    arguments = {
        "source_kind": "change_feed",
        "keys": ["id"],
        "except_column_list": ["note"],
        **LAYOUT,
        **more,
    }
    return LogFlow(spark, source, str(folder / "target"), arguments)


def _times(flow: LogFlow) -> dict[int, tuple[int | None, int | None]]:
    """Return the versions of the source whose times rows have, by id."""
    versions = {time: version for version, time in committed(flow.spark, flow.log).items()}
    return {
        row["id"]: (versions.get(row["created_at"]), versions.get(row["changed_at"])) for row in flow.rows()
    }


@pytest.mark.slow
def test_what_runs_do_to_the_times_of_a_feed(spark: SparkSession, tmp_path: Path) -> None:
    flow = _feed(spark, tmp_path)
    source, target = (f"delta.`{table}`" for table in (flow.log, flow.target))
    flow.apply()
    assert _times(flow) == {1: (1, 1), 2: (1, 1), 3: (1, 1)}, "a load: the loaded version"
    for change in (
        f"UPDATE {source} SET name = 'Bob' WHERE id = 2",
        f"UPDATE {source} SET note = 'only here' WHERE id = 1",
        f"DELETE FROM {source} WHERE id = 3",
        f"INSERT INTO {source} VALUES (3, 'Cy', 'n'), (4, 'Di', 'n')",
    ):
        spark.sql(change)
    flow.apply()
    assert _times(flow) == {1: (1, 1), 2: (1, 2), 3: (5, 5), 4: (5, 5)}
    # A row that differs, or is missing, gets the time of the version that is read. Others keep theirs.
    spark.sql(f"UPDATE {target} SET name = 'x' WHERE id = 2")
    spark.sql(f"DELETE FROM {target} WHERE id = 4")
    spark.sql(f"UPDATE {source} SET name = 'Ada L.' WHERE id = 1")
    flow.apply()
    assert set(verified(flow)) == {"equals_source"}
    flow.apply(mode="repair", repair_keys="id >= 2")
    expected = {1: (1, 6), 2: (1, 6), 3: (5, 5), 4: (6, 6)}
    assert _times(flow) == expected
    flow.apply(mode="reload")
    assert _times(flow) == expected
    assert verified(flow) == {}
    answer = explain_row(spark, flow.target, pipeline=flow.pipeline, key={"id": 2})
    shown = [one.column for one in answer.rows[0].values]
    assert shown == ["id", "name"], "only the values of the row itself"
    # Another option is drift, whatever the run does.
    for name in ("created_column", "changed_column", "row_hash_column"):
        without = LogFlow(spark, flow.log, flow.target, {**flow.arguments, name: None})
        with pytest.raises(ConfigurationDrift, match=f"built with {name} = .*, and now {name} = nothing"):
            without.apply()
    # A row without known times does not get guessed ones.
    spark.sql(f"ALTER TABLE {target} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {target} UNSET TBLPROPERTIES ('delta.dataSkippingStatsColumns')")
    spark.sql(f"ALTER TABLE {target} DROP COLUMNS (created_at, row_hash)")
    spark.sql(f"UPDATE {source} SET name = 'Ada' WHERE id = 1")
    for _ in range(2):
        with pytest.raises(TargetSchemaClash, match="has no column") as failed:
            flow.apply()
        spark.sql(failed.value.remedy.removeprefix("add it: ").split(";")[0])
    spark.sql(f"INSERT INTO {source} VALUES (5, 'Ed', 'n')")
    flow.apply()
    assert _times(flow) == {1: (None, 7), 2: (None, 6), 3: (None, 5), 4: (None, 6), 5: (8, 8)}
    hashes = {row["id"]: row["row_hash"] for row in flow.rows()}
    assert hashes == {
        **dict.fromkeys((2, 3, 4)),
        1: hashed({"id": 1, "name": "Ada"}),
        5: hashed({"id": 5, "name": "Ed"}),
    }
    flow.apply(mode="reset")
    assert set(_times(flow).values()) == {(8, 8)}, "a reset knows only the version that it reads"


@pytest.mark.slow
def test_soft_deletes_and_a_chain_of_a_feed(spark: SparkSession, tmp_path: Path) -> None:
    flow = _feed(spark, tmp_path, delete_mode="soft", publish_changes=True)
    source = f"delta.`{flow.log}`"
    flow.apply()
    spark.sql(f"DELETE FROM {source} WHERE id = 1")
    spark.sql(f"DELETE FROM {source} WHERE id = 2")
    flow.apply()
    assert _times(flow) == {1: (1, 2), 2: (1, 3), 3: (1, 1)}, "a delete is a change of a row that stays"
    # The target's columns are columns like others for the next pipeline, which may have such columns, too.
    arguments = {"source_kind": "change_feed", "keys": ["id"], **LAYOUT}
    with pytest.raises(ReservedColumnName, match="created_at"):
        LogFlow(spark, flow.target, str(tmp_path / "refused"), arguments).apply()
    others = {name: f"own_{column}" for name, column in LAYOUT.items()}
    chain = LogFlow(spark, flow.target, str(tmp_path / "next"), {**arguments, **others})
    chain.apply()
    loaded = committed(spark, flow.target)[newest(flow.target)]
    spark.sql(f"INSERT INTO {source} VALUES (1, 'Ada', 'n')")
    flow.apply()
    assert _times(flow)[1] == (4, 4), "a key that comes back begins a life"
    chain.apply()
    assert {row["id"]: row["created_at"] for row in chain.rows()} == {
        row["id"]: row["created_at"] for row in flow.rows()
    }
    changed = committed(spark, flow.target)[newest(flow.target)]
    assert {(row["own_created_at"], row["own_changed_at"]) for row in chain.rows() if row["id"] == 1} == {
        (loaded, changed)
    }
    assert verified(chain) == verified(flow) == {}


# -- logs -----------------------------------------------------------------------------------------
@pytest.mark.slow
def test_the_time_of_an_ingested_event_is_that_of_its_source(spark: SparkSession, tmp_path: Path) -> None:
    log = str(tmp_path / "log")
    columns = {name: kind or "string" for name, kind in LOG_COLUMNS.items()}
    ddl = ", ".join(["id int", "v string", *[f"{name} {kind}" for name, kind in columns.items()]])
    create_log(spark, log, ddl, ("id",))
    times = [dt.datetime(2026, 1, day) for day in range(1, 8)]  # noqa: DTZ001

    def post(*events: tuple[int, str | None, str, dt.datetime | None]) -> None:
        append(spark, log, [(id_, v, "upsert", seq, None, at, None) for id_, v, seq, at in events], ddl)

    arguments = {
        "keys": ["id"],
        "sequence_by": "_sequence",
        "apply_as_deletes": "_op = 'delete'",
        "columns_to_update": "_columns",
        "except_column_list": list(LOG_COLUMNS),
        "on_conflict": {"last_by": ["_source_timestamp"]},
        **LAYOUT,
    }
    flow = LogFlow(spark, log, str(tmp_path / "target"), arguments)
    post((1, "a", "10", times[2]), (2, "a", "10", None), (3, "a", "10", times[2]))
    # The same event again, with another time, at once and later; and two that differ.
    post(
        (4, "a", "10", times[4]), (4, "a", "10", times[2]), (5, "a", "10", times[2]), (6, "a", "10", times[4])
    )
    post((7, "z", "10", times[1]), (7, "a", "10", times[6]))
    flow.apply()
    post((5, "a", "10", times[4]), (6, "a", "10", times[2]))
    # Late, equal, and with an earlier time than the event before it.
    post((1, "b", "05", times[1]), (2, "b", "20", times[3]), (3, "a", "20", times[3]))
    post((1, "a", "30", times[5]), (1, "c", "30", times[6]), (3, "d", "30", times[0]))
    flow.apply()
    found = {row["id"]: (row["v"], row["created_at"], row["changed_at"]) for row in flow.rows()}
    repeated = dict.fromkeys((4, 5, 6), ("a", times[2], times[2]))
    others = {1: ("c", times[1], times[6]), 2: ("b", None, times[3]), 3: ("d", times[2], times[0])}
    assert found == {**others, **repeated, 7: ("a", times[6], times[6])}
    # The event that counts gives its time, even if it is not the latest one.
    by_value = {**arguments, "on_conflict": {"last_by": ["v"]}}
    other = LogFlow(spark, log, str(tmp_path / "by_value"), by_value, pipeline="by_value")
    other.apply()
    found = {row["id"]: (row["v"], row["created_at"], row["changed_at"]) for row in other.rows()}
    assert found == {**others, **repeated, 7: ("z", times[1], times[1])}


@pytest.mark.slow
def test_an_expired_log_keeps_the_times_that_a_target_has(spark: SparkSession, tmp_path: Path) -> None:
    log, ddl = str(tmp_path / "log"), "id int, v string, w string, seq int, op string, cols array<string>"
    create_log(spark, log, ddl, ("id",))
    arguments = {
        "keys": ["id"],
        "sequence_by": "seq",
        "apply_as_deletes": "op = 'delete'",
        "column_list": ["v", "w"],
        "columns_to_update": "cols",
        "delete_mode": "soft",
        **LAYOUT,
    }
    flow = LogFlow(spark, log, str(tmp_path / "target"), arguments)
    put = [
        (1, "a", "x", 1, "put", None),
        (1, "a", "x", 5, "put", None),
        (2, "a", "x", 1, "put", None),
        (2, None, None, 4, "delete", None),
        (3, "a", "x", 2, "put", None),
        (3, None, None, 3, "delete", None),
        (3, "b", "x", 4, "put", None),
        (4, "a", "x", 1, "put", None),
        (4, "a", None, 3, "put", ["v"]),
        (4, None, "x", 4, "put", ["w"]),
    ]
    append(spark, log, put, ddl)
    append(spark, log, [(5, "a", "x", 20, "put", None)], ddl)
    flow.apply()
    expected = {1: (1, 1), 2: (1, 4), 3: (4, 4), 4: (1, 1), 5: (20, 20)}

    def found() -> dict[int, tuple[int, int]]:
        return {row["id"]: (row["created_at"], row["changed_at"]) for row in flow.rows()}

    assert found() == expected
    # The first one sets the bound; the second one deletes what the target has applied below it.
    expired([flow], 10)
    flow.apply()
    assert expired([flow], 10) >= 3
    flow.apply()
    spark.sql(f"UPDATE delta.`{flow.target}` SET v = 'damaged'")
    flow.apply(mode="reload")
    assert found() == expected
    assert {row["v"] for row in flow.rows()} == {"a", "b"}
    # A late event of a living row, and one after which a row is new.
    late = [(1, "c", "x", 15, "put", None), (4, None, None, 15, "delete", None)]
    append(spark, log, [*late, (4, "z", "x", 16, "put", None)], ddl)
    flow.apply()
    expected |= {1: (1, 15), 4: (16, 16)}
    assert found() == expected
    # The log has the values of a row no longer: a delete changes its mark, and the time of its last change.
    spark.sql(f"DELETE FROM delta.`{log}` WHERE id = 5")
    append(spark, log, [(5, None, None, 18, "delete", None)], ddl)
    flow.apply(mode="reload")
    assert found() == {**expected, 5: (20, 18)}


# -- hashes ---------------------------------------------------------------------------------------
def test_a_hash_is_what_its_rule_says(spark: SparkSession) -> None:
    """Each case: a type, SQL of a value, and the text whose digest the value has."""
    cases = [
        ("BIGINT", "-5", "-5"),
        ("BOOLEAN", "true", "true"),
        ("DECIMAL(12, 8)", "100", "100"),
        ("DECIMAL(12, 8)", "0.00000010", "0.0000001"),
        ("DECIMAL(12, 8)", "-20.50", "-20.5"),
        ("DOUBLE", "-0.0D", "0.0"),
        ("FLOAT", "0.5", "0.5"),
        ("STRING", "'a\"b\u00e9'", 'a"b\u00e9'),
        ("BINARY", "X'00FF'", "00ff"),
        ("DATE", "DATE '2026-01-31'", "2026-01-31"),
        ("TIMESTAMP", "TIMESTAMP '2026-01-31 23:59:59.5+02:00'", "2026-01-31T21:59:59.500000Z"),
        ("TIMESTAMP_NTZ", "TIMESTAMP_NTZ '2026-01-31 23:59:59'", "2026-01-31T23:59:59.000000"),
        ("STRUCT<b: INT, A: STRING, c: INT>", "struct(1, 'x', NULL)", _pairs(a="x", b="1")),
        ("ARRAY<INT>", "array(2, NULL, 1)", _digest("2") + "0" * 64 + _digest("1")),
        ("ARRAY<ARRAY<STRUCT<k: INT>>>", "array(array(struct(1)))", _digest(_digest(_pairs(k="1")))),
        (
            "MAP<STRING, INT>",
            "map('k', 1, 'l', NULL)",
            "".join(sorted([_digest("k") + _digest("1"), _digest("l") + "0" * 64])),
        ),
        ("VARIANT", """parse_json('{"b": 1, "a": [2]}')""", '{"a":[2],"b":1}'),
    ]
    values = ", ".join(f"CAST({value} AS {kind}) AS `C {at}`" for at, (kind, value, _) in enumerate(cases))
    rows = spark.sql(f"SELECT {values}, CAST(NULL AS INT) AS nothing")
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    for at, (kind, _, text) in enumerate(cases):
        name = f"C {at}"
        found = rows.selectExpr(hash_sql({name: kinds[name]})).collect()[0][0]
        assert found == _digest(_digest(name.lower()) + _digest(text)), (kind, text)
    whole, reversed_ = (
        rows.selectExpr(hash_sql({name: kinds[name] for name in names})).collect()[0][0]
        for names in (rows.columns, [name for name in reversed(rows.columns) if name != "nothing"])
    )
    assert whole == reversed_, "neither the order of the columns nor one without a value counts"


def _pairs(**values: str) -> str:
    return "".join(_digest(name) + _digest(values[name]) for name in sorted(values))


@pytest.mark.slow
def test_the_hash_of_a_history(spark: SparkSession, tmp_path: Path) -> None:
    """It is of the values when the row was written: closing a row, or a new column, does not change it."""
    more = {
        "stored_as_scd_type": 2,
        "created_column": None,
        "changed_column": None,
        "current_column": "now",
        "delete_mode": "new_version",
        "track_history_column_list": ["name"],
        "except_column_list": None,
        "schema_evolution": "mirror",
        "partition_by": {"first": "left(name, 1)"},
    }
    flow = _feed(spark, tmp_path, **more)
    source = f"delta.`{flow.log}`"
    flow.apply()
    spark.sql(f"ALTER TABLE {source} ADD COLUMN city STRING")
    spark.sql(f"UPDATE {source} SET name = 'Bob' WHERE id = 2")
    spark.sql(f"UPDATE {source} SET city = 'Bath' WHERE id = 1")
    spark.sql(f"DELETE FROM {source} WHERE id = 3")
    flow.apply()
    columns = ("id", "name", "note", "city")
    assert len(flow.rows()) == 5
    for row in flow.rows():
        assert row["row_hash"] == hashed({name: row[name] for name in columns}), row
    before = {row["row_hash"] for row in flow.rows()}
    spark.sql(f"ALTER TABLE {source} RENAME COLUMN note TO remark")
    spark.sql(f"UPDATE {source} SET remark = 'm' WHERE id = 1")
    flow.apply()
    renamed = {row["id"]: row["row_hash"] for row in flow.rows() if row["now"]}
    assert renamed[1] == hashed({"id": 1, "name": "Ada", "remark": "m", "city": "Bath"})
    assert {renamed[2], renamed[3]} <= before, "rows that no change wrote keep the hash with the old name"
    assert verified(flow) == {}
    flow.apply(mode="reload")
    assert {row["row_hash"] for row in flow.rows()} - before == {renamed[1]}


@pytest.mark.slow
def test_columns_that_only_the_target_has_do_not_count(spark: SparkSession, tmp_path: Path) -> None:
    """Another program added one, and the source dropped one: the hash is that of the source's row."""
    flow = _feed(spark, tmp_path, except_column_list=None, schema_evolution="keep_dropped")
    flow.apply()
    spark.sql(f"ALTER TABLE delta.`{flow.target}` ADD COLUMN theirs STRING")
    spark.sql(f"UPDATE delta.`{flow.target}` SET theirs = 't'")
    source = f"delta.`{flow.log}`"
    spark.sql(f"UPDATE {source} SET name = 'Al' WHERE id = 1")
    spark.sql(f"ALTER TABLE {source} DROP COLUMN note")
    spark.sql(f"UPDATE {source} SET name = 'Bob' WHERE id = 2")
    spark.sql(f"INSERT INTO {source} VALUES (4, 'Di')")
    flow.apply()
    rows = {row["id"]: row for row in flow.rows()}
    assert {key: (row["note"], row["theirs"]) for key, row in rows.items()} == {
        **dict.fromkeys((1, 2, 3), ("n", "t")),
        4: (None, None),
    }
    # Rows from before the drop keep the hash of the values that they were written with.
    written = {
        1: {"id": 1, "name": "Al", "note": "n"},
        2: {"id": 2, "name": "Bob"},
        3: {"id": 3, "name": "Cy", "note": "n"},
        4: {"id": 4, "name": "Di"},
    }
    assert {key: row["row_hash"] for key, row in rows.items()} == {k: hashed(v) for k, v in written.items()}
    assert _times(flow) == {1: (1, 2), 2: (1, 4), 3: (1, 1), 4: (5, 5)}
    assert verified(flow) == {}


@pytest.mark.slow
def test_rows_without_keys_have_a_hash(spark: SparkSession, tmp_path: Path) -> None:
    arguments = {"keys": [], "insert_only": True, "created_column": None, "changed_column": None}
    flow = _feed(spark, tmp_path, **arguments)
    flow.apply()
    spark.sql(f"INSERT INTO delta.`{flow.log}` VALUES (1, NULL, 'n')")
    flow.apply()
    assert len(flow.rows()) == 4
    for row in flow.rows():
        assert row["row_hash"] == hashed({"id": row["id"], "name": row["name"]})
    assert verified(flow) == {}
