"""Triggers."""

from __future__ import annotations

from airflow_delta_cdc.triggers.version import DeltaVersionTrigger

__all__ = ["DeltaVersionTrigger"]
