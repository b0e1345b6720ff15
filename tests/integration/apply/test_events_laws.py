"""The law of change logs: any order of arrival, any cut into batches, any retry gives the rows of the model.

Random streams, many histories side by side in one log and one target: one MERGE tells about all of them.
``DELTA_CDC_SEED`` and ``DELTA_CDC_HISTORIES`` replay what a failure names.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.support import event_model as model
from tests.support.change_histories import histories_asked_for
from tests.support.event_flow import LogFlow, cuts
from tests.support.event_model import Rules
from tests.support.event_streams import (
    FIRST,
    FLAVOURS,
    INVALID,
    KEYS,
    PLAIN,
    TELLING,
    TIED,
    TRUNCATED,
    VALUES,
    Flavour,
    Style,
    World,
    as_set,
    delivered,
    drawn_world,
    write_log,
)
from tests.support.oracle import plain
from tests.support.random_logs import seeds

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

TEST = "tests/integration/apply/test_events_laws.py"
RULES = Rules(keys=KEYS, columns=VALUES)


def _number(seq: int) -> Any:
    return seq


@dataclass(frozen=True)
class Configuration:
    """How a log is applied, to the engine and to the model.

    :param arguments: of ``apply_changes``, in which those that all share are left out
    :param sequence: what the engine's ``sequence_by`` makes of the number in the log
    """

    flavour: Flavour
    scd_type: int = 2
    arguments: dict[str, Any] = field(default_factory=dict)
    rules: Rules = RULES
    sequence: Callable[[int], Any] = _number
    start: str = model.START
    end: str = model.END

    @property
    def all_arguments(self) -> dict[str, Any]:
        shared: dict[str, Any] = {
            "keys": list(KEYS),
            "stored_as_scd_type": self.scd_type,
            "sequence_by": "seq",
            "apply_as_deletes": "op = 'delete'",
            "except_column_list": None if "column_list" in self.arguments else list(TELLING),
        }
        if self.flavour is TRUNCATED:
            shared["apply_as_truncates"] = "op = 'truncate'"
        if self.flavour is TIED:
            shared["on_conflict"] = {"last_by": ["pos"]}
        if self.flavour is INVALID:
            shared |= {"on_conflict": "quarantine", "on_invalid": "quarantine"}
        return {**shared, **self.arguments}

    @property
    def all_rules(self) -> Rules:
        if self.flavour in (TIED, INVALID):
            return replace(self.rules, on_conflict="last_by" if self.flavour is TIED else "quarantine")
        return self.rules

    @property
    def is_soft(self) -> bool:
        return self.arguments.get("delete_mode") == "soft"

    @property
    def columns(self) -> tuple[str, ...]:
        more: tuple[str, ...] = (self.start, self.end) if self.scd_type == 2 else ()
        return (*KEYS, *self.rules.columns, *((model.DELETED,) if self.is_soft else more))

    def expected(self, world: World, history: int) -> list[model.Row]:
        events, rules = world.events(history, self.sequence), self.all_rules
        if self.scd_type == 2:
            return model.type_2(events, rules, start=self.start, end=self.end)
        return model.type_1_soft(events, rules) if self.is_soft else model.type_1(events, rules)


def _ignoring(flavour: Flavour, scd_type: int = 2, /, **how: Any) -> Configuration:
    arguments = {name: list(value) if isinstance(value, tuple) else value for name, value in how.items()}
    soft = {name: how.pop(name) for name in ("delete_mode",) if name in how}
    tracked = how.pop("track_history_column_list", None)
    rules = replace(RULES, tracked=tracked, **how)
    assert set(soft) <= {"delete_mode"}
    return Configuration(flavour, scd_type, arguments, rules)


SOFT = {"delete_mode": "soft"}
#: Names without "type" are of type 2.
CONFIGURATIONS: dict[str, Configuration] = {
    "type 1": Configuration(PLAIN, 1),
    "type 1 soft": Configuration(PLAIN, 1, SOFT),
    "type 1 by text, some columns": Configuration(
        PLAIN,
        1,
        {"sequence_by": "lpad(seq, 6, '0')", "column_list": ["s", "V"]},
        replace(RULES, columns={"v": None, "s": VALUES["s"]}),
        lambda seq: f"{seq:06}",
    ),
    "type 2": Configuration(PLAIN),
    "tracks some": Configuration(
        PLAIN, arguments={"track_history_column_list": ["v", "S"]}, rules=replace(RULES, tracked=("v", "s"))
    ),
    "tracks all but some, other names": Configuration(
        PLAIN,
        arguments={
            "track_history_except_column_list": ["n", "s", "m"],
            "start_column": "valid from",
            "end_column": "valid to",
        },
        rules=replace(RULES, tracked=("v", "d")),
        start="valid from",
        end="valid to",
    ),
    "tracks nothing": Configuration(
        PLAIN, arguments={"track_history_column_list": []}, rules=replace(RULES, tracked=())
    ),
    "by a list": Configuration(
        PLAIN, arguments={"sequence_by": ["hi", "lo"]}, sequence=lambda seq: divmod(seq, 7)
    ),
    "by a date": Configuration(
        PLAIN,
        arguments={"sequence_by": "date_from_unix_date(seq)"},
        sequence=lambda seq: dt.date(1970, 1, 1) + dt.timedelta(days=seq),
    ),
    "the sequence lands": Configuration(
        PLAIN,
        arguments={"except_column_list": [name for name in TELLING if name != "seq"]},
        rules=replace(RULES, columns={**VALUES, "seq": None}, tracked=tuple(VALUES)),
    ),
    "type 1 last by": Configuration(TIED, 1),
    "last by": Configuration(TIED),
    "type 1 ignore null": _ignoring(TIED, 1, ignore_null_updates=True),
    "type 1 soft, ignore null except": _ignoring(
        TIED, 1, ignore_null_updates_except_column_list=("n", "s.a"), **SOFT
    ),
    "ignore null": _ignoring(TIED, ignore_null_updates=True),
    "ignore null, tracks some": _ignoring(
        TIED, ignore_null_updates=True, track_history_column_list=("v", "s")
    ),
    "ignore null in some": _ignoring(TIED, ignore_null_updates_column_list=("V", "s.deep.b")),
    "ignore null except": _ignoring(TIED, ignore_null_updates_except_column_list=("s", "d")),
    "type 1 columns to update": Configuration(
        TIED, 1, {"columns_to_update": "cols"}, replace(RULES, columns_to_update=True)
    ),
    "columns to update": Configuration(
        TIED, 2, {"columns_to_update": "cols"}, replace(RULES, columns_to_update=True)
    ),
    "quarantine": Configuration(INVALID),
    "type 1 soft quarantine": Configuration(INVALID, 1, SOFT),
    "type 1 quarantine, ignore null": _ignoring(INVALID, 1, ignore_null_updates=True),
    "quarantine, columns to update": Configuration(
        INVALID, 2, {"columns_to_update": "cols"}, replace(RULES, columns_to_update=True)
    ),
    "truncates": Configuration(TRUNCATED),
    "type 1 truncates": Configuration(TRUNCATED, 1),
    "type 1 soft, truncates, ignore null": _ignoring(TRUNCATED, 1, ignore_null_updates=True, **SOFT),
    "truncates, by a list, ignore null": replace(
        _ignoring(TRUNCATED, ignore_null_updates=True),
        arguments={"ignore_null_updates": True, "sequence_by": ["hi", "lo"]},
        sequence=lambda seq: divmod(seq, 7),
    ),
}


class Logs:
    """Worlds and the logs they were written to, each made when first asked for."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self._worlds: dict[Any, World] = {}
        self._written: dict[Any, tuple[str, int]] = {}

    def world(self, seed: int, flavour: Flavour, count: int) -> World:
        place = (seed, flavour, count)
        if place not in self._worlds:
            self._worlds[place] = drawn_world(seed, flavour, histories_asked_for(count))
        return self._worlds[place]

    def written(self, seed: int, flavour: Flavour, style: Style, count: int) -> tuple[str, int]:
        """Return where the log lies, and how many batches it has."""
        place = (seed, flavour, style, count)
        if place not in self._written:
            log = str(self.folder / f"{flavour.name} {style} {seed} {count}")
            batches = delivered(self.world(seed, flavour, count), style)
            write_log(self.spark, log, batches)
            self._written[place] = log, len(batches)
        return self._written[place]


@pytest.fixture(scope="module")
def logs(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Logs:
    return Logs(spark, tmp_path_factory.mktemp("events"))


def check(logs: Logs, seed: int, name: str, style: Style, count: int, runs: int, test: str) -> None:
    """Apply a log in a few runs and compare every history with the model."""
    configuration = CONFIGURATIONS[name]
    world = logs.world(seed, configuration.flavour, count)
    log, batches = logs.written(seed, configuration.flavour, style, count)
    draw = random.Random(f"{seed} {name} {style}")
    target = str(logs.folder / f"target {seed} {count} {name} {style}".replace(",", ""))
    flow = LogFlow(logs.spark, log, target, configuration.all_arguments)
    replay = f"python -m pytest '{TEST}::{test}'"
    try:
        flow.through(cuts(draw, batches, runs), draw)
    except BaseException as error:
        error.add_note(f"seed {seed}, {flow.said}; replay: DELTA_CDC_SEED={seed} {replay}")
        raise
    found: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in flow.rows():
        found[row["history"]].append(row)
    wrong = _wrong(configuration, world, found)
    if wrong:
        least = min(wrong, key=lambda history: (len(world.histories.get(history, ())), history))
        pytest.fail(
            f"{len(wrong)} of {len(world.histories)} histories differ, as {sorted(wrong)[:20]}\n"
            f"seed {seed}, {flow.said}\n{_story(configuration, world, style, least, found)}\n"
            f"replay: DELTA_CDC_SEED={seed} DELTA_CDC_HISTORIES={least} {replay}",
            pytrace=False,
        )


def _bag(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> Counter[tuple[Any, ...]]:
    # Not sorted by their text: that of a map depends on the order in which its entries came.
    return Counter(tuple(plain(row[name]) for name in columns) for row in rows)


def _wrong(configuration: Configuration, world: World, found: dict[int, list[dict[str, Any]]]) -> set[int]:
    wrong = set(found) - set(world.histories)
    for history in world.histories:
        expected = configuration.expected(world, history)
        columns = configuration.columns
        if _bag(found[history], columns) != _bag(expected, columns) or (
            configuration.scd_type == 2
            and model.faults(found[history], KEYS, start=configuration.start, end=configuration.end)
        ):
            wrong.add(history)
    return wrong


def _story(
    configuration: Configuration,
    world: World,
    style: Style,
    history: int,
    found: dict[int, list[dict[str, Any]]],
) -> str:
    lines = [f"history {history}"]
    for version, batch in enumerate(delivered(world, style), start=FIRST):
        lines += [f"  in version {version}: {posted}" for of, posted in batch if of == history or of is None]
    expected = _bag(configuration.expected(world, history), configuration.columns)
    got = _bag(found[history], configuration.columns)
    lines += [f"  missing: {row}" for row in (expected - got).elements()]
    lines += [f"  too many: {row}" for row in (got - expected).elements()]
    return "\n".join(lines)


# -- the tests ----------------------------------------------------------------------------------
QUICK: list[tuple[str, Style]] = [
    ("type 2", "windows"),
    ("type 1 soft, ignore null except", "shuffled"),
    ("ignore null, tracks some", "windows"),
    ("truncates", "shuffled"),
]


@pytest.mark.parametrize(("name", "style"), QUICK)
def test_any_order_gives_the_rows_of_the_model(logs: Logs, name: str, style: Style) -> None:
    for seed in seeds(1, first=4):
        test = f"test_any_order_gives_the_rows_of_the_model[{name}-{style}]"
        check(logs, seed, name, style, 200, 3, test)


MANY = 1250
STYLES: tuple[Style, ...] = ("windows", "shuffled")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("seed", seeds(2))
def test_any_order_over_many_histories(logs: Logs, seed: int, name: str, style: Style) -> None:
    test = f"test_any_order_over_many_histories[{seed}-{name}-{style}]"
    check(logs, seed, name, style, MANY, 5, test)


def test_both_deliveries_bring_the_same_events() -> None:
    """Else two tables that agree would say nothing about the order of their events."""
    for flavour in FLAVOURS:
        world = drawn_world(1, flavour, range(50))
        assert as_set(delivered(world, "windows")) == as_set(delivered(world, "shuffled"))
