"""Triggers."""

from __future__ import annotations

from airflow_delta_cdc.triggers.asset import watched_asset
from airflow_delta_cdc.triggers.sensor import DeltaVersionSensorTrigger
from airflow_delta_cdc.triggers.version import DeltaVersionTrigger

__all__ = ["DeltaVersionSensorTrigger", "DeltaVersionTrigger", "watched_asset"]
