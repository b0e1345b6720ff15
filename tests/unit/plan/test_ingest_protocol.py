"""Every event once, whatever happens: random histories of ingests, with a model of the job.

A run may die after planning, after recording its batch, or after its commit; a driver that was thought dead
may come back with an old plan; files grow, come again, go and come back; the log is restored or lost, and so
is the record beside it; two pipelines may fill one log. At the end the log holds what lies in the folder.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.planning.topics import Looks
from delta_cdc.run.saved_plans import PlansInMemory
from tests.support.ingest_model import Boom, Broker, Topics, World
from tests.support.slow import slow_but

if TYPE_CHECKING:
    from pathlib import Path

    from delta_cdc.core.spec import IngestSpec

DEATHS = ("planned", "recorded", "committed")


@dataclass
class History:
    """One random history.

    :param ordered: the names of files only grow, and the ingest is told so
    :param two: another pipeline fills the same log from the same folder
    """

    world: World
    random: random.Random
    ordered: bool
    two: bool
    delivered: int = 0
    zombies: list[IngestSpec] = field(default_factory=list)
    hidden: list[tuple[Path, Path]] = field(default_factory=list)

    def step(self) -> None:
        if self.two and self.random.random() < 0.3:
            self.other()
        common = [self.deliver] * 4 + [self.run] * 2 + [self.die] * 3 + [self.leave_a_zombie] * 2
        rare = [self.wake_a_zombie, self.restore, self.lose_record, self.restore_record, self.lose_log]
        changing = [] if self.ordered else [self.grow, self.repeat, self.hide, self.bring_back]
        self.random.choice([*common, *rare, self.lose_both, *changing])()

    def other(self) -> None:
        self.world.pipeline = "q" if self.world.pipeline == "p" else "p"

    @property
    def asked(self) -> dict[str, Any]:
        bound = {"max_files": self.random.randint(1, 3)} if self.random.random() < 0.4 else {}
        return {**bound, "lexical_order": self.ordered}

    def files(self) -> list[Path]:
        return sorted(path for path in self.world.source.rglob("*") if path.is_file())

    # -- what arrives -------------------------------------------------------------------------------
    def deliver(self) -> None:
        self.delivered += 1
        lines = [f"{self.delivered}-{line}" for line in range(self.random.randint(0, 3))]
        self.world.deliver(f"2024/{self.delivered:03d}.json", lines)

    def grow(self) -> None:
        self._again([f"more-{self.world.clock}"])

    def repeat(self) -> None:
        self._again([])

    def _again(self, more: list[str]) -> None:
        if files := self.files():
            file = self.random.choice(files)
            name = str(file.relative_to(self.world.source))
            self.world.deliver(name, [*file.read_text().splitlines(), *more])

    def hide(self) -> None:
        if files := self.files():
            file = self.random.choice(files)
            self.hidden.append((file, file.rename(self.world.root / f"hidden-{len(self.hidden)}")))

    def bring_back(self) -> None:
        if self.hidden:
            file, place = self.hidden.pop()
            place.rename(file)

    # -- who runs -----------------------------------------------------------------------------------
    def run(self) -> None:
        self.world.ingest(**self.asked)

    def die(self) -> None:
        at = self.random.choice(DEATHS)
        try:
            self.world.unpublished(lambda spec: self.world.engine(spec, at), **self.asked)
        except Boom:
            if self.random.random() < 0.5:
                self.world.saved_plans = PlansInMemory()

    def leave_a_zombie(self) -> None:
        spec = self.world.plan(**self.asked).spec
        if spec is not None:
            self.zombies.append(spec)

    def wake_a_zombie(self) -> None:
        if self.zombies:
            spec = self.zombies.pop(self.random.randrange(len(self.zombies)))
            try:
                self.world.engine(spec, self.random.choice(["", "recorded"]))
            except Boom:
                return

    # -- what is lost -------------------------------------------------------------------------------
    def restore(self) -> None:
        if self.world.log.version >= 1:
            self.world.log.restore(self.random.randrange(self.world.log.version))

    def restore_record(self) -> None:
        if self.world.record.version >= 1:
            self.world.record.restore(self.random.randrange(self.world.record.version))

    def lose_record(self) -> None:
        self.world.lose_record()

    def lose_log(self) -> None:
        self.world.lose_log()

    def lose_both(self) -> None:
        self.world.lose_log()
        self.world.lose_record()

    # -- the end ------------------------------------------------------------------------------------
    def finish(self) -> None:
        while self.hidden:
            self.bring_back()
        self.world.drain(lexical_order=self.ordered)
        if self.two:
            self.other()
            self.world.drain(lexical_order=self.ordered)


@dataclass
class TopicHistory(History):
    """The same with a topic: records are appended to partitions, and partitions are added."""

    broker: Broker = field(default_factory=Broker)

    @property
    def asked(self) -> dict[str, Any]:
        return {"max_offsets": self.random.randint(1, 5)} if self.random.random() < 0.5 else {}

    def deliver(self) -> None:
        partition = self.random.randint(0, 2)
        known = self.broker.bounds.get(("t", partition))
        self.broker.has(partition, 0, (known.end if known is not None else 0) + self.random.randint(0, 4))

    def finish(self) -> None:
        self.world.drain()
        if self.two:
            self.other()
            self.world.drain()

    @property
    def delivered_events(self) -> Counter[tuple[str, str]]:
        bounds = self.broker.bounds.items()
        return Counter((f"t/{key[1]}", str(at)) for key, bound in bounds for at in range(bound.end))


def law_of_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    chance = random.Random(seed)
    history = TopicHistory(Topics(tmp_path), chance, ordered=True, two=chance.random() < 0.3)
    monkeypatch.setattr(Looks, "offsets", history.broker)
    history.broker.has(0, 0, 0)
    for _ in range(14):
        history.step()
    history.finish()
    held, delivered = history.world.events, history.delivered_events
    assert held == delivered, (seed, "lost", delivered - held, "doubled", held - delivered)


@pytest.mark.parametrize("seed", range(15))
def test_every_record_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    law_of_topics(tmp_path, monkeypatch, seed)


@pytest.mark.parametrize("seed", slow_but(range(1000, 1200), *range(1000, 1010)))
def test_every_record_once_more_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    law_of_topics(tmp_path, monkeypatch, seed)


def law(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    history = History(World(tmp_path), chance, ordered=chance.random() < 0.15, two=chance.random() < 0.3)
    for _ in range(14):
        history.step()
    history.finish()
    held, delivered = history.world.events, history.world.delivered
    assert held == delivered, (seed, "lost", delivered - held, "doubled", held - delivered)


@pytest.mark.parametrize("seed", range(25))
def test_every_event_once(tmp_path: Path, seed: int) -> None:
    law(tmp_path, seed)


@pytest.mark.parametrize("seed", slow_but(range(1000, 1400), *range(1000, 1005)))
def test_every_event_once_more_histories(tmp_path: Path, seed: int) -> None:
    law(tmp_path, seed)
