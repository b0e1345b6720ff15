"""Order of Debezium's events: texts sort as the positions that they stand for, which are tuples here."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from delta_cdc.ingest.adapters.debezium_order import PLACES, part_of, place, table_of
from delta_cdc.ingest.record import Invalid, Number
from delta_cdc.ingest.types import LONG, decimal
from tests.support import debezium as d
from tests.support.adapters import events, made

#: Draws a position: what orders it, the operation, its source, and the transaction.
_Draw = Callable[[random.Random], tuple[tuple[Any, ...], str, dict[str, Any], Any]]


def _number(draw: random.Random, bits: int) -> int:
    """Return a number that is often small, and often equal to another one."""
    return draw.choice(
        (draw.randrange(3), draw.randrange(2**bits), 10 ** draw.randrange(len(str(2**bits)) - 1))
    )


def _written(draw: random.Random, number: int) -> Any:
    return draw.choice((number, str(number)))


def _read(draw: random.Random) -> tuple[bool, str, str]:
    """Return whether a row is one of a snapshot, its operation, and what ``snapshot`` says."""
    return draw.choice(
        [
            (True, "r", "true"),
            (True, "r", "last"),
            (True, "", "first_in_data_collection"),
            (True, "", "TRUE"),
            (False, "", "incremental"),
            (False, "", "false"),
            (False, "u", "last"),
            (False, "r", "incremental"),
            (False, "u", "false"),
            (False, "c", "FALSE"),
        ]
    )


def postgresql(draw: random.Random) -> Any:
    read, op, snapshot = _read(draw)
    commit, change = draw.choice((None, _number(draw, 64))), _number(draw, 64)
    parts = [None if commit is None else str(commit), str(change)]
    text = draw.choice((json.dumps(parts), json.dumps(parts, separators=(",", ":")), parts))
    return (commit or 0, not read, change), op, {"sequence": text, "snapshot": snapshot}, None


def mysql(draw: random.Random) -> Any:
    read, op, snapshot = _read(draw)
    file, pos, row = _number(draw, 32), _number(draw, 64), _number(draw, 32)
    source = {
        "file": f"{draw.choice(('bin', 'a.b', ''))}.{file:06d}",
        "pos": _written(draw, pos),
        "row": _written(draw, row),
        "snapshot": snapshot,
    }
    if not row:
        del source["row"]
    return (file, pos, not read, row), op, source, None


def sqlserver(draw: random.Random) -> Any:
    read, op, snapshot = _read(draw)
    commit, change = ((_number(draw, 32), _number(draw, 32), _number(draw, 16)) for _ in range(2))
    serial = _number(draw, 32)
    texts = [f"{a:08x}:{b:08x}:{c:04x}" for a, b, c in (commit, change)]
    source = {
        "commit_lsn": draw.choice((texts[0], texts[0].upper())),
        "change_lsn": texts[1],
        "event_serial_no": _written(draw, serial),
        "snapshot": snapshot,
    }
    if read and draw.random() < 0.5:
        source["change_lsn"] = source["event_serial_no"] = None
        change, serial = (0, 0, 0), 0
    return (commit, change, serial), op, source, None


def oracle(draw: random.Random) -> Any:
    read, op, snapshot = _read(draw)
    commit, scn, ssn = _number(draw, 63), _number(draw, 63), _number(draw, 31)
    redo = (_number(draw, 24), _number(draw, 32), _number(draw, 16))
    text = draw.choice(("0x%06x.%08x.%04x", " %06X.%08X.%04X "))
    source = {
        "commit_scn": _written(draw, commit),
        "scn": _written(draw, scn),
        "rs_id": text % redo,
        "ssn": ssn,
        "snapshot": snapshot,
    }
    if draw.random() < 0.3:
        source["rs_id"] = source["ssn"] = None
        redo, ssn = (0, 0, 0), 0
    if read and draw.random() < 0.5:
        source["commit_scn"], commit = None, scn
    return (commit, not read, scn, redo, ssn), op, source, None


def mongodb(draw: random.Random) -> Any:
    read, op, snapshot = _read(draw)
    seconds, entry, number = draw.randrange(2**31), _number(draw, 31), _number(draw, 16)
    source = {"ts_ms": _written(draw, seconds * 1000), "ord": _written(draw, entry), "snapshot": snapshot}
    transaction = draw.choice(({"total_order": _written(draw, number)}, None))
    return (seconds, entry, not read, number if transaction else 0), op, source, transaction


DRAWS: dict[str, _Draw] = {
    "postgresql": postgresql,
    "mysql": mysql,
    "mariadb": mysql,
    "sqlserver": sqlserver,
    "oracle": oracle,
    "mongodb": mongodb,
}


@pytest.mark.parametrize("connector", PLACES)
def test_texts_sort_as_positions(connector: str) -> None:
    draw = random.Random(connector)
    drawn = [DRAWS[connector](draw) for _ in range(2_000)]
    texts = [
        place(draw.choice((connector, connector.upper())), op, source, False, transaction)
        for _, op, source, transaction in drawn
    ]
    assert all(isinstance(text, str) and not isinstance(text, Invalid) for text in texts)
    assert len({len(text) for text in texts}) == 1
    pairs = sorted(zip([position for position, *_ in drawn], texts, strict=True))
    assert [text for _, text in pairs] == sorted(texts)
    for (one, first), (other, second) in pairwise(pairs):
        assert (one == other) == (first == second)


@pytest.mark.parametrize(
    ("connector", "op", "source", "wanted"),
    [
        ("postgresql", "u", {"sequence": '["100","120"]'}, f"{100:020d}/1/{120:020d}"),
        ("postgresql", "r", {"sequence": '[null,"120"]', "snapshot": "first"}, f"{0:020d}/0/{120:020d}"),
        ("mysql", "u", {"file": "bin.000009", "pos": 154}, f"{9:010d}/{154:020d}/1/{0:010d}"),
        ("sqlserver", "u", {"commit_lsn": "0000002A:00000001:0001", "change_lsn": "00000027:00000758:0005",
         "event_serial_no": 2}, "0000002a:00000001:0001/00000027:00000758:0005/0000000002"),
        ("oracle", "u", {"commit_scn": "1001", "scn": "999", "rs_id": " 0x000074.00007e8b.0010 ", "ssn": 1},
         f"{1001:020d}/1/{999:020d}/0000000074.00007e8b.0010/{1:010d}"),
        ("mongodb", "u", {"ts_ms": 1_700_000_000_000, "ord": 3}, f"1700000000/{3:010d}/1/{0:010d}"),
        ("mongodb", "u", {"ts_ms": 1_700_000_000_999, "ord": 3}, f"1700000000/{3:010d}/1/{0:010d}"),
    ],
)  # fmt: skip
def test_logs_hold_these_texts(connector: str, op: str, source: dict[str, Any], wanted: str) -> None:
    assert place(connector, op, source, False) == wanted


def test_a_second_snapshot_in_order() -> None:
    def text(op: str, sequence: str, in_order: bool) -> Any:
        return place("postgresql", op, {"sequence": sequence, "snapshot": "first"}, in_order)

    for in_order, wanted in ((False, [1, 0, 2]), (True, [0, 1, 2])):
        texts = [
            text("u", '["950","990"]', in_order),
            text("r", '[null,"2000"]', in_order),
            text("u", '["2000","2010"]', in_order),
        ]
        assert sorted(range(3), key=lambda at, found=texts: found[at]) == wanted


def test_an_option_names_the_connector() -> None:
    change = d.change("u", None, {"id": 1}, {"file": "bin.000009", "pos": 154})
    (found,) = events(made("debezium", {"connector": "mysql"}), change)
    assert found.sequence == f"{9:010d}/{154:020d}/1/{0:010d}/1"


def ms(commit: str, change: str | None, serial: int | None) -> dict[str, Any]:
    return {"commit_lsn": commit, "change_lsn": change, "event_serial_no": serial}


LSN = "00000027:00000758:0005"
LACKING: dict[str, list[dict[str, Any]]] = {
    "postgresql": [{"sequence": text} for text in (None, "", "[]", '["1"]', '["1","2","3"]', '["1",null]',
        '["x","2"]', '["1","-2"]', '{"0":"1"}',
        *('["1","2"', 7, ["1", [2]], '["1.5","2"]', f'["1","{"9" * 21}"]', '["\\u0661","2"]', '("1","2"]'),
        *('["1","2")', '["1";"2"]', '["1"2"3"]'))],
    "mysql": [*({"file": name, "pos": 1} for name in ("bin", "bin.x", 7, "bin. 7", "bin.٣")),
        *({"file": "bin.1", "pos": pos} for pos in (None, -1, Number("1e3"), True)),
        {"file": "bin.1", "pos": 1, "row": "x"}],
    "sqlserver": [ms(LSN, None, 1), ms("27:758:5", LSN, 1), ms(f"{LSN}\n", LSN, 1), ms(LSN, LSN, None)],
    "oracle": [{"scn": "1"}, {"commit_scn": "1"}, {"commit_scn": "1:a,2:b", "scn": "1"}, {"commit_scn": [1]}],
    "mongodb": [{"ts_ms": 1000}, *({"ts_ms": millis, "ord": 1} for millis in (None, "x", -1000, 10**20))],
}  # fmt: skip
LACKING["mariadb"] = LACKING["mysql"]


@pytest.mark.parametrize("connector", PLACES)
def test_no_position_is_made_up(connector: str) -> None:
    for source in LACKING[connector]:
        assert place(connector, "u", source, False) == Invalid(f"no value for {PLACES[connector][1]}"), source


def test_oracle_without_the_position_of_the_commit() -> None:
    """OpenLogReplicator never writes it. An option is the way out."""
    found = place("oracle", "c", {"scn": "2127", "snapshot": "false"}, False)
    assert isinstance(found, Invalid)
    assert "give adapter_options sequence_by" in found.reason


@pytest.mark.parametrize(
    ("connector", "fields", "wanted"),
    [
        ("postgresql", {"sequence": '[null,"200"]'}, f"{0:020d}/0/{200:020d}/1"),
        ("sqlserver", {"commit_lsn": LSN, "change_lsn": None}, f"{LSN}/00000000:00000000:0000/{0:010d}/1"),
        ("oracle", {"scn": "123"}, f"{123:020d}/0/{123:020d}/0000000000.00000000.0000/{0:010d}/1"),
    ],
)
def test_rows_of_a_snapshot_without_an_operation(connector: str, fields: Any, wanted: str) -> None:
    adapter = made("debezium", {"unwrapped": True, "connector": connector})
    row = {"id": 1, "__deleted": "false", **{f"__source_{name}": value for name, value in fields.items()}}
    (found,) = events(adapter, {**row, "__source_snapshot": "last"})
    assert (found.row, found.sequence) == ({"id": 1}, wanted)


def test_an_odd_place_in_a_transaction() -> None:
    assert isinstance(place("mongodb", "u", {"ts_ms": 0, "ord": 1}, False, {"total_order": "x"}), Invalid)


@pytest.mark.parametrize("connector", [None, "", 7, ["mysql"], {"a": 1}, "vitess", "x" * 10_000])
def test_unknown_connectors(connector: Any) -> None:
    found = place(connector, "u", {}, False)
    assert isinstance(found, Invalid)
    assert found.reason.startswith("no order is known for the connector '")
    assert len(found.reason) < 120


def test_the_table_of_an_event() -> None:
    assert table_of({"table": "t", "collection": "c", "schema": "s", "db": "d"}) == ("t", "s")
    assert table_of({"table": None, "collection": "c", "db": "d"}) == ("c", "d")
    assert table_of({}) == (None, None)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("source.lsn", (("source", "lsn"), None)), ("`source`.`a b`", (("source", "a b"), None)),
        ("cast(source.lsn as bigint)", (("source", "lsn"), LONG)),
        ("Try_Cast(source.lsn AS decimal( 20 ))", (("source", "lsn"), decimal(20, 0))),
        ("bigint( source.lsn )", (("source", "lsn"), LONG)), ("cast(source.lsn as decimal(20,2))", None),
        ("cast(source.lsn as decimal(60))", None), ("cast(source.lsn as string)", None),
        ("cast(source.lsn + 1 as bigint)", None), ("source.lsn + 1", None), ("cast(" * 5_000, None),
    ],
)  # fmt: skip
def test_parts_that_need_no_spark(text: str, wanted: Any) -> None:
    assert part_of(text) == wanted
