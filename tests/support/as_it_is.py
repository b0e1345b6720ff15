"""An adapter of a user: every record is an upsert of what it has."""

from __future__ import annotations

from typing import Any

from delta_cdc.core.adapters import UPSERT
from delta_cdc.ingest.record import Event, Record


def events(record: Record, options: dict[str, Any]) -> Event:
    """Return the record as an event."""
    return Event(UPSERT, dict(record.value))
