"""What sampled records of a topic say of the table whose changes they have."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any

import fastavro
import pytest

from delta_cdc.core.errors import StoreUnavailable
from delta_cdc.planning.topic_samples import Record, SampledTable, sampled_table
from tests.support.schema_registry import serving

if TYPE_CHECKING:
    from tests.support.schema_registry import Served


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
        ([_change({"id": 1}), Record(b'{"id": 1}', b'{"a": 1}')], "1 of its 2 records are no change events"),
        ([_change({"id": 1, "__dbz__physicalTableIdentifier": "t"})], "no column __dbz__physicalTable"),
        ([Record(None, b"\xff{")], "no change events of Debezium"),
        ([Record(None, b'{"database": "d", "table": "t", "type": "insert", "ts": 1}')], "adapter maxwell"),
        ([Record(b"\0\0\0\0\1x", b"\0\0\0\0\2x")], "name the registry"),
    ],
)
def test_other_records_are_named(records: list[Record], reason: str) -> None:
    found = sampled_table(records)
    assert isinstance(found, str), found
    assert reason in found


def _named(name: str, **types: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in types.items()]}


class _Writer:
    """Writes records in Avro as Debezium's converter does, with schemas of a registry."""

    def __init__(self, registry: Served) -> None:
        self._registry = registry

    def part(self, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
        file = io.BytesIO()
        fastavro.schemaless_writer(file, fastavro.parse_schema(schema), value)
        number = self._registry.register("s", json.dumps(schema))
        return b"\0" + number.to_bytes(4, "big") + file.getvalue()

    def change(
        self, key: dict[str, Any] | None, *, table: str = "orders", connector: str = "mysql"
    ) -> Record:
        row = _named("Value", id="long", part="long")
        source = {"connector": connector, "db": "shop", "table": table}
        envelope = _named(
            "Envelope",
            before=["null", row],
            after=["null", "Value"],
            source=_named("Source", **dict.fromkeys(source, "string")),
            op="string",
        )
        # A delete: its row is that before.
        images = {"before": {"id": 1, "part": 2}, "after": None}
        value = self.part(envelope, {**images, "source": source, "op": "d"})
        if key is None:
            return Record(None, value)
        return Record(self.part(_named("Key", **dict.fromkeys(key, "long")), key), value)


def test_records_in_avro_are_checked_as_those_in_json() -> None:
    with serving() as registry:
        options = {"schema.registry.url": registry.url}
        writer = _Writer(registry)
        change = writer.change({"id": 1, "part": 2})
        found = sampled_table([change, writer.change({"id": 2, "part": 2})], options)
        assert isinstance(found, SampledTable)
        assert (found.keys, found.format) == (("id", "part"), "avro")
        (evidence,) = found.evidence
        assert evidence.startswith("2 records are change events of shop.orders, in Avro. Their schemas give")
        other = writer.part(_named("Other", after="long", op="long", source="long"), dict.fromkeys(
            ("after", "op", "source"), 1
        ))  # fmt: skip
        damaged = Record(change.key, (change.value or b"")[:-1])
        unknown = Record(change.key, b"\0" + (99).to_bytes(4, "big"))
        reasons = {
            "in Avro, and no change events": [Record(change.key, other)],
            "and no change events": [unknown],
            "1 of its 2 records are no change": [change, damaged],
            "different ones": [change, writer.change({"id": 1})],
            "no key with columns": [writer.change(None)],
            # The router of Debezium adds a field to the key, and no column to the rows.
            "no column __dbz__physicalTableIdentifier": [
                writer.change({"id": 1, "__dbz__physicalTableIdentifier": 1})
            ],
            "the changes of 2 tables: shop.lines, shop.orders": [
                change,
                writer.change({"id": 1, "part": 2}, table="lines"),
            ],
            "the connector mongodb needs sequence_by": [writer.change({"id": 1}, connector="mongodb")],
        }
        for reason, records in reasons.items():
            assert reason in str(sampled_table(records, options)), reason
    with pytest.raises(StoreUnavailable):
        sampled_table([change], options)
