"""What all adapters share: names, operations, tables, keys, tombstones, and what is no object."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration
from delta_cdc.ingest.adapters.common import Keys, is_table, operations
from delta_cdc.ingest.adapters.members import Names, Remembered, member, path_of
from delta_cdc.ingest.record import Event, Invalid, Number
from delta_cdc.ingest.types import BINARY, DATE, LONG, STRING, decimal
from tests.support.adapters import IGNORED, LINE, check, events, made


# -- members --------------------------------------------------------------------------------------
def test_names_match_exactly_before_they_match_without_case() -> None:
    assert member({"OP": 1, "op": 2}, "op") == 2
    assert member({"OP": 1}, "op") == 1
    assert member({"ops": 1}, "op") is None
    names = Names(("op", "seq", "none"))
    for _ in range(2):
        assert names.of({"OP": 1, "op": 2, "SEQ": 3}) == ("op", "SEQ", None)
        assert names.values({"Op": 1, "OP": 2, "SEQ": 3}) == [1, 3, None]
    assert names.of({f"x{number}": 1 for number in range(200_000)}) == (None, None, None)


def test_what_is_remembered_is_made_once_and_has_a_limit() -> None:
    seen: list[tuple[str, ...]] = []
    remembered = Remembered(lambda texts: seen.append(texts) or len(seen))  # type: ignore[func-returns-value]
    assert [remembered.of(("a", "b")), remembered.of({"a": 1, "b": 2})] == [1, 1]
    for _ in range(2):
        remembered.of(("x" * 100_001,))
    assert len(seen) == 3
    for number in range(1_000):
        remembered.of((str(number),))
    assert remembered.of(("a", "b")) == 1_004


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("a_1", ("a_1",)),
        ("a.B", ("a", "B")),
        ("`a b`.`c``d`", ("a b", "c`d")),
        *((text, None) for text in ("a-b", "1", "a..b", "upper(a)", "", "``", "a.", "`a`b")),
    ],
)
def test_paths(text: str, wanted: Any) -> None:
    assert path_of(text) == wanted


# -- operations and tables ------------------------------------------------------------------------
def test_operations_stay_fast_for_absurd_values() -> None:
    operation = operations({"i" * 100: "upsert"}, {})
    assert operation("I" * 100) == "upsert"
    assert operation("i" * 10_000_000) == Invalid(f"unknown operation '{'i' * 40}'")


@pytest.mark.parametrize(
    ("name", "given", "wanted"),
    [
        ("Shop.Orders", ("orders", "SHOP"), True),
        ("shop.orders", ("orders", "other"), False),
        ("shop.orders", ("orders", None), False),
        ("db.shop.orders", ("orders", "shop"), True),
        ("orders", ("Orders", None), True),
        ("orders", ("lines", "shop"), False),
        ("orders", (None, None), False),
        ("orders", (["orders"], "shop"), False),
        # A header of a message may have a number.
        ("7", (7, None), True),
    ],
)
def test_tables(name: str, given: Any, wanted: bool) -> None:
    assert is_table(name)(*given) is wanted


# -- keys -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "one", "other", "differ"),
    [
        (LONG, 1, "1", False), (LONG, 1, 2, True), (STRING, "a", "b", True), (STRING, "1", 1, False),
        (decimal(5, 2), Number("1.0"), Number("1.00"), False),
        (DATE, date(2024, 1, 1), "2024-01-01", False), (DATE, "2024-01-01", "2024-01-02", True),
        (LONG, "x", "y", True), (LONG, "x", 1, True), (LONG, None, 1, False), (None, 1, "1", False),
        (None, 1, "2", True), (None, Decimal(1), 1, False), (None, Decimal("sNaN"), Decimal("sNaN"), False),
        (LONG, Decimal("sNaN"), Decimal("1e999999"), True), (BINARY, b"a", b"a", False),
        (BINARY, b"a", b"b", True),
    ],
)  # fmt: skip
def test_keys_are_compared_by_their_types(kind: Any, one: Any, other: Any, differ: bool) -> None:
    keys = Keys(("id",))
    keys.learn({} if kind is None else {"ID": kind})
    assert keys.differ({"id": one}, {"Id": other}) is differ
    assert not keys.differ({"id": one}, {})


# -- tombstones -----------------------------------------------------------------------------------
BY_OFFSET = {"sequence_by": "_offset", "tombstones": "delete"}
NO_KEY = "a message without a value, which tombstones makes a delete, has no key"
NO_TEXT = "the key of the message is no JSON, and no text"


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (b'{"id":7}', 7), (b'{"ID":7,"x":1}', 7),
        (b'{"schema":{"type":"struct"},"payload":{"id":7}}', 7),
        (b'{"schema":{"type":"int32"},"payload":7}', 7), (b'{"schema":null,"payload":"x"}', "x"), (b"7", 7),
        (b'"x"', "x"), (b"some text", "some text"), (b"007", "007"), ("ünï".encode(), "ünï"), ({"id": 7}, 7),
        (7, 7), (b"null", None),
        # With the prefix of a registry.
        (b'\0\0\0\0\7{"id":7}', 7), (b'\0\0\0\0\0\0\0\0\7{"id":7}', 7), (b'\0\0\0\0\7"xy"', "xy"),
        (b'\0\0\0\0\7{"schema":{},"payload":{"id":7}}', 7), (b"\0\0\0\0\0071234", 1234),
    ],
)  # fmt: skip
def test_the_key_of_a_tombstone(key: Any, wanted: Any) -> None:
    assert events(made("plain", BY_OFFSET), None, key) == [Event("delete", {"id": wanted}, 42)]


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        (None, NO_KEY), (b"", NO_KEY), (b'{"x":7}', "the key of the message has no id"),
        (b'{"schema":1,"payload":{"x":7}}', "the key of the message has no id"),
        (b'{"id":7', NO_TEXT), (b' "x', NO_TEXT), (b"\x00\x00\x00\x07", NO_TEXT), (b"\xff\xfe", NO_TEXT),
        # Numbers of 8 bytes, of which the last three look like a text after a prefix.
        (b"\0\0\0\1\x00123", NO_TEXT), (b'\0\0\0\1\0"a"', NO_TEXT), (b"\0\0\0\0\7abcd", NO_TEXT),
        (b"[7]", "the key of the message is a list, not an object of the key columns"),
    ],
)  # fmt: skip
def test_a_tombstone_without_a_key(key: Any, reason: str) -> None:
    check(events(made("plain", BY_OFFSET), None, key), reason)


def test_tombstones_of_several_keys() -> None:
    adapter = made("plain", BY_OFFSET, keys=("schema", "payload"))
    key = b'{"schema":1,"payload":2}'
    assert events(adapter, None, key) == [Event("delete", {"schema": 1, "payload": 2}, 42)]
    check(
        events(adapter, None, b"7"), "the key of the message is one value, and the keys are schema, payload"
    )


#: Adapter, options that make tombstones deletes, the sequence of a delete.
ORDERED = [
    ("plain", {"sequence_by": "_offset"}, 42),
    ("plain", {"sequence_by": ["_OFFSET", "_offset"]}, (42, 42)),
    ("plain", {"sequence_by": "_offset", "old_keys": {"id": "old"}}, (42, 1)),
    ("dms", {}, f"1/{42:020d}/1"),
    ("maxwell", {"sequence_by": "_offset"}, f"{42:020d}/1"),
    ("canal", {}, f"{42:020d}/{1:07d}"),
]


@pytest.mark.parametrize(("name", "options", "sequence"), ORDERED)
def test_tombstones_as_deletes(name: str, options: dict[str, Any], sequence: Any) -> None:
    adapter = made(name, {**options, "tombstones": "delete"})
    assert events(adapter, None, b'{"id":7}') == [Event("delete", {"id": 7}, sequence)]
    # Records of files are blank lines.
    assert events(adapter, None, b'{"id":7}', LINE) == IGNORED
    assert events(made(name, options), None, b'{"id":7}') == IGNORED
    with pytest.raises(InvalidConfiguration, match="did you mean 'delete'"):
        made(name, {**options, "tombstones": "deletes"})


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain", {"sequence_by": "ts"}),
        ("plain", {"sequence_by": ["_offset", "ts"]}),
        ("dms", {"change_sequence": "s"}),
        ("dms", {"timestamp_column": "s"}),
        ("dms", {"sequence_by": "metadata.timestamp"}),
        ("maxwell", {}),
        ("canal", {"sequence_by": "es"}),
    ],
)
def test_an_order_that_a_tombstone_does_not_have(name: str, options: dict[str, Any]) -> None:
    found = events(made(name, {**options, "tombstones": "delete"}), None, b"7")
    check(found, "a message without a value, which tombstones makes a delete, has nothing that orders it")


def test_tombstones_without_keys_are_ignored() -> None:
    insert_only = made("plain", {"tombstones": "delete", "sequence_by": "_offset"}, keys=(), insert_only=True)
    assert events(insert_only, None, b"7") == IGNORED
    # Nothing orders one of GoldenGate.
    assert events(made("goldengate"), None, b"7") == IGNORED


# -- all adapters ---------------------------------------------------------------------------------
ALL: dict[str, dict[str, Any]] = {
    "plain": {"sequence_by": "ts"},
    "mongodb": {"document": "d"},
    **{name: {} for name in ("debezium", "dms", "goldengate", "maxwell", "canal")},
}


@pytest.mark.parametrize("name", ALL)
def test_all_adapters_have_what_the_engine_asks_for(name: str) -> None:
    adapter = made(name, ALL[name])
    assert isinstance(adapter.reads, frozenset)
    assert (adapter.expressions, adapter.timestamp_expression, adapter.has_index) == ((), None, False)
    assert adapter.is_connect == (name == "debezium")
    assert adapter.needs_rows == (name == "dms")
    assert events(adapter, None, position=LINE) == IGNORED
    for value in (1, "x", [1], True, b"x"):
        assert events(adapter, value) == Invalid("not JSON: not exactly one whole object")
    if name != "debezium":
        assert adapter.member_types == {}


@pytest.mark.parametrize("name", ["dms", "maxwell", "canal", "mongodb"])
def test_orders_by_members_and_offsets(name: str) -> None:
    """``_offset`` is the place of a message, ``_row`` that of a line, and the others are members."""
    assert made(name, {**ALL[name], "sequence_by": ["a.b", "_row"]}).needs_rows
    assert not made(name, {**ALL[name], "sequence_by": "_offset"}).needs_rows
    with pytest.raises(InvalidConfiguration, match="name members of the messages"):
        made(name, {**ALL[name], "sequence_by": "upper(a)"})
    with pytest.raises(InvalidConfiguration, match="name members of the messages"):
        made(name, {**ALL[name], "sequence_by": "a . b"})
    with pytest.raises(InvalidConfiguration, match="these messages are JSON"):
        made(name, {**ALL[name], **({"envelope": True} if name == "dms" else {})}, format="csv")


def test_only_programs_that_write_avro_are_read_from_it() -> None:
    for name in ("maxwell", "canal"):
        with pytest.raises(InvalidConfiguration, match="these messages are JSON"):
            made(name, ALL[name], format="avro")
    for name in ("dms", "mongodb"):
        made(name, ALL[name], format="avro")
