"""Guess from a record which adapter it is for: a hint for a person, never a decision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.record import Invalid
from delta_cdc.ingest.records.json import value

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Members that only records of one adapter have together.
_SIGNS = (
    ("debezium", frozenset(("op", "source", "after"))),
    ("debezium", frozenset(("schema", "payload"))),
    ("canal", frozenset(("isddl", "es", "data"))),
    ("maxwell", frozenset(("database", "table", "type", "ts"))),
    ("goldengate", frozenset(("op_type", "op_ts"))),
    ("dms", frozenset(("data", "metadata"))),
)


def likely_adapter(texts: Iterable[str]) -> str | None:
    """Return the adapter that raw records seem to be for; None if nothing tells.

    :param texts: raw JSON
    """
    for text in texts:
        found: Any = value(text.encode("utf-8", "replace"))
        if isinstance(found, Invalid) or not isinstance(found, dict):
            continue
        names = {name.lower() for name in found}
        for adapter, signs in _SIGNS:
            if signs <= names:
                return adapter
        if "__op" in names or "__deleted" in names:
            return "debezium (adapter_options unwrapped)"
        if "Op" in found:
            return "dms"
    return None
