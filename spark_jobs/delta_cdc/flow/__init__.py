"""One piece of work from end to end: plan, run, confirm from the written table's log, publish."""

from __future__ import annotations

from delta_cdc.flow.apply import run_apply
from delta_cdc.flow.bundle import Piece, PieceResult, run_bundle
from delta_cdc.flow.commit import committed_by_run, committed_so_far, run_commit
from delta_cdc.flow.ingest import run_ingest
from delta_cdc.flow.look import Looked, look
from delta_cdc.flow.pins import NoPins, Pins
from delta_cdc.flow.read import run_read
from delta_cdc.flow.results import ApplyResult, CommitResult, IngestResult, ReadResult, sealed_counts
from delta_cdc.flow.runs import Say
from delta_cdc.flow.standing import committed, published, versions_of

__all__ = [
    "ApplyResult",
    "CommitResult",
    "IngestResult",
    "Looked",
    "NoPins",
    "Piece",
    "PieceResult",
    "Pins",
    "ReadResult",
    "Say",
    "committed",
    "committed_by_run",
    "committed_so_far",
    "look",
    "published",
    "run_apply",
    "run_bundle",
    "run_commit",
    "run_ingest",
    "run_read",
    "sealed_counts",
    "versions_of",
]
