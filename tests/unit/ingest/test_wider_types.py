"""Which types in records ask for a wider column of the change log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

from delta_cdc.core import adapters
from delta_cdc.core.adapters import DELETE, IGNORE, TRUNCATE, UPSERT
from delta_cdc.core.options import IngestOptions
from delta_cdc.ingest.batch import Maker
from delta_cdc.ingest.reading import Reading
from delta_cdc.ingest.record import NOWHERE, Event
from delta_cdc.ingest.types import Type, decimal
from delta_cdc.ingest.values import Encoding
from delta_cdc.spark.ingest.widening import may_widen

if TYPE_CHECKING:
    from collections.abc import Sequence

INT, BIGINT = Type("integer"), Type("long")
WIDE = {"id": Encoding(INT), "qty": Encoding(BIGINT), "amount": Encoding(decimal(12, 2), "decimal:2")}
ROW = {"id": 1, "qty": 5, "amount": None}


def found(events: Sequence[Event], *, widens: bool = True) -> dict[str, Type]:
    """Return the types that events ask for."""
    reading = Reading(
        format="json",
        adapter="debezium",
        adapter_options=adapters.check("debezium", {}, keys=("id",), format="json"),
        keys=("id",),
        columns=(("id", INT), ("qty", INT), ("amount", decimal(10, 2))),
        widens=widens,
    )
    maker = Maker(reading)
    for event in events:
        maker._add(event, None, NOWHERE)
    return maker._found.typed


def test_rows_ask_for_wider_types() -> None:
    upsert = Event(UPSERT, ROW, encodings=WIDE)
    assert found([upsert]) == {"qty": BIGINT, "amount": decimal(12, 2)}
    assert found([upsert], widens=False) == {}
    narrow = {"id": Encoding(BIGINT), "qty": Encoding(Type("short"))}
    assert found([Event(UPSERT, {"id": 1, "qty": 5}, encodings=narrow)]) == {"id": BIGINT}


def test_a_delete_with_its_key_alone_hides_no_later_row() -> None:
    """Both have the same schema."""
    delete = Event(DELETE, {"id": 1}, encodings=WIDE)
    assert found([delete]) == {}
    assert found([delete, Event(UPSERT, ROW, encodings=WIDE)]).keys() == {"qty", "amount"}


@pytest.mark.parametrize("op", [IGNORE, TRUNCATE])
def test_a_record_without_a_row_may_be_one_of_another_table(op: str) -> None:
    assert found([Event(op, {}, encodings=WIDE)]) == {}


def test_a_decimal_without_a_precision_of_its_own_asks_for_nothing() -> None:
    for encoding in (Encoding(decimal(38, 18), "scaled"), Encoding(decimal(38, 2), "decimal:2")):
        assert found([Event(UPSERT, ROW, encodings={"qty": encoding, "amount": encoding})]) == {}


def test_what_keeps_its_type() -> None:
    def is_widened(name: str, other: type[T.DataType] = T.LongType, **given: Any) -> bool:
        options = IngestOptions(keys=("ID",), **{"schema_evolution": "widen", **given})
        return may_widen(options, name, T.IntegerType(), other())

    assert is_widened("qty")
    assert not is_widened("id"), "a key"
    assert not is_widened("qty", cluster_by=("Qty",))
    assert not is_widened("qty", schema_evolution="additive")
    assert not is_widened("qty", T.StringType), "Delta cannot"
