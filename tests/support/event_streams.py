"""Random streams of events: many histories side by side in one append-only log.

The log is keyed by (``history``, ``id``). A world is a set of events, a delivery cuts it into batches, and
one commit of the log is one batch of all histories. Sequences lie in windows, one for each batch, so that a
delivery can be in order: an event that arrives in its own window's batch is above all that arrived before.
History 0 sees to it that the highest sequence of a window is there, whichever histories stand beside it.

Truncates have no key, so they are those of the whole world.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tests.support.event_model import Event
from tests.support.oracle import plain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pyspark.sql import SparkSession

KEYS = ("history", "id")
#: The columns with values, of a struct its fields.
VALUES: dict[str, Any] = {"v": None, "n": None, "d": None, "s": {"a": None, "deep": {"b": None}}, "m": None}
#: What tells what kind of event it is, when it was, and what it carries.
TELLING = ("seq", "hi", "lo", "pos", "op", "cols")
DDL = (
    "history int, id int, v string, n int, d double, s struct<a: string, deep: struct<b: int>>, "
    "m map<string, int>, seq int, hi int, lo int, pos int, op string, cols array<string>"
)
#: Sequences of a window, and those that share ``hi``.
SPAN, PART = 20, 7


@dataclass(frozen=True)
class Posted:
    """One event as the log has it.

    :param op: ``put``, ``delete``, ``truncate``; None and what is none of these are upserts
    :param pos: its place among the events of its key and sequence
    """

    id: int | None
    seq: int | None
    op: str | None = "put"
    values: Mapping[str, Any] = field(default_factory=dict)
    cols: tuple[str, ...] | None = None
    pos: int = 0

    def row(self, history: int | None) -> tuple[Any, ...]:
        hi, lo = (None, None) if self.seq is None else divmod(self.seq, PART)
        values = [self.values.get(name) for name in VALUES]
        cols = None if self.cols is None else list(self.cols)
        return (history, self.id, *values, self.seq, hi, lo, self.pos, self.op, cols)

    def event(self, history: int, sequence: Callable[[int], Any] = lambda seq: seq) -> Event:
        """Return it as the model's event."""
        return Event(
            key=() if self.op == "truncate" else (history, self.id),
            sequence=None if self.seq is None else sequence(self.seq),
            kind=self.op if self.op in ("delete", "truncate") else "upsert",  # type: ignore[arg-type]
            values={"seq": self.seq, **self.values},
            columns=self.cols,
            order=(self.pos,),
        )

    @property
    def window(self) -> int:
        return 0 if self.seq is None else self.seq // SPAN


@dataclass(frozen=True)
class Flavour:
    """What is in a world.

    :param contradicting: two upserts of one key and sequence may differ
    :param invalid: some events have no key, or no sequence
    :param truncates: how many
    """

    name: str
    contradicting: bool = False
    invalid: bool = False
    truncates: int = 0


PLAIN = Flavour("plain")
TIED = Flavour("tied", contradicting=True)
INVALID = Flavour("invalid", contradicting=True, invalid=True)
TRUNCATED = Flavour("truncated", truncates=3)
FLAVOURS = (PLAIN, TIED, INVALID, TRUNCATED)


@dataclass(frozen=True)
class World:
    """A set of events; an event that stands in it twice arrives twice."""

    seed: int
    flavour: Flavour
    windows: int
    histories: Mapping[int, Sequence[Posted]]
    truncates: Sequence[Posted] = ()

    def events(self, history: int, sequence: Callable[[int], Any] = lambda seq: seq) -> list[Event]:
        """Return what a history is made of, the truncates of the world among it."""
        return [posted.event(history, sequence) for posted in (*self.histories[history], *self.truncates)]

    def order_of(self, history: int) -> random.Random:
        return random.Random(f"{self.seed} {self.flavour.name} {history}")


def drawn_world(seed: int, flavour: Flavour, histories: Iterable[int]) -> World:
    """Draw the events of some histories; each depends on seed, flavour and its own number only."""
    windows = random.Random(f"{seed} windows").randint(4, 8)
    world = World(seed, flavour, windows, {}, _truncates(seed, flavour, windows))
    pace = [Posted(1, (window + 1) * SPAN - 1, values={"n": window}) for window in range(windows)]
    drawn = {history: _drawn(world.order_of(history), flavour, windows) for history in {*histories, 0} - {0}}
    return replace(world, histories={0: pace, **drawn})


def _truncates(seed: int, flavour: Flavour, windows: int) -> list[Posted]:
    draw = random.Random(f"{seed} truncates")
    found = [Posted(None, draw.randrange(windows * SPAN), "truncate") for _ in range(flavour.truncates)]
    return found + draw.sample(found, min(1, len(found)))


def _drawn(draw: random.Random, flavour: Flavour, windows: int) -> list[Posted]:
    ids = range(1, draw.choice([2, 2, 3, 4]))
    found: list[Posted] = []
    for _ in range(draw.randint(1, 10)):
        found += _next(draw, found, ids, windows)
    found = _placed(draw, found if flavour.contradicting else _agreeing(found))
    found += [_again(draw, posted) for posted in found if draw.random() < 0.15]
    if flavour.invalid and draw.random() < 0.3:
        some = _values(draw)
        found += draw.choice(
            [[Posted(None, draw.randrange(SPAN), values=some)], [Posted(1, None, values=some)]]
        )
    return found


def _next(draw: random.Random, found: Sequence[Posted], ids: Sequence[int], windows: int) -> list[Posted]:
    seq = draw.randrange(windows * SPAN)
    kind = draw.choices(["put", "delete", "tie", "halves", "move"], [60, 18, 8, 8, 6])[0]
    if kind == "tie" and found:
        other = draw.choice(found)
        op = draw.choice(["put", "put", "delete"])
        return [replace(_put(draw, other.id, seq), seq=other.seq, op=op)]
    if kind == "halves":
        return _halves(draw, draw.choice(ids), seq)
    if kind == "move" and len(ids) > 1:
        old, new = draw.sample(ids, 2)
        return [Posted(old, seq, "delete"), _put(draw, new, seq)]
    made = _put(draw, draw.choice(ids), seq)
    if kind == "delete":
        # A delete may carry the old values, which mean nothing.
        return [replace(made, op="delete", values=draw.choice([{}, made.values]))]
    return [made]


def _put(draw: random.Random, id_: int | None, seq: int) -> Posted:
    choices = [
        None,
        None,
        None,
        (),
        ("v",),
        ("V", "n"),
        ("n", "s.a", "d"),
        ("S",),
        ("s.deep.b", "m"),
        ("id", "m"),
    ]
    return Posted(
        id_, seq, draw.choice(["put", "put", "put", None, "x"]), _values(draw), draw.choice(choices)
    )


def _values(draw: random.Random) -> dict[str, Any]:
    # Fewest different values: runs are to come together.
    return {
        "v": draw.choice(["a", "a", "b", None]),
        "n": draw.choice([1, 1, 1, 2, None]),
        "d": draw.choice([0.0, -0.0, 0.0, float("nan"), None]),
        "s": draw.choice(
            [None, {"a": "x", "deep": {"b": 1}}, {"a": "x", "deep": None}, {"a": None, "deep": {"b": 1}}]
        ),
        "m": draw.choice([None, {"k": 1, "l": None}, {"l": None, "k": 1}, {}]),
    }


def _halves(draw: random.Random, id_: int, seq: int) -> list[Posted]:
    """Two upserts at one sequence, each of which carries what the other doesn't."""
    one = _put(draw, id_, seq)
    taken = set(draw.sample(list(VALUES), 2))
    parts = [(taken, one.values), (set(VALUES) - taken, _values(draw))]
    return [
        replace(
            one,
            op="put",
            values={name: value if name in names else None for name, value in values.items()},
            cols=tuple(sorted(names)),
        )
        for names, values in parts
    ]


def _agreeing(found: Sequence[Posted]) -> list[Posted]:
    """Leave no contradiction: all upserts of a tie say what the first one says.

    A delete would settle it, but may come in a later batch than they.
    """
    first: dict[Any, Posted] = {}
    made = []
    for posted in found:
        if posted.op == "delete":
            made.append(posted)
        else:
            said = first.setdefault((posted.id, posted.seq), posted)
            made.append(replace(posted, values=said.values, cols=said.cols))
    return made


def _placed(draw: random.Random, found: Sequence[Posted]) -> list[Posted]:
    places: dict[Any, list[int]] = {}
    for posted in found:
        place = places.setdefault((posted.id, posted.seq), [])
        place.append(len(place))
    for place in places.values():
        draw.shuffle(place)
    return [replace(posted, pos=places[posted.id, posted.seq].pop()) for posted in found]


def _again(draw: random.Random, posted: Posted) -> Posted:
    """Return the same event; the entries of a map have no order."""
    entries = posted.values.get("m")
    if not entries:
        return posted
    return replace(
        posted, values={**posted.values, "m": dict(draw.sample(list(entries.items()), len(entries)))}
    )


# -- deliveries ---------------------------------------------------------------------------------
Style = Literal["windows", "shuffled"]
Batch = list[tuple[int | None, Posted]]


def delivered(world: World, style: Style) -> list[Batch]:
    """Cut a world into as many batches as it has windows.

    ``windows``: events come in their window's batch, or late; in half of the histories none is late.
    ``shuffled``: any event comes in any batch.
    """
    batches: list[Batch] = [[] for _ in range(world.windows)]
    for history, events in world.histories.items():
        draw = random.Random(f"{world.seed} {world.flavour.name} {style} {history}")
        late = 0.0 if history == 0 else draw.choice([0.0, 0.0, 0.2, 0.7])
        for posted in draw.sample(events, len(events)):
            batches[_batch(draw, posted, world.windows, 1.0 if style == "shuffled" else late, style)].append(
                (history, posted)
            )
    draw = random.Random(f"{world.seed} {style} truncates")
    for posted in world.truncates:
        batches[_batch(draw, posted, world.windows, 0.4, style)].append((None, posted))
    for number, batch in enumerate(batches):
        random.Random(f"{world.seed} {style} {number}").shuffle(batch)
    return batches


def _batch(draw: random.Random, posted: Posted, windows: int, late: float, style: Style) -> int:
    if style == "shuffled":
        return draw.randrange(windows)
    return draw.randrange(posted.window, windows) if draw.random() < late else posted.window


#: Batches by which an event may be late.
LATENESS = 2


def delivered_late(world: World) -> list[Batch]:
    """Cut a world into batches, in which events come in their window's batch, or up to two later."""
    batches: list[Batch] = [[] for _ in range(world.windows + LATENESS)]
    draw = random.Random(f"{world.seed} late")
    for history, events in world.histories.items():
        for posted in events:
            late = 0 if history == 0 else draw.choice([0, 0, 1, LATENESS])
            batches[posted.window + late].append((history, posted))
    for posted in world.truncates:
        batches[posted.window + draw.randint(0, LATENESS)].append((None, posted))
    return batches


#: Which version of a log the first batch is.
FIRST = 1


def create_log(spark: SparkSession, log: str, ddl: str = DDL, keys: Sequence[str] = KEYS) -> None:
    """Create an empty log, clustered by its keys: version 0."""
    # "history" without quotes is a word of Delta's grammar.
    listed = ", ".join(f"`{key}`" for key in keys)
    spark.sql(f"CREATE TABLE delta.`{log}` ({ddl}) USING delta CLUSTER BY ({listed})")


def append(spark: SparkSession, log: str, rows: Sequence[tuple[Any, ...]], ddl: str = DDL) -> None:
    """Append one batch, also an empty one: one commit."""
    batch = spark.createDataFrame(list(rows), ddl).coalesce(1)
    batch.write.format("delta").mode("append").save(log)


def write_log(spark: SparkSession, log: str, batches: Sequence[Batch]) -> None:
    """Write a delivery: its batches are the versions of the log from ``FIRST`` on."""
    create_log(spark, log)
    for batch in batches:
        append(spark, log, [posted.row(history) for history, posted in batch])


def as_set(batches: Iterable[Batch]) -> set[Any]:
    """Return the different events of a delivery."""
    return {plain(posted.row(history)) for batch in batches for history, posted in batch}
