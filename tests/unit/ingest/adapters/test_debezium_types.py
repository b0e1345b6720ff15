"""Schemas of Debezium's messages: types, damage, what is remembered; and values without schema."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from delta_cdc.core import adapters as settings
from delta_cdc.ingest.adapters.debezium_types import Schemas, row_encodings
from delta_cdc.ingest.record import Event, Invalid, Record
from delta_cdc.ingest.types import (
    BINARY,
    DATE,
    INTEGER,
    LONG,
    STRING,
    TIMESTAMP,
    Type,
    array,
    decimal,
    map_of,
    struct,
)
from delta_cdc.ingest.values import Encoding, converter
from tests.support import adapters
from tests.support import debezium as d
from tests.support.adapters import check, events

PG = d.postgresql(100, 120)
ONE = Event("upsert", {"id": 1}, "00000000000000000100/1/00000000000000000120/1", 1_700_000_000_123_000)
TIME = "io.debezium.time"
made = partial(adapters.made, "debezium")


def created(row: dict[str, Any], schema: Any) -> dict[str, Any]:
    return {"schema": schema, "payload": d.change("c", None, row, PG)}


# -- types ----------------------------------------------------------------------------------------
def encodings_of(*fields: Any, **options: Any) -> Any:
    checked = settings.check("debezium", options, keys=("id",), format="json")
    return row_encodings(d.envelope_schema(fields), checked, None)


#: Other types than those whose values ``test_through_maker.py`` reads.
TYPES: list[tuple[d.Field, Type, str]] = [
    (d.field("x", "int64", f"{TIME}.NanoTimestamp"), TIMESTAMP, "epoch:ns"),
    (d.decimal_field("x", 10, 2), decimal(10, 2), "decimal:2"),
    (d.decimal_field("x", None, 4), decimal(38, 4), "decimal:4"),
    (d.decimal_field("x", 0, 4), decimal(38, 4), "decimal:4"),
    (d.decimal_field("x", 1, 0), decimal(1, 0), "decimal:0"),
    (d.decimal_field("x", 2, 4), decimal(4, 4), "decimal:4"),
    (d.decimal_field("x", 5, 38), decimal(38, 38), "decimal:38"),
    (d.decimal_field("x", 39, 4), decimal(38, 4), "decimal:4"),
    (d.decimal_field("x", 5, 39), decimal(38, 38), "decimal:39"),
    (d.decimal_field("x", 5, -3), decimal(38, 0), "decimal:-3"),
    (d.decimal_field("x", 5, -1), decimal(38, 0), "decimal:-1"),
    (d.field("x", "map", keys={"type": "string"}, values={"type": "bytes"}), map_of(STRING, BINARY), "text"),
    (d.field("x", "struct", fields=[d.field("a", "int64")]), struct([("a", LONG)]), "text"),
]


@pytest.mark.parametrize(("field", "kind", "coding"), TYPES)
def test_types_of_a_schema(field: d.Field, kind: Type, coding: str) -> None:
    found = encodings_of(field)["x"]
    assert (found.type, found.coding) == (kind, coding)
    converter(found)


NESTED: dict[str, Any] = {
    "array": lambda kind: {"type": "array", "items": kind},
    "map": lambda kind: {"type": "map", "keys": {"type": "string"}, "values": kind},
    "struct": lambda kind: {"type": "struct", "fields": [{**kind, "field": "a"}]},
}


def nested(form: str, levels: int) -> dict[str, Any]:
    kind: dict[str, Any] = {"type": "int32"}
    for _ in range(levels):
        kind = NESTED[form](kind)
    return kind


@pytest.mark.parametrize("form", NESTED)
def test_levels(form: str) -> None:
    for levels, is_read in ((64, True), (65, False)):
        schema = d.envelope_schema([{**nested(form, levels), "field": "x"}])
        found = events(made(), created({"id": 1}, schema))
        assert isinstance(found, list) is is_read


def of_decimal(**parameters: Any) -> dict[str, Any]:
    return {"type": "bytes", "name": f"{d.CONNECT}.Decimal", "parameters": parameters}


PRECISION = "connect.decimal.precision"
DAMAGED: list[tuple[Any, str]] = [
    ({"type": "int31"}, "the type int31 is unknown"), ({"type": None}, "a type has no name"),
    ({"type": ["int32"]}, "a type has no name"),
    ({"type": "int32", "name": ["x"]}, "a type has no name"),
    ({"type": "array"}, "a type is no object"),
    ({"type": "array", "items": "int32"}, "a type is no object"),
    ({"type": "map", "keys": {"type": "int32"}, "values": {"type": "int32"}}, "a map has keys of type int32"),
    ({"type": "map"}, "a map has keys of type None"), ({"type": "struct"}, "an object has no fields"),
    ({"type": "struct", "fields": [d.field("", "int32")]}, "an object has no fields, or one without a name"),
    ({"type": "struct", "fields": {}}, "fields is no list"),
    ({"type": "struct", "fields": [7]}, "a field has no name"),
    ({"type": "struct", "fields": [d.field("a", "int32"), d.field("A", "int32")]},
     "fields of an object differ in case only"),
    ({"type": "struct", "fields": [d.field("a", "int32")] * 2}, "the field a is there twice"),
    ({"type": "bytes", "name": f"{d.CONNECT}.Decimal"}, "a decimal has no scale"),
    (of_decimal(scale="2.5"), "a decimal has no scale"), (of_decimal(scale=True), "a decimal has no scale"),
    (of_decimal(scale="9" * 5_000), "a decimal has no scale"),
    (of_decimal(scale=10**5_000), "a decimal has no scale"),
    (of_decimal(scale="2", **{PRECISION: "ten"}), "the precision of a decimal is no number"),
    (nested("array", 400), "it has too many levels"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "reason"), DAMAGED)
def test_a_damaged_schema_makes_its_record_invalid(kind: dict[str, Any], reason: str) -> None:
    message = created({"id": 1}, d.envelope_schema([{**kind, "field": "x"}]))
    check(events(made(), message), f"the schema of the message is damaged: {reason}")
    # A column that is left out may be of any type.
    assert events(made({"except_column_list": ["X"]}), message) == [ONE]


@pytest.mark.parametrize("schema", ["x", 7, [], True])
def test_a_schema_that_is_none(schema: Any) -> None:
    found = events(made(), created({"id": 1}, schema))
    assert found == Invalid("the schema of the message is damaged: it is no object")


def test_a_schema_is_read_once() -> None:
    made_of: list[Any] = []
    schemas = Schemas(lambda schema: made_of.append(schema) or {"n": len(made_of)})
    one, same, other = {"a": 1}, {"a": 1}, {"a": 2}
    assert schemas.of(one) is schemas.of(one) is schemas.of(same)
    assert schemas.of(other) == {"n": 2}
    assert len(made_of) == 2
    for number in range(500):
        assert schemas.of({"b": number})["n"] == number + 3
    assert schemas.of(one)["n"] == 503


def test_messages_of_one_schema_share_the_encodings() -> None:
    adapter = made()
    schema = d.envelope_schema([d.field("id", "int32"), d.field("at", "int64", f"{TIME}.Timestamp")])
    first, second = (events(adapter, created({"id": n, "at": n}, schema))[0] for n in (1, 2))
    assert first.encodings is second.encodings
    assert converter(first.encodings["at"])(first.row["at"]) == 1_000
    (by_reader,) = adapter.events(Record(d.change("c", None, {"id": 1}, PG), schema=schema))
    assert by_reader.encodings is first.encodings


def test_a_schema_of_an_unwrapped_row() -> None:
    schema = {
        "type": "struct",
        "fields": [d.field("day", "int32", f"{TIME}.Date"), d.field("__op", "string")],
    }
    adapter = made({"unwrapped": True, "connector": "postgresql"})
    (found,) = events(
        adapter, {"schema": schema, "payload": {"day": 1, "__op": "c", "__source_sequence": PG["sequence"]}}
    )
    assert (found.row, list(found.encodings)) == ({"day": 1}, ["day"])
    own = made({"unwrapped": True, "connector": "postgresql"}, typed={"day", "__v"})
    schema["fields"].append(d.field("__v", "int32"))
    payload = {"day": 1, "__v": 3, "__op": "c", "__source_sequence": PG["sequence"]}
    (found,) = events(own, {"schema": schema, "payload": payload})
    assert (found.row, list(found.encodings)) == ({"day": 1, "__v": 3}, ["day", "__v"])


# -- without schema -----------------------------------------------------------------------------------
def test_messages_without_schema_need_the_options_that_say_how_values_are_written() -> None:
    types = {"id": INTEGER, "price": decimal(10, 2), "at": TIMESTAMP, "day": DATE, "raw": BINARY}
    types |= {"many": array(BINARY), "one": struct([("day", DATE)])}
    adapter = made()
    adapter.encodings(types)
    assert "decimal_handling_mode" in str(adapter.problem)
    found = events(adapter, d.change("c", None, {"id": 1}, PG))
    assert found == Invalid(str(adapter.problem))
    assert "give decimal_handling_mode" in found.reason
    schema = d.envelope_schema([d.field("id", "int32")])
    by_schema = events(adapter, created({"id": 1}, schema))
    assert by_schema[0].row == {"id": 1}
    for code in ("t", "m"):
        assert not isinstance(events(adapter, d.change(code, None, None, PG)), Invalid)
    adapter = made(
        {
            "decimal_handling_mode": "precise",
            "time_precision_mode": "adaptive",
            "time_units": {"at": "ns"},
            "binary_handling_mode": "hex",
        }
    )
    found = adapter.encodings(types)
    assert found["many"] == Encoding(types["many"], element=found["raw"])
    assert found["one"] == Encoding(types["one"], fields=(("day", found["day"]),))
    codings = {name: one.coding for name, one in found.items() if name not in ("many", "one")}
    assert codings == {
        "id": "text",
        "price": "decimal_or_scaled:2",
        "at": "epoch_or_text:ns",
        "day": "days_or_iso",
        "raw": "bytes:hex",
    }
    assert adapter.problem is None
