"""The adapter ``plain`` on decoded records, and what all adapters share; damaged records against a model."""

from __future__ import annotations

import random
from copy import deepcopy
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest

from delta_cdc.core.errors import InvalidConfiguration, InvalidExpression
from delta_cdc.ingest import adapters
from delta_cdc.ingest.adapters.common import Keys, is_table, operations
from delta_cdc.ingest.adapters.members import Names, member
from delta_cdc.ingest.record import Event, Invalid, Number, Position, Record
from delta_cdc.ingest.records.json import Decoder
from delta_cdc.ingest.types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    Type,
    array,
    decimal,
    struct,
)
from tests.support.mutated import COLUMNS, IGNORED, KINDS, QUARANTINED, Kind, damaged

if TYPE_CHECKING:
    from delta_cdc.ingest.record import Adapter

FIRST = Position("/in/f.json", 7)
MESSAGE = Position(None, None, "t", 0, 42)
LACKING = Invalid("no value for sequence_by, or a text that is no number (ts)")


def made(options: dict[str, Any], name: str = "plain", **more: Any) -> Adapter:
    facts = {"keys": ("id",), "format": "json", "insert_only": False, **more}
    typed = facts.pop("typed", frozenset())
    checked = adapters.check(name, options, **facts)
    return adapters.named(name, checked, declared=typed, **facts)


def events(adapter: Adapter, value: Any, **more: Any) -> Any:
    return adapter.events(Record(value, more.pop("position", FIRST), **more))


def sequences(adapter: Adapter, found: Any, types: dict[str, Type], log: Type | None = None) -> list[Any]:
    make = adapter.sequence(types, log).value
    return [make(event.sequence) for event in found]


# -- operations -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("I", "upsert"),
        ("insert", "upsert"),
        ("UpDaTe", "upsert"),
        (" d ", "delete"),
        ("DELETE", "delete"),
        ("UO", "ignore"),
        (" UO", "ignore"),
        ("TR", "truncate"),
        (1, "delete"),
        (True, "truncate"),
        ("i", "ignore"),
        ("uo", Invalid("unknown operation 'uo'")),
        ("", Invalid("unknown operation ''")),
        (None, Invalid("unknown operation ''")),
        ("\ti", Invalid("unknown operation '\ti'")),
        (Number("1.0"), Invalid("unknown operation '1.0'")),
        ("x" * 50, Invalid(f"unknown operation '{'x' * 40}'")),
        ({"a": [1]}, Invalid("unknown operation '{\"a\":[1]}'")),
    ],
)
def test_operations(value: Any, wanted: Any) -> None:
    """The user's match exactly and take precedence, the usual ones match without regard to case."""
    given = {"UO": "ignore", "TR": "truncate", "1": "delete", "true": "truncate", "i": "ignore"}
    adapter = made({"sequence_by": "ts", "operation_column": "op", "operations": given})
    found = events(adapter, {"op": value, "ts": 1, "id": 1})
    assert (found if isinstance(wanted, Invalid) else found[0].op) == wanted


def test_a_record_without_an_operation_column_is_an_upsert() -> None:
    assert events(made({"sequence_by": "ts"}), {"ts": 1, "id": 1}) == (
        Event("upsert", {"ts": 1, "id": 1}, 1),
    )
    adapter = made({"sequence_by": "ts", "operation_column": "op"})
    assert events(adapter, {"ts": 1, "id": 1}) == Invalid("unknown operation ''")


def test_what_describes_the_event_is_no_column() -> None:
    options = {
        "sequence_by": "ts",
        "operation_column": "Op",
        "columns_to_update": "changed",
        "old_keys": {"id": "old_id"},
    }
    adapter = made(options)
    (event,) = events(
        adapter, {"op": "I", "OP": "x", "ts": 1, "id": 1, "Changed": None, "old_ID": None, "v": 2}
    )
    assert event.row == {"OP": "x", "ts": 1, "id": 1, "v": 2}
    assert [name for name in ("op", "CHANGED", "Old_id", "ts", "id", "v") if adapter.describes(name)] == [
        "op",
        "CHANGED",
        "Old_id",
    ]


def test_names_match_exactly_before_they_match_without_case() -> None:
    assert member({"OP": 1, "op": 2}, "op") == 2
    assert member({"OP": 1}, "op") == 1
    assert member({"ops": 1}, "op") is None
    names = Names(("op", "seq", "none"))
    for _ in range(2):
        assert names.of({"OP": 1, "op": 2, "SEQ": 3}) == ("op", "SEQ", None)
    for number in range(3_000):
        assert names.of({f"x{number}": 1}) == (None, None, None)


def test_columns_that_a_parquet_reader_must_bring() -> None:
    options = {
        "sequence_by": ["TS", "source.lsn", "_row", "_offset"],
        "operation_column": "op",
        "columns_to_update": "changed",
        "old_keys": {"id": "old_id"},
        "source_timestamp": "At",
    }
    assert made(options).reads == {"op", "changed", "old_id", "id", "ts", "source", "at"}
    assert made({"sequence_by": "ts"}).reads == {"ts"}


# -- order ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("texts", "expressions", "needs_rows"),
    [
        (["ts"], (), False),
        (["ts", "_row"], (), True),
        (["_ROW"], (), True),
        (["a_row"], (), False),
        (["source.lsn"], (), False),
        (["`a b`.`c``d`"], (), False),
        (["upper(ts)"], ("upper(ts)",), False),
        (["ts", "b * 1000 + _row"], ("ts", "b * 1000 + _row"), True),
        (["a-b"], ("a-b",), False),
        (["1"], ("1",), False),
        (["a..b"], ("a..b",), False),
    ],
)
def test_what_is_sql(texts: list[str], expressions: tuple[str, ...], needs_rows: bool) -> None:
    adapter = made({"sequence_by": texts})
    assert (adapter.expressions, adapter.needs_rows) == (expressions, needs_rows)
    if expressions:
        (event,) = events(adapter, {"id": 1, "ts": 5, "b": 6, "a": 7})
        assert adapter.sequence({}, None).value(event.sequence) is None


@pytest.mark.parametrize(
    ("kind", "log", "typed", "value", "wanted"),
    [
        (LONG, None, "", 5, 5),
        (LONG, None, "", "5", 5),
        (LONG, None, "", Number("5.5"), LACKING),
        (LONG, None, "", None, LACKING),
        (LONG, None, "", 2**63 - 1, 2**63 - 1),
        (LONG, None, "", Number(str(2**63)), LACKING),
        (STRING, None, "", "999", f"{999:020d}"),
        (STRING, None, "", "10/9:8", f"{10:020d}/{9:020d}/{8:020d}"),
        (STRING, None, "", "x", LACKING),
        (STRING, None, "", "", LACKING),
        (STRING, None, "ts", "x", "x"),
        (STRING, None, "ts", None, LACKING),
        (LONG, STRING, "", 1001, f"{1001:020d}"),
        (LONG, LONG, "ts", 1001, 1001),
        (DOUBLE, LONG, "", Number("1.5"), LACKING),
        (DOUBLE, LONG, "", 3, 3),
        (INTEGER, LONG, "", 3, 3),
        (DATE, None, "", "2024-02-29", (date(2024, 2, 29) - date(1970, 1, 1)).days),
        (TIMESTAMP, None, "ts", "1970-01-01T00:00:01Z", 1_000_000),
        (None, None, "", "7", f"{7:020d}"),
        (None, LONG, "", "7", 7),
        (None, STRING, "", 7, f"{7:020d}"),
    ],
)
def test_the_value_of_one_column(kind: Any, log: Any, typed: str, value: Any, wanted: Any) -> None:
    adapter = made({"sequence_by": "ts"}, typed={typed})
    types = {} if kind is None else {"id": LONG, "TS": kind}
    (event,) = events(adapter, {"id": 1, "ts": value})
    sequencer = adapter.sequence(types, log)
    assert sequencer.value(event.sequence) == wanted
    assert sequencer.type == (log or kind or STRING)


@pytest.mark.parametrize(
    ("texts", "types", "log", "reason"),
    [
        (["ts"], {"ts": LONG}, STRING, "cannot be compared"),
        (["ts"], {"ts": array(LONG)}, None, "no order"),
        (["ts", "v"], {"ts": LONG, "v": STRING}, None, "lpad"),
        (["ts", "v"], {"ts": LONG, "v": DOUBLE}, None, "'v' of type double"),
        (["ts", "v"], {"ts": LONG, "v": decimal(5, 2)}, None, "a fixed width"),
        (["s.b", "_row"], {"s": struct([("b", BOOLEAN)])}, None, "'s.b' of type boolean"),
    ],
)
def test_types_without_an_order_are_refused_before_the_batch(
    texts: list[str], types: dict[str, Type], log: Type | None, reason: str
) -> None:
    adapter = made({"sequence_by": texts}, typed=frozenset(types))
    with pytest.raises(InvalidExpression, match=reason):
        adapter.sequence(types, log)


def test_members_inside_of_members() -> None:
    adapter = made({"sequence_by": "source.lsn", "source_timestamp": "source.`at`"})
    value = {"id": 1, "source": {"LSN": "1000", "at": "1970-01-01T00:00:01Z"}}
    (event,) = events(adapter, deepcopy(value))
    assert event == Event("upsert", value, "1000", 1_000_000)
    assert sequences(adapter, [event], {"source": struct([("lsn", LONG)])}) == [1000]
    assert sequences(adapter, [event], {"source": STRING}) == [f"{1000:020d}"]
    for odd in ({"id": 1}, {"id": 1, "source": None}, {"id": 1, "source": [1]}, {"id": 1, "source": {}}):
        (event,) = events(adapter, odd)
        assert event.sequence is None
        assert event.source_timestamp is None


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_texts_is_the_order_of_values(seed: int) -> None:
    chance = random.Random(seed)
    start = datetime(1, 1, 1, tzinfo=UTC)
    types = {"n": LONG, "d": DATE, "t": TIMESTAMP, "big": decimal(38, 0)}
    adapter = made({"sequence_by": ["n", "d", "t", "big", "_row"]})
    values = []
    for _ in range(1_500):
        n = chance.choice([0, -1, 1, 2**63 - 1, -(2**63), chance.randint(-50, 50)])
        day = date.fromordinal(chance.choice([1, 719163, 3652059, chance.randint(1, 3652059)]))
        moment = start + timedelta(days=chance.randint(0, 3_000_000), microseconds=chance.randint(0, 10**10))
        big = chance.choice([10**38 - 1, 1 - 10**38, chance.randint(-5, 5)])
        values.append((n, day, moment, big, chance.randint(0, 10**12)))
    texts = {}
    for value in values:
        n, day, moment, big, row = value
        text = moment.isoformat().replace("+00:00", "Z")
        raw = {"n": n, "d": day.isoformat(), "t": text, "big": Number(str(big))}
        found = events(adapter, raw, position=Position("/f", row))
        (texts[value],) = sequences(adapter, found, types)
    assert all(isinstance(text, str) for text in texts.values())
    assert sorted(texts, key=texts.__getitem__) == sorted(texts)


def test_offsets_and_rows_order_too() -> None:
    adapter = made({"sequence_by": "_offset"})
    found = events(adapter, {"id": 1}, position=MESSAGE)
    assert sequences(adapter, found, {}) == [42]
    assert sequences(adapter, found, {}, STRING) == [f"{42:020d}"]
    assert sequences(adapter, events(adapter, {"id": 1}), {}) == [
        Invalid("no value for sequence_by, or a text that is no number (_offset)")
    ]


def test_insert_only_needs_no_order() -> None:
    adapter = made({}, keys=(), insert_only=True)
    found = events(adapter, {"v": 1})
    assert found == (Event("upsert", {"v": 1}),)
    assert sequences(adapter, found, {"v": LONG}) == [None]
    assert adapter.sequence({}, STRING).type == STRING


# -- listed columns -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("V, id", ["V", "id"]),
        (["w"], ["w"]),
        ([], []),
        (None, None),
        ("  ", None),
        ('["w","v"]', ["w", "v"]),
        (' [ "w" ]', ["w"]),
        ("new", ["new"]),
        ("op,v", ["v"]),
        (["nothing"], "nothing"),
        ('["w"]]', '["w"]]'),
        ('["w"', '["w"'),
        (["w", None], "null"),
        ([7], "7"),
        ("[7]", "7"),
        ("[" * 5_000, "[" * 5_000),
        ("v,,w", ""),
        ("[1e400]", "1e400"),
        (f"[{'9' * 9_999}]", "9" * 9_999),
    ],
)
def test_a_list_of_columns_in_the_record(listed: Any, wanted: Any) -> None:
    adapter = made({"sequence_by": "ts", "columns_to_update": "changed", "operation_column": "op"})
    adapter.sequence({"id": LONG, "v": LONG, "w": LONG, "ts": LONG}, None)
    found = events(adapter, {"op": "I", "ts": 1, "id": 1, "v": 1, "new": 2, "changed": listed})
    if isinstance(wanted, str):
        assert found == Invalid(f"columns_to_update names no column: {wanted}")
    else:
        assert found == (Event("upsert", {"ts": 1, "id": 1, "v": 1, "new": 2}, 1, None, wanted),)
    adapter = made({"sequence_by": "ts", "columns_to_update": "changed"})
    assert isinstance(events(adapter, {"ts": 1, "id": 1, "changed": listed}), tuple)


# -- changes of a key -----------------------------------------------------------------------------
OLD_KEYS = {"sequence_by": "ts", "operation_column": "op", "old_keys": {"id": "old_id"}}


@pytest.mark.parametrize(
    ("record", "old", "new"),
    [
        ({"op": "U", "id": 2, "old_id": 1}, 1, 2),
        ({"op": "U", "id": 2, "old_id": "1"}, "1", 2),
        ({"op": "U", "id": 2, "old_id": "2"}, None, 2),
        ({"op": "U", "id": 2, "old_id": "02"}, None, 2),
        ({"op": "U", "id": 2, "old_id": Number("2.0")}, None, 2),
        ({"op": "U", "id": 2, "old_id": None}, None, 2),
        ({"op": "U", "id": 2}, None, 2),
        ({"op": "D", "id": 2, "old_id": 1}, None, 2),
    ],
)
def test_a_changed_key_is_a_delete_and_a_whole_new_row(record: Any, old: Any, new: Any) -> None:
    adapter = made(OLD_KEYS)
    sequencer = adapter.sequence({"id": LONG, "ts": LONG, "v": STRING}, None)
    found = events(adapter, {**record, "ts": 5, "v": "a"})
    texts = [sequencer.value(event.sequence) for event in found]
    assert texts == [f"{5:020d}/{index}" for index in ((1,) if old is None else (0, 1))]
    assert found[-1].row == {"id": new, "ts": 5, "v": "a"}
    assert [event.whole for event in found] == ([False] if old is None else [False, True])
    if old is not None:
        assert (found[0].op, found[0].row) == ("delete", {"id": old})


def test_texts_of_text_keys_are_compared_as_texts() -> None:
    adapter = made(OLD_KEYS)
    adapter.sequence({"id": STRING}, None)
    assert len(events(adapter, {"op": "U", "ts": 1, "id": "2", "old_id": "02"})) == 2


def test_a_changed_key_has_no_columns_that_the_record_does_not_list() -> None:
    adapter = made({**OLD_KEYS, "columns_to_update": "changed"})
    record = {"op": "U", "ts": 5, "id": 2, "old_id": 1, "v": None, "w": 3, "changed": ["w"]}
    _, new = events(adapter, record)
    assert new.row == {"id": 2, "w": 3}
    assert new.whole


def test_old_keys_of_some_keys() -> None:
    options = {"sequence_by": "ts", "old_keys": {"B": "old_b"}}
    adapter = made(options, keys=("a", "b"))
    old, new = events(adapter, {"ts": 1, "a": 1, "b": 2, "old_b": 3})
    assert (old.row, new.row) == ({"a": 1, "b": 3}, {"ts": 1, "a": 1, "b": 2})
    adapter = made({"sequence_by": "ts", "old_keys": {"a": "old_a", "b": "old_b"}}, keys=("a", "b"))
    old, _ = events(adapter, {"ts": 1, "a": 1, "b": 2, "old_a": 3, "old_b": None})
    assert old.row == {"a": 3, "b": 2}


def test_with_an_expression_the_index_of_an_event_is_its_sequence() -> None:
    adapter = made({**OLD_KEYS, "sequence_by": "ts + 1"})
    assert adapter.has_index
    found = events(adapter, {"op": "U", "ts": 1, "id": 2, "old_id": 1})
    assert sequences(adapter, found, {}) == ["0", "1"]


@pytest.mark.parametrize(
    ("kind", "one", "other", "differ"),
    [
        (LONG, 1, "1", False),
        (LONG, 1, 2, True),
        (STRING, "a", "b", True),
        (STRING, "1", 1, False),
        (decimal(5, 2), Number("1.0"), Number("1.00"), False),
        (DATE, date(2024, 1, 1), "2024-01-01", False),
        (DATE, "2024-01-01", "2024-01-02", True),
        (LONG, "x", "y", True),
        (LONG, None, 1, False),
        (None, 1, "1", False),
        (None, 1, "2", True),
        (None, Decimal(1), 1, False),
    ],
)
def test_keys_are_compared_by_their_types(kind: Any, one: Any, other: Any, differ: bool) -> None:
    keys = Keys(("id",))
    keys.learn({} if kind is None else {"ID": kind})
    assert keys.differ({"id": one}, {"Id": other}) is differ
    assert not keys.differ({"id": one}, {})


# -- tombstones -----------------------------------------------------------------------------------
BY_OFFSET = {"sequence_by": "_offset", "tombstones": "delete"}
NO_KEY = Invalid("a message without a value, which tombstones makes a delete, has no key")
NO_KEY_IN = Invalid("the key of the message has no id")
NO_TEXT = Invalid("the key of the message is no JSON, and no text")


@pytest.mark.parametrize(
    ("key", "wanted"),
    [
        (b'{"id":7}', 7),
        (b'{"ID":7,"x":1}', 7),
        (b'{"schema":{"type":"struct"},"payload":{"id":7}}', 7),
        (b'{"schema":{"type":"int32"},"payload":7}', 7),
        (b'{"schema":null,"payload":"x"}', "x"),
        (b"7", 7),
        (b'"x"', "x"),
        (b"some text", "some text"),
        (b"007", "007"),
        ("ünï".encode(), "ünï"),
        ({"id": 7}, 7),
        (7, 7),
        (b"null", None),
        (None, NO_KEY),
        (b"", NO_KEY),
        (b'{"x":7}', NO_KEY_IN),
        (b'{"schema":1,"payload":{"x":7}}', NO_KEY_IN),
        (b'{"id":7', NO_TEXT),
        (b"\x00\x00\x00\x07", NO_TEXT),
        (b"\xff\xfe", NO_TEXT),
        (b"[7]", Invalid("the key of the message is a list, not an object of the key columns")),
    ],
)
def test_tombstones_as_deletes(key: Any, wanted: Any) -> None:
    found = events(made(BY_OFFSET), None, position=MESSAGE, key=key)
    assert found == (wanted if isinstance(wanted, Invalid) else (Event("delete", {"id": wanted}, 42),))


def test_tombstones_of_several_keys_and_of_other_orders() -> None:
    adapter = made(BY_OFFSET, keys=("schema", "payload"))
    (event,) = events(adapter, None, position=MESSAGE, key=b'{"schema":1,"payload":2}')
    assert event.row == {"schema": 1, "payload": 2}
    assert events(adapter, None, position=MESSAGE, key=b"7") == Invalid(
        "the key of the message is one value, and the keys are schema, payload"
    )
    other = made({"sequence_by": "ts", "tombstones": "delete"})
    found = events(other, None, position=MESSAGE, key=b"7")
    assert isinstance(found, Invalid)
    assert "has nothing that orders it" in found.reason


def test_tombstones_are_ignored_unless_they_shall_be_deletes() -> None:
    ignored = (Event("ignore", {}),)
    assert events(made({"sequence_by": "_offset"}), None, position=MESSAGE, key=b"7") == ignored
    assert events(made(BY_OFFSET), None) == ignored
    insert_only = made({"tombstones": "delete"}, keys=(), insert_only=True)
    assert events(insert_only, None, position=MESSAGE) == ignored
    with pytest.raises(InvalidConfiguration, match="did you mean 'delete'"):
        made({"sequence_by": "ts", "tombstones": "deletes"})


def test_what_is_no_object_is_invalid() -> None:
    for name, options in (("plain", {"sequence_by": "ts"}), ("dms", {}), ("goldengate", {}), ("canal", {})):
        for value in (1, "x", [1], True, b"x"):
            assert events(made(options, name), value) == Invalid("not JSON: not exactly one whole object")


def test_tables() -> None:
    assert is_table("Shop.Orders")("orders", "SHOP")
    assert not is_table("shop.orders")("orders", "other")
    assert not is_table("shop.orders")("orders", None)
    assert is_table("orders")("Orders", None)
    assert not is_table("orders")(None, None)
    assert not is_table("orders")(["orders"], "shop")


def test_operations_stay_fast_for_absurd_values() -> None:
    operation = operations({"i": "upsert"}, {})
    assert operation("i" * 10_000_000) == Invalid(f"unknown operation '{'i' * 40}'")


# -- damaged records, against the model ---------------------------------------------------------------
SEED = 20261126
DAMAGE: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    10**18,
    "",
    " ",
    "x",
    "I",
    "d ",
    "12",
    "00012",
    "1" * 40,
    [],
    [1],
    {},
    {"a": 1},
)


META = {"plain": ("op", "seq"), "dms": ("Op", "seq"), "goldengate": ("op_type", "pos", "before", "after")}


def text_of(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, int) else value


def verdict_of(adapter: Adapter, found: Any) -> Any:
    """Return what became of a record, as the model says it.

    The rim finds names in another case, and new rows that are not whole.
    """
    if isinstance(found, Invalid):
        return QUARANTINED
    shown = []
    for event in found:
        if event.op == "ignore":
            return IGNORED
        lower = [name for name in event.row if name.lower() in COLUMNS and name not in COLUMNS]
        sequence = adapter.sequence(dict.fromkeys(COLUMNS, STRING), None).value(event.sequence)
        lacks = event.whole and not set(COLUMNS) <= set(event.row)
        if lower or lacks or isinstance(sequence, Invalid):
            return QUARANTINED
        one = {"op": event.op, "sequence": sequence}
        if event.op != "truncate":
            one["row"] = {name: text_of(event.row.get(name)) for name in COLUMNS}
        if event.op == "upsert":
            one["columns"] = sorted(name for name in event.row if name in COLUMNS)
        shown.append(one)
    return shown


def is_stricter(kind: Kind, value: Any) -> bool:
    """Return whether the adapter knows better than the model.

    A truncate has no rows, a delete has one, and an image is an object, also if it is not used. Members that
    describe the event may be spelt in another case.
    """
    meta = META[kind.adapter]
    lower = {name.lower() for name in meta}
    if any(name.lower() in lower and name not in meta for name in value):
        return True
    if kind.adapter != "goldengate" or kind.format != "json":
        return False
    before, after, op = value.get("before"), value.get("after"), text_of(value.get("op_type"))
    if any(image is not None and not isinstance(image, dict) for image in (before, after)):
        return True
    op = op.strip(" ").lower() if isinstance(op, str) else ""
    return op == "t" or (op == "d" and after is not None)


def compared(kind: Kind, adapter: Adapter, value: Any, wanted: Any) -> int:
    copy = deepcopy(value)
    found = adapter.events(Record(value))
    if is_stricter(kind, copy):
        return 0
    verdict = verdict_of(adapter, found)
    assert verdict == wanted, copy
    return 1


JSON_KINDS = [kind for kind in KINDS if kind.adapter != "debezium" and kind.format == "json"]


@pytest.mark.parametrize("kind", JSON_KINDS, ids=lambda kind: kind.name)
def test_damaged_bytes_against_the_model(kind: Kind) -> None:
    chance = random.Random(f"{SEED}-{kind.name}")
    adapter, decode, compared_count = made(kind.options, kind.adapter), Decoder(), 0
    for number in range(3_000):
        line = kind.make(number, chance).encode()
        for _ in range(chance.randint(0, 3)):
            line = damaged(line, chance)
        if not line.strip() or b"\n" in line or b"\r" in line:
            continue
        ((_, wanted),) = kind.verdicts(line + b"\n")
        value = decode(line)
        if isinstance(value, Invalid):
            assert wanted == QUARANTINED, line
            continue
        compared_count += compared(kind, adapter, value, wanted)
    assert compared_count > 700


@pytest.mark.parametrize("kind", JSON_KINDS, ids=lambda kind: kind.name)
def test_damaged_values_against_the_model(kind: Kind) -> None:
    """Any member may have any value, or be missing, in the record and in its images."""
    chance = random.Random(f"{SEED}-{kind.name}-values")
    adapter, decode, compared_count = made(kind.options, kind.adapter), Decoder(), 0
    for number in range(6_000):
        value = decode(kind.make(number, chance).encode())
        assert isinstance(value, dict)
        for _ in range(chance.randint(0, 2)):
            images = [value, *(part for part in value.values() if isinstance(part, dict) and part)]
            image = chance.choice(images)
            name = chance.choice(list(image))
            if chance.random() < 0.3:
                del image[name]
            else:
                image[name] = deepcopy(chance.choice(DAMAGE))
        compared_count += compared(kind, adapter, value, kind.read(deepcopy(value)))
    assert compared_count > 3_000


CSV_KINDS = [kind for kind in KINDS if kind.format == "csv"]


@pytest.mark.parametrize("kind", CSV_KINDS, ids=lambda kind: kind.name)
def test_damaged_columns_of_csv_against_the_model(kind: Kind) -> None:
    chance = random.Random(f"{SEED}-{kind.name}")
    adapter = made(kind.options, kind.adapter, format="csv")
    first = {"plain": "op", "dms": "Op", "goldengate": "op_type"}[kind.adapter]
    names = (first, "pos" if kind.adapter == "goldengate" else "seq", *COLUMNS)
    texts = (
        "I",
        "U",
        "D",
        "T",
        "K",
        " i",
        "x",
        "",
        None,
        "7",
        " 8 ",
        "0" * 40 + "9",
        "1" * 40,
        "٣",
        "-1",
        "a\tb",
    )
    for _ in range(4_000):
        values = [chance.choice(texts) for _ in names]
        wanted = kind.read(list(values))
        assert compared(kind, adapter, dict(zip(names, values, strict=True)), wanted) or kind.adapter == "dms"
