"""The adapter ``canal``: flat JSON messages of Canal and TiCDC."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from functools import partial
from typing import Any

import pytest

from delta_cdc.ingest.adapters import canal
from delta_cdc.ingest.adapters.canal import type_of
from delta_cdc.ingest.record import Invalid, Position
from delta_cdc.ingest.records.json import Decoder
from delta_cdc.ingest.types import BINARY, LONG, STRING
from delta_cdc.ingest.values import Encoding
from tests.support import adapters
from tests.support.adapters import LINE, check, events
from tests.support.mutated import damaged

BASE = f"{42:020d}"
AT = 1_639_633_094_670_000
TYPES = {"id": "int(11)", "v": "varchar(20)", "b": "blob"}
NO_ROWS = "data is no list of objects"
NO_OLD = "old is no list of as many objects as data"
made = partial(adapters.made, "canal")


def message(kind: Any = "INSERT", data: Any = ..., old: Any = None, **more: Any) -> dict[str, Any]:
    value = {
        "id": 9,
        "database": "shop",
        "table": "orders",
        "pkNames": ["id"],
        "isDdl": False,
        "type": kind,
        "es": 1_639_633_094_670,
        "ts": 1_639_633_095_489,
        "sql": "",
        "sqlType": {"id": 4, "v": 12},
        "mysqlType": dict(TYPES),
        "data": [{"id": "1", "v": "a"}] if data is ... else data,
        "old": old,
        "gtid": "",
        **more,
    }
    return {name: part for name, part in value.items() if part is not ...}


def at(index: int) -> str:
    return f"{BASE}/{index:07d}"


ROW = {"id": "1", "v": "a"}
#: Case, message, and operation, row, sequence and wholeness of each event.
CASES: list[tuple[str, dict[str, Any], Any]] = [
    ("insert", message(), [("upsert", ROW, at(1), False)]),
    ("several rows", message(data=[{"id": "1"}, {"id": "2"}, {"id": "1", "v": None}]),
     [("upsert", {"id": "1"}, at(1), False), ("upsert", {"id": "2"}, at(3), False),
     ("upsert", {"id": "1", "v": None}, at(5), False)]),
    ("update", message("UPDATE", old=[{"v": "z"}]), [("upsert", ROW, at(1), False)]),
    ("update of nothing", message("UPDATE", old=[{}]), [("upsert", ROW, at(1), False)]),
    ("update without old rows", message("UPDATE"), [("upsert", ROW, at(1), False)]),
    ("update of a row without an old one", message("UPDATE", old=[None]), [("upsert", ROW, at(1), False)]),
    ("the key as a number", message("UPDATE", old=[{"id": 1}]), [("upsert", ROW, at(1), False)]),
    ("keys that move on: 2 becomes 3, then 1 becomes 2",
     message("UPDATE", [{"id": "3", "v": "b"}, {"id": "2", "v": "a"}], [{"id": "2"}, {"id": "1", "v": None}]),
     [("delete", {"id": "2", "v": "b"}, at(0), False), ("upsert", {"id": "3", "v": "b"}, at(1), True),
     ("delete", {"id": "1", "v": None}, at(2), False), ("upsert", {"id": "2", "v": "a"}, at(3), True)]),
    ("delete", message("DELETE"), [("delete", ROW, at(1), False)]),
    ("delete, whatever old is", message("delete", old="x"), [("delete", ROW, at(1), False)]),
    ("truncate", message("TRUNCATE", None, isDdl=True, mysqlType=None), [("truncate", {}, at(1), False)]),
    ("no rows", message(data=[]), []),
    ("a column more", message("ALTER", None, isDdl=True), [("ignore", {}, None, False)]),
    ("a statement of the schema", message("QUERY", None, isDdl=True), [("ignore", {}, None, False)]),
    ("a watermark", message("TIDB_WATERMARK", None, _tidb={"watermarkTs": 7}), [("ignore", {}, None, False)]),
    ("the key alone", message("UPDATE", [{"id": "1"}], [{"id": "1"}], _tidb={"onlyHandleKey": True}),
     "a message without its row, which was too large (_tidb.onlyHandleKey): raise max-message-bytes"),
    ("the row in another store", message(_tidb={"claimCheckLocation": "s3://b/x.json"}),
     "a message without its row, which was too large (_tidb.claimCheckLocation): "),
    ("a delete needs no more than its key", message("DELETE", [{"id": "1"}], _tidb={"onlyHandleKey": True}),
     [("delete", {"id": "1"}, at(1), False)]),
    ("the row is there", message(_tidb={"onlyHandleKey": False, "claimCheckLocation": ""}),
     [("upsert", ROW, at(1), False)]),
    ("no object of TiDB", message(_tidb=[7]), [("upsert", ROW, at(1), False)]),
    ("a statement that changed rows", message("QUERY", None), "unknown operation 'QUERY'"),
    ("no operation", message(None), "unknown operation ''"),
    ("no data", message(data=None), NO_ROWS),
    ("data that is an object", message(data=ROW), NO_ROWS),
    ("a row that is null", message(data=[ROW, None]), NO_ROWS),
    ("too few old rows", message("UPDATE", [ROW, ROW], [{"v": "z"}]), NO_OLD),
    ("old rows that are an object", message("UPDATE", old={"v": "z"}), NO_OLD),
    ("an old row that is a text", message("UPDATE", old=["x"]), NO_OLD),
    ("without types", message(mysqlType=...), [("upsert", ROW, at(1), False)]),
    ("types that are a list", message(mysqlType=["int"]), [("upsert", ROW, at(1), False)]),
    ("bytes", message(data=[{"id": "1", "b": "\x00\xff"}]),
     [("upsert", {"id": "1", "b": b"\0\xff"}, at(1), False)]),
    ("bytes that are null", message(data=[{"id": "1", "b": None}]),
     [("upsert", {"id": "1", "b": None}, at(1), False)]),
    ("no bytes", message(data=[{"id": "1", "b": "\u0100"}]), "column b is no binary"),
    ("no bytes in an old row", message("UPDATE", old=[{"b": "\u0100"}]), "column b is no binary"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "wanted"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_messages(record: dict[str, Any], wanted: Any) -> None:
    adapter = made()
    assert adapter.sequence({"id": LONG}, None).type == STRING
    found = events(adapter, record)
    if isinstance(found, list):
        assert {event.source_timestamp for event in found} <= {AT, None}
        found = [(event.op, event.row, event.sequence, event.whole) for event in found]
    check(found, wanted)


def test_a_message_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The place of a row in its message has seven digits."""
    monkeypatch.setattr(canal, "_MOST_ROWS", 2)
    assert len(events(made(), message(data=[ROW] * 2))) == 2
    check(events(made(), message(data=[ROW] * 3)), "a message of more than 5,000,000 rows")


# -- types ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tinyint(1)", "tinyint"), ("tinyint(3) unsigned", "smallint"), ("smallint", "smallint"),
        ("SMALLINT UNSIGNED", "int"), ("mediumint(8) unsigned zerofill", "int"), ("int(11)", "int"),
        ("int unsigned", "bigint"), ("integer", "int"), ("bigint(20)", "bigint"),
        ("bigint(20) unsigned", "decimal(20,0)"), ("decimal(10,2)", "decimal(10,2)"),
        ("decimal(38, 30) unsigned", "decimal(38,30)"), ("numeric(5)", "decimal(5,0)"),
        ("decimal(38,38)", "decimal(38,38)"), ("decimal(39,0)", "string"), ("decimal(65,30)", "string"),
        ("decimal(2,3)", "string"), ("decimal(0,0)", "string"), ("decimal", "string"), ("float", "float"),
        ("double(8,2)", "double"), ("date", "date"), ("datetime(6)", "timestamp_ntz"),
        ("timestamp", "timestamp_ntz"), ("time", "string"), ("year(4)", "int"), ("bit(1)", "bigint"),
        ("bit(64)", "decimal(20,0)"), ("json", "string"), ("enum('a','b')", "string"),
        ("varbinary(255)", "binary"), ("LONGBLOB", "binary"), ("char(3)", "string"), ("geometry", "string"),
        ("???", "string"), ("", None), (f"decimal({'9' * 190},0)", "string"), ("x" * 1_000_000, "string"),
    ],
)  # fmt: skip
def test_types_of_columns(text: str, wanted: str | None) -> None:
    found = type_of(text)
    assert (None if found is None else str(found)) == wanted


def test_messages_of_a_table_share_their_encodings() -> None:
    adapter = made()
    first, second = (events(adapter, message())[0].encodings for _ in range(2))
    assert first is second
    assert first["v"] == Encoding(STRING)
    assert first["b"] == Encoding(BINARY)
    changed = events(adapter, message("UPDATE", [{"id": "2"}], [{"id": "1"}]))
    assert [event.encodings is first for event in changed] == [True, True]
    (other,) = events(adapter, message(mysqlType={"id": "bigint", "v": "text"}))
    assert other.encodings["id"] == Encoding(LONG)
    assert events(adapter, message(mysqlType={}))[0].encodings is None
    assert events(adapter, message(mysqlType={"id": None, "v": 7}))[0].encodings == {"v": Encoding(STRING)}
    for number in range(2_000):
        events(adapter, message(mysqlType={f"x{number}": "int"}))


# -- order ----------------------------------------------------------------------------------------
def test_files_need_an_order() -> None:
    found = events(made(), message(), position=LINE)
    check(found, "no offset of a message to order by: give adapter_options sequence_by")
    adapter = made({"sequence_by": "_tidb.commitTs"})
    (event,) = events(adapter, message(_tidb={"commitTs": 429_918_007_904_436_226}))
    assert event.sequence == f"{429_918_007_904_436_226:020d}/{1:07d}"
    reason = "no value for sequence_by, or no number of at most 20 digits (_tidb.commitTs)"
    check(events(adapter, message()), reason)


def test_a_transaction_of_ticdc_that_moves_keys() -> None:
    """Key 1 becomes 3, then 2 becomes 1: all of it has one time, so that the place of the message decides."""
    rows = [("DELETE", "1", 8), ("DELETE", "2", 9), ("INSERT", "3", 10), ("INSERT", "1", 11)]
    for place, name in ((Position(offset=8), "_offset"), (LINE, "_row")):
        adapter = made({"sequence_by": ["_tidb.commitTs", name]})
        assert adapter.needs_rows == (name == "_row")
        places = [
            place._replace(offset=at) if place.row is None else place._replace(row=at) for *_, at in rows
        ]
        found = [
            events(adapter, message(kind, [{"id": key}], _tidb={"commitTs": 7}), position=at)[0]
            for (kind, key, _), at in zip(rows, places, strict=True)
        ]
        texts = [event.sequence for event in found]
        assert texts == sorted(set(texts)), name


def test_other_tables_are_left_out() -> None:
    for table, op in (("orders", "upsert"), ("Shop.Orders", "upsert"), ("shop.lines", "ignore")):
        assert events(made({"table": table}), message())[0].op == op
    assert events(made({"table": "lines"}), message("TRUNCATE", None, isDdl=True))[0].op == "ignore"


def test_the_order_of_texts_is_the_order_of_rows() -> None:
    chance = random.Random(20261126)
    adapter, texts = made(), dict[tuple[int, int], str]()
    for _ in range(600):
        offset = chance.choice([chance.randint(0, 30), chance.randint(0, 2**63 - 1)])
        if any(key[0] == offset for key in texts):
            continue
        count = chance.choice([1, 3, 12])
        record = message("UPDATE", [{"id": "2"}] * count, [{"id": "1"}] * count)
        for number, event in enumerate(events(adapter, record, position=Position(offset=offset))):
            texts[offset, number] = event.sequence
    assert sorted(texts, key=texts.__getitem__) == sorted(texts)
    assert len(set(map(len, texts.values()))) == 1


def test_damaged_messages_never_raise() -> None:
    """An event has a row, a place, and bytes where its types say so."""
    chance = random.Random(20261127)
    adapter, decode, count = made(), Decoder(), 0
    odd: tuple[Any, ...] = (
        *(None, True, 0, -1, 2**70, "7", "", "x", [], {}, [[]], [{}]),
        *({"id": {}}, {"v": "blob"}, [{"b": "\u0100"}]),
    )
    for number in range(8_000):
        kind = chance.choice(["INSERT", "UPDATE", "DELETE", "TRUNCATE", "QUERY"])
        record = message(kind, [{"id": str(n), "v": "a", "b": "\xe9"} for n in range(chance.randint(0, 3))])
        record["old"] = chance.choice([None, [{"id": "9"} for _ in record["data"]]])
        if number % 2:
            part = chance.choice([record, record["mysqlType"], *record["data"], *(record["old"] or [])])
            part[chance.choice(list(part))] = deepcopy(chance.choice(odd))
            value: Any = record
        else:
            value = decode(damaged(json.dumps(record).encode(), chance))
            if isinstance(value, Invalid):
                continue
        found = events(adapter, value)
        if isinstance(found, Invalid):
            assert found.reason
            continue
        for event in found:
            assert isinstance(event.row, dict)
            assert event.op == "ignore" or event.sequence.startswith(f"{BASE}/")
            if event.encodings is not None and event.encodings.get("b") == Encoding(BINARY):
                assert not isinstance(event.row.get("b"), str)
            count += 1
        places = [event.sequence for event in found]
        assert len(set(places)) == len(places)
    assert count > 3_000
