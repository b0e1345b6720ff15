"""Delta tables made without a JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

if TYPE_CHECKING:
    from pathlib import Path


def append(path: Path, ids: list[int], **properties: str) -> int:
    """Append rows; returns the version made."""
    write_deltalake(
        str(path),
        pa.table({"id": pa.array(ids, pa.int64())}),
        mode="append",
        configuration=properties or None,
    )
    return DeltaTable(str(path)).version()


def compact(path: Path) -> int:
    """OPTIMIZE: files are rewritten, no row changes."""
    table = DeltaTable(str(path))
    table.optimize.compact()
    return DeltaTable(str(path)).version()


def set_properties(path: Path, **properties: str) -> int:
    """Set table properties (with dots written as double underscores)."""
    DeltaTable(str(path)).alter.set_table_properties(
        {name.replace("__", "."): value for name, value in properties.items()}
    )
    return DeltaTable(str(path)).version()
