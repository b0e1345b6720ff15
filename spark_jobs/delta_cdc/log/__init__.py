"""The transaction log without a JVM: commits, identity, properties and proofs, through obstore."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_cdc.log.actions import Commit, parse_commit
    from delta_cdc.log.store import canonical_uri, spark_uri
    from delta_cdc.log.table import DeltaLog, TableState, run_sync

__all__ = [
    "Commit",
    "DeltaLog",
    "TableState",
    "canonical_uri",
    "parse_commit",
    "run_sync",
    "spark_uri",
]

#: In which module a name is. A module is imported once it is needed: while a DAG file is parsed, few are.
_HOMES = {
    "Commit": "actions",
    "DeltaLog": "table",
    "TableState": "table",
    "canonical_uri": "store",
    "parse_commit": "actions",
    "run_sync": "table",
    "spark_uri": "store",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
