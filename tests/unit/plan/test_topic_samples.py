"""What sampled records of a topic say of the table whose changes they have."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.planning.topic_samples import Record, SampledTable, sampled_table
from tests.support.schema_registry import serving


def _change(
    key: Any, after: Any = None, *, schema: bool = True, table: str = "orders", **more: Any
) -> Record:
    source = {"connector": "postgresql", "db": "shop", "schema": "public", "table": table, **more}
    value = {"op": "c", "before": None, "after": after or {"id": 1, "city": "Oslo"}, "source": source}
    packed = [{"schema": {"type": "struct"}, "payload": one} if schema else one for one in (key, value)]
    return Record(*(json.dumps(one).encode() for one in packed))


def test_the_key_of_the_records_is_the_key() -> None:
    found = sampled_table([_change({"id": 1}), _change({"id": 2}), Record(b'{"id": 2}', None)])
    assert isinstance(found, SampledTable)
    assert (found.keys, found.format) == (("id",), "json")
    assert "2 records" in found.key_evidence[0]
    assert "schemas give the types" in found.evidence[0]
    bare = sampled_table([_change({"id": 1, "city": "Oslo"}, schema=False)])
    assert isinstance(bare, SampledTable)
    assert bare.keys == ("id", "city")
    assert "have no schema" in bare.evidence[0]


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        ([], "no records"),
        ([Record(b"{}", None)], "no records"),
        ([_change(None)], "no key with columns"),
        ([_change(7)], "no key with columns"),
        ([_change({"id": 1}), _change({"city": "x"})], "different ones"),
        ([_change({"id": 1}), _change(None)], "different ones"),
        ([_change({"other": 1})], "no column other"),
        ([_change({"id": 1}), _change({"id": 1}, table="lines")], "changes of 2 tables"),
        ([_change({"id": 1}, connector="mongodb")], "the connector mongodb needs sequence_by"),
        ([Record(None, b'{"a": 1}')], "no change events of Debezium"),
        ([Record(None, b"\xff{")], "no change events of Debezium"),
        ([Record(None, b'{"database": "d", "table": "t", "type": "insert", "ts": 1}')], "adapter maxwell"),
        ([Record(b"\0\0\0\0\1x", b"\0\0\0\0\2x")], "name the registry"),
    ],
)
def test_other_records_are_named(records: list[Record], reason: str) -> None:
    found = sampled_table(records)
    assert isinstance(found, str), found
    assert reason in found


def _record(*names: str) -> str:
    return json.dumps({"type": "record", "name": "r", "fields": [{"name": n, "type": "long"} for n in names]})


def test_the_registry_names_the_keys_of_records_in_avro() -> None:
    with serving() as registry:
        options = {"schema.registry.url": registry.url}
        numbers = [
            registry.register("s", _record(*names))
            for names in (("id", "part"), ("before", "after", "source", "op"), ("id",), ("after", "x"))
        ]
        key, value, other_key, other = (b"\0" + number.to_bytes(4, "big") + b"x" for number in numbers)
        found = sampled_table([Record(key, value)], options)
        assert isinstance(found, SampledTable)
        assert (found.keys, found.format) == (("id", "part"), "avro")
        reasons = {
            "no change events": [Record(key, other)],
            "different ones": [Record(key, value), Record(other_key, value)],
            "no key with columns": [Record(None, value)],
        }
        for reason, records in reasons.items():
            assert reason in str(sampled_table(records, options))
        unknown = b"\0" + (99).to_bytes(4, "big")
        assert "no change events" in str(sampled_table([Record(key, unknown)], options))
    with pytest.raises(StoreUnavailable):
        sampled_table([Record(key, value)], options)
