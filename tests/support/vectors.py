"""Deletion vectors of hand-written logs: rows of a file as a mask, and back."""

from __future__ import annotations

from typing import Any

from delta_cdc.delta_log import deletion_vectors


def bits(rows: set[int]) -> deletion_vectors.Positions:
    found: deletion_vectors.Positions = {}
    for row in rows:
        found[row >> 16] = found.get(row >> 16, 0) | 1 << (row & 0xFFFF)
    return found


def masking(rows: set[int], of: int = 10) -> dict[str, Any]:
    """Return an inline vector that masks some rows of a file."""
    data = deletion_vectors.all_but(bits(set(range(of)) - rows), of)
    return {
        "storageType": "i",
        "pathOrInlineDv": deletion_vectors.encode(data),
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }


def rows_of(data: bytes) -> list[int]:
    """Return the rows that a vector masks."""
    found = deletion_vectors.positions(data)
    return [high << 16 | at for high in sorted(found) for at in range(65_536) if found[high] >> at & 1]


def masked(vector: dict[str, Any]) -> set[int]:
    rows = rows_of(deletion_vectors.decode(vector["pathOrInlineDv"])[: vector["sizeInBytes"]])
    assert len(rows) == vector["cardinality"]
    return set(rows)
