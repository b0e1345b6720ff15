"""The adapter ``plain``: rows with an operation column."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from delta_cdc.core.errors import InvalidExpression
from delta_cdc.ingest.record import Event, Invalid, Number, Position
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
from tests.support.adapters import MESSAGE, check, events, made, sequences

LACKING = Invalid("no value for sequence_by, or no number of at most 20 digits (ts)")
#: Where the text has no type in ``schema``.
NO_NUMBER = Invalid(f"{LACKING.reason}: if its texts sort in the right order, make it a STRING in schema")


def plain(sequence_by: Any = "ts", *, facts: dict[str, Any] | None = None, **options: Any) -> Any:
    return made("plain", {"sequence_by": sequence_by, **options}, **(facts or {}))


# -- operations -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("I", "upsert"), ("insert", "upsert"), ("UpDaTe", "upsert"), (" d ", "delete"), ("DELETE", "delete"),
        ("UO", "ignore"), (" UO", "ignore"), ("TR", "truncate"), (1, "delete"), (True, "truncate"),
        ("i", "ignore"), ("uo", Invalid("unknown operation 'uo'")), ("", Invalid("unknown operation ''")),
        (None, Invalid("unknown operation ''")), ("\ti", Invalid("unknown operation '\ti'")),
        (Number("1.0"), Invalid("unknown operation '1.0'")),
        ("x" * 50, Invalid(f"unknown operation '{'x' * 40}'")),
        ({"a": [1]}, Invalid("unknown operation '{\"a\":[1]}'")),
    ],
)  # fmt: skip
def test_operations(value: Any, wanted: Any) -> None:
    """The user's match exactly and take precedence, the usual ones match without regard to case."""
    given = {"UO": "ignore", "TR": "truncate", "1": "delete", "true": "truncate", "i": "ignore"}
    found = events(plain(operation_column="op", operations=given), {"op": value, "ts": 1, "id": 1})
    assert (found if isinstance(wanted, Invalid) else found[0].op) == wanted


@pytest.mark.parametrize(
    ("record", "wanted"),
    [({}, "upsert"), ({"op": None}, "upsert"), ({"op": ""}, "upsert"), ({"op": "2026-03-01"}, "delete"),
     ({"op": 0}, "delete"), ({"op": "I"}, "upsert"), ({"op": "*"}, "delete")],
)  # fmt: skip
def test_any_other_value_and_no_value(record: dict[str, Any], wanted: str) -> None:
    """A column with the time of the deletion is NULL for all other rows."""
    adapter = plain(operation_column="op", operations={"": "upsert", "*": "delete"})
    assert [event.op for event in events(adapter, {**record, "id": 1, "ts": 1})] == [wanted]


def test_a_record_without_an_operation_column_is_an_upsert() -> None:
    assert events(plain(), {"ts": 1, "id": 1}) == [Event("upsert", {"ts": 1, "id": 1}, 1)]
    assert events(plain(operation_column="op"), {"ts": 1, "id": 1}) == Invalid("unknown operation ''")


def test_what_describes_the_event_is_no_column() -> None:
    adapter = plain(operation_column="Op", columns_to_update="changed", old_keys={"id": "old_id"})
    record = {"op": "I", "OP": "x", "ts": 1, "id": 1, "Changed": None, "old_ID": None, "v": 2}
    (event,) = events(adapter, record)
    assert event.row == {"OP": "x", "ts": 1, "id": 1, "v": 2}
    names = ("op", "CHANGED", "Old_id", "ts", "id", "v")
    assert [name for name in names if adapter.describes(name)] == ["op", "CHANGED", "Old_id"]
    # Two options may name one column.
    (event,) = events(plain(operation_column="c", columns_to_update="C"), {"c": "d", "id": 1, "ts": 1})
    assert (event.op, event.row) == ("delete", {"id": 1, "ts": 1})


def test_columns_that_a_parquet_reader_must_bring() -> None:
    adapter = plain(
        ["TS", "source.lsn", "_row", "_offset"],
        operation_column="op",
        columns_to_update="changed",
        old_keys={"id": "old_id"},
        source_timestamp="At",
    )
    assert adapter.reads == {"op", "changed", "old_id", "id", "ts", "source", "at"}
    assert plain().reads == {"ts"}


# -- order ----------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("texts", "expressions", "needs_rows"),
    [
        (["ts"], (), False), (["ts", "_row"], (), True), (["_ROW"], (), True), (["a_row"], (), False),
        (["source.lsn"], (), False), (["`a b`.`c``d`"], (), False), (["upper(ts)"], ("upper(ts)",), False),
        (["ts", "b * 1000 + _row"], ("ts", "b * 1000 + _row"), True),
    ],
)  # fmt: skip
def test_what_is_sql(texts: list[str], expressions: tuple[str, ...], needs_rows: bool) -> None:
    adapter = plain(texts)
    assert (adapter.expressions, adapter.needs_rows) == (expressions, needs_rows)
    if expressions:
        found = events(adapter, {"id": 1, "ts": 5, "b": 6, "a": 7})
        assert sequences(adapter, found, {}) == [None]
    moments = [plain(source_timestamp=text).timestamp_expression for text in ("at", "upper(at)")]
    assert moments == [None, "upper(at)"]


@pytest.mark.parametrize(
    ("kind", "log", "typed", "value", "wanted"),
    [
        (LONG, None, "", 5, 5), (LONG, None, "", "5", 5), (LONG, None, "", Number("5.5"), LACKING),
        (LONG, None, "", None, LACKING), (LONG, None, "", 2**63 - 1, 2**63 - 1),
        (LONG, None, "", Number(str(2**63)), LACKING), (STRING, None, "", "999", f"{999:020d}"),
        (STRING, None, "", "10/9:8", f"{10:020d}/{9:020d}/{8:020d}"),
        (STRING, None, "", "x", NO_NUMBER), (STRING, None, "", "", NO_NUMBER), (STRING, None, "ts", "x", "x"),
        (STRING, None, "", "1" * 21, NO_NUMBER), (STRING, None, "ts", "1" * 35, "1" * 35),
        (STRING, None, "ts", None, LACKING), (LONG, STRING, "", 1001, f"{1001:020d}"),
        (LONG, LONG, "ts", 1001, 1001), (DOUBLE, LONG, "", Number("1.5"), LACKING), (DOUBLE, LONG, "", 3, 3),
        (INTEGER, LONG, "", 3, 3),
        (DATE, None, "", "2024-02-29", (date(2024, 2, 29) - date(1970, 1, 1)).days),
        (TIMESTAMP, None, "ts", "1970-01-01T00:00:01Z", 1_000_000),
        (None, None, "", "7", f"{7:020d}"), (None, LONG, "", "7", 7), (None, STRING, "", 7, f"{7:020d}"),
    ],
)  # fmt: skip
def test_the_value_of_one_column(kind: Any, log: Any, typed: str, value: Any, wanted: Any) -> None:
    adapter = plain(facts={"typed": {typed}})
    types = {} if kind is None else {"id": LONG, "TS": kind}
    assert sequences(adapter, events(adapter, {"id": 1, "ts": value}), types, log) == [wanted]
    assert adapter.sequence(types, log).type == (log or kind or STRING)


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
    with pytest.raises(InvalidExpression, match=reason):
        plain(texts, facts={"typed": frozenset(types)}).sequence(types, log)


def test_members_inside_of_members() -> None:
    adapter = plain("source.lsn", source_timestamp="source.`at`")
    value = {"id": 1, "source": {"LSN": "1000", "at": "1970-01-01T00:00:01Z"}}
    found = events(adapter, value)
    assert found == [Event("upsert", value, "1000", 1_000_000)]
    assert sequences(adapter, found, {"source": struct([("lsn", LONG)])}) == [1000]
    # The exact name goes before that of another case.
    assert sequences(adapter, found, {"source": struct([("LSN", STRING), ("lsn", LONG)])}) == [1000]
    assert sequences(adapter, found, {"source": STRING}) == [f"{1000:020d}"]
    for odd in ({"id": 1}, {"id": 1, "source": None}, {"id": 1, "source": [1]}, {"id": 1, "source": {}}):
        (event,) = events(adapter, odd)
        assert (event.sequence, event.source_timestamp) == (None, None)


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_texts_is_the_order_of_values(seed: int) -> None:
    chance = random.Random(seed)
    start = datetime(1, 1, 1, tzinfo=UTC)
    types = {"n": LONG, "d": DATE, "t": TIMESTAMP, "big": decimal(38, 0)}
    adapter, texts = plain(["n", "d", "t", "big", "_row"]), {}
    for _ in range(1_500):
        n = chance.choice([0, -1, 1, 2**63 - 1, -(2**63), chance.randint(-50, 50)])
        day = date.fromordinal(chance.choice([1, 719163, 3652059, chance.randint(1, 3652059)]))
        moment = start + timedelta(days=chance.randint(0, 3_000_000), microseconds=chance.randint(0, 10**10))
        big = chance.choice([10**38 - 1, 1 - 10**38, chance.randint(-5, 5)])
        row = chance.randint(0, 10**12)
        text = moment.isoformat().replace("+00:00", "Z")
        raw = {"n": n, "d": day.isoformat(), "t": text, "big": Number(str(big))}
        found = events(adapter, raw, position=Position("/f", row))
        (texts[n, day, moment, big, row],) = sequences(adapter, found, types)
    assert all(isinstance(text, str) for text in texts.values())
    assert sorted(texts, key=texts.__getitem__) == sorted(texts)


def test_offsets_and_rows_order_too() -> None:
    adapter = plain("_offset")
    found = events(adapter, {"id": 1})
    assert sequences(adapter, found, {}) == [42]
    assert sequences(adapter, found, {}, STRING) == [f"{42:020d}"]
    lacking = Invalid("no value for sequence_by, or no number of at most 20 digits (_offset)")
    assert sequences(adapter, events(adapter, {"id": 1}, position=Position("/f", 7)), {}) == [lacking]
    adapter = plain(["_Row", "_offset"])
    found = events(adapter, {"id": 1}, position=MESSAGE._replace(row=7))
    assert sequences(adapter, found, {}) == [f"{7:020d}/{42:020d}"]
    lacking = Invalid("no value for sequence_by, or no number of at most 20 digits (_Row, _offset)")
    assert sequences(adapter, events(adapter, {"id": 1}), {}) == [lacking]


def test_insert_only_needs_no_order() -> None:
    adapter = made("plain", {}, keys=(), insert_only=True)
    found = events(adapter, {"v": 1})
    assert found == [Event("upsert", {"v": 1})]
    assert sequences(adapter, found, {"v": LONG}) == [None]
    assert adapter.sequence({}, STRING).type == STRING


# -- listed columns -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("listed", "wanted"),
    [
        ("V, id", ["V", "id"]), (["w"], ["w"]), ([], []), (None, None), ("  ", None),
        ('["w","v"]', ["w", "v"]), (' [ "w" ]', ["w"]), ("new", ["new"]), ("op,v", ["v"]),
        (["nothing"], "nothing"), ('["w"]]', '["w"]]'), ('["w"', '["w"'), (["w", None], "null"), ([7], "7"),
        ("[7]", "7"), ("[" * 5_000, "[" * 5_000), ("v,,w", ""), ("[1e400]", "1e400"),
        (f"[{'9' * 9_999}]", "9" * 9_999),
    ],
)  # fmt: skip
def test_a_list_of_columns_in_the_record(listed: Any, wanted: Any) -> None:
    adapter = plain(columns_to_update="changed", operation_column="op")
    record = {"op": "I", "ts": 1, "id": 1, "v": 1, "new": 2, "changed": listed}
    # Before the types are known, no name is wrong.
    assert isinstance(events(adapter, record), list)
    adapter.sequence({"id": LONG, "v": LONG, "w": LONG, "ts": LONG}, None)
    if isinstance(wanted, str):
        assert events(adapter, record) == Invalid(f"columns_to_update names no column: {wanted}")
        return
    row = {"ts": 1, "id": 1, "v": 1, "new": 2}
    assert events(adapter, record) == [Event("upsert", row, 1, None, wanted)]
    assert events(adapter, {**record, "op": "D"}) == [Event("delete", row, 1)]


# -- changes of a key -----------------------------------------------------------------------------
OLD: dict[str, Any] = {"operation_column": "op", "old_keys": {"id": "old_id"}}


@pytest.mark.parametrize(
    ("record", "old"),
    [
        ({"op": "U", "id": 2, "old_id": 1}, 1),
        ({"op": "U", "id": 2, "old_id": "1"}, "1"),
        ({"op": "U", "id": 2, "old_id": "2"}, None),
        ({"op": "U", "id": 2, "old_id": "02"}, None),
        ({"op": "U", "id": 2, "old_id": Number("2.0")}, None),
        ({"op": "U", "id": 2, "old_id": None}, None),
        ({"op": "U", "id": 2}, None),
        ({"op": "D", "id": 2, "old_id": 1}, None),
    ],
)
def test_a_changed_key_is_a_delete_and_a_whole_new_row(record: Any, old: Any) -> None:
    adapter, types = plain(**OLD), {"id": LONG, "ts": LONG, "v": STRING}
    adapter.sequence(types, None)
    found = events(adapter, {**record, "ts": 5, "v": "a"})
    texts = [f"{5:020d}/{index}" for index in ((1,) if old is None else (0, 1))]
    assert sequences(adapter, found, types) == texts
    assert found[-1].row == {"id": 2, "ts": 5, "v": "a"}
    assert [event.whole for event in found] == ([False] if old is None else [False, True])
    if old is not None:
        assert (found[0].op, found[0].row) == ("delete", {"id": old})


def test_texts_of_text_keys_are_compared_as_texts() -> None:
    adapter = plain(**OLD)
    adapter.sequence({"id": STRING}, None)
    assert len(events(adapter, {"op": "U", "ts": 1, "id": "2", "old_id": "02"})) == 2


def test_a_changed_key_has_no_columns_that_the_record_does_not_list() -> None:
    record = {"op": "U", "ts": 5, "id": 2, "old_id": 1, "v": None, "w": 3, "changed": ["w"]}
    _, new = events(plain(**OLD, columns_to_update="changed"), record)
    assert (new.row, new.carried, new.whole) == ({"id": 2, "w": 3}, ["w"], True)


def test_old_keys_of_some_keys() -> None:
    adapter = plain(old_keys={"B": "old_b"}, facts={"keys": ("a", "b")})
    old, new = events(adapter, {"ts": 1, "a": 1, "b": 2, "old_b": 3})
    assert (old.row, new.row) == ({"a": 1, "b": 3}, {"ts": 1, "a": 1, "b": 2})
    adapter = plain(old_keys={"a": "old_a", "b": "old_b"}, facts={"keys": ("a", "b")})
    old, _ = events(adapter, {"ts": 1, "a": 1, "b": 2, "old_a": 3, "old_b": None})
    assert old.row == {"a": 3, "b": 2}


def test_with_an_expression_the_index_of_an_event_is_its_sequence() -> None:
    adapter = plain("ts + 1", **OLD)
    assert adapter.has_index
    record = {"op": "U", "ts": 1, "id": 2, "old_id": 1}
    found = events(adapter, record)
    assert sequences(adapter, found, {}) == ["0", "1"]
    # The expression is computed over the whole record for both.
    assert [event.others for event in found] == [record, None]
    check(events(adapter, {"op": "x"}), "unknown operation 'x'")
