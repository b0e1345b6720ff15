"""The transaction log without a JVM: commits, identity, properties and proofs, through obstore."""

from __future__ import annotations

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
