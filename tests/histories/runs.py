"""Table runs: a source, a target, and hundreds of key spaces that go through one frame of steps together.

A seed draws the frame: statements of the source, and what is done to the target between them. What a key
space goes through depends on the seed, the number of the step and its own number alone, so that one space,
or fewer steps, is the same history in small.
"""

from __future__ import annotations

import random
import shutil
import tempfile
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from delta_cdc.core import errors
from tests.histories import feed, log
from tests.support.engine import newest
from tests.support.event_flow import LogFlow
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pyspark.sql import SparkSession

#: A step: its number, and its name; those of the source begin with "+".
Step = tuple[int, str]
#: What is done to the target between two statements, and how often.
ACTIONS = {
    "apply": 7,
    "apply_part": 3,
    "late_plan": 1,
    "repeat": 1.5,
    "restore_target": 1.5,
    "repair_damage": 2,
    "reload": 0.8,
    "reset": 0.5,
    "replace_target": 0.8,
    "dry_run": 0.3,
}


class Differs(AssertionError):
    """Rows of a target are not those that it must hold.

    :param space: one of the key spaces, the one with the fewest rows
    """

    def __init__(self, text: str, space: int) -> None:
        super().__init__(text)
        self.space = space


class Unpredicted(AssertionError):
    """A run refused what it must do, or did what it must refuse."""


@dataclass(frozen=True)
class Failure:
    """A table run that went wrong."""

    seed: int
    spaces: tuple[int, ...]
    steps: tuple[Step, ...]
    text: str
    space: int | None = None

    @property
    def story(self) -> str:
        named = " ".join(f"{number}:{name}" for number, name in self.steps)
        return (
            f"seed {self.seed}, {len(self.spaces)} key spaces {list(self.spaces[:5])}\n{named}\n{self.text}"
        )


def drawn_steps(seed: int) -> tuple[Step, ...]:
    """Draw the frame of a seed."""
    draw = random.Random(f"{seed} frame")
    weights = (feed if seed % 2 else log).STEPS
    names: list[str] = []
    for _ in range(draw.randint(5, 22)):
        names.append("+" + draw.choices(list(weights), list(weights.values()))[0])
        if draw.random() < 0.4:
            names.append(draw.choices(list(ACTIONS), list(ACTIONS.values()))[0])
    return (*enumerate([*names, "apply"], start=1),)


def drawn_arguments(seed: int) -> dict[str, Any]:
    """Return the arguments of a seed's applies."""
    if seed % 2:
        options = feed.drawn_options(random.Random(f"{seed} options"))
        return {**options.arguments, "schema_evolution": options.policy}
    source = log.Source(None, "", seed, ())  # type: ignore[arg-type]
    return {**source.configuration.arguments, "schema_evolution": source.policy}


@dataclass
class Run:
    """One table run.

    :param saved: what the target held, by its versions
    :param policy: of schema changes; a refused one is followed by the next that works
    """

    spark: SparkSession
    folder: Path
    seed: int
    spaces: Sequence[int]
    seen: Counter[str] = field(default_factory=Counter)
    saved: dict[int, Any] = field(default_factory=dict)
    last: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        source, target = str(self.folder / "source"), str(self.folder / "target")
        if self.seed % 2:
            options = feed.drawn_options(random.Random(f"{self.seed} options"))
            self.source: Any = feed.Source(self.spark, source, self.seed, self.spaces, options)
            self.target: Any = feed.Target(self.source)
            arguments, self.policy = options.arguments, options.policy
        else:
            self.source = log.Source(self.spark, source, self.seed, self.spaces)
            self.target = log.Target(self.source)
            arguments, self.policy = self.source.configuration.arguments, self.source.policy
        self.arguments = arguments
        self.space = "space" if self.seed % 2 else "history"
        self.scd = arguments["stored_as_scd_type"]
        self.flow = LogFlow(self.spark, source, target, arguments, pipeline="p")

    @property
    def kind(self) -> str:
        return f"{self.arguments['source_kind']} type {self.scd}"

    @property
    def name(self) -> str:
        return f"delta.`{self.flow.target}`"

    def play(self, steps: Iterable[Step]) -> None:
        """Play steps, and compare at the end and at some points between."""
        self.source.create()
        draw = random.Random(f"{self.seed} points")
        for number, name in steps:
            self.seen[f"{self.kind}: {name}"] += 1
            if name.startswith("+"):
                self.source.step(name[1:], number)
                continue
            if self.target.watermark < 0:
                self._load()
            else:
                getattr(self, f"_do_{name}")(random.Random(f"{self.seed} {number} {name}"))
            if draw.random() < 0.3:
                self.compare()
        self.compare()

    # -- runs -------------------------------------------------------------------------------------
    def _apply(self, end: int | None = None, **more: Any) -> Any:
        return self.flow.apply(end, schema_evolution=self.policy, **more)

    def _expect(
        self, predicted: set[type[errors.DeltaCdcError]], end: int | None = None, **more: Any
    ) -> None:
        """Demand one of some errors."""
        before = newest(self.flow.target)
        names = sorted(error.__name__ for error in predicted)
        try:
            self._apply(end, **more)
        except tuple(predicted) as error:
            self.seen[f"{self.kind}: {type(error).__name__}"] += 1
            if newest(self.flow.target) != before:
                raise Unpredicted(f"{type(error).__name__}, but the target has another version") from error
            return
        raise Unpredicted(f"no {' or '.join(names)}")

    def _load(self) -> None:
        end = self.source.newest
        self._apply(end)
        self.target.load(end)
        self._note(None)

    def _note(self, applied: tuple[int, int] | None) -> None:
        self.saved[newest(self.flow.target)] = self.target.copied()
        self.last = applied

    def _up_to(self, end: int, draw: random.Random) -> None:
        """Apply up to a version, by the documented way out where the range cannot be applied as it is."""
        first = self.target.watermark + 1
        if first > end:
            self._apply()
            return
        refused = self.source.refusals(first, end, self.policy)
        if refused and self.source.is_idle(first, end):
            self._apply(end)
            return
        lost = self.source.misfits(first, end)
        if not refused and not lost:
            self._apply(end)
            self.target.advance(end, self.policy)
            self._note((first, end))
            return
        predicted: set[type[errors.DeltaCdcError]] = set()
        predicted |= {errors.SchemaChangeInRange} if refused else set()
        predicted |= {errors.NotAppendOnly} if lost else set()
        self._expect(predicted, end)
        if refused:
            way_out = draw.choice(["follow", "reset"])
            if way_out == "reset":
                if refused[0] > first and not lost:
                    self._apply(refused[0] - 1)
                    self.target.advance(refused[0] - 1, self.policy)
                self._reset(draw)
                return
            self.policy = self.source.needed(first, end, self.policy)
        if lost:
            self._reload(draw, end)
        else:
            self._up_to(end, draw)

    # -- actions ----------------------------------------------------------------------------------
    def _do_apply(self, draw: random.Random) -> None:
        self._up_to(self.source.newest, draw)

    def _do_apply_part(self, draw: random.Random) -> None:
        if self.target.watermark < self.source.newest:
            self._up_to(draw.randint(self.target.watermark + 1, self.source.newest), draw)

    def _do_late_plan(self, draw: random.Random) -> None:
        """Plan a run, let another one overtake it, and then run it."""
        first, end = self.target.watermark + 1, self.source.newest
        if first > end or self.source.refusals(first, end, self.policy) or self.source.misfits(first, end):
            return
        given = self.flow.arguments
        self.flow.arguments = {**given, "schema_evolution": self.policy}
        late = self.flow.planned(end)
        self.flow.arguments = given
        before = newest(self.flow.target)
        self._up_to(end, draw)
        if late is not None and newest(self.flow.target) > before:
            self.flow.run_late(late)

    def _do_repeat(self, draw: random.Random) -> None:
        """Ask for a range that was applied."""
        if self.last is not None:
            before = newest(self.flow.target)
            result = self._apply(self.last[1], starting_version=self.last[0])
            if result.applied or newest(self.flow.target) != before:
                raise Unpredicted(f"versions {self.last} were applied again")

    def _do_dry_run(self, draw: random.Random) -> None:
        first, end = self.target.watermark + 1, self.source.newest
        if self.source.refusals(first, end, self.policy) or self.source.misfits(first, end):
            return
        before = newest(self.flow.target)
        self._apply(dry_run=True)
        if newest(self.flow.target) != before:
            raise Unpredicted("a dry run wrote")

    def _do_restore_target(self, draw: random.Random) -> None:
        able = [version for version in self.saved if version < newest(self.flow.target)]
        if able:
            self._restored(draw.choice(able))

    def _restored(self, version: int) -> None:
        self.spark.sql(f"RESTORE TABLE {self.name} TO VERSION AS OF {version}").collect()
        self.target = self.saved[version].copied()
        self._note(None)

    def _some(self, draw: random.Random) -> str:
        first = draw.choice(self.spaces)
        return f"{self.space} BETWEEN {first} AND {first + draw.choice([0, 20, 200])}"

    def _do_repair_damage(self, draw: random.Random) -> None:
        """Damage rows by hand where a repair can bring them back, and repair them."""
        if self.target.watermark < 0 or self._is_partial_feed:
            return
        where, repair = self._some(draw), dict[str, Any]()
        floor, end = self.target.floor, self.target.watermark
        if self.scd == 1 or not self.seed % 2:
            repair = {"repair_keys": where}
        elif floor < end:
            start = draw.randint(floor + 1, end)
            repair, where = {"starting_version": start, "ending_version": end}, f"`{self._start}` >= {start}"
        else:
            return
        if self.arguments.get("delete_mode") == "soft" and (self.seed % 2 or self.target.orphans):
            where += " AND NOT _deleted"
        if "rules" not in self.arguments:
            self.spark.sql(self._damage(draw, where))
        if (
            self.source.misfits(0, self.target.watermark)
            and not self.seed % 2
            and "repair_keys" not in repair
        ):
            return
        self._apply(repair.pop("ending_version", None), mode="repair", versions_per_commit=None, **repair)
        self._note(None)

    @property
    def _is_partial_feed(self) -> bool:
        return bool(self.seed % 2 and self.arguments.get("ignore_null_updates"))

    @property
    def _start(self) -> str:
        return str(self.arguments.get("start_column", feed.START))

    def _damage(self, draw: random.Random, where: str) -> str:
        if draw.random() < 0.5:
            return f"DELETE FROM {self.name} WHERE {where} AND id % 2 = {draw.randrange(2)}"
        types = dict(self.spark.read.format("delta").load(self.flow.target).dtypes)
        able = [c for c in types if c in self.target.columns and types[c] in ("string", "int", "bigint")]
        able = [c for c in able if c not in (*feed.KEYS, "history", self._start, *self._ends)]
        if not able:
            return f"DELETE FROM {self.name} WHERE {where}"
        column = draw.choice(able)
        value = "'damaged'" if types[column] == "string" else "77"
        return f"UPDATE {self.name} SET `{column}` = {value} WHERE {where}"

    @property
    def _ends(self) -> tuple[str, ...]:
        return (str(self.arguments.get("end_column", feed.END)), "w", "seq")

    def _do_reset(self, draw: random.Random) -> None:
        self._reset(draw)

    def _do_reload(self, draw: random.Random) -> None:
        self._reload(draw, self.source.newest)

    def _reload(self, draw: random.Random, end: int, **more: Any) -> None:
        if self._is_partial_feed:
            return
        if self.target.watermark <= end:
            self.policy = self.source.needed(self.target.watermark + 1, end, self.policy)
        given = more or {"mode": "reload"}
        self._apply(end, **{"versions_per_commit": None, **given})
        self.target.reload(end, self.policy)
        self._note(None)

    def _reset(self, draw: random.Random) -> None:
        end = self.source.newest
        self._apply(end, mode="reset", discard_history=self.scd == 2, versions_per_commit=None)
        self.target.reset(end)
        self._note(None)

    def _do_replace_target(self, draw: random.Random) -> None:
        """Let another writer empty the target; a run refuses it, and the way out is one of two."""
        if not self.target.rows or newest(self.flow.target) not in self.saved:
            return
        intact, end = newest(self.flow.target), self.source.newest
        statement = draw.choice(["TRUNCATE TABLE {}", "DELETE FROM {}"])
        self.spark.sql(statement.format(self.name))
        first = self.target.watermark + 1
        if not (self.source.refusals(first, end, self.policy) or self.source.misfits(first, end)):
            self._expect({errors.TargetReplaced}, end)
        if self._is_partial_feed or draw.random() < 0.5:
            self._restored(intact)
            return
        self.target.emptied()
        self._reload(draw, end, on_target_replaced="reload")

    # -- comparison -------------------------------------------------------------------------------
    def compare(self) -> None:
        """Compare each key space with what it must be."""
        if self.target.watermark < 0:
            return
        columns = self.target.columns
        found: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for row in self.flow.rows():
            found[row[self.space]].append(row)
        expected, orphans = self.target.by_space(), self.target.orphans
        wrong = set()
        for space in {*found, *expected}:
            got, wanted = (_bag(rows.get(space, ()), columns) for rows in (found, expected))
            # A late event computes its key again: then a row of which the log has lost all events may go.
            names = dict.fromkeys(columns)
            may_lack = _bag([{**names, **row} for row in orphans.get(space, ())], columns)
            if got - wanted or wanted - got - may_lack:
                wrong.add(space)
        if wrong:
            space = min(wrong, key=lambda one: (len(expected.get(one, ())), one))
            got, wanted = (_bag(rows.get(space, ()), columns) for rows in (found, expected))
            raise Differs(
                f"{len(wrong)} of {len({*found, *expected})} key spaces differ, at watermark "
                f"{self.target.watermark}; space {space}\n{columns}\n"
                f"missing:  {list((wanted - got).elements())}\ntoo many: {list((got - wanted).elements())}",
                space,
            )
        self.seen[f"{self.kind}: compared"] += 1


def _bag(rows: Iterable[dict[str, Any]], columns: Sequence[str]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(plain(row.get(name)) for name in columns) for row in rows)


# -- failures -------------------------------------------------------------------------------------
def played(
    spark: SparkSession, seed: int, spaces: Sequence[int], steps: Sequence[Step], seen: Counter[str]
) -> Failure | None:
    """Play a table run; return what went wrong."""
    folder = Path(tempfile.mkdtemp(prefix="histories-"))
    run = None
    try:
        run = Run(spark, folder, seed, spaces, seen)
        run.play(steps)
    except Exception as error:  # noqa: BLE001 - whatever was not predicted
        text = f"{type(error).__name__} in {_place(error)}: {str(error)[:1500]}"
        if run is not None:
            text = f"{run.arguments}, schema_evolution={run.policy}\n{text}"
        return Failure(seed, tuple(spaces), tuple(steps), text, getattr(error, "space", None))
    finally:
        spark.catalog.clearCache()
        shutil.rmtree(folder, ignore_errors=True)
    return None


def _place(error: BaseException) -> str:
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


def shrunk(failure: Failure, play: Callable[[Sequence[int], Sequence[Step]], Failure | None]) -> Failure:
    """Return the same failure with fewer key spaces and steps."""
    if failure.space is not None:
        failure = play([failure.space], failure.steps) or failure
    while len(failure.spaces) > 1:
        half = len(failure.spaces) // 2
        parts = (failure.spaces[:half], failure.spaces[half:])
        smaller = next((less for part in parts if (less := play(part, failure.steps))), None)
        if smaller is None:
            break
        failure = smaller
    for step in reversed(failure.steps[:-1]):
        failure = play(failure.spaces, [one for one in failure.steps if one != step]) or failure
    return failure
