"""An adapter that ends the process of Python that reads a file, if a record says so."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from delta_cdc.ingest.record import Event

if TYPE_CHECKING:
    from collections.abc import Mapping

    from delta_cdc.ingest.record import Record


def events(record: Record, options: Mapping[str, Any]) -> Event:
    row = record.value
    if row.get("name") == options.get("ends_at"):
        os.kill(os.getpid(), signal.SIGKILL)
    return Event("upsert", row, sequence=row["seq"])
