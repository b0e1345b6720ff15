"""Every event once: whatever dies, comes twice, comes again, or is rolled back."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc import job
from delta_cdc.core.errors import DeltaCdcError
from delta_cdc.core.options import IngestOptions
from delta_cdc.core.spec import SourceFile
from delta_cdc.core.watermark import PipelineState, Seal, SealStep
from delta_cdc.planning.taken_files import taken
from delta_cdc.spark.ingest import ingested
from tests.support.deliveries import Deliveries, event, expected
from tests.support.engine import newest_seal, session_like, versions
from tests.support.holding import Gate, Running, hooked, once
from tests.support.ingest_specs import ingest_spec
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.support.deliveries import Event

POINTS = ("started", "planned", "recorded", "quarantined", "before_commit", "committed")


class Killed(BaseException):
    """What a job dies of in these tests: nothing of the engine catches it."""


def dying(point: str) -> AbstractContextManager[None]:
    def die() -> None:
        raise Killed(point)

    return hooked(once(point, die))


def touched(path: Path) -> None:
    """Let a file look as if it was delivered again."""
    later = path.stat().st_mtime_ns + 60_000_000_000
    os.utime(path, ns=(later, later))


@pytest.mark.parametrize("form", slow_but(["json", "csv", "parquet"], "json"))
def test_dying_anywhere(spark: SparkSession, tmp_path: Path, form: str) -> None:
    """One batch dies at each point in turn, and then comes to its end; so does the one behind it."""
    flow = Deliveries(spark, tmp_path, form)
    batches = [
        [event("I", 1, 1, name="a", amount=1), event("U", 2, 1, name="b", amount=2)],
        [event("I", 3, 2, name="c", amount=3), event("D", 4, 1)],
    ]
    # The first batch makes the tables; the second one appends to them.
    for number, batch in enumerate(batches):
        # Parquet has no records that are cut off.
        flow.deliver(f"{number}.{form}", [*batch, "cut off"])
        for point in POINTS:
            with dying(point), pytest.raises(Killed, match=point):
                flow.ingest()
        # It died after its commit the last time, so this try finds nothing to do.
        assert not flow.ingest().applied
        assert flow.events() == expected([e for b in batches[: number + 1] for e in b])
        assert len(flow.quarantined()) == (0 if form == "parquet" else number + 1)
    assert len(flow.rows("log__ingested")) == len(batches)


@pytest.mark.slow
def test_twins_and_zombies(spark: SparkSession, tmp_path: Path) -> None:
    flow = Deliveries(spark, tmp_path)
    first, second, third = ([event("I", n, n, name=str(n), amount=n)] for n in (1, 2, 3))
    flow.deliver("1.json", first)
    spec = flow.planned()
    # One that is overtaken while it reads: the other takes one file more, under a number of its own.
    gate = Gate("planned", thread="slow")
    with hooked(gate):
        slow = Running(lambda: job.run(spark, spec), "slow")
        gate.wait()
        flow.deliver("2.json", second)
        twin = replace(flow.planned(), steps=spec.steps)
        assert job.run(spark, twin).status == "committed"
        gate.open()
        found = slow.result()
    assert isinstance(found, job.JobResult)
    assert found.status == "skipped"
    # The same plan in another driver, after the first one came to its end.
    assert job.run(spark, twin).status == "skipped"
    assert flow.events() == expected([*first, *second])
    # A plan that another run has made true, or a RESTORE has made wrong.
    flow.deliver("3.json", third)
    spec = flow.planned()
    flow.ingest()
    assert job.run(spark, spec).status == "stale"
    assert flow.events() == expected([*first, *second, *third])
    flow.deliver("4.json", [event("I", 4, 4, name="4", amount=4)])
    spec = flow.planned()
    spark.sql(f"RESTORE TABLE delta.`{flow.log}` TO VERSION AS OF 0")
    before = versions(f"{flow.log}__ingested")
    assert job.run(spark, spec).status == "stale"
    assert versions(f"{flow.log}__ingested") == before
    assert len(flow.rows("log__ingested")) == 3


@pytest.mark.slow
@pytest.mark.parametrize("point", ["recorded", "before_commit"])
def test_a_log_that_is_dropped_while_a_job_works(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """Spark's append makes another log, which has one batch. The next run adds the events of all others."""
    flow = Deliveries(spark, tmp_path)
    first, second, third = ([event("I", n, n, name=str(n), amount=n)] for n in (1, 2, 3))
    flow.deliver("1.json", first)
    flow.ingest()
    flow.deliver("2.json", second)
    with hooked(once(point, lambda: shutil.rmtree(flow.log))), suppress(DeltaCdcError):
        flow.ingest()
    assert flow.events() == expected(second)
    flow.deliver("3.json", third)
    assert flow.ingest().applied
    assert flow.events() == expected([*first, *second, *third])
    assert not flow.ingest().applied


@pytest.mark.slow
@pytest.mark.parametrize("point", ["planned", "recorded", "before_commit"])
def test_two_ingests_at_once(spark: SparkSession, tmp_path: Path, point: str) -> None:
    """One of them tells the batch with its counts; the other tells that there was nothing."""
    flow = Deliveries(spark, tmp_path)
    for number in (1, 2):
        batch = [event("I", number, number, name="a", amount=1), event("I", number, -number, name="b")]
        flow.deliver(f"{number}.json", batch)
        gate = Gate(point, thread="slow")
        with hooked(gate):
            slow = Running(flow.ingest, "slow")
            gate.wait()
            fast = flow.ingest()
            gate.open()
            late: Any = slow.result()
        assert (fast.applied, fast.counts) == (True, {"events": 2, "files": 1})
        assert (late.applied, late.counts) == (False, {})
    assert len(flow.events()) == 4


@pytest.mark.slow
@pytest.mark.parametrize("way", slow_but(["keyed", "insert only"], "keyed"))
def test_delivered_again(spark: SparkSession, tmp_path: Path, way: str) -> None:
    """The same file, then grown, then changed: what it has more than before is new, and nothing else."""
    given: dict[str, Any] = {"insert_only": True, "keys": None} if way == "insert only" else {}
    flow = Deliveries(spark, tmp_path, given=given)
    one, two, three = (event("I", n, n, name="x", amount=n) for n in (1, 2, 3))
    held = [one, one, two]
    path = flow.deliver("a.json", held)
    flow.ingest()
    assert flow.events() == expected(held)
    touched(path)
    done = flow.ingest()
    assert (done.counts["events"], done.counts["repeated"]) == (0, 3)
    # Of three equal rows one is new.
    path = flow.deliver("a.json", [one, one, two, one, three, '{"op": "I", "seq": 9'])
    assert flow.ingest().counts == {"events": 2, "repeated": 3, "files": 1, "quarantined": 1}
    assert flow.events() == expected([*held, one, three])
    # What is in quarantine already does not go there twice.
    changed = event("U", 4, 1, name="y", amount=4)
    flow.deliver("a.json", [changed, three, '{"op": "I", "seq": 9'])
    assert flow.ingest().counts == {"events": 1, "repeated": 1, "files": 1}
    assert flow.events() == expected([*held, one, three, changed])
    assert len(flow.quarantined()) == 1


@pytest.mark.slow
def test_values_of_every_kind_are_known_again(spark: SparkSession, tmp_path: Path) -> None:
    """Equal is what Spark shows alike: NaN, both zeros, NULL, maps and fields in any order, columns added."""
    schema = (
        "seq BIGINT, id BIGINT, d DOUBLE, s STRUCT<a: INT, b: ARRAY<DOUBLE>>, t TIMESTAMP, n DECIMAL(20,2)"
    )
    flow = Deliveries(spark, tmp_path, given={"schema": schema, "on_invalid": "fail"})
    rows = [
        '{"op":"I","seq":1,"id":1,"d":"NaN","s":{"a":1,"b":[0.0,null]},"t":"2026-01-01T00:00:00Z","n":1.50}',
        '{"op":"I","seq":2,"id":2,"d":-0.0,"s":{"a":null,"b":[]},"t":null,"n":null}',
        '{"op":"I","seq":3,"id":3,"d":null,"s":null}',
    ]
    flow.deliver("a.json", rows)
    flow.ingest()
    flow.deliver("b.json", ['{"op":"I","seq":4,"id":4,"e":"new"}'])
    wider = f"{schema.replace('<a: INT, b: ARRAY<DOUBLE>>', '<c: INT, b: ARRAY<DOUBLE>, a: INT>')}, e STRING"
    assert flow.ingest(schema=wider).counts == {"events": 1, "files": 1}
    flow.deliver("a.json", [rows[0], rows[1].replace("-0.0", "0.0"), rows[2], rows[2].replace("3", "5")])
    assert flow.ingest(schema=wider).counts == {"events": 1, "repeated": 3, "files": 1}
    assert sorted(row["id"] for row in flow.rows()) == [1, 2, 3, 4, 5]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["keyed", "insert only"])
def test_a_null_of_a_column_that_the_schema_got_later_is_new(
    spark: SparkSession, tmp_path: Path, way: str
) -> None:
    """Missing is not NULL: the target would keep an older value. A row without key can only be doubled."""
    schema = "seq BIGINT, id BIGINT, name STRING"
    given: dict[str, Any] = {"insert_only": True, "keys": None} if way == "insert only" else {}
    flow = Deliveries(spark, tmp_path, given={"schema": schema, "on_invalid": "fail", **given})
    rows = [
        '{"op":"I","seq":1,"id":1,"name":"x","E":null}',
        '{"op":"I","seq":2,"id":2,"name":"y","E":"new"}',
        '{"op":"I","seq":3,"id":3,"name":"z"}',
    ]
    path = flow.deliver("a.json", rows)
    flow.ingest()
    wider, more = f"{schema}, E STRING", 1 if way == "insert only" else 2
    for events in (more, 0):
        touched(path)
        counts = flow.ingest(schema=wider).counts
        assert (counts["events"], counts["repeated"]) == (events, 3 - events)
    assert sum(row["name"] == "x" for row in flow.rows()) == more


@pytest.mark.slow
def test_a_log_that_is_restored_gets_its_files_again(spark: SparkSession, tmp_path: Path) -> None:
    flow = Deliveries(spark, tmp_path)
    batches = [[event("I", n, n, name=str(n), amount=n)] for n in range(4)]
    everything = expected([e for batch in batches for e in batch])
    for number, batch in enumerate(batches[:3]):
        flow.deliver(f"{number}.json", [*batch, f'{{"op": "?", "seq": 9, "id": {10 + number}}}'])
        flow.ingest()
    newest = versions(flow.log)[-1]
    spark.sql(f"RESTORE TABLE delta.`{flow.log}` TO VERSION AS OF {newest - 1}")
    assert flow.events() == expected([*batches[0], *batches[1]])
    flow.deliver("3.json", batches[3])
    assert flow.ingest().counts["files"] == 2
    assert flow.events() == everything
    # What the batch that was taken back had set aside counts once, too.
    flow.adapter_options = {**flow.adapter_options, "operations": {"?": "upsert"}}
    assert flow.ingest(replay=True).counts == {"events": 3}
    everything = sorted([*everything, *(("upsert", 9, n, None, None) for n in (10, 11, 12))], key=repr)
    assert flow.events() == everything
    assert flow.quarantined() == []
    # The record beside it is lost, or set back: the log itself says what it has.
    seal = newest_seal(flow.log)
    spark.sql(f"RESTORE TABLE delta.`{flow.log}__ingested` TO VERSION AS OF 1")
    done = flow.ingest()
    assert (done.counts["events"], done.counts["repeated"]) == (0, 7)
    assert flow.events() == everything
    assert seal is not None
    assert newest_seal(flow.log).number > seal.number  # type: ignore[union-attr]
    assert not flow.ingest().applied


@pytest.mark.slow
def test_the_record_keeps_all_rows_in_few_files(spark: SparkSession, tmp_path: Path) -> None:
    """Each batch adds a file to the table beside the log; every 16th batch lets Delta compact the files."""
    session, log = session_like(spark), str(tmp_path / "log")
    session.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")
    expected_files = {}
    for number in range(1, 35):
        name = f"/in/{number}.json"
        expected_files[name] = (number, 10 + number, "")
        spec = ingest_spec(
            IngestOptions(keys=("id",)), log=log, files=(SourceFile(name, number, 10 + number),)
        )
        spec = replace(spec, steps=(replace(spec.step, seal_number=number),))
        step = SealStep("ingest", number, number, "f", "r")
        seal = Seal("p", number, spec.source_uri, PipelineState(None, 1), step)
        assert ingested.write(session, spec, seal).status == "committed"
        n_files = session.sql(f"DESCRIBE DETAIL delta.`{spec.ingested_uri}`").collect()[0]["numFiles"]
        assert n_files <= 16
    assert n_files == 3
    record = asyncio.run(taken(log, "p"))
    assert (record.number, record.damaged) == (34, "")
    assert record.counted(1, 34, []).files == expected_files
    # A RESTORE of the log takes batches back by their numbers, also after a compaction.
    assert list(record.counted(1, 18, [[2, 17]]).files) == ["/in/1.json", "/in/18.json"]


def history(seed: int) -> list[list[Event]]:
    """Return the files of a history of a few keys, with deletes and partial updates."""
    luck = random.Random(seed)
    events = []
    for seq in range(1, 41):
        key = luck.randrange(6)
        if luck.random() < 0.2:
            events.append(event("D", seq, key))
        else:
            values = {"name": luck.choice("abc"), "amount": luck.randrange(3)}
            carried = luck.sample(sorted(values), luck.randrange(1, 3))
            events.append(event("U", seq, key, **{name: values[name] for name in carried}))
    return [events[at : at + 5] for at in range(0, len(events), 5)]


@pytest.mark.slow
@pytest.mark.parametrize("scd", [1, 2])
def test_any_order_and_twice_is_in_order_and_once(spark: SparkSession, tmp_path: Path, scd: int) -> None:
    files, luck = history(scd), random.Random(scd)
    straight = Deliveries(spark, tmp_path / "straight")
    for number, events in enumerate(files):
        straight.deliver(f"{number}.json", events)
    straight.ingest()
    straight.apply(stored_as_scd_type=scd)
    shuffled = Deliveries(spark, tmp_path / "shuffled")
    order = [*range(len(files)), *range(len(files))]
    luck.shuffle(order)
    for at in range(0, len(order), 4):
        for place, number in enumerate(order[at : at + 4], start=at):
            shuffled.deliver(f"{place}-{number}.json", luck.sample(files[number], len(files[number])))
        shuffled.ingest()
        shuffled.apply(stored_as_scd_type=scd)
    assert len(shuffled.rows()) == 2 * len(straight.rows())
    wanted = sorted(straight.rows("target"), key=repr)
    assert wanted
    assert sorted(shuffled.rows("target"), key=repr) == wanted
