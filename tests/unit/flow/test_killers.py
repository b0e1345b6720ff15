"""A batch that ends its application: counted, then read file by file; the file that does it is set aside."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import InvalidRecord, JobFailed
from delta_cdc.core.spec import BatchSpec, IngestSpec, JobResult, fingerprint
from delta_cdc.planning.topics import Looks
from delta_cdc.run.batch import PipelineJob, PipelineResult, run_batch
from delta_cdc.run.loop import Services
from delta_cdc.run.saved_plans import PlansInMemory, forget_saved_plans
from tests.support.ingest_model import Broker, Topics, World

if TYPE_CHECKING:
    from collections.abc import Callable

ENDED = (
    "The Spark application on local[*] ended with exit code 52 and without a result. The log is here.\n"
    "  a line\n"
)
KEY = "pin:p:"


class Forgetful(PlansInMemory):
    """The saved plans of an Airflow without a task state store."""

    def set(self, key: str, value: dict[str, Any]) -> None:
        pass


def died(reading: str | None) -> JobResult:
    """What is left of a batch with one part whose driver died."""
    error = JobFailed(ENDED, remedy="more memory.")
    part = JobResult("unreached", reading=reading)
    return JobResult("failed", error=error.to_dict(), parts=(part,))


def failed(message: str, reading: str | None) -> JobResult:
    """What a driver reports that lives on."""
    part = JobResult("failed", error=JobFailed(message, remedy="retry.").to_dict(), reading=reading)
    return JobResult("committed", parts=(part,))


@dataclass
class Driver:
    """Applications of one ingest: a file of a name with ``killer`` ends each one that reads it.

    :param together: the most files that can be read together
    """

    world: World
    together: int = 100
    end: Callable[[str | None], JobResult] = died
    specs: list[IngestSpec] = field(default_factory=list)

    def __call__(self, spec: BatchSpec) -> JobResult:
        (part,) = spec.parts
        assert isinstance(part, IngestSpec)
        self.specs.append(part)
        files = [file for file in part.files if not file.unreadable]
        for file in files if part.reads_alone else ():
            if "killer.json" in file.uri:
                return self.end(file.uri)
        if len(files) > self.together or any("killer.json" in file.uri for file in files):
            return self.end("")
        return JobResult("committed", parts=(self.world.engine(part),))

    def run(self, saved_plans: Any = None, **changes: Any) -> PipelineResult:
        """Make one try of a task."""
        (result,) = run_batch(
            [PipelineJob(ingest=self.world.request(**changes))],
            Services(
                execute=self,
                saved_plans=saved_plans or self.world.saved_plans,
                say=self.world.said.append,
                sleep=lambda seconds: None,
            ),
        )
        return result

    @property
    def starts(self) -> list[tuple[bool, int]]:
        """Return of each application: whether it read files alone, and how many it set aside."""
        return [(one.reads_alone, sum(bool(file.unreadable) for file in one.files)) for one in self.specs]


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.deliver("a.json", ["1"])
    made.deliver("killer.json", ["2"])
    made.deliver("z.json", ["3"])
    return made


def error_of(result: PipelineResult) -> JobFailed:
    assert isinstance(result.error, JobFailed)
    return result.error


def test_the_third_try_sets_the_killer_aside(world: World) -> None:
    driver = Driver(world)
    first, second = error_of(driver.run()), error_of(driver.run())
    assert first.message == ENDED
    assert second.message.startswith(ENDED)
    assert "has failed twice. The next try reads each of its files alone" in second.message
    third = driver.run()
    assert third.error is None
    assert driver.starts == [(False, 0), (False, 0), (True, 0), (True, 1)]
    assert {line for _, line in world.events} == {"1", "3"}
    (marked,) = [file for file in driver.specs[-1].files if file.unreadable]
    assert marked.uri.endswith("killer.json")
    assert marked.unreadable == (
        "the job failed while it read this file alone, after two failures of its batch: The Spark "
        "application on local[*] ended with exit code 52 and without a result"
    )
    (note,) = [line for line in world.said if "goes to quarantine" in line]
    assert marked.uri in note
    assert "give the driver more memory (driver_memory), and deliver the file again" in note


def test_a_driver_that_lives_on_with_too_little_memory(world: World) -> None:
    driver = Driver(world, end=lambda reading: failed("x: OutOfMemoryError: Java heap space", reading))
    for _ in range(2):
        assert "OutOfMemoryError" in error_of(driver.run()).message
    assert driver.run().error is None
    assert driver.starts[-1] == (True, 1)


def test_another_failure_sets_no_file_aside(world: World) -> None:
    driver = Driver(world, end=lambda reading: failed("x: No space left on device", reading))
    for _ in range(4):
        error = error_of(driver.run())
    assert f"It was reading {world.source / 'killer.json'} alone." in error.message
    assert driver.starts == [(False, 0), (False, 0), (True, 0), (True, 0)]


def named(_: str | None) -> JobResult:
    error = InvalidRecord("no event", remedy="correct it.")
    part = JobResult("failed", error=error.to_dict(), reading="")
    return JobResult("committed", parts=(part,))


def killed(_: str | None) -> JobResult:
    raise JobFailed("The Spark application was killed.", remedy="clear the task.")


@pytest.mark.parametrize(
    ("end", "message"),
    [
        (named, "no event"),
        (lambda _: died(None), ENDED),
        (killed, "The Spark application was killed."),
        (died, ENDED),
    ],
    ids=["a named error", "it did not begin", "killed", "no store"],
)
def test_what_does_not_count(world: World, end: Callable[[str | None], JobResult], message: str) -> None:
    driver = Driver(world, end=end)
    for _ in range(3):
        error = driver.run(Forgetful() if end is died else None).error
        assert error.message == message
    assert driver.starts == [(False, 0)] * 3


def test_the_next_batch_begins_at_zero(world: World) -> None:
    driver = Driver(world)
    driver.run()
    driver.run()
    # Another worker ingests what was the first file of that batch.
    mine, world.saved_plans = world.saved_plans, PlansInMemory()
    assert world.ingest(max_files=1, run_id="other").applied
    world.saved_plans = mine
    driver.specs.clear()
    for _ in range(3):
        driver.run()
    assert driver.starts == [(False, 0), (False, 0), (True, 0), (True, 1)]


def test_a_file_that_is_corrected_is_read(world: World) -> None:
    """What was set aside is one content: another one under the same name gets its own chance."""
    driver = Driver(world)
    driver.run()
    driver.run()

    def corrected(reading: str | None) -> JobResult:
        world.deliver("killer.json", ["22", "23"])
        driver.end = died
        return died(reading)

    driver.end = corrected
    error = driver.run().error
    assert error is None
    assert driver.starts[-3:] == [(True, 0), (True, 0), (True, 1)]


def test_a_start_that_fails_afterwards_ends_the_try(world: World) -> None:
    driver = Driver(world)
    driver.run()
    driver.run()
    driver.specs.clear()

    def once(reading: str | None) -> JobResult:
        driver.together, driver.end = 0, lambda _: died(None)
        return died(reading)

    driver.end = once
    assert error_of(driver.run()).message == ENDED
    assert driver.starts == [(True, 0), (True, 1)]


def test_more_killers_than_one_try_sets_aside(world: World) -> None:
    for number in range(5):
        world.deliver(f"b{number}.killer.json", ["x"])
    driver = Driver(world)
    driver.run()
    driver.run()
    driver.specs.clear()
    error = error_of(driver.run())
    assert [n_aside for _, n_aside in driver.starts] == [0, 1, 2, 3, 4, 5]
    assert "So did 5 other files in this try" in error.message
    assert error.remedy == "set max_files in limits to 5 until these files are ingested."
    assert not world.events
    # The remedy works.
    driver.specs.clear()
    assert driver.run(max_files=5).error is None
    assert driver.starts[-1] == (True, 3)


def test_files_that_only_together_are_too_much(tmp_path: Path) -> None:
    world = World(tmp_path)
    for name in "abc":
        world.deliver(f"{name}.json", [name])
    driver = Driver(world, together=2)
    driver.run()
    driver.run()
    error = error_of(driver.run())
    assert "could be read alone, but not all 3 together" in error.message
    assert error.remedy.startswith("ingest fewer files at once (max_files or max_bytes in limits)")
    assert driver.run(max_files=2).error is None


def test_of_topics_the_error_names_the_offsets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = Broker()
    monkeypatch.setattr(Looks, "offsets", broker)
    for partition in range(12):
        broker.has(partition, 0, 5)
    driver = Driver(Topics(tmp_path), end=died, together=-1)
    for _ in range(3):
        error = error_of(driver.run())
    assert "It was reading the offsets of batch" in error.message
    assert "t 0: 0-4, t 1: 0-4" in error.message
    assert error.message.endswith("t 9: 0-4, ….")
    assert "max_offsets" in error.remedy
    assert driver.starts == [(False, 0)] * 3


@pytest.mark.parametrize(
    "edited",
    [
        {"failures": "two"},
        {"failures": -7},
        {"failures": None},
        {"failures": 10**15},
        {"set_aside": ["/x/a.json"]},
    ],
    ids=["text", "negative", "null", "huge", "files"],
)
def test_an_edited_store_sets_no_file_aside(world: World, edited: dict[str, Any]) -> None:
    """The worst that it can do is that each file is read alone once."""
    (world.source / "killer.json").unlink()
    driver = Driver(world, together=1)
    driver.run()
    (key,) = [key for key in world.saved_plans._kept if key.startswith(KEY)]
    world.saved_plans.set(key, {**(world.saved_plans.get(key) or {}), **edited})
    driver.together = 100
    assert driver.run().error is None
    assert driver.starts == [(False, 0), (edited == {"failures": 10**15}, 0)]


def test_reading_alone_is_the_same_work(world: World) -> None:
    spec = world.plan().spec
    assert spec is not None
    assert fingerprint(replace(spec, reads_alone=True)) == fingerprint(spec)


def test_the_file_is_delivered_again(world: World) -> None:
    driver = Driver(world)
    for _ in range(3):
        result = driver.run()
    assert result.error is None
    assert result.ingested is not None
    forget_saved_plans(result.ingested, world.saved_plans)
    assert not [key for key in world.saved_plans._kept if key.startswith(KEY)]
    os.utime(world.source / "killer.json")
    driver.specs.clear()
    driver.run()
    assert [Path(file.uri).name for file in driver.specs[0].files] == ["killer.json"]
    assert driver.starts == [(False, 0)]
