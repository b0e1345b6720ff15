"""Debezium's messages, built from their documented shapes: envelopes, Kafka Connect schemas, encodings."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from decimal import Decimal

PLACEHOLDER = "__debezium_unavailable_value"
CONNECT = "org.apache.kafka.connect.data"
#: Columns of a table of every kind: name, Connect type, logical name, parameters.
Field = dict[str, Any]


def field(name: str, kind: str, logical: str | None = None, **more: Any) -> Field:
    """Return a field of a Connect schema."""
    return {"field": name, "type": kind, "optional": True, **({"name": logical} if logical else {}), **more}


def decimal_field(name: str, precision: int | None, scale: int) -> Field:
    """Return a field of type DECIMAL or NUMERIC."""
    told = {"scale": str(scale)}
    if precision is not None:
        told["connect.decimal.precision"] = str(precision)
    return field(name, "bytes", f"{CONNECT}.Decimal", version=1, parameters=told)


def unscaled(number: Decimal | int, scale: int = 0) -> str:
    """Return a decimal as Connect's JSON writes it: the unscaled number's bytes in base64."""
    whole = int(f"{number:f}".replace(".", "")) if scale else int(number)
    size = (8 + (whole + (whole < 0)).bit_length()) // 8
    return base64.b64encode(whole.to_bytes(size, "big", signed=True)).decode()


def envelope_schema(fields: Sequence[Field]) -> dict[str, Any]:
    """Return the schema of an envelope around rows with these fields."""
    row = {"type": "struct", "fields": list(fields), "optional": True}
    return {
        "type": "struct",
        "name": "server.public.t.Envelope",
        "optional": False,
        "fields": [
            {**row, "field": "before", "name": "server.public.t.Value"},
            {**row, "field": "after", "name": "server.public.t.Value"},
            {"field": "source", "type": "struct", "fields": [field("lsn", "int64")], "optional": False},
            field("op", "string"),
            field("ts_ms", "int64"),
        ],
    }


def message(payload: Mapping[str, Any] | None, schema: Mapping[str, Any] | None = None) -> str:
    """Return a message's value as Connect's JsonConverter writes it."""
    if schema is None:
        return json.dumps(payload, ensure_ascii=False)
    return json.dumps({"schema": schema, "payload": payload}, ensure_ascii=False)


def postgresql(commit: int | None, lsn: int, **more: Any) -> dict[str, Any]:
    """Return ``source`` of the PostgreSQL connector.

    :param commit: position of the last commit before the transaction
    """
    both = json.dumps([None if commit is None else str(commit), str(lsn)])
    return {
        "version": "3.0.0.Final",
        "connector": "postgresql",
        "name": "server",
        "ts_ms": 1_700_000_000_123,
        "snapshot": "false",
        "db": "shop",
        "sequence": both,
        "schema": "public",
        "table": "t",
        "txId": 556,
        "lsn": lsn,
        "xmin": None,
        **more,
    }


def change(
    op: str,
    before: Mapping[str, Any] | None,
    after: Mapping[str, Any] | None,
    source: Mapping[str, Any],
) -> dict[str, Any]:
    """Return an envelope."""
    return {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1_700_000_000_456}
