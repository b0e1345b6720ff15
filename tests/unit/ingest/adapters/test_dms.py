"""The adapter ``dms``: rows of files in S3, and messages of Kinesis and Kafka."""

from __future__ import annotations

import json
import random
import re
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delta_cdc.ingest.record import Event, Invalid, Position
from delta_cdc.ingest.records.json import Decoder
from delta_cdc.ingest.types import LONG, STRING
from tests.support import adapters
from tests.support.adapters import IGNORED, LINE, check, events
from tests.support.mutated import damaged

LOAD, LATER_LOAD = "s3a://b/db/t/LOAD00000001.csv", "s3a://b/db/t/LOAD0000000A.csv"
CHANGES, LATER = "s3a://b/db/t/20240131-120000123.csv", "s3a://b/db/t/2024/02/20240201-000000001.csv.gz"
T1, T2 = "2024-01-31 11:59:59.000001", "2024-01-31 11:59:59.000002"
NO_OP = "no value for Op, and no file of a full load"
NO_FILE = "no value for the file, or no file to order by"
made = partial(adapters.made, "dms")


def of_row(adapter: Any, value: Any, file: str | None = CHANGES, row: int | None = 0) -> Any:
    return events(adapter, value, position=Position(file, row))


# -- rows of files --------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "file", "wanted"),
    [
        ({"id": 1}, LOAD, ["upsert"]), ({"Op": None, "id": 1}, LATER_LOAD, ["upsert"]),
        ({"Op": " ", "id": 1}, LOAD, ["upsert"]), ({"Op": "I", "id": 1}, LOAD, ["upsert"]),
        ({"Op": "I", "id": 1}, CHANGES, ["upsert"]), ({"Op": "U", "id": 1}, LATER, ["upsert"]),
        ({"Op": "D", "id": 1}, CHANGES, ["delete"]), ({"op": "d", "id": 1}, CHANGES, ["delete"]),
        ({"id": 1}, CHANGES, NO_OP), ({"id": 1}, "/in/LOADER.csv", ["upsert"]),
        ({"id": 1}, "/in/LOADS.csv", NO_OP), ({"id": 1}, "/in/LOAD/1.csv", NO_OP),
        ({"id": 1}, "/in/LOAD.csv", NO_OP),
        ({"Op": "X", "id": 1}, LOAD, "unknown operation 'X'"),
        ({"Op": "I", "id": 1}, None, NO_FILE),
        ({"Op": "I", "id": 1}, f"/in/{'x' * 33}.csv", NO_FILE),
        ({"Op": "I", "id": 1}, "/in/.csv", NO_FILE),
    ],
)  # fmt: skip
def test_operations_of_rows(value: dict[str, Any], file: str | None, wanted: Any) -> None:
    found = of_row(made(), value, file)
    if isinstance(found, list):
        assert [event.row for event in found] == [{"id": 1}]
        found = [event.op for event in found]
    check(found, wanted)


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
    found = [of_row(adapter, value, file, row)[0] for value, file, row in cases]
    texts = [event.sequence for event in found]
    assert texts == sorted(texts)
    assert len({len(text) for text in texts}) == 1
    assert texts[3] == f"1/{T1}/20240131-120000123...../{9:012d}".replace(".....", "." * 14)
    assert found[3].source_timestamp == 1_706_702_399_000_001
    assert found[3].row == {"id": 1, "at": T1}
    for value, row, reason in (
        ({"Op": "I", "id": 1}, 0, "no value for at, or no file to order by"),
        ({"Op": "I", "id": 1, "at": T1}, None, "no value for at, or no file to order by"),
        ({"Op": "I", "id": 1, "at": "x"}, 0, "column at is no timestamp"),
    ):
        check(of_row(adapter, value, row=row), reason)
    assert adapter.needs_rows


def test_a_change_sequence_goes_before_all() -> None:
    first, second = "20240131120000120000000000000000009", "20240131120000120000000000000000010"
    adapter = made({"change_sequence": "seq"})
    assert not adapter.needs_rows
    texts = [
        of_row(adapter, {"id": 1, "seq": "x"}, LOAD)[0].sequence,
        of_row(adapter, {"Op": "U", "id": 1, "seq": first}, LATER)[0].sequence,
        of_row(adapter, {"Op": "U", "id": 1, "SEQ": int(second)}, CHANGES)[0].sequence,
    ]
    assert texts == [f"0/{'0' * 35}", f"1/{first}", f"1/{second}"]
    lacking = Invalid("no value for seq, or no whole number in it")
    for odd in (None, "n/a", "1" * 36, True, ["1"]):
        assert of_row(adapter, {"Op": "U", "seq": odd}) == lacking
    assert of_row(adapter, {"Op": "U", "id": 1, "seq": first})[0].row == {"id": 1}
    assert adapter.describes("SEQ")
    assert not adapter.describes("at")


def test_the_row_before_an_update_in_columns_with_a_prefix() -> None:
    adapter = made({"before_image_prefix": "BI_", "change_sequence": "seq"})
    adapter.sequence({"id": LONG}, None)
    old, new = of_row(adapter, {"Op": "U", "seq": 7, "id": "2", "v": None, "BI_id": 1, "bi_v": "a", "BI_": 3})
    base = f"1/{7:035d}"
    assert old == Event("delete", {"id": 1, "v": "a", "BI_": 3}, f"{base}/0")
    assert new == Event("upsert", {"id": "2", "v": None, "BI_": 3}, f"{base}/1", whole=True)
    (same,) = of_row(adapter, {"Op": "U", "seq": 8, "id": "2", "BI_id": 2})
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
    ("delete, its key before", message("delete", {}, {"id": 1}),
     [Event("delete", {"id": 1}, f"{BASE}/1", AT)]),
    ("update", message("update", before={}), [Event("upsert", ROW, f"{BASE}/1", AT)]),
    ("update of a value", message("update", before={"id": "1", "v": "z"}),
     [Event("upsert", ROW, f"{BASE}/1", AT)]),
    ("commit's time", message(**{"commit-timestamp": "1970-01-01T00:00:01Z"}),
     [Event("upsert", ROW, f"{BASE}/1", 1_000_000)]),
    ("key change", message("update", {"id": 2, "v": None}, {"id": 1, "w": "w"}),
     [Event("delete", {"id": 1, "v": None, "w": "w"}, f"{BASE}/0", AT),
     Event("upsert", {"id": 2, "v": None, "w": None}, f"{BASE}/1", AT, whole=True)]),
    ("only the row before has a column", message("update", {"id": 1}, {"ID": 1, "V": "a"}),
     [Event("upsert", {"id": 1, "V": None}, f"{BASE}/1", AT)]),
    ("neither row has a column", message("update", {"id": 1}, {"id": 1}),
     [Event("upsert", {"id": 1}, f"{BASE}/1", AT)]),
    ("control", message("create-table", **{"record-type": "control"}), IGNORED),
    ("control without data", {"metadata": {"record-type": "control"}}, IGNORED),
    ("unknown operation", message("merge"), "unknown operation 'merge'"),
    ("no operation", message(None), "unknown operation ''"),
    ("no data", message(data=None), "data is no object"),
    ("data that is text", message(data="{}"), "data is no object"),
    ("an old row that is a list", message(before=[1]), "before-image is no object"),
]  # fmt: skip


@pytest.mark.parametrize("envelope", [False, True])
@pytest.mark.parametrize(("record", "wanted"), [case[1:] for case in MESSAGES], ids=[c[0] for c in MESSAGES])
def test_messages(record: dict[str, Any], wanted: Any, envelope: bool) -> None:
    adapter = made({"envelope": envelope})
    assert adapter.sequence({"id": LONG}, None).type == STRING
    check(events(adapter, record), wanted)


def test_a_message_is_found_by_its_members_unless_it_must_be_one() -> None:
    row = {"Op": "I", "id": 1, "metadata": {"record-type": "data"}}
    (event,) = of_row(made(), row)
    assert event.row == {"id": 1, "metadata": {"record-type": "data"}}
    must = made({"envelope": True})
    check(events(must, row), "unknown operation ''")
    check(events(must, {"id": 1}), "metadata is no object")
    check(events(made(), {"id": 1, "metadata": {}}), NO_OP)
    assert not must.describes("Op")
    # No column is lost that has no name.
    assert of_row(made(), {"Op": "I", "id": 1, "": T1}) == [
        Event("upsert", {"id": 1, "": T1}, f"1/20240131-120000123{'.' * 14}/{0:012d}")
    ]


def test_the_prefix_of_the_row_before_in_messages() -> None:
    record = message("update", {"id": 2, "v": "b", "BI_id": 1, "BI_v": "a"})
    old, new = events(made({"before_image_prefix": "BI_"}), record)
    assert (old.row, new.row) == ({"id": 1, "v": "a"}, {"id": 2, "v": "b"})


@pytest.mark.parametrize(
    ("table", "op"),
    [("orders", "upsert"), ("SHOP.Orders", "upsert"), ("shop.lines", "ignore"), ("s.orders", "ignore")],
)
def test_messages_of_other_tables_are_left_out(table: str, op: str) -> None:
    assert [event.op for event in events(made({"table": table}), message())] == [op]
    assert events(made({"table": table}), message("create-table", **{"record-type": "control"})) == IGNORED


def test_messages_in_files_need_an_order() -> None:
    check(
        events(made(), message(), position=LINE),
        "no offset of a message to order by: give adapter_options sequence_by",
    )
    by = ["metadata.commit-timestamp", "metadata.transaction-record-id"]
    adapter = made({"sequence_by": by})
    assert not adapter.needs_rows
    given = {"commit-timestamp": "2024-01-31T11:59:59.5Z", "transaction-record-id": 7}
    (event,) = events(adapter, message(**given))
    assert event.sequence == f"1/2024-01-31 11:59:59.500000/{7:020d}/1"
    for load, time in ((message("load"), "2024-01-31 11:59:59.000002"), (message("load", timestamp=7), None)):
        (event,) = events(adapter, load)
        assert event.sequence == f"0/{time or '0000-00-00 00:00:00.000000'}/1"
    for odd in ({}, {**given, "transaction-record-id": "x"}, {**given, "commit-timestamp": 7}):
        check(
            events(adapter, message(**odd)),
            f"no value for sequence_by, or no number of at most 20 digits ({', '.join(by)})",
        )
    # Rows of files have the same order, if the user says it.
    adapter = made({"sequence_by": "n"})
    assert of_row(adapter, {"id": 1, "n": 7}, LOAD)[0].sequence == f"0/{7:020d}"
    assert of_row(adapter, {"Op": "U", "id": 1, "n": 7})[0].sequence == f"1/{7:020d}"


def test_the_order_of_messages_in_files_that_the_page_names() -> None:
    """MySQL's times are whole seconds, and the numbers of records begin again in each transaction."""
    page = (Path(__file__).parents[4] / "docs/reference/adapters/dms.md").read_text()
    (block,) = [block for block in re.findall(r"```python\n(.*?)```", page, re.S) if "sequence_by" in block]
    names: dict[str, Any] = {}
    exec(block, names)
    adapter = made(names["adapter_options"])
    members = ("commit-timestamp", "transaction-id", "transaction-record-id")
    places = [
        ("2024-01-31T12:00:00Z", 1_139, 5),
        ("2024-01-31T12:00:00Z", 1_140, 1),
        ("2024-01-31T12:00:01Z", 9, 1),
    ]
    records = [message(**dict(zip(members, place, strict=True))) for place in places]
    texts = [events(adapter, record, position=LINE)[0].sequence for record in records]
    assert texts == sorted(set(texts))


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
        for event in () if isinstance(found := events(adapter, value), Invalid) else found:
            assert isinstance(event.row, dict)
            assert event.op == "ignore" or event.sequence.startswith(("0/", "1/"))
            events_count += 1
    assert events_count > 2_000
