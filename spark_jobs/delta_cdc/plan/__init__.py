"""Which versions to move, and how: everything that is decided before Spark starts, from the logs alone."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_cdc.plan.apply import plan_apply, plan_apply_async
    from delta_cdc.plan.changes import ChangesPlan, ChangesRequest, plan_changes, plan_changes_async
    from delta_cdc.plan.commit import CommitPlan, plan_commit, plan_commit_async
    from delta_cdc.plan.ingest import IngestPlan, plan_ingest, plan_ingest_async
    from delta_cdc.plan.ingest_request import IngestRequest
    from delta_cdc.plan.read import plan_read, plan_read_async
    from delta_cdc.plan.request import ApplyRequest, CommitRequest, Memory, ReadRequest
    from delta_cdc.plan.result import Plan

__all__ = [
    "ApplyRequest",
    "ChangesPlan",
    "ChangesRequest",
    "CommitPlan",
    "CommitRequest",
    "IngestPlan",
    "IngestRequest",
    "Memory",
    "Plan",
    "ReadRequest",
    "plan_apply",
    "plan_apply_async",
    "plan_changes",
    "plan_changes_async",
    "plan_commit",
    "plan_commit_async",
    "plan_ingest",
    "plan_ingest_async",
    "plan_read",
    "plan_read_async",
]

#: In which module a name is. A module is imported once it is needed: while a DAG file is parsed, few are.
_HOMES = {
    "ApplyRequest": "request",
    "ChangesPlan": "changes",
    "ChangesRequest": "changes",
    "CommitPlan": "commit",
    "CommitRequest": "request",
    "IngestPlan": "ingest",
    "IngestRequest": "ingest_request",
    "Memory": "request",
    "Plan": "result",
    "ReadRequest": "request",
    "plan_apply": "apply",
    "plan_apply_async": "apply",
    "plan_changes": "changes",
    "plan_changes_async": "changes",
    "plan_commit": "commit",
    "plan_commit_async": "commit",
    "plan_ingest": "ingest",
    "plan_ingest_async": "ingest",
    "plan_read": "read",
    "plan_read_async": "read",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
