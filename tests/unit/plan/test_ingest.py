"""What an ingest decides before Spark starts."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_cdc.core import validation
from delta_cdc.core.errors import (
    ConfigurationDrift,
    InvalidConfiguration,
    NotADeltaTable,
    SourceNotFound,
    TargetReplaced,
    TargetWithoutWatermark,
)
from delta_cdc.core.options import INGEST, IngestOptions
from delta_cdc.core.watermark import TableVersion
from delta_cdc.delta_log.table import DeltaLog
from delta_cdc.planning import ingest_batches
from delta_cdc.planning.ingest import plan_ingest
from delta_cdc.planning.memory import Memory
from delta_cdc.planning.reconcile import reconcile
from tests.support.ingest_model import OPTIONS, Boom, World
from tests.support.logs import EPOCH, LogTable, unhashed

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.core.spec import IngestSpec
    from delta_cdc.planning.ingest import IngestPlan

DAY = 86_400_000


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def files(plan: IngestPlan) -> list[str]:
    """Return the names of a batch's files."""
    return [file.uri.rpartition("/landing/")[2] for file in plan.spec.files]


def spec_of(plan: IngestPlan) -> IngestSpec:
    assert plan.spec is not None
    return plan.spec


def dies(world: World, at: str, **changes: Any) -> None:
    with pytest.raises(Boom):
        world.unpublished(lambda spec: world.engine(spec, at), **changes)


# -- the first batch ----------------------------------------------------------------------------
def test_the_first_batch(world: World) -> None:
    first = world.deliver("2024/b.json", ["1", "2"])
    world.deliver("2024/a.json", ["3"])
    world.deliver("_hidden.json", ["4"])
    plan = world.plan(now_ms=EPOCH + 7)
    spec = spec_of(plan)
    assert files(plan) == ["2024/b.json", "2024/a.json"], "the oldest first"
    assert (spec.files[0].size, spec.files[0].modified) == (4, EPOCH + 1000)
    assert not spec.files[0].again
    assert (spec.step.kind, spec.step.seal_number) == ("ingest", EPOCH + 7)
    assert spec.step.before.applied_from == EPOCH + 7
    assert spec.step.planned_on is None
    assert spec.step.configuration == {
        "before": 0,
        "void": [[0, EPOCH + 6]],
        "ingest": validation.described_ingest(OPTIONS),
    }
    assert (spec.source_uri, spec.log_uri) == (str(world.source), str(world.root / "log"))
    assert spec.ingested_uri == f"{spec.log_uri}__ingested"
    assert spec.quarantine_uri == f"{spec.log_uri}__quarantine"
    assert not spec.recorded
    assert (plan.left, plan.looked) == ({}, 2)
    assert first.name in str(plan)
    assert "does not exist yet" in str(plan)


def test_the_number_of_a_try_before_is_taken_again(world: World) -> None:
    world.deliver("a.json", ["1"])
    saved = Memory(number=lambda key: EPOCH, now_ms=EPOCH + 1000)
    assert spec_of(plan_ingest(world.request(), saved)).step.seal_number == EPOCH


def test_then_what_is_new(world: World) -> None:
    world.deliver("a.json", ["1"])
    first = world.ingest()
    assert world.plan().spec is None
    assert "nothing" in str(world.plan())
    world.deliver("b.json", ["2"])
    plan = world.plan()
    assert files(plan) == ["b.json"]
    step = spec_of(plan).step
    assert first.seal is not None
    assert (step.seal_number, step.before.applied_from) == (first.seal + 1, first.seal)
    assert unhashed(step.planned_on) == TableVersion("log-1", 0)
    assert step.configuration["before"] == 1
    assert plan.looked == 2


def test_an_empty_log_that_somebody_made(world: World) -> None:
    """Every planner comes to the same number, so that two first batches compete for it."""
    world.log.create()
    world.deliver("a.json", ["1"])
    assert spec_of(world.plan(now_ms=EPOCH + 99)).step.seal_number == world.log.created
    world.drain()
    assert world.events == world.delivered


# -- the order of events --------------------------------------------------------------------------
def ordered_by(adapter: str = "plain", **options: Any) -> dict[str, Any]:
    return {"options": IngestOptions(keys=("id",), adapter=adapter, adapter_options=options)}


@pytest.mark.parametrize(
    ("built", "given"),
    [
        (ordered_by(sequence_by="seq"), ordered_by(sequence_by="ts")),
        (ordered_by(sequence_by=["a", "b"]), ordered_by(sequence_by=["b", "a"])),
        (ordered_by(sequence_by="seq"), ordered_by("maxwell")),
        (ordered_by("debezium"), ordered_by("debezium", sequence_by=["source.pos", "source.row"])),
        (ordered_by("dms", timestamp_column="ts"), ordered_by("dms", change_sequence="seq")),
        (ordered_by("dms"), ordered_by("dms", envelope=True)),
    ],
)
def test_another_order_is_refused(world: World, built: dict[str, Any], given: dict[str, Any]) -> None:
    """Texts of another order sort below or above all that the log has: both are wrong for ever."""
    world.deliver("a.json", ["1"])
    world.ingest(**built)
    world.deliver("b.json", ["2"])
    for request in (given, {**given, "on_drift": "repair"}):
        with pytest.raises(ConfigurationDrift, match=r"in the order of .*, and now .* is given") as raised:
            world.plan(**request)
        assert "a new log and a new target" in raised.value.remedy
        assert not raised.value.retryable
    accepted = world.plan(**given, on_drift="accept")
    assert files(accepted) == ["b.json"]
    assert "It is accepted (on_drift)" in str(accepted)
    world.ingest(**given, on_drift="accept")
    world.deliver("c.json", ["3"])
    assert files(world.plan(**given)) == ["c.json"]


def test_both_orders_are_named(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest(**ordered_by("debezium"))
    given = ordered_by("debezium", sequence_by=["source.pos", "source.row"])
    with pytest.raises(ConfigurationDrift) as raised:
        world.plan(**given)
    assert "in the order of sequence_by = the adapter's default, and now sequence_by = (source.pos, " in str(
        raised.value
    )


@pytest.mark.parametrize(
    ("built", "given"),
    [
        (ordered_by(sequence_by="Seq"), ordered_by(sequence_by=[" seq"])),
        (ordered_by("debezium"), ordered_by("debezium", connector="mysql", table="t")),
        (ordered_by("mine.adapter", sequence_by="x"), ordered_by("mine.adapter", sequence_by="y")),
        (ordered_by("mine.adapter"), ordered_by("theirs.adapter")),
    ],
)
def test_what_is_no_other_order(world: World, built: dict[str, Any], given: dict[str, Any]) -> None:
    world.deliver("a.json", ["1"])
    world.ingest(**built)
    world.deliver("b.json", ["2"])
    assert files(world.plan(**given)) == ["b.json"]


# -- bounds -------------------------------------------------------------------------------------
def test_bounds(world: World) -> None:
    for name, count in (("c", 1), ("b", 2), ("a", 3)):
        world.deliver(f"{name}.json", ["x"] * count)
    some = world.plan(max_files=2)
    assert (files(some), some.left) == (["c.json", "b.json"], {"files": 1, "bytes": 6})
    assert files(world.plan(max_bytes=6)) == ["c.json", "b.json"]
    assert files(world.plan(max_bytes=1)) == ["c.json"], "at least one"
    assert files(world.plan(glob="[ab].json")) == ["b.json", "a.json"]
    for name in ("b", "c", "a"):
        world.deliver(f"{name}.json", ["x"], at=EPOCH)
    assert files(world.plan()) == ["a.json", "b.json", "c.json"], "of the same time by name"


def test_older_files_are_left_out_and_counted(world: World) -> None:
    for number in range(3):
        world.deliver(f"{number}.json", ["x"], at=EPOCH + number * DAY)
    since = {"starting_timestamp": "2027-01-16T08:00:00+00:00"}
    plan = world.plan(**since)
    assert files(plan) == ["1.json", "2.json"]
    world.ingest(**since)
    again = world.plan(**since)
    assert again.spec is None
    for note in (plan.notes[0], again.notes[0]):
        assert "1 file of" in note
        assert "left out" in note
    assert files(world.plan()) == ["0.json"]


def test_names_that_only_grow(world: World) -> None:
    for name, at in (("1.json", 3), ("2.json", 2), ("3.json", 1)):
        world.deliver(name, ["x"], at=EPOCH + at)
    ordered = {"lexical_order": True}
    assert files(world.plan(max_files=2, **ordered)) == ["1.json", "2.json"], "by name, not by time"
    world.ingest(max_files=2, **ordered)
    world.deliver("0.json", ["late"])
    world.deliver("2.json", ["again"])
    plan = world.plan(**ordered)
    assert (files(plan), plan.looked) == (["3.json"], 1)
    assert sorted(files(world.plan())) == ["0.json", "2.json", "3.json"]


def test_names_that_only_grow_begin_anew_elsewhere(world: World) -> None:
    world.deliver("old/9.json", ["x"])
    world.ingest(source=f"{world.source}/old", lexical_order=True)
    world.deliver("new/1.json", ["x"])
    assert files(world.plan(source=f"{world.source}/new", lexical_order=True)) == ["new/1.json"]
    assert world.plan(lexical_order=True).spec is None, "within one source, names grow"


# -- delivered again ----------------------------------------------------------------------------
def test_a_file_that_grew(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.deliver("b.json", ["1"])
    world.ingest()
    world.deliver("a.json", ["1", "1", "2"])
    plan = world.plan()
    assert files(plan) == ["a.json"]
    assert spec_of(plan).files[0].again
    assert "only what is new in them is added" in plan.notes[-1]
    assert world.ingest().counts["events"] == 2
    assert world.events == world.delivered
    assert world.plan().spec is None


# -- a try that died ----------------------------------------------------------------------------
def test_a_batch_that_was_recorded_comes_first(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    world.deliver("a.json", ["1", "2"])
    world.deliver("b.json", ["3"])
    dies(world, "recorded")
    world.deliver("c.json", ["4"])
    plan = world.plan(max_files=1)
    spec = spec_of(plan)
    assert files(plan) == ["a.json", "b.json"], "all of it, whatever the bounds are now"
    assert [file.again for file in spec.files] == [True, False]
    assert spec.recorded
    assert spec.step.seal_number == world.record_txns["p"]
    assert plan.left == {"files": 1, "bytes": 2}
    assert "did not write its events to" in plan.notes[0]
    world.drain()
    assert world.events == world.delivered


def test_the_first_batch_was_recorded_and_there_is_no_log(world: World) -> None:
    world.deliver("a.json", ["1"])
    dies(world, "recorded")
    number = world.record_txns["p"]
    step = spec_of(world.plan(now_ms=EPOCH + DAY)).step
    assert (step.seal_number, step.before.applied_from) == (number, number)
    assert world.ingest().seal == number
    assert world.events == world.delivered


def test_a_recorded_file_that_has_gone_and_comes_back(world: World) -> None:
    world.deliver("a.json", ["1"])
    gone = world.deliver("b.json", ["2"])
    dies(world, "recorded")
    hidden = gone.rename(world.root / "hidden")
    plan = world.plan()
    assert [file.missing for file in spec_of(plan).files] == [False, True]
    assert "without 1 file deleted since then" in plan.notes[1]
    assert world.ingest().counts["events"] == 1
    assert world.plan().spec is None
    hidden.rename(gone)
    assert files(world.plan()) == ["b.json"], "its record says taken, but nothing of it ever was"
    world.ingest()
    assert world.plan().spec is None
    assert world.events == world.delivered


def test_a_recorded_file_outside_of_what_is_named_now(world: World) -> None:
    world.deliver("a.json", ["1"])
    dies(world, "recorded")
    other = world.root / "other"
    other.mkdir()
    plan = world.plan(source=str(other))
    assert (files(plan), spec_of(plan).files[0].missing) == (["a.json"], False)


def test_a_recorded_file_whose_name_is_not_utf8(world: World) -> None:
    """Its name as a text is no name on the disk: it must not count as deleted."""
    world.deliver("a.json", ["1"])
    path = os.path.join(os.fsencode(world.source), b"caf\xe9.json")  # noqa: PTH118
    with open(path, "wb") as file:  # noqa: PTH123
        file.write(b'{"id": 2}\n')
    dies(world, "recorded")
    found = {file.uri.rpartition("/")[2]: file for file in spec_of(world.plan()).files}
    assert not found["caf\\xe9.json"].missing
    assert "rename it" in found["caf\\xe9.json"].unreadable
    assert not found["a.json"].unreadable


def test_a_reseal_and_a_replay_that_were_recorded(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    for kind, now in (("renew", world.clock + 20 * DAY), ("replay", world.clock)):
        spec = spec_of(world.plan(now_ms=world.clock + 20 * DAY))
        with pytest.raises(Boom):
            world.engine(replace(spec, steps=(replace(spec.step, kind=kind),)), "recorded")
        plan = world.plan(now_ms=now)
        assert (spec_of(plan).step.kind, spec_of(plan).recorded) == (kind, True)
        world.engine(spec_of(plan))
    assert world.plan().spec is None


# -- RESTORE, loss ------------------------------------------------------------------------------
def test_a_restored_log_takes_its_batches_again(world: World) -> None:
    for name in "abcd":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    first = world.log_txns["p"] - 3
    world.log.restore(1)
    plan = world.plan()
    assert files(plan) == ["c.json", "d.json"]
    assert not any(file.again for file in spec_of(plan).files)
    assert spec_of(plan).step.configuration["void"] == [[0, first - 1], [first + 2, first + 3]]
    assert spec_of(plan).step.seal_number == first + 4
    assert any("was restored" in note for note in plan.notes)
    world.drain()
    assert world.events == world.delivered
    world.log.restore(0)
    world.drain()
    assert world.events == world.delivered
    world.log.restore(5)
    world.drain()
    assert world.events == world.delivered


def test_a_restore_with_a_batch_in_between(world: World) -> None:
    """A batch that was recorded after the RESTORE is void, too; the next one has its files."""
    for name in "ab":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    world.log.restore(0)
    dies(world, "recorded")
    plan = world.plan()
    assert (files(plan), spec_of(plan).recorded) == (["b.json"], False)
    number = spec_of(plan).step.seal_number
    assert spec_of(plan).step.configuration["void"][1:] == [[number - 2, number - 1]]
    world.drain()
    assert world.events == world.delivered


def test_a_restore_undoes_the_batch_before_one_that_was_recorded(world: World) -> None:
    """Finished, the recorded batch would hide the files before it: the greatest name is taken."""
    ordered = {"lexical_order": True, "max_files": 1}
    for name in "abc":
        world.deliver(f"{name}.json", [name])
    for _ in range(2):
        world.ingest(**ordered)
    dies(world, "recorded", **ordered)
    world.log.restore(0)
    assert files(world.plan(lexical_order=True)) == ["b.json", "c.json"]
    world.drain(**ordered)
    assert world.events == world.delivered


def test_a_restore_undoes_a_replay(world: World) -> None:
    """The quarantine does not have its records any more: all files are compared with the log."""
    for name in "ab":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    spec = spec_of(world.plan(now_ms=world.clock + 20 * DAY))
    world.engine(replace(spec, steps=(replace(spec.step, kind="replay"),)))
    assert world.plan().spec is None
    world.log.restore(1)
    plan = world.plan()
    assert [(file.uri[-6:], file.again) for file in spec_of(plan).files] == [
        ("a.json", True),
        ("b.json", True),
    ]
    assert any("undid a replay: the quarantine does not have its records any more." in n for n in plan.notes)
    world.drain()
    assert world.events == world.delivered
    assert world.plan().spec is None, "once"


def test_restored_to_before_the_first_batch(world: World) -> None:
    world.log.create()
    world.deliver("a.json", ["1"])
    first = world.ingest()
    world.log.restore(0)
    step = spec_of(world.plan()).step
    assert first.seal is not None
    assert (step.seal_number, step.before.applied_from) == (first.seal + 1, first.seal + 1)
    # The batch left records in quarantine: they come again, too.
    assert step.configuration["void"] == [[0, first.seal]]
    world.drain()
    assert world.events == world.delivered


def test_a_lost_record(world: World) -> None:
    for name in "abc":
        world.deliver(f"{name}.json", [name])
    world.ingest()
    world.lose_record()
    plan = world.plan(max_files=1)
    assert (files(plan), plan.left["files"]) == (["a.json"], 2)
    assert spec_of(plan).files[0].again
    assert spec_of(plan).step.before.applied_from == spec_of(plan).step.seal_number
    assert spec_of(plan).step.configuration["lost"]
    assert "has 0 of 3 entries" in plan.notes[0]
    assert world.ingest(max_files=1).counts["events"] == 0
    rest = world.plan()
    assert [file.again for file in spec_of(rest).files] == [True, True], "it stays unknown what was taken"
    assert not any("entries" in note for note in rest.notes), "and is told once"


def test_what_was_taken_back_stays_so_where_the_record_is_lost(world: World) -> None:
    """Quarantine keeps what the batches that were taken back put there, and asks the seal which those are."""
    for name in "abc":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    number = world.log_txns["p"]
    world.log.restore(1)
    world.ingest()
    world.lose_record()
    plan = world.plan()
    assert "entries" in plan.notes[0]
    assert spec_of(plan).step.configuration["void"][1:] == [[number, number]]
    world.drain()
    assert world.events == world.delivered


def test_a_record_that_knows_a_number_and_no_files(world: World) -> None:
    for name in "ab":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    world.deliver("c.json", ["c"])
    dies(world, "recorded")
    number = world.record_txns["p"]
    world.record.restore(1)
    plan = world.plan()
    assert (spec_of(plan).step.seal_number, spec_of(plan).recorded) == (number + 1, False)
    assert "has no file of batch" in plan.notes[0]
    world.drain()
    assert world.events == world.delivered


def test_a_damaged_record(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    (file,) = world.record.path.glob("*.parquet")
    file.write_bytes(b"no Parquet")
    assert "is damaged" in world.plan().notes[0]
    file.unlink()
    assert "is damaged" in world.plan().notes[0]
    assert all(file.again for file in spec_of(world.plan()).files)


def test_a_seal_that_was_cleaned_away(world: World) -> None:
    """The events say themselves where they came from."""
    world.deliver("a.json", ["1"])
    world.ingest()
    world.log.append()
    checkpointed(world.log)
    world.log.file(0).unlink()
    plan = world.plan()
    assert spec_of(plan).files[0].again
    assert "that is not in the record with the log" in plan.notes[-1]
    assert spec_of(plan).step.seal_number == world.log_txns["p"] + 1


def checkpointed(log: LogTable) -> None:
    """Write a checkpoint of the newest version."""
    import deltalake

    for path in log.files[log.version]:
        pq.write_table(pa.table({"id": ["1"]}), log.path / path)
    deltalake.DeltaTable(log.path).create_checkpoint()


def test_a_seal_stays_small(world: World) -> None:
    """What does not fit is left out: then more is compared with the log, and no event is lost or doubled."""
    many = [world.deliver(f"{number:04d}.json", []) for number in range(3200)]
    kept = world.deliver("kept.json", ["1"])
    dies(world, "recorded")
    for file in many:
        file.unlink()
    step = spec_of(world.plan(options=replace(OPTIONS, schema="x STRING" * 9000))).step
    assert len(json.dumps(step.configuration)) < 50_000
    assert step.configuration["lost"]
    assert not {"missing", "ingest"} & set(step.configuration)
    world.ingest()
    kept.write_text("1\n2\n")
    many[7].write_text("back\n")
    world.drain()
    assert world.events == world.delivered


def test_a_log_that_was_rolled_back_again_and_again(world: World) -> None:
    world.log.create()
    for name in "ab":
        world.deliver(f"{name}.json", [name])
    spec = spec_of(world.plan(max_files=1))
    void = [[number, number] for number in range(501)]
    conf = {**spec.step.configuration, "void": void}
    world.engine(
        replace(spec, steps=(replace(spec.step, before=replace(spec.step.before, configuration=conf)),))
    )
    plan = world.plan()
    assert "more than 500 times" in plan.notes[0]
    assert spec_of(plan).step.configuration["void"] == []
    world.drain()
    assert world.events == world.delivered


# -- while another run is at work ---------------------------------------------------------------
@dataclass
class Meanwhile:
    """Lets another run make two batches while this one looks, after it saw the log or the record alone."""

    world: World
    first: str
    dies_at: str
    busy: bool = True
    seen: asyncio.Event = field(default_factory=asyncio.Event)

    def patched(self, what: str, look: Any) -> Any:
        return lambda *given: self.look(look, given, what) if self.busy else look(*given)

    async def look(self, look: Any, given: tuple[Any, ...], what: str) -> Any:
        if what != self.first:
            await self.seen.wait()
            return await look(*given)
        found = await look(*given)
        self.busy = False
        await asyncio.to_thread(self.work)
        self.seen.set()
        return found

    def work(self) -> None:
        for name, dies_at in (("d", ""), ("e", self.dies_at)):
            self.world.deliver(f"{name}.json", [name])
            other(self.world, dies_at)


@pytest.mark.parametrize("first", ["prove", "taken"])
@pytest.mark.parametrize("dies_at", ["", "recorded"])
@pytest.mark.parametrize("log", ["as it was", "restored"])
def test_log_and_record_are_looked_at_as_they_were_at_one_moment(
    world: World, monkeypatch: pytest.MonkeyPatch, first: str, dies_at: str, log: str
) -> None:
    """One of them is seen before another run makes its batches, and the other one after."""
    world.log.create()
    for name in "abc":
        world.deliver(f"{name}.json", [name])
        world.ingest()
    if log == "restored":
        world.log.restore(2)
    meanwhile = Meanwhile(world, first, dies_at)
    for what in ("prove", "taken"):
        monkeypatch.setattr(ingest_batches, what, meanwhile.patched(what, getattr(ingest_batches, what)))
    spec = world.plan().spec
    monkeypatch.undo()
    assert not meanwhile.busy
    assert spec is None or "lost" not in spec.step.configuration
    if spec is not None:
        world.engine(spec)
    world.drain()
    assert world.events == world.delivered


def other(world: World, dies_at: str) -> None:
    """Run as another process would."""
    spec = plan_ingest(world.request(), Memory(now_ms=world.clock)).spec
    assert spec is not None
    try:
        world.engine(spec, dies_at)
    except Boom:
        return


# -- other tables, other pipelines --------------------------------------------------------------
def test_a_log_that_is_none(world: World) -> None:
    (world.root / "log").mkdir()
    (world.root / "log/x.csv").touch()
    with pytest.raises(NotADeltaTable):
        world.plan()
    LogTable(world.root / "log").create().append()
    with pytest.raises(
        TargetWithoutWatermark, match="is not a change log of an ingest: it has no column _op"
    ):
        world.plan()


def test_another_pipeline_joins(world: World) -> None:
    """Renamed, or with files of its own: what the first one took is compared, so that nothing is doubled."""
    world.deliver("a.json", ["1"])
    world.ingest()
    world.pipeline = "q"
    world.deliver("b.json", ["2"])
    plan = world.plan()
    assert files(plan) == ["a.json", "b.json"]
    assert [file.again for file in spec_of(plan).files] == [True, False]
    world.lose_record()
    world.pipeline = "r"
    assert all(file.again for file in spec_of(world.plan()).files)
    world.drain()
    assert world.events == world.delivered


def test_what_another_pipeline_took_is_not_recorded_any_more(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    world.pipeline = "q"
    world.deliver("b.json", ["2"])
    world.ingest()
    world.record.restore(0)
    world.pipeline = "p"
    plan = world.plan()
    assert "lacks the last batch of pipeline q" in plan.notes[0]
    assert all(file.again for file in spec_of(plan).files)
    world.drain()
    assert world.events == world.delivered
    assert world.plan().spec is None


def test_a_log_that_was_overwritten(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    world.log.overwrite()
    with pytest.raises(TargetReplaced, match=r"The change log .*__ingested away"):
        world.plan()


def test_something_in_quarantine_and_nothing(world: World) -> None:
    world.deliver("a.json", ["1"])
    assert world.plan(replay=True).spec is None
    world.ingest()
    nothing = world.plan(replay=True)
    assert nothing.spec is None
    assert "has no records of pipeline p" in nothing.notes[-1]
    quarantine = LogTable(world.root / "log__quarantine", table_id="q").create()
    assert world.plan(replay=True).spec is None
    quarantine.append()
    for pipeline, kind in (("other", None), ("p", "replay")):
        pq.write_table(pa.table({"pipeline": [pipeline]}), quarantine.path / "part-00001-0.parquet")
        plan = world.plan(replay=True)
        step = plan.steps
        assert [one.kind for one in step] == ([] if kind is None else [kind])
        # As after another name was given to the pipeline.
        other = f"It has records of other; replay them by: delta-cdc replay other={world.root / 'log'}"
        assert "".join(plan.notes).endswith(other) == (kind is None)
    # A row of no batch, or of one that is not in the log: its file may come again, and is then compared.
    number = step[0].seal_number
    for seal, is_undone in ((None, True), (0, True), (number - 1, False)):
        table = pa.table({"pipeline": ["p"], "seal": pa.array([seal], pa.int64())})
        pq.write_table(table, quarantine.path / "part-00001-0.parquet")
        (step,) = world.plan(replay=True).steps
        assert ("lost" in step.configuration) == is_undone


# -- more ---------------------------------------------------------------------------------------
def test_parquet_files_tell_their_columns(world: World) -> None:
    options = replace(OPTIONS, format="parquet")
    world.source.mkdir(exist_ok=True)
    pq.write_table(pa.table({"id": [1], "op": ["I"]}), world.source / "a.parquet")
    (world.source / "b.parquet").write_bytes(b"PAR1")
    os.utime(world.source / "a.parquet", ns=(0, 0))
    good, bad = spec_of(world.plan(options=options)).files
    assert good.columns == ("id", "op")
    assert bad.unreadable
    assert not bad.columns


def test_the_lateness_horizon_of_the_log(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    world.log.set_properties(delta_cdc__latenessHorizon="000123")
    world.deliver("b.json", ["2"])
    assert spec_of(world.plan()).horizon == "000123"


def test_an_idle_log_is_sealed_anew(world: World) -> None:
    world.deliver("a.json", ["1"])
    world.ingest()
    assert world.plan(now_ms=EPOCH + 15 * DAY).spec is None
    plan = world.plan(now_ms=EPOCH + 15 * DAY + 5000)
    assert (spec_of(plan).step.kind, spec_of(plan).step.read.has_rows) == ("renew", False)
    assert "The run renews the seal." in plan.notes[-1]
    world.engine(spec_of(plan))
    recorded = reconcile(DeltaLog(str(world.root / "log")), "p")
    assert recorded.seal.state.applied_from == spec_of(plan).step.before.applied_from
    assert world.plan(now_ms=EPOCH + 15 * DAY).spec is None, "what was taken before still counts"


def test_where_the_source_is(world: World) -> None:
    world.deliver("a.json", ["1"])
    assert files(world.plan(source=f"{world.root}/landing")) == ["a.json"], "beside its log"
    with pytest.raises(SourceNotFound):
        world.plan(source=str(world.root / "nowhere"))
    for source in (world.root, world.root / "log", world.root / "log/in"):
        with pytest.raises(InvalidConfiguration, match=r"contains the other|the same table"):
            world.plan(source=str(source))


KAFKA: dict[str, Any] = {"source": "kafka://h/t", "options": replace(OPTIONS, source_kind="kafka")}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"pipeline": "a/b"}, "pipeline name"),
    ({"max_offsets": 5}, "max_offsets and a source of files"),
    ({"kafka_options": {"a": "b"}}, "kafka_options and a source of files"),
    ({"starting_timestamp": "2024-01-01"}, "starting_timestamp is '2024-01-01'"),
    ({"glob": "a/b"}, "glob is 'a/b'"),
    ({"replay": True, "max_files": 3}, "replay and max_files"),
    ({"source": "kafka://h/t"}, "source_kind is 'files'"),
    ({"options": replace(OPTIONS, source_kind="kafka")}, "source_kind is 'kafka'"),
    ({**KAFKA, "glob": "*"}, "glob and"),
    ({**KAFKA, "lexical_order": True}, "lexical_order and"),
    ({**KAFKA, "options": replace(OPTIONS, source_kind="kafka", format="csv")}, "the format of a topic"),
    ({**KAFKA, "options": replace(OPTIONS, source_kind="kafka", format="avro")}, "schema.registry.url"),
    ({**KAFKA, "source": "kafka://h"}, "kafka://"),
]
#: Of the options alone.
REFUSED_OPTIONS: list[tuple[IngestOptions, str]] = [
    (
        replace(OPTIONS, schema="id INT, v STRUCT<a: ARRAY<MAP<STRING, VARIANT>>>"),
        "column v the type .* which has a VARIANT inside",
    ),
    (replace(OPTIONS, format="avro", format_options={"header": "true"}), "cannot be given for avro"),
    (replace(OPTIONS, keys=()), "keys are missing"),
    (replace(OPTIONS, insert_only=True), "insert_only and keys"),
    (replace(OPTIONS, log_properties={"delta.enableChangeDataFeed": "TRUE"}), "change data feed"),
    (IngestOptions(keys=("id",), adapter_options={"sequenz_by": "x"}), "sequence_by"),
    (IngestOptions(keys=("id",), adapter="plane"), "plain"),
    (replace(OPTIONS, format="csv", format_options={"seperator": ";"}), "sep"),
    (replace(OPTIONS, format="csv", format_options={"header": "no"}), "set schema to all columns"),
]


@pytest.mark.parametrize(
    ("changes", "said"),
    [*REFUSED, *(({"options": options}, said) for options, said in REFUSED_OPTIONS)],
    ids=lambda value: str(value)[:60],
)
def test_what_cannot_be_meant(world: World, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said):
        world.plan(**changes)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("max_files", 0, "max_files is 0"),
        ("max_bytes", -1, "max_bytes is -1"),
        ("on_expired", "skip", "on_expired is 'skip'"),
        ("keys", ["id", "ID"], "twice"),
    ],
)
def test_values_that_an_option_refuses(name: str, value: object, said: str) -> None:
    with pytest.raises(InvalidConfiguration, match=said) as raised:
        INGEST[name].read(value)
    assert raised.value.argument == name
