"""The adapter ``dms`` on decoded records: rows of files, and messages of Kinesis and Kafka."""

from __future__ import annotations

import json
import random
from copy import deepcopy
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest import adapters
from delta_cdc.ingest.record import Event, Invalid, Position, Record
from delta_cdc.ingest.records.json import Decoder
from delta_cdc.ingest.types import LONG, STRING
from tests.support.mutated import damaged

LOAD, LATER_LOAD = "s3a://b/db/t/LOAD00000001.csv", "s3a://b/db/t/LOAD0000000A.csv"
CHANGES, LATER = "s3a://b/db/t/20240131-120000123.csv", "s3a://b/db/t/2024/02/20240201-000000001.csv.gz"
T1, T2 = "2024-01-31 11:59:59.000001", "2024-01-31 11:59:59.000002"
MESSAGE = Position(None, None, "t", 0, 42)
NO_FILE = Invalid("no value for the file, or no file to order by")


def made(options: dict[str, Any] | None = None, **more: Any) -> Any:
    facts = {"keys": ("id",), "format": "json", **more}
    return adapters.named("dms", adapters.check("dms", options or {}, **facts), **facts)


def events(adapter: Any, value: Any, file: str | None = CHANGES, row: int | None = 0) -> Any:
    return adapter.events(Record(value, Position(file, row)))


# -- rows of files --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "file", "wanted"),
    [
        ({"id": 1}, LOAD, "upsert"),
        ({"Op": None, "id": 1}, LATER_LOAD, "upsert"),
        ({"Op": " ", "id": 1}, LOAD, "upsert"),
        ({"Op": "I", "id": 1}, LOAD, "upsert"),
        ({"Op": "I", "id": 1}, CHANGES, "upsert"),
        ({"Op": "U", "id": 1}, LATER, "upsert"),
        ({"Op": "D", "id": 1}, CHANGES, "delete"),
        ({"op": "d", "id": 1}, CHANGES, "delete"),
        ({"id": 1}, CHANGES, Invalid("no value for Op, and no file of a full load")),
        ({"id": 1}, "/in/LOADER.csv", "upsert"),
        ({"id": 1}, "/in/LOADS.csv", Invalid("no value for Op, and no file of a full load")),
        ({"id": 1}, "/in/LOAD/1.csv", Invalid("no value for Op, and no file of a full load")),
        ({"id": 1}, "/in/LOAD.csv", Invalid("no value for Op, and no file of a full load")),
        ({"Op": "X", "id": 1}, LOAD, Invalid("unknown operation 'X'")),
        ({"Op": "I", "id": 1}, None, NO_FILE),
        ({"Op": "I", "id": 1}, f"/in/{'x' * 33}.csv", NO_FILE),
        ({"Op": "I", "id": 1}, "/in/.csv", NO_FILE),
    ],
)
def test_operations_of_rows(value: dict[str, Any], file: str | None, wanted: Any) -> None:
    found = events(made(), value, file)
    if isinstance(wanted, Invalid):
        assert found == wanted
    else:
        assert [(event.op, event.row) for event in found] == [(wanted, {"id": 1})]


def test_the_rows_of_a_file_are_in_its_order() -> None:
    adapter = made({"timestamp_column": "at"})
    cases = [
        ({"id": 1, "at": T2}, LOAD, 0),
        ({"id": 1, "at": T1}, LOAD, 5),
        ({"id": 1, "at": T1}, LATER_LOAD, 0),
        ({"Op": "I", "id": 1, "at": T1}, CHANGES, 9),
        ({"Op": "I", "id": 1, "at": T1}, CHANGES, 10),
        ({"Op": "I", "id": 1, "at": T1}, LATER, 0),
        ({"Op": "I", "id": 1, "at": T2}, CHANGES, 1),
    ]
    found = [events(adapter, value, file, row)[0] for value, file, row in cases]
    texts = [event.sequence for event in found]
    assert texts == sorted(texts)
    assert len({len(text) for text in texts}) == 1
    assert texts[3] == f"1/{T1}/20240131-120000123...../{9:012d}".replace(".....", "." * 14)
    assert found[3].source_timestamp == 1_706_702_399_000_001
    assert found[3].row == {"id": 1, "at": T1}
    assert events(adapter, {"Op": "I", "id": 1}) == Invalid("no value for at, or no file to order by")
    assert events(adapter, {"Op": "I", "id": 1, "at": "x"}) == Invalid("column at is no timestamp")
    assert events(adapter, {"Op": "I", "at": T1}, row=None) == Invalid(
        "no value for at, or no file to order by"
    )
    assert adapter.needs_rows


def test_a_change_sequence_goes_before_all() -> None:
    first, second = "20240131120000120000000000000000009", "20240131120000120000000000000000010"
    adapter = made({"change_sequence": "seq"})
    assert not adapter.needs_rows
    texts = [
        events(adapter, {"id": 1, "seq": "x"}, LOAD)[0].sequence,
        events(adapter, {"Op": "U", "id": 1, "seq": first}, LATER)[0].sequence,
        events(adapter, {"Op": "U", "id": 1, "SEQ": int(second)}, CHANGES)[0].sequence,
    ]
    assert texts == [f"0/{'0' * 35}", f"1/{first}", f"1/{second}"]
    lacking = Invalid("no value for seq, or no whole number in it")
    for odd in (None, "n/a", "1" * 36, True, ["1"]):
        assert events(adapter, {"Op": "U", "seq": odd}) == lacking
    assert events(adapter, {"Op": "U", "id": 1, "seq": first})[0].row == {"id": 1}
    assert adapter.describes("SEQ")
    assert not adapter.describes("at")


def test_the_row_before_an_update_in_columns_with_a_prefix() -> None:
    adapter = made({"before_image_prefix": "BI_", "change_sequence": "seq"})
    adapter.sequence({"id": LONG}, None)
    old, new = events(adapter, {"Op": "U", "seq": 7, "id": "2", "v": None, "BI_id": 1, "bi_v": "a", "BI_": 3})
    base = f"1/{7:035d}"
    assert old == Event("delete", {"id": 1, "v": "a", "BI_": 3}, f"{base}/0")
    assert new == Event("upsert", {"id": "2", "v": None, "BI_": 3}, f"{base}/1", whole=True)
    (same,) = events(adapter, {"Op": "U", "seq": 8, "id": "2", "BI_id": 2})
    assert same == Event("upsert", {"id": "2"}, f"1/{8:035d}/1")
    assert adapter.reads == {"op", "seq", "bi_id", "id"}
    assert adapter.describes("BI_V")
    assert not made().describes("BI_V")


# -- messages -------------------------------------------------------------------------------------
def message(operation: Any = "insert", data: Any = ..., before: Any = ..., **metadata: Any) -> dict[str, Any]:
    value: dict[str, Any] = {
        "data": {"id": 1, "v": "a"} if data is ... else data,
        "metadata": {
            "timestamp": "2024-01-31T11:59:59.000002Z",
            "record-type": "data",
            "operation": operation,
            "partition-key-type": "schema-table",
            "schema-name": "shop",
            "table-name": "orders",
            "transaction-id": 87_978_110_091_475,
            **metadata,
        },
    }
    if before is not ...:
        value["before-image"] = before
    return value


LOADED, BASE = f"0/{42:020d}", f"1/{42:020d}"
ROW = {"id": 1, "v": "a"}
AT = 1_706_702_399_000_002
MESSAGES: list[tuple[str, dict[str, Any], Any]] = [
    ("insert", message(), [Event("upsert", ROW, f"{BASE}/1", AT)]),
    ("load", message("load"), [Event("upsert", ROW, f"{LOADED}/1", AT)]),
    ("load, in capitals", message("LOAD"), [Event("upsert", ROW, f"{LOADED}/1", AT)]),
    ("delete", message("delete", {"id": 1}), [Event("delete", {"id": 1}, f"{BASE}/1", AT)]),
    (
        "delete, its key before",
        message("delete", {}, {"id": 1}),
        [Event("delete", {"id": 1}, f"{BASE}/1", AT)],
    ),
    ("update", message("update", before={}), [Event("upsert", ROW, f"{BASE}/1", AT)]),
    (
        "update of a value",
        message("update", before={"id": "1", "v": "z"}),
        [Event("upsert", ROW, f"{BASE}/1", AT)],
    ),
    (
        "commit's time",
        message(**{"commit-timestamp": "1970-01-01T00:00:01Z"}),
        [Event("upsert", ROW, f"{BASE}/1", 1_000_000)],
    ),
    (
        "key change",
        message("update", {"id": 2, "v": None}, {"id": 1, "w": "w"}),
        [
            Event("delete", {"id": 1, "v": None, "w": "w"}, f"{BASE}/0", AT),
            Event("upsert", {"id": 2, "v": None, "w": "w"}, f"{BASE}/1", AT, whole=True),
        ],
    ),
    ("control", message("create-table", **{"record-type": "control"}), [Event("ignore", {})]),
    ("control without data", {"metadata": {"record-type": "control"}}, [Event("ignore", {})]),
    ("unknown operation", message("merge"), Invalid("unknown operation 'merge'")),
    ("no operation", message(None), Invalid("unknown operation ''")),
    ("no data", message(data=None), Invalid("data is no object")),
    ("data that is text", message(data="{}"), Invalid("data is no object")),
    ("an old row that is a list", message(before=[1]), Invalid("before-image is no object")),
]


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize(("record", "wanted"), [case[1:] for case in MESSAGES], ids=[c[0] for c in MESSAGES])
def test_messages(record: dict[str, Any], wanted: Any, envelope: bool) -> None:
    adapter = made({"envelope": envelope})
    assert adapter.sequence({"id": LONG}, None).type == STRING
    found = adapter.events(Record(deepcopy(record), MESSAGE))
    assert (found if isinstance(found, Invalid) else list(found)) == wanted


def test_a_message_is_found_by_its_members_unless_it_must_be_one() -> None:
    row = {"Op": "I", "id": 1, "metadata": {"record-type": "data"}}
    (event,) = events(made(), deepcopy(row))
    assert event.row == {"id": 1, "metadata": {"record-type": "data"}}
    assert events(made({"envelope": True}), deepcopy(row)) == Invalid("unknown operation ''")
    assert events(made({"envelope": True}), {"id": 1}) == Invalid("metadata is no object")
    assert events(made(), {"id": 1, "metadata": {}}) == Invalid("no value for Op, and no file of a full load")
    assert not made({"envelope": True}).describes("Op")


def test_the_prefix_of_the_row_before_in_messages() -> None:
    adapter = made({"before_image_prefix": "BI_"})
    record = message("update", {"id": 2, "v": "b", "BI_id": 1, "BI_v": "a"})
    old, new = adapter.events(Record(record, MESSAGE))
    assert (old.row, new.row) == ({"id": 1, "v": "a"}, {"id": 2, "v": "b"})


def test_messages_of_other_tables_are_left_out() -> None:
    for table, found in (
        ("orders", "upsert"),
        ("SHOP.Orders", "upsert"),
        ("shop.lines", "ignore"),
        ("s.orders", "ignore"),
    ):
        assert made({"table": table}).events(Record(message(), MESSAGE))[0].op == found


def test_messages_in_files_need_an_order() -> None:
    no_offset = Invalid("no offset of a message to order by: give adapter_options sequence_by")
    assert events(made(), message()) == no_offset
    by = ["metadata.commit-timestamp", "metadata.transaction-record-id"]
    adapter = made({"sequence_by": by})
    assert not adapter.needs_rows
    given = {"commit-timestamp": "2024-01-31T11:59:59.5Z", "transaction-record-id": 7}
    (event,) = events(adapter, message(**given))
    assert event.sequence == f"1/2024-01-31 11:59:59.500000/{7:020d}/1"
    (loaded,) = events(adapter, message("load"))
    assert loaded.sequence == "0/2024-01-31 11:59:59.000002/1"
    lacking = Invalid(f"no value for sequence_by, or a text that is no number ({', '.join(by)})")
    assert events(adapter, message()) == lacking
    assert events(adapter, message(**{**given, "transaction-record-id": "x"})) == lacking
    assert events(adapter, message(**{**given, "commit-timestamp": 7})) == lacking
    assert made({"sequence_by": ["metadata.timestamp", "_row"]}).needs_rows


def test_tombstones() -> None:
    (event,) = made({"tombstones": "delete"}).events(Record(None, MESSAGE, key=b'{"id":1}'))
    assert event == Event("delete", {"id": 1}, f"{BASE}/1")
    for other in ("change_sequence", "timestamp_column"):
        found = made({"tombstones": "delete", other: "s"}).events(Record(None, MESSAGE, key=b"1"))
        assert isinstance(found, Invalid)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"sequence_by": "metadata . timestamp"}, "name members of the messages"),
        ({"sequence_by": "upper(a)"}, "name members of the messages"),
        ({"sequence_by": "a", "change_sequence": "b"}, "sequence_by are both given"),
        ({"tombstones": "x"}, "is one of delete, ignore"),
        ({"envelope": "yes"}, "true or false"),
    ],
)
def test_options(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidConfiguration, match=reason):
        made(options)
    with pytest.raises(InvalidConfiguration, match="these messages are JSON"):
        made({"envelope": True}, format="csv")


def test_damaged_messages_never_raise() -> None:
    chance = random.Random(20261126)
    adapter, decode, events_count = made({"before_image_prefix": "BI_"}), Decoder(), 0
    odd: tuple[Any, ...] = (None, True, 0, 10**30, "", "x", [], {}, [{}], {"id": {"a": 1}})
    for number in range(6_000):
        record = message(
            chance.choice(["load", "insert", "update", "delete"]), before={"id": chance.choice([1, 2])}
        )
        if number % 2:
            part = chance.choice([record, record["data"], record["metadata"]])
            part[chance.choice(list(part))] = deepcopy(chance.choice(odd))
            value: Any = record
        else:
            line = damaged(json.dumps(record).encode(), chance)
            value = decode(line)
            if isinstance(value, Invalid):
                continue
        found = adapter.events(Record(value, MESSAGE))
        if isinstance(found, Invalid):
            assert found.reason
            continue
        for event in found:
            assert isinstance(event, Event)
            assert isinstance(event.row, dict)
            assert event.op == "ignore" or event.sequence.startswith(("0/", "1/"))
            events_count += 1
    assert events_count > 2_000
