"""The adapter ``maxwell``: messages of Maxwell's daemon."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from delta_cdc.ingest.record import Event, Invalid
from delta_cdc.ingest.records.json import Decoder
from delta_cdc.ingest.types import LONG, STRING
from tests.support import adapters
from tests.support.adapters import IGNORED, LINE, check, events
from tests.support.mutated import damaged

NO_POSITION = (
    "no value for position, or no binlog position in it: set output_binlog_position in Maxwell, or "
    "adapter_options sequence_by to _offset"
)
AT = 1_477_053_217_000_000
made = partial(adapters.made, "maxwell")


def message(kind: Any = "insert", **more: Any) -> dict[str, Any]:
    value = {
        "database": "shop",
        "table": "orders",
        "type": kind,
        "ts": 1_477_053_217,
        "xid": 23_396,
        "xoffset": 3,
        "position": "master.000006:800911",
        "data": {"id": 1, "v": "a"},
        **more,
    }
    return {name: part for name, part in value.items() if part is not ...}


def place(file: int, offset: int, row: Any, index: int = 1) -> str:
    return f"1/{file:010d}/{offset:020d}/{row:010d}/{index}"


BASE = place(6, 800_911, 3)
ROW = {"id": 1, "v": "a"}
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("insert", message(), [Event("upsert", ROW, BASE, AT)]),
    ("the last row of a transaction", message(xoffset=..., commit=True),
     [Event("upsert", ROW, place(6, 800_911, 9_999_999_999), AT)]),
    ("without xoffset", message(xoffset=...), [Event("upsert", ROW, place(6, 800_911, 0), AT)]),
    ("update", message("update", old={"v": "z"}), [Event("upsert", ROW, BASE, AT)]),
    ("update of nothing", message("update", old={}), [Event("upsert", ROW, BASE, AT)]),
    ("delete", message("delete"), [Event("delete", ROW, BASE, AT)]),
    (
        "key change",
        message("update", data={"id": 2, "v": "b", "w": 1}, old={"id": 1, "v": None}),
        [
            Event("delete", {"id": 1, "v": None, "w": 1}, place(6, 800_911, 3, 0), AT),
            Event("upsert", {"id": 2, "v": "b", "w": 1}, BASE, AT, whole=True),
        ],
    ),
    ("update to NULL with output_nulls=false", message("update", data={"id": 1}, old={"v": "z"}),
     [Event("upsert", {"id": 1, "v": None}, BASE, AT)]),
    ("the key as a text", message("update", old={"id": "1"}), [Event("upsert", ROW, BASE, AT)]),
    ("bootstrap", message("bootstrap-insert", position=...),
     [Event("upsert", ROW, f"0/{1_477_053_217:020d}/1", AT)]),
    ("bootstrap with a position", message("bootstrap-insert"),
     [Event("upsert", ROW, f"0/{1_477_053_217:020d}/1", AT)]),
    ("bootstrap without a time", message("bootstrap-insert", ts=...),
     "no value for ts, which orders the rows of a bootstrap"),
    ("bootstrap begins", message("bootstrap-start", data={}), IGNORED),
    ("bootstrap ends", message("bootstrap-complete", data={}), IGNORED),
    ("a table is created", message("table-create", data=..., **{"def": {}}), IGNORED),
    ("a table is altered", message("table-alter", data=..., old={"columns": []}), IGNORED),
    ("a database is dropped", message("database-drop", data=...), IGNORED),
    ("unknown", message("table-truncate", data=...), "unknown operation 'table-truncate'"),
    ("no operation", message(...), "unknown operation ''"),
    ("encrypted", message(data="bGlnaHQ="), "data is no object"),
    ("no data", message(data=...), "data is no object"),
    ("an old row that is a list", message("update", old=[1]), "old is no object"),
    ("no position", message(position=...), NO_POSITION),
    ("a position without a file", message(position="800911"), NO_POSITION),
    ("a position without a number", message(position="master.x:7"), NO_POSITION),
    ("a position without an offset", message(position="master.000006:"), NO_POSITION),
    ("a position that is a number", message(position=7), NO_POSITION),
    ("a row that is no number", message(xoffset="x"), NO_POSITION),
]  # fmt: skip


@pytest.mark.parametrize(("record", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_messages(record: dict[str, Any], wanted: Any) -> None:
    adapter = made()
    assert adapter.sequence({"id": LONG}, None).type == STRING
    check(events(adapter, record), wanted)


def test_other_tables_are_left_out() -> None:
    for table, op in (("orders", "upsert"), ("Shop.Orders", "upsert"), ("shop.lines", "ignore")):
        assert events(made({"table": table}), message())[0].op == op
    assert events(made({"table": "orders"}), {"type": "?"})[0].op == "ignore"


def test_another_order() -> None:
    adapter = made({"sequence_by": "_offset"})
    for kind in ("insert", "bootstrap-insert"):
        (event,) = events(adapter, message(kind, position=...))
        assert event.sequence == f"{42:020d}/1"
    adapter = made({"sequence_by": ["ts", "xid"]})
    assert events(adapter, message())[0].sequence == f"{1_477_053_217:020d}/{23_396:020d}/1"
    reason = "no value for sequence_by, or no number of at most 20 digits (ts, xid)"
    check(events(adapter, message(xid=...)), reason)
    assert not made().needs_rows
    adapter = made({"sequence_by": ["ts", "_row"]})
    (event,) = events(adapter, message(), position=LINE)
    assert event.sequence == f"{1_477_053_217:020d}/{7:020d}/1"
    check(
        events(adapter, message()), "no value for sequence_by, or no number of at most 20 digits (ts, _row)"
    )


def test_the_key_of_a_tombstone() -> None:
    adapter = made({"sequence_by": "_offset", "tombstones": "delete"})
    for key in (b'{"database":"shop","table":"orders","pk.id":7}', b'{"id":7}', b'{"PK.ID":7}'):
        assert events(adapter, None, key) == [Event("delete", {"id": 7}, f"{42:020d}/1")]


def test_the_order_of_texts_is_the_order_of_the_binlog() -> None:
    """Of file, offset, row in the transaction; the last row of a transaction is its last."""
    chance = random.Random(20261126)
    adapter = made()
    texts = {}
    for _ in range(3_000):
        file = chance.choice([chance.randint(1, 12), 999_999, 1_000_000, 2_147_483_647])
        offset = chance.choice([chance.randint(4, 12), chance.randint(4, 2**40)])
        row = chance.choice([chance.randint(0, 12), 10**9, None])
        is_last = row is None
        record = message(
            "update",
            data={"id": 2},
            old={"id": 1},
            position=f"mysql-bin.{file:06d}:{offset}",
            xoffset=... if is_last else row,
            commit=True if is_last else ...,
        )
        old, new = events(adapter, record)
        value = (file, offset, 10**10 if is_last else row)
        texts[(*value, 0)], texts[(*value, 1)] = old.sequence, new.sequence
        bootstrap = events(adapter, message("bootstrap-insert", ts=chance.randint(0, 2**40)))[0].sequence
        assert bootstrap < old.sequence
    assert sorted(texts, key=texts.__getitem__) == sorted(texts)


# -- against a model --------------------------------------------------------------------------------
def model(value: dict[str, Any]) -> Any:
    """Return the operations, rows and places of a message; None for no event; in plain Python, again."""
    kind, data, old = value.get("type"), value.get("data"), value.get("old")
    known = {"insert": "upsert", "update": "upsert", "delete": "delete", "bootstrap-insert": "upsert"}
    if not isinstance(kind, str) or kind not in known:
        return None
    if not isinstance(data, dict) or not (old is None or isinstance(old, dict)):
        return None
    try:
        if kind == "bootstrap-insert":
            place: tuple[int, ...] = (0, plain(value.get("ts"), 20))
        else:
            file, offset = value["position"].rsplit(":", 1)
            row = value.get("xoffset")
            rank = (10**10 - 1 if value.get("commit") is True else 0) if row is None else plain(row, 10)
            place = (1, plain(file.rsplit(".", 1)[-1], 10), plain(offset, 20), rank)
    except (ValueError, AttributeError, KeyError):
        return None
    new = {**data, **{name: None for name in old or () if known[kind] == "upsert" and name not in data}}
    found = [(known[kind], new, place)]
    if kind in ("update", "insert", "bootstrap-insert") and old and "id" in old:
        one, other = old["id"], data.get("id")
        if one is not None and other is not None and str(one) != str(other):
            before = {**data, **old}
            found = [("delete", before, place), ("upsert", new, place)]
    return found


def plain(value: Any, width: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(value)
    text = str(value)
    if not (text.isascii() and text.isdigit()) or int(text) >= 10**width:
        raise ValueError(value)
    return int(text)


def test_damaged_messages_against_the_model() -> None:
    chance = random.Random(20261127)
    adapter, decode, count = made(), Decoder(), 0
    kinds = ("insert", "update", "delete", "bootstrap-insert", "bootstrap-start", "table-create", "?")
    odd: tuple[Any, ...] = (
        *(None, True, 0, -1, 2**40, "7", "", "x", [], {}),
        *("m.000001:5", "m.1:2:3", {"id": 5}, {"id": None}),
    )
    for number in range(8_000):
        old = chance.choice([..., {"id": chance.choice([1, 2, "1"])}, {"v": None}])
        record = message(chance.choice(kinds), old=old, commit=chance.choice([..., True, False]))
        if number % 2:
            name = chance.choice([*record, "xoffset", "old"])
            record[name] = deepcopy(chance.choice(odd))
            if chance.random() < 0.2:
                del record[name]
            value: Any = record
        else:
            value = decode(damaged(json.dumps(record).encode(), chance))
            if isinstance(value, Invalid) or len({name.lower() for name in value}) < len(value):
                continue
            if any(name.lower() in message(old=1, commit=1) and name != name.lower() for name in value):
                continue
        wanted = model(deepcopy(value))
        found = events(adapter, value)
        shown = (
            None
            if isinstance(found, Invalid) or found == IGNORED
            else [(event.op, event.row, tuple(map(int, event.sequence.split("/")[:-1]))) for event in found]
        )
        assert shown == wanted, value
        count += wanted is not None
    assert count > 1_500
