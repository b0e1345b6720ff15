"""Records that are no events: never lost, never in the way, and taken again once they are mended."""

from __future__ import annotations

import gzip
import shutil
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import ColumnNotFound, InvalidRecord, SourceUnreadable, TargetSchemaClash
from delta_cdc.ingest.records.csv import UNCLOSED
from delta_cdc.spark.ingest import events
from tests.support.deliveries import Deliveries, event, expected
from tests.support.engine import versions
from tests.support.holding import hooked, once
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

GOOD = [event("I", 1, 1, name="a", amount=1), event("U", 2, 1, name="b", amount=2)]


class Killed(BaseException):
    pass


@pytest.mark.slow
def test_set_aside_mended_and_replayed(spark: SparkSession, tmp_path: Path) -> None:
    flow = Deliveries(spark, tmp_path)
    bad = {
        '{"op": "I", "seq": 3, "id"': "not JSON",
        '{"op": "I", "seq": 4, "id": "four"}': "id",
        '{"op": "I", "seq": 5, "id": null}': "null key: id",
        '{"op": "?", "seq": 6, "id": 6}': "unknown operation '?'",
        '{"op": "I", "id": 7}': "no value for sequence_by",
    }
    flow.deliver("a.json", [*GOOD, *bad])
    with pytest.raises(InvalidRecord, match=r"5 records of .* are not valid events"):
        flow.ingest(on_invalid="fail")
    assert not (tmp_path / "log__ingested").exists()
    assert flow.ingest().counts == {"events": 2, "files": 1, "quarantined": 5}
    found = flow.quarantined()
    assert {raw for _, _, raw in found} == set(bad)
    assert [reason for reason, _, raw in found if bad[str(raw)] not in reason] == []
    assert {name for _, name, _ in found} == {"a.json"}
    # Nothing is mended: a replay changes nothing.
    assert flow.ingest(replay=True).counts == {"events": 0}
    assert flow.quarantined() == found
    # An operation has got a meaning. The replay dies after its commit, before the quarantine is emptied.
    flow.adapter_options = {**flow.adapter_options, "operations": {"?": "upsert"}}

    def die() -> None:
        raise Killed

    with hooked(once("committed", die)), pytest.raises(Killed):
        flow.ingest(replay=True)
    assert len(flow.quarantined()) == 5
    wanted = expected([*GOOD, event("I", 6, 6)])
    assert flow.events() == wanted
    # The next batch dies, too. What the replay took is gone before the batch commits.
    flow.deliver("b.json", [event("I", 9, 9)])
    with hooked(once("before_commit", die)), pytest.raises(Killed):
        flow.ingest()
    assert len(flow.quarantined()) == 4
    assert flow.ingest().counts["events"] == 1
    wanted = expected([*GOOD, event("I", 6, 6), event("I", 9, 9)])
    assert flow.ingest(replay=True).counts["events"] == 0
    assert flow.events() == wanted
    assert len(flow.quarantined()) == 4
    # A record was mended by hand.
    spark.sql(
        f'UPDATE delta.`{flow.log}__quarantine` SET raw = \'{{"op": "I", "seq": 5, "id": 5}}\' '
        "WHERE reason LIKE 'null key%'"
    )
    assert flow.ingest(replay=True).counts == {"events": 1}
    assert flow.events() == sorted([*wanted, *expected([event("I", 5, 5)])], key=repr)
    assert len(flow.quarantined()) == 3


@pytest.mark.slow
def test_a_pipeline_with_a_new_name_keeps_each_record_once(spark: SparkSession, tmp_path: Path) -> None:
    """Its first run compares all files with the log, and with the quarantine of the old name."""
    flow = Deliveries(spark, tmp_path)

    def records() -> list[str]:
        return sorted(str(raw) for _, _, raw in flow.quarantined())

    flow.deliver("a.json", [*GOOD, "no JSON"])
    truncated_gzip(flow.deliver("b.json", []))
    flow.ingest()
    assert records() == ["None", "no JSON"]
    flow.deliver("a.json", [*GOOD, "no JSON", "nor this"])
    assert flow.ingest(pipeline="renamed").counts["quarantined"] == 1
    assert records() == ["None", "no JSON", "nor this"]
    # A file that can be read now leaves it, under whichever name it came.
    whole = gzip.compress(b'{"op": "I", "seq": 9, "id": 9}\n')
    (flow.source / "b.json.gz").write_bytes(whole)
    assert flow.ingest(pipeline="renamed").counts["events"] == 1
    assert records() == ["no JSON", "nor this"]


@pytest.mark.slow
def test_a_quote_without_an_end(spark: SparkSession, tmp_path: Path) -> None:
    """What may lie inside of a quoted value is no record, at a replay neither; the mended file is."""
    flow = Deliveries(spark, tmp_path, "csv")
    path = flow.deliver(
        "a.csv", [*GOOD, event("I", 3, 3, name="c", amount=3), event("I", 4, 4, name="d", amount=4)]
    )
    whole = path.read_text()
    path.write_text(whole.replace(",c,", ',"c,'))
    assert flow.ingest().counts == {"events": 2, "files": 1, "quarantined": 2}
    assert {reason for reason, _, _ in flow.quarantined()} == {UNCLOSED}
    assert flow.ingest(replay=True).counts == {"events": 0}
    assert flow.events() == expected(GOOD)
    path.write_text(whole)
    flow.ingest()
    assert flow.events() == expected(
        [*GOOD, event("I", 3, 3, name="c", amount=3), event("I", 4, 4, name="d", amount=4)]
    )


@pytest.mark.slow
def test_a_replay_whose_quarantine_was_dropped_ends(spark: SparkSession, tmp_path: Path) -> None:
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", [*GOOD, "no JSON"])
    flow.ingest()

    def die() -> None:
        raise Killed

    with hooked(once("recorded", die)), pytest.raises(Killed):
        flow.ingest(replay=True)
    shutil.rmtree(f"{flow.log}__quarantine")
    more = event("I", 3, 3, name="c", amount=3)
    flow.deliver("b.json", [more])
    # The recorded replay comes first.
    assert flow.ingest().counts == {"events": 0}
    assert flow.ingest().counts == {"events": 1, "files": 1}
    assert flow.events() == expected([*GOOD, more])


@pytest.mark.slow
def test_csv_and_parquet_are_replayed(spark: SparkSession, tmp_path: Path) -> None:
    for form in ("csv", "parquet"):
        flow = Deliveries(spark, tmp_path / form, form)
        flow.deliver(f"a.{form}", [*GOOD, event("?", 3, 3, name="c, d", amount=3)])
        flow.deliver(f"b.{form}", [{"amount": 4, "id": 4, "seq": 4, "op": "?"}])
        assert flow.ingest().counts == {"events": 2, "files": 2, "quarantined": 2}
        flow.adapter_options = {**flow.adapter_options, "operations": {"?": "upsert"}}
        assert flow.ingest(replay=True).counts == {"events": 2}
        mended = [event("I", 3, 3, name="c, d", amount=3), event("I", 4, 4, amount=4)]
        assert flow.events() == expected([*GOOD, *mended])
        assert flow.quarantined() == []
        carried = {row["id"]: row["_columns"] for row in flow.rows()}
        assert "name" not in carried[4]


@pytest.mark.slow
def test_records_of_a_dropped_log_stay_once(spark: SparkSession, tmp_path: Path) -> None:
    """Some files come again into the new log, others are gone: each bad record stays, replayed once."""
    flow = Deliveries(spark, tmp_path)
    kept, gone = '{"op": "?", "seq": 3, "id": 3}', '{"op": "?", "seq": 4, "id": 4}'
    flow.deliver("a.json", [*GOOD, kept])
    archived = flow.deliver("b.json", [event("I", 5, 5), gone])
    assert flow.ingest().counts == {"events": 3, "files": 2, "quarantined": 2}
    archived.unlink()
    for name in ("log", "log__ingested"):
        shutil.rmtree(tmp_path / name)
    assert flow.ingest().counts == {"events": 2, "files": 1}
    assert sorted(str(raw) for _, _, raw in flow.quarantined()) == [kept, gone]
    flow.adapter_options = {**flow.adapter_options, "operations": {"?": "upsert"}}
    assert flow.ingest(replay=True).counts == {"events": 2}
    assert flow.quarantined() == []
    assert flow.events() == expected([*GOOD, event("I", 3, 3), event("I", 4, 4)])


@pytest.mark.slow
def test_a_record_that_became_an_event_in_another_row_is_not_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    flow = Deliveries(spark, tmp_path, "parquet")
    bad = event("?", 3, 3)
    flow.deliver("a.parquet", GOOD)
    flow.ingest()
    flow.deliver("b.parquet", [bad])
    flow.ingest()
    spark.sql(f"RESTORE TABLE delta.`{flow.log}` TO VERSION AS OF 0")
    flow.deliver("b.parquet", [event("I", 4, 4), bad])
    flow.adapter_options = {**flow.adapter_options, "operations": {"?": "upsert"}}
    flow.ingest()
    wanted = expected([*GOOD, event("I", 4, 4), event("I", 3, 3)])
    assert flow.events() == wanted
    flow.ingest(replay=True)
    assert flow.events() == wanted
    assert flow.quarantined() == []


@pytest.mark.slow
def test_files_that_are_damaged(spark: SparkSession, tmp_path: Path) -> None:
    """A file that cannot be read stands in quarantine as a whole; the others do not wait for it."""
    flow = Deliveries(spark, tmp_path, "parquet")
    whole = flow.deliver("a.parquet", GOOD)
    cut = flow.deliver("b.parquet", [event("I", 3, 3, name="c", amount=3)])
    data = cut.read_bytes()
    cut.write_bytes(data[: len(data) // 2])
    with pytest.raises(SourceUnreadable, match=r"b\.parquet"):
        flow.ingest(on_invalid="fail")
    assert flow.ingest().counts == {"events": 2, "files": 2, "quarantined": 1}
    ((reason, name, raw),) = flow.quarantined()
    assert (name, raw) == ("b.parquet", None)
    assert reason
    assert not flow.ingest().applied
    cut.write_bytes(data)
    assert flow.ingest().counts == {"events": 1, "files": 1}
    assert flow.events() == expected([*GOOD, event("I", 3, 3, name="c", amount=3)])
    assert flow.quarantined() == []
    assert whole.exists()


def zeroed_pages(path: Path) -> None:
    """Overwrite the pages of a Parquet file with zeros; its footer stays whole."""
    data = bytearray(path.read_bytes())
    footer = int.from_bytes(data[-8:-4], "little") + 8
    data[4 : len(data) - footer] = bytes(len(data) - footer - 4)
    path.write_bytes(data)


def truncated_gzip(path: Path) -> None:
    packed = gzip.compress(b'{"op": "I", "seq": 3, "id": 3}\n' * 5000)
    path.with_name(f"{path.name}.gz").write_bytes(packed[: len(packed) // 2])
    path.unlink()


@pytest.mark.parametrize(
    ("form", "damage"),
    slow_but([("json", truncated_gzip), ("parquet", zeroed_pages)], ("parquet", zeroed_pages)),
)
def test_all_damages_that_only_reading_finds_are_found_at_once(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, damage: Any
) -> None:
    """How often the batch is read does not depend on the number of its damaged files."""
    flow = Deliveries(spark, tmp_path, form)
    damaged, sound = range(3, 10, 2), range(4, 11, 2)
    flow.deliver(f"good.{form}", GOOD)
    for number in damaged:
        damage(flow.deliver(f"bad {number}.{form}", [event("I", number, number, name="c", amount=3)]))
    for number in sound:
        flow.deliver(f"{number}.{form}", [event("I", number, number)])
    reads, read = [], events.prepared

    def counted(*arguments: Any) -> Any:
        reads.append(arguments)
        return read(*arguments)

    monkeypatch.setattr(events, "prepared", counted)
    n_damaged, n_sound = len(damaged), len(sound)
    counts = {"events": 2 + n_sound, "files": 1 + n_damaged + n_sound, "quarantined": n_damaged}
    assert flow.ingest().counts == counts
    assert len(reads) == 2
    quarantined = [(name.removesuffix(".gz"), raw) for _, name, raw in flow.quarantined()]
    assert sorted(quarantined) == sorted((f"bad {number}.{form}", None) for number in damaged)
    assert flow.events() == expected([*GOOD, *(event("I", number, number) for number in sound)])
    assert not flow.ingest().applied


def test_late_beyond_the_allowed_lateness(spark: SparkSession, tmp_path: Path) -> None:
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", GOOD)
    flow.ingest()
    spark.sql(f"ALTER TABLE delta.`{flow.log}` SET TBLPROPERTIES ('delta_cdc.latenessHorizon' = '10')")
    flow.deliver("b.json", [event("I", 9, 9), event("I", 10, 10), event("D", 11, 1)])
    counts = {"events": 2, "deletes": 1, "files": 1, "quarantined": 1, "late": 1}
    # Being late is no fault of the record.
    assert flow.ingest(on_invalid="fail").counts == counts
    assert [(reason, name) for reason, name, _ in flow.quarantined()] == [("late_beyond_horizon", "b.json")]


def test_a_batch_that_does_not_go_with_its_log(spark: SparkSession, tmp_path: Path) -> None:
    """Named, and nothing is written; files that went since planning are planned anew."""
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", GOOD)
    with pytest.raises(ColumnNotFound, match="nokey"):
        flow.ingest(keys=["nokey"])
    flow.ingest()
    flow.deliver("b.json", [event("I", 3, 3)])
    before = versions(f"{flow.log}__ingested")
    with pytest.raises(TargetSchemaClash, match=r"amount is bigint in .* and string in the batch"):
        flow.ingest(schema="seq BIGINT, id BIGINT, amount STRING")
    assert versions(f"{flow.log}__ingested") == before
    gone = flow.deliver("c.json", [event("I", 4, 4)])
    with hooked(once("started", gone.unlink)):
        assert flow.ingest().counts == {"events": 1, "files": 1}
    assert flow.events() == expected([*GOOD, event("I", 3, 3)])


@pytest.mark.slow
def test_a_log_is_widened_by_policy(spark: SparkSession, tmp_path: Path) -> None:
    """By default a wider type is refused; a crash after the log was widened is mended by the next run."""
    flow = Deliveries(spark, tmp_path)
    flow.deliver("a.json", GOOD)
    narrow, wide = (f"seq BIGINT, id BIGINT, name STRING, amount {kind}" for kind in ("INT", "BIGINT"))
    flow.ingest(schema=narrow)
    flow.apply()
    late = event("I", 3, 3, name="c", amount=3_000_000_000)
    flow.deliver("b.json", [late])
    with pytest.raises(TargetSchemaClash, match="schema_evolution in policies to 'widen'"):
        flow.ingest(schema=wide)
    policy = {"schema": wide, "schema_evolution": "widen"}
    with hooked(once("altered", raising)), pytest.raises(Killed):
        flow.ingest(**policy)
    # The log's columns changed, and its events did not.
    assert flow.apply(schema_evolution="widen").applied
    assert flow.ingest(**policy).counts == {"events": 1, "files": 1}
    assert flow.events() == expected([*GOOD, late])
    # A narrower batch lands in the wide column.
    flow.deliver("c.json", [event("I", 4, 4, amount=4)])
    flow.ingest(**{**policy, "schema": narrow})
    assert flow.events() == expected([*GOOD, late, event("I", 4, 4, amount=4)])
    flow.apply(schema_evolution="widen")
    assert {row["id"]: row["amount"] for row in flow.rows("target")} == {1: 2, 3: 3_000_000_000, 4: 4}


def raising() -> None:
    raise Killed
