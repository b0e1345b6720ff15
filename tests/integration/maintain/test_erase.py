"""Erased keys: their rows leave every file, and nothing brings them back."""

from __future__ import annotations

import base64
import datetime as dt
import hmac
import json
import random
import shutil
from contextlib import suppress
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

from delta_cdc import apply_changes, erase_key, explain_row, job, verify_table
from delta_cdc.cli import main
from delta_cdc.core.erasure import hash_sql, key_hash, new_secret
from delta_cdc.core.errors import ColumnNotFound, DeltaCdcError, InvalidConfiguration, TableNotFound
from delta_cdc.core.properties import ERASED
from delta_cdc.core.spellings import BASE64, folded, folded_sql, mentions_sql, spellings
from delta_cdc.core.sql import quote
from delta_cdc.planning.consumers import Consumer
from delta_cdc.planning.erasure import Flow
from delta_cdc.run.erase import Erasure, Report, run
from delta_cdc.run.maintain import raise_failed
from delta_cdc.spark import quarantine
from delta_cdc.spark.erased_keys import text_sql
from delta_cdc.spark.maintain import erase
from tests.support.decoded_files import holders
from tests.support.deliveries import SCHEMA, Deliveries, event
from tests.support.engine import newest
from tests.support.grouped import grouped
from tests.support.holding import hooked, once
from tests.support.random_logs import seeds
from tests.support.slow import slow_but
from tests.support.spelled_records import OF_KEYS, mentions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    Table = Callable[[str], str]

#: A text of the rows of the erased key, and of no other row.
SECRET = "Ottilie Wildermuth"
KEY = {"id": "170017"}


class Killed(BaseException):
    pass


def erased(spark: SparkSession, *flows: Flow, key: dict[str, str] = KEY, **more: Any) -> Report:
    report = run(Erasure(keys=(key,), flows=flows, **more), execute=partial(job.run, spark), run_id="erase")
    raise_failed(report.errors)
    return report


def deleted(report: Report) -> dict[str, int]:
    return {Path(row["table"]).name: row["deleted"] for row in report.rows}


def rows(spark: SparkSession, table: str, where: str = "true") -> list[dict[str, Any]]:
    found = spark.read.format("delta").load(table).where(where).collect()
    return sorted((row.asDict(recursive=True) for row in found), key=repr)


@pytest.fixture
def vacuums_at_once(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Return a function after which a VACUUM of a table deletes every old file."""
    conf = "spark.databricks.delta.retentionDurationCheck.enabled"
    spark.conf.set(conf, "false")

    def without_retention(table: str) -> None:
        spark.sql(
            f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES "
            "('delta.deletedFileRetentionDuration' = 'interval 0 seconds')"
        )

    yield without_retention
    spark.conf.unset(conf)


# -- the hash ---------------------------------------------------------------------------------------
def test_python_and_sql_give_a_key_the_same_hash(spark: SparkSession) -> None:
    day, moment = dt.date(2024, 2, 29), dt.datetime(2024, 2, 29, 1, 2, 3, 400)  # noqa: DTZ001
    cases: list[tuple[str, list[Any], list[str]]] = [
        ("a int", [17], ["17"]),
        ("a bigint", [17], ["17"]),
        ("a decimal(38,0)", [Decimal(17)], ["17"]),
        ("a decimal(12,4)", [Decimal("17.50")], ["17.5"]),
        ("a decimal(12,4)", [Decimal(100)], ["100"]),
        ("a decimal(10,6)", [Decimal("0.000001")], ["0.000001"]),
        ("a decimal(10,6)", [Decimal(0)], ["0"]),
        ("a string", ["Ä ö:'\\"], ["Ä ö:'\\"]),
        ("a string", [""], [""]),
        ("a string", ["a"], ["a"]),
        ("a string", ["A"], ["A"]),
        ("a date", [day], ["2024-02-29"]),
        ("a timestamp_ntz", [dt.datetime.combine(day, dt.time())], ["2024-02-29"]),
        ("a timestamp_ntz", [moment], ["2024-02-29 01:02:03.0004"]),
        ("a boolean", [True], ["true"]),
        ("a binary", [b"\x00\xff"], ["00FF"]),
        ("a string, b string", ["1:", "2"], ["1:", "2"]),
        ("a string, b string", ["1", ":2"], ["1", ":2"]),
        ("a string, b int", ["1", 2], ["1", "2"]),
    ]
    for secret in (new_secret(), "00" * 32):
        # One row has the keys of all cases.
        names = [f"c{at}_" for at in range(len(cases))]
        schema = ", ".join(
            f"{name}{one}"
            for name, (kinds, _, _) in zip(names, cases, strict=True)
            for one in kinds.split(", ")
        )
        frame = spark.createDataFrame([tuple(value for _, values, _ in cases for value in values)], schema)
        parts = [
            [
                text_sql(quote(f.name), f.dataType, f.name)
                for f in frame.schema.fields
                if f.name.startswith(name)
            ]
            for name in names
        ]
        hashes = list(frame.select(*(F.expr(hash_sql(secret, one)) for one in parts)).collect()[0])
        assert hashes == [key_hash(secret, texts) for _, _, texts in cases]
        # Equal keys of wider types have equal hashes; all other keys have different ones.
        assert len(set(hashes)) == len({tuple(texts) for _, _, texts in cases})
    for schema in ("a double", "a decimal(10,7)", "a array<int>", "a string collate utf8_lcase"):
        (field,) = spark.createDataFrame([], schema).schema.fields
        with pytest.raises(InvalidConfiguration, match="equal keys of this type"):
            text_sql("a", field.dataType, "a")


# -- files, a change log, a history -------------------------------------------------------------------
FIRST = [
    event("I", 1, 1, name="Anna", amount=1),
    event("I", 2, 170017, name=SECRET, amount=2),
    event("U", 3, 170017, name=SECRET, amount=3),
    event("I", 4, 2, name="Berta", amount=170017),
]
#: No events: of one, the text contains the key.
BAD = ['{"op": "?", "seq": 5, "id": 170017, "name": "Ottilie Wildermuth"}', '{"op": "?", "seq": 6, "id": 3}']
HISTORY = {"stored_as_scd_type": 2}


@pytest.mark.slow
def test_of_a_log_and_its_history(
    spark: SparkSession, tmp_path: Path, vacuums_at_once: Callable[[str], None]
) -> None:
    lake = tmp_path / "lake"
    flow = Deliveries(spark, lake)
    log, target = flow.log, str(lake / "target")
    flow.deliver("a.json", [*FIRST, *BAD])
    flow.ingest()
    flow.apply(**HISTORY)
    of_flow = [
        Flow("flow", str(flow.source), log=log),
        Flow("apply", source=log, target=target),
    ]
    others = rows(spark, target, "id <> 170017")

    # A dry run counts, and writes nothing.
    before = (newest(log), newest(target))
    report = erased(spark, *of_flow, dry_run=True)
    assert deleted(report) == {"log": 2, "target": 2, "log__quarantine": 0, "target__quarantine": 0}
    assert "1 records contain the key's values" in next(
        row["note"] for row in report.rows if row["table"].endswith("log__quarantine")
    )
    assert (newest(log), newest(target)) == before
    assert not (lake / "log__erased").exists()

    report = erased(spark, *of_flow, deletes_records=True)
    assert deleted(report) == {"log": 2, "target": 2, "log__quarantine": 1, "target__quarantine": 0}
    assert any(str(flow.source) in text for text in report.outside)
    assert rows(spark, target) == others
    # The ledger does not show the key.
    assert "170017" not in str(rows(spark, f"{log}__erased"))
    # Once more: nothing to do, and no commit.
    before = (newest(log), newest(target), newest(f"{log}__erased"))
    assert set(deleted(erased(spark, *of_flow, deletes_records=True)).values()) == {0}
    assert (newest(log), newest(target), newest(f"{log}__erased")) == before

    # The consumer goes on after the deletion, which is no change of the log.
    flow.deliver("b.json", [event("U", 7, 1, name="Anna", amount=7)])
    flow.ingest()
    assert flow.apply(**HISTORY).counts["events"] == 1
    assert len(rows(spark, target, "id = 1")) == 2

    # The file comes again with more in it; late events; a replay; a reload; a reset; a new target.
    flow.deliver("a.json", [*FIRST, *BAD, event("I", 8, 170017, name=SECRET, amount=8)])
    found = flow.ingest()
    assert found.counts["erased"] == 3
    assert found.counts["events"] == 0
    # What is no event has no key. Once it becomes one, it is left out.
    assert SECRET in str(flow.quarantined())
    flow.deliver("c.json", [event("U", 2, 170017, name=SECRET, amount=9), event("U", 9, 2, amount=9)])
    assert flow.ingest().counts == {"events": 1, "erased": 1, "files": 1}
    flow.adapter_options = {**flow.adapter_options, "operations": {"?": "upsert"}}
    flow.ingest(replay=True)
    assert flow.quarantined() == []
    for more in ({}, {"mode": "reload"}, {"mode": "reset", "discard_history": True}):
        flow.apply(**HISTORY, **more)
        assert rows(spark, target, "id = 170017") == []
    assert len(rows(spark, target)) > 3
    flow.apply("other")
    assert rows(spark, str(lake / "other"), "id = 170017") == []

    # After purge and VACUUM no file of a table has the row.
    tables = [log, target, f"{log}__quarantine"]
    for table in tables:
        vacuums_at_once(table)
    assert holders(lake, SECRET), "there must be something to find"
    consumers = (Consumer("apply", log, target),)
    report = erased(spark, *of_flow, purge=True, consumers=consumers)
    assert holders(lake, SECRET) == ["in/a.json", "in/c.json"]
    assert all(not row.get("masked") and not row.get("old_versions_until") for row in report.rows)

    # A try that wakes up late writes a file that no version will have.
    late = Path(target) / "_change_data" / "cdc-late.snappy.parquet"
    late.parent.mkdir(exist_ok=True)
    late.write_text(SECRET)
    erased(spark, *of_flow, purge=True, consumers=consumers)
    assert holders(lake, SECRET) == ["in/a.json", "in/c.json"]


# -- records that are no events -------------------------------------------------------------------------
def test_sql_finds_the_records_that_python_finds(spark: SparkSession) -> None:
    """Each record with the spellings of each key, so that most are of another one."""
    keys = sorted({(text, kind) for text, kind, _ in OF_KEYS})
    records = sorted({record for _, _, record in OF_KEYS} | {"\\ud83d\\ude00 \\ud800 \\\\u00Fc", "a\0b", ""})
    schema = "raw string, text string, kind string, s array<struct<text: string, is_whole: boolean>>"
    pairs = [
        (record, text, kind, [(one.text, one.is_whole) for one in spellings(text, kind)])
        for record in records
        for text, kind in keys
    ]
    found = spark.createDataFrame(pairs, schema).select(
        "raw", "text", "kind", F.expr(folded_sql("raw")).alias("folded"),
        F.expr(mentions_sql(folded_sql("raw"), "s")).alias("found"),
    ).collect()  # fmt: skip
    assert [row for row in found if row["folded"] != folded(row["raw"])] == []
    assert [row for row in found if row["found"] != mentions(row["raw"], row["text"], row["kind"])] == []
    assert 2 * sum(row["found"] for row in found) < len(found)
    # Bytes are searched as they are, and decoded; also those of UTF-16.
    for encoding in ("utf-8", "utf-16-le"):
        raw = BASE64 + base64.b64encode(b"\xff\xfe" + "x Müller".encode(encoding)).decode()
        table = spark.createDataFrame(
            [(raw, [("ller", False)])], "raw string, s array<struct<text: string, is_whole: boolean>>"
        )
        assert table.select(F.expr(mentions_sql(folded_sql("raw"), "s"))).first()[0], encoding


# -- feeds, a chain of targets, staging, quarantine -----------------------------------------------------
def apply_feed(spark: SparkSession, source: str, target: str, pipeline: str, **more: Any) -> Any:
    given = grouped({"pipeline": pipeline, "keys": ["id"], **more})
    return apply_changes(spark, source, target, **given)


OF_HISTORY = {
    "stored_as_scd_type": 2,
    "sequence_by": "n",
    "delete_sequence": "n + 1",
    "on_invalid": "quarantine",
}


@pytest.mark.slow
def test_of_a_chain_of_targets(
    spark: SparkSession, tmp_path: Path, vacuums_at_once: Callable[[str], None]
) -> None:
    source, current, history = (str(tmp_path / name) for name in ("source", "current", "history"))
    copy, staging = str(tmp_path / "copy"), str(tmp_path / "staging")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, n INT, v STRING) USING delta "
        "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 1, 'a'), (170017, 1, '{SECRET}'), (2, 1, 'b')")
    chain = [
        Flow("current", source, target=current, staging=staging),
        Flow("history", current, target=history),
        Flow("copy", current, target=copy),
    ]

    def applied() -> None:
        apply_feed(spark, source, current, "current", publish_changes=True)
        apply_feed(spark, current, history, "history", **OF_HISTORY)
        apply_feed(spark, current, copy, "copy", keys=None, insert_only=True)

    applied()
    spark.sql(f"UPDATE delta.`{source}` SET n = 2 WHERE id = 1")
    apply_feed(spark, source, current, "current", publish_changes=True)
    # Without a sequence, the history cannot take these: they go to its quarantine.
    spark.sql(f"INSERT INTO delta.`{current}` VALUES (3, NULL, 'c')")
    spark.sql(f"UPDATE delta.`{current}` SET n = NULL WHERE id = 170017")
    apply_feed(spark, current, history, "history", **OF_HISTORY)
    assert sorted(row["keys"] for row in rows(spark, f"{history}__quarantine")) == [
        '{"id":"170017"}',
        '{"id":"3"}',
    ]
    spark.read.format("delta").load(source).write.format("delta").save(staging)
    before = {table: rows(spark, table, "id <> 170017") for table in (current, history, copy)}
    report = erased(spark, *chain)
    assert deleted(report) == {
        "current": 1,
        "history": 1,
        "copy": 1,
        "current__quarantine": 0,
        "history__quarantine": 1,
        "copy__quarantine": 0,
        "staging": 1,
    }
    assert {table: rows(spark, table) for table in before} == before

    # The deletion in one target comes to the next ones as changes, which they do not need.
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (4, 1, 'd')")
    spark.sql(f"UPDATE delta.`{source}` SET n = 5 WHERE id IN (170017, 2)")
    assert apply_feed(spark, source, current, "current", publish_changes=True).counts["erased"] == 2
    assert apply_feed(spark, current, history, "history", **OF_HISTORY).counts["events"] == 2
    with pytest.raises(DeltaCdcError, match="update_preimage"):
        # Of the update of key 2, not of the erasure.
        apply_feed(spark, current, copy, "copy", keys=None, insert_only=True)
    for mode in ("reload", "reset"):
        more = {"discard_history": True} if mode == "reset" else {}
        apply_feed(spark, source, current, "current", publish_changes=True, mode=mode)
        apply_feed(spark, current, history, "history", **OF_HISTORY, mode=mode, **more)
        for table in (current, history):
            assert rows(spark, table, "id = 170017") == []
            assert rows(spark, table, "id = 4") != []
    assert verify_table(spark, current, pipeline="current", source=source).findings == ()
    apply_feed(
        spark, source, current, "current", publish_changes=True, mode="repair", repair_keys="id = 170017"
    )
    assert rows(spark, current, "id = 170017") == []
    # A target that is dropped and loaded again; and a new one from a version with the key.
    shutil.rmtree(history)
    apply_feed(spark, current, history, "history", **OF_HISTORY)
    assert rows(spark, history, "id = 170017") == []
    late = str(tmp_path / "late")
    apply_feed(spark, current, late, "late", initial_load={"from_version": 1})
    assert rows(spark, late, "id = 170017") == []
    assert rows(spark, late, "id = 4") != []

    tables = [current, history, copy, staging, f"{history}__quarantine"]
    for table in tables:
        vacuums_at_once(table)
    assert {Path(name).parts[0] for name in holders(tmp_path, SECRET)} > {"source", "current", "copy"}
    report = erased(spark, *chain, purge=True)
    left = [Path(name) for name in holders(tmp_path, SECRET)]
    assert {path.parts[0] for path in left if "_delta_log" not in path.parts} == {"source"}
    # Tables without keys, and those of others, have bounds of all columns in their old commits.
    assert {path.parts[0] for path in left} == {"source", "copy", "staging"}
    until = {Path(row["table"]).name: row.get("statistics_until") for row in report.rows}
    assert until["copy"]
    assert until["staging"]


# -- kills and races --------------------------------------------------------------------------------
def made(spark: SparkSession, folder: Path) -> tuple[Deliveries, str, Flow]:
    flow = Deliveries(spark, folder)
    flow.deliver("a.json", FIRST)
    flow.ingest()
    target = str(folder / "target")
    flow.apply()
    return flow, target, Flow("flow", str(flow.source), log=flow.log, target=target)


@pytest.mark.slow
def test_a_run_that_overlaps_an_erasure_brings_nothing_back(spark: SparkSession, tmp_path: Path) -> None:
    """Whether the run has read the key's rows, or stands before its commit."""
    for point in ("planned", "before_commit"):
        flow, target, of_flow = made(spark, tmp_path / point)
        flow.deliver("b.json", [event("U", 7, 170017, name=SECRET, amount=7), event("U", 8, 1, amount=8)])
        with hooked(once(point, lambda one=of_flow: erased(spark, one))):
            flow.ingest()
        assert rows(spark, flow.log, "id = 170017") == [], point
        assert rows(spark, flow.log, "_sequence = 8") != []
        # The same of the apply: the log has a row of a key that is then erased.
        flow.deliver("c.json", [event("U", 9, 2, name="Berta", amount=9), event("U", 10, 1, amount=10)])
        flow.ingest()
        other = partial(erased, spark, Flow("apply", target=target), key={"id": "2"})
        with hooked(once(point, other)):
            flow.apply()
        assert rows(spark, target, "id = 2") == [], point
        assert [row["amount"] for row in rows(spark, target)] == [10]


@pytest.mark.slow
@pytest.mark.parametrize("dies", [False, True])
def test_a_run_that_overlaps_an_erasure_leaves_nothing_in_quarantine(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    """Its rows go there before its commit, which the erasure prevents; perhaps the run dies then."""
    flow, target, _ = made(spark, tmp_path)
    rules = {"small": {"check": "amount < 100", "on_break": "quarantine"}}
    flow.deliver("b.json", [event("U", 9, 1, amount=900), event("U", 10, 2, name=SECRET, amount=1000)])
    flow.ingest()
    write = quarantine.write

    def overtaken(*arguments: Any) -> str | None:
        monkeypatch.undo()
        erased(spark, Flow("apply", target=target), key={"id": "2"})
        found = write(*arguments)
        assert [row["id"] for row in map(json.loads, held())] == ["1", "2"], "the erasure came too early"
        if dies:
            raise Killed
        return found

    def held() -> list[str]:
        return sorted(row["keys"] for row in rows(spark, f"{target}__quarantine"))

    monkeypatch.setattr(quarantine, "write", overtaken)
    if dies:
        with pytest.raises(Killed):
            flow.apply(rules=rules)
    flow.apply(rules=rules)
    assert held() == [json.dumps({"id": "1"}, separators=(",", ":"))]


@pytest.mark.slow
def test_rows_that_a_dead_run_left_leave_the_log_and_its_target(spark: SparkSession, tmp_path: Path) -> None:
    """An erasure overtook the run before its commit; it died before it deleted what it brought in."""
    flow, target, of_flow = made(spark, tmp_path)
    before = {table: newest(table) for table in (flow.log, target)}
    erased(spark, of_flow)
    for table, version in before.items():
        spark.sql(
            f"INSERT INTO delta.`{table}` SELECT * FROM delta.`{table}` VERSION AS OF {version} "
            "WHERE id = 170017"
        )
        assert rows(spark, table, "id = 170017") != []
    flow.deliver("b.json", [event("U", 7, 1, name="Anna", amount=7)])
    flow.ingest()
    flow.apply()
    assert [rows(spark, table, "id = 170017") for table in before] == [[], []]
    assert rows(spark, target, "id = 1")[0]["amount"] == 7


@pytest.mark.slow
def test_a_log_without_a_commit_is_no_ledger_yet(spark: SparkSession, tmp_path: Path) -> None:
    """An erasure that is killed while Delta creates its ledger leaves it: one of 170 killed ones did."""
    flow, target, of_flow = made(spark, tmp_path)
    for table in (flow.log, target):
        Path(f"{table}__erased/_delta_log/_staged_commits").mkdir(parents=True)
    erased(spark, of_flow)
    assert [rows(spark, table, "id = 170017") for table in (flow.log, target)] == [[], []]
    assert [len(rows(spark, f"{table}__erased")) for table in (flow.log, target)] == [1, 1]
    flow.deliver("b.json", [event("U", 7, 170017, name="Ottilie", amount=7)])
    flow.ingest()
    flow.apply()
    assert rows(spark, target, "id = 170017") == []


@pytest.mark.slow
def test_an_erasure_that_is_killed_is_run_again(spark: SparkSession, tmp_path: Path) -> None:
    points = ("created", "remembered", "marked", "erased")

    def die() -> None:
        raise Killed

    for seed in seeds(2):
        draw = random.Random(seed)
        flow, target, of_flow = made(spark, tmp_path / str(seed))
        for _ in range(6):
            point, at = draw.choice(points), draw.randint(1, 3)
            came = iter(range(1, 100))

            def hook(reached: str, point: str = point, at: int = at, came: Iterator[int] = came) -> None:
                if reached == point and next(came) == at:
                    die()

            with hooked(hook), suppress(Killed):
                erased(spark, of_flow)
            if draw.random() < 0.5:
                # A run in between never fails, and never adds the key to what remembers it.
                remembers = ERASED in spark.sql(f"DESCRIBE DETAIL delta.`{flow.log}`").first()["properties"]
                number = len(rows(spark, flow.log, "id = 170017"))
                flow.deliver("a.json", [*FIRST, event("U", draw.randint(5, 99), 170017, name=SECRET)])
                flow.ingest()
                flow.apply()
                if remembers:
                    assert len(rows(spark, flow.log, "id = 170017")) <= number, (seed, point)
        erased(spark, of_flow)
        assert rows(spark, flow.log, "id = 170017") == rows(spark, target, "id = 170017") == []
        assert len(rows(spark, f"{flow.log}__erased")) == len(rows(spark, f"{target}__erased")) == 1
        assert len(rows(spark, target)) == 2


# -- the function, and why ---------------------------------------------------------------------------
@pytest.mark.slow
def test_the_function_and_the_answer_for_the_row(spark: SparkSession, tmp_path: Path) -> None:
    flow, target, _ = made(spark, tmp_path)
    question = {"pipeline": "apply", "key": {"ID": 170017}}
    before = explain_row(spark, target, **question)
    assert before.rows
    tables = [
        {"pipeline": "flow", "log": flow.log},
        {"pipeline": "apply", "source": flow.log, "target": target},
    ]
    report = erase_key(spark, tables, key={"id": 170017})
    assert {Path(row["table"]).name: row["deleted"] for row in report if row["deleted"]} == {
        "log": 2,
        "target": 1,
    }
    (remembered,) = rows(spark, f"{target}__erased")
    for at in (None, before.version):
        answer = explain_row(spark, target, at=at, **question)
        assert answer.erased is not None
        assert answer.erased.hash == remembered["hash"]
        assert answer.erased.run_id == "erase_key"
        assert answer.erased.rows == (0 if at is None else 1)
        assert (answer.rows, answer.not_taken, answer.upstream) == ((), (), None)
        assert SECRET not in str(answer)
        assert SECRET not in json.dumps(answer.to_dict())
    other = explain_row(spark, target, pipeline="apply", key={"id": 1})
    assert other.erased is None
    assert other.rows
    for wrong in (
        {"pipeline": "apply"},
        {"target": target},
        {"pipeline": "apply", "target": target, "x": "y"},
    ):
        with pytest.raises(InvalidConfiguration, match="tables has an entry"):
            erase_key(spark, [wrong], key={"id": 1})
    with pytest.raises(InvalidConfiguration, match="key names no column"):
        erase_key(spark, tables, key={})


# -- what is refused --------------------------------------------------------------------------------
def test_a_value_is_never_rounded_to_another_key(spark: SparkSession) -> None:
    for schema, given, expected in (
        ("k decimal(10,2)", "1.230", "1.23"),
        ("k decimal(10,2)", "1.234", None),
        ("k date", "2024-02-29", "2024-02-29"),
        ("k date", "2024-02-29 10:00:00", None),
        ("k int", "17", "17"),
        ("k int", "17.5", None),
        ("k int", "3000000000", None),
        ("k string", " 17", " 17"),
        ("k binary", "00ff", "00FF"),
        ("k binary", "xy", None),
    ):
        table = spark.createDataFrame([], schema)
        if expected is not None:
            assert erase._texts(spark, table, ["k"], {"K": given}) == [expected]
            continue
        with pytest.raises(InvalidConfiguration, match="The value that is given for the key column k is no"):
            erase._texts(spark, table, ["k"], {"k": given})


_WITHOUT_ONE_TEXT = [
    ("FLOAT", "1.5"),
    ("DOUBLE", "-0.0"),
    ("DOUBLE", "NaN"),
    ("DECIMAL(20,7)", "0.0000001"),
    ("STRUCT<a: INT>", "1"),
]


@pytest.mark.parametrize(("kind", "value"), slow_but(_WITHOUT_ONE_TEXT, ("DOUBLE", "-0.0")))
def test_keys_without_one_text_are_refused_before_anything_is_written(
    spark: SparkSession, tmp_path: Path, kind: str, value: str
) -> None:
    """Also those of a type that has two values for one text, or two texts for one value."""
    table = str(tmp_path / "table")
    spark.sql(f"CREATE TABLE delta.`{table}` (k {kind}, v INT) USING delta")
    for dry_run in (True, False):
        with pytest.raises(InvalidConfiguration, match="The key column k is of type"):
            erased(spark, Flow("p", target=table), key={"k": value}, dry_run=dry_run)
    assert newest(table) == 0
    assert not Path(f"{table}__erased").exists()


@pytest.mark.slow
def test_a_key_of_several_columns_and_types(spark: SparkSession, tmp_path: Path) -> None:
    """Rows with a NULL in the key, or with texts that only look alike, stay. The hash is an HMAC."""
    table = str(tmp_path / "table")
    spark.sql(
        f"CREATE TABLE delta.`{table}` (d DECIMAL(12,2), s STRING, b BINARY, t TIMESTAMP, n TIMESTAMP_NTZ, "
        "day DATE, v INT) USING delta"
    )
    at, day = "2024-02-29 01:02:03.0004", "2024-02-29"
    row = f"1.50, 'Ä:1', X'00ff', TIMESTAMP '{at}Z', TIMESTAMP_NTZ '{day} 00:00:00', DATE '{day}'"
    spark.sql(
        f"INSERT INTO delta.`{table}` VALUES ({row}, 1), ({row}, 2), ({row.replace('1.50', 'NULL')}, 3), "
        f"({row.replace('Ä:1', 'ä:1')}, 4), ({row.replace('00ff', '00fe')}, 5), "
        f"({row.replace('0004', '0005')}, 6), (NULL, NULL, NULL, NULL, NULL, NULL, 7)"
    )
    key = {"d": "1.5", "S": "Ä:1", "b": "00FF", "t": "2024-02-29T02:02:03.000400+01:00", "n": day, "day": day}
    report = erased(spark, Flow("p", target=table), key=key)
    assert deleted(report)["table"] == 2
    assert [one["v"] for one in rows(spark, table)] != []
    assert sorted(one["v"] for one in rows(spark, table)) == [3, 4, 5, 6, 7]
    (remembered,) = rows(spark, f"{table}__erased")
    properties = spark.sql(f"DESCRIBE DETAIL delta.`{table}__erased`").first()["properties"]
    texts = ["1.5", "Ä:1", "00FF", at, day, day]
    assert json.loads(properties["delta_cdc.erasedColumns"]) == ["d", "s", "b", "t", "n", "day"]
    message = "".join(f"{len(one.encode())}:{one}" for one in texts).encode()
    secret = bytes.fromhex(properties["delta_cdc.erasedSecret"])
    assert remembered["hash"] == hmac.new(secret, message, "sha256").hexdigest()


@pytest.mark.slow
def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    flow, target, of_flow = made(spark, tmp_path)
    with pytest.raises(InvalidConfiguration, match="key column id is no bigint") as refused:
        erased(spark, of_flow, key={"id": "seventeen"})
    assert "seventeen" not in str(refused.value)
    assert not Path(f"{target}__erased").exists()
    erased(spark, of_flow, key={"ID": "2"})
    assert [row["id"] for row in rows(spark, target)] == [1, 170017]
    # Without its ledger, a table must not take the keys back.
    shutil.rmtree(f"{target}__erased")
    flow.deliver("b.json", [event("U", 7, 1, amount=7)])
    flow.ingest()
    with pytest.raises(TableNotFound, match="target__erased"):
        flow.apply()


@pytest.mark.slow
def test_the_command(spark: SparkSession, tmp_path: Path, capsys: Any) -> None:
    flow, target, _ = made(spark, tmp_path)
    file = tmp_path / "pipelines.yaml"
    file.write_text(
        f"""
pipelines:
  flow: {{source: {flow.source}, log: {flow.log}, keys: [id], format: json, schema: "{SCHEMA}",
         adapter_options: {{operation_column: op, sequence_by: seq}}}}
  apply: {{source: {flow.log}, target: {target}, keys: [id]}}
"""
    )
    command = ["erase", str(file), "flow", "--key", "id=170017"]
    assert main([*command, "--dry-run"]) == 0
    assert "target" in capsys.readouterr().out
    assert len(rows(spark, target, "id = 170017")) == 1
    assert main([*command, "--json", "--purge"]) == 0
    report = json.loads(capsys.readouterr().out)
    found = {Path(row["table"]).name: row["deleted"] for row in report["tables"]}
    assert found == {"log": 2, "target": 1, "log__quarantine": 0, "target__quarantine": 0}
    assert report["errors"] == {}
    assert "170017" not in json.dumps(report)
    assert rows(spark, target, "id = 170017") == []
    # By the seal alone; a wrong key is an error of its table.
    assert main(["erase", f"apply={target}", "--key", "name=x"]) == 1
    assert "has the columns id" in capsys.readouterr().err
    assert main(["erase", f"flow={flow.log}", "--key", "id=1"]) == 0
    assert [row["id"] for row in rows(spark, flow.log)] == [2]


@pytest.mark.slow
def test_a_key_column_that_got_another_name(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, v STRING) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    policies = {"schema_evolution": "mirror"}

    def apply(**more: Any) -> Any:
        return apply_changes(spark, source, target, pipeline="p", policies=policies, **more)

    apply(keys=["id"])
    erased(spark, Flow("p", source, target=target), key={"id": "2"})
    apply(keys=["id"])
    spark.sql(f"ALTER TABLE delta.`{source}` RENAME COLUMN id TO customer_id")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (4, 'd')")
    # The remedy of ConfigurationDrift, and that of the ledger.
    with pytest.raises(ColumnNotFound, match="SET TBLPROPERTIES") as refused:
        apply(keys=["customer_id"], mode="reset")
    statement = refused.value.remedy.partition(": ")[2].rstrip(".")
    spark.sql(statement.replace("<new name>", "customer_id"))
    apply(keys=["customer_id"], mode="reset")
    rows = sorted(row[0] for row in spark.read.format("delta").load(target).collect())
    assert rows == [1, 3, 4]
    erased(spark, Flow("p", source, target=target), key={"customer_id": "3"})
    rows = sorted(row[0] for row in spark.read.format("delta").load(target).collect())
    assert rows == [1, 4]


@pytest.mark.slow
def test_quarantined_rows_of_before_a_rename_of_the_key(spark: SparkSession, tmp_path: Path) -> None:
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (id INT, v STRING) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true', 'delta.columnMapping.mode' = 'name')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (1, 'a'), (170017, 'Ottilie')")
    rules = {"short": {"check": "length(v) < 3", "on_break": "quarantine"}}
    policies = {"schema_evolution": "mirror"}

    def apply(key: str, **more: Any) -> Any:
        return apply_changes(
            spark, source, target, pipeline="p", policies=policies, keys=[key], rules=rules, **more
        )

    apply("id")
    assert spark.read.format("delta").load(f"{target}__quarantine").count() == 1
    spark.sql(f"ALTER TABLE delta.`{source}` RENAME COLUMN id TO customer_id")
    spark.sql(f"INSERT INTO delta.`{source}` VALUES (4, 'd')")
    apply("customer_id", mode="reset")
    assert "customer_id" in spark.read.format("delta").load(target).columns
    report = erased(spark, Flow("p", source, target=target), key={"customer_id": "170017"})
    notes = [row["note"] for row in report.rows]
    assert notes == ["", "1 rows have key columns of other names: look at them"]
    # Nor does the answer to why, or a replay, take such a row for one of another key.
    answer = explain_row(spark, target, pipeline="p", key={"customer_id": 4})
    assert [note for note in answer.notes if "key columns of other names" in note]
    counts = apply("customer_id", mode="repair", repair={"quarantined": True}).counts
    assert counts["quarantined"] == 1
    held = f"{target}__quarantine"
    assert [json.loads(row["keys"]) for row in rows(spark, held)] == [{"id": "170017"}]
    # Under the name that the column has now, it is replayed.
    spark.sql(f"""UPDATE delta.`{held}` SET keys = replace(keys, '"id":', '"customer_id":')""")
    rules = {"short": {"check": "length(v) < 9", "on_break": "quarantine"}}
    apply("customer_id", mode="repair", repair={"quarantined": True})
    assert rows(spark, held) == []


@pytest.mark.slow
def test_a_key_of_a_char_column_needs_no_blanks(spark: SparkSession, tmp_path: Path) -> None:
    """Only the source's schema has the length: without the source, the report says what to do."""
    source, target = str(tmp_path / "source"), str(tmp_path / "target")
    spark.sql(
        f"CREATE TABLE delta.`{source}` (code CHAR(5), v STRING) USING delta TBLPROPERTIES "
        "('delta.enableChangeDataFeed' = 'true')"
    )
    spark.sql(f"INSERT INTO delta.`{source}` VALUES ('AB', 'Ottilie'), ('CD', 'b')")
    apply_changes(spark, source, target, pipeline="p", keys=["code"])
    answer = explain_row(spark, target, pipeline="p", key={"code": "AB"})
    assert [value.value for row in answer.rows for value in row.values] == ['"AB   "', '"Ottilie"']
    report = erased(spark, Flow("p", target=target), key={"code": "AB"})
    assert report.outside[0].startswith("No row has this key")
    report = erased(spark, Flow("p", source, target=target), key={"code": "AB"})
    assert deleted(report) == {"target": 1, "target__quarantine": 0}
    assert [row["code"] for row in rows(spark, target)] == ["CD   "]
    assert explain_row(spark, target, pipeline="p", key={"code": "AB"}).erased is not None
    apply_changes(spark, source, target, pipeline="p", keys=["code"], mode="reload")
    assert [row["code"] for row in rows(spark, target)] == ["CD   "]
