"""Which versions to move, and how: everything that is decided before Spark starts, from the logs alone."""

from __future__ import annotations

from delta_cdc.plan.apply import plan_apply, plan_apply_async
from delta_cdc.plan.read import plan_read, plan_read_async
from delta_cdc.plan.request import ApplyRequest, Memory, ReadRequest
from delta_cdc.plan.result import Plan

__all__ = [
    "ApplyRequest",
    "Memory",
    "Plan",
    "ReadRequest",
    "plan_apply",
    "plan_apply_async",
    "plan_read",
    "plan_read_async",
]
