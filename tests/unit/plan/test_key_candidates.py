"""Which columns may be a key, by their names: tables as public schemas have them."""

from __future__ import annotations

import json

import pytest

from delta_cdc.planning.key_candidates import (
    MOST_PAIRS,
    MOST_SINGLES,
    Candidate,
    Column,
    candidates,
    columns_of,
    orders,
    rounds,
)
from delta_cdc.spark.uniqueness import KeyCount, _expressions
from tests.support.logs import field_of, struct_of

#: Other tables beside each one.
_SHOP = ("customers", "orders", "products", "order_items", "nation", "supplier", "part", "lineitem")


def _columns(text: str) -> list[Column]:
    """Return columns from ``name type, …``; without a type, a column is a long."""
    parts = [(*one.split(), "long")[:2] for one in text.split(", ")]
    return [Column(name, kind, name) for name, kind in parts]


def _found(table: str, text: str, *partitions: str, others: tuple[str, ...] = _SHOP) -> list[str]:
    return [str(one) for one in candidates(table, _columns(text), partitions, others)]


@pytest.mark.parametrize(
    ("table", "columns", "best"),
    [
        ("orders", "customer_id, id, amount double", ["id"]),
        ("orders", "customer_id, order_id, uuid string", ["uuid", "order_id"]),
        ("sales/Orders", "CustomerID, OrderID, Freight double", ["OrderID"]),
        ("orders", "orderid, customerid, paid, valid string", ["orderid"]),
        # TPC-H: a prefix, and a shortened name.
        ("orders", "o_orderkey, o_custkey, o_totalprice double", ["o_orderkey"]),
        ("customer", "c_custkey, c_name string, c_nationkey", ["c_custkey"]),
        ("lineitem", "l_orderkey, l_partkey, l_linenumber integer", ["l_orderkey, l_partkey"]),
        # Chinook, AdventureWorks, Sakila, Pagila.
        ("Track", "TrackId integer, AlbumId integer, Name string", ["TrackId", "AlbumId"]),
        ("Product", "ProductID integer, rowguid string", ["rowguid", "ProductID"]),
        ("addresses", "address_id, city_id", ["address_id", "city_id"]),
        ("categories", "category_id", ["category_id"]),
        ("stg_invoices", "invoice_number string, invoice_date date", ["invoice_number"]),
        ("bronze.dim_country", "country_code string, name string", ["country_code"]),
        ("persona", "id_persona, nombre string", ["id_persona"]),
        # The key of another table does not identify rows here: only a pair with it may.
        ("order_items", "order_id, product_id, quantity", ["order_id, product_id"]),
        ("order_items", "order_id, line_number integer, quantity", ["order_id, line_number"]),
        ("rates", "currency_code string, rate_date date, rate double", ["currency_code, rate_date"]),
        ("readings", "sensor_id string, day date, value double", ["sensor_id", "sensor_id, day"]),
        # Nothing here says that it identifies something.
        ("prices", "amount double, paid, monkey, name string, created_at timestamp", []),
        # Types that are no keys.
        ("orders", "id double, order_id , key boolean", ["order_id"]),
        ("orders", "id decimal(18,0)", ["id"]),
        ("orders", "id decimal(18,2)", []),
    ],
)
def test_candidates(table: str, columns: str, best: list[str]) -> None:
    assert _found(table, columns)[: len(best) or 1] == best


def test_a_partition_column_is_a_part_of_pairs() -> None:
    assert _found("orders", "customer_id, batch string", "batch") == ["customer_id, batch"]
    assert _found("orders", "customer_id, batch string") == []


def test_the_numbers_of_candidates_are_limited() -> None:
    found = _found("t", ", ".join(f"c{letter}_id" for letter in "abcdefghijkl"), others=())
    assert len([one for one in found if "," not in one]) == MOST_SINGLES
    assert len([one for one in found if "," in one]) == MOST_PAIRS


def test_columns_of_a_schema() -> None:
    identity = {
        **field_of("n"),
        "metadata": {"delta.identity.start": 1, "delta.columnMapping.physicalName": "c"},
    }
    schema = struct_of(identity, {**field_of("s"), "type": struct_of(field_of("id"))})
    number, struct = columns_of(json.dumps(schema))
    assert (number.is_identity, number.file_name, struct.kind) == (True, "c", "")
    (only,) = candidates("t", [number, struct])
    assert (only.columns, "identity" in only.reason) == (("n",), True)


def test_order_columns() -> None:
    text = "id, created date, event_time timestamp, updated_at timestamp_ntz, version integer, update string"
    assert [one.column for one in orders(_columns(text))] == ["updated_at", "event_time", "version"]
    assert orders(_columns("id, time_zone string, amount double")) == []


@pytest.mark.parametrize(("number", "sizes"), [(1, [1]), (2, [1, 1]), (9, [1, 8]), (23, [1, 8, 8, 6])])
def test_a_table_is_read_at_most_four_times(number: int, sizes: list[int]) -> None:
    """The best candidate is counted alone; the others together, each once, in their order."""
    found = [Candidate((f"c{n}",), "why") for n in range(number)]
    some = rounds(found)
    assert [len(one) for one in some] == sizes
    assert [candidate for one in some for candidate in one] == found
    assert MOST_SINGLES + MOST_PAIRS <= 23


def test_one_query_counts_several_candidates() -> None:
    assert list(_expressions([("a",), ("b", "c`d")])) == [
        "count(*)",
        "count_if(`a` IS NULL)",
        "count(DISTINCT `a`)",
        "count_if(`b` IS NULL OR `c``d` IS NULL)",
        "count(DISTINCT `b`, `c``d`)",
    ]


@pytest.mark.parametrize(
    ("rows", "nulls", "distinct", "is_key"),
    [
        (3, 0, 3, True),
        (1, 0, 1, True),
        (3, 0, 2, False),
        (3, 1, 2, False),
        (3, 1, 3, False),
        (0, 0, 0, False),
    ],
)
def test_what_a_count_proves(rows: int, nulls: int, distinct: int, is_key: bool) -> None:
    assert KeyCount(rows, nulls, distinct).is_key is is_key
