"""Which versions to move, and how: everything that is decided before Spark starts, from the logs alone."""

from __future__ import annotations

from delta_cdc.plan.apply import plan_apply, plan_apply_async
from delta_cdc.plan.changes import ChangesPlan, ChangesRequest, plan_changes, plan_changes_async
from delta_cdc.plan.commit import CommitPlan, plan_commit, plan_commit_async
from delta_cdc.plan.ingest import IngestPlan, IngestRequest, plan_ingest, plan_ingest_async
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
