"""A first batch without an event: a run extends it beyond its limits, as far as there is input."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.core.errors import NoEventYet
from delta_cdc.core.spec import IngestSpec, JobResult
from tests.support.ingest_model import World

NO_EVENT = NoEventYet("The first batch has no event.", remedy="set schema.")


@dataclass
class Driver:
    """Jobs of one ingest: only the files below ``y`` have no event."""

    world: World
    batches: list[list[str]] = field(default_factory=list)

    def __call__(self, spec: IngestSpec) -> JobResult:
        names = [Path(file.uri).name for file in spec.files]
        self.batches.append(names)
        if spec.step.planned_on is None and all(name < "y" for name in names):
            return JobResult("failed", error=NO_EVENT.to_dict())
        return self.world.engine(spec)

    def run(self, **changes: Any) -> Any:
        return self.world.ingest(self, **changes)

    @property
    def sizes(self) -> list[int]:
        return [len(names) for names in self.batches]


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    made = Driver(World(tmp_path))
    for number in range(7):
        made.world.deliver(f"e{number}.json", [str(number)])
    return made


@pytest.mark.parametrize("limits", [{"max_files": 1}, {"max_bytes": 3}])
def test_the_batch_grows_until_it_has_an_event(driver: Driver, limits: dict[str, int]) -> None:
    driver.world.deliver("z.json", ["z"])
    driver.world.deliver("z2.json", ["z2"])
    assert driver.run(**limits).applied
    assert driver.sizes == ([1, 4, 9] if "max_files" in limits else [1, 6, 9])
    notes = [line for line in driver.world.said if "extends the batch" in line]
    (name,) = limits
    assert f"The run extends the batch: {name} {4 * limits[name]}." in notes[0]
    # The limits of the user hold again as soon as the log has its columns.
    driver.world.deliver("a.json", ["a"])
    driver.world.deliver("b.json", ["b"])
    driver.run(**limits)
    assert driver.sizes[3:] == [1]


def test_it_grows_as_far_as_there_is_input(driver: Driver) -> None:
    with pytest.raises(NoEventYet):
        driver.run(max_files=1)
    assert driver.sizes == [1, 4, 7]
    with pytest.raises(NoEventYet):
        driver.run()
    assert driver.sizes[3:] == [7]


def test_a_file_that_waits_for_its_end_does_not_make_it_grow(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limits leave nothing, and the rest stays however high they are."""

    monkeypatch.setattr("delta_cdc.planning.ingest._left", lambda files: {"files": 1})
    with pytest.raises(NoEventYet):
        driver.run(max_files=7)
    assert driver.sizes == [7, 7]
