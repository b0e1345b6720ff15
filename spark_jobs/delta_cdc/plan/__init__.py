"""Which versions to move, and how: everything that is decided before Spark starts, from the logs alone."""

from __future__ import annotations

from delta_cdc.plan.apply import plan_apply, plan_apply_async
from delta_cdc.plan.changes import ChangesPlan, ChangesRequest, plan_changes, plan_changes_async
from delta_cdc.plan.read import plan_read, plan_read_async
from delta_cdc.plan.request import ApplyRequest, Memory, ReadRequest
from delta_cdc.plan.result import Plan

__all__ = [
    "ApplyRequest",
    "ChangesPlan",
    "ChangesRequest",
    "Memory",
    "Plan",
    "ReadRequest",
    "plan_apply",
    "plan_apply_async",
    "plan_changes",
    "plan_changes_async",
    "plan_read",
    "plan_read_async",
]
