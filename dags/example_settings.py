"""What the example DAGs share: where their tables are, and how long their sensors wait."""

from __future__ import annotations

import os
from pathlib import Path

#: Folder (or URI prefix) of the tables. ``make demo`` and ``make up`` set the variable for their Airflow.
TABLES = os.environ.get("DELTA_CDC_EXAMPLE_TABLES") or str(
    Path(__file__).resolve().parents[1] / ".demo" / "run" / "tables"
)

#: Seconds that the sensors wait for changes before they give way.
WAIT = float(os.environ.get("DELTA_CDC_EXAMPLE_WAIT", "60"))

#: Whether the sensors wait in the triggerer. ``make demo`` runs the DAGs without one.
DEFERRABLE = os.environ.get("DELTA_CDC_EXAMPLE_DEFERRABLE", "true") == "true"


def table(name: str) -> str:
    """Return the path of an example table."""
    return f"{TABLES}/{name}"
